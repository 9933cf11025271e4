/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_info.c - RDS_INFO_*: the getsockopt protocol, the records, what other processes report, and
 * processes that do not answer, answer nonsense, or ask without listening.
 */
#include <arpa/inet.h>
#include <check.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/calls/info.h"
#include "engine/abi/revisions.h"
#include "engine/conn/outgoing.h"
#include "engine/node/socket_name.h"
#include "tests/mock/clock.h"
#include "tests/slow.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

#define BAD ((void *)8)
#define NCOUNTERS 41

/* ---- processes of the node ---- */

struct member {
	pid_t pid;
	int hold, ready; /* it ends when hold is closed */
};

static struct sockaddr_in in4(const char *ip, unsigned port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	ck_assert_int_eq(inet_pton(AF_INET, ip, &a.sin_addr), 1);
	return a;
}

static void bind_to(struct rds_sock *sk, const char *ip, unsigned port)
{
	struct sockaddr_in a = in4(ip, port);

	ck_assert_int_eq(rds_call_bind(sk, (struct sockaddr *)&a, sizeof(a)), 0);
}

static void send_to(struct rds_sock *sk, int fd, const char *ip, unsigned port, size_t len)
{
	static char data[256];
	struct sockaddr_in a = in4(ip, port);
	struct iovec iov = {data, len};
	struct msghdr msg = {.msg_name = &a, .msg_namelen = sizeof(a), .msg_iov = &iov, .msg_iovlen = 1};

	ck_assert_int_eq(rds_call_sendmsg(sk, fd, &msg, MSG_DONTWAIT), (ssize_t)len);
}

/*
 * Bound to 127.0.0.1:port.  Three messages to itself wait to be read, two to an address that nobody
 * has wait to be sent.
 */
static void member_talker(unsigned port)
{
	struct rds_sock *sk;
	int fd = rds_call_socket(SOCK_SEQPACKET, 0, &sk);

	ck_assert_int_ge(fd, 0);
	bind_to(sk, "127.0.0.1", port);
	for (unsigned i = 0; i < 3; i++)
		send_to(sk, fd, "127.0.0.1", port, 10 + i);
	for (unsigned i = 0; i < 2; i++)
		send_to(sk, fd, "192.0.2.1", 4321, 20 + i);
}

enum hostile { SILENT, HANG_UP, MAGIC, VERSION, KIND, REC_SIZE, COUNT, SHORT, UNTERMINATED, HOSTILES };

static void hostile_answer(int fd, enum hostile how)
{
	struct {
		struct rds_info_answer head;
		struct rds_info_rec rec;
	} __attribute__((packed)) a = {.head = {RDS_INFO_MAGIC, RDS_INFO_VERSION, 0, sizeof(a.rec), 1}};
	struct rds_info_ask ask;
	size_t len = sizeof(a);

	if (recv(fd, &ask, sizeof(ask), MSG_WAITALL) != sizeof(ask))
		return;
	a.head.kind = ask.kind;
	memset(&a.rec, 0xff, sizeof(a.rec));
	memset(&a.rec.laddr, 0, 10);
	a.head.magic += how == MAGIC;
	a.head.version += how == VERSION;
	a.head.kind += how == KIND;
	a.head.rec_size -= how == REC_SIZE;
	if (how == COUNT)
		a.head.n = UINT_MAX;
	if (how == SHORT)
		len -= 7;
	if (how == SILENT)
		pause();
	if (how != HANG_UP)
		send(fd, &a, len, MSG_NOSIGNAL);
}

/* A live member of the registry that listens like an engine and answers like something else. */
static void member_hostile(unsigned how)
{
	struct sockaddr_un name;
	struct registry *reg;
	socklen_t len;
	int fd;

	ck_assert_int_eq(registry_open(&reg), 0);
	len = rds_node_listen_name(registry_self(reg), &name);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&name, len), 0);
	ck_assert_int_eq(listen(fd, 16), 0);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			int c = accept(fd, NULL, NULL);

			hostile_answer(c, (enum hostile)how);
			close(c);
		}
	}
}

