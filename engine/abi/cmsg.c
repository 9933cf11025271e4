/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cmsg.c - control messages in and out.
 *
 * The buffer belongs to the program, and another thread of the program may be writing to it.  So
 * the walk copies each header once, uses only the copy, and gives the body's address and size
 * within the buffer.  A body is copied before it is examined.  The walk ends because every step
 * advances by at least one header.
 *
 * Must not know sockets or transports.  The caller chooses the function that fits what the
 * transport can do.
 */
#include "engine/abi/cmsg.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "engine/abi/revisions.h"
#include "engine/abi/foreign_memory.h"
#include "engine/sys/uaccess.h"
#include "engine/wire/header.h"
#include "rds_abi.h"

#define HDR sizeof(struct cmsghdr)

_Static_assert(CMSG_LEN(0) == HDR, "data follow the header without a gap");

/* ---- the walk ---- */

void rds_cmsg_in_init(struct rds_cmsg_in *c, const struct msghdr *msg)
{
	c->at = msg->msg_control;
	c->end = c->at ? c->at + msg->msg_controllen : NULL;
}

static int cmsg_in_step(struct rds_cmsg_in *c)
{
	size_t left = (size_t)(c->end - c->at), step;

	if (!c->at || left < HDR)
		return 0;
	memcpy(&c->hdr, c->at, HDR);
	/* Keeps the compiler from reading the program's memory again instead of the copy. */
	__asm__ volatile("" : "+m"(c->hdr) : : "memory");
	if (c->hdr.cmsg_len < HDR || c->hdr.cmsg_len > left)
		return -EINVAL;
	c->body = c->at + HDR;
	c->size = c->hdr.cmsg_len - HDR;
	step = CMSG_ALIGN(c->hdr.cmsg_len);
	c->at = step < left ? c->at + step : c->end;
	return 1;
}

int rds_cmsg_in_next(struct rds_cmsg_in *c)
{
	int ret;

	do
		ret = cmsg_in_step(c);
	while (ret > 0 && !rds_abi_level_is_rds(c->hdr.cmsg_level));
	return ret;
}

bool rds_cmsg_in_copy(const struct rds_cmsg_in *c, void *to, size_t n)
{
	if (c->size < n)
		return false;
	memcpy(to, c->body, n);
	__asm__ volatile("" : : "r"(to) : "memory");
	return true;
}

unsigned rds_cmsg_kind(int type)
{
	switch (type) {
	case RDS_CMSG_RDMA_ARGS:
		return RDS_HAS_ARGS;
	case RDS_CMSG_RDMA_DEST:
		return RDS_HAS_DEST;
	case RDS_CMSG_RDMA_MAP:
		return RDS_HAS_MAP;
	case RDS_CMSG_ATOMIC_FADD:
	case RDS_CMSG_ATOMIC_CSWP:
	case RDS_CMSG_MASKED_ATOMIC_FADD:
	case RDS_CMSG_MASKED_ATOMIC_CSWP:
		return RDS_HAS_ATOMIC;
	case RDS_CMSG_ZCOPY_COOKIE:
		return RDS_HAS_ZCOPY;
	case RDS_CMSG_ASYNC_SEND:
		return RDS_HAS_ASYNC;
	default:
		return 0;
	}
}

/* ---- local vectors ---- */

/* One element: not empty, not wrapping, at most 4 GiB - 1. */
static bool iovec_is_good(const struct rds_iovec *v)
{
	return v->addr + v->bytes > v->addr && v->bytes <= UINT_MAX;
}

int rds_cmsg_vec_read(uint64_t vec, uint64_t nr, uint64_t *sum, struct iovec *out)
{
	struct rds_iovec v;

	*sum = 0;
	if (!nr)
		return -EINVAL;
	if (nr > RDS_CMSG_VECTOR_MAX)
		return -EMSGSIZE;
	/* In the memory of another process the copies below find what is not mapped. */
	if (!rds_caller && rds_user_readable((const void *)(uintptr_t)vec, nr * sizeof(v)))
		return -EFAULT;
	for (uint64_t i = 0; i < nr; i++) {
		if (rds_caller_fetch(&v, vec + i * sizeof(v), sizeof(v)))
			return -EFAULT;
		__asm__ volatile("" : "+m"(v) : : "memory");
		if (!iovec_is_good(&v))
			return -EINVAL;
		*sum += v.bytes; /* at most 1024 * 4 GiB */
		if (out)
			out[i] = (struct iovec){(void *)(uintptr_t)v.addr, v.bytes};
	}
	return 0;
}

