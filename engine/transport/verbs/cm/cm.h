/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cm.h - rdma_cm: ids, their events and their owners, the steps of a connection that need an id;
 * listeners, and which process has a port.
 *
 * The context of an id is its owner.  The owner receives the id's events one by one, on the
 * helper's thread; each event is a copy.  A call that may keep its caller waiting for a peer
 * (rdma_connect, rdma_destroy_id on some devices) is made by a thread of its own, and the helper
 * goes on.
 *
 * Helper only, except verbs_cm_start(), verbs_cm_dev_get() and the functions marked "any thread".
 * Must not know what endpoints are.
 */
#ifndef ENGINE_TRANSPORT_VERBS_CM_CM_H
#define ENGINE_TRANSPORT_VERBS_CM_CM_H

#include "engine/node/registry.h"
#include "engine/sys/patience.h"
#include "engine/transport/verbs/dev/dev.h"
#include "engine/transport/verbs/cm/private_data.h"
#include "engine/wire/addr.h"

#define VERBS_PRIVATE 80u /* bytes of private data that are looked at */

/* A copy of an event: rdma_cm's own event is acknowledged before any owner acts on it. */
struct verbs_cm_ev {
	enum rdma_cm_event_type what;
	int status;
	uint8_t responder_resources, initiator_depth;
	unsigned len;
	unsigned char data[VERBS_PRIVATE];
};
/* The context of an id: receives its events. */
struct verbs_cm_owner {
	void (*on_event)(struct verbs_cm_owner *owner, struct rdma_cm_id *cm, const struct verbs_cm_ev *ev);
};

/*
 * A call of rdma_connect, by a thread if necessary (connect_thread.c).  The caller fills in param
 * (except the private data), wire and done.
 */
struct verbs_cm_connect {
	struct rdma_conn_param param;
	struct verbs_request wire;
	struct verbs_window window; /* follows `wire`, in one piece */
	unsigned window_len;	    /* 0: the window is not sent */
	/*
	 * helper; only if verbs_cm_connect() has set `running`, and not after
	 * verbs_cm_connect_finish()
	 */
	void (*done)(struct verbs_cm_connect *call, int err);
	bool running;
	/* for connect_thread.c only */
	struct verbs_cm_connect *next;
	struct rdma_cm_id *cm;
	struct in6_addr to;
	uint64_t since;
	struct rds_timer timer;
	int err;
	_Atomic bool left;
};

/* cm.c; helper */

extern struct verbs_cm {
	struct rdma_event_channel *events;
	struct rds_helper_event ev;
	struct verbs_cm_owner *acceptor; /* the owner of listeners: receives requests */
	struct rdma_cm_id *listener[2];	 /* listeners at a port of our own: for IPv4, for IPv6 */
	_Atomic uint16_t port;		 /* that port, host byte order; 0: none */
} verbs_cm;

/*
 * Opens event channel and listeners, whose requests go to the acceptor.  Program's thread, control
 * held.
 */
int verbs_cm_start(struct verbs_cm_owner *acceptor);
void verbs_cm_forget(void); /* forked child */
void verbs_cm_event(struct rds_helper_event *ev, uint32_t events);
void verbs_cm_options(struct rdma_cm_id *cm, uint8_t tos); /* before the id connects or accepts */
int verbs_cm_id_new(struct verbs_cm_owner *owner, uint8_t tos, struct rdma_cm_id **out);
/* The same, bound to a port of its own at that address (of rdma_cm). */
int verbs_cm_id_new_bound(struct verbs_cm_owner *owner, const struct sockaddr *addr, struct rdma_cm_id **out);
/* Destroys an id that was never more than bound.  Any thread. */
void verbs_cm_destroy_bound(struct rdma_cm_id *cm);
/* Resolves the path from id->laddr to id->faddr; ADDR_RESOLVED or an error event follows. */
int verbs_cm_resolve(struct rdma_cm_id *cm, const struct rds_conn_id *id, uint16_t port);
int verbs_cm_route(struct rdma_cm_id *cm);
int verbs_cm_errno(const struct verbs_cm_ev *ev); /* the error in the event, never 0 */
void verbs_cm_reject(struct rdma_cm_id *cm, const struct verbs_answer *answer);
/*
 * Converts an address of rdma_cm.  A link-local address without an interface gets that of our
 * interface which has the address.
 */