static struct member member_start(void (*fn)(unsigned), unsigned arg)
{
	int hold[2], ready[2];
	struct member m;
	char c = 0;

	ck_assert_int_eq(pipe(hold), 0);
	ck_assert_int_eq(pipe(ready), 0);
	m.pid = fork();
	ck_assert_int_ge(m.pid, 0);
	if (m.pid == 0) {
		/* a failed test leaves no process behind, stopped or not */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, 0);
		close(hold[1]);
		fn(arg);
		ck_assert_int_eq(write(ready[1], "", 1), 1);
		while (read(hold[0], &c, 1) == 1)
			mock_clock_pass(c * UINT64_C(1000000000));
		kill(0, SIGKILL);
	}
	setpgid(m.pid, m.pid);
	close(hold[0]);
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	close(ready[0]);
	m.hold = hold[1];
	return m;
}

/* By its own clock. */
static void member_of_its_time(unsigned port)
{
	setenv("RDS_PRELOAD_HELPER_FDS", "shared", 1);
	rds_options_reset();
	mock_clock_stop();
	member_talker(port);
}

static void member_passes(const struct member *m, char seconds)
{
	ck_assert_int_eq(write(m->hold, &seconds, 1), 1);
}

/* Returns when its last thread stands still. */
static void member_stop(const struct member *m)
{
	int status;

	kill(m->pid, SIGSTOP);
	ck_assert_int_eq(waitpid(m->pid, &status, WUNTRACED), m->pid);
	ck_assert(WIFSTOPPED(status));
}

static void member_end(struct member *m)
{
	kill(-m->pid, SIGKILL);
	close(m->hold);
	waitpid(m->pid, NULL, 0);
}

/* ---- asking ---- */

static struct rds_sock *sk;
static int fd;

static void sock_start(void)
{
	fd = rds_call_socket(SOCK_SEQPACKET, 0, &sk);
	ck_assert_int_ge(fd, 0);
}

static unsigned silent; /* so many of the others do not answer */
static uint64_t waited;

/* The others are asked by a clock of one's own: who answers has all the time that it takes. */
static int info(int opt, void *buf, socklen_t *len)
{
	uint64_t began;
	int ret;

	mock_clock_own(silent);
	began = os_now_ns();
	ret = rds_call_getsockopt(sk, fd, SOL_RDS, opt, buf, len);
	waited += os_now_ns() - began;
	mock_clock_common();
	return ret;
}

/* As the newest rds-info does it, which knows Oracle's records; *n of them in malloc'ed memory. */
static void *fetch(int opt, size_t each, size_t *n)
{
	socklen_t len = 0;
	void *buf = NULL;
	int ret;

	rds_abi_note_option(RDS_INFO_CONN_PATHS);
	while ((ret = info(opt, buf, &len)) == -ENOSPC) {
		buf = realloc(buf, len);
		ck_assert_ptr_nonnull(buf);
	}
	ck_assert_int_eq(ret, (int)each);
	ck_assert_uint_eq(len % each, 0);
	*n = len / each;
	return buf;
}

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

START_TEST(other_processes)
{
	struct member m[3];
	struct rds_info_message *r;
	unsigned seen[3] = {0};
	size_t n;

	for (unsigned i = 0; i < 3; i++)
		m[i] = member_start(member_talker, 4300 + i);
	sock_start();
	r = fetch(RDS_INFO_RECV_MESSAGES, 26, &n);
	ck_assert_uint_eq(n, 9);
	for (unsigned i = 0; i < n; i++) {
		unsigned port = ntohs(r[i].lport);

		ck_assert_uint_ge(port, 4300);
		ck_assert_uint_lt(port, 4303);
		seen[port - 4300]++;
	}
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(seen[i], 3);
	free(r);
	free(fetch(RDS_INFO_SOCKETS, 36, &n));
	ck_assert_uint_eq(n, 3);
	member_end(&m[0]);
	free(fetch(RDS6_INFO_SEND_MESSAGES, 50, &n));
	ck_assert_uint_eq(n, 4);
	for (unsigned i = 1; i < 3; i++)
		member_end(&m[i]);
	free(fetch(RDS_INFO_CONNECTIONS, 42, &n));
	ck_assert_uint_eq(n, 0);
}
END_TEST

