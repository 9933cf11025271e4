/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * credit.c - frames that a peer may send, on devices that cannot make it wait.
 *
 * Where a frame that finds no receive buffer ends the connection (iWARP), each side counts.  A *credit* is a receive buffer that the
 * receiver has promised to one sender.  A receiver grants while all that it has promised is covered by buffers which are with the
 * device, or about to be; a busy endpoint holds up to WINDOW of them, each keeps FEWEST at least.
 *
 * A frame that only grants costs no credit, or two sides without credits would wait for each other.  There are never more than
 * SPARE of those under way: the next is not sent before the peer has used half a window, and it cannot have used more than a
 * window and a half without having read the first.  So SPARE buffers per endpoint are set aside.  Everything else costs one.
 *
 * On other devices nothing is counted: they make the sender wait.
 */
#include "engine/transport/verbs/verbs.h"

#define WINDOW 64u
#define FIRST 16u
#define FEWEST 4u
#define SPARE 4u

static inline bool counted(const struct verbs_ep *ep)
{
	return ep->dev->caps.credits;
}

/* Buffers that nobody has been promised. */
static uint32_t spare(const struct verbs_dev *dev)
{
	uint32_t have = dev->posted + dev->nrefill;

	return have > dev->promised ? have - dev->promised : 0;
}

/* ---- the sender ---- */

void verbs_credit_start(struct verbs_ep *ep, uint32_t given)
{
	atomic_fetch_add(&ep->credits, given);
}

bool verbs_credit_take(struct verbs_ep *ep, unsigned n)
{
	uint32_t have;

	if (!counted(ep))
		return true;
	have = atomic_load(&ep->credits);
	do {
		if (have < n)
			return false;
	} while (!atomic_compare_exchange_weak(&ep->credits, &have, have - n));
	return true;
}

void verbs_credit_more(struct verbs_ep *ep, uint32_t n)
{
	if (!counted(ep) || !n)
		return;
	atomic_fetch_add(&ep->credits, n);
	ep->head.t->up->speak(ep->head.conn); /* what waits for them: rest of a message, an acknowledgement */
	if (atomic_exchange(&ep->wants_room, false))
		ep->head.t->up->writable(ep->head.conn);
}

/* ---- the receiver (rx) ---- */

static void promise(struct verbs_ep *ep, uint32_t n)
{
	ep->granted += n;
	ep->dev->promised += n;
}

uint32_t verbs_credit_first(struct verbs_dev *dev, struct verbs_ep *ep)
{
	uint32_t have, n = 0;

	if (!dev->caps.credits)
		return 0;
	rx_lock();
	have = spare(dev);
	if (have >= SPARE + FEWEST)
		n = have / 4 >= FIRST ? FIRST : FEWEST;
	if (n) {
		promise(ep, n);
		dev->promised += SPARE;
		ep->spare = SPARE;
	}
	rx_unlock();
	return n;
}

/* How many the peer should hold in all. */
static uint32_t window(const struct verbs_ep *ep)
{
	uint32_t have = spare(ep->dev);

	if (have / 4 >= WINDOW)
		return WINDOW;
	return have / 4 > FEWEST ? have / 4 : FEWEST;
}

void verbs_credit_came(struct verbs_ep *ep, bool free_of_charge)
{
	uint32_t want, more;

	if (!counted(ep))
		return;
	if (!free_of_charge && ep->granted) {
		ep->granted--;
		ep->dev->promised--;
	}
	want = window(ep);
	if (ep->granted >= want)
		return;
	more = want - ep->granted;
	if (more > spare(ep->dev))
		more = spare(ep->dev);
	if (more < (want + 1) / 2 && ep->granted > FEWEST / 2)
		return;
	promise(ep, more);
	atomic_fetch_add(&ep->grant, more);
	ep->head.t->up->speak(ep->head.conn);
}

bool verbs_credit_due(const struct verbs_ep *ep)
{
	return atomic_load(&ep->grant) > 0;
}

void verbs_credit_end(struct verbs_ep *ep)
{
	ep->dev->promised -= ep->granted + ep->spare;
	ep->granted = ep->spare = 0;
}
