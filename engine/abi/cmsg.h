/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cmsg.h - control messages in and out.  In: the walk over the control messages of a sendmsg, with
 * the checks in the kernel's order; nothing is executed here.  Out: as the kernel's put_cmsg does
 * it (truncation, MSG_CTRUNC, EFAULT).
 */
#ifndef ENGINE_ABI_CMSG_H
#define ENGINE_ABI_CMSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Bits of rds_cmsg_summary.present: kinds of control messages that a program may send. */
enum rds_cmsg_kind {
	RDS_HAS_ARGS = 1,
	RDS_HAS_DEST = 2,
	RDS_HAS_MAP = 4,
	RDS_HAS_ATOMIC = 8,
	RDS_HAS_ZCOPY = 16,
	RDS_HAS_ASYNC = 32,
	RDS_NAMES_MEMORY = RDS_HAS_ARGS | RDS_HAS_ATOMIC | RDS_HAS_MAP,
};

/* The walk over the headers of RDS's level; others are checked and passed over. */
struct rds_cmsg_in {
	const unsigned char *at, *end;
	const unsigned char *body; /* in the program's memory */
	size_t size;		   /* of the body, within the buffer */
	struct cmsghdr hdr;	   /* the copy */
};
void rds_cmsg_in_init(struct rds_cmsg_in *c, const struct msghdr *msg);
/* 1 the next header is in *c, 0 no more, -EINVAL its length is impossible. */
int rds_cmsg_in_next(struct rds_cmsg_in *c);
/* Copies the first n bytes of the body.  False: the body is shorter. */
bool rds_cmsg_in_copy(const struct rds_cmsg_in *c, void *to, size_t n);
unsigned rds_cmsg_kind(int type); /* RDS_HAS_*; 0: no type that a program may send */

#define RDS_CMSG_VECTOR_MAX 1024 /* elements of a local vector; the limit of iovecs elsewhere */

/*
 * Reads a local vector of `nr` struct rds_iovec.  Gives the sum of its bytes and, unless
 * `out` is NULL, its elements.  -EINVAL: no element, or an empty or wrapping one; -EMSGSIZE: more
 * than 1024; -EFAULT.
 */
int rds_cmsg_vec_read(uint64_t vec, uint64_t nr, uint64_t *sum, struct iovec *out);
/*
 * Can the memory that a local vector names be used: read, for a write to the peer, or written, for
 * a read from the peer?  0 or -EFAULT.
 */
int rds_cmsg_vec_usable(uint64_t vec, uint64_t nr, bool write);

struct rds_cmsg_summary {
	unsigned present;      /* RDS_HAS_*, by rds_cmsg_check */
	/* last number of SOL_RDS seen (revisions.h), 0 none; by rds_cmsg_scan */
	int level;
	/* sum of RDMA_ARGS remote_vec.bytes (saturated), RDS_MAX_MSG at most; by rds_cmsg_scan */
	uint64_t rdma_bytes;
	uint32_t zcopy_cookie; /* valid with RDS_HAS_ZCOPY if the cmsg was long enough */
	/*
	 * The control messages stay in the program's memory; rdma/op_request.c makes operations of
	 * them.
	 */
};

/*
 * The passes are those of the kernel (net/rds/send.c).  rds_cmsg_scan is rds_rdma_bytes(), before
 * the length of the message is checked: malformed cmsg_len -EINVAL, RDMA_ARGS shorter than its
 * struct -EINVAL; it clears *out and sums rdma_bytes.  rds_cmsg_check is rds_rm_size(), after that
 * check and before the bytes are copied: unknown or receive-only type -EINVAL, RDMA vectors
 * -EINVAL/-EMSGSIZE/-EFAULT, MSG_ZEROCOPY without cookie, forbidden mixtures -EINVAL.  The caller
 * has checked that msg->msg_control is readable for msg_controllen bytes.  A buffer shorter than
 * one header has no control message.
 *
 * rds_cmsg_refuse is rds_cmsg_send(), and what rds_sendmsg() refuses after it, on a socket whose
 * transport has neither RDMA nor zero copy: it returns what executing the control messages one by
 * one would have returned.  0 only if none has the level SOL_RDS.
 *
 * Each pass reads the program's memory again.  So a program that changes it meanwhile can make the
 * passes disagree, but cannot make a pass read outside the buffer.
 */
int rds_cmsg_scan(const struct msghdr *msg, struct rds_cmsg_summary *out);
int rds_cmsg_check(const struct msghdr *msg, int flags, size_t payload, struct rds_cmsg_summary *out);
int rds_cmsg_refuse(const struct msghdr *msg);

/*
 * The buffer for received control messages.  Initialised from the caller's msghdr; `used` becomes
 * msg_controllen.
 */
struct rds_cmsg_out {
	unsigned char *buf;
	size_t len, used;
	int flags; /* MSG_CTRUNC is ORed in */
};
void rds_cmsg_out_init(struct rds_cmsg_out *out, const struct msghdr *msg);
/* 0, or -EFAULT (buffer not writable).  Truncation is not an error. */
int rds_cmsg_put(struct rds_cmsg_out *out, int level, int type, const void *data, size_t len);

#endif