static void member_quiet(unsigned port)
{
	struct rds_sock *s;

	ck_assert_int_ge(rds_call_socket(SOCK_SEQPACKET, 0, &s), 0);
	bind_to(s, "127.0.0.1", port);
}

static void wait_acked(void)
{
	test_until((rds_progress_round(), rds_queue_reap_all(), !rds_sock_snd_bytes(sk)));
}

/* Handed to the transport, not acknowledged, because the peer is stopped; then cancelled. */
START_TEST(unacknowledged)
{
	struct member m = member_start(member_quiet, 4351);
	struct sockaddr_in to = in4("127.0.0.1", 4351);
	struct rds6_info_message *r;
	size_t n;

	sock_start();
	bind_to(sk, "127.0.0.1", 4350);
	send_to(sk, fd, "127.0.0.1", 4351, 100);
	wait_acked();
	free(fetch(RDS_INFO_CONNECTIONS, 42, &n));
	ck_assert_uint_eq(n, 2); /* each side tells its own */
	member_stop(&m);
	silent = 1;
	for (unsigned i = 0; i < 5; i++)
		send_to(sk, fd, "127.0.0.1", 4351, 30 + i);
	r = fetch(RDS6_INFO_RETRANS_MESSAGES, 50, &n);
	ck_assert_uint_eq(n, 5);
	for (unsigned i = 0; i < 5; i++) {
		ck_assert_uint_eq(r[i].len, 30 + i);
		ck_assert_uint_eq(r[i].seq, 2 + i);
		ck_assert_uint_eq(ntohs(r[i].lport), 4350);
		ck_assert_uint_eq(ntohs(r[i].fport), 4351);
	}
	free(r);
	to.sin_port = htons(4352); /* another port: nothing matches */
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &to, sizeof(to)), 0);
	ck_assert_uint_eq(rds_sock_snd_bytes(sk), 30 + 31 + 32 + 33 + 34);
	to.sin_port = htons(4351);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &to, sizeof(to)), 0);
	ck_assert_uint_eq(rds_sock_snd_bytes(sk), 0);
	free(fetch(RDS_INFO_RETRANS_MESSAGES, 26, &n));
	ck_assert_uint_eq(n, 0);
	kill(m.pid, SIGCONT);
	silent = 0;
	send_to(sk, fd, "127.0.0.1", 4351, 7);
	wait_acked();
	member_end(&m);
}
END_TEST

START_TEST(stopped_process)
{
	struct member a = member_start(member_talker, 4400), b = member_start(member_talker, 4401);
	size_t n;

	sock_start();
	member_stop(&a);
	silent = 1;
	free(fetch(RDS_INFO_RECV_MESSAGES, 26, &n));
	ck_assert_uint_eq(n, 3); /* the other one's */
	ck_assert_uint_ge(waited, UINT64_C(400000000));
	ck_assert_uint_le(waited, UINT64_C(2100000000)); /* two calls of at most a second */
	kill(a.pid, SIGCONT);
	silent = 0;
	free(fetch(RDS_INFO_RECV_MESSAGES, 26, &n));
	ck_assert_uint_eq(n, 6);
	member_end(&a);
	member_end(&b);
}
END_TEST

START_TEST(hostile_answers)
{
	struct member good = member_start(member_talker, 4500), bad = member_start(member_hostile, (unsigned)_i);
	struct rds6_info_connection *c;
	size_t n, odd = 0;

	sock_start();
	silent = _i == SILENT;
	c = fetch(RDS6_INFO_CONNECTIONS, 66, &n);
	for (unsigned i = 0; i < n; i++) {
		ck_assert_uint_eq(c[i].transport[15], 0);
		odd += c[i].flags == 0xff;
	}
	free(c);
	ck_assert_uint_eq(odd, _i == UNTERMINATED);
	ck_assert_uint_eq(n - odd, 2);
	member_end(&bad);
	member_end(&good);
}
END_TEST

