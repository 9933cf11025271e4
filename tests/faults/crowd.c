/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * crowd.c [-n processes] [-m messages] [-f descriptors] [-k troubles] [-r] [-S seed] [-1] [-s] [-g seconds]
 * [-M MiB] [-t seconds] - all processes talk to all others at once, each over one non-blocking socket,
 * while some of them are killed (-9) at random, and others are stopped and go on.
 *
 * Each sends so many messages at least to each other one, goes on until the trouble is over, and
 * then says which is its last one. At most a third is killed. The others lose, double and reorder
 * nothing among themselves, and end; what comes from one that is killed is the beginning of what it
 * has sent. The trouble follows from the seed, and begins with the first contact.
 *
 * Half of the pairs exchange short messages only. Some pairs have bursts. Where there is trouble, half
 * of the processes pause between two messages to all, asleep, so that others have to wake them.
 *
 * -r: who is killed is replaced by another process, its next life, on the same port or another one. Any
 * number is killed. Each sends to the new one from the beginning; what was sent to an earlier life may
 * come to one that has the same port.
 * -1: one server and many clients; each client talks to the server only.
 * -s: only short messages.
 * -g, -M: what an exchange without trouble should take; told, not judged.
 *
 * A plain PF_RDS program.
 */
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "crowd.h"

#define TROUBLE_US 4000 /* between two troubles, on average */

unsigned members = 16, messages = 20, descriptors, troubles;
uint64_t seed = 1;
bool one_server, replaced, only_short;
struct member *all;
struct shared *shared;
int begin[2], over[2], leave[2];

static unsigned limit = 60, goal_s, goal_mib;
static pid_t pids[MOST]; /* 0: killed, or has ended */
static uint16_t life[MOST], port_again[MOST];
static bool used[1 << 16]; /* ports of the dead */

void shut(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
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

static void start(unsigned who)
{
	life[who]++;
	pids[who] = fork();
	check(pids[who] >= 0);
	if (pids[who])
		return;
	check(!prctl(PR_SET_PDEATHSIG, SIGKILL));
	signal(SIGALRM, SIG_DFL);
	alarm(test_alarm(limit));
	member(who, life[who], port_again[who]);
}

static void ended_wrong(unsigned who, int status)
{
	end_all();
	if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_LATE)
		test_late("process %u", who);
	fail("process %u ended with status %#x", who, (unsigned)status);
}

/* It may have said where it is in between. */
static void kill_one(unsigned who)
{
	uint32_t at = atomic_exchange(&all[who].at, 0);
	int status;

	kill(pids[who], SIGKILL);
	check(waitpid(pids[who], &status, 0) == pids[who]);
	pids[who] = 0;
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		ended_wrong(who, status);
	at |= atomic_exchange(&all[who].at, 0);
	used[PORT(at)] = true;
	port_again[who] = PORT(at);
}

/* The server is only stopped. */
static void make_trouble(void)
{
	unsigned i, who, killed = 0, stops = 0;
	bool stopped[MOST] = {false};
	uint64_t r = seed;

	for (i = 0; i < troubles; i++) {
		r = mix(r);
		usleep((useconds_t)(r % (2 * TROUBLE_US)));
		who = (unsigned)(r >> 32) % members;
		if (!pids[who])
			continue;
		if (r >> 24 & 1 && (replaced || killed < members / 3) && (who || !one_server)) {
			kill_one(who);
			killed++;
			stopped[who] = false;
			if (r >> 25 & 1)
				port_again[who] = 0;
			if (replaced)
				start(who);
			continue;
		}
		stopped[who] = !stopped[who];
		stops += stopped[who];
		kill(pids[who], stopped[who] ? SIGSTOP : SIGCONT);
	}
	for (i = 0; i < members; i++)
		if (pids[i])
			kill(pids[i], SIGCONT);
	printf("seed %llu: %u killed, %u stopped\n", (unsigned long long)seed, killed, stops);
}

static void await_ends(void)
{
	unsigned i;
	int status;
	pid_t pid;

	while ((pid = wait(&status)) > 0) {
		for (i = 0; pids[i] != pid; i++)
			;
		pids[i] = 0;
		used[PORT(atomic_load(&all[i].at))] = true;
		if (status)
			ended_wrong(i, status);
	}
}

/* Of those that live. */
static void await_bound(void)
{
	unsigned i;

	for (i = 0; i < members; i++)
		if (pids[i])
			test_until(atomic_load(&all[i].at) || test_state(pids[i]) == 'Z');
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

/* Pages that several processes share count once; page tables count, too. */
static unsigned long kib_of(pid_t pid, const char *file, const char *a, const char *b)
{
	char path[64], line[256];
	unsigned long sum = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	f = fopen(path, "r");
	check(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, a, strlen(a)) || !strncmp(line, b, strlen(b)))
			sum += strtoul(strchr(line, ':') + 1, NULL, 10);
	fclose(f);
	return sum;
}

static void tell_costs(double began)
{
	unsigned long kib = 0;
	double took = 0;
	unsigned i;

	for (i = 0; i < members; i++) {
		took = all[i].complete - began > took ? all[i].complete - began : took;
		kib += kib_of(pids[i], "smaps_rollup", "Pss_Anon:", "Pss_Shmem:") +
		       kib_of(pids[i], "status", "VmPTE:", "VmPTE:");
	}
	printf("%.1f s", took);
	if (goal_s)
		printf(" (%s %u)", took <= goal_s ? "at most" : "TOO LONG: more than", goal_s);
	printf(", %lu MiB", kib >> 10);
	if (goal_mib)
		printf(" (%s %u)", kib >> 10 <= goal_mib ? "at most" : "TOO MUCH: more than", goal_mib);
	printf(": ");
}

static void options(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "n:m:f:k:S:t:g:M:1rs")) != -1) {
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
		case 'g':
			goal_s = (unsigned)n;
			break;
		case 'M':
			goal_mib = (unsigned)n;
			break;
		case '1':
			one_server = true;
			break;
		case 'r':
			replaced = true;
			break;
		case 's':
			only_short = true;
			break;
		default:
			exit(2);
		}
	}
	if (members < 2 || members > MOST || !messages)
		fail("2 to %u processes, and messages", MOST);
}

static void calm(double began)
{
	await_all(&shared->complete);
	if (!injected() && broken())
		fail("%u connections have broken, and no process has ended", broken());
	tell_costs(began);
	shut(&leave[1]);
}

static void trouble(void)
{
	shut(&leave[1]); /* the others may be stopped then, or dead */
	make_trouble();
	await_bound();
	shut(&over[1]);
}

int main(int argc, char **argv)
{
	double began;
	unsigned i;

	options(argc, argv);
	all = mmap(NULL, (members + 1) * sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(all != MAP_FAILED && pipe(begin) == 0 && pipe(over) == 0 && pipe(leave) == 0);
	shared = (void *)&all[members];
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGALRM, too_late);
	alarm(limit * test_slow());
	for (i = 0; i < members; i++)
		start(i);
	await_all(&shared->bound);
	if (!troubles)
		shut(&over[1]);
	began = seconds();
	shut(&begin[1]); /* all begin */
	if (troubles)
		trouble();
	else
		calm(began);
	await_ends();
	if (atomic_load(&shared->wrong))
		fail("a process that was killed had seen something wrong");
	for (i = 1; i < 1 << 16; i++)
		if (used[i])
			close(rds_bound(home(), i)); /* nobody has it any more */
	printf("ok: %u processes%s, %u messages, %u connections broken or ended\n", members,
	       one_server ? ", one of them a server" : "", atomic_load(&shared->came), broken());
	return 0;
}
