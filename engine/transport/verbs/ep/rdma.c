/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rdma.c - RDMA operations that the device carries out.
 *
 * The bytes go through the arena, CHUNK of them for each work request.  Up to about 1 MiB a copy
 * costs less than registering the program's memory, and no cache of registrations can go wrong.
 * The bytes of a read are handed to the engine as soon as the device reports that they have come.
 * The work requests are chained where a message would be, so they are carried out before
 * everything that is chained later.  Either all work requests of an operation are chained or none.
 *
 * An operation is over when the device is done with the message behind it, as in the kernel: an
 * operation that succeeded must not lose its message when the connection breaks.  So an operation
 * can *end* once that message is in the chain: the work request that is posted last then asks for
 * a completion, which stands for all before it.  Or it ends when the peer has acknowledged that
 * message.  The acknowledgement may come first; then the operation is reported before anything is
 * handed up that the peer has sent later.  No program waits for the end of a *quiet* write: it
 * asks for no completion of its own, any later completion will do.
 *
 * A held message (batch_when.c) does not stop an operation that comes after it: when the message
 * is delivered, the operation may as well have been carried out.  Small operations wait in the
 * chain for the held messages and go with them in one post.  The message of a large operation is
 * not held, or the processor at the other side would be idle meanwhile.
 *
 * Some devices take no reads behind a fence that is not complete (caps.fence_bars_reads): then the
 * engine carries out the read.
 *
 * On iWARP a write completes when it is on its way.  Its arrival is shown by a read behind it, or
 * by the acknowledgement.  Operations that read bytes are left to the engine there: the memory
 * they fill would have to be open to the peer's writes.
 *
 * ep->ops are the work requests, in order: added under tx and rx, taken out under rx.  op_next,
 * op_behind and op_open count them since the endpoint began (tx): the next one, the first whose
 * message is not in the chain, the first that may not have ended.  Once the endpoint is closed the
 * engine hears nothing more of them.
 */
#include "engine/transport/verbs/ep/post_list.h"
#include "engine/transport/verbs/ep/rdma.h"

#include <stdlib.h>

#include "engine/sys/cpu.h"

#define CHUNK 65536u
/*
 * Quiet writes that only a read can end (caps.probe_reads) keep their blocks until then: after so
 * many bytes such a read is posted.
 */
#define QUIET_BYTES (256u << 10)
#define LIGHT 32768u /* a shorter operation may wait for its message, and that message for others */
#define CHUNKS (RDS_MAX_MSG / CHUNK)

static struct verbs_rdma_op *dev_op_at(const struct verbs_ep *ep, uint32_t i)
{
	return &ep->ops[(ep->op_head + i) % VERBS_SQ];
}

/* ---- tx ---- */

int verbs_ep_mr_register(struct rds_ep *rep, void *mem, size_t len, struct rds_device_mr **out)
{
	return verbs_mr_register(((struct verbs_ep *)rep)->dev, mem, len, out);
}

bool verbs_ep_mr_key(struct rds_ep *rep, const struct rds_device_mr *dev_mr, struct rds_device_key *far)
{
	return verbs_mr_key(((struct verbs_ep *)rep)->dev, dev_mr, far);
}

struct slice {
	const struct iovec *iov;
	size_t at;
};

/* Copies the next len bytes. */
static void slice_gather(unsigned char *to, struct slice *from, size_t len)
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

static void dev_op_add(struct verbs_ep *ep, const struct verbs_rdma_op *op)
{
	rx_lock();
	ep->ops[ep->op_next++ % VERBS_SQ] = *op;
	atomic_store_explicit(&ep->op_count, ep->op_count + 1, memory_order_relaxed);
	rx_unlock();
}

static void dev_op_chunk_out(struct verbs_ep *ep, const struct rds_device_op *op, uint64_t at, struct verbs_block *b)
{
	uint32_t len = (uint32_t)(op->len - at < CHUNK ? op->len - at : CHUNK);
	struct ibv_send_wr *wr = verbs_wr_next(ep, len, false);
	struct verbs_rdma_op o = {.id = op->id,
				  .seq = op->seq,
				  .wr = ep->wr_posted,
				  .len = len,
				  .at = at,
				  .read = op->read,
				  .quiet = op->quiet};

	wr->opcode = op->read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	wr->sg_list[0] = (struct ibv_sge){.addr = (uintptr_t)b->mem, .length = len, .lkey = b->lkey};
	wr->wr.rdma.remote_addr = op->at + at;
	wr->wr.rdma.rkey = (uint32_t)op->key;
	if (op->read)
		wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
	o.block = *b;
	o.last = at + len == op->len;
	o.end = ep->wr_posted;
	o.ended = op->read && !o.last; /* its bytes can be handed up as soon as they have come */
	dev_op_add(ep, &o);
}

