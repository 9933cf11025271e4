/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * wake.c - which rings are polled, and which thread of a peer has to be woken.
 *
 * A receiver polls its few hot rings.  A ring that is not polled says so (need_bell): its sender
 * sets the connection's bit in the receiver's inbox.  The sender then wakes the thread that
 * `attention` names, the leader or the helper, through a pipe (a cold peer by a datagram:
 * wake_socket.c).  After the wake-up the sender changes attention to LAZY (it *claims* attention), so
 * that one wake-up is sent, not many.  The claim comes after the wake-up, because a process may be
 * stopped or killed at any instruction.  If it were killed between a claim and the wake-up, the
 * receiver would sleep while its attention says that it is awake.  Each announcement of attention has
 * a number.  So a late claim fails, which comes when the receiver has woken up and gone to sleep
 * again.
 *
 * Both sides publish, then fence, then read what the other side has published.  So either the
 * sender sees that it has to ring, or the receiver sees the message when it checks once more before
 * it sleeps.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/transport/shm/shm.h"

#define COLD_USES 256

/* ---- sending side ---- */

/*
 * The number of the pipe in this thread's table.  A program's thread that has none yet takes what
 * the helper has exported.  -1: none.
 */
static int wake_fd_get(struct shm_peer *p, struct shm_wake_fd *w)
{
	int fd = atomic_load(os_fd_slot(&w->fd));

	if (likely(fd >= 0) || !atomic_load(&p->exporting))
		return fd;
	rds_fd_exchange_take();
	return atomic_load(os_fd_slot(&w->fd));
}

bool shm_wake_fd_write(const struct shm_wake_fd *w, int fd)
{
	static const uint64_t one = 1;
	/*
	 * The peer may have just ended.  Then the pipe has no reader, unless this end is open for
	 * reading, too.
	 */
	ssize_t n = likely(atomic_load_explicit(&w->has_reader, memory_order_relaxed))
			    ? os_write(fd, &one, sizeof(one))
			    : os_write_quiet(fd, &one, sizeof(one));

	return n > 0 || n == -EAGAIN; /* EAGAIN: the pipe is full of earlier wake-ups */
}

void shm_attention_claim(struct shm_peer *p, struct shm_inbox *there, uint32_t word)
{
	uint32_t who = word & SHM_ATT_WHO, lazy = word - who + RDS_ATT_LAZY;

	if ((who == RDS_ATT_LEADER || who == RDS_ATT_HELPER) &&
	    atomic_compare_exchange_strong(&there->attention, &word, lazy))
		atomic_store_explicit(&p->woken, lazy, memory_order_relaxed);
}

enum wake_result { WAKE_SENT, WAKE_LEFT, WAKE_FAILED };

/*
 * Something for a cold peer, which may have ended, or end before it looks: a recheck tells.  A peer
 * that gets so much is not one of those that are used least: it gets its control socket back.  (That a
 * count may be lost does not matter.)
 */
static void peer_use_cold(struct shm_ep *ep)
{
	struct shm_peer *p = ep->peer;
	unsigned uses;

	if (!p)
		return;
	shm_recheck_later(ep);
	uses = atomic_load_explicit(&p->cold_uses, memory_order_relaxed) + 1;
	atomic_store_explicit(&p->cold_uses, uses, memory_order_relaxed);
	if (uses % COLD_USES == 0)
		shm_peer_defer(p, SHM_DEFER_WARM);
}

static enum wake_result peer_wake_cold(struct shm_ep *ep, unsigned want)
{
	struct shm_peer *p = ep->peer;
	int err = shm_wake_socket_send(p, false);

	peer_use_cold(ep);
	if (err == -EMFILE) {
		shm_peer_defer(p, want); /* the helper has a socket */
		return WAKE_LEFT;
	}
	if (err == -ECONNREFUSED)
		shm_peer_defer(p, SHM_DEFER_ALIVE);
	return err ? WAKE_FAILED : WAKE_SENT;
}

/* `waking` is for wake_fds.c: the pipe is not closed as long as this thread may be writing to it. */
static enum wake_result peer_wake_by(struct shm_ep *ep, struct shm_wake_fd *w, unsigned want)
{
	struct shm_peer *p = ep->peer;
	enum wake_result woken = WAKE_LEFT;
	int fd;

