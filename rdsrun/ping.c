/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * ping.c - pings, as rds-ping(1) makes them (ping.h).
 *
 * A pong does not say of which ping it is.  So there is one ping at a time, and after one that was not
 * answered the next one has another socket: a late pong goes to a port that nobody has.
 */
#include "rdsrun/ping.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rds_abi.h"

#define WHAT "rdsrun: --ping: "
#define INTERVAL_MS 1000 /* from one to the next, and the time for an answer */
#define MOST 1000000000ul
#define ROUTE_PORT 16385 /* any: nothing is sent there */

enum { EXIT_USAGE = 2 };

double ping_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

bool ping_fd_wait(int fd, short events, double until)
{
	struct pollfd p = {.fd = fd, .events = events};
	double left;

	do {
		left = until - ping_now_ms();
		if (poll(&p, 1, left > 0 ? (int)left + 1 : 0) > 0)
			return true;
	} while (left > 0);
	return false;
}

bool ping_send(int fd, const struct addr *peer)
{
	struct addr to = *peer;

	addr_set_port(&to, 0);
	return sendto(fd, "", 0, MSG_DONTWAIT, &to.u.sa, to.len) == 0;
}

bool ping_answered(int fd, const struct addr *peer, double until)
{
	struct addr from;
	char byte;

	do {
		from.len = sizeof(from.u);
		if (recvfrom(fd, &byte, 1, MSG_DONTWAIT, &from.u.sa, &from.len) == 0 && from.u.in.sin_port == 0 &&
		    addr_compare(&from, peer) == 0)
			return true;
	} while (ping_now_ms() < until && ping_fd_wait(fd, POLLIN, until));
	return false;
}

int ping_route(const struct addr *peer, struct addr *local)
{
	struct addr to = *peer;
	int fd = socket(peer->u.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;

	if (fd < 0)
		return errno;
	addr_set_port(&to, ROUTE_PORT);
	memset(local, 0, sizeof(*local));
	local->len = sizeof(local->u);
	if (connect(fd, &to.u.sa, to.len) < 0 || getsockname(fd, &local->u.sa, &local->len) < 0)
		err = errno;
	close(fd);
	addr_set_port(local, 0);
	addr_name(local);
	return err;
}

/* ---- rdsrun --ping ---- */

struct pings {
	struct addr peer, local;
	int fd; /* -1: to be opened */
	unsigned long sent, answered;
};

static int fail(const char *what, const char *why)
{
	fprintf(stderr, WHAT "%s: %s\n", what, why);
	return EXIT_FAILURE;
}

/* 0, or an exit status; said why. */
static int socket_open(struct pings *p)
{
	p->fd = socket(PF_RDS, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (p->fd < 0)
		return fail("no RDS socket", strerror(errno));
	if (bind(p->fd, &p->local.u.sa, p->local.len) == 0)
		return 0;
	return fail(p->local.text, strerror(errno));
}

static void socket_leave(struct pings *p)
{
	/* it is not waited for, at the latest when this process ends */
	setsockopt(p->fd, SOL_RDS, RDS_CANCEL_SENT_TO, &p->peer.u, p->peer.len);
	close(p->fd);
	p->fd = -1;
}

/* The number, and how long it took. */
static int ping_one(struct pings *p)
{
	int status = p->fd < 0 ? socket_open(p) : 0;
	double since = ping_now_ms(), took;

	if (status)
		return status;
	if (!ping_send(p->fd, &p->peer))
		return fail(p->peer.text, strerror(errno));
	p->sent++;
	if (ping_answered(p->fd, &p->peer, since + INTERVAL_MS)) {
		took = ping_now_ms() - since;
		p->answered++;
		printf("%4lu: %.0f usec\n", p->sent, took * 1e3);
	} else {
		printf("%4lu: no answer\n", p->sent);
		socket_leave(p);
	}
	return fflush(stdout) ? fail("output", strerror(errno)) : 0;
}

static int ping_addresses(const char *name, const char *from, struct pings *p)
{
	const char *why = from ? addr_resolve(from, AF_UNSPEC, &p->local) : NULL;
	int err;

	if (why)
		return fail(from, why);
	why = addr_resolve(name, from ? p->local.u.sa.sa_family : AF_UNSPEC, &p->peer);
	if (why)
		return fail(name, why);
	err = from ? 0 : ping_route(&p->peer, &p->local);
	return err ? fail(p->peer.text, strerror(err)) : 0;
}

/* One that ends a ping that is waited for is seen afterwards: within a second. */
static bool signal_comes(const sigset_t *ends, double until)
{
	double left = until - ping_now_ms();
	struct timespec ts = {0};

	left = left > 0 ? left : 0;
	ts.tv_sec = (time_t)(left / 1e3);
	ts.tv_nsec = (long)((left - (double)ts.tv_sec * 1e3) * 1e6);
	return sigtimedwait(ends, NULL, &ts) > 0;
}

int ping_show(const char *name, const char *from, const char *count)
{
	struct pings p = {.fd = -1};
	char *end = NULL;
	unsigned long most = count ? strtoul(count, &end, 10) : 0;
	double next;
	sigset_t ends;
	int status;

	if (count && (*end || *count < '0' || *count > '9' || !most || most > MOST)) {
		fprintf(stderr, WHAT "--count: '%s' is not a number from 1 to %lu\n", count, MOST);
		return EXIT_USAGE;
	}
	status = ping_addresses(name, from, &p);
	if (status)
		return status;
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	do {
		next = ping_now_ms() + INTERVAL_MS;
		status = ping_one(&p);
	} while (!status && p.sent != most && !signal_comes(&ends, next));
	if (p.sent)
		printf("%lu of %lu answered\n", p.answered, p.sent);
	return status ? status : p.answered ? EXIT_SUCCESS : EXIT_FAILURE;
}
