/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * handoff_in.c - a borrower takes a socket over and becomes its owner.
 *
 * It takes the parked packet that the last owner left in the stand-in (protocol.h). If the
 * last owner was killed, it uses the standby that it has kept (lease.h). From that it makes a
 * socket in this process's engine.
 *
 * The kernel lets one process do so (standby.c). Until the socket exists in that process, calls of
 * other borrowers find neither parked packet nor owner, and wait: their requests lie in our end of
 * the pair. If the new owner is killed at that moment, the messages in the parked file are lost,
 * and without a lease the socket as well.
 *
 * Another process has written the file. Lengths and enumerations are checked, and implausible
 * values end the socket, not the process.
 */
#include "engine/share/handoff.h"
#include "engine/node/socket_name.h"

#include <string.h>
#include <sys/mman.h>

#include "engine/share/borrower.h"
#include "engine/share/owner.h"
#include "engine/conn/conn.h"
#include "engine/conn/shown.h"
#include "engine/rdma/mr.h"
#include "engine/rdma/rdma.h"
#include "engine/share/lease.h"
#include "engine/progress/transports.h"
#include "engine/calls/start.h"
#include "engine/calls/close.h"
#include "engine/calls/port_hold.h"

#define MESSAGE_MAX (1u << 20)
/*
 * Free descriptors that a take-over needs: with a standby only, with a parked packet, and with an
 * engine or helper that has to be started first.
 */
#define BARE_NUMBERS 1
#define DEPOSIT_NUMBERS 4
#define START_NUMBERS 24

/* ---- the file ---- */

struct reader {
	const char *at, *end;
};

static bool reader_get_bytes(struct reader *r, void *to, size_t len)
{
	if ((size_t)(r->end - r->at) < len)
		return false;
	memcpy(to, r->at, len);
	r->at += len;
	return true;
}

static bool state_is_sound(const struct rds_share_state *st)
{
	const struct rds_sock_state *s = &st->sock;

	return st->magic == RDS_SHARE_MAGIC && st->version == RDS_SHARE_VERSION && rds_sock_state_is_sound(s) &&
	       s->err >= 0 && s->err <= RDS_SHARE_ERRNO && s->transport >= -1 && s->transport < RDS_TRANS_COUNT + 1 &&
	       s->sndbuf >= 2 && s->rcvbuf >= 2 && (s->bound ? s->laddr.port != 0 : !st->n_unsent) &&
	       st->n_unsent <= RDS_SND_MSGS && (s->rx_trace & 0xff) <= RDS_MSG_RX_DGRAM_TRACE_MAX;
}

static void handoff_apply_state(struct rds_sock *sk, const struct rds_share_state *st)
{
	struct rds_sock_state s = st->sock;

	/* until it is in the table of ports, in the list of monitors */
	s.bound = s.cong_monitor = false;
	rds_sock_state_set(sk, &s);
	sk->name = st->name;
	sk->reg_idx = st->reg_idx;
	rds_sock_marks_resume(&sk->marks, st->barrier_id);
}

static int handoff_read_message(struct rds_sock *sk, struct reader *r)
{
	struct rds_share_message m;
	struct rds_inc *inc;

	if (!reader_get_bytes(r, &m, sizeof(m)) || m.len > MESSAGE_MAX || (size_t)(r->end - r->at) < m.len)
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
	sk->rcv_count++;
	sk->rcv_bytes += inc->len;
	return 0;
}

int rds_handoff_read_messages(struct rds_sock *sk, const char **at, const char *end, uint32_t n)
{
	struct reader r = {*at, end};
	int err = 0;

	while (n-- && !err)
		err = handoff_read_message(sk, &r);
	*at = r.at;
	return err;
}

