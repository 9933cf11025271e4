/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cmsg.c - control messages in and out.
 *
 * The buffer belongs to the program, and another of its threads may be writing to it.  So a cursor copies each header
 * once, believes the copy only, and hands out the body's place and size within the buffer; bodies are copied before
 * they are looked at.  The walk ends because every step moves on by at least one header.
 * Must not know sockets or transports; what a transport can do is the choice of the function that is called.
 */
#include "engine/cmsg.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "engine/uaccess.h"
#include "engine/wire.h"
#include "rds_abi.h"

#define HDR sizeof(struct cmsghdr)
#define VECTOR_MAX 1024 /* RDMA local vectors, as iovecs of any other call */

_Static_assert(CMSG_LEN(0) == HDR, "data follow the header without a gap");

/* ---- the walk ---- */

struct cursor {
	const unsigned char *at, *end;
	const unsigned char *body; /* in the program's memory */
	size_t size;		   /* of the body, within the buffer */
	struct cmsghdr hdr;	   /* the copy */
};

static void cursor_init(struct cursor *c, const struct msghdr *msg)
{
	c->at = msg->msg_control;
	c->end = c->at ? c->at + msg->msg_controllen : NULL;
}

/* 1 the next header is in *c, 0 no more, -EINVAL its length is impossible. */
static int cursor_next(struct cursor *c)
{
	size_t left = (size_t)(c->end - c->at), step;

	if (!c->at || left < HDR)
		return 0;
	memcpy(&c->hdr, c->at, HDR);
	/* The compiler may not read the program's memory again instead of the copy. */
	__asm__ volatile("" : "+m"(c->hdr) : : "memory");
	if (c->hdr.cmsg_len < HDR || c->hdr.cmsg_len > left)
		return -EINVAL;
	c->body = c->at + HDR;
	c->size = c->hdr.cmsg_len - HDR;
	step = CMSG_ALIGN(c->hdr.cmsg_len);
	c->at = step < left ? c->at + step : c->end;
	return 1;
}

static bool is_rds(const struct cursor *c)
{
	return c->hdr.cmsg_level == SOL_RDS || c->hdr.cmsg_level == SOL_RDS_HISTORIC;
}

/* Copies the body's first n bytes if it has as many. */
static bool body_copy(const struct cursor *c, void *to, size_t n)
{
	if (c->size < n)
		return false;
	memcpy(to, c->body, n);
	__asm__ volatile("" : : "r"(to) : "memory");
	return true;
}

static unsigned kind_of(int type)
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
	default:
		return 0;
	}
}

/* ---- row 8 ---- */

int rds_cmsg_scan(const struct msghdr *msg, struct rds_send_cmsgs *out)
{
	struct rds_rdma_args args;
	struct cursor c;
	int ret;

	memset(out, 0, sizeof(*out));
	cursor_init(&c, msg);
	while ((ret = cursor_next(&c)) > 0) {
		if (!is_rds(&c))
			continue;
		out->level = c.hdr.cmsg_level;
		if (c.hdr.cmsg_type != RDS_CMSG_RDMA_ARGS)
			continue;
		if (!body_copy(&c, &args, sizeof(args)))
			return -EINVAL;
		if (__builtin_add_overflow(out->rdma_bytes, args.remote_vec.bytes, &out->rdma_bytes))
			out->rdma_bytes = UINT64_MAX;
	}
	return ret;
}

/* ---- rows 12 to 14 ---- */

/* One element: not empty, not wrapping, at most 4 GiB - 1. */
static bool vec_good(const struct rds_iovec *v)
{
	return v->addr + v->bytes > v->addr && v->bytes <= UINT_MAX;
}

/* Row 13, and the sum of the local bytes for row 18. */
static int local_vectors(const struct rds_rdma_args *args, uint64_t *sum)
{
	const unsigned char *from = (const unsigned char *)(uintptr_t)args->local_vec_addr;
	struct rds_iovec v;

	*sum = 0;
	if (!args->nr_local)
		return -EINVAL;
	if (args->nr_local > VECTOR_MAX)
		return -EMSGSIZE;
	if (rds_user_readable(from, args->nr_local * sizeof(v)))
		return -EFAULT;
	for (uint64_t i = 0; i < args->nr_local; i++) {
		memcpy(&v, from + i * sizeof(v), sizeof(v));
		__asm__ volatile("" : "+m"(v) : : "memory");
		if (!vec_good(&v))
			return -EINVAL;
		*sum += v.bytes; /* at most 1024 * 4 GiB */
	}
	return 0;
}

