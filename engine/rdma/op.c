/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op.c - operations from being listed to their end.
 *
 * Every end of an operation goes through op_end_once(), once: the first end decides the status.  An
 * answer finds its operation by number, on the connection that it came by.  If the operation is not
 * listed there any more, the answer changes nothing, so memory that was given back to the program
 * stays untouched.  rx guards all of this.
 *
 * This file must not know how pieces travel, nor control messages.
 */
#include "engine/rdma/op_device.h"

#include <stdlib.h>

#include "engine/sys/patience.h"
#include "engine/abi/user_copy.h"

#define SETTLE_SPIN_NS 200000u
#define LEFT_MAX ((uint64_t)64 << 20)

static _Atomic uint64_t last_id;
static uint64_t left_bytes; /* rx: of writes that closed sockets have left */

struct rds_op *rds_op_new(struct rds_sock *sk, enum rds_wire_op_kind kind, unsigned nlocal)
{
	/* not calloc(): glibc's does not use what free() has just kept for this thread */
	struct rds_op *op = malloc(sizeof(*op) + nlocal * sizeof(op->local[0]));

	if (!op)
		return NULL;
	*op = (struct rds_op){.kind = kind, .nlocal = nlocal, .refs = 1, .sk = sk};
	op->id = op->message = atomic_fetch_add(&last_id, 1) + 1;
	op->memory = rds_foreign_memory_get(rds_caller ? rds_caller->memory : NULL);
	rds_sock_hold(sk);
	return op;
}

void rds_op_put(struct rds_op *op)
{
	struct rds_sock *sk = op->sk;

	if (--op->refs)
		return;
	rds_op_barrier_del(op);
	rds_foreign_memory_put(op->memory);
	if (op->copy)
		atomic_fetch_sub(&sk->copied, op->total);
	if (op->left)
		left_bytes -= op->total;
	free(op->copy);
	free(op);
	rds_sock_put(sk);
}

void rds_op_discard(struct rds_op *op)
{
	rx_lock();
	rds_op_put(op);
	rx_unlock();
}

bool rds_ops_prepare_rx(struct rds_conn *conn)
{
	struct rds_conn_rdma *r = conn->rdma;

	if (likely(r))
		return true;
	r = rds_conn_seldom_get(conn) ? calloc(1, sizeof(*r)) : NULL;
	if (!r)
		return false;
	r->ops_tail = &r->ops;
	r->answers_tail = &r->answers;
	conn->rdma = r;
	return true;
}

bool rds_ops_prepare(struct rds_conn *conn)
{
	bool done;

	rx_lock();
	done = rds_ops_prepare_rx(conn);
	rx_unlock();
	return done;
}

/* Inserts it before `next`; NULL: at the end. */
static void op_list_before(struct rds_conn *conn, struct rds_op *op, struct rds_op *next)
{
	struct rds_conn_rdma *r = conn->rdma;

	op->conn = conn;
	op->next = next;
	op->prev = next ? next->prev : r->ops_tail;
	*op->prev = op;
	if (next)
		next->prev = &op->next;
	else
		r->ops_tail = &op->next;
	r->nover += op->over;
}

void rds_op_list(struct rds_conn *conn, struct rds_op *op)
{
	op_list_before(conn, op, NULL);
}

static void op_unlist(struct rds_op *op)
{
	struct rds_conn *conn = op->conn;

	if (!conn)
		return;
	*op->prev = op->next;
	if (op->next)
		op->next->prev = op->prev;
	else
		conn->rdma->ops_tail = op->prev;
	conn->rdma->nover -= op->over;
	op->conn = NULL;
}

/* Operations after this read that wait for its end may go. */
static void op_read_end(struct rds_op *op)
{
	struct rds_conn *conn = op->conn;

	if (!op->reading)
		return;
	op->reading = false;
	conn->rdma->reading -= op->total;
	conn->want_flush = true;
	rds_conn_work_add(conn);
}

static void op_device_uncount(const struct rds_op *op)
{
	if (op->by_device)
		atomic_fetch_sub(op->kind == RDS_OP_READ ? &op->conn->rdma->device_reads : &op->conn->device_writes, 1);
}

/*
 * From here on the peer must not use the bytes that it takes.  If the connection has broken, it
 * must not take what is behind them either.
 */
void rds_op_fetch_end(struct rds_op *op, bool broken)
{
	if (!op->fetch_offered)
		return;
	atomic_store(&op->fetch_word, broken ? ~op->atomic.value : 0);
	rds_fence(); /* before the program writes to these bytes again */
	op->fetch_offered = false;
	op->conn->rdma->offered_bytes -= op->total;
}

