/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cells.c - messages that need no ring: cells of the sender on a stack of the receiver.
 *
 * Each process has cells of its own. It fills one, and puts its number on the stack of the receiver by one
 * compare-and-swap. The receiver takes the whole stack by one exchange, turns the chain round, and so has
 * the cells of each sender in the order in which they were sent. When its engine has a message, it marks
 * the cell TAKEN: that is the acknowledgement, and gives the sender the room back. Until then the bytes are
 * the sender's, who can send them again in another way.
 *
 * A process may be stopped or killed at any instruction. Before the swap it has published nothing, after it
 * the message is whole. So nobody ever waits for a process that is about to publish. As cells are only put
 * on the stack one by one, and only taken all together, a number that comes back meanwhile does no harm.
 *
 * What is on the stack of a process that has ended is never looked at: the slot's next owner begins with an
 * empty stack, and nobody puts a cell for the last owner there (layout.h). So a cell can be used again when
 * its receiver has given it back, or does not live any more. One that is put back earlier waits for that: its
 * receiver may be about to mark it TAKEN, and another message would be in it.
 *
 * Everything here can be overwritten by any process of the same user. A number is checked before it is
 * used, a cell is on one chain only if it could be moved from SENT to SEEN, and a chain ends after as many
 * cells as there are. A chain that has been damaged loses no message: its cells are SENT or REFUSED then, and
 * the senders have the bytes. A sender finds its own cells without the registry, and knows the numbers of
 * its messages. What such a process writes into a cell under way is not noticed in all cases: it is the
 * user's own process, who can write into the program's memory as well.
 *
 * Must not know connections, nor who has to be woken.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sys/process.h"
#include "engine/transport/shm/shm.h"

#define SLABS_MOST 32 /* of a process */
#define CELLS_MOST (SLABS_MOST * SHM_SLAB_CELLS)
#define CELLS_ROOM (CELLS_MOST + SHM_SLAB_CELLS)
#define SLAB_LOOKS 8  /* at others' slabs that stay, for each one that is taken */
#define AGAIN_NS (10 * 1000000ull)

static struct cells_pool {
	pthread_mutex_t lock;
	uint32_t n_slabs, n_free, n_late, looked;
	uint64_t again_at; /* there was no slab: before that time nobody looks for one */
	uint32_t slab[SLABS_MOST];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};
/*
 * From the end on: what is longer than whole pages lies on one page with the beginning of shm_cell_eps. The
 * last one is used next.
 */
static uint32_t free_cells[CELLS_ROOM] RDS_TABLE_BEFORE(cell_eps) __attribute__((aligned(4096)));
static uint32_t late_cells[CELLS_MOST] RDS_TABLE; /* put back, but their receivers may still have them */
/* Of a slab that others may give back now. Its pages go when no more slabs are looked at. */
static struct shm_cell slab_copy[SHM_SLAB_CELLS] RDS_TABLE __attribute__((aligned(4096)));

struct shm_line *shm_cells_line;

struct shm_cell *shm_cell_at(uint32_t n)
{
	struct shm_cell *slab = n < SHM_CELLS_MAX ? registry_slab(rds_node_registry, n / SHM_SLAB_CELLS) : NULL;

	return slab ? slab + n % SHM_SLAB_CELLS : NULL;
}

struct shm_cell *shm_cell_own(uint32_t n)
{
	struct shm_cell *slab = n < SHM_CELLS_MAX ? registry_slab_own(rds_node_registry, n / SHM_SLAB_CELLS) : NULL;

	return slab ? slab + n % SHM_SLAB_CELLS : NULL;
}

bool shm_cell_sender(uint32_t n, uint64_t *word, uint32_t *slot)
{
	return n < SHM_CELLS_MAX && registry_slab_owner(rds_node_registry, n / SHM_SLAB_CELLS, word, slot);
}

/* ---- cells of this process ---- */

static void free_push(uint32_t n)
{
	free_cells[CELLS_ROOM - ++pool.n_free] = n;
}

static uint32_t free_pop(void)
{
	return free_cells[CELLS_ROOM - pool.n_free--];
}

