/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_device.c - devices come, report events, and go (engine/transport/verbs/dev/): rows D1
 * to D8 of docs/verbs-states.md, and whatever can run out on the way.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/mock/world.h"

static struct world_conn *const a = &world.conn[0], *const b = &world.conn[1];
static struct peer *const p = &world.peer;

static void setup_unclaimed(void)
{
	setenv("RDS_PRELOAD_LOG_FILE", "/dev/null", 1);
	world_begin(MOCK_IB);
}

/* Somebody asks at the rendezvous port. */
static enum verbs_status rendezvous_answers(void)
{
	struct verbs_request h;
	struct verbs_answer answer;

	world_hello(&h, VERBS_LOCATE);
	h.port = 4000;
	world_peer_asks(&h, US, world.rendezvous);
	answer = world_answer_in(peer_event(p, RDMA_CM_EVENT_REJECTED));
	peer_drop_id(p);
	return (enum verbs_status)answer.status;
}

/* ---- claims ---- */

START_TEST(test_claims)
{
	ck_assert_int_eq(world_claim("127.0.0.1"), 0);
	ck_assert_ptr_null(verbs_cm.events); /* not even asked */
	ck_assert_int_eq(world_claim("10.7.7.7"), 0);
	ck_assert_int_eq(world_claim(THEM), 0);
	ck_assert_ptr_null(world_dev());
	ck_assert_int_eq(world_claim(US), 1);
	ck_assert_ptr_nonnull(world_dev());
	ck_assert_int_eq(world_claim(US), 1);
	ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 1);
	ck_assert_uint_ne(verbs_cm.port, 0);
	ck_assert_int_eq(world_claim(US2), 1);
	ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 2);
}
END_TEST

/*
 * The n-th call that can fail does.  Either the claim fails, or the call was of no importance.
 * What is left works with the next try, and is freed in the end.
 */
START_TEST(test_claims_nth_failure)
{
	unsigned n, errors = 0, before[MOCK_KINDS], k;
	int ret;

	for (n = 1;; n++) {
		for (k = 0; k < MOCK_KINDS; k++)
			before[k] = mock_count((enum mock_kind)k);
		mock_fail_any(n, _i ? ENOMEM : EINVAL);
		ret = world_claim(US);
		if (!mock_fail_hit())
			break;
		if (ret == 1) { /* a new device each time */
			mock_fail_any(0, 0);
			world_run();
			world_drop_device(world.ours);
			continue;
		}
		ck_assert_int_le(ret, 0);
		errors++;
		ck_assert_ptr_null(world_dev());
		for (k = MOCK_CONTEXT; k < MOCK_EVENT_CHANNEL; k++)
			ck_assert_uint_eq(mock_count((enum mock_kind)k), before[k]);
	}
	mock_fail_any(0, 0);
	ck_assert_int_eq(ret, 1);
	ck_assert_uint_gt(errors, 6);
	world_pass(2000 * MS); /* receives that could not be posted */
	ck_assert_uint_eq(mock_recvs_posted(world_dev()->srq), world_dev()->nbufs);
}
END_TEST

/* The same with a start that is new every time: nothing is left of one that failed. */
START_TEST(test_start_nth_failure)
{
	mock_fail_any((unsigned)_i + 1, ENOMEM);
	if (world_claim(US) != 1) {
		ck_assert(mock_fail_hit());
		mock_fail_any(0, 0);
		ck_assert_int_eq(world_claim(US), 1);
	}
	mock_fail_any(0, 0);
	ck_assert_uint_ne(verbs_cm.port, 0);
	world_pass(3000 * MS);
	ck_assert_uint_eq(mock_recvs_posted(world_dev()->srq), world_dev()->nbufs);
	ck_assert_int_eq(rendezvous_answers(), VERBS_NO_PORT);
}
END_TEST

