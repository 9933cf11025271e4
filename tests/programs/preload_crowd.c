/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_crowd - many processes send some messages to one, and end at once, by _exit() as the
 * children of Python's multiprocessing, or by exit().  They all end before there is a connection,
 * and wait for the same receiver, to which they must leave the processor.  All messages arrive,
 * once and in order.
 */
#include "program.h"

enum { PROCESSES = 400, EACH = 40, BYTES = 2000 };

struct said {
	int process, number;
	char more[BYTES - 2 * sizeof(int)];
};

static void say(int process, const struct sockaddr_in *to)
{
	struct said said = {.process = process};
	struct sockaddr_in me;
	int fd = bound(&me);

	for (said.number = 0; said.number < EACH; said.number++)
		check(sendto(fd, &said, sizeof(said), 0, (const struct sockaddr *)to, sizeof(*to)) == sizeof(said),
		      "sendto");
	if (process % 8 == 7)
		exit(0);
	_exit(0);
}

/* It has no socket itself, so that its children begin as programs do. */
static void spawn(void *pipe_end)
{
	struct sockaddr_in to;
	int i;

	check(read(*(int *)pipe_end, &to, sizeof(to)) == sizeof(to), "the address");
	for (i = 0; i < PROCESSES; i++) {
		pid_t pid = fork();

		check(pid >= 0, "fork");
		if (pid == 0)
			say(i, &to);
	}
	for (i = 0; i < PROCESSES; i++) {
		int status;

		check(wait(&status) > 0 && status == 0, "a sender ended with status %#x", (unsigned)status);
	}
}

int main(void)
{
	static int next[PROCESSES];
	struct sockaddr_in me;
	struct said said;
	int go[2], fd, i;
	pid_t spawner;

	check(pipe(go) == 0, "pipe");
	spawner = start(spawn, &go[0]);
	fd = bound(&me);
	check(write(go[1], &me, sizeof(me)) == sizeof(me), "the address");
	for (i = 0; i < PROCESSES * EACH; i++) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		check(poll(&p, 1, TEST_COMES) == 1, "message %d of %d does not come", i, PROCESSES * EACH);
		check(recv(fd, &said, sizeof(said), 0) == sizeof(said), "recv");
		check(said.process >= 0 && said.process < PROCESSES && next[said.process] == said.number,
		      "process %d: message %d", said.process, said.number);
		next[said.process]++;
	}
	finished(spawner);
	printf("%d messages of %d processes that are gone\n", i, PROCESSES);
	return 0;
}
