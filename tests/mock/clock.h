/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * clock.h - the engine's clock in the hands of a test: it stands until the test turns it, so
 * nothing comes early or late on a busy machine, and no test spends the time that it is about.
 * Programs link with libclock.la and $(clock_wraps).
 *
 * What is replaced is what the engine asks for the time (os_now_ns) and what ends its sleeps.  Not
 * CLOCK_MONOTONIC_COARSE, nor the kernel's timers of other processes.
 */
#ifndef TEST_MOCK_CLOCK_H
#define TEST_MOCK_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Everybody's. */
extern _Atomic uint64_t mock_now; /* 0: the real clock */
void mock_clock_stop(void);

/*
 * This thread's alone, where it waits for others (os_poll(), a nap).  Of what it waits for so many
 * never say anything, and the rest will: so the rest is waited for, as long as that takes, and when
 * only those are left the time is over at once.
 */
void mock_clock_own(unsigned silent);
void mock_clock_common(void); /* as before that */

/*
 * Everybody's, and the helper's timers.  The helper has its table of descriptors in common with the
 * test (RDS_PRELOAD_HELPER_FDS), and is started after the clock was stopped; without a helper, only
 * the clock is turned.  At rest: it sleeps, and nothing has come that it has not seen.
 */
/* to when its next timer is due, if it is at rest; else, or if there is none: false */
bool mock_clock_next(void);
void mock_clock_pass(uint64_t ns); /* so much, from timer to timer; in the end it is at rest */
void mock_clock_leap(uint64_t ns); /* ... at once: what is due meanwhile is late */

#endif
