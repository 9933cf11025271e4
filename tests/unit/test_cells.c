/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_cells.c - memory in common (node/slab.c), and messages in it (shm/cells.c): order, room, damage,
 * and processes that are killed at any instruction.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "engine/transport/shm/shm.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

#define CREDITS 8
#define KILLS 40

static void joins(void)
{
	registry_setup();
	rds_node_registry = open_ok();
}

static void leaves(void)
{
	shm_cells_close();
	registry_close(rds_node_registry);
	registry_teardown();
}

static uint64_t self_word(void)
{
	return registry_slab_word(registry_self(rds_node_registry));
}

static bool is_zeros(const unsigned char *bytes)
{
	for (unsigned i = 0; i < REGISTRY_SLAB_BYTES; i++)
		if (bytes[i])
			return false;
	return true;
}

/* ---- slabs ---- */

START_TEST(slabs_come_and_go)
{
	uint32_t n[3], again, slot;
	uint64_t owner;

	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_int_eq(registry_slab_take(rds_node_registry, &n[i]), 0);
		ck_assert_uint_eq(n[i], i);
		ck_assert(registry_slab_owner(rds_node_registry, n[i], &owner, &slot));
		ck_assert(owner == self_word() && slot == registry_self_slot(rds_node_registry));
		ck_assert(is_zeros(registry_slab(rds_node_registry, n[i])));
		memset(registry_slab(rds_node_registry, n[i]), 0xaa, REGISTRY_SLAB_BYTES);
	}
	registry_slab_drop(rds_node_registry, n[1]);
	ck_assert(!registry_slab_owner(rds_node_registry, n[1], &owner, &slot));
	ck_assert_ptr_null(registry_slab(rds_node_registry, n[1]));
	ck_assert_int_eq(registry_slab_take(rds_node_registry, &again), 0);
	ck_assert_uint_eq(again, n[1]);
	ck_assert(is_zeros(registry_slab(rds_node_registry, again)));
	ck_assert_ptr_null(registry_slab(rds_node_registry, REGISTRY_SLABS));
	ck_assert_ptr_null(registry_line(rds_node_registry, REG_PROCS));
}
END_TEST

static void has_a_slab(int from, int to)
{
	uint32_t n;
	uint64_t word;

	rds_node_registry = open_ok();
	child_assert(registry_slab_take(rds_node_registry, &n) == 0);
	memset(registry_slab(rds_node_registry, n), 0xbb, REGISTRY_SLAB_BYTES);
	word = self_word();
	child_say(to, &n, sizeof(n));
	child_say(to, &word, sizeof(word));
	child_wait(from);
}

/* Of one that was killed: what it has left is there until somebody has looked at it. */
START_TEST(slabs_of_the_dead)
{
	struct child c;
	uint64_t word, owner;
	uint32_t n, slot;

	registry_setup();
	c = child_start(has_a_slab);
	rds_node_registry = open_ok();
	child_hear(&c, &n, sizeof(n));
	child_hear(&c, &word, sizeof(word));
	child_end(&c, SIGKILL);
	ck_assert(registry_slab_owner(rds_node_registry, n, &owner, &slot));
	ck_assert_uint_eq(owner, word);
	ck_assert_uint_eq(*(unsigned char *)registry_slab(rds_node_registry, n), 0xbb);
	ck_assert(!registry_slab_inherit(rds_node_registry, n, word + 1));
	ck_assert(registry_slab_inherit(rds_node_registry, n, word));
	ck_assert(!registry_slab_inherit(rds_node_registry, n, word));
	registry_slab_drop(rds_node_registry, n);
	ck_assert_ptr_null(registry_slab(rds_node_registry, n));
	leaves();
}
END_TEST

#define AT_ONCE 3 /* processes, threads of each, slabs of each thread */
#define ROUNDS 150

