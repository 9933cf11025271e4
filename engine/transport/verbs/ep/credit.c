/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * credit.c - how much a peer may send, on devices that cannot make a sender wait.
 *
 * On iWARP a frame that finds no receive buffer, or a buffer smaller than it needs, ends the
 * connection.  So the sender has to know the buffers in the receiver's queue.  The receiver grants
 * them in the order in which they were posted, and after they were posted: a *credit* is one
 * buffer, small or large.  Everything that is sent uses the oldest credit; a frame that is larger
 * than its buffer goes in segments (send.c, segment.c).  So both sides always agree, whatever
 * frames cross, and as queue and credits end with the connection nothing is left over for the next
 * one.
 *
 * No side waits for ever.  The last credit is kept for a frame that only grants new credits.  A
 * receiver that sees its peer come down to fewer than two credits grants so many more that the
 * peer has VERBS_OWN; credit_buffers.c makes sure that these buffers are available.
 *
 *   - Both sides without any credit, and nothing under way, is impossible: each side's last
 *     credit went on a frame that granted the other side some, and one of these two frames was
 *     sent before the other one had been read.
 *   - Such frames come to an end: without a message to be sent they are only sent for two
 *     credits at least, and use one.  If one header cannot hold all credits they go in several
 *     frames, all of them, since the receiver counts on it; a full frame makes up for a last
 *     frame of one credit.
 *
 * New credits are granted in frames that go to the peer anyway, and in a control frame only if the
 * peer has few left (credit_must_grant).
 *
 * Beyond that minimum: small buffers as a sender uses them, up to SMALL_MOST; large buffers for a
 * sender of frames that small buffers cannot hold.  Credits cannot be taken back from a sender
 * that falls silent.  So a window is a share of the free buffers, and the last large buffers
 * (RESERVE) are only posted, one at a time, for a frame that has begun to come: such a buffer is
 * used if the sender lives.  Congestion maps do not count for a window: they say nothing of the
 * messages to come.
 */
#include "engine/transport/verbs/ep/ep.h"

#define FIRST 16u
#define SMALL_MOST 32u
#define LARGE_MOST 16u /* 1 MiB */
#define SHARE 8u
#define LARGE_SHARE 4u
#define RESERVE 8u /* this part of the large buffers is kept in reserve */
#define TELL_AT 4u /* grant when the peer has this part of its queue left */
/* with fewer buffers in the queue: posted at once, not at a look that finds nothing */
#define URGENT_BELOW (2 * VERBS_OWN)
#define SELDOM 4u /* fewer segments received do not open a window */
/*
 * A large frame counts so much for a large window, a small frame counts 1 against it; more than
 * SEEN is needed.
 */
#define SEEN 8u
#define SEEN_MOST (4 * SEEN)
/* Largest numbers in a header: large credits, which come first, and small credits. */
#define TOLD_MOST 15u
#define TOLD_SHIFT 4

static inline bool credit_counted(const struct verbs_ep *ep)
{
	return ep->dev->caps.credits;
}

/* ---- the sender ---- */

/* rx */
static bool credit_know(struct verbs_ep *ep, uint32_t small, uint32_t large)
{
	uint32_t told = atomic_load_explicit(&ep->known_told, memory_order_relaxed);

	if (told - atomic_load_explicit(&ep->known_used, memory_order_acquire) + small + large > VERBS_KNOWN)
		return false;
	while (large--)
		ep->known[told++ % VERBS_KNOWN] = true;
	while (small--)
		ep->known[told++ % VERBS_KNOWN] = false;
	atomic_store(&ep->known_told, told);
	return true;
}

bool verbs_credit_start(struct verbs_ep *ep, uint32_t said)
{
	bool ok;

	rx_lock();
	ok = credit_know(ep, said & 0xff, said >> 8);
	rx_unlock();
	return ok;
}

uint32_t verbs_credit_count(const struct verbs_ep *ep)
{
	return atomic_load_explicit(&ep->known_told, memory_order_acquire) -
	       atomic_load_explicit(&ep->known_used, memory_order_relaxed);
}

