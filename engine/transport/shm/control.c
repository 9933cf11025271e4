/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * control.c - packets on a control socket, and the queue of packets for which it has no room.
 *
 * A socket takes some hundred packets that the peer has not read yet, and two processes may have a
 * thousand connections.  A full socket only means that the peer's helper was busy, or stopped, for
 * a moment.  Packets that must arrive (REPLY, CLOSE) are queued and sent later, in order.  Packets
 * that can be sent at another time (CONNECT, LOOK) fail with -EAGAIN meanwhile, so that they never
 * overtake queued packets.  The same holds while the peer has no control socket (cold.c).
 *
 * The queue is bounded.  The control socket of a peer that sends requests and never reads the
 * answers is closed.  Helper thread only.
 */
#include <stdlib.h>

#include "engine/transport/shm/shm.h"

/* A REPLY and a CLOSE for each connection that a peer may have (1024), twice. */
#define CTL_QUEUE_MAX 4096

struct shm_ctl_pkt {
	struct shm_ctl_pkt *next;
	struct shm_ctl_msg msg;
};

int shm_ctl_send(int fd, const struct shm_ctl_msg *msg, const int *fds, unsigned nfds)
{
	return os_pass_send(fd, msg, sizeof(*msg), fds, nfds, MSG_DONTWAIT);
}

/* Another version's packets may have another size. */
static bool ctl_msg_valid(const struct shm_ctl_msg *msg, size_t len)
{
	if (len < offsetof(struct shm_ctl_msg, op) || msg->magic != SHM_MAGIC)
		return false;
	if (msg->version == SHM_VERSION)
		return len == sizeof(*msg);
	rds_error("a process speaks version %u of the shared-memory protocol, this library version %u: use the same "
		  "librdspreload.so for all processes of the host",
		  msg->version, SHM_VERSION);
	return false;
}

ssize_t shm_ctl_recv(int fd, struct shm_ctl_msg *msg, int fds[OS_PASS_MAX], unsigned *nfds)
{
	bool lost;
	ssize_t n = os_pass_recv(fd, msg, sizeof(*msg), fds, nfds, &lost, MSG_DONTWAIT);

	if (n < 0)
		return n;
	if (lost)
		rds_warn("cannot take the descriptors of another process: " RDS_LOG_EMFILE);
	return n == 0 || ctl_msg_valid(msg, (size_t)n) ? n : -EPROTO;
}

int shm_ctl_try(struct shm_peer *p, const struct shm_ctl_msg *msg, const int *fds, unsigned nfds)
{
	if (unlikely(p->warmth != SHM_WARM)) {
		if (p->warmth == SHM_COLD)
			shm_peer_defer(p, SHM_DEFER_WARM);
		return -EAGAIN;
	}
	return p->ctl_queue ? -EAGAIN : shm_ctl_send(p->fd, msg, fds, nfds);
}

static int ctl_pkt_queue(struct shm_peer *p, const struct shm_ctl_msg *msg)
{
	struct shm_ctl_pkt *u;

	if (p->ctl_nqueued == CTL_QUEUE_MAX) {
		rds_warn("process %d asks and does not read the answers: its connections with this one are broken",
			 (int)p->cred.pid);
		return -ENOBUFS;
	}
	u = malloc(sizeof(*u));
	if (!u)
		return -ENOMEM;
	u->next = NULL;
	u->msg = *msg;
	if (p->ctl_queue)
		p->ctl_queue_last->next = u;
	else
		p->ctl_queue = u;
	p->ctl_queue_last = u;
	p->ctl_nqueued++;
	return 0;
}

int shm_ctl_queue(struct shm_peer *p, const struct shm_ctl_msg *msg)
{
	int err = shm_ctl_try(p, msg, NULL, 0);

	/*
	 * A hang-up is handled after all packets that the peer has sent before have been read.  If it
	 * turns out that the peer has become cold, the packet goes on the next socket.
	 */
	if (err == -EAGAIN || shm_ctl_is_hang_up(err))
		err = ctl_pkt_queue(p, msg);
	return err;
}

static void ctl_pkt_drop_first(struct shm_peer *p)
{
	struct shm_ctl_pkt *u = p->ctl_queue;

	p->ctl_queue = u->next;
	p->ctl_nqueued--;
	free(u);
}

void shm_ctl_drop(struct shm_peer *p)
{
	while (p->ctl_queue)
		ctl_pkt_drop_first(p);
}

int shm_ctl_flush(struct shm_peer *p)
{
	int err;

	while (p->ctl_queue && p->warmth == SHM_WARM) {
		err = shm_ctl_send(p->fd, &p->ctl_queue->msg, NULL, 0);
		if (err == -EAGAIN || shm_ctl_is_hang_up(err)) /* as in shm_ctl_queue() */
			return 0;
		if (err)
			return err;
		ctl_pkt_drop_first(p);
	}
	return 0;
}
