/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * relay_kept.c - the owner of an address keeps what it relays where the next one finds it (engine/trunk).
 *
 * A message of a member is in the node's trunk before the member is told that it was taken, and until the
 * node has it.  A message for a member is there before it counts as received, and until the member has it.
 * The member gives a number to each of its messages, so the next owner knows which ones were taken: the
 * former one may have ended before it could say so.  The other way round, relay_had.c.
 *
 * Trunks begin with the first member.  So a process that is alone on its address has none.  Memory,
 * descriptors and members are the helper's: a connection is not kept until it has come to that.  Each member
 * listens under a name of its own for the *box* of the address, which the owner sends.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/conn/client.h"
#include "engine/conn/relay.h"
#include "engine/node/socket_name.h"

#define NAME "rds.trunk."
#define BOX_OFFER_MAGIC 0x6f786f62u
#define BOXES_MAX 256u
#define AGAIN_NS (10 * 1000000ull) /* and twice as long each time */
#define AGAIN_MAX_NS (1000 * 1000000ull)
#define OFFER_MS 100
#define STRANGERS_MAX 16u
#define TRIES_MAX 20u /* of offers: an older version of the library does not listen */
#define HOLD_TRIES 6u /* ... while members' messages wait: some 600 ms */
#define PAUSE_NS (100 * 1000000ull)

struct kept_box {
	struct kept_box *next;
	struct in6_addr addr;
	uint32_t scope;
	_Atomic int fd; /* helper */
};

struct kept_offer {
	uint32_t magic, scope;
	struct in6_addr addr;
};

static void kept_run(struct rds_timer *tm);
static void kept_offered(struct rds_helper_event *ev, uint32_t events);

static struct kept_box *kept_boxes; /* control */
static struct rds_timer kept_timer = {.fn = kept_run};
static struct rds_helper_event kept_event = {.fn = kept_offered};
static _Atomic int kept_listener = -1;
static bool kept_listens;      /* control */
static uint64_t kept_again_ns; /* control */
static _Atomic uint32_t kept_number;

/* ---- numbers; tx ---- */

void rds_relay_count(struct rds_queue_unacked *u, struct rds_hdr *hdr)
{
	uint32_t n;

	while (!(n = atomic_fetch_add(&kept_number, 1) + 1))
		;
	u->sock = hdr->sock = n;
	u->counted = true;
}

bool rds_relay_was_taken(struct rds_conn *to, const struct rds_queue_item *q)
{
	bool was;

	if (to->relay != RDS_RELAY_NODE || !to->seldom || !to->seldom->trunk)
		return false;
	rx_lock();
	was = rds_trunk_had(to->seldom->trunk, registry_self(rds_node_registry), q->u.sock);
	rx_unlock();
	return was;
}

void rds_relay_is_queued(struct rds_conn *to, struct rds_queue_item *q)
{
	if (to->relay != RDS_RELAY_NODE && to->relay != RDS_RELAY_MEMBER)
		return; /* it waits for its way still */
	if (to->relay == RDS_RELAY_NODE)
		rds_trunk_ref_number(q->ref, q->u.seq);
	rds_trunk_refs_add(&to->seldom->refs, q->ref, q->u.seq);
	q->ref = NULL;
}

void rds_relay_is_taken(struct rds_conn *conn, struct rds_queue_item *list)
{
	struct rds_trunk_refs *refs = &conn->seldom->refs;
	struct rds_trunk_ref **at = &refs->first;
	uint64_t last = 0;

	for (; list; list = list->next) { /* port by port, each in order */
		if (list->u.seq < last)
			at = &refs->first;
		last = list->u.seq;
		list->ref = rds_trunk_refs_take(refs, &at, last);
	}
}

void rds_conn_note_kept(const struct rds_conn *conn, uint64_t seq)
{
	rds_trunk_sending(conn->seldom->trunk, seq);
}

void rds_relay_acked(struct rds_conn *conn)
{
	if (!conn->seldom)
		return;
	if (conn->relay == RDS_RELAY_NODE && conn->seldom->trunk)
		rds_trunk_acked(conn->seldom->trunk, conn->acked);
	rds_trunk_refs_drop(&conn->seldom->refs, conn->acked);
}

