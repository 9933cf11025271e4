/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * kinds.c [-l] [-p] [CASE...] - regions of memory that is not private: of a file, of a memfd, huge
 * pages, memory of two processes.
 *
 * Operations write to it and read from it.  The results are checked in the owner's memory and in
 * this process's mapping of the same.  A file that is truncated under a region costs the operation
 * that meets this, and nothing else.
 *
 * -l: the other side is a thread of this process.  -p: a device keeps the memory of a freed region,
 * so an operation on it may succeed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#undef F_NOTIFY /* of directories */
#include "pair.h"

#define PAGES 16
#define HUGE ((size_t)2 << 20)
#define TURNS 6 /* often enough that a device does the last ones, if it ever does */

static int file;
static size_t bytes;
static unsigned char *view; /* of this process */

static bool map_here(size_t len)
{
	bytes = len;
	if (ftruncate(file, (off_t)len))
		return false;
	view = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	return view != MAP_FAILED;
}

static void a_file(void)
{
	const char *dir = getenv("TMPDIR");
	char path[4096];

	snprintf(path, sizeof(path), "%s/kinds.XXXXXX", dir ? dir : "/tmp");
	file = mkstemp(path);
	check(file >= 0 && unlink(path) == 0 && map_here(PAGES * PAGE), "%s: %m", path);
}

static void a_memfd(void)
{
	file = memfd_create("kinds", 0);
	check(file >= 0 && map_here(PAGES * PAGE), "memfd: %m");
}

static void owner_has_it(struct agent *owner)
{
	expect(AGENT(owner, AGENT_AREA, .len = bytes, .key = (uint64_t)file), 0, "mmap of the other side");
}

static void over(void)
{
	munmap(view, bytes);
	close(file);
}

/* ---- operations ---- */

static int try(uint64_t cookie, uint64_t flags, uint64_t at, void *local, size_t len)
{
	struct vec v = {(uintptr_t)local, len};
	struct op op = {.cookie = cookie,
			.remote_addr = at,
			.flags = F_NOTIFY | F_SILENT | flags,
			.token = ++token,
			.local = &v,
			.nr_local = 1};

	expect(send_op(&op), 0, "sendmsg");
	return box_status(b, op.token);
}

static void do_write(uint64_t cookie, uint64_t at, size_t len, const char *what)
{
	pattern(p, len, token);
	expect(try(cookie, F_WRITE, at, p, len), ST_SUCCESS, "%s: a write", what);
}

/* Reads what is there, whichever side has written it. */
static void do_read(uint64_t cookie, uint64_t at, const unsigned char *there, size_t len, const char *what)
{
	memset(p, 0xa5, len);
	expect(try(cookie, 0, at, p, len), ST_SUCCESS, "%s: a read", what);
	expect_bytes(p, there, len, "%s: a read", what);
}

/* ---- the same with memory of each kind ---- */

static void both_ways(const char *what)
{
	unsigned char *want = malloc(8 * PAGE), small[64];
	uint64_t cookie = agent_region(a, PAGE, 8 * PAGE, F_WRITE);
	unsigned i;

	check(want, "memory");
	for (i = 0; i < TURNS; i++) {
		uint64_t at = i * 100;

		do_write(cookie, at, 3 * PAGE, what);
		expect_bytes(agent_memory(a, PAGE + at, 3 * PAGE), p, 3 * PAGE, "%s: what the owner has", what);
		expect_bytes(view + PAGE + at, p, 3 * PAGE, "%s: what we have", what);
		AGENT(a, AGENT_FILL, .off = PAGE, .len = 8 * PAGE, .key = 1000 + i);
		pattern(want, 8 * PAGE, 1000 + i);
		do_read(cookie, at, want + at, 5 * PAGE, what);
		pattern(view + PAGE, 8 * PAGE, 2000 + i);
		pattern(want, 8 * PAGE, 2000 + i);
		do_read(cookie, at, want + at, 5 * PAGE, what);
	}
	pattern(small, sizeof(small), 3000);
	memcpy(view + PAGE, small, sizeof(small));
	expect(AGENT(a, AGENT_FREE, .cookie = cookie, .flags = F_INVALIDATE), 0, "FREE_MR");
	expect(try(cookie, F_WRITE, 0, p, 64), ST_REMOTE_ERROR, "%s: a write with a freed key", what);
	expect_bytes(view + PAGE, small, sizeof(small), "%s: after that", what);
	free(want);
}

static void one_owner(const char *what)
{
	begin();
	owner_has_it(a);
	AGENT(a, AGENT_FILL, .len = bytes, .key = 1);
	both_ways(what);
	end();
	over();
}

static void file_pages(void)
{
	unsigned char got[64];

	a_file();
	view[PAGES * PAGE - 1] = 7;
	one_owner("a file");
	a_file();
	begin();
	owner_has_it(a);
	do_write(agent_region(a, 0, PAGE, F_WRITE), 10, 64, "a file");
	check(pread(file, got, 64, 10) == 64, "pread: %m");
	expect_bytes(got, p, 64, "what the file has");
	end();
	over();
}

static void memfd(void)
{
	a_memfd();
	one_owner("a memfd");
}

