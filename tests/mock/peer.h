/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * peer.h - a process at the other end, for tests with the mock: it does what the test says, frame
 * by frame, on any host of the mock.  Whatever does not work for it is a failure of the test.
 */
#ifndef TEST_PEER_H
#define TEST_PEER_H

#include <netinet/in.h>

#include "tests/mock/mock.h"

#define PEER_BUF 9216u
#define PEER_RECVS 64u
#define PEER_SENDS 256u

struct peer {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener, *id;
	struct rdma_cm_event *ev; /* fetched, not acknowledged */
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	/*
	 * world_conn.c, iWARP: our end of it, segments that it has sent, its credit buffers at
	 * first
	 */
	void *conn;
	uint32_t segments, lent;
	unsigned char *mem; /* PEER_RECVS receives, then PEER_SENDS sends */
	unsigned sent;
	uint8_t rnr_retry; /* what it wants of the other side; 7: for ever */
	/*
	 * Behind a request or an answer of RDS's goes, on iWARP, what may be read of it: the right
	 * thing, or not.
	 */
	enum {
		PEER_WINDOW,
		PEER_NO_WINDOW,
		PEER_WINDOW_CUT,
		PEER_WINDOW_SMALL,
		PEER_WINDOW_NOWHERE,
		PEER_WINDOW_END,
		PEER_WINDOW_WRONG
	} window;
};

void peer_init(struct peer *p, unsigned host);
void peer_listen(struct peer *p, const char *ip, uint16_t port);
/* A queue pair for p->id and, the first time, all that it needs; `recvs` receives are posted. */
void peer_qp(struct peer *p, unsigned recvs);
void peer_post(struct peer *p, unsigned recvs);
/* From address to request sent; every event on the way has come. */
void peer_connect(struct peer *p, const char *from, const char *to, uint16_t port, const void *data, uint8_t len);
/*
 * mock_run(), then the next event, which has to be of that type; it stays p->ev until the next call
 * or peer_ack().
 */
struct rdma_cm_event *peer_event(struct peer *p, enum rdma_cm_event_type type);
struct rdma_cm_event *peer_try_event(struct peer *p); /* NULL: none (and nothing is run) */
void peer_ack(struct peer *p);
/* the request p->ev */
void peer_accept(struct peer *p, const void *data, uint8_t len, unsigned recvs);
void peer_reject(struct peer *p, const void *data, uint8_t len);
void peer_send(struct peer *p, const void *bytes, size_t len, unsigned flags);
/* The next completion. False: none. */
bool peer_poll(struct peer *p, struct ibv_wc *wc);
/* The next completion has to be a receive: its bytes (until peer_post()). */
const unsigned char *peer_recv(struct peer *p, size_t *len);
void peer_drop_id(struct peer *p); /* queue pair, id */
void peer_drop_listener(struct peer *p);
void peer_end(struct peer *p); /* all of it */
void peer_address(struct sockaddr_storage *sa, const char *ip, uint16_t port);

#endif