static void pool_add(uint32_t slab)
{
	for (uint32_t i = SHM_SLAB_CELLS; i > 0; i--)
		free_push(slab * SHM_SLAB_CELLS + i - 1);
	pool.slab[pool.n_slabs++] = slab;
	rds_transport_bytes_add(REGISTRY_SLAB_BYTES);
}

static bool word_lives(uint64_t word)
{
	return registry_slab_word_lives(rds_node_registry, word);
}

static bool state_is_receivers(unsigned state)
{
	return state == SHM_CELL_SENT || state == SHM_CELL_SEEN;
}

/* Has any living process yet to look at a cell of it? Also if that cannot be known. */
static bool slab_is_under_way(uint32_t slab)
{
	uint64_t last = 0;

	if (!registry_slab_read(rds_node_registry, slab, slab_copy))
		return true;
	for (const struct shm_cell *cell = slab_copy; cell < slab_copy + SHM_SLAB_CELLS; cell++) {
		if (!state_is_receivers(cell->state) || cell->to == last)
			continue;
		if (word_lives(cell->to))
			return true;
		last = cell->to;
	}
	return false;
}

static bool slab_drop_of_dead(uint32_t slab, uint64_t dead)
{
	if (slab_is_under_way(slab) || !registry_slab_inherit(rds_node_registry, slab, dead))
		return false;
	registry_slab_drop(rds_node_registry, slab);
	return true;
}

/*
 * What processes that have ended have left goes, as far as all is over. A few slabs that stay are looked
 * at, others the next time: to ask about each process that lives would take long.
 */
static void slabs_drop_of_dead(void)
{
	uint64_t word, lives = registry_slab_word(registry_self(rds_node_registry));
	uint32_t slot, looks = 0;
	bool copied = false;

	for (uint32_t i = 0; i < REGISTRY_SLABS && looks < SLAB_LOOKS; i++) {
		pool.looked = (pool.looked + 1) % REGISTRY_SLABS;
		if (!registry_slab_owner(rds_node_registry, pool.looked, &word, &slot) || word == lives)
			continue;
		if (word_lives(word)) {
			lives = word;
		} else {
			copied = true;
			if (slab_drop_of_dead(pool.looked, word))
				continue;
		}
		looks++;
	}
	if (copied)
		os_fork_zero(slab_copy, sizeof(slab_copy));
}

static bool cell_is_back(uint32_t n)
{
	struct shm_cell *cell = shm_cell_own(n);

	return cell &&
	       (!state_is_receivers(atomic_load_explicit(&cell->state, memory_order_acquire)) || !word_lives(cell->to));
}

static void pool_take_late(void)
{
	uint32_t n = pool.n_late;

	pool.n_late = 0;
	for (uint32_t i = 0; i < n; i++)
		if (cell_is_back(late_cells[i]))
			free_push(late_cells[i]);
		else
			late_cells[pool.n_late++] = late_cells[i];
}

static int pool_grow(void)
{
	uint32_t slab;
	int err;

	pool_take_late();
	if (pool.n_free)
		return 0;
	if (pool.n_slabs == SLABS_MOST)
		return -ENOSPC;
	if (os_now_ns() < pool.again_at)
		return -ENOSPC;
	slabs_drop_of_dead();
	err = registry_slab_take(rds_node_registry, &slab);
	if (!err)
		pool_add(slab);
	else
		pool.again_at = os_now_ns() + AGAIN_NS;
	return err;
}

int shm_cell_get(uint32_t *n)
{
	int err;

	if (!os_mutex_lock(&pool.lock))
		return -ENOSPC; /* the process ends */
	err = pool.n_free ? 0 : pool_grow();
	if (!err)
		*n = free_pop();
	pthread_mutex_unlock(&pool.lock);
	return err;
}

void shm_cell_put(uint32_t n)
{
	struct shm_cell *cell = shm_cell_own(n);

	if (!cell || !os_mutex_lock(&pool.lock))
		return;
	if (state_is_receivers(atomic_load_explicit(&cell->state, memory_order_acquire)))
		late_cells[pool.n_late++] = n;
	else
		free_push(n);
	pthread_mutex_unlock(&pool.lock);
}

