/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * gone.c - the end of a device: pulled out, removed by its administrator, or broken for good.
 *
 * Every endpoint on it goes down, and the engine connects anew, over whatever has the address then.  The device's own objects are
 * freed when its last user is, messages in place included.  librdmacm closes the context of a device that is no more with the last id
 * bound to it: so each device holds an id, until its objects are gone.
 */
#include <string.h>

#include "engine/transport/verbs/verbs.h"

static void holder_said(struct verbs_cm_owner *owner, struct rdma_cm_id *cm, const struct verbs_said *said)
{
	struct verbs_dev *dev = container_of(owner, struct verbs_dev, owner);

	(void)cm;
	if (said->what == RDMA_CM_EVENT_DEVICE_REMOVAL)
		verbs_dev_gone(dev, "it was removed");
}

/* Any thread: the first address of the device that comes along will do. */
void verbs_dev_hold(struct verbs_dev *dev, const struct in6_addr *laddr, uint32_t scope)
{
	struct rdma_cm_id *cm, *none = NULL;
	struct sockaddr_storage ss;

	if (atomic_load(&dev->holder))
		return;
	dev->owner.said = holder_said;
	if (verbs_cm_id(&dev->owner, 0, &cm))
		return; /* with the next endpoint */
	rds_addr_to_sockaddr(laddr, 0, scope, &ss);
	if (vb.rdma_bind_addr(cm, (struct sockaddr *)&ss) || !verbs_dev_has(dev, cm) ||
	    !atomic_compare_exchange_strong(&dev->holder, &none, cm))
		vb.rdma_destroy_id(cm);
}

void verbs_dev_use(struct verbs_dev *dev)
{
	dev->neps++;
}

static void dev_remove(struct verbs_dev *dev)
{
	struct verbs_dev *d;
	struct rdma_cm_id *holder = atomic_load(&dev->holder);

	rds_timer_cancel(&dev->starved);
	rds_timer_cancel(&dev->memory);
	rx_lock();
	d = atomic_load(&rds_verbs.devs);
	if (d == dev)
		atomic_store(&rds_verbs.devs, dev->next);
	for (; d; d = d->next)
		if (d->next == dev)
			d->next = dev->next;
	rx_unlock();
	rds_event_del(dev->channel->fd);
	verbs_dev_free(dev);
	if (holder)
		vb.rdma_destroy_id(holder);
}

void verbs_dev_unuse(struct verbs_dev *dev)
{
	if (--dev->neps == 0 && dev->gone)
		dev_remove(dev);
}

void verbs_dev_gone(struct verbs_dev *dev, const char *what)
{
	struct verbs_ep *ep, *next;

	if (dev->gone)
		return;
	rds_warn("the RDMA device %s is gone: %s", dev->name, what);
	rx_lock();
	dev->gone = true;
	rx_unlock();
	rds_event_del(dev->ctx->async_fd);
	verbs_dev_use(dev); /* it stays until we are through with the list */
	for (ep = rds_verbs.eps; ep; ep = next) {
		next = ep->next; /* closing an endpoint takes nothing off the list at once */
		if (ep->dev == dev && !ep->closed)
			verbs_ep_down(ep, -ENODEV, false);
	}
	verbs_dev_unuse(dev);
}
