/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * handoff_state.c - a parked socket in the stand-in (protocol.h): the file with state and
 * queues, and the packet with the descriptors.
 *
 * Peeking changes nothing, and lets only those descriptors into the table that the caller asks for.
 * A process that takes the packet locks the lease first (standby.c), if there is one. So a
 * descriptor of the lease never comes into the table of a process that has the lock.
 *
 * Must not know which process parks the socket, nor which one takes it.
 */
#include <asm/ioctls.h>
#include <errno.h>
#include <linux/sockios.h>
#include <string.h>

#include "engine/share/handoff.h"
#include "engine/conn/shown.h"
#include "engine/rdma/rdma.h"

void rds_share_state_fill(const struct rds_sock *sk, struct rds_share_state *st)
{
	memset(st, 0, sizeof(*st));
	st->magic = RDS_SHARE_MAGIC;
	st->version = RDS_SHARE_VERSION;
	st->name = sk->name;
	st->reg_idx = sk->reg_idx;
	rds_sock_state_get(sk, &st->sock);
	st->barrier_id = atomic_load_explicit(&sk->marks.last_id, memory_order_relaxed);
}

bool rds_handoff_put(int fd, off_t *size, const void *record, size_t len, const void *bytes, size_t nbytes,
		     const char *what)
{
	const off_t whole = *size;
	int err = os_file_append(fd, size, record, len);

	if (!err)
		err = os_file_append(fd, size, bytes, nbytes);
	if (!err)
		return true;
	*size = whole; /* the next record overwrites the partial one */
	rds_error("%s of an RDS socket cannot be handed off with it, and are lost: %s%s", what, strerror(-err),
		  err == -EFBIG ? "; raise the limit of file sizes (ulimit -f)" : "");
	return false;
}

static bool handoff_put_message(const struct rds_inc *inc, int fd, off_t *size)
{
	struct rds_share_message m;

	memset(&m, 0, sizeof(m)); /* padding too: no other memory of ours leaves */
	m.saddr = inc->saddr;
	m.sport = inc->sport;
	m.tos = inc->tos;
	m.len = inc->len;
	m.cookie = inc->cookie;
	m.real_ns = inc->real_ns;
	if (inc->trace_ns[0])
		memcpy(m.trace_ns, inc->trace_ns, sizeof(m.trace_ns));
	return rds_handoff_put(fd, size, &m, sizeof(m), inc->data, inc->len, "received messages");
}

uint32_t rds_handoff_put_shown(int standin, int fd, off_t *size)
{
	static struct {
		struct rds_shown_packet head;
		char bytes[RDS_SHOWN_LEN_MAX + 1];
	} p;
	struct rds_share_message m;
	unsigned most = 65536; /* more than there is room for: somebody writes all the time */
	uint32_t n = 0;
	ssize_t got;

	while (most-- && (got = os_recv(standin, &p, sizeof(p), MSG_DONTWAIT)) >= 0 &&
	       (got || !os_recv_is_eof(standin))) {
		if (!rds_inc_shown_is_sound(&p.head, got))
			continue;
		memset(&m, 0, sizeof(m));
		m.saddr = p.head.saddr;
		m.sport = p.head.sport;
		m.tos = p.head.tos;
		m.len = p.head.len;
		n += rds_handoff_put(fd, size, &m, sizeof(m), p.bytes, m.len, "received messages");
	}
	return n;
}

static bool handoff_put_report(const struct rds_op *op, int fd, off_t *size)
{
	struct rds_share_report r;

	memset(&r, 0, sizeof(r));
	r.token = op->token;
	r.status = op->status;
	r.asked = op->notify;
	r.short_form = op->short_notify;
	r.blocks_sends = op->blocks_sends;
	r.to = op->to;
	return rds_handoff_put(fd, size, &r, sizeof(r), NULL, 0, "notifications");
}

/*
 * The counts are known at the end: what finds no room in the file (ulimit -f, memory) is lost, but
 * not the socket with it.
 */
int rds_handoff_write_state(struct rds_sock *sk, int fd, off_t *size)
{
	struct rds_share_state st;
	const struct rds_inc *inc;
	const struct rds_op *op;
	off_t head = 0;
	int err;

	rds_share_state_fill(sk, &st);
	err = os_file_append(fd, size, &st, sizeof(st));
	if (err)
		return err;
	for (inc = sk->rx_head; inc && handoff_put_message(inc, fd, size); inc = inc->next)
		st.n_messages++;
	st.n_unsent = rds_handoff_unsent_put(sk, fd, size);
	for (op = sk->reports; op && handoff_put_report(op, fd, size); op = op->report_next)
		st.n_reports++;
	return os_file_append(fd, &head, &st, sizeof(st));
}

/* ---- the packet ---- */

/* The order of the descriptors in the packet. */
enum { PAIR, FILE_, MAILBOX, LEASE };

int rds_handoff_park(int pair, int file, int mailbox, int lease, uint64_t size)
{
	struct rds_handoff_packet d = {.magic = RDS_SHARE_MAGIC,
				       .version = RDS_SHARE_VERSION,
				       .size = size,
				       .has_mailbox = mailbox >= 0,
				       .has_lease = lease >= 0};
	int pass[RDS_HANDOFF_FDS] = {[PAIR] = pair,
				     [FILE_] = file,
				     [MAILBOX] = mailbox >= 0 ? mailbox : file,
				     [LEASE] = lease >= 0 ? lease : file};

	return os_pass_send(pair, &d, sizeof(d), pass, RDS_HANDOFF_FDS, MSG_DONTWAIT);
}

