/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * away.c - channels to the carriers of sockets that this process only holds (share.h), and how a call goes over one.
 *
 * A channel serves one call at a time; a thread takes one that is idle (away_slots.c), or makes another.
 *
 * A call over a channel that is there takes no lock and allocates nothing: a signal handler may make one while it has interrupted
 * another.  Making or closing a channel does: its descriptor goes on the engine's list or off it, under that list's lock, and the list may
 * grow; and what comes with it is kept under a lock (heir.c).  So a handler that makes the first call, or has interrupted close(), may wait for
 * what it has interrupted, as with the engine's own sockets.
 *
 * Must not know what calls mean (away_call.c), nor anything of an engine in this process.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/away_impl.h"
#include "engine/log.h"
#include "engine/os.h"
#include "engine/rds.h"
#include "engine/will.h"

/* ---- attaching ---- */

/* The stand-in takes the request: 0, or -errno; -EPIPE: nobody carries the socket. */
static int ask(int fd, struct away_call *c, int channel, bool quiet)
{
	const struct rds_share_attach hello = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	const size_t len = quiet ? RDS_SHARE_QUIET : sizeof(hello);
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int pass[2] = {channel, fd}, err;

	while ((err = os_pass_send(fd, &hello, len, pass, 2, MSG_DONTWAIT)) == -EAGAIN &&
	       !(err = away_wait(fd, c, &p, false)))
		;
	return err;
}

static int read_hello(struct away_slot *s)
{
	struct rds_share_answer a;
	ssize_t n = rds_heir_hello(atomic_load(&s->fd), s->inode, &a);

	if (n == 0 || n == -ECONNRESET)
		return -EAGAIN; /* our request was lost on the way: once more */
	s->greeted = n == (ssize_t)sizeof(a) && a.magic == RDS_SHARE_MAGIC && a.kind == RDS_SHARE_HELLO;
	s->carrier = s->greeted ? a.carrier : 0;
	return s->greeted ? 0 : -EPROTO;
}

static int await_hello(int fd, struct away_call *c, struct away_slot *s)
{
	struct pollfd p = {.fd = atomic_load(&s->fd), .events = POLLIN};
	int err;

	c->busy = s;
	c->offered = -1;
	err = away_wait(fd, c, &p, false);
	return err ? err : read_hello(s);
}

/* Asks for a channel. */
static int dial(int fd, struct away_call *c, struct away_slot *s, bool quiet)
{
	const int room = RDS_SHARE_SOCKBUF;
	int sv[2], err = os_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv);

	if (err == -EMFILE)
		rds_warn_once(
			"no descriptor for calls on an RDS socket that another process carries: raise `ulimit -n`");
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
		err = ask(fd, c, sv[1], quiet);
	os_close(sv[1]);
	c->offered = -1;
	if (err)
		os_close_slot(&s->fd);
	return err;
}

/* The channel of a call that waits no longer is kept: the carrier has been asked for it. */
static int dial_and_wait(int fd, struct away_call *c, struct away_slot *s)
{
	int err = dial(fd, c, s, false);

	if (!err && (err = await_hello(fd, c, s)) && err != -AWAY_LATE)
		os_close_slot(&s->fd);
	return err;
}

/* *slot: a channel to the socket's carrier, BUSY.  Also with -AWAY_LATE, or NULL. */
static int attach(int fd, struct away_call *c, struct away_slot **slot)
{
	struct away_slot *s = away_slot_free();
	unsigned tries;
	int err;

	if (!s)
		return -ENOMEM;
	s->inode = c->inode; /* from now on a close() finds it */
	for (tries = 1;; tries++) {
		err = rds_adoptable(fd) ? -RDS_AWAY_LEFT : dial_and_wait(fd, c, s);
		if (err != -EAGAIN)
			break;
		c->busy = s;
		c->offered = -1;
		err = away_pause(fd, c, tries);
		if (err)
			break;
	}
	if (err && atomic_load(&s->fd) < 0) {
		away_slot_unused(s);
		return err;
	}
	away_slot_made();
	*slot = s;
	return err;
}

