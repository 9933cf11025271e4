/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rdma_probe.h - which calls name memory beyond their arguments, and is that memory there?  Asked by a process that only holds the socket, before
 * the carrier makes the call for it (foreign_memory.h): nobody else can tell what of it the program may read and write.
 */
#ifndef ENGINE_RDMA_TRY_H
#define ENGINE_RDMA_TRY_H

#include <stdbool.h>
#include <sys/socket.h>

#include "engine/abi/rdma_args.h"

/* Control messages that have been checked to be readable: RDS_HAS_*.  One that is malformed ends them: it is refused for that. */
unsigned rds_share_rdma_kinds(const struct msghdr *msg);
bool rds_share_msg_names_memory(const struct msghdr *msg);
/* A socket option of that length. */
bool rds_share_opt_names_memory(int level, int opt, socklen_t len);
bool rds_share_opt_frees_mr(int level, int opt);

struct rds_share_probe {
	bool fault; /* some of it is not there: -EFAULT, when the call comes to that */
	struct rds_mr_request opens; /* the region that is asked for; bytes 0: none */
	bool word;		     /* the word that the ABI of 2007 may mean can be written (revisions.h) */
};
/* Takes no lock and no memory from the heap, like any call of borrower.h. */
struct rds_share_probe rds_share_probe_message(const struct msghdr *msg);
struct rds_share_probe rds_share_probe_option(int opt, const void *val, socklen_t len);

#endif
