/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A socket that two processes have by fork is one socket: its names, options and flags are the same
 * in both, whichever has set them, and it lives as long as one of them has it.
 */
#include "rdsconf.h"

#include <sys/ioctl.h>
#include <sys/stat.h>

static int s, d, fresh;
static ino_t inode;

/* What two processes see alike is printed by both, the second one's lines with a word in front. */
static const char *prefix = "";

static void names(const char *when)
{
	struct name own = name_of(d), peer = {.len = sizeof(peer.ss)};
	struct stat st;
	int r = getpeername(d, &peer.sa, &peer.len);

	check(text("%s%s-own", prefix, when), NULL, "%s", who(&own));
	check(text("%s%s-peer", prefix, when), NULL, "%s", r ? rc(r) : who(&peer));
	fstat(d, &st);
	check(text("%s%s-inode", prefix, when), "same 1 socket 1", "same %d socket %d", st.st_ino == inode,
	      S_ISSOCK(st.st_mode));
}

static void child_connects(void)
{
	struct name to = name_of(s);

	prefix = "child-";
	names("before-connect");
	check("child-connects", "0", "%s", rc(connect(d, &to.sa, to.len)));
	check("child-sends-connected", "3", "%s", rc(send(d, "abc", 3, 0)));
	names("connected");
}

static void one_name(void)
{
	struct name from = {.len = sizeof(from.ss)};
	char buf[8];
	struct stat st;

	fstat(d, &st);
	inode = st.st_ino;
	elsewhere(child_connects);
	names("connected-by-child");
	check("child-sent", "1", "%d", wait_message(s));
	check("child-sent-length", "3", "%s", rc(recvfrom(s, buf, 8, 0, &from.sa, &from.len)));
	check("child-sent-from", NULL, "%s", who(&from));
	check("parent-sends-connected", "2", "%s", rc(send(d, "de", 2, 0)));
	check("parent-sent", "2", "%s", rc(receive(s, buf, 8, 0)));
}

static int integer(int level, int which)
{
	int value = -7;
	socklen_t len = sizeof(value);

	if (getsockopt(d, level, which, &value, &len))
		return -1;
	return value;
}

static int set(int level, int which, int value)
{
	return setsockopt(d, level, which, &value, sizeof(value));
}

static void options(const char *when)
{
	struct timeval rcv = {0}, snd = {0};
	uint8_t tos = 99;
	int r;

	getsockopt(d, SOL_SOCKET, SO_RCVTIMEO, &rcv, &(socklen_t){sizeof(rcv)});
	getsockopt(d, SOL_SOCKET, SO_SNDTIMEO, &snd, &(socklen_t){sizeof(snd)});
	check(text("%s%s-recverr", prefix, when), NULL, "%d", integer(SOL_RDS, RDS_RECVERR));
	check(text("%s%s-buffers", prefix, when), NULL, "%d %d", integer(SOL_SOCKET, SO_SNDBUF),
	      integer(SOL_SOCKET, SO_RCVBUF));
	check(text("%s%s-timeouts", prefix, when), NULL, "%ld.%06ld %ld.%06ld", rcv.tv_sec, rcv.tv_usec, snd.tv_sec,
	      snd.tv_usec);
	check(text("%s%s-timestamp", prefix, when), NULL, "%d", integer(SOL_SOCKET, SO_TIMESTAMP));
	r = ioctl(d, SIOCRDSGETTOS, &tos);
	check(text("%s%s-tos", prefix, when), NULL, "%s %u", rc(r), tos);
	check(text("%s%s-tos-constant", prefix, when), "-1 EFAULT", "%s", rc(ioctl(d, SIOCRDSGETTOS, (void *)"?")));
	check(text("%s%s-what", prefix, when), NULL, "%d %d %d %d", integer(SOL_SOCKET, SO_DOMAIN),
	      integer(SOL_SOCKET, SO_TYPE), integer(SOL_SOCKET, SO_PROTOCOL), integer(SOL_SOCKET, SO_ERROR));
	check(text("%s%s-transport", prefix, when), NULL, "%d", integer(SOL_RDS, SO_RDS_TRANSPORT) == conf_transport);
}