/* The notification of an operation that the last owner has finished. */
static int handoff_read_report(struct rds_sock *sk, struct reader *r)
{
	struct rds_share_report rep;
	struct rds_op *op;

	if (!reader_get_bytes(r, &rep, sizeof(rep)) || !rds_share_is_bool(&rep.asked) ||
	    !rds_share_is_bool(&rep.short_form) || !rds_share_is_bool(&rep.blocks_sends))
		return -EPROTO;
	op = rds_op_new(sk, RDS_OP_WRITE, 0);
	if (!op)
		return -ENOMEM;
	op->token = rep.token;
	op->status = rep.status;
	op->notify = rep.asked;
	op->short_notify = rep.short_form;
	op->started = op->over = op->done = true;
	op->to = rep.to;
	if (rep.blocks_sends)
		rds_op_async_block(op);
	atomic_store(&sk->had_ops, true);
	rds_notify_queue(op);
	return 0;
}

static int handoff_read_reports(struct rds_sock *sk, struct reader *r, uint32_t n)
{
	int err = 0;

	while (n-- && !err)
		err = handoff_read_report(sk, r);
	return err;
}

/* ---- the socket ---- */

/* As bind does it, but the registry has the port as this socket's already. control held. */
static int handoff_claim_port(struct rds_sock *sk)
{
	int err = rds_call_start_helper();
	if (!err && atomic_load(&sk->transport) == RDS_TRANS_IB &&
	    rds_transports_claim(&sk->laddr.ip, sk->laddr.scope) <= 0)
		rds_warn("this process has taken over a socket that is bound to an address of an RDMA device, and "
			 "cannot use the device: the socket reaches this host only");
	if (err)
		return err;
	if (atomic_load(&sk->transport) == RDS_TRANS_TCP)
		(void)rds_transports_claim_node(&sk->laddr.ip, sk->laddr.scope);
	rx_lock();
	err = rds_cong_map_bind(&sk->laddr.ip);
	rx_unlock();
	return err;
}

/* From now on calls may be made, and messages are accepted. control held. */
static void handoff_open_socket(struct rds_sock *sk, const struct rds_share_state *st, struct reader *r)
{
	int err;

	rds_sock_list_add(sk);
	rds_lease_export_later(sk);
	if (st->sock.cong_monitor)
		rds_cong_set_monitor(sk, true);
	rx_lock();
	rds_cong_resume(sk);
	if (st->sock.bound)
		rds_cong_check(sk);
	rds_cong_publish(sk); /* whatever its last owner published */
	/* Notifications refer to the socket, so it is listed first. */
	err = handoff_read_reports(sk, r, st->n_reports);
	if (err)
		rds_error("notifications of an RDS socket that was taken over are lost: %s", strerror(-err));
	rx_unlock();
	/* Newer messages come later: their senders have to find a route, which needs control. */
	rds_handoff_unsent_send(sk, false);
}

static void handoff_show_port(struct rds_sock *sk, bool show)
{
	rx_lock();
	if (show)
		rds_sock_bound_insert(sk);
	else
		rds_sock_bound_remove(sk);
	RDS_SOCK_SET(sk, bound, show);
	rx_unlock();
}

static int handoff_revive_socket(struct rds_sock *sk, const struct rds_share_state *st, struct reader *r, bool sure)
{
	int mailbox = os_fd(&sk->mailbox_fd), err;
	bool mine = false;

	handoff_apply_state(sk, st);
	rds_sock_new_owner(sk);
	atomic_store(&sk->hidden_out, true); /* the last owner may have filled the send buffer */
	rds_lock(&rds_lock_control);
	rx_lock();
	err = rds_handoff_read_messages(sk, &r->at, r->end, st->n_messages);
	rx_unlock();
	if (!err)
		err = rds_handoff_unsent_get(sk, &r->at, r->end, st->n_unsent);
	if (!err && st->sock.bound)
		err = handoff_claim_port(sk);
	/*
	 * Before the registry lets messages arrive, they must find the port and the regions. The
	 * socket is not open yet, so they wait.
	 */
	if (!err && st->sock.bound)
		handoff_show_port(sk, true);
	rds_borrower_regions_to_socket(sk, !err && !st->sock.region_freed_by_other);
	if (!err) {
		err = registry_sock_take_over(rds_node_registry, sk->reg_idx, &sk->name, sure);
		mine = !err;
	}
	if (!err && mailbox >= 0)
		err = rds_mailbox_empty(mailbox, sk);
	if (!err) {
		rds_call_port_take(sk);
		handoff_open_socket(sk, st, r);
		rds_sock_changed(sk);
	} else {
		if (rds_sock_bound(sk))
			handoff_show_port(sk, false);
		/* the mailbox may have been emptied already */
		rds_mailbox_keep_port(sk);
		rds_call_port_close(sk, false);
		if (mine)
			registry_sock_orphan(rds_node_registry, sk->reg_idx, &sk->name);
		rds_handoff_unsent_drop(sk, false);
		rds_mr_drop_all(sk);
	}
	rds_unlock(&rds_lock_control);
	return err;
}

