/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Calls from signal handlers that interrupt calls, wherever these are, and jumps out of there.
 *
 * A timer with an uneven step runs a handler that sends to itself, receives, polls, and now and
 * then makes a socket of its own; meanwhile the program does the same on other sockets.  No stream
 * has a hole or a double, and nothing stands still.
 */
#include "rdsconf.h"

#include <setjmp.h>
#include <signal.h>
#include <time.h>

#define WINDOW 16u

/* ours: the program's; theirs: the handler's; others: of the one that interrupts the handler */
static struct stream {
	int from, to;
	struct name there;
	unsigned sent, came;
} ours, theirs, others;

static struct name here;
static timer_t timer[2];
static volatile unsigned runs;
static unsigned enough = 300; /* of them */
/* so many times longer does a call take: the handlers must leave the program some time */
static int slow = 1;
static const char *volatile wrong;
static bool jumps, feeds; /* the handler leaves by a jump; it sends to the program */
static volatile bool may_jump, in_second;
static sigjmp_buf out;

/* ---- streams ---- */

static bool stream_send(struct stream *s, int flags)
{
	ssize_t n = sendto(s->from, &s->sent, sizeof(s->sent), flags, &s->there.sa, s->there.len);

	if (n == (ssize_t)sizeof(s->sent))
		s->sent++;
	else if (n >= 0 || (errno != EAGAIN && errno != ENOBUFS))
		wrong = n < 0 ? strerror(errno) : "a short send";
	return n >= 0;
}

static bool stream_receive(struct stream *s, int flags)
{
	unsigned number;
	ssize_t n = recv(s->to, &number, sizeof(number), flags);

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n != (ssize_t)sizeof(number))
		wrong = n < 0 ? strerror(errno) : "a short message";
	else if (number != s->came)
		wrong = "out of order";
	s->came++;
	return true;
}

static void stream_open(struct stream *s)
{
	s->from = rds_bound();
	s->to = rds_bound();
	s->there = name_of(s->to);
	s->sent = s->came = 0;
}

static void stream_close(struct stream *s)
{
	close(s->from);
	close(s->to);
}

/* ---- handlers ---- */

/* Not beyond what is enough: who is not woken then sleeps for good, and is seen to. */
static void again(int which)
{
	struct itimerspec soon = {.it_value = {.tv_nsec = (20000 + (long)(runs * 7919u % 300u) * 1000) * slow}};

	if (runs < enough)
		timer_settime(timer[which], 0, &soon, NULL);
}

static void use(struct stream *s)
{
	struct pollfd p = {.fd = s->to, .events = POLLIN};
	int fd;

	stream_send(s, MSG_DONTWAIT);
	poll(&p, 1, 0);
	while (!feeds && stream_receive(s, MSG_DONTWAIT))
		;
	if (runs % 32)
		return;
	fd = socket(AF_RDS, SOCK_SEQPACKET, 0); /* rds_bound() is not for handlers */
	if (fd < 0 || bind(fd, &here.sa, here.len))
		wrong = "socket or bind";
	close(fd);
}

static void first(int sig)
{
	int saved = errno;

	(void)sig;
	runs++;
	use(&theirs);
	again(0);
	errno = saved;
	if (jumps && may_jump && runs % 2 && !in_second) {
		may_jump = false;
		siglongjmp(out, 1);
	}
}

/* It may interrupt the first one's, too. */
static void second(int sig)
{
	int saved = errno;

	(void)sig;
	in_second = true;
	use(&others);
	again(1);
	in_second = false;
	errno = saved;
}

static void handle(int which, int sig, void (*fn)(int), int flags)
{
	struct sigaction sa = {.sa_handler = fn, .sa_flags = flags};
	struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = sig};

	sigaction(sig, &sa, NULL);
	if (timer_create(CLOCK_MONOTONIC, &ev, &timer[which]))
		conf_die("timer_create");
	again(which);
}

/* ---- the program ---- */

static bool goes_on(void)
{
	return !wrong && runs < enough;
}

static void send_and_receive(void)
{
	struct pollfd p[2] = {{.fd = ours.to, .events = POLLIN}, {.fd = ours.from, .events = POLLOUT}};
	int copy;

	while (goes_on()) {
		while (ours.sent - ours.came < WINDOW && !wrong)
			stream_send(&ours, 0);
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			wrong = "poll";
		while (ours.sent != ours.came && !wrong)
			stream_receive(&ours, 0);
		copy = dup(ours.to);
		close(copy);
	}
}

/*
 * A call that was jumped out of has been done or not, which cannot be known; but what comes is in
 * order.
 */
static void send_and_leave(void)
{
	static volatile unsigned next, last;
	unsigned number;
	ssize_t n;

	next = last = 0;
	while (goes_on()) {
		sigsetjmp(out, 1);
		may_jump = true;
		number = ++next;
		n = sendto(ours.from, &number, sizeof(number), MSG_DONTWAIT, &ours.there.sa, ours.there.len);
		if (n < 0 && errno != EAGAIN && errno != ENOBUFS)
			wrong = "sendto";
		while (goes_on() && recv(ours.to, &number, sizeof(number), MSG_DONTWAIT) > 0) {
			may_jump = false;
			if (number <= last)
				wrong = "a double, or out of order";
			last = number;
			may_jump = true;
		}
		may_jump = false;
	}
}

/* It sleeps, or is about to, and never hears that it was interrupted. */
static void receive_only(void)
{
	while (goes_on())
		stream_receive(&theirs, 0);
}

static void ends(void)
{
	int i;

	for (i = 0; i < 2; i++)
		if (timer[i])
			timer_delete(timer[i]);
	signal(SIGUSR1, SIG_IGN);
	signal(SIGUSR2, SIG_IGN);
	timer[0] = timer[1] = NULL;
}

static void try(const char *name, void (*program)(void), int flags, bool both)
{
	struct stream *const all[] = {&ours, &theirs, &others};
	unsigned i;

	wrong = NULL;
	runs = 0;
	jumps = program == send_and_leave;
	feeds = program == receive_only;
	for (i = 0; i < 3; i++)
		stream_open(all[i]);
	handle(0, SIGUSR1, first, flags | SA_RESTART);
	if (both)
		handle(1, SIGUSR2, second, flags | SA_RESTART);
	program();
	ends();
	feeds = false;
	for (i = 1; i < 3; i++)
		while (!wrong && all[i]->came != all[i]->sent)
			stream_receive(all[i], 0);
	check(name, "all", "%s", wrong ? wrong : "all");
	for (i = 0; i < 3; i++)
		stream_close(all[i]);
}

int main(int argc, char **argv)
{
	static char elsewhere[65536];
	stack_t stack = {.ss_sp = elsewhere, .ss_size = sizeof(elsewhere)};

	conf_begin(argc, argv);
	/* On an emulated machine, beside others, and each call is another process's. */
	if (conf_ib && getenv("CONFORMANCE_HELD")) {
		enough = 30;
		slow = 20;
	}
	here = name_here(0);
	try("handler", send_and_receive, 0, false);
	try("handler-in-handler", send_and_receive, 0, true);
	try("sleeper", receive_only, 0, false);
	try("jump", send_and_leave, 0, false);
	sigaltstack(&stack, NULL);
	try("handler-on-its-stack", send_and_receive, SA_ONSTACK, false);
	try("handlers-on-their-stack", send_and_receive, SA_ONSTACK, true);
	try("jump-from-its-stack", send_and_leave, SA_ONSTACK, true);
	return conf_end();
}
