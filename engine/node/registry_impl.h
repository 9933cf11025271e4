/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * registry_impl.h - shared by the files of the registry (layout.h to snapshot.c).
 *
 * Order of locks: descriptor list (sys/own_fds.c) > reg->mutex > record lock of the current area's
 * byte. "Locked" below means that reg_lock() has succeeded.
 */
#ifndef ENGINE_NODE_REGISTRY_IMPL_H
#define ENGINE_NODE_REGISTRY_IMPL_H

#include <pthread.h>
#include <string.h>

#include "engine/sys/os.h"
#include "engine/node/registry.h"
#include "engine/node/layout.h"

/* An area, as this process has mapped it. */
struct reg_view {
	struct reg_area *_Atomic a;		  /* up to the first REG_PART_FIRST entries */
	struct reg_sock *_Atomic part[REG_PARTS]; /* ... further entries */
	/*
	 * Number of mapped socket entries that have memory behind them; no other entry may be
	 * touched. 0: do not read the area either.
	 */
	_Atomic uint32_t usable;
};

/*
 * Which file it is, and as whom it was opened by its name. The program, or the one that it comes from,
 * may have given up its rights since, or may not find the directory any more: the node stays.
 */
struct reg_identity {
	uint64_t dev, ino;
	uint64_t netns; /* of the sockets in it */
	uid_t uid;
	gid_t gid; /* of the directories, too (RDS_PRELOAD_SHARE=group) */
	/* Of the names of ports (port_name.c); "": no other user may join the node. */
	char domain[48];
};

struct registry {
	struct registry_pub pub; /* first: registry.h reads it */
	struct reg_file *f;	 /* up to its areas */
	struct reg_view view[REG_AREAS];
	/*
	 * Under the mutex: the last term that was seen. Locked: the term of the area that is being
	 * changed.
	 */
	uint64_t term;
	struct reg_view *at; /* locked: its area */
	off_t size;	     /* locked: size of the file */
	/* slab.c: NULL until used */
	_Atomic(struct reg_common *) common;
	_Atomic(unsigned char *) window[REG_WINDOWS];
	_Atomic bool no_common; /* this process cannot have them */
	struct os_fd fds;
	uint32_t slot;	 /* REG_PROCS until taken */
	bool joined;	 /* and the registry says that the slot is ours */
	bool suspicious; /* check the whole contents once */
	bool lost;	 /* its file was found without a name */
	bool waits;	 /* wait for the process that makes the file, as long as it takes */
	struct rds_procid id;
	uint64_t idw[2]; /* the same as words */
	pid_t pid;
	struct reg_identity identity;
	bool inherited; /* its descriptor came by fork or exec (inherited.c) */
	pthread_mutex_t mutex;
	bool starved;	/* had to wait long for the lock that it has now */
	/* Number of moves of the term by others since this process last completed a change. */
	unsigned moves;
	/*
	 * The process that had the lock when this process gave up waiting, as os_lock_holder()
	 * reports it; 0: none.
	 */
	int in_vain;
	char path[256]; /* for log lines */
};

struct reg_key {
	uint64_t addr[2];
	uint32_t scope;
	uint16_t port;
};

/*
 * The file's number in this thread's table. Record locks belong to a table: a helper with its own
 * table takes byte 0 like another process, and sees the lock on our own slot, which the program's
 * table holds, as another process's. No code asks about our own slot.
 */
static inline int reg_fd(struct registry *reg)
{
	return os_fd(&reg->fds);
}

#define REG_BAD UINT32_MAX /* a link that proves damage */

/* ---- file.c ---- */
/*
 * Finds or makes the file. On success it is open, mapped, locked (byte 0 and mutex) and of our
 * version.
 */
int reg_file_open(struct registry *reg);
/*
 * The same with a file that is open already: it has to be complete, and is neither filled in nor
 * made shorter. -EAGAIN: it is not complete, or nobody could find this process there.
 */
