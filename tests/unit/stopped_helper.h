/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * stopped_helper.h - the registry compiled in, with a step before every store of it and every
 * record lock; processes that make one change and are stopped or killed at a step of it; what has
 * to be there afterwards.
 */
#ifndef TESTS_UNIT_STOPPED_HELPER_H
#define TESTS_UNIT_STOPPED_HELPER_H

#include <sched.h>
#include <time.h>

#include "engine/sys/os.h"
#include "engine/sys/patience.h"
#include "engine/node/layout.h"
#include "engine/node/socket_name.h"

static void step(const char *what);
static void choose(void *buf, size_t len);
#undef reg_store
#define reg_store(p, v) (step(#p), atomic_store_explicit((p), (v), memory_order_release))
#define os_lock(...) (step("lock"), os_lock(__VA_ARGS__))
#define os_fallocate(...) (step("fallocate"), os_fallocate(__VA_ARGS__))
#define os_random(buf, len) (os_random(buf, len), choose(buf, len))
/* So a process is gone on without that is only slow, too. */
#define RDS_PATIENCE_REGISTRY_STUCK ((enum rds_patience)3)

#include "engine/node/registry.c"
#include "engine/node/area.c"
#include "engine/node/file.c"
#include "engine/node/own_entry.c"
#include "engine/node/others.c"
#include "engine/node/port_name.c"
#include "engine/node/area_lock.c"
#include "engine/node/file_lock.c"
#include "engine/node/inherited.c"
#include "engine/node/process.c"
#include "engine/node/bindings.c"
#include "engine/node/slab.c"

#include "tests/unit/registry_helper.h"

#define PORT 5000 /* wanted by all */
#define NOBODYS 6001 /* of nobody, in the end: looked for by some */
#define BUFS 11

static long steps, stop_at, kill_at; /* of this process; 0: not now */
/* how often it rests at a step, of which one it does not know */
static unsigned dawdles, seed;
static long rest_at;
static void (*rests)(void); /* once, at the step rest_at */
static uint16_t search_at;  /* where a search for any port begins; 0: by chance */

static void choose(void *buf, size_t len)
{
	if (search_at && len == sizeof(search_at))
		memcpy(buf, &search_at, len);
}

static void step(const char *what)
{
	if (!strcmp(what, "&a->beat")) /* there are many, and they mean nothing */
		return;
	steps++;
	if (dawdles && !strstr(what, "bucket") && rand_r(&seed) % 32 == 0) {
		dawdles--;
		/* others have so many times more patience */
		usleep((unsigned)rand_r(&seed) % 8000 * (unsigned)rds_options()->patience);
	}
	if (rests && steps == rest_at) {
		void (*rest)(void) = rests;

		rests = NULL;
		rest();
	}
	if (steps == stop_at)
		raise(SIGSTOP);
	if (steps == kill_at)
		raise(SIGKILL);
}

/* What a child has done. */
struct said {
	struct rds_procid id;
	int ret;
	uint32_t idx;
	uint16_t port;
	long steps;
};

static struct said *said, *saids; /* the one that is looked at; all */
static struct registry *parents;
static struct rds_procid named;
static int standin;

static void stopped_setup(void)
{
	registry_setup();
	saids = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(saids, MAP_FAILED);
	said = saids;
	standin = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	rds_node_name_bind(standin, &named);
	parents = open_ok();
}

static void stopped_teardown(void)
{
	registry_close(parents);
	close(standin);
	registry_teardown();
}

/* ---- what can be stopped ---- */

static struct registry *reg; /* the child's */
static const uint32_t no_sock = UINT32_MAX;

static void none(void)
{
}

static void prepare_sock(void)
{
	said->idx = add_ok(reg);
}

static void prepare_named(void)
{
	prepare_sock();
	bind_ok(reg, said->idx, "127.0.0.1", 6000);
	registry_sock_set_name(reg, said->idx, &named);
}

