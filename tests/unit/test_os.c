/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_os.c - system calls for the engine (sys/os.c, process.c): raw calls return -errno and leave
 * errno alone; what a program's limits, signals and forks must not change.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/sys/os.h"
#include "engine/sys/process.h"
#include "engine/node/stats.h"
#include "tests/unit/suite.h"

START_TEST(errno_is_left_alone)
{
	struct stat st;
	void *p;

	errno = 4711;
	ck_assert_int_eq(os_open("/nonexistent", O_RDONLY, 0), -ENOENT);
	ck_assert_int_eq(os_close(-1), -EBADF);
	ck_assert_int_eq(os_read(-1, &st, 1), -EBADF);
	ck_assert_int_eq(os_fstat(-1, &st), -EBADF);
	ck_assert_int_eq(os_socket(-5, 0, 0), -EAFNOSUPPORT);
	ck_assert_int_eq(os_mmap(0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &p), -EINVAL);
	ck_assert_int_eq(os_dup_high(-ENFILE), -ENFILE);
	ck_assert_int_eq(os_dup_high(9999), -EBADF);
	ck_assert_int_eq(errno, 4711);
}
END_TEST

START_TEST(files_and_locks)
{
	char buf[4] = "";
	int fd = os_memfd("test", MFD_CLOEXEC), status;
	struct stat st;
	pid_t pid;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(os_write(fd, "abc", 3), 3);
	ck_assert_int_eq(os_pwrite(fd, "X", 1, 1), 1);
	ck_assert_int_eq(os_pread(fd, buf, 3, 0), 3);
	ck_assert_str_eq(buf, "aXc");
	ck_assert_int_eq(os_fallocate(fd, 0, 8192), 0);
	ck_assert_int_eq(os_fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, 8192);
	ck_assert_int_eq(os_ftruncate(fd, 1), 0);
	ck_assert_int_eq(os_lock(fd, F_WRLCK, 3, 1, false), 0);
	ck_assert_int_eq(os_lock_holder(fd, 3, 1), 0); /* one's own is no conflict */
	pid = fork();
	if (pid == 0) {
		int bad = os_lock(fd, F_RDLCK, 3, 1, false) != -EAGAIN;

		bad |= os_lock_holder(fd, 0, 100) != getppid();
		bad |= os_lock(fd, F_WRLCK, 4, 1, true) != 0;
		_exit(bad);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	os_close(fd);
}
END_TEST

/* Nobody asked the library to end a program whose files may not be long; what fits is written. */
START_TEST(a_limit_on_files)
{
	struct rlimit few = {4096, 4096};
	static char bytes[5000];
	struct iovec iov = {bytes, sizeof(bytes)};
	int fd = os_memfd("test", MFD_CLOEXEC);
	off_t at = 0;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &few), 0);
	signal(SIGXFSZ, SIG_DFL);
	ck_assert_int_eq(os_file_append(fd, &at, bytes, 4000), 0);
	ck_assert_int_eq(at, 4000);
	ck_assert_int_eq(os_file_append(fd, &at, bytes, 200), -EFBIG);
	ck_assert_int_eq(os_memfd_sealed(&iov, 1), -EFBIG);
	iov.iov_len = 4096;
	ck_assert_int_ge(os_memfd_sealed(&iov, 1), 0);
	os_close(fd);
}
END_TEST

/* For the end of a process, or until it goes on, unless the program sets another one meanwhile. */
START_TEST(limits_are_raised)
{
	const struct rlimit low = {10, 100}, other = {20, 100};
	struct os_limits l;
	struct rlimit now;

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	os_limits_raise(&l);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &now), 0);
	ck_assert_uint_eq(now.rlim_cur, 100);
	os_limits_restore(&l);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &now), 0);
	ck_assert_uint_eq(now.rlim_cur, 10);
	os_limits_raise(&l);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &other), 0);
	os_limits_restore(&l);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &now), 0);
	ck_assert_uint_eq(now.rlim_cur, 20);
	ck_assert_uint_eq(now.rlim_max, 100);
}
END_TEST

static volatile sig_atomic_t ticks;

static void tick(int sig)
{
	(void)sig;
	ticks = ticks + 1;
}

