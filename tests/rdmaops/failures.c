/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * failures.c [-l] [CASE...] - operations that must fail: wrong keys and addresses cost that
 * operation alone, and a sendmsg that is refused leaves no trace.
 */
#include <errno.h>
#include <sys/mman.h>

#include "pair.h"

/* ---- what fails, and costs only itself ---- */

static void fails(uint64_t cookie, uint64_t remote, size_t len, const char *what)
{
	struct vec v = {(uintptr_t)p, len};
	unsigned write;

	for (write = 0; write < 2; write++) {
		struct op op = {.cookie = cookie,
				.remote_addr = remote,
				.flags = F_NOTIFY | (write ? F_WRITE : 0),
				.token = ++token,
				.local = &v,
				.nr_local = 1,
				.payload = "lost",
				.len = 4};

		expect(send_op(&op), 4, "sendmsg (%s)", what);
		expect_status(b, op.token, ST_REMOTE_ERROR, "%s, a %s", what, write ? "write" : "read");
	}
}

static void bad_keys(void)
{
	static unsigned char want[8 * PAGE];
	uint64_t good, cookie, base, word;

	begin();
	AGENT(a, AGENT_FILL, .len = 8 * PAGE, .key = 4);
	pattern(want, 8 * PAGE, 4);
	good = agent_region(a, 16 * PAGE, PAGE, F_WRITE);
	cookie = agent_region(a, 2 * PAGE + 100, PAGE, F_WRITE); /* pages 2 and 3 */
	/* remote address of the page's first byte: -100 */
	base = 100;
	fails(0xdeadbeef, 0, 64, "a key that nobody gave");
	works(good, "after a bogus key");
	fails(0, 0, 64, "cookie 0");
	works(good, "after cookie 0");
	fails(cookie, 2 * PAGE - base, 1, "the byte behind the last page");
	fails(cookie, 2 * PAGE - base - 8, 9, "one byte more than the pages have");
	fails(cookie, 0, 64 * PAGE, "much more than there is");
	fails(cookie, 1ull << 33, 64, "an address far behind");
	fails(cookie, 0 - base - 40, 64, "an address that wraps into the first page");
	fails(cookie, 0 - base - 8, 8, "an address before the first page");
	works(good, "after addresses out of range");
	expect_bytes(agent_memory(a, 0, 8 * PAGE), want, 8 * PAGE, "the owner's memory, after writes that failed");
	word = AGENT(a, AGENT_FREE, .cookie = cookie, .flags = F_INVALIDATE);
	expect(word, 0, "FREE_MR");
	fails(cookie, 0, 64, "a freed key");
	works(good, "after a freed key");
	expect_bytes(agent_memory(a, 0, 8 * PAGE), want, 8 * PAGE, "the owner's memory, after a freed key");
	end();
}

/* Whole pages are the region: what is inside the touched pages works, though it was not named. */
static void whole_pages(void)
{
	static const long at[] = {-100, 0, 8 * PAGE / 4 - 164, 64};
	uint64_t cookie;
	unsigned i;

	begin();
	/* without READWRITE, writable all the same */
	cookie = agent_region(a, 2 * PAGE + 100, PAGE, 0);
	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		struct op op = simple(cookie, F_WRITE | F_NOTIFY);

		op.remote_addr = (uint64_t)at[i];
		expect(send_op(&op), 0, "sendmsg");
		expect_status(b, op.token, ST_SUCCESS, "a write at %ld from the cookie's address, inside its pages",
			      at[i]);
		expect(agent_recv(a), 0, "its message");
		expect_bytes(agent_memory(a, (uint64_t)(2 * PAGE + 100 + at[i]), 64), p, 64, "what was written at %ld",
			     at[i]);
	}
	end();
}

static int add_one(uint64_t cookie, uint64_t remote, void *old, uint64_t with_token)
{
	struct atomic72 args = {.cookie = cookie,
				.local_addr = (uintptr_t)old,
				.remote_addr = remote,
				.u = {1},
				.flags = F_NOTIFY | F_SILENT,
				.token = with_token};
	struct out o;

	out_begin(&o, &a->name[0], NULL, 0);
	out_cmsg(&o, CMSG_FADD, &args, sizeof(args));
	return out_send(&o, b->fd, 0);
}

/* Good ones and bad ones mixed without waiting: each bad one costs itself. */
static void mixed(void)
{
	enum { COUNT = 200 };
	uint64_t cookie, first = token + 1;
	unsigned i;

	begin();
	cookie = agent_region(a, 0, COUNT * 64, F_WRITE);
	AGENT(a, AGENT_FILL, .len = COUNT * 64, .key = 1);
	pattern(p, COUNT * 64, 2);
	for (i = 0; i < COUNT; i++) {
		struct vec v = {(uintptr_t)p + i * 64, 64};
		struct op op = {.cookie = i % 7 == 3 ? 0x12345678 : cookie,
				.remote_addr = i * 64,
				.flags = F_WRITE | F_NOTIFY,
				.token = ++token,
				.local = &v,
				.nr_local = 1,
				.payload = &i,
				.len = 4};

		expect(send_op(&op), 4, "operation %u", i);
	}
	for (i = 0; i < COUNT; i++)
		expect_status(b, first + i, i % 7 == 3 ? ST_REMOTE_ERROR : ST_SUCCESS,
			      "operation %u of %u, every seventh is bad", i, COUNT);
	for (i = 0; i < COUNT; i++) {
		if (i % 7 == 3)
			continue;
		expect(AGENT(a, AGENT_RECV, .off = i * 64, .len = 64), 4, "message %u", i);
		expect(*(unsigned *)(void *)a->board->body, i, "which message comes (those of bad operations do not)");
		expect_bytes(a->board->area + i * 64, p + i * 64, 64, "write %u", i);
	}
	end();
}

