/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * socket.c - the structures of sockets: made, listed, exported to the helper, reused.
 *
 * The program holds one end of an AF_UNIX SOCK_SEQPACKET pair, the engine holds the other.  The
 * kernel hangs up our end when the last copy of the program's end is closed, in any process:
 * that is the socket's last close.
 *
 * Structures come from a slab that is never given back, so that a stale pointer can be asked
 * whether its socket is still alive.  The references are in refcount.c.
 */
#include "engine/socket/socket.h"

#include <stdlib.h>
#include <string.h>

#define SLAB_CHUNK 2

unsigned (*rds_hook_hangup)(struct rds_sock *sk);

struct rds_sock_events rds_sock_events;

static pthread_mutex_t sock_slab_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rds_sock *sock_slab_free, *sock_list; /* sock_slab_lock; control */

static void sock_pair_event(struct rds_helper_event *ev, uint32_t events);
static void sock_close_deferred(struct rds_deferred_call *c);

static struct rds_sock *sock_slab_get(void)
{
	struct rds_sock *sk;
	unsigned i;

	pthread_mutex_lock(&sock_slab_lock);
	if (!sock_slab_free) {
		sk = calloc(SLAB_CHUNK, sizeof(*sk));
		for (i = 0; sk && i < SLAB_CHUNK; i++) {
			rds_lock_init(&sk[i].tx, RDS_LOCK_SOCK_TX);
			/* never changes: the helper may hold an event of an earlier life */
			sk[i].ev.fn = sock_pair_event;
			sk[i].close_call.fn = sock_close_deferred;
			os_fd_init(&sk[i].pair);
			os_fd_init(&sk[i].lease_fd);
			os_fd_init(&sk[i].mailbox_fd);
			atomic_store(&sk[i].port_fd, -1);
			sk[i].next_free = sock_slab_free;
			sock_slab_free = &sk[i];
		}
	}
	sk = sock_slab_free;
	if (sk)
		sock_slab_free = sk->next_free;
	pthread_mutex_unlock(&sock_slab_lock);
	return sk;
}

void rds_sock_slab_put(struct rds_sock *sk)
{
	rds_sock_events.unused(sk);
	pthread_mutex_lock(&sock_slab_lock);
	sk->next_free = sock_slab_free;
	sock_slab_free = sk;
	pthread_mutex_unlock(&sock_slab_lock);
}

void rds_sock_each_locked(void (*fn)(struct rds_sock *sk, void *arg), void *arg)
{
	struct rds_sock *sk;

	for (sk = sock_list; sk; sk = sk->next_all)
		fn(sk, arg);
}

void rds_sock_each(void (*fn)(struct rds_sock *sk, void *arg), void *arg)
{
	rds_lock(&rds_lock_control);
	rds_sock_each_locked(fn, arg);
	rds_unlock(&rds_lock_control);
}

struct rds_sock *rds_sock_by_inode(uint64_t inode)
{
	struct rds_sock *sk;

	if (!os_process_is_started())
		return NULL;
	rds_lock(&rds_lock_control);
	for (sk = sock_list; sk; sk = sk->next_all)
		if (sk->inode == inode && rds_sock_get(sk))
			break;
	rds_unlock(&rds_lock_control);
	return sk;
}

int rds_sock_level(const struct rds_sock *sk)
{
	int level = atomic_load_explicit(&sk->sol_rds, memory_order_relaxed);

	return level ? level : SOL_RDS;
}

void rds_sock_used_level(struct rds_sock *sk, int level)
{
	if (likely(atomic_load_explicit(&sk->sol_rds, memory_order_relaxed) == level))
		return;
	RDS_SOCK_SET(sk, sol_rds, level);
}

/*
 * Closes the number of this thread's table.  The helper's epoll set holds the number of the
 * helper's own table, or of the common one.
 */
