/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fault.c - a transport that wraps another one and makes it fail, for tests (RDS_PRELOAD_FAULT).
 *
 *	RDS_PRELOAD_FAULT=seed=7,disconnect=2000,delay=500:3000,drop=5000,connect=10,accept=10,send=100,later=100,memory=100,dup=50
 *
 * Each number N: on average one event in N.  disconnect: the endpoint breaks before or after this send or receive.
 * delay=N:US: what is sent on the endpoint is held back for up to US microseconds.  drop: from now on everything sent
 * (acknowledgements too) is swallowed, and a little later the endpoint breaks: a path that has died.  connect, accept: the
 * attempt (or the question where a port is) fails, is refused.  send: no room, although there is.  later: a received message is not taken at once.
 * memory: there is none for a message that has to be kept because the endpoint broke.  dup: a received message comes a second
 * time, as a retransmission; after a reconnect the peer seems to have received less than it has, so that it gets that again.
 *
 * An endpoint of ours holds the inner one, and is what the inner transport knows as its connection: so every up-call finds
 * its way back.  What is held back or swallowed is copied, so that retained() finds it as long as the peer has not
 * acknowledged it.  The order of messages is never changed, and a break is always carried out by the helper through up->down,
 * as a real one is.  Must not know any particular transport.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/transport/fault_spec.h"

#define POS_HELD (1ull << 63) /* the rest of the position is the address of a copy */
#define DROP_NS (20 * 1000000ull)
#define ROOM_NS 200000ull

struct fault {
	struct rds_transport t; /* first */
	struct fault *next;
	struct rds_transport *inner;
	struct rds_transport_ops ops;
	struct fault_spec spec;
	_Atomic uint64_t rng;
};

/* A copy of a message that the inner transport did not get when it was sent. */
struct held {
	struct held *next;
	uint64_t seq; /* 0: control traffic, never asked for again */
	size_t len;
	struct rds_wire_hdr hdr;
	unsigned char data[];
};

struct fault_ep {
	struct rds_ep_head head;
	struct rds_ep *inner; /* NULL until the inner transport names it */
	/* send side: the helper releases what was held back without the connection's lock, so there is one of our own */
	pthread_mutex_t lock;
	struct held *copies, **copies_tail; /* not acknowledged yet */
	struct held *waiting;		    /* first of them that the inner transport has not got */
	bool holding;
	_Atomic bool swallow, broken;
	struct rds_timer breaks, late, room;
	/* receive side (rx) */
	unsigned inplace;
	bool closed, kept;
};

static struct fault *faults; /* engine start only */
static const struct rds_transport_up fault_up;

static struct fault *fault_of(struct fault_ep *f)
{
	return (struct fault *)f->head.t;
}

