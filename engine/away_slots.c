/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * away_slots.c - the channels of this process (away.c), by the inode of the stand-in: kept until a number of the socket is closed here, or the
 * carrier goes.
 *
 * A slot belongs to whoever has moved its state from FREE or IDLE to BUSY.  Slots are never given back, only used again.  Taking one that is idle,
 * and giving it back, takes no lock: a signal handler may do so.
 *
 * Must not know what is said over a channel.
 */
#include <sys/mman.h>
#include <sys/syscall.h>

#include "engine/away_impl.h"
#include "engine/memory_door.h"
#include "engine/os.h"
#include "engine/patience.h"
#include "engine/will.h"

#define SLOTS 64
#define CHUNKS 256
#define PATIENT_AGAIN_NS 1000000000ull

enum {
	FREE,
	IDLE,
	BUSY,
	DOOMED /* BUSY, to be closed after it */,
	PARTING /* to be closed when a number is (its thread's) */
};

static _Atomic(struct away_slot *) chunks[CHUNKS];
static _Atomic pid_t owner;	  /* whose channels these are */
static _Atomic uint64_t stopped_at; /* a carrier did not close its end in time */
static _Atomic unsigned channels; /* ever made: none, and there is nothing to look for */

static struct away_slot *chunk_at(unsigned i)
{
	struct away_slot *chunk = atomic_load_explicit(&chunks[i], memory_order_acquire), *none = NULL;
	void *mem;
	unsigned k;

	if (chunk || os_mmap(SLOTS * sizeof(*chunk), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &mem))
		return chunk;
	chunk = mem;
	for (k = 0; k < SLOTS; k++)
		atomic_store(&chunk[k].fd, -1);
	if (!atomic_compare_exchange_strong(&chunks[i], &none, chunk)) {
		os_munmap(mem, SLOTS * sizeof(*chunk));
		chunk = none;
	}
	return chunk;
}

static bool take(struct away_slot *s, uint32_t state)
{
	return atomic_compare_exchange_strong(&s->state, &state, BUSY);
}

void away_slot_drop(struct away_slot *s)
{
	os_close_slot(&s->fd);
	atomic_store(&s->state, FREE);
}

void away_slot_give_back(struct away_slot *s)
{
	uint32_t busy = BUSY;

	if (!atomic_compare_exchange_strong(&s->state, &busy, IDLE))
		away_slot_drop(s);
}

struct away_slot *away_slot_idle(uint64_t inode)
{
	unsigned i, k;

	for (i = 0; i < CHUNKS; i++) {
		struct away_slot *chunk = atomic_load_explicit(&chunks[i], memory_order_acquire);

		if (!chunk)
			break;
		for (k = 0; k < SLOTS; k++) {
			struct away_slot *s = &chunk[k];

			if (atomic_load(&s->state) != IDLE || s->inode != inode || !take(s, IDLE))
				continue;
			if (s->inode == inode)
				return s;
			away_slot_give_back(s); /* another socket's by now */
		}
	}
	return NULL;
}

struct away_slot *away_slot_free(void)
{
	unsigned i, k;
	void *mem;

	for (i = 0; i < CHUNKS; i++) {
		struct away_slot *chunk = chunk_at(i);

		for (k = 0; chunk && k < SLOTS; k++) {
			struct away_slot *s = &chunk[k];

			if (atomic_load(&s->state) != FREE || !take(s, FREE))
				continue;
			if (!s->packet &&
			    os_mmap(AWAY_PACKET, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &mem)) {
				atomic_store(&s->state, FREE);
				return NULL;
			}
			if (!s->packet)
				s->packet = mem;
			return s;
		}
		if (!chunk)
			return NULL;
	}
	return NULL;
}

static void each_slot(void (*fn)(struct away_slot *s, uint64_t inode), uint64_t inode)
{
	unsigned i, k;

	for (i = 0; i < CHUNKS; i++) {
		struct away_slot *chunk = atomic_load_explicit(&chunks[i], memory_order_acquire);

		for (k = 0; chunk && k < SLOTS; k++)
			fn(&chunk[k], inode);
	}
}

