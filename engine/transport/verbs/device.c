/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * device.c - an RDMA device as this process uses it: one protection domain, one completion queue for everything, one shared
 * receive queue, and what the device can do.
 *
 * A device is made when the first address on it is bound or the first connection over it comes, and stays until the process ends: it
 * costs nothing while nothing happens.  Receive buffers are shared by all connections; a buffer is in the queue, in a completion, with
 * the engine (a message that waits in place), with an endpoint (ep->later), or about to be posted again (refill).
 *
 * The device is opened for us alone.  librdmacm opens each one for itself, too, and ids come with that context; but in a forked child it
 * would be the parent's for ever, and nothing made there would go when the parent is killed.  So ids are given ours (verbs_dev_get).
 *
 * What kind of device it is, is asked here and becomes capabilities; no other file knows iWARP from InfiniBand.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "engine/transport/verbs/verbs.h"

/*
 * On siw this has a second purpose.  Its library takes offset 0x90000 of the context's mappings for "none" and fails to make the queue
 * pair that would get it, again and again.  The completion queue is made first, and 32 bytes an entry it covers that place.
 */
#define CQ_ENTRIES 32768u
#define CQ_SENDS 8192u /* of them, for sends: all that 32 connections can have under way */
#define CQ_FEWEST 256u
#define SQ_FEWEST 32u /* with fewer none may be left that asks for a completion */
#define REFILL_BATCH 16u
#define FEWEST_BUFFERS 64u
#define GROWTH 8u
#define STEPS 8u	     /* ... in steps of an eighth of the beginning */
#define SEND_ROOM (2u << 20) /* stays free beside what is added: the least that RDS_PRELOAD_VERBS_MEMORY may be */
#define SIW_VENDOR 0x626d74u
#define STARVED_NS (5 * 1000000ull)

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* ---- what it can do ---- */

static void find_caps(struct verbs_dev *dev, const struct ibv_device_attr *attr)
{
	struct verbs_caps *c = &dev->caps;
	bool iwarp = dev->ctx->device->transport_type == IBV_TRANSPORT_IWARP;

	c->credits = c->initiator_first = c->one_sge_read = c->sink_needs_write = c->cm_commits = c->probe_reads =
		iwarp;
	c->rnr = c->timeouts = !iwarp;
	/* siw sends in the caller's thread over a kernel socket, and as if it were the caller's own: a peer that is gone raises
	 * the signal. */
	c->sigpipe = attr->vendor_id == SIW_VENDOR;
	/* ... and it sends its yes before it has the socket tell it of what comes. */
	c->late_ear = attr->vendor_id == SIW_VENDOR;
	c->atomics = attr->atomic_cap != IBV_ATOMIC_NONE;
	c->max_inline = 128; /* a header and a small message; devices that have less say so when asked */
	c->sq = attr->max_qp_wr < (int)VERBS_SQ ? (uint32_t)attr->max_qp_wr : VERBS_SQ;
	c->srq = attr->max_srq > 0 && attr->max_srq_wr > 0 ? (uint32_t)attr->max_srq_wr : 0;
	c->rd_atomic = (uint32_t)(attr->max_qp_rd_atom < attr->max_qp_init_rd_atom ? attr->max_qp_rd_atom
										   : attr->max_qp_init_rd_atom);
	if (c->rd_atomic > 16)
		c->rd_atomic = 16;
}

/* ---- receive buffers (rx) ---- */

void verbs_buf_put(struct verbs_dev *dev, struct verbs_buf *buf)
{
	buf->ep = NULL;
	buf->next = dev->refill;
	dev->refill = buf;
	dev->nrefill++;
}

/* One chain of at most REFILL_BATCH.  How many the device took is counted by what it has left: some say 0 and took half. */
static unsigned post_some(struct verbs_dev *dev)
{
	struct ibv_recv_wr wr[REFILL_BATCH], *bad = NULL;
	struct ibv_sge sge[REFILL_BATCH];
	struct verbs_buf *buf = dev->refill;
	unsigned n, took;
	int err;

	for (n = 0; n < REFILL_BATCH && buf; n++, buf = buf->next) {
		sge[n] = (struct ibv_sge){.addr = (uintptr_t)buf->mem, .length = VERBS_BUF, .lkey = buf->lkey};
		wr[n] = (struct ibv_recv_wr){.wr_id = buf->index, .sg_list = &sge[n], .num_sge = 1, .next = NULL};
		if (n)
			wr[n - 1].next = &wr[n];
	}
	if (!n)
		return 0;
	err = verbs_err(ibv_post_srq_recv(dev->srq, wr, &bad));
	took = bad ? (unsigned)(bad - wr) : err ? 0 : n;
	if (took > n)
		took = 0;
	for (n = 0; n < took; n++) {
		dev->refill = dev->refill->next;
		dev->nrefill--;
		dev->posted++;
	}
	return took;
}