/* ---- messages; rx ---- */

/*
 * A member's message waits where it is until it can be kept, and the member itself has what it takes to go on
 * with it.  What cannot be had holds up nobody for long.
 */
static bool kept_begins(const struct rds_conn_seldom *s)
{
	return unlikely(atomic_load_explicit(&s->wants_box, memory_order_relaxed) ||
			atomic_load_explicit(&s->wants_trunk, memory_order_relaxed)) &&
	       atomic_load(&s->kept_tries) < HOLD_TRIES;
}

bool rds_relay_keep(struct rds_conn *node, const struct rds_conn *from, const struct rds_rx *rx,
		    struct rds_trunk_ref **ref)
{
	struct rds_trunk_message m = {.way = from == node ? RDS_TRUNK_IN : RDS_TRUNK_OUT,
				      .sport = rx->hdr.sport,
				      .dport = rx->hdr.dport,
				      .len = rx->hdr.len,
				      .data = rx->data};

	*ref = NULL;
	if (from != node && (kept_begins(from->seldom) || kept_begins(node->seldom)))
		return false;
	if (!node->seldom || !node->seldom->trunk)
		return true;
	if (m.way == RDS_TRUNK_IN) {
		*ref = rds_relay_heir_ref();
		if (*ref)
			return true;
		m.seq = rx->hdr.seq;
		m.number = node->seldom->peer_gen;
		m.marked = rx->hdr.flags & RDS_FLAG_RETRANSMITTED;
	} else {
		m.number = rx->hdr.sock;
		m.member = from->id.peer;
	}
	*ref = rds_trunk_add(node->seldom->trunk, &m);
	if (!*ref && m.way == RDS_TRUNK_IN)
		rds_warn_once(
			"other processes take so little of what another host sends that the rest would be lost if "
			"this one were killed");
	return *ref;
}

bool rds_relay_former_took(const struct rds_conn *conn, const struct rds_rx *rx)
{
	const struct rds_trunk *t = conn->seldom->node->seldom->trunk;

	return unlikely(t) && rds_trunk_had(t, &conn->id.peer, rx->hdr.sock);
}

/* ---- boxes; control ---- */

static struct kept_box *box_find(const struct in6_addr *addr, uint32_t scope)
{
	struct kept_box *b = kept_boxes;

	while (b && !(rds_ip_equal(&b->addr, addr) && b->scope == scope))
		b = b->next;
	return b;
}

static struct kept_box *box_get(const struct in6_addr *addr, uint32_t scope)
{
	struct kept_box *b = box_find(addr, scope);
	unsigned n = 0;

	if (b)
		return b;
	for (b = kept_boxes; b; b = b->next)
		n++;
	b = n < BOXES_MAX ? calloc(1, sizeof(*b)) : NULL;
	if (!b)
		return NULL;
	b->addr = *addr;
	b->scope = scope;
	atomic_store(&b->fd, -1);
	b->next = kept_boxes;
	kept_boxes = b;
	return b;
}

const _Atomic int *rds_relay_box(const struct in6_addr *addr, uint32_t scope)
{
	const struct kept_box *b = box_find(addr, scope);

	return b && atomic_load(&b->fd) >= 0 ? &b->fd : NULL;
}

/* Those of other registries have other names. */
static void box_name(const struct in6_addr *addr, uint32_t scope, struct rds_procid *name)
{
	struct {
		uint64_t dev, ino;
		struct in6_addr addr;
		uint64_t scope;
	} of = {.addr = *addr, .scope = scope};
	const unsigned char *bytes = (const unsigned char *)&of;
	uint64_t h[2] = {0xcbf29ce484222325u, 0x9e3779b97f4a7c15u};
	struct stat st = {0};
	unsigned i;

	os_fstat(os_fd(registry_fds(rds_node_registry)), &st);
	of.dev = st.st_dev;
	of.ino = st.st_ino;
	for (i = 0; i < 2 * sizeof(of); i++)
		h[i % 2] = (h[i % 2] ^ bytes[i / 2]) * 0x100000001b3u;
	memcpy(name, h, sizeof(*name));
}

