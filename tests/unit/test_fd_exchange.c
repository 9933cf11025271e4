/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_fd_exchange.c - the helper's own descriptor table: an exported descriptor arrives and is closed
 * again, in both ways to start the helper.  What happens if one of the tables is full, if the
 * helper cannot start, and if the program closes our end or takes its number.
 */
#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/helper/helper.h"
#include "engine/share/handoff.h"
#include "engine/socket/socket.h"
#include "engine/progress/wait.h"
#include "tests/slow.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

static const char *const modes[] = {"own", "shared"};

static void mode(int i)
{
	setenv("RDS_PRELOAD_HELPER_FDS", modes[i], 1);
	rds_options_reset();
}

static unsigned entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Of the thread that is not this one; 0: there is none. */
static unsigned helper_entries(void)
{
	DIR *d = opendir("/proc/self/task");
	char path[300], comm[32];
	struct dirent *e;
	unsigned n = 0;
	FILE *f;

	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(comm, sizeof(comm), f) && strcmp(comm, "rdspreload\n") == 0) {
			snprintf(path, sizeof(path), "/proc/self/task/%s/fd", e->d_name);
			n = entries(path);
		}
		fclose(f);
	}
	closedir(d);
	return n;
}

static bool helper_has(unsigned n)
{
	return helper_entries() == n;
}

/* What the helper was quicker to see, it has left to the program's next call to close. */
static bool program_has(unsigned n)
{
	rds_progress_round();
	return entries("/proc/self/fd") == n;
}

struct end {
	struct rds_sock *sk;
	int fd;
};

static struct end end_new(void)
{
	struct end e;

	e.fd = rds_call_socket(SOCK_SEQPACKET, 0, &e.sk);
	ck_assert_int_ge(e.fd, 0);
	return e;
}

static int end_bind(const struct end *e, unsigned port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return rds_call_bind(e->sk, (struct sockaddr *)&a, sizeof(a));
}

static void end_close(const struct end *e)
{
	os_close(e->fd);
	rds_call_number_closed(e->sk);
}

static bool port_free(unsigned port)
{
	struct end e = end_new();
	int err = end_bind(&e, port);

	end_close(&e);
	return err == 0;
}

/* Not by a call of the layer above, so that only the helper can notice. */
static void hang_up(const struct end *e)
{
	syscall(SYS_close, e->fd);
}

START_TEST(lent_and_let_go)
{
	struct end first, e[100];
	unsigned before, helper;

	mode(_i);
	first = end_new();
	ck_assert_uint_eq(helper_entries(), 0);
	ck_assert_int_eq(end_bind(&first, 7000), 0);
	ck_assert_int_eq(rds_helper_has_own_table(), _i == 0);
	before = entries("/proc/self/fd");
	helper = helper_entries();
	for (unsigned round = 0; round < 5; round++) {
		for (unsigned i = 0; i < 100; i++)
			e[i] = end_new();
		ck_assert_uint_eq(entries("/proc/self/fd"), before + 200);
		test_until(helper_has(helper + (_i == 0 ? 100 : 200)));
		for (unsigned i = 0; i < 100; i++)
			end_close(&e[i]);
		test_until(program_has(before));
		test_until(helper_has(helper));
	}
}
END_TEST

/*
 * Sockets from before the helper's start and from after it.  The helper closes them; the numbers in
 * the program's table are closed by its next call.
 */
START_TEST(hang_ups_are_seen)
{
	struct end early, late, first;
	unsigned before;

	mode(_i);
	early = end_new();
	first = end_new();
	ck_assert_int_eq(end_bind(&first, 7001), 0);
	late = end_new();
	ck_assert_int_eq(end_bind(&early, 7002), 0);
	ck_assert_int_eq(end_bind(&late, 7003), 0);
	before = entries("/proc/self/fd");
	hang_up(&early);
	hang_up(&late);
	test_until(port_free(7002));
	test_until(port_free(7003));
	test_until(program_has(before - 4));
	ck_assert(!port_free(7001));
}
END_TEST

#define SHOWN 20

