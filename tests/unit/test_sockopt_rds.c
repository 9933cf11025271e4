/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_sockopt_rds.c - the options of SOL_RDS (calls/sockopt.c): order of checks, exact errnos,
 * what is read back, and what a cancel or a reset takes.
 */
#include <linux/capability.h>
#include <sys/syscall.h>

#include "engine/abi/revisions.h"
#include "engine/conn/outgoing.h"
#include "tests/unit/sockopt_helper.h"

START_TEST(recverr_and_monitor)
{
	int64_t wide = 1ll << 40;
	socklen_t len = 3;
	int v = 1;

	ck_assert_int_eq(get(SOL_RDS, RDS_RECVERR), 0);
	ck_assert_int_eq(set(SOL_RDS, RDS_RECVERR, 77), 0);
	ck_assert_int_eq(get(SOL_RDS, RDS_RECVERR), 1);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_RECVERR, &v, 3), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_RECVERR, BAD, 4), -EFAULT);
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_RDS, RDS_RECVERR, &v, &len), -EINVAL);
	len = 64;
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_RDS, RDS_RECVERR, &v, &len), 0);
	ck_assert_uint_eq(len, 4);
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_RDS, RDS_RECVERR, &v, BAD), -EFAULT);
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_RDS, RDS_RECVERR, BAD, &len), -EFAULT);

	ck_assert_int_eq(set(SOL_RDS, RDS_CONG_MONITOR, 1), 0);
	ck_assert(sk->cong_monitor);
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_INQ, 2), 0);
	ck_assert(sk->inq);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_INQ, &v, 3), -EINVAL);
	/* only the first four bytes are looked at */
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONG_MONITOR, &wide, 8), 0);
	ck_assert(!sk->cong_monitor);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONG_MONITOR, &wide, 2), -EINVAL);
	ck_assert_int_eq(get(SOL_RDS, RDS_CONG_MONITOR), -ENOPROTOOPT);
}
END_TEST

START_TEST(cancel_sent_to)
{
	struct sockaddr_storage ss = {.ss_family = AF_INET};

	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &ss, 3), -ENOTCONN);
	bind_to("127.0.0.1", 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, NULL, 0), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &ss, 15), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, BAD, 16), -EFAULT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &ss, 16), 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &ss, 28), 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &ss, sizeof(ss)), 0);
}
END_TEST

START_TEST(memory_regions)
{
	struct rds_get_mr_args mr = {0};
	struct rds_get_mr_for_dest_args dest = {0};
	struct rds_free_mr_args fr = {0};
	char barrier[32] = {0};

	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_GET_MR, &mr, 31), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_GET_MR, BAD, 32), -EFAULT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_GET_MR, &mr, 32), -ENOTCONN);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_GET_MR_FOR_DEST, &dest, sizeof(dest)), -ENOTCONN);
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_TCP), 0);
	bind_to("127.0.0.1", 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_GET_MR, &mr, 32), -EOPNOTSUPP);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_GET_MR_FOR_DEST, &dest, sizeof(dest)), -EOPNOTSUPP);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_GET_MR_FOR_DEST, &dest, 32), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_FREE_MR, &fr, 15), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_FREE_MR, BAD, 16), -EFAULT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_FREE_MR, &fr, 16), -EINVAL);
	fr.cookie = 5;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_FREE_MR, &fr, 16), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_BARRIER, barrier, 32), -ENOPROTOOPT);
}
END_TEST

START_TEST(transport)
{
	int64_t wide = RDS_TRANS_TCP;

	ck_assert_int_eq(get(SOL_RDS, SO_RDS_TRANSPORT), -1);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_TRANSPORT, &wide, 8), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_TRANSPORT, BAD, 4), -EFAULT);
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_TRANSPORT, -1), -EINVAL);
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_TRANSPORT, 3), -EINVAL);
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_GAP), -ENOPROTOOPT);
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_IB), -ENOPROTOOPT);
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_TCP), 0);
	ck_assert_int_eq(get(SOL_RDS, SO_RDS_TRANSPORT), RDS_TRANS_TCP);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_TRANSPORT, BAD, 99), -EOPNOTSUPP);
}
END_TEST

/* Number 9 in Oracle's kernels, where 8 is RDS_CONN_RESET. */
START_TEST(transport_9)
{
	int64_t wide = RDS_TRANS_TCP;

	ck_assert_int_eq(get(SOL_RDS, 9), -1);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, 9, &wide, 8), -ENOPROTOOPT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, 9, &wide, 3), -ENOPROTOOPT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, 9, BAD, 4), -EFAULT);
	ck_assert_int_eq(set(SOL_RDS, 9, 3), -EINVAL);
	ck_assert_int_eq(set(SOL_RDS, 9, RDS_TRANS_TCP), 0);
	ck_assert_int_eq(get(SOL_RDS, 9), RDS_TRANS_TCP);
	ck_assert_int_eq(get(SOL_RDS, SO_RDS_TRANSPORT), RDS_TRANS_TCP);
	ck_assert_int_eq(set(SOL_RDS, 9, RDS_TRANS_TCP), -EOPNOTSUPP);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, 9, &wide, 8), -ENOPROTOOPT);
}
END_TEST

/*
 * Sets or clears CAP_NET_ADMIN in the thread's effective set.  False: this process cannot have it.
 */
