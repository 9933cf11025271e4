/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock_impl.h - the mock inside.  Every structure begins with the one that the library's user sees.
 * All of it is protected by one recursive lock, which every function of the table takes
 * (MOCK_LOCK).
 */
#ifndef TEST_MOCK_IMPL_H
#define TEST_MOCK_IMPL_H

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mock/mock.h"

#define MOCK_SGES 8
#define MOCK_WINDOW 16 /* what TCP takes of a sender that is not heard, in sends */

struct mock_async {
	TAILQ_ENTRY(mock_async) link;
	struct ibv_async_event ev;
};

/* A device as it was opened: first what its user sees. */
struct mock_ctx {
	struct ibv_context ctx;
	struct mock_dev *dev;
	/* the pipe; the mock's own numbers, since the user may close or replace its own */
	int async_out, async_in;
	unsigned users;
	TAILQ_HEAD(, mock_async) async;
	TAILQ_ENTRY(mock_ctx) link;
};

/* Events of a CQ, SRQ or QP: fetched, acknowledged. */
struct mock_acks {
	unsigned got, acked;
};

struct mock_pd {
	struct ibv_pd pd;
	unsigned users;
};

struct mock_mr {
	struct ibv_mr mr;
	int access;
	TAILQ_ENTRY(mock_mr) link;
};

struct mock_cq_event {
	TAILQ_ENTRY(mock_cq_event) link;
	struct mock_cq *cq;
};

struct mock_channel {
	struct ibv_comp_channel ch;
	/* -1: the device is gone, which a thread that watches it is told again and again */
	int out;
	TAILQ_ENTRY(mock_channel) link;
	unsigned cqs;
	TAILQ_HEAD(, mock_cq_event) events;
};

struct mock_cqe {
	struct ibv_wc wc;
	bool send;
	uint32_t seq; /* of the send */
};

struct mock_cq {
	struct ibv_cq cq;
	struct mock_cqe *ring;
	unsigned head, count, depth, users;
	enum { UNARMED, SOLICITED, ALL } armed;
	struct mock_acks comp, async;
};

struct mock_recv {
	TAILQ_ENTRY(mock_recv) link;
	uint64_t wr_id;
	struct ibv_sge sge[MOCK_SGES];
	int nsge;
};

struct mock_srq {
	struct ibv_srq srq;
	TAILQ_HEAD(, mock_recv) recvs;
	unsigned count, depth, users, limit;
	int max_sge;
	struct mock_acks async;
	TAILQ_ENTRY(mock_srq) link;
};

struct mock_send {
	TAILQ_ENTRY(mock_send) link;
	uint64_t wr_id;
	uint32_t seq;
	enum ibv_wr_opcode opcode;
	unsigned flags;
	struct ibv_sge sge[MOCK_SGES];
	int nsge;
	unsigned char *data; /* once it has been gathered */
	size_t len;
	uint64_t remote; /* RDMA */
	uint32_t rkey;
};
TAILQ_HEAD(mock_sends, mock_send);

struct mock_qp {
	struct ibv_qp qp;
	struct mock_id *id;
	struct ibv_qp_cap cap;
	bool sig_all;
	/* sequence numbers of sends: next, all before it have given their place back */
	uint32_t posted, reclaimed;
	struct mock_sends sq;	    /* to be sent */
	struct mock_sends wire;	    /* iWARP: complete, on their way */
	unsigned on_wire;
	unsigned waiting; /* in sq */
	uint8_t rnr_retry, min_rnr_timer;
	/* its receives: its own queue, of which no handle is given away, or the shared one */
	struct mock_srq *rq;
	bool rnr;   /* the first of sq has met an empty receive queue */
	bool heard; /* something has come */
	enum ibv_wc_status fail_send, fail_recv;
	struct mock_acks async;
	TAILQ_ENTRY(mock_qp) link;
};

enum mock_id_state {
	ID_IDLE, /* maybe bound */
	ID_LISTEN,
	ID_RESOLVING, /* the address */
	ID_ADDR,
	ID_ROUTING,
	ID_ROUTE,
	ID_CONNECTING, /* request sent */
	ID_REQUEST,    /* a request that has come */
	ID_ACCEPTED,   /* ... and been answered */
	ID_UP,
	ID_DOWN,
};

