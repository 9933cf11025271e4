/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* poll, ppoll and select: which bits are set in which state, and what wakes a sleeper. */
#include "rdsconf.h"
#include "signals.h"

#include <sys/select.h>

#define ALL (POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLPRI | POLLRDBAND | POLLWRBAND | POLLRDHUP)

static const char *bits(int fd, int events)
{
	struct pollfd pfd = { .fd = fd, .events = events, .revents = -1 };
	int r = poll(&pfd, 1, 0);

	return text("%d %s", r, poll_bits(pfd.revents));
}

static void states(int s, int d)
{
	int unbound = rds_socket();
	char byte;

	settle(unbound);
	check("unbound", "1 OUT|WRNORM", "%s", bits(unbound, ALL));
	check("empty", "1 OUT|WRNORM", "%s", bits(d, ALL));
	check("empty-in", "0 0", "%s", bits(d, POLLIN));
	check("empty-nothing", "0 0", "%s", bits(d, 0));
	check("empty-band", "0 0", "%s", bits(d, POLLWRBAND | POLLRDBAND | POLLPRI));
	send_to(s, d, "x", 1, 0);
	wait_message(d);
	check("message", "1 IN|RDNORM|OUT|WRNORM", "%s", bits(d, ALL));
	check("message-in", "1 IN", "%s", bits(d, POLLIN));
	check("message-rdnorm", "1 RDNORM", "%s", bits(d, POLLRDNORM));
	check("message-out", "1 OUT", "%s", bits(d, POLLOUT));
	check("message-nothing-asked", "0 0", "%s", bits(d, 0));
	recv(d, &byte, 1, 0);
	check("taken", "1 OUT|WRNORM", "%s", bits(d, ALL));
	send_to(s, d, "", 0, 0);
	wait_message(d);
	check("zero-length-message", "1 IN|RDNORM|OUT|WRNORM", "%s", bits(d, ALL));
	recv(d, &byte, 1, 0);
	close(unbound);
	check("closed", "1 NVAL", "%s", bits(unbound, ALL));
	check("negative-descriptor", "0 0", "%s", bits(-1, ALL));
}

/* RDS and other descriptors in one call. */
static void mixed(int s, int d)
{
	struct pollfd pfd[4];
	int p[2], r;
	char byte;

	if (pipe(p))
		conf_die("pipe");
	pfd[0] = (struct pollfd){ .fd = p[0], .events = POLLIN };
	pfd[1] = (struct pollfd){ .fd = d, .events = POLLIN };
	pfd[2] = (struct pollfd){ .fd = -1, .events = POLLIN };
	pfd[3] = (struct pollfd){ .fd = d, .events = POLLOUT };
	r = poll(pfd, 4, 0);
	check("mixed-quiet", "1: 0 0 0 OUT", "%d: %s %s %s %s", r, poll_bits(pfd[0].revents),
	      poll_bits(pfd[1].revents), poll_bits(pfd[2].revents), poll_bits(pfd[3].revents));
	if (write(p[1], "p", 1) != 1)
		conf_die("write");
	r = poll(pfd, 3, TEST_COMES);
	check("mixed-pipe", "1: IN 0", "%d: %s %s", r, poll_bits(pfd[0].revents), poll_bits(pfd[1].revents));
	send_to(s, d, "x", 1, 0);
	wait_message(d);
	r = poll(pfd, 4, TEST_COMES);
	check("mixed-both", "3: IN IN 0 OUT", "%d: %s %s %s %s", r, poll_bits(pfd[0].revents),
	      poll_bits(pfd[1].revents), poll_bits(pfd[2].revents), poll_bits(pfd[3].revents));
	recv(d, &byte, 1, 0);
	close(p[0]);
	close(p[1]);
}

static long poll_one(void *arg)
{
	struct pollfd pfd = { .fd = *(int *)arg, .events = POLLIN };
	int r = poll(&pfd, 1, TEST_COMES);

	return r < 0 ? r : pfd.revents;
}

static long select_one(void *arg)
{
	struct timeval tv = { TEST_COMES / 1000, 0 };
	int fd = *(int *)arg;
	fd_set in;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	return select(fd + 1, &in, NULL, NULL, &tv) == 1 ? 100 + FD_ISSET(fd, &in) : -1;
}

static void wakes(int s, int d)
{
	struct pollfd pfd = { .fd = d, .events = POLLIN };
	struct helper helper;
	long long start;
	char byte;
	int r;

	start = now_ms();
	r = poll(&pfd, 1, 120);
	check("timeout", "0 waited 1", "%s waited %d", rc(r), now_ms() - start >= 110);
	helper_start(&helper, poll_one, &d);
	check("poll-sleeps", "1", "%d", helper_asleep(&helper));
	send_to(s, d, "x", 1, 0);
	check("poll-woken", "IN", "%s", poll_bits(helper_result(&helper)));
	recv(d, &byte, 1, 0);
	helper_start(&helper, select_one, &d);
	check("select-sleeps", "1", "%d", helper_asleep(&helper));
	send_to(s, d, "x", 1, 0);
	check("select-woken", "101", "%s", rc(helper_result(&helper)));
	recv(d, &byte, 1, 0);
	catch(SA_RESTART);
	helper_start(&helper, poll_one, &d);
	helper_asleep(&helper);
	pthread_kill(helper.thread, SIGUSR1);
	check("poll-interrupted-never-restarts", "-1 EINTR", "%s", rc(helper_result(&helper)));
}

static void with_select(int s, int d)
{
	struct timeval tv = { 0, 0 };
	struct timespec ts = { 0, 0 };
	fd_set in, out, ex;
	char byte;
	int r;

	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_ZERO(&ex);
	FD_SET(d, &in);
	FD_SET(d, &out);
	FD_SET(d, &ex);
	r = select(d + 1, &in, &out, &ex, &tv);
	check("select-empty", "1 in 0 out 1 except 0", "%d in %d out %d except %d", r, FD_ISSET(d, &in),
	      FD_ISSET(d, &out), FD_ISSET(d, &ex));
	send_to(s, d, "x", 1, 0);
	wait_message(d);
	FD_SET(d, &in);
	FD_SET(d, &out);
	FD_SET(d, &ex);
	r = pselect(d + 1, &in, &out, &ex, &ts, NULL);
	check("pselect-message", "2 in 1 out 1 except 0", "%d in %d out %d except %d", r, FD_ISSET(d, &in),
	      FD_ISSET(d, &out), FD_ISSET(d, &ex));
	recv(d, &byte, 1, 0);
}

int main(int argc, char **argv)
{
	sigset_t mask;
	int s, d;

	conf_begin(argc, argv);
	s = rds_bound();
	d = rds_bound();
	warm_up(s, d);
	states(s, d);
	mixed(s, d);
	wakes(s, d);
	with_select(s, d);
	sigemptyset(&mask);
	check("ppoll", "1 OUT", "%s", text("%d %s", ppoll(&(struct pollfd){ .fd = d, .events = POLLOUT }, 1, NULL,
							   &mask), "OUT"));
	check("poll-bad-pointer", "-1 EFAULT", "%s", rc(poll(conf_bad, 1, 0)));
	return conf_end();
}
