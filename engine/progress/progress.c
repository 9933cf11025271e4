/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * progress.c - who makes progress when.
 *
 * Whoever is inside a call and finds nothing makes one round of receiving for the whole process.  Who has to be woken
 * when nobody is inside a call is *attention*, told to the transports, which show it to the peers:
 *
 *   a thread spins                 POLLING  peers wake nobody
 *   a thread sleeps (the leader)   LEADER   peers wake it directly: one wake-up, as with a kernel socket
 *   a spin has just succeeded,     LAZY     the program will be back at once; peers wake the helper only when they need an
 *   calls or wake-ups by a device           answer. A lease: the helper looks every tick, and when no call has been made
 *   come thick and fast                     for a whole tick it takes over (HELPER)
 *   a device wakes the helper      LAZY     the same, and the sends look for themselves now and then
 *   while the program sends
 *   otherwise                      HELPER   peers wake the helper: it receives, acknowledges, answers pings and shows
 *                                           readiness to code that was not interposed
 *
 * Followers (further sleeping threads) need somebody awake for them, so with followers and no leader it is HELPER.
 * How the helper thread itself lives is helper/thread.c.
 */
#include "engine/rdma/op_device.h"
#include "engine/progress/wait.h"
#include "engine/progress/transports.h"

#include <string.h>

#define TICK_NS (10 * 1000000ull)
#define BUSY_CALLS 64	  /* in one tick */
#define BUSY_WAKES 4	  /* no tick apart */
#define LOOK_BYTES 65536  /* between two looks of sends, ... */
#define LOOK_MESSAGE 4096 /* ... each of which counts so much more */
#define ROUNDS 256	  /* of receiving, then the helper looks at its events and timers again */

static void lazy_tick(struct rds_timer *tm);

static struct rds_timer lazy_timer = {.fn = lazy_tick};
static uint64_t lazy_tick_seen;
__thread bool rds_transport_looks_aside __attribute__((tls_model("initial-exec")));

/* ---- attention (rx held) ---- */

static void lazy_tick_begin(void)
{
	if (rds_eng->lazy_tick_on)
		return;
	rds_eng->lazy_tick_on = true;
	rds_timer_set(&lazy_timer, os_now_ns() + TICK_NS);
}

static enum rds_at_send attention_at_send(enum rds_attention who)
{
	if (unlikely(atomic_load_explicit(&rds_progress_exiting, memory_order_relaxed)))
		return RDS_AT_SEND_HAND_OVER;
	if (who == RDS_ATT_LAZY && rds_eng->sends_look)
		return RDS_AT_SEND_LOOK;
	return who == RDS_ATT_HELPER && rds_eng->remote_on ? RDS_AT_SEND_NOTE : RDS_AT_SEND_NOTHING;
}

void rds_progress_attention_renew(void)
{
	struct rds_engine *e = rds_eng;

	if (e->helper_up)
		rds_transports_attention(e->attention, e->leader && e->leader->relayed);
}

void rds_progress_attention_update(void)
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
	atomic_store_explicit(&e->at_send, attention_at_send(want), memory_order_relaxed);
	if ((want == RDS_ATT_HELPER || want == RDS_ATT_LEADER) && e->unseen)
		lazy_tick_begin(); /* something waits that the kernel does not show: have the helper look at it */
	if (want == e->attention && want != RDS_ATT_LEADER)
		return;
	e->attention = want;
	rds_progress_attention_renew();
	if (want == RDS_ATT_HELPER && e->helper_up && rds_transports_pending())
		rds_helper_kick();
}

/* Peers that saw somebody look woke nobody, and one that died may not have come to it: is there something for the leader? */
static void leader_wake_if_pending(void)
{
	struct rds_engine *e = rds_eng;

	if (e->attention == RDS_ATT_LEADER && e->helper_up && rds_transports_pending())
		rds_sock_waiter_wake(e->leader);
}

void rds_progress_spin_enter(void)
{
	rds_eng->pollers++;
	rds_eng->activity++;
	rds_progress_attention_update();
}

void rds_progress_spin_leave(bool found)
{
	struct rds_engine *e = rds_eng;

	e->pollers--;
	if (found && e->helper_up) {
		e->lazy = true;
		lazy_tick_begin();
	} else {
		e->lazy = e->sends_look = false;
	}
	rds_progress_attention_update();
	leader_wake_if_pending();
}

/*
 * This thread is about to wake a peer, and has waited for the answer every time so far.  The answer may well come before the thread is
 * back: then it need not find the helper asleep and wake it.  Not under rx.
 */
