/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * stats.c - the names of the counters, and the block that is used while there is no registry. The
 * code that opens the registry points rds_stat_block at registry_counters(); rds_stat_detach()
 * points it back at the dummy.
 */
#include "engine/node/stats.h"

const char *const rds_stat_names[RDS_STATS] = {
#define RDS_STAT_NAME(name) #name,
	RDS_STATS_TABLE(RDS_STAT_NAME)
#undef RDS_STAT_NAME
};

static _Atomic uint64_t dummy[RDS_STATS];

_Atomic uint64_t *_Atomic rds_stat_block = dummy;

void rds_stat_detach(void)
{
	atomic_store(&rds_stat_block, dummy);
}
