/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_info_members.c - RDS_PRELOAD_INFO_MEMBERS: the processes of the node, what they say of
 * themselves, and what is shown of those that do not; askers that ask for anything.
 */
#include <signal.h>

#include "engine/node/socket_name.h"
#include "tests/unit/info_helper.h"

#define EACH sizeof(struct rds_preload_info_entry)

/* ---- what the node shows ---- */

static struct rds_preload_info_entry entries[64];
static size_t nentries;

/* Once: who ends when it is asked is not there the next time. */
static void look(void)
{
	socklen_t len = sizeof(entries);

	ck_assert_int_eq(info(RDS_PRELOAD_INFO_MEMBERS, entries, &len), EACH);
	nentries = len / EACH;
}

static const struct rds_preload_info_process *process_of(pid_t pid, unsigned *member)
{
	const struct rds_preload_info_process *found = NULL;

	for (size_t i = 0; i < nentries; i++) {
		if (entries[i].is != RDS_PRELOAD_IS_PROCESS || entries[i].u.process.pid != pid)
			continue;
		ck_assert_ptr_null(found);
		found = &entries[i].u.process;
		if (member)
			*member = entries[i].member;
	}
	return found;
}

/* The only one of its kind that this process has; NULL: it has none. */
static const struct rds_preload_info_entry *only_of(pid_t pid, uint32_t is)
{
	const struct rds_preload_info_entry *found = NULL;
	unsigned member;

	ck_assert_ptr_nonnull(process_of(pid, &member));
	for (size_t i = 0; i < nentries; i++) {
		if (entries[i].is != is || entries[i].member != member)
			continue;
		ck_assert_ptr_null(found);
		found = &entries[i];
	}
	return found;
}

static unsigned answer_of(pid_t pid)
{
	const struct rds_preload_info_process *p = process_of(pid, NULL);

	return p ? p->answer : RDS_PRELOAD_ANSWERS;
}

static unsigned nprocesses(void)
{
	unsigned n = 0;

	for (size_t i = 0; i < nentries; i++)
		n += entries[i].is == RDS_PRELOAD_IS_PROCESS;
	return n;
}

static void member_stop(const struct member *m)
{
	int status;

	kill(m->pid, SIGSTOP);
	ck_assert_int_eq(waitpid(m->pid, &status, WUNTRACED), m->pid);
}

static void expect_socket(pid_t pid, unsigned port)
{
	const struct rds_preload_info_socket *s;

	ck_assert_ptr_nonnull(only_of(pid, RDS_PRELOAD_IS_SOCKET));
	s = &only_of(pid, RDS_PRELOAD_IS_SOCKET)->u.socket;
	ck_assert_mem_eq((const char *)&s->bound_addr + 12, "\177\0\0\1", 4);
	ck_assert_uint_eq(ntohs(s->bound_port), port);
	ck_assert_uint_eq(s->connected_port, 0);
	ck_assert_uint_ne(s->inum, 0);
	if (s->flags & RDS_PRELOAD_SOCKET_UNTOLD) {
		ck_assert_uint_eq(s->receive_messages, 0);
		return;
	}
	/* member_talker() */
	ck_assert_uint_eq(s->flags, RDS_PRELOAD_SOCKET_BOUND);
	ck_assert_uint_eq(s->receive_messages, 3);
	ck_assert_uint_eq(s->receive_bytes, 10 + 11 + 12);
	ck_assert_uint_eq(s->send_messages, 2);
	ck_assert_uint_eq(s->send_bytes, 20 + 21);
	ck_assert_uint_eq(s->sndbuf, rds_sock_sndbuf(sk));
}

static void expect_connections(pid_t pid)
{
	unsigned member, up = 0, waits = 0;

	process_of(pid, &member);
	for (size_t i = 0; i < nentries; i++) {
		const struct rds_preload_info_connection *c = &entries[i].u.connection;

		if (entries[i].is != RDS_PRELOAD_IS_CONNECTION || entries[i].member != member)
			continue;
		if (c->flags & RDS_INFO_CONNECTION_FLAG_CONNECTED) {
			up++;
			ck_assert_str_eq((const char *)c->transport, "loopback");
			ck_assert_uint_eq(c->next_tx_seq, 4);
			ck_assert_uint_eq(c->queued, 0);
			ck_assert_uint_gt((uint64_t)c->connect_time, 0);
		} else {
			waits++;
			ck_assert_uint_eq(c->queued, 2);
		}
	}
	ck_assert_uint_eq(up, 1);
	ck_assert_uint_eq(waits, 1);
}

