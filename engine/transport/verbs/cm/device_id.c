/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * device_id.c - the device of an id, and the id that each device holds.
 *
 * Ids come with librdmacm's context of their device, and are given ours (dev/device.c says why).
 *
 * librdmacm closes its context of a removed device when the last id bound to it is destroyed: so
 * each device of ours has an id of its own until its objects are freed.  That id also hears of the
 * device's removal.
 */
#include <stdlib.h>

#include "engine/transport/verbs/cm/cm.h"

struct verbs_dev_hold {
	struct verbs_cm_owner owner;
	struct rdma_cm_id *cm;
	struct verbs_dev *dev;		 /* until it is freed */
	const struct ibv_device *device; /* of dev */
	struct ibv_context *ctx;	 /* librdmacm's, where ids have dev->ctx */
	bool removed;			 /* cm has received DEVICE_REMOVAL (helper) */
};

/* ---- the id of a device ---- */

static void hold_cm_event(struct verbs_cm_owner *owner, struct rdma_cm_id *cm, const struct verbs_cm_ev *ev)
{
	struct verbs_dev_hold *hold = container_of(owner, struct verbs_dev_hold, owner);

	(void)cm;
	if (ev->what == RDMA_CM_EVENT_DEVICE_REMOVAL) {
		hold->removed = true;
		verbs_dev_removed(hold->dev, "it was removed");
	}
}

/* The id may be bound to another device, which has the address by now. */
static bool hold_is_bound(const struct verbs_dev_hold *hold)
{
	return hold->cm->verbs && hold->cm->verbs->device == hold->device;
}

/*
 * Binds an id to an address of the device.  Once this has succeeded the device's removal is
 * reported to us.  A device that is just being removed, and that we opened after rdma_cm had
 * reported the removal, is refused here, or its removal would wait for us for ever.
 */
int verbs_cm_dev_opened(struct verbs_dev *dev, struct rdma_cm_id *cm)
{
	struct verbs_dev_hold *hold = calloc(1, sizeof(*hold));
	int err;

	if (!hold)
		return -ENOMEM;
	hold->owner.on_event = hold_cm_event;
	hold->dev = dev;
	hold->device = dev->ctx->device;
	hold->ctx = cm->verbs;
	err = verbs_cm_id_new_bound(&hold->owner, rdma_get_local_addr(cm), &hold->cm);
	if (err) {
		free(hold);
		return err;
	}
	atomic_store(&dev->hold, hold);
	return hold_is_bound(hold) ? 0 : -ENODEV;
}

void verbs_cm_dev_published(struct verbs_dev *dev, struct rdma_cm_id *cm)
{
	verbs_cm_listen_watch(dev);
	verbs_cm_dev_put_aside(cm->verbs);
}

void verbs_cm_dev_freed(struct verbs_dev_hold *hold)
{
	if (hold->removed)
		vb.rdma_destroy_id(hold->cm);
	else if (hold_is_bound(hold))
		verbs_cm_dev_leave_id(hold->cm);
	else
		verbs_cm_destroy_bound(hold->cm);
	free(hold);
}

/* ---- the device of an id ---- */

static int dev_of_id(struct rdma_cm_id *cm, bool to_send, struct verbs_dev **out)
{
	int err;

	*out = NULL;
	if (!cm->verbs)
		return -ENODEV;
	err = verbs_dev_get(cm->verbs->device, to_send, cm, out);
	/*
	 * Without an owner the id is destroyed at once, and nothing would make sure that the device
	 * outlives it; nor that the device still exists, on a program's thread.
	 */
	if (!err && cm->context)
		cm->verbs = (*out)->ctx;
	return err;
}

int verbs_cm_dev_get(struct rdma_cm_id *cm, struct verbs_dev **out)
{
	return dev_of_id(cm, false, out);
}

int verbs_cm_dev_get_roomy(struct rdma_cm_id *cm, struct verbs_dev **out)
{
	return dev_of_id(cm, true, out);
}

static struct verbs_dev *dev_by_ctx(const struct ibv_context *ours)
{
	struct verbs_dev *dev;

	for (dev = atomic_load(&verbs_devs.all); dev && dev->ctx != ours; dev = dev->next)
		;
	return dev;
}

/* The id may outlive our device, but not librdmacm's context. */
void verbs_cm_dev_restore_ctx(struct rdma_cm_id *cm)
{
	const struct verbs_dev *dev = dev_by_ctx(cm->verbs);

	if (dev)
		cm->verbs = atomic_load(&dev->hold)->ctx;
}

bool verbs_cm_dev_owns_id(const struct rdma_cm_id *cm)
{
	return dev_by_ctx(cm->verbs);
}
