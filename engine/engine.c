/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * engine.c - life of the engine in a process: registry with the first socket, helper thread and transports with the
 * first bind, hand-over at exit, and forgetting all of it in a forked child.
 *
 * A child is told from its parent without a system call: a page that the kernel wipes at fork (MADV_WIPEONFORK) holds
 * the mark of a living engine.  The child abandons the parent's state unread: locks may be held by threads that do not exist
 * there.  It only closes the descriptors, so that the kernel sees the parent's end when it comes.
 */
#include "engine/engine.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/share/owner.h"
#include "engine/conn/conn.h"
#include "engine/sys/cpu.h"
#include "engine/calls/info.h"
#include "engine/conn/incoming.h"
#include "engine/rdma/mr.h"
#include "engine/conn/port_cache.h"
#include "engine/sys/patience.h"
#include "engine/progress/wait.h"
#include "engine/share/lease.h"
#include "engine/progress/transports.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

struct rds_engine *rds_eng;
static pthread_mutex_t engine_start_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(volatile int *) process_page; /* on the wiped page: 1 in the process that started the engine */

bool os_process_inherited(void)
{
	volatile int *mark = atomic_load_explicit(&process_page, memory_order_acquire);

	return mark && unlikely(!*mark);
}

bool os_process_is_started(void)
{
	return __atomic_load_n(&rds_eng, __ATOMIC_ACQUIRE) && !os_process_inherited();
}

static int process_mark(void)
{
	size_t len = (size_t)sysconf(_SC_PAGESIZE);
	int *page = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return -ENOMEM;
	if (madvise(page, len, MADV_WIPEONFORK)) {
		munmap(page, len);
		rds_error("the kernel cannot wipe a page at fork (MADV_WIPEONFORK): Linux 4.14 or later is needed");
		return -ENOSYS;
	}
	*page = 1;
	atomic_store(&process_page, page);
	return 0;
}

static int engine_create(void)
{
	struct rds_engine *e = calloc(1, sizeof(*e));
	int err;

	if (!e)
		return -ENOMEM;
	rds_lock_init(&e->control, RDS_LOCK_CONTROL);
	rds_lock_init(&e->rx, RDS_LOCK_RX);
	rds_lock_init(&e->wait, RDS_LOCK_WAIT);
	atomic_store(&e->leader_fd, -1);
	os_fd_init(&e->leader_post);
	atomic_store(&e->relay_fd, -1);
	e->attention = RDS_ATT_HELPER;
	e->loop = rds_loop_transport();
	rds_thread_records_start();
	rds_copy_start();
	rds_transports_choose(e);
	err = process_mark();
	if (!err)
		err = registry_open(&e->reg);
	if (err) {
		free(e);
		return err;
	}
	rds_stat_block = registry_counters(e->reg);
	__atomic_store_n(&rds_eng, e, __ATOMIC_RELEASE);
	return 0;
}

int rds_call_start_engine(void)
{
	int err = 0;

	if (unlikely(os_process_inherited()))
		rds_engine_fork_child();
	if (likely(__atomic_load_n(&rds_eng, __ATOMIC_ACQUIRE)))
		return 0;
	pthread_mutex_lock(&engine_start_lock);
	if (!rds_eng)
		err = engine_create();
	pthread_mutex_unlock(&engine_start_lock);
	return err;
}

int rds_sock_leader_fd(void)
{
	return os_fd(&rds_eng->leader_post);
}

int rds_sock_relay_fd(void)
{
	return atomic_load_explicit(&rds_eng->relay_fd, memory_order_relaxed);
}

struct registry *node_registry(void)
{
	return rds_eng->reg;
}

int os_wake_pipe(int fds[2], int flags)
{
	char path[40];
	int rw, err = os_pipe(fds, flags | O_CLOEXEC);

	if (err < 0)
		return err;
	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fds[1]);
	rw = os_open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC, 0);
	if (rw < 0) {
		os_fcntl(fds[1], F_SETFL, O_NONBLOCK);
		return 0;
	}
	os_close(fds[1]);
	fds[1] = rw;
	return 0;
}

