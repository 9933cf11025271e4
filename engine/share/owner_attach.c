/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * owner_attach.c - how a process that has got a descriptor of a socket becomes a borrower of it
 * (protocol.h): the owner reads its attach request off our end of the stand-in's pair, and
 * answers with the descriptors with which the borrower can take over.
 *
 * Helper thread only, apart from rds_owner_look_later() and rds_owner_call_waits().
 *
 * Any process with the descriptor can send anything: input that is no attach request is thrown
 * away, and the log says so.
 *
 * Channels are kept for as long as their processes have the socket, most of them unused.  When
 * there is no descriptor for another channel, the helper's reserve is given up.  After that the
 * channels that have been idle for longest are closed: their borrowers make another one with their
 * next call.
 *
 * Must not know what is asked for over a channel.
 */
#include <asm/ioctls.h>
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "engine/share/owner.h"
#include "engine/node/socket_name.h"
#include "engine/sys/patience.h"
#include "engine/share/lease.h"
#include "engine/progress/progress.h"

#define ROOM 4			 /* channels to close: a new one needs two descriptors at first */
#define ROOM_AGAIN_NS 100000000	 /* between searches for channels to close */
#define GIVEN_AGAIN_NS 250000000 /* between looks at borrowers that leave a message unread */

static bool fd_is_standin_of(const struct rds_sock *sk, int fd)
{
	struct stat st;

	return os_fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == sk->inode;
}

/* Takes the descriptor. */
static struct rds_owner *owner_new(struct rds_sock *sk, int standin)
{
	struct rds_owner *c = calloc(1, sizeof(*c));

	if (!c) {
		os_close(standin);
		return NULL;
	}
	c->sk = sk;
	c->waiting_tail = &c->waiting;
	atomic_store(&c->standin, -1);
	if (os_dup_high_slot(standin, &c->standin) || !rds_owner_list(c)) {
		os_close_slot(&c->standin);
		free(c);
		return NULL;
	}
	rds_sock_hold(sk);
	rds_owner_shown_begin(c);
	registry_sock_set_shared(rds_node_registry, sk->reg_idx);
	return c;
}

/* The owner's number, another one each time that the socket has a new owner. */
static uint32_t owner_choose_id(struct rds_sock *sk)
{
	while (!sk->owner_id)
		os_random(&sk->owner_id, sizeof(sk->owner_id));
	return sk->owner_id;
}

/*
 * HELLO brings all descriptors with which the borrower can take over.  Not if the borrower is this
 * process: closing a second descriptor of the lease would give up our lock on it (lease.c).
 */
static int owner_send_hello(struct rds_owner_channel *h)
{
	struct rds_share_reply a = {
		.magic = RDS_SHARE_MAGIC, .kind = RDS_SHARE_HELLO, .owner_id = owner_choose_id(h->owner->sk)};
	int fds[RDS_LEASE_FDS], err;
	bool self = os_peer_is_self(atomic_load(&h->fd));
	struct stat st;
	unsigned n;

	os_fds_hold();
	n = self ? 0 : rds_lease_fds(h->owner->sk, fds);
	h->bare = !n && !self;
	if (n && os_fstat(fds[n - 1], &st) == 0)
		a.result = (int64_t)st.st_ino; /* tells this lease from another socket's */
	err = os_pass_send(atomic_load(&h->fd), &a, sizeof(a), fds, n, MSG_DONTWAIT);
	os_fds_release();
	return err;
}

/*
 * The borrower has asked for nothing for a while, and has read all replies.  Not the last channel
 * of the socket: it keeps the owner's copy of the stand-in, which shows readiness to those that
 * poll.
 */
static bool owner_channel_is_idle(const struct rds_owner_channel *h, uint64_t now)
{
	const uint64_t most = rds_patience_ns(RDS_PATIENCE_BORROWER_IDLE);
	int fd = atomic_load(&h->fd);

	return !h->call && now - h->used >= most && h->owner->channels->next && !os_bytes_there(fd, SIOCOUTQ) &&
	       !os_bytes_there(fd, SIOCINQ);
}

static struct rds_owner_channel *owner_channel_longest_idle(uint64_t now)
{
	struct rds_owner_channel *h, *best = NULL;
	struct rds_owner *c = NULL;

	while ((c = rds_owner_next(c)))
		for (h = c->channels; h; h = h->next)
			if ((!best || h->used < best->used) && owner_channel_is_idle(h, now))
				best = h;
	return best;
}

static uint64_t room_made; /* the time of the last search for channels to close */

/* In a timer, because a channel must not be freed while the helper has an event of it at hand. */
static void owner_make_room(struct rds_timer *tm)
{
	struct rds_owner_channel *h;
	unsigned i;

	(void)tm;
	room_made = os_now_ns();
	for (i = 0; i < ROOM && (h = owner_channel_longest_idle(room_made)); i++)
		rds_owner_channel_end(h, true);
}

static struct rds_timer room = {.fn = owner_make_room};

