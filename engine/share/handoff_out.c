/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * handoff_out.c - a process that ends (exit, _exit, exec) hands off the sockets that it owns.
 *
 * Sockets that other processes still have are parked (protocol.h). In this order, for all
 * sockets together:
 *   1. The sockets are not open any more: calls on them fail.
 *   2. The process waits until the peers have accepted what the sockets have sent, or until other
 *      processes ask for these sockets and could send the rest. That they have descriptors is not
 *      enough: a process may never use its descriptor, and then nobody would send the rest.
 *   3. In the registry nobody owns the ports. Senders wait.
 *   4. The messages that are here already are accepted. This is the last moment for it, and a
 *      sender that ended before step 3 relied on it. A sender that ends later sees that the port
 *      has left this process, and stays until it knows which of its messages we have
 *      (conn/shutdown.c).
 *   5. The socket is parked: its state, its receive queue, the messages that no transport was
 *      offered until now (handoff_unsent.c), and our end of the pair. Then the lock on the lease is
 *      given up (lease.h). What arrives from now on is not accepted. If it lies in memory that
 *      outlives this process, its sender keeps it, and looks for the port anew when this process
 *      has ended (conn/shutdown.c).
 *   6. A sender over a device cannot know which messages were accepted. So it gets a redirect for
 *      each port, and takes the other messages back (conn/port_moved.c). This process does not end
 *      before the sender has acknowledged the redirects, within RDS_PRELOAD_LINGER_MS.
 *
 * Regions end; other processes open theirs again (borrower_regions.c). Operations are waited for as
 * messages are, and their notifications are parked with the socket.
 *
 * If the program goes on after all (an exec that failed), it takes back each socket that no other
 * process has taken over, and all is as it was.
 */
#include "engine/share/handoff.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "engine/share/owner.h"
#include "engine/conn/incoming.h"
#include "engine/conn/outgoing.h"
#include "engine/rdma/mr.h"
#include "engine/sys/patience.h"
#include "engine/rdma/rdma.h"
#include "engine/share/lease.h"
#include "engine/progress/progress.h"
#include "engine/calls/close.h"
#include "engine/calls/port_hold.h"

#define ROUNDS 256

int (*rds_hook_number)(struct rds_sock *sk);
_Atomic bool rds_share_possible;

bool rds_share_is_possible(void)
{
	siginfo_t child; /* the kernel accepts NULL, valgrind does not */

	return atomic_load(&rds_share_possible) ||
	       os_syscall(SYS_waitid, P_ALL, 0, (long)&child, WEXITED | WNOHANG | WNOWAIT | __WALL, 0, 0) != -ECHILD;
}

/* ---- one socket ---- */

/*
 * The packets that signal readability would lie before the parked packet. (What signals "not
 * writable" lies in the receive queue of our end, and moves with it.)
 */
static void handoff_clear_standin(struct rds_sock *sk, int standin)
{
	rds_lock(&rds_lock_wait);
	if (standin >= 0)
		os_recv_discard(standin);
	atomic_store(&sk->shown_in, false);
	sk->shown = 0;
	rds_unlock(&rds_lock_wait);
}

static int handoff_park_socket(struct rds_sock *sk, int standin)
{
	int file = os_memfd("rds socket", MFD_CLOEXEC | MFD_ALLOW_SEALING), made = -1, err;
	off_t size = 0;

	rx_lock();
	/*
	 * even if its state cannot be saved: the caller gives up the lease, and with it the socket
	 */
	atomic_store(&sk->accepts_nothing, true);
	err = file < 0 ? file : rds_handoff_write_state(sk, file, &size);
	rx_unlock();
	if (file < 0)
		return err;
	if (!err)
		err = os_fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
	handoff_clear_standin(sk, standin);
	if (os_fd(&sk->mailbox_fd) < 0)
		made = rds_mailbox_make(&sk->name);
	rds_mailbox_keep_port(sk);
	if (err >= 0 && !os_fds_hold_until(os_now_ns() + rds_patience_ns(RDS_PATIENCE_LOCK)))
		err = -EBUSY; /* the signal handler that ends the process has interrupted the holder */
	if (err >= 0) {
		err = rds_handoff_park(rds_sock_pair_fd(sk), file, made < 0 ? os_fd(&sk->mailbox_fd) : made,
				       os_fd(&sk->lease_fd), (uint64_t)size);
		os_fds_release();
	}
	os_close(file);
	if (made >= 0)
		os_close(made);
	return err < 0 ? err : 0;
}