	atomic_fetch_add(&p->waking, 1);
	fd = wake_fd_get(p, w);
	if (likely(fd >= 0))
		woken = shm_wake_fd_write(w, fd) ? WAKE_SENT : WAKE_FAILED;
	atomic_fetch_sub(&p->waking, 1);
	if (likely(fd >= 0)) {
		if (unlikely(!atomic_load_explicit(&p->used, memory_order_relaxed)))
			atomic_store_explicit(&p->used, true, memory_order_relaxed);
		return woken;
	}
	if (atomic_load(&p->warmth) != SHM_WARM)
		return peer_wake_cold(ep, want);
	/* The helper has a number of the pipe, and exports it for the next time. */
	shm_peer_defer(p, want);
	return WAKE_LEFT;
}

static void peer_wake(struct shm_ep *ep, bool service)
{
	struct shm_peer *p = ep->peer;
	uint32_t word = atomic_load(&ep->there->attention), who = word & SHM_ATT_WHO;
	enum wake_result woken = WAKE_FAILED;

	if (!p)
		return;
	if (who == RDS_ATT_LEADER) {
		woken = peer_wake_by(ep, &p->leader, SHM_DEFER_WAKE_LEADER);
		rds_transport_wakes.peer_woken();
	} else if (who == RDS_ATT_HELPER || (service && who != RDS_ATT_POLLING)) {
		woken = peer_wake_by(ep, &p->helper, SHM_DEFER_WAKE_HELPER);
	}
	if (woken == WAKE_SENT)
		shm_attention_claim(p, ep->there, word);
	if (woken == WAKE_FAILED) {
		/*
		 * The peer's inbox says that the peer is awake.  If this process has not written
		 * that, another process may have, and it may be wrong.  A cold peer may have ended.
		 */
		if (who != RDS_ATT_LAZY || word != atomic_load_explicit(&p->woken, memory_order_relaxed) ||
		    atomic_load_explicit(&p->warmth, memory_order_relaxed) != SHM_WARM)
			shm_recheck_later(ep);
	}
}

static void bell_ring_peer(struct shm_ep *ep)
{
	uint32_t g = ep->bell_there / 64;
	uint64_t bit = 1ull << (ep->bell_there % 64), gbit = 1ull << g;

	if (!(atomic_load(&ep->there->words[g]) & bit))
		atomic_fetch_or(&ep->there->words[g], bit);
	if (!(atomic_load(&ep->there->summary) & gbit))
		atomic_fetch_or(&ep->there->summary, gbit);
}

void shm_flush(struct rds_ep *rep, bool service)
{
	struct shm_ep *ep = (struct shm_ep *)rep;

	if (ep->tail != ep->flushed) {
		atomic_store_explicit(&ep->tx->tail, ep->tail, memory_order_release);
		ep->flushed = ep->tail;
		rds_fence();
		if (unlikely(atomic_load_explicit(&ep->tx->need_bell, memory_order_relaxed))) {
			rds_transport_wakes.peer_wake_begin();
			bell_ring_peer(ep);
			peer_wake(ep, false);
		} else if (unlikely(atomic_load_explicit(&ep->watched, memory_order_relaxed))) {
			peer_use_cold(ep);
		}
	}
	/*
	 * Once per acknowledgement seen: a receiver that is between two calls need be asked only
	 * once.
	 */
	if (unlikely(service) && ep->serviced != ep->seen_acked + 1) {
		shm_ring_acked(rep);
		ep->serviced = ep->seen_acked + 1;
		bell_ring_peer(ep);
		peer_wake(ep, true);
	}
}

bool shm_want_room(struct rds_ep *rep, uint64_t seen_ack)
{
	struct shm_ep *ep = (struct shm_ep *)rep;

	atomic_store_explicit(&ep->tx->want_room, ++ep->wanted, memory_order_relaxed);
	rds_fence();
	return shm_ring_acked(rep) > seen_ack;
}

/* ---- receiving side (rx) ---- */

void shm_room_made(struct shm_ep *ep)
{
	uint32_t want;

	rds_fence();
	want = atomic_load_explicit(&ep->rx->want_room, memory_order_relaxed);
	if (likely(want == ep->answered))
		return;
	ep->answered = want;
	atomic_store_explicit(&ep->rx->room_said, want, memory_order_release);
	/*
	 * bell_ring_peer() does not write if the bell rings already.  The thread that answers that
	 * bell must see room_said.
	 */
	rds_fence();
	bell_ring_peer(ep);
	peer_wake(ep, false); /* a busy sender (LAZY) will look by itself, or its LAZY ends */
}

