/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_starved - a program that only looks, and never sleeps, leaves the library's helper thread
 * no processor: all the same it hears processes that are new to it, and reaches them.
 *
 * So it goes where the program has a real-time class and one CPU.  Not everybody may have that
 * class, so another process holds the helper (ptrace), and lets it go only while the program's
 * thread sleeps.  On kernel RDS there is no helper, and nobody holds anything.
 */
#include "program.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <time.h>

#define PEERS 3
#define MOST (5 * (int)test_slow()) /* seconds of the program's processor for one of them */
#define GLANCE 100 /* microseconds */
#define BIG 8192   /* short messages need no helper */

enum how { RECV, POLL, EPOLL, SEND, HOWS };
static const char *const names[] = {"recv", "poll", "epoll_wait", "send"};

/* ---- the holder ---- */

static char state_of(pid_t process, int thread)
{
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)process, thread);
	f = fopen(path, "r");
	if (!f)
		return 0;
	if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	fclose(f);
	return state;
}

static int line[2]; /* to the holder, and back */

struct held {
	pid_t process;
	int helper;
};

static void stop(int thread)
{
	int status;

	if (ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) == 0)
		check(waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status), "the helper stops");
}

/* Is killed in the end.  The kernel lets go of what it holds. */
static void holds(void *arg)
{
	bool runs = true, may_run;
	struct held h;
	char state;

	(void)arg;
	hear(line[1], &h, sizeof(h));
	if (ptrace(PTRACE_SEIZE, h.helper, NULL, NULL)) {
		tell(line[1], "n", 1);
		pause();
	}
	tell(line[1], "y", 1);
	while ((state = state_of(h.process, h.process)) && state != 'Z') {
		may_run = state == 'S';
		if (runs && !may_run)
			stop(h.helper);
		else if (may_run && !runs)
			ptrace(PTRACE_CONT, h.helper, NULL, NULL);
		runs = may_run;
		usleep(GLANCE);
	}
}

static bool hold(void)
{
	struct held h = {.process = getpid(), .helper = helper_thread()};
	char answer;

	if (!h.helper)
		return false;
	tell(line[0], &h, sizeof(h));
	hear(line[0], &answer, 1);
	return answer == 'y';
}

/* ---- its peers ---- */

static int go[PEERS][2], back[PEERS][2], over[2];
static int ep;

static void says(void *arg)
{
	int i = *(int *)arg, text[BIG / sizeof(int)] = {i};
	struct sockaddr_in to, own;
	char c;

	hear(go[i][0], &to, sizeof(to));
	check(sendto(bound(&own), text, BIG, 0, (struct sockaddr *)&to, sizeof(to)) == BIG, "sendto");
	hear(over[0], &c, 1);
}

static void listens(void *arg)
{
	int i = *(int *)arg, fd;
	struct pollfd p = {.events = POLLIN};
	struct sockaddr_in own;
	char buf[BIG], c;

	fd = p.fd = bound(&own);
	tell(go[i][1], &own, sizeof(own));
	check(poll(&p, 1, TEST_COMES) == 1 && recv(fd, buf, sizeof(buf), 0) == BIG, "recv");
	tell(back[i][1], "x", 1);
	hear(over[0], &c, 1);
}

/* ---- the program ---- */

static double used(void)
{
	struct timespec ts;

	check(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts) == 0, "clock_gettime");
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static bool has_come(enum how how, int fd, int i)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int text[BIG / sizeof(int)] = {-1};
	struct epoll_event e;

	if ((how == POLL && poll(&p, 1, 0) < 1) || (how == EPOLL && epoll_wait(ep, &e, 1, 0) < 1))
		return false;
	if (recv(fd, text, sizeof(text), how == RECV ? MSG_DONTWAIT : 0) != BIG)
		return false;
	check(text[0] == i, "%d instead of %d", text[0], i);
	return true;
}

static bool has_gone(int fd, const struct sockaddr_in *to, int i)
{
	static const char buf[BIG];
	ssize_t n = sendto(fd, buf, sizeof(buf), MSG_DONTWAIT, (const struct sockaddr *)to, sizeof(*to));
	char c;

	check(n == sizeof(buf) || errno == EAGAIN || errno == ENOBUFS, "sendto");
	return read(back[i][0], &c, 1) == 1;
}

static void looks(void *arg)
{
	enum how how = *(enum how *)arg;
	pid_t holder = start(holds, NULL), pids[PEERS];
	struct epoll_event e = {.events = EPOLLIN};
	struct sockaddr_in at, to[PEERS];
	double worst = 0, since;
	int status = 0;
	bool held;

	for (int i = 0; i < PEERS; i++)
		pids[i] = start(how == SEND ? listens : says, &i);
	for (int i = 0; how == SEND && i < PEERS; i++)
		hear(go[i][0], &to[i], sizeof(to[i]));
	int fd = bound(&at);

	ep = epoll_create1(0);
	check(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0, "epoll");
	held = hold();
	for (int i = 0; i < PEERS; i++) {
		if (how != SEND)
			tell(go[i][1], &at, sizeof(at));
		since = used();
		while (how == SEND ? !has_gone(fd, &to[i], i) : !has_come(how, fd, i))
			check(used() - since < MOST, "%s, peer %d", names[how], i);
		worst = used() - since > worst ? used() - since : worst;
	}
	kill(holder, SIGKILL);
	/* had it ended before, the kernel would have let the helper go */
	check(waitpid(holder, &status, 0) == holder && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
	      "the holder has ended by itself, status %#x", (unsigned)status);
	for (int i = 0; i < PEERS; i++)
		tell(over[1], "x", 1);
	for (int i = 0; i < PEERS; i++)
		finished(pids[i]);
	printf("%s: %s, at most %.0f ms\n", names[how], held ? "held" : "not held", worst * 1000);
}

int main(void)
{
	enum how how;

	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, line) == 0 && pipe(over) == 0, "pipes");
	for (int i = 0; i < PEERS; i++)
		check(pipe(go[i]) == 0 && pipe2(back[i], O_NONBLOCK) == 0, "pipes");
	for (how = RECV; how < HOWS; how++)
		finished(start(looks, &how));
	printf("%d ways\n", HOWS);
	return 0;
}
