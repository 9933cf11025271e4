/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * standin.c - readiness: waking threads, and what the kernel sees on the stand-in descriptor.
 *
 * The engine's own queues are the truth, and the stand-in shows it to the kernel: a packet in the
 * program's end means readable, a full send buffer means not writable.  The packet has no
 * bytes: a process without this library that reads it gets an end of file, and nothing that could
 * be taken for data.  With borrowers it is the message itself, if it can be (conn/shown.h).
 *
 * To show a state costs system calls.  So it is done at once only for sockets that the program
 * watches through the kernel (an epoll set).  For all others the helper shows what was unread for a
 * tick; that serves waiters that were not interposed.
 */
#include "engine/socket/socket.h"

#define IN_BITS (POLLIN | POLLRDNORM)
#define OUT_BITS (POLLOUT | POLLWRNORM)

bool rds_sock_would_wake(struct rds_sock *sk, short events)
{
	/* a blocking receive does not wait for zero-copy completions or map updates */
	if (events & RDS_WAIT_RECV)
		return sk->rx_head || sk->reports || (sk->cong_monitor && sk->cong_notify);
	if ((events & (IN_BITS | POLLWRBAND)) &&
	    (rds_sock_has_input(sk) ||
	     (!sk->cong_monitor && (sk->seen_congestion || sk->cong_attached) &&
	      sk->cong_track != atomic_load_explicit(&rds_sock_cong_gen, memory_order_relaxed))))
		return true;
	return (events & OUT_BITS) && rds_sock_writable(sk);
}

struct rds_sock *rds_sock_unseen, *rds_sock_taker;
_Atomic uint64_t rds_sock_cong_gen;

/* ---- the stand-in; wait lock held ---- */

static void standin_show_in(struct rds_sock *sk)
{
	if (unlikely(sk->shows_messages) && (rds_sock_events.show_messages(sk) || (sk->shown_in && !sk->watched_edge)))
		return;
	if (os_send(rds_sock_pair_fd(sk), "", 0, MSG_DONTWAIT | MSG_NOSIGNAL) == 0) {
		sk->shown_in = true;
		sk->shown++;
	}
}

static void standin_show_out(struct rds_sock *sk)
{
	os_recv_discard(rds_sock_pair_fd(sk));
	sk->hidden_out = false;
}

/* Another thread may have closed the number meanwhile, and it may now be another descriptor. */
static bool standin_is_fd(const struct rds_sock *sk, int fd)
{
	struct stat st;

	return os_fstat(fd, &st) == 0 && st.st_ino == sk->inode && S_ISSOCK(st.st_mode);
}

static void standin_lower_in(struct rds_sock *sk, int fd)
{
	if (!standin_is_fd(sk, fd))
		return;
	os_recv_discard(fd);
	sk->shown_in = false;
	sk->shown = 0;
}

