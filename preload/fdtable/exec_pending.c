/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * exec_pending.c - numbers of sockets that are handed off for an exec that may fail.
 *
 * Until the result of the exec is known, calls of other threads fail (rds_handoff_out()). In the
 * kernel they would not: a thread that is in a call, or makes one, does not notice an exec that
 * fails, and does not live to see one that succeeds. So a call that failed for that reason waits
 * here and is made again: on the socket that was taken back, or as a borrower's if another process
 * has taken the socket. A call of a signal handler that has interrupted the exec does not wait: it
 * would wait for its own thread.
 *
 * Must not know how a socket is handed off.
 */
#include "preload/fdtable/impl.h"

#include "engine/sys/os.h"

static _Atomic unsigned execs; /* execs under way for which sockets are handed off */
static __thread unsigned own_execs __attribute__((tls_model("initial-exec")));

void rds_fds_exec_begin(void)
{
	own_execs++;
	atomic_fetch_add(&execs, 1);
}

/* What other processes have taken meanwhile stays with them. */
static void fds_drop_taken(void)
{
	for (int n = 0; n < rds_fds_top(); n++) {
		_Atomic(uintptr_t) *word = rds_fds_word(n);
		uintptr_t value = word ? atomic_load(word) : 0;

		if (fds_sock(value) && rds_handoff_is_under_way(fds_sock(value)) &&
		    atomic_compare_exchange_strong(word, &value, FDS_BORROWED))
			rds_sock_put(fds_sock(value));
	}
}

void rds_fds_exec_end(bool left)
{
	if (left)
		fds_drop_taken();
	atomic_fetch_sub(&execs, 1);
	own_execs--;
}

void rds_fds_exec_reset(void)
{
	atomic_store(&execs, 0);
	own_execs = 0;
}

bool rds_fds_exec_must_retry(struct rds_sock *sk)
{
	if (sk == RDS_BORROWED || own_execs)
		return false;
	while (atomic_load(&execs))
		os_poll(NULL, 0, 1);
	return rds_handoff_is_open(sk) || rds_handoff_has_new_owner(sk);
}
