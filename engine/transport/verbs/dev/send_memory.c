/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * send_memory.c - registered memory for outgoing messages.
 *
 * A device reads only registered memory, and registering costs a system call and pinned pages.  So
 * there are chunks, registered once and cut into blocks of one size each; a message that is larger
 * than the largest size has a chunk to itself.  A chunk whose blocks are all free is freed when
 * the limit (RDS_PRELOAD_VERBS_MEMORY) would otherwise prevent another chunk.
 *
 * A sender that finds the limit reached waits for acknowledgements, which give blocks back.  So
 * acknowledgements must not wait for blocks themselves: where a header alone needs memory (a
 * device without inline sends), there is memory beside the limit.  The same memory is used for
 * redirects (conn/port_moved.c), which acknowledgements may wait for.
 *
 * The memory is the library's own, whole pages, never inherited by a child: what a device reads is
 * never copied on write.  Must not know what is in a block.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "engine/transport/verbs/dev/dev.h"

#define CLASSES 9 /* 256 bytes to 64 KiB of payload */
#define SMALL_CHUNK (256u << 10)
#define LARGE_CHUNK (1u << 20)
#define PAGE 4096u
#define HEADER 64u
/* header memory that redirects may use: a peer may cause any number of them */
#define REDIRECT_BYTES (16 * PAGE)

struct verbs_chunk {
	struct verbs_chunk *next;
	void *mem;
	size_t len;
	struct ibv_mr *mr;
	unsigned char *free; /* free blocks; each starts with the address of the next */
	uint32_t nfree, nblocks, block;
};

struct verbs_arena {
	struct verbs_dev *dev;
	rds_lock_t lock;
	uint64_t bytes, limit;
	bool short_of; /* a block was refused since the last verbs_arena_was_short() */
	struct verbs_chunk *chunks[CLASSES], *large;
	struct verbs_chunk *headers; /* not counted in `bytes`; never freed before the arena */
	uint64_t header_bytes;
};

/* ---- registering ---- */

/*
 * Text for a failure for lack of locked memory: if there is no limit, the device itself or the
 * machine has no more.
 */
const char *verbs_memlock_limit(char text[VERBS_LIMIT])
{
	struct rlimit l = {.rlim_cur = RLIM_INFINITY};

	getrlimit(RLIMIT_MEMLOCK, &l);
	if (l.rlim_cur == RLIM_INFINITY)
		snprintf(text, VERBS_LIMIT, "locked memory is not limited, so the machine or the device has no more");
	else
		snprintf(text, VERBS_LIMIT,
			 "the limit of locked memory is %llu bytes: raise it (ulimit -l unlimited, "
			 "LimitMEMLOCK=infinity in a systemd unit, memlock in limits.conf)",
			 (unsigned long long)l.rlim_cur);
	return text;
}

/* For a limit of 0 the kernel returns EPERM. */
bool verbs_memlock_short(int err)
{
	struct rlimit l = {.rlim_cur = RLIM_INFINITY};

	getrlimit(RLIMIT_MEMLOCK, &l);
	return err == -ENOMEM || (err == -EPERM && !l.rlim_cur);
}

void verbs_memlock_help(struct verbs_dev *dev, int err, const char *what, size_t len)
{
	char limit[VERBS_LIMIT];

	if (dev->helped || !verbs_memlock_short(err))
		return;
	dev->helped = true;
	rds_error("the RDMA device %s: no memory for %s %zu bytes: %s, or make RDS_PRELOAD_VERBS_BUFFERS or "
		  "RDS_PRELOAD_VERBS_MEMORY smaller",
		  dev->name, what, len, verbs_memlock_limit(limit));
}

void *verbs_mem_register(struct verbs_dev *dev, size_t len, int access, struct ibv_mr **mr, int *err)
{
	void *mem;

	*err = os_mmap(len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &mem);
	if (*err)
		return NULL;
	madvise(mem, len, MADV_DONTFORK);
	*mr = vb.ibv_reg_mr(dev->pd, mem, len, access);
	if (*mr) {
		rds_transport_bytes_add((int64_t)len);
		return mem;
	}
	*err = errno ? -errno : -ENOMEM;
	os_munmap(mem, len);
	return NULL;
}

void verbs_mem_release(void *mem, size_t len, struct ibv_mr *mr)
{
	vb.ibv_dereg_mr(mr);
	os_munmap(mem, len);
	rds_transport_bytes_add(-(int64_t)len);
}

/* ---- chunks (lock held) ---- */

