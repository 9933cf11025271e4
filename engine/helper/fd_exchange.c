/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fd_exchange.c - the connection between the two descriptor tables of a process, and the deferred
 * calls of both sides.
 *
 * The helper cannot inherit its end.  Its table begins empty, and a copy of the program's table
 * would keep the program's pipes open.  So the helper connects to an AF_UNIX listener, whose name
 * the kernel chooses.  The listener is open only while the helper starts.  Any process could
 * connect to that name, so both sides ask the kernel whether the other end is this process.
 *
 * Packets name structures by pointer.  That is safe because the exporting side keeps the structure
 * until a deferred call of the other side has released it.  Each side handles deferred calls in
 * this order: it takes the list of deferred calls, takes the packets that were sent before these
 * calls were queued, then makes the calls.
 *
 * Exported descriptors are taken out of the connection soon.  While an AF_UNIX socket is in flight,
 * the kernel looks for cycles at every close of any AF_UNIX socket on the host.  If the helper has
 * no free descriptor number, the packet stays in the connection, and nothing is lost.
 *
 * Must not know what the structures are, nor what the descriptors are used for.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include "engine/helper/helper.h"
#include "engine/node/registry.h"
#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "engine/sys/patience.h"

#define MAGIC 0x52445370u /* "RDSp" */
#define BACKLOG 64
#define RETRY_NS (100 * 1000000ull)
#define EXPORT_NAP_NS 1000000

struct packet {
	uint32_t magic, kind;
	void *what;
};

rds_export_taker *rds_export_takers[RDS_EXPORT_KINDS];

static struct {
	struct os_fd end; /* the program's end, the helper's end */
	_Atomic int listener;
	struct sockaddr_un name;
	socklen_t name_len;
	_Atomic bool own, broken;
	_Atomic uint32_t epoch;
	_Atomic(struct rds_deferred_call *) for_helper;
	/*
	 * By receiver.  The kernel orders send before receive; the memory model of C does not know
	 * raw system calls, so these counters give it the same order.
	 */
	_Atomic uint64_t order[2];
	struct rds_timer again; /* no descriptor number was free: take the packets later */
	atomic_flag taking;	/* a thread of the program takes packets or makes deferred calls */
} exchange = {.end = OS_FD_NONE, .listener = -1, .taking = ATOMIC_FLAG_INIT};

_Atomic(struct rds_deferred_call *) rds_helper_deferred;

bool rds_helper_has_own_table(void)
{
	return atomic_load_explicit(&exchange.own, memory_order_acquire);
}

uint32_t rds_export_epoch(void)
{
	return atomic_load(&exchange.epoch);
}

/* ---- deferred calls ---- */

static bool call_push(_Atomic(struct rds_deferred_call *) *list, struct rds_deferred_call *c)
{
	if (atomic_exchange(&c->queued, true))
		return false;
	c->next = atomic_load(list);
	while (!atomic_compare_exchange_weak(list, &c->next, c))
		;
	return true;
}

static void call_run_all(struct rds_deferred_call *c)
{
	struct rds_deferred_call *next;

	for (; c; c = next) {
		next = c->next;
		atomic_store(&c->queued, false);
		c->fn(c); /* may free c */
	}
}

bool rds_helper_defer(struct rds_deferred_call *c)
{
	bool new = call_push(&exchange.for_helper, c);

	rds_helper_kick();
	return new;
}

bool rds_helper_defer_to_program(struct rds_deferred_call *c)
{
	return call_push(&rds_helper_deferred, c);
}

void rds_helper_deferred_run_own(void)
{
	struct rds_deferred_call *list;

	if (!atomic_load_explicit(&exchange.for_helper, memory_order_relaxed))
		return;
	list = atomic_exchange(&exchange.for_helper, NULL);
	rds_fd_exchange_drain();
	call_run_all(list);
}

static void log_write_left(struct rds_deferred_call *c)
{
	(void)c;
	rds_log_write_left();
}

static struct rds_deferred_call log_call = {.fn = log_write_left};

