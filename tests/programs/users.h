/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * users.h - for programs that become other users: a registry directory of their own, for all
 * users, with a copy of what is preloaded.
 */
#ifndef USERS_H
#define USERS_H

#include <fcntl.h>
#include <sys/stat.h>

#include "program.h"

static char self[] = "/proc/self/exe", registry[] = "/dev/shm/rdsusers.XXXXXX";
static pid_t maker;

/* The same program as another user: the library reads its options when it is loaded. */
static inline pid_t runs_as(unsigned user, mode_t mask, char *role, int fd, int fd2)
{
	char number[16], number2[16], *argv[] = {self, role, number, number2, NULL};
	pid_t pid = fork();

	check(pid >= 0, "fork");
	if (pid)
		return pid;
	snprintf(number, sizeof(number), "%d", fd);
	snprintf(number2, sizeof(number2), "%d", fd2);
	umask(mask);
	check(setgid(user) == 0 && setuid(user) == 0, "setuid");
	execv(self, argv);
	program_fail(__FILE__, __LINE__, "execv");
}

static inline void clean_up(void)
{
	char cmd[80];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", registry);
	if (getpid() == maker && system(cmd))
		fprintf(stderr, "%s stays\n", registry);
}

/*
 * Others must be able to read what is loaded, wherever it was built.  What is not ours is the
 * system's, and stays where it is: a sanitizer's runtime must not be loaded twice, by two names.
 */
static inline void libraries_for_all(void)
{
	char *libraries = strdup(getenv("LD_PRELOAD") ?: ""), copies[1000] = "", copy[300], cmd[1000];
	int n = 0;

	for (char *one = strtok(libraries, ": "); one; one = strtok(NULL, ": ")) {
		snprintf(copy, sizeof(copy), "%s%s/library%d.so", n ? ":" : "", registry, n);
		snprintf(cmd, sizeof(cmd), "install -m 0755 %s %s", one, copy + !!n);
		if (strstr(one, "rdspreload"))
			check(system(cmd) == 0, "%s", cmd);
		else
			snprintf(copy, sizeof(copy), "%s%.290s", n ? ":" : "", one);
		strcat(copies, copy);
		check(++n < 10, "%d libraries", n);
	}
	if (n)
		setenv("LD_PRELOAD", copies, 1);
	free(libraries);
}

/* For the programs that this one executes.  The directory is sticky, as /dev/shm is. */
static inline void registry_for_all(void)
{
	check(mkdtemp(registry) != NULL, "mkdtemp");
	maker = getpid();
	atexit(clean_up);
	check(chmod(registry, 01777) == 0, "chmod");
	libraries_for_all();
	setenv("RDS_PRELOAD_REGISTRY_DIR", registry, 1);
	unsetenv("RDS_PRELOAD_SHARE");
}

#endif
