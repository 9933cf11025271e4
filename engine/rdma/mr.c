/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mr.c - memory regions (net/rds/rdma.c: __rds_rdma_map).
 *
 * A region belongs to its socket, and is known by a 32-bit key, which is the same for every peer:
 * the table is the process's.  A region consists of whole pages, as in the kernel.  Its remote
 * addresses begin with 0 at the first page; the cookie carries the offset in that page.  Keys are
 * counted up from a random start, so that no key is used again soon.  No key is small enough to be
 * taken for a length (rds_cookie_plausible()), so no key is 0.
 *
 * Nothing is pinned here.  A region is a range of addresses.  If the program maps other memory
 * there, peers reach that memory.  If memory is not mapped any more, the operation that needs it
 * fails.  For a region that a device knows (mr_device.c), the pages at the time of its registration
 * count, as in the kernel.
 *
 * rx guards everything in the table.  A thread that carries out an operation holds rx meanwhile: so
 * the engine cannot reach a region that has left the table.  The device is told to forget the
 * region before the call returns, without rx, since that takes a while.
 */
#include "engine/rdma/mr.h"

#include <stdlib.h>
#include <string.h>

#include "engine/abi/revisions.h"
#include "engine/rdma/op_device.h"
#include "engine/socket/socket.h"
#include "engine/sys/uaccess.h"
#include "engine/abi/user_copy.h"

#define MR_BUCKETS 1024u
#define PAGE ((uint64_t)4096)

static struct rds_mr *table[MR_BUCKETS] RDS_TABLE; /* rx */
static uint32_t last_rkey;		 /* rx; 0: none yet */

static struct rds_mr **mr_bucket(uint32_t rkey)
{
	return &table[rkey % MR_BUCKETS];
}

struct rds_mr *rds_mr_find(uint32_t rkey)
{
	struct rds_mr *mr = *mr_bucket(rkey);

	while (mr && mr->rkey != rkey)
		mr = mr->hash_next;
	return mr;
}

bool rds_mr_owned(const struct rds_sock *sk, uint32_t rkey)
{
	const struct rds_mr *mr = rds_mr_find(rkey);

	return mr && mr->sk == sk;
}

static uint32_t mr_new_rkey(void)
{
	if (!last_rkey)
		os_random(&last_rkey, sizeof(last_rkey));
	do
		last_rkey++;
	while (last_rkey < RDS_RKEY_LEAST || rds_mr_find(last_rkey));
	return last_rkey;
}

/* rx held */
static void mr_link_locked(struct rds_sock *sk, struct rds_mr *mr)
{
	mr->sk = sk;
	mr->hash_next = *mr_bucket(mr->rkey);
	*mr_bucket(mr->rkey) = mr;
	mr->next = sk->regions;
	mr->prev = &sk->regions;
	if (mr->next)
		mr->next->prev = &mr->next;
	sk->regions = mr;
}

/* False: the socket has been closed meanwhile, and nobody would free the region. */
static bool mr_link(struct rds_sock *sk, struct rds_mr *mr, uint32_t *rkey)
{
	rx_lock();
	if (!atomic_load(&sk->open)) {
		rx_unlock();
		return false;
	}
	mr->rkey = mr_new_rkey();
	mr_link_locked(sk, mr);
	*rkey = mr->rkey; /* from here on it may be freed at any time */
	rx_unlock();
	return true;
}

static void mr_free(struct rds_mr *mr)
{
	rds_foreign_memory_put(mr->memory);
	free(mr);
}

/* rx held.  The caller still has to destroy it. */
static void mr_unlink(struct rds_mr *mr)
{
	struct rds_mr **p = mr_bucket(mr->rkey);

	while (*p != mr)
		p = &(*p)->hash_next;
	*p = mr->hash_next;
	*mr->prev = mr->next;
	if (mr->next)
		mr->next->prev = mr->prev;
	mr->next = NULL;
	rds_mr_revoke(mr);
}

/* ---- registration ---- */

void rds_mr_pages(const struct rds_mr_request *req, uint64_t *base, uint64_t *len)
{
	*base = req->addr & ~(PAGE - 1);
	*len = ((req->addr + req->bytes + PAGE - 1) & ~(PAGE - 1)) - *base;
}

static int mr_check_range(const struct rds_mr_request *req, struct rds_mr *mr)
{
	uint64_t end = req->addr + req->bytes;

	if (end < req->addr || end > UINT64_MAX - PAGE + 1)
		return -EINVAL;
	if (!rds_caller_may_pin()) /* however large the region is: nothing is locked */
		return -EPERM;
	if (!req->bytes || req->bytes > UINT32_MAX)
		return -EINVAL;
	rds_mr_pages(req, &mr->base, &mr->len);
	if (mr->len / PAGE > RDS_MR_PAGES)
		return -EMSGSIZE;
	return 0;
}

/*
 * Stores the value if the address is not 0.  On the caller's own stack that costs no system call.
 */
static int mr_put_word(struct rds_foreign_memory *m, uint64_t at, uint64_t value)
{
	if (!at)
		return 0;
	if (m || !rds_user_on_stack((uintptr_t)at, sizeof(value)))
		return rds_ucopy_to(m, at, &value, sizeof(value));
	memcpy((void *)(uintptr_t)at, &value, sizeof(value));
	return 0;
}

