/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * engine.c - joins the packages, and forgets the engine in a forked child.
 *
 * The child abandons the parent's state unread: locks may be held by threads that do not exist
 * there.  It only closes the engine's descriptors, so that the kernel reports the end of the parent
 * when the parent ends.
 */
#include "engine/abi/foreign_memory.h"
#include "engine/abi/user_copy.h"
#include "engine/rds.h"
#include "engine/node/registry.h"
#include "engine/sys/process.h"

#include "engine/share/owner.h"
#include "engine/conn/shown.h"
#include "engine/conn/relay.h"
#include "engine/conn/client.h"
#include "engine/rdma/op_device.h"
#include "engine/rdma/rdma.h"
#include "engine/calls/info.h"
#include "engine/calls/close.h"
#include "engine/calls/start.h"
#include "engine/conn/incoming.h"
#include "engine/rdma/mr.h"
#include "engine/conn/port_cache.h"
#include "engine/progress/wait.h"
#include "engine/share/handoff.h"
#include "engine/share/lease.h"
#include "engine/progress/transports.h"
#include "engine/transport/shm/shm_transport.h"
#include "engine/transport/tcp/tcp_transport.h"
#include "engine/transport/verbs/verbs_transport.h"

/* ---- the tables by which a lower package calls the packages above it ---- */

static int helper_client_start(void)
{
	int err = rds_transports_start();

	return err ? err : rds_info_start();
}

static void helper_client_stop(void)
{
	rds_info_stop();
	rds_transports_stop();
}

static int helper_client_export_all(void)
{
	int err = rds_sock_export_all();

	return err ? err : rds_wait_export_all();
}

static void helper_client_round(void)
{
	rds_progress_helper_round();
	rds_owner_round();
	rds_conn_reclaim();
	rds_shm_reclaim();
}

static bool helper_client_has_unsent(void)
{
	return rds_progress_count_unsent() != 0;
}

static const struct rds_helper_client helper_client = {
	.shares_table = rds_transports_share_table,
	.start = helper_client_start,
	.stop = helper_client_stop,
	.export_all = helper_client_export_all,
	.round = helper_client_round,
	.has_unsent = helper_client_has_unsent,
};

static void sock_event_pair_readable(struct rds_sock *sk)
{
	/* rechecked: the event may be of an earlier socket in this structure */
	if (!rds_call_check_hangup(sk))
		rds_owner_pair_readable(sk);
}

static const struct rds_sock_events sock_events = {
	.pair_readable = sock_event_pair_readable,
	.closing = rds_lease_close,
	.unused = rds_lease_unmap,
	.changed = rds_lease_write,
	.port_shown = rds_mailbox_keep_port,
	.wake = rds_wait_wake,
	.proxy_wake = rds_owner_wake,
	.watched = rds_progress_others_watch,
	.unseen = rds_progress_unseen_added,
	.show_messages = rds_inc_show,
};

static const struct rds_conn_client conn_client = {
	.claim_node = rds_transports_claim_node,
	.item_wanted = rds_op_wanted,
	.item_may_send = rds_op_may_send,
	.item_gather = rds_op_piece_gather,
	.item_sending = rds_op_order_piece_sending,
	.item_unsent = rds_op_piece_unsent,
	.item_unrouted = rds_op_fail_unrouted,
	.item_leaves = rds_op_detach_queued,
	.queue_pass = rds_op_order_pass,
	.queue_insert = rds_op_order_insert,
	.queue_insert_redirect = rds_op_order_insert_redirect,
	.queue_attach = rds_op_attach_queued,
	.queue_holds = rds_ops_hold_message,
	.queue_drop_aborted = rds_op_drop_aborted,
	.answers_flush = rds_op_answers_flush,
	.advertise = rds_mr_advertise,
	.report_end = rds_op_async_end,
	.report_aborted = rds_op_async_aborted,
	.report_unanswered = rds_op_async_unanswered,
	.ops_prepare = rds_ops_prepare,
	.ops_judge = rds_ops_judge,
	.ops_cancel = rds_ops_cancel,
	.ops_broken = rds_ops_conn_broken,
	.ops_unfinished = rds_ops_unfinished,
	.refusals_note = rds_op_refusals_note,
	.recv_piece = rds_op_recv_piece,
	.recv_used_key = rds_mr_unuse,
	.room_made = rds_wait_room_made,
	.mailbox_deliver = rds_mailbox_deliver,
	.mailbox_deliver_all = rds_mailbox_deliver_all,
};

static const struct rds_transport_up transport_up = {
	.accept = rds_conn_accept,
	.opened = rds_conn_opened,
	.meet_later = rds_conn_meet_later,
	.outgrown = rds_conn_outgrown,
	.asked = rds_conn_asked,
	.trunk = rds_relay_trunk,
	.up = rds_conn_up,
	.down = rds_conn_down,
	.message = rds_conn_receive,
	.pressure = rds_progress_pressure,
	.evacuate = rds_inc_evacuate,
	.writable = rds_conn_writable,
	.awaited = rds_conn_awaited,
	.id = rds_conn_id,
	.sent = rds_queue_sent,
	.push_later = rds_conn_push_later,
	.op_done = rds_op_device_done,
	.located = rds_route_located,
};

static const struct rds_transport_wakes transport_wakes = {
	.peer_woken = rds_wait_peer_woken,
	.peer_wake_begin = rds_wait_peer_wake_begin,
	.helper_woken = rds_progress_helper_woken,
};

__attribute__((constructor)) void rds_engine_join(void)
{
	/* done: a constructor of another library may have made sockets */
	if (os_process_fork_child)
		return;
	os_process_fork_child = rds_engine_fork_child;
	rds_foreign_memory_await = rds_progress_round;
	rds_helper_client = &helper_client;
	rds_sock_events = sock_events;
	rds_conn_client = conn_client;
	rds_transport_up = rds_transport_up_node = transport_up;
	rds_transport_up_node.message = rds_conn_node_receive;
	rds_transport_wakes = transport_wakes;
	rds_export_takers[RDS_EXPORT_SOCK] = rds_sock_exported;
	rds_export_takers[RDS_EXPORT_WAIT] = rds_wait_exported;
	rds_export_takers[RDS_EXPORT_LEASE] = rds_lease_exported;
	rds_export_takers[RDS_EXPORT_PEER] = rds_shm_wake_fds_import;
	rds_export_takers[RDS_EXPORT_HANG_UP] = rds_lease_hangup_exported;
	rds_export_takers[RDS_EXPORT_TCP] = rds_tcp_fd_exported;
}

/* ---- forked child ---- */

/*
 * In the order of engine/packages.  Only the ends matter: every package may use what sys has
 * renewed, and share, which knows the descriptors that live on, closes those of all packages.  The
 * child is a process without an engine when all is forgotten, not before: while it still looks
 * inherited, nobody starts a new one.
 */
void rds_engine_fork_child(void)
{
	if (!os_process_inherited())
		return;
	os_fork_child();
	rds_node_fork_child();
	rds_helper_fork_child();
	rds_abi_fork_child();
	rds_ucopy_fork_child();
	rds_transport_fork_child();
	rds_shm_fork_child();
	rds_tcp_fork_child();
#ifdef HAVE_VERBS
	rds_verbs_fork_child();
#endif
	rds_sock_fork_child();
	rds_conn_fork_child();
	rds_progress_fork_child();
	rds_rdma_fork_child();
	rds_call_fork_child();
	rds_share_fork_child();
	os_process_forget();
}
