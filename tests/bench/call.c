/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * call.c - calls of the RDMA interface that move nothing: RDS_GET_MR and RDS_FREE_MR of memory that
 * was a region before (getmr), RDS_BARRIER with nothing outstanding (barrier), poll of a socket
 * that has nothing (poll).
 *
 * The last two must not enter the kernel.  That is not measured but tried: after the timed calls
 * the same thread makes QUIET_CALLS more under a seccomp filter that lets nothing through but the
 * end of the thread, and the first system call ends it (result: its number, and the calls without
 * one before).  So all calls are made in a thread of their own.  A filter holds for the thread that
 * sets it; the library's helper is free.
 */
#include "bench.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/rds.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BATCH 200
#define QUIET_CALLS 100000
#define RDS_BARRIER 4 /* gone from the headers since 2008 */

/* Of 2008-01, the last layout there was. */
struct barrier_args {
	uint32_t daddr, hole; /* big endian */
	uint64_t flags, id_addr, wait_id;
};

static struct {
	const struct options *o;
	int fd;
	char *mem;
	uint32_t daddr;
	void (*call)(void);
	uint64_t ps;		  /* of a call */
	volatile int forbidden;	  /* the system call that came, -1 for none */
	volatile unsigned silent; /* calls without one */
} work = {.forbidden = -1};

static void call_getmr(void)
{
	uint64_t cookie = 0;
	struct rds_get_mr_args get = {.vec = {(uintptr_t)work.mem, work.o->size},
				      .cookie_addr = (uintptr_t)&cookie,
				      .flags = RDS_RDMA_READWRITE};
	struct rds_free_mr_args end = {0};

	if (setsockopt(work.fd, SOL_RDS, RDS_GET_MR, &get, sizeof(get)) < 0)
		die("RDS_GET_MR: %s", strerror(errno));
	end.cookie = cookie;
	if (!cookie || setsockopt(work.fd, SOL_RDS, RDS_FREE_MR, &end, sizeof(end)) < 0)
		die("RDS_FREE_MR of %llx: %s", (unsigned long long)cookie, strerror(errno));
}

static void call_barrier(void)
{
	uint64_t mark = ~0ull;
	struct barrier_args args = {.daddr = work.daddr, .id_addr = (uintptr_t)&mark};

	if (setsockopt(work.fd, SOL_RDS, RDS_BARRIER, &args, sizeof(args)) < 0 || mark != 0)
		die("RDS_BARRIER: %s, mark %llx", strerror(errno), (unsigned long long)mark);
}

static void call_poll(void)
{
	struct pollfd p = {.fd = work.fd, .events = POLLIN};
	int n = poll(&p, 1, 0);

	if (n != 0)
		die("poll of a socket that has nothing: %d, %s", n, n < 0 ? strerror(errno) : "");
}

/* Median over batches, so that an interrupt spoils one batch and not the figure. */
static uint64_t median_ps(double seconds)
{
	struct samples batches = {0};
	uint64_t last = now_ns(), end = last + (uint64_t)(seconds * 1e9);

	while (last < end || !batches.n) {
		uint64_t now;
		unsigned i;

		for (i = 0; i < BATCH; i++)
			work.call();
		now = now_ns();
		samples_add(&batches, now - last);
		last = now;
	}
	last = samples_percentile(&batches, 50) * 1000 / BATCH;
	samples_free(&batches);
	return last;
}

static void on_forbidden(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	work.forbidden = info->si_syscall;
	syscall(SYS_exit, 0); /* of this thread; the filter permits it */
}

static void call_silently(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the number of the call */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	};
	struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};
	struct sigaction action = {.sa_sigaction = on_forbidden, .sa_flags = SA_SIGINFO};
	unsigned i;

	if (sigaction(SIGSYS, &action, NULL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
		die("seccomp: %s", strerror(errno));
	for (i = 0; i < QUIET_CALLS; i++) {
		work.call();
		work.silent = i + 1;
	}
	syscall(SYS_exit, 0);
}

static void *caller(void *unused)
{
	struct options small = *work.o;
	struct sockaddr_in name;
	socklen_t len = sizeof(name);
	struct sock s;

	(void)unused;
	small.size = sizeof(struct message);
	sock_open(&s, &small);
	work.fd = s.fd;
	if (getsockname(s.fd, (struct sockaddr *)&name, &len) < 0 || name.sin_family != AF_INET)
		die("getsockname: %s", strerror(errno));
	work.daddr = name.sin_addr.s_addr;
	work.call();
	median_ps(0.01);
	say("ready");
	hear("go", NULL, 0);
	work.ps = median_ps(work.o->seconds);
	if (work.call != call_getmr)
		call_silently();
	return NULL;
}

void run_call(const struct options *o)
{
	const struct {
		const char *what;
		void (*call)(void);
	} calls[] = {{"getmr", call_getmr}, {"barrier", call_barrier}, {"poll", call_poll}};
	pthread_t thread;
	size_t i;

	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (strcmp(o->what, calls[i].what) == 0)
			work.call = calls[i].call;
	if (!work.call)
		die("unknown call '%s'", o->what);
	work.o = o;
	work.mem = aligned_alloc(4096, (o->size + 4095) & ~4095u);
	if (!work.mem)
		die("no memory");
	memset(work.mem, 0x5a, o->size);
	if (pthread_create(&thread, NULL, caller, NULL) != 0 || pthread_join(thread, NULL) != 0)
		die("pthread_create");
	if (work.call != call_getmr && work.forbidden < 0 && work.silent != QUIET_CALLS)
		die("%s: %u of %u calls", o->what, work.silent, QUIET_CALLS);
	say("result ps=%llu silent=%u forbidden=%d", (unsigned long long)work.ps, work.silent, work.forbidden);
	if (work.forbidden >= 0)
		_exit(0); /* the thread has ended inside the library, which may wait for its locks */
}