/* The end that is read stays blocking: it is where threads sleep.  Once: a start that failed leaves it for the next. */
static int leader_pipe_open(struct rds_engine *e)
{
	int fds[2], err;

	if (atomic_load(&e->leader_fd) >= 0)
		return 0;
	err = os_wake_pipe(fds, 0);
	if (err < 0)
		return err;
	err = os_dup_high_slot(fds[1], &e->leader_post.n[0]);
	if (err < 0) {
		os_close(fds[0]);
		return err;
	}
	err = os_dup_high_slot(fds[0], &e->leader_fd);
	if (err < 0)
		os_close_slot(&e->leader_post.n[0]);
	return err;
}

/* control held. A program that was short of descriptors or threads may bind again when it has more. */
int rds_call_start_helper(void)
{
	struct rds_engine *e = rds_eng;
	int err;

	if (e->helper_up)
		return 0;
	err = leader_pipe_open(e);
	if (!err)
		err = rds_helper_start();
	if (err) {
		rds_error("the RDS engine cannot start: %s%s", strerror(-err), err == -EMFILE ? "; " RDS_LOG_EMFILE : "");
		return err;
	}
	rx_lock();
	e->helper_up = true;
	atomic_store(&e->started, true);
	rx_unlock();
	rds_aside_helper_started();
	rds_helper_keeper_check();
	return 0;
}

int rds_call_want_helper(void)
{
	int err;

	if (likely(atomic_load_explicit(&rds_eng->started, memory_order_acquire)))
		return 0;
	rds_lock(&rds_eng->control);
	err = rds_call_start_helper();
	rds_unlock(&rds_eng->control);
	return err;
}

static void spread_note_socket(struct rds_sock *sk, void *any)
{
	*(bool *)any = true;
	if (rds_lease_make(sk))
		rds_warn_once("no descriptor or memory for the will of an RDS socket: if this process is killed, the "
			      "socket ends with it for all");
}

bool rds_lock_until(rds_lock_t *lock, uint64_t until_ns)
{
	while (!rds_trylock(lock)) {
		if (os_now_ns() >= until_ns)
			return false;
		os_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	}
	return true;
}

bool rds_lock_wait_free(rds_lock_t *lock, uint64_t until_ns)
{
	if (!rds_lock_until(lock, until_ns))
		return false;
	rds_unlock(lock);
	return true;
}

/*
 * This thread may be a signal handler's that has interrupted who has control: then it stays as it is.  So it does if the helper
 * cannot be started; another process's call on a socket of ours will say so.
 */
static void spread_sockets(bool start)
{
	bool any = false;

	atomic_store(&rds_share_possible, true);
	if (!rds_eng || os_process_inherited() ||
	    !rds_lock_until(&rds_eng->control, os_now_ns() + rds_patience_ns(RDS_PATIENCE_LOCK)))
		return;
	if (start || atomic_load(&rds_eng->started))
		rds_sock_each_locked(spread_note_socket, &any);
	if (any && !atomic_load(&rds_eng->started))
		(void)rds_call_start_helper();
	rds_unlock(&rds_eng->control);
	if (any)
		rds_lease_export_all();
}

void rds_share_begin(void)
{
	spread_sockets(true);
}

void rds_share_begin_now(void)
{
	spread_sockets(false);
}

void rds_reclaim(void)
{
	rds_conn_reclaim();
	rds_shm_reclaim();
}

/* ---- exit ---- */

/* Messages, and writes that a device has in hand, that would be lost if we ended now; with `survives` the transport says so itself.  tx held. */
static unsigned conn_count_unsent(const struct rds_conn *conn, bool survives)
{
	if (conn->kind == RDS_CONN_UNROUTED)
		return rds_route_may_come(conn) ? conn->queue_len : 0;
	if (conn->kind != RDS_CONN_PEER)
		return 0;
	if (conn->stale) /* neither on the heap nor where a peer would look */
		survives = false;
	if (survives && conn->ep && conn->count && !conn->t->ops->settled(conn->ep))
		survives = false;
	if (conn->lent > conn->acked) /* its bytes go with us */
		survives = false;
	/* Killed a moment ago, which nobody has noticed here: what it has not accepted is for somebody else, or for nobody. */
	if (survives && conn->count && conn->id.peer_slot != RDS_SLOT_REMOTE &&
	    !registry_proc_alive(rds_eng->reg, conn->id.peer_slot, &conn->id.peer))
		survives = false;
	if (survives)
		return conn->queue_len + rds_conn_count_rerouted(conn) + atomic_load(&conn->device_writes);
	/* That a notice has come says nothing: it is to be heeded, if it is for a message that has been refused. */
	return conn->queue_len + conn->count - rds_queue_count_redirects(conn) + rds_conn_redirect_owed(conn) +
	       atomic_load(&conn->device_writes);
}

