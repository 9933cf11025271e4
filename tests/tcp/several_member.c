/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * several_member.c - a process of one of the two hosts: it sends to all places of the other host in
 * turn, and judges what comes.
 *
 * A message of 8 bytes or more says its number, and after how many deaths of owners it was sent.
 */
#include <pthread.h>
#include <sys/ioctl.h>

#include "several.h"

#define LONGEST (1 << 20)
#define CONNECTIONS 10001
#define FAR_ADDRESS 20 /* in a row: behind two numbers and the other address */
#define ROW_TYPE 41
#define SET_TYPE 0x89e0 /* SIOCRDSSETTOS */
#define MORE 4	       /* messages, behind the trouble */
#define AHEAD 8	       /* messages, of the receiver */
#define ANYWAY 0.05    /* s, after the last one */

struct stamp {
	uint32_t n, epoch;
};
#define STAMPED sizeof(struct stamp)

static unsigned me, my_life;
static int fd;
static struct place *mine;
static unsigned to_life[PLACES], sent[PLACES], quota[PLACES]; /* by us, to that life */
static struct stamp last_to[PLACES];
static double sent_at[PLACES];

static unsigned far_first(void)
{
	return HOST(me) ? 0 : PER_HOST;
}

static uint64_t key_of(unsigned from, unsigned from_life, unsigned to, unsigned life, unsigned n)
{
	return message_key(all->seed, from_life << 8 | from, life << 8 | to, n);
}

static size_t len_of(uint64_t key)
{
	uint64_t r = mix(key ^ 2);
	size_t len;

	if (r % 128 == 0)
		return LONGEST;
	len = message_len(key);
	if (len > 65536)
		len = 65536;
	return len;
}

static void fill(unsigned char *buf, uint64_t key, size_t len, const struct stamp *stamp)
{
	message_fill(buf, key, len);
	if (len >= STAMPED)
		memcpy(buf, stamp, sizeof(*stamp));
}

/* ---- sends ---- */

static const struct stamp *next_stamp(unsigned to)
{
	struct stamp *s = &last_to[to];

	s->n = sent[to];
	s->epoch = atomic_load(&all->epoch);
	return s;
}

static bool blocks(void)
{
	return all->blocking ? me % 2 : me == all->per_host - 1;
}

/* False: not now. */
static bool send_one(unsigned to)
{
	static unsigned char buf[LONGEST];
	struct sockaddr_in at = name_of(all->addr[HOST(to)], PORT_OF(to, to_life[to]));
	uint64_t key = key_of(me, my_life, to, to_life[to], sent[to]);
	size_t len = len_of(key);
	ssize_t n;

	fill(buf, key, len, next_stamp(to));
	if (blocks())
		atomic_store(&mine->blocked_on, to + 1);
	n = sendto(fd, buf, len, blocks() ? 0 : MSG_DONTWAIT, (struct sockaddr *)&at, sizeof(at));
	atomic_store(&mine->blocked_on, 0);
	if (n < 0) {
		if (blocks() || (errno != EAGAIN && errno != ENOBUFS))
			fail("place %u, sendto place %u, %zu bytes: %s", me, to, len, strerror(errno));
		if (errno == ENOBUFS)
			atomic_fetch_add(&mine->refused[to], 1);
		return false;
	}
	check((size_t)n == len);
	sent[to]++;
	sent_at[to] = seconds();
	atomic_fetch_add(&mine->sent[to], 1);
	return true;
}

/*
 * Where there is no end the senders keep pace with the receivers, so that all get on.  Messages may be
 * lost, so this is no hard limit.
 */
static bool may_send(unsigned to)
{
	uint64_t seen = atomic_load(&all->place[to].seen[me]);
	unsigned behind = sent[to] - (seen >> 32 == my_life ? (unsigned)seen : 0);

	return !all->endless || !all->paced || behind < AHEAD || atomic_load(&all->stopped) == to + 1 ||
	       seconds() - sent_at[to] > ANYWAY;
}

static void set_quota(unsigned to, enum phase phase)
{
	if (phase == CLOSE)
		quota[to] = sent[to] + 1;
	else if (phase == OVER && all->endless)
		quota[to] = sent[to] + MORE;
	else
		quota[to] = all->endless ? ~0u : all->messages;
}

static void publish(enum phase phase)
{
	unsigned i;

	for (i = 0; i < PLACES; i++)
		mine->lives[my_life].total[i] = (struct total){.life = to_life[i], .n = sent[i]};
	atomic_store(&mine->sent_phase, phase);
}

static bool has_to_leave(void)
{
	return atomic_load(&mine->leaves) == my_life;
}

/* A turn; *done: all is sent. */
static bool send_to_each(enum phase phase, bool *done)
{
	unsigned i, to, life;
	bool any = false;

	*done = true;
	for (i = 0; i < all->per_host && !has_to_leave(); i++) {
		to = far_first() + (me + i) % all->per_host;
		life = atomic_load(&all->place[to].life);
		*done &= life != 0;
		if (!life)
			continue;
		if (life != to_life[to]) {
			to_life[to] = life;
			sent[to] = 0;
			set_quota(to, phase);
		}
		any |= sent[to] < quota[to] && may_send(to) && send_one(to);
		*done &= sent[to] == quota[to];
	}
	return any;
}

