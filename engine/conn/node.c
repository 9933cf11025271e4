/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * node.c - connections to other hosts as a whole (RDS_TCAP_NODE), where the kernel's RDS may be the
 * peer: what such a peer is told when a connection comes up, and what it says of itself.
 *
 * Peers of that kind ask each other how many paths they have, by a *probe*: a ping from port 1.  Some of
 * the kernel's senders sleep until they know.  So a probe goes first on each connection, and says that
 * there is one path.  It also tells the *generation*: another one than before means that the node counts
 * its messages from 1 again.
 *
 * Must not know how bytes move.
 */
#include "engine/conn/client.h"
#include "engine/conn/conn.h"

#include <stdlib.h>

#define PROBE_PORT 1 /* no socket has it */
#define ASKED_PAUSE_MS 1
#define ASKED_PAUSE_MAX_MS 100u
#define MUTE_NS (100 * 1000000ull)
#define MUTES 16 /* then there is nothing to be said, perhaps */
#define MUTE_SELDOM_NS (8000 * 1000000ull)

static _Atomic uint32_t node_generation; /* of this process; 0: not drawn yet */

uint32_t rds_conn_node_generation(void)
{
	uint32_t gen = atomic_load(&node_generation), drawn = 0;

	while (!gen) {
		os_random(&drawn, sizeof(drawn));
		if (drawn && atomic_compare_exchange_strong(&node_generation, &gen, drawn))
			return drawn;
	}
	return gen;
}

void rds_conn_node_forget(void)
{
	atomic_store(&node_generation, 0);
}

/* Its numbers may go on where those of another process have ended. */
void rds_conn_node_introduce(const struct rds_conn *conn, struct rds_hdr *hdr)
{
	hdr->ext_type = RDS_EXTHDR_NPATHS;
	hdr->ext_npaths = 1;
	hdr->ext_gen = conn->seldom && conn->seldom->own_gen ? conn->seldom->own_gen : rds_conn_node_generation();
}

/* ---- what we say; tx held ---- */

static bool item_is_probe(const struct rds_queue_item *q)
{
	return q->hdr.sport == PROBE_PORT && q->hdr.dport == 0;
}

struct rds_queue_item **rds_conn_node_unprobe(struct rds_conn *conn)
{
	struct rds_queue_item **p = &conn->queue, **behind_sent = p, *q;

	while ((q = *p)) {
		if (item_is_probe(q)) {
			rds_queue_drop_at(conn, p);
			continue;
		}
		p = &q->next;
		if (q->was_sent)
			behind_sent = p;
	}
	conn->queue_tail = p;
	return behind_sent;
}

/*
 * The probe comes behind the messages that are sent again.  Before them it could not tell the peer which
 * number to expect: a higher one would have them dropped, and a lower one would have the peer take
 * what it has already.  It has the number of the message before it, which the peer takes, and expects
 * what it has expected before.  If the connection breaks, it is not sent again, but made anew.
 *
 * Nothing of ours goes before the node has got the first one.  It may know an earlier process of this
 * address, which had higher numbers: what it was sent, and is sent again after a break, it would drop.
 */
static void node_probe(struct rds_conn *conn)
{
	struct rds_queue_item **place = rds_conn_node_unprobe(conn), *q = calloc(1, sizeof(*q));

	if (!q)
		return; /* the peer asks */
	if (place != &conn->queue)
		q->hdr.seq = container_of(place, struct rds_queue_item, next)->u.seq;
	else
		q->hdr.seq = (*place ? (*place)->u.seq : conn->next_tx) - 1;
	q->hdr.sport = PROBE_PORT;
	q->holds = !conn->acked;
	rds_conn_node_introduce(conn, &q->hdr);
	q->u = (struct rds_queue_unacked){.seq = q->hdr.seq, .sport = PROBE_PORT, .cancelled = true};
	q->next = *place;
	*place = q;
	if (!q->next)
		conn->queue_tail = &q->next;
	conn->queue_len++;
	rds_queue_busy_add(conn);
}

void rds_conn_node_greet(struct rds_conn *conn)
{
	bool later = rds_conn_xmit_map(conn) != 0;

	rx_lock();
	conn->want_map = later;
	if (conn->seldom) {
		conn->seldom->peer_spoke = false;
		conn->seldom->greeted_ns = os_now_ns();
	}
	rx_unlock();
	node_probe(conn);
}

/* ---- what it says ---- */

/*
 * rx held.  A node that has forgotten its numbers counts from 1: its messages are no duplicates, even if
 * it has sent them before.
 */
static void node_heard(struct rds_conn *conn, const struct rds_hdr *hdr)
{
	struct rds_conn_seldom *s = hdr->ext_type == RDS_EXTHDR_NPATHS ? rds_conn_seldom_get(conn) : NULL;

	if (!s)
		return;
	s->peer_paths = hdr->ext_npaths < UINT16_MAX ? (uint16_t)hdr->ext_npaths : UINT16_MAX;
	if (!hdr->ext_gen)
		return;
	if (s->peer_gen && s->peer_gen != hdr->ext_gen)
		atomic_store_explicit(&conn->next_rx, 1, memory_order_relaxed);
	s->peer_gen = hdr->ext_gen;
}

