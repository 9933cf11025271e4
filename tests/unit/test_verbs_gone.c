/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_gone.c - a device goes: idle, known to librdmacm only, just as it is made, or with
 * messages in it (engine/transport/verbs/dev/device_removal.c, cm/device_id.c).
 */
#include <unistd.h>

#include "tests/mock/world.h"
#include "tests/slow.h"

static struct world_conn *const a = &world.conn[0], *const b = &world.conn[1];

/*
 * The helper reads rdma_cm's event and the device's own in one round.  Nothing else holds the
 * device (world.c checks).
 */
START_TEST(test_idle_removed)
{
	mock_dev_remove(world.ours);
	world_run();
	ck_assert_ptr_null(world_dev());
	ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 0);
	ck_assert_int_eq(world_claim(US), 0);
}
END_TEST

/* ---- librdmacm's own ---- */

/* Nothing is made of the id that has US2's device opened by librdmacm. */
static void in_vain(int how)
{
	struct rds_procid them = world_peer_id();

	switch (how) {
	case 0: /* bound, but the device cannot be had, */
	case 1: /* ... since something is lacking */
		mock_fail(MOCK_ibv_open_device, 1, how ? EMFILE : ENODEV);
		ck_assert_int_eq(world_claim(US2), how ? -EMFILE : 0);
		return;
	case 2: /* a request that is refused unseen */
		peer_connect(&world.peer, THEM, US2, verbs_cm.port, NULL, 0);
		world_run();
		peer_event(&world.peer, RDMA_CM_EVENT_REJECTED);
		peer_drop_id(&world.peer);
		return;
	case 3: /* resolved after it was given up, */
	case 4: /* ... and on its way out */
		peer_listen(&world.peer, THEM, PEER_PORT);
		mock_cm_hold(true);
		ck_assert_int_eq(world_connect(a, US2, THEM, PEER_PORT, &them), 0);
		world_close(a);
		if (how == 4) {
			mock_destroy_hang(1);
			while (!mock_destroys_hanging())
				world_pass(MS);
		}
		mock_cm_hold(false);
		world_run();
		world_destroy_go();
		world_pass(100 * MS);
	}
}

/*
 * D10, D11: the removal of the device need not wait for us, and the one id that is told of it goes.
 */
START_TEST(test_in_vain_removed)
{
	const struct ibv_context *theirs = mock_context(world.ours2);
	unsigned ids = mock_count(MOCK_ID), i;

	for (i = 0; i < 2; i++) {
		in_vain(_i);
		ck_assert(!mock_dev_aside(world.ours2));
		ck_assert(os_fd_is_internal(theirs->cmd_fd) && os_fd_is_internal(theirs->async_fd));
		ck_assert_uint_eq(mock_count(MOCK_ID), ids + 1 + (world.peer.listener ? 1 : 0));
		peer_drop_listener(&world.peer);
	}
	mock_dev_remove(world.ours2);
	world_run();
	ck_assert(mock_dev_aside(world.ours2));
	ck_assert(os_fd_is_internal(theirs->cmd_fd) && os_fd_is_internal(theirs->async_fd));
	ck_assert_uint_eq(mock_count(MOCK_ID), ids);
}
END_TEST

/* D9, D10: the next one gets it, after which librdmacm has no part in it any more. */
START_TEST(test_in_vain_then_had)
{
	unsigned ids = mock_count(MOCK_ID);

	in_vain(_i);
	peer_drop_listener(&world.peer);
	ck_assert_int_eq(world_claim(US2), 1);
	world_run();
	ck_assert(mock_dev_aside(world.ours2));
	ck_assert_uint_eq(mock_count(MOCK_ID), ids + 1); /* the id of the port's holder */
	mock_dev_remove(world.ours2);
	world_run();
	ck_assert_uint_eq(mock_count(MOCK_ID), ids);
}
END_TEST

/* D11: its removal is heard by an id before anybody has tried to open it. */
START_TEST(test_removed_unopened)
{
	struct rds_procid them = world_peer_id();

	peer_listen(&world.peer, THEM, PEER_PORT);
	ck_assert_int_eq(world_connect(a, US2, THEM, PEER_PORT, &them), 0);
	mock_fail(MOCK_ibv_open_device, 1, ENODEV);
	mock_dev_remove(world.ours2);
	world_pass(100 * MS);
	ck_assert(mock_dev_aside(world.ours2));
}
END_TEST

