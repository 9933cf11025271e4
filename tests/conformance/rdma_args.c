/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * RDS_CMSG_RDMA_ARGS: what is refused, in which order, and what is allowed although it looks odd.
 * The key is always one that works, so that an operation that should have been refused would show
 * in the peer's memory.
 */
#include "rdmaconf.h"

#include <sys/mman.h>

static int fd;
static struct name to;
static uint64_t cookie;
static char buffer[64];
static struct rds_iovec vec[1025];
static struct rds_rdma_args args;

/* What works: a write of the whole buffer. */
static void reset(void)
{
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(vec); i++)
		vec[i] = (struct rds_iovec){(uintptr_t)buffer, i ? 1 : sizeof(buffer)};
	args = (struct rds_rdma_args){
		.cookie = cookie,
		.remote_vec = {0, sizeof(buffer)},
		.local_vec_addr = (uintptr_t)vec,
		.nr_local = 1,
		.flags = READWRITE,
	};
}

static void refused(const char *name, const char *want)
{
	check(name, want, "%s", rc(send_control(fd, &to, RDS_CMSG_RDMA_ARGS, &args, sizeof(args))));
	reset();
}

/*
 * It is done: the peer gets the message, and the memory (what: one byte of the pattern or the blank
 * one) is checked.
 */
static void allowed(const char *name, size_t len, unsigned seed)
{
	long r;

	pattern(buffer, sizeof(buffer), seed);
	r = send_control(fd, &to, RDS_CMSG_RDMA_ARGS, &args, sizeof(args));
	check(name, "1", "%s", rc(r));
	if (r == 1)
		check(text("%s-arrives", name), NULL, "%s", peer_take());
	check(text("%s-memory", name), "same", "%s", peer_compare(0, len, seed));
	peer_blank();
	reset();
}

static void lengths(void)
{
	char large[100] = {0};
	unsigned len;

	for (len = 0; len < sizeof(args); len += 11)
		check(text("len-%u", len), "-1 EINVAL", "%s",
		      rc(send_control(fd, &to, RDS_CMSG_RDMA_ARGS, &args, len)));
	pattern(buffer, sizeof(buffer), 3);
	memcpy(large, &args, sizeof(args));
	check("len-100", "1", "%s", rc(send_control(fd, &to, RDS_CMSG_RDMA_ARGS, large, sizeof(large))));
	check("len-100-arrives", NULL, "%s", peer_take());
	check("len-100-memory", "same", "%s", peer_compare(0, sizeof(buffer), 3));
	peer_blank();
}

static void headers(void)
{
	struct controls c = {.len = 0};
	struct cmsghdr *header = (struct cmsghdr *)c.bytes;

	add(&c, RDS_CMSG_RDMA_ARGS, &args, sizeof(args));
	header->cmsg_len = 15;
	check("header-short", "-1 EINVAL", "%s", rc(send_controls(fd, &to, &c, "x", 1)));
	header->cmsg_len = c.len + 1;
	check("header-beyond-end", "-1 EINVAL", "%s", rc(send_controls(fd, &to, &c, "x", 1)));
	header->cmsg_len = CMSG_LEN(sizeof(args));
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = 99;
	check("other-level", "1", "%s", rc(send_controls(fd, &to, &c, "x", 1)));
	check("other-level-arrives", NULL, "%s", peer_take());
	check("other-level-memory", "same", "%s", peer_compare(0, 0, 0));
}

static void remote(void)
{
	args.remote_vec.bytes = MIB + 1;
	refused("remote-above-1-mib", "-1 EMSGSIZE");
	args.remote_vec.bytes = UINT64_MAX;
	refused("remote-max", "-1 EMSGSIZE");
	args.remote_vec.bytes = MIB + 1;
	args.nr_local = 0;
	refused("remote-above-1-mib-no-vector", "-1 EMSGSIZE");
	args.remote_vec.bytes = 0;
	refused("remote-0", "-1 EINVAL");
	args.remote_vec.bytes = sizeof(buffer) - 1;
	refused("sum-above-remote", "-1 EINVAL");
	args.nr_local = 2;
	refused("sum-of-two-above-remote", "-1 EINVAL");
	args.remote_vec.bytes = MIB;
	allowed("remote-1-mib", sizeof(buffer), 5);
	args.nr_local = 1;
	vec[0].bytes = 10;
	allowed("sum-below-remote", 10, 6);
}

