/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * copy.c - what one process can do to another's memory without RDS: process_vm_writev and
 * process_vm_readv (what=vm), or memcpy to and from memory that both share (what=memcpy).  The
 * limit for the rows of rdmaop.c: the same sizes, as many buffers, no notification.  Numbers are
 * checked at the end (written) or after each copy (read).
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

struct copy {
	const struct options *o;
	/* theirs.mem: shared memory, or an address in the other process */
	struct slots mine, theirs;
	pid_t pid;
	bool vm;
};

static void copy_one(const struct copy *c, uint64_t seq)
{
	struct iovec here = {slot(&c->mine, seq), c->mine.size}, there = {slot(&c->theirs, seq), c->theirs.size};
	ssize_t n = c->mine.size;

	if (!c->vm && c->o->read)
		memcpy(here.iov_base, there.iov_base, here.iov_len);
	else if (!c->vm)
		memcpy(there.iov_base, here.iov_base, here.iov_len);
	else if (c->o->read)
		n = process_vm_readv(c->pid, &here, 1, &there, 1, 0);
	else
		n = process_vm_writev(c->pid, &here, 1, &there, 1, 0);
	if (n != (ssize_t)c->mine.size)
		die("process_vm_%s: %zd %s", c->o->read ? "readv" : "writev", n, n < 0 ? strerror(errno) : "");
}

/* Copies for so long; the number that is next. */
static uint64_t copy_for(const struct copy *c, uint64_t seq, double seconds)
{
	uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);

	do {
		slot_mark(&c->mine, seq, c->o->read ? ~seq : seq + 1);
		copy_one(c, seq);
		if (c->o->read)
			slot_expect(&c->mine, seq, slot_blank(seq % c->mine.n), "read");
		seq++;
	} while (seq % c->mine.n || now_ns() < end);
	return seq;
}

static void find_target(struct copy *c)
{
	unsigned long long addr;
	char rest[128], path[64];
	int pid, fd;

	hear("peer", rest, sizeof(rest));
	if (sscanf(rest, "%d %llx %d", &pid, &addr, &fd) != 3)
		die("bad peer '%s'", rest);
	c->pid = pid;
	if (c->vm) {
		c->theirs = (struct slots){(char *)(uintptr_t)addr, c->o->size, c->o->window};
		return;
	}
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	fd = open(path, O_RDWR);
	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	slots_init(&c->theirs, c->o, fd);
}

static void copier(struct copy *c)
{
	uint64_t first, next;
	struct usage u;

	slots_init(&c->mine, c->o, -1);
	slots_blank(&c->mine);
	find_target(c);
	first = copy_for(c, 0, 0.05);
	say("ready");
	hear("go", NULL, 0);
	u = usage_now();
	next = copy_for(c, first, c->o->seconds);
	u = usage_since(u);
	say("result msgs=%llu ns=%llu cpu_ns=%llu last=%llu", (unsigned long long)(next - first),
	    (unsigned long long)u.wall, (unsigned long long)u.cpu, (unsigned long long)next);
}

/* `go N`: N copies were made. */
static void target(struct copy *c)
{
	int fd = c->vm ? -1 : memfd_create("bench", 0);
	uint64_t copies, seq;
	char rest[64];

	if (!c->vm && (fd < 0 || ftruncate(fd, (off_t)c->o->size * c->o->window) < 0))
		die("shared memory: %s", strerror(errno));
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* where only a parent may do that */
	slots_init(&c->mine, c->o, fd);
	slots_blank(&c->mine);
	say("addr %d %llx %d", (int)getpid(), (unsigned long long)(uintptr_t)c->mine.mem, fd);
	say("ready");
	hear("go", rest, sizeof(rest));
	copies = strtoull(rest, NULL, 10);
	if (copies < c->o->window)
		die("%llu copies", (unsigned long long)copies);
	for (seq = copies - c->o->window; seq < copies; seq++)
		slot_expect(&c->mine, seq, c->o->read ? slot_blank(seq % c->mine.n) : seq + 1, "written");
	say("result checked=%u", c->o->window);
}

void run_copy(const struct options *o)
{
	struct copy c = {.o = o, .vm = strcmp(o->what, "vm") == 0};

	if (strcmp(o->role, "target") == 0)
		target(&c);
	else
		copier(&c);
}