/* One that is there, or a new one. */
static int reach(int fd, struct away_call *c, struct away_slot **slot)
{
	int err;

	*slot = away_slot_idle(c->inode);
	if (*slot && !(*slot)->greeted && (err = await_hello(fd, c, *slot))) {
		if (err == -AWAY_LATE)
			return err;
		away_slot_drop(*slot);
		*slot = NULL;
		if (err != -EAGAIN)
			return err;
	}
	return *slot ? 0 : attach(fd, c, slot);
}

void rds_away_meet(int fd)
{
	struct away_call c = {.q = {.op = RDS_SHARE_WATCH}};
	struct pollfd p = {.events = POLLIN};
	struct away_slot *s;
	struct stat st;

	away_slots_begin();
	if (os_fstat(fd, &st) || rds_heir_meet(fd, st.st_ino) || !(s = away_slot_free()))
		return;
	c.inode = s->inode = st.st_ino;
	if (dial(fd, &c, s, true)) {
		away_slot_unused(s);
		return;
	}
	p.fd = atomic_load(&s->fd);
	if (away_answers(fd, st.st_ino, &p) && read_hello(s)) {
		away_slot_drop(s);
		return;
	}
	away_slot_made();
	away_slot_give_back(s);
}

/* ---- a call ---- */

/* A whole message in a file that nobody can change any more. */
static int big_file(const struct away_call *c)
{
	int fd = os_memfd("rds message", MFD_CLOEXEC | MFD_ALLOW_SEALING), err = 0;
	off_t off = 0;
	unsigned i;

	for (i = 0; fd >= 0 && !err && i < c->n_data; i++) {
		size_t done = 0;

		while (!err && done < c->data[i].iov_len) {
			ssize_t n =
				os_pwrite(fd, (const char *)c->data[i].iov_base + done, c->data[i].iov_len - done, off);

			err = n < 0 ? (int)n : n ? 0 : -EIO;
			if (n > 0) {
				done += (size_t)n;
				off += n;
			}
		}
	}
	if (fd < 0)
		return fd;
	if (!err)
		err = os_fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	if (err < 0) {
		os_close(fd);
		return err;
	}
	return fd;
}

static size_t fill_packet(struct away_slot *s, const struct away_call *c)
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

static int send_request(struct away_slot *s, struct away_call *c)
{
	int memfd = -1, err;
	size_t len;

	c->q.magic = RDS_SHARE_MAGIC;
	c->q.seq = ++s->seq;
	if (c->q.big) {
		memfd = big_file(c);
		if (memfd < 0)
			return memfd;
	}
	len = fill_packet(s, c);
	do {
		err = os_pass_send(atomic_load(&s->fd), s->packet, len, &memfd, memfd >= 0, 0);
	} while (err == -EINTR);
	if (memfd >= 0)
		os_close(memfd);
	return err == -EPIPE ? -ECONNRESET : err;
}

