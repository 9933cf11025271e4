/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The process that made a socket is gone, another one has it and has not touched it yet; meanwhile
 * processes send to it and end, by exit, _exit or exec, or their exec fails. All that they have
 * sent is there afterwards, once, in the order of each sender; also if the maker was killed (with
 * nothing in its queue).
 */
#include "rdsconf.h"

#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

#define SENDERS 32

static char *self;
static int go[2];    /* the borrower begins when it can read a byte here */
static int ended[2]; /* closed when all senders are gone; a byte: one stays */
static int stay[2];  /* it stays until this is closed */

struct text {
	int sender, number;
	unsigned port; /* of the socket that it was sent from */
	char fill[20000];
};

/* ---- senders ---- */

static bool send_some(int fd, int sender, int from, int to, size_t len)
{
	static struct text t;
	struct name own = name_of(fd);
	int i;

	for (i = from; i < to; i++) {
		t = (struct text){.sender = sender, .number = i, .port = name_port(&own)};
		memset(t.fill, i + 1, sizeof(t.fill));
		if (send(fd, &t, len, 0) != (ssize_t)len)
			return false;
	}
	return true;
}

enum way { BY_EXIT, BY_FAST_EXIT, BY_EXEC, BY_FAILED_EXEC, BY_HEIR, BY_LIVING_HEIR, BY_KILLER };

static bool killed;	 /* the maker was */
static struct other old; /* the maker, for who kills it */
static int dead[2];	 /* a byte: it has ended */

static void new_program(int fd, bool there)
{
	char *argv[] = {self, "--sender", (char *)text("%d", fd), NULL};

	execv(there ? self : "/nowhere/nothing", argv);
}

/*
 * Another process has the socket, too, and sends when the first one is gone.  It stays, or ends
 * before any process looks.
 */
static void heir(int fd, bool stays)
{
	struct other other;
	char byte;
	bool good;

	if (!fork_other(&other))
		_exit(0);
	good = read(other.rd, &byte, 1) == 0 && send_some(fd, 0, 5, 10, 100);
	if (stays && (!good || write(ended[1], "", 1) != 1 || read(stay[0], &byte, 1)))
		_exit(1);
	_exit(0);
}

static void sender(const struct name *to, int number, enum way way, size_t len)
{
	int fd = rds_bound();
	char byte;

	close(stay[1]);
	if (connect(fd, &to->sa, to->len))
		_exit(98);
	if (way == BY_KILLER) { /* the first ones reach it, and it does not see them */
		kill(old.pid, SIGSTOP);
		test_until(process_stopped(old.pid));
	}
	if (!send_some(fd, number, 0, 5, len))
		_exit(98);
	switch (way) {
	case BY_EXIT:
		exit(0);
	case BY_FAST_EXIT:
		_exit(0);
	case BY_EXEC:
		new_program(fd, true);
		break;
	case BY_FAILED_EXEC:
		new_program(fd, false);
		_exit(!send_some(fd, number, 5, 10, len));
	case BY_HEIR:
	case BY_LIVING_HEIR:
		heir(fd, way == BY_LIVING_HEIR);
		break;
	case BY_KILLER:
		kill(old.pid, SIGKILL);
		if (read(dead[0], &byte, 1) != 1)
			_exit(96);
		exit(!send_some(fd, number, 5, 10, len));
	}
	_exit(97);
}

/* ---- the borrower ---- */

static bool sound(const struct text *t, long len, const struct name *from)
{
	long i;

	for (i = offsetof(struct text, fill); i < len; i++)
		if (t->fill[i - offsetof(struct text, fill)] != (char)(t->number + 1))
			return false;
	return name_port(from) == t->port;
}

static void holder(const char *name, int fd, int expected)
{
	static struct text t;
	struct name from;
	int next[SENDERS] = {0}, n, wrong = 0;
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	long r;
	char byte;

	if (read(go[0], &byte, 1) != 1)
		_exit(1);
	r = poll(&pfd, 1, TEST_COMES);
	check(text("%s-poll", name), "1 IN", "%ld %s", r, poll_bits(pfd.revents));
	for (n = 0; n < expected; n++) {
		if (!wait_message(fd))
			break;
		from.len = sizeof(from.ss);
		r = recvfrom(fd, &t, sizeof(t), 0, &from.sa, &from.len);
		wrong += r < (long)offsetof(struct text, fill) || t.sender >= SENDERS || t.number != next[t.sender]++ ||
			 !sound(&t, r, &from);
	}
	check(text("%s-messages", name), text("%d wrong 0", expected), "%d wrong %d", n, wrong);
	check(text("%s-no-more", name), "-1 EAGAIN", "%s", rc(recv(fd, &t, sizeof(t), MSG_DONTWAIT)));
	_exit(0);
}

