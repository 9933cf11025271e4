/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_relay_had.c - what another host sends again, after the process that had its connection has ended: who
 * has had it takes it once, whoever relays it (conn/relay_had.c).
 */
#include <arpa/inet.h>
#include <check.h>

#include "engine/conn/relay.h"
#include "tests/unit/suite.h"

static struct rds_conn conn;
static struct rds_conn_seldom seldom;

static void setup(void)
{
	memset(&conn, 0, sizeof(conn));
	memset(&seldom, 0, sizeof(seldom));
	conn.seldom = &seldom;
	conn.relay = RDS_RELAY_OWNER;
	inet_pton(AF_INET6, "::ffff:10.9.0.1", &conn.id.laddr);
	inet_pton(AF_INET6, "::ffff:10.9.0.2", &conn.id.faddr);
	rds_relay_had_forget();
}

static struct rds_hdr of_node(uint64_t seq, bool again)
{
	return (struct rds_hdr){.seq = seq, .flags = again ? RDS_FLAG_RETRANSMITTED : 0};
}

/* As the owner gives it to a member. */
static struct rds_hdr relayed(uint32_t gen, uint64_t seq, bool again)
{
	struct rds_hdr h = of_node(seq, again);

	return (struct rds_hdr){
		.seq = 1, .ext_type = RDS_EXTHDR_RELAYED, .ext_rkey = gen, .ext_offset = rds_relay_number(&h)};
}

/* False: it was had before. */
static bool comes(struct rds_hdr h)
{
	if (rds_relay_had(&conn, &h))
		return false;
	rds_relay_note(&conn, &h);
	return true;
}

START_TEST(test_again)
{
	ck_assert(comes(relayed(7, 100, false)));
	ck_assert(!comes(relayed(7, 100, true)));
	ck_assert(!comes(relayed(0, 100, true))); /* the next owner has not been told the generation yet */
	ck_assert(comes(relayed(7, 101, true)));
	conn.id.peer.b[0]++;
	ck_assert(!comes(relayed(7, 101, false))); /* a former owner had given it to us, too */
	ck_assert(comes(relayed(0, 101, false)));  /* the host has begun anew, perhaps, and does not say so */
	ck_assert(!comes(relayed(7, 101, true)));
}
END_TEST

/* The registry did not tell that it is the owner.  A process of another host is none. */
START_TEST(test_unknown_owner)
{
	ck_assert(comes(relayed(7, 100, false)));
	conn.relay = RDS_RELAY_NONE;
	conn.id.peer.b[0]++;
	ck_assert(!comes(relayed(7, 100, true)));
	ck_assert(comes(relayed(7, 101, true)));
	conn.id.peer_slot = RDS_SLOT_REMOTE;
	ck_assert(comes(relayed(7, 101, true)));
}
END_TEST

/* One owner gives it to us behind newer ones: a port has changed hands. */
START_TEST(test_waited)
{
	ck_assert(comes(relayed(7, 5, false)));
	ck_assert(comes(relayed(7, 9, false)));
	ck_assert(comes(relayed(7, 6, false)));
	conn.id.peer.b[0]++; /* or the next one does */
	ck_assert(!comes(relayed(7, 5, true)));
	ck_assert(!comes(relayed(7, 6, true)));
	ck_assert(comes(relayed(7, 7, true)));
	ck_assert(comes(relayed(7, 8, true)));
	ck_assert(!comes(relayed(7, 9, true)));
	ck_assert(comes(relayed(7, 10, false)));
	conn.id.peer.b[0]--; /* what the first one had sent */
	ck_assert(!comes(relayed(7, 7, false)));
	ck_assert(!comes(relayed(7, 9, false)));
}
END_TEST