void rds_progress_answer_expected(void)
{
	struct rds_engine *e = rds_eng;

	if (atomic_load_explicit(&e->attention, memory_order_relaxed) != RDS_ATT_HELPER)
		return;
	rx_lock();
	e->activity++;
	if (e->attention == RDS_ATT_HELPER && e->helper_up) {
		e->lazy = true;
		lazy_tick_begin();
		rds_progress_attention_update();
	}
	rx_unlock();
}

/*
 * The leader was woken over a transport whose device tells it directly, and sleeps again and again: to let the helper hear meanwhile, and
 * make it deaf again, would be two system calls per message.  rx held.
 */
void rds_progress_leader_woken(void)
{
	struct rds_engine *e = rds_eng;
	uint64_t now = os_now_coarse_ns(), since = now - e->led_at;

	e->led_at = now;
	if (since > TICK_NS || !e->helper_up || e->pollers)
		return;
	e->activity++;
	e->lazy = true;
	lazy_tick_begin();
}

/*
 * To wake the helper for each acknowledgement costs who sends large messages more than to look for them; and it is often on the same processor.
 * But whoever sleeps in the kernel for a socket of ours, or in another process that shares it, hears of nothing that nobody looks for.
 */
void rds_progress_helper_woken(void)
{
	struct rds_engine *e = rds_eng;
	uint64_t now;

	if (e->watched || !atomic_exchange_explicit(&e->sent, false, memory_order_relaxed))
		return;
	now = os_now_coarse_ns();
	if (now - e->woken_at > TICK_NS)
		e->wakes = 0;
	e->woken_at = now;
	if (++e->wakes < BUSY_WAKES)
		return;
	e->wakes = 0;
	e->lazy = e->sends_look = true;
	e->activity++;
	lazy_tick_begin();
	rds_progress_attention_update();
}

void rds_progress_others_watch(void)
{
	struct rds_engine *e = rds_eng;

	if (e->watched)
		return;
	e->watched = true;
	if (!e->sends_look)
		return;
	e->lazy = e->sends_look = false;
	rds_progress_attention_update();
	rds_helper_kick(); /* for what it leaves to be done */
}

/* One round, which is no reason to think that the program waits for anything: what is held back for others to come (transport/verbs/batch_when.c) stays. */
static void send_look_round(void)
{
	rx_lock();
	rds_eng->activity++;
	rds_transport_looks_aside = true;
	rds_progress_round_locked();
	rds_transport_looks_aside = false;
	rx_unlock();
	if (unlikely(atomic_load_explicit(&rds_eng->work_pending, memory_order_relaxed)))
		rds_conn_work_run();
}

void rds_progress_send_noted(size_t len)
{
	static __thread size_t unlooked __attribute__((tls_model("initial-exec")));
	struct rds_engine *e = rds_eng;
	enum rds_at_send what = atomic_load_explicit(&e->at_send, memory_order_relaxed);

	if (what == RDS_AT_SEND_HAND_OVER) {
		if (!rds_caller) /* the helper sends for others, and goes on as long as there is a process */
			rds_progress_linger();
		return;
	}
	if (what == RDS_AT_SEND_NOTE) {
		if (!atomic_load_explicit(&e->sent, memory_order_relaxed))
			atomic_store_explicit(&e->sent, true, memory_order_relaxed);
		return;
	}
	unlooked += len + LOOK_MESSAGE;
	if (unlooked < LOOK_BYTES || rds_transport_looks_aside)
		return;
	unlooked = 0;
	send_look_round();
}

/* A program that calls again and again without ever waiting (MSG_DONTWAIT loops) is as busy as one that spins. */
void rds_progress_call_made(void)
{
	struct rds_engine *e = rds_eng;

	e->activity++;
	if (likely(e->attention != RDS_ATT_HELPER) || ++e->calls < BUSY_CALLS || !e->helper_up)
		return;
	e->calls = 0;
	e->lazy = true;
	lazy_tick_begin();
	rds_progress_attention_update();
}

/*
 * A transport's memory fills up.  The messages that hold it are moved to the heap if nobody has read any for a whole tick, if
 * the oldest has waited for several, or if a reader finds nothing for itself: then what it waits for may be stuck behind them.  rx held.
 */
void rds_progress_relieve(bool now)
{
	if (unlikely(rds_eng->pressure))
		rds_eng->pressure = rds_transports_relieve(now);
}

void rds_progress_pressure(void)
{
	rds_eng->pressure = true;
	lazy_tick_begin();
}

/* ---- one round ---- */

bool rds_progress_round_locked(void)
{
	if (unlikely(!rds_eng->helper_up))
		return false;
	return rds_transports_progress();
}

