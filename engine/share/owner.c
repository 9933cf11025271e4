/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * owner.c - the owner of shared sockets: its channels, and the requests on them (protocol.h).
 *
 * Helper thread only.
 *
 * Invariants: a socket whose borrowers poll it is watched, so the stand-in shows every borrower the
 * true readiness.  The owner keeps its copy of the stand-in exactly as long as a borrower is
 * attached.
 *
 * A borrower is another program: it may be stopped, killed, or send nonsense.  The owner never
 * waits for a borrower.  It closes a channel that does not take its reply or sends an invalid
 * packet.
 *
 * Must not know what calls do (owner_call.c), what they look like in a packet (owner_request.c),
 * how long they sleep (owner_sleep.c), nor how borrowers attach (owner_attach.c).
 */
#include "engine/share/owner.h"

#include <stdlib.h>
#include <string.h>

#include "engine/share/memory_grant.h"
#include "engine/share/lease.h"
#include "engine/calls/close.h"

static struct rds_owner *owned_sockets; /* all shared sockets that have borrowers */
static char *packet; /* the packet being read: one helper reads one at a time */

/* ---- replies ---- */

static int owner_channel_send(struct rds_owner_channel *h, struct iovec *iov, unsigned n, int memfd)
{
	char cbuf[CMSG_SPACE(sizeof(int))] = {0};
	struct msghdr mh = {.msg_iov = iov, .msg_iovlen = n};
	struct cmsghdr *cm;
	ssize_t sent;

	if (memfd >= 0) {
		mh.msg_control = cbuf;
		mh.msg_controllen = sizeof(cbuf);
		cm = CMSG_FIRSTHDR(&mh);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cm), &memfd, sizeof(int));
	}
	sent = os_sendmsg(atomic_load(&h->fd), &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
	return sent < 0 ? (int)sent : 0;
}

int rds_owner_channel_say(struct rds_owner_channel *h, enum rds_share_kind kind, uint32_t seq, int64_t value)
{
	struct rds_share_reply a = {.magic = RDS_SHARE_MAGIC, .kind = (uint16_t)kind, .seq = seq, .result = value};
	struct iovec iov = {&a, sizeof(a)};

	return owner_channel_send(h, &iov, 1, -1);
}

/*
 * Has the borrower withdrawn its request (borrower_wait.c)?  Then it is told that the call was not
 * made.  *more: the channel has further input.  A PUT_BACK counts even from a borrower that has
 * closed the channel: the borrower may end right after it has sent that.
 */
static bool request_is_withdrawn(struct rds_owner_channel *h, const struct rds_owner_request *call, bool *more)
{
	struct pollfd p = {.fd = atomic_load(&h->fd), .events = POLLIN | POLLRDHUP};
	bool gone;

	*more = os_poll(&p, 1, 0) > 0;
	gone = *more && p.revents & (POLLRDHUP | POLLHUP | POLLERR) && call->req.op != RDS_SHARE_PUT_BACK;
	if (gone)
		rds_owner_channel_say(h, RDS_SHARE_RETRY, call->req.seq, 0);
	return gone;
}

int rds_owner_send_reply(struct rds_owner_channel *h, uint32_t seq, struct rds_owner_reply *r)
{
	struct iovec iov[4] = {{&r->a, sizeof(r->a)},
			       {r->name, r->a.name_len},
			       {r->control, r->a.control_len},
			       {r->data, r->a.data_len}};
	int memfd = -1, err;

	r->a.magic = RDS_SHARE_MAGIC;
	r->a.kind = RDS_SHARE_REPLY;
	r->a.seq = seq;
	r->a.has_message = r->taken != NULL;
	if (r->a.data_len > RDS_SHARE_INLINE) {
		do
			memfd = os_memfd_sealed(&(struct iovec){.iov_base = r->data, .iov_len = r->a.data_len}, 1);
		while (memfd == -EMFILE && rds_owner_want_room());
		if (memfd < 0)
			return memfd;
		r->a.big = r->a.data_len;
		r->a.data_len = 0;
	}
	iov[3].iov_len = r->a.data_len;
	err = owner_channel_send(h, iov, 4, memfd);
	if (memfd >= 0)
		os_close(memfd);
	return err;
}

int rds_owner_send_result(struct rds_owner_channel *h, uint32_t seq, int64_t result)
{
	struct rds_owner_reply r = {.a = {.result = result}};

	return rds_owner_send_reply(h, seq, &r);
}

/* ---- detaching ---- */

