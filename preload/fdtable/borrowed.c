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

bool rds_fds_find_all_owners(struct rds_borrower_wait *w)
{
	enum fds_owner owner;
	bool late = false;

	w->since = 0;
	rds_standby_hangup_note();
	for (int n = 0; n < rds_fds_top(); n++) {
		if (rds_fds_peek(n) != FDS_BORROWED || !rds_borrower_owner_gone(n))
			continue;
		owner = rds_fds_find_owner(n, w);
		if (owner == FDS_OWNER_OTHER || owner == FDS_OWNER_LATE)
			/* The last owner takes long to end, or the next owner is stopped. */
			late |= rds_borrower_owner_gone(n);
	}
	if (!late)
		/* Sockets that have no number here any more. */
		rds_standby_hangup_drop();
	return late;
}

_Atomic bool rds_fds_handed_off;

void rds_fds_reclaim_all(struct rds_borrower_wait *w)
{
	struct rds_sock *sk;

	w->since = 0;
	atomic_store(&rds_fds_handed_off, false);
	for (int n = 0; n < rds_fds_top(); n++) {
		if (!rds_fds_word(n))
			n |= (int)FDS_CHUNK - 1;
		if (rds_fds_peek(n) != FDS_BORROWED || rds_fds_find_owner(n, w) != FDS_OWNER_SELF)
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

/* Nothing more can be learned of its owner: no thread is woken for it again. */
static enum fds_owner find_owner_failed(int fd, int err)
{
	bool unknown = rds_fds_error_is_temporary(err);

	if (unknown)
		rds_standby_show_readable(fd);
	if (err == -ENOTCONN && rds_borrower_owner_gone(fd))
		rds_borrower_give_up(fd);
	rds_borrower_hangup_drop(fd);
	return unknown ? FDS_OWNER_UNKNOWN : FDS_OWNER_OTHER;
}

enum fds_owner rds_fds_find_owner(int fd, struct rds_borrower_wait *w)
{
	struct rds_sock *sk = RDS_BORROWED;
	int rc;

	while (sk == RDS_BORROWED && (rc = rds_borrower_watch(fd, false, w)) != 0) {
		if (rc == -RDS_BORROWER_TAKE_OVER)
			rc = rds_fds_take_over(fd);
		if (rc == -EAGAIN || rc == -EINTR)
			return FDS_OWNER_LATE; /* most likely it is stopped: it has the request */
		if (rc)
			return find_owner_failed(fd, rc);
		sk = rds_fds_ref(fd);
		rds_fds_unref(sk);
	}
	return sk && sk != RDS_BORROWED ? FDS_OWNER_SELF : FDS_OWNER_OTHER;
}
