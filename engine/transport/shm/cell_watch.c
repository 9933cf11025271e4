/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cell_watch.c - what no peer tells an endpoint on cells: that the peer has ended, does not want the
 * endpoint, or was not woken.
 *
 * An endpoint is watched from the time when something was sent, or the engine began to wait. The helper
 * looks at it after a tick, and as long as anything is under way or awaited. The pauses grow to a second:
 * each is as long as the time since the latest endpoint was watched anew, and longer on a machine that is
 * short of processors. A cell that a peer has not seen that sleeps makes the helper ask it to look
 * (wake_socket.c). Of peers for which nothing waits only memory is left: all are looked at after a minute, and
 * after twice as long each time, an hour at most.
 *
 * Helper thread, except shm_cell_watch().
 */
#include "engine/sys/patience.h"
#include "engine/transport/shm/cell_ep.h"

#define TICK_NS (10 * 1000000ull)
#define AWAKE_MS 300
#define SECOND_NS (1000 * 1000000ull)
#define LOOK_FIRST_NS (60 * SECOND_NS)
#define LOOK_LAST_NS (3600 * SECOND_NS)

static void watched_look(struct rds_timer *tm);
static void all_look(struct rds_timer *tm);
static struct rds_timer watch_timer = {.fn = watched_look}, all_timer = {.fn = all_look};
static _Atomic(struct cell_ep *) watched;
static _Atomic bool soon;
static _Atomic uint64_t since, rest_until;
static uint64_t look_pause = LOOK_FIRST_NS;

static void watch_add(struct cell_ep *ep)
{
	struct cell_ep *first = atomic_load(&watched);

	do
		ep->watch_next = first;
	while (!atomic_compare_exchange_weak(&watched, &first, ep));
}

void shm_cell_watch(struct cell_ep *ep, bool now)
{
	uint64_t at, rest;
	bool is;

	rds_fence(); /* either ep_look() sees why, or this sees that it has cleared `watched` */
	is = cell_load(&ep->watched) || atomic_exchange(&ep->watched, true);
	if (!is)
		watch_add(ep);
	if (now) {
		rds_timer_set(&watch_timer, os_now_ns());
	} else if (!is && !atomic_exchange(&soon, true)) {
		at = os_now_ns();
		rest = atomic_load(&rest_until);
		atomic_store(&since, at);
		rds_timer_set(&watch_timer, at + TICK_NS > rest ? at + TICK_NS : rest);
		rds_timer_need(&all_timer, at + LOOK_FIRST_NS);
	}
}

static bool peer_lives(uint64_t word, uint32_t slot)
{
	struct rds_procid id;

	return registry_proc_id(rds_node_registry, slot, &id) && registry_slab_word(&id) == word &&
	       registry_proc_alive(rds_node_registry, slot, &id);
}

static struct cell_ep *ep_of(uint64_t word, uint32_t slot)
{
	struct cell_ep *ep;

	rx_lock();
	for (ep = shm_cell_eps[slot]; ep && (ep->to != word || !ep->head.conn); ep = ep->slot_next)
		;
	rx_unlock();
	return ep;
}

static void ep_down(struct cell_ep *ep, int why, bool gone)
{
	ep->head.t->up->down(ep->head.conn, (struct rds_ep *)ep, why, gone); /* closes ep */
}

static void peer_gone(uint64_t word, uint32_t slot)
{
	struct cell_ep *ep;

	shm_peers_hear_last(word);
	shm_cell_last(word, slot);
	while ((ep = ep_of(word, slot)))
		ep_down(ep, -EPIPE, true);
	look_pause = LOOK_FIRST_NS; /* where one ends, others may end, too */
	rds_timer_set(&all_timer, os_now_ns() + SECOND_NS);
}

void shm_cells_peer_gone(const struct rds_procid *id, uint32_t slot)
{
	uint64_t word = registry_slab_word(id);

	if (slot < REGISTRY_SLOTS && ep_of(word, slot))
		peer_gone(word, slot);
}

/* -ECONNREFUSED: it has ended, or is about to. */
static int peer_ask(const struct cell_ep *ep)
{
	const struct shm_line *line = registry_line(rds_node_registry, ep->slot);
	struct rds_procid id;

	if (!line || !registry_proc_id(rds_node_registry, ep->slot, &id) || registry_slab_word(&id) != ep->to)
		return -ECONNREFUSED;
	return shm_wake_socket_send_to(&id, line->wake_key, SHM_WAKE_LOOK);
}

/*
 * Whoever was woken says that it is awake until it sleeps again. In a crowd it may wait long for a processor,
 * and those who ask it to look only add to that. Whoever says so for longer may have been overwritten.
 */
static bool peer_is_awake(const struct cell_ep *ep)
{
	const struct shm_line *line = registry_line(rds_node_registry, ep->slot);
	uint32_t who = line ? atomic_load(&line->attention) & SHM_ATT_WHO : RDS_ATT_HELPER;

	return (who == RDS_ATT_LAZY || who == RDS_ATT_POLLING) && shm_cell_now_ms() - ep->unseen_ms < AWAKE_MS;
}

/* False: nothing is under way any more. */
static bool under_way(const struct cell_ep *ep, bool *unseen, bool *refused)
{
	uint8_t i = cell_load(&ep->first), next = atomic_load_explicit(&ep->next, memory_order_acquire);
	bool any = false;

	*unseen = *refused = false;
	if ((uint8_t)(next - i) > CELL_CREDITS) /* a send has begun anew in between: they are of different times */
		return true;
	for (; i != next; i++) {
		unsigned state = shm_cell_ep_state(ep, i);

		*unseen |= state == SHM_CELL_SENT;
		*refused |= state != SHM_CELL_SENT && state != SHM_CELL_SEEN && state != SHM_CELL_TAKEN;
		any |= state != SHM_CELL_TAKEN;
	}
	return any;
}