/* splitmix64: any thread may draw; the sequence depends on the seed alone. */
static uint64_t draw(struct fault *fl)
{
	uint64_t z = atomic_fetch_add(&fl->rng, 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static bool chance(struct fault *fl, uint64_t n)
{
	return n && draw(fl) % n == 0;
}

static void after(struct fault *fl, struct rds_timer *tm, uint64_t limit_ns)
{
	rds_timer_set(tm, os_now_ns() + draw(fl) % (limit_ns + 1));
}

/* ---- endpoints ---- */

static void break_now(struct fault_ep *f)
{
	if (!atomic_exchange(&f->broken, true))
		rds_timer_set(&f->breaks, os_now_ns());
}

static void breaks_timer(struct rds_timer *tm)
{
	struct fault_ep *f = container_of(tm, struct fault_ep, breaks);

	rds_debug("fault: disconnect");
	f->head.t->up->down(f->head.conn, (struct rds_ep *)f, -ECONNRESET, false); /* closes f */
}

static void room_timer(struct rds_timer *tm)
{
	struct fault_ep *f = container_of(tm, struct fault_ep, room);

	rx_lock();
	f->head.t->up->writable(f->head.conn);
	rx_unlock();
}

/* The time of holding back is over, or there is room for the rest: in order, then new messages may go directly again. */
static void late_timer(struct rds_timer *tm)
{
	struct fault_ep *f = container_of(tm, struct fault_ep, late);
	const struct rds_transport_ops *ops = fault_of(f)->inner->ops;
	bool waits = false;
	struct iovec iov;
	struct held *h;
	uint64_t pos;

	pthread_mutex_lock(&f->lock);
	if (atomic_load(&f->swallow))
		goto out;
	while ((h = f->waiting)) {
		iov = (struct iovec){.iov_base = h->data, .iov_len = h->len};
		if (ops->send(f->inner, &h->hdr, &iov, h->len, &pos)) {
			if (waits) /* want_room() is set: writable comes */
				break;
			waits = true;
			ops->want_room(f->inner, ops->acked(f->inner));
			continue;
		}
		f->waiting = h->next;
	}
	f->holding = f->waiting != NULL;
	ops->flush(f->inner, true);
out:
	pthread_mutex_unlock(&f->lock);
}

static struct fault_ep *ep_new(struct fault *fl, struct rds_conn *conn)
{
	struct fault_ep *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->head.t = &fl->t;
	f->head.conn = conn;
	f->copies_tail = &f->copies;
	f->breaks.fn = breaks_timer;
	f->late.fn = late_timer;
	f->room.fn = room_timer;
	pthread_mutex_init(&f->lock, NULL);
	return f;
}

static void ep_free(struct fault_ep *f)
{
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static void drop_copies(struct fault_ep *f, uint64_t acked)
{
	struct held *h;

	while ((h = f->copies) && h != f->waiting && h->seq <= acked) {
		f->copies = h->next;
		if (!f->copies)
			f->copies_tail = &f->copies;
		free(h);
	}
}

static void fault_close(struct rds_ep *ep)
{
	struct fault_ep *f = (struct fault_ep *)ep;
	bool gone;

	if (f->inner)
		fault_of(f)->inner->ops->close(f->inner);
	rds_timer_cancel(&f->breaks); /* only now that no up-call can set them again */
	rds_timer_cancel(&f->late);
	rds_timer_cancel(&f->room);
	f->waiting = NULL;
	if (!f->kept)
		drop_copies(f, UINT64_MAX);
	rx_lock();
	f->closed = true;
	gone = f->inplace == 0 && !f->kept;
	rx_unlock();
	if (gone)
		ep_free(f);
}

static void fault_keep(struct rds_ep *ep, bool on)
{
	struct fault_ep *f = (struct fault_ep *)ep;
	bool gone;

	fault_of(f)->inner->ops->keep(f->inner, on);
	if (!on)
		drop_copies(f, UINT64_MAX);
	rx_lock();
	f->kept = on;
	gone = !on && f->closed && f->inplace == 0;
	rx_unlock();
	if (gone)
		ep_free(f);
}

static int fault_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, uint64_t rx_seq,
			 struct rds_ep **ep)
{
	struct fault *fl = (struct fault *)t;
	bool fail = chance(fl, fl->spec.connect);
	struct fault_ep *f;
	int err;

	if (fail && draw(fl) % 2)
		return -ECONNREFUSED;
	f = ep_new(fl, conn);
	if (!f)
		return -ENOMEM;
	err = fl->inner->ops->connect(fl->inner, id, (struct rds_conn *)f, rx_seq, &f->inner);
	if (err) {
		ep_free(f);
		return err;
	}
	if (fail) /* later: the attempt may be under way still, or just have come up */
		after(fl, &f->breaks, 1000000);
	*ep = (struct rds_ep *)f;
	return 0;
}

/* ---- send side ---- */

static int hold(struct fault_ep *f, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len, uint64_t *pos)
{
	struct held *h = malloc(sizeof(*h) + len);
	struct rds_hdr dec = {0};
	unsigned char *to;
	size_t n;

	if (!h || rds_hdr_decode(hdr, &dec)) {
		free(h);
		return -ENOMEM;
	}
	h->next = NULL;
	h->seq = dec.seq;
	h->hdr = *hdr;
	h->len = len;
	for (to = h->data; len; iov++) {
		n = iov->iov_len < len ? iov->iov_len : len;
		memcpy(to, iov->iov_base, n);
		to += n;
		len -= n;
	}
	*f->copies_tail = h;
	f->copies_tail = &h->next;
	if (!f->waiting)
		f->waiting = h;
	*pos = POS_HELD | (uint64_t)(uintptr_t)h;
	return 0;
}

/* What happens to this endpoint from this message on. */
static void choose(struct fault *fl, struct fault_ep *f)
{
	if (!atomic_load(&f->swallow) && chance(fl, fl->spec.drop)) {
		atomic_store(&f->swallow, true);
		after(fl, &f->breaks, DROP_NS);
	}
	if (!f->holding && chance(fl, fl->spec.delay)) {
		f->holding = true;
		after(fl, &f->late, fl->spec.delay_us * 1000);
	}
}

static int fault_send(struct rds_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len,
		      uint64_t *pos)
{
	struct fault_ep *f = (struct fault_ep *)ep;
	struct fault *fl = fault_of(f);
	bool cut = chance(fl, fl->spec.disconnect), before = cut && draw(fl) % 2;
	int err;

	if (before)
		break_now(f);
	if (atomic_load(&f->broken))
		return -ENOTCONN;
	if (chance(fl, fl->spec.send)) {
		after(fl, &f->room, ROOM_NS);
		return -EAGAIN;
	}
	pthread_mutex_lock(&f->lock);
	choose(fl, f);
	if (f->holding || atomic_load(&f->swallow))
		err = hold(f, hdr, iov, len, pos);
	else
		err = fl->inner->ops->send(f->inner, hdr, iov, len, pos);
	pthread_mutex_unlock(&f->lock);
	if (cut)
		break_now(f);
	return err;
}

static void fault_flush(struct rds_ep *ep, bool service)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	pthread_mutex_lock(&f->lock);
	fault_of(f)->inner->ops->flush(f->inner, service);
	pthread_mutex_unlock(&f->lock);
}

static const void *fault_retained(struct rds_ep *ep, uint64_t pos)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	if (chance(fault_of(f), fault_of(f)->spec.memory))
		return NULL;
	if (pos & POS_HELD)
		return ((const struct held *)(uintptr_t)(pos & ~POS_HELD))->data;
	return fault_of(f)->inner->ops->retained(f->inner, pos);
}

