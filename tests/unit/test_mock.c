/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_mock.c - the mock's devices (tests/mock) do what mock.h says: the tests that stand on them
 * mean nothing otherwise.
 */
#include "tests/mock/mock_pair.h"

/* ---- data ---- */

START_TEST(test_send_in_order)
{
	const unsigned char *got;
	char byte;
	size_t len;

	join(8);
	for (byte = 0; byte < 8; byte++)
		peer_send(&a, &byte, 1, byte == 7 ? IBV_SEND_SIGNALED : 0);
	expect_none(&b); /* nothing moves by itself */
	mock_run();
	for (byte = 0; byte < 8; byte++) {
		got = peer_recv(&b, &len);
		ck_assert_uint_eq(len, 1);
		ck_assert_int_eq(*got, byte);
	}
	expect(&a, IBV_WC_SUCCESS); /* one for all */
	expect_none(&a);
}
END_TEST

START_TEST(test_immediate)
{
	join(1);
	mock.immediate = true;
	peer_send(&a, "x", 1, 0);
	expect(&b, IBV_WC_SUCCESS);
}
END_TEST

static void rnr(uint8_t retry, enum ibv_wc_status in_the_end)
{
	b.rnr_retry = retry;
	join(0);
	peer_send(&a, "x", 1, IBV_SEND_SIGNALED);
	mock_run();
	expect_none(&a);
	mock_timeout();
	if (in_the_end == IBV_WC_SUCCESS) {
		expect_none(&a);
		peer_post(&b, 1);
		mock_run();
		expect(&b, IBV_WC_SUCCESS);
	}
	expect(&a, in_the_end);
	expect_none(&b);
}

START_TEST(test_rnr)
{
	if (_i)
		rnr(7, IBV_WC_SUCCESS);
	else
		rnr(3, IBV_WC_RNR_RETRY_EXC_ERR);
}
END_TEST

/* Places in the send queue come back with a completion that is polled. */
START_TEST(test_send_queue_depth)
{
	struct ibv_send_wr wr[2] = {{.opcode = IBV_WR_RDMA_WRITE}, {.opcode = IBV_WR_RDMA_WRITE}}, *bad;
	unsigned i;

	join(0);
	for (i = 0; i < PEER_SENDS - 1; i++)
		ck_assert_int_eq(ibv_post_send(a.id->qp, wr, &bad), 0);
	mock_run();
	wr[0].send_flags = IBV_SEND_SIGNALED;
	wr[0].next = &wr[1];
	ck_assert_int_eq(ibv_post_send(a.id->qp, wr, &bad), ENOMEM);
	ck_assert_ptr_eq(bad, &wr[1]);
	mock_run();
	ck_assert_int_eq(ibv_post_send(a.id->qp, wr, &bad), ENOMEM);
	ck_assert_ptr_eq(bad, &wr[0]);
	expect(&a, IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_post_send(a.id->qp, wr, &bad), 0);
	expect_none(&b);
}
END_TEST

START_TEST(test_lengths)
{
	static char big[300];
	struct ibv_sge sge = {(uintptr_t)big, sizeof(big), 0};
	struct ibv_send_wr *bad;
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE,
	};

	join(1);
	ck_assert_int_eq(ibv_post_send(a.id->qp, &wr, &bad), EINVAL); /* more than inline takes */
	ck_assert_ptr_eq(bad, &wr);
	mock.count_faults = true;
	wr.send_flags = 0;
	ck_assert_int_ne(ibv_post_send(a.id->qp, &wr, &bad), 0);
	one_fault("no such key");
	sge = (struct ibv_sge){(uintptr_t)a.mem - 1, 2, a.mr->lkey};
	ck_assert_int_ne(ibv_post_send(a.id->qp, &wr, &bad), 0);
	one_fault("outside");
	sge.lkey = b.mr->lkey;
	ck_assert_int_ne(ibv_post_send(a.id->qp, &wr, &bad), 0);
	one_fault("another protection domain");
}
END_TEST

START_TEST(test_receive_too_small)
{
	struct ibv_recv_wr *bad;
	struct ibv_sge sge;
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1};

	join(0);
	sge = (struct ibv_sge){(uintptr_t)b.mem, 3, b.mr->lkey};
	ck_assert_int_eq(ibv_post_srq_recv(b.srq, &wr, &bad), 0);
	peer_send(&a, "four", 4, 0);
	mock_run();
	expect(&b, IBV_WC_LOC_LEN_ERR);
	expect(&a, IBV_WC_REM_INV_REQ_ERR); /* unsignaled, but an error */
}
END_TEST