void rds_fd_exchange_log_left(void)
{
	static const uint64_t one = 1;

	if (!rds_helper_defer_to_program(&log_call))
		return;
	os_write(os_fd(&rds_helper_leader.post), &one, sizeof(one));
	if (atomic_load(&rds_helper_leader.named_fd)) /* it may sleep there instead */
		rds_helper_leader.post_named();
}

/* ---- packets ---- */

/* Never sleeps. */
static int exchange_send(int side, enum rds_export_kind kind, void *what, const int *fds, unsigned nfds)
{
	struct packet pk = {.magic = MAGIC, .kind = kind, .what = what};

	atomic_fetch_add_explicit(&exchange.order[!side], 1, memory_order_release);
	return os_pass_send(os_fd(&exchange.end), &pk, sizeof(pk), fds, nfds, MSG_DONTWAIT);
}

/* Only the helper's side may sleep: it has a table of its own. */
static ssize_t exchange_recv(int side, struct packet *pk, int fds[OS_PASS_MAX], unsigned *nfds, bool *lost, int flags)
{
	ssize_t n;

	os_fds_hold(); /* the number of our end may become the program's own socket */
	n = os_pass_recv(os_fd(&exchange.end), pk, sizeof(*pk), fds, nfds, lost, flags);
	os_fds_release();
	(void)atomic_load_explicit(&exchange.order[side], memory_order_acquire);
	if (n > 0 && (n != sizeof(*pk) || pk->magic != MAGIC)) {
		while (*nfds)
			os_close(fds[--*nfds]);
		n = -EPROTO;
	}
	return n;
}

/* ---- to the helper ---- */

static unsigned export_take(const struct packet *pk, int fds[OS_PASS_MAX], unsigned nfds)
{
	rds_export_taker *taker = pk->kind < RDS_EXPORT_KINDS ? rds_export_takers[pk->kind] : NULL;

	if (taker)
		return taker(pk->what, fds, nfds);
	if (nfds == 3 && pk->kind == RDS_EXPORT_KICK) {
		rds_helper_kick_exported(fds[0], fds[1], fds[2]);
		return 3;
	}
	if (nfds < 1)
		return 0;
	if (pk->kind == RDS_EXPORT_LEADER)
		atomic_store(&rds_helper_leader.post.n[os_fd_table], fds[0]);
	else if (pk->kind == RDS_EXPORT_REGISTRY)
		atomic_store(&registry_fds(rds_node_registry)->n[os_fd_table], fds[0]);
	else if (pk->kind == RDS_EXPORT_RELAY)
		rds_helper_relay_exported(fds[0]);
	else if (pk->kind == RDS_EXPORT_ASIDE)
		rds_aside_exported(fds[0]);
	else
		return 0;
	return 1;
}

/* Gives exported descriptors to their taker, and closes those that the taker does not keep. */
static void export_deliver(const struct packet *pk, int fds[OS_PASS_MAX], unsigned nfds)
{
	unsigned used = export_take(pk, fds, nfds);

	while (nfds > used)
		os_close(fds[--nfds]);
}

static void drain_again(struct rds_timer *tm)
{
	(void)tm;
	rds_fd_exchange_drain();
}

/*
 * A packet loses its descriptor if no number is free, so this is checked before a packet is
 * received.  One free number is enough: after the start each packet has one descriptor.
 */
static bool fd_number_is_free(void)
{
	int fd = os_fcntl(os_fd(&exchange.end), F_DUPFD_CLOEXEC, 0);

	/*
	 * A reserved number may be above a limit that has been lowered, so a release may not help.
	 */
	while (fd == -EMFILE && rds_helper_reserve_release())
		fd = os_fcntl(os_fd(&exchange.end), F_DUPFD_CLOEXEC, 0);
	if (fd < 0) {
		rds_warn("the RDS engine's helper has no descriptor left and does not serve all "
			 "sockets: " RDS_LOG_EMFILE);
		exchange.again.fn = drain_again;
		rds_timer_set(&exchange.again, os_now_ns() + RETRY_NS);
		return false;
	}
	os_close(fd);
	return true;
}

