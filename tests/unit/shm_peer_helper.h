/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * shm_peer_helper.h - another process of the host, as this one sees it: the test is that process.  The
 * helper's functions are called in the helper.
 */
#ifndef TESTS_UNIT_SHM_PEER_HELPER_H
#define TESTS_UNIT_SHM_PEER_HELPER_H

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/calls/start.h"
#include "engine/node/socket_name.h"
#include "engine/transport/shm/shm.h"
#include "tests/slow.h"
#include "tests/unit/suite.h"

static struct rds_sock *sock;

static inline void setup(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	ck_assert_int_eq(rds_call_start_engine(), 0);
	ck_assert_int_ge(rds_call_socket(SOCK_SEQPACKET, 0, &sock), 0);
	/* so that the helper is there */
	ck_assert_int_eq(rds_call_bind(sock, (struct sockaddr *)&sin, sizeof(sin)), 0);
}

/* ---- in the helper ---- */

static void (*work)(void);
static _Atomic bool done;

static inline void work_do(struct rds_timer *tm)
{
	(void)tm;
	if (work)
		work();
	atomic_store(&done, true);
}

static inline void in_helper(void (*fn)(void))
{
	static struct rds_timer timer = {.fn = work_do};

	work = fn;
	atomic_store(&done, false);
	rds_timer_set(&timer, os_now_ns());
	test_until(atomic_load(&done));
}

/* ---- the other process ---- */

/* What comes next on its end of a control socket: SHM_OP_*, 0 for the end, or -EAGAIN. */
static inline int hear(int fd, int flags)
{
	struct shm_ctl_msg msg;
	int fds[OS_PASS_MAX];
	unsigned nfds;
	bool lost;
	ssize_t n = os_pass_recv(fd, &msg, sizeof(msg), fds, &nfds, &lost, flags);

	while (n > 0 && nfds)
		close(fds[--nfds]);
	return n > 0 ? (int)msg.op : (int)n;
}

static inline int dial(void)
{
	struct sockaddr_un door;
	socklen_t len = rds_node_name_address("rdspreload-shm-", registry_self(rds_node_registry), &door);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(connect(fd, (struct sockaddr *)&door, len), 0);
	return fd;
}

static inline void send_hello(int fd, struct shm_ctl_msg msg)
{
	int wakes[2], fds[3] = {-1, -1, memfd_create("inbox", MFD_CLOEXEC | MFD_ALLOW_SEALING)};

	ck_assert_int_eq(pipe2(wakes, O_NONBLOCK | O_CLOEXEC), 0);
	fds[0] = fds[1] = wakes[1];
	ck_assert_int_eq(ftruncate(fds[2], SHM_CTL_BYTES), 0);
	ck_assert_int_eq(fcntl(fds[2], F_ADD_SEALS, SHM_SEALS), 0);
	msg.magic = SHM_MAGIC;
	msg.version = SHM_VERSION;
	msg.op = SHM_OP_HELLO;
	ck_assert_int_eq(os_pass_send(fd, &msg, sizeof(msg), fds, 3, 0), 0);
	close(wakes[0]);
	close(wakes[1]);
	close(fds[2]);
}

/*
 * When it returns, the helper has read all that was sent before: the second of the two rounds
 * begins after the call.
 */
static inline void helper_catches_up(void)
{
	in_helper(NULL);
	in_helper(NULL);
}

/* ---- a session, and whether it is cold ---- */

/* The other process has our own id, so it lives. */
static inline void say_session(int fd, uint64_t session, uint8_t whose)
{
	struct shm_ctl_msg msg = {.cookie = session, .whose = whose};

	msg.self = *registry_self(rds_node_registry);
	msg.slot = registry_self_slot(rds_node_registry);
	send_hello(fd, msg);
}

static inline int comes(uint64_t session, uint8_t whose)
{
	int fd = dial();

	ck_assert_int_eq(hear(fd, 0), SHM_OP_HELLO);
	say_session(fd, session, whose);
	return fd;
}

static inline struct shm_peer *peer_of(uint64_t session)
{
	struct shm_peer *p = rds_shm.peers;

	while (p && (p->dead || p->session != session))
		p = p->next;
	ck_assert_ptr_nonnull(p);
	return p;
}

static inline void say_op(int fd, uint32_t op)
{
	struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = op};

	ck_assert_int_eq(os_pass_send(fd, &msg, sizeof(msg), NULL, 0, 0), 0);
}

static uint64_t wanted_session;
static int found_warmth; /* -1: there is no such session; of several the newest */

static inline void find_session(void)
{
	struct shm_peer *p;

	found_warmth = -1;
	for (p = rds_shm.peers; p && found_warmth < 0; p = p->next)
		if (!p->dead && p->known && p->session == wanted_session) {
			found_warmth = p->warmth;
			ck_assert((p->fd < 0) == (p->warmth == SHM_COLD));
			ck_assert((os_fd(&p->helper.fd) < 0) == (p->warmth == SHM_COLD));
		}
}

static inline int warmth_of(uint64_t session)
{
	helper_catches_up();
	wanted_session = session;
	in_helper(find_session);
	return found_warmth;
}

static inline void becomes_cold(void)
{
	int fd = comes(5, SHM_SESSION_NEW);

	ck_assert_int_eq(warmth_of(5), SHM_WARM);
	say_op(fd, SHM_OP_COOL);
	close(fd);
	ck_assert_int_eq(warmth_of(5), SHM_COLD);
}

#endif
