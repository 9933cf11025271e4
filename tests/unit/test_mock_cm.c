/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_mock_cm.c - the mock's connection manager (tests/mock) does what mock.h says.
 */
#include "tests/mock/mock_pair.h"

START_TEST(test_private_data)
{
	bool iw = _i;
	struct rdma_conn_param *c;

	if (iw)
		world(MOCK_IWARP);
	peer_listen(&b, _i ? B : "0.0.0.0", PORT);
	peer_connect(&a, A, B, PORT, "hi", 2);
	c = &peer_event(&b, RDMA_CM_EVENT_CONNECT_REQUEST)->param.conn;
	ck_assert_uint_eq(c->private_data_len, iw ? 2 : 56);
	ck_assert_mem_eq(c->private_data, "hi", 2);
	ck_assert_ptr_eq(b.ev->listen_id, b.listener);
	ck_assert_ptr_eq(b.ev->id->context, &b);
	ck_assert_ptr_eq(b.ev->id->verbs, mock_context(db));
	peer_accept(&b, "yes", 3, 1);
	c = &peer_event(&a, RDMA_CM_EVENT_ESTABLISHED)->param.conn;
	ck_assert_uint_eq(c->private_data_len, iw ? 3 : 196);
	ck_assert_mem_eq(c->private_data, "yes", 3);
}
END_TEST

START_TEST(test_reject)
{
	peer_listen(&b, B, PORT);
	peer_connect(&a, A, B, PORT, "hi", 2);
	peer_event(&b, RDMA_CM_EVENT_CONNECT_REQUEST);
	peer_reject(&b, "no", 2);
	peer_event(&a, RDMA_CM_EVENT_REJECTED);
	ck_assert_int_eq(a.ev->status, 28);
	ck_assert_mem_eq(a.ev->param.conn.private_data, "no", 2);
	ck_assert_int_eq(a.id->qp->state, IBV_QPS_ERR);
	peer_drop_id(&a);
	peer_connect(&a, A, B, PORT + 1, "hi", 2);
	peer_event(&a, RDMA_CM_EVENT_REJECTED);
	ck_assert_int_eq(a.ev->status, 8);
}
END_TEST

/* The listener goes before anybody has fetched the request. */
START_TEST(test_listener_goes)
{
	peer_listen(&b, B, PORT);
	peer_connect(&a, A, B, PORT, "hi", 2);
	mock_run();
	ck_assert(readable(b.events->fd));
	ck_assert_int_eq(vb.rdma_destroy_id(b.listener), 0);
	b.listener = NULL;
	ck_assert(!readable(b.events->fd));
	peer_event(&a, RDMA_CM_EVENT_REJECTED);
}
END_TEST

START_TEST(test_ports)
{
	struct rdma_cm_id *id;
	struct sockaddr_storage sa;

	peer_listen(&b, "::", PORT);
	ck_assert_int_eq(vb.rdma_create_id(b.events, &id, NULL, RDMA_PS_TCP), 0);
	peer_address(&sa, B, PORT);
	ck_assert_int_eq(vb.rdma_bind_addr(id, (struct sockaddr *)&sa), -1);
	ck_assert_int_eq(errno, EADDRNOTAVAIL);
	peer_address(&sa, A, PORT);
	ck_assert_int_eq(vb.rdma_bind_addr(id, (struct sockaddr *)&sa), -1);
	ck_assert_int_eq(errno, ENODEV);
	peer_address(&sa, B, 0);
	ck_assert_int_eq(vb.rdma_bind_addr(id, (struct sockaddr *)&sa), 0);
	ck_assert_uint_ne(vb.rdma_get_src_port(id), 0);
	ck_assert_int_eq(vb.rdma_destroy_id(id), 0);
	peer_listen(&a, A, PORT); /* another host */
	peer_connect(&a, A, B, PORT, "hi", 2);
	peer_event(&b, RDMA_CM_EVENT_CONNECT_REQUEST);
	ck_assert_int_eq(b.ev->id->route.addr.src_addr.sa_family, AF_INET);
	peer_reject(&b, NULL, 0);
}
END_TEST

/*
 * The side that accepts may send before the other has fetched its answer; both events, in either
 * order.
 */
