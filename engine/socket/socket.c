/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * socket.c - life of a socket: creation, references, the stand-in pair, last close.
 *
 * The application holds one end of an AF_UNIX SOCK_SEQPACKET pair, we hold the other.  The kernel hangs ours up when
 * the last copy of the application's end is gone, wherever it was: that is the socket's last close.
 *
 * Structures come from a slab that is never given back, so that a stale pointer can be asked whether it is still alive: refcount.c
 * has the references.
 */
#include "engine/socket/socket.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "engine/share/owner.h"
#include "engine/conn/conn.h"
#include "engine/rdma/mr.h"
#include "engine/sys/patience.h"
#include "engine/rdma/rdma.h"
#include "engine/share/lease.h"
#include "engine/calls/start.h"

#define SLAB_CHUNK 64
#ifndef SOCK_MAX
#define SOCK_MAX 11
#endif

unsigned (*rds_hook_hangup)(struct rds_sock *sk);

static pthread_mutex_t sock_slab_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rds_sock *sock_slab_free, *sock_list; /* all: control */

static void sock_pair_event(struct rds_helper_event *ev, uint32_t events);
static void sock_close_deferred(struct rds_deferred_call *c);

static struct rds_sock *sock_slab_get(void)
{
	struct rds_sock *sk;
	unsigned i;

	pthread_mutex_lock(&sock_slab_lock);
	if (!sock_slab_free) {
		sk = calloc(SLAB_CHUNK, sizeof(*sk));
		for (i = 0; sk && i < SLAB_CHUNK; i++) {
			rds_lock_init(&sk[i].tx, RDS_LOCK_SOCK_TX);
			sk[i].ev.fn =
				sock_pair_event; /* never changes: the helper may hold an event of an earlier life */
			sk[i].close_call.fn = sock_close_deferred;
			os_fd_init(&sk[i].pair);
			os_fd_init(&sk[i].lease_fd);
			os_fd_init(&sk[i].mailbox_fd);
			sk[i].next_free = sock_slab_free;
			sock_slab_free = &sk[i];
		}
	}
	sk = sock_slab_free;
	if (sk)
		sock_slab_free = sk->next_free;
	pthread_mutex_unlock(&sock_slab_lock);
	return sk;
}

void rds_sock_slab_put(struct rds_sock *sk)
{
	rds_lease_unmap(sk);
	pthread_mutex_lock(&sock_slab_lock);
	sk->next_free = sock_slab_free;
	sock_slab_free = sk;
	pthread_mutex_unlock(&sock_slab_lock);
}

void rds_sock_each_locked(void (*fn)(struct rds_sock *sk, void *arg), void *arg)
{
	struct rds_sock *sk;

	for (sk = sock_list; sk; sk = sk->next_all)
		fn(sk, arg);
}

void rds_sock_each(void (*fn)(struct rds_sock *sk, void *arg), void *arg)
{
	rds_lock(&rds_lock_control);
	rds_sock_each_locked(fn, arg);
	rds_unlock(&rds_lock_control);
}

struct rds_sock *rds_sock_by_inode(uint64_t inode)
{
	struct rds_sock *sk;

	if (!os_process_is_started())
		return NULL;
	rds_lock(&rds_lock_control);
	for (sk = sock_list; sk; sk = sk->next_all)
		if (sk->inode == inode && rds_sock_get(sk))
			break;
	rds_unlock(&rds_lock_control);
	return sk;
}

int rds_sock_level(const struct rds_sock *sk)
{
	int level = atomic_load_explicit(&sk->sol_rds, memory_order_relaxed);

	return level ? level : SOL_RDS;
}

void rds_sock_used_level(struct rds_sock *sk, int level)
{
	if (likely(atomic_load_explicit(&sk->sol_rds, memory_order_relaxed) == level))
		return;
	atomic_store_explicit(&sk->sol_rds, level, memory_order_relaxed);
	rds_sock_changed(sk);
}

/* ---- last close ---- */