/* With RECVERR alone the program learns only that it failed, not how. */
bool rds_op_is_reported(const struct rds_op *op)
{
	if (!atomic_load(&op->sk->open) && !atomic_load(&op->sk->handing_off))
		return false;
	if (op->notify)
		return true;
	return op->recverr && rds_op_has_failed(op);
}

/*
 * Records the messages whose operations have failed, until the connection breaks.  Failures are
 * few.  If there are more than RDS_FAILED_MAX, all messages up to the newest one that was
 * overwritten count as failed.
 */
static void message_note_failed(struct rds_conn *conn, uint64_t message)
{
	struct rds_conn_rdma *r = conn->rdma;
	uint64_t *place = &r->failed[r->nfailed % RDS_FAILED_MAX];

	if (r->nfailed && r->failed[(r->nfailed - 1) % RDS_FAILED_MAX] == message)
		return; /* another operation of the same message */
	if (r->nfailed++ == 0)
		r->failed_to = 0;
	else if (r->nfailed > RDS_FAILED_MAX && *place > r->failed_to)
		r->failed_to = *place;
	*place = message;
}

static bool message_has_failed(const struct rds_conn *conn, uint64_t message)
{
	const struct rds_conn_rdma *r = conn->rdma;
	unsigned i;

	for (i = 0; r && i < r->nfailed && i < RDS_FAILED_MAX; i++)
		if (r->failed[i] == message)
			return true;
	return r && r->nfailed && message <= r->failed_to;
}

/* Nothing more is done for it.  It may still have to wait before it is done. */
static void op_end_once(struct rds_op *op, int status)
{
	if (op->over)
		return;
	op_read_end(op);
	rds_op_fetch_end(op, false);
	op_device_uncount(op);
	op->blocked_in = NULL; /* the flush sets it again, if the message still has to wait */
	/* queued parts of it may block others, or its message waits for that */
	if (op->refs > 1 || op->awaited) {
		op->conn->want_flush = true;
		rds_conn_work_add(op->conn);
	}
	op->over = true;
	op->status = status;
	if (status != RDS_RDMA_SUCCESS) {
		message_note_failed(op->conn, op->message);
		if (op->started && !op->by_device)
			rds_op_strays_note(op->conn);
	}
	op->sk->nops--;
	op->conn->rdma->nover++;
}

/* Without regard to the operations before it. */
static void op_complete(struct rds_op *op, int status)
{
	if (op->done)
		return;
	op->unsure = op->with_message && op->started && !op->over && status == RDS_RDMA_DROPPED;
	op_end_once(op, status);
	op->to = op->conn->id.faddr;
	op_unlist(op);
	op->done = true;
	rds_op_barrier_end(op, false);
	if (unlikely(op->with_message)) {
		rds_op_async_defer(op);
	} else if (rds_op_is_reported(op)) {
		if (unlikely(atomic_load(&op->sk->had_async_sends)) && rds_op_has_failed(op))
			rds_op_async_block(op);
		rds_notify_queue(op);
	} else {
		rds_op_put(op);
	}
}

bool rds_op_is_quiet(const struct rds_op *op)
{
	return op->kind == RDS_OP_WRITE && !op->alone && !op->notify && !op->has_id;
}

/*
 * A quiet write is not reported: what follows it need not wait until the device has been asked
 * about it.
 */
static void ops_complete_in_order(struct rds_conn *conn)
{
	struct rds_op *op, *next;

	for (op = rds_ops_first(conn); op && conn->rdma->nover; op = next) {
		next = op->next;
		if (op->over)
			op_complete(op, op->status);
		else if (!op->by_device || !rds_op_is_quiet(op))
			return;
	}
}

void rds_op_complete(struct rds_op *op, int status)
{
	struct rds_conn *conn = op->conn;

	op_complete(op, status);
	if (conn)
		ops_complete_in_order(conn);
}

void rds_op_end(struct rds_op *op, int status)
{
	if (op->over)
		return;
	op_end_once(op, status);
	ops_complete_in_order(op->conn);
}

void rds_op_relist(struct rds_conn *to, struct rds_op *op, struct rds_op *next)
{
	struct rds_conn *from = op->conn;

	op_unlist(op);
	op_list_before(to, op, next);
	rds_op_barrier_moved(op);
	ops_complete_in_order(from);
}

/* ---- answers ---- */

static struct rds_op *op_find(struct rds_conn *conn, uint64_t id)
{
	struct rds_op *op = rds_ops_first(conn);

