/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * peer.c - the other processes of this host: their control sockets, how they are found, their
 * identity, and their end.
 *
 * Every process listens on an abstract AF_UNIX address made of its process id.  The address needs
 * no file and is gone with the process.  Two processes share one control socket for all their
 * connections.  Each side sends HELLO once (its identity, and how to wake it); then the packets of
 * connect.c about single connections follow.  The control socket hangs up at the moment when the
 * peer dies.  Messages that the peer has published by then are still received.
 *
 * Processes of the same user may connect, and others as RDS_PRELOAD_SHARE allows.  This is checked
 * with the kernel's credentials of the socket, not with data of the peer.
 *
 * Helper thread only.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/un.h>

#include "engine/node/socket_name.h"
#include "engine/transport/shm/shm.h"

#define SOCKETS_PER_PEER 16
#define LISTEN_PAUSE_NS (100 * 1000000ull)

struct shm rds_shm;
struct shm_ep *shm_bells[SHM_BELLS] RDS_TABLE;

static socklen_t shm_peer_address(const struct rds_procid *id, struct sockaddr_un *un)
{
	return rds_node_name_address("rdspreload-shm-", id, un);
}

/*
 * Is this socket one of the process that has those credentials?  Processes of another pid namespace
 * all have pid 0 here.  Then `id` tells, or, as long as HELLO has not come (NULL), the user.
 */
static bool peer_is_of(const struct shm_peer *p, const struct ucred *cred, const struct rds_procid *id)
{
	bool has_id = p->known || p->dialled;

	if (p->dead || p->cred.pid != cred->pid)
		return false;
	if (cred->pid)
		return true;
	return id ? has_id && memcmp(&p->id, id, sizeof(*id)) == 0 : !has_id && p->cred.uid == cred->uid;
}

/*
 * Two processes need one control socket, or two for a moment.  Each costs a descriptor and memory.
 */
bool shm_peer_too_many(const struct ucred *cred, const struct rds_procid *id)
{
	static pid_t warned_of = -1;
	const struct shm_peer *p;
	unsigned n = 0;

	for (p = rds_shm.peers; p; p = p->next)
		n += peer_is_of(p, cred, id);
	if (n < SOCKETS_PER_PEER)
		return false;
	if (cred->pid != warned_of)
		rds_warn("process %d of user %u has %u control sockets to this one: more are refused", (int)cred->pid,
			 (unsigned)cred->uid, n);
	warned_of = cred->pid;
	return true;
}

static bool peer_allowed(int fd, struct ucred *cred)
{
	socklen_t len = sizeof(*cred);

	if (os_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, cred, &len) < 0)
		return false;
	if (registry_trusts(rds_node_registry, cred))
		return true;
	rds_warn("process %d of user %u is refused: RDS_PRELOAD_SHARE allows only the same %s", (int)cred->pid,
		 (unsigned)cred->uid, rds_options()->share == RDS_OPT_SHARE_GROUP ? "group" : "user");
	return false;
}

/* ---- peers ---- */

/*
 * The control socket of p is fd from now on.  EPOLLOUT and edges from the start, since the descriptor
 * may have another number later (sys/os.h).
 */
