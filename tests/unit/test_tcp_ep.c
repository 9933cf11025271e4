/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_tcp_ep.c - an endpoint over TCP: messages both ways, what the peer's TCP has acknowledged, what
 * becomes of a connection that breaks in any place.
 */
#include <netinet/tcp.h>

#include "tests/unit/tcp_helper.h"

static struct rds_conn *const conn = &conns[2];

/* ---- both ways ---- */

START_TEST(test_both_ways)
{
	unsigned char bytes[RDS_WIRE_HDR + 15];
	struct rds_hdr h;
	int fd = peer_is_up(), i;

	ck_assert_uint_eq(conn->seen[0].hdr.flags, RDS_FLAG_CONG_BITMAP);
	ck_assert_uint_eq(conn->seen[0].hdr.len, RDS_CONG_MAP_BYTES);
	peer_sends(fd, 1, 15, 0);
	progress_until(atomic_load(&conn->nseen) == 2);
	ck_seen(conn, 1, 1, 15);
	engine_sends(conn, 7, 15);
	peer_reads(fd, bytes, sizeof(bytes));
	ck_assert_int_eq(rds_wire_hdr_decode_node(bytes, &h), 0);
	ck_assert_uint_eq(h.seq, 7);
	ck_assert_uint_eq(h.sport, 4001);
	ck_assert_uint_eq(h.dport, 4000);
	for (i = 0; i < 15; i++)
		ck_assert_uint_eq(bytes[RDS_WIRE_HDR + i], fill(7, (size_t)i));
	close(fd);
	progress_until(atomic_load(&conn->downs) == 1);
	ck_assert_int_eq(atomic_load(&conn->why), -ECONNRESET);
}
END_TEST

/* Both ends are ours. */
static void pair_is_up(struct rds_conn *near)
{
	claim(LARGER);
	ck_assert_int_eq(attempt(near, LARGER), 0);
	test_until(atomic_load(&conn->ups) == 1);
	/* the connection stands with the first byte */
	ck_assert_uint_eq(atomic_load(&near->ups), 0);
	engine_sends(conn, 1, 0);
	progress_until(atomic_load(&near->ups) == 1);
	progress_until(atomic_load(&near->nseen) == 1);
}

START_TEST(test_pair)
{
	struct rds_conn *near = &conns[0];
	unsigned i;

	pair_is_up(near);
	for (i = 1; i <= 1000; i++) {
		engine_sends(near, i, i);
		engine_sends(conn, 1 + i, 2 * i);
		progress();
	}
	progress_until(atomic_load(&conn->nseen) == 1000 && atomic_load(&near->nseen) == 1001);
	for (i = 1; i <= 1000; i++) {
		ck_seen(conn, i - 1, i, i);
		ck_seen(near, i, 1 + i, 2 * i);
	}
	test_until(rds_tcp.ops->acked(near->ep) == 1000 && rds_tcp.ops->acked(conn->ep) == 1001);
	ck_assert_ptr_null(((struct tcp_ep *)near->ep)->out.first);
}
END_TEST

/* Small messages go together, as one piece of memory. */
START_TEST(test_one_write)
{
	unsigned char *bytes = malloc(32 * (RDS_WIRE_HDR + 64));
	struct tcp_ep *ep;
	struct iovec iov[4];
	int fd = peer_is_up();
	uint64_t seq, pos;

	ep = (struct tcp_ep *)conn->ep;
	for (seq = 1; seq <= 32; seq++)
		ck_assert_int_eq(engine_send(conn, seq, 64, &pos), 0);
	ck_assert_uint_eq(tcp_out_next(&ep->out, iov, 4), 1);
	ck_assert_uint_eq(iov[0].iov_len, 32 * (RDS_WIRE_HDR + 64));
	ck_assert_uint_eq(ep->out.written, 0);
	engine_flush(conn);
	ck_assert_uint_eq(ep->out.written, 32 * (RDS_WIRE_HDR + 64));
	peer_reads(fd, bytes, 32 * (RDS_WIRE_HDR + 64));
	free(bytes);
	close(fd);
}
END_TEST