static void *takes_and_drops(void *arg)
{
	uint32_t n[AT_ONCE];
	unsigned char mark = (unsigned char)((uintptr_t)arg + (unsigned)getpid() * AT_ONCE);

	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < AT_ONCE; i++) {
			child_assert(registry_slab_take(rds_node_registry, &n[i]) == 0);
			child_assert(is_zeros(registry_slab(rds_node_registry, n[i])));
			memset(registry_slab(rds_node_registry, n[i]), mark | 1, REGISTRY_SLAB_BYTES);
		}
		sched_yield();
		for (int i = 0; i < AT_ONCE; i++) {
			unsigned char *slab = registry_slab(rds_node_registry, n[i]);

			for (unsigned at = 0; at < REGISTRY_SLAB_BYTES; at += 512)
				child_assert(slab[at] == (mark | 1));
			registry_slab_drop(rds_node_registry, n[i]);
		}
	}
	return NULL;
}

static void threads_take_and_drop(int from, int to)
{
	pthread_t thread[AT_ONCE];

	(void)from;
	rds_node_registry = open_ok();
	child_say(to, "", 1);
	for (uintptr_t i = 0; i < AT_ONCE; i++)
		child_assert(pthread_create(&thread[i], NULL, takes_and_drops, (void *)i) == 0);
	for (int i = 0; i < AT_ONCE; i++)
		pthread_join(thread[i], NULL);
}

static uint32_t slabs_of_others(void)
{
	uint32_t count = 0, slot;
	uint64_t owner;

	for (uint32_t n = 0; n < REGISTRY_SLABS; n++)
		count += registry_slab_owner(rds_node_registry, n, &owner, &slot) && owner != self_word();
	return count;
}

/* All at once, and one of them is killed: each slab has one owner, and none is lost. */
START_TEST(many_take_and_drop)
{
	struct child c[AT_ONCE];
	uint32_t n;
	char byte;

	registry_setup();
	for (int i = 0; i < AT_ONCE; i++)
		c[i] = child_start(threads_take_and_drop);
	for (int i = 0; i < AT_ONCE; i++)
		child_hear(&c[i], &byte, 1);
	rds_node_registry = open_ok();
	usleep(1000 * (unsigned)_i);
	child_end(&c[0], SIGKILL);
	for (int i = 1; i < AT_ONCE; i++)
		ck_assert_int_eq(child_end(&c[i], 0), 0);
	ck_assert_uint_le(slabs_of_others(), AT_ONCE * AT_ONCE);
	ck_assert_int_eq(shm_cell_get(&n), 0);
	ck_assert_uint_eq(slabs_of_others(), 0);
	leaves();
}
END_TEST

/* As a process leaves it that is killed before its slab has any page. */
static void slab_of_nobody_living(uint32_t n, uint64_t word)
{
	int fd = open(test_file, O_RDWR | O_CLOEXEC); /* stays open: see raw_map() */

	child_assert(pwrite(fd, &word, sizeof(word),
			    (off_t)(REG_COMMON_OFFSET + offsetof(struct reg_common, slab[n].owner))) == sizeof(word));
}

static void never(uint32_t n, void *arg)
{
	(void)n, (void)arg;
	child_assert(false);
}

/* There is no room for a single page more: nobody may touch one that does not exist. */
static void fills(int from, int to)
{
	static const unsigned char page[4096] = {1};
	char path[128];
	uint32_t n, last = 0, slot;
	uint64_t owner;
	int fd, ret;

	(void)from;
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("rdsunit", test_dir, "tmpfs", 0, "size=8m")) {
		printf("full: SKIP: no file system of its own (%s)\n", strerror(errno));
		child_say(to, "", 1);
		return;
	}
	rds_node_registry = open_ok();
	child_assert(shm_cells_listen() == 0);
	while ((ret = registry_slab_take(rds_node_registry, &n)) == 0)
		last = n;
	snprintf(path, sizeof(path), "%s/rest", test_dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, page, sizeof(page)) > 0)
		;
	child_assert(ret == -ENOSPC && registry_slab_take(rds_node_registry, &n) == -ENOSPC);
	child_assert(!registry_slab_owner(rds_node_registry, last + 1, &owner, &slot));
	slab_of_nobody_living(last + 5, 5);
	shm_cells_search(5, never, NULL);
	child_assert(shm_cell_get(&n) == -ENOSPC);
	child_assert(!registry_slab_owner(rds_node_registry, last + 5, &owner, &slot));
	registry_slab_drop(rds_node_registry, last);
	test_until(shm_cell_get(&n) == 0); /* it is not tried each time */
	child_assert(n / SHM_SLAB_CELLS == last);
	child_say(to, "", 1);
}

