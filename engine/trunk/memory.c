/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * memory.c - the owner writes a trunk.
 *
 * The process may be killed between any two stores, so each change becomes valid by one of them, behind
 * its data.  Other processes of this user may write there, too: nothing that this file reads there
 * decides where it writes, or for how long.  Where entries lie is known from memory of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/sys/compiler.h"
#include "engine/sys/os.h"
#include "engine/trunk/memory.h"

#define SEGS_IN_MAX (TRUNK_SEGS / 4 * 3)
#define SEGS_KEPT 32u /* the memory of the others is given back when the trunk is empty */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct rds_trunk_ref {
	struct rds_trunk_ref *next;
	struct rds_trunk *t;
	struct trunk_entry *e;
	uint64_t seq;
	unsigned seg, nsegs;
};

void (*rds_trunk_step)(void);
struct rds_trunk *trunk_all;

static _Atomic uint32_t *trunk_used(struct rds_trunk *t, unsigned seg)
{
	return &t->head->used[seg];
}

static unsigned char *trunk_seg(struct rds_trunk *t, unsigned seg)
{
	return (unsigned char *)t->head + TRUNK_SEGS_AT + (size_t)seg * TRUNK_SEG;
}

/* ---- made, ended ---- */

/* Pages come now, or not at all: later there would be a signal. */
static int trunk_populate(void *at, size_t n)
{
	long err = os_syscall(SYS_madvise, (long)at, (long)n, MADV_POPULATE_WRITE, 0, 0, 0);

	return err == -EINVAL ? 0 : (int)err; /* an old kernel */
}

/*
 * What is not used yet cannot be touched.  So it is no memory after mlockall(), which fills all that can.
 */
static int trunk_allow(void *at, size_t n, int prot)
{
	return (int)os_syscall(SYS_mprotect, (long)at, (long)n, prot, 0, 0, 0);
}

static int trunk_map(struct rds_trunk *t)
{
	void *map = NULL;
	int fd = os_memfd("rds trunk", MFD_CLOEXEC | MFD_ALLOW_SEALING), err;

	if (fd < 0)
		return fd;
	err = os_ftruncate(fd, (off_t)TRUNK_SIZE);
	if (!err)
		err = os_fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	if (!err)
		err = os_mmap_unlocked(TRUNK_SIZE, PROT_NONE, MAP_SHARED, fd, 0, &map);
	if (err) {
		os_close(fd);
		return err;
	}
	t->head = map;
	err = trunk_allow(map, TRUNK_SEGS_AT, PROT_READ | PROT_WRITE);
	if (!err)
		err = trunk_populate(map, TRUNK_SEGS_AT);
	if (err)
		os_close(fd);
	else
		err = os_dup_high_slot(fd, &t->memory);
	if (err)
		os_munmap(map, TRUNK_SIZE);
	else /* a forked child has nothing to do with it */
		os_syscall(SYS_madvise, (long)map, (long)TRUNK_SIZE, MADV_DONTFORK, 0, 0, 0);
	return err;
}

struct rds_trunk *rds_trunk_new(const struct rds_trunk_name *name, int *err)
{
	struct rds_trunk *t = calloc(1, sizeof(*t));

	*err = -ENOMEM;
	if (!t)
		return NULL;
	atomic_store(&t->memory, -1);
	*err = trunk_map(t);
	if (*err) {
		free(t);
		return NULL;
	}
	atomic_store(&t->users, 1);
	t->name = *name;
	t->head->magic = TRUNK_MAGIC;
	t->head->version = TRUNK_VERSION;
	os_random(&t->id, sizeof(t->id));
	t->made = os_now_ns();
	t->head->id = t->id;
	t->head->name = *name;
	t->next = trunk_all;
	trunk_all = t;
	return t;
}

/* Its descriptor is the helper's to close (rds_trunk_put()). */
static void trunk_unuse(struct rds_trunk *t)
{
	if (atomic_fetch_sub(&t->users, 1) > 1)
		return;
	os_munmap(t->head, TRUNK_SIZE);
	free(t->former);
	free(t);
}

void rds_trunk_put(struct rds_trunk *t)
{
	struct rds_trunk **p = &trunk_all;

	if (!t)
		return;
	while (*p != t)
		p = &(*p)->next;
	*p = t->next;
	if (t->box)
		trunk_box_useless++;
	os_close_slot(&t->memory);
	trunk_unuse(t);
}

void rds_trunk_forget(void)
{
	trunk_all = NULL;
	trunk_box_useless = 0;
}

const struct rds_trunk_name *rds_trunk_name(const struct rds_trunk *t)
{
	return &t->name;
}

void rds_trunk_left(struct rds_trunk *t, bool left)
{
	atomic_store(&t->head->left, left);
}

