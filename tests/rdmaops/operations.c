/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * operations.c [-l] [CASE...] - RDMA writes and reads that succeed: every byte, the message of the
 * operation, order, cookies that come with messages.  Operations that fail are in failures.c,
 * notifications in notices.c.
 *
 * The owner's memory is private to it and compared through copies, with guard bytes around the part
 * that may change.  -l: the owner is a thread of this process.
 */
#include <errno.h>
#include <stdlib.h>

#include "pair.h"

#define GUARD 64
#define AT (4 * PAGE) /* where the sizes are tried in the owner's area */
#define VECS_MAX 1024

/* ---- every size ---- */

struct shape {
	size_t size;
	unsigned near, far, vecs; /* addresses modulo 8 at both ends; vectors */
};

/* The end of this side's memory, where the vectors lie. */
#define TAIL(s) ((s)->size + PAGE)
static unsigned char *tail(const struct shape *s)
{
	return p + AREA - TAIL(s);
}

/*
 * Cuts size into vectors of different lengths, in memory in reverse order with gaps.  Returns how
 * many there are.
 */
static unsigned cut(const struct shape *s, struct vec *v)
{
	unsigned n = s->size < s->vecs ? (unsigned)s->size : s->vecs, i;
	unsigned char *at = p + AREA - GUARD - 8;
	size_t left = s->size, len;

	at -= ((uintptr_t)at - s->near) % 8;
	for (i = 0; i < n; i++) {
		len = left / (n - i);
		if (i + 1 < n && len > 1)
			len = 1 + mix(i) % (2 * len - 1) % (left - (n - i - 1));
		at -= len + (i ? i % 3 : 0);
		if (!i)
			at -= ((uintptr_t)at - s->near) % 8;
		v[i] = (struct vec){(uintptr_t)at, len};
		left -= len;
	}
	check(vec_bytes(v, n) == s->size && at >= tail(s) + GUARD, "the vectors of the test");
	return n;
}

static void gather(const struct vec *v, unsigned n, unsigned char *to)
{
	for (; n--; to += v->bytes, v++)
		memcpy(to, (void *)(uintptr_t)v->addr, v->bytes);
}

static void scatter(const struct vec *v, unsigned n, const unsigned char *from)
{
	for (; n--; from += v->bytes, v++)
		memcpy((void *)(uintptr_t)v->addr, from, v->bytes);
}

/* One write: the message that comes finds the data there, and nothing around it is touched. */
static void one_write(const struct shape *s, uint64_t cookie)
{
	static unsigned char want[MIB + 2 * GUARD + 16];
	struct vec v[VECS_MAX];
	uint64_t key = ++token, off = AT + s->far - GUARD;
	struct op op = {.cookie = cookie,
			.remote_addr = s->far,
			.flags = F_WRITE | F_NOTIFY,
			.token = token,
			.local = v,
			.payload = "immediate",
			.len = 9};

	op.nr_local = cut(s, v);
	AGENT(a, AGENT_FILL, .off = off, .len = s->size + 2 * GUARD, .key = key ^ 1);
	pattern(want, s->size + 2 * GUARD, key ^ 1);
	pattern(tail(s), TAIL(s), key);
	gather(v, op.nr_local, want + GUARD);
	expect(op_send(b->fd, &a->name[0], &op), 9, "sendmsg of a write of %zu", s->size);
	expect(AGENT(a, AGENT_RECV, .off = off, .len = s->size + 2 * GUARD), 9, "the immediate message");
	expect_bytes(a->board->body, "immediate", 9, "the immediate message");
	expect_bytes(a->board->area + off, want, s->size + 2 * GUARD,
		     "a write of %zu bytes, addresses %u and %u modulo 8, %u vectors, when its message is there (%u "
		     "guard bytes)",
		     s->size, s->near, s->far, op.nr_local, GUARD);
	expect_status(b, op.token, ST_SUCCESS, "a write of %zu bytes", s->size);
}

static void one_read(const struct shape *s, uint64_t cookie)
{
	static unsigned char want[MIB + PAGE], data[MIB];
	struct vec v[VECS_MAX];
	uint64_t key = ++token;
	struct op op = {.cookie = cookie, .remote_addr = s->far, .flags = F_NOTIFY, .token = token, .local = v};

	op.nr_local = cut(s, v);
	AGENT(a, AGENT_FILL, .off = AT + s->far, .len = s->size, .key = key);
	pattern(data, s->size, key);
	pattern(tail(s), TAIL(s), key ^ 7);
	scatter(v, op.nr_local, data);
	memcpy(want, tail(s), TAIL(s)); /* what it must become */
	pattern(tail(s), TAIL(s), key ^ 7);
	expect(op_send(b->fd, &a->name[0], &op), 0, "sendmsg of a read of %zu", s->size);
	expect_status(b, op.token, ST_SUCCESS, "a read of %zu bytes", s->size);
	expect_bytes(tail(s), want, TAIL(s),
		     "a read of %zu bytes, addresses %u and %u modulo 8, %u vectors, and all around it", s->size,
		     s->near, s->far, op.nr_local);
	expect(agent_recv(a), 0, "the read's empty message");
	if (s->size <= 65536)
		expect_bytes(agent_memory(a, AT + s->far, s->size), data, s->size, "the memory that was read");
}

