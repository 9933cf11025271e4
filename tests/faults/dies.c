/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * dies.c OWN PEER first|second [-k kills] [-S seed] [-t seconds] - kill -9 of a process that has
 * traffic with another host and is started again.
 *
 * Two survivors run on the first host.  One more survivor, and the victim, run on the second host.
 * The victim is killed at random instants and started again on its port: sometimes as soon as all
 * survivors have received from it and it from all survivors, sometimes in the middle of that.
 * Every process sends to all others all the time, from one socket, so only the messages join the
 * two hosts.  What must hold:
 *
 *   - between survivors no message is lost, doubled or reordered, from the first to the last;
 *   - from one life of the victim messages arrive from the first on, without a gap; and none after
 *     a message of the next life;
 *   - to one life of the victim messages arrive without a gap, and none that an earlier life has
 *     received already;
 *   - every life that is not killed has traffic with all survivors in both directions, within
 *     PATIENCE.
 *
 * A plain PF_RDS program.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "faults.h"

#define SURVIVORS 3 /* 0 and 1 are the first host's */
#define VICTIM SURVIVORS
#define ALL (SURVIVORS + 1)
#define PORT 25000
#define MESSAGE 3000
#define PATIENCE (30.0 * test_slow())
#define HELLO_AGAIN 0.3

enum kind { HELLO, STREAM, LAST };

struct header {
	uint8_t from, to, kind;
	uint32_t life; /* of the sender */
	uint32_t seen; /* the highest life of the victim that the sender has heard of */
	uint64_t number;
};

/* Of one host. */
struct shared {
	_Atomic bool met, stop;
	_Atomic uint32_t
		/* the last life of the victim that has heard that this survivor has heard it */
		round[SURVIVORS];
	_Atomic uint64_t high[SURVIVORS]; /* what the victim has received: the number behind */
};
static struct shared *shared;

static uint32_t own, peer;
static bool second;
static unsigned kills = 10, limit = 120;
static uint64_t seed = 1;

/* What one process has of another one. */
struct stream {
	uint64_t sent, next; /* numbers: those of the next message to it, and from it */
	uint32_t life;
	bool heard, last_sent, last_came;
	double since, hello; /* something has come, it was greeted */
};
static struct stream with[ALL];
static unsigned me;
static uint32_t life = 1, seen;
static int fd;
static double gap; /* the longest time without a message from another survivor */

static bool is_seconds(unsigned who)
{
	return who >= 2;
}

static uint32_t address(unsigned who)
{
	return is_seconds(who) == second ? own : peer;
}

static size_t build(unsigned char *buf, const struct header *h)
{
	uint64_t key = message_key(seed, h->from << 8 | h->kind, h->to, (unsigned)(h->number << 8 | h->life));
	size_t len = sizeof(*h) + key % (MESSAGE - sizeof(*h));

	message_fill(buf, key, len);
	memcpy(buf, h, sizeof(*h));
	return len;
}

/* ---- one message ---- */

/* True if it was taken. */
static bool send_to(unsigned to, enum kind kind)
{
	struct header h;
	struct sockaddr_in sin = name_of(address(to), PORT + to);
	unsigned char buf[MESSAGE];
	ssize_t n;
	size_t len;

	memset(&h, 0, sizeof(h)); /* what lies between the fields is sent, too */
	h.from = (uint8_t)me;
	h.to = (uint8_t)to;
	h.kind = (uint8_t)kind;
	h.life = life;
	h.seen = seen;
	h.number = kind == HELLO ? 0 : with[to].sent;
	len = build(buf, &h);
	n = sendto(fd, buf, len, MSG_DONTWAIT, (struct sockaddr *)&sin, sizeof(sin));
	if (n < 0 && errno != EAGAIN && errno != ENOBUFS)
		fail("%u: sendto %u: %s", me, to, strerror(errno));
	if (n >= 0 && kind != HELLO)
		with[to].sent++;
	return n >= 0;
}

