/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Processes that sleep in calls on a socket that they share: what wakes them, and whom a message
 * does not go to.
 */
#include "rdsconf.h"
#include "signals.h"

#define CAP 8192

static int s, d;
static char data[CAP + 1];

static long to_far(int fd, size_t len, int flags)
{
	struct name far = name_far(4070);

	return sendto(fd, data, len, flags, &far.sa, far.len);
}

static void child_times_out(void)
{
	long long began = now_ms(), took;
	const char *said = rc(recv(d, data, 1, 0));

	took = now_ms() - began;
	check("child-timeout", "-1 ETIMEDOUT", "%s", said);
	check("child-timeout-waited", "1", "%d", took >= 95 && in_bounds(took, 4000));
	began = now_ms();
	said = rc(recv(d, data, 1, MSG_DONTWAIT));
	took = now_ms() - began;
	check("child-dontwait", "-1 EAGAIN", "%s", said);
	timeouts(d, SO_RCVTIMEO, 0);
}

static void timeout(void)
{
	timeouts(d, SO_RCVTIMEO, 100);
	elsewhere(child_times_out);
}

/* A child that is asleep in one receive of at most 50 bytes and then says what came of it. */
static bool blocked_reader(struct other *other, const char *name, int sa_flags)
{
	char got[50] = "";
	const char *said;

	if (!fork_other(other)) {
		check(text("%s-asleep", name), "1", "%d", process_asleep(other->pid));
		return false;
	}
	if (sa_flags >= 0)
		catch (sa_flags);
	said = rc(recv(d, got, sizeof(got), 0));
	check(text("%s-received", name), NULL, "%s %.5s signals %d", said, got, signals);
	return true;
}

static void wakes(void)
{
	struct other other;

	if (blocked_reader(&other, "plain", -1))
		_exit(0);
	send_to(s, d, "plain", 5, 0);
	check("plain-end", "exit 0", "%s", end_of(&other));

	/* The parent has closed its number meanwhile. */
	if (blocked_reader(&other, "alone", -1))
		_exit(0);
	struct name name = name_of(d);
	close(d);
	sendto(s, "alone", 5, 0, &name.sa, name.len);
	check("alone-end", "exit 0", "%s", end_of(&other));
	d = rds_bound();
}

/* Each gets one, and neither goes on without. */
static void both(void)
{
	struct other one, two;
	int i, late = 0;

	if (blocked_reader(&one, "first", -1))
		_exit(0);
	if (blocked_reader(&two, "second", -1))
		_exit(0);
	for (i = 0; i < 2; i++)
		send_to(s, d, "both!", 5, 0);
	check("first-end", "exit 0", "%s", end_of(&one));
	check("second-end", "exit 0", "%s", end_of(&two));
	late = recv(d, data, 1, MSG_DONTWAIT);
	check("both-left", "-1 EAGAIN", "%s", rc(late));
}

static void signals_while_asleep(void)
{
	struct other other;
	char got[8];

	if (blocked_reader(&other, "interrupted", 0)) {
		say(&other);
		check("interrupted-then", "5", "%s", rc(receive(d, got, 8, 0)));
		_exit(0);
	}
	kill(other.pid, SIGUSR1);
	hear(&other);
	send_to(s, d, "after", 5, 0);
	check("interrupted-end", "exit 0", "%s", end_of(&other));

	if (blocked_reader(&other, "restarted", SA_RESTART))
		_exit(0);
	kill(other.pid, SIGUSR1);
	check("restarted-sleeps-on", "1", "%d", process_asleep(other.pid));
	send_to(s, d, "again", 5, 0);
	check("restarted-end", "exit 0", "%s", end_of(&other));

	/* So it is with a timeout, which begins anew. */
	timeouts(d, SO_RCVTIMEO, 600);
	if (blocked_reader(&other, "timed", SA_RESTART))
		_exit(0);
	kill(other.pid, SIGUSR1);
	check("timed-end", "exit 0", "%s", end_of(&other));
	timeouts(d, SO_RCVTIMEO, 0);
	check("nothing-left", "-1 EAGAIN", "%s", rc(recv(d, got, 8, MSG_DONTWAIT)));
}

