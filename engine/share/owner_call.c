/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * owner_call.c - the owner makes a borrower's call: the bytes in the request become pointers, the
 * results become a reply.
 *
 * Every call is made as if MSG_DONTWAIT were set.  r->sleeps says that the call has to sleep;
 * owner_sleep.c makes it again later.  The borrower itself checks its program's pointers (EFAULT).
 * So pointers here are good, or NULL or NO_MEMORY where the program's were bad.  A message that the
 * borrower has not read comes back here.  Helper thread only.
 *
 * Must not know channels.
 */
#include "engine/share/owner.h"

#include <stdlib.h>
#include <string.h>

#include "engine/abi/revisions.h"
#include "engine/conn/shown.h"
#include "engine/rdma/mr.h"
#include "engine/rdma/rdma.h"
#include "engine/share/rdma_probe.h"
#include "engine/calls/sockopt.h"
#include "engine/calls/recv.h"
#include "rds_abi.h"

#define NO_MEMORY ((void *)8) /* no process has memory at that address */

static void reply_set_error(struct rds_owner_reply *r, int err)
{
	r->a.result = err;
}

/* ---- memory ---- */

/*
 * From here on the call counts as the borrower's: its ABI revision, its rights and, with memory,
 * its addresses.
 */
static void caller_set(const struct rds_owner_request *call, struct rds_foreign_memory *memory,
		       struct rds_owner_reply *r)
{
	static struct rds_caller caller; /* one helper makes one call at a time */
	const struct rds_share_request *q = &call->req;

	caller = (struct rds_caller){.memory = memory,
				     .pid = call->pid,
				     .made = &r->a.made,
				     .fault = q->fault,
				     .word = q->word,
				     .numbers = q->about & RDS_SHARE_NUMBERS,
				     .info = q->about & (RDS_SHARE_NO_PIN - 1),
				     .no_pin = q->about & RDS_SHARE_NO_PIN,
				     .abi = q->abi,
				     .epoch = q->epoch};
	rds_caller = &caller;
}

/*
 * Addresses in the call are the borrower's.  The borrower grants its memory before the first such
 * call, if it can and may.
 */
static bool caller_set_memory(const struct rds_owner_request *call, bool needed, struct rds_owner_reply *r)
{
	if (needed && !call->memory) {
		rds_warn_once("RDMA fails (EOPNOTSUPP) in a process that shares a socket of this one: its memory "
			      "cannot be reached from here (another user, no /proc, or not dumpable)");
		reply_set_error(r, -EOPNOTSUPP);
		return false;
	}
	caller_set(call, needed ? call->memory : NULL, r);
	return true;
}

/* ---- messages ---- */

/* Shows a full socket in the stand-in: borrowers poll that before a send is refused. */
static void owner_show_full(struct rds_owner *c)
{
	if (!rds_sock_writable(c->sk))
		rds_sock_show_refused(c->sk, atomic_load(&c->standin));
}

