/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * heartbeat - as Linux-HA heartbeat's rds module: two daemons send each other a sign of life every
 * few milliseconds, by sendto(MSG_DONTWAIT) on a blocking socket, and never wait for anything.  A
 * read with nothing there is EAGAIN; no beat is lost, doubled or out of order; sends to a peer that
 * has ended neither block nor fail.
 */
#include "program.h"

#include <time.h>

#define BEATS 300
#define AFTER 50

struct beat {
	unsigned number;
	char text[124];
};

static int to_child[2], to_parent[2];

static void pause_ms(long ms)
{
	struct timespec t = {0, ms * 1000000};

	nanosleep(&t, NULL);
}

static void send_beat(int fd, const struct sockaddr_in *peer, unsigned number)
{
	struct beat b = {.number = number};
	ssize_t n;

	snprintf(b.text, sizeof(b.text), "beat %u", number);
	n = sendto(fd, &b, sizeof(b), MSG_DONTWAIT, (const struct sockaddr *)peer, sizeof(*peer));
	check(n == sizeof(b), "beat %u", number);
}

static unsigned read_beats(int fd, const struct sockaddr_in *peer, unsigned next)
{
	for (;;) {
		struct sockaddr_in from;
		socklen_t len = sizeof(from);
		struct beat b;
		char text[32];
		ssize_t n = recvfrom(fd, &b, sizeof(b), MSG_DONTWAIT, (struct sockaddr *)&from, &len);

		if (n < 0) {
			check(errno == EAGAIN, "an empty socket");
			return next;
		}
		snprintf(text, sizeof(text), "beat %u", next);
		check(n == sizeof(b) && b.number == next, "beat %u instead of %u", b.number, next);
		check(strcmp(b.text, text) == 0, "content of beat %u", next);
		check(from.sin_port == peer->sin_port, "a stranger's beat");
		next++;
	}
}

static void live(int fd, const struct sockaddr_in *peer)
{
	unsigned sent = 0, seen = 0, idle = 0;

	while (sent < BEATS || seen < BEATS) {
		unsigned before = seen;

		if (sent < BEATS) {
			send_beat(fd, peer, sent++);
			pause_ms(2);
		} else { /* a beat that never comes is a hang */
			test_pause(&idle);
		}
		seen = read_beats(fd, peer, seen);
		if (seen != before)
			idle = 0;
	}
	check(seen == BEATS, "%u beats", seen);
}

static void child(void *arg)
{
	struct sockaddr_in me, peer;
	int fd = bound(&me);

	(void)arg;
	tell(to_parent[1], &me, sizeof(me));
	hear(to_child[0], &peer, sizeof(peer));
	live(fd, &peer);
}

int main(void)
{
	struct sockaddr_in me, peer;
	struct pollfd p;
	unsigned i;
	pid_t pid;
	int fd;

	check(pipe(to_child) == 0 && pipe(to_parent) == 0, "pipe");
	pid = start(child, NULL);
	fd = bound(&me);
	check(read_beats(fd, &me, 0) == 0, "a message before anybody sent");
	tell(to_child[1], &me, sizeof(me));
	hear(to_parent[0], &peer, sizeof(peer));
	live(fd, &peer);
	finished(pid);
	for (i = 0; i < AFTER; i++)
		send_beat(fd, &peer, i); /* nobody is there: accepted and dropped */
	p = (struct pollfd){.fd = fd, .events = POLLIN};
	poll(&p, 1, 50); /* may say POLLIN for an old congestion update: reading tells */
	check(read_beats(fd, &peer, BEATS) == BEATS, "somebody answered for the dead");
	close(fd);
	printf("%d beats each way, %d to nobody\n", BEATS, AFTER);
	return 0;
}