/* ---- all of them ---- */

struct handoff_out {
	bool (*wanted)(struct rds_sock *sk);
	bool calm; /* not the _exit() of a signal handler */
	bool patient;
	unsigned n;
	uint64_t unsent;
	bool awaited; /* another process waits for each socket with unsent messages, */
	bool held;    /* but only this process can finish some of these messages */
	unsigned parked_msgs;
	uint64_t until;		/* the end of all waiting */
	struct rds_addr *ports; /* of the sockets that were handed off */
	unsigned nports;
	bool remote; /* there are peers behind devices */
	bool told;   /* these peers have acknowledged all redirects */
};

static void handoff_stop_one(struct rds_sock *sk, void *arg)
{
	struct handoff_out *l = arg;

	if (!atomic_load(&sk->open) || (l->wanted && !l->wanted(sk)))
		return;
	if (l->calm)
		(void)rds_lease_make(sk); /* for processes that only peek at the parked packet */
	rx_lock();
	atomic_store(&sk->handing_off, true);
	atomic_store(&sk->open, false);
	rx_unlock();
	l->n++;
}

/*
 * Operations end with this process, and so does the record of async sends that are to be notified.
 */
static bool sock_ends_with_us(const struct rds_sock *sk)
{
	bool told;

	rx_lock();
	told = sk->async_sends != NULL;
	rx_unlock();
	return told || atomic_load(&sk->nops);
}

static void handoff_count_unsent(struct rds_sock *sk, void *arg)
{
	struct handoff_out *l = arg;
	uint64_t unsent;

	if (!atomic_load(&sk->handing_off))
		return;
	unsent = (atomic_load(&sk->snd) & ~RDS_SND_DEAD) + atomic_load(&sk->nops);
	l->unsent += unsent;
	if (unsent && l->awaited)
		l->awaited = rds_owner_call_waits(sk) && !sock_ends_with_us(sk);
}

static void handoff_look_held(struct rds_conn *conn, void *arg)
{
	struct handoff_out *l = arg;

	rds_lock(&conn->tx);
	l->held |= rds_conn_has_unsent(conn);
	rds_unlock(&conn->tx);
}

/*
 * Other processes want all sockets with unsent messages, and nothing that is left needs this
 * process.
 */
static bool handoff_is_awaited(struct handoff_out *l)
{
	if (!l->awaited)
		return false;
	l->held = false;
	rds_conn_each(handoff_look_held, l);
	return !l->held;
}

/* Waits until the peers have accepted what was sent. Sleeps only if something is unsent. */
static void handoff_await_sent(struct handoff_out *l)
{
	bool told = false;

	for (;;) {
		rds_queue_reap_all();
		rds_mailbox_deliver_all();
		l->unsent = 0;
		l->awaited = true;
		rds_sock_each(handoff_count_unsent, l);
		if (!l->unsent || handoff_is_awaited(l) || os_now_ns() >= l->until)
			return;
		if (!told)
			rds_owner_wake(); /* borrowers whose calls sleep here ask anew */
		told = true;
		rds_queue_want_room_all();
		os_nap_ns(100000);
	}
}

static void handoff_look_shown(struct rds_sock *sk, void *arg)
{
	bool *any = arg;

	rx_lock();
	*any |= atomic_load(&sk->handing_off) && sk->nshown;
	rx_unlock();
}

/*
 * What is shown in the stand-in is taken back by the helper (owner_shown.c), which has a descriptor of that in any
 * case: the parked packet is not behind messages.
 */
