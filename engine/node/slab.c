/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * slab.c - memory that the processes of a registry have in common: a line for each process slot, and
 * slabs, each of which belongs to one process.
 *
 * Nothing here takes a lock, so no process that is stopped holds up another one. A slab changes its
 * owner by one compare-and-swap of one word: from nobody, to nobody, or from a process that has ended
 * to one that lives. A process that dies in between is an owner that has ended.
 *
 * A slab has memory only while it belongs to somebody. It is reserved before it is touched, and is
 * given back before it belongs to nobody. So it is all zeros for its next owner.
 *
 * A process touches its own slabs, and a slab that cannot be given back because a message in it is for
 * that process. It looks at any other slab by read() only: a page of it that does not exist would come
 * to be, and on a full file system that is SIGBUS.
 *
 * Slabs are mapped as they are used, and side by side: page tables are made for 2 MiB of addresses. Where
 * addresses are limited, no more are mapped. After mlockall() a mapping is filled with pages, also of
 * slabs that nobody has, which are zeros as well.
 *
 * Must not know what the bytes mean.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "engine/sys/compiler.h"
#include "engine/node/registry_impl.h"

_Static_assert(REG_SLABS == REGISTRY_SLABS && REG_SLAB_BYTES == REGISTRY_SLAB_BYTES, "registry.h says it, too");

static bool space_is_limited(void)
{
	struct rlimit limit = {.rlim_cur = 0};

	return os_syscall(SYS_prlimit64, 0, RLIMIT_AS, 0, (long)&limit, 0, 0) || limit.rlim_cur != RLIM_INFINITY;
}

static int map_at(struct registry *reg, size_t len, size_t off, void **out)
{
	return os_mmap(len, PROT_READ | PROT_WRITE, MAP_SHARED, reg_fd(reg), (off_t)off, out);
}

/* It is asked for often. A process that could not have it once does without, whatever others do. */
static struct reg_common *common_get(struct registry *reg)
{
	struct reg_common *common = reg_load(&reg->common), *none = NULL;
	void *map;

	if (likely(common) || reg_load(&reg->no_common))
		return common;
	if (space_is_limited() || os_fallocate(reg_fd(reg), (off_t)REG_COMMON_OFFSET, (off_t)REG_COMMON_SIZE) ||
	    map_at(reg, REG_COMMON_SIZE, REG_COMMON_OFFSET, &map)) {
		reg_store(&reg->no_common, true);
		return NULL;
	}
	if (atomic_compare_exchange_strong(&reg->common, &none, map))
		return map;
	os_munmap(map, REG_COMMON_SIZE); /* another thread was first */
	return none;
}

/* To touch what is behind the end of the file would be SIGBUS, and any process can say that a slab is there. */
static int window_reach(struct registry *reg, uint32_t i)
{
	const off_t end = (off_t)REG_SLAB_OFFSET((i + 1) * REG_WINDOW);
	struct stat st;

	if (!os_fstat(reg_fd(reg), &st) && st.st_size >= end)
		return 0;
	return os_fallocate(reg_fd(reg), end - 4096, 4096);
}

static int window_map(struct registry *reg, uint32_t i)
{
	unsigned char *none = NULL;
	void *map;
	int ret;

	if (likely(reg_load(&reg->window[i])))
		return 0;
	ret = space_is_limited() ? -ENOMEM : window_reach(reg, i);
	if (!ret)
		ret = map_at(reg, REG_WINDOW_SIZE, REG_SLAB_OFFSET(i * REG_WINDOW), &map);
	if (!ret && !atomic_compare_exchange_strong(&reg->window[i], &none, map))
		os_munmap(map, REG_WINDOW_SIZE); /* another thread was first */
	return ret;
}

void reg_common_unmap(struct registry *reg)
{
	struct reg_common *common = atomic_exchange(&reg->common, NULL);
	unsigned char *window;

	if (common)
		os_munmap(common, REG_COMMON_SIZE);
	for (unsigned i = 0; i < REG_WINDOWS; i++)
		if ((window = atomic_exchange(&reg->window[i], NULL)))
			os_munmap(window, REG_WINDOW_SIZE);
}

void *registry_line(struct registry *reg, uint32_t slot)
{
	struct reg_common *common = slot < REG_PROCS ? common_get(reg) : NULL;

	return common ? common->line[slot] : NULL;
}

uint64_t registry_slab_word(const struct rds_procid *id)
{
	uint64_t word;

	memcpy(&word, id, sizeof(word)); /* random */
	return word;
}

bool registry_proc_id(struct registry *reg, uint32_t slot, struct rds_procid *id)
{
	if (slot >= REG_PROCS)
		return false;
	reg_words_load(id, reg->f->proc[slot].id);
	return true;
}

/* Not by the owner's hint, which it writes after it has the slab. */
bool registry_slab_word_lives(struct registry *reg, uint64_t word)
{
	struct rds_procid id;

	for (uint32_t slot = 0; word && slot < REG_PROCS; slot++) {
		if (reg_load(&reg->f->proc[slot].id[0]) != word)
			continue;
		reg_words_load(&id, reg->f->proc[slot].id);
		if (registry_proc_alive(reg, slot, &id))
			return true;
	}
	return false;
}

