/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * memory_door.h - how a holder of a shared socket gives its carrier its memory (foreign_memory.h).
 */
#ifndef ENGINE_MEMORY_DOOR_H
#define ENGINE_MEMORY_DOOR_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* What the carrier answers to RDS_SHARE_MEMORY. */
struct rds_door {
	uint64_t token; /* for the channel that has asked */
	uint32_t len;	/* of the name */
	struct sockaddr_un name;
};

/* The carrier, its helper: 0 or -errno. */
int rds_door_tell(struct rds_door *d);
void rds_door_forget(void); /* forked child */

/*
 * The holder: 0, it has our memory; -EPERM: it is not to have it, or does not want it; -ECONNRESET: it has gone; -EMFILE, -ENFILE, -ENOMEM, -EAGAIN
 * (it does not answer).  Takes no lock.
 */
int rds_door_give(const struct rds_door *d);
/* Before a fork, by the thread that forks; then in the child, of that process. */
void rds_door_fork_prepare(void);
void rds_door_forked(int parent);

#endif
