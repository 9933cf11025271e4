/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * occupied.c - a process ends while its receiver runs, but comes to no message for longer than
 * RDS_PRELOAD_LINGER_MS.  The message arrives all the same.
 *
 * That the library's helper gets no processor is brought about by ptrace, while the program's thread
 * uses one.  On kernel RDS there is no helper, and nobody holds anything.
 *
 * A plain PF_RDS program.
 */
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "faults.h"

#define PORT 24000
#define BYTES 8192 /* short messages need no helper */
#define THREADS 8

static _Atomic bool *go_on; /* shared */

static void child_begins(void)
{
	check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	alarm(test_alarm(60));
}

static void receiver(int ready)
{
	int fd = rds_bound(home(), PORT);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char buf[BYTES];

	child_begins();
	check(write(ready, "", 1) == 1);
	while (!atomic_load(go_on))
		;
	if (poll(&p, 1, TEST_COMES) != 1)
		test_late("the message of a process that has ended");
	check(recv(fd, buf, sizeof(buf), 0) == BYTES);
	_exit(0);
}

static void sender(void (*end)(int), int sent)
{
	struct sockaddr_in to = name_of(home(), PORT);
	int fd = rds_bound(home(), PORT + 1);
	char buf[BYTES] = "";

	child_begins();
	check(sendto(fd, buf, sizeof(buf), 0, (struct sockaddr *)&to, sizeof(to)) == BYTES);
	check(write(sent, "", 1) == 1);
	end(0);
}

/* All of its threads but the first; returns how many. */
static int hold(pid_t pid, pid_t *held)
{
	char path[32];
	struct dirent *e;
	int n = 0, status;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	check(dir);
	while ((e = readdir(dir)) != NULL && n < THREADS) {
		held[n] = atoi(e->d_name);
		if (held[n] <= 0 || held[n] == pid)
			continue;
		check(test_sleeps(held[n])); /* with no lock */
		check(ptrace(PTRACE_SEIZE, held[n], NULL, NULL) == 0);
		check(ptrace(PTRACE_INTERRUPT, held[n], NULL, NULL) == 0);
		check(waitpid(held[n], &status, __WALL) == held[n] && WIFSTOPPED(status));
		n++;
	}
	closedir(dir);
	return n;
}

static void has_ended(pid_t pid)
{
	int status;

	check(waitpid(pid, &status, 0) == pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_LATE)
		_exit(TEST_LATE);
	check(status == 0);
}

static void one(void (*end)(int), int wait_ms)
{
	pid_t to, from, held[THREADS];
	int ready[2], n;
	char c;

	check(pipe(ready) == 0);
	atomic_store(go_on, false);
	to = fork();
	check(to >= 0);
	if (!to)
		receiver(ready[1]);
	check(read(ready[0], &c, 1) == 1);
	n = hold(to, held);
	from = fork();
	check(from >= 0);
	if (!from)
		sender(end, ready[1]);
	check(read(ready[0], &c, 1) == 1);
	usleep((unsigned)wait_ms * 1500); /* the limit passes */
	while (n--)
		check(ptrace(PTRACE_DETACH, held[n], NULL, NULL) == 0);
	atomic_store(go_on, true);
	has_ended(to);
	has_ended(from);
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	const char *text = getenv("RDS_PRELOAD_LINGER_MS");
	int wait_ms = text ? atoi(text) : 1000;

	alarm(test_alarm(60));
	go_on = mmap(NULL, sizeof(*go_on), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(go_on != MAP_FAILED);
	one(exit, wait_ms);
	one(_exit, wait_ms);
	printf("ok: what processes had sent has arrived at one that was occupied when they ended\n");
	return 0;
}
