/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * borrower_wait.c - how long a borrower's call waits for an owner that does not answer: the owner
 * is stopped, is late, or cannot be found.
 *
 * A call that would not sleep in the kernel's RDS waits until the owner is seen to be stopped,
 * otherwise within the limits of sys/patience.h; so does a thread that is about to sleep in poll,
 * select or epoll.  A call that may sleep waits as long as the program wants: until a signal comes
 * that ends calls, the socket's timeout is over or the thread is cancelled.  For an owner of which
 * nothing is known there is a limit as well.  All other calls (names, options) wait to the end.
 *
 * A call that is not waited for any longer must not be made afterwards: it is withdrawn.  The
 * borrower closes the channel, or only its sending half if it has to know the outcome.  The owner
 * looks for that between reading a request and making the call (owner.c).  So a request that is
 * still unread then is never made.  A request that was read is waited for: its owner may be making
 * the call.
 *
 * Must not know how a channel is made, nor what a call means beyond how long it may wait.
 */
#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>

#include "engine/share/borrower_impl.h"
#include "engine/sys/cleanup.h"
#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "engine/sys/patience.h"
#include "engine/rds.h"
#include "engine/share/lease.h"

#define LONG_LOOK_MS 100 /* between looks at the owner, when the call has waited for long */
#define PAUSE_MS 20	 /* between attempts to get a channel, at most */
#define REFUSED_AGAIN_NS 1000000000ull /* so long after a refusal, another one is a new matter */
#define MS_NS 1000000ull

enum state { UNKNOWN, ALIVE, STOPPED };

/* All threads of a process stop together, so the state of its first thread is enough. */
static bool process_is_stopped(pid_t pid)
{
	char path[40], line[300], *state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = os_open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	n = os_read(fd, line, sizeof(line) - 1);
	os_close(fd);
	if (n <= 0)
		return false;
	line[n] = 0;
	state = strrchr(line, ')'); /* the name may have any character */
	return state && state[1] == ' ' && (state[2] == 'T' || state[2] == 't');
}

/* The process with the lock on the lease; without a lease, the process that made the socket. */
static enum state owner_look_state(int fd, uint64_t inode)
{
	int pid = rds_standby_owner_pid(inode);
	struct ucred cred;

	/* INT32_MAX: there is an owner, but its process id is not known here. */
	if (pid > 0)
		return pid != INT32_MAX && process_is_stopped(pid) ? STOPPED : ALIVE;
	if (os_peer_cred(fd, &cred) && process_is_stopped(cred.pid))
		return STOPPED;
	return UNKNOWN;
}

static bool call_is_message(const struct borrower_call *c)
{
	return c->q.op == RDS_SHARE_SEND || c->q.op == RDS_SHARE_RECV || c->q.op == RDS_SHARE_BARRIER ||
	       c->q.op == RDS_SHARE_MEMORY;
}

static bool call_is_bounded(const struct borrower_call *c)
{
	return c->cancelled || (call_is_message(c) && !c->q.may_wait) || c->q.op == RDS_SHARE_TAKE_ERROR ||
	       borrower_call_lasts(c);
}

bool borrower_call_lasts(const struct borrower_call *c)
{
	return c->q.op == RDS_SHARE_WATCH || c->q.op == RDS_SHARE_SET_ERROR;
}

bool borrower_call_ends(const struct borrower_call *c)
{
	return !c->underway && (call_is_message(c) || call_is_bounded(c));
}

static bool call_is_timed_out(const struct borrower_call *c, uint64_t waited_ns)
{
	uint64_t timeo = rds_standby_timeo(c->inode, c->q.op == RDS_SHARE_SEND);

	return timeo != RDS_BORROWER_NO_TIMEOUT &&
	       waited_ns / MS_NS >= timeo / MS_NS + rds_patience_ms(RDS_PATIENCE_OWNER_UNKNOWN);
}