static void huge(void)
{
	file = memfd_create("kinds", MFD_HUGETLB);
	if (file < 0 || !map_here(HUGE)) {
		skip("there is no huge page: %s (vm.nr_hugepages)", strerror(errno));
		if (file >= 0)
			close(file);
		return;
	}
	one_owner("huge pages");
}

/*
 * Two owners of the same memory, each with a region of it: what is written by one's key is there to
 * be read by the other's.
 */
static void two_owners(void)
{
	struct agent *other, *first;
	uint64_t mine, others;
	unsigned i;

	a_memfd();
	other = agent_start(1);
	begin();
	first = a;
	owner_has_it(a);
	owner_has_it(other);
	mine = agent_region(a, 0, 4 * PAGE, F_WRITE);
	others = agent_region(other, 2 * PAGE, 4 * PAGE, F_WRITE);
	for (i = 0; i < TURNS; i++) {
		do_write(mine, 2 * PAGE + i * 10, PAGE, "one owner");
		expect_bytes(agent_memory(other, 2 * PAGE + i * 10, PAGE), p, PAGE, "what the other owner has");
		a = other;
		do_read(others, i * 10, view + 2 * PAGE + i * 10, PAGE, "the other owner");
		do_write(others, i * 10, PAGE, "the other owner");
		a = first;
		expect_bytes(agent_memory(a, 2 * PAGE + i * 10, PAGE), p, PAGE, "what the first owner has");
		do_read(mine, 2 * PAGE + i * 10, view + 2 * PAGE + i * 10, PAGE, "the first owner");
	}
	/* one of them ends: the other's region stays */
	agent_end(other);
	do_write(mine, 2 * PAGE, PAGE, "one owner, when the other has ended");
	expect_bytes(view + 2 * PAGE, p, PAGE, "what we have");
	end();
	over();
}

/* ---- a file that is cut ---- */

static void meets_the_end(uint64_t cookie, uint64_t at, size_t len, const char *what)
{
	uint64_t flags;
	int status;

	for (flags = 0; flags <= F_WRITE; flags += F_WRITE) {
		status = try(cookie, flags, at, p, len);
		check(status == ST_REMOTE_ERROR || (pinned && status == ST_SUCCESS), "%s, a %s: expected 1, came %d",
		      what, flags ? "write" : "read", status);
	}
}

static void cut_under_regions(bool used_before)
{
	uint64_t stays, gone, half;
	struct vec v;
	unsigned i;

	begin();
	owner_has_it(a);
	AGENT(a, AGENT_FILL, .len = bytes, .key = 1);
	stays = agent_region(a, 0, PAGE, F_WRITE);
	gone = agent_region(a, 8 * PAGE, PAGE, F_WRITE);
	half = agent_region(a, 2 * PAGE, 4 * PAGE, F_WRITE);
	/* else no device shall know them */
	for (i = 0; used_before && i < (pinned ? TURNS : 1); i++) {
		do_write(gone, 0, PAGE, "before the cut");
		do_write(half, 0, 4 * PAGE, "before the cut");
	}
	check(ftruncate(file, 4 * PAGE) == 0, "ftruncate: %m");
	meets_the_end(gone, 0, 64, "behind the end of the file");
	meets_the_end(gone, 0, PAGE, "a page behind the end of the file");
	meets_the_end(half, 0, 4 * PAGE, "across the end of the file");
	do_write(half, 100, PAGE, "before the end of the file");
	if (!pinned)
		expect_bytes(view + 2 * PAGE + 100, p, PAGE, "what is written before the end of the file");
	do_write(stays, 0, PAGE, "another region");
	expect_bytes(view, p, PAGE, "another region");
	expect(AGENT(a, AGENT_GET_MR, .off = 8 * PAGE, .len = PAGE), -EFAULT, "GET_MR behind the end of the file");
	v = (struct vec){(uintptr_t)view + 8 * PAGE, 64};
	expect(send_op(&(struct op){.cookie = stays, .flags = F_WRITE, .local = &v, .nr_local = 1}), -EFAULT,
	       "a write from behind the end of the file");
	/* as long as it was: the same address, other memory */
	check(ftruncate(file, (off_t)bytes) == 0, "ftruncate: %m");
	do_write(gone, 0, PAGE, "a file that has grown again");
	if (!pinned)
		expect_bytes(view + 8 * PAGE, p, PAGE, "a file that has grown again");
	expect(AGENT(a, AGENT_FREE, .cookie = gone, .flags = F_INVALIDATE), 0, "FREE_MR");
	gone = agent_region(a, 8 * PAGE, PAGE, F_WRITE);
	do_write(gone, 0, PAGE, "a new region of a file that has grown again");
	expect_bytes(view + 8 * PAGE, p, PAGE, "a new region of a file that has grown again");
	end();
}

static void cut(void)
{
	unsigned i;

	for (i = 0; i < 4; i++) {
		if (i % 2)
			a_file();
		else
			a_memfd();
		cut_under_regions(i / 2);
		over();
	}
}

static const struct test_case cases[] = {
	{"file", file_pages}, {"memfd", memfd}, {"huge", huge}, {"two-owners", two_owners}, {"cut", cut},
};

int main(int argc, char **argv)
{
	return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