/*
 * The memory that a read or an atomic was to fill is gone when the answer comes: no fault of the
 * other side's, so another status says so.  What they did there is done, and all else goes on.
 */
static void own_memory(void)
{
	unsigned char *mine;
	uint64_t cookie;
	struct vec v;
	struct op op;

	if (!agent_can_stop()) {
		skip("the other side must stand still meanwhile");
		return;
	}
	begin();
	mine = pages(PAGE);
	works(agent_region(a, PAGE, PAGE, F_WRITE), "before");
	AGENT(a, AGENT_FILL, .len = PAGE, .key = 9);
	cookie = agent_region(a, 0, PAGE, F_WRITE); /* no device knows it */
	v = (struct vec){(uintptr_t)mine, 64};
	op = (struct op){.cookie = cookie, .flags = F_NOTIFY | F_SILENT, .token = ++token, .local = &v, .nr_local = 1};
	agent_stop(a);
	expect(send_op(&op), 0, "a read");
	expect(add_one(cookie, 8, mine + 128, ++token), 0, "fetch and add");
	check(mprotect(mine, PAGE, PROT_NONE) == 0, "mprotect: %m");
	agent_go_on(a);
	expect_status(b, token - 1, ST_OTHER, "a read into memory that is gone");
	expect_status(b, token, ST_OTHER, "fetch and add, whose old value has no place any more");
	pattern(p, 64, 9);
	p[8]++;
	expect_bytes(agent_memory(a, 0, 64), p, 64, "the owner's memory");
	munmap(mine - PAGE, 3 * PAGE);
	works(cookie, "after operations whose own memory was gone");
	end();
}

/*
 * The region's process is killed: its key is then unknown, as in the kernel.  What is under way
 * when the connection breaks by that is dropped with it.
 */
static void gone(void)
{
	struct vec v = {0, 64};
	uint64_t cookie;
	unsigned i;
	int status;

	if (!agent_can_stop()) {
		skip("the other side must be killed");
		return;
	}
	begin();
	v.addr = (uintptr_t)p;
	cookie = agent_region(a, 0, PAGE, F_WRITE);
	works(cookie, "before");
	agent_kill(a);
	for (i = 0; i < 6; i++) {
		struct sockaddr_in to = name_of(address(1), AGENT_PORT);
		struct op op = {.cookie = cookie, .flags = F_NOTIFY | (i % 2 ? F_WRITE : 0), .token = ++token, .local = &v, .nr_local = 1};

		expect(op_send(b->fd, &to, &op), 0, "sendmsg %u", i);
		status = box_status(b, op.token);
		check(status == ST_REMOTE_ERROR || (i == 0 && status == ST_DROPPED), "operation %u: status %d", i, status);
	}
	box_empty(b, "at the end");
	close(b->fd);
	box_free(b);
}

/* ---- what sendmsg refuses ---- */

static int raw(const struct rdma_args *args, size_t len, int second, const void *data, size_t second_len)
{
	struct out o;

	out_begin(&o, &a->name[0], "x", 1);
	out_cmsg(&o, CMSG_ARGS, args, len);
	if (second)
		out_cmsg(&o, second, data, second_len);
	return out_send(&o, b->fd, 0);
}

