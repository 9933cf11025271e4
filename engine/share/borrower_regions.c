/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * borrower_regions.c - the memory regions that this process has opened on borrowed sockets.
 *
 * The regions belong to this process, whichever process owns the socket.  A new owner is told of
 * them before the next call on the socket.  If this process becomes the owner, they become regions
 * like any other.  Regions for one use are not kept: only the owner knows when they end, and they
 * end with it.
 *
 * There is no lock, because a signal handler may make calls.  An entry belongs to the thread that
 * has moved its state to NEW or BUSY.  Entries are never freed, only used again.
 *
 * Must not know what a region is to the engine (rdma/mr.c).
 */
#include <sys/mman.h>

#include "engine/share/borrower_impl.h"
#include "engine/rdma/mr.h"
#include "engine/sys/os.h"
#include "engine/socket/socket.h"

#define CHUNK 64u
#define CHUNKS 256u
#define TOLD 64u /* regions in one request */

/*
 * NEW: a thread fills the entry in, or frees it.  BUSY: a thread reads it, and it stays.  DOOMED:
 * BUSY, and that thread frees it afterwards.
 */
enum { FREE, NEW, USED, BUSY, DOOMED };
#define STATES 8u

struct region_entry {
	/*
	 * The state.  From STATES on, how often the entry was used, so that a thread does not take
	 * it for the region that it was before.
	 */
	_Atomic uint32_t word;
	_Atomic uint32_t owner_id; /* the owner that knows of the region */
	_Atomic uint64_t inode;
	_Atomic uint32_t rkey;
	_Atomic uint64_t base, len, flags;
};

static _Atomic(struct region_entry *) chunks[CHUNKS] RDS_TABLE;
static _Atomic unsigned entries;	/* how many are in use */
static _Atomic unsigned generation = 1; /* goes up when an entry is added */

static bool region_entry_turn(struct region_entry *e, uint32_t word, uint32_t state)
{
	return atomic_compare_exchange_strong(&e->word, &word, (word & ~(STATES - 1)) | state);
}

static struct region_entry *region_chunk_new(unsigned i)
{
	struct region_entry *none = NULL;
	void *mem;

	if (os_mmap(CHUNK * sizeof(*none), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &mem))
		return NULL;
	if (atomic_compare_exchange_strong(&chunks[i], &none, mem))
		return mem;
	os_munmap(mem, CHUNK * sizeof(*none));
	return none;
}

/* for (at = 0; (e = region_entry_next(&at));): all entries, free ones as well */
static struct region_entry *region_entry_next(unsigned *at)
{
	struct region_entry *chunk = *at < CHUNK * CHUNKS ? atomic_load(&chunks[*at / CHUNK]) : NULL;

	return chunk ? &chunk[(*at)++ % CHUNK] : NULL;
}

static struct region_entry *region_entry_take_free(void)
{
	struct region_entry *e;
	unsigned at = 0;
	uint32_t word;

	for (;;) {
		while ((e = region_entry_next(&at)))
			if ((word = atomic_load(&e->word)) % STATES == FREE && region_entry_turn(e, word, NEW))
				return e;
		if (at == CHUNK * CHUNKS || !region_chunk_new(at / CHUNK))
			return NULL;
	}
}

/* The entry is NEW, BUSY or DOOMED. */
static void region_entry_free(struct region_entry *e)
{
	uint32_t word = atomic_load(&e->word);

	while (!atomic_compare_exchange_weak(&e->word, &word, (word | (STATES - 1)) + 1))
		;
	atomic_fetch_sub(&entries, 1);
}

/* Ends region_entry_take(). */
static void region_entry_release(struct region_entry *e)
{
	uint32_t word = atomic_load(&e->word);

	if (word % STATES != BUSY || !region_entry_turn(e, word, USED))
		region_entry_free(e);
}

void borrower_region_keep(const struct borrower_region *r)
{
	struct region_entry *e = region_entry_take_free();

	if (!e) {
		rds_warn_once("more than %u memory regions on RDS sockets that other processes own: some will end with "
			      "the owner",
			      CHUNK * CHUNKS);
		return;
	}
	e->owner_id = r->owner_id;
	e->inode = r->inode;
	e->rkey = r->region.rkey;
	e->base = r->region.base;
	e->len = r->region.len;
	e->flags = r->region.flags;
	atomic_fetch_add(&entries, 1);
	region_entry_turn(e, atomic_load(&e->word), USED);
	atomic_fetch_add(&generation, 1);
}

void borrower_region_add(const struct borrower_channel *s, uint32_t rkey, const struct rds_mr_request *asked)
{
	struct borrower_region r = {s->inode, s->owner_id, {.rkey = rkey, .flags = asked->flags}};

	rds_mr_pages(asked, &r.region.base, &r.region.len);
	if (!(asked->flags & RDS_RDMA_USE_ONCE))
		borrower_region_keep(&r);
}

static struct rds_mr_region region_from_entry(const struct region_entry *e)
{
	return (struct rds_mr_region){.rkey = e->rkey, .base = e->base, .len = e->len, .flags = e->flags};
}

/* Its word, or 0: it is no region of that socket with that key.  rkey 0: any key. */
static uint32_t region_entry_match(const struct region_entry *e, uint64_t inode, uint32_t rkey)
{
	uint32_t word = atomic_load(&e->word), state = word % STATES;

	if ((state != USED && state != BUSY) || atomic_load(&e->inode) != inode ||
	    (rkey && atomic_load(&e->rkey) != rkey))
		return 0;
	return word;
}

/* A region of that socket that no thread reads becomes BUSY. */
static bool region_entry_take(struct region_entry *e, uint64_t inode)
{
	uint32_t word = region_entry_match(e, inode, 0);

	return word % STATES == USED && region_entry_turn(e, word, BUSY);
}

