/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cold.c - warm and cold peers: a process has control sockets and pipes only for the peers that it
 * has used last.  So it needs a fixed number of descriptors, however many peers it has.
 *
 * A *cold* peer keeps its connections and everything that is mapped.  Messages go through its rings
 * as always.  Only a wake-up goes another way (wake_socket.c).  A packet for it waits, or is sent
 * again by its sender, until the peer is *warm* again.
 *
 * A peer is made cold by one side alone, because the other one may be stopped:
 *
 *   1. It sends COOL, so that the hang-up is not taken for the end of the process.
 *   2. It shuts its receiving side.  From here on, the kernel refuses what the other side sends.
 *   3. It handles the packets that have come before, and closes the socket.
 *
 * The other side keeps a packet that was refused.  Neither side sends on a new socket before the old
 * one has been read to its end and closed by both.  So no packet is lost, and none overtakes another.
 * (Linux before 6.2 may throw COOL away where it refuses a packet.  Then the hang-up is taken for the
 * end, and the connections are made again.)
 *
 * To make it warm, one side connects again and says HELLO with the number of the *session*: who has
 * connected first has chosen it.  The other side checks that it is the same process, and answers WARM.
 * Only then are packets sent.  If both connect at once, the socket of the process with the smaller id
 * is used; nothing has been sent on the other one.
 *
 * The end of a cold peer is told by the registry, not by a hang-up (alive.c).
 *
 * Helper thread only.  Must not know what packets say about connections.
 */
#include <string.h>
#include <sys/syscall.h>

#include "engine/transport/shm/shm.h"

#define OPEN_PART 8 /* of the descriptors that a process may have: so many peers are warm, ... */
#define OPEN_LEAST 4
#define OPEN_MOST 128 /* ... and this is enough */
#define VICTIMS 4     /* that do not read, before it is given up */
/*
 * Those who wait for an answer keep their socket, and may have half of all.  One that does not answer
 * for so long, because it is stopped, makes way for others.
 */
#define ANSWER_NS (1000 * 1000000ull)
#define WARM_AGAIN_NS (10 * 1000000ull)

static unsigned open_most(void)
{
	struct rlimit rl = {.rlim_cur = 0};
	rlim_t n;

	os_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, (long)&rl, 0, 0);
	n = rl.rlim_cur / OPEN_PART;
	return n < OPEN_LEAST ? OPEN_LEAST : n > OPEN_MOST ? OPEN_MOST : (unsigned)n;
}

/* Does the process with that id prefer our connect to its own, if both have connected? */
static bool ours_is_first(const struct rds_procid *id)
{
	return memcmp(registry_self(rds_node_registry), id, sizeof(*id)) < 0;
}

/* ---- to cold ---- */

static void peer_watch(struct shm_peer *p)
{
	struct shm_ep *ep;

	for (ep = p->eps; ep; ep = ep->peer_next)
		atomic_store_explicit(&ep->watched, p->warmth != SHM_WARM, memory_order_relaxed);
}

static void peer_set_cold(struct shm_peer *p)
{
	p->warmth = SHM_COLD;
	rds_shm.ncold++;
	peer_watch(p);
	shm_alive_await(p);
	shm_alive_look_at_others();
}

static void peer_warm_later(struct shm_peer *p)
{
	if (!p->ctl_queue)
		return;
	shm_queue_add(SHM_WARM_LATER, p);
	rds_timer_need(&rds_shm.warm_timer, os_now_ns() + WARM_AGAIN_NS);
}

/* False: it takes no packet, or what it has sent cannot be taken, and nothing has changed. */
static bool peer_cool(struct shm_peer *p)
{
	const struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_COOL};
	int err;

	if (!shm_peer_hello_fits(p))
		return false;
	err = shm_ctl_send(p->fd, &msg, NULL, 0);
	if (err) {
		if (shm_ctl_is_hang_up(err))
			shm_peer_read_all(p);
		return p->dead || p->fd < 0;
	}
	peer_set_cold(p);
	os_shutdown(p->fd, SHUT_RD);
	/* first: the packets below may bring descriptors */
	shm_wake_fds_close(p);
	shm_peer_read_all(p);
	if (p->dead)
		return true;
	shm_peer_shut(p);
	peer_warm_later(p);
	return true;
}

