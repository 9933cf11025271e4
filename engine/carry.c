/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * carry.c - the carrier of shared sockets: channels, calls that sleep (share.h).  Helper thread only.
 *
 * Invariants: a socket with holders that look is watched, so its stand-in tells every one of them the truth.  The copy of the
 * stand-in is kept exactly as long as some holder is attached.  A call that sleeps is marked (sk->carried) before it looks for the
 * last time, so that whatever it waits for finds the mark.  Calls of one kind are served in the order in which they came.
 *
 * A holder is somebody else's program: it may be stopped, killed, or send nonsense.  Nothing is ever waited for; a channel that
 * does not take its answer, or says what cannot be, is closed.
 *
 * Must not know what calls do (carry_serve.c), what they look like in a packet (carry_call.c), nor how holders come (carry_attach.c).
 */
#include "engine/carry.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "engine/memory_door.h"
#include "engine/will.h"

static struct rds_carry *carried; /* all */
static _Atomic bool due;
static char *packet; /* the one that is being read; one helper, one packet */

/* ---- answers ---- */

static int put_big(const char *data, uint32_t len)
{
	int fd = os_memfd("rds message", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ssize_t n;
	uint32_t off;

	if (fd < 0)
		return fd;
	for (off = 0; off < len; off += (uint32_t)n) {
		n = os_pwrite(fd, data + off, len - off, off);
		if (n <= 0) {
			os_close(fd);
			return n ? (int)n : -EIO;
		}
	}
	os_fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE);
	return fd;
}

static int send_parts(struct rds_holder *h, struct iovec *iov, unsigned n, int memfd)
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

static int say_that(struct rds_holder *h, enum rds_share_kind kind, uint32_t seq, int64_t result)
{
	struct rds_share_answer a = {.magic = RDS_SHARE_MAGIC, .kind = (uint16_t)kind, .seq = seq, .result = result};
	struct iovec iov = {&a, sizeof(a)};

	return send_parts(h, &iov, 1, -1);
}

static int say(struct rds_holder *h, enum rds_share_kind kind, uint32_t seq)
{
	return say_that(h, kind, seq, 0);
}

/*
 * Has it withdrawn what it has asked for (away_wait.c)?  Then it is told that it was not made.  *more: something else is there.  (What goes back is
 * said by who ends, too.)
 */
static bool withdrawn(struct rds_holder *h, const struct rds_share_call *call, bool *more)
{
	struct pollfd p = {.fd = atomic_load(&h->fd), .events = POLLIN | POLLRDHUP};
	bool gone;

	*more = os_poll(&p, 1, 0) > 0;
	gone = *more && p.revents & (POLLRDHUP | POLLHUP | POLLERR) && call->req.op != RDS_SHARE_PUT_BACK;
	if (gone)
		say(h, RDS_SHARE_MOVED, call->req.seq);
	return gone;
}

/* 0, or -errno: then nothing was said, and the message is where it was. */
static int answer(struct rds_holder *h, uint32_t seq, struct rds_carry_result *r)
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
		memfd = put_big(r->data, r->a.data_len);
		if (memfd < 0)
			return memfd;
		r->a.big = r->a.data_len;
		r->a.data_len = 0;
	}
	iov[3].iov_len = r->a.data_len;
	err = send_parts(h, iov, 4, memfd);
	if (memfd >= 0)
		os_close(memfd);
	return err;
}

static int answer_plain(struct rds_holder *h, uint32_t seq, int64_t result)
{
	struct rds_carry_result r = {.a = {.result = result}};

	return answer(h, seq, &r);
}

/* ---- life ---- */

/* The holder has read its last answer, or nobody ever will. */
static void settle(struct rds_holder *h, bool read)
{
	struct rds_inc *inc = h->unread;

	h->unread = NULL;
	if (!inc)
		return;
	if (!read) {
		rds_recv_put_back(h->carry->sk, inc);
		return;
	}
	rx_lock();
	rds_inc_free(inc);
	rx_unlock();
}

