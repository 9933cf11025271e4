/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rdmaop.c - RDMA operations with an immediate message each: the initiator writes into regions of
 * the target, or reads them.
 *
 * A region per operation in flight, all made once.  The target checks each write when its message
 * arrives and acknowledges every half window (a message of its own); an operation uses a buffer
 * again only when that has come.  With one in flight that is a round trip.  A read is over when its
 * notification says so, which is when the initiator checks it: it blanks its buffer before.  The
 * message of a read may be there earlier, so that acknowledgements only keep the target from
 * falling behind.
 *
 * On the AF_UNIX side, and with what=message, the bytes of a write go in the message, straight from
 * and to the same buffers.
 */
#include "bench.h"

#include <errno.h>
#include <linux/rds.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE 64u /* bytes of an immediate message and of each other */
#define MOST 64u    /* operations in flight */

struct side {
	const struct options *o;
	struct sock s;
	bool in_message; /* the bytes of an operation */
	struct slots slots;
	uint64_t cookies[MOST];
	uint64_t came;	/* cookie that came with the last message */
	uint64_t next;	/* operation that is next */
	uint64_t acked; /* initiator: operations whose messages the target has acknowledged */
	uint64_t done;	/* initiator: reads that have been notified */
	bool busy[MOST];
};

static void open_side(struct side *d, const struct options *o)
{
	struct options messages = *o;

	if (!o->window || o->window > MOST)
		die("1 to %u operations in flight", MOST);
	memset(d, 0, sizeof(*d));
	d->o = o;
	d->in_message = !o->rds || strcmp(o->what, "message") == 0;
	if (o->read && d->in_message)
		die("a message does not read");
	messages.size = MESSAGE;
	sock_open(&d->s, &messages);
	slots_init(&d->slots, o, -1);
	slots_blank(&d->slots);
}

static void close_side(struct side *d)
{
	sock_close(&d->s);
	slots_free(&d->slots);
}

/* What the target has in a buffer that is read. */
static uint64_t readable(uint64_t seq, unsigned window)
{
	return slot_blank(seq % window);
}

/* What an initiator has in a buffer before the read. */
static uint64_t unread(uint64_t seq)
{
	return ~seq;
}

static void notified(struct side *d, const struct cmsghdr *c)
{
	struct rds_rdma_notify n;
	unsigned i;

	if (c->cmsg_len < CMSG_LEN(sizeof(n.user_token) + sizeof(n.status)))
		die("a notification of %zu bytes", (size_t)c->cmsg_len);
	memcpy(&n.user_token, CMSG_DATA(c), sizeof(n.user_token));
	memcpy(&n.status, CMSG_DATA(c) + sizeof(n.user_token), sizeof(n.status));
	if (n.status != RDS_RDMA_SUCCESS)
		die("operation %llu failed with status %d", (unsigned long long)n.user_token, (int)n.status);
	i = (unsigned)(n.user_token % d->slots.n);
	if (!d->o->read || !d->busy[i] || n.user_token >= d->next || n.user_token + d->slots.n < d->next)
		die("operation %llu is notified and not under way", (unsigned long long)n.user_token);
	slot_expect(&d->slots, n.user_token, readable(n.user_token, d->slots.n), "read");
	d->busy[i] = false;
	d->done++;
}

static void control(struct side *d, struct msghdr *msg)
{
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_RDS)
			continue;
		if (c->cmsg_type == RDS_CMSG_RDMA_STATUS)
			notified(d, c);
		else if (c->cmsg_type == RDS_CMSG_RDMA_DEST && c->cmsg_len >= CMSG_LEN(sizeof(d->came)))
			memcpy(&d->came, CMSG_DATA(c), sizeof(d->came));
	}
}

/* One recvmsg; true: a message, which lies in s.buf; false: what came with it or instead of it. */
static bool take(struct side *d)
{
	_Alignas(8) char room[MOST * CMSG_SPACE(sizeof(struct rds_rdma_notify))];
	struct iovec iov[2] = {{d->s.buf, MESSAGE}, {slot(&d->slots, d->next), d->slots.size}};
	struct sockaddr_storage from;
	struct msghdr msg = {.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = iov, .msg_iovlen = 1};
	ssize_t n, want = MESSAGE;

	if (d->s.rds) {
		msg.msg_control = room;
		msg.msg_controllen = sizeof(room);
	}
	if (d->in_message)
		msg.msg_iovlen = 2;
	n = recvmsg(d->s.fd, &msg, 0);
	if (n < 0)
		die("recvmsg: %s", strerror(errno));
	if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		die("recvmsg: %zd bytes and more, flags %x", n, (unsigned)msg.msg_flags);
	control(d, &msg);
	if (d->s.rds && !n && !msg.msg_namelen)
		return false;
	sock_check(&d->s, n < (ssize_t)MESSAGE ? n : (ssize_t)MESSAGE);
	if (d->in_message && (sock_message(&d->s)->kind == KIND_WARM || sock_message(&d->s)->kind == KIND_DATA))
		want += d->slots.size;
	if (n != want)
		die("recvmsg: %zd bytes instead of %zd", n, want);
	sock_came_from(&d->s, &from, msg.msg_namelen);
	return true;
}

