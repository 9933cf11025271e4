/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op_serve.c - the target's side of operations (rx held): pieces are carried out as they arrive, by
 * the thread that receives them.
 *
 * An error of one operation costs that operation and its message, which is not delivered (on a
 * device the queue pair would be in error before it), and nothing else.  Memory for the answer is
 * allocated before anything is done: so an operation whose piece has to be offered again has not
 * been carried out.
 *
 * This file must not know which peer asks, nor how pieces travel.
 */
#include "engine/rdma/op_device.h"

#include <errno.h>
#include <stdlib.h>

#include "engine/sys/uaccess.h"
#include "engine/abi/user_copy.h"

struct rds_queue_item *rds_op_answer_new(const struct rds_hdr *to, size_t data)
{
	/* not calloc(): glibc's does not use what free() has just kept for this thread */
	struct rds_queue_item *q = malloc(sizeof(*q) + RDS_OP_HDR + data);

	if (!q)
		return NULL;
	*q = (struct rds_queue_item){0};
	q->hdr.flags = q->u.flags = RDS_FLAG_OP;
	q->hdr.len = q->u.len = (uint32_t)(RDS_OP_HDR + data);
	q->hdr.sport = q->u.sport = to->dport;
	q->hdr.dport = q->u.dport = to->sport;
	q->u.once = true;
	return q;
}

void rds_op_answer_add(struct rds_conn *conn, struct rds_queue_item *q)
{
	*conn->rdma->answers_tail = q;
	conn->rdma->answers_tail = &q->next;
	rds_queue_answer_add(conn, q);
	atomic_fetch_add(&conn->nanswers, 1);
	rds_conn_work_add(conn);
}

static void serve_send_result(struct rds_conn *conn, struct rds_queue_item *q, const struct rds_rx *rx,
			      const struct rds_wire_op_hdr *asked, int status, uint64_t value)
{
	struct rds_wire_op_hdr h = {.kind = RDS_OP_RESULT, .status = (uint8_t)status, .id = asked->id, .value = value};

	if (status) {
		conn->rdma->void_op = asked->id;
		conn->seldom->void_message = asked->message;
		q->u.refused = rx->hdr.seq;
	}
	rds_wire_op_encode(&h, q->data);
	rds_op_answer_add(conn, q);
}

/* An answer of ours that the peer has not acknowledged. */
static void refused_limit(const struct rds_queue_unacked *answer, uint64_t *acked)
{
	if ((answer->flags & RDS_FLAG_OP) && answer->refused && answer->refused <= *acked)
		*acked = answer->refused - 1;
}

/*
 * Messages may come until the endpoint is closed.  So this is asked once more then (closed), and
 * what was found at first holds for these, too.
 */
void rds_op_refusals_note(struct rds_conn *conn, bool closed)
{
	const uint64_t all = atomic_load_explicit(&conn->next_rx, memory_order_relaxed) - 1;
	struct rds_conn_seldom *s = conn->seldom;
	const struct rds_queue_item *q;
	uint64_t acked = all;
	unsigned i;

	if (!s) /* there was no operation */
		return;
	if (closed ? s->refused.all : s->refused.all == all)
		acked = s->refused.acked;
	for (i = 0; i < conn->count; i++)
		refused_limit(rds_queue_unacked_at(conn, i), &acked);
	for (q = conn->queue; q; q = q->next)
		refused_limit(&q->u, &acked);
	for (q = conn->rdma ? conn->rdma->answers : NULL; q; q = q->next)
		refused_limit(&q->u, &acked);
	if (acked < all)
		s->refused = (struct rds_received){.acked = acked, .all = all};
	else
		s->refused = (struct rds_received){0};
}

/*
 * The region of the request, which also tells whose memory it is in, and the address there.  NULL:
 * there is no such region.
 */
static struct rds_mr *serve_find_region(const struct rds_wire_op_hdr *h, uint64_t len, uint64_t *at)
{
	struct rds_mr *mr = rds_mr_find(h->rkey);

