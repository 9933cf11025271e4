/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_locate.c - which process of a node has a port: the side that asks
 * (engine/transport/verbs/cm/port_query.c) and the side that answers (rendezvous.c): rows Q and L
 * of docs/verbs-states.md, and A25.  Which process listens at the port that is asked:
 * test_verbs_rendezvous.c.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/calls/info.h"
#include "engine/node/socket_name.h"
#include "tests/mock/world.h"
#include "tests/unit/registry_helper.h"

static struct peer *const p = &world.peer;

static bool no_memory; /* for calloc() */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory ? NULL : __real_calloc(n, size);
}

/* ---- who asks ---- */

static int locate(const char *to, uint16_t port)
{
	struct rds_conn_id id = {.laddr = v4(US), .faddr = v4(to), .peer_slot = RDS_SLOT_REMOTE};

	return verbs_cm_locate(world.t, &id, port);
}

static void asked(uint16_t port)
{
	const struct rdma_conn_param *param;
	struct verbs_request h;

	if (!p->listener)
		peer_listen(p, THEM, world.rendezvous);
	ck_assert_int_eq(locate(THEM, port), 0);
	world_run();
	param = &peer_event(p, RDMA_CM_EVENT_CONNECT_REQUEST)->param.conn;
	ck_assert_int_eq(verbs_request_check(param->private_data, param->private_data_len, &h), VERBS_OK);
	ck_assert_int_eq(h.ask, VERBS_LOCATE);
	ck_assert_uint_eq(h.port, port);
}

static void is_located(int err)
{
	world_run();
	ck_assert_uint_eq(world.locates, 1);
	ck_assert_int_eq(world.located_err, err);
	world_pass(20000 * MS);
	ck_assert_uint_eq(world.locates, 1);
}

START_TEST(test_q7_to_q12_answers)
{
	static const struct {
		enum verbs_status status;
		bool no_listener;
		int err;
	} answers[] = {
		{VERBS_REDIRECT, false, 0},
		{VERBS_REDIRECT, true, -EPROTO},
		{VERBS_NO_PORT, false, -ENOENT},
		{VERBS_AGAIN, false, -EAGAIN},
		{VERBS_NO_VERSION, false, -EPROTONOSUPPORT},
		{VERBS_GONE, false, -EPROTO},
		{VERBS_OK, false, -EPROTO},
		{VERBS_REFUSED, false, -EPROTO},
	};
	struct rds_procid them = world_peer_id();
	struct verbs_answer a;

	asked(4711);
	world_answer(&a, answers[_i].status);
	if (answers[_i].no_listener)
		a.listener = 0;
	verbs_answer_pack(&a, &a);
	peer_reject(p, &a, sizeof(a));
	is_located(answers[_i].err);
	if (answers[_i].err)
		return;
	ck_assert_mem_eq(&world.located.peer, &them, sizeof(them));
	ck_assert_uint_eq(world.located.peer_port, PEER_PORT);
}
END_TEST

START_TEST(test_q9_nobody)
{
	ck_assert_int_eq(locate(THEM, 1), 0);
	is_located(-ECONNREFUSED);
}
END_TEST

START_TEST(test_q12_accepted)
{
	asked(4711);
	peer_accept(p, NULL, 0, 4);
	is_located(-EPROTO);
}
END_TEST

START_TEST(test_q6_no_way)
{
	ck_assert_int_eq(locate("10.99.0.1", 1), 0);
	is_located(-EHOSTUNREACH);
}
END_TEST

static int (*create_id)(struct rdma_event_channel *ch, struct rdma_cm_id **id, void *arg, enum rdma_port_space ps);
static struct rdma_cm_id *last_id;

static int noted_id(struct rdma_event_channel *ch, struct rdma_cm_id **id, void *arg, enum rdma_port_space ps)
{
	int ret = create_id(ch, id, arg, ps);

	last_id = *id;
	return ret;
}

static void locate_until(unsigned stage);

