/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * asend.c [-n messages] [-f] - RDS_CMSG_ASYNC_SEND of Oracle's kernels: the end of each message is
 * reported once, in order, and correctly.
 *
 * First a stream to another process, which checks it, while the sender reads the reports.  Then a
 * stream with operations among the messages; their bytes are there before their messages.  Then
 * each way in which a message can end: no report requested; acknowledged by a peer whose program
 * sleeps; cancelled; its receiver killed; its socket closed; reported to another process that has
 * the socket.  A peer that must not receive a message is stopped meanwhile.
 *
 * -f: connections break meanwhile.  Then it is not known what a killed process has accepted.
 *
 * Kernel RDS 6.1 has no such option.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "asend_calls.h"

#define CANCEL_SENT_TO 1
#define GET_MR 2

#define PORT 22000 /* the sender's; the next is the receiver's */

static unsigned messages = 1000;
static bool faults;
static unsigned all_dropped;
static unsigned char buf[MESSAGE_MAX], want[MESSAGE_MAX];
static uint64_t cookie;

/* ---- the receiver ---- */

struct peer {
	pid_t pid;
	int go;	    /* it reads when this is closed */
	int count; /* ... and says here how many it has got, each the right one */
};

/* Every third message of a stream of that seed comes with an operation. */
#define WITH_OPS 7u

static bool with_op(unsigned seed, unsigned n)
{
	return seed == WITH_OPS && n % 3 == 1;
}

/* Those of later messages may be there by now. */
static void check_written(unsigned n)
{
	for (unsigned i = 0; i < WORDS; i++) {
		uint64_t word = *(volatile uint64_t *)&target->words[i];

		if (word < n)
			fail("message %u has come, and what its operation writes has not: %llu", n,
			     (unsigned long long)word);
	}
}

static void target_set(int fd)
{
	struct map m = {(uintptr_t)target->words, sizeof(target->words), (uintptr_t)&target->cookie, 1};

	check(setsockopt(fd, SOL_RDS, GET_MR, &m, sizeof(m)) == 0);
}

/* As many as are there, until the last, which has one byte of zero. */
static void receive_all(int fd, unsigned seed)
{
	unsigned n = 0;

	for (;;) {
		uint64_t key = message_key(seed, 0, 1, n);
		ssize_t len = recv(fd, buf, sizeof(buf), 0);

		check(len >= 0);
		if (len == 1 && !buf[0])
			break;
		message_fill(want, key, message_len(key));
		if ((size_t)len != message_len(key) || memcmp(buf, want, (size_t)len))
			fail("%zd bytes instead of message %u", len, n);
		if (with_op(seed, n))
			check_written(n);
		n++;
	}
	check(write(1, &n, sizeof(n)) == sizeof(n));
}

static struct peer peer_start(unsigned port, unsigned seed)
{
	int go[2], said[2], fd;
	struct peer p;
	char c = 0;

	check(pipe(go) == 0 && pipe(said) == 0);
	p.pid = fork();
	check(p.pid >= 0);
	if (!p.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if it is stopped */
		close(go[1]);
		check(dup2(said[1], 1) == 1);
		close(said[0]);
		close(said[1]);
		fd = rds_bound(home(), port);
		if (seed == WITH_OPS)
			target_set(fd);
		check(write(1, &c, 1) == 1);
		check(read(go[0], &c, 1) == 0); /* not in any call of the library */
		receive_all(fd, seed);
		pause(); /* its acknowledgements may be on their way */
	}
	close(go[0]);
	close(said[1]);
	check(read(said[0], &c, 1) == 1);
	p.go = go[1];
	p.count = said[0];
	return p;
}

static void peer_reads(struct peer *p)
{
	close(p->go);
}

static unsigned peer_got(struct peer *p)
{
	unsigned n = 0;

	check(read(p->count, &n, sizeof(n)) == sizeof(n)); /* else it has failed, and ended */
	kill(p->pid, SIGKILL);
	check(waitpid(p->pid, NULL, 0) == p->pid);
	close(p->count);
	return n;
}

static void peer_stops(const struct peer *p)
{
	int status;

	kill(p->pid, SIGSTOP);
	check(waitpid(p->pid, &status, WUNTRACED) == p->pid && WIFSTOPPED(status));
}

