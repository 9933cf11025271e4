/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * drops.c - a service that has bound its port gives up its rights, and goes on; its clients may do
 * so, too.
 *
 * Two processes send to each other; one of them, or both, as another user than at the start.
 *
 * A plain PF_RDS program, for root.
 */
#include <sys/wait.h>

#include "faults.h"

#define PORT 28000
#define NOBODY 65534

static void give_up_rights(bool yes)
{
	check(!yes || (setgid(NOBODY) == 0 && setuid(NOBODY) == 0));
}

static int endpoint(unsigned port)
{
	struct timeval patience = {.tv_sec = TEST_COMES / 1000};
	int fd = rds_bound(home(), port);

	check(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
	return fd;
}

/* Answers once: a peer that connects has been served first by then. */
static void service(int ready, bool drops)
{
	int fd = endpoint(PORT);
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	char c;

	give_up_rights(drops);
	check(write(ready, "", 1) == 1);
	if (recvfrom(fd, &c, 1, 0, (struct sockaddr *)&from, &len) != 1)
		fail("no question: %s", strerror(errno));
	check(sendto(fd, &c, 1, 0, (struct sockaddr *)&from, sizeof(from)) == 1);
	exit(0);
}

static void client(bool drops)
{
	struct sockaddr_in to = name_of(home(), PORT);
	int fd = endpoint(PORT + 1);
	char c = 'x';

	give_up_rights(drops);
	check(sendto(fd, &c, 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1);
	if (recv(fd, &c, 1, 0) != 1)
		fail("no answer: %s", strerror(errno));
	exit(0);
}

static void ended(pid_t pid, const char *who, unsigned round)
{
	int status;

	check(waitpid(pid, &status, 0) == pid);
	if (status)
		fail("the %s ended with status %#x; service %s, client %s", who, (unsigned)status,
		     round & 1 ? "without rights" : "as it was", round & 2 ? "without rights" : "as it was");
}

int main(void)
{
	unsigned round;
	int ready[2];
	char c;

	if (geteuid() != 0) {
		printf("only root has rights to give up\n");
		return 77;
	}
	alarm(test_alarm(60));
	check(pipe(ready) == 0);
	for (round = 0; round < 4; round++) {
		pid_t serves, asks;

		serves = fork();
		check(serves >= 0);
		if (!serves)
			service(ready[1], round & 1);
		check(read(ready[0], &c, 1) == 1);
		asks = fork();
		check(asks >= 0);
		if (!asks)
			client(round & 2);
		ended(asks, "client", round);
		ended(serves, "service", round);
	}
	printf("ok: %u rounds\n", round);
	return 0;
}
