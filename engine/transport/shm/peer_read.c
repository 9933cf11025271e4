/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * peer_read.c - what comes on a control socket: it is read, checked, and given to whom it is for.
 *
 * The first packet is HELLO.  The identity in it is compared with what the kernel tells.  A packet
 * that is not valid costs the peer its control socket.
 *
 * Helper thread only.  Must not know how control sockets are made.
 */
#include <fcntl.h>
#include <string.h>

#include "engine/transport/shm/shm.h"

#define READ_PAUSE_NS (100 * 1000000ull)

/*
 * The identity that a process claims must agree with what the kernel tells: who has the lock in the
 * registry, or, of another user's process, who listens under that id.
 */
static int peer_identity_check(struct shm_peer *p, const struct shm_ctl_msg *msg)
{
	uint32_t slot = msg->slot;
	int err = registry_proc_is_of(rds_node_registry, &slot, &msg->self, &p->cred);

	if (!err && (!p->dialled || !registry_slot_is_others(p->slot) || p->slot == slot)) {
		p->slot = slot;
		return 0;
	}
	if (err == -EAGAIN) {
		rds_warn_once("it cannot be told now whether process %d of user %u is what it says (no descriptor is "
			      "free, or too many ask it): it tries again; " RDS_LOG_EMFILE,
			      (int)p->cred.pid, (unsigned)p->cred.uid);
		return err;
	}
	rds_warn("process %d of user %u is refused: it is not the one that it says it is", (int)p->cred.pid,
		 (unsigned)p->cred.uid);
	return -EACCES;
}

/*
 * The program's threads write to the descriptors that wake the peer, so these must not block.  (A
 * process of another user that was accepted could clear O_NONBLOCK later; RDS_PRELOAD_SHARE trusts
 * it that far.)
 */
