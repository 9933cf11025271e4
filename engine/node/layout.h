/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * layout.h - the bytes of the registry file. No other package knows them.
 *
 *	header | process slots | area 0 .. area 3 | lines, slabs' owners | slab 0 ..
 *	each area: head | slot states | hash buckets | socket entries
 *
 * Data that is changed under the lock is in an area, and the term in the header tells which area
 * counts (area.c). Areas other than the first have no memory before they are needed. Room for
 * socket entries is reserved in chunks. Outside of the areas is data that has a single writer, the
 * process that holds the slot's byte, and memory that processes have in common (slab.c).
 *
 * Links are index + 1, so zeroed memory is an empty list. All data are naturally aligned atomics
 * that are read with acquire and written with release order, so the sequence counter works without
 * fences. Any change of this file is a new REG_VERSION, and the version is part of the file's name,
 * too.
 *
 * Record locks (the same in all versions): byte 0 = the process that changes the file (its area 0);
 * byte 1 + slot = the process of that slot is alive.
 */
#ifndef ENGINE_NODE_LAYOUT_H
#define ENGINE_NODE_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/node/registry.h"
#include "engine/node/stats.h"

#define REG_MAGIC UINT64_C(0x45444f4e53445200) /* "\0RDSNODE" */
/* 2: cm_port; 3: orphans; 4: names; 5: held; 6: congested; 7: left; 8: areas; 9: slabs */
#define REG_VERSION 10
#define REG_PROCS 1024
#define REG_SOCKS 65536
#define REG_CHUNK 1024 /* number of socket entries that are reserved at a time */
#define REG_BUCKETS 65536

#define REG_AREAS 4
#define REG_LINE REGISTRY_LINE

#define REG_LOCK_BYTE 0
#define REG_SLOT_BYTE(slot) (1 + (off_t)(slot))
#define REG_SLOT_BYTES_MAX 65536 /* room for the slots of any version */
#define REG_AREA_BYTE(area) ((area) ? (off_t)REG_SLOT_BYTES_MAX + (area) : (off_t)REG_LOCK_BYTE)

/*
 * The term is a number that only grows. It contains the number of its area. While REG_TERM_COPYING
 * is set, that area is not complete and must be copied from another one, whose number the term
 * contains, too.
 */
#define REG_TERM_AREA(term) ((unsigned)(term) % REG_AREAS)
#define REG_TERM_FROM(term) ((unsigned)(term) / REG_AREAS % REG_AREAS)
#define REG_TERM_COPYING UINT64_C(16)
#define REG_TERM_ONE UINT64_C(32)

/*
 * The counters of a dead process while they are added to the sums of the dead. The new sums are
 * written first, then `link` (slot + 1). From then on the next process with the lock finishes the
 * fold; to do it twice gives the same result.
 */
struct reg_fold {
	_Atomic uint64_t id[2];
	_Atomic uint64_t sum[RDS_STATS];
	_Atomic uint32_t link;
	uint32_t pad;
};

struct reg_header {
	/* Written once; magic last. */
	_Atomic uint64_t magic;
	_Atomic uint32_t version;
	_Atomic uint32_t shape; /* REG_SHAPE */

	/* Every sender reads it. Every change of bindings gives it a new value. */
	_Alignas(64) _Atomic uint64_t generation;
	_Alignas(64) _Atomic uint64_t term;
	/* the time at which a process that cannot get the lock last said so; only a hint */
	_Atomic uint64_t hungry;
};

#define REG_PROC_USED 1u
struct reg_proc {
	_Alignas(64) _Atomic int32_t pid;
	_Atomic uint64_t id[2];
	_Atomic uint64_t comm[2];
	/* port at which it listens for connections from other hosts; 0: it does not listen */
	_Atomic uint32_t cm_port;
	_Alignas(64) _Atomic uint64_t counters[RDS_STATS];
};

#define REG_SOCK_USED 0x10000u
/*
 * The value of `proc` for an orphan, a socket without an owner. Then `id` is the socket's own name.
 * The socket exists as long as the kernel knows the AF_UNIX name that is made of it.
 */
#define REG_NOBODY REG_PROCS
struct reg_sock {
	/* A look-up reads this part: one cache line. */
	_Alignas(64) _Atomic uint64_t addr[2];
	_Atomic uint64_t id[2]; /* of the owner */
	/*
	 * 0 = unused, else REG_SOCK_USED | port (0 = unbound). This one word tells whether the
	 * entry is used.
	 */
	_Atomic uint32_t mark;
	_Atomic uint32_t scope;
	_Atomic uint32_t next; /* chain of the bucket, or of the unused entries */
	_Atomic uint32_t proc; /* slot of the owner */
	_Atomic int32_t pid;
	_Atomic int32_t transport;
	_Atomic uint32_t moved; /* it has had another owner before */
	/* for snapshots, like the words below, whose cache line is full */
	_Atomic uint32_t congested;
	/* Only snapshots read this part. */
	_Alignas(64) _Atomic uint64_t connected[2];
	_Atomic uint64_t inode;
	_Atomic uint64_t order;
	_Atomic uint16_t connected_port;
	_Atomic uint16_t shared; /* other processes use it, too, or have used it */
	_Atomic uint32_t sndbuf, rcvbuf;
	/*
	 * An upper bound of the bytes in its mailbox (share/mailbox.c): never less than what
	 * is there.
	 */
	_Atomic uint32_t mailbox_bytes;
	/* the socket's own name; 0: it has none, and ends with its process */
	_Atomic uint64_t name[2];
};

