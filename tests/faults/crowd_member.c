/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * crowd_member.c - a process of the crowd: sends to all others, and judges what comes.
 */
#include <sys/resource.h>

#include "crowd.h"

#define MESSAGE 9000 /* a few are too long for whatever is made for small ones */
#define SHORT 152    /* these are not */
#define BURSTS 100   /* messages to one */
#define PAUSE_MS 64  /* of those that pause */
#define BURST 32     /* messages that are taken between two that are sent */

struct header {
	uint32_t from, to, number, last;
	uint16_t from_life, to_life, from_port, pad;
};

/* What one process knows of its exchange with each other one. */
struct party {
	int fd;
	unsigned me, next; /* whose turn it is */
	uint16_t life, port;
	bool over, pauses;
	uint64_t chance; /* for pauses */
	uint32_t sent[MOST], seen[MOST];
	uint16_t to_life[MOST], from_life[MOST];
	uint16_t last_life[MOST], last_port[MOST]; /* of all that came, also for an earlier life of this one */
	bool sent_last[MOST], seen_last[MOST];
};

/* An end of its own would wait for messages under way, and it may be killed meanwhile. */
#define wrong(...)                                                                                                     \
	do {                                                                                                           \
		fprintf(stderr, __VA_ARGS__);                                                                          \
		fputc('\n', stderr);                                                                                   \
		atomic_store(&shared->wrong, true);                                                                    \
		raise(SIGTERM);                                                                                        \
		abort();                                                                                               \
	} while (0)

static bool talks(const struct party *p, unsigned to)
{
	return to != p->me && (!one_server || !to || !p->me) && atomic_load(&all[to].at);
}

/* Of both directions: they have one connection. */
static uint64_t pair(unsigned a, unsigned b)
{
	return mix(seed ^ 0x70616972 ^ ((uint64_t)(a < b ? a : b) << 32 | (a < b ? b : a) << 1));
}

static uint64_t header_key(const struct header *h)
{
	return message_key(seed ^ (uint64_t)h->from_life << 32 ^ (uint64_t)h->to_life << 16, h->from, h->to, h->number);
}

static size_t build(unsigned char *buf, const struct header *h)
{
	uint64_t key = header_key(h);
	size_t len = sizeof(*h);

	if (only_short || pair(h->from, h->to) & 1)
		len += key % (SHORT - sizeof(*h) + 1);
	else
		len += key % 16 ? key % 256 : mix(key) % (MESSAGE - sizeof(*h));
	message_fill(buf, key, len);
	memcpy(buf, h, sizeof(*h));
	return len;
}

/* 0, or how it failed: EAGAIN, ENOBUFS */
static int send_next(struct party *p, unsigned to, uint32_t at)
{
	struct sockaddr_in name = name_of(home(), PORT(at));
	struct header h = {.from = p->me, .to = to, .number = p->sent[to], .from_life = p->life, .to_life = LIFE(at)};
	unsigned char buf[MESSAGE];
	size_t len;

	h.from_port = p->port;
	h.last = p->over && h.number + 1 >= messages;
	len = build(buf, &h);
	if (sendto(p->fd, buf, len, MSG_DONTWAIT, (struct sockaddr *)&name, sizeof(name)) == (ssize_t)len) {
		p->sent[to]++;
		p->sent_last[to] = h.last;
		return 0;
	}
	if (errno != EAGAIN && errno != ENOBUFS)
		wrong("%u to %u, number %u: %s", p->me, to, h.number, strerror(errno));
	return errno;
}

static unsigned how_many(const struct party *p, unsigned to)
{
	uint64_t kind = pair(p->me, to);

	return kind & 2 && !(mix(kind ^ p->sent[to]) % 256) ? BURSTS : 1;
}

/* ESRCH: nothing is to be sent to it. */
static int send_some(struct party *p, unsigned to)
{
	uint32_t at = atomic_load(&all[to].at);
	int err = ESRCH;
	unsigned n;

	if (at && LIFE(at) != p->to_life[to]) {
		p->to_life[to] = LIFE(at);
		p->sent[to] = 0;
		p->sent_last[to] = false;
	}
	if (!at || !talks(p, to) || p->sent_last[to])
		return err;
	for (n = how_many(p, to); n && !p->sent_last[to]; n--) {
		err = send_next(p, to, at);
		if (err)
			break;
	}
	return err;
}

/*
 * To each in turn. True: there may be room for more as soon as the socket says so. False: there is
 * nothing to send, or only for those that are congested, which input tells.
 */
static bool send_round(struct party *p)
{
	bool any = false;
	unsigned i, to;
	int err;

	for (i = 0; i < members; i++) {
		to = p->next;
		err = send_some(p, to);
		if (err == EAGAIN)
			return true;
		any |= !err;
		p->next = (to + 1) % members;
	}
	return any;
}

/* It was sent to a process that had this port before. */
static void for_the_dead(const struct party *p, const struct header *h)
{
	uint32_t at = h->to < members ? atomic_load(&all[h->to].at) : 0;

	if (!replaced || h->to >= members || h->from == h->to || (at && LIFE(at) <= h->to_life))
		wrong("%u, life %u: from %u to %u, life %u", p->me, p->life, h->from, h->to, h->to_life);
}

static void verify(const struct party *p, const unsigned char *buf, size_t len, unsigned port)
{
	unsigned char want[MESSAGE];
	struct header h;

	if (len < sizeof(h))
		wrong("%u: a message of %zd bytes", p->me, len);
	memcpy(&h, buf, sizeof(h));
	if (h.from >= members || h.from == p->me || port != h.from_port)
		wrong("%u: from %u to %u, port %u", p->me, h.from, h.to, port);
	if (build(want, &h) != len || memcmp(buf, want, len))
		wrong("%u: number %u of %u is damaged (%zd bytes)", p->me, h.number, h.from, len);
}

