/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * RDMA reads from the peer's memory: lengths, alignment, pieces, offsets; when the data is there (a
 * notification says so), what a fence promises to the peer.
 */
#include "rdmaconf.h"

static int fd;
static struct name to;
static struct rds_iovec vec[512];

static long read_op(uint64_t cookie, uint64_t offset, unsigned n, size_t local, size_t len, uint64_t flags)
{
	struct op op = {
		.cookie = cookie,
		.offset = offset,
		.bytes = len,
		.local = vec,
		.nr_local = n,
		.token = len,
		.flags = NOTIFY_ME | flags,
	};

	blank();
	spread(vec, n, local, len);
	return rdma(fd, &to, &op);
}

static void one_shape(const char *name, const struct shape *s, uint64_t cookie, unsigned round)
{
	peer_pattern(s->region, s->len, round);
	take(fd);
	check(name, "4", "%s", rc(read_op(cookie, 0, s->n, s->local, s->len, 0)));
	check(text("%s-notification", name), NULL, "%s", take(fd));
	check(text("%s-memory", name), "same", "%s", compare_spread(vec, s->n, round));
	check(text("%s-message", name), NULL, "%s", peer_take());
	check(text("%s-source", name), "same", "%s", peer_compare(s->region, s->len, round));
}

static void one_place(const char *name, size_t offset, uint64_t cookie, unsigned round)
{
	peer_pattern(REGION_START + offset, PLACE_LEN, round);
	check(name, "4", "%s", rc(read_op(cookie, offset, 1, 3, PLACE_LEN, 0)));
	check(text("%s-notification", name), NULL, "%s", take(fd));
	check(text("%s-message", name), NULL, "%s", peer_take());
	check(text("%s-memory", name), "same", "%s", compare_spread(vec, 1, round));
}

/* As soon as the peer has the message of a fenced read, it may change the memory. */
static void fence(uint64_t cookie)
{
	static const size_t len[] = {1, 4096, 65536, MIB};
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(len); i++) {
		peer_blank();
		peer_pattern(0, len[i], 70 + i);
		check(text("fence-%zu", len[i]), "4", "%s", rc(read_op(cookie, 0, 9 - 8 * !i, 5, len[i], FENCE)));
		check(text("fence-%zu-message", len[i]), NULL, "%s", peer_take());
		peer_blank();
		check(text("fence-%zu-notification", len[i]), NULL, "%s", take(fd));
		check(text("fence-%zu-memory", len[i]), "same", "%s", compare_spread(vec, 9 - 8 * !i, 70 + i));
	}
}

/* Less than the remote vector's bytes; more of them. */
static void shorter(uint64_t cookie)
{
	struct op op = {.cookie = cookie, .bytes = 5000, .local = vec, .nr_local = 2, .flags = NOTIFY_ME, .token = 5};

	peer_blank();
	peer_pattern(0, 5000, 9);
	blank();
	spread(vec, 2, 0, 3000);
	check("shorter", "4", "%s", rc(rdma(fd, &to, &op)));
	check("shorter-notification", NULL, "%s", take(fd));
	check("shorter-message", NULL, "%s", peer_take());
	check("shorter-memory", "same", "%s", compare_spread(vec, 2, 9));
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
		.flags = NOTIFY_ME | FENCE,
		.message = "",
		.token = 6,
	};

	peer_blank();
	peer_pattern(0, 64, 1);
	blank();
	spread(vec, 1, 0, 64);
	check("no-payload", "0", "%s", rc(rdma(fd, &to, &op)));
	check("no-payload-message", NULL, "%s", peer_take());
	check("no-payload-notification", NULL, "%s", take(fd));
	check("no-payload-memory", "same", "%s", compare_spread(vec, 1, 1));
	/* Not a message of its own: the notification of what follows shows that it was done. */
	blank();
	op.flags = SILENT;
	check("silent", "0", "%s", rc(rdma(fd, &to, &op)));
	spread(vec, 1, 10000, 64);
	op.flags = NOTIFY_ME;
	op.message = "behind";
	check("silent-behind-it", "6", "%s", rc(rdma(fd, &to, &op)));
	check("silent-behind-it-notification", NULL, "%s", take(fd));
	check("silent-message", NULL, "%s", peer_take());
	check("silent-behind-it-memory", "0", "%d", !!memcmp(arena, arena + 10000, 64));
	check("silent-no-other", "-1 EAGAIN", "%s", peer_take_now());
}

/* Many at once; then a write and a read of the same place, in this order. */
static void order(uint64_t cookie)
{
	struct op op = {.cookie = cookie, .bytes = 5000, .local = vec, .nr_local = 1, .flags = NOTIFY_ME};
	unsigned i, seen = 0;
	const char *said;
	char name[8];

	peer_blank();
	peer_pattern(0, 65536, 30);
	blank();
	for (i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "op-%u", i);
		op.message = name;
		op.offset = i * 5000;
		op.token = i;
		spread(vec, 1, 7 + i * 5000, 5000);
		check(text("many-%u", i), "4", "%s", rc(rdma(fd, &to, &op)));
	}
	/*
	 * Kernel RDS may exchange two that end at the same time, by a completion and by an
	 * acknowledgement.
	 */
	for (i = 0; i < 10; i++) {
		said = strstr(take_with(fd, 0, 32, 0, TEST_COMES), " status ");
		if (said && !strcmp(said + 9, ":SUCCESS") && said[8] >= '0' && said[8] <= '9')
			seen |= 1 << (said[8] - '0');
	}
	check("many-notifications", "3ff", "%x", seen);
	for (i = 0; i < 10; i++)
		check(text("many-message-%u", i), NULL, "%s", peer_take());
	check("many-memory", "same", "%s", compare(7, 50000, 30));

	peer_blank();
	blank();
	pattern(arena, 3000, 50);
	vec[0] = (struct rds_iovec){(uintptr_t)arena, 3000};
	op = (struct op){.cookie = cookie, .bytes = 3000, .local = vec, .nr_local = 1, .flags = READWRITE};
	check("written", "4", "%s", rc(rdma(fd, &to, &op)));
	vec[0].addr += PAGE;
	op.flags = NOTIFY_ME | FENCE;
	check("and-read", "4", "%s", rc(rdma(fd, &to, &op)));
	check("and-read-notification", NULL, "%s", take(fd));
	check("and-read-memory", "0", "%d", !!memcmp(arena, arena + PAGE, 3000));
	check("written-message", NULL, "%s", peer_take());
	check("and-read-message", NULL, "%s", peer_take());
}

static void use_once(void)
{
	uint64_t once = peer_map(8192, 100, USE_ONCE);

	peer_blank();
	peer_pattern(8192, 100, 8);
	check("once-key", NULL, "%s", take(fd));
	check("once", "4", "%s", rc(read_op(once, 0, 2, 0, 100, FENCE)));
	check("once-message", NULL, "%s", peer_take());
	check("once-free", "-1 EINVAL", "%s", peer_free(once, 0));
	check("once-notification", NULL, "%s", take(fd));
	check("once-memory", "same", "%s", compare_spread(vec, 2, 8));
}

int main(int argc, char **argv)
{
	uint64_t cookie;

	fd = rdma_begin_pair(argc, argv, &to);
	each_shape("of", "to", READWRITE, one_shape);
	each_place(fd, one_place);
	cookie = peer_map(0, MIB, 0);
	take(fd);
	fence(cookie);
	shorter(cookie);
	messages(cookie);
	order(cookie);
	check("free", "0", "%s", peer_free(cookie, INVALIDATE));
	use_once();
	return rdma_end_pair(fd);
}