/* The borrower has read its last reply (read), or never will: then the message goes back. */
static void owner_settle_unread(struct rds_owner_channel *h, bool read)
{
	struct rds_inc *inc = h->unread;

	h->unread = NULL;
	if (!inc)
		return;
	if (!read) {
		rds_owner_put_back(h->owner->sk, inc);
		return;
	}
	rx_lock();
	rds_inc_free(inc);
	rx_unlock();
}

void rds_owner_end(struct rds_owner *c)
{
	struct rds_owner **p;
	struct rds_sock *sk = c->sk;

	for (p = &owned_sockets; *p != c; p = &(*p)->next)
		;
	*p = c->next;
	rds_owner_shown_end(c);
	/* If ours was the last copy, our end of the pair hangs up, and the socket is closed. */
	os_close_slot(&c->standin);
	free(c);
	(void)rds_call_check_hangup(sk);
	rds_sock_put(sk);
}

static void owner_detach_channel(struct rds_owner_channel *h, bool read)
{
	struct rds_owner *c = h->owner;
	struct rds_owner_channel **p;

	rds_owner_sleep_end(h);
	owner_settle_unread(h, read);
	for (p = &c->channels; *p != h; p = &(*p)->next)
		;
	*p = h->next;
	if (!c->channels)
		rds_owner_end(c);
	/* Last: a borrower's last close waits for this (rds_borrower_close_wait()). */
	rds_helper_event_del(atomic_load(&h->fd));
	os_close_slot(&h->fd);
	rds_foreign_memory_put(h->memory);
	free(h);
}

/* ---- requests ---- */

/* The call was not made: the borrower makes it anew, over another channel or with another owner. */
static void owner_send_retry(struct rds_owner_channel *h, uint32_t seq)
{
	rds_owner_channel_say(h, RDS_SHARE_RETRY, seq, 0);
	owner_detach_channel(h, true);
}

static int owner_send_outcome(struct rds_owner_channel *h, uint32_t seq, struct rds_owner_reply *r)
{
	int err = rds_owner_send_reply(h, seq, r);

	if (err != -EMFILE && err != -ENFILE && err != -ENOMEM && err != -EFBIG)
		return err;
	/* There is no file for its bytes: its message waits for the next call. */
	owner_settle_unread(h, false);
	return rds_owner_send_result(h, seq, err);
}

bool rds_owner_try_call(struct rds_owner_channel *h, const struct rds_owner_request *call, bool slept, bool *gone)
{
	bool send = call->req.op == RDS_SHARE_SEND, more;
	struct rds_owner_reply r;
	int err = 0;

	*gone = false;
	if (slept && atomic_load(&h->owner->sk->handing_off)) {
		*gone = true;
		owner_send_retry(h, call->req.seq);
		return true;
	}
	/*
	 * READY is sent before the send is made: an owner that is killed after it has sent must not
	 * be taken for one that has not.
	 */
	if (slept && send &&
	    (rds_owner_channel_say(h, RDS_SHARE_READY, call->req.seq, 0) || request_is_withdrawn(h, call, &more))) {
		*gone = true;
		owner_detach_channel(h, false);
		return true;
	}
	rds_owner_serve(h->owner, call, &r);
	if (r.a.result == -EBADF && atomic_load(&h->owner->sk->handing_off)) {
		rds_owner_reply_free(&r);
		*gone = true;
		owner_send_retry(h, call->req.seq);
		return true;
	}
	if (r.sleeps && call->req.may_wait) {
		h->congested = r.a.result == -ENOBUFS;
		rds_owner_reply_free(&r);
		if (!slept || !send || !rds_owner_sleep_say(h, call))
			return false;
		*gone = true;
		owner_detach_channel(h, true);
		return true;
	}
	h->unread = r.taken;
	if (slept && !send)
		err = rds_owner_channel_say(h, RDS_SHARE_READY, call->req.seq, 0);
	if (!err)
		err = owner_send_outcome(h, call->req.seq, &r);
	r.taken = NULL;
	rds_owner_reply_free(&r);
	*gone = err != 0;
	if (err)
		owner_detach_channel(h, false);
	else if (h->unread)
		rds_owner_reply_unread();
	return true;
}

/* True: the channel is closed. */
static bool owner_send_grant_address(struct rds_owner_channel *h, uint32_t seq)
{
	struct rds_grant_address door;
	struct rds_owner_reply r = {.a = {.result = rds_owner_grant_address(&door)}, .data = (char *)&door};

	if (!r.a.result) {
		h->token = door.token;
		r.a.data_len = sizeof(door);
	}
	if (!rds_owner_send_reply(h, seq, &r))
		return false;
	owner_detach_channel(h, true);
	return true;
}

