/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * owner_sleep.c - borrowers' calls that sleep at the owner: how one begins to wait, what tries it
 * again, and its end by a timeout.
 *
 * Helper thread only, apart from rds_owner_wake().
 *
 * A call that sleeps is marked (sk->proxy_sleeps) before it is tried for the last time, so that the
 * event which it waits for finds the mark.  Calls of one kind are served in the order in which they
 * came.
 *
 * A call sleeps for the socket's timeout at most: the timer of its channel ends it.  A call that
 * waits for a congested port has no timeout, as in the kernel.
 *
 * Must not know what calls do (owner_call.c), nor how a channel carries them (owner.c).
 */
#include "engine/share/owner.h"

static _Atomic bool due; /* calls that sleep are to be tried again */

void rds_owner_sleep_end(struct rds_owner_channel *h)
{
	struct rds_owner *c = h->owner;
	struct rds_owner_channel **p;

	if (!h->call)
		return;
	for (p = &c->waiting; *p && *p != h; p = &(*p)->wait_next)
		;
	if (*p)
		*p = h->wait_next;
	for (p = &c->waiting; *p; p = &(*p)->wait_next)
		;
	c->waiting_tail = p;
	rds_timer_cancel(&h->timer);
	if (h->call->req.op == RDS_SHARE_SEND) {
		rx_lock();
		c->sk->cong_blocked--;
		rx_unlock();
	}
	rds_owner_request_free(h->call);
	h->call = NULL;
	h->used = os_now_ns();
	atomic_store(&c->sk->proxy_sleeps, c->waiting != NULL);
}

/* The time of a barrier is over before its mark is reached: the reply says how far that is. */
static void owner_end_barrier(struct rds_owner_channel *h)
{
	struct rds_owner_reply r;
	bool gone;

	rds_owner_serve(h->owner, h->call, &r);
	gone = rds_owner_channel_say(h, RDS_SHARE_READY, h->seq, 0) || rds_owner_send_reply(h, h->seq, &r);
	rds_owner_reply_free(&r);
	if (gone)
		rds_owner_channel_end(h, true);
	else
		rds_owner_sleep_end(h);
}

void rds_owner_sleep_expired(struct rds_timer *tm)
{
	struct rds_owner_channel *h = container_of(tm, struct rds_owner_channel, timer);

	if (!h->call)
		return;
	if (h->call->req.op != RDS_SHARE_RECV && atomic_load(&h->owner->sk->handing_off)) {
		rds_owner_wake(); /* the next round tells the borrower to ask the next owner */
		return;
	}
	if (h->call->req.op == RDS_SHARE_BARRIER) {
		owner_end_barrier(h);
		return;
	}
	rds_owner_sleep_end(h);
	if (rds_owner_channel_say(h, RDS_SHARE_READY, h->seq, 0) || rds_owner_send_result(h, h->seq, -ETIMEDOUT))
		rds_owner_channel_end(h, true);
}

static uint64_t owner_call_timeout(const struct rds_owner_channel *h, const struct rds_owner_request *call)
{
	const struct rds_sock *sk = h->owner->sk;

	if (h->congested)
		return RDS_NO_TIMEOUT;
	return atomic_load(call->req.op == RDS_SHARE_SEND ? &sk->sndtimeo_ns : &sk->rcvtimeo_ns);
}

int rds_owner_sleep_say(struct rds_owner_channel *h, const struct rds_owner_request *call)
{
	return rds_owner_channel_say(h, RDS_SHARE_WAIT, call->req.seq, (int64_t)owner_call_timeout(h, call));
}

static void owner_arm_timer(struct rds_owner_channel *h)
{
	uint64_t timeo = owner_call_timeout(h, h->call);

	if (timeo == RDS_NO_TIMEOUT)
		rds_timer_cancel(&h->timer);
	else if (!rds_timer_is_set(&h->timer))
		rds_timer_set(&h->timer, os_now_ns() + timeo);
}

bool rds_owner_sleep_begin(struct rds_owner_channel *h, struct rds_owner_request *call)
{
	h->seq = call->req.seq;
	if (rds_owner_sleep_say(h, call)) {
		rds_owner_request_free(call);
		rds_owner_channel_end(h, true);
		return true;
	}
	h->call = call;
	h->wait_next = NULL;
	*h->owner->waiting_tail = h;
	h->owner->waiting_tail = &h->wait_next;
	owner_arm_timer(h);
	if (call->req.op == RDS_SHARE_SEND) {
		/* Whatever the send waits for: a congested port's updates have to wake it, too. */
		rx_lock();
		h->owner->sk->cong_blocked++;
		rx_unlock();
		rds_owner_wake(); /* an update may have come before the count */
	}
	return false;
}

void rds_owner_wake(void)
{
	if (!atomic_exchange(&due, true))
		rds_helper_kick();
}

/* One message wakes one receiver: if one finds no message, those behind it need not try. */
static void owner_try_waiting(struct rds_owner *c)
{
	bool nothing = false, gone;
	struct rds_owner_channel *h, *next;

	for (h = c->waiting; h; h = next) {
		next = h->wait_next;
		if (h->call->req.op == RDS_SHARE_RECV && nothing)
			continue;
		if (!rds_owner_try_call(h, h->call, true, &gone)) {
			owner_arm_timer(h);
			nothing |= h->call->req.op == RDS_SHARE_RECV;
			continue;
		}
		if (gone) {
			rds_owner_wake(); /* c may be freed, too: the next round tries the others */
			return;
		}
		rds_owner_sleep_end(h);
	}
}

void rds_owner_round(void)
{
	struct rds_owner *c, *next;

	if (likely(!atomic_load_explicit(&due, memory_order_relaxed)))
		return;
	atomic_store(&due, false);
	for (c = rds_owner_next(NULL); c; c = next) {
		next = c->next;
		rds_owner_shown_look(c);
		if (c->waiting)
			owner_try_waiting(c);
	}
}

void rds_owner_sleep_forget(void)
{
	atomic_store(&due, false);
}
