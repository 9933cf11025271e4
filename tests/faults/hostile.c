/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * hostile.c [-r rounds] [-S seed] - a peer process that writes invalid data into all memory that it
 * shares with a victim.
 *
 * The victim (a plain PF_RDS program under the preload) answers a partner all the time.  The
 * attacker joins as a peer by the transport's own protocol.  Then it does one of these:
 *
 *   - it overwrites ring memory and indices, rings bells of connections that do not exist, and
 *     sends malformed packets;
 *   - it keeps writing to the victim's wake-up page that the victim is awake, and clears the bells
 *     that others have rung;
 *   - it requests more connections than it could need, and reads the answers late, or never;
 *   - it acknowledges messages that were never sent to it.
 *
 * After every round the partner must get its answers, and at the end the victim must live.
 *
 * Knows the layout of the shm transport (layout.h) and nothing else of the project.
 */
#include <endian.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "hostile_peer.h"

#define PORT 23000
#define RING (2u << 20)

static void victim(int ready)
{
	int fd = rds_bound(htonl(INADDR_LOOPBACK), PORT);
	struct sockaddr_in from;
	char buf[8192];

	check(write(ready, "", 1) == 1);
	for (;;) {
		socklen_t len = sizeof(from);
		ssize_t n = recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len);

		check(n >= 0);
		if (ntohs(from.sin_port) == PORT + 1)
			check(sendto(fd, buf, (size_t)n, 0, (struct sockaddr *)&from, len) == n);
	}
}

/* One byte in: so many round trips; one byte out. */
static void partner(int in, int out)
{
	int fd = rds_bound(htonl(INADDR_LOOPBACK), PORT + 1);
	struct sockaddr_in to = name_of(htonl(INADDR_LOOPBACK), PORT);
	char buf[4096], want[4096], c;
	unsigned i;

	while (read(in, &c, 1) == 1) {
		for (i = 0; i < 50; i++) {
			message_fill((unsigned char *)want, i, sizeof(want));
			check(sendto(fd, want, sizeof(want), 0, (struct sockaddr *)&to, sizeof(to)) == sizeof(want));
			check(recv(fd, buf, sizeof(buf), 0) == sizeof(buf) && memcmp(buf, want, sizeof(want)) == 0);
		}
		check(write(out, &c, 1) == 1);
	}
	exit(0);
}

static uint64_t nonsense(void)
{
	switch (draw() % 5) {
	case 0:
		return draw();
	case 1:
		return draw() % (2 * RING) & ~63ull;
	case 2:
		return UINT64_MAX - draw() % 128;
	case 3:
		return draw() % 256;
	}
	return 64 * (draw() % 64);
}

static void scribble(struct shm_rings *rings, unsigned char *data)
{
	unsigned i, j;

	for (i = 0; i < 4096; i += 64) { /* records that look nearly right */
		struct shm_rec *rec = (struct shm_rec *)shm_ring_at(&rings->ctl[0], data, RING, i);

		rec->len = draw() % 4 ? 64u * (uint32_t)(1 + draw() % 32) : (uint32_t)nonsense();
		rec->kind = (uint32_t)(draw() % 4);
		for (j = 0; j < sizeof(rec->hdr); j++)
			((unsigned char *)&rec->hdr)[j] = draw() % 3 ? 0 : (unsigned char)draw();
	}
	for (i = 0; i < 2; i++) {
		atomic_store(&rings->ctl[i].tail, nonsense());
		if (draw() % 2)
			atomic_store(&rings->ctl[i].head, nonsense());
		atomic_store(&rings->ctl[i].acked, nonsense());
		atomic_store(&rings->ctl[i].want_room, (uint32_t)draw());
	}
}

