/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * progress.c - who makes progress when, and the helper thread.
 *
 * Whoever is inside a call and finds nothing makes one round of receiving for the whole process.  Who has to be woken
 * when nobody is inside a call is *attention*, told to the transports, which show it to the peers:
 *
 *   a thread spins                 POLLING  peers wake nobody
 *   a thread sleeps (the leader)   LEADER   peers wake it directly: one wake-up, as with a kernel socket
 *   a spin has just succeeded      LAZY     the program will be back at once; peers wake the helper only when they need an
 *                                           answer. A lease: the helper looks every tick, and when no call has been made
 *                                           for a whole tick it takes over (HELPER)
 *   otherwise                      HELPER   peers wake the helper: it receives, acknowledges, answers pings and shows
 *                                           readiness to code that was not interposed
 *
 * Followers (further sleeping threads) need somebody awake for them, so with followers and no leader it is HELPER.
 * The helper has all signals blocked, sleeps in epoll_wait and costs nothing while nothing happens.
 */
#include "engine/connection.h"
#include "engine/wait.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define TICK_NS (10 * 1000000ull)
#define BATCH 64
#define BUSY_CALLS 64 /* in one tick */
#define ROUNDS 256    /* of receiving, then the helper looks at its events and timers again */

static struct {
	_Atomic int ep;
	struct rds_event kick;
	_Atomic bool kicked;
	_Atomic uint64_t added;
	pthread_mutex_t timers_lock;
	struct rds_timer *timers; /* by due time */
	uint64_t sleep_until;	  /* timers_lock: what epoll_wait was told, UINT64_MAX none */
	struct rds_timer lease;
	uint64_t lease_seen;
	pthread_t thread;
} hp = {.ep = -1, .kick.fd = -1, .timers_lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- attention (rx held) ---- */

void rds_attention_update(void)
{
	struct rds_engine *e = rds_eng;
	enum rds_attention want;

	if (e->pollers)
		want = RDS_ATT_POLLING;
	else if (e->leader)
		want = RDS_ATT_LEADER;
	else if (e->lazy && !e->followers)
		want = RDS_ATT_LAZY;
	else
		want = RDS_ATT_HELPER;
	if ((want == RDS_ATT_HELPER || want == RDS_ATT_LEADER) && e->unseen && !e->lease_running) {
		e->lease_running = true; /* something waits that the kernel does not show: have the helper look at it */
		rds_helper_kick();
	}
	if (want == e->attention && want != RDS_ATT_LEADER)
		return;
	e->attention = want;
	if (e->helper_up)
		e->shm->ops->attention(e->shm, want);
	if (want == RDS_ATT_HELPER && e->helper_up && e->shm->ops->pending(e->shm))
		rds_helper_kick();
}

/* Peers that saw somebody look woke nobody, and one that died may not have come to it: is there something for the leader? */
static void leader_look(void)
{
	struct rds_engine *e = rds_eng;

	if (e->attention == RDS_ATT_LEADER && e->helper_up && e->shm->ops->pending(e->shm))
		rds_wait_post(e->leader);
}

void rds_poll_enter(void)
{
	rds_eng->pollers++;
	rds_eng->activity++;
	rds_attention_update();
}

void rds_poll_leave(bool found)
{
	struct rds_engine *e = rds_eng;

	e->pollers--;
	if (found && e->helper_up) {
		e->lazy = true;
		if (!e->lease_running) {
			e->lease_running = true;
			rds_helper_kick();
		}
	} else {
		e->lazy = false;
	}
	rds_attention_update();
	leader_look();
}

/* A program that calls again and again without ever waiting (MSG_DONTWAIT loops) is as busy as one that spins. */
void rds_call_made(void)
{
	struct rds_engine *e = rds_eng;

	e->activity++;
	if (likely(e->attention != RDS_ATT_HELPER) || ++e->calls < BUSY_CALLS || !e->helper_up)
		return;
	e->calls = 0;
	e->lazy = true;
	if (!e->lease_running) {
		e->lease_running = true;
		rds_helper_kick();
	}
	rds_attention_update();
}

/*
 * A transport's memory fills up.  The messages that hold it are moved to the heap if nobody has read any for a whole tick, or
 * if a reader finds nothing for itself: then what it waits for may be stuck behind them.  rx held.
 */
void rds_relieve(bool now)
{
	if (unlikely(rds_eng->pressure))
		rds_eng->pressure = rds_eng->shm->ops->relieve(rds_eng->shm, now);
}

void rds_pressure(void)
{
	rds_eng->pressure = true;
	if (!rds_eng->lease_running) {
		rds_eng->lease_running = true;
		rds_helper_kick();
	}
}

/* ---- one round ---- */

bool rds_progress_locked(void)
{
	if (unlikely(!rds_eng->helper_up))
		return false;
	return rds_eng->shm->ops->progress(rds_eng->shm);
}

bool rds_progress(void)
{
	bool moved;

	if (unlikely(!rds_eng || !atomic_load_explicit(&rds_eng->started, memory_order_acquire)))
		return false;
	rx_lock();
	moved = rds_progress_locked();
	rx_unlock();
	if (unlikely(atomic_load_explicit(&rds_eng->work_pending, memory_order_relaxed)))
		rds_run_work();
	return moved;
}

/* Send what the receive path wanted sent. A connection that has no room now stays on the list; `writable` comes back. */
static void work_one(struct rds_conn *conn)
{
	uint16_t pongs[16];
	unsigned i, n;
	bool map, flush;

	/* What is to be done is read under tx: whoever puts a map back for the next `writable` does so under it, too. */
	rds_lock(&conn->tx);
	rx_lock();
	n = conn->npongs;
	memcpy(pongs, conn->pongs, n * sizeof(pongs[0]));
	conn->npongs = 0;
	map = conn->want_map;
	flush = conn->want_flush;
	conn->want_map = conn->want_flush = false;
	rx_unlock();

	if (flush)
		rds_conn_reap(conn);
	if (map && rds_xmit_map(conn) == -EAGAIN) {
		rx_lock();
		conn->want_map = true; /* goes out with the next `writable` or reconnect */
		rx_unlock();
	}
	rds_queue_flush(conn);
	if (flush)
		rds_conn_rearm(conn);
	if (flush && !conn->queue)
		rds_room_made();
	for (i = 0; i < n; i++)
		rds_xmit_pong(conn, pongs[i]);
	rds_unlock(&conn->tx);
}

void rds_run_work(void)
{
	struct rds_conn *conn;

	for (;;) {
		rx_lock();
		conn = rds_eng->work;
		if (conn) {
			rds_eng->work = conn->work_next;
			conn->work_queued = false;
		} else {
			atomic_store(&rds_eng->work_pending, false);
		}
		rx_unlock();
		if (!conn)
			return;
		work_one(conn);
	}
}

/* ---- timers and events ---- */

static void timer_unlink(struct rds_timer *tm)
{
	struct rds_timer **p;

	if (!tm->queued)
		return;
	for (p = &hp.timers; *p; p = &(*p)->next)
		if (*p == tm) {
			*p = tm->next;
			break;
		}
	tm->queued = false;
}

void rds_timer_set(struct rds_timer *tm, uint64_t due_ns)
{
	struct rds_timer **p;
	bool kick;

	pthread_mutex_lock(&hp.timers_lock);
	timer_unlink(tm);
	tm->due_ns = due_ns;
	for (p = &hp.timers; *p && (*p)->due_ns <= due_ns; p = &(*p)->next)
		;
	tm->next = *p;
	*p = tm;
	tm->queued = true;
	kick = due_ns < hp.sleep_until;
	pthread_mutex_unlock(&hp.timers_lock);
	if (kick)
		rds_helper_kick();
}

void rds_timer_cancel(struct rds_timer *tm)
{
	pthread_mutex_lock(&hp.timers_lock);
	timer_unlink(tm);
	pthread_mutex_unlock(&hp.timers_lock);
}

static void timers_run(void)
{
	uint64_t now = os_now_ns();
	struct rds_timer *tm;

	for (;;) {
		pthread_mutex_lock(&hp.timers_lock);
		tm = hp.timers;
		if (tm && tm->due_ns <= now) {
			hp.timers = tm->next;
			tm->queued = false;
		} else {
			tm = NULL;
		}
		pthread_mutex_unlock(&hp.timers_lock);
		if (!tm)
			return;
		tm->fn(tm);
	}
}

/* Milliseconds until the next timer, rounded up; -1 none. Remembers it so that an earlier timer kicks. */
static int timers_timeout(void)
{
	uint64_t now = os_now_ns(), due;

	pthread_mutex_lock(&hp.timers_lock);
	due = hp.timers ? hp.timers->due_ns : UINT64_MAX;
	hp.sleep_until = due;
	pthread_mutex_unlock(&hp.timers_lock);
	if (due == UINT64_MAX)
		return -1;
	if (due <= now)
		return 0;
	due = (due - now + 999999) / 1000000;
	return due > 3600000 ? 3600000 : (int)due;
}

int rds_event_add(struct rds_event *ev, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = ev};

	/* epoll orders this thread's writes before the helper's reads; told in C, too (the calls are raw). */
	atomic_fetch_add_explicit(&hp.added, 1, memory_order_release);
	return os_epoll_ctl(hp.ep, EPOLL_CTL_ADD, ev->fd, &e);
}

