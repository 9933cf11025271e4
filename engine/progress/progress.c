/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * progress.c - which thread makes progress, and when.
 *
 * A thread inside a call that finds nothing makes one round of receiving for the whole process.
 * *Attention* tells which thread has to be woken when no thread is inside a call.  The transports
 * show it to the peers:
 *
 *  a thread spins                POLLING  peers wake no thread
 *  a thread sleeps (the leader)  LEADER   peers wake it directly: one wake-up, as with a kernel
 *                                         socket
 *  a spin has just succeeded;    LAZY     the program will be back at once; peers wake the helper
 *  calls, or wake-ups by a                only when they need an answer.  LAZY ends by itself: the
 *  device, follow each other              helper looks every tick, and takes over (HELPER) when no
 *  closely                                call was made for a whole tick
 *  a device wakes the helper     LAZY     the same, and sends look for input now and then
 *  while the program sends
 *  otherwise                     HELPER   peers wake the helper: it receives, acknowledges, answers
 *                                         pings and shows readiness to code that was not interposed
 *
 * Followers (further sleeping threads) need a thread that receives for them, so with followers and
 * no leader it is HELPER.  How the helper thread itself runs is in helper/thread.c.  All of
 * attention is under rx.  Must not know what messages contain.
 */
#include "engine/abi/foreign_memory.h"
#include "engine/conn/outgoing.h"
#include "engine/progress/wait.h"
#include "engine/progress/state.h"
#include "engine/progress/transports.h"

#include <string.h>

#define TICK_NS (10 * 1000000ull)
#define BUSY_CALLS 64	  /* in one tick */
#define BUSY_WAKES 4	  /* no two of them more than a tick apart */
#define LOOK_BYTES 65536  /* bytes between two looks of sends, ... */
#define LOOK_MESSAGE 4096 /* ... where each message counts this much more */
#define ROUNDS 256	  /* of receiving before the helper looks at its events and timers again */
#define ROUNDS_NS TICK_NS /* ... if these are long: a host may send as fast as it is received from */
#define VAIN_CALLS 16	  /* of a thread, between two looks whether the helper's tick is late, ... */
#define LATE_NS (2 * TICK_NS)
#define WAY_NS 1000000 /* ... and how long the thread sleeps then, at most */

static void lazy_tick(struct rds_timer *tm);

static struct rds_timer lazy_timer = {.fn = lazy_tick};
static uint64_t lazy_tick_seen;
struct progress_state progress_state;
_Atomic enum rds_attention rds_progress_attention = RDS_ATT_HELPER;
_Atomic enum rds_at_send rds_progress_at_send;

/* ---- attention (rx held) ---- */

static void lazy_tick_begin(void)
{
	if (progress_state.lazy_tick_on)
		return;
	progress_state.lazy_tick_on = true;
	progress_state.tick_due = os_now_coarse_ns() + TICK_NS;
	rds_timer_set(&lazy_timer, os_now_ns() + TICK_NS);
}

/*
 * A socket has input that the kernel does not show: the helper has to look at it.  With POLLING a
 * thread will change attention soon, and LAZY has the tick.
 */
static void unseen_await_tick(enum rds_attention who)
{
	if (who == RDS_ATT_HELPER || who == RDS_ATT_LEADER)
		lazy_tick_begin();
}

/* The helper itself looks at the end of its round. */
void rds_progress_unseen_added(void)
{
	if (rds_helper_up && !rds_helper_is_self)
		unseen_await_tick(rds_progress_attention);
}

static enum rds_at_send attention_at_send(enum rds_attention who)
{
	if (unlikely(atomic_load_explicit(&rds_progress_exiting, memory_order_relaxed)))
		return RDS_AT_SEND_HAND_OVER;
	if (who == RDS_ATT_LAZY && progress_state.sends_look)
		return RDS_AT_SEND_LOOK;
	return who == RDS_ATT_HELPER && rds_transport_set.nfar ? RDS_AT_SEND_NOTE : RDS_AT_SEND_NOTHING;
}

