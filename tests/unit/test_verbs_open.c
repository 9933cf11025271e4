/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_open.c - a device is opened (engine/transport/verbs/verbs.c, dev/device.c): what
 * libibverbs is told before, a forked child that opens it anew, and devices that can do less than
 * is asked.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/rds.h"
#include "tests/mock/world.h"

static struct world_conn *const a = &world.conn[0], *const b = &world.conn[1];
static char said[8192];

static void begin(enum mock_mode mode)
{
	char path[] = "/tmp/test_verbs_open.XXXXXX";
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	close(fd);
	setenv("RDS_PRELOAD_LOG_FILE", path, 1);
	setenv("RDS_PRELOAD_LOG", "warn", 1);
	world_begin(mode);
}

static void setup_unclaimed(void)
{
	begin(MOCK_IB);
}

static void setup_ib(void)
{
	begin(MOCK_IB);
	ck_assert_int_eq(world_claim(US), 1);
}

static void setup_iwarp(void)
{
	begin(MOCK_IWARP);
	ck_assert_int_eq(world_claim(US), 1);
}

static void teardown(void)
{
	world_end();
	unlink(getenv("RDS_PRELOAD_LOG_FILE"));
}

/* How often the log says that. */
static unsigned log_says(const char *what)
{
	FILE *f = fopen(getenv("RDS_PRELOAD_LOG_FILE"), "r");
	unsigned n = 0;
	char *at;

	ck_assert_ptr_nonnull(f);
	said[fread(said, 1, sizeof(said) - 1, f)] = 0;
	fclose(f);
	for (at = said; (at = strstr(at, what)); at++)
		n++;
	return n;
}

/* ---- fork ---- */

#define SOCKETS 16

static void close_one(int fd, void *arg)
{
	(void)arg;
	os_fd_abandon(fd);
}

/* As the engine forgets; then sockets of the child's own, then its first bind on the device. */
static int child(int parents_cmd)
{
	struct stat before[SOCKETS], now;
	bool in_place = false;
	int fd[SOCKETS], i;

	os_fds_forked();
	os_fd_each_internal(0, ~0u, close_one, NULL);
	rds_verbs_fork_child();
	rds_verbs_transport();
	for (i = 0; i < SOCKETS; i++) {
		fd[i] = os_dup_high(socket(AF_UNIX, SOCK_DGRAM, 0));
		if (fd[i] < 0 || fstat(fd[i], &before[i]))
			return 2;
		in_place |= fd[i] == parents_cmd;
	}
	if (!in_place)
		return 3; /* the test tests nothing */
	if (world_claim(US) != 1)
		return 4;
	for (i = 0; i < SOCKETS; i++)
		if (fstat(fd[i], &now) || now.st_ino != before[i].st_ino || now.st_mode != before[i].st_mode)
			return 10 + i;
	return 0;
}

START_TEST(test_child_binds)
{
	int cmd = mock_context(world.ours)->cmd_fd, status;
	pid_t pid;

	ck_assert(os_fd_is_internal(cmd));
	if (_i) { /* librdmacm keeps it all the same */
		mock_async(world.ours, IBV_EVENT_DEVICE_FATAL);
		world_run();
		ck_assert_ptr_null(world_dev());
	}
	pid = fork();
	if (pid == 0)
		_exit(child(cmd));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "status %x", (unsigned)status);
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	ck_assert_int_eq(mock_context(world.ours)->cmd_fd, cmd); /* the parent's */
}
END_TEST

static unsigned fork_inits;

static int fork_init(void)
{
	ck_assert_ptr_null(verbs_cm.events);
	ck_assert_uint_eq(mock_calls(MOCK_rdma_create_id), 0);
	ck_assert_uint_eq(mock_calls(MOCK_ibv_open_device), 0);
	fork_inits++;
	return ENOSYS;
}

/*
 * The library is told before anything else, once.  If that fails, a line is logged, and nothing
 * more happens.
 */
