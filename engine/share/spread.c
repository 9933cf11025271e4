/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * spread.c - from now on other processes may have our sockets: makes a lease for each socket, and
 * starts the helper.
 *
 * Any thread. Locks are waited for no longer than RDS_PATIENCE_LOCK. rds_share_begin_now() may run
 * in a signal handler that has interrupted malloc(), so it does not start the helper.
 */
#include "engine/calls/start.h"
#include "engine/share/lease.h"
#include "engine/share/owner.h"
#include "engine/sys/patience.h"
#include "engine/sys/process.h"

static void spread_note_socket(struct rds_sock *sk, void *any)
{
	*(bool *)any = true;
	if (rds_lease_make(sk))
		rds_warn_once("no descriptor or memory for the lease of an RDS socket: if this process is killed, the "
			      "socket ends for all processes; " RDS_LOG_EMFILE);
}

/*
 * A signal handler may have interrupted the thread that holds control. Then nothing is changed. If
 * the helper cannot be started, nothing is reported here: another process's call on a socket of
 * ours reports it.
 */
static void spread_sockets(bool start)
{
	bool any = false;

	atomic_store(&rds_share_possible, true);
	if (!os_process_is_started() ||
	    !rds_lock_until(&rds_lock_control, os_now_ns() + rds_patience_ns(RDS_PATIENCE_LOCK)))
		return;
	if (start || atomic_load(&rds_helper_up))
		rds_sock_each_locked(spread_note_socket, &any);
	if (any && !atomic_load(&rds_helper_up))
		(void)rds_call_start_helper();
	rds_unlock(&rds_lock_control);
	if (any)
		rds_lease_export_all();
}

void rds_share_begin(void)
{
	spread_sockets(true);
}

void rds_share_begin_now(void)
{
	spread_sockets(false);
}
