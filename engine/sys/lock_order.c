/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lock_order.c - the three locks that exist once per process, and taking locks that the thread
 * below a signal handler may hold.
 */
#include "engine/sys/lock_order.h"

#include <sys/syscall.h>

#include "engine/sys/os.h"

rds_lock_t rds_lock_control = RDS_LOCK_INIT(RDS_LOCK_CONTROL);
rds_lock_t rds_lock_rx = RDS_LOCK_INIT(RDS_LOCK_RX);
rds_lock_t rds_lock_wait = RDS_LOCK_INIT(RDS_LOCK_WAIT);

bool rds_lock_until(rds_lock_t *lock, uint64_t until_ns)
{
	while (!rds_trylock(lock)) {
		if (os_now_ns() >= until_ns)
			return false;
		os_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	}
	return true;
}

bool rds_lock_wait_free(rds_lock_t *lock, uint64_t until_ns)
{
	if (!rds_lock_until(lock, until_ns))
		return false;
	rds_unlock(lock);
	return true;
}

void rds_lock_order_forget(void)
{
	rds_lock_init(&rds_lock_control, RDS_LOCK_CONTROL);
	rds_lock_init(&rds_lock_rx, RDS_LOCK_RX);
	rds_lock_init(&rds_lock_wait, RDS_LOCK_WAIT);
}
