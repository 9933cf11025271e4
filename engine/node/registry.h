/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * registry.h - the node in shared memory: which processes are alive, which process owns which
 * (address, port), and node-wide counters.
 *
 * There is one file per network namespace and user below RDS_PRELOAD_REGISTRY_DIR (default
 * /dev/shm). A process that has it open holds a record lock on the byte of its own slot. The kernel
 * drops that lock however the process ends. So a living process can always be told from a dead one,
 * and the next process that needs the room reclaims what the dead process left. All changes are
 * made under one record lock of the file (plus an in-process mutex). Readers use a sequence counter
 * and never block.
 *
 * Everything read from the file is checked: a damaged file is an error with a log line, never a
 * crash or an endless loop. This file must not know sockets as objects, connections or transports.
 */
#ifndef ENGINE_NODE_REGISTRY_H
#define ENGINE_NODE_REGISTRY_H

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

/* What the registry knows of one socket, by value. Ports in host byte order. */
struct registry_sock {
	struct in6_addr bound;	   /* v4 as v4-mapped; :: while unbound */
	struct in6_addr connected; /* :: while not connected */
	uint32_t scope;
	uint16_t bound_port, connected_port;
	uint32_t sndbuf, rcvbuf; /* RDS limits (halved values) */
	uint64_t inode;
	uint64_t order; /* creation order on this node */
	uint32_t sock;	/* index of its entry */
	int32_t transport;
	uint32_t proc; /* slot of the owner */
	int32_t pid;
	bool congested; /* as its owner set it last */
	struct rds_procid procid;
};

struct registry_proc {
	uint32_t slot;
	int32_t pid;
	struct rds_procid id;
	char comm[16];
};

/*
 * Attaches to the node's registry (makes it if it does not exist), or to one that this process has
 * inherited, and takes a process slot under a fresh random process id. -EACCES/-EPERM (wrong owner
 * or mode), -ENOSPC (no room in the directory), -EPROTO (other version or damaged, and in use by
 * live processes), -EMFILE, -ENOMEM, -EUSERS (no process slot), -ENOENT (no such directory),
 * -ETIMEDOUT (see below), -EBUSY (this process has it open already: record locks belong to a
 * process, and closing a second handle would drop the locks of the first). Each failure has been
 * logged with what to do.
 *
 * If a process is stopped while it has the record lock, the others go on without it after 100 ms.
 * It makes its change again when it continues. If the others cannot go on without it (no memory, or
 * several processes are stopped), every function here that takes the record lock gives up with
 * -ETIMEDOUT after 5 seconds, or after 20 ms if it has waited for that process before. -EIO: the
 * contents cannot be trusted any more (truncated, or this process was taken for dead).
 */
int registry_open(struct registry **out);
/* this process's registry; NULL before its first socket */
extern struct registry *rds_node_registry;
/* Leaves in order: frees sockets and slot, adds the counters to the node's, closes. */
void registry_close(struct registry *reg);
/*
 * In a forked child, before it opens a registry of its own (closing any descriptor of the file
 * drops the locks on it): only unmaps and closes; the parent's lock and data stay as they are.
 */
void registry_abandon(struct registry *reg);
/*
 * inherited.c. Abandons this process's registry, and keeps only the descriptor: registry_open()
 * joins that file. _drop(): it will not. _fd(): the descriptor or -1. For an exec: rds.h.
 */
void rds_node_fork_child(void);
void rds_node_inherited_drop(void);
int rds_node_inherited_fd(void);

/*
 * The descriptor numbers of the file. The registry manages the one in the program's table. The code
 * that exports it to the helper stores the helper's number there (helper/fd_exchange.c).
 */
struct os_fd *registry_fds(struct registry *reg);
const struct rds_procid *registry_self(const struct registry *reg);
uint32_t registry_self_slot(const struct registry *reg);
/* The part of struct registry that the inline function below needs. */
struct registry_pub {
	const _Atomic uint64_t *generation;
};
/*
 * Changes whenever any (address, port) binding on the node has changed. One load of a shared cache
 * line.
 */
static inline uint64_t registry_generation(const struct registry *reg)
{
	return atomic_load_explicit(((const struct registry_pub *)(const void *)reg)->generation, memory_order_acquire);
}

/*
 * Sockets. idx is the number of the entry, valid until the entry is removed. -ENFILE (65536 on the
 * node), -ENOSPC.
 */
