/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * player_marks.c - the player as a program of February 2008 (--marks): its operations have ids, and
 * RDS_BARRIER tells up to which id all operations to an address are over.
 *
 * The expected mark follows from the notifications, since both are there at the same instant.  The
 * mark covers all ids up to the first one without a notification.  It covers no id whose
 * notification the next receive does not bring.  It never falls, and in the end it is the last id.
 */
#include <errno.h>
#include <stdlib.h>

#include "player.h"

#define ISSUED_MAX 65536u

struct issued {
	uint64_t id, token; /* token 0: no notification */
	unsigned to;
	bool done;
};

struct marks {
	uint64_t rng;
	unsigned n; /* by rising id; without those that the last look has found to be over */
	uint64_t last_id;
	struct {
		uint64_t last, mark, below; /* below: of those that are not listed any more */
	} place[ACTORS_MAX];
	struct issued op[ISSUED_MAX];
};

void marks_begin(struct actor *a)
{
	if (!marks)
		return;
	free(a->marks);
	a->marks = calloc(1, sizeof(*a->marks));
	check(a->marks, "memory");
	a->marks->rng = mix(a->rng);
}

/* Of its own: the actor does the same, with marks or without. */
static uint64_t dice(struct marks *m)
{
	return m->rng = mix(m->rng);
}

/* The operation has been sent, or, if it was refused, has no id. */
void marks_sent(struct actor *a, const struct request *r, bool refused)
{
	struct marks *m = a->marks;

	if (!m || r->cmsg != CMSG_ARGS || r->args.flags & F_SILENT)
		return;
	if (refused ? r->id : r->id <= m->last_id)
		actor_fail(a, "an operation to actor %u that was %s has the id %llu, after %llu", r->to,
			   refused ? "refused" : "sent", (unsigned long long)r->id, (unsigned long long)m->last_id);
	if (refused)
		return;
	check(m->n < ISSUED_MAX, "too many operations are under way");
	m->op[m->n++] = (struct issued){r->id, r->args.token, r->to, false};
	m->last_id = m->place[wire->place(r->to)].last = r->id;
}

/* Those before it to the same socket are over as well, if it went well: they had one connection. */
void marks_told(struct actor *a, uint64_t token, int status)
{
	struct marks *m = a->marks;
	unsigned i, at;

	if (!m)
		return;
	for (at = 0; at < m->n && m->op[at].token != token; at++)
		;
	if (at == m->n) /* one without an id */
		return;
	m->op[at].done = true;
	for (i = 0; i < at && status == ST_SUCCESS && mode != KILL; i++)
		m->op[i].done |= !m->op[i].token && m->op[i].to == m->op[at].to;
}

static bool is_id(const struct marks *m, unsigned place, uint64_t mark)
{
	unsigned i;

	for (i = 0; i < m->n; i++)
		if (m->op[i].id == mark)
			return wire->place(m->op[i].to) == place;
	return mark == m->place[place].mark || mark == m->place[place].below;
}

/* The highest id such that it and all before it are known to be over. */
static uint64_t known(const struct marks *m, unsigned place)
{
	uint64_t id = m->place[place].below;
	unsigned i;

	for (i = 0; i < m->n; i++) {
		if (wire->place(m->op[i].to) != place)
			continue;
		if (!m->op[i].done)
			break;
		id = m->op[i].id;
	}
	return id;
}

static void forget(struct marks *m, unsigned place, uint64_t mark)
{
	unsigned i, n = 0;

	for (i = 0; i < m->n; i++)
		if (wire->place(m->op[i].to) != place || m->op[i].id > mark)
			m->op[n++] = m->op[i];
	m->n = n;
	m->place[place].mark = m->place[place].below = mark;
}

static uint64_t look(struct actor *a, unsigned place)
{
	struct marks *m = a->marks;
	uint64_t least = known(m, place), wait = dice(m) % 2 ? m->place[place].last : 0, mark = ~0ull;
	int rc = wire->mark(a, place, wait, &mark), want = mark >= wait ? 0 : -EAGAIN;
	unsigned i;

	if (rc != want)
		actor_fail(a, "RDS_BARRIER for %llu to the address of actor %u: the mark %llu with %d, expected %d",
			   (unsigned long long)wait, place, (unsigned long long)mark, rc, want);
	if (mark < least || mark < m->place[place].mark || mark > m->place[place].last || !is_id(m, place, mark))
		actor_fail(a,
			   "the mark of actor %u's address is %llu: it was %llu, all up to %llu are over, the last is "
			   "%llu",
			   place, (unsigned long long)mark, (unsigned long long)m->place[place].mark,
			   (unsigned long long)least, (unsigned long long)m->place[place].last);
	while (actor_told(a))
		;
	for (i = 0; i < m->n && m->op[i].id <= mark; i++)
		if (m->op[i].token && !m->op[i].done && wire->place(m->op[i].to) == place)
			actor_fail(a,
				   "the mark of actor %u's address is %llu, but nobody has told of token %llx, id %llu",
				   place, (unsigned long long)mark, (unsigned long long)m->op[i].token,
				   (unsigned long long)m->op[i].id);
	forget(m, place, mark);
	return mark;
}

void marks_look(struct actor *a)
{
	unsigned place;

	if (!a->marks)
		return;
	place = wire->place(dice(a->marks) % actors);
	if (dice(a->marks) % 8 == 0 || a->marks->n > ISSUED_MAX / 2)
		look(a, place);
}

/* Nothing is under way any more: all operations are over, well or not. */
void marks_last_look(struct actor *a)
{
	struct rest r = {0};
	unsigned to;

	for (to = 0; a->marks && to < actors; to++)
		while (wire->place(to) == to && look(a, to) != a->marks->place[to].last)
			if (!actor_receive(a))
				actors_rest(&r, &a, 1,
					    "the mark of actor %u's address stays at %llu, the last id is %llu", to,
					    (unsigned long long)a->marks->place[to].mark,
					    (unsigned long long)a->marks->place[to].last);
}
