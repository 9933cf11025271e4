/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * leave.c - the carrier of sockets leaves: exit, _exit, exec.  What other processes still hold is deposited (share.h).
 *
 * In this order, for all sockets together:
 *   1. no call on them gets anywhere any more (they are not open);
 *   2. what they have sent is waited for, so that nothing that the next carrier sends can overtake it;
 *   3. their ports become nobody's in the registry: senders wait;
 *   4. what is here already is accepted.  A sender that has ended before 3 believed that it would be, and it is the last moment; one that
 *      ends later sees that the port has left this process, and stays until it knows what of its messages we have (shutdown.c);
 *   5. the deposit: state and queue, and our end of the pair.  What comes from now on is not accepted.  In memory
 *      that outlives this process its sender has it until then, and will look for the port anew when we are gone (shutdown.c); over a device only
 *      what was never sent is sent again: what had come to us, and was not accepted, may be lost.
 *
 * Regions and operations end with the process that made them, and so do notifications of theirs.
 *
 * If the program goes on after all (an exec that failed), it takes them back: the deposit if nobody was quicker, and all is as it was.
 */
#include "engine/leave.h"

#include <asm/ioctls.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "engine/connection.h"
#include "engine/message.h"

#define ROUNDS 256
#define LOCK_TRIES_NS (100 * 1000000ull) /* a signal handler that ends the process may have interrupted who has one */

int (*rds_hook_number)(struct rds_sock *sk);
_Atomic bool rds_spread;

/* ---- the file ---- */

int rds_deposit_put(int fd, off_t *at, const void *from, size_t len)
{
	const char *p = from;
	ssize_t n;

	while (len) {
		n = os_pwrite(fd, p, len, *at);
		if (n <= 0)
			return n ? (int)n : -EIO;
		p += n;
		*at += n;
		len -= (size_t)n;
	}
	return 0;
}

static void fill_state(const struct rds_sock *sk, struct rds_share_state *st)
{
	memset(st, 0, sizeof(*st));
	st->magic = RDS_SHARE_MAGIC;
	st->version = RDS_SHARE_VERSION;
	st->name = sk->name;
	st->reg_idx = sk->reg_idx;
	st->laddr = sk->laddr;
	st->caddr = sk->caddr;
	st->bound_scope = sk->bound_scope;
	st->transport = atomic_load(&sk->transport);
	st->bound = rds_sock_bound(sk);
	st->connected = atomic_load(&sk->connected);
	st->no_rdma = atomic_load(&sk->no_rdma);
	st->tos_fixed = atomic_load(&sk->tos_fixed);
	st->recverr = atomic_load(&sk->recverr);
	st->zerocopy = atomic_load(&sk->zerocopy);
	st->inq = atomic_load(&sk->inq);
	st->cong_monitor = sk->cong_monitor;
	st->tos = atomic_load(&sk->tos);
	st->timestamp = atomic_load(&sk->timestamp);
	st->err = atomic_load(&sk->err);
	st->sol_rds = atomic_load(&sk->sol_rds);
	st->sndbuf = atomic_load(&sk->sndbuf);
	st->rcvbuf = atomic_load(&sk->rcvbuf);
	st->rx_trace = atomic_load(&sk->rx_trace);
	st->generic = atomic_load(&sk->generic);
	st->sndtimeo_ns = atomic_load(&sk->sndtimeo_ns);
	st->rcvtimeo_ns = atomic_load(&sk->rcvtimeo_ns);
	st->cong_mask = sk->cong_mask;
	st->cong_notify = sk->cong_notify;
}

/* rx held. The queue stays as it is. */
static int write_file(struct rds_sock *sk, int fd, off_t *size)
{
	struct rds_share_state st;
	struct rds_inc *inc;
	int err;

	fill_state(sk, &st);
	for (inc = sk->rx_head; inc; inc = inc->next)
		st.n_messages++;
	err = rds_deposit_put(fd, size, &st, sizeof(st));
	for (inc = sk->rx_head; inc && !err; inc = inc->next) {
		struct rds_share_message m = {.saddr = inc->saddr,
					      .sport = inc->sport,
					      .tos = inc->tos,
					      .len = inc->len,
					      .cookie = inc->cookie,
					      .real_ns = inc->real_ns};

		memcpy(m.trace_ns, inc->trace_ns, sizeof(m.trace_ns));
		err = rds_deposit_put(fd, size, &m, sizeof(m));
		if (!err)
			err = rds_deposit_put(fd, size, inc->data, inc->len);
	}
	return err;
}

/* ---- the packet ---- */

static int lies_there(int standin)
{
	int bytes = 0;

	os_syscall(SYS_ioctl, standin, SIOCINQ, (long)&bytes, 0, 0, 0);
	return bytes;
}