uint32_t verbs_credit_take(struct verbs_ep *ep, bool grants)
{
	uint32_t used;
	bool large;

	if (!credit_counted(ep))
		return UINT32_MAX;
	if (verbs_credit_count(ep) < (grants ? 1 : 2))
		return 0;
	used = atomic_load_explicit(&ep->known_used, memory_order_relaxed);
	large = ep->known[used % VERBS_KNOWN];
	atomic_store_explicit(&ep->known_used, used + 1, memory_order_release);
	return large ? VERBS_HDR + ep->frame : VERBS_BUF_SMALL;
}

static const char *credit_granted(struct verbs_ep *ep, uint8_t told)
{
	if (!credit_know(ep, told & TOLD_MOST, told >> TOLD_SHIFT))
		return "more credits than there can be";
	rds_fence();
	/* sends the rest of a message, or a control frame */
	if (unlikely(atomic_load(&ep->backlog)) || verbs_ep_flag_take(&ep->control_stuck))
		ep->head.t->up->push_later(ep->head.conn);
	if (verbs_ep_flag_take(&ep->wants_room))
		ep->head.t->up->writable(ep->head.conn);
	return NULL;
}

/* ---- the receiver (rx) ---- */

void verbs_credit_schedule(struct verbs_ep *ep)
{
	if (ep->rq_len < URGENT_BELOW)
		ep->dev->urgent = true;
	if (ep->credit_wait)
		return;
	ep->credit_wait = true;
	ep->credit_wait_next = ep->dev->credit_wait;
	ep->dev->credit_wait = ep;
}

static uint32_t credit_min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t credit_large_window(const struct verbs_ep *ep)
{
	const struct verbs_dev *dev = ep->dev;
	uint32_t reserve = dev->all_large / RESERVE, room = dev->nlarge > reserve ? dev->nlarge - reserve : 0;

	if (ep->large_seen <= SEEN)
		return 0;
	return credit_min((room + LARGE_SHARE - 1) / LARGE_SHARE, ep->large_seen * LARGE_MOST / SEEN_MOST);
}

/*
 * Few small buffers for a sender that needs large ones, which are posted one at a time: it would
 * have to use up the small ones first.
 */
static uint32_t credit_small_window(const struct verbs_ep *ep)
{
	const struct verbs_dev *dev = ep->dev;
	uint32_t share = dev->nsmall > dev->small_reserved ? (dev->nsmall - dev->small_reserved) / SHARE : 0, n;

	if (ep->peer_used < SELDOM || (ep->large_seen > SEEN && dev->nlarge))
		return VERBS_OWN;
	n = credit_min(share, ep->peer_used < SMALL_MOST / 2 ? 2 * ep->peer_used : SMALL_MOST);
	return n > VERBS_OWN ? n : VERBS_OWN;
}

/* Computes how many more buffers are due.  Half a window is posted at a time. */
static void credit_plan(const struct verbs_ep *ep, uint32_t *small, uint32_t *large)
{
	uint32_t want = credit_large_window(ep), lie = ep->rq_len - ep->nlarge;
	bool begun = ep->part && !ep->nlarge;

	*small = 0;
	*large = ep->nlarge <= want / 2 ? want - ep->nlarge : 0;
	if (begun && !*large && ep->dev->nlarge)
		*large = 1;
	if (!want) {
		want = credit_small_window(ep);
		if (lie <= want / 2)
			*small = want - lie;
	}
	if (ep->rq_len < 2 && ep->rq_len + *small + *large < VERBS_OWN)
		*small = VERBS_OWN - ep->rq_len - *large;
	else if (ep->rq_len >= 2 && *small + *large < 2 && !begun)
		*small = *large; /* two or none (see above: frames come to an end) */
}

static void credit_post(struct verbs_ep *ep, uint32_t n, bool large)
{
	uint32_t at = atomic_load_explicit(&ep->offered, memory_order_relaxed);

	while (n-- && verbs_credit_buf_post(ep, large)) {
		ep->offer[at % VERBS_RQ] = large;
		atomic_store(&ep->offered, ++at);
	}
}

