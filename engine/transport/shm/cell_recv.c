/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cell_recv.c - cells that have come: whose they are, what the engine does with them, and room.
 *
 * What is taken from the stack is first given to the endpoints, and only then delivered, one endpoint after
 * the other. So a message that the engine does not take yet holds up those of its own endpoint, and no
 * others; and when the engine has more received in the middle of a message, nothing is overtaken.
 *
 * The first cell of an endpoint is a *stranger*: the engine is asked, without locks, for the connection that
 * the cell names. Cells that could be of the same endpoint wait behind it. If there is no such endpoint
 * afterwards, the cell is refused, and with it all that come later: none is delivered behind a gap.
 *
 * A sender that waits says so in its line (`want`), once for all of its endpoints. Whoever gives a cell
 * back says there that it did (`want_came`), and wakes it. Then the sender looks at the endpoints that wait.
 *
 * All under rx, except shm_cell_want() and shm_cells_meet().
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "engine/transport/shm/cell_ep.h"

#define LAST_TRIES 100
/* Messages that were cancelled leave gaps, but not such ones. */
#define GAP_MAX ((uint64_t)1 << 20)

struct stranger {
	uint32_t n, came; /* its cell; how many had come before */
};
static struct {
	struct stranger *v;
	uint32_t n, cap, came;
} strangers;
static struct cell_ep *ready, **ready_end = &ready, *waiting, *roomy;
static _Atomic(struct cell_ep *) wants;
static unsigned draining;
static bool caught_up; /* since the last drain began: what waited for older messages can be taken now */
static _Atomic bool tick_came;

/* ---- room ---- */

void shm_cell_want(struct cell_ep *ep)
{
	struct cell_ep *first = atomic_load(&wants);

	if (!atomic_exchange(&ep->wants, true))
		do
			ep->want_next = first;
		while (!atomic_compare_exchange_weak(&wants, &first, ep));
	atomic_store(&shm_cells_line->want, 1);
	rds_fence();
}

/* Those that still have no room want it again. */
static bool wants_answer(void)
{
	struct cell_ep *ep, *next;
	bool any = false;

	for (ep = atomic_exchange(&wants, NULL); ep; ep = next) {
		next = ep->want_next;
		atomic_store(&ep->wants, false);
		rds_fence();
		if (ep->closed) {
			shm_cell_ep_reclaim(ep, false);
		} else if (shm_cell_ep_moved(ep)) {
			ep->head.t->up->writable(ep->head.conn);
			any = true;
		} else {
			shm_cell_want(ep);
		}
	}
	return any;
}

static void room_came(struct shm_line *own)
{
	atomic_store(&own->want_came, 0);
	do {
		atomic_store(&own->want, 0);
		rds_fence(); /* shm_cell_want() puts it on the list, then writes `want` */
		if (!atomic_load(&wants))
			return;
		atomic_store(&own->want, 1);
		rds_fence(); /* what comes back from here on is told */
	} while (wants_answer());
}

static void room_tell(void)
{
	struct shm_line *line;
	struct cell_ep *ep;

	if (draining || !roomy)
		return;
	rds_fence();
	for (; (ep = roomy); roomy = ep->room_next) {
		line = registry_line(rds_node_registry, ep->slot);
		ep->roomy = false;
		if (likely(!cell_load(&line->want)))
			continue;
		atomic_store(&line->want_came, 1);
		rds_fence();
		shm_cell_wake(ep, false); /* a busy sender (LAZY) will look by itself */
	}
}

static void room_made(struct cell_ep *ep)
{
	if (ep->roomy)
		return;
	ep->roomy = true;
	ep->room_next = roomy;
	roomy = ep;
}

/* ---- cells of an endpoint ---- */

static struct shm_cell *got_at(const struct cell_ep *ep, uint8_t i)
{
	return shm_cell_at(cell_list_get(&ep->got, i));
}

