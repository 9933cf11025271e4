/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * foreign_memory.h - whose memory an address is in, when it may be that of another process: one that holds a socket which this process carries
 * (node/socket_name.h), and has the carrier make its calls.  Regions that it opened, and what its operations bring, are in its memory.
 *
 * The other process gives us a descriptor of its /proc/self/mem, so nobody has to be allowed to trace anybody, it works while the other one is
 * stopped, and it is that memory and no other: after its exec or its death there is nothing behind it any more (-EFAULT).
 */
#ifndef ENGINE_MEMORY_H
#define ENGINE_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rds_foreign_memory; /* NULL, wherever one is asked for: this process's own */

/* Takes the descriptor, of that process's memory.  Helper only.  NULL: no memory. */
struct rds_foreign_memory *rds_foreign_memory_new(int fd, int pid);
bool rds_foreign_memory_is_of(const struct rds_foreign_memory *m, int pid); /* is it that process's? */
bool rds_foreign_memory_same(const struct rds_foreign_memory *a,
			     const struct rds_foreign_memory *b); /* one process's? */
/* Any thread, any lock; NULL is nothing. */
struct rds_foreign_memory *rds_foreign_memory_get(struct rds_foreign_memory *m);
void rds_foreign_memory_put(struct rds_foreign_memory *m);
/*
 * Can this thread get at it?  NULL: yes.  Otherwise only the helper can, if it has a descriptor table of its own; it has been told, and comes to
 * whatever has been left for later.  Any lock.
 */
bool rds_foreign_memory_at_hand(struct rds_foreign_memory *m);
/* Is there any at all? */
extern _Atomic unsigned rds_foreign_memory_count;
static inline bool rds_foreign_memory_any(void)
{
	return __builtin_expect(atomic_load_explicit(&rds_foreign_memory_count, memory_order_relaxed) != 0, 0);
}
void rds_foreign_memory_forget(void); /* forked child: it has none */
/* All of it, or -EFAULT; not for NULL (user_copy.h is for all).  At hand. */
int rds_foreign_memory_copy(struct rds_foreign_memory *m, uint64_t there, void *here, size_t len, bool put);

/* A process's own, to be given to others: a descriptor, the caller's, or -errno. */
int rds_foreign_memory_fd_open(void);
/* Is it such a descriptor, and of that process? */
bool rds_foreign_memory_fd_is(int fd, int pid);

/*
 * Who makes the call that this thread is just making: NULL, the program itself.  Otherwise addresses in what was passed are the other process's,
 * which has tried them in its own call, and says whether all of them were good.  It also says how old its program is, and what was found where that
 * depends on whether a word can be written (revisions.h).
 */
struct rds_caller {
	struct rds_foreign_memory *memory;
	int pid;
	uint32_t *made; /* a region by the call: its key */
	bool fault, word;
	bool no_pin;	/* it may not lock any memory */
	bool numbers;	/* it has looked them up (rds_abi_numbers_read()) */
	int abi, epoch; /* RDS_ABI_* of its options, enum rds_abi_epoch that it has shown */
	unsigned info;	/* enum rds_info_revision */
};
extern __thread const struct rds_caller *rds_caller __attribute__((tls_model("initial-exec")));

/* 0 or -EFAULT. */
int rds_caller_readable(uint64_t at, size_t len);
int rds_caller_writable(uint64_t at, size_t len);
int rds_caller_fetch(void *to, uint64_t from, size_t len);
/* May it lock memory at all, whatever of it?  (Linux: can_do_mlock()) */
bool rds_caller_may_pin(void);

/* A thread of the program comes by, which can reach memory that the helper cannot: one round of receiving.  Filled in before anything runs. */
extern bool (*rds_foreign_memory_await)(void);

#endif
