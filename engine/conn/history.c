/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * history.c - what a connection has been through, for rds-info: when it was last tried, came up, and went down, and why.
 *
 * Written where connections come up and go down, which is seldom; sending and receiving know nothing of it.
 */
#include "engine/conn/conn.h"

void rds_conn_history_attempt(struct rds_conn *conn)
{
	conn->history.attempt_at = os_wall_seconds();
	conn->history.attempts++;
}

void rds_conn_history_up(struct rds_conn *conn)
{
	conn->history.up_at = os_wall_seconds();
}

/* The reasons are those of kernels with InfiniBand; the nearest one stands for what happens here. */
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
	conn->history.down_at = os_wall_seconds();
	conn->history.attempts = 0;
}
