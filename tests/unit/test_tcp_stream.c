/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_tcp_stream.c - the bytes of rds_tcp's wire: headers as they were seen between two kernel nodes,
 * and a stream that is cut anywhere, or refused anywhere (transport/tcp/stream.c, wire/header.c).
 */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "engine/transport/tcp/tcp.h"
#include "tests/unit/suite.h"

/* ---- headers ---- */

static void set(unsigned char *w, unsigned at, const char *hex)
{
	unsigned byte;

	for (; sscanf(hex, "%2x", &byte) == 1; hex += hex[2] ? 3 : 2)
		w[at++] = (unsigned char)byte;
}

/* Lines 00, 10 and 20 of a header; NULL: zeros. */
static int decode(const char *at00, const char *at10, const char *at20, struct rds_hdr *h)
{
	unsigned char w[RDS_WIRE_HDR] = {0};

	if (at00)
		set(w, 0, at00);
	if (at10)
		set(w, 16, at10);
	if (at20)
		set(w, 32, at20);
	return rds_wire_hdr_decode_node(w, h);
}

START_TEST(test_map)
{
	struct rds_hdr h;

	ck_assert_int_eq(decode(NULL, "00 00 20 00 00 00 00 00 01", NULL, &h), 0);
	ck_assert_uint_eq(h.flags, RDS_FLAG_CONG_BITMAP);
	ck_assert_uint_eq(h.len, RDS_CONG_MAP_BYTES);
	ck_assert_uint_eq(h.seq, 0);
	ck_assert_int_eq(decode(NULL, "00 00 00 64 00 00 00 00 01", NULL, &h), -EBADMSG);
	/* a map is one by its whole byte of flags */
	ck_assert_int_eq(decode(NULL, "00 00 00 64 00 00 00 00 05", NULL, &h), 0);
	ck_assert_uint_eq(h.flags, RDS_FLAG_RETRANSMITTED);
}
END_TEST

START_TEST(test_probe)
{
	struct rds_hdr h;

	ck_assert_int_eq(decode("00 00 00 00 00 00 00 01", "00 00 00 00 00 01", "05 00 08", &h), 0);
	ck_assert_uint_eq(h.seq, 1);
	ck_assert_uint_eq(h.sport, 1);
	ck_assert_uint_eq(h.dport, 0);
	ck_assert_uint_eq(h.ext_type, RDS_EXTHDR_NPATHS);
	ck_assert_uint_eq(h.ext_npaths, 8);
	ck_assert_uint_eq(h.ext_gen, 0);
	/* its answer */
	ck_assert_int_eq(decode("00 00 00 00 00 00 00 02", "00 00 00 00 00 00 00 01", "05 00 08", &h), 0);
	ck_assert_uint_eq(h.sport, 0);
	ck_assert_uint_eq(h.dport, 1);
	ck_assert_uint_eq(h.ext_npaths, 8);
}
END_TEST

START_TEST(test_own_probe)
{
	struct rds_hdr h = {.seq = 1, .sport = 1, .ext_type = RDS_EXTHDR_NPATHS, .ext_npaths = 1, .ext_gen = 77}, got;
	unsigned char want[RDS_WIRE_HDR] = {0};
	struct rds_wire_hdr w;

	set(want, 0, "00 00 00 00 00 00 00 01");
	set(want, 16, "00 00 00 00 00 01");
	set(want, 32, "05 00 01 06 00 00 00 4d 00");
	rds_wire_hdr_encode(&h, &w, false);
	ck_assert_mem_eq(&w, want, sizeof(w));
	ck_assert_int_eq(rds_wire_hdr_decode_node(&w, &got), 0);
	ck_assert_uint_eq(got.ext_npaths, 1);
	ck_assert_uint_eq(got.ext_gen, 77);
	ck_assert_uint_eq(got.ext_type, RDS_EXTHDR_NPATHS);
}
END_TEST

START_TEST(test_messages)
{
	struct rds_hdr h;

	ck_assert_int_eq(decode("00 00 00 00 00 00 00 01", "00 00 00 0f 0f a1 0f a0", NULL, &h), 0);
	ck_assert_uint_eq(h.len, 15);
	ck_assert_uint_eq(h.sport, 4001);
	ck_assert_uint_eq(h.dport, 4000);
	ck_assert_uint_eq(h.flags, 0);
	ck_assert_uint_eq(h.ext_type, RDS_EXTHDR_NONE);
	ck_assert_int_eq(decode("00 00 00 00 00 00 00 06", "00 00 00 06 13 89 1b 58 04", NULL, &h), 0);
	ck_assert_uint_eq(h.seq, 6);
	ck_assert_uint_eq(h.flags, RDS_FLAG_RETRANSMITTED);
	ck_assert_uint_eq(h.sport, 5001);
	ck_assert_uint_eq(h.dport, 7000);
	ck_assert_int_eq(decode("00 00 00 00 00 00 00 07", "00 00 00 00 0f a1 00 00", NULL, &h), 0); /* a ping */
	ck_assert_uint_eq(h.dport, 0);
}
END_TEST

