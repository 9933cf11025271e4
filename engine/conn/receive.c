/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * receive.c - messages from the wire go into sockets' queues (net/rds/recv.c).  rx held.
 *
 * A connection accepts each message of a peer that keeps to the protocol once and in order: its
 * sequence numbers outlive the connection's breaks, and it flags what it sends again.  A message is
 * acknowledged whether a socket takes it or not.  Queues have no hard limit, but for hosts that do not
 * keep to the protocol (receive_is_flood()); congestion holds senders back (cong.c).  Must not take
 * conn->tx: what has to be sent is left as work (work.c).
 */
#include <stdlib.h>

#include "engine/conn/client.h"
#include "engine/conn/conn.h"
#include "engine/conn/incoming.h"
#include "engine/conn/relay.h"

#define RECEIVE_BEYOND ((uint64_t)64 << 20)
#define RECEIVE_COST 256u		 /* of a message, beside its bytes */
#define RECEIVE_BEYOND_EACH (256u << 10) /* of one host */

/*
 * When the socket of the message that waits for older ones changed its owner; 0: no message waits.  And
 * when that of the oldest one did that it has met, and that comes again later.
 */
static uint64_t receive_catching_up, receive_put_off;

static void receive_stamp(struct rds_sock *sk, struct rds_inc *inc)
{
	if (unlikely(atomic_load_explicit(&sk->timestamp, memory_order_relaxed)))
		inc->real_ns = os_realtime_ns();
	if (unlikely(atomic_load_explicit(&sk->rx_trace, memory_order_relaxed)))
		inc->trace_ns[0] = inc->trace_ns[1] = inc->trace_ns[2] = os_now_ns();
}

static void receive_enqueue(struct rds_sock *sk, struct rds_inc *inc)
{
	*sk->rx_tail = inc;
	sk->rx_tail = &inc->next;
	sk->rcv_count++;
	RDS_STAT_INC_RX(recv_queued);
	if (inc->len) {
		sk->rcv_bytes += inc->len;
		RDS_STAT_ADD_RX(recv_bytes_added_to_sock, inc->len);
		if (unlikely(sk->rcv_bytes > rds_sock_rcvbuf(sk)))
			rds_cong_check(sk);
	}
	rds_sock_wake(sk, POLLIN | POLLRDNORM | RDS_WAIT_RECV);
}

/* False: no memory, or more than there may be. */
static bool receive_note_ping(struct rds_conn_seldom *s, uint16_t sport)
{
	if (s->npongs == s->pongs_room) {
		unsigned room = s->pongs_room ? 2 * s->pongs_room : 8;
		uint16_t *pongs = room <= RDS_PONGS_MAX ? realloc(s->pongs, room * sizeof(*pongs)) : NULL;

		if (!pongs)
			return false;
		s->pongs = pongs;
		s->pongs_room = room;
	}
	s->pongs[s->npongs++] = sport;
	return true;
}

/*
 * The kernel answers each ping at once.  Here the answer is sent when no lock of the receiver's is
 * held (conn_work_one()).
 */
static enum rds_rx_verdict receive_ping(struct rds_conn *conn, const struct rds_hdr *hdr)
{
	struct rds_conn_seldom *s;

	if (!rds_options()->ping_enable) {
		RDS_STAT_INC_RX(recv_drop_no_sock);
		return RDS_RX_DONE;
	}
	if (hdr->sport == 0)
		return RDS_RX_DONE;
	s = rds_conn_seldom_get(conn);
	if (!s || !receive_note_ping(s, hdr->sport)) {
		if (!(conn->t->ops->caps & RDS_TCAP_DIRECT))
			return RDS_RX_LATER; /* a burst: the rest waits until these are answered */
		rds_debug("too many pings wait for an answer: one is dropped");
		return RDS_RX_DONE;
	}
	RDS_STAT_INC_RX(recv_ping);
	rds_conn_work_add(conn);
	return RDS_RX_DONE;
}

/*
 * As in the kernel, a congested socket takes what comes, and senders that keep to the protocol soon stop:
 * what their sockets' buffers held comes, and what they sent until they were told.  A host that sends on
 * and on is not read from, while the queue is so long, nor is the process that relays what it sends: unless that one
 * has ended, so that it comes this once, or had kept the message (ep is NULL then).  Nothing is lost.  A host that had
 * sent something when others filled the queue is not held up by them.
 */
