/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* test_wire.c - the 48 bytes of a header: every field's place, the checksum, what is refused. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/wire/header.h"
#include "tests/unit/suite.h"

static const struct rds_hdr sample = {
	.seq = 0x0102030405060708, .ack = 0x1112131415161718, .len = 0x21222, .sport = 0x3132, .dport = 0x4142,
	.flags = RDS_FLAG_ACK_REQUIRED, .credit = 0x51,
	.ext_type = RDS_EXTHDR_RDMA_DEST, .ext_rkey = 0x61626364, .ext_offset = 0x71727374,
};

/* The checksum by the book: 16-bit big-endian words, end-around carry. */
static unsigned slow_sum(const unsigned char *p)
{
	unsigned long sum = 0;

	for (int i = 0; i < 48; i += 2)
		sum += p[i] << 8 | p[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (unsigned)sum;
}

static void ck_same(const struct rds_hdr *a, const struct rds_hdr *b)
{
	ck_assert_uint_eq(a->seq, b->seq);
	ck_assert_uint_eq(a->ack, b->ack);
	ck_assert_uint_eq(a->len, b->len);
	ck_assert_uint_eq(a->sport, b->sport);
	ck_assert_uint_eq(a->dport, b->dport);
	ck_assert_uint_eq(a->flags, b->flags);
	ck_assert_uint_eq(a->credit, b->credit);
	ck_assert_uint_eq(a->ext_type, b->ext_type);
	ck_assert_uint_eq(a->ext_rkey, b->ext_rkey);
	ck_assert_uint_eq(a->ext_offset, b->ext_offset);
}

START_TEST(layout)
{
	static const unsigned char want[48] = {
		1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0, 2, 0x12, 0x22,
		0x31, 0x32, 0x41, 0x42, 2, 0x51, 0, 0, 0, 0, 0, 0,
		3, 0x61, 0x62, 0x63, 0x64, 0x71, 0x72, 0x73, 0x74,
	};
	struct rds_wire_hdr w;

	memset(&w, 0xee, sizeof(w));
	rds_wire_hdr_encode(&sample, &w, false);
	ck_assert_mem_eq(&w, want, 48);
}
END_TEST

START_TEST(checksum_verifies)
{
	struct rds_wire_hdr w;
	struct rds_hdr h = sample, got;

	srand(1);
	for (int i = 0; i < 2000; i++) {
		rds_wire_hdr_encode(&h, &w, true);
		ck_assert_uint_ne(w.csum, 0);
		ck_assert_uint_eq(slow_sum((unsigned char *)&w), 0xffff);
		ck_assert_int_eq(rds_wire_hdr_decode(&w, &got), 0);
		ck_same(&h, &got);
		h.seq = (uint64_t)rand() << 32 | (unsigned)rand();
		h.ack = (uint64_t)rand() << 33 | (unsigned)rand();
		h.len = (unsigned)rand() % (RDS_MAX_MSG + 1);
		h.sport = (uint16_t)rand();
	}
}
END_TEST

/* A sum that would be stored as 0, "unchecked", is stored as its other spelling. */
START_TEST(checksum_never_zero)
{
	struct rds_hdr h = {.sport = 0xffff}, got;
	struct rds_wire_hdr w;

	rds_wire_hdr_encode(&h, &w, true);
	ck_assert_uint_eq(w.csum, 0xffff);
	ck_assert_int_eq(rds_wire_hdr_decode(&w, &got), 0);
	h.sport = 0; /* all zero bytes: the complement of nothing */
	rds_wire_hdr_encode(&h, &w, true);
	ck_assert_uint_eq(w.csum, 0xffff);
	ck_assert_int_eq(rds_wire_hdr_decode(&w, &got), 0);
}
END_TEST

START_TEST(each_bit_counts)
{
	struct rds_wire_hdr w;
	struct rds_hdr h;

	rds_wire_hdr_encode(&sample, &w, true);
	for (int bit = 0; bit < 48 * 8; bit++) {
		unsigned char *p = (unsigned char *)&w + bit / 8;

		*p ^= (unsigned char)(1 << bit % 8);
		ck_assert_int_eq(rds_wire_hdr_decode(&w, &h), -EBADMSG);
		*p ^= (unsigned char)(1 << bit % 8);
	}
	ck_assert_int_eq(rds_wire_hdr_decode(&w, &h), 0);
}
END_TEST

START_TEST(zero_checksum_is_unchecked)
{
	struct rds_wire_hdr w;
	struct rds_hdr h;

	rds_wire_hdr_encode(&sample, &w, false);
	ck_assert_int_eq(rds_wire_hdr_decode(&w, &h), 0);
	ck_same(&sample, &h);
}
END_TEST

START_TEST(unaligned_source)
{
	unsigned char buf[49];
	struct rds_wire_hdr w;
	struct rds_hdr h;

	rds_wire_hdr_encode(&sample, &w, true);
	memcpy(buf + 1, &w, sizeof(w));
	ck_assert_int_eq(rds_wire_hdr_decode(buf + 1, &h), 0);
	ck_same(&sample, &h);
}
END_TEST

static int decode_of(const struct rds_hdr *h)
{
	struct rds_wire_hdr w;
	struct rds_hdr got;

	rds_wire_hdr_encode(h, &w, true);
	return rds_wire_hdr_decode(&w, &got);
}

START_TEST(length_limit)
{
	struct rds_hdr h = {.len = RDS_MAX_MSG};

	ck_assert_int_eq(decode_of(&h), 0);
	h.len++;
	ck_assert_int_eq(decode_of(&h), -EBADMSG);
	h.len = UINT32_MAX;
	ck_assert_int_eq(decode_of(&h), -EBADMSG);
}
END_TEST

START_TEST(congestion_frame)
{
	struct rds_hdr h = {.flags = RDS_FLAG_CONG_BITMAP};

	/* a map, or a list of at most 64 ports */
	for (h.len = 0; h.len <= RDS_CONG_MAP_BYTES + 2; h.len++)
		ck_assert_int_eq(decode_of(&h), h.len == 8192 || (h.len <= 128 && h.len % 2 == 0) ? 0 : -EBADMSG);
	h.len = RDS_CONG_MAP_BYTES;
	for (unsigned other = 2; other < 256; other += 2) {
		h.flags = (uint8_t)(RDS_FLAG_CONG_BITMAP | other);
		ck_assert_int_eq(decode_of(&h), -EBADMSG);
	}
}
END_TEST

static int decode_ext(const char *area, size_t n, struct rds_hdr *h)
{
	const struct rds_hdr plain = {.seq = 1, .sport = 2, .dport = 3};
	struct rds_wire_hdr w;

	rds_wire_hdr_encode(&plain, &w, false);
	memcpy(w.exthdr, area, n);
	return rds_wire_hdr_decode(&w, h);
}
#define EXT(bytes, h) decode_ext(bytes, sizeof(bytes) - 1, h)

/* A redirect has exactly one form; anything else is refused. */
START_TEST(moved_notice)
{
	struct rds_hdr h = {.flags = RDS_FLAG_REDIRECT | RDS_FLAG_ACK_REQUIRED, .len = RDS_REDIRECT_BYTES, .seq = 7},
		       got;
	struct rds_wire_hdr w;

	rds_wire_hdr_encode(&h, &w, false);
	ck_assert_int_eq(rds_wire_hdr_decode(&w, &got), 0);
	h.flags |= RDS_FLAG_RETRANSMITTED;
	rds_wire_hdr_encode(&h, &w, false);
	ck_assert_int_eq(rds_wire_hdr_decode(&w, &got), 0);
	h.seq = 0;
	rds_wire_hdr_encode(&h, &w, false);
	ck_assert_int_eq(rds_wire_hdr_decode(&w, &got), -EBADMSG);
	h.seq = 7;
	for (h.len = 0; h.len < 20; h.len++) {
		rds_wire_hdr_encode(&h, &w, false);
		ck_assert_int_eq(rds_wire_hdr_decode(&w, &got),
				 h.len == RDS_REDIRECT_BYTES || h.len == RDS_REDIRECT_ACK_BYTES ? 0 : -EBADMSG);
	}
	h.len = RDS_REDIRECT_BYTES;
	for (unsigned bit = 1; bit < 256; bit <<= 1) {
		h.flags = (uint8_t)(RDS_FLAG_REDIRECT | bit);
		rds_wire_hdr_encode(&h, &w, false);
		ck_assert_int_eq(rds_wire_hdr_decode(&w, &got),
				 bit & (RDS_FLAG_REDIRECT | RDS_FLAG_ACK_REQUIRED | RDS_FLAG_RETRANSMITTED) ? 0
													    : -EBADMSG);
	}
}
END_TEST

START_TEST(extensions_read)
{
	struct rds_hdr h;

	ck_assert_int_eq(EXT("\2\1\2\3\4", &h), 0);
	ck_assert_int_eq(h.ext_type, RDS_EXTHDR_RDMA);
	ck_assert_uint_eq(h.ext_rkey, 0x01020304);
	ck_assert_int_eq(EXT("\3\1\2\3\4\5\6\7\10", &h), 0);
	ck_assert_int_eq(h.ext_type, RDS_EXTHDR_RDMA_DEST);
	ck_assert_uint_eq(h.ext_offset, 0x05060708);
	/* skipped ones in front: version, npaths, an undefined one */
	ck_assert_int_eq(EXT("\1\0\0\0\1\5\0\10\7\2\1\2\3\4", &h), 0);
	ck_assert_int_eq(h.ext_type, RDS_EXTHDR_RDMA);
	ck_assert_uint_eq(h.ext_rkey, 0x01020304);
	/* 0 and anything from 16 on end the area, no matter what follows */
	ck_assert_int_eq(EXT("\0\2\1\2\3\4", &h), 0);
	ck_assert_int_eq(h.ext_type, RDS_EXTHDR_NONE);
	ck_assert_int_eq(EXT("\20\2\1\2\3\4", &h), 0);
	ck_assert_int_eq(h.ext_type, RDS_EXTHDR_NONE);
	ck_assert_int_eq(EXT("\15\1\2\3\4\5\6\7\10", &h), 0);
	ck_assert_int_eq(h.ext_type, RDS_EXTHDR_RELAYED);
	ck_assert_uint_eq(h.ext_rkey, 0x01020304);
	ck_assert_uint_eq(h.ext_offset, 0x05060708);
	/* the socket that is meant, before a region */
	ck_assert_int_eq(EXT("\16\1\2\3\4\3\0\0\0\1\0\0\0\2", &h), 0);
	ck_assert_uint_eq(h.sock, 0x01020304);
	ck_assert_uint_eq(h.ext_offset, 2);
	ck_assert_int_eq(EXT("\4\4\4\4\4\4\4\4\4\4\4\4\16\0\0\1", &h), -EBADMSG);
	/* exactly to the end: 8 undefined bytes and a key, 11 and a plain key */
	ck_assert_int_eq(EXT("\4\4\4\4\4\4\4\3\0\0\0\1\0\0\0\2", &h), 0);
	ck_assert_uint_eq(h.ext_offset, 2);
	ck_assert_int_eq(EXT("\4\4\4\4\4\4\4\4\4\4\4\2\0\0\0\1", &h), 0);
	ck_assert_uint_eq(h.ext_rkey, 1);
}
END_TEST

START_TEST(extensions_refused)
{
	struct rds_hdr h;

	ck_assert_int_eq(EXT("\4\4\4\4\4\4\4\4\3\0\0\0\1\0\0\0", &h), -EBADMSG);
	ck_assert_int_eq(EXT("\4\4\4\4\4\4\4\4\4\4\4\4\2\0\0\0", &h), -EBADMSG);
	ck_assert_int_eq(EXT("\4\4\4\4\4\4\4\4\4\4\4\4\4\4\4\2", &h), -EBADMSG);
	ck_assert_int_eq(EXT("\4\4\4\4\4\4\4\4\4\4\4\4\4\4\5\0", &h), -EBADMSG);
	/* two of those that a message may have one of */
	ck_assert_int_eq(EXT("\2\0\0\0\1\2\0\0\0\2", &h), -EBADMSG);
	ck_assert_int_eq(EXT("\2\0\0\0\1\3\0\0\0\2\0\0\0\3", &h), -EBADMSG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("wire");
	TCase *c = tcase_create("header");

	suite_add_tcase(s, c);
	tcase_add_test(c, layout);
	tcase_add_test(c, checksum_verifies);
	tcase_add_test(c, checksum_never_zero);
	tcase_add_test(c, each_bit_counts);
	tcase_add_test(c, zero_checksum_is_unchecked);
	tcase_add_test(c, unaligned_source);
	tcase_add_test(c, length_limit);
	tcase_add_test(c, congestion_frame);
	tcase_add_test(c, moved_notice);
	tcase_add_test(c, extensions_read);
	tcase_add_test(c, extensions_refused);
	return suite_run(s);
}
