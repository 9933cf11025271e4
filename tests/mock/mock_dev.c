/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock_dev.c - devices of the mock: addresses, what they can do, what they say unasked (async events), their removal.
 */
#include <arpa/inet.h>
#include <check.h>
#include <limits.h>
#include <unistd.h>

#include "tests/mock/mock_impl.h"

struct mock_devs mock_devs = TAILQ_HEAD_INITIALIZER(mock_devs);

struct address {
	TAILQ_ENTRY(address) link;
	struct in6_addr ip;
	struct mock_dev *dev;
};
static TAILQ_HEAD(, address) addresses = TAILQ_HEAD_INITIALIZER(addresses);

/* ---- addresses ---- */

static void map_v4(struct in6_addr *ip, struct in_addr v4)
{
	memset(ip, 0, sizeof(*ip));
	ip->s6_addr[10] = ip->s6_addr[11] = 0xff;
	memcpy(&ip->s6_addr[12], &v4, sizeof(v4));
}

bool mock_ip_of(const struct sockaddr *sa, struct in6_addr *ip, uint16_t *port)
{
	const struct sockaddr_in *sin = (const void *)sa;
	const struct sockaddr_in6 *sin6 = (const void *)sa;

	if (sa->sa_family == AF_INET) {
		map_v4(ip, sin->sin_addr);
		*port = ntohs(sin->sin_port);
		return true;
	}
	if (sa->sa_family != AF_INET6)
		return false;
	*ip = sin6->sin6_addr;
	*port = ntohs(sin6->sin6_port);
	return true;
}

static struct in6_addr parse(const char *text)
{
	struct in6_addr ip;
	struct in_addr v4;

	if (inet_pton(AF_INET, text, &v4) == 1)
		map_v4(&ip, v4);
	else if (inet_pton(AF_INET6, text, &ip) != 1)
		ck_abort_msg("mock: %s is no address", text);
	return ip;
}

static struct address *find(const struct in6_addr *ip)
{
	struct address *a;

	TAILQ_FOREACH(a, &addresses, link)
	if (!memcmp(&a->ip, ip, sizeof(*ip)))
		return a;
	return NULL;
}

struct mock_dev *mock_dev_with(const struct in6_addr *ip)
{
	struct address *a = find(ip);

	return a && !a->dev->gone ? a->dev : NULL;
}

struct mock_dev *mock_dev_of_host(unsigned host)
{
	struct mock_dev *dev;

	TAILQ_FOREACH(dev, &mock_devs, link)
	if (dev->host == host && !dev->gone)
		return dev;
	return NULL;
}

void mock_addr_add(struct mock_dev *dev, const char *ip)
{
	MOCK_LOCK;
	struct address *a = calloc(1, sizeof(*a));

	a->ip = parse(ip);
	a->dev = dev;
	TAILQ_INSERT_TAIL(&addresses, a, link);
}

void mock_addr_del(const char *ip)
{
	MOCK_LOCK;
	struct in6_addr in = parse(ip);
	struct address *a = find(&in);

	ck_assert_ptr_nonnull(a);
	TAILQ_REMOVE(&addresses, a, link);
	free(a);
}

/* ---- devices ---- */

/* As rxe and siw are, roughly. */
static void usual(struct mock_dev *dev)
{
	bool iw = dev->mode == MOCK_IWARP;

	dev->attr = (struct ibv_device_attr){
		.max_mr_size = 1ull << 40,
		.page_size_cap = 4096,
		.max_qp = 4096,
		.max_qp_wr = 16384,
		.max_sge = iw ? 6 : MOCK_SGES,
		.max_sge_rd = iw ? 1 : MOCK_SGES,
		.max_cq = 1024,
		.max_cqe = 1 << 20,
		.max_mr = 4096,
		.max_pd = 256,
		.max_qp_rd_atom = iw ? 128 : 64,
		.max_qp_init_rd_atom = iw ? 128 : 64,
		.atomic_cap = iw ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA,
		.max_srq = 256,
		.max_srq_wr = 32768,
		.max_srq_sge = iw ? 6 : MOCK_SGES,
		.phys_port_cnt = 1,
	};
	dev->max_inline = iw ? 80 : 256;
	dev->grant_inline = UINT32_MAX;
	dev->memlock = SIZE_MAX;
	dev->poll_max = UINT_MAX;
	dev->last_wqe = !iw;
}

struct mock_dev *mock_dev_add(const char *name, enum mock_mode mode, unsigned host)
{
	MOCK_LOCK;
	struct mock_dev *dev = calloc(1, sizeof(*dev));

	dev->mode = mode;
	dev->host = host;
	strncpy(dev->device.name, name, sizeof(dev->device.name) - 1);
	dev->device.transport_type = mode == MOCK_IWARP ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
	dev->device.node_type = mode == MOCK_IWARP ? IBV_NODE_RNIC : IBV_NODE_CA;
	dev->ctx.device = &dev->device;
	dev->ctx.cmd_fd = -1;
	dev->ctx.num_comp_vectors = 1;
	dev->ctx.ops.poll_cq = mock_poll_cq;
	dev->ctx.ops.req_notify_cq = mock_req_notify_cq;
	dev->ctx.ops.post_srq_recv = mock_post_srq_recv;
	dev->ctx.ops.post_send = mock_post_send;
	dev->ctx.async_fd = mock_pipe(&dev->async_out);
	TAILQ_INIT(&dev->async);
	usual(dev);
	TAILQ_INSERT_TAIL(&mock_devs, dev, link);
	return dev;
}

