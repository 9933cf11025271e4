/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * RDS control messages in a send on transports without RDMA, and the RDMA socket options there. On
 * an RDMA device what is wrong in itself only: operations that start there end the connection with
 * a bogus key, or (atomics, on rxe) for ever.
 */
#include "rdsconf.h"

static int sender, target;

static long send_with(int type, const void *data, size_t len)
{
	char control[CMSG_SPACE(256)] __attribute__((aligned(8)));
	struct iovec iov = { (void *)"x", 1 };
	struct name to = name_of(target);
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_name = &to.ss, .msg_namelen = to.len,
		.msg_control = control, .msg_controllen = CMSG_SPACE(len),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	memset(control, 0, sizeof(control));
	c->cmsg_level = SOL_RDS;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	if (len)
		memcpy(CMSG_DATA(c), data, len);
	return sendmsg(sender, &m, MSG_DONTWAIT);
}

static void unknown_types(void)
{
	static const int types[] = { 0, 4, 5, 10, 11, 13, 14, 99, -1 };
	static const char zero[64];
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(types); i++)
		check(text("type-%d", types[i]), "-1 EINVAL", "%s", rc(send_with(types[i], zero, 8)));
	check("type-4-empty", "-1 EINVAL", "%s", rc(send_with(4, NULL, 0)));
}

static void rdma_args(void)
{
	static char buffer[64];
	struct rds_iovec vec = { (uintptr_t)buffer, sizeof(buffer) };
	struct rds_rdma_args args = {
		.cookie = 5, .remote_vec = { 0, sizeof(buffer) }, .local_vec_addr = (uintptr_t)&vec, .nr_local = 1,
		.flags = 1,
	};

	if (!conf_ib)
		check("args", "-1 EOPNOTSUPP", "%s", rc(send_with(RDS_CMSG_RDMA_ARGS, &args, sizeof(args))));
	check("args-short", "-1 EINVAL", "%s", rc(send_with(RDS_CMSG_RDMA_ARGS, &args, sizeof(args) - 1)));
	check("args-empty", "-1 EINVAL", "%s", rc(send_with(RDS_CMSG_RDMA_ARGS, &args, 0)));
	args.nr_local = 0;
	check("args-no-vector", "-1 EINVAL", "%s", rc(send_with(RDS_CMSG_RDMA_ARGS, &args, sizeof(args))));
	args.nr_local = 1025;
	check("args-vector-1025", "-1 EMSGSIZE", "%s", rc(send_with(RDS_CMSG_RDMA_ARGS, &args, sizeof(args))));
	args.nr_local = 1;
	args.local_vec_addr = 8;
	check("args-bad-vector", "-1 EFAULT", "%s", rc(send_with(RDS_CMSG_RDMA_ARGS, &args, sizeof(args))));
	args.local_vec_addr = (uintptr_t)&vec;
	vec.bytes = 0;
	check("args-empty-element", "-1 EINVAL", "%s", rc(send_with(RDS_CMSG_RDMA_ARGS, &args, sizeof(args))));
	vec.bytes = sizeof(buffer);
	args.remote_vec.bytes = 1048577;
	check("args-remote-above-1-mib", "-1 EMSGSIZE", "%s",
	      rc(send_with(RDS_CMSG_RDMA_ARGS, &args, sizeof(args))));
}

