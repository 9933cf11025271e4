/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cm.c - rdma_cm for the rest of the transport: one event channel, ids with an owner each,
 * addresses, errors.
 *
 * An event is copied and acknowledged before its owner receives it, so an owner may destroy any id
 * at any time: rdma_destroy_id waits for events that are not acknowledged.  Nothing here waits.
 * The owners decide what becomes of a connection, of a query (port_query.c), of a device
 * (device_id.c).
 */
#include <fcntl.h>
#include <ifaddrs.h>
#include <string.h>

#include "engine/transport/verbs/cm/cm.h"

/*
 * 4.096 us * 2^16 = 0.27 s until a device sends again, eight times until it gives up a peer that
 * does not answer; rdma_cm itself chooses 2 s.  Not multiplied (sys/patience.h): a lost packet has
 * to be sent again as soon on a slow machine.
 */
#define ACK_TIMEOUT 16
/*
 * events in one call: peers may send requests faster than they are answered, and the helper has
 * other work
 */
#define EVENTS 64

struct verbs_cm verbs_cm;

/* ---- events ---- */

static void cm_event_copy(const struct rdma_cm_event *ev, struct verbs_cm_ev *copy)
{
	memset(copy, 0, sizeof(*copy));
	copy->what = ev->event;
	copy->status = ev->status;
	switch (ev->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_REJECTED:
		copy->responder_resources = ev->param.conn.responder_resources;
		copy->initiator_depth = ev->param.conn.initiator_depth;
		if (!ev->param.conn.private_data)
			return;
		copy->len = ev->param.conn.private_data_len;
		if (copy->len > VERBS_PRIVATE)
			copy->len = VERBS_PRIVATE;
		memcpy(copy->data, ev->param.conn.private_data, copy->len);
		return;
	default:
		return;
	}
}

/* Destroying the id would refuse it, too, but the id may have to stay (cm_devices.c). */
static void cm_request_refuse(struct rdma_cm_id *cm)
{
	vb.rdma_reject(cm, NULL, 0);
	verbs_cm_destroy(cm);
}

void verbs_cm_event(struct rds_helper_event *unused, uint32_t events)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *cm;
	struct verbs_cm_owner *owner;
	struct verbs_cm_ev copy;
	unsigned most = EVENTS;

	(void)unused;
	(void)events;
	while (most-- && vb.rdma_get_cm_event(verbs_cm.events, &ev) == 0) {
		cm_event_copy(ev, &copy);
		cm = ev->id;
		owner = cm->context; /* the id of a request has the listener's context */
		verbs_cm_dev_event(cm, copy.what);
		vb.rdma_ack_cm_event(ev);
		rds_debug("rdma_cm: %s, status %d", vb.rdma_event_str(copy.what), copy.status);
		if (owner)
			owner->on_event(owner, cm, &copy);
		else if (copy.what == RDMA_CM_EVENT_CONNECT_REQUEST)
			cm_request_refuse(cm);
	}
}

int verbs_cm_errno(const struct verbs_cm_ev *copy)
{
	switch (copy->what) {
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return -ECONNRESET;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return -ENODEV;
	case RDMA_CM_EVENT_ADDR_CHANGE:
		return -EADDRNOTAVAIL;
	case RDMA_CM_EVENT_REJECTED:
		return -ECONNREFUSED;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		return copy->status < 0 ? copy->status : -ECONNABORTED;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		/* EALREADY means a crossing to the engine, and must not come from rdma_cm. */
		return copy->status < 0 && copy->status != -EALREADY ? copy->status : -EHOSTUNREACH;
	default:
		return -EPROTO;
	}
}

/* ---- ids ---- */

/*
 * Sets options of the id.  Failures are ignored: a connection without an option is better than
 * none.
 */
void verbs_cm_options(struct rdma_cm_id *cm, uint8_t tos)
{
	uint8_t timeout = ACK_TIMEOUT;

	if (tos)
		vb.rdma_set_option(cm, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos));
	vb.rdma_set_option(cm, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout));
}

int verbs_cm_id_new(struct verbs_cm_owner *owner, uint8_t tos, struct rdma_cm_id **out)
{
	int err = verbs_err(vb.rdma_create_id(verbs_cm.events, out, owner, RDMA_PS_TCP));

	if (!err)
		verbs_cm_options(*out, tos);
	return err;
}

