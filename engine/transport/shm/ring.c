/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * ring.c - messages through memory that two processes share.
 *
 * There is one ring per direction, with one sender and one receiver, and no locks between them.  A
 * message is written once (from the program's buffer) and read once (into the program's buffer).
 * The receiver passes it to the engine in place and gives the room back in order when messages have
 * been read.  An acknowledgement (`acked`: the engine has the message) and room given back (`head`)
 * are different.  The bytes stay until they are acknowledged, so a broken connection can send them
 * again.
 *
 * Its first bytes, of the first lap only, lie in the control page (layout.h).
 *
 * A ring of 2 MiB or more takes each message as one record.  But while traffic is light, the sender
 * wraps early and uses only the first part of the ring, which stays in the cache.  It does not do
 * so for messages of which one or two would fill that part.  The part that is skipped is not free
 * until the receiver has passed it, and the rest would not hold a second message to be written at
 * the same time.  So it wraps early only if the first part, or eight such messages, have room then:
 * otherwise a sender of a few large messages would find a full ring that is nearly empty.
 *
 * Smaller rings: fragment.c.
 *
 * All data of the other side are checked.  Invalid data in a ring break the connections with that
 * process, nothing else.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "engine/sys/cpu.h"
#include "engine/transport/shm/shm.h"

#define FETCH_FROM 1024
#define FETCH_AHEAD 4
#define OLD_TICKS 4
#define SLOTS_START 8
#define SOFT_FEW 8
#define SOFT_BYTES (256u << 10) /* stay below this offset while there is room at the start */

static inline uint64_t rec_bytes(size_t payload)
{
	return (sizeof(struct shm_rec) + payload + SHM_LINE - 1) & ~(uint64_t)(SHM_LINE - 1);
}

/* Rings of that size take each message as one record. */
#define WHOLE_FROM (2 * RDS_MAX_MSG)

/*
 * In a small ring such a record could wait for ever: half of the ring may stay taken by messages
 * that nobody reads (ring_is_pressed()), and up to an eighth is not told to the sender when it gets
 * free.
 */
static inline bool rec_is_long(const struct shm_ep *ep, uint64_t bytes)
{
	return ep->size < WHOLE_FROM && bytes > ep->size / 4;
}

/* ---- send side (conn->tx) ---- */

static uint64_t ring_room_left(struct shm_ep *ep, uint64_t need)
{
	uint64_t used = ep->tail - ep->seen_head, head;

	if (likely(ep->size - used >= need))
		return ep->size - used;
	if (unlikely(ep->unplaced)) /* shm_long_send() */
		return 0;
	head = atomic_load_explicit(&ep->tx->head, memory_order_acquire);
	if (head - ep->seen_head <= used) /* otherwise head is invalid: the ring stays full */
		ep->seen_head = head;
	return ep->size - (ep->tail - ep->seen_head);
}

static inline struct shm_rec *rec_at_tail(struct shm_ep *ep, uint64_t bytes, uint32_t kind)
{
	struct shm_rec *rec = (struct shm_rec *)shm_ring_at(ep->tx, ep->tx_data, ep->size, ep->tail);

	rec->len = (uint32_t)bytes;
	rec->kind = kind;
	return rec;
}

static void ring_pad(struct shm_ep *ep, uint64_t bytes)
{
	rec_at_tail(ep, bytes, SHM_REC_PAD);
	ep->tail += bytes;
}

/* Makes room for a record in one piece at the tail.  Wraps where that helps. */
static inline __attribute__((always_inline)) bool ring_make_room(struct shm_ep *ep, uint64_t need)
{
	uint64_t off = ep->tail & (ep->size - 1), rest = shm_ring_rest(ep->size, ep->tail),
		 few = need > SOFT_BYTES / SOFT_FEW ? SOFT_FEW * need : SOFT_BYTES;

	if (unlikely(off >= SOFT_BYTES) && need <= SOFT_BYTES / 2 && ring_room_left(ep, rest + few) >= rest + few) {
		ring_pad(ep, rest);
		return true;
	}
	if (likely(need <= rest))
		return ring_room_left(ep, need) >= need;
	if (rec_is_long(ep, need) || ring_room_left(ep, rest) < rest)
		return false;
	ring_pad(ep, rest); /* when the receiver has skipped the padding, the whole ring is free */
	return ring_room_left(ep, need) >= need;
}

bool shm_ring_has_room(struct shm_ep *ep, uint32_t len)
{
	return ring_make_room(ep, rec_bytes(len));
}

bool shm_ring_fragment(struct shm_ep *ep, const struct rds_wire_hdr *hdr, const void *bytes, uint32_t len)
{
	uint64_t need = rec_bytes(len);
	struct shm_rec *rec;

	if (!shm_ring_has_room(ep, len))
		return false;
	rec = rec_at_tail(ep, need, SHM_REC_FRAGMENT);
	rec->hdr = *hdr;
	memcpy(rec + 1, bytes, len);
	ep->tail += need;
	return true;
}

