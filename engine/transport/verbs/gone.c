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

/*
 * An address of the device.  Once this has succeeded we hear of its end; a device that is just going away, and was opened by us after
 * rdma_cm had told everybody, is refused here, or its removal would wait for us for ever.
 */
int verbs_dev_hold(struct verbs_dev *dev, const struct sockaddr *addr)
{
	struct sockaddr_storage ss = {0};
	struct rdma_cm_id *cm;
	int err;

	memcpy(&ss, addr, addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
	if (addr->sa_family == AF_INET6)
		((struct sockaddr_in6 *)&ss)->sin6_port = 0;
	else
		((struct sockaddr_in *)&ss)->sin_port = 0;
	dev->owner.said = holder_said;
	err = verbs_cm_id(&dev->owner, 0, &cm);
	if (err)
		return err;
	err = verbs_err(vb.rdma_bind_addr(cm, (struct sockaddr *)&ss));
	if (!err && !verbs_dev_has(dev, cm))
		err = -ENODEV;
	if (err)
		vb.rdma_destroy_id(cm);
	else
		atomic_store(&dev->holder, cm);
	return err;
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
