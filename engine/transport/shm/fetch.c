/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fetch.c - bytes that do not go through the ring: the receiver reads them from the sender's memory
 * (process_vm_readv).
 *
 * The kernel decides whether the receiver may do so, by the same rule as for a debugger.  So HELLO
 * gives the address at which a process keeps its id.  A peer that can read the id there says so in
 * the ring of each connection (`fetches`), and clears `fetches` when it cannot read any more.  One
 * call reads, in this order:
 *
 *   - the id.  The kernel may have given the process number to another process, or the process
 *     may have executed another program.
 *   - the bytes.
 *   - the word that is there as long as the bytes may be read.  Another value means that the
 *     program has its memory back.  The complement of the word means that the sender has given
 *     up the connection; then messages behind the bytes in the ring must not arrive either.
 *
 * Without the right id and the right word the bytes are not used.
 *
 * process_vm_readv() names the sender by a thread that lives as long as the process (its helper).
 * The main thread may end before the others, and then has no memory.  In a program of one thread
 * the helper may have been replaced (helper/step_aside.c).  Then the main thread is named, which
 * lives as long as that process.
 *
 * Only processes of the same user are read, because a read may wait for pages that a mapping of the
 * sender does not supply.  Must not know what the bytes are.
 */
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/transport/shm/shm.h"

static struct rds_procid fetch_id; /* peers read it; the helper writes it */

void shm_fetch_offer(struct shm_ctl_msg *hello)
{
	fetch_id = hello->self;
	hello->id_at = (uint64_t)(uintptr_t)&fetch_id;
	hello->reader = (int32_t)os_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
}

static long sender_read(const struct shm_peer *p, const struct iovec *to, unsigned nto, const struct iovec *from,
			unsigned nfrom)
{
	return os_syscall(SYS_process_vm_readv, p->reader, (long)to, nto, (long)from, nfrom, 0);
}

/* Is the peer of the same user, and is `reader` a thread of the process that the kernel names? */
static bool sender_is_same_user(const struct shm_peer *p)
{
	return p->cred.pid > 0 && p->cred.uid == geteuid() &&
	       !os_syscall(SYS_tgkill, p->cred.pid, p->reader, 0, 0, 0, 0);
}

void shm_fetch_learn(struct shm_peer *p, const struct shm_ctl_msg *hello)
{
	struct rds_procid there;
	struct iovec to = {&there, sizeof(there)}, from = {(void *)(uintptr_t)hello->id_at, sizeof(there)};

	p->id_at = hello->id_at;
	p->reader = hello->reader;
	if (rds_options()->shm_fetch == RDS_SHM_FETCH_NEVER)
		return;
	p->fetched = sender_is_same_user(p) && sender_read(p, &to, 1, &from, 1) == (long)sizeof(there) &&
		     !memcmp(&there, &p->id, sizeof(there));
	if (!p->fetched)
		rds_debug("the memory of process %d cannot be read (ptrace_scope, another user or container): what it writes goes "
			  "through shared memory",
			  (int)p->cred.pid);
}

bool shm_fetchable(struct rds_ep *rep)
{
	struct shm_ep *ep = (struct shm_ep *)rep;

	return atomic_load_explicit(&ep->tx->fetches, memory_order_relaxed) &&
	       rds_options()->shm_fetch != RDS_SHM_FETCH_NEVER;
}

/* Writes that are under way fail, too.  Later ones go through the ring. */
static void fetch_forbidden(struct shm_ep *ep)
{
	atomic_store(&ep->rx->fetches, 0);
	if (atomic_exchange(&ep->peer->fetched, false))
		rds_warn("the memory of process %d cannot be read any more: RDMA writes that were under way are "
			 "reported as "
			 "dropped, others go through shared memory",
			 (int)ep->peer->cred.pid);
}

/*
 * The sender has ended, or executed another program, and the bytes are gone.  Messages behind them
 * in the ring must not arrive without them.  If the sender lives nevertheless, it sends those
 * messages again.
 */
static void sender_ended(struct shm_ep *ep)
{
	rds_debug("process %d has ended before its RDMA write was fetched: the write is dropped, and all messages "
		  "behind it",
		  (int)ep->peer->cred.pid);
	shm_ep_break(ep);
}

/* If a filter or the kernel's rules forbid the read, the error is another one. */
static bool sender_is_gone(long got)
{
	return got >= 0 || got == -ESRCH || got == -EFAULT;
}

/* rx held */
static long sender_read_retry(struct shm_peer *p, const struct iovec *to, unsigned nto, const struct iovec *from,
			      unsigned nfrom)
{
	long got = sender_read(p, to, nto, from, nfrom);

	if (likely(got != -ESRCH) || p->reader == p->cred.pid)
		return got;
	p->reader = p->cred.pid;
	return sender_read(p, to, nto, from, nfrom);
}

int shm_fetch(struct rds_ep *rep, void *to, size_t len, const struct rds_fetch_src *from)
{
	struct shm_ep *ep = (struct shm_ep *)rep;
	struct iovec there[RDS_FETCH_VECS + 2];
	struct rds_procid id;
	uint64_t word;
	struct iovec here[3] = {{&id, sizeof(id)}, {to, len}, {&word, sizeof(word)}};
	const long all = (long)(sizeof(id) + len + sizeof(word));
	long got;

	if (!ep->peer)
		return -ESRCH;
	if (!atomic_load_explicit(&ep->peer->fetched, memory_order_relaxed)) {
		fetch_forbidden(ep);
		return -ESRCH;
	}
	there[0] = (struct iovec){(void *)(uintptr_t)ep->peer->id_at, sizeof(id)};
	memcpy(there + 1, from->vec, from->n * sizeof(from->vec[0]));
	there[1 + from->n] = (struct iovec){(void *)(uintptr_t)from->word_at, sizeof(word)};
	got = sender_read_retry(ep->peer, here, 3, there, from->n + 2);
	if (got < (long)sizeof(id) || memcmp(&id, &ep->peer->id, sizeof(id))) {
		(sender_is_gone(got) ? sender_ended : fetch_forbidden)(ep);
		return -ESRCH;
	}
	if (got == all && word == ~from->word) {
		ep->broken = true; /* the sender's CLOSE is on its way */
		return -ESRCH;
	}
	if (got >= all - (long)sizeof(word))
		return got == all && word == from->word ? 0 : -ECANCELED;
	return -EFAULT;
}
