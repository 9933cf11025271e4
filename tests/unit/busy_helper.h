/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * busy_helper.h - the engine's helper is at something else for as long as a test wants, so what
 * comes meanwhile comes all at once for it.
 */
#ifndef TESTS_UNIT_BUSY_HELPER_H
#define TESTS_UNIT_BUSY_HELPER_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/helper/helper.h"
#include "engine/progress/progress.h"
#include "engine/rds.h"
#include "engine/sys/compiler.h"
#include "engine/sys/fence.h"
#include "engine/sys/lock_order.h"
#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/sys/process.h"
#include "engine/transport/transport.h"
#include "engine/node/registry.h"
#include "engine/node/stats.h"
#include "engine/helper/leader.h"
#include "engine/wire/addr.h"

static _Atomic bool helper_busy, helper_free;

static void helper_waits(struct rds_timer *tm)
{
	(void)tm;
	atomic_store(&helper_busy, true);
	while (!atomic_load(&helper_free))
		os_poll(NULL, 0, 1);
}

/* Once in a process. */
static inline void helper_begins_to_wait(void)
{
	static struct rds_timer timer = {.fn = helper_waits};

	rds_timer_set(&timer, os_now_ns());
	while (!atomic_load(&helper_busy))
		os_poll(NULL, 0, 1);
}

static inline void helper_goes_on(void)
{
	atomic_store(&helper_free, true);
}

#endif