static bool receive_is_flood(struct rds_conn *conn, const struct rds_ep *ep, const struct rds_sock *sk,
			     const struct rds_rx *rx)
{
	struct rds_conn_seldom *s;
	uint64_t bytes, limit;

	if (likely(conn->relay != RDS_RELAY_NODE && conn->relay != RDS_RELAY_OWNER) || unlikely(!ep))
		return false;
	bytes = sk->rcv_bytes + (uint64_t)sk->rcv_count * RECEIVE_COST;
	limit = rds_sock_rcvbuf(sk);
	if (likely(bytes <= limit + RECEIVE_BEYOND)) {
		if (conn->seldom && bytes <= limit)
			conn->seldom->beyond = 0;
		return false;
	}
	s = rds_conn_seldom_get(conn);
	if (!s || s->beyond + rx->hdr.len > RECEIVE_BEYOND_EACH)
		return conn->relay == RDS_RELAY_NODE || !rx->last;
	s->beyond += rx->hdr.len + RECEIVE_COST;
	return false;
}

/*
 * The host's next map waits as well, and the thread that is to read may wait for it in a send.  So no port
 * of that host counts as congested until it has sent another one.
 */
static enum rds_rx_verdict receive_pause(struct rds_conn *conn)
{
	if (atomic_load_explicit(&conn->fcong.few, memory_order_relaxed))
		rds_cong_received(conn, NULL, 0);
	return RDS_RX_PAUSE;
}

static enum rds_rx_verdict receive_without_socket(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	enum rds_rx_verdict v;

	if (conn->relay != RDS_RELAY_MEMBER && conn->relay != RDS_RELAY_NODE)
		return rds_conn_redirect_refuse(conn, ep, &rx->hdr);
	v = rds_relay_receive(conn, ep, rx);
	return v == RDS_RX_PAUSE && conn->relay == RDS_RELAY_NODE ? receive_pause(conn) : v;
}

/* Gives an accepted message to its socket. */
static enum rds_rx_verdict receive_dispatch(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	struct rds_sock *sk;
	struct rds_inc *inc;
	bool relayed;

	if (unlikely(rx->hdr.dport == 0))
		return conn->relay == RDS_RELAY_MEMBER ? rds_relay_receive(conn, ep, rx) : receive_ping(conn, &rx->hdr);
	if (unlikely(rx->hdr.op) && conn->seldom && rx->hdr.op == conn->seldom->void_message)
		return RDS_RX_DONE; /* its operation has failed */
	if (unlikely(registry_slot_is_others(conn->id.peer_slot))) {
		enum rds_rx_verdict v = rds_conn_source(conn, rx->hdr.sport);

		if (unlikely(v != RDS_RX_TAKEN))
			return v;
	}
	sk = rds_sock_bound_find(&conn->id.laddr, rx->hdr.dport, conn->id.scope);
	if (unlikely(!sk))
		return receive_without_socket(conn, ep, rx);
	if (unlikely(rx->hdr.sock) && !rds_conn_is_meant_for(sk, rx->hdr.sock)) {
		RDS_STAT_INC_RX(recv_drop_no_sock);
		return RDS_RX_DONE;
	}
	relayed = conn->relay || rx->hdr.ext_type == RDS_EXTHDR_RELAYED;
	if (unlikely(relayed) && rds_relay_had(conn, &rx->hdr)) {
		RDS_STAT_INC_RX(recv_drop_old_seq);
		return RDS_RX_DONE;
	}
	/* the sender keeps the message and finds the socket again */
	if (unlikely(atomic_load_explicit(&sk->accepts_nothing, memory_order_relaxed)) ||
	    (unlikely(atomic_load_explicit(&conn->nredirects_out, memory_order_relaxed)) &&
	     rds_conn_redirect_covers(conn, &rx->hdr)))
		return rds_conn_redirect_late(conn, &rx->hdr);
	if (unlikely(receive_is_flood(conn, ep, sk, rx)))
		return receive_pause(conn);
	inc = rds_inc_new(conn, ep, rx);
	if (unlikely(!inc)) {
		rds_error("out of memory for a message of %u bytes: its sender has to wait", rx->hdr.len);
		return RDS_RX_LATER;
	}
	if (unlikely(rx->hdr.ext_type == RDS_EXTHDR_RDMA))
		rds_conn_client.recv_used_key(sk, rx->hdr.ext_rkey);
	if (unlikely(relayed))
		rds_relay_note(conn, &rx->hdr);
	receive_stamp(sk, inc);
	receive_enqueue(sk, inc);
	return rx->token || rx->owned ? RDS_RX_TAKEN : RDS_RX_DONE;
}

