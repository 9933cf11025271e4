/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_registry_stopped.c - a process is stopped at each step of a change of the registry, or
 * killed while it goes on without such a one: what the others do meanwhile and what it does when it
 * goes on has to be there once, and nothing else.
 */
#include "tests/mock/clock.h"
#include "tests/unit/stopped_helper.h"

#include "tests/slow.h"
#include "tests/unit/suite.h"

static uint64_t times_gone_on_in(const struct registry *r)
{
	return reg_load(&r->f->h.term) / REG_TERM_ONE;
}

static uint64_t times_gone_on(void)
{
	return times_gone_on_in(parents);
}

static void each_step(const struct change *c)
{
	static uint64_t lives;
	struct others o;
	long n;

	for (n = 1;; n++) {
		pid_t pid = begins(c, n, 0);

		lives += 1 + c->dies;
		if (said->steps) {
			finish(pid);
			break;
		}
		go_on(&o);
		goes_on(pid);
		check(c, &o);
		expect_sum(lives);
		finish(pid);
		expect_sum(lives);
		registry_reap(parents);
		expect_sum(lives);
		forget(&o);
	}
	printf("%s: stopped at %ld steps, gone on without %lu times\n", c->name, n - 1, (unsigned long)times_gone_on());
}

START_TEST(stopped_at_each_step)
{
	each_step(&changes[_i]);
}
END_TEST

static void watch(int from, int to)
{
	struct in6_addr a = v4("127.0.0.1");
	struct rds_procid owner = *registry_self(parents);
	struct registry_owner o;

	registry_abandon(parents);
	child_assert(registry_open(&reg) == 0);
	child_say(to, "", 1);
	fcntl(from, F_SETFL, O_NONBLOCK);
	for (char c; read(from, &c, 1) < 0; sched_yield()) {
		child_assert(registry_lookup(reg, &a, 1999, 0, &o) == 0);
		child_assert(!memcmp(&o.procid, &owner, sizeof(owner)));
		child_assert(registry_proc_alive(reg, o.proc, &o.procid));
		child_assert(registry_lookup(reg, &a, NOBODYS, 0, &o) == -ENOENT);
	}
}

/* What is bound all the time is found all the time, and what is not is not. */
START_TEST(look_ups_meanwhile)
{
	struct child c;
	char byte;

	bind_ok(parents, add_ok(parents), "127.0.0.1", 1999);
	c = child_start(watch);
	child_hear(&c, &byte, 1);
	others_there = 2;
	socks_there = 3;
	for (int i = 0; i < 5; i++)
		each_step(&changes[1]);
	child_tell(&c);
	ck_assert_int_eq(child_end(&c, 0), 0);
}
END_TEST

#define IN_THE_MIDDLE 8 /* of a bind */

/*
 * A process goes on without the holder of the lock, and is killed or stopped on the way, at its
 * n-th step.  False: it was ready before.
 */
static bool thief(long n, bool killed, long *total)
{
	const struct change join = {"join", NULL, act_join, 1, 1, 0, check_add}, *bind = &changes[1];
	pid_t holder = begins(bind, IN_THE_MIDDLE, 0), pid;
	struct others o;
	bool early;

	ck_assert_int_eq(said->steps, 0);
	said = saids + 1;
	pid = begins(&join, killed ? 0 : n, killed ? n : 0);
	early = said->steps;
	*total = early ? said->steps : 0;
	go_on(&o);
	if (!early && pid)
		goes_on(pid);
	if (pid) {
		others_there++;
		check(&join, &o);
		finish(pid);
		others_there--;
	}
	registry_reap(parents);
	said = saids;
	goes_on(holder);
	check(bind, &o);
	finish(holder);
	registry_reap(parents);
	forget(&o);
	audit();
	return !early;
}

/*
 * Most of its steps are one like the other: the more there have been, the more are left out; and so
 * from the end.
 */
