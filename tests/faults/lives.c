/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lives.c - a process is killed, and another one binds its port and sends, too, while the receiver
 * is stopped: what the first one has sent comes first, whichever way it takes.
 *
 * Short messages go one way, long ones another one, which the two processes have to agree on before.
 * Each case says which of the two ways both lives have by then.
 *
 * A plain PF_RDS program.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "faults.h"

#define PORT 25000 /* of the receiver */
#define SHORT 16
#define LONG 3000
#define MANY 100 /* messages that are enough for a socket that is used much */
#define FEW 3

enum who { RECEIVER, FIRST, SECOND, OTHERS };
/* To a process, by its pipe; it answers with a byte when that is done. */
struct order {
	enum { BIND, SEND } what;
	unsigned port, n;
	uint32_t len;
};
struct message {
	uint32_t life, number; /* 0: a greeting, not judged */
};

static struct {
	pid_t pid;
	int orders, done;
} all[OTHERS];
static struct {
	_Atomic unsigned greetings[OTHERS], came[OTHERS]; /* at the receiver, or from it */
} * seen;
static unsigned port_next = PORT + 1;
static const char *now;

/* ---- a process ---- */

static void take(int fd, enum who me)
{
	static uint32_t life;
	struct {
		struct message m;
		char rest[LONG];
	} buf;
	ssize_t len = recv(fd, &buf, sizeof(buf), MSG_DONTWAIT);

	if (len < 0 && errno == EAGAIN) /* a port was congested, and is not any more */
		return;
	check(len >= (ssize_t)sizeof(buf.m) && buf.m.life < OTHERS);
	if (!buf.m.number) {
		atomic_fetch_add(&seen->greetings[me == RECEIVER ? buf.m.life : me], 1);
		return;
	}
	if (buf.m.life < life)
		fail("%s: number %u of the first life comes after the second one has begun", now, buf.m.number);
	life = buf.m.life;
	if (buf.m.number != atomic_load(&seen->came[life]) + 1)
		fail("%s: number %u of life %u comes after %u", now, buf.m.number, life,
		     atomic_load(&seen->came[life]));
	atomic_fetch_add(&seen->came[life], 1);
}

static void give(int fd, enum who me, const struct order *o, uint32_t *number, bool greeting)
{
	struct sockaddr_in to = name_of(home(), o->port);
	struct {
		struct message m;
		char rest[LONG];
	} buf = {.m = {.life = me}};
	unsigned i;

	for (i = 0; i < o->n; i++) {
		buf.m.number = greeting ? 0 : ++*number;
		check(sendto(fd, &buf, o->len, 0, (struct sockaddr *)&to, sizeof(to)) == (ssize_t)o->len);
	}
}

/* What it sends over its first socket is a greeting. */
static void process(enum who me, int orders, int done)
{
	struct pollfd event[3] = {{.fd = orders, .events = POLLIN}};
	unsigned sockets = 0, i;
	uint32_t number = 0;
	struct order o;

	check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	alarm(test_alarm(60));
	for (;;) {
		check(poll(event, 1 + sockets, -1) > 0);
		for (i = 1; i <= sockets; i++)
			if (event[i].revents)
				take(event[i].fd, me);
		if (!event[0].revents)
			continue;
		if (read(orders, &o, sizeof(o)) != sizeof(o))
			_exit(0);
		if (o.what == BIND)
			event[++sockets] = (struct pollfd){.fd = rds_bound(home(), o.port), .events = POLLIN};
		else
			give(event[sockets].fd, me, &o, &number, me == RECEIVER || sockets == 1);
		check(write(done, "", 1) == 1);
	}
}

static void begins(enum who who)
{
	int orders[2], done[2];

	check(pipe(orders) == 0 && pipe(done) == 0);
	all[who].pid = fork();
	check(all[who].pid >= 0);
	if (!all[who].pid) {
		close(orders[1]);
		process(who, orders[0], done[1]);
	}
	close(orders[0]);
	close(done[1]);
	all[who].orders = orders[1];
	all[who].done = done[0];
}

static void tell(enum who who, struct order o)
{
	check(write(all[who].orders, &o, sizeof(o)) == sizeof(o));
}

static void await(enum who who)
{
	char c;

	if (read(all[who].done, &c, 1) != 1)
		fail("%s: process %d has ended", now, (int)who);
}

static void binds(enum who who, unsigned port)
{
	tell(who, (struct order){.what = BIND, .port = port});
	await(who);
}

