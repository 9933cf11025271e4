/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * spin.c - what a thread does before it sleeps: it looks again for a while, or yields to the peer
 * that it waits for.
 *
 * Spinning is worth at most what a wake-up of the peer takes (some 50 us where an idle processor
 * has to be woken).  With a shorter limit, every peer that was asleep would count as one that does
 * not answer.  Where a sleep is expensive (emulated or nested machines), its cost for this thread
 * is measured now and then, and the thread may spin for a multiple of it.  The thread also learns
 * whether to spin: after a spin without result it skips the next 1, 3, 7 ... 255 spins; a success
 * starts over.  A thread that had to wake its peer gives up the processor at once, so that the peer
 * can run on it.  Only now and then it stays, in case both are about to be busy with each other.
 *
 * Giving up the processor begins with sched_yield().  If peers share a processor, the other one
 * runs, answers, and yields in its turn, and neither has to be put to sleep and woken.  The time of
 * a yield tells what happened.  Very short: no other thread wants this processor (sleep).  Longer:
 * others ran for a while (look, and yield again).  Very long: a thread ran that does not give the
 * processor back (sleep, and do not try again soon).
 *
 * For the program all of it is one call, which a signal ends.  A handler that ran in the middle
 * would be missed: the thread would then sleep, perhaps for ever.  So signals are held back, and
 * looked at right before the sleep.  Not in the first microseconds, in which busy peers answer: a
 * signal there counts as one that came before the call.  Must not know what is waited for, nor how
 * a thread sleeps.
 */
#include "engine/progress/wait.h"
#include "engine/conn/outgoing.h"

#include <sched.h>
#include <unistd.h>

#define SPIN_NS 200000
#define SPIN_SLEEPS 12 /* spin as long as so many sleeps cost, if that is more than SPIN_NS */
#define SPIN_NS_MAX 5000000
#define SPIN_SKIP_MAX 8 /* skip at most 2^8 - 1 spins */
#define SPIN_CLOCK_EVERY 16
/* looks, about 10 us: a peer that has not answered by then is busy with something else */
#define SPIN_ASK (8 * SPIN_CLOCK_EVERY)
#define SPIN_HOLD (4 * SPIN_CLOCK_EVERY) /* looks after which signals are held back, ... */
/* ... and looks between two checks for them: some hundred microseconds */
#define SPIN_SIGNALS 4096
#define MEASURE_FIRST 8	 /* sleeps, of which the cheapest counts, ... */
#define MEASURE_EVERY 16 /* ... and then every so many sleeps */
#define STAY_MIN 4	 /* of 2^4 waits that follow a wake-up of the peer, one spins; ... */
#define STAY_MAX 10	 /* ... of 2^10, if that never succeeds */

#define YIELDS 12	    /* in one wait */
#define YIELD_NOBODY_NS 600 /* below: no other thread ran */
#define YIELD_LONG_NS 40000 /* above: a thread ran that does not yield back */
#define YIELD_SKIP_STEP 4
#define YIELD_SKIP_MAX 16 /* of 2^16 waits, one yields, if the yields are always long */

__thread bool rds_wait_has_sent __attribute__((tls_model("initial-exec")));
static __thread struct {
	unsigned streak, skip, handed_over, stay;
	unsigned yield_streak, yield_skip;
	/* looked: after it last woke its peer; answered: the same for the wake-up before */
	bool looked, answered;
	bool woke;	       /* since the last wait */
	uint64_t sleep_ns;     /* cost of a sleep, without the sleep */
	unsigned arms, measured;
} spin_tls __attribute__((tls_model("initial-exec")));

/*
 * With one processor a spin is never answered.  (A thread that is bound to one of several may well
 * get an answer.)
 */
static bool cpu_is_only_one(void)
{
	static _Atomic long cpus;
	long n = atomic_load_explicit(&cpus, memory_order_relaxed);

	if (!n) {
		n = sysconf(_SC_NPROCESSORS_ONLN);
		atomic_store_explicit(&cpus, n > 0 ? n : 1, memory_order_relaxed);
	}
	return n == 1;
}

static inline void spin_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

static void spin_set_polling(struct rds_wait *w, bool on, bool found)
{
	if (w->polling == on)
		return;
	w->polling = on;
	rx_lock();
	if (on)
		rds_progress_spin_enter();
	else
		rds_progress_spin_leave(found);
	rx_unlock();
}

/*
 * Peers wake no thread anyway, and LAZY is running: no need to tell them that this thread looks.  A
 * read without lock is good enough, as the next look (under it) renews LAZY.
 */
static bool attention_is_lazy(void)
{
	return atomic_load_explicit(&rds_progress_attention, memory_order_relaxed) == RDS_ATT_LAZY;
}

static void spin_hold_signals(struct rds_wait *w)
{
	if (w->held)
		return;
	os_signals_hold(&w->signals);
	w->held = true;
}

void rds_wait_spin_release(struct rds_wait *w)
{
	if (!w->held)
		return;
	w->held = false;
	/*
	 * A wait for one socket alone is a receive or send, which goes on if the handler's flags
	 * say so; poll and its kind never do.
	 */
	w->interrupted = (w->only ? os_signals_release : os_signals_release_any)(&w->signals) != 0;
}

/*
 * Only for an answer: a yield costs the thread its place in the run queue, which is a loss if it
 * waits for no certain peer.
 */
static bool spin_yield_begin(struct rds_wait *w, bool sent)
{
	if (!sent)
		return false;
	if (spin_tls.yield_skip) {
		spin_tls.yield_skip--;
		return false;
	}
	w->yielding = true;
	w->spins = 0;
	if (!attention_is_lazy())
		spin_set_polling(w, true, false);
	return true;
}

