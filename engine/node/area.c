/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * area.c - no process holds up the node. Other processes go on without a process that is stopped
 * (or frozen, or in a debugger) in the middle of a change.
 *
 * Data that is changed under the lock is in an area, and each area has a lock of its own. The term
 * in the header tells which area counts. A process that finds the current area locked by a holder
 * that makes no progress takes the lock of an unused area and moves the term there. It copies the
 * contents, as after a death (they are rebuilt before anything else), and goes on. The stopped
 * process has its old area for itself, so its writes there do no harm. At its unlock it sees that
 * the term has moved, and makes its change again. Its area can be used again after it has unlocked
 * it.
 *
 * The term moves first, then the copy is made. So if a process still had the term when its change
 * was complete, the whole change is in the copy. Else the process makes the change again, and its
 * partial change in the copy must do no harm: half an entry is no entry, and half a fold is no
 * fold. While the copy is not complete, look-ups use the old area. A process that dies or is
 * stopped while it copies is replaced like any other.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/sys/fence.h"
#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "engine/node/registry_impl.h"

/*
 * The file may be longer than this area without any memory here (slab.c), and what follows reads what is
 * before the entries.
 */
static int area_map_first(struct registry *reg, unsigned area)
{
	struct reg_area *none = NULL;
	struct reg_view *v = &reg->view[area];
	void *p;
	int ret;

	if (reg_load(&v->a))
		return 0;
	ret = os_fallocate(reg_fd(reg), (off_t)REG_AREA_OFFSET(area), (off_t)REG_AREA_SIZE(0));
	if (ret)
		return ret;
	ret = os_mmap(REG_AREA_MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED, reg_fd(reg), (off_t)REG_AREA_OFFSET(area),
		      &p);
	if (!ret && !atomic_compare_exchange_strong(&v->a, &none, p))
		os_munmap(p, REG_AREA_MAPPED); /* another thread was first */
	return ret;
}

static int area_map_part(struct registry *reg, unsigned area, unsigned i)
{
	off_t at = (off_t)(REG_AREA_OFFSET(area) + REG_AREA_MAPPED + i * REG_PART_SIZE);
	struct reg_sock *_Atomic *part = &reg->view[area].part[i], *none = NULL;
	void *p;
	int ret;

	if (reg_load(part))
		return 0;
	ret = os_mmap(REG_PART_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, reg_fd(reg), at, &p);
	if (!ret && !atomic_compare_exchange_strong(part, &none, p))
		os_munmap(p, REG_PART_SIZE);
	return ret;
}

int reg_area_map(struct registry *reg, unsigned area, uint32_t n)
{
	int ret = area_map_first(reg, area);
	unsigned i;

	for (i = 0; !ret && n > REG_PART_FIRST + i * REG_PART; i++)
		ret = area_map_part(reg, area, i);
	return ret;
}

void reg_area_unmap(struct reg_view *v)
{
	struct reg_area *a = atomic_exchange(&v->a, NULL);
	struct reg_sock *part;
	unsigned i;

	reg_store(&v->usable, 0);
	if (a)
		os_munmap(a, REG_AREA_MAPPED);
	for (i = 0; i < REG_PARTS; i++)
		if ((part = atomic_exchange(&v->part[i], NULL)))
			os_munmap(part, REG_PART_SIZE);
}

static uint32_t area_count_entries(off_t file, unsigned area)
{
	size_t from = REG_AREA_OFFSET(area), size = (size_t)file, n;

	if (size < from + REG_AREA_SIZE(REG_CHUNK))
		return 0;
	n = (size - from - REG_AREA_SIZE(0)) / sizeof(struct reg_sock) / REG_CHUNK * REG_CHUNK;
	return n < REG_SOCKS ? (uint32_t)n : REG_SOCKS;
}

uint32_t reg_area_entries(struct registry *reg, unsigned area)
{
	return area_count_entries(reg->size, area);
}

/*
 * The file is longer than this area if processes have memory in common (slab.c). Entries are written when
 * they come into being, one after the other: there are none beyond the first hole.
 */