int rds_owner_memory_granted(uint64_t token, pid_t pid, int memory)
{
	const struct rds_owner *c;
	struct rds_owner_channel *h = NULL;

	for (c = owned_sockets; c && !h; c = c->next)
		for (h = c->channels; h && (!h->token || h->token != token); h = h->next)
			;
	if (!h || h->pid != pid) {
		os_close(memory);
		return -EPERM;
	}
	h->token = 0;
	rds_foreign_memory_put(h->memory);
	h->memory = rds_foreign_memory_new(memory, pid);
	return h->memory ? 0 : -ENOMEM;
}

/* The borrower has no lease and can get one now: it is told to attach again before its call. */
static bool owner_can_send_lease(const struct rds_owner_channel *h)
{
	int fds[RDS_LEASE_FDS];

	return h->bare && rds_lease_fds(h->owner->sk, fds) != 0;
}

void rds_owner_leases_made(void)
{
	struct rds_owner *c, *next;
	struct rds_owner_channel *h, *after;

	for (c = owned_sockets; c; c = next) {
		next = c->next;
		for (h = c->channels; h; h = after) {
			after = h->next; /* the end of the last channel frees c */
			if (h->call && owner_can_send_lease(h))
				owner_send_retry(h, h->seq);
		}
	}
}

/* True: the channel is closed. */
static bool owner_handle_request(struct rds_owner_channel *h, struct rds_owner_request *call)
{
	struct rds_sock *sk = h->owner->sk;
	bool gone = false;

	h->used = os_now_ns();
	if (call->req.op == RDS_SHARE_CANCEL) {
		bool sleeps = h->call && h->seq == call->req.seq;

		rds_owner_request_free(call);
		if (!sleeps)
			return false; /* answered already: reply and CANCEL have crossed */
		rds_owner_sleep_end(h);
		if (rds_owner_channel_say(h, RDS_SHARE_READY, h->seq, 0) || rds_owner_send_result(h, h->seq, -EINTR)) {
			owner_detach_channel(h, true);
			return true;
		}
		return false;
	}
	if (call->req.op == RDS_SHARE_PUT_BACK) {
		owner_settle_unread(h, false);
		rds_owner_request_free(call);
		return false;
	}
	owner_settle_unread(h, true);
	if (h->call) { /* two calls at once: no borrower of this library sends that */
		rds_owner_request_free(call);
		owner_detach_channel(h, true);
		return true;
	}
	if (unlikely(owner_can_send_lease(h))) {
		owner_send_retry(h, call->req.seq);
		rds_owner_request_free(call);
		return true;
	}
	if (call->req.op == RDS_SHARE_MEMORY) {
		gone = owner_send_grant_address(h, call->req.seq);
		rds_owner_request_free(call);
		return gone;
	}
	call->memory = rds_foreign_memory_get(h->memory);
	call->pid = h->pid;
	atomic_store(&sk->proxy_sleeps, true);
	if (!rds_owner_try_call(h, call, false, &gone))
		return rds_owner_sleep_begin(h, call);
	rds_owner_request_free(call);
	if (!gone)
		atomic_store(&sk->proxy_sleeps, h->owner->waiting != NULL);
	return gone;
}

/*
 * The request's file did not come, because no descriptor was free: the call is not made.  True: the
 * channel is closed.
 */
static bool owner_refuse_cut(struct rds_owner_channel *h, size_t len)
{
	struct rds_share_request q = {0};

	if (len >= sizeof(q))
		memcpy(&q, packet, sizeof(q));
	owner_settle_unread(h, true);
	if (!h->call && !rds_owner_want_room()) {
		rds_warn_once("a process that shares an RDS socket cannot send on it, because this process has no "
			      "descriptor left for the message: " RDS_LOG_EMFILE);
		if (!rds_owner_send_result(h, q.seq, -EMFILE))
			return false;
	}
	owner_send_retry(h, q.seq);
	return true;
}

