/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * credit.c - frames that a peer may send, on devices that cannot make it wait.
 *
 * Where a frame that finds no receive buffer ends the connection (iWARP), each side counts.  A *credit* is a receive buffer that the
 * receiver has promised to one sender, and everything that is promised lies with the device: dev->posted >= dev->promised whenever
 * something more is promised.  Two buffers are set aside per endpoint as long as it lives: one for its last credit (FEWEST), one for a
 * frame that only grants (SPARE).  What it holds beyond that, up to WINDOW for a busy one, is an eighth of what nobody has been promised.
 * Credits cannot be taken back, but what is used is granted again only as far as that eighth goes, and whoever has sent little is
 * given little unless most of it lies free, since it would keep it: a thousand idle connections leave most of it to the busy ones.
 * All that is beyond the two never exceeds what the device began with (dev->base); for the two the device gets more buffers as
 * endpoints come (verbs_dev_grow), before windows have none.
 *
 * A frame that only grants is free of charge, or two sides without credits would wait for each other.  One at a time is under way
 * unread: the next is sent only after the peer has used more credits than it had been told before the last one, so it has read that
 * (may_be_free).  And it uses what it read only after its buffers are with its device again (serve).  So one buffer is enough, and both
 * rules are checked by whoever receives: a peer that does not keep them would take the buffers of others.
 *
 * Granting and learning happen after buffers have been posted: endpoints that have something to do there are in dev->hungry.
 *
 * On other devices nothing is counted: they make the sender wait.
 */
#include "engine/transport/verbs/verbs.h"

#define WINDOW 64u
#define FIRST 16u
#define FEWEST 1u
#define SPARE 1u
#define SHARE 8u
#define SELDOM 4u /* frames: less is no reason for a window */

static inline bool counted(const struct verbs_ep *ep)
{
	return ep->dev->caps.credits;
}

/* ---- the sender ---- */

static void may_send(struct verbs_ep *ep, uint32_t n)
{
	ep->learnt_all += n;
	atomic_fetch_add(&ep->credits, n);
}