	while (op && op->id != id)
		op = op->next;
	return op;
}

struct rds_foreign_memory *rds_op_memory(struct rds_conn *conn, uint64_t id)
{
	const struct rds_op *op = op_find(conn, id);

	return op ? op->memory : NULL;
}

static void op_recv_data(struct rds_op *op, const struct rds_wire_op_hdr *h, const void *data, size_t len)
{
	if (op->kind != RDS_OP_READ || h->offset != op->got || len > op->total - op->got) {
		rds_op_end(op, RDS_RDMA_OTHER_ERROR);
		return;
	}
	if (rds_ucopy_to_vec(op->memory, op->local, op->nlocal, op->got, data, len)) {
		rds_op_end(op, RDS_RDMA_OTHER_ERROR);
		return;
	}
	op->got += len;
	RDS_STAT_ADD_RX(recv_rdma_bytes, len);
	if (op->got == op->total)
		rds_op_end(op, RDS_RDMA_SUCCESS);
}

static int op_result_status(const struct rds_op *op, const struct rds_wire_op_hdr *h)
{
	if (h->status > RDS_RDMA_OTHER_ERROR)
		return RDS_RDMA_OTHER_ERROR;
	if (h->status != RDS_RDMA_SUCCESS)
		return h->status;
	if (op->kind == RDS_OP_READ) /* a read succeeds with its last data, not by a result */
		return RDS_RDMA_OTHER_ERROR;
	if ((op->kind == RDS_OP_SWAP || op->kind == RDS_OP_ADD) &&
	    rds_ucopy_to(op->memory, op->atomic.local_addr, &h->value, sizeof(h->value)))
		return RDS_RDMA_OTHER_ERROR;
	return RDS_RDMA_SUCCESS;
}

void rds_op_recv_answer(struct rds_conn *conn, const struct rds_wire_op_hdr *h, const void *data, size_t len)
{
	struct rds_op *op = op_find(conn, h->id);

	/*
	 * It was over before: its connection has broken, it was cancelled, or its socket is closed.
	 */
	if (!op || !op->started || op->over)
		return;
	if (h->kind == RDS_OP_DATA)
		op_recv_data(op, h, data, len);
	else
		rds_op_end(op, op_result_status(op, h));
}

void rds_op_device_done(struct rds_conn *conn, uint64_t id, int err, uint64_t at, const void *data, size_t len)
{
	struct rds_op *op = op_find(conn, id);

	if (!op || !op->by_device || op->over)
		return;
	if (err)
		rds_op_end(op, err == -EACCES ? RDS_RDMA_REMOTE_ERROR : RDS_RDMA_OTHER_ERROR);
	else if (op->kind == RDS_OP_READ)
		op_recv_data(op, &(struct rds_wire_op_hdr){.offset = at}, data, len);
	else
		rds_op_end(op, RDS_RDMA_SUCCESS);
}

/* ---- other ends ---- */

bool rds_ops_unfinished(const struct rds_conn *conn)
{
	return rds_ops_first(conn);
}

/* Operations that are not listed any more are done. */
static bool message_ops_succeeded(const struct rds_conn *conn, uint64_t message)
{
	const struct rds_op *op;

	for (op = rds_ops_first(conn); op; op = op->next)
		if (op->message == message && !(op->over && op->status == RDS_RDMA_SUCCESS))
			return false;
	return !message_has_failed(conn, message);
}

static uint64_t unacked_message_id(const struct rds_queue_unacked *u)
{
	if (likely(!(u->report & RDS_REPORT_END)))
		return u->op;
	return u->async->async_only ? 0 : u->async->message;
}

/*
 * An operation and its message arrive both or neither.  The program has been told, or will be, that
 * the operation has succeeded, so the message is sent again, unless the peer has acknowledged it.
 * Its number keeps it from arriving twice.
 */
void rds_ops_judge(struct rds_conn *conn)
{
	uint64_t waits = UINT64_MAX;
	const struct rds_op *op;
	unsigned i;

	for (op = rds_ops_first(conn); op; op = op->next)
		waits = op->message < waits ? op->message : waits;
	for (i = 0; i < conn->count; i++) {
		struct rds_queue_unacked *u = rds_queue_unacked_at(conn, i);
		uint64_t message = unacked_message_id(u);

		if (message && u->seq > conn->acked)
			u->again = message < waits ? !message_has_failed(conn, message)
						   : message_ops_succeeded(conn, message);
	}
}

