/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_cong.c - the congested ports of an address, from the process that has them to a sender
 * (conn/cong.c): as a list and as a map, whatever the list says, and without memory for a map
 * (linked with --wrap=calloc, --wrap=registry_sock_set_congested).
 */
#include <arpa/inet.h>
#include <check.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "engine/conn/conn.h"
#include "engine/conn/outgoing.h"
#include "tests/unit/suite.h"

#define SOCKS 200u

static bool no_map; /* there is no memory for one */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void __wrap_registry_sock_set_congested(struct registry *reg, uint32_t idx, bool congested);

void *__wrap_calloc(size_t n, size_t size)
{
	return no_map && size == sizeof(struct rds_cong_map) ? NULL : __real_calloc(n, size);
}

void __wrap_registry_sock_set_congested(struct registry *reg, uint32_t idx, bool congested)
{
	(void)reg, (void)idx, (void)congested;
}

/* ---- two processes: one has the sockets, the other sends to them ---- */

static struct rds_conn here, there;
static struct rds_sock sk[SOCKS];
static struct rds_hdr sent; /* the last message from here, and its bytes */
static unsigned char bytes[RDS_CONG_MAP_BYTES];

static int fake_send(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		     uint64_t *pos)
{
	(void)ep, (void)pos;
	ck_assert_int_eq(rds_wire_hdr_decode(wire, &sent), 0);
	ck_assert_uint_eq(sent.flags, RDS_FLAG_CONG_BITMAP);
	ck_assert_uint_eq(sent.len, len);
	ck_assert_uint_eq(iov->iov_len, len);
	memcpy(bytes, iov->iov_base, len);
	return 0;
}

static void fake_flush(struct rds_ep *ep, bool service)
{
	(void)ep;
	ck_assert(service);
}

static const struct rds_transport_ops ops = {.send = fake_send, .flush = fake_flush};
static struct rds_transport transport = {.ops = &ops};
static struct rds_ep_head endpoint = {.t = &transport};

/* All over the range; the last ones of a word, too. */
static uint16_t port_of(unsigned i)
{
	return i ? (uint16_t)(i * 327 + 127) : 63;
}

static void setup(void)
{
	unsigned i;

	os_process_start();
	rds_cong_forget();
	no_map = false;
	memset(&here, 0, sizeof(here));
	memset(&there, 0, sizeof(there));
	memset(sk, 0, sizeof(sk));
	here.kind = there.kind = RDS_CONN_PEER;
	here.t = &transport;
	here.ep = (struct rds_ep *)&endpoint;
	atomic_store(&here.state, RDS_CONN_UP);
	inet_pton(AF_INET6, "::ffff:10.0.0.1", &here.id.laddr);
	inet_pton(AF_INET6, "::ffff:10.0.0.2", &there.id.laddr);
	rx_lock();
	ck_assert_int_eq(rds_cong_attach(&here), 0);
	ck_assert_int_eq(rds_cong_attach(&there), 0);
	rx_unlock();
	for (i = 0; i < SOCKS; i++) {
		sk[i].set_laddr.ip = here.id.laddr;
		sk[i].set_laddr.port = port_of(i);
		RDS_SOCK_SET(&sk[i], rcvbuf, 1000);
		RDS_SOCK_SET(&sk[i], transport, RDS_TRANS_TCP);
	}
}

static void teardown(void)
{
	rx_lock();
	rds_cong_detach(&here);
	rds_cong_detach(&there);
	rx_unlock();
	ck_assert(!atomic_load(&there.fcong.map) && !atomic_load(&there.fcong.few));
}

/* The first n are full, no other. */
static void full(unsigned n)
{
	unsigned i;

	rx_lock();
	for (i = 0; i < SOCKS; i++) {
		sk[i].rcv_bytes = i < n ? 1000 : 0;
		rds_cong_check(&sk[i]);
	}
	rx_unlock();
}

static void received(const void *data, uint32_t len)
{
	struct rds_rx rx = {.hdr = {.len = len, .flags = RDS_FLAG_CONG_BITMAP}, .data = data};
	uint64_t gen = atomic_load(&rds_sock_cong_gen);

	rx_lock();
	ck_assert_int_eq(rds_conn_receive(&there, (struct rds_ep *)&endpoint, &rx), RDS_RX_DONE);
	rx_unlock();
	ck_assert_uint_eq(atomic_load(&rds_sock_cong_gen), gen + 1); /* sleepers look again */
}

/* Senders find these to be congested, and no other port. */
static void congested(unsigned n)
{
	uint64_t ports = 0;
	unsigned port, i, found = 0;

	for (port = 0; port < 65536; port++)
		found += rds_cong_far_has(&there.fcong, (uint16_t)port);
	ck_assert_uint_eq(found, n);
	for (i = 0; i < n; i++) {
		ck_assert(rds_cong_far_has(&there.fcong, port_of(i)));
		ports |= 1ull << port_of(i) % 64;
	}
	ck_assert_uint_eq(rds_cong_ports(&there), ports);
}