/* Takes the descriptor.  True: the channel is closed. */
static bool owner_take_packet(struct rds_owner_channel *h, size_t len, int memfd, bool *more)
{
	struct rds_owner_request *call;

	if (rds_owner_request_read(packet, len, memfd, &call)) {
		rds_warn_once("a process that shares an RDS socket has sent an invalid request: its channel is "
			      "closed (another version of this library?)");
		owner_detach_channel(h, true);
		return true;
	}
	if (!request_is_withdrawn(h, call, more))
		return owner_handle_request(h, call);
	owner_settle_unread(h, true); /* read before this request was sent */
	rds_owner_request_free(call);
	return false;
}

/* The borrower has closed the channel.  end: 0, or -ECONNRESET: it has left its last reply unread. */
static void owner_channel_ended(struct rds_owner_channel *h, ssize_t end)
{
	if (h->call)
		rds_owner_channel_say(h, RDS_SHARE_RETRY, h->seq, 0);
	owner_detach_channel(h, end != -ECONNRESET);
}

/*
 * What goes back to the queue is read: the queue is handed off.  And a CANCEL that has crossed the
 * reply: the kernel would tell its end before that reply, whose message can still go back.
 */
static bool owner_reads_always(const struct rds_owner_channel *h, const struct rds_share_request *q)
{
	return q->op == RDS_SHARE_PUT_BACK || (q->op == RDS_SHARE_CANCEL && !(h->call && h->seq == q->seq));
}

/*
 * This process hands off the socket, and may end at any moment.  A request that it had read and not
 * answered would be one of which the borrower does not know whether it was carried out.  One that
 * was left unread was not, and the kernel tells that with the end of the channel (ECONNRESET),
 * whether it ends here or with the process.
 *
 * The first look at a channel that has ended clears its error, a peek, too.
 */
static bool owner_leaves_unread(struct rds_owner_channel *h)
{
	struct rds_share_request q;
	ssize_t n;

	if (likely(!atomic_load(&h->owner->sk->handing_off)))
		return false;
	n = os_recv(atomic_load(&h->fd), &q, sizeof(q), MSG_PEEK | MSG_DONTWAIT);
	if (n == -EAGAIN || n == -EINTR)
		return true;
	if (n == sizeof(q) && owner_reads_always(h, &q))
		return false;
	if (n <= 0)
		owner_channel_ended(h, n);
	else
		owner_detach_channel(h, true);
	return true;
}

static void owner_channel_event(struct rds_helper_event *ev, uint32_t events)
{
	struct rds_owner_channel *h = container_of(ev, struct rds_owner_channel, ev);
	int fds[OS_PASS_MAX];
	unsigned nfds, i, most = RDS_EVENT_MAX; /* level-triggered: the rest makes another event */
	bool lost, more = true;
	ssize_t n;

	(void)events;
	while (more && most--) {
		if (owner_leaves_unread(h))
			return;
		n = os_pass_recv(atomic_load(&h->fd), packet, RDS_SHARE_PACKET + 1, fds, &nfds, &lost, MSG_DONTWAIT);
		if (n == -EAGAIN || n == -EINTR)
			return;
		if (n <= 0) {
			owner_channel_ended(h, n);
			return;
		}
		for (i = lost ? 0 : 1; i < nfds; i++)
			os_close(fds[i]);
		if (lost ? owner_refuse_cut(h, (size_t)n) : owner_take_packet(h, (size_t)n, nfds ? fds[0] : -1, &more))
			return;
	}
}

/* ---- for owner_attach.c and owner_sleep.c ---- */

struct rds_owner *rds_owner_find(const struct rds_sock *sk)
{
	struct rds_owner *c;

	for (c = owned_sockets; c && c->sk != sk; c = c->next)
		;
	return c;
}

struct rds_owner *rds_owner_next(const struct rds_owner *c)
{
	return c ? c->next : owned_sockets;
}

void rds_owner_channel_end(struct rds_owner_channel *h, bool read)
{
	owner_detach_channel(h, read);
}

bool rds_owner_list(struct rds_owner *c)
{
	if (!packet && !(packet = malloc(RDS_SHARE_PACKET + 1)))
		return false;
	c->next = owned_sockets;
	owned_sockets = c;
	return true;
}

void rds_owner_channel_init(struct rds_owner_channel *h)
{
	h->ev.fn = owner_channel_event;
	h->timer.fn = rds_owner_sleep_expired;
}

void rds_share_fork_child(void)
{
	rds_standby_close_others();
	rds_lease_forget();
	rds_handoff_unbound_forget();
	rds_owner_grant_forget();
	rds_owner_attach_forget();
	owned_sockets = NULL;
	packet = NULL;
	rds_owner_sleep_forget();
	atomic_store(&rds_share_possible, false);
}
