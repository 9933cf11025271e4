/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * several_trouble.c - what happens to the processes of a host in the middle of the traffic.
 *
 * Each trouble is over when everybody has heard again from everybody of the other host.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "several.h"

#define SPREAD 600 /* messages: at most so many come before the next trouble */
#define ASIDE 25   /* messages of each pair, while one process is stopped */
#define TOO_MANY 20
#define FALLS 4		  /* in one go */
#define NEXT_US 3000	  /* at most so long after the next one listens */
#define STOPPED_US 800000 /* at most */

double slowest;
static unsigned let_fall;

static uint64_t drawn(void)
{
	static uint64_t n;

	return mix(all->seed + ++n);
}

/* In the middle of something else each time. */
static void some_more(void)
{
	unsigned end = came() + (unsigned)(drawn() % SPREAD);

	until((int)(came() - end) >= 0, "messages come");
}

static unsigned owner_now(unsigned host)
{
	int place;

	until((place = owner_of(host)) >= 0, "somebody listens on host %u", host);
	return (unsigned)place;
}

static unsigned member_now(unsigned host)
{
	unsigned owner = is_kernel(host) ? ~0u : owner_now(host),
		 i = (unsigned)(drawn() % (all->per_host - 1)) + host * PER_HOST;

	return i < owner ? i : i + 1;
}

static void begin_again(unsigned place)
{
	start(place);
	until(atomic_load(&all->place[place].life), "place %u is there again", place);
}

static void all_again(double begin)
{
	atomic_fetch_add(&all->epoch, 1);
	until(all_heard(atomic_load(&all->epoch)), "all hear from all, after %u deaths", atomic_load(&all->epoch));
	if (seconds() - begin > slowest)
		slowest = seconds() - begin;
}

/* Its process has ended, or is to be killed; and then everything goes on. */
static void replace(unsigned place, bool kills)
{
	double begin;

	until(expects_end(place, kills), "place %u ends", place);
	begin = seconds();
	begin_again(place);
	all_again(begin);
}

static void ends(unsigned place)
{
	struct place *p = &all->place[place];
	unsigned life = atomic_exchange(&p->life, 0);

	may_end[place] = true;
	atomic_store(&p->leaves, life);
	replace(place, false);
}

static void strike(unsigned place)
{
	struct place *p = &all->place[place];
	unsigned life = atomic_exchange(&p->life, 0);

	atomic_store(&p->lives[life].fate, KILLED);
	may_end[place] = true;
	kill(pids[place], SIGKILL);
}

static void killed(unsigned place)
{
	strike(place);
	replace(place, true);
}

void trouble_owner_ends(unsigned host)
{
	some_more();
	ends(owner_now(host));
}

void trouble_owner_killed(unsigned host)
{
	some_more();
	killed(owner_now(host));
}

/* The next one has hardly begun, or has to take over from two at once. */
void trouble_owners_killed(unsigned host)
{
	unsigned place[3], n = 2 + (unsigned)(drawn() % 2), i;

	some_more();
	for (i = 0; i < n; i++) {
		place[i] = owner_now(host);
		if (i)
			usleep((unsigned)(drawn() % NEXT_US));
		strike(place[i]);
		until(expects_end(place[i], true), "place %u ends", place[i]);
	}
	for (i = 0; i < n; i++)
		begin_again(place[i]);
	all_again(seconds());
}

/*
 * So many owners fall, and not more: what those have left who end before they could give the box to anybody, and
 * with all who had it, is lost (engine/trunk/README.md).
 */
void let_owners_fall(void)
{
	const char *files = getenv("FAULT_KILLS");
	char name[256];
	unsigned i;
	int fd;

	for (i = 0; i < FALLS; i++) {
		snprintf(name, sizeof(name), "%s.%u", files, i);
		fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
		check(fd >= 0 && !close(fd));
	}
	let_fall += FALLS;
}

void trouble_owner_falls(unsigned host)
{
	(void)host;
	if (falls == let_fall)
		let_owners_fall();
	until(falls == let_fall, "owners fall");
	all_again(seconds());
}

static void stop(unsigned place)
{
	int status;

	check(!kill(pids[place], SIGSTOP));
	check(waitpid(pids[place], &status, WUNTRACED) == pids[place] && WIFSTOPPED(status));
}

/* What is sent meanwhile waits with the members. */
void trouble_owner_stopped(unsigned host)
{
	unsigned place;

	some_more();
	place = owner_now(host);
	stop(place);
	usleep((unsigned)(drawn() % STOPPED_US));
	killed(place);
}

