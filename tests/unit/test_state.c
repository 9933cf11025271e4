/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_state.c - the state that a socket's next owner needs: all rows of
 * engine/socket/state_table.h, without a line for any of them.
 */
#include <check.h>
#include <string.h>

#include "engine/socket/socket.h"
#include "tests/unit/suite.h"

static struct rds_sock *new_sock(void)
{
	struct rds_sock *sk;
	int pair[2];

	ck_assert_int_eq(os_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	os_close(pair[0]);
	ck_assert_int_eq(rds_sock_new(pair[1], 7, &sk), 0);
	return sk;
}

static void end(struct rds_sock *sk)
{
	os_close_slot(&sk->pair.n[0]);
	rds_sock_slab_put(sk);
}

#define TURNS 5
_Static_assert(RDS_SOCK_STATE_ROWS < 1 << TURNS, "no two bools are alike in all turns");

/* No two rows are alike, bools in all turns together. */
static struct rds_sock_state anything(unsigned turn)
{
	struct rds_sock_state st;
	unsigned row = 0, i;

	memset(&st, 0, sizeof(st));
#define NUMBER (++row * 8 + turn)
#define ANY_WORD(type, name, first) st.name = (type)(_Generic(st.name, bool : ++row >> turn & 1, default : NUMBER));
#define ANY_ADDR(name)                                                                                                 \
	st.name.scope = NUMBER;                                                                                        \
	st.name.port = (uint16_t)NUMBER;                                                                               \
	for (i = 0; i < 4; i++)                                                                                        \
		st.name.ip.s6_addr32[i] = NUMBER;
	RDS_SOCK_STATE_TABLE(ANY_WORD, ANY_ADDR)
	return st;
}

static void ck_same(const struct rds_sock_state *a, const struct rds_sock_state *b)
{
#define SAME_WORD(type, name, first) ck_assert_msg(a->name == b->name, #name);
#define SAME_ADDR(name)                                                                                                \
	ck_assert_msg(rds_ip_equal(&a->name.ip, &b->name.ip) && a->name.scope == b->name.scope &&                      \
			      a->name.port == b->name.port,                                                            \
		      #name);
	RDS_SOCK_STATE_TABLE(SAME_WORD, SAME_ADDR)
}

static void ck_first(const struct rds_sock *sk)
{
#define FIRST_WORD(type, name, first) .name = (first),
#define FIRST_ADDR(name) .name = {.port = 0},
	const struct rds_sock_state first = {RDS_SOCK_STATE_TABLE(FIRST_WORD, FIRST_ADDR)};
	struct rds_sock_state st;

	rds_sock_state_get(sk, &st);
	ck_same(&st, &first);
}

START_TEST(each_row_is_kept)
{
	struct rds_sock_state given, got;
	struct rds_sock *sk = new_sock();
	unsigned turn;

	ck_first(sk);
	for (turn = 0; turn < TURNS; turn++) {
		given = anything(turn);
		ck_assert(rds_sock_state_is_sound(&given));
		rds_sock_state_set(sk, &given);
		memset(&got, 0x55, sizeof(got));
		rds_sock_state_get(sk, &got);
		ck_same(&got, &given);
	}
	end(sk);
}
END_TEST

/* What the socket before had been through is not this one's. */
START_TEST(next_life)
{
	struct rds_sock *sk = new_sock();
	struct rds_sock_state st;
	unsigned turn;

	for (turn = 0; turn < TURNS; turn++) {
		st = anything(turn);
		rds_sock_state_set(sk, &st);
		end(sk);
		ck_assert_ptr_eq(new_sock(), sk);
		ck_first(sk);
	}
	end(sk);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("state");
	TCase *t = suite_case(s, "state", NULL, NULL);

	tcase_add_test(t, each_row_is_kept);
	tcase_add_test(t, next_life);
	return suite_run(s);
}
