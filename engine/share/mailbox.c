/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mailbox.c - the mailbox, for messages to a socket that no process owns (protocol.h).
 *
 * A process that ends puts the messages that it still has for such a socket into the mailbox. The
 * next owner takes them out.
 *
 * A socket has a mailbox as long as any copy of the socket is open. The mailbox is made with the
 * lease, and every process that could become the owner keeps it. So a batch can be delivered also
 * after an owner was killed. (Without a lease the mailbox is made when the socket is parked.)
 *
 * No message is lost or doubled. The kernel takes a batch whole or not at all, and only then does
 * the sender free its messages. It delivers a batch while it has the registry's lock, and the
 * registry says that nobody owns the port. A process that takes the socket over first has the
 * registry name it as the owner, then empties the mailbox, and then begins to accept messages. So
 * it finds all batches that were delivered before.
 *
 * Order: the messages that wait for one port go in one batch, the oldest first. Batches are taken
 * out in the order in which they came, before any message that is sent to the new owner. A sender
 * that has older messages for the port on their way to the last owner delivers nothing until those
 * have come back.
 *
 * Size: the rule is the one by which a receive queue becomes congested. There is room for a message
 * as long as the mailbox contains no more than RCVBUF. The registry counts for the senders, and the
 * new owner goes by the same rule. The other messages stay with their sender.
 *
 * Any process of this host can connect to a mailbox, or bind a mailbox's name. Both sides ask the
 * kernel whose process the other one is, as everywhere. The content of a batch is checked like a
 * parked file.
 *
 * Operations, and messages that wait behind them for the same port, end with the process.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/calls/info.h"
#include "engine/conn/outgoing.h"
#include "engine/share/handoff.h"
#include "engine/conn/incoming.h"
#include "engine/wire/port_set.h"
#include "engine/node/socket_name.h"
#include "engine/sys/patience.h"

#define BACKLOG 4096 /* the kernel's own limit is usually lower */
#define LEAST_WEIGHT 64

/* A message without bytes needs memory as well. */
static uint32_t mailbox_weight(uint32_t len)
{
	return len < LEAST_WEIGHT ? LEAST_WEIGHT : len;
}

/*
 * A socket that has a mailbox's name, or is connected to the one that has it: descriptor or -errno.
 */
static int mailbox_socket(const struct rds_procid *name, bool listens)
{
	int fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;
	struct sockaddr_un sun;
	socklen_t len = rds_node_name_address(RDS_NODE_NAME_MAILBOX, name, &sun);

	if (fd < 0)
		return fd;
	err = listens ? os_bind(fd, (struct sockaddr *)&sun, len) : os_connect(fd, (struct sockaddr *)&sun, len);
	if (!err && listens)
		err = os_listen(fd, BACKLOG);
	if (err)
		os_close(fd);
	return err ? err : fd;
}

/* ---- the owner's side ---- */

int rds_mailbox_make(const struct rds_procid *name)
{
	return mailbox_socket(name, true);
}

/* A mailbox that is being emptied. */
struct emptying {
	struct rds_sock *sk;
	int64_t room; /* messages are taken as long as this is not negative */
};

static void mailbox_warn_full(void)
{
	rds_warn_once("other programs than this library have left more for an RDS socket without an owner than its "
		      "SO_RCVBUF: the rest is dropped");
}

static int batch_read_messages(struct emptying *e, const struct rds_mailbox_batch *p, const void *file)
{
	const char *at = file, *end = at + p->size;
	struct rds_sock *sk = e->sk;
	uint32_t n = p->n_messages;
	struct rds_inc **tail;
	int err = 0;

	rx_lock();
	for (; n && e->room >= 0; n--) {
		tail = sk->rx_tail;
		err = rds_handoff_read_messages(sk, &at, end, 1);
		if (err)
			break;
		e->room -= mailbox_weight((*tail)->len);
		RDS_STAT_INC_RX(recv_queued); /* it arrives now */
		RDS_STAT_ADD_RX(recv_bytes_added_to_sock, (*tail)->len);
		memset((*tail)->trace_ns, 0, sizeof((*tail)->trace_ns));
		(*tail)->real_ns = atomic_load(&sk->timestamp) ? os_realtime_ns() : 0;
	}
	rx_unlock();
	if (n && !err)
		mailbox_warn_full();
	return err;
}

