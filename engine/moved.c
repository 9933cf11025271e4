/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * moved.c - a port of another host has moved from one process to another, and messages were on their way.
 *
 * Who sends to another host has asked once which process has the port, and goes on sending to that one.  When the port
 * is closed there and bound by another process of that host, the kernel, which knows one node and no processes, would give the
 * next message to the new socket.  So here the old process sends the message *back* instead of dropping it: not its bytes, which the sender
 * keeps until they are acknowledged, but a notice with its number.  The sender takes that message, and all that it has sent to the
 * port since, out of this connection, has them look for their port anew, in order, and forgets who had it.
 *
 * Nothing is lost or doubled, whenever the connection breaks:
 *   - the notice is a message with a sequence number: sent again until it is acknowledged;
 *   - the message that was sent back is not acknowledged before the notice is;
 *   - the notice is not acknowledged before the sender has taken its messages.
 * A process that *leaves* a socket to others (leave.c) says so before it ends, of each of its ports, with the number of the first message that it has not
 * accepted: what came before is with the socket, and goes to whoever carries it next.
 * Order: as long as messages for the port are under way to the old process, new ones go after them; behind what has come back, while that
 * waits (resolve.c).
 *
 * A port that moves away and back while messages are in flight may find one of them a second time: who has it by then is the old process.
 */
#include <endian.h>
#include <string.h>

#include "engine/connection.h"
#include "engine/ports.h"

#define AGAIN_NS (10 * 1000000ull)

/* Another process of this host that lives and has the port that this message is for? */
static bool has_moved(const struct rds_conn *conn, uint16_t port)
{
	struct registry_owner own;

	return registry_lookup(rds_eng->reg, &conn->id.laddr, port, conn->id.scope, &own) == 0 &&
	       memcmp(&own.procid, registry_self(rds_eng->reg), sizeof(own.procid)) != 0 &&
	       registry_proc_alive(rds_eng->reg, own.proc, &own.procid);
}

enum rds_rx_verdict rds_moved_refuse(struct rds_conn *conn, struct rds_ep *ep, const struct rds_hdr *hdr)
{
	unsigned n = atomic_load(&conn->nout);

	if (!(((struct rds_ep_head *)ep)->t->ops->caps & RDS_TCAP_REMOTE) || !has_moved(conn, hdr->dport)) {
		RDS_STAT_INC_RX(recv_drop_no_sock);
		return RDS_RX_DONE;
	}
	rds_conn_work(conn);
	if (n == RDS_MOVED_MAX)
		return RDS_RX_LATER;
	conn->out[n] = (struct rds_moved){.seq = hdr->seq, .port = hdr->dport};
	atomic_store(&conn->nout, n + 1);
	return RDS_RX_DONE;
}

/*
 * A notice of an earlier message to the same port does for a later one, if the peer had not heeded it when it sent that.  (While something older is
 * under way to us, it sends us what is new even after that.)  Its acknowledgement, which each of its frames carries, tells.
 */
static bool covers(const struct rds_moved *m, uint16_t port, uint64_t seq, uint64_t acked)
{
	return m->port == port && m->seq <= seq && (!m->notice || acked < m->notice);
}

/* From that message on the port's come back.  False: no room just now. */
static bool comes_back(struct rds_conn *conn, struct rds_ep *ep, uint16_t port, uint64_t seq)
{
	uint64_t acked = ((struct rds_ep_head *)ep)->t->ops->acked(ep);
	unsigned i, n = atomic_load(&conn->nout);

	rds_conn_work(conn);
	for (i = 0; i < n; i++)
		if (covers(&conn->out[i], port, seq, acked))
			return true;
	if (n == RDS_MOVED_MAX)
		return false;
	conn->out[n] = (struct rds_moved){.seq = seq, .port = port};
	atomic_store(&conn->nout, n + 1);
	return true;
}

static bool can_be_told(const struct rds_conn *conn)
{
	return conn->kind == RDS_CONN_PEER && (conn->t->ops->caps & RDS_TCAP_REMOTE);
}

enum rds_rx_verdict rds_moved_late(struct rds_conn *conn, struct rds_ep *ep, const struct rds_hdr *hdr)
{
	return can_be_told(conn) && comes_back(conn, ep, hdr->dport, hdr->seq) ? RDS_RX_DONE : RDS_RX_LATER;
}

bool rds_moved_leave(struct rds_conn *conn, uint16_t port)
{
	uint64_t next = atomic_load_explicit(&conn->next_rx, memory_order_relaxed);

	return !can_be_told(conn) || comes_back(conn, conn->ep, port, next);
}

enum rds_rx_verdict rds_moved_told(struct rds_conn *conn, const struct rds_rx *rx)
{
	unsigned n = atomic_load(&conn->nin);
	struct rds_moved m = {.notice = rx->hdr.seq};

	rds_conn_work(conn);
	if (n == RDS_MOVED_MAX)
		return RDS_RX_LATER;
	memcpy(&m.seq, rx->data, sizeof(m.seq));
	memcpy(&m.port, (const char *)rx->data + sizeof(m.seq), sizeof(m.port));
	m.seq = be64toh(m.seq);
	m.port = be16toh(m.port);
	conn->in[n] = m;
	atomic_store(&conn->nin, n + 1);
	return RDS_RX_DONE;
}