void rds_progress_attention_renew(void)
{
	const struct rds_wait *leader = progress_state.leader;

	if (rds_helper_up)
		rds_transports_attention(rds_progress_attention, leader && leader->relayed, leader && leader->named);
}

void rds_progress_attention_update(void)
{
	enum rds_attention want;

	if (progress_state.pollers)
		want = RDS_ATT_POLLING;
	else if (progress_state.leader)
		want = RDS_ATT_LEADER;
	else if (progress_state.lazy && !progress_state.followers)
		want = RDS_ATT_LAZY;
	else
		want = RDS_ATT_HELPER;
	atomic_store_explicit(&rds_progress_at_send, attention_at_send(want), memory_order_relaxed);
	if (rds_sock_unseen)
		unseen_await_tick(want);
	if (want == rds_progress_attention && want != RDS_ATT_LEADER)
		return;
	rds_progress_attention = want;
	rds_progress_attention_renew();
	if (want == RDS_ATT_HELPER && rds_helper_up && rds_transports_pending())
		rds_helper_kick();
}

/*
 * Wakes the leader if something has come: peers that saw a thread look woke none, and a peer that
 * died may not have got to it.
 */
static void leader_wake_if_pending(void)
{
	if (rds_progress_attention == RDS_ATT_LEADER && rds_helper_up && rds_transports_pending())
		rds_wait_wake(progress_state.leader);
}

void rds_progress_spin_enter(void)
{
	progress_state.pollers++;
	progress_state.activity++;
	rds_progress_attention_update();
}

void rds_progress_spin_leave(bool found)
{
	progress_state.pollers--;
	if (found && rds_helper_up) {
		progress_state.lazy = true;
		lazy_tick_begin();
	} else {
		progress_state.lazy = progress_state.sends_look = false;
	}
	rds_progress_attention_update();
	leader_wake_if_pending();
}

/*
 * This thread is about to wake a peer, and has waited for the answer every time so far.  The answer
 * may well come before the thread is back: then it need not find the helper asleep and wake it.
 * Not under rx.
 */
void rds_progress_answer_expected(void)
{
	if (atomic_load_explicit(&rds_progress_attention, memory_order_relaxed) != RDS_ATT_HELPER)
		return;
	rx_lock();
	progress_state.activity++;
	if (rds_progress_attention == RDS_ATT_HELPER && rds_helper_up) {
		progress_state.lazy = true;
		lazy_tick_begin();
		rds_progress_attention_update();
	}
	rx_unlock();
}

/*
 * The leader was woken by those who need no descriptor of this process: over a transport whose device
 * tells it directly, or on its socket.  It sleeps again and again, with pauses of within_ns at most.  To
 * let the helper listen meanwhile, and stop that again, would be two system calls per message; and in a
 * crowd those who send before the leader has got a processor would wake the helper.  rx held.
 */
void rds_progress_leader_woken(uint64_t within_ns)
{
	uint64_t now = os_now_coarse_ns(), since = now - progress_state.led_at;

	progress_state.led_at = now;
	if (since > within_ns || !rds_helper_up || progress_state.pollers)
		return;
	progress_state.activity++;
	progress_state.lazy = true;
	lazy_tick_begin();
}

/*
 * A device has woken the helper.  For a program that sends large messages, a wake-up of the helper
 * for each acknowledgement costs more than looks by the sends themselves; and the helper is often
 * on the same processor.  But a program that sleeps for our socket in the kernel, or in another
 * process that shares it, hears nothing if no thread looks.
 */
void rds_progress_helper_woken(void)
{
	uint64_t now;

	if (progress_state.watched || !atomic_exchange_explicit(&progress_state.sent, false, memory_order_relaxed))
		return;
	now = os_now_coarse_ns();
	if (now - progress_state.woken_at > TICK_NS)
		progress_state.wakes = 0;
	progress_state.woken_at = now;
	if (++progress_state.wakes < BUSY_WAKES)
		return;
	progress_state.wakes = 0;
	progress_state.lazy = progress_state.sends_look = true;
	progress_state.activity++;
	lazy_tick_begin();
	rds_progress_attention_update();
}