/* ---- where an entry goes ---- */

static bool seg_is_free(struct rds_trunk *t, unsigned seg)
{
	return !atomic_load_explicit(&t->live[seg], memory_order_acquire);
}

static bool segs_touch(struct rds_trunk *t, unsigned seg, unsigned n)
{
	unsigned from = t->high;
	size_t size;

	if (seg + n <= t->high)
		return true;
	size = (size_t)(seg + n - from) * TRUNK_SEG;
	if (trunk_allow(trunk_seg(t, from), size, PROT_READ | PROT_WRITE) || trunk_populate(trunk_seg(t, from), size))
		return false;
	t->high = seg + n;
	return true;
}

void rds_trunk_trim(struct rds_trunk *t)
{
	size_t size;
	unsigned i;

	if (likely(t->high <= SEGS_KEPT) || atomic_load(&t->users) > 1)
		return;
	for (i = SEGS_KEPT; i < t->high; i++)
		atomic_store_explicit(trunk_used(t, i), 0, memory_order_release);
	for (i = 0; i < TRUNK_PLACES; i++)
		if (t->place[i].seg >= SEGS_KEPT)
			t->place[i].at = 0;
	size = (size_t)(t->high - SEGS_KEPT) * TRUNK_SEG;
	os_syscall(SYS_madvise, (long)trunk_seg(t, SEGS_KEPT), (long)size, MADV_REMOVE, 0, 0, 0);
	trunk_allow(trunk_seg(t, SEGS_KEPT), size, PROT_NONE);
	t->high = SEGS_KEPT;
}

/* What members do not take leaves room for what they send. */
static bool segs_may_have(const struct rds_trunk *t, uint8_t way, unsigned n)
{
	unsigned i;

	if (likely(way == RDS_TRUNK_OUT || t->high + n <= SEGS_IN_MAX))
		return true;
	for (i = 0; i < t->high; i++)
		n += t->way[i] == RDS_TRUNK_IN && atomic_load_explicit(&t->live[i], memory_order_relaxed);
	return n <= SEGS_IN_MAX;
}

/* n free segments, one behind the other; TRUNK_SEGS: there are none. */
static unsigned segs_find(struct rds_trunk *t, uint8_t way, unsigned n)
{
	unsigned seg, run = 0;

	for (seg = 0; seg < TRUNK_SEGS && run < n; seg++)
		run = seg_is_free(t, seg) ? run + 1 : 0;
	return run < n || !segs_may_have(t, way, n) ? TRUNK_SEGS : seg - n;
}

/* They are empty from now on, and nobody's place. */
static bool segs_take(struct rds_trunk *t, uint8_t way, unsigned n, unsigned *seg)
{
	unsigned i;

	*seg = segs_find(t, way, n);
	if (*seg == TRUNK_SEGS || !segs_touch(t, *seg, n))
		return false;
	for (i = 0; i < TRUNK_PLACES; i++)
		if (t->place[i].seg >= *seg && t->place[i].seg < *seg + n)
			t->place[i].at = 0;
	for (i = 0; i < n; i++) {
		t->way[*seg + i] = way;
		atomic_store_explicit(trunk_used(t, *seg + i), 0, memory_order_release);
	}
	return true;
}

/* A place for so many bytes: *seg, and where in it. */
static bool entry_place(struct rds_trunk *t, const struct rds_trunk_message *m, size_t size, unsigned *seg,
			uint32_t *at)
{
	struct trunk_place *p = &t->place[m->way == RDS_TRUNK_OUT ? 0 : 1 + m->dport % TRUNK_PLACES_IN];

	*at = 0;
	if (size > TRUNK_SEG)
		return segs_take(t, m->way, (unsigned)((size + TRUNK_SEG - 1) / TRUNK_SEG), seg);
	if (p->at && seg_is_free(t, p->seg)) /* all has been taken: the same once more */
		atomic_store_explicit(trunk_used(t, p->seg), 0, memory_order_release);
	else if (p->at && p->at + size <= TRUNK_SEG)
		*at = p->at;
	else if (segs_take(t, m->way, 1, seg))
		p->seg = *seg;
	else
		return false;
	*seg = p->seg;
	p->at = *at + (uint32_t)size;
	return true;
}

/* ---- processes of this host, and the last number of each ---- */

static unsigned member_hash(const struct rds_procid *id)
{
	uint32_t h;

	memcpy(&h, id, sizeof(h));
	return h % RDS_TRUNK_MEMBERS;
}

/* The place of that process, or a free one; RDS_TRUNK_MEMBERS: all are taken. */
static unsigned member_find(const struct rds_trunk *t, const struct rds_procid *id)
{
	unsigned i, at = member_hash(id);

	for (i = 0; i < RDS_TRUNK_MEMBERS; i++, at = (at + 1) % RDS_TRUNK_MEMBERS)
		if (!t->members[at].number || !memcmp(&t->members[at].id, id, sizeof(*id)))
			return at;
	return RDS_TRUNK_MEMBERS;
}