int shm_peer_open(struct shm_peer *p, int fd)
{
	int err = os_dup_high_slot(fd, &p->fd);

	if (err < 0)
		return err;
	err = rds_helper_event_add(&p->ev->ev, &p->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
	if (err < 0) {
		os_close_slot(&p->fd);
		return err;
	}
	shm_open_add(p);
	p->opened_at = os_now_ns();
	p->used_order = ++rds_shm.next_use;
	return 0;
}

void shm_peer_shut(struct shm_peer *p)
{
	if (p->fd >= 0) {
		rds_helper_event_del(p->fd);
		os_close_slot(&p->fd);
		shm_open_del(p);
	}
	shm_wake_fds_close(p);
}

static struct shm_peer *shm_peer_new(int fd, const struct ucred *cred)
{
	struct shm_peer *p = calloc(1, sizeof(*p));

	if (p)
		p->ev = calloc(1, sizeof(*p->ev));
	if (!p || !p->ev) {
		os_close(fd);
		free(p);
		return NULL;
	}
	p->ev->ev.fn = shm_peer_event;
	p->ev->peer = p;
	p->cred = *cred;
	shm_peer_init(p);
	if (shm_peer_open(p, fd) < 0) {
		free(p->ev);
		free(p);
		return NULL;
	}
	shm_peer_list_add(p);
	return p;
}

int shm_peer_say_hello(int fd, uint64_t session, uint8_t whose)
{
	struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_HELLO};
	int fds[3], err;

	msg.self = *registry_self(rds_node_registry);
	msg.slot = registry_self_slot(rds_node_registry);
	msg.cookie = session;
	msg.whose = whose;
	msg.wake_key = rds_shm.wake_key;
	shm_fetch_offer(&msg);
	os_fds_hold();
	fds[0] = rds_helper_leader_fd();
	fds[1] = rds_helper_kick_fd();
	fds[2] = rds_shm.inbox_fd;
	err = shm_ctl_send(fd, &msg, fds, 3);
	os_fds_release();
	return err;
}

/*
 * The first packet on a control socket.  If it cannot be sent (ETOOMANYREFS, no memory), nothing
 * may be sent after it: the peer is dead, and the next connect makes a new socket.
 */
static int peer_send_hello(struct shm_peer *p)
{
	int err = shm_peer_say_hello(p->fd, p->session, SHM_SESSION_NEW);

	if (err)
		shm_peer_dead(p, err);
	return err;
}

/*
 * If both sides have connected, both use the socket that the process with the smaller id has made.
 * So their packets stay in order.
 */
static struct shm_peer *shm_peer_find(const struct rds_procid *id)
{
	bool ours = memcmp(registry_self(rds_node_registry), id, sizeof(*id)) < 0;
	struct shm_peer *p, *found = NULL;

	for (p = rds_shm.peers; p; p = p->next)
		if (!p->dead && memcmp(&p->id, id, sizeof(*id)) == 0 && (!found || p->dialled == ours))
			found = p;
	return found;
}

int shm_peer_dial(const struct rds_procid *id, struct ucred *cred)
{
	struct sockaddr_un un;
	socklen_t len = shm_peer_address(id, &un);
	int fd, err;

	if (!shm_cold_may_dial())
		return -EAGAIN;
	shm_cold_make_room(NULL, false);
	do
		fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	while (fd == -EMFILE && shm_cold_make_room(NULL, true));
	if (fd < 0)
		return fd;
	err = os_connect(fd, (struct sockaddr *)&un, len);
	if (!err && !peer_allowed(fd, cred))
		err = -EACCES;
	if (err < 0) {
		os_close(fd);
		return err;
	}
	return fd;
}

static int peer_dial_first(const struct rds_conn_id *id, struct shm_peer **out)
{
	struct ucred cred;
	struct shm_peer *p;
	int fd = shm_peer_dial(&id->peer, &cred), err;

	if (fd < 0)
		return fd;
	p = shm_peer_new(fd, &cred);
	if (!p)
		return -ENOMEM;
	p->id = id->peer;
	p->slot = id->peer_slot;
	p->dialled = true;
	p->session = ++rds_shm.next_session;
	err = peer_send_hello(p);
	*out = p;
	return err;
}

/* A cold peer gets its control socket first: the caller tries again. */
int shm_peer_get(const struct rds_conn_id *id, struct shm_peer **out)
{
	struct shm_peer *p = *out = shm_peer_find(&id->peer);

	if (!p)
		return peer_dial_first(id, out);
	if (likely(p->warmth == SHM_WARM))
		return 0;
	if (p->warmth == SHM_COLD)
		shm_peer_defer(p, SHM_DEFER_WARM);
	return -EAGAIN;
}

/*
 * Does the process still listen?  A process that ends gives up its two descriptor tables one after
 * the other.  So its helper's sockets may be gone while its slot in the registry is still locked.
 * They are never gone while the process lives.
 */