bool registry_slab_owner(struct registry *reg, uint32_t n, uint64_t *owner, uint32_t *slot)
{
	struct reg_common *common = n < REG_SLABS ? common_get(reg) : NULL;

	if (!common)
		return false;
	*owner = reg_load(&common->slab[n].owner);
	*slot = reg_load(&common->slab[n].slot);
	return *owner && *slot < REG_PROCS;
}

void *registry_slab(struct registry *reg, uint32_t n)
{
	uint64_t owner;
	uint32_t slot;

	if (!registry_slab_owner(reg, n, &owner, &slot) || window_map(reg, n / REG_WINDOW))
		return NULL;
	return reg_load(&reg->window[n / REG_WINDOW]) + (size_t)(n % REG_WINDOW) * REG_SLAB_BYTES;
}

void *registry_slab_own(struct registry *reg, uint32_t n)
{
	unsigned char *window = n < REG_SLABS ? reg_load(&reg->window[n / REG_WINDOW]) : NULL;

	return window ? window + (size_t)(n % REG_WINDOW) * REG_SLAB_BYTES : NULL;
}

/* Who finds the new owner with what is left of the last one has an id of nobody. */
static void slab_sign(struct registry *reg, struct reg_slab *slab)
{
	uint64_t word[2];

	_Static_assert(sizeof(word) == sizeof(reg->id), "all of it");
	memcpy(word, &reg->id, sizeof(word));
	reg_store(&slab->rest, word[1]);
	reg_store(&slab->slot, reg->slot);
}

bool registry_slab_id(struct registry *reg, uint32_t n, struct rds_procid *id, uint32_t *slot)
{
	struct reg_common *common = n < REG_SLABS ? common_get(reg) : NULL;
	uint64_t word[2];

	if (!common || !registry_slab_owner(reg, n, &word[0], slot))
		return false;
	word[1] = reg_load(&common->slab[n].rest);
	memcpy(id, word, sizeof(word));
	return true;
}

bool registry_slab_inherit(struct registry *reg, uint32_t n, uint64_t from)
{
	struct reg_common *common = n < REG_SLABS ? common_get(reg) : NULL;

	if (!common || !from ||
	    !atomic_compare_exchange_strong(&common->slab[n].owner, &from, registry_slab_word(&reg->id)))
		return false;
	slab_sign(reg, &common->slab[n]);
	return true;
}

bool registry_slab_read(struct registry *reg, uint32_t n, void *bytes)
{
	ssize_t got = -1;

	if (n < REG_SLABS)
		got = os_pread(reg_fd(reg), bytes, REG_SLAB_BYTES, (off_t)REG_SLAB_OFFSET(n));
	if (got < 0)
		return false;
	memset((char *)bytes + got, 0, REG_SLAB_BYTES - (size_t)got); /* the file ends there */
	return true;
}

static int slab_clear(struct registry *reg, uint32_t n)
{
	static const unsigned char zeros[4096];
	off_t at = (off_t)REG_SLAB_OFFSET(n);

	if (!os_syscall(SYS_fallocate, reg_fd(reg), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, REG_SLAB_BYTES, 0,
			0))
		return 0;
	/* a file system without holes; its pages need not exist, so they are not touched */
	for (off_t end = at + REG_SLAB_BYTES; at < end; at += (off_t)sizeof(zeros))
		if (os_pwrite_quiet(reg_fd(reg), zeros, sizeof(zeros), at) != (ssize_t)sizeof(zeros))
			return -EIO;
	return 0;
}

/* One that cannot be cleared stays this process's: the next owner believes that it is zeros. */
void registry_slab_drop(struct registry *reg, uint32_t n)
{
	struct reg_common *common = n < REG_SLABS ? common_get(reg) : NULL;
	uint64_t self = registry_slab_word(&reg->id);

	if (common && reg_load(&common->slab[n].owner) == self && !slab_clear(reg, n))
		atomic_compare_exchange_strong(&common->slab[n].owner, &self, 0);
}

static int slab_reserve(struct registry *reg, uint32_t n)
{
	int ret = window_map(reg, n / REG_WINDOW);

	if (!ret)
		ret = os_fallocate(reg_fd(reg), (off_t)REG_SLAB_OFFSET(n), REG_SLAB_BYTES);
	return ret == -EFBIG ? -EOPNOTSUPP : ret;
}

/* The lowest numbers are used first: whoever looks at all slabs touches few pages. */
int registry_slab_take(struct registry *reg, uint32_t *n)
{
	struct reg_common *common = common_get(reg);
	uint64_t nobody;
	int ret;

	if (!common)
		return -EOPNOTSUPP;
	for (uint32_t i = 0; i < REG_SLABS; i++) {
		nobody = 0;
		if (reg_load(&common->slab[i].owner) ||
		    !atomic_compare_exchange_strong(&common->slab[i].owner, &nobody, registry_slab_word(&reg->id)))
			continue;
		slab_sign(reg, &common->slab[i]);
		ret = slab_reserve(reg, i);
		if (ret)
			registry_slab_drop(reg, i); /* it may have got some of its pages */
		else
			*n = i;
		return ret;
	}
	return -ENOSPC;
}
