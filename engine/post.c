/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * post.c - the connection between the two descriptor tables of a process, and the chores of its two sides.
 *
 * The helper cannot inherit its end (its table begins empty, and copying the program's into it would keep pipes of the program
 * open), so it dials: an AF_UNIX listener on a name that the kernel chooses, open for as long as the helper takes to start.
 * Anybody could dial that name; both sides believe only the kernel's word that the other one is this process.
 *
 * Packets name structures by pointer.  That is safe because whoever lends or gives keeps the structure until the other
 * side has let go of it (a chore), and chores are looked at in this order: take the list of chores, take the packets that were
 * sent before they were left, do the chores.
 *
 * What is lent is taken off soon, never left lying: an AF_UNIX socket in flight has the kernel look for cycles at every close
 * of any such socket on the host.  If the helper has no number free for it, it lies there all the same, and nothing is lost.
 * Knows neither what the structures are nor what is done with the descriptors.
 */
#include "engine/engine.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "engine/patience.h"
#include "engine/wait.h"
#include "engine/will.h"

#define MAGIC 0x52445370u /* "RDSp" */
#define BACKLOG 64
#define RETRY_NS (100 * 1000000ull)

struct packet {
	uint32_t magic, kind;
	void *what;
};

static struct {
	struct os_fd end; /* the program's end, the helper's end */
	_Atomic int listener;
	struct sockaddr_un name;
	socklen_t name_len;
	_Atomic bool own, broken;
	_Atomic uint32_t epoch;
	_Atomic(struct rds_chore *) for_helper;
	_Atomic uint64_t order[2]; /* raw calls: what the kernel orders is told in C, too; by receiver */
	struct rds_timer again;	   /* no number was free */
	atomic_flag taking;
} post = {.end = OS_FD_NONE, .listener = -1, .taking = ATOMIC_FLAG_INIT};

_Atomic(struct rds_chore *) rds_post_left;

bool rds_post_own(void)
{
	return atomic_load_explicit(&post.own, memory_order_acquire);
}

uint32_t rds_post_epoch(void)
{
	return atomic_load(&post.epoch);
}

/* ---- chores ---- */

static bool leave(_Atomic(struct rds_chore *) *list, struct rds_chore *c)
{
	if (atomic_exchange(&c->queued, true))
		return false;
	c->next = atomic_load(list);
	while (!atomic_compare_exchange_weak(list, &c->next, c))
		;
	return true;
}

static void do_all(struct rds_chore *c)
{
	struct rds_chore *next;

	for (; c; c = next) {
		next = c->next;
		atomic_store(&c->queued, false);
		c->fn(c); /* may be the end of it */
	}
}

bool rds_chore_for_helper(struct rds_chore *c)
{
	bool new = leave(&post.for_helper, c);

	rds_helper_kick();
	return new;
}

bool rds_chore_for_program(struct rds_chore *c)
{
	return leave(&rds_post_left, c);
}

void rds_post_helper_chores(void)
{
	struct rds_chore *list;

	if (!atomic_load_explicit(&post.for_helper, memory_order_relaxed))
		return;
	list = atomic_exchange(&post.for_helper, NULL);
	rds_post_drain();
	do_all(list);
}

/* ---- packets ---- */

static int post_send(int side, enum rds_post_kind kind, void *what, const int *fds, unsigned nfds, int flags)
{
	struct packet pk = {.magic = MAGIC, .kind = kind, .what = what};

	atomic_fetch_add_explicit(&post.order[!side], 1, memory_order_release);
	return os_pass_send(os_fd(&post.end), &pk, sizeof(pk), fds, nfds, flags);
}

static ssize_t post_recv(int side, struct packet *pk, int fds[OS_PASS_MAX], unsigned *nfds, bool *lost, int flags)
{
	ssize_t n = os_pass_recv(os_fd(&post.end), pk, sizeof(*pk), fds, nfds, lost, flags);

	(void)atomic_load_explicit(&post.order[side], memory_order_acquire);
	if (n > 0 && (n != sizeof(*pk) || pk->magic != MAGIC)) {
		while (*nfds)
			os_close(fds[--*nfds]);
		n = -EPROTO;
	}
	return n;
}

/* ---- to the helper ---- */