static void others(void)
{
	static char page[4096] __attribute__((aligned(4096)));
	struct rds_get_mr_args map = { .vec = { (uintptr_t)page, sizeof(page) } };
	uint64_t atomic[9] = { 5, (uintptr_t)page };
	uint64_t cookie = 5;
	uint32_t zcookie = 1;

	check("dest-unknown", "-1 EINVAL", "%s", rc(send_with(RDS_CMSG_RDMA_DEST, &cookie, sizeof(cookie))));
	check("dest-short", "-1 EINVAL", "%s", rc(send_with(RDS_CMSG_RDMA_DEST, &cookie, 4)));
	if (!conf_ib)
		check("map", "-1 EOPNOTSUPP", "%s", rc(send_with(RDS_CMSG_RDMA_MAP, &map, sizeof(map))));
	check("map-short", "-1 EINVAL", "%s", rc(send_with(RDS_CMSG_RDMA_MAP, &map, sizeof(map) - 1)));
	if (!conf_ib)
		check("atomic", "-1 EOPNOTSUPP", "%s", rc(send_with(RDS_CMSG_ATOMIC_FADD, atomic, sizeof(atomic))));
	check("atomic-short", "-1 EINVAL", "%s", rc(send_with(RDS_CMSG_ATOMIC_FADD, atomic, 8)));
	check("zcopy-cookie-without-flag", "-1 EINVAL", "%s",
	      rc(send_with(RDS_CMSG_ZCOPY_COOKIE, &zcookie, sizeof(zcookie))));
}

static void options(int fd, const char *state, const char *get_want, const char *free_want)
{
	static char page[4096] __attribute__((aligned(4096)));
	struct rds_get_mr_args get = { .vec = { (uintptr_t)page, sizeof(page) } };
	struct rds_free_mr_args release = { 0, 0 };
	char for_dest[160];

	check(text("get-mr-%s", state), get_want, "%s", rc(setsockopt(fd, SOL_RDS, RDS_GET_MR, &get, sizeof(get))));
	check(text("get-mr-len-31-%s", state), "-1 EINVAL", "%s",
	      rc(setsockopt(fd, SOL_RDS, RDS_GET_MR, &get, sizeof(get) - 1)));
	check(text("get-mr-len-33-%s", state), "-1 EINVAL", "%s",
	      rc(setsockopt(fd, SOL_RDS, RDS_GET_MR, &get, sizeof(get) + 1)));
	check(text("get-mr-bad-pointer-%s", state), "-1 EFAULT", "%s",
	      rc(setsockopt(fd, SOL_RDS, RDS_GET_MR, conf_bad, sizeof(get))));
	memset(for_dest, 0, sizeof(for_dest));
	memcpy(for_dest + 128, &get, sizeof(get));
	check(text("get-mr-for-dest-%s", state), get_want, "%s",
	      rc(setsockopt(fd, SOL_RDS, RDS_GET_MR_FOR_DEST, for_dest, 160)));
	check(text("get-mr-for-dest-len-159-%s", state), "-1 EINVAL", "%s",
	      rc(setsockopt(fd, SOL_RDS, RDS_GET_MR_FOR_DEST, for_dest, 159)));
	check(text("free-mr-cookie-0-%s", state), free_want, "%s",
	      rc(setsockopt(fd, SOL_RDS, RDS_FREE_MR, &release, sizeof(release))));
	release.cookie = 77;
	check(text("free-mr-unknown-%s", state), "-1 EINVAL", "%s",
	      rc(setsockopt(fd, SOL_RDS, RDS_FREE_MR, &release, sizeof(release))));
	check(text("free-mr-len-15-%s", state), "-1 EINVAL", "%s",
	      rc(setsockopt(fd, SOL_RDS, RDS_FREE_MR, &release, 15)));
	check(text("free-mr-bad-pointer-%s", state), "-1 EFAULT", "%s",
	      rc(setsockopt(fd, SOL_RDS, RDS_FREE_MR, conf_bad, sizeof(release))));
}

int main(int argc, char **argv)
{
	int unbound;

	conf_begin(argc, argv);
	sender = rds_bound();
	target = rds_bound();
	unbound = rds_socket();
	unknown_types();
	rdma_args();
	others();
	options(unbound, "unbound", "-1 ENOTCONN", "-1 EINVAL");
	options(sender, "bound", "-1 EOPNOTSUPP", conf_ib ? "0" : "-1 EINVAL");
	check("nothing-arrived", "-1 EAGAIN", "%s", rc(recv(target, unknown_types, 0, MSG_DONTWAIT)));
	return conf_end();
}
