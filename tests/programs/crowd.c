/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * crowd - many processes that each may have few descriptors, all of which talk to all others at
 * once over one non-blocking socket each, as the processes of a cluster's database do.  Every
 * message arrives once, whole, and in the order of its sender.
 *
 * Then the same with so few descriptors that each process has some for a third of the others only,
 * while further processes that send to all of them are killed or stopped.
 */
#include "program.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { MOST = 1000, WORDS = 64 };

/* crowd [PROCESSES [MESSAGES [DESCRIPTORS [SECONDS]]]] */
static unsigned processes = 24, each = 20, numbers_most = 256, limit = 60;

struct note {
	unsigned from, to, number;
	unsigned fill[WORDS]; /* of which the first `number` are sent (of 65 each time) */
};

struct party {
	int fd;
	unsigned me;
	unsigned sent[MOST], seen[MOST];
	unsigned unsent, unseen;
	unsigned next; /* whose turn it is */
};

enum { VICTIMS = 6 };

static struct sockaddr_in *names; /* of all, in memory that they share */
static int bound_all[2], begin[2];

static unsigned filling(const struct note *n, unsigned i)
{
	return n->from << 20 ^ n->to << 10 ^ n->number ^ i << 25;
}

static size_t size_of(const struct note *n)
{
	return offsetof(struct note, fill) + n->number % (WORDS + 1) * sizeof(n->fill[0]);
}

/* False: the socket has no room now. */
static int send_to(struct party *p, unsigned to)
{
	struct note n = {.from = p->me, .to = to, .number = p->sent[to]};
	ssize_t len;
	unsigned i;

	for (i = 0; i < n.number % (WORDS + 1); i++)
		n.fill[i] = filling(&n, i);
	len = sendto(p->fd, &n, size_of(&n), 0, (struct sockaddr *)&names[to], sizeof(names[to]));
	if (len < 0 && (errno == EAGAIN || errno == ENOBUFS))
		return 0;
	check(len == (ssize_t)size_of(&n), "sendto: %zd", len);
	p->sent[to]++;
	p->unsent--;
	return 1;
}

static void send_all(struct party *p)
{
	for (; p->unsent; p->next = (p->next + 1) % processes)
		if (p->next != p->me && p->sent[p->next] < each && !send_to(p, p->next))
			return;
}

static int receive(struct party *p)
{
	struct sockaddr_in from;
	socklen_t fromlen = sizeof(from);
	struct note n;
	unsigned i;
	ssize_t len = recvfrom(p->fd, &n, sizeof(n), 0, (struct sockaddr *)&from, &fromlen);

	if (len < 0) {
		check(errno == EAGAIN, "recvfrom");
		return 0;
	}
	if (len == 1) /* of a victim */
		return 1;
	check(len >= (ssize_t)offsetof(struct note, fill) && n.from < processes && n.from != p->me && n.to == p->me,
	      "%zd bytes from %u to %u", len, n.from, n.to);
	check(from.sin_port == names[n.from].sin_port, "%u has another port", n.from);
	check(n.number == p->seen[n.from], "message %u of %u instead of %u", n.number, n.from, p->seen[n.from]);
	check(len == (ssize_t)size_of(&n), "message %u of %u has %zd bytes", n.number, n.from, len);
	for (i = 0; i < n.number % (WORDS + 1); i++)
		check(n.fill[i] == filling(&n, i), "word %u of message %u of %u", i, n.number, n.from);
	p->seen[n.from]++;
	p->unseen--;
	return 1;
}

static void talk(void *arg)
{
	const struct rlimit few = {numbers_most, numbers_most};
	struct party p = {.me = *(unsigned *)arg, .unsent = (processes - 1) * each, .unseen = (processes - 1) * each};
	struct pollfd event;
	char c;

	alarm(test_alarm(limit));
	check(setrlimit(RLIMIT_NOFILE, &few) == 0, "setrlimit");
	p.fd = bound(&names[p.me]);
	check(fcntl(p.fd, F_SETFL, O_NONBLOCK) == 0, "O_NONBLOCK");
	p.next = p.me;
	close(begin[1]);
	tell(bound_all[1], "", 1);
	check(read(begin[0], &c, 1) == 0, "the beginning");
	while (p.unsent || p.unseen) {
		event = (struct pollfd){.fd = p.fd, .events = POLLIN | (p.unsent ? POLLOUT : 0)};
		check(poll(&event, 1, TEST_COMES) == 1, "%u are missing and %u unsent", p.unseen, p.unsent);
		while (receive(&p))
			;
		send_all(&p);
	}
	close(p.fd);
}

/* Sends to all others until it is killed. */
static void harass(void *arg)
{
	struct sockaddr_in any = loopback(0);
	int fd = bound(&any);
	unsigned to;
	char c;

	(void)arg;
	check(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "O_NONBLOCK");
	close(begin[1]);
	tell(bound_all[1], "", 1);
	check(read(begin[0], &c, 1) == 0, "the beginning");
	for (to = 0;; to = (to + 1) % processes) {
		sendto(fd, "", 1, 0, (struct sockaddr *)&names[to], sizeof(names[to]));
		usleep(1000);
	}
}

static void kill_or_stop(const pid_t victims[VICTIMS])
{
	unsigned i;

	for (i = 0; i < VICTIMS; i++) {
		usleep(7000);
		check(kill(victims[i], i & 1 ? SIGSTOP : SIGKILL) == 0, "kill");
	}
}

static void crowd(unsigned nvictims)
{
	unsigned numbers[MOST], i;
	pid_t pids[MOST], victims[VICTIMS];
	char c;

	check(pipe(bound_all) == 0 && pipe(begin) == 0, "pipe");
	for (i = 0; i < processes; i++) {
		numbers[i] = i;
		pids[i] = start(talk, &numbers[i]);
	}
	for (i = 0; i < nvictims; i++)
		victims[i] = start(harass, NULL);
	for (i = 0; i < processes + nvictims; i++)
		hear(bound_all[0], &c, 1);
	close(begin[1]); /* all begin */
	if (nvictims)
		kill_or_stop(victims);
	for (i = 0; i < processes; i++)
		finished(pids[i]);
	for (i = 0; i < nvictims; i++) {
		kill(victims[i], SIGKILL);
		check(waitpid(victims[i], NULL, 0) == victims[i], "waitpid");
	}
	close(begin[0]);
	close(bound_all[0]);
	close(bound_all[1]);
	printf("%u processes, %u messages each to each other, %u descriptors\n", processes, each, numbers_most);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		processes = (unsigned)atoi(argv[1]);
	if (argc > 2)
		each = (unsigned)atoi(argv[2]);
	if (argc > 3)
		numbers_most = (unsigned)atoi(argv[3]);
	if (argc > 4)
		limit = (unsigned)atoi(argv[4]);
	check(processes > 1 && processes <= MOST, "processes");
	names = mmap(NULL, processes * sizeof(*names), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(names != MAP_FAILED, "mmap");
	crowd(0);
	if (argc > 1)
		return 0;
	numbers_most = 64;
	crowd(VICTIMS);
	return 0;
}