/* D12: broken and closed, not removed: it may work again. */
START_TEST(test_broken_and_mended)
{
	unsigned ids = mock_count(MOCK_ID), i;

	for (i = 0; i < 3; i++) {
		mock_async(world.ours, IBV_EVENT_DEVICE_FATAL);
		world_run();
		ck_assert_ptr_null(world_dev());
		ck_assert_int_eq(world_claim(US), 1);
		world_run();
		ck_assert_uint_eq(mock_count(MOCK_ID), ids);
	}
	mock_dev_remove(world.ours);
	world_run();
	ck_assert_uint_eq(mock_count(MOCK_ID), ids - 1);
}
END_TEST

/*
 * The id of a claim belongs to no endpoint.  It is told of the removal when our part of the device
 * has been freed.
 */
START_TEST(test_claims_id_removed)
{
	struct ibv_context *theirs = mock_context(world.ours);
	struct sockaddr_storage ss;
	struct verbs_dev *dev;
	struct rdma_cm_id *id;

	peer_address(&ss, US, 0);
	ck_assert_int_eq(vb.rdma_create_id(verbs_cm.events, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(vb.rdma_bind_addr(id, (struct sockaddr *)&ss), 0);
	ck_assert_int_eq(verbs_cm_dev_get(id, &dev), 0);
	ck_assert_ptr_eq(dev, world_dev());
	mock_async(world.ours, IBV_EVENT_DEVICE_FATAL);
	world_run();
	ck_assert_ptr_null(world_dev());
	ck_assert_ptr_eq(id->verbs, theirs);
	mock_cm_inject(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	world_run();
	ck_assert_int_eq(vb.rdma_destroy_id(id), 0);
}
END_TEST

static int (*bind_addr)(struct rdma_cm_id *id, struct sockaddr *addr);
static _Atomic pid_t helper;

static void *hears_of_it(void *arg)
{
	(void)arg;
	helper = gettid();
	verbs_cm_event(NULL, 0);
	world_tick(0); /* waits for who is making the device */
	return NULL;
}

static bool moves; /* the address, to our other device, and that goes */

/* The id that stays with a device is bound, and the device goes. */
static int bound_and_removed(struct rdma_cm_id *id, struct sockaddr *addr)
{
	pthread_t thread;
	int ret;

	if (id->context && moves) {
		mock_addr_del(US2);
		mock_addr_add(world.ours, US2);
	}
	ret = bind_addr(id, addr);
	if (!id->context)
		return ret;
	mock_dev_remove(moves ? world.ours : world.ours2);
	mock_run();
	ck_assert_int_eq(pthread_create(&thread, NULL, hears_of_it, NULL), 0);
	ck_assert_int_eq(pthread_detach(thread), 0);
	while (!helper || !test_asleep(helper))
		sched_yield();
	return ret;
}

static int claim_as_removed(void)
{
	char path[64];
	int claimed;

	bind_addr = vb.rdma_bind_addr;
	vb.rdma_bind_addr = bound_and_removed;
	claimed = world_claim(US2);
	vb.rdma_bind_addr = bind_addr;
	snprintf(path, sizeof(path), "/proc/self/task/%d", helper);
	while (!access(path, F_OK))
		sched_yield();
	world_run();
	return claimed;
}

/* The helper is told of the removal before the program's thread has noted which id that was. */
START_TEST(test_removed_as_it_is_made)
{
	unsigned ids = mock_count(MOCK_ID);

	ck_assert_int_ge(claim_as_removed(), 0);
	ck_assert_uint_eq(mock_count(MOCK_ID), ids);
	ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 1);
}
END_TEST

/*
 * The device's events cannot be watched, and it goes, or not, just as our part of it is made: the
 * helper may already have read the event of its id.
 */
START_TEST(test_removed_and_not_watched)
{
	unsigned ids = mock_count(MOCK_ID), contexts = mock_count(MOCK_CONTEXT);
	char path[64];

	bind_addr = vb.rdma_bind_addr;
	if (_i & 1)
		vb.rdma_bind_addr = bound_and_removed;
	world.no_event = 1 + (unsigned)_i / 2;
	ck_assert_int_eq(world_claim(US2), -ENOSPC);
	vb.rdma_bind_addr = bind_addr;
	snprintf(path, sizeof(path), "/proc/self/task/%d", helper);
	while ((_i & 1) && !access(path, F_OK))
		sched_yield();
	world_run();
	ck_assert_uint_eq(mock_count(MOCK_CONTEXT), contexts);
	ck_assert_ptr_null(world_dev()->next);
	ck_assert_uint_eq(mock_count(MOCK_ID), ids + !(_i & 1)); /* the witness (D10) */
	if (_i & 1)
		return;
	ck_assert_int_eq(world_claim(US2), 1);
	world_run();
	ck_assert_uint_eq(mock_count(MOCK_ID), ids + 1); /* the id of the port's holder */
}
END_TEST

/* ... or the address is another device's by then, of which the id is to say nothing. */
START_TEST(test_address_moves_as_it_is_made)
{
	unsigned ids = mock_count(MOCK_ID);

	moves = true;
	ck_assert_int_eq(claim_as_removed(), 0);
	ck_assert_ptr_null(world_dev());
	ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 0);
	/* the first device's id is gone, one keeps the second device (D10) */
	ck_assert_uint_eq(mock_count(MOCK_ID), ids);
}
END_TEST

/* ---- gone, with messages ---- */

static void fill(void)
{
	world_pair();
	world.keep_inplace = true;
	while (world.ninplace < 5) {
		/*
		 * Where buffers are of two sizes, only a message that fills much of a large one
		 * stays in it.
		 */
		ck_assert_int_eq(world_send(a, world_dev()->srq ? 700 : 20000, 0), 0);
		world_run();
	}
}

/*
 * Nobody reads, and the endpoint is up, closed by its owner, or both ends are closed: the removal
 * need not wait.
 */
START_TEST(test_unread_removed)
{
	fill();
	if (_i >= 1)
		world_close(b);
	if (_i >= 2)
		world_close(a);
	world_pass(10 * MS);
	ck_assert_uint_eq(world.ninplace, 5);
	mock_dev_remove(world.ours2); /* b's */
	world_pass(100 * MS);
	ck_assert_uint_eq(world.ninplace, 0);
	world_close(a);
	world_pass(3000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
	ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 1); /* the other device */
}
END_TEST

/* There is no memory at first. */
START_TEST(test_unread_no_memory)
{
	fill();
	world.no_memory = true;
	mock_dev_remove(world.ours);
	mock_dev_remove(world.ours2);
	world_pass(3000 * MS);
	ck_assert_uint_gt(world.evacuations, 3);
	ck_assert_uint_eq(world.ninplace, 5);
	ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 1);
	world.no_memory = false;
	world_pass(100 * MS);
	ck_assert_uint_eq(world.ninplace, 0);
	ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 0);
	ck_assert(!world_timer_due(3000 * MS));
}
END_TEST

