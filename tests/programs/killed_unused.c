/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * killed_unused - a thread that waits for a stopped process to take messages goes on when that process
 * is killed, also if this process has used many others since, and has few descriptors.  So does one
 * that waits for it in poll().
 */
#include "program.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum { OTHERS = 20, DESCRIPTORS = 96, BYTES = 16384, IN_TIME = 10000 };

struct process {
	pid_t pid;
	struct sockaddr_in at;
};

/* One of them speaks at a time. */
static int said[2];

/* Receives one message and stays. */
static void stay(void *arg)
{
	struct sockaddr_in me;
	int fd;

	(void)arg;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fd = bound(&me);

	tell(said[1], &me, sizeof(me));
	if (recv(fd, &me, 1, 0) != 1)
		exit(1);
	tell(said[1], "", 1);
	pause();
}

static void process_start(struct process *p)
{
	p->pid = start(stay, NULL);
	hear(said[0], &p->at, sizeof(p->at));
}

/* When this returns, none of its threads runs. */
static void process_stop(const struct process *p)
{
	int status;

	check(kill(p->pid, SIGSTOP) == 0, "kill");
	check(waitpid(p->pid, &status, WUNTRACED) == p->pid && WIFSTOPPED(status), "it does not stop");
}

static void process_kill(struct process *p)
{
	check(kill(p->pid, SIGKILL) == 0 && waitpid(p->pid, NULL, 0) == p->pid, "kill");
}

static pthread_t threads[2];
static struct process sent_to, polled_for, others[OTHERS];
static _Atomic unsigned sent;
static _Atomic pid_t sender_tid, poller_tid;
static _Atomic bool killed, told;

static bool send_to(int fd, const struct process *p)
{
	static const char bytes[BYTES];

	return sendto(fd, bytes, BYTES, 0, (const struct sockaddr *)&p->at, sizeof(p->at)) == BYTES;
}

/* Until one waits. */
static void *sender(void *arg)
{
	struct sockaddr_in me;
	int fd = bound(&me);

	(void)arg;
	sender_tid = gettid();
	while (!killed) {
		send_to(fd, &sent_to);
		sent++;
	}
	return NULL;
}

static void *poller(void *arg)
{
	struct pollfd p = {.events = POLLOUT};
	struct sockaddr_in me;

	(void)arg;
	p.fd = bound(&me);
	check(fcntl(p.fd, F_SETFL, O_NONBLOCK) == 0, "O_NONBLOCK");
	while (send_to(p.fd, &polled_for))
		;
	poller_tid = gettid();
	check(errno == EAGAIN && poll(&p, 1, TEST_COMES) == 1, "poll");
	told = true;
	return NULL;
}

static void use(int fd, const struct process *p)
{
	char c;

	check(sendto(fd, "!", 1, 0, (const struct sockaddr *)&p->at, sizeof(p->at)) == 1, "sendto");
	hear(said[0], &c, 1);
}

/* Both wait, and the processes that they wait for are not among those used last. */
static void begin(void)
{
	struct sockaddr_in me;
	int fd = bound(&me), i;
	unsigned before;

	use(fd, &sent_to);
	use(fd, &polled_for);
	process_stop(&sent_to);
	process_stop(&polled_for);
	check(pthread_create(&threads[0], NULL, sender, NULL) == 0, "pthread_create");
	check(pthread_create(&threads[1], NULL, poller, NULL) == 0, "pthread_create");
	test_until(sender_tid && poller_tid);
	for (i = 0; i < OTHERS; i++)
		use(fd, &others[i]);
	check(test_sleeps(sender_tid) && test_sleeps(poller_tid), "a thread has ended");
	before = sent;
	sleep(3); /* and nothing else goes on */
	check(sent == before && !told, "they do not wait");
}

int main(void)
{
	const struct rlimit few = {DESCRIPTORS, DESCRIPTORS};
	unsigned before, ms;
	int i;

	check(pipe(said) == 0, "pipe");
	process_start(&sent_to);
	process_start(&polled_for);
	for (i = 0; i < OTHERS; i++)
		process_start(&others[i]);
	check(setrlimit(RLIMIT_NOFILE, &few) == 0, "setrlimit");
	begin();
	before = sent;
	killed = true;
	process_kill(&sent_to);
	process_kill(&polled_for);
	for (ms = 0; sent == before || !told; ms++) {
		if (ms == (unsigned)test_bound_ms(IN_TIME))
			test_late("%s, for a process that was killed", told ? "sendto" : "poll");
		usleep(1000);
	}
	for (i = 0; i < 2; i++)
		check(pthread_join(threads[i], NULL) == 0, "pthread_join");
	for (i = 0; i < OTHERS; i++)
		process_kill(&others[i]);
	printf("told %u ms after processes were killed that were not used\n", ms);
	return 0;
}