void verbs_credit_start(struct verbs_ep *ep, uint32_t given)
{
	rx_lock();
	may_send(ep, given);
	rx_unlock();
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

static void hungry(struct verbs_ep *ep)
{
	if (ep->hungry)
		return;
	ep->hungry = true;
	ep->hungry_next = ep->dev->hungry;
	ep->dev->hungry = ep;
}

static void learn(struct verbs_ep *ep)
{
	if (!ep->learnt)
		return;
	may_send(ep, ep->learnt);
	ep->learnt = 0;
	ep->head.t->up->speak(ep->head.conn); /* what waits for them: rest of a message, an acknowledgement */
	if (atomic_exchange(&ep->wants_room, false))
		ep->head.t->up->writable(ep->head.conn);
}

/* ---- the receiver (rx) ---- */

static uint32_t above(uint32_t granted)
{
	return granted > FEWEST ? granted - FEWEST : 0;
}

static void set_granted(struct verbs_ep *ep, uint32_t n)
{
	struct verbs_dev *dev = ep->dev;
	uint32_t more = above(n) - above(ep->granted); /* wraps, and back */

	dev->promised += more;
	dev->extra += more;
	ep->granted = n;
}

/* Buffers for windows: nobody has been promised them, and windows may have them. */
static uint32_t room(const struct verbs_dev *dev)
{
	uint32_t lie = dev->posted > dev->promised ? dev->posted - dev->promised : 0;
	uint32_t may = dev->base > dev->extra ? dev->base - dev->extra : 0;

	return lie < may ? lie : may;
}

/* False: there are not enough buffers. */
static bool set_aside(struct verbs_dev *dev, struct verbs_ep *ep, uint32_t *n)
{
	bool done;

	rx_lock();
	if (dev->nrefill)
		verbs_dev_refill(dev);
	done = dev->posted >= dev->promised + FEWEST + SPARE;
	if (done) {
		dev->promised += FEWEST + SPARE;
		ep->spare = FEWEST + SPARE;
		*n = room(dev) > dev->base - dev->base / 4 ? FIRST : FEWEST;
		set_granted(ep, *n);
		ep->offered = *n;
	}
	rx_unlock();
	return done;
}

/* New endpoints shall not take what windows live on: half of what there was at the beginning, as far as nobody has that yet. */
static bool scarce(const struct verbs_dev *dev)
{
	uint32_t may;
	bool yes;

	rx_lock();
	may = dev->base > dev->extra ? dev->base - dev->extra : 0;
	yes = dev->posted + dev->nrefill < dev->promised + FEWEST + SPARE + (may < dev->base / 2 ? may : dev->base / 2);
	rx_unlock();
	return yes;
}

static void refused(struct verbs_dev *dev, int err)
{
	if (err != -ENOBUFS)
		verbs_memlock_help(dev, (FEWEST + SPARE) * VERBS_BUF(dev->caps.frame));
	if (!atomic_exchange(&dev->full, true))
		rds_warn("%s: no receive buffers for another connection: it is refused. "
			 "RDS_PRELOAD_VERBS_BUFFERS and the limit of locked memory say how many there can be "
			 "(%u now; each idle connection needs %u)",
			 dev->name, dev->nbufs, FEWEST + SPARE);
}

uint32_t verbs_credit_first(struct verbs_dev *dev, struct verbs_ep *ep)
{
	uint32_t n = 0;
	int err;

	if (!dev->caps.credits)
		return 0;
	ep->free_at = ep->free_seen = UINT32_MAX;
	if (scarce(dev))
		verbs_dev_grow(dev, FEWEST + SPARE); /* or not */
	do {
		if (set_aside(dev, ep, &n))
			return n;
		err = verbs_dev_grow(dev, FEWEST + SPARE);
	} while (!err);
	refused(dev, err);
	return 0;
}

/* How many the peer should hold in all, if not more already. */
static uint32_t window(const struct verbs_ep *ep)
{
	uint32_t share = room(ep->dev) / SHARE, used = atomic_load(&ep->peer_used), most = WINDOW;

	if (used < SELDOM)
		return FEWEST;
	if (used < WINDOW / 2)
		most = 2 * used;
	return share >= most ? most : share > FEWEST ? share : FEWEST;
}

static void grant(struct verbs_ep *ep)
{
	uint32_t want = window(ep), more;

	if (ep->granted >= want)
		return;
	more = want - ep->granted;
	if (more < (want + 1) / 2)
		return;
	set_granted(ep, want);
	atomic_fetch_add(&ep->grant, more);
	ep->head.t->up->speak(ep->head.conn);
}

void verbs_credit_serve(struct verbs_dev *dev)
{
	struct verbs_ep *ep;

	while ((ep = dev->hungry) && dev->posted >= dev->promised) {
		dev->hungry = ep->hungry_next;
		ep->hungry = false;
		learn(ep);
		grant(ep);
	}
}

/* Those who read messages in place do not get what is promised, or their senders would wait until they have read. */
bool verbs_credit_in_place(const struct verbs_dev *dev)
{
	return !dev->caps.credits || dev->posted + dev->nrefill >= dev->promised;
}

/* By whoever has been told of a free one before: has the peer used more than it knew before it was told? */
static bool was_read(uint32_t used, uint32_t told_before)
{
	return (int32_t)(used - told_before) > 0;
}

static const char *came_free(struct verbs_ep *ep, uint32_t n)
{
	uint32_t sent = ep->learnt_all - atomic_load(&ep->credits);

	if (!was_read(sent, ep->free_seen))
		return "credits more often than is allowed";
	ep->free_seen = ep->learnt_all + ep->learnt;
	ep->learnt += n;
	hungry(ep);
	return NULL;
}

const char *verbs_credit_came(struct verbs_ep *ep, uint32_t n, bool free_of_charge)
{
	if (!counted(ep))
		return NULL;
	if (free_of_charge)
		return came_free(ep, n);
	if (!ep->granted)
		return "more frames than it has credits for";
	set_granted(ep, ep->granted - 1);
	atomic_fetch_add(&ep->peer_used, 1);
	ep->learnt += n;
	hungry(ep);
	if (atomic_load(&ep->grant)) /* may be free now */
		ep->head.t->up->speak(ep->head.conn);
	return NULL;
}

void verbs_credit_end(struct verbs_ep *ep)
{
	struct verbs_ep **p;

	for (p = &ep->dev->hungry; ep->hungry && *p; p = &(*p)->hungry_next)
		if (*p == ep) {
			*p = ep->hungry_next;
			break;
		}
	ep->hungry = false;
	set_granted(ep, 0);
	ep->dev->promised -= ep->spare;
	ep->spare = 0;
}

/* ---- telling the peer (tx) ---- */

bool verbs_credit_due(const struct verbs_ep *ep)
{
	return atomic_load(&ep->grant) > 0 && was_read(atomic_load(&ep->peer_used), ep->free_at);
}

uint32_t verbs_credit_tell(struct verbs_ep *ep, bool free_of_charge)
{
	uint32_t n = atomic_load_explicit(&ep->grant, memory_order_relaxed);

	if (likely(!n))
		return 0;
	if (n > 255)
		n = 255;
	atomic_fetch_sub(&ep->grant, n);
	if (free_of_charge)
		ep->free_at = ep->offered;
	ep->offered += n;
	return n;
}
