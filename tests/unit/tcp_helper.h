/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * tcp_helper.h - the TCP transport with an engine that the test plays, and peers that are plain
 * sockets.
 *
 * The transport's own address is OURS; peers have addresses that are smaller or larger.  The helper
 * connects and accepts; the test's thread sends and receives.
 */
#ifndef TESTS_UNIT_TCP_HELPER_H
#define TESTS_UNIT_TCP_HELPER_H

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "engine/calls/start.h"
#include "engine/sys/options.h"
#include "engine/transport/tcp/tcp.h"
#include "tests/slow.h"
#include "tests/unit/suite.h"

#define OURS "127.0.0.10"
#define SMALLER "127.0.0.5"
#define LARGER "127.0.0.20"

/* ---- the engine ---- */

#define MESSAGES 4096

struct seen {
	struct rds_hdr hdr;
	unsigned char *data;
	bool owned;
};

struct rds_conn {
	struct rds_conn_id id;
	struct rds_ep *ep;
	_Atomic unsigned ups, downs, writables, pushes;
	_Atomic int why;
	uint64_t acked_at_end;
	/* rx */
	struct seen seen[MESSAGES];
	_Atomic unsigned nseen;
	_Atomic unsigned later; /* so many messages are refused first */
	bool keep;		/* the endpoint, when it goes down */
};

static pthread_mutex_t tx = PTHREAD_MUTEX_INITIALIZER; /* conn->tx of all connections */

static struct rds_conn conns[4];
static _Atomic unsigned nconns; /* of accepted ones, from the second on */
static _Atomic bool refuses;
static _Atomic unsigned asked;
static struct rds_conn_id asked_id;

static inline struct rds_conn *up_accept(struct rds_transport *t, struct rds_ep *ep, const struct rds_conn_id *id,
					 struct rds_received there, struct rds_received *here, int *why)
{
	struct rds_conn *conn = &conns[2 + atomic_load(&nconns) % 2];

	(void)t;
	(void)there;
	(void)here;
	if (atomic_load(&refuses)) {
		*why = -ENOSPC;
		return NULL;
	}
	conn->id = *id;
	conn->ep = ep;
	atomic_fetch_add(&nconns, 1);
	return conn;
}

static inline void up_up(struct rds_conn *conn, struct rds_ep *ep, struct rds_received there)
{
	(void)there;
	conn->ep = ep;
	atomic_fetch_add(&conn->ups, 1);
}

static inline void up_down(struct rds_conn *conn, struct rds_ep *ep, int why, bool gone)
{
	ck_assert(!gone);
	pthread_mutex_lock(&tx);
	conn->acked_at_end = rds_tcp.ops->acked(ep);
	conn->ep = NULL;
	pthread_mutex_unlock(&tx);
	if (conn->keep)
		rds_tcp.ops->keep(ep, true);
	rds_tcp.ops->close(ep);
	atomic_store(&conn->why, why);
	atomic_fetch_add(&conn->downs, 1);
}

static inline enum rds_rx_verdict up_message(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	struct seen *s = &conn->seen[atomic_load(&conn->nseen)];

	(void)ep;
	if (atomic_load(&conn->later)) {
		atomic_fetch_sub(&conn->later, 1);
		return RDS_RX_LATER;
	}
	if (atomic_load(&conn->nseen) == MESSAGES)
		return RDS_RX_DONE;
	s->hdr = rx->hdr;
	s->owned = rx->owned;
	s->data = rx->owned;
	if (!rx->owned) {
		s->data = malloc(rx->hdr.len + 1);
		memcpy(s->data, rx->data, rx->hdr.len);
	}
	atomic_fetch_add(&conn->nseen, 1);
	return rx->owned ? RDS_RX_TAKEN : RDS_RX_DONE;
}

static inline void up_writable(struct rds_conn *conn)
{
	atomic_fetch_add(&conn->writables, 1);
}

static inline void up_push_later(struct rds_conn *conn)
{
	atomic_fetch_add(&conn->pushes, 1);
}

/* Nothing is kept, unless a test says where. */
static struct rds_trunk *kept_in;

static inline struct rds_trunk *up_trunk(struct rds_conn *conn)
{
	(void)conn;
	return kept_in;
}

static inline void up_asked(struct rds_transport *t, const struct rds_conn_id *id)
{
	(void)t;
	asked_id = *id;
	atomic_fetch_add(&asked, 1);
}

static const struct rds_transport_up tcp_up = {
	.accept = up_accept,
	.up = up_up,
	.down = up_down,
	.message = up_message,
	.writable = up_writable,
	.push_later = up_push_later,
	.asked = up_asked,
	.trunk = up_trunk,
};

/* ---- the helper ---- */

static void (*work)(void);
static _Atomic bool work_done;

