/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_registry_race.c - the node registry while several processes or threads are at it at the same
 * time, or are killed at it.
 */
#include <pthread.h>
#include <sched.h>

#include "engine/rds.h"
#include "engine/node/socket_name.h"
#include "tests/slow.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

#define RACE_PORTS 300
static _Atomic unsigned *at_start; /* shared: how many processes have stood at the starting line */

static void racer(int from, int to)
{
	unsigned seed = test_seed() + (unsigned)from;
	cpu_set_t cpus;
	uint8_t won[RACE_PORTS] = { 0 };
	struct registry *reg;
	struct in6_addr a;
	uint16_t port;
	uint32_t idx;

	inet_pton(AF_INET6, "::ffff:127.0.0.1", &a);
	CPU_ZERO(&cpus);
	CPU_SET(getpid() % 2, &cpus);
	/* two neighbours on one processor take turns and never race */
	sched_setaffinity(0, sizeof(cpus), &cpus);
	child_assert(registry_open(&reg) == 0);
	child_say(to, "", 1);
	child_wait(from);
	for (int i = 0; i < RACE_PORTS; i++) {
		int ret;

		child_assert(registry_sock_add(reg, 5, 1, 1, &idx) == 0);
		atomic_fetch_add(at_start, 1);
		for (int spins = 0; atomic_load(at_start) < 2 * (unsigned)(i + 1); spins++) {
			if (spins > 20000)
				sched_yield(); /* one processor only, or the other one is slow */
		}
		for (volatile int lead = rand_r(&seed) % 300; lead > 0; lead--)
			; /* otherwise they would take turns at being first */
		ret = registry_sock_bind(reg, idx, &a, (uint16_t)(3000 + i), 0, 1, &port);
		child_assert(ret == 0 || ret == -EADDRINUSE);
		won[i] = ret == 0;
	}
	child_say(to, won, sizeof(won));
	child_wait(from); /* nobody leaves before all have tried */
}

START_TEST(one_of_two_wins)
{
	struct child a, b;
	uint8_t wa[RACE_PORTS], wb[RACE_PORTS];
	unsigned na = 0;
	char c;

	at_start = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(at_start, MAP_FAILED);
	a = child_start(racer);
	b = child_start(racer);
	child_hear(&a, &c, 1);
	child_hear(&b, &c, 1);
	child_tell(&a);
	child_tell(&b);
	child_hear(&a, wa, sizeof(wa));
	child_hear(&b, wb, sizeof(wb));
	for (int i = 0; i < RACE_PORTS; i++) {
		ck_assert_int_eq(wa[i] + wb[i], 1);
		na += wa[i];
	}
	printf("one_of_two_wins: %u to %u\n", na, RACE_PORTS - na);
	child_tell(&a);
	child_tell(&b);
	child_end(&a, 0);
	child_end(&b, 0);
}
END_TEST

struct worker {
	struct registry *reg;
	unsigned seed;
	_Atomic int *stop;
	unsigned rounds;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct in6_addr a = v4("127.0.0.1");
	struct registry_owner o;

	for (unsigned i = 0; i < 1500; i++) {
		uint16_t want = rand_r(&w->seed) % 2 ? 0 : 2000 + rand_r(&w->seed) % 50, port;
		uint32_t idx;

		ck_assert_int_eq(registry_sock_add(w->reg, 1, 1, 1, &idx), 0);
		if (registry_sock_bind(w->reg, idx, &a, want, 0, 1, &port) == 0) {
			ck_assert_int_eq(registry_lookup(w->reg, &a, port, 0, &o), 0);
			ck_assert_uint_eq(o.sock, idx);
			ck_assert_mem_eq(&o.procid, registry_self(w->reg), sizeof(o.procid));
		}
		registry_sock_remove(w->reg, idx);
	}
	return NULL;
}

static void *look(void *arg)
{
	struct worker *w = arg;
	struct in6_addr a = v4("127.0.0.1");
	struct registry_owner o;

	while (!atomic_load(w->stop)) {
		int ret = registry_lookup(w->reg, &a, 1999, 0, &o);

		ck_assert_int_eq(ret, 0); /* bound all the time */
		ret = registry_lookup(w->reg, &a, 2000 + rand_r(&w->seed) % 50, 0, &o);
		ck_assert(ret == 0 || ret == -ENOENT);
		w->rounds++;
	}
	return NULL;
}

