/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * carry_serve.c - a holder's call, made by the carrier: what was copied along becomes pointers, what comes out becomes an
 * answer.
 *
 * Every call is made as if MSG_DONTWAIT were set; whether it has to sleep is told to carry.c, which tries again.  What a
 * program would be told about its own memory (EFAULT) the holder finds out itself, so pointers here are good, or NULL where the
 * program's were not.  Must not know of channels.
 */
#include "engine/carry.h"

#include <stdlib.h>
#include <string.h>

#include "engine/cmsg.h"

static void fail(struct rds_carry_result *r, int err)
{
	r->a.result = err;
}

/* Addresses in it are the other process's: its memory is not here. */
static void not_here(struct rds_carry_result *r)
{
	rds_warn_once(
		"RDMA on a socket that another process carries: regions and operations belong to the process that "
		"opened the socket (EOPNOTSUPP)");
	fail(r, -EOPNOTSUPP);
}

/* ---- messages ---- */

static bool names_memory(const struct msghdr *msg)
{
	const unsigned of_memory = RDS_HAS_ARGS | RDS_HAS_ATOMIC | RDS_HAS_MAP;
	struct rds_cmsg_in c;

	rds_cmsg_in_init(&c, msg);
	while (rds_cmsg_in_next(&c) > 0)
		if (rds_cmsg_in_is_rds(&c) && (rds_cmsg_kind(c.hdr.cmsg_type) & of_memory))
			return true;
	return false;
}

