/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_info.c - RDS_INFO_*: the getsockopt protocol, the records, and tools of every age.  For what
 * other processes report see test_info_others.c.
 */
#include <limits.h>

#include "tests/unit/info_helper.h"

#define BAD ((void *)8)
#define NCOUNTERS 41

/*
 * The tools of 2006 ask for sources that today's kernel does not have.  The library knows such a
 * tool by the numbers that it has looked up first.
 */
START_TEST(tools_of_2006)
{
	struct {
		uint64_t v[15], behind;
	} got;
	struct rds_barrier_request req;
	char none[24] = {0}, c[8];
	struct iovec iov = {c, sizeof(c)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	socklen_t len = sizeof(got);

	sock_start();
	bind_to(sk, "127.0.0.1", 4105);
	for (int i = 0; i < 3; i++)
		send_to(sk, fd, "127.0.0.1", 4105, 10);
	ck_assert_int_eq(info(RDS_STATS_GLOBAL, &got, &len), -ENOPROTOOPT);
	len = 0;
	ck_assert_int_eq(info(RDS_INFO_FLOWS, NULL, &len), -ENOPROTOOPT);

	rds_abi_note_numbers(false);
	ck_assert_int_eq(info(RDS_INFO_FLOWS, NULL, &len), 16);
	ck_assert_uint_eq(len, 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(rds_call_recvmsg(sk, fd, &msg, MSG_DONTWAIT), 8);
	memset(&got, 0xaa, sizeof(got));
	len = sizeof(got);
	ck_assert_int_eq(info(RDS_STATS_GLOBAL, &got, &len), 0);
	ck_assert_uint_eq(len, sizeof(got.v));
	ck_assert_uint_eq(got.v[12], 2); /* s_recv_delivered */
	ck_assert_uint_eq(got.v[13], 3); /* s_recv_queued */
	ck_assert_uint_eq(got.v[0], 0);
	ck_assert_uint_eq(got.behind, UINT64_C(0xaaaaaaaaaaaaaaaa));
	memset(&got, 0xaa, sizeof(got));
	len = 8 * 13 + 7; /* whole numbers only */
	ck_assert_int_eq(info(RDS_STATS_GLOBAL, &got, &len), 0);
	ck_assert_uint_eq(len, 8 * 13);
	ck_assert_uint_eq(got.v[12], 2);
	ck_assert_uint_eq(got.v[13], UINT64_C(0xaaaaaaaaaaaaaaaa));
	len = sizeof(got);
	ck_assert_int_eq(info(RDS_STATS_GLOBAL, BAD, &len), -EFAULT);
	len = 7;
	ck_assert_int_eq(info(RDS_STATS_GLOBAL, &got, &len), -ENOPROTOOPT);

	/* None of these says that the program is from 2008 or later; what came then does. */
	ck_assert_int_eq(rds_abi_epoch(), RDS_EPOCH_NONE);
	len = 0;
	ck_assert_int_eq(info(RDS_INFO_TCP_SOCKETS, NULL, &len), 41);
	ck_assert_int_eq(rds_abi_epoch(), RDS_EPOCH_NONE);
	ck_assert_int_eq(info(RDS_INFO_IB_CONNECTIONS, NULL, &len), 68);
	ck_assert_int_eq(rds_abi_epoch(), RDS_EPOCH_LATER);
	rds_abi_barrier_decode(none, sizeof(none), &req);
	ck_assert_int_eq(rds_abi_epoch(), RDS_EPOCH_LATER);
}
END_TEST

/* ---- connections for every age ---- */

enum { READS_NONE, READS_ONCE, READS_EACH };

/* As a tool asks that looks the level's number up so often: the size of one record, `n` of them. */
static unsigned connections_of(int reads, char **all, size_t *n)
{
	socklen_t len = 0;
	int ret;

	*all = NULL;
	if (reads == READS_ONCE)
		rds_abi_note_numbers(true);
	do {
		*all = realloc(*all, len);
		if (reads == READS_EACH)
			rds_abi_note_numbers(true);
		ret = info(RDS_INFO_CONNECTIONS, *all, &len);
	} while (ret == -ENOSPC);
	ck_assert_int_gt(ret, 0);
	ck_assert_uint_eq(len % (socklen_t)ret, 0);
	*n = len / (socklen_t)ret;
	return (unsigned)ret;
}

static void expect_connections(int reads, unsigned each, unsigned char up)
{
	char *all;
	size_t n;

	ck_assert_uint_eq(connections_of(reads, &all, &n), each);
	ck_assert_uint_eq(n, 2);
	for (size_t i = 0; i < n; i++) {
		const unsigned char *rec = (unsigned char *)all + i * each;

		ck_assert_mem_eq(rec + 16, "\177\0\0\1", 4);
		ck_assert_uint_eq(rec[38], 0);
		/* Both have been used; the one to nobody is on its way up, or is not. */
		if (rec[20] == 127)
			ck_assert_uint_eq(rec[39], up);
		else
			ck_assert_uint_eq(rec[39] & up, 0);
	}
	free(all);
}

START_TEST(connections_of_every_age)
{
	static const struct {
		const char *abi;
		unsigned each[3];
		unsigned char up[3];
	} t[] = {{"auto", {42, 42, 40}, {0x04, 0x04, 0x14}},
		 {"v2", {40, 40, 40}, {0x10, 0x10, 0x10}},
		 {"d", {42, 42, 42}, {0x04, 0x04, 0x04}}};

	setenv("RDS_PRELOAD_ABI", t[_i].abi, 1);
	rds_options_reset();
	sock_start();
	bind_to(sk, "127.0.0.1", 4106);
	send_to(sk, fd, "127.0.0.1", 4106, 10);
	send_to(sk, fd, "192.0.2.1", 4321, 10);
	for (int reads = READS_NONE; reads <= READS_EACH; reads++)
		expect_connections(reads, t[_i].each[reads], t[_i].up[reads]);
}
END_TEST

START_TEST(connections_of_no_age)
{
	char *all;
	socklen_t len;
	size_t n;

	sock_start();
	bind_to(sk, "127.0.0.1", 4106);
	send_to(sk, fd, "127.0.0.1", 4106, 10);
	send_to(sk, fd, "192.0.2.1", 4321, 10);
	/* A program of today that looks the number up before each round is none of those. */
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(connections_of(READS_ONCE, &all, &n), 42);
		free(all);
	}
	/* Nor is one that has room of its own, however often it looks. */
	all = malloc(8192);
	for (int i = 0; i < 3; i++) {
		len = 8192;
		rds_abi_note_numbers(true);
		ck_assert_int_eq(info(RDS_INFO_CONNECTIONS, all, &len), 42);
	}
	/* Of other records the tool of 2006-09 knew only one, which is the same for ever. */
	len = 0;
	rds_abi_note_numbers(true);
	ck_assert_int_eq(info(RDS_INFO_COUNTERS, NULL, &len), -ENOSPC);
	rds_abi_note_numbers(true);
	ck_assert_int_eq(info(RDS_INFO_COUNTERS, all, &len), 40);
	free(all);
}
END_TEST

START_TEST(protocol)
{
	struct rds_info_counter c[NCOUNTERS + 1];
	socklen_t len = 0;

	sock_start();
	ck_assert_int_eq(info(RDS_INFO_COUNTERS, NULL, &len), -ENOSPC);
	ck_assert_uint_eq(len, NCOUNTERS * 40);
	ck_assert_int_eq(info(RDS_INFO_COUNTERS, c, &len), 40);
	ck_assert_uint_eq(len, NCOUNTERS * 40);
	ck_assert_str_eq((char *)c[0].name, "conn_reset");
	ck_assert_str_eq((char *)c[35].name, "send_stuck_rm");
	ck_assert_str_eq((char *)c[36].name, "tcp_data_ready_calls");
	ck_assert_str_eq((char *)c[40].name, "tcp_listen_closed_stale");
	len = sizeof(c);
	ck_assert_int_eq(info(RDS_INFO_COUNTERS, c, &len), 40);
	ck_assert_uint_eq(len, NCOUNTERS * 40);
	memset(c, 0xaa, sizeof(c));
	len = 100; /* two records and a half: what fits may be there, the rest untouched */
	ck_assert_int_eq(info(RDS_INFO_COUNTERS, c, &len), -ENOSPC);
	ck_assert_uint_eq(len, NCOUNTERS * 40);
	ck_assert_uint_eq(c[2].name[21], 0xaa);

	ck_assert_int_eq(info(RDS_INFO_COUNTERS, c, BAD), -EFAULT);
	len = (socklen_t)-1;
	ck_assert_int_eq(info(RDS_INFO_COUNTERS, c, &len), -EINVAL);
	len = INT_MAX - 4094;
	ck_assert_int_eq(info(RDS_INFO_COUNTERS, c, &len), -EINVAL);
	len = 4096;
	ck_assert_int_eq(info(RDS_INFO_COUNTERS, (void *)-100l, &len), -EINVAL);
	ck_assert_int_eq(info(RDS_INFO_COUNTERS, BAD, &len), -EAGAIN);
	/* the address is checked before the source */
	ck_assert_int_eq(info(10002, BAD, &len), -EAGAIN);
	len = 0;
	ck_assert_int_eq(info(10002, NULL, &len), -ENOPROTOOPT);
	ck_assert_int_eq(info(10009, NULL, &len), -ENOPROTOOPT);
	ck_assert_int_eq(info(10010, NULL, &len), -ENOPROTOOPT);
	ck_assert_int_eq(info(RDS_INFO_IB_CONNECTIONS, NULL, &len), 68); /* an empty list */
	ck_assert_int_eq(info(RDS6_INFO_IB_CONNECTIONS, NULL, &len), 92);
	ck_assert_uint_eq(len, 0);
	ck_assert_int_eq(info(RDS_INFO_RDMA_CONNECTION_STATS, NULL, &len), -ENOPROTOOPT);
	ck_assert_int_eq(info(RDS6_INFO_RDMA_CONNECTION_STATS, NULL, &len), -ENOPROTOOPT);
	ck_assert_int_eq(info(RDS_INFO_LAST + 1, NULL, &len), -ENOPROTOOPT);
	ck_assert_int_eq(info(RDS_INFO_TCP_SOCKETS, NULL, &len), 41);
	ck_assert_int_eq(info(RDS6_INFO_TCP_SOCKETS, NULL, &len), 64);
	/* positive without any record */
	ck_assert_int_eq(info(RDS_INFO_CONNECTIONS, NULL, &len), 42);
	ck_assert_uint_eq(len, 0);
	ck_assert_int_eq(info(RDS_INFO_CONN_PATHS, NULL, &len), 87);
	ck_assert_int_eq(info(RDS6_INFO_CONN_PATHS, NULL, &len), 87);
	ck_assert_uint_eq(len, 0);
	ck_assert_int_eq(info(RDS6_INFO_CONNECTIONS, NULL, &len), 66);
	ck_assert_int_eq(info(RDS_INFO_SEND_MESSAGES, NULL, &len), 26);
	ck_assert_int_eq(info(RDS6_INFO_RECV_MESSAGES, NULL, &len), 50);
}
END_TEST

START_TEST(sockets)
{
	struct sockaddr_in peer = in4("192.0.2.5", 99);
	struct rds_info_socket *s;
	struct rds6_info_socket *s6;
	struct rds_sock *other;
	struct in6_addr ip;
	int otherfd, v = 50000;
	struct stat st;
	size_t n, n6;

	sock_start();
	s = fetch(RDS_INFO_SOCKETS, 36, &n);
	ck_assert_uint_eq(n, 0);
	free(s);
	s6 = fetch(RDS6_INFO_SOCKETS, 60, &n6);
	ck_assert_uint_eq(n6, 1);
	ck_assert_uint_eq(s6->bound_port, 0);
	ip = s6->bound_addr;
	ck_assert(IN6_IS_ADDR_UNSPECIFIED(&ip));
	free(s6);
	bind_to(sk, "127.0.0.1", 4100);
	ck_assert_int_eq(rds_call_connect(sk, (struct sockaddr *)&peer, sizeof(peer)), 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, SO_SNDBUF, &v, sizeof(v)), 0);
	otherfd = rds_call_socket(SOCK_SEQPACKET, 0, &other);
	ck_assert_int_ge(otherfd, 0);
	s = fetch(RDS_INFO_SOCKETS, 36, &n);
	ck_assert_uint_eq(n, 1);
	ck_assert_uint_eq(s->bound_addr, htonl(INADDR_LOOPBACK));
	ck_assert_uint_eq(ntohs(s->bound_port), 4100);
	ck_assert_uint_eq(s->connected_addr, peer.sin_addr.s_addr);
	ck_assert_uint_eq(s->connected_port, peer.sin_port);
	ck_assert_uint_eq(s->sndbuf, 50000);
	ck_assert_uint_eq(s->rcvbuf, rds_options()->rmem_default / 2);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq(s->inum, st.st_ino);
	ck_assert_int_eq(s->pid, getpid());
	ck_assert_int_eq(s->cong, -1);
	free(s);
	s6 = fetch(RDS6_INFO_SOCKETS, 60, &n6);
	ck_assert_uint_eq(n6, 2);
	ip = s6[0].bound_addr; /* in order of creation */
	ck_assert(IN6_IS_ADDR_V4MAPPED(&ip));
	ip = s6[1].bound_addr;
	ck_assert(IN6_IS_ADDR_UNSPECIFIED(&ip));
	ck_assert_int_eq(s6[0].pid, getpid());
	ck_assert_int_eq(s6[1].cong, -1);
	free(s6);
}
END_TEST