START_TEST(test_events_by_hand)
{
	peer_listen(&b, B, PORT);
	peer_connect(&a, A, B, PORT, "hi", 2);
	peer_event(&b, RDMA_CM_EVENT_CONNECT_REQUEST);
	mock_cm_hold(true);
	peer_accept(&b, "yes", 3, 1);
	peer_send(&b, "early", 5, IBV_SEND_SIGNALED);
	mock_run();
	expect_none(&b);
	ck_assert_uint_eq(mock_cm_waiting(), 1);
	ck_assert_ptr_null(peer_try_event(&a));
	ck_assert(mock_cm_next());
	ck_assert(!mock_cm_next());
	ck_assert_ptr_nonnull(peer_try_event(&a));
	mock_run();
	expect(&b, IBV_WC_SUCCESS);
	ck_assert_int_eq(vb.rdma_notify(b.id, IBV_EVENT_COMM_EST), 0);
	peer_ack(&a);
	ck_assert_int_eq(vb.rdma_disconnect(a.id), 0);
	ck_assert(mock_cm_pick((unsigned)mock_cm_find(RDMA_CM_EVENT_DISCONNECTED) + 1));
	ck_assert_int_eq(peer_try_event(&b)->event, RDMA_CM_EVENT_DISCONNECTED);
	ck_assert(mock_cm_next());
	ck_assert_int_eq(peer_try_event(&b)->event, RDMA_CM_EVENT_ESTABLISHED);
	mock_cm_hold(false);
}
END_TEST

START_TEST(test_disconnect)
{
	mock.timewait = true;
	join(1);
	peer_send(&b, "x", 1, IBV_SEND_SIGNALED);
	ck_assert_int_eq(vb.rdma_disconnect(b.id), 0);
	expect(&b, IBV_WC_WR_FLUSH_ERR);
	peer_event(&a, RDMA_CM_EVENT_DISCONNECTED);
	ck_assert_int_eq(a.id->qp->state, IBV_QPS_RTS); /* librdmacm leaves it */
	peer_event(&a, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	peer_event(&b, RDMA_CM_EVENT_DISCONNECTED);
}
END_TEST

/* Ids whose other end is gone half-way: the remaining one is told, once. */
START_TEST(test_half_way_ends)
{
	peer_listen(&b, B, PORT);
	peer_connect(&a, A, B, PORT, "hi", 2);
	mock_run();
	peer_drop_id(&a); /* before anybody has looked */
	peer_event(&b, RDMA_CM_EVENT_CONNECT_REQUEST);
	b.id = b.ev->id;
	peer_event(&b, RDMA_CM_EVENT_REJECTED);
	peer_drop_id(&b);
	peer_connect(&a, A, B, PORT, "hi", 2);
	peer_event(&b, RDMA_CM_EVENT_CONNECT_REQUEST);
	peer_accept(&b, "yes", 3, 1);
	peer_drop_id(&b); /* accepted, and gone */
	peer_event(&a, RDMA_CM_EVENT_CONNECT_ERROR);
	ck_assert_ptr_null(peer_try_event(&a));
}
END_TEST

START_TEST(test_cut_while_connecting)
{
	struct sockaddr_storage src, dst;

	peer_listen(&b, B, PORT);
	peer_address(&src, A, 0);
	peer_address(&dst, B, PORT);
	da->cut = true;
	ck_assert_int_eq(vb.rdma_create_id(a.events, &a.id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(vb.rdma_resolve_addr(a.id, (struct sockaddr *)&src, (struct sockaddr *)&dst, 1000), 0);
	mock_run();
	ck_assert_ptr_null(peer_try_event(&a));
	mock_timeout();
	peer_event(&a, RDMA_CM_EVENT_ADDR_ERROR);
	peer_drop_id(&a);
	da->cut = false;
	peer_connect(&a, A, B, PORT, "hi", 2);
	da->cut = true;
	mock_timeout();
	peer_event(&a, RDMA_CM_EVENT_UNREACHABLE);
	ck_assert_int_eq(a.ev->status, -ETIMEDOUT);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mock_cm");
	TCase *t = case_of(s, "cm", setup);

	tcase_add_loop_test(t, test_private_data, 0, 2);
	tcase_add_test(t, test_reject);
	tcase_add_test(t, test_listener_goes);
	tcase_add_test(t, test_ports);
	tcase_add_test(t, test_events_by_hand);
	tcase_add_test(t, test_disconnect);
	tcase_add_test(t, test_half_way_ends);
	tcase_add_test(t, test_cut_while_connecting);
	return suite_run(s);
}