/* Devices that can do little. */
START_TEST(test_small_devices)
{
	switch (_i) {
	case 0:
		world.ours->attr.max_srq_wr = 70;
		break;
	case 1:
		world.ours->attr.max_qp_wr = 32;
		break;
	case 2:
		world.ours->attr.max_cqe = 600;
		break;
	case 3:
		world.ours->max_inline = world.ours2->max_inline = 0;
		break;
	case 4:
		world.ours->memlock = 4u << 20;
		break;
	case 5:
		world.ours->attr.max_sge = 2;
		break;
	}
	ck_assert_int_eq(world_claim(US), 1);
	world_pair();
	while (a->tx_seq < 300) {
		if (world_send(a, 2000 + a->tx_seq * 50, 0) == 0)
			continue;
		verbs_ep_want_room(a->ep, verbs_ep_acked(a->ep));
		world_pass(10 * MS);
	}
	world_run();
	ck_assert(world_all_came(a, b));
	ck_assert_uint_eq(a->downs + b->downs, 0);
}
END_TEST

/* False: it may not be raised. */
static bool limit_is(rlim_t bytes)
{
	struct rlimit l;

	ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &l), 0);
	l.rlim_cur = bytes;
	if (bytes > l.rlim_max)
		l.rlim_max = bytes;
	return setrlimit(RLIMIT_MEMLOCK, &l) == 0;
}

/* Less memory than all buffers need: fewer buffers; none at all: an error that says what to do. */
START_TEST(test_memlock)
{
	world.ours->memlock = 100 * 9000;
	ck_assert_int_eq(world_claim(US), 1);
	ck_assert_uint_lt(world_dev()->nbufs, 16);
	ck_assert_uint_ge(world_dev()->nbufs, 8);
	ck_assert(limit_is(123456));
	world_listen();
	world.ours2->memlock = 10000;
	ck_assert_int_eq(world_claim(US2), -ENOMEM);
	ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 1);
	world_said_memlock("receive buffers,", 10001, 123456);
}
END_TEST

/* Nor can each connection have its queues. */
START_TEST(test_memlock_connection)
{
	ck_assert_int_eq(world_claim(US), 1);
	ck_assert(limit_is(123456));
	world_listen();
	mock_fail_from(MOCK_rdma_create_qp, 1, ENOMEM);
	peer_listen(p, THEM, PEER_PORT);
	ck_assert_int_eq(world_connect(a, US, THEM, PEER_PORT, &(struct rds_procid){{1}}), 0);
	world_run();
	ck_assert_uint_eq(a->downs, 1);
	world_said_memlock("a connection's queues, about", 512, 123456);
}
END_TEST

/*
 * The log line names locked memory only where that may be the cause.  With a limit of 0 the kernel
 * says EPERM; without a limit there is none to raise.
 */
START_TEST(test_not_memlock)
{
	static const struct {
		int err;
		rlim_t limit;
		const char *says;
	} t[] = {{EIO, 123456, NULL},
		 {EINVAL, 0, NULL},
		 {EPERM, 123456, NULL},
		 {EPERM, 0, "the limit of locked memory is 0 bytes: raise it"},
		 {ENOMEM, RLIM_INFINITY, "locked memory is not limited, so the machine or the device has no more"}};

	if (!limit_is(t[_i].limit))
		return;
	world_listen();
	mock_fail_from(MOCK_ibv_reg_mr, 1, t[_i].err);
	ck_assert_int_eq(world_claim(US), -t[_i].err);
	if (t[_i].says)
		ck_assert_ptr_nonnull(strstr(world_said(), t[_i].says));
	else
		ck_assert_ptr_null(strstr(world_said(), "locked memory"));
	ck_assert_ptr_nonnull(strstr(world_said(), "the RDMA device ours cannot be used: "));
}
END_TEST

/* ---- what devices say ---- */

START_TEST(test_d1_comm_est)
{
	struct verbs_request h, wire;

	world_hello(&h, VERBS_CONNECT);
	verbs_request_pack(&h, &wire);
	peer_connect(p, THEM, US, verbs_cm.port, &wire, sizeof(wire));
	mock_cm_hold(true);
	ck_assert(mock_cm_pick((unsigned)mock_cm_find(RDMA_CM_EVENT_CONNECT_REQUEST)));
	world_run();
	mock_async_qp(verbs_eps.all->qp, IBV_EVENT_COMM_EST);
	world_run();
	/* the endpoint needs a frame, or this event */
	ck_assert_int_lt(mock_cm_find(RDMA_CM_EVENT_ESTABLISHED), 0);
	ck_assert_uint_eq(b->ups + b->downs, 0);
	mock_cm_hold(false);
	world_close(b);
	world_pass(2000 * MS);
}
END_TEST

