/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * barrier.c [-n] [-L LEVEL] A0|A1|A2|B1|B2|C|D - a program of 2007 or 2008, as it would be written
 * for each revision of the interface.
 *
 * Two processes as in rds-stress: one asks with a region, the other answers by RDMA with a message
 * behind it.  RDS_BARRIER (A, B) or a notification (B2, C, D) tells the second that its buffers are
 * free.  The program does only what programs of that age did, with the structures of that age,
 * since these are all by which the library can tell the age.  -n: the program also looks the
 * numbers up in /proc first, as all programs did before 2009.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "revision.h"

#define PORT 4300

static const char *const ages[] = {"A0", "A1", "A2", "B1", "B2", "C", "D"};

enum kind {
	BLOCK,
	ARM,
	AHEAD,
	UNARMED,
	LATER,
	READ,
	ONCE,
	MAPPED,
	FREED,
	BAD_KEY,
	REFUSED,
	NOTICE,
	PLAIN_TOKEN,
	KINDS
};
static const char *const kinds[] = {"blocking barrier",
				    "armed barrier",
				    "armed before the operation",
				    "poll without arming",
				    "mark with the next message",
				    "read",
				    "use once",
				    "RDMA_MAP",
				    "freed key",
				    "bogus key",
				    "refused",
				    "notification",
				    "token that is an address"};

struct request {
	uint32_t round, kind;
	uint64_t cookie, phys;
};

static unsigned char *mem;
static uint64_t *ids; /* where ids are stored */

static bool does(enum kind k)
{
	switch (k) {
	case BLOCK:
	case ARM:
	case AHEAD:
	case UNARMED:
	case LATER:
		return has_barrier();
	case ONCE:
		return age != A0;
	case MAPPED:
		return age >= A2;
	case NOTICE:
		return has_notice();
	case PLAIN_TOKEN:
		return age >= C;
	default:
		return true;
	}
}

static void probe(void)
{
	struct free_mr none = {0, 0};
	uint64_t mark = GARBAGE;

	if (!has_barrier()) {
		expect(set(OPT_FREE_MR, &none, sizeof(none)), 0, "FREE_MR all zero: the probe");
		return;
	}
	expect(barrier(0, false, &mark), 0, "BARRIER with wait id 0 before there is any connection: the probe");
	check(mark == 0, "the mark before any RDMA: expected 0, came %llx", (unsigned long long)mark);
}

static void barrier_errors(void)
{
	struct barrier32 b = {peer.sin_addr.s_addr, 0, 0, 0, 0};
	int unbound = rds_socket(SOCK_SEQPACKET), was = fd;
	socklen_t len = sizeof(b);
	uint64_t mark = GARBAGE;

	expect(set(OPT_BARRIER, &b, 20), -EINVAL, "BARRIER of 20 bytes");
	expect(set(OPT_BARRIER, &b, 40), -EINVAL, "BARRIER of 40 bytes");
	expect(barrier(0, false, NULL), 0, "BARRIER without a place for the mark");
	expect(barrier(0, false, (void *)16), -EFAULT, "BARRIER with a bad place for the mark");
	expect(barrier_to(0, 0, false, &mark), -EINVAL, "BARRIER to nobody");
	expect(getsockopt(fd, level, OPT_BARRIER, &b, &len) ? -errno : 0, -ENOPROTOOPT, "getsockopt of BARRIER");
	expect(barrier(1000, true, &mark), -EAGAIN, "BARRIER for an id that was not given out, DONTWAIT");
	check(mark == 0, "the mark is stored with EAGAIN too: expected 0, came %llx", (unsigned long long)mark);
	expect(barrier(1000, false, &mark), -EAGAIN, "BARRIER for an id that was not given out, nothing under way");
	expect(barrier(0, false, &mark), 0, "BARRIER");
	fd = unbound;
	expect(barrier(0, false, &mark), -ENOTCONN, "BARRIER on an unbound socket");
	fd = was;
	close(unbound);
}

static void must_be(const struct came *m, const char *text, enum kind k)
{
	if (!m->letter || m->len != strlen(text) || memcmp(m->body, text, m->len))
		fail("%s: expected the message \"%s\", came %s of %zu bytes \"%.*s\"", kinds[k], text,
		     m->letter ? "one" : "a notification", m->len, (int)m->len, (const char *)m->body);
}

static uint64_t key_of(unsigned round)
{
	return round * 1000 + age;
}

static void memory_is(uint64_t key, enum kind k, const char *what)
{
	unsigned char want[LEN];

	pattern(want, LEN, key);
	expect_bytes(mem + 100, want, LEN, "%s: %s", kinds[k], what);
}

/* ---- the side that asks ---- */