/* What rds-info shows of the socket. */
START_TEST(test_describe)
{
	struct rds_wire_hdr w = wire(1, 1000, 0);
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	struct rds_ep_tcp got;
	int fd = peer_is_up();

	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&sin, &len), 0);
	peer_writes(fd, &w, 20);
	progress_until(((struct tcp_ep *)conn->ep)->in.nraw == 20);
	engine_sends(conn, 1, 52);
	test_until(rds_tcp.ops->acked(conn->ep) == 1);
	rds_tcp.ops->describe_tcp(conn->ep, &got);
	ck_assert_uint_eq(got.lport, rds_tcp_state.port);
	ck_assert_uint_eq(got.fport, ntohs(sin.sin_port));
	ck_assert_uint_eq(got.hdr_rem, 28);
	ck_assert_uint_eq(got.data_rem, 0);
	ck_assert_uint_eq(got.last_sent_nxt, 100);
	ck_assert_uint_eq(got.last_expected_una, 100);
	ck_assert_uint_eq(got.last_seen_una, 100);
	peer_writes(fd, (char *)&w + 20, 28);
	progress_until(((struct tcp_ep *)conn->ep)->in.block);
	rds_tcp.ops->describe_tcp(conn->ep, &got);
	ck_assert_uint_eq(got.hdr_rem, 0);
	ck_assert_uint_eq(got.data_rem, 1000);
	rds_tcp.ops->rest(conn->ep);
	ck_assert_ptr_null(((struct tcp_ep *)conn->ep)->out.done);
	close(fd);
}
END_TEST

static const uint32_t sizes[] = {0, 1, 4095, 4096, 65536, 131072 - 48, 131072, 500000, RDS_MAX_MSG - 1, RDS_MAX_MSG};

START_TEST(test_sizes)
{
	struct rds_conn *near = &conns[0];
	uint32_t len = sizes[_i];
	unsigned i;
	uint64_t pos;

	pair_is_up(near);
	for (i = 1; i <= 12; i++) {
		while (engine_send(near, i, i % 2 ? len : 64, &pos) == -EAGAIN)
			progress();
		engine_flush(near);
		if (len)
			ck_assert_uint_eq(*(const unsigned char *)rds_tcp.ops->retained(near->ep, pos), fill(i, 0));
	}
	progress_until(atomic_load(&conn->nseen) == 12);
	for (i = 1; i <= 12; i++)
		ck_seen(conn, i - 1, i, i % 2 ? len : 64);
}
END_TEST

/* ---- what the peer has acknowledged ---- */

/* Until the peer's socket is full; the number of the last message. */
static uint64_t fill_up(uint32_t len)
{
	uint64_t seq = 0, pos;

	while (engine_send(conn, seq + 1, len, &pos) == 0)
		seq++;
	engine_flush(conn);
	return seq;
}

static void drain(int fd, uint64_t messages, uint32_t len)
{
	size_t size = RDS_WIRE_HDR + len;
	unsigned char *bytes = malloc(size);
	struct rds_hdr h;
	uint64_t seq;
	uint32_t at;

	for (seq = 1; seq <= messages; seq++) {
		peer_reads(fd, bytes, size);
		ck_assert_int_eq(rds_wire_hdr_decode_node(bytes, &h), 0);
		ck_assert_uint_eq(h.seq, seq);
		for (at = 0; at < len && bytes[RDS_WIRE_HDR + at] == fill(seq, at); at += len > 1000 ? 97 : 1)
			;
		ck_assert_uint_ge(at, len);
	}
	free(bytes);
}

/* TCP acknowledges for the peer's program, which does not read. */
START_TEST(test_acked_unread)
{
	int fd = peer_is_up();

	ck_assert_uint_eq(rds_tcp.ops->acked(conn->ep), 0);
	engine_sends(conn, 5, 100);
	engine_sends(conn, 6, 0);
	test_until(rds_tcp.ops->acked(conn->ep) == 6);
	close(fd);
}
END_TEST

