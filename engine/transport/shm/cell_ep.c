/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cell_ep.c - an endpoint whose messages are cells (cells.c): its life, and its send side.
 *
 * It works as soon as it is made: nothing is asked of the peer, and the peer makes its own when the first
 * cell comes (cell_recv.c). So it costs no system call, and no memory but this structure and a cell for
 * each message under way. A process that needs more of a peer connects to it (connect.c), and this endpoint
 * is closed when that one is up. What comes for a closed endpoint is refused, and its sender, which still
 * has the bytes, takes that for the end of its endpoint.
 *
 * A cell that the receiver has is not this process's until the receiver gives it back, or has ended. So the
 * structure of a closed endpoint stays that long.
 */
#include <endian.h>
#include <stdlib.h>

#include "engine/sys/cpu.h"
#include "engine/transport/shm/cell_ep.h"

/*
 * A pair that sends so many messages in so short a time gets a ring, which costs 100 us of processor time,
 * and 8 to 13 KiB.
 */
#define OUTGROWN_MESSAGES 64
#define OUTGROWN_MS 32

struct cell_ep *shm_cell_eps[REGISTRY_SLOTS] RDS_TABLE_AFTER(cell_eps);
static uint16_t last_number; /* rx */

static struct shm_line *line_of(uint32_t slot)
{
	return registry_line(rds_node_registry, slot);
}

bool cell_list_set(struct cell_list *l, unsigned at, uint32_t n)
{
	struct cell_more *more = atomic_load_explicit(&l->more, memory_order_relaxed);

	if (!(at % CELL_CREDITS)) {
		cell_store(&l->first, n);
		return true;
	}
	if (unlikely(!more)) {
		more = malloc(sizeof(*more));
		if (!more)
			return false;
		for (unsigned i = 0; i < CELL_CREDITS; i++)
			cell_store(&more->n[i], SHM_CELLS_MAX);
		atomic_store_explicit(&l->more, more, memory_order_release);
	}
	cell_store(&more->n[at % CELL_CREDITS], n);
	return true;
}

/* ---- send side (conn->tx) ---- */

unsigned shm_cell_ep_state(const struct cell_ep *ep, unsigned i)
{
	struct shm_cell *cell = shm_cell_own(cell_list_get(&ep->own, i));

	return cell ? atomic_load_explicit(&cell->state, memory_order_acquire) : SHM_CELL_FREE;
}

static uint8_t under_way(const struct cell_ep *ep)
{
	return (uint8_t)(cell_load(&ep->next) - cell_load(&ep->first));
}

bool shm_cell_ep_moved(const struct cell_ep *ep)
{
	uint8_t first = cell_load(&ep->first);
	unsigned state = shm_cell_ep_state(ep, first);

	return !under_way(ep) || first != cell_load(&ep->wanted_at) ||
	       (state != SHM_CELL_SENT && state != SHM_CELL_SEEN);
}

static int ep_refuse(struct cell_ep *ep)
{
	cell_store(&ep->refused, true);
	shm_cell_watch(ep, true);
	return -ENOTCONN;
}

/* The receiver gives cells back in order; an older one holds up the others. */
static uint64_t ep_acked(struct rds_ep *rep)
{
	struct cell_ep *ep = (struct cell_ep *)rep;
	uint8_t first = cell_load(&ep->first), next = cell_load(&ep->next);
	unsigned state;

	for (; first != next; first++) {
		struct shm_cell *cell = shm_cell_own(cell_list_get(&ep->own, first));
		uint64_t seq;

		state = cell ? atomic_load_explicit(&cell->state, memory_order_acquire) : SHM_CELL_FREE;
		if (state == SHM_CELL_SENT || state == SHM_CELL_SEEN)
			break;
		if (unlikely(state != SHM_CELL_TAKEN)) {
			if (!cell_load(&ep->refused))
				ep_refuse(ep);
			break;
		}
		seq = be64toh(cell->hdr.sequence); /* 0: it has none */
		if (unlikely(seq > ep->last)) {
			ep_refuse(ep);
			break;
		}
		if (seq > ep->acked)
			ep->acked = seq;
	}
	cell_store(&ep->first, first);
	return ep->acked;
}

