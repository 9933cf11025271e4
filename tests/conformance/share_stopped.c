/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The process that made a socket is stopped, and another one has it: no call takes longer than it
 * may, signals end what sleeps, and nothing is lost or doubled by calls that have given up.  The
 * same if that process has ended, and one that has used the socket since is stopped.  (What a call
 * that does not wait says meanwhile is a matter of the implementation: it may be EAGAIN.)
 */
#include "rdsconf.h"
#include "signals.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>

#define MARGIN 500 /* ms: of a busy machine */

static int s, d;
static pid_t carrier;
static const char *stage;
static long long began;

static const char *named(const char *what)
{
	return text("%s-%s", stage, what);
}

static void begin(void)
{
	began = now_ms();
}

static void in_time(const char *what, int least, int most)
{
	long long took = now_ms() - began;

	check(named(text("%s-in-time", what)), "1", "%d", took >= least - 5 && in_bounds(took, most + MARGIN));
}

static void stop(const char *again)
{
	unsigned looks = 0;

	kill(carrier, SIGSTOP);
	while (!process_stopped(carrier)) /* on a busy machine that takes as long as it likes */
		test_pause(&looks);
	check(named(text("stopped%s", again)), "1", "%d", process_stopped(carrier));
}

static void go_on(void)
{
	kill(carrier, SIGCONT);
}

/* Another process lets it go on after a while, and then something is sent. */
static pid_t goes_on_later(int ms, const struct name *to)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	usleep(ms * 1000);
	go_on();
	_exit(to && sendto(s, "late", 4, 0, &to->sa, to->len) != 4);
}

static void waits(void)
{
	struct pollfd pfd = {.fd = d, .events = POLLIN};
	struct epoll_event event = {.events = EPOLLIN};
	int set = epoll_create1(0);
	struct timeval tv = {0, 100000};
	fd_set in;

	begin();
	check(named("poll"), "0", "%s", rc(poll(&pfd, 1, 100)));
	in_time("poll", 100, 100);
	begin();
	check(named("poll-0"), "0", "%s", rc(poll(&pfd, 1, 0)));
	in_time("poll-0", 0, 0);
	begin();
	check(named("ppoll"), "0", "%s", rc(ppoll(&pfd, 1, &(struct timespec){0, 100000000}, NULL)));
	in_time("ppoll", 100, 100);
	FD_ZERO(&in);
	FD_SET(d, &in);
	begin();
	check(named("select"), "0", "%s", rc(select(d + 1, &in, NULL, NULL, &tv)));
	in_time("select", 100, 100);
	begin();
	check(named("epoll-add"), "0", "%s", rc(epoll_ctl(set, EPOLL_CTL_ADD, d, &event)));
	in_time("epoll-add", 0, 0);
	begin();
	check(named("epoll"), "0", "%s", rc(epoll_wait(set, &event, 1, 100)));
	in_time("epoll", 100, 100);
	close(set);
}

/* What was sent and received all in all: each once. */
static int sent, got;

static void at_once(void)
{
	char buf[10];
	int i;

	for (i = 0; i < 3; i++) {
		begin();
		sent += send_to(d, s, "try", 3, MSG_DONTWAIT) == 3;
		in_time(text("send-%d", i), 0, 0);
		begin();
		got += recv(d, buf, sizeof(buf), MSG_DONTWAIT) == 4;
		in_time(text("recv-%d", i), 0, 0);
	}
	fcntl(d, F_SETFL, O_NONBLOCK);
	begin();
	got += read(d, buf, sizeof(buf)) == 4;
	in_time("nonblock", 0, 0);
	fcntl(d, F_SETFL, 0);
}

static void on_alarm(int flags)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = flags};

	sigaction(SIGALRM, &sa, NULL);
}

static _Atomic bool begun;

static long receives(void *fd)
{
	char c;

	begun = true;
	return recv(*(int *)fd, &c, 1, 0);
}

/* As soon as it sleeps, and in the milliseconds after, but for no longer. */
static void interrupted_at_once(void)
{
	struct helper helper;
	int i;

	on_alarm(0);
	begin();
	begun = false;
	helper_start(&helper, receives, &d);
	while (!(begun && helper_rests(&helper)) && now_ms() < began + TEST_COMES)
		;
	for (i = 0; i < 10; i++) {
		pthread_kill(helper.thread, SIGALRM);
		usleep(1000);
	}
	check(named("signal-at-once"), "-1 EINTR", "%s", rc(helper_result(&helper)));
}

/*
 * SIGALRM in 100 ms.  Again, if wanted, when it is too late: the call that it is to end may have
 * begun after the first one.
 */
static void alarm_soon(bool again)
{
	struct itimerval soon = {.it_value = {0, 100000}};

	if (again)
		soon.it_interval.tv_sec = test_deadline_ms(1000) / 1000;
	begin();
	setitimer(ITIMER_REAL, &soon, NULL);
}

static void interrupted(void)
{
	char buf[10];

	on_alarm(0);
	alarm_soon(true);
	check(named("signal"), "-1 EINTR", "%s", rc(recv(d, buf, sizeof(buf), 0)));
	in_time("signal", 100, 100);
	alarm_soon(true);
	check(named("signal-poll"), "-1 EINTR", "%s",
	      rc(poll(&(struct pollfd){.fd = d, .events = POLLIN}, 1, TEST_COMES)));
	in_time("signal-poll", 100, 100);
	on_alarm(SA_RESTART);
	alarm_soon(false);
}

/* The signal of the timer that runs does not end it; the message does. */
static void restarted(const struct name *to)
{
	char buf[10];
	pid_t pid;

	begin();
	pid = goes_on_later(300, to);
	check(named("restarts"), "4", "%s", rc(recv(d, buf, sizeof(buf), 0)));
	in_time("restarts", 300, 1500);
	check(named("restarts-end"), "exit 0", "%s", end_of_pid(pid));
	alarm(test_alarm(60));
}

