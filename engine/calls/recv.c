/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * recv.c - recvmsg: from the socket's queue to the program (net/rds/recv.c).  How messages come
 * into the queue is in conn/receive.c.
 *
 * Delivery copies under the receive lock, so that concurrent readers never share or lose a message.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/abi/cmsg.h"
#include "engine/sys/cpu.h"
#include "engine/abi/revisions.h"
#include "engine/conn/shown.h"
#include "engine/rdma/mr.h"
#include "engine/rdma/rdma.h"
#include "engine/sys/uaccess.h"
#include "engine/progress/wait.h"
#include "engine/progress/transports.h"
#include "engine/calls/start.h"
#include "engine/calls/recv.h"

/* ---- delivery ---- */

/*
 * Copies to the program; touches only what the message fills.  Number of bytes copied, or -EFAULT.
 */
static ssize_t recv_copy_out(const struct msghdr *msg, const struct rds_inc *inc)
{
	const char *from = inc->data;
	size_t left = inc->len, i, n;

	for (i = 0; left && i < msg->msg_iovlen; i++) {
		/*
		 * read once: the vector may be the program's own, and lie in the buffer that is
		 * filled
		 */
		void *to = msg->msg_iov[i].iov_base;

		if (!msg->msg_iov[i].iov_len)
			continue;
		n = msg->msg_iov[i].iov_len < left ? msg->msg_iov[i].iov_len : left;
		if (unlikely(rds_user_fillable(to, n)))
			return -EFAULT;
		rds_copy(to, from, n);
		from += n;
		left -= n;
	}
	return (ssize_t)(inc->len - left);
}

static void recv_dequeue(struct rds_sock *sk, int fd)
{
	struct rds_inc *inc = sk->rx_head;

	sk->rx_head = inc->next;
	if (!sk->rx_head) {
		sk->rx_tail = &sk->rx_head;
		/* nothing is left to be shown */
		if (sk->unseen && rds_sock_unseen == sk && !rds_sock_has_input(sk)) {
			rds_sock_unseen = sk->unseen_next;
			sk->unseen = false;
			rds_sock_put(sk);
		}
		rds_sock_lower_if_shown(sk, fd);
	} else if (unlikely(atomic_load_explicit(&sk->shown, memory_order_relaxed) >= RDS_SHOWN_MAX ||
			    sk->shows_messages)) {
		rds_sock_lower_shown(sk, fd);
	}
	sk->rcv_count--;
	if (inc->len) {
		sk->rcv_bytes -= inc->len;
		RDS_STAT_ADD_RX(recv_bytes_freed_fromsock, inc->len);
		if (unlikely(sk->congested))
			rds_cong_check(sk);
	}
}

static int recv_put_trace(struct rds_sock *sk, const struct rds_inc *inc, struct rds_cmsg_out *out, int level)
{
	uint32_t cfg = atomic_load_explicit(&sk->rx_trace, memory_order_relaxed);
	struct rds_cmsg_rx_trace t;
	uint64_t at[4] = {inc->trace_ns[0], inc->trace_ns[1], inc->trace_ns[2], os_now_ns()};
	unsigned i, n = cfg & 0xff;

	memset(&t, 0, sizeof(t));
	t.rx_traces = (uint8_t)n;
	for (i = 0; i < n && i < 3; i++) {
		unsigned pos = (cfg >> (8 * (i + 1))) & 0xff;

		t.rx_trace_pos[i] = (uint8_t)pos;
		t.rx_trace[i] = inc->trace_ns[0] && pos < 3 ? at[pos + 1] - at[pos] : 0;
	}
	return rds_cmsg_put(out, level, RDS_CMSG_RXPATH_LATENCY, &t, sizeof(t));
}

