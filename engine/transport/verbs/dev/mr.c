/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mr.c - memory of programs that a device reaches by itself, for peers that know its key.
 *
 * The memory is registered in place, so its pages stay where they are until the registration is
 * revoked.  This is done only where a child gets copies of such pages at fork(): anywhere else
 * libibverbs would have to take the pages away from the child, which the program has not asked
 * for.
 *
 * The engine may revoke a registration at any time, also when the device is gone:
 * verbs_mr_dev_end() ends all registrations of a device before it is freed, and only a record is
 * left.  The registrations are in a list with a lock of its own, under which no other lock is
 * taken.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/transport/verbs/dev/dev.h"

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

struct rds_device_mr {
	struct rds_device_mr *next, **prev;
	struct verbs_dev *dev;
	struct ibv_mr *mr; /* NULL: the device has been freed */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rds_device_mr *all;

/* Does a child get copies of pinned pages? */
static bool mr_copies_on_fork(void)
{
	return vb.ibv_is_fork_initialized && vb.ibv_is_fork_initialized() == VERBS_FORK_UNNEEDED;
}

static void mr_refused(struct verbs_dev *dev, size_t len, int err)
{
	char limit[VERBS_LIMIT];

	if (verbs_memlock_short(err))
		rds_warn_once("the RDMA device %s: no %zu bytes more of the program's memory can be locked, so the "
			      "library's threads carry out RDMA operations on it, which is slower: %s",
			      dev->name, len, verbs_memlock_limit(limit));
	else
		rds_debug("%s: a region of %zu bytes cannot be registered: %s", dev->name, len, strerror(-err));
}

int verbs_mr_register(struct verbs_dev *dev, void *mem, size_t len, struct rds_device_mr **out)
{
	struct rds_device_mr *s;
	int err;

	if (!mr_copies_on_fork())
		return -EOPNOTSUPP;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	pthread_mutex_lock(&lock);
	errno = 0;
	s->dev = dev;
	s->mr = dev->dead ? NULL : vb.ibv_reg_mr(dev->pd, mem, len, ACCESS);
	err = s->mr ? 0 : errno ? -errno : -ENODEV;
	if (!err) {
		s->next = all;
		s->prev = &all;
		if (all)
			all->prev = &s->next;
		all = s;
	}
	pthread_mutex_unlock(&lock);
	if (err) {
		mr_refused(dev, len, err);
		free(s);
		return err;
	}
	*out = s;
	return 0;
}

bool verbs_mr_key(const struct verbs_dev *dev, const struct rds_device_mr *s, struct rds_device_key *far)
{
	bool here;

	pthread_mutex_lock(&lock);
	here = s->mr && s->dev == dev;
	if (here)
		*far = (struct rds_device_key){.key = s->mr->rkey, .at = (uintptr_t)s->mr->addr};
	pthread_mutex_unlock(&lock);
	return here;
}

/* lock held */
static void mr_dereg(struct rds_device_mr *s)
{
	int err = verbs_err(vb.ibv_dereg_mr(s->mr));

	if (err && !s->dev->dead)
		rds_warn("the RDMA device %s: a region cannot be unregistered: %s", s->dev->name, strerror(-err));
	s->mr = NULL;
	*s->prev = s->next;
	if (s->next)
		s->next->prev = s->prev;
}

void verbs_mr_deregister(struct rds_device_mr *s)
{
	pthread_mutex_lock(&lock);
	if (s->mr)
		mr_dereg(s);
	pthread_mutex_unlock(&lock);
	free(s);
}

void verbs_mr_dev_end(struct verbs_dev *dev)
{
	struct rds_device_mr *s, *next;

	pthread_mutex_lock(&lock);
	for (s = all; s; s = next) {
		next = s->next;
		if (s->dev == dev)
			mr_dereg(s);
	}
	pthread_mutex_unlock(&lock);
}

void verbs_mr_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	all = NULL;
}
