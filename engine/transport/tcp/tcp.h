/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * tcp.h - what the files of this package share.
 */
#ifndef ENGINE_TRANSPORT_TCP_TCP_H
#define ENGINE_TRANSPORT_TCP_TCP_H

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/helper/helper.h"
#include "engine/sys/compiler.h"
#include "engine/sys/lock_order.h"
#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "engine/sys/patience.h"
#include "engine/sys/poll_eventfd.h"
#include "engine/transport/batch_when.h"
#include "engine/transport/tcp/tcp_transport.h"
#include "engine/transport/transport.h"
#include "engine/trunk/trunk.h"
#include "engine/wire/addr.h"
#include "engine/wire/header.h"

/* ---- stream.c: from the bytes of a stream to messages ---- */

/* Memory that several streams have together for their blocks. */
struct tcp_budget {
	size_t held, most;
	bool wanted; /* somebody has got none since it was set to false */
};

/*
 * What has arrived of the next message.  A message that is not complete has a block of its own, so a
 * peer that begins one and stops holds as much memory as it has named, RDS_MAX_MSG at most.
 */
struct tcp_in {
	struct tcp_budget *budget; /* for blocks that begin from now on; NULL: no limit */
	struct tcp_budget *from;   /* ... for the one that there is */
	uint64_t since;		   /* with `from`: when it began */
	struct rds_hdr hdr; /* with `block`, or a message of length 0 that was refused */
	unsigned char *block;
	uint32_t have; /* bytes in `block` */
	uint32_t nraw;
	unsigned char raw[RDS_WIRE_HDR]; /* `nraw` bytes of a header */
};

/* Gives a message away.  False: not now, the same is offered again. */
typedef bool tcp_stream_give(void *arg, struct rds_rx *rx);
/*
 * Takes the next bytes of the stream.  0: all of them; -EAGAIN: the first *used, the rest has to be
 * offered again (no memory, or refused); -EBADMSG: this is no stream of messages.
 */
int tcp_stream_take(struct tcp_in *in, const unsigned char *bytes, size_t n, tcp_stream_give *give, void *arg,
		    size_t *used);
/* Where further bytes of the message go that is not complete.  Returns how many fit there. */
size_t tcp_stream_room(const struct tcp_in *in, unsigned char **to);
void tcp_stream_filled(struct tcp_in *in, size_t n); /* so many have been written there */
/* Bytes that are still to come of the message at hand; *of_header: of its header. */
uint64_t tcp_stream_missing(const struct tcp_in *in, uint64_t *of_header);
void tcp_stream_reset(struct tcp_in *in);
/* Is there less than the longest message needs? */
static inline bool tcp_stream_is_short(const struct tcp_in *in)
{
	return in->budget && in->budget->held + RDS_MAX_MSG > in->budget->most;
}

/* ---- out.c: messages on their way out ---- */

/* A piece of the stream that we send: whole messages, one behind the other, each in one piece. */
struct tcp_block {
	struct tcp_block *next;
	uint32_t size, used;
	unsigned char mem[];
};

struct tcp_out {
	struct tcp_block *first, *last;
	/* acknowledged, the last one first; tcp_out_acked() frees none: a signal may have interrupted malloc() */
	struct tcp_block *done;
	size_t kept; /* bytes of these */
	/* where the oldest message that is not acknowledged begins, in `first` */
	uint32_t at;
	uint64_t acked;		    /* the same as an offset in the stream */
	_Atomic uint64_t acked_seq; /* the highest number before it */
	struct tcp_block *next;	    /* the block with the first byte that the kernel has not taken, */
	uint32_t next_at;	    /* ... and where */
	_Atomic uint64_t written;   /* that as an offset in the stream */
	uint64_t queued;	    /* the end */
};

/* Room for a message behind the others, or NULL. */
unsigned char *tcp_out_add(struct tcp_out *out, size_t len);
/* The next bytes to send: how many of iov, at most `most`. */
unsigned tcp_out_next(const struct tcp_out *out, struct iovec *iov, unsigned most);
void tcp_out_written(struct tcp_out *out, size_t n);
/* The peer has so many bytes of the stream.  Also in a signal handler. */
void tcp_out_acked(struct tcp_out *out, uint64_t bytes);
void tcp_out_rest(struct tcp_out *out); /* frees what is kept for later */
void tcp_out_free(struct tcp_out *out);