static void serve_send(struct rds_carry *c, const struct rds_share_call *call, struct rds_carry_result *r)
{
	const struct rds_share_request *q = &call->req;
	struct iovec iov = {call->data, q->big ? q->big : q->data_len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (q->total > iov.iov_len) { /* too long for any message: its bytes are not asked for before that is said */
		iov.iov_base = NULL;
		iov.iov_len = q->total;
	}
	if (q->has_name) {
		msg.msg_name = call->name;
		msg.msg_namelen = q->name_len;
	}
	if (q->control_len) {
		msg.msg_control = call->control;
		msg.msg_controllen = q->control_len;
		if (names_memory(&msg)) {
			not_here(r);
			return;
		}
	}
	r->a.result = rds_sendmsg(c->sk, atomic_load(&c->standin), &msg, q->flags | MSG_DONTWAIT);
	r->sleeps = r->a.result == -EAGAIN || r->a.result == -ENOBUFS;
}

static void serve_recv(struct rds_carry *c, const struct rds_share_call *call, struct rds_carry_result *r)
{
	const struct rds_share_request *q = &call->req;
	uint32_t room = q->room < RDS_SHARE_BIG ? q->room : RDS_SHARE_BIG;
	uint32_t croom = q->control_room < RDS_SHARE_CONTROL ? q->control_room : RDS_SHARE_CONTROL;
	struct msghdr msg = {0};
	struct iovec iov;

	r->data = malloc(room + 1u);
	r->control = malloc(croom + 1u);
	if (!r->data || !r->control) {
		fail(r, -ENOMEM);
		return;
	}
	iov = (struct iovec){r->data, room};
	msg.msg_iov = &iov;
	msg.msg_iovlen = 1;
	msg.msg_control = r->control;
	msg.msg_controllen = croom;
	if (q->has_name) {
		msg.msg_name = r->name;
		msg.msg_namelen = sizeof(r->name);
	}
	r->a.result =
		rds_recv_for(c->sk, atomic_load(&c->standin), &msg, q->flags | MSG_DONTWAIT, q->may_wait, &r->taken);
	r->sleeps = r->a.result == -EAGAIN && !(q->flags & MSG_ERRQUEUE);
	if (r->a.result < 0)
		return;
	r->a.data_len = r->a.result < (int64_t)room ? (uint32_t)r->a.result : room; /* MSG_TRUNC may say more */
	r->a.control_len = (uint32_t)msg.msg_controllen;
	r->a.name_len = q->has_name && msg.msg_namelen <= RDS_SHARE_NAME ? (uint32_t)msg.msg_namelen : 0;
	r->a.flags = msg.msg_flags;
}

/* ---- names ---- */

static void serve_name(struct rds_carry *c, const struct rds_share_call *call, struct rds_carry_result *r)
{
	const struct sockaddr *sa = (const struct sockaddr *)(void *)call->name;
	int len = (int)call->req.name_len;

	if (call->req.op == RDS_SHARE_BIND)
		r->a.result = rds_bind(c->sk, sa, len);
	else
		r->a.result = rds_connect(c->sk, sa, len);
}

static void serve_name_of(struct rds_carry *c, const struct rds_share_call *call, struct rds_carry_result *r)
{
	struct sockaddr *sa = (struct sockaddr *)(void *)r->name;
	socklen_t len = sizeof(r->name);

	memset(r->name, 0, sizeof(r->name));
	if (call->req.op == RDS_SHARE_SOCKNAME)
		r->a.result = rds_getsockname(c->sk, sa, &len);
	else
		r->a.result = rds_getpeername(c->sk, sa, &len);
	if (!r->a.result)
		r->a.name_len = (uint32_t)len;
}

/* ---- options ---- */

static void serve_setopt(struct rds_carry *c, const struct rds_share_call *call, struct rds_carry_result *r)
{
	const struct rds_share_request *q = &call->req;
	bool sol_rds = q->level == SOL_RDS || q->level == SOL_RDS_HISTORIC;

	if (sol_rds && (q->opt == RDS_BARRIER || q->opt == RDS_GET_MR_FOR_DEST ||
			(q->opt == RDS_GET_MR && q->arg != sizeof(int)))) { /* an int: RDS_SNDBUF of 2006 */
		not_here(r);
		return;
	}
	if (q->has_name && q->arg > q->data_len && q->data_len < RDS_SHARE_OPTION) {
		fail(r, -EFAULT);
		return;
	}
	/* What could not be read is no address here either. */
	r->a.result = rds_setsockopt(c->sk, atomic_load(&c->standin), q->level, q->opt, q->has_name ? call->data : NULL,
				     (socklen_t)q->arg);
}

static void serve_getopt(struct rds_carry *c, const struct rds_share_call *call, struct rds_carry_result *r)
{
	const struct rds_share_request *q = &call->req;
	socklen_t len = (socklen_t)q->arg;

	if ((int)len > (int)RDS_SHARE_BIG)
		len = RDS_SHARE_BIG;
	if (q->has_name && (int)len >= 0)
		r->data = calloc(1, (size_t)len + sizeof(uint64_t));
	if (q->has_name && (int)len >= 0 && !r->data) {
		fail(r, -ENOMEM);
		return;
	}
	r->a.result = rds_getsockopt(c->sk, atomic_load(&c->standin), q->level, q->opt, r->data, &len);
	r->a.len = len;
	r->a.data_len = r->data && r->a.result >= 0 && len <= q->arg ? len : 0;
}

static void serve_ioctl(struct rds_carry *c, const struct rds_share_call *call, struct rds_carry_result *r)
{
	r->data = calloc(1, RDS_SHARE_NAME);
	if (!r->data) {
		fail(r, -ENOMEM);
		return;
	}
	memcpy(r->data, call->data, call->req.data_len < RDS_SHARE_NAME ? call->req.data_len : RDS_SHARE_NAME);
	r->a.result = rds_ioctl(c->sk, (unsigned long)call->req.arg, call->req.has_name ? r->data : NULL);
	r->a.data_len = RDS_SHARE_NAME;
}

/* ---- the rest ---- */

static void serve_watch(struct rds_carry *c, const struct rds_share_call *call, struct rds_carry_result *r)
{
	(void)r;
	rds_sock_watch(c->sk, atomic_load(&c->standin), call->req.opt != 0);
}

static void serve_error(struct rds_carry *c, const struct rds_share_call *call, struct rds_carry_result *r)
{
	if (call->req.op == RDS_SHARE_TAKE_ERROR)
		r->a.result = rds_sock_take_error(c->sk);
	else
		rds_sock_set_error(c->sk, call->req.opt);
}

typedef void serve_fn(struct rds_carry *c, const struct rds_share_call *call, struct rds_carry_result *r);
static serve_fn *const serves[RDS_SHARE_OPS] = {
	[RDS_SHARE_SEND] = serve_send,	   [RDS_SHARE_RECV] = serve_recv,	 [RDS_SHARE_BIND] = serve_name,
	[RDS_SHARE_CONNECT] = serve_name,  [RDS_SHARE_SOCKNAME] = serve_name_of, [RDS_SHARE_PEERNAME] = serve_name_of,
	[RDS_SHARE_SETOPT] = serve_setopt, [RDS_SHARE_GETOPT] = serve_getopt,	 [RDS_SHARE_IOCTL] = serve_ioctl,
	[RDS_SHARE_WATCH] = serve_watch,   [RDS_SHARE_TAKE_ERROR] = serve_error, [RDS_SHARE_SET_ERROR] = serve_error,
};

void rds_carry_serve(struct rds_carry *c, const struct rds_share_call *call, struct rds_carry_result *r)
{
	serve_fn *fn = serves[call->req.op];

	memset(&r->a, 0, sizeof(r->a));
	r->control = r->data = NULL;
	r->taken = NULL;
	r->sleeps = false;
	if (!fn || atomic_load(&c->sk->leaving)) {
		fail(r, fn ? -EBADF : -EPROTO);
		return;
	}
	fn(c, call, r);
}

void rds_carry_result_free(struct rds_carry_result *r)
{
	free(r->control);
	free(r->data);
	r->control = r->data = NULL;
}