/* Flags and extensions that only other versions know, or that have no place here. */
START_TEST(test_ignored)
{
	struct rds_hdr h;

	/* ack, credit, padding, checksum, flags 0xfa */
	ck_assert_int_eq(decode("00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 63",
				"00 00 00 01 00 02 00 03 fa 07 01 02 03 04 12 34", NULL, &h),
			 0);
	ck_assert_uint_eq(h.flags, 0);
	ck_assert_uint_eq(h.ack, 0);
	ck_assert_uint_eq(h.credit, 0);
	/* RDMA, a destination, an operation of ours: none is believed */
	ck_assert_int_eq(decode(NULL, NULL, "02 00 00 00 05", &h), 0);
	ck_assert_uint_eq(h.ext_type, RDS_EXTHDR_NONE);
	ck_assert_int_eq(decode(NULL, NULL, "03 00 00 00 05 00 00 00 01", &h), 0);
	ck_assert_uint_eq(h.ext_type, RDS_EXTHDR_NONE);
	ck_assert_int_eq(decode(NULL, NULL, "0f 00 00 00 00 00 00 00 05", &h), 0);
	ck_assert_uint_eq(h.op, 0);
	ck_assert_int_eq(decode(NULL, NULL, "0e 00 00 00 05", &h), 0);
	ck_assert_uint_eq(h.sock, 0);
	/* behind others, of later kernels and Oracle's; cut by the end; behind the end of the list */
	ck_assert_int_eq(decode(NULL, NULL, "05 00 08 08 03 06 00 00 00 4d", &h), 0);
	ck_assert_uint_eq(h.ext_npaths, 8);
	ck_assert_uint_eq(h.ext_gen, 77);
	ck_assert_int_eq(decode(NULL, NULL, "07 05 00 08 00 05 00 03", &h), 0);
	ck_assert_uint_eq(h.ext_npaths, 3);
	ck_assert_int_eq(decode(NULL, NULL, "04 01 02 03 04 05 06 07 08 05 00 02 00 00 00 05", &h), 0);
	ck_assert_uint_eq(h.ext_npaths, 2);
	ck_assert_int_eq(decode(NULL, NULL, "00 05 00 08", &h), 0);
	ck_assert_uint_eq(h.ext_type, RDS_EXTHDR_NONE);
	ck_assert_int_eq(decode(NULL, NULL, "10 05 00 08", &h), 0);
	ck_assert_uint_eq(h.ext_type, RDS_EXTHDR_NONE);
}
END_TEST

START_TEST(test_lengths)
{
	struct rds_hdr h;

	ck_assert_int_eq(decode(NULL, "00 10 00 00", NULL, &h), 0);
	ck_assert_uint_eq(h.len, RDS_MAX_MSG);
	ck_assert_int_eq(decode(NULL, "00 10 00 01", NULL, &h), -EBADMSG);
	ck_assert_int_eq(decode(NULL, "ff ff ff ff", NULL, &h), -EBADMSG);
}
END_TEST

/* ---- a stream ---- */

#define MESSAGES 7

static const uint32_t lens[MESSAGES] = {0, 1, 47, 48, 0, 300, 5};
static unsigned char stream[1024] __attribute__((aligned(8)));
static size_t stream_len;

static unsigned seen;	  /* messages */
static unsigned refusing; /* each message so often */
static unsigned refused;

static void stream_make(void)
{
	struct rds_wire_hdr w;
	unsigned i, j;

	stream_len = 0;
	for (i = 0; i < MESSAGES; i++) {
		rds_wire_hdr_encode_plain(&w, i + 1, lens[i], 1, 2);
		memcpy(stream + stream_len, &w, sizeof(w));
		stream_len += RDS_WIRE_HDR;
		for (j = 0; j < lens[i]; j++)
			stream[stream_len++] = (unsigned char)(i + j);
	}
	seen = refused = refusing = 0;
}

