/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The process that has sent on a socket leaves while the receiver is stopped, and another one goes
 * on with the socket: all that was sent arrives, once, in order, and before what the other one
 * sends.  The receiver has never heard from it, or has, or also knows the other one; it leaves by
 * exit, exec, _exit, or an exec that fails, and then goes on itself.
 */
#include "rdsconf.h"

#include <signal.h>
#include <sys/prctl.h>

#define OLD 40
#define NEW 20

enum { HELLO = -1, END = -2, LAST = -3 };
enum how { EXIT, EXIT_NOW, EXEC, EXEC_FAILS };

struct message {
	int number;
	char rest[396];
};

static int s;
static struct name to;
static struct other receiver;
/* pipes: the process that has the socket is ready, is to go on, has sent */
static int ready[2], go[2], done[2];

static int put(int fd, int number)
{
	struct message m = {.number = number};

	return sendto(fd, &m, sizeof(m), 0, &to.sa, to.len) == sizeof(m);
}

static int put_row(int from, int n)
{
	int i, sent = 0;

	for (i = 0; i < n; i++)
		sent += put(s, from + i);
	return sent;
}

static void wait_answer(int fd)
{
	char byte;

	if (!wait_message(fd) || recv(fd, &byte, 1, 0) != 1)
		conf_die("the receiver answers");
}

static void greet(int fd)
{
	put(fd, HELLO);
	wait_answer(fd);
}

static void one_byte(int rd)
{
	char byte;

	if (read(rd, &byte, 1) != 1)
		conf_die("a process has gone");
}

static void one_more(int wr)
{
	if (write(wr, "", 1) != 1)
		conf_die("write");
}

static void receive_all(const char *name)
{
	struct name from;
	struct message m;
	int fd = rds_bound(), n = 0, wrong = 0, late = 0;
	bool ended = false;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* also while it is stopped */
	name_to(&receiver, fd);
	for (;;) {
		from.len = sizeof(from.ss);
		if (recvfrom(fd, &m, sizeof(m), 0, &from.sa, &from.len) != sizeof(m))
			conf_die("recvfrom");
		if (m.number == LAST)
			break;
		if (m.number == HELLO || m.number == END)
			sendto(fd, "", 1, 0, &from.sa, from.len);
		if (m.number == END)
			ended = true;
		else if (m.number != HELLO && ended)
			late++;
		else if (m.number != HELLO)
			wrong += m.number != n++;
	}
	check(text("%s-arrived", name), text("%d", OLD + NEW), "%d", n);
	check(text("%s-order", name), "wrong 0 late 0", "wrong %d late %d", wrong, late);
	exit(0);
}

static void sends_new(void)
{
	put_row(OLD, NEW);
	put(s, END);
	one_more(done[1]);
	wait_answer(s); /* when it has read all that there was, and looks for more */
	put(s, LAST);
	one_byte(go[0]); /* it has arrived */
	_exit(0);
}

static void holds(bool known, bool goes_on)
{
	int fd;

	if (known) {
		fd = rds_bound();
		greet(fd);
	}
	one_more(ready[1]);
	one_byte(go[0]);
	if (goes_on)
		sends_new();
	_exit(0);
}

static void stop_receiver(void)
{
	kill(receiver.pid, SIGSTOP);
	test_until(process_stopped(receiver.pid));
}

static void sends_and_leaves(const char *name, enum how how, bool warm, bool known)
{
	s = rds_bound();
	if (!fork())
		holds(known, how != EXEC_FAILS);
	one_byte(ready[0]);
	if (warm)
		greet(s);
	stop_receiver();
	check(text("%s-sent", name), text("%d", OLD), "%d", put_row(0, OLD));
	fflush(stdout);
	switch (how) {
	case EXIT:
		exit(0);
	case EXIT_NOW:
		_exit(0);
	case EXEC:
		execl("/bin/sh", "sh", "-c", "exit 0", NULL);
		break;
	case EXEC_FAILS:
		execl("/nonexistent", "nonexistent", NULL);
		sends_new();
	}
	_exit(99);
}

static void one(const char *name, enum how how, bool warm, bool known)
{
	struct other sender;
	int i;

	if (pipe2(ready, O_CLOEXEC) || pipe2(go, O_CLOEXEC) || pipe2(done, O_CLOEXEC))
		conf_die("pipe");
	if (fork_other(&receiver))
		receive_all(name);
	name_from(&receiver, &to);
	if (fork_other(&sender))
		sends_and_leaves(name, how, warm, known);
	if (how != EXEC_FAILS) {
		check(text("%s-left", name), "exit 0", "%s", end_of(&sender));
		fflush(stdout);
		one_more(go[1]);
	}
	one_byte(done[0]);
	kill(receiver.pid, SIGCONT);
	check(text("%s-receiver", name), "exit 0", "%s", end_of(&receiver));
	one_more(go[1]);
	if (how == EXEC_FAILS) {
		one_more(go[1]);
		check(text("%s-left", name), "exit 0", "%s", end_of(&sender));
	}
	for (i = 0; i < 2; i++) {
		close(ready[i]);
		close(go[i]);
		close(done[i]);
	}
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"exit", "exit-now", "exec", "exec-fails"};
	enum how how;

	/* for the library, which waits for the receiver that long */
	if (!getenv("RDS_PRELOAD_LINGER_MS")) {
		setenv("RDS_PRELOAD_LINGER_MS", "50", 1);
		execv("/proc/self/exe", argv);
	}
	conf_begin(argc, argv);
	if (conf_transport == RDS_TRANS_IB)
		conf_skip("over RDMA devices less is promised of a socket that changes hands (the manual says what)");
	for (how = EXIT; how <= EXEC_FAILS; how++) {
		one(text("%s-cold", names[how]), how, false, false);
		one(text("%s-warm", names[how]), how, true, false);
		one(text("%s-known", names[how]), how, true, true);
	}
	return conf_end();
}
