/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * borrowed.c - borrowed sockets when their owner ends, or this process does.
 *
 * Their numbers stay marked in the table until one of their calls finds out more. The functions
 * here go through all of them, for a thread that sleeps in poll, select or epoll, or for a process
 * that is about to end.
 *
 * Must not know what calls do.
 */
#include "preload/fdtable/fdtable.h"

void rds_fds_find_all_owners(void)
{
	uint64_t since = 0;
	bool refused, late = false;

	for (int n = 0; n < rds_fds_top(); n++) {
		refused = false;
		if (rds_fds_peek(n) == FDS_BORROWED && rds_borrower_owner_gone(n) &&
		    !rds_fds_find_owner(n, &since, &refused) && !refused)
			/* The last owner takes long to end, or the next owner is stopped. */
			late |= rds_borrower_owner_gone(n);
	}
	if (!late)
		/* Sockets that have no number here any more, or for which no owner was found. */
		rds_standby_hangup_drop();
}

_Atomic bool rds_fds_handed_off;

void rds_fds_reclaim_all(void)
{
	uint64_t since = 0;
	struct rds_sock *sk;
	bool refused;

	atomic_store(&rds_fds_handed_off, false);
	for (int n = 0; n < rds_fds_top(); n++) {
		if (!rds_fds_word(n))
			n |= (int)FDS_CHUNK - 1;
		if (rds_fds_peek(n) != FDS_BORROWED || !rds_fds_find_owner(n, &since, &refused))
			continue;
		sk = rds_fds_ref(n);
		if (sk && sk != RDS_BORROWED)
			rds_sock_watch(sk, n, true);
		rds_fds_unref(sk);
	}
}

void rds_fds_park_orphans(void)
{
	for (int n = 0; n < rds_fds_top(); n++) {
		if (rds_fds_peek(n) == FDS_BORROWED)
			rds_standby_park(n);
		else if (!rds_fds_word(n))
			n |= (int)FDS_CHUNK - 1;
	}
}

bool rds_fds_find_owner(int fd, uint64_t *since, bool *refused)
{
	struct rds_sock *sk = RDS_BORROWED;
	int rc;

	while (sk == RDS_BORROWED && (rc = rds_borrower_watch(fd, false, since)) != 0) {
		if (rc == -RDS_BORROWER_TAKE_OVER)
			rc = rds_fds_take_over(fd);
		if (rc == -EAGAIN)
			break; /* most likely the owner is stopped: it has the request */
		if (rc) {
			*refused = rds_fds_error_is_temporary(rc);
			if (*refused)
				rds_standby_show_readable(fd);
			if (rc == -ENOTCONN && rds_borrower_owner_gone(fd))
				rds_borrower_give_up(fd);
			rds_standby_hangup_drop(); /* no thread is woken for it again */
			break;
		}
		sk = rds_fds_ref(fd);
	}
	rds_fds_unref(sk);
	return sk && sk != RDS_BORROWED;
}
