/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock.h - RDMA devices and a connection manager made of memory, for tests: mock_install() puts
 * them into `vb` (libs.h).
 *
 * How the mock behaves:
 * - Devices have addresses and belong to hosts (numbers).  An event channel belongs to mock.host at
 *   the time when it is created.  Ports belong to a host, and a wildcard listener gets the requests
 *   for all addresses of its host.  So both ends of a connection can be in one test.
 * - Nothing moves by itself.  Calls leave work behind; mock_run() does all of it, mock_step() one
 *   piece.  With mock.immediate every call that leaves work also does it.  Work is done in the
 *   order in which it was left, so every run of a test is the same.
 * - RC.  A SEND takes the oldest buffer of the receive queue, in order.  If there is none, it waits
 *   (mock_timeout() ends the wait, unless the peer's accept or request said "for ever"); on iWARP
 *   the connection ends.  A send that is not signaled leaves no completion; its place in the send
 *   queue is free when a completion after it has been *polled*.  A queue pair in error flushes all
 *   that it has and all that is posted to it.  On iWARP a send is complete when it is on its way,
 *   and the side that accepted must not send first.
 * - Receive queues are shared, or a queue pair's own.
 * - RDMA writes and reads reach memory that is registered for them; a forbidden access ends both
 *   queue pairs.  A read of no bytes is a fault.  On iWARP a write is complete when it is on its
 *   way, and a read has one sink, which is open to writes.  A completion queue that overflows is a
 *   fault.
 * - A device can be opened any number of times; librdmacm has opened it once for itself.  Objects
 *   of one context use nothing of another, and their asynchronous events come to their context;
 *   events of port and device come to all contexts.
 * - Memory is accessed only within regions of the same protection domain that allow it; any other
 *   access is a *fault*.
 * - Events: a completion queue is armed once, for what comes later, and fires once.  Channels are
 *   pipes and can be used with epoll.  Destroying an object with unacknowledged events would sleep
 *   for ever: a fault.  Events that have not been fetched vanish with their object.
 * - rdma_cm: calls leave events, mock_run() delivers them (or the test does, one by one in any
 *   order, below), and they take effect where librdmacm has them: id->verbs is set when
 *   ADDR_RESOLVED is fetched; the queue pair of the connecting side works when its answer is
 *   fetched.  Private data has the length that IB gives it (56, 196, 148, filled with zeros), on
 *   iWARP the length that was sent.  The listener is looked up when the request arrives.
 * - siw's post functions (iWARP): negative errno; a list that fails half-way returns 0 and *bad.
 * Not modelled: atomics, immediate data, UD, SRQ limits, path migration, threads in the kernel.
 * Time: only mock_timeout().
 *
 * A fault is a mistake of the code under test that a device would punish some other day: the test
 * fails where it happens.  Every call may come from any thread.
 */
#ifndef TEST_MOCK_H
#define TEST_MOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "engine/transport/verbs/dev/libs.h"

enum mock_mode { MOCK_IB, MOCK_IWARP };

/* A device.  The fields up to `lists` are the test's to change. */
struct mock_dev {
	struct ibv_device_attr attr; /* answered by ibv_query_device, and enforced */
	/* more is refused; what is asked for is granted, or grant_inline if that is less */
	uint32_t max_inline;
	uint32_t grant_inline;
	size_t memlock;	     /* bytes that can be registered */
	int cq_memory;	     /* entries that a completion queue can have; more is ENOMEM */
	uint32_t last_qpn;   /* numbers are a device's own */
	unsigned poll_max;   /* completions that one poll returns at most */
	unsigned lose_flush; /* so many flushed work requests leave no completion */
	bool last_wqe;	     /* a queue pair that goes into error says LAST_WQE_REACHED */
	/* completions of a queue pair vanish when it is destroyed (mlx5), else they stay (rxe) */
	bool destroy_cleans;
	bool cut;	     /* nothing gets out or in */
	unsigned
		/*
		 * iWARP: so many things that come first, after a yes of ours, are noticed with the
		 * next one (siw)
		 */
		late_receive;
	/* lists */
	struct ibv_device device;
	enum mock_mode mode;
	unsigned host;
	bool gone;
	size_t registered;
	TAILQ_HEAD(, mock_ctx) contexts; /* the first is librdmacm's own, with which ids come */
	TAILQ_ENTRY(mock_dev) link;
};

enum mock_fn {
#define X(lib, ret, name, params) MOCK_##name,
	VERBS_API(X)
#undef X
		MOCK_ibv_poll_cq,
	MOCK_ibv_post_send,
	MOCK_ibv_post_srq_recv,
	MOCK_ibv_post_recv,
	MOCK_ibv_req_notify_cq,
	MOCK_FNS,
};

struct mock_knobs {
	bool immediate;	   /* every call runs what it left */
	unsigned host;	   /* who creates event channels */
	bool copies_on_fork; /* pinned pages, for the child (mock_install: yes) */
	bool timewait;	   /* TIMEWAIT_EXIT follows DISCONNECTED */
	bool count_faults; /* do not fail the test: count, remember (tests of the mock) */
	unsigned faults;
	char fault[200];
};
extern struct mock_knobs mock;

/* ---- a test's beginning and end (mock.c) ---- */

void mock_install(void); /* everything as new, `vb` filled */
/*
 * What there still is of PDs, MRs, channels, CQs, SRQs, QPs, event channels, ids: 0, and no event
 * that waits for its acknowledgement.
 */
void mock_check_leaks(void);
enum mock_kind {
	MOCK_CONTEXT,
	MOCK_PD,
	MOCK_MR,
	MOCK_COMP_CHANNEL,
	MOCK_CQ,
	MOCK_SRQ,
	MOCK_QP,
	MOCK_EVENT_CHANNEL,
	MOCK_ID,
	MOCK_KINDS
};
unsigned mock_count(enum mock_kind kind);

/*
 * The n-th call from now on (1: the next) fails with this errno / ... and all after it.  n 0: no
 * more.
 */
void mock_fail(enum mock_fn fn, unsigned n, int err);
void mock_fail_from(enum mock_fn fn, unsigned n, int err);
/*
 * The n-th call of any function that makes, starts or posts something.  mock_fail_hit(): it has
 * come to that.
 */
void mock_fail_any(unsigned n, int err);
bool mock_fail_hit(void);
const char *mock_fail_name(void); /* ... in this function */
unsigned mock_calls(enum mock_fn fn);
/*
 * The device is pulled out as the n-th call of any function begins (1: the next; 0: not any more).
 * False: it has not come to that.
 */
void mock_pull_at(struct mock_dev *dev, unsigned n);
bool mock_pulled(void);

/* ---- the world (mock_dev.c) ---- */

struct ibv_context *mock_context(struct mock_dev *dev); /* librdmacm's */
bool mock_dev_aside(struct mock_dev *dev); /* librdmacm does not keep it open */
struct mock_dev *mock_dev_of_context(struct ibv_context *ctx);
/*
 * A descriptor gets another number.  If it is librdmacm's, no thread may be inside just now: an id
 * has to be on the device, otherwise the test fails.
 */
void mock_fd_moves(const int *number);
struct mock_dev *mock_dev_add(const char *name, enum mock_mode mode, unsigned host);
void mock_addr_add(struct mock_dev *dev, const char *ip);
void mock_addr_del(const char *ip);
/*
 * The device is pulled out: DEVICE_FATAL, DEVICE_REMOVAL for its ids, queue pairs in error
 * (lose_flush says whether that shows), completion channels closed: a thread that watches one is
 * told so again and again.
 */
void mock_dev_remove(struct mock_dev *dev);
void mock_async(struct mock_dev *dev, enum ibv_event_type type); /* of the port or the device */
void mock_async_qp(struct ibv_qp *qp, enum ibv_event_type type);
void mock_async_cq(struct ibv_cq *cq, enum ibv_event_type type);
void mock_async_srq(struct ibv_srq *srq, enum ibv_event_type type);

/* ---- memory (mock_mem.c) ---- */

/* Whoever registers memory from now on waits in that call, until mock_reg_go() returns. */
void mock_reg_hang(void);
void mock_reg_go(void);
unsigned mock_regs_hanging(void);

/* ---- the wire (mock_wire.c) ---- */

bool mock_step(void); /* False: nothing was left to do */
void mock_run(void);
/*
 * So much time passes that everything gives up that waits for an answer over a cut link, from a
 * dead queue pair or for a receive.
 */
void mock_timeout(void);
/*
 * The next send that qp (NULL: any) transmits, the next receive that arrives at it, completes with
 * this status.
 */
void mock_fail_send(struct ibv_qp *qp, enum ibv_wc_status status);
void mock_fail_recv(struct ibv_qp *qp, enum ibv_wc_status status);
/* The next list that is posted fails after `skip` work requests of it. */
void mock_post_fail(unsigned skip, int err);
/* Work requests that are posted and neither sent nor flushed. */
unsigned mock_sends_waiting(struct ibv_qp *qp);
unsigned mock_recvs_posted(struct ibv_srq *srq);
unsigned mock_recvs_own(struct ibv_context *ctx); /* ... to queue pairs of their own */

/* ---- connection manager (mock_cm.c, mock_cm_event.c) ---- */

void mock_cm_hold(bool hold);	   /* mock_run() delivers no event */
unsigned mock_cm_waiting(void);	   /* events not delivered */
bool mock_cm_next(void);	   /* deliver the oldest. False: none, or it cannot get through */
bool mock_cm_pick(unsigned index); /* ... that one */
/* The oldest of this type; index, or -1. */
int mock_cm_find(enum rdma_cm_event_type type);
bool mock_cm_drop(unsigned index); /* it never comes */
/* The listener stays, and hears nothing any more, as far as TCP is concerned (siw). */
void mock_cm_deafen(struct rdma_cm_id *listener);
/* Would TCP say that a socket of that host listens there?  The address is a wildcard. */
bool mock_cm_listens(unsigned host, const struct sockaddr *at);
/* Out of nowhere, delivered at once. */
void mock_cm_inject(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status);
void mock_cm_inject_data(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status, const void *data, size_t len);
/*
 * iWARP's rdma_connect waits for the peer's host.  With hang every call does, until
 * mock_connect_go(): it goes on, or fails with err.
 */
void mock_connect_hang(void);
void mock_connect_go(int err);
unsigned mock_connects_hanging(void);
/*
 * The kernel does not let go of the next n ids that another thread than this one destroys, until
 * mock_destroy_go().
 */
void mock_destroy_hang(unsigned n);
void mock_destroy_go(void);
unsigned mock_destroys_hanging(void);
/* What rdma_set_option has set: TOS, and the acknowledgement timeout; -1: nothing. */
int mock_id_tos(struct rdma_cm_id *id);
int mock_id_ack_timeout(struct rdma_cm_id *id);

#endif
