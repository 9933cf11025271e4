/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * crowd.c [-n processes] [-m messages] [-f descriptors] [-k troubles] [-S seed] [-1] [-t seconds] -
 * all processes talk to all others at once, each over one non-blocking socket, while some of them
 * are killed (-9) at random, and others are stopped and go on.
 *
 * Each sends so many messages at least to each other one, goes on until the trouble is over, and
 * then says which is its last one. At most a third is killed. The others lose, double and reorder
 * nothing among themselves, and end; what comes from one that is killed is the beginning of what it
 * has sent. The trouble follows from the seed, and begins with the first contact.
 *
 * -1: one server and many clients; each client talks to the server only.
 *
 * A plain PF_RDS program.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "faults.h"

#define MOST 1024     /* processes */
#define MESSAGE 9000  /* a few are too long for whatever is made for small ones */
#define BURST 32      /* messages that are taken between two that are sent */
#define PAUSE_US 4000 /* between two troubles, on average */

struct header {
	uint32_t from, to, number, last;
};

/* In memory that all of them share. */
struct member {
	struct sockaddr_in name;
	_Atomic bool doomed; /* from before it is killed */
};

/* What one process knows of its exchange with each other one. */
struct party {
	int fd;
	unsigned me, next; /* whose turn it is */
	bool over;
	uint32_t sent[MOST], seen[MOST];
	bool sent_last[MOST], seen_last[MOST];
};

static unsigned members = 16, messages = 20, descriptors, troubles, limit = 60;
static uint64_t seed = 1;
static bool one_server;
static struct member *all;
static pid_t pids[MOST];
static struct shared {
	_Atomic unsigned bound, complete, came; /* processes, processes, messages */
} * shared;
static int begin[2], over[2], leave[2];

static bool talks(const struct party *p, unsigned to)
{
	return to != p->me && (!one_server || !to || !p->me) && !atomic_load(&all[to].doomed);
}

static size_t build(unsigned char *buf, const struct header *h)
{
	uint64_t key = message_key(seed, h->from, h->to, h->number);
	size_t len = sizeof(*h) + (key % 16 ? key % 256 : mix(key) % (MESSAGE - sizeof(*h)));

	message_fill(buf, key, len);
	memcpy(buf, h, sizeof(*h));
	return len;
}

/* 0, or how it failed: EAGAIN, ENOBUFS */
static int send_next(struct party *p, unsigned to)
{
	struct header h = {.from = p->me, .to = to, .number = p->sent[to]};
	unsigned char buf[MESSAGE];
	size_t len;

	h.last = p->over && h.number + 1 >= messages;
	len = build(buf, &h);
	if (sendto(p->fd, buf, len, MSG_DONTWAIT, (struct sockaddr *)&all[to].name, sizeof(all[to].name)) ==
	    (ssize_t)len) {
		p->sent[to]++;
		p->sent_last[to] = h.last;
		return 0;
	}
	if (errno != EAGAIN && errno != ENOBUFS)
		fail("%u to %u, number %u: %s", p->me, to, h.number, strerror(errno));
	return errno;
}

/*
 * One to each in turn. True: there may be room for more as soon as the socket says so. False: there
 * is nothing to send, or only for those that are congested, which input tells.
 */
static bool send_round(struct party *p)
{
	bool any = false;
	unsigned i, to;
	int err;

	for (i = 0; i < members; i++) {
		to = p->next;
		if (talks(p, to) && !p->sent_last[to]) {
			err = send_next(p, to);
			if (err == EAGAIN)
				return true;
			any |= !err;
		}
		p->next = (to + 1) % members;
	}
	return any;
}