bool rds_relay_box_exists(const struct in6_addr *addr, uint32_t scope)
{
	struct rds_procid name;

	box_name(addr, scope, &name);
	return rds_trunk_box_exists(&name);
}

/* ---- members get it ---- */

static bool peer_is_same_user(int fd)
{
	struct ucred cred;

	return os_peer_cred(fd, &cred) && cred.uid == geteuid() && os_uid_is_known(cred.uid);
}

static int box_send(const struct rds_procid *member, const struct kept_box *b)
{
	struct kept_offer offer = {.magic = BOX_OFFER_MAGIC, .scope = b->scope, .addr = b->addr};
	struct sockaddr_un sun;
	socklen_t len = rds_node_name_address(NAME, member, &sun);
	int fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), box, err;

	if (fd < 0)
		return fd;
	err = os_connect(fd, (struct sockaddr *)&sun, len);
	if (!err && !peer_is_same_user(fd))
		err = -EPERM;
	if (!err) {
		os_fds_hold();
		box = atomic_load(&b->fd);
		err = os_pass_send(fd, &offer, sizeof(offer), &box, 1, MSG_DONTWAIT);
		os_fds_release();
	}
	os_close(fd);
	return err;
}

/* How many sockets have other processes on that address?  With b each of these processes is offered that. */
static unsigned members_each(const struct in6_addr *addr, uint32_t scope, const struct kept_box *b)
{
	const struct rds_procid *self = registry_self(rds_node_registry), *last = self;
	struct registry_sock *socks = NULL;
	unsigned i, n = 0, members = 0;

	if (registry_socks(rds_node_registry, &socks, &n))
		return 0;
	for (i = 0; i < n; i++) {
		if (!rds_ip_equal(&socks[i].bound, addr) || socks[i].scope != scope ||
		    !memcmp(&socks[i].procid, self, sizeof(*self)) || registry_slot_is_others(socks[i].proc))
			continue;
		members++;
		if (b && memcmp(&socks[i].procid, last, sizeof(*last)))
			box_send(&socks[i].procid, b);
		last = &socks[i].procid;
	}
	free(socks);
	return members;
}

/*
 * The owner's; NULL: it cannot be made.  What comes for members that are there is to have it before they have
 * sent anything: one that listens already gets it.
 */
static struct kept_box *box_make(const struct in6_addr *addr, uint32_t scope)
{
	struct kept_box *b = box_get(addr, scope);
	struct rds_procid name;

	if (b && atomic_load(&b->fd) >= 0)
		return b;
	box_name(addr, scope, &name);
	if (!b || os_dup_high_slot(rds_trunk_box_new(&name), &b->fd))
		return NULL;
	members_each(addr, scope, b);
	return b;
}

/* It may not listen yet.  One of another user never gets it. */
static void box_offer(struct rds_conn *conn)
{
	const struct kept_box *b = box_make(&conn->id.faddr, conn->id.scope);
	int err = b ? box_send(&conn->id.peer, b) : -EMFILE;

	atomic_store(&conn->seldom->wants_box,
		     err && err != -EPERM && atomic_fetch_add(&conn->seldom->kept_tries, 1) < TRIES_MAX);
	if (err)
		rds_debug("process %d does not take the box: %s", (int)rds_conn_peer_pid(conn), strerror(-err));
}

/* ---- the owner's trunks; helper, control ---- */

static void trunk_make(struct rds_conn *node)
{
	struct rds_trunk_name name = {.laddr = node->id.laddr,
				      .faddr = node->id.faddr,
				      .scope = node->id.scope,
				      .gen = rds_conn_node_generation()};
	struct kept_box *box = box_make(&name.laddr, name.scope);
	int err = box ? 0 : -EMFILE;
	struct rds_trunk *t = err ? NULL : rds_trunk_new(&name, &err);

	if (t)
		err = rds_trunk_box_put(t, &box->fd, -1);
	atomic_fetch_add(&node->seldom->kept_tries, 1);
	if (err) {
		atomic_store(&node->seldom->wants_trunk, err != -ENOSYS);
		rds_warn_once("what other processes send and get over this one may be lost if it is killed: %s",
			      err == -EMFILE ? RDS_LOG_EMFILE : strerror(-err));
		rds_trunk_put(t);
		return;
	}
	rds_lock(&node->tx);
	rx_lock();
	rds_trunk_sending(t, atomic_load(&node->sent));
	rds_trunk_acked(t, node->acked);
	rds_trunk_received(t, atomic_load(&node->next_rx), node->seldom->peer_gen);
	node->seldom->own_gen = name.gen;
	node->seldom->trunk = t;
	rx_unlock();
	rds_unlock(&node->tx);
}