static void send_all(enum phase phase)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	unsigned i, looks = 0;
	bool any, done;

	for (i = 0; i < PLACES; i++)
		set_quota(i, phase);
	while (!has_to_leave() && (phase != GO || atomic_load(&all->phase) == GO)) {
		any = send_to_each(phase, &done);
		if (done)
			return;
		if (any) {
			looks = 0;
			continue;
		}
		/* congested: poll() says writable all the same */
		if (poll(&p, 1, test_pause_ms(&looks)) > 0)
			usleep(1000);
	}
}

static void *sender(void *arg)
{
	enum phase phase;

	for (phase = GO; phase < LEAVE && !has_to_leave(); phase++) {
		test_until(atomic_load(&all->phase) >= phase || has_to_leave());
		send_all(phase);
		publish(phase);
	}
	return arg;
}

/* ---- receives ---- */

static void judge(unsigned from, unsigned life, const unsigned char *got, size_t len)
{
	static unsigned char want[LONGEST];
	_Atomic unsigned *own = &mine->next[from][life];
	const unsigned next = atomic_load(own);
	struct stamp stamp = {.n = next};
	uint64_t key;

	if (len >= STAMPED)
		memcpy(&stamp, got, sizeof(stamp));
	if (stamp.n != next)
		fail("to %u of place %u, life %u: number %u came, %u was next: %s", me, from, life, stamp.n, next,
		     stamp.n >= next ? "lost or reordered" : "doubled or reordered");
	key = key_of(from, life, me, my_life, stamp.n);
	if (len != len_of(key))
		fail("to %u of place %u, life %u: number %u has %zu bytes instead of %zu", me, from, life, stamp.n, len,
		     len_of(key));
	fill(want, key, len, &stamp);
	if (memcmp(got, want, len) != 0)
		fail("to %u of place %u, life %u: number %u is damaged (%zu bytes)", me, from, life, stamp.n, len);
	atomic_store(own, next + 1);
	atomic_fetch_add(&mine->got[from], 1);
	atomic_store(&mine->seen[from], (uint64_t)life << 32 | (next + 1));
	if (len >= STAMPED)
		atomic_store(&mine->heard[from], stamp.epoch + 1);
}

static bool receive_one(void)
{
	static unsigned char got[LONGEST + 1];
	struct sockaddr_in from;
	socklen_t namelen = sizeof(from);
	ssize_t n = recvfrom(fd, got, sizeof(got), MSG_DONTWAIT, (struct sockaddr *)&from, &namelen);
	unsigned i, place, life;

	if (n < 0) {
		check(errno == EAGAIN);
		return false;
	}
	i = (unsigned)ntohs(from.sin_port) - PORT;
	place = i % PLACES;
	life = i / PLACES;
	if (!life || life >= LIVES || HOST(place) == HOST(me) || from.sin_addr.s_addr != all->addr[HOST(place)])
		fail("a message from nobody: port %u", ntohs(from.sin_port));
	judge(place, life, got, (size_t)n);
	return true;
}

/* Is all here that the other host has sent in this phase? */
static bool has_all(enum phase phase)
{
	const struct total *t;
	unsigned i, place, life;

	for (i = 0; i < all->per_host; i++) {
		place = far_first() + i;
		if (atomic_load(&all->place[place].sent_phase) < phase)
			return false;
		for (life = 1; life < LIVES; life++) {
			t = to_come(place, life, me);
			if (t && atomic_load(&mine->next[place][life]) != t->n)
				return false;
		}
	}
	return true;
}

/* How many connections to the other host rds-info shows here. */
static unsigned rows(void)
{
	static unsigned char buf[64 * 1024];
	socklen_t len = sizeof(buf);
	unsigned n = 0;
	int i, row = getsockopt(fd, SOL_RDS, CONNECTIONS, buf, &len);

	check(row > FAR_ADDRESS && len <= sizeof(buf));
	for (i = 0; i < (int)len; i += row)
		if (memcmp(buf + i + FAR_ADDRESS, &all->addr[!HOST(me)], 4) == 0) {
			check(row <= ROW_TYPE || !buf[i + ROW_TYPE]);
			n++;
		}
	return n;
}

static void receive_all(void)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	unsigned looks = 0, complete = 0, n;
	enum phase phase;

	while ((phase = atomic_load(&all->phase)) < LEAVE && !has_to_leave()) {
		if (poll(&p, 1, test_pause_ms(&looks)) > 0)
			while (receive_one())
				looks = 0;
		if (phase < GO || complete == phase || !has_all(phase))
			continue;
		/* a process that has no processor for 200 ms is left out: what it has is to be seen in the end */
		n = rows();
		if (!n)
			continue;
		complete = phase;
		looks = 0;
		atomic_store(&mine->rows, n);
		atomic_store(&mine->complete_phase, phase);
	}
}

void member(unsigned place, unsigned life)
{
	unsigned char type = (unsigned char)(place % 8);
	int size = 2 * LONGEST;
	pthread_t t;

	me = place;
	my_life = life;
	mine = &all->place[place];
	fd = rds_bound(all->addr[HOST(me)], PORT_OF(me, life));
	check(!setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)));
	check(!all->typed || !ioctl(fd, SET_TYPE, &type));
	atomic_store(&mine->lives[life].fate, LIVES_NOW);
	atomic_store(&mine->life, life);
	check(!pthread_create(&t, NULL, sender, NULL));
	receive_all();
	/* whoever leaves goes on to receive while others wait for that: a blocking send has to end */
	while (pthread_tryjoin_np(t, NULL))
		if (!receive_one())
			usleep(1000);
	if (life % 2)
		close(fd); /* and without */
	exit(0);
}