static bool give(void *arg, struct rds_rx *rx)
{
	const unsigned char *data = rx->data;
	unsigned j;

	(void)arg;
	if (refused < refusing) {
		refused++;
		return false;
	}
	refused = 0;
	/* Check's own macros take long, and there are many messages */
	if (seen >= MESSAGES || rx->hdr.seq != seen + 1 || rx->hdr.len != lens[seen])
		ck_abort_msg("message %u: number %llu, %u bytes", seen, (unsigned long long)rx->hdr.seq, rx->hdr.len);
	for (j = 0; j < rx->hdr.len; j++)
		if (data[j] != (unsigned char)(seen + j))
			ck_abort_msg("message %u differs at %u", seen, j);
	free(rx->owned);
	seen++;
	return true;
}

/* Takes n bytes, however often it is refused, from memory of their own. */
static void feed(struct tcp_in *in, const unsigned char *bytes, size_t n)
{
	unsigned char *copy = malloc(n + !n);
	size_t at = 0, used;
	int err;

	memcpy(copy, bytes, n);
	do {
		err = tcp_stream_take(in, copy + at, n - at, give, NULL, &used);
		at += used;
	} while (err == -EAGAIN);
	if (err || at != n)
		ck_abort_msg("%d after %zu of %zu bytes", err, at, n);
	free(copy);
}

/* Cut in two places, and every message refused _i times. */
START_TEST(test_cut)
{
	struct tcp_in in = {0};
	size_t a, b;

	stream_make();
	for (a = 0; a <= stream_len; a++)
		for (b = a; b <= stream_len; b += 1 + (b - a) / 4) {
			seen = refused = 0;
			refusing = (unsigned)_i;
			feed(&in, stream, a);
			feed(&in, stream + a, b - a);
			feed(&in, stream + b, stream_len - b);
			if (seen != MESSAGES || in.block || in.nraw)
				ck_abort_msg("%u messages, cut at %zu and %zu", seen, a, b);
		}
}
END_TEST

/* The rest of a message is received where it belongs. */
START_TEST(test_room)
{
	struct tcp_in in = {0};
	unsigned char *to;
	size_t used;
	uint64_t of_header;

	stream_make();
	seen = 5; /* the one of 300 bytes */
	rds_wire_hdr_encode_plain((struct rds_wire_hdr *)(void *)stream, 6, 300, 1, 2);
	for (unsigned j = 0; j < 300; j++)
		stream[RDS_WIRE_HDR + j] = (unsigned char)(5 + j);
	ck_assert_uint_eq(tcp_stream_room(&in, &to), 0);
	feed(&in, stream, 20);
	ck_assert_uint_eq(tcp_stream_room(&in, &to), 0);
	ck_assert_uint_eq(tcp_stream_missing(&in, &of_header), 0);
	ck_assert_uint_eq(of_header, 28);
	feed(&in, stream + 20, 38);
	ck_assert_uint_eq(tcp_stream_room(&in, &to), 290);
	ck_assert_uint_eq(tcp_stream_missing(&in, &of_header), 290);
	ck_assert_uint_eq(of_header, 0);
	memcpy(to, stream + 58, 290);
	tcp_stream_filled(&in, 290);
	ck_assert_uint_eq(tcp_stream_room(&in, &to), 0);
	refusing = 1;
	ck_assert_int_eq(tcp_stream_take(&in, NULL, 0, give, NULL, &used), -EAGAIN);
	ck_assert_uint_eq(seen, 5);
	ck_assert_int_eq(tcp_stream_take(&in, NULL, 0, give, NULL, &used), 0);
	ck_assert_uint_eq(seen, 6);
}
END_TEST

/* What came before nonsense counts. */
START_TEST(test_nonsense)
{
	unsigned char bytes[200];
	struct tcp_in in = {0};
	size_t used, cut = (size_t)_i;
	int err;

	stream_make();
	memcpy(bytes, stream, 2 * RDS_WIRE_HDR + 1);
	memset(bytes + 2 * RDS_WIRE_HDR + 1, 0xff, 60);
	err = tcp_stream_take(&in, bytes, cut, give, NULL, &used);
	if (!err)
		err = tcp_stream_take(&in, bytes + used, 2 * RDS_WIRE_HDR + 61 - used, give, NULL, &used);
	ck_assert_int_eq(err, -EBADMSG);
	ck_assert_uint_eq(seen, 2);
	tcp_stream_reset(&in);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("tcp_stream");
	TCase *t = suite_case(s, "headers", NULL, NULL);

	tcase_add_test(t, test_map);
	tcase_add_test(t, test_probe);
	tcase_add_test(t, test_own_probe);
	tcase_add_test(t, test_messages);
	tcase_add_test(t, test_ignored);
	tcase_add_test(t, test_lengths);
	t = suite_case(s, "stream", NULL, NULL);
	tcase_add_loop_test(t, test_cut, 0, 3);
	tcase_add_test(t, test_room);
	tcase_add_loop_test(t, test_nonsense, 0, 150);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
