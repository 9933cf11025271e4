/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * registry.h - the node in shared memory: who is alive, who owns which (address, port), node-wide counters.
 *
 * One file per network namespace and user below RDS_PRELOAD_REGISTRY_DIR (default /dev/shm).  A process that has it
 * open holds a record lock on its own slot's byte; the kernel drops that lock however the process ends, so alive and
 * dead can always be told apart and the next one that needs the room reclaims what the dead left.  All changes are made
 * under one record lock of the file (plus an in-process mutex); readers use a sequence counter and never block.
 * Everything read from the file is checked: a damaged file is an error with a log line, never a crash or endless loop.
 * Knows nothing of sockets, connections or transports.
 */
#ifndef ENGINE_REGISTRY_H
#define ENGINE_REGISTRY_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/node/stats.h"

#define RDS_PROCID_LEN 16
struct rds_procid {
	uint8_t b[RDS_PROCID_LEN];
};

struct registry;
struct os_fd;

/* What the registry says of one socket, by value. Ports in host byte order. */
struct registry_sock {
	struct in6_addr bound;	   /* v4 as mapped; :: while unbound */
	struct in6_addr connected; /* :: while not connected */
	uint32_t scope;
	uint16_t bound_port, connected_port;
	uint32_t sndbuf, rcvbuf; /* RDS limits (halved values) */
	uint64_t inode;
	uint64_t order; /* creation order on this node */
	uint32_t sock;	/* its entry */
	int32_t transport;
	uint32_t proc; /* slot of the owner */
	int32_t pid;
	bool congested; /* as its carrier said last */
	struct rds_procid procid;
};

struct registry_proc {
	uint32_t slot;
	int32_t pid;
	struct rds_procid id;
	char comm[16];
};

/*
 * Attach to the node's registry (making it if need be) and take a process slot under a fresh random process id.
 * -EACCES/-EPERM (wrong owner or mode), -ENOSPC (no room in the directory), -EPROTO (other version or damaged and in
 * use by live processes), -EMFILE, -ENOMEM, -EUSERS (no process slot), -ENOENT (no such directory), -ETIMEDOUT (see
 * below), -EBUSY (this process has it open already: record locks belong to a process, a second handle would drop the
 * first one's).  Each failure has been logged with what to do.
 *
 * Who is stopped while it has the record lock is gone on without after 100 ms, and does its change again when it goes
 * on.  Only if that is not possible any more (no memory, or several are stopped) every function here that takes the record
 * lock gives up with -ETIMEDOUT after 5 seconds, after 20 ms if that one has been waited for before.  -EIO: the contents cannot be
 * trusted any more (truncated, or this process was taken for dead).
 */
int registry_open(struct registry **out);
extern struct registry *rds_node_registry; /* this process's; NULL before its first socket */
/* Orderly leave: frees sockets and slot, folds the counters into the node's, closes. */
void registry_close(struct registry *reg);
/*
 * In a forked child, and before it opens a registry of its own (closing any descriptor of the file drops the locks on
 * it): unmap and close only, the parent's lock and data stay as they are.
 */
void registry_abandon(struct registry *reg);

/* The file's numbers: the one in the program's table is the registry's own business, the helper's is put there by whoever lends it. */
struct os_fd *registry_fds(struct registry *reg);
const struct rds_procid *registry_self(const struct registry *reg);
uint32_t registry_self_slot(const struct registry *reg);
/* What of struct registry the inline function below needs. */
struct registry_pub {
	const _Atomic uint64_t *generation;
};
/* Changes whenever any (address, port) binding on the node changed.  One load of a shared line. */
static inline uint64_t registry_generation(const struct registry *reg)
{
	return atomic_load_explicit(((const struct registry_pub *)(const void *)reg)->generation, memory_order_acquire);
}

/* Sockets; idx is the entry's number, valid until removed.  -ENFILE (65536 on the node), -ENOSPC. */
int registry_sock_add(struct registry *reg, uint64_t inode, uint32_t sndbuf, uint32_t rcvbuf, uint32_t *idx);
/*
 * Claim (addr, port, scope).  port 0: probe upward from a random start in 2..65535 with wrap (rds-semantics 2).
 * Entries of dead processes do not count: they are reclaimed on the way.  -EADDRINUSE, -EBUSY (the same, by a socket that several processes use:
 * its last copy may just have been closed), -ENOMEM, -EIO (damaged).
 */
int registry_sock_bind(struct registry *reg, uint32_t idx, const struct in6_addr *addr, uint16_t port, uint32_t scope,
		       int transport, uint16_t *bound_port);
/*
 * What the socket is called (socket_name.h): if its process ends and it still exists, because others have descriptors of it, it becomes nobody's
 * instead of being removed.
 */
void registry_sock_set_name(struct registry *reg, uint32_t idx, const struct rds_procid *name);
void registry_sock_set_connected(struct registry *reg, uint32_t idx, const struct in6_addr *addr, uint16_t port);
void registry_sock_set_bufs(struct registry *reg, uint32_t idx, uint32_t sndbuf, uint32_t rcvbuf);
/* No lock, and none is needed. */
void registry_sock_set_congested(struct registry *reg, uint32_t idx, bool congested);
/* Other processes use it through this one, or have done so. */
void registry_sock_set_shared(struct registry *reg, uint32_t idx);
void registry_sock_remove(struct registry *reg, uint32_t idx);