static void sock_drop_received(struct rds_sock *sk)
{
	struct rds_sock_zcopy *z;
	struct rds_inc *inc;

	while ((inc = sk->rx_head)) {
		sk->rx_head = inc->next;
		rds_inc_free(inc);
	}
	sk->rx_tail = &sk->rx_head;
	sk->rcv_bytes = 0;
	rds_cong_clear_port(sk);
	while ((z = sk->zhead)) {
		sk->zhead = z->next;
		free(z);
	}
	sk->ztail = &sk->zhead;
}

/* Of this thread's table.  The set that the helper waits on holds what its own table (or the one for both) has. */
static void sock_close_pair(struct rds_sock *sk)
{
	rds_lock(&rds_lock_wait);
	if (sk->exported && (os_fd_table || !rds_helper_has_own_table()))
		rds_helper_event_del(rds_sock_pair_fd(sk));
	os_close_slot(&sk->pair.n[os_fd_table]);
	rds_lease_close(sk);
	rds_unlock(&rds_lock_wait);
}

static void sock_close_deferred(struct rds_deferred_call *c)
{
	struct rds_sock *sk = container_of(c, struct rds_sock, close_call);

	sock_close_pair(sk);
	rds_sock_put(sk);
}

void rds_sock_list_del(struct rds_sock *sk)
{
	if (sk->prev_all)
		sk->prev_all->next_all = sk->next_all;
	else
		sock_list = sk->next_all;
	if (sk->next_all)
		sk->next_all->prev_all = sk->prev_all;
}

/* Has the helper a number for it, in a table of its own?  control held. */
static bool sock_unlist_exported(struct rds_sock *sk)
{
	rds_sock_list_del(sk);
	return sk->exported && sk->exported == rds_export_epoch() && rds_helper_has_own_table();
}

/*
 * False: another thread has been here.  All under one lock: the helper, woken by the hang-up, may be the one who does it, and
 * a close() that finds it at work must not return before the port is free.
 */
static bool sock_shut(struct rds_sock *sk, bool *lent)
{
	struct rds_mr *regions = NULL;
	bool first;

	rds_lock(&rds_lock_control);
	first = atomic_exchange(&sk->open, false);
	if (first) {
		rds_cong_set_monitor(sk, false);
		rx_lock();
		if (rds_sock_bound(sk))
			rds_sock_bound_remove(sk);
		sock_drop_received(sk);
		regions = rds_mr_take_all(sk);
		atomic_store(&sk->burying, regions);
		rds_ops_close(sk);
		rds_cong_sock_del(sk);
		rx_unlock();
		rds_conn_sock_closed(sk);
		if (!sk->port_returned)
			registry_sock_remove(rds_node_registry, sk->reg_idx);
		*lent = sock_unlist_exported(sk);
	}
	rds_unlock(&rds_lock_control);
	rds_mr_destroy_list(regions);
	if (first)
		atomic_store(&sk->burying, false);
	return first;
}

/*
 * Another thread was first, most often the helper: the regions must be beyond reach when close() returns.  That thread waits for peers,
 * within a limit; ours may be a signal handler that has interrupted it, so it waits within one as well.
 */
static void sock_wait_burial(const struct rds_sock *sk)
{
	uint64_t until = os_now_ns() + rds_patience_ns(RDS_PATIENCE_REGION_RECLAIM);

	while (atomic_load(&sk->burying) && os_now_ns() < until)
		os_poll(NULL, 0, 1);
}

/* Nothing new can come to it; who sleeps for it looks. */
static void sock_close_pair_both(struct rds_sock *sk, bool lent)
{
	rds_sock_wake_all(sk);
	sock_close_pair(sk);
	if (!lent)
		return;
	rds_sock_hold(sk);
	if (!(os_fd_table ? rds_helper_defer_to_program(&sk->close_call) : rds_helper_defer(&sk->close_call)))
		rds_sock_put(sk);
}

/*
 * The kernel's order (rds-semantics 11.7), except that what was sent is not cancelled: it goes on without its socket,
 * because here the sender's process is also the network, and a program that sends and closes means it.  How far that goes is conn/closed_sockets.c's.
 */