static void vectors(void)
{
	struct rds_iovec *at_end;

	args.nr_local = 0;
	refused("nr-0", "-1 EINVAL");
	args.nr_local = 0;
	args.local_vec_addr = (uintptr_t)hole;
	refused("nr-0-bad-vector", "-1 EINVAL");
	args.nr_local = 1025;
	refused("nr-1025", "-1 EMSGSIZE");
	args.nr_local = 1025;
	args.local_vec_addr = (uintptr_t)hole;
	refused("nr-1025-bad-vector", "-1 EMSGSIZE");
	args.nr_local = UINT64_MAX;
	refused("nr-max", "-1 EMSGSIZE");
	args.nr_local = 1UL << 32;
	refused("nr-2-to-32", "-1 EMSGSIZE");
	args.local_vec_addr = (uintptr_t)hole;
	refused("vector-unmapped", "-1 EFAULT");
	args.local_vec_addr = 0;
	refused("vector-null", "-1 EFAULT");
	args.local_vec_addr = ~0UL << 63;
	refused("vector-not-an-address", "-1 EFAULT");
	/* The first element can be read, the second lies in the hole. */
	at_end = (struct rds_iovec *)(void *)hole - 1;
	mprotect(read_only, PAGE, PROT_READ | PROT_WRITE);
	*at_end = vec[0];
	mprotect(read_only, PAGE, PROT_READ);
	args.local_vec_addr = (uintptr_t)at_end;
	args.nr_local = 2;
	refused("vector-half-unmapped", "-1 EFAULT");
	args.local_vec_addr = (uintptr_t)at_end;
	allowed("vector-read-only", sizeof(buffer), 7);
}

static void elements(void)
{
	vec[0].bytes = 0;
	refused("element-empty", "-1 EINVAL");
	args.nr_local = 2;
	vec[1].bytes = 0;
	refused("element-empty-second", "-1 EINVAL");
	vec[0].addr = UINT64_MAX - 10;
	refused("element-wraps", "-1 EINVAL");
	vec[0].addr = -64UL;
	refused("element-ends-at-0", "-1 EINVAL");
	vec[0].bytes = 1UL << 32;
	refused("element-4-gib", "-1 EINVAL");
	vec[0].bytes = UINT64_MAX;
	refused("element-max", "-1 EINVAL");
	vec[0].addr = (uintptr_t)hole;
	refused("element-unmapped", "-1 EFAULT");
	vec[0].addr = (uintptr_t)hole - 32;
	refused("element-half-unmapped", "-1 EFAULT");
	vec[0].addr = 0;
	refused("element-null", "-1 EFAULT");
	args.nr_local = 2;
	vec[1].addr = (uintptr_t)hole;
	refused("element-second-unmapped", "-1 EFAULT");
	vec[0].addr = (uintptr_t)hole;
	args.remote_vec.bytes = 1;
	refused("element-unmapped-and-sum", "-1 EFAULT");
	vec[0].addr = (uintptr_t)hole;
	args.nr_local = 2;
	vec[1].bytes = 0;
	refused("element-unmapped-and-one-empty", "-1 EINVAL");
	vec[0].addr = (uintptr_t)read_only;
	args.flags = 0;
	refused("read-into-read-only", "-1 EFAULT");
	args.flags = 0;
	vec[0].addr = (uintptr_t)read_only;
	args.remote_vec.bytes = 1;
	refused("read-into-read-only-and-sum", "-1 EFAULT");
}

static void mixed(const char *name, const char *want, int first, const void *a, size_t a_len, int second, const void *b,
		  size_t b_len)
{
	check(name, want, "%s", rc(send_two(fd, &to, first, a, a_len, second, b, b_len)));
}

static void mixtures(void)
{
	struct rds_get_mr_args map_args = {.vec = {(uintptr_t)arena, PAGE}};
	uint64_t stored = 77, none = 0;

	map_args.cookie_addr = (uintptr_t)&stored;
	mixed("args-twice", "-1 EINVAL", RDS_CMSG_RDMA_ARGS, &args, sizeof(args), RDS_CMSG_RDMA_ARGS, &args,
	      sizeof(args));
	mixed("args-and-dest", "-1 EINVAL", RDS_CMSG_RDMA_ARGS, &args, sizeof(args), RDS_CMSG_RDMA_DEST, &cookie,
	      sizeof(cookie));
	mixed("dest-and-args", "-1 EINVAL", RDS_CMSG_RDMA_DEST, &cookie, sizeof(cookie), RDS_CMSG_RDMA_ARGS, &args,
	      sizeof(args));
	mixed("args-and-dest-0", "-1 EINVAL", RDS_CMSG_RDMA_ARGS, &args, sizeof(args), RDS_CMSG_RDMA_DEST, &none,
	      sizeof(none));
	mixed("args-and-map", "-1 EINVAL", RDS_CMSG_RDMA_ARGS, &args, sizeof(args), RDS_CMSG_RDMA_MAP, &map_args,
	      sizeof(map_args));
	mixed("map-and-args", "-1 EINVAL", RDS_CMSG_RDMA_MAP, &map_args, sizeof(map_args), RDS_CMSG_RDMA_ARGS, &args,
	      sizeof(args));
	check("nothing-stored", "77", "%llu", (unsigned long long)stored);
	mixed("args-and-type-99", "-1 EINVAL", RDS_CMSG_RDMA_ARGS, &args, sizeof(args), 99, &none, sizeof(none));
	mixed("args-and-status", "-1 EINVAL", RDS_CMSG_RDMA_ARGS, &args, sizeof(args), RDS_CMSG_RDMA_STATUS, &none,
	      sizeof(none));
	args.remote_vec.bytes = MIB / 2 + 1;
	mixed("args-twice-above-1-mib", "-1 EMSGSIZE", RDS_CMSG_RDMA_ARGS, &args, sizeof(args), RDS_CMSG_RDMA_ARGS,
	      &args, sizeof(args));
	reset();
	args.nr_local = 0;
	mixed("args-and-dest-no-vector", "-1 EINVAL", RDS_CMSG_RDMA_ARGS, &args, sizeof(args), RDS_CMSG_RDMA_DEST,
	      &cookie, sizeof(cookie));
	args.nr_local = 1025;
	mixed("args-1025-and-dest", "-1 EMSGSIZE", RDS_CMSG_RDMA_ARGS, &args, sizeof(args), RDS_CMSG_RDMA_DEST, &cookie,
	      sizeof(cookie));
	mixed("dest-and-args-1025", "-1 EMSGSIZE", RDS_CMSG_RDMA_DEST, &cookie, sizeof(cookie), RDS_CMSG_RDMA_ARGS,
	      &args, sizeof(args));
	reset();
}

