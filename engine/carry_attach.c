/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * carry_attach.c - how a process that has got a descriptor of a socket becomes a holder of it (share.h): what it has sent through the stand-in is
 * read off our end of the pair, and answered with what it takes to carry the socket on.  Helper thread only.
 *
 * Anybody with the descriptor can send anything: what is no request is thrown away, and said.
 * Must not know what is asked for over a channel.
 */
#include <asm/ioctls.h>
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "engine/carry.h"
#include "engine/will.h"

static bool is_standin(const struct rds_sock *sk, int fd)
{
	struct stat st;

	return os_fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == sk->inode;
}

/* Takes the descriptor. */
static struct rds_carry *carry_new(struct rds_sock *sk, int standin)
{
	struct rds_carry *c = calloc(1, sizeof(*c));

	if (!c) {
		os_close(standin);
		return NULL;
	}
	c->sk = sk;
	c->waiting_tail = &c->waiting;
	atomic_store(&c->standin, -1);
	if (os_dup_high_slot(standin, &c->standin) || !rds_carry_list(c)) {
		os_close_slot(&c->standin);
		free(c);
		return NULL;
	}
	rds_sock_hold(sk);
	registry_sock_held(rds_eng->reg, sk->reg_idx);
	return c;
}

/* Another one each time that the socket changes hands. */
static uint32_t number(struct rds_sock *sk)
{
	while (!sk->carrier)
		os_random(&sk->carrier, sizeof(sk->carrier));
	return sk->carrier;
}

/* With all that it takes to carry the socket on.  Not to ourselves: our lock on the will would go with the second number of it (will.c). */
static int greet(struct rds_holder *h)
{
	struct rds_share_answer a = {
		.magic = RDS_SHARE_MAGIC, .kind = RDS_SHARE_HELLO, .carrier = number(h->carry->sk)};
	int channel = atomic_load(&h->fd), fds[RDS_WILL_FDS];
	unsigned n = os_peer_is_self(channel) ? 0 : rds_will_fds(h->carry->sk, fds);
	struct stat st;

	h->bare = !n && !os_peer_is_self(channel);
	if (n && os_fstat(fds[n - 1], &st) == 0)
		a.result = (int64_t)st.st_ino; /* by which it is told from another socket's */
	return os_pass_send(channel, &a, sizeof(a), fds, n, MSG_DONTWAIT);
}

/* Takes the channel. */
static int holder_new(struct rds_carry *c, int channel)
{
	struct rds_holder *h = calloc(1, sizeof(*h));
	struct ucred cred;
	int err;

	if (!h) {
		os_close(channel);
		return -ENOMEM;
	}
	atomic_store(&h->fd, -1);
	err = os_dup_high_slot(channel, &h->fd);
	if (err) {
		free(h);
		return err;
	}
	rds_holder_begin(h);
	h->pid = os_peer(atomic_load(&h->fd), &cred) ? cred.pid : 0;
	h->carry = c;
	err = rds_event_add(&h->ev, atomic_load(&h->fd), EPOLLIN | EPOLLRDHUP);
	if (!err)
		err = greet(h);
	if (err) {
		rds_event_del(atomic_load(&h->fd)); /* others may have copies of it */
		os_close_slot(&h->fd);
		free(h);
		return err;
	}
	h->next = c->holders;
	c->holders = h;
	return 0;
}

static bool sound(const struct rds_sock *sk, const struct rds_share_attach *hello, const int *fds, unsigned nfds)
{
	if (nfds < 2)
		rds_warn_once("what came to share an RDS socket with was lost: raise `ulimit -n` of this process");
	else if (nfds == 2 && hello->magic == RDS_SHARE_MAGIC && hello->version == RDS_SHARE_VERSION)
		return is_standin(sk, fds[1]); /* else nothing that a library says */
	else
		rds_warn_once("a process speaks version %u of sharing RDS sockets, this one %u: give both one library",
			      hello->version, RDS_SHARE_VERSION);
	return false;
}

static void attach(struct rds_sock *sk, const struct rds_share_attach *hello, bool quiet, const int *fds, unsigned nfds)
{
	struct rds_carry *c;
	int err;

	if (!sound(sk, hello, fds, nfds)) {
		while (nfds--)
			os_close(fds[nfds]);
		return;
	}
	c = rds_carry_of(sk);
	if (c)
		os_close(fds[1]);
	else
		c = carry_new(sk, fds[1]);
	if (!c) {
		os_close(fds[0]);
		return;
	}
	rx_lock();
	rds_others_watch(); /* a quiet one waits for what we tell it */
	rx_unlock();
	if (!quiet)
		rds_sock_watch(sk, atomic_load(&c->standin), false); /* before the holder can look */
	err = holder_new(c, fds[0]);
	if (err && err != -EPIPE && err != -ECONNRESET) /* it has closed it again, or ended */
		rds_warn_once("an RDS socket cannot be shared with another process just now: %s", strerror(-err));
	if (!c->holders)
		rds_carry_end(c);
	else if (c->holders->bare)
		rds_will_late(sk);
}

static int lies_there(int pair)
{
	int bytes = 0;

	os_syscall(SYS_ioctl, pair, SIOCINQ, (long)&bytes, 0, 0, 0);
	return bytes;
}

bool rds_carry_asked(struct rds_sock *sk)
{
	return lies_there(rds_sock_pair(sk)) >= (int)sizeof(struct rds_share_attach);
}

/* With whatever descriptors it has brought. */
static void stray(const int *fds, unsigned nfds)
{
	while (nfds--)
		os_close(fds[nfds]);
	rds_warn_once(
		"a call that was not interposed (io_uring, raw system call, libc handle) wrote to an RDS socket; its "
		"data went nowhere. See librdspreload(7), Limits");
}

/*
 * On our end of a stand-in's pair lies filler (bytes that show "not writable"), what processes say that got a descriptor and want to
 * share the socket, or bytes that no interposed call can have written.
 */
void rds_carry_look(struct rds_sock *sk)
{
	int fds[OS_PASS_MAX], pair = rds_sock_pair(sk);
	struct rds_share_attach hello;
	bool filler = false, lost;
	struct rds_carry *c;
	unsigned nfds;
	ssize_t n;

	/* The filler announces itself, too.  It is a few bytes, and to be left there. */
	if (atomic_load(&sk->hidden_out) && lies_there(pair) < (int)RDS_SHARE_QUIET)
		return;
	/* Who attaches and ends at once may have been the last one: then it is closed, and its number somebody else's. */
	while (atomic_load(&sk->open) && (pair = rds_sock_pair(sk)) >= 0 &&
	       (n = os_pass_recv(pair, &hello, sizeof(hello), fds, &nfds, &lost, MSG_DONTWAIT)) >= 0 &&
	       (n || !os_at_end(pair))) {
		if ((n == sizeof(hello) || n == RDS_SHARE_QUIET) && (nfds || lost))
			attach(sk, &hello, n == RDS_SHARE_QUIET, fds, nfds);
		else if (n == 1 && !nfds && !*(const char *)&hello)
			filler |= atomic_load(&sk->hidden_out); /* else the last carrier's, or just taken back */
		else
			stray(fds, nfds);
	}
	if (!filler)
		return;
	c = rds_carry_of(sk);
	rds_sock_hide_again(sk, c ? atomic_load(&c->standin) : -1);
}
