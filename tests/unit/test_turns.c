/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_turns.c - a process that has a descriptor of a socket never stops sending, or connections
 * never stop coming: the helper still does its other work.  Whatever the helper reads there, more
 * of it is there already, so a helper that reads to the end would never come back.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/node/socket_name.h"
#include "engine/share/owner.h"
#include "engine/calls/info.h"
#include "engine/share/memory_grant.h"
#include "engine/transport/shm/layout.h"
#include "engine/calls/start.h"
#include "tests/slow.h"
#include "tests/unit/suite.h"

static struct rds_sock *sock;
static int standin;
static _Atomic bool flood; /* there is always something in the pair */
static _Atomic unsigned taken, sent;
/* the channel: the borrower's end, and the other one until it is given away */
static int line[2] = {-1, -1};

ssize_t __real_os_pass_recv(int fd, void *buf, size_t len, int fds[OS_PASS_MAX], unsigned *nfds, bool *lost, int flags);
ssize_t __wrap_os_pass_recv(int fd, void *buf, size_t len, int fds[OS_PASS_MAX], unsigned *nfds, bool *lost, int flags);

/*
 * The borrower is as quick as the owner: it takes the answers, and whenever a call is read the next
 * one is there.
 */
static void *holder(void *arg)
{
	const struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_SOCKNAME};
	char answer[1000];

	(void)arg;
	for (;;) {
		while (recv(line[0], answer, sizeof(answer), MSG_DONTWAIT) > 0)
			;
		if (atomic_load(&sent) > atomic_load(&taken) || send(line[0], &q, sizeof(q), MSG_DONTWAIT) < 0)
			sched_yield();
		else
			atomic_fetch_add(&sent, 1);
	}
	return NULL;
}

static void one_taken(void)
{
	unsigned n = atomic_fetch_add(&taken, 1) + 1;

	while (atomic_load(&sent) <= n)
		sched_yield();
}

static _Atomic int peer = -1; /* of another process, or so it seems, and where it came from */

/* Of no consequence. */
static void look(void)
{
	const struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_LOOK};

	atomic_fetch_add(&taken, 1);
	ck_assert_int_eq(os_send(atomic_load(&peer), &msg, sizeof(msg), MSG_DONTWAIT), sizeof(msg));
}

ssize_t __wrap_os_pass_recv(int fd, void *buf, size_t len, int fds[OS_PASS_MAX], unsigned *nfds, bool *lost, int flags)
{
	ssize_t n = __real_os_pass_recv(fd, buf, len, fds, nfds, lost, flags);

	if (n > 0 && len == RDS_SHARE_PACKET + 1)
		one_taken();
	if (n > 0 && len == sizeof(struct shm_ctl_msg) && atomic_load(&peer) >= 0)
		look();
	if (n != -EAGAIN || !atomic_load(&flood) || fd != rds_sock_pair_fd(sock))
		return n;
	atomic_fetch_add(&taken, 1);
	memset(buf, 'x', 1);
	return 1;
}

static _Atomic unsigned turns;

static void turn(struct rds_timer *tm)
{
	atomic_fetch_add(&turns, 1);
	rds_timer_set(tm, os_now_ns());
}

static struct rds_timer timer = {.fn = turn};

static void setup(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	ck_assert_int_eq(rds_call_start_engine(), 0);
	standin = rds_call_socket(SOCK_SEQPACKET, 0, &sock);
	ck_assert_int_ge(standin, 0);
	ck_assert_int_eq(rds_call_bind(sock, (struct sockaddr *)&sin, sizeof(sin)),
			 0); /* so that the helper is there */
}

/* While more and more is taken, other things are done between. */
static void ck_turns(void)
{
	unsigned begin;

	test_until(atomic_load(&taken));
	begin = atomic_load(&taken);
	rds_timer_set(&timer, os_now_ns());
	test_until(atomic_load(&turns) >= 10 && atomic_load(&taken) >= begin + 100);
}

/* Bytes of a program that is not under the preload. */
START_TEST(strays)
{
	atomic_store(&flood, true);
	ck_assert_int_eq(send(standin, "x", 1, MSG_DONTWAIT), 1);
	ck_turns();
}
END_TEST

static int lies_there(struct rds_sock *sk)
{
	int bytes = -1;

	ioctl(rds_sock_pair_fd(sk), SIOCINQ, &bytes);
	return bytes;
}

