/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The process that made a socket ends, and others have it: daemon() after bind, a double fork, a
 * queue that waits meanwhile, messages that come while no process looks.  Nothing is lost, doubled
 * or out of order.  (Over RDMA devices that is not promised yet.)
 */
#include "rdsconf.h"

#include <signal.h>
#include <sys/wait.h>

static int s, d;

static const char *next(int fd)
{
	char buf[20] = "";
	long r = wait_message(fd) ? recv(fd, buf, sizeof(buf), MSG_DONTWAIT) : -1;

	return r < 0 ? rc(r) : text("%ld %.10s", r, buf);
}

/* Echoes until it is told "end": a server. */
static void serve(int fd)
{
	struct name from;
	char buf[200];
	long r;

	alarm(test_alarm(60));
	for (;;) {
		from.len = sizeof(from.ss);
		r = recvfrom(fd, buf, sizeof(buf), 0, &from.sa, &from.len);
		if (r < 0)
			_exit(1);
		if (r == 3 && !memcmp(buf, "end", 3))
			_exit(0);
		if (sendto(fd, buf, r, 0, &from.sa, from.len) != r)
			_exit(2);
	}
}

static const char *served(const struct name *to, const char *what)
{
	sendto(s, what, strlen(what), 0, &to->sa, to->len);
	return next(s);
}

/* bind, then daemon(): the process that has bound exits, its child serves. */
static void daemonized(void)
{
	struct other other;
	struct name name;

	if (fork_other(&other)) {
		d = rds_bound();
		name_to(&other, d);
		hear(&other);
		if (daemon(1, 1))
			_exit(98);
		serve(d);
	}
	name_from(&other, &name);
	say(&other);
	check("daemon-parent", "exit 0", "%s", end_of(&other));
	check("daemon-serves", "5 hello", "%s", served(&name, "hello"));
	check("daemon-serves-on", "5 again", "%s", served(&name, "again"));
	sendto(s, "end", 3, 0, &name.sa, name.len);
	check("daemon-port-free", "1", "%d", free_again(&name));
}

/* The same by hand, twice, with messages in the queue before, between and after. */
static void double_fork(void)
{
	struct other other;
	struct name name;
	pid_t pid;

	if (fork_other(&other)) {
		d = rds_bound();
		name_to(&other, d);
		hear(&other);
		pid = fork();
		if (pid)
			_exit(pid < 0);
		pid = fork();
		if (pid)
			_exit(pid < 0);
		alarm(test_alarm(60));
		hear(&other);
		check("double-first", "5 first", "%s", next(d));
		check("double-second", "6 second", "%s", next(d));
		check("double-third", "5 third", "%s", next(d));
		send_to(d, s, "served", 6, 0);
		_exit(0);
	}
	name_from(&other, &name);
	sendto(s, "first", 5, 0, &name.sa, name.len);
	sendto(s, "second", 6, 0, &name.sa, name.len);
	say(&other);
	waitpid(other.pid, NULL, 0);
	sendto(s, "third", 5, 0, &name.sa, name.len);
	say(&other);
	check("double-served", "6 served", "%s", next(s));
	close(other.rd);
	close(other.wr);
}

/*
 * The process that made the socket is gone, by exit or by a signal.  The one that has it sleeps in
 * a receive, or has not touched it yet.  A row of messages sent before and after: all are there,
 * once, in order.
 */
static void row(const char *name, int sig, bool asleep, int before, int after)
{
	struct other other, holder;
	struct name to;
	int i, wrong = 0, number;

	if (fork_other(&other)) {
		d = rds_bound();
		if (fork_other(&holder)) {
			if (!asleep)
				hear(&holder);
			for (i = 0; i < before + after; i++)
				wrong += recv(d, &number, sizeof(number), 0) != sizeof(number) || number != i;
			check(text("%s-row", name), "wrong 0", "wrong %d", wrong);
			check(text("%s-no-more", name), "-1 EAGAIN", "%s", rc(recv(d, &number, 4, MSG_DONTWAIT)));
			send_to(d, s, "done", 4, 0);
			_exit(0);
		}
		if (asleep)
			process_asleep(holder.pid);
		name_to(&other, d);
		hear(&other); /* some messages have come */
		if (!asleep)
			say(&holder);
		if (sig)
			raise(sig);
		_exit(0);
	}
	name_from(&other, &to);
	for (i = 0; i < before; i++)
		sendto(s, &i, sizeof(i), 0, &to.sa, to.len);
	say(&other);
	check(text("%s-end", name), sig ? "signal 9" : "exit 0", "%s", end_of(&other));
	for (; i < before + after; i++)
		sendto(s, &i, sizeof(i), 0, &to.sa, to.len);
	check(text("%s-done", name), "4 done", "%s", next(s));
	check(text("%s-port-free", name), "1", "%d", free_again(&to));
}

/*
 * What it was told and what it has sent stays: names, options, messages that wait in its send
 * queue's other end.
 */
static void state(void)
{
	struct other other, holder;
	struct name to = name_of(s), peer = {.len = sizeof(peer.ss)};
	int value;

	if (fork_other(&other)) {
		d = rds_bound();
		label(d, "d");
		connect(d, &to.sa, to.len);
		rds_bufs(d, 0, 30000);
		setsockopt(d, SOL_RDS, RDS_RECVERR, &(int){1}, 4);
		fcntl(d, F_SETFL, O_NONBLOCK);
		send(d, "sent before", 11, 0);
		if (fork_other(&holder)) {
			hear(&holder);
			/* the other end of this line is closed when the other process is gone */
			value = read(holder.rd, &value, 1);
			check("state-alone", "0", "%d", value);
			getpeername(d, &peer.sa, &peer.len);
			check("state-peer", NULL, "%s", who(&peer));
			getsockopt(d, SOL_SOCKET, SO_RCVBUF, &value, &(socklen_t){4});
			check("state-rcvbuf", "60000", "%d", value);
			getsockopt(d, SOL_RDS, RDS_RECVERR, &value, &(socklen_t){4});
			check("state-recverr", "1", "%d", value);
			check("state-nonblock", "-1 EAGAIN", "%s", rc(recv(d, &value, 1, 0)));
			check("state-send", "10", "%s", rc(send(d, "sent after", 10, 0)));
			_exit(0);
		}
		say(&holder);
		_exit(0);
	}
	until_gone(&other);
	check("state-maker", "exit 0", "%s", end_of(&other));
	check("state-first", "11 sent befor", "%s", next(s));
	check("state-second", "10 sent after", "%s", next(s));
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	if (conf_transport == RDS_TRANS_IB)
		conf_skip("over RDMA devices less is promised of a socket that changes hands (the manual says what)");
	s = rds_bound();
	label(s, "s");
	daemonized();
	double_fork();
	row("exit", 0, false, 20, 20);
	row("exit-asleep", 0, true, 0, 20);
	state();
	return conf_end();
}
