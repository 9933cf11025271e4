/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * kill.c [-k kills] [-S seed] [-t seconds] - kill -9 at random instants; the other processes go on.
 *
 * Two survivors exchange streams with each other that must be perfect from the first message to the
 * last.  Meanwhile victims send to both survivors and to one another, are killed, and are started
 * again at once on the same ports.  Messages from a victim are checked, too: within one life the
 * numbers rise by one, and every byte is right.  At the end the survivors must have as many
 * descriptors as at the start, in the tables of all their threads, and hardly more memory; every
 * port of a dead process must be free.
 *
 * A plain PF_RDS program.
 */
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "faults.h"

#define SURVIVORS 2
#define VICTIMS 3
#define ALL (SURVIVORS + VICTIMS)
#define PORT 21000
#define MESSAGE 3000
#define SETTLE_KILLS 10 /* after so many, caches are warm and growth counts */
/*
 * Taken when first needed, which may be later: 4 to wake the other survivor, and for a sleeping
 * thread; 5 for the second control socket, if both have dialled (itself and its two wakers, which
 * both tables hold).
 */
#define LATE_FDS 9

struct header {
	uint32_t from, life;
	uint64_t number;
};

static unsigned kills = 60, limit = 60;
static uint64_t seed = 1;
struct shared {
	_Atomic int stop;
	_Atomic unsigned bound, measured, stopped; /* survivors */
	_Atomic unsigned killed;
	_Atomic uint64_t received[SURVIVORS], from_victims;
	_Atomic uint64_t sent[SURVIVORS]; /* by each survivor to the other */
};
static struct shared *shared;

static size_t build(unsigned char *buf, const struct header *h)
{
	uint64_t key = mix(seed ^ ((uint64_t)h->from << 56 | (uint64_t)h->life << 40 | h->number));
	size_t len = sizeof(*h) + key % (MESSAGE - sizeof(*h));

	message_fill(buf, key, len);
	memcpy(buf, h, sizeof(*h));
	return len;
}

static void verify(const unsigned char *buf, size_t len, const struct sockaddr_in *sin, struct header *h)
{
	unsigned char want[MESSAGE];

	if (len < sizeof(*h))
		fail("a message of %zu bytes", len);
	memcpy(h, buf, sizeof(*h));
	if (h->from >= ALL || ntohs(sin->sin_port) != PORT + h->from || build(want, h) != len || memcmp(buf, want, len))
		fail("damaged message %llu of life %u of %u (%zu bytes)", (unsigned long long)h->number, h->life, h->from,
		     len);
}

/* To one destination, nonblocking. True if it was taken. */
static bool send_to(int fd, unsigned to, struct header *h)
{
	struct sockaddr_in sin = name_of(home(), PORT + to);
	unsigned char buf[MESSAGE];
	size_t len = build(buf, h);
	ssize_t n = sendto(fd, buf, len, MSG_DONTWAIT, (struct sockaddr *)&sin, sizeof(sin));

	if (n < 0 && errno != EAGAIN && errno != ENOBUFS)
		fail("sendto: %s", strerror(errno));
	if (n < 0)
		return false;
	h->number++;
	return true;
}

struct seen {
	uint32_t life;
	uint64_t next;
};

static bool take(int fd, unsigned me, struct seen *seen)
{
	unsigned char buf[MESSAGE];
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	ssize_t n = recvfrom(fd, buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&sin, &len);
	struct header h;
	struct seen *s;

	if (n < 0) {
		check(errno == EAGAIN);
		return false;
	}
	verify(buf, (size_t)n, &sin, &h);
	s = &seen[h.from];
	/*
	 * A life that starts may miss what was sent to the previous owner of its port; a stream has
	 * no holes inside.
	 */
	if (h.life < s->life || (h.life == s->life && s->next && h.number != s->next))
		fail("%u: number %llu of life %u of %u came, %llu of life %u was next", me, (unsigned long long)h.number,
		     h.life, h.from, (unsigned long long)s->next, s->life);
	if (me < SURVIVORS && h.life != s->life && h.number != 0)
		fail("%u: the first message of life %u of %u is number %llu", me, h.life, h.from,
		     (unsigned long long)h.number);
	s->life = h.life;
	s->next = h.number + 1;
	if (me < SURVIVORS) {
		if (h.from < SURVIVORS)
			atomic_fetch_add(&shared->received[me], 1);
		else
			atomic_fetch_add(&shared->from_victims, 1);
	}
	return true;
}

/* ---- what may leak ---- */

/* A thread that has just ended has none. */
static unsigned entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;

	if (!d && (errno == ENOENT || errno == ESRCH))
		return 0;
	check(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Threads may have tables of their own. */
static unsigned open_fds(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	char path[300];
	unsigned n = 0;

	check(d);
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/fd", e->d_name);
		if (e->d_name[0] != '.')
			n += entries(path);
	}
	closedir(d);
	return n;
}

/* Of what kind, for who looks for a leak. */
static void tell_fds(void)
{
	char command[120];

	snprintf(command, sizeof(command), "LD_PRELOAD= ls -l /proc/%d/task/*/fd >&2", (int)getpid());
	(void)!system(command);
}

