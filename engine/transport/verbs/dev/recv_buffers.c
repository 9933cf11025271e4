/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * recv_buffers.c - the receive buffers of a device: how many there are, and their way back to its
 * queue.
 *
 * A buffer is in the queue, in a completion, with the engine (a message that waits in place), with
 * an endpoint (ep->later), or about to be posted again (refill).  All connections share the
 * buffers.  On iWARP, where a frame without a buffer ends the connection, the buffers lie in the
 * endpoints' own queues (ep/credit_buffers.c).  There they have two sizes, and small ones are added
 * as connections come (ep/credit.c decides when).
 *
 * Must not know what is in the buffers.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/transport/verbs/dev/dev.h"

#define FEWEST_BUFFERS 64u
#define FEWEST_SHARED (FEWEST_BUFFERS * VERBS_FRAME / VERBS_FRAME_SHARED)
#define GROWTH 10u /* small buffers may grow by this many times the number in the option */
#define STEP 128u
/* a large buffer counts as so many of 8 KiB */
#define LARGE_OF (VERBS_BUF(VERBS_FRAME_SHARED) / VERBS_BUF(VERBS_FRAME))
#define LOW 4u			 /* the device reports when 1/LOW of the buffers is left with it */
#define LOW_NS (10 * 1000000ull) /* least time between such reports */
#define UNTOLD_NS (1000 * 1000000ull)
/* must stay lockable beside added buffers: the least that RDS_PRELOAD_VERBS_MEMORY may be */
#define SEND_ROOM (2u << 20)
#define STARVED_NS (5 * 1000000ull)

/* ---- to the queue (rx) ---- */

void verbs_buf_put(struct verbs_dev *dev, struct verbs_buf *buf)
{
	struct verbs_buf **list = &dev->refill;
	uint32_t *n = &dev->nrefill;

	if (unlikely(buf->heap)) {
		free(buf);
		return;
	}
	if (unlikely(dev->caps.credits)) {
		list = buf->large ? &dev->large : &dev->small;
		n = buf->large ? &dev->nlarge : &dev->nsmall;
	}
	buf->ep = NULL;
	buf->next = *list;
	*list = buf;
	++*n;
}

/*
 * Posts one chain of at most VERBS_REFILL_BATCH buffers.  How many the device took is read from the
 * rest of the chain: some drivers return 0 and took half.
 */