void rds_event_del(struct rds_event *ev)
{
	os_epoll_ctl(hp.ep, EPOLL_CTL_DEL, ev->fd, NULL);
}

/* ---- the helper ---- */

void rds_helper_kick(void)
{
	static const uint64_t one = 1;

	if (!atomic_exchange(&hp.kicked, true))
		os_write(hp.kick.fd, &one, sizeof(one));
}

static void kick_event(struct rds_event *ev, uint32_t events)
{
	uint64_t v;

	(void)events;
	atomic_store(&hp.kicked, false);
	os_read(ev->fd, &v, sizeof(v));
}

/* No call for a whole tick: the program is not as busy as it was, the helper takes over. */
static void lease_tick(struct rds_timer *tm)
{
	bool again = true;

	rds_sock_show_all();
	rds_reap_all();
	rx_lock();
	rds_eng->calls = 0;
	if (rds_eng->activity == hp.lease_seen && !rds_eng->pollers) {
		rds_eng->lazy = false;
		again = rds_eng->unseen != NULL || rds_eng->pressure;
		rds_eng->lease_running = again;
		rds_attention_update();
	}
	hp.lease_seen = rds_eng->activity;
	rds_relieve(false);
	rx_unlock();
	if (again)
		rds_timer_set(tm, os_now_ns() + TICK_NS);
}

