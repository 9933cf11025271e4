/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock_cm_event.c - events of rdma_cm in the mock: left by calls, delivered to a channel, fetched
 * (which is when librdmacm does much of its work), acknowledged.
 */
#include <check.h>
#include <unistd.h>

#include "tests/mock/mock_impl.h"

struct mock_cm_evs mock_cm_pending = TAILQ_HEAD_INITIALIZER(mock_cm_pending);
static TAILQ_HEAD(, mock_events) channels = TAILQ_HEAD_INITIALIZER(channels);
static bool held;

/* ---- left ---- */

struct mock_cm_ev *mock_cm_say(struct mock_id *id, enum rdma_cm_event_type type, int status)
{
	struct mock_cm_ev *e = calloc(1, sizeof(*e));

	e->id = id;
	e->ev.id = &id->id;
	e->ev.event = type;
	e->ev.status = status;
	TAILQ_INSERT_TAIL(&mock_cm_pending, e, link);
	return e;
}

struct mock_cm_ev *mock_cm_send(struct mock_id *from, struct mock_id *to, enum rdma_cm_event_type type, int status)
{
	struct mock_cm_ev *e = mock_cm_say(to, type, status);

	e->a = from->dev;
	e->b = to->dev;
	return e;
}

void mock_cm_data(struct mock_cm_ev *e, const void *data, size_t len, size_t least)
{
	e->len = len > least ? len : least;
	e->data = e->len ? calloc(1, e->len) : NULL;
	if (len)
		memcpy(e->data, data, len);
	e->ev.param.conn.private_data = e->data;
	e->ev.param.conn.private_data_len = (uint8_t)e->len;
}

static void free_event(struct mock_cm_ev *e)
{
	free(e->data);
	memset(e, 0xa5, sizeof(*e));
	free(e);
}

static bool is_about(const struct mock_cm_ev *e, const struct mock_id *id)
{
	return e->id == id || e->ev.listen_id == &id->id;
}

void mock_cm_forget(struct mock_id *id)
{
	struct mock_events *ch = (struct mock_events *)id->id.channel;
	struct mock_cm_ev *e, *next;

	for (e = TAILQ_FIRST(&mock_cm_pending); e; e = next) {
		next = TAILQ_NEXT(e, link);
		if (!is_about(e, id))
			continue;
		TAILQ_REMOVE(&mock_cm_pending, e, link);
		free_event(e);
	}
	for (e = TAILQ_FIRST(&ch->ready); e; e = next) {
		next = TAILQ_NEXT(e, link);
		if (!is_about(e, id))
			continue;
		TAILQ_REMOVE(&ch->ready, e, link);
		mock_pipe_take(ch->ch.fd, "event channel");
		free_event(e);
	}
}

/* ---- delivered ---- */

/* The id for a request that has come.  NULL: there is no listener, and the asking side is told. */
static struct mock_id *arrive(struct mock_cm_ev *e)
{
	struct mock_id *asks = e->id, *l = mock_listener_for(asks), *id;
	struct mock_cm_ev *no;

	if (!l) {
		no = mock_cm_say(asks, RDMA_CM_EVENT_REJECTED, mock_reject_status(asks, true));
		no->a = asks->to;
		no->b = asks->dev;
		mock_cm_data(no, NULL, 0, asks->dev->mode == MOCK_IWARP ? 0 : 148);
		return NULL;
	}
	if (!mock_dev_usable(asks->to))
		mock_fault("a request for a device that librdmacm has no use of any more");
	id = mock_id_new((struct mock_events *)l->id.channel, l->host, l->id.context);
	id->state = ID_REQUEST;
	id->passive = true;
	id->listener = l;
	id->dev = asks->to;
	id->to = asks->dev;
	id->peer = asks;
	asks->peer = id;
	id->id.route.addr.src_storage = asks->id.route.addr.dst_storage;
	id->id.route.addr.dst_storage = asks->id.route.addr.src_storage;
	id->id.verbs = mock_context(id->dev);
	id->id.port_num = 1;
	e->id = id;
	e->ev.id = &id->id;
	e->ev.listen_id = &l->id;
	return id;
}

static bool gets_through(const struct mock_cm_ev *e)
{
	return (!e->a || !e->a->cut) && (!e->b || !e->b->cut);
}

static bool deliver(struct mock_cm_ev *e)
{
	struct mock_events *ch;

	if (!gets_through(e))
		return false;
	TAILQ_REMOVE(&mock_cm_pending, e, link);
	if (e->ev.event == RDMA_CM_EVENT_CONNECT_REQUEST && !arrive(e)) {
		free_event(e);
		return true;
	}
	if (e->ev.event == RDMA_CM_EVENT_ESTABLISHED && !e->id->passive && e->id->id.qp &&
	    e->id->id.qp->state == IBV_QPS_INIT)
		e->id->id.qp->state = IBV_QPS_RTS; /* iWARP: the kernel does it */
	if (e->ev.event == RDMA_CM_EVENT_REJECTED && e->id->state == ID_REQUEST)
		e->id->state = ID_DOWN;
	ch = (struct mock_events *)e->id->id.channel;
	TAILQ_INSERT_TAIL(&ch->ready, e, link);
	mock_pipe_fill(ch->out, "event channel");
	return true;
}

