/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_early - hostile start-up: the program's own allocator opens, reads and polls files in every call, and RDS
 * sockets are used before any library's constructor has run.
 */
#include "program.h"

#include <fcntl.h>

/* ---- an allocator as some are: first it reads its configuration, or /proc, or entropy ---- */

#define POOL (64u << 20)
static char pool[POOL];
static size_t used;
static unsigned reads;
static __thread int inside;

static void read_something(void)
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

void *malloc(size_t size)
{
	size_t need = (size + 31) & ~(size_t)15, at;

	read_something();
	at = __atomic_fetch_add(&used, need, __ATOMIC_RELAXED);
	if (at + need > POOL)
		abort();
	memcpy(pool + at, &size, sizeof(size));
	return pool + at + 16;
}

void *calloc(size_t n, size_t size)
{
	return malloc(n * size); /* never handed out before: still zero */
}

void free(void *p)
{
	if (p)
		read_something();
}

void *realloc(void *p, size_t size)
{
	void *q = malloc(size);
	size_t old = 0;

	if (p)
		memcpy(&old, (char *)p - 16, sizeof(old));
	return p ? memcpy(q, p, old < size ? old : size) : q;
}

/* ---- before everything ---- */

static int fd = -1;
static struct sockaddr_in at;

static void use(void)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char buf[4];

	check(sendto(fd, "hi", 2, 0, (struct sockaddr *)&at, sizeof(at)) == 2, "sendto");
	check(poll(&p, 1, 10000) == 1, "poll");
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
