/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* A blocking send on a full send queue: timeout, signals, what wakes it. */
#include "rdsconf.h"
#include "signals.h"

#define CAP 4096

static char data[CAP];

static long blocking_send(void *arg)
{
	struct name far = name_far(4000);

	return sendto(*(int *)arg, "x", 1, 0, &far.sa, far.len);
}

static long cancel(int fd)
{
	struct name far = name_far(4000);

	return setsockopt(fd, SOL_RDS, RDS_CANCEL_SENT_TO, &far.ss, far.len);
}

static int full_socket(void)
{
	struct name far = name_far(4000);
	int fd = rds_bound_path0();

	rds_bufs(fd, CAP, 0);
	if (sendto(fd, data, CAP, MSG_DONTWAIT, &far.sa, far.len) != CAP)
		conf_die("fill");
	return fd;
}

static void expires(int fd)
{
	struct name far = name_far(4000);
	long long start = now_ms();
	long result;

	timeouts(fd, SO_SNDTIMEO, 150);
	result = blocking_send(&fd);
	check("sndtimeo", "-1 ETIMEDOUT waited 1", "%s waited %d", rc(result), now_ms() - start >= 140);
	check("sndtimeo-nonblocking", "-1 EAGAIN", "%s", rc(sendto(fd, "x", 1, MSG_DONTWAIT, &far.sa, far.len)));
	timeouts(fd, SO_SNDTIMEO, 0);
}

static void interrupted(int fd)
{
	struct helper helper;

	catch(0);
	helper_start(&helper, blocking_send, &fd);
	check("blocks", "1", "%d", helper_asleep(&helper));
	pthread_kill(helper.thread, SIGUSR1);
	check("interrupted", "1", "%d", helper_ends(&helper));
	check("interrupted-result", "-1 EINTR", "%s", helper_done(&helper, 0) ? rc(helper.result) : "running");
	check("interrupted-signals", "1", "%d", (int)signals);
}

static void restarted(int fd)
{
	struct helper helper;

	catch(SA_RESTART);
	helper_start(&helper, blocking_send, &fd);
	check("restart-blocks", "1", "%d", helper_asleep(&helper));
	pthread_kill(helper.thread, SIGUSR1);
	check("restart-still-blocks", "1", "%d", helper_asleep(&helper));
	check("restart-signals", "1", "%d", (int)signals);
	check("cancel", "0", "%s", rc(cancel(fd)));
	check("cancel-wakes", "1", "%d", helper_ends(&helper));
	check("cancel-result", "1", "%s", helper_done(&helper, 0) ? rc(helper.result) : "running");
	check("cancel-again", "0", "%s", rc(cancel(fd)));
}

static void raised(int fd)
{
	struct name far = name_far(4000);
	struct helper helper;

	sendto(fd, data, CAP, MSG_DONTWAIT, &far.sa, far.len);
	helper_start(&helper, blocking_send, &fd);
	check("raise-blocks", "1", "%d", helper_asleep(&helper));
	rds_bufs(fd, 4 * CAP, 0);
	check("raise-wakes", "1", "%d", helper_ends(&helper));
	check("raise-result", "1", "%s", helper_done(&helper, 0) ? rc(helper.result) : "running");
}

static long poll_out(void *arg)
{
	struct pollfd pfd = { .fd = *(int *)arg, .events = POLLOUT };

	return poll(&pfd, 1, TEST_COMES) < 0 ? -1 : pfd.revents;
}

static void poll_woken(void)
{
	struct name far = name_far(4000);
	struct helper helper;
	int fd = rds_bound();

	rds_bufs(fd, CAP, 0);
	if (sendto(fd, data, CAP, MSG_DONTWAIT, &far.sa, far.len) != CAP)
		conf_die("fill");
	settle(fd);
	helper_start(&helper, poll_out, &fd);
	check("poll-sleeps", "1", "%d", helper_asleep(&helper));
	check("poll-cancel", "0", "%s", rc(cancel(fd)));
	check("poll-woken", "OUT", "%s", poll_bits(helper_result(&helper)));
	close(fd);
}

int main(int argc, char **argv)
{
	int fd;

	conf_begin(argc, argv);
	if (conf_loop)
		conf_skip("the loopback transport acknowledges everything at once");
	fd = full_socket();
	expires(fd);
	interrupted(fd);
	restarted(fd);
	raised(fd);
	poll_woken();
	close(fd);
	return conf_end();
}
