/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * unreachable.c - messages wait for a peer that cannot be reached, and somebody has to be told.
 *
 * As in the kernel that is no error: it is tried again for ever, and the program hears nothing.  But whoever looks for the reason why a program
 * stands still finds one line here, after a while that no reconnect or reboot of a switch takes, and one when it is over.  Where nothing waits nobody cares.
 *
 * Knows nothing of how peers are reached, nor of when it is tried again.
 */
#include "engine/conn/conn.h"
#include "engine/sys/patience.h"

static unsigned seconds_of_ns(uint64_t ns)
{
	return (unsigned)(ns / 1000000000);
}

void rds_conn_history_unreachable(struct rds_conn *conn, int why)
{
	uint64_t now = os_now_ns(), since;
	char a[RDS_ADDR_STRLEN];
	bool say = false;

	rds_lock(&conn->tx);
	if (!conn->unreachable_since)
		conn->unreachable_since = now;
	since = conn->unreachable_since;
	if (!conn->unreachable_logged && now - since >= rds_patience_ns(RDS_PATIENCE_UNREACHABLE) &&
	    (conn->count || conn->queue))
		conn->unreachable_logged = say = true;
	rds_unlock(&conn->tx);
	if (!say)
		return;
	rds_ip_str(&conn->id.faddr, a);
	rds_warn("no connection to %s for %u seconds (%s): messages to it wait, it is tried again. See to its host, "
		 "the process there (is it stopped?) and the network; what else may be wrong is in librdspreload(7), "
		 "DIAGNOSTICS",
		 a, seconds_of_ns(now - since), strerror(-why));
}

void rds_conn_history_reached(struct rds_conn *conn)
{
	uint64_t since;
	char a[RDS_ADDR_STRLEN];
	bool say;

	rds_lock(&conn->tx);
	since = conn->unreachable_since;
	say = conn->unreachable_logged;
	conn->unreachable_since = 0;
	conn->unreachable_logged = false;
	rds_unlock(&conn->tx);
	if (!say)
		return;
	rds_ip_str(&conn->id.faddr, a);
	rds_warn("%s is reached again, after %u seconds: messages to it go on", a, seconds_of_ns(os_now_ns() - since));
}
