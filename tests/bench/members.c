/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * members.c - many processes of one measurement, which begin each part of it together.
 *
 * The starter forks them and has no socket itself.  So each begins as a program does, and without
 * exec's cost, which would be the same on both sides.  Between two parts all wait at a gate.  The
 * gates lie in shared memory, so that nobody has a descriptor for them: descriptors are counted.
 */
#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

/* ---- a member ---- */

void member_wait(struct member *me)
{
	struct gates *g = me->gates;
	uint32_t open = me->passed++;

	if (atomic_fetch_add(&g->come, 1) + 1 == g->members * (open + 1))
		futex(&g->come, FUTEX_WAKE, 1, NULL);
	while (atomic_load(&g->open) == open)
		futex(&g->open, FUTEX_WAIT, open, NULL);
	me->cpu_ns[open] = usage_now().cpu;
}

void member_open(struct member *me, struct sock *s, const struct options *o)
{
	const struct sockaddr_un any = {.sun_family = AF_UNIX}; /* the kernel chooses a name */

	memset(s, 0, sizeof(*s));
	s->rds = o->rds;
	s->size = o->size;
	s->fd = o->rds ? sock_rds(o->host) : socket(AF_UNIX, SOCK_DGRAM, 0);
	s->buf = calloc(1, s->size);
	me->len = sizeof(me->name);
	if (s->fd < 0 || !s->buf || (!o->rds && bind(s->fd, (const void *)&any, sizeof(any.sun_family)) < 0) ||
	    getsockname(s->fd, (struct sockaddr *)&me->name, &me->len) < 0 || fcntl(s->fd, F_SETFL, O_NONBLOCK) < 0)
		die("socket of member %u: %s", me->number, strerror(errno));
}

enum sent member_send(struct sock *s, const struct member *to, unsigned id, uint64_t seq)
{
	ssize_t n;

	sock_fill(s, s->size, KIND_DATA, id, seq);
	n = sendto(s->fd, s->buf, s->size, 0, (const struct sockaddr *)&to->name, to->len);
	if (n == (ssize_t)s->size)
		return SENT;
	if (n >= 0 || (errno != EAGAIN && errno != ENOBUFS))
		die("member %u to %u, message %llu: %zd %s", id, to->number, (unsigned long long)seq, n,
		    n < 0 ? strerror(errno) : "");
	return s->rds && errno == EAGAIN ? SENT_NO_ROOM : SENT_PEER_FULL;
}

bool member_receive(struct sock *s)
{
	ssize_t n = recv(s->fd, s->buf, s->size, 0);

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n != (ssize_t)s->size)
		die("received %zd bytes: %s", n, n < 0 ? strerror(errno) : "");
	sock_check(s, n);
	return true;
}

/* ---- the starter ---- */

static void limit_files(unsigned files)
{
	const struct rlimit limit = {files, files};

	if (files && setrlimit(RLIMIT_NOFILE, &limit) < 0)
		die("RLIMIT_NOFILE %u: %s", files, strerror(errno));
}

static void begin(struct members *m, unsigned i, void (*role)(struct members *, struct member *))
{
	struct member *me = &m->all[i];
	pid_t starter = getpid(), pid;

	me->number = i;
	me->gates = m->gates;
	pid = fork();
	if (pid < 0)
		members_fail(m, "fork");
	if (pid) {
		me->pid = pid;
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != starter)
		_exit(1);
	alarm(m->o->limit);
	limit_files(m->o->files);
	role(m, me);
	exit(0);
}