/*
 * An owner that was killed inside bind() has not written the name to the lease: the registry has
 * it.
 */
static int state_name_from_registry(struct rds_share_state *st)
{
	struct registry_sock where;
	int err = registry_sock_get_binding(rds_node_registry, st->reg_idx, &st->name, &where);

	if (err)
		return err;
	st->sock.bound = where.bound_port;
	st->sock.laddr = (struct rds_addr){.ip = where.bound, .port = where.bound_port, .scope = where.scope};
	if (st->sock.bound)
		st->sock.transport = where.transport;
	return 0;
}

static int handoff_make_socket(int fd, struct rds_handoff *e, uint64_t inode, const struct rds_share_state *st,
			       struct reader *r, struct rds_sock **out)
{
	bool killed = e->file < 0, sure = e->page >= 0;
	struct rds_sock *sk;
	int err = rds_sock_new(e->pair, inode, &sk);

	if (err)
		return err;
	rds_lock(&rds_lock_control);
	err = e->page < 0 ? 0 : rds_lease_take(sk, e->page);
	rds_unlock(&rds_lock_control);
	e->page = -1;
	if (!err && e->mailbox >= 0) {
		err = rds_lease_take_mailbox(sk, e->mailbox);
		e->mailbox = -1;
	}
	if (killed) {
		rx_lock();
		rds_inc_shown_inherit(sk, fd);
		rx_unlock();
	}
	if (!err)
		err = handoff_revive_socket(sk, st, r, sure);
	if (err) {
		rds_call_discard(sk);
		return err;
	}
	/*
	 * Other processes that have the socket need our helper. The lease is exported before the
	 * socket, so that the borrowers that wait get the lease when they attach.
	 */
	rds_share_begin();
	rds_sock_export_late(sk);
	/*
	 * Other processes may look at the stand-in only. The helper cannot show them anything
	 * before it has the descriptor: what it was asked before that is lost.
	 */
	rx_lock();
	if (rds_sock_would_wake(sk, POLLIN))
		rds_sock_wake(sk, POLLIN | POLLRDNORM | RDS_WAIT_RECV);
	rx_unlock();
	if (killed)
		rds_sock_show_anew(sk, fd);
	if (rds_sock_writable(sk)) { /* removes what the last owner filled the send buffer with */
		rds_sock_wake(sk, POLLOUT | POLLWRNORM);
	} else { /* the unsent messages may have filled the socket: fills the send buffer as well */
		rds_sock_refill_out(sk, fd);
		rds_sock_watch(sk, fd, false);
	}
	*out = sk;
	return 0;
}

bool rds_share_is_standin(int fd)
{
	return rds_node_name_read(fd, NULL);
}

bool rds_handoff_is_pending(int fd)
{
	return rds_handoff_is_parked(fd) || rds_standby_owner_died(fd);
}

static int handoff_map_file(const struct rds_handoff *e, void **map)
{
	if (e->size < sizeof(struct rds_share_state) || e->size > SIZE_MAX / 2 || !os_memfd_is_sealed(e->file, e->size))
		return -EPROTO;
	return os_mmap((size_t)e->size, PROT_READ, MAP_PRIVATE, e->file, 0, map);
}