/* A peer that reads nothing: nothing is lost, and what it has not got is not acknowledged. */
START_TEST(test_full)
{
	static const uint32_t lens[] = {64, 10000, RDS_MAX_MSG};
	int fd = peer_is_up();
	uint64_t last = fill_up(lens[_i]), pos, acked = rds_tcp.ops->acked(conn->ep);
	int there = 0;

	/* our kernel has more, which the peer's has not */
	ck_assert_int_eq(ioctl(fd, FIONREAD, &there), 0);
	ck_assert_uint_le(acked, (uint64_t)there / (RDS_WIRE_HDR + lens[_i]));
	ck_assert_uint_lt(acked, last);
	ck_assert_int_eq(engine_send(conn, last + 1, 1, &pos), -EAGAIN);
	ck_assert(!rds_tcp.ops->want_room(conn->ep, rds_tcp.ops->acked(conn->ep)));
	ck_assert_uint_eq(atomic_load(&conn->writables), 0);
	drain(fd, last, lens[_i]);
	test_until(rds_tcp.ops->acked(conn->ep) == last);
	test_until(atomic_load(&conn->writables) == 1);
	ck_assert_int_eq(engine_send(conn, last + 1, 1, &pos), 0);
	close(fd);
}
END_TEST

static void no_timer(void)
{
	rds_timer_cancel(&((struct tcp_ep *)conn->ep)->room);
}

/* The second time the kernel tells. */
START_TEST(test_told_by_kernel)
{
	int fd = peer_is_up();
	uint64_t seq;

	rds_tcp.ops->want_room(conn->ep, 0);
	atomic_store(&conn->writables, 0);
	for (seq = 1; seq <= 20; seq++) {
		ck_assert_uint_eq(engine_send(conn, seq, 1000, &(uint64_t){0}), 0);
		rds_tcp.ops->want_room(conn->ep, seq - 1);
		in_helper(no_timer);
		engine_flush(conn);
		progress_until(atomic_load(&conn->writables));
		atomic_store(&conn->writables, 0);
		ck_assert_uint_eq(rds_tcp.ops->acked(conn->ep), seq);
	}
	close(fd);
}
END_TEST

/* Who waits for an acknowledgement is told, although nothing else comes. */
START_TEST(test_told_of_ack)
{
	int fd = peer_is_up();
	uint64_t seq;

	for (seq = 1; seq <= 20; seq++) {
		engine_sends(conn, seq, 1000);
		if (!rds_tcp.ops->want_room(conn->ep, seq - 1))
			test_until(atomic_load(&conn->writables));
		atomic_store(&conn->writables, 0);
		ck_assert_uint_eq(rds_tcp.ops->acked(conn->ep), seq);
	}
	close(fd);
}
END_TEST

static struct rds_ep *kept;

static void let_go(void)
{
	rds_tcp.ops->keep(kept, false);
}

/* What is not acknowledged can be read after the break, until it is given up. */
START_TEST(test_retained)
{
	int fd = peer_is_up();
	uint64_t pos[2000], last = 0, seq;

	while (last < 1999 && engine_send(conn, last + 1, 10000, &pos[last + 1]) == 0)
		last++;
	engine_flush(conn);
	conn->keep = true;
	kept = conn->ep;
	peer_resets(fd);
	progress_until(atomic_load(&conn->downs) == 1);
	ck_assert_uint_gt(conn->acked_at_end, 0);
	ck_assert_uint_lt(conn->acked_at_end, last);
	for (seq = conn->acked_at_end + 1; seq <= last; seq++) {
		const unsigned char *data = rds_tcp.ops->retained(kept, pos[seq]);

		ck_assert_uint_eq(data[0], fill(seq, 0));
		ck_assert_uint_eq(data[9999], fill(seq, 9999));
	}
	in_helper(let_go);
	helper_catches_up();
	ck_all_freed();
}
END_TEST

/* ---- breaks ---- */

