/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_outlived - a socket is closed and another one bound to its port, while the connection of
 * a sender to the first is still being made, or before any process has looked at what it brought.
 * Nothing of that comes out of the second socket.  (The kernel's, too, may wait for a connection.)
 */
#include "program.h"

#define ROUNDS 20
#define EACH 5

/* Each sender is new, and so is its connection. */
static void sends(int go, int sent, const struct sockaddr_in *to)
{
	struct sockaddr_in at;
	int i, fd;
	char c;

	hear(go, &c, 1);
	fd = bound(&at);
	for (i = 0; i < EACH; i++)
		check(sendto(fd, "old", 3, 0, (const struct sockaddr *)to, sizeof(*to)) == 3, "sendto");
	tell(sent, "", 1);
	exit(0);
}

static int one_round(const struct sockaddr_in *to)
{
	int go[2], sent[2], fd, came = 0;
	pid_t pid;
	char c;

	check(pipe(go) == 0 && pipe(sent) == 0, "pipe");
	pid = fork();
	check(pid >= 0, "fork");
	if (!pid)
		sends(go[0], sent[1], to);
	fd = rebind(to);
	tell(go[1], "", 1);
	hear(sent[0], &c, 1);
	close(fd);
	fd = rebind(to);
	finished(pid); /* at exit what waits is handed over */
	poll(NULL, 0, 2);
	while (recv(fd, &c, 1, MSG_DONTWAIT) >= 0)
		came++;
	check(errno == EAGAIN, "recv");
	close(fd);
	close(go[0]), close(go[1]), close(sent[0]), close(sent[1]);
	return came;
}

int main(void)
{
	struct sockaddr_in to;
	int i, came = 0;

	close(bound(&to));
	for (i = 0; i < ROUNDS; i++)
		came += one_round(&to);
	check(!came, "%d of %d messages to the sockets before", came, ROUNDS * EACH);
	printf("%d messages to sockets that are gone\n", ROUNDS * EACH);
	return 0;
}