static void handoff_await_shown(const struct handoff_out *l)
{
	uint64_t until = l->patient ? l->until : os_now_ns() + rds_patience_ns(RDS_PATIENCE_EXIT_LOCK);
	bool any;

	for (;;) {
		any = false;
		rds_sock_each(handoff_look_shown, &any);
		if (!any || os_now_ns() >= until)
			return;
		rds_owner_wake();
		os_nap_ns(50000);
	}
}

static void handoff_log_lost(int err)
{
	/*
	 * These two mean that the last copy has just been closed: ECONNRESET, if unread packets lay
	 * in the stand-in.
	 */
	if (err && err != -EPIPE && err != -ECONNRESET)
		rds_error("an RDS socket that other processes have ends with this one: it cannot be handed off (%s)",
			  strerror(-err));
}

static void handoff_orphan_port(struct rds_sock *sk, void *arg)
{
	int err;

	(void)arg;
	if (!atomic_load(&sk->handing_off) || !sk->inode) /* inode 0: it has a new owner already */
		return;
	err = registry_sock_orphan(rds_node_registry, sk->reg_idx, &sk->name);
	sk->nobodys = !err;
	if (!err && rds_sock_bound(sk))
		registry_port_hide(rds_node_registry, &sk->laddr.ip, sk->laddr.port, sk->laddr.scope);
	handoff_log_lost(err);
}

static void handoff_park_one(struct rds_sock *sk, void *arg)
{
	int standin = rds_hook_number ? rds_hook_number(sk) : -1, err;
	struct handoff_out *l = arg;
	unsigned parked_msgs = 0;

	if (!atomic_load(&sk->handing_off) || !sk->nobodys)
		return;
	if (l->patient)
		parked_msgs = rds_handoff_unsent_take(sk);
	rds_ops_handoff(sk);
	rds_sock_changed(sk);
	err = handoff_park_socket(sk, standin);
	handoff_log_lost(err);
	if (!err)
		l->parked_msgs += parked_msgs;
	else if (l->calm)
		rds_handoff_unsent_send(sk, true); /* as when a socket is closed; needs memory */
	rds_lease_release(sk);
}

static void handoff_receive_rest(void)
{
	unsigned i;

	for (i = 0; i < ROUNDS && rds_progress_round(); i++)
		;
}

/* ---- redirects for peers behind devices ---- */

static void handoff_note_port(struct rds_sock *sk, void *arg)
{
	struct handoff_out *l = arg;

	if (atomic_load(&sk->handing_off) && sk->nobodys && rds_sock_bound(sk) && l->nports < l->n)
		l->ports[l->nports++] = sk->laddr;
}

/* tx held: the connection's transport may change. */
static bool conn_is_behind_device(const struct rds_conn *conn)
{
	return rds_conn_is_to_far_process(conn);
}

static void handoff_begin_conn(struct rds_conn *conn, void *arg)
{
	struct handoff_out *l = arg;

	rds_lock(&conn->tx);
	l->remote |= conn_is_behind_device(conn);
	rx_lock();
	conn->nhandoff_said = 0;
	rx_unlock();
	rds_unlock(&conn->tx);
}

/* Has the peer got the redirects of all ports, and acknowledged them? tx held. */
static bool conn_knows_ports(struct rds_conn *conn, const struct handoff_out *l)
{
	bool all;

	rx_lock();
	for (; conn->nhandoff_said < l->nports; conn->nhandoff_said++) {
		const struct rds_addr *a = &l->ports[conn->nhandoff_said];

		if (rds_ip_equal(&a->ip, &conn->id.laddr) && !rds_conn_redirect_begin(conn, a->port))
			break;
	}
	all = conn->nhandoff_said == l->nports && !atomic_load(&conn->nredirects_out);
	rx_unlock();
	return all;
}

/*
 * Every connection gets the redirects: a peer that has not sent to the port yet may be about to. A
 * connection that the peer has asked for may be up at its side already, so it is waited for. The
 * peers of other connections that are down find this process ended.
 */