static void odd_but_allowed(void)
{
	struct controls c = {.len = 0};
	unsigned i;

	args.flags |= 0x80;
	allowed("flag-remote-complete", sizeof(buffer), 10);
	args.flags |= 0x100;
	allowed("flag-send-notify-me", sizeof(buffer), 11);
	args.flags |= 0xfffffffffffffe00UL;
	allowed("flags-unknown", sizeof(buffer), 12);
	args.flags |= INVALIDATE | DONTWAIT;
	allowed("flags-of-others", sizeof(buffer), 13);
	vec[0].addr = (uintptr_t)read_only;
	vec[0].bytes = 1;
	c.len = 0;
	add(&c, RDS_CMSG_RDMA_ARGS, &args, sizeof(args));
	check("write-from-read-only", "1", "%s", rc(send_controls(fd, &to, &c, "x", 1)));
	check("write-from-read-only-arrives", NULL, "%s", peer_take());
	check("write-from-read-only-byte", "0", "%d", (int)(peer_word(0) & 0xff));
	peer_blank();
	reset();
	/* 1024 elements of one byte: the whole buffer, sixteen times. */
	for (i = 0; i < 1024; i++)
		vec[i] = (struct rds_iovec){(uintptr_t)arena + i, 1};
	pattern(arena, 1024, 14);
	args.nr_local = 1024;
	args.remote_vec.bytes = 1024;
	allowed("nr-1024", 1024, 14);
	blank();
	check("no-notification", "-1 EAGAIN", "%s", take_now(fd));
}

/* What is wrong with the send itself comes first. */
static void before_them(void)
{
	struct controls c = {.len = 0};
	static char payload[200000];
	struct name nobody = {.len = 0};
	int unbound = rds_socket();

	args.nr_local = 0;
	check("unbound", "-1 ENOTCONN", "%s", rc(send_control(unbound, &to, RDS_CMSG_RDMA_ARGS, &args, sizeof(args))));
	check("no-destination", "-1 ENOTCONN", "%s",
	      rc(send_control(fd, &nobody, RDS_CMSG_RDMA_ARGS, &args, sizeof(args))));
	add(&c, RDS_CMSG_RDMA_ARGS, &args, sizeof(args));
	check("payload-above-sndbuf", "-1 EMSGSIZE", "%s", rc(send_controls(fd, &to, &c, payload, sizeof(payload))));
	c.len = 0;
	add(&c, RDS_CMSG_RDMA_ARGS, &args, 20);
	check("payload-above-sndbuf-short", "-1 EINVAL", "%s",
	      rc(send_controls(fd, &to, &c, payload, sizeof(payload))));
	reset();
	c.len = 0;
	add(&c, RDS_CMSG_RDMA_ARGS, &args, sizeof(args));
	check("payload-bad", "-1 EFAULT", "%s", rc(send_controls(fd, &to, &c, conf_bad, 1)));
	args.nr_local = 0;
	c.len = 0;
	add(&c, RDS_CMSG_RDMA_ARGS, &args, sizeof(args));
	check("payload-bad-no-vector", "-1 EINVAL", "%s", rc(send_controls(fd, &to, &c, conf_bad, 1)));
	reset();
	close(unbound);
}

int main(int argc, char **argv)
{
	fd = rdma_begin_pair(argc, argv, &to);
	cookie = peer_map(0, MIB, 0);
	check("key", "1", "%d", cookie != 0);
	check("key-arrives", NULL, "%s", take(fd));
	reset();
	before_them();
	lengths();
	headers();
	remote();
	vectors();
	elements();
	mixtures();
	odd_but_allowed();
	check("nothing-more", "-1 EAGAIN", "%s", peer_take_now());
	check("free", "0", "%s", peer_free(cookie, 0));
	peer_stop();
	close(fd);
	return conf_end();
}
