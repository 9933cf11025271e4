/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_rendezvous.c - which process of a node listens at its rendezvous port
 * (engine/transport/verbs/cm/rendezvous.c): rows N and E11 of docs/verbs-states.md.
 *
 * The mock's ports are this process's.  Where another process holds the role, a child has its
 * AF_UNIX address, which the kernel frees when the child ends; a peer on our host has the port,
 * which the test takes from it.
 */
#include <limits.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "engine/rds.h"
#include "tests/mock/world.h"
#include "tests/unit/registry_helper.h"

#define DAY (24 * 3600 * 1000 * MS)

static struct peer holder;  /* of the port */
static struct child keeper; /* of the holder's address */
static FILE *lines;	    /* all that is logged */

static void begin(enum mock_mode mode)
{
	lines = tmpfile();
	ck_assert_ptr_nonnull(lines);
	ck_assert_int_eq(dup2(fileno(lines), 2), 2);
	setenv("RDS_PRELOAD_LOG", "warn", 1);
	world_start(mode);
	peer_init(&holder, 0);
}

static void setup_ib(void)
{
	begin(MOCK_IB);
}

static void setup_iwarp(void)
{
	begin(MOCK_IWARP);
}

static unsigned lines_so_far(void)
{
	char text[4096];
	ssize_t i, n = pread(fileno(lines), text, sizeof(text), 0);
	unsigned count = 0;

	for (i = 0; i < n; i++)
		count += text[i] == '\n';
	return count;
}

/* ---- the holder ---- */

static void port_is_taken(void)
{
	peer_listen(&holder, "0.0.0.0", world.rendezvous);
}

static void port_is_free(void)
{
	ck_assert_int_eq(vb.rdma_destroy_id(holder.listener), 0);
	holder.listener = NULL;
}

static void keep_it(int from, int to)
{
	child_say(to, "", 1);
	child_wait(from); /* the descriptor came with the fork */
}

/* We are the holder.  A child gets the address as well, and we are the holder no more. */
static void pass_the_address_on(void)
{
	char ready;

	keeper = child_start(keep_it);
	child_hear(&keeper, &ready, 1);
	verbs_rendezvous_stop();
}

/* The keeper's process ends: by itself, or killed. */
static void address_is_free(int sig)
{
	if (!sig)
		child_tell(&keeper);
	child_end(&keeper, sig);
}

/* ---- what we are ---- */

/*
 * The port is ours: a request there gets an answer of the library.  No other process may have it
 * now.
 */
static bool at_the_port(void)
{
	const struct rdma_cm_event *ev;
	struct verbs_answer a;
	struct verbs_request h;
	bool ours;

	world_hello(&h, VERBS_LOCATE);
	h.port = 4711;
	world_peer_asks(&h, US, world.rendezvous);
	ev = peer_event(&world.peer, RDMA_CM_EVENT_REJECTED);
	ours = verbs_answer_check(ev->param.conn.private_data, ev->param.conn.private_data_len, &a);
	peer_drop_id(&world.peer);
	world_run();
	return ours;
}

struct seen {
	unsigned listen, connected;
	struct sockaddr_un at;
	socklen_t len;
};

static void look_at(int fd, void *arg)
{
	socklen_t dlen = sizeof(int), llen = sizeof(int), len = sizeof(struct sockaddr_un);
	int domain = 0, listens = 0;
	struct seen *seen = arg;
	struct sockaddr_un un;

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &dlen) || domain != AF_UNIX)
		return;
	ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &llen), 0);
	if (!listens) {
		seen->connected += getpeername(fd, (struct sockaddr *)&un, &len) == 0;
		return;
	}
	seen->listen++;
	seen->len = sizeof(seen->at);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&seen->at, &seen->len), 0);
}

/* The library's AF_UNIX sockets in this process. */
static struct seen look(void)
{
	struct seen seen = {0};

	os_fd_each_internal(0, INT_MAX, look_at, &seen);
	return seen;
}