static void attack(pid_t pid)
{
	struct shm_ctl_msg hello = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_HELLO};
	struct shm_ctl_msg msg = {
		.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_CONNECT, .ring = RING, .cookie = 1};
	struct shm_ctl_msg odd = {.magic = SHM_MAGIC, .version = SHM_VERSION};
	size_t len = SHM_CTL_BYTES + 2 * (size_t)RING;
	struct shm_inbox *theirs;
	int fds[3], kick, fd = join(pid, &theirs, &kick);
	static const char junk[70000];
	void *inbox, *map;
	unsigned i, kind = (unsigned)(draw() % 9);

	fds[0] = kind == 5 ? eventfd(0, 0) : full_pipe();
	fds[1] = kind == 6 ? eventfd(0, 0) : full_pipe();
	fds[2] = memory(SHM_CTL_BYTES, &inbox);
	/* our leader, or our helper, sleeps: write to that pipe */
	atomic_store(&((struct shm_inbox *)inbox)->attention, 2 + (uint32_t)draw() % 2);
	for (i = 0; i < sizeof(hello.self.b); i++)
		hello.self.b[i] = (uint8_t)draw();
	if (kind == 0)
		hello.version++;
	if (kind == 7) /* as it was before some fields were added */
		hello.version--;
	packet(fd, &hello, kind == 1 ? 17 : sizeof(hello) - (kind == 7 ? 8 : 0), fds,
	       kind == 2 ? 1 + (unsigned)draw() % 2 : 3);
	for (i = 0; i < 3; i++)
		close(fds[i]);
	msg.laddr.s6_addr32[2] = msg.faddr.s6_addr32[2] = htonl(0xffff);
	msg.laddr.s6_addr32[3] = msg.faddr.s6_addr32[3] = htonl(INADDR_LOOPBACK);
	if (kind == 3)
		msg.ring = nonsense();
	if (kind == 4)
		msg.bell = (uint32_t)nonsense();
	fds[0] = memory(len, &map);
	atomic_store(&((struct shm_rings *)map)->ctl[1].need_bell, 1);
	packet(fd, &msg, sizeof(msg), fds, 1);
	close(fds[0]);
	for (i = 0; i < 20; i++) {
		scribble(map, (unsigned char *)map + SHM_CTL_BYTES);
		for (unsigned w = 0; w < SHM_BELLS / 64; w++)
			atomic_store(&theirs->words[w], draw());
		atomic_store(&theirs->summary, UINT64_MAX);
		if (i % 4 == 3) {
			odd.op = (uint32_t)draw() % 9;
			odd.err = (int)draw();
			odd.cookie = draw() % 3;
			packet(fd, &odd, sizeof(odd), NULL, 0);
		}
		(void)!write(kick, junk, draw() % 4 ? 8 : draw() % sizeof(junk));
	}
	munmap(map, len);
	munmap(inbox, SHM_CTL_BYTES);
	munmap(theirs, SHM_CTL_BYTES);
	close(kick);
	close(fd);
}

static void one_lie(struct shm_inbox *theirs)
{
	unsigned w;

	atomic_store(&theirs->attention, draw() % 2 ? (uint32_t)draw() % 2 : (uint32_t)draw());
	if (draw() % 2)
		atomic_store(&theirs->summary, 0);
	for (w = 0; w < SHM_BELLS / 64 && draw() % 16; w++)
		atomic_store(&theirs->words[w], 0);
}

/*
 * To a victim that has fallen asleep for good, and then as long as the partner is at it, which ends
 * only if it gets its answers.
 */
static void lie(pid_t pid, int start, int done)
{
	struct pollfd p = {.fd = done, .events = POLLIN};
	struct shm_inbox *theirs;
	int kick, fd = join(pid, &theirs, &kick);

	check(test_sleeps(pid));
	one_lie(theirs);
	check(write(start, "", 1) == 1);
	while (poll(&p, 1, 0) == 0) {
		usleep((unsigned)(draw() % 300));
		one_lie(theirs);
	}
	munmap(theirs, SHM_CTL_BYTES);
	close(kick);
	close(fd);
}

static void hear(int fd, struct shm_ctl_msg *msg)
{
	if (recv(fd, msg, sizeof(*msg), 0) != sizeof(*msg))
		fail("the victim hung up");
}

