/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * async_send.c - RDS_CMSG_ASYNC_SEND of Oracle's kernels: a message whose own end is reported, as
 * the end of an operation is (notify.c).
 *
 * The report is made before the message goes, so that reporting needs no memory.  It goes wherever
 * the message goes: into the queue, to a transport, back into the queue when a connection has
 * broken, to another connection (rds_queue_unacked.async).  There is one report for a message:
 *   - success, when the peer has acknowledged the message;
 *   - "dropped", only if no process has got the message or ever will, since programs send it again
 *     then;
 *   - "other error", where that is not known.
 *
 * What a break costs is in op_flush.c.  The operations of a socket that uses RDS_CMSG_ASYNC_SEND
 * are reported with their messages, so that there is one order.  Such an operation, when it is
 * done, is the report of its message, too, and its own failure counts.  If it was not answered when
 * the connection broke, the end of its message tells what became of it (`unsure`).
 *
 * A message that is handed off with its socket before any transport has had it
 * (share/handoff_unsent.c) takes its report along.
 *
 * A message that has failed, or is given up, blocks sends of the socket to its address, until the
 * program has read the report.  Failed operations of such a socket do the same.  The fast path
 * (calls/send_fast.c) is not told: it uses the cached connection of the destination.  That is
 * looked up anew (rds_route_gen), which finds the failure.
 *
 * A report is an rds_op without an operation.  It is listed with its socket until its end, and
 * never with a connection.  rx guards all of it.
 */
#include "engine/rdma/rdma.h"

#include <poll.h>

__thread bool rds_op_async_refused __attribute__((tls_model("initial-exec")));

static void async_list(struct rds_op *op)
{
	struct rds_sock *sk = op->sk;

	op->next = sk->async_sends;
	op->prev = &sk->async_sends;
	if (op->next)
		op->next->prev = &op->next;
	sk->async_sends = op;
	op->listed = true;
}

static void async_unlist(struct rds_op *op)
{
	*op->prev = op->next;
	if (op->next)
		op->next->prev = op->prev;
	op->listed = false;
	op->over = op->done = true;
}

struct rds_op *rds_op_async_new(struct rds_sock *sk, uint64_t token, bool notify)
{
	struct rds_op *op = rds_op_new(sk, RDS_OP_WRITE, 0);

	if (!op)
		return NULL;
	op->async_only = true;
	op->token = token;
	op->notify = notify;
	atomic_store(&sk->had_ops, true);
	if (!atomic_load(&sk->had_async_sends))
		RDS_SOCK_SET(sk, had_async_sends, true);
	rx_lock();
	async_list(op);
	rx_unlock();
	return op;
}

void rds_op_async_discard(struct rds_op *op)
{
	rx_lock();
	if (op->listed)
		async_unlist(op);
	rds_op_put(op);
	rx_unlock();
}

void rds_op_async_block(struct rds_op *op)
{
	if (op->blocks_sends)
		return;
	op->blocks_sends = true;
	op->sk->nfailed++;
	atomic_fetch_add(&rds_route_gen, 1);
}

void rds_op_async_reported(struct rds_op *op)
{
	if (op->blocks_sends && op->sk->nfailed)
		op->sk->nfailed--;
	op->blocks_sends = false;
}

void rds_op_async_abort(struct rds_op *op)
{
	for (; op; op = op->message_next) {
		op->aborted = true;
		if (op->listed)
			rds_op_async_block(op);
	}
}

void rds_op_async_resume(struct rds_op *op)
{
	for (; op; op = op->message_next)
		op->aborted = false;
}

/* Unlike an operation's, the failure of a message is reported in full. */
static bool async_reportable(struct rds_op *op)
{
	if (!op->async_only)
		return rds_op_is_reported(op);
	if (!atomic_load(&op->sk->open) && !atomic_load(&op->sk->handing_off))
		return false;
	op->notify |= op->status != RDS_RDMA_SUCCESS;
	return op->notify;
}

static void async_end(struct rds_op *op, int status)
{
	bool held_up = op->blocks_sends;

	if (!op->listed) /* its socket has left this process */
		return;
	rds_op_async_reported(op);
	async_unlist(op);
	/* What a read or an atomic brings is lost, though its message has arrived. */
	if (op->unsure && op->kind != RDS_OP_WRITE && status == RDS_RDMA_SUCCESS)
		status = RDS_RDMA_OTHER_ERROR;
	if (op->status == RDS_RDMA_SUCCESS || op->unsure)
		op->status = status;
	if (async_reportable(op)) {
		if (rds_op_has_failed(op))
			rds_op_async_block(op);
		op->refs++;
		rds_notify_queue(op);
	}
	if (held_up && !op->blocks_sends)
		rds_sock_wake(op->sk, POLLOUT | POLLWRNORM);
}

void rds_op_async_end(struct rds_queue_unacked *u, int status)
{
	struct rds_op *op = u->async, *next;

	u->report &= (uint8_t)~RDS_REPORT_END;
	u->async = NULL;
	rx_lock();
	for (; op; op = next) {
		next = op->message_next;
		if (op->async_only || op->done) {
			async_end(op, status);
			rds_op_put(op);
		} else { /* the operation is reported when it is done */
			op->with_message = false;
		}
	}
	rx_unlock();
}

/* ---- operations ---- */

void rds_op_async_attach(struct rds_queue_unacked *u, struct rds_op *ops)
{
	struct rds_op *op;

	for (op = ops; op; op = op->message_next)
		op->with_message = true;
	u->report |= RDS_REPORT_END;
	u->async = ops;
}

void rds_op_async_defer(struct rds_op *op)
{
	async_list(op);
	if (op->aborted || (rds_op_has_failed(op) && rds_op_is_reported(op)))
		rds_op_async_block(op);
}

void rds_op_async_detach(struct rds_op *op)
{
	if (op->listed) {
		async_end(op, op->status);
		rds_op_put(op);
	}
	op->with_message = false;
}

void rds_op_async_handoff(struct rds_sock *sk)
{
	struct rds_op *op, *next;

	for (op = sk->async_sends; op; op = next) {
		next = op->next;
		if (!op->handed_off)
			async_end(op, RDS_RDMA_OTHER_ERROR);
	}
}

bool rds_op_async_refuses(struct rds_sock *sk, const struct in6_addr *to)
{
	const struct rds_op *op;

	rx_lock();
	for (op = sk->reports; op; op = op->report_next)
		if (op->blocks_sends && rds_ip_equal(&op->to, to))
			break;
	for (struct rds_op *a = op ? NULL : sk->async_sends; a && !op; a = a->next)
		if (a->blocks_sends && rds_ip_equal(&a->to, to))
			op = a;
	rx_unlock();
	rds_op_async_refused = op;
	return op;
}

bool rds_op_async_aborted(const struct rds_queue_unacked *u)
{
	return u->async->aborted;
}

bool rds_op_async_unanswered(const struct rds_queue_unacked *u)
{
	struct rds_op *op;
	bool any = false;

	if (u->async->async_only)
		return false;
	rx_lock();
	for (op = u->async; op; op = op->message_next)
		any |= op->awaited = !op->over;
	rx_unlock();
	return any;
}
