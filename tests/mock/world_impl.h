/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * world_impl.h - what world.c runs of the helper's services (world_helper.c).
 */
#ifndef TEST_WORLD_IMPL_H
#define TEST_WORLD_IMPL_H

#include "tests/mock/world.h"

extern struct rds_timer *world_timers; /* the next one first */

/* One timer that is due; all events that there are now.  False: there was nothing. */
bool world_timers_run(void);
bool world_events_run(void);

#endif