/* It has sent what the owner has not taken, and will never take: the next owner is to get it. */
void trouble_member_ends_aside(unsigned host)
{
	unsigned owner, place, life;
	struct place *p;

	some_more();
	owner = owner_now(host);
	place = member_now(host);
	p = &all->place[place];
	stop(owner);
	life = atomic_exchange(&p->life, 0);
	may_end[place] = true;
	atomic_store(&p->leaves, life);
	usleep((unsigned)(drawn() % STOPPED_US)); /* time enough to end too early */
	strike(owner);
	until(expects_end(owner, true), "place %u ends", owner);
	until(expects_end(place, false), "place %u ends", place);
	begin_again(owner);
	begin_again(place);
	all_again(seconds());
}

/* All others end at once, and whoever is left is the next owner, or is the owner. */
void trouble_all_but_one_killed(unsigned host)
{
	unsigned first = host * PER_HOST, left = first + (unsigned)(drawn() % all->per_host), i;

	some_more();
	for (i = first; i < first + all->per_host; i++)
		if (i != left)
			strike(i);
	for (i = first; i < first + all->per_host; i++)
		if (i != left) {
			until(expects_end(i, true), "place %u ends", i);
			begin_again(i);
		}
	all_again(seconds());
}

void trouble_member_killed(unsigned host)
{
	some_more();
	killed(member_now(host));
}

/* Has everybody had so many more messages of everybody than in before, but for that place? */
static bool others_went_on(unsigned before[PLACES][PLACES], unsigned place, unsigned n)
{
	unsigned i, k;

	for (i = 0; i < PLACES; i++)
		for (k = 0; k < PLACES; k++)
			if (i % PER_HOST < all->per_host && k % PER_HOST < all->per_host && HOST(i) != HOST(k) &&
			    i != place && k != place && atomic_load(&all->place[k].blocked_on) != place + 1 &&
			    atomic_load(&all->place[i].got[k]) - before[i][k] < n)
				return false;
	return true;
}

static void note(unsigned before[PLACES][PLACES])
{
	unsigned i, k;

	for (i = 0; i < PLACES; i++)
		for (k = 0; k < PLACES; k++)
			before[i][k] = atomic_load(&all->place[i].got[k]);
}

static unsigned sent_to(unsigned place)
{
	unsigned i, n = 0;

	for (i = 0; i < PLACES; i++)
		n += atomic_load(&all->place[i].sent[place]);
	return n;
}

/* Everybody of the other host has been told that its port is congested, or sleeps for that. */
static bool all_refused(unsigned place, const unsigned refused[PLACES])
{
	unsigned i, k;

	for (i = 0; i < all->per_host; i++) {
		k = i + (HOST(place) ? 0 : PER_HOST);
		if (atomic_load(&all->place[k].refused[place]) == refused[k] &&
		    atomic_load(&all->place[k].blocked_on) != place + 1)
			return false;
	}
	return true;
}

/* The others have got so many messages of each other; and none to that place has been taken meanwhile? */
static bool congested_meanwhile(unsigned place)
{
	unsigned before[PLACES][PLACES], refused[PLACES], i, sent;

	for (i = 0; i < PLACES; i++)
		refused[i] = atomic_load(&all->place[i].refused[place]);
	sent = sent_to(place);
	note(before);
	until(others_went_on(before, place, ASIDE), "the others go on while place %u is stopped", place);
	return all_refused(place, refused) && sent_to(place) == sent;
}

static unsigned stop_member(unsigned host)
{
	unsigned place, i;

	some_more();
	place = member_now(host);
	stop(place);
	atomic_store(&all->stopped, place + 1);
	for (i = 0; !congested_meanwhile(place); i++)
		if (i == TOO_MANY)
			fail("place %u is stopped, but its port does not become congested", place);
	return place;
}

static void let_go_on(unsigned place)
{
	atomic_store(&all->stopped, 0);
	check(!kill(pids[place], SIGCONT));
}

void trouble_member_stopped(unsigned host)
{
	unsigned before[PLACES][PLACES], place = stop_member(host);

	note(before);
	let_go_on(place);
	until(others_went_on(before, PLACES, 1), "all go on with place %u", place);
}

/* What the stopped one does not take is with one owner after the other. */
void trouble_owner_killed_aside(unsigned host)
{
	unsigned before[PLACES][PLACES], stopped = stop_member(host), place = owner_now(host);

	strike(place);
	until(expects_end(place, true), "place %u ends", place);
	begin_again(place);
	note(before);
	until(others_went_on(before, stopped, ASIDE), "the others go on while place %u is stopped", stopped);
	let_go_on(stopped);
	all_again(seconds());
}

void trouble_none(unsigned host)
{
	unsigned before[PLACES][PLACES];

	(void)host;
	note(before);
	until(others_went_on(before, PLACES, 3), "all go on");
}