/* All places are taken: that of a process which has ended. */
static unsigned member_replace(struct rds_trunk *t, const struct rds_procid *id)
{
	unsigned i, at = member_hash(id);
	uint32_t slot;

	for (i = 0; i < RDS_TRUNK_MEMBERS; i++, at = (at + 1) % RDS_TRUNK_MEMBERS) {
		if (!rds_node_registry || registry_proc_find(rds_node_registry, &t->members[at].id, &slot))
			continue;
		atomic_store_explicit(&t->head->members[at].number, 0, memory_order_release);
		t->members[at].number = 0;
		if (t->former)
			t->former[at] = 0;
		return at;
	}
	return RDS_TRUNK_MEMBERS;
}

void trunk_member_note(struct rds_trunk *t, const struct rds_procid *id, uint32_t number)
{
	unsigned i = number ? member_find(t, id) : RDS_TRUNK_MEMBERS;
	struct trunk_slot *slot;

	if (number && i == RDS_TRUNK_MEMBERS)
		i = member_replace(t, id);
	if (i == RDS_TRUNK_MEMBERS)
		return;
	slot = &t->head->members[i];
	/* copied from a former owner's: not the last one of that process */
	if (t->members[i].number && t->members[i].number - number < TRUNK_LATE_MAX)
		return;
	if (!t->members[i].number) {
		t->members[i].id = *id;
		slot->id = *id;
	}
	if (t->former && number - t->former[i] - TRUNK_LATE_MAX < TRUNK_LATE_MAX)
		t->former[i] = 0; /* nothing of that comes any more */
	t->members[i].number = number;
	atomic_store_explicit(&slot->number, number, memory_order_release);
}

bool rds_trunk_had(const struct rds_trunk *t, const struct rds_procid *member, uint32_t number)
{
	unsigned i = number && t->former ? member_find(t, member) : RDS_TRUNK_MEMBERS;

	return i < RDS_TRUNK_MEMBERS && t->former[i] && t->former[i] - number < TRUNK_LATE_MAX;
}

/* ---- entries ---- */

static void entry_write(struct rds_trunk *t, struct trunk_entry *e, const struct rds_trunk_message *m)
{
	e->order = ++t->order;
	atomic_store_explicit(&e->seq, m->seq, memory_order_relaxed);
	e->carrier = m->way == RDS_TRUNK_IN ? t->carrier : 0;
	e->end = m->way == RDS_TRUNK_IN ? t->frame_end : 0;
	e->len = m->len;
	e->number = m->number;
	e->sport = m->sport;
	e->dport = m->dport;
	e->way = m->way;
	e->marked = m->marked;
	atomic_store_explicit(&e->live, 1, memory_order_relaxed);
	e->member = m->member;
	if (m->len)
		memcpy(e + 1, m->data, m->len);
}

struct rds_trunk_ref *rds_trunk_add(struct rds_trunk *t, const struct rds_trunk_message *m)
{
	size_t size = trunk_entry_size(m->len);
	struct rds_trunk_ref *ref = malloc(sizeof(*ref));
	uint32_t at;
	unsigned i;

	rds_trunk_trim(t);
	if (!ref || !entry_place(t, m, size, &ref->seg, &at)) {
		free(ref);
		return NULL;
	}
	*ref = (struct rds_trunk_ref){.t = t,
				      .seg = ref->seg,
				      .nsegs = (unsigned)((at + size + TRUNK_SEG - 1) / TRUNK_SEG),
				      .e = (struct trunk_entry *)(void *)(trunk_seg(t, ref->seg) + at)};
	atomic_fetch_add(&t->users, 1);
	for (i = 0; i < ref->nsegs; i++)
		atomic_fetch_add(&t->live[ref->seg + i], 1);
	trunk_step();
	entry_write(t, ref->e, m);
	trunk_step();
	atomic_store_explicit(trunk_used(t, ref->seg), at + (uint32_t)size, memory_order_release);
	trunk_step();
	if (m->way == RDS_TRUNK_OUT)
		trunk_member_note(t, &m->member, m->number);
	trunk_step();
	return ref;
}

void rds_trunk_drop(struct rds_trunk_ref *ref)
{
	struct rds_trunk *t = ref->t;
	unsigned i;

	trunk_step();
	atomic_store_explicit(&ref->e->live, 0, memory_order_release);
	for (i = 0; i < ref->nsegs; i++)
		atomic_fetch_sub(&t->live[ref->seg + i], 1);
	free(ref);
	trunk_unuse(t);
}

