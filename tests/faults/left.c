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
 * With "asked": the other process asks for the socket while the first one leaves, which then does
 * not wait for the receiver.  If that was for an exec that fails, the first one's threads that
 * sleep in calls go on, as those of a borrower.
 *
 * A plain PF_RDS program.  The runner gives the library a short time to wait for the receiver; for
 * "asked" a far longer time than this program waits.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "faults.h"

#define CMSG_STATUS 4
#define CMSG_ASYNC_SEND 10
#define NOTIFY_ME 0x100

#define PORT 25000 /* the receiver's; the next ones are senders' */
#define BIG 100000
/* from that one on the ends of messages are reported: far more are sent than there is room for */
#define TOLD 40
#define SOME 30 /* find room on the way at most */
#define NEW 5
#define HOPS 5
#define ROW 5
#define EDGES 500

enum { HELLO = -1, LAST = -2, LATE = -3 };

static unsigned char buf[BIG];

struct notify {
	uint64_t token;
	int32_t status;
	uint32_t pad;
};

static void child_begins(void)
{
	check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0); /* also while it is stopped */
	alarm(test_alarm(60));
}

static void has_ended(pid_t pid)
{
	int status;

	check(waitpid(pid, &status, 0) == pid);
	if (status)
		fail("a process ended with %#x", (unsigned)status);
}

static ssize_t put(int fd, int number, int flags)
{
	struct sockaddr_in to = name_of(home(), PORT);

	memcpy(buf, &number, sizeof(number));
	return sendto(fd, buf, sizeof(buf), flags, (struct sockaddr *)&to, sizeof(to));
}

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

/*
 * Everything from 0 up, then LAST; the exit status says whether.  LATE is a thread's, and answered,
 * for two others: late, if there is one.
 */
static void receiver(int ready, int count, bool late)
{
	int fd = rds_bound(home(), PORT), number, next = 0, came = 0, n;
	bool last = false;
	struct sockaddr_in from;

	child_begins();
	check(write(ready, "", 1) == 1);
	while (!last || (late && !came)) {
		socklen_t len = sizeof(from);

		check(recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len) >= (int)sizeof(number));
		memcpy(&number, buf, sizeof(number));
		for (n = number == HELLO ? 1 : number == LATE ? 2 : 0; n; n--)
			check(sendto(fd, "", 1, 0, (struct sockaddr *)&from, len) == 1);
		if (number == LATE)
			came = next;
		else if (number == LAST)
			last = true;
		else if (number != HELLO && number != next++)
			fail("message %d instead of %d", number, next - 1);
	}
	check(read(count, &n, sizeof(n)) == sizeof(n));
	if (next != n)
		fail("%d messages instead of %d", next, n);
	if (late && came < n - NEW)
		fail("what a thread was sending came after %d messages, and %d had been sent before", came, n - NEW);
	_exit(0);
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

/* ---- somebody asks meanwhile ---- */

enum how { EXIT, EXEC, EXEC_FAILS, CASES };

/* It is in the send when the other one leaves, or comes then. */
static void asks(int fd, int go, int count)
{
	int all, i;

	alarm(test_alarm(60));
	check(read(go, &all, sizeof(all)) == sizeof(all));
	for (i = 0; i < NEW; i++)
		check(put(fd, all++, 0) == sizeof(buf));
	check(write(count, &all, sizeof(all)) == sizeof(all));
	check(put(fd, LAST, 0) == sizeof(buf));
	check(read(go, &i, sizeof(i)) == 0); /* all has arrived */
	_exit(0);
}

static void *sends(void *fd)
{
	if (put(*(int *)fd, LATE, 0) != sizeof(buf))
		fail("a send that slept: %s", strerror(errno));
	return NULL;
}

static void *receives(void *fd)
{
	char c;

	if (recv(*(int *)fd, &c, 1, 0) != 1)
		fail("a receive that slept: %s", strerror(errno));
	return NULL;
}

