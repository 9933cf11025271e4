/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_hands_off.c - what borrowers are told while their owner hands off the socket (share/owner.c).
 * The owner may end at any moment of that: at each one the borrower must know whether its call was
 * made.
 */
#include <arpa/inet.h>
#include <asm/ioctls.h>
#include <check.h>
#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <unistd.h>

#include "engine/calls/start.h"
#include "engine/share/owner.h"
#include "tests/slow.h"
#include "tests/unit/bound_helper.h"
#include "tests/unit/suite.h"

static struct rds_sock *sock;
static int standin, line;
static struct sockaddr_in name;

static void setup(void)
{
	const struct rds_share_attach hello = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	struct rds_share_reply a;
	int channel[2];

	ck_assert_int_eq(rds_call_start_engine(), 0);
	sock = bound_over_tcp(&standin, &name);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel), 0);
	line = channel[0];
	ck_assert_int_eq(os_pass_send(standin, &hello, sizeof(hello), (int[]){channel[1], standin}, 2, 0), 0);
	close(channel[1]);
	ck_assert_int_eq(recv(line, &a, sizeof(a), 0), sizeof(a));
	ck_assert_int_eq(a.kind, RDS_SHARE_HELLO);
}

/*
 * As handoff_out.c begins it, and as an exec that has failed ends it.  Between two rounds of the
 * helper: the owner does not end within one.
 */
static void hands_off(bool now)
{
	rds_helper_fork_prepare();
	rx_lock();
	atomic_store(&sock->handing_off, now);
	atomic_store(&sock->open, !now);
	rx_unlock();
	rds_helper_fork_parent();
	rds_owner_wake();
}

/* Then the helper finds all that is sent meanwhile, in one round. */
static void hands_off_with(void (*sends)(void))
{
	rds_helper_fork_prepare();
	rx_lock();
	atomic_store(&sock->handing_off, true);
	atomic_store(&sock->open, false);
	rx_unlock();
	sends();
	rds_helper_fork_parent();
}

static void asks(enum rds_share_op op, bool may_wait)
{
	struct {
		struct rds_share_request q;
		char name[sizeof(struct sockaddr_in)];
	} packet = {.q = {.magic = RDS_SHARE_MAGIC, .op = (uint16_t)op, .seq = 1, .may_wait = may_wait, .room = 8}};

	if (op == RDS_SHARE_SEND) {
		packet.q.has_name = 1;
		packet.q.name_len = sizeof(name);
		memcpy(packet.name, &name, sizeof(name));
	}
	ck_assert_int_eq(send(line, &packet, sizeof(packet.q) + packet.q.name_len, MSG_NOSIGNAL),
			 sizeof(packet.q) + packet.q.name_len);
}

/* The kind of the next packet; 0: the end of the channel; -errno. */
static int hears(void)
{
	char packet[RDS_SHARE_PACKET];
	struct rds_share_reply a;
	ssize_t n = recv(line, packet, sizeof(packet), 0);

	if (n <= 0)
		return n ? -errno : 0;
	ck_assert_int_ge(n, sizeof(a));
	memcpy(&a, packet, sizeof(a));
	return a.kind;
}

/* It is not read: an owner that ends instead of reading it tells the borrower the same. */
START_TEST(a_request)
{
	static const enum rds_share_op ops[] = {RDS_SHARE_SEND, RDS_SHARE_RECV, RDS_SHARE_SOCKNAME};

	hands_off(true);
	asks(ops[_i], true);
	ck_assert_int_eq(hears(), -ECONNRESET);
}
END_TEST

static void cancels(void)
{
	asks(RDS_SHARE_CANCEL, false);
}

/* Of a call that sleeps: it is left unread, too. */
START_TEST(a_cancel)
{
	asks(RDS_SHARE_RECV, true);
	ck_assert_int_eq(hears(), RDS_SHARE_WAIT);
	hands_off_with(cancels);
	ck_assert_int_eq(hears(), -ECONNRESET);
}
END_TEST

/*
 * It hears that the call was not made, and the last thing before that is that it sleeps: a send is
 * tried now and then, which READY tells.
 */
static void hears_to_the_end(void)
{
	int kind, last = RDS_SHARE_WAIT;

	while ((kind = hears()) != RDS_SHARE_RETRY)
		last = kind;
	ck_assert_int_eq(last, RDS_SHARE_WAIT);
	ck_assert_int_eq(hears(), 0);
}

