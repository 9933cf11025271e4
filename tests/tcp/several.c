/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * several.c [options] ADDRESS NETWORK ADDRESS NETWORK - several processes on each of two hosts, all to all.
 *
 * A host is an address and a namespace of the network (a file).  All processes of one talk to all of
 * the other, each with one socket, and judge every message: its bytes, its place among those of its
 * sender, and at the end that none is missing or too many.  There must be one TCP connection between
 * the two hosts, and rds-info must show this one.
 *
 * -p processes of each host  -n messages of each to each other  -S seed
 * -l LD_PRELOAD of the processes  -k: the second host has the kernel's RDS instead  -kk: both have
 * -u: all send as much as they can, while there is trouble, too
 * -f: owners may fall (see below) before anything is sent
 * -b: half of the processes block in sends  -o: their sockets have types of service
 * -t TROUBLE, -c how often, in turn on each host that has the library:
 *	owner-ends		whose other processes lose, double and reorder nothing
 *	owner-killed		(-9); the same
 *	owners-killed		(-9), two or three, one after another
 *	owner-stopped		for a while, then killed (-9); the same
 *	all-but-one-killed	(-9), at once; that one loses nothing
 *	member-ends-aside	while the owner is stopped, which is then killed; that one loses nothing, either
 *	owner-falls		somewhere in its steps (-l the library with faults)
 *	member-killed		they lose nothing
 *	member-stopped		nor are they held up
 *	owner-killed-aside	(-9), while another one is stopped
 *	unpaced			none: all send as much as they can, and all get on
 * A new process comes in the place of one that has ended.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "several.h"

struct several *all;
pid_t pids[PLACES];
bool may_end[PLACES];
int network[2];

unsigned falls;
static unsigned lives[PLACES], troubles = 1;
static void (*trouble)(unsigned host);
static const char *preload;
static bool unpaced;
static int memory;

static bool is_place(unsigned i)
{
	return i % PER_HOST < all->per_host;
}

bool is_kernel(unsigned host)
{
	return all->kernel > !host;
}

/* ---- processes ---- */

static void become_member(unsigned place)
{
	char text[3][16];

	check(!prctl(PR_SET_PDEATHSIG, SIGKILL));
	check(!setns(network[HOST(place)], CLONE_NEWNET));
	if (preload && !is_kernel(HOST(place)))
		check(!setenv("LD_PRELOAD", preload, 1));
	snprintf(text[0], sizeof(text[0]), "%u", place);
	snprintf(text[1], sizeof(text[1]), "%u", lives[place]);
	snprintf(text[2], sizeof(text[2]), "%d", memory);
	execl("/proc/self/exe", "several", "member", text[0], text[1], text[2], (char *)NULL);
	fail("exec: %s", strerror(errno));
}

void start(unsigned place)
{
	struct place *p = &all->place[place];
	unsigned i;

	check(++lives[place] < LIVES);
	p->sent_phase = p->complete_phase = p->blocked_on = 0;
	for (i = 0; i < PLACES; i++) {
		p->heard[i] = 0;
		p->seen[i] = 0;
	}
	for (i = 0; i < PLACES * LIVES; i++)
		p->next[i / LIVES][i % LIVES] = 0;
	may_end[place] = false;
	pids[place] = fork();
	check(pids[place] >= 0);
	if (!pids[place])
		become_member(place);
}

static void end_all(void)
{
	unsigned i;

	for (i = 0; i < PLACES; i++)
		if (pids[i] > 0)
			kill(pids[i], SIGKILL);
}

static void ended_wrong(unsigned place, int status)
{
	end_all();
	fail("place %u, life %u: status %#x", place, lives[place], (unsigned)status);
}

/* Has it ended, as it was to? */
bool expects_end(unsigned place, bool killed)
{
	int status;

	if (waitpid(pids[place], &status, WNOHANG) == 0)
		return false;
	if (killed ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : status != 0)
		ended_wrong(place, status);
	if (!killed)
		atomic_store(&all->place[place].lives[lives[place]].fate, HAS_LEFT);
	pids[place] = 0;
	return true;
}

/* An owner that has killed itself: another process comes in its place. */
static void fallen(unsigned place)
{
	struct place *p = &all->place[place];

	atomic_store(&p->life, 0);
	atomic_store(&p->lives[lives[place]].fate, KILLED);
	falls++;
	start(place);
}

