/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Several descriptors of one socket: one queue, one set of options, one life. */
#include "rdsconf.h"

#include <sys/stat.h>

static int s, d, copy;

static void shared_flags(void)
{
	int value = 1;
	char byte;

	check("setfl-on-one", "0", "%s", rc(fcntl(d, F_SETFL, O_NONBLOCK)));
	check("getfl-on-other", "1", "%d", !!(fcntl(copy, F_GETFL) & O_NONBLOCK));
	check("recv-on-other", "-1 EAGAIN", "%s", rc(recv(copy, &byte, 1, 0)));
	check("setfl-back", "0", "%s", rc(fcntl(copy, F_SETFL, 0)));
	check("getfl-back", "0", "%d", !!(fcntl(d, F_GETFL) & O_NONBLOCK));
	check("cloexec-on-one", "0", "%s", rc(fcntl(copy, F_SETFD, FD_CLOEXEC)));
	check("cloexec-not-on-other", "0", "%d", fcntl(d, F_GETFD));
	check("option-on-one", "0", "%s", rc(setsockopt(d, SOL_RDS, RDS_RECVERR, &value, 4)));
	value = 0;
	getsockopt(copy, SOL_RDS, RDS_RECVERR, &value, &(socklen_t){ 4 });
	check("option-on-other", "1", "%d", value);
}

static void shared_queue(void)
{
	struct name one = name_of(d), other = name_of(copy);
	struct stat a, b;
	char buf[8];

	check("same-name", "1", "%d", !memcmp(&one, &other, sizeof(one)));
	fstat(d, &a);
	fstat(copy, &b);
	check("same-inode", "1", "%d", a.st_ino == b.st_ino);
	send_to(s, d, "a", 1, 0);
	send_to(s, d, "b", 1, 0);
	check("first-through-copy", "1", "%s", rc(receive(copy, buf, 8, 0)));
	check("first-is-a", "a", "%c", buf[0]);
	check("second-through-original", "1", "%s", rc(receive(d, buf, 8, 0)));
	check("second-is-b", "b", "%c", buf[0]);
	check("none-left", "-1 EAGAIN", "%s", rc(recv(copy, buf, 8, MSG_DONTWAIT)));
	check("send-through-copy", "1", "%s", rc(send_to(copy, s, "c", 1, 0)));
	check("arrives", "1", "%s", rc(receive(s, buf, 8, 0)));
}

static void one_life(void)
{
	char buf[8];
	int last;

	check("dup2", "1", "%d", dup2(copy, 77) == 77);
	check("dup3", "1", "%d", dup3(copy, 78, O_CLOEXEC) == 78);
	check("dup3-same", "-1 EINVAL", "%s", rc(dup3(copy, copy, 0)));
	last = fcntl(copy, F_DUPFD, 80);
	check("close-original", "0", "%s", rc(close(d)));
	check("closed-is-closed", "-1 EBADF", "%s", rc(recv(d, buf, 1, MSG_DONTWAIT)));
	send_to(s, copy, "d", 1, 0);
	check("copy-lives", "1", "%s", rc(receive(copy, buf, 8, 0)));
	close(copy);
	send_to(s, 77, "e", 1, 0);
	check("dup2-copy-lives", "1", "%s", rc(receive(77, buf, 8, 0)));
	close(77);
	close(78);
	send_to(s, last, "f", 1, 0);
	check("last-copy-lives", "1", "%s", rc(receive(last, buf, 8, 0)));
	/* A file put over the last descriptor ends the socket. */
	dup2(0, last);
	check("replaced", "-1 ENOTSOCK", "%s", rc(recv(last, buf, 8, MSG_DONTWAIT)));
}

/* The number of a closed RDS socket used for something else. */
static void number_reused(void)
{
	int fd = rds_bound(), p[2], n = fd;
	char byte = 0;
	long r;

	close(fd);
	if (pipe(p))
		conf_die("pipe");
	check("number-reused", "1", "%d", p[0] == n || p[1] == n);
	r = write(p[1], "x", 1);
	check("pipe-write", "1", "%s", rc(r));
	check("pipe-read", "1", "%s", rc(read(p[0], &byte, 1)));
	check("pipe-recv", "-1 ENOTSOCK", "%s", rc(recv(p[0], &byte, 1, MSG_DONTWAIT)));
	close(p[0]);
	close(p[1]);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	s = rds_bound();
	d = rds_bound();
	copy = dup(d);
	shared_flags();
	shared_queue();
	one_life();
	number_reused();
	return conf_end();
}
