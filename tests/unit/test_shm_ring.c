/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shm_ring.c - what the receiver believes of a ring (transport/shm/ring.c): the peer can write
 * anything there.
 *
 * The ring is this test's own memory, and the test writes what a peer would.
 */
#include <check.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "engine/transport/shm/shm.h"
#include "tests/unit/suite.h"

#define LEN 100u
#define MANY 100u
#define LAP SHM_RING_MIN   /* positions from there on: the first ones are special */
#define REC (3 * SHM_LINE) /* the header's line and two for the bytes: 28 of them are unused */

static unsigned taken;
static void *tokens[MANY];
static enum rds_rx_verdict verdict;
static struct rds_fetch_src lent; /* what the first message says; word 0: nothing */
static int fetched;
static unsigned char bytes[LEN], got[LEN];

static enum rds_rx_verdict up_message(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	(void)conn;
	tokens[taken % MANY] = rx->token;
	if (!taken++ && lent.word)
		fetched = shm_fetch(ep, got, LEN, &lent);
	return verdict;
}

static const struct rds_transport_up up = {.message = up_message};
static struct rds_transport transport = {.up = &up};
static struct shm_rings *rings;
static struct shm_ep ep;

static void setup(void)
{
	os_process_start();
	taken = 0;
	verdict = RDS_RX_DONE;
	lent.word = 0;
	rings = calloc(1, SHM_CTL_BYTES + SHM_RING_MIN);
	ck_assert_ptr_nonnull(rings);
	memset(&ep, 0, sizeof(ep));
	ep.head.t = &transport;
	ep.size = SHM_RING_MIN;
	ep.rx = &rings->ctl[0];
	ep.rx_data = (unsigned char *)rings + SHM_CTL_BYTES;
	ep.read = ep.freed = LAP;
	atomic_store(&ep.rx->tail, LAP);
	atomic_store(&ep.rx->head, LAP);
}

static void teardown(void)
{
	free(ep.slots);
	free(rings);
}

static struct shm_rec *rec_at(unsigned i)
{
	return (struct shm_rec *)(ep.rx_data + (size_t)i * REC);
}

/* One record, of a message. */
static void put(unsigned i)
{
	struct rds_hdr hdr = {.seq = i + 1, .len = LEN, .sport = 1, .dport = 2};

	rec_at(i)->len = REC;
	rec_at(i)->kind = SHM_REC_MSG;
	rds_wire_hdr_encode(&hdr, &rec_at(i)->hdr, false);
	atomic_store(&ep.rx->tail, LAP + (i + 1) * (uint64_t)REC);
}

/* What is there before it is taken, nothing of it and nothing behind it. */
static void nonsense(void)
{
	shm_ring_drain(&ep);
	ck_assert(ep.broken);
	ck_assert_uint_eq(taken, 1);
	ck_assert(!shm_ring_drain(&ep));
	ck_assert_uint_eq(taken, 1);
}

static void three(void)
{
	unsigned i;

	for (i = 0; i < 3; i++)
		put(i);
}

START_TEST(test_sound)
{
	three();
	rec_at(1)->hdr.len = htobe32(REC - SHM_LINE); /* all that there is room for */
	rec_at(2)->kind = SHM_REC_PAD;
	ck_assert(shm_ring_drain(&ep));
	ck_assert(!ep.broken);
	ck_assert_uint_eq(taken, 2);
	ck_assert_uint_eq(atomic_load(&ep.rx->head), LAP + 3 * REC);
}
END_TEST

/* The program reads none of them: places for them come as they are needed, a few at first. */
START_TEST(test_slots_grow)
{
	unsigned i;

	verdict = RDS_RX_TAKEN;
	for (i = 0; i < MANY; i++) {
		put(i);
		ck_assert(shm_ring_drain(&ep));
		ck_assert_uint_eq(ep.slot_cap, i < 8 ? 8 : i < 16 ? 16 : i < 32 ? 32 : i < 64 ? 64 : 128);
	}
	for (i = 0; i < MANY; i++) {
		ck_assert_uint_eq(atomic_load(&ep.rx->head), LAP);
		shm_ring_release((struct rds_ep *)&ep, tokens[MANY - 1 - i]); /* the oldest one last */
	}
	ck_assert_uint_eq(atomic_load(&ep.rx->head), LAP + MANY * REC);
}
END_TEST

START_TEST(test_longer_than_its_record)
{
	three();
	rec_at(1)->hdr.len = htobe32(REC - SHM_LINE + 1);
	nonsense();
}
END_TEST

static const uint32_t lengths[] = {
	0, SHM_LINE - 1, REC - 1, 2 * REC + SHM_LINE, SHM_RING_MIN, UINT32_MAX - SHM_LINE + 1};

START_TEST(test_record_of_no_length)
{
	three();
	rec_at(1)->len = lengths[_i];
	nonsense();
}
END_TEST

