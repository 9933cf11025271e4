/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_async_send.c - RDS_CMSG_ASYNC_SEND: what is reported of a message for each of the ways in which
 * it can end, and which sends are refused meanwhile.
 */
#include <arpa/inet.h>
#include <check.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/abi/revisions.h"
#include "engine/rdma/rdma.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

static struct rds_sock *sk;
static int fd;
static struct in6_addr here, there;
static union {
	char bytes[512];
	struct cmsghdr align;
} control;
static int level; /* that is sent under */

static void setup(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	level = SOL_RDS;
	fd = rds_call_socket(SOCK_SEQPACKET, 0, &sk);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(rds_call_bind(sk, (struct sockaddr *)&a, sizeof(a)), 0);
	here = sk->laddr.ip;
	ck_assert_int_eq(inet_pton(AF_INET6, "::ffff:10.0.0.1", &there), 1);
}

static void teardown(void)
{
	os_close(fd);
	rds_call_number_closed(sk);
}

/* A message that the peer has, and whose end is to be reported. */
static struct rds_queue_unacked message(uint64_t token, bool notify, const struct in6_addr *to)
{
	struct rds_queue_unacked u = {.sk = sk, .report = RDS_REPORT_END};

	rds_sock_snd_add(sk, 0);
	u.async = rds_op_async_new(sk, token, notify);
	ck_assert_ptr_nonnull(u.async);
	u.async->to = *to;
	return u;
}

static void ends(struct rds_queue_unacked *u, int status)
{
	rds_unacked_report_end(u, status);
	ck_assert_uint_eq(u->report, 0);
	rds_queue_unacked_release(u);
}

/* Reads the next notification, with room for one: its status, or -errno. */
static int told(uint64_t *token)
{
	struct msghdr msg = {.msg_control = &control, .msg_controllen = CMSG_SPACE(sizeof(struct rds_rdma_notify))};
	struct rds_rdma_notify n;
	int err = (int)rds_call_recvmsg(sk, fd, &msg, MSG_DONTWAIT);

	*token = 0;
	if (err)
		return err;
	ck_assert_int_eq(control.align.cmsg_level, level);
	ck_assert_int_eq(control.align.cmsg_type, RDS_CMSG_RDMA_STATUS);
	ck_assert_uint_eq(control.align.cmsg_len, CMSG_LEN(sizeof(n)));
	memcpy(&n, CMSG_DATA(&control.align), sizeof(n));
	*token = n.user_token;
	return n.status;
}

static void expect(uint64_t token, int status)
{
	uint64_t of;

	ck_assert_int_eq(told(&of), status);
	ck_assert_uint_eq(of, token);
}

START_TEST(told_of_each_end)
{
	static const int status[] = {RDS_RDMA_SUCCESS, RDS_RDMA_CANCELED, RDS_RDMA_DROPPED, RDS_RDMA_OTHER_ERROR};

	for (uint64_t i = 0; i < 8; i++) {
		struct rds_queue_unacked u = message(i + 1, i < 4, &there);

		ends(&u, status[i % 4]);
		if (i == 4) /* not asked for */
			expect(0, -EAGAIN);
		else
			expect(i + 1, status[i % 4]);
		ck_assert_uint_eq(sk->nfailed, 0);
	}
	ck_assert_ptr_null(sk->async_sends);
}
END_TEST

START_TEST(released_is_success)
{
	struct rds_queue_unacked u = message(3, true, &there);

	rds_queue_unacked_release(&u);
	expect(3, RDS_RDMA_SUCCESS);
	expect(0, -EAGAIN);
}
END_TEST

START_TEST(failures_hold_up)
{
	struct rds_queue_unacked a = message(1, true, &there), b = message(2, false, &there),
				 c = message(3, true, &there);
	uint64_t gen = atomic_load(&rds_route_gen);

	ends(&a, RDS_RDMA_CANCELED);
	ck_assert(!rds_op_async_refuses(sk, &there));
	ck_assert_uint_eq(atomic_load(&rds_route_gen), gen);
	ends(&b, RDS_RDMA_DROPPED);
	ends(&c, RDS_RDMA_OTHER_ERROR);
	ck_assert_uint_eq(sk->nfailed, 2);
	ck_assert_uint_ne(atomic_load(&rds_route_gen), gen); /* the quick way has to look */
	expect(1, RDS_RDMA_CANCELED);
	ck_assert(rds_op_async_refuses(sk, &there));
	ck_assert(!rds_op_async_refuses(sk, &here));
	expect(2, RDS_RDMA_DROPPED);
	ck_assert(rds_op_async_refuses(sk, &there));
	expect(3, RDS_RDMA_OTHER_ERROR);
	ck_assert_uint_eq(sk->nfailed, 0);
}
END_TEST

