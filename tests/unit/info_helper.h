/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * info_helper.h - a socket that asks by RDS_INFO_*, and other processes of its node.
 */
#ifndef TESTS_UNIT_INFO_HELPER_H
#define TESTS_UNIT_INFO_HELPER_H

#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/calls/info.h"
#include "engine/abi/revisions.h"
#include "engine/conn/outgoing.h"
#include "tests/mock/clock.h"
#include "tests/slow.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

struct member {
	pid_t pid;
	int hold, ready; /* it ends when hold is closed */
};

static inline struct sockaddr_in in4(const char *ip, unsigned port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	ck_assert_int_eq(inet_pton(AF_INET, ip, &a.sin_addr), 1);
	return a;
}

static inline void bind_to(struct rds_sock *sk, const char *ip, unsigned port)
{
	struct sockaddr_in a = in4(ip, port);

	ck_assert_int_eq(rds_call_bind(sk, (struct sockaddr *)&a, sizeof(a)), 0);
}

static inline void send_to(struct rds_sock *sk, int fd, const char *ip, unsigned port, size_t len)
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
static inline void member_talker(unsigned port)
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

static inline struct member member_start(void (*fn)(unsigned), unsigned arg)
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

static inline void member_end(struct member *m)
{
	kill(-m->pid, SIGKILL);
	close(m->hold);
	waitpid(m->pid, NULL, 0);
}

static struct rds_sock *sk;
static int fd;

static inline void sock_start(void)
{
	fd = rds_call_socket(SOCK_SEQPACKET, 0, &sk);
	ck_assert_int_ge(fd, 0);
}

static unsigned silent; /* so many of the others do not answer */
static uint64_t waited;

/* The others are asked by a clock of one's own: who answers has all the time that it takes. */
static inline int info(int opt, void *buf, socklen_t *len)
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
static inline void *fetch(int opt, size_t each, size_t *n)
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

#endif
