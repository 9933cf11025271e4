/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * registry_impl.h - what the files registry*.c share.
 *
 * Order of locks: descriptor list (sys/own_fds.c) > reg->mutex > record lock of the current area's byte.  "Locked" below means that
 * reg_lock() has succeeded.
 */
#ifndef ENGINE_REGISTRY_IMPL_H
#define ENGINE_REGISTRY_IMPL_H

#include <pthread.h>
#include <string.h>

#include "engine/sys/os.h"
#include "engine/node/registry.h"
#include "engine/node/layout.h"

/* An area as this process knows it. */
struct reg_view {
	struct reg_area *_Atomic a;		  /* up to the first REG_PART_FIRST entries */
	struct reg_sock *_Atomic part[REG_PARTS]; /* ... further ones */
	_Atomic uint32_t
		usable; /* mapped socket entries known to have memory behind them: never touch others; 0: no look at the area either */
};

struct registry {
	struct registry_pub pub; /* first: registry.h reads it */
	struct reg_file *f;	 /* up to its areas */
	struct reg_view view[REG_AREAS];
	uint64_t term;	     /* under the mutex: the last that was seen; locked: of what is being changed */
	struct reg_view *at; /* locked: its area */
	off_t size;	     /* locked: of the file */
	struct os_fd fds;
	uint32_t slot;	 /* REG_PROCS until taken */
	bool joined;	 /* and the registry says that it is ours */
	bool suspicious; /* look at everything once */
	bool lost;	 /* its file has been found without a name */
	bool waits;	 /* for who makes the file, as long as it takes */
	struct rds_procid id;
	uint64_t idw[2]; /* the same as words */
	pid_t pid;
	uid_t uid; /* when it was opened: the program may have given up its rights since */
	pthread_mutex_t mutex;
	bool starved;	/* had to wait long for the lock that it has now */
	unsigned moves; /* of the term by others since a change of ours was last done */
	int in_vain;	/* who had the lock when it was given up, as os_lock_holder(); 0: nobody */
	char path[256]; /* for log lines */
};

struct reg_key {
	uint64_t addr[2];
	uint32_t scope;
	uint16_t port;
};

/*
 * The file, in this thread's table.  Record locks belong to a table: the helper's, if it has its own, takes byte 0 like
 * another process, and sees the lock on our own slot, which the program's table holds, as somebody's.  Nothing asks about our
 * own slot.
 */
static inline int reg_fd(struct registry *reg)
{
	return os_fd(&reg->fds);
}

#define REG_BAD UINT32_MAX /* a link that proves damage */

/* ---- file.c ---- */
/* Finds or makes the file; on success it is open, mapped, locked (byte 0 and mutex) and of our version. */
int reg_file_open(struct registry *reg);
void reg_file_close(struct registry *reg);
bool reg_file_intact(struct registry *reg); /* under the mutex: not truncated under our feet */
/* Holding the byte: learns how many entries of the area have memory behind them. 0 or -EIO. */
int reg_file_refresh(struct registry *reg);
/* Locked: reserve one more chunk of entries and put them on the list of unused. 0, -ENFILE, -ENOSPC. */
int reg_file_grow(struct registry *reg);

/* ---- lost_file.c ---- */
/* The file of that descriptor is empty: one that had the same name, that a living process has open, and that fits; a descriptor or -ENOENT;
 * -EMFILE, -ENFILE, -ENOMEM: it could not be looked everywhere. */
int reg_lost_find(int named, bool (*fits)(int fd));

/* ---- file_lock.c ---- */
/* Mutex and the current area's byte, whatever the contents.  -ESTALE: nothing is mapped, and who has the lock does not get on. */
int reg_record_lock(struct registry *reg);
/* Has anything that was done under the lock been done, or has somebody gone on without us (area.c)? */
bool reg_record_unlock(struct registry *reg);
bool reg_lock_is_ours(struct registry *reg); /* locked: it would still have been done */
/* Holding the byte: sound, or made sound, or -EIO; -EAGAIN: somebody has gone on without us. */
int reg_repair(struct registry *reg);
int reg_lock(struct registry *reg);    /* both */
int reg_trylock(struct registry *reg); /* both, or -EAGAIN at once */
#define reg_unlock reg_record_unlock
int reg_slot_holder(struct registry *reg, uint32_t slot); /* as os_lock_holder() */
bool reg_slot_held(struct registry *reg, uint32_t slot);  /* by another process than this one */
int reg_slot_take(struct registry *reg, uint32_t slot);
void reg_slot_drop(struct registry *reg, uint32_t slot);
void reg_fd_moved(void *arg, int oldfd, int newfd);
/* Brackets around changes. */
void reg_change_begin(struct registry *reg);
void reg_change_end(struct registry *reg);
void reg_bindings_begin(struct registry *reg);
void reg_bindings_end(struct registry *reg);

/* ---- area.c ---- */
/*
 * Any time: the area of that term, or the one that it is copied from.  Its `usable` is 0 if it cannot be mapped, or only be
 * trusted by who has the lock.
 */
