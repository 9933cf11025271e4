/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock_dev.c - devices of the mock: addresses, what they can do, how often they are opened, their
 * removal.
 */
#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
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
	dev->cq_memory = INT_MAX;
	dev->poll_max = UINT_MAX;
	dev->last_wqe = true;
}

static struct mock_ctx *context_new(struct mock_dev *dev)
{
	struct mock_ctx *c = calloc(1, sizeof(*c));

	c->dev = dev;
	c->ctx.device = &dev->device;
	c->ctx.num_comp_vectors = 1;
	c->ctx.ops.poll_cq = mock_poll_cq;
	c->ctx.ops.req_notify_cq = mock_req_notify_cq;
	c->ctx.ops.post_srq_recv = mock_post_srq_recv;
	c->ctx.ops.post_recv = mock_post_recv;
	c->ctx.ops.post_send = mock_post_send;
	c->ctx.cmd_fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	c->ctx.async_fd = mock_pipe(&c->async_out);
	c->async_in = fcntl(c->ctx.async_fd, F_DUPFD_CLOEXEC, 0);
	TAILQ_INIT(&c->async);
	TAILQ_INSERT_TAIL(&dev->contexts, c, link);
	return c;
}

static void context_free(struct mock_ctx *c)
{
	mock_async_drop(c);
	close(c->ctx.cmd_fd);
	close(c->ctx.async_fd);
	close(c->async_out);
	close(c->async_in);
	TAILQ_REMOVE(&c->dev->contexts, c, link);
	free(c);
}

struct ibv_context *mock_context(struct mock_dev *dev)
{
	return &TAILQ_FIRST(&dev->contexts)->ctx;
}

static bool is_null(int fd)
{
	struct stat st, null;

	if (fd < 0) /* of a forked child */
		return true;
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(stat("/dev/null", &null), 0);
	return S_ISCHR(st.st_mode) && st.st_rdev == null.st_rdev;
}

bool mock_dev_aside(struct mock_dev *dev)
{
	const struct ibv_context *ctx = mock_context(dev);

	return is_null(ctx->cmd_fd) && is_null(ctx->async_fd);
}

/*
 * librdmacm makes a protection domain with the first id on a device, gives it back with the last,
 * and uses the device for nothing else: as long as there is an id, nobody has the numbers in hand.
 */
static bool in_use(const struct mock_dev *dev)
{
	const struct mock_id *id;

	TAILQ_FOREACH(id, &mock_ids, link)
	if (id->dev == dev && id->id.verbs)
		return true;
	return false;
}

bool mock_dev_usable(struct mock_dev *dev)
{
	return in_use(dev) || !is_null(mock_context(dev)->cmd_fd);
}

void mock_fd_moves(const int *number)
{
	MOCK_LOCK;
	struct mock_dev *dev;

	TAILQ_FOREACH(dev, &mock_devs, link)
	if ((number == &mock_context(dev)->cmd_fd || number == &mock_context(dev)->async_fd) && !in_use(dev))
		mock_fault("a number of librdmacm's is changed, which it may have in hand: it has no id on the device");
}

struct mock_dev *mock_dev_of_context(struct ibv_context *ctx)
{
	return mock_dev_of(ctx);
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
	TAILQ_INIT(&dev->contexts);
	context_new(dev);
	usual(dev);
	TAILQ_INSERT_TAIL(&mock_devs, dev, link);
	return dev;
}

void mock_dev_remove(struct mock_dev *dev)
{
	MOCK_LOCK;
	struct mock_qp *qp;
	struct mock_id *id;

	if (dev->gone)
		return;
	dev->gone = true;
	mock_async(dev, IBV_EVENT_DEVICE_FATAL);
	TAILQ_FOREACH(qp, &mock_qps, link)
	if (mock_dev_of(qp->qp.context) == dev)
		mock_qp_error(qp);
	mock_channels_close(dev);
	TAILQ_FOREACH(id, &mock_ids, link)
	if (id->dev == dev && !id->listener)
		mock_cm_say(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	mock_moved();
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

static bool fork_ready;

/* The first time, in time: before anything is made on a device. */
static int fork_init(void)
{
	MOCK_LOCK;
	unsigned kind;

	MOCK_FAILS_NUMBER(ibv_fork_init);
	for (kind = MOCK_CONTEXT; kind < MOCK_EVENT_CHANNEL && !fork_ready; kind++)
		if (mock_count((enum mock_kind)kind)) {
			mock_fault("ibv_fork_init: too late");
			return EINVAL;
		}
	fork_ready = true;
	return 0;
}

static struct ibv_context *open_device(struct ibv_device *ibdev)
{
	MOCK_LOCK;
	struct mock_dev *dev;

	MOCK_FAILS_NULL(ibv_open_device);
	TAILQ_FOREACH(dev, &mock_devs, link)
	if (&dev->device == ibdev && !dev->gone) {
		mock_made(MOCK_CONTEXT);
		return &context_new(dev)->ctx;
	}
	return mock_null(ENODEV);
}

static int close_device(struct ibv_context *ibctx)
{
	MOCK_LOCK;
	struct mock_ctx *ctx = (struct mock_ctx *)ibctx;

	MOCK_FAILS_NUMBER(ibv_close_device);
	if (ctx->users || ibctx == mock_context(ctx->dev)) {
		mock_fault("ibv_close_device: %u objects are left of it", ctx->users);
		return EBUSY;
	}
	mock_unmade(MOCK_CONTEXT);
	context_free(ctx);
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

void mock_dev_reset(void)
{
	struct mock_dev *dev;
	struct mock_ctx *ctx;
	struct address *a;

	fork_ready = false;
	while ((a = TAILQ_FIRST(&addresses))) {
		TAILQ_REMOVE(&addresses, a, link);
		free(a);
	}
	while ((dev = TAILQ_FIRST(&mock_devs))) {
		TAILQ_REMOVE(&mock_devs, dev, link);
		while ((ctx = TAILQ_FIRST(&dev->contexts)))
			context_free(ctx);
		free(dev);
	}
}

static int is_fork_initialized(void)
{
	return mock.copies_on_fork ? VERBS_FORK_UNNEEDED : 1;
}

void mock_dev_install(void)
{
	vb.ibv_is_fork_initialized = is_fork_initialized;
	vb.ibv_fork_init = fork_init;
	vb.ibv_open_device = open_device;
	vb.ibv_close_device = close_device;
	vb.ibv_query_device = query_device;
	vb.ibv_get_device_name = get_device_name;
	vb.ibv_wc_status_str = wc_status_str;
}