/* The peer waits for nothing, nor does this process wait for the peer. */
static bool peer_is_settled(const struct shm_peer *p)
{
	const struct shm_ep *ep;

	if (!p->known || p->warmth != SHM_WARM || p->ctl_queue || p->queue[SHM_UNREAD].in)
		return false;
	for (ep = p->eps; ep; ep = ep->peer_next)
		if (!ep->up)
			return false;
	return true;
}

/* The one used least recently, and of several the one that came first. */
static struct shm_peer *victim_find(const struct shm_peer *except, bool (*fits)(const struct shm_peer *p))
{
	uint64_t now = ++rds_shm.next_use;
	struct shm_peer *p, *found = NULL;

	for (p = rds_shm.open; p; p = p->open_next) {
		if (p->dead || p == except)
			continue;
		if (atomic_exchange(&p->used, false))
			p->used_order = now;
		if (fits(p) && (!found || p->used_order <= found->used_order))
			found = p;
	}
	return found;
}

/* What has come in and has not said HELLO has no session, and would not be found again. */
static bool peer_has_session(const struct shm_peer *p)
{
	return p->known || p->dialled;
}

static bool peer_has_none(const struct shm_peer *p)
{
	return !peer_has_session(p);
}

static bool victim_cool(const struct shm_peer *except, bool (*fits)(const struct shm_peer *p))
{
	struct shm_peer *p;
	unsigned i;

	for (i = 0; i < VICTIMS && (p = victim_find(except, fits)); i++) {
		if (peer_cool(p))
			return true;
		p->used_order = ++rds_shm.next_use;
	}
	return false;
}

bool shm_cold_make_room(const struct shm_peer *except, bool must)
{
	struct shm_peer *p;

	if (!must) {
		while (rds_shm.nopen >= open_most() && victim_cool(except, peer_is_settled))
			;
		return true;
	}
	if (victim_cool(except, peer_is_settled) || victim_cool(except, peer_has_session))
		return true;
	p = victim_find(except, peer_has_none);
	if (p)
		shm_peer_dead(p, -EMFILE); /* the peer tries again */
	return p;
}

void shm_cold_hung_up(struct shm_peer *p)
{
	bool refused = p->warmth == SHM_WARMING;

	peer_set_cold(p);
	shm_peer_shut(p);
	if (refused)
		peer_warm_later(p);
	else if (p->ctl_queue)
		shm_peer_defer(p, SHM_DEFER_WARM);
}

int shm_cold_on_cool(struct shm_peer *p)
{
	if (p->known && p->warmth == SHM_WARM)
		p->warmth = SHM_COOLING;
	else if (p->warmth != SHM_COLD) /* cold: both have sent COOL */
		return -EPROTO;
	return 0;
}

/* ---- to warm ---- */

bool shm_peer_owes_reply(const struct shm_peer *p)
{
	const struct shm_ep *ep;

	for (ep = p->eps; ep; ep = ep->peer_next)
		if (ep->initiator && !ep->up)
			return true;
	return false;
}

static bool peer_owes_answer(const struct shm_peer *p)
{
	return p->warmth == SHM_WARMING || (p->dialled && !p->known) || shm_peer_owes_reply(p);
}

bool shm_cold_may_dial(void)
{
	struct shm_peer *p, *oldest = NULL;
	unsigned n = 0;

	for (p = rds_shm.open; p; p = p->open_next) {
		if (p->dead || !peer_owes_answer(p))
			continue;
		n++;
		if (!oldest || p->opened_at < oldest->opened_at)
			oldest = p;
	}
	if (n < open_most() / 2)
		return true;
	if (os_now_ns() - (oldest->opened_at > rds_shm.answered_at ? oldest->opened_at : rds_shm.answered_at) <
	    ANSWER_NS)
		return false;
	/* settled ones first make way for what it may have said */
	while (!oldest->dead && !shm_peer_hello_fits(oldest))
		if (!rds_helper_reserve_release() && !victim_cool(oldest, peer_is_settled))
			return false;
	return peer_cool(oldest);
}