/* Before Linux 6.18 fallocate() gives up what it has got when a signal comes. */
START_TEST(a_timer_takes_no_memory_away)
{
	struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
	int fd = os_memfd("test", MFD_CLOEXEC), err = 0;
	const off_t len = 32 << 20;
	struct stat st;

	ck_assert_int_ge(fd, 0);
	signal(SIGALRM, tick);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
	while (!err && ticks < 10) { /* as often as it takes to have met some */
		ck_assert_int_eq(os_ftruncate(fd, 0), 0);
		err = os_fallocate(fd, 0, len);
	}
	ck_assert_int_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
	ck_assert_int_eq(err, 0);
	ck_assert_int_eq(os_fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, len);
	ck_assert_int_eq(st.st_blocks * 512, len);
	os_close(fd);
}
END_TEST

/* their mlockall() does nothing */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/*
 * A mapping that is larger than the limit is made, unlocked.  If not even a page fits, the kernel
 * says EAGAIN, which elsewhere stands for reasons that pass: os_mmap() makes it ENOMEM.
 */
START_TEST(a_limit_on_locked_memory)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}, {0}};
	struct rlimit few = {1 << 16, 1 << 16};
	const size_t len = 1 << 20;
	void *p, *one;
	int err, all, pages;

	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &few), 0);
	ck_assert_int_eq(syscall(SYS_capset, &header, none), 0);
	ck_assert_int_eq(mlockall(MCL_FUTURE), 0);
	all = os_mmap(len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &p);
	for (pages = 0, err = 0; !err && pages < 100; pages++)
		err = os_mmap(4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &one);
	munlockall();
	ck_assert_int_eq(all, 0);
	memset(p, 1, len);
	os_munmap(p, len);
	ck_assert_int_eq(err, -ENOMEM);
}
END_TEST
#endif

START_TEST(sockets_and_waiting)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 7 }, got;
	struct pollfd pfd = { .events = POLLIN };
	struct timespec no_time = { 0, 0 };
	int sv[2], ep = os_epoll_create();
	char buf[8];
	uint64_t t;

	ck_assert_int_eq(os_socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv), 0);
	ck_assert_int_eq(os_epoll_ctl(ep, EPOLL_CTL_ADD, sv[0], &ev), 0);
	ck_assert_int_eq(os_epoll_wait(ep, &got, 1, 0), 0);
	ck_assert_int_eq(os_recv(sv[0], buf, sizeof(buf), MSG_DONTWAIT), -EAGAIN);
	t = os_now_ns();
	pfd.fd = sv[0];
	ck_assert_int_eq(os_poll(&pfd, 1, 20), 0);
	ck_assert_uint_ge(os_now_ns() - t, 19000000);
	ck_assert_int_eq(os_send(sv[1], "hello", 5, 0), 5);
	ck_assert_int_eq(os_epoll_wait(ep, &got, 1, -1), 1);
	ck_assert_uint_eq(got.data.u64, 7);
	ck_assert_int_eq(rds_os_sleep.ppoll(&pfd, 1, &no_time, NULL), 1);
	ck_assert_int_eq(rds_os_sleep.read(sv[0], buf, sizeof(buf)), 5);
	errno = 0;
	ck_assert_int_eq(rds_os_sleep.read(-1, buf, 1), -1); /* this one speaks as libc does */
	ck_assert_int_eq(errno, EBADF);
	os_close(sv[0]);
	os_close(sv[1]);
	os_close(ep);
}
END_TEST

START_TEST(random_is_not_constant)
{
	uint8_t a[32] = { 0 }, b[32] = { 0 };

	os_random(a, sizeof(a));
	os_random(b, sizeof(b));
	ck_assert_mem_ne(a, b, sizeof(a));
}
END_TEST