static bool peer_listens(const struct rds_procid *id)
{
	struct sockaddr_un un;
	socklen_t len = shm_peer_address(id, &un);
	int fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (fd < 0)
		return true;
	err = os_connect(fd, (struct sockaddr *)&un, len);
	os_close(fd);
	return err != -ECONNREFUSED;
}

static bool peer_has_ended(const struct shm_peer *p)
{
	return !registry_proc_alive(rds_node_registry, p->slot, &p->id) || !peer_listens(&p->id);
}

/* The control socket is gone, and so are all connections over it. */
void shm_peer_dead(struct shm_peer *p, int why)
{
	bool ended, gone;

	if (p->dead || p == rds_shm.hearing) /* later (catch_up.c) */
		return;
	/*
	 * Slot and id come from HELLO or from the connect.  With neither, there are no connections; and
	 * one without connections over this socket may live.
	 */
	ended = peer_has_ended(p);
	gone = !p->eps || ended;
	p->dead = true;
	rds_shm.ncold -= p->warmth == SHM_COLD;
	rds_debug("the control socket of process %d is gone: %s", (int)p->cred.pid, strerror(-why));
	shm_ctl_drop(p);
	if (!gone && p->warmth == SHM_COLD)
		shm_cold_tell_end(p);
	if (gone && p->eps) /* else a connection of a dead process would begin with these */
		shm_cells_meet(&rds_shm.t);
	while (p->eps)
		shm_ep_down(p->eps, why, gone);
	shm_peer_shut(p);
	if (ended)
		shm_cells_peer_gone(&p->id, p->slot);
	if (gone && p->known)
		shm_alive_look_at_others(); /* where one ends, others may end, too */
	if (p->inbox)
		munmap(p->inbox, SHM_CTL_BYTES);
	p->inbox = NULL;
	rds_shm.any_dead = true;
	rx_lock();
	shm_settled();
	rx_unlock();
}

static void peer_hear_last(struct shm_peer *p)
{
	if (p->fd >= 0 && shm_peer_hello_fits(p))
		shm_peer_read_all(p);
	/* another process may hold its end of the control socket open */
	if (!p->dead && !registry_proc_alive(rds_node_registry, p->slot, &p->id))
		shm_peer_dead(p, -EPIPE);
}

/* No peer is freed before this event is over. */
void shm_peers_hear_last(uint64_t word)
{
	struct shm_peer *p;

	for (p = rds_shm.peers; p; p = p->next)
		if (!p->dead && !p->reading && registry_slab_word(&p->id) == word)
			peer_hear_last(p);
}

/* ---- those who come ---- */

static void peer_listen_again(struct rds_timer *tm)
{
	(void)tm;
	rds_helper_event_add(&rds_shm.listener, &rds_shm.listen_fd, EPOLLIN);
}

/*
 * Out of descriptors or memory.  Tries again a little later: with the listener watched, the waiting
 * connection would wake the helper all the time.
 */
static void peer_listen_pause(int err)
{
	static struct rds_timer again = {.fn = peer_listen_again};

	rds_warn("cannot take a connection of another process: %s%s; its messages wait", strerror(-err),
		 err == -EMFILE ? " (" RDS_LOG_EMFILE ")" : "");
	rds_helper_event_del(rds_shm.listen_fd);
	rds_timer_set(&again, os_now_ns() + LISTEN_PAUSE_NS);
}

/*
 * Its HELLO is there in most cases: the next one's may not be counted together with it.  It may have
 * hung up already, and left packets.
 */
static void peer_greet(struct shm_peer *p)
{
	int err = shm_peer_say_hello(p->fd, 0, SHM_SESSION_NEW);

	if (err && !shm_ctl_is_hang_up(err))
		shm_peer_dead(p, err);
	else
		shm_peer_event(&p->ev->ev, EPOLLIN);
}

