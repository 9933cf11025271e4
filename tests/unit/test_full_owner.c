/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_full_owner.c - the owner of a shared socket has no descriptor left: calls of a borrower work,
 * or end with an error that says so (share/owner_attach.c, share/owner.c, share/borrower_wait.c).
 * They do not hang, and no message is lost.  The waits for an owner last as long as promised, also if
 * signals come all the time.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "engine/calls/start.h"
#include "engine/share/borrower.h"
#include "engine/share/owner.h"
#include "engine/sys/patience.h"
#include "tests/mock/clock.h"
#include "tests/unit/suite.h"

#define BIG (RDS_SHARE_INLINE + 1)

static struct rds_sock *sock;
static int standin, channels[2][2], file, line, filler;
static struct sockaddr_in name;
static char packet[RDS_SHARE_PACKET], bytes[BIG];

/* As an owner does that gets no descriptor: the channel ends, and nothing has come over it. */
static bool loses_all;

int __real_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags);
int __wrap_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags);

int __wrap_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags)
{
	return loses_all ? 0 : __real_os_pass_send(fd, buf, len, fds, nfds, flags);
}

static void limit(rlim_t n)
{
	struct rlimit rl;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &rl), 0);
	rl.rlim_cur = n;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
}

static void setup(void)
{
	struct iovec iov = {bytes, BIG};
	socklen_t len = sizeof(name);

	setenv("RDS_PRELOAD_HELPER_FDS", "shared", 1);
	rds_options_reset();
	limit(256);
	ck_assert_int_eq(rds_call_start_engine(), 0);
	standin = rds_call_socket(SOCK_SEQPACKET, 0, &sock);
	ck_assert_int_ge(standin, 0);
	name = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	ck_assert_int_eq(rds_call_bind(sock, (struct sockaddr *)&name, sizeof(name)), 0);
	ck_assert_int_eq(rds_call_getsockname(sock, (struct sockaddr *)&name, &len), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channels[i]), 0);
	file = os_memfd_sealed(&iov, 1);
	ck_assert_int_ge(file, 0);
}

/* From the lowest free number on. */
static void fill_up(void)
{
	int fd = dup(0);

	for (filler = fd; fd >= 0; fd = dup(0))
		;
	ck_assert_int_eq(errno, EMFILE);
}

/* The kind of the owner's packet, or -1: it has closed the channel. */
static int hears(struct rds_share_reply *a)
{
	ssize_t n = recv(line, packet, sizeof(packet), 0);

	ck_assert(n == 0 || n >= (ssize_t)sizeof(*a));
	memcpy(a, packet, sizeof(*a));
	return n ? a->kind : -1;
}

/* Over the channel of that number.  Its other end is the owner's alone; the number stays in use. */
static int attach(unsigned i)
{
	const struct rds_share_attach hello = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	const int pass[2] = {channels[i][1], standin};
	struct rds_share_reply a;

	line = channels[i][0];
	ck_assert_int_eq(os_pass_send(standin, &hello, sizeof(hello), pass, 2, 0), 0);
	ck_assert_int_eq(dup2(0, channels[i][1]), channels[i][1]);
	return hears(&a);
}

/* A message that is too long for a packet.  The kind of the owner's packet. */
static int sends_big(struct rds_share_reply *a)
{
	const struct rds_share_request q = {.magic = RDS_SHARE_MAGIC,
					    .op = RDS_SHARE_SEND,
					    .seq = 1,
					    .has_name = 1,
					    .name_len = sizeof(name),
					    .big = BIG,
					    .total = BIG};

	memcpy(packet, &q, sizeof(q));
	memcpy(packet + sizeof(q), &name, sizeof(name));
	ck_assert_int_eq(os_pass_send(line, packet, sizeof(q) + sizeof(name), &file, 1, 0), 0);
	return hears(a);
}

static int asks(enum rds_share_op op, struct rds_share_reply *a)
{
	const struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = (uint16_t)op, .seq = 2, .room = BIG};

	ck_assert_int_eq(send(line, &q, sizeof(q), 0), sizeof(q));
	return hears(a);
}

static int receives(struct rds_share_reply *a)
{
	return asks(RDS_SHARE_RECV, a);
}

/* A sanitizer's runtime needs some at the end of the process. */
static void teardown(void)
{
	limit(512);
}

/* The reserve is there for a borrower that comes: it asks again, and is served. */
START_TEST(a_borrower_comes)
{
	fill_up();
	ck_assert_int_eq(attach(0), -1);
	ck_assert_int_eq(attach(1), RDS_SHARE_HELLO);
}
END_TEST