START_TEST(test_errors_and_flush)
{
	join(4);
	mock_fail_send(a.id->qp, IBV_WC_LOC_PROT_ERR);
	peer_send(&a, "1", 1, 0);
	peer_send(&a, "2", 1, 0);
	mock_run();
	expect(&a, IBV_WC_LOC_PROT_ERR);
	expect(&a, IBV_WC_WR_FLUSH_ERR);
	peer_send(&a, "3", 1, 0);
	expect(&a, IBV_WC_WR_FLUSH_ERR); /* at once */
	peer_send(&b, "4", 1, 0);
	mock_run();
	expect_none(&b); /* nobody answers it */
	mock_timeout();
	expect(&b, IBV_WC_RETRY_EXC_ERR);
}
END_TEST

START_TEST(test_receive_error)
{
	join(2);
	mock_fail_recv(NULL, IBV_WC_LOC_PROT_ERR);
	peer_send(&a, "1", 1, 0);
	mock_run();
	expect(&b, IBV_WC_LOC_PROT_ERR);
	expect(&a, IBV_WC_REM_OP_ERR);
	ck_assert_uint_eq(mock_recvs_posted(b.srq), 1); /* what is shared is not flushed */
}
END_TEST

START_TEST(test_lost_flush)
{
	join(0);
	da->lose_flush = 1;
	peer_send(&a, "1", 1, 0);
	peer_send(&a, "2", 1, 0);
	ck_assert_int_eq(vb.ibv_modify_qp(a.id->qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE), 0);
	expect(&a, IBV_WC_WR_FLUSH_ERR);
	expect_none(&a);
}
END_TEST

/* ---- events ---- */

START_TEST(test_arming)
{
	struct ibv_cq *cq;
	void *arg;

	join(8);
	peer_send(&a, "1", 1, 0);
	mock_run();
	ck_assert_int_eq(ibv_req_notify_cq(b.cq, 0), 0);
	ck_assert(!readable(b.channel->fd)); /* not for what was there before */
	peer_send(&a, "2", 1, 0);
	peer_send(&a, "3", 1, 0);
	mock_run();
	ck_assert_int_eq(vb.ibv_get_cq_event(b.channel, &cq, &arg), 0);
	ck_assert_ptr_eq(cq, b.cq);
	ck_assert_ptr_eq(arg, &b);
	ck_assert(!readable(b.channel->fd)); /* once */
	ck_assert_int_eq(vb.ibv_get_cq_event(b.channel, &cq, &arg), -1);
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_int_eq(ibv_req_notify_cq(b.cq, 1), 0);
	peer_send(&a, "4", 1, 0);
	mock_run();
	ck_assert(!readable(b.channel->fd));
	peer_send(&a, "5", 1, IBV_SEND_SOLICITED);
	mock_run();
	ck_assert(readable(b.channel->fd));
	vb.ibv_ack_cq_events(b.cq, 1);
}
END_TEST

START_TEST(test_unacknowledged)
{
	struct ibv_cq *cq;
	void *arg;

	join(1);
	ck_assert_int_eq(ibv_req_notify_cq(b.cq, 0), 0);
	peer_send(&a, "2", 1, 0);
	mock_run();
	ck_assert_int_eq(vb.ibv_get_cq_event(b.channel, &cq, &arg), 0);
	mock.count_faults = true;
	vb.ibv_ack_cq_events(b.cq, 2);
	one_fault("acknowledged");
}
END_TEST

START_TEST(test_destroying_with_events)
{
	struct ibv_cq *cq;
	struct rdma_cm_event *ev;
	void *arg;

	join(1);
	mock.count_faults = true;
	ck_assert_int_eq(ibv_req_notify_cq(a.cq, 0), 0);
	peer_send(&a, "2", 1, IBV_SEND_SIGNALED);
	mock_run();
	ck_assert_int_eq(vb.ibv_get_cq_event(a.channel, &cq, &arg), 0);
	ck_assert_int_eq(vb.rdma_disconnect(a.id), 0);
	mock_run();
	ck_assert_int_eq(vb.rdma_get_cm_event(a.events, &ev), 0);
	mock_check_leaks();
	ck_assert_uint_eq(mock.faults, MOCK_KINDS - 1); /* contexts */
	mock.faults = 0;
	ck_assert_int_eq(vb.rdma_destroy_id(a.id), -1);
	one_fault("with a queue pair");
	vb.rdma_destroy_qp(a.id);
	ck_assert_int_eq(vb.ibv_destroy_cq(a.cq), EBUSY);
	one_fault("completion queue destroyed with 1");
	ck_assert_int_eq(vb.rdma_destroy_id(a.id), -1);
	one_fault("rdma_cm id destroyed with 1");
	vb.ibv_ack_cq_events(a.cq, 1);
	ck_assert_int_eq(vb.rdma_ack_cm_event(ev), 0);
	mock.count_faults = false;
}
END_TEST