/* The answer to a CONNECT; other packets before it are skipped. */
static int answer(int fd, uint64_t cookie)
{
	struct shm_ctl_msg msg;

	do {
		hear(fd, &msg);
	} while (msg.op != SHM_OP_REPLY || msg.cookie != cookie);
	return msg.err;
}

/* A proper peer so far: its control socket, and what it asks for connections with. */
struct guest {
	int fd, ring;
	struct shm_ctl_msg hello, msg;
};

/* Dials, and says HELLO: for the first time, or as one that comes back. */
static void guest_dial(struct guest *g, pid_t pid, enum shm_session whose)
{
	struct shm_inbox *theirs;
	int fds[3], kick;
	void *map;
	unsigned i;

	g->fd = join(pid, &theirs, &kick);
	munmap(theirs, SHM_CTL_BYTES);
	close(kick);
	fds[0] = full_pipe();
	fds[1] = full_pipe();
	fds[2] = memory(SHM_CTL_BYTES, &map);
	munmap(map, SHM_CTL_BYTES);
	g->hello.whose = (uint8_t)whose;
	packet(g->fd, &g->hello, sizeof(g->hello), fds, 3);
	for (i = 0; i < 3; i++)
		close(fds[i]);
}

static void guest_come(struct guest *g, pid_t pid)
{
	unsigned i;
	void *map;

	g->hello = (struct shm_ctl_msg){.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_HELLO};
	for (i = 0; i < sizeof(g->hello.self.b); i++)
		g->hello.self.b[i] = (uint8_t)draw();
	guest_dial(g, pid, SHM_SESSION_NEW);
	g->ring = memory(SHM_CTL_BYTES + 2 * (size_t)RING, &map);
	munmap(map, SHM_CTL_BYTES + 2 * (size_t)RING);
	g->msg = (struct shm_ctl_msg){.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_CONNECT, .ring = RING};
	g->msg.laddr.s6_addr32[2] = g->msg.faddr.s6_addr32[2] = htonl(0xffff);
	g->msg.faddr.s6_addr32[3] = htonl(INADDR_LOOPBACK);
}

static void guest_go(struct guest *g)
{
	close(g->ring);
	close(g->fd);
}

/* Connection number i; the victim's answer names the cookie. */
static bool ask(struct guest *g, unsigned i, uint64_t cookie)
{
	g->msg.laddr.s6_addr32[3] = htonl(INADDR_LOOPBACK + i);
	g->msg.cookie = cookie;
	return packet(g->fd, &g->msg, sizeof(g->msg), &g->ring, 1);
}

/* It cannot have enough: of connections, addresses and control sockets. */
static void flood(pid_t pid)
{
	struct guest g;
	int more[40], err, open = 0;
	unsigned i, taken = 0, refused = 0;
	char c;

	guest_come(&g, pid);
	for (i = 0; i < 1200; i++) {
		check(ask(&g, i, i));
		err = answer(g.fd, i);
		check(err == 0 || err == -ENOSPC);
		taken += err == 0;
		refused += err != 0;
	}
	check(taken == 1024 && refused == 1200 - 1024);
	g.msg.faddr.s6_addr32[3] = htonl(INADDR_LOOPBACK + 77); /* nobody there */
	check(ask(&g, i, i));
	check(answer(g.fd, i) == -EADDRNOTAVAIL);
	for (i = 0; i < 40; i++)
		more[i] = dial(pid);
	for (i = 0; i < 40; i++) /* HELLO, or a hang-up */
		open += recv(more[i], &c, 1, 0) > 0;
	check(open > 0 && open <= 16);
	for (i = 0; i < 40; i++) /* not before: one that has gone makes room for another one */
		close(more[i]);
	crowded = true;
	guest_go(&g);
}

/*
 * A proper peer that is busy: it asks for many connections, loses them all and asks twice more (the
 * first time is taken for a crossing), and reads only then: more packets than a socket takes.  Not
 * one may be missing, nor out of order.
 */
