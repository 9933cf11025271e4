/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* cell_ep.h - endpoints whose messages are cells: what the files cell_*.c share. */
#ifndef ENGINE_TRANSPORT_SHM_CELL_EP_H
#define ENGINE_TRANSPORT_SHM_CELL_EP_H

#include "engine/transport/shm/shm.h"

#define REGISTRY_SLOTS 1024 /* of processes in a registry */
#define CELL_CREDITS 16	    /* cells of an endpoint that are under way; a power of two */

/*
 * Numbers of cells, by position. The first is in the endpoint, since many pairs of processes have one message
 * under way at most. There is place for the others when one is first needed.
 */
struct cell_list {
	_Atomic uint32_t first;
	_Atomic(struct cell_more *) more;
};
struct cell_more {
	_Atomic uint32_t n[CELL_CREDITS];
};

/* The fields of one size lie together: there are no holes. */
struct cell_ep {
	struct rds_ep_head head; /* by its connection the peer's first cell finds it */
	/* rx */
	struct cell_ep *slot_next;  /* of the same slot */
	struct cell_ep *ready_next; /* of those with cells to deliver */
	struct cell_ep *room_next;  /* of those whose sender may wait for the room just given back */
	/* Lists that any thread puts an endpoint on, and one takes as a whole. */
	struct cell_ep *want_next, *watch_next;
	uint64_t to; /* registry_slab_word() of the peer */

	/*
	 * Send side (conn->tx; others read): the cells under way are own[first .. next). The cell itself
	 * tells its sequence number, which cannot be higher than `last`.
	 */
	uint64_t acked, last, serviced;
	struct cell_list own;
	/*
	 * Receive side (rx): got[got_first .. got_mid) are with the engine, which has not acknowledged
	 * them, got[got_mid .. got_next) wait.
	 */
	struct cell_list got;
	uint64_t heard; /* the highest acknowledgement that the engine has given */
	uint64_t came;	/* the number of the last message that the engine has taken; 0: none */

	/* Send side: so many messages in all, and when (ms) they were last counted */
	_Atomic uint32_t sent;
	uint32_t counted_ms;
	uint32_t slot;
	int32_t there; /* number of the peer's endpoint, or -1; rx */
	/* What the peer has not seen: how many were sent before it, since when (ms), how often looked at; helper. */
	uint32_t unseen, unseen_ms;
	uint16_t here; /* number of this endpoint */
	uint8_t looks;
	/* Send side */
	uint8_t n_own;
	_Atomic uint8_t first, next, wanted_at;
	bool opened; /* the first cell has gone */
	/* Receive side */
	uint8_t got_first, got_mid, got_next;
	bool ready, delivering, roomy, later, paused;

	_Atomic bool wants, watched, refused, broken;
	bool closed, kept; /* helper */
};
_Static_assert(sizeof(struct cell_ep) <= 184, "a process may have a thousand");

static inline uint32_t shm_cell_now_ms(void)
{
	return (uint32_t)(os_now_ns() / 1000000);
}

#define cell_load(p) atomic_load_explicit((p), memory_order_relaxed)
#define cell_store(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)

/* SHM_CELLS_MAX: there is none.  Positions count modulo CELL_CREDITS. */
static inline uint32_t cell_list_get(const struct cell_list *l, unsigned at)
{
	const struct cell_more *more;

	if (!(at % CELL_CREDITS))
		return cell_load(&l->first);
	more = atomic_load_explicit(&l->more, memory_order_acquire);
	return more ? cell_load(&more->n[at % CELL_CREDITS]) : SHM_CELLS_MAX;
}

/* cell_ep.c */
bool cell_list_set(struct cell_list *l, unsigned at, uint32_t n); /* false: no memory */
/* With conn NULL nothing is received over it yet. It knows its slot and its addresses by id. NULL: no memory. */
struct cell_ep *shm_cell_ep_new(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn);
void shm_cell_ep_close(struct rds_ep *rep);
extern struct rds_transport shm_cell_transport;
extern struct cell_ep *shm_cell_eps[]; /* of each slot; rx */
/* FREE (it is not there), or as the receiver has left it; any thread */
unsigned shm_cell_ep_state(const struct cell_ep *ep, unsigned i);
/* Nothing is under way, or something has come back since want_room(). */
bool shm_cell_ep_moved(const struct cell_ep *ep);
void shm_cell_wake(struct cell_ep *ep, bool service); /* after a fence */
/* rx, helper: a closed one is freed if no list has it, and no receiver has a cell of it (or gone) */
bool shm_cell_ep_reclaim(struct cell_ep *ep, bool gone);

/* cell_recv.c; rx */
void shm_cell_ack(struct rds_ep *ep, uint64_t seq);
void shm_cell_forget(struct cell_ep *ep); /* it is closed: what it has got goes back */
bool shm_cells_come(void);		  /* all that is on the stack is given to its endpoints; false: nothing */
void shm_cell_came(uint32_t n);		  /* ... and one cell that is SEEN */
void shm_cell_got(struct cell_ep *ep, uint32_t n);
/* NULL: none. number: by the number alone, because an older cell of it may still be a stranger. */
struct cell_ep *shm_cell_ep_find(const struct shm_cell *cell, uint64_t word, uint32_t slot, bool number);

/* cell_room.c; rx */
void shm_cell_want(struct cell_ep *ep);	       /* tx: `writable` comes when there is room */
void shm_cell_room_came(struct shm_line *own); /* to this process */
void shm_cell_room_made(struct cell_ep *ep);   /* by this one: its sender is told by room_tell() */
void shm_cell_room_tell(void);
void shm_cell_room_fork_child(void);

/* cell_strangers.c; rx */
bool shm_cell_strangers(void);	       /* there are some */
int shm_cell_stranger_add(uint32_t n); /* 0 or -ENOMEM */
void shm_cell_strangers_fork_child(void);

/* cell_last.c; helper */
void shm_cell_last(uint64_t word, uint32_t slot); /* that process has ended */

/* cell_watch.c: any lock may be held; the helper looks at it in a tick, or now */
void shm_cell_watch(struct cell_ep *ep, bool now);

#endif
