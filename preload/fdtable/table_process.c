/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * table_process.c - whose table of numbers is this? This process's, its parent's (in a child that
 * no fork handler has seen), or that of the process whose memory this one shares (vfork).
 *
 * The kernel wipes a page at fork. The page tells the first case from the second, as it does for
 * the engine (sys/process.c). A process that only has borrowed sockets has no engine, so the
 * table has a page of its own. The process number tells the third case. Together with the count of
 * calls of clone() that are starting such children, it also tells a child that has a copy of the
 * memory and shares the numbers.
 */
#include "preload/fdtable/fdtable.h"
#include "engine/sys/os.h"

#include <sys/mman.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

_Atomic unsigned rds_fds_sharing_clones;

static _Atomic pid_t table_process;	  /* the process whose numbers these are */
static _Atomic(_Atomic bool *) fds_alive; /* on the page that the kernel wipes */

static pid_t fds_own_pid(void)
{
	return os_getpid(); /* another library may interpose libc's getpid() */
}

/*
 * Without the page (no memory, an old kernel) a child that no fork handler has seen, of a process
 * with borrowed sockets only, is taken for one that shares the memory.
 */
static _Atomic bool *fds_alive_page_make(void)
{
	size_t len = (size_t)sysconf(_SC_PAGESIZE);
	_Atomic bool *page = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *none = NULL;

	if (page == MAP_FAILED)
		return NULL;
	/*
	 * Set before other threads see the page: they would take it for wiped, and forget the
	 * table.
	 */
	atomic_store(page, true);
	if (madvise((void *)(uintptr_t)page, len, MADV_WIPEONFORK) ||
	    !atomic_compare_exchange_strong(&fds_alive, &none, page)) {
		munmap((void *)(uintptr_t)page, len);
		return none;
	}
	return page;
}

void rds_fds_claim(void)
{
	_Atomic bool *page = atomic_load(&fds_alive);

	if (!page)
		page = fds_alive_page_make();
	if (page)
		atomic_store(page, true);
	atomic_store(&table_process, fds_own_pid());
}

bool rds_fds_is_ours(void)
{
	_Atomic bool *page = atomic_load_explicit(&fds_alive, memory_order_acquire);

	if (unlikely(atomic_load_explicit(&rds_fds_sharing_clones, memory_order_relaxed)))
		return fds_own_pid() == atomic_load_explicit(&table_process, memory_order_relaxed);
	if (os_process_inherited() || (page && !atomic_load_explicit(page, memory_order_relaxed)))
		rds_fds_fork_child();
	if (fds_own_pid() != atomic_load_explicit(&table_process, memory_order_relaxed))
		return false;
	if (unlikely(atomic_load_explicit(&rds_handoff_unbound_left, memory_order_relaxed)))
		rds_handoff_unbound_clear();
	return true;
}
