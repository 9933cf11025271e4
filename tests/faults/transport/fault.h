/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fault.h - shared by the files of the fault-injecting transport: fault.c (list of faults,
 * endpoints, connecting), send.c, recv.c (up-calls).
 */
#ifndef TESTS_FAULTS_TRANSPORT_FAULT_H
#define TESTS_FAULTS_TRANSPORT_FAULT_H

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
#include "tests/faults/transport/spec.h"

struct fault_msg; /* send.c */

struct fault {
	struct rds_transport t; /* first */
	struct fault *next;
	struct rds_transport *inner;
	struct rds_transport_ops ops;
	struct rds_transport first; /* of FIRST endpoints */
	struct rds_transport_ops first_ops;
	struct fault_spec spec;
	_Atomic uint64_t rng;
	_Atomic uint64_t passed; /* sends and receives that might have broken their endpoint */
	uint64_t first_cut;	 /* the first of them that does */
};

struct fault_ep {
	struct rds_ep_head head;
	struct fault *fault;
	struct rds_ep *inner; /* NULL until the inner transport names it */
	/*
	 * Send side.  The helper sends held-back messages without the connection's lock, so this
	 * lock is needed.
	 */
	pthread_mutex_t lock;
	struct fault_msg *copies, **copies_tail; /* not acknowledged yet */
	struct fault_msg *waiting; /* the first copy that the inner transport has not got yet */
	bool holding;
	unsigned sent; /* for the log */
	_Atomic bool swallow, broken;
	struct rds_timer breaks, late, room;
	/* receive side (rx) */
	unsigned inplace;
	bool closed, kept;
	/* of a FIRST endpoint: which of its sends and receives breaks it (0: none), and how many there were */
	unsigned cut_at;
	_Atomic unsigned passed;
};

static inline struct fault *fault_of(struct fault_ep *f)
{
	return f->fault;
}

/* Not those of the inner transport if it is a FIRST endpoint. */
static inline const struct rds_transport_ops *fault_inner_ops(const struct fault_ep *f)
{
	return ((const struct rds_ep_head *)f->inner)->t->ops;
}

/* The next random number, which depends on the seed alone; any thread. */
uint64_t fault_draw(struct fault *fl);
bool fault_chance(struct fault *fl, uint64_t n);
/* Does this send or receive break its endpoint? */
bool fault_cuts(struct fault_ep *f);
/* Sets the timer to a random time within limit_ns. */
void fault_after(struct fault *fl, struct rds_timer *tm, uint64_t limit_ns);
/* Has the helper break the endpoint: any thread, any lock held. */
void fault_break(struct fault_ep *f);
/* t: where its operations are: fl->t or fl->first. */
struct fault_ep *fault_ep_new(struct fault *fl, const struct rds_transport *t, struct rds_conn *conn);
/*
 * A FIRST endpoint, which few messages pass: so it is broken soon, or, in half of the pairs of processes, neither
 * refused nor broken (whole), so that it lives to be replaced.  Else it would be chance whether both happen.
 */
bool fault_first_is_whole(const struct rds_conn_id *id);
struct fault_ep *fault_ep_new_first(struct fault *fl, const struct rds_conn_id *id, struct rds_conn *conn);
void fault_ep_free(struct fault_ep *f);
/* The wrapper around that transport. */
struct fault *fault_find_outer(const struct rds_transport *inner);

/* send.c */
void fault_send_ops(struct fault *fl);
void fault_send_init(struct fault_ep *f);
/*
 * Frees copies of acknowledged messages; all copies if the endpoint is closed and acked is
 * UINT64_MAX.
 */
void fault_drop_copies(struct fault_ep *f, uint64_t acked);

/* Wraps inner if RDS_PRELOAD_FAULT asks for it, else returns inner. */
struct rds_transport *fault_transport(struct rds_transport *inner);
/* kill.c.  True: nothing else is to fail. */
bool fault_kill(const struct fault_spec *spec);

/* recv.c */
void fault_recv_ops(struct fault *fl);
extern const struct rds_transport_up fault_up;
extern const struct rds_transport_up *fault_engine_up; /* the same for all wrapped transports */

#endif
