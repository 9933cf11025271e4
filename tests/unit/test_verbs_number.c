/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_number.c - frames are numbered (post_list.h, completion.c).  A frame that a device has
 * lost or delivered twice ends the connection, and what the peer has not been told comes over the
 * next one.
 */
#include <endian.h>
#include <string.h>

#include "tests/mock/world.h"

static struct world_conn *const c = &world.conn[0];

/* ---- what goes ---- */

static uint32_t number_in(const unsigned char *frame)
{
	uint32_t n;

	memcpy(&n, ((const struct rds_wire_hdr *)(const void *)frame)->padding, sizeof(n));
	return be32toh(n);
}

/* All that has come to the peer is numbered from `next` on; how much that was. */
static uint32_t numbered(uint32_t next)
{
	struct ibv_wc wc;
	uint32_t n = 0;

	while (peer_poll(&world.peer, &wc)) {
		if (wc.opcode != IBV_WC_RECV)
			continue;
		ck_assert_uint_eq(number_in(world.peer.mem + wc.wr_id * PEER_BUF), next + n);
		n++;
		peer_post(&world.peer, 1);
	}
	return n;
}

START_TEST(test_each_has_one)
{
	uint32_t said = 1;
	int i;

	ck_assert_int_eq(world_send(c, 10, 0), 0);
	ck_assert_int_eq(world_send(c, 20000, 0), 0); /* three frames */
	world_run();
	said += numbered(said);
	ck_assert_uint_eq(said, 5);
	/* Is answered by one without a message. */
	world_peer_frame(&(struct rds_hdr){.flags = RDS_FLAG_ACK_REQUIRED}, NULL, 0);
	world_run();
	said += numbered(said);
	ck_assert_uint_eq(said, 6);
	for (i = 0; i < 40; i++) /* which share frames or not */
		ck_assert_int_eq(world_send(c, 100, 0), 0);
	world_run();
	ck_assert_uint_gt(numbered(said), 0);
}
END_TEST

/* Over the next connection they begin anew. */
START_TEST(test_anew)
{
	ck_assert_int_eq(world_send(c, 10, 0), 0);
	world_run();
	ck_assert_uint_eq(numbered(1), 1);
	world_close(c);
	world_pass(2000 * MS);
	peer_drop_id(&world.peer);
	world_join(&world.conn[1], 32, 32);
	ck_assert_int_eq(world_send(&world.conn[1], 10, 0), 0);
	world_run();
	ck_assert_uint_eq(numbered(1), 1);
}
END_TEST

/* ---- what comes ---- */

static void comes(uint32_t number, uint64_t seq, size_t len, uint32_t whole)
{
	_Alignas(struct rds_wire_hdr) unsigned char frame[PEER_BUF] = "";
	struct rds_hdr h = {.seq = seq, .len = whole, .sport = 1, .dport = 2};
	struct rds_wire_hdr w;
	uint32_t n = htobe32(number);

	rds_wire_hdr_encode(&h, &w, false);
	memcpy(w.padding, &n, sizeof(n));
	memcpy(frame, &w, sizeof(w));
	world_fill(seq, frame + sizeof(w), len);
	peer_send(&world.peer, frame, sizeof(w) + len, IBV_SEND_SIGNALED);
}

/* So many messages came, and no more comes, whatever its number is. */
static void ended_after(unsigned n)
{
	comes(n + 1, 90, 10, 10);
	comes(n + 2, 91, 10, 10);
	comes(0, 92, 10, 10);
	world_run();
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_int_eq(c->why, -EPROTO);
	ck_assert_uint_eq(c->nmsgs, n);
	ck_assert_ptr_nonnull(strstr(world_said(), "has lost or doubled something"));
	ck_assert_ptr_null(strstr(world_said(), "invalid data"));
	world_pass(2000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
}

/*
 * Behind a frame with a protocol error nothing is taken, even if the connection was broken already:
 * otherwise the message in that frame would be lost.
 */
START_TEST(test_nonsense_when_broken)
{
	comes(1, 1, 10, 10);
	comes(2, 2, 30, 10);
	comes(3, 3, 10, 10);
	mock_run();
	rx_lock();
	verbs_ep_broken(world_ep(c), -ECONNRESET);
	rx_unlock();
	world_run();
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_uint_eq(c->nmsgs, 1);
	world_pass(2000 * MS);
}
END_TEST

START_TEST(test_out_of_step)
{
	world_listen();
	comes(1, 1, 10, 10);
	comes(2, 2, 1000, 1000);
	switch (_i) {
	case 0: /* lost: by its sequence numbers it could be a message that was cancelled */
		comes(4, 4, 10, 10);
		break;
	case 1: /* twice; the engine would have dropped it */
		comes(2, 2, 1000, 1000);
		break;
	case 2: /* an older one */
		comes(1, 3, 10, 10);
		break;
	case 3: /* who has begun goes on */
		comes(0, 3, 10, 10);
		break;
	}
	ended_after(2);
}
END_TEST

/* A piece of a message: its neighbours fit together without it. */
START_TEST(test_lost_piece)
{
	world_listen();
	comes(1, 1, 8192, 24576);
	comes(3, 1, 8192, 24576);
	comes(4, 1, 8192, 24576);
	ended_after(0);
}
END_TEST

/* The first ones may come before rdma_cm says that there is a connection. */
START_TEST(test_before_it_is_up)
{
	struct verbs_request h;

	world_listen();
	world_hello(&h, VERBS_CONNECT);
	h.credits = VERBS_CREDITS(0, 32);
	world.next = c;
	world_peer_asks(&h, US, verbs_cm.port);
	mock_cm_hold(true);
	ck_assert_ptr_nonnull(peer_try_event(&world.peer));
	ck_assert_int_eq(world.peer.ev->event, RDMA_CM_EVENT_ESTABLISHED);
	comes(1, 1, 10, 10);
	comes(3, 3, 10, 10);
	comes(4, 4, 10, 10);
	world_run();
	mock_cm_hold(false);
	world_run();
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_int_eq(c->why, -EPROTO);
	ck_assert_uint_le(c->nmsgs, 1);
	ck_assert_ptr_nonnull(strstr(world_said(), "has lost or doubled something"));
	world_pass(2000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
}
END_TEST

/* Who does not number is believed: it may be of another version. */
START_TEST(test_without)
{
	unsigned i;

	for (i = 1; i <= 5; i++)
		comes(0, i, 10, 10);
	world_run();
	ck_assert_uint_eq(c->downs, 0);
	ck_assert_uint_eq(c->nmsgs, 5);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs_number");
	TCase *t = world_case(s, "joined", world_ib_joined);

	tcase_add_test(t, test_each_has_one);
	tcase_add_test(t, test_nonsense_when_broken);
	tcase_add_test(t, test_anew);
	tcase_add_loop_test(t, test_out_of_step, 0, 4);
	tcase_add_test(t, test_lost_piece);
	tcase_add_test(t, test_without);
	t = world_case(s, "not yet", world_ib);
	tcase_add_test(t, test_before_it_is_up);
	return suite_run(s);
}
