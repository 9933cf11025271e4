/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_preload_fds.c - descriptor numbers: the table follows the kernel through copies, closes,
 * ranges, replaced and reused numbers, forks.  After every test all numbers and references have
 * been given back.
 */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/sys/os.h"
#include "preload/libc/preload.h"
#include "test_preload_mock.h"
#include "tests/unit/suite.h"

static bool is_rds(int fd)
{
	struct sockaddr_in sa;
	socklen_t len = sizeof(sa);

	return getsockname(fd, (struct sockaddr *)&sa, &len) == 0 && sa.sin_family == AF_INET;
}

static void ck_all_back(void)
{
	ck_assert_int_eq(mock.refs, 0);
	ck_assert_int_eq(mock.numbers, 0);
	ck_assert_int_eq(mock.open, 0);
}

START_TEST(open_close)
{
	int fd = mock_socket();

	ck_assert(is_rds(fd));
	ck_assert_int_eq(mock.numbers, 1);
	ck_assert_int_eq(close(fd), 0);
	ck_fails(close(fd), EBADF);
	ck_fails(listen(fd, 1), EBADF);
	ck_all_back();
}
END_TEST

START_TEST(copies)
{
	int fd = mock_socket(), all[6], next;

	all[0] = dup(fd);
	all[1] = dup2(fd, 300);
	all[2] = dup3(fd, 5000, O_CLOEXEC);
	all[3] = fcntl(fd, F_DUPFD, 400);
	all[4] = fcntl(fd, F_DUPFD_CLOEXEC, 400);
	all[5] = dup2(fd, fd);
	ck_assert_int_eq(all[1], 300);
	ck_assert_int_eq(all[2], 5000);
	ck_assert_int_eq(all[5], fd);
	ck_assert_int_eq(mock.numbers, 6);
	ck_assert_int_eq(mock.open, 1);
	ck_assert_int_eq(fcntl(all[2], F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(fcntl(all[3], F_GETFD), 0);
	ck_fails(dup3(fd, fd, 0), EINVAL);
	ck_fails(dup3(fd, 301, 0x1234), EINVAL);
	ck_fails(dup2(fd, -1), EBADF);
	ck_fails(fcntl(fd, F_DUPFD, -1), EINVAL);

	/* O_NONBLOCK is shared, because it lives in the stand-in. */
	ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	for (int i = 0; i < 5; i++) {
		ck_assert(is_rds(all[i]));
		ck_assert(fcntl(all[i], F_GETFL) & O_NONBLOCK);
	}
	ck_fails(recv(all[3], &next, sizeof(next), 0), EAGAIN);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(close(all[i]), 0);
	ck_assert(is_rds(fd));
	close(fd);
	ck_all_back();
}
END_TEST

START_TEST(replaced)
{
	int a = mock_socket(), b = mock_socket(), pipefd[2];

	ck_assert_int_eq(pipe(pipefd), 0);
	ck_assert_int_eq(dup2(b, a), a); /* RDS over RDS: a's socket is gone */
	ck_assert_int_eq(mock.open, 1);
	ck_assert_int_eq(mock.numbers, 2);
	ck_assert_int_eq(dup2(pipefd[1], a), a); /* foreign over RDS */
	ck_assert_int_eq(mock.numbers, 1);
	ck_assert_int_eq(write(a, "x", 1), 1);
	ck_assert_int_eq(dup2(b, pipefd[1]), pipefd[1]); /* RDS over foreign */
	ck_fails(write(pipefd[1], "x", 1), EOPNOTSUPP);
	close(a);
	close(b);
	close(pipefd[0]);
	close(pipefd[1]);
	ck_all_back();
}
END_TEST

/* A number closed behind our back (raw system call) and handed out again. */
START_TEST(reused)
{
	int fd = mock_socket(), again;

	syscall(SYS_close, fd);
	again = open("/dev/null", O_WRONLY);
	ck_assert_int_eq(again, fd);
	ck_assert_int_eq(write(again, "x", 1), 1);
	ck_all_back();
	close(again);

	fd = mock_socket();
	syscall(SYS_close, fd);
	ck_assert_int_eq(socket(AF_INET, SOCK_DGRAM, 0), fd);
	ck_assert_int_eq(mock.numbers, 0);
	close(fd);

	fd = mock_socket();
	syscall(SYS_close, fd);
	ck_assert_int_eq(mock_socket(), fd); /* RDS again: another socket */
	ck_assert_int_eq(mock.numbers, 1);
	close(fd);
	ck_all_back();
}
END_TEST

START_TEST(hangup)
{
	int fd = mock_socket(), p[2];

	dup2(fd, 77);
	syscall(SYS_close, 77);
	ck_assert_int_eq(mock_hangup(fd), 2);
	ck_all_back();
	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_eq(write(p[1], "x", 1), 1);
	close(p[0]);
	close(p[1]);
}
END_TEST

START_TEST(ranges)
{
	int low = mock_socket(), internal = mock_internal_fd(), high;

	high = fcntl(low, F_DUPFD, internal + 1);
	ck_assert_int_gt(high, internal);
	ck_assert_int_eq(close_range((unsigned)low, ~0U, 4 /* CLOEXEC */), 0);
	ck_assert_int_eq(fcntl(low, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(mock.numbers, 2);
	ck_fails(close_range(10, 5, 0), EINVAL);
	ck_fails(close_range(0, 5, 0x100), EINVAL);

	ck_assert_int_eq(close_range((unsigned)low, ~0U, 0), 0);
	ck_assert_int_ge((int)syscall(SYS_fcntl, internal, F_GETFD), 0);
	ck_assert_int_eq((int)syscall(SYS_fcntl, low, F_GETFD), -1);
	ck_assert_int_eq((int)syscall(SYS_fcntl, high, F_GETFD), -1);
	ck_all_back();

	low = mock_socket();
	dup2(low, 9000);
	closefrom(low);
	ck_assert_int_ge((int)syscall(SYS_fcntl, internal, F_GETFD), 0);
	ck_assert_int_eq((int)syscall(SYS_fcntl, 9000, F_GETFD), -1);
	ck_all_back();
	ck_assert_int_eq(close_range((unsigned)internal, (unsigned)internal, 0), 0);
	ck_assert_int_ge((int)syscall(SYS_fcntl, internal, F_GETFD), 0);
}
END_TEST

START_TEST(internals)
{
	int fd = mock_socket(), internal = mock_internal_fd();

	ck_fails(close(internal), EBADF);
	ck_fails(dup(internal), EBADF);
	ck_fails(dup2(internal, 50), EBADF);
	ck_fails(fcntl(internal, F_DUPFD, 0), EBADF);
	ck_assert_int_eq(dup2(fd, internal), internal); /* moves ours away */
	ck_assert_int_ne(mock_internal, internal);
	ck_assert(is_rds(internal));
	close(fd);
	ck_assert_int_eq(close(internal), 0);
	ck_all_back();
}
END_TEST

/* In a child: 0 if it saw what it should, else the line. */
#define child_expect(cond)                                                                                             \
	do {                                                                                                           \
		if (!(cond))                                                                                           \
			_exit(__LINE__ & 0xff ? __LINE__ & 0xff : 1);                                                  \
	} while (0)

static void child_checks(int fd)
{
	char c;
	int other, p[2];

	child_expect(send(fd, "x", 1, 0) == -1 && errno == ENOTCONN);
	child_expect(recv(fd, &c, 1, 0) == -1 && errno == ENOTCONN);
	child_expect(write(fd, "x", 1) == -1 && errno == EOPNOTSUPP);
	child_expect(!is_rds(fd) && errno == ENOTCONN);
	child_expect(mock.forgotten == 1 && mock.away == 3);
	other = dup(fd);
	child_expect(other >= 0 && fcntl(other, F_GETFD) == 0);
	child_expect(recv(other, &c, 1, MSG_DONTWAIT) == -1 && errno == ENOTCONN);
	child_expect(close(other) == 0 && mock.away_closed == 0);
	other = mock_socket(); /* a fresh engine */
	child_expect(is_rds(other) && mock.numbers == 1);
	child_expect(close(other) == 0 && mock.numbers == 0);
	child_expect(close(fd) == 0 && mock.away_closed == 1);
	child_expect(close(fd) == -1 && errno == EBADF);
	child_expect(pipe(p) == 0 && write(p[1], "x", 1) == 1);
	_exit(0);
}

static void reap(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

/*
 * What a library of the engine's calls by name works on its numbers, what the program calls does
 * not.
 */
START_TEST(a_library_inside)
{
	int fd = mock_socket(), number = open("/dev/null", O_RDWR), was, copy;
	char c = 'x';

	ck_assert_int_ge(number, 0);
	ck_assert_int_eq(os_fd_adopt(&number), 0);
	ck_assert_int_eq(write(number, &c, 1), 1);
	ck_assert_int_eq(read(number, &c, 1), 0);
	ck_fails(ioctl(number, TIOCGPGRP, &c), ENOTTY);
	ck_fails(close(number), EBADF);
	ck_fails(dup(number), EBADF);
	was = number;
	/* the program wants that one: the library's goes elsewhere */
	ck_assert_int_eq(dup2(fd, was), was);
	ck_assert_int_ne(number, was);
	ck_assert_int_eq(write(number, &c, 1), 1);
	ck_assert_int_eq(close(was), 0);
	os_library_begin();
	copy = fcntl(number, F_DUPFD_CLOEXEC, 0);
	ck_assert_int_ge(copy, 0);
	ck_assert_int_eq(close(copy), 0);
	ck_assert_int_eq(close(number), 0);
	ck_fails(close(number), EBADF);
	os_library_end();
	ck_assert(!os_fd_is_internal(number));
	ck_assert_int_eq((int)syscall(SYS_fcntl, number, F_GETFD), -1);
	ck_assert_int_eq(close(fd), 0);
	ck_all_back();
}
END_TEST

START_TEST(forked)
{
	int fd = mock_socket();
	pid_t pid = _i ? _Fork() : fork();

	if (pid == 0)
		child_checks(fd);
	reap(pid);
	ck_assert(is_rds(fd));
	close(fd);
	ck_all_back();
}
END_TEST

/* An inherited number that was closed and reused where we cannot see it. */
START_TEST(forked_reused)
{
	int fd = mock_socket();
	pid_t pid = fork();

	if (pid == 0) {
		int p[2];

		syscall(SYS_close, fd);
		child_expect(pipe(p) == 0 && p[0] == fd);
		child_expect(write(p[1], "x", 1) == 1);
		child_expect(read(p[0], &pid, 1) == 1);
		_exit(0);
	}
	reap(pid);
	close(fd);
	ck_all_back();
}
END_TEST

/* The child shares our memory but not our numbers; it must not touch the former. */
START_TEST(vforked)
{
	int fd = mock_socket();
	volatile int bad = 0;
	pid_t pid = vfork();

	if (pid == 0) {
		if (dup2(fd, 40) != 40 || close(40) || close(fd) || open("/dev/null", O_RDONLY) != fd)
			bad = __LINE__;
		else if (close_range(3, ~0U, 0))
			bad = __LINE__;
		else if (socket(21, SOCK_SEQPACKET, 0) != -1 || errno != EAGAIN)
			bad = __LINE__;
		_exit(0);
	}
	reap(pid);
	ck_assert_int_eq(bad, 0);
	ck_assert(is_rds(fd));
	ck_assert_int_eq(mock.numbers, 1);
	close(fd);
	ck_all_back();
}
END_TEST

/*
 * It may need the engine's descriptors at its exec, with which they end.  What it has put there
 * itself is its own.
 */
START_TEST(vforked_internal)
{
	int fd = mock_socket(), internal = mock_internal_fd(), other = mock_socket();
	volatile int bad = 0;
	pid_t pid = vfork();

	if (pid == 0) {
		if (close(internal) != -1 || errno != EBADF || close_range(3, ~0U, 0))
			bad = __LINE__;
		else if (syscall(SYS_fcntl, internal, F_GETFD) == -1 || syscall(SYS_fcntl, other, F_GETFD) != -1)
			bad = __LINE__;
		else if (dup2(1, internal) != internal || close_range(3, ~0U, 0) || fcntl(internal, F_GETFD) != -1)
			bad = __LINE__;
		else if (dup2(1, internal) != internal || close(internal))
			bad = __LINE__;
		_exit(0);
	}
	reap(pid);
	ck_assert_int_eq(bad, 0);
	ck_assert_int_eq(os_close(internal), 0);
	close(fd);
	close(other);
	ck_all_back();
}
END_TEST

static void *churn(void *arg)
{
	bool failed = false;
	char c;

	for (int i = 0; i < 3000; i++) {
		int fd = mock_socket(), copy = dup(fd);

		failed |= fd < 0 || copy < 0;
		recv(copy, &c, 1, MSG_DONTWAIT);
		if (i % 3 == 0)
			failed |= close(open("/dev/null", O_RDONLY)) != 0;
		failed |= close(fd) != 0;
		recv(copy, &c, 1, MSG_DONTWAIT);
		failed |= close(copy) != 0;
	}
	return failed ? NULL : arg;
}

/* Numbers go to and fro between threads as fast as they can. */
START_TEST(threads)
{
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, churn, &t), 0);
	for (int i = 0; i < 4; i++) {
		void *well;

		ck_assert_int_eq(pthread_join(t[i], &well), 0);
		ck_assert_ptr_eq(well, &t);
	}
	ck_all_back();
}
END_TEST

START_TEST(rights)
{
	int fd = mock_socket(), sv[2], got;
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u = {.buf = {0}};
	char x = 0;
	struct iovec iov = {&x, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof(u.buf)};

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM, 0, sv), 0);
	*CMSG_FIRSTHDR(&msg) = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &fd, sizeof(fd));
	ck_assert_int_eq(sendmsg(sv[0], &msg, 0), 1);
	iov.iov_base = &got;
	ck_assert_int_eq(recvmsg(sv[1], &msg, 0), 1);
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(got));
	ck_assert_int_ne(got, fd);
	ck_assert(is_rds(got));
	ck_assert_int_eq(mock.numbers, 2);
	close(got);
	close(fd);
	close(sv[0]);
	close(sv[1]);
	ck_all_back();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("preload_fds");
	TCase *t = tcase_create("fds");
	struct rlimit rl;

	/* Some tests have numbers of up to 9000: a user's limit is 1024, unless he raises it. */
	getrlimit(RLIMIT_NOFILE, &rl);
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_NOFILE, &rl);
	suite_add_tcase(s, t);
	tcase_add_test(t, open_close);
	tcase_add_test(t, copies);
	tcase_add_test(t, replaced);
	tcase_add_test(t, reused);
	tcase_add_test(t, hangup);
	tcase_add_test(t, ranges);
	tcase_add_test(t, internals);
	tcase_add_test(t, a_library_inside);
	tcase_add_loop_test(t, forked, 0, 2);
	tcase_add_test(t, forked_reused);
	tcase_add_test(t, vforked);
	tcase_add_test(t, vforked_internal);
	tcase_add_test(t, threads);
	tcase_add_test(t, rights);
	return suite_run(s);
}