struct reg_area {
	/* The readers' cache line. Odd while bindings change; every change leaves a new value. */
	_Alignas(4096) _Atomic uint64_t seq;

	/* The writers' cache line. */
	/* Set while anything is being changed. A process that finds it set rebuilds. */
	_Alignas(64) _Atomic uint32_t dirty;
	_Atomic uint32_t reserved;	     /* number of socket entries that exist */
	_Atomic uint32_t free;		     /* list of unused entries */
	_Atomic uint32_t orphans;	     /* there may be orphans: only a hint */
	_Atomic uint64_t order;		     /* creation order of the next socket */
	_Atomic uint64_t folds;		     /* number of folds that have been finished */
	/* changes whenever the holder of the lock makes progress */
	_Atomic uint32_t beat;

	_Alignas(64) _Atomic uint64_t dead[RDS_STATS]; /* counted by processes that have ended */
	struct reg_fold fold;
	/* 0 or REG_PROC_USED; written last when a slot is taken, first when it is freed */
	_Alignas(64) _Atomic uint32_t state[REG_PROCS];
	_Alignas(4096) _Atomic uint32_t bucket[REG_BUCKETS];
	_Alignas(4096) struct reg_sock sock[REG_SOCKS];
};

/* The areas follow it; each is mapped by itself, when it is needed. */
struct reg_file {
	_Alignas(4096) struct reg_header h;
	_Alignas(4096) struct reg_proc proc[REG_PROCS];
};

/* Differs if a part has changed its size and the version has not been changed. */
#define REG_SHAPE                                                                                                      \
	((uint32_t)(offsetof(struct reg_area, bucket) << 20 ^ sizeof(struct reg_proc) << 10 ^ sizeof(struct reg_sock)))

/* Each mapping begins on a page boundary of any machine. */
#define REG_PAGE 65536
#define REG_PAGES(n) (((n) + REG_PAGE - 1) / REG_PAGE * REG_PAGE)
#define REG_HEAD_SIZE REG_PAGES(sizeof(struct reg_file))
#define REG_AREA_OFFSET(area) (REG_HEAD_SIZE + (size_t)(area)*REG_PAGES(sizeof(struct reg_area)))
/* Size of an area with n entries, and of a file that has only the first area, with n entries. */
#define REG_AREA_SIZE(n) (offsetof(struct reg_area, sock) + (size_t)(n) * sizeof(struct reg_sock))
#define REG_SIZE(n) (REG_HEAD_SIZE + REG_AREA_SIZE(n))

/*
 * Memory in common (slab.c), behind the areas. A slab belongs to the process whose id begins with the
 * word `owner`; 0: to nobody, and it has no memory. The owner alone writes `slot`.
 */
#define REG_SLABS 4096
#define REG_SLAB_BYTES 65536
struct reg_slab {
	_Atomic uint64_t owner, rest; /* the id of the owner, whose slot may be another process's by now */
	_Atomic uint32_t slot;
	uint32_t pad;
};
struct reg_common {
	_Alignas(REG_LINE) unsigned char line[REG_PROCS][REG_LINE];
	_Alignas(4096) struct reg_slab slab[REG_SLABS];
};
#define REG_COMMON_OFFSET REG_AREA_OFFSET(REG_AREAS)
#define REG_COMMON_SIZE REG_PAGES(sizeof(struct reg_common))
#define REG_SLAB_OFFSET(n) (REG_COMMON_OFFSET + REG_COMMON_SIZE + (size_t)(n)*REG_SLAB_BYTES)
#define REG_WINDOW 16 /* slabs that are mapped together */
#define REG_WINDOWS (REG_SLABS / REG_WINDOW)
#define REG_WINDOW_SIZE ((size_t)REG_WINDOW * REG_SLAB_BYTES)

/*
 * An area is mapped as far as it is used: first the part before the entries with so many entries,
 * then so many entries at a time. Each part begins on a page of any machine.
 */
#define REG_PART 2048
#define REG_AREA_MAPPED REG_PAGES(REG_AREA_SIZE(REG_PART))
#define REG_PART_FIRST ((uint32_t)((REG_AREA_MAPPED - REG_AREA_SIZE(0)) / sizeof(struct reg_sock)))
#define REG_PART_SIZE (REG_PART * sizeof(struct reg_sock))
#define REG_PARTS (REG_SOCKS / REG_PART)
_Static_assert(REG_PART_SIZE % REG_PAGE == 0, "a part begins on a page");

_Static_assert(sizeof(struct reg_sock) == 128, "two cache lines");
_Static_assert(offsetof(struct reg_sock, connected) == 64, "a look-up reads one line");
_Static_assert(sizeof(_Atomic uint64_t) == 8 && sizeof(_Atomic uint32_t) == 4 && sizeof(_Atomic uint16_t) == 2,
	       "atomics are plain words");
_Static_assert(REG_SOCKS % REG_CHUNK == 0, "the last chunk is whole");
_Static_assert(REG_AREAS *REG_AREAS <= REG_TERM_COPYING, "two areas fit into a term");

#define reg_load(p) atomic_load_explicit((p), memory_order_acquire)
#define reg_store(p, v) atomic_store_explicit((p), (v), memory_order_release)

#endif
