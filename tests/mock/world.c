/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * world.c - what the verbs transport stands on in a test (world.h): the engine's side of its
 * up-calls, what runs when, and begin and end.
 */
#include "tests/mock/world_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/registry_helper.h"

#define ROUNDS_MAX 100000

struct world world;

/* ---- the engine's side ---- */

/* No up-call comes after close(). */
static struct world_conn *conn_of(struct rds_conn *conn)
{
	struct world_conn *c = (struct world_conn *)(void *)conn;

	ck_assert(c >= world.conn && c < world.conn + CONNS);
	ck_assert(c->open);
	return c;
}

static struct rds_conn *up_accept(struct rds_transport *t, struct rds_ep *ep, const struct rds_conn_id *id,
				  struct rds_received there, struct rds_received *here, int *why)
{
	struct world_conn *c = world.next;

	ck_assert_ptr_nonnull(ep);
	ck_assert_ptr_eq(t, world.t);
	world.accepts++;
	world.asked = *id;
	world.asked_there = there;
	if (world.accept_err) {
		*why = world.accept_err;
		return NULL;
	}
	ck_assert_ptr_nonnull(c);
	c->id = *id;
	c->open = true;
	*here = (struct rds_received){.acked = c->rx_seq, .all = c->rx_seq + c->held};
	return (struct rds_conn *)(void *)c;
}

static void up_up(struct rds_conn *conn, struct rds_ep *ep, struct rds_received there)
{
	struct world_conn *c = conn_of(conn);

	c->ep = ep;
	c->ups++;
	c->there = there;
	if (world.not_wanted)
		world_close(c);
}

static void up_down(struct rds_conn *conn, struct rds_ep *ep, int why, bool gone)
{
	struct world_conn *c = conn_of(conn);

	ck_assert_int_lt(why, 0);
	c->downs++;
	c->why = why;
	c->gone = gone;
	c->ep = NULL;
	c->open = false;
	verbs_ep_close(ep);
}

static unsigned char pattern(uint64_t seq, size_t i)
{
	return (unsigned char)(seq * 131 + i * 7 + i / 251);
}

void world_fill(uint64_t seq, unsigned char *bytes, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		bytes[i] = pattern(seq, i);
}

bool world_intact(uint64_t seq, const unsigned char *bytes, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (bytes[i] != pattern(seq, i))
			return false;
	return true;
}

static enum rds_rx_verdict up_message(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	struct world_conn *c = conn_of(conn);

	if (world.later) {
		world.later--;
		return RDS_RX_LATER;
	}
	if (world.refuse_from && c->nmsgs + 1 >= world.refuse_from)
		return RDS_RX_LATER;
	ck_assert_uint_lt(c->nmsgs, MSGS);
	c->msg[c->nmsgs++] = (struct world_msg){rx->hdr.seq, rx->hdr.len, rx->hdr.flags,
						world_intact(rx->hdr.seq, rx->data, rx->hdr.len)};
	if (rx->hdr.seq > c->rx_seq)
		c->rx_seq = rx->hdr.seq;
	verbs_ep_ack(ep, c->rx_seq);
	if (rx->token && world.keep_inplace) {
		ck_assert_uint_lt(world.ninplace, 1024);
		world.inplace[world.ninplace].ep = ep;
		world.inplace[world.ninplace++].token = rx->token;
		return RDS_RX_TAKEN;
	}
	world.copies += !rx->token;
	return RDS_RX_DONE;
}

static void up_evacuate(struct rds_conn *conn, struct rds_ep *ep)
{
	struct verbs_ep *vep = (struct verbs_ep *)ep;
	unsigned i, kept = 0;

	ck_assert_ptr_eq(vep->head.conn, conn);
	world.evacuations++;
	for (i = 0; i < world.ninplace; i++) {
		if (world.inplace[i].ep == ep && !world.no_memory)
			verbs_ep_release(ep, world.inplace[i].token);
		else
			world.inplace[kept++] = world.inplace[i];
	}
	world.ninplace = kept;
}

static void up_writable(struct rds_conn *conn)
{
	conn_of(conn)->writables++;
}