/* ---- all together ---- */

/*
 * A socket whose maker is gone, with as many messages in its queue; the process that has it waits.
 */
static void leave_one(const char *name, int expected, int before, bool lives, struct name *to)
{
	struct other maker;
	pid_t pid;
	int d;

	if (fork_other(&maker)) {
		d = rds_bound();
		*to = name_of(d);
		if (connect(d, &to->sa, to->len) || !send_some(d, SENDERS - 1, 0, before, 100))
			_exit(1);
		fflush(stdout);
		pid = fork();
		if (!pid)
			holder(name, d, expected);
		if (pid < 0 || write(maker.wr, to, sizeof(*to)) != sizeof(*to))
			_exit(1);
		if (killed)
			pause();
		_exit(0);
	}
	if (read(maker.rd, to, sizeof(*to)) != sizeof(*to))
		conf_die("no name came");
	old = maker;
	if (lives)
		return;
	if (killed)
		kill(maker.pid, SIGKILL);
	if (strcmp(end_of(&maker), killed ? "signal 9" : "exit 0") != 0)
		conf_die("the maker's end");
	close(maker.rd);
	close(maker.wr);
}

static void scene(const char *name, enum way way, int senders, size_t len, int before)
{
	int each = way == BY_EXIT || way == BY_FAST_EXIT ? 5 : 10, i, held[2];
	struct name to;
	pid_t pid;
	char byte;

	if (pipe2(go, O_CLOEXEC) || pipe2(held, O_CLOEXEC))
		conf_die("pipes");
	leave_one(name, senders * each + before, before, way == BY_KILLER, &to);
	close(held[1]);
	if (pipe2(ended, 0) || pipe2(stay, O_CLOEXEC))
		conf_die("pipes");
	fflush(stdout);
	for (i = 0; i < senders; i++) { /* two at a time, and the kernel drops some */
		pid = fork();
		if (!pid)
			sender(&to, i, way, len);
		if (way == BY_KILLER && (strcmp(end_of(&old), "signal 9") != 0 || write(dead[1], "", 1) != 1))
			conf_die("the maker's end");
		waitpid(pid, NULL, 0);
	}
	close(ended[1]);
	i = read(ended[0], &byte, 1);
	check(text("%s-senders", name), way == BY_LIVING_HEIR ? "1 stay" : "0 stay", "%d stay", i);
	if (write(go[1], "", 1) != 1)
		conf_die("go");
	while (read(held[0], &byte, 1) > 0) /* until the borrower is gone */
		;
	close(stay[1]);
	while (read(ended[0], &byte, 1) > 0)
		;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	close(go[0]);
	close(go[1]);
	close(held[0]);
	close(ended[0]);
	close(stay[0]);
}

int main(int argc, char **argv)
{
	self = argv[0];
	if (argc == 3 && !strcmp(argv[1], "--sender"))
		_exit(!send_some(atoi(argv[2]), 0, 5, 10, 100));
	conf_begin(argc, argv);
	/* The kernel drops what a socket has sent and no connection has taken when it is closed. */
	warm_up(rds_bound(), rds_bound());
	scene("exit", BY_EXIT, 1, 100, 0);
	scene("fast-exit", BY_FAST_EXIT, 1, 100, 0);
	scene("queue-before", BY_EXIT, 2, 100, 7);
	/* Over a device each of them opens it, and their number shows nothing more. */
	scene("many", BY_FAST_EXIT, conf_ib ? 10 : SENDERS - 2, 100, 1);
	scene("large", BY_EXIT, 1, 15000, 0);
	scene("exec", BY_EXEC, 1, 100, 0);
	scene("failed-exec", BY_FAILED_EXEC, 1, 100, 0);
	scene("heir", BY_HEIR, 1, 100, 0);
	scene("living-heir", BY_LIVING_HEIR, 1, 100, 3);
	/*
	 * none of it is the device's affair, and all of it takes a busy guest longer than a program
	 * may take
	 */
	if (conf_ib)
		return conf_end();
	killed = true;
	if (pipe2(dead, O_CLOEXEC))
		conf_die("pipes");
	scene("killed", BY_EXIT, 1, 100, 0);
	scene("killed-fast-exit", BY_FAST_EXIT, 3, 100, 0);
	scene("killed-many", BY_FAST_EXIT, SENDERS - 2, 100, 0);
	scene("killed-exec", BY_EXEC, 1, 100, 0);
	scene("killed-heir", BY_HEIR, 1, 100, 0);
	scene("killed-on-the-way", BY_KILLER, 1, 100, 0);
	return conf_end();
}