struct mock_id {
	struct rdma_cm_id id;
	enum mock_id_state state;
	unsigned host;
	struct mock_dev *dev; /* id.verbs is told later */
	struct mock_dev *to;  /* towards the peer */
	struct mock_id *peer;
	struct mock_id *listener; /* of an unread request */
	bool bound, passive, said_up, said_down, reuse, afonly, deaf;
	bool failed; /* CONNECT_ERROR made by librdmacm: what follows is swallowed */
	int tos, ack_timeout;
	uint8_t rnr_retry; /* what we ask of the peer */
	struct mock_acks events;
	TAILQ_ENTRY(mock_id) link;
};

/* An event of rdma_cm: under way (mock_cm_pending), delivered (channel), fetched. */
struct mock_cm_ev {
	struct rdma_cm_event ev; /* first */
	TAILQ_ENTRY(mock_cm_ev) link;
	/* the id that gets it; a request: the id that asks, until it is delivered */
	struct mock_id *id;
	struct mock_dev *a, *b; /* has to get from here to there; NULL: does not travel */
	unsigned char *data;
	size_t len;
};
TAILQ_HEAD(mock_cm_evs, mock_cm_ev);

struct mock_events {
	struct rdma_event_channel ch;
	int out;
	unsigned host;
	struct mock_cm_evs ready;
	TAILQ_ENTRY(mock_events) link;
};

extern TAILQ_HEAD(mock_devs, mock_dev) mock_devs;
extern TAILQ_HEAD(mock_qps, mock_qp) mock_qps;
extern TAILQ_HEAD(mock_srqs, mock_srq) mock_srqs;
extern TAILQ_HEAD(mock_mrs, mock_mr) mock_mrs;
extern TAILQ_HEAD(mock_ids, mock_id) mock_ids;
extern struct mock_cm_evs mock_cm_pending;

/* ---- mock.c ---- */
extern pthread_mutex_t mock_mutex;
void mock_unlock(int *unused);
#define MOCK_LOCK int mock_locked __attribute__((cleanup(mock_unlock), unused)) = pthread_mutex_lock(&mock_mutex)
/* mock_mutex held once: until none of the threads counted there sleeps any more. */
void mock_await_none(const unsigned *n);

