// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Sockets passed by SCM_RIGHTS to a process that was there before any RDS socket, and that has none of its own before it
 * uses these; then it has.
 */
#include "rdsconf.h"

#include <sys/stat.h>

static int s, d, line[2];

static const char *from_s(int fd)
{
	struct name from = {.len = sizeof(from.ss)};
	char buf[20] = "";
	long r = wait_message(fd) ? recvfrom(fd, buf, sizeof(buf), MSG_DONTWAIT, &from.sa, &from.len) : -1;

	return r < 0 ? rc(r) : text("%ld %.10s from %s", r, buf, who(&from));
}

/* Uses a socket in every way, as if it had always been there. */
static void use(const char *name, int fd)
{
	struct name own = name_of(fd);
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	struct stat st;
	int value = -1;

	check(text("%s-name", name), NULL, "%s", who(&own));
	fstat(fd, &st);
	check(text("%s-is-a-socket", name), "1", "%d", S_ISSOCK(st.st_mode));
	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &(socklen_t){4});
	check(text("%s-domain", name), text("%d", AF_RDS), "%d", value);
	check(text("%s-first", name), NULL, "%s", from_s(fd));
	check(text("%s-second", name), NULL, "%s", from_s(fd));
	check(text("%s-empty", name), "-1 EAGAIN", "%s", rc(recv(fd, &value, 1, MSG_DONTWAIT)));
	settle(fd);
	poll(&pfd, 1, 0);
	check(text("%s-poll", name), "0", "%s", poll_bits(pfd.revents));
	check(text("%s-send", name), "6", "%s", rc(send_to(fd, s, "answer", 6, 0)));
}

static void answered(const char *name)
{
	char buf[10] = "";

	check(text("%s-answer", name), "6", "%s", rc(receive(s, buf, 10, 0)));
	check(text("%s-answer-is", name), "answer", "%.6s", buf);
}

static void two_messages(void)
{
	send_to(s, d, "one", 3, 0);
	send_to(s, d, "two", 3, 0);
	if (!wait_message(d))
		conf_die("two messages");
}

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
	use("stranger", fd);
	/* s is here as well: the answer comes to whoever asks. */
	answered("stranger");
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

	two_messages();
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