/*
 * C3, D8: the endpoint is closed, and its request has no answer.  Its id may be told of the removal
 * before all others, and nothing else comes.
 */
START_TEST(test_unanswered_removed)
{
	struct rds_procid them = world_peer_id();

	peer_listen(&world.peer, THEM, PEER_PORT);
	ck_assert_int_eq(world_connect(a, US, THEM, PEER_PORT, &them), 0);
	world_run();
	peer_event(&world.peer, RDMA_CM_EVENT_CONNECT_REQUEST);
	world_close(a);
	world_pass(3000 * MS);
	ck_assert_int_eq(verbs_eps.all == NULL, world.ours->mode == MOCK_IB);
	if (_i && verbs_eps.all)
		mock_cm_inject(verbs_eps.all->cm, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	world_run();
	mock_async(world.ours, IBV_EVENT_DEVICE_FATAL);
	world_pass(100 * MS);
	ck_assert_ptr_null(verbs_eps.all);
	ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 0);
	world.peer.id = world.peer.ev->id;
}
END_TEST

static void gone_tests(TCase *t)
{
	tcase_add_test(t, test_idle_removed);
	tcase_add_loop_test(t, test_in_vain_removed, 0, 5);
	tcase_add_loop_test(t, test_in_vain_then_had, 0, 5);
	tcase_add_test(t, test_removed_unopened);
	tcase_add_test(t, test_broken_and_mended);
	tcase_add_test(t, test_claims_id_removed);
	tcase_add_test(t, test_removed_as_it_is_made);
	tcase_add_loop_test(t, test_removed_and_not_watched, 0, 4);
	tcase_add_test(t, test_address_moves_as_it_is_made);
	tcase_add_loop_test(t, test_unread_removed, 0, 3);
	tcase_add_test(t, test_unread_no_memory);
	tcase_add_loop_test(t, test_unanswered_removed, 0, 2);
}

int main(void)
{
	Suite *s = suite_create("verbs_gone");

	gone_tests(world_case(s, "ib", world_ib));
	gone_tests(world_case(s, "iwarp", world_iwarp));
	return suite_run(s);
}