void rds_progress_others_watch(void)
{
	if (progress_state.watched)
		return;
	progress_state.watched = true;
	if (!progress_state.sends_look)
		return;
	progress_state.lazy = progress_state.sends_look = false;
	rds_progress_attention_update();
	rds_helper_kick(); /* for input that is left to be handled */
}

/*
 * One round.  It does not show that the program waits for anything: so messages that are held back
 * for a batch (transport/batch_when.c) stay.
 */
static void send_look_round(void)
{
	rx_lock();
	progress_state.activity++;
	rds_transport_looks_aside = true;
	rds_progress_round_locked();
	rds_transport_looks_aside = false;
	rx_unlock();
	if (unlikely(atomic_load_explicit(&rds_conn_work_pending, memory_order_relaxed)))
		rds_conn_work_run();
}

void rds_progress_send_noted(size_t len)
{
	static __thread size_t unlooked __attribute__((tls_model("initial-exec")));
	enum rds_at_send what = atomic_load_explicit(&rds_progress_at_send, memory_order_relaxed);

	if (what == RDS_AT_SEND_HAND_OVER) {
		/* the helper sends for other processes, and it is what takes the messages further */
		if (!rds_helper_is_self)
			rds_progress_linger();
		return;
	}
	if (what == RDS_AT_SEND_NOTE) {
		if (!atomic_load_explicit(&progress_state.sent, memory_order_relaxed))
			atomic_store_explicit(&progress_state.sent, true, memory_order_relaxed);
		return;
	}
	unlooked += len + LOOK_MESSAGE;
	if (unlooked < LOOK_BYTES || rds_transport_looks_aside)
		return;
	unlooked = 0;
	send_look_round();
}

/*
 * A program that calls again and again without ever waiting (MSG_DONTWAIT loops) is as busy as one
 * that spins.
 */
void rds_progress_call_made(void)
{
	progress_state.activity++;
	if (likely(rds_progress_attention != RDS_ATT_HELPER) || ++progress_state.calls < BUSY_CALLS || !rds_helper_up)
		return;
	progress_state.calls = 0;
	progress_state.lazy = true;
	lazy_tick_begin();
	rds_progress_attention_update();
}

/*
 * For how long this thread makes way for the helper, 0: not at all.  All threads that come here do
 * so until the same time, because they may be on the same processor.  If that was in vain, the next
 * time is as far away as if the helper had looked.  rx held.
 */
static uint64_t way_left_ns(void)
{
	uint64_t now;

	lazy_tick_begin();
	progress_state.vain = true;
	if (likely(os_now_coarse_ns() < progress_state.tick_due + LATE_NS))
		return 0;
	now = os_now_ns();
	if (!progress_state.way_until)
		progress_state.way_until = now + WAY_NS;
	if (now < progress_state.way_until)
		return progress_state.way_until - now;
	progress_state.tick_due = os_now_coarse_ns();
	progress_state.way_until = 0;
	return 0;
}

/*
 * Only the helper makes connections and runs timers.  A program that never sleeps may leave it no
 * processor, if its threads have a real-time class or a higher priority.  The helper's tick shows
 * that: when it is late, the thread sleeps until the helper has made a turn.
 */
void rds_progress_found_nothing(void)
{
	static __thread unsigned calls __attribute__((tls_model("initial-exec")));
	uint64_t way;

	if (likely(++calls % VAIN_CALLS) || !rds_helper_up || rds_helper_is_self)
		return;
	rx_lock();
	way = way_left_ns();
	rx_unlock();
	if (unlikely(way))
		rds_helper_await_turn(way);
}

/*
 * A transport's memory fills up.  The messages that hold it are copied to the heap if none was read
 * for a whole tick, if the oldest has waited for several ticks, or if a reader finds nothing for
 * itself: then what it waits for may be stuck behind them.  rx held.
 */
void rds_progress_relieve(bool now)
{
	if (unlikely(progress_state.pressure))
		progress_state.pressure = rds_transports_relieve(now);
}

bool rds_progress_has_pressure(void)
{
	return progress_state.pressure;
}