START_TEST(test_d2_queue_pair)
{
	static const enum ibv_event_type types[] = {
		IBV_EVENT_QP_FATAL,
		IBV_EVENT_QP_REQ_ERR,
		IBV_EVENT_QP_ACCESS_ERR,
		IBV_EVENT_PATH_MIG_ERR,
	};

	world_pair();
	ck_assert_int_eq(world_send(b, 100, 0), 0);
	mock_run();
	mock_async_qp(world_ep(a)->qp, types[_i]);
	world_run();
	ck_assert_uint_eq(a->downs, 1);
	ck_assert_int_eq(a->why, -ECONNRESET);
	ck_assert_uint_eq(a->nmsgs, b->tx_seq);
}
END_TEST

static void all_gone(void)
{
	world_run();
	ck_assert_uint_eq(a->downs, 1);
	ck_assert_int_eq(a->why, -ENODEV);
	world_close(b);
	world_pass(3000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
	ck_assert_ptr_nonnull(world_dev()); /* the other one */
	ck_assert_ptr_null(world_dev()->next);
}

START_TEST(test_d3_fatal)
{
	struct verbs_dev *d;

	world_pair();
	d = world_ep(a)->dev;
	if (_i == 0)
		mock_async(world.ours, IBV_EVENT_DEVICE_FATAL);
	else if (_i == 1 || !d->srq)
		mock_async_cq(d->cq, IBV_EVENT_CQ_ERR);
	else
		mock_async_srq(d->srq, IBV_EVENT_SRQ_ERR);
	all_gone();
}
END_TEST

static const enum ibv_event_type of_port[] = {
	IBV_EVENT_PORT_ERR,  IBV_EVENT_PORT_ACTIVE, IBV_EVENT_LID_CHANGE,	 IBV_EVENT_PKEY_CHANGE,
	IBV_EVENT_SM_CHANGE, IBV_EVENT_GID_CHANGE,  IBV_EVENT_CLIENT_REREGISTER,
};

static const enum ibv_event_type of_qp[] = {
	IBV_EVENT_SQ_DRAINED,
	IBV_EVENT_QP_LAST_WQE_REACHED,
	IBV_EVENT_PATH_MIG,
	IBV_EVENT_COMM_EST,
};

START_TEST(test_d4_d5_no_harm)
{
	world_pair();
	if (_i < 7)
		mock_async(world.ours, of_port[_i]);
	else if (_i < 11)
		mock_async_qp(world_ep(a)->qp, of_qp[_i - 7]);
	else if (world_ep(a)->dev->srq)
		mock_async_srq(world_ep(a)->dev->srq, IBV_EVENT_SRQ_LIMIT_REACHED);
	world_run();
	ck_assert_int_eq(world_send(a, 100, 0), 0);
	world_run();
	ck_assert(world_all_came(a, b));
	ck_assert_uint_eq(a->downs, 0);
}
END_TEST

/* D4: a line at level info, none at level warn.  D5, D5a, D5b: no line. */
START_TEST(test_d4_d5_lines)
{
	unsigned posts;
	bool said;

	world_pair();
	world_listen();
	posts = mock_calls(MOCK_ibv_post_send);
	for (said = false;; said = true) {
		rds_log_setup(said ? RDS_LOG_INFO : RDS_LOG_WARN, NULL);
		if (_i < 7)
			mock_async(world.ours, of_port[_i]);
		else if (_i < 10)
			mock_async_qp(world_ep(a)->qp, of_qp[_i - 7]);
		else if (world_ep(a)->dev->srq)
			mock_async_srq(world_ep(a)->dev->srq, IBV_EVENT_SRQ_LIMIT_REACHED);
		world_run();
		if (said)
			break;
		ck_assert_str_eq(world_said(), "");
	}
	if (_i < 7)
		ck_assert_ptr_nonnull(strstr(world_said(), "ours, port 1: event\n"));
	else if (_i == 9) /* of a queue pair, for which no port is known */
		ck_assert_ptr_nonnull(strstr(world_said(), "ours, port 0: event\n"));
	else
		ck_assert_str_eq(world_said(), "");
	ck_assert_uint_eq(mock_calls(MOCK_ibv_post_send), posts);
	ck_assert_uint_eq(a->downs, 0);
}
END_TEST

/* About an endpoint that is closed, or freed in the same breath. */
START_TEST(test_d6_late)
{
	world_pair();
	mock_async_qp(world_ep(a)->qp, IBV_EVENT_QP_FATAL);
	mock_async_qp(world_ep(a)->qp, IBV_EVENT_QP_FATAL);
	mock_async_qp(world_ep(a)->qp, IBV_EVENT_COMM_EST);
	world_close(a);
	world_pass(2000 * MS);
	ck_assert_uint_eq(a->downs, 0);
}
END_TEST

START_TEST(test_d7_no_events)
{
	world_pair();
	mock_fail(MOCK_ibv_get_async_event, 1, EIO);
	mock_async(world.ours, IBV_EVENT_PORT_ERR);
	all_gone();
}
END_TEST

/*
 * The device is pulled out, with everything under way that can be.  Messages in place hold its
 * memory until they are read, or until there is memory to copy them.
 */
START_TEST(test_d8_removed)
{
	unsigned i;

	world_pair();
	world_large(a, b);
	world_large(b, a);
	world.keep_inplace = true;
	for (i = 0; i < 6; i++) {
		ck_assert_int_eq(world_send(b, 700, 0), 0);
		ck_assert_int_eq(world_send(a, 9000, 0), 0);
	}
	world_run();
	ck_assert_uint_gt(world.ninplace, 4);
	ck_assert_int_eq(world_send(a, 20000, 0), 0);
	ck_assert_int_eq(world_send(b, 20000, 0), 0);
	if (_i & 1)
		world.ours->lose_flush = 1000;
	if (_i & 2)
		mock_run();
	world.no_memory = true;
	mock_dev_remove(world.ours);
	world_run();
	ck_assert_uint_eq(a->downs, 1);
	ck_assert_int_eq(a->why, -ENODEV);
	world_close(b);
	world_pass(5000 * MS);
	ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 2); /* messages lie in its memory */
	world.keep_inplace = false;
	if (_i & 4)
		world_release();
	world.no_memory = false;
	world_pass(2000 * MS);
	ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 1);
	ck_assert_uint_eq(world_claim(US), 0);
}
END_TEST

