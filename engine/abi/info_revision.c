/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * info_revision.c - which version of rds-info asks?
 *
 * Records have grown at their ends since the first version.  All versions but the first advance by
 * the record size that the call returns.  The first one, of September 2006, advances by its own
 * size.  So do programs that were compiled with Linux's header; so they get Linux's records.
 * Oracle's records are longer.  A program gets these after it has used an option that only Oracle's
 * kernels have, or with RDS_PRELOAD_ABI=uek.
 *
 * The first version cannot be told from the later ones until November 2007.  But all of these read
 * the level's number again before each call, and ask for exactly as many bytes as the call before
 * has told them.  A program that does both twice in a row gets connection records of the length of
 * that time, which serves all of these versions.  The meaning of the bits in their flags changed
 * after three weeks, and the two meanings cannot be told apart.  A flag that both have is set in
 * both places, and only the first version shows something wrong (RDS_PRELOAD_ABI=v2 selects it).
 *
 * Must not know what a record contains.
 */

#include "engine/abi/revisions.h"
#include "engine/abi/foreign_memory.h"
#include "engine/sys/options.h"

/* The last call of this process: one atomic word, because several threads may call. */
union asked {
	uint64_t word;
	struct {
		uint32_t told; /* bytes that the call needs; 0: its room was enough */
		uint16_t opt;
		uint8_t reads; /* how often the level's number had been read by then */
		bool fresh;    /* it was read again since the call before */
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
