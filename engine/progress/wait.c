/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * wait.c - how a program's thread waits: look, spin a little, arm, look again, sleep.
 *
 * Of all sleeping threads one is the *leader*: peers wake it directly, and it receives for all.
 * The others (followers) each have an eventfd; the thread that finds input for a follower posts it.
 * When the leader leaves while followers sleep, the helper thread takes over (progress.c).
 *
 * A thread sleeps in exactly one libc call, without a lock: cancellation, EINTR and SA_RESTART are
 * the kernel's.  A finite timeout of a blocking receive or send is posted by the helper's timer:
 * read() on an eventfd restarts after a signal exactly as the kernel's own RDS sleep does, and a
 * timed poll would not.
 *
 * What a thread does before it sleeps is in spin.c.  Must not know what sockets wait for.
 */
#include "engine/sys/cleanup.h"
#include "engine/progress/wait.h"
#include "engine/progress/transports.h"
#include "engine/conn/outgoing.h"

#include <stdlib.h>

#define NAP_NS 5000000
#define LED_RELAYED_NS 10000000
#define LED_NAMED_NS 100000000 /* between two sleeps: a process of a crowd comes to run that seldom */

static _Atomic uint64_t wait_room_gen;	/* changes when a transport has room again */
static struct rds_wait *wait_room_list; /* wait */

static pthread_mutex_t wait_pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rds_wait *pool;

/*
 * A thread keeps one wait for its next call, so there is nothing to lock.  It goes to the pool when
 * the thread ends.
 */
static __thread struct {
	struct rds_wait *wait;
	bool keyed;
} kept __attribute__((tls_model("initial-exec")));

static void wait_timer(struct rds_timer *tm)
{
	rds_wait_wake(container_of(tm, struct rds_wait, timer));
}

struct rds_wait *rds_wait_begin(unsigned n)
{
	struct rds_wait *w;

	w = kept.wait;
	if (likely(w)) {
		kept.wait = NULL;
	} else {
		if (!os_mutex_lock(&wait_pool_lock))
			return NULL;
		w = pool;
		if (w)
			pool = w->pool_next;
		pthread_mutex_unlock(&wait_pool_lock);
	}
	if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w)
			return NULL;
		os_fd_init(&w->efd);
		w->nodes = w->inl;
		w->cap = RDS_WAIT_INLINE;
		w->timer.fn = wait_timer;
	}
	if (n > w->cap) {
		struct rds_wait_node *nodes = malloc(n * sizeof(*nodes));

		if (!nodes) {
			rds_wait_end(w);
			return NULL;
		}
		if (w->nodes != w->inl)
			free(w->nodes);
		w->nodes = nodes;
		w->cap = n;
	}
	return w;
}

int rds_wait_add(struct rds_wait *w, struct rds_sock *sk, short events)
{
	if (w->n == w->cap || w->linked)
		return -EINVAL;
	w->nodes[w->n++] = (struct rds_wait_node){.w = w, .sk = sk, .events = events};
	return 0;
}

struct rds_wait *rds_wait_begin_one(struct rds_sock *sk, short events)
{
	struct rds_wait *w = rds_wait_begin(1);

	if (!w)
		return NULL;
	rds_wait_add(w, sk, events);
	w->only = sk;
	return w;
}

static int wait_efd_open(struct rds_wait *w)
{
	if (os_fd(&w->efd) < 0) {
		int fd = os_eventfd(0, 0);

		return fd < 0 ? fd : os_dup_high_slot(fd, &w->efd.n[0]);
	}
	return 0;
}

/*
 * Exports the eventfd, so that the helper can post it.  The wait is linked by now, so that a thread
 * that starts the helper sees it; it is not armed, so that no thread posts it before the export.
 */
static int wait_efd_export(struct rds_wait *w)
{
	const struct os_fd *efd = &w->efd;
	uint32_t epoch = rds_export_epoch();
	int err;

	if (likely(atomic_load_explicit(&w->exported, memory_order_relaxed) == epoch) || !rds_helper_has_own_table() ||
	    os_fd(efd) < 0 || atomic_exchange(&w->exported, epoch) == epoch)
		return 0;
	atomic_store(&w->efd.n[1], -1); /* the number of an earlier helper is gone with its table */
	err = rds_export_to_helper(RDS_EXPORT_WAIT, w, &efd, 1);
	if (err)
		atomic_store(&w->exported, 0);
	return err;
}

