/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * kept.c - an endpoint whose messages other processes get, too, so that they are not lost with this one.
 *
 * TCP acknowledges what lies in our socket, and the peer does not send it again.  So another process must
 * find all that was received: the socket itself, of which a copy is in the trunk's box (engine/trunk) before
 * anything is read from it, and the bytes that were read and not handed over yet, which lie in the trunk's
 * window at their place in the stream.  How far this process has read, the kernel tells the other one, so
 * it does not matter in which moment it has ended.
 *
 * Must not know what becomes of messages.
 */
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>

#include "engine/transport/tcp/tcp.h"

#define LOOKS 64
enum { CLOSED = 7, TIME_WAIT = 6, CLOSE_WAIT = 8, LAST_ACK = 9, CLOSING = 11 }; /* of the kernel's states */

/* ---- the owner ---- */

/* Helper. */
void tcp_kept_keep(struct tcp_ep *ep, int fd)
{
	struct rds_trunk *t = ep->head.conn && !ep->carrier ? ep->head.t->up->trunk(ep->head.conn) : NULL;

	if (!t)
		return;
	ep->carrier = rds_trunk_carry(t, fd);
	if (!ep->carrier)
		return;
	rx_lock();
	ep->trunk = t;
	rx_unlock();
}

void tcp_kept_begin(struct rds_ep *rep)
{
	struct tcp_ep *ep = (struct tcp_ep *)rep;

	tcp_kept_keep(ep, tcp_ep_fd(ep));
}

static void kept_move(struct tcp_ep *ep, const void *bytes, size_t n)
{
	size_t room;

	memcpy(rds_trunk_window_room(ep->trunk, &room), bytes, n);
	rds_trunk_window_filled(ep->trunk, n);
}

/* What has come of the next message goes there, too.  Not while some of what has come is refused. */
bool tcp_kept_in_use(struct tcp_ep *ep)
{
	size_t had = ep->in.block ? RDS_WIRE_HDR + (size_t)ep->in.have : ep->in.nraw;
	struct rds_wire_hdr hdr;

	if (likely(ep->windowed))
		return true;
	if (ep->left)
		return false;
	rds_trunk_window_begin(ep->trunk, ep->carrier, ep->heard - had);
	if (ep->in.block) {
		rds_wire_hdr_encode(&ep->in.hdr, &hdr, false);
		kept_move(ep, &hdr, sizeof(hdr));
		kept_move(ep, ep->in.block, ep->in.have);
	} else if (had) {
		kept_move(ep, ep->in.raw, had);
	}
	tcp_stream_reset(&ep->in);
	ep->windowed = true;
	return true;
}

/* Others may write there: each header is read once, and what it says is believed from then on. */
bool tcp_kept_parse(struct tcp_ep *ep)
{
	struct rds_rx rx = {0};
	const unsigned char *bytes;
	size_t n, size;

	for (;;) {
		bytes = rds_trunk_window_bytes(ep->trunk, &n);
		size = RDS_WIRE_HDR + RDS_MAX_MSG;
		if (n >= RDS_WIRE_HDR) {
			if (rds_wire_hdr_decode_node(bytes, &rx.hdr)) {
				tcp_recv_nonsense(ep);
				return false;
			}
			size = RDS_WIRE_HDR + rx.hdr.len;
		}
		if (n < size) {
			rds_trunk_window_fit(ep->trunk, size);
			return true;
		}
		rx.data = bytes + RDS_WIRE_HDR;
		rds_trunk_window_frame(ep->trunk, size);
		if (!tcp_recv_give(ep, &rx)) {
			tcp_recv_pause(ep);
			return false;
		}
		rds_trunk_window_done(ep->trunk);
	}
}

ssize_t tcp_kept_read(struct tcp_ep *ep, size_t *asked)
{
	void *to = rds_trunk_window_room(ep->trunk, asked);
	ssize_t n = os_recv(tcp_ep_fd(ep), to, *asked, MSG_DONTWAIT);

	if (n > 0)
		rds_trunk_window_filled(ep->trunk, (size_t)n);
	return n;
}

void tcp_kept_end(struct tcp_ep *ep)
{
	if (!ep->trunk)
		return;
	rds_trunk_window_end(ep->trunk, ep->carrier);
	ep->trunk = NULL;
	ep->windowed = false;
}

/* ---- the next one ---- */

/* The peer's end counts as a byte.  If our socket is closed it cannot be told whether it has come. */
static bool state_has_end(unsigned state)
{
	return state == CLOSE_WAIT || state == LAST_ACK || state == CLOSING || state == TIME_WAIT;
}

/* More may come meanwhile: then once more. */
int tcp_kept_brought(int fd, struct rds_trunk_brought *out)
{
	struct tcp_info a, b;
	socklen_t len = sizeof(a);
	unsigned looks = LOOKS;
	int64_t there;
	int err;

	do {
		memset(&a, 0, sizeof(a));
		len = sizeof(a);
		err = os_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &a, &len);
		there = os_bytes_there(fd, SIOCINQ);
		len = sizeof(b);
		if (!err)
			err = os_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &b, &len);
		if (err)
			return err;
		if (len < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof(a.tcpi_bytes_received))
			return -EOPNOTSUPP;
	} while ((a.tcpi_bytes_received != b.tcpi_bytes_received || a.tcpi_state != b.tcpi_state) && looks--);
	there = (int64_t)b.tcpi_bytes_received - state_has_end(b.tcpi_state) - there;
	out->bytes = there < 0 ? 0 : (uint64_t)there;
	out->or_less = b.tcpi_state == CLOSED;
	return 0;
}

int tcp_kept_adopt(struct rds_transport *t, const struct rds_conn_id *id, int fd, struct rds_trunk *trunk,
		   uint32_t carrier)
{
	struct tcp_ep *ep = tcp_ep_new(id, NULL);
	struct rds_received none = {0}, here;
	int err = -ENOMEM;

	if (!ep) {
		os_close(fd);
		return err;
	}
	err = tcp_ep_set_fd(ep, fd);
	if (!err)
		ep->head.conn = t->up->accept(t, (struct rds_ep *)ep, id, none, &here, &err);
	if (!ep->head.conn) {
		tcp_ep_discard(ep);
		return err;
	}
	rx_lock();
	ep->trunk = trunk;
	ep->carrier = carrier;
	ep->windowed = true;
	/* nothing is sent over it: what the peer has not got of that, it gets over the next one */
	atomic_store(&ep->why, -ECONNRESET);
	atomic_store(&ep->state, TCP_EP_BROKEN);
	rx_unlock();
	t->up->up(ep->head.conn, (struct rds_ep *)ep, none);
	if (!ep->over)
		tcp_ep_down(ep, -ECONNRESET);
	return 0;
}