bool mock_cm_step(void)
{
	struct mock_cm_ev *e;

	if (held)
		return false;
	TAILQ_FOREACH(e, &mock_cm_pending, link)
	if (gets_through(e))
		return deliver(e);
	return false;
}

/* ---- the test's hand ---- */

void mock_cm_hold(bool hold)
{
	MOCK_LOCK;

	held = hold;
	mock_moved();
}

static struct mock_cm_ev *at(unsigned index)
{
	struct mock_cm_ev *e = TAILQ_FIRST(&mock_cm_pending);

	while (e && index--)
		e = TAILQ_NEXT(e, link);
	return e;
}

unsigned mock_cm_waiting(void)
{
	MOCK_LOCK;
	unsigned n = 0;

	while (at(n))
		n++;
	return n;
}

bool mock_cm_pick(unsigned index)
{
	MOCK_LOCK;
	struct mock_cm_ev *e = at(index);

	return e && deliver(e);
}

bool mock_cm_next(void)
{
	return mock_cm_pick(0);
}

int mock_cm_find(enum rdma_cm_event_type type)
{
	MOCK_LOCK;
	int i;

	for (i = 0; at((unsigned)i); i++)
		if (at((unsigned)i)->ev.event == type)
			return i;
	return -1;
}

bool mock_cm_drop(unsigned index)
{
	MOCK_LOCK;
	struct mock_cm_ev *e = at(index);

	if (!e)
		return false;
	TAILQ_REMOVE(&mock_cm_pending, e, link);
	if (e->ev.event == RDMA_CM_EVENT_ESTABLISHED)
		e->id->said_up = false;
	else
		e->id->said_down = false;
	free_event(e);
	return true;
}

void mock_cm_inject_data(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status, const void *data, size_t len)
{
	MOCK_LOCK;
	struct mock_cm_ev *e = mock_cm_say((struct mock_id *)id, type, status);

	mock_cm_data(e, data, len, 0);
	deliver(e);
}

void mock_cm_inject(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status)
{
	mock_cm_inject_data(id, type, status, NULL, 0);
}

/*
 * An event that cannot get through becomes what comes when everybody has waited long enough. False:
 * nothing comes.
 */