/* All is published, but the second record would go on at the ring's beginning. */
START_TEST(test_record_beyond_the_end)
{
	const uint64_t at = SHM_RING_MIN - 2 * REC;

	ep.rx_data += at;
	put(0);
	put(1);
	rec_at(1)->len = REC + SHM_LINE;
	ep.rx_data -= at;
	ep.read = ep.freed = LAP + at;
	atomic_store(&ep.rx->head, LAP + at);
	atomic_store(&ep.rx->tail, LAP + at + 3 * REC);
	nonsense();
}
END_TEST

/* The last one near the control data must not go on there: the other direction's, or no page, follows. */
START_TEST(test_record_beyond_the_page)
{
	const uint64_t at = SHM_NEAR_BYTES - 2 * SHM_LINE;
	struct rds_hdr hdr = {.seq = 1, .sport = 1, .dport = 2};
	unsigned i;

	for (i = 0; i < 2; i++) {
		struct shm_rec *rec = (struct shm_rec *)(ep.rx->near + at) + i;

		rec->len = SHM_LINE * (i + 1);
		rec->kind = SHM_REC_MSG;
		rds_wire_hdr_encode(&hdr, &rec->hdr, false);
	}
	ep.read = ep.freed = at;
	atomic_store(&ep.rx->head, at);
	atomic_store(&ep.rx->tail, at + 3 * SHM_LINE);
	nonsense();
}
END_TEST

START_TEST(test_record_of_no_kind)
{
	three();
	rec_at(1)->kind = SHM_REC_FRAGMENT + 1;
	nonsense();
}
END_TEST

static const uint64_t tails[] = {REC - 1, SHM_RING_MIN + SHM_LINE, UINT64_MAX - SHM_LINE + 1};

START_TEST(test_tail)
{
	put(0);
	ck_assert(shm_ring_drain(&ep));
	put(1);
	atomic_store(&ep.rx->tail, ep.read + tails[_i]);
	nonsense();
}
END_TEST

/*
 * Bytes that their process has back cost themselves; if it has given the connection up, what is
 * behind them does not arrive either.
 */
START_TEST(test_lent)
{
	static const int err[] = {0, -ECANCELED, -ESRCH};
	uint64_t word = 0x123456789;
	struct shm_peer peer = {.fetched = true, .reader = (int32_t)os_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0)};
	unsigned i;

	peer.id_at = (uint64_t)(uintptr_t)&peer.id;
	ep.peer = &peer;
	memset(bytes, _i + 1, LEN);
	lent = (struct rds_fetch_src){
		.vec = {{bytes, LEN}}, .n = 1, .word = word, .word_at = (uint64_t)(uintptr_t)&word};
	if (_i)
		word = _i == 1 ? 0 : ~word;
	for (i = 0; i < 3; i++)
		put(i);
	shm_ring_drain(&ep);
	ck_assert_int_eq(fetched, err[_i]);
	ck_assert(_i || !memcmp(got, bytes, LEN));
	ck_assert_uint_eq(taken, _i == 2 ? 1 : 3);
	ck_assert(ep.broken == (_i == 2));
}
END_TEST

/*
 * Eight large messages under way, each with a small one behind it, of which four pairs are read at a
 * time, never find the ring full.
 */
START_TEST(test_large_have_room)
{
	static const uint32_t size = 4u << 20, lens[] = {64, 16384, 65536 + 72, 120000};
	static unsigned char large[120000];
	struct rds_wire_hdr hdr = {0};
	struct shm_rings *r = calloc(1, SHM_CTL_BYTES + size);
	uint64_t pos[MANY], small;
	unsigned i;

	ck_assert_ptr_nonnull(r);
	ep.size = size;
	ep.tx = &r->ctl[0];
	ep.tx_data = (unsigned char *)r + SHM_CTL_BYTES;
	ep.tail = ep.seen_head = size + (64u << 10); /* the second lap: the first positions are special */
	atomic_store(&ep.tx->head, ep.tail);
	for (i = 0; i < MANY; i++) {
		struct iovec iov = {large, lens[_i]};

		if (i >= 8 && i % 4 == 0) /* all before that one have been read */
			atomic_store(&ep.tx->head, pos[i - 4]);
		ck_assert_msg(!shm_ring_send((struct rds_ep *)&ep, &hdr, &iov, lens[_i], &pos[i]), "message %u", i);
		ck_assert_msg(!shm_ring_send((struct rds_ep *)&ep, &hdr, &iov, 64, &small), "behind message %u", i);
	}
	free(r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm_ring");
	TCase *t = suite_case(s, "shm_ring", setup, teardown);

	tcase_add_test(t, test_sound);
	tcase_add_test(t, test_slots_grow);
	tcase_add_test(t, test_longer_than_its_record);
	tcase_add_loop_test(t, test_record_of_no_length, 0, sizeof(lengths) / sizeof(lengths[0]));
	tcase_add_test(t, test_record_beyond_the_end);
	tcase_add_test(t, test_record_beyond_the_page);
	tcase_add_test(t, test_record_of_no_kind);
	tcase_add_loop_test(t, test_tail, 0, sizeof(tails) / sizeof(tails[0]));
	tcase_add_loop_test(t, test_lent, 0, 3);
	tcase_add_loop_test(t, test_large_have_room, 0, 4);
	return suite_run(s);
}
