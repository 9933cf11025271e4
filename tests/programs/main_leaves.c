/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * main_leaves - the main thread leaves by pthread_exit(), other threads go on; with the last of
 * them libc ends the process by exit(0), exit handlers and buffered output included.  A thread of a
 * library must not change that.
 */
#include "program.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/syscall.h>

#define TEXT "said in the end"

enum how { ALONE, WITH_WORKER, WORKER_BINDS, RAW, HOWS };
static const char *const names[HOWS] = {"alone", "with a worker", "a worker binds later", "by the system call"};

static struct sockaddr_in to;

static void say(int fd)
{
	check(sendto(fd, "last", 4, 0, (struct sockaddr *)&to, sizeof(to)) == 4, "send");
	printf(TEXT); /* lies in the buffer */
}

static void at_the_end(void)
{
	printf(", handler ran");
}

static void *worker(void *arg)
{
	struct sockaddr_in me;
	int *fd = arg;

	test_until(test_state(getpid()) == 'Z'); /* the main thread is gone */
	say(fd ? *fd : bound(&me));
	return NULL;
}

static void leave(enum how how)
{
	struct sockaddr_in me;
	static int fd;
	pthread_t t;

	atexit(at_the_end);
	if (how != WORKER_BINDS)
		fd = bound(&me);
	if (how == ALONE)
		say(fd);
	else if (how != RAW)
		check(pthread_create(&t, NULL, worker, how == WITH_WORKER ? &fd : NULL) == 0, "thread");
	if (how == RAW)
		syscall(SYS_exit, 7);
	pthread_exit(NULL);
}

/* Everything that comes until the end of file. */
static void hear_all(int fd, char *text, size_t room)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	size_t len = 0;
	ssize_t n;

	do {
		check(poll(&p, 1, TEST_COMES) == 1, "the process does not end");
		n = read(fd, text + len, room - 1 - len);
		check(n >= 0, "pipe");
		len += (size_t)n;
	} while (n);
	text[len] = 0;
}

static void one(enum how how, int rds)
{
	char text[256];
	int out[2], status;
	pid_t pid;

	fflush(NULL);
	check(pipe(out) == 0, "pipe");
	pid = fork();
	check(pid >= 0, "fork");
	if (pid == 0) {
		close(rds);
		check(dup2(out[1], 1) == 1, "dup2");
		close(out[0]);
		close(out[1]);
		leave(how);
	}
	close(out[1]);
	hear_all(out[0], text, sizeof(text));
	close(out[0]);
	check(waitpid(pid, &status, 0) == pid, "waitpid");
	/*
	 * RAW: which thread's number counts differs between kernels, and so does which thread is
	 * the last.
	 */
	check(WIFEXITED(status) && (how == RAW || WEXITSTATUS(status) == 0), "%s: status %#x", names[how], (unsigned)status);
	if (how == RAW)
		return;
	check(strcmp(text, TEXT ", handler ran") == 0, "%s: it said \"%s\"", names[how], text);
	check(recv(rds, text, sizeof(text), 0) == 4 && memcmp(text, "last", 4) == 0, "%s: its message", names[how]);
}

int main(void)
{
	const char *table = getenv("RDS_PRELOAD_HELPER_FDS");
	bool shared = table && strcmp(table, "shared") == 0;
	int rds = bound(&to);
	unsigned how, ways = 0;

	/*
	 * With a shared table the library cannot see that nobody but itself is left after such an
	 * end.
	 */
	for (how = 0; how < HOWS; how++)
		if (how != RAW || !shared)
			one(how, rds), ways++;
	printf("ends when its last thread does, %u ways\n", ways);
	return 0;
}
