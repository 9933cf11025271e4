/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * thread.c - the helper thread: its start, its sleep and its events.
 *
 * The helper has all signals blocked, sleeps in epoll_wait and costs nothing while nothing
 * happens.  If the kernel allows it, the helper has a descriptor table of its own (fd_exchange.h).
 * Sockets to other processes are in that table, where they do not take numbers of the program.
 *
 * An attempt to start the helper has these steps.  The thread makes its table.  The starting thread
 * exports the program's descriptors that the helper needs.  The thread opens the rest.  Only when
 * all steps have succeeded is the thread the engine's helper.  An attempt that fails leaves nothing
 * behind, and the next bind tries again.
 *
 * Must not know what a round does: that belongs to progress/progress.c and the transports.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>

#include "engine/helper/helper.h"
#include "engine/helper/timers.h"
#include "engine/node/registry.h"
#include "engine/sys/compiler.h"
#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/sys/patience.h"
#include "engine/sys/thread_record.h"

#define BATCH 64
#define GONE_LOOK_NS (10 * 1000000ull)
/*
 * Not the program's default, 8 MiB in most cases: after mlockall() all of the stack is locked in
 * memory.
 */
#define STACK (512u << 10)

enum phase { BORN, JOINED, GO, UP, FAILED };

_Atomic bool rds_helper_up;
const struct rds_helper_client *rds_helper_client;

static struct {
	_Atomic int ep;
	struct os_fd kick_in, kick_out; /* a pipe; any number of kicks is one wake-up */
	struct rds_helper_event kick, exchange;
	_Atomic bool kicked;
	bool again; /* helper: it has kicked itself, and does not sleep before the next round */
	_Atomic uint64_t added;
	/* the program's table is gone: checks whether the program lives */
	struct rds_timer gone;
	unsigned looks;
	bool ending;
	_Atomic int thread;
	/* start (control) */
	bool want_own;
	int (*how)(void);
	_Atomic uint32_t phase;
	int err; /* with FAILED */
} hp = {.ep = -1, .kick_in = OS_FD_NONE, .kick_out = OS_FD_NONE};

__thread bool rds_helper_is_self __attribute__((tls_model("initial-exec")));

/* ---- events ---- */

int rds_helper_event_add(struct rds_helper_event *ev, const _Atomic int *slot, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = ev};
	int err;

	/*
	 * epoll orders this thread's writes before the helper's reads.  The memory model of C does
	 * not know raw system calls, so `added` gives it the same order.
	 */
	atomic_fetch_add_explicit(&hp.added, 1, memory_order_release);
	os_fds_hold();
	err = os_epoll_ctl(hp.ep, EPOLL_CTL_ADD, atomic_load(slot), &e);
	os_fds_release();
	return err;
}

void rds_helper_event_del(int fd)
{
	os_epoll_ctl(hp.ep, EPOLL_CTL_DEL, fd, NULL);
}

/* ---- kicks ---- */

void rds_helper_kick(void)
{
	static const uint64_t one = 1;

	ssize_t n = -EBADF;
	int tries;

	if (rds_helper_is_self) {
		hp.again = true;
		return;
	}
	if (atomic_exchange(&hp.kicked, true))
		return;
	/* the descriptor's number may change meanwhile */
	for (tries = 0; n == -EBADF && tries < 3; tries++)
		n = os_write(os_fd(&hp.kick_out), &one, sizeof(one));
	if (n < 0 && n != -EAGAIN)
		atomic_store(&hp.kicked, false); /* the next kick tries again */
}

int rds_helper_kick_fd(void)
{
	return os_fd(&hp.kick_out);
}

void rds_helper_kick_exported(int in, int out, int clock)
{
	rds_timers_exported(clock);
	atomic_store(&hp.kick_in.n[os_fd_table], in);
	atomic_store(&hp.kick_out.n[os_fd_table], out);
}