int reg_file_join(struct registry *reg);
void reg_file_close(struct registry *reg);
bool reg_file_is_complete(int fd);	    /* reads the contents of any file */
uint64_t reg_file_netns(void);		    /* of this process, now */
bool reg_file_intact(struct registry *reg); /* under the mutex: the file has not been truncated */
/* With the byte held: finds out how many entries of the area have memory behind them. 0 or -EIO. */
int reg_file_refresh(struct registry *reg);
/*
 * Locked: reserves one more chunk of entries and puts them on the list of unused ones. 0, -ENFILE,
 * -ENOSPC.
 */
int reg_file_grow(struct registry *reg);

/* The directory of that user's file on this node. 0 or -ENAMETOOLONG. */
int reg_dir_path(const struct registry *reg, uid_t uid, char *path, size_t len);
/* Ours: makes it if it does not exist. A descriptor, or -errno, which has been logged. */
int reg_dir_open(const struct registry *reg, char *path, size_t len);

/* ---- inherited.c ---- */
void reg_inherited_note(struct registry *reg); /* which file was opened by its name */
/* Joins the registry that this process has inherited. -ENOENT: there is none. */
int reg_inherited_join(struct registry *reg);
/* Keeps the descriptor for another try, or for a forked child. */
void reg_inherited_keep(struct registry *reg);

/* ---- other_version.c ---- */
/* A log line if processes of another version of the library are on this node. */
void reg_other_versions_tell(const struct registry *reg);

/* ---- lost_file.c ---- */
/*
 * The file of that descriptor is empty. Looks for a file that had the same name, that a living
 * process has open, and that fits. Returns a descriptor or -ENOENT. -EMFILE, -ENFILE, -ENOMEM: the
 * search could not look everywhere.
 */
int reg_lost_find(int named, bool (*fits)(int fd));

/* ---- file_lock.c ---- */
/*
 * Takes the mutex and the current area's byte, whatever the contents. -ESTALE: no file is mapped,
 * and the holder of the lock makes no progress.
 */
int reg_record_lock(struct registry *reg);
/*
 * Do the changes made under the lock count? False: others have gone on without this process
 * (area.c).
 */
bool reg_record_unlock(struct registry *reg);
bool reg_lock_is_ours(struct registry *reg); /* locked: changes would still count */
/*
 * With the byte held: the contents are sound or have been repaired, or -EIO. -EAGAIN: others have
 * gone on without this process.
 */
int reg_repair(struct registry *reg);
int reg_lock(struct registry *reg);    /* lock and repair */
int reg_trylock(struct registry *reg); /* lock and repair, or -EAGAIN at once */
#define reg_unlock reg_record_unlock
int reg_slot_holder(struct registry *reg, uint32_t slot); /* as os_lock_holder() */
bool reg_slot_held(struct registry *reg, uint32_t slot);  /* by another process */
int reg_slot_take(struct registry *reg, uint32_t slot);
void reg_slot_drop(struct registry *reg, uint32_t slot);
void reg_fd_moved(void *arg, int oldfd, int newfd);
/* These enclose changes. */
void reg_change_begin(struct registry *reg);
void reg_change_end(struct registry *reg);
void reg_bindings_begin(struct registry *reg);
void reg_bindings_end(struct registry *reg);

/* ---- area.c ---- */
/*
 * Any time: the area of that term, or the one from which it is copied. Its `usable` is 0 if it
 * cannot be mapped, or if only the holder of the lock may trust it.
 */
struct reg_view *reg_view_of(struct registry *reg, uint64_t term);
struct reg_view *reg_view_current(struct registry *reg);
/* Any time: maps the area with so many entries. The file may be too short for it. */
int reg_area_map(struct registry *reg, unsigned area, uint32_t n);
void reg_area_unmap(struct reg_view *v);
/* Under the mutex: number of entries for which the file is long enough. */
uint32_t reg_area_entries(struct registry *reg, unsigned area);
/* The same: that may have been used. A system call. */
uint32_t reg_area_written(struct registry *reg, unsigned area);
/*
 * Under the mutex: the holder of the current area's lock makes no progress. 0: this process has the
 * lock of another area, and the term.
 */