static void rings_set_need_bell(struct shm *s, bool on)
{
	unsigned i;

	if (s->need_bell == on)
		return;
	s->need_bell = on;
	for (i = 0; i < s->nhot; i++)
		atomic_store_explicit(&s->hot[i]->rx->need_bell, on, memory_order_relaxed);
}

/* A leader that sleeps on the socket is woken by those who send cells; for rings it is the helper. */
void shm_attention(struct rds_transport *t, enum rds_attention cells)
{
	enum rds_attention who = cells == RDS_ATT_NAMED ? RDS_ATT_HELPER : cells;
	struct shm *s = (struct shm *)t;

	if (unlikely(atomic_load_explicit(&s->inbox->attention, memory_order_relaxed) != s->announced && !s->found))
		shm_recheck_inbox();
	s->found = false;
	s->announced = ((s->announced + SHM_ATT_STEP) & ~SHM_ATT_WHO) | who;
	rings_set_need_bell(s, who == RDS_ATT_LEADER || who == RDS_ATT_HELPER);
	atomic_store_explicit(&s->inbox->attention, s->announced, memory_order_relaxed);
	if (likely(shm_cells_line))
		atomic_store_explicit(&shm_cells_line->attention, s->announced - who + cells, memory_order_relaxed);
	rds_fence();
}

bool shm_pending(struct rds_transport *t)
{
	struct shm *s = (struct shm *)t;
	unsigned i;

	if (!s->inbox)
		return false;
	if (atomic_load_explicit(&s->inbox->summary, memory_order_relaxed) || shm_cells_pending() ||
	    shm_cells_tick_came())
		return true;
	for (i = 0; i < s->nhot; i++)
		if (shm_ring_leftover(s->hot[i]))
			return true;
	return false;
}

/* Rings the own bell: the next round looks at this ring. */
void shm_bell_ring_own(struct shm_ep *ep)
{
	struct shm *s = &rds_shm;

	atomic_fetch_or(&s->inbox->words[ep->bell_here / 64], 1ull << (ep->bell_here % 64));
	atomic_fetch_or(&s->inbox->summary, 1ull << (ep->bell_here / 64));
}

/*
 * The ring is in use, so it is polled from now on.  If all places are taken, the sender of the ring
 * that was hot longest has to ring its bell again.
 */
static void ring_make_hot(struct shm *s, struct shm_ep *ep)
{
	struct shm_ep *old;

	if (ep->hot || ep->closed)
		return;
	if (s->nhot == SHM_HOT) {
		old = s->hot[0];
		memmove(&s->hot[0], &s->hot[1], sizeof(s->hot[0]) * (SHM_HOT - 1));
		s->nhot--;
		old->hot = false;
		atomic_store(&old->rx->need_bell, 1);
		rds_fence();
		/* messages that its sender published before it saw need_bell */
		shm_ring_drain(old);
		if (unlikely(shm_ring_leftover(old)))
			shm_bell_ring_own(old); /* no memory: they are offered again */
	}
	ep->hot = true;
	s->hot[s->nhot++] = ep;
	atomic_store(&ep->rx->need_bell, s->need_bell);
}

static void ring_make_cold(struct shm *s, struct shm_ep *ep)
{
	unsigned i;

	for (i = 0; i < s->nhot; i++)
		if (s->hot[i] == ep) {
			memmove(&s->hot[i], &s->hot[i + 1], sizeof(s->hot[0]) * (s->nhot - i - 1));
			s->nhot--;
			break;
		}
	ep->hot = false;
}

/*
 * Has the peer answered a request for room?  A bell rings for messages, too.  An answer is reported
 * even if another request has been made since.
 */
static bool ring_room_came(struct shm_ep *ep)
{
	uint32_t said = atomic_load_explicit(&ep->tx->room_said, memory_order_acquire);

	if (likely(said == ep->room_seen))
		return false;
	ep->room_seen = said;
	atomic_store_explicit(&ep->tx->room_seen, said, memory_order_relaxed);
	return true;
}

static bool bell_answer(struct shm *s, uint32_t bell)
{
	struct shm_ep *ep = shm_bells[bell];
	bool moved;

	if (!ep || !ep->up)
		return false;
	s->found = true;
	if (ring_room_came(ep)) {
		s->t.up->push_later(ep->head.conn);
		s->t.up->writable(ep->head.conn);
	}
	moved = shm_ring_drain(ep);
	if (moved || unlikely(shm_ring_leftover(ep)))
		ring_make_hot(s, ep);
	return moved;
}

