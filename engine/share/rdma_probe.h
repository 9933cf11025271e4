/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rdma_probe.h - which calls name memory beyond their arguments, and may the program use that
 * memory?  A borrower asks this before the owner makes the call (abi/foreign_memory.h): only the
 * borrower's own process can tell which of its memory the program may read and write.
 */
#ifndef ENGINE_SHARE_RDMA_PROBE_H
#define ENGINE_SHARE_RDMA_PROBE_H

#include <stdbool.h>
#include <sys/socket.h>

#include "engine/abi/rdma_args.h"

/*
 * RDS_HAS_* of the control messages, which the caller has checked to be readable.  The search ends
 * at a malformed control message: the call is refused for that one.
 */
unsigned rds_share_rdma_kinds(const struct msghdr *msg);
bool rds_share_msg_names_memory(const struct msghdr *msg);
/* len: the length of the option's value. */
bool rds_share_opt_names_memory(int level, int opt, socklen_t len);
bool rds_share_opt_frees_mr(int level, int opt);

struct rds_share_probe {
	/* Some of the memory is not accessible: the call ends in -EFAULT when it comes to that. */
	bool fault;
	/* The region that is asked for; bytes 0: none. */
	struct rds_mr_request opens;
	/* The word that may be an address in the ABI of 2007 can be written (abi/revisions.h). */
	bool word;
};
/* Takes no lock and no heap memory, like all calls of borrower.h. */
struct rds_share_probe rds_share_probe_message(const struct msghdr *msg);
struct rds_share_probe rds_share_probe_option(int opt, const void *val, socklen_t len);

#endif