/* One packet: 1 the deposit, 0 something else, -EAGAIN nothing. */
static int read_one(int standin, int flags, struct rds_share_deposit *d, int fds[RDS_DEPOSIT_FDS])
{
	int got[OS_PASS_MAX];
	unsigned n, i;
	bool lost, is;
	ssize_t len = os_pass_recv(standin, d, sizeof(*d), got, &n, &lost, MSG_DONTWAIT | flags);

	if (len <= 0)
		return -EAGAIN;
	is = len == (ssize_t)sizeof(*d) && (n == 2 || n == 3) && !lost && d->magic == RDS_SHARE_MAGIC &&
	     d->version == RDS_SHARE_VERSION;
	if (is && !(flags & MSG_PEEK)) {
		for (i = 0; i < RDS_DEPOSIT_FDS; i++)
			fds[i] = i < n ? got[i] : -1;
		return 1;
	}
	for (i = 0; i < n; i++)
		os_close(got[i]);
	return is;
}

/*
 * A carrier that has no number of its own left cannot take away the byte by which it has shown that there is something to read: the deposit lies
 * behind it.  There is more than bytes, then; and who takes one off that a living carrier shows leaves others there.
 */
int rds_deposit_read(int standin, bool take, struct rds_share_deposit *d, int fds[RDS_DEPOSIT_FDS])
{
	int is;

	if (!take) {
		is = read_one(standin, MSG_PEEK, d, NULL);
		return is == 0 ? lies_there(standin) > (int)sizeof(*d) : is;
	}
	do {
		is = read_one(standin, 0, d, fds);
	} while (is == 0 && lies_there(standin) >= (int)sizeof(*d));
	return is;
}

/* What is shown there would be in the way.  (What is shown to writers lies on our end, and goes along.) */
static void clear_standin(struct rds_sock *sk, int standin)
{
	char byte[16];

	rds_lock(&rds_eng->wait);
	while (standin >= 0 && os_recv(standin, byte, sizeof(byte), MSG_DONTWAIT) > 0)
		;
	atomic_store(&sk->shown_in, false);
	rds_unlock(&rds_eng->wait);
}

