/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * crowd - many processes that each may have few descriptors, all of which talk to all others at
 * once over one non-blocking socket each, as the processes of a cluster's database do.  Every
 * message arrives once, whole, and in the order of its sender.
 */
#include "program.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { PROCESSES = 24, EACH = 20, WORDS = 64, DESCRIPTORS = 256 };

struct note {
	unsigned from, to, number;
	unsigned fill[WORDS]; /* of which the first `number` are sent */
};

struct party {
	int fd;
	unsigned me;
	unsigned sent[PROCESSES], seen[PROCESSES];
	unsigned unsent, unseen;
	unsigned next; /* whose turn it is */
};

static struct sockaddr_in *names; /* of all, in memory that they share */
static int bound_all[2], begin[2];

static unsigned filling(const struct note *n, unsigned i)
{
	return n->from << 20 ^ n->to << 10 ^ n->number ^ i << 25;
}

static size_t size_of(const struct note *n)
{
	return offsetof(struct note, fill) + n->number * sizeof(n->fill[0]);
}

/* False: the socket has no room now. */
static int send_to(struct party *p, unsigned to)
{
	struct note n = {.from = p->me, .to = to, .number = p->sent[to]};
	ssize_t len;
	unsigned i;

	for (i = 0; i < n.number; i++)
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
	for (; p->unsent; p->next = (p->next + 1) % PROCESSES)
		if (p->next != p->me && p->sent[p->next] < EACH && !send_to(p, p->next))
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
	check(len >= (ssize_t)offsetof(struct note, fill) && n.from < PROCESSES && n.from != p->me && n.to == p->me,
	      "%zd bytes from %u to %u", len, n.from, n.to);
	check(from.sin_port == names[n.from].sin_port, "%u has another port", n.from);
	check(n.number == p->seen[n.from], "message %u of %u instead of %u", n.number, n.from, p->seen[n.from]);
	check(len == (ssize_t)size_of(&n), "message %u of %u has %zd bytes", n.number, n.from, len);
	for (i = 0; i < n.number; i++)
		check(n.fill[i] == filling(&n, i), "word %u of message %u of %u", i, n.number, n.from);
	p->seen[n.from]++;
	p->unseen--;
	return 1;
}

static void talk(void *arg)
{
	const struct rlimit few = {DESCRIPTORS, DESCRIPTORS};
	struct party p = {.me = *(unsigned *)arg, .unsent = (PROCESSES - 1) * EACH, .unseen = (PROCESSES - 1) * EACH};
	struct pollfd event;
	char c;

	alarm(test_alarm(60));
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

int main(void)
{
	unsigned numbers[PROCESSES], i;
	pid_t pids[PROCESSES];
	char c;

	names = mmap(NULL, PROCESSES * sizeof(*names), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(names != MAP_FAILED, "mmap");
	check(pipe(bound_all) == 0 && pipe(begin) == 0, "pipe");
	for (i = 0; i < PROCESSES; i++) {
		numbers[i] = i;
		pids[i] = start(talk, &numbers[i]);
	}
	for (i = 0; i < PROCESSES; i++)
		hear(bound_all[0], &c, 1);
	close(begin[1]); /* all begin */
	for (i = 0; i < PROCESSES; i++)
		finished(pids[i]);
	printf("%d processes, %d messages each to each other\n", PROCESSES, EACH);
	return 0;
}