void rds_call_close_last(struct rds_sock *sk)
{
	bool lent = false;

	if (!sock_shut(sk, &lent)) {
		sock_wait_burial(sk);
		return;
	}
	sock_close_pair_both(sk, lent);
	rds_sock_put(sk); /* the caller has one of his own */
	rds_conn_work_run();
}

void rds_call_close_handed_off(struct rds_sock *sk)
{
	bool lent;

	rds_lock(&rds_lock_control);
	rds_cong_set_monitor(sk, false);
	rx_lock();
	sock_drop_received(sk);
	rds_cong_sock_del(sk);
	rx_unlock();
	lent = sock_unlist_exported(sk);
	rds_unlock(&rds_lock_control);
	sock_close_pair_both(sk, lent);
	rds_sock_put(sk); /* for having been open */
}

bool rds_sock_hung_up(struct rds_sock *sk)
{
	struct pollfd p = {.fd = rds_sock_pair_fd(sk), .events = 0};

	return os_poll(&p, 1, 0) > 0 && (p.revents & POLLHUP);
}

void rds_call_number_closing(struct rds_sock *sk)
{
	if (!sk || !atomic_load_explicit(&sk->nops, memory_order_relaxed) || !rds_sock_get(sk))
		return;
	rds_ops_drain(sk);
	rds_sock_put(sk);
}

void rds_call_number_closed(struct rds_sock *sk)
{
	if (rds_sock_hung_up(sk))
		rds_call_close_last(sk);
	rds_sock_put(sk);
}

void rds_call_number_added(struct rds_sock *sk)
{
	rds_sock_hold(sk);
}

/* Our end of the pair has something to say. Helper. */
static void sock_pair_event(struct rds_helper_event *ev, uint32_t events)
{
	struct rds_sock *sk = container_of(ev, struct rds_sock, ev);

	(void)events;
	if (!rds_sock_get(sk))
		return;
	if (!atomic_load(&sk->open))
		goto out;
	if (!rds_call_check_hangup(sk)) /* asked anew: the event may be of an earlier life of this structure */
		rds_owner_pair_readable(sk);
out:
	rds_sock_put(sk);
}

/* In the helper a socket may be met before the packet that lends it: it has been sent, so it is there. */
int rds_sock_pair_fd(struct rds_sock *sk)
{
	int fd = os_fd(&sk->pair);

	if (likely(fd >= 0 || !os_fd_table))
		return fd;
	rds_fd_exchange_drain();
	return os_fd(&sk->pair);
}

