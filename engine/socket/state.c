/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * state.c - everything that is done with all rows of state_table.h.
 *
 * Must not know who wants the state, and where it comes from.
 */
#include <string.h>

#include "engine/socket/socket.h"

#define COPY_PART(part) __atomic_store_n(&to->part, __atomic_load_n(&from->part, __ATOMIC_RELAXED), __ATOMIC_RELAXED)

void rds_sock_addr_copy(struct rds_addr *to, const struct rds_addr *from)
{
	unsigned i;

	for (i = 0; i < 4; i++)
		COPY_PART(ip.s6_addr32[i]);
	COPY_PART(scope);
	COPY_PART(port);
}

#define FIRST_WORD(type, name, first) atomic_store_explicit(&sk->set_##name, (first), memory_order_relaxed);
#define FIRST_ADDR(name) memset(&sk->set_##name, 0, sizeof(sk->name));

void rds_sock_state_init(struct rds_sock *sk)
{
	RDS_SOCK_STATE_TABLE(FIRST_WORD, FIRST_ADDR)
}

#define SET_WORD(type, name, first) atomic_store_explicit(&sk->set_##name, st->name, memory_order_relaxed);
#define SET_ADDR(name) rds_sock_addr_copy(&sk->set_##name, &st->name);

void rds_sock_state_set(struct rds_sock *sk, const struct rds_sock_state *st)
{
	RDS_SOCK_STATE_TABLE(SET_WORD, SET_ADDR)
}

#define GET_WORD(type, name, first) st->name = atomic_load(&sk->name);
#define GET_ADDR(name) rds_sock_addr_copy(&st->name, &sk->name);

void rds_sock_state_get(const struct rds_sock *sk, struct rds_sock_state *st)
{
	RDS_SOCK_STATE_TABLE(GET_WORD, GET_ADDR)
}

/* The byte of a bool may have any value. */
#define SOUND_WORD(type, name, first)                                                                                  \
	&&_Generic(st->name, bool : *(const unsigned char *)&st->name <= 1, default : true)
#define SOUND_ADDR(name)

bool rds_sock_state_is_sound(const struct rds_sock_state *st)
{
	return true RDS_SOCK_STATE_TABLE(SOUND_WORD, SOUND_ADDR);
}
