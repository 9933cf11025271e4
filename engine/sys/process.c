/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * process.c - is this the process that started the engine?
 *
 * A child is told from its parent without a system call: the mark of a living engine lies on a page
 * that the kernel wipes at fork (MADV_WIPEONFORK).
 */
#include "engine/sys/process.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/sys/lock_order.h"
#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "engine/sys/thread_record.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static _Atomic(_Atomic int *) wiped_page; /* by fork; one for all, as each costs a process 4 KiB */
/* there: 1 in the process that started the engine */
static _Atomic(_Atomic int *) process_mark;
static _Atomic bool process_started;
void (*os_process_fork_child)(void);

bool os_process_inherited(void)
{
	_Atomic int *mark = atomic_load_explicit(&process_mark, memory_order_acquire);

	return mark && __builtin_expect(!atomic_load_explicit(mark, memory_order_relaxed), 0);
}

bool os_process_is_started(void)
{
	return atomic_load_explicit(&process_started, memory_order_acquire) && !os_process_inherited();
}

int os_process_word(unsigned n, _Atomic int **word)
{
	size_t len = (size_t)sysconf(_SC_PAGESIZE);
	_Atomic int *page = atomic_load(&wiped_page), *none = NULL;

	if (!page) {
		page = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (page == MAP_FAILED)
			return -ENOMEM;
		if (madvise((void *)(uintptr_t)page, len, MADV_WIPEONFORK)) {
			munmap((void *)(uintptr_t)page, len);
			return -ENOSYS;
		}
		if (!atomic_compare_exchange_strong(&wiped_page, &none, page)) {
			munmap((void *)(uintptr_t)page, len);
			page = none; /* another thread has been faster */
		}
	}
	*word = page + n;
	return 0;
}

int os_process_mark(void)
{
	_Atomic int *word;
	int ret;

	/* an earlier start has failed after it had marked the process */
	if (atomic_load(&process_mark))
		return 0;
	ret = os_process_word(0, &word);
	if (ret == -ENOMEM)
		rds_error("there is no memory for the RDS engine (ulimit -v; after mlockall() ulimit -l)");
	else if (ret)
		rds_error("the kernel cannot wipe a page at fork (MADV_WIPEONFORK): Linux 4.14 or later is needed");
	if (ret)
		return ret;
	atomic_store(word, 1);
	atomic_store(&process_mark, word);
	return 0;
}

void os_process_start(void)
{
	atomic_store_explicit(&process_started, true, memory_order_release);
}

void os_fork_zero(void *var, size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), head = -(uintptr_t)var % page,
	       tail = ((uintptr_t)var + len) % page;

	if (len < head + tail || madvise((char *)var + head, len - head - tail, MADV_DONTNEED)) {
		memset(var, 0, len);
		return;
	}
	memset(var, 0, head);
	memset((char *)var + len - tail, 0, tail);
}

void os_fork_child(void)
{
	os_fds_forked();
	rds_thread_records_forget();
	rds_lock_order_forget();
}

void os_process_forget(void)
{
	atomic_store_explicit(&process_started, false, memory_order_release);
	atomic_store(&process_mark, NULL);
}
