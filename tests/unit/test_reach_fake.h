/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_reach_fake.h - another host, played by the test.  A transport that can reach it records each
 * request and message.  The test says what comes back, in the helper's thread or in the receive
 * path, as a real transport would.  The clock is the test's (tests/mock/clock.h): while the test
 * waits for something it goes from timer to timer, otherwise it stands.
 */
#ifndef TEST_REACH_FAKE_H
#define TEST_REACH_FAKE_H

#include <check.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "engine/conn/outgoing.h"
#include "tests/mock/clock.h"
#include "tests/slow.h"

#define FAR "192.0.2.1"
#define EPS 16
#define LOGGED 256
#define LONGEST 96 /* bytes of a message: an operation without data, at least */
#define PATIENCE_NS (10 * 1000000000ull)

struct fake_ep {
	struct rds_ep_head head;
	struct rds_conn_id id;
	_Atomic uint64_t acked; /* by the other side */
	_Atomic uint64_t ack;	/* by us */
	struct rds_received here; /* as told when it was made */
	/* closed by the engine, at most once; nothing is sent after that; the memory stays */
	_Atomic bool closed;
	unsigned char kept[LOGGED][LONGEST];
	unsigned n;
	struct fake_ep *made_before;
};

struct sent {
	struct fake_ep *ep;
	struct rds_hdr hdr;
	uint8_t flags; /* to a node: as they were sent */
	char text[LONGEST];
};

struct fake {
	struct rds_transport t;
	pthread_mutex_t lock;
	struct sent sent[LOGGED];
	unsigned nsent, nasked;
	struct rds_conn_id asked_id;
	uint16_t asked[LOGGED];
	_Atomic int no_attempt; /* what connect says: -errno, and no attempt begins */
	_Atomic unsigned nrefused; /* so often */
	struct fake_ep *eps[EPS]; /* asked for by us, and far_connects() */
	unsigned neps;
	struct {
		struct fake_ep *ep;
		struct rds_hdr hdr;
		unsigned char data[LONGEST];
	} coming[16];
	_Atomic unsigned ncoming;
	_Atomic unsigned pushes;
	/* congestion maps that were sent; how many are to be refused for lack of memory */
	_Atomic unsigned nmaps, no_map;
	unsigned map_len, map_before; /* of the last one: its length; so many messages were sent by then */
	_Atomic bool full;  /* no room for messages, only for redirects */
	_Atomic bool stuck; /* ... nor for these */
	/* called once, by the thread that has sent the next message, with the locks that it has */
	void (*_Atomic sent_next)(void);
	int claim;
	struct rds_sock *sk; /* ours, at port 4000 of loopback, which the transport claims */
	int fd;
};
extern struct fake fake;

/*
 * Waits until `cond`, for ten seconds of the clock at most; the helper works meanwhile.  If no
 * timer is set for which the clock could go on, the test hangs.
 */
#define await(cond)                                                                                                    \
	do {                                                                                                           \
		const uint64_t until_ = atomic_load(&mock_now) + PATIENCE_NS;                                          \
		for (unsigned looks_ = 0; !(cond);) {                                                                  \
			ck_assert_msg(atomic_load(&mock_now) < until_, "in vain: " #cond);                             \
			rds_progress_round();                                                                          \
			if (!mock_clock_next())                                                                        \
				test_pause(&looks_);                                                                   \
		}                                                                                                      \
	} while (0)

/* A fresh engine on that transport; the same behind the transport that makes others fail. */
void far_setup(void);
void far_setup_wrapped(void);
/* The same on a transport to hosts as a whole (RDS_TCAP_NODE). */
void far_setup_node(void);

struct sockaddr_in name_of(const char *ip, uint16_t port);
unsigned locked(const unsigned *n);
/* fn runs in the helper. */
void in_helper(void (*fn)(void *arg), void *arg);
/* From fake.sk to that port of FAR. */
void say(uint16_t port, const char *text);

/* The port that was asked for: that process has it, or an error. */
void far_answers(uint16_t port, uint8_t proc, int err);
/* The n-th endpoint comes up, once it was asked for. */
void far_up(unsigned n);
/* The first message, for port 5, is on its way to the process that has it. */
void far_begins(uint8_t proc, const char *text);
/* The n-th message so far went to that process, with that text. */
void far_got(unsigned n, uint8_t proc, const char *text);
/* Peer acknowledges what it has. */
void far_acks(unsigned ep, uint64_t seq);
void far_sends(unsigned ep, const struct rds_hdr *hdr, const void *data, size_t len);

/*
 * ep_up: the endpoint is up, and the other side has acknowledged up to `ack`.  ep_down: it is over,
 * with its process or not.
 */
void ep_up(struct fake_ep *e, uint64_t ack);
void ep_down(struct fake_ep *e, int why, bool gone);
void ep_acks(struct fake_ep *e, uint64_t seq);

struct fake_ep *ep_new(struct rds_conn *conn);
/* The process numbered `proc` of FAR, as seen from fake.sk. */
struct rds_conn_id far_id(uint8_t proc);
/* That one asks for a connection; the answer has to be this. */
struct fake_ep *far_asks(const struct rds_conn_id *id, int answer);
/* Process 77 connects to us. */
void far_connects(void);

#endif
