/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * barrier.c - RDS_BARRIER as a socket option, as programs of 2008 use it: its value in and out, and
 * the sleep of a blocking call.
 *
 * What a mark is, and when a call is done, is in socket/op_marks.c.  In the kernel one connection
 * led to an address, so that operations ended in order, and programs of that age rely on it.  Here
 * several processes may be behind one address, each with a connection of its own.  So the message
 * of an operation waits until the operations before it, to the same address by other connections,
 * have ended (op->after).
 */
#include "engine/conn/conn.h"
#include "engine/abi/revisions.h"
#include "engine/rdma/rdma.h"
#include "engine/sys/uaccess.h"
#include "engine/progress/wait.h"

#include <fcntl.h>
#include <string.h>

/* ---- operations with an id; rx held ---- */

static uint32_t op_daddr(const struct rds_op *op)
{
	return op->conn->id.faddr.s6_addr32[3];
}

/* The newest older operation to the same address by another connection. */
static uint64_t op_last_elsewhere(const struct rds_op *op)
{
	const struct rds_op *other;
	uint64_t last = 0;

	for (other = op->sk->ordered_ops; other; other = other->order_next)
		if (!other->done && other->daddr == op->daddr && other->conn != op->conn &&
		    other->barrier_id < op->barrier_id && other->barrier_id > last)
			last = other->barrier_id;
	return last;
}

int rds_op_barrier_add(struct rds_op *op)
{
	struct rds_op_marks *b = &op->sk->marks;
	int err;

	op->daddr = op_daddr(op);
	err = rds_sock_marks_begin(b, op->daddr, &op->barrier_id);
	if (err)
		return err;
	op->after = op_last_elsewhere(op);
	op->order_next = op->sk->ordered_ops;
	op->order_prev = &op->sk->ordered_ops;
	if (op->order_next)
		op->order_next->order_prev = &op->order_next;
	op->sk->ordered_ops = op;
	rds_sock_changed(op->sk);
	return 0;
}

void rds_op_barrier_moved(struct rds_op *op)
{
	if (op->barrier_id)
		op->after = op_last_elsewhere(op);
}

void rds_op_barrier_del(struct rds_op *op)
{
	if (!op->order_prev)
		return;
	*op->order_prev = op->order_next;
	if (op->order_next)
		op->order_next->order_prev = op->order_prev;
	op->order_prev = NULL;
}

bool rds_op_barrier_blocked(const struct rds_op *op)
{
	if (op->after && rds_sock_marks_get(&op->sk->marks, op->daddr) < op->after)
		return true;
	for (; op; op = op->message_next)
		if (unlikely(op->overtaken) && !op->over)
			return true;
	return false;
}

/* Messages that waited for other operations may go. */
static void ordered_release(struct rds_sock *sk)
{
	struct rds_op *op;

	for (op = sk->ordered_ops; op; op = op->order_next)
		if (op->after && op->blocked_in && !rds_op_barrier_blocked(op)) {
			op->blocked_in->want_flush = true;
			rds_conn_work_add(op->blocked_in);
			op->blocked_in = NULL;
		}
}

void rds_op_barrier_end(struct rds_op *op, bool never_was)
{
	struct rds_sock *sk = op->sk;
	struct rds_op_marks *b = &sk->marks;

	if (!op->barrier_id)
		return;
	if (never_was) /* a waiter may have nothing to wait for any more */
		rds_sock_marks_cancel(b, op->daddr, op->barrier_id);
	else if (!rds_sock_marks_finish(b, op->daddr, op->barrier_id))
		return;
	sk->marks_gen++;
	ordered_release(sk);
	rds_sock_wake(sk, POLLIN | POLLRDNORM | RDS_WAIT_BARRIER);
}

/* ---- the socket option ---- */

int rds_op_barrier_decode(const void *val, int len, struct rds_barrier_request *req)
{
	unsigned char copy[32];

	if (len < 0 || (size_t)len > sizeof(copy))
		return -EINVAL;
	if (rds_user_readable(val, (size_t)len) < 0)
		return -EFAULT;
	if (len) /* else val may be NULL */
		memcpy(copy, val, (size_t)len);
	return rds_abi_barrier_decode(copy, len, req);
}

static int barrier_may_ask(struct rds_sock *sk)
{
	if (atomic_load(&sk->no_rdma))
		return -ENOPROTOOPT;
	return rds_sock_bound(sk) ? 0 : -ENOTCONN;
}

