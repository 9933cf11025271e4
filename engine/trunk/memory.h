/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * memory.h - a trunk of this process, as the files of this package know it.
 */
#ifndef ENGINE_TRUNK_MEMORY_H
#define ENGINE_TRUNK_MEMORY_H

#include "engine/sys/compiler.h"
#include "engine/trunk/layout.h"

/*
 * Where the next entry goes.  What stays keeps its segment: so what one member does not take, a few short messages
 * perhaps, must not lie among what others take all the time.
 */
#define TRUNK_PLACES_IN 16u
#define TRUNK_PLACES (1 + TRUNK_PLACES_IN)
struct trunk_place {
	unsigned seg;
	uint32_t at; /* in that segment; 0: there is none */
};

struct rds_trunk {
	struct trunk_head *head;
	_Atomic unsigned users; /* 1, and the messages */
	struct rds_trunk_name name;
	uint64_t id, made;
	/* helper */
	struct rds_trunk *next; /* of this process */
	_Atomic int memory;
	const _Atomic int *box;	   /* NULL: it is in none */
	uint32_t packets, carried; /* numbers of carriers so far, and the one that is in the box */
	/* rx; what of it is in shared memory as well is never read there */
	uint64_t order;
	struct trunk_place place[TRUNK_PLACES]; /* OUT, and IN by port, modulo */
	uint8_t way[TRUNK_SEGS];		/* of the entries in each */
	unsigned high;				/* segments below have pages */
	uint32_t carrier;
	uint64_t base, done, end, frame_end;
	_Atomic unsigned live[TRUNK_SEGS]; /* entries in each */
	struct rds_trunk_member members[RDS_TRUNK_MEMBERS];
	uint32_t *former; /* NULL, or by place in `members`: the number that a former owner had */
};

static inline void trunk_step(void)
{
	if (unlikely(rds_trunk_step))
		rds_trunk_step();
}

/* A process has never so many messages under way.  So what is more behind is none of those: numbers wrap. */
#define TRUNK_LATE_MAX (1u << 23)

extern unsigned trunk_box_useless;  /* helper: packets that nobody needs any more (box.c) */
extern struct rds_trunk *trunk_all; /* helper: those that have not ended */

/* Its last number, also without a message. */
void trunk_member_note(struct rds_trunk *t, const struct rds_procid *id, uint32_t number);

#endif