	return mr && rds_mr_span(mr, h->offset, len, at) ? mr : NULL;
}

static enum rds_rx_verdict serve_write(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx,
				       const struct rds_wire_op_hdr *h)
{
	size_t len = rx->hdr.len - RDS_OP_HDR;
	struct rds_queue_item *q;
	struct rds_mr *mr;
	uint64_t at;
	bool good;

	q = rds_op_answer_new(&rx->hdr, 0);
	if (!q)
		return RDS_RX_LATER;
	mr = serve_find_region(h, len, &at);
	good = mr && !rds_ucopy_to(mr->memory, at, (const char *)rx->data + RDS_OP_HDR, len);
	if (good) {
		RDS_STAT_ADD_RX(recv_rdma_bytes, len);
		rds_mr_served(conn, ep, mr, len, h->last);
	}
	if (good && !h->last)
		free(q);
	else
		serve_send_result(conn, q, rx, h, good ? RDS_RDMA_SUCCESS : RDS_RDMA_REMOTE_ERROR, 0);
	return RDS_RX_DONE;
}

/*
 * Into another process's region: the endpoint copies to here, and the kernel copies from here to
 * there.
 */
static int serve_fetch_foreign(struct rds_ep *ep, const struct rds_mr *mr, uint64_t at, size_t len,
			       const struct rds_fetch_src *from)
{
	void *bytes = malloc(len);
	int n = bytes ? rds_transport_ep_ops(ep)->fetch(ep, bytes, len, from) : -ENOMEM;

	if (!n && rds_ucopy_to(mr->memory, at, bytes, len))
		n = -ENXIO;
	free(bytes);
	return n;
}

/*
 * RDS_RDMA_*.  The status tells whose memory could not be reached; the endpoint knows only that
 * some could not.
 */
static int serve_fetch_bytes(struct rds_ep *ep, const struct rds_rx *rx, const struct rds_wire_op_hdr *h)
{
	const struct rds_transport_ops *ops = rds_transport_ep_ops(ep);
	struct rds_fetch_src from; /* a kilobyte: not cleared first */
	const struct rds_mr *mr;
	uint64_t at;
	int n = rds_wire_op_vec_decode((const char *)rx->data + RDS_OP_HDR, rx->hdr.len - RDS_OP_HDR, h->len, from.vec);

	if (n < 0 || !ops->fetch)
		return RDS_RDMA_OTHER_ERROR;
	from.word_at = h->compare;
	from.word = h->value;
	from.n = (unsigned)n;
	mr = serve_find_region(h, h->len, &at);
	if (!mr)
		return RDS_RDMA_REMOTE_ERROR;
	if (mr->memory)
		n = serve_fetch_foreign(ep, mr, at, h->len, &from);
	else
		n = ops->fetch(ep, (void *)(uintptr_t)at, h->len, &from);
	if (!n)
		RDS_STAT_ADD_RX(recv_rdma_bytes, h->len);
	if (n == -ENXIO)
		return RDS_RDMA_REMOTE_ERROR;
	if (n != -EFAULT)
		return n ? RDS_RDMA_DROPPED : RDS_RDMA_SUCCESS;
	if (mr->memory)
		return RDS_RDMA_OTHER_ERROR;
	rds_user_forget();
	return rds_user_writable((void *)(uintptr_t)at, h->len) ? RDS_RDMA_REMOTE_ERROR : RDS_RDMA_OTHER_ERROR;
}

static enum rds_rx_verdict serve_fetch(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx,
				       const struct rds_wire_op_hdr *h)
{
	struct rds_queue_item *q = rds_op_answer_new(&rx->hdr, 0);

	if (!q)
		return RDS_RX_LATER;
	serve_send_result(conn, q, rx, h, serve_fetch_bytes(ep, rx, h), 0);
	return RDS_RX_DONE;
}

static void answers_free(struct rds_queue_item *q)
{
	struct rds_queue_item *next;

	for (; q; q = next) {
		next = q->next;
		free(q);
	}
}

