/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * shown.c - unread messages as packets in the stand-in (shown.h).
 *
 * Whoever has our end of the pair, which all do that may become the owner, can write such packets.  So what is read
 * there is checked, and counts as a message of the queue only by its number.  Must not know who reads, nor how.
 */
#include "engine/conn/shown.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "engine/node/stats.h"

/* More packets than any owner shows: somebody writes all the time. */
#define READS_MOST 65536u

static struct {
	struct rds_shown_packet head;
	unsigned char bytes[RDS_SHOWN_LEN_MAX + 1];
} packet RDS_TABLE; /* rx */

static size_t shown_size(const struct rds_inc *inc)
{
	return sizeof(struct rds_shown_packet) + inc->len;
}

/* A reader needs nothing but name and bytes. */
static bool inc_is_showable(const struct rds_sock *sk, const struct rds_inc *inc)
{
	return inc->len <= RDS_SHOWN_LEN_MAX && !inc->cookie && !sk->zhead && !atomic_load(&sk->timestamp) &&
	       !atomic_load(&sk->rx_trace) && !atomic_load(&sk->inq);
}

static int packet_send(struct rds_sock *sk, struct rds_inc *inc)
{
	struct rds_shown_packet p = {.magic = RDS_SHOWN_MAGIC,
				     .len = inc->len,
				     .saddr = inc->saddr,
				     .scope = sk->bound_scope,
				     .sport = inc->sport,
				     .tos = inc->tos};
	struct iovec iov[] = {{&p, sizeof(p)}, {(void *)(uintptr_t)inc->data, inc->len}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
	ssize_t n;

	if (!sk->shown_number)
		sk->shown_number = os_now_ns();
	p.number = sk->shown_number + 1;
	n = os_sendmsg(rds_sock_pair_fd(sk), &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0)
		return (int)n;
	inc->shown = sk->shown_number = p.number;
	sk->shown_last = inc;
	sk->shown_bytes += shown_size(inc);
	sk->nshown++;
	return 0;
}

bool rds_inc_show(struct rds_sock *sk)
{
	struct rds_inc *inc = sk->nshown ? sk->shown_last->next : sk->rx_head;
	int err = 0;

	while (inc && !sk->shown_in && !atomic_load(&sk->handing_off) && inc_is_showable(sk, inc)) {
		err = packet_send(sk, inc);
		if (err)
			break;
		inc = inc->next;
	}
	if (err == -EAGAIN && sk->nshown) {
		sk->show_again = true;
		rds_sock_events.proxy_wake();
		return true;
	}
	return !inc && !rds_sock_has_notices(sk);
}

/* ---- it was read ---- */

static void shown_forget(struct rds_sock *sk, struct rds_inc *inc)
{
	inc->shown = 0;
	sk->nshown--;
	sk->shown_bytes -= shown_size(inc);
}

/* The head, which another process has read. */
static void head_drop(struct rds_sock *sk)
{
	struct rds_inc *inc = sk->rx_head;

	shown_forget(sk, inc);
	sk->rx_head = inc->next;
	if (!sk->rx_head)
		sk->rx_tail = &sk->rx_head;
	sk->rcv_count--;
	sk->rcv_bytes -= inc->len;
	RDS_STAT_INC_RX(recv_delivered);
	RDS_STAT_ADD_RX(copy_to_user, inc->len);
	RDS_STAT_ADD_RX(recv_bytes_freed_fromsock, inc->len);
	if (inc->len && unlikely(sk->congested))
		rds_cong_check(sk);
	rds_inc_free(inc);
}

/* Another thread may have closed the number meanwhile, and it may now be another descriptor. */
static bool fd_is_standin(const struct rds_sock *sk, int fd)
{
	struct stat st;

	return os_fstat(fd, &st) == 0 && st.st_ino == sk->inode && S_ISSOCK(st.st_mode);
}

/* Bytes that nobody has read; all that are shown if that is not known. */
static uint64_t bytes_left(const struct rds_sock *sk, int fd, unsigned long which)
{
	int bytes = 0;

	if (os_syscall(SYS_ioctl, fd, (long)which, (long)&bytes, 0, 0, 0) < 0)
		return sk->shown_bytes;
	return which == SIOCOUTQ && bytes ? sk->shown_bytes : (uint64_t)bytes;
}

void rds_inc_shown_settle(struct rds_sock *sk, int fd)
{
	uint64_t left;

	if (!sk->nshown)
		return;
	if (fd >= 0 && fd_is_standin(sk, fd))
		left = bytes_left(sk, fd, SIOCINQ);
	else
		left = bytes_left(sk, rds_sock_pair_fd(sk), SIOCOUTQ);
	while (sk->nshown && sk->shown_bytes > left)
		head_drop(sk);
}

/* ---- this process reads ---- */

/* The next packet: its number, 0: none; 1: it is something else. */
static uint64_t packet_read(struct rds_sock *sk, int fd, int flags)
{
	ssize_t n = os_recv(fd, &packet, sizeof(packet), MSG_DONTWAIT | flags);

	if (n < 0)
		return 0;
	if (rds_inc_shown_is_sound(&packet.head, n) && packet.head.number > 1)
		return packet.head.number;
	if (!n && os_recv_is_eof(fd))
		return 0;
	if (!(flags & MSG_PEEK))
		atomic_store(&sk->shown_in, false);
	return 1;
}

static struct rds_inc *inc_with_number(const struct rds_sock *sk, uint64_t number)
{
	struct rds_inc *inc = sk->nshown ? sk->rx_head : NULL;

	while (inc && inc->shown != number)
		inc = inc == sk->shown_last ? NULL : inc->next;
	return inc;
}

void rds_inc_shown_take_head(struct rds_sock *sk, int fd, bool peek)
{
	unsigned most = READS_MOST;
	const struct rds_inc *inc;
	uint64_t number;

	if (!fd_is_standin(sk, fd))
		return;
	while (sk->nshown && most--) {
		number = packet_read(sk, fd, peek ? MSG_PEEK : 0);
		inc = number ? inc_with_number(sk, number) : NULL;
		if (number && !inc && peek) { /* it is in the way */
			rds_inc_shown_take_back(sk, fd);
			rds_sock_show_rest(sk);
			return;
		}
		if (number && !inc)
			continue;
		while (sk->nshown && sk->rx_head != inc)
			head_drop(sk);
		if (inc && !peek)
			shown_forget(sk, sk->rx_head);
		return;
	}
}

/* In front of the queue, which has nothing that is shown any more. */
static void queue_prepend(struct rds_sock *sk, struct rds_inc *first, struct rds_inc **end)
{
	if (!first)
		return;
	*end = sk->rx_head;
	if (!sk->rx_head)
		sk->rx_tail = end;
	sk->rx_head = first;
}

void rds_inc_shown_take_back(struct rds_sock *sk, int fd)
{
	struct rds_inc *inc, *kept = NULL, **tail = &kept;
	unsigned most = READS_MOST;
	uint64_t number;

	if (!fd_is_standin(sk, fd))
		return;
	/* the one that was taken just now, and could not be delivered */
	if (sk->nshown && !sk->rx_head->shown) {
		*tail = sk->rx_head;
		tail = &sk->rx_head->next;
		sk->rx_head = *tail;
	}
	while (most-- && (number = packet_read(sk, fd, 0))) {
		inc = inc_with_number(sk, number);
		if (!inc)
			continue;
		while (sk->rx_head != inc)
			head_drop(sk);
		shown_forget(sk, inc);
		sk->rx_head = inc->next;
		*tail = inc;
		tail = &inc->next;
	}
	while (sk->nshown)
		head_drop(sk);
	atomic_store(&sk->shown_in, false);
	atomic_store(&sk->shown, 0);
	queue_prepend(sk, kept, tail);
}

/* ---- a former owner's ---- */

static struct rds_inc *inc_from_packet(void)
{
	struct rds_inc *inc = rds_inc_copy(packet.bytes, packet.head.len);

	if (!inc)
		return NULL;
	inc->saddr = packet.head.saddr;
	inc->sport = packet.head.sport;
	inc->tos = packet.head.tos;
	return inc;
}

void rds_inc_shown_inherit(struct rds_sock *sk, int fd)
{
	unsigned most = READS_MOST;
	struct rds_inc *inc;
	uint64_t number;

	while (most-- && (number = packet_read(sk, fd, 0))) {
		if (number == 1)
			continue;
		inc = inc_from_packet();
		if (!inc) {
			rds_error("out of memory: messages of a process that has ended are lost");
			continue;
		}
		*sk->rx_tail = inc;
		sk->rx_tail = &inc->next;
		sk->rcv_count++;
		sk->rcv_bytes += inc->len;
	}
}
