/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_handoff_unsent.c - unsent messages that are handed off with a socket, as they lie in the parked state
 * (share/handoff_unsent.c).  Written and read they are the same.  Invalid data that another process
 * may have written are an error.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/conn/outgoing.h"
#include "engine/share/handoff.h"
#include "engine/rdma/rdma.h"
#include "tests/unit/suite.h"

static struct rds_sock sock;
static char file[4096];
static size_t len;

static void setup(void)
{
	memset(&sock, 0, sizeof(sock));
	len = 0;
}

static void add(const struct rds_share_unsent *m, size_t bytes)
{
	memcpy(file + len, m, sizeof(*m));
	memset(file + len + sizeof(*m), 'x', bytes);
	len += sizeof(*m) + bytes;
}

static int get(uint32_t n)
{
	const char *at = file;

	return rds_handoff_unsent_get(&sock, &at, file + len, n);
}

static void ck_refused(uint32_t n)
{
	ck_assert_int_eq(get(n), -EPROTO);
	rds_handoff_unsent_drop(&sock, false);
	ck_assert_ptr_null(sock.handoff);
}

START_TEST(test_whole)
{
	struct rds_share_unsent m = {
		.to.port = 7, .len = 10, .tos = 3, .told = RDS_REPORT_ZCOPY, .zcookie = 5, .sock = 90};
	int fd = memfd_create("along", MFD_CLOEXEC);
	struct rds_queue_item *q;
	off_t size = 0;
	char back[4096];

	add(&m, 10);
	m.to.port = 8;
	m.told = RDS_REPORT_END;
	m.token = 77;
	m.notify = 1;
	m.has_cookie = 1;
	m.cookie = rds_cookie(0x1234, 0x99);
	m.len = 0;
	m.zcookie = 0;
	add(&m, 0);
	ck_assert_int_eq(get(2), 0);
	q = sock.handoff;
	ck_assert_uint_eq(q->u.dport, 7);
	ck_assert_uint_eq(q->hdr.len, 10);
	ck_assert_uint_eq(q->u.zcookie, 5);
	ck_assert_uint_eq(q->u.sock, 90);
	ck_assert_uint_eq(q->next->hdr.ext_rkey, 0x1234);
	ck_assert_uint_eq(q->next->handoff.token, 77);
	ck_assert_ptr_null(q->next->next);
	ck_assert_uint_eq(rds_handoff_unsent_put(&sock, fd, &size), 2);
	ck_assert_uint_eq((size_t)size, len);
	ck_assert_int_eq(pread(fd, back, sizeof(back), 0), (ssize_t)len);
	ck_assert_mem_eq(back, file, len);
	rds_handoff_unsent_drop(&sock, false);
	close(fd);
}
END_TEST

START_TEST(test_nonsense)
{
	const struct rds_share_unsent good = {.to.port = 7, .len = 10};
	struct rds_share_unsent m = good;

	ck_refused(1); /* nothing is there */
	add(&good, 10);
	ck_refused(2);
	ck_refused(UINT32_MAX);
	len--;
	ck_refused(1); /* a byte is missing */
	len = sizeof(m) - 1;
	ck_refused(1);
	len = 0;
	m.len = UINT32_MAX;
	add(&m, 10);
	ck_refused(1);
	len = 0;
	m = good;
	m.told = 0x80;
	add(&good, 10);
	add(&m, 10);
	ck_refused(2); /* the first was good */
}
END_TEST

/* One that waits in that connection's queue. */
static void queued(struct rds_conn *conn, uint16_t port)
{
	struct rds_queue_item *q = calloc(1, sizeof(*q));

	ck_assert_ptr_nonnull(q);
	q->u.sk = &sock;
	q->u.dport = q->hdr.dport = port;
	*conn->queue_tail = q;
	conn->queue_tail = &q->next;
	conn->queue_len++;
}

static void conn_init(struct rds_conn *conn, enum rds_conn_kind kind, struct rds_conn *next)
{
	memset(conn, 0, sizeof(*conn));
	conn->kind = kind;
	conn->next = next;
	conn->queue_tail = &conn->queue;
	rds_lock_init(&conn->tx, RDS_LOCK_CONN_TX);
}

/*
 * Those that wait for their port to be found are newer, wherever their connection stands in the
 * list.
 */
START_TEST(test_order)
{
	static const uint16_t order[] = {1, 2, 3, 4, 5};
	static struct rds_conn conn[3];
	struct rds_queue_item *q;
	unsigned i;

	os_process_start();
	conn_init(&conn[2], RDS_CONN_PEER, NULL);
	conn_init(&conn[1], RDS_CONN_UNROUTED, &conn[2]);
	conn_init(&conn[0], RDS_CONN_PEER, &conn[1]);
	rds_conn_list = &conn[0];
	queued(&conn[0], 1);
	queued(&conn[0], 2);
	queued(&conn[1], 4);
	queued(&conn[1], 5);
	queued(&conn[2], 3);
	atomic_store(&sock.snd, 1);
	ck_assert_uint_eq(rds_handoff_unsent_take(&sock), 5);
	for (q = sock.handoff, i = 0; q; q = q->next, i++)
		ck_assert_uint_eq(q->handoff.to.port, order[i]);
	ck_assert_uint_eq(i, 5);
	for (i = 0; i < 3; i++)
		ck_assert_ptr_null(conn[i].queue);
	rds_handoff_unsent_drop(&sock, false);
}
END_TEST

/*
 * A message to another host has a number there instead of its receiver's.  One that a former owner of the address may
 * have taken is not handed off: only this process can tell.
 */
START_TEST(test_counted)
{
	static struct rds_conn conn;
	struct rds_transport_ops ops = {.caps = RDS_TCAP_SURVIVES};
	struct rds_transport t = {.ops = &ops};
	int fd = memfd_create("along", MFD_CLOEXEC);
	struct rds_share_unsent m;
	off_t size = 0;

	os_process_start();
	conn_init(&conn, RDS_CONN_UNROUTED, NULL);
	conn.t = &t;
	rds_conn_list = &conn;
	queued(&conn, 1);
	queued(&conn, 2);
	conn.queue->u.counted = conn.queue->u.given = true;
	conn.queue->next->u.counted = true;
	conn.queue->next->u.sock = 77;
	atomic_store(&sock.snd, 1);
	ck_assert(rds_conn_has_unsent(&conn));
	ck_assert_uint_eq(rds_handoff_unsent_take(&sock), 1);
	ck_assert_uint_eq(conn.queue->u.dport, 1);
	ck_assert_uint_eq(rds_handoff_unsent_put(&sock, fd, &size), 1);
	ck_assert_int_eq(pread(fd, &m, sizeof(m), 0), sizeof(m));
	ck_assert_uint_eq(m.to.port, 2);
	ck_assert_uint_eq(m.sock, 0);
	conn.queue->u.given = false;
	ck_assert(!rds_conn_has_unsent(&conn));
	rds_handoff_unsent_drop(&sock, false);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("handoff_unsent");
	TCase *t = suite_case(s, "along", setup, NULL);

	tcase_add_test(t, test_whole);
	tcase_add_test(t, test_nonsense);
	tcase_add_test(t, test_order);
	tcase_add_test(t, test_counted);
	return suite_run(s);
}
