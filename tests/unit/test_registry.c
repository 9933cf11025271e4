/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_registry.c - the node registry among well-behaved processes: names, ports, order, counters,
 * deaths, speed.
 */
#include <time.h>

#include "engine/rds.h"
#include "engine/node/socket_name.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

static int bind_try(struct registry *reg, uint32_t idx, const char *addr, uint16_t port, uint32_t scope)
{
	struct in6_addr a = v4(addr);
	uint16_t got;

	return registry_sock_bind(reg, idx, &a, port, scope, 2, &got);
}

static int lookup(struct registry *reg, const char *addr, uint16_t port, struct registry_owner *o)
{
	struct in6_addr a = v4(addr);

	return registry_lookup(reg, &a, port, 0, o);
}

START_TEST(opens_and_closes)
{
	struct registry *reg = open_ok(), *second;
	struct rds_procid first = *registry_self(reg), zero = { { 0 } };
	struct stat st;
	char dir[128];

	ck_assert_mem_ne(&first, &zero, sizeof(zero));
	ck_assert_int_eq(stat(test_file, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0600);
	ck_assert_int_ge(st.st_blocks * 512, (long)REG_SIZE(REG_CHUNK)); /* all of it reserved */
	snprintf(dir, sizeof(dir), "%s/rdspreload-%u", test_dir, (unsigned)geteuid());
	ck_assert_int_eq(stat(dir, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0700);
	ck_assert_int_eq(registry_open(&second), -EBUSY);
	registry_close(reg);

	reg = open_ok();
	ck_assert_mem_ne(registry_self(reg), &first, sizeof(first));
	registry_close(reg);
}
END_TEST

START_TEST(binds_and_finds)
{
	struct registry *reg = open_ok();
	uint32_t a = add_ok(reg), b = add_ok(reg);
	struct registry_owner o;
	uint64_t gen = registry_generation(reg);

	ck_assert_int_eq(lookup(reg, "127.0.0.1", 4000, &o), -ENOENT);
	/* an unbound entry looks like that */
	ck_assert_int_eq(lookup(reg, "0.0.0.0", 0, &o), -ENOENT);
	ck_assert_int_eq(registry_generation(reg), gen);
	ck_assert_int_eq(bind_ok(reg, a, "127.0.0.1", 4000), 4000);
	ck_assert_int_ne(registry_generation(reg), gen);
	gen = registry_generation(reg);

	ck_assert_int_eq(lookup(reg, "127.0.0.1", 4000, &o), 0);
	ck_assert_uint_eq(o.sock, a);
	ck_assert_int_eq(o.pid, getpid());
	ck_assert_mem_eq(&o.procid, registry_self(reg), sizeof(o.procid));
	ck_assert(registry_proc_alive(reg, o.proc, &o.procid));

	ck_assert_int_eq(bind_try(reg, a, "127.0.0.1", 4001, 0), -EINVAL); /* bound already */
	ck_assert_int_eq(bind_try(reg, b, "127.0.0.1", 4000, 0), -EADDRINUSE);
	ck_assert_int_eq(registry_generation(reg), gen);
	/* another scope is another name */
	ck_assert_int_eq(bind_try(reg, b, "127.0.0.1", 4000, 3), 0);
	b = add_ok(reg);
	ck_assert_int_eq(bind_try(reg, b, "127.0.0.2", 4000, 0), 0);
	ck_assert_int_eq(lookup(reg, "127.0.0.2", 4000, &o), 0);
	ck_assert_uint_eq(o.sock, b);

	gen = registry_generation(reg);
	registry_sock_remove(reg, a);
	ck_assert_int_ne(registry_generation(reg), gen);
	ck_assert_int_eq(lookup(reg, "127.0.0.1", 4000, &o), -ENOENT);
	ck_assert_int_eq(lookup(reg, "127.0.0.2", 4000, &o), 0);
	registry_sock_remove(reg, a); /* twice: no harm */
	a = add_ok(reg);
	bind_ok(reg, a, "127.0.0.1", 4000);
	registry_close(reg);
}
END_TEST

START_TEST(snapshots_in_creation_order)
{
	struct registry *reg = open_ok();
	uint32_t a = add_ok(reg), b = add_ok(reg), c;
	struct in6_addr peer = v4("127.0.0.9");
	struct registry_sock *v;
	struct registry_proc *p;
	unsigned n;

	registry_sock_remove(reg, a);
	c = add_ok(reg); /* takes a's place in the file, not in the order */
	ck_assert_uint_eq(a, c);
	bind_ok(reg, c, "127.0.0.1", 5000);
	registry_sock_set_connected(reg, c, &peer, 6000);
	registry_sock_set_bufs(reg, b, 11, 22);
	ck_assert_int_eq(registry_socks(reg, &v, &n), 0);
	ck_assert_uint_eq(n, 2);
	ck_assert_uint_eq(v[0].sndbuf, 11);
	ck_assert_uint_eq(v[0].rcvbuf, 22);
	ck_assert_uint_eq(v[0].bound_port, 0);
	ck_assert(IN6_IS_ADDR_UNSPECIFIED(&v[0].bound));
	ck_assert_uint_eq(v[0].inode, 77);
	ck_assert_uint_eq(v[1].sndbuf, 1000);
	ck_assert_uint_eq(v[1].bound_port, 5000);
	ck_assert_uint_eq(v[1].connected_port, 6000);
	ck_assert_mem_eq(&v[1].connected, &peer, sizeof(peer));
	ck_assert_int_eq(v[1].transport, 2);
	ck_assert_int_eq(v[1].pid, getpid());
	ck_assert_mem_eq(&v[1].procid, registry_self(reg), sizeof(v[1].procid));
	free(v);

	ck_assert_int_eq(registry_procs(reg, &p, &n), 0);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(p[0].pid, getpid());
	ck_assert_str_ne(p[0].comm, "");
	ck_assert_mem_eq(&p[0].id, registry_self(reg), sizeof(p[0].id));
	free(p);
	registry_close(reg);
}
END_TEST

/* Who listens where, and which slot a process has; a slot's next owner inherits nothing. */
START_TEST(where_processes_listen)
{
	struct registry *reg = open_ok();
	struct rds_procid me = *registry_self(reg), other = me;
	uint32_t slot = 9999, mine = registry_self_slot(reg);

	ck_assert(registry_proc_find(reg, &me, &slot));
	ck_assert_uint_eq(slot, mine);
	other.b[3] ^= 1;
	ck_assert(!registry_proc_find(reg, &other, &slot));
	ck_assert_uint_eq(registry_proc_cm_port(reg, mine, &me), 0);
	registry_set_cm_port(reg, 61000);
	ck_assert_uint_eq(registry_proc_cm_port(reg, mine, &me), 61000);
	ck_assert_uint_eq(registry_proc_cm_port(reg, mine, &other), 0);
	ck_assert_uint_eq(registry_proc_cm_port(reg, mine + 1, &me), 0);
	ck_assert_uint_eq(registry_proc_cm_port(reg, UINT32_MAX, &me), 0);
	registry_close(reg);

	reg = open_ok();
	ck_assert_uint_eq(registry_self_slot(reg), mine);
	ck_assert(!registry_proc_find(reg, &me, &slot));
	ck_assert_uint_eq(registry_proc_cm_port(reg, mine, registry_self(reg)), 0);
	ck_assert_uint_eq(registry_proc_cm_port(reg, mine, &me), 0);
	registry_close(reg);
}
END_TEST

static void just_a_member(int from, int to)
{
	struct registry *reg;
	char c;

	child_assert(registry_open(&reg) == 0);
	child_assert(write(to, "", 1) == 1);
	child_assert(read(from, &c, 1) == 1);
}

/*
 * What counts of another user is the lock, as long as it has it; not the number that damage or
 * another owner has left in a slot.
 */
START_TEST(who_is_trusted)
{
	struct registry *reg = open_ok();
	struct child c = child_start(just_a_member);
	struct ucred cred = {.pid = getppid(), .uid = geteuid(), .gid = getegid()};
	char said;

	child_hear(&c, &said, 1);
	ck_assert(registry_trusts(reg, &cred));
	cred.uid++;
	ck_assert(!registry_trusts(reg, &cred)); /* the same group is not enough */
	test_share("group");
	ck_assert(registry_trusts(reg, &cred));
	cred.gid++;
	ck_assert(!registry_trusts(reg, &cred));
	test_share("all");
	ck_assert(registry_trusts(reg, &cred));
	test_share("user");
	cred.pid = c.pid;
	ck_assert(registry_trusts(reg, &cred));
	child_end(&c, SIGKILL);
	ck_assert(!registry_trusts(reg, &cred)); /* its slot is still there */
	ck_assert_int_eq(registry_reap(reg), 1);
	registry_close(reg);
}
END_TEST

/* ... which maps no more of the file than is used, and all of that. */
static void another_finds(unsigned ports)
{
	struct registry_owner o;
	struct registry *reg;
	unsigned port, found = 0;
	int status;
	pid_t pid = fork();

	if (!pid) {
		if (registry_open(&reg))
			_exit(1);
		for (port = 2; port < 65536; port++)
			found += lookup(reg, "127.0.0.1", (uint16_t)port, &o) == 0;
		_exit(found != ports);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

/* Every port of one address, so the search has to wrap and has to find the very last one. */
START_TEST(port_zero)
{
	struct registry *reg = open_ok();
	struct in6_addr a = v4("127.0.0.1");
	uint8_t seen[65536] = { 0 };
	uint32_t idx[65536], extra;
	struct registry_owner o;
	uint64_t t0, longest = 0;

	for (unsigned i = 0; i < 65534; i++) {
		uint16_t port = 0;

		idx[i] = add_ok(reg);
		t0 = os_now_ns();
		ck_assert_int_eq(registry_sock_bind(reg, idx[i], &a, 0, 0, 1, &port), 0);
		t0 = os_now_ns() - t0;
		longest = t0 > longest ? t0 : longest;
		ck_assert_uint_ge(port, 2);
		ck_assert(!seen[port]);
		seen[port] = 1;
		if (i % 1000 == 0 && lookup(reg, "127.0.0.1", port, &o) != 0)
			ck_abort_msg("port %u is bound and not found", port);
	}
	another_finds(65534);
	printf("port_zero: 65534 ports bound, longest bind %llu us\n", (unsigned long long)longest / 1000);
	extra = add_ok(reg);
	ck_assert_int_eq(bind_try(reg, extra, "127.0.0.1", 0, 0), -EADDRINUSE);
	/* other addresses have their own ports */
	ck_assert_int_eq(bind_try(reg, extra, "127.0.0.2", 0, 0), 0);
	registry_sock_remove(reg, extra);

	registry_sock_remove(reg, idx[100]);
	extra = add_ok(reg);
	/* the only one that is left */
	ck_assert_int_eq(bind_try(reg, extra, "127.0.0.1", 0, 0), 0);
	add_ok(reg);
	add_ok(reg);
	ck_assert_int_eq(registry_sock_add(reg, 1, 1, 1, &extra), -ENFILE); /* 65536 are there */
	registry_close(reg);

	reg = open_ok();
	ck_assert_int_eq(lookup(reg, "127.0.0.1", 4000, &o), -ENOENT);
	registry_close(reg);
}
END_TEST

static void member(int from, int to)
{
	struct registry *reg;
	struct in6_addr a;
	uint16_t port;
	uint32_t idx;

	inet_pton(AF_INET6, "::ffff:127.0.0.1", &a);
	child_assert(registry_open(&reg) == 0);
	child_assert(registry_sock_add(reg, 5, 1, 1, &idx) == 0);
	child_assert(registry_sock_bind(reg, idx, &a, 7000, 0, 1, &port) == 0);
	atomic_fetch_add(&registry_counters(reg)[3], 10);
	child_say(to, registry_self(reg), sizeof(struct rds_procid));
	child_wait(from);
	registry_close(reg);
	child_say(to, "", 1);
	child_wait(from);
}

START_TEST(the_dead_leave_nothing)
{
	struct child c = child_start(member);
	struct registry *reg = open_ok();
	uint64_t sum[RDS_STATS];
	struct rds_procid id;
	struct registry_owner o;
	struct registry_sock *v;
	struct registry_proc *p;
	unsigned n;

	child_hear(&c, &id, sizeof(id));
	atomic_fetch_add(&registry_counters(reg)[3], 1);
	ck_assert_int_eq(lookup(reg, "127.0.0.1", 7000, &o), 0);
	ck_assert_mem_eq(&o.procid, &id, sizeof(id));
	ck_assert_int_eq(o.pid, c.pid);
	ck_assert(registry_proc_alive(reg, o.proc, &id));
	ck_assert_int_eq(registry_reap(reg), 0);
	ck_assert_int_eq(bind_try(reg, add_ok(reg), "127.0.0.1", 7000, 0), -EADDRINUSE);

	child_end(&c, SIGKILL);
	ck_assert(!registry_proc_alive(reg, o.proc, &id));
	ck_assert_int_eq(registry_socks(reg, &v, &n), 0);
	ck_assert_uint_eq(n, 1); /* ours, unbound */
	free(v);
	ck_assert_int_eq(registry_procs(reg, &p, &n), 0);
	ck_assert_uint_eq(n, 1);
	free(p);
	registry_counters_sum(reg, sum);
	ck_assert_uint_eq(sum[3], 11);
	ck_assert_int_eq(registry_reap(reg), 1);
	ck_assert_int_eq(registry_reap(reg), 0);
	registry_counters_sum(reg, sum);
	ck_assert_uint_eq(sum[3], 11);
	ck_assert_int_eq(lookup(reg, "127.0.0.1", 7000, &o), -ENOENT);
	registry_close(reg);

	reg = open_ok(); /* the node remembers its counters when nobody is there */
	registry_counters_sum(reg, sum);
	ck_assert_uint_eq(sum[3], 11);
	registry_close(reg);
}
END_TEST

/* What its socket is called, and that it exists (node/socket_name.h). */
static struct rds_procid named;
static int standin;

static void member_with_name(int from, int to)
{
	struct registry *reg = open_ok();
	uint32_t idx = add_ok(reg);
	char byte;

	bind_ok(reg, idx, "127.0.0.1", 7000);
	registry_sock_set_name(reg, idx, &named);
	if (write(to, &idx, sizeof(idx)) != sizeof(idx) || read(from, &byte, 1) != 1)
		_exit(1);
}

START_TEST(what_others_have_becomes_nobodys)
{
	struct registry *reg = open_ok();
	struct registry_owner o;
	struct registry_sock where;
	struct child c;
	uint64_t order;
	uint32_t idx;

	standin = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(standin, 0);
	rds_node_name_bind(standin, &named);
	c = child_start(member_with_name);
	child_hear(&c, &idx, sizeof(idx));
	/* a process that has it lives */
	ck_assert_int_eq(registry_sock_take_over(reg, idx, &named, false), -ENOENT);
	child_end(&c, SIGKILL);
	ck_assert_int_eq(registry_reap(reg), 1);
	ck_assert_int_eq(lookup(reg, "127.0.0.1", 7000, &o), 0);
	ck_assert_uint_eq(o.proc, REGISTRY_NOBODY);
	ck_assert(o.moved);
	ck_assert_mem_eq(&o.procid, &named, sizeof(named));
	order = o.order;
	ck_assert(!registry_sock_is_gone(reg, o.sock, &named));
	ck_assert_int_eq(bind_try(reg, add_ok(reg), "127.0.0.1", 7000, 0), -EADDRINUSE);
	ck_assert_int_eq(registry_sock_get_binding(reg, idx, &named, &where), 0);
	ck_assert_uint_eq(where.bound_port, 7000);
	ck_assert_int_eq(registry_sock_take_over(reg, idx, &named, false), 0);
	ck_assert_int_eq(lookup(reg, "127.0.0.1", 7000, &o), 0);
	ck_assert_uint_eq(o.proc, registry_self_slot(reg));
	ck_assert_uint_eq(o.order, order); /* the same socket */
	ck_assert(!registry_sock_is_gone(reg, idx, &named)); /* who asks late: it is with us */
	registry_sock_remove(reg, idx);
	ck_assert(registry_sock_is_gone(reg, idx, &named));
	ck_assert_uint_eq(add_ok(reg), idx);
	ck_assert(registry_sock_is_gone(reg, idx, &named)); /* another socket is in its place */
	registry_sock_remove(reg, idx);

	/* And one that nobody has any more when it is looked for. */
	c = child_start(member_with_name);
	child_hear(&c, &idx, sizeof(idx));
	child_end(&c, SIGKILL);
	/* before anybody has noticed */
	ck_assert_int_eq(registry_sock_take_over(reg, idx, &named, true), 0);
	ck_assert_int_eq(registry_sock_orphan(reg, idx, &named), 0);
	close(standin);
	ck_assert(registry_sock_is_gone(reg, idx, &named));
	bind_ok(reg, add_ok(reg), "127.0.0.1", 7000);
	ck_assert_int_eq(lookup(reg, "127.0.0.1", 7000, &o), 0);
	ck_assert_uint_ne(o.order, order);
	registry_close(reg);
}
END_TEST

START_TEST(a_dead_owner_does_not_hold_a_port)
{
	struct child c = child_start(member);
	struct registry *reg = open_ok();
	struct rds_procid id;
	uint64_t sum[RDS_STATS];

	child_hear(&c, &id, sizeof(id));
	child_end(&c, SIGKILL);
	bind_ok(reg, add_ok(reg), "127.0.0.1", 7000); /* without any reap in between */
	registry_counters_sum(reg, sum);
	ck_assert_uint_eq(sum[3], 10);

	c = child_start(member); /* the second one clears away nothing and is refused the port */
	ck_assert_int_ne(child_end(&c, 0), 0);
	registry_close(reg);
}
END_TEST

#define CROWD 40

static void passer_by(int from, int to)
{
	struct registry *reg;

	child_assert(registry_open(&reg) == 0);
	child_say(to, "", 1);
	child_wait(from);
}

/* CROWD processes are killed at once; of the first one there is more to know. */
static void crowd_dies(struct registry *reg, struct registry_owner *first)
{
	struct child c[CROWD];
	struct rds_procid id;
	char said;
	int i;

	c[0] = child_start(member);
	child_hear(&c[0], &id, sizeof(id));
	ck_assert_int_eq(lookup(reg, "127.0.0.1", 7000, first), 0);
	for (i = 1; i < CROWD; i++) {
		c[i] = child_start(passer_by);
		child_hear(&c[i], &said, 1);
	}
	for (i = 0; i < CROWD; i++)
		child_end(&c[i], SIGKILL);
}

/* What one process costs does not depend on how many others there are, dead or alive. */
START_TEST(a_process_that_begins_asks_about_few_others)
{
	struct registry *reg = open_ok();
	struct registry_owner first;
	struct child c;
	char said;
	int left;

	crowd_dies(reg, &first);
	c = child_start(passer_by);
	child_hear(&c, &said, 1);
	left = registry_reap(reg);
	ck_assert_int_ge(left, CROWD / 2);
	ck_assert_int_lt(left, CROWD);
	child_end(&c, SIGKILL);
	registry_close(reg);
}
END_TEST

static void visitor(int from, int to)
{
	struct registry *reg;

	(void)from;
	child_assert(registry_open(&reg) == 0);
	registry_close(reg);
	child_say(to, "", 1);
}

/* Those who begin find the dead behind many who live: slots are taken from the first one on. */
START_TEST(the_dead_are_found_behind_those_who_live)
{
	struct child c[CROWD], v;
	struct registry *reg;
	char said;
	int i;

	for (i = 0; i < CROWD; i++) {
		c[i] = child_start(passer_by);
		child_hear(&c[i], &said, 1);
	}
	for (i = CROWD / 2; i < CROWD; i++)
		child_end(&c[i], SIGKILL);
	for (i = 0; i < 12; i++) {
		v = child_start(visitor);
		child_hear(&v, &said, 1);
		child_end(&v, 0);
	}
	reg = open_ok();
	ck_assert_int_lt(registry_reap(reg), CROWD / 4);
	for (i = 0; i < CROWD / 2; i++)
		child_end(&c[i], SIGKILL);
	registry_close(reg);
}
END_TEST

START_TEST(one_of_the_dead_is_cleared_up_alone)
{
	struct registry *reg = open_ok();
	struct registry_owner first;

	crowd_dies(reg, &first);
	ck_assert_int_eq(registry_reap_proc(reg, registry_self_slot(reg)), 0);
	ck_assert_int_eq(registry_reap_proc(reg, first.proc), 1);
	ck_assert_int_eq(lookup(reg, "127.0.0.1", 7000, &first), -ENOENT);
	ck_assert_int_eq(registry_reap_proc(reg, first.proc), 0);
	ck_assert_int_eq(registry_reap_proc(reg, UINT32_MAX), 0);
	ck_assert_int_eq(registry_reap(reg), CROWD - 1);
	registry_close(reg);
}
END_TEST

static void many_sockets(int from, int to)
{
	struct registry *reg;
	uint32_t idx;

	child_assert(registry_open(&reg) == 0);
	for (int i = 0; i < REG_CHUNK; i++)
		child_assert(registry_sock_add(reg, 5, 1, 1, &idx) == 0);
	child_say(to, "", 1);
	child_wait(from);
}

/* The file does not grow as long as the dead have entries. */
START_TEST(entries_of_the_dead_are_used_again)
{
	struct registry *reg = open_ok();
	struct child c = child_start(many_sockets);
	struct stat before, after;
	char said;
	int i;

	child_hear(&c, &said, 1);
	child_end(&c, SIGKILL);
	ck_assert_int_eq(stat(test_file, &before), 0);
	for (i = 0; i < REG_CHUNK; i++)
		add_ok(reg);
	ck_assert_int_eq(stat(test_file, &after), 0);
	ck_assert_int_eq(before.st_size, after.st_size);
	registry_close(reg);
}
END_TEST

START_TEST(an_orderly_leave_keeps_the_counters)
{
	struct child c = child_start(member);
	struct registry *reg = open_ok();
	struct registry_owner o;
	struct rds_procid id;
	uint64_t sum[RDS_STATS];
	char ok;

	child_hear(&c, &id, sizeof(id));
	child_tell(&c);
	child_hear(&c, &ok, 1); /* closed, and still running */
	ck_assert_int_eq(lookup(reg, "127.0.0.1", 7000, &o), -ENOENT);
	ck_assert_int_eq(registry_reap(reg), 0);
	registry_counters_sum(reg, sum);
	ck_assert_uint_eq(sum[3], 10);
	child_tell(&c);
	ck_assert_int_eq(child_end(&c, 0), 0);
	registry_close(reg);
}
END_TEST

static struct registry *inherited;

static void forked(int from, int to)
{
	struct registry *reg;
	struct rds_procid parent = *registry_self(inherited);

	registry_abandon(inherited);
	child_assert(registry_open(&reg) == 0);
	child_assert(memcmp(registry_self(reg), &parent, sizeof(parent)) != 0);
	child_say(to, registry_self(reg), sizeof(parent));
	child_wait(from);
	registry_close(reg);
}

START_TEST(fork_gives_a_fresh_member)
{
	struct registry_owner o;
	struct rds_procid id;
	struct child c;

	inherited = open_ok();
	bind_ok(inherited, add_ok(inherited), "127.0.0.1", 7001);
	rds_stat_block = registry_counters(inherited);
	c = child_start(forked);
	child_hear(&c, &id, sizeof(id));
	ck_assert_mem_ne(&id, registry_self(inherited), sizeof(id));
	ck_assert_int_eq(registry_reap(inherited), 0);
	ck_assert_int_eq(lookup(inherited, "127.0.0.1", 7001, &o), 0);
	child_tell(&c);
	ck_assert_int_eq(child_end(&c, 0), 0);
	ck_assert(registry_proc_alive(inherited, o.proc, &o.procid));
	RDS_STAT_INC(conn_reset);
	registry_close(inherited);
	RDS_STAT_INC(conn_reset); /* goes to the dummy, not to unmapped memory */
}
END_TEST

/* The processor's time of this thread: what others take of it is not ours. */
static uint64_t worked_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

START_TEST(speed)
{
	struct registry *reg = open_ok();
	struct in6_addr a = v4("127.0.0.1");
	struct registry_owner o;
	uint64_t t, look_ns, gen_ns, cycle_ns, x = 0;
	unsigned bad = 0;
	uint16_t port;
	uint32_t idx;

	for (int i = 0; i < 1000; i++)
		bind_ok(reg, add_ok(reg), "127.0.0.1", (uint16_t)(10000 + i));
	t = worked_ns();
	for (int i = 0; i < 1000000; i++)
		bad += registry_lookup(reg, &a, (uint16_t)(10000 + i % 1000), 0, &o) != 0;
	look_ns = (worked_ns() - t) / 1000000;
	t = worked_ns();
	for (int i = 0; i < 1000000; i++)
		x += registry_generation(reg);
	gen_ns = (worked_ns() - t) / 10000;
	t = worked_ns();
	for (int i = 0; i < 20000; i++) {
		bad += registry_sock_add(reg, 1, 1, 1, &idx) != 0;
		bad += registry_sock_bind(reg, idx, &a, 0, 0, 1, &port) != 0;
		registry_sock_remove(reg, idx);
	}
	cycle_ns = (worked_ns() - t) / 20000;
	printf("speed: look-up %llu ns, generation %llu.%02llu ns, add + bind + remove %llu ns\n",
	       (unsigned long long)look_ns, (unsigned long long)gen_ns / 100, (unsigned long long)gen_ns % 100,
	       (unsigned long long)cycle_ns);
	ck_assert_uint_ne(x, 0);
	ck_assert_uint_eq(bad, 0);
	ck_assert_uint_lt(look_ns, 20000); /* a system call or a long walk crept in */
	registry_close(reg);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("registry");
	TCase *tc = suite_case(s, "node", registry_setup, registry_teardown);

	tcase_add_test(tc, opens_and_closes);
	tcase_add_test(tc, binds_and_finds);
	tcase_add_test(tc, snapshots_in_creation_order);
	tcase_add_test(tc, where_processes_listen);
	tcase_add_test(tc, who_is_trusted);
	tcase_add_test(tc, port_zero);
	tcase_add_test(tc, the_dead_leave_nothing);
	tcase_add_test(tc, what_others_have_becomes_nobodys);
	tcase_add_test(tc, a_dead_owner_does_not_hold_a_port);
	tcase_add_test(tc, a_process_that_begins_asks_about_few_others);
	tcase_add_test(tc, the_dead_are_found_behind_those_who_live);
	tcase_add_test(tc, one_of_the_dead_is_cleared_up_alone);
	tcase_add_test(tc, entries_of_the_dead_are_used_again);
	tcase_add_test(tc, an_orderly_leave_keeps_the_counters);
	tcase_add_test(tc, fork_gives_a_fresh_member);
	tcase_add_test(tc, speed);
	return suite_run(s);
}