static void kick_event(struct rds_helper_event *ev, uint32_t events)
{
	char many[4096];

	(void)ev;
	(void)events;
	/*
	 * First read, then clear the mark.  A kick in between finds the mark set and writes
	 * nothing, and this round sees the reason for the kick.  In the other order a kick in
	 * between would set the mark, its bytes would be read here, and no later kick would write
	 * again.
	 */
	os_read(os_fd(&hp.kick_in), many, sizeof(many));
	atomic_exchange(&hp.kicked, false);
}

static void kick_close(void)
{
	os_close_slot(&hp.kick_in.n[0]);
	os_close_slot(&hp.kick_out.n[0]);
	rds_timers_close();
}

static int kick_open(void)
{
	int fds[2], err = os_wake_pipe(fds, O_NONBLOCK);

	if (err < 0)
		return err;
	atomic_store(&hp.kicked, false);
	err = os_dup_high_slot(fds[0], &hp.kick_in.n[0]);
	if (err < 0) {
		os_close(fds[1]);
		return err;
	}
	err = os_dup_high_slot(fds[1], &hp.kick_out.n[0]);
	if (err >= 0)
		err = rds_timers_open();
	if (err < 0)
		kick_close();
	return err;
}

/* ---- the thread ---- */

/*
 * The starting thread has begun a round for the new thread: the start counts as a round (round.c).
 */
static bool born_in_round;

/*
 * The program's end of the descriptor exchange is gone.  There are two possible reasons.  The
 * program's last thread may have ended by a system call of its own (otherwise main_exit.c had ended
 * the process); then only threads of the engine are left.  Or the program has closed the engine's
 * descriptor.
 */
static void check_program_lives(struct rds_timer *tm)
{
	if (hp.ending)
		return;
	hp.ending = rds_helper_main_has_ended(1);
	if (hp.ending)
		return;
	/* A thread that ends gives up its descriptors before the kernel shows it as dead. */
	if (++hp.looks < rds_patience_ns(RDS_PATIENCE_LAST_THREAD) / GONE_LOOK_NS) {
		rds_timer_set(tm, os_now_ns() + GONE_LOOK_NS);
		return;
	}
	rds_fd_exchange_set_broken();
}

static void exchange_event(struct rds_helper_event *ev, uint32_t events)
{
	(void)ev;
	(void)events;
	if (hp.looks || rds_fd_exchange_drain())
		return;
	rds_helper_event_del(atomic_load(rds_fd_exchange_slot()));
	hp.gone.fn = check_program_lives;
	check_program_lives(&hp.gone);
}

/* ---- turns ---- */

static _Atomic uint32_t turn_awaited;

/* A thread that is woken by a signal goes on, too. */
void rds_helper_await_turn(uint64_t ns)
{
	const struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

	atomic_store(&turn_awaited, 1);
	os_syscall(SYS_futex, (long)&turn_awaited, FUTEX_WAIT_PRIVATE, 1, (long)&ts, 0, 0);
}

static void turn_end(void)
{
	if (likely(!atomic_load_explicit(&turn_awaited, memory_order_relaxed)))
		return;
	atomic_store(&turn_awaited, 0);
	os_syscall(SYS_futex, (long)&turn_awaited, FUTEX_WAKE_PRIVATE, INT32_MAX, 0, 0, 0);
}

static void helper_turn(void)
{
	struct epoll_event evs[BATCH];
	int i, n, timeout = hp.again ? 0 : rds_timers_timeout();
	bool begun;

	hp.again = false;
	n = os_epoll_wait(hp.ep, evs, BATCH, timeout);
	(void)atomic_load_explicit(&hp.added, memory_order_acquire);
	begun = rds_helper_round_begin();
	for (i = 0; i < n; i++) {
		struct rds_helper_event *ev = evs[i].data.ptr;

		ev->fn(ev, evs[i].events);
	}
	rds_helper_deferred_run_own();
	rds_timers_run_due();
	rds_helper_client->round();
	rds_helper_round_end(begun);
	turn_end();
}

/*
 * The program has no thread left.  It ended its last thread by a system call, without exit
 * handlers.  So the process ends here with the helper thread, without exit handlers too.
 */
