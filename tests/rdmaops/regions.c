/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * regions.c [-l] [-p] [CASE...] - memory regions: what GET_MR gives and refuses, when a cookie
 * ends, who may use it.
 *
 * -l: the other side is a thread of this process.  -p: a device keeps the memory of a region that
 * was unmapped, so that an operation on it may succeed.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "agent.h"

#define PORT 4000
#define INIT_PORT 4050

static uint64_t next_token;

/* ---- without a peer ---- */

static void alone(void)
{
	int fd = rds_bound(address(0), PORT);
	struct sockaddr_in nobody = name_of(address(0), 999);
	unsigned char *p = pages(8 * PAGE);
	uint64_t c[16];
	unsigned i, j;

	for (i = 0; i < 16; i++) {
		size_t off = i * 777 % PAGE;
		int rc = i % 2 ? get_mr(fd, p + PAGE + off, 3000, F_WRITE, &c[i])
			       : get_mr_for_dest(fd, &nobody, p + PAGE + off, 3000, F_WRITE, &c[i]);

		expect(rc, 0, "%s without any peer", i % 2 ? "GET_MR" : "GET_MR_FOR_DEST");
		check((uint32_t)c[i] != 0, "the low half of cookie %llx is the key, and not 0",
		      (unsigned long long)c[i]);
		expect(c[i] >> 32, off, "the high half of cookie %llx: the offset in the first page",
		       (unsigned long long)c[i]);
		for (j = 0; j < i; j++)
			check((uint32_t)c[i] != (uint32_t)c[j], "regions %u and %u have one key", i, j);
	}
	expect(get_mr(fd, p, 100, F_WRITE, NULL), 0, "GET_MR with cookie_addr 0");
	for (i = 0; i < 16; i++)
		expect(free_mr(fd, c[i], i % 3 ? 0 : F_INVALIDATE), 0, "FREE_MR number %u", i);
	expect(free_mr(fd, 0, 0), 0, "FREE_MR of cookie 0, flags 0: the probe");
	expect(free_mr(fd, 0, F_INVALIDATE), 0, "FREE_MR of cookie 0: flush");
	close(fd);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void not_again(void)
{
	enum { COUNT = 10000 };
	int fd = rds_bound(address(0), PORT);
	unsigned char *p = pages(PAGE);
	uint32_t *keys = malloc(COUNT * sizeof(*keys));
	uint64_t cookie;
	unsigned i;

	check(keys, "memory");
	for (i = 0; i < COUNT; i++) {
		expect(get_mr(fd, p, 64, F_WRITE, &cookie), 0, "GET_MR number %u", i);
		expect(free_mr(fd, cookie, i % 16 ? 0 : F_INVALIDATE), 0, "FREE_MR number %u", i);
		keys[i] = (uint32_t)cookie;
	}
	qsort(keys, COUNT, sizeof(*keys), by_value);
	for (i = 0; i < COUNT; i++)
		check(keys[i] && (!i || keys[i] != keys[i - 1]), "key %x came twice (or is 0) in %u registrations",
		      keys[i], COUNT);
	free(keys);
	close(fd);
}

static void free_errors(void)
{
	int fd = rds_bound(address(0), PORT), other = rds_bound(address(0), PORT + 1);
	unsigned char *p = pages(PAGE);
	struct free_mr f = {.flags = 0};
	uint64_t a, b;

	expect(get_mr(fd, p, 10, F_WRITE, &a), 0, "GET_MR");
	expect(get_mr(fd, p, 10, F_WRITE, &b), 0, "GET_MR of the same memory");
	expect(free_mr(fd, a ^ 0x5a5a5a5a, 0), -EINVAL, "FREE_MR of a cookie that nobody gave");
	expect(free_mr(other, a, 0), -EINVAL, "FREE_MR of another socket's cookie");
	expect(free_mr(fd, 5ull << 32, 0), -EINVAL, "FREE_MR of a cookie with no key, which is not all of them");
	expect(free_mr(fd, (uint32_t)a | 0xfffull << 32, 0), 0, "FREE_MR looks at the key only");
	expect(free_mr(fd, a, 0), -EINVAL, "FREE_MR a second time");
	expect(free_mr(fd, b, F_INVALIDATE), 0, "FREE_MR with INVALIDATE");
	expect(free_mr(fd, b, F_INVALIDATE), -EINVAL, "FREE_MR with INVALIDATE a second time");
	errno = 0;
	expect(setsockopt(fd, 276, OPT_FREE_MR, &f, 8) ? -errno : 0, -EINVAL, "FREE_MR with 8 bytes");
	expect(setsockopt(fd, 276, OPT_FREE_MR, (void *)16, 16) ? -errno : 0, -EFAULT, "FREE_MR from a bad pointer");
	close(fd);
	close(other);
}

static void get_errors(void)
{
	int fd = rds_bound(address(0), PORT), unbound = rds_socket(SOCK_SEQPACKET);
	unsigned char *p = pages(260 * PAGE), *end = p + 260 * PAGE;
	struct get_mr g = {{(uintptr_t)p, 100}, 0, 0};
	uint64_t c = 1;

	expect(get_mr(unbound, p, 10, 0, &c), -ENOTCONN, "GET_MR on an unbound socket");
	expect(setsockopt(fd, 276, OPT_GET_MR, &g, 31) ? -errno : 0, -EINVAL, "GET_MR with 31 bytes");
	expect(setsockopt(fd, 276, OPT_GET_MR, &g, 40) ? -errno : 0, -EINVAL, "GET_MR with 40 bytes");
	expect(setsockopt(fd, 276, OPT_GET_MR, (void *)16, 32) ? -errno : 0, -EFAULT, "GET_MR from a bad pointer");
	expect(setsockopt(fd, 276, OPT_GET_MR_FOR_DEST, &g, 32) ? -errno : 0, -EINVAL, "GET_MR_FOR_DEST with 32 bytes");
	expect(get_mr(fd, (void *)(~0ull - 50), 100, 0, &c), -EINVAL, "GET_MR that wraps");
	expect(get_mr(fd, (void *)(~0ull - 5000), 4999, 0, &c), -EINVAL, "GET_MR that wraps when rounded to pages");
	expect(get_mr(fd, p, 0, 0, &c), -EINVAL, "GET_MR of 0 bytes");
	expect(get_mr(fd, p, 1ull << 32, 0, &c), -EINVAL, "GET_MR of 4 GiB");
	expect(get_mr(fd, p, 257 * PAGE + 1, 0, &c), -EMSGSIZE, "GET_MR of 258 pages");
	expect(get_mr(fd, p + PAGE - 1, MIB + 2, 0, &c), -EMSGSIZE,
	       "GET_MR of 1 MiB + 2 at the end of a page: 258 pages");
	expect(get_mr(fd, p, 257 * PAGE, 0, &c), 0, "GET_MR of 257 pages");
	expect(get_mr(fd, p + PAGE - 1, MIB, 0, &c), 0, "GET_MR of 1 MiB at the end of a page: 257 pages");
	expect(get_mr(fd, p + 1, MIB, 0, &c), 0, "GET_MR of 1 MiB, unaligned");
	expect(get_mr(fd, end - 1, 1, 0, &c), 0, "GET_MR of the last byte");
	expect(get_mr(fd, end - 1, 2, 0, &c), -EFAULT, "GET_MR of a byte behind the memory");
	expect(get_mr(fd, p, 100, 0, (void *)16), -EFAULT, "GET_MR with a bad cookie_addr");
	expect(get_mr(fd, p, 100, ~0xfull, &c), 0, "GET_MR ignores unknown flags");
	close(fd);
	close(unbound);
}

static void not_writable(void)
{
	int fd = rds_bound(address(0), PORT);
	unsigned char *p = pages(16 * PAGE);
	uint64_t c;

	check(mprotect(p, PAGE, PROT_READ) == 0 && mprotect(p + 8 * PAGE, PAGE, PROT_NONE) == 0, "mprotect: %m");
	expect(get_mr(fd, p, 100, 0, &c), -EFAULT, "GET_MR of memory that is read-only (also without READWRITE)");
	expect(get_mr(fd, p + PAGE - 50, 100, 0, &c), -EFAULT, "GET_MR of memory that begins read-only");
	expect(get_mr(fd, p + 8 * PAGE, 100, 0, &c), -EFAULT, "GET_MR of memory without access");
	expect(get_mr(fd, p + 6 * PAGE, 3 * PAGE, 0, &c), -EFAULT, "GET_MR of memory with a page without access");
	close(fd);
}

/* The same memory was a region before, a moment ago: what was known of it then is no answer. */
static void no_longer_writable(void)
{
	int fd = rds_bound(address(0), PORT);
	unsigned char *p = pages(257 * PAGE);
	uint64_t c;
	unsigned i;

	for (i = 0; i < 20; i++) {
		expect(get_mr(fd, p, 257 * PAGE, 0, &c), 0, "GET_MR of 257 pages");
		expect(free_mr(fd, c, F_INVALIDATE), 0, "FREE_MR");
		check(mprotect(p, PAGE, PROT_READ) == 0, "mprotect: %m");
		expect(get_mr(fd, p, 100, 0, &c), -EFAULT, "GET_MR of memory that has just become read-only");
		check(mprotect(p, PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect: %m");
	}
	close(fd);
}

static void tcp_has_none(void)
{
	int fd = rds_socket(SOCK_SEQPACKET);
	struct sockaddr_in me = name_of(address(0), PORT);
	unsigned char *p = pages(PAGE);
	struct vec v = {(uintptr_t)p, 8};
	struct op op = {.cookie = 1, .flags = F_WRITE, .local = &v, .nr_local = 1};
	struct atomic72 a = {.cookie = 1, .local_addr = (uintptr_t)p};
	struct out o;
	uint64_t c;

	expect(set_int(fd, OPT_TRANSPORT, TRANSPORT_TCP), 0, "SO_RDS_TRANSPORT to TCP");
	check(bind(fd, (struct sockaddr *)&me, sizeof(me)) == 0, "bind: %m");
	expect(get_mr(fd, p, 8, 0, &c), -EOPNOTSUPP, "GET_MR over TCP");
	expect(get_mr_for_dest(fd, &me, p, 8, 0, &c), -EOPNOTSUPP, "GET_MR_FOR_DEST over TCP");
	expect(free_mr(fd, 0, 0), -EINVAL, "FREE_MR of cookie 0 over TCP");
	expect(op_send(fd, &me, &op), -EOPNOTSUPP, "RDMA_ARGS over TCP");
	out_begin(&o, &me, NULL, 0);
	out_cmsg(&o, CMSG_FADD, &a, sizeof(a));
	expect(out_send(&o, fd, 0), -EOPNOTSUPP, "an atomic over TCP");
	close(fd);
}

/* ---- with a peer ---- */

struct side {
	struct agent *a;
	struct box *b;
	unsigned char *p; /* 16 pages */
};

static struct side begin(void)
{
	struct side s = {.a = agent_start(0)};

	s.b = box_new(rds_bound(address(0), INIT_PORT));
	s.p = pages(16 * PAGE);
	return s;
}

static void end(struct side *s)
{
	box_empty(s->b, "at the end");
	close(s->b->fd);
	box_free(s->b);
	agent_end(s->a);
}

/*
 * A write of 64 bytes whose outcome must be so; a message goes along, and comes only if it
 * succeeds.
 */
static void write_is(struct side *s, uint64_t cookie, int status, const char *what)
{
	struct vec v = {(uintptr_t)s->p + 100, 64};
	struct op op = {.cookie = cookie,
			.flags = F_WRITE | F_NOTIFY,
			.token = ++next_token,
			.local = &v,
			.nr_local = 1,
			.payload = "imm",
			.len = 3};

	pattern(s->p + 100, 64, next_token);
	expect(op_send(s->b->fd, &s->a->name[0], &op), 3, "%s: sendmsg", what);
	expect_status(s->b, op.token, status, "%s: its status", what);
	if (status == ST_SUCCESS)
		expect(agent_recv(s->a), 3, "%s: its message", what);
}

/* The connection goes on: the next message that comes is this one. */
static void plain_is_next(struct side *s, const char *what)
{
	struct out o;

	out_begin(&o, &s->a->name[0], "plain", 5);
	expect(out_send(&o, s->b->fd, 0), 5, "%s: a plain message", what);
	expect(agent_recv(s->a), 5, "%s: the message of the failed operation must not come, the next does", what);
}

static void memory_is(struct side *s, uint64_t off, uint64_t len, uint64_t key, const char *what)
{
	unsigned char *want = malloc(len);

	check(want, "memory");
	pattern(want, len, key);
	expect_bytes(agent_memory(s->a, off, len), want, len, "%s: the owner's memory", what);
	free(want);
}

static void freed(void)
{
	struct side s = begin();
	uint64_t c[4];
	unsigned i;

	for (i = 0; i < 4; i++)
		c[i] = agent_region(s.a, i * PAGE, PAGE, F_WRITE);
	write_is(&s, c[0], ST_SUCCESS, "a region");
	AGENT(s.a, AGENT_FILL, .off = 0, .len = 4 * PAGE, .key = 5);
	expect(AGENT(s.a, AGENT_FREE, .cookie = c[0], .flags = F_INVALIDATE), 0, "FREE_MR");
	write_is(&s, c[0], ST_REMOTE_ERROR, "a key freed with INVALIDATE");
	plain_is_next(&s, "after a freed key");
	expect(AGENT(s.a, AGENT_FREE, .cookie = c[1]), 0, "FREE_MR");
	expect(AGENT(s.a, AGENT_FREE, .cookie = c[2], .flags = F_INVALIDATE), 0, "FREE_MR");
	write_is(&s, c[1], ST_REMOTE_ERROR, "a key freed before another was with INVALIDATE");
	expect(AGENT(s.a, AGENT_FREE, .cookie = c[3]), 0, "FREE_MR");
	expect(AGENT(s.a, AGENT_FREE, .cookie = 0), 0, "FREE_MR of cookie 0");
	write_is(&s, c[3], ST_REMOTE_ERROR, "a key freed before a flush");
	write_is(&s, c[2], ST_REMOTE_ERROR, "a key freed with INVALIDATE");
	memory_is(&s, 0, 4 * PAGE, 5, "after writes with freed keys");
	c[0] = agent_region(s.a, 0, PAGE, F_WRITE);
	write_is(&s, c[0], ST_SUCCESS, "a new region of the same memory");
	end(&s);
}

/*
 * Cookie 0 is a flush of all that was freed, also with flags, and from another socket of the
 * process.  It ends no other region.
 */
static void flushed(void)
{
	static const uint64_t flags[] = {0, F_INVALIDATE, F_INVALIDATE | F_USE_ONCE, ~0ull};
	struct side s = begin();
	uint64_t stays = agent_region(s.a, 8 * PAGE, PAGE, F_WRITE), c[3];
	unsigned i, k;

	for (i = 0; i < 8; i++) {
		for (k = 0; k < 3; k++) {
			c[k] = agent_region(s.a, k * PAGE, PAGE, F_WRITE);
			write_is(&s, c[k], ST_SUCCESS, "a region before the flush");
		}
		AGENT(s.a, AGENT_FILL, .off = 0, .len = 3 * PAGE, .key = 40 + i);
		for (k = 0; k < 2; k++)
			expect(AGENT(s.a, AGENT_FREE, .cookie = c[k]), 0, "FREE_MR");
		expect(AGENT(s.a, AGENT_FREE, .sock = i % 2, .cookie = 0, .flags = flags[i / 2]), 0,
		       "FREE_MR of cookie 0 with flags %llx", (unsigned long long)flags[i / 2]);
		for (k = 0; k < 2; k++)
			write_is(&s, c[k], ST_REMOTE_ERROR, "a key freed before a flush with flags");
		memory_is(&s, 0, 3 * PAGE, 40 + i, "after the flush");
		write_is(&s, c[2], ST_SUCCESS, "a region that was not freed, after the flush");
		write_is(&s, stays, ST_SUCCESS, "a region that outlives the flushes");
		expect(AGENT(s.a, AGENT_FREE, .cookie = c[2], .flags = F_INVALIDATE), 0, "FREE_MR after the flush");
		expect(AGENT(s.a, AGENT_FREE, .cookie = c[0]), -EINVAL, "FREE_MR a second time, after the flush");
	}
	end(&s);
}

#define READS 12

/*
 * One that succeeds has all that was there before FREE_MR; of one that fails a part may be there.
 */
static void read_is(const unsigned char *got, const unsigned char *before, unsigned char blank, int status, unsigned n)
{
	size_t i;

	check(status == ST_SUCCESS || status == ST_REMOTE_ERROR, "read %u: status %d", n, status);
	if (status == ST_SUCCESS)
		expect_bytes(got, before, MIB, "read %u, which succeeded while the region was freed", n);
	for (i = 0; status != ST_SUCCESS && i < MIB; i++)
		check(got[i] == before[i] || got[i] == blank,
		      "read %u, which failed: byte %zu is %02x, and was %02x before FREE_MR", n, i, got[i], before[i]);
}

/*
 * Reads are under way when FREE_MR with INVALIDATE returns: none sees what the owner writes to its
 * memory from then on.
 */
static void freed_while_read(void)
{
	struct side s = begin();
	unsigned char *local = pages(READS * MIB), *before = malloc(MIB), blank;
	unsigned round, i, whole = 0;
	uint64_t first, c;
	int status[READS];

	check(before, "memory");
	for (round = 0; round < READS; round++) {
		blank = (unsigned char)(0xa0 + round);
		memset(local, blank, READS * MIB);
		pattern(before, MIB, 2 * round);
		AGENT(s.a, AGENT_FILL, .off = 0, .len = MIB, .key = 2 * round);
		c = agent_region(s.a, 0, MIB, F_WRITE);
		first = next_token + 1;
		for (i = 0; i < READS; i++) {
			struct vec v = {(uintptr_t)local + i * MIB, MIB};
			struct op op = {.cookie = c,
					.flags = F_NOTIFY | F_SILENT,
					.token = ++next_token,
					.local = &v,
					.nr_local = 1};

			expect(op_send(s.b->fd, &s.a->name[0], &op), 0, "a read");
		}
		for (i = 0; i < round; i++) /* so many are over already */
			status[i] = box_status(s.b, first + i);
		expect(AGENT(s.a, AGENT_FREE, .cookie = c, .flags = F_INVALIDATE), 0, "FREE_MR while it is read");
		AGENT(s.a, AGENT_FILL, .off = 0, .len = MIB, .key = 2 * round + 1);
		for (; i < READS; i++)
			status[i] = box_status(s.b, first + i);
		for (i = 0; i < READS; i++) {
			check(i >= round || status[i] == ST_SUCCESS, "read %u, over before FREE_MR: status %d", i,
			      status[i]);
			read_is(local + i * MIB, before, blank, status[i], i);
			whole += status[i] == ST_SUCCESS;
		}
		write_is(&s, c, ST_REMOTE_ERROR, "the freed key");
		plain_is_next(&s, "after reads of a freed region");
	}
	printf("%u of %u reads succeeded\n", whole, READS * READS);
	free(before);
	munmap(local - PAGE, READS * MIB + 2 * PAGE);
	end(&s);
}

static void closed(void)
{
	struct side s = begin();
	uint64_t mine = agent_region(s.a, 0, PAGE, F_WRITE), others;

	expect(AGENT(s.a, AGENT_GET_MR, .sock = 1, .off = PAGE, .len = PAGE), 0, "GET_MR of the second socket");
	others = s.a->last.cookie;
	AGENT(s.a, AGENT_FILL, .off = 0, .len = 2 * PAGE, .key = 6);
	write_is(&s, others, ST_SUCCESS, "a message to one socket, the region of another of its process");
	AGENT(s.a, AGENT_FILL, .off = 0, .len = 2 * PAGE, .key = 6);
	expect(AGENT(s.a, AGENT_CLOSE, .sock = 1), 0, "close");
	write_is(&s, others, ST_REMOTE_ERROR, "a region whose socket is closed");
	plain_is_next(&s, "after a region whose socket is closed");
	memory_is(&s, 0, 2 * PAGE, 6, "after the close");
	write_is(&s, mine, ST_SUCCESS, "the other socket's region");
	end(&s);
}

static void unmapped(void)
{
	struct side s = begin();
	uint64_t gone = agent_region(s.a, 4 * PAGE, PAGE, F_WRITE), stays = agent_region(s.a, 0, PAGE, F_WRITE);
	struct vec v = {(uintptr_t)s.p, 8};
	struct op op = {.cookie = gone, .flags = F_NOTIFY, .token = 99, .local = &v, .nr_local = 1};
	int status;

	write_is(&s, gone, ST_SUCCESS, "a region");
	expect(AGENT(s.a, AGENT_UNMAP, .off = 4 * PAGE, .len = PAGE), 0, "munmap");
	if (!pinned) {
		write_is(&s, gone, ST_REMOTE_ERROR, "memory that its owner unmapped");
		plain_is_next(&s, "after unmapped memory");
	}
	expect(op_send(s.b->fd, &s.a->name[0], &op), 0, "a read");
	status = box_status(s.b, 99);
	check(status == ST_REMOTE_ERROR || pinned, "a read of unmapped memory: expected 1, came %d", status);
	if (status == ST_SUCCESS)
		expect(agent_recv(s.a), 0, "the read's message");
	write_is(&s, stays, ST_SUCCESS, "another region of the same owner, afterwards");
	expect(AGENT(s.a, AGENT_PROTECT, .off = 0, .len = PAGE, .flags = PROT_READ), 0, "mprotect");
	v.addr += PAGE;
	op = (struct op){
		.cookie = stays, .flags = F_WRITE | F_NOTIFY | F_SILENT, .token = 98, .local = &v, .nr_local = 1};
	expect(op_send(s.b->fd, &s.a->name[0], &op), 0, "a write");
	status = box_status(s.b, 98);
	/* the kernel pinned it, writable */
	check(status == ST_REMOTE_ERROR || status == ST_SUCCESS,
	      "a write to memory that its owner made read-only since: expected 1 or 0, came %d", status);
	expect(AGENT(s.a, AGENT_PROTECT, .off = 0, .len = PAGE, .flags = PROT_READ | PROT_WRITE), 0, "mprotect");
	write_is(&s, stays, ST_SUCCESS, "the same, writable again");
	expect(AGENT(s.a, AGENT_FREE, .cookie = gone, .flags = F_INVALIDATE), 0, "FREE_MR of unmapped memory");
	end(&s);
}

/* Often enough that a device does the last ones, if it ever does. */
static void writes(struct side *s, uint64_t cookie, uint64_t off, const char *what)
{
	unsigned i;

	for (i = 0; i < 8; i++) {
		write_is(s, cookie, ST_SUCCESS, what);
		expect_bytes(agent_memory(s->a, off, 64), s->p + 100, 64, "%s, write %u", what, i);
	}
}

/*
 * The memory of a region becomes other memory, or has been shared with a child.  While the region
 * lives that is between the owner and itself, but for the child, which changes nothing; its
 * neighbours are never touched.  When it has been freed the address is reached by nobody, and a new
 * region of it is the memory that is there then.
 */
static void replaced(void)
{
	static const struct {
		enum agent_what what;
		const char *name;
	} how[] = {{AGENT_MAP, "mapped anew"}, {AGENT_DISCARD, "discarded"}, {AGENT_FORK, "shared with a child"}};
	struct side s = begin();
	static unsigned char around[3 * PAGE];
	unsigned char before[64];
	uint64_t c;
	unsigned i;

	for (i = 0; i < 3 * sizeof(how) / sizeof(how[0]); i++) {
		const char *name = how[i / 3].name;

		AGENT(s.a, AGENT_FILL, .off = 0, .len = 3 * PAGE, .key = i);
		c = agent_region(s.a, PAGE, PAGE, F_WRITE);
		writes(&s, c, PAGE, name);
		expect(AGENT(s.a, how[i / 3].what, .off = PAGE, .len = PAGE, .key = 77), 0, "%s", name);
		if (how[i / 3].what == AGENT_FORK)
			writes(&s, c, PAGE, name);
		else if (i % 3)
			write_is(&s, c, ST_SUCCESS, name);
		expect(AGENT(s.a, AGENT_FREE, .cookie = c, .flags = i % 3 == 1 ? F_INVALIDATE : 0), 0, "FREE_MR");
		expect(AGENT(s.a, how[i / 3].what, .off = PAGE, .len = PAGE, .key = 78), 0, "%s when free", name);
		AGENT(s.a, AGENT_FILL, .off = PAGE, .len = PAGE, .key = 79);
		write_is(&s, c, ST_REMOTE_ERROR, "a freed region");
		memory_is(&s, PAGE, PAGE, 79, name);
		c = agent_region(s.a, PAGE, PAGE, F_WRITE);
		writes(&s, c, PAGE, name);
		memcpy(before, s.p + 100, sizeof(before));
		expect(AGENT(s.a, AGENT_FREE, .cookie = c), 0, "FREE_MR");
		write_is(&s, c, ST_REMOTE_ERROR, "a freed region");
		expect_bytes(agent_memory(s.a, PAGE, 64), before, 64, "%s: the last write", name);
		pattern(around, sizeof(around), i);
		expect_bytes(agent_memory(s.a, 0, PAGE), around, PAGE, "%s: the page before it", name);
		expect_bytes(agent_memory(s.a, 2 * PAGE, PAGE), around + 2 * PAGE, PAGE, "%s: the page behind it",
			     name);
	}
	plain_is_next(&s, "after all of that");
	end(&s);
}

static void one_for_all(void)
{
	struct agent *peer[3], *a = agent_start(0);
	uint64_t cookie;
	unsigned i;

	for (i = 0; i < 3; i++)
		peer[i] = agent_start(i + 1);
	AGENT(a, AGENT_FILL, .off = 0, .len = 8 * PAGE, .key = 1);
	cookie = agent_region(a, 10, 6 * PAGE, F_WRITE);
	for (i = 0; i < 3; i++) {
		AGENT(peer[i], AGENT_FILL, .off = 0, .len = PAGE, .key = 70 + i);
		expect(AGENT(peer[i], AGENT_WRITE, .off = 0, .len = PAGE, .cookie = cookie, .remote = i * PAGE,
			     .to = a->name[0]),
		       ST_SUCCESS, "peer %u with the one cookie", i);
		expect(agent_recv(a), 0, "the message of peer %u", i);
	}
	for (i = 0; i < 3; i++) {
		unsigned char want[PAGE];

		pattern(want, PAGE, 70 + i);
		expect_bytes(agent_memory(a, 10 + i * PAGE, PAGE), want, PAGE, "what peer %u wrote", i);
	}
	for (i = 0; i < 3; i++)
		agent_end(peer[i]);
	agent_end(a);
}

static void outlives_peers(void)
{
	struct agent *a = agent_start(0), *first = agent_start(1), *second = agent_start(2);
	uint64_t cookie = agent_region(a, 0, PAGE, F_WRITE);

	expect(AGENT(first, AGENT_WRITE, .len = 100, .cookie = cookie, .to = a->name[0]), ST_SUCCESS, "the first peer");
	agent_recv(a);
	agent_end(first);
	expect(AGENT(second, AGENT_WRITE, .len = 100, .cookie = cookie, .to = a->name[0]), ST_SUCCESS,
	       "another peer, after the first has ended");
	agent_recv(a);
	first = agent_start(1);
	expect(AGENT(first, AGENT_WRITE, .len = 100, .cookie = cookie, .to = a->name[0]), ST_SUCCESS,
	       "the first peer, started again");
	agent_recv(a);
	agent_end(first);
	agent_end(second);
	agent_end(a);
}

static void many(void)
{
	enum { COUNT = 256 };
	struct side s = begin();
	static uint64_t c[COUNT];
	unsigned i;

	for (i = 0; i < COUNT; i++)
		c[i] = agent_region(s.a, i * 1000, 64, F_WRITE);
	for (i = 0; i < COUNT; i++) {
		unsigned n = i * 37 % COUNT;

		write_is(&s, c[n], ST_SUCCESS, "one of many regions");
		expect_bytes(agent_memory(s.a, n * 1000, 64), s.p + 100, 64, "region %u of many", n);
	}
	for (i = 0; i < COUNT; i += 2)
		expect(AGENT(s.a, AGENT_FREE, .cookie = c[i], .flags = i == COUNT - 2 ? F_INVALIDATE : 0), 0,
		       "FREE_MR");
	for (i = 0; i < COUNT; i += 15)
		write_is(&s, c[i], i % 2 ? ST_SUCCESS : ST_REMOTE_ERROR, i % 2 ? "a region" : "a freed region");
	plain_is_next(&s, "after freed regions");
	end(&s);
}

static const struct test_case cases[] = {
	{"alone", alone},
	{"not-again", not_again},
	{"free-errors", free_errors},
	{"get-errors", get_errors},
	{"not-writable", not_writable},
	{"no-longer-writable", no_longer_writable},
	{"tcp-has-none", tcp_has_none},
	{"freed", freed},
	{"flushed", flushed},
	{"freed-while-read", freed_while_read},
	{"closed", closed},
	{"unmapped", unmapped},
	{"replaced", replaced},
	{"one-for-all", one_for_all},
	{"outlives-peers", outlives_peers},
	{"many", many},
};

int main(int argc, char **argv)
{
	return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
