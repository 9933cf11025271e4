/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Messages arrive once, whole, in order per sender: several sizes, senders, receivers and threads.
 */
#include "rdsconf.h"

struct stamp {
	unsigned sender, number, length;
};

static void one_pair(void)
{
	static char out[9000], in[9000];
	int s = rds_bound(), d = rds_bound(), i, wrong = 0, sent = 0, received = 0;
	struct stamp *o = (struct stamp *)out, *n = (struct stamp *)in;

	for (i = 0; i < 400; i++) {
		o->number = i;
		o->length = sizeof(*o) + i * 37 % 8000;
		memset(out + sizeof(*o), i, o->length - sizeof(*o));
		while (send_to(s, d, out, o->length, MSG_DONTWAIT) < 0 && (errno == ENOBUFS || errno == EAGAIN)) {
			if (receive(d, in, sizeof(in), 0) < 0)
				break;
			wrong += n->number != (unsigned)received++;
		}
		sent++;
	}
	while (received < 400) {
		long r = receive(d, in, sizeof(in), 0);

		if (r < 0)
			break;
		wrong += n->number != (unsigned)received || r != n->length ||
			 (r > (long)sizeof(*n) && in[r - 1] != (char)received);
		received++;
	}
	check("one-pair", "sent 400 received 400 wrong 0", "sent %d received %d wrong %d", sent, received, wrong);
	close(s);
	close(d);
}

#define SENDERS 4
#define EACH 100

static int target;

static long sender(void *arg)
{
	struct stamp stamp = { .sender = *(int *)arg };
	int fd = rds_bound(), i, failed = 0;

	for (i = 0; i < EACH; i++) {
		stamp.number = i;
		failed += send_to(fd, target, &stamp, sizeof(stamp), 0) != sizeof(stamp);
	}
	/* Keeps the socket open until all is read: a close takes back what is not delivered. */
	timeouts(fd, SO_RCVTIMEO, TEST_COMES);
	recv(fd, &stamp, 1, 0);
	close(fd);
	return failed;
}

static void several_senders(void)
{
	struct helper helpers[SENDERS];
	unsigned next[SENDERS] = { 0 };
	struct name from, names[SENDERS];
	int ids[SENDERS], i, wrong = 0, received = 0;
	struct stamp stamp;
	long failed = 0;

	target = rds_bound();
	timeouts(target, SO_RCVTIMEO, TEST_COMES);
	for (i = 0; i < SENDERS; i++) {
		ids[i] = i;
		helper_start(&helpers[i], sender, &ids[i]);
	}
	for (i = 0; i < SENDERS * EACH; i++) {
		from.len = sizeof(from.ss);
		if (recvfrom(target, &stamp, sizeof(stamp), 0, &from.sa, &from.len) != sizeof(stamp))
			break;
		received++;
		if (stamp.sender >= SENDERS) {
			wrong++;
			continue;
		}
		wrong += stamp.number != next[stamp.sender]++;
		names[stamp.sender] = from;
	}
	for (i = 0; i < SENDERS; i++)
		sendto(target, "e", 1, 0, &names[i].sa, names[i].len);
	for (i = 0; i < SENDERS; i++) {
		helper_ends(&helpers[i]);
		failed += helpers[i].result;
	}
	check("four-senders", "received 400 wrong 0 failed 0", "received %d wrong %d failed %ld", received, wrong,
	      failed);
	close(target);
}

static unsigned char seen[EACH * 4];

static long receiver(void *arg)
{
	struct stamp stamp;
	int n = 0;

	(void)arg;
	while (recv(target, &stamp, sizeof(stamp), 0) == sizeof(stamp) && stamp.number < sizeof(seen)) {
		__atomic_add_fetch(&seen[stamp.number], 1, __ATOMIC_RELAXED);
		n++;
	}
	return n;
}

/* Several threads receive from one socket: each message goes to one of them. */
static void several_receivers(void)
{
	struct stamp stamp = { 0 };
	struct helper helpers[3];
	unsigned i, twice = 0, missing = 0;
	long sum = 0;
	int s = rds_bound();

	target = rds_bound();
	timeouts(target, SO_RCVTIMEO, TEST_COMES);
	for (i = 0; i < 3; i++)
		helper_start(&helpers[i], receiver, NULL);
	for (i = 0; i < sizeof(seen); i++) {
		stamp.number = i;
		send_to(s, target, &stamp, sizeof(stamp), 0);
	}
	stamp.number = -1;
	for (i = 0; i < 3; i++)
		send_to(s, target, &stamp, sizeof(stamp), 0);
	for (i = 0; i < 3; i++) {
		helper_ends(&helpers[i]);
		sum += helpers[i].result;
	}
	for (i = 0; i < sizeof(seen); i++) {
		twice += seen[i] > 1;
		missing += !seen[i];
	}
	check("three-receivers", "sum 400 twice 0 missing 0", "sum %ld twice %u missing %u", sum, twice, missing);
	close(s);
	close(target);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	one_pair();
	several_senders();
	several_receivers();
	return conf_end();
}
