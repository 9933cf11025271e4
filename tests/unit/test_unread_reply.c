/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_unread_reply.c - a borrower reads its message and ends while the owner looks whether it has
 * (share/owner_attach.c): the message does not come back to the queue.
 */
#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/calls/recv.h"
#include "engine/calls/send_check.h"
#include "engine/calls/start.h"
#include "engine/share/owner.h"
#include "tests/unit/suite.h"

static struct rds_sock *sock;
static int standin, may_read[2], looked[2];
static struct sockaddr_in name;
static _Atomic int borrower;

long __real_os_syscall(long nr, long a, long b, long c, long d, long e, long f);
long __wrap_os_syscall(long nr, long a, long b, long c, long d, long e, long f);

/* The owner has seen that the message is unread, and asks whether its process has ended. */
long __wrap_os_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	int status = -1, saved = errno;

	if (nr == SYS_pidfd_open && a && a == atomic_load(&borrower) && atomic_exchange(&borrower, 0)) {
		ck_assert_int_eq(write(may_read[1], "", 1), 1);
		ck_assert_int_eq(waitpid((pid_t)a, &status, 0), a);
		ck_assert_int_eq(status, 0);
		ck_assert_int_eq(write(looked[1], "", 1), 1);
	}
	errno = saved;
	return __real_os_syscall(nr, a, b, c, d, e, f);
}

static void setup(void)
{
	socklen_t len = sizeof(name);

	setenv("RDS_PRELOAD_HELPER_FDS", "shared", 1);
	rds_options_reset();
	ck_assert_int_eq(rds_call_start_engine(), 0);
	standin = rds_call_socket(SOCK_SEQPACKET, 0, &sock);
	ck_assert_int_ge(standin, 0);
	name = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	ck_assert_int_eq(rds_call_bind(sock, (struct sockaddr *)&name, sizeof(name)), 0);
	ck_assert_int_eq(rds_call_getsockname(sock, (struct sockaddr *)&name, &len), 0);
	ck_assert_int_eq(pipe(may_read), 0);
	ck_assert_int_eq(pipe(looked), 0);
}

/* Sends a request over a new channel to the owner; the channel. */
static int asks(enum rds_share_op op)
{
	const struct rds_share_attach hello = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	const struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = (uint16_t)op, .seq = 1, .room = 8};
	struct rds_share_reply a;
	int channel[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel) ||
	    os_pass_send(standin, &hello, sizeof(hello), (int[]){channel[1], standin}, 2, 0) || close(channel[1]) ||
	    recv(channel[0], &a, sizeof(a), 0) != sizeof(a) || a.kind != RDS_SHARE_HELLO ||
	    send(channel[0], &q, sizeof(q), 0) != sizeof(q))
		return -1;
	return channel[0];
}

static bool hears_reply(int channel, struct rds_share_reply *a)
{
	char packet[sizeof(*a) + RDS_SHARE_NAME];

	if (recv(channel, packet, sizeof(packet), 0) < (ssize_t)sizeof(*a))
		return false;
	memcpy(a, packet, sizeof(*a));
	return a->kind == RDS_SHARE_REPLY;
}

/*
 * A process that receives one byte, but does not read the reply before it is told to.  The first
 * process that borrows a socket is told to attach once more, when the lease has been made.
 */
static void child(void)
{
	struct rds_share_reply a = {0};
	int channel;
	char c;

	while (!hears_reply(asks(RDS_SHARE_SOCKNAME), &a))
		if (a.kind != RDS_SHARE_RETRY)
			_exit(2);
	channel = asks(RDS_SHARE_RECV);
	_exit(channel < 0 || read(may_read[0], &c, 1) != 1 || !hears_reply(channel, &a) || a.result != 1);
}

START_TEST(read_while_the_owner_looks)
{
	char c = 'm';
	struct iovec iov = {&c, 1};
	struct msghdr msg = {.msg_name = &name, .msg_namelen = sizeof(name), .msg_iov = &iov, .msg_iovlen = 1};
	struct rds_share_reply a;
	int channel;
	pid_t pid;

	ck_assert_int_eq(rds_call_sendmsg(sock, standin, &msg, 0), 1);
	pid = fork();
	if (!pid)
		child();
	atomic_store(&borrower, pid);
	ck_assert_int_eq(read(looked[0], &c, 1), 1);
	channel = asks(RDS_SHARE_SOCKNAME); /* the owner's look is over when it answers */
	ck_assert(channel >= 0 && hears_reply(channel, &a));
	msg.msg_name = NULL;
	ck_assert_int_eq(rds_call_recvmsg(sock, standin, &msg, MSG_DONTWAIT), -EAGAIN);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("unread_reply");
	TCase *t = suite_case(s, "unread_reply", setup, NULL);

	tcase_add_test(t, read_while_the_owner_looks);
	return suite_run(s);
}