static void tune(int by)
{
	uint8_t tos = by;

	check(text("%sset-recverr", prefix), "0", "%s", rc(set(SOL_RDS, RDS_RECVERR, by & 1)));
	check(text("%sset-monitor", prefix), "0", "%s", rc(set(SOL_RDS, RDS_CONG_MONITOR, by & 1)));
	rds_bufs(d, 20000 + by, 30000 + by);
	timeouts(d, SO_RCVTIMEO, 2000 + 4 * by);
	timeouts(d, SO_SNDTIMEO, 3000 + 4 * by);
	check(text("%sset-timestamp", prefix), "0", "%s", rc(set(SOL_SOCKET, SO_TIMESTAMP, by & 1)));
	/* A type of service is chosen once, and only before the first message. */
	check(text("%sset-tos", prefix), NULL, "%s", rc(ioctl(d, SIOCRDSSETTOS, &tos)));
	check(text("%sset-nothing", prefix), "-1 ENOPROTOOPT", "%s", rc(set(SOL_RDS, 99, 1)));
	check(text("%sset-short", prefix), NULL, "%s", rc(setsockopt(d, SOL_RDS, RDS_RECVERR, &by, 2)));
	check(text("%sget-short", prefix), NULL, "%s", rc(getsockopt(d, SOL_RDS, RDS_RECVERR, &by, &(socklen_t){2})));
	check(text("%sget-nowhere", prefix), "-1 EFAULT", "%s",
	      rc(getsockopt(d, SOL_SOCKET, SO_SNDBUF, conf_bad, &(socklen_t){4})));
}

static void child_tunes(void)
{
	prefix = "child-";
	options("inherited");
	tune(11);
	options("tuned");
	timeouts(d, SO_RCVTIMEO, 2044); /* not yet asked for by the parent */
}

static void one_state(void)
{
	struct other other;

	options("fresh");
	elsewhere(child_tunes);
	options("tuned-by-child");
	if (fork_other(&other)) {
		prefix = "second-";
		hear(&other);
		options("tuned-by-parent");
		_exit(0);
	}
	tune(4);
	say(&other);
	check("second-child", "exit 0", "%s", end_of(&other));
}

static void child_nonblocking(void)
{
	char byte;
	int on = 0;

	check("child-nonblock-inherited", "1", "%d", !!(fcntl(d, F_GETFL) & O_NONBLOCK));
	check("child-empty", "-1 EAGAIN", "%s", rc(recv(d, &byte, 1, 0)));
	check("child-cloexec-inherited", "1", "%d", fcntl(d, F_GETFD));
	check("child-cloexec-off", "0", "%s", rc(fcntl(d, F_SETFD, 0)));
	check("child-fionbio-off", "0", "%s", rc(ioctl(d, FIONBIO, &on)));
	check("child-getfl", "0", "%d", !!(fcntl(d, F_GETFL) & O_NONBLOCK));
	on = 1;
	check("child-fionbio-on", "0", "%s", rc(ioctl(fresh, FIONBIO, &on)));
}

/* O_NONBLOCK belongs to the socket, close-on-exec to the number in one process. */
static void flags(void)
{
	struct other other;
	char byte;

	fcntl(d, F_SETFL, O_NONBLOCK);
	fcntl(d, F_SETFD, FD_CLOEXEC);
	elsewhere(child_nonblocking);
	check("nonblock-off-by-child", "0", "%d", !!(fcntl(d, F_GETFL) & O_NONBLOCK));
	check("nonblock-on-by-child", "1", "%d", !!(fcntl(fresh, F_GETFL) & O_NONBLOCK));
	check("cloexec-stays", "1", "%d", fcntl(d, F_GETFD));
	fcntl(fresh, F_SETFL, 0);
	fcntl(d, F_SETFD, 0);
	if (fork_other(&other)) {
		hear(&other);
		check("child-sees-nonblock", "1", "%d", !!(fcntl(d, F_GETFL) & O_NONBLOCK));
		check("child-sees-nonblock-recv", "-1 EAGAIN", "%s", rc(recv(d, &byte, 1, 0)));
		_exit(0);
	}
	fcntl(d, F_SETFL, O_NONBLOCK);
	say(&other);
	check("child-of-nonblock", "exit 0", "%s", end_of(&other));
	fcntl(d, F_SETFL, 0);
}

