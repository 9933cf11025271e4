/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mr.h - memory regions that a socket has opened to its peers, and the cookies that name them.
 */
#ifndef ENGINE_RDMA_MR_H
#define ENGINE_RDMA_MR_H

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

#define RDS_MR_PAGES 257u /* pages that a region touches at most: 1 MiB, at any alignment */

struct rds_mr {
	struct rds_mr *hash_next;
	struct rds_mr *next, **prev; /* in the list of the socket */
	struct rds_sock *sk;
	/* memory of the process that opened it (reference held); NULL: this process */
	struct rds_foreign_memory *memory;
	uint32_t rkey;
	uint64_t base;	/* address of its first page; remote addresses count from there */
	uint64_t len;	/* of its pages, in bytes */
	uint64_t flags; /* RDS_RDMA_* */
	/* for mr_device.c */
	uint64_t served; /* bytes that the engine has served, in so many operations */
	uint32_t operations;
	bool device_unfit; /* never register it with a device */
	bool registering;  /* a thread is registering it */
	struct rds_device_mr *dev_mr;
	void (*deregister)(struct rds_device_mr *dev_mr); /* of the transport of dev_mr */
	struct rds_mr_advert *adverts;
};

/*
 * Makes a region of a bound socket, and stores its cookie where the request says.  -EINVAL,
 * -EMSGSIZE, -EPERM, -ENOMEM, -EFAULT in the kernel's order (net/rds/rdma.c: __rds_rdma_map()).  No
 * lock held but sk->tx.
 */
int rds_mr_get(struct rds_sock *sk, const struct rds_mr_request *req, uint64_t *cookie);
/* The same for the structure of RDS_GET_MR and RDS_CMSG_RDMA_MAP, of any age. */
int rds_mr_get_args(struct rds_sock *sk, const struct rds_get_mr_args *args, uint64_t *cookie);
/*
 * RDS_FREE_MR of a cookie other than 0.  After the return no peer reaches the region.  -EINVAL: the
 * region is not this socket's.
 */
int rds_mr_free(struct rds_sock *sk, uint64_t cookie);
/*
 * The pages of a request: their first address, and their length in bytes.  The sum does not exceed
 * the address space.
 */
void rds_mr_pages(const struct rds_mr_request *req, uint64_t *base, uint64_t *len);
/* A region as another process that has the socket reports it; part of share's protocol. */
struct rds_mr_region {
	uint32_t rkey, reserved;
	uint64_t base, len, flags;
};
/*
 * Restores a region that another owner of the socket has made, under the same key, in `memory`
 * (NULL: this process's).  -EEXIST: the key belongs to another region here.  -EINVAL.  -ENOMEM.
 * -EBADF: the socket was closed meanwhile.
 */
int rds_mr_restore(struct rds_sock *sk, const struct rds_mr_region *region, struct rds_foreign_memory *memory);
/* rx held for these four. */
struct rds_mr *rds_mr_find(uint32_t rkey);
bool rds_mr_owned(const struct rds_sock *sk, uint32_t rkey);
/* A message has arrived that carried out an operation on the region: ends a region for one use. */
void rds_mr_unuse(struct rds_sock *sk, uint32_t rkey);
/*
 * At the last close: removes all regions of the socket from the table, for rds_mr_destroy_list().
 */
struct rds_mr *rds_mr_take_all(struct rds_sock *sk);
/*
 * Takes all and destroys them, when another process goes on with the socket.  Locks as for
 * rds_mr_destroy_list().
 */
void rds_mr_drop_all(struct rds_sock *sk);
/*
 * *at: the address of bytes offset .. offset+len of the region.  False: they are not all within it.
 */
bool rds_mr_span(const struct rds_mr *mr, uint64_t offset, uint64_t len, uint64_t *at);
/* No lock held but `control` and sk->tx.  list may be NULL. */
void rds_mr_destroy_list(struct rds_mr *list);
void rds_rdma_fork_child(void);

#endif