static void all_there(void)
{
	char buf[10];
	int n = 0;

	check(named("then-send"), "4", "%s", rc(send_to(d, s, "last", 4, 0)));
	while (wait_message(s) && recv(s, buf, sizeof(buf), 0) == 3)
		n++;
	check(named("sent-each-once"), "1", "%d", n == sent);
	while (recv(d, buf, sizeof(buf), MSG_DONTWAIT) == 4)
		got++;
	check(named("got-each-once"), "2", "%d", got);
}

static void without_timeout(const char *name, bool used)
{
	struct name to = name_of(d);
	char buf[10];

	stage = name;
	sent = got = 0;
	if (used) {
		recv(d, buf, sizeof(buf), MSG_DONTWAIT);
		settle(d);
	}
	stop("");
	interrupted_at_once();
	waits();
	interrupted();
	restarted(&to);
	stop("-again");
	sendto(s, "1234", 4, 0, &to.sa, to.len);
	sendto(s, "5678", 4, 0, &to.sa, to.len);
	at_once();
	go_on();
	all_there();
}

/* Sleeping already when it is stopped. */
static long sleeper(void *arg)
{
	char buf[10];

	(void)arg;
	return recv(d, buf, sizeof(buf), 0);
}

static void asleep(void)
{
	struct helper helper;
	struct name to;
	pid_t pid;

	stage = "asleep";
	catch (0);
	helper_start(&helper, sleeper, NULL);
	check(named("sleeps"), "1", "%d", helper_asleep(&helper));
	stop("");
	begin();
	pthread_kill(helper.thread, SIGUSR1);
	check(named("signal"), "1", "%d", helper_ends(&helper));
	check(named("signal-result"), "-1 EINTR", "%s", rc(helper.result));
	in_time("signal", 0, 100);
	to = name_of(s);
	begin();
	pid = goes_on_later(200, NULL);
	send_to(s, d, "mine", 4, 0);
	check(named("message"), "4", "%s", rc(sleeper(NULL)));
	in_time("message", 0, 1500);
	check(named("message-end"), "exit 0", "%s", end_of_pid(pid));
	check(named("no-more"), "-1 EAGAIN", "%s", rc(recv(d, &to, 1, MSG_DONTWAIT)));
}

static void with_timeout(void)
{
	struct helper helper;

	stage = "timeout";
	timeouts(d, SO_RCVTIMEO, 300);
	helper_start(&helper, sleeper, NULL);
	stop("");
	check(named("asleep"), "1", "%d", helper_ends(&helper));
	check(named("asleep-result"), "-1 ETIMEDOUT", "%s", rc(helper.result));
	begin();
	check(named("late"), "-1 ETIMEDOUT", "%s", rc(sleeper(NULL)));
	in_time("late", 300, 300 + test_patience_ms(100));
	go_on();
	timeouts(d, SO_RCVTIMEO, 0);
	all_there();
}

/* ---- the next one that has it is stopped ---- */

/* The timeout is for a test that fails. */
static void sleeps_interrupted(void)
{
	struct pollfd pfd = {.fd = d, .events = POLLIN};
	struct epoll_event event = {.events = EPOLLIN};
	int set = epoll_create1(0);

	on_alarm(0);
	alarm_soon(true);
	check(named("signal-poll"), "-1 EINTR", "%s", rc(poll(&pfd, 1, test_deadline_ms(5000))));
	in_time("signal-poll", 100, 100);
	epoll_ctl(set, EPOLL_CTL_ADD, d, &event);
	alarm_soon(true);
	check(named("signal-epoll"), "-1 EINTR", "%s", rc(epoll_wait(set, &event, 1, test_deadline_ms(5000))));
	in_time("signal-epoll", 100, 100);
	close(set);
	alarm(test_alarm(60));
}

static int makes(void)
{
	d = rds_bound();
	warm_up(s, d);
	settle(d);
	return d;
}

static void is_stopped(int fd, pid_t next)
{
	struct name to = name_of(fd);
	char buf[10];

	stage = "next";
	carrier = next;
	stop("");
	waits();
	sleeps_interrupted();
	go_on();
	sendto(s, "1234", 4, 0, &to.sa, to.len);
	check(named("message"), "4", "%s", rc(recv(fd, buf, sizeof(buf), 0)));
	kill(next, SIGKILL);
	send_to(fd, s, "done", 4, 0);
}

static void next_is_stopped(void)
{
	char buf[10];

	check("next-maker-end", "signal 9", "%s", made_and_left(makes, is_stopped));
	check("next-done", "4", "%s", wait_message(s) ? rc(recv(s, buf, sizeof(buf), 0)) : "");
}

int main(int argc, char **argv)
{
	struct other maker, holder;

	conf_begin(argc, argv);
	if (conf_transport == RDS_TRANS_IB)
		conf_skip("how a process waits for another one of its host is the same over RDMA devices");
	s = rds_bound();
	label(s, "s");
	if (fork_other(&maker)) {
		d = rds_bound();
		label(d, "d");
		warm_up(s, d);
		settle(d);
		if (fork_other(&holder)) {
			carrier = getppid();
			without_timeout("fresh", false);
			without_timeout("used", true);
			asleep();
			got = 2;
			sent = 0;
			with_timeout();
			_exit(0);
		}
		check("holder-end", "exit 0", "%s", end_of(&holder));
		_exit(0);
	}
	check("maker-end", "exit 0", "%s", end_of(&maker));
	next_is_stopped();
	return conf_end();
}
