/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_foreign_memory.c - the memory of another process by its descriptor (abi/foreign_memory.c): what is
 * mapped is copied, what is not is -EFAULT, and any other descriptor is refused.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/sys/os.h"
#include "engine/abi/user_copy.h"
#include "engine/helper/fd_exchange.h"
#include "engine/helper/helper.h"
#include "tests/unit/suite.h"

#define PAGE 4096u

static char *there; /* two pages of the other process; behind them there is nothing */
static pid_t other;
static int line[2];

/* It gives us its memory; then says what stands there when it is asked. */
static void be_the_other(void)
{
	int fd;
	char c;

	memset(there, 'o', (size_t)2 * PAGE);
	fd = rds_foreign_memory_fd_open();
	if (fd < 0 || os_pass_send(line[1], "m", 1, &fd, 1, 0))
		_exit(1);
	while (read(line[1], &c, 1) == 1)
		if (write(line[1], there, (size_t)2 * PAGE) != 2 * PAGE)
			_exit(2);
	_exit(0);
}

static struct rds_foreign_memory *its_memory(void)
{
	int fds[OS_PASS_MAX];
	unsigned n;
	bool lost;
	char c;

	ck_assert_int_eq(os_pass_recv(line[0], &c, 1, fds, &n, &lost, 0), 1);
	ck_assert_uint_eq(n, 1);
	ck_assert(rds_foreign_memory_fd_is(fds[0], other));
	ck_assert(!rds_foreign_memory_fd_is(fds[0], other + 1));
	return rds_foreign_memory_new(fds[0], other);
}

static void its_end(void)
{
	int status;

	close(line[0]);
	ck_assert_int_eq(waitpid(other, &status, 0), other);
	ck_assert_int_eq(status, 0);
}

static void start(void)
{
	there = mmap(NULL, (size_t)3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(there, MAP_FAILED);
	munmap(there + (size_t)2 * PAGE, PAGE);
	memset(there, 'u', (size_t)2 * PAGE);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, line), 0);
	other = fork();
	ck_assert_int_ge(other, 0);
	if (!other) {
		close(line[0]);
		be_the_other();
	}
	close(line[1]);
}

static void end(void)
{
}

START_TEST(copies)
{
	struct rds_foreign_memory *m = its_memory();
	static char seen[2 * PAGE];
	char buf[PAGE];

	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(rds_ucopy_from(m, buf, (uintptr_t)there + 100, PAGE), 0);
	ck_assert(!memchr(buf, 'u', PAGE) && buf[0] == 'o' && buf[PAGE - 1] == 'o');
	memset(buf, 'x', PAGE);
	ck_assert_int_eq(rds_ucopy_to(m, (uintptr_t)there + 100, buf, PAGE), 0);
	ck_assert_int_eq(there[100], 'u'); /* ours is not touched */
	ck_assert_int_eq(write(line[0], "?", 1), 1);
	ck_assert_int_eq(read(line[0], seen, sizeof(seen)), (ssize_t)sizeof(seen));
	ck_assert(seen[99] == 'o' && seen[100] == 'x' && seen[99 + PAGE] == 'x' && seen[100 + PAGE] == 'o');
	rds_foreign_memory_put(rds_foreign_memory_get(m));
	ck_assert_int_eq(rds_ucopy_from(m, buf, (uintptr_t)there, 1), 0);
	rds_foreign_memory_put(m);
	its_end();
}
END_TEST

START_TEST(not_there)
{
	struct rds_foreign_memory *m = its_memory();
	char buf[PAGE];

	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(rds_ucopy_from(m, buf, (uintptr_t)there + 2 * PAGE, 1), -EFAULT);
	ck_assert_int_eq(rds_ucopy_to(m, (uintptr_t)there + 2 * PAGE, buf, 1), -EFAULT);
	ck_assert_int_eq(rds_ucopy_from(m, buf, (uintptr_t)there + 2 * PAGE - 10, 20), -EFAULT);
	ck_assert_int_eq(rds_ucopy_from(m, buf, 0, 1), -EFAULT);
	ck_assert_int_eq(rds_ucopy_from(m, buf, UINT64_MAX - 5, 4), -EFAULT);
	ck_assert_int_eq(rds_ucopy_from(m, buf, UINT64_MAX - 5, 100), -EFAULT);
	ck_assert_int_eq(rds_ucopy_from(m, buf, 16, 0), 0);
	its_end();
	/* that process has none any more */
	ck_assert_int_eq(rds_ucopy_from(m, buf, (uintptr_t)there, 1), -EFAULT);
	rds_foreign_memory_put(m);
}
END_TEST

START_TEST(no_memory_at_all)
{
	static const char *const files[] = {"/proc/self/oom_score_adj", "/proc/self/comm", "/proc/self/clear_refs"};
	int fd[2];
	unsigned i;

	ck_assert_int_eq(pipe(fd), 0);
	ck_assert(!rds_foreign_memory_fd_is(fd[0], getpid()) && !rds_foreign_memory_fd_is(fd[1], getpid()));
	fd[0] = open("/proc/self/mem", O_RDONLY);
	ck_assert_int_ge(fd[0], 0);
	ck_assert(!rds_foreign_memory_fd_is(fd[0], getpid()));
	fd[0] = memfd_create("no", 0);
	ck_assert(!rds_foreign_memory_fd_is(fd[0], getpid()));
	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		fd[0] = open(files[i], O_RDWR);
		ck_assert(!rds_foreign_memory_fd_is(fd[0], getpid()));
	}
	fd[0] = open("/proc/self/mem", O_RDWR);
	ck_assert(rds_foreign_memory_fd_is(fd[0], getpid()));
	rds_foreign_memory_put(its_memory());
	its_end();
}
END_TEST

static unsigned rounds;

static bool count_round(void)
{
	rounds++;
	return false;
}

/* What a thread of the parent had left to the helper says nothing about the child's helper. */
START_TEST(left_to_the_helper_in_a_forked_child)
{
	struct rds_foreign_memory *m = its_memory();

	rds_foreign_memory_await = count_round;
	rds_fd_exchange_begin(true); /* a helper with a descriptor table of its own */
	ck_assert(!rds_foreign_memory_at_hand(m));
	rds_helper_fork_child();
	rds_abi_fork_child();
	rds_fd_exchange_begin(true);
	ck_assert(!rds_foreign_memory_at_hand(m));
	rds_helper_deferred_run_own();
	ck_assert_uint_eq(rounds, 1);
	its_end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("foreign_memory");
	TCase *t = suite_case(s, "another process", start, end);

	tcase_add_test(t, copies);
	tcase_add_test(t, not_there);
	tcase_add_test(t, no_memory_at_all);
	tcase_add_test(t, left_to_the_helper_in_a_forked_child);
	return suite_run(s);
}
