/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * notices.c [-l] [CASE...] - which operations are reported, and to which socket: NOTIFY_ME,
 * RDS_RECVERR, tokens, and how several notifications come in one recvmsg.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "pair.h"

static uint64_t cookie;

static void op(uint64_t key, uint64_t flags, uint64_t number)
{
	struct vec v = {(uintptr_t)p, 64};
	struct op o = {.cookie = key, .flags = flags | F_WRITE, .token = number, .local = &v, .nr_local = 1};

	expect(op_send(b->fd, &a->name[0], &o), 0, "sendmsg");
}

/*
 * Everything sent until now has been done and told: a plain message has gone there, and one has
 * come back.
 */
static void settle(void)
{
	struct sockaddr_in me = name_of(address(0), INIT_PORT);
	struct out o;

	out_begin(&o, &a->name[0], "settle", 6);
	expect(out_send(&o, b->fd, 0), 6, "a plain message");
	while (agent_recv(a) != 6)
		;
	expect(AGENT(a, AGENT_SEND, .to = me, .len = 1), 1, "a plain message back");
}

static void only_if_asked(void)
{
	unsigned i;

	cookie = begin_page();
	for (i = 0; i < 10; i++) {
		op(cookie, 0, 100 + i);
		op(0xbad, 0, 200 + i);
	}
	settle();
	free(box_letter(b).body);
	op(cookie, F_NOTIFY, 1);
	expect_status(b, 1, ST_SUCCESS, "the last, with NOTIFY_ME");
	box_empty(b, "operations without NOTIFY_ME and RECVERR, good and bad");
	end_unread();
}

static void recverr(void)
{
	int on = -1;
	socklen_t len = sizeof(on);

	cookie = begin_page();
	expect(set_int(b->fd, OPT_RECVERR, 1), 0, "RDS_RECVERR");
	check(getsockopt(b->fd, 276, OPT_RECVERR, &on, &len) == 0 && on == 1, "RDS_RECVERR reads back as %d", on);
	op(cookie, 0, 1);
	op(0xbad, 0, 2);
	op(0xbad, F_NOTIFY, 3);
	op(cookie, F_NOTIFY, 4);
	op(0xbad, F_SILENT, 5);
	expect_status(b, 2, ST_DROPPED, "RECVERR without NOTIFY_ME: a failure says DROPPED");
	expect_status(b, 3, ST_REMOTE_ERROR, "RECVERR with NOTIFY_ME: the cause");
	expect_status(b, 4, ST_SUCCESS, "RECVERR with NOTIFY_ME");
	expect_status(b, 5, ST_DROPPED, "RECVERR without NOTIFY_ME, silent");
	settle();
	free(box_letter(b).body);
	box_empty(b, "RECVERR without NOTIFY_ME: success is silent");
	op(0xbad, 0, 6); /* sampled when sendmsg runs */
	expect(set_int(b->fd, OPT_RECVERR, 0), 0, "RDS_RECVERR off");
	op(0xbad, 0, 7);
	expect_status(b, 6, ST_DROPPED, "sent while RECVERR was on");
	settle();
	free(box_letter(b).body);
	box_empty(b, "sent while RECVERR was off");
	end_unread();
}

static void tokens(void)
{
	static const uint64_t t[] = {0, 1, 0xffffffff, 0x100000000, 0x8000000000000000, ~0ull};
	unsigned i;

	cookie = begin_page();
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		op(cookie, F_NOTIFY, t[i]);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		expect_status(b, t[i], ST_SUCCESS, "token %llx", (unsigned long long)t[i]);
	op(cookie, F_NOTIFY, 5);
	op(cookie, F_NOTIFY, 5); /* a token may be used twice, and comes twice */
	expect_status(b, 5, ST_SUCCESS, "a token of two operations");
	expect_status(b, 5, ST_SUCCESS, "a token of two operations, the second");
	end_unread();
}

/* Sends n operations with tokens from 1 and waits until their notifications should all be there. */
static void gather(unsigned n)
{
	struct pollfd fd = {.fd = b->fd, .events = POLLIN};
	unsigned i;

	for (i = 0; i < n; i++)
		op(cookie, F_NOTIFY, i + 1);
	settle();
	expect(poll(&fd, 1, TEST_COMES), 1, "poll for notifications");
}

/* Takes what a round left: notifications, and the message if it was not taken yet. */
static void drain(unsigned left, bool letter)
{
	double since = seconds();

	while (b->notes < left || (letter && !b->letters)) {
		if (box_pump(b))
			continue;
		waits(&since, "for %u more notifications, came %u", left, b->notes);
		box_wait(b, 100);
	}
	check(b->notes == left, "expected %u more notifications, came %u", left, b->notes);
	b->notes = 0;
	if (letter)
		free(box_letter(b).body);
}

/*
 * Batches: what fits comes in one call, newest first; across calls, oldest batch first.  Whether
 * all are there when we look cannot be seen without taking them, so a round may find fewer; one of
 * many must find all.
 */
