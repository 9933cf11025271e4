/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory regions: what RDS_CMSG_RDMA_MAP, RDS_GET_MR and RDS_GET_MR_FOR_DEST refuse and in which
 * order, what is in a cookie, RDS_CMSG_RDMA_DEST, RDS_FREE_MR.
 */
#include "rdmaconf.h"

static int fd, other;
static struct name to;
static uint64_t stored;

static long map_args(const void *addr, uint64_t len, uint64_t cookie_addr)
{
	struct rds_get_mr_args args = {.vec = {(uintptr_t)addr, len}, .cookie_addr = cookie_addr};

	return send_control(fd, &to, RDS_CMSG_RDMA_MAP, &args, sizeof(args));
}

static long get_mr(int s, const void *addr, uint64_t len, void *cookie_addr)
{
	struct rds_get_mr_args args = {.vec = {(uintptr_t)addr, len}, .cookie_addr = (uintptr_t)cookie_addr};

	return setsockopt(s, SOL_RDS, RDS_GET_MR, &args, sizeof(args));
}

static long get_mr_for_dest(int s, const void *addr, uint64_t len, void *cookie_addr)
{
	struct rds_get_mr_for_dest_args args = {
		.vec = {(uintptr_t)addr, len},
		.cookie_addr = (uintptr_t)cookie_addr,
	};

	memcpy(&args.dest_addr, &to.ss, to.len);
	return setsockopt(s, SOL_RDS, RDS_GET_MR_FOR_DEST, &args, sizeof(args));
}

/* What the peer gets next, and whether this is the cookie in it. */
static const char *arrives(uint64_t cookie)
{
	const char *said = peer_take();

	return text("%s %s", said, last_cookie == cookie ? "the cookie" : "another cookie");
}

/* Pieces of memory that no region can be made of. */
static const struct piece {
	const char *name, *want;
	int base; /* of addr: 0, the memory, the hole, the read-only page */
	uint64_t addr, len;
} pieces[] = {
	{"len-0", "-1 EINVAL", 1, 0, 0},
	{"len-0-at-0", "-1 EINVAL", 0, 0, 0},
	{"wraps", "-1 EINVAL", 0, UINT64_MAX - 10, 20},
	{"ends-at-0", "-1 EINVAL", 0, UINT64_MAX - 10, 11},
	{"wraps-when-aligned", "-1 EINVAL", 0, UINT64_MAX - 10, 5},
	{"len-max", "-1 EINVAL", 1, 0, UINT64_MAX},
	{"len-4-gib", "-1 EINVAL", 1, 0, 1UL << 32},
	{"len-4-gib-less-1", "-1 EMSGSIZE", 1, 0, (1UL << 32) - 1},
	{"258-pages", "-1 EMSGSIZE", 1, 0, 257 * PAGE + 1},
	{"258-pages-unaligned", "-1 EMSGSIZE", 1, 4095, MIB + 2},
	{"258-pages-unmapped", "-1 EMSGSIZE", 2, 0, 257 * PAGE + 1},
	{"unmapped", "-1 EFAULT", 2, 0, 1},
	{"half-unmapped", "-1 EFAULT", 2, -10UL, 20},
	{"page-0", "-1 EFAULT", 0, 0, PAGE},
	{"not-an-address", "-1 EFAULT", 0, 1UL << 63, PAGE},
	{"read-only", "-1 EFAULT", 3, 0, PAGE},
};

static const void *place(const struct piece *p)
{
	const uint64_t bases[] = {0, (uintptr_t)arena, (uintptr_t)hole, (uintptr_t)read_only};

	return (const void *)(uintptr_t)(bases[p->base] + p->addr);
}

static void map_refused(const char *when)
{
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(pieces); i++)
		check(text("map-%s-%s", pieces[i].name, when), pieces[i].want, "%s",
		      rc(map_args(place(&pieces[i]), pieces[i].len, (uintptr_t)&stored)));
	check(text("map-nothing-stored-%s", when), "77", "%llu", (unsigned long long)stored);
}

