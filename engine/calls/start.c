/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * start.c - starts the engine of a process: the registry with the first socket, the helper and the
 * transports with the first bind.
 */
#include "engine/calls/start.h"

#include <pthread.h>
#include <string.h>

#include "engine/calls/info.h"
#include "engine/helper/helper.h"
#include "engine/node/registry.h"
#include "engine/node/stats.h"
#include "engine/progress/transports.h"
#include "engine/helper/leader.h"
#include "engine/sys/cpu.h"
#include "engine/sys/lock_order.h"
#include "engine/sys/process.h"

static pthread_mutex_t engine_start_lock = PTHREAD_MUTEX_INITIALIZER;

static int engine_create(void)
{
	int err;

	rds_thread_records_start();
	rds_copy_start();
	rds_transports_choose();
	err = os_process_mark();
	if (!err)
		err = registry_open(&rds_node_registry);
	if (err)
		return err;
	rds_stat_block = registry_counters(rds_node_registry);
	os_process_start();
	return 0;
}

int rds_call_start_engine(void)
{
	int err = 0;

	if (unlikely(os_process_inherited()))
		os_process_fork_child();
	if (likely(os_process_is_started()))
		return 0;
	pthread_mutex_lock(&engine_start_lock);
	if (!os_process_is_started())
		err = engine_create();
	pthread_mutex_unlock(&engine_start_lock);
	return err;
}

/*
 * control held.  A program that was short of descriptors or threads may bind again when it has
 * more.
 */
int rds_call_start_helper(void)
{
	int err;

	if (atomic_load(&rds_helper_up))
		return 0;
	err = rds_helper_leader_open();
	if (!err)
		err = rds_helper_start();
	if (err) {
		rds_error("the RDS engine cannot start: %s%s", strerror(-err),
			  err == -EMFILE ? "; " RDS_LOG_EMFILE : "");
		return err;
	}
	rx_lock();
	atomic_store(&rds_helper_up, true);
	rx_unlock();
	rds_aside_helper_started();
	rds_helper_keeper_check();
	return 0;
}

int rds_call_want_helper(void)
{
	int err;

	if (likely(atomic_load_explicit(&rds_helper_up, memory_order_acquire)))
		return 0;
	rds_lock(&rds_lock_control);
	err = rds_call_start_helper();
	rds_unlock(&rds_lock_control);
	return err;
}

void rds_call_fork_child(void)
{
	rds_info_forget();
	pthread_mutex_init(&engine_start_lock, NULL);
}