static ssize_t numbered(int fd, unsigned port, unsigned seed, unsigned n, bool notify, int flags)
{
	uint64_t key = message_key(seed, 0, 1, n);

	message_fill(want, key, message_len(key));
	if (with_op(seed, n))
		return write_with(fd, name_of(home(), port), want, message_len(key), n, flags);
	return asend(fd, name_of(home(), port), want, message_len(key), n, notify, flags);
}

static void last(int fd, unsigned port)
{
	struct sockaddr_in to = name_of(home(), port);

	check(sendto(fd, "", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1);
}

/* It is under way, alone, until it has arrived: what a break has cost is sent again. */
static void arrives(int fd, unsigned port, unsigned seed, unsigned n)
{
	struct notify told_of;

	for (;;) {
		wait_told(fd, &told_of);
		if (told_of.token != n || (told_of.status != SUCCESS && !(faults && told_of.status == DROPPED)))
			fail("told of %llu that it is %d, %u is next", (unsigned long long)told_of.token,
			     told_of.status, n);
		if (told_of.status == SUCCESS)
			return;
		check(numbered(fd, port, seed, n, true, 0) >= 0);
	}
}

/* False: a break has cost what was sent before, and is not read yet. */
static bool may_send(int fd, unsigned port, unsigned seed, unsigned n, bool notify)
{
	if (numbered(fd, port, seed, n, notify, 0) >= 0)
		return true;
	check(faults && errno == EAGAIN);
	return false;
}

/* ---- what may happen ---- */

/* What the notifications of a stream have said. */
struct heard {
	unsigned arrived, dropped, first_dropped;
	bool *of; /* those that have arrived */
};

/* In order; but that an operation has ended well may come later. */
static void hear(struct heard *h, const struct notify *n, unsigned seed, unsigned sent)
{
	bool good = n->token < sent && !h->of[n->token];

	if (n->status == SUCCESS)
		good = good && !h->dropped && (seed == WITH_OPS || n->token == h->arrived);
	else
		good = good && faults && n->status == DROPPED &&
		       (!h->dropped || n->token == h->first_dropped + h->dropped);
	if (!good)
		fail("told of %llu that it is %d: %u of %u have arrived, %u are dropped", (unsigned long long)n->token,
		     n->status, h->arrived, sent, h->dropped);
	if (n->status == SUCCESS) {
		h->of[n->token] = true;
		h->arrived++;
	} else if (!h->dropped++) {
		h->first_dropped = (unsigned)n->token;
	}
}

/*
 * When a connection breaks, all that is under way and has not arrived is dropped, and nothing more
 * goes until that has been read: then it is sent again, from the first one on.
 */
static void stream(int fd, unsigned seed)
{
	struct peer p = peer_start(PORT + 1, seed);
	struct heard h = {.of = calloc(messages, sizeof(bool))};
	unsigned sent = 0;
	struct notify n;

	check(h.of != NULL);
	peer_reads(&p);
	while (h.arrived < messages) {
		unsigned most = messages < h.arrived + WINDOW ? messages : h.arrived + WINDOW;
		struct pollfd pfd = {.fd = fd, .events = POLLIN | (sent < most ? POLLOUT : 0)};

		check(poll(&pfd, 1, TEST_COMES) == 1);
		while (sent < most && numbered(fd, PORT + 1, seed, sent, true, MSG_DONTWAIT) >= 0)
			sent++;
		while (told(fd, &n)) {
			hear(&h, &n, seed, sent);
			if (!h.dropped || h.arrived + h.dropped < sent)
				continue;
			check(h.first_dropped == h.arrived);
			sent = h.arrived;
			all_dropped += h.dropped;
			h.dropped = 0;
		}
	}
	last(fd, PORT + 1);
	check(peer_got(&p) == messages);
	expect_nothing(fd);
	free(h.of);
}

/* The peer's program is nowhere near the library, and ours sleeps. */
static void asleep(int fd)
{
	struct peer p = peer_start(PORT + 1, 2);
	unsigned i;

	for (i = 0; i < 20; i++) {
		/* the others are not reported if they arrive */
		bool notify = faults || i % 4 != 1;

		check(numbered(fd, PORT + 1, 2, i, notify, 0) >= 0);
		if (notify)
			arrives(fd, PORT + 1, 2, i);
	}
	peer_reads(&p);
	last(fd, PORT + 1);
	check(peer_got(&p) == 20);
	expect_nothing(fd);
}

static void cancelled(int fd)
{
	struct peer p = peer_start(PORT + 1, 3);
	struct sockaddr_in to = name_of(home(), PORT + 1);
	struct notify n;
	unsigned got;
	bool both;

	check(numbered(fd, PORT + 1, 3, 0, true, 0) >= 0);
	arrives(fd, PORT + 1, 3, 0);
	peer_stops(&p);
	check(numbered(fd, PORT + 1, 3, 1, true, 0) >= 0);
	both = may_send(fd, PORT + 1, 3, 2, false);
	check(setsockopt(fd, SOL_RDS, CANCEL_SENT_TO, &to, sizeof(to)) == 0);
	/* it has been cancelled, nothing has failed */
	check(asend(fd, to, "", 1, 9, true, 0) == 1);
	expect(fd, 1, CANCELED);
	if (both)
		expect(fd, 2, CANCELED);
	peer_reads(&p);
	kill(p.pid, SIGCONT);
	for (wait_told(fd, &n); faults && n.status == DROPPED; wait_told(fd, &n))
		check(asend(fd, to, "", 1, 9, true, 0) == 1);
	check(n.token == 9 && n.status == SUCCESS);
	got = peer_got(&p); /* what is on its way may arrive */
	check(got >= 1 && got <= 3);
	expect_nothing(fd);
}

/* Its peer is dead: all are dropped, but for those that it may have accepted. */
static uint64_t wait_failed(int fd)
{
	struct notify n;

	wait_told(fd, &n);
	if (n.status != DROPPED && !(faults && n.status == OTHER_ERROR))
		fail("told of %llu that it is %d: it has failed", (unsigned long long)n.token, n.status);
	return n.token;
}

/* One of those from *i on, and before n.  False: n has ended. */
static bool failed_between(int fd, uint64_t *i, uint64_t n)
{
	struct notify told_of;

	wait_told(fd, &told_of);
	if (told_of.token == n)
		return false;
	check(told_of.token >= *i && told_of.token < n && told_of.status != SUCCESS);
	*i = told_of.token + 1;
	return true;
}

/*
 * More messages are accepted until some have failed, and these fail as well, unless it is known by
 * then that the port has gone: then they are dropped, as always.  After that, no message to this
 * address is accepted before the program has read of all failures.
 */
static void killed(int fd)
{
	struct peer p = peer_start(PORT + 1, 4);
	struct sockaddr_in other = name_of(htonl(ntohl(home()) + 1), PORT), to = name_of(home(), PORT + 1);
	bool two = !getenv("FAULT_ADDR");
	int fd2 = two ? rds_bound(other.sin_addr.s_addr, PORT) : -1;
	double end = seconds() + TEST_COMES / 1000;
	uint64_t n, i, sent = 1;

	check(numbered(fd, PORT + 1, 4, 0, true, 0) >= 0);
	arrives(fd, PORT + 1, 4, 0);
	peer_stops(&p);
	while (sent < 4 && may_send(fd, PORT + 1, 4, (unsigned)sent, sent != 2))
		sent++;
	kill(p.pid, SIGKILL);
	check(waitpid(p.pid, NULL, 0) == p.pid);
	for (n = 4; asend(fd, to, "x", 1, n, false, 0) == 1; n++) {
		if (seconds() > end)
			test_late("an operation that fails");
		usleep(1000);
	}
	check(errno == EAGAIN);
	for (i = 1; i < sent; i++) {
		if (i == 1 || !faults) /* else the others may still look for their port */
			check(sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)) == -1 && errno == EAGAIN);
		if (two && i == 1) {
			check(sendto(fd, "x", 1, 0, (struct sockaddr *)&other, sizeof(other)) == 1);
			check(recv(fd2, buf, sizeof(buf), 0) == 1);
		}
		check(wait_failed(fd) == i);
	}
	while (asend(fd, to, "x", 1, n, true, 0) != 1) {
		check(errno == EAGAIN);
		failed_between(fd, &i, n);
	}
	while (failed_between(fd, &i, n)) /* that one goes behind them, and is dropped */
		;
	close(p.go);
	close(p.count);
	if (two)
		close(fd2);
	expect_nothing(fd);
}