/* A slab with a message for a process that lives stays: it belongs to a process that has ended. */
void shm_cells_close(void)
{
	if (shm_cells_line) {
		atomic_store(&shm_cells_line->owner, 0);
		atomic_store(&shm_cells_line->cells, 0);
	}
	shm_cells_line = NULL;
	if (!os_mutex_lock(&pool.lock))
		return;
	for (uint32_t i = 0; i < pool.n_slabs; i++)
		if (!slab_is_under_way(pool.slab[i]))
			registry_slab_drop(rds_node_registry, pool.slab[i]);
	rds_transport_bytes_add(-(int64_t)pool.n_slabs * REGISTRY_SLAB_BYTES);
	pool.n_slabs = pool.n_free = pool.n_late = 0;
	pool.again_at = 0;
	pthread_mutex_unlock(&pool.lock);
}

void shm_cells_fork_child(void)
{
	memset(&pool, 0, sizeof(pool));
	pthread_mutex_init(&pool.lock, NULL);
	shm_cells_line = NULL;
}

/* ---- to a stack ---- */

bool shm_cell_push(uint32_t n, uint32_t slot)
{
	struct shm_line *line = registry_line(rds_node_registry, slot);
	struct shm_cell *cell = shm_cell_own(n);
	uint64_t first, tag;

	if (!line || !cell || atomic_load(&line->owner) != cell->to)
		return false;
	tag = SHM_STACK_TAG(cell->to);
	atomic_store_explicit(&cell->state, SHM_CELL_SENT, memory_order_release); /* shm_cells_search() */
	first = atomic_load_explicit(&line->cells, memory_order_relaxed);
	do {
		if (unlikely(first - SHM_STACK_TOP(first) != tag)) {
			atomic_store_explicit(&cell->state, SHM_CELL_FREE, memory_order_relaxed);
			return false;
		}
		atomic_store_explicit(&cell->next, SHM_STACK_TOP(first), memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(&line->cells, &first, tag | (n + 1), memory_order_release,
							memory_order_relaxed));
	return true;
}

/* ---- from the stack ---- */

/* What was on the stack was for the last owner of this slot. Its senders know that it has ended. */
int shm_cells_listen(void)
{
	struct shm_line *line = registry_line(rds_node_registry, registry_self_slot(rds_node_registry));
	uint64_t self = registry_slab_word(registry_self(rds_node_registry));

	if (!line)
		return -EOPNOTSUPP;
	if (os_mutex_lock(&pool.lock)) {
		slabs_drop_of_dead();
		pthread_mutex_unlock(&pool.lock);
	}
	line->wake_key = rds_shm.wake_key;
	atomic_store(&line->attention, rds_shm.announced);
	atomic_store(&line->want, 0);
	atomic_store(&line->want_came, 0);
	atomic_store(&line->service, 0);
	atomic_store(&line->cells, SHM_STACK_TAG(self));
	atomic_store(&line->owner, self);
	shm_cells_line = line;
	return 0;
}

bool shm_cells_pending(void)
{
	return shm_cells_line && SHM_STACK_TOP(atomic_load_explicit(&shm_cells_line->cells, memory_order_relaxed));
}

void shm_cell_return(struct shm_cell *cell, bool taken)
{
	uint16_t seen = SHM_CELL_SEEN;

	atomic_compare_exchange_strong_explicit(&cell->state, &seen, taken ? SHM_CELL_TAKEN : SHM_CELL_REFUSED,
						memory_order_release, memory_order_relaxed);
}

/*
 * Is it this process's to look at, from now on?  It is read first: if its page is not mapped yet, a write
 * would map this page alone, but for a read the kernel maps all pages of the slab that are in use.
 */
static bool cell_see(struct shm_cell *cell)
{
	uint16_t state = atomic_load_explicit(&cell->state, memory_order_relaxed);

	return state == SHM_CELL_SENT &&
	       atomic_compare_exchange_strong_explicit(&cell->state, &state, SHM_CELL_SEEN, memory_order_acquire,
						       memory_order_relaxed);
}

static bool cell_is_ours(const struct shm_cell *cell)
{
	return cell->to == registry_slab_word(registry_self(rds_node_registry));
}

static uint64_t stack_empty(void)
{
	uint64_t none = SHM_STACK_TAG(registry_slab_word(registry_self(rds_node_registry)));

	return atomic_exchange_explicit(&shm_cells_line->cells, none, memory_order_acquire);
}

/*
 * The stack cannot be read: another process has damaged it, or no more addresses may be mapped. What could be
 * read of it came last, so it is refused. From now on nobody puts anything here, and all senders connect in
 * the other way (cell_watch.c).
 */
static void stack_give_up(uint32_t link)
{
	uint32_t next;

	rds_warn_once(
		"messages of other processes in shared memory cannot be reached (ulimit -v, or another process has "
		"damaged them): they are sent again over connections that take more memory");
	atomic_store(&shm_cells_line->owner, 0);
	atomic_store(&shm_cells_line->cells, 0);
	for (; link; link = next) {
		next = shm_cells_next(link);
		shm_cell_return(shm_cell_at(link - 1), false);
	}
}

uint32_t shm_cells_take(void)
{
	uint32_t n, before = 0, count = 0, next;
	struct shm_cell *cell;

	if (!shm_cells_pending())
		return 0;
	for (n = SHM_STACK_TOP(stack_empty()); n; n = next) {
		cell = shm_cell_at(n - 1);
		if (!cell || !cell_see(cell) || count++ == SHM_CELLS_MAX) {
			stack_give_up(before);
			return 0;
		}
		next = atomic_load_explicit(&cell->next, memory_order_relaxed);
		if (unlikely(!cell_is_ours(cell))) {
			shm_cell_return(cell, false);
			continue;
		}
		atomic_store_explicit(&cell->next, before, memory_order_relaxed);
		before = n;
	}
	return before;
}

/* Each link leads on once, so a circle ends, too. */
uint32_t shm_cells_next(uint32_t n)
{
	struct shm_cell *cell = shm_cell_at(n - 1);
	uint32_t next = cell ? atomic_load_explicit(&cell->next, memory_order_relaxed) : 0;

	if (!next)
		return 0;
	atomic_store_explicit(&cell->next, 0, memory_order_relaxed);
	cell = shm_cell_at(next - 1);
	return cell && atomic_load_explicit(&cell->state, memory_order_relaxed) == SHM_CELL_SEEN ? next : 0;
}

/*
 * The copy says which cells are for this process. While there is one, nobody has the slab instead of its
 * owner; so if that is still the sender, it can be touched.
 */
static void search_slab(uint32_t slab, uint64_t sender, const struct shm_cell *copy, void (*fn)(uint32_t n, void *arg),
			void *arg)
{
	uint64_t word;
	uint32_t slot;

	for (uint32_t i = 0; i < SHM_SLAB_CELLS; i++) {
		uint32_t n = slab * SHM_SLAB_CELLS + i;
		struct shm_cell *cell;

		if (copy[i].state != SHM_CELL_SENT || !cell_is_ours(&copy[i]) || !shm_cell_sender(n, &word, &slot) ||
		    word != sender)
			continue;
		cell = shm_cell_at(n);
		if (cell && cell_is_ours(cell) && cell_see(cell))
			fn(n + 1, arg);
	}
}

void shm_cells_search(uint64_t sender, void (*fn)(uint32_t n, void *arg), void *arg)
{
	struct shm_cell *copy = NULL;
	uint64_t word;
	uint32_t slot;

	for (uint32_t slab = 0; slab < REGISTRY_SLABS; slab++) {
		if (!registry_slab_owner(rds_node_registry, slab, &word, &slot) || word != sender)
			continue;
		if (!copy)
			copy = aligned_alloc(SHM_LINE, REGISTRY_SLAB_BYTES);
		if (copy && registry_slab_read(rds_node_registry, slab, copy))
			search_slab(slab, sender, copy, fn, arg);
	}
	free(copy);
}
