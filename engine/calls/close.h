/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * close.h - how a socket ends (close.c), and when (hang_up.c).
 */
#ifndef ENGINE_CALLS_CLOSE_H
#define ENGINE_CALLS_CLOSE_H

#include <stdbool.h>

#include "engine/socket/socket.h"

/* Has the last descriptor gone?  Then it is closed, now or when its operations are over.  Helper. */
bool rds_call_check_hangup(struct rds_sock *sk);
void rds_call_close_last(struct rds_sock *sk);	     /* it is over; the caller has a reference */
void rds_call_close_handed_off(struct rds_sock *sk); /* another process has it: what is here of it ends */
void rds_call_discard(struct rds_sock *sk);	     /* made, and never listed */

#endif
