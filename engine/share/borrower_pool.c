/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * borrower_pool.c - the channels of this process (borrower_channel.c), by the inode of the
 * stand-in.
 *
 * A channel is kept until this process closes its last descriptor of the socket, or the owner ends.
 * A slot belongs to the thread that has moved its state from FREE or IDLE to BUSY.  Slots are never
 * freed, only used again.  Taking an idle slot and giving it back takes no lock: a signal handler
 * may do so.
 *
 * Must not know what is sent over a channel.
 */
#include <sys/mman.h>
#include <sys/syscall.h>

#include "engine/share/borrower_impl.h"
#include "engine/share/memory_grant.h"
#include "engine/sys/os.h"
#include "engine/sys/patience.h"
#include "engine/share/lease.h"

#define SLOTS 64
#define CHUNKS 256
#define PATIENT_AGAIN_NS 1000000000ull

enum {
	FREE,
	IDLE,
	BUSY,
	DOOMED /* BUSY, and closed when its thread gives it back */,
	PARTING /* its thread closes it after it has closed the descriptor of the socket */
};

static _Atomic(struct borrower_channel *) chunks[CHUNKS] RDS_TABLE;
static _Atomic pid_t pool_pid;	    /* the process that made these channels */
static _Atomic uint64_t stopped_at; /* when an owner last failed to close its end in time */
static _Atomic unsigned channels;   /* how many were ever made; 0: there is nothing to look for */

static struct borrower_channel *pool_chunk_at(unsigned i)
{
	struct borrower_channel *chunk = atomic_load_explicit(&chunks[i], memory_order_acquire), *none = NULL;
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

static bool channel_take(struct borrower_channel *s, uint32_t state)
{
	return atomic_compare_exchange_strong(&s->state, &state, BUSY);
}

void borrower_channel_drop(struct borrower_channel *s)
{
	os_close_slot(&s->fd);
	atomic_store(&s->state, FREE);
}

void borrower_channel_give_back(struct borrower_channel *s)
{
	uint32_t busy = BUSY;

	if (!atomic_compare_exchange_strong(&s->state, &busy, IDLE))
		borrower_channel_drop(s);
}

struct borrower_channel *borrower_channel_get_idle(uint64_t inode)
{
	unsigned i, k;

	for (i = 0; i < CHUNKS; i++) {
		struct borrower_channel *chunk = atomic_load_explicit(&chunks[i], memory_order_acquire);

		if (!chunk)
			break;
		for (k = 0; k < SLOTS; k++) {
			struct borrower_channel *s = &chunk[k];

			if (atomic_load(&s->state) != IDLE || s->inode != inode || !channel_take(s, IDLE))
				continue;
			if (s->inode == inode)
				return s;
			borrower_channel_give_back(s); /* it is another socket's by now */
		}
	}
	return NULL;
}

struct borrower_channel *borrower_channel_get_free(void)
{
	unsigned i, k;
	void *mem;

