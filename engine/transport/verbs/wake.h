/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * wake.h - whom the device wakes (wake.c); a thread that sleeps on its completion channel itself, and how others wake it (bell.c).
 */
#ifndef VERBS_WAKE_H
#define VERBS_WAKE_H

#include <infiniband/verbs.h>
#include <stdatomic.h>

#include "engine/transport/transport.h"

struct verbs_dev;

struct verbs_bell {
	struct ibv_qp *qp; /* in error: what is posted to it completes at once.  NULL: there is none */
	bool unsure;	   /* rx: an event may have been read that nobody knows of */
};

/* For the engine (transport.h); rx, but for ring() */
void verbs_attention(struct rds_transport *t, enum rds_attention who);
bool verbs_pending(struct rds_transport *t);
_Atomic int *verbs_sleep_on(struct rds_transport *t);
void verbs_slept(struct rds_transport *t, enum rds_slept how);
void verbs_ring(struct rds_transport *t);

void verbs_comp_event(struct rds_event *ev, uint32_t events); /* helper */
void verbs_event_taken(struct verbs_dev *dev);		      /* rx: one has been read off its channel */

bool verbs_arm_all(
	struct verbs_dev *dev); /* rx: the next completion makes an event, or one is there.  False: it does not */

/* A new device, with nothing in its completion queue.  There is no bell afterwards if it is no good for one. */
void verbs_bell_new(struct verbs_dev *dev);
void verbs_bell_free(struct verbs_dev *dev);
/* rx; of a device that is gone: whoever sleeps on it is woken.  True: somebody does, it cannot be freed yet. */
bool verbs_bell_gone(struct verbs_dev *dev);
void verbs_bell_forget(void);

#endif
