/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * wake.c - who looks at which ring, and who has to be woken.
 *
 * A receiver looks at its few hot rings directly.  A ring that is not looked at says so (need_bell): its sender sets the
 * connection's bit in the receiver's inbox, and wakes whoever `attention` names: the leader through its pipe, the
 * helper through the control socket.  Whoever wakes changes attention to LAZY, so that one wake-up is sent, not many.
 *
 * Both sides publish, then fence, then look at what the other published: either the sender sees that it has to ring, or
 * the receiver sees the message when it looks once more before it sleeps.
 */
#include <string.h>
#include <sys/mman.h>

#include "engine/transport/shm/shm.h"

static inline void fence(void)
{
#ifdef __SANITIZE_THREAD__
	static __thread _Atomic int here; /* a full barrier too, of a kind that the sanitizer takes */

	atomic_fetch_add(&here, 1);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* ---- sending side ---- */

void shm_kick_helper(struct shm_ep *ep)
{
	struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_KICK};

	if (ep->peer)
		shm_ctl_send(ep->peer->ev.fd, &msg, NULL, 0); /* a full socket means that it has been kicked already */
}

static void wake(struct shm_ep *ep, bool service)
{
	static const uint64_t one = 1;
	uint32_t who = atomic_load(&ep->there->attention);

	if (who == RDS_ATT_LEADER) {
		if (atomic_compare_exchange_strong(&ep->there->attention, &who, RDS_ATT_LAZY)) {
			/* Its process may have just ended: then nobody reads this pipe, unless we could ourselves. */
			if (likely(ep->peer->leader_lasts))
				os_write(ep->peer->leader_fd, &one, sizeof(one));
			else
				os_write_quiet(ep->peer->leader_fd, &one, sizeof(one));
			rds_peer_woken();
		}
	} else if (who == RDS_ATT_HELPER) {
		if (atomic_compare_exchange_strong(&ep->there->attention, &who, RDS_ATT_LAZY))
			shm_kick_helper(ep);
	} else if (service && who == RDS_ATT_LAZY) {
		shm_kick_helper(ep);
	}
}

static void ring_bell(struct shm_ep *ep)
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
		fence();
		if (unlikely(atomic_load_explicit(&ep->tx->need_bell, memory_order_relaxed))) {
			ring_bell(ep);
			wake(ep, false);
		}
	}
	/* Once per acknowledgement seen: a receiver that is between two calls need not be asked again and again. */
	if (unlikely(service) && ep->serviced != ep->seen_acked + 1) {
		shm_ring_acked(rep);
		ep->serviced = ep->seen_acked + 1;
		ring_bell(ep);
		wake(ep, true);
	}
}

bool shm_want_room(struct rds_ep *rep, uint64_t seen_ack)
{
	struct shm_ep *ep = (struct shm_ep *)rep;

	atomic_store(&ep->tx->want_room, 1);
	atomic_store(&ep->room_wanted, true); /* after it: see room_came() */
	fence();
	return shm_ring_acked(rep) > seen_ack;
}

/* ---- receiving side (rx) ---- */

void shm_room_made(struct shm_ep *ep)
{
	fence();
	if (likely(!atomic_load_explicit(&ep->rx->want_room, memory_order_relaxed)))
		return;
	atomic_store(&ep->rx->want_room, 0);
	ring_bell(ep);
	wake(ep, false); /* a busy sender (LAZY) is about to look by itself, or its lease ends */
}

static void set_need_bell(struct shm *s, bool on)
{
	unsigned i;

	if (s->need_bell == on)
		return;
	s->need_bell = on;
	for (i = 0; i < s->nhot; i++)
		atomic_store_explicit(&s->hot[i]->rx->need_bell, on, memory_order_relaxed);
}

void shm_attention(struct rds_transport *t, enum rds_attention who)
{
	struct shm *s = (struct shm *)t;

	set_need_bell(s, who == RDS_ATT_LEADER || who == RDS_ATT_HELPER);
	atomic_store_explicit(&s->inbox->attention, who, memory_order_relaxed);
	fence();
}

static bool leftover(const struct shm_ep *ep)
{
	return atomic_load_explicit(&ep->rx->tail, memory_order_relaxed) != ep->read && !ep->broken;
}

bool shm_pending(struct rds_transport *t)
{
	struct shm *s = (struct shm *)t;
	unsigned i;

	if (!s->inbox)
		return false;
	if (atomic_load_explicit(&s->inbox->summary, memory_order_relaxed))
		return true;
	for (i = 0; i < s->nhot; i++)
		if (leftover(s->hot[i]))
			return true;
	return false;
}

