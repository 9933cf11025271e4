/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock_cm.c - rdma_cm of the mock, first half: ids and what they are bound to, the way to a request
 * that is sent.
 */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "tests/mock/mock_impl.h"

struct mock_ids mock_ids = TAILQ_HEAD_INITIALIZER(mock_ids);

#define PRIVATE_REQUEST 56

/* ---- ids ---- */

struct mock_id *mock_id_new(struct mock_events *ch, unsigned host, void *context)
{
	struct mock_id *id = calloc(1, sizeof(*id));

	id->id.channel = &ch->ch;
	id->id.context = context;
	id->id.ps = RDMA_PS_TCP;
	id->id.qp_type = IBV_QPT_RC;
	id->host = host;
	id->tos = id->ack_timeout = -1;
	TAILQ_INSERT_TAIL(&mock_ids, id, link);
	return id;
}

void mock_id_free(struct mock_id *id)
{
	if (id->peer)
		id->peer->peer = NULL;
	TAILQ_REMOVE(&mock_ids, id, link);
	free(id);
}

static int create_id(struct rdma_event_channel *ch, struct rdma_cm_id **id, void *arg, enum rdma_port_space ps)
{
	MOCK_LOCK;
	struct mock_events *events = (struct mock_events *)ch;

	MOCK_FAILS_MINUS(rdma_create_id);
	if (!ch || ps != RDMA_PS_TCP) {
		mock_fault("rdma_create_id: only with a channel and RDMA_PS_TCP");
		return mock_minus(EINVAL);
	}
	*id = &mock_id_new(events, events->host, arg)->id;
	mock_made(MOCK_ID);
	return 0;
}

/* ---- ports ---- */

static bool is_any(const struct in6_addr *ip)
{
	static const struct in6_addr any4 = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

	return IN6_IS_ADDR_UNSPECIFIED(ip) || !memcmp(ip, &any4, sizeof(any4));
}

static int conflict(const struct mock_id *id, sa_family_t family, const struct in6_addr *ip, uint16_t port)
{
	const struct mock_id *o;
	struct in6_addr oip;
	uint16_t oport;

	TAILQ_FOREACH(o, &mock_ids, link)
	{
		if (o == id || !o->bound || o->host != id->host)
			continue;
		mock_ip_of(&o->id.route.addr.src_addr, &oip, &oport);
		if (oport != port || (o->reuse && id->reuse && o->state != ID_LISTEN))
			continue;
		if (o->afonly && id->afonly && o->id.route.addr.src_addr.sa_family != family)
			continue;
		if (is_any(&oip) || is_any(ip))
			return EADDRNOTAVAIL;
		if (!memcmp(&oip, ip, sizeof(oip)))
			return EADDRINUSE;
	}
	return 0;
}

static void put_address(struct sockaddr_storage *to, const struct sockaddr *from, uint16_t port)
{
	memset(to, 0, sizeof(*to));
	if (from->sa_family == AF_INET) {
		memcpy(to, from, sizeof(struct sockaddr_in));
		((struct sockaddr_in *)to)->sin_port = htons(port);
	} else {
		memcpy(to, from, sizeof(struct sockaddr_in6));
		((struct sockaddr_in6 *)to)->sin6_port = htons(port);
	}
}

static int bind_id(struct mock_id *id, const struct sockaddr *sa)
{
	static uint16_t ephemeral = 40000;
	struct mock_dev *dev = NULL;
	struct in6_addr ip;
	uint16_t port;
	int err;

	if (id->bound || id->state != ID_IDLE || !mock_ip_of(sa, &ip, &port))
		return EINVAL;
	if (sa->sa_family == AF_INET)
		id->afonly = true;
	if (!is_any(&ip)) {
		dev = mock_dev_with(&ip);
		if (!dev || dev->host != id->host)
			return ENODEV;
	}
	if (!port)
		do
			port = ++ephemeral;
		while (conflict(id, sa->sa_family, &ip, port));
	err = conflict(id, sa->sa_family, &ip, port);
	if (err)
		return err;
	put_address(&id->id.route.addr.src_storage, sa, port);
	id->bound = true;
	id->dev = dev;
	id->id.port_num = dev ? 1 : 0;
	return 0;
}

bool mock_id_opens(struct mock_id *id)
{
	if (id->dev && !id->id.verbs && mock_dev_usable(id->dev))
		id->id.verbs = mock_context(id->dev);
	return !id->dev || id->id.verbs;
}

