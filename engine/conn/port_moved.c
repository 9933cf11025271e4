/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * port_moved.c - redirects: a port of another host moves to another process while messages are on
 * their way.
 *
 * A sender to another host asks once which process has the port, and goes on sending to that
 * process.  When the port is closed there and bound by another process of that host, the kernel,
 * which knows one node and no processes, would give the next message to the new socket.  So here
 * the old process does not drop the message but sends a redirect with its number.  The bytes stay
 * with the sender, which keeps them until they are acknowledged.  The sender takes that message,
 * and all that it has sent to the port since, out of this connection, routes them anew, in order,
 * and forgets the old owner of the port.
 *
 * No message is lost or doubled, whenever the connection breaks:
 *   - A redirect is a message with a sequence number: it is sent again until it is acknowledged,
 *     and not acknowledged before the sender has taken out its messages.
 *   - A refused message is not acknowledged before the sender has *acknowledged the redirect*.  It
 *     does so with another such message, in the same step in which it takes out its own: the
 *     redirect covers what was sent to the port before that, and not what is sent after it.  (An
 *     acknowledgement of sequence numbers would not do: each side may be holding back what the
 *     other waits for.)
 *
 * Messages to the port that were sent before the refused one are done, acknowledged or not: none of
 * them is under way any more.
 *
 * A process that hands off a socket (share/handoff_out.c) sends a redirect for each of its ports
 * before it ends, with the number of the first message that it has not accepted: the messages
 * before that are with the socket, and go to its next owner.
 *
 * Both kinds may be what makes room that waiting messages need, since the peer does not acknowledge
 * meanwhile.  So they are put before messages that no transport ever had (rdma/op_order.c).
 * Messages to the port have been taken out of these, so their order does not change.  After a break
 * a redirect goes behind messages that are sent again, which have its numbers: that needs no more
 * room than before (transport/verbs/ep/batch.c).
 *
 * Order: while messages for the port are under way to the old process over another connection, new
 * ones follow them there; while taken-out messages wait, new ones go behind those (route.c).
 *
 * A port may be back before the redirect has been acknowledged: until then messages to it are still
 * refused, and find it again in order.
 *
 * A peer that takes nothing must not use up our memory by causing redirects.  Queued ones count
 * like answers (RDS_ANSWERS_MAX); above that limit a message that would need another redirect is
 * not taken.  The acknowledgement of a redirect is always taken: it causes no message, and sequence
 * acknowledgements wait for it.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "engine/conn/client.h"
#include "engine/conn/conn.h"
#include "engine/conn/port_cache.h"

#define AGAIN_NS (10 * 1000000ull)
/*
 * A redirect from this number on takes no message back: only the route is looked up again.  A
 * process of another user of this host cannot see when a socket of ours is closed (node/others.c).
 * What it has sent meanwhile is dropped, as for any closed socket.
 */
#define NO_MESSAGE UINT64_MAX
/* a peer that runs this library causes at most one for each port, until it acknowledges it */
#define REDIRECTS_OUT_MAX 65536u

/*
 * May another living process of this host have the port now?  If the registry is just being
 * changed, that cannot be told without waiting, and rx is held.  Then the sender finds out: it asks
 * which process has the port.
 */
static bool port_may_have_moved(const struct rds_conn *conn, uint16_t port)
{
	struct registry_owner own;
	int err = registry_lookup_nowait(rds_node_registry, &conn->id.laddr, port, conn->id.scope, &own);

	if (err)
		return err != -ENOENT;
	return memcmp(&own.procid, registry_self(rds_node_registry), sizeof(own.procid)) != 0 &&
	       registry_proc_alive(rds_node_registry, own.proc, &own.procid);
}

/* rx held.  The list may move, so a thread with tx only must not read it. */
static struct rds_conn_redirect *redirect_add(struct rds_conn *conn)
{
	struct rds_conn_seldom *s = rds_conn_seldom_get(conn);
	unsigned n = atomic_load(&conn->nredirects_out), cap;
	struct rds_conn_redirect *more;

	if (!s)
		return NULL;
	if (n == s->out_cap) {
		cap = s->out_cap ? 2 * s->out_cap : RDS_REDIRECTS_MAX;
		more = realloc(s->out, cap * sizeof(*more));
		if (!more)
			return NULL;
		s->out = more;
		s->out_cap = cap;
	}
	atomic_store(&conn->nredirects_out, n + 1);
	return &s->out[n];
}

