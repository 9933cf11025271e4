/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * messages.c [-p processes] [-s sockets] [-n messages] [-S seed] [-t seconds] [-d] [-g gate] [-r
 * every] [-l number] - no message is lost, doubled or reordered.
 *
 * Several processes have several sockets each.  Every socket sends n messages to sockets that a
 * seed chooses (its own process included) while it receives from all.  Each process can compute
 * what all others send: so a receiver knows of each sender which message comes next, its length and
 * every byte, also of an empty one.  Senders block or poll; receivers block, poll or use epoll.  At
 * the end no further message may arrive.
 *
 * -d: the library must have dropped duplicates; otherwise the fault was not injected.  -g: the
 * messages go in parts, each of which begins when the file has a byte for it (faults.h).  -r: after
 * every so many messages of a socket its process resets its connections (RDS_CONN_RESET), in turn
 * those between the two addresses of the message, and all from the sender's address.  Each end of
 * every connection may do so.  -l: the first so many messages of a socket to another one are short,
 * so the endpoint that a connection has first carries them.
 *
 * A plain PF_RDS program; faults are injected from outside.
 */
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "faults.h"

#define SOCKS_MAX 64

#define SHORT_MAX 152

static unsigned procs = 3, per_proc = 2, total, messages = 1500, limit = 60, reset_every, nshort;
static uint64_t seed = 1;
static bool want_dups;
static const char *gate;
static uint32_t addrs[2];
static unsigned naddrs = 1;

struct shared {
	pthread_barrier_t barrier;
	_Atomic uint64_t received, bytes;
	uint64_t resets, dups;
};
static struct shared *shared;
static int fds[SOCKS_MAX]; /* of this process, by number of the socket on the node */

static struct sockaddr_in name_of_sock(unsigned i)
{
	return name_of(addrs[i % naddrs], 20000 + i);
}

static unsigned destination(unsigned from, unsigned step)
{
	return (unsigned)(mix(seed * 31 + from * 7919ull + step) % total);
}

static size_t len_of(uint64_t key, unsigned n)
{
	size_t len = message_len(key);

	return n < nshort && len > SHORT_MAX ? len % SHORT_MAX : len;
}

/* ---- senders ---- */

static void send_one(int fd, const struct sockaddr_in *to, const unsigned char *buf, size_t len, bool block)
{
	ssize_t n;

	for (;;) {
		n = sendto(fd, buf, len, block ? 0 : MSG_DONTWAIT, (const struct sockaddr *)to, sizeof(*to));
		if (n >= 0) {
			check((size_t)n == len);
			return;
		}
		if (!block && errno == EAGAIN) {
			struct pollfd p = {.fd = fd, .events = POLLOUT};

			check(poll(&p, 1, -1) == 1);
		} else if (!block && errno == ENOBUFS) {
			struct pollfd p = {.fd = fd, .events = POLLWRBAND};

			check(poll(&p, 1, 5) >= 0); /* a congested port: the receivers' turn */
		} else {
			fail("sendto: %s", strerror(errno));
		}
	}
}

/* As Oracle's kernels have it. */
#define CONN_RESET 8
struct conn_reset {
	uint8_t tos;
	struct in_addr src, dst;
};

static void reset(int fd, unsigned from, unsigned to, bool all)
{
	struct conn_reset r = {.src = name_of_sock(from).sin_addr};

	if (!all)
		r.dst = name_of_sock(to).sin_addr;
	if (setsockopt(fd, SOL_RDS, CONN_RESET, &r, sizeof(r)) == 0)
		return;
	if (errno == EACCES)
		_exit(77);
	fail("RDS_CONN_RESET: %s", strerror(errno));
}

/* Returns when message number step may be sent. */
static void wait_at_gate(unsigned step)
{
	while (gate && gate_allows(gate, messages) <= step)
		usleep(2000);
}

static void *sender(void *arg)
{
	unsigned from = (unsigned)(uintptr_t)arg, step, next[SOCKS_MAX] = {0};
	unsigned char *buf = malloc(MESSAGE_MAX);

	check(buf);
	for (step = 0; step < messages; step++) {
		unsigned to = destination(from, step);
		unsigned n = next[to]++;
		uint64_t key = message_key(seed, from, to, n);
		struct sockaddr_in sin = name_of_sock(to);
		size_t len = len_of(key, n);

		message_fill(buf, key, len);
		wait_at_gate(step);
		send_one(fds[from], &sin, buf, len, from % 2 == 0);
		if (reset_every && step % reset_every == reset_every - 1)
			reset(fds[from], from, to, step / reset_every % 2);
	}
	free(buf);
	return NULL;
}