/* Messages of members have to wait until then (kept_begins()). */
static void trunk_make_later(struct rds_conn *node)
{
	if (!node->seldom->trunk)
		trunk_make(node);
	if (node->seldom->trunk && node->ep)
		node->t->ops->kept_begin(node->ep);
	if (node->seldom->trunk)
		atomic_store(&node->seldom->wants_trunk, false);
}

/* Whoever connects could use up memory, and the room in the box. */
static bool is_one_stranger_too_many(const struct rds_conn *node)
{
	const struct rds_conn *conn;
	unsigned n = 0;

	if (!atomic_load(&node->stranger))
		return false;
	for (conn = rds_conn_list; conn; conn = conn->next)
		n += atomic_load(&conn->stranger) && conn->seldom && conn->seldom->trunk;
	return n >= STRANGERS_MAX;
}

/* The registry is asked again when it has changed. */
static bool node_wants_trunk(struct rds_conn *node)
{
	uint64_t gen = registry_generation(rds_node_registry);
	bool wants;

	rx_lock();
	wants = node->relay == RDS_RELAY_NODE && rds_conn_seldom_get(node) && !node->seldom->kept_tries &&
		node->seldom->alone_at != gen;
	rx_unlock();
	if (!wants || is_one_stranger_too_many(node))
		return false;
	if (members_each(&node->id.laddr, node->id.scope, NULL))
		return true;
	node->seldom->alone_at = gen;
	return false;
}

/*
 * Before a connection brings anything there is a trunk, if there are members.  An exec may have failed since this
 * process has left: it goes on then.
 */
struct rds_trunk *rds_relay_trunk(struct rds_conn *conn)
{
	struct rds_trunk *t = conn->seldom ? conn->seldom->trunk : NULL;

	if (!t) {
		rds_lock(&rds_lock_control);
		if (node_wants_trunk(conn))
			trunk_make(conn);
		t = conn->seldom ? conn->seldom->trunk : NULL;
		rds_unlock(&rds_lock_control);
	}
	if (t && !rds_relay_has_left())
		rds_trunk_left(t, false);
	return t;
}

void rds_relay_kept_begin(struct rds_conn *conn, struct rds_conn *node)
{
	atomic_store(&conn->seldom->wants_box, true);
	atomic_store(&node->seldom->wants_trunk, !node->seldom->trunk);
	kept_again_ns = AGAIN_NS;
	rds_timer_set(&kept_timer, os_now_ns());
}

static void kept_listen(void)
{
	struct sockaddr_un sun;
	socklen_t len = rds_node_name_address(NAME, registry_self(rds_node_registry), &sun);
	int fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	err = fd < 0 ? fd : os_bind(fd, (struct sockaddr *)&sun, len);
	if (!err)
		err = os_listen(fd, 8);
	if (err) {
		if (fd >= 0)
			os_close(fd);
		return;
	}
	if (!os_dup_high_slot(fd, &kept_listener))
		rds_helper_event_add(&kept_event, &kept_listener, EPOLLIN);
}

static void kept_run(struct rds_timer *tm)
{
	struct rds_conn *conn;
	uint64_t pause;
	bool again = false;

	rds_lock(&rds_lock_control);
	if (kept_listens && atomic_load(&kept_listener) < 0)
		kept_listen();
	for (conn = rds_conn_list; conn; conn = conn->next) {
		if (!conn->seldom || atomic_load(&conn->state) == RDS_CONN_DEAD)
			continue;
		if (conn->relay == RDS_RELAY_NODE && conn->seldom->wants_trunk)
			trunk_make_later(conn);
		if (conn->relay == RDS_RELAY_MEMBER && conn->seldom->wants_box)
			box_offer(conn);
		again |= conn->seldom->wants_trunk || conn->seldom->wants_box;
	}
	pause = kept_again_ns;
	kept_again_ns = 2 * pause < AGAIN_MAX_NS ? 2 * pause : AGAIN_MAX_NS;
	rds_unlock(&rds_lock_control);
	if (again)
		rds_timer_need(tm, os_now_ns() + pause);
}