START_TEST(others_are_stopped_at_going_on)
{
	long n, total = 0, tries = 0, ignored;

	for (n = 1; thief(n, _i, &total); n += 1 + n / 8)
		tries++;
	for (n = 0; n < total - 1; n += 1 + n / 8, tries++)
		thief(total - n, _i, &ignored);
	printf("%s at %ld of %ld steps, gone on without %lu times\n", _i ? "killed" : "stopped", tries, total,
	       (unsigned long)times_gone_on());
}
END_TEST

/*
 * Words of its own socket, which it writes without the lock, while the others leave for another
 * area.
 */
START_TEST(own_words)
{
	const struct change *bind = &changes[1], *bufs = &changes[5];
	pid_t holder, pid;
	struct others o;

	pid = begins(bufs, _i + 1, 0);
	ck_assert_int_eq(said->steps, 0);
	said = saids + 1;
	holder = begins(bind, IN_THE_MIDDLE, 0);
	said = saids;
	go_on(&o);
	goes_on(pid);
	others_there++;
	check(bufs, &o);
	others_there--;
	finish(pid);
	registry_reap(parents);
	said = saids + 1;
	goes_on(holder);
	check(bind, &o);
	finish(holder);
}
END_TEST

static int leave_it(const struct rds_procid *name, void *arg)
{
	const bool *late = arg;

	(void)name;
	if (!*late)
		raise(SIGSTOP);
	if (!registry_lock_is_ours(reg))
		return -EPIPE;
	if (*late)
		raise(SIGSTOP);
	return 0;
}

static bool leave_late;

static void act_inbox(void)
{
	struct in6_addr a = v4("127.0.0.1");

	said->ret = registry_orphan_act(reg, &a, 6000, 0, 0, 100, leave_it, &leave_late);
}

/*
 * Stopped just before something is left in a mailbox: then the lock has to be ours still; or after,
 * and then it has to be counted.
 */
START_TEST(stopped_while_it_leaves_something)
{
	const struct change c = {"inbox", prepare_left, act_inbox, 0, 1, 0, check_leave};
	bool taken = _i & 1;
	struct registry_mailbox has;
	struct others o;
	pid_t pid;

	leave_late = _i & 2;
	pid = begins(&c, 0, 0);
	ck_assert_int_eq(said->steps, 0);
	go_on(&o);
	if (taken)
		ck_assert_int_eq(registry_sock_take_over(parents, said->idx, &named, false), 0);
	goes_on(pid);
	ck_assert_int_eq(said->ret, leave_late ? 0 : -EPIPE);
	registry_sock_mailbox(parents, said->idx, &has);
	if (!taken)
		ck_assert_uint_ge(has.mailbox_bytes, leave_late ? 100 : 0);
	finish(pid);
}
END_TEST

#define WORKERS 4
#define ROUNDS 64
#define WANTED 6
static _Atomic pid_t *owner;
static unsigned number; /* of this worker */
static int tell;

/* It has the lock, says so, and goes on as soon as it has been gone on without. */
static void rest_with_lock(void)
{
	uint64_t times = times_gone_on_in(reg);

	child_say(tell, "", 1);
	while (times_gone_on_in(reg) == times)
		sched_yield();
}

static void bind_and_remove(void)
{
	struct in6_addr a = v4("127.0.0.1");
	unsigned at = (unsigned)rand_r(&seed) % WANTED;
	struct registry_owner o;
	uint16_t port;
	uint32_t idx;
	int ret;

	child_assert(registry_sock_add(reg, 5, 6, 7, &idx) == 0);
	rest_at = steps + IN_THE_MIDDLE;
	ret = registry_sock_bind(reg, idx, &a, (uint16_t)(PORT + at), 0, 1, &port);
	child_assert(!rests);
	child_assert(ret == 0 || ret == -EADDRINUSE);
	if (!ret) {
		child_assert(atomic_exchange(&owner[at], getpid()) == 0);
		child_assert(registry_lookup(reg, &a, port, 0, &o) == 0);
		child_assert(o.sock == idx && !memcmp(&o.procid, registry_self(reg), sizeof(o.procid)));
		child_assert(atomic_exchange(&owner[at], 0) == getpid());
	}
	registry_sock_remove(reg, idx);
	atomic_fetch_add(&registry_counters(reg)[3], 1);
}

