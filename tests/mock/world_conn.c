/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * world_conn.c - connections and messages of a test of the verbs transport (world.h), with our own
 * other end or a scripted peer.
 */
#include "tests/mock/world.h"

#include <endian.h>
#include <sched.h>
#include <string.h>

#include "tests/unit/registry_helper.h"

/* ---- connections ---- */

int world_connect(struct world_conn *c, const char *from, const char *to, uint16_t port, const struct rds_procid *peer)
{
	int err;

	c->id = (struct rds_conn_id){
		.laddr = v4(from),
		.faddr = v4(to),
		.tos = c->tos,
		.peer = *peer,
		.peer_slot = RDS_SLOT_REMOTE,
		.peer_port = port,
	};
	err = verbs_ep_connect(world.t, &c->id, (struct rds_conn *)(void *)c,
			       (struct rds_received){.acked = c->rx_seq, .all = c->rx_seq + c->held}, &c->ep);
	c->open = !err;
	return err;
}

static void threads_end(void)
{
	while (atomic_load(&rds_helper_extra_threads))
		sched_yield();
}

void world_connect_go(int err)
{
	mock_connect_go(err);
	threads_end();
}

void world_destroy_go(void)
{
	mock_destroy_go();
	threads_end();
}

struct in6_addr world_ip(const char *ip)
{
	return v4(ip);
}

void world_close(struct world_conn *c)
{
	if (!c->ep) /* at most an attempt of the peer's, of which the engine has nothing in hand */
		return;
	verbs_ep_close(c->ep);
	c->ep = NULL;
	c->open = false;
}

void world_pair(void)
{
	ck_assert_int_eq(world_claim(US2), 1);
	ck_assert_int_eq(world_connect(&world.conn[0], US, US2, verbs_cm.port, registry_self(rds_node_registry)), 0);
	world_run();
	if (world_ep(&world.conn[0])->dev->caps.initiator_first) {
		ck_assert_int_eq(world_send(&world.conn[0], 1, 0), 0);
		world_run();
	}
	ck_assert_uint_eq(world.conn[0].ups, 1);
	ck_assert_uint_eq(world.conn[1].ups, 1);
}

void world_large(struct world_conn *x, struct world_conn *y)
{
	struct verbs_ep *to = world_ep(y), *from = world_ep(x);

	if (!to->dev->caps.credits)
		return;
	world_run();
	ck_assert(!verbs_credit_grant_due(to));
	rx_lock();
	while (to->nlarge < 20 && verbs_credit_buf_post(to, true))
		from->known[from->known_told++ % VERBS_KNOWN] = true;
	rx_unlock();
	ck_assert_uint_gt(to->nlarge, 4);
	/* frames without a message use up the others */
	while (!from->known[from->known_used % VERBS_KNOWN]) {
		atomic_store(&from->ack_due, true);
		verbs_ep_push(x->ep);
		world_run();
	}
}

/* ---- the scripted peer ---- */

struct rds_procid world_peer_id(void)
{
	struct rds_procid id;

	memset(&id, 0x77, sizeof(id));
	return id;
}

void world_hello(struct verbs_request *h, enum verbs_request_kind ask)
{
	verbs_request_init(h, ask, 0);
	h->frame = verbs_frame_units(VERBS_FRAME);
	h->wanted = h->self;
	h->self = world_peer_id();
	h->listener = PEER_PORT;
}

void world_answer(struct verbs_answer *a, enum verbs_status status)
{
	verbs_answer_init(a, status, 0);
	a->frame = verbs_frame_units(VERBS_FRAME);
	a->self = world_peer_id();
	a->listener = PEER_PORT;
}

struct verbs_answer world_answer_in(const struct rdma_cm_event *ev)
{
	struct verbs_answer a;

	ck_assert(verbs_answer_check(ev->param.conn.private_data, ev->param.conn.private_data_len, &a));
	return a;
}

static void peer_begins(struct world_conn *c);