bool rds_owner_want_room(void)
{
	uint64_t now = os_now_ns();

	if (rds_helper_reserve_release())
		return true;
	if (!rds_timer_is_set(&room))
		rds_timer_set(&room, now - room_made < ROOM_AGAIN_NS ? room_made + ROOM_AGAIN_NS : now);
	return false;
}

/* It has no threads any more, whether it was waited for or not.  False if that is unknown. */
static bool process_has_ended(int pid)
{
	int fd = (int)os_syscall(SYS_pidfd_open, pid, 0, 0, 0, 0, 0);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	bool gone;

	if (fd < 0) /* -EINVAL: the number is still that of a process group or session */
		return fd == -ESRCH || fd == -ENOENT || fd == -EINVAL;
	gone = os_poll(&p, 1, 0) > 0;
	os_close(fd);
	return gone;
}

static bool owner_reply_lies_there(const struct rds_owner_channel *h)
{
	return os_bytes_there(atomic_load(&h->fd), SIOCOUTQ) != 0;
}

/*
 * The first channel with an unread message whose process has ended.  *wait: there is an unread
 * message whose process may still read it.  A process may read its message and end between two
 * looks, so the last one is at a process that has ended.
 */
static struct rds_owner_channel *owner_channel_find_dead(bool *wait)
{
	struct rds_owner *c = NULL;
	struct rds_owner_channel *h;

	*wait = false;
	while ((c = rds_owner_next(c)))
		for (h = c->channels; h; h = h->next) {
			if (!h->unread || !h->pid || !owner_reply_lies_there(h))
				continue;
			if (!process_has_ended(h->pid))
				*wait = true;
			else if (owner_reply_lies_there(h))
				return h;
		}
	return NULL;
}

/*
 * A channel hangs up when its process ends, but not if the process has a child by a bare clone(2),
 * which has copies of all descriptors.  The child reads nothing from the channel (borrower_pool.c),
 * so an unread message goes back.
 */
static void owner_check_unread(struct rds_timer *tm)
{
	struct rds_owner_channel *h;
	bool wait;

	while ((h = owner_channel_find_dead(&wait)))
		rds_owner_channel_end(h, false);
	if (wait)
		rds_timer_set(tm, os_now_ns() + GIVEN_AGAIN_NS);
}

static struct rds_timer given = {.fn = owner_check_unread};

void rds_owner_reply_unread(void)
{
	rds_timer_need(&given, os_now_ns() + GIVEN_AGAIN_NS);
}

/* Takes the channel. */
static int owner_channel_new(struct rds_owner *c, int channel)
{
	struct rds_owner_channel *h = calloc(1, sizeof(*h));
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
	rds_owner_channel_init(h);
	h->pid = os_peer_cred(atomic_load(&h->fd), &cred) ? cred.pid : 0;
	h->used = os_now_ns();
	h->owner = c;
	err = rds_helper_event_add(&h->ev, &h->fd, EPOLLIN | EPOLLRDHUP);
	if (!err)
		err = owner_send_hello(h);
	if (err) {
		rds_helper_event_del(atomic_load(&h->fd)); /* other processes may have copies */
		os_close_slot(&h->fd);
		free(h);
		return err;
	}
	h->next = c->channels;
	c->channels = h;
	return 0;
}

/*
 * A channel that is an end of a socket's own pair is refused: our copy of it would keep the socket
 * open, and read input that is for other processes.
 */
static bool fd_is_of_socket(const struct rds_sock *sk, int fd)
{
	return fd_is_standin_of(sk, fd) || rds_node_name_read(fd, NULL) || rds_node_name_is_peer(fd, &sk->name);
}

static bool attach_is_sound(const struct rds_sock *sk, const struct rds_share_attach *hello, const int *fds,
			    unsigned nfds)
{
	if (nfds < 2)
		rds_warn_once(
			"another process cannot share an RDS socket, because descriptors were lost: " RDS_LOG_EMFILE);
	else if (nfds == 2 && hello->magic == RDS_SHARE_MAGIC && hello->version == RDS_SHARE_VERSION)
		/* else no library has sent this */
		return fd_is_standin_of(sk, fds[1]) && !fd_is_of_socket(sk, fds[0]);
	else
		rds_warn_once("a process has version %u of the protocol of shared RDS sockets, this one version %u: "
			      "use the same librdspreload.so for both",
			      hello->version, RDS_SHARE_VERSION);
	return false;
}

/* A process whose attach request is refused need not ask again. */
static void attach_refuse(int channel)
{
	const struct rds_share_reply a = {.magic = RDS_SHARE_MAGIC, .kind = RDS_SHARE_RETRY};

	os_pass_send(channel, &a, sizeof(a), NULL, 0, MSG_DONTWAIT);
}