void verbs_dev_again(struct verbs_dev *dev)
{
	rds_timer_need(&dev->starved, os_now_ns() + STARVED_NS);
}

void verbs_dev_refill(struct verbs_dev *dev)
{
	if (dev->gone)
		return;
	while (dev->nrefill) {
		if (post_some(dev))
			continue;
		verbs_dev_again(dev); /* nobody else would look if all the others are with sleeping programs */
		break;
	}
	verbs_credit_serve(dev);
}

static void starved(struct rds_timer *tm)
{
	struct verbs_dev *dev = container_of(tm, struct verbs_dev, starved);

	rx_lock();
	verbs_dev_refill(dev);
	rx_unlock();
}

#define MEMORY_NS (2 * 1000000ull)

/*
 * Blocks are given back by whoever sends on the same endpoint next.  While somebody waits for one, all of them look, and who waits tries
 * again.  Helper.
 */
static void memory_timer(struct rds_timer *tm)
{
	struct verbs_dev *dev = container_of(tm, struct verbs_dev, memory);
	struct verbs_ep *ep;

	if (verbs_arena_short(dev->arena))
		dev->memory_looks = 2; /* once more at what is asked of them now */
	if (!dev->memory_looks)
		return;
	dev->memory_looks--;
	rx_lock();
	for (ep = rds_verbs.eps; ep; ep = ep->next)
		if (ep->dev == dev && atomic_load(&ep->state) == VERBS_UP) {
			atomic_store(&ep->signal_due, true); /* its blocks wait for a completion that none may ask for */
			ep->head.t->up->speak(ep->head.conn);
			ep->head.t->up->writable(ep->head.conn);
		}
	rx_unlock();
	rds_timer_set(tm, os_now_ns() + MEMORY_NS);
}

void verbs_dev_memory(struct verbs_dev *dev)
{
	rds_timer_need(&dev->memory, os_now_ns() + MEMORY_NS);
}

/* Where each connection needs buffers of its own, there may be more of them than at the beginning. */
static uint32_t srq_depth(const struct verbs_dev *dev)
{
	uint32_t n = (uint32_t)rds_options()->verbs_buffers * (dev->caps.credits ? GROWTH : 1);

	return n < dev->caps.srq ? n : dev->caps.srq;
}

/* rx, or nobody else knows of the device. */
static void bufs_add(struct verbs_dev *dev, uint32_t n, unsigned char *mem, uint32_t lkey)
{
	uint32_t i;

	for (i = n; i--;) {
		struct verbs_buf *buf = &dev->bufs[dev->nbufs + i];

		buf->mem = mem + (size_t)i * VERBS_BUF;
		buf->index = dev->nbufs + i;
		buf->lkey = lkey;
		verbs_buf_put(dev, buf);
	}
	dev->nbufs += n;
}

/* As many as may be locked, down to the fewest that make sense. */
static int bufs_new(struct verbs_dev *dev)
{
	uint32_t n = (uint32_t)rds_options()->verbs_buffers, want = n;
	int err = 0;

	if (n > dev->caps.srq)
		n = dev->caps.srq;
	for (;; n /= 2) {
		dev->recv_len = ((size_t)n * VERBS_BUF + 4095) & ~(size_t)4095;
		dev->recv_mem = verbs_mem_register(dev, dev->recv_len, IBV_ACCESS_LOCAL_WRITE, &dev->recv_mr, &err);
		if (dev->recv_mem || n <= FEWEST_BUFFERS)
			break;
	}
	if (!dev->recv_mem) {
		verbs_memlock_help(dev, dev->recv_len);
		return err;
	}
	if (n < want)
		rds_warn("%s: %u receive buffers instead of %u: the limit of locked memory (ulimit -l), or the "
			 "device's own",
			 dev->name, n, want);
	dev->bufs = calloc(srq_depth(dev), sizeof(*dev->bufs));
	if (!dev->bufs)
		return -ENOMEM;
	dev->base = n;
	bufs_add(dev, n, dev->recv_mem, dev->recv_mr->lkey);
	return 0;
}