/* The peer sends some whole messages, and perhaps a part of one, and ends. */
START_TEST(test_break)
{
	struct rds_wire_hdr w = wire(4, 1000, 0);
	const char zeros[999] = {0};
	int fd = peer_is_up(), part = _i / 2;

	peer_sends(fd, 1, 100, 0);
	peer_sends(fd, 2, 100000, 0);
	peer_sends(fd, 3, 0, 0);
	if (part == 1)
		peer_writes(fd, &w, 20);
	if (part == 2)
		peer_writes(fd, &w, sizeof(w));
	if (part == 3) {
		peer_writes(fd, &w, sizeof(w));
		peer_writes(fd, zeros, sizeof(zeros));
	}
	if (_i % 2)
		peer_resets(fd);
	else
		close(fd);
	progress_until(atomic_load(&conn->downs) == 1);
	ck_assert_int_eq(atomic_load(&conn->why), -ECONNRESET);
	ck_assert_uint_eq(atomic_load(&conn->nseen), 4);
	ck_seen(conn, 1, 1, 100);
	ck_seen(conn, 2, 2, 100000);
	ck_seen(conn, 3, 3, 0);
	helper_catches_up();
	ck_all_freed();
}
END_TEST

/* TCP has acknowledged them, so messages that the engine refuses at the break are offered until it takes them. */
START_TEST(test_break_refused)
{
	int fd = peer_is_up();

	atomic_store(&conn->later, 5);
	peer_sends(fd, 1, 100, 0);
	peer_sends(fd, 2, 100000, 0);
	if (_i % 2)
		peer_resets(fd);
	else
		close(fd);
	progress_until(atomic_load(&conn->downs) == 1);
	ck_assert_uint_eq(atomic_load(&conn->nseen), 3);
	ck_seen(conn, 1, 1, 100);
	ck_seen(conn, 2, 2, 100000);
	helper_catches_up();
	ck_all_freed();
}
END_TEST

static void hangs_up(void)
{
	rds_tcp.ops->hang_up(conn->ep);
}

/* So does the engine's own end, and the peer is not told that we have what comes later. */
START_TEST(test_hang_up)
{
	int fd = peer_is_up();

	atomic_store(&conn->later, 3);
	peer_sends(fd, 1, 100, 0);
	peer_sends(fd, 2, 5000, 0);
	in_helper(hangs_up);
	test_until(atomic_load(&conn->downs) == 1);
	ck_assert_uint_eq(atomic_load(&conn->nseen), 3);
	ck_seen(conn, 2, 2, 5000);
	close(fd);
	helper_catches_up();
	ck_all_freed();
}
END_TEST

/* The break is noticed by a send; what came before it is received all the same. */
START_TEST(test_break_while_sending)
{
	int fd = peer_is_up();
	uint64_t seq = 0, pos;

	peer_sends(fd, 1, 100, 0);
	peer_resets(fd);
	while (engine_send(conn, ++seq, 100, &pos) == 0)
		engine_flush(conn);
	test_until(atomic_load(&conn->downs) == 1);
	ck_assert_uint_eq(atomic_load(&conn->nseen), 2);
	ck_seen(conn, 1, 1, 100);
}
END_TEST

/* ---- odd and hostile peers ---- */

START_TEST(test_byte_by_byte)
{
	unsigned char *stream = malloc(200), *data;
	int fd = peer_is_up(), at = 0, i;
	struct rds_wire_hdr w;

	for (i = 1; i <= 3; i++) {
		w = wire((uint64_t)i, (uint32_t)(10 * (i - 1)), 0);
		data = filled((uint64_t)i, 10 * (size_t)(i - 1));
		memcpy(stream + at, &w, sizeof(w));
		memcpy(stream + at + sizeof(w), data, 10 * (size_t)(i - 1));
		at += (int)sizeof(w) + 10 * (i - 1);
		free(data);
	}
	for (i = 0; i < at; i++) {
		peer_writes(fd, stream + i, 1);
		progress_until(((struct tcp_ep *)conn->ep)->heard >=
			       RDS_WIRE_HDR + RDS_CONG_MAP_BYTES + 1 + (uint64_t)i);
	}
	ck_assert_uint_eq(atomic_load(&conn->nseen), 4);
	for (i = 1; i <= 3; i++)
		ck_seen(conn, (unsigned)i, (uint64_t)i, (uint32_t)(10 * (i - 1)));
	free(stream);
	close(fd);
}
END_TEST

