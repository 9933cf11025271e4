/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * trip.c rds|tcp ask|answer OWN PEER - round trips of 64 bytes between two hosts, in blocking calls.
 *
 * "ask" prints what one takes, in microseconds: the median of batches.
 */
#include <netinet/tcp.h>

#include "../faults/faults.h"

#define PORT 26000
#define SIZE 64
#define BATCH 50
#define BATCHES 100

static int fd;
static struct sockaddr_in to;
static bool rds;

static void say(const char *data, size_t len)
{
	check(sendto(fd, data, len, 0, rds ? (struct sockaddr *)&to : NULL, rds ? sizeof(to) : 0) == (ssize_t)len);
}

static void hear(char *data, size_t len)
{
	check(recv(fd, data, len, rds ? 0 : MSG_WAITALL) == (ssize_t)len);
}

static void join(bool asks, uint32_t own)
{
	struct sockaddr_in at = name_of(own, PORT);
	int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);

	check(s >= 0);
	if (asks) {
		test_until(connect(s, (struct sockaddr *)&to, sizeof(to)) == 0);
		fd = s;
	} else {
		check(!setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
		check(!bind(s, (struct sockaddr *)&at, sizeof(at)) && !listen(s, 1));
		fd = accept(s, NULL, NULL);
		check(fd >= 0);
	}
	check(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
}

/* A message to a port that is not bound yet is lost. */
static void meet(void)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char data[SIZE] = "met";

	do
		say(data, SIZE);
	while (poll(&p, 1, 500) == 0);
	usleep(500000); /* every answer */
	while (recv(fd, data, SIZE, MSG_DONTWAIT) > 0)
		;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void ask(void)
{
	double took[BATCHES], begin;
	char data[SIZE] = "";
	unsigned i, k;

	if (rds)
		meet();
	for (i = 0; i < 2 * BATCHES; i++) { /* the first half is to warm up */
		begin = seconds();
		for (k = 0; k < BATCH; k++) {
			say(data, SIZE);
			hear(data, SIZE);
		}
		took[i % BATCHES] = (seconds() - begin) * 1e6 / BATCH;
	}
	say("", 1);
	qsort(took, BATCHES, sizeof(took[0]), by_size);
	printf("%.1f\n", took[BATCHES / 2]);
}

static void answer(void)
{
	char data[SIZE];
	ssize_t n;

	while ((n = recv(fd, data, SIZE, rds ? 0 : MSG_WAITALL)) == SIZE)
		say(data, SIZE);
	check(n == 1);
}

int main(int argc, char **argv)
{
	uint32_t own, peer;
	bool asks;

	if (argc != 5 || inet_pton(AF_INET, argv[3], &own) != 1 || inet_pton(AF_INET, argv[4], &peer) != 1)
		fail("usage: trip rds|tcp ask|answer OWN PEER");
	rds = strcmp(argv[1], "rds") == 0;
	asks = strcmp(argv[2], "ask") == 0;
	to = name_of(peer, PORT);
	if (rds)
		fd = rds_bound(own, PORT);
	else
		join(asks, own);
	asks ? ask() : answer();
	return 0;
}