/* ---- fds.c: our descriptors in both tables ---- */

struct tcp_fd {
	struct os_fd fd;
	struct rds_deferred_call ask;	/* a thread of the program had no number */
	struct rds_deferred_call close; /* of the program's number, and back */
	/* helper: what that thread wanted to do; or all has been closed that can be.  NULL: nothing */
	void (*serve)(struct tcp_fd *f);
	_Atomic bool wanted, exporting;
	_Atomic unsigned nmissed;
	bool exported; /* helper: the program has a number, or may get one */
};

void tcp_fd_init(struct tcp_fd *f, void (*serve)(struct tcp_fd *f));
int tcp_fd_missing(struct tcp_fd *f);
/*
 * The number in this thread's table.  -1: there is none, and the helper has been asked to serve.  Any
 * thread that keeps it from being closed, and does not hold the list of internal descriptors.
 */
static inline int tcp_fd_here(struct tcp_fd *f)
{
	int fd = os_fd(&f->fd);

	return likely(fd >= 0) ? fd : tcp_fd_missing(f);
}
/* Helper.  No thread of the program uses it any more. */
void tcp_fd_close(struct tcp_fd *f);
bool tcp_fd_is_free(const struct tcp_fd *f); /* helper; else `serve` comes, or has yet to be called */

/* ---- endpoints ---- */

enum tcp_ep_state {
	TCP_EP_CONNECTING, /* our request is on its way */
	TCP_EP_WAITING,	   /* the peer has been asked to connect */
	TCP_EP_SILENT,	   /* connected; the peer may still refuse, until it sends something */
	TCP_EP_UP,
	TCP_EP_BROKEN,
	TCP_EP_CLOSED,
};

struct tcp_ep {
	struct rds_ep_head head;
	struct rds_conn_id id;
	struct tcp_ep *next; /* of all; helper */
	struct tcp_fd sock;
	uint16_t lport, fport; /* since it is up */
	_Atomic int state; /* enum tcp_ep_state; to UP and CLOSED under rx */
	_Atomic int why;   /* of BROKEN: the first reason, but nonsense counts more */
	bool over;	   /* helper: up->down was called, or close() */
	bool kept;	   /* helper */
	bool watched;	   /* helper: `event` is in the helper's set */
	bool in_sets;	   /* rx */
	struct rds_helper_event event;
	struct rds_timer deadline, broken, room;
	uint64_t down_pause; /* helper: broken, and some of what has arrived is refused: between two tries */
	/* helper: when the peer was last told that another connection was refused (rules.c) */
	uint64_t asked_at;
	uint64_t poked_since, heard_then;
	unsigned pokes;

	/* rx */
	struct tcp_in in;
	struct tcp_ep *ready_next;
	bool ready;	     /* in the list of those that may have input */
	bool at_end;	     /* reads go on until the end, or an error */
	bool large;	     /* the last message was */
	bool paused;	     /* what it has got was refused: after a while */
	bool spoke;	     /* it has sent a whole message */
	uint64_t refused_since; /* 0: what it has got last was not */
	bool given_up;		/* what it has sent, and is refused, is dropped (pressure.c) */
	_Atomic bool wanted; /* a message of the program's was sent to it */
	uint64_t heard;	     /* bytes received */
	unsigned char *left; /* a receive buffer with bytes that could not be handled, [left_at, left_end) */
	size_t left_at, left_end;

	/* kept.c: what the socket brings goes there; NULL: nowhere (rx) */
	struct rds_trunk *trunk;
	uint32_t carrier; /* helper: the socket's number there; 0: none */
	bool windowed;	  /* rx: all of it does, from now on */

