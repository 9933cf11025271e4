/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * device_removal.c - the end of a device: unplugged, removed by its administrator, or broken for
 * good.  Helper.
 *
 * Every endpoint on the device goes down, and the engine connects again, over the device that has
 * the address then.  Messages that no program has read yet are copied out of the device's memory,
 * or a program that does not read would keep the administrator waiting.  The device's own objects
 * are freed when its last user is freed, from a timer: events that the helper has already fetched
 * may still name it.
 */
#include "engine/transport/verbs/dev/dev.h"

#define EVACUATE_NS (10 * 1000000ull) /* time until the next try if there was no memory */

void verbs_dev_ref(struct verbs_dev *dev)
{
	dev->neps++;
	verbs_dev_share_cq(dev);
}

static void dev_finish_removal(struct verbs_dev *dev)
{
	struct verbs_dev_hold *hold;

	rds_timer_cancel(&dev->starved);
	rds_timer_cancel(&dev->memory);
	rds_timer_cancel(&dev->low);
	verbs_dev_unlink(dev);
	/* A thread that was still making the device has it held by now, or has given up. */
	hold = atomic_load(&dev->hold);
	rds_timer_cancel(&dev->leave);
	rds_helper_event_del(dev->channel->fd);
	verbs_dev_free(dev);
	verbs_dev_users->freed(hold);
}

/* The device is gone: copies messages out, then frees it if it has no user.  Helper, timer. */
void verbs_dev_removal_timer(struct rds_timer *tm)
{
	struct verbs_dev *dev = container_of(tm, struct verbs_dev, leave);
	bool empty;

	rx_lock();
	empty = verbs_dev_users->evacuate(dev);
	rx_unlock();
	if (!empty)
		rds_timer_set(tm, os_now_ns() + EVACUATE_NS);
	else if (!dev->neps)
		dev_finish_removal(dev);
}

void verbs_dev_unref(struct verbs_dev *dev)
{
	dev->neps--;
	verbs_dev_share_cq(dev);
	if (!dev->neps && dev->dead)
		rds_timer_set(&dev->leave, os_now_ns());
}

void verbs_dev_removed(struct verbs_dev *dev, const char *what)
{
	if (dev->dead)
		return;
	rds_warn("the RDMA device %s is gone: %s", dev->name, what);
	rx_lock();
	dev->dead = true;
	rx_unlock();
	rds_helper_event_del(dev->ctx->async_fd);
	/* the kernel reports the closed channel, and would go on reporting it */
	rds_helper_event_del(dev->channel->fd);
	verbs_dev_users->removed(dev);
	rds_timer_set(&dev->leave, os_now_ns());
}
