/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_lean.c - what only some connections need, and get when they need it (struct rds_conn_rdma,
 * struct rds_conn_seldom): without memory for it a call is refused, what has come is offered again,
 * and what changes its connection waits (linked with --wrap=calloc, --wrap=registry_lookup,
 * --wrap=registry_sock_is_gone).
 */
#include <arpa/inet.h>
#include <check.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/calls/start.h"
#include "engine/conn/outgoing.h"
#include "engine/rdma/rdma.h"
#include "tests/slow.h"
#include "tests/unit/bound_helper.h"
#include "tests/unit/suite.h"

static _Atomic size_t without; /* no memory for this size */
static _Atomic bool changing;  /* the port has no owner for the moment */
static struct sockaddr_in name;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
int __real_registry_lookup(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			   struct registry_owner *out);
int __wrap_registry_lookup(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			   struct registry_owner *out);
int __real_registry_lookup_nowait(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
				  struct registry_owner *out);
int __wrap_registry_lookup_nowait(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
				  struct registry_owner *out);
bool __wrap_registry_sock_is_gone(struct registry *reg, uint32_t idx, const struct rds_procid *who);

void *__wrap_calloc(size_t n, size_t size)
{
	return n * size == atomic_load(&without) ? NULL : __real_calloc(n, size);
}

int __wrap_registry_lookup(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			   struct registry_owner *out)
{
	int err = reg ? __real_registry_lookup(reg, addr, port, scope, out) : -ENOENT;

	if (!err && port == ntohs(name.sin_port) && atomic_load(&changing))
		out->proc = REGISTRY_NOBODY;
	return err;
}

int __wrap_registry_lookup_nowait(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
				  struct registry_owner *out)
{
	return reg ? __real_registry_lookup_nowait(reg, addr, port, scope, out) : -ENOENT;
}

bool __wrap_registry_sock_is_gone(struct registry *reg, uint32_t idx, const struct rds_procid *who)
{
	(void)reg, (void)idx, (void)who;
	return false;
}

/* ---- two sockets of this process ---- */

static struct rds_sock *from, *to;
static int from_fd, to_fd;
static unsigned char bytes[100], region[100];
static uint64_t cookie;

static void setup(void)
{
	struct rds_get_mr_args mr = {.vec = {(uintptr_t)region, sizeof(region)},
				     .cookie_addr = (uintptr_t)&cookie,
				     .flags = RDS_RDMA_READWRITE};
	struct sockaddr_in unused;

	ck_assert_int_eq(rds_call_start_engine(), 0);
	from = bound_here(&from_fd, &unused);
	to = bound_here(&to_fd, &name);
	ck_assert_int_eq(rds_call_setsockopt(to, to_fd, SOL_RDS, RDS_GET_MR, &mr, sizeof(mr)), 0);
	memset(bytes, 7, sizeof(bytes));
}

/* A message of a number, with a write into the region if there are bytes. */
static ssize_t give(unsigned number, size_t len)
{
	struct rds_iovec local = {(uintptr_t)bytes, len};
	struct rds_rdma_args args = {.cookie = cookie,
				     .remote_vec = {0, len},
				     .local_vec_addr = (uintptr_t)&local,
				     .nr_local = 1,
				     .flags = RDS_RDMA_READWRITE};
	union {
		struct cmsghdr hdr;
		unsigned char bytes[CMSG_SPACE(sizeof(args))];
	} control = {
		.hdr = {.cmsg_len = CMSG_LEN(sizeof(args)), .cmsg_level = SOL_RDS, .cmsg_type = RDS_CMSG_RDMA_ARGS}};
	struct iovec iov = {.iov_base = &number, .iov_len = sizeof(number)};
	struct msghdr msg = {.msg_name = &name, .msg_namelen = sizeof(name), .msg_iov = &iov, .msg_iovlen = 1};

	memcpy(CMSG_DATA(&control.hdr), &args, sizeof(args));
	if (len) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
	}
	return rds_call_sendmsg(from, from_fd, &msg, MSG_DONTWAIT);
}