void mock_dev_remove(struct mock_dev *dev)
{
	MOCK_LOCK;
	struct mock_qp *qp;
	struct mock_id *id;

	dev->gone = true;
	mock_async(dev, IBV_EVENT_DEVICE_FATAL);
	TAILQ_FOREACH(qp, &mock_qps, link)
	if (qp->qp.context == &dev->ctx)
		mock_qp_error(qp);
	TAILQ_FOREACH(id, &mock_ids, link)
	if (id->dev == dev && !id->listener)
		mock_cm_say(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	mock_moved();
}

/* ---- async events ---- */

static void say(struct mock_dev *dev, struct ibv_async_event ev)
{
	struct mock_async *a = calloc(1, sizeof(*a));

	a->ev = ev;
	TAILQ_INSERT_TAIL(&dev->async, a, link);
	mock_pipe_fill(dev->async_out, "async events");
}

void mock_async(struct mock_dev *dev, enum ibv_event_type type)
{
	MOCK_LOCK;

	say(dev, (struct ibv_async_event){.element.port_num = 1, .event_type = type});
}

void mock_async_qp(struct ibv_qp *qp, enum ibv_event_type type)
{
	MOCK_LOCK;

	say(mock_dev_of(qp->context), (struct ibv_async_event){.element.qp = qp, .event_type = type});
}

void mock_async_cq(struct ibv_cq *cq, enum ibv_event_type type)
{
	MOCK_LOCK;

	say(mock_dev_of(cq->context), (struct ibv_async_event){.element.cq = cq, .event_type = type});
}

void mock_async_srq(struct ibv_srq *srq, enum ibv_event_type type)
{
	MOCK_LOCK;

	say(mock_dev_of(srq->context), (struct ibv_async_event){.element.srq = srq, .event_type = type});
}

/* The counts of what the event is about, NULL if it is the device. */
static struct mock_acks *acks_of(const struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &((struct mock_cq *)ev->element.cq)->async;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &((struct mock_qp *)ev->element.qp)->async;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &((struct mock_srq *)ev->element.srq)->async;
	default:
		return NULL;
	}
}

/* The object goes: events about it that nobody has fetched go, too. */
void mock_async_forget(struct ibv_context *ctx, const void *object)
{
	struct mock_dev *dev = mock_dev_of(ctx);
	struct mock_async *a, *next;

	for (a = TAILQ_FIRST(&dev->async); a; a = next) {
		next = TAILQ_NEXT(a, link);
		if (!acks_of(&a->ev) || a->ev.element.qp != object)
			continue;
		TAILQ_REMOVE(&dev->async, a, link);
		free(a);
		mock_pipe_take(ctx->async_fd, "async events");
	}
}

static int get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	MOCK_LOCK;
	struct mock_dev *dev = mock_dev_of(ctx);
	struct mock_async *a = TAILQ_FIRST(&dev->async);
	struct mock_acks *acks;

	MOCK_FAILS_MINUS(ibv_get_async_event);
	if (!mock_pipe_take(ctx->async_fd, "ibv_get_async_event"))
		return -1;
	TAILQ_REMOVE(&dev->async, a, link);
	*ev = a->ev;
	free(a);
	acks = acks_of(ev);
	if (acks)
		mock_got(acks);
	return 0;
}

static void ack_async_event(struct ibv_async_event *ev)
{
	MOCK_LOCK;
	struct mock_acks *acks = acks_of(ev);

	mock_fails(MOCK_ibv_ack_async_event);
	if (acks)
		mock_acked(acks, 1, "async event");
}

/* ---- queries ---- */

static int query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	MOCK_LOCK;

	MOCK_FAILS_NUMBER(ibv_query_device);
	if (mock_dev_of(ctx)->gone)
		return EIO;
	*attr = mock_dev_of(ctx)->attr;
	return 0;
}

/* One context per device: what there would be in another is told apart by nobody here. */
static struct ibv_context *open_device(struct ibv_device *dev)
{
	struct mock_dev *d;

	MOCK_FAILS_NULL(ibv_open_device);
	TAILQ_FOREACH(d, &mock_devs, link)
		if (d->ctx.device == dev)
			return &d->ctx;
	errno = ENODEV;
	return NULL;
}

static int close_device(struct ibv_context *ctx)
{
	(void)ctx;
	return 0;
}

static const char *get_device_name(struct ibv_device *dev)
{
	return dev->name;
}

static const char *wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_SUCCESS ? "success" : "error";
}

static const char *event_type_str(enum ibv_event_type type)
{
	return type == IBV_EVENT_DEVICE_FATAL ? "device fatal" : "event";
}

void mock_dev_reset(void)
{
	struct mock_dev *dev;
	struct mock_async *ev;
	struct address *a;

	while ((a = TAILQ_FIRST(&addresses))) {
		TAILQ_REMOVE(&addresses, a, link);
		free(a);
	}
	while ((dev = TAILQ_FIRST(&mock_devs))) {
		TAILQ_REMOVE(&mock_devs, dev, link);
		while ((ev = TAILQ_FIRST(&dev->async))) {
			TAILQ_REMOVE(&dev->async, ev, link);
			free(ev);
		}
		close(dev->ctx.async_fd);
		close(dev->async_out);
		free(dev);
	}
}

void mock_dev_install(void)
{
	vb.ibv_open_device = open_device;
	vb.ibv_close_device = close_device;
	vb.ibv_query_device = query_device;
	vb.ibv_get_async_event = get_async_event;
	vb.ibv_ack_async_event = ack_async_event;
	vb.ibv_get_device_name = get_device_name;
	vb.ibv_wc_status_str = wc_status_str;
	vb.ibv_event_type_str = event_type_str;
}