static int batch_open(struct emptying *e, const struct rds_mailbox_batch *p, int file)
{
	void *map;
	int err;

	if (p->magic != RDS_SHARE_MAGIC || p->version != RDS_SHARE_VERSION || !p->size || p->size > SIZE_MAX / 2 ||
	    !os_memfd_is_sealed(file, p->size))
		return -EPROTO;
	err = os_mmap((size_t)p->size, PROT_READ, MAP_PRIVATE, file, 0, &map);
	if (err)
		return err;
	err = batch_read_messages(e, p, map);
	os_munmap(map, (size_t)p->size);
	return err;
}

/*
 * The process that has made the mailbox, or delivered the batch, may have ended. Then its user is
 * all that is known of it.
 */
static bool mailbox_peer_trusted(int fd)
{
	struct ucred cred;

	return (os_peer_cred(fd, &cred) && cred.uid == geteuid() && os_uid_is_known(cred.uid)) ||
	       rds_node_peer_is_member(fd);
}

/* ---- the name of the port, if other users may join the node (calls/port_hold.c) ---- */

/*
 * A copy of it lies in the mailbox, as a connection of its own that carries an empty batch. So the
 * port is kept from other users as long as any process could become the owner, however the present
 * one ends.
 */
void rds_mailbox_keep_port(struct rds_sock *sk)
{
	struct rds_mailbox_batch p = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	int fd, port, err;

	if (atomic_load(&sk->port_fd) < 0 || sk->port_kept)
		return;
	fd = err = mailbox_socket(&sk->name, false);
	/* This may be the end of the process in a signal handler. */
	if (fd >= 0 && !os_fds_hold_until(os_now_ns() + rds_patience_ns(RDS_PATIENCE_LOCK)))
		err = -EBUSY;
	else if (fd >= 0) {
		port = atomic_load(&sk->port_fd);
		err = mailbox_peer_trusted(fd) ? (int)os_pass_send(fd, &p, sizeof(p), &port, 1, MSG_DONTWAIT) : -EPERM;
		os_fds_release();
	}
	if (fd >= 0)
		os_close(fd);
	sk->port_kept = err >= 0;
	if (err < 0)
		rds_warn_once("port %u of an RDS socket that several processes have is not kept from other users "
			      "while none of them owns the socket: %s",
			      sk->laddr.port, err == -EMFILE ? RDS_LOG_EMFILE : strerror(-err));
}

/* The next owner. Takes the descriptor. */
static void mailbox_take_port(struct rds_sock *sk, int fd)
{
	if (atomic_load(&sk->port_fd) < 0 && rds_sock_bound(sk) &&
	    registry_port_is_held(rds_node_registry, &sk->laddr.ip, sk->laddr.port, sk->laddr.scope, fd))
		os_dup_high_slot(fd, &sk->port_fd);
	else
		os_close(fd);
}

/* Takes the batch of one connection, or ensures that none can come. */
static int batch_take(struct emptying *e, int fd)
{
	int fds[OS_PASS_MAX], err = 0;
	struct rds_mailbox_batch p;
	unsigned n, i;
	bool lost;
	ssize_t len;

	if (!mailbox_peer_trusted(fd)) {
		rds_warn_once("messages that a process of another user has left for an RDS socket are dropped");
		return 0;
	}
	os_shutdown(fd, SHUT_RD);
	len = os_pass_recv(fd, &p, sizeof(p), fds, &n, &lost, MSG_DONTWAIT);
	if (len <= 0)
		return 0;
	if (lost) {
		err = -EMFILE;
	} else if (len == (ssize_t)sizeof(p) && n == 1 && p.magic == RDS_SHARE_MAGIC && !p.size) {
		mailbox_take_port(e->sk, fds[0]);
		return 0;
	} else {
		err = len == (ssize_t)sizeof(p) && n == 1 ? batch_open(e, &p, fds[0]) : -EPROTO;
	}
	for (i = 0; i < n; i++)
		os_close(fds[i]);
	if (err == -EPROTO)
		rds_warn_once("messages that a process has left for an RDS socket cannot be read, and are dropped: use "
			      "the same librdspreload.so for all processes of the host");
	return err == -EPROTO ? 0 : err;
}

