/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_info_others.c - RDS_INFO_*: what other processes report, and processes that do not answer,
 * answer nonsense, or ask without listening.
 */
#include <limits.h>
#include <signal.h>

#include "engine/node/socket_name.h"
#include "tests/unit/info_helper.h"

enum hostile { SILENT, HANG_UP, MAGIC, VERSION, KIND, REC_SIZE, COUNT, SHORT, UNTERMINATED, HOSTILES };

static void hostile_answer(int to, enum hostile how)
{
	struct {
		struct rds_info_answer head;
		struct rds_info_rec rec;
	} __attribute__((packed)) a = {.head = {RDS_INFO_MAGIC, RDS_INFO_VERSION, 0, sizeof(a.rec), 1}};
	struct rds_info_ask ask;
	size_t len = sizeof(a);

	if (recv(to, &ask, sizeof(ask), MSG_WAITALL) != sizeof(ask))
		return;
	a.head.kind = ask.kind;
	memset(&a.rec, 0xff, sizeof(a.rec));
	memset(&a.rec.laddr, 0, 10);
	a.head.magic += how == MAGIC;
	a.head.version += how == VERSION;
	a.head.kind += how == KIND;
	a.head.rec_size -= how == REC_SIZE;
	if (how == COUNT)
		a.head.n = UINT_MAX;
	if (how == SHORT)
		len -= 7;
	if (how == SILENT)
		pause();
	if (how != HANG_UP)
		send(to, &a, len, MSG_NOSIGNAL);
}

/* A live member of the registry that listens like an engine and answers like something else. */
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

/* By its own clock. */
static void member_of_its_time(unsigned port)
{
	setenv("RDS_PRELOAD_HELPER_FDS", "shared", 1);
	rds_options_reset();
	mock_clock_stop();
	member_talker(port);
}

static void member_passes(const struct member *m, char seconds)
{
	ck_assert_int_eq(write(m->hold, &seconds, 1), 1);
}

/* Returns when its last thread stands still. */
static void member_stop(const struct member *m)
{
	int status;

	kill(m->pid, SIGSTOP);
	ck_assert_int_eq(waitpid(m->pid, &status, WUNTRACED), m->pid);
	ck_assert(WIFSTOPPED(status));
}

START_TEST(other_processes)
{
	struct member m[3];
	struct rds_info_message *r;
	unsigned seen[3] = {0};
	size_t n;

	for (unsigned i = 0; i < 3; i++)
		m[i] = member_start(member_talker, 4300 + i);
	sock_start();
	r = fetch(RDS_INFO_RECV_MESSAGES, 26, &n);
	ck_assert_uint_eq(n, 9);
	for (unsigned i = 0; i < n; i++) {
		unsigned port = ntohs(r[i].lport);

		ck_assert_uint_ge(port, 4300);
		ck_assert_uint_lt(port, 4303);
		seen[port - 4300]++;
	}
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(seen[i], 3);
	free(r);
	free(fetch(RDS_INFO_SOCKETS, 36, &n));
	ck_assert_uint_eq(n, 3);
	member_end(&m[0]);
	free(fetch(RDS6_INFO_SEND_MESSAGES, 50, &n));
	ck_assert_uint_eq(n, 4);
	for (unsigned i = 1; i < 3; i++)
		member_end(&m[i]);
	free(fetch(RDS_INFO_CONNECTIONS, 42, &n));
	ck_assert_uint_eq(n, 0);
}
END_TEST

static void member_quiet(unsigned port)
{
	struct rds_sock *s;

	ck_assert_int_ge(rds_call_socket(SOCK_SEQPACKET, 0, &s), 0);
	bind_to(s, "127.0.0.1", port);
}

static void wait_acked(void)
{
	test_until((rds_progress_round(), rds_queue_reap_all(), !rds_sock_snd_bytes(sk)));
}

/* Handed to the transport, not acknowledged, because the peer is stopped; then cancelled. */
START_TEST(unacknowledged)
{
	struct member m = member_start(member_quiet, 4351);
	struct sockaddr_in to = in4("127.0.0.1", 4351);
	struct rds6_info_message *r;
	size_t n;

	sock_start();
	bind_to(sk, "127.0.0.1", 4350);
	send_to(sk, fd, "127.0.0.1", 4351, 100);
	wait_acked();
	free(fetch(RDS_INFO_CONNECTIONS, 42, &n));
	ck_assert_uint_eq(n, 2); /* each side tells its own */
	member_stop(&m);
	silent = 1;
	for (unsigned i = 0; i < 5; i++)
		send_to(sk, fd, "127.0.0.1", 4351, 30 + i);
	r = fetch(RDS6_INFO_RETRANS_MESSAGES, 50, &n);
	ck_assert_uint_eq(n, 5);
	for (unsigned i = 0; i < 5; i++) {
		ck_assert_uint_eq(r[i].len, 30 + i);
		ck_assert_uint_eq(r[i].seq, 2 + i);
		ck_assert_uint_eq(ntohs(r[i].lport), 4350);
		ck_assert_uint_eq(ntohs(r[i].fport), 4351);
	}
	free(r);
	to.sin_port = htons(4352); /* another port: nothing matches */
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &to, sizeof(to)), 0);
	ck_assert_uint_eq(rds_sock_snd_bytes(sk), 30 + 31 + 32 + 33 + 34);
	to.sin_port = htons(4351);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &to, sizeof(to)), 0);
	ck_assert_uint_eq(rds_sock_snd_bytes(sk), 0);
	free(fetch(RDS_INFO_RETRANS_MESSAGES, 26, &n));
	ck_assert_uint_eq(n, 0);
	kill(m.pid, SIGCONT);
	silent = 0;
	send_to(sk, fd, "127.0.0.1", 4351, 7);
	wait_acked();
	member_end(&m);
}
END_TEST

