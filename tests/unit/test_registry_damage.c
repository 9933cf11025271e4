/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_registry_damage.c - the node registry among killed, stopped, hostile and incompatible
 * neighbours: repaired, or refused with the right error; never a crash, an endless loop or a lie.
 */
#include <sched.h>
#include <time.h>

#include "engine/node/registry_impl.h"
#include "tests/slow.h"
#include "tests/unit/registry_helper.h"
#include "tests/mock/clock.h"
#include "tests/unit/suite.h"

static struct in6_addr lo(void)
{
	return v4("127.0.0.1");
}

static int open_err(void)
{
	struct registry *reg;

	return registry_open(&reg);
}

static uint32_t bound(struct registry *reg, uint16_t port)
{
	struct in6_addr a = lo();
	uint32_t idx;
	uint16_t got;

	ck_assert_int_eq(registry_sock_add(reg, 1, 2, 3, &idx), 0);
	ck_assert_int_eq(registry_sock_bind(reg, idx, &a, port, 0, 1, &got), 0);
	return idx;
}

static int lookup(struct registry *reg, uint16_t port)
{
	struct in6_addr a = lo();
	struct registry_owner o;

	return registry_lookup(reg, &a, port, 0, &o);
}

/*
 * The whole life with a registry that has just been damaged: results may be errors, but it has to
 * come to an end.
 */
static void exercise(struct registry *reg)
{
	struct in6_addr a = lo();
	struct registry_sock *v;
	struct registry_proc *p;
	uint64_t sum[RDS_STATS];
	uint32_t idx;
	uint16_t port;
	unsigned n;

	for (int i = 0; i < 50; i++)
		lookup(reg, (uint16_t)(4000 + i));
	for (int i = 0; i < 20; i++) {
		if (registry_sock_add(reg, 1, 2, 3, &idx))
			continue;
		registry_sock_bind(reg, idx, &a, i % 2 ? 0 : (uint16_t)(4000 + i), 0, 1, &port);
		registry_sock_set_connected(reg, idx, &a, 9);
		if (i % 3 || i % 2) /* a random port must not be in the way of what is bound next */
			registry_sock_remove(reg, idx);
	}
	registry_reap(reg);
	registry_counters_sum(reg, sum);
	if (registry_socks(reg, &v, &n) == 0)
		free(v);
	if (registry_procs(reg, &p, &n) == 0)
		free(p);
}

START_TEST(a_writer_died_in_the_middle)
{
	struct registry *reg = open_ok();
	struct reg_file *f = raw_map();
	uint32_t idx = bound(reg, 4000), other = bound(reg, 4001);

	/*
	 * It had cleared the buckets and lost the list of unused entries, and 4001 was just being
	 * given up.
	 */
	atomic_store(&raw_area(f)->dirty, 1);
	atomic_fetch_or(&raw_area(f)->seq, 1);
	memset((void *)raw_area(f)->bucket, 0, sizeof(raw_area(f)->bucket));
	atomic_store(&raw_area(f)->free, 0);
	atomic_store(&raw_area(f)->sock[other].mark, 0);
	ck_assert_int_eq(lookup(reg, 4000), 0);
	ck_assert_int_eq(lookup(reg, 4001), -ENOENT);
	ck_assert_uint_eq(atomic_load(&raw_area(f)->seq) & 1, 0);
	ck_assert_uint_eq(atomic_load(&raw_area(f)->dirty), 0);
	ck_assert_uint_eq(bound(reg, 4001), other);
	registry_sock_remove(reg, idx);
	ck_assert_int_eq(lookup(reg, 4000), -ENOENT);
	ck_assert_int_eq(lookup(reg, 4001), 0);
	registry_close(reg);
}
END_TEST

static void begins_and_ends(int from, int to)
{
	struct registry *reg;

	(void)from, (void)to;
	child_assert(registry_open(&reg) == 0 && reg_lock(reg) == 0);
	reg_change_begin(reg);
	child_assert(reg_sock_alloc(reg));
}