static void sender(unsigned port, int seen)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct iovec iov = {(char[]){"x"}, 1};
	struct msghdr msg = {.msg_name = &a, .msg_namelen = sizeof(a), .msg_iov = &iov, .msg_iovlen = 1};
	struct end from = end_new();
	char c;

	ck_assert_int_eq(end_bind(&from, port - 1), 0);
	for (unsigned i = 0; i < SHOWN; i++) {
		a.sin_port = htons((uint16_t)(port + i));
		ck_assert_int_eq(rds_call_sendmsg(from.sk, from.fd, &msg, 0), 1);
	}
	/* messages are under way only as long as this process lives */
	ck_assert_int_eq(read(seen, &c, 1), 0);
}

/*
 * While the program makes no call, the helper shows input on the stand-ins.  Libc's own poll looks
 * at these here.
 */
START_TEST(the_helper_shows_input)
{
	struct pollfd p[SHOWN];
	struct end to[SHOWN];
	int go[2], seen[2];
	char c;

	mode(_i);
	ck_assert_int_eq(pipe(go), 0);
	ck_assert_int_eq(pipe(seen), 0);
	if (fork() == 0) {
		close(go[1]);
		close(seen[1]);
		ck_assert_int_eq(read(go[0], &c, 1), 0);
		sender(7021, seen[0]);
		_exit(0);
	}
	for (unsigned i = 0; i < SHOWN; i++) {
		to[i] = end_new();
		ck_assert_int_eq(end_bind(&to[i], 7021 + i), 0);
		p[i] = (struct pollfd){.fd = to[i].fd, .events = POLLIN};
	}
	close(go[1]);
	for (unsigned i = 0; i < SHOWN; i++)
		ck_assert_int_eq(poll(&p[i], 1, TEST_COMES), 1);
	close(seen[1]);
	wait(NULL);
}
END_TEST

static _Atomic bool armed;
static _Atomic pid_t tid;

static void *sleeper(void *arg)
{
	struct end *e = arg;
	struct rds_wait *w = rds_wait_begin(1);
	uint64_t v;
	bool slept;

	ck_assert_int_eq(rds_wait_add(w, e->sk, POLLIN), 0);
	slept = rds_wait_arm(w);
	atomic_store(&tid, slept ? gettid() : 0);
	atomic_store(&armed, true);
	if (slept)
		ck_assert_int_eq(rds_os_sleep.read(rds_wait_fd(w), &v, sizeof(v)), 8);
	rds_wait_disarm(w);
	rds_wait_end(w);
	return NULL;
}

/*
 * Two threads sleep, one of them since before there was a helper.  The helper ends both sleeps
 * while no other thread is awake.
 */
START_TEST(sleepers_are_woken_by_the_helper)
{
	struct end e[2] = {{0}};
	pthread_t t[2];

	mode(_i);
	for (unsigned i = 0; i < 2; i++) {
		e[i] = end_new();
		atomic_store(&armed, false);
		ck_assert_int_eq(pthread_create(&t[i], NULL, sleeper, &e[i]), 0);
		test_until(atomic_load(&armed) && (!tid || test_asleep(tid)));
		if (i == 0) {
			struct end first = end_new();

			ck_assert_int_eq(end_bind(&first, 7006), 0);
		}
	}
	for (unsigned i = 0; i < 2; i++)
		hang_up(&e[i]);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(t[i], NULL), 0);
}
END_TEST

static void limit(unsigned n)
{
	struct rlimit rl;

	getrlimit(RLIMIT_NOFILE, &rl);
	rl.rlim_cur = n;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
}

/* A start that fails for lack of numbers leaves nothing, and the next one works. */
START_TEST(start_again)
{
	struct end e;
	unsigned n, before, failed = 0;

	mode(_i);
	e = end_new();
	before = entries("/proc/self/fd");
	for (n = 8; end_bind(&e, 7007) != 0; n++) {
		ck_assert_uint_eq(helper_entries(), 0);
		/* the leader's pipe stays */
		ck_assert_uint_le(entries("/proc/self/fd"), before + 2);
		failed++;
		ck_assert_uint_lt(n, 100);
		limit(n);
	}
	(void)failed;
	limit(1024);
	hang_up(&e);
	test_until(port_free(7007));
}
END_TEST

/*
 * If no number is free, the helper leaves exported descriptors where they are, and takes them when
 * it can.
 */
