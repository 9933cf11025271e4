/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * notify.c - notifications: a receive reports the outcome of operations to the program
 * (net/rds/recv.c: rds_notify_queue_get()).
 *
 * An operation that is to be reported is its own notification, so that reporting needs no memory.
 * Notifications are taken oldest first: as many as the control buffer has room for, and at least
 * one.  Within one call the newest comes first, as in Linux.  For a socket that uses
 * RDS_CMSG_ASYNC_SEND (async_send.c), the oldest comes first, as in Oracle's kernels.  A
 * notification that cannot be stored in the buffer stays queued.  rx guards all of it.
 */
#include "engine/abi/cmsg.h"
#include "engine/abi/revisions.h"
#include "engine/rdma/rdma.h"

#include <poll.h>

void rds_notify_queue(struct rds_op *op)
{
	struct rds_sock *sk = op->sk;

	op->report_next = NULL;
	*sk->report_tail = op;
	sk->report_tail = &op->report_next;
	rds_sock_wake(sk, POLLIN | POLLRDNORM | RDS_WAIT_RECV);
}

static struct rds_op *notify_merge(struct rds_op *a, struct rds_op *b)
{
	struct rds_op *list, **at = &list, **older;

	while (a && b) {
		older = a->id < b->id ? &a : &b;
		*at = *older;
		at = &(*older)->report_next;
		*older = *at;
	}
	*at = a ? a : b;
	return list;
}

static struct rds_op *notify_sort(struct rds_op *list)
{
	struct rds_op *half[2] = {NULL, NULL}, *op;
	unsigned i = 0;

	if (!list || !list->report_next)
		return list;
	for (; (op = list); i ^= 1) {
		list = op->report_next;
		op->report_next = half[i];
		half[i] = op;
	}
	return notify_merge(notify_sort(half[0]), notify_sort(half[1]));
}

void rds_notify_order(struct rds_sock *sk, struct rds_op **from)
{
	*from = notify_sort(*from);
	while (*from)
		from = &(*from)->report_next;
	sk->report_tail = from;
}

static struct rds_op *notify_take(struct rds_sock *sk)
{
	struct rds_op *op = sk->reports;

	sk->reports = op->report_next;
	if (!sk->reports)
		sk->report_tail = &sk->reports;
	return op;
}

static void notify_done(struct rds_op *op)
{
	rds_op_async_reported(op);
	rds_op_put(op);
}

/*
 * They are delivered next, in this order: the kernel does not reverse them again
 * (rds_notify_queue_get).
 */
static void notify_put_back(struct rds_sock *sk, struct rds_op *list)
{
	struct rds_op *last = list;

	while (last->report_next)
		last = last->report_next;
	last->report_next = sk->reports;
	if (!sk->reports)
		sk->report_tail = &last->report_next;
	sk->reports = list;
}

static int notify_put_cmsg(struct rds_sock *sk, struct rds_cmsg_out *out, const struct rds_op *op)
{
	struct rds_rdma_notify n;
	struct rds_rdma_notify_short old;
	/* Without NOTIFY_ME the program learns only that it failed. */
	int status = op->notify ? op->status : RDS_RDMA_DROPPED;

	if (op->short_notify) {
		old.user_token = (uint32_t)op->token;
		old.status = status;
		return rds_cmsg_put(out, rds_sock_level(sk), RDS_CMSG_RDMA_STATUS, &old, sizeof(old));
	}
	memset(&n, 0, sizeof(n));
	n.user_token = op->token;
	n.status = status;
	return rds_cmsg_put(out, rds_sock_level(sk), RDS_CMSG_RDMA_STATUS, &n, sizeof(n));
}

int rds_notify_deliver(struct rds_sock *sk, struct rds_cmsg_out *out)
{
	size_t max = out->len / CMSG_SPACE(sizeof(struct rds_rdma_notify)), n;
	struct rds_op *list = NULL, **at = &list, *op;
	bool oldest_first = atomic_load(&sk->had_async_sends);
	int err = 0;

	for (n = 0; sk->reports && (n < max || !n); n++) {
		op = notify_take(sk);
		op->report_next = *at;
		*at = op;
		if (oldest_first)
			at = &op->report_next;
	}
	while ((op = list)) {
		err = notify_put_cmsg(sk, out, op);
		if (err) {
			notify_put_back(sk, op);
			break;
		}
		list = op->report_next;
		notify_done(op);
	}
	return err;
}

void rds_notify_drop(struct rds_sock *sk)
{
	while (sk->reports)
		notify_done(notify_take(sk));
}
