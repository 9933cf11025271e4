/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * borrower_channel.c - channels to the owners of borrowed sockets (protocol.h), and how a
 * call goes over a channel.
 *
 * A channel serves one call at a time.  A thread takes an idle channel (borrower_pool.c), or makes
 * another one.
 *
 * A call over an existing channel takes no lock and allocates nothing, so a signal handler may make
 * one while it has interrupted another.  Making or closing a channel takes locks: its descriptor is
 * added to or removed from the engine's list under that list's lock, and the list may grow; the
 * descriptors that come with a channel are kept under a lock, too (standby.c).  So a handler that
 * makes the first call, or has interrupted close(), may wait for the code that it has interrupted,
 * as with the engine's own sockets.
 *
 * Must not know what calls mean (borrower_call.c), nor anything of an engine in this process.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/share/borrower_impl.h"
#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "engine/rds.h"
#include "engine/share/lease.h"

/* ---- attaching ---- */

/* Sends the attach request through the stand-in: 0, or -errno; -EPIPE: the socket has no owner. */
static int channel_send_attach(int fd, struct borrower_call *c, int channel, bool quiet)
{
	const struct rds_share_attach hello = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	const size_t len = quiet ? RDS_SHARE_QUIET : sizeof(hello);
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int pass[2] = {channel, fd}, err;

	while ((err = os_pass_send(fd, &hello, len, pass, 2, MSG_DONTWAIT)) == -EAGAIN &&
	       !(err = borrower_wait(fd, c, &p, false)))
		;
	return err;
}

static int channel_read_hello(struct borrower_channel *s)
{
	struct rds_share_reply a;
	ssize_t n = rds_standby_read_hello(atomic_load(&s->fd), s->inode, &a);

	if (n == 0 || n == -ECONNRESET)
		return -EAGAIN; /* the attach request was lost: try once more */
	s->greeted = n == (ssize_t)sizeof(a) && a.magic == RDS_SHARE_MAGIC && a.kind == RDS_SHARE_HELLO;
	s->owner_id = s->greeted ? a.owner_id : 0;
	return s->greeted ? 0 : -EPROTO;
}

static int channel_await_hello(int fd, struct borrower_call *c, struct borrower_channel *s)
{
	struct pollfd p = {.fd = atomic_load(&s->fd), .events = POLLIN};
	int err;

	c->busy = s;
	c->offered = -1;
	err = borrower_wait(fd, c, &p, false);
	return err ? err : channel_read_hello(s);
}

