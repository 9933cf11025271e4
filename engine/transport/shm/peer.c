/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * peer.c - making and breaking connections between processes of one host.
 *
 * Every process listens on an abstract AF_UNIX address made of its process id (it needs no file and is gone with the
 * process).  Two processes share one control socket for all their connections: HELLO once from each side (who am I, how
 * to wake me), then per connection CONNECT with the ring memory, answered by REPLY.  The control socket hangs up at the instant
 * the peer dies; what it had published by then is still received.
 *
 * Runs in the helper thread only.  Who may talk to us: same user, or as RDS_PRELOAD_SHARE says (checked by the kernel's
 * credentials of the socket, not by anything the peer says).
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/transport/shm/shm.h"

#define LAST_TRIES 100
#define LISTEN_PAUSE_NS (100 * 1000000ull)

struct shm rds_shm;

static void peer_event(struct rds_event *ev, uint32_t events);

static socklen_t address_of(const struct rds_procid *id, struct sockaddr_un *un)
{
	unsigned i;
	int n = 0;

	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "rdspreload-shm-");
	for (i = 0; i < RDS_PROCID_LEN; i++)
		n += snprintf(un->sun_path + 1 + n, 3, "%02x", id->b[i]);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool allowed(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (os_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return false;
	if (cred.uid == geteuid() || rds_options()->share == RDS_SHARE_ALL)
		return true;
	if (rds_options()->share == RDS_SHARE_GROUP && cred.gid == getegid())
		return true;
	rds_warn("process %d of user %u is refused: RDS_PRELOAD_SHARE allows only the same %s", (int)cred.pid,
		 (unsigned)cred.uid, rds_options()->share == RDS_SHARE_GROUP ? "group" : "user");
	return false;
}

/* ---- peers ---- */

static struct shm_peer *peer_new(int fd)
{
	struct shm_peer *p = calloc(1, sizeof(*p));

	if (!p) {
		os_close(fd);
		return NULL;
	}
	p->ev.fn = peer_event;
	atomic_store(&p->leader_fd, -1);
	if (os_dup_high_slot(fd, &p->ev.fd) < 0) {
		free(p);
		return NULL;
	}
	if (rds_event_add(&p->ev, EPOLLIN | EPOLLRDHUP) < 0) {
		os_close_slot(&p->ev.fd);
		free(p);
		return NULL;
	}
	p->next = rds_shm.peers;
	rds_shm.peers = p;
	return p;
}

static int say_hello(struct shm_peer *p)
{
	struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_HELLO};
	int fds[2] = {rds_leader_fd(), rds_shm.inbox_fd};

	msg.self = *registry_self(rds_engine_registry());
	msg.slot = registry_self_slot(rds_engine_registry());
	return shm_ctl_send(p->ev.fd, &msg, fds, 2);
}

/* If both have dialled, both sides use the socket of the smaller id: what they say stays in order. */
static struct shm_peer *peer_find(const struct rds_procid *id)
{
	bool ours = memcmp(registry_self(rds_engine_registry()), id, sizeof(*id)) < 0;
	struct shm_peer *p, *found = NULL;

	for (p = rds_shm.peers; p; p = p->next)
		if (!p->dead && memcmp(&p->id, id, sizeof(*id)) == 0 && (!found || p->dialled == ours))
			found = p;
	return found;
}

static int peer_dial(const struct rds_conn_id *id, struct shm_peer **out)
{
	struct sockaddr_un un;
	socklen_t len = address_of(&id->peer, &un);
	int fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;
	struct shm_peer *p;

	if (fd < 0)
		return fd;
	err = os_connect(fd, (struct sockaddr *)&un, len);
	if (!err && !allowed(fd))
		err = -EACCES;
	if (err < 0) {
		os_close(fd);
		return err;
	}
	p = peer_new(fd);
	if (!p)
		return -ENOMEM;
	p->id = id->peer;
	p->slot = id->peer_slot;
	p->dialled = true;
	err = say_hello(p);
	*out = p;
	return err;
}

/* What the peer had published is still received. If memory is short, it may be the last chance to do so. */
static void ep_down(struct shm_ep *ep, int why, bool gone)
{
	struct rds_transport *t = ep->head.t;
	unsigned tries = LAST_TRIES;

	rx_lock();
	while (ep->up && !ep->broken && atomic_load(&ep->rx->tail) != ep->read)
		if (!shm_ring_drain(ep) && (!gone || --tries == 0))
			break;
	rx_unlock();
	if (!tries)
		rds_error("out of memory: messages of a process that has ended are lost");
	t->up->down(ep->head.conn, (struct rds_ep *)ep, why, gone); /* closes ep */
}