/* A message whose operation is done. */
static struct rds_queue_unacked with_operation(uint64_t token)
{
	struct rds_queue_unacked u = {.sk = sk};
	struct rds_op *op = rds_op_new(sk, RDS_OP_WRITE, 0);

	ck_assert_ptr_nonnull(op);
	rds_sock_snd_add(sk, 0);
	op->token = token;
	op->notify = op->over = op->done = true;
	op->to = there;
	rds_op_async_attach(&u, op);
	return u;
}

/*
 * The socket goes to another process.  What cannot be known there is reported now, in the order of
 * sending, and not again.
 */
START_TEST(left)
{
	struct rds_queue_unacked u[7];
	unsigned i;

	for (i = 0; i < 7; i++)
		u[i] = i % 3 ? message(i + 1, i % 2, &there) : with_operation(i + 1);
	rds_unacked_report_end(&u[4], RDS_RDMA_CANCELED); /* before that */
	rx_lock();
	for (i = 0; i < 7; i += 3)
		rds_op_async_defer(u[i].async);
	rx_unlock();
	rds_lock(&rds_lock_control);
	rds_ops_handoff(sk);
	rds_unlock(&rds_lock_control);
	for (i = 0; i < 7; i++)
		ends(&u[i], RDS_RDMA_DROPPED);
	expect(5, RDS_RDMA_CANCELED);
	for (i = 0; i < 7; i++)
		if (i != 4)
			expect(i + 1, RDS_RDMA_OTHER_ERROR);
	expect(0, -EAGAIN);
}
END_TEST

START_TEST(not_sent)
{
	struct rds_queue_unacked u = message(1, true, &there);

	rds_op_async_discard(u.async);
	u.report = 0;
	rds_queue_unacked_release(&u);
	ck_assert_ptr_null(sk->async_sends);
	expect(0, -EAGAIN);
}
END_TEST

START_TEST(closed_meanwhile)
{
	struct rds_queue_unacked u = message(1, true, &there);
	struct rds_op *op = u.async;
	struct rds_sock *was = sk;

	rx_lock();
	op->refs++; /* ours, and so the socket stays, too */
	rx_unlock();
	teardown();
	ends(&u, RDS_RDMA_DROPPED); /* dropped */
	ck_assert(op->done);
	ck_assert_int_eq(op->refs, 1);
	ck_assert_ptr_null(was->async_sends);
	ck_assert_ptr_null(was->reports);
	ck_assert_uint_eq(was->nfailed, 0);
	rds_op_discard(op);
	setup();
}
END_TEST

static void dropped(uint64_t token)
{
	struct rds_queue_unacked u = message(token, true, &there);

	ends(&u, RDS_RDMA_DROPPED);
}

/*
 * A buffer that is none costs no notification but those that are in it: what is not in it comes the
 * next time.  Within one buffer the oldest is the first, or, of operations of a program that asks
 * for no message's end, the last.
 */
START_TEST(kept_if_it_cannot_be_stored)
{
	const size_t one = CMSG_SPACE(sizeof(struct rds_rdma_notify)), page = 4096;
	char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct msghdr msg = {.msg_control = (void *)8, .msg_controllen = 3 * one};
	static const uint64_t first[][2] = {{1, 2}, {3, 2}}, then[][3] = {{4, 5, 6}, {4, 1, 6}};
	uint64_t i;

	ck_assert_ptr_ne(two, MAP_FAILED);
	ck_assert_int_eq(mprotect(two + page, page, PROT_NONE), 0);
	for (i = 1; i <= 4; i++)
		dropped(i);
	RDS_SOCK_SET(sk, had_async_sends, !_i);
	ck_assert_int_eq(rds_call_recvmsg(sk, fd, &msg, MSG_DONTWAIT), -EFAULT);
	ck_assert_uint_eq(sk->nfailed, 4);
	expect(first[_i][0],
	       /* they were taken together, and lie there now as they would have been stored */
	       RDS_RDMA_DROPPED);
	expect(first[_i][1], RDS_RDMA_DROPPED);
	for (i = 5; i <= 6; i++)
		dropped(i);
	RDS_SOCK_SET(sk, had_async_sends, !_i);
	msg.msg_control = two + page - one; /* of three the first one fits */
	msg.msg_controllen = 3 * one;
	ck_assert_int_eq(rds_call_recvmsg(sk, fd, &msg, MSG_DONTWAIT), -EFAULT);
	ck_assert_uint_eq(sk->nfailed, 3);
	for (i = 0; i < 3; i++)
		expect(then[_i][i], RDS_RDMA_DROPPED);
	expect(0, -EAGAIN);
	ck_assert_uint_eq(sk->nfailed, 0);
	munmap(two, 2 * page);
}
END_TEST

