/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * strangers.c - hosts that have connected to this process, and to which it has sent no message: how
 * many of them it puts up with.
 *
 * Anybody may connect, and one host may have many addresses.  Each connection costs memory, and a
 * descriptor while it is up, or is tried.  But what a host has sent is not to be taken twice, and it
 * may connect again and send the last of it once more.  So a connection is forgotten only if others
 * need its place, and it has brought nothing so far or has been down for longer than a host pauses
 * between two attempts.  If there is no such connection, the newcomer is refused.  It tries again, and
 * keeps its messages meanwhile.
 *
 * A host that this process sends to is no stranger any more.  Its messages are the program's own
 * choice, and nothing here limits them.  Must not know how a request comes.
 */
#include <sys/resource.h>

#include "engine/conn/conn.h"

#define STRANGERS_MAX 1024u
#define SHARE 4				/* ... and no more than this part of all descriptors */
#define FORGET_NS (120 * 1000000000ull) /* a host's TCP may pause for 64 s */
#define WARN_PAUSE_NS (60 * 1000000000ull)
#define PAUSE_MS 64000u /* the longest one between two attempts of ours */

static unsigned strangers_most(void)
{
	struct rlimit rl = {.rlim_cur = RLIM_INFINITY};

	os_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, (long)&rl, 0, 0);
	return rl.rlim_cur / SHARE < STRANGERS_MAX ? (unsigned)(rl.rlim_cur / SHARE) : STRANGERS_MAX;
}

static bool stranger_has_sent(const struct rds_conn *conn)
{
	return atomic_load_explicit(&conn->next_rx, memory_order_relaxed) > 1;
}

/* Since when it may go; 0: it may not.  One that asks for a connection is tried at least once. */
static uint64_t stranger_may_go(struct rds_conn *conn)
{
	uint64_t since;

	rds_lock(&conn->tx);
	since = conn->ep || conn->pending || conn->stale ? 0 : conn->unreachable_since;
	rds_unlock(&conn->tx);
	return !stranger_has_sent(conn) || os_now_ns() - since >= FORGET_NS ? since : 0;
}

/* Those that have sent nothing go first, and of these the one that has been down for longest. */
static bool stranger_goes_before(const struct rds_conn *a, uint64_t a_since, const struct rds_conn *b, uint64_t b_since)
{
	if (stranger_has_sent(a) != stranger_has_sent(b))
		return stranger_has_sent(b);
	return a_since < b_since;
}

static void strangers_warn(unsigned n)
{
	static uint64_t again;

	if (os_now_ns() < again)
		return;
	again = os_now_ns() + WARN_PAUSE_NS;
	rds_warn("%u hosts have connected to which this process has sent nothing: another one is refused. If they are "
		 "not "
		 "yours, keep them from TCP port 16385 by a firewall; if they are, raise `ulimit -n` (a quarter of it, "
		 "and %u at most, may connect)",
		 n, STRANGERS_MAX);
}

int rds_conn_strangers_room(void)
{
	struct rds_conn *conn, *goes = NULL;
	unsigned n = 0, most = strangers_most();
	uint64_t since, goes_since = 0;

	for (conn = rds_conn_list; conn; conn = conn->next) {
		if (!atomic_load_explicit(&conn->stranger, memory_order_relaxed))
			continue;
		n++;
		since = stranger_may_go(conn);
		if (since && (!goes || stranger_goes_before(conn, since, goes, goes_since))) {
			goes = conn;
			goes_since = since;
		}
	}
	if (n < most)
		return 0;
	if (goes) {
		rds_conn_forget(goes);
		return 0;
	}
	strangers_warn(n);
	return -ENOSPC;
}

void rds_conn_stranger_is_wanted(struct rds_conn *conn)
{
	if (!atomic_exchange(&conn->stranger, false))
		return;
	/* the next attempt may be a minute away */
	rds_timer_set(&conn->retry, os_now_ns());
}

uint64_t rds_conn_longest_pause_ms(const struct rds_conn *conn)
{
	uint64_t most = (uint64_t)rds_options()->reconnect_max_ms;

	return atomic_load(&conn->stranger) && most < PAUSE_MS ? PAUSE_MS : most;
}