bool rds_fd_exchange_drain(void)
{
	int fds[OS_PASS_MAX];
	struct packet pk;
	unsigned nfds;
	bool lost;
	ssize_t n;

	while (os_fd_table && !atomic_load(&exchange.broken) && fd_number_is_free()) {
		n = exchange_recv(1, &pk, fds, &nfds, &lost, MSG_DONTWAIT);
		if (n == -EINTR || n == -EPROTO)
			continue;
		if (n < 0)
			return n == -EAGAIN;
		if (n == 0)
			return false;
		if (lost)
			rds_warn_once("the RDS engine's helper has lost a descriptor and does not serve a "
				      "socket: " RDS_LOG_EMFILE);
		export_deliver(&pk, fds, nfds);
	}
	return true;
}

static int exchange_await_one(struct packet *pk)
{
	int fds[OS_PASS_MAX];
	unsigned nfds;
	bool lost;
	ssize_t n;

	do
		n = exchange_recv(1, pk, fds, &nfds, &lost, 0);
	while (n == -EINTR || n == -EPROTO);
	if (n <= 0)
		return n < 0 ? (int)n : -EPIPE;
	export_deliver(pk, fds, nfds);
	return lost ? -EMFILE : 0;
}

int rds_fd_exchange_await_start(void)
{
	struct packet pk;
	int err;

	do
		err = exchange_await_one(&pk);
	while (!err && pk.kind != RDS_EXPORT_START);
	return err;
}

/*
 * Has the program closed our end?  The helper notices a closed end, too, but only after a second.
 */
static bool exchange_is_gone(void)
{
	int err;

	os_fds_hold();
	err = os_fcntl(os_fd(&exchange.end), F_GETFD, 0);
	os_fds_release();
	return err == -EBADF;
}

static void export_read_numbers(const struct os_fd *const *fds, unsigned nfds, int numbers[OS_PASS_MAX])
{
	unsigned i;

	for (i = 0; i < nfds; i++)
		numbers[i] = os_fd(fds[i]);
}

static int export_try(enum rds_export_kind kind, void *what, const struct os_fd *const *fds, unsigned nfds)
{
	int numbers[OS_PASS_MAX], err;

	os_fds_hold();
	export_read_numbers(fds, nfds, numbers);
	err = exchange_send(0, kind, what, numbers, nfds);
	os_fds_release();
	return err;
}

/* For how long is an export that has failed so tried again? */
static uint64_t export_patience_ns(int err)
{
	if (err == -EAGAIN)
		return rds_patience_ns(RDS_PATIENCE_EXPORT);
	return err == -ETOOMANYREFS ? rds_patience_ns(RDS_PATIENCE_EXPORT_FLIGHT) : 0;
}

int rds_export_to_helper(enum rds_export_kind kind, void *what, const struct os_fd *const *fds, unsigned nfds)
{
	uint64_t began = os_now_ns();
	int numbers[OS_PASS_MAX], err;

	if (!rds_helper_has_own_table()) {
		export_read_numbers(fds, nfds, numbers);
		export_deliver(&(struct packet){.kind = kind, .what = what}, numbers, nfds);
		return 0;
	}
	for (;;) {
		err = atomic_load(&exchange.broken) ? -EPIPE : export_try(kind, what, fds, nfds);
		if (err == -EBADF && exchange_is_gone()) /* EBADF may also be about fds */
			rds_fd_exchange_set_broken();
		else if (os_now_ns() - began >= export_patience_ns(err))
			return err == -EAGAIN ? -EMFILE : err;
		else
			os_nap_ns(EXPORT_NAP_NS);
	}
}

/* ---- to the program ---- */

int rds_export_to_program(enum rds_export_kind kind, void *what, const int *fds, unsigned nfds)
{
	return exchange_send(1, kind, what, fds, nfds);
}

/* taking held */
static void exchange_take_all(void)
{
	int fds[OS_PASS_MAX];
	struct packet pk;
	unsigned nfds;
	bool lost;
	ssize_t n;

	while ((n = exchange_recv(0, &pk, fds, &nfds, &lost, MSG_DONTWAIT)) > 0 || n == -EINTR) {
		if (n > 0)
			export_deliver(&pk, fds, nfds);
	}
}

