/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * standstill.c CASE - two processes whose operations wait for each other's answers: all of them
 * have to end.
 *
 *	crossing	both read more from each other at once than may be under way
 *	heavy		both read from and write to each other without a pause, with messages, more
 *			than there is room for: answers lie behind what may not go before the other
 *			side has answered
 *	cut		writes of many pieces with a wrong key, while there is often no room
 *			(RDS_PRELOAD_FAULT=send=2): each is reported, also when the answer comes
 *			after a part of it has gone and before the rest has
 *	full		the peer is stopped and writes to it have taken all the room there is: a
 *			message that the send buffer has room for does not keep its sender waiting;
 *			when the peer goes on, all of it comes, in order
 *	fence		the peer is stopped and a third process has used up all of its receive
 *			buffers, so that messages, each of which waits for the read before it, have
 *			to be sent again; when the peer goes on, all of them come (only soft RoCE is
 *			known not to have got through that)
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rdma.h"

#define PORT 4300
#define READS 40
#define HEAVY 3000
#define UNDER_WAY 150u
#define WRITES 100
#define PLAIN 3000u /* together too many for each to wait a little */
#define FULL 12	  /* writes of 1 MiB: more than any ring or send queue takes */
#define PIECES 12 /* of 64 KiB each, as far as that matters */

#define WARM 4 /* reads after which a device knows the region */
#define READ 4096u
#define FILL 300u /* more than there are buffers */
#define FILL_BYTES 20000u

static int to_other, from_other, fd;
static int to_filler, from_filler;
static unsigned me;

static uint64_t exchange(uint64_t word)
{
	uint64_t other;

	check(write(to_other, &word, sizeof(word)) == sizeof(word));
	check(read(from_other, &other, sizeof(other)) == sizeof(other), "the other process has ended");
	return other;
}

static void all_end(struct box *b, unsigned n, int want)
{
	unsigned i;

	for (i = 0; i < n; i++)
		expect(box_status(b, i + 1), want, "process %u, operation %u of %u", me, i + 1, n);
}

static void crossing(struct box *b, const struct sockaddr_in *to)
{
	unsigned char *region = pages(MIB), *local = pages(MIB), *want = malloc(MIB);
	struct vec v = {(uintptr_t)local, MIB};
	uint64_t cookie, theirs;
	unsigned i;

	pattern(region, MIB, me);
	pattern(want, MIB, !me);
	expect(get_mr(fd, region, MIB, F_WRITE, &cookie), 0, "GET_MR");
	theirs = exchange(cookie);
	for (i = 0; i < READS; i++) {
		struct op op = {.cookie = theirs, .flags = F_NOTIFY, .token = i + 1, .local = &v, .nr_local = 1};

		expect(op_send(fd, to, &op), 0, "read %u", i);
	}
	all_end(b, READS, ST_SUCCESS);
	expect_bytes(local, want, MIB, "what was read");
	exchange(0); /* it is read from until the other one has all */
	free(want);
}

/* Number i, with its token; false: not now. */
static bool heavy_one(const struct sockaddr_in *to, uint64_t theirs, unsigned char *mem, unsigned i)
{
	static char text[60000];
	uint64_t r = mix(2 * i + me);
	struct vec v = {(uintptr_t)mem + (r >> 40) % PAGE, r % 5 ? MIB : 1 + (r >> 8) % 200000};
	struct rdma_args g = {theirs, {0, v.bytes}, (uintptr_t)&v, 1, (r % 3 ? 0 : F_WRITE) | F_NOTIFY, i + 1};
	struct out o;
	int rc;

	if (r >> 20 & 1)
		g.flags |= F_SILENT;
	out_begin(&o, to, text, r >> 20 & 1 ? 0 : (r >> 24) % sizeof(text));
	out_cmsg(&o, CMSG_ARGS, &g, sizeof(g));
	rc = out_send(&o, fd, MSG_DONTWAIT);
	check(rc >= 0 || rc == -EAGAIN || rc == -ENOBUFS, "operation %u: %d", i, rc);
	return rc >= 0;
}

/* How many have ended, now that all is taken in that is there. */
static unsigned ended(struct box *b)
{
	unsigned n;

	while (box_pump(b))
		while (b->letters)
			free(box_letter(b).body);
	for (n = 0; b->notes; n++, b->notes--) {
		const struct notify *note = &b->note[b->first_note];

		expect(note->status, ST_SUCCESS, "process %u, operation %llu", me, (unsigned long long)note->token);
		b->first_note = (b->first_note + 1) % BOX_MAX;
	}
	return n;
}