/* Every process that could become the owner has this open file, and can clear the flag. */
static void mailbox_set_nonblock(int mailbox)
{
	int flags = os_fcntl(mailbox, F_GETFL, 0);

	if (flags >= 0 && !(flags & O_NONBLOCK))
		os_fcntl(mailbox, F_SETFL, flags | O_NONBLOCK);
}

/*
 * Takes a limited number of connections. Senders that ask the registry do not connect any more, so
 * what comes beyond that is not theirs.
 */
int rds_mailbox_empty(int mailbox, struct rds_sock *sk)
{
	struct emptying e = {.sk = sk};
	struct registry_mailbox has;
	unsigned most = BACKLOG + 1; /* so many the kernel queues for this backlog */
	int fd = 0, err = 0;

	registry_sock_mailbox(rds_node_registry, sk->reg_idx, &has);
	e.room = has.rcvbuf;
	sk->port_kept = false;
	mailbox_set_nonblock(mailbox);
	while (most) {
		fd = os_accept4(mailbox, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd == -EINTR || fd == -ECONNABORTED)
			continue;
		if (fd < 0)
			break;
		most--;
		if (!err)
			err = batch_take(&e, fd);
		os_close(fd);
	}
	if (!err && fd < 0 && fd != -EAGAIN)
		err = fd;
	registry_sock_mailbox_clear(rds_node_registry, sk->reg_idx);
	return err;
}

/* ---- a sender's side; control and the connection's tx held ---- */

/* The ports of one connection that have been handled; empty between two uses. control held. */
static struct rds_port_set seen RDS_TABLE;

/* The next message for the port; NULL if there is none, or if it belongs to an operation. */
static struct rds_queue_item *queued_next_for(struct rds_queue_item *q, uint16_t port)
{
	while (q && q->u.dport != port)
		q = q->next;
	return q && !q->op && !rds_queue_item_is_piece(q) ? q : NULL;
}

/*
 * Older messages may be on their way to the last owner. True also if a lock is not free, since this
 * may be the _exit() of a signal handler.
 */
static bool mailbox_older_underway(const struct rds_conn *unrouted, const struct rds_queue_item *q)
{
	struct rds_conn *conn;
	bool has = false;

	for (conn = rds_conn_list; conn && !has; conn = conn->next) {
		if (!rds_conn_between(conn, &unrouted->id))
			continue;
		if (!rds_trylock(&conn->tx))
			return true;
		has = rds_queue_has_port(conn, q->u.dport, q->u.sock);
		rds_unlock(&conn->tx);
	}
	return has;
}

struct delivery {
	struct rds_mailbox_batch p;
	uint32_t weight;
	int file;
};

static int batch_write(const struct rds_conn *unrouted, uint16_t port, int64_t room, struct delivery *d)
{
	struct rds_queue_item *q = unrouted->queue;
	struct rds_mailbox_batch *p = &d->p;
	int file = d->file, err = 0;
	uint32_t sock = 0;
	off_t size = 0;

	for (; d->weight <= room && (q = queued_next_for(q, port)); q = q->next) {
		struct rds_share_message m = {
			.saddr = unrouted->id.laddr, .sport = q->hdr.sport, .tos = unrouted->id.tos, .len = q->hdr.len};

		if (p->n_messages && q->u.sock != sock)
			break; /* it may be for another socket of the port */
		sock = q->u.sock;
		if (q->hdr.ext_type == RDS_EXTHDR_RDMA_DEST)
			m.cookie = rds_cookie(q->hdr.ext_rkey, q->hdr.ext_offset);
		err = os_file_append(file, &size, &m, sizeof(m));
		if (!err)
			err = os_file_append(file, &size, q->data, m.len);
		if (err)
			break; /* a batch of those before it, which are whole */
		p->n_messages++;
		p->size = (uint64_t)size;
		d->weight += mailbox_weight(m.len);
	}
	if (err == -EFBIG)
		rds_warn_once("a message for an RDS socket without an owner cannot be left for it, because that takes "
			      "a file in memory: raise the limit of file sizes (ulimit -f)");
	if (!p->n_messages)
		return err;
	return os_fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
}

/*
 * The registry's lock is held, but may be lost if this process is stopped. A process that takes the
 * socket over after that either finds the connection with the batch in it, or shuts the connection
 * down before the batch comes, and then the send fails.
 */
