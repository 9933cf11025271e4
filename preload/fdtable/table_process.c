/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * table_process.c - whose table of numbers is this? This process's, its parent's (in a child that
 * no fork handler has seen), or that of the process whose memory this one shares (vfork).
 *
 * The kernel wipes a word at fork. It tells the first case from the second, as another one does for
 * the engine (sys/process.c). A process that only has borrowed sockets has no engine, so the
 * table has a word of its own. The process number tells the third case. Together with the count of
 * calls of clone() that are starting such children, it also tells a child that has a copy of the
 * memory and shares the numbers.
 */
#include "preload/fdtable/fdtable.h"
#include "engine/sys/os.h"

_Atomic unsigned rds_fds_sharing_clones;

static _Atomic pid_t table_process;	  /* the process whose numbers these are */
static _Atomic(_Atomic int *) fds_alive;  /* the kernel wipes it at fork */

static pid_t fds_own_pid(void)
{
	return os_getpid(); /* another library may interpose libc's getpid() */
}

/*
 * Without the word (no memory, an old kernel) a child that no fork handler has seen, of a process
 * with borrowed sockets only, is taken for one that shares the memory.
 */
void rds_fds_claim(void)
{
	_Atomic int *alive;

	/* Set before other threads see it: they would take it for wiped, and forget the table. */
	if (os_process_word(1, &alive) == 0) {
		atomic_store(alive, 1);
		atomic_store(&fds_alive, alive);
	}
	atomic_store(&table_process, fds_own_pid());
}

bool rds_fds_is_ours(void)
{
	_Atomic int *alive = atomic_load_explicit(&fds_alive, memory_order_acquire);

	if (unlikely(atomic_load_explicit(&rds_fds_sharing_clones, memory_order_relaxed)))
		return fds_own_pid() == atomic_load_explicit(&table_process, memory_order_relaxed);
	if (os_process_inherited() || (alive && !atomic_load_explicit(alive, memory_order_relaxed)))
		rds_fds_fork_child();
	if (fds_own_pid() != atomic_load_explicit(&table_process, memory_order_relaxed))
		return false;
	if (unlikely(atomic_load_explicit(&rds_handoff_unbound_left, memory_order_relaxed)))
		rds_handoff_unbound_clear();
	return true;
}