/* A sleeper that is killed has taken nothing. */
static void not_his(void)
{
	struct other other;
	char got[8];

	if (blocked_reader(&other, "killed", -1))
		_exit(0);
	kill(other.pid, SIGKILL);
	check("killed-end", "signal 9", "%s", end_of(&other));
	send_to(s, d, "mine", 4, 0);
	check("killed-took-nothing", "4", "%s", rc(receive(d, got, 8, 0)));
}

static void child_fills(void)
{
	long long began;

	check("child-fills", "8192", "%s", rc(to_far(d, CAP, MSG_DONTWAIT)));
	check("child-full", "-1 EAGAIN", "%s", rc(to_far(d, 1, MSG_DONTWAIT)));
	check("child-full-elsewhere", "-1 EAGAIN", "%s", rc(send_to(d, s, "x", 1, MSG_DONTWAIT)));
	timeouts(d, SO_SNDTIMEO, 100);
	began = now_ms();
	check("child-full-timeout", "-1 ETIMEDOUT", "%s", rc(to_far(d, 1, 0)));
	check("child-full-waited", "1", "%d", now_ms() - began >= 95);
}

/* The bytes that one has sent fill the buffer of both. */
static void full(void)
{
	struct name far = name_far(4070);
	struct other other;

	close(d);
	d = rds_bound_path0();
	rds_bufs(d, CAP, 0);
	elsewhere(child_fills);
	check("parent-full", "-1 EAGAIN", "%s", rc(to_far(d, 1, MSG_DONTWAIT)));
	timeouts(d, SO_SNDTIMEO, 0);
	if (fork_other(&other)) {
		catch (0);
		check("full-interrupted", "-1 EINTR", "%s", rc(to_far(d, 1, 0)));
		check("full-until-cancelled", "2", "%s", rc(to_far(d, 2, 0)));
		_exit(0);
	}
	check("full-asleep", "1", "%d", process_asleep(other.pid));
	kill(other.pid, SIGUSR1);
	check("full-asleep-again", "1", "%d", process_asleep(other.pid));
	check("cancel", "0", "%s", rc(setsockopt(d, SOL_RDS, RDS_CANCEL_SENT_TO, &far.ss, far.len)));
	check("full-end", "exit 0", "%s", end_of(&other));
	close(d);
	d = rds_bound();
}

static void child_congested(void)
{
	int third = rds_bound();

	check("child-congested", "-1 ENOBUFS", "%s", rc(send_to(s, d, data, 1, MSG_DONTWAIT)));
	check("child-reads", "5000", "%s", rc(recv(d, data, CAP, MSG_DONTWAIT)));
	cong_told(d, s);
	check("child-not-congested", "1", "%s", rc(send_to(s, d, data, 1, MSG_DONTWAIT)));
	close(third);
}

static void congested(void)
{
	rds_bufs(d, 0, 4096);
	warm_up(s, d);
	send_to(s, d, data, 5000, 0);
	check("congesting-there", "1", "%d", wait_queued(d, 1));
	cong_told(d, s);
	check("parent-congested", "-1 ENOBUFS", "%s", rc(send_to(s, d, data, 1, MSG_DONTWAIT)));
	elsewhere(child_congested);
	check("parent-not-congested", "1", "%s", rc(send_to(s, d, data, 1, MSG_DONTWAIT)));
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	s = rds_bound();
	d = rds_bound();
	timeout();
	wakes();
	both();
	signals_while_asleep();
	not_his();
	if (conf_loop)
		return conf_end(); /* the loopback transport is never full and never congested */
	full();
	congested();
	return conf_end();
}