START_TEST(all_of_it)
{
	struct member a = member_start(member_talker, 4700), b = member_start(member_talker, 4701);
	const struct rds_preload_info_process *p;

	sock_start();
	look();
	ck_assert_uint_eq(answer_of(a.pid), RDS_PRELOAD_ANSWERED);
	ck_assert_uint_eq(answer_of(b.pid), RDS_PRELOAD_ANSWERED);
	p = process_of(a.pid, NULL);
	ck_assert_str_eq((const char *)p->version, PACKAGE_VERSION);
	ck_assert_uint_eq(p->sockets, 1);
	ck_assert_uint_eq(p->connections, 2);
	ck_assert_uint_eq(p->sent, 5);
	ck_assert_uint_eq(p->sent_bytes, 10 + 11 + 12 + 20 + 21);
	ck_assert_uint_gt(p->fds, 0);
	ck_assert_uint_gt(p->memory, 0);
	ck_assert(!p->self && process_of(getpid(), NULL)->self);
	expect_socket(a.pid, 4700);
	expect_socket(b.pid, 4701);
	expect_connections(a.pid);
	member_end(&a);
	look();
	ck_assert_uint_eq(answer_of(a.pid), RDS_PRELOAD_ANSWERS);
	member_end(&b);
}
END_TEST

/* ---- who does not answer ---- */

START_TEST(stopped)
{
	struct member a = member_start(member_talker, 4710), b = member_start(member_talker, 4711);

	sock_start();
	member_stop(&a);
	silent = 1;
	look();
	ck_assert_uint_eq(answer_of(a.pid), RDS_PRELOAD_SILENT);
	ck_assert_str_ne((const char *)process_of(a.pid, NULL)->command, "");
	ck_assert_uint_eq(answer_of(b.pid), RDS_PRELOAD_ANSWERED);
	ck_assert(only_of(a.pid, RDS_PRELOAD_IS_SOCKET)->u.socket.flags & RDS_PRELOAD_SOCKET_UNTOLD);
	expect_socket(a.pid, 4710);
	expect_socket(b.pid, 4711);
	ck_assert_uint_ge(waited, UINT64_C(200000000));
	ck_assert_uint_le(waited, UINT64_C(1100000000));
	kill(a.pid, SIGCONT);
	silent = 0;
	look();
	expect_socket(a.pid, 4710);
	ck_assert_uint_eq(answer_of(a.pid), RDS_PRELOAD_ANSWERED);
	member_end(&a);
	member_end(&b);
}
END_TEST

static void member_unbound(unsigned arg)
{
	struct rds_sock *s;

	(void)arg;
	ck_assert_int_ge(rds_call_socket(SOCK_SEQPACKET, 0, &s), 0);
}

START_TEST(unbound)
{
	struct member m = member_start(member_unbound, 0);

	sock_start();
	look();
	ck_assert_uint_eq(answer_of(m.pid), RDS_PRELOAD_UNBOUND);
	ck_assert_uint_eq(only_of(m.pid, RDS_PRELOAD_IS_SOCKET)->u.socket.flags, RDS_PRELOAD_SOCKET_UNTOLD);
	member_end(&m);
}
END_TEST

/* ---- answers of any kind ---- */

enum hostile { HANG_UP, TURN_AWAY, KILLED, VERSION, EMPTY, NO_PROCESS, TWO_PROCESSES, IS, COUNT, CLAIMS, HOSTILES };

static const unsigned expected[HOSTILES] = {
	[HANG_UP] = RDS_PRELOAD_OLDER_VERSION,	[TURN_AWAY] = RDS_PRELOAD_BUSY, [KILLED] = RDS_PRELOAD_ANSWERS,
	[VERSION] = RDS_PRELOAD_OTHER_VERSION,	[EMPTY] = RDS_PRELOAD_NONSENSE, [NO_PROCESS] = RDS_PRELOAD_NONSENSE,
	[TWO_PROCESSES] = RDS_PRELOAD_NONSENSE, [IS] = RDS_PRELOAD_NONSENSE,	[COUNT] = RDS_PRELOAD_NONSENSE,
	[CLAIMS] = RDS_PRELOAD_ANSWERED,
};

static void hostile_answer(int to, enum hostile how)
{
	struct {
		struct rds_info_answer head;
		struct rds_info_rec rec[2];
	} __attribute__((packed)) a;
	struct rds_info_ask ask;

	if (how == TURN_AWAY || recv(to, &ask, sizeof(ask), MSG_WAITALL) != sizeof(ask) || how == HANG_UP)
		return;
	memset(&a, 0xff, sizeof(a));
	a.head = (struct rds_info_answer){RDS_INFO_MAGIC, RDS_INFO_VERSION + (how == VERSION), RDS_INFO_MEMBER,
					  sizeof(a.rec[0]),
					  how == EMPTY	 ? 0
					  : how == COUNT ? UINT32_MAX
							 : 2};
	a.rec[0].is = how == NO_PROCESS ? RDS_PRELOAD_IS_SOCKET : RDS_PRELOAD_IS_PROCESS;
	a.rec[1].is = how == TWO_PROCESSES ? RDS_PRELOAD_IS_PROCESS : how == IS ? 4 : RDS_PRELOAD_IS_CONNECTION;
	if (how == KILLED) {
		kill(getppid(), SIGKILL);
		for (;;)
			pause(); /* until the kernel has closed all that it had */
	}
	send(to, &a, sizeof(a), MSG_NOSIGNAL);
}