static int dev_op_blocks_get(struct verbs_ep *ep, uint64_t len, struct verbs_block *b, uint32_t n)
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

/* True: a read must not go behind the requests that are chained or in flight. */
static bool dev_op_read_barred(struct verbs_ep *ep)
{
	if (likely(!ep->dev->caps.fence_bars_reads))
		return false;
	verbs_wr_fence_update(ep, atomic_load_explicit(&ep->wr_done, memory_order_acquire));
	return ep->fenced || ep->fence_due;
}

int verbs_ep_post(struct rds_ep *rep, const struct rds_device_op *op)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;
	uint32_t n = (uint32_t)((op->len + CHUNK - 1) / CHUNK), i;
	struct slice from = {op->local, 0};
	struct verbs_block b[CHUNKS];
	int err;

	if (atomic_load_explicit(&ep->state, memory_order_relaxed) != VERBS_UP)
		return -ENOTCONN;
	if (n > CHUNKS || op->key > UINT32_MAX ||
	    (op->read && (ep->dev->caps.sink_needs_write || !ep->dev->caps.rd_atomic)))
		return -EINVAL;
	if (op->read && dev_op_read_barred(ep))
		return -EAGAIN;
	if (!ep->ops)
		ep->ops = malloc(VERBS_SQ * sizeof(*ep->ops));
	if (!ep->ops)
		return -ENOMEM;
	if (!verbs_send_room(ep, n) || atomic_load_explicit(&ep->op_count, memory_order_relaxed) + n > VERBS_SQ)
		return -EAGAIN;
	err = dev_op_blocks_get(ep, op->len, b, n);
	if (err)
		return err;
	for (i = 0; i < n; i++) {
		uint64_t at = (uint64_t)i * CHUNK;

		if (!op->read)
			slice_gather(b[i].mem, &from, op->len - at < CHUNK ? op->len - at : CHUNK);
		dev_op_chunk_out(ep, op, at, &b[i]);
	}
	ep->ops_due = true;
	ep->end_due |= !op->seq;
	ep->heavy |= op->len >= LIGHT;
	return 0;
}

/*
 * A quiet write asks for no completion of its own: a completion of a later message will do.  Where
 * that proves nothing, the acknowledgement ends it, or the read that ends other operations (rx).
 */
static void dev_op_end_quiet(struct verbs_ep *ep, struct verbs_rdma_op *o)
{
	o->end = ep->wr_posted;
	o->ended = !ep->dev->caps.probe_reads;
	ep->quiet_bytes += o->len;
	if (!o->ended && ep->quiet_bytes >= QUIET_BYTES)
		ep->end_due = true;
}

void verbs_rdma_behind(struct verbs_ep *ep, uint64_t seq)
{
	rx_lock();
	for (; ep->op_behind != ep->op_next; ep->op_behind++) {
		struct verbs_rdma_op *o = &ep->ops[ep->op_behind % VERBS_SQ];

		if (o->seq > seq)
			break;
		if (o->quiet)
			dev_op_end_quiet(ep, o);
		else
			ep->end_due = true;
	}
	if ((int32_t)(ep->op_open - ep->op_head) < 0) /* quiet writes that are over have left ops */
		ep->op_open = ep->op_head;
	rx_unlock();
	ep->ops_due = ep->op_behind != ep->op_next;
}

/*
 * Asks for the completion that shows that the operations are over: of the last work request in the
 * chain; or, where a write completes before it has arrived, of a read behind it.  That read is a
 * probe of the peer's window, and is answered when everything written before it has arrived.
 */
