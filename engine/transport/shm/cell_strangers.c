/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cell_strangers.c - cells that have come, and whose endpoint is not there yet.
 *
 * The first cell of an endpoint is a *stranger*: the engine is asked, without locks, for the connection that
 * the cell names. Cells that could be of the same endpoint wait behind it. If there is no such endpoint
 * afterwards, the cell is refused, and with it all that come later: none is delivered behind a gap.
 *
 * All under rx, except shm_cells_meet().
 */
#include <stdlib.h>

#include "engine/transport/shm/cell_ep.h"

struct stranger {
	uint32_t n, came; /* its cell; how many had come before */
};
static struct {
	struct stranger *v;
	uint32_t n, cap, came;
} strangers;

bool shm_cell_strangers(void)
{
	return strangers.n;
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

int shm_cell_stranger_add(uint32_t n)
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

		ep = cell && shm_cell_sender(s.n, &word, &slot) ? shm_cell_ep_find(cell, word, slot, false) : NULL;
		if (ep)
			shm_cell_got(ep, s.n);
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
	shm_cells_come();
	n = strangers_ask(&ids);
	asked = strangers.came;
	rx_unlock();
	for (i = 0; i < n; i++)
		stranger_meet(t, &ids[i]);
	free(ids);
	rx_lock();
	strangers_offer(asked);
	shm_cells_offer(false); /* they wait perhaps for these */
	shm_settled();
	rx_unlock();
}

void shm_cell_strangers_fork_child(void)
{
	strangers.v = NULL;
	strangers.n = strangers.cap = 0;
}