static void prepare_left(void)
{
	prepare_named();
	child_assert(registry_sock_orphan(reg, said->idx, &named) == 0);
}

static void act_add(void)
{
	said->ret = registry_sock_add(reg, 5, 6, 7, &said->idx);
}

static void act_bind(void)
{
	struct in6_addr a = v4("127.0.0.1");

	said->ret = registry_sock_bind(reg, said->idx, &a, said->port, 0, 2, &said->port);
}

static void prepare_port(void)
{
	prepare_sock();
	said->port = PORT;
}

static void act_remove(void)
{
	registry_sock_remove(reg, said->idx);
}

static void act_bufs(void)
{
	registry_sock_set_bufs(reg, said->idx, BUFS, BUFS);
}

static void act_connect(void)
{
	struct in6_addr a = v4("127.0.0.9");

	registry_sock_set_connected(reg, said->idx, &a, BUFS);
}

static void act_leave(void)
{
	said->ret = registry_sock_orphan(reg, said->idx, &named);
}

static void act_take(void)
{
	said->ret = registry_sock_take_over(reg, said->idx, &named, false);
}

/* Somebody who has counted one and dies with two sockets. */
static void prepare_dead(void)
{
	pid_t pid = fork();

	if (!pid) {
		os_fds_forked();
		registry_abandon(reg);
		child_assert(registry_open(&reg) == 0);
		prepare_named();
		bind_ok(reg, add_ok(reg), "127.0.0.1", NOBODYS);
		atomic_fetch_add(&registry_counters(reg)[3], 1);
		_exit(0);
	}
	child_assert(waitpid(pid, NULL, 0) == pid);
}

static void act_reap(void)
{
	said->ret = registry_reap(reg);
}

static void act_open(void)
{
	registry_close(reg);
	said->ret = registry_open(&reg);
	if (!said->ret)
		said->id = *registry_self(reg);
}

static void act_join(void)
{
	child_assert(registry_open(&reg) == 0);
	said->id = *registry_self(reg);
	act_add();
}

static void act_close(void)
{
	atomic_fetch_add(&registry_counters(reg)[3], 1);
	registry_close(reg);
	reg = NULL;
}

/* ---- what is there afterwards ---- */

static struct registry_sock *find(const struct registry_sock *v, unsigned n, uint32_t idx)
{
	for (unsigned i = 0; i < n; i++)
		if (v[i].sock == idx)
			return (struct registry_sock *)&v[i];
	return NULL;
}

static unsigned count_of(const struct registry_sock *v, unsigned n, const struct rds_procid *id)
{
	unsigned found = 0;

	for (unsigned i = 0; i < n; i++)
		found += !memcmp(&v[i].procid, id, sizeof(*id));
	return found;
}

/*
 * Lists and chains: every entry is unused and in the list, or used and found, and so are all of
 * them.
 */
static void audit(void)
{
	uint32_t used = 0, unused = 0, link;
	struct reg_key key;

	ck_assert_int_eq(reg_lock(parents), 0);
	for (link = 1; link <= reg_usable(parents->at); link++) {
		struct reg_sock *s = reg_sock_at(parents->at, link);

		if (!reg_load(&s->mark))
			continue;
		used++;
		entry_read_key(s, &key);
		if (key.port)
			ck_assert_uint_eq(reg_table_find(parents->at, &key), link);
	}
	for (link = reg_load(&reg_area(parents)->free); link; unused++)
		link = reg_load(&reg_sock_at(parents->at, link)->next);
	ck_assert_uint_eq(used + unused, reg_usable(parents->at));
	ck_assert_uint_eq(reg_load(&reg_area(parents)->dirty), 0);
	reg_unlock(parents);
}

struct change {
	const char *name;
	void (*prepare)(void), (*act)(void); /* no prepare: it is not there yet */
	unsigned socks, procs; /* of the child, afterwards */
	unsigned dies;	       /* others that have counted one, and are dead */
	void (*check)(struct registry_sock *s, bool have_port);
};