/* Memory of buffers that came later. */
struct verbs_recv_mem {
	struct verbs_recv_mem *next;
	void *mem;
	size_t len;
	struct ibv_mr *mr;
};

/* Without memory for what goes out, peers that are let in would never be answered. */
static bool leaves_room(struct verbs_dev *dev)
{
	struct ibv_mr *mr;
	int err;
	void *mem = verbs_mem_register(dev, SEND_ROOM, 0, &mr, &err);

	if (mem)
		verbs_mem_release(mem, SEND_ROOM, mr);
	return mem != NULL;
}

static int more_memory(struct verbs_dev *dev, struct verbs_recv_mem *m, uint32_t n)
{
	int err;

	m->len = ((size_t)n * VERBS_BUF + 4095) & ~(size_t)4095;
	m->mem = verbs_mem_register(dev, m->len, IBV_ACCESS_LOCAL_WRITE, &m->mr, &err);
	if (!m->mem)
		return err;
	if (leaves_room(dev))
		return 0;
	verbs_mem_release(m->mem, m->len, m->mr);
	return -ENOMEM;
}

/* A step; near the limit of locked memory what can be had of it, as long as somebody is helped by that. */
int verbs_dev_grow(struct verbs_dev *dev, uint32_t fewest)
{
	uint32_t left = srq_depth(dev) - dev->nbufs, n = dev->base / STEPS > fewest ? dev->base / STEPS : fewest;
	struct verbs_recv_mem *m;
	int err;

	if (left < fewest || dev->gone)
		return -ENOBUFS;
	if (n > left)
		n = left;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	while ((err = more_memory(dev, m, n)) && n / 2 >= fewest)
		n /= 2;
	if (err) {
		free(m);
		return err == -ENOBUFS ? -ENOMEM : err;
	}
	rx_lock();
	m->next = dev->grown;
	dev->grown = m;
	bufs_add(dev, n, m->mem, m->mr->lkey);
	verbs_dev_refill(dev);
	rx_unlock();
	return 0;
}

static void bufs_free(struct verbs_dev *dev)
{
	struct verbs_recv_mem *m;

	while ((m = dev->grown)) {
		dev->grown = m->next;
		verbs_mem_release(m->mem, m->len, m->mr);
		free(m);
	}
	if (dev->recv_mem)
		verbs_mem_release(dev->recv_mem, dev->recv_len, dev->recv_mr);
	free(dev->bufs);
}

/* ---- life ---- */

/* A descriptor that a library keeps: out of the program's way. */
static int own_number(int *fd, bool nonblocking)
{
	int err = os_fd_adopt(fd), flags;

	if (err || !nonblocking)
		return err;
	flags = os_fcntl(*fd, F_GETFL, 0);
	return flags < 0 ? flags : os_fcntl(*fd, F_SETFL, flags | O_NONBLOCK);
}

/* As long as it should be; if there is no memory for that, as long as it can be. */
static struct ibv_cq *cq_new(struct verbs_dev *dev, const struct ibv_device_attr *attr)
{
	uint32_t want = srq_depth(dev) + CQ_SENDS, max = (uint32_t)attr->max_cqe;
	struct ibv_cq *cq;

	if (want < CQ_ENTRIES)
		want = CQ_ENTRIES;
	if (want > max)
		want = max;
	for (;; want /= 2) {
		errno = 0;
		cq = vb.ibv_create_cq(dev->ctx, (int)want, dev, dev->channel, 0);
		if (cq || errno != ENOMEM || want / 2 < CQ_FEWEST)
			return cq;
	}
}

/* A completion queue that overflows is of no more use: what may be received at a time leaves sends their part of it. */
static void cq_limits_buffers(struct verbs_dev *dev)
{
	uint32_t cqe = (uint32_t)dev->cq->cqe, sends = cqe / 2 < CQ_SENDS ? cqe / 2 : CQ_SENDS;

	if (dev->caps.srq <= cqe - sends)
		return;
	dev->caps.srq = cqe - sends;
	if (dev->caps.srq < (uint32_t)rds_options()->verbs_buffers)
		rds_warn("%s: its completion queue of %u entries has room for %u receive buffers", dev->name, cqe,
			 dev->caps.srq);
}

