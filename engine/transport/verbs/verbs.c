/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * verbs.c - the transport's table of functions, and whether an address is on an RDMA device.
 *
 * Nothing exists before the first bind of an address that could be on a device: no library, no
 * descriptor, no memory.
 */
#include <string.h>

#include "engine/transport/verbs/rdma.h"

struct verbs rds_verbs;

static void verbs_to_sockaddr(const struct in6_addr *ip, uint32_t scope, struct sockaddr_storage *ss)
{
	rds_addr_to_sockaddr(ip, 0, scope, ss);
}

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
 * On many devices the queues lie in this process's own pages, and fork() makes such pages copy on
 * write.  Where the kernel does not copy pinned pages for the child at once, the parent's next
 * write takes its queue away from the device.  ibv_fork_init() has to be called before anything is
 * opened; it costs nothing where the kernel copies them.
 */
static void verbs_fork_init(void)
{
	int err;

	if (rds_verbs.fork_inited)
		return;
	rds_verbs.fork_inited = true;
	err = verbs_err(vb.ibv_fork_init());
	if (err)
		rds_warn("ibv_fork_init: %s. RDMA connections may break when this process forks", strerror(-err));
}

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
	int err = verbs_libs_load();

	if (err || rds_verbs.ready)
		return err;
	verbs_fork_init();
	verbs_dev_users = &dev_users;
	err = verbs_cm_start(&verbs_ep_acceptor);
	if (err) {
		rds_error("RDMA devices cannot be used: %s%s", strerror(-err), cm_node_help(err));
		return err;
	}
	rds_verbs.ready = true;
	return 0;
}

/*
 * Binding an id to the address asks the kernel which device has the address, and needs nothing
 * else.
 */
int verbs_claims(struct rds_transport *t, const struct in6_addr *laddr, uint32_t scope)
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
	verbs_to_sockaddr(laddr, scope, &ss);
	err = verbs_err(vb.rdma_create_id(rds_verbs.events, &id, NULL, RDMA_PS_TCP));
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

static bool verbs_settled(struct rds_ep *ep)
{
	(void)ep;
	return true;
}

static const struct rds_transport_ops verbs_ops = {
	.name = "verbs",
	.caps = RDS_TCAP_RETAINS | RDS_TCAP_REMOTE | RDS_TCAP_DEVICE_OPS,
	.start = verbs_start,
	.stop = verbs_stop,
	.claims = verbs_claims,
	.locate = verbs_locate,
	.connect = verbs_connect,
	.close = verbs_close,
	.send = verbs_send,
	.flush = verbs_flush,
	.retained = verbs_retained,
	.keep = verbs_keep,
	.settled = verbs_settled,
	.acked = verbs_acked,
	.want_room = verbs_want_room,
	.describe = verbs_describe,
	.push = verbs_push,
	.mr_register = verbs_ep_mr_register,
	.mr_key = verbs_ep_mr_key,
	.mr_deregister = verbs_mr_deregister,
	.post = verbs_rdma_post,
	.fence = verbs_rdma_fence,
	.progress = verbs_progress,
	.ack = verbs_ack,
	.release = verbs_release,
	.attention = verbs_ep_attention,
	.relieve = verbs_relieve,
	.pending = verbs_dev_pending,
};

/*
 * The descriptors have been closed in the child; the parent's queue pairs and ids need nothing
 * else.
 */
void rds_verbs_forget(void)
{
	verbs_rendezvous_forget();
	verbs_listen_watch_forget();
	verbs_locate_forget();
	verbs_cm_connect_forget();
	verbs_cm_destroy_forget();
	verbs_keepalive_forget();
	verbs_batch_forget();
	verbs_mr_forget();
	verbs_dev_forget();
	verbs_cm_dev_forget();
	memset(&rds_verbs, 0, sizeof(rds_verbs));
}

struct rds_transport *rds_verbs_transport(void)
{
	rds_verbs.t.ops = &verbs_ops;
	return &rds_verbs.t;
}
