/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * recv.c - receives from the sockets, and hands messages to the engine (rx held).
 *
 * All endpoints receive into one buffer, from which complete messages are given away.  What is left of
 * one is in the endpoint (stream.c), and the buffer is free for the next.  Only if the engine refuses
 * a message (memory is short) the buffer stays with the endpoint, and nothing more is received from it
 * until it has been handled.  So a peer holds one message and one buffer at most, whatever it sends.
 *
 * TCP acknowledges what lies in the socket, and no peer sends that again.  So what has arrived is
 * received even if the connection has broken.
 */
#include <stdlib.h>

#include "engine/transport/tcp/tcp.h"

#define TELL_NS (10000 * 1000000ull)
#define BUF (128u << 10)
#define LARGE (32u << 10)
#define READS 8 /* in one go: then other endpoints have their turn */
#define LAST_READS 4096
#define PASSES 16u
#define PAUSE_NS (10 * 1000000ull)

/* ---- which endpoints may have input ---- */

static void recv_enlist(struct tcp_ep *ep)
{
	if (ep->ready)
		return;
	ep->ready = true;
	ep->ready_next = NULL;
	if (!rds_tcp_state.ready)
		rds_tcp_state.ready_tail = &rds_tcp_state.ready;
	*rds_tcp_state.ready_tail = ep;
	rds_tcp_state.ready_tail = &ep->ready_next;
}

static void recv_unlist(struct tcp_ep *ep)
{
	struct tcp_ep **p;

	if (!ep->ready)
		return;
	for (p = &rds_tcp_state.ready; *p != ep; p = &(*p)->ready_next)
		;
	*p = ep->ready_next;
	if (!*p)
		rds_tcp_state.ready_tail = p;
	ep->ready = false;
}

static struct tcp_ep *recv_next_ready(void)
{
	struct tcp_ep *ep = rds_tcp_state.ready;

	rds_tcp_state.ready = ep->ready_next;
	ep->ready = false;
	return ep;
}

void tcp_recv_ready(struct tcp_ep *ep, bool at_end)
{
	ep->at_end |= at_end;
	recv_enlist(ep);
}

/*
 * Those that are paused are looked at in each round, but nobody stays awake for them; nor does who has no
 * number, since the helper has been asked to look.
 */
bool tcp_recv_awaits(void)
{
	const struct tcp_ep *ep;

	for (ep = rds_tcp_state.ready; ep; ep = ep->ready_next)
		if (!ep->paused && os_fd(&ep->sock.fd) >= 0)
			return true;
	return false;
}

/* The helper's round follows, and looks. */
static void recv_resume(struct rds_timer *tm)
{
	(void)tm;
	rx_lock();
	if (rds_tcp_state.strangers.wanted)
		tcp_pressure_memory();
	rds_tcp_state.strangers.wanted = false;
	rx_unlock();
}

void tcp_recv_pause(struct tcp_ep *ep)
{
	ep->paused = true;
	if (!ep->refused_since)
		ep->refused_since = os_now_ns();
	recv_enlist(ep);
	rds_tcp_state.resume.fn = recv_resume;
	rds_timer_need(&rds_tcp_state.resume, os_now_ns() + PAUSE_NS);
}

/* ---- messages ---- */

bool tcp_recv_give(void *arg, struct rds_rx *rx)
{
	struct tcp_ep *ep = arg;
	enum rds_rx_verdict v = ep->head.t->up->message(ep->head.conn, (struct rds_ep *)ep, rx);

	if (unlikely(v >= RDS_RX_LATER))
		return false;
	if (v != RDS_RX_TAKEN)
		free(rx->owned);
	ep->spoke = true;
	rds_transport_batch_received(&ep->batch);
	ep->large = rx->hdr.len >= LARGE;
	return true;
}

void tcp_recv_nonsense(struct tcp_ep *ep)
{
	static uint64_t told;
	char from[RDS_ADDR_STRLEN];
	uint64_t now = os_now_ns();

	/* anybody can have it said */
	if (!told || now - told > TELL_NS) {
		told = now;
		rds_warn("%s sends something over TCP that is not RDS: connection closed",
			 rds_ip_str(&ep->id.faddr, from));
	}
	tcp_recv_drop(ep);
	atomic_store(&ep->why, -EPROTO);
	tcp_ep_broken(ep, -EPROTO);
}