/* ---- members ---- */

void rds_relay_box_await(void)
{
	if (kept_listens)
		return;
	kept_listens = true;
	rds_timer_set(&kept_timer, os_now_ns());
}

/* Takes the descriptor.  The owner of the address has the right one. */
static void box_take(const struct kept_offer *offer, int fd)
{
	struct kept_box *b;

	rds_lock(&rds_lock_control);
	b = rds_transport_node_has(&offer->addr, offer->scope) || !rds_trunk_box_is_one(fd)
		    ? NULL
		    : box_get(&offer->addr, offer->scope);
	if (b) {
		os_close_slot(&b->fd);
		os_dup_high_slot(fd, &b->fd);
	} else {
		os_close(fd);
	}
	rds_unlock(&rds_lock_control);
}

/* Who offers it waits in the queue. */
static void kept_listen_again(struct rds_timer *tm)
{
	if (atomic_load(&kept_listener) >= 0 && rds_helper_event_add(&kept_event, &kept_listener, EPOLLIN))
		rds_timer_set(tm, os_now_ns() + PAUSE_NS);
}

static struct rds_timer kept_pause = {.fn = kept_listen_again};

/* With the listener watched, the waiting connection would wake the helper all the time. */
static int kept_accept(void)
{
	int fd;

	do
		fd = os_accept4(atomic_load(&kept_listener), SOCK_CLOEXEC | SOCK_NONBLOCK);
	while (fd == -EMFILE && rds_helper_reserve_release());
	if (fd < 0 && fd != -EAGAIN && fd != -EINTR && fd != -ECONNABORTED) {
		rds_warn_once("what this process sends to other hosts may be lost if the one that relays it is "
			      "killed: %s",
			      fd == -EMFILE ? RDS_LOG_EMFILE : strerror(-fd));
		rds_helper_event_del(atomic_load(&kept_listener));
		rds_timer_set(&kept_pause, os_now_ns() + PAUSE_NS);
	}
	return fd;
}

static void kept_offered(struct rds_helper_event *ev, uint32_t events)
{
	int fd = kept_accept(), fds[OS_PASS_MAX];
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct kept_offer offer = {0};
	unsigned n = 0, i;
	ssize_t len = 0;
	bool lost;

	(void)ev;
	(void)events;
	if (fd < 0)
		return;
	/* a process of this user says it at once */
	if (peer_is_same_user(fd) && os_poll(&p, 1, OFFER_MS) > 0)
		len = os_pass_recv(fd, &offer, sizeof(offer), fds, &n, &lost, MSG_DONTWAIT);
	i = 0;
	if (len == (ssize_t)sizeof(offer) && offer.magic == BOX_OFFER_MAGIC && n)
		box_take(&offer, fds[i++]);
	for (; i < n; i++)
		os_close(fds[i]);
	os_close(fd);
}

/* ---- the end ---- */

/* What is there is for the next one as soon as this process does not listen any more. */
void rds_relay_kept_leave(void)
{
	struct rds_conn *conn;

	rds_lock(&rds_lock_control);
	for (conn = rds_conn_list; conn; conn = conn->next)
		if (conn->relay == RDS_RELAY_NODE && conn->seldom && conn->seldom->trunk)
			rds_trunk_left(conn->seldom->trunk, true);
	rds_unlock(&rds_lock_control);
}

void rds_relay_kept_forget(void)
{
	rds_trunk_forget();
	kept_boxes = NULL;
	kept_listens = false;
	atomic_store(&kept_listener, -1);
	kept_pause = (struct rds_timer){.fn = kept_listen_again};
	kept_timer = (struct rds_timer){.fn = kept_run};
}