/* A map, and the answer to a probe or a ping, goes out on any path. */
static void node_note_speech(struct rds_conn *conn, const struct rds_hdr *hdr)
{
	if (likely(!conn->seldom || conn->seldom->peer_paths <= 1) || hdr->flags == RDS_FLAG_CONG_BITMAP)
		return;
	if (!hdr->sport || hdr->sport == PROBE_PORT)
		return;
	conn->seldom->peer_spoke = true;
	conn->seldom->mutes = 0;
}

/* The next owner of the connection has to know. */
static void node_keep_number(const struct rds_conn *conn)
{
	if (unlikely(conn->seldom && conn->seldom->trunk))
		rds_trunk_received(conn->seldom->trunk, atomic_load_explicit(&conn->next_rx, memory_order_relaxed),
				   conn->seldom->peer_gen);
}

/*
 * It begins anew, but what tells it comes marked: it has said so before, over connections that were refused because its
 * former one seemed up.
 */
static bool node_is_new(const struct rds_conn *conn, const struct rds_hdr *hdr)
{
	return hdr->ext_type == RDS_EXTHDR_NPATHS && hdr->ext_gen && conn->seldom && conn->seldom->peer_gen &&
	       conn->seldom->peer_gen != hdr->ext_gen;
}

static bool node_is_duplicate(const struct rds_conn *conn, const struct rds_hdr *hdr)
{
	return (hdr->flags & RDS_FLAG_RETRANSMITTED) &&
	       hdr->seq < atomic_load_explicit(&conn->next_rx, memory_order_relaxed);
}

enum rds_rx_verdict rds_conn_node_receive(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	const struct rds_hdr *hdr = &rx->hdr;
	enum rds_rx_verdict v;
	bool old, tells;

	if (unlikely(hdr->flags == RDS_FLAG_CONG_BITMAP && hdr->len != RDS_CONG_MAP_BYTES))
		return RDS_RX_DONE;
	if (likely(hdr->flags == RDS_FLAG_CONG_BITMAP || (hdr->sport && hdr->dport))) {
		v = rds_conn_receive(conn, ep, rx);
		node_note_speech(conn, hdr);
		node_keep_number(conn);
		return v;
	}
	tells = hdr->dport == PROBE_PORT || hdr->sport == PROBE_PORT;
	if (tells && unlikely(node_is_new(conn, hdr)))
		atomic_store_explicit(&conn->next_rx, 1, memory_order_relaxed);
	old = node_is_duplicate(conn, hdr);
	if (hdr->dport == PROBE_PORT) { /* the answer to a probe */
		if (old)
			RDS_STAT_INC_RX(recv_drop_old_seq);
		else
			atomic_store_explicit(&conn->next_rx, hdr->seq + 1, memory_order_relaxed);
		v = RDS_RX_DONE;
	} else {
		v = rds_conn_receive(conn, ep, rx);
	}
	if (tells && !old && v == RDS_RX_DONE)
		node_heard(conn, hdr);
	node_note_speech(conn, hdr);
	node_keep_number(conn);
	return v;
}

/*
 * Kernel RDS that has had eight paths to this address, before this library took it over, connects all of them again, and
 * none says which it is.  Once it has been told that there is one, it speaks over its first path only.  So a path over
 * which it has said nothing makes way for the next one that comes, until it speaks.  Not while messages are under way: on
 * another path, which has old numbers, they could be taken for duplicates.  rx held.
 */
static bool node_path_is_mute(struct rds_conn *conn)
{
	struct rds_conn_seldom *s = conn->seldom;

	if (likely(!s || s->peer_paths <= 1 || s->peer_spoke) ||
	    os_now_ns() - s->greeted_ns < (s->mutes < MUTES ? MUTE_NS : MUTE_SELDOM_NS))
		return false;
	s->mutes++;
	return true;
}

/*
 * An attempt follows soon, but not so soon if the last ones have failed, and not more than one in a
 * millisecond, however many hosts ask.  Helper.
 */
static void node_attempt(struct rds_conn *conn)
{
	static uint64_t last;
	uint64_t pause = conn->backoff_ms < ASKED_PAUSE_MAX_MS ? conn->backoff_ms : ASKED_PAUSE_MAX_MS;
	uint64_t now = os_now_ns(), due = now + (pause ? pause : ASKED_PAUSE_MS) * 1000000;

	if (due < last + ASKED_PAUSE_MS * 1000000)
		due = last + ASKED_PAUSE_MS * 1000000;
	if (rds_timer_by(&conn->retry, due))
		last = due;
}

/* Helper, no lock held. */
void rds_conn_asked(struct rds_transport *t, const struct rds_conn_id *id)
{
	int why;
	struct rds_conn *conn = rds_conn_for_request(t, id, &why);
	bool up, mute, rests;

	if (!conn)
		return;
	rds_lock(&conn->tx);
	up = conn->ep;
	rds_queue_reap(conn);
	rests = !conn->count && !conn->queue;
	rds_unlock(&conn->tx);
	if (!up) {
		if (!conn->pending)
			node_attempt(conn);
		return;
	}
	rx_lock();
	mute = rests && node_path_is_mute(conn);
	conn->want_map = true;
	rds_conn_work_add(conn);
	rx_unlock();
	if (mute && !atomic_exchange(&conn->reset, true))
		rds_timer_set(&conn->retry, os_now_ns());
	rds_conn_work_run();
}