static void sock_close_pair(struct rds_sock *sk)
{
	rds_lock(&rds_lock_wait);
	if (sk->exported && (os_fd_table || !rds_helper_has_own_table()))
		rds_helper_event_del(rds_sock_pair_fd(sk));
	os_close_slot(&sk->pair.n[os_fd_table]);
	rds_sock_events.closing(sk);
	rds_unlock(&rds_lock_wait);
}

static void sock_close_deferred(struct rds_deferred_call *c)
{
	struct rds_sock *sk = container_of(c, struct rds_sock, close_call);

	sock_close_pair(sk);
	rds_sock_put(sk);
}

void rds_sock_list_del(struct rds_sock *sk)
{
	if (sk->prev_all)
		sk->prev_all->next_all = sk->next_all;
	else
		sock_list = sk->next_all;
	if (sk->next_all)
		sk->next_all->prev_all = sk->prev_all;
}

bool rds_sock_unlist(struct rds_sock *sk)
{
	rds_sock_list_del(sk);
	return sk->exported && sk->exported == rds_export_epoch() && rds_helper_has_own_table();
}

void rds_sock_close_pair(struct rds_sock *sk, bool exported)
{
	rds_sock_wake_all(sk);
	sock_close_pair(sk);
	if (!exported)
		return;
	rds_sock_hold(sk);
	if (!(os_fd_table ? rds_helper_defer_to_program(&sk->close_call) : rds_helper_defer(&sk->close_call)))
		rds_sock_put(sk);
}

bool rds_sock_hung_up(struct rds_sock *sk)
{
	struct pollfd p = {.fd = rds_sock_pair_fd(sk), .events = 0};

	return os_poll(&p, 1, 0) > 0 && (p.revents & POLLHUP);
}

/* Our end of the pair can be read.  Helper. */
static void sock_pair_event(struct rds_helper_event *ev, uint32_t events)
{
	struct rds_sock *sk = container_of(ev, struct rds_sock, ev);

	(void)events;
	if (!rds_sock_get(sk))
		return;
	if (atomic_load(&sk->open))
		rds_sock_events.pair_readable(sk);
	rds_sock_put(sk);
}

/*
 * The helper may meet a socket before it has received its descriptor.  The packet has been sent, so
 * it is there.
 */
int rds_sock_pair_fd(struct rds_sock *sk)
{
	int fd = os_fd(&sk->pair);

	if (likely(fd >= 0 || !os_fd_table))
		return fd;
	rds_fd_exchange_drain();
	return os_fd(&sk->pair);
}

unsigned rds_sock_exported(void *socket, int *fds, unsigned nfds)
{
	struct rds_sock *sk = socket;
	int err;

	if (nfds < 1)
		return 0;
	if (os_fd_table)
		atomic_store(&sk->pair.n[os_fd_table], fds[0]);
	/* in a shared table, fds[0] may be the program's by now */
	err = rds_helper_event_add(&sk->ev, os_fd_slot(&sk->pair), EPOLLIN | EPOLLRDHUP | EPOLLET);
	if (err)
		rds_warn("an RDS socket cannot be watched (%s): its last close may go unnoticed", strerror(-err));
	return 1;
}

int rds_sock_export(struct rds_sock *sk)
{
	const struct os_fd *pair = &sk->pair;

	return rds_export_to_helper(RDS_EXPORT_SOCK, sk, &pair, 1);
}

int rds_sock_export_all(void)
{
	struct rds_sock *sk;
	int err = 0;

	for (sk = sock_list; sk && !err; sk = sk->next_all) {
		sk->exported = rds_export_epoch();
		err = rds_sock_export(sk);
	}
	return err;
}

/* ---- creation ---- */

void rds_sock_new_owner(struct rds_sock *sk)
{
	static _Atomic uint32_t number;

	sk->owner_since = os_now_ns();
	sk->owner_number = atomic_fetch_add(&number, 1) + 1;
}

