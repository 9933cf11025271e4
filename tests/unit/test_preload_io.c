/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_preload_io.c - data, names and refusals: what the generic layer of the kernel checks and
 * copies before RDS sees a call, the batch calls, the file way, the files under /proc/sys/net/rds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "test_preload_mock.h"
#include "tests/unit/suite.h"

static int a, b; /* bound to 1000 and 2000 */
static struct sockaddr_in to_b;
static void *bad; /* a page that cannot be touched */

static void setup(void)
{
	a = mock_bound(1000);
	b = mock_bound(2000);
	to_b = mock_addr(2000);
	bad = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void teardown(void)
{
	munmap(bad, 4096);
	close(a);
	close(b);
	ck_assert_int_eq(mock.refs, 0);
	ck_assert_int_eq(mock.open, 0);
}

static void send_b(const char *text)
{
	ck_assert_int_eq(sendto(a, text, strlen(text), 0, (struct sockaddr *)&to_b, sizeof(to_b)), (int)strlen(text));
}

START_TEST(names)
{
	struct sockaddr_in sa = mock_addr(1000);
	struct sockaddr *p = (struct sockaddr *)&sa;
	socklen_t len = sizeof(sa);

	ck_fails(bind(a, bad, sizeof(sa)), EFAULT);
	ck_fails(bind(a, p, 129), EINVAL);
	ck_fails(bind(a, p, (socklen_t)-1), EINVAL);
	ck_fails(bind(b, p, sizeof(sa)), EADDRINUSE);
	memset(&sa, 0, sizeof(sa));
	len = 4; /* cut, but the full length is told */
	ck_assert_int_eq(getsockname(a, p, &len), 0);
	ck_assert_int_eq(len, 16);
	ck_assert_int_eq(sa.sin_port, 1000);
	ck_assert_int_eq(sa.sin_addr.s_addr, 0);
	len = 16;
	ck_fails(getsockname(a, bad, &len), EFAULT);
	ck_fails(getsockname(a, p, bad), EFAULT);
	len = (socklen_t)-1;
	ck_fails(getsockname(a, p, &len), EINVAL);
	ck_fails(getpeername(a, p, bad), ENOTCONN);
}
END_TEST

START_TEST(messages)
{
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	char buf[8] = "";
	struct iovec iov[2] = {{buf, 2}, {buf + 2, 6}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

	send_b("hello");
	ck_assert_int_eq(recvfrom(b, buf, 8, 0, (struct sockaddr *)&from, &len), 5);
	ck_assert_str_eq(buf, "hello");
	ck_assert_int_eq(from.sin_port, 1000);
	ck_assert_int_eq(len, 16);

	send_b("world");
	memset(buf, 0, sizeof(buf));
	ck_assert_int_eq(recvmsg(b, &msg, 0), 5);
	ck_assert_str_eq(buf, "world");
	ck_assert_int_eq(msg.msg_namelen, 0); /* no name asked for: not written */

	send_b("x");
	msg.msg_name = &from;
	msg.msg_namelen = 3;
	ck_assert_int_eq(recvmsg(b, &msg, 0), 1);
	ck_assert_int_eq(msg.msg_namelen, 16);

	msg.msg_name = &to_b;
	ck_assert_int_eq(sendmsg(a, &msg, 0), 8);
	ck_assert_int_eq(read(b, buf, 8), 8);
	/* no length, no name */
	ck_fails(sendto(a, buf, 1, 0, (struct sockaddr *)&to_b, 0), ENOTCONN);
	ck_fails(send(a, buf, 1, MSG_NOSIGNAL), EOPNOTSUPP);
	ck_assert_int_eq(mock.last_flags, MSG_NOSIGNAL);
	ck_fails(recv(b, buf, 8, MSG_DONTWAIT), EAGAIN);
}
END_TEST

START_TEST(bad_pointers)
{
	char buf[8] = "";
	struct iovec iov = {buf, 8}, many[1025] = {{buf, 1}};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	socklen_t len = 16;

	ck_fails(sendto(a, buf, 1, 0, bad, 16), EFAULT);
	ck_fails(sendto(a, buf, 1, 0, (struct sockaddr *)&to_b, 129), EINVAL);
	ck_fails(sendmsg(a, bad, 0), EFAULT);
	ck_fails(recvmsg(b, bad, 0), EFAULT);
	ck_fails(sendmsg(a, NULL, 0), EFAULT);
	msg.msg_iov = bad;
	ck_fails(sendmsg(a, &msg, 0), EFAULT);
	ck_fails(recvmsg(b, &msg, MSG_DONTWAIT), EFAULT);
	msg.msg_iov = many;
	msg.msg_iovlen = 1025;
	ck_fails(sendmsg(a, &msg, 0), EMSGSIZE);
	ck_fails(recvmsg(b, &msg, MSG_DONTWAIT), EMSGSIZE);
	ck_fails(writev(a, many, 1025), EINVAL);
	msg.msg_iov = &iov;
	msg.msg_iovlen = 1;
	iov.iov_len = (size_t)-1;
	ck_fails(sendmsg(a, &msg, 0), EINVAL);
	ck_fails(recvmsg(b, &msg, MSG_DONTWAIT), EINVAL);
	iov.iov_len = 8;
	msg.msg_name = &to_b;
	msg.msg_namelen = (socklen_t)-1;
	ck_fails(sendmsg(a, &msg, 0), EINVAL);
	ck_fails(sendmsg(a, &msg, (int)0x80000000), EINVAL);
	send_b("x");
	/* the message is gone, as in the kernel */
	ck_fails(recvfrom(b, buf, 8, 0, bad, &len), EFAULT);
	ck_fails(recv(b, buf, 8, MSG_DONTWAIT), EAGAIN);
	ck_fails(poll(bad, 1, 0), EFAULT);
	ck_fails(sendmmsg(a, bad, 1, 0), EFAULT);
	ck_fails(recvmmsg(b, bad, 1, 0, NULL), EFAULT);
}
END_TEST

START_TEST(send_batch)
{
	char text[] = "m";
	struct iovec iov = {text, 1};
	struct mmsghdr vec[3] = {0};

	for (int i = 0; i < 3; i++)
		vec[i].msg_hdr = (struct msghdr){&to_b, sizeof(to_b), &iov, 1, NULL, 0, 0};
	ck_assert_int_eq(sendmmsg(a, vec, 0, 0), 0);
	ck_fails(sendmmsg(a, vec, 2, 0), EOPNOTSUPP);
	ck_assert_int_eq(mock.last_flags, 0x40000);
	ck_assert_int_eq(sendmmsg(a, vec, 1, MSG_DONTWAIT), 1);
	ck_assert_int_eq(vec[0].msg_len, 1);
	vec[0].msg_hdr.msg_flags = MSG_EOR;
	ck_fails(sendmmsg(a, vec, 1, 0), EOPNOTSUPP);
	ck_assert_int_eq(mock.last_flags, MSG_EOR);
}
END_TEST

START_TEST(receive_batch)
{
	char buf[3][8];
	struct iovec iov[3];
	struct mmsghdr vec[3];
	struct timespec ts = {5, 0};

	memset(vec, 0, sizeof(vec));
	for (int i = 0; i < 3; i++) {
		iov[i] = (struct iovec){buf[i], 8};
		vec[i].msg_hdr = (struct msghdr){NULL, 0, &iov[i], 1, NULL, 0, 0};
	}
	send_b("1");
	send_b("22");
	ck_assert_int_eq(recvmmsg(b, vec, 3, MSG_WAITFORONE, NULL), 2);
	ck_assert_int_eq(vec[0].msg_len, 1);
	ck_assert_int_eq(vec[1].msg_len, 2);

	/* An error behind a message is kept for the next call; EAGAIN is not. */
	send_b("1");
	mock_fail_recv(2, -ETIMEDOUT);
	ck_assert_int_eq(recvmmsg(b, vec, 3, MSG_DONTWAIT, NULL), 1);
	ck_fails(recvmmsg(b, vec, 3, MSG_DONTWAIT, NULL), ETIMEDOUT);
	ck_fails(recvmmsg(b, vec, 3, MSG_DONTWAIT, NULL), EAGAIN);

	send_b("1");
	ck_assert_int_eq(recvmmsg(b, vec, 1, 0, &ts), 1);
	ck_assert(ts.tv_sec == 4 && ts.tv_nsec > 0);
	send_b("1");
	send_b("2");
	ts = (struct timespec){0, 0}; /* the time is up after the first */
	ck_assert_int_eq(recvmmsg(b, vec, 3, 0, &ts), 1);
	ts.tv_nsec = 1000000000;
	ck_fails(recvmmsg(b, vec, 3, 0, &ts), EINVAL);
	ck_fails(recvmmsg(b, vec, 3, 0, bad), EFAULT);
	ck_assert_int_eq(recvmmsg(b, vec, 0, 0, NULL), 0);
	ck_assert_int_eq(read(b, buf, 8), 1);
}
END_TEST

START_TEST(file_way)
{
	char buf[8] = "";
	struct iovec iov = {buf, 0};
	int p[2], null = open("/dev/zero", O_RDONLY);
	off_t off = 0;

	ck_assert_int_eq(pipe(p), 0);
	ck_fails(write(a, buf, 1), EOPNOTSUPP);
	ck_fails(write(a, buf, 0), EOPNOTSUPP);
	ck_assert_int_eq(writev(a, &iov, 1), 0);
	send_b("x");
	ck_assert_int_eq(read(b, buf, 0), 0);
	ck_assert_int_eq(readv(b, &iov, 1), 0);
	ck_assert_int_eq(preadv2(b, &iov, 1, -1, 0), 0);
	iov.iov_len = 8;
	ck_fails(writev(a, &iov, 1), EOPNOTSUPP);
	ck_fails(pwritev2(a, &iov, 1, -1, 0), EOPNOTSUPP);
	ck_fails(pwritev2(a, &iov, 1, 0, 0), ESPIPE);
	ck_fails(preadv2(b, &iov, 1, 0, 0), ESPIPE);
	ck_fails(preadv2(b, &iov, 1, -1, 0x4000), EOPNOTSUPP);
	ck_fails(pread(b, buf, 8, 0), ESPIPE);
	ck_fails(lseek(b, 0, SEEK_SET), ESPIPE);
	ck_assert_int_eq(preadv2(b, &iov, 1, -1, RWF_NOWAIT), 1); /* still there */
	ck_fails(preadv2(b, &iov, 1, -1, RWF_NOWAIT), EAGAIN);
	ck_fails(sendfile(a, null, NULL, 10), EOPNOTSUPP);
	ck_fails(splice(p[0], NULL, a, NULL, 10, 0), EOPNOTSUPP);
	ck_fails(splice(b, NULL, p[1], NULL, 10, 0), EINVAL);
	ck_fails(sendfile(p[1], b, NULL, 10), EINVAL);
	ck_fails(sendfile(p[1], b, &off, 10), ESPIPE);
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ, MAP_SHARED, a, 0), MAP_FAILED);
	ck_assert_int_eq(errno, ENODEV);
	close(p[0]);
	close(p[1]);
	close(null);
}
END_TEST

