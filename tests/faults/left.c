/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * left.c - a process ends, or executes another program, while its messages fill both the way to a
 * stopped receiver and the socket's send buffer.  Another process has the socket.  All messages
 * arrive, once, in order, before those of the other process.  The send buffer is as full for that
 * process, and it gets the reports.
 *
 * Also: a queue of which each message was shown to a process that waits for edges, by an owner that
 * has no number of the socket any more, is still there when the owner ends.
 *
 * A plain PF_RDS program.  The runner gives the library a short time to wait for the receiver.  A
 * process that does not wait for it, because the other one asks, is in left_asked.c.
 */
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "left.h"

#define CMSG_STATUS 4
#define CMSG_ASYNC_SEND 10
#define NOTIFY_ME 0x100

/* from that one on the ends of messages are reported: far more are sent than there is room for */
#define TOLD 40
#define SOME 30 /* find room on the way at most */
#define HOPS 5
#define ROW 5
#define EDGES 500

struct notify {
	uint64_t token;
	int32_t status;
	uint32_t pad;
};

static ssize_t put_told(int fd, int number)
{
	struct sockaddr_in to = name_of(home(), PORT);
	struct {
		uint64_t token, flags;
	} args = {(uint64_t)number, NOTIFY_ME};
	union {
		char bytes[CMSG_SPACE(sizeof(args))];
		struct cmsghdr c;
	} control = {{0}};
	struct iovec iov = {buf, sizeof(buf)};
	struct msghdr msg = {.msg_name = &to,
			     .msg_namelen = sizeof(to),
			     .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};

	memcpy(buf, &number, sizeof(number));
	control.c.cmsg_level = SOL_RDS;
	control.c.cmsg_type = CMSG_ASYNC_SEND;
	control.c.cmsg_len = CMSG_LEN(sizeof(args));
	memcpy(CMSG_DATA(&control.c), &args, sizeof(args));
	return sendmsg(fd, &msg, MSG_DONTWAIT);
}

static void is_told(int fd, int end)
{
	int next = TOLD;

	while (next < end) {
		union {
			char bytes[CMSG_SPACE(sizeof(struct notify))];
			struct cmsghdr c;
		} control = {{0}};
		struct msghdr msg = {.msg_control = &control, .msg_controllen = sizeof(control)};
		struct pollfd p = {.fd = fd, .events = POLLIN};
		struct notify n;

		if (poll(&p, 1, TEST_COMES) <= 0)
			test_late("what is to be told");
		if (recvmsg(fd, &msg, MSG_DONTWAIT) < 0 || !msg.msg_controllen || control.c.cmsg_type != CMSG_STATUS)
			continue;
		memcpy(&n, CMSG_DATA(&control.c), sizeof(n));
		if (n.token != (uint64_t)next++ || n.status)
			fail("told of %d that it is %d", (int)n.token, n.status);
	}
}

static void goes_on(int fd, int go, int count, pid_t to)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int n, all, i;

	alarm(test_alarm(60));			     /* its parent is to go */
	check(read(go, &n, sizeof(n)) == sizeof(n)); /* the first one has gone */
	all = n;
	/*
	 * What has left the queue is on its way, which cannot be seen from here; the rest fills the
	 * queue.
	 */
	while (put(fd, all, MSG_DONTWAIT) == sizeof(buf))
		all++;
	check(errno == EAGAIN);
	if (all - n > SOME)
		fail("the send buffer took %d more", all - n);
	check(poll(&p, 1, 0) == 0);
	check(kill(to, SIGCONT) == 0);
	if (poll(&p, 1, TEST_COMES) != 1)
		test_late("a send buffer that becomes free");
	for (i = 0; i < NEW; i++)
		check(put(fd, all++, 0) == sizeof(buf));
	check(write(count, &all, sizeof(all)) == sizeof(all));
	check(put(fd, LAST, 0) == sizeof(buf));
	is_told(fd, n);
	_exit(0);
}

/* How many it has sent. */
static int fill(int fd)
{
	int n = 0;

	while ((n < TOLD ? put(fd, n, MSG_DONTWAIT) : put_told(fd, n)) == sizeof(buf))
		n++;
	check(errno == EAGAIN);
	if (n < TOLD + 10)
		fail("the send buffer takes %d messages only", n);
	return n;
}

/*
 * sent: tells how many were sent; go: the process that goes on is told by it when this one is gone.
 */
static void leaves(bool exec, unsigned port, pid_t to, int sent, int go, int count)
{
	int fd = rds_bound(home(), port), size = 1 << 23, n;
	char c;

	child_begins();
	check(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0);
	check(put(fd, HELLO, 0) == sizeof(buf) && recv(fd, &c, 1, 0) == 1);
	n = fork();
	check(n >= 0);
	if (!n)
		goes_on(fd, go, count, to);
	check(kill(to, SIGSTOP) == 0);
	n = fill(fd);
	check(write(sent, &n, sizeof(n)) == sizeof(n));
	if (!exec)
		_exit(0);
	execlp("sleep", "sleep", "0", NULL);
	_exit(99);
}

static void one(bool exec, unsigned port)
{
	int ready[2], sent[2], counts[2], go[2], n;
	pid_t to, from;

	check(pipe(ready) == 0 && pipe(sent) == 0 && pipe(counts) == 0 && pipe(go) == 0);
	to = start_receiver(ready, counts[0]);
	from = fork();
	check(from >= 0);
	if (!from)
		leaves(exec, port, to, sent[1], go[0], counts[1]);
	has_ended(from);
	check(read(sent[0], &n, sizeof(n)) == sizeof(n));
	check(write(go[1], &n, sizeof(n)) == sizeof(n));
	has_ended(to);
	for (n = 0; n < 2; n++) {
		close(ready[n]);
		close(sent[n]);
		close(counts[n]);
		close(go[n]);
	}
}