/* Before there is an address, a route, an answer. */
START_TEST(test_q6_events)
{
	static const struct {
		enum rdma_cm_event_type type;
		int status, err;
	} events[] = {
		{RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH, -ENETUNREACH},
		{RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT, -ETIMEDOUT},
		{RDMA_CM_EVENT_UNREACHABLE, -EALREADY, -EHOSTUNREACH},
		{RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL, -EINVAL},
		{RDMA_CM_EVENT_ADDR_CHANGE, 0, -EADDRNOTAVAIL},
	};

	create_id = vb.rdma_create_id;
	vb.rdma_create_id = noted_id;
	locate_until((unsigned)_i % 3);
	vb.rdma_create_id = create_id;
	mock_cm_inject(last_id, events[_i / 3].type, events[_i / 3].status);
	world_run();
	ck_assert_uint_eq(world.locates, 1);
	ck_assert_int_eq(world.located_err, events[_i / 3].err);
	mock_cm_hold(false);
	world_run();
	if (peer_try_event(p)) {
		p->id = p->ev->id;
		peer_drop_id(p);
	}
	world_pass(20000 * MS);
	ck_assert_uint_eq(world.locates, 1);
}
END_TEST

START_TEST(test_q6_any_step_fails)
{
	unsigned n, failed = 0;

	for (n = 1;; n++) {
		world.locates = 0;
		mock_fail_any(n, _i ? ENOMEM : EINVAL);
		ck_assert_int_eq(locate(THEM, 1), 0);
		world_run();
		ck_assert_uint_eq(world.locates, 1);
		if (!mock_fail_hit())
			break;
		failed += world.located_err != -ECONNREFUSED;
		world_pass(100 * MS);
	}
	mock_fail_any(0, 0);
	ck_assert_uint_gt(failed, 3);
	ck_assert_int_eq(world.located_err, -ECONNREFUSED);
}
END_TEST

/* So many events of it have come. */
static void locate_until(unsigned stage)
{
	peer_listen(p, THEM, world.rendezvous);
	mock_cm_hold(true);
	ck_assert_int_eq(locate(THEM, 1), 0);
	world_run();
	world_cm_next(stage);
}

START_TEST(test_q13_limit)
{
	locate_until((unsigned)_i);
	world_pass(5900 * MS);
	ck_assert_uint_eq(world.locates, 0);
	world_pass(5000 * MS);
	ck_assert_uint_eq(world.locates, 1);
	ck_assert_int_eq(world.located_err, -ETIMEDOUT);
	mock_cm_hold(false);
	world_run();
	if (peer_try_event(p)) {
		p->id = p->ev->id;
		peer_drop_id(p); /* the answer that frees a request which cannot be taken back */
	}
	world_run();
	ck_assert_uint_eq(world.locates, 1);
}
END_TEST

START_TEST(test_q14_removed)
{
	locate_until((unsigned)_i);
	mock_dev_remove(world.ours);
	if (_i == 1) /* else the next step fails first (Q6) */
		ck_assert(mock_cm_drop((unsigned)mock_cm_find(RDMA_CM_EVENT_ROUTE_RESOLVED)));
	mock_cm_hold(false);
	world_pass(20000 * MS);
	ck_assert_uint_eq(world.locates, 1);
	ck_assert_int_eq(world.located_err, -ENODEV);
}
END_TEST

/*
 * Q14, D8: the device is broken, which no id reports.  Nothing waits for an answer that cannot
 * come, not even a request that cannot be taken back.
 */
START_TEST(test_q14_broken)
{
	asked(4711);
	if (_i) {
		world_pass(11000 * MS);
		ck_assert_uint_eq(world.locates, 1);
		ck_assert_int_eq(world.located_err, -ETIMEDOUT);
	}
	mock_async(world.ours, IBV_EVENT_DEVICE_FATAL);
	world_pass(100 * MS);
	ck_assert_uint_eq(world.locates, 1);
	ck_assert_int_eq(world.located_err, _i ? -ETIMEDOUT : -ENODEV);
	ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 0);
	p->id = p->ev->id;
}
END_TEST

/* Many at a time: each is answered once, and no more ids are open than can be answered. */
START_TEST(test_q3_many)
{
	unsigned i;

	for (i = 0; i < 500; i++)
		ck_assert_int_eq(locate(THEM, (uint16_t)(i + 1)), 0);
	ck_assert_uint_le(mock_count(MOCK_ID), 40);
	world_run();
	ck_assert_uint_eq(world.locates, 500);
}
END_TEST

