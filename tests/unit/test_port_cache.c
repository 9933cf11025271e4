/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_port_cache.c - which process of another host has which port (conn/port_cache.c): states, bounds,
 * and when entries are forgotten.
 */
#include <check.h>
#include <stdlib.h>

#include "engine/conn/port_cache.h"
#include "tests/mock/clock.h"
#include "tests/unit/suite.h"

#define MS 1000000ull

static struct rds_addr at(unsigned host, uint16_t port)
{
	struct rds_addr a = {.port = port};

	a.ip.s6_addr[10] = a.ip.s6_addr[11] = 0xff;
	a.ip.s6_addr[12] = 10;
	a.ip.s6_addr[14] = (uint8_t)(host >> 8);
	a.ip.s6_addr[15] = (uint8_t)host;
	return a;
}

static struct rds_route_port_owner proc(uint8_t n)
{
	struct rds_route_port_owner o = {.cm_port = (uint16_t)(7000 + n)};

	o.proc.b[0] = n;
	return o;
}

START_TEST(test_asked_and_answered)
{
	struct rds_addr a = at(1, 5), b = at(1, 6);
	struct rds_route_port_owner o = proc(1), got;

	mock_clock_stop();
	ck_assert_int_eq(rds_route_port_get(&a, &got), RDS_PORT_UNKNOWN);
	ck_assert(rds_route_port_ask(&a));
	ck_assert_int_eq(rds_route_port_get(&a, &got), RDS_PORT_ASKED);
	ck_assert_int_eq(rds_route_port_get(&b, &got), RDS_PORT_UNKNOWN);
	rds_route_port_found(&a, &o);
	ck_assert_int_eq(rds_route_port_get(&a, &got), RDS_PORT_FOUND);
	ck_assert_mem_eq(&got, &o, sizeof(o));

	ck_assert(rds_route_port_ask(&b));
	rds_route_port_absent(&b);
	ck_assert_int_eq(rds_route_port_get(&b, &got), RDS_PORT_ABSENT);
	mock_clock_pass(99 * MS);
	ck_assert_int_eq(rds_route_port_get(&b, &got), RDS_PORT_ABSENT);
	mock_clock_pass(MS); /* what is not there is not there for long */
	ck_assert_int_eq(rds_route_port_get(&b, &got), RDS_PORT_UNKNOWN);

	ck_assert(rds_route_port_ask(&b));
	rds_route_port_failed(&b);
	ck_assert_int_eq(rds_route_port_get(&b, &got), RDS_PORT_UNKNOWN);
	ck_assert_uint_eq(rds_route_ports_count(), 1);
}
END_TEST

START_TEST(test_moved)
{
	struct rds_addr a = at(1, 5);
	struct rds_route_port_owner o = proc(1), p = proc(2), got;
	struct rds_procid was;

	rds_route_port_found(&a, &o);
	rds_route_port_moved(&a, &p.proc); /* it never had it */
	ck_assert_int_eq(rds_route_port_get(&a, &got), RDS_PORT_FOUND);
	ck_assert(!rds_route_port_previous(&a, &was));
	rds_route_port_moved(&a, &o.proc);
	ck_assert_int_eq(rds_route_port_get(&a, &got), RDS_PORT_UNKNOWN);
	ck_assert(rds_route_port_previous(&a, &was));
	ck_assert_mem_eq(&was, &o.proc, sizeof(was));
	ck_assert(rds_route_port_ask(&a));
	rds_route_port_failed(&a);
	ck_assert(rds_route_port_previous(&a, &was)); /* still under way to it */
	rds_route_port_found(&a, &p);
	ck_assert(rds_route_port_previous(&a, &was));
	rds_route_ports_drop_proc(&o.proc);
	ck_assert(!rds_route_port_previous(&a, &was));
	ck_assert_int_eq(rds_route_port_get(&a, &got), RDS_PORT_FOUND);
	rds_route_ports_drop_proc(&p.proc);
	ck_assert_int_eq(rds_route_port_get(&a, &got), RDS_PORT_UNKNOWN);
	rds_route_port_found(&a, &o);
	rds_route_port_moved(&a, &o.proc);
	rds_route_port_found(&a, &o); /* and back */
	ck_assert(!rds_route_port_previous(&a, &was));
}
END_TEST

/*
 * Not more than 64 questions at once, not more than 65536 answers; the oldest go, questions never.
 */
START_TEST(test_bounds)
{
	struct rds_route_port_owner o = proc(1), got;
	struct rds_addr a;
	unsigned i;

	for (i = 0; i < 64; i++) {
		a = at(9, (uint16_t)(i + 1));
		ck_assert(rds_route_port_ask(&a));
	}
	a = at(9, 100);
	ck_assert(!rds_route_port_ask(&a));
	for (i = 0; i < 70000; i++) {
		a = at(1 + i / 60000, (uint16_t)(i % 60000));
		rds_route_port_found(&a, &o);
	}
	ck_assert_uint_eq(rds_route_ports_count(), 65536);
	for (i = 0; i < 64; i++) {
		a = at(9, (uint16_t)(i + 1));
		ck_assert_int_eq(rds_route_port_get(&a, &got), RDS_PORT_ASKED);
	}
	a = at(1, 0);
	ck_assert_int_eq(rds_route_port_get(&a, &got), RDS_PORT_UNKNOWN);
	a = at(2, 9999);
	ck_assert_int_eq(rds_route_port_get(&a, &got), RDS_PORT_FOUND);
	a = at(9, 1);
	rds_route_port_failed(&a);
	a = at(9, 100);
	ck_assert(rds_route_port_ask(&a));
	rds_route_ports_drop_proc(&o.proc);
	ck_assert_uint_eq(rds_route_ports_count(), 64);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("port_cache");
	TCase *tc = tcase_create("ports");

	tcase_add_test(tc, test_asked_and_answered);
	tcase_add_test(tc, test_moved);
	tcase_add_test(tc, test_bounds);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