static uint8_t session_whose(const struct shm_peer *p)
{
	return p->dialled ? SHM_SESSION_MINE : SHM_SESSION_YOURS;
}

void shm_cold_warm(struct shm_peer *p)
{
	struct ucred cred;
	int fd;

	if (p->dead || p->warmth != SHM_COLD)
		return;
	fd = shm_peer_dial(&p->id, &cred);
	if (fd == -ECONNREFUSED) {
		shm_peer_dead(p, fd);
		return;
	}
	if (p->dead || p->warmth != SHM_COLD) {
		/* room was made for the socket, and the peer has connected meanwhile, or ended */
		if (fd >= 0)
			os_close(fd);
		return;
	}
	if (fd < 0 || shm_peer_open(p, fd) < 0) {
		peer_warm_later(p);
		return;
	}
	rds_shm.ncold--;
	p->warmth = SHM_WARMING;
	p->answered = false;
	if (shm_peer_say_hello(p->fd, p->session, session_whose(p)))
		shm_cold_hung_up(p);
}

/*
 * One that cannot be connected to, for example because it is stopped and its listener full, must not
 * keep the others waiting: each is tried once before it is tried again.
 */
static void warm_again(struct rds_timer *tm)
{
	struct shm_peer *p;

	while ((p = shm_queue_take(SHM_WARM_LATER))) {
		if (p->dead || p->warmth != SHM_COLD || !p->ctl_queue)
			continue;
		shm_cold_warm(p);
		if (rds_timer_is_set(tm)) /* not now: it is the last one from now on */
			return;
	}
}

static int peer_take_pipes(struct shm_peer *p, const struct shm_ctl_msg *hello, int fds[OS_PASS_MAX],
			   const int modes[2])
{
	bool again = p->known;
	int err = again ? 0 : shm_peer_learn(p, hello, fds[2]);

	if (err || p->warmth == SHM_COLD)
		return err;
	shm_wake_fd_init(&p->leader, fds[0], modes[0], again);
	shm_wake_fd_init(&p->helper, fds[1], modes[1], again);
	fds[0] = fds[1] = -1;
	return 0;
}

/*
 * Cold: this process has given the socket up, and reads what has come before.  Pipes that it does not
 * need may be lost.
 */
int shm_cold_on_hello(struct shm_peer *p, const struct shm_ctl_msg *msg, int fds[OS_PASS_MAX], unsigned nfds)
{
	uint32_t slot = p->slot;
	int err, modes[2];

	if (p->warmth == SHM_COLD && p->known)
		return 0;
	if (nfds != 3)
		return -EPROTO;
	if (p->warmth != SHM_COLD && (p->warmth != SHM_WARMING || p->answered))
		return -EPROTO;
	err = shm_peer_check_hello(p, msg, fds, modes);
	if (err == -EAGAIN && p->warmth == SHM_WARMING && peer_cool(p))
		return 0;
	if (!err && p->known && p->slot != slot)
		err = -EACCES;
	if (err)
		return err;
	p->answered = true;
	return peer_take_pipes(p, msg, fds, modes);
}

static int peer_set_warm(struct shm_peer *p)
{
	p->warmth = SHM_WARM;
	p->cold_uses = 0;
	peer_watch(p);
	return shm_ctl_flush(p);
}

int shm_cold_on_warm(struct shm_peer *p, const struct shm_ctl_msg *msg)
{
	if (p->warmth == SHM_COLD)
		return 0;
	if (p->warmth != SHM_WARMING || !p->answered)
		return -EPROTO;
	if (!msg->err)
		return peer_set_warm(p);
	shm_peer_dead(p, -ECONNRESET); /* the peer has broken the connections */
	return 0;
}

