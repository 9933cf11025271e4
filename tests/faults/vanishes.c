/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * vanishes.c OWN PEER second | vanishes.c OWN PEER first LOG [seconds] - a host vanishes for good,
 * and processes that have sent to it go on with others.
 *
 * The second process receives until its host is switched off; the caller does that when the first
 * one has printed "met".  On the first host the sender's queue fills with messages that no process
 * receives any more, and its neighbour, another process of that host, is as before.  What must
 * hold:
 *
 *   - the sender gets the kernel's results: EAGAIN, not writable, ETIMEDOUT after SO_SNDTIMEO; and
 *     it never waits longer;
 *   - its full socket receives, and another socket of the same process sends and receives, all the
 *     time;
 *   - the log (LOG is RDS_PRELOAD_LOG_FILE) says that there is no connection to PEER;
 *   - RDS_CANCEL_SENT_TO frees all of the send buffer, each time, for messages to any peer;
 *   - nothing holds up the sender's end.
 *
 * A plain PF_RDS program.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "faults.h"

/* of the second; on the first host the full socket, the other one, and the neighbour follow */
#define PORT 26000
#define CANCEL_SENT_TO 1
#define LEN 4096
#define SNDBUF_BYTES MESSAGE_MAX /* the default */
#define STUCK_MS 5000		 /* no room for so long: nobody makes any */
#define END_MS 5000		 /* well below the time for which an end may wait for messages */

static uint32_t own, peer;
static unsigned limit = 120;
static const char *log_name;
static double *ended; /* shared: when the sender had done everything */
static int full, other;
static unsigned char buf[MESSAGE_MAX];

static bool send_len(int fd, uint32_t addr, unsigned port, size_t len, int flags)
{
	struct sockaddr_in to = name_of(addr, port);
	ssize_t n = sendto(fd, buf, len, flags, (struct sockaddr *)&to, sizeof(to));

	check(n < 0 || (size_t)n == len);
	return n >= 0;
}

static bool readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	double end = seconds() + ms / 1000.0;
	int left = ms;

	/* It may also be a congestion map that has come. */
	do {
		poll(&p, 1, left);
		if (recv(fd, buf, 0, MSG_PEEK | MSG_DONTWAIT) >= 0)
			return true;
		check(errno == EAGAIN);
		left = (int)((end - seconds()) * 1000);
	} while (left > 0);
	return false;
}

/* ---- the others ---- */

/* Sends back the first byte of each message. */
static void echo(uint32_t addr, unsigned port)
{
	int fd = rds_bound(addr, port);
	struct sockaddr_in from;
	socklen_t len;
	ssize_t n;

	for (;;) {
		len = sizeof(from);
		n = recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len);
		check(n >= 0);
		check(sendto(fd, buf, n > 0, 0, (struct sockaddr *)&from, len) == (n > 0));
	}
}

static void asks(int fd, size_t len)
{
	check(send_len(fd, own, PORT + 3, len, 0));
	if (!readable(fd, TEST_COMES))
		test_late("the neighbour's answer");
	check(recv(fd, buf, sizeof(buf), MSG_DONTWAIT) == 1);
}

/* ---- the sender ---- */

static void meet(void)
{
	double end = seconds() + limit;

	do {
		if (seconds() > end)
			test_late("the other one");
		check(send_len(full, peer, PORT, 1, 0));
	} while (!readable(full, 500));
	while (readable(full, 2000)) /* the answers to the others */
		check(recv(full, buf, sizeof(buf), MSG_DONTWAIT) == 1);
	asks(full, 1);
	asks(other, 1);
	puts("met");
	fflush(stdout);
}

/* Until there has been no room for a while; how many bytes it took at last. */
static size_t fill(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	double end = seconds() + limit;
	size_t taken = 0;

	for (;;) {
		if (seconds() > end)
			test_late("the host's end: it is taken again and again");
		if (send_len(fd, peer, PORT, LEN, MSG_DONTWAIT)) {
			taken += LEN;
			continue;
		}
		check(errno == EAGAIN || errno == ENOBUFS);
		if (errno == ENOBUFS) {
			usleep(10000); /* its host is still there, and slow */
			continue;
		}
		while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) >= 0)
			; /* what it has answered */
		if (poll(&p, 1, STUCK_MS) == 0)
			return taken;
	}
}