/* Sets where the parts are; false: it cannot be. */
static bool open_answer(struct away_slot *s, struct away_call *c, size_t len, int memfd)
{
	const struct rds_share_answer *a = &c->a;

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

/* Its message goes back to where it was. */
static int unopened(struct away_slot *s, struct away_call *c, bool lost)
{
	c->slot = s;
	away_put_back(c);
	c->slot = NULL;
	return lost ? -EMFILE : -EPROTO;
}

/*
 * The next packet that belongs to this call: its kind, or -errno.  The kernel tells a carrier that has gone without reading the
 * request (-ECONNRESET: the call was not made) from one that had read it (-EPIPE: who knows).
 */
static int next_packet(int fd, struct away_slot *s, struct away_call *c)
{
	struct pollfd p = {.fd = atomic_load(&s->fd), .events = POLLIN};
	int fds[OS_PASS_MAX], kind;
	unsigned nfds, i;
	bool lost;
	ssize_t n;

	c->busy = s;
	c->offered = -1;
	for (;;) {
		if (away_ends(c) && (kind = away_wait(fd, c, &p, true)))
			return kind;
		n = os_pass_recv(atomic_load(&s->fd), s->packet, AWAY_PACKET, fds, &nfds, &lost, 0);
		if (n == -EINTR)
			continue;
		if (n <= 0)
			return n ? (int)n : -EPIPE;
		memset(&c->a, 0, sizeof(c->a));
		memcpy(&c->a, s->packet, (size_t)n < sizeof(c->a) ? (size_t)n : sizeof(c->a));
		kind = c->a.kind;
		if (c->a.magic != RDS_SHARE_MAGIC || (size_t)n < sizeof(c->a) ||
		    (kind == RDS_SHARE_REPLY && !open_answer(s, c, (size_t)n, nfds ? fds[0] : -1)))
			kind = unopened(s, c, lost);
		for (i = 0; i < nfds; i++)
			os_close(fds[i]);
		if (kind == RDS_SHARE_MOVED)
			return -ECONNRESET;
		if (kind < 0 || c->a.seq == c->q.seq)
			return kind;
	}
}

int away_ask(int fd, struct away_slot *s, struct away_call *c)
{
	int kind = send_request(s, c);

	if (!kind)
		kind = next_packet(fd, s, c);
	if (kind < 0)
		return kind;
	return kind == RDS_SHARE_REPLY ? 0 : -EPROTO;
}

/* The call sleeps at the carrier, we here, in a call that signals restart or end as they would the kernel's. */
static int sleep_until_ready(struct away_slot *s, struct away_call *c)
{
	struct rds_share_request cancel = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_CANCEL, .seq = c->q.seq};
	struct rds_share_answer ready;
	ssize_t n = away_sleep(s, c, &ready);

	c->asleep = n < 0;
	c->began = 0; /* the answer is waited for anew, however long it slept */
	if (n > 0 && ready.kind != RDS_SHARE_MOVED)
		return 0;
	if (n >= 0)
		return -ECONNRESET; /* it slept to the end */
	/* Its answer comes if it is not stopped; what became ready meanwhile is not lost. */
	c->cancelled = true;
	return os_pass_send(atomic_load(&s->fd), &cancel, sizeof(cancel), NULL, 0, 0) ? c->late : 0;
}

/* What came of it: 0, -errno, or -AWAY_LATE. */
static int outcome(int fd, struct away_slot *s, struct away_call *c)
{
	int kind;

	while ((kind = next_packet(fd, s, c)) >= 0) {
		if (kind == RDS_SHARE_REPLY)
			return 0;
		if (kind == RDS_SHARE_READY)
			c->asleep = false;
		if (kind != RDS_SHARE_WAIT)
			continue;
		c->asleep = true;
		if (c->underway &&
		    away_withdraw(s, c)) /* it had been read, and is not made before we have looked again */
			return -AWAY_LATE;
		if (!c->underway && (kind = sleep_until_ready(s, c)) < 0)
			return kind;
	}
	return kind;
}

static int run(int fd, struct away_slot *s, struct away_call *c)
{
	/* A look reaches no region, and no_longer() has to know that nothing else has been asked on this channel. */
	int err = c->q.op == RDS_SHARE_WATCH ? 0 : away_regions_tell(fd, s, c);

	if (!err && c->q.names_memory)
		err = away_memory_give(fd, s, c);
	if (err) /* nothing of the call itself has been asked for */
		return err;
	err = send_request(s, c);
	if (!err)
		err = outcome(fd, s, c);
	if (!err && c->a.made && c->opens.bytes)
		away_region_made(s, c->a.made, &c->opens);
	if (err == -AWAY_LATE && !c->underway && !away_withdraw(s, c)) {
		err = outcome(fd, s, c);
		if (err == -ECONNRESET) /* not made: the carrier says so */
			err = -AWAY_LATE;
	}
	return err;
}

static int64_t refused(int err)
{
	if (err != -EPIPE && err != -ECONNRESET && err != -EPROTO)
		return err;
	rds_warn_once("an RDS socket that came from another process cannot be used: nobody carries it any more, or who "
		      "does has another version of the library (ENOTCONN)");
	return -ENOTCONN;
}