static void ask(unsigned round, enum kind k)
{
	/*
	 * As in the programs of that age, the address of phys does not end in 00 or 01: A1 has the
	 * byte use_once there.
	 */
	_Alignas(32) struct request r = {.round = round, .kind = k, .phys = GARBAGE};
	uint64_t words[4], key = key_of(round);
	struct came m;

	pattern(mem + 100, LEN, key ^ 1);
	region_words(words, mem + 100, &r.cookie, &r.phys, k == ONCE);
	if (k == MAPPED) {
		uint64_t cookie = 0;

		region_words(words, mem + 100, &cookie, NULL, false);
		expect(send_with(&r, sizeof(r), CMSG_MAP, words, 32), sizeof(r), "a request with RDMA_MAP");
		r.cookie = cookie;
	} else {
		expect(set(OPT_GET_MR, words, 32), 0, "%s: GET_MR", kinds[k]);
		check((uint32_t)r.cookie, "%s: GET_MR gave the key 0", kinds[k]);
		check(age != A0 || r.phys == 0, "GET_MR of A0: expected 0 at phy_addr, came %llx",
		      (unsigned long long)r.phys);
		check(age == A0 || r.phys == GARBAGE, "GET_MR wrote where only A0 has a pointer");
		if (k == FREED)
			expect(free_region(r.cookie, true), 0, "FREE_MR");
		expect(send_with(&r, sizeof(r), 0, NULL, 0), sizeof(r), "a request");
	}
	m = next("the answer");
	if (k == BAD_KEY || k == FREED || k == REFUSED) {
		must_be(&m, "sorry", k);
		memory_is(key ^ 1, k, "memory that must not change");
	} else {
		must_be(&m, "answer", k);
		memory_is(k == READ ? key ^ 1 : key, k, "the memory when the answer is there");
	}
	if (k != FREED)
		expect(free_region(r.cookie, round % 2), k == ONCE ? -EINVAL : 0, "%s: FREE_MR afterwards", kinds[k]);
}

/* ---- the side that answers ---- */

static uint64_t last_id;

/*
 * Sends the operation.  Returns its id, or -errno.  Checks what the library has stored where a
 * program of that age has an id.
 */
static int answer_op(const struct request *r, uint64_t cookie, enum kind k, bool notify, uint64_t *id)
{
	static struct vec v;
	uint64_t flags = (k == READ ? 0 : F_WRITE) | (notify ? F_NOTIFY : 0), remote = age == A0 ? r->phys : 0;
	unsigned char *local = mem + 200;
	struct args_a a;
	struct args_a2 a2;
	struct args_b2 b2;
	struct args_c c;
	struct rdma_args d;

	v = (struct vec){(uintptr_t)(k == REFUSED ? NULL : local), LEN};
	if (k == READ)
		memset(local, 0, LEN);
	else
		pattern(local, LEN, key_of(r->round));
	a = (struct args_a){{remote, LEN}, cookie, (uintptr_t)&v, 1, flags, (uintptr_t)id};
	a2 = (struct args_a2){cookie, {0, LEN}, (uintptr_t)&v, 1, flags, (uintptr_t)id};
	b2 = (struct args_b2){a2, r->round, 0x12345678};
	c = (struct args_c){cookie, {0, LEN}, (uintptr_t)&v, 1, flags, r->round, 0};
	d = (struct rdma_args){cookie, {0, LEN}, (uintptr_t)&v, 1, flags, (uint64_t)r->round << 32 | r->round};
	/* The value is an address of ours, and a token all the same: nothing is written there. */
	if (k == PLAIN_TOKEN) {
		d.token = (uintptr_t)id;
		memcpy(&c.user_token, &d.token, 8);
	}
	if (age <= A1)
		return send_with("answer", 6, CMSG_ARGS, &a, sizeof(a));
	if (age <= B1)
		return send_with("answer", 6, CMSG_ARGS, &a2, sizeof(a2));
	if (age == B2)
		return send_with("answer", 6, CMSG_ARGS, &b2, sizeof(b2));
	if (age == C)
		return send_with("answer", 6, CMSG_ARGS, &c, sizeof(c));
	return send_with("answer", 6, CMSG_ARGS, &d, sizeof(d));
}

static int readable(double seconds_at_most)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, (int)(seconds_at_most * 1000));
}