static int raw_connect(const struct rds_procid *id)
{
	struct sockaddr_un name;
	socklen_t len = rds_node_listen_name(id, &name);
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	ck_assert_int_eq(connect(s, (struct sockaddr *)&name, len), 0);
	return s;
}

/*
 * A process that asks may say nothing, half a word or nonsense, or not take the answer: nothing of
 * that may harm the helper.
 */
START_TEST(rude_askers)
{
	static const uint32_t asks[][3] = {
		{1, 2, 3},
		{RDS_INFO_MAGIC, RDS_INFO_VERSION, RDS_INFO_KINDS},
		{RDS_INFO_MAGIC, RDS_INFO_VERSION, RDS_INFO_RECEIVED},
		{RDS_INFO_MAGIC, RDS_INFO_VERSION + 1, RDS_INFO_RECEIVED},
	};
	struct member m = member_start(member_of_its_time, 4600);
	struct registry_proc *procs;
	struct rds_info_answer head;
	unsigned nprocs;
	const struct rds_procid *id = NULL;
	int s[8];
	size_t n;

	sock_start();
	ck_assert_int_eq(registry_procs(rds_node_registry, &procs, &nprocs), 0);
	for (unsigned i = 0; i < nprocs; i++)
		if (procs[i].pid == m.pid)
			id = &procs[i].id;
	ck_assert_ptr_nonnull(id);
	for (unsigned i = 0; i < 8; i++) {
		s[i] = raw_connect(id);
		if (i < 4)
			ck_assert_int_eq(send(s[i], asks[i], 12, MSG_NOSIGNAL), 12);
		else if (i == 4)
			ck_assert_int_eq(send(s[i], asks[2], 5, MSG_NOSIGNAL), 5);
	}
	free(fetch(RDS_INFO_RECV_MESSAGES, 26, &n));
	ck_assert_uint_eq(n, 3);
	ck_assert_int_eq(recv(s[0], &head, sizeof(head), MSG_WAITALL), 0);
	ck_assert_int_eq(recv(s[1], &head, sizeof(head), MSG_WAITALL), 0);
	ck_assert_int_eq(recv(s[3], &head, sizeof(head), MSG_WAITALL), sizeof(head));
	/* the answer has its version, and nothing more */
	ck_assert_uint_eq(head.version, RDS_INFO_VERSION);
	ck_assert_uint_eq(head.n, 0);
	ck_assert_int_eq(recv(s[4], &head, sizeof(head), MSG_DONTWAIT), -1);
	member_passes(&m, 2);
	/* after a while the helper hangs up */
	ck_assert_int_eq(recv(s[4], &head, sizeof(head), MSG_WAITALL), 0);
	for (unsigned i = 0; i < 8; i++)
		close(s[i]);
	free(procs);
	free(fetch(RDS_INFO_RECV_MESSAGES, 26, &n));
	ck_assert_uint_eq(n, 3);
	member_end(&m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("info");
	TCase *tc = tcase_create("info");

	tcase_set_timeout(tc, 20);
	tcase_add_checked_fixture(tc, registry_setup, registry_teardown);
	tcase_add_test(tc, protocol);
	tcase_add_test(tc, tools_of_2006);
	tcase_add_loop_test(tc, connections_of_every_age, 0, 3);
	tcase_add_test(tc, connections_of_no_age);
	tcase_add_test(tc, sockets);
	tcase_add_test(tc, congested_sockets);
	tcase_add_test(tc, own_messages);
	tcase_add_test(tc, other_processes);
	tcase_add_test(tc, unacknowledged);
	tcase_add_test(tc, stopped_process);
	tcase_add_loop_test(tc, hostile_answers, 0, HOSTILES);
	tcase_add_test(tc, rude_askers);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