static uint64_t fault_acked(struct rds_ep *ep)
{
	struct fault_ep *f = (struct fault_ep *)ep;
	uint64_t acked;

	pthread_mutex_lock(&f->lock);
	acked = fault_of(f)->inner->ops->acked(f->inner);
	drop_copies(f, acked);
	pthread_mutex_unlock(&f->lock);
	return acked;
}

static bool fault_want_room(struct rds_ep *ep, uint64_t seen_ack)
{
	struct fault_ep *f = (struct fault_ep *)ep;
	bool moved;

	pthread_mutex_lock(&f->lock);
	moved = fault_of(f)->inner->ops->want_room(f->inner, seen_ack);
	pthread_mutex_unlock(&f->lock);
	return moved;
}

static void fault_push(struct rds_ep *ep)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	if (atomic_load(&f->swallow) || atomic_load(&f->broken))
		return;
	pthread_mutex_lock(&f->lock);
	fault_of(f)->inner->ops->push(f->inner);
	pthread_mutex_unlock(&f->lock);
}

/* ---- receive side (rx) ---- */

static bool fault_progress(struct rds_transport *t)
{
	struct rds_transport *inner = ((struct fault *)t)->inner;

	return inner->ops->progress(inner);
}

static void fault_ack(struct rds_ep *ep, uint64_t seq)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	if (!atomic_load(&f->swallow))
		fault_of(f)->inner->ops->ack(f->inner, seq);
}

