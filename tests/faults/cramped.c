/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cramped.c files|space KIB - one of two processes has little room for what both share: no file of
 * more than so many KiB, or so much address space when it is bound.  Messages of all lengths arrive
 * whole and in order, both ways, one by one and many at a time, whichever of the two connects.
 *
 * Where the limit is too low to bind a socket that is EFBIG.
 *
 * A plain PF_RDS program.
 */
#include <sys/resource.h>
#include <sys/wait.h>

#include "faults.h"

#define PORT 29100
#define LARGEST (1u << 20)
#define MANY 60
#define WRONG_ERRNO 125

static const size_t lens[] = {0, 1, 64, 4096, 16384, 16385, 32768, 65535, 65536, 131072, LARGEST - 1, LARGEST};
#define LENS (sizeof(lens) / sizeof(lens[0]))

static unsigned char buf[LARGEST], want[LARGEST];
static size_t most; /* that the sockets send */

struct side {
	int fd;
	struct sockaddr_in to;
	unsigned mine, theirs; /* numbers of the sides */
	unsigned sent, got;
};

static size_t length_of(uint64_t key, unsigned n)
{
	size_t len = n < LENS ? lens[n] : message_len(key);

	return len < most ? len : most;
}

static bool put(struct side *s, int flags)
{
	uint64_t key = message_key(1, s->mine, s->theirs, s->sent);
	size_t len = length_of(key, s->sent);

	message_fill(buf, key, len);
	if (sendto(s->fd, buf, len, flags, (struct sockaddr *)&s->to, sizeof(s->to)) == (ssize_t)len) {
		s->sent++;
		return true;
	}
	if (errno != EAGAIN && errno != ENOBUFS)
		fail("message %u of %zu bytes: %s", s->sent, len, strerror(errno));
	return false;
}

static bool get(struct side *s, int flags)
{
	uint64_t key = message_key(1, s->theirs, s->mine, s->got);
	size_t len = length_of(key, s->got);
	ssize_t n = recv(s->fd, buf, sizeof(buf), flags);

	if (n < 0 && errno == EAGAIN)
		return false;
	message_fill(want, key, len);
	if (n != (ssize_t)len || memcmp(buf, want, len))
		fail("message %u: %zd bytes instead of %zu, or others: %s", s->got, n, len,
		     n < 0 ? strerror(errno) : "");
	s->got++;
	return true;
}

static void talk(struct side *s, bool first)
{
	unsigned i;

	for (i = 0; i < LENS; i++) {
		if (first)
			put(s, 0);
		get(s, 0);
		if (!first)
			put(s, 0);
	}
	while (s->sent < LENS + MANY || s->got < LENS + MANY) {
		struct pollfd p = {.fd = s->fd, .events = POLLIN};

		if (s->sent < LENS + MANY)
			p.events |= POLLOUT;
		check(poll(&p, 1, TEST_COMES) == 1);
		if (s->sent < LENS + MANY)
			put(s, MSG_DONTWAIT);
		get(s, MSG_DONTWAIT);
	}
}

static size_t address_space(void)
{
	unsigned long pages;
	FILE *f = fopen("/proc/self/statm", "r");

	check(f && fscanf(f, "%lu", &pages) == 1);
	fclose(f);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void limit(__rlimit_resource_t what, size_t bytes)
{
	check(setrlimit(what, &(struct rlimit){bytes, bytes}) == 0);
}

static int bound(unsigned port)
{
	struct sockaddr_in sin = name_of(home(), port);
	int fd = socket(PF_RDS, SOCK_SEQPACKET, 0), bytes = 4 * LARGEST;
	socklen_t len = sizeof(bytes);

	if (fd < 0 || bind(fd, (struct sockaddr *)&sin, sizeof(sin))) {
		fprintf(stderr, "no socket: %s\n", strerror(errno));
		_exit(errno == EFBIG ? 1 : WRONG_ERRNO);
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes));
	check(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &len) == 0);
	most = (size_t)bytes / 2 < LARGEST ? (size_t)bytes / 2 : LARGEST;
	return fd;
}

static void cramped(const char *what, size_t bytes, struct side *s, unsigned port, int ready, bool first)
{
	if (!strcmp(what, "files"))
		limit(RLIMIT_FSIZE, bytes);
	s->fd = bound(port);
	if (!strcmp(what, "space"))
		limit(RLIMIT_AS, address_space() + bytes);
	check(write(ready, "", 1) == 1);
	talk(s, first);
	exit(0);
}

/* Waits for a process that has begun, and has said so; else ends as that one has. */
static void begun(pid_t pid, int ready)
{
	int status;
	char c;

	if (read(ready, &c, 1) == 1)
		return;
	check(waitpid(pid, &status, 0) == pid);
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : WRONG_ERRNO);
}

int main(int argc, char **argv)
{
	size_t bytes = argc == 3 ? strtoul(argv[2], NULL, 0) << 10 : 0;
	struct side roomy = {.mine = 0, .theirs = 1}, poor = {.mine = 1, .theirs = 0};
	unsigned first;
	int status;

	check(argc == 3);
	alarm(test_alarm(60));
	roomy.fd = bound(PORT);
	poor.to = name_of(home(), PORT);
	for (first = 0; first < 2; first++) {
		int ready[2];
		pid_t pid;

		check(pipe(ready) == 0);
		pid = fork();
		check(pid >= 0);
		if (!pid) {
			alarm(test_alarm(60));
			close(roomy.fd);
			cramped(argv[1], bytes, &poor, PORT + 1 + first, ready[1], first);
		}
		close(ready[1]);
		begun(pid, ready[0]);
		close(ready[0]);
		roomy.to = name_of(home(), PORT + 1 + first);
		roomy.sent = roomy.got = 0;
		talk(&roomy, !first);
		check(waitpid(pid, &status, 0) == pid);
		if (status)
			fail("the process with little room ended with %#x", (unsigned)status);
	}
	printf("ok: %u messages each way, the longest of %zu bytes\n", 2 * (unsigned)(LENS + MANY), most);
	return 0;
}