/* True: yielded, look again. */
static bool spin_yield(struct rds_wait *w)
{
	uint64_t start = os_now_ns(), took;

	if (w->spins >= YIELDS) {
		w->yielding = false;
		spin_set_polling(w, false, false);
		return false;
	}
	spin_hold_signals(w);
	sched_yield();
	took = os_now_ns() - start;
	if (took < YIELD_NOBODY_NS) {
		w->spins += YIELDS / 2;
	} else if (took < YIELD_LONG_NS) {
		w->spins++;
	} else {
		w->spins = YIELDS;
		/*
		 * On a loaded machine each such yield costs milliseconds: four of them reach the
		 * limit.
		 */
		spin_tls.yield_streak += YIELD_SKIP_STEP;
		if (spin_tls.yield_streak > YIELD_SKIP_MAX)
			spin_tls.yield_streak = YIELD_SKIP_MAX;
		spin_tls.yield_skip = 1u << spin_tls.yield_streak;
	}
	return true;
}

bool rds_wait_spin_measures(void)
{
	return spin_tls.measured < MEASURE_FIRST || ++spin_tls.arms % MEASURE_EVERY == 0;
}

/*
 * The first sleeps load code and memory for the later ones, and may take fifty times as long: of
 * these the cheapest counts.  Then the value moves, a step at a time, to what a fifth of the sleeps
 * stays below.  The cheapest is no measure then, since the thread may have been posted just before
 * it slept.  And on a busy machine many sleeps are slow because the thread loses its processor
 * meanwhile, which is no reason to spin for long there.
 */
void rds_wait_spin_sleep_cost(uint64_t ns)
{
	uint64_t known = spin_tls.sleep_ns;

	if (spin_tls.measured < MEASURE_FIRST) {
		spin_tls.measured++;
		spin_tls.sleep_ns = !known || ns < known ? ns : known;
	} else {
		spin_tls.sleep_ns = ns < known ? known - known / 8 : known + known / 32;
	}
}

static uint64_t spin_limit_ns(void)
{
	int64_t us = rds_options()->spin_us;
	uint64_t learnt = spin_tls.measured < MEASURE_FIRST ? 0 : SPIN_SLEEPS * spin_tls.sleep_ns;

	if (us >= 0)
		return (uint64_t)us * 1000;
	if (likely(learnt <= SPIN_NS))
		return SPIN_NS;
	return learnt < SPIN_NS_MAX ? learnt : SPIN_NS_MAX;
}

static bool spin_begin(struct rds_wait *w)
{
	uint64_t limit = spin_limit_ns();
	bool woke = spin_tls.woke, sent = rds_wait_has_sent;

	w->spun = true;
	spin_tls.woke = rds_wait_has_sent = false;
	spin_tls.looked = true;
	if (!limit || cpu_is_only_one())
		return false;
	if (woke && ++spin_tls.handed_over % (1u << (STAY_MIN + spin_tls.stay)))
		return spin_yield_begin(w, sent);
	w->stayed = woke;
	if (spin_tls.skip) {
		spin_tls.skip--;
		return spin_yield_begin(w, sent);
	}
	w->spin_start = os_now_ns();
	w->spin_until = w->spin_start + limit;
	w->spins = 0;
	w->spinning = true;
	if (!attention_is_lazy())
		spin_set_polling(w, true, false);
	return true;
}

void rds_wait_note_look(void)
{
	spin_tls.looked = true;
}

void rds_wait_peer_wake_begin(void)
{
	spin_tls.answered = spin_tls.looked;
	spin_tls.looked = false;
	if (spin_tls.answered)
		rds_progress_answer_expected();
}

void rds_wait_peer_woken(void)
{
	spin_tls.woke = true;
}

static void spin_failed(const struct rds_wait *w)
{
	if (w->stayed && spin_tls.stay < STAY_MAX - STAY_MIN)
		spin_tls.stay++;
	if (spin_tls.streak < SPIN_SKIP_MAX)
		spin_tls.streak++;
	spin_tls.skip = (1u << spin_tls.streak) - 1;
}

bool rds_wait_spin(struct rds_wait *w)
{
	if (!w->spun)
		return spin_begin(w);
	if (w->yielding) {
		rds_queue_ask_deferred();
		return spin_yield(w);
	}
	if (!w->spinning)
		return false;
	spin_cpu_relax();
	if (++w->spins % SPIN_CLOCK_EVERY)
		return true;
	if (w->spins == SPIN_HOLD)
		spin_hold_signals(w);
	if (unlikely(w->spins == SPIN_ASK))
		rds_queue_ask_deferred();
	if (unlikely(w->spins % SPIN_SIGNALS == 0) && os_signals_pending(&w->signals))
		goto out;
	if (os_now_ns() < w->spin_until)
		return true;
	spin_failed(w);
out:
	w->spinning = false;
	spin_set_polling(w, false, false);
	return false;
}

void rds_wait_spin_stop(struct rds_wait *w)
{
	spin_set_polling(w, false, false);
}

void rds_wait_spin_end(struct rds_wait *w)
{
	if (w->spinning) {
		w->spinning = false;
		/*
		 * found while spinning, unless the thread was off the CPU for longer than a spin
		 * may last
		 */
		if (w->spins < SPIN_CLOCK_EVERY || os_now_ns() < w->spin_until)
			spin_tls.streak = spin_tls.stay = 0;
		else
			spin_failed(w);
		spin_set_polling(w, false, true);
	}
	if (w->yielding) { /* found */
		w->yielding = false;
		if (w->spins < YIELDS && spin_tls.yield_streak)
			spin_tls.yield_streak--;
		spin_set_polling(w, false, true);
	}
}
