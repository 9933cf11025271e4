/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * idle.c - what idle things cost: sockets that are not used, peers that fell silent, a program
 * asleep in poll; and the opposite, a hog that takes a whole processor.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Two descriptors each is a fair guess; beyond the hard limit only a privileged process gets. */
void raise_limit(unsigned sockets)
{
	struct rlimit r;
	rlim_t want = (rlim_t)sockets * 3 + 1024;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		die("getrlimit: %s", strerror(errno));
	if (r.rlim_cur >= want)
		return;
	if (r.rlim_max < want) {
		struct rlimit higher = {want, want};

		if (setrlimit(RLIMIT_NOFILE, &higher) == 0)
			return;
		want = r.rlim_max;
	}
	r.rlim_cur = want;
	if (setrlimit(RLIMIT_NOFILE, &r) < 0)
		die("setrlimit: %s", strerror(errno));
}

/*
 * Returns how many the system granted: out of descriptors is a smaller measurement, anything else a
 * fault.
 */
unsigned open_idle_sockets(const struct options *o)
{
	unsigned n;

	if (!o->idle)
		return 0;
	raise_limit(o->idle);
	for (n = 0; n < o->idle; n++) {
		int fd = o->rds ? sock_rds(o->host) : socket(AF_UNIX, SOCK_SEQPACKET, 0);

		if (fd < 0 && (errno == EMFILE || errno == ENFILE))
			break;
		if (fd < 0)
			die("idle socket %u: %s", n, strerror(errno));
	}
	return n;
}

/*
 * A member of the herd: one message there and back, then silence until the starter closes the pipe.
 */
void run_peer(const struct options *o)
{
	struct sock s;
	char c;

	sock_open(&s, o);
	sock_await_peer(&s);
	sock_send(&s, o->size, KIND_HELLO, 0, o->id);
	if (sock_recv(&s) != o->size || sock_message(&s)->kind != KIND_HELLO || sock_message(&s)->seq != o->id)
		die("wrong answer to peer %u", o->id);
	say("ready");
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
	sock_close(&s);
}

struct herd_member {
	pid_t pid;
	int in, out;
};

static void start_member(struct herd_member *m, const struct options *o, unsigned id, const char *peer)
{
	char host[128], size[32], number[32], limit[32];
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		die("pipe for peer %u: %s", id, strerror(errno));
	snprintf(host, sizeof(host), "host=%s", o->host);
	snprintf(size, sizeof(size), "size=%u", o->size);
	snprintf(number, sizeof(number), "id=%u", id);
	snprintf(limit, sizeof(limit), "limit=%u", o->limit);
	m->pid = fork();
	if (m->pid < 0)
		die("fork of peer %u: %s", id, strerror(errno));
	if (m->pid == 0) {
		if (dup2(in[0], STDIN_FILENO) < 0 || dup2(out[1], STDOUT_FILENO) < 0)
			_exit(126);
		execl("/proc/self/exe", "worker", "peer", "rds=1", host, size, number, limit, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	m->in = in[1];
	m->out = out[0];
	if (dprintf(m->in, "peer %s\n", peer) < 0)
		die("peer %u: %s", id, strerror(errno));
}

static void await_member(const struct herd_member *m, unsigned id)
{
	char line[256];
	ssize_t n = read(m->out, line, sizeof(line) - 1);

	line[n > 0 ? n : 0] = '\0';
	line[strcspn(line, "\n")] = '\0';
	if (strcmp(line, "ready") != 0)
		die("peer %u: %s", id, *line ? line : "ended without a word");
}

void run_herd(const struct options *o)
{
	struct herd_member *m = calloc(o->idle, sizeof(*m));
	char peer[128];
	unsigned i, started;

	if (!m || !o->idle)
		die("herd of %u", o->idle);
	raise_limit(o->idle);
	hear("peer", peer, sizeof(peer));
	for (started = 0; started < o->idle; started++) {
		start_member(&m[started], o, started, peer);
		/* A few at a time: this is about silent peers, not about a thundering start. */
		if (started >= 16)
			await_member(&m[started - 16], started - 16);
	}
	for (i = started > 16 ? started - 16 : 0; i < started; i++)
		await_member(&m[i], i);
	say("ready idle=%u", started);
	hear("go", NULL, 0);
	for (i = 0; i < started; i++)
		close(m[i].in);
	for (i = 0; i < started; i++) {
		int status;

		if (waitpid(m[i].pid, &status, 0) < 0 || status != 0)
			die("peer %u ended with status %#x", i, status);
	}
	say("result msgs=%u", started);
	free(m);
}

/* Asleep in poll for ever: the starter looks at it from outside and ends it by a signal. */
void run_poll(const struct options *o)
{
	struct pollfd pfd = {.events = POLLIN};
	struct sock s;

	sock_open(&s, o);
	if (strcmp(o->role, "client") == 0) {
		sock_await_peer(&s);
		sock_send(&s, o->size, KIND_HELLO, 0, 0);
		sock_recv(&s);
	} else {
		sock_announce(&s);
		sock_recv(&s);
		sock_send(&s, o->size, KIND_HELLO, 0, 0);
	}
	pfd.fd = s.fd;
	/* RDS reports an old congestion update once, as POLLIN without a message ... */
	poll(&pfd, 1, 100);
	say("ready");
	/* ... and a new one, such as the first of a process that comes to use this one's connection */
	while (poll(&pfd, 1, -1) >= 0)
		if (recv(s.fd, s.buf, s.size, MSG_DONTWAIT) >= 0 || errno != EAGAIN)
			die("poll returned %#x although nobody sends", (unsigned)pfd.revents);
	die("poll: %s", strerror(errno));
}

void run_hog(const struct options *o)
{
	(void)o;
	say("ready");
	for (;;)
		__asm__ volatile("");
}