static uint64_t up_sent(struct rds_conn *conn)
{
	return conn_of(conn)->tx_seq + 1; /* it counts what was sent, and one may be on its way */
}

static void up_speak(struct rds_conn *conn)
{
	conn_of(conn)->speak = true;
}

static void up_carried(struct rds_conn *conn, uint64_t id, int err, uint64_t at, const void *data, size_t len)
{
	struct world_conn *c = conn_of(conn);

	if (data) {
		ck_assert_uint_eq(at, c->read_bytes);
		memcpy(c->read + at, data, len);
		c->read_bytes += len;
		return;
	}
	ck_assert_uint_lt(c->novers, 512);
	c->over[c->novers].id = id;
	c->over[c->novers++].err = err;
}

static void up_located(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port, int err)
{
	(void)t;
	(void)port;
	world.locates++;
	world.located = *id;
	world.located_err = err;
}

static const struct rds_transport_up up = {
	.accept = up_accept,
	.up = up_up,
	.down = up_down,
	.message = up_message,
	.evacuate = up_evacuate,
	.writable = up_writable,
	.sent = up_sent,
	.push_later = up_speak,
	.op_done = up_carried,
	.located = up_located,
};

/* ---- running ---- */

static bool speak(void)
{
	struct world_conn *c;
	bool any = false;

	for (c = world.conn; c < world.conn + CONNS; c++) {
		if (!c->speak)
			continue;
		c->speak = false;
		any = true;
		if (c->ep && c->ups)
			verbs_ep_push(c->ep);
	}
	return any;
}

bool world_look(void)
{
	bool any;

	rds_transport_looks_aside = false;
	rx_lock();
	any = verbs_ep_progress(world.t);
	rx_unlock();
	return any;
}

void world_attention(enum rds_attention who)
{
	rx_lock();
	verbs_ep_attention(world.t, who);
	rx_unlock();
}

static bool once(void)
{
	bool any = false;

	while (mock_step())
		any = true;
	any |= world_events_run();
	any |= world_look();
	any |= speak();
	return world_timers_run() || any;
}

void world_run(void)
{
	unsigned rounds = 0;

	while (once())
		ck_assert_msg(++rounds < ROUNDS_MAX, "it never comes to rest");
}

void world_pass(uint64_t ns)
{
	uint64_t end = atomic_load(&mock_now) + ns;

	world_run();
	while (world_timers && world_timers->due_ns <= end) {
		atomic_store(&mock_now, world_timers->due_ns);
		world_run();
	}
	atomic_store(&mock_now, end);
	world_run();
}

void world_tick(uint64_t ns)
{
	atomic_fetch_add(&mock_now, ns);
	while (world_timers_run())
		;
	rds_transport_looks_aside = false;
}

/* ---- begin and end ---- */

int world_claim(const char *ip)
{
	struct in6_addr a = v4(ip);

	return world.t->ops->claims(world.t, &a, 0);
}

void world_start(enum mock_mode mode)
{
	world_begin(mode);
	ck_assert_int_eq(world_claim(US), 1);
}

void world_ib(void)
{
	world_start(MOCK_IB);
}

void world_iwarp(void)
{
	world_start(MOCK_IWARP);
}

struct verbs_dev *world_dev(void)
{
	return atomic_load(&verbs_devs.all);
}

void world_begin(enum mock_mode mode)
{
	memset(&world, 0, sizeof(world));
	atomic_store(&mock_now, 1000000 * MS);
	setenv("RDS_PRELOAD_VERBS_BUFFERS", "128", 0);
	setenv("RDS_PRELOAD_LOG", "error", 0);
	registry_setup();
	ck_assert_int_eq(registry_open(&rds_node_registry), 0);
	os_process_start();
	mock_install();
	world.ours = mock_dev_add("ours", mode, 0);
	world.ours2 = mock_dev_add("ours2", mode, 0);
	world.theirs = mock_dev_add("theirs", mode, 1);
	mock_addr_add(world.ours, US);
	mock_addr_add(world.ours2, US2);
	mock_addr_add(world.theirs, THEM);
	peer_init(&world.peer, 1);
	world.t = rds_verbs_transport();
	world.t->up = &up;
	world.next = &world.conn[1];
	world.rendezvous = (uint16_t)rds_options()->cm_port;
}