/*
 * When a link goes, every work request of every endpoint on it completes, signaled or not.  So that even then the completion queue
 * does not overflow, the more endpoints there are the fewer each may have under way; of CQ_ENTRIES there is room for SQ_FEWEST each
 * of about 900.  (What was under way before others came is not taken back.)
 */
void verbs_dev_share(struct verbs_dev *dev)
{
	uint32_t buffers = srq_depth(dev), cqe = (uint32_t)dev->cq->cqe, each;

	each = (cqe > buffers ? cqe - buffers : 0) / (dev->neps + 1);
	if (each < SQ_FEWEST)
		each = SQ_FEWEST;
	atomic_store(&dev->sq_each, each < dev->caps.sq ? each : dev->caps.sq);
}

static int queues_new(struct verbs_dev *dev, const struct ibv_device_attr *attr)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = srq_depth(dev), .max_sge = 1}};

	if (!dev->caps.srq)
		return -EOPNOTSUPP;
	errno = 0;
	dev->pd = vb.ibv_alloc_pd(dev->ctx);
	if (dev->pd)
		dev->channel = vb.ibv_create_comp_channel(dev->ctx);
	if (dev->channel)
		dev->cq = cq_new(dev, attr);
	if (!dev->cq)
		return errno ? -errno : -ENOMEM;
	cq_limits_buffers(dev);
	verbs_dev_share(dev);
	if (srq.attr.max_wr > dev->caps.srq)
		srq.attr.max_wr = dev->caps.srq;
	errno = 0;
	dev->srq = vb.ibv_create_srq(dev->pd, &srq);
	if (dev->srq)
		return 0;
	return !errno ? -ENOMEM : errno == ENOSYS ? -EOPNOTSUPP : -errno;
}

static int dev_open(struct verbs_dev *dev)
{
	struct ibv_device_attr attr;
	int err = verbs_err(vb.ibv_query_device(dev->ctx, &attr));

	if (err)
		return err;
	find_caps(dev, &attr);
	err = queues_new(dev, &attr);
	if (err == -ENOMEM)
		verbs_memlock_help(dev, 0);
	if (!err)
		err = bufs_new(dev);
	if (!err)
		err = verbs_arena_new(dev, &dev->arena);
	if (!err)
		err = own_number(&dev->channel->fd, true);
	if (!err)
		err = own_number(&dev->ctx->async_fd, true);
	if (!err)
		err = own_number(&dev->ctx->cmd_fd, false);
	return err;
}

/* Its descriptors are watched by the helper from now on. */
static int dev_watch(struct verbs_dev *dev)
{
	int err;

	dev->comp_ev.fn = verbs_comp_event;
	dev->async_ev.fn = verbs_async_event;
	err = rds_event_add(&dev->comp_ev, dev->channel->fd, EPOLLIN);
	if (err)
		return err;
	err = rds_event_add(&dev->async_ev, dev->ctx->async_fd, EPOLLIN);
	if (err)
		rds_event_del(dev->channel->fd);
	return err;
}

void verbs_dev_free(struct verbs_dev *dev)
{
	verbs_arena_free(dev->arena);
	if (dev->srq)
		vb.ibv_destroy_srq(dev->srq);
	if (dev->cq) {
		if (dev->unacked_events)
			vb.ibv_ack_cq_events(dev->cq, dev->unacked_events);
		vb.ibv_destroy_cq(dev->cq);
	}
	rds_relay_close(&dev->relay);
	if (dev->channel) {
		os_fd_disown(&dev->channel->fd);
		vb.ibv_destroy_comp_channel(dev->channel);
	}
	bufs_free(dev);
	if (dev->pd)
		vb.ibv_dealloc_pd(dev->pd);
	if (dev->ctx) {
		os_fd_disown(&dev->ctx->async_fd);
		os_fd_disown(&dev->ctx->cmd_fd);
		vb.ibv_close_device(dev->ctx);
	}
	free(dev);
}

/* `making` held: none that is found is freed before it is released. */
static struct verbs_dev *dev_find(const struct ibv_device *device)
{
	struct verbs_dev *dev;