START_TEST(full)
{
	struct child c;
	char byte;

	registry_setup();
	c = child_start(fills);
	ck_assert_int_eq(read(c.in, &byte, 1), 1);
	ck_assert_int_eq(child_end(&c, 0), 0);
	registry_teardown();
}
END_TEST

START_TEST(limits)
{
	struct rlimit limit = {64u << 20, RLIM_INFINITY};
	uint32_t n;

	if (_i == 0)
		limit.rlim_cur = 4u << 20;
	ck_assert_int_eq(setrlimit(_i ? RLIMIT_AS : RLIMIT_FSIZE, &limit), 0);
	if (_i == 1) {
		limit.rlim_cur = RLIM_INFINITY - 1;
		ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	}
	ck_assert_int_eq(registry_slab_take(rds_node_registry, &n), -EOPNOTSUPP);
	ck_assert_int_eq(shm_cells_listen(), -EOPNOTSUPP);
	ck_assert_int_eq(shm_cell_get(&n), -EOPNOTSUPP);
}
END_TEST

/* ---- cells ---- */

static uint32_t cell_for(uint64_t to, uint32_t number)
{
	struct shm_cell *cell;
	uint32_t n;

	ck_assert_int_eq(shm_cell_get(&n), 0);
	cell = shm_cell_at(n);
	ck_assert_ptr_nonnull(cell);
	cell->to = to;
	memcpy(cell->payload, &number, sizeof(number));
	return n;
}

static uint32_t number_of(uint32_t link)
{
	uint32_t number;

	memcpy(&number, shm_cell_at(link - 1)->payload, sizeof(number));
	return number;
}

static uint32_t self_slot(void)
{
	return registry_self_slot(rds_node_registry);
}

START_TEST(in_order)
{
	uint32_t n[600], link, next, i;

	ck_assert_uint_eq(shm_cells_take(), 0);
	ck_assert(!shm_cell_push(cell_for(self_word(), 0), self_slot())); /* nobody looks yet */
	ck_assert_int_eq(shm_cells_listen(), 0);
	for (i = 0; i < 600; i++) {
		n[i] = cell_for(self_word(), i);
		ck_assert(shm_cell_push(n[i], self_slot()));
	}
	ck_assert(shm_cells_pending());
	link = shm_cells_take();
	ck_assert(!shm_cells_pending());
	for (i = 0; link; i++, link = next) {
		ck_assert_uint_eq(link, n[i] + 1);
		ck_assert_uint_eq(number_of(link), i);
		next = shm_cells_next(link);
		shm_cell_return(shm_cell_at(link - 1), i % 2);
		ck_assert_uint_eq(atomic_load(&shm_cell_at(n[i])->state), i % 2 ? SHM_CELL_TAKEN : SHM_CELL_REFUSED);
		shm_cell_return(shm_cell_at(link - 1), true);
		ck_assert_uint_eq(atomic_load(&shm_cell_at(n[i])->state), i % 2 ? SHM_CELL_TAKEN : SHM_CELL_REFUSED);
	}
	ck_assert_uint_eq(i, 600);
	ck_assert_uint_eq(shm_cells_take(), 0);
}
END_TEST

/* The slot has another owner by now: what was for the last one is never looked at, nor put there. */
START_TEST(another_owner)
{
	struct shm_line *line = registry_line(rds_node_registry, self_slot());
	uint32_t n = cell_for(5, 1), late = cell_for(5, 3), own = cell_for(self_word(), 2), link;

	ck_assert(!shm_cell_push(n, self_slot()));
	ck_assert(!shm_cell_push(n, 77));
	ck_assert(!shm_cell_push(n, REG_PROCS));
	atomic_store(&line->owner, 5);
	atomic_store(&line->cells, SHM_STACK_TAG(UINT64_C(5)));
	ck_assert(shm_cell_push(n, self_slot()));
	ck_assert_int_eq(shm_cells_listen(), 0);
	ck_assert(!shm_cells_pending());
	ck_assert(!shm_cell_push(late, self_slot()));
	atomic_store(&line->owner, 5); /* as the sender has read it, before it was stopped */
	ck_assert(!shm_cell_push(late, self_slot()));
	ck_assert_uint_eq(atomic_load(&shm_cell_at(late)->state), SHM_CELL_FREE);
	atomic_store(&line->owner, self_word());
	ck_assert(shm_cell_push(own, self_slot()));
	link = shm_cells_take();
	ck_assert_uint_eq(link, own + 1);
	ck_assert_uint_eq(shm_cells_next(link), 0);
	ck_assert_uint_eq(atomic_load(&shm_cell_at(n)->state), SHM_CELL_SENT);
}
END_TEST