START_TEST(the_helper_is_full)
{
	struct end first = end_new(), e;
	int said = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	char text[1024] = "";
	unsigned helper;

	mode(0);
	ck_assert_int_eq(end_bind(&first, 7008), 0);
	helper = helper_entries();
	ck_assert_int_eq(dup2(said, 2), 2);
	limit(4); /* nobody gets a number now, and the log says so once */
	for (int i = 0; i < 2; i++) {
		e.fd = rds_call_socket(SOCK_SEQPACKET, 0, &e.sk);
		ck_assert_int_eq(e.fd, -EMFILE);
	}
	limit(1024);
	ck_assert_int_gt(pread(said, text, sizeof(text) - 1, 0), 0);
	ck_assert_ptr_nonnull(strstr(text, "no descriptor for another RDS socket: raise `ulimit -n`"));
	ck_assert_ptr_eq(strchr(text, '\n'), strrchr(text, '\n'));
	e = end_new();
	test_until(helper_has(helper + 1));
	hang_up(&e);
	test_until(helper_has(helper));
}
END_TEST

static int receive(const struct end *e, int flags)
{
	char c;
	struct iovec iov = {&c, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	return (int)rds_call_recvmsg(e->sk, e->fd, &msg, flags);
}

static void *receiver(void *arg)
{
	ck_assert_int_eq(receive(arg, 0), 1);
	return NULL;
}

/*
 * One message to that port, from a process that knows nobody. As its addresses are limited, it has no
 * cells, and what it sends takes descriptors of the peer.
 */
static void newcomer(int go, int seen, unsigned port)
{
	const struct rlimit most = {.rlim_cur = RLIM_INFINITY - 1, .rlim_max = RLIM_INFINITY};
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct iovec iov = {(char[]){"x"}, 1};
	struct msghdr msg = {.msg_name = &a, .msg_namelen = sizeof(a), .msg_iov = &iov, .msg_iovlen = 1};
	struct end from;
	char c;

	ck_assert_int_eq(read(go, &c, 1), 1);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &most), 0);
	from = end_new();
	a.sin_port = htons((uint16_t)port);
	ck_assert_int_eq(end_bind(&from, port + 1), 0);
	ck_assert_int_eq(rds_call_sendmsg(from.sk, from.fd, &msg, 0), 1);
	ck_assert_int_eq(read(seen, &c, 1), 1);
	_exit(0);
}

static bool says(int said, const char *what)
{
	char text[4096] = "";

	rds_helper_deferred_check();
	return pread(said, text, sizeof(text) - 1, 0) > 0 && strstr(text, what);
}

/*
 * The program allows itself no descriptor any more, and the helper has none for another process,
 * nor for a line: a thread of the program says it; _i: one that sleeps.
 */
START_TEST(the_limit_is_lowered)
{
	int said = open("/tmp", O_TMPFILE | O_RDWR, 0600), go[2], seen[2];
	struct end e;
	pthread_t t;

	mode(0);
	ck_assert(pipe(go) == 0 && pipe(seen) == 0);
	if (fork() == 0)
		newcomer(go[0], seen[0], 7015);
	e = end_new();
	ck_assert_int_eq(end_bind(&e, 7015), 0);
	ck_assert_int_eq(dup2(said, 2), 2);
	if (_i)
		ck_assert_int_eq(pthread_create(&t, NULL, receiver, &e), 0);
	limit(0);
	ck_assert_int_eq(write(go[1], "x", 1), 1);
	test_until(_i ? pread(said, (char[1]){0}, 1, 0) > 0 : says(said, "ulimit -n"));
	limit(1024);
	ck_assert(says(said, "raise `ulimit -n`"));
	if (_i)
		ck_assert_int_eq(pthread_join(t, NULL), 0);
	else
		test_until(receive(&e, MSG_DONTWAIT) == 1);
	ck_assert_int_eq(write(seen[1], "x", 1), 1);
	wait(NULL);
}
END_TEST

