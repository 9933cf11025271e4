/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * device.c - an RDMA device as this process uses it: one protection domain, one completion queue
 * for everything, one shared receive queue, and the capabilities of the device.
 *
 * A device is made when the first address on it is bound or the first connection over it comes.
 * It stays until the process ends: it costs nothing while it is idle.
 *
 * The device is opened once more for this library.  librdmacm opens each device for itself, too,
 * and ids come with that context; but in a forked child that context would remain the parent's for
 * ever, and objects made there would not go away when the parent is killed.  So ids are given our
 * context (cm/device_id.c).
 *
 * This file asks which kind of device it is and turns the answer into capabilities; no other file
 * tells iWARP from InfiniBand.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "engine/transport/verbs/dev/dev.h"

/*
 * On siw the size has a second purpose.  The library of siw takes offset 0x90000 of the context's
 * mappings for "none" and fails to make the queue pair that would get it, again and again.  The
 * completion queue is made first, and at 32 bytes an entry it covers that offset.
 */
#define CQ_ENTRIES 32768u
#define CQ_SENDS 8192u /* entries kept for sends: all that 32 connections can have in flight */
#define CQ_FEWEST 256u
/*
 * Among so many work requests one always asks for a completion, and the largest operation has room
 * (1 MiB in pieces of 64 KiB).  Not more: 1000 connections are to share one set of buffers.
 */
#define SQ_FEWEST 24u
#define SQ_SHORT 63u
/* A sender that has just seen room may still use so many entries: an operation and its message. */
#define SQ_STEP 24u
#define SENDERS 32u /* senders for which such room is kept at a time */
/* Where each queue pair has its own receives: the room in the completion queue limits them. */
#define OWN_RECEIVES (1u << 20)
#define SIW_VENDOR 0x626d74u
#define SIW_PAGES_FROM 4096u
#define RXE_VENDOR 0xffffffu

struct verbs_devs verbs_devs;
const struct verbs_dev_users *verbs_dev_users; /* NULL: not started */

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* ---- what it can do ---- */

static void dev_find_caps(struct verbs_dev *dev, const struct ibv_device_attr *attr)
{
	struct verbs_caps *c = &dev->caps;
	bool iwarp = dev->ctx->device->transport_type == IBV_TRANSPORT_IWARP;

	c->credits = c->initiator_first = c->sink_needs_write = c->connect_blocks = c->probe_reads = iwarp;
	c->rnr = c->timeouts = !iwarp;
	/*
	 * siw sends on the caller's thread over a kernel socket, as if the socket were the
	 * caller's: if the peer is gone the thread gets SIGPIPE.
	 */
	c->sigpipe = attr->vendor_id == SIW_VENDOR;
	/* siw accepts a connection before its socket reports what arrives. */
	c->late_receive = attr->vendor_id == SIW_VENDOR;
	/* On siw a connection that ends before it is accepted ends the listener. */
	c->loses_listener = attr->vendor_id == SIW_VENDOR;
	/*
	 * siw hands unsignaled data to TCP page by page, without a copy, which takes more time and
	 * segments than one copy.
	 */
	c->signal_from = attr->vendor_id == SIW_VENDOR ? SIW_PAGES_FROM : UINT32_MAX;
	/*
	 * After a loss rxe returns to the request that was not received, and then takes reads
	 * behind it for reads before it.
	 */
	c->fence_bars_reads = attr->vendor_id == RXE_VENDOR;
	/* a header and a small message; devices with less refuse, and ep/qp.c asks for less */
	c->max_inline = 128;
	c->frame = VERBS_FRAME_SHARED;
	c->sq = attr->max_qp_wr < (int)VERBS_SQ ? (uint32_t)attr->max_qp_wr : VERBS_SQ - 1;
	c->srq = c->credits ? OWN_RECEIVES : attr->max_srq > 0 && attr->max_srq_wr > 0 ? (uint32_t)attr->max_srq_wr : 0;
	c->rd_atomic = (uint32_t)(attr->max_qp_rd_atom < attr->max_qp_init_rd_atom ? attr->max_qp_rd_atom
										   : attr->max_qp_init_rd_atom);
	if (c->rd_atomic > 16)
		c->rd_atomic = 16;
}

