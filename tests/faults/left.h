/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * left.h - a stopped receiver, and senders whose messages it has to get once and in order after
 * they have left.
 */
#ifndef FAULTS_LEFT_H
#define FAULTS_LEFT_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "faults.h"

#define PORT 25000 /* the receiver's; the next ones are senders' */
#define BIG 100000
#define NEW 40 /* more than find room on the way when the send buffer was full for the first time */

enum { HELLO = -1, LAST = -2, LATE = -3 };

static unsigned char buf[BIG];

static inline void child_begins(void)
{
	check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0); /* also while it is stopped */
	alarm(test_alarm(60));
}

static inline void has_ended(pid_t pid)
{
	int status;

	check(waitpid(pid, &status, 0) == pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_LATE)
		test_late("process %d", pid);
	if (status)
		fail("a process ended with %#x", (unsigned)status);
}

static inline ssize_t put(int fd, int number, int flags)
{
	struct sockaddr_in to = name_of(home(), PORT);

	memcpy(buf, &number, sizeof(number));
	return sendto(fd, buf, sizeof(buf), flags, (struct sockaddr *)&to, sizeof(to));
}

/*
 * Everything from 0 up, then LAST; the exit status says whether.  LATE is a thread's, and answered,
 * for two others: late, if there is one.
 */
static inline void receiver(int ready, int count, bool late)
{
	int fd = rds_bound(home(), PORT), number, next = 0, came = 0, n;
	bool last = false;
	struct sockaddr_in from;

	child_begins();
	check(write(ready, "", 1) == 1);
	while (!last || (late && !came)) {
		socklen_t len = sizeof(from);

		check(recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len) >= (int)sizeof(number));
		memcpy(&number, buf, sizeof(number));
		for (n = number == HELLO ? 1 : number == LATE ? 2 : 0; n; n--)
			check(sendto(fd, "", 1, 0, (struct sockaddr *)&from, len) == 1);
		if (number == LATE)
			came = next;
		else if (number == LAST)
			last = true;
		else if (number != HELLO && number != next++)
			fail("message %d instead of %d", number, next - 1);
	}
	check(read(count, &n, sizeof(n)) == sizeof(n));
	if (next != n)
		fail("%d messages instead of %d", next, n);
	if (late && came < n - NEW)
		fail("what a thread was sending came after %d messages, and %d had been sent before", came, n - NEW);
	_exit(0);
}

static inline pid_t start_receiver(const int ready[2], int counts)
{
	pid_t pid = fork();
	char c;

	check(pid >= 0);
	if (!pid)
		receiver(ready[1], counts, false);
	check(read(ready[0], &c, 1) == 1);
	return pid;
}

#endif