START_TEST(test_q2_too_many)
{
	unsigned i, taken = 0;
	int err;

	for (i = 0; i < 5000; i++) {
		err = locate(THEM, 1);
		ck_assert(!err || err == -ENOBUFS);
		taken += !err;
	}
	ck_assert_uint_ge(taken, 4096);
	ck_assert_uint_lt(taken, 5000);
	/* or each would have threads of its own, of whose turns a busy machine makes half a minute */
	world.no_threads = true;
	world_run();
	world.no_threads = false;
	ck_assert_uint_eq(world.locates, taken);
}
END_TEST

START_TEST(test_q2_no_memory)
{
	no_memory = true;
	ck_assert_int_eq(locate(THEM, 1), -ENOMEM);
	no_memory = false;
	world_pass(20000 * MS);
	ck_assert_uint_eq(world.locates, 0);
}
END_TEST

/* Whoever reads the log knows which versions both sides have. */
START_TEST(test_q11_versions)
{
	struct verbs_answer a;
	char line[100];

	world_listen();
	asked(4711);
	world_answer(&a, VERBS_NO_VERSION);
	a.version_min = VERBS_VERSION_MAX + 6;
	a.version = VERBS_VERSION_MAX + 7;
	verbs_answer_pack(&a, &a);
	peer_reject(p, &a, sizeof(a));
	is_located(-EPROTONOSUPPORT);
	snprintf(line, sizeof(line), "at " THEM " speaks versions %u to %u of", VERBS_VERSION_MAX + 6,
		 VERBS_VERSION_MAX + 7);
	ck_assert_msg(strstr(world_said(), line), "%s", world_said());
	snprintf(line, sizeof(line), "this library %u to %u:", VERBS_VERSION_MIN, VERBS_VERSION_MAX);
	ck_assert_msg(strstr(world_said(), line), "%s", world_said());
}
END_TEST

/* ---- who is asked ---- */

/* L1: for us, wherever it was asked. */
START_TEST(test_l1_us)
{
	struct verbs_request h;

	world_hello(&h, VERBS_CONNECT);
	h.credits = VERBS_CREDITS(0, 20);
	world_peer_asks(&h, US, _i ? verbs_cm.port : world.rendezvous);
	peer_event(p, RDMA_CM_EVENT_ESTABLISHED);
	ck_assert_uint_eq(world.accepts, 1);
}
END_TEST

static struct verbs_answer ask(enum verbs_request_kind what, uint16_t rds_port, const struct rds_procid *wanted,
			       uint16_t at)
{
	struct verbs_request h;
	struct verbs_answer a;

	world_hello(&h, what);
	h.port = rds_port;
	h.credits = VERBS_CREDITS(0, 8);
	if (wanted)
		h.wanted = *wanted;
	world_peer_asks(&h, US, at);
	a = world_answer_in(peer_event(p, RDMA_CM_EVENT_REJECTED));
	peer_drop_id(p);
	world_run();
	return a;
}

static uint32_t bind_port(uint16_t port)
{
	struct registry *reg = rds_node_registry;
	struct in6_addr ip = v4(US);
	uint32_t idx;
	uint16_t got;

	ck_assert_int_eq(registry_sock_add(reg, 12345, 1000, 1000, &idx), 0);
	ck_assert_int_eq(registry_sock_bind(reg, idx, &ip, port, 0, 0, &got), 0);
	return idx;
}

/* L6, L9, L10, at the rendezvous port and at our own. */
START_TEST(test_l6_l9_l10_locate)
{
	uint16_t at = _i ? verbs_cm.port : world.rendezvous;
	struct verbs_answer a;

	ck_assert_int_eq(ask(VERBS_LOCATE, 0, NULL, at).status, VERBS_NO_PORT);
	bind_port(4000);
	a = ask(VERBS_LOCATE, 4000, NULL, at);
	ck_assert_int_eq(a.status, VERBS_REDIRECT);
	ck_assert_mem_eq(&a.self, registry_self(rds_node_registry), sizeof(a.self));
	ck_assert_uint_eq(a.listener, verbs_cm.port);
	ck_assert_int_eq(ask(VERBS_LOCATE, 4001, NULL, at).status, VERBS_NO_PORT);
	a = ask(VERBS_LOCATE, 0, NULL, at);
	ck_assert_int_eq(a.status, VERBS_REDIRECT);
	ck_assert_uint_eq(a.listener, verbs_cm.port);
}
END_TEST

/* The file of the node's registry, as any process could write to it. */
static struct reg_file *the_registry(void)
{
	void *f = mmap(NULL, REG_AREA_OFFSET(1), PROT_READ | PROT_WRITE, MAP_SHARED,
		       os_fd(registry_fds(rds_node_registry)), 0);

