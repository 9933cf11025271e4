/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Signals to a call that sleeps on a socket of another process, while that process is stopped: the
 * signal ends the call also if the process goes on in the same moment, and in poll and its like the
 * mask of the call decides.  Which call, with which mask, a signal ends is the kernel's to say; that
 * another process is stopped, or goes on, is nothing to it.
 */
#include "rdsconf.h"
#include "signals.h"

#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/wait.h>

#define TRIES 5
#define STEP_MS 10 /* between signals: several come, whatever the call is doing */
#define LONG_MS 200

static pid_t owner;
static long long began, handled;

static void stop(void)
{
	unsigned looks = 0;

	kill(owner, SIGSTOP);
	while (!process_stopped(owner))
		test_pause(&looks);
}

/* Sockets that this process has not used yet; news of the past are taken out of them. */
static int fresh[6 * TRIES];
static unsigned used;
static _Atomic bool begun;

static long receives(void *fd)
{
	char byte;

	begun = true;
	return recv(*(int *)fd, &byte, 1, 0);
}

static long polls(void *fd)
{
	begun = true;
	return poll(&(struct pollfd){.fd = *(int *)fd, .events = POLLIN}, 1, TEST_COMES);
}

static long selects(void *fd)
{
	fd_set in;

	FD_ZERO(&in);
	FD_SET(*(int *)fd, &in);
	begun = true;
	return select(*(int *)fd + 1, &in, NULL, NULL, NULL);
}

/*
 * As soon as the call sleeps, signals come, and then what was stopped goes on.  (More than one: the
 * thread may have slept for another reason, before the call.)
 */
static void in_one_moment(const char *name, long (*call)(void *), int flags)
{
	struct helper helper;
	int i, j, ended = 0;

	catch (flags);
	for (i = 0; i < TRIES; i++) {
		stop();
		begun = false;
		helper_start(&helper, call, &fresh[used++]);
		while (!(begun && helper_rests(&helper)))
			;
		for (j = 0; j < 4; j++) {
			pthread_kill(helper.thread, SIGUSR1);
			usleep(1000);
		}
		kill(owner, SIGCONT);
		ended += helper_result(&helper) == -1 && errno == EINTR;
	}
	check(name, text("%d", TRIES), "%d", ended);
}

/* ---- masks ---- */

static void on_alarm(int sig)
{
	on_signal(sig);
	if (!handled)
		handled = now_ms();
}

static void alarms(bool on)
{
	struct itimerval every = {0};

	/* The first one late: the call has begun by then, on a busy machine, too. */
	every.it_value.tv_usec = on ? LONG_MS / 2 * 1000 : 0;
	every.it_interval.tv_usec = on ? STEP_MS * 1000 : 0;
	signals = 0;
	handled = 0;
	began = now_ms();
	setitimer(ITIMER_REAL, &every, NULL);
}

static int masked_ppoll(int fd, const struct timespec *ts, const sigset_t *mask)
{
	return ppoll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, ts, mask);
}

static int masked_pselect(int fd, const struct timespec *ts, const sigset_t *mask)
{
	fd_set in;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	return pselect(fd + 1, &in, NULL, NULL, ts, mask);
}

static int masked_epoll(int fd, const struct timespec *ts, const sigset_t *mask)
{
	struct epoll_event event;

	return epoll_pwait(fd, &event, 1, (int)ts->tv_nsec / 1000000, mask);
}

/*
 * A signal that the call's mask blocks neither ends the call nor has its handler run in it.  One that
 * only the call's mask lets through ends it.
 */
static void masks(const char *name, int fd, int (*call)(int fd, const struct timespec *ts, const sigset_t *mask))
{
	const struct timespec ts = {.tv_nsec = LONG_MS * 1000000};
	sigset_t alarm, none;
	const char *said;
	long long end;

	sigemptyset(&none);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	alarms(true);
	said = rc(call(fd, &ts, &alarm));
	sigprocmask(SIG_BLOCK, &alarm, NULL);
	end = now_ms();
	check(text("%s-blocks", name), "0", "%s", said);
	/* it ran behind the call, or, on a busy machine, before it: all of the call was later */
	check(text("%s-blocks-handler", name), "1", "%d",
	      !handled || handled - began >= LONG_MS - 5 || end - handled >= LONG_MS - 5);
	handled = 0;
	said = rc(call(fd, &ts, &none));
	check(text("%s-lets", name), "-1 EINTR", "%s", said);
	alarms(false);
	sigprocmask(SIG_UNBLOCK, &alarm, NULL);
}

static void all_masks(const char *name, int fd)
{
	struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	int set = epoll_create1(0);

	sigaction(SIGALRM, &sa, NULL);
	epoll_set(set, EPOLL_CTL_ADD, fd, EPOLLIN);
	masks(text("%s-ppoll", name), fd, masked_ppoll);
	masks(text("%s-pselect", name), fd, masked_pselect);
	masks(text("%s-epoll", name), set, masked_epoll);
	close(set);
}

static void borrows(void)
{
	in_one_moment("recv", receives, 0);
	in_one_moment("poll", polls, SA_RESTART);
	in_one_moment("select", selects, SA_RESTART);
	stop();
	all_masks("stopped", fresh[used++]);
	kill(owner, SIGCONT);
}

/* ---- the last process that had it has ended, the next one is stopped ---- */

static int makes(void)
{
	int fd = rds_bound();

	settle(fd);
	return fd;
}

static void is_stopped(int fd, pid_t next)
{
	owner = next;
	stop();
	all_masks("next", fd);
	kill(next, SIGKILL);
}

int main(int argc, char **argv)
{
	struct other maker, holder;
	unsigned i;

	conf_begin(argc, argv);
	if (conf_transport == RDS_TRANS_IB)
		conf_skip("how a process waits for another one of its host is the same over RDMA devices");
	if (fork_other(&maker)) {
		for (i = 0; i < ARRAY_SIZE(fresh); i++) {
			fresh[i] = rds_bound();
			settle(fresh[i]);
		}
		if (fork_other(&holder)) {
			owner = getppid();
			borrows();
			_exit(0);
		}
		check("holder-end", "exit 0", "%s", end_of(&holder));
		_exit(0);
	}
	check("maker-end", "exit 0", "%s", end_of(&maker));
	check("next-maker-end", "signal 9", "%s", made_and_left(makes, is_stopped));
	return conf_end();
}