static void serve_send(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r)
{
	const struct rds_share_request *q = &call->req;
	struct iovec iov = {call->data, q->big ? q->big : q->data_len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	/* Too long for any message: the send is refused for that before its bytes are looked at. */
	if (q->total > iov.iov_len) {
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
		if (!caller_set_memory(call, rds_share_msg_names_memory(&msg), r))
			return;
	}
	rds_op_async_refused = false;
	r->a.result = rds_call_sendmsg(c->sk, atomic_load(&c->standin), &msg, q->flags | MSG_DONTWAIT);
	rds_caller = NULL;
	/*
	 * A send that is refused because of failed messages without a read notification does not
	 * sleep (rdma/async_send.c).
	 */
	r->sleeps = (r->a.result == -EAGAIN && !rds_op_async_refused) || r->a.result == -ENOBUFS;
	owner_show_full(c);
}

/*
 * The name that recv stores for a notification, which has no sender, if the owner's program is old.
 * The borrower knows how old its own program is, and stores what that program expects.
 */
static bool name_is_none(const void *name)
{
	static const struct sockaddr_in none = {.sin_family = AF_INET};

	return !memcmp(name, &none, sizeof(none));
}

static void serve_recv(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r)
{
	const struct rds_share_request *q = &call->req;
	uint32_t room = q->room < RDS_SHARE_BIG ? q->room : RDS_SHARE_BIG;
	uint32_t croom = q->control_room < RDS_SHARE_CONTROL ? q->control_room : RDS_SHARE_CONTROL;
	struct msghdr msg = {0};
	struct iovec iov;

	r->data = malloc(room + 1u);
	r->control = malloc(croom + 1u);
	if (!r->data || !r->control) {
		reply_set_error(r, -ENOMEM);
		return;
	}
	iov = (struct iovec){r->data, room};
	msg.msg_iov = &iov;
	msg.msg_iovlen = 1;
	msg.msg_control = q->fault ? NO_MEMORY : r->control;
	msg.msg_controllen = croom;
	if (q->has_name) {
		msg.msg_name = r->name;
		msg.msg_namelen = sizeof(r->name);
	}
	r->a.result = rds_call_recv_proxy(c->sk, atomic_load(&c->standin), &msg, q->flags | MSG_DONTWAIT, q->may_wait,
					  &r->taken);
	r->sleeps = r->a.result == -EAGAIN && !(q->flags & MSG_ERRQUEUE);
	if (r->a.result < 0)
		return;
	/* With MSG_TRUNC the result may be more than the room. */
	r->a.data_len = r->a.result < (int64_t)room ? (uint32_t)r->a.result : room;
	r->a.control_len = (uint32_t)msg.msg_controllen;
	if (q->has_name && msg.msg_namelen <= RDS_SHARE_NAME && !name_is_none(r->name))
		r->a.name_len = (uint32_t)msg.msg_namelen;
	r->a.flags = msg.msg_flags;
}

/* To the head of the queue, but behind messages that came back and were taken earlier. */
static void sock_requeue_message(struct rds_sock *sk, struct rds_inc *inc)
{
	struct rds_inc **link = &sk->rx_head;

	while (*link && (*link)->taken && (*link)->taken < inc->taken)
		link = &(*link)->next;
	inc->next = *link;
	*link = inc;
	if (!inc->next)
		sk->rx_tail = &inc->next;
}

void rds_owner_put_back(struct rds_sock *sk, struct rds_inc *inc)
{
	struct rds_owner *c = rds_owner_find(sk);

	rx_lock();
	if (c && sk->nshown)
		rds_inc_shown_take_back(sk, atomic_load(&c->standin));
	if (atomic_load(&sk->open) || atomic_load(&sk->handing_off)) {
		sock_requeue_message(sk, inc);
		sk->rcv_count++;
		sk->rcv_bytes += inc->len;
		if (sk->rcv_bytes > rds_sock_rcvbuf(sk))
			rds_cong_check(sk);
		rds_sock_wake(sk, POLLIN | POLLRDNORM | RDS_WAIT_RECV);
	} else {
		rds_inc_free(inc);
	}
	rx_unlock();
}

/* ---- names ---- */

static void serve_name(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r)
{
	const struct sockaddr *sa = (const struct sockaddr *)(void *)call->name;
	int len = (int)call->req.name_len;

	if (call->req.op == RDS_SHARE_BIND)
		r->a.result = rds_call_bind_once(c->sk, sa, len, !call->req.may_wait);
	else
		r->a.result = rds_call_connect(c->sk, sa, len);
}

static void serve_name_of(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r)
{
	struct sockaddr *sa = (struct sockaddr *)(void *)r->name;
	socklen_t len = sizeof(r->name);

	memset(r->name, 0, sizeof(r->name));
	if (call->req.op == RDS_SHARE_SOCKNAME)
		r->a.result = rds_call_getsockname(c->sk, sa, &len);
	else
		r->a.result = rds_call_getpeername(c->sk, sa, &len);
	if (!r->a.result)
		r->a.name_len = (uint32_t)len;
}

/* ---- options ---- */

static void serve_setopt(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r)
{
	const struct rds_share_request *q = &call->req;

	if (q->has_name && q->arg > q->data_len && q->data_len < RDS_SHARE_OPTION) {
		reply_set_error(r, -EFAULT);
		return;
	}
	if (rds_call_opt_is_local(q->level, q->opt) || (rds_abi_level_is_rds(q->level) && q->opt == RDS_BARRIER)) {
		reply_set_error(r, -EPROTO);
		return; /* its value has addresses, or it may wait: not asked for in this way */
	}
	if (!caller_set_memory(call, rds_share_opt_names_memory(q->level, q->opt, (socklen_t)q->arg), r))
		return;
	/* A value that the borrower could not read is no address here either. */
	r->a.result = rds_call_setsockopt(c->sk, atomic_load(&c->standin), q->level, q->opt,
					  q->has_name ? call->data : NULL, (socklen_t)q->arg);
	rds_caller = NULL;
	rds_owner_shown_anew(c); /* what a message is read with may be another thing now */
	owner_show_full(c);
}

static void serve_barrier(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r)
{
	const struct rds_share_request *q = &call->req;
	struct rds_barrier_request req = {0};
	uint64_t mark = 0;
	int bad = q->flags < 0 ? q->flags : 0;

	if (!bad && q->data_len != sizeof(req))
		bad = -EPROTO;
	if (!bad)
		memcpy(&req, call->data, sizeof(req));
	if (!rds_share_is_bool(&req.nonblock)) {
		reply_set_error(r, -EPROTO);
		return;
	}
	req.nonblock |= !q->may_wait;
	r->a.result = rds_op_barrier_proxy(c->sk, atomic_load(&c->standin), bad, &req, &mark);
	r->sleeps = r->a.result > 0;
	if (r->sleeps) /* the result if its timeout is over */
		r->a.result = -EAGAIN;
	r->data = r->a.result && r->a.result != -EAGAIN ? NULL : malloc(sizeof(mark));
	if (r->data) {
		memcpy(r->data, &mark, sizeof(mark));
		r->a.data_len = sizeof(mark);
	}
}

static void serve_getopt(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r)
{
	const struct rds_share_request *q = &call->req;
	socklen_t len = (socklen_t)q->arg;

	/* The borrower handles these itself; their result may be longer than the length says. */
	if (rds_call_opt_is_local(q->level, q->opt)) {
		reply_set_error(r, -EPROTO);
		return;
	}
	if (q->has_name && (int)len > (int)RDS_SHARE_BIG)
		len = RDS_SHARE_BIG;
	/* Some options accept a negative length. */
	if (q->has_name)
		r->data = calloc(1, ((int)len < 0 ? RDS_SHARE_OPTION : (size_t)len) + sizeof(uint64_t));
	if (q->has_name && !r->data) {
		reply_set_error(r, -ENOMEM);
		return;
	}
	caller_set(call, NULL, r);
	r->a.result = rds_call_getsockopt(c->sk, atomic_load(&c->standin), q->level, q->opt, r->data, &len);
	rds_caller = NULL;
	r->a.len = len;
	r->a.data_len = r->data && r->a.result >= 0 && len <= q->arg ? len : 0;
}

static void serve_ioctl(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r)
{
	r->data = calloc(1, RDS_SHARE_NAME);
	if (!r->data) {
		reply_set_error(r, -ENOMEM);
		return;
	}
	memcpy(r->data, call->data, call->req.data_len < RDS_SHARE_NAME ? call->req.data_len : RDS_SHARE_NAME);
	r->a.result = rds_call_ioctl(c->sk, (unsigned long)call->req.arg, call->req.has_name ? r->data : NULL);
	r->a.data_len = RDS_SHARE_NAME;
}

/* ---- the rest ---- */

static void serve_watch(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r)
{
	(void)r;
	rds_sock_watch(c->sk, atomic_load(&c->standin), call->req.opt != 0);
}

/* Regions that the borrower opened while the socket had an earlier owner. */
static void serve_regions(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r)
{
	struct rds_mr_region region;
	size_t at;

	if (!call->memory) {
		reply_set_error(r, -EOPNOTSUPP);
		return;
	}
	for (at = 0; at + sizeof(region) <= call->req.data_len && !atomic_load(&c->sk->region_freed_by_other);
	     at += sizeof(region)) {
		memcpy(&region, call->data + at, sizeof(region));
		if (rds_mr_restore(c->sk, &region, call->memory))
			rds_warn_once("a memory region of a process that shares an RDS socket of this one is lost with "
				      "the socket's last owner");
	}
}

static void serve_error(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r)
{
	if (call->req.op == RDS_SHARE_TAKE_ERROR)
		r->a.result = rds_sock_take_error(c->sk);
	else if (call->req.opt <= 0 || call->req.opt > RDS_SHARE_ERRNO)
		reply_set_error(r, -EPROTO); /* the next owner would refuse a state with it */
	else
		rds_sock_set_error(c->sk, call->req.opt);
}

typedef void serve_fn(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r);
static serve_fn *const serves[RDS_SHARE_OPS] = {
	[RDS_SHARE_SEND] = serve_send,	     [RDS_SHARE_RECV] = serve_recv,	   [RDS_SHARE_BIND] = serve_name,
	[RDS_SHARE_CONNECT] = serve_name,    [RDS_SHARE_SOCKNAME] = serve_name_of, [RDS_SHARE_PEERNAME] = serve_name_of,
	[RDS_SHARE_SETOPT] = serve_setopt,   [RDS_SHARE_GETOPT] = serve_getopt,	   [RDS_SHARE_IOCTL] = serve_ioctl,
	[RDS_SHARE_WATCH] = serve_watch,     [RDS_SHARE_TAKE_ERROR] = serve_error, [RDS_SHARE_SET_ERROR] = serve_error,
	[RDS_SHARE_BARRIER] = serve_barrier, [RDS_SHARE_REGIONS] = serve_regions,
};

void rds_owner_serve(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r)
{
	serve_fn *fn = serves[call->req.op];

	memset(&r->a, 0, sizeof(r->a));
	r->control = r->data = NULL;
	r->taken = NULL;
	r->sleeps = false;
	if (!fn || atomic_load(&c->sk->handing_off)) {
		reply_set_error(r, fn ? -EBADF : -EPROTO);
		return;
	}
	fn(c, call, r);
}

void rds_owner_reply_free(struct rds_owner_reply *r)
{
	free(r->control);
	free(r->data);
	r->control = r->data = NULL;
}