static int wake_fd_check(int fd, int *mode)
{
	int flags = os_fcntl(fd, F_GETFL, 0);
	struct stat st;

	if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || os_fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
		return -EPROTO;
	*mode = flags;
	return flags & O_NONBLOCK ? 0 : os_fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

int shm_peer_check_hello(struct shm_peer *p, const struct shm_ctl_msg *msg, const int fds[OS_PASS_MAX], int modes[2])
{
	int err = peer_identity_check(p, msg);

	if (!err)
		err = wake_fd_check(fds[0], &modes[0]);
	if (!err)
		err = wake_fd_check(fds[1], &modes[1]);
	return err;
}

/* The first HELLO of a peer, which has been checked. */
int shm_peer_learn(struct shm_peer *p, const struct shm_ctl_msg *hello, int inbox)
{
	int err = shm_inbox_attach(inbox, &p->inbox);

	if (err)
		return err;
	p->id = hello->self;
	p->known = true;
	p->wake_key = hello->wake_key;
	if (!p->dialled)
		p->session = hello->cookie;
	shm_fetch_learn(p, hello);
	return 0;
}

static int peer_on_hello(struct shm_peer *p, const struct shm_ctl_msg *msg, int fds[OS_PASS_MAX], unsigned nfds)
{
	int err, modes[2];

	if ((p->dialled || p->known) && memcmp(&p->id, &msg->self, sizeof(p->id)))
		return -EPROTO;
	if (p->known || p->warmth != SHM_WARM)
		return shm_cold_on_hello(p, msg, fds, nfds);
	if (nfds != 3)
		return -EPROTO;
	if (!p->dialled && msg->whose != SHM_SESSION_NEW)
		return shm_cold_on_return(p, msg, fds);
	if (!p->dialled && !p->cred.pid && shm_peer_too_many(&p->cred, &msg->self))
		return -EUSERS;
	err = shm_peer_check_hello(p, msg, fds, modes);
	if (!err)
		err = shm_peer_learn(p, msg, fds[2]);
	if (err)
		return err;
	shm_wake_fd_init(&p->leader, fds[0], modes[0], false);
	shm_wake_fd_init(&p->helper, fds[1], modes[1], false);
	fds[0] = fds[1] = -1;
	return 0;
}

static int peer_on_packet(struct shm_peer *p, const struct shm_ctl_msg *msg, int fds[OS_PASS_MAX], unsigned nfds)
{
	if (p->warmth == SHM_COOLING) /* COOL is the last one */
		return -EPROTO;
	p->used = true;
	rds_shm.answered_at = os_now_ns();
	switch (msg->op) {
	case SHM_OP_LOOK:
		shm_on_look(p, msg->peer_bell);
		return 0;
	case SHM_OP_HELLO:
		return peer_on_hello(p, msg, fds, nfds);
	case SHM_OP_CONNECT:
		return shm_on_connect(p, msg, fds, nfds);
	case SHM_OP_REPLY:
		return shm_on_reply(p, msg);
	case SHM_OP_CLOSE:
		shm_on_close(p, msg);
		return 0;
	case SHM_OP_COOL:
		return shm_cold_on_cool(p);
	case SHM_OP_WARM:
		return shm_cold_on_warm(p, msg);
	}
	return -EPROTO;
}

/* Reads control sockets that were not read to their end.  No edge comes for the rest. */
static void peers_read_rest(struct rds_timer *tm)
{
	struct shm_peer *p, *last = rds_shm.queue[SHM_UNREAD].last;

	(void)tm;
	do {
		p = shm_queue_take(SHM_UNREAD);
		if (p && !p->dead)
			shm_peer_event(&p->ev->ev, EPOLLIN);
	} while (p && p != last); /* those that come meanwhile have a timer */
}

static void peer_read_later(struct shm_peer *p, uint64_t ns)
{
	shm_queue_add(SHM_UNREAD, p);
	rds_shm.unread_timer.fn = peers_read_rest;
	(ns ? rds_timer_need : rds_timer_set)(&rds_shm.unread_timer, os_now_ns() + ns);
}

void shm_peer_read_later(struct shm_peer *p)
{
	peer_read_later(p, 0);
}

/*
 * A packet loses its descriptors if no number is free, so this is checked before a packet is
 * received.
 */
bool shm_peer_hello_fits(const struct shm_peer *p)
{
	return p->known || os_fds_available(p->fd, 3);
}

static bool peer_fds_fit(struct shm_peer *p)
{
	unsigned want = p->known && p->warmth == SHM_WARM ? 1 : 3;

	while (!os_fds_available(p->fd, want))
		if (!rds_helper_reserve_release() && !shm_cold_make_room(p, true)) {
			rds_warn(
				"cannot take the descriptors of another process, whose messages wait: " RDS_LOG_EMFILE);
			return false;
		}
	return true;
}

static void peer_hung_up(struct shm_peer *p, int why, bool by_peer)
{
	if (p->warmth == SHM_WARM || !by_peer)
		shm_peer_dead(p, why);
	else if (p->warmth != SHM_COLD)
		shm_cold_hung_up(p);
}

/* Takes one packet.  False: there is none, or no control socket any more. */
static bool peer_read_one(struct shm_peer *p, bool *reset)
{
	struct shm_ctl_msg msg;
	int fds[OS_PASS_MAX], err = 0;
	unsigned nfds, i;
	ssize_t n = shm_ctl_recv(p->fd, &msg, fds, &nfds);

	if (n == -EINTR)
		return true;
	if (n == -EAGAIN)
		return false;
	/*
	 * The peer has left packets unread.  Packets that it sent before can still be received.
	 */
	if (n == -ECONNRESET && !*reset) {
		*reset = true;
		return true;
	}
	if (n > 0) {
		p->reading = true;
		err = peer_on_packet(p, &msg, fds, nfds);
		p->reading = false;
	}
	for (i = 0; i < nfds; i++)
		if (fds[i] >= 0)
			os_close(fds[i]);
	if (n > 0 && !err)
		return !p->dead && p->fd >= 0;
	if (!p->dead)
		peer_hung_up(p, n < 0 ? (int)n : err ? err : -EPIPE, !err && n != -EPROTO);
	return false;
}

void shm_peer_read_all(struct shm_peer *p)
{
	bool reset = false;

	while (!p->dead && p->fd >= 0 && peer_read_one(p, &reset))
		;
}

void shm_peer_event(struct rds_helper_event *ev, uint32_t events)
{
	struct shm_peer *p = container_of(ev, struct shm_ctl_event, ev)->peer;
	unsigned most = RDS_EVENT_MAX;
	bool reset = false;
	int err;

	if (events & EPOLLOUT) {
		err = shm_ctl_flush(p);
		if (err)
			shm_peer_dead(p, err);
	}
	if (p->dead || p->fd < 0)
		return;
	if (!peer_fds_fit(p)) {
		peer_read_later(p, READ_PAUSE_NS);
		return;
	}
	while (peer_read_one(p, &reset))
		if (!most--) {
			peer_read_later(p, 0);
			return;
		}
}
