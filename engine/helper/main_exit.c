/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * main_exit.c - the end of a program whose main thread ends by pthread_exit().
 *
 * libc ends such a process by exit(0) when its last thread ends.  The helper is a thread, too, and
 * would keep the process alive for ever.  The helper cannot call exit() itself in time: the
 * program's descriptors are closed with the program's last thread, and data that is buffered for
 * them would be lost.  So when the main thread ends, a further thread starts with the program's
 * table: the keeper.  From time to time the keeper checks whether only threads of the engine are
 * left, and then calls exit(0) as libc would have done.  Other programs pay nothing for this.  A
 * thread-specific value with a destructor tells that the main thread ends.
 *
 * The same count of threads tells whether the program has one thread only
 * (rds_helper_program_is_single()).
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "engine/helper/fd_exchange.h"
#include "engine/helper/helper.h"
#include "engine/rds.h"
#include "engine/sys/os.h"
#include "engine/sys/process.h"

#define LOOK_MS 50

static pthread_key_t main_key;
static bool main_key_made;
static _Atomic bool main_gone, kept;
static sigset_t main_mask;

static _Atomic int stat_fd = -1;

/*
 * Has the main thread ended, and are no more threads left than `ours`, the extra threads and the
 * main thread as a zombie?  In the program's table the file stays open.  If it were opened for each
 * look, it would take descriptor numbers that the program expects to be free.
 */
bool rds_helper_main_has_ended(unsigned ours)
{
	char text[1024], *p;
	long fields = 0, threads = 0;
	unsigned births = rds_helper_thread_births();
	int fd = os_fd_table ? os_open("/proc/self/stat", O_RDONLY, 0) : atomic_load(&stat_fd);
	ssize_t n = os_pread(fd, text, sizeof(text) - 1, 0);

	if (os_fd_table)
		os_close(fd);
	if (n <= 0)
		return false;
	text[n] = 0;
	p = strrchr(text, ')');
	if (!p || strncmp(p, ") Z ", 4))
		return false;
	for (p += 2; *p && fields < 17; p++)
		fields += *p == ' ';
	threads = strtol(p, NULL, 10); /* the 20th, after name and state */
	return threads > 0 && (unsigned long)threads <= ours + 1 + atomic_load(&rds_helper_extra_threads) &&
	       !(births & 1) && rds_helper_thread_births() == births;
}

/* The kernel counts the threads as links of /proc/self/task, so no descriptor is needed. */
bool rds_helper_program_is_single(bool *helper)
{
	bool runs = os_process_is_started() && atomic_load(&rds_helper_up);
	unsigned births = rds_helper_thread_births(), ours = (runs ? 1 : 0) + atomic_load(&rds_helper_extra_threads);
	struct stat st;

	*helper = runs && !rds_helper_has_own_table();
	return os_stat("/proc/self/task", &st) == 0 && st.st_nlink > 2 && st.st_nlink - 2 <= ours + 1 &&
	       !(births & 1) && rds_helper_thread_births() == births;
}

static void *keeper_main(void *arg)
{
	(void)arg;
	pthread_setname_np(pthread_self(), "rdskeeper");
	while (!rds_helper_main_has_ended(2))
		os_poll(NULL, 0, LOOK_MS);
	pthread_sigmask(SIG_SETMASK, &main_mask, NULL);
	exit(0);
}

static void keeper_start(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;

	if (atomic_exchange(&kept, true))
		return;
	if (os_dup_high_slot(os_open("/proc/self/stat", O_RDONLY | O_CLOEXEC, 0), &stat_fd) < 0)
		return; /* without a keeper the process stays alive */
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&thread, &attr, keeper_main, NULL))
		os_close_slot(&stat_fd);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
}

void rds_helper_keeper_check(void)
{
	if (atomic_load(&main_gone))
		keeper_start();
}

/* The keeper is started here or by rds_helper_keeper_check(); keeper_start() allows for both. */
static void main_thread_exit(void *arg)
{
	(void)arg;
	pthread_sigmask(SIG_BLOCK, NULL, &main_mask);
	atomic_store(&main_gone, true);
	if (os_process_is_started() && atomic_load(&rds_helper_up))
		keeper_start();
}

static void main_thread_watch(void)
{
	if (main_key_made && os_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0) == os_getpid())
		pthread_setspecific(main_key, &main_key);
}

static void __attribute__((constructor)) keeper_init(void)
{
	main_key_made = pthread_key_create(&main_key, main_thread_exit) == 0;
	main_thread_watch();
}

void rds_helper_keeper_forget(void)
{
	atomic_store(&main_gone, false);
	atomic_store(&kept, false);
	atomic_store(&stat_fd, -1);
	main_thread_watch();
}