static void wait_export_sleepers(struct rds_sock *sk, void *arg)
{
	struct rds_wait_node *nd;
	int *err = arg;

	rds_lock(&rds_lock_wait);
	for (nd = atomic_load(&sk->waiters); nd && !*err; nd = nd->next)
		*err = wait_efd_export(nd->w);
	rds_unlock(&rds_lock_wait);
}

int rds_wait_export_all(void)
{
	int err = 0;

	rds_sock_each_locked(wait_export_sleepers, &err);
	return err;
}

unsigned rds_wait_exported(void *wait, int *fds, unsigned nfds)
{
	static const uint64_t one = 1;
	struct rds_wait *w = wait;

	if (nfds < 1 || !os_fd_table)
		return nfds;
	atomic_store(&w->efd.n[os_fd_table], fds[0]);
	if (w->owed)
		os_write(fds[0], &one, sizeof(one));
	w->owed = false;
	return 1;
}

/* Reads stale posts off a blocking descriptor without ever blocking. */
static void wait_efd_drain(int fd)
{
	uint64_t v[16];
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (os_poll(&p, 1, 0) > 0)
		os_read(fd, v, sizeof(v));
}

/* Each wake-up is a datagram of its own. */
static void wait_socket_drain(int fd)
{
	unsigned most = RDS_EVENT_MAX;
	uint64_t v;

	while (most-- && os_recv(fd, &v, sizeof(v), MSG_DONTWAIT) >= 0)
		;
}

static void wait_link_nodes(struct rds_wait *w)
{
	unsigned i;

	if (w->linked)
		return;
	w->linked = true;
	rds_lock(&rds_lock_wait);
	for (i = 0; i < w->n; i++) {
		struct rds_wait_node *nd = &w->nodes[i], *first = atomic_load(&nd->sk->waiters);

		nd->prev = NULL;
		nd->next = first;
		if (first)
			first->prev = nd;
		atomic_store(&nd->sk->waiters, nd);
	}
	if (w->n && (w->nodes[0].events & RDS_WAIT_ROOM)) {
		w->room_next = wait_room_list;
		w->room_prev = &wait_room_list;
		if (w->room_next)
			w->room_next->room_prev = &w->room_next;
		wait_room_list = w;
	}
	rds_unlock(&rds_lock_wait);
}

void rds_wait_note_gen(struct rds_wait *w, short event)
{
	w->gen = atomic_load(event == RDS_WAIT_CONG ? &rds_sock_cong_gen : &wait_room_gen);
}

void rds_wait_room_made(void)
{
	struct rds_wait *w;

	atomic_fetch_add(&wait_room_gen, 1);
	rds_lock(&rds_lock_wait);
	for (w = wait_room_list; w; w = w->room_next)
		rds_wait_wake(w);
	rds_unlock(&rds_lock_wait);
}

static void wait_unlink_nodes(struct rds_wait *w)
{
	unsigned i;

	if (!w->linked)
		return;
	w->linked = false;
	rds_lock(&rds_lock_wait);
	if (w->room_prev) {
		*w->room_prev = w->room_next;
		if (w->room_next)
			w->room_next->room_prev = w->room_prev;
		w->room_prev = NULL;
	}
	for (i = 0; i < w->n; i++) {
		struct rds_wait_node *nd = &w->nodes[i];

		if (nd->prev)
			nd->prev->next = nd->next;
		else
			atomic_store(&nd->sk->waiters, nd->next);
		if (nd->next)
			nd->next->prev = nd->prev;
	}
	rds_unlock(&rds_lock_wait);
}

static bool wait_wants_output(const struct rds_wait *w)
{
	unsigned i;

	for (i = 0; i < w->n; i++)
		if (w->nodes[i].events & (POLLOUT | POLLWRNORM))
			return true;
	return false;
}

/* Has something happened already that the program waits for?  rx held. */
static bool wait_some_ready(struct rds_wait *w)
{
	unsigned i;

	for (i = 0; i < w->n; i++) {
		struct rds_wait_node *nd = &w->nodes[i];

		if (!atomic_load(&nd->sk->open) || rds_sock_would_wake(nd->sk, nd->events))
			return true;
		if ((nd->events & RDS_WAIT_CONG) && w->gen != atomic_load(&rds_sock_cong_gen))
			return true;
		if ((nd->events & RDS_WAIT_BARRIER) && w->gen != nd->sk->marks_gen)
			return true;
		if ((nd->events & RDS_WAIT_ROOM) && w->gen != atomic_load(&wait_room_gen))
			return true;
	}
	return false;
}