static void forget_one(struct away_slot *s, uint64_t inode)
{
	int fd = atomic_exchange(&s->fd, -1);

	(void)inode;
	if (fd >= 0)
		os_fd_abandon(fd);
	atomic_store(&s->state, FREE);
}

static void start_anew(void)
{
	each_slot(forget_one, 0);
	atomic_store(&owner, os_getpid());
}

void rds_away_fork_prepare(void)
{
	rds_door_fork_prepare();
}

void rds_away_forget(void)
{
	rds_door_forked((int)atomic_load(&owner));
	rds_away_regions_forget();
	os_fds_forked();
	rds_heir_forked();
	start_anew();
}

/* How many slots this thread has set aside.  A handler that closes something takes its thread's along, which is only earlier. */
static __thread volatile unsigned parting __attribute__((tls_model("initial-exec")));

static int this_thread(void)
{
	return (int)os_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
}

static void close_one(struct away_slot *s, uint64_t inode)
{
	uint32_t busy = BUSY;

	if (s->inode != inode || atomic_load(&s->state) == FREE)
		return;
	if (take(s, IDLE)) {
		if (s->inode != inode) {
			away_slot_give_back(s);
			return;
		}
		s->thread = this_thread();
		parting++;
		atomic_store(&s->state, PARTING);
	} else {
		atomic_compare_exchange_strong(&s->state, &busy, DOOMED);
	}
}

void rds_away_gone(uint64_t inode)
{
	rds_away_regions_gone(inode);
	each_slot(close_one, inode);
	rds_heir_drop(inode);
}

static void drop_parting(struct away_slot *s, uint64_t unused)
{
	(void)unused;
	if (atomic_load(&s->state) == PARTING && s->thread == this_thread() && take(s, PARTING))
		away_slot_drop(s);
}

void rds_away_hang_up(int fd)
{
	struct stat st;

	if (!away_slots_ours() || os_fstat(fd, &st))
		return;
	each_slot(close_one, st.st_ino);
	parting = 0;
	each_slot(drop_parting, 0);
}

void rds_away_closing(int fd)
{
	struct stat st;

	if (atomic_load(&owner) != os_getpid() || (!atomic_load(&channels) && !rds_heir_any()) || os_fstat(fd, &st))
		return;
	rds_away_leave(fd); /* it may have been passed on */
	rds_away_gone(st.st_ino);
}

static void part(struct away_slot *s, uint64_t unused)
{
	(void)unused;
	if (atomic_load(&s->state) == PARTING && s->thread == this_thread())
		os_shutdown(atomic_load(&s->fd), SHUT_WR);
}

/* The carrier closes its end of a channel when it has closed what the channel was for. */
static void await_part(struct away_slot *s, uint64_t until)
{
	struct pollfd p = {.events = POLLIN};
	uint64_t now;

	if (atomic_load(&s->state) != PARTING || s->thread != this_thread() || !take(s, PARTING))
		return;
	p.fd = atomic_load(&s->fd);
	now = os_now_ns();
	if (s->greeted && now < until && os_poll(&p, 1, (int)((until - now) / 1000000) + 1) == 0)
		atomic_store(&stopped_at, os_now_ns());
	away_slot_drop(s);
}

void rds_away_closed(void)
{
	const uint64_t most = rds_patience_ns(RDS_PATIENCE_OWNER_CLOSE);
	uint64_t now;

	if (!parting)
		return;
	parting = 0;
	now = os_now_ns();
	each_slot(part, 0);
	/* One that did not answer a moment ago is not waited for at every close(). */
	each_slot(await_part, now - atomic_load(&stopped_at) < PATIENT_AGAIN_NS ? now : now + most);
}

void away_slot_unused(struct away_slot *s)
{
	atomic_store(&s->state, FREE);
}

void away_slot_made(void)
{
	atomic_fetch_add(&channels, 1);
}

bool away_slots_ours(void)
{
	return atomic_load(&owner) == os_getpid();
}

void away_slots_begin(void)
{
	if (!away_slots_ours())
		start_anew();
}