static void stop_waiting(struct rds_holder *h)
{
	struct rds_carry *c = h->carry;
	struct rds_holder **p;

	if (!h->call)
		return;
	for (p = &c->waiting; *p && *p != h; p = &(*p)->wait_next)
		;
	if (*p)
		*p = h->wait_next;
	for (p = &c->waiting; *p; p = &(*p)->wait_next)
		;
	c->waiting_tail = p;
	rds_timer_cancel(&h->timer);
	if (h->call->req.op == RDS_SHARE_SEND) {
		rx_lock();
		c->sk->cong_blocked--;
		rx_unlock();
	}
	rds_carry_call_free(h->call);
	h->call = NULL;
	h->used = os_now_ns();
	atomic_store(&c->sk->carried, c->waiting != NULL);
}

void rds_carry_end(struct rds_carry *c)
{
	struct rds_carry **p;
	struct rds_sock *sk = c->sk;

	for (p = &carried; *p != c; p = &(*p)->next)
		;
	*p = c->next;
	/* The last copy may be ours: then the kernel says so on the other end, and the socket is closed. */
	os_close_slot(&c->standin);
	free(c);
	(void)rds_call_check_hangup(sk);
	rds_sock_put(sk);
}

static void detach(struct rds_holder *h, bool read)
{
	struct rds_carry *c = h->carry;
	struct rds_holder **p;

	stop_waiting(h);
	settle(h, read);
	for (p = &c->holders; *p != h; p = &(*p)->next)
		;
	*p = h->next;
	if (!c->holders)
		rds_carry_end(c);
	/* Last: who has closed its last number waits for this (rds_away_closed()). */
	rds_helper_event_del(atomic_load(&h->fd));
	os_close_slot(&h->fd);
	rds_foreign_memory_put(h->memory);
	free(h);
}

/* ---- requests ---- */

/* It may return before its mark is reached, and says how far that is. */
static void barrier_over(struct rds_holder *h)
{
	struct rds_carry_result r;
	bool gone;

	if (atomic_load(&h->carry->sk->leaving)) {
		rds_carry_wake(); /* it is told to ask the next one */
		return;
	}
	rds_carry_serve(h->carry, h->call, &r);
	gone = say(h, RDS_SHARE_READY, h->seq) || answer(h, h->seq, &r);
	rds_carry_result_free(&r);
	if (gone)
		detach(h, true);
	else
		stop_waiting(h);
}

static void timed_out(struct rds_timer *tm)
{
	struct rds_holder *h = container_of(tm, struct rds_holder, timer);

	if (!h->call)
		return;
	if (h->call->req.op == RDS_SHARE_BARRIER) {
		barrier_over(h);
		return;
	}
	stop_waiting(h);
	if (say(h, RDS_SHARE_READY, h->seq) || answer_plain(h, h->seq, -ETIMEDOUT))
		detach(h, true);
}

static uint64_t timeout_of(const struct rds_holder *h, const struct rds_share_call *call)
{
	const struct rds_sock *sk = h->carry->sk;

	if (h->congested)
		return RDS_NO_TIMEOUT;
	return atomic_load(call->req.op == RDS_SHARE_SEND ? &sk->sndtimeo_ns : &sk->rcvtimeo_ns);
}

static int say_wait(struct rds_holder *h, const struct rds_share_call *call)
{
	return say_that(h, RDS_SHARE_WAIT, call->req.seq, (int64_t)timeout_of(h, call));
}

/* Tries it. True: it has been answered, and if that failed the holder is gone. */
static bool try_call(struct rds_holder *h, const struct rds_share_call *call, bool slept, bool *gone)
{
	bool send = call->req.op == RDS_SHARE_SEND, more;
	struct rds_carry_result r;
	int err = 0;

	*gone = false;
	/* Said before: whoever is killed after it has sent must not be taken for one that has not. */
	if (slept && send && (say(h, RDS_SHARE_READY, call->req.seq) || withdrawn(h, call, &more))) {
		*gone = true;
		detach(h, false);
		return true;
	}
	rds_carry_serve(h->carry, call, &r);
	if (r.a.result == -EBADF &&
	    atomic_load(&h->carry->sk->leaving)) { /* the call was not made: to be asked of the next one */
		rds_carry_result_free(&r);
		say(h, RDS_SHARE_MOVED, call->req.seq);
		*gone = true;
		detach(h, true);
		return true;
	}
	if (r.sleeps && call->req.may_wait) {
		h->congested = r.a.result == -ENOBUFS;
		rds_carry_result_free(&r);
		if (!slept || !send || !say_wait(h, call))
			return false;
		*gone = true;
		detach(h, true);
		return true;
	}
	h->unread = r.taken;
	if (slept && !send)
		err = say(h, RDS_SHARE_READY, call->req.seq);
	if (!err)
		err = answer(h, call->req.seq, &r);
	r.taken = NULL;
	rds_carry_result_free(&r);
	*gone = err != 0;
	if (err)
		detach(h, false);
	else if (h->unread)
		rds_carry_given();
	return true;
}

