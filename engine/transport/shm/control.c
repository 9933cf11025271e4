/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * control.c - packets on a control socket, and those that it has no room for at the moment.
 *
 * A socket takes some hundred packets that the peer has not read yet, and two processes may have a thousand connections: a
 * full one says nothing about the peer but that its helper has been busy, or stopped, for a moment.  What must arrive (REPLY,
 * CLOSE) is kept and said later, in order.  What can be said another time (CONNECT, LOOK) fails with -EAGAIN meanwhile, so that it
 * never overtakes what is kept.
 *
 * What a peer can make us keep is bounded: one that asks and asks and never reads is hung up on.  Helper thread only.
 */
#include <stdlib.h>

#include "engine/transport/shm/shm.h"

/* A REPLY and a CLOSE for each connection that a peer may have (1024), twice. */
#define UNSAID_MAX 4096

struct shm_unsaid {
	struct shm_unsaid *next;
	struct shm_ctl_msg msg;
};

int shm_ctl_send(int fd, const struct shm_ctl_msg *msg, const int *fds, unsigned nfds)
{
	return os_pass_send(fd, msg, sizeof(*msg), fds, nfds, MSG_DONTWAIT);
}

ssize_t shm_ctl_recv(int fd, struct shm_ctl_msg *msg, int fds[OS_PASS_MAX], unsigned *nfds)
{
	bool lost;
	ssize_t n = os_pass_recv(fd, msg, sizeof(*msg), fds, nfds, &lost, MSG_DONTWAIT);

	if (n < 0)
		return n;
	if (lost)
		rds_warn("cannot take the descriptors of another process: this one has too many open (ulimit -n?)");
	if (n != 0 && (n != sizeof(*msg) || msg->magic != SHM_MAGIC))
		n = -EPROTO;
	return n;
}

int shm_try(struct shm_peer *p, const struct shm_ctl_msg *msg, const int *fds, unsigned nfds)
{
	return p->unsaid ? -EAGAIN : shm_ctl_send(p->fd, msg, fds, nfds);
}

static int keep(struct shm_peer *p, const struct shm_ctl_msg *msg)
{
	struct shm_unsaid *u;

	if (p->nunsaid == UNSAID_MAX) {
		rds_warn("process %d asks and does not read the answers: its connections with this one are broken",
			 (int)p->pid);
		return -ENOBUFS;
	}
	u = malloc(sizeof(*u));
	if (!u)
		return -ENOMEM;
	u->next = NULL;
	u->msg = *msg;
	if (p->unsaid)
		p->unsaid_last->next = u;
	else
		p->unsaid = u;
	p->unsaid_last = u;
	p->nunsaid++;
	return 0;
}

int shm_say(struct shm_peer *p, const struct shm_ctl_msg *msg)
{
	int err = shm_try(p, msg, NULL, 0);

	if (err == -EAGAIN)
		err = keep(p, msg);
	/* A hang-up shows itself when everything that the peer had said has been read. */
	return err == -EPIPE || err == -ECONNRESET ? 0 : err;
}

static void drop_first(struct shm_peer *p)
{
	struct shm_unsaid *u = p->unsaid;

	p->unsaid = u->next;
	p->nunsaid--;
	free(u);
}

void shm_unsaid_drop(struct shm_peer *p)
{
	while (p->unsaid)
		drop_first(p);
}

int shm_say_rest(struct shm_peer *p)
{
	int err;

	while (p->unsaid) {
		err = shm_ctl_send(p->fd, &p->unsaid->msg, NULL, 0);
		if (err == -EAGAIN)
			return 0;
		if (err == -EPIPE || err == -ECONNRESET) /* as above */
			shm_unsaid_drop(p);
		else if (err)
			return err;
		else
			drop_first(p);
	}
	return 0;
}
