/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * shown.h - unread messages of a socket that other processes have, as packets in its stand-in.
 *
 * The stand-in is readable while it contains a packet (socket/standin.c).  With borrowers that packet is the message
 * itself, so that a borrower reads it by one system call, without its owner.  The kernel gives each packet to one
 * reader, and keeps what is unread when the owner is killed.
 *
 * The owner keeps a copy in the socket's queue, and that is what counts for congestion, poll and rds-info.  It finds
 * out later what others have read: the packets are in the order of the queue, and their bytes that are still there say
 * how many are.  A message that is to go to a reader in this process is taken out of the stand-in first.
 *
 * In the queue the messages that are shown come first.  A message with a control message, or a long one, is not
 * shown; nor is anything behind it, or behind a packet of no bytes, which says that the owner has to be asked.
 */
#ifndef ENGINE_CONN_SHOWN_H
#define ENGINE_CONN_SHOWN_H

#include "engine/conn/incoming.h"

#define RDS_SHOWN_MAGIC 0x4d534452u /* "RDSM" */
#define RDS_SHOWN_LEN_MAX 65536u

/* Followed by the message's bytes. */
struct rds_shown_packet {
	uint32_t magic, len;
	uint64_t number; /* other owners of the socket have other numbers */
	struct in6_addr saddr;
	uint32_t scope;
	uint16_t sport;
	uint8_t tos, reserved;
};

/* Is that what a read of n bytes has brought? */
static inline bool rds_inc_shown_is_sound(const struct rds_shown_packet *p, ssize_t n)
{
	return n >= (ssize_t)sizeof(*p) && p->magic == RDS_SHOWN_MAGIC && p->len <= RDS_SHOWN_LEN_MAX &&
	       n == (ssize_t)(sizeof(*p) + p->len);
}

/*
 * All: rx held.  fd: the stand-in, in the table of this thread.  Whether it still is that is checked.
 * show: with `wait` held, too.  Shows what can be shown.  True: that is all input, or the rest will be shown when there
 * is room (show_again, and the helper is told).
 */
bool rds_inc_show(struct rds_sock *sk);
/*
 * The head of the queue, if there is one, is for the caller from then on.  peek: others may still read it.  Costs
 * nothing if nothing is shown.
 */
void rds_inc_shown_take_head(struct rds_sock *sk, int fd, bool peek);
static inline void rds_inc_shown_take(struct rds_sock *sk, int fd, bool peek)
{
	if (unlikely(sk->nshown))
		rds_inc_shown_take_head(sk, fd, peek);
}
/* Nothing is shown any more: what is unread is in the queue, and in the stand-in there is no packet. */
void rds_inc_shown_take_back(struct rds_sock *sk, int fd);
/* What others have read leaves the queue.  fd -1: only if all of it has been read. */
void rds_inc_shown_settle(struct rds_sock *sk, int fd);
/* What a former owner, which was killed, has left there goes to the end of the queue. */
void rds_inc_shown_inherit(struct rds_sock *sk, int fd);

#endif