static void helper_round(void)
{
	bool lease, quiet;
	unsigned i;

	for (i = 0; i < ROUNDS && rds_progress(); i++)
		;
	rds_run_work();
	rx_lock();
	lease = rds_eng->lease_running && !hp.lease.queued;
	quiet = rds_eng->attention == RDS_ATT_HELPER;
	if (quiet) /* the peers' wake-up used the request up: ask again */
		rds_eng->shm->ops->attention(rds_eng->shm, RDS_ATT_HELPER);
	if (quiet && rds_eng->shm->ops->pending(rds_eng->shm))
		rds_helper_kick();
	if (rds_eng->attention == RDS_ATT_LEADER) { /* a peer may have taken the request for a wake-up and died */
		rds_attention_update();
		leader_look();
	}
	rx_unlock();
	if (quiet)
		rds_sock_show_all();
	if (lease)
		rds_timer_set(&hp.lease, os_now_ns() + TICK_NS);
}

/*
 * Held by the helper while it does anything but sleep.  A fork waits for the end of its round, so that the child does not
 * inherit what the helper was in the middle of, an allocator's lock above all (libc looks after its own, others do not).
 * Bounded: the forking thread may have interrupted a holder of a lock that the helper waits for.
 */
#define FORK_WAIT_NS (20 * 1000000ull)
static rds_lock_t round_lock = RDS_LOCK_INIT;
static __thread bool fork_waited;

void rds_engine_fork_prepare(void)
{
	uint64_t until = os_now_ns() + FORK_WAIT_NS;

	while (!(fork_waited = rds_trylock(&round_lock)) && os_now_ns() < until)
		sched_yield();
}

void rds_engine_fork_parent(void)
{
	if (fork_waited)
		rds_unlock(&round_lock);
}

void rds_helper_forget(void)
{
	rds_lock_init(&round_lock);
}

static void *helper_main(void *arg)
{
	struct epoll_event evs[BATCH];

	(void)arg;
	pthread_setname_np(pthread_self(), "rdspreload");
	rds_unlock(&round_lock); /* taken for it by rds_helper_start: its birth counts as a round */
	for (;;) {
		int i, n = os_epoll_wait(hp.ep, evs, BATCH, timers_timeout());

		(void)atomic_load_explicit(&hp.added, memory_order_acquire);
		rds_lock(&round_lock);
		for (i = 0; i < n; i++) {
			struct rds_event *ev = evs[i].data.ptr;

			ev->fn(ev, evs[i].events);
		}
		timers_run();
		helper_round();
		rds_reclaim();
		rds_unlock(&round_lock);
	}
	return NULL;
}

static int prepare(void)
{
	int err = os_dup_high_slot(os_epoll_create(), &hp.ep);

	if (!err)
		err = os_dup_high_slot(os_eventfd(0, 0), &hp.kick.fd);
	return err ? err : rds_event_add(&hp.kick, EPOLLIN);
}

int rds_helper_prepare(void)
{
	int err;

	hp.sleep_until = UINT64_MAX;
	hp.lease.fn = lease_tick;
	hp.lease.queued = false;
	hp.timers = NULL;
	hp.kick.fn = kick_event;
	atomic_store(&hp.ep, -1); /* a forked child: these were the parent's */
	atomic_store(&hp.kick.fd, -1);
	atomic_store(&hp.kicked, false);
	pthread_mutex_init(&hp.timers_lock, NULL);
	err = prepare();
	if (err < 0) {
		os_close_slot(&hp.kick.fd);
		os_close_slot(&hp.ep);
	}
	return err;
}

int rds_helper_start(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rds_lock(&round_lock);
	err = pthread_create(&hp.thread, &attr, helper_main, NULL);
	if (err)
		rds_unlock(&round_lock);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		rds_error("cannot start the helper thread: %s (limits: ulimit -u, cgroup pids.max)", strerror(err));
	return -err;
}
