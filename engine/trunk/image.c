/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * image.c - reads the trunk that a former owner has left.
 *
 * The former owner may have been killed between any two stores, and it, or any other process of this user,
 * may have written anything there, and may do so still.  So each field is read once, checked, and used as
 * it was read; bytes of messages are copied, and mean nothing here.  The work is bounded by the size.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "engine/trunk/memory.h"

static int image_map(int memory, void **map)
{
	int64_t size = os_memfd_sealed_size(memory, F_SEAL_SHRINK);

	if (size < 0 || (uint64_t)size < TRUNK_SIZE)
		return -EPROTO;
	return os_mmap_unlocked(TRUNK_SIZE, PROT_READ, MAP_SHARED, memory, 0, map);
}

static int image_head(const struct trunk_head *h, struct rds_trunk_image *img)
{
	if (h->magic != TRUNK_MAGIC || h->version != TRUNK_VERSION)
		return -EPROTO;
	memcpy(&img->name, (const void *)&h->name, sizeof(img->name));
	img->id = h->id;
	img->peer_gen = atomic_load(&h->peer_gen);
	img->carrier = atomic_load(&h->carrier);
	img->sent = atomic_load(&h->sent);
	img->acked = atomic_load(&h->acked);
	img->next_rx = atomic_load(&h->next_rx);
	/* so that nothing wraps */
	if (img->sent >> 62 || img->acked > img->sent || !img->next_rx || img->next_rx >> 62)
		return -EPROTO;
	return 0;
}

/* ---- entries ---- */

static bool entry_is_valid(const struct trunk_entry *e, size_t room)
{
	return (e->way == RDS_TRUNK_OUT || e->way == RDS_TRUNK_IN) && e->len <= RDS_MAX_MSG &&
	       trunk_entry_size(e->len) <= room;
}

/* By the time of each process's end all that it has sent is here, or with it. */
static void image_note_member(struct rds_trunk_image *img, const struct rds_procid *id, uint32_t number)
{
	unsigned i;
	uint32_t h;

	if (!number)
		return;
	memcpy(&h, id, sizeof(h));
	for (i = 0; i < RDS_TRUNK_MEMBERS; i++) {
		struct rds_trunk_member *m = &img->members[(h + i) % RDS_TRUNK_MEMBERS];

		if (m->number && memcmp(&m->id, id, sizeof(*id)))
			continue;
		if (!m->number || (int32_t)(number - m->number) > 0)
			m->number = number;
		m->id = *id;
		return;
	}
}

/* A message that came by the carrier of now was done with the entry, whatever came after that. */
static void image_note_done(struct rds_trunk_image *img, const struct trunk_entry *e)
{
	if (e->way != RDS_TRUNK_IN || !img->carrier || e->carrier != img->carrier || e->end <= img->at)
		return;
	img->at = e->end;
	if (e->seq + 1 < (uint64_t)1 << 62 && e->seq + 1)
		img->next_rx = e->seq + 1;
}

static struct rds_trunk_found *image_room(struct rds_trunk_image *img)
{
	unsigned n = img->nfound;
	struct rds_trunk_found *more;

	if (n && (n & (n - 1))) /* room for twice as many, at each power of 2 */
		return &img->found[n];
	more = realloc(img->found, (n ? 2 * (size_t)n : 1) * sizeof(*more));
	if (!more)
		return NULL;
	img->found = more;
	return &more[n];
}

static int image_add(struct rds_trunk_image *img, const struct trunk_entry *e, const void *data)
{
	struct rds_trunk_found *f = image_room(img);

	if (!f)
		return -ENOMEM;
	*f = (struct rds_trunk_found){.order = e->order,
				      .m = {.way = e->way,
					    .marked = e->marked,
					    .sport = e->sport,
					    .dport = e->dport,
					    .len = e->len,
					    .number = e->number,
					    .member = e->member,
					    .seq = e->seq,
					    .data = data}};
	if (f->m.seq >> 62)
		return -EPROTO;
	img->nfound++;
	return 0;
}

/* Those of one segment, and behind a long one the segments that it has. */
static int image_seg(struct rds_trunk_image *img, const struct trunk_head *h, unsigned seg)
{
	const unsigned char *at = (const unsigned char *)h + TRUNK_SEGS_AT + (size_t)seg * TRUNK_SEG;
	size_t left = atomic_load_explicit(&h->used[seg], memory_order_acquire);
	struct trunk_entry e;
	int err = 0;

	if (left > (size_t)(TRUNK_SEGS - seg) * TRUNK_SEG)
		return -EPROTO;
	while (left && !err) {
		if (left < sizeof(e))
			return -EPROTO;
		memcpy(&e, (const void *)at, sizeof(e));
		if (!entry_is_valid(&e, left) || (left > TRUNK_SEG && left != trunk_entry_size(e.len)))
			return -EPROTO;
		if (e.way == RDS_TRUNK_OUT)
			image_note_member(img, &e.member, e.number);
		image_note_done(img, &e);
		if (e.live)
			err = image_add(img, &e, at + sizeof(e));
		at += trunk_entry_size(e.len);
		left -= trunk_entry_size(e.len);
	}
	return err;
}

static int by_order(const void *a, const void *b)
{
	const struct rds_trunk_found *x = a, *y = b;

	return x->order < y->order ? -1 : x->order > y->order;
}