/* 0: the call goes on waiting. */
static int call_check_patience(int fd, struct borrower_call *c, bool greeted, uint64_t waited_ns)
{
	uint64_t waited = waited_ns / MS_NS;
	enum state owner = owner_look_state(fd, c->inode);
	enum rds_patience most;

	if (call_is_bounded(c)) {
		most = greeted || owner == ALIVE ? RDS_PATIENCE_OWNER : RDS_PATIENCE_OWNER_UNKNOWN;
		if (owner != STOPPED && waited < rds_patience_ms(most))
			return 0;
		if (!c->cancelled)
			c->late = -EAGAIN;
		return -BORROWER_LATE;
	}
	if (call_is_message(c) && call_is_timed_out(c, waited_ns)) {
		c->late = -ETIMEDOUT;
		return -BORROWER_LATE;
	}
	return !greeted && owner == UNKNOWN && waited >= rds_patience_ms(RDS_PATIENCE_OWNER_NONE) ? -ENOTCONN : 0;
}

/* ---- signals ---- */

struct rds_borrower_wait *borrower_call_wait(struct borrower_call *c)
{
	return c->wait ? c->wait : &c->own;
}

static bool call_heeds_signals(struct borrower_call *c)
{
	return borrower_call_wait(c)->before_sleep || (call_is_message(c) && c->q.may_wait && !c->cancelled);
}

static void wait_hold_signals(struct rds_borrower_wait *w)
{
	if (!w->held)
		os_signals_hold(&w->signals);
	w->held = true;
}

/*
 * After a look.  Is there a signal that ends the call?  It stays there: for the sleep in poll, select
 * or epoll, or for the end of the call.  Those after which a receive or send goes on are let through.
 */
static bool wait_has_signal(struct rds_borrower_wait *w)
{
	struct os_signals in_sleep = w->signals;

	if (w->before_sleep) {
		if (w->mask)
			memcpy(&in_sleep.old, w->mask, sizeof(in_sleep.old));
		return os_signals_pending(&in_sleep);
	}
	w->interrupted |= os_signals_pass(&w->signals) != 0;
	return w->interrupted;
}

void borrower_release_signals(struct borrower_call *c)
{
	struct rds_borrower_wait *w = borrower_call_wait(c);

	if (w->before_sleep || !w->held)
		return;
	w->held = false;
	w->interrupted |= os_signals_release(&w->signals) != 0;
}

const sigset_t *rds_borrower_wait_mask(const struct rds_borrower_wait *w, sigset_t *room)
{
	if (w->mask || !w->held)
		return w->mask;
	memset(room, 0, sizeof(*room));
	memcpy(room, &w->signals.old, sizeof(w->signals.old));
	return room;
}

void rds_borrower_wait_end(struct rds_borrower_wait *w)
{
	if (w->held)
		os_signals_release(&w->signals);
	w->held = false;
}

void rds_borrower_wait_left(struct rds_borrower_wait *w)
{
	if (w->held)
		os_signals_left(&w->signals);
	w->held = false;
}

/* ---- looks ---- */

static void look_clean_up(void *arg)
{
	struct borrower_call *c = arg;

	if (c->offered >= 0)
		os_close(c->offered);
	borrower_channel_drop(c->busy);
	rds_borrower_wait_end(borrower_call_wait(c));
}

/*
 * A cancellation point, for calls that are one in the kernel.  -1 at once if a signal handler waits
 * for the end of the call.
 */
static int look_poll_cancellable(struct borrower_call *c, struct pollfd *p, int ms)
{
	const struct timespec ts = {ms / 1000, ms % 1000 * 1000000L};
	volatile int n;

	if (!call_is_message(c) || c->q.op == RDS_SHARE_MEMORY)
		return os_poll(p, 1, ms);
	rds_cleanup_push(look_clean_up, c);
	n = rds_os_sleep.ppoll(p, 1, &ts, NULL);
	rds_cleanup_pop(0);
	return n;
}

/*
 * As os_poll().  A signal ends a call that may sleep, after one look at most.  So does a signal
 * handler that waits for the end of the call, to jump out of it or to make a call of its own: the
 * reply of an owner that is not stopped comes within that look.
 */
static int look_poll(struct borrower_call *c, struct pollfd *p, int ms)
{
	bool cut;
	int n;

	if (!call_heeds_signals(c))
		return os_poll(p, 1, ms);
	wait_hold_signals(borrower_call_wait(c));
	n = look_poll_cancellable(c, p, ms);
	cut = n < 0 && rds_os_sleep.cut && rds_os_sleep.cut();
	if (cut)
		n = os_poll(p, 1, ms);
	if (n > 0 || (!wait_has_signal(borrower_call_wait(c)) && !cut))
		return n;
	c->late = -EINTR;
	return -BORROWER_LATE;
}

