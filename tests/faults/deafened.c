/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * deafened.c - siw loses its listeners, and messages come through all the same.
 *
 * Where nothing else listens on TCP: to the port of the process that is to receive come TCP connections that end at once, until nobody listens there
 * any more (engine/transport/verbs/ear.c says why).  Then a process that knows nothing of the other asks for a connection.  The kernel is not
 * quite sound afterwards: nothing else should be tested on it.
 */
#include <sys/wait.h>

#include "faults.h"

#define PORT 23000
#define PATIENCE (30.0 * test_slow())
#define PORTS 8
#define RENDEZVOUS 18635

struct heard {
	unsigned n, port[PORTS];
};

static struct heard who_listens(void)
{
	struct heard h = {0};
	FILE *f = fopen("/proc/net/tcp", "r");
	unsigned port, state;
	char line[256];

	check(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, " %*d: %*8x:%4x %*8x:%*4x %2x", &port, &state) == 2 && state == 0x0a && h.n < PORTS)
			h.port[h.n++] = port;
	fclose(f);
	return h;
}

static bool has(const struct heard *h, unsigned port)
{
	for (unsigned i = 0; i < h->n; i++)
		if (h->port[i] == port)
			return true;
	return false;
}

static void deafen(unsigned port)
{
	struct sockaddr_in to = name_of(home(), port);
	struct linger at_once = {.l_onoff = 1};
	double end = seconds() + PATIENCE;
	struct heard h;
	int fd;

	do {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		check(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
		check(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 || errno == ECONNREFUSED);
		close(fd);
		h = who_listens();
		if (seconds() > end)
			fail("port %u is not lost: nothing is tested", port);
	} while (has(&h, port));
}

static void answer(int ready)
{
	int fd = rds_bound(home(), PORT);
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	char word;

	check(write(ready, "", 1) == 1);
	check(recvfrom(fd, &word, 1, 0, (struct sockaddr *)&from, &len) == 1);
	check(sendto(fd, &word, 1, 0, (struct sockaddr *)&from, len) == 1);
	check(read(ready, &word, 1) == 0); /* it is waited for */
	_exit(0);
}

int main(void)
{
	struct sockaddr_in to = name_of(home(), PORT);
	struct pollfd p = {.events = POLLIN};
	struct heard before;
	int ready[2];
	char word;
	pid_t pid;

	check(socketpair(AF_UNIX, SOCK_STREAM, 0, ready) == 0);
	pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		close(ready[0]);
		answer(ready[1]);
	}
	close(ready[1]);
	check(read(ready[0], &word, 1) == 1);
	before = who_listens();
	if (before.n != 2 || !has(&before, RENDEZVOUS))
		fail("%u ports: those of siw are not these", before.n);
	deafen(before.port[before.port[0] == RENDEZVOUS]);
	p.fd = rds_bound(home(), PORT + 1);
	check(sendto(p.fd, "w", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1);
	if (poll(&p, 1, (int)(PATIENCE * 1000)) != 1 || recv(p.fd, &word, 1, 0) != 1)
		test_late("an answer");
	close(ready[0]);
	check(waitpid(pid, NULL, 0) == pid);
	printf("ok\n");
	return 0;
}