/*
 * The remote length is word 2.  In revisions a0 and a1 (2007-8) word 2 is a key, which is far above
 * the longest message.  Then the sum of the local bytes shows the order of the words.
 */
static uint64_t args_remote_bytes(const struct rds_rdma_args *args)
{
	struct rds_rdma_request req;
	uint64_t sum;

	if (args->remote_vec.bytes <= RDS_MAX_MSG ||
	    rds_cmsg_vec_read(args->local_vec_addr, args->nr_local, &sum, NULL) ||
	    rds_abi_rdma_decode(args, sizeof(*args), sum, rds_cookie_plausible, NULL, &req))
		return args->remote_vec.bytes;
	return req.remote_bytes;
}

/* ---- first pass: lengths, before EMSGSIZE is decided (rds_rdma_bytes()) ---- */

int rds_cmsg_scan(const struct msghdr *msg, struct rds_cmsg_summary *out)
{
	struct rds_rdma_args args;
	struct rds_cmsg_in c;
	int ret;

	memset(out, 0, sizeof(*out));
	rds_cmsg_in_init(&c, msg);
	while ((ret = rds_cmsg_in_next(&c)) > 0) {
		out->level = c.hdr.cmsg_level;
		if (c.hdr.cmsg_type != RDS_CMSG_RDMA_ARGS)
			continue;
		if (!rds_cmsg_in_copy(&c, &args, sizeof(args)))
			return -EINVAL;
		if (__builtin_add_overflow(out->rdma_bytes, args_remote_bytes(&args), &out->rdma_bytes))
			out->rdma_bytes = UINT64_MAX;
	}
	return ret;
}

/* ---- second pass: types, vectors, mixtures, before the bytes are copied (rds_rm_size()) ---- */

static int cmsg_check_args(const struct rds_cmsg_in *c)
{
	struct rds_rdma_args args;
	uint64_t sum;

	if (!rds_cmsg_in_copy(c, &args, sizeof(args)))
		return -EINVAL;
	return rds_cmsg_vec_read(args.local_vec_addr, args.nr_local, &sum, NULL);
}

int rds_cmsg_check(const struct msghdr *msg, int flags, size_t payload, struct rds_cmsg_summary *out)
{
	const unsigned ops = RDS_HAS_ARGS | RDS_HAS_ATOMIC;
	struct rds_cmsg_in c;
	int ret;

	(void)payload; /* an empty zero-copy send is refused where zero copy is done, not here */
	out->present = 0;
	rds_cmsg_in_init(&c, msg);
	while ((ret = rds_cmsg_in_next(&c)) > 0) {
		unsigned kind = rds_cmsg_kind(c.hdr.cmsg_type);

		if (!kind)
			return -EINVAL;
		out->present |= kind;
		if (kind == RDS_HAS_ARGS && (ret = cmsg_check_args(&c)) < 0)
			return ret;
		if (kind == RDS_HAS_ZCOPY)
			if (!rds_cmsg_in_copy(&c, &out->zcopy_cookie, sizeof(out->zcopy_cookie)))
				return -EINVAL;
	}
	if (ret < 0)
		return ret;
	if ((flags & MSG_ZEROCOPY) && !(out->present & RDS_HAS_ZCOPY))
		return -EINVAL;
	return (out->present & ops) && (out->present & ~ops) ? -EINVAL : 0;
}

/* ---- third pass: execution, on a transport without RDMA (rds_cmsg_send()) ---- */

/*
 * Would the kernel be able to pin the memory?  Only the first 1 MiB is tried, the most
 * that one message may move: there is no reason to fault in gigabytes only to refuse them.
 */