static void write_garbage(int fd, int how)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: somewhere.example.org:16385\r\nUser-Agent: curl\r\n\r\n";
	struct rds_wire_hdr w = wire(1, 0, 0);

	switch (how) {
	case 0:
		peer_writes(fd, text, sizeof(text));
		return;
	case 1:
		w.len = 0xffffffff;
		break;
	case 2:
		w.len = htobe32(RDS_MAX_MSG + 1);
		break;
	case 3: /* a map of another size */
		w = wire(0, 100, RDS_FLAG_CONG_BITMAP);
		break;
	}
	peer_writes(fd, &w, sizeof(w));
	peer_writes(fd, text, sizeof(text));
}

/* Ends its own connection, and nobody else's. */
START_TEST(test_nonsense)
{
	int fd = peer_is_up();

	peer_sends(fd, 1, 100, 0);
	write_garbage(fd, _i);
	progress_until(atomic_load(&conn->downs) == 1);
	ck_assert_int_eq(atomic_load(&conn->why), -EPROTO);
	ck_assert_uint_eq(atomic_load(&conn->nseen), 2);
	ck_seen(conn, 1, 1, 100);
	close(fd);
	fd = peer_connects(SMALLER);
	test_until(atomic_load(&conns[3].ups) == 1);
	close(fd);
}
END_TEST

/* Half a header, or a message that does not end, and then nothing. */
START_TEST(test_silence)
{
	struct rds_wire_hdr w = wire(1, RDS_MAX_MSG, 0);
	int fd = peer_is_up(), i;

	peer_writes(fd, &w, _i ? sizeof(w) : 20);
	for (i = 0; i < 100; i++)
		progress();
	helper_catches_up();
	ck_assert_uint_eq(atomic_load(&conn->downs), 0);
	engine_sends(conn, 1, 10);
	peer_reads(fd, &(char[RDS_WIRE_HDR + 10]){0}, RDS_WIRE_HDR + 10);
	close(fd);
	progress_until(atomic_load(&conn->downs) == 1);
	ck_assert_uint_eq(atomic_load(&conn->nseen), 1);
}
END_TEST

/* Messages that the engine refuses come again, in order, and the peer's next ones wait. */
START_TEST(test_refused_messages)
{
	int fd = peer_is_up();
	uint64_t seq;

	atomic_store(&conn->later, 7);
	for (seq = 1; seq <= 100; seq++)
		peer_sends(fd, seq, seq % 10 ? 100 : 150000, 0);
	progress_until(atomic_load(&conn->nseen) == 101);
	for (seq = 1; seq <= 100; seq++)
		ck_seen(conn, (unsigned)seq, seq, seq % 10 ? 100 : 150000);
	atomic_store(&conn->later, 3);
	peer_sends(fd, 101, 300000, 0);
	progress_until(atomic_load(&conn->nseen) == 102);
	ck_seen(conn, 101, 101, 300000);
	close(fd);
}
END_TEST

/* setup: with either kind of table */
static void add_cases(Suite *s, void (*setup)(void))
{
	TCase *t = suite_case(s, "traffic", setup, NULL);

	tcase_add_test(t, test_both_ways);
	tcase_add_test(t, test_pair);
	tcase_add_test(t, test_one_write);
	tcase_add_test(t, test_describe);
	tcase_add_loop_test(t, test_sizes, 0, sizeof(sizes) / sizeof(sizes[0]));
	t = suite_case(s, "acked", setup, NULL);
	tcase_add_test(t, test_acked_unread);
	tcase_add_loop_test(t, test_full, 0, 3);
	tcase_add_test(t, test_told_of_ack);
	tcase_add_test(t, test_told_by_kernel);
	tcase_add_test(t, test_retained);
	t = suite_case(s, "breaks", setup, NULL);
	tcase_add_loop_test(t, test_break, 0, 8);
	tcase_add_loop_test(t, test_break_refused, 0, 2);
	tcase_add_test(t, test_hang_up);
	tcase_add_test(t, test_break_while_sending);
	t = suite_case(s, "peers", setup, NULL);
	tcase_add_test(t, test_byte_by_byte);
	tcase_add_loop_test(t, test_nonsense, 0, 4);
	tcase_add_loop_test(t, test_silence, 0, 2);
	tcase_add_test(t, test_refused_messages);
}

static Suite *suite(void)
{
	Suite *s = suite_create("tcp_ep");

	add_cases(s, tcp_setup);
	add_cases(s, tcp_setup_own);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