START_TEST(a_call_that_sleeps)
{
	asks(RDS_SHARE_RECV, true);
	ck_assert_int_eq(hears(), RDS_SHARE_WAIT);
	hands_off(true);
	hears_to_the_end();
}
END_TEST

START_TEST(a_send_that_sleeps)
{
	static char bytes[4096];
	struct iovec iov = {bytes, sizeof(bytes)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_name = &name, .msg_namelen = sizeof(name)};

	ck_assert_int_eq(rds_call_setsockopt(sock, standin, SOL_SOCKET, SO_RCVBUF, &(int){2048}, 4), 0);
	ck_assert_int_eq(rds_call_sendmsg(sock, standin, &msg, MSG_DONTWAIT), sizeof(bytes));
	asks(RDS_SHARE_SEND, true);
	ck_assert_int_eq(hears(), RDS_SHARE_WAIT);
	hands_off(true);
	hears_to_the_end();
}
END_TEST

static bool has_message(void)
{
	bool has;

	rx_lock();
	has = sock->rx_head != NULL;
	rx_unlock();
	return has;
}

static void finds_message_again(void)
{
	char byte;
	struct msghdr msg = {.msg_iov = &(struct iovec){&byte, 1}, .msg_iovlen = 1};

	test_until(has_message());
	hands_off(false);
	ck_assert_int_eq(rds_call_recvmsg(sock, standin, &msg, MSG_DONTWAIT), 0);
}

/* What the borrower could not use goes back to the queue, which the next owner gets. */
START_TEST(a_message_that_goes_back)
{
	asks(RDS_SHARE_SEND, false);
	ck_assert_int_eq(hears(), RDS_SHARE_REPLY);
	asks(RDS_SHARE_RECV, true);
	while (hears() != RDS_SHARE_REPLY)
		;
	hands_off(true);
	asks(RDS_SHARE_PUT_BACK, false);
	finds_message_again();
}
END_TEST

static bool reply_is_there(void)
{
	struct pollfd p = {.fd = line, .events = POLLIN};

	return os_poll(&p, 1, 0) > 0;
}

static void receives_unread(void)
{
	asks(RDS_SHARE_SEND, false);
	ck_assert_int_eq(hears(), RDS_SHARE_REPLY);
	asks(RDS_SHARE_RECV, true);
	test_until(reply_is_there());
}

static void is_killed(void)
{
	close(line);
}

/* A borrower that is killed with a reply unread has not got its message: the next owner gets that. */
START_TEST(a_message_that_nobody_reads)
{
	receives_unread();
	hands_off_with(is_killed);
	finds_message_again();
}
END_TEST

/* The borrower's CANCEL has crossed the reply: the reply stays readable, and the message can go back. */
START_TEST(a_message_behind_a_cancel)
{
	receives_unread();
	hands_off_with(cancels);
	test_until(!os_bytes_there(line, SIOCOUTQ));
	ck_assert_int_eq(hears(), RDS_SHARE_REPLY);
	asks(RDS_SHARE_PUT_BACK, false);
	finds_message_again();
}
END_TEST

static _Atomic bool begun, ended;

static void takes_long(struct rds_timer *tm)
{
	(void)tm;
	atomic_store(&begun, true);
	os_nap_ns(300 * 1000000ull);
	atomic_store(&ended, true);
}

/* A call of a borrower is answered before, however long the helper does not get a processor. */
START_TEST(a_long_round)
{
	static struct rds_timer slow = {.fn = takes_long};

	rds_timer_set(&slow, os_now_ns());
	while (!atomic_load(&begun))
		os_nap_ns(100000);
	ck_assert_uint_eq(rds_handoff_out(NULL), 1);
	ck_assert(atomic_load(&ended));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hands_off");
	TCase *t = suite_case(s, "hands_off", setup, NULL);

	tcase_add_loop_test(t, a_request, 0, 3);
	tcase_add_test(t, a_cancel);
	tcase_add_test(t, a_call_that_sleeps);
	tcase_add_test(t, a_send_that_sleeps);
	tcase_add_test(t, a_message_that_goes_back);
	tcase_add_test(t, a_message_that_nobody_reads);
	tcase_add_test(t, a_message_behind_a_cancel);
	tcase_add_test(t, a_long_round);
	return suite_run(s);
}
