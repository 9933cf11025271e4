// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * RDMA reads from the peer's memory: lengths, alignment, pieces, offsets; when the data is there (a notification says
 * so), what a fence promises to the peer.
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

static void sizes(void)
{
	static const struct {
		size_t len, region, local;
		unsigned n;
	} table[] = {
		{1, 0, 0, 1},		{1, 4095, 4095, 1},	 {7, 4093, 1, 1},     {8, 16, 32, 2},
		{100, 3, 4090, 9},	{4095, 1, 2, 1},	 {4096, 0, 0, 1},     {4096, 1, 4095, 2},
		{4097, 0, 3, 1},	{8192, 4096, 8192, 9},	 {10000, 77, 5, 9},   {65536, 0, 0, 1},
		{65537, 4095, 4001, 9}, {131072, 2048, 17, 512}, {512, 1, 1, 512},    {MIB - 1, 1, 1, 2},
		{MIB, 0, 0, 1},		{MIB, 4095, 1, 1},	 {MIB, 1, 4095, 512},
	};
	uint64_t cookie;
	const char *name;
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(table); i++) {
		name = text("%zu-of-%zu-to-%zu-in-%u", table[i].len, table[i].region, table[i].local, table[i].n);
		peer_blank();
		peer_pattern(table[i].region, table[i].len, i);
		cookie = peer_map(table[i].region, table[i].len, READWRITE);
		take(fd);
		check(name, "4", "%s", rc(read_op(cookie, 0, table[i].n, table[i].local, table[i].len, 0)));
		check(text("%s-notification", name), NULL, "%s", take(fd));
		check(text("%s-memory", name), "same", "%s", compare_spread(vec, table[i].n, i));
		check(text("%s-message", name), NULL, "%s", peer_take());
		check(text("%s-source", name), "same", "%s", peer_compare(table[i].region, table[i].len, i));
		check(text("%s-free", name), "0", "%s", peer_free(cookie, 0));
	}
}

static void offsets(void)
{
	static const size_t at[] = {1, 4095, 4096, 5000, 65536, 99990};
	uint64_t cookie;
	unsigned i;

	cookie = peer_map(100, 100000, 0);
	take(fd);
	for (i = 0; i < ARRAY_SIZE(at); i++) {
		peer_blank();
		peer_pattern(100 + at[i], 10, i);
		check(text("offset-%zu", at[i]), "4", "%s", rc(read_op(cookie, at[i], 1, 3, 10, 0)));
		check(text("offset-%zu-notification", at[i]), NULL, "%s", take(fd));
		check(text("offset-%zu-message", at[i]), NULL, "%s", peer_take());
		check(text("offset-%zu-memory", at[i]), "same", "%s", compare_spread(vec, 1, i));
	}
	check("offsets-free", "0", "%s", peer_free(cookie, 0));
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
	/* Kernel RDS may exchange two that end at the same time, by a completion and by an acknowledgement. */
	for (i = 0; i < 10; i++) {
		said = strstr(take_with(fd, 0, 32, 0, 5000), " status ");
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

	rdma_begin(argc, argv);
	peer_start();
	fd = rds_bound_to(PARENT_PORT);
	to = peer_name();
	sizes();
	offsets();
	cookie = peer_map(0, MIB, 0);
	take(fd);
	fence(cookie);
	shorter(cookie);
	messages(cookie);
	order(cookie);
	check("free", "0", "%s", peer_free(cookie, INVALIDATE));
	use_once();
	check("nothing-more-there", "-1 EAGAIN", "%s", peer_take_now());
	check("nothing-more-here", "-1 EAGAIN", "%s", take_now(fd));
	peer_stop();
	close(fd);
	return conf_end();
}
