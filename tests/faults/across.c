/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * across.c OWN PEER [messages] [seconds] [gate] - no message is lost, doubled or reordered between
 * two hosts.
 *
 * One process on each host; OWN and PEER are its own address and the other one's.  Each process has
 * four sockets.  Every socket sends so many messages, in turn to the sockets of the other side,
 * while it receives.  A receiver can compute which message must come next from a sender, its length
 * and every byte.  Nothing but the messages joins the two sides.
 *
 * With a gate (faults.h, a file of this host) the messages of this side go in parts. "met" is
 * printed when both sides are there.
 */
#include "faults.h"

#define SOCKS 4
/* and the following ones; the port before is for what the two say before and after */
#define PORT 21000
#define HELLO 1
#define BYE 2

static uint32_t own, peer;
static unsigned messages = 200, limit = 120;
static const char *gate;
static int fds[SOCKS], talk;
static unsigned sent[SOCKS], received[SOCKS], next_from[SOCKS][SOCKS]; /* [of ours][of theirs] */
static unsigned char out[MESSAGE_MAX], want[MESSAGE_MAX], got[MESSAGE_MAX];

/* The number of a socket among those of both hosts. */
static unsigned number(uint32_t addr, unsigned i)
{
	return ntohl(addr) * SOCKS + i;
}

static uint64_t key_of(uint32_t from_addr, unsigned from, unsigned to, unsigned n)
{
	return message_key(1, number(from_addr, from) & 0xffff, to, n);
}

static bool hears(char word, double patience)
{
	struct pollfd p = {.fd = talk, .events = POLLIN};
	double end = seconds() + patience;
	char said;

	do {
		while (recv(talk, &said, 1, MSG_DONTWAIT) == 1)
			if (said == word)
				return true;
		poll(&p, 1, 20);
	} while (seconds() < end);
	return false;
}

static void say(char word)
{
	struct sockaddr_in to = name_of(peer, PORT - 1);
	ssize_t n = sendto(talk, &word, 1, 0, (struct sockaddr *)&to, sizeof(to));

	check(n == 1);
}

/*
 * A message to a port that no socket has yet is lost.  So all sockets are bound first, and each
 * side repeats its greeting until the other answers.
 */
static void meet(double end)
{
	do {
		if (seconds() > end)
			test_late("the other one");
		say(HELLO);
	} while (!hears(HELLO, 0.5));
	say(HELLO); /* it has heard the first one only if it was there already */
}

static void send_one(unsigned i)
{
	unsigned to = sent[i] % SOCKS;
	uint64_t key = key_of(own, i, to, sent[i] / SOCKS);
	struct sockaddr_in at = name_of(peer, PORT + to);
	size_t len = message_len(key);
	ssize_t n;

	message_fill(out, key, len);
	n = sendto(fds[i], out, len, MSG_DONTWAIT, (struct sockaddr *)&at, sizeof(at));
	if (n < 0) {
		check(errno == EAGAIN || errno == ENOBUFS);
		usleep(1000); /* congested: poll() says writable all the same */
		return;
	}
	check((size_t)n == len);
	sent[i]++;
}

/* From which byte on: a whole message in another's place, or one that is damaged? */
static void differs(unsigned from, unsigned to, size_t len)
{
	size_t at = 0, end = len;

	while (got[at] == want[at])
		at++;
	while (got[end - 1] == want[end - 1])
		end--;
	fail("from %u to %u: not message %u of %zu bytes: %zu to %zu differ", from, to, next_from[to][from], len, at,
	     end - 1);
}

static bool receive_one(unsigned i)
{
	struct sockaddr_in from;
	socklen_t namelen = sizeof(from);
	ssize_t n = recvfrom(fds[i], got, sizeof(got), MSG_DONTWAIT, (struct sockaddr *)&from, &namelen);
	uint64_t key;
	unsigned who;

	if (n < 0) {
		check(errno == EAGAIN);
		return false;
	}
	who = ntohs(from.sin_port) - PORT;
	check(from.sin_addr.s_addr == peer && who < SOCKS);
	key = key_of(peer, who, i, next_from[i][who]);
	if ((size_t)n != message_len(key))
		fail("from %u to %u: %zd bytes instead of message %u", who, i, n, next_from[i][who]);
	message_fill(want, key, (size_t)n);
	if (memcmp(got, want, (size_t)n) != 0)
		differs(who, i, (size_t)n);
	next_from[i][who]++;
	received[i]++;
	return true;
}

/* One round; false when all is sent and received. */
static bool round_of_all(void)
{
	unsigned i, may = gate_allows(gate, messages);
	struct pollfd p[SOCKS];
	bool more = false;

	for (i = 0; i < SOCKS; i++) {
		p[i] = (struct pollfd){.fd = fds[i], .events = POLLIN | (sent[i] < may ? POLLOUT : 0)};
		more |= sent[i] < messages || received[i] < messages;
	}
	if (!more)
		return false;
	check(poll(p, SOCKS, 100) >= 0);
	for (i = 0; i < SOCKS; i++) {
		while (receive_one(i))
			continue;
		if (sent[i] < may && (p[i].revents & POLLOUT))
			send_one(i);
	}
	return true;
}

static void nothing_more(void)
{
	unsigned i;

	say(BYE);
	if (!hears(BYE, limit))
		test_late("a good-bye");
	usleep(200000); /* a copy of something would be there now */
	for (i = 0; i < SOCKS; i++)
		check(!receive_one(i));
}

static void incomplete(void)
{
	unsigned i;

	for (i = 0; i < SOCKS; i++)
		fprintf(stderr, "socket %u: %u sent, %u received of %u\n", i, sent[i], received[i], messages);
	test_late("no end after %u s, %u disconnects", limit, (unsigned)counter(talk, "conn_reset"));
}

int main(int argc, char **argv)
{
	double begin = seconds();
	unsigned i;

	if (argc < 3 || inet_pton(AF_INET, argv[1], &own) != 1 || inet_pton(AF_INET, argv[2], &peer) != 1)
		fail("usage: across OWN PEER [messages] [seconds] [gate]");
	if (argc > 3)
		messages = (unsigned)strtoul(argv[3], NULL, 10) / SOCKS * SOCKS;
	if (argc > 4)
		limit = (unsigned)strtoul(argv[4], NULL, 10);
	limit *= test_slow();
	if (argc > 5)
		gate = argv[5];
	for (i = 0; i < SOCKS; i++)
		fds[i] = rds_bound(own, PORT + i);
	talk = rds_bound(own, PORT - 1);
	meet(begin + limit);
	puts("met");
	fflush(stdout);
	while (round_of_all())
		if (seconds() > begin + limit)
			incomplete();
	nothing_more();
	printf("ok %u messages each way, %u disconnects, %.1f s\n", messages * SOCKS,
	       (unsigned)counter(talk, "conn_reset"), seconds() - begin);
	return 0;
}