/* The process that reads gets the report, whichever process has sent. */
static void shared(int fd)
{
	struct peer p = peer_start(PORT + 1, 5);
	int status;
	pid_t pid;

	check(numbered(fd, PORT + 1, 5, 0, true, 0) >= 0);
	pid = fork();
	check(pid >= 0);
	if (!pid) {
		arrives(fd, PORT + 1, 5, 0);
		check(numbered(fd, PORT + 1, 5, 1, true, 0) >= 0);
		arrives(fd, PORT + 1, 5, 1);
		check(numbered(fd, PORT + 1, 5, 2, true, 0) >= 0);
		exit(0);
	}
	check(waitpid(pid, &status, 0) == pid && status == 0);
	arrives(fd, PORT + 1, 5, 2);
	peer_reads(&p);
	last(fd, PORT + 1);
	check(peer_got(&p) == 3);
	expect_nothing(fd);
}

/* The message goes as any other, and no socket is left for the report. */
static void closed(void)
{
	struct peer p = peer_start(PORT + 1, 6);
	int fd = rds_bound(home(), PORT + 2), plain = rds_bound(home(), PORT + 3);
	unsigned sent = 0;

	peer_stops(&p);
	while (sent < 2 && may_send(fd, PORT + 1, 6, sent, !sent))
		sent++;
	last(plain, PORT + 1); /* the same connection */
	close(fd);
	peer_reads(&p);
	kill(p.pid, SIGCONT);
	check(peer_got(&p) == sent);
	close(plain);
}