static void all_shapes(void (*one)(const struct shape *s, uint64_t cookie))
{
	static const size_t sizes[] = {1, 7, 4095, 4096, 4097, 65536, MIB - 8, MIB};
	static const unsigned vecs[] = {1, 2, 9, 512};
	uint64_t cookie;
	unsigned i, j, k;

	begin();
	cookie = agent_region(a, AT, MIB + 8, F_WRITE);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (j = 0; j < sizeof(vecs) / sizeof(vecs[0]); j++)
			for (k = 0; k < 64; k++) {
				struct shape s = {sizes[i], k % 8, k / 8, vecs[j]};

				/* all pairs of alignments only where that is quick */
				if ((sizes[i] > 65536 || one == one_read) && k % 9)
					continue;
				if (sizes[i] > 5000 && k % 9 && vecs[j] != 9)
					continue;
				one(&s, cookie);
			}
	end();
}

static void write_sizes(void)
{
	all_shapes(one_write);
}

static void read_sizes(void)
{
	all_shapes(one_read);
}

/* ---- the message ---- */

static void silent(void)
{
	unsigned i;
	uint64_t cookie;
	struct op op;

	begin();
	cookie = agent_region(a, 0, PAGE, F_WRITE);
	for (i = 0; i < 20; i++) {
		op = simple(cookie, (i % 2 ? F_WRITE : 0) | F_NOTIFY | F_SILENT);
		expect(send_op(&op), 0, "sendmsg of a silent operation");
		expect_status(b, op.token, ST_SUCCESS, "a silent %s", i % 2 ? "write" : "read");
	}
	plain("after");
	comes("after", "silent operations have no message");
	op = simple(cookie, F_WRITE | F_NOTIFY | F_SILENT);
	op.payload = "said";
	op.len = 4;
	expect(send_op(&op), 4, "sendmsg of a silent operation with payload");
	comes("said", "SILENT with a payload does have its message");
	expect_bytes(agent_memory(a, 0, 64), p, 64, "the silent write");
	expect_status(b, op.token, ST_SUCCESS, "SILENT with a payload");
	end();
}

static void empty_message(void)
{
	struct op op;
	uint64_t cookie;

	begin();
	cookie = agent_region(a, 0, PAGE, F_WRITE);
	op = simple(cookie, F_WRITE | F_NOTIFY);
	expect(send_op(&op), 0, "sendmsg of a write without payload");
	expect(AGENT(a, AGENT_RECV, .len = 64), 0, "a write without payload has an empty message");
	check(a->last.from.sin_port == htons(INIT_PORT) && a->last.from.sin_addr.s_addr == address(0),
	      "the empty message has its sender's name, came port %u", ntohs(a->last.from.sin_port));
	check(a->last.cookie == 0, "RDMA_ARGS brings no RDMA_DEST, came %llx", (unsigned long long)a->last.cookie);
	expect_bytes(a->board->area, p, 64, "the write, when its message is there");
	expect_status(b, op.token, ST_SUCCESS, "a write without payload");
	end();
}

static void large_message(void)
{
	unsigned char *body = malloc(BODY_MAX), *want = malloc(BODY_MAX);
	uint64_t cookie;
	unsigned i;

	begin();
	check(body && want, "memory");
	cookie = agent_region(a, 0, PAGE, F_WRITE);
	for (i = 0; i < 8; i++) {
		struct op op = simple(cookie, F_WRITE | F_NOTIFY);

		op.payload = body;
		op.len = BODY_MAX - i * 1001;
		pattern(body, op.len, i);
		memcpy(want, body, op.len);
		expect(send_op(&op), op.len, "sendmsg");
		pattern(body, op.len, 99); /* the payload was copied */
		expect(AGENT(a, AGENT_RECV, .len = 64), op.len, "a long immediate message");
		expect_bytes(a->board->body, want, op.len, "a long immediate message");
		expect_bytes(a->board->area, p, 64, "the write before a long message");
		expect_status(b, op.token, ST_SUCCESS, "a write with a long message");
	}
	free(body);
	free(want);
	end();
}

