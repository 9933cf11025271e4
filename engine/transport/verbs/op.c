/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op.c - RDMA operations that the device carries out.
 *
 * The bytes go through the arena, CHUNK of them for each work request: a copy costs less than to register the program's memory, up to
 * about 1 MiB, and no cache of registrations can go wrong.  What is read is handed up from there as soon as the device says that it has come.  The work requests are chained where a message would be, so they are carried out before
 * whatever is sent later.  All of an operation goes at once, or nothing of it.
 *
 * An operation is over when the device is done with the message behind it, as in the kernel: the last work request that is
 * posted together with one asks for a completion, which stands for all before it (send.c).  Or when the peer has acknowledged that message, which may
 * be heard first: and then before anything that the peer has said later is handed up.
 *
 * On iWARP a write is complete when it is on its way, and what says that it has arrived is a read behind it.  Reads of bytes are left to
 * the engine there: their memory would have to be open to the peer's writes.
 *
 * ep->ops are the work requests, in order: added under tx and rx, taken out under rx.  Once the endpoint is closed the engine hears nothing more of
 * them.
 */
#include "engine/transport/verbs/op.h"

#include <stdlib.h>

#include "engine/copy.h"

#define CHUNK 65536u
#define CHUNKS (RDS_MAX_MSG / CHUNK)

static struct verbs_op *op_at(const struct verbs_ep *ep, uint32_t i)
{
	return &ep->ops[(ep->op_head + i) % VERBS_SQ];
}

/* ---- tx ---- */

struct slice {
	const struct iovec *iov;
	size_t at;
};

/* The next len bytes. */
static void gather(unsigned char *to, struct slice *from, size_t len)
{
	size_t n;

	while (len) {
		n = from->iov->iov_len - from->at;
		if (!n) {
			from->iov++;
			from->at = 0;
			continue;
		}
		if (n > len)
			n = len;
		rds_copy(to, (const char *)from->iov->iov_base + from->at, n);
		to += n;
		from->at += n;
		len -= n;
	}
}

static void add(struct verbs_ep *ep, const struct verbs_op *op)
{
	rx_lock();
	*op_at(ep, ep->op_count) = *op;
	atomic_store_explicit(&ep->op_count, ep->op_count + 1, memory_order_relaxed);
	rx_unlock();
}

static void chunk_out(struct verbs_ep *ep, const struct rds_native *op, uint64_t at, struct verbs_block *b)
{
	uint32_t len = (uint32_t)(op->len - at < CHUNK ? op->len - at : CHUNK);
	struct ibv_send_wr *wr = verbs_chain_op(ep, len);
	struct verbs_op o = {.id = op->id, .seq = op->seq, .wr = ep->wr_posted, .len = len, .at = at, .read = op->read};

	wr->opcode = op->read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	wr->sg_list[0] = (struct ibv_sge){.addr = (uintptr_t)b->mem, .length = len, .lkey = b->lkey};
	wr->wr.rdma.remote_addr = op->at + at;
	wr->wr.rdma.rkey = (uint32_t)op->key;
	if (op->read)
		wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
	o.unmarked = !op->read && ep->dev->caps.probe_reads;
	o.block = *b;
	o.last = at + len == op->len;
	add(ep, &o);
}

static int blocks_get(struct verbs_ep *ep, uint64_t len, struct verbs_block *b, uint32_t n)
{
	uint32_t i;
	int err;

	for (i = 0; i < n; i++, len -= CHUNK) {
		err = verbs_block_get(ep->dev->arena, len < CHUNK ? len : CHUNK, &b[i]);
		if (!err)
			continue;
		while (i--)
			verbs_block_put(ep->dev->arena, &b[i]);
		return err;
	}
	return 0;
}

/* On iWARP there is the mark, which costs more than an answer to what fits a frame together with its message. */
static bool pays(const struct verbs_ep *ep, const struct rds_native *op)
{
	const struct verbs_caps *caps = &ep->dev->caps;

	return op->read ? !caps->sink_needs_write : !caps->probe_reads || op->len > ep->frame;
}