static bool redirects_are_full(const struct rds_conn *conn)
{
	return atomic_load(&conn->answer_bytes) > RDS_ANSWERS_MAX;
}

/* The redirect that covers a message to that port. */
static struct rds_conn_redirect *redirect_covering(const struct rds_conn *conn, uint16_t port, uint64_t seq)
{
	unsigned i, n = atomic_load(&conn->nredirects_out);
	struct rds_conn_redirect *out = n ? conn->seldom->out : NULL;

	for (i = 0; i < n; i++)
		if (!out[i].acked && out[i].port == port && out[i].seq <= seq)
			return &out[i];
	return NULL;
}

bool rds_conn_redirect_covers(const struct rds_conn *conn, const struct rds_hdr *hdr)
{
	return redirect_covering(conn, hdr->dport, hdr->seq);
}

unsigned rds_conn_redirect_owed(const struct rds_conn *conn)
{
	unsigned i, n = 0;

	if (likely(!atomic_load(&conn->nredirects_out)))
		return 0;
	rx_lock();
	for (i = 0; i < atomic_load(&conn->nredirects_out); i++)
		n += conn->seldom->out[i].refused && !conn->seldom->out[i].acked;
	rx_unlock();
	return n;
}

/*
 * Messages of the peer to that port, from number seq on, have to be sent elsewhere.  One redirect
 * covers all that the peer sends before it acknowledges it.  refused: seq is a message that was
 * refused and waits for that; else it has not been sent yet.  False: no memory, or the peer has
 * caused too many.
 */
static bool redirect_note_port(struct rds_conn *conn, uint16_t port, uint64_t seq, bool refused)
{
	struct rds_conn_redirect *m = redirect_covering(conn, port, seq);

	rds_conn_work_add(conn);
	if (!m && refused && (redirects_are_full(conn) || atomic_load(&conn->nredirects_out) >= REDIRECTS_OUT_MAX))
		return false;
	if (!m && (m = redirect_add(conn)))
		*m = (struct rds_conn_redirect){.seq = seq, .port = port};
	if (m && refused && !m->refused)
		m->refused = seq;
	return m;
}

enum rds_rx_verdict rds_conn_redirect_refuse(struct rds_conn *conn, struct rds_ep *ep, const struct rds_hdr *hdr)
{
	const unsigned caps = ((struct rds_ep_head *)ep)->t->ops->caps;
	bool far = (caps & RDS_TCAP_REMOTE) && !(caps & RDS_TCAP_NODE);

	/* only a hint: that user can cause one for each port, and need not acknowledge them */
	if (!far && registry_slot_is_others(conn->id.peer_slot) && !redirects_are_full(conn) &&
	    atomic_load(&conn->nredirects_out) < RDS_REDIRECTS_MAX)
		(void)redirect_note_port(conn, hdr->dport, NO_MESSAGE, false);
	if (!far || !port_may_have_moved(conn, hdr->dport)) {
		RDS_STAT_INC_RX(recv_drop_no_sock);
		return RDS_RX_DONE;
	}
	return redirect_note_port(conn, hdr->dport, hdr->seq, true) ? RDS_RX_DONE : RDS_RX_LATER;
}

static bool peer_takes_redirects(const struct rds_conn *conn)
{
	return rds_conn_is_to_far_process(conn);
}

enum rds_rx_verdict rds_conn_redirect_late(struct rds_conn *conn, const struct rds_hdr *hdr)
{
	return peer_takes_redirects(conn) && redirect_note_port(conn, hdr->dport, hdr->seq, true) ? RDS_RX_DONE
												  : RDS_RX_LATER;
}

bool rds_conn_redirect_begin(struct rds_conn *conn, uint16_t port)
{
	uint64_t next = atomic_load_explicit(&conn->next_rx, memory_order_relaxed);

	return !peer_takes_redirects(conn) || redirect_note_port(conn, port, next, false);
}

/* Payload of a redirect and of its acknowledgement; the latter has one byte more. */
struct redirect_bytes {
	uint64_t seq;
	uint16_t port;
	uint8_t acked;
} __attribute__((packed));
_Static_assert(offsetof(struct redirect_bytes, acked) == RDS_REDIRECT_BYTES &&
		       sizeof(struct redirect_bytes) == RDS_REDIRECT_ACK_BYTES,
	       "what wire/header.h says");

