/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_handover.c - a port changes its owner between any two looks of one send (linked with
 * --wrap=registry_lookup, --wrap=registry_sock_is_gone): messages that waited for it arrive first,
 * and all of them.
 *
 * The answers are written down beforehand.  They hold for the test's own thread; the helper is told
 * that the port is changing hands.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "engine/conn/outgoing.h"
#include "engine/calls/start.h"
#include "tests/slow.h"
#include "tests/unit/bound_helper.h"
#include "tests/unit/suite.h"

/* ONES, ANOTHERS: two other users have the port */
enum answer { TRUTH, NOBODYS, OURS, NONE, ONES, ANOTHERS };

static const enum answer truth[] = {TRUTH};
/* this thread's next answers; behind the last one: TRUTH */
static __thread const enum answer *script;
static _Atomic bool changing;		   /* for the others */

int __real_registry_lookup(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			   struct registry_owner *out);
int __wrap_registry_lookup(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			   struct registry_owner *out);
bool __wrap_registry_sock_is_gone(struct registry *reg, uint32_t idx, const struct rds_procid *name);

static struct rds_sock *from, *to;
static int from_fd, to_fd;
static struct sockaddr_in name;

int __wrap_registry_lookup(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			   struct registry_owner *out)
{
	enum answer a = atomic_load(&changing) ? NOBODYS : TRUTH;
	int err = __real_registry_lookup(reg, addr, port, scope, out);

	if (script)
		a = *script == TRUTH ? TRUTH : *script++;
	if (port != ntohs(name.sin_port) || a == TRUTH)
		return err;
	out->moved = false;
	out->proc = a == NOBODYS ? REGISTRY_NOBODY : registry_self_slot(reg);
	out->procid = *registry_self(reg);
	if (a >= ONES) {
		out->others = true;
		out->proc = REGISTRY_OTHERS + a;
		out->procid = (struct rds_procid){.b = {(uint8_t)a}};
	}
	return a == NONE ? -ENOENT : 0;
}

bool __wrap_registry_sock_is_gone(struct registry *reg, uint32_t idx, const struct rds_procid *who)
{
	(void)reg;
	(void)idx;
	(void)who;
	return false;
}

static void setup(void)
{
	struct sockaddr_in unused;

	ck_assert_int_eq(rds_call_start_engine(), 0);
	from = bound_here(&from_fd, &unused);
	to = bound_here(&to_fd, &name);
}

static void give(unsigned number, const enum answer *answers)
{
	struct iovec iov = {.iov_base = &number, .iov_len = sizeof(number)};
	struct msghdr msg = {.msg_name = &name, .msg_namelen = sizeof(name), .msg_iov = &iov, .msg_iovlen = 1};

	atomic_fetch_add(&rds_route_gen, 1); /* so that it looks */
	script = answers;
	ck_assert_int_eq(rds_call_sendmsg(from, from_fd, &msg, MSG_DONTWAIT), sizeof(number));
	script = truth;
}

