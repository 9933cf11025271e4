/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * device_removal.c - the end of a device: unplugged, removed by its administrator, or broken for
 * good.  Helper.
 *
 * Every endpoint on the device goes down, and the engine connects again, over the device that has
 * the address then.  Messages that no program has read yet are copied out of the device's memory,
 * or a program that does not read would keep the administrator waiting.  The device's own objects
 * are freed when its last user is freed, from a timer: events that the helper has already fetched
 * may still name it.  librdmacm closes the context of a removed device when the last id bound to
 * it is destroyed: so each device holds an id (hold_id) until its objects are freed.
 */
#include "engine/transport/verbs/verbs.h"

#define EVACUATE_NS (10 * 1000000ull) /* time until the next try if there was no memory */

static void dev_hold_id_event(struct verbs_cm_owner *owner, struct rdma_cm_id *cm, const struct verbs_cm_ev *ev)
{
	struct verbs_dev *dev = container_of(owner, struct verbs_dev, owner);

	(void)cm;
	if (ev->what == RDMA_CM_EVENT_DEVICE_REMOVAL) {
		dev->removed = true;
		verbs_dev_removed(dev, "it was removed");
	}
}

/*
 * Binds hold_id to an address of the device.  Once this has succeeded the device's removal is
 * reported to us.  A device that is just being removed, and that we opened after rdma_cm had
 * reported the removal, is refused here, or its removal would wait for us for ever.
 */
int verbs_dev_hold_id(struct verbs_dev *dev, const struct sockaddr *addr)
{
	struct rdma_cm_id *cm;
	int err;

	dev->owner.on_event = dev_hold_id_event;
	err = verbs_cm_id_new_bound(&dev->owner, addr, &cm);
	if (err)
		return err;
	atomic_store(&dev->hold_id, cm);
	/* the id may be bound to another device, which has the address by now */
	return verbs_dev_has_id(dev, cm) ? 0 : -ENODEV;
}

void verbs_dev_ref(struct verbs_dev *dev)
{
	dev->neps++;
	verbs_dev_share_cq(dev);
}

static void dev_finish_removal(struct verbs_dev *dev)
{
	struct rdma_cm_id *hold_id;
	bool removed = dev->removed, ours;

	rds_timer_cancel(&dev->starved);
	rds_timer_cancel(&dev->memory);
	rds_timer_cancel(&dev->low);
	verbs_dev_unlink(dev);
	/* A thread that was still making the device has set hold_id by now, or has given up. */
	hold_id = atomic_load(&dev->hold_id);
	rds_timer_cancel(&dev->leave);
	ours = verbs_dev_has_id(dev, hold_id);
	rds_helper_event_del(dev->channel->fd);
	verbs_dev_free(dev);
	if (removed)
		vb.rdma_destroy_id(hold_id);
	else if (ours)
		verbs_cm_dev_leave_id(hold_id);
	else
		verbs_cm_destroy_bound(hold_id);
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