static void tell(void)
{
	ck_assert_int_eq(rds_conn_xmit_map(&here), 0);
	received(bytes, sent.len);
}

static const unsigned numbers[] = {0, 1, 3, 4, 5, 63, 64, 65, SOCKS};
#define NUMBERS ((int)(sizeof(numbers) / sizeof(numbers[0])))

/* A list as long as the longest one allows, and no map of 8 KiB for what fits a word. */
START_TEST(test_told)
{
	unsigned n = numbers[_i];

	tell();
	ck_assert_uint_eq(sent.len, 0);
	congested(0);
	full(n);
	tell();
	ck_assert_uint_eq(sent.len, n > 64 ? RDS_CONG_MAP_BYTES : 2 * n);
	ck_assert(!atomic_load(&there.fcong.map) == (n <= 4));
	congested(n);
	full(2); /* from a map as well */
	tell();
	ck_assert_uint_eq(sent.len, 4);
	congested(2);
	full(n);
	tell();
	congested(n);
	full(0);
	tell();
	ck_assert_uint_eq(sent.len, 0);
	congested(0);
}
END_TEST

/* Ports are big-endian, as everywhere on a wire. */
START_TEST(test_bytes)
{
	full(2);
	ck_assert_int_eq(rds_conn_xmit_map(&here), 0);
	ck_assert_uint_eq(sent.len, 4);
	ck_assert_mem_eq(bytes, ((const unsigned char[]){0, 63, 454 >> 8, 454 & 255}), 4);
}
END_TEST

/* Every length that a header may have. */
START_TEST(test_hostile)
{
	static unsigned char data[RDS_CONG_MAP_BYTES];
	static const uint16_t same[] = {0, 7, 7, 0, 7, 7, 8, 7, 0xffff, 9, 9}; /* four, if they are counted well */
	uint16_t list[64];
	uint32_t i;

	for (i = 0; i < 11; i++)
		list[i] = htobe16(same[i]);
	received(list, 22);
	ck_assert(!atomic_load(&there.fcong.map));
	ck_assert_uint_eq(rds_cong_ports(&there), 1ull << 7 | 1ull << 8 | 1ull << 9 | 1ull << 63);
	ck_assert(rds_cong_far_has(&there.fcong, 0xffff));
	ck_assert(!rds_cong_far_has(&there.fcong, 0));
	memset(list, 0, sizeof(list)); /* 64 times port 0 */
	received(list, sizeof(list));
	ck_assert(!rds_cong_far_has(&there.fcong, 0));
	memset(list, 0xff, sizeof(list));
	received(list, sizeof(list));
	ck_assert_uint_eq(atomic_load(&there.fcong.few), 0xffff);
	memset(data, 0xff, sizeof(data));
	received(data, sizeof(data));
	ck_assert_uint_eq(rds_cong_ports(&there), UINT64_MAX);
	ck_assert(rds_cong_far_has(&there.fcong, 1));
	memset(data, 0, sizeof(data)); /* a map that a list would have done for */
	received(data, sizeof(data));
	congested(0);
}
END_TEST

/* No port that is not full keeps senders away, and the next state is the whole one. */
START_TEST(test_no_memory)
{
	full(1);
	tell();
	full(0);
	ck_assert_uint_eq(here.work_queued, true);
	full(_i ? SOCKS : 5);
	no_map = true;
	tell();
	congested(0);
	full(4);
	tell();
	congested(4);
	no_map = false;
	full(_i ? SOCKS : 5);
	tell();
	congested(_i ? SOCKS : 5);
	no_map = true; /* it has one */
	full(6);
	tell();
	congested(6);
}
END_TEST

/* On a loop connection a sender sees the local map itself. */
START_TEST(test_loop)
{
	static struct rds_conn loop;

	memset(&loop, 0, sizeof(loop));
	loop.kind = RDS_CONN_LOOP;
	loop.id.laddr = loop.id.faddr = here.id.laddr;
	rx_lock();
	ck_assert_int_eq(rds_cong_attach(&loop), 0);
	rx_unlock();
	ck_assert(!rds_cong_far_has(&loop.fcong, port_of(1)));
	full(2);
	ck_assert(rds_cong_far_has(&loop.fcong, port_of(1)));
	ck_assert(!rds_cong_far_has(&loop.fcong, port_of(2)));
	full(0);
	ck_assert(!rds_cong_far_has(&loop.fcong, port_of(1)));
	rx_lock();
	rds_cong_detach(&loop); /* the local map stays */
	rx_unlock();
	full(1);
	tell();
	congested(1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cong");
	TCase *t = suite_case(s, "cong", setup, teardown);

	tcase_add_loop_test(t, test_told, 0, NUMBERS);
	tcase_add_test(t, test_bytes);
	tcase_add_test(t, test_hostile);
	tcase_add_loop_test(t, test_no_memory, 0, 2);
	tcase_add_test(t, test_loop);
	return suite_run(s);
}