/* ---- the control message ---- */

static ssize_t send_async(size_t size, unsigned times, int also, size_t also_size)
{
	struct rds_async_send_args args = {.user_token = 5, .flags = RDS_SEND_NOTIFY_ME};
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(sk->laddr.port)};
	struct msghdr msg = {.msg_name = &to, .msg_namelen = sizeof(to), .msg_control = &control};
	size_t used = 0;

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	memset(&control, 0, sizeof(control));
	for (unsigned i = 0; i < times + (also != 0); i++) {
		size_t len = i < times ? size : also_size;
		struct cmsghdr h = {.cmsg_len = CMSG_LEN(len), .cmsg_level = level};

		h.cmsg_type = i < times ? RDS_CMSG_ASYNC_SEND : also;
		memcpy(control.bytes + used, &h, sizeof(h));
		if (i < times)
			memcpy(control.bytes + used + CMSG_LEN(0), &args, size < sizeof(args) ? size : sizeof(args));
		used += CMSG_SPACE(len);
	}
	msg.msg_controllen = used;
	return rds_call_sendmsg(sk, fd, &msg, MSG_DONTWAIT);
}

START_TEST(control_messages)
{
	ck_assert_int_eq(send_async(15, 1, 0, 0), -EINVAL);
	ck_assert_int_eq(send_async(16, 2, 0, 0), -EINVAL);
	ck_assert_int_eq(send_async(16, 1, RDS_CMSG_RDMA_ARGS, 56), -EINVAL);
	ck_assert_int_eq(send_async(16, 1, RDS_CMSG_ATOMIC_FADD, 72), -EINVAL);
	ck_assert_int_eq(send_async(16, 1, RDS_CMSG_ZCOPY_COOKIE, 4), -EINVAL);
	/* there is no such region */
	ck_assert_int_eq(send_async(16, 1, RDS_CMSG_RDMA_DEST, 8), -EINVAL);
	ck_assert_ptr_null(sk->async_sends);
	ck_assert_int_eq(send_async(16, 1, 0, 0), 0);
	expect(5, RDS_RDMA_SUCCESS); /* within a process it is there at once */
	ck_assert_int_eq(send_async(24, 1, 0, 0), 0);
	expect(5, RDS_RDMA_SUCCESS);
	RDS_SOCK_SET(sk, no_rdma, true); /* TCP knows no such control message there */
	ck_assert_int_eq(send_async(16, 1, 0, 0), -EINVAL);
}
END_TEST

/*
 * Programs skip what comes under another level than theirs, which they may have used in control
 * messages alone.
 */
START_TEST(told_under_its_level)
{
	static const int levels[] = {SOL_RDS_HISTORIC, SOL_RDS_2006, SOL_RDS};

	for (unsigned i = 0; i < 3; i++) {
		level = levels[i];
		ck_assert_int_eq(send_async(16, 1, 0, 0), 0);
		expect(5, RDS_RDMA_SUCCESS);
	}
	level = SOL_RDS_2006 + 1; /* no level at all */
	ck_assert_int_eq(send_async(16, 1, RDS_CMSG_RDMA_ARGS, 56), 0);
	ck_assert_int_eq(rds_sock_level(sk), SOL_RDS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("async_send");
	TCase *tc = tcase_create("asend");

	tcase_add_checked_fixture(tc, registry_setup, registry_teardown);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, told_of_each_end);
	tcase_add_test(tc, released_is_success);
	tcase_add_test(tc, failures_hold_up);
	tcase_add_test(tc, left);
	tcase_add_test(tc, not_sent);
	tcase_add_test(tc, closed_meanwhile);
	tcase_add_test(tc, control_messages);
	tcase_add_test(tc, told_under_its_level);
	tcase_add_loop_test(tc, kept_if_it_cannot_be_stored, 0, 2);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