void verbs_rdma_end(struct verbs_ep *ep)
{
	verbs_rdma_behind(ep, 0);
	ep->end_due = false;
	ep->quiet_bytes = 0;
	if (ep->dev->caps.probe_reads) {
		verbs_keepalive_fill_read(ep, verbs_wr_next(ep, VERBS_PROBE, true));
	} else {
		ep->wr[ep->nwr_listed - 1].send_flags |= IBV_SEND_SIGNALED;
		ep->wr_unsignaled = ep->bytes_unsignaled = 0;
	}
	rx_lock();
	if ((int32_t)(ep->op_open - ep->op_head) < 0)
		ep->op_open = ep->op_head;
	for (; ep->op_open != ep->op_behind; ep->op_open++) {
		struct verbs_rdma_op *o = &ep->ops[ep->op_open % VERBS_SQ];

		if (!o->ended) {
			o->end = ep->wr_posted;
			o->end_read = atomic_load_explicit(&ep->reads, memory_order_relaxed);
		}
		o->ended = true;
	}
	rx_unlock();
}

void verbs_ep_fence(struct rds_ep *rep)
{
	((struct verbs_ep *)rep)->fence_due = true;
}

/* ---- rx ---- */

static void dev_op_report(struct verbs_ep *ep, const struct verbs_rdma_op *o, int err)
{
	const struct rds_transport_up *up = ep->head.t->up;

	if (ep->closed || o->reported)
		return;
	if (o->read && !err)
		up->op_done(ep->head.conn, o->id, 0, o->at, o->block.mem, o->len);
	else if (err || o->last)
		up->op_done(ep->head.conn, o->id, err, 0, NULL, 0);
}

static void dev_op_take_first(struct verbs_ep *ep)
{
	struct verbs_rdma_op o = *dev_op_at(ep, 0);

	ep->op_head++;
	atomic_store_explicit(&ep->op_count, ep->op_count - 1, memory_order_relaxed);
	dev_op_report(ep, &o, 0);
	verbs_block_put(ep->dev->arena, &o.block);
}

/*
 * 0: the request was flushed, or the peer or the connection is gone: the endpoint is broken, and
 * the engine itself reports its operations.
 */
static int dev_op_errno(const struct verbs_ep *ep, enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_LOC_QP_OP_ERR: /* siw: TCP did not accept the data */
		return ep->dev->caps.probe_reads ? 0 : -EIO;
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

/* That requests behind the read have completed does not mean that the read has been answered. */
static bool dev_op_has_ended(const struct verbs_ep *ep, const struct verbs_rdma_op *o, uint32_t wr)
{
	if (!o->ended || (int32_t)(wr - o->end) < 0)
		return false;
	return !ep->dev->caps.probe_reads || o->reported || (int32_t)(ep->reads_done - o->end_read) >= 0;
}

static void dev_op_take_ended(struct verbs_ep *ep, uint32_t wr)
{
	while (ep->op_count && dev_op_has_ended(ep, dev_op_at(ep, 0), wr))
		dev_op_take_first(ep);
}

void verbs_rdma_completed(struct verbs_ep *ep, uint32_t wr, enum ibv_wc_status status)
{
	uint32_t i;

	if (status == IBV_WC_WR_FLUSH_ERR)
		return;
	dev_op_take_ended(ep, status == IBV_WC_SUCCESS ? ep->wr_good : wr - 1);
	if (status == IBV_WC_SUCCESS || !dev_op_errno(ep, status))
		return;
	for (i = 0; i < ep->op_count; i++)
		if (dev_op_at(ep, i)->wr == wr) {
			dev_op_report(ep, dev_op_at(ep, i), dev_op_errno(ep, status));
			dev_op_at(ep, i)->reported = true;
		}
}

void verbs_rdma_acked(struct verbs_ep *ep, uint64_t ack)
{
	uint32_t i;

	for (i = 0; i < ep->op_count; i++) {
		struct verbs_rdma_op *o = dev_op_at(ep, i);

		if (o->seq > ack)
			break;
		if (o->read || !o->seq)
			continue;
		dev_op_report(ep, o, 0);
		o->reported = true;
		o->ended |= o->quiet;
	}
	/* not wr_done: flushed requests count as done there, but were not carried out */
	dev_op_take_ended(ep, ep->wr_good);
}

void verbs_rdma_free(struct verbs_ep *ep)
{
	uint32_t i;

	for (i = 0; i < ep->op_count; i++)
		verbs_block_put(ep->dev->arena, &dev_op_at(ep, i)->block);
	free(ep->ops);
	ep->ops = NULL;
	atomic_store(&ep->op_count, 0);
}