void rds_sock_exported(struct rds_sock *sk, int fd)
{
	int err;

	if (os_fd_table)
		atomic_store(&sk->pair.n[os_fd_table], fd);
	err = rds_helper_event_add(&sk->ev, fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
	if (err)
		rds_error("a socket cannot be watched (%s): its last close may go unnoticed", strerror(-err));
}

static int sock_export(struct rds_sock *sk)
{
	int fd = os_fd(&sk->pair);

	return rds_export_to_helper(RDS_EXPORT_SOCK, sk, &fd, 1);
}

int rds_sock_export_all(void)
{
	struct rds_sock *sk;
	int err = 0;

	for (sk = sock_list; sk && !err; sk = sk->next_all) {
		sk->exported = rds_export_epoch();
		err = sock_export(sk);
	}
	return err;
}

/* ---- creation ---- */

static int sock_check_type(int type, int protocol)
{
	if (type < 0 || (type & ~(0xf | SOCK_CLOEXEC | SOCK_NONBLOCK)) || (type & 0xf) >= SOCK_MAX)
		return -EINVAL;
	if ((type & 0xf) != SOCK_SEQPACKET || protocol != 0)
		return -ESOCKTNOSUPPORT;
	return 0;
}

static void sock_init(struct rds_sock *sk, uint64_t inode)
{
	const struct rds_options *o = rds_options();

	sk->inode = inode;
	sk->exported = 0;
	atomic_store(&sk->pair.n[1], -1);
	atomic_store(&sk->bound, false);
	memset(&sk->laddr, 0, sizeof(sk->laddr));
	memset(&sk->caddr, 0, sizeof(sk->caddr));
	sk->bound_scope = 0;
	atomic_store(&sk->transport, RDS_TRANS_NONE);
	atomic_store(&sk->connected, false);
	atomic_store(&sk->tos, 0);
	atomic_store(&sk->tos_fixed, false);
	memset(sk->dst, 0, sizeof(sk->dst));
	atomic_store(&sk->snd, 0);
	sk->handoff = NULL;
	sk->since = 0;
	sk->rx_head = NULL;
	sk->rx_tail = &sk->rx_head;
	sk->rcv_bytes = 0;
	sk->congested = false;
	atomic_store(&sk->cong_monitor, false);
	atomic_store(&sk->seen_congestion, false);
	atomic_store(&sk->cong_attached, false);
	atomic_store(&sk->cong_mask, 0);
	atomic_store(&sk->cong_notify, 0);
	sk->cong_track = 0;
	sk->cong_blocked = 0;
	sk->regions = NULL;
	atomic_store(&sk->region_freed_by_other, false);
	sk->reports = NULL;
	sk->report_tail = &sk->reports;
	sk->async_sends = NULL;
	atomic_store(&sk->nfailed, 0);
	atomic_store(&sk->had_ops, false);
	atomic_store(&sk->had_async_sends, false);
	rds_sock_marks_free(&sk->marks);
	sk->ordered_ops = NULL;
	atomic_store(&sk->no_rdma, false);
	sk->zhead = NULL;
	sk->ztail = &sk->zhead;
	atomic_store(&sk->sndbuf, (uint32_t)o->wmem_default);
	atomic_store(&sk->rcvbuf, (uint32_t)o->rmem_default);
	atomic_store(&sk->sndtimeo_ns, RDS_NO_TIMEOUT);
	atomic_store(&sk->rcvtimeo_ns, RDS_NO_TIMEOUT);
	atomic_store(&sk->recverr, false);
	atomic_store(&sk->timestamp, 0);
	atomic_store(&sk->zerocopy, false);
	atomic_store(&sk->inq, false);
	atomic_store(&sk->rx_trace, 0);
	atomic_store(&sk->err, 0);
	atomic_store(&sk->sol_rds, 0);
	atomic_store(&sk->generic, 0);
	atomic_store(&sk->watched, false);
	atomic_store(&sk->watched_edge, false);
	atomic_store(&sk->proxy_sleeps, false);
	sk->port_returned = false;
	atomic_store(&sk->handing_off, false);
	atomic_store(&sk->accepts_nothing, false);
	sk->nobodys = false;
	atomic_store(&sk->look_later, 0);
	atomic_store(&sk->shown_in, false);
	sk->shown = 0;
	atomic_store(&sk->hidden_out, false);
}

/* The application's end is returned, ours goes where sk keeps it. */
static int sock_make_pair(struct rds_sock *sk, int type, uint64_t *inode)
{
	struct stat st;
	int sv[2], err = os_socketpair(AF_UNIX, SOCK_SEQPACKET | (type & (SOCK_CLOEXEC | SOCK_NONBLOCK)), 0, sv);

	if (err < 0)
		return err;
	err = os_dup_high_slot(sv[1], &sk->pair.n[0]);
	if (!err) {
		err = os_fstat(sv[0], &st);
		if (err)
			os_close_slot(&sk->pair.n[0]);
	}
	if (err < 0) {
		os_close(sv[0]);
		return err;
	}
	rds_node_name_bind(sv[0], &sk->name);
	*inode = st.st_ino;
	return sv[0];
}

/* Into the list of sockets; from now on the helper may see it.  control held. */
void rds_sock_list_add(struct rds_sock *sk)
{
	sk->exported = atomic_load(&rds_helper_up) ? rds_export_epoch()
						   : 0; /* the caller does that; or else who starts the helper */
	sk->prev_all = NULL;
	sk->next_all = sock_list;
	if (sock_list)
		sock_list->prev_all = sk;
	sock_list = sk;
	atomic_store(&sk->open, true);
	atomic_store(&sk->handing_off, false);
	atomic_store(&sk->accepts_nothing, false);
	/* for being open, and the number's */
	atomic_store_explicit(&sk->ref, (atomic_load(&sk->ref) & ~(RDS_REF_TURN - 1)) + RDS_REF_TURN + 2, memory_order_release);
}

static int sock_register(struct rds_sock *sk)
{
	int err =
		registry_sock_add(rds_node_registry, sk->inode, rds_sock_sndbuf(sk), rds_sock_rcvbuf(sk), &sk->reg_idx);

	if (err)
		return err;
	registry_sock_set_name(rds_node_registry, sk->reg_idx, &sk->name);
	rds_sock_list_add(sk);
	return 0;
}

/* ---- one that comes from another process (share/handoff_in.c) ---- */

int rds_sock_new_from_pair(int pair, uint64_t inode, struct rds_sock **out)
{
	struct rds_sock *sk = sock_slab_get();
	int err;

	if (!sk) {
		os_close(pair);
		return -ENOMEM;
	}
	err = os_dup_high_slot(pair, &sk->pair.n[0]);
	if (err) {
		rds_sock_slab_put(sk);
		return err;
	}
	sock_init(sk, inode);
	atomic_store(&sk->handing_off, true); /* until it is listed */
	atomic_store(&sk->accepts_nothing, true);
	*out = sk;
	return 0;
}

void rds_sock_discard(struct rds_sock *sk)
{
	rx_lock();
	sock_drop_received(sk);
	rx_unlock();
	os_close_slot(&sk->pair.n[0]);
	rds_lease_close(sk);
	rds_sock_slab_put(sk);
}

/* Without the helper's eye on it the last close would go unnoticed, until this process ends: no reason to fail. */
void rds_sock_export_late(struct rds_sock *sk)
{
	if (sk->exported && sock_export(sk))
		rds_warn("a socket that another process has left to this one is not watched: its last close may go "
			 "unnoticed");
}

/* A program that counted on one descriptor per socket reports EMFILE earlier than its user expects. */
static int sock_warn_refused(int err)
{
	if (err == -EMFILE)
		rds_warn_once("no descriptor for another RDS socket: " RDS_LOG_EMFILE);
	return err;
}

int rds_call_socket(int type, int protocol, struct rds_sock **out)
{
	struct rds_sock *sk;
	uint64_t inode;
	bool lent;
	int fd, err = sock_check_type(type, protocol);

	if (!err)
		err = rds_call_start_engine();
	if (err)
		return err;
	rds_helper_deferred_check();
	sk = sock_slab_get();
	if (!sk)
		return -ENOMEM;
	fd = sock_make_pair(sk, type, &inode);
	if (fd < 0) {
		rds_sock_slab_put(sk);
		return sock_warn_refused(fd);
	}
	sock_init(sk, inode);
	rds_lock(&rds_lock_control);
	err = sock_register(sk);
	lent = sk->exported;
	rds_unlock(&rds_lock_control);
	if (err) {
		os_close_slot(&sk->pair.n[0]);
		os_close(fd);
		rds_sock_slab_put(sk);
		return err;
	}
	if (lent)
		err = sock_export(sk);
	if (err && err != -EPIPE) { /* then nothing is lent any more, and has been logged */
		os_close(fd);
		rds_call_number_closed(sk);
		return sock_warn_refused(err);
	}
	*out = sk;
	return fd;
}

void rds_sock_set_error(struct rds_sock *sk, int err)
{
	atomic_store(&sk->err, err < 0 ? -err : err);
	rds_sock_changed(sk);
	rds_sock_wake(sk, POLLERR);
}

int rds_sock_take_error(struct rds_sock *sk)
{
	int err = atomic_exchange(&sk->err, 0);

	if (err)
		rds_sock_changed(sk);
	return err;
}

void rds_sock_forget(void)
{
	sock_slab_free = sock_list = NULL;
	rds_sock_unseen = rds_sock_taker = NULL;
	atomic_store(&rds_sock_closed_bytes, 0);
	pthread_mutex_init(&sock_slab_lock, NULL);
}