static int deposit(struct rds_sock *sk, int standin)
{
	struct rds_share_deposit d = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	int pass[RDS_DEPOSIT_FDS] = {rds_sock_pair(sk), os_memfd("rds socket", MFD_CLOEXEC | MFD_ALLOW_SEALING)}, err;
	off_t size = 0;

	if (pass[1] < 0)
		return pass[1];
	rx_lock();
	atomic_store(&sk->closed_in, true);
	err = write_file(sk, pass[1], &size);
	rx_unlock();
	d.size = (uint64_t)size;
	if (!err)
		err = os_fcntl(pass[1], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
	clear_standin(sk, standin);
	pass[2] = rds_inbox_make(&sk->name);
	if (err >= 0)
		err = os_pass_send(pass[0], &d, sizeof(d), pass, pass[2] < 0 ? 2 : 3, MSG_DONTWAIT);
	os_close(pass[1]);
	if (pass[2] >= 0)
		os_close(pass[2]);
	return err < 0 ? err : 0;
}

/* ---- all of them ---- */

struct leaving {
	bool (*wanted)(struct rds_sock *sk);
	unsigned n;
	uint64_t unsent;
};

static void stop_one(struct rds_sock *sk, void *arg)
{
	struct leaving *l = arg;

	if (!atomic_load(&sk->open) || (l->wanted && !l->wanted(sk)))
		return;
	rx_lock();
	atomic_store(&sk->leaving, true);
	atomic_store(&sk->open, false);
	rx_unlock();
	l->n++;
}

static void count_unsent(struct rds_sock *sk, void *arg)
{
	struct leaving *l = arg;

	if (atomic_load(&sk->leaving))
		l->unsent += atomic_load(&sk->snd) & ~RDS_SND_DEAD;
}

/* Until the peers have accepted it: a second look is only taken if there was something. */
static void settle(struct leaving *l)
{
	uint64_t until = os_now_ns() + (uint64_t)rds_options()->linger_ms * 1000000;
	const struct timespec pause = {.tv_nsec = 100000};

	for (;;) {
		rds_reap_all();
		rds_inbox_fill();
		l->unsent = 0;
		rds_sock_each(count_unsent, l);
		if (!l->unsent || os_now_ns() >= until)
			return;
		rds_want_room_all();
		os_syscall(SYS_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
	}
}

static void say_lost(int err)
{
	/* The last copy has just been closed: the kernel says the latter if something was shown there. */
	if (err && err != -EPIPE && err != -ECONNRESET)
		rds_error("an RDS socket that other processes have ends with this one: it cannot be handed over (%s)",
			  strerror(-err));
}

static void make_nobodys(struct rds_sock *sk, void *arg)
{
	int err;

	(void)arg;
	if (!atomic_load(&sk->leaving))
		return;
	err = registry_sock_leave(rds_eng->reg, sk->reg_idx, &sk->name);
	sk->nobodys = !err;
	say_lost(err);
}

static void hand_in(struct rds_sock *sk, void *arg)
{
	int standin = rds_hook_number ? rds_hook_number(sk) : -1;

	(void)arg;
	if (atomic_load(&sk->leaving) && sk->nobodys)
		say_lost(deposit(sk, standin));
}

static void take_in(void)
{
	unsigned i;

	for (i = 0; i < ROUNDS && rds_progress(); i++)
		;
}

static unsigned leave(bool (*wanted)(struct rds_sock *sk), bool patient)
{
	struct leaving l = {.wanted = wanted};

	if (!rds_eng || rds_engine_foreign())
		return 0;
	take_in();
	rds_sock_each(stop_one, &l);
	if (!l.n)
		return 0;
	rds_helper_kick();
	/* The end of the helper's round: a call of another process that it was making has been answered, and there is none after it. */
	rds_engine_fork_prepare();
	rds_engine_fork_parent();
	if (patient)
		settle(&l);
	rds_sock_each(make_nobodys, NULL);
	take_in();
	rds_sock_each(hand_in, NULL);
	return l.n;
}

unsigned rds_leave(bool (*wanted)(struct rds_sock *sk))
{
	return leave(wanted, true);
}

struct lock_look {
	uint64_t until;
	bool free;
};

/* To be had, and given back: nobody below us on this thread's stack has it. */
static bool free_soon(rds_lock_t *lock, uint64_t until)
{
	while (!rds_trylock(lock))
		if (os_now_ns() >= until)
			return false;
	rds_unlock(lock);
	return true;
}

static void look_at_conn(struct rds_conn *conn, void *arg)
{
	struct lock_look *look = arg;

	look->free = look->free && free_soon(&conn->tx, look->until);
}

/* No send below us on this thread's stack either: then it can be waited for what was sent. */
static bool sends_are_free(uint64_t until)
{
	struct lock_look look = {.until = until, .free = true};

	while (look.free && !rds_reap_free())
		look.free = os_now_ns() < until;
	if (look.free)
		rds_conn_each(look_at_conn, &look);
	return look.free;
}

void rds_leave_now(void)
{
	uint64_t until = os_now_ns() + LOCK_TRIES_NS;

	if (!rds_eng || rds_engine_foreign())
		return;
	if (free_soon(&rds_eng->control, until) && free_soon(&rds_eng->rx, until) && free_soon(&rds_eng->wait, until))
		leave(NULL, sends_are_free(until));
}

/* ---- the program goes on after all ---- */

/*
 * Somebody else has it now, and may leave it to us some day: that will be another structure.  What its peers still send here has no socket;
 * what waited in the queue is in the deposit.
 */
static void let_go(struct rds_sock *sk)
{
	rx_lock();
	if (rds_sock_bound(sk))
		rds_bound_remove(sk);
	atomic_store(&sk->bound, false);
	rx_unlock();
	sk->inode = 0;
	os_close_slot(&sk->pair.n[0]);
}

static void take_back(struct rds_sock *sk, void *arg)
{
	int standin = rds_hook_number ? rds_hook_number(sk) : -1, fds[RDS_DEPOSIT_FDS], err;
	struct rds_share_deposit d;

	(void)arg;
	if (!atomic_load(&sk->leaving))
		return;
	if (standin < 0 || rds_deposit_read(standin, true, &d, fds) != 1) {
		let_go(sk);
		return;
	}
	os_close(fds[0]);
	os_close(fds[1]);
	err = fds[2] < 0 ? 0 : rds_inbox_empty(fds[2], sk);
	if (err)
		rds_error("messages that were left for an RDS socket are lost: %s", strerror(-err));
	if (registry_sock_take(rds_eng->reg, sk->reg_idx, &sk->name)) {
		let_go(sk);
		return;
	}
	rx_lock();
	atomic_store(&sk->leaving, false);
	atomic_store(&sk->closed_in, false);
	sk->nobodys = false;
	if (rds_sock_bound(sk))
		rds_cong_check(sk);
	atomic_store(&sk->open, true);
	rds_sock_wake(sk, POLLIN | POLLRDNORM | POLLOUT);
	rx_unlock();
}

void rds_leave_not(void)
{
	if (!rds_eng || rds_engine_foreign())
		return;
	rds_sock_each(take_back, NULL);
	rds_helper_kick();
}

bool rds_sock_is_leaving(struct rds_sock *sk)
{
	return atomic_load(&sk->leaving);
}