/* The state must be that of this stand-in's socket. */
static bool standin_has_name(int fd, const struct rds_procid *name)
{
	struct rds_procid has;

	return rds_node_name_read(fd, &has) && memcmp(&has, name, sizeof(has)) == 0;
}

/* Takes e->pair and e->page. */
static int handoff_finish_in(int fd, struct rds_handoff *e, uint64_t inode, struct rds_sock **out)
{
	struct rds_share_state st;
	struct reader r = {NULL, NULL};
	void *map = NULL;
	int err;

	if (e->file < 0) {
		err = rds_standby_read_lease(e->page, &st);
	} else {
		err = handoff_map_file(e, &map);
		if (!err)
			r = (struct reader){map, (const char *)map + e->size};
		if (!err && !reader_get_bytes(&r, &st, sizeof(st)))
			err = -EPROTO;
	}
	if (!err &&
	    (!state_is_sound(&st) || !rds_node_name_is_peer(e->pair, &st.name) || !standin_has_name(fd, &st.name)))
		err = -EPROTO;
	if (!err && e->page >= 0)
		err = state_name_from_registry(&st);
	if (!err && !state_is_sound(&st)) /* the registry is written by other processes as well */
		err = -EPROTO;
	if (err)
		os_close(e->pair);
	else
		err = handoff_make_socket(fd, e, inode, &st, &r, out);
	if (map)
		os_munmap(map, (size_t)e->size);
	if (e->page >= 0)
		os_close(e->page);
	return err;
}

/*
 * Gets the resources that may be lacking, while failure still costs nothing: nothing is taken yet.
 */
static int handoff_prepare_in(int fd)
{
	unsigned want = rds_handoff_is_parked(fd) ? DEPOSIT_NUMBERS : BARE_NUMBERS;
	int err;

	if (!os_process_is_started() || !atomic_load(&rds_helper_up))
		want = START_NUMBERS;
	if (!os_fds_available(fd, want)) {
		rds_borrower_hang_up(fd);
		if (!os_fds_available(fd, want)) {
			rds_warn_once("this process cannot take over an RDS socket, because it has no descriptors "
				      "left: " RDS_LOG_EMFILE);
			return -EMFILE;
		}
	}
	err = rds_call_start_engine();
	if (err)
		return err;
	rds_lock(&rds_lock_control);
	err = rds_call_start_helper();
	rds_unlock(&rds_lock_control);
	/* A process that is stopped may have the registry's lock. */
	return err ? err : registry_check_lock(rds_node_registry);
}

/*
 * Is the port in the registry of this process? Not if this is a process of another user, which has
 * got the descriptor from a process of the socket's user. Then the socket is left to others.
 */
static bool state_is_of_node(const struct rds_share_state *st)
{
	struct registry_sock where;

	return registry_sock_get_binding(rds_node_registry, st->reg_idx, &st->name, &where) != -ENOENT;
}

int rds_handoff_in(int fd, struct rds_sock **out)
{
	struct rds_handoff e = {-1, -1, -1, -1, 0};
	struct stat st;
	int err;

	if (!rds_handoff_is_pending(fd) || os_fstat(fd, &st))
		return -EAGAIN;
	err = handoff_prepare_in(fd);
	if (!err)
		err = rds_standby_take_over(fd, st.st_ino, state_is_of_node, &e);
	if (err == -EXDEV)
		rds_warn_once("an RDS socket of another registry cannot be used (ENOTCONN): no process there owns it "
			      "any more. It is another user's (RDS_PRELOAD_SHARE), or the registry was deleted: then "
			      "restart the programs that use the socket");
	if (err)
		return err;
	err = handoff_finish_in(fd, &e, st.st_ino, out);
	if (e.file >= 0)
		os_close(e.file);
	if (e.mailbox >= 0)
		os_close(e.mailbox);
	rds_standby_done(st.st_ino);
	if (err)
		rds_error("an RDS socket that another process has handed off cannot be taken over, and is lost: %s",
			  strerror(-err));
	return err == -EAGAIN ? -EIO : err;
}