/* Two of them, of which the one comes to its end. */
START_TEST(strays_beside)
{
	struct rds_sock *other;
	int fd = rds_call_socket(SOCK_SEQPACKET, 0, &other), i;

	ck_assert_int_ge(fd, 0);
	atomic_store(&flood, true);
	ck_assert_int_eq(send(standin, "x", 1, MSG_DONTWAIT), 1);
	ck_turns();
	for (i = 0; i < 40; i++) /* more than are taken at a time */
		ck_assert_int_eq(send(fd, "x", 1, MSG_DONTWAIT), 1);
	test_until(!lies_there(other));
}
END_TEST

/* Calls of a borrower, which takes all the answers. */
START_TEST(calls)
{
	struct rds_share_attach hello = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	struct rds_share_reply a;
	int pass[2] = {-1, standin};
	pthread_t thread;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line), 0);
	pass[0] = line[1];
	ck_assert_int_eq(os_pass_send(standin, &hello, sizeof(hello), pass, 2, 0), 0);
	close(line[1]);
	ck_assert_int_eq(recv(line[0], &a, sizeof(a), 0), sizeof(a));
	ck_assert_int_eq(a.kind, RDS_SHARE_HELLO);
	ck_assert_int_eq(pthread_create(&thread, NULL, holder, NULL), 0);
	ck_turns();
}
END_TEST

/* ---- doors ---- */

static struct sockaddr_un door;
static socklen_t door_len;
static int door_type;
static _Atomic bool crowd; /* when one is let in, the next one is there at once */

int __real_os_accept4(int fd, int flags);
int __wrap_os_accept4(int fd, int flags);

/* It need not stay: it is let in all the same. */
static void somebody_comes(void)
{
	int fd = socket(AF_UNIX, door_type | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&door, door_len), 0);
	close(fd);
}

int __wrap_os_accept4(int fd, int flags)
{
	struct sockaddr_un here;
	socklen_t len = sizeof(here);
	int ret = __real_os_accept4(fd, flags);

	if (ret < 0 || !atomic_load(&crowd) || getsockname(fd, (struct sockaddr *)&here, &len) || len != door_len ||
	    memcmp(&here, &door, len) != 0)
		return ret;
	atomic_fetch_add(&taken, 1);
	somebody_comes();
	return ret;
}

static _Atomic bool open_now;

static void open_memory_door(struct rds_timer *tm)
{
	struct rds_grant_address d;

	(void)tm;
	ck_assert_int_eq(rds_owner_grant_address(&d), 0);
	memcpy(&door, &d.name, d.len);
	door_len = d.len;
	atomic_store(&open_now, true);
}

static void find_door(unsigned which)
{
	static struct rds_timer opener = {.fn = open_memory_door};
	const struct rds_procid *self = registry_self(rds_node_registry);

	door_type = which == 1 ? SOCK_STREAM : SOCK_SEQPACKET;
	if (which == 0) {
		door_len = rds_node_name_address("rdspreload-shm-", self, &door);
	} else if (which == 1) {
		door_len = rds_node_listen_name(self, &door);
	} else {
		rds_timer_set(&opener, os_now_ns());
		test_until(atomic_load(&open_now));
	}
}

/*
 * The sockets for other processes of the host: for their connections, for their questions of
 * rds-info, and for memory that they bring.
 */
START_TEST(doors)
{
	find_door((unsigned)_i);
	atomic_store(&crowd, true);
	somebody_comes();
	ck_turns();
	atomic_store(&crowd, false);
}
END_TEST

/* In the helper, which has a table of descriptors of its own. */
static void a_peer_comes(struct rds_timer *tm)
{
	int fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	(void)tm;
	ck_assert_int_eq(os_connect(fd, (struct sockaddr *)&door, door_len), 0);
	atomic_store(&peer, fd);
	look();
}

/* Control packets, of a process that goes on with that. */
START_TEST(packets)
{
	static struct rds_timer comer = {.fn = a_peer_comes};

	find_door(0);
	rds_timer_set(&comer, os_now_ns());
	ck_turns();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("turns");
	TCase *t = suite_case(s, "turns", setup, NULL);

	tcase_add_test(t, strays);
	tcase_add_test(t, strays_beside);
	tcase_add_test(t, calls);
	tcase_add_loop_test(t, doors, 0, 3);
	tcase_add_test(t, packets);
	return suite_run(s);
}