static void watch_time(struct rds_holder *h)
{
	uint64_t timeo = timeout_of(h, h->call);

	if (timeo == RDS_NO_TIMEOUT)
		rds_timer_cancel(&h->timer);
	else if (!rds_timer_is_set(&h->timer))
		rds_timer_set(&h->timer, os_now_ns() + timeo);
}

/* Does not answer at once: the holder is told to sleep. True: it is gone. */
static bool sleep_call(struct rds_holder *h, struct rds_share_call *call)
{
	h->seq = call->req.seq;
	if (say_wait(h, call)) {
		rds_carry_call_free(call);
		detach(h, true);
		return true;
	}
	h->call = call;
	h->wait_next = NULL;
	*h->carry->waiting_tail = h;
	h->carry->waiting_tail = &h->wait_next;
	watch_time(h);
	if (call->req.op == RDS_SHARE_SEND) { /* for whatever it waits: a congested port's updates are for it, too */
		rx_lock();
		h->carry->sk->cong_blocked++;
		rx_unlock();
		rds_carry_wake(); /* one may have come before that */
	}
	return false;
}

/* True: the holder is gone. */
static bool tell_door(struct rds_holder *h, uint32_t seq)
{
	struct rds_door door;
	struct rds_carry_result r = {.a = {.result = rds_door_tell(&door)}, .data = (char *)&door};

	if (!r.a.result) {
		h->token = door.token;
		r.a.data_len = sizeof(door);
	}
	if (!answer(h, seq, &r))
		return false;
	detach(h, true);
	return true;
}

