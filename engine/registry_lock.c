/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * registry_lock.c - who may change the registry, who is alive, and what is done after a death in between.
 *
 * Record locks belong to a process, are not inherited by fork and vanish with it, whatever the way it ends.  Byte 0 is
 * the right to change, held for microseconds; a process keeps a read lock on its slot's byte all its life (a read lock,
 * so that a second one can take over while the descriptor is being moved, see reg_fd_moved).  A process that dies while
 * changing leaves the dirty word set or the sequence odd; the next holder of byte 0 rebuilds before it does anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>

#include "engine/log.h"
#include "engine/os.h"
#include "engine/patience.h"
#include "engine/registry_impl.h"

#define LOCK_YIELDS 100
#define LOCK_HASTE_NS UINT64_C(100000000) /* then the holder is stopped or stuck, and haste does not help */
#define LOCK_NAP_NS 50000

static void nap(unsigned ns)
{
	struct timespec ts = { 0, ns };

	os_syscall(SYS_nanosleep, (long)&ts, 0, 0, 0, 0, 0);
}

/*
 * A stopped holder is waited for once.  The helper comes here for each connection with a process that has ended, and does nothing else
 * meanwhile, neither for sockets that are bound already.
 */
static uint64_t patience(struct registry *reg)
{
	if (!reg->in_vain || os_lock_holder(reg_fd(reg), REG_LOCK_BYTE, 1) != reg->in_vain)
		return rds_patience_ns(RDS_PATIENCE_REGISTRY_LOCK);
	return rds_patience_ns(RDS_PATIENCE_REGISTRY_LOCK_AGAIN); /* enough for one that goes on */
}

/* Not F_SETLKW: the holder may be stopped, and a wait that cannot end is worse than an error. */
static int lock_byte_0(struct registry *reg)
{
	uint64_t since = 0, least = 0, now;

	for (unsigned tries = 0;; tries++) {
		int ret = os_lock(reg_fd(reg), F_WRLCK, REG_LOCK_BYTE, 1, false);

		if (ret != -EAGAIN && ret != -EACCES) {
			reg->in_vain = 0;
			return ret;
		}
		if (tries < LOCK_YIELDS) {
			os_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
			continue;
		}
		now = os_now_ns();
		if (!since) {
			since = now;
			least = patience(reg);
		}
		if (now - since > least) {
			reg->in_vain = os_lock_holder(reg_fd(reg), REG_LOCK_BYTE, 1);
			return -ETIMEDOUT;
		}
		/* Looked at first: the file may have been truncated, and we do not hold anything yet. */
		if (reg->f && reg_file_intact(reg)) {
			reg_store(&reg->f->h.hungry, now);
			reg->starved = true;
		}
		nap(now - since < LOCK_HASTE_NS ? LOCK_NAP_NS : 20 * LOCK_NAP_NS);
	}
}

int reg_record_lock(struct registry *reg)
{
	int ret;

	pthread_mutex_lock(&reg->mutex);
	ret = lock_byte_0(reg);
	if (!ret)
		return 0;
	if (ret == -ETIMEDOUT)
		rds_error("registry: %s has been locked by process %d for %u seconds: continue or kill that process",
			  reg->path, os_lock_holder(reg_fd(reg), REG_LOCK_BYTE, 1),
			  (unsigned)(rds_patience_ms(RDS_PATIENCE_REGISTRY_LOCK) / 1000));
	else
		rds_error("registry: cannot lock %s (%s): set RDS_PRELOAD_REGISTRY_DIR to a directory on a tmpfs", reg->path,
			  strerror(-ret));
	pthread_mutex_unlock(&reg->mutex);
	return ret;
}

void reg_record_unlock(struct registry *reg)
{
	os_lock(reg_fd(reg), F_UNLCK, REG_LOCK_BYTE, 1, false);
	pthread_mutex_unlock(&reg->mutex);
}

/* Holding byte 0: is what we see fit to be worked on? */
int reg_repair(struct registry *reg)
{
	struct reg_header *h = &reg->f->h;
	int ret = reg_file_refresh(reg);

	if (ret)
		return ret;
	if (reg_load(&h->magic) != REG_MAGIC || reg_load(&h->version) != REG_VERSION || reg_load(&h->shape) != REG_SHAPE) {
		rds_error("registry: the head of %s was overwritten: restart the programs that use it", reg->path);
		return -EIO;
	}
	if (reg->slot < REG_PROCS && !reg_proc_is(reg, reg->slot, reg->idw)) {
		rds_error("registry: %s has lost this process (descriptor closed by force, or damage): restart this program",
			  reg->path);
		return -EIO;
	}
	if (reg_load(&h->dirty) || reg_load(&h->seq) & 1)
		reg_rebuild(reg);
	return 0;
}

static int lock_and_repair(struct registry *reg)
{
	int ret = reg_record_lock(reg);

	if (ret)
		return ret;
	ret = reg_repair(reg);
	if (ret)
		reg_record_unlock(reg);
	return ret;
}

/*
 * Record locks are not fair: few processes that do nothing but lock and unlock keep others out for long.  So whoever
 * has been waiting for some time says so, and newcomers let it go first.  A word that has gone stale expires.
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
		nap(LOCK_NAP_NS);
		ret = lock_and_repair(reg);
	}
	return ret;
}

int reg_trylock(struct registry *reg)
{
	int ret;

	if (pthread_mutex_trylock(&reg->mutex))
		return -EAGAIN;
	ret = os_lock(reg_fd(reg), F_WRLCK, REG_LOCK_BYTE, 1, false);
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

	/* The number may change while it is used: then the answer was somebody else's. */
	do {
		fd = reg_fd(reg);
		ret = os_lock_holder(fd, REG_SLOT_BYTE(slot), 1);
	} while (fd != reg_fd(reg));
	return ret;
}

bool reg_slot_held(struct registry *reg, uint32_t slot)
{
	return reg_slot_holder(reg, slot) != 0; /* in doubt alive */
}

int reg_slot_take(struct registry *reg, uint32_t slot)
{
	return os_lock(reg_fd(reg), F_RDLCK, REG_SLOT_BYTE(slot), 1, false);
}

/*
 * Closing oldfd will drop every lock of this process on the file.  A lock of the open file description, which both
 * numbers share, bridges the gap; it is given back at once because a forked child would keep it alive.
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

void reg_begin(struct registry *reg)
{
	reg_store(&reg->f->h.dirty, 1);
}

void reg_end(struct registry *reg)
{
	reg_store(&reg->f->h.dirty, 0);
}

void reg_begin_bindings(struct registry *reg)
{
	struct reg_header *h = &reg->f->h;

	reg_begin(reg);
	reg_store(&h->seq, reg_load(&h->seq) | 1);
}

void reg_end_bindings(struct registry *reg)
{
	struct reg_header *h = &reg->f->h;

	reg_store(&h->seq, (reg_load(&h->seq) | 1) + 1);
	reg_end(reg);
}
