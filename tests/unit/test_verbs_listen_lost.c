/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_listen_lost.c - siw has lost a listener (engine/transport/verbs/cm/listen_lost.c): table H of
 * docs/verbs-states.md.
 */
#include <string.h>

#include "tests/mock/world.h"

#define SIW 0x626d74
#define NOBODY UINT8_MAX /* instead of an answer */
#define LOOK (2000 * MS)

static struct peer *const p = &world.peer;

static void begin(uint32_t vendor)
{
	world_begin(MOCK_IWARP);
	world.ours->attr.vendor_id = vendor;
	ck_assert_int_eq(world_claim(US), 1);
}

static void setup_siw(void)
{
	begin(SIW);
}

static void setup_other(void)
{
	begin(SIW + 1);
}

/* Who has lost a listener does not destroy it, so that is done for it in the end. */
static struct rdma_cm_id *lost[32];
static unsigned nlost;

static void lose(unsigned which)
{
	for (unsigned i = 0; i < 2; i++)
		lost[nlost++] = verbs_cm.listener[i];
	mock_cm_deafen(verbs_cm.listener[which]);
}

static void end(void)
{
	while (nlost)
		vb.rdma_destroy_id(lost[--nlost]);
}

static uint16_t told(void)
{
	struct registry *reg = rds_node_registry;

	return registry_proc_cm_port(reg, registry_self_slot(reg), registry_self(reg));
}

static struct verbs_answer asked(enum verbs_request_kind what, uint16_t at)
{
	struct verbs_answer a = {0};
	struct verbs_request h;

	world_hello(&h, what);
	h.credits = VERBS_CREDITS(0, 20);
	world_peer_asks(&h, US, at);
	ck_assert_ptr_nonnull(peer_try_event(p));
	if (p->ev->event == RDMA_CM_EVENT_ESTABLISHED)
		a = world_answer_in(p->ev);
	else if (p->ev->param.conn.private_data_len)
		a = world_answer_in(p->ev);
	else
		a.status = NOBODY;
	peer_drop_id(p);
	world_run();
	return a;
}

/* H2: the old one is not destroyed, nor is its port used again. */
START_TEST(test_h2_another_port)
{
	unsigned destroyed;
	uint16_t port = verbs_cm.port;

	lose((unsigned)_i);
	if (!_i)
		ck_assert_int_eq(asked(VERBS_CONNECT, port).status, NOBODY);
	destroyed = mock_calls(MOCK_rdma_destroy_id);
	world_pass(LOOK);
	ck_assert_uint_eq(mock_calls(MOCK_rdma_destroy_id), destroyed);
	ck_assert_uint_ne(verbs_cm.port, port);
	ck_assert_uint_eq(told(), verbs_cm.port);
	ck_assert_int_eq(asked(VERBS_CONNECT, verbs_cm.port).status, VERBS_OK);
	ck_assert_int_eq(asked(VERBS_CONNECT, world.rendezvous).status, VERBS_OK);
	end();
}
END_TEST

/* ... again and again. */
START_TEST(test_h2_often)
{
	for (unsigned i = 0; i < 10; i++) {
		uint16_t port = verbs_cm.port;

		lose(0);
		world_pass(LOOK);
		ck_assert_uint_ne(verbs_cm.port, port);
	}
	ck_assert_int_eq(asked(VERBS_CONNECT, verbs_cm.port).status, VERBS_OK);
	end();
}
END_TEST

/* H3: there are no means; the next time there are. */
START_TEST(test_h3_none)
{
	lose(0);
	mock_fail_from(MOCK_rdma_create_id, 1, ENOMEM);
	world_pass(LOOK);
	mock_fail(MOCK_rdma_create_id, 0, 0);
	ck_assert_uint_eq(verbs_cm.port, 0);
	ck_assert_uint_eq(told(), 0);
	world_pass(LOOK);
	ck_assert_uint_ne(verbs_cm.port, 0);
	ck_assert_uint_eq(told(), verbs_cm.port);
	ck_assert_int_eq(asked(VERBS_CONNECT, verbs_cm.port).status, VERBS_OK);
	end();
}
END_TEST

static struct rdma_cm_id *at_rendezvous(void)
{
	ck_assert_ptr_nonnull(verbs_rendezvous_ids()[0]);
	return verbs_rendezvous_ids()[0];
}

/* H4: the node's. */
START_TEST(test_h4_rendezvous)
{
	uint16_t port = verbs_cm.port;
	const char *line;

	world_listen();
	mock_cm_deafen(at_rendezvous());
	ck_assert_int_eq(asked(VERBS_LOCATE, world.rendezvous).status, NOBODY);
	world_pass(5 * LOOK);
	line = strstr(world_said(), "until it is booted again");
	ck_assert_ptr_nonnull(line);
	ck_assert_ptr_null(strstr(line + 1, "until it is booted again"));
	ck_assert_uint_eq(verbs_cm.port, port);
	at_rendezvous();
}
END_TEST

/* H1: nothing is lost, and nothing is done. */
START_TEST(test_h1_heard)
{
	unsigned ids = mock_calls(MOCK_rdma_create_id);

	world_pass(20 * LOOK);
	ck_assert_uint_eq(mock_calls(MOCK_rdma_create_id), ids);
}
END_TEST

/* H5: the listeners go with the device, as they should. */
START_TEST(test_h5_device_gone)
{
	unsigned listens = mock_calls(MOCK_rdma_listen);

	mock_dev_remove(world.ours);
	world_run();
	mock_cm_deafen(verbs_cm.listener[0]);
	mock_cm_deafen(at_rendezvous());
	world_pass(3 * LOOK);
	ck_assert_uint_eq(mock_calls(MOCK_rdma_listen), listens);
	ck_assert(!world_timer_due(1000 * LOOK));
}
END_TEST

/* H6: of other devices it is not known that they do that, nor that their ports are TCP's. */
START_TEST(test_h6_other_devices)
{
	unsigned listens = mock_calls(MOCK_rdma_listen);

	mock_cm_deafen(verbs_cm.listener[0]);
	ck_assert(!world_timer_due(1000 * LOOK));
	world_pass(3 * LOOK);
	ck_assert_uint_eq(mock_calls(MOCK_rdma_listen), listens);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs_listen_lost");
	TCase *siw = world_case(s, "siw", setup_siw), *other = world_case(s, "other", setup_other);

	tcase_add_test(siw, test_h1_heard);
	tcase_add_loop_test(siw, test_h2_another_port, 0, 2);
	tcase_add_test(siw, test_h2_often);
	tcase_add_test(siw, test_h3_none);
	tcase_add_test(siw, test_h4_rendezvous);
	tcase_add_test(siw, test_h5_device_gone);
	tcase_add_test(other, test_h6_other_devices);
	return suite_run(s);
}
