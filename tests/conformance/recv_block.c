/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Blocking receives: timeouts, signals, several sleepers, unbound sockets. */
#include "rdsconf.h"
#include "signals.h"

static char byte;

static long receive_one(void *arg)
{
	char c;
	long r = recv(*(int *)arg, &c, 1, 0);

	return r == 1 ? c : r;
}

static long read_one(void *arg)
{
	char c;

	return read(*(int *)arg, &c, 1);
}

static const char *waited(long (*call)(void *), int fd)
{
	long long start = now_ms();
	long r = call(&fd);
	const char *result = rc(r);

	return text("%s waited %d", result, now_ms() - start >= 90);
}

static void expires(int fd, const char *state)
{
	timeouts(fd, SO_RCVTIMEO, 100);
	check(text("%s-recv-timeout", state), "-1 ETIMEDOUT waited 1", "%s", waited(receive_one, fd));
	check(text("%s-read-timeout", state), "-1 ETIMEDOUT waited 1", "%s", waited(read_one, fd));
	check(text("%s-dontwait-with-timeout", state), "-1 EAGAIN", "%s", rc(recv(fd, &byte, 1, MSG_DONTWAIT)));
	fcntl(fd, F_SETFL, O_NONBLOCK);
	check(text("%s-nonblock-with-timeout", state), "-1 EAGAIN", "%s", rc(recv(fd, &byte, 1, 0)));
	fcntl(fd, F_SETFL, 0);
	timeouts(fd, SO_RCVTIMEO, 0);
}

static void interrupted(int fd, const char *state)
{
	struct helper helper;

	catch(0);
	helper_start(&helper, receive_one, &fd);
	check(text("%s-blocks", state), "1", "%d", helper_asleep(&helper));
	pthread_kill(helper.thread, SIGUSR1);
	check(text("%s-interrupted", state), "1", "%d", helper_ends(&helper));
	check(text("%s-interrupted-result", state), "-1 EINTR", "%s",
	      helper_done(&helper, 0) ? rc(helper.result) : "running");
	timeouts(fd, SO_RCVTIMEO, TEST_COMES);
	helper_start(&helper, receive_one, &fd);
	helper_asleep(&helper);
	pthread_kill(helper.thread, SIGUSR1);
	check(text("%s-interrupted-with-timeout", state), "-1 EINTR", "%s", rc(helper_result(&helper)));
	timeouts(fd, SO_RCVTIMEO, 0);
}

static void restarted(int s, int d)
{
	struct helper helper;

	catch(SA_RESTART);
	helper_start(&helper, receive_one, &d);
	helper_asleep(&helper);
	pthread_kill(helper.thread, SIGUSR1);
	check("restart-still-blocks", "1", "%d", helper_asleep(&helper));
	check("restart-signals", "1", "%d", (int)signals);
	send_to(s, d, "r", 1, 0);
	check("restart-gets-message", "114", "%s", rc(helper_result(&helper)));
}

/* Each message goes to exactly one of the sleepers. */
static void several(int s, int d)
{
	struct helper helpers[3];
	int i, j, done = 0;
	long sum = 0;

	for (i = 0; i < 3; i++) {
		helper_start(&helpers[i], receive_one, &d);
		helper_asleep(&helpers[i]);
	}
	for (j = 1; j <= 3; j++) {
		char c = j;

		send_to(s, d, &c, 1, 0);
	}
	for (i = 0; i < 3; i++) {
		done += helper_ends(&helpers[i]);
		sum += helpers[i].result;
	}
	check("several-sleepers", "done 3 sum 6", "done %d sum %ld", done, sum);
	check("several-none-left", "-1 EAGAIN", "%s", rc(recv(d, &byte, 1, MSG_DONTWAIT)));
}

/* The socket is bound while a thread sleeps in a receive on it: that thread gets what arrives. */
static void bound_later(int s)
{
	struct name at = name_here(0);
	int fd = rds_socket();
	struct helper helper;

	helper_start(&helper, receive_one, &fd);
	check("unbound-receive-blocks", "1", "%d", helper_asleep(&helper));
	check("bind-under-a-sleeper", "0", "%s", rc(bind(fd, &at.sa, at.len)));
	send_to(s, fd, "b", 1, 0);
	check("sleeper-gets-message", "98", "%s", rc(helper_result(&helper)));
	close(fd);
}

int main(int argc, char **argv)
{
	int s, d, unbound;

	conf_begin(argc, argv);
	s = rds_bound();
	d = rds_bound();
	unbound = rds_socket();
	expires(unbound, "unbound");
	expires(d, "bound");
	interrupted(unbound, "unbound");
	interrupted(d, "bound");
	restarted(s, d);
	several(s, d);
	bound_later(s);
	return conf_end();
}
