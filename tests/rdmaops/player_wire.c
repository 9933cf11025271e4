/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * player_wire.c - the player's actors on RDS sockets.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "player.h"

#define PORT 6000
#define SOL_RDS 276

struct args_b2 {
	struct rdma_args a; /* its token is where the id goes */
	uint32_t token, pad;
};

struct barrier32 {
	uint32_t daddr, hole;
	uint64_t flags, mark_addr, wait;
};

#define DONTWAIT 0x10

static struct sockaddr_in name(unsigned id)
{
	return name_of(address(id), PORT + id);
}

static unsigned wire_place(unsigned to)
{
	unsigned i = 0;

	while (address(i) != address(to))
		i++;
	return i;
}

static int wire_mark(struct actor *a, unsigned to, uint64_t wait, uint64_t *mark)
{
	struct barrier32 b = {address(to), 0, DONTWAIT, (uintptr_t)mark, wait};

	return setsockopt(a->fd, SOL_RDS, OPT_BARRIER, &b, sizeof(b)) ? -errno : 0;
}

static void wire_open(struct actor *a)
{
	double since = seconds();
	unsigned looks = 0;
	struct sockaddr_in sin = name(a->id);

	a->fd = rds_socket(SOCK_SEQPACKET | SOCK_CLOEXEC);
	if (a->fd < 0)
		fail("socket(PF_RDS): %m; is librdspreload.so preloaded?");
	while (bind(a->fd, (struct sockaddr *)&sin, sizeof(sin))) {
		/* of one that was killed it may take a moment until the port is free */
		if (errno != EADDRINUSE || mode != KILL)
			fail("bind to port %u: %m", PORT + a->id);
		waits(&since, "for port %u", PORT + a->id);
		test_pause(&looks);
	}
	if (marks) { /* first of all, as they did: by this it is known what the program is */
		uint64_t mark = 1;
		int rc = wire_mark(a, 0, 0, &mark);

		if (rc || mark)
			actor_fail(a, "RDS_BARRIER of a new socket: %d, the mark %llu", rc, (unsigned long long)mark);
	}
}

static void wire_close(struct actor *a)
{
	check(close(a->fd) == 0, "close: %m");
}

static int wire_get_mr(struct actor *a, void *addr, size_t len, uint64_t flags, uint64_t *cookie, bool for_dest)
{
	struct sockaddr_in any = name(0);

	return for_dest ? get_mr_for_dest(a->fd, &any, addr, len, flags, cookie)
			: get_mr(a->fd, addr, len, flags, cookie);
}

static int wire_free_mr(struct actor *a, uint64_t cookie, uint64_t flags)
{
	return free_mr(a->fd, cookie, flags);
}

/* SILENT came later: such a one is as today's, of a length that no revision of 2008 had. */
static void old_args(struct out *o, struct request *r)
{
	struct args_b2 b = {.a = r->args, .token = (uint32_t)r->args.token};
	struct {
		struct rdma_args a;
		uint64_t beyond[2];
	} d = {.a = r->args};

	r->id = 0;
	if (r->args.flags & F_SILENT) {
		out_cmsg(o, CMSG_ARGS, &d, sizeof(d));
		return;
	}
	b.a.token = (uintptr_t)&r->id;
	out_cmsg(o, CMSG_ARGS, &b, sizeof(b));
}

/* Of an operation of 64 bytes it has 8. */
static struct notify note_of(const struct actor *a, const struct cmsghdr *c)
{
	struct notify n = {0};
	uint32_t w[2];

	if (c->cmsg_len == CMSG_LEN(sizeof(n))) {
		memcpy(&n, CMSG_DATA(c), sizeof(n));
		return n;
	}
	if (!marks || c->cmsg_len != CMSG_LEN(sizeof(w)))
		actor_fail(a, "a notification of %zu bytes", (size_t)c->cmsg_len - CMSG_LEN(0));
	memcpy(w, CMSG_DATA(c), sizeof(w));
	n.token = (a->tokens & ~0xffffffffull) | w[0];
	n.status = (int32_t)w[1];
	return n;
}

static int wire_send(struct actor *a, struct request *r)
{
	struct sockaddr_in to = name(r->to);
	struct out o;
	int rc;

	out_begin(&o, &to, r->payload, r->len);
	if (r->cmsg == CMSG_ARGS && marks)
		old_args(&o, r);
	else if (r->cmsg == CMSG_ARGS)
		out_cmsg(&o, CMSG_ARGS, &r->args, sizeof(r->args));
	else if (r->cmsg == CMSG_DEST)
		out_cmsg(&o, CMSG_DEST, &r->dest, sizeof(r->dest));
	else if (r->cmsg == CMSG_MAP)
		out_cmsg(&o, CMSG_MAP, &r->map, sizeof(r->map));
	else if (r->cmsg && r->as_vendor)
		out_cmsg(&o, r->cmsg, &r->vendor, sizeof(r->vendor));
	else if (r->cmsg)
		out_cmsg(&o, r->cmsg, &r->atomic, sizeof(r->atomic));
	rc = out_send(&o, a->fd, MSG_DONTWAIT);
	if (rc >= 0 && (size_t)rc != r->len)
		actor_fail(a, "sendmsg of %zu bytes: came %d", r->len, rc);
	return rc < 0 ? rc : 0;
}

static bool wire_recv(struct actor *a, struct arrival *in)
{
	static unsigned char body[sizeof(struct header) + 65536];
	_Alignas(8) unsigned char control[8 * 32];
	struct sockaddr_in from;
	struct iovec iov = {body, sizeof(body)};
	struct msghdr m = {.msg_name = &from,
			   .msg_namelen = sizeof(from),
			   .msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(a->fd, &m, MSG_DONTWAIT);
	struct cmsghdr *c;

	if (n < 0) {
		if (errno != EAGAIN)
			actor_fail(a, "recvmsg: %m");
		return false;
	}
	/* Old programs are given an empty name with a notification. */
	*in = (struct arrival){.len = (size_t)n, .body = body, .letter = m.msg_namelen != 0 && from.sin_addr.s_addr};
	for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_RDS)
			continue;
		if (c->cmsg_type == CMSG_STATUS && in->notes < 8)
			in->note[in->notes++] = note_of(a, c);
		else if (c->cmsg_type == CMSG_DEST)
			memcpy(&in->cookie, CMSG_DATA(c), sizeof(in->cookie));
	}
	if (in->letter) {
		in->from = (unsigned)ntohs(from.sin_port) - PORT;
		if (in->notes)
			actor_fail(a, "notifications together with a message");
		if (in->from < actors && from.sin_addr.s_addr != name(in->from).sin_addr.s_addr)
			actor_fail(a, "a message from %s port %u", inet_ntoa(from.sin_addr), ntohs(from.sin_port));
	}
	return true;
}

static int wire_cancel(struct actor *a, unsigned to)
{
	struct sockaddr_in sin = name(to);

	return setsockopt(a->fd, SOL_RDS, OPT_CANCEL_SENT_TO, &sin, sizeof(sin)) ? -errno : 0;
}

static void wire_wait(struct actor *const *a, unsigned n, int ms)
{
	struct pollfd p[ACTORS_MAX];
	unsigned i;

	for (i = 0; i < n; i++)
		p[i] = (struct pollfd){.fd = a[i]->fd, .events = POLLIN};
	poll(p, n, ms);
}

const struct wire real_wire = {
	wire_open, wire_close,	wire_get_mr, wire_free_mr, wire_send,
	wire_recv, wire_cancel, wire_wait,   wire_place,   wire_mark,
};
