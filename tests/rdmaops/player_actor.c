/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * player_actor.c - an actor: its life, what it says when something is wrong, the messages it makes,
 * one step.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "player.h"

/* With what repeats it, and all that it has under way. */
__attribute__((format(printf, 3, 0))) static void tell(const struct actor *a, const char *before, const char *fmt,
						       va_list ap)
{
	static const char *const modes[] = {"calm", "cancel", "kill", "drop"};
	double now = seconds();
	unsigned i;

	fflush(stdout);
	fprintf(stderr, "player: %sactor %u, life %u, after %llu operations of its own: ", before, a->id, a->life,
		(unsigned long long)board->ops[a->id]);
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n    replay: --seed %llu --mode %s --actors %u --quota %llu --cancels %u --stops %u%s\n",
		(unsigned long long)seed, modes[mode], actors, (unsigned long long)quota, cancels, stops,
		marks ? " --marks" : "");
	for (i = 0; i < FLIGHTS; i++)
		if (a->flight[i].token)
			fprintf(stderr,
				"    under way: token %llx, kind %d to actor %u, slot %u, generation %u, %.1f s old\n",
				(unsigned long long)a->flight[i].token, a->flight[i].what, a->flight[i].to,
				a->flight[i].slot, a->flight[i].gen, now - a->flight[i].since);
}

void actor_fail(const struct actor *a, const char *fmt, ...)
{
	bool later = atomic_fetch_add(&board->failed, 1) > 0;
	va_list ap;

	va_start(ap, fmt);
	tell(a, later ? "then " : "", fmt, ap);
	va_end(ap);
	if (later) {
		/* the first process to end ends all, and another may have more to say */
		poll(NULL, 0, 6000);
		_exit(1);
	}
	if (wire == &real_wire) {
		alarm(5); /* the library may be what hangs */
		trouble_connections(a->fd);
	}
	_exit(1);
}