static inline void work_do(struct rds_timer *tm)
{
	(void)tm;
	if (work)
		work();
	atomic_store(&work_done, true);
}

static inline void in_helper_begin(void (*fn)(void))
{
	static struct rds_timer timer = {.fn = work_do};

	work = fn;
	atomic_store(&work_done, false);
	rds_timer_set(&timer, os_now_ns());
}

static inline void in_helper(void (*fn)(void))
{
	in_helper_begin(fn);
	test_until(atomic_load(&work_done));
}

/* When it returns, the helper has seen all that was there before. */
static inline void helper_catches_up(void)
{
	in_helper(NULL);
	in_helper(NULL);
}

static bool all_freed;

static inline void all_freed_look(void)
{
	all_freed = !rds_tcp_state.all;
}

static inline void ck_all_freed(void)
{
	/* closes this thread's numbers, if it has any of its own, and the helper frees what had them */
	rds_helper_deferred_check();
	helper_catches_up();
	in_helper(all_freed_look);
	ck_assert(all_freed);
}

static inline struct in6_addr ip(const char *text)
{
	struct in6_addr a = {0};

	a.s6_addr[10] = a.s6_addr[11] = 0xff;
	ck_assert_int_eq(inet_pton(AF_INET, text, &a.s6_addr[12]), 1);
	return a;
}

static struct in6_addr claim_at;
static int claim_result;

static inline void claim_do(void)
{
	claim_result = tcp_listen_claims(&rds_tcp, &claim_at, 0);
}

static inline int claims(const char *at)
{
	claim_at = ip(at);
	in_helper(claim_do);
	return claim_result;
}

static inline void claim(const char *at)
{
	ck_assert_int_eq(claims(at), 1);
}

/* fds: the helper has a table of its own, or the program's */
static inline void tcp_setup_with(const char *fds)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rds_sock *sk;

	setenv("RDS_PRELOAD_HELPER_FDS", fds, 1);
	rds_options_reset();
	ck_assert_int_eq(rds_call_start_engine(), 0);
	ck_assert_int_ge(rds_call_socket(SOCK_SEQPACKET, 0, &sk), 0);
	/* so that the helper is there */
	ck_assert_int_eq(rds_call_bind(sk, (struct sockaddr *)&sin, sizeof(sin)), 0);
	rds_tcp.up = &tcp_up;
	rds_tcp_state.port = (uint16_t)(20000 + getpid() % 10000);
	claim(OURS);
	rx_lock();
	rds_tcp.ops->attention(&rds_tcp, RDS_ATT_POLLING);
	rx_unlock();
}

static inline void tcp_setup(void)
{
	tcp_setup_with("shared");
}

static inline void tcp_setup_own(void)
{
	tcp_setup_with("own");
	ck_assert(rds_helper_has_own_table());
}

/* The number of the endpoint's socket in this thread's table, since now at the latest. */
static inline int sock_of(const struct rds_conn *conn)
{
	struct tcp_ep *ep = (struct tcp_ep *)conn->ep;

	test_until(tcp_fd_here(&ep->sock) >= 0);
	return tcp_fd_here(&ep->sock);
}

/* ---- what the engine does ---- */

static inline bool progress(void)
{
	unsigned i;
	bool any;

	rx_lock();
	any = rds_tcp.ops->progress(&rds_tcp);
	rx_unlock();
	pthread_mutex_lock(&tx);
	for (i = 0; i < 4; i++)
		if (atomic_exchange(&conns[i].pushes, 0) && conns[i].ep)
			rds_tcp.ops->push(conns[i].ep);
	pthread_mutex_unlock(&tx);
	return any;
}

#define progress_until(cond) test_until((progress(), (cond)))

static int connect_err;
static const char *connect_from, *connect_to;
static struct rds_conn *connect_conn;

static inline void connect_do(void)
{
	struct rds_conn *c = connect_conn;

	c->id = (struct rds_conn_id){.laddr = ip(connect_from), .faddr = ip(connect_to), .peer_slot = RDS_SLOT_REMOTE};
	connect_err = rds_tcp.ops->connect(&rds_tcp, &c->id, c, (struct rds_received){0}, &c->ep);
}

static inline int attempt_from(struct rds_conn *conn, const char *from, const char *to)
{
	connect_conn = conn;
	connect_from = from;
	connect_to = to;
	in_helper(connect_do);
	return connect_err;
}

static inline int attempt(struct rds_conn *conn, const char *to)
{
	return attempt_from(conn, OURS, to);
}

static inline struct rds_wire_hdr wire(uint64_t seq, uint32_t len, uint8_t flags)
{
	struct rds_hdr h = {.seq = seq, .len = len, .sport = 4001, .dport = 4000, .flags = flags};
	struct rds_wire_hdr w;

	rds_wire_hdr_encode(&h, &w, false);
	return w;
}