uint32_t reg_area_written(struct registry *reg, unsigned area)
{
	off_t from = (off_t)(REG_AREA_OFFSET(area) + REG_AREA_SIZE(0));
	long hole = os_syscall(SYS_lseek, reg_fd(reg), from, SEEK_HOLE, 0, 0, 0);
	uint32_t most = reg_area_entries(reg, area), n;

	if (hole < from) /* a file system that does not say so, or the file ends before */
		return most;
	n = (uint32_t)((size_t)(hole - from) / sizeof(struct reg_sock) / REG_CHUNK * REG_CHUNK);
	return n < most ? n : most;
}

static int area_reserve(struct registry *reg, unsigned area, uint32_t n)
{
	return os_fallocate(reg_fd(reg), (off_t)REG_AREA_OFFSET(area), (off_t)REG_AREA_SIZE(n));
}

/* Other processes have moved on to that area, and this process uses it for the first time. */
static void area_learn(struct registry *reg, unsigned area)
{
	struct reg_view *v = &reg->view[area];
	uint32_t n, none = 0;
	struct stat st;

	if (os_fstat(reg_fd(reg), &st) || !area_count_entries(st.st_size, area) || reg_area_map(reg, area, 0))
		return;
	n = reg_load(&reg_load(&v->a)->reserved);
	if (n >= REG_CHUNK && n <= area_count_entries(st.st_size, area) && !area_reserve(reg, area, n) &&
	    !reg_area_map(reg, area, n))
		atomic_compare_exchange_strong(&v->usable, &none, n);
}

struct reg_view *reg_view_of(struct registry *reg, uint64_t term)
{
	unsigned area = term & REG_TERM_COPYING ? REG_TERM_FROM(term) : REG_TERM_AREA(term);

	if (!reg_usable(&reg->view[area]))
		area_learn(reg, area);
	return &reg->view[area];
}

struct reg_view *reg_view_current(struct registry *reg)
{
	return reg_view_of(reg, reg_load(&reg->f->h.term));
}

/*
 * How many entries have to be copied of an area that another process may be writing; 0: there is no
 * such area.
 */
static uint32_t area_count_to_copy(struct registry *reg, unsigned from)
{
	uint32_t fit, n;

	if (!reg_area_entries(reg, from) || reg_area_map(reg, from, 0))
		return 0;
	fit = reg_area_written(reg, from);
	n = reg_load(&reg_load(&reg->view[from].a)->reserved);
	if (!n && !fit)
		return 0;
	if (n > fit || n < REG_CHUNK || n % REG_CHUNK)
		n = fit ? fit : REG_CHUNK;
	return reg_area_map(reg, from, n) ? 0 : n;
}

static int term_move(struct registry *reg, uint64_t to)
{
	uint64_t term = reg->term;

	if (!atomic_compare_exchange_strong(&reg->f->h.term, &term, to))
		return -EAGAIN;
	reg->term = to;
	return 0;
}

int reg_area_take_over(struct registry *reg)
{
	unsigned at = REG_TERM_AREA(reg->term), from = at, to;
	uint64_t term = reg->term / REG_TERM_ONE * REG_TERM_ONE + REG_TERM_ONE;
	uint32_t n;
	int ret;

	if (reg->term & REG_TERM_COPYING)
		from = REG_TERM_FROM(reg->term);
	n = area_count_to_copy(reg, from);
	if (!n)
		return -EIO;
	for (to = 0; to < REG_AREAS; to++) {
		if (to == at || to == from || os_lock(reg_fd(reg), F_WRLCK, REG_AREA_BYTE(to), 1, false))
			continue;
		ret = area_reserve(reg, to, n);
		if (!ret)
			ret = term_move(reg, term | REG_TERM_COPYING | from * REG_AREAS | to);
		if (ret)
			os_lock(reg_fd(reg), F_UNLCK, REG_AREA_BYTE(to), 1, false);
		else
			rds_info("registry: a process that has %s locked is stopped: others go on without its change",
				 reg->path);
		return ret;
	}
	return -EBUSY;
}

/* ---- the copy ---- */

#define COPY_WORD(member) reg_store(&to->member, reg_load(&from->member))

/*
 * `mark` is read first and compared again at the end. The mark of a new entry is stored after all
 * its other words, so an entry with a mark is whole. If the mark has changed meanwhile, the entry
 * was being freed, which does no harm, or it was being allocated, or its owner was binding it. The
 * last two are done again by their process.
 */