static int interrupted;

/* It must not wait for what it has interrupted. */
static void interrupts(int sig)
{
	const int saved = errno;

	(void)sig;
	send(interrupted, NULL, 0, MSG_DONTWAIT); /* no peer: nothing is sent */
	errno = saved;
}

static void *disturbs(void *main)
{
	int i;

	for (i = 0; i < 100; i++) {
		usleep(1000);
		check(pthread_kill(*(pthread_t *)main, SIGUSR1) == 0);
	}
	return NULL;
}

/* libc goes through so many directories that the other one has the socket before this fails. */
static void exec_fails_late(void)
{
	const size_t dirs = 300000;
	char *path = malloc(3 * dirs + 1);
	size_t i;

	check(path);
	for (i = 0; i < dirs; i++)
		memcpy(path + 3 * i, "/x:", 3);
	path[3 * dirs - 1] = 0;
	check(setenv("PATH", path, 1) == 0);
	free(path);
	execlp("nonexistent", "nonexistent", NULL);
	check(errno == ENOENT);
}

static void *polls(void *fd)
{
	struct pollfd p = {.fd = *(int *)fd, .events = POLLIN};
	char c;

	do {
		if (poll(&p, 1, -1) != 1 || p.revents & ~POLLIN)
			fail("a poll that slept: %#x", (unsigned)p.revents);
	} while (recv(p.fd, &c, 1, MSG_DONTWAIT) != 1);
	return NULL;
}

static void is_asked(enum how how, bool later, bool threads, unsigned port, pid_t to, int go[2], int count, int gone)
{
	int fd = rds_bound(home(), port), size = 1 << 23, n = 0, i;
	pthread_t thread[4], self = pthread_self();
	pid_t heir;
	char c;

	child_begins();
	check(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0);
	check(put(fd, HELLO, 0) == sizeof(buf) && recv(fd, &c, 1, 0) == 1);
	heir = fork();
	check(heir >= 0);
	if (!heir) {
		close(go[1]);
		close(gone);
		asks(fd, go[0], count);
	}
	check(fcntl(gone, F_SETFD, FD_CLOEXEC) == 0);
	check(kill(to, SIGSTOP) == 0);
	while (put(fd, n, MSG_DONTWAIT) == sizeof(buf))
		n++;
	check(errno == EAGAIN);
	if (threads) {
		check(pthread_create(&thread[0], NULL, sends, &fd) == 0);
		check(pthread_create(&thread[1], NULL, receives, &fd) == 0);
		check(pthread_create(&thread[2], NULL, polls, &fd) == 0);
		interrupted = fd;
		signal(SIGUSR1, interrupts);
		check(pthread_create(&thread[3], NULL, disturbs, &self) == 0);
		usleep(100000); /* who does not sleep by then finds that the socket has gone */
	}
	check(write(go[1], &n, sizeof(n)) == sizeof(n));
	if (later)
		/* if that one is not in its send by then, it is the other case once more */
		usleep(200000);
	if (how == EXIT)
		_exit(0);
	if (threads)
		exec_fails_late();
	execlp(how == EXEC ? "sleep" : "/nonexistent", "sleep", "0", NULL);
	check(how == EXEC_FAILS);
	close(gone);
	for (i = 0; threads && i < 4; i++)
		check(pthread_join(thread[i], NULL) == 0);
	close(go[1]);
	has_ended(heir);
	_exit(0);
}

/* Another program has it and makes no call: then it is this one that must not go. */
static void stays(unsigned port, pid_t to, int count)
{
	int fd = rds_bound(home(), port), size = 1 << 23, n;
	char c;

	child_begins();
	check(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0);
	check(put(fd, HELLO, 0) == sizeof(buf) && recv(fd, &c, 1, 0) == 1);
	check(kill(to, SIGSTOP) == 0);
	for (n = 0; n < TOLD; n++)
		check(put(fd, n, MSG_DONTWAIT) == sizeof(buf));
	check(put(fd, LAST, MSG_DONTWAIT) == sizeof(buf));
	check(write(count, &n, sizeof(n)) == sizeof(n));
	if (!fork()) {
		child_begins();
		execlp("sleep", "sleep", "60", NULL);
		_exit(99);
	}
	_exit(0);
}

