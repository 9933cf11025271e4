/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_mlock - programs lock their memory, present and future, under a limit that leaves little
 * for others: before they open a socket, and when it is bound.  Other processes reach them.  No
 * process needs a device for that.
 */
#include "program.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define MORE (4 << 20)

static char self[] = "/proc/self/exe";

static long size_of_process(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long pages = 0;

	check(f != NULL, "/proc/self/statm");
	if (fscanf(f, "%ld", &pages) != 1)
		pages = 0;
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

/* Root may lock more. */
static void limited(void)
{
	struct __user_cap_header_struct who = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct have[2];
	struct rlimit limit;

	check(syscall(SYS_capget, &who, have) == 0, "capget");
	have[0].effective &= ~(1u << CAP_IPC_LOCK);
	check(syscall(SYS_capset, &who, have) == 0, "capset");
	check(getrlimit(RLIMIT_MEMLOCK, &limit) == 0, "getrlimit");
	limit.rlim_cur = (rlim_t)size_of_process() + MORE;
	check(setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "RLIMIT_MEMLOCK");
}

static void locks(void)
{
	check(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall");
}

static void is_reached(int fd, struct sockaddr_in at)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char port[8], c = 0;
	char *argv[] = {self, (char[]){"send"}, port, NULL};
	pid_t pid;

	snprintf(port, sizeof(port), "%u", at.sin_port);
	pid = fork();
	if (!pid) {
		execv(self, argv);
		_exit(127);
	}
	check(poll(&p, 1, TEST_COMES) == 1 && recv(fd, &c, 1, 0) == 1 && c == '!', "recv");
	finished(pid);
}

static void locker(const char *when)
{
	struct sockaddr_in at;
	int fd, i;

	limited();
	if (when[0] == 'b')
		locks();
	fd = bound(&at);
	if (when[0] == 'a')
		locks();
	for (i = 0; i < 3; i++)
		is_reached(fd, at);
	works();
}

static void sends(const char *port)
{
	struct sockaddr_in at, to = loopback((unsigned short)atoi(port));
	int fd = bound(&at);

	check(sendto(fd, "!", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1, "sendto");
}

static void runs(void *when)
{
	char *argv[] = {self, when, NULL};

	execv(self, argv);
	_exit(127);
}

int main(int argc, char **argv)
{
	char before[] = "before", after[] = "after";

	if (argc == 3)
		sends(argv[2]);
	else if (argc == 2)
		locker(argv[1]);
	if (argc > 1)
		return 0;
	setenv("RDS_PRELOAD_TRANSPORT", "shm", 1);
	finished(start(runs, before));
	finished(start(runs, after));
	printf("reached, with all memory locked\n");
	return 0;
}