	/* conn->tx */
	struct tcp_out out;
	/* bytes that were acknowledged before our end was sent, which counts as one that is not */
	_Atomic uint64_t acked_before_end;
	_Atomic bool backlog; /* the kernel takes no more: push when there is room */
	_Atomic bool wants_room;
	unsigned marks;		    /* the next writes are marked (ack.c) */
	uint64_t marked;	    /* up to here */
	_Atomic uint64_t room_seen; /* bytes that were acknowledged when it was set */
	unsigned room_pause;	    /* rx */
	/* conn->tx: small messages that wait for others (transport/batch_when.c) */
	bool held;
	struct rds_transport_batch batch;
};

struct tcp_listener {
	struct tcp_listener *next;
	struct rds_helper_event event;
	struct rds_timer again; /* accepting was given up for a while */
	_Atomic int fd;
	struct in6_addr laddr;
	uint32_t scope;
};

struct tcp_state {
	uint16_t port;
	/* control; the list grows only, read in the helper */
	struct tcp_listener *_Atomic listeners;
	struct tcp_ep *all; /* helper */
	/* wake.c: sockets that may have input, and behind an event of `out_set` room for output */
	_Atomic bool has_sets;
	struct tcp_fd set, out_set;
	/* rx: the helper is to watch `set`, and does; the leader sleeps where the kernel wakes it */
	bool helper_hears, helper_watches, relayed;
	struct rds_deferred_call hear;
	/* rx: endpoints in the sets, and the one if there is no other */
	unsigned nup;
	struct tcp_ep *only;
	struct rds_helper_event event;
	struct os_poll_eventfd relay;
	/* recv.c; rx */
	struct tcp_ep *ready, **ready_tail;
	unsigned passes;	 /* since the sets were looked at */
	struct rds_timer resume; /* for those that are paused */
	struct tcp_budget strangers; /* of endpoints that are not `wanted` */
	unsigned char *buf;
};

extern struct tcp_state rds_tcp_state;

/* sock.c: sockets and their options.  A descriptor or -errno */
int tcp_sock_listen(const struct in6_addr *laddr, uint32_t scope);
/* One to connect to that peer. */
int tcp_sock_new(const struct rds_conn_id *id);
/* 0, or -EINPROGRESS */
int tcp_sock_connect(int fd, const struct rds_conn_id *id);
/* The options of one that carries messages: 0 or -errno */
int tcp_sock_prepare(int fd);
int tcp_sock_addr(int fd, bool peer, struct rds_addr *addr);
/* The peer sees that it was refused: no orderly end. */
void tcp_sock_refuse(int fd);
int tcp_sock_error(int fd);

/* endpoint.c; helper, unless a comment says otherwise */
struct tcp_ep *tcp_ep_new(const struct rds_conn_id *id, struct rds_conn *conn);
void tcp_ep_discard(struct tcp_ep *ep);	      /* the engine does not know it */
int tcp_ep_set_fd(struct tcp_ep *ep, int fd); /* takes it, also if it fails */
static inline int tcp_ep_fd(const struct tcp_ep *ep) /* the helper has the number */
{
	return os_fd(&ep->sock.fd);
}
void tcp_ep_close_fd(struct tcp_ep *ep);
int tcp_ep_watch(struct tcp_ep *ep, uint32_t events); /* by tcp_connect_event() */
void tcp_ep_unwatch(struct tcp_ep *ep);
void tcp_ep_up(struct tcp_ep *ep);
void tcp_ep_down(struct tcp_ep *ep, int why);
void tcp_ep_broken(struct tcp_ep *ep, int why); /* any thread */
void tcp_ep_hang_up(struct rds_ep *ep);
void tcp_ep_close(struct rds_ep *ep);
void tcp_ep_keep(struct rds_ep *ep, bool on);

/* connect.c; helper */
int tcp_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, struct rds_received here,
		struct rds_ep **out);
void tcp_connect_event(struct rds_helper_event *ev, uint32_t events);
void tcp_connect_deadline(struct rds_timer *tm);

/* listen.c.  control; a thread with the helper's table */
int tcp_listen_claims(struct rds_transport *t, const struct in6_addr *laddr, uint32_t scope);