	for (i = 0; i < CHUNKS; i++) {
		struct borrower_channel *chunk = pool_chunk_at(i);

		for (k = 0; chunk && k < SLOTS; k++) {
			struct borrower_channel *s = &chunk[k];

			if (atomic_load(&s->state) != FREE || !channel_take(s, FREE))
				continue;
			if (!s->packet && os_mmap(BORROWER_PACKET, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
						  -1, 0, &mem)) {
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

static void pool_each_channel(void (*fn)(struct borrower_channel *s, uint64_t inode), uint64_t inode)
{
	unsigned i, k;

	for (i = 0; i < CHUNKS; i++) {
		struct borrower_channel *chunk = atomic_load_explicit(&chunks[i], memory_order_acquire);

		for (k = 0; chunk && k < SLOTS; k++)
			fn(&chunk[k], inode);
	}
}

static void channel_forget_one(struct borrower_channel *s, uint64_t inode)
{
	int fd = atomic_exchange(&s->fd, -1);

	(void)inode;
	if (fd >= 0)
		os_fd_abandon(fd);
	atomic_store(&s->state, FREE);
}

static void pool_start_anew(void)
{
	pool_each_channel(channel_forget_one, 0);
	atomic_store(&pool_pid, os_getpid());
}

void rds_borrower_fork_prepare(void)
{
	rds_borrower_grant_fork_prepare();
}

void rds_borrower_forget(void)
{
	rds_borrower_grant_forked((int)atomic_load(&pool_pid));
	rds_borrower_regions_forget();
	os_fds_forked();
	rds_standby_forked();
	pool_start_anew();
}

/*
 * How many slots this thread has made PARTING.  A signal handler that closes a descriptor closes
 * those of its thread as well, which is only earlier.
 */
static __thread volatile unsigned parting __attribute__((tls_model("initial-exec")));

static int thread_get_id(void)
{
	return (int)os_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
}

static void channel_close_one(struct borrower_channel *s, uint64_t inode)
{
	uint32_t busy = BUSY;

	if (s->inode != inode || atomic_load(&s->state) == FREE)
		return;
	if (channel_take(s, IDLE)) {
		if (s->inode != inode) {
			borrower_channel_give_back(s);
			return;
		}
		s->thread = thread_get_id();
		parting++;
		atomic_store(&s->state, PARTING);
	} else {
		atomic_compare_exchange_strong(&s->state, &busy, DOOMED);
	}
}

void rds_borrower_drop(uint64_t inode)
{
	rds_borrower_regions_drop(inode);
	pool_each_channel(channel_close_one, inode);
	rds_standby_drop(inode);
}

static void channel_drop_parting(struct borrower_channel *s, uint64_t unused)
{
	(void)unused;
	if (atomic_load(&s->state) == PARTING && s->thread == thread_get_id() && channel_take(s, PARTING))
		borrower_channel_drop(s);
}

void rds_borrower_hang_up(int fd)
{
	struct stat st;

	if (!borrower_pool_is_ours() || os_fstat(fd, &st))
		return;
	pool_each_channel(channel_close_one, st.st_ino);
	parting = 0;
	pool_each_channel(channel_drop_parting, 0);
}

void rds_borrower_close_begin(int fd)
{
	struct stat st;

	if (atomic_load(&pool_pid) != os_getpid() || (!atomic_load(&channels) && !rds_standby_any()) ||
	    os_fstat(fd, &st))
		return;
	rds_standby_park(fd); /* another process may have the socket, too */
	rds_borrower_drop(st.st_ino);
}

static void channel_part(struct borrower_channel *s, uint64_t unused)
{
	(void)unused;
	if (atomic_load(&s->state) == PARTING && s->thread == thread_get_id())
		os_shutdown(atomic_load(&s->fd), SHUT_WR);
}

/* The owner closes its end of a channel last, after it has closed the socket if it must. */
static void channel_await_part(struct borrower_channel *s, uint64_t until)
{
	struct pollfd p = {.events = POLLIN};
	uint64_t now;

	if (atomic_load(&s->state) != PARTING || s->thread != thread_get_id() || !channel_take(s, PARTING))
		return;
	p.fd = atomic_load(&s->fd);
	now = os_now_ns();
	if (s->greeted && now < until && os_poll(&p, 1, (int)((until - now) / 1000000) + 1) == 0)
		atomic_store(&stopped_at, os_now_ns());
	borrower_channel_drop(s);
}

void rds_borrower_close_wait(void)
{
	const uint64_t most = rds_patience_ns(RDS_PATIENCE_OWNER_CLOSE);
	uint64_t now;

	if (!parting)
		return;
	parting = 0;
	now = os_now_ns();
	pool_each_channel(channel_part, 0);
	/* If an owner did not answer within the last second, close() does not wait again. */
	pool_each_channel(channel_await_part, now - atomic_load(&stopped_at) < PATIENT_AGAIN_NS ? now : now + most);
}

void borrower_channel_unused(struct borrower_channel *s)
{
	atomic_store(&s->state, FREE);
}

void borrower_channel_made(void)
{
	atomic_fetch_add(&channels, 1);
}

bool borrower_pool_is_ours(void)
{
	return atomic_load(&pool_pid) == os_getpid();
}

void borrower_pool_begin(void)
{
	if (!borrower_pool_is_ours())
		pool_start_anew();
}
