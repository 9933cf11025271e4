/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * RDMA writes into the peer's memory: lengths, alignment, pieces, offsets; what the peer sees
 * together with the message behind it; regions for one use.
 */
#include "rdmaconf.h"

static int fd;
static struct name to;
static struct rds_iovec vec[512];

/*
 * One write: len bytes in n pieces from "local" of this memory on, into the peer's region at
 * "offset".
 */
static long write_op(uint64_t cookie, uint64_t offset, unsigned n, size_t local, size_t len, unsigned seed)
{
	struct op op = {
		.cookie = cookie,
		.offset = offset,
		.bytes = len,
		.local = vec,
		.nr_local = n,
		.flags = READWRITE,
	};

	blank();
	spread(vec, n, local, len);
	pattern_spread(vec, n, seed);
	return rdma(fd, &to, &op);
}

static void one_shape(const char *name, const struct shape *s, uint64_t cookie, unsigned round)
{
	check(text("%s-key", name), text("%zu", s->region % PAGE), "%llu", (unsigned long long)cookie >> 32);
	take(fd);
	check(name, "4", "%s", rc(write_op(cookie, 0, s->n, s->local, s->len, round)));
	check(text("%s-message", name), NULL, "%s", peer_take());
	check(text("%s-memory", name), "same", "%s", peer_compare(s->region, s->len, round));
	check(text("%s-source", name), "same", "%s", compare_spread(vec, s->n, round));
}

/* Offset 0 of an operation is the region's first byte, wherever in its page that is. */
static void one_place(const char *name, size_t offset, uint64_t cookie, unsigned round)
{
	check(name, "4", "%s", rc(write_op(cookie, offset, 1, 3, PLACE_LEN, round)));
	check(text("%s-message", name), NULL, "%s", peer_take());
	check(text("%s-memory", name), "same", "%s", peer_compare(REGION_START + offset, PLACE_LEN, round));
}

/* The cookie that the peer got when it mapped is the one in the message. */
static void the_cookie(void)
{
	static const size_t at[] = {0, 1, 4095, 4096, 12345};
	uint64_t cookie;
	const char *said;
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(at); i++) {
		cookie = peer_map(at[i], 10, 0);
		said = take(fd);
		check(text("cookie-%zu", at[i]), NULL, "%s equal %d", said, cookie == last_cookie);
		check(text("cookie-%zu-free", at[i]), "0", "%s", peer_free(cookie, 0));
	}
}

/* Less than the remote vector's bytes: as much as there is locally. */
static void shorter(uint64_t cookie)
{
	struct op op = {.cookie = cookie, .bytes = 5000, .local = vec, .nr_local = 2, .flags = READWRITE};

	peer_blank();
	blank();
	spread(vec, 2, 0, 3000);
	pattern_spread(vec, 2, 9);
	check("shorter", "4", "%s", rc(rdma(fd, &to, &op)));
	check("shorter-message", NULL, "%s", peer_take());
	check("shorter-memory", "same", "%s", peer_compare(0, 3000, 9));
	op.bytes = 2999;
	check("longer", "-1 EINVAL", "%s", rc(rdma(fd, &to, &op)));
}

static void messages(uint64_t cookie)
{
	struct op op = {
		.cookie = cookie,
		.bytes = 64,
		.local = vec,
		.nr_local = 1,
		.flags = READWRITE,
		.message = "",
	};

	peer_blank();
	blank();
	spread(vec, 1, 0, 64);
	pattern_spread(vec, 1, 1);
	check("no-payload", "0", "%s", rc(rdma(fd, &to, &op)));
	check("no-payload-message", NULL, "%s", peer_take());
	check("no-payload-memory", "same", "%s", peer_compare(0, 64, 1));
	op.flags |= FENCE;
	check("fenced", "0", "%s", rc(rdma(fd, &to, &op)));
	check("fenced-message", NULL, "%s", peer_take());
	/* Not a message of its own; what follows shows that it was done. */
	op.flags = READWRITE | SILENT;
	pattern_spread(vec, 1, 2);
	check("silent", "0", "%s", rc(rdma(fd, &to, &op)));
	check("silent-behind-it", "6", "%s", rc(sendto(fd, "behind", 6, 0, &to.sa, to.len)));
	check("silent-message", NULL, "%s", peer_take());
	check("silent-memory", "same", "%s", peer_compare(0, 64, 2));
	check("silent-no-other", "-1 EAGAIN", "%s", peer_take_now());
	op.message = "loud";
	pattern_spread(vec, 1, 3);
	check("silent-with-payload", "4", "%s", rc(rdma(fd, &to, &op)));
	check("silent-with-payload-message", NULL, "%s", peer_take());
	check("silent-with-payload-memory", "same", "%s", peer_compare(0, 64, 3));
}

