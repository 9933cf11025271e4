/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * conn_reset.c - RDS_CONN_RESET of Oracle's kernels: the program breaks connections of this
 * process.
 *
 * After that the same happens as after any break (conn/attempt.c): the connections come up again
 * by themselves, and nothing is lost, doubled or reordered.  The helper does it after this call has
 * returned, as those kernels do, so no caller waits for it.  It is no error there if no connection
 * matches: the program need not have any connection (rds-stress --reset).
 */
#include "engine/calls/sockopt.h"

#include <linux/capability.h>
#include <sys/syscall.h>

#include "engine/conn/conn.h"
#include "engine/abi/revisions.h"
#include "engine/abi/foreign_memory.h"
#include "engine/sys/uaccess.h"

struct reset {
	struct in6_addr src, dst;
	bool all;
	uint8_t tos;
};

static void reset_conn(struct rds_conn *conn, void *arg)
{
	const struct reset *r = arg;

	if (conn->kind != RDS_CONN_PEER || !rds_ip_equal(&conn->id.laddr, &r->src))
		return;
	if (!r->all && (!rds_ip_equal(&conn->id.faddr, &r->dst) || conn->id.tos != r->tos))
		return;
	rds_lock(&conn->tx);
	/*
	 * without an endpoint there is nothing to break: it is on its way up, or will be with the
	 * next message
	 */
	if (conn->ep) {
		atomic_store(&conn->reset, true);
		rds_timer_set(&conn->retry, os_now_ns());
	}
	rds_unlock(&conn->tx);
}

/*
 * CAP_NET_ADMIN of the calling thread, or of the main thread of the process that makes this call.
 * The kernel is asked each time: a program can give the capability up.
 */
static bool reset_is_permitted(void)
{
	struct __user_cap_header_struct hdr = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (rds_caller) {
		/* a process of another pid namespace; 0 would mean ourselves */
		if (rds_caller->pid <= 0)
			return false;
		hdr.pid = rds_caller->pid;
	}
	if (os_syscall(SYS_capget, (long)&hdr, (long)data, 0, 0, 0, 0))
		return false;
	return data[CAP_TO_INDEX(CAP_NET_ADMIN)].effective & CAP_TO_MASK(CAP_NET_ADMIN);
}

static struct in6_addr reset_map_v4(struct in_addr a)
{
	struct in6_addr ip = {0};

	ip.s6_addr32[2] = htonl(0xffff);
	ip.s6_addr32[3] = a.s_addr;
	return ip;
}

static int reset_copy_args(void *args, const void *val, size_t len)
{
	if (!reset_is_permitted())
		return -EACCES;
	if (rds_user_readable(val, len) < 0)
		return -EFAULT;
	memcpy(args, val, len);
	return 0;
}

int rds_call_conn_reset(const void *val)
{
	struct rds_reset args;
	struct reset r;
	int err = reset_copy_args(&args, val, sizeof(args));

	if (err)
		return err;
	r = (struct reset){reset_map_v4(args.src), reset_map_v4(args.dst), !args.dst.s_addr, args.tos};
	rds_conn_each(reset_conn, &r);
	return 0;
}

int rds_call_conn_reset6(const void *val)
{
	struct rds6_reset args;
	struct reset r;
	int err = reset_copy_args(&args, val, sizeof(args));

	if (err)
		return err;
	r = (struct reset){args.src, args.dst, IN6_IS_ADDR_UNSPECIFIED(&args.dst), args.tos};
	rds_conn_each(reset_conn, &r);
	return 0;
}
