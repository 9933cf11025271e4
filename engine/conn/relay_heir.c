/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * relay_heir.c - this process becomes the owner of an address, and goes on with what a former owner has
 * kept (relay_kept.c), however that one has ended.
 *
 * Nothing is touched before all of the former owner has ended: a thread of it could still be sending.  Then
 * its trunks become trunks of this process, one after another, and at each moment one of the two lies in the
 * box, unless that has no room for both: this process may be killed, too.
 *
 * What members had sent, and the node may not have, is sent again, marked and in the order of the numbers
 * that it had, before anything new.  So the node drops what it had got.  What had come for members goes
 * to them again, marked as well (relay_had.c).  What the former owner's carrier has brought is received, and
 * then the carrier breaks: all that this process sends goes over its own one.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/conn/client.h"
#include "engine/conn/relay.h"
#include "engine/node/local_address.h"

#define PACKETS_MAX 1024u

/* Its carrier has not been adopted yet. */
struct heir_carrier {
	struct heir_carrier *next;
	struct rds_conn_id id;
	struct rds_trunk *trunk;
	uint32_t number;
	_Atomic int fd;
};

static struct heir_carrier *heir_carriers; /* helper */
static struct rds_trunk_ref *heir_ref;	   /* rx */

struct rds_trunk_ref *rds_relay_heir_ref(void)
{
	struct rds_trunk_ref *ref = heir_ref;

	heir_ref = NULL;
	return ref;
}

/* ---- may it begin? ---- */

static bool heir_is_left(const struct rds_trunk_packet *p, const int *fds, void *arg)
{
	bool *all = arg;

	(void)p;
	if (fds[RDS_TRUNK_MEMORY] < 0)
		rds_helper_reserve_release(); /* there may be some when it looks again */
	*all = fds[RDS_TRUNK_MEMORY] >= 0 && rds_trunk_box_is_left(fds);
	return *all;
}

int rds_relay_heir_may(const struct in6_addr *addr, uint32_t scope)
{
	const _Atomic int *box = rds_relay_box(addr, scope);
	bool all = true;

	if (box)
		rds_trunk_box_each(atomic_load(box), heir_is_left, &all);
	return all ? 0 : -EAGAIN;
}

/* ---- a connection goes on ---- */

static struct rds_queue_item *heir_item(struct rds_conn *conn, const struct rds_trunk_found *f)
{
	const struct rds_trunk_message *m = &f->m;
	struct rds_queue_item *q = malloc(sizeof(*q) + m->len);

	if (!q)
		return NULL;
	memset(q, 0, sizeof(*q));
	q->hdr = (struct rds_hdr){.seq = m->seq, .len = m->len, .sport = m->sport, .dport = m->dport};
	q->u = (struct rds_queue_unacked){.seq = m->seq, .len = m->len, .sport = m->sport, .dport = m->dport};
	memcpy(q->data, m->data, m->len);
	q->ref = f->ref;
	rds_queue_answer_add(conn, q);
	return q;
}

static void heir_queue(struct rds_conn *conn, struct rds_trunk_found *f)
{
	struct rds_queue_item *q = heir_item(conn, f);

	if (!q) {
		rds_error("out of memory: a message of another process is lost");
		rds_trunk_drop(f->ref);
		return;
	}
	if (f->m.seq) {
		q->was_sent = true;
		q->hdr.flags = RDS_FLAG_RETRANSMITTED;
		rds_queue_append(conn, q);
	} else {
		rds_conn_client.queue_insert(conn, q);
	}
	rds_relay_is_queued(conn, q);
}

/*
 * Those that had a number, in its order; the others come behind them, with new ones.  tx held.  (In memory that
 * others have changed the order may be wrong: what is out of it is dropped.)
 */
static void heir_send_again(struct rds_conn *conn, struct rds_trunk_image *img)
{
	uint64_t last = 0;
	unsigned i;

	for (i = 0; i < img->nfound; i++) {
		struct rds_trunk_found *f = &img->found[i];

		if (f->m.way != RDS_TRUNK_OUT || !f->m.seq)
			continue;
		if (f->m.seq > last)
			heir_queue(conn, f);
		else
			rds_trunk_drop(f->ref);
		last = f->m.seq > last ? f->m.seq : last;
	}
	if (last < img->sent)
		last = img->sent;
	if (conn->next_tx <= last)
		conn->next_tx = last + 1;
	for (i = 0; i < img->nfound; i++)
		if (img->found[i].m.way == RDS_TRUNK_OUT && !img->found[i].m.seq)
			heir_queue(conn, &img->found[i]);
}

