/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * revisions.h - decodes the RDMA structures of programs from November 2007 on into the requests of
 * rdma_args.h.  Also the numbers of options and levels that older programs use.
 *
 * The caller has copied what the program passed; nothing here touches the program's memory, a
 * socket or a lock.
 *
 * Revisions (the structures carry no version):
 *	a0 a1	2007-11, 2008-01-10	remote address first; word 6 is where the id goes
 *	a2 b1	2008-01-22		cookie first; word 6 is where the id goes
 *	b2	2008-02-15		64 bytes: an id and a token of 32 bits
 *	c	2008-02-15		word 6 is a token of 32 bits
 *	d	2008-02-20 to today	word 6 is a token of 64 bits
 * RDS_BARRIER existed from a0 to b2: 24 bytes up to a2, then 32.
 */
#ifndef ENGINE_ABI_REVISIONS_H
#define ENGINE_ABI_REVISIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/abi/rdma_args.h"
#include "rds_preload_info.h"

/* The notification of an operation with short_notify. */
struct rds_rdma_notify_short {
	uint32_t user_token;
	int32_t status;
};
_Static_assert(sizeof(struct rds_rdma_notify_short) == 8, "notification of b2 and c");

/*
 * Oracle's kernels: arguments of RDS_CONN_RESET and RDS6_CONN_RESET.  Without dst they stand for
 * all connections from src, of any type of service.
 */
struct rds_reset {
	uint8_t tos;
	struct in_addr src, dst;
};
_Static_assert(sizeof(struct rds_reset) == 12 && offsetof(struct rds_reset, src) == 4, "RDS_CONN_RESET");
struct rds6_reset {
	uint8_t tos;
	struct in6_addr src, dst;
};
_Static_assert(sizeof(struct rds6_reset) == 36 && offsetof(struct rds6_reset, src) == 4, "RDS6_CONN_RESET");

/* Oracle's kernels: RDS_CMSG_ASYNC_SEND */
struct rds_async_send_args {
	uint64_t user_token;
	uint64_t flags; /* RDS_SEND_NOTIFY_ME; without it only a failure is notified */
};
_Static_assert(sizeof(struct rds_async_send_args) == 16, "RDS_CMSG_ASYNC_SEND");

/* ---- the level ---- */

/*
 * Is it the level of RDS's socket options and control messages?  Programs were compiled with
 * different numbers; no other protocol uses any of them.
 */
static inline bool rds_abi_level_is_rds(int level)
{
	return level == SOL_RDS || level == SOL_RDS_HISTORIC || level == SOL_RDS_2006;
}

/* ---- proofs of this process's age ---- */

/*
 * The first proof counts and stays.  It is one word of plain memory, so fork copies it and exec
 * clears it.  RDS_PRELOAD_ABI takes precedence.
 */
enum rds_abi_epoch {
	RDS_EPOCH_NONE,
	RDS_EPOCH_24,	/* RDS_BARRIER with 24 bytes: a0, a1, a2 */
	RDS_EPOCH_32,	/* RDS_BARRIER with 32 bytes: b1, b2 */
	RDS_EPOCH_LATER /* c or d: word 6 is never a pointer */
};

enum rds_abi_epoch rds_abi_epoch(void);
/*
 * The program has used a feature that no revision before c had: RDS_RECVERR, RDS_CONG_MONITOR, a
 * socket option from 7 on, RDS_INFO_* from 10008 on, a control message from 5 on.  May be called
 * any number of times.
 */
void rds_abi_note_modern(void);
/*
 * The program sets or reads a socket option of RDS's level.  Some options prove the program's age.
 */
void rds_abi_note_option(int opt);
/* Is that option a list of rds-info? */
static inline bool rds_abi_is_info(int opt)
{
	return (opt >= RDS_INFO_FIRST && opt <= RDS_INFO_LAST) || opt == RDS_PRELOAD_INFO_NODES ||
	       opt == RDS_PRELOAD_INFO_MEMBERS;
}
/* Has the program used an option that only Oracle's kernels have? */
bool rds_abi_is_uek(void);
/*
 * Has the process read the RDS numbers in /proc (rds_abi_note_numbers())?  Programs of before 2009
 * had to.  And how many times has it read the level's number?
 */
bool rds_abi_numbers_read(void);
unsigned rds_abi_level_reads(void);
/* Forgets all proofs (tests only). */
void rds_abi_reset(void);

/* ---- RDS_CMSG_RDMA_ARGS ---- */

/*
 * Address and number of the local vector's elements.  They are in the same place in all revisions.
 * The caller adds up their bytes; the sum decides the order of the other words.  -EINVAL: too short
 * for any revision.
 */
int rds_abi_local_vec_decode(const void *body, size_t size, uint64_t *vec, uint64_t *nr);

/*
 * body: the first 64 of size bytes, or all.  local_bytes: that sum.  is_cookie (or NULL): was this
 * cookie issued or received here?  It is asked only when the numbers do not decide.  -EINVAL: too
 * short, or (under RDS_EPOCH_24) of neither order.  The caller checks that remote_bytes is not less
 * than local_bytes, at the same point as the kernel.
 */
int rds_abi_rdma_decode(const void *body, size_t size, uint64_t local_bytes,
			bool (*is_cookie)(void *arg, uint64_t cookie), void *arg, struct rds_rdma_request *out);

/* ---- memory regions ---- */

/*
 * RDS_GET_MR and RDS_CMSG_RDMA_MAP.  writable (or NULL): can 8 bytes be stored at that address?  It
 * is asked only if the answer matters.  If phys_addr is not 0, the caller stores 8 bytes of 0
 * there; the address need not be aligned.
 */
void rds_abi_mr_decode(const struct rds_get_mr_args *args, bool (*writable)(uint64_t addr), struct rds_mr_request *out);
/* RDS_GET_MR_FOR_DEST is younger than all these changes, and has one form. */
void rds_abi_mr_for_dest_decode(const struct rds_get_mr_for_dest_args *args, struct rds_mr_request *out);

/* ---- the rest ---- */

/* One of the four RDS_CMSG_*ATOMIC_*.  -EINVAL: too short. */
int rds_abi_atomic_decode(int cmsg_type, const void *body, size_t size, struct rds_atomic_request *out);
/* The value of RDS_BARRIER: 24 or 32 bytes, else -EINVAL.  Its length is a proof of age. */
int rds_abi_barrier_decode(const void *val, int len, struct rds_barrier_request *out);

/*
 * info_revision.c: the form of RDS_INFO_* records that the program knows.  Borrowers pass these
 * numbers to the owner.
 */
enum rds_info_revision {
	/* As in Linux 6.1.  A program that knows shorter records reads the beginning of each. */
	RDS_INFO_LINUX,
	RDS_INFO_2007,	  /* connections of 40 bytes; the form of 2006-09 as far as possible */
	RDS_INFO_2006_09, /* entirely the form of 2006-09 */
	/* as Oracle's kernels have them since 2022: some are longer at their ends */
	RDS_INFO_UEK,
	RDS_INFO_REVISIONS
};
/*
 * rds_abi_info_revision(): before a call that has room for so many bytes.  The call is that of this
 * process's program, or of the borrower in rds_caller.  rds_abi_info_note_told(): the call needs
 * len bytes, which is more than its room.
 */
enum rds_info_revision rds_abi_info_revision(int opt, int room);
void rds_abi_info_note_told(socklen_t len);

#endif