/* Time and again it is our turn. */
static void peer_step(enum rdma_cm_event_type type)
{
	world_run();
	peer_event(&world.peer, type);
}

void world_peer_asks(const struct verbs_request *h, const char *to, uint16_t port)
{
	struct verbs_request wire;

	verbs_request_pack(h, &wire);
	peer_connect(&world.peer, THEM, to, port, &wire, sizeof(wire));
	world_run();
}

void world_peer_rejects(const struct verbs_answer *a)
{
	struct verbs_answer wire;

	verbs_answer_pack(a, &wire);
	peer_step(RDMA_CM_EVENT_CONNECT_REQUEST);
	peer_reject(&world.peer, &wire, sizeof(wire));
	world_run();
}

void world_join(struct world_conn *c, unsigned recvs, unsigned credits)
{
	world_join_at(c, PEER_PORT, recvs, credits);
}

void world_join_at(struct world_conn *c, uint16_t port, unsigned recvs, unsigned credits)
{
	struct rds_procid them = world_peer_id();
	struct verbs_answer a, wire;

	if (!world.peer.listener)
		peer_listen(&world.peer, THEM, port);
	ck_assert_int_eq(world_connect(c, US, THEM, port, &them), 0);
	peer_step(RDMA_CM_EVENT_CONNECT_REQUEST);
	world_answer(&a, VERBS_OK);
	a.credits = (uint16_t)VERBS_CREDITS(0, credits);
	verbs_answer_pack(&a, &wire);
	peer_accept(&world.peer, &wire, sizeof(wire), recvs);
	peer_step(RDMA_CM_EVENT_ESTABLISHED);
	peer_ack(&world.peer);
	ck_assert_uint_eq(c->ups, 1);
	peer_begins(c);
}

void world_joined_by(struct world_conn *c, unsigned credits)
{
	struct verbs_request h;

	world_hello(&h, VERBS_CONNECT);
	h.credits = (uint16_t)VERBS_CREDITS(0, credits);
	world_joined_with(c, &h);
}

struct verbs_answer world_joined_with(struct world_conn *c, const struct verbs_request *h)
{
	struct verbs_answer answer;

	world.next = c;
	world_peer_asks(h, US, verbs_cm.port);
	peer_step(RDMA_CM_EVENT_ESTABLISHED);
	answer = world_answer_in(world.peer.ev);
	peer_begins(c);
	peer_ack(&world.peer);
	world_run();
	return answer;
}

void world_up_by(struct world_conn *c, unsigned credits)
{
	world_joined_by(c, credits);
	world_peer_frame(&(struct rds_hdr){0}, NULL, 0);
	world_run();
	ck_assert_uint_eq(c->ups, 1);
}

void world_cm_next(unsigned n)
{
	while (n--) {
		ck_assert(mock_cm_next());
		world_run();
	}
}

void world_peer_drain(void)
{
	struct ibv_wc wc;

	while (peer_poll(&world.peer, &wc))
		if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV)
			peer_post(&world.peer, 1);
}

void world_ib_joined(void)
{
	world_ib();
	world_join(&world.conn[0], 32, 32);
}

void world_iwarp_joined(void)
{
	world_iwarp();
	world_up_by(&world.conn[0], 32);
	world_peer_drain();
}

/* The peer's end of it. */
static struct verbs_ep *peers(void)
{
	struct verbs_ep *ep = verbs_eps.all;

	while (ep && (ep->closed || ep->head.conn != (struct rds_conn *)(void *)world.peer.conn))
		ep = ep->next;
	return ep && ep->dev && ep->dev->caps.credits ? ep : NULL;
}

static void peer_begins(struct world_conn *c)
{
	struct verbs_ep *ep;

	world.peer.conn = c;
	world.peer.segments = 0;
	ep = peers();
	world.peer.lent = ep ? ep->rq_len - atomic_load(&ep->offered) : 0;
}

/*
 * What fits where the peer's next segment will lie: the peer knows as much as it would from its
 * credits.
 */