static int batch_deliver(const struct rds_procid *name, void *arg)
{
	struct delivery *d = arg;
	int fd = mailbox_socket(name, false), err;

	if (fd < 0)
		return fd;
	if (!registry_lock_is_ours(rds_node_registry))
		err = -EAGAIN;
	else
		err = mailbox_peer_trusted(fd) ? os_pass_send(fd, &d->p, sizeof(d->p), &d->file, 1, MSG_DONTWAIT)
					       : -EPERM;
	os_close(fd);
	return err;
}

/* Does the port belong to a socket that no process owns? */
static bool port_is_orphan(const struct rds_conn *unrouted, uint16_t port, struct registry_mailbox *mailbox)
{
	struct registry_owner own;

	if (!port || registry_lookup(rds_node_registry, &unrouted->id.faddr, port, unrouted->id.scope, &own) ||
	    own.proc != REGISTRY_NOBODY)
		return false;
	registry_sock_mailbox(rds_node_registry, own.sock, mailbox);
	return true;
}

/*
 * Delivers the messages for the port that are queued before an operation, as far as there is room.
 * Returns their number.
 */
static uint32_t mailbox_deliver_port(const struct rds_conn *unrouted, uint16_t port)
{
	struct delivery d = {.p = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION}};
	struct rds_queue_item *q = queued_next_for(unrouted->queue, port);
	struct registry_mailbox has;
	int err;

	if (!q || !port_is_orphan(unrouted, port, &has) || rds_queue_item_outlived(unrouted, q) ||
	    mailbox_older_underway(unrouted, q))
		return 0;
	if (has.mailbox_bytes > has.rcvbuf) {
		rds_warn_once("an RDS socket without an owner has more messages waiting than its SO_RCVBUF: the rest "
			      "waits with its sender");
		return 0;
	}
	d.file = os_memfd("rds batch", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (d.file < 0)
		return 0;
	err = batch_write(unrouted, port, (int64_t)has.rcvbuf - has.mailbox_bytes, &d);
	if (err >= 0)
		err = registry_orphan_act(rds_node_registry, &unrouted->id.faddr, port, unrouted->id.scope,
					  has.mailbox_bytes, d.weight, batch_deliver, &d);
	os_close(d.file);
	return err >= 0 ? d.p.n_messages : 0;
}

/* Moves the n messages that were delivered from the queue to the end of a list. */
static struct rds_queue_item **mailbox_unqueue(struct rds_conn *unrouted, uint16_t port, uint32_t n,
					       struct rds_queue_item **tail)
{
	struct rds_queue_item **link = &unrouted->queue, *q;

	while (n) {
		q = *link;
		if (q->u.dport != port) {
			link = &q->next;
			continue;
		}
		n--;
		*link = q->next;
		unrouted->queue_len--;
		q->next = NULL;
		*tail = q;
		tail = &q->next;
	}
	while (*link)
		link = &(*link)->next;
	unrouted->queue_tail = link;
	return tail;
}

struct rds_queue_item *rds_mailbox_deliver(struct rds_conn *unrouted)
{
	struct rds_queue_item *q, *gone = NULL, **tail = &gone;
	uint32_t n;

	for (q = unrouted->queue; q;) {
		n = rds_port_set_add(&seen, q->u.dport) ? mailbox_deliver_port(unrouted, q->u.dport) : 0;
		if (!n) {
			q = q->next;
			continue;
		}
		tail = mailbox_unqueue(unrouted, q->u.dport, n, tail);
		q = unrouted->queue; /* the old q is in the other list now */
	}
	for (q = unrouted->queue; q; q = q->next)
		rds_port_set_del(&seen, q->u.dport);
	for (q = gone; q; q = q->next)
		rds_port_set_del(&seen, q->u.dport);
	return gone;
}

void rds_mailbox_deliver_all(void)
{
	struct rds_queue_item *q, *gone;
	struct rds_conn *conn;

	rds_lock(&rds_lock_control);
	for (conn = rds_conn_list; conn; conn = conn->next) {
		if (conn->kind != RDS_CONN_UNROUTED)
			continue;
		rds_lock(&conn->tx);
		gone = rds_mailbox_deliver(conn);
		rds_unlock(&conn->tx);
		while ((q = gone)) {
			gone = q->next;
			rds_queue_unacked_release(&q->u);
			rds_queue_item_free(q);
		}
	}
	rds_unlock(&rds_lock_control);
}