int verbs_post(struct rds_ep *rep, const struct rds_native *op)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;
	uint32_t n = (uint32_t)((op->len + CHUNK - 1) / CHUNK), i;
	struct slice from = {op->local, 0};
	struct verbs_block b[CHUNKS];
	int err;

	if (atomic_load_explicit(&ep->state, memory_order_relaxed) != VERBS_UP)
		return -ENOTCONN;
	if (n > CHUNKS || op->key > UINT32_MAX || !pays(ep, op))
		return -EINVAL;
	if (!ep->ops)
		ep->ops = malloc(VERBS_SQ * sizeof(*ep->ops));
	if (!ep->ops)
		return -ENOMEM;
	if (!verbs_send_room(ep, n) || atomic_load_explicit(&ep->op_count, memory_order_relaxed) + n > VERBS_SQ)
		return -EAGAIN;
	err = blocks_get(ep, op->len, b, n);
	if (err)
		return err;
	for (i = 0; i < n; i++) {
		uint64_t at = (uint64_t)i * CHUNK;

		if (!op->read)
			gather(b[i].mem, &from, op->len - at < CHUNK ? op->len - at : CHUNK);
		chunk_out(ep, op, at, &b[i]);
	}
	return 0;
}

/* Of the peer's window, as a probe: it is answered when all that was written before has arrived. */
void verbs_ops_mark(struct verbs_ep *ep, struct ibv_send_wr *wr)
{
	uint32_t i;

	verbs_keepalive_read(ep, wr);
	rx_lock();
	for (i = ep->op_count; i && op_at(ep, i - 1)->unmarked; i--) {
		op_at(ep, i - 1)->unmarked = false;
		op_at(ep, i - 1)->wr = ep->wr_posted;
	}
	rx_unlock();
}

void verbs_fence(struct rds_ep *rep)
{
	((struct verbs_ep *)rep)->fence_due = true;
}

/* ---- rx ---- */

static void say(struct verbs_ep *ep, const struct verbs_op *o, int err)
{
	const struct rds_transport_up *up = ep->head.t->up;

	if (ep->closed || o->told)
		return;
	if (o->read && !err)
		up->carried(ep->head.conn, o->id, 0, o->at, o->block.mem, o->len);
	else if (err || o->last)
		up->carried(ep->head.conn, o->id, err, 0, NULL, 0);
}

static void take_first(struct verbs_ep *ep, int err)
{
	struct verbs_op o = *op_at(ep, 0);

	ep->op_head++;
	atomic_store_explicit(&ep->op_count, ep->op_count - 1, memory_order_relaxed);
	say(ep, &o, err);
	verbs_block_put(ep->dev->arena, &o.block);
}

/* What was flushed, or found nobody, is the broken endpoint's: the engine says so itself. */
static int outcome(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
		return -EACCES;
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return 0;
	default:
		return -EIO;
	}
}

void verbs_ops_done(struct verbs_ep *ep, uint32_t wr, enum ibv_wc_status status)
{
	bool good = status == IBV_WC_SUCCESS;

	if (status == IBV_WC_WR_FLUSH_ERR)
		return;
	while (ep->op_count && !op_at(ep, 0)->unmarked && (int32_t)(wr - op_at(ep, 0)->wr) >= (good ? 0 : 1))
		take_first(ep, 0);
	if (!good && ep->op_count && op_at(ep, 0)->wr == wr && outcome(status))
		take_first(ep, outcome(status));
}

void verbs_ops_acked(struct verbs_ep *ep, uint64_t ack)
{
	uint32_t i;

	for (i = 0; i < ep->op_count; i++) {
		struct verbs_op *o = op_at(ep, i);

		if (o->seq > ack)
			return;
		if (o->read)
			continue;
		say(ep, o, 0);
		o->told = true;
	}
}

void verbs_ops_free(struct verbs_ep *ep)
{
	uint32_t i;

	for (i = 0; i < ep->op_count; i++)
		verbs_block_put(ep->dev->arena, &op_at(ep, i)->block);
	free(ep->ops);
	ep->ops = NULL;
	atomic_store(&ep->op_count, 0);
}
