/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * other.c - what calls on descriptors cost that are no RDS sockets: one byte through a pipe, poll
 * of a pipe, one byte to /dev/null (the cheapest call there is, so the best probe).  Option rds:
 * the process owns an RDS socket meanwhile.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define BATCH 2000

struct probe {
	int rd, wr;
};

static void call_null(const struct probe *p)
{
	if (write(p->wr, "x", 1) != 1)
		die("write to /dev/null: %s", strerror(errno));
}

static void call_pipe(const struct probe *p)
{
	char c;

	if (write(p->wr, "x", 1) != 1 || read(p->rd, &c, 1) != 1)
		die("pipe: %s", strerror(errno));
}

static void call_poll(const struct probe *p)
{
	struct pollfd pfd = {.fd = p->rd, .events = POLLIN};

	if (poll(&pfd, 1, 0) != 0)
		die("poll of an empty pipe: %s", strerror(errno));
}

/* Median over batches, so that an interrupt spoils one batch and not the figure. */
static uint64_t median_batch(const struct probe *p, void (*call)(const struct probe *), double seconds)
{
	struct samples batches = {0};
	uint64_t last = now_ns(), end = last + (uint64_t)(seconds * 1e9);

	while (last < end) {
		uint64_t now;
		unsigned i;

		for (i = 0; i < BATCH; i++)
			call(p);
		now = now_ns();
		samples_add(&batches, now - last);
		last = now;
	}
	last = samples_percentile(&batches, 50);
	samples_free(&batches);
	return last;
}

void run_other(const struct options *o)
{
	bool null = strcmp(o->what, "null") == 0, through = strcmp(o->what, "pipe") == 0;
	void (*call)(const struct probe *) = null ? call_null : through ? call_pipe : call_poll;
	uint64_t ps;
	struct probe p;
	int fds[2];

	if (o->rds && sock_rds(o->host) < 0)
		die("PF_RDS socket: %s", strerror(errno));
	if (pipe(fds) < 0)
		die("pipe: %s", strerror(errno));
	p.rd = fds[0];
	p.wr = null ? open("/dev/null", O_WRONLY) : fds[1];
	if (p.wr < 0)
		die("/dev/null: %s", strerror(errno));
	say("ready");
	hear("go", NULL, 0);
	median_batch(&p, call, 0.01);
	/* the pipe takes two calls */
	ps = median_batch(&p, call, o->seconds) * 1000 / BATCH / (through ? 2 : 1);
	say("result ps=%llu", (unsigned long long)ps);
}