int rds_carry_memory(uint64_t token, pid_t pid, int memory)
{
	const struct rds_carry *c;
	struct rds_holder *h = NULL;

	for (c = carried; c && !h; c = c->next)
		for (h = c->holders; h && (!h->token || h->token != token); h = h->next)
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

/* To be told to attach anew, which it does before its call is made. */
static bool can_be_willed(const struct rds_holder *h)
{
	int fds[RDS_WILL_FDS];

	return h->bare && rds_will_fds(h->carry->sk, fds) != 0;
}

static void send_back(struct rds_holder *h, uint32_t seq)
{
	say(h, RDS_SHARE_MOVED, seq);
	detach(h, true);
}

void rds_carry_willed(void)
{
	struct rds_carry *c, *next;
	struct rds_holder *h, *after;

	for (c = carried; c; c = next) {
		next = c->next;
		for (h = c->holders; h; h = after) {
			after = h->next; /* the last one takes c along */
			if (h->call && can_be_willed(h))
				send_back(h, h->seq);
		}
	}
}

/* True: the holder is gone. */
static bool request(struct rds_holder *h, struct rds_share_call *call)
{
	struct rds_sock *sk = h->carry->sk;
	bool gone = false;

	h->used = os_now_ns();
	if (call->req.op == RDS_SHARE_CANCEL) {
		bool sleeps = h->call && h->seq == call->req.seq;

		rds_carry_call_free(call);
		if (!sleeps)
			return false; /* answered already: the two have crossed */
		stop_waiting(h);
		if (say(h, RDS_SHARE_READY, h->seq) || answer_plain(h, h->seq, -EINTR)) {
			detach(h, true);
			return true;
		}
		return false;
	}
	if (call->req.op == RDS_SHARE_PUT_BACK) {
		settle(h, false);
		rds_carry_call_free(call);
		return false;
	}
	settle(h, true);
	if (h->call) { /* two calls at once: not one of ours */
		rds_carry_call_free(call);
		detach(h, true);
		return true;
	}
	if (unlikely(can_be_willed(h))) {
		send_back(h, call->req.seq);
		rds_carry_call_free(call);
		return true;
	}
	if (call->req.op == RDS_SHARE_MEMORY) {
		gone = tell_door(h, call->req.seq);
		rds_carry_call_free(call);
		return gone;
	}
	call->memory = rds_foreign_memory_get(h->memory);
	call->pid = h->pid;
	atomic_store(&sk->carried, true);
	if (!try_call(h, call, false, &gone))
		return sleep_call(h, call);
	rds_carry_call_free(call);
	if (!gone)
		atomic_store(&sk->carried, h->carry->waiting != NULL);
	return gone;
}

static void holder_event(struct rds_helper_event *ev, uint32_t events)
{
	struct rds_holder *h = container_of(ev, struct rds_holder, ev);
	int fds[OS_PASS_MAX];
	struct rds_share_call *call;
	unsigned nfds, i, most = RDS_EVENT_MOST; /* by levels: the rest is told again */
	bool lost, more = true;
	ssize_t n;

	(void)events;
	while (more && most--) {
		n = os_pass_recv(atomic_load(&h->fd), packet, RDS_SHARE_PACKET + 1, fds, &nfds, &lost, MSG_DONTWAIT);
		if (n == -EAGAIN || n == -EINTR)
			return;
		if (n <= 0) {
			if (h->call)
				say(h, RDS_SHARE_MOVED, h->seq);
			detach(h, n != -ECONNRESET);
			return;
		}
		for (i = 1; i < nfds; i++)
			os_close(fds[i]);
		if (rds_carry_call_read(packet, (size_t)n, nfds ? fds[0] : -1, &call)) {
			rds_warn_once("a process that shares an RDS socket says what cannot be: it is cut off "
				      "(another version of the library?)");
			detach(h, true);
			return;
		}
		if (withdrawn(h, call, &more)) {
			settle(h, true); /* before it has asked for something else */
			rds_carry_call_free(call);
		} else if (request(h, call)) {
			return;
		}
	}
}

/* ---- for carry_attach.c ---- */

struct rds_carry *rds_carry_of(const struct rds_sock *sk)
{
	struct rds_carry *c;

	for (c = carried; c && c->sk != sk; c = c->next)
		;
	return c;
}

struct rds_carry *rds_carry_next(const struct rds_carry *c)
{
	return c ? c->next : carried;
}

void rds_holder_end(struct rds_holder *h, bool read)
{
	detach(h, read);
}

bool rds_carry_list(struct rds_carry *c)
{
	if (!packet && !(packet = malloc(RDS_SHARE_PACKET + 1)))
		return false;
	c->next = carried;
	carried = c;
	return true;
}

void rds_holder_begin(struct rds_holder *h)
{
	h->ev.fn = holder_event;
	h->timer.fn = timed_out;
}

/* ---- calls that sleep ---- */

void rds_carry_wake(void)
{
	if (!atomic_exchange(&due, true))
		rds_helper_kick();
}

/* One message wakes one receiver: when one finds nothing, so would all that came after it. */
static void try_waiting(struct rds_carry *c)
{
	bool nothing = false, gone;
	struct rds_holder *h, *next;

	for (h = c->waiting; h; h = next) {
		next = h->wait_next;
		if (h->call->req.op == RDS_SHARE_RECV && nothing)
			continue;
		if (!try_call(h, h->call, true, &gone)) {
			watch_time(h);
			nothing |= h->call->req.op == RDS_SHARE_RECV;
			continue;
		}
		if (gone) {
			rds_carry_wake(); /* perhaps with all of it: the others come with the next round */
			return;
		}
		stop_waiting(h);
	}
}

void rds_carry_round(void)
{
	struct rds_carry *c, *next;

	if (likely(!atomic_load_explicit(&due, memory_order_relaxed)))
		return;
	atomic_store(&due, false);
	for (c = carried; c; c = next) {
		next = c->next;
		if (c->waiting)
			try_waiting(c);
	}
}

void rds_carry_forget(void)
{
	rds_door_forget();
	rds_carry_attach_forget();
	carried = NULL;
	packet = NULL;
	atomic_store(&due, false);
}
