/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cell_room.c - cells that go back to a sender that waits for one.
 *
 * A sender that waits says so in its line (`want`), once for all of its endpoints. Whoever gives a cell
 * back says there that it did (`want_came`), and wakes it. Then the sender looks at the endpoints that wait.
 *
 * All under rx, except shm_cell_want().
 */
#include "engine/transport/shm/cell_ep.h"

static _Atomic(struct cell_ep *) wants; /* of this process */
static struct cell_ep *roomy;		/* whose senders are to be told */

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

void shm_cell_room_came(struct shm_line *own)
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

void shm_cell_room_tell(void)
{
	struct shm_line *line;
	struct cell_ep *ep;

	if (!roomy)
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

void shm_cell_room_made(struct cell_ep *ep)
{
	if (ep->roomy)
		return;
	ep->roomy = true;
	ep->room_next = roomy;
	roomy = ep;
}

void shm_cell_room_fork_child(void)
{
	roomy = NULL;
	atomic_store(&wants, NULL);
}