static int recv_put_zcopy(struct rds_sock *sk, struct rds_cmsg_out *out)
{
	struct rds_sock_zcopy *z = sk->zhead;
	int err;

	if (!z || !atomic_load(&sk->zerocopy) || out->len < out->used + CMSG_SPACE(sizeof(z->cookies)))
		return 0;
	err = rds_cmsg_put(out, rds_sock_level(sk), RDS_CMSG_ZCOPY_COMPLETION, &z->cookies, sizeof(z->cookies));
	if (err)
		return err;
	sk->zhead = z->next;
	if (!sk->zhead)
		sk->ztail = &sk->zhead;
	free(z);
	return 1;
}

static int recv_put_cmsgs(struct rds_sock *sk, const struct rds_inc *inc, struct rds_cmsg_out *out)
{
	int ts = atomic_load_explicit(&sk->timestamp, memory_order_relaxed), err;

	if (unlikely(inc->cookie)) {
		err = rds_cmsg_put(out, rds_sock_level(sk), RDS_CMSG_RDMA_DEST, &inc->cookie, sizeof(inc->cookie));
		if (err)
			return err;
	}
	if (unlikely(ts && inc->real_ns)) {
		int64_t tv[2] = {(int64_t)(inc->real_ns / 1000000000), (int64_t)(inc->real_ns % 1000000000 / 1000)};

		err = rds_cmsg_put(out, SOL_SOCKET, ts, tv, sizeof(tv));
		if (err)
			return err;
	}
	if (unlikely(atomic_load_explicit(&sk->rx_trace, memory_order_relaxed))) {
		err = recv_put_trace(sk, inc, out, rds_sock_level(sk));
		if (err)
			return err;
	}
	if (unlikely(atomic_load_explicit(&sk->inq, memory_order_relaxed))) {
		/* bytes that are left after this message */
		int left = sk->rcv_bytes > INT_MAX ? INT_MAX : (int)sk->rcv_bytes;

		err = rds_cmsg_put(out, rds_sock_level(sk), RDS_CMSG_INQ, &left, sizeof(left));
		if (err)
			return err;
	}
	if (unlikely(sk->zhead)) {
		err = recv_put_zcopy(sk, out);
		if (err < 0)
			return err;
	}
	return 0;
}

static int recv_put_name(const struct rds_sock *sk, const struct rds_inc *inc, struct msghdr *msg)
{
	struct sockaddr_storage ss;
	socklen_t len;

	if (!msg->msg_name)
		return 0;
	if (likely(rds_ip_is_v4(&inc->saddr) && msg->msg_namelen >= sizeof(struct sockaddr_in))) {
		struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(inc->sport)};

		sin.sin_addr.s_addr = inc->saddr.s6_addr32[3];
		memcpy(msg->msg_name, &sin, sizeof(sin));
		msg->msg_namelen = sizeof(sin);
		return 0;
	}
	len = rds_addr_to_sockaddr(&inc->saddr, inc->sport, sk->bound_scope, &ss);
	memcpy(msg->msg_name, &ss, msg->msg_namelen < len ? msg->msg_namelen : len);
	msg->msg_namelen = len;
	return 0;
}

/* The message fits into one buffer, and needs no control message. */
static inline bool recv_is_plain(const struct rds_sock *sk, const struct rds_inc *inc, const struct msghdr *msg,
				 int flags)
{
	return !(flags & ~MSG_DONTWAIT) && msg->msg_iovlen == 1 && msg->msg_iov->iov_len >= inc->len && !inc->cookie &&
	       !sk->zhead && !atomic_load_explicit(&sk->timestamp, memory_order_relaxed) &&
	       !atomic_load_explicit(&sk->rx_trace, memory_order_relaxed) &&
	       !atomic_load_explicit(&sk->inq, memory_order_relaxed);
}

static void recv_count_delivered(uint64_t n)
{
	RDS_STAT_INC_RX(recv_delivered);
	RDS_STAT_ADD_RX(copy_to_user, n);
}

