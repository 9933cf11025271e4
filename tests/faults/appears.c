/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * appears.c [-r rounds] - messages that have waited for an address stay in order when the address
 * appears.
 *
 * A thread keeps sending numbers to an address that no interface has.  The address appears, and a
 * socket is bound to it, in this process or in another one.  From the first number that arrives on,
 * every number must arrive, in order.
 *
 * A plain PF_RDS program, in a network namespace of its own.
 */
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "faults.h"

#define PORT 25000
#define BEFORE 4000 /* numbers that wait */
#define AFTER 600

static _Atomic unsigned sent;
static _Atomic bool bound;
static uint32_t target;

static void set_address(const char *name, uint32_t addr)
{
	struct ifreq ifr = {0};
	struct sockaddr_in sin = name_of(addr, 0);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	check(fd >= 0);
	strncpy(ifr.ifr_name, name, IFNAMSIZ - 1);
	memcpy(&ifr.ifr_addr, &sin, sizeof(sin));
	check(ioctl(fd, SIOCSIFADDR, &ifr) == 0);
	ifr.ifr_flags = IFF_UP | IFF_RUNNING;
	check(ioctl(fd, SIOCSIFFLAGS, &ifr) == 0);
	close(fd);
}

static void *sender(void *arg)
{
	int fd = *(int *)arg;
	struct sockaddr_in to = name_of(target, PORT);
	unsigned n, more = 0;

	for (n = 0; more < AFTER; n++) {
		check(sendto(fd, &n, sizeof(n), 0, (struct sockaddr *)&to, sizeof(to)) == sizeof(n));
		atomic_store(&sent, n + 1);
		if (n >= BEFORE)
			usleep(50);
		more += atomic_load(&bound);
	}
	n = UINT32_MAX;
	check(sendto(fd, &n, sizeof(n), 0, (struct sockaddr *)&to, sizeof(to)) == sizeof(n));
	return NULL;
}

static unsigned receive_all(int fd)
{
	struct timeval late = {.tv_usec = 200000};
	unsigned got = 0, next = 0, n;

	for (;;) {
		check(recv(fd, &n, sizeof(n), 0) == sizeof(n));
		if (n == UINT32_MAX)
			break;
		if (got && n != next)
			fail("number %u came, %u was next", n, next);
		next = n + 1;
		got++;
	}
	check(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &late, sizeof(late)) == 0);
	if (recv(fd, &n, sizeof(n), 0) == sizeof(n))
		fail("number %u came after the end", n);
	return got;
}

static unsigned elsewhere(int ready)
{
	unsigned got;
	int fd = rds_bound(target, PORT);

	check(write(ready, "", 1) == 1);
	got = receive_all(fd);
	check(write(ready, &got, sizeof(got)) == sizeof(got));
	exit(0);
}

static unsigned one_round(int fd, unsigned round, bool other)
{
	char name[IFNAMSIZ], c;
	unsigned got = 0;
	int rx, pipes[2], go[2], status;
	pthread_t t;
	pid_t pid = 0;

	/* 198.18.x.7: on lo its whole network becomes local */
	target = htonl(0xc6120007 + (round << 8));
	snprintf(name, sizeof(name), "lo:t%u", round);
	atomic_store(&sent, 0);
	atomic_store(&bound, false);
	check(pipe(pipes) == 0 && pipe(go) == 0);
	if (other) {
		pid = fork();
		check(pid >= 0);
		if (!pid) {
			alarm(test_alarm(60));
			check(read(go[0], &c, 1) == 1);
			elsewhere(pipes[1]);
		}
	}
	check(pthread_create(&t, NULL, sender, &fd) == 0);
	test_until(atomic_load(&sent) >= BEFORE);
	set_address(name, target);
	if (other) {
		check(write(go[1], "", 1) == 1 && read(pipes[0], &c, 1) == 1);
		atomic_store(&bound, true);
		check(read(pipes[0], &got, sizeof(got)) == sizeof(got));
		check(waitpid(pid, &status, 0) == pid && status == 0);
	} else {
		rx = rds_bound(target, PORT);
		atomic_store(&bound, true);
		got = receive_all(rx);
		close(rx);
	}
	pthread_join(t, NULL);
	close(pipes[0]);
	close(pipes[1]);
	close(go[0]);
	close(go[1]);
	return got;
}

int main(int argc, char **argv)
{
	unsigned rounds = 10, r, got = 0;
	uint32_t own = htonl(0xc0000201); /* 192.0.2.1 */
	int fd;

	if (argc == 3 && strcmp(argv[1], "-r") == 0)
		rounds = (unsigned)strtoul(argv[2], NULL, 0);
	alarm(test_alarm(60));
	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		printf("no network namespace of our own is permitted\n");
		return 77;
	}
	set_address("lo", htonl(INADDR_LOOPBACK));
	set_address("lo:own", own);
	fd = rds_bound(own, PORT + 1);
	for (r = 0; r < rounds; r++)
		got += one_round(fd, r, r % 2);
	printf("ok: %u rounds, %u numbers in order\n", rounds, got);
	return 0;
}