int borrower_wait(int fd, struct borrower_call *c, struct pollfd *p, bool greeted)
{
	bool before_sleep = borrower_call_wait(c)->before_sleep;
	uint64_t *since = &borrower_call_wait(c)->since, waited;
	int n, err, look = BORROWER_LOOK_MS;

	if (!*since)
		*since = os_now_ns();
	waited = os_now_ns() - *since;
	n = look_poll(c, p, waited < BORROWER_LOOK_MS * MS_NS ? BORROWER_LOOK_MS - (int)(waited / MS_NS) : 0);
	/* Also after a signal: with signals in a row, no call would take the socket over. */
	if (n <= 0 && !greeted && before_sleep && rds_handoff_is_pending(fd))
		return -RDS_BORROWER_TAKE_OVER;
	if (n == -BORROWER_LATE)
		return n;
	while (n <= 0) {
		if (!greeted && rds_handoff_is_pending(fd))
			return -RDS_BORROWER_TAKE_OVER;
		waited = os_now_ns() - *since;
		err = call_check_patience(fd, c, greeted, waited);
		if (err)
			return err;
		if (waited >= rds_patience_ns(RDS_PATIENCE_OWNER))
			look = LONG_LOOK_MS;
		if (waited >= rds_patience_ns(RDS_PATIENCE_OWNER_LATE))
			rds_warn_once("the process that owns an RDS socket of this one does not answer: is it stopped? "
				      "Continue or kill it");
		n = look_poll(c, p, look);
		if (n == -BORROWER_LATE)
			return n;
	}
	return 0;
}

/*
 * Many sockets most often have one owner, so only the first one that does not answer is waited for
 * so long: there may be no owner (UNKNOWN), and this may be the start of a program.
 */
bool borrower_await_hello(int fd, uint64_t inode, struct pollfd *p)
{
	static _Atomic uint64_t in_vain;
	uint64_t since = os_now_ns(), waited = 0, before = atomic_load(&in_vain);
	const uint64_t most = rds_patience_ns(RDS_PATIENCE_OWNER);

	while (os_poll(p, 1, BORROWER_LOOK_MS) <= 0) {
		waited = os_now_ns() - since;
		if (owner_look_state(fd, inode) != STOPPED && !rds_handoff_is_pending(fd) && before + waited < most)
			continue;
		atomic_fetch_add(&in_vain, waited);
		return false;
	}
	atomic_store(&in_vain, 0);
	return true;
}

/* Since when owners have refused without a break, and when last. */
static _Atomic uint64_t refused_first, refused_last;

/*
 * An owner that lacks descriptors lacks them for the next call, too: otherwise each poll() would wait
 * for it anew, whatever its timeout.
 */
static uint64_t owner_refuses_since(uint64_t now)
{
	if (now > atomic_load(&refused_last) + REFUSED_AGAIN_NS)
		atomic_store(&refused_first, now); /* before the last: another thread must not see an old first */
	atomic_store(&refused_last, now);
	return atomic_load(&refused_first);
}

void borrower_refused_no_more(void)
{
	atomic_store(&refused_last, 0);
}

/*
 * Before the owner is asked once more.  It could not accept the channel for want of descriptors or
 * memory, or is about to hand off the socket.
 */
int borrower_pause(int fd, struct borrower_call *c, uint64_t *refused)
{
	uint64_t *since = &borrower_call_wait(c)->since, now = os_now_ns(), waited, from;
	struct pollfd nothing = {.fd = -1};
	int err;

	if (!*since)
		*since = now;
	if (!*refused)
		*refused = now;
	from = owner_refuses_since(now);
	if (*since < from || !call_is_bounded(c))
		from = *since;
	err = call_check_patience(fd, c, false, now - from);
	if (err)
		return err;
	waited = now - *refused;
	if (waited >= rds_patience_ns(RDS_PATIENCE_OWNER))
		rds_warn_once("the process that owns an RDS socket of this one has no descriptor or memory left to "
			      "serve it: raise `ulimit -n` of that process");
	if (waited >= rds_patience_ns(RDS_PATIENCE_OWNER_FULL))
		return -EMFILE;
	err = look_poll(c, &nothing, waited < PAUSE_MS * MS_NS ? 1 + (int)(waited / MS_NS) : PAUSE_MS);
	return err == -BORROWER_LATE ? err : 0;
}

