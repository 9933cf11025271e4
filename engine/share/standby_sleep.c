/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * standby_sleep.c - what a thread that sleeps for a socket of another process needs of its standby:
 * the owner's hang-up pipe, whose end wakes the thread, the owner's process and the timeouts.
 *
 * After a search for new owners the pipes that still report an end are closed, unless an owner is
 * late: no thread would sleep any more.
 */
#include <pthread.h>

#include "engine/share/borrower.h"
#include "engine/share/standby.h"
#include "engine/rds.h"

/*
 * For threads that are about to sleep. It takes no lock, since a signal handler may have
 * interrupted the thread that has it. When the descriptor is used, it may be closed, or be another
 * file. Then the sleep ends early, or only what wakes all sleepers wakes it.
 */
static int standby_read_fd(const struct standby *h, uint64_t inode, unsigned part)
{
	int fd = atomic_load(&h->fd[part]);

	return atomic_load(&h->state) == HELD && atomic_load(&h->inode) == inode ? fd : -1;
}

unsigned rds_standby_hangup_fds(struct pollfd *p, unsigned room)
{
	struct standby *h;
	unsigned at, n = 0;

	if (!rds_standby_any())
		return 0;
	for (at = 0; (h = standby_next(&at));) {
		if (atomic_load(&h->state) != HELD)
			continue;
		if (n < room)
			p[n] = (struct pollfd){.fd = standby_read_fd(h, atomic_load(&h->inode), HANGUP), .events = 0};
		n++;
	}
	return n;
}

static int standby_find_fd(uint64_t inode, unsigned part)
{
	struct standby *h;
	unsigned at;

	if (!rds_standby_any())
		return -1;
	for (at = 0; (h = standby_next(&at));)
		if (atomic_load(&h->inode) == inode && atomic_load(&h->state) == HELD)
			return standby_read_fd(h, inode, part);
	return -1;
}

int rds_standby_hangup_fd(uint64_t inode)
{
	return standby_find_fd(inode, HANGUP);
}

/* The result may be wrong if the descriptor was closed meanwhile. The callers tolerate that. */
int rds_standby_owner_pid(uint64_t inode)
{
	int page = standby_find_fd(inode, LEASE);

	return page < 0 ? -1 : os_lock_holder(page, 0, 1);
}

uint64_t rds_standby_timeo(uint64_t inode, bool send)
{
	int page = standby_find_fd(inode, LEASE);
	struct rds_lease_page lease;
	const struct rds_share_state *st;

	if (page < 0 || os_pread(page, &lease, sizeof(lease), 0) != sizeof(lease) || lease.magic != RDS_SHARE_MAGIC ||
	    lease.version != RDS_SHARE_VERSION)
		return RDS_BORROWER_NO_TIMEOUT;
	st = &lease.st[lease.which & 1];
	return send ? st->sock.sndtimeo_ns : st->sock.rcvtimeo_ns;
}

static bool standby_is_hung_up(const struct standby *h)
{
	struct pollfd p = {.fd = h->state == HELD ? atomic_load(&h->fd[HANGUP]) : -1, .events = 0};

	return p.fd >= 0 && os_poll(&p, 1, 0) > 0;
}

void rds_standby_hangup_note(void)
{
	struct standby *h;
	unsigned at;

	pthread_mutex_lock(&standby_lock);
	for (at = 0; (h = standby_next(&at));)
		h->hung_up = standby_is_hung_up(h);
	pthread_mutex_unlock(&standby_lock);
}

void rds_standby_hangup_drop(void)
{
	struct standby *h;
	unsigned at;

	pthread_mutex_lock(&standby_lock);
	for (at = 0; (h = standby_next(&at));)
		if (h->hung_up && standby_is_hung_up(h))
			os_close_slot(&h->fd[HANGUP]);
	pthread_mutex_unlock(&standby_lock);
}

void rds_borrower_hangup_drop(int fd)
{
	struct standby *h;
	struct stat st;

	if (!rds_standby_any() || os_fstat(fd, &st))
		return;
	pthread_mutex_lock(&standby_lock);
	h = standby_find(st.st_ino);
	if (h && standby_is_hung_up(h))
		os_close_slot(&h->fd[HANGUP]);
	pthread_mutex_unlock(&standby_lock);
}