static void wait_for(enum kind k, uint64_t id)
{
	double since = seconds();
	uint64_t mark = GARBAGE;
	int rc;

	if (k == UNARMED) {
		/* the next request may come too: POLLIN all the same */
		expect(readable(deadline()), 1, "poll after an operation, without any set-up");
	}
	for (;;) {
		rc = k == UNARMED ? barrier(0, false, &mark) : barrier(id, k == ARM, &mark);
		check(rc == 0 || (rc == -EAGAIN && k != UNARMED), "%s: BARRIER for %llu: came %d", kinds[k],
		      (unsigned long long)id, rc);
		check(mark != GARBAGE, "%s: BARRIER (result %d) stored no mark", kinds[k], rc);
		check(mark <= last_id, "%s: the mark %llu is higher than any id, %llu", kinds[k],
		      (unsigned long long)mark, (unsigned long long)last_id);
		if (mark >= id)
			break;
		check(rc == -EAGAIN || k == UNARMED, "%s: BARRIER for %llu succeeded with the mark %llu", kinds[k],
		      (unsigned long long)id, (unsigned long long)mark);
		waits(&since, "%s: the mark is %llu, expected %llu", kinds[k], (unsigned long long)mark,
		      (unsigned long long)id);
		if (k == ARM || k == UNARMED)
			expect(readable(deadline()), 1, "poll for a barrier");
	}
	expect(barrier(id, true, &mark), 0, "BARRIER for an id that is done");
}

/*
 * An id that no operation has yet, on a socket that does not block: EAGAIN, and the socket is armed
 * with that id.
 */
static void arm_ahead(void)
{
	uint64_t mark = GARBAGE;

	check(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "fcntl: %m");
	/*
	 * The peer's congestion map has come.  The first poll after that reports it, once, as the
	 * kernel's does.
	 */
	readable(0);
	expect(barrier(last_id + 1, false, &mark), -EAGAIN, "BARRIER for an id to come, with O_NONBLOCK");
	check(mark == last_id, "the mark with EAGAIN: expected %llu, came %llu", (unsigned long long)last_id,
	      (unsigned long long)mark);
	expect(readable(0), 0, "poll, armed for an id to come");
}

/* ... and shows it from then on, until the next barrier. */
static void armed_ahead(void)
{
	uint64_t mark = GARBAGE;

	expect(readable(deadline()), 1, "poll after the operation");
	expect(readable(0), 1, "poll again without a barrier");
	expect(barrier(last_id, false, &mark), 0, "BARRIER with O_NONBLOCK for the id that poll has shown");
	check(mark == last_id, "the mark then: expected %llu, came %llu", (unsigned long long)last_id,
	      (unsigned long long)mark);
	expect(readable(0), 0, "poll after that barrier");
	check(fcntl(fd, F_SETFL, 0) == 0, "fcntl: %m");
}

static void wait_for_notice(const struct request *r, int status, uint64_t *id)
{
	struct came m = next("the notification");
	uint64_t token = age == D ? (uint64_t)r->round << 32 | r->round : r->round;

	if (r->kind == PLAIN_TOKEN)
		token = age == D ? (uintptr_t)id : (uint32_t)(uintptr_t)id;
	check(m.note, "%s: expected a notification, came a message of %zu bytes", kinds[r->kind], m.len);
	check(m.token == token, "%s: expected token %llx, came %llx", kinds[r->kind], (unsigned long long)token,
	      (unsigned long long)m.token);
	if (age != C) /* a program of those five days reads 0 */
		expect(m.status, status, "%s: its status", kinds[r->kind]);
}

static void answer(const struct request *r, uint64_t cookie, int pipe_fd)
{
	enum kind k = (enum kind)r->kind;
	bool bad = k == BAD_KEY || k == FREED, notify = age >= C || k == NOTICE;
	uint64_t *id = &ids[r->round % 8];
	int rc;

	*id = k == PLAIN_TOKEN ? GARBAGE : 0;
	if (k == AHEAD)
		arm_ahead();
	rc = answer_op(r, k == BAD_KEY ? 0x5bad5badull : cookie, k, notify, id);
	if (k == REFUSED) {
		expect(rc, -EFAULT, "an operation with local memory that is none");
		check(*id == 0, "an id, %llu, was stored by a sendmsg that failed", (unsigned long long)*id);
	} else {
		expect(rc, 6, "%s: sendmsg", kinds[k]);
		if (has_barrier()) {
			check(*id > last_id && *id != 0,
			      "%s: expected an id above %llu when sendmsg returns, came %llu", kinds[k],
			      (unsigned long long)last_id, (unsigned long long)*id);
			check(last_id || *id == 1, "the first id: expected 1, came %llu", (unsigned long long)*id);
			last_id = *id;
		}
		if (notify)
			wait_for_notice(r, bad ? ST_REMOTE_ERROR : ST_SUCCESS, id);
		if (k == AHEAD) {
			armed_ahead();
			check(write(pipe_fd, "", 1) == 1, "the other side has ended");
		}
		if (has_barrier() && k != LATER)
			wait_for(k, last_id);
		if (k == PLAIN_TOKEN)
			check(*id == GARBAGE, "a token was taken for an address and written to");
	}
	if (k == READ) {
		unsigned char want[LEN];

		pattern(want, LEN, key_of(r->round) ^ 1);
		expect_bytes(mem + 200, want, LEN, "what was read, when the operation is done");
	}
	if (bad || k == REFUSED)
		expect(send_with("sorry", 5, 0, NULL, 0), 5, "a plain message");
}