static void parked_close_fds(const int *fds, unsigned n)
{
	while (n--)
		os_close(fds[n]);
}

/*
 * Receives the first packet. 1: it is the parked packet. 0: it is another one. -EAGAIN: there is
 * none. -EMFILE: it is the parked packet, but the table is full. -ENOMSG: it is a message, and a parked packet is
 * never behind one (conn/shown.h).
 */
static int parked_read_one(int standin, int flags, unsigned room, struct rds_handoff_packet *d,
			   int fds[RDS_HANDOFF_FDS])
{
	unsigned n;
	bool lost;
	ssize_t len = os_pass_recv_few(standin, d, sizeof(*d), fds, room, &n, &lost, MSG_DONTWAIT | flags);

	if (len < 0 || (len == 0 && os_recv_is_eof(standin)))
		return -EAGAIN;
	if (len == (ssize_t)sizeof(*d) && (n || lost) && d->magic == RDS_SHARE_MAGIC &&
	    d->version == RDS_SHARE_VERSION) {
		if (n == room)
			return 1;
		parked_close_fds(fds, n);
		return lost ? -EMFILE : 0;
	}
	parked_close_fds(fds, n);
	return len && ((const struct rds_shown_packet *)(const void *)d)->magic == RDS_SHOWN_MAGIC ? -ENOMSG : 0;
}

/*
 * Does the parked packet lie behind the packets that signal readability? An owner that has no
 * descriptor of the stand-in left cannot remove those. They have no bytes (socket/standin.c), so
 * the number of bytes tells.
 */
static bool parked_is_behind(int standin)
{
	return os_bytes_there(standin, SIOCINQ) >= (int)sizeof(struct rds_handoff_packet);
}

bool rds_handoff_is_parked(int standin)
{
	struct rds_handoff_packet d;
	int is = parked_read_one(standin, MSG_PEEK, 0, &d, NULL);

	return is == 1 || (is == 0 && parked_is_behind(standin));
}

int rds_handoff_peek(int standin, int out[3])
{
	struct rds_handoff_packet d;
	int fds[RDS_HANDOFF_FDS], is;

	out[0] = out[1] = out[2] = -1;
	is = parked_read_one(standin, MSG_PEEK, RDS_HANDOFF_FDS, &d, fds);
	if (is == 0)
		return parked_is_behind(standin);
	if (is != 1)
		return is == -EMFILE ? is : 0;
	if (!d.has_lease) {
		parked_close_fds(fds, RDS_HANDOFF_FDS);
		return 1;
	}
	os_close(fds[FILE_]);
	out[0] = fds[PAIR];
	out[1] = fds[LEASE];
	if (d.has_mailbox)
		out[2] = fds[MAILBOX];
	else
		os_close(fds[MAILBOX]);
	return 1;
}

static void parked_close_unwanted(const struct rds_handoff_packet *d, bool has_lease, int fds[RDS_HANDOFF_FDS])
{
	if (has_lease)
		fds[LEASE] = -1;
	if (!d->has_mailbox) {
		os_close(fds[MAILBOX]);
		fds[MAILBOX] = -1;
	}
	if (!has_lease && !d->has_lease) {
		os_close(fds[LEASE]);
		fds[LEASE] = -1;
	}
}

/*
 * Takes the first packet. 1: it is the parked packet. 0: it was another one, which is removed.
 * -EAGAIN, -EMFILE.
 *
 * Descriptors that do not fit into the table would be lost with the packet. So the packet is peeked
 * at first. With the lock, the copies are kept, and the packet is removed. Without the lock,
 * another process may take the packet meanwhile, and the copies could be of a different packet than
 * the one that is removed. Then the copies are closed: they only prove that there is room.
 */
static int parked_take_one(int standin, bool locked, unsigned room, struct rds_handoff_packet *d,
			   int fds[RDS_HANDOFF_FDS])
{
	struct rds_handoff_packet again;
	int is = parked_read_one(standin, MSG_PEEK, room, d, fds);

	if (is < 0 || (is == 0 && !parked_is_behind(standin)))
		return is < 0 ? is : -EAGAIN;
	if (is == 1 && locked) {
		is = parked_read_one(standin, 0, 0, &again, NULL);
		if (is != 1)
			parked_close_fds(fds, room);
		return is == 1 ? 1 : -EAGAIN;
	}
	if (is == 1)
		parked_close_fds(fds, room);
	return parked_read_one(standin, 0, room, d, fds);
}

int rds_handoff_take_parked(int standin, bool has_lease, struct rds_handoff_packet *d, int fds[RDS_HANDOFF_FDS])
{
	unsigned room = has_lease ? LEASE : RDS_HANDOFF_FDS;
	int is;

	while ((is = parked_take_one(standin, has_lease, room, d, fds)) == 0)
		;
	if (is != 1)
		return is;
	parked_close_unwanted(d, has_lease, fds);
	return 0;
}
