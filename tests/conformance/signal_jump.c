/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Calls that are left from inside their sleep by siglongjmp() out of a signal handler: time limits
 * as programs of old made them.
 */
#include "rdsconf.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

#define CAP 4096
#define OFTEN 20

static int bound, full, ep;
static char byte;

static __thread sigjmp_buf out;

static void jump(int sig)
{
	(void)sig;
	siglongjmp(out, 1);
}

static void handle(int flags)
{
	struct sigaction sa = {.sa_handler = jump, .sa_flags = flags};

	sigaction(SIGUSR1, &sa, NULL);
}

/* ---- calls that sleep ---- */

static long call_recv(void)
{
	return recv(bound, &byte, 1, 0);
}

static long call_recvmsg(void)
{
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	return recvmsg(bound, &msg, 0);
}

static long call_read(void)
{
	return read(bound, &byte, 1);
}

static long call_send(void)
{
	struct name far = name_far(4000);

	return sendto(full, "x", 1, 0, &far.sa, far.len);
}

static long call_poll(void)
{
	struct pollfd p[2] = {{.fd = bound, .events = POLLIN}, {.fd = full, .events = POLLOUT}};

	return poll(p, 2, -1);
}

static long call_select(void)
{
	fd_set in;

	FD_ZERO(&in);
	FD_SET(bound, &in);
	return select(bound + 1, &in, NULL, NULL, NULL);
}

static long call_epoll(void)
{
	struct epoll_event e;

	return epoll_wait(ep, &e, 1, -1);
}

/* ---- left ---- */

struct leaving {
	long (*call)(void);
	int often;
};

/* How often it was left; the thread goes on with each. */
static long leave(void *arg)
{
	const struct leaving *l = arg;
	volatile long n = 0;

	while (n < l->often) {
		if (sigsetjmp(out, 1))
			n++;
		else if (l->call() >= 0 || errno != EINTR)
			return -1;
	}
	return n;
}

static int left(long (*call)(void), int often, int flags)
{
	struct leaving l = {call, often};
	struct helper helper;
	int i;

	handle(flags);
	helper_start(&helper, leave, &l);
	for (i = 0; i < often; i++) {
		if (!helper_asleep(&helper))
			return -i;
		pthread_kill(helper.thread, SIGUSR1);
	}
	return (int)helper_result(&helper);
}

static long receives(void *arg)
{
	char c;

	(void)arg;
	return recv(bound, &c, 1, 0) == 1 ? c : -1;
}

/* What an abandoned call leaves behind disturbs no other call. */
static void goes_on(const char *name, int from)
{
	struct helper helper;

	helper_start(&helper, receives, NULL);
	check(text("%s-then-sleeps", name), "1", "%d", helper_asleep(&helper));
	check(text("%s-then-sends", name), "1", "%s", rc(send_to(from, bound, "r", 1, 0)));
	check(text("%s-then-receives", name), "114", "%s", rc(helper_result(&helper)));
	check(text("%s-then-empty", name), "-1 EAGAIN", "%s", rc(recv(bound, &byte, 1, MSG_DONTWAIT)));
}

static void try(const char *name, long (*call)(void), int from)
{
	check(text("%s-left", name), "1", "%d", left(call, 1, 0));
	check(text("%s-left-restarting", name), "1", "%d", left(call, 1, SA_RESTART));
	check(text("%s-left-often", name), text("%d", OFTEN), "%d", left(call, OFTEN, 0));
	goes_on(name, from);
}

/* All that this process has. */
static int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

/* Nothing that was left keeps it. */
static void closed(int fd, const char *name)
{
	struct name was = name_of(fd);
	unsigned port = name_port(&was);
	int again;

	check(text("%s-close", name), "0", "%s", rc(close(fd)));
	again = rds_socket();
	was = name_here(port);
	check(text("%s-port-is-free", name), "0", "%s", rc(bind(again, &was.sa, was.len)));
	close(again);
}

static void fill(void)
{
	static char data[CAP];
	struct name far = name_far(4000);

	full = rds_bound_path0();
	rds_bufs(full, CAP, 0);
	if (sendto(full, data, CAP, MSG_DONTWAIT, &far.sa, far.len) != CAP)
		conf_die("fill");
}

/* In a thread that goes on with all the rest. */
static void time_limit(void)
{
	struct itimerval soon = {.it_value = {.tv_usec = 50000}};
	struct sigaction sa = {.sa_handler = jump};
	volatile int n = 0;

	sigaction(SIGALRM, &sa, NULL);
	while (n < OFTEN) {
		if (sigsetjmp(out, 1)) {
			n++;
			continue;
		}
		setitimer(ITIMER_REAL, &soon, NULL);
		recv(bound, &byte, 1, 0);
		break;
	}
	check("alarm-as-time-limit", text("%d", OFTEN), "%d", n);
}

int main(int argc, char **argv)
{
	int from, had;

	conf_begin(argc, argv);
	bound = rds_bound();
	from = rds_bound();
	ep = epoll_create1(0);
	epoll_set(ep, EPOLL_CTL_ADD, bound, EPOLLIN);
	warm_up(from, bound);
	settle(bound);
	try("recv", call_recv, from);
	had = descriptors();
	try("recvmsg", call_recvmsg, from);
	try("read", call_read, from);
	try("select", call_select, from);
	try("epoll", call_epoll, from);
	if (!conf_loop) {
		fill();
		try("send", call_send, from);
		try("poll", call_poll, from);
	}
	time_limit();
	check("descriptors-left-behind", "0", "%d", descriptors() - had > OFTEN);
	goes_on("alarm", from);
	close(ep);
	closed(bound, "receiver");
	if (!conf_loop)
		closed(full, "sender");
	return conf_end();
}