static inline unsigned char fill(uint64_t seq, size_t at)
{
	return (unsigned char)(seq * 31 + at * 7 + (at >> 8));
}

static inline unsigned char *filled(uint64_t seq, size_t len)
{
	unsigned char *p = malloc(len + 1);
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = fill(seq, i);
	return p;
}

static inline int engine_send(struct rds_conn *conn, uint64_t seq, uint32_t len, uint64_t *pos)
{
	struct rds_wire_hdr w = wire(seq, len, 0);
	unsigned char *data = filled(seq, len);
	struct iovec iov = {.iov_base = data, .iov_len = len};
	int err = -ENOTCONN;

	pthread_mutex_lock(&tx);
	if (conn->ep)
		err = rds_tcp.ops->send(conn->ep, &w, &iov, len, pos);
	pthread_mutex_unlock(&tx);
	free(data);
	return err;
}

static inline void engine_flush(struct rds_conn *conn)
{
	pthread_mutex_lock(&tx);
	if (conn->ep)
		rds_tcp.ops->flush(conn->ep, false);
	pthread_mutex_unlock(&tx);
}

static inline void engine_sends(struct rds_conn *conn, uint64_t seq, uint32_t len)
{
	uint64_t pos;

	ck_assert_int_eq(engine_send(conn, seq, len, &pos), 0);
	engine_flush(conn);
}

static inline void ck_seen(const struct rds_conn *conn, unsigned i, uint64_t seq, uint32_t len)
{
	const struct seen *s = &conn->seen[i];
	uint32_t at;

	ck_assert_uint_eq(s->hdr.seq, seq);
	ck_assert_uint_eq(s->hdr.len, len);
	for (at = 0; at < len && s->data[at] == fill(seq, at); at++)
		;
	ck_assert_uint_eq(at, len);
}

/* ---- a peer ---- */

static inline struct sockaddr_in sin_of(const char *at, uint16_t port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};

	inet_pton(AF_INET, at, &sin.sin_addr);
	return sin;
}

static inline int peer_listens(const char *at)
{
	struct sockaddr_in sin = sin_of(at, rds_tcp_state.port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	ck_assert_int_eq(listen(fd, 64), 0);
	return fd;
}

static inline int peer_connects_to(const char *at, const char *to)
{
	struct sockaddr_in from = sin_of(at, 0), sin = sin_of(to, rds_tcp_state.port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one));
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	/* it may have been accepted and refused by now: the kernel says so here, or at the next call */
	if (connect(fd, (struct sockaddr *)&sin, sizeof(sin)))
		ck_assert_msg(errno == EPIPE || errno == ECONNRESET, "%s from %s", strerror(errno), at);
	return fd;
}

static inline int peer_connects(const char *at)
{
	return peer_connects_to(at, OURS);
}

static inline void peer_writes(int fd, const void *bytes, size_t n)
{
	ck_assert_int_eq(send(fd, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
}

/* Reads exactly that many, while the engine makes progress. */
static inline void peer_reads(int fd, void *bytes, size_t n)
{
	size_t got = 0;
	ssize_t r;

	while (got < n) {
		r = recv(fd, (char *)bytes + got, n - got, MSG_DONTWAIT);
		if (r < 0 && errno == EAGAIN) {
			struct pollfd p = {.fd = fd, .events = POLLIN};

			progress();
			poll(&p, 1, 1);
			continue;
		}
		ck_assert_int_gt(r, 0);
		got += (size_t)r;
	}
}

/* The end of the connection, orderly or not. */
static inline bool peer_is_refused(int fd)
{
	char byte;

	return recv(fd, &byte, 1, 0) <= 0;
}

static inline void peer_sends_map(int fd)
{
	static const unsigned char map[RDS_CONG_MAP_BYTES];
	struct rds_wire_hdr w = wire(0, sizeof(map), RDS_FLAG_CONG_BITMAP);

	w.sport = w.dport = 0;
	peer_writes(fd, &w, sizeof(w));
	peer_writes(fd, map, sizeof(map));
}

static inline void peer_sends(int fd, uint64_t seq, uint32_t len, uint8_t flags)
{
	struct rds_wire_hdr w = wire(seq, len, flags);
	unsigned char *data = filled(seq, len);

	peer_writes(fd, &w, sizeof(w));
	if (len)
		peer_writes(fd, data, len);
	free(data);
}

static inline void peer_resets(int fd)
{
	struct linger now = {.l_onoff = 1};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

/* A smaller peer has connected, conns[2] is up, and its map has come. */
static inline int peer_is_up(void)
{
	int fd = peer_connects(SMALLER);

	test_until(atomic_load(&conns[2].ups) == 1);
	peer_sends_map(fd);
	progress_until(atomic_load(&conns[2].nseen) == 1);
	return fd;
}

#endif