void mock_fault(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int mock_fails(enum mock_fn fn); /* 0, or the errno that this call is to return */
void mock_made(enum mock_kind kind);
void mock_unmade(enum mock_kind kind);
void mock_moved(void); /* work was left: with mock.immediate, do it */
void mock_got(struct mock_acks *a);
void mock_acked(struct mock_acks *a, unsigned n, const char *what);
bool mock_all_acked(const struct mock_acks *a, const char *what);
/* A pipe for the readers of events: rd is returned. */
int mock_pipe(int *out);
void mock_pipe_fill(int out, const char *what);
bool mock_pipe_take(int rd, const char *what); /* False: empty, errno as read's */

/* Fail as libibverbs (a number), a function that returns a pointer, or librdmacm would. */
#define MOCK_FAILS_NUMBER(name)                                                                                        \
	do {                                                                                                           \
		int mock_err = mock_fails(MOCK_##name);                                                                \
		if (mock_err)                                                                                          \
			return mock_err;                                                                               \
	} while (0)
#define MOCK_FAILS_NULL(name)                                                                                          \
	do {                                                                                                           \
		int mock_err = mock_fails(MOCK_##name);                                                                \
		if (mock_err) {                                                                                        \
			errno = mock_err;                                                                              \
			return NULL;                                                                                   \
		}                                                                                                      \
	} while (0)
#define MOCK_FAILS_MINUS(name)                                                                                         \
	do {                                                                                                           \
		int mock_err = mock_fails(MOCK_##name);                                                                \
		if (mock_err)                                                                                          \
			return mock_minus(mock_err);                                                                   \
	} while (0)

static inline int mock_minus(int err)
{
	errno = err;
	return -1;
}

static inline void *mock_null(int err)
{
	errno = err;
	return NULL;
}

/* ---- mock_cq.c ---- */
void mock_channels_close(struct mock_dev *dev);

/* ---- mock_dev.c ---- */
static inline struct mock_dev *mock_dev_of(struct ibv_context *ctx)
{
	return ((struct mock_ctx *)ctx)->dev;
}
/* port: host order */
bool mock_ip_of(const struct sockaddr *sa, struct in6_addr *ip, uint16_t *port);
bool mock_dev_usable(struct mock_dev *dev); /* by librdmacm, for a new id */
bool mock_id_opens(struct mock_id *id);	    /* ... for one that is bound. False: it cannot */
struct mock_dev *mock_dev_with(const struct in6_addr *ip);
struct mock_dev *mock_dev_of_host(unsigned host);
void mock_dev_reset(void);
void mock_dev_install(void);
/* Something is made (1) or destroyed (-1) there. */
static inline void mock_ctx_used(struct ibv_context *ctx, int n)
{
	((struct mock_ctx *)ctx)->users += (unsigned)n;
}

/* ---- mock_async.c ---- */
void mock_async_install(void);
void mock_async_drop(struct mock_ctx *ctx);
void mock_async_forget(struct ibv_context *ctx, const void *object);
void mock_say_srq(struct ibv_srq *srq, enum ibv_event_type type); /* lock held */

/* ---- mock_mem.c ---- */
void mock_mem_install(void);
/* What is wrong with that piece, by its key, or NULL. */
const char *mock_mem_wrong(struct ibv_pd *pd, const struct ibv_sge *sge, int access);
/* Is all of it registered in pd, with this access?  Else a fault, and false. */
bool mock_mem_check(struct ibv_pd *pd, const struct ibv_sge *sge, int nsge, int access, const char *what);
size_t mock_mem_length(const struct ibv_sge *sge, int nsge);
void mock_mem_gather(unsigned char *to, const struct ibv_sge *sge, int nsge);
void mock_mem_scatter(const struct ibv_sge *sge, int nsge, const unsigned char *from, size_t len);

/* ---- mock_cq.c ---- */
void mock_cq_install(void);
void mock_cq_push(struct ibv_cq *cq, const struct mock_cqe *e, bool solicited);
void mock_cq_forget_qp(struct ibv_cq *cq, uint32_t qpn);
int mock_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int mock_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* ---- mock_qp.c ---- */
void mock_qp_install(void);
struct mock_qp *mock_qp_new(struct mock_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr, int *err);
bool mock_qp_destroy(struct mock_qp *qp);
void mock_qp_error(struct mock_qp *qp);
/* its completion has been polled */
void mock_qp_reclaim(const struct mock_dev *dev, uint32_t qpn, uint32_t seq);
void mock_send_free(struct mock_send *s);
void mock_send_complete(struct mock_qp *qp, const struct mock_send *s, enum ibv_wc_status status);
int mock_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int mock_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* ---- mock_post.c ---- */
int mock_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int mock_post_result(struct mock_dev *dev, unsigned done, int err);
bool mock_post_fails(unsigned done, int *err); /* mock_post_fail(): here */
void mock_post_reset(void);

/* ---- mock_wire.c ---- */
struct mock_qp *mock_qp_peer(const struct mock_qp *qp);
void mock_wire_reset(void);

/* ---- mock_cm.c, mock_cm_end.c, mock_cm_event.c ---- */
void mock_cm_install(void);
void mock_cm_end_install(void);
void mock_cm_event_install(void);
void mock_cm_reset(void);
struct mock_id *mock_id_new(struct mock_events *ch, unsigned host, void *context);
void mock_id_free(struct mock_id *id);
void mock_id_break(struct mock_id *id); /* the connection is over on both sides: DISCONNECTED */
/* To the peer, once: it is over, or there will be none. */
void mock_id_end(struct mock_id *id, enum rdma_cm_event_type type, int status, const void *data, size_t len);
struct mock_id *mock_listener_for(const struct mock_id *asking);
int mock_reject_status(const struct mock_id *id, bool nobody);
/* Leave an event; returns it so that data can be added. */
struct mock_cm_ev *mock_cm_say(struct mock_id *id, enum rdma_cm_event_type type, int status);
struct mock_cm_ev *mock_cm_send(struct mock_id *from, struct mock_id *to, enum rdma_cm_event_type type, int status);
void mock_cm_data(struct mock_cm_ev *e, const void *data, size_t len, size_t least);
void mock_cm_forget(struct mock_id *id); /* all unread events for it */
void mock_cm_timeout(void);
bool mock_cm_step(void);

#endif