/* ---- receivers ---- */

static ssize_t receive(int fd, int ep, unsigned char *buf, struct sockaddr_in *from, unsigned how)
{
	socklen_t len = sizeof(*from);
	struct epoll_event ev;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	ssize_t n;

	for (;;) {
		if (how == 1)
			check(poll(&p, 1, -1) == 1);
		else if (how == 2)
			check(epoll_wait(ep, &ev, 1, -1) == 1);
		n = recvfrom(fd, buf, MESSAGE_MAX + 1, how ? MSG_DONTWAIT : 0, (struct sockaddr *)from, &len);
		if (n >= 0)
			return n;
		check(how && errno == EAGAIN);
	}
}

static unsigned sender_of(const struct sockaddr_in *sin)
{
	unsigned i = (unsigned)ntohs(sin->sin_port) - 20000;

	if (i >= total || sin->sin_addr.s_addr != addrs[i % naddrs])
		fail("a message from nobody: %s port %u", inet_ntoa(sin->sin_addr), ntohs(sin->sin_port));
	return i;
}

static void verify(unsigned from, unsigned to, unsigned n, const unsigned char *buf, size_t len, unsigned char *want)
{
	uint64_t key = message_key(seed, from, to, n);
	unsigned d;

	message_fill(want, key, MESSAGE_MAX);
	if (len == len_of(key, n) && memcmp(buf, want, len) == 0)
		return;
	for (d = n > 500 ? n - 500 : 0; d < n + 500; d++) { /* which one is it? */
		key = message_key(seed, from, to, d);
		message_fill(want, key, MESSAGE_MAX);
		if (len == len_of(key, d) && memcmp(buf, want, len) == 0)
			fail("%u -> %u: number %u came (%zu bytes), %u was next: %s", from, to, d, len, n,
			     d < n ? "doubled or reordered" : "lost or reordered");
	}
	fail("%u -> %u: number %u is damaged (%zu bytes came, %zu were sent)", from, to, n, len,
	     len_of(message_key(seed, from, to, n), n));
}

static void *receiver(void *arg)
{
	unsigned to = (unsigned)(uintptr_t)arg, from, step, expect = 0, next[SOCKS_MAX] = {0}, how = to % 3;
	unsigned char *buf = malloc(MESSAGE_MAX + 1), *want = malloc(MESSAGE_MAX);
	struct epoll_event ev = {.events = EPOLLIN};
	struct sockaddr_in sin;
	int ep = epoll_create1(0);
	ssize_t n;

	check(buf && want && ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fds[to], &ev) == 0);
	for (from = 0; from < total; from++)
		for (step = 0; step < messages; step++)
			expect += destination(from, step) == to;
	while (expect--) {
		n = receive(fds[to], ep, buf, &sin, how);
		from = sender_of(&sin);
		verify(from, to, next[from]++, buf, (size_t)n, want);
		atomic_fetch_add(&shared->received, 1);
		atomic_fetch_add(&shared->bytes, (uint64_t)n);
	}
	close(ep);
	free(buf);
	free(want);
	return NULL;
}

static void nothing_more(int fd, unsigned to)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	char buf[64];

	while (poll(&p, 1, 20) == 1) { /* POLLIN may also say that a congestion map came */
		if (recvfrom(fd, buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&sin, &len) >= 0)
			fail("%u -> %u: one message too many", sender_of(&sin), to);
		check(errno == EAGAIN);
	}
}

/* ---- processes ---- */

static void process(unsigned p)
{
	unsigned first = p * per_proc, i;
	pthread_t t[2 * SOCKS_MAX];

	for (i = first; i < first + per_proc; i++)
		fds[i] = rds_bound(addrs[i % naddrs], 20000 + i);
	pthread_barrier_wait(&shared->barrier);
	for (i = 0; i < per_proc; i++) {
		check(pthread_create(&t[2 * i], NULL, receiver, (void *)(uintptr_t)(first + i)) == 0);
		check(pthread_create(&t[2 * i + 1], NULL, sender, (void *)(uintptr_t)(first + i)) == 0);
	}
	for (i = 0; i < 2 * per_proc; i++)
		pthread_join(t[i], NULL);
	pthread_barrier_wait(&shared->barrier);
	for (i = first; i < first + per_proc; i++)
		nothing_more(fds[i], i);
	if (p == 0) {
		shared->resets = counter(fds[0], "conn_reset");
		shared->dups = counter(fds[0], "recv_drop_old_seq");
	}
	pthread_barrier_wait(&shared->barrier);
	exit(0);
}

