/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_pin.c - a process that may not lock any memory opens no region (EPERM), and only such a
 * process: the kernel says by mlock() whether that is so.  For a borrower its own right counts, and
 * not that of the socket's owner.
 */
#include "program.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#define SOL_RDS 276
#define GET_MR 2
#define FREE_MR 3

static unsigned char *page;
static int fd;

/* 0 or an errno */
static int opens(void)
{
	unsigned long long cookie = 0, args[4] = {(unsigned long)page, 4096, (unsigned long)&cookie, 1};
	unsigned long long end[2];

	if (setsockopt(fd, SOL_RDS, GET_MR, args, sizeof(args)))
		return errno;
	end[0] = cookie;
	end[1] = 0;
	check(setsockopt(fd, SOL_RDS, FREE_MR, end, sizeof(end)) == 0);
	return 0;
}

/* By the system call: AddressSanitizer's mlock() does nothing. */
static int locks(void)
{
	int err = syscall(SYS_mlock, page, 4096) ? errno : 0;

	check(!err || err == EPERM);
	syscall(SYS_munlock, page, 4096);
	return err;
}

static void limit(rlim_t soft)
{
	struct rlimit lim;

	check(getrlimit(RLIMIT_MEMLOCK, &lim) == 0);
	lim.rlim_cur = soft < lim.rlim_max ? soft : lim.rlim_max;
	check(setrlimit(RLIMIT_MEMLOCK, &lim) == 0);
}

/* Of this thread, if it has it. */
static void capability(int on)
{
	struct __user_cap_header_struct hdr = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	check(syscall(SYS_capget, &hdr, data) == 0);
	if (on)
		data[0].effective |= data[0].permitted & 1u << CAP_IPC_LOCK;
	else
		data[0].effective &= ~(1u << CAP_IPC_LOCK);
	check(syscall(SYS_capset, &hdr, data) == 0);
}

static void same(const char *when)
{
	int may = locks(), does = opens();

	check(may == does, "%s: mlock says %d, RDS_GET_MR %d", when, may, does);
}

static void each_way(void)
{
	limit(0);
	same("no limit at all, or the right to exceed it");
	capability(0);
	same("nothing, and no right");
	check(opens() == EPERM);
	capability(1);
	same("the right again");
	limit(65536);
	capability(0);
	check(opens() == 0);
	same("a limit");
}

/* One that has opened many just now is told within a tick of the clock. */
static void busy(void)
{
	struct timespec begin, now;
	unsigned i;

	limit(65536);
	for (i = 0; i < 1000; i++)
		check(opens() == 0);
	limit(0);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((now.tv_sec - begin.tv_sec) * 1000 > test_bound_ms(2000))
			test_late("the end of its right: it opens regions");
	} while (opens() == 0);
	limit(65536);
	check(opens() == 0, "a right that comes is told at once");
}

static void holder(void *arg)
{
	(void)arg;
	each_way();
	busy();
}

int main(void)
{
	struct sockaddr_in at;

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(page != MAP_FAILED);
	fd = bound(&at);
	finished(start(holder, NULL)); /* this process owns the socket, and may */
	holder(NULL);
	limit(0);
	check(opens() == EPERM);
	/* ... and may not; the child has a limit again */
	pid_t pid = fork();
	check(pid >= 0);
	if (!pid) {
		limit(65536);
		same("a holder that may");
		check(opens() == 0);
		exit(0);
	}
	finished(pid);
	printf("as mlock() says\n");
	return 0;
}