bool rds_progress_round(void)
{
	bool moved;

	if (unlikely(!rds_eng || !atomic_load_explicit(&rds_eng->started, memory_order_acquire)))
		return false;
	rx_lock();
	moved = rds_progress_round_locked();
	rx_unlock();
	if (unlikely(atomic_load_explicit(&rds_eng->work_pending, memory_order_relaxed)))
		rds_conn_work_run();
	rds_helper_deferred_check();
	if (!moved)
		rds_queue_looked_in_vain();
	return moved;
}

/* Send what the receive path wanted sent. A connection that has no room now stays on the list; `writable` comes back. */
static void conn_work_one(struct rds_conn *conn)
{
	uint16_t pongs[16];
	unsigned i, n;
	bool map, flush, push;

	if (unlikely(atomic_load_explicit(&conn->nredirects_in, memory_order_relaxed)))
		rds_conn_redirect_run(conn);
	/* What is to be done is read under tx: whoever puts a map back for the next `writable` does so under it, too. */
	rds_lock(&conn->tx);
	rx_lock();
	n = conn->npongs;
	memcpy(pongs, conn->pongs, n * sizeof(pongs[0]));
	conn->npongs = 0;
	map = conn->want_map;
	flush = conn->want_flush;
	push = conn->want_push;
	conn->want_map = conn->want_flush = conn->want_push = false;
	rx_unlock();

	if (unlikely(atomic_load_explicit(&conn->nadvertise, memory_order_relaxed)))
		rds_mr_advertise(conn);
	if (unlikely(atomic_load_explicit(&conn->nanswers, memory_order_relaxed)))
		rds_conn_answers_flush(conn);
	if (flush)
		rds_queue_reap(conn);
	if (map && rds_conn_xmit_map(conn)) { /* no room, or no memory */
		rx_lock();
		conn->want_map = true; /* goes out with the next `writable` or reconnect */
		rx_unlock();
	}
	if (push && conn->ep && conn->t->ops->push)
		conn->t->ops->push(conn->ep);
	rds_queue_flush(conn);
	if (flush)
		rds_queue_rearm(conn);
	if (flush && !conn->queue)
		rds_sock_room_made();
	for (i = 0; i < n; i++)
		rds_conn_xmit_pong(conn, pongs[i]);
	if (unlikely(atomic_load_explicit(&conn->nredirects_out, memory_order_relaxed)))
		rds_conn_redirect_send(conn);
	rds_unlock(&conn->tx);
}

void rds_conn_work_run(void)
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
		conn_work_one(conn);
	}
}

/* ---- what the helper does each time it is awake ---- */

/* No call for a whole tick: the program is not as busy as it was, the helper takes over. */
static void lazy_tick(struct rds_timer *tm)
{
	bool again = true;

	rds_sock_show_unseen();
	rds_queue_reap_all();
	rx_lock();
	rds_eng->calls = 0;
	if (rds_eng->activity == lazy_tick_seen && !rds_eng->pollers) {
		rds_eng->lazy = rds_eng->sends_look = false;
		again = rds_eng->unseen != NULL || rds_eng->pressure;
		rds_eng->lazy_tick_on = again;
		rds_progress_attention_update();
	}
	if (rds_eng->attention == RDS_ATT_LAZY && rds_eng->remote_on)
		rds_progress_attention_renew(); /* it goes on: the remote transport may not have acted on it yet */
	lazy_tick_seen = rds_eng->activity;
	rds_progress_relieve(false);
	rx_unlock();
	if (again)
		rds_timer_set(tm, os_now_ns() + TICK_NS);
}

void rds_progress_helper_round(void)
{
	bool begin, quiet;
	unsigned i;

	for (i = 0; i < ROUNDS && rds_progress_round(); i++)
		;
	rds_conn_work_run();
	if (unlikely(atomic_load_explicit(&rds_eng->ending, memory_order_relaxed)))
		rds_queue_want_room_all(); /* two processes that end at once would wait for each other's acknowledgements */
	rx_lock();
	begin = rds_eng->lazy_tick_on && !lazy_timer.queued;
	quiet = rds_eng->attention == RDS_ATT_HELPER;
	if (quiet) /* the peers' wake-up used the request up: ask again */
		rds_progress_attention_renew();
	if (quiet && rds_transports_pending())
		rds_helper_kick();
	if (rds_eng->attention == RDS_ATT_LEADER) { /* a peer may have taken the request for a wake-up and died */
		rds_progress_attention_update();
		leader_wake_if_pending();
	}
	rx_unlock();
	if (unlikely(atomic_load_explicit(&rds_eng->work_pending, memory_order_relaxed)))
		rds_conn_work_run(); /* what has to be said before nobody looks */
	if (quiet)
		rds_sock_show_unseen();
	if (begin)
		rds_timer_set(&lazy_timer, os_now_ns() + TICK_NS);
}

void rds_progress_forget(void)
{
	lazy_timer.queued = false;
}