START_TEST(refusals)
{
	int sv[2], on = 1, none = -1, n;
	struct stat st;

	ck_fails(listen(a, 1), EOPNOTSUPP);
	ck_fails(shutdown(a, 99), EOPNOTSUPP);
	ck_fails(accept(a, NULL, NULL), EOPNOTSUPP);
	ck_fails(accept4(a, NULL, NULL, 0), EOPNOTSUPP);
	ck_fails(accept4(a, NULL, NULL, 1), EINVAL);
	ck_fails(socketpair(21, SOCK_SEQPACKET, 0, sv), EOPNOTSUPP);
	ck_fails(socketpair(21, SOCK_STREAM, 0, sv), ESOCKTNOSUPPORT);
	ck_fails(socketpair(21, SOCK_SEQPACKET, 1, sv), ESOCKTNOSUPPORT);
	ck_fails(socketpair(21, 0x100005, 0, sv), EINVAL);
	ck_fails(socketpair(21, 11, 0, sv), EINVAL);
	ck_fails(socket(21, SOCK_STREAM, 0), ESOCKTNOSUPPORT);
	ck_fails(ioctl(a, FIONREAD, &n), ENOTTY);
	ck_fails(ioctl(a, TIOCOUTQ, &n), ENOTTY);
	ck_fails(ioctl(a, 0x89e0, &n), ENOTTY);
	ck_assert_int_eq(ioctl(a, 0x89e1, &n), 0);
	ck_assert_int_eq(ioctl(a, FIONBIO, &on), 0);
	ck_assert(fcntl(a, F_GETFL) & O_NONBLOCK);
	ck_assert_int_eq(getsockopt(a, 276, 10000, NULL, NULL), 40);
	ck_fails(setsockopt(a, 276, 1, NULL, 0), ENOPROTOOPT);
	/* not of the socket */
	ck_fails(setsockopt(a, SOL_SOCKET, SO_ATTACH_BPF, &none, sizeof(none)), EBADF);
	ck_assert_int_eq(fstat(a, &st), 0);
	ck_assert(S_ISSOCK(st.st_mode));
}
END_TEST

