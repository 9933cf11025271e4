/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the other programs look at within one process, between two: the child has two sockets and
 * does what the parent tells it to, one order at a time, and the parent prints what came of it.
 * Data is checked by a sum.
 */
#include "rdsconf.h"

#include <sys/wait.h>

#define PARENT 4170
#define CHILD 4171 /* and the one behind it: the child's two sockets */
#define BIG 100000 /* not more than a socket's receive buffer from the start */

enum what { RECEIVE, SEND, QUEUED, POLL, SETTLE, CLOSE, BIND, OPTION, LEAVE };

struct order {
	enum what what;
	int which; /* of the child's sockets */
	/*
	 * RECEIVE: room; SEND: length; QUEUED: how many to wait for; OPTION: which one of
	 * SOL_SOCKET
	 */
	int value;
	int flags; /* RECEIVE, SEND */
	int more;  /* RECEIVE: iovecs behind the first one */
};

static char data[BIG], got[BIG];
static int line; /* the orders, and what comes of them */

static void fill(size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		data[i] = i * 7 + len;
}

/* Length, sum of what is in the buffer, flags, sender, control messages. */
static const char *receive_pieces(int fd, size_t room, int flags, int pieces)
{
	char control[256];
	struct iovec iov[8];
	struct msghdr msg = {
		.msg_iov = iov, .msg_iovlen = pieces, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c;
	const char *said;
	size_t each = room / pieces;
	int i;

	for (i = 0; i < pieces; i++)
		iov[i] = (struct iovec){got + i * each, i == pieces - 1 ? room - i * each : each};
	said = recvmsg_said(fd, &msg, flags);
	for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
		said = text("%s cmsg %d/%d", said, c->cmsg_level, c->cmsg_type);
	return said;
}

static long send_as_told(int fd, size_t len, int flags)
{
	struct name to = name_here(PARENT);

	fill(len);
	return sendto(fd, data, len, flags, &to.sa, to.len);
}

static const char *option(int fd, int which)
{
	int on = 1;

	return rc(setsockopt(fd, SOL_SOCKET, which, &on, sizeof(on)));
}

static const char *obey(const struct order *o, int *fds)
{
	struct pollfd pfd = {.fd = fds[o->which], .events = POLLIN | POLLOUT};

	switch (o->what) {
	case RECEIVE:
		return receive_pieces(pfd.fd, o->value, o->flags, 1 + o->more);
	case SEND:
		return rc(send_as_told(pfd.fd, o->value, o->flags));
	case QUEUED:
		return wait_queued(pfd.fd, o->value) ? "yes" : text("no, %d", queued(pfd.fd));
	case POLL:
		poll(&pfd, 1, 0);
		return poll_bits(pfd.revents);
	case SETTLE:
		settle(pfd.fd);
		return "settled";
	case CLOSE:
		return rc(close(pfd.fd));
	case BIND:
		fds[o->which] = rds_bound_to(CHILD + o->which);
		return "0";
	case OPTION:
		return option(pfd.fd, o->value);
	default:
		_exit(0);
	}
}

static void child(void)
{
	int fds[2] = {rds_bound_to(CHILD), rds_bound_to(CHILD + 1)};
	const char *said = "ready";
	struct order o;
	int i;

	alarm(test_alarm(60));
	for (i = 0; i < 2; i++)
		timeouts(fds[i], SO_RCVTIMEO, TEST_COMES);
	do {
		if (send(line, said, strlen(said) + 1, 0) < 0)
			_exit(1);
		if (recv(line, &o, sizeof(o), 0) != sizeof(o))
			_exit(1);
		said = obey(&o, fds);
	} while (said);
	_exit(1);
}

static const char *answer(void)
{
	char said[256];

	return recv(line, said, sizeof(said), 0) > 0 ? text("%s", said) : "the child is gone";
}

static void tell(struct order o)
{
	if (send(line, &o, sizeof(o), 0) != sizeof(o))
		conf_die("tell");
}

static const char *told(struct order o)
{
	tell(o);
	return answer();
}

#define CHILD_DOES(...) told((struct order){.what = __VA_ARGS__})

static pid_t start(void)
{
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends))
		conf_die("socketpair");
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		conf_die("fork");
	line = ends[!pid];
	close(ends[!!pid]);
	if (!pid)
		child();
	if (strcmp(answer(), "ready") != 0)
		conf_die("the child is not ready");
	return pid;
}

