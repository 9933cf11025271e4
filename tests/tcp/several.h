/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * several.h - what the starter (several.c), the trouble (several_trouble.c) and the processes of the
 * two hosts (several_member.c) share.
 *
 * Each host has so many *places*, and in each of them there is one process at a time, a *life* of the
 * place.  A process has one socket, on a port that no other life of any place has.
 */
#ifndef TCP_SEVERAL_H
#define TCP_SEVERAL_H

#include <stdatomic.h>

#include "../faults/faults.h"

#define PER_HOST 8
#define PLACES (2 * PER_HOST) /* those of the first host come first */
#define LIVES 200	      /* of one place, from 1 on */
#define PORT 22000
#define PORT_OF(place, life) (PORT + (life)*PLACES + (place))
#define HOST(place) ((place) / PER_HOST)

/* What all do now. */
enum phase {
	GATHER, /* they bind */
	GO,	/* all messages, or without end where there is trouble */
	OVER,	/* the trouble: all messages, and some more */
	CLOSE,	/* one more each: a doubled message would come before it */
	LEAVE,
};

enum fate { NOT_YET, LIVES_NOW, HAS_LEFT, KILLED };

/* How many messages a life has sent to the last life of a place that it knows. */
struct total {
	unsigned life, n;
};

struct life {
	_Atomic enum fate fate;
	struct total total[PLACES]; /* final if it has left; else as of the phase in sent_phase */
};

/* "sent" and the like count on from one life to the next. */
struct place {
	_Atomic unsigned life;	 /* which is bound; 0: none */
	_Atomic unsigned leaves; /* this life has to end */
	_Atomic unsigned sent_phase, complete_phase;
	_Atomic unsigned blocked_on; /* a blocking send to this place + 1 */
	_Atomic unsigned sent[PLACES], got[PLACES];
	_Atomic uint64_t seen[PLACES];	      /* the last life of it that has sent, above, and its next number */
	_Atomic unsigned heard[PLACES];	      /* epoch of the last message of it to the life of now */
	_Atomic unsigned refused[PLACES];     /* sends to a congested port */
	_Atomic unsigned rows;		      /* of connections to the other host: what rds-info shows */
	_Atomic unsigned next[PLACES][LIVES]; /* number that this life awaits of each of theirs */
	struct life lives[LIVES];
};

struct several {
	uint32_t addr[2];
	unsigned per_host, messages;
	unsigned kernel; /* so many hosts have kernel RDS: the second one, or both */
	bool endless;	 /* in phase GO */
	bool paced;	 /* then */
	bool blocking;	 /* the odd places' sends are; else the last one's of the first host */
	bool typed;	 /* each process has a type of service of its own, as far as there are any */
	uint64_t seed;
	_Atomic enum phase phase;
	_Atomic unsigned stopped; /* place + 1 */
	_Atomic unsigned epoch;	  /* of owners, that have ended for certain */
	struct place place[PLACES];
};

/* several.c */
extern struct several *all;
extern pid_t pids[PLACES];
extern bool may_end[PLACES];
extern int network[2]; /* namespaces */
bool is_kernel(unsigned host);
void start(unsigned place);
bool expects_end(unsigned place, bool killed);
void reap(void);
bool all_heard(unsigned epoch);
unsigned came(void);
/* What that life has sent to the life of now of another place, and is to come there, if it is known. */
const struct total *to_come(unsigned from, unsigned life, unsigned place);

void show(void);

#define MORE_LOOKS 10 /* of a second each */

/*
 * Until cond is true; whoever ends meanwhile without being asked to is wrong.  What takes long is shown, and
 * again every ten seconds or so: what is the same the second time does not get on.
 */
#define until(cond, ...)                                                                                               \
	do {                                                                                                           \
		for (unsigned looks_ = 0; reap(), !(cond); test_pause(&looks_)) {                                      \
			if (looks_ < TEST_LOOKS || (looks_ - TEST_LOOKS) % MORE_LOOKS)                                 \
				continue;                                                                              \
			fprintf(stderr, "%.0f s: still waits: ", seconds());                                           \
			fprintf(stderr, __VA_ARGS__);                                                                  \
			fputc('\n', stderr);                                                                           \
			show();                                                                                        \
		}                                                                                                      \
	} while (0)

/* several_net.c: what the kernel of each host knows of TCP port 16385 */
int owner_of(unsigned host);
unsigned connections_of(unsigned host);

/* several_trouble.c */
void trouble_owner_ends(unsigned host);
void trouble_owner_killed(unsigned host);
void trouble_owner_stopped(unsigned host);
void trouble_member_ends_aside(unsigned host);
void trouble_all_but_one_killed(unsigned host);
extern unsigned falls; /* how many have killed themselves */
void trouble_owners_killed(unsigned host);
void trouble_owner_falls(unsigned host);
void let_owners_fall(void);
void trouble_member_killed(unsigned host);
void trouble_member_stopped(unsigned host);
void trouble_owner_killed_aside(unsigned host);
void trouble_none(unsigned host);
extern double slowest; /* until all have heard of all again */

/* several_member.c */
void member(unsigned place, unsigned life) __attribute__((noreturn));

#endif