/* Makes a channel and asks the owner to accept it. */
static int channel_connect(int fd, struct borrower_call *c, struct borrower_channel *s, bool quiet)
{
	const int room = RDS_SHARE_SOCKBUF;
	int sv[2], err = os_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv);

	if (err == -EMFILE)
		rds_warn_once("no descriptor for calls on an RDS socket that another process owns: " RDS_LOG_EMFILE);
	if (err < 0)
		return err;
	os_setsockopt(sv[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	os_setsockopt(sv[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	s->greeted = s->memory_given = false;
	s->regions = 0;
	s->watched = !quiet;
	s->seq = 0;
	c->busy = s;
	c->offered = sv[1];
	err = os_dup_high_slot(sv[0], &s->fd);
	if (!err)
		err = channel_send_attach(fd, c, sv[1], quiet);
	os_close(sv[1]);
	c->offered = -1;
	if (err)
		os_close_slot(&s->fd);
	return err;
}

/* The channel of a call that waits no longer is kept: the owner has been asked to accept it. */
static int channel_connect_wait(int fd, struct borrower_call *c, struct borrower_channel *s)
{
	int err = channel_connect(fd, c, s, false);

	if (!err && (err = channel_await_hello(fd, c, s)) && err != -BORROWER_LATE)
		os_close_slot(&s->fd);
	return err;
}

/* *slot: a channel to the socket's owner, BUSY.  With -BORROWER_LATE: such a channel, or NULL. */
static int channel_attach_new(int fd, struct borrower_call *c, struct borrower_channel **slot)
{
	struct borrower_channel *s = borrower_channel_get_free();
	uint64_t refused = 0;
	int err;

	if (!s)
		return -ENOMEM;
	s->inode = c->inode; /* from now on a close() finds the channel */
	for (;;) {
		err = rds_handoff_is_pending(fd) ? -RDS_BORROWER_TAKE_OVER : channel_connect_wait(fd, c, s);
		if (err != -EAGAIN)
			break;
		c->busy = s;
		c->offered = -1;
		err = borrower_pause(fd, c, &refused);
		if (err)
			break;
	}
	if (err != -BORROWER_LATE)
		borrower_refused_no_more();
	if (err && atomic_load(&s->fd) < 0) {
		borrower_channel_unused(s);
		return err;
	}
	borrower_channel_made();
	*slot = s;
	return err;
}

/* An idle channel, or a new one. */
static int channel_get(int fd, struct borrower_call *c, struct borrower_channel **slot)
{
	int err;

	*slot = borrower_channel_get_idle(c->inode);
	if (*slot && !(*slot)->greeted && (err = channel_await_hello(fd, c, *slot))) {
		if (err == -BORROWER_LATE)
			return err;
		borrower_channel_drop(*slot);
		*slot = NULL;
		if (err != -EAGAIN)
			return err;
	}
	return *slot ? 0 : channel_attach_new(fd, c, slot);
}

bool rds_borrower_attach(int fd)
{
	struct borrower_call c = {.q = {.op = RDS_SHARE_WATCH}};
	struct pollfd p = {.events = POLLIN};
	struct borrower_channel *s;
	bool hidden = false;
	struct stat st;

	borrower_pool_begin();
	if (os_fstat(fd, &st) || rds_standby_keep_parked(fd, st.st_ino, &hidden) || !(s = borrower_channel_get_free()))
		return !hidden;
	c.inode = s->inode = st.st_ino;
	if (channel_connect(fd, &c, s, true)) {
		borrower_channel_unused(s);
		return true;
	}
	p.fd = atomic_load(&s->fd);
	if (borrower_await_hello(fd, st.st_ino, &p) && channel_read_hello(s)) {
		borrower_channel_drop(s);
		return true;
	}
	borrower_channel_made();
	borrower_channel_give_back(s);
	return true;
}

/* ---- a call ---- */

static size_t request_fill_packet(struct borrower_channel *s, const struct borrower_call *c)
{
	char *to = s->packet + sizeof(c->q);
	unsigned i;

	memcpy(s->packet, &c->q, sizeof(c->q));
	if (c->q.name_len)
		memcpy(to, c->name, c->q.name_len);
	to += c->q.name_len;
	if (c->q.control_len)
		memcpy(to, c->control, c->q.control_len);
	to += c->q.control_len;
	for (i = 0; c->q.data_len && i < c->n_data; i++) {
		memcpy(to, c->data[i].iov_base, c->data[i].iov_len);
		to += c->data[i].iov_len;
	}
	return (size_t)(to - s->packet);
}

static int channel_send_request(struct borrower_channel *s, struct borrower_call *c)
{
	int memfd = -1, err;
	size_t len;

	c->q.magic = RDS_SHARE_MAGIC;
	c->q.seq = ++s->seq;
	if (c->q.big) {
		memfd = os_memfd_sealed(c->data, c->n_data);
		if (memfd < 0)
			return memfd;
	}
	len = request_fill_packet(s, c);
	do {
		err = os_pass_send(atomic_load(&s->fd), s->packet, len, &memfd, memfd >= 0, 0);
	} while (err == -EINTR);
	if (memfd >= 0)
		os_close(memfd);
	return err == -EPIPE ? -ECONNRESET : err;
}

/* Sets where the parts of the reply are; false: the reply is invalid. */
static bool reply_open_parts(struct borrower_channel *s, struct borrower_call *c, size_t len, int memfd)
{
	const struct rds_share_reply *a = &c->a;

	if (a->name_len > RDS_SHARE_NAME || a->control_len > RDS_SHARE_CONTROL || a->data_len > RDS_SHARE_INLINE ||
	    len != sizeof(*a) + a->name_len + a->control_len + a->data_len || a->big > RDS_SHARE_BIG)
		return false;
	c->out_name = s->packet + sizeof(*a);
	c->out_control = c->out_name + a->name_len;
	c->out_data = c->out_control + a->control_len;
	if (!a->big)
		return true;
	if (memfd < 0 || !os_memfd_is_sealed(memfd, a->big) ||
	    os_mmap(a->big, PROT_READ, MAP_PRIVATE, memfd, 0, &c->mapped))
		return false;
	c->out_data = c->mapped;
	return true;
}

/* The reply cannot be used: its message goes back to the owner's queue. */
static int reply_send_back(struct borrower_channel *s, struct borrower_call *c, bool lost)
{
	c->slot = s;
	borrower_put_back(c);
	c->slot = NULL;
	return lost ? -EMFILE : -EPROTO;
}

/*
 * The owner has ended.  The kernel distinguishes one that has not read the request (-ECONNRESET: the call was not made)
 * from one that had read it (-EPIPE: unknown).  A call that was to sleep is not made before READY.
 */
static int channel_ended(const struct borrower_call *c, ssize_t n)
{
	return n == -ECONNRESET || (c->cancelled && c->asleep) ? -ECONNRESET : n ? (int)n : -EPIPE;
}

/* The next packet that belongs to this call: its kind, or -errno. */
static int channel_next_packet(int fd, struct borrower_channel *s, struct borrower_call *c)
{
	struct pollfd p = {.fd = atomic_load(&s->fd), .events = POLLIN};
	int fds[OS_PASS_MAX], kind;
	unsigned nfds, i;
	bool lost;
	ssize_t n;

	c->busy = s;
	c->offered = -1;
	for (;;) {
		if (!borrower_call_ends(c))
			borrower_release_signals(c); /* this may take as long as the owner likes */
		else if ((kind = borrower_wait(fd, c, &p, true)))
			return kind;
		n = os_pass_recv(atomic_load(&s->fd), s->packet, BORROWER_PACKET, fds, &nfds, &lost, 0);
		if (n == -EINTR || (n == -ECONNRESET && c->cancelled))
			continue; /* CANCEL was not read: the kernel says so once, and before what the owner had said */
		if (n <= 0)
			return channel_ended(c, n);
		memset(&c->a, 0, sizeof(c->a));
		memcpy(&c->a, s->packet, (size_t)n < sizeof(c->a) ? (size_t)n : sizeof(c->a));
		kind = c->a.kind;
		if (c->a.magic != RDS_SHARE_MAGIC || (size_t)n < sizeof(c->a) ||
		    (kind == RDS_SHARE_REPLY && !reply_open_parts(s, c, (size_t)n, nfds ? fds[0] : -1)))
			kind = reply_send_back(s, c, lost);
		for (i = 0; i < nfds; i++)
			os_close(fds[i]);
		if (kind == RDS_SHARE_RETRY)
			return -ECONNRESET;
		if (kind < 0 || c->a.seq == c->q.seq)
			return kind;
	}
}

int borrower_channel_ask(int fd, struct borrower_channel *s, struct borrower_call *c)
{
	int kind = channel_send_request(s, c);

	if (!kind)
		kind = channel_next_packet(fd, s, c);
	if (kind < 0)
		return kind;
	return kind == RDS_SHARE_REPLY ? 0 : -EPROTO;
}

/*
 * The call sleeps at the owner.  This thread sleeps here, in a system call that signals restart or
 * end as they would restart or end the kernel's RDS call.
 */
static int channel_sleep_until_ready(struct borrower_channel *s, struct borrower_call *c)
{
	struct rds_share_request cancel = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_CANCEL, .seq = c->q.seq};
	struct rds_share_reply ready;
	ssize_t n = borrower_sleep(s, c, &ready);

	c->asleep = n < 0;
	borrower_call_wait(c)->since = 0; /* the wait for the reply begins now, however long the call slept */
	if (n > 0 && ready.kind != RDS_SHARE_RETRY)
		return 0;
	if (n >= 0)
		return -ECONNRESET; /* the owner has ended or handed off the socket */
	/* An owner that is not stopped replies.  A message that came first is not lost, also if the owner has ended. */
	c->cancelled = true;
	os_pass_send(atomic_load(&s->fd), &cancel, sizeof(cancel), NULL, 0, 0);
	return 0;
}

/* The outcome of the call: 0, -errno, or -BORROWER_LATE. */
static int channel_await_outcome(int fd, struct borrower_channel *s, struct borrower_call *c)
{
	int kind;

	while ((kind = channel_next_packet(fd, s, c)) >= 0) {
		if (kind == RDS_SHARE_REPLY)
			return 0;
		if (kind == RDS_SHARE_READY)
			c->asleep = false;
		if (kind != RDS_SHARE_WAIT)
			continue;
		c->asleep = true;
		/* The request had been read.  A call that sleeps now can be withdrawn after all. */
		if (c->underway && borrower_withdraw(s, c))
			return -BORROWER_LATE;
		if (!c->underway && !c->cancelled && (kind = channel_sleep_until_ready(s, c)) < 0)
			return kind;
	}
	return kind;
}

static int channel_run_call(int fd, struct borrower_channel *s, struct borrower_call *c)
{
	/*
	 * WATCH uses no region, and call_stop_waiting() relies on it that nothing else has been
	 * asked for on this channel.
	 */
	int err = c->q.op == RDS_SHARE_WATCH ? 0 : borrower_regions_send(fd, s, c);

	if (!err && c->q.names_memory)
		err = borrower_memory_grant(fd, s, c);
	if (err) /* the request of the call itself has not been sent */
		return err;
	err = channel_send_request(s, c);
	if (!err)
		err = channel_await_outcome(fd, s, c);
	if (!err && c->a.made && c->opens.bytes)
		borrower_region_add(s, c->a.made, &c->opens);
	if (err == -BORROWER_LATE && !c->underway && !borrower_withdraw(s, c)) {
		err = channel_await_outcome(fd, s, c);
		if (err == -ECONNRESET) /* the owner says that the call was not made */
			err = -BORROWER_LATE;
	}
	return err;
}

static int64_t call_map_refusal(int err)
{
	if (err != -EPIPE && err != -ECONNRESET && err != -EPROTO)
		return err;
	rds_warn_once("an RDS socket that came from another process cannot be used (ENOTCONN): no process owns it any "
		      "more, or its owner has another version of this library: use the same librdspreload.so for both");
	return -ENOTCONN;
}

#define OWNERS_MAX 16 /* owners that one call tries, one after the other */

/*
 * The owner was killed after it had read the request.  What it may have done is lost with its
 * queue, or may be done twice without harm.  Only a sent message and a bound address outlive the
 * owner.
 */
static bool call_is_repeatable(const struct borrower_call *c)
{
	return c->q.op != RDS_SHARE_SEND && c->q.op != RDS_SHARE_BIND;
}

/*
 * The channel is kept if the call may be made later.  greeted: the owner had accepted the channel,
 * so it may have read the request.
 */
static int64_t call_stop_waiting(struct borrower_call *c, bool greeted)
{
	struct borrower_channel *s = c->slot;

	c->slot = NULL;
	if (s && !greeted && borrower_call_lasts(c) && (c->q.op != RDS_SHARE_WATCH || c->q.opt || !s->watched))
		channel_send_request(s, c);
	if (s && c->q.op == RDS_SHARE_WATCH)
		s->watched = true;
	if (s && greeted && !borrower_call_lasts(c))
		borrower_channel_drop(s);
	else if (s)
		borrower_channel_give_back(s);
	return c->late;
}

static int64_t call_make(int fd, struct borrower_call *c)
{
	struct stat st;
	int tries, err = os_fstat(fd, &st);

	c->slot = NULL;
	c->mapped = NULL;
	if (err)
		return err;
	c->inode = st.st_ino;
	borrower_pool_begin();
	for (tries = 0; tries < OWNERS_MAX; tries++) {
		err = channel_get(fd, c, &c->slot);
		if (err == -BORROWER_LATE)
			return call_stop_waiting(c, false);
		if (err)
			break;
		err = channel_run_call(fd, c->slot, c);
		if (!err) /* a cancelled call returns its own reason: a signal, or its timeout */
			return c->cancelled && c->a.result == -EINTR ? c->late : c->a.result;
		if (err == -BORROWER_LATE)
			return call_stop_waiting(c, true);
		borrower_channel_drop(c->slot);
		c->slot = NULL;
		if (c->cancelled && (err == -ECONNRESET || call_is_repeatable(c)))
			return c->late;
		if (err == -EPIPE && call_is_repeatable(c))
			continue;
		/*
		 * -ECONNRESET: the channel was that of an earlier socket or owner, and the call was
		 * not made.
		 */
		if (err != -ECONNRESET)
			break;
	}
	return call_map_refusal(err);
}

int64_t borrower_call(int fd, struct borrower_call *c)
{
	int64_t rc = call_make(fd, c);

	borrower_release_signals(c);
	/* A sleep in this process would not know of it.  The next call takes over. */
	return rc == -RDS_BORROWER_TAKE_OVER && borrower_call_wait(c)->interrupted ? -EINTR : rc;
}

bool rds_borrower_owner_gone(int fd)
{
	struct pollfd p = {.fd = rds_borrower_hangup_fd(fd), .events = 0};

	return p.fd >= 0 && os_poll(&p, 1, 0) > 0;
}

void rds_borrower_give_up(int fd)
{
	struct stat st;

	if (os_fstat(fd, &st) == 0)
		rds_standby_drop(st.st_ino);
}

int rds_borrower_hangup_fd(int fd)
{
	struct stat st;

	return rds_standby_any() && os_fstat(fd, &st) == 0 ? rds_standby_hangup_fd(st.st_ino) : -1;
}

bool borrower_is_attached(int fd)
{
	struct pollfd p[2] = {{.events = 0}, {.events = 0}};
	struct borrower_channel *s = NULL;
	struct stat st;
	bool alive, watched;

	if (borrower_pool_is_ours() && os_fstat(fd, &st) == 0)
		s = borrower_channel_get_idle(st.st_ino);
	if (!s)
		return false;
	/*
	 * When an owner is killed, its hang-up pipe may close before the channel: a thread that the
	 * pipe has woken must not take the channel for that of a living owner.
	 */
	p[0].fd = atomic_load(&s->fd);
	p[1].fd = rds_standby_hangup_fd(st.st_ino);
	alive = os_poll(p, 2, 0) == 0;
	watched = s->watched;
	if (alive || !s->greeted) /* !greeted: there may be input because HELLO has come */
		borrower_channel_give_back(s);
	else
		borrower_channel_drop(s); /* its owner has ended */
	return alive && watched;
}

void borrower_call_end(struct borrower_call *c)
{
	if (c->mapped)
		os_munmap(c->mapped, c->a.big);
	c->mapped = NULL;
	if (c->slot)
		borrower_channel_give_back(c->slot);
	c->slot = NULL;
}

void borrower_put_back(struct borrower_call *c)
{
	const struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_PUT_BACK};

	if (c->a.has_message)
		os_pass_send(atomic_load(&c->slot->fd), &q, sizeof(q), NULL, 0, 0);
}
