/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * send.c - sendmsg: takes a message from the program (net/rds/send.c: rds_sendmsg).
 *
 * All checks come first (send_check.c).  Then the message is admitted, under the transmit locks of
 * the socket and the connection.  Or the call waits: for the end of congestion, or for buffer
 * space.  Congestion comes before space.  A message is admitted on the bytes that were queued
 * before it.
 */
#include <fcntl.h>

#include "engine/sys/cleanup.h"
#include "engine/abi/cmsg.h"
#include "engine/calls/send_check.h"
#include "engine/sys/patience.h"
#include "engine/rdma/rdma.h"
#include "engine/sys/uaccess.h"
#include "engine/abi/user_copy.h"
#include "engine/progress/wait.h"

#define OPTMEM_MAX 20480
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

/*
 * Bytes of an operation.  For fewer bytes, waking the peer's helper would cost more than the work
 * it has to do.
 */
#define ASKED_AT_ONCE (32 * 1024u)

enum admit { SENT, CONGESTED, FULL, NO_ROOM, AGAIN };

struct send_call {
	struct rds_sock *sk;
	int fd, flags;
	const struct msghdr *msg;
	struct rds_conn_outgoing out;
	struct rds_addr dst;
	unsigned cmsgs; /* RDS_HAS_* */
	struct rds_rdma_send rdma; /* the result of the control messages */
	bool parsed;		   /* rdma is filled in */
	enum admit left;	   /* why the call waits */
	bool impatient;		   /* the call has waited for room long enough */
	/* payload and control messages are valid: a repeated attempt need not check them again */
	bool checked;
};

/*
 * Sends the operations, then their message.  conn->tx held.  The operations belong to the
 * connection from now on.
 */
static int send_operations(struct send_call *c, struct rds_conn *conn)
{
	struct rds_op *ops = c->rdma.ops;
	int err;

	c->rdma.ops = NULL;
	c->rdma.message = !c->rdma.silent || c->out.len;
	if (unlikely(atomic_load(&c->sk->had_async_sends)) && c->rdma.message)
		rds_op_async_attach(&c->out.u, ops);
	else
		c->out.u.op = ops->message;
	err = rds_ops_xmit(conn, ops, !c->rdma.message);
	if (!err && c->rdma.message) {
		c->out.ops = ops;
		c->out.hdr.op = ops->message;
		c->out.u.once = true;
		c->out.may_wait = false;
		err = rds_conn_xmit(conn, &c->out);
		if (err)
			rds_ops_take_back(ops);
	}
	c->rdma.asks = rds_ops_need_peer(ops);
	c->rdma.at_once = ops->total >= ASKED_AT_ONCE;
	if (!err && ops->id_addr) /* checked; only another thread can have unmapped it */
		rds_ucopy_to(ops->memory, ops->id_addr, &ops->barrier_id, sizeof(ops->barrier_id));
	rds_ops_put(ops);
	return err;
}

/*
 * Another process owns the socket, or is about to take it over (share/handoff_out.c): this process
 * sends nothing more for it.
 */
static inline bool sock_is_handed_off(const struct rds_sock *sk)
{
	return atomic_load_explicit(&sk->handing_off, memory_order_relaxed);
}

/* Fills in what depends on the socket and the route. */
static inline void send_address(struct send_call *c, const struct rds_sock_dst *d)
{
	struct rds_conn_outgoing *out = &c->out;
	struct rds_sock *sk = c->sk;

	out->to = d;
	out->u.sk = sk;
	out->u.len = out->hdr.len = (uint32_t)out->len;
	out->u.sport = out->hdr.sport = sk->laddr.port;
	out->u.dport = out->hdr.dport = c->dst.port;
	out->u.sock = d->sock;
	if (unlikely(c->rdma.async)) {
		out->u.report = RDS_REPORT_END;
		out->u.async = c->rdma.async;
	}
}