static bool take(struct party *p)
{
	unsigned char buf[MESSAGE], want[MESSAGE];
	struct sockaddr_in from;
	socklen_t fromlen = sizeof(from);
	ssize_t len = recvfrom(p->fd, buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&from, &fromlen);
	struct header h;

	if (len < 0) {
		if (errno != EAGAIN)
			fail("%u: recvfrom: %s", p->me, strerror(errno));
		return false;
	}
	if (len < (ssize_t)sizeof(h))
		fail("%u: a message of %zd bytes", p->me, len);
	memcpy(&h, buf, sizeof(h));
	if (h.from >= members || h.from == p->me || h.to != p->me || from.sin_port != all[h.from].name.sin_port)
		fail("%u: from %u to %u, port %u", p->me, h.from, h.to, ntohs(from.sin_port));
	if (h.number != p->seen[h.from] || p->seen_last[h.from])
		fail("%u: number %u of %u came, %u was next%s", p->me, h.number, h.from, p->seen[h.from],
		     p->seen_last[h.from] ? ", or none" : "");
	if (build(want, &h) != (size_t)len || memcmp(buf, want, (size_t)len))
		fail("%u: number %u of %u is damaged (%zd bytes)", p->me, h.number, h.from, len);
	p->seen[h.from]++;
	p->seen_last[h.from] = h.last;
	return true;
}

static bool complete(const struct party *p)
{
	unsigned i;

	for (i = 0; i < members; i++)
		if (talks(p, i) && (!p->sent_last[i] || !p->seen_last[i]))
			return false;
	return p->over;
}

/* What it waits for, in case that it hangs: the watch asks. */
static const struct party *mine;

static void say_what_is_missing(int sig)
{
	unsigned i;

	for (i = 0; i < members; i++)
		if (talks(mine, i) && (!mine->sent_last[i] || !mine->seen_last[i]))
			dprintf(2, "%u and %u: %u sent%s, %u seen%s\n", mine->me, i, mine->sent[i],
				mine->sent_last[i] ? " (all)" : "", mine->seen[i], mine->seen_last[i] ? " (all)" : "");
	test_stack(sig);
}

static void exchange(struct party *p)
{
	struct pollfd event[2] = {{.fd = p->fd}, {.fd = over[0]}};
	bool room = true;
	unsigned i;

	while (!complete(p)) {
		event[0].events = (short)(POLLIN | (room ? POLLOUT : 0));
		if (poll(event, 2, -1) < 0)
			fail("poll: %s", strerror(errno));
		if (event[1].revents) {
			p->over = true;
			event[1].fd = -1;
		}
		for (i = 0; i < BURST && take(p); i++)
			;
		room = send_round(p);
	}
}

static void member(unsigned me)
{
	const struct rlimit few = {descriptors, descriptors};
	socklen_t len = sizeof(all[me].name);
	struct party *p = calloc(1, sizeof(*p));
	unsigned i;
	char c;

	check(p && (!descriptors || setrlimit(RLIMIT_NOFILE, &few) == 0));
	mine = p;
	signal(TEST_STACKS_SIGNAL, say_what_is_missing);
	p->me = p->next = me;
	p->fd = rds_bound(home(), 0);
	check(getsockname(p->fd, (struct sockaddr *)&all[me].name, &len) == 0);
	close(begin[1]);
	close(over[1]);
	close(leave[1]);
	atomic_fetch_add(&shared->bound, 1);
	check(read(begin[0], &c, 1) == 0);
	exchange(p);
	for (i = 0; i < members; i++)
		atomic_fetch_add(&shared->came, p->seen[i]);
	atomic_fetch_add(&shared->complete, 1);
	check(read(leave[0], &c, 1) == 0);
	close(p->fd);
	exit(0);
}

static unsigned broken(void)
{
	int fd = rds_bound(home(), 0);
	unsigned n = (unsigned)counter(fd, "conn_reset");

	close(fd);
	return n;
}

static bool injected(void)
{
	const char *faults = getenv("RDS_PRELOAD_FAULT");

	return faults && *faults;
}

static void end_all(void)
{
	unsigned i;

	for (i = 0; i < members; i++)
		if (pids[i] > 0)
			kill(pids[i], SIGKILL);
}

static void too_late(int sig)
{
	static const char text[] = "LATE crowd: did not end in time\n";

	(void)sig;
	(void)!write(2, text, sizeof(text) - 1);
	end_all();
	_exit(TEST_LATE);
}