void reap(void)
{
	unsigned i;
	int status;

	for (i = 0; i < PLACES; i++) {
		if (pids[i] <= 0 || may_end[i] || waitpid(pids[i], &status, WNOHANG) <= 0)
			continue;
		if (trouble != trouble_owner_falls || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			ended_wrong(i, status);
		fallen(i);
	}
}

/* ---- what all say of themselves ---- */

bool all_heard(unsigned epoch)
{
	unsigned i, k;

	for (i = 0; i < PLACES; i++)
		for (k = 0; k < PLACES; k++)
			if (is_place(i) && is_place(k) && HOST(i) != HOST(k) &&
			    atomic_load(&all->place[i].heard[k]) <= epoch)
				return false;
	return true;
}

unsigned came(void)
{
	unsigned i, k, n = 0;

	for (i = 0; i < PLACES; i++)
		for (k = 0; k < PLACES; k++)
			n += atomic_load(&all->place[i].got[k]);
	return n;
}

const struct total *to_come(unsigned from, unsigned life, unsigned place)
{
	const struct life *l = &all->place[from].lives[life];
	enum fate fate = atomic_load(&l->fate);

	if ((fate != LIVES_NOW && fate != HAS_LEFT) || l->total[place].life != atomic_load(&all->place[place].life))
		return NULL;
	return &l->total[place];
}

static void show_missing(unsigned place)
{
	const struct place *p = &all->place[place];
	const struct total *t;
	unsigned i, life, next;

	for (i = 0; i < PLACES; i++)
		for (life = 1; life < LIVES; life++) {
			t = to_come(i, life, place);
			next = atomic_load(&p->next[i][life]);
			if (t && next < t->n)
				fprintf(stderr, "; lacks %u to %u of place %u, life %u", next, t->n - 1, i, life);
		}
}

/* What hangs. */
void show(void)
{
	const struct place *p;
	unsigned i, k;

	for (i = 0; i < PLACES; i++) {
		p = &all->place[i];
		if (!is_place(i))
			continue;
		fprintf(stderr,
			"place %u, pid %d, life %u, sent all of phase %u, has all of phase %u; messages, last epoch:",
			i, pids[i], p->life, p->sent_phase, p->complete_phase);
		for (k = 0; k < PLACES; k++)
			if (is_place(k) && HOST(k) != HOST(i))
				fprintf(stderr, " %u,%d", p->got[k], (int)p->heard[k] - 1);
		if (p->blocked_on)
			fprintf(stderr, "; blocks in a send to %u", p->blocked_on - 1);
		show_missing(i);
		fputc('\n', stderr);
	}
}

static bool all_complete(enum phase phase)
{
	unsigned i;

	for (i = 0; i < PLACES; i++)
		if (is_place(i) && atomic_load(&all->place[i].complete_phase) < phase)
			return false;
	return true;
}

static bool all_bound(void)
{
	unsigned i;

	for (i = 0; i < PLACES; i++)
		if (is_place(i) && !atomic_load(&all->place[i].life))
			return false;
	return true;
}

static void go_through(enum phase phase)
{
	atomic_store(&all->phase, phase);
	until(all_complete(phase), "all have all of phase %d", phase);
}

/* ---- one connection ---- */

/* rds-info shows what the host has, whoever asks: between two processes of a host there is none. */
static void judge_rows(unsigned host)
{
	unsigned i, rows;

	for (i = host * PER_HOST; i < host * PER_HOST + all->per_host; i++) {
		rows = atomic_load(&all->place[i].rows);
		if (rows != 1)
			fail("place %u: rds-info shows %u connections to the other host", i, rows);
	}
}

/* One that was not meant to last ends by itself. */
static void judge_connection(unsigned host)
{
	if (is_kernel(host))
		return;
	until(connections_of(host) == 1, "one connection on host %u", host);
	until(owner_of(host) >= 0, "somebody listens on host %u", host);
	judge_rows(host);
}

/* ---- the beginning and the end ---- */

/* The first one of each host gets its port. */
static void gather(void)
{
	unsigned i, first;

	for (first = 0; first < PLACES; first += PER_HOST) {
		start(first);
		until(atomic_load(&all->place[first].life), "place %u is there", first);
		if (!is_kernel(HOST(first)))
			until(owner_of(HOST(first)) == (int)first, "place %u listens", first);
		for (i = first + 1; i < first + all->per_host; i++)
			start(i);
	}
	until(all_bound(), "all are there");
}

static void make_trouble(void)
{
	unsigned i;

	until(all_heard(0), "all hear from all");
	for (i = 0; i < troubles; i++)
		trouble(all->kernel == 1 ? 0 : i % 2);
}

static void leave(void)
{
	unsigned i;

	for (i = 0; i < PLACES; i++)
		may_end[i] = true;
	atomic_store(&all->phase, LEAVE);
	for (i = 0; i < PLACES; i++)
		if (is_place(i))
			until(expects_end(i, false), "place %u ends", i);
}

static void set_trouble(const char *name)
{
	static const struct {
		const char *name;
		void (*trouble)(unsigned host);
	} known[] = {{"owner-ends", trouble_owner_ends},
		     {"owner-killed", trouble_owner_killed},
		     {"owner-stopped", trouble_owner_stopped},
		     {"member-ends-aside", trouble_member_ends_aside},
		     {"all-but-one-killed", trouble_all_but_one_killed},
		     {"owners-killed", trouble_owners_killed},
		     {"owner-falls", trouble_owner_falls},
		     {"member-killed", trouble_member_killed},
		     {"member-stopped", trouble_member_stopped},
		     {"owner-killed-aside", trouble_owner_killed_aside},
		     {"unpaced", trouble_none}};
	unsigned i;

	for (i = 0; i < 11 && strcmp(name, known[i].name); i++)
		;
	if (i == 11)
		fail("no trouble %s", name);
	trouble = known[i].trouble;
	all->endless = true;
	all->paced = trouble != trouble_none && !unpaced;
}

static void options(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "p:n:S:l:kbouft:c:")) != -1) {
		if (c == 'p')
			all->per_host = (unsigned)atoi(optarg);
		else if (c == 'n')
			all->messages = (unsigned)atoi(optarg);
		else if (c == 'S')
			all->seed = strtoul(optarg, NULL, 0);
		else if (c == 'l')
			preload = optarg;
		else if (c == 'k')
			all->kernel++;
		else if (c == 'b')
			all->blocking = true;
		else if (c == 'o')
			all->typed = true;
		else if (c == 'u')
			unpaced = true;
		else if (c == 'f')
			let_owners_fall();
		else if (c == 'c')
			troubles = (unsigned)atoi(optarg);
		else if (c == 't')
			set_trouble(optarg);
		else
			exit(2);
	}
}