static void check_add(struct registry_sock *s, bool have_port)
{
	(void)have_port;
	ck_assert_int_eq(said->ret, 0);
	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(s->inode, 5);
	ck_assert_uint_eq(s->rcvbuf, 7);
	ck_assert_uint_eq(s->bound_port, 0);
}

static void check_bind(struct registry_sock *s, bool have_port)
{
	ck_assert_ptr_nonnull(s);
	ck_assert_int_eq(said->ret, have_port ? -EADDRINUSE : 0);
	ck_assert_uint_eq(s->bound_port, have_port ? 0 : PORT);
	ck_assert_int_eq(IN6_IS_ADDR_UNSPECIFIED(&s->bound), have_port);
}

static void check_bind_any(struct registry_sock *s, bool have_port)
{
	(void)have_port;
	ck_assert_int_eq(said->ret, 0);
	ck_assert_ptr_nonnull(s);
	ck_assert_uint_ge(s->bound_port, 2);
	ck_assert_uint_eq(s->bound_port, said->port);
}

static void check_bufs(struct registry_sock *s, bool have_port)
{
	(void)have_port;
	ck_assert_uint_eq(s->sndbuf, BUFS);
	ck_assert_uint_eq(s->rcvbuf, BUFS);
}

static void check_connect(struct registry_sock *s, bool have_port)
{
	struct in6_addr a = v4("127.0.0.9");

	(void)have_port;
	ck_assert_uint_eq(s->connected_port, BUFS);
	ck_assert_mem_eq(&s->connected, &a, sizeof(a));
}

static void check_leave(struct registry_sock *s, bool have_port)
{
	(void)have_port;
	ck_assert_int_ge(said->ret, 0);
	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(s->proc, REGISTRY_NOBODY);
	ck_assert_uint_eq(s->bound_port, 6000);
	ck_assert_mem_eq(&s->procid, &named, sizeof(named));
}

static void check_take(struct registry_sock *s, bool have_port)
{
	(void)have_port;
	ck_assert_int_eq(said->ret, 0);
	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(s->bound_port, 6000);
}

static void check_gone(struct registry_sock *s, bool have_port)
{
	(void)have_port;
	ck_assert_ptr_null(s);
}

/* An entry of which another process has a copy becomes an orphan; the rest is gone. */
static void check_reap(struct registry_sock *s, bool have_port)
{
	struct in6_addr a = v4("127.0.0.1");
	struct registry_owner o;

	check_leave(s, have_port);
	ck_assert_int_eq(registry_lookup(parents, &a, NOBODYS, 0, &o), -ENOENT);
}

static void check_open(struct registry_sock *s, bool have_port)
{
	(void)have_port;
	ck_assert_ptr_null(s);
	ck_assert_int_eq(said->ret, 0);
}

static const struct change changes[] = {
	{"add", none, act_add, 1, 1, 0, check_add},
	{"bind", prepare_port, act_bind, 1, 1, 0, check_bind},
	{"bind any", prepare_sock, act_bind, 1, 1, 0, check_bind_any},
	{"remove", prepare_sock, act_remove, 0, 1, 0, check_gone},
	{"remove bound", prepare_named, act_remove, 0, 1, 0, check_gone},
	{"buffers", prepare_sock, act_bufs, 1, 1, 0, check_bufs},
	{"connect", prepare_sock, act_connect, 1, 1, 0, check_connect},
	{"leave", prepare_named, act_leave, 0, 1, 0, check_leave},
	{"take", prepare_left, act_take, 1, 1, 0, check_take},
	{"close", prepare_sock, act_close, 0, 0, 0, check_gone},
	{"reap", prepare_dead, act_reap, 0, 1, 1, check_reap},
	{"open", prepare_sock, act_open, 0, 1, 0, check_open},
};