static void with_others(int fd)
{
	struct map m = {(uintptr_t)buf, sizeof(buf), (uintptr_t)&cookie, 1};
	struct async a = {7, NOTIFY_ME};
	struct sockaddr_in self = name_of(home(), PORT);
	union control control = {{0}};
	struct msghdr msg = {.msg_control = &control};
	unsigned i;

	for (i = 0; i < 2; i++) { /* a second one is one too many */
		memcpy(add(&msg, CMSG_ASYNC_SEND, sizeof(a)), &a, sizeof(a));
		if (i)
			check(send_with(fd, self, "", 0, &msg, 0) == -1 && errno == EINVAL);
	}
	msg.msg_controllen = 0;
	memcpy(add(&msg, CMSG_ASYNC_SEND, 15), &a, 15);
	check(send_with(fd, self, "", 0, &msg, 0) == -1 && errno == EINVAL);
	msg.msg_controllen = 0;
	memcpy(add(&msg, CMSG_MAP, sizeof(m)), &m, sizeof(m));
	memcpy(add(&msg, CMSG_ASYNC_SEND, sizeof(a)), &a, sizeof(a));
	check(send_with(fd, self, "", 0, &msg, 0) == 0);
	expect(fd, 7, SUCCESS);
	check(recv(fd, buf, sizeof(buf), 0) == 0);
	msg.msg_controllen = 0;
	memset(add(&msg, CMSG_RDMA_ARGS, 56), 0, 56);
	memcpy(add(&msg, CMSG_ASYNC_SEND, sizeof(a)), &a, sizeof(a));
	check(send_with(fd, self, "", 0, &msg, 0) == -1 && errno == EINVAL);
	expect_nothing(fd);
}

int main(int argc, char **argv)
{
	double begin = seconds();
	int c, fd;

	while ((c = getopt(argc, argv, "n:f")) != -1) {
		if (c == 'n')
			messages = (unsigned)strtoul(optarg, NULL, 0);
		else if (c == 'f')
			faults = true;
		else
			exit(2);
	}
	signal(SIGPIPE, SIG_IGN);
	target = mmap(NULL, sizeof(*target), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(target != MAP_FAILED);
	fd = rds_bound(home(), PORT);
	with_others(fd);
	stream(fd, 1);
	stream(fd, WITH_OPS);
	asleep(fd);
	cancelled(fd);
	killed(fd);
	shared(fd);
	closed();
	printf("ok %u messages, %u disconnects, %u dropped, %.1f s\n", messages, (unsigned)counter(fd, "conn_reset"),
	       all_dropped, seconds() - begin);
	return 0;
}
