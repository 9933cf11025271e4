/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * sock.c - one socket of either side: PF_RDS bound to an address, one end of an AF_UNIX
 * SOCK_SEQPACKET pair that the starter made, or TCP.  All are used by the same sendto and recvfrom
 * calls; only RDS is given a destination, as its programs do.  TCP has no messages, and whoever
 * receives knows how long the next one is.  Each message that arrives is checked, so that a fault
 * is never mistaken for speed.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/rds.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static socklen_t parse_address(const char *host, unsigned port, struct sockaddr_storage *out)
{
	struct sockaddr_in *in = (void *)out;
	struct sockaddr_in6 *in6 = (void *)out;

	memset(out, 0, sizeof(*out));
	if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)port);
		return sizeof(*in);
	}
	if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons((uint16_t)port);
		return sizeof(*in6);
	}
	die("bad address '%s'", host);
}

static int sock_bound(const char *host, bool tcp)
{
	struct sockaddr_storage addr;
	socklen_t len = parse_address(host, 0, &addr);
	int fd = tcp ? socket(addr.ss_family, SOCK_STREAM, 0) : socket(PF_RDS, SOCK_SEQPACKET, 0);

	if (fd >= 0 && bind(fd, (struct sockaddr *)&addr, len) < 0) {
		int err = errno;

		close(fd);
		errno = err;
		return -1;
	}
	return fd;
}

int sock_rds(const char *host)
{
	return sock_bound(host, false);
}

int sock_buffer(int fd, int opt)
{
	int v = 0;
	socklen_t len = sizeof(v);

	if (getsockopt(fd, SOL_SOCKET, opt, &v, &len) < 0)
		die("getsockopt of a buffer size: %s", strerror(errno));
	return v;
}

void sock_tos(int fd, unsigned tos)
{
	unsigned char v = (unsigned char)tos;

	if (ioctl(fd, SIOCRDSSETTOS, &v) < 0)
		die("type of service %u: %s", tos, strerror(errno));
}

/*
 * For root AF_UNIX may exceed the system's limit.  Other users get what the system gives, and the
 * result says so.
 */
static void set_buffers(int fd, unsigned bytes)
{
	int v = (int)bytes;

	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &v, sizeof(v)) < 0 &&
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &v, sizeof(v)) < 0)
		die("SO_SNDBUF %d: %s", v, strerror(errno));
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &v, sizeof(v)) < 0 &&
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &v, sizeof(v)) < 0)
		die("SO_RCVBUF %d: %s", v, strerror(errno));
}

void sock_open(struct sock *s, const struct options *o)
{
	memset(s, 0, sizeof(*s));
	s->rds = o->rds;
	s->tcp = o->tcp;
	s->spin = o->spin;
	s->size = s->next = o->size;
	s->fd = o->rds || o->tcp ? sock_bound(o->host, o->tcp) : o->fd;
	if (s->fd < 0)
		die("%s: %s", o->rds || o->tcp ? "socket" : "AF_UNIX socket missing", strerror(errno));
	if (o->tos)
		sock_tos(s->fd, o->tos);
	if (o->buffer)
		set_buffers(s->fd, o->buffer);
	s->buf = aligned_alloc(4096, (o->size + 4095) & ~4095u);
	if (!s->buf)
		die("no memory");
	memset(s->buf, 0x5a, o->size); /* every page touched before anything is timed */
}

/* ---- TCP ---- */

static void tcp_no_delay(int fd)
{
	int one = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0)
		die("TCP_NODELAY: %s", strerror(errno));
}

static void tcp_accept(struct sock *s)
{
	int fd = accept(s->fd, NULL, NULL);

	if (fd < 0)
		die("accept: %s", strerror(errno));
	close(s->fd);
	s->fd = fd;
	s->listens = false;
	tcp_no_delay(fd);
}

static void tcp_connect(struct sock *s, const char *host, unsigned port)
{
	struct sockaddr_storage to;
	socklen_t len = parse_address(host, port, &to);

	if (connect(s->fd, (struct sockaddr *)&to, len) < 0)
		die("connect: %s", strerror(errno));
	tcp_no_delay(s->fd);
}

/* A call that does not wait may send or receive a part of the message. */
static void tcp_send(struct sock *s, unsigned len)
{
	unsigned at = 0;
	ssize_t n;

	while (at < len) {
		n = sendto(s->fd, s->buf + at, len - at, s->spin ? MSG_DONTWAIT : 0, NULL, 0);
		if (n >= 0)
			at += (unsigned)n;
		else if (!s->spin || errno != EAGAIN)
			die("sendto of %u bytes over TCP: %s", len, strerror(errno));
	}
}