START_TEST(descriptors_are_passed)
{
	int sv[2], fds[3], got[OS_PASS_MAX];
	char buf[8] = "";
	unsigned n;
	bool lost;

	ck_assert_int_eq(os_socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv), 0);
	for (unsigned i = 0; i < 3; i++)
		fds[i] = os_eventfd(7 + i, 0);
	for (unsigned many = 0; many <= 3; many++) {
		uint64_t v = 0;

		ck_assert_int_eq(os_pass_send(sv[0], "abc", 3, fds, many, 0), 0);
		ck_assert_int_eq(os_pass_recv(sv[1], buf, sizeof(buf), got, &n, &lost, 0), 3);
		ck_assert_uint_eq(n, many);
		ck_assert(!lost);
		ck_assert_str_eq(buf, "abc");
		for (unsigned i = 0; i < many; i++) {
			ck_assert_int_eq(fcntl(got[i], F_GETFD), FD_CLOEXEC);
			ck_assert_int_eq(os_read(got[i], &v, sizeof(v)), 8);
			ck_assert_uint_eq(v, 7 + i);
			/* for the next round */
			ck_assert_int_eq(os_write(got[i], &v, sizeof(v)), 8);
			os_close(got[i]);
		}
	}
	ck_assert_int_eq(os_pass_recv(sv[1], buf, sizeof(buf), got, &n, &lost, MSG_DONTWAIT), -EAGAIN);
	os_close(sv[0]);
	ck_assert_int_eq(os_pass_recv(sv[1], buf, sizeof(buf), got, &n, &lost, 0), 0);
	ck_assert_int_eq(os_pass_send(sv[1], "abc", 3, fds, 1, 0), -EPIPE); /* and no signal */
}
END_TEST

START_TEST(counters_have_names)
{
	_Atomic uint64_t block[RDS_STATS] = { 0 };

	ck_assert_int_eq(RDS_STATS, 36);
	ck_assert_str_eq(rds_stat_names[0], "conn_reset");
	ck_assert_str_eq(rds_stat_names[33], "recv_bytes_added_to_sock");
	ck_assert_str_eq(rds_stat_names[35], "send_stuck_rm");
	RDS_STAT_INC(recv_ping); /* nobody listens: no harm */
	rds_stat_block = block;
	RDS_STAT_INC(recv_ping);
	RDS_STAT_ADD_RX(recv_ping, 2);
	rds_stat_detach();
	RDS_STAT_INC(recv_ping);
	ck_assert_uint_eq(block[RDS_STAT_recv_ping], 3);
	for (int i = 0; i < RDS_STATS; i++)
		ck_assert_uint_lt(strlen(rds_stat_names[i]), 32);
}
END_TEST

/*
 * After a fork all of the area is zero and nothing else is, wherever it begins and ends.  Its whole
 * pages are in memory only if they are locked.
 */
START_TEST(zeroed_at_fork)
{
	static unsigned char var[8 * 65536];
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), ends[] = {0, 1, page - 1, page, page + 1};
	const bool locked = _i;
	unsigned char in_core;
	size_t from, to, i;

	if (locked)
		/* a sanitizer's mlock() does nothing */
		ck_assert_int_eq(syscall(SYS_mlock, var, sizeof(var)), 0);
	for (from = 0; from < 25; from++) {
		to = sizeof(var) - ends[from / 5];
		memset(var, 'x', sizeof(var));
		os_fork_zero(var + ends[from % 5], to - ends[from % 5]);
		ck_assert_int_eq(mincore((void *)(((uintptr_t)var + 4 * page - 1) & -page), page, &in_core), 0);
		ck_assert_int_eq(in_core & 1, locked);
		for (i = 0; i < sizeof(var) && var[i] == (i >= ends[from % 5] && i < to ? 0 : 'x'); i++)
			;
		ck_assert_uint_eq(i, sizeof(var));
	}
	memset(var, 'x', sizeof(var));
	os_fork_zero(var + 1, 2);
	ck_assert(var[0] == 'x' && !var[1] && !var[2] && var[3] == 'x');
}
END_TEST

static unsigned long pages_mapped(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long n = 0;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%lu", &n), 1);
	fclose(f);
	return n;
}

/* A program whose engine cannot start may try again and again. */
START_TEST(marked_once)
{
	unsigned long before;
	unsigned i;

	ck_assert_int_eq(os_process_mark(), 0);
	pages_mapped(); /* whatever stdio needs is there */
	before = pages_mapped();
	for (i = 0; i < 100; i++)
		ck_assert_int_eq(os_process_mark(), 0);
	ck_assert_uint_lt(pages_mapped(), before + 50);
	ck_assert(!os_process_inherited());
}
END_TEST

/*
 * A reader that goes on until nothing is there never returns if the writer goes on writing.  Here
 * all bytes are there before the read begins.
 */
