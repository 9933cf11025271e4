/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op_flush.c - what a break costs a program for Oracle's kernels (async_send.c): operations, and
 * messages whose end is reported.
 *
 * If any of them was under way, all that the connection has of them are given up.  They end when it
 * is up again, in the order of the queue: as dropped, or as successful if the peer says that it has
 * them.  From the break on, until the program has read the reports, no more of them go to that peer
 * (rds_op_async_refuses()).  So the program sends them again in its own order, and nothing passes
 * what was lost.
 *
 * conn->tx held.
 */
#include "engine/rdma/rdma.h"
#include "engine/rdma/op_device.h"

bool rds_op_abort_needed(const struct rds_conn *conn)
{
	unsigned i;

	for (i = 0; i < conn->count; i++) {
		const struct rds_queue_unacked *u = rds_queue_unacked_at(conn, i);

		if (u->sk && !u->cancelled && atomic_load(&u->sk->had_async_sends) &&
		    (u->once || (u->report & RDS_REPORT_END)))
			return true;
	}
	return rds_ops_async_under_way(conn);
}

void rds_op_abort_mark(struct rds_conn *conn)
{
	const struct rds_queue_item *q;
	unsigned i;

	for (i = 0; i < conn->count; i++) {
		const struct rds_queue_unacked *u = rds_queue_unacked_at(conn, i);

		if (u->report & RDS_REPORT_END)
			rds_op_async_abort(u->async);
	}
	for (q = conn->queue; q; q = q->next)
		if (q->u.report & RDS_REPORT_END)
			rds_op_async_abort(q->u.async);
	conn->aborted = true;
}

/*
 * After its socket is closed, no program is told of it or sends it again.  So such a message goes,
 * but not without its operation.
 */
static bool queued_is_aborted(const struct rds_queue_item *q)
{
	if (!rds_unacked_aborted(&q->u))
		return false;
	return atomic_load(&q->u.sk->open) || (q->op ? !rds_op_wanted(q) : q->u.once && !q->u.again);
}

/*
 * The peer has received it, and does not acknowledge it yet.  So it is not lost: it is kept, and
 * its end will be told.  But if the answers to its operations were lost, the peer may have refused
 * them, and that is not told again.
 */
static bool queued_is_held(struct rds_queue_item *q)
{
	if (q->u.once && !q->u.again)
		return false;
	rds_op_async_resume(q->u.async);
	return true;
}

/*
 * How the end of a message is told that is not sent again.  An operation that has been answered
 * keeps its own status if the peer has acknowledged the message.
 */
static int aborted_status(const struct rds_conn *conn, const struct rds_queue_item *q, bool received)
{
	const struct rds_op *op;

	if (!received)
		return RDS_RDMA_DROPPED;
	for (op = q->u.async; op; op = op->message_next)
		if (op->unsure)
			return RDS_RDMA_OTHER_ERROR;
	return q->u.seq <= conn->acked ? RDS_RDMA_SUCCESS : RDS_RDMA_OTHER_ERROR;
}

void rds_op_drop_aborted(struct rds_conn *conn, uint64_t all)
{
	struct rds_queue_item **p = &conn->queue, *q;

	while ((q = *p)) {
		bool received = q->u.seq <= all;

		if (queued_is_aborted(q) && !(received && queued_is_held(q))) {
			rds_unacked_report_end(&q->u, aborted_status(conn, q, received));
			rds_queue_drop_at(conn, p);
		} else {
			p = &q->next;
		}
	}
	conn->queue_tail = p;
	conn->aborted = false;
}

/*
 * Operations that were under way are not repeated, and nobody waits for the answers to the peer's
 * operations.
 */
void rds_ops_conn_broken(struct rds_conn *conn, bool all)
{
	bool behind_lost = !all && rds_op_abort_needed(conn);

	if (behind_lost)
		rds_op_abort_mark(conn);
	rds_ops_judge(conn);
	rds_ops_broken(conn, all, behind_lost);
	rds_op_refusals_note(conn, false);
	rds_mr_adverts_drop(conn);
	rds_mr_remote_drop_all(conn);
	rds_op_answers_drop(conn);
}