/*
 * A read with FENCE: when its message is there the read is done; the owner changes the memory at
 * once.
 */
static void fence(void)
{
	unsigned char *want = malloc(MIB);
	struct vec v;
	uint64_t cookie;
	unsigned i;

	begin();
	check(want, "memory");
	cookie = agent_region(a, 0, MIB, F_WRITE);
	for (i = 0; i < 24; i++) {
		struct op op = {.cookie = cookie,
				.flags = F_FENCE | F_NOTIFY,
				.token = ++token,
				.local = &v,
				.nr_local = 1,
				.payload = "done",
				.len = 4};
		size_t len = i % 3 ? 65536u >> i % 3 : MIB;

		v = (struct vec){(uintptr_t)p, len};
		AGENT(a, AGENT_FILL, .len = len, .key = i);
		pattern(want, len, i);
		memset(p, 0, len);
		expect(send_op(&op), 4, "sendmsg");
		expect(AGENT(a, AGENT_RECV_FILL, .len = len, .key = i + 1000), 4, "a read's message");
		expect_status(b, op.token, ST_SUCCESS, "a read with FENCE");
		expect_bytes(p, want, len, "a read of %zu with FENCE, whose memory is changed when its message comes",
			     len);
	}
	free(want);
	end();
}

/*
 * Writes, reads and plain messages in one stream: the messages come in order, each after its data.
 */
static void order(void)
{
	enum { COUNT = 300 };
	static struct vec v[COUNT];
	uint64_t cookie, first;
	unsigned i;

	begin();
	cookie = agent_region(a, 0, COUNT * 128, F_WRITE);
	AGENT(a, AGENT_FILL, .len = COUNT * 128, .key = 3);
	pattern(p, AREA, 77);
	first = token + 1;
	for (i = 0; i < COUNT; i++) {
		struct op op = {.cookie = cookie,
				.remote_addr = i * 128,
				.flags = (i % 3 ? F_WRITE : 0) | F_NOTIFY,
				.token = ++token,
				.local = &v[i],
				.nr_local = 1,
				.payload = &i,
				.len = sizeof(i)};
		struct out o;

		v[i] = (struct vec){(uintptr_t)p + i * 128, 100};
		if (i % 5 == 4) {
			out_begin(&o, &a->name[0], &i, sizeof(i));
			expect(out_send(&o, b->fd, 0), 4, "plain message %u", i);
		} else {
			expect(send_op(&op), 4, "operation %u", i);
		}
		while (box_pump(b))
			;
	}
	for (i = 0; i < COUNT; i++) {
		expect(AGENT(a, AGENT_RECV, .off = i * 128, .len = 128), 4, "message %u", i);
		expect(*(unsigned *)(void *)a->board->body, i, "which message comes as number %u", i);
		if (i % 5 != 4 && i % 3) {
			expect_bytes(a->board->area + i * 128, p + i * 128, 100, "write %u when its message is there",
				     i);
		}
	}
	for (i = 0; i < COUNT; i++)
		if (i % 5 != 4)
			expect_status(b, first + i, ST_SUCCESS, "operation %u", i);
	end();
}

/* Many at once, both kinds, without waiting: each is notified once. */
static void many(void)
{
	enum { COUNT = 1000 };
	static struct vec v[COUNT];
	uint64_t cookie, first = token + 1;
	unsigned i;

	begin();
	cookie = agent_region(a, 0, MIB, F_WRITE);
	AGENT(a, AGENT_FILL, .len = MIB, .key = 8);
	for (i = 0; i < COUNT; i++) {
		struct op op = {.cookie = cookie,
				.remote_addr = i * 1000,
				.flags = (i % 2 ? F_WRITE : 0) | F_NOTIFY | F_SILENT,
				.token = ++token,
				.local = &v[i],
				.nr_local = 1};

		v[i] = (struct vec){(uintptr_t)p + i * 1000, 1000};
		pattern(p + i * 1000, 1000, i);
		expect(send_op(&op), 0, "operation %u", i);
	}
	for (i = 0; i < COUNT; i++)
		expect_status(b, first + i, ST_SUCCESS, "operation %u of %u", i, COUNT);
	expect_bytes(agent_memory(a, 0, COUNT * 1000), p, COUNT * 1000,
		     "reads and writes of one memory: both sides are alike");
	end();
}

/* ---- cookies that come with messages ---- */