/* The peer has taken out its messages: it sent the messages that come from now on after that. */
static void redirect_note_acked(struct rds_conn *conn, uint64_t seq, uint16_t port)
{
	unsigned i;

	for (i = 0; i < atomic_load(&conn->nredirects_out); i++)
		if (conn->seldom->out[i].sent && conn->seldom->out[i].seq == seq && conn->seldom->out[i].port == port)
			conn->seldom->out[i].acked = true;
}

enum rds_rx_verdict rds_conn_redirect_recv(struct rds_conn *conn, const struct rds_rx *rx)
{
	unsigned n = atomic_load(&conn->nredirects_in);
	struct redirect_bytes b = {0};
	struct rds_conn_seldom *s;

	memcpy(&b, rx->data, rx->hdr.len);
	rds_conn_work_add(conn);
	if (rx->hdr.len == RDS_REDIRECT_ACK_BYTES) {
		redirect_note_acked(conn, be64toh(b.seq), be16toh(b.port));
		return RDS_RX_DONE;
	}
	s = rds_conn_seldom_get(conn);
	if (!s || n == RDS_REDIRECTS_MAX || redirects_are_full(conn))
		return RDS_RX_LATER;
	s->in[n] =
		(struct rds_conn_redirect){.seq = be64toh(b.seq), .port = be16toh(b.port), .redirect_seq = rx->hdr.seq};
	atomic_store(&conn->nredirects_in, n + 1);
	return RDS_RX_DONE;
}

uint64_t rds_conn_redirect_limit(const struct rds_conn *conn, uint64_t last)
{
	unsigned i, n = atomic_load(&conn->nredirects_out);

	for (i = 0; i < n; i++)
		if (!conn->seldom->out[i].acked && conn->seldom->out[i].refused && conn->seldom->out[i].refused <= last)
			last = conn->seldom->out[i].refused - 1;
	if (atomic_load(&conn->nredirects_in) && !conn->seldom->in[0].acked && conn->seldom->in[0].redirect_seq <= last)
		last = conn->seldom->in[0].redirect_seq - 1;
	return last;
}

/*
 * The first n are done; sequence numbers that they held back may be acknowledged.  tx and rx held.
 */
static void redirects_remove(struct rds_conn *conn, struct rds_conn_redirect *list, _Atomic unsigned *count, unsigned n)
{
	unsigned left = atomic_load(count) - n;

	memmove(list, list + n, left * sizeof(*list));
	atomic_store(count, left);
	if (conn->ep)
		conn->t->ops->ack(conn->ep, rds_conn_recv_taken(conn));
}

/* tx held.  0, or -ENOMEM: not sent. */
static int redirect_send_one(struct rds_conn *conn, const struct rds_conn_redirect *m, size_t len)
{
	struct redirect_bytes bytes = {.seq = htobe64(m->seq), .port = htobe16(m->port), .acked = 1};
	struct iovec iov = {.iov_base = &bytes, .iov_len = len};
	struct rds_conn_outgoing out = {.iov = &iov, .len = len, .answer = true};

	out.hdr.len = out.u.len = (uint32_t)len;
	out.hdr.flags = RDS_FLAG_REDIRECT | RDS_FLAG_ACK_REQUIRED;
	if (rds_conn_xmit(conn, &out))
		return -ENOMEM;
	rds_queue_flush(conn);
	return 0;
}

/*
 * The next redirect that has not been sent.  Marks it as sent: it may be acknowledged before
 * redirect_send_one() returns.
 */
static bool redirect_next_unsaid(struct rds_conn *conn, struct rds_conn_redirect *m, unsigned *at)
{
	bool some = false;

	rx_lock();
	for (; *at < atomic_load(&conn->nredirects_out) && !some; ++*at)
		if (!conn->seldom->out[*at].sent) {
			conn->seldom->out[*at].sent = some = true;
			*m = conn->seldom->out[*at];
		}
	rx_unlock();
	return some;
}

/* Removes redirects that the peer has acknowledged. */
static void redirects_drop_acked(struct rds_conn *conn)
{
	unsigned n;

	rx_lock();
	for (n = 0; n < atomic_load(&conn->nredirects_out); n++)
		if (!conn->seldom->out[n].acked)
			break;
	if (n)
		redirects_remove(conn, conn->seldom->out, &conn->nredirects_out, n);
	rx_unlock();
}

