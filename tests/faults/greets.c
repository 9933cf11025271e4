/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * greets.c OWN PEER first|second [rounds] - the answer to a message is not lost, between two hosts.
 *
 * One process on each host.  The first one keeps sending to a port of the other host that no socket
 * has; these messages may be lost.  The second one binds the port, sends a message from it, and
 * waits for the answer.  The first one answers once.  The port exists then, so the answer must
 * arrive, whatever the first host knew of the port before.
 */
#include "faults.h"

#define PORT 22000 /* of both for the whole time; a round's port is that and its number */
#define PATIENCE (10.0 * test_slow())
#define CALL 'x'
#define GREETING 'g'
#define REPLY 'r'

static uint32_t own, peer;
static unsigned rounds = 20;

static void say(int fd, unsigned port, char word)
{
	struct sockaddr_in to = name_of(peer, port);

	check(sendto(fd, &word, 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1);
}

/* The port from which that word has come; 0 after so many seconds. */
static unsigned hears(int fd, char word, double patience)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	double end = seconds() + patience;
	struct sockaddr_in from;
	socklen_t len;
	char said;

	do {
		len = sizeof(from);
		while (recvfrom(fd, &said, 1, MSG_DONTWAIT, (struct sockaddr *)&from, &len) == 1)
			if (said == word)
				return ntohs(from.sin_port);
		poll(&p, 1, 5);
	} while (seconds() < end);
	return 0;
}

static void first(void)
{
	double end = seconds() + PATIENCE * (rounds + 5);
	int fd = rds_bound(own, PORT);
	unsigned i, from;

	for (i = 1; i <= rounds; i++) {
		do {
			if (seconds() > end)
				test_late("a greeting from port %u", PORT + i);
			say(fd, PORT + i, CALL);
			if (i == 1) /* here we are */
				say(fd, PORT, CALL);
			from = hears(fd, GREETING, 0.03);
		} while (from != PORT + i);
		say(fd, from, REPLY);
	}
	hears(fd, GREETING, 2); /* the last one is on its way */
}

static void second(void)
{
	int always = rds_bound(own, PORT), fd;
	unsigned i;

	if (!hears(always, CALL, PATIENCE * 3))
		test_late("a call");
	for (i = 1; i <= rounds; i++) {
		usleep(300000); /* so that it is asked for while it is not there */
		fd = rds_bound(own, PORT + i);
		say(fd, PORT, GREETING);
		if (!hears(fd, REPLY, PATIENCE))
			test_late("a reply to the greeting from port %u", PORT + i);
		close(fd);
	}
	close(always);
}

int main(int argc, char **argv)
{
	if (argc < 4 || inet_pton(AF_INET, argv[1], &own) != 1 || inet_pton(AF_INET, argv[2], &peer) != 1)
		fail("usage: greets OWN PEER first|second [rounds]");
	if (argc > 4)
		rounds = (unsigned)strtoul(argv[4], NULL, 10);
	if (strcmp(argv[3], "first") == 0)
		first();
	else
		second();
	printf("ok %u greetings\n", rounds);
	return 0;
}