static void set_host(unsigned host, char **words)
{
	if (!words[0] || !words[1] || inet_pton(AF_INET, words[0], &all->addr[host]) != 1)
		fail("usage: several [options] ADDRESS NETWORK ADDRESS NETWORK");
	network[host] = open(words[1], O_RDONLY | O_CLOEXEC);
	check(network[host] >= 0);
}

static void map(bool first)
{
	if (first)
		check(!ftruncate(memory, sizeof(*all)));
	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	check(all != MAP_FAILED);
}

static void say_end(double begin)
{
	printf("ok seed %llu: %u messages, %.1f s", (unsigned long long)all->seed, came(), seconds() - begin);
	if (trouble)
		printf(", %u troubles, all again after at most %.2f s", troubles, slowest);
	if (falls)
		printf(", %u fell", falls);
	puts("");
}

int main(int argc, char **argv)
{
	double begin = seconds();

	if (argc == 5 && strcmp(argv[1], "member") == 0) {
		memory = atoi(argv[4]);
		map(false);
		member((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]));
	}
	memory = memfd_create("several", 0);
	map(true);
	all->per_host = PER_HOST;
	all->messages = 20;
	all->seed = test_seed();
	options(argc, argv);
	check(all->per_host && all->per_host <= PER_HOST);
	set_host(0, argv + optind);
	set_host(1, argv + optind + 2);
	gather();
	atomic_store(&all->phase, GO);
	if (trouble)
		make_trouble();
	go_through(OVER);
	go_through(CLOSE);
	judge_connection(0);
	judge_connection(1);
	leave();
	say_end(begin);
	return 0;
}