static FILE *lines;

void world_listen(void)
{
	lines = tmpfile();
	ck_assert_ptr_nonnull(lines);
	ck_assert_int_eq(dup2(fileno(lines), 2), 2);
	rds_log_setup(RDS_LOG_WARN, NULL);
}

const char *world_said(void)
{
	static char text[8192];
	ssize_t n = pread(fileno(lines), text, sizeof(text) - 1, 0);

	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	return text;
}

void world_said_memlock(const char *what, size_t least, size_t limit)
{
	char begin[100], end[100];
	const char *said = world_said(), *at;
	char *rest;

	snprintf(begin, sizeof(begin), ": no memory for %s ", what);
	snprintf(end, sizeof(end), " bytes: the limit of locked memory is %zu bytes: raise it (ulimit -l unlimited,", limit);
	at = strstr(said, begin);
	ck_assert_msg(at, "not said: %s, but: %s", begin, said);
	ck_assert_uint_ge(strtoull(at + strlen(begin), &rest, 10), least);
	ck_assert_msg(!strncmp(rest, end, strlen(end)), "not said: %s, but: %s", end, rest);
	ck_assert_ptr_null(strstr(rest, begin));
}

void world_buffers_out(uint32_t n)
{
	struct verbs_dev *dev = world_dev();

	ck_assert_uint_eq(dev->posted + dev->nrefill + dev->nsmall + dev->nlarge, dev->nbufs - n);
}

/* Every buffer is somewhere; with no endpoint left there is no other place. */
static void check_device(struct verbs_dev *dev)
{
	ck_assert_uint_eq(dev->neps, 0);
	ck_assert_uint_eq(dev->small_reserved, 0);
	ck_assert_ptr_null(dev->credit_wait);
	if (!dev->dead)
		ck_assert_uint_eq(dev->posted + dev->nrefill + dev->nsmall + dev->nlarge, dev->nbufs);
	ck_assert_uint_eq(dev->srq ? mock_recvs_posted(dev->srq) : mock_recvs_own(dev->ctx), dev->posted);
}

static struct verbs_dev *ours_of(const struct mock_dev *which)
{
	struct verbs_dev *dev = atomic_load(&verbs_devs.all);

	while (dev && mock_dev_of_context(dev->ctx) != which)
		dev = dev->next;
	return dev;
}

void world_drop_device(struct mock_dev *which)
{
	struct verbs_dev *dev;

	while ((dev = ours_of(which))) {
		check_device(dev);
		verbs_dev_removed(dev, "end of the test");
		world_run();
		ck_assert_ptr_ne(ours_of(which), dev);
	}
}

static void close_all(void)
{
	struct world_conn *c;

	world_release();
	for (c = world.conn; c < world.conn + CONNS; c++)
		world_close(c);
	world_pass(20000 * MS);
}

void world_end(void)
{
	world.later = 0;
	world.keep_inplace = false;
	mock_cm_hold(false);
	mock_fail_any(0, 0);
	close_all();
	peer_drop_id(&world.peer);
	close_all();
	ck_assert_ptr_null(verbs_eps.all);
	peer_end(&world.peer);
	world_drop_device(world.ours);
	world_drop_device(world.ours2);
	ck_assert_ptr_null(atomic_load(&verbs_devs.all));
	mock_dev_remove(world.ours); /* some test may have had it opened by librdmacm only */
	mock_dev_remove(world.ours2);
	world_run();
	verbs_rendezvous_stop();
	verbs_cm_locate_forget();
	ck_assert_uint_eq(atomic_load(&rds_helper_extra_threads), 0);
	verbs_cm_listen_stop(verbs_cm.listener);
	if (verbs_cm.events)
		vb.rdma_destroy_event_channel(verbs_cm.events);
	mock_check_leaks();
	registry_close(rds_node_registry);
	registry_teardown();
}