static bool net_admin(bool on)
{
	struct __user_cap_header_struct hdr = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

	ck_assert_int_eq(os_syscall(SYS_capget, (long)&hdr, (long)data, 0, 0, 0, 0), 0);
	if (on)
		data[0].effective |= CAP_TO_MASK(CAP_NET_ADMIN);
	else
		data[0].effective &= ~CAP_TO_MASK(CAP_NET_ADMIN);
	return os_syscall(SYS_capset, (long)&hdr, (long)data, 0, 0, 0, 0) == 0;
}

START_TEST(conn_reset)
{
	struct rds_reset r = {.src.s_addr = htonl(INADDR_LOOPBACK), .dst.s_addr = htonl(INADDR_LOOPBACK)};
	struct rds6_reset r6 = {.src = IN6ADDR_LOOPBACK_INIT};

	ck_assert(net_admin(false));
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, sizeof(r)), -EACCES);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, BAD, sizeof(r)), -EACCES);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, sizeof(r6)), -EACCES);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, 4), -ENOPROTOOPT);
	if (!net_admin(true))
		return;
	/* what matches no connection is no error: rds-stress --reset never has one */
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, sizeof(r)), 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, BAD, sizeof(r)), -EFAULT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, sizeof(r6)), 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, BAD, sizeof(r6)), -EFAULT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, 35), -ENOPROTOOPT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS_HISTORIC, RDS_CONN_RESET, &r, sizeof(r)), 0);
	/* The socket has a transport now; with other lengths the number is another option. */
	bind_to("127.0.0.1", 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, sizeof(r)), 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, 11), -EOPNOTSUPP);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, 4), -EOPNOTSUPP);
}
END_TEST

static struct rds_conn *peer_conn(const char *src, const char *dst, uint8_t tos)
{
	struct rds_conn_id id = {.tos = tos, .peer_slot = RDS_SLOT_REMOTE};
	struct rds_conn *conn;
	int err;

	ck_assert_int_eq(inet_pton(AF_INET6, src, &id.laddr), 1);
	ck_assert_int_eq(inet_pton(AF_INET6, dst, &id.faddr), 1);
	rds_lock(&rds_lock_control);
	conn = rds_conn_get_locked(RDS_CONN_PEER, &id, &err);
	rds_unlock(&rds_lock_control);
	ck_assert_ptr_nonnull(conn);
	conn->ep = (struct rds_ep *)conn; /* is only looked at for being there */
	return conn;
}

/* Which of them are to be dropped, a digit each; after that, none. */
static const char *chosen(struct rds_conn **conns, unsigned n)
{
	static char text[16];

	for (unsigned i = 0; i < n; i++)
		text[i] = atomic_exchange(&conns[i]->reset, false) ? '1' : '0';
	text[n] = 0;
	return text;
}

/*
 * Which connections a reset covers: those of an address pair and a type of service, or all of an
 * address.  No helper runs here.
 */
START_TEST(conn_reset_which)
{
	struct rds_conn *c[] = {
		peer_conn("::ffff:127.0.0.1", "::ffff:10.0.0.2", 0), peer_conn("::ffff:127.0.0.1", "::ffff:10.0.0.2", 5),
		peer_conn("::ffff:127.0.0.1", "::ffff:10.0.0.3", 0), peer_conn("::ffff:127.0.0.9", "::ffff:10.0.0.2", 0),
		peer_conn("::1", "fd00::2", 0),
	};
	struct rds_reset r = {.src.s_addr = inet_addr("127.0.0.1"), .dst.s_addr = inet_addr("10.0.0.2")};
	struct rds6_reset r6 = {.src = IN6ADDR_LOOPBACK_INIT};

	if (!net_admin(true))
		return;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, sizeof(r)), 0);
	ck_assert_str_eq(chosen(c, 5), "10000");
	r.tos = 5;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, sizeof(r)), 0);
	ck_assert_str_eq(chosen(c, 5), "01000");
	r.dst.s_addr = 0;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, sizeof(r)), 0);
	ck_assert_str_eq(chosen(c, 5), "11100");
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, sizeof(r6)), 0);
	ck_assert_str_eq(chosen(c, 5), "00001");
	r6.dst = c[0]->id.faddr;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, sizeof(r6)), 0);
	ck_assert_str_eq(chosen(c, 5), "00000");
	r6.src = c[0]->id.laddr;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, sizeof(r6)), 0);
	ck_assert_str_eq(chosen(c, 5), "10000");
	for (unsigned i = 0; i < 5; i++)
		c[i]->ep = NULL;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, sizeof(r6)), 0);
	ck_assert_str_eq(chosen(c, 5), "00000");
}
END_TEST

START_TEST(rxpath_latency)
{
	struct rds_rx_trace_so so = {2, {2, 0, 9}};

	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY, &so, 4), 0);
	ck_assert_uint_eq(sk->rx_trace, 2 | 2 << 8);
	so.rx_traces = 4;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY, &so, 4), -EFAULT);
	ck_assert_uint_eq(sk->rx_trace, 2 | 2 << 8);
	so.rx_traces = 3;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY, &so, 4), -EFAULT);
	ck_assert_uint_eq(sk->rx_trace, 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY, &so, 5), -EFAULT);
	ck_assert_int_eq(get(SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY), -ENOPROTOOPT);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sockopt_rds");
	TCase *tc = tcase_create("sockopt_rds");

	tcase_add_checked_fixture(tc, registry_setup, registry_teardown);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, recverr_and_monitor);
	tcase_add_test(tc, cancel_sent_to);
	tcase_add_test(tc, memory_regions);
	tcase_add_test(tc, transport);
	tcase_add_test(tc, transport_9);
	tcase_add_test(tc, conn_reset);
	tcase_add_test(tc, conn_reset_which);
	tcase_add_test(tc, rxpath_latency);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