START_TEST(test_fork_init)
{
	if (_i)
		vb.ibv_fork_init = fork_init;
	ck_assert_int_eq(world_claim("127.0.0.1"), 0);
	ck_assert_uint_eq(fork_inits + mock_calls(MOCK_ibv_fork_init), 0);
	ck_assert_int_eq(world_claim(US), 1);
	ck_assert_int_eq(world_claim(US2), 1);
	ck_assert_uint_eq(_i ? fork_inits : mock_calls(MOCK_ibv_fork_init), 1);
	ck_assert_uint_eq(log_says("ibv_fork_init"), _i ? 1 : 0);
}
END_TEST

/* ---- devices that can do less ---- */

/* No error: the address is not this transport's, which is said once. */
START_TEST(test_no_srq)
{
	unsigned i;

	if (_i == 0)
		world.ours->attr.max_srq = 0;
	else if (_i == 1)
		world.ours->attr.max_srq_wr = 0;
	for (i = 0; i < 3; i++) {
		if (_i >= 2)
			mock_fail(MOCK_ibv_create_srq, 1, _i == 2 ? EOPNOTSUPP : ENOSYS);
		ck_assert_int_eq(world_claim(US), 0);
		ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 0);
	}
	ck_assert_uint_eq(log_says("shared receive queues"), 1);
	ck_assert_uint_eq(log_says("cannot be used"), 0);
	ck_assert_int_eq(world_claim(US2), 1); /* that one has them */
}
END_TEST

/* No memory for a queue: what can be done is said. */
START_TEST(test_no_memory_for_queues)
{
	static const enum mock_fn fns[] = {MOCK_ibv_alloc_pd, MOCK_ibv_create_cq, MOCK_ibv_create_srq};

	static const char *const what[] = {"a protection domain, about", "a completion queue, about",
					   "a shared receive queue, about"};
	struct rlimit l;

	ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &l), 0);
	l.rlim_cur = 123456;
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &l), 0);
	world_listen();
	mock_fail_from(fns[_i], 1, ENOMEM);
	ck_assert_int_eq(world_claim(US), -ENOMEM);
	world_said_memlock(what[_i], 512, 123456);
	mock_fail(fns[_i], 0, 0);
	ck_assert_int_eq(world_claim(US), 1);
}
END_TEST

/*
 * There is memory for a short completion queue only, which is enough.  Other errors are no reason
 * to try again.
 */
START_TEST(test_short_cq)
{
	unsigned calls;

	mock_fail(MOCK_ibv_create_cq, 1, EINVAL);
	ck_assert_int_eq(world_claim(US), -EINVAL);
	calls = mock_calls(MOCK_ibv_create_cq);
	ck_assert_uint_eq(calls, 1);
	world.ours->cq_memory = 1000;
	ck_assert_int_eq(world_claim(US), 1);
	ck_assert_uint_gt(mock_calls(MOCK_ibv_create_cq), 3);
	ck_assert_int_ge(world_dev()->cq->cqe, 500);
	ck_assert_uint_eq(log_says("limit of locked memory"), 0);
	world_pair();
	ck_assert_int_eq(world_send(a, 9000, 0), 0);
	world_run();
	ck_assert(world_all_came(a, b));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs_open");
	TCase *t;

	tcase_add_loop_test(suite_case(s, "ib", setup_ib, teardown), test_child_binds, 0, 2);
	tcase_add_loop_test(suite_case(s, "iwarp", setup_iwarp, teardown), test_child_binds, 0, 2);
	t = suite_case(s, "unclaimed", setup_unclaimed, teardown);
	tcase_add_loop_test(t, test_fork_init, 0, 2);
	tcase_add_loop_test(t, test_no_srq, 0, 4);
	tcase_add_loop_test(t, test_no_memory_for_queues, 0, 3);
	tcase_add_test(t, test_short_cq);
	return suite_run(s);
}