static long to_child(int fd, int which, size_t len)
{
	struct name to = name_here(CHILD + which);

	fill(len);
	return sendto(fd, data, len, 0, &to.sa, to.len);
}

/* Connections exist, and the congestion maps they begin with have come. */
static void warm(int fd)
{
	to_child(fd, 0, 1);
	check("warm-up", NULL, "%s", CHILD_DOES(RECEIVE, .value = 1));
	CHILD_DOES(SEND, .value = 2);
	check("warm-up-back", NULL, "%s", receive_pieces(fd, 2, 0, 1));
	CHILD_DOES(SETTLE);
}

static void peek_and_truncate(int fd)
{
	check("poll-empty", "OUT", "%s", CHILD_DOES(POLL));
	to_child(fd, 0, 5000);
	to_child(fd, 0, 0);
	to_child(fd, 0, BIG);
	check("three-there", "yes", "%s", CHILD_DOES(QUEUED, .value = 3));
	check("poll-full", "IN|OUT", "%s", CHILD_DOES(POLL));
	check("peek", NULL, "%s", CHILD_DOES(RECEIVE, .value = 5000, .flags = MSG_PEEK));
	check("peek-short", NULL, "%s", CHILD_DOES(RECEIVE, .value = 100, .flags = MSG_PEEK));
	check("peek-short-length", NULL, "%s", CHILD_DOES(RECEIVE, .value = 100, .flags = MSG_PEEK | MSG_TRUNC));
	check("still-three", "yes", "%s", CHILD_DOES(QUEUED, .value = 3));
	check("short", NULL, "%s", CHILD_DOES(RECEIVE, .value = 4097));
	check("rest-is-gone", NULL, "%s", CHILD_DOES(RECEIVE, .value = 5000));
	check("pieces", NULL, "%s", CHILD_DOES(RECEIVE, .value = BIG, .more = 6));
	check("empty", "-1 EAGAIN", "%s", CHILD_DOES(RECEIVE, .value = 10, .flags = MSG_DONTWAIT));
	check("poll-empty-again", "OUT", "%s", CHILD_DOES(POLL));
}

static void many(int fd)
{
	int i, sent = 0;

	/*
	 * More than the send buffer holds: what has arrived there makes room although nobody reads.
	 */
	rds_bufs(fd, 16384, 0);
	timeouts(fd, SO_SNDTIMEO, TEST_COMES);
	for (i = 0; i < 20; i++)
		sent += to_child(fd, 0, 4000 - i) == 4000 - i;
	check("twenty-sent", "20", "%d", sent);
	check("twenty-there", "yes", "%s", CHILD_DOES(QUEUED, .value = 20));
	check("twenty-first", NULL, "%s", CHILD_DOES(RECEIVE, .value = 4096));
	for (i = 1; i < 19; i++)
		CHILD_DOES(RECEIVE, .value = 4096);
	check("twenty-last", NULL, "%s", CHILD_DOES(RECEIVE, .value = 4096));
	check("too-long", "-1 EMSGSIZE", "%s", rc(to_child(fd, 0, 40000)));
	rds_bufs(fd, 212992, 0);
}

static void scattered(int fd)
{
	struct name to = name_here(CHILD + 1);
	struct iovec iov[4] = {{data, 1}, {data + 1, 4095}, {data + 4096, 0}, {data + 4096, 30000}};
	struct msghdr msg = {.msg_name = &to.ss, .msg_namelen = to.len, .msg_iov = iov, .msg_iovlen = 4};

	fill(34096);
	check("gather", "34096", "%s", rc(sendmsg(fd, &msg, 0)));
	check("gathered", NULL, "%s", CHILD_DOES(RECEIVE, .which = 1, .value = BIG));
	check("connect", "0", "%s", rc(connect(fd, &to.sa, to.len)));
	check("send-connected", "9", "%s", rc(send(fd, data, 9, 0)));
	check("got-connected", NULL, "%s", CHILD_DOES(RECEIVE, .which = 1, .value = 9));
	check("not-the-other", "-1 EAGAIN", "%s", CHILD_DOES(RECEIVE, .value = 9, .flags = MSG_DONTWAIT));
}

