/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_address - a program with little address space (ulimit -v): a call is refused with an
 * errno, or a message waits until there is more, and the library has a line that says why.  With
 * enough of it all works.
 */
#include "program.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>

/* In units of a quarter of a MiB: what there is besides what the program has at first. */
static const int more[] = {0, 1, 2, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 128, 256};
#define UNIT (256 << 10)
#define MORES (int)(sizeof(more) / sizeof(more[0]))
#define LOOK_MS 50

static int port[2];

static void limit(unsigned long bytes)
{
	FILE *f = fopen("/proc/self/statm", "r");
	struct rlimit rl;
	unsigned long pages;
	int n = f ? fscanf(f, "%lu", &pages) : 0;

	check(n == 1, "statm");
	fclose(f);
	check(getrlimit(RLIMIT_AS, &rl) == 0, "getrlimit");
	rl.rlim_cur = pages * (unsigned long)sysconf(_SC_PAGESIZE) + bytes;
	check(setrlimit(RLIMIT_AS, &rl) == 0, "setrlimit");
}

/* Has as much as it wants. */
static void answers(void *arg)
{
	struct sockaddr_in at, from;
	socklen_t len = sizeof(from);
	char c;
	int fd = bound(&at);

	(void)arg;
	tell(port[1], &at, sizeof(at));
	check(recvfrom(fd, &c, 1, 0, (struct sockaddr *)&from, &len) == 1, "recvfrom");
	check(sendto(fd, &c, 1, 0, (struct sockaddr *)&from, len) == 1, "the answer");
	pause();
}

/* On kernel RDS nobody does. */
static bool has_said(int fd)
{
	char text[4096] = "";

	return pread(fd, text, sizeof(text) - 1, 0) > 0 && strstr(text, "rdspreload[");
}

/* NULL: none.  Else which call was refused. */
static const char *refused(int *fd, const struct sockaddr_in *to)
{
	struct sockaddr_in at = loopback(0);

	*fd = socket(PF_RDS, SOCK_SEQPACKET, 0);
	if (*fd < 0)
		return "socket";
	if (bind(*fd, (struct sockaddr *)&at, sizeof(at)))
		return "bind";
	return sendto(*fd, "!", 1, 0, (const struct sockaddr *)to, sizeof(*to)) == 1 ? NULL : "sendto";
}

enum { WORKED = 10, REFUSED, WAITED, ENDS }; /* exit status */

static int with_little(int units)
{
	const char *preload = getenv("LD_PRELOAD"), *which;
	int said = open("/tmp", O_TMPFILE | O_RDWR, 0600), console = dup(2), err;
	struct pollfd p = {.events = POLLIN};
	struct sockaddr_in to;
	bool waited = false;
	char c;

	hear(port[0], &to, sizeof(to));
	check(said >= 0 && console >= 0 && dup2(said, 2) == 2, "the log");
	limit((unsigned long)units * UNIT);
	which = refused(&p.fd, &to);
	err = errno;
	while (!which && !waited && poll(&p, 1, LOOK_MS) == 0)
		waited = has_said(said);
	limit(1ul << 30);
	dup2(console, 2);
	errno = err;
	if (which) {
		check(err == ENOMEM || err == EAGAIN, "%s with %d units", which, units);
		check(!preload || has_said(said), "%s with %d units: no line", which, units);
		return REFUSED;
	}
	check(poll(&p, 1, TEST_COMES) == 1 && recv(p.fd, &c, 1, 0) == 1 && c == '!', "recv");
	return waited ? WAITED : WORKED;
}

static void little(void *arg)
{
	exit(with_little(*(int *)arg));
}

int main(void)
{
	unsigned n[ENDS] = {0};
	int status = 0;

	for (int i = 0; i < MORES; i++) {
		check(pipe(port) == 0, "pipe");
		pid_t peer = start(answers, NULL), pid = start(little, (void *)&more[i]);

		check(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "status %#x", (unsigned)status);
		check(WEXITSTATUS(status) >= WORKED && WEXITSTATUS(status) < ENDS, "with %d units", more[i]);
		n[WEXITSTATUS(status)]++;
		kill(peer, SIGKILL);
		waitpid(peer, NULL, 0);
		close(port[0]);
		close(port[1]);
	}
	check(WEXITSTATUS(status) == WORKED, "even the most was not enough");
	printf("%u refused, %u waited, %u worked\n", n[REFUSED], n[WAITED], n[WORKED]);
	return 0;
}