/* A number that the sender changes meanwhile harms only that sender. */
static void ep_settle(struct cell_ep *ep)
{
	uint8_t before = ep->got_first;

	for (; ep->got_first != ep->got_mid; ep->got_first++) {
		struct shm_cell *cell = got_at(ep, ep->got_first);

		if (cell && be64toh(cell->hdr.sequence) > ep->heard)
			break;
		if (cell)
			shm_cell_return(cell, true);
	}
	if (ep->got_first != before)
		room_made(ep);
}

void shm_cell_ack(struct rds_ep *rep, uint64_t seq)
{
	struct cell_ep *ep = (struct cell_ep *)rep;

	if (seq > ep->heard)
		ep->heard = seq;
	ep_settle(ep);
	room_tell();
}

static void list_remove(struct cell_ep **pp, const struct cell_ep *ep)
{
	for (; *pp; pp = &(*pp)->ready_next)
		if (*pp == ep) {
			*pp = ep->ready_next;
			return;
		}
}

static void ep_drop_cells(struct cell_ep *ep)
{
	for (; ep->got_first != ep->got_next; ep->got_first++) {
		struct shm_cell *cell = got_at(ep, ep->got_first);

		if (cell)
			shm_cell_return(cell, false);
		room_made(ep);
	}
	ep->got_mid = ep->got_next;
}

void shm_cell_forget(struct cell_ep *ep)
{
	list_remove(&ready, ep);
	list_remove(&waiting, ep);
	for (ready_end = &ready; *ready_end; ready_end = &(*ready_end)->ready_next)
		;
	ep_drop_cells(ep);
	room_tell();
}

static void ep_break(struct cell_ep *ep)
{
	cell_store(&ep->broken, true);
	ep_drop_cells(ep);
	shm_cell_watch(ep, true);
}

static void ep_bad(struct cell_ep *ep, const char *what)
{
	rds_warn("a peer process sent invalid data through shared memory (%s): connection closed (another version of "
		 "this library?)",
		 what);
	ep_break(ep);
}

static void ep_make_ready(struct cell_ep *ep)
{
	/* delivering: whoever does that goes on with it, or has it wait */
	if (ep->ready || ep->later || ep->paused || ep->delivering)
		return;
	ep->ready = true;
	ep->ready_next = NULL;
	*ready_end = ep;
	ready_end = &ep->ready_next;
}

static void ep_got(struct cell_ep *ep, uint32_t n)
{
	if (unlikely(cell_load(&ep->broken))) {
		shm_cell_return(shm_cell_at(n), false);
		return;
	}
	if (unlikely((uint8_t)(ep->got_next - ep->got_first) == CELL_CREDITS)) {
		shm_cell_return(shm_cell_at(n), false);
		ep_bad(ep, "more messages than there may be");
		return;
	}
	if (ep->got_first == ep->got_next) /* one message at a time needs one place */
		ep->got_first = ep->got_mid = ep->got_next = 0;
	if (unlikely(!cell_list_set(&ep->got, ep->got_next, n))) {
		shm_cell_return(shm_cell_at(n), false);
		ep_break(ep);
		return;
	}
	ep->got_next++;
	ep_make_ready(ep);
}

/* ---- to the engine ---- */

static void ep_wait(struct cell_ep *ep, bool pause)
{
	ep->paused = pause;
	ep->later = !pause;
	ep->ready_next = waiting;
	waiting = ep;
	shm_recheck_inbox();
}