static size_t peer_may_send(void)
{
	struct verbs_ep *ep = peers();
	const struct verbs_buf *buf;
	uint32_t skip;

	if (!ep)
		return PEER_BUF;
	if (world.peer.segments >= world.peer.lent + atomic_load(&ep->offer_told))
		world_run(); /* it waits for credits */
	if (peers() != ep)
		return PEER_BUF;
	skip = world.peer.segments++ - (world.peer.lent + atomic_load(&ep->offered) - ep->rq_len);
	for (buf = ep->rq; buf && skip; skip--)
		buf = buf->next;
	return buf && !buf->large ? VERBS_BUF_SMALL : PEER_BUF;
}

void world_peer_bytes(unsigned char *frame, size_t len)
{
	size_t n = peer_may_send(), at = n < len ? n : len;
	uint32_t total = htobe32((uint32_t)len);

	if (at < len)
		memcpy(((struct rds_wire_hdr *)(void *)frame)->padding, &total, sizeof(total));
	peer_send(&world.peer, frame, at, IBV_SEND_SIGNALED);
	while (at < len) {
		unsigned char *mark = frame + at - VERBS_MARK; /* what was there has been sent */

		n = peer_may_send() - VERBS_MARK;
		n = n < len - at ? n : len - at;
		memset(mark, 0xff, VERBS_MARK);
		peer_send(&world.peer, mark, VERBS_MARK + n, IBV_SEND_SIGNALED);
		at += n;
	}
}

void world_peer_frame(const struct rds_hdr *h, const void *bytes, size_t len)
{
	_Alignas(struct rds_wire_hdr) unsigned char frame[PEER_BUF];
	struct rds_wire_hdr w;

	rds_wire_hdr_encode(h, &w, false);
	memcpy(frame, &w, sizeof(w));
	if (len)
		memcpy(frame + sizeof(w), bytes, len);
	world_peer_bytes(frame, sizeof(w) + len);
}

/* ---- messages ---- */

int world_send(struct world_conn *c, size_t len, uint8_t flags)
{
	static unsigned char bytes[RDS_MAX_MSG];
	struct rds_hdr hdr = {.seq = c->tx_seq + 1, .len = (uint32_t)len, .sport = 1, .dport = 2, .flags = flags};
	struct iovec iov = {.iov_base = bytes, .iov_len = len};
	struct rds_wire_hdr wire;
	uint64_t pos;
	int err;

	world_fill(hdr.seq, bytes, len);
	rds_wire_hdr_encode(&hdr, &wire, false);
	err = verbs_ep_send(c->ep, &wire, &iov, len, &pos);
	if (err)
		return err;
	c->tx_seq++;
	ck_assert_mem_eq(verbs_ep_retained(c->ep, pos), bytes, len);
	verbs_ep_flush(c->ep, false);
	return 0;
}

void world_peer_sends(uint64_t seq, size_t len, uint8_t flags)
{
	unsigned char bytes[VERBS_FRAME];

	world_fill(seq, bytes, len);
	world_peer_frame(&(struct rds_hdr){.seq = seq, .len = (uint32_t)len, .sport = 1, .dport = 2, .flags = flags},
			 bytes, len);
}

void world_got_one(const struct world_conn *c, uint64_t seq)
{
	ck_assert_uint_eq(c->nmsgs, 1);
	ck_assert_uint_eq(c->msg[0].seq, seq);
	ck_assert(c->msg[0].intact);
}

void world_release(void)
{
	rx_lock();
	while (world.ninplace) {
		world.ninplace--;
		verbs_ep_release(world.inplace[world.ninplace].ep, world.inplace[world.ninplace].token);
	}
	rx_unlock();
}

bool world_all_came(const struct world_conn *from, const struct world_conn *to)
{
	unsigned i;

	if (to->nmsgs != from->tx_seq)
		return false;
	for (i = 0; i < to->nmsgs; i++)
		if (to->msg[i].seq != i + 1 || !to->msg[i].intact)
			return false;
	return true;
}