static void handoff_tell_conn(struct rds_conn *conn, void *arg)
{
	struct handoff_out *l = arg;

	rds_lock(&conn->tx);
	if (!conn_is_behind_device(conn))
		; /* this peer looks for the port itself (step 5) */
	else if (conn->ep)
		l->told &= conn_knows_ports(conn, l);
	else if (atomic_load(&conn->state) == RDS_CONN_CONNECTING && conn->peer_asked)
		l->told = false;
	rds_unlock(&conn->tx);
}

/* Not malloc's memory: _exit() in a signal handler may have interrupted malloc(). */
static void handoff_tell_peers(struct handoff_out *l)
{
	const size_t len = l->n * sizeof(*l->ports);
	void *mem;

	rds_conn_each(handoff_begin_conn, l);
	if (!l->remote || os_mmap(len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &mem))
		return;
	l->ports = mem;
	rds_sock_each(handoff_note_port, l);
	for (;;) {
		l->told = true;
		rds_conn_each(handoff_tell_conn, l);
		if (l->told)
			break;
		if (os_now_ns() >= l->until) {
			rds_warn("a peer has not answered within RDS_PRELOAD_LINGER_MS: messages that it has sent to "
				 "sockets that this process hands off may be lost");
			break;
		}
		rds_progress_round();
		rds_conn_work_run();
		rds_queue_reap_all();
		os_nap_ns(100000);
	}
	os_munmap(mem, len);
}

static unsigned handoff_all_out(bool (*wanted)(struct rds_sock *sk), bool calm, bool patient)
{
	struct handoff_out l = {.wanted = wanted, .calm = calm, .patient = patient};

	if (!os_process_is_started())
		return 0;
	l.until = rds_progress_exit_deadline();
	rds_progress_exit_by(l.until);
	handoff_receive_rest();
	rds_sock_each(handoff_stop_one, &l);
	if (!l.n)
		return 0;
	rds_helper_kick();
	/*
	 * At the end of the helper's round, the borrower's call that it was making has been
	 * answered, and no other follows.  On a busy machine that takes longer than a fork may wait.
	 */
	rds_helper_await_round(patient ? l.until : os_now_ns() + rds_patience_ns(RDS_PATIENCE_EXIT_LOCK));
	handoff_await_shown(&l);
	if (patient)
		handoff_await_sent(&l);
	rds_sock_each(handoff_orphan_port, NULL);
	rds_conn_refuse_new(true);
	handoff_receive_rest();
	rds_lease_reserve_fd(false);
	rds_sock_each(handoff_park_one, &l);
	if (l.parked_msgs && !l.awaited)
		rds_warn("%u messages could not be handed over within RDS_PRELOAD_LINGER_MS: they wait until another "
			 "process uses the socket, or are lost if none has it",
			 l.parked_msgs);
	if (patient)
		handoff_tell_peers(&l);
	return l.n;
}

unsigned rds_handoff_out(bool (*wanted)(struct rds_sock *sk))
{
	return handoff_all_out(wanted, true, true);
}

struct lock_look {
	uint64_t until;
	bool free;
};

static void handoff_look_lock(struct rds_conn *conn, void *arg)
{
	struct lock_look *look = arg;

	look->free = look->free && rds_lock_wait_free(&conn->tx, look->until);
}

/*
 * No send call is interrupted on this thread's stack either: then it is safe to wait for what was
 * sent.
 */
static bool handoff_sends_are_free(uint64_t until)
{
	struct lock_look look = {.until = until, .free = true};

	while (look.free && !rds_queue_reap_is_free())
		look.free = os_now_ns() < until;
	if (look.free)
		rds_conn_each(handoff_look_lock, &look);
	return look.free;
}

void rds_handoff_out_now(bool interrupted)
{
	uint64_t until = interrupted ? os_now_ns() + rds_patience_ns(RDS_PATIENCE_LOCK) : rds_progress_exit_deadline();

	if (!os_process_is_started())
		return;
	if (rds_lock_wait_free(&rds_lock_control, until) && rds_lock_wait_free(&rds_lock_rx, until) &&
	    rds_lock_wait_free(&rds_lock_wait, until))
		handoff_all_out(NULL, false, handoff_sends_are_free(until));
}