/* False: nothing more of it now. */
static bool cell_deliver(struct cell_ep *ep)
{
	struct shm_cell *cell = got_at(ep, ep->got_mid);
	struct rds_wire_hdr hdr;
	struct rds_rx rx = {0};
	enum rds_rx_verdict v;

	if (unlikely(!cell || cell_load(&cell->state) != SHM_CELL_SEEN)) {
		ep_bad(ep, "cell");
		return false;
	}
	hdr = cell->hdr;
	if (unlikely(rds_wire_hdr_decode(&hdr, &rx.hdr) || rx.hdr.len > SHM_CELL_PAYLOAD ||
		     (ep->came && rx.hdr.seq > ep->came + GAP_MAX))) {
		ep_bad(ep, "message header");
		return false;
	}
	rx.data = cell->payload;
	ep->got_mid++; /* the engine may acknowledge it at once */
	v = ep->head.t->up->message(ep->head.conn, (struct rds_ep *)ep, &rx);
	if (unlikely(v >= RDS_RX_LATER)) {
		if (cell_load(&ep->broken)) /* by something that came meanwhile */
			return false;
		ep->got_mid--;
		ep_wait(ep, v == RDS_RX_PAUSE);
		return false;
	}
	if (likely(rx.hdr.seq))
		ep->came = rx.hdr.seq;
	ep_settle(ep); /* a second copy, or a message without a number, is acknowledged by nobody */
	return true;
}

static bool all_deliver(void)
{
	struct cell_ep *ep;
	bool any = false;

	while ((ep = ready)) {
		ready = ep->ready_next;
		if (!ready)
			ready_end = &ready;
		ep->ready = false;
		ep->delivering = true;
		while (ep->got_mid != ep->got_next && cell_deliver(ep))
			any = true;
		ep->delivering = false;
	}
	return any;
}

static void waiting_again(bool tick)
{
	struct cell_ep *ep, *next, *first = NULL;

	/* who has waited longest comes first: so each of them does, in the end, and then waits for no other */
	for (ep = waiting, waiting = NULL; ep; ep = next) {
		next = ep->ready_next;
		ep->ready_next = first;
		first = ep;
	}
	for (ep = first; ep; ep = next) {
		next = ep->ready_next;
		if (ep->paused && !tick) {
			ep->ready_next = waiting;
			waiting = ep;
			continue;
		}
		ep->paused = ep->later = false;
		ep_make_ready(ep);
	}
}

static bool rest_deliver(void)
{
	bool any;

	draining++;
	any = all_deliver();
	draining--;
	room_tell();
	return any;
}

/* ---- whose? ---- */

static bool ep_is_named(const struct cell_ep *ep, const struct shm_cell *cell)
{
	const struct rds_conn_id *id = ep->head.t->up->id(ep->head.conn);

	return !memcmp(&id->laddr, &cell->faddr, sizeof(id->laddr)) &&
	       !memcmp(&id->faddr, &cell->laddr, sizeof(id->faddr)) && id->scope == cell->scope && id->tos == cell->tos;
}

/* By the number alone, if an older cell of it may still be a stranger. */
static struct cell_ep *ep_find(const struct shm_cell *cell, uint64_t word, uint32_t slot, bool number)
{
	const uint16_t conn = cell->conn;
	struct cell_ep *ep;

	for (ep = slot < REGISTRY_SLOTS ? shm_cell_eps[slot] : NULL; ep; ep = ep->slot_next) {
		if (ep->to != word || !ep->head.conn)
			continue;
		if (ep->there == (int32_t)(conn & SHM_CELL_CONN))
			return ep;
		if (number || !(conn & SHM_CELL_OPENS) || ep->there >= 0 || !ep_is_named(ep, cell))
			continue;
		ep->there = (int32_t)(conn & SHM_CELL_CONN);
		return ep;
	}
	return NULL;
}

/* No later cell may come without one for which there is no memory: so those that open endpoints go back, too. */
static int strangers_refuse(void)
{
	struct shm_cell *cell;

	while (strangers.n)
		if ((cell = shm_cell_at(strangers.v[--strangers.n].n)))
			shm_cell_return(cell, false);
	return -ENOMEM;
}

static int stranger_add(uint32_t n)
{
	struct stranger *v;
	uint32_t cap = strangers.cap ? 2 * strangers.cap : 16;

	if (strangers.n == strangers.cap) {
		v = realloc(strangers.v, cap * sizeof(*v));
		if (!v)
			return strangers_refuse();
		strangers.v = v;
		strangers.cap = cap;
	}
	strangers.v[strangers.n++] = (struct stranger){.n = n, .came = strangers.came++};
	rds_shm.t.up->meet_later(&rds_shm.t);
	return 0;
}