/* The server is only stopped. */
static void make_trouble(void)
{
	bool stopped[MOST] = {false};
	unsigned i, who, killed = 0;
	uint64_t r = seed;

	for (i = 0; i < troubles; i++) {
		r = mix(r);
		usleep((useconds_t)(r % (2 * PAUSE_US)));
		who = (unsigned)(r >> 32) % members;
		if (atomic_load(&all[who].doomed))
			continue;
		if (r >> 24 & 1 && killed < members / 3 && (who || !one_server)) {
			atomic_store(&all[who].doomed, true);
			kill(pids[who], SIGKILL);
			killed++;
			continue;
		}
		stopped[who] = !stopped[who];
		kill(pids[who], stopped[who] ? SIGSTOP : SIGCONT);
	}
	for (i = 0; i < members; i++)
		kill(pids[i], SIGCONT);
	printf("seed %llu: %u troubles, %u killed\n", (unsigned long long)seed, troubles, killed);
}

static void await_ends(void)
{
	unsigned i, n;
	int status;
	pid_t pid;

	for (n = 0; n < members; n++) {
		pid = wait(&status);
		check(pid > 0);
		for (i = 0; pids[i] != pid; i++)
			;
		pids[i] = 0;
		if (status == 0 || (atomic_load(&all[i].doomed) && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
			continue;
		end_all();
		if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_LATE)
			test_late("process %u", i);
		fail("process %u ended with status %#x", i, (unsigned)status);
	}
}

static void await_all(_Atomic unsigned *n)
{
	unsigned looks = 0;
	int status;

	while (atomic_load(n) < members) {
		if (waitpid(-1, &status, WNOHANG) > 0) {
			end_all();
			fail("a process has ended with status %#x", (unsigned)status);
		}
		test_pause(&looks);
	}
}

static void start_all(void)
{
	unsigned i;

	for (i = 0; i < members; i++) {
		pids[i] = fork();
		check(pids[i] >= 0);
		if (pids[i])
			continue;
		check(!prctl(PR_SET_PDEATHSIG, SIGKILL));
		signal(SIGALRM, SIG_DFL);
		alarm(test_alarm(limit));
		member(i);
	}
}

static void options(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "n:m:f:k:S:t:1")) != -1) {
		unsigned long n = optarg ? strtoul(optarg, NULL, 0) : 0;

		switch (c) {
		case 'n':
			members = (unsigned)n;
			break;
		case 'm':
			messages = (unsigned)n;
			break;
		case 'f':
			descriptors = (unsigned)n;
			break;
		case 'k':
			troubles = (unsigned)n;
			break;
		case 'S':
			seed = n;
			break;
		case 't':
			limit = (unsigned)n;
			break;
		case '1':
			one_server = true;
			break;
		default:
			exit(2);
		}
	}
	if (members < 2 || members > MOST || !messages)
		fail("2 to %u processes, and messages", MOST);
}

int main(int argc, char **argv)
{
	unsigned i;

	options(argc, argv);
	all = mmap(NULL, (members + 1) * sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(all != MAP_FAILED && pipe(begin) == 0 && pipe(over) == 0 && pipe(leave) == 0);
	shared = (void *)&all[members];
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGALRM, too_late);
	alarm(limit * test_slow());
	start_all();
	await_all(&shared->bound);
	if (!troubles)
		close(over[1]);
	close(begin[1]); /* all begin */
	if (troubles) {
		close(leave[1]); /* the others may be stopped then, or dead */
		make_trouble();
		close(over[1]);
	} else {
		await_all(&shared->complete);
		if (!injected() && broken())
			fail("%u connections have broken, and no process has ended", broken());
		close(leave[1]);
	}
	await_ends();
	for (i = 0; i < members; i++)
		if (atomic_load(&all[i].doomed))
			close(rds_bound(home(), ntohs(all[i].name.sin_port))); /* the ports of the dead are free */
	printf("ok: %u processes%s, %u messages, %u connections broken or ended\n", members,
	       one_server ? ", one of them a server" : "", atomic_load(&shared->came), broken());
	return 0;
}
