/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * leader.c - opens the pipe on which the process's leader sleeps (leader.h).
 */
#include "engine/helper/leader.h"
#include "engine/sys/os.h"

struct rds_helper_leader rds_helper_leader = {.fd = -1, .post = OS_FD_NONE, .relay = OS_FD_NONE};

int rds_helper_leader_fd(void)
{
	return os_fd(&rds_helper_leader.post);
}

int rds_helper_relay_fd(void)
{
	return os_fd(&rds_helper_leader.relay);
}

/*
 * The reading end stays blocking, because threads sleep in reading it.  The pipe is opened once: a
 * start that fails leaves it for the next attempt.
 */
int rds_helper_leader_open(void)
{
	int fds[2], err;

	if (atomic_load(&rds_helper_leader.fd) >= 0)
		return 0;
	err = os_wake_pipe(fds, 0);
	if (err < 0)
		return err;
	err = os_dup_high_slot(fds[1], &rds_helper_leader.post.n[0]);
	if (err < 0) {
		os_close(fds[0]);
		return err;
	}
	err = os_dup_high_slot(fds[0], &rds_helper_leader.fd);
	if (err < 0)
		os_close_slot(&rds_helper_leader.post.n[0]);
	return err;
}

bool rds_helper_relay_open(void)
{
	const struct os_fd *relay = &rds_helper_leader.relay;
	int fd;

	if (os_fd(relay) >= 0)
		return true;
	fd = os_eventfd(0, 0);
	if (fd < 0 || os_dup_high_slot(fd, &rds_helper_leader.relay.n[0]) < 0)
		return false;
	if (!rds_export_to_helper(RDS_EXPORT_RELAY, NULL, &relay, 1))
		return true;
	os_close_slot(&rds_helper_leader.relay.n[0]);
	return false;
}

/* A leader may have had to be woken there before. */
void rds_helper_relay_exported(int fd)
{
	static const uint64_t one = 1;

	atomic_store(&rds_helper_leader.relay.n[os_fd_table], fd);
	if (os_fd_table)
		os_write(fd, &one, sizeof(one));
}

void rds_helper_leader_forget(void)
{
	atomic_store(&rds_helper_leader.fd, -1);
	os_fd_init(&rds_helper_leader.post);
	os_fd_init(&rds_helper_leader.relay);
	atomic_store(&rds_helper_leader.named_fd, NULL);
	rds_helper_leader.by_name = false;
}
