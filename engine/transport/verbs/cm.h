/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cm.h - rdma_cm's ids: what they say, to whom, and the steps that a connection needs of them (cm.c, connect_thread.c, destroy_thread.c).
 *
 * An id's context is its owner, who hears of its events one by one, on the helper's thread; the event is a copy by then.  What may keep its
 * caller waiting for a peer (rdma_connect, rdma_destroy_id on some devices) is done by a thread of its own, and the helper goes on.
 * Helper only, but for verbs_cm_start().  Must not know what endpoints are.
 */
#ifndef VERBS_CM_H
#define VERBS_CM_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/helper/helper.h"
#include "engine/node/registry.h"
#include "engine/node/stats.h"
#include "engine/sys/compiler.h"
#include "engine/sys/fence.h"
#include "engine/sys/lock_order.h"
#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/sys/process.h"
#include "engine/transport/transport.h"
#include "engine/wire/addr.h"
#include "engine/transport/verbs/libs.h"
#include "engine/transport/verbs/private_data.h"

struct verbs_dev;

#define VERBS_PRIVATE 80u /* of private data: as much as we ever look at */

/* A copy of an event: rdma_cm's own is acknowledged before anybody acts on it. */
struct verbs_cm_ev {
	enum rdma_cm_event_type what;
	int status;
	uint8_t responder_resources, initiator_depth;
	unsigned len;
	unsigned char data[VERBS_PRIVATE];
};
/* The context of an id: hears what becomes of it. */
struct verbs_cm_owner {
	void (*on_event)(struct verbs_cm_owner *owner, struct rdma_cm_id *cm, const struct verbs_cm_ev *ev);
};

/* rdma_connect, by a thread if need be (connect_thread.c).  Filled in by the caller: param (but for the private data), wire, done. */
struct verbs_cm_connect {
	struct rdma_conn_param param;
	struct verbs_request wire;
	struct verbs_window window; /* behind it, in one piece */
	unsigned window_len;	    /* ... 0: it is not said */
	void (*done)(struct verbs_cm_connect *call,
		     int err); /* helper; not if verbs_cm_connect() or verbs_cm_connect_finish() said it all */
	bool running;
	/* connect_thread.c's */
	struct verbs_cm_connect *next;
	struct rdma_cm_id *cm;
	struct in6_addr to;
	uint64_t since;
	struct rds_timer timer;
	int err;
	_Atomic bool left;
};

/* cm.c; helper */
int verbs_cm_start(void); /* event channel, listener; program's thread, control held */
void verbs_cm_event(struct rds_helper_event *ev, uint32_t events);
void verbs_cm_options(struct rdma_cm_id *cm, uint8_t tos); /* before it connects or accepts */
int verbs_cm_id_new(struct verbs_cm_owner *owner, uint8_t tos, struct rdma_cm_id **out);
/* ... bound to a port of its own at that address (of rdma_cm). */
int verbs_cm_id_new_bound(struct verbs_cm_owner *owner, const struct sockaddr *addr, struct rdma_cm_id **out);
/* An id that never was more than bound is to go. Any thread. */
void verbs_cm_destroy_bound(struct rdma_cm_id *cm);
/* Towards id's faddr from its laddr; ADDR_RESOLVED or an error follows. */
int verbs_cm_resolve(struct rdma_cm_id *cm, const struct rds_conn_id *id, uint16_t port);
int verbs_cm_route(struct rdma_cm_id *cm);
int verbs_cm_errno(const struct verbs_cm_ev *ev); /* what went wrong, never 0 */
void verbs_cm_reject(struct rdma_cm_id *cm, const struct verbs_answer *answer);
/* An address of rdma_cm; a link-local one whose interface it does not tell has that of our interface with that address. */
void verbs_cm_addr(const struct sockaddr *sa, struct in6_addr *ip, uint32_t *scope);

/* connect_thread.c; helper.  0: asked for, the answer is an event; with call->running, done() may say that it failed after all. */
int verbs_cm_connect(struct verbs_cm_connect *call, const struct verbs_dev *dev, struct rdma_cm_id *cm,
		     const struct in6_addr *to);
/* Its answer has come, so it must be over: waits for its thread to be out of the way.  False: was not running. */
bool verbs_cm_connect_finish(struct verbs_cm_connect *call);

/* destroy_thread.c; helper.  The id is to go: its owner hears nothing of it any more, the caller has no part in it.  No queue pair. */
void verbs_cm_destroy(struct rdma_cm_id *cm);

#endif