static void waits_no_longer_than_it_wants(void)
{
	struct timeval t = {.tv_sec = 1};
	double begun = seconds();

	check(setsockopt(full, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t)) == 0);
	check(!send_len(full, peer, PORT, LEN, 0) && errno == ETIMEDOUT);
	check(seconds() - begun >= 1);
	if (seconds() - begun > 1 + test_bound_ms(END_MS) / 1000.0)
		test_late("a send of at most 1 s took %.1f s", seconds() - begun);
	check(!send_len(full, own, PORT + 3, 1, MSG_DONTWAIT) &&
	      errno == EAGAIN); /* one room for all, as in the kernel */
}

static bool log_says(void)
{
	char line[1024], want[100], a[INET_ADDRSTRLEN];
	FILE *f = fopen(log_name, "r");
	bool found = false;

	if (!f)
		return false;
	snprintf(want, sizeof(want), "no connection to %s for", inet_ntop(AF_INET, &peer, a, sizeof(a)));
	while (!found && fgets(line, sizeof(line), f))
		found = strstr(line, want);
	fclose(f);
	return found;
}

/* Everything else goes on meanwhile. */
static void until_the_log_says(void)
{
	double begun = seconds();
	struct sockaddr_in to = name_of(own, PORT + 1);

	while (!log_says()) {
		if (seconds() > begun + limit)
			test_late("after %u s the log has no line about it", limit);
		asks(other, LEN);
		/* it has room, so it is taken */
		check(send_len(other, peer, PORT, 1, MSG_DONTWAIT));
		check(sendto(other, buf, 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1);
		check(readable(full, TEST_COMES) && recv(full, buf, sizeof(buf), MSG_DONTWAIT) == 1);
		usleep(100000);
	}
	printf("the log said so after %.1f s\n", seconds() - begun);
}

static void cancel(int fd)
{
	struct sockaddr_in to = name_of(peer, PORT);

	check(setsockopt(fd, SOL_RDS, CANCEL_SENT_TO, &to, sizeof(to)) == 0);
}

static void room_comes_back(void)
{
	struct pollfd p = {.fd = full, .events = POLLOUT};
	size_t again;

	cancel(full);
	check(poll(&p, 1, TEST_COMES) == 1 && (p.revents & POLLOUT));
	asks(full, MESSAGE_MAX);
	again = fill(full);
	if (again < SNDBUF_BYTES)
		fail("after RDS_CANCEL_SENT_TO there was room for %zu bytes", again);
	cancel(full);
	asks(full, MESSAGE_MAX);
	cancel(other);
}

static void sender(void)
{
	full = rds_bound(own, PORT + 1);
	other = rds_bound(own, PORT + 2);
	meet();
	fill(full);
	waits_no_longer_than_it_wants();
	until_the_log_says();
	room_comes_back();
	*ended = seconds();
	exit(0);
}

static pid_t start(void (*what)(void))
{
	pid_t pid = fork();

	check(pid >= 0);
	if (!pid) {
		check(!prctl(PR_SET_PDEATHSIG, SIGKILL));
		what();
	}
	return pid;
}

static void neighbour(void)
{
	echo(own, PORT + 3);
}

static void first(void)
{
	double begun = seconds();
	pid_t pid, beside;
	int status;

	ended = mmap(NULL, sizeof(*ended), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(ended != MAP_FAILED);
	beside = start(neighbour);
	pid = start(sender);
	check(waitpid(pid, &status, 0) == pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_LATE)
		test_late("the sender");
	if (status)
		fail("the sender: status %x", (unsigned)status);
	if (seconds() - *ended > test_bound_ms(END_MS) / 1000.0)
		test_late("its end took %.1f s", seconds() - *ended);
	check(waitpid(beside, &status, WNOHANG) == 0);
	kill(beside, SIGKILL);
	printf("ok %.1f s\n", seconds() - begun);
}

int main(int argc, char **argv)
{
	if (argc < 4 || inet_pton(AF_INET, argv[1], &own) != 1 || inet_pton(AF_INET, argv[2], &peer) != 1)
		fail("usage: vanishes OWN PEER second | vanishes OWN PEER first LOG [seconds]");
	if (strcmp(argv[3], "second") == 0)
		echo(own, PORT);
	check(argc > 4);
	log_name = argv[4];
	if (argc > 5)
		limit = (unsigned)strtoul(argv[5], NULL, 10);
	limit *= test_slow();
	first();
	return 0;
}
