/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fuzz_trunk.c - what a former owner of a trunk, or any other process of its user, may have left in that
 * memory, and in the box.
 *
 * The input: u8 carrier, u8 or_less, be32 bytes that it has brought, then patches { u8 where, u8 length, be16
 * offset, bytes } on a trunk with a few messages: `where` % 4 is its head, the numbers of bytes in its
 * segments, its first segment or the beginning of its window.  Whatever that is, the next owner finds
 * something that it can use, or nothing; and its copy of that says the same as what it has found.
 *
 * fuzz-sources: engine/trunk/memory.c engine/trunk/image.c engine/trunk/box.c
 * fuzz-sources: engine/node/socket_name.c engine/node/others.c
 * fuzz-sources: engine/node/area.c engine/node/area_lock.c engine/node/bindings.c
 * fuzz-sources: engine/node/file.c engine/node/other_version.c engine/node/file_lock.c engine/node/lost_file.c
 * fuzz-sources: engine/node/inherited.c engine/node/slab.c
 * fuzz-sources: engine/node/own_entry.c engine/node/process.c engine/node/registry.c
 * fuzz-sources: engine/node/port_name.c engine/node/snapshot.c engine/node/stats.c
 * fuzz-sources: engine/sys/os.c engine/sys/signals.c engine/sys/own_fds.c
 * fuzz-sources: engine/sys/fd_table.c engine/sys/user_id.c engine/sys/log.c
 * fuzz-sources: engine/sys/options.c engine/sys/pass_fds.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sys/os.h"
#include "engine/trunk/memory.h"

#define MESSAGES 12
#define PATCHES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

void os_fork_zero(void *var, size_t len)
{
	memset(var, 0, len);
}

/* Where a patch begins, and the bytes that were there. */
struct patch {
	unsigned char *at;
	unsigned char was[256];
	unsigned n;
};

static struct rds_trunk *t;
static struct rds_trunk_ref *refs[MESSAGES];
static struct patch patches[PATCHES];
static unsigned npatches;

static void must(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "%s\n", what);
		abort();
	}
}

static void make(void)
{
	const struct rds_trunk_name name = {.laddr.s6_addr32[3] = 1, .faddr.s6_addr32[3] = 2};
	static const char bytes[3000];
	unsigned i;
	int err;

	t = rds_trunk_new(&name, &err);
	must(t, "a trunk");
	rds_trunk_sending(t, 100);
	rds_trunk_acked(t, 90);
	rds_trunk_received(t, 50, 1);
	rds_trunk_window_begin(t, 1, 0);
	rds_trunk_window_filled(t, 5000);
	for (i = 0; i < MESSAGES; i++) {
		const struct rds_trunk_message m = {.way = 1 + i % 2,
						    .len = i * 200,
						    .seq = 90 + i,
						    .number = i,
						    .member.b = {(uint8_t)i},
						    .data = bytes};

		rds_trunk_window_frame(t, 10);
		refs[i] = rds_trunk_add(t, &m);
		must(refs[i], "room");
		rds_trunk_window_done(t);
	}
}

static void patch_one(const uint8_t **data, size_t *size)
{
	unsigned char *const begin[4] = {(unsigned char *)t->head, (unsigned char *)(uintptr_t)t->head->used,
					 (unsigned char *)t->head + TRUNK_SEGS_AT,
					 (unsigned char *)t->head + TRUNK_WINDOW_AT};
	struct patch *p = &patches[npatches++];
	unsigned at = (unsigned)(*data)[2] << 8 | (*data)[3];

	p->n = (*data)[1] < *size - 4 ? (*data)[1] : (unsigned)(*size - 4);
	if ((*data)[0] % 4 == 1)
		at %= sizeof(t->head->used) - 256;
	else if (at > TRUNK_SEG - 256)
		at -= 256;
	p->at = begin[(*data)[0] % 4] + at;
	memcpy(p->was, p->at, p->n);
	memcpy(p->at, *data + 4, p->n);
	*data += 4 + p->n;
	*size -= 4 + p->n;
}

static void patch_undo(void)
{
	while (npatches--)
		memcpy(patches[npatches].at, patches[npatches].was, patches[npatches].n);
	npatches = 0;
}

static void judge(const struct rds_trunk_image *img)
{
	const unsigned char *begin = img->map, *end = begin + TRUNK_SIZE;
	unsigned i;

	must(img->next_rx && img->acked <= img->sent, "numbers");
	must(!img->nbytes || (img->carrier && img->bytes >= begin && img->bytes + img->nbytes <= end), "the window");
	for (i = 0; i < img->nfound; i++) {
		const struct rds_trunk_message *m = &img->found[i].m;
		const unsigned char *data = m->data;

		must(m->len <= RDS_MAX_MSG && data >= begin && data + m->len <= end, "a message");
		must(!i || img->found[i - 1].order <= img->found[i].order, "order");
		must((m->way == RDS_TRUNK_IN || m->way == RDS_TRUNK_OUT) && !(m->seq >> 62), "a message's way");
	}
}

/* What the next one finds in turn. */
static void judge_next(struct rds_trunk_image *img)
{
	struct rds_trunk_image again;
	unsigned i;
	int err;
	struct rds_trunk *next = rds_trunk_new_from(img, &err);
	struct rds_trunk_brought at = {.bytes = img->at + img->nbytes};

	if (!next)
		return; /* so many messages have no room in another one */
	must(!rds_trunk_image_open(atomic_load(&next->memory), img->carrier, &at, &again), "the copy is valid");
	must(again.nfound == img->nfound && again.nbytes == img->nbytes && again.sent == img->sent &&
		     again.next_rx == img->next_rx,
	     "the copy is the same");
	judge(&again);
	rds_trunk_image_close(&again);
	for (i = 0; i < img->nfound; i++)
		rds_trunk_drop(img->found[i].ref);
	rds_trunk_put(next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rds_trunk_brought b;
	struct rds_trunk_image img;
	uint32_t carrier;

	if (!t)
		make();
	if (size < 6)
		return 0;
	carrier = data[0] % 4;
	b = (struct rds_trunk_brought){.bytes = (uint32_t)data[2] << 24 | (uint32_t)data[3] << 16 |
						(uint32_t)data[4] << 8 | data[5],
				       .or_less = data[1] & 1};
	data += 6;
	size -= 6;
	while (size > 4 && npatches < PATCHES)
		patch_one(&data, &size);
	if (!rds_trunk_image_open(atomic_load(&t->memory), carrier, &b, &img)) {
		judge(&img);
		judge_next(&img);
		rds_trunk_image_close(&img);
	}
	patch_undo();
	return 0;
}