bool rds_ops_async_under_way(const struct rds_conn *conn)
{
	const struct rds_op *op;

	for (op = rds_ops_first(conn); op; op = op->next)
		if (op->started && !op->over && atomic_load(&op->sk->had_async_sends))
			return true;
	return false;
}

/* Its program sends again what the break has cost, then this operation. */
static bool op_follows_lost(const struct rds_op *op)
{
	return op->with_message || (op->alone && atomic_load(&op->sk->had_async_sends));
}

void rds_ops_broken(struct rds_conn *conn, bool all, bool behind_lost)
{
	struct rds_op *op, *next;

	for (op = rds_ops_first(conn); op; op = next) {
		next = op->next;
		if (!all && !op->started && !(behind_lost && op_follows_lost(op)))
			continue;
		rds_op_fetch_end(op, true);
		op_complete(op, all ? RDS_RDMA_REMOTE_ERROR : RDS_RDMA_DROPPED);
	}
	if (conn->rdma)
		conn->rdma->nfailed = 0;
	ops_complete_in_order(conn);
}

/* The kernel's order: the newest is reported first. */
void rds_ops_cancel(struct rds_conn *conn, struct rds_sock *sk, uint16_t dport)
{
	struct rds_op **link = conn->rdma ? conn->rdma->ops_tail : NULL, *op;

	while (link && link != &conn->rdma->ops) {
		op = container_of(link, struct rds_op, next);
		link = op->prev;
		if (op->sk == sk && op->dport == dport)
			op_complete(op, RDS_RDMA_CANCELED);
	}
	ops_complete_in_order(conn);
}

static void ops_end_of_sock(struct rds_conn *conn, const struct rds_sock *sk, int status)
{
	struct rds_op *op, *next;

	for (op = rds_ops_first(conn); op; op = next) {
		next = op->next;
		if (op->sk == sk)
			op_complete(op, status);
	}
	ops_complete_in_order(conn);
}

/*
 * A program that sends and closes wants its messages to arrive (calls/close.c).  But a peer that
 * does not answer must not block it.
 */
void rds_ops_drain(struct rds_sock *sk)
{
	uint64_t now = os_now_ns(), patient = now + SETTLE_SPIN_NS;
	const uint64_t until = now + rds_patience_ns(RDS_PATIENCE_OPERATIONS);

	while (atomic_load(&sk->nops) && now < until) {
		/*
		 * For writes that nobody waits for, only the acknowledgement may tell that they are
		 * over.
		 */
		rds_queue_want_room_all();
		rds_progress_round();
		if (atomic_load_explicit(&rds_conn_work_pending, memory_order_relaxed))
			rds_conn_work_run();
		now = os_now_ns();
		if (now > patient)
			os_poll(NULL, 0, 1);
	}
}

/*
 * Operations end connection by connection, and those that are reported with messages, and messages
 * themselves, when all others have ended: none of this is the order of sending.
 */
void rds_ops_handoff(struct rds_sock *sk)
{
	struct rds_op **reported;
	struct rds_conn *conn;

	if (!atomic_load(&sk->had_ops))
		return;
	rx_lock();
	reported = sk->report_tail;
	for (conn = rds_conn_list; conn; conn = conn->next)
		ops_end_of_sock(conn, sk, RDS_RDMA_DROPPED);
	rds_op_async_handoff(sk);
	rds_notify_order(sk, reported);
	rx_unlock();
}

/*
 * A write whose bytes are a copy needs nothing of the program.  It goes on, as messages of closed
 * sockets do, up to a limit for all of them.
 */
static bool op_may_be_left(const struct rds_op *op)
{
	return op->copy && !op->has_id && !op->with_message && left_bytes + op->total <= LEFT_MAX;
}

static void ops_leave(struct rds_conn *conn, const struct rds_sock *sk)
{
	struct rds_op *op, *next;

	for (op = rds_ops_first(conn); op; op = next) {
		next = op->next;
		if (op->sk != sk)
			continue;
		if (!op_may_be_left(op)) {
			op_complete(op, RDS_RDMA_CANCELED);
			continue;
		}
		op->left = true;
		left_bytes += op->total;
	}
	ops_complete_in_order(conn);
}

void rds_ops_close(struct rds_sock *sk)
{
	struct rds_conn *conn;

	if (!sk->had_ops)
		return;
	for (conn = rds_conn_list; conn; conn = conn->next) /* control is held, as well */
		ops_leave(conn, sk);
	rds_notify_drop(sk);
}

void rds_ops_forget(void)
{
	left_bytes = 0;
}