/*
 * The process that carries it leaves, and somebody else may take it: its port stays taken, and is nobody's (REGISTRY_NOBODY), for as long as the
 * socket of that name exists (socket_name.h).  -EIO.
 */
int registry_sock_orphan(struct registry *reg, uint32_t idx, const struct rds_procid *name);
/*
 * It is ours from now on.  -ENOENT: it is not to be had (any more).  sure: the caller knows that nobody else carries
 * it, even if that has not been noticed here yet.
 */
int registry_sock_take_over(struct registry *reg, uint32_t idx, const struct rds_procid *name, bool sure);
/* Could it be taken now?  0, or why nobody can change anything: for who must not fail any more when he has begun. */
int registry_check_lock(struct registry *reg);
/* The socket of that name: where it is bound (port 0: nowhere), and by which transport.  -ENOENT. */
int registry_sock_get_binding(struct registry *reg, uint32_t idx, const struct rds_procid *name,
			      struct registry_sock *out);
/*
 * The socket of that name, which was nobody's: has its last copy been closed?  Not if somebody has taken it, but if another one is in its place by now.
 * System calls.
 */
bool registry_sock_is_gone(struct registry *reg, uint32_t idx, const struct rds_procid *name);

/* The number of a socket that exists: of struct registry_owner, order.  Lock-free. */
uint64_t registry_sock_order(struct registry *reg, uint32_t idx);

#define REGISTRY_NOBODY 1024u /* no process slot */
struct registry_owner {
	uint32_t proc; /* slot, or REGISTRY_NOBODY */
	uint32_t sock; /* entry index */
	int32_t pid;
	int32_t transport; /* of that socket */
	bool moved;	   /* another process had it before this one */
	struct rds_procid procid;
	uint64_t order; /* of that socket, whoever carries it: no other one of the node has had it */
};
/*
 * Who owns (addr, port, scope): 0, or -ENOENT.  Lock-free; does not check that the owner lives.  -EIO or -ETIMEDOUT
 * only if a writer died or hangs in the middle and nothing could be done about it.
 */
int registry_lookup(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
		    struct registry_owner *out);
/* The same, and never waits for the record lock: -EIO, -EAGAIN where that one would. */
int registry_lookup_nowait(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			   struct registry_owner *out);
/* What lies in a socket's inbox, as those count who leave it there, and what it takes of messages. */
struct registry_mailbox {
	uint32_t mailbox_bytes, rcvbuf;
};
void registry_sock_mailbox(struct registry *reg, uint32_t idx, struct registry_mailbox *out);
/* Nothing is left there.  The socket is ours. */
void registry_sock_mailbox_clear(struct registry *reg, uint32_t idx);
/*
 * Is (addr, port, scope) nobody's?  Then act() is called with the socket's name, and nobody takes it meanwhile: its result; else -ENOENT.  If that is
 * good, `more` lies in its inbox.  Waits for nobody: -EAGAIN, as if there is not just `left` now.
 * If this process is stopped meanwhile others go on without it, and one may take the socket: act() asks registry_lock_is_ours() when what it is about
 * to leave could be found, and is not left yet.
 */
bool registry_lock_is_ours(struct registry *reg);
int registry_orphan_act(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope, uint32_t left,
			uint32_t more, int (*act)(const struct rds_procid *name, void *arg), void *arg);
/* Does the process with that slot and id still hold its lock?  One system call. */
bool registry_proc_alive(struct registry *reg, uint32_t slot, const struct rds_procid *id);
/* Which slot has the process with that id?  Lock-free; whether it still lives is not asked. */
bool registry_proc_find(struct registry *reg, const struct rds_procid *id, uint32_t *slot);
/* Where this process listens for connections from other hosts (host byte order), for the others of the node; 0: it does not. */
void registry_set_cm_port(struct registry *reg, uint16_t port);
/* The same of another one; 0 also if the slot is not that process's.  Lock-free. */
uint16_t registry_proc_cm_port(struct registry *reg, uint32_t slot, const struct rds_procid *id);
/* Is it also the process `pid`, as the kernel says who holds that lock?  True if the pid is of a namespace that we do not see. */
bool registry_proc_pid_is(struct registry *reg, uint32_t slot, const struct rds_procid *id, pid_t pid);
/*
 * May a process have to do with this one (RDS_PRELOAD_SHARE)?  Who has opened the file was allowed to, and still is when he has given up his rights,
 * as services do when they have bound their ports; so are we.  System calls.
 */
bool registry_trusts(struct registry *reg, const struct ucred *cred);
/* Is it the user as whom this process has opened the file? */
bool registry_is_user(struct registry *reg, uid_t uid);
/* Reclaim everything that dead processes left. Number of processes reclaimed or -errno. */
int registry_reap(struct registry *reg);

/*
 * This process's counters: [RDS_STATS], added to without lock (single writer per counter or atomic add).  They end with
 * registry_close() and registry_abandon(), which put rds_stat_block back to the dummy if it points here.
 */
_Atomic uint64_t *registry_counters(struct registry *reg);
/* Node-wide sums, the dead included, monotonic. */
void registry_counters_sum(struct registry *reg, uint64_t out[RDS_STATS]);

/* Snapshots (malloc'ed, caller frees; *n entries; sockets in creation order, dead owners left out). 0 or -errno. */
int registry_socks(struct registry *reg, struct registry_sock **out, unsigned *n);
int registry_procs(struct registry *reg, struct registry_proc **out, unsigned *n);

#endif
