/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fault.c - a transport that wraps another one and makes it fail, for tests (RDS_PRELOAD_FAULT).
 *
 *	RDS_PRELOAD_FAULT=seed=7,disconnect=2000,delay=500:3000,drop=5000,connect=10,accept=10,
 *		send=100,later=100,memory=100,dup=50		(in one line)
 *
 * Each number N means: on average one event in N.
 *
 *	disconnect	the endpoint breaks before or after this send or receive; the first time
 *			among the first N of a process, so that a test with more is never without
 *	delay=N:US	messages sent on the endpoint are held back for up to US microseconds
 *	drop		from now on everything sent (acknowledgements, too) is swallowed, and up to
 *			20 ms later the endpoint breaks, as if the path had failed
 *	connect		the attempt to connect fails, or the question where a port is
 *	accept		the connection is refused
 *	send		no room, although there is room
 *	later		a received message is not taken at once
 *	memory		no memory for a message that has to be kept because the endpoint broke
 *	dup		a received message comes a second time, as a retransmission; or, after a
 *			reconnect, the peer seems to have received less than it has, and gets the
 *			rest again
 *	show		a region cannot be registered with the device
 *	post		an operation that a device could carry out finds no room
 *	kill		the process that relays for others is killed (kill.c)
 *
 * An endpoint of this transport wraps the inner endpoint.  The inner transport takes it for its
 * connection, so every up-call comes here first.  The order of messages never changes.  The helper
 * carries out each break through up->down, as for a real one.  The way out is in send.c, the way in
 * is in recv.c.
 *
 * Must not know any particular transport.
 */
#include <stdlib.h>

#include "engine/conn/conn.h"
#include "tests/faults/transport/fault.h"

#define FIRST_PASS 8 /* sends and receives of a FIRST endpoint, of which one breaks it */

const struct rds_transport_up *fault_engine_up;

static struct fault *faults; /* the list changes only while the engine starts */