/* An entry was in its hands only: it is there for the next one. */
START_TEST(a_writer_ends)
{
	struct registry *reg = open_ok();
	uint32_t idx = bound(reg, 4000);
	struct child c = child_start(begins_and_ends);

	ck_assert_int_eq(child_end(&c, 0), 0);
	ck_assert_uint_eq(bound(reg, 4001), idx + 1);
	registry_close(reg);
}
END_TEST

START_TEST(chains_that_lead_astray)
{
	static const uint32_t links[] = { UINT32_MAX, REG_SOCKS + 1, REG_CHUNK + 1, 1, 2 };
	struct registry *reg = open_ok();
	struct reg_file *f = raw_map();
	uint32_t idx = bound(reg, 4000);

	for (unsigned i = 0; i < sizeof(links) / sizeof(*links); i++) {
		for (unsigned b = 0; b < REG_BUCKETS; b++)
			atomic_store(&raw_area(f)->bucket[b], links[i]);
		atomic_store(&raw_area(f)->sock[idx].next, idx + 1); /* a circle of one */
		atomic_store(&raw_area(f)->sock[1].next, 2);
		atomic_store(&raw_area(f)->free, links[i]);
		ck_assert_int_eq(lookup(reg, 5000), links[i] == 1 || links[i] > 2 ? -ENOENT : lookup(reg, 5000));
		exercise(reg);
		ck_assert_int_eq(lookup(reg, 4000), 0);
	}
	registry_close(reg);
}
END_TEST

START_TEST(a_fold_is_done_once)
{
	struct registry *reg = open_ok();
	struct reg_file *f = raw_map();
	uint64_t sum[RDS_STATS];
	struct reg_proc *p = &f->proc[7];
	_Atomic uint32_t *state = &raw_area(f)->state[7];

	/*
	 * The dead process 7 counted 5 on top of 100; the reaper was killed right after its
	 * promise.
	 */
	atomic_store(&raw_area(f)->dead[2], 100);
	atomic_store(&p->id[0], 0x1234);
	atomic_store(&p->counters[2], 5);
	atomic_store(state, REG_PROC_USED);
	for (int i = 0; i < RDS_STATS; i++)
		atomic_store(&raw_area(f)->fold.sum[i], i == 2 ? 105 : 0);
	atomic_store(&raw_area(f)->fold.id[0], 0x1234);
	atomic_store(&raw_area(f)->fold.id[1], 0);
	atomic_store(&raw_area(f)->fold.link, 8);
	atomic_store(&raw_area(f)->dirty, 1);
	for (int i = 0; i < 3; i++) {
		registry_counters_sum(reg, sum);
		ck_assert_uint_eq(sum[2], 105);
		ck_assert_uint_eq(atomic_load(state), 0);
		ck_assert_int_eq(registry_reap(reg), 0);
		atomic_store(&raw_area(f)->dirty, 1);
	}

	/*
	 * Killed one step later, when another process had already taken the slot: that process is
	 * left alone.
	 */
	atomic_store(&p->id[0], 0x9999);
	atomic_store(state, REG_PROC_USED);
	atomic_store(&raw_area(f)->fold.link, 8);
	registry_counters_sum(reg, sum);
	ck_assert_uint_eq(atomic_load(state), REG_PROC_USED);
	atomic_store(state, 0);
	atomic_store(&raw_area(f)->fold.link, 4000000000u);
	atomic_store(&raw_area(f)->dirty, 1);
	registry_counters_sum(reg, sum);
	ck_assert_uint_eq(sum[2], 105);
	registry_close(reg);
}
END_TEST

