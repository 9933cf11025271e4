/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * verbs.c - the transport's table of functions, and whether an address is on an RDMA device.
 *
 * Nothing exists before the first bind of an address that could be on a device: no library, no
 * descriptor, no memory.
 */
#include <string.h>

#include "engine/transport/verbs/ep/ep.h"
#include "engine/transport/verbs/verbs_transport.h"

static struct rds_transport transport;
static bool ready; /* libraries, event channel, listeners; control */

static const struct verbs_dev_users dev_users = {
	.opened = verbs_cm_dev_opened,
	.published = verbs_cm_dev_published,
	.freed = verbs_cm_dev_freed,
	.queue_pairs = verbs_ep_dev_count,
	.in_flight = verbs_ep_dev_in_flight,
	.memory_short = verbs_ep_dev_memory_short,
	.starved = verbs_ep_dev_starved,
	.evacuate = verbs_ep_dev_evacuate,
	.qp_event = verbs_ep_dev_qp_event,
	.removed = verbs_ep_dev_removed,
};

/*
 * librdmacm returns ENOENT where the cause was EACCES, and ENODEV where there is no device node:
 * the text names what it needs instead.
 */
static const char *cm_node_help(int err)
{
	if (err != -ENOENT && err != -ENODEV && err != -EACCES && err != -EPERM)
		return "";
	return ". This process must be able to read and write /dev/infiniband/rdma_cm and uverbs* (permissions; a "
	       "container has to be given them); without, set RDS_PRELOAD_TRANSPORT=shm";
}

/* Once per process; after a failure the next bind tries again. */
static int verbs_make_ready(void)
{
	int err = verbs_dev_start(&dev_users);

	if (err || ready)
		return err;
	verbs_ep_start(&transport);
	err = verbs_cm_start(&verbs_ep_acceptor);
	if (err) {
		rds_error("RDMA devices cannot be used: %s%s", strerror(-err), cm_node_help(err));
		return err;
	}
	ready = true;
	return 0;
}

/*
 * Binding an id to the address asks the kernel which device has the address, and needs nothing
 * else.
 */
static int verbs_claims(struct rds_transport *t, const struct in6_addr *laddr, uint32_t scope)
{
	struct sockaddr_storage ss;
	struct rdma_cm_id *id;
	struct verbs_dev *dev;
	int err;

	(void)t;
	if (rds_ip_is_loopback(laddr))
		return 0;
	err = verbs_make_ready();
	if (err)
		return err == -ENOENT ? 0 : err;
	rds_addr_to_sockaddr(laddr, 0, scope, &ss);
	err = verbs_err(vb.rdma_create_id(verbs_cm.events, &id, NULL, RDMA_PS_TCP));
	if (err)
		return err;
	err = verbs_err(vb.rdma_bind_addr(id, (struct sockaddr *)&ss));
	err = err ? -ENODEV : verbs_cm_dev_get(id, &dev);
	verbs_cm_destroy_bound(id);
	if (err == -ENODEV)
		return 0;
	return err ? err : 1;
}

static int verbs_start(struct rds_transport *t)
{
	(void)t;
	return 0; /* verbs_claims() starts everything */
}

static void verbs_stop(struct rds_transport *t)
{
	(void)t; /* nothing was claimed: the helper's start failed */
}

static void verbs_exit_wait(struct rds_transport *t)
{
	(void)t;
	verbs_cm_connect_exit_wait();
}

static bool verbs_settled(struct rds_ep *ep)
{
	(void)ep;
	return true;
}

static const struct rds_transport_ops verbs_ops = {
	.name = "verbs",
	.caps = RDS_TCAP_REMOTE | RDS_TCAP_DEVICE_OPS,
	.start = verbs_start,
	.stop = verbs_stop,
	.exit_wait = verbs_exit_wait,
	.claims = verbs_claims,
	.locate = verbs_cm_locate,
	.connect = verbs_ep_connect,
	.close = verbs_ep_close,
	.send = verbs_ep_send,
	.flush = verbs_ep_flush,
	.retained = verbs_ep_retained,
	.keep = verbs_ep_keep,
	.settled = verbs_settled,
	.leave = verbs_ep_leave,
	.acked = verbs_ep_acked,
	.want_room = verbs_ep_want_room,
	.describe = verbs_ep_describe,
	.push = verbs_ep_push,
	.mr_register = verbs_ep_mr_register,
	.mr_key = verbs_ep_mr_key,
	.mr_deregister = verbs_mr_deregister,
	.post = verbs_ep_post,
	.fence = verbs_ep_fence,
	.progress = verbs_ep_progress,
	.ack = verbs_ep_ack,
	.release = verbs_ep_release,
	.attention = verbs_ep_attention,
	.relieve = verbs_ep_relieve,
	.pending = verbs_dev_pending,
};

/* The child's root closes the descriptors; the parent's queue pairs and ids need nothing else. */
void rds_verbs_fork_child(void)
{
	verbs_ep_forget();
	verbs_cm_forget();
	verbs_dev_forget();
	memset(&transport, 0, sizeof(transport));
	ready = false;
}

struct rds_transport *rds_verbs_transport(void)
{
	transport.ops = &verbs_ops;
	return &transport;
}