bool rds_conn_has_unsent(const struct rds_conn *conn)
{
	return conn_count_unsent(conn, conn->t->ops->caps & RDS_TCAP_SURVIVES) > conn->queue_len ||
	       (conn->queue && conn->queue->was_sent);
}

static void conn_add_unsent(struct rds_conn *conn, void *arg)
{
	unsigned *n = arg;

	rds_lock(&conn->tx);
	*n += conn_count_unsent(conn, conn->t->ops->caps & RDS_TCAP_SURVIVES);
	rds_unlock(&conn->tx);
}

unsigned rds_progress_count_unsent(void)
{
	unsigned n = 0;

	rds_queue_reap_all();
	rds_progress_round();
	rds_mailbox_deliver_all();
	rds_conn_each(conn_add_unsent, &n);
	return n;
}

static _Atomic uint64_t exit_by_ns; /* once for all that is waited for when the process ends; 0: it does not yet */

uint64_t rds_progress_exit_deadline(void)
{
	uint64_t by = atomic_load(&exit_by_ns);

	return by ? by : os_now_ns() + (uint64_t)rds_options()->linger_ms * 1000000;
}

/* What no transport has taken yet would die with us; of what it has taken, its capabilities say whether it survives us. */
static void progress_linger_until(uint64_t until)
{
	struct rds_wait *w = NULL;
	struct pollfd p;
	unsigned n;

	for (;;) {
		n = rds_progress_count_unsent();
		if (!n || os_now_ns() >= until)
			break;
		if (!w)
			w = rds_wait_begin(0);
		if (!w || rds_queue_want_room_all() || !rds_wait_arm(w))
			continue;
		p = (struct pollfd){.fd = rds_wait_fd(w), .events = POLLIN};
		os_poll(&p, 1, 10);
		rds_wait_disarm(w);
	}
	if (w)
		rds_wait_end(w);
	if (n)
		rds_warn("%u messages could not be handed over within RDS_PRELOAD_LINGER_MS and are lost", n);
}

void rds_engine_exit(void)
{
	uint64_t by;

	if (!rds_eng || os_process_inherited())
		return;
	by = atomic_exchange(&rds_eng->exit_by, 0); /* if this is an exec, which may fail, the next end has time of its own */
	if (rds_eng->helper_up)
		progress_linger_until(by ? by : rds_progress_exit_deadline());
	/* The helper still runs and may use everything: the rest is the kernel's.  Whoever needs our place in the registry
	 * finds our lock gone and clears up. */
}

#define EXIT_NAP_NS 200000
#define EXIT_NAP_MOST_NS 10000000

_Atomic bool rds_progress_exiting;

void rds_engine_exit_begin(bool interrupted)
{
	uint64_t none = 0, by = rds_progress_exit_deadline();

	if (!rds_eng || os_process_inherited())
		return;
	atomic_compare_exchange_strong(&exit_by_ns, &none, by);
	atomic_store(&rds_progress_exiting, true);
	if (interrupted ? !rds_trylock(&rds_eng->rx) : !rds_lock_until(&rds_eng->rx, by))
		return;
	rds_progress_attention_update();
	rx_unlock();
}

void rds_progress_linger(void)
{
	progress_linger_until(rds_progress_exit_deadline());
}

