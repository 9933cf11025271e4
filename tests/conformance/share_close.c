/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The last close of a socket that another process has opened, in each of its ways: when the call
 * returns the socket is gone, and its port is free at once.
 */
#include "rdsconf.h"

#include <sys/wait.h>

#define ROUNDS 20

static int line[2];
static struct name port;

/* By a child, which closes each and lives on. */
static void open_them(struct other *other)
{
	int fd;

	if (fork_other(other)) {
		for (unsigned i = 0; i < ROUNDS; i++) {
			fd = rds_socket();
			pass_fd(line[0], fd);
			close(fd);
			say(other);
			hear(other);
		}
		_exit(0);
	}
}

static void by_close(int fd)
{
	close(fd);
}

static void by_dup2(int fd)
{
	dup2(line[1], fd);
	close(fd);
}

static void by_range(int fd)
{
	close_range((unsigned)fd, (unsigned)fd, 0);
}

/* In a process of its own, which ends. */
static void by_exit(int fd)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		close(line[0]);
		recv(fd, &status, sizeof(status), MSG_DONTWAIT);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	close(fd);
}

static void rounds(const char *name, void (*end)(int fd))
{
	struct other other;
	unsigned good = 0;
	int fd, again;
	char buf[10];

	open_them(&other);
	for (unsigned i = 0; i < ROUNDS; i++) {
		fd = passed_fd(line[1], 0);
		hear(&other);
		if (bind(fd, &port.sa, port.len))
			break;
		if (sendto(fd, "x", 1, 0, &port.sa, port.len) == 1 && recv(fd, buf, sizeof(buf), 0) == 1)
			good++;
		end(fd);
		again = rds_socket();
		if (bind(again, &port.sa, port.len))
			break;
		good++;
		close(again);
		say(&other);
	}
	check(name, "40", "%u", good);
	check(text("%s-end", name), "exit 0", "%s", end_of(&other));
}

int main(int argc, char **argv)
{
	int fd;

	conf_begin(argc, argv);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line))
		conf_die("socketpair");
	fd = rds_bound();
	port = name_of(fd);
	close(fd);
	rounds("close", by_close);
	rounds("dup2", by_dup2);
	rounds("close-range", by_range);
	rounds("process", by_exit);
	return conf_end();
}
