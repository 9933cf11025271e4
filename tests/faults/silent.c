/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * silent.c OWN PEER [seconds] - a peer that has become unreachable is noticed, although no process
 * sends anything to it.
 *
 * One process on each of two hosts.  They exchange a message each, and then send nothing.  They
 * print "idle", and the caller cuts the network.  Both have to notice ("noticed") that the
 * connection has ended; how soon is not judged.  What they send then arrives when the network is
 * back.
 */
#include "faults.h"

#define PORT 23000
#define HELLO 'h'
#define AGAIN 'a'
/* acknowledgements that wait for company go meanwhile: nothing of ours is left to be sent */
#define SETTLES 2.0

static uint32_t own, peer;
static unsigned limit = 100;
static int fd;
static char last; /* what has come */

static void say(char word)
{
	struct sockaddr_in to = name_of(peer, PORT);

	check(sendto(fd, &word, 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1);
}

static bool hears(char word, double patience)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	double end = seconds() + patience;

	do {
		while (last != word && recv(fd, &last, 1, MSG_DONTWAIT) == 1)
			;
		if (last == word)
			return true;
		poll(&p, 1, 20);
	} while (seconds() < end);
	return false;
}

static void print(const char *what)
{
	puts(what);
	fflush(stdout);
}

/* Nothing on the way to the counters goes to the other host. */
static void until_it_breaks(uint64_t before)
{
	double end = seconds() + limit;

	while (counter(fd, "conn_reset") == before) {
		if (seconds() > end)
			test_late("after %u s the connection is up as before", limit);
		usleep(50000);
	}
}

int main(int argc, char **argv)
{
	double begun = seconds();
	uint64_t before;

	if (argc < 3 || inet_pton(AF_INET, argv[1], &own) != 1 || inet_pton(AF_INET, argv[2], &peer) != 1)
		fail("usage: silent OWN PEER [seconds]");
	if (argc > 3)
		limit = (unsigned)strtoul(argv[3], NULL, 10);
	limit *= test_slow();
	fd = rds_bound(own, PORT);
	do { /* a message to a port that no socket has yet is lost */
		if (seconds() > begun + limit)
			test_late("the other one");
		say(HELLO);
	} while (!hears(HELLO, 0.5));
	say(HELLO); /* it has heard the first one only if it was there already */
	last = 0;
	hears(AGAIN, SETTLES);
	before = counter(fd, "conn_reset");
	print("idle");
	until_it_breaks(before);
	print("noticed");
	say(AGAIN);
	if (!hears(AGAIN, limit))
		test_late("a second message");
	printf("ok %.1f s\n", seconds() - begun);
	return 0;
}