static void attach_accept(struct rds_sock *sk, const struct rds_share_attach *hello, bool quiet, const int *fds,
			  unsigned nfds)
{
	struct rds_owner *c;
	int err;

	if (!attach_is_sound(sk, hello, fds, nfds)) {
		if (nfds >= 2 && !fd_is_of_socket(sk, fds[0]))
			attach_refuse(fds[0]);
		while (nfds--)
			os_close(fds[nfds]);
		return;
	}
	c = rds_owner_find(sk);
	if (c)
		os_close(fds[1]);
	else
		c = owner_new(sk, fds[1]);
	if (!c) {
		rds_owner_want_room();
		os_close(fds[0]);
		return;
	}
	rx_lock();
	rds_progress_others_watch(); /* a quiet borrower waits for what we tell it */
	rx_unlock();
	if (!quiet)
		rds_sock_watch(sk, atomic_load(&c->standin), false); /* before it can poll */
	err = owner_channel_new(c, fds[0]);
	if (err == -EMFILE)
		rds_owner_want_room();
	/* -EPIPE, -ECONNRESET: the borrower has closed the channel again, or has ended. */
	if (err && err != -EPIPE && err != -ECONNRESET)
		rds_warn_once("an RDS socket cannot be shared with another process just now: %s", strerror(-err));
	if (!c->channels)
		rds_owner_end(c);
	else if (c->channels->bare)
		rds_lease_make_late(sk);
}

bool rds_owner_call_waits(struct rds_sock *sk)
{
	return os_bytes_there(rds_sock_pair_fd(sk), SIOCINQ) >= (int)sizeof(struct rds_share_attach);
}

/* Input that is no attach request, with the descriptors that came with it. */
static void attach_drop_stray(const int *fds, unsigned nfds)
{
	while (nfds--)
		os_close(fds[nfds]);
	rds_warn_once(
		"a call that was not interposed (stdio, io_uring, raw system call, libc handle) wrote to an RDS socket; its "
		"data went nowhere. See librdspreload(7), Limits");
}

enum { HEARD, UNHEARD, TURN }; /* of look_later: read; to be read; to be read in this round */

static void sock_mark_turn(struct rds_sock *sk, void *arg)
{
	unsigned marked = UNHEARD;

	(void)arg;
	atomic_compare_exchange_strong(&sk->look_later, &marked, TURN);
}

static void sock_take_turn(struct rds_sock *sk, void *arg)
{
	struct rds_sock **found = arg;
	unsigned marked = TURN;

	if (*found || atomic_load(&sk->look_later) != TURN || !rds_sock_get(sk))
		return;
	atomic_compare_exchange_strong(&sk->look_later, &marked, HEARD);
	*found = sk;
}

/* Each marked socket once: one that is marked again meanwhile waits for the next round. */
static void owner_look_marked(struct rds_timer *tm)
{
	struct rds_sock *sk;

	(void)tm;
	rds_sock_each(sock_mark_turn, NULL);
	for (;;) {
		sk = NULL;
		rds_sock_each(sock_take_turn, &sk);
		if (!sk)
			return;
		rds_owner_pair_readable(sk);
		rds_sock_put(sk);
	}
}

static struct rds_timer heard = {.fn = owner_look_marked};

void rds_owner_look_later(struct rds_sock *sk)
{
	atomic_store(&sk->look_later, UNHEARD);
	rds_timer_set(&heard, os_now_ns());
}

void rds_owner_attach_forget(void)
{
	heard.queued = false;
	room.queued = false;
	given.queued = false;
}

/*
 * On our end of a stand-in's pair there may be filler (bytes that make it show "not writable"), the
 * attach requests of processes that got a descriptor and want to share the socket, or bytes that no
 * interposed call can have written.
 */
void rds_owner_pair_readable(struct rds_sock *sk)
{
	int fds[OS_PASS_MAX], pair = rds_sock_pair_fd(sk);
	struct rds_share_attach hello;
	unsigned nfds, most = RDS_EVENT_MAX;
	bool filler = false, lost;
	struct rds_owner *c;
	ssize_t n;

	/* The filler makes an event, too.  It is a few bytes, and must stay there. */
	if (atomic_load(&sk->hidden_out) && os_bytes_there(pair, SIOCINQ) < (int)RDS_SHARE_QUIET)
		return;
	/*
	 * A borrower that attaches and ends at once may have had the last descriptor: then the
	 * socket is closed, and the descriptor number of our end may be another file's.
	 */
	while (most && atomic_load(&sk->open) && (pair = rds_sock_pair_fd(sk)) >= 0 &&
	       (n = os_pass_recv(pair, &hello, sizeof(hello), fds, &nfds, &lost, MSG_DONTWAIT)) >= 0 &&
	       (n || !os_recv_is_eof(pair))) {
		if (!--most)
			rds_owner_look_later(sk); /* edge-triggered: the rest makes no event */
		if (lost)
			rds_owner_want_room();
		if ((n == sizeof(hello) || n == RDS_SHARE_QUIET) && (nfds || lost))
			attach_accept(sk, &hello, n == RDS_SHARE_QUIET, fds, nfds);
		else if (n == 1 && !nfds && !*(const char *)&hello)
			/* Else the filler is the last owner's, or we have just taken ours back. */
			filler |= atomic_load(&sk->hidden_out);
		else
			attach_drop_stray(fds, nfds);
	}
	if (!filler)
		return;
	c = rds_owner_find(sk);
	rds_sock_refill_out(sk, c ? atomic_load(&c->standin) : -1);
}