static void standin_lower_out(struct rds_sock *sk, int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	/* the other end, which borrowers have as well, may be read at the same time */
	unsigned most = RDS_EVENT_MAX;
	int small = 1;

	if (!standin_is_fd(sk, fd))
		return;
	sk->hidden_out = true;
	os_setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	/*
	 * No more than needed: messages of a process that shares the socket have to get through
	 * (share/protocol.h).
	 */
	while (most-- && os_poll(&p, 1, 0) > 0 && os_send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
		;
	/* Space may have come meanwhile: the thread that made it saw hidden_out unset. */
	if (rds_sock_writable(sk))
		standin_show_out(sk);
}

/*
 * As in the kernel, where a wake-up is not an event yet: the epoll call then asks rds_poll(), which
 * reports a new generation once.
 */
static bool standin_would_show(struct rds_sock *sk)
{
	uint64_t gen = atomic_load_explicit(&rds_sock_cong_gen, memory_order_relaxed);

	if (rds_sock_has_input(sk))
		return true;
	if (sk->cong_monitor || sk->cong_track == gen)
		return false;
	if (!atomic_load(&sk->waiters)) /* a thread that sleeps in poll() has yet to see it */
		sk->cong_track = gen;
	return true;
}

static void standin_show_now(struct rds_sock *sk, short events)
{
	/*
	 * An edge-triggered watcher must see every arrival as a new event, even if one is shown
	 * already.  There is a limit in case the program does not read.
	 */
	if ((events & IN_BITS) &&
	    (!sk->shown_in || sk->shows_messages || (sk->watched_edge && sk->shown < RDS_SHOWN_MAX)) &&
	    standin_would_show(sk))
		standin_show_in(sk);
	/* One message may need more than what was acknowledged: a little room is not yet enough. */
	if ((events & OUT_BITS) && sk->hidden_out && rds_sock_writable(sk))
		standin_show_out(sk);
}

/*
 * The socket is readable, but the kernel does not show it: the helper will, if that lasts.  rx
 * held.
 */
static void unseen_add(struct rds_sock *sk)
{
	if (sk->unseen || sk->shown_in)
		return;
	sk->unseen = true;
	rds_sock_hold(sk);
	sk->unseen_next = rds_sock_unseen;
	rds_sock_unseen = sk;
	rds_sock_events.unseen();
}

void rds_sock_unseen_add(struct rds_sock *sk)
{
	if (!atomic_load(&sk->watched))
		unseen_add(sk);
}

void rds_sock_wake(struct rds_sock *sk, short events)
{
	struct rds_wait_node *nd;
	bool watched = atomic_load(&sk->watched);

	if (unlikely(atomic_load_explicit(&sk->proxy_sleeps, memory_order_relaxed)))
		rds_sock_events.proxy_wake();
	if ((events & IN_BITS) && !watched && sk != rds_sock_taker)
		unseen_add(sk);
	if (likely(!watched && !atomic_load(&sk->waiters)) && !((events & OUT_BITS) && sk->hidden_out))
		return;
	rds_lock(&rds_lock_wait);
	for (nd = atomic_load(&sk->waiters); nd; nd = nd->next)
		if (nd->events & events)
			rds_sock_events.wake(nd->w);
	if (watched || sk->hidden_out)
		standin_show_now(sk, events);
	rds_unlock(&rds_lock_wait);
}

void rds_sock_wake_all(struct rds_sock *sk)
{
	struct rds_wait_node *nd;

	rds_lock(&rds_lock_wait);
	for (nd = atomic_load(&sk->waiters); nd; nd = nd->next)
		rds_sock_events.wake(nd->w);
	rds_unlock(&rds_lock_wait);
}

/* The program reads, and more is left: that is a new event. */
static void standin_show_anew(struct rds_sock *sk, int fd)
{
	standin_lower_in(sk, fd);
	if (!sk->shown_in)
		standin_show_in(sk);
}

/*
 * rx held.  Input may be used up, output may be blocked.  Costs something only for a socket that is
 * shown or watched.
 */
void rds_sock_lower_shown(struct rds_sock *sk, int fd)
{
	bool watched = atomic_load_explicit(&sk->watched, memory_order_relaxed);

	rds_lock(&rds_lock_wait);
	if (sk->shown_in && !rds_sock_has_input(sk))
		standin_lower_in(sk, fd);
	else if (unlikely(sk->shows_messages) && !sk->shown_in && rds_sock_has_input(sk))
		standin_show_in(sk);
	else if (sk->shown >= RDS_SHOWN_MAX)
		standin_show_anew(sk, fd);
	if (watched && !sk->hidden_out && !rds_sock_writable(sk))
		standin_lower_out(sk, fd);
	rds_unlock(&rds_lock_wait);
}

void rds_sock_show_rest(struct rds_sock *sk)
{
	if (!sk->shows_messages || !rds_sock_has_input(sk))
		return;
	rds_lock(&rds_lock_wait);
	if (!sk->shown_in)
		standin_show_in(sk);
	rds_unlock(&rds_lock_wait);
}

/*
 * The program got EAGAIN for lack of space.  Even if there is space again by now, an edge-triggered
 * watcher waits for an event; standin_lower_out() makes it then.
 */
void rds_sock_show_refused(struct rds_sock *sk, int fd)
{
	if (likely(!atomic_load(&sk->watched)))
		return;
	rds_lock(&rds_lock_wait);
	if (!sk->hidden_out && (sk->watched_edge || !rds_sock_writable(sk)))
		standin_lower_out(sk, fd);
	rds_unlock(&rds_lock_wait);
}

void rds_sock_watch(struct rds_sock *sk, int fd, bool edge)
{
	rx_lock();
	rds_sock_events.watched();
	rds_lock(&rds_lock_wait);
	sk->watched_edge |= edge;
	atomic_store(&sk->watched, true);
	if (rds_sock_would_wake(sk, POLLIN) && !sk->shown_in)
		standin_show_in(sk);
	if (!rds_sock_writable(sk) && !sk->hidden_out)
		standin_lower_out(sk, fd);
	rds_unlock(&rds_lock_wait);
	rx_unlock();
}

/*
 * The last owner was killed.  Other processes may watch the stand-in, and what it shows is unknown.
 * Our helper may have shown something by now, too.  All of that is withdrawn and shown again.
 */
void rds_sock_show_anew(struct rds_sock *sk, int fd)
{
	rds_lock(&rds_lock_wait);
	standin_lower_in(sk, fd);
	rds_unlock(&rds_lock_wait);
	rds_sock_watch(sk, fd, true);
}

/*
 * The byte that filled the stand-in was read off our end by a look for a packet of another process.
 */
void rds_sock_refill_out(struct rds_sock *sk, int fd)
{
	rds_lock(&rds_lock_wait);
	if (sk->hidden_out && fd >= 0)
		standin_lower_out(sk, fd);
	else
		sk->hidden_out = false;
	rds_unlock(&rds_lock_wait);
}

void rds_sock_show_unseen(void)
{
	struct rds_sock *sk, *next;

	rx_lock();
	sk = rds_sock_unseen;
	rds_sock_unseen = NULL;
	for (; sk; sk = next) {
		next = sk->unseen_next;
		sk->unseen = false;
		if (rds_sock_would_wake(sk, POLLIN) && atomic_load(&sk->open)) {
			rds_lock(&rds_lock_wait);
			if (!sk->shown_in)
				standin_show_in(sk);
			rds_unlock(&rds_lock_wait);
		}
		rds_sock_put(sk);
	}
	rx_unlock();
}
