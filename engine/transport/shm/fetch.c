/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fetch.c - bytes that do not go through the ring: the receiver takes them out of the sender's memory (process_vm_readv).
 *
 * The kernel decides whether it may (the same as for a debugger), so HELLO says where its sender keeps its process id, and whoever can read it
 * there says so in the ring of each connection (`fetches`), and takes that back when it cannot any more.  With the bytes, in one call and in this
 * order, are read
 *
 *   before them	the id: a number of a process may come to be somebody else's, or the process have become another program
 *   behind them	the word that is there as long as they are lent: else the program has had its memory back meanwhile; its complement says
 *		that the sender has given the connection up, and what lies in the ring behind them must not arrive without them
 *
 * and without both of these the bytes count as not come.  The memory is asked for by a thread that lives as long as the process (its helper): the main
 * thread may end before the others, and has no memory then.  In a program of one thread, which has its memory as long as it lives, the helper may have
 * been replaced (helper/step_aside.c): then the main thread is asked.  Only of the same user: reading may wait for pages that a mapping of the sender
 * does not give.  Must not know what the bytes are.
 */
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/transport/shm/shm.h"

static struct rds_procid fetch_id; /* what peers look for; helper */

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

/* ... and is that thread one of the process that the kernel has named? */
static bool sender_is_same_user(const struct shm_peer *p)
{
	struct ucred cred;

	return os_peer_cred(p->fd, &cred) && cred.uid == geteuid() &&
	       !os_syscall(SYS_tgkill, cred.pid, p->reader, 0, 0, 0, 0);
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
			  (int)p->pid);
}

bool shm_fetchable(struct rds_ep *rep)
{
	struct shm_ep *ep = (struct shm_ep *)rep;

	return atomic_load_explicit(&ep->tx->fetches, memory_order_relaxed) &&
	       rds_options()->shm_fetch != RDS_SHM_FETCH_NEVER;
}

/* What is under way fails, too; the next goes through the ring. */
static void fetch_forbidden(struct shm_ep *ep)
{
	atomic_store(&ep->rx->fetches, 0);
	if (atomic_exchange(&ep->peer->fetched, false))
		rds_warn("the memory of process %d cannot be read any more: RDMA writes that were under way are "
			 "reported as "
			 "dropped, others go through shared memory",
			 (int)ep->peer->pid);
}

/*
 * It has ended, or executed another program, and taken the bytes along: what lies in the ring behind them must not arrive
 * without them.  Should it be there nevertheless, it sends those messages again.
 */
static void sender_ended(struct shm_ep *ep)
{
	rds_debug("process %d has ended before what it writes was taken: that is dropped, and all that it sent behind it",
		  (int)ep->peer->pid);
	shm_ep_break(ep);
}

/* Whom a filter or the kernel's rules forbid to read is told something else. */
static bool sender_is_gone(long got)
{
	return got >= 0 || got == -ESRCH || got == -EFAULT;
}

/* rx held */
static long sender_read_retry(struct shm_peer *p, const struct iovec *to, unsigned nto, const struct iovec *from,
			      unsigned nfrom)
{
	long got = sender_read(p, to, nto, from, nfrom);

	if (likely(got != -ESRCH) || p->reader == p->pid)
		return got;
	p->reader = p->pid;
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
		ep->broken = true; /* CLOSE is on its way */
		return -ESRCH;
	}
	if (got >= all - (long)sizeof(word))
		return got == all && word == from->word ? 0 : -ECANCELED;
	return -EFAULT;
}