static void entry_copy(struct reg_sock *to, struct reg_sock *from)
{
	uint32_t mark = reg_load(&from->mark), after;

	for (int i = 0; mark && i < 2; i++) {
		reg_store(&to->addr[i], mark & 0xffff ? reg_load(&from->addr[i]) : 0);
		COPY_WORD(id[i]);
		COPY_WORD(connected[i]);
		COPY_WORD(name[i]);
	}
	if (mark) {
		COPY_WORD(scope);
		COPY_WORD(proc);
		COPY_WORD(pid);
		COPY_WORD(transport);
		COPY_WORD(moved);
		COPY_WORD(congested);
		COPY_WORD(inode);
		COPY_WORD(order);
		COPY_WORD(connected_port);
		COPY_WORD(shared);
		COPY_WORD(sndbuf);
		COPY_WORD(rcvbuf);
		COPY_WORD(mailbox_bytes);
	}
	reg_store(&to->mark, mark);
	/*
	 * A process that withdraws the entry without the lock either finds it here, or the
	 * following check sees that it withdrew the entry there (store_nowait()).
	 */
	rds_fence();
	after = reg_load(&from->mark);
	if (after != mark && (mark != REG_SOCK_USED || !after))
		reg_store(&to->mark, 0);
}

/*
 * The sums of the dead must agree with the slot states. If no fold has been finished meanwhile,
 * both are as before a fold, or the link says that the fold must be finished.
 */
static void copy_dead(struct reg_area *to, struct reg_area *from)
{
	uint64_t folds;
	uint32_t link;
	unsigned i, tries = 0;

	do {
		folds = reg_load(&from->folds);
		for (i = 0; i < RDS_STATS; i++)
			COPY_WORD(dead[i]);
		for (i = 0; i < REG_PROCS; i++)
			COPY_WORD(state[i]);
		link = reg_load(&from->fold.link);
		for (i = 0; i < RDS_STATS; i++)
			COPY_WORD(fold.sum[i]);
		COPY_WORD(fold.id[0]);
		COPY_WORD(fold.id[1]);
	} while (reg_load(&from->folds) != folds && tries++ < REG_PROCS);
	reg_store(&to->folds, folds);
	reg_store(&to->fold.link, link);
}

static void copy_area(struct registry *reg, struct reg_view *source, uint32_t n)
{
	struct reg_area *to = reg_area(reg), *from = reg_load(&source->a);

	/* no process reads the area before it has been rebuilt */
	reg_store(&to->seq, reg_load(&to->seq) | 1);
	reg_store(&to->dirty, 1);
	/* first, because a process that cannot get the lock withdraws its entry here, too */
	reg_store(&to->reserved, n);
	copy_dead(to, from);
	for (uint32_t i = 0; i < n; i++) {
		reg_heartbeat(reg);
		entry_copy(reg_sock_at(reg->at, i + 1), reg_sock_at(source, i + 1));
	}
	COPY_WORD(order);
	COPY_WORD(orphans);
}

int reg_area_copy(struct registry *reg)
{
	unsigned to = REG_TERM_AREA(reg->term), from = REG_TERM_FROM(reg->term);
	uint64_t complete = reg->term / REG_TERM_ONE * REG_TERM_ONE + to;
	uint32_t n;
	int ret;

	if (!(reg->term & REG_TERM_COPYING))
		return 0;
	n = from == to ? 0 : area_count_to_copy(reg, from);
	if (!n) { /* damage: the existing contents of the area are used and checked */
		ret = term_move(reg, complete);
		return ret ? ret : -EAGAIN;
	}
	ret = area_reserve(reg, from, n); /* a hole in the file must not be touched */
	if (!ret)
		ret = area_reserve(reg, to, n);
	if (!ret)
		ret = reg_area_map(reg, to, n);
	if (ret) {
		rds_error("registry: cannot reserve memory for %s (%s): make room there", reg->path, strerror(-ret));
		return ret;
	}
	copy_area(reg, &reg->view[from], n);
	reg_store(&reg->at->usable, n);
	return term_move(reg, complete);
}
