/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * up.c - the functions that transports call, unless tests have put a wrapper in between.
 *
 * The locks of each function are in transport/transport.h.  Must not hold state.
 */
#include "engine/conn/client.h"
#include "engine/conn/incoming.h"
#include "engine/progress/progress.h"
#include "engine/progress/transports.h"
#include "engine/progress/wait.h"

static void up_op_done(struct rds_conn *conn, uint64_t id, int err, uint64_t at, const void *data, size_t len)
{
	rds_conn_client.op_done(conn, id, err, at, data, len);
}

const struct rds_transport_up rds_progress_up = {
	.accept = rds_conn_accept,
	.up = rds_conn_up,
	.down = rds_conn_down,
	.message = rds_conn_receive,
	.pressure = rds_progress_pressure,
	.evacuate = rds_inc_evacuate,
	.writable = rds_conn_writable,
	.sent = rds_queue_sent,
	.push_later = rds_conn_push_later,
	.op_done = up_op_done,
	.located = rds_route_located,
};

const struct rds_transport_wakes rds_progress_wakes = {
	.peer_woken = rds_wait_peer_woken,
	.peer_wake_begin = rds_wait_peer_wake_begin,
	.helper_woken = rds_progress_helper_woken,
};