static bool at_the_address(void)
{
	struct seen seen = look();
	bool there;
	int fd;

	ck_assert_uint_eq(seen.connected, 0);
	if (!seen.listen)
		return false;
	ck_assert_uint_eq(seen.listen, 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	there = connect(fd, (struct sockaddr *)&seen.at, seen.len) == 0;
	close(fd);
	return there;
}

static bool waits(void)
{
	struct seen seen = look();

	ck_assert_uint_eq(seen.listen, 0);
	return seen.connected == 1;
}

/* ---- tests ---- */

/* N1, N2: with the first address of a device. */
START_TEST(test_n1_n2_first)
{
	ck_assert(at_the_port());
	ck_assert(at_the_address());
	ck_assert(!world_timer_due(DAY));
}
END_TEST

/* N3, N7, N10: the others sleep until the holder ends, and the role is theirs at once. */
START_TEST(test_n3_n7_n10_the_holder_ends)
{
	static const int sigs[] = {0, SIGKILL};

	pass_the_address_on();
	port_is_taken();
	verbs_rendezvous_start();
	ck_assert(waits());
	ck_assert(!world_timer_due(DAY));
	world_pass(DAY);
	ck_assert(waits());
	port_is_free();
	world_run(); /* nobody looks */
	ck_assert(waits());
	address_is_free(sigs[_i]);
	world_run();
	ck_assert(at_the_address());
	ck_assert(at_the_port());
	ck_assert(!world_timer_due(DAY));
	ck_assert_uint_eq(lines_so_far(), 0);
}
END_TEST

/* N7, N4: the holder's address goes before its port. */
START_TEST(test_n7_n4_port_goes_last)
{
	pass_the_address_on();
	port_is_taken();
	verbs_rendezvous_start();
	address_is_free(SIGKILL);
	world_run();
	ck_assert(!waits());
	world_pass(50 * MS);
	port_is_free();
	world_pass(20 * MS);
	ck_assert(at_the_address());
	ck_assert(at_the_port());
	ck_assert_uint_eq(lines_so_far(), 0);
}
END_TEST

static struct seen taken; /* the address */

static void take_it(int from, int to)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	child_assert(bind(fd, (struct sockaddr *)&taken.at, taken.len) == 0);
	child_assert(listen(fd, 8) == 0);
	child_say(to, "", 1);
	child_wait(from);
}

/* N7, N3: another process was quicker. */
START_TEST(test_n7_n3_the_next_holder)
{
	char ready;

	taken = look();
	pass_the_address_on();
	port_is_taken();
	verbs_rendezvous_start();
	ck_assert(waits());
	address_is_free(SIGKILL);
	keeper = child_start(take_it);
	child_hear(&keeper, &ready, 1);
	world_run();
	ck_assert(waits());
	ck_assert(!world_timer_due(DAY));
	address_is_free(SIGKILL);
	port_is_free();
	world_run();
	ck_assert(at_the_address());
	ck_assert(at_the_port());
}
END_TEST

static void take_it_full(int from, int to)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	child_assert(bind(fd, (struct sockaddr *)&taken.at, taken.len) == 0);
	child_assert(listen(fd, 0) == 0);
	child_assert(connect(other, (struct sockaddr *)&taken.at, taken.len) == 0);
	child_say(to, "", 1);
	child_wait(from);
}

/*
 * N4a: more processes wait than the address of the holder can queue.  The holder is a process of
 * this library all the same.  When it ends, we notice it not much later than the others.
 */
START_TEST(test_n4a_too_many_wait)
{
	char ready;

	taken = look();
	verbs_rendezvous_stop();
	keeper = child_start(take_it_full);
	child_hear(&keeper, &ready, 1);
	port_is_taken();
	verbs_rendezvous_start();
	ck_assert(!waits());
	world_pass(20000 * MS);
	ck_assert(!waits());
	ck_assert_uint_eq(lines_so_far(), 0);
	if (world_timer_due(1 * MS)) /* its pauses are of chance */
		world_pass(1 * MS);
	ck_assert(!world_timer_due(1 * MS));
	address_is_free(SIGKILL);
	port_is_free();
	world_pass(1500 * MS);
	ck_assert(at_the_address());
	ck_assert(at_the_port());
}
END_TEST

/* N4, N2: a port of another library is tried again until it is free.  N5: with one log line. */
START_TEST(test_n4_n5_n2_foreign)
{
	unsigned looks;

	verbs_rendezvous_stop();
	port_is_taken();
	verbs_rendezvous_start();
	ck_assert(!waits());
	ck_assert(world_timer_due(20 * MS));
	world_pass(6 * 20 * MS);
	ck_assert_uint_eq(lines_so_far(), 0);
	world_pass(20 * MS);
	ck_assert_uint_eq(lines_so_far(), 1);
	ck_assert(!world_timer_due(740 * MS));
	looks = mock_calls(MOCK_rdma_bind_addr);
	world_pass(100000 * MS);
	looks = mock_calls(MOCK_rdma_bind_addr) - looks;
	ck_assert_uint_ge(looks, 100000 / 1500);
	ck_assert_uint_le(looks, 100000 / 750 + 1);
	ck_assert_uint_eq(lines_so_far(), 1);
	port_is_free(); /* ... and another's in the same breath */
	port_is_taken();
	world_pass(1500 * MS);
	ck_assert_uint_eq(lines_so_far(), 1);
	port_is_free();
	world_pass(1500 * MS);
	ck_assert(at_the_port());
	ck_assert(at_the_address());
}
END_TEST

