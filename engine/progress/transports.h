/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * transports.h - the transports that reach other processes, used as one.
 *
 * There is always one for the processes of this host (rds_transport_set.shm; with
 * RDS_PRELOAD_TRANSPORT=loop it is the loop transport, which has nothing to receive), and perhaps
 * one that reaches other hosts (rds_transport_set.remote).  That one takes part from the moment it
 * claims an address; then it stays on.  A process that uses none of its devices pays one test that
 * is never true.
 */
#ifndef ENGINE_PROGRESS_TRANSPORTS_H
#define ENGINE_PROGRESS_TRANSPORTS_H

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
#include "engine/progress/state.h"

/* Chooses them, by RDS_PRELOAD_TRANSPORT; called while the engine is made. */
void rds_transports_choose(void);
/* In the helper.  start: 0 or -errno; stop: undoes it. */
int rds_transports_start(void);
void rds_transports_stop(void);
/* Does the helper have to share the program's descriptor table?  Asked before it starts. */
bool rds_transports_share_table(void);
/* Is there a device that the remote transport could use? */
bool rds_transports_have_device(void);
/*
 * control held, helper up.  1: the address is on a device of the remote transport; 0: it is not;
 * -errno: it is, but cannot be used, which has been logged.
 */
int rds_transports_claim(const struct in6_addr *addr, uint32_t scope);

/* ---- rx held ---- */

static inline bool rds_transports_progress(void)
{
	bool moved = rds_transport_set.shm->ops->progress(rds_transport_set.shm);

	if (unlikely(rds_transport_set.remote_on)) {
		if (moved)
			progress_state.remote_leads = false;
		if (rds_transport_set.remote->ops->progress(rds_transport_set.remote))
			moved = progress_state.remote_leads = true;
	}
	return moved;
}

static inline bool rds_transports_pending(void)
{
	return rds_transport_set.shm->ops->pending(rds_transport_set.shm) ||
	       (unlikely(rds_transport_set.remote_on) &&
		rds_transport_set.remote->ops->pending(rds_transport_set.remote));
}

/*
 * relayed: the leader sleeps where only the remote transport can wake it; else where only the other
 * one can, on its socket (named) or on the pipe.  Input of the respective other transport wakes the
 * helper, which wakes the leader.
 */
static inline void rds_transports_attention(enum rds_attention who, bool relayed, bool named)
{
	enum rds_attention near = who == RDS_ATT_LEADER && named ? RDS_ATT_NAMED : who;

	if (likely(!rds_transport_set.remote_on)) {
		rds_transport_set.shm->ops->attention(rds_transport_set.shm, near);
		return;
	}
	rds_transport_set.shm->ops->attention(rds_transport_set.shm,
					      who == RDS_ATT_LEADER && relayed ? RDS_ATT_HELPER : near);
	rds_transport_set.remote->ops->attention(rds_transport_set.remote,
						 who == RDS_ATT_LEADER && !relayed ? RDS_ATT_HELPER : who);
}

/* True: the pressure goes on. */
static inline bool rds_transports_relieve(bool now)
{
	bool more = rds_transport_set.shm->ops->relieve(rds_transport_set.shm, now);

	if (unlikely(rds_transport_set.remote_on))
		more |= rds_transport_set.remote->ops->relieve(rds_transport_set.remote, now);
	return more;
}

#endif
