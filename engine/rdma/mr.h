/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mr.h - memory regions: what a socket has opened to its peers, and the cookies that name it.
 */
#ifndef ENGINE_MR_H
#define ENGINE_MR_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/socket/socket.h"
#include "engine/abi/foreign_memory.h"
#include "engine/abi/rdma_args.h"
#include "rds_abi.h"

#define RDS_MR_PAGES 257u /* touched by one, at most: 1 MiB, however it lies */

struct rds_mr {
	struct rds_mr *hash_next;
	struct rds_mr *next, **prev; /* the socket's */
	struct rds_sock *sk;
	struct rds_foreign_memory *memory; /* whose it is in, if another process opened it (held) */
	uint32_t rkey;
	uint64_t base;	/* where its first page begins: remote addresses count from there */
	uint64_t len;	/* of its pages */
	uint64_t flags; /* RDS_RDMA_* */
	/* mr_device.c */
	uint64_t served; /* bytes, in so many */
	uint32_t operations;
	bool device_unfit; /* for a device, for ever */
	bool registering;  /* a thread is at it */
	struct rds_device_mr *dev_mr;
	void (*deregister)(struct rds_device_mr *shown); /* its transport's */
	struct rds_mr_advert *adverts;
};

/*
 * A new region of a bound socket, and its cookie, stored where the request says.  -EINVAL, -EMSGSIZE, -EPERM, -ENOMEM, -EFAULT in the order
 * of rds-semantics 9.2.  No lock but sk->tx.
 */
int rds_mr_get(struct rds_sock *sk, const struct rds_mr_request *req, uint64_t *cookie);
/* The same for the structure that RDS_GET_MR and RDS_CMSG_RDMA_MAP have, of whatever age. */
int rds_mr_get_args(struct rds_sock *sk, const struct rds_get_mr_args *args, uint64_t *cookie);
/* RDS_FREE_MR of a cookie other than 0: from the return on nobody reaches it. -EINVAL: not one of this socket's. */
int rds_mr_free(struct rds_sock *sk, uint64_t cookie);
/* Its pages: their first address, and how long they are.  The sum is no more than an address can be. */
void rds_mr_pages(const struct rds_mr_request *req, uint64_t *base, uint64_t *len);
/*
 * One that another carrier of the socket has made, in memory (NULL: this process's): as it was, under the same key.  -EEXIST: the key is another one's
 * here; -EINVAL; -ENOMEM; -EBADF: closed meanwhile.
 */
struct rds_share_region;
int rds_mr_restore(struct rds_sock *sk, const struct rds_share_region *region, struct rds_foreign_memory *memory);
/* rx held */
struct rds_mr *rds_mr_find(uint32_t rkey);
bool rds_mr_owned(const struct rds_sock *sk, uint32_t rkey);
/* A message has arrived that carried an operation on it out: the end of a region for one use. */
void rds_mr_unuse(struct rds_sock *sk, uint32_t rkey);
/* Last close: all of the socket's, for rds_mr_destroy_list(). */
struct rds_mr *rds_mr_take_all(struct rds_sock *sk);
void rds_mr_drop_all(struct rds_sock *sk); /* both; the socket goes on elsewhere.  As rds_mr_destroy_list() */
/* Where bytes offset .. offset+len of the region are. False: not all of them within it. */
bool rds_mr_span(const struct rds_mr *mr, uint64_t offset, uint64_t len, uint64_t *at);
void rds_mr_destroy_list(struct rds_mr *list); /* no lock but `control` and sk->tx; may be NULL */
void rds_mr_forget(void);	       /* forked child */

#endif
