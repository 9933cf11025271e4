/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * memory_grant.h - how a holder of a shared socket gives its carrier its memory (foreign_memory.h).
 */
#ifndef ENGINE_MEMORY_DOOR_H
#define ENGINE_MEMORY_DOOR_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* What the carrier answers to RDS_SHARE_MEMORY. */
struct rds_grant_address {
	uint64_t token; /* for the channel that has asked */
	uint32_t len;	/* of the name */
	struct sockaddr_un name;
};

/* The carrier, its helper: 0 or -errno. */
int rds_owner_grant_address(struct rds_grant_address *d);
void rds_owner_grant_forget(void); /* forked child */

/*
 * The holder: 0, it has our memory; -EPERM: it is not to have it, or does not want it; -ECONNRESET: it has gone; -EMFILE, -ENFILE, -ENOMEM, -EAGAIN
 * (it does not answer).  Takes no lock.
 */
int rds_borrower_grant_send(const struct rds_grant_address *d);
/* Before a fork, by the thread that forks; then in the child, of that process. */
void rds_borrower_grant_fork_prepare(void);
void rds_borrower_grant_forked(int parent);

#endif