/* ---- the program goes on after all ---- */

/*
 * Another process owns the socket now. If this process takes it over again, that makes another
 * structure. What its peers still send here finds no socket. The receive queue is in the parked
 * file.
 */
static void handoff_let_go(struct rds_sock *sk)
{
	rx_lock();
	if (rds_sock_bound(sk))
		rds_sock_bound_remove(sk);
	RDS_SOCK_SET(sk, bound, false);
	rx_unlock();
	sk->inode = 0;
	sk->owner_id = 0;
	sk->nobodys = false;
	rx_lock();
	rds_notify_drop(sk); /* the notifications are in the parked file */
	rx_unlock();
	rds_handoff_unsent_drop(sk, true);
	rds_mr_drop_all(sk);
}

static void handoff_find_let_go(struct rds_sock *sk, void *arg)
{
	struct rds_sock **found = arg;

	if (rds_handoff_has_new_owner(sk))
		*found = sk;
}

/* A thread that sleeps in a call on such a socket makes the call anew, as a borrower. */
static void handoff_end_let_go(void)
{
	struct rds_sock *sk;

	for (;;) {
		sk = NULL;
		rds_sock_each(handoff_find_let_go, &sk);
		if (!sk)
			return;
		rds_call_close_handed_off(sk);
	}
}

static bool handoff_unpark(struct rds_sock *sk, int standin)
{
	int fds[RDS_HANDOFF_FDS], err;
	struct rds_handoff_packet d;
	bool mine;

	if (standin < 0 || rds_lease_retake(sk) || rds_handoff_take_parked(standin, true, &d, fds))
		return false;
	os_close(fds[0]);
	os_close(fds[1]);
	mine = !registry_sock_take_over(rds_node_registry, sk->reg_idx, &sk->name, false);
	err = fds[2] < 0 || !mine ? 0 : rds_mailbox_empty(fds[2], sk);
	if (err)
		rds_error("messages that waited for the next owner of an RDS socket are lost: %s", strerror(-err));
	if (fds[2] >= 0)
		os_close(fds[2]);
	if (mine)
		rds_call_port_take(sk);
	return mine;
}

static void handoff_take_back(struct rds_sock *sk, void *arg)
{
	(void)arg;
	if (!atomic_load(&sk->handing_off))
		return;
	if (!handoff_unpark(sk, rds_hook_number ? rds_hook_number(sk) : -1)) {
		handoff_let_go(sk);
		return;
	}
	/*
	 * The senders of newer messages have to find a route anew. That needs control, so the
	 * unsent messages go first.
	 */
	if (sk->handoff)
		atomic_fetch_add(&rds_route_gen, 1);
	rx_lock();
	atomic_store(&sk->handing_off, false);
	atomic_store(&sk->accepts_nothing, false);
	sk->nobodys = false;
	if (rds_sock_bound(sk))
		rds_cong_check(sk);
	atomic_store(&sk->open, true);
	rds_sock_wake(sk, POLLIN | POLLRDNORM | (rds_sock_writable(sk) ? POLLOUT : 0));
	rx_unlock();
	rds_sock_changed(sk); /* what has changed since it was parked */
	rds_handoff_unsent_send(sk, true);
	/* Requests to attach that came meanwhile were not read, and their event is not repeated. */
	rds_owner_look_later(sk);
}

void rds_handoff_cancel(void)
{
	if (!os_process_is_started())
		return;
	rds_conn_refuse_new(false);
	rds_progress_exit_by(0);
	rds_sock_each(handoff_take_back, NULL);
	rds_lease_reserve_fd(true);
	handoff_end_let_go();
	rds_helper_kick();
}

bool rds_handoff_is_under_way(struct rds_sock *sk)
{
	return atomic_load(&sk->handing_off);
}

bool rds_handoff_has_new_owner(struct rds_sock *sk)
{
	return atomic_load(&sk->handing_off) && !sk->inode;
}

bool rds_handoff_is_open(struct rds_sock *sk)
{
	return atomic_load(&sk->open);
}
