/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * ack.c - when what has come is acknowledged (rx held throughout).
 *
 * When to acknowledge: whatever goes to the peer carries it, and the peer asks for it when it waits.  A frame of its own is sent for an
 * answer, for ACK_MESSAGES or ACK_BYTES that have not been told, and for ACK_ASLEEP before this process stops looking.  A peer that goes
 * on for long without having to ask has much room, and is told for two and four times as many bytes at a time: each of these
 * frames interrupts it.  Until it asks: then it has less room than that.
 *
 * Here it is decided; the frame is made by control_frame.c, at the engine's next call of verbs_push().  Must not know what is in a frame.
 */
#include "engine/transport/verbs/verbs.h"

#define ACK_MESSAGES 32u
#define ACK_ASLEEP 8u
#define ACK_BYTES (64u << 10)
#define ACK_STAGES 2u  /* twice as many bytes, and twice again, each after */
#define ACK_UNASKED 4u /* ... so many of these frames in a row; a stage at which it asked is tried again after */
#define ACK_AGAIN 256u /* ... so many */

static unsigned ack_stage(const struct verbs_ep *ep)
{
	uint32_t stage = ep->unasked / ACK_UNASKED, most = ACK_STAGES - ep->ack_spared;

	return stage < most ? stage : most;
}

static void ack_count_unasked(struct verbs_ep *ep)
{
	if (++ep->unasked < ACK_AGAIN)
		return;
	if (ep->ack_spared)
		ep->ack_spared--;
	ep->unasked = ACK_STAGES * ACK_UNASKED;
}

void verbs_ack_now(struct verbs_ep *ep, bool asked)
{
	if (asked) {
		atomic_store(&ep->ack_asked, true);
		if (ack_stage(ep))
			ep->ack_spared = ACK_STAGES - ack_stage(ep) + 1;
		ep->unasked = 0;
	}
	atomic_store(&ep->ack_due, true);
	ep->head.t->up->push_later(ep->head.conn);
}

static uint64_t ack_owed(const struct verbs_ep *ep)
{
	uint64_t have = atomic_load_explicit(&ep->rx_ack, memory_order_relaxed);
	uint64_t told = atomic_load_explicit(&ep->rx_ack_sent, memory_order_relaxed);

	return have > told ? have - told : 0;
}

/* A message has been taken, which the peer keeps until it hears of it. */
void verbs_ack_owe(struct verbs_ep *ep, uint32_t len)
{
	uint64_t n = ack_owed(ep), since = atomic_load_explicit(&ep->rx_ack_sent, memory_order_relaxed);

	if (since != ep->owed_since) {
		ep->owed_since = since;
		ep->owed_bytes = 0;
	}
	ep->owed_bytes += len;
	if (n >= ACK_MESSAGES || (n && ep->owed_bytes >= ACK_BYTES << ack_stage(ep))) {
		ep->owed_bytes = 0;
		ack_count_unasked(ep);
		verbs_ack_now(ep, false);
	} else if (n >= ACK_ASLEEP && !ep->owing) {
		ep->owing = true;
		ep->owing_next = rds_verbs.owing;
		rds_verbs.owing = ep;
	}
}

void verbs_ack_flush(void)
{
	struct verbs_ep *ep;

	while ((ep = rds_verbs.owing)) {
		rds_verbs.owing = ep->owing_next;
		ep->owing = false;
		if (ack_owed(ep) >= ACK_ASLEEP && atomic_load(&ep->state) == VERBS_UP)
			verbs_ack_now(ep, false);
	}
}

void verbs_ack_cancel(struct verbs_ep *ep)
{
	struct verbs_ep **p;

	for (p = &rds_verbs.owing; *p; p = &(*p)->owing_next)
		if (*p == ep) {
			*p = ep->owing_next;
			break;
		}
	ep->owing = false;
}
