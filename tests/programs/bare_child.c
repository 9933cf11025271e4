/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * bare_child - a child that was started by the bare system call, unknown to the library, uses a
 * socket of its parent.  The parent sleeps nearly all the time in calls on that socket, and is
 * killed.  The child becomes the owner.  It can do so because it has used the socket, and the
 * parent has noticed that (under the preload the child waits for it, which shows among its
 * descriptors).
 */
#include "program.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static int up[2]; /* to main */

static void text_of(int fd, const char *want, struct sockaddr_in *from)
{
	socklen_t len = sizeof(*from);
	char buf[10] = "";

	check(recvfrom(fd, buf, sizeof(buf) - 1, 0, (struct sockaddr *)from, &len) == (ssize_t)strlen(want), "length of %s", want);
	check(strcmp(buf, want) == 0, "%s instead of %s", buf, want);
}

static int has_will(void)
{
	char path[300], name[100] = "";
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int found = 0;

	check(dir != NULL, "/proc/self/fd");
	while ((entry = readdir(dir)) != NULL && !found) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		n = readlink(path, name, sizeof(name) - 1);
		name[n > 0 ? n : 0] = 0;
		found = strstr(name, "rds lease") != NULL;
	}
	closedir(dir);
	return found;
}

static void child(int fd)
{
	struct sockaddr_in from, name;
	socklen_t len = sizeof(name);
	unsigned looks;

	alarm(test_alarm(60));
	text_of(fd, "one", &from);
	/* until the parent has noticed */
	for (looks = 0; getenv("LD_PRELOAD") && !has_will(); test_pause(&looks))
		check(getsockname(fd, (struct sockaddr *)&name, &len) == 0, "getsockname");
	tell(up[1], "1", 1);
	text_of(fd, "two", &from);
	check(sendto(fd, "three", 5, 0, (struct sockaddr *)&from, sizeof(from)) == 5, "the answer");
	tell(up[1], "3", 1);
	_exit(0);
}

static void parent(void *unused)
{
	struct sockaddr_in sin;
	int fd = bound(&sin);
	struct pollfd p = {.fd = fd, .events = POLLPRI};
	long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	(void)unused;
	check(pid >= 0, "clone");
	if (pid == 0)
		child(fd);
	tell(up[1], &sin, sizeof(sin));
	for (;;)
		/*
		 * its next call does what the helper cannot; one that begins just then may not know
		 * of that yet
		 */
		poll(&p, 1, 200);
}

int main(void)
{
	struct sockaddr_in here, there, from;
	int fd, status;
	char byte;
	pid_t pid;

	check(pipe(up) == 0, "pipe");
	check(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0, "whose child the orphan is");
	pid = start(parent, NULL);
	fd = bound(&here);
	hear(up[0], &there, sizeof(there));
	check(sendto(fd, "one", 3, 0, (struct sockaddr *)&there, sizeof(there)) == 3, "first message");
	hear(up[0], &byte, 1);
	check(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid, "kill");
	check(sendto(fd, "two", 3, 0, (struct sockaddr *)&there, sizeof(there)) == 3, "second message");
	alarm(test_alarm(60));
	text_of(fd, "three", &from);
	hear(up[0], &byte, 1);
	check(wait(&status) > 0 && status == 0, "the child ended with status %#x", (unsigned)status);
	return 0;
}
