/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cell_recv.c - cells that have come: whose they are, and what the engine does with them.
 *
 * What is taken from the stack is first given to the endpoints, and only then delivered, one endpoint after
 * the other. So a message that the engine does not take yet holds up those of its own endpoint, and no
 * others; and when the engine has more received in the middle of a message, nothing is overtaken.
 *
 * All under rx.
 */
#include <endian.h>
#include <string.h>

#include "engine/transport/shm/cell_ep.h"

/* Messages that were cancelled leave gaps, but not such ones. */
#define GAP_MAX ((uint64_t)1 << 20)

static struct cell_ep *ready, **ready_end = &ready, *waiting;
static unsigned draining;
static bool caught_up; /* since the last drain began: what waited for older messages can be taken now */
static _Atomic bool tick_came;

/* Senders are told once, of all that has gone back meanwhile. */
static void room_tell(void)
{
	if (!draining)
		shm_cell_room_tell();
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
		shm_cell_room_made(ep);
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
		shm_cell_room_made(ep);
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

void shm_cell_got(struct cell_ep *ep, uint32_t n)
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

bool shm_cells_offer(bool tick)
{
	waiting_again(tick);
	return rest_deliver();
}

bool shm_cells_put_off(void)
{
	bool any;

	rx_lock();
	any = waiting;
	rx_unlock();
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
struct cell_ep *shm_cell_ep_find(const struct shm_cell *cell, uint64_t word, uint32_t slot, bool number)
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

void shm_cell_came(uint32_t n)
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
	ep = shm_cell_ep_find(cell, word, slot, shm_cell_strangers());
	if (likely(ep))
		shm_cell_got(ep, n);
	else if ((!shm_cell_strangers() && !(cell->conn & SHM_CELL_OPENS)) || shm_cell_stranger_add(n))
		shm_cell_return(cell, false); /* the sender connects in the other way */
}

bool shm_cells_come(void)
{
	uint32_t link = shm_cells_take(), next, most = SHM_CELLS_MAX;
	bool any = link;

	for (; link && most--; link = next) {
		next = shm_cells_next(link);
		shm_cell_came(link - 1);
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
		shm_cell_room_came(own);
	if (unlikely(cell_load(&own->service))) {
		atomic_store(&own->service, 0);
		rds_fence(); /* who finds it set has put its cells there before */
	}
	moved = shm_cells_come();
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

bool shm_cells_catch_up(bool again, uint64_t since)
{
	bool known;

	if (!shm_cells_line)
		return true;
	shm_cells_come();
	known = !shm_cell_strangers();
	if (since && !known)
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

void shm_cell_recv_fork_child(void)
{
	ready = waiting = NULL;
	ready_end = &ready;
	atomic_store(&tick_came, false);
	draining = 0;
	caught_up = false;
	shm_cell_strangers_fork_child();
	shm_cell_room_fork_child();
	memset(shm_cell_eps, 0, REGISTRY_SLOTS * sizeof(*shm_cell_eps));
}
