/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * deafened.c - siw loses its listeners, and messages come through all the same.
 *
 * TCP connections come to the port of the process that is to receive, and end at once, until nobody
 * listens there any more (engine/transport/verbs/cm/listen_lost.c says why).  Then a process that
 * does not know the other one asks for a connection.  To be run where nothing else listens on TCP.
 * The kernel's siw is damaged afterwards: nothing else should be tested on that kernel.
 */
#include <sys/wait.h>

#include "faults.h"

#define PORT 23000
#define PATIENCE (30.0 * test_slow())
#define PORTS 8

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
			test_late("the loss of port %u", port);
	} while (has(&h, port));
}

struct member {
	pid_t pid;
	int fd;
};

static struct member begins(unsigned port, void (*act)(int fd))
{
	struct member m;
	int pair[2], fd;
	char word;

	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	m.fd = pair[0];
	m.pid = fork();
	check(m.pid >= 0);
	if (m.pid == 0) {
		close(pair[0]);
		fd = rds_bound(home(), port);
		check(write(pair[1], "", 1) == 1);
		act(fd);
		check(read(pair[1], &word, 1) == 0); /* it is waited for */
		_exit(0);
	}
	close(pair[1]);
	check(read(m.fd, &word, 1) == 1);
	return m;
}

static void ends(struct member m)
{
	int status;

	close(m.fd);
	check(waitpid(m.pid, &status, 0) == m.pid && status == 0);
}

static void nothing(int fd)
{
	(void)fd;
}

static void answer(int fd)
{
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	char word;

	check(recvfrom(fd, &word, 1, 0, (struct sockaddr *)&from, &len) == 1);
	check(sendto(fd, &word, 1, 0, (struct sockaddr *)&from, len) == 1);
}

int main(void)
{
	struct sockaddr_in to = name_of(home(), PORT);
	struct pollfd p = {.events = POLLIN};
	struct member holder, receiver;
	struct heard before, after;
	unsigned i;
	char word;

	/* Has the node's port.  It answers there for itself, and names others to those that ask. */
	holder = begins(PORT + 1, nothing);
	before = who_listens();
	receiver = begins(PORT, answer);
	after = who_listens();
	for (i = 0; i < after.n && has(&before, after.port[i]); i++)
		;
	if (i == after.n)
		fail("its listener is not TCP's");
	deafen(after.port[i]);
	p.fd = rds_bound(home(), PORT + 2);
	check(sendto(p.fd, "w", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1);
	if (poll(&p, 1, (int)(PATIENCE * 1000)) != 1 || recv(p.fd, &word, 1, 0) != 1)
		test_late("an answer");
	ends(receiver);
	ends(holder);
	printf("ok\n");
	return 0;
}
