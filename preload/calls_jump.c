/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * calls_jump.c - jumps: a handler that leaves a call which it has interrupted lets it end first (roll.h), since it may hold locks.
 *
 * A jump that leaves nothing costs a look at a flag.
 */
#include "roll.h"

#define JUMP(name, env, val)                                                                                           \
	do {                                                                                                           \
		if (unlikely(rds_inside.depth))                                                                        \
			rds_roll_forward();                                                                            \
		if (unlikely(rds_inside.async && !rds_inside.depth))                                                   \
			rds_async_ended(); /* from inside a sleep */                                                   \
		rds_real.name(env, val);                                                                               \
		__builtin_unreachable();                                                                               \
	} while (0)

void longjmp(jmp_buf env, int val)
{
	JUMP(longjmp, env, val);
}

void _longjmp(jmp_buf env, int val)
{
	JUMP(_longjmp, env, val);
}

void siglongjmp(sigjmp_buf env, int val)
{
	JUMP(siglongjmp, env, val);
}

void __longjmp_chk(jmp_buf env, int val)
{
	JUMP(__longjmp_chk, env, val);
}