/* The program or the helper may be the first to notice. */
START_TEST(closed_behind_our_back)
{
	struct end first = end_new(), e;
	int said = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	char text[1024] = "";

	mode(0);
	ck_assert_int_eq(end_bind(&first, 7009), 0);
	ck_assert_int_eq(dup2(said, 2), 2);
	for (int fd = 3; fd < 20000; fd++) {
		struct sockaddr_un un;
		socklen_t len = sizeof(un);

		/* a connection to a name that the kernel chose: nothing else here is one */
		if (getsockname(fd, (struct sockaddr *)&un, &len) == 0 && un.sun_family == AF_UNIX &&
		    len == sizeof(un.sun_family) + 6)
			syscall(SYS_close, fd);
	}
	if (_i) /* for a second of the real clock the helper makes sure that it is not alone */
		test_until(pread(said, text, sizeof(text) - 1, 0) > 0 &&
			   strstr(text, "the program has closed descriptors"));
	ck_assert_uint_gt(helper_entries(), 0);
	e = end_new();
	ck_assert_int_eq(end_bind(&e, 7010), 0);
	end_close(&e);
	ck_assert(port_free(7010));
}
END_TEST

/* ---- another thread of the program takes a number of ours that we have read ---- */

enum { NOTHING, TAKE, REPLACE, TAKE_EXPORTED, REPLACE_EXPORTED, WAYS };

static _Atomic int takes;
static pthread_t thief;
static struct {
	int number;
	bool replace;
	_Atomic int tid, result; /* result: the number, when all is done */
} theft;

static void *take_number(void *arg)
{
	int err;

	atomic_store(&theft.tid, gettid());
	err = os_fd_is_internal(theft.number) ? os_fd_move_internal(theft.number) : -ENOENT;
	if (!err && theft.replace)
		err = dup2(2, theft.number) < 0 ? -errno : 0;
	atomic_store(&theft.result, err ? err : theft.number);
	return arg;
}

/* It has the number before the call goes on, unless it has to wait for the end of the call. */
static void let_take(int end, int exported)
{
	int how = atomic_exchange(&takes, NOTHING);

	if (!how)
		return;
	theft.number = how < TAKE_EXPORTED ? end : exported;
	theft.replace = how == REPLACE || how == REPLACE_EXPORTED;
	if (pthread_create(&thief, NULL, take_number, NULL))
		abort();
	test_until(atomic_load(&theft.result) || (atomic_load(&theft.tid) && test_asleep(theft.tid)));
}

static void taken(void)
{
	ck_assert_int_eq(takes, NOTHING);
	ck_assert_int_eq(pthread_join(thief, NULL), 0);
	ck_assert_int_eq(theft.result, theft.number);
}

int __real_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags);
int __wrap_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags);
ssize_t __real_os_pass_recv(int fd, void *buf, size_t len, int fds[OS_PASS_MAX], unsigned *nfds, bool *lost, int flags);
ssize_t __wrap_os_pass_recv(int fd, void *buf, size_t len, int fds[OS_PASS_MAX], unsigned *nfds, bool *lost, int flags);

int __wrap_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags)
{
	if (!os_fd_table)
		let_take(fd, nfds ? fds[0] : -1);
	return __real_os_pass_send(fd, buf, len, fds, nfds, flags);
}

ssize_t __wrap_os_pass_recv(int fd, void *buf, size_t len, int fds[OS_PASS_MAX], unsigned *nfds, bool *lost, int flags)
{
	if (!os_fd_table)
		let_take(fd, -1);
	return __real_os_pass_recv(fd, buf, len, fds, nfds, lost, flags);
}

int __real_os_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev);
int __wrap_os_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev);

int __wrap_os_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	if (!os_fd_table)
		let_take(fd, ep);
	return __real_os_epoll_ctl(ep, op, fd, ev);
}

START_TEST(moved_while_exporting)
{
	struct end first = end_new(), e;
	unsigned helper;

	mode(0);
	ck_assert_int_eq(end_bind(&first, 7011), 0);
	helper = helper_entries();
	atomic_store(&takes, _i);
	e = end_new();
	taken();
	test_until(helper_has(helper + 1));
	hang_up(&e);
	test_until(helper_has(helper));
}
END_TEST

static _Atomic bool rung;

static void ring(struct rds_helper_event *ev, uint32_t events)
{
	(void)ev, (void)events;
	atomic_store(&rung, true);
}