static struct shm_peer *session_find(const struct shm_ctl_msg *hello)
{
	struct shm_peer *p;

	for (p = rds_shm.peers; p; p = p->next)
		if (!p->dead && peer_has_session(p) && p->session == hello->cookie &&
		    p->dialled == (hello->whose == SHM_SESSION_YOURS) && !memcmp(&p->id, &hello->self, sizeof(p->id)))
			return p;
	return NULL;
}

/*
 * The first socket of that process may have come in, and no descriptors been free for its HELLO.
 * False: it cannot be read now.
 */
static bool earlier_hello_read(const struct shm_peer *from)
{
	static bool reading; /* what is read may lead here again, also for the socket that is read */
	struct shm_peer *p, *next;
	bool all = true;

	if (reading)
		return false;
	reading = true;
	for (p = rds_shm.open; p && all; p = next) {
		next = p->open_next;
		if (p == from || p->dead || peer_has_session(p) || p->cred.pid != from->cred.pid)
			continue;
		all = shm_peer_hello_fits(p);
		if (all)
			shm_peer_event(&p->ev->ev, EPOLLIN);
	}
	reading = false;
	/* room may have been made for those by giving up this one */
	return all && !from->dead && from->fd >= 0;
}

/* The control socket of `from` becomes that of p, together with its place in the epoll set. */
static void peer_take_socket(struct shm_peer *p, struct shm_peer *from)
{
	struct shm_ctl_event *ev = p->ev;

	os_fd_move_slot(&from->fd, &p->fd);
	p->ev = from->ev;
	from->ev = ev;
	p->ev->peer = p;
	ev->peer = from;
	shm_open_del(from);
	shm_open_add(p);
	p->opened_at = from->opened_at;
	p->used_order = from->used_order;
	rds_shm.ncold--;
}

int shm_cold_on_return(struct shm_peer *from, const struct shm_ctl_msg *msg, int fds[OS_PASS_MAX])
{
	struct shm_ctl_msg answer = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_WARM};
	struct shm_peer *p;
	int modes[2], err = shm_peer_check_hello(from, msg, fds, modes);

	if (err)
		return err;
	p = session_find(msg);
	if (!p && !earlier_hello_read(from))
		return -EALREADY;
	if (!p)
		p = session_find(msg);
	if (p && p->warmth != SHM_COLD && !shm_peer_hello_fits(p))
		return -EALREADY;
	if (p && p->warmth != SHM_COLD)
		shm_peer_read_all(p); /* COOL, perhaps even the first HELLO, may not have been read */
	if (!p || p->dead) {
		answer.err = -ENOENT;
		shm_ctl_send(from->fd, &answer, NULL, 0);
		return -ENOENT;
	}
	if (p->cred.pid != from->cred.pid || p->slot != from->slot)
		return -EACCES;
	if (p->warmth == SHM_WARMING && !ours_is_first(&p->id))
		peer_cool(p);
	if (p->dead || p->warmth != SHM_COLD)
		return -EALREADY;
	peer_take_socket(p, from);
	shm_peer_dead(from, -EALREADY);
	p->warmth = SHM_WARM;
	err = peer_take_pipes(p, msg, fds, modes);
	if (!err)
		err = shm_ctl_send(p->fd, &answer, NULL, 0);
	if (shm_ctl_is_hang_up(err)) /* the hang-up comes as an event */
		err = 0;
	if (!err)
		err = peer_set_warm(p);
	if (err)
		shm_peer_dead(p, err);
	else
		shm_peer_read_later(p);
	return 0;
}

void shm_cold_tell_end(struct shm_peer *p)
{
	struct ucred cred;
	int fd = shm_peer_dial(&p->id, &cred);

	if (fd < 0)
		return; /* the connect that follows tells it */
	shm_peer_say_hello(fd, p->session, session_whose(p));
	os_close(fd);
}

void shm_cold_init(void)
{
	rds_shm.warm_timer.fn = warm_again;
}