uint64_t rds_moved_limit(const struct rds_conn *conn, uint64_t last)
{
	if (atomic_load(&conn->nout) && conn->out[0].seq <= last)
		last = conn->out[0].seq - 1;
	if (atomic_load(&conn->nin) && conn->in[0].notice <= last)
		last = conn->in[0].notice - 1;
	return last;
}

/* The first n are done with; what they held back may be acknowledged.  tx and rx held. */
static void forget(struct rds_conn *conn, struct rds_moved *list, _Atomic unsigned *count, unsigned n)
{
	unsigned left = atomic_load(count) - n;

	memmove(list, list + n, left * sizeof(*list));
	atomic_store(count, left);
	if (conn->ep)
		conn->t->ops->ack(conn->ep, rds_recv_taken(conn));
}

void rds_moved_say(struct rds_conn *conn)
{
	struct {
		uint64_t seq;
		uint16_t port;
	} __attribute__((packed)) bytes;
	struct iovec iov = {.iov_base = &bytes, .iov_len = sizeof(bytes)};
	struct rds_outgoing out;
	unsigned i;

	_Static_assert(sizeof(bytes) == RDS_MOVED_BYTES, "what wire.h says");
	if (atomic_load(&conn->state) == RDS_CONN_DEAD)
		return;
	for (i = 0; i < atomic_load(&conn->nout); i++) {
		struct rds_moved *m = &conn->out[i];

		if (m->notice) /* tx guards that; only the receive path adds to the list, at its end */
			continue;
		bytes.seq = htobe64(m->seq);
		bytes.port = htobe16(m->port);
		out = (struct rds_outgoing){.iov = &iov, .len = sizeof(bytes)};
		out.hdr.len = out.u.len = sizeof(bytes);
		out.hdr.flags = RDS_FLAG_MOVED | RDS_FLAG_ACK_REQUIRED;
		if (rds_xmit(conn, &out)) {
			rds_timer_set(&conn->retry, os_now_ns() + AGAIN_NS);
			break;
		}
		rx_lock();
		m->notice = out.u.seq;
		rx_unlock();
	}
	if (!conn->ep)
		return;
	conn->t->ops->flush(conn->ep, true);
	conn->t->ops->want_room(conn->ep, conn->acked); /* so that the acknowledgement is noticed */
}

void rds_moved_settle(struct rds_conn *conn)
{
	unsigned n;

	rx_lock();
	for (n = 0; n < atomic_load(&conn->nout); n++)
		if (!conn->out[n].notice || conn->out[n].notice > conn->acked)
			break;
	if (n)
		forget(conn, conn->out, &conn->nout, n);
	rx_unlock();
}

/* That notice has been heeded: what is sent from now on says so.  tx held. */
static void heeded(struct rds_conn *conn, const struct rds_moved *m)
{
	rx_lock();
	if (atomic_load(&conn->nin) && conn->in[0].notice == m->notice) /* not another thread, meanwhile */
		forget(conn, conn->in, &conn->nin, 1);
	rx_unlock();
}

/* control held.  False: no memory for copies just now. */
static bool take(struct rds_conn *conn, const struct rds_moved *m, struct rds_queued **list)
{
	bool taken = true;

	*list = NULL;
	rds_lock(&conn->tx);
	if (atomic_load(&conn->state) != RDS_CONN_DEAD)
		taken = rds_queue_take(conn, m->port, m->seq, list);
	if (taken)
		heeded(conn, m);
	rds_unlock(&conn->tx);
	return taken;
}

static bool take_back(struct rds_conn *conn, const struct rds_moved *m)
{
	struct rds_addr dst = {.ip = conn->id.faddr, .scope = conn->id.scope, .port = m->port};
	bool here = conn->id.peer_slot != RDS_SLOT_REMOTE, taken;
	struct rds_queued *list;

	rds_lock(&rds_eng->control);
	if (!here && atomic_load(&conn->state) != RDS_CONN_DEAD)
		rds_port_moved(&dst, &conn->id.peer);
	atomic_fetch_add(&rds_eng->conn_gen, 1); /* first: whoever sends from now on looks up where */
	taken = take(conn, m, &list);
	if (!list)
		rds_debug("port %u has moved, nothing that was sent there is still here", m->port);
	rds_nowhere_append(&conn->id, list, here); /* newer ones for a socket of this host were held back */
	rds_unlock(&rds_eng->control);
	return taken;
}

void rds_moved_run(struct rds_conn *conn)
{
	struct rds_moved m;
	bool some;

	for (;;) {
		rx_lock();
		some = atomic_load(&conn->nin) > 0;
		m = conn->in[0];
		rx_unlock();
		if (!some)
			return;
		if (!take_back(conn, &m)) {
			rds_timer_set(&conn->retry, os_now_ns() + AGAIN_NS);
			return;
		}
	}
}