/* The helper is in the program's table. */
START_TEST(moved_while_watched)
{
	static struct rds_helper_event ev = {.fn = ring};
	struct end first = end_new();
	_Atomic int slot = -1;

	mode(1);
	ck_assert_int_eq(end_bind(&first, 7013), 0);
	ck_assert_int_eq(os_dup_high_slot(os_eventfd(0, 0), &slot), 0);
	atomic_store(&takes, _i);
	ck_assert_int_eq(rds_helper_event_add(&ev, &slot, EPOLLIN | EPOLLET), 0);
	taken();
	ck_assert_int_eq(os_write(slot, &(uint64_t){1}, 8), 8);
	test_until(atomic_load(&rung));
}
END_TEST

static void handed_off(struct rds_sock *sk)
{
	(void)sk;
}

/* A socket is left to another process, and there is no helper. */
START_TEST(moved_while_parked)
{
	struct end e = end_new();
	unsigned before = entries("/proc/self/fd");

	rds_hook_handed_off = handed_off;
	atomic_store(&takes, _i);
	ck_assert(rds_handoff_unbound_out(e.fd));
	taken();
	ck_assert(rds_handoff_is_parked(e.fd));
	ck_assert_uint_eq(entries("/proc/self/fd"), before + (_i == REPLACE));
}
END_TEST

static unsigned order, packet_came, call_came;
static _Atomic bool given;

static unsigned packet_take(void *what, int *fds, unsigned nfds)
{
	(void)what, (void)fds, (void)nfds;
	packet_came = ++order;
	return 0;
}

static void call_run(struct rds_deferred_call *c)
{
	(void)c;
	call_came = ++order;
}

static void give(struct rds_timer *tm)
{
	static struct rds_deferred_call call = {.fn = call_run};
	int fd = os_eventfd(0, 0);

	(void)tm;
	ck_assert_int_eq(rds_export_to_program(RDS_EXPORT_PEER, NULL, &fd, 1), 0);
	os_close(fd);
	rds_helper_defer_to_program(&call);
	atomic_store(&given, true);
}

/* A deferred call may free what a packet names that was there before it. */
START_TEST(moved_while_taking)
{
	static struct rds_timer giver = {.fn = give};
	struct end first = end_new();

	mode(0);
	ck_assert_int_eq(end_bind(&first, 7012), 0);
	rds_export_takers[RDS_EXPORT_PEER] = packet_take;
	rds_timer_set(&giver, os_now_ns());
	test_until(atomic_load(&given));
	atomic_store(&takes, _i);
	rds_helper_deferred_run();
	taken();
	ck_assert_uint_eq(packet_came, 1);
	ck_assert_uint_eq(call_came, 2);
}
END_TEST

/* The line that was left at the fork is the parent's to write; the child leaves lines of its own. */
START_TEST(a_child_leaves_lines)
{
	int status;
	pid_t pid;

	rds_fd_exchange_log_left();
	ck_assert_ptr_nonnull(atomic_load(&rds_helper_deferred));
	pid = fork();
	if (!pid) {
		rds_fd_exchange_forget();
		if (atomic_load(&rds_helper_deferred))
			_exit(1);
		rds_fd_exchange_log_left();
		_exit(atomic_load(&rds_helper_deferred) ? 0 : 2);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	rds_helper_deferred_run();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fd_exchange");
	TCase *tc = tcase_create("post");

	tcase_add_checked_fixture(tc, registry_setup, registry_teardown);
	tcase_add_loop_test(tc, lent_and_let_go, 0, 2);
	tcase_add_loop_test(tc, hang_ups_are_seen, 0, 2);
	tcase_add_loop_test(tc, the_helper_shows_input, 0, 2);
	tcase_add_loop_test(tc, sleepers_are_woken_by_the_helper, 0, 2);
	tcase_add_loop_test(tc, start_again, 0, 2);
	tcase_add_test(tc, the_helper_is_full);
	tcase_add_loop_test(tc, the_limit_is_lowered, 0, 2);
	tcase_add_loop_test(tc, closed_behind_our_back, 0, 2);
	tcase_add_loop_test(tc, moved_while_exporting, TAKE, WAYS);
	tcase_add_loop_test(tc, moved_while_watched, TAKE, WAYS);
	tcase_add_loop_test(tc, moved_while_parked, TAKE, TAKE_EXPORTED);
	tcase_add_loop_test(tc, moved_while_taking, TAKE, TAKE_EXPORTED);
	tcase_add_test(tc, a_child_leaves_lines);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