void verbs_cm_addr(const struct sockaddr *sa, struct in6_addr *ip, uint32_t *scope);

/*
 * connect_thread.c; helper.  0: the request is under way, the answer is an event.  If
 * call->running, done() may still report a failure.
 */
int verbs_cm_connect(struct verbs_cm_connect *call, const struct verbs_dev *dev, struct rdma_cm_id *cm,
		     const struct in6_addr *to);
/*
 * The answer has come, so the call must be over: waits until its thread is done.  False: it was not
 * running.
 */
bool verbs_cm_connect_finish(struct verbs_cm_connect *call);
/*
 * The process ends (table W): waits for a limited time until no call is running, and none is made meanwhile.
 * Any thread, also in a signal handler.
 */
void verbs_cm_connect_exit_wait(void);

/*
 * destroy_thread.c; helper.  Destroys the id: its owner receives no more events, and the caller
 * must not use it any more.  It has no queue pair.
 */
void verbs_cm_destroy(struct rdma_cm_id *cm);

/* device_id.c */

/*
 * Finds or makes the device of a bound id.  An id that has an owner gets our context.  With control
 * held, or helper.
 */
int verbs_cm_dev_get(struct rdma_cm_id *cm, struct verbs_dev **out);
/* The same, for an endpoint that is to use the device at once (verbs_dev_get).  Helper. */
int verbs_cm_dev_get_roomy(struct rdma_cm_id *cm, struct verbs_dev **out);
void verbs_cm_dev_restore_ctx(struct rdma_cm_id *cm); /* helper: the id may outlive our device */
/* helper: the id's context is ours, not librdmacm's */
bool verbs_cm_dev_owns_id(const struct rdma_cm_id *cm);
/* of struct verbs_dev_users */
int verbs_cm_dev_opened(struct verbs_dev *dev, struct rdma_cm_id *cm);
void verbs_cm_dev_published(struct verbs_dev *dev, struct rdma_cm_id *cm);
void verbs_cm_dev_freed(struct verbs_dev_hold *hold);

/* cm_devices.c; librdmacm's contexts */

/* librdmacm's context no longer keeps the device from being removed; any thread */
void verbs_cm_dev_put_aside(struct ibv_context *ctx);
/*
 * True: the id, which the caller wants to destroy, has to stay and belongs to cm_devices.c from now
 * on.  The id has librdmacm's context.  Any thread.
 */
bool verbs_cm_dev_keep_id(struct rdma_cm_id *cm);
/* Helper: hands over the id of a device that we have closed without a DEVICE_REMOVAL event. */
void verbs_cm_dev_leave_id(struct rdma_cm_id *cm);
/* Helper: an event of an id, not yet acknowledged. */
void verbs_cm_dev_event(struct rdma_cm_id *cm, enum rdma_cm_event_type what);
void verbs_cm_dev_forget(void);

/* listen.c; helper. port 0: any port.  Requests go to the acceptor. */
int verbs_cm_listen(uint16_t port, struct rdma_cm_id *ids[2], uint16_t *got);
void verbs_cm_listen_stop(struct rdma_cm_id *ids[2]);

/*
 * listen_lost.c.  verbs_cm_listen_watch(): a device comes into use; then a timer of the helper.
 * Forget: forked child.
 */
void verbs_cm_listen_watch(const struct verbs_dev *dev);
void verbs_cm_listen_watch_forget(void);

/* rendezvous.c; helper */

/* two ids; NULL ids: another process has the role */
struct rdma_cm_id *const *verbs_rendezvous_ids(void);
void verbs_rendezvous_stop(void);
void verbs_rendezvous_start(void); /* before the helper watches the event channel */
/* a process of this node has ended: take the role if that process had it */
void verbs_rendezvous_check(void);
/*
 * Answers a request that is not for a connection with this process.  True: it is for this process,
 * and accepting goes on.
 */
bool verbs_rendezvous_request(const struct verbs_request *req, const struct in6_addr *laddr, uint32_t scope,
			      struct verbs_answer *answer);

/* port_query.c; helper */
int verbs_cm_locate(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port);
void verbs_cm_locate_dev_removed(const struct verbs_dev *dev);

/* forked child: drops all state, which belongs to the parent */
void verbs_rendezvous_forget(void);
void verbs_cm_locate_forget(void);
void verbs_cm_connect_forget(void);
void verbs_cm_destroy_forget(void);

#endif