/* A cell that somebody has put on a stack on which it does not belong. */
START_TEST(anothers_cell)
{
	uint32_t n = cell_for(self_word(), 1), own = cell_for(self_word(), 2), link;

	ck_assert_int_eq(shm_cells_listen(), 0);
	ck_assert(shm_cell_push(n, self_slot()));
	ck_assert(shm_cell_push(own, self_slot()));
	shm_cell_at(n)->to = 5;
	link = shm_cells_take();
	ck_assert_uint_eq(link, own + 1);
	ck_assert_uint_eq(shm_cells_next(link), 0);
	ck_assert_uint_eq(atomic_load(&shm_cell_at(n)->state), SHM_CELL_REFUSED);
}
END_TEST

/* Cells that are put back while their receiver may have them are used again when it has them no more. */
START_TEST(put_back_early)
{
	uint32_t seen, sent, dead, n, link, i, again = 0;

	ck_assert_int_eq(shm_cells_listen(), 0);
	seen = cell_for(self_word(), 1);
	ck_assert(shm_cell_push(seen, self_slot()));
	link = shm_cells_take();
	sent = cell_for(self_word(), 2);
	ck_assert(shm_cell_push(sent, self_slot()));
	dead = cell_for(5, 3);
	atomic_store(&shm_cell_at(dead)->state, SHM_CELL_SENT);
	shm_cell_put(seen);
	shm_cell_put(sent);
	shm_cell_put(dead);
	for (i = 0; i < SHM_SLAB_CELLS - 2; i++) {
		ck_assert_int_eq(shm_cell_get(&n), 0);
		ck_assert(n != seen && n != sent);
		again += n == dead;
	}
	ck_assert_uint_eq(again, 1);
	shm_cell_return(shm_cell_at(link - 1), true);
	shm_cell_return(shm_cell_at(shm_cells_take() - 1), true);
	ck_assert_int_eq(shm_cell_get(&n), 0);
	ck_assert_int_eq(shm_cell_get(&i), 0);
	ck_assert((n == seen && i == sent) || (n == sent && i == seen));
}
END_TEST

/* Somebody makes a circle of what this process has taken. */
START_TEST(circle_of_the_taken)
{
	uint32_t n[3], link, steps = 0;

	ck_assert_int_eq(shm_cells_listen(), 0);
	for (uint32_t i = 0; i < 3; i++) {
		n[i] = cell_for(self_word(), i);
		ck_assert(shm_cell_push(n[i], self_slot()));
	}
	link = shm_cells_take();
	atomic_store(&shm_cell_at(n[2])->next, n[0] + 1);
	for (; link; link = shm_cells_next(link))
		ck_assert_uint_le(++steps, 4);
}
END_TEST

enum { BEYOND, NO_SLAB, CYCLE, ITSELF, NOT_SENT, HEAD, DAMAGES };

/*
 * A chain that somebody has damaged: nothing of it is taken, also not what came last and can be read; and
 * nobody puts more there. So the senders learn of it, and have all.
 */