static ssize_t take(unsigned *number)
{
	struct iovec iov = {.iov_base = number, .iov_len = sizeof(*number)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	return rds_call_recvmsg(to, to_fd, &msg, MSG_DONTWAIT);
}

/* Sooner or later. */
static void got(unsigned number)
{
	unsigned n = 0;
	ssize_t len;

	test_until((len = take(&n)) != -EAGAIN);
	ck_assert_int_eq(len, sizeof(n));
	ck_assert_uint_eq(n, number);
}

START_TEST(test_call_refused)
{
	unsigned n;

	atomic_store(&without, sizeof(struct rds_conn_rdma));
	ck_assert_int_eq(give(1, 10), -ENOMEM);
	ck_assert_int_eq(rds_sock_snd_bytes(from), 0);
	ck_assert(!atomic_load(&from->nops));
	ck_assert_int_eq(take(&n), -EAGAIN);
	ck_assert_int_eq(give(2, 0), sizeof(n)); /* others need none */
	got(2);
	ck_assert_uint_eq(region[0], 0);
	atomic_store(&without, 0);
	ck_assert_int_eq(give(3, 10), sizeof(n));
	got(3);
	ck_assert_mem_eq(region, bytes, 10);
	ck_assert_uint_eq(region[10], 0);
}
END_TEST

/* The operation, its message and what is behind it wait for it where they are. */
START_TEST(test_waits_to_change)
{
	unsigned n;

	atomic_store(&changing, true);
	ck_assert_int_eq(give(1, 10), sizeof(n));
	atomic_store(&without, sizeof(struct rds_conn_rdma));
	atomic_store(&changing, false);
	atomic_fetch_add(&rds_route_gen, 1); /* so that it looks */
	ck_assert_int_eq(give(2, 0), sizeof(n));
	ck_assert_int_eq(take(&n), -EAGAIN);
	ck_assert_uint_eq(region[0], 0);
	atomic_store(&without, 0);
	got(1);
	got(2);
	ck_assert_mem_eq(region, bytes, 10);
}
END_TEST

/*
 * Messages have to look for their port anew, without memory for the place where they wait: they end
 * with their operations, and nothing holds the region.
 */
START_TEST(test_no_place_to_wait)
{
	struct rds_queue_item *list;
	struct rds_conn_id id;
	struct rds_conn *conn;
	unsigned n;

	atomic_store(&changing, true);
	ck_assert_int_eq(give(1, 10), sizeof(n));
	ck_assert_uint_eq(atomic_load(&from->nops), 1);
	rds_lock(&rds_lock_control);
	for (conn = rds_conn_list; conn && !conn->queue; conn = conn->next)
		;
	ck_assert_ptr_nonnull(conn);
	id = conn->id;
	id.tos ^= 1;
	rds_lock(&conn->tx);
	list = conn->queue;
	conn->queue = NULL;
	conn->queue_tail = &conn->queue;
	conn->queue_len = 0;
	rds_unlock(&conn->tx);
	atomic_store(&without, sizeof(struct rds_conn));
	rds_route_requeue(&id, list, false);
	atomic_store(&without, 0);
	rds_unlock(&rds_lock_control);
	ck_assert_uint_eq(atomic_load(&from->nops), 0);
	ck_assert_int_eq(rds_sock_snd_bytes(from), 0);
	atomic_store(&changing, false);
}
END_TEST

/* ---- what comes over a connection of another process ---- */

static struct rds_conn conn;
static uint64_t acked;

static void fake_ack(struct rds_ep *ep, uint64_t seq)
{
	(void)ep;
	acked = seq;
}

static const struct rds_transport_ops ops = {.caps = RDS_TCAP_REMOTE, .ack = fake_ack};
static struct rds_transport transport = {.ops = &ops};
static struct rds_ep_head endpoint = {.t = &transport};

static void conn_setup(void)
{
	os_process_start();
	memset(&conn, 0, sizeof(conn));
	conn.kind = RDS_CONN_PEER;
	conn.t = &transport;
	conn.ep = (struct rds_ep *)&endpoint;
	atomic_store(&conn.next_rx, 1);
	acked = 0;
}

static enum rds_rx_verdict comes(const struct rds_hdr *hdr, const void *data)
{
	struct rds_rx rx = {.hdr = *hdr, .data = data};
	enum rds_rx_verdict v;

	rx_lock();
	v = rds_conn_receive(&conn, (struct rds_ep *)&endpoint, &rx);
	rx_unlock();
	return v;
}

/* Offered again until there is memory, and not acknowledged before. */
static void offered_again(const struct rds_hdr *hdr, const void *data, size_t size)
{
	atomic_store(&without, size);
	ck_assert_int_eq(comes(hdr, data), RDS_RX_LATER);
	ck_assert_uint_eq(atomic_load(&conn.next_rx), 1);
	ck_assert_uint_eq(acked, 0);
	atomic_store(&without, 0);
	ck_assert_int_eq(comes(hdr, data), RDS_RX_DONE);
	ck_assert_uint_eq(atomic_load(&conn.next_rx), 2);
}

START_TEST(test_ping)
{
	offered_again(&(struct rds_hdr){.seq = 1, .sport = 9}, NULL, sizeof(struct rds_conn_seldom));
	ck_assert_uint_eq(conn.seldom->npongs, 1);
	ck_assert_uint_eq(conn.seldom->pongs[0], 9);
	ck_assert_uint_eq(acked, 1);
}
END_TEST

START_TEST(test_redirect)
{
	static const unsigned char port_5_from_3[RDS_REDIRECT_BYTES] = {0, 0, 0, 0, 0, 0, 0, 3, 0, 5};
	static const unsigned char ack[RDS_REDIRECT_ACK_BYTES] = {0, 0, 0, 0, 0, 0, 0, 3, 0, 5, 1};

	/* an acknowledgement of one that was never sent needs no memory */
	atomic_store(&without, sizeof(struct rds_conn_seldom));
	ck_assert_int_eq(comes(&(struct rds_hdr){.seq = 1, .flags = RDS_FLAG_REDIRECT, .len = sizeof(ack)}, ack),
			 RDS_RX_DONE);
	ck_assert_ptr_null(conn.seldom);
	atomic_store(&conn.next_rx, 1);
	acked = 0;
	offered_again(&(struct rds_hdr){.seq = 1, .flags = RDS_FLAG_REDIRECT, .len = RDS_REDIRECT_BYTES}, port_5_from_3,
		      sizeof(struct rds_conn_seldom));
	ck_assert_uint_eq(atomic_load(&conn.nredirects_in), 1);
	ck_assert(conn.seldom->in[0].seq == 3 && conn.seldom->in[0].port == 5);
	ck_assert_uint_eq(acked, 0); /* it is not done yet */
}
END_TEST

START_TEST(test_redirect_out)
{
	atomic_store(&without, sizeof(struct rds_conn_seldom));
	rx_lock();
	ck_assert(!rds_conn_redirect_begin(&conn, 5));
	atomic_store(&without, 0);
	ck_assert(rds_conn_redirect_begin(&conn, 5));
	rx_unlock();
	ck_assert_uint_eq(atomic_load(&conn.nredirects_out), 1);
	ck_assert(conn.seldom->out[0].seq == 1 && conn.seldom->out[0].port == 5);
}
END_TEST

START_TEST(test_piece)
{
	struct rds_wire_op_hdr h = {.kind = RDS_OP_ADD, .id = 3, .message = 3, .rkey = 1};
	unsigned char piece[RDS_OP_HDR];

	rds_wire_op_encode(&h, piece);
	offered_again(&(struct rds_hdr){.seq = 1, .flags = RDS_FLAG_OP, .len = RDS_OP_HDR}, piece,
		      sizeof(struct rds_conn_rdma));
	ck_assert_uint_eq(conn.rdma->void_op, 3); /* there is no such region */
	ck_assert_uint_eq(conn.seldom->void_message, 3);
	ck_assert_uint_eq(atomic_load(&conn.nanswers), 1);
}
END_TEST

/* A connection without operations takes all that a break and a cancel do to them. */
START_TEST(test_none)
{
	struct rds_addr dst = {.port = 5};

	conn.queue_tail = &conn.queue;
	rds_lock(&conn.tx);
	rds_queue_cancel(&conn, NULL, &dst);
	rx_lock();
	rds_conn_client.ops_broken(&conn, _i);
	rds_op_device_done(&conn, 1, 0, 0, NULL, 0);
	rx_unlock();
	rds_conn_client.answers_flush(&conn);
	rds_conn_client.advertise(&conn);
	rds_unlock(&conn.tx);
	ck_assert_int_eq(comes(&(struct rds_hdr){.seq = 1, .dport = 4, .op = 8}, NULL), RDS_RX_DONE);
	ck_assert(!conn.rdma && !conn.seldom);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lean");
	TCase *t = suite_case(s, "calls", setup, NULL), *c = suite_case(s, "received", conn_setup, NULL);

	tcase_add_test(t, test_call_refused);
	tcase_add_test(t, test_waits_to_change);
	tcase_add_test(t, test_no_place_to_wait);
	tcase_add_test(c, test_ping);
	tcase_add_test(c, test_redirect);
	tcase_add_test(c, test_redirect_out);
	tcase_add_test(c, test_piece);
	tcase_add_loop_test(c, test_none, 0, 2);
	return suite_run(s);
}
