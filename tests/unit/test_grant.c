/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_grant.c - a process is forked while another thread grants access to the parent's memory
 * (engine/share/memory_grant.c).  The child closes its copy of the descriptor, whatever the number
 * is.  What that costs depends on how many descriptors are open, not on how many could be.
 */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/share/memory_grant.h"
#include "engine/sys/os.h"
#include "tests/unit/suite.h"

#define FAR 70000 /* where the hard limit permits it; else the last one that it permits */

static unsigned looks;

int __real_os_fcntl(int fd, int cmd, long arg);
int __wrap_os_fcntl(int fd, int cmd, long arg);
int __wrap_os_fcntl(int fd, int cmd, long arg)
{
	looks++;
	return __real_os_fcntl(fd, cmd, arg);
}

/* The owner: takes what it is given, and says that it is good. */
static void *take(void *listener)
{
	int fd = accept(*(int *)listener, NULL, NULL), good = 0;
	char packet[64];

	if (fd < 0 || recv(fd, packet, sizeof(packet), 0) <= 0 || send(fd, &good, sizeof(good), 0) != sizeof(good))
		return NULL;
	close(fd);
	return listener;
}

static void one_was_granted(void)
{
	struct rds_grant_address at = {.name = {.sun_family = AF_UNIX}};
	int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	socklen_t len = sizeof(at.name);
	pthread_t owner;
	void *took;

	ck_assert_int_eq(bind(listener, (struct sockaddr *)&at.name, sizeof(at.name.sun_family)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at.name, &len), 0);
	at.len = len;
	ck_assert_int_eq(pthread_create(&owner, NULL, take, &listener), 0);
	ck_assert_int_eq(rds_borrower_grant_send(&at), 0);
	ck_assert_int_eq(pthread_join(owner, &took), 0);
	ck_assert_ptr_eq(took, &listener);
	close(listener);
}

static int far_copy_of(int fd)
{
	struct rlimit rl;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &rl), 0);
	rl.rlim_cur = rl.rlim_max < FAR + 1 ? rl.rlim_max : FAR + 1;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
	return fcntl(fd, F_DUPFD, (int)rl.rlim_cur - 1);
}

static void child(int memory, int far, int other)
{
	unsigned least = looks;

	rds_borrower_grant_forked(getppid());
	if (fcntl(memory, F_GETFD) >= 0 || fcntl(far, F_GETFD) >= 0)
		_exit(1);
	if (fcntl(other, F_GETFD) < 0)
		_exit(2);
	_exit(looks - least > 100 ? 3 : 0);
}

START_TEST(copies_are_closed)
{
	int memory = open("/proc/self/mem", O_RDWR), far = far_copy_of(memory), other = open("/proc/self/status", O_RDONLY);
	int status;
	pid_t pid;

	ck_assert_int_ge(memory, 0);
	ck_assert_int_gt(far, memory);
	one_was_granted();
	pid = fork();
	if (!pid)
		child(memory, far, other);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/*
 * If no access was ever granted, the child looks for nothing: a program may have such a descriptor
 * of its own.
 */
START_TEST(the_programs_own_stays)
{
	int memory = open("/proc/self/mem", O_RDWR);

	rds_borrower_grant_forked(getpid());
	ck_assert_int_ge(fcntl(memory, F_GETFD), 0);
	close(memory);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("grant");
	TCase *t = suite_case(s, "grant", NULL, NULL);

	tcase_add_test(t, copies_are_closed);
	tcase_add_test(t, the_programs_own_stays);
	return suite_run(s);
}