/* conn->tx held.  The connection has not taken the message: NO_ROOM, or SENT if the call fails. */
static enum admit send_give_up(struct send_call *c, struct rds_conn *conn, bool with_ops, int *err)
{
	rds_sock_snd_sub(c->sk, 1, c->out.len);
	if (with_ops && conn->ep) /* those operations that have gone */
		conn->t->ops->flush(conn->ep, true);
	if (with_ops || *err != -EAGAIN)
		return SENT;
	*err = 0;
	conn->room_sought = true;
	rds_queue_busy_add(conn);
	return NO_ROOM;
}

/* conn->tx held.  The connection is gone: AGAIN, the caller looks the destination up again. */
static enum admit send_admit(struct send_call *c, struct rds_sock_dst *d, int *err)
{
	struct rds_conn *conn = d->conn;
	struct rds_sock *sk = c->sk;
	struct rds_conn_outgoing *out = &c->out;
	bool with_ops;

	*err = 0;
	if (unlikely(d->conn_gen != atomic_load_explicit(&rds_route_gen, memory_order_acquire)))
		return AGAIN;
	/* its messages may already have been taken off the connections */
	if (unlikely(sock_is_handed_off(sk))) {
		*err = -EBADF;
		return SENT;
	}
	if (unlikely(rds_cong_far_has(&conn->fcong, c->dst.port)))
		return CONGESTED;
	if (unlikely(!rds_sock_writable(sk))) {
		rds_queue_reap(conn);
		if (!rds_sock_writable(sk))
			return FULL;
	}
	with_ops = unlikely(c->rdma.ops);
	if (with_ops && !rds_ops_prepare(conn)) {
		*err = -ENOMEM;
		return SENT;
	}
	rds_sock_snd_add(sk, out->len);
	send_address(c, d);
	if (unlikely(c->impatient || conn->impatient)) {
		conn->impatient = c->impatient || conn->queue;
		out->may_wait &= !conn->impatient;
	}
	*err = with_ops ? send_operations(c, conn) : rds_conn_xmit(conn, out);
	if (unlikely(*err))
		return send_give_up(c, conn, with_ops, err);
	if (unlikely(rds_op_order_head_ordered(conn)))
		rds_queue_flush(conn);
	if (likely(conn->ep))
		conn->t->ops->flush(conn->ep,
				    with_ops && c->rdma.asks && (c->rdma.at_once || !rds_queue_ask_later(conn)));
	if (unlikely(with_ops && !c->rdma.message)) {
		rds_sock_snd_sub(sk, 1, out->len);
		return SENT;
	}
	conn->room_sought = false;
	rds_conn_count_sent(conn, out->len);
	c->rdma.async = NULL; /* belongs to the message from now on */
	if (unlikely(out->u.report & RDS_REPORT_END))
		rds_queue_ask_acks(conn);
	return SENT;
}

/* Carries out the control messages; done once, however often the call tries.  sk->tx held. */
static int send_execute_cmsgs(struct send_call *c)
{
	int err;

	if (c->cmsgs == RDS_HAS_ZCOPY && c->out.u.report && c->out.len)
		return 0;
	if (atomic_load(&c->sk->no_rdma) || (c->cmsgs & RDS_HAS_ZCOPY))
		return rds_cmsg_refuse(c->msg);
	if (c->parsed)
		return 0;
	err = rds_rdma_parse(c->sk, c->msg, c->dst.port, &c->rdma);
	if (err)
		return err;
	c->parsed = true;
	if (c->rdma.async)
		c->rdma.async->to = c->dst.ip;
	if (c->rdma.ops)
		c->out.may_wait = false; /* only the engine waits: operations are queued */
	if (c->rdma.used_rkey) {
		c->out.hdr.ext_type = RDS_EXTHDR_RDMA;
		c->out.hdr.ext_rkey = c->rdma.used_rkey;
	} else if (c->rdma.cookie) {
		c->out.hdr.ext_type = RDS_EXTHDR_RDMA_DEST;
		c->out.hdr.ext_rkey = rds_cookie_rkey(c->rdma.cookie);
		c->out.hdr.ext_offset = rds_cookie_offset(c->rdma.cookie);
	}
	c->out.u.ext_type = c->out.hdr.ext_type;
	c->out.u.ext_rkey = c->out.hdr.ext_rkey;
	c->out.u.ext_offset = c->out.hdr.ext_offset;
	return 0;
}