static void use_once(void)
{
	uint64_t flags, cookie;
	unsigned i;

	begin();
	for (i = 0; i < 16; i++) {
		struct op op, silent_op;

		flags = F_WRITE | F_USE_ONCE | (i & 1 ? F_INVALIDATE : 0);
		if (i & 2) { /* by RDMA_MAP */
			struct sockaddr_in me = name_of(address(0), INIT_PORT);

			expect(AGENT(a, AGENT_SEND, .cmsg = CMSG_MAP, .count = PAGE, .flags = flags, .len = 4,
				     .to = me),
			       4, "a message with RDMA_MAP");
			cookie = a->last.cookie;
			free(box_letter(b).body);
		} else {
			cookie = agent_region(a, 0, PAGE, flags);
		}
		silent_op = simple(cookie, F_NOTIFY | F_SILENT);
		expect(send_op(&silent_op), 0, "sendmsg");
		expect_status(b, silent_op.token, ST_SUCCESS, "a silent read, which ends no use-once region");
		op = simple(cookie, F_NOTIFY | (i & 4 ? F_WRITE : 0));
		op.payload = "used";
		op.len = i & 8 ? 4 : 0;
		expect(send_op(&op), op.len, "sendmsg");
		expect_status(b, op.token, ST_SUCCESS, "the one use");
		expect(agent_recv(a), op.len, "the message of the one use");
		expect(AGENT(a, AGENT_FREE, .cookie = cookie), -EINVAL, "FREE_MR of a use-once region that was used");
		expect(AGENT(a, AGENT_FREE, .cookie = 0), 0, "flush");
		op = simple(cookie, F_NOTIFY | F_WRITE);
		expect(send_op(&op), 0, "sendmsg");
		expect_status(b, op.token, ST_REMOTE_ERROR, "a second use of a use-once region");
	}
	end();
}

static void dest(void)
{
	struct sockaddr_in me = name_of(address(0), INIT_PORT);
	uint64_t c = 0, was;
	struct letter l;
	unsigned i;

	begin();
	for (i = 0; i < 8; i++) {
		struct agent_cmd cmd = {.what = AGENT_SEND, .to = me, .len = i * 10, .key = i, .off = i * 100 + 7};

		if (i % 2) {
			cmd.cookie = c = agent_region(a, cmd.off, 1000, F_WRITE);
			cmd.cmsg = CMSG_DEST;
		} else {
			cmd.cmsg = CMSG_MAP;
			cmd.count = 1000;
			cmd.flags = F_WRITE;
		}
		expect(agent_do(a, &cmd), cmd.len, "a message with %s", i % 2 ? "RDMA_DEST" : "RDMA_MAP");
		if (i % 2 == 0)
			c = a->last.cookie;
		l = box_letter(b);
		expect(l.len, cmd.len, "its length");
		check(l.cookie == c && c, "the cookie that came: expected %llx, came %llx", (unsigned long long)c,
		      (unsigned long long)l.cookie);
		expect(c >> 32, (cmd.off % PAGE), "the cookie's high half");
		free(l.body);
		works(c, "the cookie from a message");
		expect_bytes(agent_memory(a, cmd.off, 64), p, 64, "what was written with the cookie from a message");
		expect(AGENT(a, AGENT_FREE, .cookie = c), 0, "FREE_MR");
	}
	was = c;
	expect(AGENT(a, AGENT_SEND, .to = me, .cmsg = CMSG_DEST, .cookie = was), -EINVAL,
	       "RDMA_DEST of a freed cookie");
	expect(AGENT(a, AGENT_SEND, .to = me, .cmsg = CMSG_DEST, .cookie = 12345), -EINVAL, "RDMA_DEST of no cookie");
	expect(AGENT(a, AGENT_UNMAP, .off = 64 * PAGE, .len = PAGE), 0, "munmap");
	expect(AGENT(a, AGENT_SEND, .to = me, .cmsg = CMSG_MAP, .off = 64 * PAGE, .count = 10), -EFAULT,
	       "RDMA_MAP of no memory");
	expect(AGENT(a, AGENT_SEND, .to = me, .cmsg = CMSG_MAP, .count = 0), -EINVAL, "RDMA_MAP of 0 bytes");
	expect(AGENT(a, AGENT_SEND, .to = me, .cmsg = CMSG_MAP, .count = 258 * PAGE), -EMSGSIZE,
	       "RDMA_MAP of 258 pages");
	box_empty(b, "after refused messages");
	end();
}

static const struct test_case cases[] = {
	{"write-sizes", write_sizes},
	{"read-sizes", read_sizes},
	{"silent", silent},
	{"empty-message", empty_message},
	{"large-message", large_message},
	{"fence", fence},
	{"order", order},
	{"many", many},
	{"use-once", use_once},
	{"dest", dest},
};

int main(int argc, char **argv)
{
	return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
