/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * history.c - connection history for rds-info: when a connection was last tried, came up and went
 * down, and why.
 *
 * Written where connections come up and go down, which is seldom.  Sending and receiving must not
 * know of it.
 */
#include "engine/conn/conn.h"
#include "engine/sys/patience.h"

void rds_conn_history_attempt(struct rds_conn *conn)
{
	conn->history.attempt_at = (uint32_t)os_wall_seconds();
	conn->history.attempts++;
}

void rds_conn_history_up(struct rds_conn *conn)
{
	conn->history.up_at = (uint32_t)os_wall_seconds();
}

/* The numbers are those of kernels with InfiniBand; the nearest one is used. */
static enum rds_conn_reason history_reason(bool was_up, int why)
{
	switch (-why) {
	case EPROTO:
		return RDS_REASON_CORRUPTED;
	case ETIMEDOUT:
		return was_up ? RDS_REASON_HEARTBEAT : RDS_REASON_TIMEOUT;
	case EALREADY:
		return RDS_REASON_CROSSING;
	case ECONNREFUSED:
		return RDS_REASON_REJECTED;
	case ENETUNREACH:
	case EHOSTUNREACH:
	case ENODEV:
		return RDS_REASON_UNREACHABLE;
	}
	return was_up ? RDS_REASON_DISCONNECTED : RDS_REASON_CONNECT;
}

void rds_conn_history_down(struct rds_conn *conn, bool was_up, int why)
{
	conn->history.reason = history_reason(was_up, why);
	if (!was_up)
		return;
	conn->history.down_at = (uint32_t)os_wall_seconds();
	conn->history.attempts = 0;
	conn->history.breaks += conn->history.breaks < UINT16_MAX;
}

/* ---- the log line about a peer that cannot be reached ---- */

/*
 * As in the kernel, an unreachable peer is no error: it is tried again for ever, and the program
 * hears nothing.  For an administrator who looks for the cause, there is one line in the log if
 * messages wait, after a time that no reconnect and no reboot of a switch takes, and another one
 * when the peer is reached again.
 */
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