/* ---- the initiator ---- */

static void send_operation(struct side *d, enum kind kind)
{
	const struct options *o = d->o;
	_Alignas(8) char room[CMSG_SPACE(sizeof(struct rds_rdma_args))] = {0};
	struct rds_iovec local = {(uintptr_t)slot(&d->slots, d->next), o->size};
	struct rds_rdma_args args = {.cookie = d->cookies[d->next % o->window],
				     .remote_vec = {0, o->size},
				     .local_vec_addr = (uintptr_t)&local,
				     .nr_local = 1,
				     .flags = o->read ? RDS_RDMA_NOTIFY_ME : RDS_RDMA_READWRITE,
				     .user_token = d->next};
	struct iovec iov[2] = {{d->s.buf, MESSAGE}, {slot(&d->slots, d->next), o->size}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
	ssize_t n, want = MESSAGE + o->size;
	struct cmsghdr *c;

	sock_fill(&d->s, MESSAGE, kind, 0, d->next);
	if (d->s.rds) {
		msg.msg_name = &d->s.peer;
		msg.msg_namelen = d->s.peerlen;
	}
	if (!d->in_message) {
		msg.msg_iovlen = 1;
		msg.msg_control = room;
		msg.msg_controllen = sizeof(room);
		c = CMSG_FIRSTHDR(&msg);
		*c = (struct cmsghdr){
			.cmsg_level = SOL_RDS, .cmsg_type = RDS_CMSG_RDMA_ARGS, .cmsg_len = CMSG_LEN(sizeof(args))};
		memcpy(CMSG_DATA(c), &args, sizeof(args));
		want = MESSAGE;
	}
	n = sendmsg(d->s.fd, &msg, 0);
	if (n != want)
		die("operation %llu: %zd %s", (unsigned long long)d->next, n, n < 0 ? strerror(errno) : "");
}

static void take_ack(struct side *d)
{
	const struct message *m = sock_message(&d->s);

	if (!take(d))
		return;
	if (m->kind != KIND_ACK || m->seq < d->acked || m->seq >= d->next)
		die("expected an acknowledgement of %llu to %llu, got kind %u, number %llu",
		    (unsigned long long)d->acked, (unsigned long long)d->next, m->kind, (unsigned long long)m->seq);
	d->acked = m->seq + 1;
}

static void one_operation(struct side *d, enum kind kind)
{
	const unsigned window = d->slots.n, ahead = d->o->read ? 2 * window : window;
	const unsigned i = (unsigned)(d->next % window);

	while (d->next - d->acked >= ahead || d->busy[i])
		take_ack(d);
	slot_mark(&d->slots, d->next, d->o->read ? unread(d->next) : d->next + 1);
	d->busy[i] = d->o->read;
	send_operation(d, kind);
	d->next++;
}

/* Operations for so long, whole windows of them, until all are over; how many. */
static uint64_t operate(struct side *d, enum kind kind, uint64_t ns)
{
	/* Look at the clock seldom enough to be free, often enough to end in time. */
	const unsigned stride = d->slots.n * (d->o->size <= 4096 ? 8 : 1);
	uint64_t first = d->next, end = now_ns() + ns;

	while (d->next == first || (d->next - first) % stride || now_ns() < end)
		one_operation(d, kind);
	while (d->acked < d->next || (d->o->read && d->done < d->next))
		take_ack(d);
	return d->next - first;
}

static void learn_cookies(struct side *d)
{
	const struct message *m = sock_message(&d->s);
	unsigned i;
	int on = 1;

	/*
	 * A failure without NOTIFY_ME is told as well: the row then says so and does not just hang.
	 */
	if (setsockopt(d->s.fd, SOL_RDS, RDS_RECVERR, &on, sizeof(on)) < 0)
		die("RDS_RECVERR: %s", strerror(errno));
	sock_send(&d->s, MESSAGE, KIND_HELLO, 0, 0);
	for (i = 0; i < d->slots.n; i++) {
		d->came = 0;
		while (!take(d))
			;
		if (m->kind != KIND_HELLO || m->seq != i)
			die("expected the key of region %u, got kind %u, number %llu", i, m->kind,
			    (unsigned long long)m->seq);
		d->cookies[i] = d->o->map ? d->came : m->stamp;
		if (!d->cookies[i])
			die("region %u has no key", i);
	}
}

static void initiator(const struct options *o)
{
	struct side d;
	struct usage u;
	uint64_t n;

	open_side(&d, o);
	sock_await_peer(&d.s);
	if (!d.in_message)
		learn_cookies(&d);
	operate(&d, KIND_WARM, 50000000);
	say("ready");
	hear("go", NULL, 0);
	u = usage_now();
	n = operate(&d, KIND_DATA, (uint64_t)(o->seconds * 1e9));
	u = usage_since(u);
	sock_send(&d.s, MESSAGE, KIND_END, 0, d.next);
	while (!take(&d))
		;
	if (sock_message(&d.s)->kind != KIND_END)
		die("expected the end, got kind %u", sock_message(&d.s)->kind);
	say("result msgs=%llu ns=%llu cpu_ns=%llu", (unsigned long long)n, (unsigned long long)u.wall,
	    (unsigned long long)u.cpu);
	close_side(&d);
}

/* ---- the target ---- */

/*
 * The region goes to the initiator with the message: kernel RDS knows no other way (RDS_GET_MR:
 * EOPNOTSUPP).
 */
static void send_mapped(struct side *d, unsigned i)
{
	_Alignas(8) char room[CMSG_SPACE(sizeof(struct rds_get_mr_args))] = {0};
	struct rds_get_mr_args args = {.vec = {(uintptr_t)slot(&d->slots, i), d->slots.size},
				       .cookie_addr = (uintptr_t)&d->cookies[i],
				       .flags = RDS_RDMA_READWRITE};
	struct iovec iov = {d->s.buf, MESSAGE};
	struct msghdr msg = {.msg_name = &d->s.peer,
			     .msg_namelen = d->s.peerlen,
			     .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = room,
			     .msg_controllen = sizeof(room)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	uint64_t end = now_ns() + 5000000000u;
	ssize_t n;

	*c = (struct cmsghdr){
		.cmsg_level = SOL_RDS, .cmsg_type = RDS_CMSG_RDMA_MAP, .cmsg_len = CMSG_LEN(sizeof(args))};
	memcpy(CMSG_DATA(c), &args, sizeof(args));
	sock_fill(&d->s, MESSAGE, KIND_HELLO, 0, i);
	/*
	 * EAGAIN on a blocking socket, too, as long as the connection this way is not up; just
	 * before, EINVAL.
	 */
	while ((n = sendmsg(d->s.fd, &msg, 0)) < 0 && (errno == EAGAIN || errno == EINVAL) && now_ns() < end)
		usleep(1000);
	if (n != (ssize_t)MESSAGE)
		die("a message with RDMA_MAP: %zd %s", n, n < 0 ? strerror(errno) : "");
}

static void send_region(struct side *d, unsigned i)
{
	struct rds_get_mr_args args = {.vec = {(uintptr_t)slot(&d->slots, i), d->slots.size},
				       .cookie_addr = (uintptr_t)&d->cookies[i],
				       .flags = RDS_RDMA_READWRITE};

	if (setsockopt(d->s.fd, SOL_RDS, RDS_GET_MR, &args, sizeof(args)) < 0)
		die("RDS_GET_MR: %s", strerror(errno));
	sock_message(&d->s)->stamp = d->cookies[i];
	sock_send(&d->s, MESSAGE, KIND_HELLO, 0, i);
}

static void end_regions(struct side *d)
{
	unsigned i;

	for (i = 0; i < d->slots.n; i++) {
		struct rds_free_mr_args args = {.cookie = d->cookies[i], .flags = RDS_RDMA_INVALIDATE};

		if (setsockopt(d->s.fd, SOL_RDS, RDS_FREE_MR, &args, sizeof(args)) < 0)
			die("RDS_FREE_MR: %s", strerror(errno));
	}
}

/* The message of an operation is in s.buf. */
static void arrived(struct side *d)
{
	const unsigned every = d->slots.n > 1 ? d->slots.n / 2 : 1;
	const uint64_t seq = sock_message(&d->s)->seq;

	if (seq != d->next)
		die("the message of operation %llu instead of %llu", (unsigned long long)seq,
		    (unsigned long long)d->next);
	if (!d->o->read)
		slot_expect(&d->slots, seq, seq + 1, "write");
	d->next++;
	if (d->next % every == 0)
		sock_send(&d->s, MESSAGE, KIND_ACK, 0, seq);
}

static void target(const struct options *o)
{
	unsigned kind, i;
	struct side d;
	uint64_t msgs = 0;

	open_side(&d, o);
	sock_announce(&d.s);
	say("ready");
	do {
		while (!take(&d))
			;
		kind = sock_message(&d.s)->kind;
		switch (kind) {
		case KIND_HELLO:
			for (i = 0; i < d.slots.n; i++)
				(o->map ? send_mapped : send_region)(&d, i);
			break;
		case KIND_WARM:
		case KIND_DATA:
			msgs += kind == KIND_DATA;
			arrived(&d);
			break;
		case KIND_END:
			sock_send(&d.s, MESSAGE, KIND_END, 0, d.next);
			break;
		default:
			die("message of kind %u", kind);
		}
	} while (kind != KIND_END);
	if (!d.in_message)
		end_regions(&d);
	say("result msgs=%llu", (unsigned long long)msgs);
	close_side(&d);
}

void run_rdmaop(const struct options *o)
{
	if (strcmp(o->role, "target") == 0)
		target(o);
	else
		initiator(o);
}