/* A device of the same address and name, in its place: everything works again. */
START_TEST(test_d8_and_back)
{
	unsigned i;

	for (i = 0; i < 5; i++) {
		struct mock_dev *again;

		a->ups = a->downs = b->ups = b->downs = 0;
		world_pair();
		mock_dev_remove(world.ours);
		world_run();
		ck_assert_uint_eq(a->downs, 1);
		world_close(b);
		world_pass(3000 * MS);
		mock_addr_del(US);
		again = mock_dev_add("ours", world.ours->mode, 0);
		mock_addr_add(again, US);
		world.ours = again;
		ck_assert_int_eq(world_claim(US), 1);
	}
}
END_TEST

/* Removed while connections are asked for on both sides. */
START_TEST(test_d8_while_connecting)
{
	struct rds_procid self = *registry_self(rds_node_registry);
	int stage;

	ck_assert_int_eq(world_claim(US2), 1);
	mock_cm_hold(true);
	ck_assert_int_eq(world_connect(a, US, US2, verbs_cm.port, &self), 0);
	for (stage = _i; stage; stage--) {
		mock_cm_next();
		world_run();
	}
	mock_dev_remove(world.ours);
	mock_cm_hold(false);
	world_pass(100 * MS);
	ck_assert_uint_eq(a->downs, 1);
	world_pass(20000 * MS);
	world_close(b);
	world_pass(3000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
}
END_TEST

/* rdma_cm leaves it at 655 ms. */
START_TEST(test_rnr_timer)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct verbs_ep *ep;

	world_pair();
	for (ep = verbs_eps.all; ep; ep = ep->next) {
		ck_assert_int_eq(vb.ibv_query_qp(ep->qp, &attr, IBV_QP_MIN_RNR_TIMER, &init), 0);
		ck_assert_uint_eq(attr.min_rnr_timer, 10);
	}
	world_close(a);
	world_close(b);
}
END_TEST

