/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * port_again.c - a port is bound again by another process, which then executes another program and
 * keeps the socket.  A sender that has sent to the port's first socket sends to the second one.
 */
#include "program.h"

static struct sockaddr_in at;
static int go[2], ready[2];

static void expect(int fd, const char *what)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char got[16] = "";

	/* the congestion map of a new connection makes a socket readable, too */
	do
		check(poll(&p, 1, TEST_COMES) == 1, "%s does not come", what);
	while (recv(fd, got, sizeof(got) - 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	check(!strcmp(got, what), "%s", got);
}

static void sender(void *arg)
{
	struct sockaddr_in any;
	int fd = bound(&any);
	char c;

	(void)arg;
	hear(go[0], &at, sizeof(at));
	check(sendto(fd, "one", 3, 0, (struct sockaddr *)&at, sizeof(at)) == 3, "sendto");
	hear(go[0], &c, 1);
	check(sendto(fd, "two", 3, 0, (struct sockaddr *)&at, sizeof(at)) == 3, "sendto");
	hear(go[0], &c, 1); /* what it has sent does not depend on its life */
}

/* Binds the port again, and goes on with the socket in another program. */
static void second(void *arg)
{
	char number[16], pipe_to[16], *argv[] = {"port_again", number, pipe_to, NULL};
	int fd;

	(void)arg;
	hear(ready[0], &at, sizeof(at));
	fd = socket(PF_RDS, SOCK_SEQPACKET, 0);
	check(fd >= 0, "socket");
	check(bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "bind");
	snprintf(number, sizeof(number), "%d", fd);
	snprintf(pipe_to, sizeof(pipe_to), "%d", go[1]);
	execv("/proc/self/exe", argv);
	check(0, "execv");
}

int main(int argc, char **argv)
{
	pid_t from, then;
	int fd;

	if (argc == 3) {
		tell(atoi(argv[2]), "g", 1);
		expect(atoi(argv[1]), "two");
		return 0;
	}
	check(pipe(go) == 0 && pipe(ready) == 0, "pipe");
	from = start(sender, NULL);
	then = start(second, NULL);
	fd = bound(&at);
	tell(go[1], &at, sizeof(at));
	expect(fd, "one");
	check(close(fd) == 0, "close");
	tell(ready[1], &at, sizeof(at));
	finished(then);
	tell(go[1], "g", 1);
	finished(from);
	printf("a port's second socket gets what is sent to it\n");
	return 0;
}
