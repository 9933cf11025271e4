/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * layout.h - the memory of a trunk, as its owner writes it (memory.c) and the next one reads it
 * (image.c).
 *
 * Behind the head and the window there are *segments*.  In a segment lie *entries*, one behind the
 * other, up to used[segment]: an entry counts from the moment when that covers it.  One that is longer
 * than a segment has several, and used[] of the first one is more than a segment.
 */
#ifndef ENGINE_TRUNK_LAYOUT_H
#define ENGINE_TRUNK_LAYOUT_H

#include "engine/trunk/trunk.h"
#include "engine/wire/header.h"

#define TRUNK_MAGIC 0x6b6e7274u
#define TRUNK_VERSION 2u
#define TRUNK_SEG 65536u
#define TRUNK_SEGS 4096u
/* Two of the longest messages, and a read. */
#define TRUNK_FRAME_MAX ((size_t)RDS_MAX_MSG + RDS_WIRE_HDR)
#define TRUNK_WINDOW ((size_t)35 * TRUNK_SEG)
#define TRUNK_WINDOW_AT ((size_t)TRUNK_SEG)
#define TRUNK_SEGS_AT (TRUNK_WINDOW_AT + TRUNK_WINDOW)
#define TRUNK_SIZE (TRUNK_SEGS_AT + (size_t)TRUNK_SEGS * TRUNK_SEG)
#define TRUNK_READ_MOST ((size_t)256 << 10)
#define TRUNK_ALIGN 16u
_Static_assert(TRUNK_WINDOW >= 2 * TRUNK_FRAME_MAX + 2 * TRUNK_SEG, "the second half has room for a message");

struct trunk_entry {
	uint64_t order;	      /* of all entries */
	_Atomic uint64_t seq; /* struct rds_trunk_message */
	/* IN: the end of the message in the stream of that carrier */
	uint64_t end;
	uint32_t carrier;
	uint32_t len, number;
	uint16_t sport, dport;
	uint8_t way, marked;
	_Atomic uint8_t live;
	uint8_t pad[5];
	struct rds_procid member;
};
_Static_assert(sizeof(struct trunk_entry) % TRUNK_ALIGN == 0, "the next one is aligned, too");

struct trunk_slot {
	struct rds_procid id;
	_Atomic uint32_t number; /* 0: free */
};

struct trunk_head {
	uint32_t magic, version;
	uint64_t id;
	struct rds_trunk_name name;
	_Atomic uint32_t left;
	_Atomic uint32_t peer_gen;
	_Atomic uint64_t sent, acked, next_rx;
	/*
	 * Byte `base` of the carrier's stream is the first one of the window, and bytes before `done` are
	 * done.  How many were read the kernel knows; `end` is as of the last read that has returned.
	 */
	_Atomic uint32_t carrier; /* 0: the window is not in use */
	_Atomic uint32_t over;	  /* all that carriers up to that one have brought is done */
	_Atomic uint64_t base, done, end;
	_Atomic uint32_t used[TRUNK_SEGS];
	struct trunk_slot members[RDS_TRUNK_MEMBERS];
};
_Static_assert(sizeof(struct trunk_head) <= TRUNK_WINDOW_AT, "the window is behind the head");

/* So much is read at once. */
static inline size_t trunk_read_room(uint64_t base, uint64_t end)
{
	size_t room = TRUNK_WINDOW - (size_t)(end - base);

	return room < TRUNK_READ_MOST ? room : TRUNK_READ_MOST;
}

static inline size_t trunk_entry_size(uint32_t len)
{
	return (sizeof(struct trunk_entry) + len + TRUNK_ALIGN - 1) & ~(size_t)(TRUNK_ALIGN - 1);
}

#endif
