/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * node_role.c - which process of this host is the owner of an address, that is, has the connections
 * from it to other hosts as a whole (conn/relay.c).
 *
 * Each process that is bound to the address would be.  The kernel decides: one process can listen
 * there.  That one then tells the others, by the registry.  They watch it by a pidfd, and when it has
 * ended all of them try.  So other hosts find somebody who listens whether a program here sends or not,
 * and nothing is looked at from time to time.
 *
 * A process that cannot listen although there is no owner tries again for a while: somebody has just
 * become the owner, or has just ended.  After that the port is taken by somebody else, and only sends
 * to other hosts try, now and then.  So it is with a port that cannot be opened.
 *
 * Must not know how messages are relayed.  control held, unless a comment says otherwise.
 */
#include "engine/conn/relay.h"
#include "engine/progress/transports.h"
#include "engine/sys/patience.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_NS (10 * 1000000ull)
#define WAYS 200u
#define LEFT_NS (1 * 1000000ull)
#define INHERIT_NS (10000 * 1000000ull)
#define TRIES 20u
#define SELDOM_NS (1000 * 1000000ull)
#define UNASKED_NS (30 * SELDOM_NS) /* ... where the user has not asked for TCP */
#define LOOK_NS 1000000
#define HEIR_NS (11000 * 1000000ull) /* ... after which the next owner does not wait for the last one (relay_heir.c) */

/* An address that other hosts could be reached from. */
struct node_role {
	struct node_role *next;
	struct in6_addr addr;
	uint32_t scope;
	_Atomic int owner_fd; /* the process that is the owner; -1: not watched */
	struct rds_helper_event ended;
	struct rds_timer again;
	unsigned tries;
	uint64_t taken_since;	 /* the port is; 0: it is not */
	uint64_t inherits_since; /* the last owner has not ended yet; 0: or has */
	bool asked; /* the helper has yet to look for the first time */
	unsigned gave_way;
	bool now;      /* in role_try_now() */
	bool soon;     /* role_again_soon() */
	unsigned late; /* how often what the last owner has given to us could not be received yet */
};

static struct node_role *roles;
static _Atomic unsigned roles_asked;

static struct node_role *role_get(const struct in6_addr *addr, uint32_t scope)
{
	struct node_role *r;

	for (r = roles; r; r = r->next)
		if (rds_ip_equal(&r->addr, addr) && r->scope == scope)
			return r;
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->addr = *addr;
	r->scope = scope;
	atomic_store(&r->owner_fd, -1);
	r->next = roles;
	roles = r;
	return r;
}

static void role_again(struct node_role *r, uint64_t ns)
{
	rds_timer_set(&r->again, os_now_ns() + ns);
}

/* It is taken soon, by this process or by another one: what waits for that is not lost. */
static void role_again_soon(struct node_role *r, uint64_t ns)
{
	rds_relay_owner_soon(&r->soon, true);
	role_again(r, ns);
}

/* By a pidfd.  It may have ended before that was made, so it is asked for once more. */
static void role_watch(struct node_role *r, pid_t pid)
{
	int err;

	rds_relay_box_await();
	if (atomic_load(&r->owner_fd) >= 0)
		return;
	err = os_dup_high_slot((int)os_syscall(SYS_pidfd_open, pid, 0, 0, 0, 0, 0), &r->owner_fd);
	if (err >= 0)
		err = rds_helper_event_add(&r->ended, &r->owner_fd, EPOLLIN);
	if (err < 0 || !rds_relay_owner_pid(&r->addr, r->scope)) {
		os_close_slot(&r->owner_fd);
		role_again(r, err < 0 ? SELDOM_NS : AGAIN_NS); /* old kernels, other pid namespaces */
	}
}

static bool tcp_is_asked_for(void)
{
	return strcmp(rds_options()->transport, "auto") != 0;
}

/*
 * By the next owner, perhaps, who is not in the registry before all of the last one has ended: then somebody has
 * the box, and so has who goes on.
 */
static void role_is_taken(struct node_role *r)
{
	bool passes_on = rds_relay_box_exists(&r->addr, r->scope);

	if (!r->taken_since)
		r->taken_since = os_now_ns();
	if ((passes_on && os_now_ns() - r->taken_since < HEIR_NS) || ++r->tries < TRIES) {
		role_again_soon(r, AGAIN_NS);
	} else {
		rds_relay_warn_taken(&r->addr);
		if (passes_on)
			role_again(r, SELDOM_NS);
	}
}

/* All of the last owner has to end first.  One that does not, for so long, is given up. */
static bool role_may_inherit(struct node_role *r)
{
	uint64_t now = os_now_ns(), waits;

	if (!rds_relay_heir_may(&r->addr, r->scope)) {
		r->inherits_since = 0;
		return true;
	}
	if (!r->inherits_since)
		r->inherits_since = now;
	waits = now - r->inherits_since;
	if (waits > INHERIT_NS) {
		r->inherits_since = 0;
		return true;
	}
	role_again_soon(r, waits / 4 < LEFT_NS ? LEFT_NS : waits / 4 < AGAIN_NS ? waits / 4 : AGAIN_NS);
	return false;
}