/* ... and for its messages; without one, the call says so, and what is to be read stays. */
START_TEST(long_messages)
{
	struct rds_share_reply a;

	ck_assert_int_eq(attach(0), RDS_SHARE_HELLO);
	fill_up();
	ck_assert_int_eq(sends_big(&a), RDS_SHARE_RETRY);
	ck_assert_int_eq(attach(1), RDS_SHARE_HELLO);
	ck_assert_int_eq(sends_big(&a), RDS_SHARE_REPLY);
	ck_assert_int_eq((int)a.result, BIG);
	ck_assert_int_eq(asks(RDS_SHARE_SOCKNAME, &a), RDS_SHARE_REPLY); /* the file of the call before is closed */
	fill_up();
	ck_assert_int_eq(sends_big(&a), RDS_SHARE_REPLY);
	ck_assert_int_eq((int)a.result, -EMFILE);
	ck_assert_int_eq(receives(&a), RDS_SHARE_REPLY);
	ck_assert_int_eq((int)a.result, -EMFILE);
	close(filler);
	ck_assert_int_eq(receives(&a), RDS_SHARE_REPLY);
	ck_assert_int_eq((int)a.result, BIG);
	ck_assert_uint_eq(a.big, BIG);
}
END_TEST

/* A limit of the owner's: the message that is to be read stays, and whoever reads it is told why. */
START_TEST(files_are_short)
{
	struct rds_share_reply a;
	struct rlimit all, few;

	ck_assert_int_eq(attach(0), RDS_SHARE_HELLO);
	ck_assert_int_eq(sends_big(&a), RDS_SHARE_REPLY);
	ck_assert_int_eq((int)a.result, BIG);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &all), 0);
	few = (struct rlimit){RDS_SHARE_INLINE, all.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &few), 0);
	ck_assert_int_eq(receives(&a), RDS_SHARE_REPLY);
	ck_assert_int_eq((int)a.result, -EFBIG);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
	ck_assert_int_eq(receives(&a), RDS_SHARE_REPLY);
	ck_assert_int_eq((int)a.result, BIG);
}
END_TEST

/* The sleep of a call that may be interrupted, and is: always after a millisecond. */
static int cut_short(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask)
{
	int ready = os_poll(fds, n, 1);

	(void)ts, (void)mask;
	errno = EINTR;
	return ready ? ready : -1;
}

/* Another process's socket; its owner never has a descriptor for this one. */
START_TEST(an_owner_stays_full)
{
	struct iovec iov = {bytes, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	const struct timespec a_while = {2, 0};
	socklen_t len = sizeof(name);
	uint64_t began;
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	loses_all = true;
	rds_os_sleep.ppoll = cut_short;
	mock_clock_own(1);
	ck_assert_int_eq(rds_borrower_getsockname(pair[0], (struct sockaddr *)&name, &len), -EMFILE);
	began = os_now_ns();
	ck_assert_int_eq(rds_borrower_recvmsg(pair[0], &msg, 0), -EMFILE);
	ck_assert_uint_ge(os_now_ns() - began, rds_patience_ns(RDS_PATIENCE_OWNER_FULL));
	for (unsigned i = 0; i < 4; i++) { /* patient once */
		began = os_now_ns();
		ck_assert_int_eq(rds_borrower_recvmsg(pair[0], &msg, MSG_DONTWAIT), -EAGAIN);
		ck_assert(i == 0 || os_now_ns() - began < rds_patience_ns(RDS_PATIENCE_OWNER_UNKNOWN) / 2);
	}
	os_syscall(SYS_nanosleep, (long)&a_while, 0, 0, 0, 0, 0);
	began = os_now_ns();
	ck_assert_int_eq(rds_borrower_recvmsg(pair[0], &msg, MSG_DONTWAIT), -EAGAIN);
	ck_assert_uint_ge(os_now_ns() - began, rds_patience_ns(RDS_PATIENCE_OWNER_UNKNOWN));
	mock_clock_common();
}
END_TEST

static void ignore(int sig)
{
	(void)sig;
}

/* The port of a socket that several processes have may be free in a moment, whatever else comes. */
START_TEST(a_port_is_waited_for)
{
	const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
	struct rds_sock *second;
	uint64_t began;
	int fd = rds_call_socket(SOCK_SEQPACKET, 0, &second);

	ck_assert_int_ge(fd, 0);
	registry_sock_set_shared(rds_node_registry, sock->reg_idx);
	signal(SIGALRM, ignore);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
	for (unsigned i = 0; i < 10; i++) { /* on a busy machine, few signals come in some of these waits */
		began = os_now_ns();
		ck_assert_int_eq(rds_call_bind(second, (struct sockaddr *)&name, sizeof(name)), -EADDRINUSE);
		ck_assert_uint_ge(os_now_ns() - began, rds_patience_ns(RDS_PATIENCE_BIND));
	}
	ck_assert_int_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("full_owner");
	TCase *t = suite_case(s, "full_owner", setup, teardown);

	tcase_add_test(t, a_borrower_comes);
	tcase_add_test(t, long_messages);
	tcase_add_test(t, files_are_short);
	tcase_add_test(t, an_owner_stays_full);
	tcase_add_test(t, a_port_is_waited_for);
	return suite_run(s);
}
