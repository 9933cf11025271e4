/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * adopt.c - a holder becomes the carrier: takes the deposit that the last one left in the stand-in (share.h), and makes a
 * socket of it in this process's engine.
 *
 * The kernel gives the deposit to one taker.  From then on until the socket is there, calls of others find neither deposit nor
 * carrier, and wait: their requests lie in our end of the pair, which came with the deposit.  A taker that is killed in that
 * moment takes the socket with it.
 *
 * What is in the file was written by another process: lengths and enumerations are checked, and whatever is implausible ends the
 * socket, not the process.
 */
#include "engine/leave.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/carry.h"
#include "engine/connection.h"
#include "engine/message.h"
#include "engine/wires.h"

#define MESSAGE_MAX (1u << 20)

/* ---- the file ---- */

struct reader {
	const char *at, *end;
};

static bool get(struct reader *r, void *to, size_t len)
{
	if ((size_t)(r->end - r->at) < len)
		return false;
	memcpy(to, r->at, len);
	r->at += len;
	return true;
}

static bool state_sound(const struct rds_share_state *st)
{
	return st->magic == RDS_SHARE_MAGIC && st->version == RDS_SHARE_VERSION && st->transport >= -1 &&
	       st->transport < RDS_TRANS_COUNT + 1 && st->sndbuf >= 2 && st->rcvbuf >= 2 &&
	       (!st->bound || st->laddr.port) && (st->rx_trace & 0xff) <= RDS_MSG_RX_DGRAM_TRACE_MAX;
}

static void take_state(struct rds_sock *sk, const struct rds_share_state *st)
{
	sk->name = st->name;
	sk->reg_idx = st->reg_idx;
	sk->laddr = st->laddr;
	sk->caddr = st->caddr;
	sk->bound_scope = st->bound_scope;
	atomic_store(&sk->transport, st->transport);
	atomic_store(&sk->connected, st->connected);
	atomic_store(&sk->no_rdma, st->no_rdma);
	atomic_store(&sk->tos, st->tos);
	atomic_store(&sk->tos_fixed, st->tos_fixed);
	atomic_store(&sk->recverr, st->recverr);
	atomic_store(&sk->zerocopy, st->zerocopy);
	atomic_store(&sk->inq, st->inq);
	atomic_store(&sk->timestamp, st->timestamp);
	atomic_store(&sk->err, st->err);
	atomic_store(&sk->sol_rds, st->sol_rds);
	atomic_store(&sk->sndbuf, st->sndbuf);
	atomic_store(&sk->rcvbuf, st->rcvbuf);
	atomic_store(&sk->rx_trace, st->rx_trace);
	atomic_store(&sk->generic, st->generic);
	atomic_store(&sk->sndtimeo_ns, st->sndtimeo_ns);
	atomic_store(&sk->rcvtimeo_ns, st->rcvtimeo_ns);
}

static int take_message(struct rds_sock *sk, struct reader *r)
{
	struct rds_share_message m;
	struct rds_inc *inc;

	if (!get(r, &m, sizeof(m)) || m.len > MESSAGE_MAX || (size_t)(r->end - r->at) < m.len)
		return -EPROTO;
	inc = rds_inc_copy(r->at, m.len);
	if (!inc)
		return -ENOMEM;
	r->at += m.len;
	inc->saddr = m.saddr;
	inc->sport = m.sport;
	inc->tos = m.tos;
	inc->cookie = m.cookie;
	inc->real_ns = m.real_ns;
	memcpy(inc->trace_ns, m.trace_ns, sizeof(m.trace_ns));
	*sk->rx_tail = inc;
	sk->rx_tail = &inc->next;
	sk->rcv_bytes += inc->len;
	return 0;
}

int rds_deposit_messages(struct rds_sock *sk, const char **at, const char *end, uint32_t n)
{
	struct reader r = {*at, end};
	int err = 0;

	while (n-- && !err)
		err = take_message(sk, &r);
	*at = r.at;
	return err;
}

/* ---- the socket ---- */

/* As bind does it; the registry knows the port as this socket's already.  control held. */
static int take_port(struct rds_sock *sk)
{
	int err = rds_engine_start_helper();

	if (!err && atomic_load(&sk->transport) == RDS_TRANS_IB && rds_wires_claim(&sk->laddr.ip, sk->laddr.scope) <= 0)
		rds_warn("a socket that was bound to an address of an RDMA device came to this process, which cannot "
			 "use "
			 "the device: it reaches this host only");
	if (err)
		return err;
	rx_lock();
	err = rds_cong_local(&sk->laddr.ip) ? 0 : -ENOMEM;
	rx_unlock();
	return err;
}