START_TEST(test_async)
{
	struct ibv_async_event ev;

	join(1);
	ck_assert_int_eq(vb.ibv_modify_qp(a.id->qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE), 0);
	mock_async(da, IBV_EVENT_PORT_ERR);
	ck_assert(readable(mock_context(da)->async_fd));
	ck_assert_int_eq(vb.ibv_get_async_event(mock_context(da), &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
	ck_assert_ptr_eq(ev.element.qp, a.id->qp);
	mock.count_faults = true;
	vb.rdma_destroy_qp(a.id);
	one_fault("queue pair destroyed");
	mock.count_faults = false;
	vb.ibv_ack_async_event(&ev);
	ck_assert_int_eq(vb.ibv_get_async_event(mock_context(da), &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_PORT_ERR);
	vb.ibv_ack_async_event(&ev);
	ck_assert(!readable(mock_context(da)->async_fd));
}
END_TEST

START_TEST(test_removal)
{
	struct ibv_device_attr attr;
	struct ibv_async_event ev;

	join(1);
	mock_dev_remove(da);
	peer_event(&a, RDMA_CM_EVENT_DEVICE_REMOVAL);
	ck_assert_int_eq(vb.ibv_get_async_event(mock_context(da), &ev), 0);
	ck_assert_int_eq(ev.event_type, IBV_EVENT_DEVICE_FATAL);
	vb.ibv_ack_async_event(&ev);
	ck_assert_int_eq(vb.ibv_query_device(mock_context(da), &attr), EIO);
	ck_assert_int_eq(a.id->qp->state, IBV_QPS_ERR);
}
END_TEST

/* ---- iWARP ---- */

static void setup_iwarp(void)
{
	world(MOCK_IWARP);
}

START_TEST(test_iwarp_no_receive)
{
	join(0);
	peer_send(&a, "x", 1, IBV_SEND_SIGNALED);
	mock_run();
	expect(&a, IBV_WC_SUCCESS); /* was on its way */
	ck_assert_int_eq(a.id->qp->state, IBV_QPS_ERR);
	ck_assert_int_eq(b.id->qp->state, IBV_QPS_ERR);
	peer_event(&a, RDMA_CM_EVENT_DISCONNECTED);
	peer_event(&b, RDMA_CM_EVENT_DISCONNECTED);
	ck_assert_ptr_null(peer_try_event(&b));
}
END_TEST

START_TEST(test_iwarp_who_speaks_first)
{
	join(2);
	mock.count_faults = true;
	peer_send(&b, "x", 1, 0);
	mock_step();
	one_fault("speaks first");
	peer_send(&a, "x", 1, 0);
	mock.count_faults = false;
	mock_fail_send(NULL, IBV_WC_SUCCESS);
	ck_assert_uint_eq(mock_sends_waiting(b.id->qp), 1);
	no_fault();
}
END_TEST

START_TEST(test_iwarp_list_half_way)
{
	struct ibv_send_wr wr[2] = {{.opcode = IBV_WR_RDMA_WRITE}, {.opcode = IBV_WR_RDMA_WRITE}}, *bad = NULL;

	join(0);
	wr[0].next = &wr[1];
	mock_post_fail(1, ENOMEM);
	ck_assert_int_eq(ibv_post_send(a.id->qp, wr, &bad), 0);
	ck_assert_ptr_eq(bad, &wr[1]);
	mock_post_fail(0, ENOMEM);
	ck_assert_int_eq(ibv_post_send(a.id->qp, wr, &bad), -ENOMEM);
	ck_assert_ptr_eq(bad, &wr[0]);
}
END_TEST

START_TEST(test_iwarp_cut)
{
	unsigned i;

	join(PEER_RECVS);
	db->cut = true;
	for (i = 0; i < PEER_SENDS; i++)
		peer_send(&a, "x", 1, IBV_SEND_SIGNALED);
	mock_run();
	expect(&a, IBV_WC_SUCCESS); /* TCP took it */
	expect_none(&b);
	ck_assert_uint_gt(mock_sends_waiting(a.id->qp), 0); /* but not everything */
	mock_timeout();
	peer_event(&a, RDMA_CM_EVENT_DISCONNECTED);
	ck_assert_int_eq(b.id->qp->state, IBV_QPS_RTS); /* has not heard of it */
}
END_TEST

/* ---- calls that fail ---- */

START_TEST(test_nth_call)
{
	struct ibv_pd *pd, *pd2;

	mock_fail(MOCK_ibv_alloc_pd, 2, ENOMEM);
	pd = vb.ibv_alloc_pd(mock_context(da));
	ck_assert_ptr_nonnull(pd);
	ck_assert_ptr_null(vb.ibv_alloc_pd(mock_context(da)));
	ck_assert_int_eq(errno, ENOMEM);
	pd2 = vb.ibv_alloc_pd(mock_context(da));
	ck_assert_ptr_nonnull(pd2);
	mock_fail_from(MOCK_ibv_dealloc_pd, 1, EIO);
	ck_assert_int_eq(vb.ibv_dealloc_pd(pd), EIO);
	ck_assert_int_eq(vb.ibv_dealloc_pd(pd), EIO);
	mock_fail(MOCK_ibv_dealloc_pd, 0, 0);
	ck_assert_int_eq(vb.ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(vb.ibv_dealloc_pd(pd2), 0);
	mock_fail_any(1, EMFILE);
	ck_assert_ptr_null(vb.rdma_create_event_channel());
	ck_assert(mock_fail_hit());
	ck_assert_str_eq(mock_fail_name(), "rdma_create_event_channel");
	ck_assert_uint_eq(mock_calls(MOCK_ibv_alloc_pd), 3);
}
END_TEST

START_TEST(test_limits)
{
	struct ibv_pd *pd = vb.ibv_alloc_pd(mock_context(da));
	char mem[64];
	struct ibv_mr *mr;

	da->memlock = 64;
	mr = vb.ibv_reg_mr(pd, mem, 40, 0);
	ck_assert_ptr_nonnull(mr);
	ck_assert_ptr_null(vb.ibv_reg_mr(pd, mem, 40, 0));
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_int_eq(vb.ibv_dealloc_pd(pd), EBUSY);
	ck_assert_int_eq(vb.ibv_dereg_mr(mr), 0);
	ck_assert_int_eq(vb.ibv_dealloc_pd(pd), 0);
	ck_assert_ptr_null(vb.ibv_create_cq(mock_context(da), da->attr.max_cqe + 1, NULL, NULL, 0));
	ck_assert_int_eq(errno, EINVAL);
}
END_TEST

static void data_tests(Suite *s)
{
	TCase *t = case_of(s, "data", setup);

	tcase_add_test(t, test_send_in_order);
	tcase_add_test(t, test_immediate);
	tcase_add_loop_test(t, test_rnr, 0, 2);
	tcase_add_test(t, test_send_queue_depth);
	tcase_add_test(t, test_lengths);
	tcase_add_test(t, test_receive_too_small);
	tcase_add_test(t, test_errors_and_flush);
	tcase_add_test(t, test_receive_error);
	tcase_add_test(t, test_lost_flush);
}

int main(void)
{
	Suite *s = suite_create("mock");
	TCase *t;

	data_tests(s);
	t = case_of(s, "events", setup);
	tcase_add_test(t, test_arming);
	tcase_add_test(t, test_unacknowledged);
	tcase_add_test(t, test_destroying_with_events);
	tcase_add_test(t, test_async);
	tcase_add_test(t, test_removal);
	t = case_of(s, "iwarp", setup_iwarp);
	tcase_add_test(t, test_iwarp_no_receive);
	tcase_add_test(t, test_iwarp_who_speaks_first);
	tcase_add_test(t, test_iwarp_list_half_way);
	tcase_add_test(t, test_iwarp_cut);
	t = case_of(s, "failures", setup);
	tcase_add_test(t, test_nth_call);
	tcase_add_test(t, test_limits);
	return suite_run(s);
}
