/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * memory_grant.h - how a borrower of a shared socket gives the owner access to its memory
 * (abi/foreign_memory.h).
 */
#ifndef ENGINE_SHARE_MEMORY_GRANT_H
#define ENGINE_SHARE_MEMORY_GRANT_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The owner's reply to RDS_SHARE_MEMORY. */
struct rds_grant_address {
	uint64_t token; /* names the channel that has asked */
	uint32_t len;	/* of the name */
	struct sockaddr_un name;
};

/* The owner's helper: 0 or -errno. */
int rds_owner_grant_address(struct rds_grant_address *d);
void rds_owner_grant_forget(void); /* forked child */

/*
 * The borrower.  0: the owner has access to our memory; -EPERM: the owner must not have it, or
 * refuses it; -ECONNRESET: the owner has ended; -EAGAIN: the owner does not answer; -EMFILE,
 * -ENFILE, -ENOMEM.  Takes no lock.
 */
int rds_borrower_grant_send(const struct rds_grant_address *d);
/* Before a fork, in the thread that forks; then in the child, with the parent's process id. */
void rds_borrower_grant_fork_prepare(void);
void rds_borrower_grant_forked(int parent);

#endif
