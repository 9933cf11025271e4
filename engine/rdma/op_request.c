/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op_request.c - from the control messages of a sendmsg to operations and regions (net/rds/send.c:
 * rds_cmsg_send()).
 *
 * The shape of the vectors and the mixture of kinds have been checked (abi/cmsg.c, second pass).
 * Here each control message is carried out in its turn, as far as that needs no peer.  The first
 * that fails undoes those before it.
 *
 * This file must not know connections.
 */
#include "engine/rdma/rdma.h"

#include <stdlib.h>

#include "engine/abi/revisions.h"
#include "engine/rdma/mr.h"
#include "engine/abi/user_copy.h"

/* per socket: copied writes of its borrowers that wait for a peer */
#define COPIES_MAX ((uint64_t)64 << 20)

struct parse {
	struct rds_sock *sk;
	uint16_t dport;
	struct rds_rdma_send *out;
	bool silent; /* all operations so far are silent */
	bool args, atomic;
};

/*
 * An atomic comes behind the RDMA of the same message, in whatever order the control messages are.
 */
static void request_add_op(struct parse *p, struct rds_op *op, uint64_t token, uint64_t flags)
{
	struct rds_op **link = &p->out->ops;

	op->dport = p->dport;
	op->token = token;
	op->notify = flags & RDS_RDMA_NOTIFY_ME;
	op->fence = flags & RDS_RDMA_FENCE;
	if (!(flags & RDS_RDMA_SILENT))
		p->silent = false;
	if (p->out->ops)
		op->message = p->out->ops->message;
	if (op->kind == RDS_OP_SWAP || op->kind == RDS_OP_ADD)
		while (*link)
			link = &(*link)->message_next;
	op->message_next = *link;
	*link = op;
	atomic_store(&p->sk->had_ops, true);
}

/* ---- RDMA_ARGS ---- */

/*
 * Checks at most the 1 MiB that one message may move: gigabytes must not be faulted in only to be
 * refused.
 */
static int op_check_local(const struct rds_op *op, bool write)
{
	uint64_t budget = RDS_MAX_MSG, n, at;
	unsigned i;
	int err;

	for (i = 0; i < op->nlocal && budget; i++, budget -= n) {
		n = op->local[i].iov_len < budget ? op->local[i].iov_len : budget;
		/* A write to the peer reads our memory, a read from it writes ours. */
		at = (uintptr_t)op->local[i].iov_base;
		err = write ? rds_caller_readable(at, n) : rds_caller_writable(at, n);
		if (err)
			return err;
	}
	return 0;
}

/*
 * A write of another process: its bytes are copied at once, so that the process may end.  With the
 * kernel it may, because the kernel has pinned its pages.
 */
static int op_copy_source(struct rds_op *op)
{
	if (atomic_fetch_add(&op->sk->copied, op->total) + op->total <= COPIES_MAX)
		op->copy = malloc(op->total);
	if (!op->copy) {
		atomic_fetch_sub(&op->sk->copied, op->total);
		return -ENOMEM;
	}
	if (rds_ucopy_from_vec(op->memory, op->copy, op->local, op->nlocal, 0, op->total))
		return -EFAULT;
	op->local[0] = (struct iovec){op->copy, op->total};
	op->nlocal = 1;
	return 0;
}

static int op_fill_rdma(struct rds_op *op, const struct rds_rdma_request *req, uint64_t sum)
{
	bool write = req->flags & RDS_RDMA_READWRITE;
	int err = op_check_local(op, write);

	if (err)
		return err;
	if (sum > req->remote_bytes)
		return -EINVAL;
	if (sum > RDS_MAX_MSG) /* refused before, unless the program has changed it since */
		return -EMSGSIZE;
	if (req->id_addr && rds_caller_writable(req->id_addr, sizeof(uint64_t)))
		return -EFAULT;
	op->kind = write ? RDS_OP_WRITE : RDS_OP_READ;
	op->rkey = rds_cookie_rkey(req->cookie);
	op->remote = req->remote_addr + rds_cookie_offset(req->cookie);
	op->total = sum;
	op->short_notify = req->short_notify;
	op->has_id = req->has_id;
	op->id_addr = req->id_addr;
	return op->memory && write ? op_copy_source(op) : 0;
}

static int request_parse_args(struct parse *p, const struct rds_cmsg_in *c)
{
	unsigned char body[64];
	struct rds_rdma_request req;
	uint64_t vec, nr, sum;
	size_t size = c->size; /* the whole size: it tells the revision */
	struct rds_op *op;
	int err;

	if (p->args || !rds_cmsg_in_copy(c, body, size < sizeof(body) ? size : sizeof(body)))
		return -EINVAL;
	p->args = true;
	err = rds_abi_local_vec_decode(body, size, &vec, &nr);
	if (err)
		return err;
	/* A longer vector is refused before anything is stored. */
	op = rds_op_new(p->sk, RDS_OP_WRITE, nr <= RDS_CMSG_VECTOR_MAX ? (unsigned)nr : 0);
	if (!op)
		return -ENOMEM;
	op->recverr = atomic_load(&p->sk->recverr);
	err = rds_cmsg_vec_read(vec, nr, &sum, op->local);
	if (!err)
		err = rds_abi_rdma_decode(body, size, sum, rds_cookie_plausible, NULL, &req);
	if (!err)
		err = op_fill_rdma(op, &req, sum);
	if (err) {
		rds_op_discard(op);
		return err;
	}
	p->out->used_rkey = op->rkey;
	request_add_op(p, op, req.token, req.flags);
	return 0;
}