/* An RDS in memory is never waited for: what counts is the time that it has had to go on. */
static double time_of_wire(void)
{
	struct timespec ts;

	clock_gettime(wire == &fake_wire ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static bool all(const _Atomic uint32_t *flag)
{
	unsigned i;

	for (i = 0; i < actors; i++)
		if (!atomic_load(&flag[i]))
			return false;
	return true;
}

void actors_rest(struct rest *r, struct actor *const *a, unsigned n, const char *fmt, ...)
{
	uint64_t progress = atomic_load(&board->progress);
	double now = time_of_wire();
	va_list ap;

	if (!r->looks || progress != r->progress)
		*r = (struct rest){.progress = progress, .since = now};
	if (now - r->since > patience && !r->told) {
		va_start(ap, fmt);
		tell(a[0], "", fmt, ap);
		va_end(ap);
		if (wire == &fake_wire)
			_exit(1);
		trouble_connections(a[0]->fd);
		r->told = true;
	}
	/* Nobody has anything to do any more: only what was sent before is missing. */
	if (now - r->since > deadline() && all(board->quiet))
		actor_fail(a[0], "nothing has come for %.0f s, and all are quiet", now - r->since);
	if (now - r->since > deadline())
		test_late("player: nothing has happened anywhere for %.0f s", now - r->since);
	wire->wait(a, n, test_pause_ms(&r->looks));
}

uint64_t actor_random(struct actor *a)
{
	return a->rng = mix(a->rng);
}

/* ---- a life begins ---- */

static void clear_connections(struct actor *a)
{
	memset(a->seq_out, 0, sizeof(a->seq_out));
	memset(a->zeros_out, 0, sizeof(a->zeros_out));
	memset(a->hello, 0, sizeof(a->hello));
	a->life = atomic_load(&board->life[a->id]);
	a->tokens = ((uint64_t)a->life & 0xff) << 56 | (uint64_t)(a->id + 1) << 48;
}

/* As a writer: what an earlier life left open may have happened or not. */
void actor_take_over(struct actor *a)
{
	unsigned o, i, e;

	for (o = 0; o < actors; o++)
		for (i = 0; i < SLOTS; i++) {
			struct slot *s = &board->slot[o][i];

			if (atomic_load(&s->state) != GRANTED || s->writer != a->id)
				continue;
			for (e = 0; e < LOG_MAX; e++) {
				uint32_t open = OPEN;

				atomic_compare_exchange_strong(&s->log[e].outcome, &open, UNSURE);
				open = OPEN;
				atomic_compare_exchange_strong(&s->digit[e], &open, UNSURE);
			}
			memset(&a->grant[o][i], 0, sizeof(a->grant[o][i]));
			atomic_store(&s->state, RELEASED);
		}
}

struct actor *actor_new(unsigned id)
{
	struct actor *a = calloc(1, sizeof(*a));
	unsigned i;

	check(a, "memory");
	a->id = id;
	a->req.payload = malloc(sizeof(struct header) + 65536);
	for (i = 0; i < SLOTS; i++)
		a->mem[i] = pages(SLOT_BYTES(i));
	a->olds = pages(OLDS * 8);
	clear_connections(a);
	a->rng = mix(seed * 1000003 + id * 7919 + a->life * 104729ull);
	marks_begin(a);
	wire->open(a);
	return a;
}

/* ---- messages ---- */

void request_begin(struct actor *a, struct request *r, unsigned to)
{
	r->to = to;
	r->cmsg = 0;
	r->head = (struct header){.magic = MAGIC, .from = a->id, .life = a->life};
	r->len = 0;
}

void request_body(struct actor *a, struct request *r, size_t len)
{
	r->head.body = (uint32_t)len;
	r->head.key = actor_random(a);
	r->len = sizeof(r->head) + len;
	pattern(r->payload + sizeof(r->head), len, r->head.key);
}

/* Numbers are given when it is sent: a message that had to wait may have been overtaken. */
int request_send(struct actor *a, struct request *r)
{
	if (r->len) {
		r->head.seq = a->seq_out[r->to];
		r->head.zeros = a->zeros_out[r->to];
		memcpy(r->payload, &r->head, sizeof(r->head));
	}
	return wire->send(a, r);
}

bool request_busy(int rc)
{
	return rc == -EAGAIN || rc == -ENOBUFS;
}

void request_sent(struct actor *a, const struct request *r)
{
	if (r->head.never)
		return;
	if (r->len)
		a->seq_out[r->to]++;
	else if (!(r->cmsg && (r->args.flags | r->atomic.flags) & F_SILENT))
		a->zeros_out[r->to]++;
	else
		return;
	if (mode == CALM)
		atomic_fetch_add(&board->sent[a->id][r->to], 1);
}

/* ---- disturbances ---- */

static void socket_again(struct actor *a)
{
	unsigned i;

	atomic_fetch_add(&board->life[a->id], 1);
	wire->close(a);
	actor_take_over(a);
	for (i = 0; i < FLIGHTS; i++)
		a->flight[i].token = 0; /* their buffers are left alone */
	a->flights = 0;
	a->pending = false;
	a->olds = pages(OLDS * 8);
	memset(a->grant, 0, sizeof(a->grant));
	clear_connections(a);
	marks_begin(a);
	wire->open(a);
}

static void disturb(struct actor *a)
{
	uint64_t r = actor_random(a);
	unsigned to = (r >> 16) % actors;
	int rc;

	if (r % cancels == 0) {
		a->cancels[to]++;
		rc = wire->cancel(a, to);
		if (rc)
			actor_fail(a, "RDS_CANCEL_SENT_TO: expected 0, came %d", rc);
	} else if (r % 1500 == 1) {
		socket_again(a);
	}
}

/* ---- one step ---- */

static bool own_slots(struct actor *a, bool finishing)
{
	bool any = false;
	unsigned i;

	for (i = 0; i < SLOTS; i++) {
		struct slot *s = &board->slot[a->id][i];

		if (atomic_load(&s->state) == RELEASED) {
			owner_take_back(a, i);
			any |= atomic_load(&s->state) == IDLE;
		} else if (atomic_load(&s->state) == IDLE && !finishing) {
			owner_grant(a, i);
			any |= atomic_load(&s->state) == GRANTED;
		}
	}
	return any;
}

/*
 * A notification has not come for long: nothing new is begun until it has.  If it never comes,
 * everything stands still soon, and that is what is wrong (play); if it was slow, all goes on.
 */
static bool one_is_late(const struct actor *a)
{
	double now = seconds();
	unsigned i;

	for (i = 0; i < FLIGHTS; i++)
		if (a->flight[i].token && now - a->flight[i].since > patience)
			return true;
	return false;
}

bool actor_step(struct actor *a)
{
	bool enough = atomic_load(&board->ops[a->id]) >= quota, finishing = enough && all(board->reached);
	bool any = actor_receive(a);

	if (enough)
		atomic_store(&board->reached[a->id], 1);
	any |= own_slots(a, finishing);
	marks_look(a);
	if (a->flights && actor_random(a) % 64 == 0)
		a->holds = one_is_late(a);
	if (a->pending)
		return writer_send(a) || any;
	if (a->flights && a->holds)
		return any;
	if (mode == CANCEL && !enough)
		disturb(a);
	if (actor_random(a) % 100 < 15 && !enough) {
		writer_plain(a);
		return writer_send(a) || any;
	}
	if (actor_random(a) % 100 < 2 && !enough && a->flights < FLIGHTS) {
		writer_bogus(a, actor_random(a) % actors, 0, 0);
		return writer_send(a) || any;
	}
	return writer_work(a, finishing) || any;
}

bool actor_ready(struct actor *a)
{
	unsigned o, i;

	if (!all(board->reached) || a->flights || a->pending)
		return false;
	for (o = 0; o < actors; o++)
		for (i = 0; i < SLOTS; i++)
			if (atomic_load(&board->slot[o][i].state) != IDLE &&
			    (o == a->id || board->slot[o][i].writer == a->id))
				return false;
	return true;
}

/* Everybody is ready: in calm weather every message that was sent must come, then nothing more. */
void actor_last_look(struct actor *a)
{
	static const char text[] = "actor %u sent %llu messages, %llu came";
	struct rest r = {0};
	unsigned from;

	for (from = 0; from < actors && mode == CALM; from++)
		while (board->received[from][a->id] != board->sent[from][a->id]) {
			unsigned long long sent = board->sent[from][a->id], came = board->received[from][a->id];

			if (came > sent)
				actor_fail(a, text, from, sent, came);
			if (!actor_receive(a))
				actors_rest(&r, &a, 1, text, from, sent, came);
		}
	actor_receive(a);
	marks_last_look(a);
}
