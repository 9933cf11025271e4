/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_pulled.c - a device is pulled out as any call of its library begins: the first, the
 * second ... until all that a connection does in its life has been tried (rows D8 to D14 of
 * docs/verbs-states.md).
 *
 * Every time the engine hears what it has to (world.c has an eye on that), nothing of the device is
 * left soon, and a new one in its place works.  The same with calls that fail.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/transport/verbs/ep/rdma.h"
#include "tests/mock/world.h"

/* calls between two tries: every test has its own first one, so that together they try all */
#define EACH 7u

static struct world_conn *const a = &world.conn[0], *const b = &world.conn[1];
static unsigned char region[20000];

static void setup_ib(void)
{
	setenv("RDS_PRELOAD_LOG_FILE", "/dev/null", 1);
	world_start(MOCK_IB);
}

static void setup_iwarp(void)
{
	setenv("RDS_PRELOAD_LOG_FILE", "/dev/null", 1);
	world_start(MOCK_IWARP);
}

static void say(struct world_conn *c, size_t len, uint8_t flags)
{
	if (c->ep && c->ups)
		world_send(c, len, flags);
}

/* Something that the device is to write to the peer's memory. */
static void write_to(struct world_conn *from, struct rds_device_mr *shown, struct world_conn *to)
{
	struct iovec iov = {region + 10000, 5000};
	struct rds_device_op n = {.id = 1, .seq = from->tx_seq + 1, .len = 5000, .local = &iov};
	struct rds_device_key far;

	if (!shown || !from->ep || !to->ep || !world.t->ops->mr_key(to->ep, shown, &far))
		return;
	n.key = far.key;
	n.at = far.at;
	world.t->ops->post(from->ep, &n);
}

static void locate(void)
{
	struct rds_conn_id id = {.laddr = world_ip(US), .faddr = world_ip(US2), .peer_slot = RDS_SLOT_REMOTE};

	verbs_cm_locate(world.t, &id, 4711);
}

/* Each step as if the one before had gone well. */
static void life(void)
{
	struct rds_device_mr *shown = NULL;
	unsigned i;

	world_claim(US);
	world_claim(US2);
	locate();
	world_connect(a, US, US2, verbs_cm.port, registry_self(rds_node_registry));
	world_run();
	say(a, VERBS_FRAME, RDS_FLAG_CONG_BITMAP);
	world_run();
	if (b->ep && b->ups)
		world.t->ops->mr_register(b->ep, region, 10000, &shown);
	write_to(a, shown, b);
	world.keep_inplace = true;
	for (i = 0; i < 6; i++) {
		say(a, 10 + i * 3000, 0);
		say(b, 20000, RDS_FLAG_ACK_REQUIRED);
		world_run();
	}
	world_pass(13000 * MS); /* keepalive */
	locate();
	say(a, 700, 0);
	say(b, 100000, 0);
	world_close(a);
	world_run();
	world.keep_inplace = false;
	if (shown)
		world.t->ops->mr_deregister(shown);
}

static void all_over(void)
{
	world_close(a);
	world_close(b);
	world_pass(200 * MS);
	world_release();
	world_pass(20000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
	ck_assert_uint_eq(world.locates, 2);
	world.locates = 0;
	world.conn[0] = world.conn[1] = (struct world_conn){0};
}

/* Another one with its address. */
static void replug(struct mock_dev **which, const char *ip)
{
	struct mock_dev *new = mock_dev_add("again", (*which)->mode, 0);

	mock_addr_del(ip);
	mock_addr_add(new, ip);
	*which = new;
}

static void nothing_of(const struct mock_dev *dev)
{
	const struct verbs_dev *d;

	for (d = world_dev(); d; d = d->next)
		ck_assert_ptr_ne(mock_dev_of_context(d->ctx), dev);
	ck_assert_uint_le(mock_count(MOCK_CONTEXT), 2);
}

START_TEST(test_at_any_call)
{
	struct mock_dev **which = _i & 1 ? &world.ours2 : &world.ours;
	const char *ip = _i & 1 ? US2 : US;
	unsigned n, tries = 0, ids;

	life();
	all_over();
	ids = mock_count(MOCK_ID);
	for (n = 1 + (unsigned)_i / 4;; n += EACH) {
		struct mock_dev *dev = *which;

		dev->lose_flush = _i & 2 ? 1000 : 0;
		mock_pull_at(dev, n);
		life();
		all_over();
		mock_pull_at(NULL, 0);
		world_pass(20000 * MS); /* it may have come to that at the very end */
		if (!dev->gone)
			break;
		tries++;
		nothing_of(dev);
		replug(which, ip);
		ck_assert_int_eq(world_claim(US), 1);
		ck_assert_int_eq(world_claim(US2), 1);
		ck_assert_uint_eq(mock_count(MOCK_ID), ids);
	}
	ck_assert_uint_gt(tries, 20);
}
END_TEST

/*
 * One call that makes, starts or posts something fails, of a device that is new every time: nothing
 * is left of what it was for.
 */
START_TEST(test_any_call_fails)
{
	static const int errs[] = {ENOMEM, EINVAL, EIO, EAGAIN};
	unsigned n, tries = 0, ids = 0;

	for (n = 1 + (unsigned)_i / 4;; n += EACH) {
		world_drop_device(world.ours);
		world_drop_device(world.ours2);
		mock_fail_any(n, errs[_i % 4]);
		life();
		if (!mock_fail_hit())
			break;
		mock_fail_any(0, 0);
		all_over();
		tries++;
		ck_assert_int_eq(world_claim(US), 1);
		ck_assert_int_eq(world_claim(US2), 1);
		world_run();
		ids = ids ? ids : mock_count(MOCK_ID);
		ck_assert_uint_eq(mock_count(MOCK_ID), ids);
		ck_assert_uint_eq(mock_count(MOCK_CONTEXT), 2);
	}
	ck_assert_uint_gt(tries, 4);
	ck_assert_uint_gt(b->nmsgs, 4);
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_loop_test(t, test_at_any_call, 0, 4 * (int)EACH);
	tcase_add_loop_test(t, test_any_call_fails, 0, 4 * (int)EACH);
}

int main(void)
{
	Suite *s = suite_create("verbs_pulled");

	tests(suite_case(s, "ib", setup_ib, world_end));
	tests(suite_case(s, "iwarp", setup_iwarp, world_end));
	return suite_run(s);
}