/* It may have given that up (cells.c). */
static bool peer_listens(const struct cell_ep *ep)
{
	struct shm_line *line = registry_line(rds_node_registry, ep->slot);

	return line && atomic_load(&line->owner) == ep->to;
}

/* Of the oldest message under way: how many were sent before. A send that happens now may make it wrong once. */
static uint32_t sent_before(const struct cell_ep *ep)
{
	return cell_load(&ep->sent) - (uint8_t)(cell_load(&ep->next) - cell_load(&ep->first));
}

/*
 * Is it time to ask a peer that has not seen what was sent? It may only have had no processor: so after two
 * looks, after three, after five ...
 */
static bool unseen_is_due(struct cell_ep *ep, bool unseen)
{
	uint32_t number = sent_before(ep);

	if (!unseen) {
		ep->looks = 0;
	} else if (!ep->looks || number != ep->unseen) {
		ep->looks = 1;
		ep->unseen = number;
		ep->unseen_ms = shm_cell_now_ms();
	} else if (ep->looks < 129) {
		ep->looks++;
		return !((ep->looks - 1u) & (ep->looks - 2u));
	}
	return false;
}

/*
 * It is stopped, or cannot find the cell: because it has no more addresses, or another process has damaged its
 * stack. The messages are kept, and what comes twice in the end is dropped.
 */
static bool unseen_too_long(const struct cell_ep *ep)
{
	return ep->looks > 1 && shm_cell_now_ms() - ep->unseen_ms > rds_patience_ms(RDS_PATIENCE_CELL);
}

/* While it is `watched`, no thread that receives frees it; in between rx keeps it. */
static bool closed_look(struct cell_ep *ep)
{
	bool gone = !peer_lives(ep->to, ep->slot), done;

	rx_lock();
	atomic_store(&ep->watched, false);
	done = ep->kept || shm_cell_ep_reclaim(ep, gone);
	if (!done && !atomic_exchange(&ep->watched, true))
		watch_add(ep);
	rx_unlock();
	return !done;
}

/* True: look again. */
static bool ep_look(struct cell_ep *ep)
{
	bool unseen, refused, any, due;

	if (ep->closed)
		return closed_look(ep);
	atomic_store(&ep->watched, false);
	rds_fence();
	any = under_way(ep, &unseen, &refused);
	refused |= cell_load(&ep->refused) || !peer_listens(ep);
	due = unseen_is_due(ep, unseen);
	if (!any && !refused && !cell_load(&ep->broken) && !ep->head.t->up->awaited(ep->head.conn))
		return false;
	if (((due || refused || !unseen) && !peer_lives(ep->to, ep->slot)) ||
	    (due && !peer_is_awake(ep) && peer_ask(ep) == -ECONNREFUSED)) {
		peer_gone(ep->to, ep->slot);
		return false;
	}
	if (refused || cell_load(&ep->broken)) {
		ep_down(ep, refused ? -ECONNRESET : -EPROTO, false);
		return false;
	}
	if (unseen_too_long(ep)) {
		ep_down(ep, -ETIMEDOUT, false);
		return false;
	}
	if (!any) { /* perhaps it has waited for a cell, or for room */
		rx_lock();
		ep->head.t->up->writable(ep->head.conn);
		rx_unlock();
	}
	return true;
}

static void watched_look(struct rds_timer *tm)
{
	struct cell_ep *ep, *next;
	uint64_t now = os_now_ns(), pause, rest;
	bool any = false;

	atomic_store(&soon, false);
	for (ep = atomic_exchange(&watched, NULL); ep; ep = next) {
		next = ep->watch_next;
		if (!ep_look(ep))
			continue;
		any = true;
		if (!atomic_exchange(&ep->watched, true))
			watch_add(ep);
	}
	rest = rds_timer_pause(TICK_NS);
	atomic_store(&rest_until, now + rest);
	pause = now - atomic_load(&since);
	pause = pause < rest ? rest : pause < SECOND_NS ? pause : SECOND_NS;
	if (any && !atomic_load(&soon))
		rds_timer_need(tm, now + pause);
}

/* A process with endpoints to this one that has, or may have, ended; else one that has the slot. 0: none. */
static uint64_t slot_word(uint32_t slot)
{
	struct rds_procid id;
	uint64_t now = registry_proc_id(rds_node_registry, slot, &id) ? registry_slab_word(&id) : 0, word = 0;
	const struct cell_ep *ep;

	rx_lock();
	for (ep = shm_cell_eps[slot]; ep; ep = ep->slot_next) {
		word = ep->to;
		if (word != now)
			break;
	}
	rx_unlock();
	return word;
}

static void all_look(struct rds_timer *tm)
{
	uint32_t slot;
	uint64_t word;
	bool any = false;

	for (slot = 0; slot < REGISTRY_SLOTS; slot++) {
		word = slot_word(slot);
		any |= word;
		if (word && !peer_lives(word, slot))
			peer_gone(word, slot);
	}
	if (!any)
		return;
	rds_timer_need(tm, os_now_ns() + look_pause);
	look_pause = look_pause < LOOK_LAST_NS / 2 ? 2 * look_pause : LOOK_LAST_NS;
}

void shm_cell_watch_fork_child(void)
{
	watch_timer = (struct rds_timer){.fn = watched_look};
	all_timer = (struct rds_timer){.fn = all_look};
	atomic_store(&watched, NULL);
	atomic_store(&soon, false);
	atomic_store(&rest_until, 0);
}