/* The cell for the next message: the same again while it is alone, because it is in the cache. */
static struct shm_cell *ep_cell(struct cell_ep *ep, unsigned at)
{
	const struct rds_conn_id *id;
	struct shm_cell *cell;
	uint32_t n;

	if (likely(at < ep->n_own))
		return shm_cell_own(cell_list_get(&ep->own, at));
	if (shm_cell_get(&n))
		return NULL;
	if (unlikely(!cell_list_set(&ep->own, at, n))) {
		shm_cell_put(n);
		return NULL;
	}
	ep->n_own = (uint8_t)(at + 1);
	cell = shm_cell_own(n);
	id = ep->head.t->up->id(ep->head.conn);
	if (likely(cell)) {
		cell->laddr = id->laddr;
		cell->faddr = id->faddr;
		cell->scope = id->scope;
		cell->tos = id->tos;
	}
	return cell;
}

/* Much traffic is worth a ring. */
static void ep_count(struct cell_ep *ep)
{
	uint32_t sent = cell_load(&ep->sent) + 1, now;

	cell_store(&ep->sent, sent);
	if (likely(sent % OUTGROWN_MESSAGES))
		return;
	now = shm_cell_now_ms();
	if (now - ep->counted_ms < OUTGROWN_MS)
		ep->head.t->up->outgrown(ep->head.conn);
	ep->counted_ms = now;
}

static int ep_send(struct rds_ep *rep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len,
		   uint64_t *pos)
{
	struct cell_ep *ep = (struct cell_ep *)rep;
	struct shm_cell *cell;
	uint64_t seq;
	unsigned at;

	ep_acked(rep);
	if (unlikely(cell_load(&ep->refused)))
		return -ENOTCONN;
	if (unlikely(len > SHM_CELL_PAYLOAD))
		return -EMSGSIZE;
	if (unlikely(under_way(ep) == CELL_CREDITS))
		return -EAGAIN;
	if (!under_way(ep)) {
		cell_store(&ep->first, 0);
		cell_store(&ep->next, 0);
	}
	at = cell_load(&ep->next) % CELL_CREDITS;
	cell = ep_cell(ep, at);
	if (unlikely(!cell)) {
		if (at < ep->n_own)
			return ep_refuse(ep); /* somebody has taken it away */
		return ep->n_own ? -EAGAIN : -EMSGSIZE; /* those under way come back */
	}
	cell->to = ep->to;
	cell->conn = (uint16_t)(ep->here | (ep->opened ? 0 : SHM_CELL_OPENS));
	cell->hdr = *hdr;
	rds_copy_gather(cell->payload, iov, len);
	*pos = at;
	if (!shm_cell_push(cell_list_get(&ep->own, at), ep->slot))
		return ep_refuse(ep);
	/* whoever sees it sees the cell in its place, too */
	atomic_store_explicit(&ep->next, (uint8_t)(cell_load(&ep->next) + 1), memory_order_release);
	ep->opened = true;
	seq = be64toh(hdr->sequence);
	if (likely(seq))
		ep->last = seq;
	ep_count(ep);
	return 0;
}

/*
 * The peer has no number in this process, so a datagram wakes it (wake_socket.c). A claim comes after the
 * wake-up (wake.c). The helper looks after a tick whether the peer has noticed what was sent: it may have
 * ended, or its line may say wrongly that it is awake.
 */