void rds_trunk_ref_number(struct rds_trunk_ref *ref, uint64_t seq)
{
	trunk_step();
	atomic_store_explicit(&ref->e->seq, seq, memory_order_release);
	trunk_step();
}

void rds_trunk_refs_add(struct rds_trunk_refs *refs, struct rds_trunk_ref *ref, uint64_t seq)
{
	ref->seq = seq;
	ref->next = NULL;
	if (!refs->first)
		refs->last = &refs->first;
	*refs->last = ref;
	refs->last = &ref->next;
}

void rds_trunk_refs_drop(struct rds_trunk_refs *refs, uint64_t up_to)
{
	struct rds_trunk_ref *ref;

	while ((ref = refs->first) && ref->seq <= up_to) {
		refs->first = ref->next;
		rds_trunk_drop(ref);
	}
}

struct rds_trunk_ref *rds_trunk_refs_take(struct rds_trunk_refs *refs, struct rds_trunk_ref ***at, uint64_t seq)
{
	struct rds_trunk_ref *ref;

	while ((ref = **at) && ref->seq < seq)
		*at = &ref->next;
	if (!ref || ref->seq != seq)
		return NULL;
	**at = ref->next;
	if (!ref->next)
		refs->last = *at;
	return ref;
}

/* ---- numbers ---- */

void rds_trunk_sending(struct rds_trunk *t, uint64_t seq)
{
	atomic_store_explicit(&t->head->sent, seq, memory_order_release);
	trunk_step();
}

void rds_trunk_acked(struct rds_trunk *t, uint64_t seq)
{
	atomic_store_explicit(&t->head->acked, seq, memory_order_release);
}

/* A new generation is kept behind the number that goes with it: else what tells it would count as heard already. */
void rds_trunk_received(struct rds_trunk *t, uint64_t next_rx, uint32_t peer_gen)
{
	atomic_store_explicit(&t->head->next_rx, next_rx, memory_order_release);
	trunk_step();
	atomic_store_explicit(&t->head->peer_gen, peer_gen, memory_order_release);
}

/* ---- the window ---- */

static unsigned char *window_at(const struct rds_trunk *t, uint64_t at)
{
	return (unsigned char *)t->head + TRUNK_WINDOW_AT + (size_t)(at - t->base);
}

static void window_set_base(struct rds_trunk *t, uint64_t base)
{
	t->base = base;
	atomic_store_explicit(&t->head->base, base, memory_order_release);
}

static void window_set_end(struct rds_trunk *t, uint64_t end)
{
	t->end = end;
	atomic_store_explicit(&t->head->end, end, memory_order_release);
}

void rds_trunk_window_begin(struct rds_trunk *t, uint32_t carrier, uint64_t at)
{
	atomic_store_explicit(&t->head->carrier, 0, memory_order_release);
	t->carrier = carrier;
	t->done = at;
	window_set_end(t, at);
	window_set_base(t, at);
	atomic_store_explicit(&t->head->done, at, memory_order_release);
	atomic_store_explicit(&t->head->carrier, carrier, memory_order_release);
}

void rds_trunk_window_end(struct rds_trunk *t, uint32_t carrier)
{
	if (!carrier)
		return;
	atomic_store_explicit(&t->head->over, carrier, memory_order_release);
	trunk_step();
	atomic_store_explicit(&t->head->carrier, 0, memory_order_release);
	t->carrier = 0;
}

void *rds_trunk_window_room(const struct rds_trunk *t, size_t *n)
{
	*n = trunk_read_room(t->base, t->end);
	return window_at(t, t->end);
}

void rds_trunk_window_filled(struct rds_trunk *t, size_t n)
{
	trunk_step();
	window_set_end(t, t->end + n);
}

const unsigned char *rds_trunk_window_bytes(const struct rds_trunk *t, size_t *n)
{
	*n = (size_t)(t->end - t->done);
	return window_at(t, t->done);
}

/* What is moved lies where it lay, too, until the base has changed. */
void rds_trunk_window_fit(struct rds_trunk *t, size_t n)
{
	unsigned char *from = window_at(t, t->done);

	if ((size_t)(t->done - t->base) + n <= TRUNK_WINDOW)
		return;
	memcpy(window_at(t, t->base), from, (size_t)(t->end - t->done));
	trunk_step();
	window_set_base(t, t->done);
}

void rds_trunk_window_frame(struct rds_trunk *t, size_t n)
{
	t->frame_end = t->done + n;
}

void rds_trunk_window_done(struct rds_trunk *t)
{
	trunk_step();
	t->done = t->frame_end;
	atomic_store_explicit(&t->head->done, t->done, memory_order_release);
	trunk_step();
	if (t->done == t->end)
		window_set_base(t, t->done);
}