int shm_ring_send(struct rds_ep *rep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len, uint64_t *pos)
{
	struct shm_ep *ep = (struct shm_ep *)rep;
	uint64_t need = rec_bytes(len);
	struct shm_rec *rec;

	if (unlikely(!ring_make_room(ep, need)))
		return rec_is_long(ep, need) ? shm_long_send(ep, hdr, iov, len, pos) : -EAGAIN;
	rec = rec_at_tail(ep, need, SHM_REC_MSG);
	rec->hdr = *hdr;
	rds_copy_gather(rec + 1, iov, len);
	*pos = ep->tail;
	ep->tail += need;
	return 0;
}

const void *shm_ring_retained(struct rds_ep *rep, uint64_t pos)
{
	struct shm_ep *ep = (struct shm_ep *)rep;

	if (unlikely(pos % SHM_LINE))
		return shm_long_retained(ep, pos);
	return shm_ring_at(ep->tx, ep->tx_data, ep->size, pos) + sizeof(struct shm_rec);
}

uint64_t shm_ring_acked(struct rds_ep *rep)
{
	struct shm_ep *ep = (struct shm_ep *)rep;
	uint64_t acked = atomic_load_explicit(&ep->tx->acked, memory_order_acquire);

	if (acked > ep->seen_acked)
		ep->seen_acked = acked;
	return ep->seen_acked;
}

uint64_t shm_ring_reap(struct rds_ep *rep)
{
	struct shm_ep *ep = (struct shm_ep *)rep;
	uint64_t acked = shm_ring_acked(rep);

	if (unlikely(ep->longs))
		shm_longs_acked(ep, acked);
	return acked;
}

/*
 * The initiator may have given up the connection (crossing attempts) before this process's answer
 * came.  Then no process reads this ring.  The initiator's first record, its congested ports, shows
 * that it uses the connection.
 *
 * Of a long message the rest may not lie in the ring yet.
 */
bool shm_ring_settled(struct rds_ep *rep)
{
	struct shm_ep *ep = (struct shm_ep *)rep;

	return !ep->unplaced && (ep->initiator || atomic_load(&ep->rx->tail) || atomic_load(&ep->tx->acked));
}

/* ---- receive side (rx) ---- */

static int slots_grow(struct shm_ep *ep)
{
	uint32_t cap = ep->slot_cap ? ep->slot_cap * 2 : SLOTS_START;
	struct shm_slot *s = malloc(cap * sizeof(*s));
	uint64_t i;

	if (!s)
		return -ENOMEM;
	for (i = ep->slot_first; i != ep->slot_next; i++)
		s[i & (cap - 1)] = ep->slots[i & (ep->slot_cap - 1)];
	free(ep->slots);
	ep->slots = s;
	ep->slot_cap = cap;
	return 0;
}

static void slots_give_back(struct shm_ep *ep)
{
	while (ep->slot_first != ep->slot_next && ep->slots[ep->slot_first & (ep->slot_cap - 1)].done) {
		ep->freed = ep->slots[ep->slot_first & (ep->slot_cap - 1)].end;
		ep->slot_first++;
	}
	if (ep->slot_first == ep->slot_next)
		ep->freed = ep->read;
	atomic_store_explicit(&ep->rx->head, ep->freed, memory_order_release);
}

void shm_ring_release(struct rds_ep *rep, void *token)
{
	struct shm_ep *ep = (struct shm_ep *)rep;
	uint64_t i = (uint64_t)(uintptr_t)token - 1;

	ep->slots[i & (ep->slot_cap - 1)].done = true;
	if (i != ep->slot_first)
		return;
	slots_give_back(ep);
	if (unlikely(ep->closed)) {
		if (ep->slot_first == ep->slot_next && !ep->kept)
			shm_ep_free(ep);
		return;
	}
	if (ep->freed - ep->freed_told >= ep->size / 8) {
		ep->freed_told = ep->freed;
		shm_room_made(ep);
	}
}

void shm_ring_ack(struct rds_ep *rep, uint64_t seq)
{
	struct shm_ep *ep = (struct shm_ep *)rep;

	atomic_store_explicit(&ep->rx->acked, seq, memory_order_release);
}

bool shm_ring_bad(struct shm_ep *ep, const char *what)
{
	rds_warn("a peer process sent invalid data through shared memory (%s): connection closed (another version of "
		 "this library?)",
		 what);
	shm_ep_break(ep);
	return false;
}

/*
 * Messages come in runs of one length.  Each header is a cache miss, and the next header waits for
 * it.  So while one record is processed, the headers that such a run would have are prefetched.
 * Small records are so close together that the processor does it by itself.
 */
static inline void rec_prefetch(const struct shm_ep *ep, uint64_t off, uint32_t len)
{
	unsigned i;

	if (len < FETCH_FROM)
		return;
	for (i = 1; i <= FETCH_AHEAD; i++)
		__builtin_prefetch(ep->rx_data + ((off + (uint64_t)i * len) & (ep->size - 1)));
}