/* Rung by ourselves: look at it with the next round. */
void shm_ring_own_bell(struct shm_ep *ep)
{
	struct shm *s = &rds_shm;

	atomic_fetch_or(&s->inbox->words[ep->bell_here / 64], 1ull << (ep->bell_here % 64));
	atomic_fetch_or(&s->inbox->summary, 1ull << (ep->bell_here / 64));
}

/* The ring is in use: look at it without being told. The one that was hot longest has to ring again. */
static void make_hot(struct shm *s, struct shm_ep *ep)
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
		fence();
		shm_ring_drain(old); /* what it published before it saw that */
		if (unlikely(leftover(old)))
			shm_ring_own_bell(old); /* no memory for what waits there: offered again */
	}
	ep->hot = true;
	s->hot[s->nhot++] = ep;
	atomic_store(&ep->rx->need_bell, s->need_bell);
}

static void make_cold(struct shm *s, struct shm_ep *ep)
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

/* A bell may ring for a message as well: the wish for room is fulfilled only once the peer has taken its flag down. */
static bool room_came(struct shm_ep *ep)
{
	if (likely(!atomic_exchange(&ep->room_wanted, false)))
		return false;
	if (!atomic_load(&ep->tx->want_room))
		return true;
	atomic_store(&ep->room_wanted, true);
	return false;
}

static bool bell_rang(struct shm *s, uint32_t bell)
{
	struct shm_ep *ep = s->bells[bell];
	bool moved;

	if (!ep || !ep->up)
		return false;
	if (room_came(ep))
		s->t.up->writable(ep->head.conn);
	moved = shm_ring_drain(ep);
	if (moved || unlikely(leftover(ep)))
		make_hot(s, ep);
	return moved;
}

static bool answer_bells(struct shm *s)
{
	uint64_t groups = atomic_exchange(&s->inbox->summary, 0), bits;
	bool moved = false;

	while (groups) {
		unsigned g = (unsigned)__builtin_ctzll(groups);

		groups &= groups - 1;
		bits = atomic_exchange(&s->inbox->words[g], 0);
		while (bits) {
			moved |= bell_rang(s, g * 64 + (unsigned)__builtin_ctzll(bits));
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
		const unsigned char *next = ep->rx_data + (ep->read & (ep->size - 1));

		/* The next record travels together with the index that announces it, not after it. */
		__builtin_prefetch(next);
		__builtin_prefetch(next + SHM_LINE);
		moved |= shm_ring_drain(s->hot[i]);
	}
	if (unlikely(atomic_load_explicit(&s->inbox->summary, memory_order_relaxed)))
		moved |= answer_bells(s);
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
		if (s->bells[i] && s->bells[i]->up)
			s->pressed |= shm_ring_relieve(s->bells[i], now);
	return s->pressed;
}

int shm_bell_add(struct shm_ep *ep)
{
	struct shm *s = &rds_shm;
	uint32_t i;

	for (i = 0; i < SHM_BELLS; i++) {
		uint32_t bell = (s->next_bell + i) % SHM_BELLS;

		if (s->bells[bell])
			continue;
		s->bells[bell] = ep;
		s->next_bell = bell + 1;
		if (bell >= s->bell_top)
			s->bell_top = bell + 1;
		ep->bell_here = bell;
		return 0;
	}
	rds_error("more than %u connections in one process", SHM_BELLS);
	return -ENOSPC;
}

void shm_bell_del(struct shm_ep *ep)
{
	make_cold(&rds_shm, ep);
	if (rds_shm.bells[ep->bell_here] == ep)
		rds_shm.bells[ep->bell_here] = NULL;
}

int shm_inbox_open(void)
{
	struct shm *s = &rds_shm;
	void *map;
	int fd, err;

	if (s->inbox) /* from a start that got no further than that */
		return 0;
	fd = os_memfd("rdspreload-inbox", 3 /* MFD_CLOEXEC | MFD_ALLOW_SEALING */);
	if (fd < 0)
		return fd;
	err = os_dup_high_slot(fd, &s->inbox_fd);
	if (err < 0)
		return err;
	fd = s->inbox_fd;
	err = os_ftruncate(fd, SHM_CTL_BYTES);
	if (!err)
		err = os_fcntl(fd, 1033 /* F_ADD_SEALS */, 7 /* SEAL | SHRINK | GROW */);
	if (err < 0) {
		os_close_slot(&s->inbox_fd);
		return err;
	}
	map = mmap(NULL, SHM_CTL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		os_close_slot(&s->inbox_fd);
		return -ENOMEM;
	}
	s->inbox = map;
	atomic_store(&s->inbox->attention, RDS_ATT_HELPER);
	return 0;
}