/* ---- one after another, and the receiver knows all of them: the later ones from before ---- */

static void row(int fd, int hop)
{
	int i;

	for (i = 0; i < ROW; i++)
		check(put(fd, hop * ROW + i, 0) == sizeof(buf));
}

static void greet(int fd)
{
	char c;

	check(put(fd, HELLO, 0) == sizeof(buf) && recv(fd, &c, 1, 0) == 1);
}

static void hop(int fd, int number, int there, int go, int done)
{
	const pid_t self = getpid();
	char c;

	alarm(test_alarm(60));
	greet(rds_bound(home(), (unsigned)(PORT + 3 + number)));
	check(write(there, &self, sizeof(self)) == sizeof(self));
	check(read(go, &c, 1) == 1);
	row(fd, number);
	if (number == HOPS - 1)
		check(put(fd, LAST, 0) == sizeof(buf) && write(done, "", 1) == 1 && read(go, &c, 1) == 1);
	_exit(0);
}

static void first_hop(pid_t to, int there[2], int go[HOPS][2], int done, pid_t *pids)
{
	int fd = rds_bound(home(), PORT + 3), size = 1 << 23, i;

	child_begins();
	check(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0);
	for (i = HOPS - 1; i > 0; i--) {
		if (!fork())
			hop(fd, i, there[1], go[i][0], done);
		check(read(there[0], &pids[i], sizeof(pids[i])) == sizeof(pids[i]));
	}
	greet(fd);
	check(kill(to, SIGSTOP) == 0);
	row(fd, 0);
	_exit(0);
}

static void chain(void)
{
	const size_t len = HOPS * sizeof(pid_t);
	pid_t to, first, *pids = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int there[2], done[2], count[2], go[HOPS][2], all = HOPS * ROW, i;
	char c;

	check(pids != MAP_FAILED && pipe(there) == 0 && pipe(done) == 0 && pipe(count) == 0);
	check(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0); /* the end of each is seen here */
	for (i = 0; i < HOPS; i++)
		check(pipe(go[i]) == 0);
	to = fork();
	check(to >= 0);
	if (!to)
		receiver(done[1], count[0], false);
	check(read(done[0], &c, 1) == 1);
	first = fork();
	check(first >= 0);
	if (!first)
		first_hop(to, there, go, done[1], pids);
	has_ended(first);
	for (i = 1; i < HOPS; i++) {
		check(write(go[i][1], "", 1) == 1);
		if (i < HOPS - 1)
			has_ended(pids[i]);
	}
	check(read(done[0], &c, 1) == 1 && write(count[1], &all, sizeof(all)) == sizeof(all));
	check(kill(to, SIGCONT) == 0);
	has_ended(to);
	check(write(go[HOPS - 1][1], "", 1) == 1);
	has_ended(pids[HOPS - 1]);
}

/* ---- shown so often that there would be no room for more in the stand-in ---- */

static void watches(int fd, int ready, int go)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int ep = epoll_create1(EPOLL_CLOEXEC), number, next = 0;
	char c;

	alarm(test_alarm(60)); /* its parent is to go */
	check(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	check(epoll_wait(ep, &ev, 1, 0) >= 0 && recv(fd, &c, 1, MSG_DONTWAIT) < 0);
	check(write(ready, "", 1) == 1);
	check(read(go, &c, 1) == 0); /* it has ended */
	while (next < EDGES && poll(&p, 1, TEST_COMES) == 1) {
		if (recv(fd, &number, sizeof(number), MSG_DONTWAIT) < 0 && errno == EAGAIN)
			continue;
		if (number != next++)
			fail("message %d instead of %d", number, next - 1);
	}
	if (next != EDGES)
		test_late("%d messages instead of %d", next, EDGES);
	_exit(0);
}

static void shows(int ready, int go, int end, pid_t *watcher)
{
	int fd = rds_bound(home(), PORT), life[2];
	pid_t pid;
	char c;

	check(pipe(life) == 0);
	pid = fork();
	check(pid >= 0);
	if (!pid) {
		close(life[1]);
		close(end);
		watches(fd, ready, life[0]);
	}
	*watcher = pid;
	close(fd);
	check(read(go, &c, 1) == 1);
	exit(0);
}

static void edges(void)
{
	pid_t from, *watcher = mmap(NULL, sizeof(*watcher), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fd = rds_bound(home(), PORT + 1), ready[2], go[2], i;
	struct sockaddr_in to = name_of(home(), PORT);
	char c;

	check(watcher != MAP_FAILED && pipe(ready) == 0 && pipe(go) == 0);
	from = fork();
	check(from >= 0);
	if (!from)
		shows(ready[1], go[0], go[1], watcher);
	check(read(ready[0], &c, 1) == 1);
	for (i = 0; i < EDGES; i++) {
		check(sendto(fd, &i, sizeof(i), 0, (struct sockaddr *)&to, sizeof(to)) == sizeof(i));
		usleep(200); /* each is an event of its own, if the other process looks at once */
	}
	check(write(go[1], "", 1) == 1);
	has_ended(from);
	has_ended(*watcher);
	close(fd);
}

int main(void)
{
	alarm(test_alarm(60));
	one(false, PORT + 1);
	one(true, PORT + 2);
	chain();
	edges();
	printf("ok: what processes had sent has arrived without them\n");
	return 0;
}