int reg_area_take_over(struct registry *reg);
/* With the byte held: completes the area that the term names. -EAGAIN: it is not ours any more. */
int reg_area_copy(struct registry *reg);

/* ---- slab.c ---- */
void reg_common_unmap(struct registry *reg);

/* ---- bindings.c ---- */
void reg_table_rebuild(struct registry *reg);				/* locked */
/* link, 0 or REG_BAD; any time */
uint32_t reg_table_find(struct reg_view *v, const struct reg_key *key);
void reg_table_link(struct registry *reg, uint32_t link, const struct reg_key *key);
uint32_t reg_sock_alloc(struct registry *reg);		 /* link or 0; inside reg_change_begin() */
void reg_sock_free(struct registry *reg, uint32_t link); /* inside reg_bindings_begin() */
/*
 * Locked: a port that is unused, searched from `start` upward with wrap; 0: none, also if damaged.
 * Unlocked: a hint.
 */
uint16_t reg_table_unused_port(struct reg_view *v, struct reg_key key, uint16_t start);

/* ---- own_entry.c ---- */
/* The entry of a number that registry_sock_add() returned, or NULL if damage has removed it. */
struct reg_sock *reg_sock_own(struct registry *reg, struct reg_view *v, uint32_t idx);

/* ---- registry.c ---- */
/* locked: reg_table_find() that repairs damage */
uint32_t reg_table_find_repaired(struct registry *reg, const struct reg_key *key);
struct reg_key reg_key_make(const struct in6_addr *addr, uint16_t port, uint32_t scope);

/* ---- port_name.c ---- */
void reg_ports_name(struct reg_identity *is); /* sets the domain; the rest is known */
/* Gives the socket the name of the port. 0, also without a socket (-1); -EADDRINUSE. */
int reg_port_hold(struct registry *reg, const struct reg_key *key, int fd);
/* Has a process of another user that name? False also if it is about to give it back. */
bool reg_port_is_anothers(struct registry *reg, const struct reg_key *key);
/* Locked: the process that had the port has ended, and nobody has the socket. */
void reg_port_clean(struct registry *reg, struct reg_sock *s);
/* What another user has written: process id, moved, cm_port. 0 or -EINVAL. */
int reg_port_parse(const char *text, long len, struct registry_owner *out);
/* The key of a port's name as the kernel lists it. False: it is no name of a port of this node. */
bool reg_port_key_parse(const struct registry *reg, const char *text, size_t len, struct reg_key *key);
/* As registry_lookup(), of the other users' processes. */
int reg_port_lookup(struct registry *reg, const struct reg_key *key, struct registry_owner *out);

/* ---- others.c ---- */
/* As registry_proc_is_of(). */
int reg_others_find(struct registry *reg, const struct rds_procid *id, const struct ucred *cred, uint32_t *slot);
uint32_t reg_others_slot(uid_t uid); /* 0: that number may be any user's */
bool reg_others_alive(uint32_t slot, const struct rds_procid *id);

/* ---- process.c ---- */
int reg_proc_join(struct registry *reg); /* locked: takes a slot; may be repeated */
void reg_proc_leave(struct registry *reg);
void reg_fold_finish(struct registry *reg); /* inside a rebuild */
bool reg_proc_is(struct registry *reg, struct reg_view *v, uint32_t slot, const uint64_t id[2]);
/* Any time: finds the slots of processes that have ended. Returns their number. */
struct reg_dead {
	uint64_t bits[REG_PROCS / 64];
};
int reg_proc_find_dead(struct registry *reg, struct reg_view *v, struct reg_dead *dead);
/*
 * Does any process have a descriptor of that socket, whichever process is its owner? Then returns
 * its name. Makes system calls.
 */
bool reg_sock_survives(struct reg_sock *s, struct rds_procid *name);
/* Is it an orphan that does not exist any more? Makes system calls. */
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

/* Inside reg_bindings_begin(). */
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