static uint32_t credit_ungranted(const struct verbs_ep *ep)
{
	return atomic_load_explicit(&ep->offered, memory_order_relaxed) -
	       atomic_load_explicit(&ep->offer_told, memory_order_relaxed);
}

/* Buffers in the queue that have been granted to the peer. */
static uint32_t credit_peer_has(const struct verbs_ep *ep)
{
	uint32_t n = credit_ungranted(ep);

	return ep->rq_len > n ? ep->rq_len - n : 0;
}

/*
 * Frames that go to the peer anyway grant credits.  Such a frame is not waited for when the peer
 * may soon have to stop, or has stopped.
 */
static bool credit_must_grant(const struct verbs_ep *ep)
{
	uint32_t has = credit_peer_has(ep);

	return credit_ungranted(ep) && (has < VERBS_OWN || has <= ep->rq_len / TELL_AT || ep->part);
}

static void credit_feed(struct verbs_ep *ep)
{
	uint32_t small, large;

	credit_plan(ep, &small, &large);
	credit_post(ep, large, true);
	credit_post(ep, small, false);
	if (credit_must_grant(ep))
		ep->head.t->up->push_later(ep->head.conn);
	/* the device took none, or all buffers hold frames that wait for memory */
	if (ep->rq_len < 2)
		verbs_bufs_retry_later(ep->dev);
}

void verbs_credit_serve(struct verbs_dev *dev)
{
	struct verbs_ep *ep;

	if (dev->dead)
		return;
	dev->urgent = false;
	while ((ep = dev->credit_wait)) {
		dev->credit_wait = ep->credit_wait_next;
		ep->credit_wait = false;
		credit_feed(ep);
	}
}

void verbs_ep_dev_starved(struct verbs_dev *dev)
{
	struct verbs_ep *ep;

	if (!dev->caps.credits)
		return;
	for (ep = verbs_eps.all; ep; ep = ep->next)
		if (ep->dev == dev && ep->member && ep->rq_len < 2)
			verbs_credit_schedule(ep);
	verbs_credit_serve(dev);
}

const char *verbs_credit_received(struct verbs_ep *ep, const struct verbs_buf *buf)
{
	const struct rds_wire_hdr *h = (const void *)buf->mem;
	bool begins = buf->len >= VERBS_HDR && !verbs_segment_continues(buf);
	bool grants = begins && h->credit && verbs_segment_is_control(buf);

	if (atomic_load(&ep->offered) - atomic_load_explicit(&ep->offer_told, memory_order_acquire) > ep->rq_len)
		return "more frames than it has credits for";
	verbs_credit_schedule(ep);
	/*
	 * The peer may be unable to send anything that causes another look, so buffers are posted
	 * at once.
	 */
	if (!begins || verbs_segment_frame_len(buf) > buf->len || credit_peer_has(ep) < VERBS_OWN)
		ep->dev->urgent = true;
	if (!grants)
		ep->peer_used++;
	if (begins && !verbs_segment_is_control(buf) && !(h->flags & RDS_FLAG_CONG_BITMAP)) {
		if (verbs_segment_frame_len(buf) > VERBS_BUF_SMALL)
			ep->large_seen = credit_min(ep->large_seen + SEEN, SEEN_MOST);
		else if (ep->large_seen)
			ep->large_seen--;
	}
	return begins && h->credit ? credit_granted(ep, h->credit) : NULL;
}

/* ---- begin and end ---- */

static uint32_t credit_post_some(struct verbs_ep *ep, uint32_t n, bool large)
{
	uint32_t got = 0;

	while (got < n && verbs_credit_buf_post(ep, large))
		got++;
	return got;
}

/*
 * Posts the buffers of a new endpoint: more, as long as most are free.  The large ones are for a
 * first large message, or a whole congestion map.
 */