START_TEST(damage)
{
	struct shm_line *line = registry_line(rds_node_registry, self_slot());
	const uint32_t bad[] = {[BEYOND] = UINT32_MAX, [NO_SLAB] = SHM_CELLS_MAX, [CYCLE] = 0, [ITSELF] = 0,
				[NOT_SENT] = 0,	       [HEAD] = UINT32_MAX - 5};
	uint32_t n[4], next;

	ck_assert_int_eq(shm_cells_listen(), 0);
	for (uint32_t i = 0; i < 4; i++) {
		n[i] = cell_for(self_word(), i);
		ck_assert(shm_cell_push(n[i], self_slot()));
	}
	next = bad[_i];
	if (_i == CYCLE)
		next = n[3] + 1;
	else if (_i == ITSELF)
		next = n[2] + 1;
	else if (_i == NOT_SENT)
		next = cell_for(self_word(), 9) + 1;
	if (_i == HEAD)
		atomic_store(&line->cells, SHM_STACK_TAG(self_word()) | next);
	else
		atomic_store(&shm_cell_at(n[2])->next, next);
	ck_assert_uint_eq(shm_cells_take(), 0);
	for (uint32_t i = 0; i < 4; i++) {
		unsigned state = atomic_load(&shm_cell_at(n[i])->state);

		ck_assert_uint_eq(state, _i == HEAD || i < 2 ? SHM_CELL_SENT : SHM_CELL_REFUSED);
	}
	ck_assert(!shm_cell_push(cell_for(self_word(), 10), self_slot()));
	ck_assert(!shm_cells_pending());
	ck_assert_int_eq(shm_cells_listen(), 0);
	ck_assert(shm_cell_push(n[3], self_slot()));
	ck_assert_uint_eq(shm_cells_take(), n[3] + 1);
}
END_TEST

/* ---- two processes ---- */

static struct {
	uint64_t word;
	uint32_t slot;
} receiver;

/* One message that is under way, when it is killed. */
static void sends_once(int from, int to)
{
	child_assert(read(from, &receiver, sizeof(receiver)) == sizeof(receiver));
	rds_node_registry = open_ok();
	child_assert(shm_cell_push(cell_for(receiver.word, 7), receiver.slot));
	child_say(to, "", 1);
	child_wait(from);
}

static struct child child_of(void (*fn)(int from, int to))
{
	struct child c;

	registry_setup();
	c = child_start(fn);
	rds_node_registry = open_ok();
	ck_assert_int_eq(shm_cells_listen(), 0);
	receiver.word = self_word();
	receiver.slot = self_slot();
	ck_assert_int_eq(write(c.out, &receiver, sizeof(receiver)), sizeof(receiver));
	return c;
}

/* Its slab is another one's when its last message has been taken. */
START_TEST(slab_is_inherited)
{
	struct child c = child_of(sends_once);
	uint64_t owner;
	uint32_t n, link, slot;
	char byte;

	child_hear(&c, &byte, 1);
	child_end(&c, SIGKILL);
	ck_assert_int_eq(shm_cell_get(&n), 0);
	ck_assert(registry_slab_owner(rds_node_registry, 0, &owner, &slot) && owner != self_word());
	link = shm_cells_take();
	ck_assert_uint_eq(number_of(link), 7);
	shm_cell_return(shm_cell_at(link - 1), true);
	for (uint32_t i = 0; i < SHM_SLAB_CELLS; i++)
		ck_assert_int_eq(shm_cell_get(&n), 0);
	ck_assert(registry_slab_owner(rds_node_registry, 0, &owner, &slot) && owner == self_word());
	ck_assert(!registry_slab_owner(rds_node_registry, 2, &owner, &slot));
	leaves();
}
END_TEST

static void listens(int from, int to)
{
	rds_node_registry = open_ok();
	child_assert(shm_cells_listen() == 0);
	receiver.word = self_word();
	receiver.slot = self_slot();
	child_say(to, &receiver, sizeof(receiver));
	child_wait(from);
}

