/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * wait.c - how a program's thread waits: look, spin a little, arm, look again, sleep.
 *
 * Of all sleeping threads one is the *leader*: peers wake it directly, and it makes progress for everybody.  The
 * others (followers) each have an eventfd that is posted by whoever finds something for them.  When the leader goes away
 * while followers sleep, the helper thread takes over (progress.c).
 *
 * A thread sleeps in exactly one libc call, without a lock: cancellation, EINTR and SA_RESTART are the kernel's.  A
 * finite timeout of a blocking receive or send is rung by the helper's timer, because read() on an eventfd restarts
 * after a signal exactly as the kernel's own RDS sleep does and a timed poll would not.
 *
 * Spinning is worth at most what a wake-up of the peer takes (some 50 us where an idle processor has to be roused): a
 * shorter limit would take every peer that was asleep for one that does not answer.  It is learnt: a spin that brings
 * nothing makes the thread skip the next 1, 2, 4 ... 256 spins, one that succeeds starts over.  A thread that had to wake
 * its peer gives up the processor at once, so that the peer can run on it; only now and then it stays, in case both are
 * about to be busy with each other.  Must not know what sockets wait for.
 */
#include "engine/wait.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPIN_SKIP_MAX 8 /* skip at most 2^8 spins */
#define SPIN_CLOCK_EVERY 16
#define STAY_EVERY 16 /* of the waits that follow a wake-up of the peer, one spins */

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rds_wait *pool;

/* The wait of a thread that has one to spare stays with the thread: nothing to lock.  Given back when the thread ends. */
static __thread struct {
	unsigned streak, skip, handed_over;
	bool woke; /* since the last wait */
	struct rds_wait *wait;
	bool keyed;
} spin_tls __attribute__((tls_model("initial-exec")));

static void wait_timer(struct rds_timer *tm)
{
	rds_wait_post(container_of(tm, struct rds_wait, timer));
}

struct rds_wait *rds_wait_begin(unsigned n)
{
	struct rds_wait *w;

	w = spin_tls.wait;
	if (likely(w)) {
		spin_tls.wait = NULL;
	} else {
		pthread_mutex_lock(&pool_lock);
		w = pool;
		if (w)
			pool = w->pool_next;
		pthread_mutex_unlock(&pool_lock);
	}
	if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w)
			return NULL;
		atomic_store(&w->efd, -1);
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

	if (w)
		rds_wait_add(w, sk, events);
	return w;
}