static uint32_t credit_set_aside(struct verbs_ep *ep)
{
	const struct verbs_dev *dev = ep->dev;
	uint32_t small = 0, large, quarter = dev->all_large / 4;

	rx_lock();
	if (verbs_credit_buf_reserve(ep)) {
		large = credit_post_some(ep, dev->nlarge > 3 * quarter ? 2 : dev->nlarge > 2 * quarter, true);
		small = credit_post_some(
			ep, dev->nbufs - dev->all_large - dev->nsmall < dev->base / 4 ? FIRST : VERBS_OWN, false);
		if (small < VERBS_OWN)
			verbs_credit_buf_unreserve(ep);
	}
	rx_unlock();
	return small < VERBS_OWN ? 0 : VERBS_CREDITS(small, large);
}

static void credit_refused(struct verbs_dev *dev, int err)
{
	verbs_memlock_help(dev, err, "a connection's receive buffers,", VERBS_OWN * VERBS_BUF_SMALL);
	if (!atomic_exchange(&dev->full, true))
		rds_warn("the RDMA device %s: no receive buffers for another connection: it is refused. "
			 "RDS_PRELOAD_VERBS_BUFFERS and the limit of locked memory say how many there can be "
			 "(%u now; each idle connection needs %u small ones)",
			 dev->name, dev->nbufs, VERBS_OWN);
}

/* New endpoints must not use up the buffers that windows need. */
static bool credit_scarce(const struct verbs_dev *dev)
{
	bool yes;

	rx_lock();
	yes = dev->nsmall < dev->small_reserved + VERBS_OWN + dev->base / 4;
	rx_unlock();
	return yes;
}

static int credit_bufs_grow(struct verbs_dev *dev)
{
	int err = verbs_bufs_grow(dev, VERBS_OWN);

	if (err)
		return err;
	rx_lock();
	verbs_credit_serve(dev);
	rx_unlock();
	return 0;
}

uint32_t verbs_credit_initial(struct verbs_dev *dev, struct verbs_ep *ep)
{
	uint32_t n;
	int err;

	if (!dev->caps.credits)
		return 0;
	atomic_store(&ep->known_told, 0);
	atomic_store(&ep->known_used, 0);
	atomic_store(&ep->offered, 0);
	atomic_store(&ep->offer_told, 0);
	ep->peer_used = ep->large_seen = 0;
	if (credit_scarce(dev))
		credit_bufs_grow(dev); /* may fail */
	n = credit_set_aside(ep);
	if (n || ep->rq_len) /* rq_len is 0 only if too few could be reserved */
		return n;
	err = credit_bufs_grow(dev);
	n = err ? 0 : credit_set_aside(ep);
	if (!n)
		credit_refused(dev, err ? err : -ENOBUFS);
	return n;
}

void verbs_credit_end(struct verbs_ep *ep)
{
	if (ep->credit_wait)
		VERBS_EP_UNLIST(ep->dev->credit_wait, ep, credit_wait_next);
	ep->credit_wait = false;
	verbs_credit_buf_unreserve(ep);
}

/* ---- telling the peer (tx) ---- */

bool verbs_credit_grant_due(const struct verbs_ep *ep)
{
	return atomic_load(&ep->offered) != atomic_load_explicit(&ep->offer_told, memory_order_relaxed);
}

/*
 * Grants as many credits as one header can hold: not all of them if large ones lie behind small
 * ones, or if there are many.  The rest stays due.
 */
uint8_t verbs_credit_grant(struct verbs_ep *ep)
{
	uint32_t told = atomic_load_explicit(&ep->offer_told, memory_order_relaxed), small = 0, large = 0;
	uint32_t end = atomic_load_explicit(&ep->offered, memory_order_acquire);

	if (likely(told == end))
		return 0;
	for (; told != end && large < TOLD_MOST && ep->offer[told % VERBS_RQ]; told++)
		large++;
	for (; told != end && small < TOLD_MOST && !ep->offer[told % VERBS_RQ]; told++)
		small++;
	atomic_store_explicit(&ep->offer_told, told, memory_order_release);
	return (uint8_t)(large << TOLD_SHIFT | small);
}