static uint32_t block_class_size(unsigned c)
{
	uint32_t payload = 256u << c;

	return payload + payload / 64 + 64; /* room for headers, still a multiple of 4 */
}

static unsigned block_class(size_t size)
{
	unsigned c;

	for (c = 0; c < CLASSES && block_class_size(c) < size; c++)
		;
	return c;
}

static void chunk_free(struct verbs_arena *a, struct verbs_chunk *ch)
{
	a->bytes -= ch->len;
	verbs_mem_release(ch->mem, ch->len, ch->mr);
	free(ch);
}

/* Frees the chunks of the list that have no block in use; true if there were any. */
static bool chunks_drop_unused(struct verbs_arena *a, struct verbs_chunk **p)
{
	struct verbs_chunk *ch;
	bool any = false;

	while ((ch = *p)) {
		if (ch->nfree != ch->nblocks) {
			p = &ch->next;
			continue;
		}
		*p = ch->next;
		chunk_free(a, ch);
		any = true;
	}
	return any;
}

static void arena_drop_unused(struct verbs_arena *a)
{
	unsigned c;

	for (c = 0; c < CLASSES; c++)
		chunks_drop_unused(a, &a->chunks[c]);
	chunks_drop_unused(a, &a->large);
}

static int arena_chunk_new(struct verbs_arena *a, size_t len, uint32_t block, struct verbs_chunk **out)
{
	struct verbs_chunk *ch = calloc(1, sizeof(*ch));
	uint32_t i;
	int err;

	if (!ch)
		return -ENOMEM;
	/* the device writes the bytes of reads there */
	ch->mem = verbs_mem_register(a->dev, len, IBV_ACCESS_LOCAL_WRITE, &ch->mr, &err);
	if (!ch->mem) {
		free(ch);
		return err;
	}
	ch->len = len;
	ch->block = block;
	ch->nfree = ch->nblocks = (uint32_t)(len / block);
	for (i = ch->nblocks; i--;) {
		unsigned char *b = (unsigned char *)ch->mem + (size_t)i * block;

		memcpy(b, &ch->free, sizeof(ch->free));
		ch->free = b;
	}
	a->bytes += len;
	*out = ch;
	return 0;
}

/*
 * Tries the usual size; then again after unused chunks have been freed; then the smallest size that
 * will do.
 */
static int chunk_new_fitting(struct verbs_arena *a, size_t len, uint32_t block, struct verbs_chunk **out)
{
	size_t least = (block + PAGE - 1) & ~(size_t)(PAGE - 1);
	int err = a->bytes + len <= a->limit ? arena_chunk_new(a, len, block, out) : -ENOMEM;

	if (!err)
		return 0;
	arena_drop_unused(a);
	if (a->bytes + len <= a->limit)
		err = arena_chunk_new(a, len, block, out);
	if (err && least < len && (a->bytes + least <= a->limit || !a->bytes))
		err = arena_chunk_new(a, least, block, out);
	if (err && a->bytes + least <= a->limit) /* the cause is not our own limit */
		verbs_memlock_help(a->dev, err, "messages on their way out,", least);
	return err;
}

static void chunk_take(struct verbs_chunk *ch, struct verbs_block *out)
{
	out->chunk = ch;
	out->mem = ch->free;
	out->size = ch->block;
	out->lkey = ch->mr->lkey;
	memcpy(&ch->free, out->mem, sizeof(ch->free));
	ch->nfree--;
}

/* The first chunk of the list with a free block of that size; it moves to the front. */
static struct verbs_chunk *chunk_find(struct verbs_chunk **list, size_t size)
{
	struct verbs_chunk **p, *ch;

	for (p = list; (ch = *p); p = &ch->next)
		if (ch->nfree && ch->block >= size) {
			*p = ch->next;
			ch->next = *list;
			*list = ch;
			return ch;
		}
	return NULL;
}

static int arena_get(struct verbs_arena *a, size_t size, struct verbs_block *out)
{
	unsigned c = block_class(size);
	struct verbs_chunk **list = c < CLASSES ? &a->chunks[c] : &a->large, *ch = chunk_find(list, size);
	size_t len =
		c < CLASSES ? (c < 6 ? SMALL_CHUNK : LARGE_CHUNK) : (size + PAGE * 16 - 1) & ~(size_t)(PAGE * 16 - 1);
	int err;

	if (!ch) {
		err = chunk_new_fitting(a, len, c < CLASSES ? block_class_size(c) : (uint32_t)len, &ch);
		if (err)
			return err;
		ch->next = *list;
		*list = ch;
	}
	chunk_take(ch, out);
	return 0;
}

