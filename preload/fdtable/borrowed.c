/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * borrowed.c - numbers of sockets that other processes carry, when a carrier ends or this process does.
 *
 * They stay marked in the table until one of their calls finds out more; here all of them are gone through, on behalf of who sleeps in poll, select
 * or epoll, or is about to end.
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
			late |= rds_borrower_owner_gone(
				n); /* its last carrier takes long to end, or the next one is stopped */
	}
	if (!late)
		rds_standby_hangup_drop(); /* what has no number here any more, or could not be helped */
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
			break; /* stopped, most likely: it has been asked */
		if (rc) {
			*refused = rds_fds_error_is_temporary(rc);
			if (*refused)
				rds_standby_show_readable(fd);
			if (rc == -ENOTCONN && rds_borrower_owner_gone(fd))
				rds_borrower_give_up(fd);
			rds_standby_hangup_drop(); /* and nobody is woken for it again */
			break;
		}
		sk = rds_fds_ref(fd);
	}
	rds_fds_unref(sk);
	return sk && sk != RDS_BORROWED;
}