/* The fast path of recv_deliver_head(), for nearly all messages. */
static inline ssize_t recv_deliver_plain(struct rds_sock *sk, int fd, struct msghdr *msg)
{
	struct rds_inc *inc = sk->rx_head;
	void *to = msg->msg_iov->iov_base; /* read once, as in recv_copy_out() */
	uint32_t len = inc->len;

	if (unlikely(rds_user_fillable(to, len)))
		return -EFAULT;
	if (likely(len)) /* an empty message may have no data */
		rds_copy(to, inc->data, len);
	recv_dequeue(sk, fd);
	recv_put_name(sk, inc, msg);
	msg->msg_controllen = 0;
	msg->msg_flags = 0;
	rds_inc_free(inc);
	recv_count_delivered(len);
	return len;
}

/*
 * Delivers the head of the queue.  taken: the caller keeps the message there until delivery is
 * certain.  rx held.
 */
static ssize_t recv_deliver_head(struct rds_sock *sk, int fd, struct msghdr *msg, int flags, struct rds_inc **taken)
{
	struct rds_inc *inc = sk->rx_head;
	struct rds_cmsg_out out;
	ssize_t n = recv_copy_out(msg, inc);
	int err;

	if (unlikely(n < 0))
		return n;
	rds_cmsg_out_init(&out, msg);
	if ((size_t)n < inc->len)
		out.flags |= MSG_TRUNC;
	if (!(flags & MSG_PEEK))
		recv_dequeue(sk, fd);
	err = recv_put_cmsgs(sk, inc, &out);
	if (!err)
		err = recv_put_name(sk, inc, msg);
	msg->msg_controllen = out.used;
	msg->msg_flags = out.flags;
	if (flags & MSG_TRUNC)
		n = inc->len;
	if (unlikely(taken))
		*taken = flags & MSG_PEEK ? NULL : inc;
	else if (!(flags & MSG_PEEK))
		rds_inc_free(inc);
	recv_count_delivered((uint64_t)n);
	return err ? err : n;
}

/*
 * Later kernels report a missing name by a length of 0.  Programs from before that end if the
 * length is below that of an address.  They are recognised by their behaviour.
 */
void rds_call_recv_no_name(struct msghdr *msg)
{
	struct sockaddr_in none = {.sin_family = AF_INET};
	enum rds_abi_epoch epoch = rds_abi_epoch();
	size_t len = sizeof(none);

	if (!msg->msg_name)
		return;
	if (!rds_abi_numbers_read() && epoch != RDS_EPOCH_24 && epoch != RDS_EPOCH_32) {
		msg->msg_namelen = 0;
		return;
	}
	if (msg->msg_namelen < len)
		len = msg->msg_namelen;
	memcpy(msg->msg_name, &none, len);
	msg->msg_namelen = (socklen_t)len;
}

/* Delivers the pending congestion notification alone.  rx held. */
static ssize_t recv_deliver_cong(struct rds_sock *sk, int fd, struct msghdr *msg)
{
	struct rds_cmsg_out out;
	uint64_t bits = sk->cong_notify;
	int err;

	rds_cmsg_out_init(&out, msg);
	err = rds_cmsg_put(&out, rds_sock_level(sk), RDS_CMSG_CONG_UPDATE, &bits, sizeof(bits));
	if (err)
		return err;
	RDS_SOCK_SET(sk, cong_notify, 0);
	rds_sock_lower_if_shown(sk, fd);
	msg->msg_controllen = out.used;
	msg->msg_flags = out.flags;
	rds_call_recv_no_name(msg);
	return 0;
}

/*
 * Delivers notifications of operations alone.  They are taken even with MSG_PEEK, and even if the
 * control buffer has no room for them.  rx held.
 */
