/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * hold.c - an address of this host is bound, and held (hold.h).
 *
 * It is an RDS program like any other.  It knows no more of the library than the manual says, and that
 * the process which has an address listens at its TCP port.
 */
#include "rdsrun/hold.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rds_abi.h"

#define WHAT "rdsrun: --hold: "
#define ROLE_LOOKS 100 /* for the port, each of them after */
#define ROLE_PAUSE_MS 20

/* ---- the TCP port of a local address ---- */

int hold_tcp_socket(const struct addr *a)
{
	int fd = socket(a->u.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;

	if (fd >= 0 && a->u.sa.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	return fd;
}

/* Does anybody listen there?  Only a listener keeps the port from one with SO_REUSEADDR. */
static bool port_is_taken(const struct addr *local)
{
	struct addr at = *local;
	int fd = hold_tcp_socket(local), one = 1;
	bool taken;

	if (fd < 0)
		return false;
	addr_set_port(&at, RDS_TCP_PORT);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	taken = bind(fd, &at.u.sa, at.len) < 0 && errno == EADDRINUSE;
	close(fd);
	return taken;
}

static bool fd_listens(int fd, const struct addr *local)
{
	struct addr at = {.len = sizeof(at.u)};
	socklen_t size = sizeof(int);
	int listens;

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0 || !listens ||
	    getsockname(fd, &at.u.sa, &at.len) < 0)
		return false;
	if (at.u.sa.sa_family != AF_INET && at.u.sa.sa_family != AF_INET6)
		return false;
	/* the port has the same place in both */
	return at.u.in.sin_port == htons(RDS_TCP_PORT) && addr_compare(&at, local) == 0;
}

/* Does the library of this process? */
static bool port_is_ours(const struct addr *local)
{
	DIR *fds = opendir("/proc/self/fd");
	struct dirent *d;
	bool ours = false;

	while (fds && !ours && (d = readdir(fds)))
		ours = d->d_name[0] != '.' && fd_listens(atoi(d->d_name), local);
	if (fds)
		closedir(fds);
	return ours;
}

unsigned char *hold_info(int fd, int option, size_t *n, int *each)
{
	socklen_t len = 0, room;
	unsigned char *buf = NULL;

	*each = getsockopt(fd, SOL_RDS, option, NULL, &len);
	while (*each < 0 && errno == ENOSPC) {
		free(buf);
		room = len;
		buf = malloc(room);
		if (!buf)
			return NULL;
		*each = getsockopt(fd, SOL_RDS, option, buf, &len);
	}
	if (*each > 0 && buf) {
		*n = len / (size_t)*each;
		return buf;
	}
	free(buf);
	return NULL;
}

/* Has another process of this node a socket there?  One is our own. */
static bool addr_is_shared(int fd, const struct addr *local)
{
	size_t n, i, bound = 0;
	int each;
	unsigned char *recs = hold_info(fd, RDS6_INFO_SOCKETS, &n, &each);
	struct in6_addr ip = addr_ip(local);

	for (i = 0; recs && i < n; i++)
		bound += !memcmp(recs + i * (size_t)each + offsetof(struct rds6_info_socket, bound_addr), &ip,
				 sizeof(ip));
	free(recs);
	return bound > 1;
}

enum hold_role hold_role(int fd, const struct addr *local)
{
	const struct timespec pause = {.tv_nsec = ROLE_PAUSE_MS * 1000000l};

	for (unsigned i = 0; i < ROLE_LOOKS; i++) {
		if (port_is_ours(local))
			return HOLD_OWNER;
		if (port_is_taken(local) && addr_is_shared(fd, local))
			return HOLD_MEMBER;
		nanosleep(&pause, NULL);
	}
	return HOLD_NONE;
}

void hold_explain(FILE *out, const char *what, const struct addr *local)
{
	fputs(what, out);
	if (!port_is_taken(local))
		fprintf(out, "TCP port %u of %s is not opened (RDS_PRELOAD_TRANSPORT=%s)\n", RDS_TCP_PORT, local->text,
			getenv("RDS_PRELOAD_TRANSPORT"));
	else if (access("/sys/module/rds_tcp", F_OK) == 0)
		fprintf(out, "TCP port %u of %s is taken, by this kernel's RDS: rmmod rds_tcp\n", RDS_TCP_PORT,
			local->text);
	else
		fprintf(out,
			"TCP port %u of %s is taken, by a process of another user or with another registry, or by "
			"what is not RDS: ss -ltnp sport = :%u\n",
			RDS_TCP_PORT, local->text, RDS_TCP_PORT);
}

int hold_bind(FILE *out, const char *what, const struct addr *local)
{
	int fd;

	if (addr_is_loopback(local)) {
		fprintf(out, "%s%s is a loopback address: no other host reaches it\n", what, local->text);
		return -1;
	}
	fd = socket(PF_RDS, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		fprintf(out, "%sno RDS socket: %s\n", what, strerror(errno));
		return -1;
	}
	if (bind(fd, &local->u.sa, local->len) == 0)
		return fd;
	if (errno == EADDRNOTAVAIL)
		fprintf(out, "%s%s is no address of this host\n", what, local->text);
	else
		fprintf(out, "%s%s: bind: %s\n", what, local->text, strerror(errno));
	close(fd);
	return -1;
}

/* ---- hold ---- */

/*
 * The signals that are to end this process; they are blocked, in the library's threads too.  One that
 * is ignored, as by nohup, stays so.
 */
static void signals_block(sigset_t *set)
{
	static const int ends[] = {SIGTERM, SIGINT, SIGHUP};
	struct sigaction old;

	sigemptyset(set);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (sigaction(ends[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaddset(set, ends[i]);
	sigprocmask(SIG_BLOCK, set, NULL);
}

/* The socket stays open.  False: said why not. */
static bool hold_one(const char *name, struct addr *at, enum hold_role *role)
{
	const char *why = addr_resolve(name, AF_UNSPEC, at);
	int fd;

	if (why) {
		fprintf(stderr, WHAT "%s: %s\n", name, why);
		return false;
	}
	fd = hold_bind(stderr, WHAT, at);
	if (fd < 0)
		return false;
	*role = hold_role(fd, at);
	if (*role == HOLD_NONE)
		hold_explain(stderr, WHAT, at);
	return *role != HOLD_NONE;
}

/*
 * It ends as a program does that returns from main(), not by the signal: the library hands over what
 * other processes have given it to forward.
 */
int hold_addresses(char *const names[])
{
	char line[4096];
	struct addr at;
	enum hold_role role;
	sigset_t ends;
	size_t n = 0;
	int sig;

	signals_block(&ends);
	for (size_t i = 0; names[i]; i++) {
		if (!hold_one(names[i], &at, &role))
			return EXIT_FAILURE;
		if (n < sizeof(line))
			n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%s%s", i ? ", " : "", at.text,
					      role == HOLD_MEMBER ? " (after the process that has it now)" : "");
	}
	fprintf(stderr, "rdsrun: holds %s: until SIGTERM or SIGINT\n", line);
	while (sigwait(&ends, &sig) != 0)
		;
	return EXIT_SUCCESS;
}