START_TEST(random_bytes_at_rest)
{
	unsigned seed = test_seed();

	printf("random_bytes_at_rest: seed %u\n", seed);
	for (int round = 0; round < 30; round++) {
		struct registry *reg = open_ok();
		struct reg_file *f = raw_map();
		unsigned char *bytes = (unsigned char *)f;
		size_t from = round % 3 ? sizeof(uint64_t) * 2 : 0, n = round % 2 ? REG_SIZE(REG_CHUNK) / 3 : 200;

		bound(reg, 4000);
		registry_close(reg);
		for (size_t i = 0; i < n; i++)
			bytes[from + (size_t)rand_r(&seed) % (REG_SIZE(REG_CHUNK) - from)] = (unsigned char)rand_r(&seed);
		munmap(f, REG_AREA_OFFSET(1));
		/* no process lives: the file is mended or made anew, whatever it was */
		reg = open_ok();
		exercise(reg);
		bound(reg, 6000);
		ck_assert_int_eq(lookup(reg, 6000), 0);
		registry_close(reg);
	}
}
END_TEST

START_TEST(random_bytes_alive)
{
	unsigned seed = test_seed();

	printf("random_bytes_alive: seed %u\n", seed);
	for (int round = 0; round < 60; round++) {
		struct registry *reg = open_ok();
		struct reg_file *f = raw_map();
		unsigned char *bytes = (unsigned char *)f;

		bound(reg, 4000);
		for (int i = 0; i < 1 << round % 16; i++)
			bytes[(size_t)rand_r(&seed) % REG_SIZE(REG_CHUNK)] = (unsigned char)rand_r(&seed);
		exercise(reg);
		registry_close(reg);
		munmap(f, REG_AREA_OFFSET(1));
	}
	registry_close(open_ok());
}
END_TEST

START_TEST(truncated_at_rest)
{
	static const off_t sizes[] = { 0, 1, 15, 16, 4095, 4096, 100000, REG_SIZE(0), REG_SIZE(REG_CHUNK) - 1,
				       REG_SIZE(REG_CHUNK) };

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct registry *reg = open_ok();

		for (int n = 0; n < REG_CHUNK + 10; n++) /* into the second chunk */
			bound(reg, (uint16_t)(4000 + n));
		registry_close(reg);
		ck_assert_int_eq(truncate(test_file, sizes[i]), 0);
		reg = open_ok();
		exercise(reg);
		bound(reg, 7000);
		registry_close(reg);
	}
}
END_TEST

START_TEST(truncated_alive)
{
	struct registry *reg = open_ok();
	struct in6_addr a = lo();
	uint32_t idx = bound(reg, 4000);
	uint16_t port;

	ck_assert_int_eq(truncate(test_file, 4096 + sizeof(struct reg_proc)), 0);
	ck_assert_int_eq(registry_sock_add(reg, 1, 1, 1, &idx), -EIO);
	ck_assert_int_eq(truncate(test_file, 0), 0);
	ck_assert_int_eq(registry_sock_add(reg, 1, 1, 1, &idx), -EIO);
	/* zeroes: we are not in there any more */
	ck_assert_int_eq(truncate(test_file, REG_SIZE(REG_CHUNK)), 0);
	ck_assert_int_eq(registry_sock_bind(reg, 0, &a, 4001, 0, 1, &port), -EIO);
	registry_close(reg);
	registry_close(open_ok());
}
END_TEST

/* The file is longer than the area, but no entry was ever there. */
START_TEST(more_entries_than_there_are)
{
	static const uint32_t bad[] = {REG_SOCKS, 2 * REG_CHUNK, REG_SOCKS + REG_CHUNK, 0, 17};
	struct registry *reg = open_ok();
	struct reg_file *f = raw_map();

	ck_assert_ptr_nonnull(registry_line(reg, 0));
	bound(reg, 4000);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		atomic_store(&raw_area(f)->reserved, bad[i]);
		ck_assert_int_eq(registry_check_lock(reg), 0);
		ck_assert_uint_eq(atomic_load(&raw_area(f)->reserved), REG_CHUNK);
		ck_assert_int_eq(lookup(reg, 4000), 0);
	}
	for (int n = 1; n < REG_CHUNK + 10; n++)
		bound(reg, (uint16_t)(4000 + n));
	atomic_store(&raw_area(f)->reserved, REG_SOCKS);
	ck_assert_int_eq(registry_check_lock(reg), 0);
	ck_assert_uint_eq(atomic_load(&raw_area(f)->reserved), 2 * REG_CHUNK);
	registry_close(reg);
}
END_TEST

