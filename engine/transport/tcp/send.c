/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * send.c - outgoing messages (conn->tx, unless a comment names another lock).
 *
 * The kernel is given messages by flush(), as many as there are in one call, or when many are waiting.
 * When it takes no more, the rest follows as soon as there is room (push).
 */
#include <linux/tcp.h>

#include "engine/sys/cpu.h"
#include "engine/transport/tcp/tcp.h"

#define HOLD_MAX 4096u
#define UNSENT_MAX (1u << 20) /* the kernel's buffer is beside that */
#define UNSENT_SOME (64u << 10)
#define PIECES 64
#define PORT_OF_PROBES 1 /* 0: of answers */

static uint64_t send_unsent(const struct tcp_ep *ep)
{
	return ep->out.queued - atomic_load_explicit(&ep->out.written, memory_order_relaxed);
}

/* One call.  False: nothing more can be done now. */
static bool send_write_once(struct tcp_ep *ep)
{
	struct iovec iov[PIECES];
	struct msghdr msg = {.msg_iov = iov};
	struct tcp_ack_mark mark;
	int fd = tcp_fd_here(&ep->sock);
	ssize_t n;

	if (unlikely(fd < 0)) { /* the helper pushes */
		atomic_store(&ep->backlog, true);
		return false;
	}
	msg.msg_iovlen = tcp_out_next(&ep->out, iov, PIECES);
	tcp_ack_mark(ep, &msg, &mark);
	if (msg.msg_iovlen == 1 && !msg.msg_control) /* the kernel has less to read */
		n = os_send(fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
	else
		n = os_sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n >= 0) {
		tcp_out_written(&ep->out, (size_t)n);
		return true;
	}
	if (n == -EINTR)
		return true;
	/* if it was not set, room that came before that went unnoticed: once more */
	if (n == -EAGAIN)
		return !atomic_exchange(&ep->backlog, true);
	tcp_ep_broken(ep, (int)n);
	return false;
}

static void send_write(struct tcp_ep *ep)
{
	ep->held = false;
	while (send_unsent(ep))
		if (!send_write_once(ep))
			return;
	atomic_store_explicit(&ep->backlog, false, memory_order_relaxed);
}

static void send_write_some(struct tcp_ep *ep)
{
	if (send_unsent(ep) && !atomic_load(&ep->backlog) && atomic_load(&ep->state) == TCP_EP_UP)
		send_write(ep);
}

int tcp_send(struct rds_ep *rep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len, uint64_t *pos)
{
	struct tcp_ep *ep = (struct tcp_ep *)rep;
	struct rds_wire_hdr own;
	unsigned char *to;

	if (unlikely(atomic_load_explicit(&ep->state, memory_order_relaxed) != TCP_EP_UP))
		return -ENOTCONN;
	if (unlikely(send_unsent(ep) >= UNSENT_SOME)) {
		send_write_some(ep);
		if (send_unsent(ep) >= UNSENT_MAX)
			return -EAGAIN;
	}
	to = tcp_out_add(&ep->out, len);
	if (unlikely(!to))
		return -ENOMEM;
	/* maps, answers and probes have other ports */
	if (unlikely(!atomic_load_explicit(&ep->wanted, memory_order_relaxed)) && be16toh(hdr->sport) > PORT_OF_PROBES)
		atomic_store_explicit(&ep->wanted, true, memory_order_relaxed);
	own = *hdr;
	/* TCP acknowledges, and the kernel's RDS ignores these fields */
	own.ack = 0;
	own.credit = 0;
	own.flags &= RDS_FLAG_CONG_BITMAP | RDS_FLAG_RETRANSMITTED;
	/* a kernel that gets a region's key over TCP may crash (hardened usercopy) */
	if (own.exthdr[0] != RDS_EXTHDR_NPATHS)
		memset(own.exthdr, 0, sizeof(own.exthdr));
	memcpy(to, &own, sizeof(own));
	rds_copy_gather(to + RDS_WIRE_HDR, iov, len);
	*pos = (uintptr_t)(to + RDS_WIRE_HDR);
	return 0;
}

/* Nothing is under way: memory for the next messages is made anew. */
void tcp_rest(struct rds_ep *rep)
{
	tcp_out_rest(&((struct tcp_ep *)rep)->out);
}

/* A call takes much at once; more need not wait for others. */
static bool send_may_wait(struct tcp_ep *ep)
{
	if (ep->held)
		rds_transport_batch_run_add(&ep->batch);
	else
		ep->held = rds_transport_batch_may_wait(&ep->batch, &ep->head);
	return ep->held && send_unsent(ep) < HOLD_MAX;
}

void tcp_flush(struct rds_ep *rep, bool service)
{
	struct tcp_ep *ep = (struct tcp_ep *)rep;

	if (service || !send_unsent(ep) || !send_may_wait(ep))
		send_write_some(ep);
}

/* There may be room.  Who has no number does not learn what has been acknowledged, and the helper looks for him. */
void tcp_push(struct rds_ep *rep)
{
	struct tcp_ep *ep = (struct tcp_ep *)rep;

	atomic_store(&ep->backlog, false);
	send_write_some(ep);
	tcp_acked(rep);
}

const void *tcp_retained(struct rds_ep *ep, uint64_t pos)
{
	(void)ep;
	return (const void *)(uintptr_t)pos;
}

/* 0 also for who has no number of it. */
static uint32_t send_retransmissions(struct tcp_ep *ep)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	return os_getsockopt(tcp_fd_here(&ep->sock), IPPROTO_TCP, TCP_INFO, &info, &len) ? 0 : info.tcpi_total_retrans;
}

void tcp_describe(struct rds_ep *rep, struct rds_ep_tcp *out)
{
	struct tcp_ep *ep = (struct tcp_ep *)rep;

	memset(out, 0, sizeof(*out));
	out->lport = ep->lport;
	out->fport = ep->fport;
	out->last_sent_nxt = (uint32_t)atomic_load(&ep->out.written);
	out->last_expected_una = (uint32_t)ep->out.queued;
	out->last_seen_una = (uint32_t)tcp_ack_bytes(ep);
	out->retrans = send_retransmissions(ep);
	rx_lock();
	out->data_rem = tcp_stream_missing(&ep->in, &out->hdr_rem);
	rx_unlock();
}
