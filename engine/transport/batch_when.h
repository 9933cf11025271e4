/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * batch_when.h - may a small message wait, so that others go with it (batch_when.c)?  For transports: an
 * endpoint has one of these.
 */
#ifndef ENGINE_TRANSPORT_BATCH_WHEN_H
#define ENGINE_TRANSPORT_BATCH_WHEN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/sys/compiler.h"

struct rds_ep_head;

struct rds_transport_batch {
	/* conn->tx: messages sent since one was received, or since room was waited for */
	_Atomic uint32_t run;
	uint32_t run_heard, good;
	int trust, distrust;
	/* no thread looked while messages were held (rx) */
	_Atomic bool unattended;
	_Atomic uint32_t received; /* messages (rx) */
	/* rx: on the list of those that may hold some */
	struct rds_transport_batch *next;
	struct rds_ep_head *ep;
	bool listed;
	uint32_t since, stirred, run_seen; /* in pulses; run_seen: `run` at the last */
};

extern struct rds_transport_batch *rds_transport_batches; /* rx: those that may hold some */

/* conn->tx: may the small message that is to be sent wait?  It counts in its run. */
bool rds_transport_batch_may_wait(struct rds_transport_batch *b, struct rds_ep_head *ep);
/* conn->tx: one that is sent without that question */
static inline void rds_transport_batch_run_add(struct rds_transport_batch *b)
{
	atomic_store_explicit(&b->run, atomic_load_explicit(&b->run, memory_order_relaxed) + 1, memory_order_relaxed);
}
void rds_transport_batch_run_end(struct rds_transport_batch *b); /* conn->tx: the program waits for room */
static inline void rds_transport_batch_received(struct rds_transport_batch *b) /* rx: a message */
{
	atomic_store_explicit(&b->received, atomic_load_explicit(&b->received, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}
/* rx: a thread looks for messages; what is held, by any transport, goes through up->push_later */
void rds_transport_batch_flush(void);
static inline void rds_transport_batch_look(void)
{
	if (unlikely(rds_transport_batches))
		rds_transport_batch_flush();
}
void rds_transport_batch_cancel(struct rds_transport_batch *b); /* rx: the endpoint is closed */
void rds_transport_batch_forget(void);				/* forked child */

#endif