static int check_args(const struct cursor *c)
{
	struct rds_rdma_args args;
	uint64_t sum;

	if (!body_copy(c, &args, sizeof(args)))
		return -EINVAL;
	return local_vectors(&args, &sum);
}

int rds_cmsg_check(const struct msghdr *msg, int flags, size_t payload, struct rds_send_cmsgs *out)
{
	const unsigned ops = RDS_HAS_ARGS | RDS_HAS_ATOMIC;
	struct cursor c;
	int ret;

	(void)payload; /* a zero copy send of nothing is refused where zero copy is done, not here */
	out->present = 0;
	cursor_init(&c, msg);
	while ((ret = cursor_next(&c)) > 0) {
		unsigned kind;

		if (!is_rds(&c))
			continue;
		kind = kind_of(c.hdr.cmsg_type);
		if (!kind)
			return -EINVAL;
		out->present |= kind;
		if (kind == RDS_HAS_ARGS && (ret = check_args(&c)) < 0)
			return ret;
		if (kind == RDS_HAS_ZCOPY)
			if (!body_copy(&c, &out->zcopy_cookie, sizeof(out->zcopy_cookie)))
				return -EINVAL;
	}
	if (ret < 0)
		return ret;
	if ((flags & MSG_ZEROCOPY) && !(out->present & RDS_HAS_ZCOPY))
		return -EINVAL;
	return (out->present & ops) && (out->present & ~ops) ? -EINVAL : 0;
}

/* ---- rows 18 and 19 without RDMA ---- */

/* Would pinning work?  At most the 1 MiB that row 9 lets through: do not fault in gigabytes only to refuse them. */
static int probe_vectors(const struct rds_rdma_args *args)
{
	const unsigned char *from = (const unsigned char *)(uintptr_t)args->local_vec_addr;
	uint64_t budget = RDS_MAX_MSG;
	struct rds_iovec v;

	for (uint64_t i = 0; i < args->nr_local && budget; i++) {
		uint64_t n;
		void *p;
		int ret;

		memcpy(&v, from + i * sizeof(v), sizeof(v));
		__asm__ volatile("" : "+m"(v) : : "memory");
		p = (void *)(uintptr_t)v.addr;
		n = v.bytes < budget ? v.bytes : budget;
		/* A write to the peer reads our memory, a read from it writes ours. */
		ret = args->flags & RDS_RDMA_READWRITE ? rds_user_readable(p, n) : rds_user_writable(p, n);
		if (ret)
			return ret;
		budget -= n;
	}
	return 0;
}

static int refuse_args(const struct cursor *c, bool *seen)
{
	struct rds_rdma_args args;
	uint64_t sum;
	int ret;

	if (!body_copy(c, &args, sizeof(args)) || *seen)
		return -EINVAL;
	*seen = true;
	ret = local_vectors(&args, &sum);
	if (!ret)
		ret = probe_vectors(&args);
	if (!ret && sum > args.remote_vec.bytes)
		ret = -EINVAL;
	return ret;
}

static int refuse_atomic(const struct cursor *c, bool *seen)
{
	struct rds_atomic_args args;

	if (!body_copy(c, &args, sizeof(args)) || *seen)
		return -EINVAL;
	*seen = true;
	if (args.local_addr & 7)
		return -EFAULT;
	return rds_user_writable((void *)(uintptr_t)args.local_addr, sizeof(uint64_t));
}

int rds_cmsg_refuse(const struct msghdr *msg)
{
	bool args = false, atomic = false;
	struct cursor c;
	int ret;

	cursor_init(&c, msg);
	while ((ret = cursor_next(&c)) > 0) {
		if (!is_rds(&c))
			continue;
		switch (kind_of(c.hdr.cmsg_type)) {
		case RDS_HAS_ARGS:
			ret = refuse_args(&c, &args);
			break;
		case RDS_HAS_ATOMIC:
			ret = refuse_atomic(&c, &atomic);
			break;
		case RDS_HAS_MAP:
			ret = c.size < sizeof(struct rds_get_mr_args) ? -EINVAL : -EOPNOTSUPP;
			break;
		default: /* DEST: no region exists that the key could name; ZCOPY: no transport for it */
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
	unsigned char *at = out->buf + out->used;

	if (!out->buf || left < HDR) {
		out->flags |= MSG_CTRUNC;
		return 0;
	}
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