/* The first one starts the connect; once it is there, the same works. */
static void first_map(void)
{
	struct rds_get_mr_args args = {.vec = {(uintptr_t)arena, 100}, .cookie_addr = (uintptr_t)&stored};
	struct controls c = {.len = 0};
	struct name away = name_far(4000);
	struct iovec iov = {(void *)"x", 1};
	struct msghdr msg = {.msg_name = &away.ss, .msg_namelen = away.len, .msg_iov = &iov, .msg_iovlen = 1};
	long first, r;

	add(&c, RDS_CMSG_RDMA_MAP, &args, sizeof(args));
	first = send_controls(fd, &to, &c, "x", 1);
	check("map-not-connected", "-1 EAGAIN", "%s", rc(first));
	/* The socket blocks, this call does not. */
	msg.msg_control = c.bytes;
	msg.msg_controllen = c.len;
	check("map-to-nobody-blocking", "-1 EAGAIN", "%s", rc(sendmsg(fd, &msg, 0)));
	check("map-not-connected-stored", "77", "%llu", (unsigned long long)stored);
	if (first >= 0) /* who needs no connection for it has sent it */
		peer_take();
	r = map(fd, &to, arena, 100, 0, &stored);
	check("map-starts-connect", "3", "%s", rc(r));
	if (r != 3)
		conf_die("no region");
	check("map-starts-connect-message", NULL, "%s", arrives(stored));
	check("map-starts-connect-no-other", "-1 EAGAIN", "%s", peer_take_now());
	check("map-starts-connect-free", "0", "%s", rc(free_mr(fd, stored, 0)));
}

static void lengths_of_args(void)
{
	struct rds_get_mr_args args[2] = {{.vec = {(uintptr_t)arena, 100}}};
	unsigned len;

	for (len = 7; len < sizeof(args[0]); len += 8)
		check(text("map-short-%u", len), "-1 EINVAL", "%s",
		      rc(send_control(fd, &to, RDS_CMSG_RDMA_MAP, args, len)));
	check("map-long", "1", "%s", rc(send_control(fd, &to, RDS_CMSG_RDMA_MAP, args, sizeof(args))));
	check("map-long-message", NULL, "%s", peer_take());
}

static void cookies(void)
{
	static const struct {
		size_t at, len;
	} table[] = {
		{0, 1},		{1, 1},	  {4095, 1}, {4095, 2},	  {4096, 4096},
		{8200, 100000}, {0, MIB}, {1, MIB},  {4095, MIB}, {0, MIB + PAGE},
	};
	const char *name;
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(table); i++) {
		name = text("cookie-%zu-at-%zu", table[i].len, table[i].at);
		stored = 77;
		check(name, "3", "%s", rc(map(fd, &to, arena + table[i].at, table[i].len, 0, &stored)));
		check(text("%s-offset", name), text("%zu", table[i].at % PAGE), "%llu",
		      (unsigned long long)stored >> 32);
		check(text("%s-message", name), NULL, "%s", arrives(stored));
		check(text("%s-free", name), "0", "%s", rc(free_mr(fd, stored, 0)));
		check(text("%s-free-again", name), "-1 EINVAL", "%s", rc(free_mr(fd, stored, 0)));
	}
}

/* Where the cookie goes. */
static void cookie_addr(void)
{
	check("store-nowhere", "1", "%s", rc(map_args(arena, 10, 0)));
	check("store-nowhere-message", NULL, "%s", peer_take());
	check("store-nowhere-free", "0", "%s", rc(free_mr(fd, last_cookie, 0)));
	check("store-hole", "-1 EFAULT", "%s", rc(map_args(arena, 10, (uintptr_t)hole)));
	check("store-read-only", "-1 EFAULT", "%s", rc(map_args(arena, 10, (uintptr_t)read_only)));
	check("store-half-in-hole", "-1 EFAULT", "%s", rc(map_args(arena, 10, (uintptr_t)hole - 4)));
	check("store-bad-and-unmapped", "-1 EFAULT", "%s", rc(map_args(hole, 10, (uintptr_t)hole)));
	check("store-bad-and-long", "-1 EMSGSIZE", "%s", rc(map_args(arena, 2 * MIB, (uintptr_t)hole)));
	check("store-unaligned", "1", "%s", rc(map_args(arena, 10, (uintptr_t)arena + 4099)));
	memcpy(&stored, arena + 4099, 8);
	check("store-unaligned-message", NULL, "%s", arrives(stored));
	check("store-unaligned-free", "0", "%s", rc(free_mr(fd, stored, 0)));
	check("store-no-message", "-1 EAGAIN", "%s", peer_take_now());
}

static void mixed(const char *name, int first, const void *a, size_t a_len, int second, const void *b, size_t b_len)
{
	check(name, "-1 EINVAL", "%s", rc(send_two(fd, &to, first, a, a_len, second, b, b_len)));
}