static bool bells_answer(struct shm *s)
{
	uint64_t groups = atomic_exchange(&s->inbox->summary, 0), bits;
	bool moved = false;

	while (groups) {
		unsigned g = (unsigned)__builtin_ctzll(groups);

		groups &= groups - 1;
		bits = atomic_exchange(&s->inbox->words[g], 0);
		/*
		 * A sender that has still seen its bit set does not ring again: its message was
		 * published before that.
		 */
		rds_fence();
		while (bits) {
			moved |= bell_answer(s, g * 64 + (unsigned)__builtin_ctzll(bits));
			bits &= bits - 1;
		}
	}
	return moved;
}

bool shm_progress(struct rds_transport *t)
{
	struct shm *s = (struct shm *)t;
	bool moved = false;
	unsigned i;

	for (i = 0; i < s->nhot; i++) {
		const struct shm_ep *ep = s->hot[i];
		const unsigned char *next = shm_ring_at(ep->rx, ep->rx_data, ep->size, ep->read);

		/*
		 * The next record is loaded together with the index that announces it, not after
		 * it.
		 */
		__builtin_prefetch(next);
		__builtin_prefetch(next + SHM_LINE);
		moved |= shm_ring_drain(s->hot[i]);
	}
	if (unlikely(atomic_load_explicit(&s->inbox->summary, memory_order_relaxed)))
		moved |= bells_answer(s);
	if (shm_cells_drain())
		moved = rds_helper_leader.by_name = true;
	else if (moved)
		rds_helper_leader.by_name = false;
	if (moved)
		s->found = true;
	return moved;
}

bool shm_relieve(struct rds_transport *t, bool now)
{
	struct shm *s = (struct shm *)t;
	uint32_t i;

	if (!s->pressed)
		return false;
	s->pressed = false;
	for (i = 0; i < s->bell_top; i++)
		if (shm_bells[i] && shm_bells[i]->up)
			s->pressed |= shm_ring_relieve(shm_bells[i], now);
	return s->pressed;
}

int shm_bell_add(struct shm_ep *ep)
{
	struct shm *s = &rds_shm;
	uint32_t i;

	for (i = 0; i < SHM_BELLS; i++) {
		uint32_t bell = (s->next_bell + i) % SHM_BELLS;

		if (shm_bells[bell])
			continue;
		shm_bells[bell] = ep;
		s->next_bell = bell + 1;
		if (bell >= s->bell_top)
			s->bell_top = bell + 1;
		ep->bell_here = bell;
		return 0;
	}
	rds_error("more than %u connections in one process: messages that need another one wait until one has ended",
		  SHM_BELLS);
	return -ENOSPC;
}

void shm_bell_del(struct shm_ep *ep)
{
	ring_make_cold(&rds_shm, ep);
	if (shm_bells[ep->bell_here] == ep)
		shm_bells[ep->bell_here] = NULL;
}

int shm_inbox_open(void)
{
	struct shm *s = &rds_shm;
	void *map;
	int fd, err;

	fd = os_memfd("rdspreload-inbox", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return fd;
	err = os_dup_high_slot(fd, &s->inbox_fd);
	if (err < 0)
		return err;
	fd = s->inbox_fd;
	err = os_ftruncate(fd, SHM_CTL_BYTES);
	if (!err)
		err = os_reserve(fd, SHM_CTL_BYTES);
	if (!err)
		err = os_fcntl(fd, F_ADD_SEALS, SHM_SEALS);
	if (err < 0) {
		os_close_slot(&s->inbox_fd);
		return err;
	}
	err = os_mmap(SHM_CTL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0, &map);
	if (err) {
		os_close_slot(&s->inbox_fd);
		return err;
	}
	s->inbox = map;
	s->announced = RDS_ATT_HELPER;
	atomic_store(&s->inbox->attention, s->announced);
	return 0;
}

void shm_inbox_close(void)
{
	struct shm_inbox *inbox;

	os_close_slot(&rds_shm.inbox_fd);
	rx_lock(); /* a thread that polls an unbound socket may be reading the inbox */
	inbox = rds_shm.inbox;
	rds_shm.inbox = NULL;
	rx_unlock();
	if (inbox)
		munmap(inbox, SHM_CTL_BYTES);
}