/* ---- atomics ---- */

static int request_parse_atomic(struct parse *p, const struct rds_cmsg_in *c)
{
	unsigned char body[sizeof(struct rds_atomic_args)];
	size_t size = c->size < sizeof(body) ? c->size : sizeof(body);
	struct rds_atomic_request req;
	struct rds_op *op;

	if (p->atomic || !rds_cmsg_in_copy(c, body, size) || rds_abi_atomic_decode(c->hdr.cmsg_type, body, size, &req))
		return -EINVAL;
	p->atomic = true;
	rds_abi_note_modern();
	if (req.local_addr & 7 || rds_caller_writable(req.local_addr, sizeof(uint64_t)))
		return -EFAULT;
	op = rds_op_new(p->sk, req.swap ? RDS_OP_SWAP : RDS_OP_ADD, 0);
	if (!op)
		return -ENOMEM;
	op->atomic = req;
	op->rkey = rds_cookie_rkey(req.cookie);
	op->remote = req.remote_addr + rds_cookie_offset(req.cookie);
	op->total = sizeof(uint64_t);
	request_add_op(p, op, req.token, req.flags);
	return 0;
}

/* ---- cookies for the receiver ---- */

static int request_parse_dest(struct parse *p, const struct rds_cmsg_in *c)
{
	uint64_t cookie;
	bool ours;

	if (!rds_cmsg_in_copy(c, &cookie, sizeof(cookie)) || p->out->cookie)
		return -EINVAL;
	rx_lock();
	ours = rds_mr_owned(p->sk, rds_cookie_rkey(cookie));
	rx_unlock();
	if (!ours)
		return -EINVAL;
	p->out->cookie = cookie;
	return 0;
}

static int request_parse_map(struct parse *p, const struct rds_cmsg_in *c)
{
	struct rds_get_mr_args args;
	int err;

	if (!rds_cmsg_in_copy(c, &args, sizeof(args)) || p->out->cookie)
		return -EINVAL;
	err = rds_mr_get_args(p->sk, &args, &p->out->made);
	if (!err)
		p->out->cookie = p->out->made;
	return err;
}

/* ---- reports of the message's own end ---- */

static int request_parse_async(struct parse *p, const struct rds_cmsg_in *c)
{
	struct rds_async_send_args args;

	if (!rds_cmsg_in_copy(c, &args, sizeof(args)) || p->out->async)
		return -EINVAL;
	rds_abi_note_modern();
	p->out->async = rds_op_async_new(p->sk, args.user_token, args.flags & RDS_SEND_NOTIFY_ME);
	return p->out->async ? 0 : -ENOMEM;
}

/* ---- all control messages ---- */

void rds_rdma_undo(struct rds_sock *sk, struct rds_rdma_send *send)
{
	struct rds_op *op, *next;

	for (op = send->ops; op; op = next) {
		next = op->message_next;
		rds_op_discard(op);
	}
	send->ops = NULL;
	if (send->async)
		rds_op_async_discard(send->async);
	send->async = NULL;
	if (send->made)
		rds_mr_free(sk, send->made);
	send->made = send->cookie = 0;
}

int rds_rdma_parse(struct rds_sock *sk, const struct msghdr *msg, uint16_t dport, struct rds_rdma_send *out)
{
	struct parse p = {.sk = sk, .dport = dport, .out = out, .silent = true};
	struct rds_cmsg_in c;
	int ret;

	*out = (struct rds_rdma_send){0};
	rds_cmsg_in_init(&c, msg);
	while ((ret = rds_cmsg_in_next(&c)) > 0) {
		switch (rds_cmsg_kind(c.hdr.cmsg_type)) {
		case RDS_HAS_ARGS:
			ret = request_parse_args(&p, &c);
			break;
		case RDS_HAS_ATOMIC:
			ret = request_parse_atomic(&p, &c);
			break;
		case RDS_HAS_DEST:
			ret = request_parse_dest(&p, &c);
			break;
		case RDS_HAS_MAP:
			ret = request_parse_map(&p, &c);
			break;
		case RDS_HAS_ASYNC:
			ret = request_parse_async(&p, &c);
			break;
		default: /* a zero-copy cookie: transports with RDMA have no zero copy */
			ret = -EINVAL;
		}
		if (ret)
			break;
	}
	/* This mixture has been refused, but the program may have changed it since. */
	if (!ret && out->ops && (out->cookie || out->async))
		ret = -EINVAL;
	out->silent = p.silent && out->ops;
	if (ret)
		rds_rdma_undo(sk, out);
	return ret;
}
