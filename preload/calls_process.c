/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * calls_process.c - fork and exit.
 *
 * A forked child has a copy of our memory but neither our threads nor a right to our connections: its handler turns all
 * RDS sockets into inherited numbers and forgets the engine; the next socket() starts a fresh one.  Children that no
 * handler sees (_Fork, raw clone) are noticed at their first call on an RDS number; children that share our memory
 * (vfork) must not change anything in it (rds_fds_mine).  exec is calls_exec.c's.
 */
#include "fds.h"

#include "engine/os.h"

#include <stdlib.h>
#include <unistd.h>

/* Of the thread that forks: a handler would run in both processes, or wait for what is held across the fork. */
static __thread struct os_signals held;
static __thread bool holds;

static void signals_release(void)
{
	if (holds)
		os_signals_release(&held);
	holds = false;
}

static void process_child(void)
{
	int saved = errno;

	rds_fds_forget();
	rds_inside_leave();
	signals_release();
	errno = saved;
}

static void process_before(void)
{
	if (!rds_fds_on())
		return;
	rds_inside_enter();
	os_signals_hold(&held);
	holds = true;
	rds_away_fork_prepare();
	rds_engine_spreads();
	rds_engine_fork_prepare();
}

static void process_parent(void)
{
	if (!rds_fds_on())
		return;
	rds_engine_fork_parent();
	rds_inside_leave();
	signals_release();
}

static void process_start(void)
{
	rds_fds_init();
	rds_roll_init();
	pthread_atfork(process_before, process_parent, process_child);
}

void rds_process_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, process_start);
}

/* After the program's own exit handlers: what it has sent is still handed over, within a bound. */
static void __attribute__((destructor)) process_exit(void)
{
	if (rds_fds_on() && rds_fds_mine()) {
		rds_inside_enter();
		if (atomic_load(&rds_spread))
			rds_leave(NULL);
		rds_fds_ending();
		rds_engine_exit();
		rds_inside_leave();
	}
}

/*
 * No handler runs here, and kernel RDS would have the messages by now: a child that sends and leaves this way (Python's
 * os._exit, shells) must not take its last message along.
 */
static void leave_now(void)
{
	if (rds_fds_on() && rds_fds_mine()) {
		rds_inside.depth++; /* what was interrupted is not waited for: it may wait for others */
		if (atomic_load(&rds_spread))
			rds_leave_now();
		rds_fds_ending();
		rds_engine_exit_now();
	}
}

/* libc's own ends the parent by a call of its own, past leave_now(), and what the child is to have would end with it. */
static int daemon_ours(int nochdir, int noclose)
{
	int null;

	switch (fork()) {
	case -1:
		return -1;
	case 0:
		break;
	default:
		_exit(0);
	}
	if (setsid() < 0)
		return -1;
	if (!nochdir && chdir("/"))
		return -1;
	if (noclose)
		return 0;
	null = rds_real.open("/dev/null", O_RDWR);
	if (null < 0)
		return -1;
	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
	return 0;
}

int daemon(int nochdir, int noclose)
{
	return likely(!rds_fds_on()) ? rds_real.daemon(nochdir, noclose) : daemon_ours(nochdir, noclose);
}

void _exit(int status)
{
	leave_now();
	rds_real._exit(status);
	__builtin_unreachable();
}

void _Exit(int status)
{
	leave_now();
	rds_real._Exit(status);
	__builtin_unreachable();
}