static void child_binds(void)
{
	struct name name = name_here(0), own;
	char buf[8];

	check("child-unbound-recv", NULL, "%s", rc(recv(fresh, buf, 1, MSG_DONTWAIT)));
	check("child-unbound-send", "-1 ENOTCONN", "%s", rc(send(fresh, "x", 1, 0)));
	check("child-unbound-send-to", "-1 ENOTCONN", "%s", rc(send_to(fresh, s, "x", 1, 0)));
	own = name_of(fresh);
	check("child-unbound-name", NULL, "%s", who(&own));
	check("child-binds", "0", "%s", rc(bind(fresh, &name.sa, name.len)));
	check("child-binds-again", "-1 EINVAL", "%s", rc(bind(fresh, &name.sa, name.len)));
	name = name_of(s);
	check("child-connects-fresh", "0", "%s", rc(connect(fresh, &name.sa, name.len)));
	send_to(s, fresh, "kept", 4, 0);
}

/* Opened by the parent, bound and connected by a child that is gone when the parent uses it. */
static void late_bind(void)
{
	struct name name = name_here(0);
	char buf[8];

	elsewhere(child_binds);
	label(fresh, "fresh");
	check("bound-by-child-message", "4", "%s", rc(receive(fresh, buf, 8, 0)));
	name = name_of(fresh);
	check("bound-by-child-name", NULL, "%s", who(&name));
	name = name_here(0);
	check("bound-by-child-bind", "-1 EINVAL", "%s", rc(bind(fresh, &name.sa, name.len)));
	check("bound-by-child-send", "5", "%s", rc(send(fresh, "hello", 5, 0)));
	check("bound-by-child-arrives", "5", "%s", rc(receive(s, buf, 8, 0)));
}

static const char *bind_another(const struct name *name)
{
	int fd = rds_socket();
	const char *said = rc(bind(fd, &name->sa, name->len));

	close(fd);
	return said;
}

/* One closes, the other one goes on; then the other way round. */
static void one_life(void)
{
	struct name name = name_of(d);
	struct other other;
	char buf[8];

	if (fork_other(&other)) {
		check("child-close", "0", "%s", rc(close(d)));
		check("child-closed", "-1 EBADF", "%s", rc(recv(d, buf, 1, MSG_DONTWAIT)));
		_exit(0);
	}
	check("child-has-closed", "exit 0", "%s", end_of(&other));
	send_to(s, d, "a", 1, 0);
	check("parent-goes-on", "1", "%s", rc(receive(d, buf, 8, 0)));
	send_to(s, d, "unread", 6, 0);
	wait_message(d);
	if (fork_other(&other)) {
		hear(&other);
		check("child-has-message", "6", "%s", rc(receive(d, buf, 8, 0)));
		check("child-in-use", "-1 EADDRINUSE", "%s", bind_another(&name));
		check("child-sends-on", "2", "%s", rc(send_to(d, s, "on", 2, 0)));
		_exit(0);
	}
	check("parent-close", "0", "%s", rc(close(d)));
	check("parent-closed", "-1 EBADF", "%s", rc(recv(d, buf, 1, MSG_DONTWAIT)));
	check("parent-in-use", "-1 EADDRINUSE", "%s", bind_another(&name));
	say(&other);
	check("parent-receives", "2", "%s", rc(receive(s, buf, 8, 0)));
	check("last-holder", "exit 0", "%s", end_of(&other));
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	s = rds_bound();
	d = rds_bound();
	label(s, "s");
	label(d, "d");
	fresh = rds_socket();
	one_name();
	one_state();
	flags();
	late_bind();
	one_life();
	return conf_end();
}