/* ---- a call that sleeps at the owner ---- */

static void sleep_clean_up(void *arg)
{
	borrower_channel_drop(arg);
}

/* A sleep with a timeout, which is more than one read(). */
struct timed_sleep {
	struct borrower_channel *s;
	struct os_signals held;
	int signals;
};

static void timed_sleep_clean_up(void *arg)
{
	struct timed_sleep *t = arg;

	os_close(t->signals);
	borrower_channel_drop(t->s);
	os_signals_release(&t->held);
}

/*
 * An owner that is stopped does not keep the timeout, so the borrower keeps it, too.  0: there is
 * something to read; -EINTR; -ETIMEDOUT.  The kernel restarts no call on a socket that has a
 * timeout of its own, but RDS does.
 */
static int channel_sleep_until(struct timed_sleep *t, uint64_t until)
{
	struct pollfd p[2] = {{.fd = atomic_load(&t->s->fd), .events = POLLIN}, {.fd = t->signals, .events = POLLIN}};
	struct timespec left;
	uint64_t now;
	int n, err;

	for (;;) {
		now = os_now_ns();
		now = now < until ? until - now : 0;
		left = (struct timespec){(time_t)(now / 1000000000), (long)(now % 1000000000)};
		n = rds_os_sleep.ppoll(p, 2, &left, NULL);
		if (n == 0)
			return -ETIMEDOUT;
		if (n < 0 && rds_os_sleep.cut && rds_os_sleep.cut())
			return -EINTR;
		if (n > 0 && p[0].revents)
			return 0;
		err = os_signals_release(&t->held);
		os_signals_hold(&t->held);
		if (err)
			return err;
	}
}

static int channel_sleep_timed(struct borrower_channel *s, uint64_t until)
{
	struct timed_sleep t = {.s = s};
	volatile int err = 0;

	os_signals_hold(&t.held);
	t.signals = os_signals_fd(&t.held);
	if (t.signals >= 0) { /* else only the owner keeps the timeout */
		rds_cleanup_push(timed_sleep_clean_up, &t);
		err = channel_sleep_until(&t, until);
		rds_cleanup_pop(0);
		os_close(t.signals);
	}
	os_signals_release(&t.held);
	return err;
}

ssize_t borrower_sleep(struct borrower_channel *s, struct borrower_call *c, struct rds_share_reply *ready)
{
	volatile ssize_t n;
	uint64_t grace = rds_patience_ns(RDS_PATIENCE_OWNER_UNKNOWN);

	borrower_release_signals(c);
	if (borrower_call_wait(c)->interrupted) {
		c->late = -EINTR;
		return -1;
	}
	c->late = c->a.result > 0 ? channel_sleep_timed(s, os_now_ns() + (uint64_t)c->a.result + grace) : 0;
	if (c->late)
		return -1;
	rds_cleanup_push(sleep_clean_up, s);
	n = rds_os_sleep.read(atomic_load(&s->fd), ready, sizeof(*ready));
	rds_cleanup_pop(0);
	c->late = -EINTR;
	return n;
}

/* ---- a call that waits no longer ---- */

static bool channel_has_input(int channel)
{
	ssize_t n;
	char byte;

	do /* -ECONNRESET: CANCEL was not read; what the owner had said comes behind that */
		n = os_recv(channel, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	while (n == -ECONNRESET);
	return n > 0; /* the end of the channel (0 bytes) is no packet */
}

/*
 * Before the owner makes a send that has slept, it sends READY, then looks whether our half of the
 * channel is closed.  We close our half, then look for READY.  So at least one of the two sees the
 * other.
 */
bool borrower_withdraw(struct borrower_channel *s, struct borrower_call *c)
{
	int channel = atomic_load(&s->fd);

	if (c->q.op != RDS_SHARE_SEND)
		return true; /* a received message goes back when its reply cannot be delivered */
	os_shutdown(channel, SHUT_WR);
	if (c->asleep ? !channel_has_input(channel) : os_bytes_there(channel, SIOCOUTQ))
		return true;
	c->underway = true;
	return false;
}
