/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * last.c [-n messages] [-S seed] [-r rounds] [-u] - all that a program has sent before it ends
 * still arrives.
 *
 * A child sends and ends at once: by exit; by closing the socket and exit; by returning from main
 * while another thread runs; and, unless -u, by _exit after a first exchange (so that there is a
 * connection).  It sends more than a socket's buffer holds, so the last messages are on the way
 * when the child ends.
 *
 * A plain PF_RDS program.  -u: faults are injected, and _exit may lose messages on the way (as on a
 * network).
 */
#include <pthread.h>
#include <sys/wait.h>

#include "faults.h"

enum ending { EXIT, CLOSE_EXIT, THREAD_EXIT, UNDERSCORE, ENDINGS };
static const char *const names[] = {"exit", "close, exit", "exit beside a thread", "_exit"};

#define PORT 22000
static unsigned messages = 400;
static uint64_t seed = 1;

static void *idle(void *arg)
{
	pause();
	return arg;
}

static void child(enum ending how, unsigned round)
{
	int fd = rds_bound(home(), PORT + 1);
	struct sockaddr_in to = name_of(home(), PORT);
	unsigned char *buf = malloc(MESSAGE_MAX);
	pthread_t t;
	unsigned n;
	char c;

	check(buf);
	if (how == UNDERSCORE) {
		check(sendto(fd, "", 0, 0, (struct sockaddr *)&to, sizeof(to)) == 0);
		check(recv(fd, &c, 1, 0) == 0);
	}
	if (how == THREAD_EXIT)
		check(pthread_create(&t, NULL, idle, NULL) == 0);
	for (n = 0; n < messages; n++) {
		uint64_t key = message_key(seed, how, round, n);
		size_t len = message_len(key);

		message_fill(buf, key, len);
		if (sendto(fd, buf, len, 0, (struct sockaddr *)&to, sizeof(to)) != (ssize_t)len)
			fail("sendto: %s", strerror(errno));
	}
	free(buf);
	if (how == CLOSE_EXIT)
		check(close(fd) == 0);
	if (how == UNDERSCORE)
		_exit(0);
	exit(0);
}

static void receive_all(int fd, enum ending how, unsigned round)
{
	static unsigned char buf[MESSAGE_MAX + 1], want[MESSAGE_MAX];
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	unsigned n;
	ssize_t got;

	if (how == UNDERSCORE) {
		check(recvfrom(fd, buf, 1, 0, (struct sockaddr *)&from, &len) == 0);
		check(sendto(fd, "", 0, 0, (struct sockaddr *)&from, len) == 0);
	}
	for (n = 0; n < messages; n++) {
		uint64_t key = message_key(seed, how, round, n);
		size_t expect = message_len(key);

		got = recv(fd, buf, sizeof(buf), 0);
		if (got < 0)
			fail("%s: only %u of %u messages: %s", names[how], n, messages, strerror(errno));
		message_fill(want, key, expect);
		if ((size_t)got != expect || memcmp(buf, want, expect))
			fail("%s: message %u is wrong", names[how], n);
	}
}

int main(int argc, char **argv)
{
	struct timeval tv = {.tv_sec = TEST_COMES / 1000};
	unsigned rounds = 5, round, how, last = ENDINGS;
	int c, fd, status;
	pid_t pid;

	while ((c = getopt(argc, argv, "n:S:r:u")) != -1) {
		if (c == 'n')
			messages = (unsigned)strtoul(optarg, NULL, 0);
		else if (c == 'S')
			seed = strtoull(optarg, NULL, 0);
		else if (c == 'r')
			rounds = (unsigned)strtoul(optarg, NULL, 0);
		else if (c == 'u')
			last = UNDERSCORE;
		else
			return 2;
	}
	alarm(test_alarm(60));
	fd = rds_bound(home(), PORT);
	check(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
	for (round = 0; round < rounds; round++)
		for (how = 0; how < last; how++) {
			pid = fork();
			check(pid >= 0);
			if (!pid) {
				close(fd);
				child(how, round);
			}
			receive_all(fd, how, round);
			check(waitpid(pid, &status, 0) == pid);
			if (status)
				fail("%s: the child ended with %x", names[how], (unsigned)status);
		}
	printf("ok seed %llu: %u processes ended, %u messages each, %llu disconnects\n", (unsigned long long)seed,
	       rounds * last, messages, (unsigned long long)counter(fd, "conn_reset"));
	return 0;
}