void rds_conn_redirect_send(struct rds_conn *conn)
{
	struct rds_conn_redirect m = {0};
	unsigned at = 0;

	redirects_drop_acked(conn);
	if (atomic_load(&conn->state) == RDS_CONN_DEAD)
		return;
	while (redirect_next_unsaid(conn, &m, &at)) {
		if (!redirect_send_one(conn, &m, RDS_REDIRECT_BYTES))
			continue;
		rx_lock();
		conn->seldom->out[at - 1].sent = false; /* only a thread with tx removes entries */
		rx_unlock();
		rds_timer_set(&conn->retry, os_now_ns() + AGAIN_NS);
		break;
	}
	if (unlikely(rds_conn_is_held(conn)))
		rds_queue_flush(conn); /* before what waits there */
	if (conn->ep)
		conn->t->ops->flush(conn->ep, true);
}

/*
 * The first one's own sequence number may be acknowledged; done: remove it, the peer has got its
 * acknowledgement.  control and tx held.
 */
static void redirect_ack_in(struct rds_conn *conn, bool done)
{
	rx_lock();
	conn->seldom->in[0].acked = true;
	if (done)
		redirects_remove(conn, conn->seldom->in, &conn->nredirects_in, 1);
	else if (conn->ep)
		conn->t->ops->ack(conn->ep, rds_conn_recv_taken(conn));
	rx_unlock();
}

/*
 * The acknowledgement of the redirect also carries its sequence acknowledgement: nothing else may
 * go to the peer for a while.  tx held.  False: no memory just now.
 */
static bool redirect_take_and_ack(struct rds_conn *conn, const struct rds_conn_redirect *m,
				  struct rds_queue_item **list)
{
	/* else this is done already, and what was dropped is no longer known */
	if (atomic_load(&conn->state) == RDS_CONN_UP) {
		rx_lock();
		rds_conn_client.ops_judge(conn);
		rx_unlock();
	}
	if (!rds_queue_take_port(conn, m->port, m->seq, list))
		return false;
	rds_queue_done_port(conn, m->port, m->seq);
	redirect_ack_in(conn, false);
	if (redirect_send_one(conn, m, RDS_REDIRECT_ACK_BYTES))
		return false;
	if (conn->ep)
		conn->t->ops->flush(conn->ep, true);
	return true;
}

/* control held. */
static bool redirect_take_locked(struct rds_conn *conn, const struct rds_conn_redirect *m, struct rds_queue_item **list)
{
	bool taken = true;

	*list = NULL;
	rds_lock(&conn->tx);
	if (atomic_load(&conn->state) != RDS_CONN_DEAD)
		taken = redirect_take_and_ack(conn, m, list);
	if (taken)
		redirect_ack_in(conn, true);
	rds_unlock(&conn->tx);
	return taken;
}

/* control held. */
static bool redirect_take_back(struct rds_conn *conn, const struct rds_conn_redirect *m)
{
	struct rds_addr dst = {.ip = conn->id.faddr, .scope = conn->id.scope, .port = m->port};
	bool here = conn->id.peer_slot != RDS_SLOT_REMOTE, taken;
	struct rds_queue_item *list;

	if (!here && atomic_load(&conn->state) != RDS_CONN_DEAD)
		rds_route_port_moved(&dst, &conn->id.peer);
	atomic_fetch_add(&rds_route_gen, 1); /* first: later senders look up the route again */
	taken = redirect_take_locked(conn, m, &list);
	if (!list)
		rds_debug("port %u has moved, no message to it is left here", m->port);
	/* newer messages for a socket of this host were held back */
	rds_route_requeue(&conn->id, list, here);
	return taken;
}

/* Only a thread with control removes it. */
static bool redirect_first_in(struct rds_conn *conn, struct rds_conn_redirect *m)
{
	bool some;

	rx_lock();
	some = atomic_load(&conn->nredirects_in) > 0;
	if (some)
		*m = conn->seldom->in[0];
	rx_unlock();
	return some;
}

/*
 * Several threads may run this, so a redirect is read and carried out in one step.  Carried out
 * twice, it would take back newer messages as well: if the peer has the port again, it has accepted
 * them.
 */
void rds_conn_redirect_run(struct rds_conn *conn)
{
	struct rds_conn_redirect m;
	bool some, taken;

	do {
		rds_lock(&rds_lock_control);
		some = redirect_first_in(conn, &m);
		taken = some && redirect_take_back(conn, &m);
		rds_unlock(&rds_lock_control);
	} while (taken);
	if (some)
		rds_timer_set(&conn->retry, os_now_ns() + AGAIN_NS);
}
