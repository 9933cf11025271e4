/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_fortify - a program built with fortification and 64-bit offsets imports other names of
 * libc: __recv_chk, __read_chk, __recvfrom_chk, __poll_chk, __ppoll_chk, fcntl64, open64, __open_2.
 * They mean the same sockets; and an overflow still ends the program.
 */
#undef _FORTIFY_SOURCE
#define _FORTIFY_SOURCE 2
#define _FILE_OFFSET_BITS 64
#include "program.h"

#include <fcntl.h>
#include <signal.h>

static volatile size_t eight = 8, nine = 9, hundred = 100; /* the compiler must not know */
static volatile nfds_t two = 2;

static void overflow(int fd)
{
	char small[8];
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		close(2);
		signal(SIGABRT, SIG_DFL);
		recv(fd, small, nine, MSG_DONTWAIT);
		_exit(0);
	}
	check(waitpid(pid, &status, 0) == pid, "waitpid");
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "an overflow was let through: %#x", (unsigned)status);
}

int main(void)
{
	struct sockaddr_in me, from;
	int fd = bound(&me);
	struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = -1 } };
	struct timespec ts = { 10, 0 };
	socklen_t len = sizeof(from);
	volatile int read_only = O_RDONLY;
	char buf[8], text[16] = "";
	int f;

	for (int i = 0; i < 3; i++)
		check(sendto(fd, "hello", 5, 0, (struct sockaddr *)&me, sizeof(me)) == 5, "sendto");
	check(poll(p, two, TEST_COMES) == 1 && p[0].revents == POLLIN, "poll");
	check(ppoll(p, two, &ts, NULL) == 1 && p[0].revents == POLLIN, "ppoll");
	check(recv(fd, buf, eight, 0) == 5 && memcmp(buf, "hello", 5) == 0, "recv");
	check(poll(p, two, TEST_COMES) == 1, "poll");
	check(read(fd, buf, eight) == 5 && memcmp(buf, "hello", 5) == 0, "read");
	check(poll(p, two, TEST_COMES) == 1, "poll");
	check(recvfrom(fd, buf, eight, 0, (struct sockaddr *)&from, &len) == 5 && from.sin_port == me.sin_port, "recvfrom");
	check(fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK), "fcntl");
	check(recv(fd, buf, eight, 0) == -1 && errno == EAGAIN, "recv of nothing");
	check(poll(p, two, 0) == 0, "poll of nothing");
	f = open("/proc/sys/net/rds/pf_rds", read_only);
	if (f >= 0) { /* the kernel itself has no such file */
		check(read(f, text, hundred / 10) == 3 && strcmp(text, "21\n") == 0, "pf_rds: '%s'", text);
		close(f);
	}
	overflow(fd);
	close(fd);
	printf("fortified names, 64-bit offsets\n");
	return 0;
}