void (*rds_hook_left)(struct rds_sock *sk);

/* The sleep was cancelled, or left by siglongjmp(). */
static void wait_sleep_abandoned(void *arg)
{
	struct rds_wait *w = arg;
	struct rds_sock *sk = w->only;

	rds_wait_end(w);
	if (sk && rds_hook_left)
		rds_hook_left(sk);
}

/*
 * No thread could post this one (no descriptors left, or the export failed), and another one leads:
 * look now and then.  False: do not nap any more, the sleep that comes next will report the
 * interruption.
 */
static bool wait_nap(struct rds_wait *w)
{
	static const struct timespec tick = {.tv_nsec = NAP_NS};
	static _Atomic int nothing = -1;

	rds_wait_spin_release(w);
	if (w->interrupted || (rds_os_sleep.cut && rds_os_sleep.cut())) {
		atomic_store(&w->sleep_slot, &nothing);
		return false;
	}

	rds_cleanup_push(wait_sleep_abandoned, w);
	rds_os_sleep.ppoll(NULL, 0, &tick, NULL);
	rds_cleanup_pop(0);
	return true;
}

static int named_fd(void)
{
	_Atomic int *slot = atomic_load(&rds_helper_leader.named_fd);

	return slot ? atomic_load(slot) : -1;
}

bool rds_wait_arm(struct rds_wait *w)
{
	bool ready, follow;

	w->arm_at = rds_wait_spin_measures() ? os_now_ns() : 0;
	rds_wait_spin_stop(w);
	/* without a descriptor of its own the thread can still lead */
	follow = wait_efd_open(w) >= 0;
	wait_link_nodes(w);
	follow = follow && wait_efd_export(w) >= 0;
	rx_lock();
	if (!progress_state.leader && atomic_load(&rds_helper_leader.fd) >= 0) {
		w->relayed = progress_state.remote_leads && os_fd(&rds_helper_leader.relay) >= 0;
		w->named = !w->relayed && rds_helper_leader.by_name && named_fd() >= 0;
		progress_state.leader = w;
		w->leader = true;
	} else if (follow) {
		progress_state.followers++;
		w->follower = true;
	} else {
		rx_unlock();
		return !wait_nap(w); /* go on looking */
	}
	atomic_store(&w->sleep_slot, !w->leader	  ? &w->efd.n[0]
				     : w->relayed ? &rds_helper_leader.relay.n[0]
				     : w->named	  ? atomic_load(&rds_helper_leader.named_fd)
						  : &rds_helper_leader.fd);
	atomic_store(&w->armed, true);
	rds_fence(); /* a thread that makes room sees this sleeper, or this one sees the room */
	rds_progress_attention_update();
	rx_unlock();
	if (unlikely(atomic_load_explicit(&rds_conn_work_pending, memory_order_relaxed)))
		rds_conn_work_run(); /* sends what is left before no thread looks */
	/*
	 * Peers are asked only now that this thread can be posted: so no answer is missed,
	 * whichever thread receives it.
	 */
	ready = wait_wants_output(w) ? rds_queue_want_room_all() : rds_queue_ask_deferred();
	rx_lock();
	ready |= wait_some_ready(w) || rds_transports_pending();
	rx_unlock();
	if (ready) {
		rds_wait_disarm(w);
		return false;
	}
	rds_wait_spin_release(w);
	return true;
}

bool rds_wait_interrupted(const struct rds_wait *w)
{
	return unlikely(w->interrupted);
}

int rds_wait_fd(const struct rds_wait *w)
{
	return atomic_load(atomic_load(&w->sleep_slot));
}

void rds_wait_disarm(struct rds_wait *w)
{
	bool came;

	if (!w->leader && !w->follower)
		return;
	if ((!atomic_exchange(&w->armed, false) || w->leader) && !w->consumed)
		(w->leader && w->named ? wait_socket_drain : wait_efd_drain)(rds_wait_fd(w));
	w->consumed = false;
	rx_lock();
	/* receives what it was woken for, so that the helper need not be woken as well */
	came = rds_progress_round_locked();
	if (w->leader) {
		progress_state.leader = NULL;
		if (w->relayed || (w->named && came))
			rds_progress_leader_woken(w->relayed ? LED_RELAYED_NS : LED_NAMED_NS);
	}
	if (w->follower)
		progress_state.followers--;
	w->leader = w->follower = false;
	w->slept = true;
	rds_progress_attention_update();
	rx_unlock();
	if (w->arm_at && w->cost)
		rds_wait_spin_sleep_cost(w->cost + (os_now_ns() - w->arm_at));
	w->arm_at = w->cost = 0;
	/*
	 * No other thread may come by for what that round left: the caller may be about to return.
	 */
	if (atomic_load_explicit(&rds_conn_work_pending, memory_order_relaxed))
		rds_conn_work_run();
}

