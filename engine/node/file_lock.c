/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * file_lock.c - which process may change the registry, which processes are alive, and the repair
 * after a death in the middle of a change.
 *
 * Record locks belong to a process, are not inherited by fork and vanish with the process, however
 * it ends. The lock on the current area's byte is the right to change, held for microseconds. A
 * process keeps a read lock on its slot's byte all its life (a read lock, so that a second one can
 * take over while the descriptor is being moved, see reg_fd_moved()).
 *
 * A process that dies in the middle of a change leaves the dirty word set or the sequence odd. The
 * next holder of the byte rebuilds before it does anything else. If a process is stopped meanwhile,
 * others go on without it (area.c). So its change counts only if it still has the term when it
 * unlocks; otherwise it makes the change again.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>

#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "engine/sys/patience.h"
#include "engine/node/registry_impl.h"

#define LOCK_YIELDS 100
/* after that the holder is stopped or stuck, and frequent tries do not help */
#define LOCK_HASTE_NS UINT64_C(100000000)
#define LOCK_NAP_NS 50000
/* what the time between two looks counts at most: a waiter that gets no processor looks at nothing */
#define LOOK_MOST_NS 10000000
/*
 * In a row. No process is overtaken so often by itself, but a malicious process may make it look
 * so.
 */
#define MOVES_MAX 1000

static int area_lock_holder(struct registry *reg)
{
	return os_lock_holder(reg_fd(reg), REG_AREA_BYTE(REG_TERM_AREA(reg->term)), 1);
}

static void area_unlock(struct registry *reg, uint64_t term)
{
	os_lock(reg_fd(reg), F_UNLCK, REG_AREA_BYTE(REG_TERM_AREA(term)), 1, false);
}

/*
 * A read that no earlier store passes: a process that takes the term away after this read sees all
 * earlier stores.
 */
static uint64_t term_read(struct registry *reg)
{
	return atomic_fetch_add_explicit(&reg->f->h.term, 0, memory_order_acq_rel);
}

bool reg_lock_is_ours(struct registry *reg)
{
	return !reg->f || reg->size < (off_t)REG_SIZE(REG_CHUNK) || term_read(reg) == reg->term;
}

/* Nothing in the file is touched before the lock is held: the file may have been truncated. */
static int area_trylock(struct registry *reg)
{
	uint64_t term;
	int ret;

	while (reg->moves <= MOVES_MAX) {
		ret = os_lock(reg_fd(reg), F_WRLCK, REG_AREA_BYTE(REG_TERM_AREA(reg->term)), 1, false);
		if (ret || !reg->f || !reg_file_intact(reg))
			return ret;
		term = term_read(reg);
		if (term == reg->term)
			return 0;
		area_unlock(reg, reg->term);
		reg->term = term;
		reg->moves++;
	}
	reg->moves = 0;
	return -ELOOP;
}

/*
 * The state of a wait for the lock. Its times are sums of short ones (LOOK_MOST_NS): a process that
 * was stopped, or had to wait for a processor, does not blame the holder for that.
 */
struct area_wait {
	bool begun;
	uint64_t looked_at;	/* by the clock */
	uint64_t waited, least; /* the wait is given up after `least` or later */
	uint64_t beat_at;	/* so long it had waited when the holder was last seen to make progress */
	uint64_t term;
	uint32_t beat;
};

/*
 * A holder that cannot be replaced is waited for only once at full length. The helper comes here
 * for each connection with a process that has ended. It does nothing else during the wait, not even
 * for sockets that are bound already.
 */
static void area_wait_begin(struct registry *reg, struct area_wait *w)
{
	bool again = reg->in_vain && area_lock_holder(reg) == reg->in_vain;

	w->begun = true;
	w->looked_at = os_now_ns();
	w->least = rds_patience_ns(again ? RDS_PATIENCE_REGISTRY_LOCK_AGAIN : RDS_PATIENCE_REGISTRY_LOCK);
	w->term = ~UINT64_C(0);
}

/* Has one holder had the lock all the time without any progress? The file is intact. */
static bool holder_is_stuck(struct registry *reg, struct area_wait *w)
{
	uint64_t stuck = rds_patience_ns(RDS_PATIENCE_REGISTRY_STUCK);
	unsigned area = REG_TERM_AREA(reg->term);
	struct reg_view *v = &reg->view[area];
	uint32_t beat;

	if (reg_area_map(reg, area, 0) || !reg_area_entries(reg, area))
		return false;
	beat = reg_load(&reg_load(&v->a)->beat);
	if (w->term != reg->term || w->beat != beat) {
		w->term = reg->term;
		w->beat = beat;
		w->beat_at = w->waited;
	}
	return w->waited - w->beat_at >= (stuck < w->least ? stuck : w->least / 2);
}