	rx_lock();
	for (dev = atomic_load(&rds_verbs.devs); dev; dev = dev->next)
		if (dev->ctx->device == device && !dev->gone)
			break;
	rx_unlock();
	return dev;
}

/* Nobody finds it any more. */
void verbs_dev_unlink(struct verbs_dev *dev)
{
	struct verbs_dev *d;

	pthread_mutex_lock(&making);
	rx_lock();
	d = atomic_load(&rds_verbs.devs);
	if (d == dev)
		atomic_store(&rds_verbs.devs, dev->next);
	for (; d; d = d->next)
		if (d->next == dev)
			d->next = dev->next;
	rx_unlock();
	pthread_mutex_unlock(&making);
}

static void dev_use(struct verbs_dev *dev)
{
	rx_lock();
	verbs_dev_refill(dev);
	dev->next = atomic_load(&rds_verbs.devs);
	atomic_store(&rds_verbs.devs, dev);
	verbs_attention(&rds_verbs.t, rds_verbs.attention);
	rx_unlock();
}

/*
 * librdmacm opens each device for itself and keeps it open, and some devices cannot be removed while anybody has them open.  Nothing
 * of ours is made there, so its descriptors become /dev/null's: what librdmacm still asks of them fails, which it does not mind.
 * In a forked child librdmacm goes on with the same context: there is no descriptor in it any more (os_fd_abandon), nor any number of
 * the parent's, which would be that of something else by now.
 */
static void put_aside(int *fd)
{
	int null = os_open("/dev/null", O_RDWR | O_CLOEXEC, 0);

	if (null < 0)
		return;
	if (os_fd_adopt(fd) == 0)
		os_syscall(SYS_dup3, null, *fd, O_CLOEXEC, 0, 0, 0);
	os_close(null);
}

/* Without it, the device is as good as none.  Said once of each, whoever binds how often. */
static int no_srq(const char *name)
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

static int dev_new(struct ibv_device *device, const struct sockaddr *addr, struct verbs_dev **out)
{
	struct verbs_dev *dev = calloc(1, sizeof(*dev));
	struct rdma_cm_id *holder;
	int err = -ENOMEM;

	if (dev) {
		dev->starved.fn = starved;
		dev->leave.fn = verbs_dev_leave;
		dev->memory.fn = memory_timer;
		snprintf(dev->name, sizeof(dev->name), "%s", vb.ibv_get_device_name(device));
		errno = 0;
		dev->ctx = vb.ibv_open_device(device);
		err = dev->ctx ? dev_open(dev) : errno ? -errno : -ENODEV;
	}
	if (!err)
		err = verbs_dev_hold(dev, addr);
	if (!err)
		err = dev_watch(dev);
	if (!err) {
		dev_use(dev);
		*out = dev;
		return 0;
	}
	if (err == -EOPNOTSUPP && dev)
		err = no_srq(dev->name);
	else
		rds_error("the RDMA device %s cannot be used: %s", dev ? dev->name : "(no memory)", strerror(-err));
	if (dev) {
		holder = atomic_load(&dev->holder);
		verbs_dev_free(dev);
		if (holder)
			vb.rdma_destroy_id(holder);
	}
	return err;
}

/*
 * Two threads may come for the same one: the helper for a peer's request, a program's thread that binds.  To the helper it stays
 * until the next timer, the program's thread gets a yes and nothing else.
 */
int verbs_dev_get(struct rdma_cm_id *cm, struct verbs_dev **out)
{
	struct verbs_dev *dev;
	int err = 0;

	*out = NULL;
	if (!cm->verbs)
		return -ENODEV;
	pthread_mutex_lock(&making);
	dev = dev_find(cm->verbs->device);
	if (!dev) {
		err = dev_new(cm->verbs->device, rdma_get_local_addr(cm), &dev);
		if (!err) {
			put_aside(&cm->verbs->cmd_fd);
			put_aside(&cm->verbs->async_fd);
		}
	}
	if (!err) {
		cm->verbs = dev->ctx;
		*out = dev;
	}
	pthread_mutex_unlock(&making);
	return err;
}

bool verbs_dev_has(const struct verbs_dev *dev, const struct rdma_cm_id *cm)
{
	return cm->verbs && cm->verbs->device == dev->ctx->device;
}

void verbs_dev_forget(void)
{
	pthread_mutex_init(&making, NULL);
}
