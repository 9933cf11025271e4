/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * up.c - what transports call, unless something wraps it.
 */
#include "engine/conn/conn.h"
#include "engine/conn/incoming.h"
#include "engine/progress/progress.h"
#include "engine/progress/transports.h"
#include "engine/progress/wait.h"
#include "engine/rdma/op_device.h"
#include "engine/rdma/rdma.h"

const struct rds_transport_up rds_transports_up = {
	.accept = rds_conn_accept,
	.up = rds_conn_up,
	.down = rds_conn_down,
	.message = rds_conn_receive,
	.pressure = rds_progress_pressure,
	.evacuate = rds_inc_evacuate,
	.writable = rds_conn_writable,
	.sent = rds_queue_sent,
	.push_later = rds_conn_push_later,
	.op_done = rds_op_device_done,
	.located = rds_route_located,
};

const struct rds_transport_wakes rds_transports_wakes = {
	.peer_woken = rds_wait_peer_woken,
	.peer_wake_begin = rds_wait_peer_wake_begin,
	.helper_woken = rds_progress_helper_woken,
};