/* The control socket is gone: every connection over it is, too. */
static void peer_dead(struct shm_peer *p, int why)
{
	/* Slot and id are what HELLO said or what we dialled; with neither there is no connection to tell. */
	bool gone = !p->eps || !registry_proc_alive(rds_engine_registry(), p->slot, &p->id);

	if (p->dead)
		return;
	p->dead = true;
	rds_event_del(&p->ev);
	while (p->eps)
		ep_down(p->eps, why, gone);
	os_close_slot(&p->ev.fd);
	os_close_slot(&p->leader_fd);
	if (p->inbox)
		munmap(p->inbox, SHM_CTL_BYTES);
	p->inbox = NULL;
}

/* Helper, between events: nothing can name a dead peer any more. */
void rds_shm_reclaim(void)
{
	struct shm_peer **pp = &rds_shm.peers, *p;

	while ((p = *pp)) {
		if (!p->dead) {
			pp = &p->next;
			continue;
		}
		*pp = p->next;
		free(p);
	}
}

/* ---- endpoints ---- */

static struct shm_ep *ep_new(struct shm_peer *p, struct rds_transport *t, bool initiator)
{
	struct shm_ep *ep = calloc(1, sizeof(*ep));
	int err;

	if (!ep)
		return NULL;
	ep->head.t = t;
	ep->initiator = initiator;
	rx_lock();
	err = shm_bell_add(ep);
	rx_unlock();
	if (err) {
		free(ep);
		return NULL;
	}
	ep->peer = p;
	ep->peer_next = p->eps;
	p->eps = ep;
	return ep;
}

void shm_close(struct rds_ep *rep)
{
	struct shm_ep *ep = (struct shm_ep *)rep, **pp;
	struct shm_peer *p = ep->peer;
	struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_CLOSE};

	if (p) {
		msg.cookie = ep->cookie;
		msg.peer_bell = ep->bell_there;
		msg.bell = ep->bell_here;
		msg.tos = ep->initiator; /* which of the two numberings `cookie` belongs to */
		if (!p->dead)
			shm_ctl_send(p->ev.fd, &msg, NULL, 0);
		for (pp = &p->eps; *pp; pp = &(*pp)->peer_next)
			if (*pp == ep) {
				*pp = ep->peer_next;
				break;
			}
	}
	rx_lock();
	shm_bell_del(ep);
	ep->peer = NULL;
	ep->closed = true;
	ep->up = false;
	if (ep->slot_first == ep->slot_next)
		shm_ep_free(ep);
	rx_unlock();
}

int shm_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, uint64_t rx_seq,
		struct rds_ep **out)
{
	struct shm_peer *p = peer_find(&id->peer);
	struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_CONNECT};
	struct shm_ep *ep;
	int fd = -1, err = 0;

	if (!p)
		err = peer_dial(id, &p);
	if (err)
		return err;
	ep = ep_new(p, t, true);
	if (!ep)
		return -ENOMEM;
	ep->head.conn = conn;
	ep->cookie = ++rds_shm.next_cookie;
	err = shm_rings_create(ep, (uint32_t)rds_options()->shm_ring, &fd);
	if (!err) {
		msg.laddr = id->laddr;
		msg.faddr = id->faddr;
		msg.scope = id->scope;
		msg.tos = id->tos;
		msg.bell = ep->bell_here;
		msg.rx_seq = rx_seq;
		msg.ring = ep->size;
		msg.cookie = ep->cookie;
		err = shm_ctl_send(p->ev.fd, &msg, &fd, 1);
		os_close(fd);
	}
	if (err) {
		shm_close((struct rds_ep *)ep);
		return err;
	}
	*out = (struct rds_ep *)ep;
	return 0;
}

static void ep_up(struct shm_ep *ep, uint64_t ack)
{
	ep->there = ep->peer->inbox;
	rx_lock();
	ep->up = true;
	shm_ring_own_bell(ep); /* the peer was up before us: its bell may have rung in vain */
	rx_unlock();
	ep->head.t->up->up(ep->head.conn, (struct rds_ep *)ep, ack);
}

/* ---- packets ---- */