/* Mostly these are few.  The buffer itself goes if they are not, or if there is no memory. */
static void recv_keep(struct tcp_ep *ep, size_t at, size_t end)
{
	size_t n = end - at;

	ep->left = n <= BUF / 2 ? malloc(n) : NULL;
	if (ep->left) {
		memcpy(ep->left, rds_tcp_state.buf + at, n);
		at = 0;
	} else {
		ep->left = rds_tcp_state.buf;
		rds_tcp_state.buf = NULL;
	}
	ep->left_at = at;
	ep->left_end = at + n;
}

/* The bytes are in the common buffer.  False: nothing more is to be received now. */
static bool recv_bytes(struct tcp_ep *ep, size_t at, size_t end)
{
	size_t used = 0;
	int err = tcp_stream_take(&ep->in, rds_tcp_state.buf + at, end - at, tcp_recv_give, ep, &used);

	if (likely(!err))
		return true;
	if (err == -EBADMSG) {
		tcp_recv_nonsense(ep);
		return false;
	}
	recv_keep(ep, at + used, end);
	tcp_recv_pause(ep);
	return false;
}

/* What was left over goes first.  False: it is still there. */
static bool recv_left(struct tcp_ep *ep)
{
	unsigned char *buf = ep->left;
	size_t used = 0;
	int err;

	if (likely(!buf))
		return true;
	err = tcp_stream_take(&ep->in, buf + ep->left_at, ep->left_end - ep->left_at, tcp_recv_give, ep, &used);
	ep->left_at += used;
	if (err == -EAGAIN) {
		tcp_recv_pause(ep);
		return false;
	}
	ep->left = NULL;
	free(buf);
	if (err)
		tcp_recv_nonsense(ep);
	return !err;
}

/* ---- the socket ---- */

/* With one piece of memory the kernel need not read what describes several: half of a look in vain. */
static ssize_t recv_pieces(int fd, struct iovec *iov, size_t n)
{
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};

	return n == 1 ? os_recv(fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT) : os_recvmsg(fd, &msg, MSG_DONTWAIT);
}

/*
 * Bytes received; 0: the end; -errno.  *asked: for so many there was room.  Behind a large message
 * another one is expected: its header is read alone, and then all of it into its own block.  So it is
 * if there may be no memory for the next one: what was read would have to be kept.
 */
static ssize_t recv_read(struct tcp_ep *ep, size_t *room, size_t *asked)
{
	unsigned char *to = NULL;
	struct iovec iov[2];
	size_t more = BUF, pieces = 0;
	ssize_t n;

	*room = tcp_stream_room(&ep->in, &to);
	if (*room)
		iov[pieces++] = (struct iovec){.iov_base = to, .iov_len = *room};
	if (unlikely(ep->large || tcp_stream_is_short(&ep->in)))
		more = *room ? 0 : RDS_WIRE_HDR - ep->in.nraw;
	if (more)
		iov[pieces++] = (struct iovec){.iov_base = rds_tcp_state.buf, .iov_len = more};
	*asked = *room + more;
	n = recv_pieces(tcp_ep_fd(ep), iov, pieces);
	if (n > 0 && (size_t)n < *room)
		*room = (size_t)n;
	return n;
}

static bool recv_have_buf(struct tcp_ep *ep)
{
	if (likely(rds_tcp_state.buf))
		return true;
	rds_tcp_state.buf = malloc(BUF);
	if (!rds_tcp_state.buf)
		tcp_recv_pause(ep);
	return rds_tcp_state.buf;
}

/* Nothing came.  True: it may be that something comes now. */
static bool recv_ended(struct tcp_ep *ep, ssize_t n)
{
	if (n == -EAGAIN)
		ep->at_end = false;
	else if (n != -EINTR)
		tcp_ep_broken(ep, n ? (int)n : -ECONNRESET);
	return n == -EINTR;
}