START_TEST(what_lies_there)
{
	int sv[2], large = 1 << 20;
	unsigned n = 0, left = 0;
	char buf[8];

	ck_assert_int_eq(os_socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv), 0);
	os_setsockopt(sv[1], SOL_SOCKET, SO_SNDBUF, &large, sizeof(large));
	while (n < 1000 && os_send(sv[1], "", n % 2, MSG_DONTWAIT) == (int)(n % 2))
		n++;
	ck_assert_uint_gt(n, 256);
	os_recv_discard(sv[0]);
	while (os_recv(sv[0], buf, sizeof(buf), MSG_DONTWAIT) >= 0)
		left++;
	ck_assert_uint_eq(left, n - 256);
	ck_assert_int_eq(os_send(sv[1], "x", 1, MSG_DONTWAIT), 1);
	ck_assert_int_eq(os_send(sv[1], "", 0, MSG_DONTWAIT), 0);
	os_close(sv[1]);
	os_recv_discard(sv[0]);
	ck_assert_int_eq(os_recv(sv[0], buf, sizeof(buf), MSG_DONTWAIT), 0);
	os_close(sv[0]);
}
END_TEST

static _Atomic int sigpipes;

static void on_sigpipe(int sig)
{
	(void)sig;
	sigpipes++;
}

START_TEST(quiet_writes)
{
	struct sigaction sa = {.sa_handler = on_sigpipe};
	sigset_t set, before, after;
	int fds[2];

	ck_assert_int_eq(sigaction(SIGPIPE, &sa, NULL), 0);
	ck_assert_int_eq(os_pipe(fds, 0), 0);
	ck_assert_int_eq(os_write_quiet(fds[1], "x", 1), 1);
	ck_assert_int_eq(os_close(fds[0]), 0);
	ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, NULL, &before), 0);
	ck_assert_int_eq(os_write_quiet(fds[1], "x", 1), -EPIPE);
	ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, NULL, &after), 0);
	ck_assert_int_eq(sigismember(&after, SIGPIPE), sigismember(&before, SIGPIPE));
	ck_assert_int_eq(sigpipes, 0);

	/* a program that blocks it finds its own one where it was, and none of ours */
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
	ck_assert_int_eq(os_write_quiet(fds[1], "x", 1), -EPIPE);
	ck_assert_int_eq(sigpending(&after), 0);
	ck_assert_int_eq(sigismember(&after, SIGPIPE), 0);
	ck_assert_int_eq(raise(SIGPIPE), 0);
	ck_assert_int_eq(os_write_quiet(fds[1], "x", 1), -EPIPE);
	ck_assert_int_eq(sigpending(&after), 0);
	ck_assert_int_eq(sigismember(&after, SIGPIPE), 1);
	ck_assert_int_eq(pthread_sigmask(SIG_UNBLOCK, &set, NULL), 0);
	ck_assert_int_eq(sigpipes, 1);
	os_close(fds[1]);
}
END_TEST

/*
 * A time of an event is never later than what time() says.  The two differ just behind a full
 * second, where the fine clock is ahead.
 */
START_TEST(seconds_are_those_of_time)
{
	uint64_t began = os_realtime_ns() / 1000000000u;
	int64_t is;

	while (os_realtime_ns() / 1000000000u == began)
		;
	is = os_wall_seconds();
	ck_assert_int_le(is, time(NULL));
	ck_assert_int_ge(is, (int64_t)began);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("os");
	TCase *tc = tcase_create("calls");

	tcase_add_test(tc, errno_is_left_alone);
	tcase_add_test(tc, files_and_locks);
	tcase_add_test(tc, a_limit_on_files);
	tcase_add_test(tc, limits_are_raised);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	tcase_add_test(tc, a_limit_on_locked_memory);
#endif
	tcase_add_test(tc, sockets_and_waiting);
	tcase_add_loop_test(tc, zeroed_at_fork, 0, 2);
	tcase_add_test(tc, marked_once);
	tcase_add_test(tc, what_lies_there);
	tcase_add_test(tc, quiet_writes);
	tcase_add_test(tc, random_is_not_constant);
	tcase_add_test(tc, seconds_are_those_of_time);
	tcase_add_test(tc, descriptors_are_passed);
	tcase_add_test(tc, counters_have_names);
	suite_add_tcase(s, tc);
	tcase_add_test(suite_case(s, "memory", NULL, NULL), a_timer_takes_no_memory_away);
	return suite_run(s);
}
