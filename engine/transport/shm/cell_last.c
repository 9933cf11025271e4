/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cell_last.c - cells of a process that has ended: all that it had filled comes, in order, and before the
 * endpoints go.
 *
 * Helper thread.
 */
#include <endian.h>
#include <stdlib.h>

#include "engine/transport/shm/cell_ep.h"

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
	unsigned tries = SHM_LAST_TRIES;
	uint32_t i;

	rx_lock();
	shm_cells_come();
	shm_cells_search(word, cell_found, &f);
	if (f.n)
		qsort(f.v, f.n, sizeof(*f.v), by_number);
	for (i = 0; i < f.n; i++)
		shm_cell_came(f.v[i]);
	free(f.v);
	for (;;) {
		shm_cells_offer(true);
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