/*
 * The message at ep->read stays where it is, and is offered again: now, or after a tick.  If messages wait for
 * the helper, or for a connection, it would be in vain now, and this may be one of them.
 */
void shm_ring_put_off(struct shm_ep *ep, enum rds_rx_verdict v)
{
	ep->paused = v == RDS_RX_PAUSE || rds_shm.unsettled;
	if (ep->paused)
		shm_recheck_inbox();
}

/*
 * Takes one record at ep->read; `avail` bytes have been published.  False: the ring is broken, or
 * the record cannot be taken now.
 */
static bool rec_take(struct shm_ep *ep, uint64_t avail)
{
	uint64_t off = ep->read & (ep->size - 1);
	const volatile struct shm_rec *rec = (void *)shm_ring_at(ep->rx, ep->rx_data, ep->size, ep->read);
	uint32_t len = rec->len, kind = rec->kind;
	struct rds_rx rx = {0};
	struct rds_conn *conn = ep->head.conn;
	enum rds_rx_verdict v;

	if (unlikely(len < SHM_LINE || len % SHM_LINE || len > avail || len > shm_ring_rest(ep->size, ep->read)))
		return shm_ring_bad(ep, "record length");
	ep->read += len;
	rec_prefetch(ep, off, len);
	if (likely(kind == SHM_REC_MSG)) {
		if (unlikely(rds_wire_hdr_decode((const void *)&rec->hdr, &rx.hdr)))
			return shm_ring_bad(ep, "message header");
		if (unlikely(rx.hdr.len > len - sizeof(struct shm_rec)))
			return shm_ring_bad(ep, "message length");
		if (unlikely(ep->slot_next - ep->slot_first == ep->slot_cap) && slots_grow(ep)) {
			/* no memory: the message stays in the ring and takes room */
			ep->read -= len;
			return false;
		}
		rx.last = ep->last;
		rx.data = (const void *)(rec + 1);
		rx.token = (void *)(uintptr_t)(ep->slot_next + 1);
		ep->slots[ep->slot_next & (ep->slot_cap - 1)] = (struct shm_slot){.end = ep->read};
		ep->slot_next++;
		v = ep->head.t->up->message(conn, (struct rds_ep *)ep, &rx);
		if (unlikely(v >= RDS_RX_LATER)) {
			shm_ring_put_off(ep, v);
			ep->slot_next--;
			ep->read -= len;
			return false;
		}
		if (unlikely(v == RDS_RX_DONE)) {
			ep->slots[(ep->slot_next - 1) & (ep->slot_cap - 1)].done = true;
			/*
			 * Broken: bytes of the message were to be fetched, and the sender has ended
			 * (fetch.c).
			 */
			return !ep->broken;
		}
	} else if (kind == SHM_REC_FRAGMENT) {
		return shm_fragment_take(ep, rec, len);
	} else if (unlikely(kind != SHM_REC_PAD)) {
		return shm_ring_bad(ep, "record kind");
	}
	return true;
}

/* More than half of the ring is taken by messages that wait in place. */
static bool ring_is_pressed(const struct shm_ep *ep)
{
	return ep->read - ep->freed > ep->size / 2;
}

bool shm_ring_drain(struct shm_ep *ep)
{
	uint64_t tail = atomic_load_explicit(&ep->rx->tail, memory_order_acquire), start = ep->read;

	if (likely(tail == ep->read) || unlikely(ep->broken))
		return false;
	if (unlikely(tail % SHM_LINE || tail - ep->freed > ep->size || tail - ep->read > ep->size))
		return shm_ring_bad(ep, "tail");
	ep->draining = true;
	ep->paused = false;
	while (ep->read != tail && rec_take(ep, tail - ep->read))
		;
	ep->draining = false;
	if (ep->read == start)
		return false;
	atomic_store_explicit(&ep->rx->seen, ep->read, memory_order_relaxed);
	slots_give_back(ep);
	shm_room_made(ep);
	if (unlikely(ring_is_pressed(ep))) {
		rds_shm.pressed = true;
		ep->head.t->up->pressure();
	}
	return true;
}

/*
 * Has the oldest message waited for more than OLD_TICKS ticks?  A program that reads, but so
 * slowly, also holds up other sockets.
 */
static bool ring_is_stuck(struct shm_ep *ep)
{
	if (ep->slot_first >= ep->mark) {
		ep->mark = ep->slot_next;
		ep->mark_age = 0;
	}
	return ++ep->mark_age > OLD_TICKS;
}

/* Called once per tick, or with `now`.  False: no longer pressed. */
bool shm_ring_relieve(struct shm_ep *ep, bool now)
{
	if (!ring_is_pressed(ep))
		return false;
	if (now || ep->freed == ep->freed_last || ring_is_stuck(ep))
		ep->head.t->up->evacuate(ep->head.conn, (struct rds_ep *)ep);
	ep->freed_last = ep->freed;
	return ring_is_pressed(ep);
}

void shm_ep_free(struct shm_ep *ep)
{
	shm_rings_unmap(ep);
	shm_longs_free(ep);
	free(ep->slots);
	free(ep);
}
