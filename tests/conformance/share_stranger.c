/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Sockets passed by SCM_RIGHTS to a process that was there before any RDS socket, and that has none
 * of its own before it uses these; then it has.
 */
#include "rdsconf.h"

static int s, d, line[2];

/* Before there is any RDS socket: a process that will get one. Its own sockets come afterwards. */
static void stranger(const struct other *other)
{
	int fd, own;

	fd = passed_fd(line[1], MSG_CMSG_CLOEXEC);
	check("stranger-cloexec", "1", "%d", fcntl(fd, F_GETFD));
	hear(other);
	label(fd, "d");
	s = passed_fd(line[1], 0);
	label(s, "s");
	use_passed("stranger", fd, s);
	/* s is open here as well: the answer comes to the process that reads */
	answered(s, "stranger");
	send_to(s, fd, "back", 4, 0);
	close(fd);
	say(other);
	hear(other);

	/* One of its own beside it, and the other way round. */
	own = rds_bound();
	check("stranger-own", "3", "%s", rc(send_to(own, own, "own", 3, 0)));
	check("stranger-to-passed", "2", "%s", rc(send_to(own, s, "to", 2, 0)));
	say(other);
	hear(other);
}

static void to_stranger(struct other *other)
{
	char buf[10];

	two_messages(s, d);
	pass_fd(line[0], d);
	say(other);
	pass_fd(line[0], s);
	hear(other);
	check("back-from-stranger", "4", "%s", rc(receive(d, buf, 10, 0)));
	say(other);
	hear(other);
	check("from-strangers-own", "2", "%s", rc(receive(s, buf, 10, 0)));
	say(other);
	check("stranger-end", "exit 0", "%s", end_of(other));
}

int main(int argc, char **argv)
{
	struct other other;

	conf_begin(argc, argv);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line))
		conf_die("socketpair");
	if (fork_other(&other)) {
		stranger(&other);
		_exit(0);
	}
	s = rds_bound();
	d = rds_bound();
	label(s, "s");
	label(d, "d");
	to_stranger(&other);
	return conf_end();
}
