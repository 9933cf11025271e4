/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * close.h - how a socket is closed (close.c), and when (hang_up.c).
 */
#ifndef ENGINE_CALLS_CLOSE_H
#define ENGINE_CALLS_CLOSE_H

#include <stdbool.h>

#include "engine/socket/socket.h"

/*
 * If the last descriptor has gone, closes the socket now, or when its operations are over.  Returns
 * whether it has gone.  Helper only.
 */
bool rds_call_check_hangup(struct rds_sock *sk);
/* The last close.  The caller has a reference. */
void rds_call_close_last(struct rds_sock *sk);
/* Another process owns it: what is left of it here ends. */
void rds_call_close_handed_off(struct rds_sock *sk);
void rds_call_discard(struct rds_sock *sk); /* It was made, and never listed. */

#endif