static void sock_init(struct rds_sock *sk, uint64_t inode)
{
	rds_sock_state_init(sk);
	sk->inode = inode;
	sk->exported = 0;
	atomic_store(&sk->pair.n[1], -1);
	memset(sk->dst, 0, sizeof(sk->dst));
	atomic_store(&sk->snd, 0);
	sk->handoff = NULL;
	sk->owner_since = 0;
	sk->owner_number = 0;
	sk->rx_head = NULL;
	sk->rx_tail = &sk->rx_head;
	sk->rcv_bytes = sk->rcv_count = 0;
	sk->shows_messages = sk->show_again = false;
	sk->nshown = 0;
	sk->shown_bytes = sk->shown_number = 0;
	sk->congested = false;
	sk->cong_track = 0;
	sk->cong_blocked = 0;
	sk->regions = NULL;
	sk->reports = NULL;
	sk->report_tail = &sk->reports;
	sk->async_sends = NULL;
	atomic_store(&sk->nfailed, 0);
	atomic_store(&sk->had_ops, false);
	rds_sock_marks_free(&sk->marks);
	sk->ordered_ops = NULL;
	sk->zhead = NULL;
	sk->ztail = &sk->zhead;
	atomic_store(&sk->watched, false);
	atomic_store(&sk->watched_edge, false);
	atomic_store(&sk->proxy_sleeps, false);
	sk->port_returned = false;
	atomic_store(&sk->handing_off, false);
	atomic_store(&sk->accepts_nothing, false);
	sk->nobodys = false;
	atomic_store(&sk->look_later, 0);
	atomic_store(&sk->shown_in, false);
	sk->shown = 0;
	atomic_store(&sk->hidden_out, false);
}

/* Into the list of sockets; from now on the helper may see it.  control held. */
void rds_sock_list_add(struct rds_sock *sk)
{
	/* The caller exports it; without a helper, the thread that starts the helper does. */
	sk->exported = atomic_load(&rds_helper_up) ? rds_export_epoch() : 0;
	sk->prev_all = NULL;
	sk->next_all = sock_list;
	if (sock_list)
		sock_list->prev_all = sk;
	sock_list = sk;
	atomic_store(&sk->open, true);
	atomic_store(&sk->handing_off, false);
	atomic_store(&sk->accepts_nothing, false);
	/* one for being open, one for the descriptor number */
	atomic_store_explicit(&sk->ref, (atomic_load(&sk->ref) & ~(RDS_REF_TURN - 1)) + RDS_REF_TURN + 2, memory_order_release);
}

int rds_sock_new(int pair, uint64_t inode, struct rds_sock **out)
{
	struct rds_sock *sk = sock_slab_get();
	int err;

	if (!sk) {
		os_close(pair);
		return -ENOMEM;
	}
	err = os_dup_high_slot(pair, &sk->pair.n[0]);
	if (err) {
		rds_sock_slab_put(sk);
		return err;
	}
	sock_init(sk, inode);
	atomic_store(&sk->handing_off, true); /* until the socket is listed */
	atomic_store(&sk->accepts_nothing, true);
	*out = sk;
	return 0;
}

/*
 * Without the helper's watch the last close goes unnoticed until this process ends: no reason to
 * fail.
 */
void rds_sock_export_late(struct rds_sock *sk)
{
	int err = sk->exported ? rds_sock_export(sk) : 0;

	if (err)
		rds_warn("an RDS socket cannot be watched (%s): its last close may go unnoticed", strerror(-err));
}

void rds_sock_set_error(struct rds_sock *sk, int err)
{
	RDS_SOCK_SET(sk, err, err < 0 ? -err : err);
	rds_sock_wake(sk, POLLERR);
}

int rds_sock_take_error(struct rds_sock *sk)
{
	int err = atomic_exchange(&sk->set_err, 0);

	if (err)
		rds_sock_changed(sk);
	return err;
}

void rds_sock_fork_child(void)
{
	rds_sock_bound_forget();
	sock_slab_free = sock_list = NULL;
	rds_sock_unseen = rds_sock_taker = NULL;
	atomic_store(&rds_sock_closed_bytes, 0);
	pthread_mutex_init(&sock_slab_lock, NULL);
}
