/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * info_revision.c - which rds-info asks?  Its records have grown at their ends ever since, and all tools but the first step by the size that they are told;
 * that one, of September 2006, steps by its own.  So do programs that were compiled with Linux's header: its records are what is given.  Oracle's are
 * longer, and are for who has used what only Oracle's kernels have, or says so (RDS_PRELOAD_ABI=uek).
 *
 * Nothing that it does tells it from those that follow it until November 2007, but all of these look the level's number up again before each
 * call, and ask for exactly as many bytes as they have been told.  So whoever does both twice in a row gets connections as long as they were
 * then, which serves all of these.  What the bits of their flags mean changed after three weeks, and cannot be told at all: what both have
 * is set in both places, and only the first tool shows something that is not so (RDS_PRELOAD_ABI=v2 settles it).
 * Must not know what a record holds.
 */

#include "engine/abi/revisions.h"
#include "engine/abi/foreign_memory.h"
#include "engine/sys/options.h"

/* The last call of this process: one word, as several threads may ask. */
union asked {
	uint64_t word;
	struct {
		uint32_t told; /* bytes that it needs; 0: it was given all */
		uint16_t opt;
		uint8_t reads; /* of the level's number, until then */
		bool fresh;    /* one of them was since the call before */
	};
};
_Static_assert(sizeof(union asked) == sizeof(uint64_t), "one word");

static _Atomic uint64_t last_query;

static bool tool_looks_up_each_time(int opt, int room)
{
	union asked was = {.word = atomic_load(&last_query)}, now = {.opt = (uint16_t)opt};

	now.reads = (uint8_t)rds_abi_level_reads();
	now.fresh = now.reads != was.reads;
	atomic_store(&last_query, now.word);
	return now.fresh && was.fresh && was.opt == now.opt && was.told && was.told == (uint32_t)room;
}

enum rds_info_revision rds_abi_info_revision(int opt, int room)
{
	bool each_time;

	if (rds_caller)
		return rds_caller->info < RDS_INFO_REVISIONS ? (enum rds_info_revision)rds_caller->info
							     : RDS_INFO_LINUX;
	each_time = tool_looks_up_each_time(opt, room);
	if (rds_options()->abi == RDS_ABI_V2)
		return RDS_INFO_2006_09;
	if (each_time && rds_options()->abi == RDS_ABI_AUTO)
		return RDS_INFO_2007;
	return rds_options()->abi == RDS_ABI_UEK || rds_abi_is_uek() ? RDS_INFO_UEK : RDS_INFO_LINUX;
}

void rds_abi_info_note_told(socklen_t len)
{
	union asked was = {.word = atomic_load(&last_query)};

	if (rds_caller)
		return;
	was.told = len;
	atomic_store(&last_query, was.word);
}