int rds_wait_sleep(struct rds_wait *w, uint64_t deadline)
{
	volatile ssize_t got = 0;
	uint64_t v;

	if (unlikely(w->interrupted))
		return -EINTR;
	if (deadline)
		rds_timer_set(&w->timer, deadline);
	if (w->arm_at)
		w->cost = os_now_ns() - w->arm_at;
	rds_cleanup_push(wait_sleep_abandoned, w);
	got = rds_os_sleep.read(rds_wait_fd(w), &v, sizeof(v));
	rds_cleanup_pop(0);
	if (w->arm_at)
		w->arm_at = os_now_ns();
	w->consumed = got > 0;
	/*
	 * The timer may be a stale one of the wait's last use: only the clock tells that the time
	 * is up.
	 */
	if (deadline && os_now_ns() >= deadline)
		return -ETIMEDOUT;
	return got < 0 ? -EINTR : 0;
}

static int wait_wake_fd(const struct rds_wait *w)
{
	return os_fd(!w->leader ? &w->efd : w->relayed ? &rds_helper_leader.relay : &rds_helper_leader.post);
}

void rds_wait_wake(struct rds_wait *w)
{
	static const uint64_t one = 1;
	int fd;

	if (!atomic_exchange(&w->armed, false))
		return;
	if (w->leader && w->named) {
		rds_helper_leader.post_named();
		return;
	}
	fd = wait_wake_fd(w);
	if (unlikely(fd < 0) && os_fd_table) { /* exported, but not received yet */
		rds_fd_exchange_drain();
		fd = wait_wake_fd(w);
		w->owed = fd < 0 && !w->leader;
	}
	os_write(fd, &one, sizeof(one));
}

static void wait_pool_put(struct rds_wait *w)
{
	if (!os_mutex_lock(&wait_pool_lock))
		return; /* the process ends */
	w->pool_next = pool;
	pool = w;
	pthread_mutex_unlock(&wait_pool_lock);
}

static void wait_thread_ends(void *arg)
{
	(void)arg;
	if (kept.wait && !os_process_inherited())
		wait_pool_put(kept.wait);
	kept.wait = NULL;
	/* another destructor may wait once more: then this one is called again */
	kept.keyed = false;
}

static pthread_key_t thread_key;
static bool thread_key_made;

static void wait_make_thread_key(void)
{
	thread_key_made = pthread_key_create(&thread_key, wait_thread_ends) == 0;
}

static bool wait_keep_with_thread(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (likely(kept.keyed))
		return true;
	pthread_once(&once, wait_make_thread_key);
	kept.keyed = thread_key_made && pthread_setspecific(thread_key, &kept) == 0;
	return kept.keyed;
}

void rds_wait_end(struct rds_wait *w)
{
	if (w->spinning || w->yielding)
		rds_wait_spin_end(w);
	rds_wait_spin_release(w);  /* in case the thread did not sleep */
	if (unlikely(w->linked)) { /* else the wait was never armed */
		rds_wait_disarm(w);
		wait_unlink_nodes(w);
	}
	w->only = NULL;
	if (w->congested) { /* here, so that a cancelled send is uncounted, too */
		w->congested = false;
		rx_lock();
		w->nodes[0].sk->cong_blocked--;
		rx_unlock();
	}
	if (w->cap > 64 && w->nodes != w->inl) { /* a huge poll set is not kept */
		free(w->nodes);
		w->nodes = w->inl;
		w->cap = RDS_WAIT_INLINE;
	}
	w->n = 0;
	w->spun = w->slept = w->interrupted = false;
	if (likely(!kept.wait && wait_keep_with_thread()))
		kept.wait = w;
	else
		wait_pool_put(w);
}

void rds_wait_forget(void)
{
	pool = NULL;
	wait_room_list = NULL;
	kept.wait = NULL;
	pthread_mutex_init(&wait_pool_lock, NULL);
}