/* ---- blocks that are waited for ---- */

#define MEMORY_NS (2 * 1000000ull)

/*
 * An endpoint gives its blocks back when it sends next.  While a thread waits for a block, all
 * endpoints of the device check for blocks to give back, and the waiting threads try again.
 * Helper.
 */
static void dev_memory_timer(struct rds_timer *tm)
{
	struct verbs_dev *dev = container_of(tm, struct verbs_dev, memory);

	/* one more run, for the acknowledgements and completions that this run asks for */
	if (verbs_arena_was_short(dev->arena))
		dev->memory_looks = 2;
	if (!dev->memory_looks)
		return;
	dev->memory_looks--;
	rx_lock();
	verbs_dev_users->memory_short(dev);
	rx_unlock();
	rds_timer_set(tm, os_now_ns() + MEMORY_NS);
}

void verbs_dev_want_memory(struct verbs_dev *dev)
{
	rds_timer_need(&dev->memory, os_now_ns() + MEMORY_NS);
}

/* ---- life ---- */

/* Moves a descriptor of a library out of the program's way. */
static int dev_fd_adopt(int *fd, bool nonblocking)
{
	int err = os_fd_adopt(fd), flags;

	if (err || !nonblocking)
		return err;
	flags = os_fcntl(*fd, F_GETFL, 0);
	return flags < 0 ? flags : os_fcntl(*fd, F_SETFL, flags | O_NONBLOCK);
}

/*
 * Makes the completion queue of the wanted size, or of the largest size that there is memory for.
 */
static int dev_cq_new(struct verbs_dev *dev, const struct ibv_device_attr *attr)
{
	uint32_t want = verbs_bufs_max(dev) + CQ_SENDS, max = (uint32_t)attr->max_cqe;
	int err;

	if (want < CQ_ENTRIES)
		want = CQ_ENTRIES;
	if (want > max)
		want = max;
	for (;; want /= 2) {
		errno = 0;
		dev->cq = vb.ibv_create_cq(dev->ctx, (int)want, dev, dev->channel, 0);
		if (dev->cq)
			return 0;
		if (errno != ENOMEM || want / 2 < CQ_FEWEST)
			break;
	}
	err = errno ? -errno : -ENOMEM;
	verbs_memlock_help(dev, err, "a completion queue, about", want * VERBS_CQ_ENTRY);
	return err;
}

/*
 * A completion queue that overflows cannot be used any more: the number of posted receive buffers
 * leaves room for sends.
 */
static void cq_limit_bufs(struct verbs_dev *dev)
{
	uint32_t cqe = (uint32_t)dev->cq->cqe, sends = cqe / 2 < CQ_SENDS ? cqe / 2 : CQ_SENDS;

	if (dev->caps.srq <= cqe - sends)
		return;
	dev->caps.srq = cqe - sends;
	if (dev->caps.srq < verbs_bufs_initial(dev))
		rds_warn("the RDMA device %s: its completion queue of %u entries has room for %u receive buffers",
			 dev->name, cqe, dev->caps.srq);
}

/*
 * When a link fails, every work request of every endpoint on it completes, signaled or not, and
 * perhaps no thread looks before all have completed.  The completion queue must not overflow even
 * then.  So the more endpoints there are, the fewer work requests each may have in flight, but at
 * least SQ_FEWEST.  What was in flight before other endpoints came is not taken back: it is counted
 * as it is until it is done.  For endpoints that find no room the device is opened once more: with
 * CQ_ENTRIES from about 1100 endpoints on, or 1300 where the buffers are shared.
 */
static uint32_t cq_send_room(const struct verbs_dev *dev)
{
	uint32_t buffers = verbs_bufs_max(dev), cqe = (uint32_t)dev->cq->cqe, room = cqe > buffers ? cqe - buffers : 0;

	return room - (room / 8 < SENDERS * SQ_STEP ? room / 8 : SENDERS * SQ_STEP);
}