struct reg_view *reg_view_of(struct registry *reg, uint64_t term);
struct reg_view *reg_view_current(struct registry *reg); /* the current one */
/* Any time: mapped, with so many entries; the file may be too short for it. */
int reg_area_map(struct registry *reg, unsigned area, uint32_t n);
void reg_area_unmap(struct reg_view *v);
/* Under the mutex: entries for which the file is long enough. */
uint32_t reg_area_entries(struct registry *reg, unsigned area);
/* Under the mutex: the current area's lock is held by somebody who does not get on.  0: we have that of another one, and the term. */
int reg_area_take_over(struct registry *reg);
int reg_area_copy(
	struct registry *reg); /* holding the byte: what the term says is complete. -EAGAIN: not ours any more */

/* ---- bindings.c ---- */
void reg_table_rebuild(struct registry *reg);				/* locked */
uint32_t reg_table_find(struct reg_view *v, const struct reg_key *key); /* link, 0 or REG_BAD; any time */
void reg_table_link(struct registry *reg, uint32_t link, const struct reg_key *key);
uint32_t reg_sock_alloc(struct registry *reg);		 /* link or 0; inside reg_change_begin */
void reg_sock_free(struct registry *reg, uint32_t link); /* inside reg_bindings_begin */
/* Locked: port from `start` upward with wrap that is unused; 0 none, also if damaged. Unlocked: a hint. */
uint16_t reg_table_unused_port(struct reg_view *v, struct reg_key key, uint16_t start);

/* ---- registry.c ---- */
/* The entry behind a number that registry_sock_add() gave out, or NULL if damage has taken it away. */
struct reg_sock *reg_sock_own(struct registry *reg, struct reg_view *v, uint32_t idx);
uint32_t reg_table_find_repaired(
	struct registry *reg, const struct reg_key *key); /* locked: reg_table_find that mends what it stumbles over */
struct reg_key reg_key_make(const struct in6_addr *addr, uint16_t port, uint32_t scope);

/* ---- process.c ---- */
int reg_proc_join(struct registry *reg); /* locked: take a slot; also for the second time */
void reg_proc_leave(struct registry *reg);
void reg_fold_finish(struct registry *reg); /* inside a rebuild */
bool reg_proc_is(struct registry *reg, struct reg_view *v, uint32_t slot, const uint64_t id[2]);
/* Any time: which slots are taken by processes that are gone. Returns how many. */
struct reg_dead {
	uint64_t bits[REG_PROCS / 64];
};
int reg_proc_find_dead(struct registry *reg, struct reg_view *v, struct reg_dead *dead);
/* Has somebody a descriptor of that socket, whoever its owner was?  Then by this name.  System calls. */
bool reg_sock_survives(struct reg_sock *s, struct rds_procid *name);
/* A socket of nobody that does not exist any more?  System calls. */
bool reg_orphan_gone(struct reg_sock *s);
void reg_orphan_sweep(struct registry *reg); /* locked */
int reg_proc_reap(struct registry *reg, const struct reg_dead *dead);

/* Locked. */
static inline struct reg_area *reg_area(const struct registry *reg)
{
	return atomic_load_explicit(&reg->at->a, memory_order_relaxed);
}

static inline uint32_t reg_usable(const struct reg_view *v)
{
	return reg_load(&v->usable);
}

/* Locked. */
static inline void reg_heartbeat(struct registry *reg)
{
	struct reg_area *a = reg_area(reg);

	reg_store(&a->beat, reg_load(&a->beat) + 1);
}

static inline struct reg_sock *reg_sock_at(const struct reg_view *v, uint32_t link)
{
	uint32_t further = link - 1 - REG_PART_FIRST;

	if (link <= REG_PART_FIRST)
		return &reg_load(&v->a)->sock[link - 1];
	return reg_load(&v->part[further / REG_PART]) + further % REG_PART;
}

static inline void reg_words_store(_Atomic uint64_t to[2], const void *from)
{
	uint64_t w[2];

	memcpy(w, from, sizeof(w));
	reg_store(&to[0], w[0]);
	reg_store(&to[1], w[1]);
}

static inline void reg_words_load(void *to, _Atomic uint64_t from[2])
{
	uint64_t w[2] = {reg_load(&from[0]), reg_load(&from[1])};

	memcpy(to, w, sizeof(w));
}

/* Inside reg_bindings_begin. */
static inline void reg_sock_set_owner(struct reg_sock *s, uint32_t proc, int32_t pid, const void *id)
{
	reg_store(&s->proc, proc);
	reg_store(&s->pid, pid);
	reg_store(&s->moved, 1);
	reg_words_store(s->id, id);
}

static inline bool reg_words_eq(_Atomic uint64_t a[2], const uint64_t b[2])
{
	return reg_load(&a[0]) == b[0] && reg_load(&a[1]) == b[1];
}

#endif