/* In use: a crowd that had to be kept for a while leaves the heap large and empty. */
static unsigned long rss_kb(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	unsigned long kb = 0;
	char line[256];

	malloc_trim(0);
	check(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %lu", &kb) == 1)
			break;
	fclose(f);
	return kb;
}

/* ---- roles ---- */

static void survivor(unsigned me)
{
	int fd = rds_bound(home(), PORT + me);
	struct header to_peer = {.from = me, .life = 1}, h[ALL];
	struct seen seen[ALL] = {{0}};
	unsigned i, fds = 0, now, looks;
	unsigned long rss = 0;
	struct pollfd p = {.fd = fd, .events = POLLIN};

	for (i = 0; i < ALL; i++)
		h[i] = to_peer;
	atomic_fetch_add(&shared->bound, 1);
	while (atomic_load(&shared->bound) < SURVIVORS)
		poll(NULL, 0, 1);
	while (!atomic_load(&shared->stop)) {
		if (!fds && atomic_load(&shared->received[me]) > 10) {
			fds = open_fds();
			atomic_fetch_add(&shared->measured, 1);
		}
		if (!rss && atomic_load(&shared->killed) >= SETTLE_KILLS)
			rss = rss_kb();
		for (i = 0; i < 64 && take(fd, me, seen); i++)
			;
		if (send_to(fd, !me, &h[!me]))
			atomic_fetch_add(&shared->sent[me], 1);
		for (i = SURVIVORS; i < ALL; i++)
			send_to(fd, i, &h[i]);
		poll(&p, 1, 1);
	}
	/* everything that the other one sent must come */
	atomic_fetch_add(&shared->stopped, 1);
	while (atomic_load(&shared->stopped) < SURVIVORS ||
	       atomic_load(&shared->received[me]) < atomic_load(&shared->sent[!me]))
		if (!take(fd, me, seen))
			poll(&p, 1, 10);
	while (take(fd, me, seen)) /* what the dead have left holds memory */
		;
	for (looks = 0; (now = open_fds()) > fds + LATE_FDS; test_pause(&looks)) {
		/* the last death may still be on its way */
		if (looks != TEST_LOOKS)
			continue;
		tell_fds();
		fprintf(stderr, "survivor %u still waits: %u descriptors, %u before\n", me, now, fds);
	}
	if (rss_kb() > rss + 16384)
		fail("survivor %u: %lu KiB of memory, %lu before", me, rss_kb(), rss);
	printf("survivor %u: %u descriptors, %u before; %lu KiB, %lu before\n", me, now, fds, rss_kb(), rss);
	exit(0);
}

static void victim(unsigned me, unsigned life)
{
	int fd = rds_bound(home(), PORT + me);
	struct header h[ALL];
	struct seen seen[ALL] = {{0}};
	unsigned i;

	for (i = 0; i < ALL; i++)
		h[i] = (struct header){.from = me, .life = life};
	for (;;) {
		for (i = 0; i < 64 && take(fd, me, seen); i++)
			;
		for (i = 0; i < ALL; i++)
			if (i != me)
				send_to(fd, i, &h[i]);
	}
}

static pid_t start(unsigned who, unsigned life)
{
	pid_t pid = fork();

	check(pid >= 0);
	if (pid)
		return pid;
	check(!prctl(PR_SET_PDEATHSIG, SIGKILL));
	if (who < SURVIVORS)
		survivor(who);
	else
		victim(who, life);
	return 0;
}

static pid_t pids[ALL];

static void too_late(int sig)
{
	static const char text[] = "LATE kill: did not end in time\n";
	unsigned i;

	(void)sig;
	(void)!write(2, text, sizeof(text) - 1);
	for (i = 0; i < ALL; i++)
		if (pids[i] > 0)
			kill(pids[i], SIGKILL);
	_exit(TEST_LATE);
}

static void kill_and_restart(void)
{
	unsigned n, who, life[ALL];
	uint64_t r = seed;
	int status;

	for (n = 0; n < ALL; n++)
		life[n] = 1;
	for (n = 0; n < kills; n++) {
		r = mix(r);
		usleep((useconds_t)(r % 40000));
		who = SURVIVORS + (unsigned)(r >> 32) % VICTIMS;
		kill(pids[who], SIGKILL);
		check(waitpid(pids[who], &status, 0) == pids[who]);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			fail("victim %u had ended by itself, status %x", who, (unsigned)status);
		atomic_fetch_add(&shared->killed, 1);
		pids[who] = start(who, ++life[who]);
	}
	for (who = SURVIVORS; who < ALL; who++) {
		kill(pids[who], SIGKILL);
		waitpid(pids[who], &status, 0);
	}
}

int main(int argc, char **argv)
{
	unsigned i;
	int c, status, bad = 0;

	while ((c = getopt(argc, argv, "k:S:t:")) != -1) {
		if (c == 'k')
			kills = (unsigned)strtoul(optarg, NULL, 0);
		else if (c == 'S')
			seed = strtoull(optarg, NULL, 0);
		else if (c == 't')
			limit = (unsigned)strtoul(optarg, NULL, 0);
		else
			return 2;
	}
	if (kills <= SETTLE_KILLS)
		fail("more than %u kills, please", SETTLE_KILLS);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(shared != MAP_FAILED);
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGALRM, too_late);
	alarm(limit * test_slow());
	for (i = 0; i < ALL; i++) {
		pids[i] = start(i, 1);
		while (i == SURVIVORS - 1 && atomic_load(&shared->measured) < SURVIVORS) {
			if (waitpid(-1, &status, WNOHANG) > 0)
				fail("a survivor has ended, status %x", (unsigned)status);
			poll(NULL, 0, 1);
		}
	}
	kill_and_restart();
	atomic_store(&shared->stop, 1);
	for (i = 0; i < SURVIVORS; i++) {
		check(waitpid(pids[i], &status, 0) == pids[i]);
		bad |= status;
	}
	for (i = SURVIVORS; i < ALL; i++)
		close(rds_bound(home(), PORT + i)); /* the ports of the dead are free */
	printf("%s seed %llu: %u kills, %llu + %llu messages between survivors, %llu from victims\n", bad ? "FAIL" : "ok",
	       (unsigned long long)seed, kills, (unsigned long long)shared->received[0],
	       (unsigned long long)shared->received[1], (unsigned long long)shared->from_victims);
	return bad != 0;
}