void shm_cell_wake(struct cell_ep *ep, bool service)
{
	struct shm_line *line = line_of(ep->slot);
	uint32_t word, who;
	struct rds_procid id;
	int err = -ECONNREFUSED;

	word = atomic_load(&line->attention);
	who = word & SHM_ATT_WHO;
	if (who == RDS_ATT_POLLING)
		return;
	if (who == RDS_ATT_LAZY && (!service || atomic_load(&line->service) || atomic_exchange(&line->service, 1)))
		return;
	if (registry_proc_id(rds_node_registry, ep->slot, &id) && registry_slab_word(&id) == ep->to)
		err = shm_wake_socket_send_to(&id, line->wake_key,
					      who == RDS_ATT_NAMED ? SHM_WAKE_LEADER : SHM_WAKE_RUN);
	if (unlikely(err == -ECONNREFUSED && who == RDS_ATT_NAMED)) /* it is in another network namespace */
		err = shm_wake_socket_send_to(&id, line->wake_key, SHM_WAKE_RUN);
	if (unlikely(err)) {
		if (err != -EAGAIN) /* else there is no room for it, and the tick is soon enough */
			shm_cell_watch(ep, true);
		return;
	}
	if (who == RDS_ATT_LEADER || who == RDS_ATT_NAMED)
		rds_transport_wakes.peer_woken();
	if (who == RDS_ATT_LEADER || who == RDS_ATT_NAMED || who == RDS_ATT_HELPER)
		atomic_compare_exchange_strong(&line->attention, &word, word - who + RDS_ATT_LAZY);
}

static void ep_flush(struct rds_ep *rep, bool service)
{
	struct cell_ep *ep = (struct cell_ep *)rep;

	if (!under_way(ep)) /* what the engine wants to send is not for this endpoint */
		return;
	shm_cell_watch(ep, false); /* with a fence, after which the peer's attention is read */
	if (service && ep->serviced == ep->acked + 1)
		service = false; /* once for each acknowledgement seen */
	if (service)
		ep->serviced = ep->acked + 1;
	shm_cell_wake(ep, service);
}

static const void *ep_retained(struct rds_ep *rep, uint64_t pos)
{
	const struct shm_cell *cell = shm_cell_own(cell_list_get(&((struct cell_ep *)rep)->own, (unsigned)pos));

	return cell ? cell->payload : NULL;
}

static bool ep_want_room(struct rds_ep *rep, uint64_t seen)
{
	struct cell_ep *ep = (struct cell_ep *)rep;

	cell_store(&ep->wanted_at, cell_load(&ep->first));
	shm_cell_want(ep);
	return ep_acked(rep) > seen;
}

/* A peer that has not made its side yet may refuse to. */
static bool ep_settled(struct rds_ep *rep)
{
	const struct cell_ep *ep = (struct cell_ep *)rep;

	return !cell_load(&ep->refused) && (ep->acked || !under_way(ep));
}

static void ep_watch(struct rds_ep *rep)
{
	shm_cell_watch((struct cell_ep *)rep, false);
}

static void ep_rest(struct rds_ep *rep)
{
	struct cell_ep *ep = (struct cell_ep *)rep;

	ep_acked(rep); /* what has no number is over, too */
	if (under_way(ep))
		return;
	/* the next send begins there: a look while it does so must not see places without a cell */
	cell_store(&ep->first, 0);
	cell_store(&ep->next, 0);
	while (ep->n_own) {
		ep->n_own--;
		shm_cell_put(cell_list_get(&ep->own, ep->n_own));
		cell_list_set(&ep->own, ep->n_own, SHM_CELLS_MAX); /* not this endpoint's any more */
	}
}

static void ep_release(struct rds_ep *rep, void *token)
{
	(void)rep; /* nothing waits in place */
	(void)token;
}

/* ---- life ---- */

static bool number_is_used(const struct cell_ep *first, uint16_t number)
{
	for (; first; first = first->slot_next)
		if (first->here == number)
			return true;
	return false;
}

struct cell_ep *shm_cell_ep_new(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn)
{
	struct cell_ep *ep = calloc(1, sizeof(*ep));