/* Answers for the whole read, with headers filled in.  NULL: no memory. */
static struct rds_queue_item *answers_for_read(const struct rds_rx *rx, const struct rds_wire_op_hdr *asked)
{
	struct rds_queue_item *list = NULL, **tail = &list;
	uint64_t at, len;

	for (at = 0; at < asked->len; at += len) {
		struct rds_wire_op_hdr h = {.kind = RDS_OP_DATA, .id = asked->id, .offset = at};

		len = asked->len - at < RDS_OP_PIECE ? asked->len - at : RDS_OP_PIECE;
		*tail = rds_op_answer_new(&rx->hdr, len);
		if (!*tail) {
			answers_free(list);
			return NULL;
		}
		rds_wire_op_encode(&h, (*tail)->data);
		tail = &(*tail)->next;
	}
	return list;
}

/* Reads the memory as it is now: so the message behind the read need not wait, fenced or not. */
static bool answers_fill(struct rds_queue_item *list, struct rds_foreign_memory *m, uint64_t from)
{
	struct rds_queue_item *q;

	for (q = list; q; q = q->next) {
		size_t len = q->hdr.len - RDS_OP_HDR;

		if (rds_ucopy_from(m, q->data + RDS_OP_HDR, from, len))
			return false;
		from += len;
	}
	return true;
}

static enum rds_rx_verdict serve_read(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx,
				      const struct rds_wire_op_hdr *h)
{
	struct rds_queue_item *q = rds_op_answer_new(&rx->hdr, 0), *list = NULL, *next;
	uint64_t at = 0;
	struct rds_mr *mr = serve_find_region(h, h->len, &at);

	if (q && mr)
		list = answers_for_read(rx, h);
	if (!q || (mr && !list)) {
		free(q);
		return RDS_RX_LATER;
	}
	if (!mr || !answers_fill(list, mr->memory, at)) {
		answers_free(list);
		serve_send_result(conn, q, rx, h, RDS_RDMA_REMOTE_ERROR, 0);
		return RDS_RX_DONE;
	}
	free(q);
	rds_mr_served(conn, ep, mr, h->len, true);
	for (; list; list = next) {
		next = list->next;
		list->next = NULL;
		rds_op_answer_add(conn, list);
	}
	return RDS_RX_DONE;
}

/* A set bit of the mask is the highest bit of a field: no carry leaves the field. */
static uint64_t atomic_add_fields(uint64_t a, uint64_t b, uint64_t ends)
{
	uint64_t low = ~ends, sum = (a & low) + (b & low);

	/*
	 * Below these highest bits a sum cannot overflow into the next field.  The highest bits
	 * themselves are added without carry.
	 */
	return sum ^ ((a ^ b) & ends);
}

uint64_t rds_atomic_value(const struct rds_atomic_request *req, uint64_t old)
{
	if (!req->swap)
		return atomic_add_fields(old, req->value, req->value_mask);
	if ((old ^ req->compare) & req->compare_mask)
		return old;
	return (old & ~req->value_mask) | (req->value & req->value_mask);
}

static int atomic_run(struct rds_foreign_memory *m, const struct rds_atomic_request *req, uint64_t at, uint64_t *old)
{
	uint64_t now;
	int err = rds_ucopy_from(m, old, at, sizeof(*old));

	if (err)
		return err;
	now = rds_atomic_value(req, *old);
	return rds_ucopy_to(m, at, &now, sizeof(now));
}

/*
 * Compare and swap, fetch and add, with masks (rds-semantics 9.4), on every transport.  Atomics are
 * atomic with respect to each other, as those of a device are (IBV_ATOMIC_HCA): all atomics of a
 * process run under its receive lock.  The program's own instructions are not held off.
 *
 * An address that is no multiple of eight fails: devices refuse it as well.  The sender's RDS never
 * checks it.
 */