/* Until the other one, which may be slower, has ended, too: what it sends must have room. */
static void read_on(struct box *b)
{
	struct pollfd p = {.fd = from_other, .events = POLLIN};
	uint64_t word = 0;

	check(write(to_other, &word, sizeof(word)) == sizeof(word));
	while (!poll(&p, 1, 5))
		ended(b);
	check(read(from_other, &word, sizeof(word)) == sizeof(word), "the other process has ended");
}

static void heavy(struct box *b, const struct sockaddr_in *to)
{
	unsigned char *region = pages(MIB), *mem = pages(2 * MIB);
	unsigned sent = 0, told = 0, before, n = HEAVY / (test_slow() < 8 ? test_slow() : 8);
	double since = seconds();
	uint64_t cookie, theirs;

	expect(get_mr(fd, region, MIB, F_WRITE, &cookie), 0, "GET_MR");
	theirs = exchange(cookie);
	while (told < n) {
		before = sent + told;
		told += ended(b);
		if (sent < n && sent - told < UNDER_WAY && heavy_one(to, theirs, mem, sent))
			sent++;
		if (sent + told > before)
			since = seconds();
		else
			box_wait(b, 5);
		waits(&since, "process %u: nothing goes on, %u of %u operations have ended", me, told, sent);
	}
	read_on(b);
}

static void cut(struct box *b, const struct sockaddr_in *to)
{
	size_t len = PIECES * 65536;
	unsigned char *local = pages(len);
	struct vec v = {(uintptr_t)local, len};
	unsigned i;

	for (i = 0; i < WRITES; i++) {
		struct op op = {.cookie = 0x12345678,
				.flags = F_WRITE | F_NOTIFY | F_SILENT,
				.token = i + 1,
				.local = &v,
				.nr_local = 1};

		expect(op_send(fd, to, &op), 0, "write %u", i);
		expect(box_status(b, i + 1), ST_REMOTE_ERROR, "write %u of %u", i + 1, WRITES);
	}
}

static void stopped(void)
{
	unsigned char *region = pages(MIB), text[16];
	uint64_t cookie;
	unsigned i, n = 0;

	expect(get_mr(fd, region, MIB, F_WRITE, &cookie), 0, "GET_MR");
	exchange(cookie);
	expect(recv(fd, text, sizeof(text), 0), 1, "the first message");
	check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "prctl: %m");
	raise(SIGSTOP);
	for (i = 0; i < FULL + PLAIN; i++) { /* those of the writes have no bytes */
		ssize_t len = recv(fd, text, sizeof(text), 0);

		if (len > 0)
			check(i == FULL + n && len == 1 && text[0] == (unsigned char)n,
			      "message %u: came %zd bytes, %u", i, len, text[0]);
		n += len > 0;
	}
	expect(n, PLAIN, "messages with bytes");
}

static void full(struct box *b, const struct sockaddr_in *to, pid_t peer)
{
	unsigned char *local = pages(MIB);
	struct vec v = {(uintptr_t)local, MIB};
	uint64_t theirs = exchange(0);
	int status;
	unsigned i;

	expect(sendto(fd, "0", 1, 0, (const struct sockaddr *)to, sizeof(*to)), 1,
	       "a message that makes the connection");
	check(waitpid(peer, &status, WUNTRACED) == peer && WIFSTOPPED(status), "the other process did not stop");
	for (i = 0; i < FULL; i++) {
		struct op op = {
			.cookie = theirs, .flags = F_WRITE | F_NOTIFY, .token = i + 1, .local = &v, .nr_local = 1};

		expect(op_send(fd, to, &op), 0, "write %u", i);
	}
	alarm(test_alarm(60));
	for (i = 0; i < PLAIN; i++) {
		char c = (char)i;

		expect(sendto(fd, &c, 1, 0, (const struct sockaddr *)to, sizeof(*to)), 1,
		       "a blocking send to a process that is stopped");
	}
	alarm(0);
	check(kill(peer, SIGCONT) == 0);
	all_end(b, FULL, ST_SUCCESS);
}

/* ---- fence ---- */

static void take(unsigned n)
{
	char text[FILL_BYTES];

	while (n--)
		check(recv(fd, text, sizeof(text), 0) >= 0, "recv: %m");
}

static void read_from(void)
{
	unsigned char *region = pages(MIB);
	uint64_t cookie;

	pattern(region, MIB, 1);
	expect(get_mr(fd, region, MIB, F_WRITE, &cookie), 0, "GET_MR");
	exchange(cookie);
	take(1 + WARM);
	exchange(0);
	check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "prctl: %m");
	raise(SIGSTOP);
	take((unsigned)exchange(0) + READS);
	exchange(0);
}

static unsigned char filler_says(void)
{
	unsigned char c;

	check(read(from_filler, &c, 1) == 1, "the third process has ended");
	return c;
}