static int arena_headers_more(struct verbs_arena *a)
{
	struct verbs_chunk *ch = NULL;
	int err = arena_chunk_new(a, PAGE, HEADER, &ch);

	if (err)
		return err;
	a->bytes -= ch->len;
	a->header_bytes += ch->len;
	ch->next = a->headers;
	a->headers = ch;
	return 0;
}

/* ---- interface ---- */

int verbs_arena_new(struct verbs_dev *dev, struct verbs_arena **out)
{
	struct verbs_arena *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->dev = dev;
	a->limit = (uint64_t)rds_options()->verbs_memory;
	rds_lock_init(&a->lock, RDS_LOCK_MEMORY);
	*out = a;
	return 0;
}

int verbs_block_get(struct verbs_arena *a, size_t size, struct verbs_block *out)
{
	int err;

	rds_lock(&a->lock);
	err = arena_get(a, size, out);
	if (unlikely(err)) {
		/* Blocks in use come back.  If there are none, waiting would never end. */
		err = a->bytes ? -EAGAIN : -ENOMEM;
		a->short_of = true;
	}
	rds_unlock(&a->lock);
	return err;
}

int verbs_arena_reserve_headers(struct verbs_arena *a)
{
	int err;

	rds_lock(&a->lock);
	err = a->headers ? 0 : arena_headers_more(a);
	rds_unlock(&a->lock);
	if (err)
		verbs_memlock_help(a->dev, err, "acknowledgements on their way out,", PAGE);
	return err;
}

static int arena_header_get(struct verbs_arena *a, uint64_t most, struct verbs_block *out)
{
	struct verbs_chunk *ch;
	int err = 0;

	rds_lock(&a->lock);
	ch = chunk_find(&a->headers, HEADER);
	if (!ch)
		err = a->header_bytes < most ? arena_headers_more(a) : -EAGAIN;
	if (!ch && !err)
		ch = a->headers;
	if (ch)
		chunk_take(ch, out);
	else
		a->short_of = true;
	rds_unlock(&a->lock);
	return err;
}

int verbs_block_get_header(struct verbs_arena *a, struct verbs_block *out)
{
	return arena_header_get(a, UINT64_MAX, out);
}

int verbs_block_get_redirect(struct verbs_arena *a, size_t size, struct verbs_block *out)
{
	return size <= HEADER ? arena_header_get(a, REDIRECT_BYTES, out) : -EAGAIN;
}

/* Gives the block back to its chunk, and returns the chunk. */
static struct verbs_chunk *chunk_put(struct verbs_block *b)
{
	struct verbs_chunk *ch = b->chunk;

	memcpy(b->mem, &ch->free, sizeof(ch->free));
	ch->free = b->mem;
	ch->nfree++;
	b->chunk = NULL;
	return ch;
}

void verbs_block_put(struct verbs_arena *a, struct verbs_block *b)
{
	if (!b->chunk)
		return;
	rds_lock(&a->lock);
	chunk_put(b);
	rds_unlock(&a->lock);
}

/* True: no block of ch is in use, and another chunk of that size has free blocks. */
static bool chunk_is_spare(struct verbs_chunk *list, const struct verbs_chunk *ch)
{
	for (; list && ch->nfree == ch->nblocks; list = list->next)
		if (list != ch && list->nfree)
			return true;
	return false;
}

void verbs_block_shed(struct verbs_arena *a, struct verbs_block *b)
{
	struct verbs_chunk *ch, **p;
	unsigned c;

	if (!b->chunk)
		return;
	rds_lock(&a->lock);
	ch = chunk_put(b);
	for (c = 0; c < CLASSES && block_class_size(c) != ch->block; c++)
		;
	p = c < CLASSES ? &a->chunks[c] : &a->large;
	if (chunk_is_spare(*p, ch)) {
		while (*p != ch)
			p = &(*p)->next;
		*p = ch->next;
		chunk_free(a, ch);
	}
	rds_unlock(&a->lock);
}

bool verbs_arena_was_short(struct verbs_arena *a)
{
	bool was;

	rds_lock(&a->lock);
	was = a->short_of;
	a->short_of = false;
	rds_unlock(&a->lock);
	return was;
}

void verbs_arena_free(struct verbs_arena *a)
{
	if (!a)
		return;
	arena_drop_unused(a);
	chunks_drop_unused(a, &a->headers);
	free(a);
}