static void cell_came(uint32_t n)
{
	struct shm_cell *cell = shm_cell_at(n);
	struct cell_ep *ep;
	uint64_t word;
	uint32_t slot;

	if (!cell)
		return;
	if (!shm_cell_sender(n, &word, &slot)) {
		shm_cell_return(cell, false);
		return;
	}
	ep = ep_find(cell, word, slot, strangers.n);
	if (likely(ep))
		ep_got(ep, n);
	else if ((!strangers.n && !(cell->conn & SHM_CELL_OPENS)) || stranger_add(n))
		shm_cell_return(cell, false); /* the sender connects in the other way */
}

static bool chain_came(void)
{
	uint32_t link = shm_cells_take(), next, most = SHM_CELLS_MAX;
	bool any = link;

	for (; link && most--; link = next) {
		next = shm_cells_next(link);
		cell_came(link - 1);
	}
	return any;
}

bool shm_cells_drain(void)
{
	struct shm_line *own = shm_cells_line;
	bool tick, moved, any;

	if (!own)
		return false;
	if (unlikely(cell_load(&own->want_came)))
		room_came(own);
	if (unlikely(cell_load(&own->service))) {
		atomic_store(&own->service, 0);
		rds_fence(); /* who finds it set has put its cells there before */
	}
	moved = chain_came();
	tick = unlikely(cell_load(&tick_came)) && atomic_exchange(&tick_came, false);
	if (likely(!moved && !tick && !caught_up))
		return false;
	do {
		caught_up = false;
		if (unlikely(waiting))
			waiting_again(tick);
		tick = false;
		any = rest_deliver();
		moved |= any;
	} while (unlikely(caught_up) && any && waiting);
	return moved;
}

bool shm_cells_catch_up(bool again, bool all)
{
	bool known;

	if (!shm_cells_line)
		return true;
	chain_came();
	known = !strangers.n;
	if (all && !known)
		return false;
	if (again)
		waiting_again(false);
	rest_deliver();
	caught_up = waiting;
	return known;
}

bool shm_cells_tick_came(void)
{
	return unlikely(cell_load(&tick_came));
}

void shm_cells_sweep(void)
{
	if (waiting)
		atomic_store(&tick_came, true);
}

/* ---- strangers ---- */

static bool stranger_id(uint32_t n, struct rds_conn_id *id)
{
	const struct shm_cell *cell = shm_cell_at(n);

	if (!cell || !(cell->conn & SHM_CELL_OPENS))
		return false;
	id->laddr = cell->faddr;
	id->faddr = cell->laddr;
	id->scope = cell->scope;
	id->tos = cell->tos;
	return registry_slab_id(rds_node_registry, n / SHM_SLAB_CELLS, &id->peer, &id->peer_slot);
}

/* rx. Without memory they are refused. */
static uint32_t strangers_ask(struct rds_conn_id **out)
{
	uint32_t i, n = 0;

	*out = calloc(strangers.n ? strangers.n : 1, sizeof(**out));
	for (i = 0; *out && i < strangers.n; i++)
		n += stranger_id(strangers.v[i].n, &(*out)[n]);
	return n;
}

/* rx. Those that came before `asked` are refused now; for others nobody has asked, or another thread does. */
static void strangers_offer(uint32_t asked)
{
	uint32_t i, left = 0, slot;
	struct cell_ep *ep;
	uint64_t word;

	for (i = 0; i < strangers.n; i++) {
		struct stranger s = strangers.v[i];
		struct shm_cell *cell = shm_cell_at(s.n);

		ep = cell && shm_cell_sender(s.n, &word, &slot) ? ep_find(cell, word, slot, false) : NULL;
		if (ep)
			ep_got(ep, s.n);
		else if (cell && (int32_t)(s.came - asked) < 0)
			shm_cell_return(cell, false);
		else if (cell)
			strangers.v[left++] = s;
	}
	strangers.n = left;
	if (!left) {
		free(strangers.v);
		strangers.v = NULL;
		strangers.cap = 0;
	}
}