int rds_mr_get(struct rds_sock *sk, const struct rds_mr_request *req, uint64_t *cookie)
{
	struct rds_foreign_memory *memory = rds_caller ? rds_caller->memory : NULL;
	struct rds_mr *mr, found = {
				   .flags = req->flags,
				   .memory = memory,
				   .device_unfit = memory || (req->flags & RDS_RDMA_USE_ONCE),
			   };
	uint32_t rkey;
	int err = mr_check_range(req, &found);

	if (err)
		return err;
	/* no cached answer: a program that registers memory may just have changed its mapping */
	rds_user_forget();
	if (rds_caller_writable(req->addr, req->bytes))
		return -EFAULT;
	mr = malloc(sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	*mr = found;
	rds_foreign_memory_get(memory);
	if (!mr_link(sk, mr, &rkey)) {
		rds_foreign_memory_put(memory);
		free(mr);
		return -EBADF;
	}
	*cookie = rds_cookie(rkey, (uint32_t)(req->addr & (PAGE - 1)));
	if (mr_put_word(memory, req->cookie_addr, *cookie) || mr_put_word(memory, req->phys_addr, 0)) {
		rds_mr_free(sk, *cookie);
		return -EFAULT;
	}
	if (rds_caller && rds_caller->made)
		*rds_caller->made = rkey;
	return 0;
}

static bool mr_region_plausible(const struct rds_mr_region *r)
{
	return r->rkey >= RDS_RKEY_LEAST && !(r->base & (PAGE - 1)) && r->len && !(r->len & (PAGE - 1)) &&
	       r->len / PAGE <= RDS_MR_PAGES && r->base <= UINT64_MAX - r->len && !(r->flags & RDS_RDMA_USE_ONCE);
}

/* rx held.  The region exists already if two threads have reported it. */
static bool mr_region_same(const struct rds_mr *a, const struct rds_mr *b)
{
	return a->sk == b->sk && a->base == b->base && a->len == b->len && a->flags == b->flags &&
	       (a->memory ? b->memory && rds_foreign_memory_same(a->memory, b->memory) : !b->memory);
}

int rds_mr_restore(struct rds_sock *sk, const struct rds_mr_region *region, struct rds_foreign_memory *memory)
{
	struct rds_mr *mr, *there;
	int err = 0;

	if (!mr_region_plausible(region))
		return -EINVAL;
	mr = malloc(sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	*mr = (struct rds_mr){.sk = sk,
			      .rkey = region->rkey,
			      .base = region->base,
			      .len = region->len,
			      .flags = region->flags,
			      .memory = rds_foreign_memory_get(memory),
			      .device_unfit = memory != NULL};
	rx_lock();
	there = rds_mr_find(mr->rkey);
	if (there)
		err = mr_region_same(there, mr) ? 0 : -EEXIST;
	else if (memory && !atomic_load(&sk->open))
		err = -EBADF;
	else
		mr_link_locked(sk, mr);
	rx_unlock();
	if (there || err)
		mr_free(mr);
	return err;
}

static bool mr_word_writable(uint64_t at)
{
	return rds_caller ? rds_caller->word : !rds_user_writable((void *)(uintptr_t)at, sizeof(uint64_t));
}

int rds_mr_get_args(struct rds_sock *sk, const struct rds_get_mr_args *args, uint64_t *cookie)
{
	struct rds_mr_request req;

	rds_abi_mr_decode(args, mr_word_writable, &req);
	return rds_mr_get(sk, &req, cookie);
}

/* ---- freeing ---- */

int rds_mr_free(struct rds_sock *sk, uint64_t cookie)
{
	struct rds_mr *mr;

	rx_lock();
	mr = rds_mr_find(rds_cookie_rkey(cookie));
	if (mr && mr->sk == sk) {
		if (mr->memory && !(rds_caller && rds_foreign_memory_is_of(mr->memory, rds_caller->pid)))
			RDS_SOCK_SET(sk, region_freed_by_other, true);
		if (rds_caller && rds_caller->made && *rds_caller->made == mr->rkey)
			*rds_caller->made = 0; /* made and freed by the same call */
		mr_unlink(mr);
	} else {
		mr = NULL;
	}
	rx_unlock();
	rds_mr_destroy_list(mr);
	return mr ? 0 : -EINVAL;
}

void rds_mr_destroy_list(struct rds_mr *list)
{
	struct rds_mr *next;

	rds_mr_revoke_wait(list);
	for (; list; list = next) {
		next = list->next;
		rds_mr_deregister(list);
		mr_free(list);
	}
}

void rds_mr_unuse(struct rds_sock *sk, uint32_t rkey)
{
	struct rds_mr *mr = rds_mr_find(rkey);

	if (!mr || mr->sk != sk || !(mr->flags & RDS_RDMA_USE_ONCE))
		return;
	mr_unlink(mr);
	mr_free(mr); /* a region for one use is never advertised */
}

struct rds_mr *rds_mr_take_all(struct rds_sock *sk)
{
	struct rds_mr *list = NULL, *mr;

	while ((mr = sk->regions)) {
		mr_unlink(mr);
		mr->next = list;
		list = mr;
	}
	return list;
}

void rds_mr_drop_all(struct rds_sock *sk)
{
	struct rds_mr *list;

	rx_lock();
	list = rds_mr_take_all(sk);
	rx_unlock();
	rds_mr_destroy_list(list);
}

bool rds_mr_span(const struct rds_mr *mr, uint64_t offset, uint64_t len, uint64_t *at)
{
	*at = mr->base + offset;
	return offset <= mr->len && len <= mr->len - offset;
}

void rds_rdma_fork_child(void)
{
	os_fork_zero(table, sizeof(table));
	last_rkey = 0;
	rds_mr_device_forget();
	rds_ops_forget();
}