/* One read.  True: there may be more. */
static bool recv_once(struct tcp_ep *ep, bool *moved)
{
	size_t room, asked;
	ssize_t n = recv_read(ep, &room, &asked);

	if (n <= 0)
		return recv_ended(ep, n);
	*moved = true;
	ep->heard += (uint64_t)n;
	tcp_stream_filled(&ep->in, room);
	if (!recv_bytes(ep, 0, (size_t)n - room))
		return false;
	return ep->at_end || (size_t)n == asked;
}

/* The same of one whose bytes are kept (kept.c). */
static bool recv_kept_once(struct tcp_ep *ep, bool *moved)
{
	size_t asked;
	ssize_t n = tcp_kept_read(ep, &asked);

	if (unlikely(n == -EFAULT)) { /* no memory for the window */
		tcp_recv_pause(ep);
		return false;
	}
	if (n <= 0)
		return recv_ended(ep, n);
	*moved = true;
	ep->heard += (uint64_t)n;
	return tcp_kept_parse(ep) && (ep->at_end || (size_t)n == asked);
}

/* The endpoint is not in the list.  True: something came. */
static bool recv_some(struct tcp_ep *ep, unsigned reads)
{
	bool moved = ep->left, more = true, kept;

	int state = atomic_load(&ep->state);

	if (state != TCP_EP_UP && (state != TCP_EP_BROKEN || atomic_load(&ep->why) == -EPROTO))
		return false;
	if (unlikely(tcp_fd_here(&ep->sock) < 0)) {
		recv_enlist(ep); /* for the helper's round */
		return false;
	}
	if (atomic_load_explicit(&ep->wanted, memory_order_relaxed))
		ep->in.budget = NULL;
	if (!recv_left(ep))
		return false;
	kept = unlikely(ep->trunk) && tcp_kept_in_use(ep);
	if (kept && !tcp_kept_parse(ep))
		return false;
	ep->paused = false;
	ep->refused_since = 0;
	while (more && reads--) {
		if (!recv_have_buf(ep))
			return moved;
		more = unlikely(kept) ? recv_kept_once(ep, &moved) : recv_once(ep, &moved);
	}
	if (more)
		recv_enlist(ep);
	return moved;
}

/*
 * With one endpoint a read says as much as a look at the set.  Now and then the set is asked all the
 * same, for the other events.
 */
static bool recv_look(void)
{
	struct tcp_ep *ep = rds_tcp_state.only;

	if (!ep || os_fd(&ep->sock.fd) < 0 || ep->backlog || ep->wants_room || ++rds_tcp_state.passes >= PASSES) {
		rds_tcp_state.passes = 0;
		return tcp_wake_look();
	}
	recv_enlist(ep);
	return false;
}

bool tcp_progress(struct rds_transport *t)
{
	struct tcp_ep **end, *ep;
	bool any;

	(void)t;
	if (likely(!rds_tcp_state.nup)) /* nor is any in the list */
		return false;
	rds_transport_batch_look();
	any = recv_look();
	end = rds_tcp_state.ready ? rds_tcp_state.ready_tail : NULL;
	while (end && rds_tcp_state.ready) {
		bool last = end == &rds_tcp_state.ready->ready_next;

		ep = recv_next_ready();
		any |= recv_some(ep, READS);
		tcp_room_look(ep);
		if (last)
			break;
	}
	return any;
}

void tcp_recv_now(struct tcp_ep *ep)
{
	ep->at_end = true;
	recv_unlist(ep);
	recv_some(ep, READS);
}

/* The connection has broken; what arrived before that counts. */
bool tcp_recv_last(struct tcp_ep *ep)
{
	if (unlikely(ep->given_up)) {
		tcp_recv_drop(ep);
		return true;
	}
	ep->at_end = true;
	recv_unlist(ep);
	recv_some(ep, LAST_READS);
	return !ep->ready;
}

void tcp_recv_drop(struct tcp_ep *ep)
{
	recv_unlist(ep);
	free(ep->left);
	ep->left = NULL;
	tcp_stream_reset(&ep->in);
}