/*
 * The entry goes, even if another thread reads it just now.  rkey 0: all entries of that socket.
 * True: there was one; *was is the last one, if was is not NULL.
 */
bool borrower_region_freed(uint64_t inode, uint32_t rkey, struct borrower_region *was)
{
	struct region_entry *e;
	unsigned at = 0;
	uint32_t word;
	bool any = false;

	while (atomic_load(&entries) && (e = region_entry_next(&at)))
		while ((word = region_entry_match(e, inode, rkey))) {
			struct borrower_region now = {inode, e->owner_id, region_from_entry(e)};

			if (!region_entry_turn(e, word, word % STATES == USED ? NEW : DOOMED))
				continue;
			if (word % STATES == USED)
				region_entry_free(e);
			any = true;
			if (was)
				*was = now;
		}
	return any;
}

void rds_borrower_regions_drop(uint64_t inode)
{
	borrower_region_freed(inode, 0, NULL);
}

void rds_borrower_regions_forget(void)
{
	struct region_entry *e;
	unsigned at = 0;

	while ((e = region_entry_next(&at)))
		atomic_store(&e->word, FREE);
	atomic_store(&entries, 0);
}

/* ---- a new owner ---- */

/* Collects regions that the owner does not know of, from *at on. */
static unsigned regions_collect_due(const struct borrower_channel *s, unsigned *at, struct rds_mr_region *due)
{
	struct region_entry *e;
	unsigned n = 0;

	while (n < TOLD && (e = region_entry_next(at))) {
		if (!region_entry_take(e, s->inode))
			continue;
		if (e->owner_id != s->owner_id)
			due[n++] = region_from_entry(e);
		region_entry_release(e);
	}
	return n;
}

static void regions_mark_sent(const struct borrower_channel *s, const struct rds_mr_region *due, unsigned n)
{
	struct region_entry *e;
	unsigned at = 0, i;

	while ((e = region_entry_next(&at))) {
		if (!region_entry_take(e, s->inode))
			continue;
		for (i = 0; i < n; i++)
			if (due[i].rkey == e->rkey)
				e->owner_id = s->owner_id;
		region_entry_release(e);
	}
}

static bool region_is_kept(uint64_t inode, uint32_t rkey)
{
	struct region_entry *e;
	unsigned at = 0;

	while ((e = region_entry_next(&at)))
		if (region_entry_match(e, inode, rkey))
			return true;
	return false;
}

/*
 * Another thread has freed the region while this one reported it.  The owner may have seen the
 * RDS_FREE_MR first, when it knew no such region, and opened the region after that.  So the region
 * is freed once more, and is not open for longer than this takes.
 */
static int region_free_again(int fd, struct borrower_channel *s, struct borrower_call *c, uint32_t rkey)
{
	struct rds_free_mr_args args = {.cookie = rds_cookie(rkey, 0), .flags = RDS_RDMA_INVALIDATE};
	struct iovec iov = {&args, sizeof(args)};
	struct borrower_call ask = {.q = {.op = RDS_SHARE_SETOPT,
					  .level = SOL_RDS,
					  .opt = RDS_FREE_MR,
					  .arg = sizeof(args),
					  .has_name = true,
					  .may_wait = c->q.may_wait,
					  .data_len = sizeof(args)},
				    .data = &iov,
				    .n_data = 1,
				    .inode = c->inode,
				    .wait = borrower_call_wait(c)};
	int err = borrower_channel_ask(fd, s, &ask);

	c->late = ask.late;
	return err;
}

/* Another thread may report the same regions: the owner takes the first report. */
static int regions_send_some(int fd, struct borrower_channel *s, struct borrower_call *c,
			     const struct rds_mr_region *due, unsigned n)
{
	struct iovec iov = {(void *)(uintptr_t)due, n * sizeof(*due)};
	struct borrower_call ask = {
		.q = {.op = RDS_SHARE_REGIONS, .may_wait = c->q.may_wait, .data_len = (uint32_t)iov.iov_len},
		.data = &iov,
		.n_data = 1,
		.inode = c->inode,
		.wait = borrower_call_wait(c)};
	int err = borrower_memory_grant(fd, s, c);
	unsigned i;

	if (!err) {
		err = borrower_channel_ask(fd, s, &ask);
		c->late = ask.late;
	}
	if (!err)
		regions_mark_sent(s, due, n);
	for (i = 0; !err && i < n; i++)
		if (!region_is_kept(s->inode, due[i].rkey))
			err = region_free_again(fd, s, c, due[i].rkey);
	if (!err && ask.a.result)
		rds_warn_once("memory regions on an RDS socket have ended with its last owner: the next one has no "
			      "access to this process's memory");
	return err;
}

int borrower_regions_send(int fd, struct borrower_channel *s, struct borrower_call *c)
{
	struct rds_mr_region due[TOLD];
	unsigned now = atomic_load(&generation), n, at = 0;
	int err = 0;

	if (!atomic_load(&entries) || s->regions == now)
		return 0;
	while (!err && (n = regions_collect_due(s, &at, due)))
		err = regions_send_some(fd, s, c, due, n);
	if (!err)
		s->regions = now;
	return err;
}

/* ---- this process is the owner ---- */

void rds_borrower_regions_to_socket(struct rds_sock *sk, bool all_there)
{
	struct rds_mr_region region;
	struct region_entry *e;
	unsigned at = 0;

	while (atomic_load(&entries) && (e = region_entry_next(&at))) {
		if (!region_entry_take(e, sk->inode))
			continue;
		region = region_from_entry(e);
		if (all_there && rds_mr_restore(sk, &region, NULL))
			rds_warn_once("a memory region on an RDS socket is lost with the socket's last owner");
		region_entry_free(e);
	}
}