static void heir_fill(struct rds_conn *conn, struct rds_trunk *t, struct rds_trunk_image *img)
{
	rds_lock(&conn->tx);
	rx_lock();
	conn->seldom->trunk = t;
	conn->seldom->own_gen = img->name.gen;
	conn->seldom->peer_gen = img->peer_gen;
	atomic_store(&conn->next_rx, img->next_rx);
	rx_unlock();
	conn->was_up = true;
	atomic_store(&conn->node, RDS_NODE_MET);
	conn->acked = conn->received = img->acked;
	atomic_store(&conn->sent, img->sent);
	atomic_store(&conn->state, RDS_CONN_CONNECTING);
	heir_send_again(conn, img);
	rds_unlock(&conn->tx);
}

/* What was received: before anything that its carrier still brings. */
static void heir_receive_again(struct rds_conn *conn, const struct rds_trunk_image *img)
{
	struct rds_rx rx = {0};
	unsigned i;

	rx_lock();
	for (i = 0; i < img->nfound; i++) {
		const struct rds_trunk_message *m = &img->found[i].m;

		if (m->way != RDS_TRUNK_IN)
			continue;
		rx.hdr = (struct rds_hdr){.seq = m->seq,
					  .len = m->len,
					  .sport = m->sport,
					  .dport = m->dport,
					  .flags = RDS_FLAG_RETRANSMITTED};
		rx.data = m->data;
		heir_ref = img->found[i].ref;
		conn->seldom->peer_gen = m->number; /* the numbers are of that one */
		if (rds_conn_receive_again(conn, &rx) >= RDS_RX_LATER)
			rds_error("out of memory: a message for another process is lost");
		if (heir_ref) /* it was for this process, or for nobody */
			rds_trunk_drop(rds_relay_heir_ref());
	}
	conn->seldom->peer_gen = img->peer_gen;
	rx_unlock();
}

/* Takes the descriptor. */
static void heir_carrier_add(struct rds_conn *conn, struct rds_trunk *t, uint32_t number, int fd)
{
	struct heir_carrier *c = fd < 0 ? NULL : malloc(sizeof(*c));

	if (!c) {
		if (fd >= 0)
			os_close(fd);
		rds_timer_set(&conn->retry, os_now_ns());
		return;
	}
	*c = (struct heir_carrier){.next = heir_carriers, .id = conn->id, .trunk = t, .number = number};
	atomic_store(&c->fd, -1);
	os_dup_high_slot(fd, &c->fd);
	heir_carriers = c;
}

static bool heir_may_have(const struct rds_trunk_image *img, const struct in6_addr *addr, uint32_t scope)
{
	const struct in6_addr *to = &img->name.faddr;

	return rds_ip_equal(&img->name.laddr, addr) && img->name.scope == scope && !rds_ip_is_loopback(to) &&
	       !IN6_IS_ADDR_UNSPECIFIED(to) && !IN6_IS_ADDR_MULTICAST(to) &&
	       rds_node_addr_is_local(to, scope) == -EADDRNOTAVAIL;
}

static struct rds_conn *heir_conn(const struct rds_trunk_image *img)
{
	struct rds_conn_id id = {.laddr = img->name.laddr,
				 .faddr = img->name.faddr,
				 .scope = img->name.scope,
				 .peer_slot = RDS_SLOT_REMOTE};
	int err;
	struct rds_conn *conn = rds_conn_get_locked(RDS_CONN_PEER, &id, &err);
	bool fits = false;

	if (!conn)
		return NULL;
	rx_lock();
	fits = rds_conn_seldom_get(conn) && !conn->seldom->trunk;
	rx_unlock();
	return fits && atomic_load(&conn->state) == RDS_CONN_DOWN ? conn : NULL;
}

/* From here on there are two of the same, unless the box has no room for both. */
static void heir_leave_packet(struct rds_trunk *t, const _Atomic int *box, int carrier, bool *dropped)
{
	if (!rds_trunk_box_put(t, box, carrier))
		return;
	rds_trunk_box_drop_first(atomic_load(box));
	*dropped = true;
	rds_trunk_box_put(t, box, carrier);
}

/* The carrier is taken, if there is one.  *dropped: the packet is not in the box any more. */
static int heir_take_one(const struct in6_addr *addr, uint32_t scope, const struct rds_trunk_packet *p, int *fds,
			 bool *dropped)
{
	struct rds_trunk_brought brought = {0};
	bool carried = fds[RDS_TRUNK_CARRIER] >= 0 &&
		       !rds_transport_set.node->ops->kept_brought(fds[RDS_TRUNK_CARRIER], &brought);
	struct rds_trunk_image img;
	struct rds_conn *conn = NULL;
	struct rds_trunk *t = NULL;
	int err = rds_trunk_image_open(fds[RDS_TRUNK_MEMORY], carried ? p->carrier : 0, &brought, &img);

	if (err)
		return err;
	if (heir_may_have(&img, addr, scope))
		conn = heir_conn(&img);
	if (conn)
		t = rds_trunk_new_from(&img, &err);
	if (!t) {
		rds_trunk_image_close(&img);
		return err ? err : -EPROTO;
	}
	heir_leave_packet(t, rds_relay_box(addr, scope), img.carrier ? fds[RDS_TRUNK_CARRIER] : -1, dropped);
	heir_fill(conn, t, &img);
	heir_receive_again(conn, &img);
	heir_carrier_add(conn, t, img.carrier, img.carrier ? fds[RDS_TRUNK_CARRIER] : -1);
	if (img.carrier)
		fds[RDS_TRUNK_CARRIER] = -1;
	rds_info("%u messages of other processes go on here", img.nfound);
	rds_trunk_image_close(&img);
	return 0;
}

