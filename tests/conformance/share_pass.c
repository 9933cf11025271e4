/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Sockets passed by SCM_RIGHTS between relatives: while they lie in a queue and no process has
 * them, to oneself, made by a child that is gone when the parent uses them, or by one that had
 * children itself before.
 */
#include "rdsconf.h"

#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int s, d, line[2];

/*
 * The sender has closed its number before the other one takes the socket out of the queue: no
 * process has it meanwhile.
 */
static void in_flight(void)
{
	struct name name = name_of(d);
	struct other other;
	int fd;

	if (fork_other(&other)) {
		close(d);
		say(&other);
		hear(&other);
		use_passed("in-flight", passed_fd(line[1], 0), s);
		_exit(0);
	}
	hear(&other);
	send_to(s, d, "one", 3, 0);
	pass_fd(line[0], d);
	close(d);
	sendto(s, "two", 3, 0, &name.sa, name.len);
	fd = rds_socket();
	check("in-flight-in-use", "-1 EADDRINUSE", "%s", rc(bind(fd, &name.sa, name.len)));
	close(fd);
	say(&other);
	answered(s, "in-flight");
	check("in-flight-end", "exit 0", "%s", end_of(&other));
	d = rds_bound();
	label(d, "d");
}

/* Passed to oneself, which is one more number of the same socket. */
static void to_oneself(void)
{
	struct stat one, two;
	int fd;

	two_messages(s, d);
	pass_fd(line[0], d);
	fd = passed_fd(line[1], 0);
	fstat(d, &one);
	fstat(fd, &two);
	check("oneself-same", "1", "%d", one.st_ino == two.st_ino);
	use_passed("oneself", fd, s);
	answered(s, "oneself");
	send_to(s, d, "one", 3, 0);
	send_to(s, d, "two", 3, 0);
	pass_fd(line[0], d);
	close(d);
	close(fd);
	d = passed_fd(line[1], 0);
	use_passed("oneself-alone", d, s);
	answered(s, "oneself-alone");
}

/*
 * A socket made in a child, bound there or not, and passed to the parent; the child has gone when
 * it is used.
 */
static void made_in_child(void)
{
	struct other other;
	struct name name;
	char buf[10];
	int fd, other_fd;

	if (fork_other(&other)) {
		fd = rds_socket();
		pass_fd(line[0], fd);
		check("child-has-passed", "0", "%s", rc(close(fd)));
		hear(&other);
		_exit(0);
	}
	fd = passed_fd(line[1], 0);
	name = name_here(0);
	check("childs-bind", "0", "%s", rc(bind(fd, &name.sa, name.len)));
	label(fd, "fd");
	name = name_of(s);
	check("childs-connect", "0", "%s", rc(connect(fd, &name.sa, name.len)));
	say(&other);
	check("child-end", "exit 0", "%s", end_of(&other));
	name = name_of(fd);
	check("childs-name", NULL, "%s", who(&name));
	check("childs-send", "3", "%s", rc(send(fd, "abc", 3, 0)));
	check("childs-arrives", "3", "%s", rc(receive(s, buf, 10, 0)));
	other_fd = rds_socket();
	check("childs-in-use", "-1 EADDRINUSE", "%s", rc(bind(other_fd, &name.sa, name.len)));
	close(other_fd);
	send_to(s, fd, "back", 4, 0);
	check("childs-back", "4", "%s", rc(receive(fd, buf, 10, 0)));
	close(fd);
}

/*
 * A process forks others before it has a socket.  Each process that gets the socket can use it at
 * once.
 */
static void made_after_a_fork(void)
{
	struct other other;
	struct name name;
	pid_t pid;
	int fd;

	if (fork_other(&other)) {
		pid = fork();
		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
		fd = rds_socket();
		pass_fd(line[0], fd);
		hear(&other);
		_exit(0);
	}
	fd = passed_fd(line[1], 0);
	name = name_here(0);
	check("after-a-fork-bind", "0", "%s", rc(bind(fd, &name.sa, name.len)));
	check("after-a-fork-send", "3", "%s", rc(send_to(s, fd, "abc", 3, 0)));
	check("after-a-fork-arrives", "3", "%s", rc(wait_message(fd) ? recv(fd, &name, 10, MSG_DONTWAIT) : -1));
	say(&other);
	check("after-a-fork-end", "exit 0", "%s", end_of(&other));
	close(fd);
}

/* Made in a child, and looked at only by a set of RDNORM, as a test of the kernel's does it. */
static void rdnorm_only(void)
{
	struct epoll_event event = {.events = EPOLLRDNORM, .data.u32 = 7};
	struct name name = name_here(0);
	struct other other;
	char buf[10];
	int fd, ep;

	if (fork_other(&other)) {
		fd = rds_socket();
		check("rdnorm-bind", "0", "%s", rc(bind(fd, &name.sa, name.len)));
		pass_fd(line[0], fd);
		hear(&other); /* the parent has it */
		_exit(0);
	}
	fd = passed_fd(line[1], 0);
	ep = epoll_create1(0);
	check("rdnorm-add", "0", "%s", rc(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event)));
	fcntl(fd, F_SETFL, O_NONBLOCK);
	check("rdnorm-empty", "0", "%d", epoll_wait(ep, &event, 1, 0));
	send_to(s, fd, "event", 5, 0);
	event.data.u32 = 0;
	check("rdnorm-event", "1", "%d", epoll_wait(ep, &event, 1, TEST_COMES));
	check("rdnorm-bits", "RDNORM 7", "%s %u", poll_bits(event.events), event.data.u32);
	check("rdnorm-recv", "5", "%s", rc(recv(fd, buf, 10, 0)));
	check("rdnorm-nothing", "0", "%d", epoll_wait(ep, &event, 1, 0));
	say(&other);
	check("rdnorm-end", "exit 0", "%s", end_of(&other));
	close(fd);
	close(ep);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line))
		conf_die("socketpair");
	s = rds_bound();
	d = rds_bound();
	label(s, "s");
	label(d, "d");
	in_flight();
	to_oneself();
	made_in_child();
	made_after_a_fork();
	rdnorm_only();
	return conf_end();
}