static pid_t start_receiver(const int ready[2], int counts)
{
	pid_t pid = fork();
	char c;

	check(pid >= 0);
	if (!pid)
		receiver(ready[1], counts, false);
	check(read(ready[0], &c, 1) == 1);
	return pid;
}

static void not_asked(unsigned port)
{
	int ready[2], counts[2];
	pid_t to, from;

	check(pipe(ready) == 0 && pipe(counts) == 0);
	to = start_receiver(ready, counts[0]);
	from = fork();
	check(from >= 0);
	if (!from)
		stays(port, to, counts[1]);
	usleep(300000 * test_slow());
	check(waitpid(from, NULL, WNOHANG) == 0);
	check(kill(to, SIGCONT) == 0);
	has_ended(to);
	has_ended(from);
	close(ready[0]), close(ready[1]), close(counts[0]), close(counts[1]);
}

static void asked(enum how how, bool later, bool threads, unsigned port)
{
	int ready[2], counts[2], go[2], gone[2];
	struct pollfd p;
	pid_t to, from;
	char c;

	check(pipe(ready) == 0 && pipe(counts) == 0 && pipe(go) == 0 && pipe(gone) == 0);
	to = fork();
	check(to >= 0);
	if (!to) {
		close(go[1]);
		close(gone[1]);
		receiver(ready[1], counts[0], threads);
	}
	check(read(ready[0], &c, 1) == 1);
	from = fork();
	check(from >= 0);
	if (!from)
		is_asked(how, later, threads, port, to, go, counts[1], gone[1]);
	close(gone[1]);
	close(go[1]);
	p = (struct pollfd){.fd = gone[0], .events = POLLIN};
	if (poll(&p, 1, TEST_COMES) != 1)
		test_late("its end: it waits for the receiver, although another one asks for the socket");
	check(kill(to, SIGCONT) == 0);
	has_ended(to);
	has_ended(from);
	close(ready[0]), close(ready[1]), close(counts[0]), close(counts[1]), close(go[0]), close(gone[0]);
}

static void one(bool exec, unsigned port)
{
	int ready[2], sent[2], counts[2], go[2], status, n;
	pid_t to, from;

	check(pipe(ready) == 0 && pipe(sent) == 0 && pipe(counts) == 0 && pipe(go) == 0);
	to = start_receiver(ready, counts[0]);
	from = fork();
	check(from >= 0);
	if (!from)
		leaves(exec, port, to, sent[1], go[0], counts[1]);
	check(waitpid(from, &status, 0) == from);
	if (status)
		fail("who was to leave ended with %#x", (unsigned)status);
	check(read(sent[0], &n, sizeof(n)) == sizeof(n));
	check(write(go[1], &n, sizeof(n)) == sizeof(n));
	check(waitpid(to, &status, 0) == to);
	if (status)
		fail("the receiver ended with %#x", (unsigned)status);
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
		fail("%d messages instead of %d", next, EDGES);
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

int main(int argc, char **argv)
{
	enum how how;

	alarm(test_alarm(60));
	if (argc > 1 && !strcmp(argv[1], "asked")) {
		not_asked(PORT + 30);
		for (how = EXIT; how < CASES; how++) {
			asked(how, false, false, PORT + 10 + how);
			asked(how, true, false, PORT + 20 + how);
		}
		asked(EXEC_FAILS, true, true, PORT + 31);
		printf("ok: who was asked for a socket has gone without waiting\n");
		return 0;
	}
	one(false, PORT + 1);
	one(true, PORT + 2);
	chain();
	edges();
	printf("ok: what processes had sent has arrived without them\n");
	return 0;
}