/* ---- which of the packets count ---- */

struct heir_packets {
	struct rds_trunk_packet p[PACKETS_MAX];
	unsigned n;
};

static bool packet_is_same(const struct rds_trunk_packet *a, const struct rds_trunk_packet *b)
{
	return rds_ip_equal(&a->laddr, &b->laddr) && rds_ip_equal(&a->faddr, &b->faddr) && a->scope == b->scope;
}

static bool packet_note(const struct rds_trunk_packet *p, const int *fds, void *arg)
{
	struct heir_packets *all = arg;
	unsigned i = 0;

	(void)fds;
	while (i < all->n && !packet_is_same(&all->p[i], p))
		i++;
	if (i == PACKETS_MAX)
		return false;
	all->n += i == all->n;
	if (all->p[i].made < p->made || (all->p[i].made == p->made && all->p[i].carrier <= p->carrier))
		all->p[i] = *p;
	return true;
}

static bool packet_counts(struct heir_packets *all, const struct rds_trunk_packet *p)
{
	unsigned i;

	for (i = 0; i < all->n; i++)
		if (!memcmp(&all->p[i], p, sizeof(*p))) {
			all->p[i].nfds = 0; /* once */
			return true;
		}
	return false;
}

static void packet_close(int *fds)
{
	unsigned i;

	for (i = 0; i < RDS_TRUNK_FDS; i++)
		if (fds[i] >= 0)
			os_close(fds[i]);
}

/* 0, also if it does not count any more; -EAGAIN: there is none. */
static int heir_take_first(const struct in6_addr *addr, uint32_t scope, int box, struct heir_packets *all,
			   bool *dropped)
{
	struct rds_trunk_packet p;
	int fds[RDS_TRUNK_FDS], err;

	do
		err = rds_trunk_box_first(box, &p, fds);
	while (err == -EMFILE && rds_helper_reserve_release());
	if (err == -EMFILE)
		return packet_counts(all, &p) ? err : 0;
	if (err || !packet_counts(all, &p))
		goto close;
	do
		err = heir_take_one(addr, scope, &p, fds, dropped);
	while (err == -EMFILE && rds_helper_reserve_release());
close:
	packet_close(fds);
	return err;
}

/* What cannot be taken is dropped: so the other host's connection ends as well. */
void rds_relay_heir_take(const struct in6_addr *addr, uint32_t scope)
{
	const _Atomic int *box = rds_relay_box(addr, scope);
	struct heir_packets *all = box ? calloc(1, sizeof(*all)) : NULL;
	bool dropped;
	unsigned n;
	int err;

	if (!all)
		return;
	for (n = rds_trunk_box_each(atomic_load(box), packet_note, all); n; n--) {
		dropped = false;
		err = heir_take_first(addr, scope, atomic_load(box), all, &dropped);
		if (err == -EAGAIN)
			break;
		if (err)
			rds_warn("messages between another host and processes of this one are lost with the former "
				 "owner of the address: %s",
				 err == -EMFILE ? RDS_LOG_EMFILE : strerror(-err));
		if (!dropped)
			rds_trunk_box_drop_first(atomic_load(box));
	}
	free(all);
}

/* Without the former owner's carrier it begins with an attempt. */
static void heir_connect(const struct rds_conn_id *id)
{
	struct rds_conn *conn;

	rds_lock(&rds_lock_control);
	conn = rds_conn_find(RDS_CONN_PEER, id);
	if (conn)
		rds_timer_set(&conn->retry, os_now_ns());
	rds_unlock(&rds_lock_control);
}

void rds_relay_heir_forget(void)
{
	heir_carriers = NULL;
	heir_ref = NULL;
}

void rds_relay_heir_go_on(void)
{
	struct heir_carrier *c;
	int err;

	while ((c = heir_carriers)) {
		heir_carriers = c->next;
		err = atomic_load(&c->fd) < 0
			      ? -EBADF
			      : rds_transport_set.node->ops->kept_adopt(rds_transport_set.node, &c->id,
									atomic_load(&c->fd), c->trunk, c->number);
		if (err) {
			rds_warn("what another host had sent to the former owner of the address is lost: %s",
				 strerror(-err));
			heir_connect(&c->id);
		}
		free(c);
	}
	rds_conn_work_run();
}
