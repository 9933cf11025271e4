/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_atfork - a program takes a lock of its own in its fork handler.  Another thread has that
 * lock while it asks another process something and waits for the answer.  The fork waits for that,
 * and nothing waits for the fork.  The question is the first message, so it needs all that the
 * library has to do before a message can go.
 */
#include "program.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sockaddr_in server;
static int fd;
static volatile int locked, forking;

static void before(void)
{
	__atomic_store_n(&forking, 1, __ATOMIC_RELEASE);
	pthread_mutex_lock(&lock);
}

static void after(void)
{
	pthread_mutex_unlock(&lock);
}

static void *asks(void *arg)
{
	char c = 'q';

	pthread_mutex_lock(&lock);
	__atomic_store_n(&locked, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&forking, __ATOMIC_ACQUIRE))
		;
	check(sendto(fd, &c, 1, 0, (struct sockaddr *)&server, sizeof(server)) == 1, "sendto");
	check(recv(fd, &c, 1, 0) == 1 && c == 'a', "recv");
	pthread_mutex_unlock(&lock);
	return arg;
}

static void serves(void *arg)
{
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	char c;

	alarm(test_alarm(60)); /* not inherited */
	fd = bound(&server);
	tell(*(int *)arg, &server, sizeof(server));
	check(recvfrom(fd, &c, 1, 0, (struct sockaddr *)&from, &len) == 1, "recvfrom");
	check(sendto(fd, "a", 1, 0, (struct sockaddr *)&from, len) == 1, "sendto");
}

static void client(void)
{
	struct sockaddr_in own;
	pthread_t thread;
	pid_t pid;

	/* before the first socket: so ours comes last before the fork */
	pthread_atfork(before, after, after);
	fd = bound(&own);
	check(pthread_create(&thread, NULL, asks, NULL) == 0, "pthread_create");
	while (!__atomic_load_n(&locked, __ATOMIC_ACQUIRE))
		;
	pid = fork();
	check(pid >= 0, "fork");
	if (pid == 0)
		_exit(0);
	finished(pid);
	pthread_join(thread, NULL);
}

int main(void)
{
	int pipes[2];
	pid_t pid;

	alarm(test_alarm(60)); /* ends it if it hangs */
	check(pipe(pipes) == 0, "pipe");
	pid = start(serves, &pipes[1]);
	hear(pipes[0], &server, sizeof(server));
	client();
	finished(pid);
	return 0;
}