/* One that was killed, and whose port the next one has, has nothing more to say when that one has begun. */
static void lives_are_in_order(struct party *p, const struct header *h)
{
	if (h->from_life < p->last_life[h->from]) {
		if (h->from_port == p->last_port[h->from])
			wrong("%u, life %u: number %u of %u, life %u, came after life %u of the same port", p->me,
			      p->life, h->number, h->from, h->from_life, p->last_life[h->from]);
		return;
	}
	p->last_life[h->from] = h->from_life;
	p->last_port[h->from] = h->from_port;
}

/* What comes late from one that was killed, and had another port, is not judged. */
static void is_next(struct party *p, const struct header *h)
{
	unsigned from = h->from;

	if (h->from_life < p->from_life[from])
		return;
	if (h->from_life != p->from_life[from]) {
		p->from_life[from] = h->from_life;
		p->seen[from] = 0;
		p->seen_last[from] = false;
	}
	if (h->number != p->seen[from] || p->seen_last[from])
		wrong("%u, life %u: number %u of %u, life %u, came, %u was next%s", p->me, p->life, h->number, from,
		      h->from_life, p->seen[from], p->seen_last[from] ? ", or none" : "");
	p->seen[from]++;
	p->seen_last[from] = h->last;
}

static bool take(struct party *p)
{
	unsigned char buf[MESSAGE];
	struct sockaddr_in from;
	socklen_t fromlen = sizeof(from);
	ssize_t len = recvfrom(p->fd, buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&from, &fromlen);
	struct header h;

	if (len < 0) {
		if (errno != EAGAIN)
			wrong("%u: recvfrom: %s", p->me, strerror(errno));
		return false;
	}
	verify(p, buf, (size_t)len, ntohs(from.sin_port));
	memcpy(&h, buf, sizeof(h));
	lives_are_in_order(p, &h);
	if (h.to != p->me || h.to_life != p->life)
		for_the_dead(p, &h);
	else
		is_next(p, &h);
	return true;
}

static bool has_all(const struct party *p, unsigned with)
{
	uint16_t now = LIFE(atomic_load(&all[with].at));

	return p->to_life[with] == now && p->sent_last[with] && p->from_life[with] == now && p->seen_last[with];
}

static bool complete(const struct party *p)
{
	unsigned i;

	for (i = 0; i < members; i++)
		if (talks(p, i) && !has_all(p, i))
			return false;
	return p->over;
}

/* What it waits for, in case that it hangs: the watch asks. */
static const struct party *mine;

static void say_what_is_missing(int sig)
{
	unsigned i;

	for (i = 0; i < members; i++)
		if (talks(mine, i) && !has_all(mine, i))
			dprintf(2, "%u, life %u, and %u, life %u: %u sent%s to life %u, %u seen%s of life %u\n",
				mine->me, mine->life, i, LIFE(atomic_load(&all[i].at)), mine->sent[i],
				mine->sent_last[i] ? " (all)" : "", mine->to_life[i], mine->seen[i],
				mine->seen_last[i] ? " (all)" : "", mine->from_life[i]);
	test_stack(sig);
}

static void exchange(struct party *p)
{
	struct pollfd event[2] = {{.fd = p->fd}, {.fd = over[0]}};
	bool room = true, pause;
	unsigned i;

	while (!complete(p)) {
		pause = p->pauses && room && !p->over;
		event[0].events = (short)(POLLIN | (room && !pause ? POLLOUT : 0));
		p->chance = mix(p->chance);
		if (poll(event, 2, pause ? 1 + (int)(p->chance % PAUSE_MS) : -1) < 0)
			wrong("poll: %s", strerror(errno));
		if (event[1].revents) {
			p->over = true;
			event[1].fd = -1;
		}
		for (i = 0; i < BURST && take(p); i++)
			;
		room = send_round(p);
	}
}

static void party_open(struct party *p, unsigned me, unsigned life, unsigned port)
{
	struct sockaddr_in name;
	socklen_t len = sizeof(name);

	mine = p;
	signal(TEST_STACKS_SIGNAL, say_what_is_missing);
	p->me = p->next = me;
	p->life = (uint16_t)life;
	p->chance = mix(seed ^ p->life ^ me << 16);
	p->pauses = troubles && p->chance & 1;
	p->fd = rds_bound(home(), port);
	check(getsockname(p->fd, (struct sockaddr *)&name, &len) == 0);
	p->port = ntohs(name.sin_port);
	atomic_store(&all[me].at, AT(p->life, p->port));
}

void member(unsigned me, unsigned life, unsigned port)
{
	const struct rlimit few = {descriptors, descriptors};
	struct party *p = calloc(1, sizeof(*p));
	unsigned i;
	char c;

	shut(&begin[1]);
	shut(&over[1]);
	shut(&leave[1]);
	check(p && (!descriptors || setrlimit(RLIMIT_NOFILE, &few) == 0));
	party_open(p, me, life, port);
	atomic_fetch_add(&shared->bound, 1);
	check(read(begin[0], &c, 1) == 0);
	exchange(p);
	for (i = 0; i < members; i++)
		atomic_fetch_add(&shared->came, p->seen[i]);
	all[me].complete = seconds();
	atomic_fetch_add(&shared->complete, 1);
	check(read(leave[0], &c, 1) == 0);
	close(p->fd);
	exit(0);
}
