/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_dl OBJECT: a library that opens an RDS socket when it is loaded (dl_object.c) is loaded
 * and unloaded, with its socket closed, or left open: then it is the program's, works, and goes by
 * close() or with the process.
 */
#include "program.h"

#include <dlfcn.h>

enum { ROUNDS = 30 };

/* What the library has opened, which is still there; -1 if it was told to close it. */
static int load(const char *path, int leave, struct sockaddr_in *sin)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	int (*talk)(struct sockaddr_in *);
	void (*end)(void);
	int fd;

	check(handle != NULL, "%s", dlerror());
	talk = (int (*)(struct sockaddr_in *))dlsym(handle, "dl_object_talk");
	end = (void (*)(void))dlsym(handle, "dl_object_close");
	check(talk && end, "dlsym");
	fd = talk(sin);
	if (!leave)
		end();
	check(dlclose(handle) == 0, "dlclose");
	check(!dlopen(path, RTLD_NOW | RTLD_NOLOAD), "it is still loaded");
	return leave ? fd : -1;
}

int main(int argc, char **argv)
{
	struct sockaddr_in sin, other;
	int before, fd, again;
	char buf[8];

	check(argc > 1, "the object?");
	before = descriptors();
	for (int i = 0; i < ROUNDS; i++)
		load(argv[1], 0, &sin);
	/* What the first socket opens stays: fewer than one for each round. */
	check(descriptors() - before < ROUNDS, "%d descriptors, then %d", before, descriptors());

	fd = load(argv[1], 1, &sin);
	again = load(argv[1], 1, &other); /* loaded anew, with a socket of its own */
	check(again != fd && other.sin_port != sin.sin_port, "the same socket");
	check(sendto(again, "hello", 5, 0, (struct sockaddr *)&sin, sizeof(sin)) == 5, "sendto");
	check(recv(fd, buf, sizeof(buf), 0) == 5, "recv");
	check(close(fd) == 0, "close");

	fd = socket(PF_RDS, SOCK_SEQPACKET, 0);
	check(bind(fd, (struct sockaddr *)&sin, sizeof(sin)) == 0, "its port is not free");
	check(sendto(fd, "last", 4, 0, (struct sockaddr *)&other, sizeof(other)) == 4, "sendto");
	check(recv(again, buf, sizeof(buf), 0) == 4, "recv");
	printf("loaded and unloaded, with its socket closed and left open\n");
	return 0; /* with both open */
}