static void fault_release(struct rds_ep *ep, void *token)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	fault_of(f)->inner->ops->release(f->inner, token);
	if (--f->inplace == 0 && f->closed && !f->kept)
		ep_free(f);
}

static void fault_attention(struct rds_transport *t, enum rds_attention who)
{
	struct rds_transport *inner = ((struct fault *)t)->inner;

	inner->ops->attention(inner, who);
}

static bool fault_relieve(struct rds_transport *t, bool now)
{
	struct fault *fl = (struct fault *)t;

	return fl->inner->ops->relieve(fl->inner, now);
}

static bool fault_pending(struct rds_transport *t)
{
	struct rds_transport *inner = ((struct fault *)t)->inner;

	return inner->ops->pending(inner);
}

static int fault_claims(struct rds_transport *t, const struct in6_addr *laddr, uint32_t scope)
{
	struct rds_transport *inner = ((struct fault *)t)->inner;

	return inner->ops->claims(inner, laddr, scope);
}

static int fault_locate(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port)
{
	struct fault *fl = (struct fault *)t;

	if (chance(fl, fl->spec.connect))
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

/* ---- up-calls of the inner transport; its "connection" is our endpoint ---- */

static struct fault *wraps(const struct rds_transport *inner)
{
	struct fault *fl = faults;

	while (fl->inner != inner)
		fl = fl->next;
	return fl;
}

static struct rds_conn *up_accept(struct rds_transport *t, const struct rds_conn_id *id, uint64_t ack, uint64_t *rx_seq,
				  int *why)
{
	struct fault *fl = wraps(t);
	struct fault_ep *f;

	if (chance(fl, fl->spec.accept)) {
		*why = -ECONNREFUSED;
		return NULL;
	}
	f = ep_new(fl, NULL);
	if (!f) {
		*why = -ENOMEM;
		return NULL;
	}
	f->head.conn = fl->t.up->accept(&fl->t, id, ack, rx_seq, why);
	if (!f->head.conn) {
		ep_free(f);
		return NULL;
	}
	return (struct rds_conn *)f;
}

static struct fault_ep *met(struct rds_conn *conn, struct rds_ep *ep)
{
	struct fault_ep *f = (struct fault_ep *)conn;

	if (!f->inner)
		f->inner = ep;
	return f;
}

static void up_up(struct rds_conn *conn, struct rds_ep *ep, uint64_t ack)
{
	struct fault_ep *f;

	rx_lock(); /* a message may have come before us */
	f = met(conn, ep);
	rx_unlock();
	if (chance(fault_of(f), fault_of(f)->spec.dup)) {
		uint64_t less = draw(fault_of(f)) % 16;

		ack -= less < ack ? less : ack;
	}
	f->head.t->up->up(f->head.conn, (struct rds_ep *)f, ack);
}

static void up_down(struct rds_conn *conn, struct rds_ep *ep, int why, bool peer_gone)
{
	struct fault_ep *f;

	rx_lock();
	f = met(conn, ep);
	rx_unlock();
	f->head.t->up->down(f->head.conn, (struct rds_ep *)f, why, peer_gone);
}

/* The bytes are still there, whatever became of the first: the receive lock is held. */
static void deliver_again(struct fault_ep *f, const struct rds_rx *rx)
{
	struct rds_rx again = {.hdr = rx->hdr, .data = rx->data};

	again.hdr.flags |= RDS_FLAG_RETRANSMITTED;
	f->head.t->up->message(f->head.conn, (struct rds_ep *)f, &again);
}

static enum rds_rx_verdict up_message(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	struct fault_ep *f = met(conn, ep);
	struct fault *fl = fault_of(f);
	bool cut = chance(fl, fl->spec.disconnect);
	enum rds_rx_verdict v;

	if (cut && draw(fl) % 2)
		break_now(f);
	if (atomic_load(&f->broken))
		return RDS_RX_DONE; /* lost with the endpoint, and not acknowledged */
	if (chance(fl, fl->spec.later))
		return RDS_RX_LATER;
	v = f->head.t->up->message(f->head.conn, (struct rds_ep *)f, rx);
	if (v != RDS_RX_LATER && rx->hdr.flags != RDS_FLAG_CONG_BITMAP && chance(fl, fl->spec.dup))
		deliver_again(f, rx);
	if (v == RDS_RX_TAKEN && rx->token)
		f->inplace++;
	if (cut)
		break_now(f);
	return v;
}

static void up_evacuate(struct rds_conn *conn, struct rds_ep *ep)
{
	struct fault_ep *f = met(conn, ep);

	f->head.t->up->evacuate(f->head.conn, (struct rds_ep *)f);
}

static void up_writable(struct rds_conn *conn)
{
	struct fault_ep *f = (struct fault_ep *)conn;

	rds_timer_set(&f->late, os_now_ns()); /* what we hold back goes first */
	f->head.t->up->writable(f->head.conn);
}

static void up_speak(struct rds_conn *conn)
{
	struct fault_ep *f = (struct fault_ep *)conn;

	f->head.t->up->speak(f->head.conn);
}

static void up_located(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port, int err)
{
	struct fault *fl = wraps(t);

	fl->t.up->located(&fl->t, id, port, err);
}

static const struct rds_transport_up fault_up = {
	.accept = up_accept,
	.up = up_up,
	.down = up_down,
	.message = up_message,
	.pressure = rds_pressure,
	.evacuate = up_evacuate,
	.writable = up_writable,
	.speak = up_speak,
	.located = up_located,
};

static void fill_ops(struct fault *fl)
{
	fl->ops = (struct rds_transport_ops){
		.name = fl->inner->ops->name,
		/* what is held back dies with this process */
		.caps = fl->inner->ops->caps & ~(unsigned)RDS_TCAP_SURVIVES,
		.start = fault_start,
		.stop = fault_stop,
		.connect = fault_connect,
		.close = fault_close,
		.send = fault_send,
		.flush = fault_flush,
		.retained = fault_retained,
		.keep = fault_keep,
		.acked = fault_acked,
		.want_room = fault_want_room,
		.progress = fault_progress,
		.ack = fault_ack,
		.release = fault_release,
		.relieve = fault_relieve,
		.attention = fault_attention,
		.pending = fault_pending,
	};
	if (fl->inner->ops->push)
		fl->ops.push = fault_push;
	if (fl->inner->ops->caps & RDS_TCAP_REMOTE) {
		fl->ops.claims = fault_claims;
		fl->ops.locate = fault_locate;
	}
}

struct rds_transport *rds_fault_transport(struct rds_transport *inner)
{
	const char *text = rds_options()->fault;
	struct fault_spec spec;
	struct fault *fl;

	if (!*text)
		return inner;
	if (!fault_spec_parse(text, &spec)) {
		rds_error("RDS_PRELOAD_FAULT=%s is not understood, no faults are injected. It is a list with commas of seed=N, "
			  "disconnect=N, delay=N:MICROSECONDS, drop=N, connect=N, accept=N, send=N, later=N, memory=N, dup=N: one event in N",
			  text);
		return inner;
	}
	for (fl = faults; fl && fl->inner != inner; fl = fl->next)
		;
	if (!fl) {
		fl = calloc(1, sizeof(*fl));
		if (!fl)
			return inner;
		fl->next = faults;
		faults = fl;
	}
	fl->inner = inner;
	fl->spec = spec;
	atomic_store(&fl->rng, spec.seed);
	fill_ops(fl);
	fl->t.ops = &fl->ops;
	fl->t.up = inner->up;
	inner->up = &fault_up;
	rds_info("faults are injected into transport %s: %s", inner->ops->name, text);
	return &fl->t;
}
