/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * reach.c all|alone - which processes can be reached, by RDS_PRELOAD_TRANSPORT?
 *
 * Messages to a socket of this process always arrive.  Messages to another process arrive (all), or
 * wait (alone: loop): the send succeeds, as in the kernel when a host cannot be reached, and no
 * process gets the message.
 *
 * A plain PF_RDS program.
 */
#include <signal.h>
#include <sys/wait.h>

#include "faults.h"

#define PORT 27000

/* sent: at its end when the message to this process has been sent, and a later one has arrived */
static void other(int ready, int sent, bool all)
{
	int fd = rds_bound(htonl(INADDR_LOOPBACK), PORT + 2);
	struct timeval t = {.tv_usec = 200000};
	char c;

	check(write(ready, "", 1) == 1);
	if (all) {
		check(recv(fd, &c, 1, 0) == 1 && c == 'o');
		_exit(0);
	}
	check(read(sent, &c, 1) == 0);
	check(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)) == 0);
	check(recv(fd, &c, 1, 0) == -1 && errno == ETIMEDOUT);
	_exit(0);
}

static void to(int fd, unsigned port, char c)
{
	struct sockaddr_in sin = name_of(htonl(INADDR_LOOPBACK), port);

	check(sendto(fd, &c, 1, 0, (struct sockaddr *)&sin, sizeof(sin)) == 1);
}

int main(int argc, char **argv)
{
	bool all = argc == 2 && strcmp(argv[1], "all") == 0;
	int a, b, ready[2], sent[2], status;
	pid_t pid;
	char c;

	alarm(test_alarm(60));
	check(pipe(ready) == 0 && pipe(sent) == 0);
	pid = fork();
	check(pid >= 0);
	if (!pid) {
		alarm(test_alarm(60));
		close(sent[1]);
		other(ready[1], sent[0], all);
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		return 1; /* it has said why */
	a = rds_bound(htonl(INADDR_LOOPBACK), PORT);
	b = rds_bound(htonl(INADDR_LOOPBACK), PORT + 1);
	to(a, PORT + 1, 'b');
	check(recv(b, &c, 1, 0) == 1 && c == 'b');
	to(a, PORT + 2, 'o');
	to(a, PORT + 1, 'c');
	check(recv(b, &c, 1, 0) == 1 && c == 'c');
	close(sent[1]);
	check(waitpid(pid, &status, 0) == pid && status == 0);
	printf("ok: %s\n", all ? "this process and another one" : "this process alone");
	return 0;
}