	if (!ep)
		return NULL;
	ep->head.t = &shm_cell_transport;
	ep->head.conn = conn;
	ep->to = registry_slab_word(&id->peer);
	ep->slot = id->peer_slot;
	ep->there = -1;
	cell_store(&ep->own.first, SHM_CELLS_MAX); /* none, and nobody else's */
	rx_lock();
	if (unlikely(!shm_cell_transport.up))
		shm_cell_transport.up = t->up;
	do
		ep->here = ++last_number & SHM_CELL_CONN;
	while (number_is_used(shm_cell_eps[ep->slot], ep->here));
	ep->slot_next = shm_cell_eps[ep->slot];
	shm_cell_eps[ep->slot] = ep;
	rx_unlock();
	return ep;
}

int shm_open_cells(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, struct rds_ep **out)
{
	struct shm_line *line = id->peer_slot < REGISTRY_SLOTS && shm_cells_line ? line_of(id->peer_slot) : NULL;

	if (!line || atomic_load(&line->owner) != registry_slab_word(&id->peer))
		return -EOPNOTSUPP;
	*out = (struct rds_ep *)shm_cell_ep_new(t, id, conn);
	return *out ? 0 : -ENOMEM;
}

bool shm_cell_ep_reclaim(struct cell_ep *ep, bool gone)
{
	unsigned i;

	if (!ep->closed || ep->kept)
		return false;
	for (i = cell_load(&ep->first); !gone && (uint8_t)i != cell_load(&ep->next); i++) {
		unsigned state = shm_cell_ep_state(ep, i);

		if (state == SHM_CELL_SENT || state == SHM_CELL_SEEN)
			return false;
	}
	if (atomic_load(&ep->wants) || atomic_load(&ep->watched))
		return false;
	for (i = 0; i < ep->n_own; i++)
		shm_cell_put(cell_list_get(&ep->own, i));
	free(atomic_load(&ep->own.more));
	free(atomic_load(&ep->got.more));
	free(ep);
	return true;
}

/* It is closed. rx, from before it was: in between, a thread that receives could free it (room_came()). */
static void ep_give_up(struct cell_ep *ep)
{
	if (!shm_cell_ep_reclaim(ep, false) && !ep->kept)
		shm_cell_watch(ep, false);
}

void shm_cell_ep_close(struct rds_ep *rep)
{
	struct cell_ep *ep = (struct cell_ep *)rep, **pp;

	rx_lock();
	for (pp = &shm_cell_eps[ep->slot]; *pp; pp = &(*pp)->slot_next)
		if (*pp == ep) {
			*pp = ep->slot_next;
			break;
		}
	shm_cell_forget(ep);
	ep->closed = true;
	ep_give_up(ep);
	rx_unlock();
}

static void ep_keep(struct rds_ep *rep, bool on)
{
	struct cell_ep *ep = (struct cell_ep *)rep;

	rx_lock();
	ep->kept = on;
	if (!on && ep->closed)
		ep_give_up(ep);
	rx_unlock();
}

/* The next endpoint of the connection is one with rings. */
static int ep_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn,
		      struct rds_received here, struct rds_ep **ep)
{
	(void)t;
	return rds_shm.t.ops->connect(&rds_shm.t, id, conn, here, ep);
}

static void ep_attach(struct rds_ep *rep, struct rds_conn *conn)
{
	((struct cell_ep *)rep)->head.conn = conn;
}

static const struct rds_transport_ops cell_ops = {
	.name = "shm",
	.caps = RDS_TCAP_SURVIVES | RDS_TCAP_PATIENT | RDS_TCAP_FIRST,
	.connect = ep_connect,
	.attach = ep_attach,
	.close = shm_cell_ep_close,
	.send = ep_send,
	.flush = ep_flush,
	.retained = ep_retained,
	.keep = ep_keep,
	.settled = ep_settled,
	.acked = ep_acked,
	.want_room = ep_want_room,
	.watch = ep_watch,
	.rest = ep_rest,
	.ack = shm_cell_ack,
	.release = ep_release,
};
struct rds_transport shm_cell_transport = {.ops = &cell_ops};
