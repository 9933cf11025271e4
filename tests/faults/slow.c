/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * slow.c - a slow but steady reader of one socket does not hold up the other sockets of its
 * process.
 *
 * One process sends far more than shared memory holds to socket A, then a message to socket B of
 * the same process.  In that process one thread reads A, a message every few milliseconds, and
 * another sleeps for B in poll().  B's message has to arrive while A's are being read.
 *
 * A plain PF_RDS program.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "faults.h"

#define PORT 26000
#define COUNT 8000 /* of a KiB: twice of what a ring holds */
#define PAUSE_US 5000
#define PATIENCE 5 /* seconds; at its pace the reader would need 20 until there is room for B */

static _Atomic unsigned got_a;

static void *steady(void *arg)
{
	int fd = *(int *)arg;
	char buf[2048];

	for (;;) {
		check(recv(fd, buf, sizeof(buf), 0) == 1024);
		atomic_fetch_add(&got_a, 1);
		usleep(PAUSE_US);
	}
	return NULL;
}

static void sender(int go)
{
	struct sockaddr_in a = name_of(home(), PORT), b = name_of(home(), PORT + 1);
	int fd = rds_bound(home(), PORT + 2);
	char buf[1024] = {0}, c;
	unsigned i;

	check(read(go, &c, 1) == 1);
	for (i = 0; i < COUNT; i++)
		check(sendto(fd, buf, sizeof(buf), 0, (struct sockaddr *)&a, sizeof(a)) == sizeof(buf));
	check(sendto(fd, buf, 1, 0, (struct sockaddr *)&b, sizeof(b)) == 1);
	pause();
}

int main(void)
{
	struct pollfd p = {.events = POLLIN};
	int a, b, go[2];
	double start;
	pthread_t t;
	pid_t pid;
	char c;

	alarm(test_alarm(60));
	check(pipe(go) == 0);
	pid = fork();
	check(pid >= 0);
	if (!pid) {
		alarm(test_alarm(60));
		sender(go[0]);
	}
	a = rds_bound(home(), PORT);
	b = rds_bound(home(), PORT + 1);
	check(pthread_create(&t, NULL, steady, &a) == 0);
	check(write(go[1], "", 1) == 1);
	start = seconds();
	p.fd = b;
	while (poll(&p, 1, test_bound_ms(PATIENCE * 1000)) == 1 && recv(b, &c, 1, MSG_DONTWAIT) != 1)
		check(errno == EAGAIN); /* something about congestion */
	if (!p.revents) {
		kill(pid, SIGKILL);
		test_late("nothing came for %d seconds, while the other socket's reader took %u", PATIENCE,
			  atomic_load(&got_a));
	}
	kill(pid, SIGKILL);
	check(waitpid(pid, NULL, 0) == pid);
	check(atomic_load(&got_a) < COUNT);
	printf("ok: %.0f ms behind a slow reader\n", (seconds() - start) * 1000);
	return 0;
}