static bool late(struct mock_cm_ev *e)
{
	struct mock_id *passive = e->id->peer;

	switch (e->ev.event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		e->ev.event = RDMA_CM_EVENT_ADDR_ERROR;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		e->ev.event = RDMA_CM_EVENT_ROUTE_ERROR;
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		if (passive)
			mock_cm_say(passive, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
		e->ev.event = RDMA_CM_EVENT_UNREACHABLE;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		e->id->said_down = false;
		return false;
	default:
		e->ev.event = RDMA_CM_EVENT_UNREACHABLE;
	}
	memset(&e->ev.param, 0, sizeof(e->ev.param));
	e->ev.status = -ETIMEDOUT;
	e->a = e->b = NULL;
	return true;
}

void mock_cm_timeout(void)
{
	struct mock_cm_ev *e, *next;

	for (e = TAILQ_FIRST(&mock_cm_pending); e; e = next) {
		next = TAILQ_NEXT(e, link);
		if (gets_through(e) || late(e))
			continue;
		TAILQ_REMOVE(&mock_cm_pending, e, link);
		free_event(e);
	}
}

/* ---- fetched ---- */

/* The answer to our request: the queue pair works from now on, the peer is told. */
static void answered(struct mock_id *id, struct mock_cm_ev *e)
{
	struct mock_qp *qp = (struct mock_qp *)id->id.qp;

	if (!qp)
		return; /* stays CONNECT_RESPONSE: rdma_establish's business */
	if (qp->qp.state != IBV_QPS_INIT || !id->peer) {
		mock_qp_error(qp);
		id->failed = true;
		id->state = ID_DOWN;
		e->ev.event = RDMA_CM_EVENT_CONNECT_ERROR;
		e->ev.status = -EINVAL;
		mock_id_end(id, RDMA_CM_EVENT_REJECTED, mock_reject_status(id, false), NULL, 0);
		return;
	}
	qp->qp.state = IBV_QPS_RTS;
	qp->rnr_retry = e->ev.param.conn.rnr_retry_count;
	e->ev.event = RDMA_CM_EVENT_ESTABLISHED;
	id->state = ID_UP;
	if (!id->peer->said_up) {
		id->peer->said_up = true;
		mock_cm_send(id, id->peer, RDMA_CM_EVENT_ESTABLISHED, 0);
	}
}

static void over(struct mock_id *id, const struct mock_cm_ev *e)
{
	id->state = ID_DOWN;
	if (e->ev.event == RDMA_CM_EVENT_REJECTED && id->id.qp)
		mock_qp_error((struct mock_qp *)id->id.qp);
	if (e->ev.event == RDMA_CM_EVENT_DISCONNECTED && mock.timewait)
		mock_cm_say(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
}

static void resolved(struct mock_id *id, struct mock_cm_ev *e)
{
	if (mock_id_opens(id)) {
		id->state = ID_ADDR;
	} else {
		id->state = ID_IDLE;
		e->ev.event = RDMA_CM_EVENT_ADDR_ERROR;
		e->ev.status = -EPERM;
	}
}

static void effects(struct mock_id *id, struct mock_cm_ev *e)
{
	switch (e->ev.event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		resolved(id, e);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		id->state = ID_ROUTE;
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
		id->state = ID_IDLE;
		break;
	case RDMA_CM_EVENT_ROUTE_ERROR:
		id->state = ID_ADDR;
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		id->listener = NULL;
		mock_made(MOCK_ID);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		answered(id, e);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		id->state = ID_UP;
		break;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_DISCONNECTED:
		over(id, e);
		break;
	default:
		break;
	}
}

static bool swallowed(const struct mock_id *id, const struct mock_cm_ev *e)
{
	return id->failed && (e->ev.event == RDMA_CM_EVENT_REJECTED || e->ev.event == RDMA_CM_EVENT_DISCONNECTED);
}

static int get_cm_event(struct rdma_event_channel *ibch, struct rdma_cm_event **ev)
{
	MOCK_LOCK;
	struct mock_events *ch = (struct mock_events *)ibch;
	struct mock_cm_ev *e;

	MOCK_FAILS_MINUS(rdma_get_cm_event);
	while (mock_pipe_take(ibch->fd, "rdma_get_cm_event")) {
		e = TAILQ_FIRST(&ch->ready);
		TAILQ_REMOVE(&ch->ready, e, link);
		if (swallowed(e->id, e)) {
			free_event(e);
			continue;
		}
		effects(e->id, e);
		mock_got(e->ev.listen_id ? &((struct mock_id *)e->ev.listen_id)->events : &e->id->events);
		*ev = &e->ev;
		mock_moved();
		return 0;
	}
	return -1;
}

static int ack_cm_event(struct rdma_cm_event *ev)
{
	MOCK_LOCK;
	struct mock_id *id = (struct mock_id *)(ev->listen_id ? ev->listen_id : ev->id);

	MOCK_FAILS_MINUS(rdma_ack_cm_event);
	mock_acked(&id->events, 1, "rdma_ack_cm_event");
	free_event((struct mock_cm_ev *)ev);
	return 0;
}

/* ---- channels ---- */

static struct rdma_event_channel *create_event_channel(void)
{
	MOCK_LOCK;
	struct mock_events *ch;

	MOCK_FAILS_NULL(rdma_create_event_channel);
	ch = calloc(1, sizeof(*ch));
	ch->ch.fd = mock_pipe(&ch->out);
	ch->host = mock.host;
	TAILQ_INIT(&ch->ready);
	TAILQ_INSERT_TAIL(&channels, ch, link);
	mock_made(MOCK_EVENT_CHANNEL);
	return &ch->ch;
}

static void destroy_event_channel(struct rdma_event_channel *ibch)
{
	MOCK_LOCK;
	struct mock_events *ch = (struct mock_events *)ibch;
	struct mock_id *id;

	mock_fails(MOCK_rdma_destroy_event_channel);
	TAILQ_FOREACH(id, &mock_ids, link)
	if (id->id.channel == ibch) {
		mock_fault("event channel destroyed that an id uses");
		return;
	}
	close(ibch->fd);
	close(ch->out);
	TAILQ_REMOVE(&channels, ch, link);
	mock_unmade(MOCK_EVENT_CHANNEL);
	free(ch);
}

static const char *event_str(enum rdma_cm_event_type event)
{
	static const char *const names[] = {
		"ADDR_RESOLVED",   "ADDR_ERROR",       "ROUTE_RESOLVED", "ROUTE_ERROR",
		"CONNECT_REQUEST", "CONNECT_RESPONSE", "CONNECT_ERROR",	 "UNREACHABLE",
		"REJECTED",	   "ESTABLISHED",      "DISCONNECTED",	 "DEVICE_REMOVAL",
		"MULTICAST_JOIN",  "MULTICAST_ERROR",  "ADDR_CHANGE",	 "TIMEWAIT_EXIT",
	};

	return (unsigned)event < sizeof(names) / sizeof(names[0]) ? names[event] : "?";
}

void mock_cm_reset(void)
{
	TAILQ_INIT(&mock_ids);
	TAILQ_INIT(&mock_cm_pending);
	TAILQ_INIT(&channels);
	held = false;
}

void mock_cm_event_install(void)
{
	vb.rdma_create_event_channel = create_event_channel;
	vb.rdma_destroy_event_channel = destroy_event_channel;
	vb.rdma_get_cm_event = get_cm_event;
	vb.rdma_ack_cm_event = ack_cm_event;
	vb.rdma_event_str = event_str;
}