/* A member of another version: all that is common is where the locks are. */
static void stranger(int from, int to)
{
	int fd = open(test_file, O_RDWR);

	child_assert(fd >= 0 && os_lock(fd, F_WRLCK, REG_SLOT_BYTE(40), 1, false) == 0);
	child_say(to, "", 1);
	child_wait(from);
}

START_TEST(another_version)
{
	struct reg_file *f;
	struct child c;
	char ready;

	registry_close(open_ok());
	f = raw_map();
	atomic_store(&f->h.version, REG_VERSION + 1);
	munmap(f, REG_AREA_OFFSET(1));
	c = child_start(stranger);
	child_hear(&c, &ready, 1);
	ck_assert_int_eq(open_err(), -EPROTO);
	child_end(&c, SIGKILL);
	registry_close(open_ok()); /* nobody uses it: replaced */

	f = raw_map();
	ck_assert_uint_eq(atomic_load(&f->h.version), REG_VERSION);
	atomic_store(&f->h.magic, 42);
	c = child_start(stranger);
	child_hear(&c, &ready, 1);
	ck_assert_int_eq(open_err(), -EPROTO);
	child_end(&c, SIGKILL);
	registry_close(open_ok());
	ck_assert_uint_eq(atomic_load(&f->h.magic), REG_MAGIC);
}
END_TEST

/* A file that is named like ours, or nearly, with a member or without. */
static bool warned_beside(const char *suffix, bool member)
{
	int saved = dup(2), file = open(test_dir, O_TMPFILE | O_RDWR, 0600);
	char own[sizeof(test_file)], text[1024] = "", ready;
	struct child c;

	memcpy(own, test_file, sizeof(own));
	strcpy(strrchr(test_file, suffix[0]), suffix);
	close(open(test_file, O_CREAT | O_RDWR, 0600));
	if (member) {
		c = child_start(stranger);
		child_hear(&c, &ready, 1);
	}
	dup2(file, 2);
	registry_close(open_ok());
	dup2(saved, 2);
	ck_assert_int_ge(pread(file, text, sizeof(text) - 1, 0), 0);
	close(file);
	close(saved);
	if (member)
		child_end(&c, SIGKILL);
	unlink(test_file);
	memcpy(test_file, own, sizeof(own));
	return strstr(text, "another version of the library is in use");
}

START_TEST(another_version_beside)
{
	registry_close(open_ok());
	ck_assert(!warned_beside("v1", false));
	ck_assert(!warned_beside("v1x", true));
	ck_assert(!warned_beside("-v", true));
	ck_assert(warned_beside("v1", true));
}
END_TEST

START_TEST(no_slot_left)
{
	struct reg_file *f;
	struct registry *reg;
	struct child c;
	char ready;

	registry_close(open_ok());
	f = raw_map();
	c = child_start(stranger);
	child_hear(&c, &ready, 1);
	for (int i = 0; i < REG_PROCS; i++)
		atomic_store(&raw_area(f)->state[i], REG_PROC_USED);
	reg = open_ok(); /* only number 40 is alive */
	registry_close(reg);
	child_end(&c, SIGKILL);
}
END_TEST

static void crowd(int from, int to)
{
	int fd = open(test_file, O_RDWR);

	child_assert(fd >= 0 && os_lock(fd, F_RDLCK, REG_SLOT_BYTE(0), REG_PROCS, false) == 0);
	child_say(to, "", 1);
	child_wait(from);
}

START_TEST(a_full_house)
{
	struct reg_file *f;
	struct child c;
	char ready;

	registry_close(open_ok());
	f = raw_map();
	c = child_start(crowd);
	child_hear(&c, &ready, 1);
	/* slots that look unused, but a process lives there */
	ck_assert_int_eq(open_err(), -EUSERS);
	for (int i = 0; i < REG_PROCS; i++)
		atomic_store(&raw_area(f)->state[i], REG_PROC_USED);
	ck_assert_int_eq(open_err(), -EUSERS);
	child_end(&c, SIGKILL);
	registry_close(open_ok());
}
END_TEST

