/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Two processes, forked before anything is opened, exchange messages. */
#include "rdsconf.h"

#include <signal.h>
#include <sys/wait.h>

#define PARENT 4150
#define CHILD 4151

static char data[100000], got[100000];

static long to_port(int fd, unsigned port, const void *what, size_t len)
{
	struct name to = name_here(port);

	return sendto(fd, what, len, 0, &to.sa, to.len);
}

/* The child sends back what it gets, until it gets "exit" or "kill me". */
static void child(int ready)
{
	struct name from;
	int fd = rds_bound_to(CHILD);
	long r;

	if (write(ready, "r", 1) != 1)
		_exit(1);
	for (;;) {
		from.len = sizeof(from.ss);
		r = recvfrom(fd, got, sizeof(got), 0, &from.sa, &from.len);
		if (r < 0)
			_exit(2);
		if (r == 4 && !memcmp(got, "exit", 4))
			_exit(7);
		if (r == 5 && !memcmp(got, "sleep", 5))
			pause();
		if (sendto(fd, got, r, 0, &from.sa, from.len) != r)
			_exit(3);
	}
}

static pid_t start(void)
{
	int ready[2];
	char byte;
	pid_t pid;

	if (pipe(ready))
		conf_die("pipe");
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		conf_die("fork");
	if (!pid) {
		alarm(test_alarm(60));
		close(ready[0]);
		child(ready[1]);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		conf_die("the child is not ready");
	close(ready[0]);
	return pid;
}

static void echo(int fd, size_t len)
{
	struct name from = { .len = sizeof(from.ss) };
	size_t i;
	long r;

	for (i = 0; i < len; i++)
		data[i] = i * 31 + len;
	memset(got, 0, sizeof(got));
	check(text("send-%zu", len), text("%zu", len), "%s", rc(to_port(fd, CHILD, data, len)));
	r = recvfrom(fd, got, sizeof(got), 0, &from.sa, &from.len);
	check(text("echo-%zu", len), NULL, "%s same %d %s", rc(r), !memcmp(data, got, len), who(&from));
}

static void order(int fd)
{
	int i, value = 0, wrong = 0;

	for (i = 0; i < 200; i++)
		to_port(fd, CHILD, &i, sizeof(i));
	for (i = 0; i < 200; i++)
		wrong += recv(fd, &value, sizeof(value), 0) != sizeof(value) || value != i;
	check("200-in-order", "wrong 0", "wrong %d", wrong);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 0, 1, 48, 4096, 4097, 65536, 100000 };
	int fd, status = 0;
	unsigned i;
	pid_t pid;
	long r;

	conf_begin(argc, argv);
	pid = start();
	fd = rds_bound_to(PARENT);
	timeouts(fd, SO_RCVTIMEO, TEST_COMES);
	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		echo(fd, sizes[i]);
	order(fd);
	check("child-sleeps", "1", "%d", process_asleep(pid));
	to_port(fd, CHILD, "exit", 4);
	waitpid(pid, &status, 0);
	check("child-exits", "7", "%d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	check("to-gone-process", "4", "%s", rc(to_port(fd, CHILD, "gone", 4)));
	close(fd);

	/* The same again, the child is killed while messages lie in its queue. */
	pid = start();
	fd = rds_bound_to(PARENT);
	timeouts(fd, SO_RCVTIMEO, TEST_COMES);
	echo(fd, 10);
	to_port(fd, CHILD, "sleep", 5);
	to_port(fd, CHILD, "unread", 6);
	check("child-pauses", "1", "%d", process_asleep(pid));
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	check("child-killed", "9", "%d", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
	check("to-killed-process", "4", "%s", rc(to_port(fd, CHILD, "gone", 4)));
	close(fd);
	pid = start();
	fd = rds_bound_to(PARENT);
	timeouts(fd, SO_RCVTIMEO, TEST_COMES);
	echo(fd, 20);
	r = recv(fd, got, sizeof(got), MSG_DONTWAIT);
	check("nothing-else", "-1 EAGAIN", "%s", rc(r));
	to_port(fd, CHILD, "exit", 4);
	waitpid(pid, &status, 0);
	return conf_end();
}