static void helper_last_turns(void)
{
	uint64_t until = os_now_ns() + (uint64_t)rds_options()->linger_ms * 1000000;

	while (rds_helper_client->has_unsent() && os_now_ns() < until) {
		rds_timer_set(&hp.gone, os_now_ns() + GONE_LOOK_NS);
		helper_turn();
	}
	os_syscall(SYS_exit, 0, 0, 0, 0, 0, 0);
}

static void phase_enter(enum phase phase)
{
	atomic_store(&hp.phase, phase);
	os_syscall(SYS_futex, (long)&hp.phase, FUTEX_WAKE_PRIVATE, INT32_MAX, 0, 0, 0);
}

/*
 * Phases only advance.  So a waiting thread names the phase that it needs, and accepts any later
 * phase.
 */
static enum phase phase_await(enum phase least)
{
	uint32_t phase;

	while ((phase = atomic_load(&hp.phase)) < (uint32_t)least)
		os_syscall(SYS_futex, (long)&hp.phase, FUTEX_WAIT_PRIVATE, (long)phase, 0, 0, 0);
	return (enum phase)phase;
}

static int helper_join(void)
{
	struct epoll_event none;
	int err = 0;

	if (hp.want_own)
		err = os_fd_table_unshare();
	if (!err && hp.want_own) {
		rds_log_reserve_fds(rds_fd_exchange_log_left);
		err = rds_fd_exchange_connect();
	}
	if (!err)
		err = os_dup_high_slot(os_epoll_create(), &hp.ep);
	/*
	 * Where a filter of system calls refuses epoll_wait, the helper would spin and see no
	 * event.
	 */
	if (!err)
		err = os_epoll_wait(hp.ep, &none, 1, 0);
	if (err)
		os_close_slot(&hp.ep);
	return err;
}

/* Waits until the program has exported everything, then opens the rest. */
static int helper_open_all(void)
{
	int err = 0;

	hp.kick.fn = kick_event;
	hp.exchange.fn = exchange_event;
	if (hp.want_own)
		err = rds_fd_exchange_await_start();
	else
		phase_await(GO);
	if (!err && hp.want_own)
		err = rds_helper_event_add(&hp.exchange, rds_fd_exchange_slot(), EPOLLIN | EPOLLET);
	if (!err)
		err = rds_helper_event_add(&hp.kick, os_fd_slot(&hp.kick_in), EPOLLIN);
	if (!err)
		err = rds_timers_watch();
	if (!err)
		err = rds_helper_client->start();
	if (!err && !rds_helper_reserve_fill()) {
		rds_helper_reserve_release();
		err = -EMFILE;
	}
	return err;
}

static void helper_close_all(void)
{
	rds_helper_client->stop();
	os_close_slot(&hp.ep);
}

static void helper_init_thread(void)
{
	rds_helper_is_self = true;
	rds_helper_schedule_self();
	atomic_store(&hp.thread, (int)os_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0));
	if (!hp.want_own)
		os_library_begin(); /* for the life of the thread */
	rds_thread_record_refuse();
	pthread_setname_np(pthread_self(), "rdspreload");
}

static void helper_run(void)
{
	while (!hp.ending) {
		helper_turn();
		if (unlikely(rds_aside_stop_helper()))
			return;
	}
	helper_last_turns();
}

static int helper_begin(void)
{
	int err = helper_join();

	if (err)
		return err;
	phase_enter(JOINED);
	err = helper_open_all();
	if (err)
		helper_close_all();
	return err;
}

/*
 * Called for rds_helper_restart(): everything is as the last helper left it.  Only the descriptors
 * of a table of its own have to be restored.
 */
static int helper_resume(void)
{
	return hp.want_own ? rds_aside_restore_table() : 0;
}

static void *helper_main(void *arg)
{
	int err;

	(void)arg;
	helper_init_thread();
	err = hp.how();
	rds_helper_round_end(born_in_round);
	hp.err = err;
	/* After FAILED the thread does nothing more.  The kernel closes the rest with its table. */
	phase_enter(err ? FAILED : UP);
	if (!err)
		helper_run();
	return NULL;
}

/* ---- start (control held) ---- */