/* Fills in the destination, if the request names none. */
static int barrier_set_dest(struct rds_sock *sk, struct rds_barrier_request *req)
{
	if (!rds_ip_is_v4(&sk->laddr.ip))
		return -EINVAL;
	if (req->daddr)
		return 0;
	if (!atomic_load_explicit(&sk->connected, memory_order_acquire) || !rds_ip_is_v4(&sk->caddr.ip))
		return -EINVAL;
	req->daddr = sk->caddr.ip.s6_addr32[3];
	return 0;
}

/* 1: not yet, and the caller has to wait. */
static int barrier_ask(struct rds_sock *sk, int fd, const struct rds_barrier_request *req, bool nonblock,
		       uint64_t *mark, uint64_t *gen)
{
	int ret;

	rx_lock();
	rds_progress_round_locked();
	*gen = sk->marks_gen;
	ret = atomic_load(&sk->open) ? rds_sock_marks_request(&sk->marks, req, nonblock, mark) : -EBADF;
	rds_sock_lower_if_shown(sk, fd);
	rx_unlock();
	if (atomic_load_explicit(&rds_conn_work_pending, memory_order_relaxed))
		rds_conn_work_run();
	return ret;
}

static int barrier_sleep(struct rds_sock *sk, int fd, const struct rds_barrier_request *req, uint64_t *mark)
{
	uint64_t timeo = atomic_load(&sk->rcvtimeo_ns), deadline = 0;
	struct rds_wait *w = rds_wait_begin_one(sk, RDS_WAIT_BARRIER);
	int ret;

	if (!w)
		return -ENOMEM;
	if (timeo != RDS_NO_TIMEOUT)
		deadline = os_now_ns() + timeo;
	for (;;) {
		ret = barrier_ask(sk, fd, req, false, mark, &w->gen);
		if (ret <= 0)
			break;
		if (rds_wait_spin(w))
			continue;
		/* a barrier may return early: the program decides whether to call again */
		ret = -EAGAIN;
		if (deadline && os_now_ns() >= deadline)
			break;
		if (!rds_wait_arm(w))
			continue;
		ret = rds_wait_sleep(w, deadline);
		rds_wait_disarm(w);
		if (ret == -EINTR)
			break;
	}
	rds_wait_end(w);
	return ret;
}

int rds_op_barrier_proxy(struct rds_sock *sk, int fd, int bad, struct rds_barrier_request *req, uint64_t *mark)
{
	uint64_t gen;
	int err = barrier_may_ask(sk);

	if (!err)
		err = bad ? bad : barrier_set_dest(sk, req);
	return err ? err : barrier_ask(sk, fd, req, req->nonblock, mark, &gen);
}

/* The memory is the caller's own, and this runs in the caller's own call. */
int rds_op_barrier_store(const struct rds_barrier_request *req, uint64_t mark)
{
	void *to = (void *)(uintptr_t)req->mark_addr;

	if (!to)
		return 0;
	if (rds_user_writable(to, sizeof(mark)))
		return -EFAULT;
	memcpy(to, &mark, sizeof(mark));
	return 0;
}

/* Makes no system call, unless it has to wait. */
int rds_op_barrier_set(struct rds_sock *sk, int fd, const void *val, int len)
{
	struct rds_barrier_request req;
	uint64_t mark = 0, gen;
	int ret = barrier_may_ask(sk);

	if (!ret)
		ret = rds_op_barrier_decode(val, len, &req);
	if (!ret)
		ret = barrier_set_dest(sk, &req);
	if (ret)
		return ret;
	ret = barrier_ask(sk, fd, &req, req.nonblock, &mark, &gen);
	/*
	 * Not yet, or never.  A call that must not block arms the socket: the program is notified
	 * when the barrier is reached.
	 */
	if ((ret > 0 || ret == -EAGAIN) && !req.nonblock && (os_fcntl(fd, F_GETFL, 0) & O_NONBLOCK))
		ret = barrier_ask(sk, fd, &req, true, &mark, &gen);
	else if (ret > 0)
		ret = barrier_sleep(sk, fd, &req, &mark);
	if ((!ret || ret == -EAGAIN) && rds_op_barrier_store(&req, mark))
		return -EFAULT;
	return ret;
}
