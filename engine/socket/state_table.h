/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * state_table.h - the one table of a socket's state that its next owner needs (share/protocol.h).
 *
 * It makes the fields of struct rds_sock, struct rds_sock_state, and everything that copies one to
 * the other (state.c). So a new row has its first value, is parked, is in the lease, is checked and
 * is taken over without another line. It changes what is parked: see RDS_SHARE_VERSION.
 *
 * WORD(type, name, first value) is read by any thread at any time, so it is _Atomic in struct
 * rds_sock. A bool of another process is checked; other limits are in share/handoff_in.c.
 * ADDR(name) is a struct rds_addr, all zero at first. Its parts are copied one by one, since the
 * lease is written without a lock.
 *
 * Rows are read from top to bottom: a socket that is saved as bound has its address.
 */
#ifndef ENGINE_SOCKET_STATE_TABLE_H
#define ENGINE_SOCKET_STATE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/wire/addr.h"

#define RDS_SOCK_STATE_TABLE(WORD, ADDR)                                                                               \
	/* names, written under control; bound last, with release */                                                   \
	WORD(bool, bound, false)                                                                                       \
	WORD(bool, connected, false)                                                                                   \
	WORD(bool, no_rdma, false)   /* the program has asked for TCP, which has no RDMA */                            \
	WORD(bool, tos_fixed, false) /* a send got as far as the connection look-up */                                 \
	WORD(uint8_t, tos, 0)                                                                                          \
	/* options, set rarely and read often */                                                                       \
	WORD(bool, recverr, false)                                                                                     \
	WORD(bool, zerocopy, false)                                                                                    \
	WORD(bool, inq, false) /* SO_RDS_INQ: report with each message how many bytes still wait */                    \
	/* SOL_SOCKET flags that are only read back (calls/sockopt_generic.c) */                                       \
	WORD(bool, stamp_ns, false)                                                                                    \
	WORD(bool, passcred, false)                                                                                    \
	WORD(bool, passsec, false)                                                                                     \
	/* another process has freed a region than the one that opened it; which one is not known */                   \
	WORD(bool, region_freed_by_other, false)                                                                       \
	/* the program uses RDS_CMSG_ASYNC_SEND: messages lost by a break hold up later ones */                        \
	WORD(bool, had_async_sends, false)                                                                             \
	/* congestion: written under rx */                                                                             \
	WORD(bool, cong_monitor, false)                                                                                \
	WORD(bool, seen_congestion, false)                                                                             \
	/* a poll that began after the congestion may still sleep: an update wakes it */                               \
	WORD(bool, cong_attached, false)                                                                               \
	ADDR(laddr)                                                                                                    \
	ADDR(caddr)                                                                                                    \
	WORD(uint32_t, bound_scope, 0)		 /* also set by a link-local connect */                                \
	WORD(int32_t, transport, RDS_TRANS_NONE) /* RDS_TRANS_* id */                                                  \
	WORD(int32_t, timestamp, 0)		 /* 0, or the SO_TIMESTAMP number to report it under */                \
	WORD(int32_t, err, 0)			 /* recvmmsg's deferred error, positive errno */                       \
	WORD(int32_t, sol_rds, 0)		 /* the level that the program used last, 0: none yet */               \
	/* as getsockopt shows them; RDS's limits are half */                                                          \
	WORD(uint32_t, sndbuf, (uint32_t)rds_options()->wmem_default)                                                  \
	WORD(uint32_t, rcvbuf, (uint32_t)rds_options()->rmem_default)                                                  \
	WORD(uint32_t, rx_trace, 0) /* n | pos0 << 8 | pos1 << 16 | pos2 << 24 */                                      \
	WORD(uint64_t, sndtimeo_ns, RDS_NO_TIMEOUT)                                                                    \
	WORD(uint64_t, rcvtimeo_ns, RDS_NO_TIMEOUT)                                                                    \
	WORD(uint64_t, cong_mask, 0)                                                                                   \
	WORD(uint64_t, cong_notify, 0)

enum {
	RDS_SOCK_STATE_ROWS = 0
#define STATE_WORD(type, name, first) +1
#define STATE_ADDR(name) +1
	RDS_SOCK_STATE_TABLE(STATE_WORD, STATE_ADDR)
#undef STATE_WORD
#undef STATE_ADDR
};

/* Of another process, as long as rds_sock_state_is_sound() has not been asked. */
struct rds_sock_state {
#define STATE_WORD(type, name, first) type name;
#define STATE_ADDR(name) struct rds_addr name;
	RDS_SOCK_STATE_TABLE(STATE_WORD, STATE_ADDR)
#undef STATE_WORD
#undef STATE_ADDR
};

#endif