static int helper_spawn(int (*how)(void))
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	hp.how = how;
	born_in_round = rds_helper_round_begin();
	atomic_store(&hp.phase, BORN);
	err = rds_helper_thread_create(helper_main, NULL, STACK);
	if (err)
		rds_helper_round_end(born_in_round);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err && how == helper_begin)
		rds_error("cannot start the helper thread: %s (limits: ulimit -u, ulimit -v, cgroup pids.max)",
			  strerror(err));
	return -err;
}

static int export_fd(enum rds_export_kind kind, const struct os_fd *fd)
{
	return rds_export_to_helper(kind, NULL, &fd, 1);
}

/* Meanwhile the helper only takes exported descriptors, so the caller may hold locks. */
static int export_all(void)
{
	const struct os_fd *kick[3] = {&hp.kick_in, &hp.kick_out, rds_timers_fd()};
	int err = 0;

	if (hp.want_own) {
		err = rds_export_to_helper(RDS_EXPORT_KICK, NULL, kick, 3);
		os_close_slot(&hp.kick_in.n[0]);
		if (!err)
			err = export_fd(RDS_EXPORT_LEADER, &rds_helper_leader.post);
		if (!err)
			err = export_fd(RDS_EXPORT_REGISTRY, registry_fds(rds_node_registry));
	}
	if (!err)
		err = rds_helper_client->export_all();
	if (!err && hp.want_own)
		err = rds_export_to_helper(RDS_EXPORT_START, NULL, NULL, 0);
	return err;
}

/*
 * Waits until the thread has joined or failed.  *unable: it failed with a table of its own, so the
 * start is tried again with a shared table.
 */
static int await_joined(bool *unable)
{
	int err = 0;

	if (phase_await(JOINED) == FAILED)
		err = hp.err;
	else if (hp.want_own)
		err = rds_fd_exchange_accept();
	*unable = err && hp.want_own;
	if (!err)
		rds_fd_exchange_begin(hp.want_own);
	return err;
}

static int start_attempt(bool own, bool *unable)
{
	int err = kick_open();

	hp.want_own = own;
	if (!err && own) {
		err = rds_fd_exchange_listen();
		*unable = err && err != -EMFILE && err != -ENFILE;
	}
	if (!err)
		err = helper_spawn(helper_begin);
	if (!err) {
		err = await_joined(unable);
		if (!err)
			err = export_all();
		if (err && own)
			rds_fd_exchange_hang_up(); /* ends the thread's wait for START */
		else if (!own && atomic_load(&hp.phase) == JOINED)
			phase_enter(GO);
		if (phase_await(UP) == FAILED && !err)
			err = hp.err;
	}
	if (err) {
		rds_fd_exchange_hang_up();
		kick_close();
	}
	return err;
}

int rds_helper_start(void)
{
	bool own = rds_options()->helper_fds == RDS_HELPER_FDS_OWN && !rds_helper_client->shares_table(), unable = false;
	int err = start_attempt(own, &unable);

	if (err && unable) {
		rds_info("the helper thread cannot have a descriptor table of its own (%s): it shares the program's",
			 strerror(-err));
		err = start_attempt(false, &unable);
	}
	return err;
}

bool rds_helper_has_ended(void)
{
	return os_syscall(SYS_tgkill, os_getpid(), atomic_load(&hp.thread), 0, 0, 0, 0) == -ESRCH;
}

int rds_helper_restart(void)
{
	int err = helper_spawn(helper_resume);

	return !err && phase_await(UP) == FAILED ? hp.err : err;
}

void rds_helper_fork_child(void)
{
	rds_helper_leader_forget();
	rds_helper_round_forget();
	rds_helper_reserve_forget();
	rds_helper_keeper_forget();
	rds_helper_threads_forget();
	rds_aside_forget();
	rds_fd_exchange_forget();
	atomic_store(&rds_helper_up, false);
	rds_timers_forget();
	hp.again = false;
	hp.looks = 0;
	hp.gone.queued = false;
	atomic_store(&hp.kicked, false);
	atomic_store(&hp.ep, -1);
	os_fd_init(&hp.kick_in);
	os_fd_init(&hp.kick_out);
}