	ck_assert_ptr_ne(f, MAP_FAILED);
	return f;
}

/*
 * L11: the registry seems to be in the middle of a change, and its lock cannot be had for a look.
 * The peer must not be told that no process has the port.
 */
START_TEST(test_l11_cannot_be_read)
{
	uint16_t at = _i ? verbs_cm.port : world.rendezvous;
	struct reg_file *f = the_registry();
	struct reg_area *area = (void *)((char *)f + REG_AREA_OFFSET(0));

	bind_port(4000);
	atomic_fetch_add(&area->seq, 1);
	atomic_fetch_xor(&f->h.magic, 1);
	ck_assert_int_eq(ask(VERBS_LOCATE, 4000, NULL, at).status, VERBS_AGAIN);
	ck_assert_int_eq(ask(VERBS_LOCATE, 4001, NULL, at).status, VERBS_AGAIN);
	ck_assert_int_eq(ask(VERBS_LOCATE, 0, NULL, at).status, VERBS_AGAIN);
	atomic_fetch_xor(&f->h.magic, 1);
	atomic_fetch_add(&area->seq, 1);
	ck_assert_int_eq(ask(VERBS_LOCATE, 4000, NULL, at).status, VERBS_REDIRECT);
	ck_assert_int_eq(ask(VERBS_LOCATE, 4001, NULL, at).status, VERBS_NO_PORT);
	munmap(f, REG_AREA_OFFSET(1));
}
END_TEST

/*
 * L12, L13: the socket has no owner, and another process may still have a descriptor of it; then
 * none has.
 */
START_TEST(test_l12_l13_nobodys)
{
	uint16_t at = _i ? verbs_cm.port : world.rendezvous;
	int standin = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct registry *reg = rds_node_registry;
	uint32_t idx = bind_port(4000);
	struct rds_procid name;

	ck_assert_int_ge(standin, 0);
	rds_node_name_bind(standin, &name);
	registry_sock_set_name(reg, idx, &name);
	ck_assert_int_eq(ask(VERBS_LOCATE, 4000, NULL, at).status, VERBS_REDIRECT);
	ck_assert_int_eq(registry_sock_orphan(reg, idx, &name), 0);
	ck_assert_int_eq(ask(VERBS_LOCATE, 4000, NULL, at).status, VERBS_AGAIN);
	ck_assert_int_eq(ask(VERBS_LOCATE, 4000, NULL, at).status, VERBS_AGAIN);
	close(standin);
	ck_assert_int_eq(ask(VERBS_LOCATE, 4000, NULL, at).status, VERBS_NO_PORT);
}
END_TEST

struct other {
	struct rds_procid id;
	uint32_t slot;
};

/* Another process of this host.  It has bound port 4001, and listens at 777 when it is told to. */
static void other_process(int from, int to)
{
	struct in6_addr ip = v4(US);
	struct registry *reg;
	struct other o;
	uint32_t idx;
	uint16_t got;

	registry_abandon(rds_node_registry);
	child_assert(registry_open(&reg) == 0);
	child_assert(registry_sock_add(reg, 12346, 1000, 1000, &idx) == 0);
	child_assert(registry_sock_bind(reg, idx, &ip, 4001, 0, 0, &got) == 0);
	o.id = *registry_self(reg);
	o.slot = registry_self_slot(reg);
	child_say(to, &o, sizeof(o));
	child_wait(from);
	registry_set_cm_port(reg, 777);
	child_say(to, &o, sizeof(o));
	child_wait(from);
}