/*
 * rds-stress of 2008 waits for this for ever: a message that answers ours, and a mark that covers
 * ours.
 */
static void mark_is_there(void)
{
	uint64_t mark = GARBAGE;

	expect(barrier(0, false, &mark), 0, "BARRIER with wait id 0");
	check(mark == last_id, "the mark when the peer's next message is there: expected %llu, came %llu",
	      (unsigned long long)last_id, (unsigned long long)mark);
}

/* ---- both ---- */

static unsigned rounds(enum kind k)
{
	return !does(k) ? 0 : k == LATER ? 100 : 5;
}

/*
 * The asking side begins when the answering one has its port: a message to a port that no socket
 * has is dropped.
 */
static void side(bool asks, int pipe_fd)
{
	char c = 0;

	unsigned k, n, round = 0;
	struct request r;
	struct came m;

	peer = name_of(address(!asks), PORT + !asks);
	fd = rds_bound(address(asks), PORT + asks);
	mem = pages(4 * PAGE);
	ids = (uint64_t *)(void *)(mem + 3 * PAGE);
	probe();
	if (has_barrier() && !asks)
		barrier_errors();
	check((asks ? read(pipe_fd, &c, 1) : write(pipe_fd, &c, 1)) == 1, "the other side has ended");
	for (k = 0; k < KINDS; k++)
		for (n = 0; n < rounds((enum kind)k); n++) {
			round++;
			if (asks) {
				ask(round, (enum kind)k);
				/* a message of ours would be something to read, too */
				check(k != AHEAD || read(pipe_fd, &c, 1) == 1, "the other side has ended");
				continue;
			}
			m = next("a request");
			check(m.letter && m.len == sizeof(r), "expected a request, came %zu bytes", m.len);
			memcpy(&r, m.body, sizeof(r));
			check(r.round == round && r.kind == k, "expected request %u, came %u", round, r.round);
			if (has_barrier())
				mark_is_there();
			check((m.cookie != 0) == (k == MAPPED), "a cookie, %llx, with a request: %s",
			      (unsigned long long)m.cookie, kinds[k]);
			answer(&r, m.cookie ? m.cookie : r.cookie, pipe_fd);
		}
	if (asks) {
		expect(send_with("end", 3, 0, NULL, 0), 3, "the end");
	} else {
		m = next("the end");
		must_be(&m, "end", PLAIN_TOKEN);
	}
	/* and ends when it has everything: what is unsent would go with the socket */
	check((asks ? read(pipe_fd, &c, 1) : write(pipe_fd, &c, 1)) == 1, "the other side has ended");
}

/* ... to the end, as they did. */
static int number_in(const char *path)
{
	int file = open(path, O_RDONLY), n = 0;
	char text[64];
	ssize_t got;

	check(file >= 0, "%s: %m", path);
	for (; (got = read(file, text + n, sizeof(text) - 1 - (size_t)n)) > 0; n += (int)got)
		;
	text[n] = '\0';
	close(file);
	return (int)strtol(text, NULL, 0);
}

int main(int argc, char **argv)
{
	int c, status, both[2];
	pid_t pid;

	while ((c = getopt(argc, argv, "nL:")) != -1) {
		if (c == 'n')
			looks_up = true;
		else if (c == 'L')
			level = (int)strtol(optarg, NULL, 0);
		else
			return 2;
	}
	if (looks_up) {
		expect(number_in("/proc/sys/net/rds/pf_rds"), 21, "pf_rds");
		expect(number_in("/proc/sys/net/rds/sol_rds"), 276, "sol_rds");
	}
	for (age = A0; age <= D && (optind + 1 != argc || strcmp(ages[age], argv[optind])); age++)
		;
	if (age > D)
		fail("one of A0 A1 A2 B1 B2 C D");
	signal(SIGPIPE, SIG_IGN);
	check(pipe(both) == 0, "pipe: %m");
	pid = fork();
	check(pid >= 0, "fork: %m");
	alarm(test_alarm(60));
	close(both[pid ? 0 : 1]);
	side(!pid, both[pid ? 1 : 0]);
	if (!pid)
		_exit(0);
	check(waitpid(pid, &status, 0) == pid, "waitpid: %m");
	check(status == 0, "the other side ended with %s %d", WIFSIGNALED(status) ? "signal" : "status",
	      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	printf("ok %s, level %d: ids up to %llu\n", ages[age], level, (unsigned long long)last_id);
	return 0;
}