#define CARRIERS 16 /* one after the other, in one call */

/*
 * A carrier that was killed had read the request.  What it may have done for it is lost with its queue, or is the same if it is done again; only
 * that a message was sent, or a name given, outlives it.
 */
static bool repeatable(const struct away_call *c)
{
	return c->q.op != RDS_SHARE_SEND && c->q.op != RDS_SHARE_BIND;
}

/* Where it was asked for is kept, if it may be made later.  greeted: the carrier may have read the request. */
static int64_t no_longer(struct away_call *c, bool greeted)
{
	struct away_slot *s = c->slot;

	c->slot = NULL;
	if (s && !greeted && away_lasts(c) && (c->q.op != RDS_SHARE_WATCH || c->q.opt || !s->watched))
		send_request(s, c);
	if (s && c->q.op == RDS_SHARE_WATCH)
		s->watched = true;
	if (s && greeted && !away_lasts(c))
		away_slot_drop(s);
	else if (s)
		away_slot_give_back(s);
	return c->late;
}

int64_t away_call(int fd, struct away_call *c)
{
	struct stat st;
	int tries, err = os_fstat(fd, &st);

	c->slot = NULL;
	c->mapped = NULL;
	if (err)
		return err;
	c->inode = st.st_ino;
	away_slots_begin();
	for (tries = 0; tries < CARRIERS; tries++) {
		err = reach(fd, c, &c->slot);
		if (err == -AWAY_LATE)
			return no_longer(c, false);
		if (err)
			break;
		err = run(fd, c->slot, c);
		if (!err) /* what was cancelled is told why here: a signal, or its time */
			return c->cancelled && c->a.result == -EINTR ? c->late : c->a.result;
		if (err == -AWAY_LATE)
			return no_longer(c, true);
		away_slot_drop(c->slot);
		c->slot = NULL;
		if (c->cancelled && (err == -ECONNRESET || repeatable(c)))
			return c->late;
		if (err == -EPIPE && repeatable(c))
			continue;
		if (err != -ECONNRESET) /* the channel of an earlier socket or carrier; the call was not made */
			break;
	}
	return refused(err);
}

bool rds_away_widowed(int fd)
{
	struct pollfd p = {.fd = rds_away_line(fd), .events = 0};

	return p.fd >= 0 && os_poll(&p, 1, 0) > 0;
}

void rds_away_give_up(int fd)
{
	struct stat st;

	if (os_fstat(fd, &st) == 0)
		rds_heir_drop(st.st_ino);
}

int rds_away_line(int fd)
{
	struct stat st;

	return rds_heir_any() && os_fstat(fd, &st) == 0 ? rds_heir_line(st.st_ino) : -1;
}

bool away_attached(int fd)
{
	struct pollfd p[2] = {{.events = 0}, {.events = 0}};
	struct away_slot *s = NULL;
	struct stat st;
	bool alive, watched;

	if (away_slots_ours() && os_fstat(fd, &st) == 0)
		s = away_slot_idle(st.st_ino);
	if (!s)
		return false;
	/* Of a process that is killed the line may go first: who was woken by it must not take the channel for a carrier's. */
	p[0].fd = atomic_load(&s->fd);
	p[1].fd = rds_heir_line(st.st_ino);
	alive = os_poll(p, 2, 0) == 0;
	watched = s->watched;
	if (alive || !s->greeted) /* the latter: its answer may be there all the same */
		away_slot_give_back(s);
	else
		away_slot_drop(s); /* to a carrier that has gone */
	return alive && watched;
}

void away_end(struct away_call *c)
{
	if (c->mapped)
		os_munmap(c->mapped, c->a.big);
	c->mapped = NULL;
	if (c->slot)
		away_slot_give_back(c->slot);
	c->slot = NULL;
}

void away_put_back(struct away_call *c)
{
	const struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_PUT_BACK};

	if (c->a.has_message)
		os_pass_send(atomic_load(&c->slot->fd), &q, sizeof(q), NULL, 0, 0);
}
