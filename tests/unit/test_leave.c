/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_leave.c - a process hands off its sockets while they are in use: by a send of another
 * thread, and by a sender process that ends after its send.  Linked with
 * --wrap=registry_sock_orphan and --wrap=registry_lookup, in which the test has the other one do
 * that.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/conn/conn.h"
#include "engine/share/handoff.h"
#include "engine/calls/start.h"
#include "tests/unit/busy_helper.h"
#include "tests/unit/suite.h"

static struct rds_sock *sock;
static int fd;
static struct sockaddr_in name;

int __real_registry_sock_orphan(struct registry *reg, uint32_t idx, const struct rds_procid *who);
int __wrap_registry_sock_orphan(struct registry *reg, uint32_t idx, const struct rds_procid *who);
int __real_registry_lookup(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			   struct registry_owner *out);
int __wrap_registry_lookup(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			   struct registry_owner *out);

static __thread void (*before_nobodys)(void); /* once; and only for the thread of the test */
static __thread void (*at_look)(void);

static void once(void (**what)(void))
{
	void (*fn)(void) = *what;

	*what = NULL;
	if (fn)
		fn();
}

int __wrap_registry_sock_orphan(struct registry *reg, uint32_t idx, const struct rds_procid *who)
{
	once(&before_nobodys);
	return __real_registry_sock_orphan(reg, idx, who);
}

int __wrap_registry_lookup(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			   struct registry_owner *out)
{
	once(&at_look);
	return __real_registry_lookup(reg, addr, port, scope, out);
}

static void open_one(struct rds_sock **sk, int *number)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	ck_assert_int_eq(rds_call_start_engine(), 0);
	*number = rds_call_socket(SOCK_SEQPACKET, 0, sk);
	ck_assert_int_ge(*number, 0);
	ck_assert_int_eq(rds_call_bind(*sk, (struct sockaddr *)&sin, sizeof(sin)), 0);
}

static void set_name(void)
{
	socklen_t len = sizeof(name);

	ck_assert_int_eq(rds_call_getsockname(sock, (struct sockaddr *)&name, &len), 0);
}

static ssize_t send_one(struct rds_sock *from, int number)
{
	char byte = 'x';
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_name = &name, .msg_namelen = sizeof(name), .msg_iov = &iov, .msg_iovlen = 1};

	return rds_call_sendmsg(from, number, &msg, 0);
}

/* ---- another process ---- */

static int go[2], said[2];
static pid_t pid;

static void hear(int from)
{
	char byte;

	if (read(from, &byte, 1) != 1)
		_exit(2);
}

static void sender(void)
{
	struct rds_sock *from;
	int number;

	close(go[1]); /* if the test ends, so does this */
	if (read(go[0], &name, sizeof(name)) != sizeof(name))
		_exit(2);
	open_one(&from, &number);
	if (send_one(from, number) != 1 || write(said[1], "", 1) != 1)
		_exit(3);
	hear(go[0]);
	if (send_one(from, number) != 1)
		_exit(4);
	rds_progress_exit();
	_exit(0);
}

static void sends_and_ends(void)
{
	int status;

	ck_assert_int_eq(write(go[1], "", 1), 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

static uint32_t in_queue(void)
{
	uint32_t n;

	rx_lock();
	n = sock->rcv_bytes;
	rx_unlock();
	return n;
}

/*
 * The port was still ours when the sender sent.  No other process sends the message again: the
 * sender has ended.
 */
START_TEST(ends_behind_a_send)
{
	ck_assert_int_eq(pipe(go), 0);
	ck_assert_int_eq(pipe(said), 0);
	pid = fork();
	if (!pid)
		sender();
	open_one(&sock, &fd);
	set_name();
	ck_assert_int_eq(write(go[1], &name, sizeof(name)), sizeof(name));
	hear(said[0]);
	while (in_queue() < 1)
		os_poll(NULL, 0, 5);
	helper_begins_to_wait();
	before_nobodys = sends_and_ends;
	ck_assert_uint_eq(rds_handoff_out(NULL), 1);
	ck_assert_uint_eq(in_queue(), 2);
	helper_goes_on();
}
END_TEST

/* ---- a thread ---- */

static void leaves(void)
{
	rx_lock();
	atomic_store(&sock->handing_off, true);
	atomic_store(&sock->open, false);
	rx_unlock();
}

/*
 * It had looked whether the socket leaves before it did: by the time it has found out where to
 * send, what the socket has sent may be in the parked packet.
 */
START_TEST(leaves_during_a_send)
{
	struct rds_sock *to;
	int number;

	open_one(&sock, &fd);
	open_one(&to, &number);
	name = (struct sockaddr_in){
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(to->laddr.port)};
	at_look = leaves;
	ck_assert_int_eq(send_one(sock, fd), -EBADF);
	ck_assert_ptr_null(at_look);
	ck_assert_uint_eq((uint32_t)atomic_load(&sock->snd), 0);
	ck_assert_int_eq(rds_call_recvmsg(to, number,
					  &(struct msghdr){.msg_iov = &(struct iovec){&(char){0}, 1}, .msg_iovlen = 1},
					  MSG_DONTWAIT),
			 -EAGAIN);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("leave");
	TCase *t = suite_case(s, "leave", NULL, NULL);

	tcase_add_test(t, ends_behind_a_send);
	tcase_add_test(t, leaves_during_a_send);
	return suite_run(s);
}
