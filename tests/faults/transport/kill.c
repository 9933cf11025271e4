/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * kill.c - the process that relays for others is killed (RDS_PRELOAD_FAULT=kill=N): at one step in N on
 * average of those between which the next one finds something else in a trunk or a box (engine/trunk).
 *
 * Only as often as there are files whose names begin as FAULT_KILLS says, and end in .0 to .7: each who is
 * killed has taken one.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/trunk/trunk.h"
#include "tests/faults/transport/fault.h"

#define KILLS 8u

static _Atomic uint64_t kill_rng;
static uint64_t kill_one_in;
static _Atomic bool kill_under_way;

static uint64_t kill_draw(void)
{
	uint64_t z = atomic_fetch_add(&kill_rng, 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static bool kill_may(const char *files)
{
	char name[256];
	unsigned i;

	for (i = 0; files && i < KILLS; i++) {
		snprintf(name, sizeof(name), "%s.%u", files, i);
		if (!unlink(name))
			return true;
	}
	return !files;
}

/* Two threads may come to a step at once: they die once, and take one file. */
static void kill_step(void)
{
	if (kill_draw() % kill_one_in || atomic_exchange(&kill_under_way, true))
		return;
	if (kill_may(getenv("FAULT_KILLS")))
		kill(getpid(), SIGKILL);
	atomic_store(&kill_under_way, false);
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