static uint64_t area_wait_look(struct area_wait *w)
{
	uint64_t now = os_now_ns(), passed = now - w->looked_at;

	w->looked_at = now;
	w->waited += passed < LOOK_MOST_NS ? passed : LOOK_MOST_NS;
	return now;
}

/* The lock could not be taken. 0: it has been taken now. */
static int area_wait_step(struct registry *reg, struct area_wait *w)
{
	uint64_t now = area_wait_look(w), term;

	if (w->waited > w->least) {
		reg->in_vain = area_lock_holder(reg);
		return -ETIMEDOUT;
	}
	if (!reg->f && !reg->waits && w->waited > rds_patience_ns(RDS_PATIENCE_REGISTRY_STUCK))
		return -ESTALE;
	/*
	 * The file is checked first: it may have been truncated, and this process holds no lock
	 * yet.
	 */
	if (reg->f && reg_file_intact(reg)) {
		term = reg_load(&reg->f->h.term);
		if (term != reg->term) {
			reg->term = term;
			return -EAGAIN;
		}
		if (holder_is_stuck(reg, w) && !reg_area_take_over(reg))
			return 0;
		reg_store(&reg->f->h.hungry, now);
		reg->starved = true;
	}
	os_nap_ns(w->waited < LOCK_HASTE_NS ? LOCK_NAP_NS : 20 * LOCK_NAP_NS);
	return -EAGAIN;
}

/* Not F_SETLKW: the holder may be stopped, and a wait without an end is worse than an error. */
static int area_lock(struct registry *reg)
{
	struct area_wait w = {0};
	int ret;

	for (unsigned tries = 0;; tries++) {
		ret = area_trylock(reg);
		if (ret == -EAGAIN || ret == -EACCES) {
			if (tries < LOCK_YIELDS) {
				os_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
				continue;
			}
			if (!w.begun)
				area_wait_begin(reg, &w);
			ret = area_wait_step(reg, &w);
		}
		if (ret == -EAGAIN)
			continue;
		if (ret != -ETIMEDOUT)
			reg->in_vain = 0;
		return ret;
	}
}

int reg_record_lock(struct registry *reg)
{
	int ret;

	if (!os_mutex_lock(&reg->mutex))
		return -EBUSY;
	ret = area_lock(reg);
	if (!ret)
		return 0;
	if (ret == -ETIMEDOUT)
		rds_error("registry: %s has been locked by process %d for %u seconds: continue or kill that process",
			  reg->path, area_lock_holder(reg),
			  (unsigned)(rds_patience_ms(RDS_PATIENCE_REGISTRY_LOCK) / 1000));
	else if (ret == -ELOOP)
		rds_error("registry: a process of this user, or one that has the registry by fork or exec, keeps %s "
			  "from being changed: stop it, or set RDS_PRELOAD_REGISTRY_DIR",
			  reg->path);
	else if (ret != -ESTALE)
		rds_error("registry: cannot lock %s (%s): set RDS_PRELOAD_REGISTRY_DIR to a directory on a tmpfs", reg->path,
			  strerror(-ret));
	pthread_mutex_unlock(&reg->mutex);
	return ret == -ELOOP ? -EIO : ret;
}

static void area_unlock_all(struct registry *reg)
{
	area_unlock(reg, reg->term);
	pthread_mutex_unlock(&reg->mutex);
}

bool reg_record_unlock(struct registry *reg)
{
	bool done = reg_lock_is_ours(reg);

	reg->moves = done ? 0 : reg->moves + 1;
	area_unlock_all(reg);
	return done;
}

static int judge_contents(struct registry *reg)
{
	struct reg_header *h = &reg->f->h;
	struct reg_area *a = reg_area(reg);

	if (reg_load(&h->magic) != REG_MAGIC || reg_load(&h->version) != REG_VERSION || reg_load(&h->shape) != REG_SHAPE) {
		rds_error("registry: the head of %s was overwritten: restart the programs that use it", reg->path);
		return -EIO;
	}
	if (reg->joined && !reg_proc_is(reg, reg->at, reg->slot, reg->idw)) {
		rds_error("registry: %s has lost this process (descriptor closed by force, or damage): restart this program",
			  reg->path);
		return -EIO;
	}
	if (reg->suspicious || reg_load(&a->dirty) || reg_load(&a->seq) & 1)
		reg_table_rebuild(reg);
	reg->suspicious = false;
	return 0;
}