/* Calls may be made, and messages are taken.  control held. */
static void go_live(struct rds_sock *sk, const struct rds_share_state *st)
{
	rds_sock_list(sk);
	if (st->cong_monitor)
		rds_cong_set_monitor(sk, true);
	rx_lock();
	sk->cong_mask = st->cong_mask;
	sk->cong_notify = st->cong_notify;
	if (st->bound)
		rds_cong_check(sk);
	if (rds_sock_has_input(sk)) /* others may look at the stand-in only */
		rds_sock_wake(sk, POLLIN | POLLRDNORM | RDS_WAIT_RECV);
	rx_unlock();
}

static void show_port(struct rds_sock *sk, bool show)
{
	rx_lock();
	if (show)
		rds_bound_insert(sk);
	else
		rds_bound_remove(sk);
	atomic_store_explicit(&sk->bound, show, memory_order_release);
	rx_unlock();
}

static int revive(struct rds_sock *sk, const struct rds_share_state *st, struct reader *r, int inbox)
{
	int err;

	take_state(sk, st);
	atomic_store(&sk->hidden_out, true); /* as far as anybody knows */
	rds_lock(&rds_eng->control);
	rx_lock();
	err = rds_deposit_messages(sk, &r->at, r->end, st->n_messages);
	rx_unlock();
	if (!err && st->bound)
		err = take_port(sk);
	/* First what arrives finds it, not open yet, and waits; then it can arrive. */
	if (!err && st->bound)
		show_port(sk, true);
	if (!err && inbox >= 0)
		err = rds_inbox_empty(inbox, sk);
	if (!err)
		err = registry_sock_take(rds_eng->reg, sk->reg_idx, &sk->name);
	if (!err)
		go_live(sk, st);
	else if (rds_sock_bound(sk))
		show_port(sk, false);
	rds_unlock(&rds_eng->control);
	return err;
}

static int make_socket(const int fds[RDS_DEPOSIT_FDS], uint64_t inode, const void *file, size_t size,
		       struct rds_sock **out)
{
	struct reader r = {file, (const char *)file + size};
	struct rds_share_state st;
	struct rds_sock *sk;
	int err;

	err = get(&r, &st, sizeof(st)) && state_sound(&st) ? 0 : -EPROTO;
	if (!err)
		err = rds_engine_start();
	if (err) {
		os_close(fds[0]);
		return err;
	}
	err = rds_sock_make(fds[0], inode, &sk);
	if (err)
		return err;
	err = revive(sk, &st, &r, fds[2]);
	if (err) {
		rds_sock_unmake(sk);
		return err;
	}
	rds_sock_lend_late(sk);
	rds_sock_wake(sk, POLLOUT | POLLWRNORM); /* the filler of its last carrier goes */
	rds_engine_spreads();			 /* who else has it will need us, and our end */
	*out = sk;
	return 0;
}

bool rds_is_standin(int fd)
{
	return rds_share_is(fd, NULL);
}

bool rds_adoptable(int fd)
{
	struct rds_share_deposit d;

	return rds_deposit_read(fd, false, &d, NULL) == 1;
}

int rds_adopt(int fd, struct rds_sock **out)
{
	struct rds_share_deposit d;
	struct stat st;
	void *map = NULL;
	int fds[RDS_DEPOSIT_FDS], err;

	if (!rds_adoptable(fd) || os_fstat(fd, &st) || rds_deposit_read(fd, true, &d, fds) != 1)
		return -EAGAIN;
	err = d.size >= sizeof(struct rds_share_state) && rds_share_sealed(fds[1], d.size) ? 0 : -EPROTO;
	if (!err)
		err = os_mmap((size_t)d.size, PROT_READ, MAP_PRIVATE, fds[1], 0, &map);
	os_close(fds[1]);
	if (err) {
		os_close(fds[0]);
	} else {
		err = make_socket(fds, st.st_ino, map, (size_t)d.size, out); /* takes the end */
		os_munmap(map, (size_t)d.size);
	}
	if (fds[2] >= 0)
		os_close(fds[2]);
	if (err)
		rds_error("an RDS socket that another process has left to this one is lost: %s", strerror(-err));
	return err == -EAGAIN ? -EIO : err;
}