static void in_order(const struct header *h, struct stream *s)
{
	bool begins = h->life > s->life;

	if (h->life < s->life || s->last_came || (!begins && s->next && h->number != s->next))
		fail("%u: number %llu of life %u of %u came, %llu of life %u was next", me,
		     (unsigned long long)h->number, h->life, h->from, (unsigned long long)s->next, s->life);
	if (me != VICTIM && (begins || !s->next) && h->number)
		fail("%u: the first message of life %u of %u is number %llu", me, h->life, h->from,
		     (unsigned long long)h->number);
	if (me == VICTIM && h->number < shared->high[h->from])
		fail("life %u of the victim: number %llu of %u, of which a life before has received %llu", life,
		     (unsigned long long)h->number, h->from, (unsigned long long)shared->high[h->from]);
}

static void note(const struct header *h, struct stream *s)
{
	double now = seconds();

	if (s->heard && h->from != VICTIM && now - s->since > gap)
		gap = now - s->since;
	s->since = now;
	s->heard = true;
	if (h->kind == HELLO)
		return;
	in_order(h, s);
	s->life = h->life;
	s->next = h->number + 1;
	s->last_came = h->kind == LAST;
	if (h->from == VICTIM) {
		seen = h->life;
	} else if (me == VICTIM) {
		shared->high[h->from] = s->next;
		if (h->seen == life)
			shared->round[h->from] = life;
	}
}

static bool take(void)
{
	unsigned char buf[MESSAGE + 1], want[MESSAGE];
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	ssize_t n = recvfrom(fd, buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&sin, &len);
	struct header h;

	if (n < 0) {
		check(errno == EAGAIN);
		return false;
	}
	check((size_t)n >= sizeof(h));
	memcpy(&h, buf, sizeof(h));
	if (h.from >= ALL || h.to != me || ntohs(sin.sin_port) != PORT + h.from ||
	    sin.sin_addr.s_addr != address(h.from) || build(want, &h) != (size_t)n || memcmp(buf, want, (size_t)n) != 0)
		fail("%u: damaged message %llu of life %u of %u to %u (%zd bytes)", me, (unsigned long long)h.number,
		     h.life, h.from, h.to, n);
	note(&h, &with[h.from]);
	return true;
}

/* ---- processes ---- */

/*
 * A message to a port that no socket has yet is lost.  So a stream begins when its receiver has
 * sent something.
 */
static void send_some(unsigned to)
{
	struct stream *s = &with[to];

	if (s->last_sent)
		return;
	if (to == VICTIM || s->heard) {
		s->last_sent = to != VICTIM && shared->stop && send_to(to, LAST);
		if (!s->last_sent)
			send_to(to, STREAM);
	} else if (seconds() > s->hello + HELLO_AGAIN && send_to(to, HELLO)) {
		s->hello = seconds();
	}
}

/* One round; false: all has been said. */
static bool survive(void)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	bool met = true, over = true;
	unsigned i;

	for (i = 0; i < 64 && take(); i++)
		;
	for (i = 0; i < ALL; i++) {
		if (i == me)
			continue;
		send_some(i);
		if (i == VICTIM)
			continue;
		met &= with[i].heard;
		over &= with[i].last_sent && with[i].last_came;
		if (with[i].last_came)
			shared->stop = true;
		if (with[i].heard && !with[i].last_came && seconds() - with[i].since > PATIENCE)
			test_late("%u: nothing has come from %u for %.0f s", me, i, PATIENCE);
	}
	if (met && is_seconds(me))
		shared->met = true;
	poll(&p, 1, 1);
	return !over;
}

static void survivor(void)
{
	double end;

	while (survive())
		;
	/* a copy of something would be there now */
	for (end = seconds() + 0.2; seconds() < end; usleep(1000))
		take();
	printf("survivor %u: from the others %llu, %llu, %llu and %llu messages, %.1f s without any at most\n", me,
	       (unsigned long long)with[0].next, (unsigned long long)with[1].next, (unsigned long long)with[2].next,
	       (unsigned long long)with[VICTIM].next, gap);
	exit(0);
}

static void victim(void)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	unsigned i;

	for (;;) {
		for (i = 0; i < 64 && take(); i++)
			;
		for (i = 0; i < SURVIVORS; i++)
			send_to(i, STREAM);
		poll(&p, 1, 1);
	}
}