/* With one processor a spin can never be answered.  (A thread bound to one of several may well be.) */
static bool one_cpu(void)
{
	static _Atomic long cpus;
	long n = atomic_load_explicit(&cpus, memory_order_relaxed);

	if (!n) {
		n = sysconf(_SC_NPROCESSORS_ONLN);
		atomic_store_explicit(&cpus, n > 0 ? n : 1, memory_order_relaxed);
	}
	return n == 1;
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

static void polling(struct rds_wait *w, bool on, bool found)
{
	if (w->polling == on)
		return;
	w->polling = on;
	rx_lock();
	if (on)
		rds_poll_enter();
	else
		rds_poll_leave(found);
	rx_unlock();
}

/* Peers wake nobody anyway and the lease is running: no need to tell them that this thread looks.  A guess without
 * lock is good enough, as the next look (under it) renews the lease. */
static bool lazy_now(void)
{
	return atomic_load_explicit(&rds_eng->attention, memory_order_relaxed) == RDS_ATT_LAZY;
}

static bool spin_begin(struct rds_wait *w)
{
	int64_t us = rds_options()->spin_us;
	bool woke = spin_tls.woke;

	w->spun = true;
	spin_tls.woke = false;
	if (us <= 0 || one_cpu())
		return false;
	if (woke && ++spin_tls.handed_over % STAY_EVERY)
		return false;
	if (spin_tls.skip) {
		spin_tls.skip--;
		return false;
	}
	w->spin_start = os_now_ns();
	w->spin_until = w->spin_start + (uint64_t)us * 1000;
	w->spins = 0;
	w->spinning = true;
	if (!lazy_now())
		polling(w, true, false);
	return true;
}

void rds_peer_woken(void)
{
	spin_tls.woke = true;
}

static void spin_failed(void)
{
	if (spin_tls.streak < SPIN_SKIP_MAX)
		spin_tls.streak++;
	spin_tls.skip = (1u << spin_tls.streak) - 1;
}

bool rds_wait_spin(struct rds_wait *w)
{
	if (!w->spun)
		return spin_begin(w);
	if (!w->spinning)
		return false;
	cpu_relax();
	if (++w->spins % SPIN_CLOCK_EVERY || os_now_ns() < w->spin_until)
		return true;
	spin_failed();
	w->spinning = false;
	polling(w, false, false);
	return false;
}

static int efd_open(struct rds_wait *w)
{
	if (w->efd < 0) {
		int fd = os_eventfd(0, 0);

		return fd < 0 ? fd : os_dup_high_slot(fd, &w->efd);
	}
	return 0;
}

/* Take stale posts off a blocking descriptor without ever blocking. */
static void efd_drain(int fd)
{
	uint64_t v[16];
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (os_poll(&p, 1, 0) > 0)
		os_read(fd, v, sizeof(v));
}

static void link_nodes(struct rds_wait *w)
{
	unsigned i;

	if (w->linked)
		return;
	w->linked = true;
	rds_lock(&rds_eng->wait);
	for (i = 0; i < w->n; i++) {
		struct rds_wait_node *nd = &w->nodes[i], *first = atomic_load(&nd->sk->waiters);

		nd->prev = NULL;
		nd->next = first;
		if (first)
			first->prev = nd;
		atomic_store(&nd->sk->waiters, nd);
	}
	if (w->n && (w->nodes[0].events & RDS_WAIT_ROOM)) {
		w->room_next = rds_eng->room_waits;
		w->room_prev = &rds_eng->room_waits;
		if (w->room_next)
			w->room_next->room_prev = &w->room_next;
		rds_eng->room_waits = w;
	}
	rds_unlock(&rds_eng->wait);
}

void rds_wait_note(struct rds_wait *w, short event)
{
	w->gen = atomic_load(event == RDS_WAIT_CONG ? &rds_eng->cong_generation : &rds_eng->room_generation);
}

void rds_room_made(void)
{
	struct rds_wait *w;

	atomic_fetch_add(&rds_eng->room_generation, 1);
	rds_lock(&rds_eng->wait);
	for (w = rds_eng->room_waits; w; w = w->room_next)
		rds_wait_post(w);
	rds_unlock(&rds_eng->wait);
}

static void unlink_nodes(struct rds_wait *w)
{
	unsigned i;

	if (!w->linked)
		return;
	w->linked = false;
	rds_lock(&rds_eng->wait);
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
	rds_unlock(&rds_eng->wait);
}

static bool wants_output(const struct rds_wait *w)
{
	unsigned i;

	for (i = 0; i < w->n; i++)
		if (w->nodes[i].events & (POLLOUT | POLLWRNORM))
			return true;
	return false;
}

/* Anything to tell the program already?  rx held. */
static bool some_ready(struct rds_wait *w)
{
	unsigned i;

	for (i = 0; i < w->n; i++) {
		struct rds_wait_node *nd = &w->nodes[i];

		if (!atomic_load(&nd->sk->open) || rds_sock_wakes(nd->sk, nd->events))
			return true;
		if ((nd->events & RDS_WAIT_CONG) && w->gen != atomic_load(&rds_eng->cong_generation))
			return true;
		if ((nd->events & RDS_WAIT_ROOM) && w->gen != atomic_load(&rds_eng->room_generation))
			return true;
	}
	return false;
}

bool rds_wait_arm(struct rds_wait *w)
{
	bool ready, follow;

	polling(w, false, false);
	follow = efd_open(w) >= 0; /* without a descriptor of its own it can still be the leader */
	link_nodes(w);
	rx_lock();
	if (!rds_eng->leader) {
		rds_eng->leader = w;
		w->leader = true;
	} else if (follow) {
		rds_eng->followers++;
		w->follower = true;
	} else {
		rx_unlock();
		return false; /* go on looking */
	}
	atomic_store(&w->sleep_slot, w->leader ? &rds_eng->leader_fd : &w->efd);
	atomic_store(&w->armed, true);
	atomic_thread_fence(memory_order_seq_cst); /* who makes room sees a sleeper, or the sleeper sees the room */
	rds_attention_update();
	rx_unlock();
	/* Peers are asked when this thread can be posted: whoever hears of an answer first, it is not missed. */
	ready = wants_output(w) && rds_want_room_all();
	rx_lock();
	ready |= some_ready(w) || rds_eng->shm->ops->pending(rds_eng->shm);
	rx_unlock();
	if (ready) {
		rds_wait_disarm(w);
		return false;
	}
	return true;
}

int rds_wait_fd(const struct rds_wait *w)
{
	return atomic_load(atomic_load(&w->sleep_slot));
}

void rds_wait_disarm(struct rds_wait *w)
{
	if (!w->leader && !w->follower)
		return;
	if ((!atomic_exchange(&w->armed, false) || w->leader) && !w->consumed)
		efd_drain(rds_wait_fd(w));
	w->consumed = false;
	rx_lock();
	rds_progress_locked(); /* what it was woken for: not worth waking the helper, too */
	if (w->leader)
		rds_eng->leader = NULL;
	if (w->follower)
		rds_eng->followers--;
	w->leader = w->follower = false;
	w->slept = true;
	rds_attention_update();
	rx_unlock();
	/* Nobody else may come by for what that round left: the caller may be about to return. */
	if (atomic_load_explicit(&rds_eng->work_pending, memory_order_relaxed))
		rds_run_work();
}

static void sleep_cancelled(void *arg)
{
	rds_wait_end(arg);
}

int rds_wait_sleep(struct rds_wait *w, uint64_t deadline)
{
	volatile ssize_t got = 0;
	uint64_t v;

	if (deadline)
		rds_timer_set(&w->timer, deadline);
	pthread_cleanup_push(sleep_cancelled, w);
	got = rds_os_sleep.read(rds_wait_fd(w), &v, sizeof(v));
	pthread_cleanup_pop(0);
	w->consumed = got > 0;
	/* The timer may be a stale one of the wait's last user: only the clock says that the time is up. */
	if (deadline && os_now_ns() >= deadline)
		return -ETIMEDOUT;
	return got < 0 ? -EINTR : 0;
}

void rds_wait_post(struct rds_wait *w)
{
	static const uint64_t one = 1;

	if (atomic_exchange(&w->armed, false))
		os_write(w->leader ? rds_eng->leader_post : w->efd, &one, sizeof(one));
}

static void pool_put(struct rds_wait *w)
{
	pthread_mutex_lock(&pool_lock);
	w->pool_next = pool;
	pool = w;
	pthread_mutex_unlock(&pool_lock);
}

static void thread_ends(void *arg)
{
	(void)arg;
	if (spin_tls.wait && !rds_engine_foreign())
		pool_put(spin_tls.wait);
	spin_tls.wait = NULL;
}

static pthread_key_t thread_key;
static bool thread_key_made;

static void make_thread_key(void)
{
	thread_key_made = pthread_key_create(&thread_key, thread_ends) == 0;
}

static bool keep_with_thread(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (likely(spin_tls.keyed))
		return true;
	pthread_once(&once, make_thread_key);
	spin_tls.keyed = thread_key_made && pthread_setspecific(thread_key, &spin_tls) == 0;
	return spin_tls.keyed;
}

void rds_wait_end(struct rds_wait *w)
{
	if (w->spinning) {
		w->spinning = false;
		/* Found while spinning - unless the thread was off the CPU for longer than a spin may last. */
		if (w->spins < SPIN_CLOCK_EVERY || os_now_ns() < w->spin_until)
			spin_tls.streak = 0;
		else
			spin_failed();
		polling(w, false, true);
	}
	rds_wait_disarm(w);
	unlink_nodes(w);
	if (w->congested) { /* here, so that a cancelled send is counted down, too */
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
	w->spun = w->slept = false;
	if (likely(!spin_tls.wait && keep_with_thread()))
		spin_tls.wait = w;
	else
		pool_put(w);
}

void rds_wait_forget(void)
{
	pool = NULL;
	spin_tls.wait = NULL;
	pthread_mutex_init(&pool_lock, NULL);
}