static int image_entries(struct rds_trunk_image *img, const struct trunk_head *h)
{
	unsigned i;
	int err = 0;

	for (i = 0; i < RDS_TRUNK_MEMBERS; i++)
		image_note_member(img, &h->members[i].id, atomic_load(&h->members[i].number));
	for (i = 0; i < TRUNK_SEGS && !err; i++)
		err = image_seg(img, h, i);
	if (img->nfound)
		qsort(img->found, img->nfound, sizeof(*img->found), by_order);
	return err;
}

/* ---- the window ---- */

/*
 * If nothing has come since the carrier was closed, each read takes all that there is, or as much as it asks
 * for.  So it is known whether the last byte is one.
 */
static uint64_t window_end(const struct rds_trunk_brought *b, uint64_t base, uint64_t end)
{
	uint64_t more = b->bytes - end;

	if (b->or_less && end >= base && end - base <= TRUNK_WINDOW && b->bytes > end &&
	    (more == 1 || more == trunk_read_room(base, end) + 1))
		return b->bytes - 1;
	return b->bytes;
}

/*
 * Bytes [at, end) of the carrier's stream are there; those before `at` are done.  One that was not used
 * yet has brought nothing so far, if nothing was read from it.
 */
static void image_window(struct rds_trunk_image *img, const struct trunk_head *h, uint64_t base, uint64_t end)
{
	if (!img->carrier || end <= img->at)
		return;
	if (base > img->at || end - base > TRUNK_WINDOW) {
		rds_warn("the memory of a former owner of the address is damaged: some of what another host has sent "
			 "to it is lost");
		img->carrier = 0;
		return;
	}
	img->bytes = (const unsigned char *)h + TRUNK_WINDOW_AT + (size_t)(img->at - base);
	img->nbytes = (size_t)(end - img->at);
}

/* Which carrier came with the memory, and what is known of it there. */
static void image_carrier(struct rds_trunk_image *img, const struct trunk_head *h, uint32_t carrier, bool began)
{
	bool used = carrier && img->carrier == carrier;

	if (!used)
		img->at = 0;
	if (!carrier || carrier <= atomic_load(&h->over) || (!used && began))
		img->carrier = 0;
	else
		img->carrier = carrier;
}

int rds_trunk_image_open(int memory, uint32_t carrier, const struct rds_trunk_brought *b, struct rds_trunk_image *img)
{
	const struct trunk_head *h;
	uint64_t base, end;
	int err;

	memset(img, 0, sizeof(*img));
	err = image_map(memory, &img->map);
	if (err) {
		img->map = NULL;
		return err;
	}
	h = img->map;
	err = image_head(h, img);
	base = atomic_load(&h->base);
	end = window_end(b, base, atomic_load(&h->end));
	img->at = atomic_load(&h->done);
	image_carrier(img, h, carrier, b->bytes);
	if (!err)
		err = image_entries(img, h);
	if (err)
		rds_trunk_image_close(img);
	else
		image_window(img, h, base, end);
	return err;
}

void rds_trunk_image_close(struct rds_trunk_image *img)
{
	if (img->map)
		os_munmap(img->map, TRUNK_SIZE);
	free(img->found);
	img->map = NULL;
	img->found = NULL;
	img->nfound = 0;
}

/* ---- a trunk of ours with the same content ---- */

static int copy_members(struct rds_trunk *t, const struct rds_trunk_image *img)
{
	unsigned i;

	t->former = calloc(RDS_TRUNK_MEMBERS, sizeof(*t->former));
	if (!t->former)
		return -ENOMEM;
	for (i = 0; i < RDS_TRUNK_MEMBERS; i++)
		trunk_member_note(t, &img->members[i].id, img->members[i].number);
	for (i = 0; i < RDS_TRUNK_MEMBERS; i++)
		t->former[i] = t->members[i].number;
	return 0;
}

static int copy_messages(struct rds_trunk *t, struct rds_trunk_image *img)
{
	unsigned i;

	for (i = 0; i < img->nfound; i++) {
		img->found[i].ref = rds_trunk_add(t, &img->found[i].m);
		if (!img->found[i].ref)
			return -ENOMEM;
	}
	return 0;
}

static void copy_window(struct rds_trunk *t, const struct rds_trunk_image *img)
{
	size_t room;

	rds_trunk_window_begin(t, img->carrier, img->at);
	if (!img->nbytes)
		return;
	memcpy(rds_trunk_window_room(t, &room), img->bytes, img->nbytes);
	rds_trunk_window_filled(t, img->nbytes);
}

struct rds_trunk *rds_trunk_new_from(struct rds_trunk_image *img, int *err)
{
	struct rds_trunk *t = rds_trunk_new(&img->name, err);
	unsigned i;

	if (!t)
		return NULL;
	*err = copy_members(t, img);
	if (!*err)
		*err = copy_messages(t, img);
	if (*err) {
		for (i = 0; i < img->nfound && img->found[i].ref; i++)
			rds_trunk_drop(img->found[i].ref);
		rds_trunk_put(t);
		return NULL;
	}
	copy_window(t, img);
	t->packets = img->carrier ? img->carrier - 1 : 0;
	rds_trunk_sending(t, img->sent);
	rds_trunk_acked(t, img->acked);
	rds_trunk_received(t, img->next_rx, img->peer_gen);
	return t;
}