static struct rds_ep_device described(const struct world_conn *c)
{
	struct rds_ep_device d;

	memset(&d, 0xff, sizeof(d));
	world.t->ops->describe(c->ep, &d);
	return d;
}

/*
 * What rds-info shows of an endpoint.  If a device does not answer, the peer's number stays
 * unknown.
 */
START_TEST(test_described)
{
	union ibv_gid *gid;
	struct rds_ep_device da, db;

	world_pair();
	gid = &world_ep(a)->cm->route.addr.addr.ibaddr.sgid;
	memset(gid, 17, sizeof(*gid));
	memset(gid + 1, 18, sizeof(*gid));
	da = described(a);
	db = described(b);
	ck_assert_uint_eq(da.qp_num, world_ep(a)->qp->qp_num);
	ck_assert_uint_eq(da.dst_qp_num, world_ep(b)->qp->qp_num);
	ck_assert_uint_eq(db.qp_num, da.dst_qp_num);
	ck_assert_uint_eq(db.dst_qp_num, da.qp_num);
	ck_assert_uint_eq(da.sgid[0], 17);
	ck_assert_uint_eq(da.sgid[15], 17);
	ck_assert_uint_eq(da.dgid[0], 18);
	ck_assert_uint_eq(da.dgid[15], 18);
	ck_assert_uint_eq(da.max_send_wr, world_dev()->caps.sq);
	ck_assert_uint_eq(da.max_send_sge, 2);
	ck_assert_uint_eq(da.max_recv_wr, world_dev()->srq ? world_dev()->caps.srq : VERBS_RQ);
	ck_assert_uint_eq(da.frag, world_ep(a)->frame);
	ck_assert_uint_eq(da.sl, 0);
	mock_fail(MOCK_ibv_query_qp, 1, EIO);
	da = described(a);
	ck_assert_uint_eq(da.qp_num, world_ep(a)->qp->qp_num);
	ck_assert_uint_eq(da.dst_qp_num, UINT32_MAX);
	world_close(a);
	world_close(b);
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_test(t, test_described);
	tcase_add_loop_test(t, test_d2_queue_pair, 0, 4);
	tcase_add_loop_test(t, test_d3_fatal, 0, 3);
	tcase_add_loop_test(t, test_d4_d5_no_harm, 0, 12);
	tcase_add_loop_test(t, test_d4_d5_lines, 0, 11);
	tcase_add_test(t, test_d6_late);
	tcase_add_test(t, test_d7_no_events);
	tcase_add_loop_test(t, test_d8_removed, 0, 8);
	tcase_add_test(t, test_d8_and_back);
	tcase_add_loop_test(t, test_d8_while_connecting, 0, 5);
}

int main(void)
{
	Suite *s = suite_create("verbs_device");
	TCase *t = world_case(s, "unclaimed", setup_unclaimed);

	tcase_add_test(t, test_claims);
	tcase_add_loop_test(t, test_claims_nth_failure, 0, 2);
	tcase_add_loop_test(t, test_start_nth_failure, 0, 40);
	tcase_add_loop_test(t, test_small_devices, 0, 6);
	tcase_add_test(t, test_memlock);
	tcase_add_test(t, test_memlock_connection);
	tcase_add_loop_test(t, test_not_memlock, 0, 5);
	t = world_case(s, "ib", world_ib);
	tests(t);
	tcase_add_test(t, test_d1_comm_est);
	tcase_add_test(t, test_rnr_timer);
	tests(world_case(s, "iwarp", world_iwarp));
	return suite_run(s);
}
