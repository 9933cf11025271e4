/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fetch.c - bytes that do not go through the ring: the receiver takes them out of the sender's memory (process_vm_readv).
 *
 * The kernel decides whether it may (the same as for a debugger), so HELLO says where its sender keeps its process id, and whoever can read it
 * there says so in the ring of each connection (`fetches`).  A number of a process may come to be somebody else's, or the same process may
 * have become another program: so the id is read again with the bytes, in one call, and what came from elsewhere counts as not come.
 * Must not know what the bytes are.
 */
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "engine/transport/shm/shm.h"

static struct rds_procid told; /* what peers look for; helper */

uint64_t shm_fetch_id(const struct rds_procid *self)
{
	told = *self;
	return (uint64_t)(uintptr_t)&told;
}

static long read_of(const struct shm_peer *p, const struct iovec *to, unsigned nto, const struct iovec *from, unsigned nfrom)
{
	return os_syscall(SYS_process_vm_readv, p->pid, (long)to, nto, (long)from, nfrom, 0);
}

void shm_fetch_learn(struct shm_peer *p, uint64_t at)
{
	struct rds_procid there;
	struct iovec to = {&there, sizeof(there)}, from = {(void *)(uintptr_t)at, sizeof(there)};

	p->id_at = at;
	if (rds_options()->shm_fetch == RDS_SHM_FETCH_NEVER)
		return;
	p->fetched = p->pid && read_of(p, &to, 1, &from, 1) == (long)sizeof(there) &&
		     !memcmp(&there, &p->id, sizeof(there));
	if (!p->fetched)
		rds_debug("the memory of process %d cannot be read (ptrace_scope, another user or container): what it writes goes "
			  "through shared memory",
			  (int)p->pid);
}

bool shm_lends(struct rds_ep *rep)
{
	struct shm_ep *ep = (struct shm_ep *)rep;

	return atomic_load_explicit(&ep->tx->fetches, memory_order_relaxed) &&
	       rds_options()->shm_fetch != RDS_SHM_FETCH_NEVER;
}

int shm_fetch(struct rds_ep *rep, void *to, size_t len, const struct iovec *from, unsigned n)
{
	struct shm_ep *ep = (struct shm_ep *)rep;
	struct iovec there[1 + RDS_FETCH_VECS];
	struct rds_procid id;
	struct iovec here[2] = {{&id, sizeof(id)}, {to, len}};
	long got;

	if (!ep->peer || !ep->peer->fetched || n > RDS_FETCH_VECS)
		return -EOPNOTSUPP;
	there[0] = (struct iovec){(void *)(uintptr_t)ep->peer->id_at, sizeof(id)};
	memcpy(there + 1, from, n * sizeof(*from));
	got = read_of(ep->peer, here, 2, there, 1 + n);
	if (got < (long)sizeof(id) || memcmp(&id, &ep->peer->id, sizeof(id)))
		return -ESRCH;
	return got == (long)(sizeof(id) + len) ? 0 : -EFAULT;
}