/* A family that some kernel modules serve today: ours only if the kernel does not know it. */
START_TEST(old_families)
{
	static const struct {
		int family, type, ok;
	} old[] = {{28, SOCK_SEQPACKET, 1}, {28, SOCK_DGRAM, 0}, {32, SOCK_SEQPACKET | SOCK_CLOEXEC, 1},
		   {30, SOCK_SEQPACKET, 1}, {30, SOCK_DGRAM | SOCK_NONBLOCK, 1}, {30, SOCK_STREAM, 0}, {31, SOCK_SEQPACKET, 0}};

	for (unsigned i = 0; i < sizeof(old) / sizeof(old[0]); i++) {
		struct sockaddr_in sa;
		socklen_t len = sizeof(sa);
		int fd = socket(old[i].family, old[i].type, 0);

		if (fd < 0) {
			ck_assert(!old[i].ok);
			continue;
		}
		if (getsockname(fd, (struct sockaddr *)&sa, &len) == 0 && sa.sin_family == AF_INET)
			ck_assert(old[i].ok);
		close(fd);
	}
}
END_TEST

static void read_file(int fd, const char *want)
{
	char text[64] = "";

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(read(fd, text, sizeof(text)), (int)strlen(want));
	ck_assert_str_eq(text, want);
	ck_fails(write(fd, "1", 1), EBADF);
	ck_assert_int_eq(close(fd), 0);
}