static ssize_t recv_deliver_notify(struct rds_sock *sk, int fd, struct msghdr *msg)
{
	struct rds_cmsg_out out;
	int err;

	rds_cmsg_out_init(&out, msg);
	err = rds_notify_deliver(sk, &out);
	if (err)
		return err;
	rds_sock_lower_if_shown(sk, fd);
	msg->msg_controllen = out.used;
	msg->msg_flags = out.flags;
	rds_call_recv_no_name(msg);
	return 0;
}

static ssize_t recv_deliver_zcopy(struct rds_sock *sk, struct msghdr *msg)
{
	struct rds_cmsg_out out;
	int ret;

	rds_cmsg_out_init(&out, msg);
	ret = recv_put_zcopy(sk, &out);
	if (ret <= 0)
		return ret ? ret : -EAGAIN;
	msg->msg_controllen = out.used;
	msg->msg_flags = out.flags;
	if (msg->msg_name)
		msg->msg_namelen = 0;
	return 0;
}

static void recv_found_nothing(struct rds_sock *sk, int fd)
{
	rds_sock_marks_recv_empty(&sk->marks);
	rds_sock_lower_if_shown(sk, fd);
}

/* Notifications of operations and of congestion go before any message. */
static inline bool recv_notify_first(const struct rds_sock *sk)
{
	return unlikely(sk->reports) || unlikely(sk->cong_monitor && sk->cong_notify);
}

/* It could not be stored, and stays the next one. */
static ssize_t recv_failed(struct rds_sock *sk, int fd, ssize_t err)
{
	if (unlikely(err < 0) && sk->nshown) {
		rds_inc_shown_take_back(sk, fd);
		rds_sock_show_rest(sk);
	}
	return err;
}

/* Delivers what comes first, or returns -EAGAIN.  rx held. */
static ssize_t recv_deliver_next(struct rds_sock *sk, int fd, struct msghdr *msg, int flags, struct rds_inc **taken)
{
	rds_inc_shown_take(sk, fd, flags & MSG_PEEK);
	if (sk->reports)
		return recv_deliver_notify(sk, fd, msg);
	if (recv_notify_first(sk))
		return recv_deliver_cong(sk, fd, msg);
	if (sk->rx_head)
		return recv_failed(sk, fd, recv_deliver_head(sk, fd, msg, flags, taken));
	recv_found_nothing(sk, fd);
	return -EAGAIN;
}

/*
 * One round for a thread that reads this socket and takes the first message at once: that message
 * need not be shown in the stand-in.  rx held.
 */
static void recv_progress_once(struct rds_sock *sk)
{
	rds_wait_note_look();
	rds_progress_call_made();
	rds_sock_taker = sk;
	rds_progress_round_locked();
	if (unlikely(rds_progress_has_pressure()) && !sk->rx_head) {
		rds_progress_relieve(true);
		rds_progress_round_locked();
	}
	rds_sock_taker = NULL;
}

/*
 * One attempt: delivers what is queued; else makes a round of progress, and tries again.  -EAGAIN:
 * nothing.
 */
static ssize_t recv_once(struct rds_sock *sk, int fd, struct msghdr *msg, int flags)
{
	ssize_t ret = -EAGAIN;
	bool looked = false;

	rx_lock();
	if (unlikely(!atomic_load_explicit(&sk->open, memory_order_relaxed))) {
		ret = -EBADF;
		goto out;
	}
	if (unlikely(sk->nshown))
		rds_inc_shown_settle(sk, fd);
	if (!sk->rx_head && !recv_notify_first(sk)) {
		recv_progress_once(sk);
		looked = true;
	}
	if (likely(!recv_notify_first(sk) && sk->rx_head && !sk->nshown && recv_is_plain(sk, sk->rx_head, msg, flags)))
		ret = recv_deliver_plain(sk, fd, msg);
	else
		ret = recv_deliver_next(sk, fd, msg, flags, NULL);
	if (looked)
		rds_sock_unseen_note(sk);
out:
	rx_unlock();
	if (unlikely(atomic_load_explicit(&rds_conn_work_pending, memory_order_relaxed)))
		rds_conn_work_run();
	rds_helper_deferred_check();
	return ret;
}

