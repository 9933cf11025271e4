/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * pressure.c - hosts to which the program has sent nothing: which of them has to go if there is no memory,
 * or no place, for another one.
 *
 * Who has begun a message and does not come to its end may begin again: nothing of it was acknowledged as
 * a whole.  A whole message that the engine refuses, since its socket holds too many already, was
 * acknowledged, and the host may be gone.  It waits for the program, but not for ever if others need what
 * it takes.  Must not know why the engine refuses.
 */
#include "engine/transport/tcp/tcp.h"

/* rx: what it has sent, and nobody takes, goes with it. */
static void pressure_give_up(struct tcp_ep *ep)
{
	char from[RDS_ADDR_STRLEN];

	rds_warn("%s has sent more than the program reads, and others need its place: what it has sent last is lost",
		 rds_ip_str(&ep->id.faddr, from));
	ep->given_up = true;
	tcp_ep_broken(ep, -ETIMEDOUT);
	rds_timer_set(&ep->broken, os_now_ns());
}

static bool pressure_is_whole(const struct tcp_ep *ep)
{
	return ep->in.have == ep->in.hdr.len;
}

/* Has it had its message, or what there is of it, for so long that others may have the memory? */
static bool pressure_may_go(const struct tcp_ep *ep)
{
	enum rds_patience most = pressure_is_whole(ep) ? RDS_PATIENCE_TCP_UNREAD : RDS_PATIENCE_TCP_MESSAGE;

	return ep->in.from && !ep->given_up && os_now_ns() - ep->in.since > rds_patience_ns(most);
}

/* The oldest message goes. */
void tcp_pressure_memory(void)
{
	struct tcp_ep *ep, *oldest = NULL;

	for (ep = rds_tcp_state.all; ep; ep = ep->next)
		if (pressure_may_go(ep) && (!oldest || ep->in.since < oldest->in.since))
			oldest = ep;
	if (!oldest)
		return;
	if (pressure_is_whole(oldest))
		pressure_give_up(oldest);
	else
		tcp_ep_broken(oldest, -ETIMEDOUT);
}

/* It keeps its place only for what is refused. */
static bool pressure_has_ended(const struct tcp_ep *ep)
{
	return ep->refused_since && (ep->at_end || atomic_load(&ep->state) == TCP_EP_BROKEN) && !ep->over &&
	       !ep->given_up && !atomic_load(&ep->wanted);
}

/* The one that is refused for longest goes. */
void tcp_pressure_place(void)
{
	struct tcp_ep *ep, *oldest = NULL;

	rx_lock();
	for (ep = rds_tcp_state.all; ep; ep = ep->next)
		if (pressure_has_ended(ep) && (!oldest || ep->refused_since < oldest->refused_since))
			oldest = ep;
	if (oldest && os_now_ns() - oldest->refused_since > rds_patience_ns(RDS_PATIENCE_TCP_UNREAD))
		pressure_give_up(oldest);
	rx_unlock();
}