START_TEST(proc_files)
{
	int lowest = dup(0), dir = open("/proc/sys/net", O_RDONLY | O_DIRECTORY), fd;
	char text[16];
	FILE *f;

	if (access("/proc/sys/net/rds", F_OK) == 0) {
		printf("this kernel has RDS: the real files are used\n");
		close(lowest);
		close(dir);
		return;
	}
	close(lowest);
	fd = open("/proc/sys/net/rds/pf_rds", O_RDONLY);
	ck_assert_int_eq(fd, lowest);
	ck_assert_int_eq(fcntl(fd, F_GETFD), 0);
	read_file(fd, "21\n");
	fd = open64("/proc/sys/net/rds/sol_rds", O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	read_file(fd, "276\n");
	read_file(openat(dir, "rds/max_unacked_packets", O_RDONLY), "8\n");
	read_file(openat64(AT_FDCWD, "/proc/sys/net/rds/max_unacked_bytes", O_RDONLY), "16777216\n");
	read_file(open("/proc/sys/net/rds/reconnect_min_delay_ms", O_RDONLY), "1\n");
	read_file(open("/proc/sys/net/rds/reconnect_max_delay_ms", O_RDONLY), "1000\n");
	read_file(open("/proc/sys/net/rds/ping_enable", O_RDONLY), "1\n");
	f = fopen("/proc/sys/net/rds/pf_rds", "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_ptr_nonnull(fgets(text, sizeof(text), f));
	ck_assert_str_eq(text, "21\n");
	fclose(f);
	ck_assert_ptr_null(fopen("/proc/sys/net/rds/pf_rds", "r+"));
	ck_assert_int_eq(errno, EACCES);
	ck_assert_ptr_null(fopen("/no/such", "r"));
	ck_assert_int_eq(errno, ENOENT);
	ck_fails(open("/proc/sys/net/rds/pf_rds", O_RDWR), EACCES);
	ck_fails(creat("/proc/sys/net/rds/pf_rds", 0644), EACCES);
	ck_fails(open("/proc/sys/net/rds/no_such", O_RDONLY), ENOENT);
	ck_fails(openat(dir, "pf_rds", O_RDONLY), ENOENT);
	ck_fails(open(bad, O_RDONLY), EFAULT);
	ck_assert_int_eq(chdir("/proc/sys"), 0);
	read_file(open("net/rds/pf_rds", O_RDONLY), "21\n");
	close(dir);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("preload_io");
	TCase *t = tcase_create("io");

	suite_add_tcase(s, t);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, names);
	tcase_add_test(t, messages);
	tcase_add_test(t, bad_pointers);
	tcase_add_test(t, send_batch);
	tcase_add_test(t, receive_batch);
	tcase_add_test(t, file_way);
	tcase_add_test(t, refusals);
	tcase_add_test(t, old_families);
	tcase_add_test(t, proc_files);
	return suite_run(s);
}
