/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * sockopt.c - setsockopt and getsockopt at level SOL_RDS (net/rds/af_rds.c), under each of its
 * numbers.
 *
 * The order of checks within each option is the kernel's.  It differs from option to option.  Level
 * SOL_SOCKET is in sockopt_generic.c.  RDS has no other level.
 */
#include "engine/calls/sockopt.h"

#include "engine/calls/info.h"
#include "engine/conn/outgoing.h"
#include "engine/rdma/mr.h"
#include "engine/rdma/rdma.h"
#include "engine/abi/revisions.h"
#include "engine/sys/uaccess.h"
#include "engine/progress/transports.h"

#include <asm/socket.h>

int rds_call_opt_int(const void *val, int len, int *out)
{
	if (len < (int)sizeof(*out))
		return -EINVAL;
	if (rds_user_readable(val, sizeof(*out)) < 0)
		return -EFAULT;
	memcpy(out, val, sizeof(*out));
	return 0;
}

/* ---- RDS_CANCEL_SENT_TO ---- */

struct cancel {
	struct rds_sock *sk;
	struct rds_addr dst;
};

static void conn_cancel_sent_to(struct rds_conn *conn, void *arg)
{
	struct cancel *c = arg;

	if (!rds_ip_equal(&conn->id.faddr, &c->dst.ip))
		return;
	rds_lock(&conn->tx);
	rds_queue_cancel(conn, c->sk, &c->dst);
	rds_unlock(&conn->tx);
}

/* The family is not checked: as in the kernel the length alone decides what the address is. */
static int set_cancel_sent_to(struct rds_sock *sk, const void *val, int len)
{
	struct cancel c = {.sk = sk};
	struct sockaddr_in6 sin6;
	struct sockaddr_in sin;

	if (!rds_sock_bound(sk))
		return -ENOTCONN;
	if (len < (int)sizeof(sin))
		return -EINVAL;
	if (rds_user_readable(val, len < (int)sizeof(sin6) ? sizeof(sin) : sizeof(sin6)) < 0)
		return -EFAULT;
	if (len < (int)sizeof(sin6)) {
		memcpy(&sin, val, sizeof(sin));
		c.dst.ip.s6_addr32[2] = htonl(0xffff);
		c.dst.ip.s6_addr32[3] = sin.sin_addr.s_addr;
		c.dst.port = ntohs(sin.sin_port);
	} else {
		memcpy(&sin6, val, sizeof(sin6));
		c.dst.ip = sin6.sin6_addr;
		c.dst.port = ntohs(sin6.sin6_port);
	}
	rds_conn_each(conn_cancel_sent_to, &c);
	rds_sock_wake(sk, POLLOUT | POLLWRNORM);
	if (atomic_load(&rds_conn_work_pending))
		rds_conn_work_run();
	return 0;
}

/* ---- memory regions ---- */

static int opt_args_copy(void *args, size_t size, const void *val, int len)
{
	if (len != (int)size)
		return -EINVAL;
	if (rds_user_readable(val, size) < 0)
		return -EFAULT;
	memcpy(args, val, size);
	return 0;
}

static int opt_may_register_mr(struct rds_sock *sk)
{
	if (!rds_sock_bound(sk))
		return -ENOTCONN;
	return atomic_load(&sk->no_rdma) ? -EOPNOTSUPP : 0;
}

static int set_get_mr(struct rds_sock *sk, const void *val, int len)
{
	struct rds_get_mr_args args;
	uint64_t cookie;
	int err = opt_args_copy(&args, sizeof(args), val, len);

	if (err)
		return err;
	err = opt_may_register_mr(sk);
	return err ? err : rds_mr_get_args(sk, &args, &cookie);
}

/* The destination does not matter: the region is valid for all. */
static int set_get_mr_for_dest(struct rds_sock *sk, const void *val, int len)
{
	struct rds_get_mr_for_dest_args args;
	struct rds_mr_request req;
	uint64_t cookie;
	int err = opt_args_copy(&args, sizeof(args), val, len);

	if (err)
		return err;
	rds_abi_mr_for_dest_decode(&args, &req);
	err = opt_may_register_mr(sk);
	return err ? err : rds_mr_get(sk, &req, &cookie);
}