/* What a process of another user says of itself has to agree with the registry's lock, which only the kernel gives. */
static bool identity_holds(const struct shm_peer *p, const struct shm_ctl_msg *msg)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (os_getsockopt(p->ev.fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return false;
	if (cred.uid == geteuid() || registry_proc_pid_is(rds_engine_registry(), msg->slot, &msg->self, cred.pid))
		return true;
	rds_warn("process %d of user %u is refused: it is not the one that it says it is", (int)cred.pid,
		 (unsigned)cred.uid);
	return false;
}

/*
 * The descriptor that wakes the peer's leader is written to by the program's threads: it must be of a kind that never blocks
 * them.  (A process of another user that we let in could take O_NONBLOCK away again later; RDS_PRELOAD_SHARE trusts it that far.)
 */
static int check_leader(struct shm_peer *p, int fd)
{
	int flags = os_fcntl(fd, F_GETFL, 0);
	struct stat st;

	if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || os_fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
		return -EPROTO;
	p->leader_lasts = (flags & O_ACCMODE) == O_RDWR;
	return flags & O_NONBLOCK ? 0 : os_fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

static int on_hello(struct shm_peer *p, const struct shm_ctl_msg *msg, int fds[2], unsigned nfds)
{
	int err;

	if (p->known || nfds != 2 || (p->dialled && memcmp(&p->id, &msg->self, sizeof(p->id))))
		return -EPROTO;
	err = identity_holds(p, msg) ? check_leader(p, fds[0]) : -EACCES;
	if (err)
		return err;
	p->inbox = shm_inbox_attach(fds[1]);
	os_close(fds[1]);
	fds[1] = -1;
	if (!p->inbox)
		return -EPROTO;
	err = os_dup_high_slot(fds[0], &p->leader_fd);
	fds[0] = -1;
	if (err < 0)
		return err;
	p->id = msg->self;
	p->slot = msg->slot;
	p->known = true;
	return 0;
}

static int on_connect(struct shm_peer *p, const struct shm_ctl_msg *msg, int fds[2], unsigned nfds)
{
	struct shm_ctl_msg reply = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_REPLY};
	struct rds_conn_id id = {.laddr = msg->faddr, .faddr = msg->laddr, .scope = msg->scope, .tos = msg->tos};
	struct rds_transport *t = &rds_shm.t;
	struct shm_ep *ep = NULL;
	int why = 0;

	if (!p->known || nfds != 1 || msg->bell >= SHM_BELLS)
		return -EPROTO;
	id.peer = p->id;
	id.peer_slot = p->slot;
	ep = ep_new(p, t, false);
	if (!ep)
		why = -ENOMEM;
	if (!why)
		why = shm_rings_attach(ep, msg->ring, fds[0]);
	if (!why) {
		ep->cookie = msg->cookie;
		ep->bell_there = msg->bell;
		ep->head.conn = t->up->accept(t, &id, msg->rx_seq, &reply.rx_seq, &why);
	}
	reply.err = why;
	reply.cookie = msg->cookie;
	reply.bell = ep ? ep->bell_here : 0;
	reply.peer_bell = msg->bell;
	if (why && ep) {
		ep->peer = NULL; /* the reply says it all: no CLOSE for it */
		p->eps = ep->peer_next;
		shm_close((struct rds_ep *)ep);
	}
	if (shm_ctl_send(p->ev.fd, &reply, NULL, 0))
		return -EPIPE; /* the peer does not read: start over */
	if (!why)
		ep_up(ep, msg->rx_seq);
	return 0;
}

static struct shm_ep *ep_by_cookie(struct shm_peer *p, uint64_t cookie, bool initiator)
{
	struct shm_ep *ep;

	for (ep = p->eps; ep; ep = ep->peer_next)
		if (ep->cookie == cookie && ep->initiator == initiator)
			return ep;
	return NULL;
}

static int on_reply(struct shm_peer *p, const struct shm_ctl_msg *msg)
{
	struct shm_ep *ep = ep_by_cookie(p, msg->cookie, true);

	if (!ep) /* given up meanwhile: the peer has been told by CLOSE */
		return 0;
	if (!p->known || ep->up || msg->bell >= SHM_BELLS)
		return -EPROTO;
	if (msg->err) {
		ep->head.t->up->down(ep->head.conn, (struct rds_ep *)ep, msg->err < 0 ? msg->err : -EPROTO, false);
		return 0;
	}
	ep->bell_there = msg->bell;
	ep_up(ep, msg->rx_seq);
	return 0;
}

static int on_packet(struct shm_peer *p, const struct shm_ctl_msg *msg, int fds[2], unsigned nfds)
{
	struct shm_ep *ep;

	if (msg->version != SHM_VERSION) {
		rds_error("a process speaks version %u of the shared-memory protocol, this library version %u: use the same "
			  "librdspreload.so for all processes of the host",
			  msg->version, SHM_VERSION);
		return -EPROTO;
	}
	switch (msg->op) {
	case SHM_OP_KICK:
		return 0;
	case SHM_OP_HELLO:
		return on_hello(p, msg, fds, nfds);
	case SHM_OP_CONNECT:
		return on_connect(p, msg, fds, nfds);
	case SHM_OP_REPLY:
		return on_reply(p, msg);
	case SHM_OP_CLOSE:
		ep = ep_by_cookie(p, msg->cookie, !msg->tos);
		if (ep)
			ep_down(ep, -ECONNRESET, false);
		return 0;
	}
	return -EPROTO;
}

static void peer_event(struct rds_event *ev, uint32_t events)
{
	struct shm_peer *p = container_of(ev, struct shm_peer, ev);
	struct shm_ctl_msg msg;
	int fds[2] = {-1, -1}, err = 0;
	bool reset = false;
	unsigned nfds, i;
	ssize_t n;

	(void)events;
	while (!p->dead) {
		n = shm_ctl_recv(p->ev.fd, &msg, fds, &nfds);
		if (n == -EAGAIN || n == -EINTR)
			return;
		if (n == -ECONNRESET && !reset) { /* it left packets of ours unread; what it had said before still lies here */
			reset = true;
			continue;
		}
		if (n > 0)
			err = on_packet(p, &msg, fds, nfds);
		for (i = 0; i < nfds; i++)
			if (fds[i] >= 0)
				os_close(fds[i]);
		fds[0] = fds[1] = -1;
		if (n <= 0 || err) {
			peer_dead(p, n < 0 ? (int)n : err ? err : -EPIPE);
			return;
		}
	}
}

static void listen_again(struct rds_timer *tm)
{
	(void)tm;
	rds_event_add(&rds_shm.listener, EPOLLIN);
}

/* Out of descriptors or memory: look again a little later, since the waiting connection would wake us all the time. */
static void listen_pause(int err)
{
	static struct rds_timer again = {.fn = listen_again};

	rds_warn("cannot take a connection of another process: %s (ulimit -n?)", strerror(-err));
	rds_event_del(&rds_shm.listener);
	rds_timer_set(&again, os_now_ns() + LISTEN_PAUSE_NS);
}

static void listen_event(struct rds_event *ev, uint32_t events)
{
	struct shm_peer *p;
	int fd;

	(void)events;
	for (;;) {
		fd = os_accept4(ev->fd, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			if (fd == -EMFILE && rds_spare_use())
				continue;
			if (fd != -EAGAIN && fd != -EINTR)
				listen_pause(fd);
			return;
		}
		if (!allowed(fd)) {
			os_close(fd);
			continue;
		}
		p = peer_new(fd);
		if (p)
			say_hello(p);
	}
}

/* rx held. The control socket is shut down so that the helper finds it and tears everything down in its own time. */
void shm_broken(struct shm_ep *ep)
{
	ep->broken = true;
	if (ep->peer)
		os_shutdown(ep->peer->ev.fd, SHUT_RDWR);
}

/* ---- start ---- */

int shm_start(struct rds_transport *t)
{
	struct shm *s = (struct shm *)t;
	struct sockaddr_un un;
	socklen_t len = address_of(registry_self(rds_engine_registry()), &un);
	int fd, err;

	s->listener.fn = listen_event;
	s->need_bell = true;
	err = shm_inbox_open();
	if (err)
		return err;
	fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	err = os_dup_high_slot(fd, &s->listener.fd);
	if (err < 0)
		return err;
	err = os_bind(s->listener.fd, (struct sockaddr *)&un, len);
	if (!err)
		err = os_listen(s->listener.fd, 1024);
	if (!err)
		err = rds_event_add(&s->listener, EPOLLIN);
	if (err)
		os_close_slot(&s->listener.fd);
	return err;
}

void shm_stop(struct rds_transport *t)
{
	(void)t;
}

/* Forked child: the parent's. Mappings of rings were not copied (MADV_DONTFORK), descriptors are closed by the engine. */
void rds_shm_forget(void)
{
	const struct rds_transport t = rds_shm.t;

	memset(&rds_shm, 0, sizeof(rds_shm));
	rds_shm.t = t;
}

static const struct rds_transport_ops shm_ops = {
	.name = "shm",
	.caps = RDS_TCAP_RETAINS | RDS_TCAP_SURVIVES,
	.start = shm_start,
	.stop = shm_stop,
	.connect = shm_connect,
	.close = shm_close,
	.send = shm_ring_send,
	.flush = shm_flush,
	.retained = shm_ring_retained,
	.settled = shm_ring_settled,
	.acked = shm_ring_acked,
	.want_room = shm_want_room,
	.progress = shm_progress,
	.ack = shm_ring_ack,
	.release = shm_ring_release,
	.relieve = shm_relieve,
	.attention = shm_attention,
	.pending = shm_pending,
};

struct rds_transport *rds_shm_transport(void)
{
	rds_shm.t = (struct rds_transport){.ops = &shm_ops, .up = &rds_transport_up};
	return &rds_shm.t;
}