static uint32_t cq_share(const struct verbs_dev *dev, unsigned neps)
{
	uint32_t each = cq_send_room(dev) / (neps + 1);

	if (each < SQ_FEWEST)
		each = SQ_FEWEST;
	return each < dev->caps.sq ? each : dev->caps.sq;
}

/*
 * The send queue is not deeper than the endpoint's share of the completion queue, given the number
 * of endpoints: on soft RoCE a thousand full-size queues took 190 MiB more.  The depth stays as it
 * is when other endpoints go, hence at least SQ_SHORT.
 */
uint32_t verbs_dev_sq_depth(const struct verbs_dev *dev)
{
	uint32_t share = cq_share(dev, dev->neps), depth = SQ_SHORT;

	while (depth < share)
		depth = 2 * depth + 1;
	return depth < dev->caps.sq ? depth : dev->caps.sq;
}

void verbs_dev_share_cq(struct verbs_dev *dev)
{
	atomic_store(&dev->sq_each, cq_share(dev, dev->neps));
}

/* Helper: is there room for another endpoint?  If so, the others cannot use that room any more. */
static bool dev_has_room(struct verbs_dev *dev)
{
	uint32_t each = cq_share(dev, verbs_dev_users->queue_pairs(dev) + 1);

	/* before counting what the endpoints have in flight */
	atomic_store(&dev->sq_each, cq_share(dev, dev->neps + 1));
	if (each + verbs_dev_users->in_flight(dev, each) <= cq_send_room(dev))
		return true;
	verbs_dev_share_cq(dev);
	return false;
}

static int dev_queues_new(struct verbs_dev *dev, const struct ibv_device_attr *attr)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = verbs_bufs_max(dev), .max_sge = 1}};
	int err;

	if (!dev->caps.srq)
		return -EOPNOTSUPP;
	errno = 0;
	dev->pd = vb.ibv_alloc_pd(dev->ctx);
	if (dev->pd)
		dev->channel = vb.ibv_create_comp_channel(dev->ctx);
	err = dev->channel ? dev_cq_new(dev, attr) : errno ? -errno : -ENOMEM;
	if (!dev->pd) /* a protection domain takes a page */
		verbs_memlock_help(dev, err, "a protection domain, about", 4096);
	if (err)
		return err;
	cq_limit_bufs(dev);
	verbs_dev_share_cq(dev);
	if (dev->caps.credits)
		return 0;
	if (srq.attr.max_wr > dev->caps.srq)
		srq.attr.max_wr = dev->caps.srq;
	errno = 0;
	dev->srq = vb.ibv_create_srq(dev->pd, &srq);
	if (dev->srq)
		return 0;
	err = !errno ? -ENOMEM : errno == ENOSYS ? -EOPNOTSUPP : -errno;
	verbs_memlock_help(dev, err, "a shared receive queue, about", srq.attr.max_wr * VERBS_SRQ_ENTRY);
	return err;
}

/* Where only a read proves that the peer is there: what peers read, and where our reads go. */
static int dev_probed_new(struct verbs_dev *dev)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, err = 0;

	if (!dev->caps.probe_reads)
		return 0;
	if (dev->caps.sink_needs_write)
		access |= IBV_ACCESS_REMOTE_WRITE;
	dev->probed = verbs_mem_register(dev, sizeof(*dev->probed), access, &dev->probed_mr, &err);
	if (err)
		verbs_memlock_help(dev, err, "what peers read to see that we live,", sizeof(*dev->probed));
	return err;
}

static int dev_open_queues(struct verbs_dev *dev)
{
	struct ibv_device_attr attr;
	int err = verbs_err(vb.ibv_query_device(dev->ctx, &attr));

	if (err)
		return err;
	dev_find_caps(dev, &attr);
	err = dev_queues_new(dev, &attr);
	if (!err)
		err = verbs_bufs_new(dev);
	if (!err)
		err = dev_probed_new(dev);
	if (!err)
		err = verbs_arena_new(dev, &dev->arena);
	if (!err)
		err = dev_fd_adopt(&dev->channel->fd, true);
	if (!err)
		err = dev_fd_adopt(&dev->ctx->async_fd, true);
	if (!err)
		err = dev_fd_adopt(&dev->ctx->cmd_fd, false);
	return err;
}