static void peer_listen_event(struct rds_helper_event *ev, uint32_t events)
{
	unsigned most = RDS_EVENT_MAX; /* level triggered: the event comes again for the rest */
	struct ucred cred;
	struct shm_peer *p;
	int fd;

	(void)ev;
	(void)events;
	while (most--) {
		fd = os_accept4(rds_shm.listen_fd, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			if (fd == -EMFILE && (rds_helper_reserve_release() || shm_cold_make_room(NULL, true)))
				continue;
			if (fd != -EAGAIN && fd != -EINTR)
				peer_listen_pause(fd);
			return;
		}
		if (!peer_allowed(fd, &cred) || shm_peer_too_many(&cred, NULL)) {
			os_close(fd);
			continue;
		}
		shm_cold_make_room(NULL, false);
		p = shm_peer_new(fd, &cred);
		if (p)
			peer_greet(p);
	}
}

void shm_peer_break(struct shm_peer *p)
{
	shm_peer_dead(p, p->heard ? -EPIPE : -EPROTO);
}

/* ---- start ---- */

static int shm_start(struct rds_transport *t)
{
	struct shm *s = (struct shm *)t;
	struct sockaddr_un un;
	socklen_t len = shm_peer_address(registry_self(rds_node_registry), &un);
	int fd, err;

	s->listener.fn = peer_listen_event;
	s->need_bell = true;
	shm_recheck_init();
	shm_cold_init();
	shm_alive_init();
	err = shm_rings_check_limit();
	if (!err)
		err = shm_inbox_open();
	if (!err)
		err = shm_wake_socket_open();
	if (err)
		return err;
	shm_cells_listen(); /* without cells all peers have rings */
	fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	err = os_dup_high_slot(fd, &s->listen_fd);
	if (err < 0)
		return err;
	err = os_bind(s->listen_fd, (struct sockaddr *)&un, len);
	if (!err)
		err = os_listen(s->listen_fd, 1024);
	if (!err)
		err = rds_helper_event_add(&s->listener, &s->listen_fd, EPOLLIN);
	return err;
}

static void shm_stop(struct rds_transport *t)
{
	struct shm *s = (struct shm *)t;

	os_close_slot(&s->listen_fd);
	shm_cells_close();
	shm_wake_socket_close();
	shm_inbox_close();
}

/*
 * Forked child: forgets the parent's state.  Mappings of rings were not copied (MADV_DONTFORK); the
 * engine closes the descriptors.
 */
void rds_shm_fork_child(void)
{
	const struct rds_transport t = rds_shm.t;

	os_fork_zero(&rds_shm, sizeof(rds_shm));
	os_fork_zero(shm_bells, sizeof(shm_bells));
	rds_shm.t = t;
	shm_wake_socket_init();
	shm_cells_fork_child();
	shm_cell_recv_fork_child();
	shm_cell_watch_fork_child();
}

static const struct rds_transport_ops shm_ops = {
	.name = "shm",
	.caps = RDS_TCAP_SURVIVES | RDS_TCAP_PATIENT,
	.start = shm_start,
	.stop = shm_stop,
	.connect = shm_connect,
	.open = shm_open_cells,
	.meet = shm_meet,
	.close = shm_close,
	.send = shm_ring_send,
	.flush = shm_flush,
	.retained = shm_ring_retained,
	.keep = shm_keep,
	.settled = shm_ring_settled,
	.acked = shm_ring_reap,
	.want_room = shm_want_room,
	.watch = shm_watch,
	.push = shm_long_push,
	.progress = shm_progress,
	.catch_up = shm_catch_up,
	.ack = shm_ring_ack,
	.release = shm_ring_release,
	.fetchable = shm_fetchable,
	.fetch = shm_fetch,
	.relieve = shm_relieve,
	.attention = shm_attention,
	.pending = shm_pending,
};

struct rds_transport *rds_shm_transport(void)
{
	rds_shm.t = (struct rds_transport){.ops = &shm_ops};
	atomic_store(&rds_shm.listen_fd, -1);
	atomic_store(&rds_shm.inbox_fd, -1);
	shm_wake_socket_init();
	return &rds_shm.t;
}