static int bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	MOCK_LOCK;
	int err;

	MOCK_FAILS_MINUS(rdma_bind_addr);
	err = bind_id((struct mock_id *)id, addr);
	if (!err && !mock_id_opens((struct mock_id *)id))
		err = EPERM;
	return err ? mock_minus(err) : 0;
}

static int do_listen(struct rdma_cm_id *ibid, int backlog)
{
	MOCK_LOCK;
	struct mock_id *id = (struct mock_id *)ibid;

	(void)backlog;
	MOCK_FAILS_MINUS(rdma_listen);
	if (!id->bound || id->state != ID_IDLE)
		return mock_minus(EINVAL);
	id->state = ID_LISTEN;
	return 0;
}

/*
 * The listener that gets a request.  An address of its own goes before a wildcard; the IPv6
 * wildcard also gets IPv4.
 */
struct mock_id *mock_listener_for(const struct mock_id *asking)
{
	struct mock_id *l, *wild = NULL;
	struct in6_addr ip, lip;
	uint16_t port, lport;
	struct mock_dev *dev;
	bool v4;

	mock_ip_of(&asking->id.route.addr.dst_addr, &ip, &port);
	v4 = IN6_IS_ADDR_V4MAPPED(&ip);
	dev = mock_dev_with(&ip);
	TAILQ_FOREACH(l, &mock_ids, link)
	{
		if (l->state != ID_LISTEN || l->deaf || !dev || l->host != dev->host)
			continue;
		mock_ip_of(&l->id.route.addr.src_addr, &lip, &lport);
		if (lport != port)
			continue;
		if (!memcmp(&lip, &ip, sizeof(ip)))
			return l;
		if (is_any(&lip) && (IN6_IS_ADDR_V4MAPPED(&lip) ? v4 : !v4 || !l->afonly))
			wild = l;
	}
	return wild;
}

void mock_cm_deafen(struct rdma_cm_id *listener)
{
	MOCK_LOCK;

	((struct mock_id *)listener)->deaf = true;
}

bool mock_cm_listens(unsigned host, const struct sockaddr *at)
{
	MOCK_LOCK;
	const struct mock_id *l;
	struct in6_addr ip, lip;
	uint16_t port, lport;

	mock_ip_of(at, &ip, &port);
	TAILQ_FOREACH(l, &mock_ids, link)
	{
		mock_ip_of(&l->id.route.addr.src_addr, &lip, &lport);
		if (l->state == ID_LISTEN && !l->deaf && l->host == host && lport == port &&
		    l->id.route.addr.src_addr.sa_family == at->sa_family)
			return true;
	}
	return false;
}

static __be16 get_src_port(struct rdma_cm_id *id)
{
	struct in6_addr ip;
	uint16_t port = 0;

	mock_ip_of(&id->route.addr.src_addr, &ip, &port);
	return htons(port);
}

/* ---- the way to the peer ---- */