/* Nobody has the port: another user may bind it, and nothing here tells when. */
static bool route_may_appear(const struct rds_sock_dst *d)
{
	return !d->sock && d->conn->kind == RDS_CONN_LOOP && registry_has_others();
}

/* All checks from the name on, and the send, in one attempt, which never sleeps. */
static enum admit send_try_once(struct send_call *c, int *err)
{
	struct rds_sock *sk = c->sk;
	struct rds_sock_dst *d = NULL;
	struct rds_conn *start = NULL;
	enum admit a = SENT;

	rds_lock(&sk->tx);
	*err = unlikely(sock_is_handed_off(sk)) ? -EBADF : rds_call_send_check_name(c->sk, c->msg, &c->dst, &d);
	if (likely(!*err) && !c->checked)
		*err = rds_call_send_check_payload(c->sk, c->msg, c->flags, &c->out, &c->cmsgs);
	if (*err)
		goto out;
	c->checked = true;
	if (!atomic_load_explicit(&sk->tos_fixed, memory_order_relaxed))
		RDS_SOCK_SET(sk, tos_fixed, true); /* until now the program could set it */
	if (unlikely(c->cmsgs)) {
		*err = send_execute_cmsgs(c);
		if (*err)
			goto out;
	}
	if (unlikely(!rds_route_dst_fresh(d))) {
		d->bind_gen = registry_generation(rds_node_registry);
		d->conn_gen = atomic_load(&rds_route_gen);
		*err = rds_route_find(sk, &c->dst, &d->conn, &d->sock);
		if (*err) {
			d->conn = NULL;
			goto out;
		}
	}
	if (unlikely(c->parsed) && rds_conn_leads_to_node(d->conn) &&
	    (c->rdma.ops || c->rdma.cookie || c->rdma.used_rkey)) {
		*err = -EOPNOTSUPP; /* as a kernel says of its transport over TCP */
		goto out;
	}
	/*
	 * This check is the last one.  The route has just been found, so all failures on an earlier
	 * connection to this address are known.
	 */
	if (unlikely(atomic_load(&sk->nfailed)) && rds_op_async_refuses(sk, &c->dst.ip)) {
		d->conn = NULL; /* so the next send comes here as well */
		*err = -EAGAIN;
		goto out;
	}
	rds_lock(&d->conn->tx);
	a = send_admit(c, d, err);
	if (atomic_load_explicit(&d->conn->state, memory_order_relaxed) == RDS_CONN_DOWN)
		start = d->conn;
	rds_unlock(&d->conn->tx);
	if (a == AGAIN || route_may_appear(d))
		d->conn = NULL;
out:
	rds_unlock(&sk->tx);
	if (unlikely(start))
		rds_conn_start(start);
	return *err ? SENT : a;
}

/*
 * The send has found its port congested: notes that for the socket, for a nonblocking or a waiting
 * call.
 */
static void send_note_congestion(struct send_call *c, bool nonblock)
{
	struct rds_sock *sk = c->sk;

	rx_lock();
	if (nonblock) {
		if (sk->cong_monitor)
			RDS_SOCK_SET(sk, cong_mask, sk->cong_mask | 1ull << (c->dst.port % 64));
		RDS_SOCK_SET(sk, seen_congestion, true);
	} else {
		sk->cong_blocked++;
	}
	rds_cong_sock_add(sk);
	rx_unlock();
}

static void send_congestion_interrupted(struct send_call *c)
{
	rx_lock();
	RDS_SOCK_SET(c->sk, seen_congestion, true);
	rx_unlock();
}

static enum admit send_retry(struct send_call *c, int *err)
{
	enum admit a;

	do {
		a = send_try_once(c, err);
	} while (a == AGAIN);
	return a;
}

/* A sleep for congestion (no timeout applies) or for space (SO_SNDTIMEO). */
static short send_wait_event(enum admit why)
{
	return why == CONGESTED ? RDS_WAIT_CONG : why == NO_ROOM ? RDS_WAIT_ROOM : POLLOUT;
}

/*
 * When such a wait ends, 0: never.  The kernel has no wait for room in a transport: it is short,
 * and its end is no timeout for the program.
 */