/* Number 2 with an int is RDS_SNDBUF of 2006, before RDS had RDMA. */
static int set_get_mr_or_sndbuf(struct rds_sock *sk, const void *val, int len)
{
	int bytes;

	if (len != (int)sizeof(bytes))
		return set_get_mr(sk, val, len);
	if (rds_call_opt_int(val, len, &bytes) < 0)
		return -EFAULT;
	return rds_call_set_sndbuf(sk, (uint32_t)bytes, (uint64_t)rds_options()->wmem_max);
}

/*
 * Cookie 0 asks whether there is RDMA, and for a flush of freed regions.  No freed region is ever
 * kept.
 */
static int set_free_mr(struct rds_sock *sk, const void *val, int len)
{
	struct rds_free_mr_args args;
	int err = opt_args_copy(&args, sizeof(args), val, len);

	if (err)
		return err;
	if (args.cookie)
		return rds_mr_free(sk, args.cookie);
	return rds_sock_bound(sk) && !atomic_load(&sk->no_rdma) ? 0 : -EINVAL;
}

/* ---- the others ---- */

static int opt_get_bool(const void *val, int len, bool *on)
{
	int v, ret = rds_call_opt_int(val, len, &v);

	*on = ret == 0 && v;
	return ret;
}

static int set_transport(struct rds_sock *sk, const void *val, int len)
{
	int type, ret;

	rds_lock(&rds_lock_control);
	ret = -EOPNOTSUPP;
	if (atomic_load(&sk->transport) != RDS_TRANS_NONE)
		goto out;
	ret = len != (int)sizeof(type) ? -EINVAL : rds_call_opt_int(val, len, &type);
	if (ret < 0)
		goto out;
	if (type < 0 || type >= RDS_TRANS_COUNT)
		ret = -EINVAL;
	else if (type != RDS_TRANS_TCP && !(type == RDS_TRANS_IB && rds_transports_have_device()))
		ret = -ENOPROTOOPT;
	else
		RDS_SOCK_SET(sk, transport, type);
	if (!ret && type == RDS_TRANS_TCP)
		RDS_SOCK_SET(sk, no_rdma, true);
out:
	rds_unlock(&rds_lock_control);
	return ret;
}

/*
 * As the generic option, but a wrong length is EFAULT, and the NEW form stays once the program has
 * asked for it.
 */
static int set_timestamp(struct rds_sock *sk, int opt, const void *val, int len)
{
	int v;

	if (len != (int)sizeof(v) || rds_call_opt_int(val, len, &v) < 0)
		return -EFAULT;
	if (v && atomic_load(&sk->timestamp) == SO_TIMESTAMP_NEW)
		opt = SO_TIMESTAMP_NEW;
	RDS_SOCK_SET(sk, timestamp, v ? opt : 0);
	return 0;
}

static int set_rxpath_latency(struct rds_sock *sk, const void *val, int len)
{
	struct rds_rx_trace_so so;
	uint32_t word;

	if (len != (int)sizeof(so) || rds_user_readable(val, sizeof(so)) < 0)
		return -EFAULT;
	memcpy(&so, val, sizeof(so));
	if (so.rx_traces > RDS_MSG_RX_DGRAM_TRACE_MAX)
		return -EFAULT;
	word = so.rx_traces;
	for (unsigned i = 0; i < so.rx_traces; i++) {
		if (so.rx_trace_pos[i] >= RDS_MSG_RX_DGRAM_TRACE_MAX) {
			RDS_SOCK_SET(sk, rx_trace, 0);
			return -EFAULT;
		}
		word |= (uint32_t)so.rx_trace_pos[i] << (8 * (i + 1));
	}
	RDS_SOCK_SET(sk, rx_trace, word);
	return 0;
}