/* Sooner or later. */
static unsigned got(void)
{
	unsigned number = 0;
	struct iovec iov = {.iov_base = &number, .iov_len = sizeof(number)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	test_until((n = rds_call_recvmsg(to, to_fd, &msg, MSG_DONTWAIT)) != -EAGAIN);
	ck_assert_int_eq(n, sizeof(number));
	return number;
}

/*
 * What one send learns, look by look: before it takes the lock, with the lock, for waiting messages
 * (twice if no process has the port), and once more.
 */
static const enum answer scripts[][8] = {
	{OURS, OURS, NOBODYS, NOBODYS, OURS},
	{NONE, OURS, NOBODYS, NOBODYS, OURS},
	{OURS, OURS, NOBODYS, NOBODYS, NONE}, /* it would not come at all */
	{NONE, NONE, NOBODYS, NOBODYS, OURS},
	{NONE, NONE, NOBODYS, NOBODYS, NONE},
	{OURS, OURS, OURS, NONE, NONE}, /* round to ourselves, where the socket still is */
	{OURS, OURS, OURS, OURS},
};

START_TEST(test_changes_between_looks)
{
	static const enum answer waits[] = {NOBODYS, NOBODYS, NOBODYS, NOBODYS, TRUTH};
	unsigned i;

	atomic_store(&changing, true);
	give(1, waits);
	give(2, waits);
	ck_assert_ptr_null(to->rx_head);
	give(3, scripts[_i]);
	atomic_store(&changing, false);
	give(4, truth);
	for (i = 1; i <= 4; i++)
		ck_assert_uint_eq(got(), i);
}
END_TEST

/*
 * A process had the port a moment ago, so the address is this host's: no message to it waits for
 * the address to appear.
 */
START_TEST(test_owner_ends_between_looks)
{
	static const enum answer waits[] = {NOBODYS, NOBODYS, NOBODYS, NOBODYS, TRUTH};
	static const enum answer ends[] = {OURS, OURS, NONE, NONE, TRUTH};
	struct rds_conn *conn;

	atomic_store(&changing, true);
	give(1, waits);
	give(2, ends); /* round to ourselves, where the socket still is */
	rds_lock(&rds_lock_control);
	for (conn = rds_conn_list; conn; conn = conn->next)
		ck_assert(conn->kind != RDS_CONN_UNROUTED || (!conn->queue && !conn->unrouted_logged));
	rds_unlock(&rds_lock_control);
	ck_assert_uint_eq(got(), 1);
	ck_assert_uint_eq(got(), 2);
}
END_TEST

/* A message to port 1 of our address that waits for a process of that user. */
static struct rds_conn *waits_for(enum answer user)
{
	struct rds_conn_id id = {.laddr = from->laddr.ip,
				 .faddr = from->laddr.ip,
				 .peer = {.b = {(uint8_t)user}},
				 .peer_slot = REGISTRY_OTHERS + user};
	struct rds_conn_outgoing out = {.hdr = {.dport = 1}, .u = {.sk = from, .dport = 1}};
	struct rds_conn *conn;
	int err;

	conn = rds_conn_get_locked(RDS_CONN_PEER, &id, &err);
	ck_assert_ptr_nonnull(conn);
	rds_sock_snd_add(from, 0);
	rds_lock(&conn->tx);
	ck_assert_int_eq(rds_conn_xmit(conn, &out), 0);
	rds_unlock(&conn->tx);
	return conn;
}

/* That user has the port when a message to ONES's port has to look for it anew: how many are left? */
static unsigned looks_again(enum answer user)
{
	const enum answer answers[] = {user, user, TRUTH};
	struct rds_conn *conn = waits_for(ONES), *unrouted;
	struct rds_conn_id id = conn->id;
	struct rds_queue_item *list;
	unsigned n = 0;
	int err;

	rds_lock(&conn->tx);
	ck_assert(rds_queue_take_port(conn, 1, 0, &list));
	rds_unlock(&conn->tx);
	ck_assert_ptr_nonnull(list);
	rds_route_requeue(&id, list, true);
	id.peer = (struct rds_procid){.b = {0}};
	id.peer_slot = 0;
	unrouted = rds_conn_get_locked(RDS_CONN_UNROUTED, &id, &err);
	ck_assert_uint_eq(unrouted->queue_len, 1);
	script = answers;
	rds_route_hand_over(unrouted, true);
	script = truth;
	for (conn = rds_conn_list; conn; conn = conn->next)
		n += conn->queue_len;
	return n;
}

START_TEST(test_of_whom)
{
	static const struct {
		enum answer user;
		unsigned left;
	} cases[] = {{ONES, 1}, {NOBODYS, 1}, {ANOTHERS, 0}, {OURS, 0}, {NONE, 0}};

	name.sin_port = htons(1);
	rds_lock(&rds_lock_control);
	ck_assert_uint_eq(looks_again(cases[_i].user), cases[_i].left);
	rds_unlock(&rds_lock_control);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("handover");
	TCase *t = suite_case(s, "handover", setup, NULL);

	tcase_add_loop_test(t, test_changes_between_looks, 0, (int)(sizeof(scripts) / sizeof(scripts[0])));
	tcase_add_test(t, test_owner_ends_between_looks);
	tcase_add_loop_test(t, test_of_whom, 0, 5);
	return suite_run(s);
}