/* It listens already, so no other process does the same now.  Not before all of the last owner has ended. */
static bool role_take(struct node_role *r)
{
	uint32_t entry;

	if (!role_may_inherit(r))
		return false;
	if (rds_relay_take(&r->addr, r->scope, &entry)) {
		role_again_soon(r, AGAIN_NS); /* the last one has yet to leave the registry */
		return false;
	}
	if (rds_transport_node_add(&r->addr, r->scope)) {
		rds_relay_give_back(entry);
		role_again(r, SELDOM_NS);
		return false;
	}
	r->tries = 0;
	r->taken_since = 0;
	rds_relay_heir_take(&r->addr, r->scope);
	rds_transports_take_part(rds_transport_set.node);
	atomic_fetch_add(&rds_route_gen, 1); /* messages that wait may go now */
	rds_route_retry_from(&r->addr);
	return true;
}

/*
 * Who has not got the box of the address lets those go first that have it.  They take it over in
 * role_try_now().
 */
static bool role_gives_way(struct node_role *r)
{
	if (rds_relay_box(&r->addr, r->scope)) {
		if (!r->now)
			role_again_soon(r, 0);
		return !r->now;
	}
	if (!rds_relay_box_exists(&r->addr, r->scope) || ++r->gave_way > WAYS) {
		r->gave_way = 0;
		return false;
	}
	role_again_soon(r, AGAIN_NS);
	return true;
}

static bool role_try(struct node_role *r)
{
	struct rds_transport *t = rds_transport_set.node;
	pid_t pid;
	int ret;

	rds_relay_owner_soon(&r->soon, false);
	if (rds_transport_node_has(&r->addr, r->scope))
		return true;
	pid = rds_relay_owner_pid(&r->addr, r->scope);
	if (pid) {
		r->tries = r->gave_way = 0;
		r->taken_since = 0;
		rds_route_retry_from(&r->addr);
		role_watch(r, pid);
		return false;
	}
	if (role_gives_way(r))
		return false;
	ret = t->ops->claims(t, &r->addr, r->scope);
	if (ret > 0)
		return role_take(r);
	if (ret == -EADDRINUSE)
		role_is_taken(r);
	else if (++r->tries < TRIES)
		role_again(r, SELDOM_NS);
	return false;
}

/*
 * Helper, no lock held.  What a former owner has given to this process is received before what it has left
 * to whoever comes next.
 */
static void role_try_now(struct node_role *r)
{
	bool all;

	rds_transport_meet_last();
	rx_lock();
	all = rds_transport_catch_up(os_now_ns());
	rx_unlock();
	rds_conn_work_run();
	rds_lock(&rds_lock_control);
	if (all || ++r->late >= TRIES) {
		r->late = 0;
		r->now = true;
		role_try(r);
		r->now = false;
	} else {
		role_again_soon(r, AGAIN_NS);
	}
	rds_unlock(&rds_lock_control);
	rds_relay_heir_go_on();
}

static void role_timer(struct rds_timer *tm)
{
	struct node_role *r = container_of(tm, struct node_role, again);

	role_try_now(r);
	rds_lock(&rds_lock_control);
	if (r->asked)
		atomic_fetch_sub(&roles_asked, 1);
	r->asked = false;
	rds_unlock(&rds_lock_control);
}

/* The same: the owner has ended. */
static void role_ended(struct rds_helper_event *ev, uint32_t events)
{
	struct node_role *r = container_of(ev, struct node_role, ended);

	(void)events;
	rds_helper_event_del(atomic_load(&r->owner_fd));
	os_close_slot(&r->owner_fd);
	role_try_now(r);
}

/* What listens is in the helper's table, and what watches the owner. */
static bool role_is_for_helper(void)
{
	return rds_helper_has_own_table() && !os_fd_table;
}

/* Each bind comes here: nothing is left to be done if it watches already. */
static void role_ask_helper(struct node_role *r)
{
	if (atomic_load(&r->owner_fd) >= 0 && rds_relay_owner_pid(&r->addr, r->scope))
		return;
	if (!r->asked)
		atomic_fetch_add(&roles_asked, 1);
	r->asked = true;
	role_again_soon(r, 0);
}

bool rds_transports_claim_node(const struct in6_addr *addr, uint32_t scope)
{
	struct node_role *r;

	if (!rds_transport_set.node || rds_ip_is_loopback(addr))
		return false;
	if (rds_transport_node_has(addr, scope))
		return true;
	r = role_get(addr, scope);
	if (!r || rds_timer_is_set(&r->again))
		return false;
	r->ended.fn = role_ended;
	r->again.fn = role_timer;
	/* the port is taken: it is not asked for by each message */
	if (r->tries >= TRIES)
		role_again(r, tcp_is_asked_for() ? SELDOM_NS : UNASKED_NS);
	else if (role_is_for_helper())
		role_ask_helper(r);
	else if (role_try(r))
		return true;
	return false;
}

void rds_transports_await_roles(void)
{
	uint64_t until;

	if (likely(!atomic_load_explicit(&roles_asked, memory_order_relaxed)) || rds_helper_is_self)
		return;
	until = os_now_ns() + rds_patience_ns(RDS_PATIENCE_TCP_PORT);
	while (atomic_load(&roles_asked) && os_now_ns() < until)
		rds_helper_await_turn(LOOK_NS);
}

void rds_transports_roles_forget(void)
{
	roles = NULL;
	atomic_store(&roles_asked, 0);
}