static unsigned srq_post_batch(struct verbs_dev *dev)
{
	struct ibv_recv_wr wr[VERBS_REFILL_BATCH], *bad = NULL;
	struct ibv_sge sge[VERBS_REFILL_BATCH];
	struct verbs_buf *buf = dev->refill;
	unsigned n, took;
	int err;

	for (n = 0; n < VERBS_REFILL_BATCH && buf; n++, buf = buf->next) {
		sge[n] = (struct ibv_sge){
			.addr = (uintptr_t)buf->mem, .length = VERBS_BUF(dev->caps.frame), .lkey = buf->lkey};
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

void verbs_bufs_retry_later(struct verbs_dev *dev)
{
	rds_timer_need(&dev->starved, os_now_ns() + STARVED_NS);
}

void verbs_bufs_refill(struct verbs_dev *dev)
{
	if (dev->dead)
		return;
	while (dev->nrefill) {
		if (srq_post_batch(dev))
			continue;
		/*
		 * no other event would cause a retry if all other buffers wait for sleeping
		 * programs
		 */
		verbs_bufs_retry_later(dev);
		break;
	}
}

static void bufs_starved_timer(struct rds_timer *tm)
{
	struct verbs_dev *dev = container_of(tm, struct verbs_dev, starved);

	rx_lock();
	verbs_bufs_refill(dev);
	verbs_dev_users->starved(dev);
	rx_unlock();
}

/* ---- how many ---- */

/*
 * Number of buffers of both sizes: the memory of the option in large ones, and as many small ones
 * as the option counts.
 */
static uint32_t bufs_two_sizes(uint32_t n)
{
	return n / LARGE_OF + n;
}

/* The option counts buffers of 8 KiB. */
uint32_t verbs_bufs_initial(const struct verbs_dev *dev)
{
	uint32_t n = (uint32_t)rds_options()->verbs_buffers;

	if (dev->caps.credits)
		return bufs_two_sizes(n);
	n = (n * VERBS_FRAME + dev->caps.frame - 1) / dev->caps.frame;
	return n < FEWEST_SHARED ? FEWEST_SHARED : n;
}

/* Where each connection needs buffers of its own, the number may grow. */
uint32_t verbs_bufs_max(const struct verbs_dev *dev)
{
	uint32_t n = verbs_bufs_initial(dev);

	if (dev->caps.credits)
		n += GROWTH * (uint32_t)rds_options()->verbs_buffers;
	return n < dev->caps.srq ? n : dev->caps.srq;
}

static size_t bufs_page_align(size_t len)
{
	return (len + 4095) & ~(size_t)4095;
}

/* Receive memory at first; VERBS_MARK follows the small buffers. */
static size_t recv_mem_len(const struct verbs_dev *dev, uint32_t n)
{
	if (dev->caps.credits)
		return bufs_page_align((size_t)(n / LARGE_OF) * VERBS_BUF(dev->caps.frame) +
				       (size_t)n * VERBS_BUF_SMALL + VERBS_MARK);
	return bufs_page_align((size_t)n * VERBS_BUF(dev->caps.frame));
}

/* rx, or no other thread knows the device.  Returns the end of the added buffers. */
static unsigned char *bufs_add(struct verbs_dev *dev, uint32_t n, uint32_t size, unsigned char *mem, uint32_t lkey)
{
	uint32_t i;

	for (i = n; i--;) {
		struct verbs_buf *buf = &dev->bufs[dev->nbufs + i];

		buf->mem = mem + (size_t)i * size;
		buf->large = size > VERBS_BUF_SMALL;
		buf->index = dev->nbufs + i;
		buf->lkey = lkey;
		verbs_buf_put(dev, buf);
	}
	dev->nbufs += n;
	return mem + (size_t)n * size;
}

static void bufs_begin(struct verbs_dev *dev, uint32_t n)
{
	uint32_t lkey = dev->recv_mr->lkey;
	unsigned char *end;

	dev->base = n;
	if (!dev->caps.credits) {
		bufs_add(dev, n, VERBS_BUF(dev->caps.frame), dev->recv_mem, lkey);
		return;
	}
	dev->all_large = n / LARGE_OF;
	end = bufs_add(dev, dev->all_large, VERBS_BUF(dev->caps.frame), dev->recv_mem, lkey);
	dev->mark = bufs_add(dev, n, VERBS_BUF_SMALL, end, lkey);
	memset(dev->mark, 0xff, VERBS_MARK);
}

/* As many as memory can be locked for, down to the smallest useful number. */
int verbs_bufs_new(struct verbs_dev *dev)
{
	uint32_t n = dev->caps.credits ? (uint32_t)rds_options()->verbs_buffers : verbs_bufs_initial(dev), want = n;
	uint32_t fewest = dev->caps.credits ? FEWEST_BUFFERS : FEWEST_SHARED;
	int err = 0;

	while (dev->caps.credits && n > fewest && bufs_two_sizes(n) > dev->caps.srq)
		n /= 2;
	if (dev->caps.credits && bufs_two_sizes(n) > dev->caps.srq)
		n = dev->caps.srq * LARGE_OF / (LARGE_OF + 1);
	if (n > dev->caps.srq)
		n = dev->caps.srq;
	for (;; n = n / 2 > fewest ? n / 2 : fewest) {
		dev->recv_len = recv_mem_len(dev, n);
		dev->recv_mem = verbs_mem_register(dev, dev->recv_len, IBV_ACCESS_LOCAL_WRITE, &dev->recv_mr, &err);
		if (dev->recv_mem || n <= fewest)
			break;
	}
	if (!dev->recv_mem) {
		verbs_memlock_help(dev, err, "receive buffers,", dev->recv_len);
		return err;
	}
	if (n < want)
		rds_warn("the RDMA device %s: %u receive buffers of %u KiB instead of %u, because the limit of locked "
			 "memory (ulimit -l), or the device's own, allows no more",
			 dev->name, n, (dev->caps.credits ? VERBS_FRAME : dev->caps.frame) >> 10, want);
	dev->bufs = calloc(verbs_bufs_max(dev), sizeof(*dev->bufs));
	if (!dev->bufs)
		return -ENOMEM;
	bufs_begin(dev, n);
	return 0;
}

/* Memory of buffers that were added later. */
struct verbs_recv_mem {
	struct verbs_recv_mem *next;
	void *mem;
	size_t len;
	struct ibv_mr *mr;
};

/*
 * Without memory for outgoing messages, peers whose connections are accepted would never get an
 * answer.
 */
static int send_memory_fits(struct verbs_dev *dev)
{
	struct ibv_mr *mr;
	int err;
	void *mem = verbs_mem_register(dev, SEND_ROOM, 0, &mr, &err);

	if (mem)
		verbs_mem_release(mem, SEND_ROOM, mr);
	return mem ? 0 : err;
}

static int recv_mem_new(struct verbs_dev *dev, struct verbs_recv_mem *m, uint32_t n)
{
	int err;

	m->len = bufs_page_align((size_t)n * VERBS_BUF_SMALL);
	m->mem = verbs_mem_register(dev, m->len, IBV_ACCESS_LOCAL_WRITE, &m->mr, &err);
	if (!m->mem)
		return err;
	err = send_memory_fits(dev);
	if (err)
		verbs_mem_release(m->mem, m->len, m->mr);
	return err;
}

/* Adds STEP buffers; near the limit of locked memory fewer, but at least `fewest`. */
int verbs_bufs_grow(struct verbs_dev *dev, uint32_t fewest)
{
	uint32_t left = verbs_bufs_max(dev) - dev->nbufs, n = STEP > fewest ? STEP : fewest;
	struct verbs_recv_mem *m;
	int err;

	if (left < fewest || dev->dead)
		return -ENOBUFS;
	if (n > left)
		n = left;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	while ((err = recv_mem_new(dev, m, n)) && n / 2 >= fewest)
		n /= 2;
	if (err) {
		free(m);
		return err == -ENOBUFS ? -ENOMEM : err;
	}
	rx_lock();
	m->next = dev->grown;
	dev->grown = m;
	bufs_add(dev, n, VERBS_BUF_SMALL, m->mem, m->mr->lkey);
	rx_unlock();
	return 0;
}

/*
 * Asks the device to report, once, when few buffers are left with it.  Senders that find none
 * retry, which takes time; and a program that was expected back at once (LAZY) is woken by nothing
 * else.
 */
void verbs_bufs_arm_limit(struct verbs_dev *dev)
{
	struct ibv_srq_attr attr = {.srq_limit = dev->nbufs / LOW};

	int err;

	if (dev->caps.credits || dev->dead)
		return;
	err = verbs_err(vb.ibv_modify_srq(dev->srq, &attr, IBV_SRQ_LIMIT));
	if (!err)
		return;
	rds_debug("%s: does not say when receive buffers run low: %s", dev->name, strerror(-err));
	if (err != -ENOSYS && err != -EOPNOTSUPP && err != -EINVAL)
		rds_timer_need(&dev->low, os_now_ns() + UNTOLD_NS);
}

static void bufs_low_timer(struct rds_timer *tm)
{
	verbs_bufs_arm_limit(container_of(tm, struct verbs_dev, low));
}

/*
 * The helper's look at the completion queue, which follows every event, posts the returned buffers.
 * (Timers run before that look: so a device that compares with the limit only when a buffer is used
 * is asked while the queue may still be empty, which is as good.)
 */
void verbs_bufs_low(struct verbs_dev *dev)
{
	rds_timer_need(&dev->low, os_now_ns() + LOW_NS);
}

void verbs_bufs_init(struct verbs_dev *dev)
{
	dev->starved.fn = bufs_starved_timer;
	dev->low.fn = bufs_low_timer;
}

void verbs_bufs_free(struct verbs_dev *dev)
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