static void tardy(pid_t pid)
{
	enum { N = 600 };
	struct shm_ctl_msg msg;
	unsigned replies = 0, closes = 0, i;
	struct guest g;

	guest_come(&g, pid);
	for (i = 0; i < 3 * N; i++)
		check(ask(&g, i % N, i));
	while (replies < 3 * N) {
		hear(g.fd, &msg);
		if (msg.op == SHM_OP_CLOSE) {
			check(msg.cookie == closes && replies == 2 * N + closes);
			closes++;
		} else if (msg.op == SHM_OP_REPLY) {
			check(msg.cookie == replies && msg.err == (replies / N == 1 ? -EALREADY : 0));
			replies++;
			/* the lost one was closed first */
			check(replies <= 2 * N || replies == 2 * N + closes);
		}
	}
	check(closes == N);
	guest_go(&g);
}

/* It asks and never reads: what waits for it must not grow for ever. */
static void deaf(pid_t pid)
{
	struct guest g;
	unsigned i;

	guest_come(&g, pid);
	g.msg.faddr.s6_addr32[3] = htonl(INADDR_LOOPBACK + 77); /* nobody there */
	for (i = 0; i < 10000 && ask(&g, i, i); i++)
		;
	check(i > 3000 && i < 10000);
	guest_go(&g);
}

/* What the victim says next is WARM, and it has the session.  False: it has hung up, or has none. */
static bool is_warm(int fd)
{
	struct shm_ctl_msg msg = {0};

	while (msg.op != SHM_OP_WARM)
		if (recv(fd, &msg, sizeof(msg), 0) != sizeof(msg))
			return false;
	return !msg.err;
}

/*
 * Leaves and comes back, as a process with few descriptors does, and sometimes not as it should: it
 * goes on after it has left, leaves twice, comes back without having left, or before it has hung up.
 */
static void leave_and_return(struct guest *g, pid_t pid, unsigned how)
{
	struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_COOL};
	int old = g->fd;

	if (how != 1)
		packet(old, &msg, sizeof(msg), NULL, 0);
	if (how == 2)
		packet(old, &msg, sizeof(msg), NULL, 0);
	msg.op = SHM_OP_WARM;
	if (how == 3)
		packet(old, &msg, sizeof(msg), NULL, 0);
	if (how != 4)
		close(old);
	guest_dial(g, pid, how == 5 ? SHM_SESSION_YOURS : SHM_SESSION_MINE);
	if (how == 6) /* before WARM */
		ask(g, 1, 1);
	if (how == 4)
		close(old);
}

static void fickle(pid_t pid)
{
	struct guest g;
	unsigned i;

	crowded = true; /* it may not have noticed yet how many have left */
	guest_come(&g, pid);
	for (i = 0; i < 200; i++) {
		leave_and_return(&g, pid, draw() % 2 ? 0 : 1 + (unsigned)draw() % 6);
		/* no process has its id: while it is away, it may be taken for one that has ended */
		if (is_warm(g.fd))
			continue;
		guest_go(&g);
		guest_come(&g, pid);
	}
	check(ask(&g, 2, 7) && answer(g.fd, 7) == 0);
	guest_go(&g);
}

/* The next message of a proper peer: a ping.  The victim is told to look at once. */
static void ping(struct guest *g, struct shm_rings *rings, uint32_t bell, uint64_t seq)
{
	struct shm_ctl_msg look = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_LOOK, .peer_bell = bell};
	unsigned char *data = (unsigned char *)rings + SHM_CTL_BYTES;
	struct shm_rec *rec = (struct shm_rec *)shm_ring_at(&rings->ctl[0], data, RING, (seq - 1) * SHM_LINE);

	check(seq * SHM_LINE <= RING);
	rec->len = SHM_LINE;
	rec->kind = SHM_REC_MSG;
	rec->hdr.sequence = htobe64(seq);
	rec->hdr.sport = htons(PORT + 2);
	atomic_store(&rings->ctl[0].tail, seq * SHM_LINE);
	check(packet(g->fd, &look, sizeof(look), NULL, 0));
}

/*
 * The connection is, or becomes in that time.  The victim may want us to look at what it sent
 * besides, or an earlier one back.
 */