static int sol_rds_set(struct rds_sock *sk, int fd, int opt, const void *val, int len)
{
	bool on;
	int ret;

	rds_abi_note_option(opt);
	switch (opt) {
	case RDS_CANCEL_SENT_TO:
		return set_cancel_sent_to(sk, val, len);
	case RDS_GET_MR:
		return set_get_mr_or_sndbuf(sk, val, len);
	case RDS_GET_MR_FOR_DEST:
		return set_get_mr_for_dest(sk, val, len);
	case RDS_FREE_MR:
		return set_free_mr(sk, val, len);
	case RDS_BARRIER:
		return rds_op_barrier_set(sk, fd, val, len);
	case RDS_RECVERR:
		ret = opt_get_bool(val, len, &on);
		if (ret == 0)
			RDS_SOCK_SET(sk, recverr, on);
		return ret;
	case RDS_CONG_MONITOR:
		ret = opt_get_bool(val, len, &on);
		if (ret == 0)
			rds_cong_set_monitor(sk, on);
		return ret;
	case SO_RDS_TRANSPORT: /* and RDS_CONN_RESET */
		return len == (int)sizeof(struct rds_reset) ? rds_call_conn_reset(val) : set_transport(sk, val, len);
	case SO_RDS_TRANSPORT_9:
		return len == (int)sizeof(int) ? set_transport(sk, val, len) : -ENOPROTOOPT;
	case RDS6_CONN_RESET:
		return len == (int)sizeof(struct rds6_reset) ? rds_call_conn_reset6(val) : -ENOPROTOOPT;
	case SO_TIMESTAMP_OLD:
	case SO_TIMESTAMP_NEW:
		return set_timestamp(sk, opt, val, len);
	case SO_RDS_MSG_RXPATH_LATENCY:
		return set_rxpath_latency(sk, val, len);
	case SO_RDS_INQ: /* vendor kernels only, but rds-stress asks for it by default */
		ret = opt_get_bool(val, len, &on);
		if (ret == 0)
			RDS_SOCK_SET(sk, inq, on);
		return ret;
	default:
		return -ENOPROTOOPT;
	}
}

static int opt_put_int(int v, void *val, socklen_t *len)
{
	socklen_t size = sizeof(v);

	if (rds_user_writable(val, sizeof(v)) < 0)
		return -EFAULT;
	memcpy(val, &v, sizeof(v));
	if (rds_user_writable(len, sizeof(*len)) < 0)
		return -EFAULT;
	memcpy(len, &size, sizeof(size));
	return 0;
}

static int sol_rds_get(struct rds_sock *sk, int opt, void *val, socklen_t *len)
{
	int room;

	if (rds_user_readable(len, sizeof(*len)) < 0)
		return -EFAULT;
	memcpy(&room, len, sizeof(room));
	rds_abi_note_option(opt);
	if (rds_abi_is_info(opt))
		return rds_info_getsockopt(sk, opt, val, len);
	if (opt == RDS_STATS_GLOBAL && room >= (int)sizeof(uint64_t) && rds_abi_numbers_read())
		return rds_info_getsockopt_2006(val, len);
	if (opt != RDS_RECVERR && opt != SO_RDS_TRANSPORT && opt != SO_RDS_TRANSPORT_9)
		return -ENOPROTOOPT;
	/* a negative length counts as a large one here, as in the kernel */
	if ((size_t)room < sizeof(int))
		return -EINVAL;
	return opt_put_int(opt == RDS_RECVERR ? atomic_load(&sk->recverr) : atomic_load(&sk->transport), val, len);
}

/* ---- entry ---- */

static bool opt_is_sol_rds(struct rds_sock *sk, int level)
{
	if (!rds_abi_level_is_rds(level))
		return false;
	rds_sock_used_level(sk, level);
	return true;
}

int rds_call_setsockopt(struct rds_sock *sk, int fd, int level, int opt, const void *val, socklen_t len)
{
	if ((int)len < 0)
		return -EINVAL;
	if (level == SOL_SOCKET)
		return rds_call_sol_socket_set(sk, fd, opt, val, (int)len);
	return opt_is_sol_rds(sk, level) ? sol_rds_set(sk, fd, opt, val, (int)len) : -ENOPROTOOPT;
}

int rds_call_getsockopt(struct rds_sock *sk, int fd, int level, int opt, void *val, socklen_t *len)
{
	if (level == SOL_SOCKET)
		return rds_call_sol_socket_get(sk, fd, opt, val, len);
	return opt_is_sol_rds(sk, level) ? sol_rds_get(sk, opt, val, len) : -ENOPROTOOPT;
}