/* Two of them in one message. */
static void mixtures(uint64_t cookie)
{
	struct rds_get_mr_args args = {.vec = {(uintptr_t)arena, 10}, .cookie_addr = (uintptr_t)&stored};

	stored = 77;
	mixed("map-twice", RDS_CMSG_RDMA_MAP, &args, sizeof(args), RDS_CMSG_RDMA_MAP, &args, sizeof(args));
	check("map-twice-stored", "1", "%d", stored != 77);
	check("map-twice-free", "-1 EINVAL", "%s", rc(free_mr(fd, stored, 0)));
	stored = 77;
	mixed("map-and-dest", RDS_CMSG_RDMA_MAP, &args, sizeof(args), RDS_CMSG_RDMA_DEST, &cookie, sizeof(cookie));
	check("map-and-dest-stored", "1", "%d", stored != 77);
	check("map-and-dest-free", "-1 EINVAL", "%s", rc(free_mr(fd, stored, 0)));
	stored = 77;
	mixed("dest-and-map", RDS_CMSG_RDMA_DEST, &cookie, sizeof(cookie), RDS_CMSG_RDMA_MAP, &args, sizeof(args));
	check("dest-and-map-stored", "77", "%llu", (unsigned long long)stored);
	mixed("dest-twice", RDS_CMSG_RDMA_DEST, &cookie, sizeof(cookie), RDS_CMSG_RDMA_DEST, &cookie, sizeof(cookie));
	mixed("map-and-type-99", RDS_CMSG_RDMA_MAP, &args, sizeof(args), 99, &cookie, sizeof(cookie));
}

static long dest(int s, uint64_t cookie, size_t len)
{
	return send_control(s, &to, RDS_CMSG_RDMA_DEST, &cookie, len);
}

static void dests(void)
{
	uint64_t cookie = 0, foreign = 0;

	check("dest-map", "3", "%s", rc(map(fd, &to, arena + 33, 100, 0, &cookie)));
	check("dest-map-message", NULL, "%s", peer_take());
	check("dest-map-other", "3", "%s", rc(map(other, &to, arena, 100, 0, &foreign)));
	check("dest-map-other-message", NULL, "%s", peer_take());
	check("dest-other-key", "1", "%d", cookie != foreign);
	check("dest", "1", "%s", rc(dest(fd, cookie, 8)));
	check("dest-message", NULL, "%s", arrives(cookie));
	check("dest-again", "1", "%s", rc(dest(fd, cookie, 8)));
	check("dest-again-message", NULL, "%s", arrives(cookie));
	/* The offset is not looked at, it is passed on. */
	check("dest-other-offset", "1", "%s", rc(dest(fd, (cookie & UINT32_MAX) | 55UL << 32, 8)));
	check("dest-other-offset-message", NULL, "%s", peer_take());
	check("dest-0", "-1 EINVAL", "%s", rc(dest(fd, 0, 8)));
	check("dest-unknown", "-1 EINVAL", "%s", rc(dest(fd, cookie ^ 0x80000000, 8)));
	check("dest-of-other-socket", "-1 EINVAL", "%s", rc(dest(fd, foreign, 8)));
	check("dest-short", "-1 EINVAL", "%s", rc(dest(fd, cookie, 7)));
	check("dest-empty", "-1 EINVAL", "%s", rc(dest(fd, cookie, 0)));
	mixtures(cookie);
	check("dest-free-of-other-socket", "-1 EINVAL", "%s", rc(free_mr(fd, foreign, 0)));
	check("dest-free-by-other-offset", "0", "%s", rc(free_mr(fd, cookie & UINT32_MAX, 0)));
	check("dest-freed", "-1 EINVAL", "%s", rc(dest(fd, cookie, 8)));
	check("dest-other-still-there", "1", "%s", rc(dest(other, foreign, 8)));
	check("dest-other-still-there-message", NULL, "%s", peer_take());
	check("dest-other-free", "0", "%s", rc(free_mr(other, foreign, INVALIDATE)));
	check("dest-no-message", "-1 EAGAIN", "%s", peer_take_now());
}

