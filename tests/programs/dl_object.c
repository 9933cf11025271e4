/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* dl_object - a library with an RDS socket of its own, for preload_dl. */
#include "program.h"

static int fd = -1;
static struct sockaddr_in at;

static void __attribute__((constructor)) loaded(void)
{
	fd = bound(&at);
}

/* Its socket; *sin gets its name. */
int dl_object_talk(struct sockaddr_in *sin)
{
	char buf[4];

	check(sendto(fd, "hi", 2, 0, (struct sockaddr *)&at, sizeof(at)) == 2, "sendto");
	check(recv(fd, buf, sizeof(buf), 0) == 2, "recv");
	*sin = at;
	return fd;
}

void dl_object_close(void)
{
	check(close(fd) == 0, "close");
	fd = -1;
}
