/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * send_fast.c - the fast path of a send.
 *
 * Most messages of most programs are like the one before: plain, to a destination that the socket
 * has sent to, over a connection that is up and has nothing queued, with room in SNDBUF.  For
 * these, send.c, conn/xmit.c and wire/header.c do a lot to find that there is nothing to do, and
 * pass structures that are empty but for four numbers: that was half of the cost of a small
 * message.  This file does the same in one piece.
 *
 * It decides nothing.  If a condition does not hold, nothing has happened, and the caller goes the
 * long way, which repeats all checks in the kernel's order.  So each condition here may be stricter
 * than there, and never laxer.  Never sleeps.
 *
 * This file must not know errors: it has none.
 */
#include <string.h>

#include "engine/rdma/rdma.h"
#include "engine/sys/uaccess.h"
#include "engine/progress/wait.h"

/*
 * There is room for the message.  Either there is still room behind it, or no poller has to be
 * shown that the buffer is full.
 */
static bool send_has_room(const struct rds_sock *sk, uint32_t len)
{
	return rds_sock_writable(sk) && (likely(!atomic_load_explicit(&sk->watched, memory_order_relaxed)) ||
					 rds_sock_snd_bytes(sk) + len < rds_sock_sndbuf(sk));
}

/*
 * Nothing is queued, nothing has to be sent first, and no acknowledgement has to be asked for.
 * conn->tx held.
 */
static bool send_path_is_clear(const struct rds_conn *conn, const struct rds_sock *sk, uint16_t port, uint32_t len)
{
	return atomic_load_explicit(&conn->state, memory_order_relaxed) == RDS_CONN_UP && !conn->queue &&
	       !conn->impatient && !atomic_load_explicit(&conn->nanswers, memory_order_relaxed) &&
	       conn->count < conn->cap && conn->relay != RDS_RELAY_OWNER && sk->owner_number <= conn->owners_told &&
	       !(conn->t->ops->caps & RDS_TCAP_DIRECT) && !rds_cong_far_has(&conn->fcong, port) &&
	       send_has_room(sk, len) && !atomic_load_explicit(&sk->handing_off, memory_order_relaxed);
}

/* As send_admit() in send.c and rds_conn_xmit() do.  conn->tx held. */
static bool send_xmit_fast(struct rds_sock *sk, const struct rds_sock_dst *d, const struct iovec *iov)
{
	struct rds_conn *conn = d->conn;
	uint16_t port = d->addr.port;
	const struct rds_transport_ops *ops = conn->t->ops;
	uint32_t len = (uint32_t)iov->iov_len;
	uint64_t seq = conn->next_tx, pos;
	struct rds_wire_hdr wire;

	if (unlikely(!send_path_is_clear(conn, sk, port, len)))
		return false;
	rds_wire_hdr_encode_plain(&wire, seq, len, sk->laddr.port, port);
	rds_conn_note_sending(conn, seq);
	if (unlikely(ops->send(conn->ep, &wire, iov, len, &pos)))
		return false; /* it took nothing; the long way gets the same error again */
	ops->flush(conn->ep, false);
	/*
	 * It is on its way.  A thread that receives its acknowledgement has to wait for conn->tx
	 * before it counts.
	 */
	rds_sock_snd_add(sk, len);
	*rds_queue_unacked_next(conn) = (struct rds_queue_unacked){
		.sk = sk, .seq = seq, .pos = pos, .len = len, .sport = sk->laddr.port, .dport = port, .sock = d->sock};
	rds_queue_unacked_pushed(conn);
	conn->next_tx = seq + 1;
	conn->room_sought = false;
	rds_conn_count_sent(conn, len);
	return true;
}

bool rds_call_send_fast(struct rds_sock *sk, const void *buf, size_t len, const struct sockaddr *to)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};
	const struct rds_sock_dst *d;
	struct sockaddr_in name;
	bool sent = false;

	if (unlikely(len > RDS_MAX_MSG || len > rds_sock_sndbuf(sk) || rds_user_readable(to, sizeof(name)) ||
		     rds_user_readable(buf, len) || !atomic_load_explicit(&sk->open, memory_order_relaxed)))
		return false;
	memcpy(&name, to, sizeof(name));
	rds_lock(&sk->tx);
	d = rds_sock_dst_slot(sk, ntohs(name.sin_port));
	/*
	 * Raw bytes are set only in a bound socket, and a connection only after all other checks
	 * have passed.
	 */
	if (likely(d->rawlen == RDS_DST_RAW4 && memcmp(d->raw, &name, RDS_DST_RAW4) == 0 && rds_route_dst_fresh(d))) {
		rds_lock(&d->conn->tx);
		/* Checked again under conn->tx: the connection may have been removed meanwhile. */
		sent = d->conn_gen == atomic_load_explicit(&rds_route_gen, memory_order_acquire) &&
		       send_xmit_fast(sk, d, &iov);
		rds_unlock(&d->conn->tx);
	}
	rds_unlock(&sk->tx);
	if (unlikely(atomic_load_explicit(&rds_conn_work_pending, memory_order_relaxed)))
		rds_conn_work_run();
	if (likely(sent)) {
		rds_wait_has_sent = true;
		rds_progress_send_made(len);
	}
	return sent;
}