/* What was for a receiver that is killed: the cells are their sender's again, and its heir sees none. */
START_TEST(receiver_is_killed)
{
	uint32_t n[3], again, link;
	struct child c;

	registry_setup();
	c = child_start(listens);
	child_hear(&c, &receiver, sizeof(receiver));
	rds_node_registry = open_ok();
	for (uint32_t i = 0; i < 3; i++) {
		n[i] = cell_for(receiver.word, i);
		ck_assert(shm_cell_push(n[i], receiver.slot));
	}
	child_end(&c, SIGKILL);
	registry_reap(rds_node_registry);
	for (uint32_t i = 0; i < 3; i++)
		shm_cell_put(n[i]);
	/* the next one has its slot */
	shm_cells_close();
	registry_close(rds_node_registry);
	rds_node_registry = open_ok();
	ck_assert_uint_eq(self_slot(), receiver.slot);
	ck_assert_int_eq(shm_cells_listen(), 0);
	ck_assert_uint_eq(shm_cells_take(), 0);
	again = cell_for(self_word(), 7);
	ck_assert_uint_le(again, SHM_SLAB_CELLS);
	ck_assert(shm_cell_push(again, self_slot()));
	link = shm_cells_take();
	ck_assert_uint_eq(link, again + 1);
	ck_assert_uint_eq(shm_cells_next(link), 0);
	leaves();
}
END_TEST

/* So many messages under way, as long as it lives. */
static void sends(int from, int to)
{
	uint32_t n[CREDITS], i;
	uint64_t word;

	child_assert(read(from, &receiver, sizeof(receiver)) == sizeof(receiver));
	rds_node_registry = open_ok();
	word = self_word();
	child_say(to, &word, sizeof(word));
	for (i = 0; i < CREDITS; i++)
		n[i] = cell_for(receiver.word, 0);
	for (i = 0;; i++) {
		struct shm_cell *cell = shm_cell_at(n[i % CREDITS]);

		while (i >= CREDITS && atomic_load_explicit(&cell->state, memory_order_acquire) != SHM_CELL_TAKEN)
			sched_yield();
		memcpy(cell->payload, &i, sizeof(i));
		child_assert(shm_cell_push(n[i % CREDITS], receiver.slot));
	}
}

struct heard {
	uint32_t next, lost[CREDITS], n_lost;
};

static void hears(struct heard *h)
{
	uint32_t link, next;

	for (link = shm_cells_take(); link; link = next) {
		next = shm_cells_next(link);
		ck_assert_uint_eq(number_of(link), h->next++);
		shm_cell_return(shm_cell_at(link - 1), true);
	}
}

static void finds(uint32_t link, void *arg)
{
	struct heard *h = arg;

	ck_assert_uint_lt(h->n_lost, CREDITS);
	h->lost[h->n_lost++] = number_of(link);
	shm_cell_return(shm_cell_at(link - 1), true);
}

/*
 * A sender is killed at any instruction: what it had put on the stack has come once and in order, and there
 * may be one message more that it had filled, and not put there.
 */
START_TEST(sender_is_killed)
{
	struct heard h = {0};
	uint64_t word, owner;
	uint32_t until, slot;
	struct child c = child_of(sends);

	srand48(_i);
	until = (uint32_t)lrand48() % 20000;
	child_hear(&c, &word, sizeof(word));
	while (h.next < until) {
		hears(&h);
		sched_yield();
	}
	child_end(&c, SIGKILL);
	hears(&h);
	shm_cells_search(word, finds, &h);
	ck_assert_uint_le(h.n_lost, 1);
	ck_assert(!h.n_lost || h.lost[0] == h.next);
	ck_assert(registry_slab_owner(rds_node_registry, 0, &owner, &slot));
	ck_assert_uint_eq(owner, word);
	leaves();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cells");
	TCase *alone = suite_case(s, "alone", joins, leaves), *two = suite_case(s, "two", NULL, NULL);

	tcase_add_test(alone, slabs_come_and_go);
	tcase_add_loop_test(alone, limits, 0, 2);
	tcase_add_test(alone, in_order);
	tcase_add_test(alone, another_owner);
	tcase_add_loop_test(alone, damage, 0, DAMAGES);
	tcase_add_test(alone, anothers_cell);
	tcase_add_test(alone, put_back_early);
	tcase_add_test(alone, circle_of_the_taken);
	tcase_add_loop_test(two, many_take_and_drop, 0, 5);
	tcase_add_test(two, full);
	tcase_add_test(two, receiver_is_killed);
	tcase_add_test(two, slabs_of_the_dead);
	tcase_add_test(two, slab_is_inherited);
	tcase_add_loop_test(two, sender_is_killed, 0, KILLS);
	return suite_run(s);
}