int registry_sock_add(struct registry *reg, uint64_t inode, uint32_t sndbuf, uint32_t rcvbuf, uint32_t *idx);
/*
 * Claims (addr, port, scope). port 0: probes upward from a random start in 2..65535 with wrap
 * (net/rds/bind.c: rds_add_bound()). Entries of dead processes do not count: they are reclaimed on
 * the way. -EADDRINUSE; -EBUSY (the same, but the port's socket is one that several processes use:
 * its last copy may just have been closed); -ENOMEM; -EIO (damaged).
 */
int registry_sock_bind(struct registry *reg, uint32_t idx, const struct in6_addr *addr, uint16_t port, uint32_t scope,
		       int transport, uint16_t *bound_port);
/*
 * The same where processes of other users have ports, too (registry_has_others()). hold: an AF_UNIX
 * stream socket without a name, which gets the name of the port. It keeps the port from other users
 * until its last copy is closed. After -errno the caller closes it.
 */
int registry_sock_claim(struct registry *reg, uint32_t idx, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			int transport, int hold, uint16_t *bound_port);
/*
 * Shows other users that this process has the port. moved: another process had its socket before.
 * hide: no process has it now, because its socket is closed or gets another owner.
 */
void registry_port_show(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope, int hold,
			bool moved);
void registry_port_hide(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope);
/* Has that socket the name of the port? */
bool registry_port_is_held(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope, int fd);
/* Whose socket has the name of the port and listens, a stranger's included? Of any process on the host. */
bool registry_port_holder(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			  struct ucred *cred);
/* Takes the name of a port whose socket this process has taken over. 0 or -EADDRINUSE. */
int registry_port_hold(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope, int hold);
/*
 * Stores the socket's name (socket_name.h). If the process ends and the socket still exists,
 * because other processes have descriptors of it, it becomes an orphan instead of being removed.
 */
void registry_sock_set_name(struct registry *reg, uint32_t idx, const struct rds_procid *name);
void registry_sock_set_connected(struct registry *reg, uint32_t idx, const struct in6_addr *addr, uint16_t port);
void registry_sock_set_bufs(struct registry *reg, uint32_t idx, uint32_t sndbuf, uint32_t rcvbuf);
/* Takes no lock, and needs none. */
void registry_sock_set_congested(struct registry *reg, uint32_t idx, bool congested);
/* Other processes use the socket through this one, or have done so. */
void registry_sock_set_shared(struct registry *reg, uint32_t idx);
void registry_sock_remove(struct registry *reg, uint32_t idx);

/*
 * The owner leaves, and another process may take the socket over. Its port stays taken by an orphan
 * (REGISTRY_NOBODY) as long as the socket of that name exists (socket_name.h). -EIO.
 */
int registry_sock_orphan(struct registry *reg, uint32_t idx, const struct rds_procid *name);
/*
 * This process is the owner from now on. -ENOENT: the socket cannot be taken over (any more). sure:
 * the caller knows that no other process owns it, even if the registry does not know that yet.
 */
int registry_sock_take_over(struct registry *reg, uint32_t idx, const struct rds_procid *name, bool sure);
/*
 * Could the lock be taken now? 0, or the reason why no process can change anything. For a caller
 * that must not fail later, once it has begun.
 */
int registry_check_lock(struct registry *reg);
/* The binding and the transport of the socket of that name. Port 0: it is unbound. -ENOENT. */
int registry_sock_get_binding(struct registry *reg, uint32_t idx, const struct rds_procid *name,
			      struct registry_sock *out);
/*
 * The socket of that name was an orphan: has its last copy been closed? No if another process has
 * taken it over; yes if another socket has its entry by now. Makes system calls.
 */
bool registry_sock_is_gone(struct registry *reg, uint32_t idx, const struct rds_procid *name);

/* The number of a socket that exists: `order` of struct registry_owner. Lock-free. */
uint64_t registry_sock_order(struct registry *reg, uint32_t idx);

#define REGISTRY_NOBODY 1024u /* not a process slot */
/*
 * The processes of other users (RDS_PRELOAD_SHARE) have slots in registries that this process does
 * not see. Here they have this number plus the user's instead. So the functions that take a slot
 * and an id know of which user the process has to be; the kernel tells whether it is.
 */
