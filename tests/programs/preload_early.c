/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_early - hostile start-up: the program's own allocator opens, reads and polls files in
 * every call, and RDS sockets are used before any library's constructor has run.
 */
#include "allocator.h"
#include "program.h"

#include <fcntl.h>

/* ---- an allocator as some are: first it reads its configuration, or /proc, or entropy ---- */

static unsigned reads;
static __thread int inside;

static void allocator_entered(void)
{
	struct pollfd p = { .events = POLLIN };
	char buf[8];
	int err = errno;

	if (inside)
		return;
	inside = 1;
	p.fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	if (p.fd < 0 || poll(&p, 1, 0) != 1 || read(p.fd, buf, sizeof(buf)) != sizeof(buf) || close(p.fd))
		abort();
	__atomic_add_fetch(&reads, 1, __ATOMIC_RELAXED);
	inside = 0;
	errno = err;
}

/* ---- before everything ---- */

static int fd = -1;
static struct sockaddr_in at;

static void use(void)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char buf[4];

	check(sendto(fd, "hi", 2, 0, (struct sockaddr *)&at, sizeof(at)) == 2, "sendto");
	check(poll(&p, 1, TEST_COMES) == 1, "poll");
	check(recv(fd, buf, sizeof(buf), 0) == 2, "recv");
}

static void before_constructors(int argc, char **argv, char **envp)
{
	(void)argc, (void)argv, (void)envp;
	fd = bound(&at);
	use();
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = before_constructors;

int main(void)
{
	check(fd >= 0 && reads > 0, "nothing has run before main");
	use();
	close(fd);
	printf("before all constructors, with an allocator that reads files\n");
	return 0;
}