static void filler(int asked, int says, const struct sockaddr_in *to)
{
	static char bytes[FILL_BYTES];
	const struct sockaddr *name = (const struct sockaddr *)to;
	int big = 2 * (int)(FILL * FILL_BYTES), sk = rds_bound(address(0), PORT + 2);
	unsigned n;
	char c;

	check(setsockopt(sk, SOL_SOCKET, SO_SNDBUF, &big, sizeof(big)) == 0, "SO_SNDBUF: %m");
	check(read(asked, &c, 1) == 1);
	expect(sendto(sk, bytes, 1, 0, name, sizeof(*to)), 1, "a message that makes the connection");
	check(write(says, "", 1) == 1 && read(asked, &c, 1) == 1);
	for (n = 0; n < FILL; n++)
		if (sendto(sk, bytes, sizeof(bytes), MSG_DONTWAIT, name, sizeof(*to)) < 0)
			break;
	check(n > 0 && write(says, &n, sizeof(n)) == sizeof(n));
	check(read(asked, &c, 1) == 0); /* until all is over */
	_exit(0);
}

static unsigned char local[READS * READ];

static void read_one(const struct sockaddr_in *to, uint64_t theirs, unsigned i)
{
	struct vec v = {(uintptr_t)local + i * READ, READ};
	struct op op = {.cookie = theirs,
			.remote_addr = (uint64_t)i * READ,
			.flags = F_FENCE | F_NOTIFY,
			.token = i + 1,
			.local = &v,
			.nr_local = 1};

	expect(op_send(fd, to, &op), 0, "read %u", i);
}

static void fence(struct box *b, const struct sockaddr_in *to, pid_t peer)
{
	unsigned char *want = malloc(MIB);
	uint64_t theirs = exchange(0);
	unsigned i, n;
	int status;

	pattern(want, MIB, 1);
	check(write(to_filler, "", 1) == 1);
	filler_says();
	for (i = 0; i < WARM; i++) {
		read_one(to, theirs, i);
		expect(box_status(b, i + 1), ST_SUCCESS, "read %u", i);
	}
	exchange(0);
	check(waitpid(peer, &status, WUNTRACED) == peer && WIFSTOPPED(status), "the other process did not stop");
	check(write(to_filler, "", 1) == 1 && read(from_filler, &n, sizeof(n)) == sizeof(n));
	for (i = 0; i < READS; i++)
		read_one(to, theirs, i);
	check(kill(peer, SIGCONT) == 0);
	exchange(n);
	all_end(b, READS, ST_SUCCESS);
	expect_bytes(local, want, sizeof(local), "what was read");
	exchange(0);
	close(to_filler);
	free(want);
}

static void filler_start(const struct sockaddr_in *to)
{
	int asked[2], says[2];
	pid_t pid;

	check(pipe(asked) == 0 && pipe(says) == 0);
	pid = fork();
	if (!pid) {
		close(asked[1]);
		filler(asked[0], says[1], to);
	}
	check(pid > 0, "fork: %m");
	to_filler = asked[1];
	from_filler = says[0];
	close(says[1]);
}

int main(int argc, char **argv)
{
	int there[2], back[2];
	struct sockaddr_in to;
	struct box *b;
	pid_t other;

	check(argc == 2, "standstill crossing|heavy|cut|full|fence");
	check(pipe(there) == 0 && pipe(back) == 0);
	other = fork();
	me = !other;
	to_other = me ? back[1] : there[1];
	from_other = me ? there[0] : back[0];
	close(me ? there[1] : back[1]); /* so that a read ends when the other process does */
	to = name_of(address(!me), PORT + !me);
	if (!me && strcmp(argv[1], "fence") == 0)
		filler_start(&to);
	fd = rds_bound(address(me), PORT + me);
	b = box_new(fd);
	exchange(0);
	if (strcmp(argv[1], "crossing") == 0)
		crossing(b, &to);
	else if (strcmp(argv[1], "heavy") == 0)
		heavy(b, &to);
	else if (strcmp(argv[1], "full") == 0 && me)
		stopped();
	else if (strcmp(argv[1], "full") == 0)
		full(b, &to, other);
	else if (strcmp(argv[1], "fence") == 0 && me)
		read_from();
	else if (strcmp(argv[1], "fence") == 0)
		fence(b, &to, other);
	else if (!me)
		cut(b, &to);
	if (strcmp(argv[1], "crossing") != 0 && strcmp(argv[1], "heavy") != 0)
		exchange(0);
	if (me)
		return 0;
	check(waitpid(other, &there[0], 0) == other && there[0] == 0, "the other process failed");
	printf("ok\n");
	return 0;
}
