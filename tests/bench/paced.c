/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * paced.c - one message every so often, so that the receiver falls asleep in between: what does
 * waking it cost?
 *
 * One-way latency is taken with the clock that both processes share.  The receiver counts how often
 * it really slept (voluntary context switches): a row that claims to show wake-ups must show them.
 * Role "pacer" keeps the rhythm and sends nothing: the CPU time that the rhythm costs by itself.
 */
#include "bench.h"

#include <errno.h>
#include <string.h>

static void sleep_until(uint64_t t)
{
	struct timespec ts = {.tv_sec = (time_t)(t / 1000000000u), .tv_nsec = (long)(t % 1000000000u)};
	int err;

	do
		err = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
	while (err == EINTR);
	if (err)
		die("clock_nanosleep: %s", strerror(err));
}

static void send_stamped(struct sock *s, const struct options *o, enum kind kind, uint64_t seq)
{
	sock_message(s)->stamp = now_ns();
	sock_send(s, o->size, kind, 0, seq);
}

static void one_turn(struct sock *s, const struct options *o, uint64_t seq, struct samples *trips)
{
	uint64_t t = now_ns();

	send_stamped(s, o, KIND_DATA, seq);
	if (!o->reply)
		return;
	sock_recv(s);
	if (sock_message(s)->seq != seq || sock_message(s)->kind != KIND_DATA)
		die("wrong reply to message %llu", (unsigned long long)seq);
	samples_add(trips, now_ns() - t);
}

static void sender(const struct options *o, bool silent)
{
	struct samples trips = {0};
	uint64_t next, end, seq = 0;
	struct usage u;
	struct sock s;

	if (!silent) {
		sock_open(&s, o);
		sock_await_peer(&s);
		send_stamped(&s, o, KIND_HELLO, 0); /* connects */
		sock_recv(&s);
	}
	say("ready");
	hear("go", NULL, 0);
	u = usage_now();
	next = u.wall;
	end = next + (uint64_t)(o->seconds * 1e9);
	while (next < end) {
		next += o->gap_us * 1000ull;
		sleep_until(next);
		if (!silent)
			one_turn(&s, o, seq, &trips);
		seq++;
	}
	u = usage_since(u);
	if (!silent) {
		send_stamped(&s, o, KIND_END, 0);
		sock_recv(&s);
		sock_close(&s);
	}
	say("result msgs=%llu ns=%llu cpu_ns=%llu p50=%llu p99=%llu", (unsigned long long)seq,
	    (unsigned long long)u.wall, (unsigned long long)u.cpu,
	    (unsigned long long)(trips.n ? samples_percentile(&trips, 50) : 0),
	    (unsigned long long)(trips.n ? samples_percentile(&trips, 99) : 0));
	samples_free(&trips);
}

static void receiver(const struct options *o)
{
	struct samples delays = {0};
	const struct message *m;
	struct usage u = {0};
	struct sock s;
	unsigned kind;

	sock_open(&s, o);
	m = sock_message(&s);
	sock_announce(&s);
	say("ready");
	do {
		unsigned n = sock_recv(&s);
		uint64_t now = now_ns();

		kind = m->kind;
		if (n != o->size || (kind == KIND_DATA && m->seq != delays.n))
			die("message of %u bytes, kind %u, number %llu", n, kind, (unsigned long long)m->seq);
		if (kind == KIND_HELLO)
			u = usage_now();
		if (kind == KIND_DATA)
			samples_add(&delays, now - m->stamp);
		if (kind == KIND_END)
			u = usage_since(u);
		if (o->reply || kind != KIND_DATA)
			sock_send(&s, n, kind, 0, m->seq);
	} while (kind != KIND_END);
	say("result msgs=%zu cpu_ns=%llu sleeps=%llu p50=%llu p99=%llu", delays.n, (unsigned long long)u.cpu,
	    (unsigned long long)u.sleeps, (unsigned long long)samples_percentile(&delays, 50),
	    (unsigned long long)samples_percentile(&delays, 99));
	samples_free(&delays);
	sock_close(&s);
}

void run_paced(const struct options *o)
{
	if (!o->gap_us)
		die("gap_us missing");
	if (strcmp(o->role, "receiver") == 0)
		receiver(o);
	else
		sender(o, strcmp(o->role, "pacer") == 0);
}