START_TEST(threads)
{
	_Atomic int stop = 0;
	struct registry *reg = open_ok();
	struct worker w[4];
	pthread_t t[4];
	struct registry_sock *v;
	unsigned n;

	bind_ok(reg, add_ok(reg), "127.0.0.1", 1999);
	for (unsigned i = 0; i < 4; i++) {
		w[i] = (struct worker){ .reg = reg, .seed = i, .stop = &stop };
		ck_assert_int_eq(pthread_create(&t[i], NULL, i == 3 ? look : work, &w[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		if (i == 3)
			atomic_store(&stop, 1);
		pthread_join(t[i], NULL);
	}
	ck_assert_uint_gt(w[3].rounds, 0);
	ck_assert_int_eq(registry_socks(reg, &v, &n), 0);
	ck_assert_uint_eq(n, 1);
	free(v);
	registry_close(reg);
}
END_TEST

static void watcher(int from, int to)
{
	struct registry *reg;
	struct registry_owner o;
	struct in6_addr a;
	unsigned looked = 0;

	inet_pton(AF_INET6, "::ffff:127.0.0.1", &a);
	child_assert(registry_open(&reg) == 0);
	child_assert(registry_lookup(reg, &a, 7002, 0, &o) == 0);
	child_say(to, "", 1);
	fcntl(from, F_SETFL, O_NONBLOCK);
	for (char c; read(from, &c, 1) < 0; looked++) {
		if (looked == 101)
			child_say(to, "", 1);
		child_assert(registry_proc_alive(reg, o.proc, &o.procid));
		child_assert(registry_reap(reg) == 0);
	}
	child_assert(looked > 100);
}

static void note_fd(int fd, void *arg)
{
	*(int *)arg = fd;
}

/*
 * dup2() of the application onto our number, again and again while the other looks: the locks must
 * not vanish for a moment.
 */
START_TEST(alive_while_the_descriptor_moves)
{
	struct registry *reg = open_ok();
	struct in6_addr a = v4("127.0.0.1");
	struct registry_owner o;
	struct pollfd looked = {.events = POLLIN};
	struct child c;
	char ready;
	int fd = -1;

	bind_ok(reg, add_ok(reg), "127.0.0.1", 7002);
	c = child_start(watcher);
	child_hear(&c, &ready, 1);
	looked.fd = c.in;
	for (int i = 0; i < 2000 || poll(&looked, 1, 0) == 0; i++) {
		os_fd_each_internal(0, 1 << 20, note_fd, &fd);
		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(os_fd_move_internal(fd), 0);
		ck_assert(!os_fd_is_internal(fd));
		ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	}
	child_tell(&c);
	ck_assert_int_eq(child_end(&c, 0), 0);
	ck_assert_int_eq(registry_lookup(reg, &a, 7002, 0, &o), 0);
	bind_ok(reg, add_ok(reg), "127.0.0.1", 7003);
	registry_close(reg);
}
END_TEST

/* What one who was killed after so many of its stores (registry_impl.h) has left. */
static void give_in_part(struct reg_file *f, uint32_t idx, uint32_t proc, const void *to, unsigned stores)
{
	uint64_t id[2];

	memcpy(id, to, sizeof(id));
	atomic_store(&raw_area(f)->dirty, 1);
	atomic_fetch_or(&raw_area(f)->seq, 1);
	if (stores > 0)
		atomic_store(&raw_area(f)->sock[idx].proc, proc);
	if (stores > 1)
		atomic_store(&raw_area(f)->sock[idx].id[0], id[0]);
	if (stores > 2)
		atomic_store(&raw_area(f)->sock[idx].id[1], id[1]);
}

START_TEST(killed_while_it_changes_hands)
{
	int standin = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	const struct rds_procid dead = {.b = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
	struct registry *reg = open_ok();
	struct reg_file *f = raw_map();
	struct in6_addr a = v4("127.0.0.1");
	struct registry_owner o;
	struct rds_procid name;
	unsigned stores;
	uint32_t idx;

	rds_node_name_bind(standin, &name);
	idx = add_ok(reg);
	registry_sock_set_name(reg, idx, &name);
	bind_ok(reg, idx, "127.0.0.1", 7004);
	for (stores = 0; stores < 4; stores++) {
		/* The owner as it leaves, or a process that has found it dead. */
		give_in_part(f, idx, 9, &dead, 3);
		give_in_part(f, idx, REGISTRY_NOBODY, &name, stores);
		ck_assert_int_eq(registry_lookup(reg, &a, 7004, 0, &o), 0);
		ck_assert_uint_eq(o.proc, REGISTRY_NOBODY);
		ck_assert_mem_eq(&o.procid, &name, sizeof(name));
		ck_assert(!registry_sock_is_gone(reg, idx, &name));
		/* Who takes it. */
		give_in_part(f, idx, 9, &dead, stores);
		ck_assert_int_eq(registry_lookup(reg, &a, 7004, 0, &o), 0);
		ck_assert_uint_eq(o.proc, REGISTRY_NOBODY);
		ck_assert_mem_eq(&o.procid, &name, sizeof(name));
		ck_assert_int_eq(registry_sock_take_over(reg, idx, &name, false), 0);
	}
	/* Nobody has it any more: then it ends with its owner, as every other. */
	close(standin);
	give_in_part(f, idx, 9, &dead, 2);
	ck_assert_int_eq(registry_lookup(reg, &a, 7004, 0, &o), -ENOENT);
	registry_close(reg);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("registry_race");
	TCase *tc = suite_case(s, "node", registry_setup, registry_teardown);

	tcase_add_test(tc, one_of_two_wins);
	tcase_add_test(tc, threads);
	tcase_add_test(tc, alive_while_the_descriptor_moves);
	tcase_add_test(tc, killed_while_it_changes_hands);
	return suite_run(s);
}
