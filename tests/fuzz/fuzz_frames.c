/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fuzz_frames.c - what a process of another host sends over an RDMA device: any bytes in any
 * frames, of several messages or of a piece of one, over a connection as in the unit tests
 * (tests/mock/world.h).
 *
 * The input is a byte of choices (enum choice), then frames { u16 length, bytes }; missing bytes of
 * the last frame are zeros.  For every input: no message has bytes that did not come, all messages
 * together are not larger than what came, nothing is acknowledged that was not sent, the worst
 * outcome is that the connection breaks for a protocol error, and in the end every receive buffer
 * is back.
 *
 * The mock asserts with Check's macros.  They abort here, where no runner of Check is.
 *
 * fuzz-sources: engine/[a-z]*.c engine/sys/[a-z]*.c engine/wire/[a-z]*.c engine/node/[a-z]*.c
 * fuzz-sources: engine/helper/[a-z]*.c engine/abi/[a-z]*.c engine/trunk/[a-z]*.c engine/transport/[a-z]*.c
 * fuzz-sources: engine/transport/shm/[a-z]*.c engine/transport/tcp/[a-z]*.c engine/transport/verbs/verbs.c
 * fuzz-sources: engine/transport/verbs/dev/[a-z]*.c engine/transport/verbs/cm/[a-z]*.c
 * fuzz-sources: engine/transport/verbs/ep/[a-z]*.c engine/socket/[a-z]*.c engine/conn/[a-z]*.c
 * fuzz-sources: engine/progress/[a-z]*.c engine/rdma/[a-z]*.c engine/calls/[a-z]*.c
 * fuzz-sources: engine/share/[a-z]*.c tests/mock/[a-z]*.c
 * fuzz-flags: -DHAVE_VERBS -Wl,--wrap=os_now_ns,--wrap=os_poll,--wrap=os_syscall
 * fuzz-flags: -Wl,--wrap=os_timerfd_set,--wrap=os_epoll_wait,--wrap=rds_timer_set
 * fuzz-flags: -Wl,--wrap=rds_timer_need,--wrap=rds_timer_cancel,--wrap=rds_helper_event_add
 * fuzz-flags: -Wl,--wrap=rds_helper_event_del,--wrap=pthread_create
 * fuzz-flags: -Wl,--wrap=os_fd_adopt,--wrap=os_bind
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mock/world.h"

enum choice {
	KEPT = 2, /* with the engine, in place */
	/* all frames are there before the first look, else one after the other */
	AT_ONCE = 4,
	CLOSED = 8,	/* after one look */
	REFUSED = 0x70, /* at the first look, from that message on, there is no memory */
	REFUSED_UNIT = 0x10,
};

#define FRAMES 16u /* fewer than the peer has credits for */
#define CREDITS 32u
/* what the peer takes, so that a message need not be large to come in pieces */
#define SMALL_FRAME 1024u
#define FOREIGN 0xee	  /* in receive buffers, and never sent */

static struct world_conn *const c = &world.conn[0];
static struct rds_transport_up up;
static enum rds_rx_verdict (*take)(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx);
static size_t sent, taken;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

void _mark_point(const char *file, int line)
{
	(void)file;
	(void)line;
}

void _ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
{
	va_list ap;

	fprintf(stderr, "%s:%d: %s\n", file, line, expr);
	if (msg) {
		va_start(ap, msg);
		vfprintf(stderr, msg, ap);
		va_end(ap);
	}
	abort();
}

/* As the engine is given it. */
static enum rds_rx_verdict message(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	enum rds_rx_verdict verdict;

	ck_assert_uint_le(rx->hdr.len, RDS_MAX_MSG);
	if (rx->hdr.len)
		ck_assert_ptr_null(memchr(rx->data, FOREIGN, rx->hdr.len));
	verdict = take(conn, ep, rx);
	if (verdict < RDS_RX_LATER)
		taken += VERBS_HDR + rx->hdr.len;
	return verdict;
}

/* iWARP: the receiver counts frames as well. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	world_iwarp();
	up = *world.t->up;
	take = up.message;
	up.message = message;
	world.t->up = &up;
	atexit(world_end);
	return 0;
}

static void begin(void)
{
	struct verbs_request h;
	uint32_t i;

	memset(c, 0, sizeof(*c));
	for (i = 0; i < world_dev()->nbufs; i++)
		memset(world_dev()->bufs[i].mem, FOREIGN,
		       world_dev()->bufs[i].large ? VERBS_BUF(world_dev()->caps.frame) : VERBS_BUF_SMALL);
	if (world.peer.srq)
		peer_post(&world.peer, PEER_RECVS / 2 - mock_recvs_posted(world.peer.srq));
	world_hello(&h, VERBS_CONNECT);
	h.frame = SMALL_FRAME / 64;
	h.credits = VERBS_CREDITS(0, CREDITS);
	world_joined_with(c, &h);
	world_peer_frame(&(struct rds_hdr){0}, NULL, 0);
	world_run();
	ck_assert_uint_eq(c->ups, 1);
	sent = taken = 0;
}

static void look(bool closes)
{
	mock_run();
	world_look();
	world.refuse_from = 0;
	if (closes)
		world_close(c);
	world_run();
}

static void send_frames(const uint8_t *data, size_t size, uint8_t choices)
{
	static unsigned char frame[VERBS_BUF(VERBS_FRAME)];
	unsigned n;

	for (n = 0; n < FRAMES && size >= 2; n++) {
		size_t len = (data[0] | (size_t)data[1] << 8) % (sizeof(frame) + 1), i;

		data += 2;
		size -= 2;
		for (i = 0; i < len; i++)
			frame[i] = i >= size ? 0 : data[i] == FOREIGN ? 0 : data[i];
		data += len < size ? len : size;
		size -= len < size ? len : size;
		world_peer_bytes(frame, len);
		sent += len;
		if (choices & AT_ONCE)
			continue;
		look(choices & CLOSED);
		if (!c->open)
			return;
	}
	look(choices & CLOSED);
}

static void end(void)
{
	world_pass(200 * MS);
	ck_assert_uint_le(taken, sent);
	ck_assert_uint_le(c->downs, 1);
	if (c->downs)
		/* it sends on without credits */
		ck_assert(c->why == -EPROTO || c->why == -ECONNRESET);
	if (c->ep)
		ck_assert_uint_le(verbs_ep_acked(c->ep), up.sent((struct rds_conn *)(void *)c));
	world_release();
	world_close(c);
	peer_drop_id(&world.peer);
	world_pass(2000 * MS);
	world_peer_drain();
	ck_assert_ptr_null(verbs_eps.all);
	world_buffers_out(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	world.keep_inplace = data[0] & KEPT;
	begin();
	world.refuse_from = (data[0] & REFUSED) / REFUSED_UNIT;
	send_frames(data + 1, size - 1, data[0]);
	end();
	return 0;
}