/* The helper watches its descriptors from now on. */
static int dev_watch(struct verbs_dev *dev)
{
	int err;

	dev->comp_ev.fn = verbs_dev_comp_event;
	dev->async_ev.fn = verbs_dev_async_event;
	err = rds_helper_event_add(&dev->comp_ev, os_fd_adopted_slot(&dev->channel->fd), EPOLLIN);
	if (err)
		return err;
	err = rds_helper_event_add(&dev->async_ev, os_fd_adopted_slot(&dev->ctx->async_fd), EPOLLIN);
	if (err)
		rds_helper_event_del(dev->channel->fd);
	return err;
}

void verbs_dev_free(struct verbs_dev *dev)
{
	verbs_mr_dev_end(dev);
	verbs_arena_free(dev->arena);
	if (dev->srq)
		vb.ibv_destroy_srq(dev->srq);
	if (dev->cq) {
		if (dev->unacked_events)
			vb.ibv_ack_cq_events(dev->cq, dev->unacked_events);
		vb.ibv_destroy_cq(dev->cq);
	}
	os_poll_eventfd_close(&dev->relay);
	if (dev->channel) {
		os_fd_disown(&dev->channel->fd);
		vb.ibv_destroy_comp_channel(dev->channel);
	}
	verbs_bufs_free(dev);
	if (dev->probed)
		verbs_mem_release(dev->probed, sizeof(*dev->probed), dev->probed_mr);
	if (dev->pd)
		vb.ibv_dealloc_pd(dev->pd);
	if (dev->ctx) {
		os_fd_disown(&dev->ctx->async_fd);
		os_fd_disown(&dev->ctx->cmd_fd);
		vb.ibv_close_device(dev->ctx);
	}
	free(dev);
}

/*
 * With `making` held: a device that is found is not freed before `making` is released.  *full: a
 * device that has no room for another endpoint, if there is one.
 */
static struct verbs_dev *dev_find(const struct ibv_device *device, bool to_send, struct verbs_dev **full)
{
	struct verbs_dev *dev;

	*full = NULL;
	rx_lock();
	for (dev = atomic_load(&verbs_devs.all); dev; dev = dev->next) {
		if (dev->ctx->device != device || dev->dead)
			continue;
		if (!to_send || dev_has_room(dev))
			break;
		*full = dev;
	}
	rx_unlock();
	return dev;
}

/* After this the device can no longer be found. */
void verbs_dev_unlink(struct verbs_dev *dev)
{
	struct verbs_dev *d;

	pthread_mutex_lock(&making);
	rx_lock();
	d = atomic_load(&verbs_devs.all);
	if (d == dev)
		atomic_store(&verbs_devs.all, dev->next);
	for (; d; d = d->next)
		if (d->next == dev)
			d->next = dev->next;
	rx_unlock();
	pthread_mutex_unlock(&making);
}

static void dev_publish(struct verbs_dev *dev)
{
	rx_lock();
	verbs_bufs_refill(dev);
	verbs_bufs_arm_limit(dev);
	dev->next = atomic_load(&verbs_devs.all);
	atomic_store(&verbs_devs.all, dev);
	verbs_dev_attention(verbs_devs.attention);
	rx_unlock();
}

/*
 * Without shared receive queues the device is not used.  Logged once per device, however often an
 * address is bound.
 */
static int dev_has_no_srq(const char *name)
{
	static struct lacking {
		struct lacking *next;
		char name[64];
	} * list;
	struct lacking *l;

	for (l = list; l && strcmp(l->name, name); l = l->next)
		;
	if (!l) {
		rds_warn("the RDMA device %s has no shared receive queues, which are needed: it is not used, and its "
			 "addresses can be reached within this host only",
			 name);
		l = calloc(1, sizeof(*l));
		if (l) {
			snprintf(l->name, sizeof(l->name), "%s", name);
			l->next = list;
			list = l;
		}
	}
	return -ENODEV;
}

