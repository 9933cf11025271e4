/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * engine.c - what concerns all packages: the engine is forgotten in a forked child.
 *
 * The child abandons the parent's state unread: locks may be held by threads that do not exist there.  It only closes the descriptors, so
 * that the kernel sees the parent's end when it comes.
 */
#include "engine/engine.h"

#include <string.h>

#include "engine/share/owner.h"
#include "engine/conn/conn.h"
#include "engine/calls/info.h"
#include "engine/calls/start.h"
#include "engine/conn/incoming.h"
#include "engine/rdma/mr.h"
#include "engine/conn/port_cache.h"
#include "engine/progress/wait.h"
#include "engine/share/lease.h"
#include "engine/progress/transports.h"

void rds_reclaim(void)
{
	rds_conn_reclaim();
	rds_shm_reclaim();
}

static void fork_close_fd(int fd, void *arg)
{
	(void)arg;
	if (!rds_standby_keeps_fd(fd))
		os_fd_abandon(fd);
}

void rds_engine_fork_child(void)
{
	if (!os_process_inherited())
		return;
	rds_call_start_forget();
	os_fds_forked();
	rds_thread_records_forget();
	if (rds_node_registry)
		registry_abandon(rds_node_registry);
	rds_node_registry = NULL;
	os_fd_each_internal(0, ~0u, fork_close_fd, NULL);
	rds_standby_fds_closed();
	rds_stat_detach();
	rds_sock_forget();
	rds_sock_leader_forget();
	rds_sock_bound_forget();
	rds_wait_forget();
	rds_progress_linger_forget();
	rds_helper_forget();
	rds_aside_forget();
	rds_helper_reserve_forget();
	rds_fd_exchange_forget();
	rds_helper_keeper_forget();
	rds_helper_threads_forget();
	rds_queue_forget();
	rds_cong_forget();
	rds_conn_work_forget();
	rds_conn_forget();
	rds_route_ports_forget();
	rds_inc_forget();
	rds_mr_forget();
	rds_shm_forget();
	rds_transports_forget();
	memset(&rds_transports, 0, sizeof(rds_transports));
	rds_conn_receive_forget();
	rds_info_forget();
	rds_owner_forget();
	rds_lease_forget();
	rds_handoff_unbound_forget();
	atomic_store(&rds_share_possible, false);
	rds_lock_order_forget();
	os_process_forget();
}
