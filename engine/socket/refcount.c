/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * refcount.c - references to a socket, and the end of the last one.
 *
 * Structures are never given back to malloc (socket.c), so rds_sock_get() can ask of a stale
 * pointer whether the socket is still alive.  References: one while the socket is open (another
 * process may have a copy of the descriptor when our last known number goes), one per counted
 * descriptor number, one per engine list.  A call in progress is not counted but noted in the
 * thread record (sys/thread_record.h).  So the end of the last reference looks through these
 * records, and the last call ends the socket.  Messages that the transport has not yet acknowledged
 * are counted separately, together with their bytes.
 */
#include "engine/socket/socket.h"

_Atomic int64_t rds_sock_closed_bytes;

bool rds_sock_get(struct rds_sock *sk)
{
	uint64_t ref = atomic_load_explicit(&sk->ref, memory_order_relaxed);

	do {
		if (!(ref & RDS_REF_COUNT))
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&sk->ref, &ref, ref + 1, memory_order_acquire,
							memory_order_relaxed));
	return true;
}

static inline bool ref_is_ending(uint64_t ref)
{
	return (ref & (RDS_REF_COUNT | RDS_REF_ENDING)) == RDS_REF_ENDING;
}

/* Memory that messages in flight of a closed socket take (conn/closed_sockets.c). */
static int64_t snd_weight(uint64_t snd)
{
	return (int64_t)(snd / RDS_SND_MSG * RDS_SOCK_MESSAGE_COST + snd % RDS_SND_MSG);
}

/*
 * No reference was left when ref was read, but a call may be in progress.  A thread that finds no
 * call clears ENDING and ends the socket.  A call that is still in progress may put the socket on a
 * list and take it off again, and from there another call may start.  Then the upper half of
 * sk->ref has changed, and the earlier result is void.
 */
static void sock_end_unless_called(struct rds_sock *sk, uint64_t ref)
{
	uint64_t snd;

	if (rds_thread_records_on()) {
		rds_thread_barrier();
		if (rds_thread_any_calls(sk))
			return; /* that call checks again when it leaves */
	}
	if (!atomic_compare_exchange_strong(&sk->ref, &ref, ref & ~RDS_REF_ENDING))
		return;
	snd = atomic_fetch_or(&sk->snd, RDS_SND_DEAD);
	if (snd < RDS_SND_MSG)
		rds_sock_slab_put(sk);
	else /* the last message in flight puts it back */
		atomic_fetch_add(&rds_sock_closed_bytes, snd_weight(snd) + (int64_t)sizeof(*sk));
}

void rds_sock_put(struct rds_sock *sk)
{
	uint64_t ref = atomic_load_explicit(&sk->ref, memory_order_relaxed), less;

	do {
		less = ref - 1;
		if (!(less & RDS_REF_COUNT))
			less = (less + RDS_REF_TURN) | RDS_REF_ENDING;
	} while (!atomic_compare_exchange_weak(&sk->ref, &ref, less));
	if (ref_is_ending(less))
		sock_end_unless_called(sk, less);
}

bool rds_sock_enter(struct rds_sock *sk)
{
	struct rds_thread *me = rds_thread;
	unsigned n = me->ncalls;

	if (unlikely(n >= RDS_THREAD_CALLS) && (me = rds_thread_record_get())->ncalls >= RDS_THREAD_CALLS)
		return rds_sock_get(sk);
	n = me->ncalls++;
	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(&me->call[n], sk, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (likely(atomic_load_explicit(&sk->ref, memory_order_acquire) & RDS_REF_COUNT))
		return true;
	rds_sock_leave(sk);
	return false;
}

/* Calls nest, so it is the last slot, unless a handler left by siglongjmp() has skipped some. */
static void call_slot_clear(struct rds_thread *me, unsigned n, struct rds_sock *sk)
{
	uint64_t ref;

	atomic_store_explicit(&me->call[n], NULL, memory_order_release);
	atomic_signal_fence(memory_order_seq_cst);
	if (likely(n + 1 == me->ncalls))
		me->ncalls = n;
	ref = atomic_load_explicit(&sk->ref, memory_order_relaxed);
	if (unlikely(ref_is_ending(ref)))
		sock_end_unless_called(sk, ref);
}

void rds_sock_leave(struct rds_sock *sk)
{
	struct rds_thread *me = rds_thread;
	unsigned n;

	if (likely(me != &rds_thread_none))
		for (n = me->ncalls; n--;)
			if (likely(atomic_load_explicit(&me->call[n], memory_order_relaxed) == sk)) {
				call_slot_clear(me, n, sk);
				return;
			}
	rds_sock_put(sk); /* no slot was free: the call is counted in sk->ref */
}

void rds_sock_snd_sub(struct rds_sock *sk, unsigned msgs, uint64_t bytes)
{
	uint64_t before = atomic_fetch_sub(&sk->snd, msgs * RDS_SND_MSG + bytes);

	if (bytes && (before & (RDS_SND_MSG - 1)) == bytes)
		RDS_STAT_INC(send_queue_empty);
	if (unlikely(before & RDS_SND_DEAD)) {
		bool last = (before & ~RDS_SND_DEAD) < (msgs + 1) * RDS_SND_MSG;

		atomic_fetch_sub(&rds_sock_closed_bytes,
				 snd_weight(msgs * RDS_SND_MSG + bytes) + (last ? (int64_t)sizeof(*sk) : 0));
		if (last)
			rds_sock_slab_put(sk);
		return;
	}
	rds_sock_wake(sk, POLLOUT | POLLWRNORM);
}