static void holder(int from, int to)
{
	int fd = open(test_file, O_RDWR);

	child_assert(fd >= 0 && os_lock(fd, F_WRLCK, REG_LOCK_BYTE, 1, false) == 0);
	child_say(to, "", 1);
	child_wait(from);
}

/* Others go on in another area. */
START_TEST(a_stopped_process_holds_the_lock)
{
	struct registry *reg = open_ok();
	uint32_t idx = bound(reg, 4000);
	struct child c = child_start(holder);
	char ready;

	child_hear(&c, &ready, 1);
	kill(c.pid, SIGSTOP);
	ck_assert_uint_eq(bound(reg, 4001), idx + 1);
	ck_assert_int_eq(lookup(reg, 4000), 0);
	ck_assert_int_eq(lookup(reg, 4001), 0);
	registry_sock_remove(reg, idx);
	ck_assert_int_eq(lookup(reg, 4000), -ENOENT);
	ck_assert_uint_eq(bound(reg, 4002), idx);
	registry_close(reg);
	reg = open_ok();
	ck_assert_int_eq(lookup(reg, 4002), -ENOENT);
	child_end(&c, SIGKILL);
	registry_close(reg);
	registry_close(open_ok());
}
END_TEST

START_TEST(stopped_processes_hold_all_locks)
{
	struct registry *reg = open_ok();
	uint32_t idx = bound(reg, 4000), extra;
	struct child c = child_start(holder_of_all);
	char ready;
	uint64_t t;

	child_hear(&c, &ready, 1);
	kill(c.pid, SIGSTOP);
	mock_clock_own(0);
	t = os_now_ns();
	ck_assert_int_eq(registry_sock_add(reg, 1, 1, 1, &extra), -ETIMEDOUT);
	t = os_now_ns() - t;
	ck_assert_uint_gt(t, UINT64_C(4000000000));
	ck_assert_uint_lt(t, UINT64_C(20000000000));
	ck_assert_int_eq(lookup(reg, 4000), 0); /* readers do not care */
	t = os_now_ns();
	/* waited for once: no process has the time to do so again and again */
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(registry_sock_add(reg, 1, 1, 1, &extra), -ETIMEDOUT);
	ck_assert_uint_lt(os_now_ns() - t, UINT64_C(4000000000));
	/* gives up as well, and the port is free all the same */
	registry_sock_remove(reg, idx);
	ck_assert_int_eq(lookup(reg, 4000), -ENOENT);
	child_end(&c, SIGKILL);
	ck_assert_uint_eq(bound(reg, 4000), idx);
	registry_close(reg);
}
END_TEST

START_TEST(removed_while_in_use)
{
	struct registry *reg = open_ok();
	uint32_t idx;

	ck_assert_int_eq(unlink(test_file), 0);
	bound(reg, 4000);
	ck_assert_int_eq(registry_sock_add(reg, 1, 1, 1, &idx), 0);
	registry_close(reg);
	reg = open_ok();
	ck_assert_int_eq(lookup(reg, 4000), -ENOENT);
	registry_close(reg);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_writer_died_in_the_middle,
		a_writer_ends,
		chains_that_lead_astray,
		a_fold_is_done_once,
		random_bytes_at_rest,
		random_bytes_alive,
		truncated_at_rest,
		truncated_alive,
		more_entries_than_there_are,
		another_version,
		another_version_beside,
		no_slot_left,
		a_full_house,
		a_stopped_process_holds_the_lock,
		stopped_processes_hold_all_locks,
		removed_while_in_use,
	};
	Suite *s = suite_create("registry damage");
	TCase *tc = tcase_create("damage");

	tcase_add_checked_fixture(tc, registry_setup, registry_teardown);
	for (unsigned i = 0; i < sizeof(tests) / sizeof(*tests); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