#define REGISTRY_OTHERS 0x10000u
static inline bool registry_slot_is_others(uint32_t slot)
{
	return slot >= REGISTRY_OTHERS && slot != UINT32_MAX;
}
/* May processes of other users join the node? */
bool registry_has_others(void);
/* What tells this node from others on the host, as text; "" without other users. */
const char *registry_domain(const struct registry *reg);
struct registry_owner {
	uint32_t proc; /* slot, or REGISTRY_NOBODY */
	uint32_t sock; /* entry index */
	int32_t pid;
	int32_t transport; /* of that socket */
	bool moved;	   /* another process owned it before this one */
	bool others;	   /* it is another user's: `sock` and `order` are not known */
	uint16_t cm_port;  /* ... and registry_proc_cm_port() */
	struct rds_procid procid;
	/* Of that socket, and the same for each owner: no other socket of the node has had it. */
	uint64_t order;
};
/*
 * The owner of (addr, port, scope): 0, or -ENOENT. Lock-free; does not check that the owner is
 * alive. -EIO or -ETIMEDOUT only if a writer died or hangs in the middle of a change and the
 * registry could not be repaired.
 */
int registry_lookup(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
		    struct registry_owner *out);
/*
 * The same, and if no process of this user has the port, asks who else has. That takes some system
 * calls, and none of them waits. REGISTRY_NOBODY, with `others`: somebody has the port, but which
 * process has it cannot be told now.
 */
int registry_lookup_all(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			struct registry_owner *out);
/*
 * May a process of another user send from that port? 1: it has the port, another process of its user
 * has it, or nobody. 0: somebody else has it. -EAGAIN: that cannot be told now. Never waits.
 */
int registry_port_is_of(struct registry *reg, uint32_t slot, const struct rds_procid *id, const struct in6_addr *addr,
			uint16_t port, uint32_t scope);
/*
 * The same as registry_lookup(), but never waits for the record lock: -EIO or -EAGAIN where
 * registry_lookup() would wait.
 */
int registry_lookup_nowait(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			   struct registry_owner *out);
/*
 * mailbox_bytes: what is in a socket's mailbox, as its senders count it. rcvbuf: how many bytes of
 * messages the socket accepts.
 */
struct registry_mailbox {
	uint32_t mailbox_bytes, rcvbuf;
};
void registry_sock_mailbox(struct registry *reg, uint32_t idx, struct registry_mailbox *out);
/* Sets the mailbox to empty. This process must be the owner. */
void registry_sock_mailbox_clear(struct registry *reg, uint32_t idx);
/*
 * If (addr, port, scope) belongs to an orphan, calls act() with the socket's name and returns its
 * result; else -ENOENT. No process takes the socket over meanwhile. If act() succeeds, the mailbox
 * has `more` bytes more. The call never waits: -EAGAIN, also if the mailbox does not hold exactly
 * `left` bytes now.
 *
 * If this process is stopped meanwhile, others go on without it, and one of them may take the
 * socket over. So act() asks registry_lock_is_ours() at the time when another process could find
 * what it is about to leave there, but before it has left it.
 */
bool registry_lock_is_ours(struct registry *reg);
int registry_orphan_act(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope, uint32_t left,
			uint32_t more, int (*act)(const struct rds_procid *name, void *arg), void *arg);
/*
 * Does the process with that slot and id still hold its lock? One system call. Of another user's
 * process: does it still listen?
 */
bool registry_proc_alive(struct registry *reg, uint32_t slot, const struct rds_procid *id);
/* The slot of the process with that id. Lock-free; does not check that the process is alive. */
bool registry_proc_find(struct registry *reg, const struct rds_procid *id, uint32_t *slot);
/*
 * Sets the port at which this process listens for connections from other hosts (host byte order),
 * for the other processes of the node; 0: it does not listen.
 */
void registry_set_cm_port(struct registry *reg, uint16_t port);
/* That port of another process; 0 also if the slot is not that process's. Lock-free. */
uint16_t registry_proc_cm_port(struct registry *reg, uint32_t slot, const struct rds_procid *id);
/* Its process number, for log lines; 0: the slot is not that process's. Lock-free. */
pid_t registry_proc_pid(struct registry *reg, uint32_t slot, const struct rds_procid *id);
/*
 * Is that process also the process `pid`, which holds the slot's lock according to the kernel? True
 * also if the pid is of a namespace that we do not see.
 */
bool registry_proc_pid_is(struct registry *reg, uint32_t slot, const struct rds_procid *id, pid_t pid);
/*
 * Is that process, which says that it has this id, and this slot in its registry, the one with these
 * credentials? 0, and *slot gets its number here; -EACCES: no; -EAGAIN: that cannot be told now. Makes
 * system calls.
 */