/*
 * Plain messages and operations arrive as they were sent; of two writes to one place the second one
 * stays.
 */
static void order(uint64_t cookie)
{
	static const char *const names[] = {"op-0", "op-1", "op-2", "op-3", "op-4", "op-5"};
	struct op op = {.cookie = cookie, .bytes = 30000, .local = vec, .nr_local = 1, .flags = READWRITE};
	unsigned i;

	peer_blank();
	blank();
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		spread(vec, 1, i * 40000, 30000);
		pattern_spread(vec, 1, i + 20);
		op.message = names[i];
		check(text("order-%u", i), "4", "%s", rc(rdma(fd, &to, &op)));
		check(text("order-plain-%u", i), "5", "%s", rc(sendto(fd, "plain", 5, 0, &to.sa, to.len)));
	}
	check("order-arrived", "yes", "%s", peer_queued(2 * ARRAY_SIZE(names)));
	for (i = 0; i < 2 * ARRAY_SIZE(names); i++)
		check(text("order-message-%u", i), NULL, "%s", peer_take());
	check("order-memory", "same", "%s", peer_compare(0, 30000, 25));
}

/* The message of an operation, long enough for several frames. */
static void long_message(uint64_t cookie)
{
	static char message[20001];
	struct op op = {
		.cookie = cookie,
		.bytes = 20000,
		.local = vec,
		.nr_local = 9,
		.flags = READWRITE,
		.message = message,
	};

	peer_blank();
	blank();
	memset(message, 'm', 20000);
	spread(vec, 9, 1, 20000);
	pattern_spread(vec, 9, 40);
	check("long-message", "20000", "%s", rc(rdma(fd, &to, &op)));
	check("long-message-arrives", NULL, "%s", peer_take());
	check("long-message-memory", "same", "%s", peer_compare(0, 20000, 40));
}

/*
 * A region for one use is gone as soon as the message can be read, a silent operation does not end
 * it.
 */
static void use_once(void)
{
	struct op op = {.bytes = 10, .local = vec, .nr_local = 1, .flags = READWRITE | SILENT, .message = ""};
	uint64_t kept = peer_map(0, 100, 0), once = peer_map(8192, 100, USE_ONCE);
	uint64_t flushed = peer_map(16384, 100, USE_ONCE | INVALIDATE);

	peer_blank();
	check("once-three-keys", NULL, "%s, %s, %s", take(fd), take(fd), take(fd));
	check("once-kept-write", "4", "%s", rc(write_op(kept, 0, 1, 0, 10, 1)));
	check("once-kept-message", NULL, "%s", peer_take());
	check("once-kept-free", "0", "%s", peer_free(kept, 0));
	check("once-kept-free-again", "-1 EINVAL", "%s", peer_free(kept, 0));
	op.cookie = once;
	check("once-silent", "0", "%s", rc(rdma(fd, &to, &op)));
	check("once-plain", "1", "%s", rc(sendto(fd, "p", 1, 0, &to.sa, to.len)));
	check("once-plain-message", NULL, "%s", peer_take());
	peer_blank();
	check("once-write", "4", "%s", rc(write_op(once, 0, 1, 0, 10, 2)));
	check("once-message", NULL, "%s", peer_take());
	check("once-memory", "same", "%s", peer_compare(8192, 10, 2));
	check("once-free", "-1 EINVAL", "%s", peer_free(once, 0));
	peer_blank();
	check("once-invalidate-write", "4", "%s", rc(write_op(flushed, 0, 1, 0, 10, 3)));
	check("once-invalidate-message", NULL, "%s", peer_take());
	check("once-invalidate-memory", "same", "%s", peer_compare(16384, 10, 3));
	check("once-invalidate-free", "-1 EINVAL", "%s", peer_free(flushed, 0));
}

int main(int argc, char **argv)
{
	uint64_t cookie;

	fd = rdma_begin_pair(argc, argv, &to);
	each_shape("to", "from", 0, one_shape);
	each_place(fd, one_place);
	the_cookie();
	cookie = peer_map(0, 65536, 0);
	take(fd);
	shorter(cookie);
	messages(cookie);
	order(cookie);
	long_message(cookie);
	check("free", "0", "%s", peer_free(cookie, INVALIDATE));
	use_once();
	return rdma_end_pair(fd);
}
