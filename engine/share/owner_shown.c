/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * owner_shown.c - borrowers read messages from the stand-in, without a word to the owner (conn/shown.h).
 *
 * So the owner has to look: while the port is congested, and while there was no room for all messages.  It does so in
 * each of its rounds, and by a timer; who finds nothing more in the stand-in asks the owner, too.
 *
 * Helper thread only.
 */
#include "engine/share/owner.h"

#include "engine/conn/shown.h"

#define PAUSE_NS 1000000ull /* and twice as long each time that nothing was read */
#define PAUSE_MAX_NS 64000000ull
#define ROOM (4 << 20)

static void owner_look_again(struct rds_timer *tm)
{
	rds_owner_shown_look(container_of(tm, struct rds_owner, look));
}

void rds_owner_shown_begin(struct rds_owner *c)
{
	const int room = ROOM; /* or as much as net.core.wmem_max allows */

	c->look.fn = owner_look_again;
	c->look_pause = PAUSE_NS;
	os_setsockopt(rds_sock_pair_fd(c->sk), SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	rx_lock();
	c->sk->shows_messages = true;
	rx_unlock();
}

/* What is unread is shown as it is without borrowers. */
void rds_owner_shown_end(struct rds_owner *c)
{
	struct rds_sock *sk = c->sk;

	rds_timer_cancel(&c->look);
	rx_lock();
	sk->shows_messages = sk->show_again = false;
	if (sk->nshown) {
		rds_inc_shown_take_back(sk, atomic_load(&c->standin));
		if (rds_sock_has_input(sk))
			rds_sock_wake(sk, POLLIN | POLLRDNORM);
	}
	rx_unlock();
}

void rds_owner_shown_anew(struct rds_owner *c)
{
	rx_lock();
	if (c->sk->nshown) {
		rds_inc_shown_take_back(c->sk, atomic_load(&c->standin));
		rds_sock_show_rest(c->sk);
	}
	rx_unlock();
}

void rds_owner_shown_look(struct rds_owner *c)
{
	struct rds_sock *sk = c->sk;
	uint32_t before;
	bool again;

	rx_lock();
	if (atomic_load(&sk->handing_off) && sk->nshown)
		rds_inc_shown_take_back(sk, atomic_load(&c->standin));
	before = sk->nshown;
	rds_inc_shown_settle(sk, atomic_load(&c->standin));
	if (sk->nshown < before)
		c->look_pause = PAUSE_NS;
	if (sk->show_again && sk->nshown < before) {
		sk->show_again = false;
		rds_sock_show_rest(sk);
	}
	again = sk->nshown && (sk->show_again || sk->congested);
	rx_unlock();
	if (!again || rds_timer_is_set(&c->look))
		return;
	rds_timer_set(&c->look, os_now_ns() + c->look_pause);
	if (c->look_pause < PAUSE_MAX_NS)
		c->look_pause *= 2;
}