int registry_proc_is_of(struct registry *reg, uint32_t *slot, const struct rds_procid *id, const struct ucred *cred);
/*
 * May that process communicate with this one (RDS_PRELOAD_SHARE)? A process that has opened the
 * file was allowed to, and still is after it has given up its rights, as services do when they have
 * bound their ports. The same is true of this process. Makes system calls.
 */
bool registry_trusts(struct registry *reg, const struct ucred *cred);
/* ... and is a process of this registry, or of its user? */
bool registry_is_member(struct registry *reg, const struct ucred *cred);
/* Is it the user whose file this is? */
bool registry_is_user(struct registry *reg, uid_t uid);
/*
 * Reclaims everything that dead processes left. Returns the number of processes reclaimed, or
 * -errno.
 */
int registry_reap(struct registry *reg);
/* The same of the process of one slot, at a cost that does not depend on how many others there are. */
int registry_reap_proc(struct registry *reg, uint32_t slot);

/*
 * Memory that the processes of this registry have in common, for a transport. What it means is the
 * transport's matter; anybody among them may write anything there at any time.
 *
 * A line of REGISTRY_LINE bytes for each process slot, as the slot's last owner has left it. The
 * address is valid until registry_close(). NULL: there is no such slot, or this process cannot have
 * that memory (limits of address space or file size, no room): it has none as long as it lives.
 */
#define REGISTRY_LINE 64
void *registry_line(struct registry *reg, uint32_t slot);
/*
 * A slab is REGISTRY_SLAB_BYTES of zeros, which belongs to one process, and has pages that exist. 0,
 * and *n is its number; -ENOSPC (the file system is full, or there is none left), -ENOMEM,
 * -EOPNOTSUPP: as registry_line(). Of a process that ends without registry_slab_drop() the slabs stay.
 */
#define REGISTRY_SLABS 4096u
#define REGISTRY_SLAB_BYTES 65536u
int registry_slab_take(struct registry *reg, uint32_t *n);
void registry_slab_drop(struct registry *reg, uint32_t n); /* this process's */
/*
 * Its address; NULL: no such slab, or it belongs to nobody. Valid until registry_close(). Only who knows
 * that its owner does not drop it now may touch it: a page that has been given back may not exist any
 * more, which is SIGBUS on a full file system.
 */
void *registry_slab(struct registry *reg, uint32_t n);
/* The same of one that this process has taken, whatever others have written into the word of its owner. */
void *registry_slab_own(struct registry *reg, uint32_t n);
/* Anybody's slab, and at any time: a copy of REGISTRY_SLAB_BYTES. */
bool registry_slab_read(struct registry *reg, uint32_t n, void *bytes);
/* Whose is it? The slot is a hint of the owner. False: nobody's. */
bool registry_slab_owner(struct registry *reg, uint32_t n, uint64_t *owner, uint32_t *slot);
/* The same, and all of its id: also of an owner that has ended, and whose slot is another process's. */
bool registry_slab_id(struct registry *reg, uint32_t n, struct rds_procid *id, uint32_t *slot);
/* The word by which registry_slab_owner() names that process. */
uint64_t registry_slab_word(const struct rds_procid *id);
/* Of whoever has the slot, or had it last. False: there is no such slot. */
bool registry_proc_id(struct registry *reg, uint32_t slot, struct rds_procid *id);
/* Does a process of that word live? One system call, and a look at all slots. */
bool registry_slab_word_lives(struct registry *reg, uint64_t word);
/*
 * This process has it instead of that one, which has ended. False: another process was first. Its
 * contents are as the other one has left them.
 */
bool registry_slab_inherit(struct registry *reg, uint32_t n, uint64_t from);

/*
 * This process's counters: [RDS_STATS]. They are added to without a lock (a single writer per
 * counter, or an atomic add). They end with registry_close() and registry_abandon(), which point
 * rds_stat_block back at the dummy if it points here.
 */
_Atomic uint64_t *registry_counters(struct registry *reg);
/* Node-wide sums, including dead processes; monotonic. */
void registry_counters_sum(struct registry *reg, uint64_t out[RDS_STATS]);

/*
 * Snapshots: malloc'ed, the caller frees; *n entries; sockets in creation order; dead owners are
 * left out. 0 or -errno.
 */
int registry_socks(struct registry *reg, struct registry_sock **out, unsigned *n);
int registry_procs(struct registry *reg, struct registry_proc **out, unsigned *n);
/* Adds those of other users that have joined the node, and have bound a port; they have no `comm`. */
int registry_add_others(struct registry *reg, struct registry_proc **procs, unsigned *n);

#endif
