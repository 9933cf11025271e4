/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * ack.c - decides when received messages are acknowledged (rx held throughout).
 *
 * Every frame to the peer carries an acknowledgement, and the peer asks for one when it waits.  A
 * control frame is sent in these cases: the peer has asked; ACK_MESSAGES messages or ACK_BYTES
 * bytes are not acknowledged; ACK_ASLEEP messages are not acknowledged and this process is about
 * to stop looking; anything is not acknowledged and this process ends.
 *
 * A peer that goes on for long without asking has much room.  It then gets a control frame only
 * for two and four times as many bytes, since each of these frames interrupts it.  When such a
 * peer does ask, it has less room than that, and the number of bytes goes down again.
 *
 * This file only decides.  control_frame.c makes the frame, at the engine's next call of
 * verbs_ep_push().  Must not know what is in a frame.
 */
#include "engine/transport/verbs/ep/ep.h"

#define ACK_MESSAGES 32u
#define ACK_ASLEEP 8u
#define ACK_BYTES (64u << 10)
#define ACK_STAGES 2u /* number of stages; each doubles the bytes per acknowledgement */
/* acknowledgements in a row, without a request of the peer, that reach the next stage */
#define ACK_UNASKED 4u
/* acknowledgements after which a stage at which the peer asked is tried again */
#define ACK_AGAIN 256u

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

/* A message has been taken; the peer retains it until it is acknowledged. */
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
		ep->owing_next = verbs_eps.owing;
		verbs_eps.owing = ep;
	}
}

void verbs_ack_flush(void)
{
	struct verbs_ep *ep;

	while ((ep = verbs_eps.owing)) {
		verbs_eps.owing = ep->owing_next;
		ep->owing = false;
		if (ack_owed(ep) >= ACK_ASLEEP && atomic_load(&ep->state) == VERBS_UP)
			verbs_ack_now(ep, false);
	}
}

/*
 * This process ends by exit(), or executes a program.  (At an _exit() any lock may be held.)
 *
 * Nobody answers when the process has ended: a peer that asks then would wait for the longest time
 * that it may wait at its own end, for messages that have arrived.  The end of the process destroys
 * the queue pair with all that the device has not sent, so the device has to be done with the frame.
 * Where no frame can be sent (no room, no credits) the process does not wait.  Once for each end (an
 * exec may fail), or a peer that goes on sending would keep the process.
 */
bool verbs_ep_leave(struct rds_ep *rep, bool begin)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;

	if (atomic_load(&ep->state) != VERBS_UP)
		return true;
	if (begin)
		ep->leaving = false;
	if (!ep->leaving && ack_owed(ep)) {
		atomic_store(&ep->ack_due, true);
		atomic_store(&ep->signal_due, true);
		verbs_ep_push(rep);
		ep->leaving = !ack_owed(ep);
		ep->leave_wr = atomic_load(&ep->wr_posted);
	}
	if (!ep->leaving || (int32_t)(atomic_load(&ep->wr_done) - ep->leave_wr) >= 0)
		return true;
	/* there may have been no room in the queue for what tells of its end */
	atomic_store(&ep->signal_due, true);
	verbs_ep_push(rep);
	return false;
}

void verbs_ack_cancel(struct verbs_ep *ep)
{
	VERBS_EP_UNLIST(verbs_eps.owing, ep, owing_next);
	ep->owing = false;
}