static void batches(unsigned n, unsigned room, const unsigned *want, const char *why)
{
	struct notify got[16];
	unsigned i, round, have, at;
	bool letter = true;
	int k;

	cookie = begin_page();
	for (round = 0; round < 50; round++) {
		gather(n);
		for (have = 0, at = 0, letter = true; have < n; have += (unsigned)k) {
			k = take_notes(b->fd, got, room);
			if (k == 0)
				letter = false; /* that was the message: not all were there */
			if (k <= 0)
				break;
			check((unsigned)k <= room, "%s: room for %u, came %d", why, room, k);
			for (i = 1; i < (unsigned)k; i++)
				check(got[i].token + 1 == got[i - 1].token,
				      "%s: within a call newest first: expected token %llu after %llu, came %llu", why,
				      (unsigned long long)got[i - 1].token - 1, (unsigned long long)got[i - 1].token,
				      (unsigned long long)got[i].token);
			check(got[k - 1].token == have + 1, "%s: call %u ends with token %llu, expected the oldest, %u",
			      why, at, (unsigned long long)got[k - 1].token, have + 1);
			if ((unsigned)k != want[at++]) {
				have += (unsigned)k;
				break;
			}
		}
		if (have == n && at && want[at - 1] == (unsigned)k)
			break;
		drain(n - have, letter);
	}
	check(round < 50, "%s: never came as many at once as there was room for", why);
	drain(0, letter);
	end_unread();
}

static void newest_first(void)
{
	batches(2, 8, (const unsigned[]){2}, "two notifications in one recvmsg");
}

static void in_batches(void)
{
	batches(5, 2, (const unsigned[]){2, 2, 1}, "five notifications, two at a time");
}

static void one_by_one(void)
{
	batches(4, 1, (const unsigned[]){1, 1, 1, 1}, "room for one");
}

/*
 * A notification comes before data that waits longer; any receive takes it, also one without room
 * for it.
 */
static void before_data(void)
{
	struct pollfd fd = {.events = POLLIN};
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	struct notify n[4];
	unsigned round;
	char c[8];
	int k;

	cookie = begin_page();
	fd.fd = b->fd;
	for (round = 0; round < 50; round++) {
		settle(); /* a message is there */
		op(cookie, F_NOTIFY, 9);
		settle();
		k = take_notes(b->fd, n, 4);
		if (k == 1)
			break;
		check(k == 0 || k == -EAGAIN, "recvmsg: %d", k); /* it was not there yet */
		expect_status(b, 9, ST_SUCCESS, "a write");
		drain(0, true);
		if (k < 0)
			drain(0, true);
	}
	check(round < 50 && n[0].token == 9 && n[0].status == ST_SUCCESS,
	      "a notification comes before data that waits");
	drain(0, true);
	drain(0, true);
	op(cookie, F_NOTIFY, 10);
	while ((k = (int)recvfrom(b->fd, c, sizeof(c), MSG_DONTWAIT, (struct sockaddr *)&from, &len)) < 0 &&
	       errno == EAGAIN)
		check(poll(&fd, 1, TEST_COMES) == 1, "POLLIN for a notification");
	expect(k, 0, "recvfrom with a notification only");
	expect(len, 0, "the name's length with a notification only");
	box_empty(b, "a notification is lost if there is no room for it");
	end_unread();
}

static void blocking(void)
{
	_Alignas(8) unsigned char control[64];
	struct msghdr m = {.msg_control = control, .msg_controllen = sizeof(control)};
	struct timeval tv = {.tv_sec = (time_t)deadline()};

	cookie = begin_page();
	check(setsockopt(b->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0, "SO_RCVTIMEO: %m");
	op(cookie, F_NOTIFY, 11);
	expect(recvmsg(b->fd, &m, 0) < 0 ? -errno : 0, 0, "a recvmsg that blocks, woken by a notification");
	check(CMSG_FIRSTHDR(&m) && CMSG_FIRSTHDR(&m)->cmsg_type == CMSG_STATUS, "it brings RDMA_STATUS");
	end_unread();
}

/* What cannot be stored has not been told. */
static void no_memory(void)
{
	struct msghdr m = {.msg_control = (void *)16, .msg_controllen = 200};
	struct pollfd fd = {.events = POLLIN};
	char c[8];
	struct iovec iov = {c, sizeof(c)};
	unsigned i;

	cookie = begin_page();
	fd.fd = b->fd;
	settle();
	m.msg_iov = &iov; /* nothing of a plain message goes there */
	m.msg_iovlen = 1;
	expect(poll(&fd, 1, TEST_COMES), 1, "poll for a message");
	expect(recvmsg(b->fd, &m, MSG_DONTWAIT), 1, "a plain message, with control messages to go to no memory");
	for (i = 1; i <= 2; i++) {
		op(cookie, F_NOTIFY, i);
		m = (struct msghdr){.msg_control = (void *)16, .msg_controllen = 200};
		expect(poll(&fd, 1, TEST_COMES), 1, "poll for a notification");
		expect(recvmsg(b->fd, &m, MSG_DONTWAIT) < 0 ? -errno : 0, -EFAULT,
		       "a notification that is to go to no memory");
		expect(poll(&fd, 1, 0), 1, "poll for it afterwards");
		expect_status(b, i, ST_SUCCESS, "it has been kept");
	}
	box_empty(b, "all have been told");
	end_unread();
}

static const struct test_case cases[] = {
	{"only-if-asked", only_if_asked}, {"recverr", recverr},	      {"tokens", tokens},
	{"newest-first", newest_first},	  {"in-batches", in_batches}, {"one-by-one", one_by_one},
	{"before-data", before_data},	  {"blocking", blocking},     {"no-memory", no_memory},
};

int main(int argc, char **argv)
{
	return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