static enum rds_rx_verdict serve_atomic(struct rds_conn *conn, const struct rds_rx *rx, const struct rds_wire_op_hdr *h)
{
	struct rds_atomic_request req = {.swap = h->kind == RDS_OP_SWAP,
					 .compare = h->compare,
					 .compare_mask = h->compare_mask,
					 .value = h->value,
					 .value_mask = h->value_mask};
	struct rds_queue_item *q = rds_op_answer_new(&rx->hdr, 0);
	const struct rds_mr *mr;
	uint64_t at, old = 0;
	bool good;

	if (!q)
		return RDS_RX_LATER;
	mr = serve_find_region(h, sizeof(old), &at);
	good = mr && !(at % sizeof(old)) && !atomic_run(mr->memory, &req, at, &old);
	serve_send_result(conn, q, rx, h, good ? RDS_RDMA_SUCCESS : RDS_RDMA_REMOTE_ERROR, old);
	return RDS_RX_DONE;
}

/*
 * An earlier operation of the same message has failed: on a device the queue pair would be in error
 * by now.
 */
static enum rds_rx_verdict serve_voided(struct rds_conn *conn, const struct rds_rx *rx, const struct rds_wire_op_hdr *h)
{
	struct rds_queue_item *q;

	if (h->id == conn->rdma->void_op || (h->kind == RDS_OP_WRITE && !h->last))
		return RDS_RX_DONE;
	q = rds_op_answer_new(&rx->hdr, 0);
	if (!q)
		return RDS_RX_LATER;
	serve_send_result(conn, q, rx, h, RDS_RDMA_DROPPED, 0);
	return RDS_RX_DONE;
}

/*
 * Is the memory another process's, which only the helper reaches?  Then the piece waits for the
 * helper.
 */
static bool serve_out_of_reach(struct rds_conn *conn, const struct rds_wire_op_hdr *h)
{
	const struct rds_mr *mr;

	if (!rds_foreign_memory_any())
		return false;
	if (!rds_wire_op_is_request(h->kind))
		return !rds_foreign_memory_at_hand(rds_op_memory(conn, h->id));
	mr = rds_mr_find(h->rkey);
	return mr && !rds_foreign_memory_at_hand(mr->memory);
}

enum rds_rx_verdict rds_op_recv_piece(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	struct rds_wire_op_hdr h;

	if (rds_wire_op_decode(rx->data, rx->hdr.len, &h)) {
		rds_warn_once("a peer has sent an invalid operation: ignored (another version of this library?)");
		return RDS_RX_DONE;
	}
	if ((rds_wire_op_is_request(h.kind) || h.kind == RDS_OP_REVOKED) &&
	    atomic_load(&conn->answer_bytes) > RDS_ANSWERS_MAX) {
		rds_conn_work_add(conn);
		return RDS_RX_LATER;
	}
	if (unlikely(!rds_ops_prepare_rx(conn) || serve_out_of_reach(conn, &h)))
		return RDS_RX_LATER;
	if (rds_wire_op_is_request(h.kind) && h.message == conn->seldom->void_message && h.message)
		return serve_voided(conn, rx, &h);
	switch (h.kind) {
	case RDS_OP_WRITE:
		return serve_write(conn, ep, rx, &h);
	case RDS_OP_FETCH:
		return serve_fetch(conn, ep, rx, &h);
	case RDS_OP_READ:
		return serve_read(conn, ep, rx, &h);
	case RDS_OP_SWAP:
	case RDS_OP_ADD:
		return serve_atomic(conn, rx, &h);
	case RDS_OP_ADVERTISED:
		rds_mr_remote_advertised(conn, &h);
		return RDS_RX_DONE;
	case RDS_OP_REVOKED:
		rds_mr_remote_revoked(conn, &h);
		return RDS_RX_DONE;
	case RDS_OP_REVOKE_ACK:
		rds_mr_revoke_acked(conn, &h);
		return RDS_RX_DONE;
	default:
		rds_op_recv_answer(conn, &h, (const char *)rx->data + RDS_OP_HDR, rx->hdr.len - RDS_OP_HDR);
		return RDS_RX_DONE;
	}
}