void rds_progress_pressure(void)
{
	progress_state.pressure = true;
	lazy_tick_begin();
}

/* ---- one round ---- */

bool rds_progress_round_locked(void)
{
	if (unlikely(!atomic_load(&rds_helper_up)))
		return false;
	return rds_transports_progress();
}

bool rds_progress_round(void)
{
	bool moved;

	if (unlikely(!atomic_load_explicit(&rds_helper_up, memory_order_acquire)))
		return false;
	rx_lock();
	moved = rds_progress_round_locked();
	rx_unlock();
	if (unlikely(atomic_load_explicit(&rds_conn_work_pending, memory_order_relaxed)))
		rds_conn_work_run();
	rds_helper_deferred_check();
	if (!moved)
		rds_queue_looked_in_vain();
	return moved;
}

/* ---- what the helper does each time it is awake ---- */

/*
 * Each tick while the program is busy.  If it has made no call for a whole one, it is not busy any
 * more, and the helper takes over.
 */
static void lazy_tick(struct rds_timer *tm)
{
	uint64_t pause;
	bool again = true;

	rds_sock_show_unseen();
	rds_queue_reap_all();
	rx_lock();
	pause = rds_sock_unseen || progress_state.pressure ? TICK_NS : rds_timer_pause(TICK_NS);
	progress_state.calls = 0;
	progress_state.tick_due = os_now_coarse_ns() + pause;
	progress_state.way_until = 0;
	if (progress_state.activity == lazy_tick_seen && !progress_state.pollers) {
		progress_state.lazy = progress_state.sends_look = false;
		/* Calls in vain would set the timer again, which is a system call of theirs. */
		again = rds_sock_unseen != NULL || progress_state.pressure || progress_state.vain;
		progress_state.lazy_tick_on = again;
		rds_progress_attention_update();
	}
	/* LAZY goes on: the remote transport may not have acted on it yet */
	if (rds_progress_attention == RDS_ATT_LAZY && rds_transport_set.nfar)
		rds_progress_attention_renew();
	lazy_tick_seen = progress_state.activity;
	progress_state.vain = false;
	rds_progress_relieve(false);
	rx_unlock();
	if (again)
		rds_timer_set(tm, os_now_ns() + pause);
}

void rds_progress_helper_round(void)
{
	const uint64_t since = os_now_ns();
	bool begin, quiet;
	unsigned i;

	for (i = 0; i < ROUNDS && rds_progress_round() && os_now_ns() - since < ROUNDS_NS; i++)
		;
	rds_conn_work_run();
	/* two processes that end at once would wait for each other's acknowledgements */
	if (unlikely(rds_progress_asks_at_exit()))
		rds_queue_want_room_all();
	rx_lock();
	begin = progress_state.lazy_tick_on && !lazy_timer.queued;
	quiet = rds_progress_attention == RDS_ATT_HELPER;
	if (quiet) /* the peers' wake-up has used the request up: ask again */
		rds_progress_attention_renew();
	if (quiet && rds_transports_pending())
		rds_helper_kick();
	/* a peer may have taken the request for a wake-up and died */
	if (rds_progress_attention == RDS_ATT_LEADER) {
		rds_progress_attention_update();
		leader_wake_if_pending();
	}
	rx_unlock();
	if (unlikely(atomic_load_explicit(&rds_conn_work_pending, memory_order_relaxed)))
		rds_conn_work_run(); /* sends what is left before no thread looks */
	if (quiet)
		rds_sock_show_unseen();
	if (begin)
		rds_timer_set(&lazy_timer, os_now_ns() + TICK_NS);
}

void rds_progress_fork_child(void)
{
	rds_transports_forget();
	rds_wait_forget();
	rds_progress_linger_forget();
	lazy_timer.queued = false;
	memset(&progress_state, 0, sizeof(progress_state));
	memset(&rds_transport_set, 0, sizeof(rds_transport_set));
	atomic_store(&rds_progress_attention, RDS_ATT_HELPER);
	atomic_store(&rds_progress_at_send, RDS_AT_SEND_NOTHING);
}