static uint64_t send_wait_until(enum admit why, uint64_t timeo)
{
	uint64_t patience = rds_patience_ns(RDS_PATIENCE_ROOM);

	if (why == NO_ROOM)
		return os_now_ns() + (timeo < patience ? timeo : patience);
	return why == FULL && timeo != RDS_NO_TIMEOUT ? os_now_ns() + timeo : 0;
}

static struct rds_wait *send_wait_begin(struct send_call *c, enum admit why)
{
	struct rds_wait *w = rds_wait_begin_one(c->sk, send_wait_event(why));

	if (!w)
		return NULL;
	w->only = NULL; /* send_on_cancel() calls rds_hook_left() */
	if (why == CONGESTED) {
		RDS_STAT_INC(cong_send_blocked);
		send_note_congestion(c, false);
		w->congested = true;
	}
	return w;
}

/* Sleeps, unless there is something to look at already.  0: look; or -EINTR. */
static int send_sleep(struct rds_wait *w, uint64_t until)
{
	int ret;

	if (!rds_wait_arm(w))
		return 0;
	ret = rds_wait_sleep(w, until);
	rds_wait_disarm(w);
	return ret == -EINTR ? ret : 0;
}

/*
 * Waits until the message is sent (0, *a is SENT), the send fails, or it must wait for another
 * reason (0, *a is that reason).  Waiting for room in the transport saves a copy, but it must be
 * short: a program need not wait for a peer that does not read, as long as its own buffer has room.
 *
 * Not inline: send_wait_all() has setjmp's frame (cleanup), and values kept in registers would have
 * to be volatile there.
 */
static __attribute__((noinline)) int wait_to_send(struct send_call *c, enum admit *ap)
{
	struct rds_sock *sk = c->sk;
	uint64_t timeo = atomic_load(&sk->sndtimeo_ns), until;
	enum admit a = *ap, why = a;
	struct rds_wait *w;
	bool asked = false;
	int err = 0, ret = 0;

	if (a == FULL && timeo == 0)
		return -ETIMEDOUT;
	until = send_wait_until(a, timeo);
	w = send_wait_begin(c, a);
	if (!w)
		return -ENOMEM;
	for (;;) {
		/* This comes first: an event from here on must end the sleep. */
		rds_wait_note_gen(w, send_wait_event(why));
		rds_progress_round();
		a = send_retry(c, &err);
		if (a != why || err || !atomic_load(&sk->open))
			break;
		if (why != CONGESTED) {
			if (rds_wait_spin(w))
				continue;
			if (until && os_now_ns() >= until) {
				c->impatient = why == NO_ROOM;
				if (c->impatient)
					continue;
				ret = -ETIMEDOUT;
				break;
			}
		}
		if (why == NO_ROOM && !asked) {
			/*
			 * The peer has to know of the wait before the last check, or it would not
			 * report that there is room.
			 */
			asked = true;
			rds_queue_want_room_all();
			continue;
		}
		asked = false;
		ret = send_sleep(w, until);
		if (ret)
			break;
	}
	if (why == CONGESTED && ret == -EINTR)
		send_congestion_interrupted(c);
	rds_wait_end(w);
	*ap = a;
	if (ret || err)
		return ret ? ret : err;
	return a == SENT || atomic_load(&sk->open) ? 0 : -EBADF;
}

/*
 * In this order: the socket shows that it is full before peers are asked for acknowledgements, so
 * that the space which these free is shown.
 */
static void send_show_full(struct rds_sock *sk, int fd)
{
	rds_sock_show_refused(sk, fd);
	rds_queue_want_room_all();
}

/*
 * A nonblocking call fails with ENOBUFS for congestion, unless that has just ended, and with EAGAIN
 * for space.
 */