START_TEST(test_l2_to_l8_another_process)
{
	struct child child = child_start(other_process);
	struct verbs_answer a;
	struct other o;

	child_hear(&child, &o, sizeof(o));
	/* L3 */
	ck_assert_int_eq(ask(VERBS_CONNECT, 0, &o.id, world.rendezvous).status, VERBS_AGAIN);
	/* L7 */
	ck_assert_int_eq(ask(VERBS_LOCATE, 4001, NULL, world.rendezvous).status, VERBS_AGAIN);
	child_tell(&child);
	child_hear(&child, &o, sizeof(o));
	a = ask(VERBS_CONNECT, 0, &o.id, world.rendezvous); /* L2 */
	ck_assert_int_eq(a.status, VERBS_REDIRECT);
	ck_assert_uint_eq(a.listener, 777);
	ck_assert_mem_eq(&a.self, &o.id, sizeof(o.id));
	a = ask(VERBS_LOCATE, 4001, NULL, world.rendezvous); /* L6 */
	ck_assert_int_eq(a.status, VERBS_REDIRECT);
	ck_assert_uint_eq(a.listener, 777);
	child_end(&child, SIGKILL);
	if (_i)
		/* L4 */
		ck_assert_int_eq(ask(VERBS_CONNECT, 0, &o.id, world.rendezvous).status, VERBS_GONE);
	/* L8 */
	ck_assert_int_eq(ask(VERBS_LOCATE, 4001, NULL, world.rendezvous).status, VERBS_NO_PORT);
	/* L5 */
	ck_assert_int_eq(ask(VERBS_CONNECT, 0, &o.id, world.rendezvous).status, VERBS_GONE);
	ck_assert_uint_eq(world.accepts, 0);
}
END_TEST

/* L5a: of another registry: nothing is known of it but that it is there, and that goes with it. */
START_TEST(test_l5a_of_another_registry)
{
	uint16_t at = _i ? verbs_cm.port : world.rendezvous;
	struct rds_procid id = {.b = "somebody else's"};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un name;
	socklen_t len = rds_node_listen_name(&id, &name);

	ck_assert_int_eq(ask(VERBS_CONNECT, 0, &id, at).status, VERBS_GONE);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&name, len), 0);
	ck_assert_int_eq(listen(fd, 0), 0);
	for (int i = 0; i < 3; i++) /* also when it has more to accept than it wanted */
		ck_assert_int_eq(ask(VERBS_CONNECT, 0, &id, at).status, VERBS_AGAIN);
	close(fd);
	ck_assert_int_eq(ask(VERBS_CONNECT, 0, &id, at).status, VERBS_GONE);
}
END_TEST

/* A25: the peer that we ask is of this host, and is killed. */
START_TEST(test_a25_of_this_host)
{
	struct child child = child_start(other_process);
	struct world_conn *c = &world.conn[0];
	struct other o;

	child_hear(&child, &o, sizeof(o));
	child_tell(&child);
	child_hear(&child, &o, sizeof(o));
	c->id = (struct rds_conn_id){.laddr = v4(US), .faddr = v4(US), .peer = o.id, .peer_slot = o.slot};
	ck_assert_int_eq(
		verbs_ep_connect(world.t, &c->id, (struct rds_conn *)(void *)c, (struct rds_received){0}, &c->ep), 0);
	c->open = true;
	child_end(&child, SIGKILL);
	world_run();
	ck_assert_uint_eq(c->downs, 1);
	ck_assert(c->gone);
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_loop_test(t, test_q7_to_q12_answers, 0, 8);
	tcase_add_test(t, test_q9_nobody);
	tcase_add_test(t, test_q12_accepted);
	tcase_add_test(t, test_q6_no_way);
	tcase_add_loop_test(t, test_q6_events, 0, 15);
	tcase_add_loop_test(t, test_q6_any_step_fails, 0, 2);
	tcase_add_loop_test(t, test_q13_limit, 0, 3);
	tcase_add_loop_test(t, test_q14_removed, 0, 4);
	tcase_add_loop_test(t, test_q14_broken, 0, 2);
	tcase_add_test(t, test_q3_many);
	tcase_add_test(t, test_q2_too_many);
	tcase_add_test(t, test_q2_no_memory);
	tcase_add_test(t, test_q11_versions);
	tcase_add_loop_test(t, test_l1_us, 0, 2);
	tcase_add_loop_test(t, test_l6_l9_l10_locate, 0, 2);
	tcase_add_loop_test(t, test_l11_cannot_be_read, 0, 2);
	tcase_add_loop_test(t, test_l12_l13_nobodys, 0, 2);
	tcase_add_loop_test(t, test_l2_to_l8_another_process, 0, 2);
	tcase_add_loop_test(t, test_l5a_of_another_registry, 0, 2);
	tcase_add_test(t, test_a25_of_this_host);
}

int main(void)
{
	Suite *s = suite_create("verbs_locate");

	tests(world_case(s, "ib", world_ib));
	tests(world_case(s, "iwarp", world_iwarp));
	return suite_run(s);
}