/* splitmix64 */
uint64_t fault_draw(struct fault *fl)
{
	uint64_t z = atomic_fetch_add(&fl->rng, 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

bool fault_chance(struct fault *fl, uint64_t n)
{
	return n && fault_draw(fl) % n == 0;
}

bool fault_cuts(struct fault_ep *f)
{
	struct fault *fl = fault_of(f);
	uint64_t n = fl->spec.disconnect, i;

	if (!n)
		return false;
	if (f->head.t == &fl->first)
		return atomic_fetch_add(&f->passed, 1) + 1 == f->cut_at;
	i = atomic_fetch_add(&fl->passed, 1);
	return i < n ? i == fl->first_cut : fault_chance(fl, n);
}

void fault_after(struct fault *fl, struct rds_timer *tm, uint64_t limit_ns)
{
	rds_timer_set(tm, os_now_ns() + fault_draw(fl) % (limit_ns + 1));
}

struct fault *fault_find_outer(const struct rds_transport *inner)
{
	struct fault *fl = faults;

	while (fl->inner != inner)
		fl = fl->next;
	return fl;
}

/* ---- endpoints ---- */

void fault_break(struct fault_ep *f)
{
	if (!atomic_exchange(&f->broken, true))
		rds_timer_set(&f->breaks, os_now_ns());
}

static void fault_breaks_timer(struct rds_timer *tm)
{
	struct fault_ep *f = container_of(tm, struct fault_ep, breaks);

	rds_debug("fault: disconnect");
	f->head.t->up->down(f->head.conn, (struct rds_ep *)f, -ECONNRESET, false); /* closes f */
}

struct fault_ep *fault_ep_new(struct fault *fl, const struct rds_transport *t, struct rds_conn *conn)
{
	struct fault_ep *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->head.t = (struct rds_transport *)t;
	f->head.conn = conn;
	f->fault = fl;
	f->breaks.fn = fault_breaks_timer;
	fault_send_init(f);
	return f;
}

bool fault_first_is_whole(const struct rds_conn_id *id)
{
	return !((id->peer_slot ^ registry_self_slot(rds_node_registry)) & 1);
}

struct fault_ep *fault_ep_new_first(struct fault *fl, const struct rds_conn_id *id, struct rds_conn *conn)
{
	struct fault_ep *f = fault_ep_new(fl, &fl->first, conn);

	if (f && !fault_first_is_whole(id))
		f->cut_at = 1 + (unsigned)(fault_draw(fl) % FIRST_PASS);
	return f;
}

void fault_ep_free(struct fault_ep *f)
{
	pthread_mutex_destroy(&f->lock);
	free(f);
}

/* Has another endpoint of the connection taken its place? */
static bool fault_is_replaced(const struct fault_ep *f)
{
	const struct rds_conn *conn = f->head.conn;

	return conn && atomic_load(&conn->state) == RDS_CONN_UP && conn->ep != (const struct rds_ep *)f;
}

static void fault_close(struct rds_ep *ep)
{
	struct fault_ep *f = (struct fault_ep *)ep;
	bool gone;

	if (f->head.t->ops->caps & RDS_TCAP_FIRST) /* tests/faults/run looks for that */
		rds_info("fault: a first endpoint took %u messages, and %s", f->sent,
			 atomic_load(&f->broken) ? "breaks"
			 : fault_is_replaced(f)	 ? "is replaced"
						 : "ends");
	if (f->inner)
		fault_inner_ops(f)->close(f->inner);
	rds_timer_cancel(&f->breaks); /* from here on no up-call can set the timers again */
	rds_timer_cancel(&f->late);
	rds_timer_cancel(&f->room);
	f->waiting = NULL;
	if (!f->kept)
		fault_drop_copies(f, UINT64_MAX);
	rx_lock();
	f->closed = true;
	gone = f->inplace == 0 && !f->kept;
	rx_unlock();
	if (gone)
		fault_ep_free(f);
}

static void fault_keep(struct rds_ep *ep, bool on)
{
	struct fault_ep *f = (struct fault_ep *)ep;
	bool gone;

	fault_inner_ops(f)->keep(f->inner, on);
	if (!on)
		fault_drop_copies(f, UINT64_MAX);
	rx_lock();
	f->kept = on;
	gone = !on && f->closed && f->inplace == 0;
	rx_unlock();
	if (gone)
		fault_ep_free(f);
}

static int fault_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn,
			 struct rds_received here, struct rds_ep **ep)
{
	struct fault *fl = (struct fault *)t;
	bool fail = fault_chance(fl, fl->spec.connect);
	struct fault_ep *f;
	int err;

	if (fail && fault_draw(fl) % 2)
		return -ECONNREFUSED;
	f = fault_ep_new(fl, &fl->t, conn);
	if (!f)
		return -ENOMEM;
	err = fl->inner->ops->connect(fl->inner, id, (struct rds_conn *)f, here, &f->inner);
	if (err) {
		fault_ep_free(f);
		return err;
	}
	if (fail) /* fails later: meanwhile the endpoint may be connecting or up */
		fault_after(fl, &f->breaks, 1000000);
	*ep = (struct rds_ep *)f;
	return 0;
}

/* The next endpoint of the connection is none of open(). */
static int fault_first_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn,
			       struct rds_received here, struct rds_ep **ep)
{
	struct fault *fl = container_of(t, struct fault, first);

	return fault_connect(&fl->t, id, conn, here, ep);
}

static int fault_open(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, struct rds_ep **ep)
{
	struct fault *fl = (struct fault *)t;
	struct rds_ep *inner;
	struct fault_ep *f;
	int err;

	if (!fault_first_is_whole(id) && fault_chance(fl, fl->spec.connect))
		return -ECONNREFUSED;
	f = fault_ep_new_first(fl, id, conn);
	if (!f)
		return -ENOMEM;
	err = fl->inner->ops->open(fl->inner, id, (struct rds_conn *)f, &inner);
	if (err) {
		fault_ep_free(f);
		return err;
	}
	rx_lock(); /* a message may have come before this, and have set f->inner */
	f->inner = inner;
	rx_unlock();
	*ep = (struct rds_ep *)f;
	return 0;
}

/* ---- the transport ---- */

static void fault_attach(struct rds_ep *ep, struct rds_conn *conn)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	f->head.conn = conn;
	fault_inner_ops(f)->attach(f->inner, (struct rds_conn *)f);
}

