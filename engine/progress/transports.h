/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * transports.h - the transports that reach other processes, used as one.
 *
 * There is always one for the processes of this host (rds_transport_set.shm; with
 * RDS_PRELOAD_TRANSPORT=loop it is the loop transport, which has nothing to receive), and perhaps
 * some that reach other hosts: by devices (remote), and by the network (node).  Each of these takes
 * part from the moment it claims an address; then it stays on (rds_transport_set.far).  A process
 * that is bound to none of their addresses pays one test that is never true.
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
/*
 * The same for the transport to whole nodes.  True: this process has the connections of the address to
 * other hosts.  False: another process of this host has them, or the port is taken, which is logged, or
 * the helper has yet to open it.
 */
bool rds_transports_claim_node(const struct in6_addr *addr, uint32_t scope); /* node_role.c */
void rds_transports_await_roles(void); /* no lock held: until the helper has looked at what was claimed */
void rds_transports_roles_forget(void);
void rds_transports_forget(void);			/* forked child */
void rds_transports_take_part(struct rds_transport *t); /* from now on it does; control held */

/* ---- rx held ---- */

static inline bool rds_transports_far_progress(void)
{
	bool moved = false;
	unsigned i;

	for (i = 0; i < rds_transport_set.nfar; i++)
		moved |= rds_transport_set.far[i]->ops->progress(rds_transport_set.far[i]);
	return moved;
}

static inline bool rds_transports_progress(void)
{
	bool moved = rds_transport_set.shm->ops->progress(rds_transport_set.shm);

	if (unlikely(rds_transport_set.nfar)) {
		if (moved)
			progress_state.remote_leads = false;
		if (rds_transports_far_progress())
			moved = progress_state.remote_leads = true;
	}
	return moved;
}

static inline bool rds_transports_pending(void)
{
	bool some = rds_transport_set.shm->ops->pending(rds_transport_set.shm);
	unsigned i;

	for (i = 0; unlikely(i < rds_transport_set.nfar) && !some; i++)
		some = rds_transport_set.far[i]->ops->pending(rds_transport_set.far[i]);
	return some;
}

/*
 * relayed: the leader sleeps where only the far transports can wake it; else where only the other
 * one can, on its socket (named) or on the pipe.  Input of the respective other transport wakes the
 * helper, which wakes the leader.
 */
static inline void rds_transports_attention(enum rds_attention who, bool relayed, bool named)
{
	enum rds_attention near = who == RDS_ATT_LEADER && named ? RDS_ATT_NAMED : who;
	struct rds_transport *t;
	unsigned i;

	if (likely(!rds_transport_set.nfar)) {
		rds_transport_set.shm->ops->attention(rds_transport_set.shm, near);
		return;
	}
	rds_transport_set.shm->ops->attention(rds_transport_set.shm,
					      who == RDS_ATT_LEADER && relayed ? RDS_ATT_HELPER : near);
	for (i = 0; i < rds_transport_set.nfar; i++) {
		t = rds_transport_set.far[i];
		t->ops->attention(t, who == RDS_ATT_LEADER && !relayed ? RDS_ATT_HELPER : who);
	}
}

/* True: the pressure goes on. */
static inline bool rds_transports_relieve(bool now)
{
	bool more = rds_transport_set.shm->ops->relieve(rds_transport_set.shm, now);
	unsigned i;

	for (i = 0; unlikely(i < rds_transport_set.nfar); i++)
		more |= rds_transport_set.far[i]->ops->relieve(rds_transport_set.far[i], now);
	return more;
}

#endif
