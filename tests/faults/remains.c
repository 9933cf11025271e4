/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * remains.c - what is gone leaves nothing behind in those that go on.
 *
 *   unreachable	sockets that are closed when they have sent to an address that nobody has
 *   congested		sockets that are closed when they have met a congested port which stays so
 *   senders		processes that have ended, and nobody has read what they sent
 *   clients		processes that have ended when they had their answer, from a service that
 *			does nothing but receive and send
 *
 * What this process has on its heap, or how many mappings or descriptors, must not grow with their
 * number.
 *
 * A plain PF_RDS program, in a network namespace of its own: the addresses of the loopback net are
 * never congested.
 */
#include <dirent.h>
#include <malloc.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "faults.h"

#define PORT 27000
#define SOCKETS 1000
#define SENDERS 100
/*
 * For all sockets: a message of the first kind has 50 kB, a socket of the second takes more than
 * one.
 */
#define HEAP_MORE (4u << 20)
#define MAPS_MORE (SENDERS / 2)
#define FILES_MORE (SENDERS / 2) /* each client would leave one or two */

static uint32_t own;

static void own_network(void)
{
	struct ifreq ifr = {.ifr_name = "lo"};
	struct sockaddr_in sin = name_of(own, 0);
	int fd;

	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		printf("no network namespace of our own is permitted\n");
		exit(77);
	}
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	memcpy(&ifr.ifr_addr, &sin, sizeof(sin));
	check(fd >= 0 && ioctl(fd, SIOCSIFADDR, &ifr) == 0);
	ifr.ifr_flags = IFF_UP | IFF_RUNNING;
	check(ioctl(fd, SIOCSIFFLAGS, &ifr) == 0);
	close(fd);
}

static size_t heap(void)
{
#if __GLIBC_PREREQ(2, 33)
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
#else
	struct mallinfo m = mallinfo();

	return (unsigned)m.uordblks + (size_t)(unsigned)m.hblkhd;
#endif
}

static unsigned maps(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned n = 0;
	int c;

	check(f);
	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

static unsigned files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	check(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void unreachable(void)
{
	struct sockaddr_in to = name_of(htonl(0xc6120001), PORT); /* 198.18.0.1 */
	static char much[50000];
	size_t before = 0;
	unsigned i;
	int fd;

	for (i = 0; i <= SOCKETS; i++) {
		fd = rds_bound(own, 0);
		check(sendto(fd, much, sizeof(much), 0, (struct sockaddr *)&to, sizeof(to)) == sizeof(much));
		check(close(fd) == 0);
		if (!i)
			before = heap();
	}
	if (heap() > before + HEAP_MORE)
		fail("%zu bytes left of what %u closed sockets have sent to nobody", heap() - before, SOCKETS);
}

/* Never reads. */
static pid_t receiver(void)
{
	int ready[2], fd, small = 1;
	pid_t pid;
	char c;

	check(pipe(ready) == 0);
	pid = fork();
	check(pid >= 0);
	if (!pid) {
		alarm(test_alarm(60));
		fd = rds_bound(own, PORT);
		check(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0);
		check(write(ready[1], "", 1) == 1);
		pause();
		_exit(0);
	}
	check(read(ready[0], &c, 1) == 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

/*
 * Its buffer may be full of what is on its way, if the receiver does not run for as long as that takes: that is no
 * congestion yet.
 */
static bool refused(int fd)
{
	struct sockaddr_in to = name_of(own, PORT);
	static char some[1000];
	ssize_t n = sendto(fd, some, sizeof(some), MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));

	check(n == sizeof(some) || errno == ENOBUFS || errno == EAGAIN);
	return n < 0 && errno == ENOBUFS;
}

static void congested(void)
{
	int fd = rds_bound(own, 0);
	size_t before = 0;
	unsigned i;

	while (!refused(fd))
		usleep(1000);
	close(fd);
	for (i = 0; i <= 20 * SOCKETS; i++) {
		fd = rds_bound(own, 0);
		check(refused(fd));
		check(close(fd) == 0);
		if (!i)
			before = heap();
	}
	if (heap() > before + HEAP_MORE)
		fail("%zu bytes left of %u closed sockets that have met congestion", heap() - before, 20 * SOCKETS);
}

/*
 * Each a byte, and each waits for an answer, or none does; from a process that has no sockets
 * itself.
 */
static pid_t senders(int go, bool answered)
{
	struct sockaddr_in to = name_of(own, PORT + 1);
	pid_t pid = fork(), one;
	unsigned char i;
	int status, fd;
	char c;

	check(pid >= 0);
	if (pid)
		return pid;
	alarm(test_alarm(60));
	check(read(go, &c, 1) == 1);
	for (i = 0; i < SENDERS; i++) {
		one = fork();
		check(one >= 0);
		if (!one) {
			fd = rds_bound(own, 0);
			check(sendto(fd, &i, 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1);
			check(!answered || recv(fd, &c, 1, 0) == 1);
			exit(0);
		}
		check(waitpid(one, &status, 0) == one && status == 0);
	}
	exit(0);
}

static void gone(int fd, int go, pid_t pid)
{
	unsigned before = maps(), now;
	double until = seconds() + TEST_COMES / 1000;
	unsigned looks = 0;
	unsigned char i, got;
	int status;

	check(write(go, "", 1) == 1);
	check(waitpid(pid, &status, 0) == pid && status == 0);
	/* That the last of them have ended need not have been noticed yet. */
	while ((now = maps()) > before + MAPS_MORE) {
		if (seconds() > until)
			test_late("%u mappings more for the bytes of %u processes that have ended", now - before,
				  SENDERS);
		test_pause(&looks);
	}
	for (i = 0; i < SENDERS; i++)
		check(recv(fd, &got, 1, MSG_DONTWAIT) == 1 && got == i);
	check(recv(fd, &got, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

/* Nothing but these two calls, of which the first one sleeps. */
static void service(int fd, int go, pid_t pid)
{
	struct sockaddr_in from;
	unsigned before = 0, i;
	socklen_t len;
	int status;
	char c;

	check(write(go, "", 1) == 1);
	for (i = 0; i < SENDERS; i++) {
		len = sizeof(from);
		check(recvfrom(fd, &c, 1, 0, (struct sockaddr *)&from, &len) == 1);
		check(sendto(fd, &c, 1, 0, (struct sockaddr *)&from, sizeof(from)) == 1);
		if (!i)
			before = files();
	}
	if (files() > before + FILES_MORE)
		fail("%u descriptors more after %u clients", files() - before, SENDERS);
	check(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void)
{
	pid_t stuck, many, clients;
	int go[2], begin[2], fd;

	own = htonl(0xc0000201); /* 192.0.2.1 */
	alarm(test_alarm(60));
	own_network();
	check(pipe(go) == 0 && pipe(begin) == 0);
	stuck = receiver(); /* others first: they are to have no socket of this process */
	many = senders(go[0], false);
	clients = senders(begin[0], true);
	fd = rds_bound(own, PORT + 1);
	service(fd, begin[1], clients);
	gone(fd, go[1], many);
	unreachable();
	congested();
	check(kill(stuck, SIGKILL) == 0 && waitpid(stuck, NULL, 0) == stuck);
	printf("ok: %u sockets, %u processes\n", 21 * SOCKETS, 2 * SENDERS);
	return 0;
}