static pid_t pids[ALL];

static void start(unsigned who, uint32_t its_life)
{
	pids[who] = fork();
	check(pids[who] >= 0);
	if (pids[who])
		return;
	check(!prctl(PR_SET_PDEATHSIG, SIGKILL));
	me = who;
	life = its_life;
	fd = rds_bound(own, PORT + me);
	if (me == VICTIM)
		victim();
	survivor();
}

/* ---- the second host's parent ---- */

static void nobody_has_ended(void)
{
	int status;
	pid_t pid = waitpid(-1, &status, WNOHANG);

	check(pid >= 0);
	if (pid)
		fail("%s has ended by itself, status %x", pid == pids[VICTIM] ? "the victim" : "a survivor",
		     (unsigned)status);
}

static bool all_round(uint32_t its_life)
{
	unsigned i;

	for (i = 0; i < SURVIVORS && shared->round[i] == its_life; i++)
		;
	return i == SURVIVORS;
}

/* How long it took. */
static double until_all_round(uint32_t its_life)
{
	double begun = seconds();

	while (!all_round(its_life)) {
		nobody_has_ended();
		if (seconds() > begun + PATIENCE)
			test_late("life %u of the victim: after %.0f s last heard by %u, %u, %u, and knows it",
				  its_life, PATIENCE, shared->round[0], shared->round[1], shared->round[2]);
		usleep(5000);
	}
	return seconds() - begun;
}

static void kill_victim(void)
{
	int status;

	nobody_has_ended();
	kill(pids[VICTIM], SIGKILL);
	check(waitpid(pids[VICTIM], &status, 0) == pids[VICTIM]);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void kill_and_restart(void)
{
	double took, longest = 0;
	uint64_t r = seed;
	uint32_t n;

	while (!shared->met) {
		nobody_has_ended();
		usleep(5000);
	}
	for (n = 1; n <= kills + 1; n++) {
		start(VICTIM, n);
		if (n % 2 || n > kills) {
			took = until_all_round(n);
			longest = took > longest ? took : longest;
		}
		r = mix(r);
		usleep((useconds_t)(r % (n % 2 ? 300000 : 600000)));
		kill_victim();
	}
	shared->stop = true;
	printf("%u kills; a new life was known to all after %.1f s at most\n", kills + 1, longest);
}

static void too_late(int sig)
{
	static const char text[] = "LATE dies: did not end in time\n";

	(void)sig;
	(void)!write(2, text, sizeof(text) - 1);
	_exit(TEST_LATE); /* children die with us */
}

static void options(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "k:S:t:")) != -1) {
		unsigned long v = c == '?' ? 0 : strtoul(optarg, NULL, 0);

		if (c == 'k')
			kills = (unsigned)v;
		else if (c == 'S')
			seed = v;
		else if (c == 't')
			limit = (unsigned)v;
		else
			exit(2);
	}
	argv += optind;
	if (argc - optind != 3 || inet_pton(AF_INET, argv[0], &own) != 1 || inet_pton(AF_INET, argv[1], &peer) != 1)
		fail("usage: dies [-k kills] [-S seed] [-t seconds] OWN PEER first|second");
	second = strcmp(argv[2], "second") == 0;
}

int main(int argc, char **argv)
{
	double begun = seconds();
	int status, bad = 0;
	unsigned i;

	options(argc, argv);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(shared != MAP_FAILED);
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGALRM, too_late);
	alarm(limit * test_slow());
	for (i = 0; i < SURVIVORS; i++)
		if (is_seconds(i) == second)
			start(i, 1);
	if (second)
		kill_and_restart();
	for (i = 0; i < SURVIVORS; i++) {
		if (is_seconds(i) != second)
			continue;
		check(waitpid(pids[i], &status, 0) == pids[i]);
		bad |= status;
	}
	printf("%s seed %llu, %.1f s\n", bad ? "FAIL" : "ok", (unsigned long long)seed, seconds() - begun);
	return bad != 0;
}