/* As member_hostile() in test_info_others.c. */
static void member_hostile(unsigned how)
{
	struct sockaddr_un name;
	struct registry *reg;
	socklen_t len;
	int door;

	ck_assert_int_eq(registry_open(&reg), 0);
	len = rds_node_listen_name(registry_self(reg), &name);
	door = socket(AF_UNIX, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(door, (struct sockaddr *)&name, len), 0);
	ck_assert_int_eq(listen(door, 16), 0);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			int c = accept(door, NULL, NULL);

			hostile_answer(c, (enum hostile)how);
			close(c);
		}
	}
}

START_TEST(hostile_answers)
{
	struct member good = member_start(member_talker, 4720), bad = member_start(member_hostile, (unsigned)_i);
	const struct rds_preload_info_process *p;

	sock_start();
	look();
	expect_socket(good.pid, 4720);
	ck_assert_uint_eq(answer_of(bad.pid), expected[_i]);
	ck_assert_uint_eq(nprocesses(), _i == KILLED ? 2 : 3);
	if (_i == CLAIMS) {
		/* what it says of itself is its own matter; not who it is */
		p = process_of(bad.pid, NULL);
		ck_assert_uint_eq(p->version[sizeof(p->version) - 1], 0);
		ck_assert_uint_ne(p->command[0], 0xff);
		ck_assert(!p->self);
		ck_assert_ptr_nonnull(only_of(bad.pid, RDS_PRELOAD_IS_CONNECTION));
	}
	member_end(&bad);
	member_end(&good);
}
END_TEST

/* ---- questions of any kind ---- */

static struct rds_procid id_of(pid_t pid)
{
	struct rds_procid id = {{0}};
	struct registry_proc *procs;
	unsigned n;

	ck_assert_int_eq(registry_procs(rds_node_registry, &procs, &n), 0);
	for (unsigned i = 0; i < n; i++)
		if (procs[i].pid == pid)
			id = procs[i].id;
	free(procs);
	return id;
}

static uint32_t random_word(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*seed >> 33);
}

/* Mostly a question that begins well. */
static void ask_anything(int s, uint64_t *seed)
{
	uint32_t ask[8];
	unsigned whole = random_word(seed) % 4;

	for (unsigned i = 0; i < 8; i++)
		ask[i] = random_word(seed) % 2 ? random_word(seed) : random_word(seed) % 10;
	if (whole)
		ask[0] = RDS_INFO_MAGIC;
	if (whole > 1)
		ask[1] = RDS_INFO_VERSION;
	if (whole > 2)
		ask[2] = RDS_INFO_MEMBER;
	send(s, ask, random_word(seed) % (sizeof(ask) + 1), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static unsigned fds_of(pid_t pid)
{
	look();
	ck_assert_uint_eq(answer_of(pid), RDS_PRELOAD_ANSWERED);
	return process_of(pid, NULL)->fds;
}

/* More at a time than it has places for; many of them do not take the answer. */
START_TEST(random_questions)
{
	struct member m = member_start(member_talker, 4730);
	uint64_t seed = 30;
	struct rds_procid id;
	struct sockaddr_un name;
	socklen_t len;
	int s[40];
	unsigned before;

	sock_start();
	before = fds_of(m.pid);
	id = id_of(m.pid);
	len = rds_node_listen_name(&id, &name);
	for (unsigned round = 0; round < 50; round++) {
		for (unsigned i = 0; i < 40; i++) {
			s[i] = socket(AF_UNIX, SOCK_STREAM, 0);
			ck_assert_int_eq(connect(s[i], (struct sockaddr *)&name, len), 0);
			ask_anything(s[i], &seed);
		}
		for (unsigned i = 0; i < 40; i++) {
			char c[64];

			if (random_word(&seed) % 2)
				recv(s[i], c, sizeof(c), MSG_DONTWAIT);
			close(s[i]);
		}
	}
	/* those that are still being heard have places */
	test_until((look(), answer_of(m.pid) == RDS_PRELOAD_ANSWERED));
	test_until(fds_of(m.pid) <= before);
	expect_socket(m.pid, 4730);
	member_end(&m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("info_members");
	TCase *tc = tcase_create("members");

	tcase_add_test(tc, all_of_it);
	tcase_add_test(tc, stopped);
	tcase_add_test(tc, unbound);
	tcase_add_loop_test(tc, hostile_answers, 0, HOSTILES);
	tcase_add_test(tc, random_questions);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