/* N6: it cannot be had for any other reason; later it can. */
START_TEST(test_n6_cannot_be_had)
{
	static const enum mock_fn fns[] = {MOCK_rdma_create_id, MOCK_rdma_bind_addr, MOCK_rdma_listen};

	verbs_rendezvous_stop();
	mock_fail_from(fns[_i], 1, ENOMEM);
	verbs_rendezvous_start();
	ck_assert_uint_eq(lines_so_far(), 1);
	world_pass(5000 * MS);
	ck_assert_uint_eq(lines_so_far(), 1);
	mock_fail(fns[_i], 0, 0);
	world_pass(2000 * MS);
	ck_assert(at_the_port());
	ck_assert(at_the_address());
}
END_TEST

struct neighbour {
	struct rds_procid id;
	uint32_t slot;
};

static void be_a_neighbour(int from, int to)
{
	struct neighbour n;
	struct registry *reg;

	registry_abandon(rds_node_registry);
	child_assert(registry_open(&reg) == 0);
	n.id = *registry_self(reg);
	n.slot = registry_self_slot(reg);
	child_say(to, &n, sizeof(n));
	child_wait(from);
}

/* It is what the connection is with: asked for and not answered, or up. */
static void attempt(struct world_conn *c, const struct neighbour *n)
{
	c->id = (struct rds_conn_id){.laddr = v4(US), .faddr = v4(US), .peer = n->id, .peer_slot = n->slot};
	ck_assert_int_eq(
		verbs_ep_connect(world.t, &c->id, (struct rds_conn *)(void *)c, (struct rds_received){0}, &c->ep), 0);
	c->open = true;
}

static void come_up(struct world_conn *c, const struct neighbour *n)
{
	struct verbs_request h;

	world_hello(&h, VERBS_CONNECT);
	h.self = n->id;
	h.credits = VERBS_CREDITS(0, 8);
	world_joined_with(c, &h);
	world_peer_frame(&(struct rds_hdr){0}, NULL, 0); /* on iWARP it must speak first */
	world_run();
	ck_assert_uint_eq(c->ups, 1);
}

/*
 * N8: a process of this host has ended, and it may have been the holder: the next look does not
 * wait.  What tells of the end may be a failed attempt (A25) or a connection that was up (E11);
 * here the peer's device tells first.
 */
START_TEST(test_n8_e11_a_neighbour_ends)
{
	struct world_conn *c = &world.conn[0];
	struct neighbour n;
	struct child child;

	verbs_rendezvous_stop();
	child = child_start(be_a_neighbour); /* which must not come to have the address */
	child_hear(&child, &n, sizeof(n));
	port_is_taken();
	verbs_rendezvous_start();
	world_pass(10000 * MS);
	ck_assert(!waits());
	port_is_free();
	world_run();
	ck_assert(!at_the_port());
	if (_i)
		come_up(c, &n);
	else
		attempt(c, &n);
	child_end(&child, SIGKILL);
	if (_i)
		peer_drop_id(&world.peer);
	world_run(); /* and no time goes by */
	ck_assert_uint_eq(c->downs, 1);
	ck_assert(c->gone);
	ck_assert(at_the_port());
	ck_assert(at_the_address());
}
END_TEST

/* N9: we have the port, and the last holder, which is not quite gone, still has the address. */
START_TEST(test_n9_address_goes_last)
{
	pass_the_address_on();
	verbs_rendezvous_start();
	ck_assert(at_the_port());
	ck_assert(!at_the_address());
	world_pass(1000 * MS);
	ck_assert(!at_the_address());
	address_is_free(SIGKILL);
	world_run();
	ck_assert(!at_the_address());
	world_pass(100 * MS);
	ck_assert(at_the_address());
	ck_assert(at_the_port());
	ck_assert(!world_timer_due(DAY));
}
END_TEST

static void end(void)
{
	peer_end(&holder);
	world_end();
	fclose(lines);
}

static void tests(TCase *t)
{
	tcase_add_test(t, test_n1_n2_first);
	tcase_add_loop_test(t, test_n3_n7_n10_the_holder_ends, 0, 2);
	tcase_add_test(t, test_n7_n4_port_goes_last);
	tcase_add_test(t, test_n7_n3_the_next_holder);
	tcase_add_test(t, test_n4a_too_many_wait);
	tcase_add_test(t, test_n4_n5_n2_foreign);
	tcase_add_loop_test(t, test_n6_cannot_be_had, 0, 3);
	tcase_add_loop_test(t, test_n8_e11_a_neighbour_ends, 0, 2);
	tcase_add_test(t, test_n9_address_goes_last);
}

int main(void)
{
	Suite *s = suite_create("verbs_rendezvous");

	tests(suite_case(s, "ib", setup_ib, end));
	tests(suite_case(s, "iwarp", setup_iwarp, end));
	return suite_run(s);
}
