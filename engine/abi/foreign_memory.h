/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * foreign_memory.h - memory of another process: of a borrower of a socket whose owner is this
 * process (share/protocol.h).  The owner makes the borrower's calls.  The borrower's regions, and
 * the local memory of its operations, are in the borrower's memory.
 *
 * The borrower passes a descriptor of its /proc/self/mem.  So no right to trace is needed, and it
 * works while the borrower is stopped.  The descriptor never leads to other memory: after the
 * borrower's exec or death every access fails (-EFAULT).
 */
#ifndef ENGINE_ABI_FOREIGN_MEMORY_H
#define ENGINE_ABI_FOREIGN_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rds_foreign_memory; /* as a parameter, NULL stands for this process's own memory */

/* Takes over fd, a descriptor of the memory of process pid.  Helper only.  NULL: out of memory. */
struct rds_foreign_memory *rds_foreign_memory_new(int fd, int pid);
bool rds_foreign_memory_is_of(const struct rds_foreign_memory *m, int pid); /* of process pid? */
/* Of the same process? */
bool rds_foreign_memory_same(const struct rds_foreign_memory *a, const struct rds_foreign_memory *b);
/* References.  Any thread, any lock held; for NULL they do nothing. */
struct rds_foreign_memory *rds_foreign_memory_get(struct rds_foreign_memory *m);
void rds_foreign_memory_put(struct rds_foreign_memory *m);
/*
 * Can this thread access the memory?  NULL: yes.  If the helper has a descriptor table of its own,
 * only the helper can.  False: the helper has been woken, and does the work that the caller leaves
 * undone.  Any lock may be held.
 */
bool rds_foreign_memory_at_hand(struct rds_foreign_memory *m);
/* Does this process have memory of any other process? */
extern _Atomic unsigned rds_foreign_memory_count;
static inline bool rds_foreign_memory_any(void)
{
	return __builtin_expect(atomic_load_explicit(&rds_foreign_memory_count, memory_order_relaxed) != 0, 0);
}
void rds_abi_fork_child(void); /* the child has no foreign memory */
/* Copies all bytes, or -EFAULT.  m is at hand and not NULL; rds_ucopy_*() are for both. */
int rds_foreign_memory_copy(struct rds_foreign_memory *m, uint64_t there, void *here, size_t len, bool put);

/*
 * Opens this process's own memory, to be passed to an owner.  The caller's descriptor, or -errno.
 */
int rds_foreign_memory_fd_open(void);
/* Is it a descriptor of the memory of process pid? */
bool rds_foreign_memory_fd_is(int fd, int pid);

/*
 * The borrower for which this thread makes a call; NULL: the program itself makes it.  Addresses in
 * the arguments are addresses of the borrower.  The borrower has checked them in its own call, and
 * says whether all of them were good.  It also says how old its program is, and whether a word can
 * be written where the revision depends on that (revisions.h).
 */
struct rds_caller {
	struct rds_foreign_memory *memory;
	int pid;
	uint32_t *made; /* out: the key of the region that the call has made */
	/* fault: an address was bad.  word: the word in question can be written. */
	bool fault, word;
	bool no_pin;	/* it may not lock any memory */
	bool numbers;	/* it has looked up the RDS numbers (rds_abi_numbers_read()) */
	int abi, epoch; /* RDS_ABI_* of its options, enum rds_abi_epoch that it has shown */
	unsigned info;	/* enum rds_info_revision */
};
extern __thread const struct rds_caller *rds_caller __attribute__((tls_model("initial-exec")));

/* 0 or -EFAULT. */
int rds_caller_readable(uint64_t at, size_t len);
int rds_caller_writable(uint64_t at, size_t len);
int rds_caller_fetch(void *to, uint64_t from, size_t len);
/* May the caller lock any memory at all?  (Linux: can_do_mlock()) */
bool rds_caller_may_pin(void);

/*
 * One round of receiving, by the helper: it does the work that threads of the program have left
 * undone because they cannot access the memory.  The root fills this in before any thread runs.
 */
extern bool (*rds_foreign_memory_await)(void);

#endif