static void worker(int from, int to)
{
	registry_abandon(parents);
	child_assert(registry_open(&reg) == 0);
	seed = test_seed() + number;
	tell = to;
	rests = number ? NULL : rest_with_lock;
	/* longer than others have patience: they go on without one that is not stopped at all */
	dawdles = 300;
	child_wait(from);
	for (int i = 1; i <= ROUNDS; i++) {
		bind_and_remove();
		if (i % 32 == 0) {
			registry_close(reg);
			child_assert(registry_open(&reg) == 0);
		}
	}
	registry_close(reg);
	child_say(to, "", 1);
}

/*
 * A copy is made while the one that is gone on without writes: the first worker for sure, each of
 * them by chance.
 */
START_TEST(gone_on_without_at_once)
{
	struct child c[WORKERS];
	struct registry_sock *v;
	unsigned n;
	char byte;

	owner = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(owner, MAP_FAILED);
	printf("gone_on_without_at_once: seed %u\n", test_seed());
	for (number = 0; number < WORKERS; number++)
		c[number] = child_start(worker);
	child_tell(&c[0]);
	child_hear(&c[0], &byte, 1);
	for (int i = 1; i < WORKERS; i++)
		child_tell(&c[i]);
	for (int i = 0; i < WORKERS; i++) {
		child_hear(&c[i], &byte, 1);
		ck_assert_int_eq(child_end(&c[i], 0), 0);
	}
	expect_sum(WORKERS * ROUNDS);
	ck_assert_int_eq(registry_socks(parents, &v, &n), 0);
	ck_assert_uint_eq(n, 0);
	free(v);
	audit();
	ck_assert_uint_gt(times_gone_on(), 0);
	printf("gone_on_without_at_once: %lu times\n", (unsigned long)times_gone_on());
}
END_TEST

/* Nobody is there yet, and who makes the registry is stopped at that. */
START_TEST(stopped_at_making_it)
{
	const struct change join = {"join", NULL, act_join, 1, 1, 0, check_add};
	struct others o;
	uint64_t t;
	pid_t pid;
	long n;

	for (n = 1;; n += 1 + n / 16) {
		registry_close(parents);
		parents = NULL;
		ck_assert(n == 1 || unlink(test_file) == 0);
		pid = begins(&join, n, 0);
		mock_clock_own(0); /* it waits for nobody who is not stopped */
		t = os_now_ns();
		parents = open_ok();
		ck_assert_uint_lt(os_now_ns() - t, rds_patience_ns(RDS_PATIENCE_REGISTRY_LOCK));
		mock_clock_common();
		if (said->steps)
			break;
		go_on(&o);
		goes_on(pid);
		check(&join, &o);
		finish(pid);
	}
	finish(pid);
	printf("stopped_at_making_it: %ld steps\n", said->steps);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("registry_stopped");
	TCase *tc = suite_case(s, "stopped", stopped_setup, stopped_teardown);

	tcase_add_loop_test(tc, stopped_at_each_step, 0, sizeof(changes) / sizeof(*changes));
	tcase_add_test(tc, look_ups_meanwhile);
	tcase_add_loop_test(tc, others_are_stopped_at_going_on, 0, 2);
	tcase_add_loop_test(tc, own_words, 0, 2);
	tcase_add_test(tc, gone_on_without_at_once);
	tcase_add_test(tc, stopped_at_making_it);
	tcase_add_loop_test(tc, stopped_while_it_leaves_something, 0, 4);
	return suite_run(s);
}