int reg_repair(struct registry *reg)
{
	int ret = reg_file_refresh(reg);

	if (!ret)
		ret = reg_area_copy(reg);
	if (!ret)
		ret = judge_contents(reg);
	return ret;
}

static int lock_and_repair(struct registry *reg)
{
	int ret;

	do {
		ret = reg_record_lock(reg);
		if (ret)
			return ret;
		ret = reg_repair(reg);
		if (!ret)
			return 0;
		reg->moves += ret == -EAGAIN;
		area_unlock_all(reg);
	} while (ret == -EAGAIN);
	return ret;
}

/*
 * Record locks are not fair: a few processes that do nothing but lock and unlock can keep others
 * out for long. So a process that has waited for some time sets the `hungry` word, and newcomers
 * let it go first. A word that is too old expires.
 */
static bool someone_starves(struct registry *reg)
{
	uint64_t hungry = reg_load(&reg->f->h.hungry);

	if (hungry && reg->starved)
		reg_store(&reg->f->h.hungry, 0);
	else if (hungry && os_now_ns() - hungry < rds_patience_ns(RDS_PATIENCE_REGISTRY_HUNGRY))
		return true;
	reg->starved = false;
	return false;
}

int reg_lock(struct registry *reg)
{
	int ret = lock_and_repair(reg);

	if (!ret && someone_starves(reg)) {
		reg_record_unlock(reg);
		os_nap_ns(LOCK_NAP_NS);
		ret = lock_and_repair(reg);
	}
	return ret;
}

int reg_trylock(struct registry *reg)
{
	int ret;

	if (pthread_mutex_trylock(&reg->mutex))
		return -EAGAIN;
	ret = area_trylock(reg);
	if (ret) {
		pthread_mutex_unlock(&reg->mutex);
		return -EAGAIN;
	}
	ret = reg_repair(reg);
	if (ret)
		reg_record_unlock(reg);
	return ret;
}

int reg_slot_holder(struct registry *reg, uint32_t slot)
{
	int fd, ret;

	/* The number may change while it is used: then the answer was about another file. */
	do {
		fd = reg_fd(reg);
		ret = os_lock_holder(fd, REG_SLOT_BYTE(slot), 1);
	} while (fd != reg_fd(reg));
	return ret;
}

bool reg_slot_held(struct registry *reg, uint32_t slot)
{
	return reg_slot_holder(reg, slot) != 0; /* on an error, taken to be alive */
}

int reg_slot_take(struct registry *reg, uint32_t slot)
{
	return os_lock(reg_fd(reg), F_RDLCK, REG_SLOT_BYTE(slot), 1, false);
}

void reg_slot_drop(struct registry *reg, uint32_t slot)
{
	os_lock(reg_fd(reg), F_UNLCK, REG_SLOT_BYTE(slot), 1, false);
}

/*
 * Closing oldfd will drop every lock of this process on the file. Until the lock is taken again, a
 * lock of the open file description, which both numbers share, takes its place. It is released at
 * once afterwards, because a forked child would keep it alive.
 */
void reg_fd_moved(void *arg, int oldfd, int newfd)
{
	struct registry *reg = arg;

	if (oldfd >= 0) {
		pthread_mutex_lock(&reg->mutex);
		if (reg->slot < REG_PROCS)
			os_file_lock(newfd, F_RDLCK, REG_SLOT_BYTE(reg->slot), 1);
		atomic_store(&reg->fds.n[0], newfd);
		return;
	}
	if (reg->slot < REG_PROCS) {
		reg_slot_take(reg, reg->slot);
		os_file_lock(newfd, F_UNLCK, REG_SLOT_BYTE(reg->slot), 1);
	}
	pthread_mutex_unlock(&reg->mutex);
}

void reg_change_begin(struct registry *reg)
{
	reg_store(&reg_area(reg)->dirty, 1);
}

void reg_change_end(struct registry *reg)
{
	reg_store(&reg_area(reg)->dirty, 0);
}

void reg_bindings_begin(struct registry *reg)
{
	struct reg_area *a = reg_area(reg);

	reg_change_begin(reg);
	reg_store(&a->seq, reg_load(&a->seq) | 1);
}

void reg_bindings_end(struct registry *reg)
{
	struct reg_area *a = reg_area(reg);

	reg_store(&a->seq, (reg_load(&a->seq) | 1) + 1);
	/* if this process dies before it, the process that rebuilds does it */
	atomic_fetch_add_explicit(&reg->f->h.generation, 1, memory_order_acq_rel);
	reg_change_end(reg);
}