/* rules.c; helper.  Takes the descriptor of a connection that a peer has made. */
void tcp_rules_accepted(int fd, const struct tcp_listener *l);
static inline bool tcp_is_smaller(const struct in6_addr *a, const struct in6_addr *b)
{
	return memcmp(a, b, sizeof(*a)) < 0;
}

/* send.c; conn->tx */
int tcp_send(struct rds_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len, uint64_t *pos);
void tcp_flush(struct rds_ep *ep, bool service);
void tcp_push(struct rds_ep *ep);
void tcp_rest(struct rds_ep *ep);
const void *tcp_retained(struct rds_ep *ep, uint64_t pos);
void tcp_describe(struct rds_ep *ep, struct rds_ep_tcp *out);

/* ack.c */
struct tcp_ack_mark {
	_Alignas(struct cmsghdr) unsigned char bytes[CMSG_SPACE(sizeof(uint32_t))];
};
uint64_t tcp_acked(struct rds_ep *ep);
bool tcp_want_room(struct rds_ep *ep, uint64_t seen_ack);
/*
 * Bytes of the stream that the peer's TCP has acknowledged; 0: not known.  Any thread that keeps the
 * socket from being closed.  What is written meanwhile counts as not acknowledged.
 */
uint64_t tcp_ack_bytes(struct tcp_ep *ep);
void tcp_ack_enable(int fd);
/* conn->tx: is the next write to be marked? */
void tcp_ack_mark(struct tcp_ep *ep, struct msghdr *msg, struct tcp_ack_mark *mark);
void tcp_ack_event(struct tcp_ep *ep);	   /* rx: a marked write has been acknowledged */
void tcp_room_look(struct tcp_ep *ep);	   /* rx: the socket may have got an acknowledgement */
void tcp_room_timer(struct rds_timer *tm); /* helper */

/* recv.c; rx */
bool tcp_progress(struct rds_transport *t);
void tcp_recv_ready(struct tcp_ep *ep, bool at_end);
void tcp_recv_now(struct tcp_ep *ep);  /* some of what is there, or the end */
bool tcp_recv_last(struct tcp_ep *ep); /* all that is there, or was left; false: some of it is refused */
void tcp_recv_drop(struct tcp_ep *ep);
bool tcp_recv_awaits(void); /* there is input that can be taken */
/* for kept.c: a message; what is no message; nothing more is taken for a while */
bool tcp_recv_give(void *arg, struct rds_rx *rx);
void tcp_recv_nonsense(struct tcp_ep *ep);
void tcp_recv_pause(struct tcp_ep *ep);

/* kept.c.  keep: helper; the endpoint has that socket.  in_use and the next two: rx, and only with a trunk. */
void tcp_kept_keep(struct tcp_ep *ep, int fd);
bool tcp_kept_in_use(struct tcp_ep *ep);
bool tcp_kept_parse(struct tcp_ep *ep); /* false: nothing more is to be received now */
ssize_t tcp_kept_read(struct tcp_ep *ep, size_t *asked);
void tcp_kept_end(struct tcp_ep *ep); /* rx */
void tcp_kept_begin(struct rds_ep *ep);
int tcp_kept_brought(int fd, struct rds_trunk_brought *out);
int tcp_kept_adopt(struct rds_transport *t, const struct rds_conn_id *id, int fd, struct rds_trunk *trunk,
		   uint32_t carrier);

/* pressure.c; helper */
void tcp_pressure_memory(void); /* rx: strangers need memory */
void tcp_pressure_place(void);	/* a stranger has no place */

/* wake.c */
int tcp_wake_open(void);	      /* control; a thread with the helper's table */
int tcp_wake_add(struct tcp_ep *ep);  /* rx; helper */
void tcp_wake_del(struct tcp_ep *ep); /* rx; helper */
void tcp_wake_moved(struct tcp_ep *ep, int oldfd, int newfd);
bool tcp_wake_look(void); /* rx: events become ready endpoints.  True: any */
void tcp_wake_attention(struct rds_transport *t, enum rds_attention who);
bool tcp_wake_pending(struct rds_transport *t);

#endif
