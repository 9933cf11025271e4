/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * world.h - the verbs transport in a test: on the mock's devices, under an engine that only takes
 * notes, with a clock that the test turns.
 *
 * Ours is host 0, with US on one device and US2 on another; THEM is on host 1, for a scripted peer
 * (peer.h).  Nothing runs by itself:  world_run() does what the helper would, until nothing is left
 * to do now; world_pass() lets time go by.  Programs link with $(world_ldflags), which put clock,
 * timers and events of the helper into the test's hands.
 */
#ifndef TEST_WORLD_H
#define TEST_WORLD_H

#include <check.h>

#include "engine/transport/verbs/ep/ep.h"
#include "engine/transport/verbs/verbs_transport.h"
#include "tests/mock/clock.h"
#include "tests/mock/peer.h"
#include "tests/unit/suite.h"

#define US "10.0.0.1"
#define US2 "10.0.0.2"
#define THEM "10.0.1.1"
#define PEER_PORT 5000
#define MS 1000000ull
#define CONNS 8
#define MSGS 8192

struct world_msg {
	uint64_t seq;
	uint32_t len;
	uint8_t flags;
	bool intact; /* the bytes that world_send() puts into a message of that number */
};

/* The engine's connection, as far as a transport can tell. */
struct world_conn {
	struct rds_ep *ep; /* until it is down */
	bool open;	   /* connected or accepted, and not closed: may get up-calls */
	struct rds_conn_id id;
	unsigned ups, downs, writables;
	int why;
	bool gone, speak;
	struct rds_received there; /* as told with up */
	uint64_t rx_seq, tx_seq;
	uint64_t held; /* received behind rx_seq, and not acknowledged */
	uint8_t tos;
	struct world_msg msg[MSGS];
	unsigned nmsgs;
	struct {
		uint64_t id;
		int err;
	} over[512]; /* carried() */
	unsigned novers;
	unsigned char *read; /* where data go */
	uint64_t read_bytes;
};

struct world {
	struct rds_transport *t;
	struct mock_dev *ours, *ours2, *theirs;
	struct peer peer;
	uint16_t rendezvous; /* where a node's processes are asked who has a port */
	struct world_conn conn[CONNS];
	/* accept(): the connection for the next request, or the error that it gets */
	struct world_conn *next;
	int accept_err;
	unsigned accepts;
	struct rds_conn_id asked;
	struct rds_received asked_there;
	/* message(): */
	unsigned later;	      /* so many are refused for lack of memory */
	unsigned refuse_from; /* the n-th of a connection and all after it are refused; 0: none */
	bool keep_inplace;    /* until world_release() */
	struct {
		struct rds_ep *ep;
		void *token;
	} inplace[1024];
	unsigned ninplace, copies;
	/* evacuate(): all of the endpoint's that is in place, unless there is no memory */
	unsigned evacuations;
	bool no_memory;
	/* located() */
	unsigned locates;
	int located_err;
	struct rds_conn_id located;
	bool no_threads; /* none can be made */
	bool not_wanted; /* what comes up is closed at once: another has taken its place */
	unsigned no_event; /* the helper cannot watch the n-th descriptor from now on; 0: all */
};
extern struct world world;

void world_start(enum mock_mode mode);
void world_begin(enum mock_mode mode); /* ... but for the claim of US, which starts the transport */
/* world_start() as a fixture. */
void world_ib(void);
void world_iwarp(void);
/* ... with conn[0] connected to the scripted peer, and nothing under way. */
void world_ib_joined(void);
void world_iwarp_joined(void);
struct verbs_dev *world_dev(void); /* the first */
int world_claim(const char *ip);
/*
 * Everything is closed, time passes, nothing must be left: endpoints, buffers, promises, blocks,
 * objects of the mock.
 */
void world_end(void);
void world_run(void);
void world_pass(uint64_t ns);
void world_tick(uint64_t ns);		  /* only timers run */
bool world_look(void);			  /* only a program looks: false, there was nothing */
void world_attention(enum rds_attention who);
bool world_timer_due(uint64_t within_ns); /* something is to happen until then */

/* Towards the scripted peer's or our own second address; port 0: not known. 0 or -errno. */
int world_connect(struct world_conn *c, const char *from, const char *to, uint16_t port, const struct rds_procid *peer);
void world_close(struct world_conn *c);
void world_connect_go(int err); /* mock_connect_go(), and the threads are gone */
void world_destroy_go(void);    /* mock_destroy_go(), likewise */
struct in6_addr world_ip(const char *ip);
void world_drop_device(struct mock_dev *which); /* ours of it, which has no endpoint */
/* Connected, both ends ours: conn[0] asked conn[1]. */
void world_pair(void);
/*
 * iWARP, both ends ours: large buffers, as many as can be had, are what y's queue has for x's next
 * segments.
 */
void world_large(struct world_conn *x, struct world_conn *y);
/*
 * Connected with the scripted peer, which accepted (it has `recvs` receives) / which asked and has
 * fetched all events.
 */
void world_join(struct world_conn *c, unsigned recvs, unsigned credits);
void world_join_at(struct world_conn *c, uint16_t port, unsigned recvs, unsigned credits);
void world_joined_by(struct world_conn *c, unsigned credits);
/* ... asking like that */
struct verbs_answer world_joined_with(struct world_conn *c, const struct verbs_request *h);
/* ... and has spoken, as on iWARP it must do first */
void world_up_by(struct world_conn *c, unsigned credits);
/* so many events that were held come, one by one */
void world_cm_next(unsigned n);

/* The peer's private data.  Change it and pack it (verbs_request_pack, verbs_answer_pack). */
struct rds_procid world_peer_id(void);
void world_hello(struct verbs_request *h, enum verbs_request_kind ask);
void world_answer(struct verbs_answer *a, enum verbs_status status);
/* until the request is sent */
void world_peer_asks(const struct verbs_request *h, const char *to, uint16_t port);
void world_peer_rejects(const struct verbs_answer *a);
void world_peer_drain(void); /* what it has got is of no interest */
/* A frame, in segments if it has to be; its bytes are not the same afterwards. */
void world_peer_bytes(unsigned char *frame, size_t len);
void world_peer_frame(const struct rds_hdr *h, const void *bytes, size_t len);
/* The answer to us that the event carries. */
struct verbs_answer world_answer_in(const struct rdma_cm_event *ev);

/* From now on the log, warnings too, can be read / all that it said so far. */
void world_listen(void);
const char *world_said(void);
/*
 * It said, once, that there was no memory for this, at least so many bytes of it, what the limit is
 * and how it is raised.
 */
void world_said_memlock(const char *what, size_t least, size_t limit);

/* The next message (sequence number: the next), flushed. */
int world_send(struct world_conn *c, size_t len, uint8_t flags);
void world_release(void); /* all that is in place */
/* so many of the first device's are with the engine, and no more */
void world_buffers_out(uint32_t n);
void world_fill(uint64_t seq, unsigned char *bytes, size_t len);
/* what world_send() sends */
bool world_intact(uint64_t seq, const unsigned char *bytes, size_t len);
/* The only message that c got is that one of the peer's. */
void world_got_one(const struct world_conn *c, uint64_t seq);
/* A message of so many bytes from the peer, in one frame. */
void world_peer_sends(uint64_t seq, size_t len, uint8_t flags);
bool world_all_came(const struct world_conn *from, const struct world_conn *to);

static inline struct verbs_ep *world_ep(struct world_conn *c)
{
	return (struct verbs_ep *)c->ep;
}

static inline TCase *world_case(Suite *s, const char *name, void (*start)(void))
{
	return suite_case(s, name, start, world_end);
}

#endif