static bool closed(struct guest *g, uint64_t cookie, int ms)
{
	struct pollfd p = {.fd = g->fd, .events = POLLIN};
	struct shm_ctl_msg msg;

	while (poll(&p, 1, ms) == 1) {
		hear(g->fd, &msg);
		if (msg.op == SHM_OP_CLOSE) {
			check(msg.cookie == cookie);
			return true;
		}
		if (msg.op != SHM_OP_LOOK && msg.op != SHM_OP_CONNECT)
			fail("the victim sends packet %u", msg.op);
	}
	return false;
}

/*
 * A connection on which the victim has sent an answer to a ping.  Acknowledged is more than that:
 * it must be closed.
 */
static void one_liar(struct guest *g, unsigned i, uint64_t ack)
{
	struct shm_ctl_msg msg = {0};
	struct shm_rings *rings;
	uint64_t seq = 0;

	g->ring = memory(SHM_CTL_BYTES + 2 * (size_t)RING, (void **)&rings);
	check(ask(g, i, i));
	while (msg.op != SHM_OP_REPLY)
		hear(g->fd, &msg);
	check(msg.err == 0);
	ping(g, rings, msg.bell, ++seq);
	test_until(atomic_load(&rings->ctl[1].tail));
	check(!closed(g, i, 20)); /* so far all is well */
	atomic_store(&rings->ctl[1].acked, ack);
	do { /* makes the victim look at that */
		if (seq == 5000)
			fail("%llu was acknowledged, and the victim does not mind", (unsigned long long)ack);
		ping(g, rings, msg.bell, ++seq);
	} while (!closed(g, i, 1));
	munmap(rings, SHM_CTL_BYTES + 2 * (size_t)RING);
	close(g->ring);
}

/*
 * Acknowledges messages that were never sent: the whole number space, or just beyond what the
 * victim may send now.
 */
static void liar(pid_t pid)
{
	struct guest g;

	guest_come(&g, pid);
	close(g.ring);
	one_liar(&g, 1, UINT64_MAX);
	one_liar(&g, 2, 10000);
	close(g.fd);
}

int main(int argc, char **argv)
{
	unsigned rounds = 100, n;
	int c, ready[2], in[2], out[2], status;
	pid_t pid, mate;
	char b;

	while ((c = getopt(argc, argv, "r:S:")) != -1) {
		if (c == 'r')
			rounds = (unsigned)strtoul(optarg, NULL, 0);
		else if (c == 'S')
			state = strtoull(optarg, NULL, 0);
		else
			return 2;
	}
	alarm(test_alarm(60));
	check(pipe(ready) == 0 && pipe(in) == 0 && pipe(out) == 0);
	pid = fork();
	check(pid >= 0);
	if (!pid) {
		alarm(test_alarm(60));
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(in[1]); /* the partner ends when nobody has it any more */
		close(out[1]);
		victim(ready[1]);
	}
	check(read(ready[0], &b, 1) == 1);
	mate = fork();
	check(mate >= 0);
	if (!mate) {
		alarm(test_alarm(60));
		close(in[1]);
		partner(in[0], out[1]);
	}
	close(out[1]);
	for (n = 0; n < rounds; n++) {
		if (n % 8 == 7) {
			lie(pid, in[1], out[0]);
		} else {
			check(write(in[1], "", 1) == 1); /* the partner is at it while we attack */
			if (n % 40 == 5)
				flood(pid);
			else if (n % 40 == 13)
				liar(pid);
			else if (n % 40 == 21)
				tardy(pid);
			else if (n % 40 == 29)
				fickle(pid);
			else if (n % 40 == 37)
				deaf(pid);
			else
				attack(pid);
		}
		if (read(out[0], &b, 1) != 1)
			fail("round %u: no answer from the victim", n);
	}
	close(in[1]);
	check(waitpid(mate, &status, 0) == mate && status == 0);
	check(waitpid(pid, &status, WNOHANG) == 0); /* it lives */
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	printf("ok: %u attacks, the victim went on\n", rounds);
	return 0;
}