START_TEST(stopped_process)
{
	struct member a = member_start(member_talker, 4400), b = member_start(member_talker, 4401);
	size_t n;

	sock_start();
	member_stop(&a);
	silent = 1;
	free(fetch(RDS_INFO_RECV_MESSAGES, 26, &n));
	ck_assert_uint_eq(n, 3); /* the other one's */
	ck_assert_uint_ge(waited, UINT64_C(400000000));
	ck_assert_uint_le(waited, UINT64_C(2100000000)); /* two calls of at most a second */
	kill(a.pid, SIGCONT);
	silent = 0;
	free(fetch(RDS_INFO_RECV_MESSAGES, 26, &n));
	ck_assert_uint_eq(n, 6);
	member_end(&a);
	member_end(&b);
}
END_TEST

START_TEST(hostile_answers)
{
	struct member good = member_start(member_talker, 4500), bad = member_start(member_hostile, (unsigned)_i);
	struct rds6_info_connection *c;
	size_t n, odd = 0;

	sock_start();
	silent = _i == SILENT;
	c = fetch(RDS6_INFO_CONNECTIONS, 66, &n);
	for (unsigned i = 0; i < n; i++) {
		ck_assert_uint_eq(c[i].transport[15], 0);
		odd += c[i].flags == 0xff;
	}
	free(c);
	ck_assert_uint_eq(odd, _i == UNTERMINATED);
	ck_assert_uint_eq(n - odd, 2);
	member_end(&bad);
	member_end(&good);
}
END_TEST

static int raw_connect(const struct rds_procid *id)
{
	struct sockaddr_un name;
	socklen_t len = rds_node_listen_name(id, &name);
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	ck_assert_int_eq(connect(s, (struct sockaddr *)&name, len), 0);
	return s;
}

/*
 * A process that asks may say nothing, half a word or nonsense, or not take the answer: nothing of
 * that may harm the helper.
 */
START_TEST(rude_askers)
{
	static const uint32_t asks[][3] = {
		{1, 2, 3},
		{RDS_INFO_MAGIC, RDS_INFO_VERSION, RDS_INFO_KINDS},
		{RDS_INFO_MAGIC, RDS_INFO_VERSION, RDS_INFO_RECEIVED},
		{RDS_INFO_MAGIC, RDS_INFO_VERSION + 1, RDS_INFO_RECEIVED},
	};
	struct member m = member_start(member_of_its_time, 4600);
	struct registry_proc *procs;
	struct rds_info_answer head;
	unsigned nprocs;
	const struct rds_procid *id = NULL;
	int s[8];
	size_t n;

	sock_start();
	ck_assert_int_eq(registry_procs(rds_node_registry, &procs, &nprocs), 0);
	for (unsigned i = 0; i < nprocs; i++)
		if (procs[i].pid == m.pid)
			id = &procs[i].id;
	ck_assert_ptr_nonnull(id);
	for (unsigned i = 0; i < 8; i++) {
		s[i] = raw_connect(id);
		if (i < 4)
			ck_assert_int_eq(send(s[i], asks[i], 12, MSG_NOSIGNAL), 12);
		else if (i == 4)
			ck_assert_int_eq(send(s[i], asks[2], 5, MSG_NOSIGNAL), 5);
	}
	free(fetch(RDS_INFO_RECV_MESSAGES, 26, &n));
	ck_assert_uint_eq(n, 3);
	ck_assert_int_eq(recv(s[0], &head, sizeof(head), MSG_WAITALL), 0);
	ck_assert_int_eq(recv(s[1], &head, sizeof(head), MSG_WAITALL), 0);
	ck_assert_int_eq(recv(s[3], &head, sizeof(head), MSG_WAITALL), sizeof(head));
	/* the answer has its version, and nothing more */
	ck_assert_uint_eq(head.version, RDS_INFO_VERSION);
	ck_assert_uint_eq(head.n, 0);
	ck_assert_int_eq(recv(s[4], &head, sizeof(head), MSG_DONTWAIT), -1);
	member_passes(&m, 2);
	/* after a while the helper hangs up */
	ck_assert_int_eq(recv(s[4], &head, sizeof(head), MSG_WAITALL), 0);
	for (unsigned i = 0; i < 8; i++)
		close(s[i]);
	free(procs);
	free(fetch(RDS_INFO_RECV_MESSAGES, 26, &n));
	ck_assert_uint_eq(n, 3);
	member_end(&m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("info_others");
	TCase *tc = tcase_create("others");

	tcase_add_test(tc, other_processes);
	tcase_add_test(tc, unacknowledged);
	tcase_add_test(tc, stopped_process);
	tcase_add_loop_test(tc, hostile_answers, 0, HOSTILES);
	tcase_add_test(tc, rude_askers);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
