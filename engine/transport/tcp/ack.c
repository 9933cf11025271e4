/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * ack.c - what the peer's TCP has acknowledged, and who is told of it.
 *
 * The kernel says how much it keeps, at any time, but does not say by itself that it has become less.
 * It does so for single writes: a write that is marked gets a time stamp when all of it has been
 * acknowledged, which comes by the socket's error queue and makes it ready.  Only the event counts
 * here, not the stamp.  Each costs something, so writes are marked while somebody has waited lately, and
 * after many bytes.  A timer is for what was not marked.
 */
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "engine/transport/tcp/tcp.h"

#define MS 1000000ull
#define ROOM_MS_MAX 8
#define MARK_BYTES (64u << 10)
#define MARK_WRITES 64u /* after somebody has waited */

uint64_t tcp_ack_bytes(struct tcp_ep *ep)
{
	uint64_t written = atomic_load_explicit(&ep->out.written, memory_order_acquire);
	uint64_t before = atomic_load(&ep->acked_before_end);
	int left = 0;

	if (os_syscall(SYS_ioctl, tcp_fd_here(&ep->sock), SIOCOUTQ, (long)&left, 0, 0, 0) || left < 0 ||
	    (uint64_t)left > written || written - (uint64_t)left < before)
		return before;
	return written - (uint64_t)left;
}

/* Up to which byte, and so which messages. */
static uint64_t ack_look(struct tcp_ep *ep)
{
	uint64_t bytes = tcp_ack_bytes(ep);
	int state = atomic_load(&ep->state);

	if (state == TCP_EP_UP || state == TCP_EP_BROKEN)
		tcp_out_acked(&ep->out, bytes);
	return bytes;
}

static uint64_t ack_number(const struct tcp_ep *ep)
{
	return atomic_load_explicit(&ep->out.acked_seq, memory_order_relaxed);
}

uint64_t tcp_acked(struct rds_ep *rep)
{
	struct tcp_ep *ep = (struct tcp_ep *)rep;

	if (ep->out.first)
		ack_look(ep);
	return ack_number(ep);
}

/* ---- marks ---- */

void tcp_ack_enable(int fd)
{
	int flags = SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY;

	os_setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags)); /* without it the timer does */
}

/* conn->tx */
void tcp_ack_mark(struct tcp_ep *ep, struct msghdr *msg, struct tcp_ack_mark *mark)
{
	const uint32_t flags = SOF_TIMESTAMPING_TX_ACK;
	struct cmsghdr *cmsg;

	if (likely(!ep->marks) && ep->out.queued - ep->marked < MARK_BYTES)
		return;
	ep->marks -= !!ep->marks;
	ep->marked = ep->out.queued;
	msg->msg_control = mark->bytes;
	msg->msg_controllen = sizeof(mark->bytes);
	cmsg = CMSG_FIRSTHDR(msg);
	cmsg->cmsg_len = CMSG_LEN(sizeof(flags));
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SO_TIMESTAMPING;
	memcpy(CMSG_DATA(cmsg), &flags, sizeof(flags));
}

/* rx */
void tcp_ack_event(struct tcp_ep *ep)
{
	char none[256];
	struct msghdr msg = {0};
	unsigned most = 64;

	do {
		msg.msg_control = none;
		msg.msg_controllen = sizeof(none);
	} while (most-- && os_recvmsg(tcp_fd_here(&ep->sock), &msg, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0);
	tcp_room_look(ep);
}

/* ---- who waits ---- */

bool tcp_want_room(struct rds_ep *rep, uint64_t seen_ack)
{
	struct tcp_ep *ep = (struct tcp_ep *)rep;
	/* one look: what comes behind it is announced */
	uint64_t bytes = ack_look(ep);

	if (ack_number(ep) > seen_ack)
		return true;
	ep->marks = MARK_WRITES;
	rds_transport_batch_run_end(&ep->batch);
	atomic_store(&ep->room_seen, bytes);
	atomic_store(&ep->wants_room, true);
	if (ep->out.first)
		rds_timer_need(&ep->room, os_now_ns() + MS);
	return false;
}

void tcp_room_look(struct tcp_ep *ep)
{
	if (likely(!atomic_load_explicit(&ep->wants_room, memory_order_relaxed)) ||
	    atomic_load(&ep->state) != TCP_EP_UP || tcp_ack_bytes(ep) <= atomic_load(&ep->room_seen))
		return;
	atomic_store(&ep->wants_room, false);
	ep->room_pause = 0;
	ep->head.t->up->writable(ep->head.conn);
}

void tcp_room_timer(struct rds_timer *tm)
{
	struct tcp_ep *ep = container_of(tm, struct tcp_ep, room);

	rx_lock();
	tcp_room_look(ep);
	if (atomic_load(&ep->wants_room) && atomic_load(&ep->state) == TCP_EP_UP) {
		ep->room_pause = ep->room_pause ? 2 * ep->room_pause : 1;
		if (ep->room_pause > ROOM_MS_MAX)
			ep->room_pause = ROOM_MS_MAX;
		rds_timer_set(tm, os_now_ns() + ep->room_pause * MS);
	}
	rx_unlock();
}