static bool exchange_take_begin(void)
{
	return !os_fd_table && !atomic_flag_test_and_set_explicit(&exchange.taking, memory_order_acquire);
}

static void exchange_take_end(void)
{
	atomic_flag_clear_explicit(&exchange.taking, memory_order_release);
}

void rds_fd_exchange_take(void)
{
	if (!rds_helper_has_own_table() || !exchange_take_begin())
		return;
	exchange_take_all();
	exchange_take_end();
}

void rds_fd_exchange_await(int ms)
{
	struct pollfd p = {.fd = os_fd(&exchange.end), .events = POLLIN};

	os_poll(&p, rds_helper_has_own_table(), ms);
	rds_fd_exchange_take();
}

/* With `taking` set for both steps: a deferred call may free a structure that a packet names. */
void rds_helper_deferred_run(void)
{
	struct rds_deferred_call *list;

	if (!exchange_take_begin())
		return;
	list = atomic_exchange(&rds_helper_deferred, NULL);
	exchange_take_all();
	call_run_all(list);
	exchange_take_end();
}

/* ---- beginning and end ---- */

int rds_fd_exchange_listen(void)
{
	struct sockaddr_un any = {.sun_family = AF_UNIX};
	int err = os_dup_high_slot(os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
				   &exchange.listener);

	if (err < 0)
		return err;
	exchange.name_len = sizeof(exchange.name);
	/* Without a path the kernel chooses a free abstract name. */
	err = os_bind(exchange.listener, (struct sockaddr *)&any, sizeof(any.sun_family));
	if (!err)
		err = os_getsockname(exchange.listener, (struct sockaddr *)&exchange.name, &exchange.name_len);
	if (!err)
		err = os_listen(exchange.listener, BACKLOG);
	if (err)
		os_close_slot(&exchange.listener);
	return err;
}

int rds_fd_exchange_connect(void)
{
	int fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (fd < 0)
		return fd;
	err = os_connect(fd, (struct sockaddr *)&exchange.name, exchange.name_len);
	if (!err && !os_peer_is_self(fd))
		err = -EPERM;
	if (!err)
		err = os_fcntl(fd, F_SETFL, 0);
	if (err < 0) {
		os_close(fd);
		return err;
	}
	atomic_store(&exchange.end.n[os_fd_table], fd);
	return 0;
}

const _Atomic int *rds_fd_exchange_slot(void)
{
	return os_fd_slot(&exchange.end);
}

int rds_fd_exchange_accept(void)
{
	int fd;

	while ((fd = os_accept4(exchange.listener, SOCK_CLOEXEC)) >= 0 && !os_peer_is_self(fd))
		os_close(fd);
	os_close_slot(&exchange.listener);
	if (fd < 0)
		return fd;
	return os_dup_high_slot(fd, &exchange.end.n[0]);
}

void rds_fd_exchange_begin(bool own)
{
	static uint32_t attempts;

	atomic_store(&exchange.broken, false);
	atomic_store(&exchange.own, own);
	atomic_store(&exchange.epoch, ++attempts);
}

void rds_fd_exchange_hang_up(void)
{
	atomic_store(&exchange.epoch, 0);
	atomic_store(&exchange.own, false);
	os_close_slot(&exchange.listener);
	os_close_slot(&exchange.end.n[0]);
}

void rds_fd_exchange_set_broken(void)
{
	if (!atomic_exchange(&exchange.broken, true))
		rds_error("the program has closed descriptors of the RDS engine by system calls of its own: it goes "
			  "on, but not "
			  "everything will be noticed. RDS_PRELOAD_HELPER_FDS=shared may help");
}

void rds_fd_exchange_forget(void)
{
	os_fd_init(&exchange.end);
	atomic_store(&exchange.listener, -1);
	atomic_store(&exchange.epoch, 0);
	atomic_store(&exchange.own, false);
	atomic_store(&exchange.broken, false);
	atomic_store(&exchange.for_helper, NULL);
	atomic_store(&rds_helper_deferred, NULL);
	atomic_store(&log_call.queued, false); /* its line is the parent's to write */
	atomic_flag_clear(&exchange.taking);
	exchange.again.queued = false;
}