static int send_fail_nonblock(struct send_call *c, enum admit a)
{
	int err = 0;

	rds_progress_round();
	if (a == FULL)
		rds_queue_reap_all();
	if (a != CONGESTED)
		a = send_retry(c, &err);
	/*
	 * Whichever check found the congestion: ENOBUFS promises that the program is notified of
	 * its end.
	 */
	if (!err && a == CONGESTED) {
		send_note_congestion(c, true);
		a = send_retry(c, &err);
	}
	if (err || a == SENT)
		return err;
	if (a == CONGESTED) {
		RDS_STAT_INC(cong_send_error);
		rds_progress_found_nothing();
		return -ENOBUFS;
	}
	RDS_STAT_INC(send_queue_full);
	send_show_full(c->sk, c->fd);
	rds_progress_found_nothing();
	return -EAGAIN;
}

/* Sets members one by one: clearing the whole structure costs more than the checks. */
static inline void send_begin(struct send_call *c, struct rds_sock *sk, int fd, const struct msghdr *msg, int flags)
{
	c->sk = sk;
	c->fd = fd;
	c->flags = flags;
	c->msg = msg;
	c->out.hdr = (struct rds_hdr){0};
	c->out.u = (struct rds_queue_unacked){0};
	c->out.may_wait = !(flags & MSG_DONTWAIT);
	c->out.answer = false;
	c->cmsgs = 0;
	c->out.ops = NULL;
	c->rdma.ops = c->rdma.async = NULL;
	c->rdma.made = 0;
	c->parsed = false;
	c->checked = false;
	c->impatient = false;
}

static void send_undo(struct send_call *c)
{
	if (c->parsed)
		rds_rdma_undo(c->sk, &c->rdma);
}

static void send_on_cancel(void *arg)
{
	struct send_call *c = arg;

	send_undo(c);
	if (rds_hook_left)
		rds_hook_left(c->sk);
}

/*
 * A thread may be cancelled in here, or leave by siglongjmp().  Then its operations, and a region
 * that it has made for this message, are freed.
 */
static int send_wait_all(struct send_call *c)
{
	volatile int err = 0;

	rds_cleanup_push(send_on_cancel, c);
	while (!err && c->left != SENT)
		err = wait_to_send(c, &c->left);
	rds_cleanup_pop(0);
	return err;
}

static int send_or_wait(struct send_call *c)
{
	bool nonblock;
	enum admit a;
	int err;

	a = send_retry(c, &err);
	if (likely(err || a == SENT))
		return err;
	nonblock = (c->flags & MSG_DONTWAIT) || (os_fcntl(c->fd, F_GETFL, 0) & O_NONBLOCK);
	/* a ring without room means a copy, not EAGAIN, if the call may not wait */
	c->out.may_wait = !nonblock;
	c->left = a;
	return nonblock ? send_fail_nonblock(c, a) : send_wait_all(c);
}

ssize_t rds_call_sendmsg(struct rds_sock *sk, int fd, const struct msghdr *msg, int flags)
{
	struct send_call c;
	int err;

	send_begin(&c, sk, fd, msg, flags);
	if (unlikely((int)msg->msg_namelen < 0))
		return -EINVAL;
	if (unlikely(msg->msg_controllen)) {
		if (msg->msg_controllen >= OPTMEM_MAX)
			return -ENOBUFS;
		if (rds_user_readable(msg->msg_control, msg->msg_controllen))
			return -EFAULT;
	}
	if (unlikely(flags & ~(MSG_DONTWAIT | MSG_ZEROCOPY)))
		return -EOPNOTSUPP;
	if (unlikely(!atomic_load_explicit(&sk->open, memory_order_relaxed)))
		return -EBADF;
	err = send_or_wait(&c);
	if (unlikely(atomic_load_explicit(&rds_conn_work_pending, memory_order_relaxed)))
		rds_conn_work_run();
	if (unlikely(err)) {
		send_undo(&c);
		/* the reason is not space, but its end is shown in the same way */
		if (err == -EAGAIN && rds_op_async_refused)
			rds_sock_show_refused(sk, fd);
		return err;
	}
	rds_wait_has_sent = true;
	rds_progress_send_made(c.out.len);
	/*
	 * A poller that watches through the kernel may wait for space without having been refused.
	 */
	if (unlikely(atomic_load_explicit(&sk->watched, memory_order_relaxed)) && !rds_sock_writable(sk))
		send_show_full(sk, fd);
	return (ssize_t)c.out.len;
}