static void sends(enum who who, unsigned n, uint32_t len)
{
	tell(who, (struct order){.what = SEND, .port = PORT, .n = n, .len = len});
	await(who);
}

static void stop(enum who who)
{
	int status;

	check(kill(all[who].pid, SIGSTOP) == 0);
	check(waitpid(all[who].pid, &status, WUNTRACED) == all[who].pid && WIFSTOPPED(status));
}

static void go_on(enum who who)
{
	check(kill(all[who].pid, SIGCONT) == 0);
}

static void ends(enum who who)
{
	int status;

	check(kill(all[who].pid, SIGKILL) == 0);
	check(waitpid(all[who].pid, &status, 0) == all[who].pid);
	if (WIFEXITED(status)) /* it has seen something wrong */
		_exit(WEXITSTATUS(status) ? WEXITSTATUS(status) : 1);
	close(all[who].orders);
	close(all[who].done);
}

/* ---- cases ---- */

/* The receiver knows it, by that way, from another port. */
static void is_known(enum who who, uint32_t len)
{
	unsigned n = len == LONG ? MANY : 1;

	binds(who, port_next++);
	sends(who, n, len);
	test_until(atomic_load(&seen->greetings[who]) == n);
}

struct lives {
	const char *name;
	uint32_t first_known, second_known; /* by what has come before, 0: not at all */
	uint32_t first, then, second;	    /* lengths of what they send; `then` is one message, 0: none */
	bool then_may_be_lost;		    /* there was no way for it before the end */
};
static const struct lives cases[] = {
	{"both unknown", 0, 0, SHORT, 0, SHORT, false},
	{"both unknown, then long", 0, 0, SHORT, 0, LONG, false},
	{"the first unknown", 0, SHORT, SHORT, 0, SHORT, false},
	{"the first unknown, the second with a ring", 0, LONG, SHORT, 0, SHORT, false},
	{"the first unknown, the second with a ring, long", 0, LONG, SHORT, 0, LONG, false},
	{"the first with cells, the second with a ring", SHORT, LONG, SHORT, 0, SHORT, false},
	{"the second with cells", SHORT, SHORT, SHORT, 0, SHORT, false},
	{"two rings", LONG, LONG, LONG, 0, LONG, false},
	{"the first with a ring, the second unknown", LONG, 0, LONG, 0, SHORT, false},
	{"the first with a ring, the second with cells", LONG, SHORT, LONG, 0, SHORT, false},
	{"the first connects, the second unknown", SHORT, 0, SHORT, LONG, SHORT, true},
	{"the first connects, the second with a ring", 0, LONG, SHORT, LONG, SHORT, true},
	{"both connect", 0, 0, SHORT, LONG, LONG, true},
};

static void receiver_begins(void)
{
	begins(RECEIVER);
	binds(RECEIVER, PORT);
}

/* What it has found wrong it has said. */
static bool has_ended(enum who who)
{
	return waitpid(all[who].pid, NULL, WNOHANG) == all[who].pid;
}

static void all_came(unsigned at_least)
{
	test_until(atomic_load(&seen->came[SECOND]) == FEW || has_ended(RECEIVER));
	if (atomic_load(&seen->came[SECOND]) != FEW)
		_exit(1);
	if (atomic_load(&seen->came[FIRST]) < at_least)
		fail("%s: %u messages of the first life came, not %u", now, atomic_load(&seen->came[FIRST]), at_least);
}

static void run(const struct lives *l)
{
	unsigned port = port_next++;

	now = l->name;
	memset(seen, 0, sizeof(*seen));
	receiver_begins();
	begins(SECOND);
	if (l->second_known)
		is_known(SECOND, l->second_known);
	else
		binds(SECOND, port_next++);
	begins(FIRST);
	if (l->first_known)
		is_known(FIRST, l->first_known);
	else
		binds(FIRST, port_next++);
	binds(FIRST, port);
	stop(RECEIVER);
	sends(FIRST, FEW, l->first);
	if (l->then)
		sends(FIRST, 1, l->then);
	ends(FIRST);
	binds(SECOND, port);
	sends(SECOND, FEW, l->second);
	go_on(RECEIVER);
	all_came(FEW + (l->then && !l->then_may_be_lost));
	ends(SECOND);
	ends(RECEIVER);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 3, only = argc > 2 ? (unsigned)atoi(argv[2]) : 0, r, i;

	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(seen != MAP_FAILED);
	for (r = 0; r < rounds; r++)
		for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
			if (!only || only == i + 1)
				run(&cases[i]);
	printf("ok\n");
	return 0;
}