void members_begin(struct members *m, const struct options *o, void (*role)(struct members *, struct member *))
{
	const size_t size = sizeof(struct gates) + o->idle * sizeof(struct member);
	unsigned i;

	if (o->idle < 2 || o->idle > UINT16_MAX)
		die("2 to %u members", UINT16_MAX);
	*m = (struct members){.o = o, .n = o->idle, .end = now_ns() + o->limit * 900000000ull};
	m->gates = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (m->gates == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	m->gates->members = m->n;
	m->all = (struct member *)(m->gates + 1);
	for (i = 0; i < m->n; i++)
		begin(m, i, role);
}

/* Told before they are ended, which may take long if there are many. */
void members_fail(struct members *m, const char *what)
{
	unsigned i;

	say("error %s", what);
	for (i = 0; i < m->n; i++)
		if (m->all[i].pid > 0)
			kill(m->all[i].pid, SIGKILL);
	while (wait(NULL) > 0)
		;
	exit(1);
}

/* One that has ended too early has said why, unless a signal has ended it. */
static void look_after(struct members *m)
{
	char text[80];
	unsigned i;
	int status;
	pid_t pid = waitpid(-1, &status, WNOHANG);

	for (i = 0; pid > 0 && i < m->n; i++)
		if (m->all[i].pid == pid) {
			m->all[i].pid = 0;
			snprintf(text, sizeof(text), "member %u has ended with status %#x", i, (unsigned)status);
			members_fail(m, text);
		}
}

bool members_come(struct members *m)
{
	const uint32_t all = m->n * (atomic_load(&m->gates->open) + 1);
	const struct timespec a_while = {.tv_nsec = 100000000};
	uint32_t come;

	while ((come = atomic_load(&m->gates->come)) != all) {
		if (now_ns() > m->end)
			return false;
		look_after(m);
		futex(&m->gates->come, FUTEX_WAIT, come, &a_while);
	}
	return true;
}

void members_go(struct members *m)
{
	atomic_fetch_add(&m->gates->open, 1);
	futex(&m->gates->open, FUTEX_WAKE, INT_MAX, NULL);
}

uint64_t members_cpu_ns(const struct members *m, unsigned gate)
{
	uint64_t sum = 0;
	unsigned i;

	for (i = 0; i < m->n; i++)
		sum += m->all[i].cpu_ns[gate] - (gate ? m->all[i].cpu_ns[gate - 1] : 0);
	return sum;
}

static unsigned entries(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *d;
	unsigned n = 0;

	while (dir && (d = readdir(dir)))
		n += d->d_name[0] != '.';
	if (!dir)
		die("%s: %s", path, strerror(errno));
	closedir(dir);
	return n;
}

/* A thread may have a table of descriptors of its own: the longest counts. */
unsigned descriptors_of(pid_t pid)
{
	const struct dirent *d;
	unsigned n, most = 0;
	char path[64];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	while (tasks && (d = readdir(tasks))) {
		if (d->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.12s/fd", (int)pid, d->d_name);
		n = entries(path);
		most = n > most ? n : most;
	}
	if (!tasks)
		die("%s: %s", path, strerror(errno));
	closedir(tasks);
	return most;
}

/* The sum of the lines of a file in /proc that begin so; all are in KiB. */
static uint64_t kib_of(pid_t pid, const char *file, const char *a, const char *b)
{
	char path[64], line[256];
	uint64_t sum = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	f = fopen(path, "r");
	if (!f)
		die("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, a, strlen(a)) || !strncmp(line, b, strlen(b)))
			sum += strtoull(strchr(line, ':') + 1, NULL, 10);
	fclose(f);
	return sum;
}

/* Nobody's pages are counted twice: those that several share count in parts.  Page tables, too. */
uint64_t members_kib(const struct members *m)
{
	uint64_t sum = 0;
	unsigned i;

	for (i = 0; i < m->n; i++)
		sum += kib_of(m->all[i].pid, "smaps_rollup", "Pss_Anon:", "Pss_Shmem:") +
		       kib_of(m->all[i].pid, "status", "VmPTE:", "VmPTE:");
	return sum;
}

void members_end(struct members *m)
{
	char text[80];
	unsigned i;
	int status;

	for (i = 0; i < m->n; i++)
		if (waitpid(m->all[i].pid, &status, 0) < 0 || status != 0) {
			snprintf(text, sizeof(text), "member %u ended with status %#x", i, (unsigned)status);
			members_fail(m, text);
		}
}