/* Puts lent descriptors where they belong; what nobody wants is closed. */
static void lent(const struct packet *pk, int fds[OS_PASS_MAX], unsigned nfds)
{
	unsigned used = 1;

	if (nfds == 3 && pk->kind == RDS_POST_KICK) {
		rds_helper_kick_lent(fds[0], fds[1], fds[2]);
		used = 3;
	} else if (nfds >= 1 && pk->kind == RDS_POST_LEADER) {
		atomic_store(&rds_eng->leader_post.n[os_side], fds[0]);
	} else if (nfds >= 1 && pk->kind == RDS_POST_REGISTRY) {
		atomic_store(&registry_fds(rds_eng->reg)->n[os_side], fds[0]);
	} else if (nfds >= 1 && pk->kind == RDS_POST_SOCK) {
		rds_sock_lent(pk->what, fds[0]);
	} else if (pk->kind == RDS_POST_WILL) {
		used = nfds < 2 ? nfds : 2;
		rds_will_lent(pk->what, nfds ? fds[0] : -1, nfds > 1 ? fds[1] : -1);
	} else if (nfds >= 1 && pk->kind == RDS_POST_WAIT) {
		rds_wait_lent(pk->what, fds[0]);
	} else if (nfds >= 1 && pk->kind == RDS_POST_ASIDE) {
		rds_aside_lent(fds[0]);
	} else {
		used = 0;
	}
	while (nfds > used)
		os_close(fds[--nfds]);
}

static void try_again(struct rds_timer *tm)
{
	(void)tm;
	rds_post_drain();
}

/* A packet whose descriptor finds no number loses it, so it is asked first.  One is enough: while running, each has one. */
static bool number_free(void)
{
	int fd = os_fcntl(os_fd(&post.end), F_DUPFD_CLOEXEC, 0);

	while (fd == -EMFILE && rds_spare_use()) /* one may be above a limit that has been lowered */
		fd = os_fcntl(os_fd(&post.end), F_DUPFD_CLOEXEC, 0);
	if (fd < 0) {
		rds_warn("the RDS engine's helper has no descriptor left (ulimit -n): it does not look after all "
			 "sockets");
		post.again.fn = try_again;
		rds_timer_set(&post.again, os_now_ns() + RETRY_NS);
		return false;
	}
	os_close(fd);
	return true;
}

bool rds_post_drain(void)
{
	int fds[OS_PASS_MAX];
	struct packet pk;
	unsigned nfds;
	bool lost;
	ssize_t n;

	while (os_side && !atomic_load(&post.broken) && number_free()) {
		n = post_recv(1, &pk, fds, &nfds, &lost, MSG_DONTWAIT);
		if (n == -EINTR || n == -EPROTO)
			continue;
		if (n < 0)
			return n == -EAGAIN;
		if (n == 0)
			return false;
		if (lost)
			rds_warn_once("the RDS engine's helper lost a descriptor for lack of numbers (ulimit -n): a "
				      "socket is not looked after");
		lent(&pk, fds, nfds);
	}
	return true;
}

static int await_one(struct packet *pk)
{
	int fds[OS_PASS_MAX];
	unsigned nfds;
	bool lost;
	ssize_t n;

	do
		n = post_recv(1, pk, fds, &nfds, &lost, 0);
	while (n == -EINTR || n == -EPROTO);
	if (n <= 0)
		return n < 0 ? (int)n : -EPIPE;
	lent(pk, fds, nfds);
	return lost ? -EMFILE : 0;
}

int rds_post_await_start(void)
{
	struct packet pk;
	int err;

	do
		err = await_one(&pk);
	while (!err && pk.kind != RDS_POST_START);
	return err;
}

/* Not just moved to another number: there is none, again and again.  The helper would notice, too, but it makes sure for a second. */
static bool end_is_gone(void)
{
	int tries, err = -EBADF;

	for (tries = 0; err == -EBADF && tries < 3; tries++)
		err = os_fcntl(os_fd(&post.end), F_GETFD, 0);
	return err == -EBADF;
}

int rds_post_lend(enum rds_post_kind kind, void *what, const int *fds, unsigned nfds)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	uint64_t tries = 0; /* a millisecond apart */
	int err;

	if (!rds_post_own()) {
		lent(&(struct packet){.kind = kind, .what = what}, (int *)(uintptr_t)fds, nfds);
		return 0;
	}
	for (;;) {
		err = atomic_load(&post.broken) ? -EPIPE : post_send(0, kind, what, fds, nfds, 0);
		if (err == -ETOOMANYREFS && ++tries < rds_patience_ms(RDS_PATIENCE_LEND_FLIGHT))
			os_syscall(SYS_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
		else if (err == -EBADF && end_is_gone()) /* not what is lent */
			rds_post_broken();
		else if (err != -EINTR)
			return err == -EAGAIN ? -EMFILE : err;
	}
}

/* ---- to the program ---- */

