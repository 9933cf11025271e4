/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * leaves.c [-m messages] [-g generations] [-S seed] [-t seconds] [-p us] [receive OWN | send OWN
 * PEER] - a socket whose owner exits again and again, while messages are on their way to it, loses
 * none of them.
 *
 * A process that has the socket receives some messages, forks, and exits, with more messages in the
 * socket's queue and on the way.  The child takes the socket over and goes on.  A receiver knows
 * which message must be next, its length and every byte.  Only the first process binds, and a child
 * receives only when its parent is dead, so the order among processes is known.  With -p the sender
 * pauses before each message, so that mostly none is on the way.
 *
 * With "receive" or "send" the program is one half, for two hosts; without, both halves run on one
 * host.  A plain PF_RDS program.
 */
#include <getopt.h>
#include <sys/wait.h>

#include "faults.h"

#define PORT 24000
#define LARGEST 8192

static unsigned messages = 3000, generations = 40, limit = 60, pause_us;
static uint64_t seed = 1;

static size_t length_of(uint64_t key)
{
	return 2 + mix(key ^ 2) % (key % 4 ? 256 : LARGEST - 2);
}

static int bound_here(uint32_t addr, unsigned port)
{
	int fd = rds_bound(addr, port), one = 1 << 20;

	check(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &one, sizeof(one)) == 0);
	return fd;
}

/* ---- the receiving half ---- */

/*
 * A message of one byte is repeated until it is answered, since a message to a port that no socket
 * has yet is lost.
 */
static size_t receive_some(int fd, unsigned char *got, unsigned n, struct sockaddr_in *from)
{
	ssize_t r;

	do {
		socklen_t len = sizeof(*from);

		r = recvfrom(fd, got, LARGEST + 1, 0, (struct sockaddr *)from, &len);
		if (r < 0)
			fail("only %u of %u messages: %s", n, messages, strerror(errno));
		if (r == 1)
			check(sendto(fd, got, 1, 0, (struct sockaddr *)from, len) == 1);
	} while (r == 1);
	return (size_t)r;
}

static void receive_one(int fd, unsigned n, struct sockaddr_in *from)
{
	static unsigned char got[LARGEST + 1], want[LARGEST];
	uint64_t key = message_key(seed, 0, 1, n);
	size_t expect = length_of(key), size = receive_some(fd, got, n, from);

	message_fill(want, key, expect);
	if (size != expect || memcmp(got, want, size) != 0) {
		unsigned i;

		for (i = 0; i < messages; i++) {
			key = message_key(seed, 0, 1, i);
			message_fill(want, key, length_of(key));
			if (length_of(key) == size && size > 8 && memcmp(got, want, size) == 0)
				fail("message %u came where %u was due", i, n);
		}
		fail("instead of message %u came %zu bytes", n, size);
	}
}

/*
 * The next process of the chain: begins when this one is dead, by the number that it has said.  How
 * the line is held open: *life.
 */
static bool next_one(int *life, unsigned *n)
{
	int line[2];
	pid_t child;
	char more;

	check(pipe(line) == 0);
	child = fork();
	check(child >= 0);
	if (child) {
		close(line[0]);
		*life = line[1];
		return false;
	}
	alarm(test_alarm(limit));
	close(line[1]);
	if (read(line[0], n, sizeof(*n)) != sizeof(*n))
		exit(1); /* it has said why */
	check(read(line[0], &more, 1) == 0); /* it is dead */
	close(line[0]);
	return true;
}

static void chain(int fd)
{
	struct sockaddr_in from;
	unsigned g = 0, n = 0, mine;
	int life;

	while (g + 1 < generations) {
		if (next_one(&life, &n)) {
			g++;
			continue;
		}
		for (mine = (unsigned)(mix(seed + g) % (2 * messages / generations)); mine && n + 1 < messages; mine--, n++)
			receive_one(fd, n, &from);
		check(write(life, &n, sizeof(n)) == sizeof(n));
		exit(0);
	}
	for (; n < messages; n++)
		receive_one(fd, n, &from);
	check(sendto(fd, "done", 4, 0, (struct sockaddr *)&from, sizeof(from)) == 4);
	exit(0);
}

/* ---- the sending half ---- */

static void meet(int fd, const struct sockaddr_in *to)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char c;

	do {
		check(sendto(fd, "h", 1, 0, (const struct sockaddr *)to, sizeof(*to)) == 1);
		check(poll(&p, 1, 200) >= 0);
	} while (recv(fd, &c, 1, MSG_DONTWAIT) != 1);
}

static void send_all(uint32_t own, uint32_t peer)
{
	static unsigned char buf[LARGEST];
	struct sockaddr_in to = name_of(peer, PORT);
	int fd = bound_here(own, PORT + 1);
	char answer[8];
	unsigned n;
	ssize_t r;

	meet(fd, &to);
	for (n = 0; n < messages; n++) {
		uint64_t key = message_key(seed, 0, 1, n);
		size_t len = length_of(key);

		message_fill(buf, key, len);
		if (pause_us)
			usleep(pause_us);
		while ((r = sendto(fd, buf, len, 0, (struct sockaddr *)&to, sizeof(to))) < 0 && errno == ENOBUFS)
			check(poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 100) >= 0);
		if (r != (ssize_t)len)
			fail("sendto of message %u: %s", n, strerror(errno));
	}
	while ((r = recv(fd, answer, sizeof(answer), 0)) == 1)
		; /* answers to what was said more than once */
	check(r == 4 && memcmp(answer, "done", 4) == 0);
	printf("ok: %u messages to %u processes, one after the other\n", messages, generations);
	exit(0);
}

static uint32_t address(const char *text)
{
	struct in_addr a;

	if (!text || inet_pton(AF_INET, text, &a) != 1)
		fail("%s is no address", text ? text : "nothing");
	return a.s_addr;
}

/* The chain's first process ends early: the sender alone knows how it went. */
static void both(void)
{
	int fd = bound_here(home(), PORT), status;
	pid_t sender;

	sender = fork();
	check(sender >= 0);
	if (!sender) {
		alarm(test_alarm(limit));
		close(fd);
		send_all(home(), home());
	}
	if (!fork()) {
		alarm(test_alarm(limit));
		chain(fd);
	}
	close(fd);
	check(waitpid(sender, &status, 0) == sender);
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

int main(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "m:g:S:t:p:")) != -1) {
		unsigned long v = strtoul(optarg ? optarg : "", NULL, 10);

		switch (c) {
		case 'm': messages = (unsigned)v; break;
		case 'g': generations = (unsigned)v; break;
		case 'S': seed = v; break;
		case 't': limit = (unsigned)v; break;
		case 'p': pause_us = (unsigned)v; break;
		default: fail("usage");
		}
	}
	check(generations > 0 && messages >= generations);
	alarm(test_alarm(limit)); /* a child sets its own */
	if (optind == argc)
		both();
	if (strcmp(argv[optind], "send") == 0)
		send_all(address(argv[optind + 1]), address(argv[optind + 2]));
	if (strcmp(argv[optind], "receive") != 0)
		fail("receive or send?");
	chain(bound_here(address(argv[optind + 1]), PORT));
}
