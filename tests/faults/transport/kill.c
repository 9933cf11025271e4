/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * kill.c - the process that relays for others is killed (RDS_PRELOAD_FAULT=kill=N): at one step in N on
 * average of those between which the next one finds something else in a trunk or a box (engine/trunk).
 *
 * Only as long as the file exists that FAULT_KILL_WHILE names.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/trunk/trunk.h"
#include "tests/faults/transport/fault.h"

static _Atomic uint64_t kill_rng;
static uint64_t kill_one_in;

static uint64_t kill_draw(void)
{
	uint64_t z = atomic_fetch_add(&kill_rng, 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static void kill_step(void)
{
	const char *file = getenv("FAULT_KILL_WHILE");

	if (kill_draw() % kill_one_in == 0 && (!file || !access(file, F_OK)))
		kill(getpid(), SIGKILL);
}

bool fault_kill(const struct fault_spec *spec)
{
	const struct fault_spec alone = {.seed = spec->seed, .kill = spec->kill};

	if (!spec->kill)
		return false;
	kill_one_in = spec->kill;
	atomic_store(&kill_rng, spec->seed + (uint64_t)getpid() * 0x100000001b3u);
	rds_trunk_step = kill_step;
	return !memcmp(spec, &alone, sizeof(alone));
}
