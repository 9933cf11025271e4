/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * credit.c - what a peer may send, on devices that cannot make it wait.
 *
 * Where a frame that finds no receive buffer, or a smaller one than it needs, ends the connection (iWARP), the sender has to know what lies
 * in the receiver's queue.  It is told, in the order in which buffers were posted, and after they were: a *credit* is one buffer, small
 * or large.  Whatever is sent uses the oldest; a frame that is larger goes in segments (send.c, segment.c).  So both sides always
 * agree, whatever crosses, and as queue and credits end with the connection nothing is left over for the next one.
 *
 * Nobody waits for ever.  The last credit is for a frame that says nothing but new credits.  Who has seen its peer come down to fewer than
 * two tells it of so many more that it has VERBS_OWN; that these can be had is what credit_buffers.c sees to.
 *   - Both without any, and nothing under way, cannot be: each one's last went on a frame that gave the other some, and one of
 *     these two frames was sent before the other one had been read.
 *   - Such frames end by themselves: without a message to be sent they are only sent for two credits at least, and use one.  What is
 *     too much for one header goes in several, all of it, since the receiver counts on it; a full one makes up for a last one of one credit.
 *
 * New ones are told with whatever goes to the peer anyway, and only for themselves when it has few left (credit_must_grant).
 *
 * Beyond that: small ones as a sender uses them, up to SMALL_MOST; large ones for one that sends what small ones cannot hold.  Credits
 * cannot be taken back from one that then falls silent, so a window is a share of what is free, and the last large ones (RESERVE) are
 * only lent for a frame that has begun to come, one at a time: that is used, if the sender lives.  Congestion maps are no reason for a
 * window, every connection begins with one.
 */
#include "engine/transport/verbs/verbs.h"

#define FIRST 16u
#define SMALL_MOST 32u
#define LARGE_MOST 16u /* 1 MiB */
#define SHARE 8u
#define LARGE_SHARE 4u
#define RESERVE 8u /* an eighth of the large ones */
#define TELL_AT 4u /* a peer that has this part left of what lies in its queue */
#define URGENT_BELOW (2 * VERBS_OWN) /* in its queue: not left for a look that finds nothing */
#define SELDOM 4u  /* segments: fewer are no reason for a window */
#define SEEN 8u	   /* what a large frame counts for a large window, and a small one 1 against it; twice is needed */
#define SEEN_MOST (4 * SEEN)
/* In a header: so many large ones, then so many small ones. */
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
	if (unlikely(atomic_load(&ep->backlog)) ||
	    (unlikely(atomic_load_explicit(&ep->control_stuck, memory_order_relaxed)) &&
	     atomic_exchange(&ep->control_stuck, false)))
		ep->head.t->up->push_later(ep->head.conn); /* rest of a message, an acknowledgement */
	if (unlikely(atomic_load_explicit(&ep->wants_room, memory_order_relaxed)) &&
	    atomic_exchange(&ep->wants_room, false))
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

/* Few if large ones are what it needs, and come one at a time: it would have to use the small ones up first. */
static uint32_t credit_small_window(const struct verbs_ep *ep)
{
	const struct verbs_dev *dev = ep->dev;
	uint32_t share = dev->nsmall > dev->small_reserved ? (dev->nsmall - dev->small_reserved) / SHARE : 0, n;

	if (ep->peer_used < SELDOM || (ep->large_seen > SEEN && dev->nlarge))
		return VERBS_OWN;
	n = credit_min(share, ep->peer_used < SMALL_MOST / 2 ? 2 * ep->peer_used : SMALL_MOST);
	return n > VERBS_OWN ? n : VERBS_OWN;
}

/* So many more are due.  Half a window at a time. */
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
		*small = *large; /* two or none */
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

/* Of what lies in its queue the peer knows so many. */
static uint32_t credit_peer_has(const struct verbs_ep *ep)
{
	uint32_t n = credit_ungranted(ep);

	return ep->rq_len > n ? ep->rq_len - n : 0;
}

/* What goes to the peer anyway tells it.  It is not waited for when the peer may soon have to stop, or has stopped. */
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
	if (ep->rq_len < 2)
		verbs_bufs_retry_later(ep->dev); /* the device took none, or all are with frames that wait for memory */
}

void verbs_credit_serve(struct verbs_dev *dev)
{
	struct verbs_ep *ep;

	dev->urgent = false;
	while ((ep = dev->credit_wait)) {
		dev->credit_wait = ep->credit_wait_next;
		ep->credit_wait = false;
		credit_feed(ep);
	}
}

void verbs_credit_retry(struct verbs_dev *dev)
{
	struct verbs_ep *ep;

	for (ep = rds_verbs.eps; dev->caps.credits && ep; ep = ep->next)
		if (ep->dev == dev && ep->member && ep->rq_len < 2)
			verbs_credit_schedule(ep);
}

const char *verbs_credit_received(struct verbs_ep *ep, const struct verbs_buf *buf)
{
	const struct rds_wire_hdr *h = (const void *)buf->mem;
	bool begins = buf->len >= VERBS_HDR && !verbs_segment_continues(buf);
	bool grants = begins && h->credit && verbs_segment_is_control(buf);

	if (atomic_load(&ep->offered) - atomic_load_explicit(&ep->offer_told, memory_order_acquire) > ep->rq_len)
		return "more frames than it has credits for";
	verbs_credit_schedule(ep);
	/* It may not be able to say anything that makes somebody look again. */
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

/* What lies in its queue when the peer hears of it: more, as long as most are free.  The large one is for the congestion map. */
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
		rds_warn("%s: no receive buffers for another connection: it is refused. "
			 "RDS_PRELOAD_VERBS_BUFFERS and the limit of locked memory say how many there can be "
			 "(%u now; each idle connection needs %u small ones)",
			 dev->name, dev->nbufs, VERBS_OWN);
}

/* New endpoints shall not take what windows live on. */
static bool credit_scarce(const struct verbs_dev *dev)
{
	bool yes;

	rx_lock();
	yes = dev->nsmall < dev->small_reserved + VERBS_OWN + dev->base / 4;
	rx_unlock();
	return yes;
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
		verbs_bufs_grow(dev, VERBS_OWN); /* or not */
	n = credit_set_aside(ep);
	if (n || ep->rq_len) /* else there were too few */
		return n;
	err = verbs_bufs_grow(dev, VERBS_OWN);
	n = err ? 0 : credit_set_aside(ep);
	if (!n)
		credit_refused(dev, err ? err : -ENOBUFS);
	return n;
}

void verbs_credit_end(struct verbs_ep *ep)
{
	struct verbs_ep **p;

	for (p = &ep->dev->credit_wait; ep->credit_wait && *p; p = &(*p)->credit_wait_next)
		if (*p == ep) {
			*p = ep->credit_wait_next;
			break;
		}
	ep->credit_wait = false;
	verbs_credit_buf_unreserve(ep);
}

/* ---- telling the peer (tx) ---- */

bool verbs_credit_grant_due(const struct verbs_ep *ep)
{
	return atomic_load(&ep->offered) != atomic_load_explicit(&ep->offer_told, memory_order_relaxed);
}

/* Not all of them if large ones lie behind small ones, or if there are many.  Who owes the rest is still due. */
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