static int fault_claims(struct rds_transport *t, const struct in6_addr *laddr, uint32_t scope)
{
	struct rds_transport *inner = ((struct fault *)t)->inner;

	return inner->ops->claims(inner, laddr, scope);
}

static int fault_locate(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port)
{
	struct fault *fl = (struct fault *)t;

	if (fault_chance(fl, fl->spec.connect))
		return -EHOSTUNREACH;
	return fl->inner->ops->locate(fl->inner, id, port);
}

static int fault_start(struct rds_transport *t)
{
	struct rds_transport *inner = ((struct fault *)t)->inner;

	return inner->ops->start(inner);
}

static void fault_stop(struct rds_transport *t)
{
	struct rds_transport *inner = ((struct fault *)t)->inner;

	inner->ops->stop(inner);
}

static void fault_exit_wait(struct rds_transport *t)
{
	struct rds_transport *inner = ((struct fault *)t)->inner;

	if (inner->ops->exit_wait)
		inner->ops->exit_wait(inner);
}

/* What only long messages and operations need is left out. */
static void fault_fill_first_ops(struct fault *fl)
{
	fl->first_ops = fl->ops;
	fl->first_ops.caps = (fl->ops.caps & ~(unsigned)RDS_TCAP_DEVICE_OPS) | RDS_TCAP_FIRST;
	fl->first_ops.open = NULL;
	fl->first_ops.connect = fault_first_connect;
	fl->first_ops.attach = fault_attach;
	fl->first_ops.fetchable = NULL;
	fl->first_ops.fetch = NULL;
	fl->first_ops.describe = NULL;
}

static void fault_fill_ops(struct fault *fl)
{
	fl->ops = (struct rds_transport_ops){
		.name = fl->inner->ops->name,
		/* messages that are held back are lost with this process */
		.caps = fl->inner->ops->caps & ~(unsigned)RDS_TCAP_SURVIVES,
		.start = fault_start,
		.stop = fault_stop,
		.exit_wait = fault_exit_wait,
		.connect = fault_connect,
		.close = fault_close,
		.keep = fault_keep,
	};
	fault_send_ops(fl);
	fault_recv_ops(fl);
	if (fl->inner->ops->caps & RDS_TCAP_REMOTE) {
		fl->ops.claims = fault_claims;
		fl->ops.locate = fault_locate;
	}
	if (fl->inner->ops->open) {
		fl->ops.open = fault_open;
		fault_fill_first_ops(fl);
	}
}

struct rds_transport *fault_transport(struct rds_transport *inner)
{
	const char *text = rds_options()->fault;
	struct fault_spec spec;
	struct fault *fl;

	if (!*text)
		return inner;
	if (!fault_spec_parse(text, &spec)) {
		rds_error("RDS_PRELOAD_FAULT=%s is not understood, so no socket can be bound. It is a list with "
			  "commas of seed=N, disconnect=N, delay=N:MICROSECONDS, drop=N, connect=N, accept=N, send=N, "
			  "later=N, memory=N, dup=N, show=N, post=N, kill=N: one event in N",
			  text);
		rds_transport_set.none = true;
		return inner;
	}
	if (fault_kill(&spec))
		return inner;
	for (fl = faults; fl && fl->inner != inner; fl = fl->next)
		;
	if (!fl) {
		fl = calloc(1, sizeof(*fl));
		if (!fl) {
			rds_transport_set.none = true;
			return inner;
		}
		fl->next = faults;
		faults = fl;
	}
	fl->inner = inner;
	fl->spec = spec;
	atomic_store(&fl->rng, spec.seed);
	atomic_store(&fl->passed, 0);
	fl->first_cut = spec.disconnect ? fault_draw(fl) % spec.disconnect : 0;
	fault_fill_ops(fl);
	fl->t.ops = &fl->ops;
	fl->first.ops = &fl->first_ops;
	fl->t.up = fl->first.up = fault_engine_up = inner->up;
	inner->up = &fault_up;
	rds_info("faults are injected into transport %s: %s", inner->ops->name, text);
	return &fl->t;
}

static void __attribute__((constructor)) fault_offer(void)
{
	rds_transport_wrap = fault_transport;
}