int rds_post_give(enum rds_post_kind kind, void *what, const int *fds, unsigned nfds)
{
	return post_send(1, kind, what, fds, nfds, MSG_DONTWAIT);
}

/* taking held */
static void take_all(void)
{
	int fds[OS_PASS_MAX];
	struct packet pk;
	unsigned nfds;
	bool lost;
	ssize_t n;

	while ((n = post_recv(0, &pk, fds, &nfds, &lost, MSG_DONTWAIT)) > 0 || n == -EINTR) {
		if (n > 0 && pk.kind == RDS_POST_PEER) {
			rds_shm_given(pk.what, fds, nfds);
			nfds = 0;
		} else if (n > 0 && nfds == 1 && pk.kind == RDS_POST_LINE) {
			rds_line_given(fds[0]);
			nfds = 0;
		}
		while (n > 0 && nfds)
			os_close(fds[--nfds]);
	}
}

static bool take_begin(void)
{
	return !os_side && !atomic_flag_test_and_set_explicit(&post.taking, memory_order_acquire);
}

static void take_end(void)
{
	atomic_flag_clear_explicit(&post.taking, memory_order_release);
}

void rds_post_take(void)
{
	if (!rds_post_own() || !take_begin())
		return;
	take_all();
	take_end();
}

void rds_post_await(int ms)
{
	struct pollfd p = {.fd = os_fd(&post.end), .events = POLLIN};

	os_poll(&p, rds_post_own(), ms);
	rds_post_take();
}

/* Under the same mark: a chore may end the life of what a packet names. */
void rds_post_chores(void)
{
	struct rds_chore *list;

	if (!take_begin())
		return;
	list = atomic_exchange(&rds_post_left, NULL);
	take_all();
	do_all(list);
	take_end();
}

/* ---- beginning and end ---- */

int rds_post_listen(void)
{
	struct sockaddr_un any = {.sun_family = AF_UNIX};
	int err =
		os_dup_high_slot(os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), &post.listener);

	if (err < 0)
		return err;
	post.name_len = sizeof(post.name);
	err = os_bind(post.listener, (struct sockaddr *)&any, sizeof(any.sun_family)); /* a free abstract name */
	if (!err)
		err = os_getsockname(post.listener, (struct sockaddr *)&post.name, &post.name_len);
	if (!err)
		err = os_listen(post.listener, BACKLOG);
	if (err)
		os_close_slot(&post.listener);
	return err;
}

int rds_post_dial(void)
{
	int fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (fd < 0)
		return fd;
	err = os_connect(fd, (struct sockaddr *)&post.name, post.name_len);
	if (!err && !os_peer_is_self(fd))
		err = -EPERM;
	if (!err)
		err = os_fcntl(fd, F_SETFL, 0);
	if (err < 0) {
		os_close(fd);
		return err;
	}
	atomic_store(&post.end.n[os_side], fd);
	return 0;
}

int rds_post_fd(void)
{
	return os_side ? os_fd(&post.end) : -1;
}

int rds_post_accept(void)
{
	uint64_t ms = rds_patience_ms(RDS_PATIENCE_LEND);
	const struct timeval patience = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};
	int fd;

	while ((fd = os_accept4(post.listener, SOCK_CLOEXEC)) >= 0 && !os_peer_is_self(fd))
		os_close(fd);
	os_close_slot(&post.listener);
	if (fd < 0)
		return fd;
	os_setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	return os_dup_high_slot(fd, &post.end.n[0]);
}

void rds_post_begin(bool own)
{
	static uint32_t attempts;

	atomic_store(&post.broken, false);
	atomic_store(&post.own, own);
	atomic_store(&post.epoch, ++attempts);
}

void rds_post_hang_up(void)
{
	atomic_store(&post.epoch, 0);
	atomic_store(&post.own, false);
	os_close_slot(&post.listener);
	os_close_slot(&post.end.n[0]);
}

/* The program has closed our end behind our back. */
void rds_post_broken(void)
{
	if (!atomic_exchange(&post.broken, true))
		rds_error("the program has closed descriptors of the RDS engine by system calls of its own: it goes "
			  "on, but not "
			  "everything will be noticed. RDS_PRELOAD_HELPER_FDS=shared may help");
}

void rds_post_forget(void)
{
	os_fd_init(&post.end);
	atomic_store(&post.listener, -1);
	atomic_store(&post.epoch, 0);
	atomic_store(&post.own, false);
	atomic_store(&post.broken, false);
	atomic_store(&post.for_helper, NULL);
	atomic_store(&rds_post_left, NULL);
	atomic_flag_clear(&post.taking);
	post.again.queued = false;
}