static ssize_t recv_nothing(struct rds_sock *sk, struct msghdr *msg)
{
	ssize_t ret = -EAGAIN;

	rds_queue_looked_in_vain();
	rds_progress_found_nothing();
	if (atomic_load_explicit(&sk->zerocopy, memory_order_relaxed)) {
		rds_queue_reap_all();
		rx_lock();
		ret = recv_deliver_zcopy(sk, msg);
		rx_unlock();
	}
	return ret;
}

static ssize_t recv_wait(struct rds_sock *sk, int fd, struct msghdr *msg, int flags)
{
	uint64_t timeo = atomic_load(&sk->rcvtimeo_ns), deadline = 0;
	struct rds_wait *w;
	ssize_t ret;

	if (timeo == 0) /* a negative SO_RCVTIMEO: the kernel's wait is over before it begins */
		return -ETIMEDOUT;
	if (timeo != RDS_NO_TIMEOUT) {
		ret = rds_call_want_helper(); /* an unbound socket may have no helper */
		if (ret)
			return ret;
		deadline = os_now_ns() + timeo;
	}
	w = rds_wait_begin_one(sk, RDS_WAIT_RECV);
	if (!w)
		return -ENOMEM;
	for (;;) {
		ret = recv_once(sk, fd, msg, flags);
		if (ret != -EAGAIN)
			break;
		if (rds_wait_spin(w))
			continue;
		if (deadline && os_now_ns() >= deadline) {
			ret = -ETIMEDOUT;
			break;
		}
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

/*
 * A receive by the helper for another process (share/owner.h): it is no sign that the program is
 * busy.  A message that is put back keeps its place.
 */
ssize_t rds_call_recv_proxy(struct rds_sock *sk, int fd, struct msghdr *msg, int flags, bool may_wait,
			    struct rds_inc **taken)
{
	ssize_t ret = -EAGAIN;

	*taken = NULL;
	if (flags & (MSG_OOB | MSG_ERRQUEUE))
		return rds_call_recvmsg(sk, fd, msg, flags);
	rx_lock();
	if (sk->shows_messages && atomic_load(&sk->shown_in)) /* the borrower may have read that */
		rds_inc_shown_take_back(sk, fd);
	rds_inc_shown_settle(sk, fd);
	if (!sk->rx_head)
		rds_progress_round_locked();
	if (!atomic_load(&sk->open))
		ret = -EBADF;
	else
		ret = recv_deliver_next(sk, fd, msg, flags, taken);
	if (*taken && !(*taken)->taken)
		(*taken)->taken = ++sk->n_taken;
	rds_sock_show_rest(sk);
	rx_unlock();
	if (atomic_load_explicit(&rds_conn_work_pending, memory_order_relaxed))
		rds_conn_work_run();
	return ret == -EAGAIN && !may_wait ? recv_nothing(sk, msg) : ret;
}

ssize_t rds_call_recvmsg(struct rds_sock *sk, int fd, struct msghdr *msg, int flags)
{
	ssize_t ret;

	if (unlikely(flags & (MSG_OOB | MSG_ERRQUEUE))) {
		if (!(flags & MSG_OOB))
			return -EAGAIN;
		msg->msg_controllen = 0;
		msg->msg_flags = 0;
		if (msg->msg_name)
			msg->msg_namelen = 0;
		return 0;
	}
	if (unlikely(msg->msg_name && (int)msg->msg_namelen < 0))
		return -EINVAL;
	ret = recv_once(sk, fd, msg, flags);
	if (ret != -EAGAIN)
		return ret;
	if ((flags & MSG_DONTWAIT) || (os_fcntl(fd, F_GETFL, 0) & O_NONBLOCK))
		return recv_nothing(sk, msg);
	return recv_wait(sk, fd, msg, flags);
}