/* With the same generation, or after so many messages for others that the number has wrapped. */
START_TEST(test_begins_anew)
{
	ck_assert(comes(relayed(7, 3, false)));
	ck_assert(comes(relayed(7, 100000, false)));
	ck_assert(comes(relayed(7, 3, false)));
	ck_assert(comes(relayed(7, 4, true)));
	ck_assert(!comes(relayed(7, 4, true)));
	ck_assert(comes(relayed(7, 4, false)));
	conn.id.peer.b[0]++;
	ck_assert(comes(relayed(7, 0x70000000u, false)));
	ck_assert(comes(relayed(7, 0x70000001u, true)));
	ck_assert(comes(relayed(7, 0x70010000u, true)));
	ck_assert(!comes(relayed(7, 0x70000002u, true))); /* too old to be told apart */
	ck_assert(comes(relayed(7, 0x7000f000u, true)));
	ck_assert(!comes(relayed(7, 0x7000f000u, true)));
}
END_TEST

/* Another generation counts from the beginning. */
START_TEST(test_generations)
{
	ck_assert(comes(relayed(7, 100, false)));
	ck_assert(comes(relayed(8, 3, true)));
	ck_assert(!comes(relayed(8, 3, true)));
	ck_assert(comes(relayed(8, 4, true)));
}
END_TEST

/* 31 bits of the number go with it. */
START_TEST(test_wraps)
{
	ck_assert(comes(relayed(7, 0x7ffffffeu, false)));
	ck_assert(comes(relayed(7, 0x80000001u, true)));
	ck_assert(!comes(relayed(7, 0x7ffffffeu, true)));
	ck_assert(comes(relayed(7, 0xb0000000u, false)));
	ck_assert(comes(relayed(7, 0xe0000000u, false)));
	ck_assert(comes(relayed(7, 0xffffffffu, false)));
	ck_assert(comes(relayed(7, 0x100000000u, true)));
}
END_TEST

/* A member becomes the owner: what it had through the last one, and what comes to itself now. */
START_TEST(test_becomes_owner)
{
	ck_assert(comes(relayed(7, 100, false)));
	conn.relay = RDS_RELAY_NODE;
	ck_assert(!comes(of_node(100, true)));
	ck_assert(comes(of_node(101, true)));
	seldom.peer_gen = 7;
	ck_assert(!comes(of_node(101, true)));
	seldom.peer_gen = 9;
	ck_assert(comes(of_node(2, true)));
}
END_TEST

/* Other hosts, other addresses of this one, and peers that say nothing of it. */
START_TEST(test_others)
{
	ck_assert(comes(relayed(7, 100, false)));
	inet_pton(AF_INET6, "::ffff:10.9.0.3", &conn.id.faddr);
	ck_assert(comes(relayed(7, 100, true)));
	inet_pton(AF_INET6, "::ffff:10.9.0.4", &conn.id.laddr);
	ck_assert(comes(relayed(7, 100, true)));
	conn.id.scope = 2;
	ck_assert(comes(relayed(7, 100, true)));
	ck_assert(!comes(relayed(7, 100, true)));
	ck_assert(comes(of_node(100, true)));
}
END_TEST

/* Whoever invents hosts gets so much memory, and no more. */
START_TEST(test_many_hosts)
{
	unsigned i;

	for (i = 0; i < 5000; i++) {
		conn.id.faddr.s6_addr32[3] = htonl(0x0a0a0000u + i);
		ck_assert(comes(relayed(7, 100, false)));
		ck_assert_int_eq(!comes(relayed(7, 100, true)), i < 4096);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("relay_had");
	TCase *tc = suite_case(s, "relay_had", setup, NULL);

	tcase_add_test(tc, test_again);
	tcase_add_test(tc, test_unknown_owner);
	tcase_add_test(tc, test_waited);
	tcase_add_test(tc, test_begins_anew);
	tcase_add_test(tc, test_generations);
	tcase_add_test(tc, test_wraps);
	tcase_add_test(tc, test_becomes_owner);
	tcase_add_test(tc, test_others);
	tcase_add_test(tc, test_many_hosts);
	return suite_run(s);
}
