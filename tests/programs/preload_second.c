/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_second WHERE: beside another preloaded object (second_object.c), in front of the library
 * or behind it.  RDS works, other sockets do, and neither is left out.
 */
#include "program.h"

#include <dlfcn.h>
#include <pthread.h>

static void *of_object(const char *name)
{
	void *p = dlsym(RTLD_DEFAULT, name);

	check(p != NULL, "second_object is not preloaded");
	return p;
}

static unsigned count(const char *name)
{
	unsigned *p = of_object(name);

	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

/* One message to itself, and a wait for it. */
static void talk(int family)
{
	struct sockaddr_in sin = loopback(0);
	socklen_t len = sizeof(sin);
	int fd = socket(family, family == PF_RDS ? SOCK_SEQPACKET : SOCK_DGRAM, 0);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char buf[8];

	check(fd >= 0, "socket");
	check(bind(fd, (struct sockaddr *)&sin, sizeof(sin)) == 0, "bind");
	check(getsockname(fd, (struct sockaddr *)&sin, &len) == 0, "getsockname");
	for (int i = 0; i < 2; i++) {
		check(sendto(fd, "hello", 5, 0, (struct sockaddr *)&sin, sizeof(sin)) == 5, "sendto");
		check(poll(&p, 1, TEST_COMES) == 1, "poll");
		check((i ? read(fd, buf, sizeof(buf)) : recv(fd, buf, sizeof(buf), 0)) == 5, "receive");
	}
	check(close(fd) == 0 && close(fd) == -1 && errno == EBADF, "close");
}

static void listens(void)
{
	struct sockaddr_in sin = loopback(0);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	check(bind(fd, (struct sockaddr *)&sin, sizeof(sin)) == 0 && listen(fd, 1) == 0, "listen");
	close(fd);
}

static void *thread(void *arg)
{
	talk(PF_RDS);
	return arg;
}

int main(int argc, char **argv)
{
	int front = argc > 1 && strcmp(argv[1], "front") == 0;
	const char *const *failed = of_object("second_failed");
	unsigned before, rds, udp;
	pthread_t t;

	check(!*failed, "in its constructor: %s", *failed);
	check(!front || count("second_closes") > 0, "its constructor has called nobody");
	before = count("second_calls");
	talk(PF_RDS);
	rds = count("second_calls") - before;
	talk(AF_INET);
	udp = count("second_calls") - before - rds;
	listens();
	check(udp >= 8, "it has seen %u calls of a UDP socket", udp);
	check(count("second_closes") >= 2, "it has seen %u calls of close()", count("second_closes"));
	check(front ? rds >= 8 : rds < 8, "it has seen %u calls of an RDS socket", rds);
	check(pthread_create(&t, NULL, thread, NULL) == 0 && pthread_join(t, NULL) == 0, "thread");
	printf("%u and %u calls seen by the other object\n", rds, udp);
	return 0;
}
