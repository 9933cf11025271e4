/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* signals.h - SIGUSR1, counted: for calls that sleep. */
#ifndef SIGNALS_H
#define SIGNALS_H

#include <signal.h>

static volatile sig_atomic_t signals;

static void on_signal(int sig)
{
	(void)sig;
	signals++;
}

/* From now on, none so far.  flags: as of sigaction(). */
static void catch(int flags)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = flags };

	signals = 0;
	sigaction(SIGUSR1, &sa, NULL);
}

#endif
