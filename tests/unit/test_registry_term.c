/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_registry_term.c - the term says which area of the registry counts.  It is moved at a bad
 * moment: once by others that go on, or again and again by a process that may write the file and
 * means harm.  And a process that waits for an area's lock while the clock leaps.
 */
#include "engine/node/registry_impl.h"
#include "tests/mock/clock.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

int __real_os_lock(int fd, short type, off_t start, off_t len, bool wait);
int __wrap_os_lock(int fd, short type, off_t start, off_t len, bool wait);
int __real_os_lock_holder(int fd, off_t start, off_t len);
int __wrap_os_lock_holder(int fd, off_t start, off_t len);
int __real_os_fallocate(int fd, off_t off, off_t len);
int __wrap_os_fallocate(int fd, off_t off, off_t len);

/* The neighbour, always the quicker one. */
static struct reg_file *file;
static enum { AT_REST, BEFORE_THE_LOCK, UNDER_THE_LOCK, IN_THE_COPY } when;

static void move(void)
{
	uint64_t next = reg_load(&file->h.term) / REG_TERM_ONE * REG_TERM_ONE + REG_TERM_ONE;

	reg_store(&file->h.term, when == IN_THE_COPY ? next | REG_TERM_COPYING | 1 : next);
}

/* So many further tries come when another process has the lock. In the middle a minute passes. */
static unsigned tries_in_vain;
#define TRIES 300
#define MINUTE_NS 60000000000ull

static bool comes_in_vain(void)
{
	if (!tries_in_vain)
		return false;
	if (--tries_in_vain == TRIES / 2)
		atomic_fetch_add(&mock_now, MINUTE_NS);
	return true;
}

int __wrap_os_lock(int fd, short type, off_t start, off_t len, bool wait)
{
	int ret = type == F_WRLCK && comes_in_vain() ? -EAGAIN : __real_os_lock(fd, type, start, len, wait);

	if (when == BEFORE_THE_LOCK && type == F_WRLCK)
		move();
	return ret;
}

int __wrap_os_lock_holder(int fd, off_t start, off_t len)
{
	if (when == UNDER_THE_LOCK)
		move();
	return __real_os_lock_holder(fd, start, len);
}

int __wrap_os_fallocate(int fd, off_t off, off_t len)
{
	if (when == IN_THE_COPY)
		move();
	return __real_os_fallocate(fd, off, len);
}

/* Calls come to an end, with an error, and when it is over all is as before. */
START_TEST(moved_again_and_again)
{
	struct registry *reg = open_ok();
	uint32_t idx;

	file = raw_map();
	when = (unsigned)_i;
	if (when == IN_THE_COPY)
		move();
	if (when == UNDER_THE_LOCK) {
		registry_close(reg);
		ck_assert_int_eq(registry_open(&reg), -EIO);
	} else {
		ck_assert_int_eq(registry_sock_add(reg, 1, 2, 3, &idx), -EIO);
		ck_assert_int_eq(registry_check_lock(reg), -EIO);
		registry_close(reg);
	}
	when = AT_REST;
	reg = open_ok();
	bind_ok(reg, add_ok(reg), "127.0.0.1", 4000);
	registry_close(reg);
}
END_TEST

/*
 * A waiter that was stopped, or had no processor, finds the lock taken when it goes on: by whom, and
 * for how long, it cannot know.
 */
START_TEST(waiter_was_stopped)
{
	struct registry *reg = open_ok();
	uint64_t term;
	uint32_t idx;

	file = raw_map();
	term = reg_load(&file->h.term);
	mock_clock_stop();
	tries_in_vain = TRIES;
	ck_assert_int_eq(registry_sock_add(reg, 1, 2, 3, &idx), 0);
	ck_assert_uint_eq(tries_in_vain, 0);
	ck_assert_uint_eq(reg_load(&file->h.term), term);
	registry_close(reg);
}
END_TEST

/*
 * Nobody can have the lock, and a copy is being made, which has it already: a socket that is closed
 * is gone from there, too.
 */
START_TEST(withdrawn_while_it_is_copied)
{
	struct registry *reg = open_ok();
	struct in6_addr a = v4("127.0.0.1");
	uint32_t idx = add_ok(reg);
	struct registry_owner o;
	struct reg_area *copy;
	uint64_t began;
	struct child c;
	char ready;
	void *p;

	bind_ok(reg, idx, "127.0.0.1", 4000);
	file = raw_map();
	ck_assert_int_eq(os_fallocate(reg_fd(reg), (off_t)REG_AREA_OFFSET(1), (off_t)REG_AREA_SIZE(REG_CHUNK)), 0);
	ck_assert_int_eq(os_mmap(REG_AREA_SIZE(REG_CHUNK), PROT_READ | PROT_WRITE, MAP_SHARED, reg_fd(reg),
				 (off_t)REG_AREA_OFFSET(1), &p),
			 0);
	copy = p;
	memcpy(p, raw_area(file), REG_AREA_SIZE(REG_CHUNK));
	c = child_start(holder_of_all);
	child_hear(&c, &ready, 1);
	reg_store(&file->h.term, REG_TERM_ONE | REG_TERM_COPYING | 1);
	ck_assert_int_eq(registry_lookup(reg, &a, 4000, 0, &o), 0);
	mock_clock_own(0);
	began = os_now_ns();
	registry_sock_set_congested(reg, idx, true); /* called by who receives, and waits for nobody */
	ck_assert_uint_lt(os_now_ns() - began, 1000000);
	ck_assert_uint_eq(reg_load(&copy->sock[idx].congested), 1);
	registry_sock_remove(reg, idx);
	mock_clock_common();
	reg_store(&file->h.term, REG_TERM_ONE | 1);
	ck_assert_uint_eq(reg_load(&copy->sock[idx].mark), 0);
	ck_assert_int_eq(registry_lookup(reg, &a, 4000, 0, &o), -ENOENT);
	child_end(&c, SIGKILL);
	ck_assert_int_eq(registry_lookup(reg, &a, 4000, 0, &o), -ENOENT);
	registry_close(reg);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("registry_term");
	TCase *tc = suite_case(s, "term", registry_setup, registry_teardown);

	tcase_add_loop_test(tc, moved_again_and_again, BEFORE_THE_LOCK, IN_THE_COPY + 1);
	tcase_add_test(tc, withdrawn_while_it_is_copied);
	tcase_add_test(tc, waiter_was_stopped);
	return suite_run(s);
}