static unsigned tcp_recv(struct sock *s)
{
	unsigned at = 0;
	ssize_t n;

	if (s->listens)
		tcp_accept(s);
	while (at < s->next) {
		n = recvfrom(s->fd, s->buf + at, s->next - at, s->spin ? MSG_DONTWAIT : MSG_WAITALL, NULL, NULL);
		if (n > 0)
			at += (unsigned)n;
		else if (!n || !s->spin || errno != EAGAIN)
			die("recvfrom over TCP: %s", n ? strerror(errno) : "the end");
	}
	sock_check(s, at);
	return at;
}

/* ---- of any kind ---- */

void sock_announce(struct sock *s)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	char text[INET6_ADDRSTRLEN] = "-";
	unsigned port = 0;

	if (s->tcp && listen(s->fd, 1) < 0)
		die("listen: %s", strerror(errno));
	s->listens = s->tcp;
	if (s->rds || s->tcp) {
		const struct sockaddr_in *in = (void *)&addr;
		const struct sockaddr_in6 *in6 = (void *)&addr;

		if (getsockname(s->fd, (struct sockaddr *)&addr, &len) < 0)
			die("getsockname: %s", strerror(errno));
		port = addr.ss_family == AF_INET ? ntohs(in->sin_port) : ntohs(in6->sin6_port);
		inet_ntop(addr.ss_family,
			  addr.ss_family == AF_INET ? (const void *)&in->sin_addr : (const void *)&in6->sin6_addr, text,
			  sizeof(text));
	}
	say("addr %s %u", text, port);
}

void sock_await_peer(struct sock *s)
{
	char rest[128], host[100];
	unsigned port;

	hear("peer", rest, sizeof(rest));
	if (sscanf(rest, "%99s %u", host, &port) != 2)
		die("bad peer '%s'", rest);
	if (s->rds)
		s->peerlen = parse_address(host, port, &s->peer);
	if (s->tcp)
		tcp_connect(s, host, port);
}

void sock_close(struct sock *s)
{
	if (close(s->fd) < 0)
		die("close: %s", strerror(errno));
	free(s->buf);
}

void sock_fill(struct sock *s, unsigned len, enum kind kind, unsigned id, uint64_t seq)
{
	struct message *m = sock_message(s);

	m->magic = BENCH_MAGIC;
	m->kind = (uint16_t)kind;
	m->id = (uint16_t)id;
	m->seq = seq;
	/* the end must come through as well */
	memcpy(s->buf + len - sizeof(seq), &seq, sizeof(seq));
}

void sock_send(struct sock *s, unsigned len, enum kind kind, unsigned id, uint64_t seq)
{
	ssize_t n;

	sock_fill(s, len, kind, id, seq);
	if (s->tcp) {
		tcp_send(s, len);
		return;
	}
	do
		n = sendto(s->fd, s->buf, len, s->spin ? MSG_DONTWAIT : 0,
			   s->peerlen ? (const struct sockaddr *)&s->peer : NULL, s->peerlen);
	while (n < 0 && s->spin && (errno == EAGAIN || errno == ENOBUFS));
	if (n != (ssize_t)len)
		die("sendto of %u bytes, number %llu: %zd %s", len, (unsigned long long)seq, n,
		    n < 0 ? strerror(errno) : "");
}

void sock_check(const struct sock *s, ssize_t n)
{
	const struct message *m = (const void *)s->buf;
	uint64_t tail;

	if (n < (ssize_t)sizeof(*m) || m->magic != BENCH_MAGIC)
		die("received %zd bytes that are no message of ours", n);
	memcpy(&tail, s->buf + n - sizeof(tail), sizeof(tail));
	if (tail != m->seq)
		die("received a message of %zd bytes whose end is not its own", n);
}

void sock_came_from(struct sock *s, const struct sockaddr_storage *from, socklen_t len)
{
	if (!s->rds)
		return;
	if (len != sizeof(struct sockaddr_in) && len != sizeof(struct sockaddr_in6))
		die("received from an address of %u bytes", (unsigned)len);
	memcpy(&s->peer, from, len);
	s->peerlen = len;
}

unsigned sock_recv(struct sock *s)
{
	struct sockaddr_storage from;
	socklen_t fromlen;
	ssize_t n;

	if (s->tcp)
		return tcp_recv(s);
	do {
		fromlen = sizeof(from);
		n = recvfrom(s->fd, s->buf, s->size, s->spin ? MSG_DONTWAIT : 0, (struct sockaddr *)&from, &fromlen);
	} while (n < 0 && s->spin && errno == EAGAIN);
	if (n < 0)
		die("recvfrom: %s", strerror(errno));
	sock_check(s, n);
	sock_came_from(s, &from, fromlen);
	return (unsigned)n;
}