/* Its connection may have an endpoint of its own by now: then that one has the cells (-EEXIST). */
static void stranger_meet(struct rds_transport *t, const struct rds_conn_id *id)
{
	struct cell_ep *ep = shm_cell_ep_new(t, id, NULL);
	int why;

	if (ep && !t->up->opened(t, (struct rds_ep *)ep, id, &why))
		shm_cell_ep_close((struct rds_ep *)ep);
}

void shm_cells_meet(struct rds_transport *t)
{
	struct rds_conn_id *ids;
	uint32_t i, n, asked;

	rx_lock();
	chain_came();
	n = strangers_ask(&ids);
	asked = strangers.came;
	rx_unlock();
	for (i = 0; i < n; i++)
		stranger_meet(t, &ids[i]);
	free(ids);
	rx_lock();
	strangers_offer(asked);
	waiting_again(false); /* perhaps for these */
	rest_deliver();
	rx_unlock();
}

/* ---- the last of a process ---- */

struct found {
	uint32_t n, cap, *v;
};

static void cell_found(uint32_t link, void *arg)
{
	struct found *f = arg;
	uint32_t cap = f->cap ? 2 * f->cap : 16, *v = f->v;

	if (f->n == f->cap) {
		v = realloc(f->v, cap * sizeof(*v));
		if (!v) {
			rds_error("out of memory: messages of a process that has ended are lost");
			return;
		}
		f->v = v;
		f->cap = cap;
	}
	f->v[f->n++] = link - 1;
}

static int by_number(const void *a, const void *b)
{
	const struct shm_cell *x = shm_cell_at(*(const uint32_t *)a), *y = shm_cell_at(*(const uint32_t *)b);
	uint64_t m, n;

	if (!x || !y)
		return 0;
	m = be64toh(x->hdr.sequence);
	n = be64toh(y->hdr.sequence);
	if ((x->conn ^ y->conn) & SHM_CELL_CONN)
		return (int)(x->conn & SHM_CELL_CONN) - (int)(y->conn & SHM_CELL_CONN);
	return (m > n) - (m < n);
}

static bool any_left(uint64_t word, uint32_t slot)
{
	const struct cell_ep *ep;

	for (ep = shm_cell_eps[slot]; ep; ep = ep->slot_next)
		if (ep->to == word && ep->got_mid != ep->got_next)
			return true;
	return false;
}

/* What it had filled and not put on the stack is taken, too. It is tried several times: the last chance. */
void shm_cell_last(uint64_t word, uint32_t slot)
{
	struct found f = {0};
	unsigned tries = LAST_TRIES;
	uint32_t i;

	rx_lock();
	chain_came();
	shm_cells_search(word, cell_found, &f);
	if (f.n)
		qsort(f.v, f.n, sizeof(*f.v), by_number);
	for (i = 0; i < f.n; i++)
		cell_came(f.v[i]);
	free(f.v);
	for (;;) {
		waiting_again(true);
		rest_deliver();
		if (!any_left(word, slot) || !--tries)
			break;
		rx_unlock();
		shm_peers_make_way();
		rx_lock();
	}
	if (!tries)
		rds_error("messages of a process that has ended are lost: they could not be taken");
	rx_unlock();
}

void shm_cell_recv_fork_child(void)
{
	strangers.v = NULL;
	strangers.n = strangers.cap = 0;
	ready = waiting = roomy = NULL;
	ready_end = &ready;
	atomic_store(&wants, NULL);
	atomic_store(&tick_came, false);
	draining = 0;
	caught_up = false;
	memset(shm_cell_eps, 0, REGISTRY_SLOTS * sizeof(*shm_cell_eps));
}
