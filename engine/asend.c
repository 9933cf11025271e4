/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * asend.c - RDS_CMSG_ASYNC_SEND of Oracle's kernels: a message whose own end is told, as that of an operation is (notify.c).
 *
 * What is to be told is made before the message goes, so that telling it needs no memory, and goes wherever the message does: into the queue,
 * to a transport, back into the queue when a connection has broken, to another connection (rds_unacked.async).  It is told once: success when
 * the peer has acknowledged the message; that it was dropped only if nobody has got it or ever will, since programs send it again then; and
 * "other error" where that is not known.
 *
 * As in Oracle's kernels, a break costs what was under way and all that the program has sent behind it, operations included: the program sends it again,
 * in its own order, and what came behind must not arrive before that.  Which messages the peer has it says when the connection is up again; the others
 * are dropped then (rds_queue_give_up).  A break when nothing of that kind was under way costs nothing.
 *
 * A message that changes hands with its socket before any transport has had it (along.c) takes along what is to be
 * told of it.
 *
 * What has failed and is not read yet, or is about to, holds up what the socket sends to that address, operations of such a socket as well.  The quick way (quick.c) is not told: it goes by the
 * destination's connection, and that is looked up anew, which finds out.
 *
 * An rds_op without anything to do, listed with its socket until its end and never with a connection.  rx guards all of it.
 */
#include "engine/rdma.h"

__thread bool rds_asend_held_up __attribute__((tls_model("initial-exec")));

struct rds_op *rds_asend_new(struct rds_sock *sk, uint64_t token, bool notify)
{
	struct rds_op *op = rds_op_new(sk, RDS_OP_WRITE, 0);

	if (!op)
		return NULL;
	op->asend = true;
	op->token = token;
	op->notify = notify;
	atomic_store(&sk->had_ops, true);
	atomic_store(&sk->had_asends, true);
	rx_lock();
	op->next = sk->asends;
	op->prev = &sk->asends;
	if (op->next)
		op->next->prev = &op->next;
	sk->asends = op;
	rx_unlock();
	return op;
}

static void unlist(struct rds_op *op)
{
	*op->prev = op->next;
	if (op->next)
		op->next->prev = op->prev;
	op->over = op->done = true;
}

void rds_asend_discard(struct rds_op *op)
{
	rx_lock();
	if (!op->done)
		unlist(op);
	rds_op_put(op);
	rx_unlock();
}

void rds_asend_holds_up(struct rds_op *op)
{
	if (op->holds_up)
		return;
	op->holds_up = true;
	op->sk->nfailed++;
	atomic_fetch_add(&rds_eng->conn_gen, 1);
}

void rds_asend_told(struct rds_op *op)
{
	if (op->holds_up && op->sk->nfailed)
		op->sk->nfailed--;
	op->holds_up = false;
}

void rds_asend_give_up(struct rds_op *op)
{
	if (op->done)
		return;
	op->given_up = true;
	rds_asend_holds_up(op);
}

static void end(struct rds_op *op, int status)
{
	struct rds_sock *sk = op->sk;

	if (op->done) /* its socket has left this process */
		return;
	rds_asend_told(op);
	unlist(op);
	op->status = status;
	if (!atomic_load(&sk->open) && !atomic_load(&sk->leaving))
		return;
	if (status == RDS_RDMA_SUCCESS && !op->notify)
		return;
	op->notify = true; /* unlike an operation's, its failure is told in full */
	if (status != RDS_RDMA_SUCCESS && status != RDS_RDMA_CANCELED) /* what the program has brought about itself */
		rds_asend_holds_up(op);
	op->refs++;
	rds_notify(op);
}

void rds_asend_over(struct rds_unacked *u, int status)
{
	struct rds_op *op = u->async;

	u->told &= (uint8_t)~RDS_TOLD_END;
	u->async = NULL;
	rx_lock();
	end(op, status);
	rds_op_put(op);
	rx_unlock();
}

void rds_asends_leave(struct rds_sock *sk)
{
	struct rds_op *op, *next;

	for (op = sk->asends; op; op = next) {
		next = op->next;
		if (!op->goes_along)
			end(op, RDS_RDMA_OTHER_ERROR);
	}
}

bool rds_asend_refused(struct rds_sock *sk, const struct in6_addr *to)
{
	const struct rds_op *op;

	rx_lock();
	for (op = sk->reports; op; op = op->report_next)
		if (op->holds_up && rds_ip_equal(&op->to, to))
			break;
	for (struct rds_op *a = op ? NULL : sk->asends; a && !op; a = a->next)
		if (a->holds_up && rds_ip_equal(&a->to, to))
			op = a;
	rx_unlock();
	rds_asend_held_up = op;
	return op;
}
