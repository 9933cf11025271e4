/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A socket goes to a child that is started in a way that runs no fork handlers: by libc inside
 * itself (system(), popen(), wordexp()), by _Fork() or clone().  (Not by the bare system call,
 * tests/programs/bare_child: it may copy locks that the library's thread has.)  The process that
 * made the socket ends right after that, or is killed; the child has what lies in the queue, and
 * what comes later.
 */
#include "rdsconf.h"

#include <sched.h>
#include <signal.h>
#include <wordexp.h>

enum how { SYSTEM, POPEN, WORDEXP, BY_FORK, CLONE, HOWS };
static const char *const hows[HOWS] = {"system", "popen", "wordexp", "_Fork", "clone"};

enum end { EXIT, NO_HANDLERS, KILLED, ENDS };
static const char *const ends[ENDS] = {"exit", "_exit", "killed"};

static int s, d, out;
static char *self;
/* between the program and the child: the child's side, and the program's */
static struct other line, grandchild;

/* ---- the child ---- */

/*
 * It has not touched the socket before it is told to, and ends when what it has said has been
 * heard.
 */
static int child(int fd, const char *name)
{
	struct name from = {.len = sizeof(from.ss)};
	char buf[20] = "";
	long r;

	alarm(test_alarm(60));
	hear(&line);
	r = recvfrom(fd, buf, sizeof(buf), 0, &from.sa, &from.len);
	check(text("%s-queued", name), "6 queued", "%s %.6s", rc(r), buf);
	check(text("%s-answer", name), "4", "%s", rc(sendto(fd, "here", 4, 0, &from.sa, from.len)));
	say(&line);
	r = recv(fd, buf, sizeof(buf), 0);
	check(text("%s-later", name), "5 later", "%s %.5s", rc(r), buf);
	check(text("%s-empty", name), "-1 EAGAIN", "%s", rc(recv(fd, buf, sizeof(buf), MSG_DONTWAIT)));
	check(text("%s-done", name), "4", "%s", rc(sendto(fd, "done", 4, 0, &from.sa, from.len)));
	hear(&line);
	return conf_end();
}

/* One that is no new program. */
static int copy(void *name)
{
	_exit(child(d, name));
}

/* ---- the process that makes the socket ---- */

static int expand(const char *command)
{
	wordexp_t words;
	int err = wordexp(text("$(%s)", command), &words, 0);

	if (!err)
		wordfree(&words);
	return err;
}

static void start(enum how how, char *name)
{
	static char stack[65536] __attribute__((aligned(16)));
	const char *command =
		text("%s --child %d %s %d %d </dev/null >&%d &", self, d, name, line.rd, line.wr, out);
	FILE *pipe;
	long pid;

	if (how == SYSTEM) {
		if (system(command))
			_exit(90);
	} else if (how == POPEN) {
		pipe = popen(command, "r");
		if (!pipe || pclose(pipe))
			_exit(91);
	} else if (how == WORDEXP) {
		if (expand(command))
			_exit(92);
	} else if (how == CLONE) {
		if (clone(copy, stack + sizeof(stack), SIGCHLD, name) < 0)
			_exit(93);
	} else {
		pid = _Fork();
		if (pid < 0)
			_exit(94);
		if (!pid)
			copy(name);
	}
}

static void make(const struct other *program, enum how how, enum end end, char *name)
{
	close(grandchild.rd);
	close(grandchild.wr);
	d = rds_bound();
	name_to(program, d);
	hear(program); /* a message is there */
	start(how, name);
	say(program);
	if (end == KILLED)
		for (;;)
			pause();
	if (end == NO_HANDLERS)
		_exit(0);
	exit(0);
}

/* ---- and the other one ---- */

static const char *next(int fd)
{
	char buf[20] = "";
	long r = wait_message(fd) ? recv(fd, buf, sizeof(buf), MSG_DONTWAIT) : -1;

	return r < 0 ? rc(r) : text("%ld %.10s", r, buf);
}

/* Kept by programs. */
static void lines(void)
{
	int there[2], back[2];

	if (pipe(there) || pipe(back))
		conf_die("pipe");
	line = (struct other){.rd = there[0], .wr = back[1]};
	grandchild = (struct other){.rd = back[0], .wr = there[1]};
	fcntl(back[0], F_SETFD, FD_CLOEXEC);
	fcntl(there[1], F_SETFD, FD_CLOEXEC);
}

static void one(enum how how, enum end end)
{
	const char *expected = end == KILLED ? "signal 9" : "exit 0";
	char name[40];
	struct other other;
	struct name to;

	snprintf(name, sizeof(name), "%s-%s", hows[how], ends[end]);
	lines();
	if (fork_other(&other))
		make(&other, how, end, name);
	close(line.rd);
	close(line.wr);
	name_from(&other, &to);
	sendto(s, "queued", 6, 0, &to.sa, to.len);
	say(&other);
	hear(&other); /* there is a child */
	if (end != KILLED)
		check(text("%s-end", name), expected, "%s", end_of(&other));
	say(&grandchild);
	check(text("%s-here", name), "4 here", "%s", next(s));
	hear(&grandchild);
	if (end == KILLED) {
		kill(other.pid, SIGKILL);
		check(text("%s-end", name), expected, "%s", end_of(&other));
	}
	sendto(s, "later", 5, 0, &to.sa, to.len);
	check(text("%s-told", name), "4 done", "%s", next(s));
	say(&grandchild);
	check(text("%s-port-free", name), "1", "%d", free_again(&to));
	close(grandchild.rd);
	close(grandchild.wr);
}

int main(int argc, char **argv)
{
	enum how how;
	enum end end;

	self = argv[0];
	if (argc > 5 && !strcmp(argv[1], "--child")) {
		setvbuf(stdout, NULL, _IOLBF, 0);
		line = (struct other){.rd = atoi(argv[4]), .wr = atoi(argv[5])};
		return child(atoi(argv[2]), argv[3]);
	}
	conf_begin(argc, argv);
	if (conf_transport == RDS_TRANS_IB)
		conf_skip("over RDMA devices less is promised of a socket that changes hands (the manual says what)");
	s = rds_bound();
	out = fcntl(1, F_DUPFD, 3); /* a shell knows numbers of one digit */
	for (how = 0; how < HOWS; how++)
		for (end = 0; end < ENDS; end++)
			one(how, end);
	return conf_end();
}
