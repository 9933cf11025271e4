/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fuzz_stream.c - any bytes as what a peer sends over TCP, cut and refused anywhere: what is given
 * away has a length that may be, the same bytes give the same messages however they are cut, and a
 * peer holds one message at most.
 *
 * The first byte says how the others are cut, and what is refused.
 *
 * fuzz-sources: engine/transport/tcp/stream.c engine/wire/header.c
 * fuzz-sources: engine/sys/os.c engine/sys/signals.c engine/sys/own_fds.c
 * fuzz-sources: engine/sys/fd_table.c engine/sys/options.c engine/sys/log.c
 */
#include <stdlib.h>
#include <string.h>

#include "engine/transport/tcp/tcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sum {
	uint64_t messages, hash;
	uint8_t refuse, refused;
};

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void mix(struct sum *s, const void *bytes, size_t n)
{
	const unsigned char *p = bytes;

	while (n--)
		s->hash = (s->hash ^ *p++) * 0x100000001b3u;
}

static bool give(void *arg, struct rds_rx *rx)
{
	struct sum *s = arg;

	if (s->refused < s->refuse) {
		s->refused++;
		return false;
	}
	s->refused = 0;
	must(rx->hdr.len <= RDS_MAX_MSG);
	must(!(rx->hdr.flags & ~(RDS_FLAG_CONG_BITMAP | RDS_FLAG_RETRANSMITTED)));
	must(!(rx->hdr.flags & RDS_FLAG_CONG_BITMAP) ||
	     (rx->hdr.len == RDS_CONG_MAP_BYTES && rx->hdr.flags == RDS_FLAG_CONG_BITMAP));
	must(rx->hdr.ext_type == RDS_EXTHDR_NONE || rx->hdr.ext_type == RDS_EXTHDR_NPATHS);
	must(!rx->hdr.op && !rx->hdr.sock && !rx->hdr.ack);
	mix(s, &rx->hdr.seq, sizeof(rx->hdr.seq));
	mix(s, rx->data, rx->hdr.len);
	s->messages++;
	free(rx->owned);
	return true;
}

/* Pieces of `step` bytes; 0: all at once.  True: it was a stream of messages to the end. */
static bool run(const uint8_t *data, size_t size, size_t step, struct sum *s)
{
	struct tcp_budget budget = {.most = RDS_MAX_MSG};
	struct tcp_in in = {.budget = &budget};
	unsigned char *copy, *to;
	size_t at = 0, n, got, used;
	int err = 0;

	while (at < size && err != -EBADMSG) {
		n = step && step < size - at ? step : size - at;
		copy = malloc(n);
		memcpy(copy, data + at, n);
		for (got = 0; (err = tcp_stream_take(&in, copy + got, n - got, give, s, &used)) == -EAGAIN;)
			got += used;
		free(copy);
		must(err || got + used == n);
		must(!in.block || in.have < in.hdr.len);
		must(budget.held == (in.block ? in.hdr.len : 0) && !budget.wanted);
		must(in.nraw < RDS_WIRE_HDR || err);
		must(tcp_stream_room(&in, &to) <= RDS_MAX_MSG);
		at += n;
	}
	tcp_stream_reset(&in);
	must(!budget.held);
	return !err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sum whole = {0}, cut = {0};
	bool good;

	if (!size)
		return 0;
	good = run(data + 1, size - 1, 0, &whole);
	cut.refuse = data[0] >> 6;
	must(run(data + 1, size - 1, 1 + (data[0] & 63), &cut) == good);
	must(cut.messages == whole.messages && cut.hash == whole.hash);
	return 0;
}