/*
 * The process sends itself more than its limit.  Loopback addresses have no congestion, so it
 * claims to have another address.
 */
static void make_congested(unsigned port)
{
	int v = 2000;

	sock_start();
	bind_to(sk, "127.0.0.1", port);
	RDS_SOCK_SET(sk, transport, RDS_TRANS_TCP);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, SO_RCVBUF, &v, sizeof(v)), 0);
	for (unsigned i = 0; i < 100 && !sk->congested; i++)
		send_to(sk, fd, "127.0.0.1", port, 256);
	ck_assert(sk->congested);
}

/* Its process and its state, as anybody sees them. */
START_TEST(congested_sockets)
{
	struct member m = member_start(make_congested, 4150);
	struct rds6_info_socket *s6;
	struct rds_info_socket *s;
	char data[256];
	struct iovec iov = {data, sizeof(data)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	size_t n;

	make_congested(4151);
	s = fetch(RDS_INFO_SOCKETS, 36, &n);
	ck_assert_uint_eq(n, 2);
	ck_assert_int_eq(s[0].pid, m.pid);
	ck_assert_int_eq(s[0].cong, 1);
	ck_assert_int_eq(s[1].pid, getpid());
	ck_assert_int_eq(s[1].cong, 1);
	free(s);
	while (rds_call_recvmsg(sk, fd, &msg, MSG_DONTWAIT) > 0)
		;
	s6 = fetch(RDS6_INFO_SOCKETS, 60, &n);
	ck_assert_uint_eq(n, 2);
	ck_assert_int_eq(s6[0].pid, m.pid);
	ck_assert_int_eq(s6[0].cong, 1);
	ck_assert_int_eq(s6[1].pid, getpid());
	ck_assert_int_eq(s6[1].cong, -1);
	free(s6);
	member_end(&m);
}
END_TEST

static bool flags_up(uint8_t f)
{
	return f == RDS_INFO_CONNECTION_FLAG_CONNECTED;
}

START_TEST(own_messages)
{
	struct rds_info_connection *c;
	struct rds_info_message *m;
	struct rds6_info_message *m6;
	size_t n, up = 0;

	member_talker(4200); /* in this process */
	sock_start();
	m = fetch(RDS_INFO_RECV_MESSAGES, 26, &n);
	ck_assert_uint_eq(n, 3);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_uint_eq(m[i].len, 10 + i);
		ck_assert_uint_eq(m[i].laddr, htonl(INADDR_LOOPBACK));
		ck_assert_uint_eq(m[i].faddr, htonl(INADDR_LOOPBACK));
		ck_assert_uint_eq(ntohs(m[i].lport), 4200);
		ck_assert_uint_eq(ntohs(m[i].fport), 4200);
		ck_assert_uint_eq(m[i].flags, 0);
	}
	free(m);
	m6 = fetch(RDS6_INFO_SEND_MESSAGES, 50, &n);
	ck_assert_uint_eq(n, 2);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_uint_eq(m6[i].len, 20 + i);
		ck_assert_uint_eq(m6[i].seq, 1 + i);
		ck_assert_uint_eq(ntohs(m6[i].fport), 4321);
		ck_assert_uint_eq(m6[i].faddr.s6_addr32[3], inet_addr("192.0.2.1"));
	}
	free(m6);
	m = fetch(RDS_INFO_RETRANS_MESSAGES, 26, &n);
	ck_assert_uint_eq(n, 0);
	c = fetch(RDS_INFO_CONNECTIONS, 42, &n);
	ck_assert_uint_eq(n, 2);
	for (unsigned i = 0; i < 2; i++) {
		/* tools from before 2009-11 look there */
		ck_assert_uint_eq(c[i].transport[15], c[i].flags);
		ck_assert_uint_eq(c[i].transport[14], 0);
		if (!flags_up(c[i].flags))
			continue;
		up++;
		ck_assert_uint_eq(c[i].laddr, htonl(INADDR_LOOPBACK));
		ck_assert_uint_eq(c[i].faddr, htonl(INADDR_LOOPBACK));
		ck_assert_uint_eq(c[i].next_tx_seq, 4);
	}
	ck_assert_uint_eq(up, 1);
	free(c);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("info");
	TCase *tc = tcase_create("info");

	tcase_add_test(tc, protocol);
	tcase_add_test(tc, tools_of_2006);
	tcase_add_loop_test(tc, connections_of_every_age, 0, 3);
	tcase_add_test(tc, connections_of_no_age);
	tcase_add_test(tc, sockets);
	tcase_add_test(tc, congested_sockets);
	tcase_add_test(tc, own_messages);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