static void frees(void)
{
	static const uint64_t flags[] = {0, INVALIDATE, READWRITE, USE_ONCE, 0x100, UINT64_MAX};
	uint64_t cookie[ARRAY_SIZE(flags)] = {0};
	struct rds_free_mr_args args[2] = {{0, 0}};
	int unbound = rds_socket();
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		map(fd, &to, arena + i * PAGE, PAGE, 0, &cookie[i]);
		check(text("free-map-%u", i), NULL, "%s", peer_take());
	}
	check("free-unknown", "-1 EINVAL", "%s", rc(free_mr(fd, cookie[0] ^ 0x80000000, 0)));
	check("free-unknown-invalidate", "-1 EINVAL", "%s", rc(free_mr(fd, cookie[0] ^ 0x80000000, INVALIDATE)));
	check("free-key-0-with-offset", "-1 EINVAL", "%s", rc(free_mr(fd, 5UL << 32, 0)));
	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		check(text("free-0-flags-%llx", (unsigned long long)flags[i]), "0", "%s", rc(free_mr(fd, 0, flags[i])));
		check(text("free-flags-%llx", (unsigned long long)flags[i]), "0", "%s",
		      rc(free_mr(fd, cookie[i], flags[i])));
		check(text("free-again-flags-%llx", (unsigned long long)flags[i]), "-1 EINVAL", "%s",
		      rc(free_mr(fd, cookie[i], flags[i])));
	}
	check("free-unbound", "-1 EINVAL", "%s", rc(free_mr(unbound, 0, 0)));
	check("free-unbound-unknown", "-1 EINVAL", "%s", rc(free_mr(unbound, 5, 0)));
	check("free-len-15", "-1 EINVAL", "%s", rc(setsockopt(fd, SOL_RDS, RDS_FREE_MR, args, 15)));
	check("free-len-17", "-1 EINVAL", "%s", rc(setsockopt(fd, SOL_RDS, RDS_FREE_MR, args, 17)));
	check("free-bad-pointer", "-1 EFAULT", "%s", rc(setsockopt(fd, SOL_RDS, RDS_FREE_MR, hole, 16)));
	close(unbound);
}

/*
 * The options refuse the same as the control message. What is right in itself is refused as well by
 * kernels that can register memory through a connection only.
 */
static void options(void)
{
	int unbound = rds_socket();
	uint64_t cookie = 0;
	unsigned i;
	long r;

	stored = 77;
	for (i = 0; i < ARRAY_SIZE(pieces); i++) {
		check(text("get-mr-%s", pieces[i].name), pieces[i].want, "%s",
		      rc(get_mr(fd, place(&pieces[i]), pieces[i].len, &stored)));
		check(text("get-mr-for-dest-%s", pieces[i].name), pieces[i].want, "%s",
		      rc(get_mr_for_dest(fd, place(&pieces[i]), pieces[i].len, &stored)));
	}
	check("get-mr-nothing-stored", "77", "%llu", (unsigned long long)stored);
	check("get-mr-unbound", "-1 ENOTCONN", "%s", rc(get_mr(unbound, arena, 10, &stored)));
	check("get-mr-unbound-len-0", "-1 ENOTCONN", "%s", rc(get_mr(unbound, arena, 0, &stored)));
	check("get-mr-for-dest-unbound", "-1 ENOTCONN", "%s", rc(get_mr_for_dest(unbound, arena, 10, &stored)));
	check("get-mr", NULL, "%s", rc(get_mr(fd, arena + 9, 10, &cookie)));
	check("get-mr-offset", NULL, "%llu", (unsigned long long)cookie >> 32);
	r = dest(fd, cookie, 8);
	check("get-mr-dest", NULL, "%s", rc(r));
	check("get-mr-dest-message", NULL, "%s", r == 1 ? arrives(cookie) : "none");
	check("get-mr-free", NULL, "%s", rc(free_mr(fd, cookie ? cookie : 5, 0)));
	cookie = 0;
	check("get-mr-for-dest", NULL, "%s", rc(get_mr_for_dest(fd, arena + 10, 10, &cookie)));
	check("get-mr-for-dest-offset", NULL, "%llu", (unsigned long long)cookie >> 32);
	check("get-mr-for-dest-free", NULL, "%s", rc(free_mr(fd, cookie ? cookie : 5, INVALIDATE)));
	check("get-mr-bad-cookie-addr", NULL, "%s", rc(get_mr(fd, arena, 10, hole)));
	check("get-mr-no-cookie-addr", NULL, "%s", rc(get_mr(fd, arena, 10, NULL)));
	close(unbound);
}

int main(int argc, char **argv)
{
	rdma_begin(argc, argv);
	peer_start();
	/* A type of service of its own, so that there is no connection yet. */
	fd = rds_bound_tos(PARENT_PORT, 11);
	other = rds_bound_tos(OTHER_PORT, 11);
	to = peer_name();
	stored = 77;
	map_refused("not-connected");
	first_map();
	stored = 77;
	map_refused("connected");
	lengths_of_args();
	cookies();
	cookie_addr();
	dests();
	frees();
	options();
	peer_stop();
	close(other);
	close(fd);
	return conf_end();
}
