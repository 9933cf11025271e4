/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * crossing.c [-r rounds] [-S seed] - two processes connect to each other at the same moment, and
 * one of them ends at once.
 *
 * Both processes are new in every round, so both have to connect.  The moments of their first
 * messages are random, so the requests cross in every order.  The messages of the process that ends
 * must arrive at the other one, in order.  A plain PF_RDS program.
 */
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "faults.h"

#define PORT 24000
#define SPREAD 300 /* us */

struct round {
	unsigned ports, first_wait, second_wait, messages;
	_Atomic unsigned *ready;
};

static void together(const struct round *r, unsigned wait_us)
{
	double until;

	(*r->ready)++;
	while (*r->ready < 2)
		sched_yield();
	for (until = seconds() + wait_us * 1e-6; seconds() < until;)
		;
}

static void say(int fd, unsigned port, unsigned n)
{
	struct sockaddr_in to = name_of(home(), port);

	check(sendto(fd, &n, sizeof(n), 0, (struct sockaddr *)&to, sizeof(to)) == sizeof(n));
}

static void leaver(const struct round *r)
{
	int fd = rds_bound(home(), r->ports);
	unsigned i;

	together(r, r->first_wait);
	for (i = 0; i < r->messages; i++)
		say(fd, r->ports + 1, i);
	_exit(0);
}

static void stayer(const struct round *r)
{
	int fd = rds_bound(home(), r->ports + 1);
	struct timeval tv = {.tv_sec = TEST_COMES / 1000};
	unsigned i, n;

	check(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
	together(r, r->second_wait);
	say(fd, r->ports, 0);
	for (i = 0; i < r->messages; i++) {
		if (recv(fd, &n, sizeof(n), 0) != sizeof(n))
			fail("only %u of %u messages: %s", i, r->messages, strerror(errno));
		check(n == i);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	void (*const roles[2])(const struct round *) = {leaver, stayer};
	unsigned rounds = 2000, i, who;
	struct round r = {0};
	uint64_t seed = 1;
	int c, status;

	while ((c = getopt(argc, argv, "r:S:")) != -1) {
		if (c == 'r')
			rounds = (unsigned)strtoul(optarg, NULL, 0);
		else if (c == 'S')
			seed = strtoull(optarg, NULL, 0);
		else
			return 2;
	}
	alarm(test_alarm(120));
	r.ready = mmap(NULL, sizeof(*r.ready), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(r.ready != MAP_FAILED);
	for (i = 0; i < rounds; i++) {
		r.ports = PORT + 2 * (i % 1000);
		seed = mix(seed);
		r.first_wait = (unsigned)(seed % SPREAD);
		r.second_wait = seed >> 32 & 1 ? SPREAD / 2 : 0;
		r.messages = 1 + (unsigned)(seed >> 40) % 3;
		*r.ready = 0;
		for (who = 0; who < 2; who++) {
			pid_t pid = fork();

			check(pid >= 0);
			if (!pid)
				roles[who](&r);
		}
		for (who = 0; who < 2; who++)
			if (wait(&status) < 0 || status)
				fail("round %u: a process ended with %x", i, (unsigned)status);
	}
	printf("ok: %u pairs met, nothing was lost\n", rounds);
	return 0;
}