static void refused(void)
{
	static struct vec v[1025];
	uint64_t cookie, mine;
	struct rdma_args g;
	struct get_mr map;
	unsigned char *ro;
	int fd;

	begin();
	cookie = agent_region(a, 0, MIB, F_WRITE);
	expect(get_mr(b->fd, p, 100, F_WRITE, &mine), 0, "GET_MR");
	map = (struct get_mr){{(uintptr_t)p, 100}, 0, 0};
	ro = pages(PAGE);
	check(mprotect(ro, PAGE, PROT_READ) == 0, "mprotect: %m");
	g = (struct rdma_args){cookie, {0, 64}, (uintptr_t)v, 1, F_WRITE | F_NOTIFY, 1};
#define REFUSED(want, vaddr, vbytes, what, ...)                                                                        \
	do {                                                                                                           \
		struct rdma_args x = g;                                                                                \
		v[0] = (struct vec){(uintptr_t)(vaddr), vbytes};                                                       \
		__VA_ARGS__;                                                                                           \
		expect(raw(&x, sizeof(x), 0, NULL, 0), want, "%s", what);                                              \
	} while (0)
	REFUSED(-EINVAL, p, 64, "no local vector", x.nr_local = 0);
	REFUSED(-EMSGSIZE, p, 64, "1025 local vectors", x.nr_local = 1025);
	REFUSED(-EFAULT, p, 64, "an unreadable vector", x.local_vec = 16);
	REFUSED(-EINVAL, p, 0, "an empty element", x.flags |= 0);
	REFUSED(-EINVAL, ~0ull - 10, 64, "an element that wraps", x.flags |= 0);
	REFUSED(-EINVAL, p, 65, "more local than remote bytes", x.flags |= 0);
	REFUSED(-EINVAL, p, 64, "0 remote bytes", x.remote.bytes = 0);
	REFUSED(-EMSGSIZE, p, 64, "1 MiB + 1 remote bytes", x.remote.bytes = MIB + 1);
	REFUSED(-EFAULT, p + AREA, 64, "a write from no memory", x.flags |= 0);
	REFUSED(-EFAULT, p + AREA - 32, 64, "a write from memory that ends", x.flags |= 0);
	REFUSED(-EFAULT, ro, 64, "a read into read-only memory", x.flags &= ~(uint64_t)F_WRITE);
#undef REFUSED
	v[0] = (struct vec){(uintptr_t)p, 64};
	expect(raw(&g, 48, 0, NULL, 0), -EINVAL, "RDMA_ARGS of 48 bytes");
	expect(raw(&g, sizeof(g), CMSG_ARGS, &g, sizeof(g)), -EINVAL, "two RDMA_ARGS");
	expect(raw(&g, sizeof(g), CMSG_DEST, &mine, sizeof(mine)), -EINVAL, "RDMA_ARGS with RDMA_DEST");
	expect(raw(&g, sizeof(g), CMSG_MAP, &map, sizeof(map)), -EINVAL, "RDMA_ARGS with RDMA_MAP");
	expect(raw(&g, sizeof(g), CMSG_STATUS, &mine, sizeof(mine)), -EINVAL, "RDMA_ARGS with RDMA_STATUS");
	fd = rds_socket(SOCK_SEQPACKET);
	expect(op_send(fd, &a->name[0], &(struct op){.cookie = cookie, .local = v, .nr_local = 1}), -ENOTCONN,
	       "unbound");
	close(fd);
	box_empty(b, "after refused operations");
	expect(AGENT(a, AGENT_QUIET), 0, "messages of refused operations");
	works(cookie, "after what was refused");
	end();
}

/*
 * Longer arguments than there are: what is too much says nothing, and makes no pointer of a token.
 */
static void longer(void)
{
	static const size_t beyond[] = {1, 7, 9, 16, 24, 100};
	struct vec v = {0, 64};
	unsigned char body[256] = {0};
	uint64_t cookie, word;
	struct rdma_args g;
	struct out o;
	unsigned i;

	begin();
	v.addr = (uintptr_t)p;
	cookie = agent_region(a, 0, PAGE, F_WRITE);
	for (i = 0; i < 2 * sizeof(beyond) / sizeof(beyond[0]); i++) {
		word = 0x1234;
		g = (struct rdma_args){cookie, {0, 64}, (uintptr_t)&v, 1, F_WRITE | F_NOTIFY,
				       i % 2 ? (uintptr_t)&word : 16};
		memcpy(body, &g, sizeof(g));
		out_begin(&o, &a->name[0], "x", 1);
		out_cmsg(&o, CMSG_ARGS, body, sizeof(g) + beyond[i / 2]);
		expect(out_send(&o, b->fd, 0), 1, "RDMA_ARGS of 56 + %zu bytes", beyond[i / 2]);
		expect_status(b, g.token, ST_SUCCESS, "RDMA_ARGS of 56 + %zu bytes", beyond[i / 2]);
		expect(word, 0x1234, "what a token looks like the address of");
		comes("x", "RDMA_ARGS that are too long");
	}
	end();
}

/*
 * What must be taken: read-only memory to write from, less local than remote bytes, 1024 vectors.
 */
static void taken(void)
{
	static struct vec v[1024];
	struct rdma_args g;
	unsigned char *ro = pages(PAGE);
	uint64_t cookie;
	unsigned i;

	begin();
	check(mprotect(ro, PAGE, PROT_READ) == 0, "mprotect: %m");
	cookie = agent_region(a, 0, MIB, F_WRITE);
	g = (struct rdma_args){cookie, {0, 5000}, (uintptr_t)v, 1024, F_WRITE | F_NOTIFY, 1};
	for (i = 0; i < 1024; i++)
		v[i] = (struct vec){(uintptr_t)ro + i, 3};
	expect(raw(&g, sizeof(g), 0, NULL, 0), 1, "1024 vectors of read-only memory, less than the remote bytes");
	expect_status(b, 1, ST_SUCCESS, "1024 vectors");
	comes("x", "1024 vectors");
	works(cookie, "after 1024 vectors");
	end();
}

static const struct test_case cases[] = {
	{"bad-keys", bad_keys},	    {"whole-pages", whole_pages}, {"mixed", mixed},
	{"own-memory", own_memory}, {"refused", refused},	  {"taken", taken},
	{"longer", longer},	    {"gone", gone},
};

int main(int argc, char **argv)
{
	return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
