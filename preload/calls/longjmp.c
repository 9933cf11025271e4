/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * longjmp.c - jumps. A handler that leaves a call which it has interrupted lets the call end first
 * (signals/reentry.h), since the call may hold locks.
 *
 * A jump that leaves no call costs a look at a flag.
 */
#include "preload/signals/reentry.h"

/* Not inside and asynchronous: the jump may leave a sleep, where the type is the deferred one. */
#define LONGJMP_CALL(name, env, val)                                                                                   \
	do {                                                                                                           \
		if (unlikely(reentry_state.depth))                                                                     \
			reentry_call_finish();                                                                         \
		if (unlikely(reentry_state.async && !reentry_state.depth))                                             \
			signals_cancel_restore();                                                                      \
		libc_real.name(env, val);                                                                              \
		__builtin_unreachable();                                                                               \
	} while (0)

void longjmp(jmp_buf env, int val)
{
	LONGJMP_CALL(longjmp, env, val);
}

void _longjmp(jmp_buf env, int val)
{
	LONGJMP_CALL(_longjmp, env, val);
}

void siglongjmp(sigjmp_buf env, int val)
{
	LONGJMP_CALL(siglongjmp, env, val);
}

void __longjmp_chk(jmp_buf env, int val)
{
	LONGJMP_CALL(__longjmp_chk, env, val);
}