int rds_cmsg_vec_usable(uint64_t vec, uint64_t nr, bool write)
{
	uint64_t budget = RDS_MAX_MSG;
	struct rds_iovec v;

	for (uint64_t i = 0; i < nr && budget; i++) {
		uint64_t n;
		int ret;

		if (rds_caller_fetch(&v, vec + i * sizeof(v), sizeof(v)))
			return -EFAULT;
		__asm__ volatile("" : "+m"(v) : : "memory");
		n = v.bytes < budget ? v.bytes : budget;
		/* A write to the peer reads local memory, a read from the peer writes it. */
		ret = write ? rds_caller_readable(v.addr, n) : rds_caller_writable(v.addr, n);
		if (ret)
			return ret;
		budget -= n;
	}
	return 0;
}

static int cmsg_refuse_args(const struct rds_cmsg_in *c, bool *seen)
{
	struct rds_rdma_args args;
	uint64_t sum;
	int ret;

	if (!rds_cmsg_in_copy(c, &args, sizeof(args)) || *seen)
		return -EINVAL;
	*seen = true;
	ret = rds_cmsg_vec_read(args.local_vec_addr, args.nr_local, &sum, NULL);
	if (!ret)
		ret = rds_cmsg_vec_usable(args.local_vec_addr, args.nr_local, args.flags & RDS_RDMA_READWRITE);
	if (!ret && sum > args.remote_vec.bytes)
		ret = -EINVAL;
	return ret;
}

static int cmsg_refuse_atomic(const struct rds_cmsg_in *c, bool *seen)
{
	struct rds_atomic_args args;

	if (!rds_cmsg_in_copy(c, &args, sizeof(args)) || *seen)
		return -EINVAL;
	*seen = true;
	if (args.local_addr & 7)
		return -EFAULT;
	return rds_caller_writable(args.local_addr, sizeof(uint64_t));
}

int rds_cmsg_refuse(const struct msghdr *msg)
{
	bool args = false, atomic = false;
	struct rds_cmsg_in c;
	int ret;

	rds_cmsg_in_init(&c, msg);
	while ((ret = rds_cmsg_in_next(&c)) > 0) {
		switch (rds_cmsg_kind(c.hdr.cmsg_type)) {
		case RDS_HAS_ARGS:
			ret = cmsg_refuse_args(&c, &args);
			break;
		case RDS_HAS_ATOMIC:
			ret = cmsg_refuse_atomic(&c, &atomic);
			break;
		case RDS_HAS_MAP:
			ret = c.size < sizeof(struct rds_get_mr_args) ? -EINVAL : -EOPNOTSUPP;
			break;
		default:
			/*
			 * DEST: there is no region that the key could name.  ZCOPY: the transport
			 * has no zero copy.  ASYNC: only transports with RDMA have it.
			 */
			ret = -EINVAL;
		}
		if (ret)
			return ret;
	}
	if (ret < 0)
		return ret;
	return args || atomic ? -EOPNOTSUPP : 0;
}

/* ---- out ---- */

void rds_cmsg_out_init(struct rds_cmsg_out *out, const struct msghdr *msg)
{
	out->buf = msg->msg_control;
	out->len = out->buf ? msg->msg_controllen : 0;
	out->used = 0;
	out->flags = 0;
}

int rds_cmsg_put(struct rds_cmsg_out *out, int level, int type, const void *data, size_t len)
{
	size_t left = out->len - out->used, want = CMSG_LEN(len);
	struct cmsghdr hdr = {.cmsg_level = level, .cmsg_type = type};
	unsigned char *at;

	if (!out->buf || left < HDR) {
		out->flags |= MSG_CTRUNC;
		return 0;
	}
	at = out->buf + out->used;
	if (left < want) {
		out->flags |= MSG_CTRUNC;
		want = left;
	}
	if (rds_user_writable(at, want))
		return -EFAULT;
	hdr.cmsg_len = want;
	memcpy(at, &hdr, HDR);
	memcpy(at + HDR, data, want - HDR);
	out->used += CMSG_SPACE(len) < left ? CMSG_SPACE(len) : left;
	return 0;
}