int verbs_cm_id_new_bound(struct verbs_cm_owner *owner, const struct sockaddr *addr, struct rdma_cm_id **out)
{
	struct sockaddr_storage ss = {0};
	int err = verbs_cm_id_new(owner, 0, out);

	if (err)
		return err;
	memcpy(&ss, addr, addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
	if (addr->sa_family == AF_INET6)
		((struct sockaddr_in6 *)&ss)->sin6_port = 0;
	else
		((struct sockaddr_in *)&ss)->sin_port = 0;
	err = verbs_err(vb.rdma_bind_addr(*out, (struct sockaddr *)&ss));
	if (err)
		vb.rdma_destroy_id(*out);
	return err;
}

void verbs_cm_destroy_bound(struct rdma_cm_id *cm)
{
	if (!verbs_cm_dev_keep_id(cm))
		vb.rdma_destroy_id(cm);
}

static int cm_resolve_ms(void)
{
	return (int)rds_patience_ms(RDS_PATIENCE_CM_RESOLVE);
}

int verbs_cm_resolve(struct rdma_cm_id *cm, const struct rds_conn_id *id, uint16_t port)
{
	struct sockaddr_storage src, dst;

	rds_addr_to_sockaddr(&id->laddr, 0, id->scope, &src);
	rds_addr_to_sockaddr(&id->faddr, port, id->scope, &dst);
	return verbs_err(vb.rdma_resolve_addr(cm, (struct sockaddr *)&src, (struct sockaddr *)&dst, cm_resolve_ms()));
}

int verbs_cm_route(struct rdma_cm_id *cm)
{
	return verbs_err(vb.rdma_resolve_route(cm, cm_resolve_ms()));
}

void verbs_cm_reject(struct rdma_cm_id *cm, const struct verbs_answer *answer)
{
	struct verbs_answer wire;

	verbs_answer_pack(answer, &wire);
	/* if this fails, destroying the id refuses the request, too, without a reason */
	vb.rdma_reject(cm, &wire, sizeof(wire));
	verbs_cm_destroy(cm);
}

/* ---- addresses ---- */

static uint32_t cm_addr_scope(const struct in6_addr *ip)
{
	struct ifaddrs *all, *i;
	uint32_t scope = 0;

	if (getifaddrs(&all))
		return 0;
	for (i = all; i && !scope; i = i->ifa_next) {
		const struct sockaddr_in6 *sin6 = (const void *)i->ifa_addr;

		if (sin6 && sin6->sin6_family == AF_INET6 && rds_ip_equal(&sin6->sin6_addr, ip))
			scope = sin6->sin6_scope_id;
	}
	freeifaddrs(all);
	return scope;
}

void verbs_cm_addr(const struct sockaddr *sa, struct in6_addr *ip, uint32_t *scope)
{
	const struct sockaddr_in *sin = (const void *)sa;
	const struct sockaddr_in6 *sin6 = (const void *)sa;

	*scope = 0;
	if (sa->sa_family == AF_INET) {
		*ip = (struct in6_addr){.s6_addr32 = {0, 0, htonl(0xffff), sin->sin_addr.s_addr}};
		return;
	}
	*ip = sin6->sin6_addr;
	if (IN6_IS_ADDR_LINKLOCAL(ip))
		*scope = sin6->sin6_scope_id ? sin6->sin6_scope_id : cm_addr_scope(ip);
}

/* ---- the part as a whole ---- */

static int cm_channel_open(void)
{
	int flags, err;

	verbs_cm.events = vb.rdma_create_event_channel();
	if (!verbs_cm.events)
		return errno ? -errno : -ENODEV;
	err = os_fd_adopt(&verbs_cm.events->fd);
	if (err)
		return err;
	flags = os_fcntl(verbs_cm.events->fd, F_GETFL, 0);
	return flags < 0 ? flags : os_fcntl(verbs_cm.events->fd, F_SETFL, flags | O_NONBLOCK);
}

/* The helper watches the channel last: until then no other thread looks at any of this. */
int verbs_cm_start(struct verbs_cm_owner *acceptor)
{
	uint16_t port = 0;
	int err = cm_channel_open();

	verbs_cm.acceptor = acceptor;
	verbs_cm.ev.fn = verbs_cm_event;
	if (!err)
		err = verbs_cm_listen(0, verbs_cm.listener, &port);
	if (err)
		goto fail;
	atomic_store(&verbs_cm.port, port);
	registry_set_cm_port(rds_node_registry, port);
	verbs_rendezvous_start();
	err = rds_helper_event_add(&verbs_cm.ev, os_fd_adopted_slot(&verbs_cm.events->fd), EPOLLIN);
	if (!err)
		return 0;
	verbs_rendezvous_stop();
	registry_set_cm_port(rds_node_registry, 0);
	atomic_store(&verbs_cm.port, 0);
	verbs_cm_listen_stop(verbs_cm.listener);
fail:
	if (verbs_cm.events)
		vb.rdma_destroy_event_channel(verbs_cm.events);
	verbs_cm.events = NULL;
	return err;
}

void verbs_cm_forget(void)
{
	verbs_rendezvous_forget();
	verbs_cm_listen_watch_forget();
	verbs_cm_locate_forget();
	verbs_cm_connect_forget();
	verbs_cm_destroy_forget();
	verbs_cm_dev_forget();
	memset(&verbs_cm, 0, sizeof(verbs_cm));
}