static void control(int fd)
{
	check("timestamps-on", "0", "%s", CHILD_DOES(OPTION, .value = SO_TIMESTAMP));
	to_child(fd, 0, 3);
	check("with-timestamp", NULL, "%s", CHILD_DOES(RECEIVE, .value = 3));
	to_child(fd, 1, 3);
	check("without-timestamp", NULL, "%s", CHILD_DOES(RECEIVE, .which = 1, .value = 3));
}

/* A blocked receive, on both sides. */
static void wakes(int fd, pid_t pid)
{
	tell((struct order){.what = RECEIVE, .value = 10});
	check("child-blocks", "1", "%d", process_asleep(pid));
	to_child(fd, 0, 10);
	check("child-wakes", NULL, "%s", answer());
	tell((struct order){.what = SEND, .which = 1, .value = 6000});
	check("parent-wakes", NULL, "%s", receive_pieces(fd, 6000, 0, 2));
	check("child-sent", "6000", "%s", answer());
}

/*
 * The port is closed and bound again; the other socket says when what came in between has been
 * dropped.
 */
static void port_gone(int fd)
{
	struct name closed = name_here(CHILD);

	check("unread", "5", "%s", rc(to_child(fd, 0, 5)));
	check("unread-there", "yes", "%s", CHILD_DOES(QUEUED, .value = 1));
	check("close", "0", "%s", CHILD_DOES(CLOSE));
	check("to-nobody", "6", "%s", rc(to_child(fd, 0, 6)));
	check("cancel", "0", "%s", rc(setsockopt(fd, SOL_RDS, RDS_CANCEL_SENT_TO, &closed.ss, closed.len)));
	to_child(fd, 1, 7);
	check("behind-it", NULL, "%s", CHILD_DOES(RECEIVE, .which = 1, .value = 7));
	check("bind-again", "0", "%s", CHILD_DOES(BIND));
	check("nothing-left", "-1 EAGAIN", "%s", CHILD_DOES(RECEIVE, .value = 7, .flags = MSG_DONTWAIT));
	to_child(fd, 0, 8);
	check("new-one", NULL, "%s", CHILD_DOES(RECEIVE, .value = 8));
}

/* What has arrived stays when its sender goes; a copy of a descriptor is the same socket. */
static void sender_gone(int fd, pid_t pid)
{
	int copy = dup(fd);

	CHILD_DOES(SEND, .value = 11);
	CHILD_DOES(SEND, .which = 1, .value = BIG);
	check("two-here", "1", "%d", wait_queued(fd, 2));
	close(fd);
	tell((struct order){.what = LEAVE});
	waitpid(pid, NULL, 0);
	check("first-of-the-gone", NULL, "%s", receive_pieces(copy, BIG, 0, 1));
	check("second-of-the-gone", NULL, "%s", receive_pieces(copy, BIG, 0, 3));
	check("no-third", "-1 EAGAIN", "%s", receive_pieces(copy, BIG, MSG_DONTWAIT, 1));
	check("to-the-gone", "12", "%s", rc(to_child(copy, 0, 12)));
	close(copy);
}

int main(int argc, char **argv)
{
	pid_t pid;
	int fd;

	conf_begin(argc, argv);
	pid = start();
	fd = rds_bound_to(PARENT);
	timeouts(fd, SO_RCVTIMEO, TEST_COMES);
	warm(fd);
	peek_and_truncate(fd);
	many(fd);
	scattered(fd);
	control(fd);
	wakes(fd, pid);
	port_gone(fd);
	sender_gone(fd, pid);
	return conf_end();
}