/* Messages to peers that wait on our heap; -1 if a lock is not to be had just now. */
static int conn_count_queued_now(void)
{
	struct rds_conn *conn;
	int n = 0;

	if (!rds_trylock(&rds_eng->control))
		return -1;
	for (conn = rds_eng->conn_list; conn && n >= 0; conn = conn->next) {
		if (!rds_trylock(&conn->tx)) {
			n = -1;
			break;
		}
		if (conn->kind == RDS_CONN_UNROUTED) {
			rds_mailbox_deliver(conn); /* and is left as it is: a signal may have interrupted malloc() */
			n += (int)conn_count_unsent(conn, false);
		} else if (conn->kind == RDS_CONN_PEER && atomic_load(&conn->state) != RDS_CONN_DEAD) {
			/* Without SURVIVES nobody could promise anything, and asking takes locks. */
			bool survives = conn->t->ops->caps & RDS_TCAP_SURVIVES;

			n += (int)(survives ? conn_count_unsent(conn, true) : conn->queue_len);
			n += (int)atomic_load(&conn->device_writes); /* where it survives there are none */
			if ((conn->t->ops->caps & RDS_TCAP_REMOTE) && conn->ep && conn->count)
				n += conn->t->ops->acked(conn->ep) <
				     conn->unacked[(conn->head + conn->count - 1) & (conn->cap - 1)].seq;
		}
		rds_unlock(&conn->tx);
	}
	rds_unlock(&rds_eng->control);
	return n;
}

void rds_engine_exit_now(bool interrupted)
{
	struct timespec pause = {.tv_nsec = EXIT_NAP_NS};
	uint64_t now, looked, until = rds_progress_exit_deadline();
	int n;

	if (!rds_eng || os_process_inherited() || !atomic_load(&rds_eng->started))
		return;
	looked = os_now_ns();
	while ((n = conn_count_queued_now()) != 0) {
		now = os_now_ns();
		if (n > 0)
			looked = now;
		if (now >= until || (interrupted && now - looked > rds_patience_ns(RDS_PATIENCE_EXIT_LOCK)))
			break; /* no look for so long: the very call that a signal has interrupted has the lock */
		atomic_store(&rds_eng->ending, true); /* asking takes locks, too: it is the helper that asks */
		rds_helper_kick();
		os_syscall(SYS_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
		if (pause.tv_nsec < EXIT_NAP_MOST_NS) /* many that end at once must leave the processor to who takes their messages */
			pause.tv_nsec *= 2;
	}
	if (n > 0)
		rds_warn("messages could not be handed over within RDS_PRELOAD_LINGER_MS, and end with this process");
	else if (n < 0)
		rds_warn("the process ends in the middle of an RDS call%s: what it has sent may be lost",
			 interrupted ? ", in a signal handler" : " of another thread");
}

/* ---- forked child ---- */

static void fork_close_fd(int fd, void *arg)
{
	(void)arg;
	if (!rds_standby_keeps_fd(fd))
		os_fd_abandon(fd);
}

void rds_engine_fork_child(void)
{
	if (!os_process_inherited())
		return;
	atomic_store(&rds_progress_exiting, false);
	atomic_store(&exit_by_ns, 0);
	pthread_mutex_init(&engine_start_lock, NULL);
	os_fds_forked();
	rds_thread_records_forget();
	if (rds_eng)
		registry_abandon(rds_eng->reg);
	os_fd_each_internal(0, ~0u, fork_close_fd, NULL);
	rds_standby_fds_closed();
	rds_stat_detach();
	rds_sock_forget();
	rds_wait_forget();
	rds_helper_forget();
	rds_aside_forget();
	rds_helper_reserve_forget();
	rds_fd_exchange_forget();
	rds_helper_keeper_forget();
	rds_helper_threads_forget();
	rds_queue_forget();
	rds_conn_forget();
	rds_route_ports_forget();
	rds_inc_forget();
	rds_mr_forget();
	rds_shm_forget();
	rds_transports_forget();
	rds_info_forget();
	rds_owner_forget();
	rds_lease_forget();
	rds_handoff_unbound_forget();
	atomic_store(&rds_share_possible, false);
	atomic_store(&process_page, NULL);
	__atomic_store_n(&rds_eng, NULL, __ATOMIC_RELEASE);
}