static void child(const struct change *c, long stop, long kill, int ready)
{
	os_fds_forked();
	if (parents)
		registry_abandon(parents);
	*said = (struct said){.idx = no_sock};
	if (c->prepare) {
		child_assert(registry_open(&reg) == 0);
		said->id = *registry_self(reg);
		c->prepare();
	}
	steps = 0;
	stop_at = stop;
	kill_at = kill;
	close(ready);
	c->act();
	said->steps = steps;
	stop_at = kill_at = 0;
	if (reg)
		atomic_fetch_add(&registry_counters(reg)[3], 1);
	raise(SIGSTOP); /* for others to look at what there is */
	_exit(0);
}

/* One process that makes a change: it is stopped in it, or when it is ready, or has been killed. */
static pid_t begins(const struct change *c, long stop, long kill)
{
	int ready[2], status;
	pid_t pid;
	char byte;

	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		child(c, stop, kill, ready[1]);
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 0); /* it begins */
	close(ready[0]);
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status) || (kill && WIFSIGNALED(status)));
	return WIFSTOPPED(status) ? pid : 0;
}

static void goes_on(pid_t pid)
{
	int status;

	ck_assert_int_eq(kill(pid, SIGCONT), 0);
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	ck_assert_int_ne(said->steps, 0);
}

static void finish(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* The others, meanwhile. */
static unsigned others_there = 1, socks_there = 2;

struct others {
	uint32_t wants, any;
	bool have_port;
};

static void go_on(struct others *o)
{
	struct in6_addr a = v4("127.0.0.1");
	struct registry_owner own;
	uint16_t port;
	int ret;

	registry_sock_remove(parents, add_ok(parents));
	o->wants = add_ok(parents);
	ret = registry_sock_bind(parents, o->wants, &a, PORT, 0, 2, &port);
	ck_assert(ret == 0 || ret == -EADDRINUSE);
	o->have_port = ret == 0;
	o->any = add_ok(parents);
	/* any port may be the one that nobody is to be found at: so it is another address's */
	search_at = NOBODYS;
	bind_ok(parents, o->any, "127.0.0.2", 0);
	search_at = 0;
	ck_assert_int_ge(registry_reap(parents), 0);
	ck_assert_int_eq(registry_lookup(parents, &a, PORT, 0, &own), 0);
	if (o->have_port)
		ck_assert_mem_eq(&own.procid, registry_self(parents), sizeof(own.procid));
}

static void check(const struct change *c, const struct others *o)
{
	struct registry_sock *v, *one;
	struct registry_proc *p;
	unsigned n, procs = 0;

	ck_assert_int_eq(registry_socks(parents, &v, &n), 0);
	ck_assert_uint_eq(count_of(v, n, &said->id), c->socks);
	ck_assert_uint_eq(count_of(v, n, registry_self(parents)), socks_there);
	ck_assert_ptr_nonnull(find(v, n, o->wants));
	ck_assert_ptr_nonnull(find(v, n, o->any));
	one = find(v, n, said->idx);
	if (one && !memcmp(&one->procid, registry_self(parents), sizeof(one->procid)))
		one = NULL; /* in the place of one that is gone */
	c->check(one, o->have_port);
	free(v);
	ck_assert_int_eq(registry_procs(parents, &p, &n), 0);
	for (unsigned i = 0; i < n; i++)
		procs += !memcmp(&p[i].id, &said->id, sizeof(said->id));
	ck_assert_uint_eq(procs, c->procs);
	ck_assert_uint_eq(n, others_there + c->procs);
	free(p);
	audit();
}

static void forget(const struct others *o)
{
	registry_sock_remove(parents, o->wants);
	registry_sock_remove(parents, o->any);
	if (said->idx != no_sock && !registry_sock_take_over(parents, said->idx, &named, false))
		registry_sock_remove(parents, said->idx);
}

static void expect_sum(uint64_t want)
{
	uint64_t sums[RDS_STATS];

	registry_counters_sum(parents, sums);
	ck_assert_uint_eq(sums[3], want);
}

#endif