/*
 * If it is held, the helper may be handling its removal and a timer of the device may be set: then
 * the device is freed from that timer.
 */
static void dev_abandon(struct verbs_dev *dev)
{
	if (atomic_load(&dev->hold))
		rds_timer_set(&dev->leave, os_now_ns());
	else
		verbs_dev_free(dev);
}

static int dev_unusable(const struct verbs_dev *dev, int err, bool leaving)
{
	if (err == -EOPNOTSUPP && dev)
		return dev_has_no_srq(dev->name);
	if (leaving)
		rds_info("the RDMA device %s has gone, or its address has, while it was opened", dev->name);
	else
		rds_error("the RDMA device %s cannot be used: %s", dev ? dev->name : "(no memory)", strerror(-err));
	return err;
}

/* Another one of this device exists and has no room. */
static int dev_no_second(const struct verbs_dev *full, int err)
{
	rds_warn_once(
		"the RDMA device %s has no room for more connections than %u, and cannot be opened once more (%s): "
		"others are refused",
		full->name, full->neps, strerror(-err));
	return -ENOBUFS;
}

static int dev_new(struct ibv_device *device, struct rdma_cm_id *cm, const struct verbs_dev *full,
		   struct verbs_dev **out)
{
	struct verbs_dev *dev = calloc(1, sizeof(*dev));
	bool leaving = false;
	int err = -ENOMEM;

	if (dev) {
		dev->helped = full; /* dev_no_second() logs for it */
		verbs_bufs_init(dev);
		dev->leave.fn = verbs_dev_removal_timer;
		dev->memory.fn = dev_memory_timer;
		snprintf(dev->name, sizeof(dev->name), "%s", vb.ibv_get_device_name(device));
		errno = 0;
		dev->ctx = vb.ibv_open_device(device);
		err = dev->ctx ? dev_open_queues(dev) : errno ? -errno : -ENODEV;
	}
	if (!err) {
		err = verbs_dev_users->opened(dev, cm);
		leaving = err == -ENODEV;
	}
	if (!err)
		err = dev_watch(dev);
	if (!err) {
		dev_publish(dev);
		verbs_dev_users->published(dev, cm);
		*out = dev;
		return 0;
	}
	err = full ? dev_no_second(full, err) : dev_unusable(dev, err, leaving);
	if (dev)
		dev_abandon(dev);
	return err;
}

/*
 * Two threads may ask for the same device: the helper for a peer's request, and a program's thread
 * that binds.  To the helper the device stays valid until the next timer; the program's thread
 * learns only that there is a device.
 */
int verbs_dev_get(struct ibv_device *device, bool to_send, struct rdma_cm_id *cm, struct verbs_dev **out)
{
	struct verbs_dev *full;
	int err = 0;

	pthread_mutex_lock(&making);
	*out = dev_find(device, to_send, &full);
	if (!*out)
		err = dev_new(device, cm, full, out);
	pthread_mutex_unlock(&making);
	return err;
}

/* ---- the part as a whole ---- */

/*
 * On many devices the queues lie in this process's own pages, and fork() makes such pages copy on
 * write.  Where the kernel does not copy pinned pages for the child at once, the parent's next
 * write takes its queue away from the device.  ibv_fork_init() has to be called before anything is
 * opened; it costs nothing where the kernel copies them.
 */
static void dev_fork_init(void)
{
	int err = verbs_err(vb.ibv_fork_init());

	if (err)
		rds_warn("ibv_fork_init: %s. RDMA connections may break when this process forks", strerror(-err));
}

int verbs_dev_start(const struct verbs_dev_users *users)
{
	int err = verbs_libs_load();

	if (err || verbs_dev_users)
		return err;
	dev_fork_init();
	verbs_dev_users = users;
	return 0;
}

void verbs_dev_forget(void)
{
	verbs_mr_forget();
	pthread_mutex_init(&making, NULL);
	memset(&verbs_devs, 0, sizeof(verbs_devs));
	verbs_dev_users = NULL;
}