static void find_addresses(void)
{
	struct ifaddrs *list, *a;

	addrs[0] = home();
	check(getifaddrs(&list) == 0);
	for (a = list; a && naddrs < 2; a = a->ifa_next)
		if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET && (a->ifa_flags & IFF_UP) &&
		    !(a->ifa_flags & IFF_LOOPBACK) &&
		    ((struct sockaddr_in *)a->ifa_addr)->sin_addr.s_addr != addrs[0])
			addrs[naddrs++] = ((struct sockaddr_in *)a->ifa_addr)->sin_addr.s_addr;
	freeifaddrs(list);
}

static void options(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "p:s:n:S:t:dg:r:l:")) != -1) {
		unsigned long v = c == '?' || c == 'd' || c == 'g' ? 0 : strtoul(optarg, NULL, 0);

		if (c == 'p')
			procs = (unsigned)v;
		else if (c == 's')
			per_proc = (unsigned)v;
		else if (c == 'n')
			messages = (unsigned)v;
		else if (c == 'S')
			seed = v;
		else if (c == 't')
			limit = (unsigned)v;
		else if (c == 'd')
			want_dups = true;
		else if (c == 'r')
			reset_every = (unsigned)v;
		else if (c == 'l')
			nshort = (unsigned)v;
		else if (c == 'g')
			gate = optarg;
		else
			exit(2);
	}
	total = procs * per_proc;
	if (!total || total > SOCKS_MAX)
		fail("between 1 and %d sockets", SOCKS_MAX);
}

static pid_t pids[SOCKS_MAX];

static void too_late(int sig)
{
	static const char text[] = "LATE messages: did not end in time\n";
	unsigned i;

	(void)sig;
	(void)!write(2, text, sizeof(text) - 1);
	for (i = 0; i < procs; i++)
		if (pids[i] > 0)
			kill(pids[i], SIGABRT);
	_exit(TEST_LATE);
}

static bool all_well(void)
{
	unsigned i, left;
	int status;
	pid_t pid;

	for (left = procs; left; left--) {
		pid = wait(&status);
		check(pid > 0);
		for (i = 0; i < procs; i++)
			if (pids[i] == pid)
				pids[i] = 0;
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			fprintf(stderr, "process %d: %s %d\n", (int)pid, WIFEXITED(status) ? "status" : "signal",
				WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
			for (i = 0; i < procs; i++)
				if (pids[i] > 0)
					kill(pids[i], SIGKILL);
			if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
				puts("RDS_CONN_RESET takes CAP_NET_ADMIN");
				exit(77);
			}
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	pthread_barrierattr_t attr;
	double start = seconds();
	unsigned i;

	options(argc, argv);
	find_addresses();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(shared != MAP_FAILED);
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->barrier, &attr, procs);
	for (i = 0; i < procs; i++) {
		pids[i] = fork();
		check(pids[i] >= 0);
		if (!pids[i])
			process(i);
	}
	signal(SIGALRM, too_late);
	alarm(limit * test_slow());
	if (!all_well() || shared->received != (uint64_t)total * messages) {
		printf("FAIL seed %llu: %llu of %llu messages\n", (unsigned long long)seed,
		       (unsigned long long)shared->received, (unsigned long long)total * messages);
		return 1;
	}
	if (want_dups && !shared->dups)
		fail("no duplicate was dropped: there were none");
	if (reset_every && !shared->resets)
		fail("no connection broke: they were not reset");
	printf("ok seed %llu: %llu messages, %llu MB, %u addresses, %llu disconnects, %llu duplicates dropped, %.1f s\n",
	       (unsigned long long)seed, (unsigned long long)shared->received,
	       (unsigned long long)shared->bytes >> 20, naddrs, (unsigned long long)shared->resets,
	       (unsigned long long)shared->dups, seconds() - start);
	return 0;
}