enum rds_rx_verdict rds_conn_receive_again(struct rds_conn *conn, const struct rds_rx *rx)
{
	return receive_dispatch(conn, NULL, rx);
}

/*
 * Older messages come first, so the transports are read for them.  If another message waits for
 * that already, and its socket changed its owner earlier, this message comes after it.  Whatever
 * that one waits for was sent before its change, so it lies before this message.  And messages that
 * this one waits for do not lie behind a newer one.  If some cannot be received now, this message comes
 * again later, and so do those whose sockets changed their owners after that.
 */
static bool receive_catch_up(const struct rds_hdr *hdr)
{
	uint64_t outer = receive_catching_up, since = hdr->owner_since ? hdr->owner_since : 1;
	bool all;

	if (!outer)
		receive_put_off = UINT64_MAX;
	else if (since >= receive_put_off)
		return false; /* at once: else each of many such looks for the others of them */
	receive_catching_up = since;
	all = (!outer || since <= outer) && rds_transport_catch_up(since) && since <= receive_put_off;
	receive_catching_up = outer;
	if (!all && since < receive_put_off)
		receive_put_off = since;
	return all;
}

/* Threads may wait for a congested port until its process ends. */
static void receive_watch(const struct rds_conn *conn, struct rds_ep *ep)
{
	const struct rds_transport_ops *ops = ((struct rds_ep_head *)ep)->t->ops;

	if (ops->watch && atomic_load(&conn->fcong.few))
		ops->watch(ep);
}

/* A list that still comes over a FIRST endpoint, when one has come over that which takes its place. */
static bool receive_map_is_old(struct rds_conn *conn, const struct rds_ep *ep)
{
	if (!(rds_transport_ep_ops(ep)->caps & RDS_TCAP_FIRST))
		conn->map_came = true;
	else if (conn->map_came)
		return true;
	return false;
}

/*
 * What is a duplicate is the kernel's rule (rds_recv_incoming() in net/rds/recv.c): a lower number,
 * and the flag that it is sent again.  A lower number without the flag is of a peer that counts
 * from 1 again because it has forgotten this connection: next_rx follows it back.  Over a FIRST
 * endpoint a lower number is a duplicate in any case: the endpoint that takes its place has brought
 * the message before.
 */
enum rds_rx_verdict rds_conn_receive(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	const struct rds_hdr *hdr = &rx->hdr;
	enum rds_rx_verdict v = RDS_RX_DONE;
	uint64_t next;

	if (unlikely(hdr->flags == RDS_FLAG_CONG_BITMAP)) {
		if (!receive_map_is_old(conn, ep)) {
			if (unlikely(conn->relay == RDS_RELAY_OWNER))
				rds_relay_node_told(conn, hdr->sport);
			rds_cong_received(conn, rx->data, hdr->len);
		}
		receive_watch(conn, ep);
		return RDS_RX_DONE;
	}
	if (unlikely(hdr->flags & RDS_FLAG_NEW_OWNER) && !receive_catch_up(hdr) &&
	    !(rds_transport_ep_ops(ep)->caps & RDS_TCAP_DIRECT))
		return RDS_RX_LATER;
	next = atomic_load_explicit(&conn->next_rx, memory_order_relaxed);
	if (unlikely(hdr->seq < next &&
		     ((hdr->flags & RDS_FLAG_RETRANSMITTED) || (rds_transport_ep_ops(ep)->caps & RDS_TCAP_FIRST)))) {
		RDS_STAT_INC_RX(recv_drop_old_seq);
	} else {
		if (unlikely(hdr->flags & (RDS_FLAG_REDIRECT | RDS_FLAG_OP)))
			v = hdr->flags & RDS_FLAG_OP ? rds_conn_client.recv_piece(conn, ep, rx)
						     : rds_conn_redirect_recv(conn, rx);
		else
			v = receive_dispatch(conn, ep, rx);
		if (unlikely(v >= RDS_RX_LATER))
			return v;
		next = hdr->seq + 1;
		atomic_store_explicit(&conn->next_rx, next, memory_order_relaxed);
	}
	if (unlikely(hdr->flags & RDS_FLAG_ACK_REQUIRED))
		RDS_STAT_INC_RX(recv_ack_required);
	((struct rds_ep_head *)ep)->t->ops->ack(ep, rds_conn_recv_taken(conn));
	return v;
}

void rds_conn_receive_forget(void)
{
	receive_catching_up = 0;
}