static int resolve_addr(struct rdma_cm_id *ibid, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	MOCK_LOCK;
	struct mock_id *id = (struct mock_id *)ibid;
	struct mock_cm_ev *e;
	struct in6_addr ip;
	uint16_t port;
	int err;

	(void)timeout_ms;
	MOCK_FAILS_MINUS(rdma_resolve_addr);
	if (id->state != ID_IDLE || !mock_ip_of(dst, &ip, &port))
		return mock_minus(EINVAL);
	err = id->bound || !src ? 0 : bind_id(id, src);
	if (err)
		return mock_minus(err);
	if (!id->dev) {
		mock_fault("the mock resolves only from the address of a device");
		return mock_minus(EINVAL);
	}
	put_address(&ibid->route.addr.dst_storage, dst, port);
	id->state = ID_RESOLVING;
	id->to = mock_dev_with(&ip);
	if (!id->to || id->to->mode != id->dev->mode) {
		mock_cm_say(id, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH);
	} else {
		e = mock_cm_say(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
		e->a = id->dev;
		e->b = id->to;
	}
	mock_moved();
	return 0;
}

static int resolve_route(struct rdma_cm_id *ibid, int timeout_ms)
{
	MOCK_LOCK;
	struct mock_id *id = (struct mock_id *)ibid;
	struct mock_cm_ev *e;

	(void)timeout_ms;
	MOCK_FAILS_MINUS(rdma_resolve_route);
	if (id->state != ID_ADDR)
		return mock_minus(EINVAL);
	id->state = ID_ROUTING;
	e = mock_cm_say(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	e->a = id->dev;
	e->b = id->to;
	mock_moved();
	return 0;
}

static int create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	MOCK_LOCK;
	struct mock_qp *qp;
	int err;

	MOCK_FAILS_MINUS(rdma_create_qp);
	if (!id->verbs || id->qp || !pd || pd->context != id->verbs)
		return mock_minus(EINVAL);
	qp = mock_qp_new((struct mock_id *)id, pd, attr, &err);
	if (!qp)
		return mock_minus(err);
	id->qp = &qp->qp;
	return 0;
}

static void destroy_qp(struct rdma_cm_id *id)
{
	MOCK_LOCK;
	struct mock_qp *qp = (struct mock_qp *)id->qp;

	mock_fails(MOCK_rdma_destroy_qp);
	if (!qp) {
		mock_fault("rdma_destroy_qp without a queue pair");
		return;
	}
	if (mock_qp_destroy(qp))
		mock_moved();
}

static struct {
	bool hang;
	unsigned n;
	int err;
	pthread_cond_t go;
} slow = {.go = PTHREAD_COND_INITIALIZER};

void mock_connect_hang(void)
{
	MOCK_LOCK;

	slow.hang = true;
}

void mock_connect_go(int err)
{
	pthread_mutex_lock(&mock_mutex);
	slow.hang = false;
	slow.err = err;
	pthread_cond_broadcast(&slow.go);
	mock_await_none(&slow.n);
	pthread_mutex_unlock(&mock_mutex);
}

unsigned mock_connects_hanging(void)
{
	MOCK_LOCK;

	return slow.n;
}

static int wait_for_host(void)
{
	if (!slow.hang)
		return 0;
	slow.n++;
	while (slow.hang)
		pthread_cond_wait(&slow.go, &mock_mutex);
	slow.n--;
	return slow.err;
}

static int do_connect(struct rdma_cm_id *ibid, struct rdma_conn_param *param)
{
	MOCK_LOCK;
	struct mock_id *id = (struct mock_id *)ibid;
	bool iw = id->dev && id->dev->mode == MOCK_IWARP;
	struct mock_cm_ev *e;
	int err;

	MOCK_FAILS_MINUS(rdma_connect);
	err = iw ? wait_for_host() : 0;
	if (err)
		return mock_minus(err);
	if (id->state != ID_ROUTE || (!iw && param->private_data_len > PRIVATE_REQUEST))
		return mock_minus(EINVAL);
	if (!ibid->qp) {
		mock_fault("rdma_connect without a queue pair");
		return mock_minus(EINVAL);
	}
	id->state = ID_CONNECTING;
	id->rnr_retry = param->rnr_retry_count;
	e = mock_cm_say(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	e->a = id->dev;
	e->b = id->to;
	e->ev.param.conn = *param;
	mock_cm_data(e, param->private_data, param->private_data_len, iw ? 0 : PRIVATE_REQUEST);
	mock_moved();
	return 0;
}

/* ---- options ---- */

static int set_option(struct rdma_cm_id *ibid, int level, int name, void *val, size_t len)
{
	MOCK_LOCK;
	struct mock_id *id = (struct mock_id *)ibid;
	int n = len == 1 ? *(uint8_t *)val : len == sizeof(int) ? *(int *)val : 0;
	bool byte = name == RDMA_OPTION_ID_TOS || name == RDMA_OPTION_ID_ACK_TIMEOUT;

	MOCK_FAILS_MINUS(rdma_set_option);
	if (level != RDMA_OPTION_ID || len != (byte ? 1 : sizeof(int)))
		return mock_minus(EINVAL);
	switch (name) {
	case RDMA_OPTION_ID_TOS:
		id->tos = n;
		return 0;
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		id->ack_timeout = n;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
		id->reuse = n;
		return 0;
	case RDMA_OPTION_ID_AFONLY:
		id->afonly = n;
		return 0;
	}
	return mock_minus(ENOSYS);
}

int mock_id_tos(struct rdma_cm_id *id)
{
	return ((struct mock_id *)id)->tos;
}

int mock_id_ack_timeout(struct rdma_cm_id *id)
{
	return ((struct mock_id *)id)->ack_timeout;
}

void mock_cm_install(void)
{
	vb.rdma_create_id = create_id;
	vb.rdma_bind_addr = bind_addr;
	vb.rdma_listen = do_listen;
	vb.rdma_get_src_port = get_src_port;
	vb.rdma_resolve_addr = resolve_addr;
	vb.rdma_resolve_route = resolve_route;
	vb.rdma_create_qp = create_qp;
	vb.rdma_destroy_qp = destroy_qp;
	vb.rdma_connect = do_connect;
	vb.rdma_set_option = set_option;
}
