/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * verbs.h - the verbs transport inside: devices, endpoints, and who may touch what.
 *
 * A message is cut into *frames*: a SEND of a 48-byte RDS header and at most caps.frame bytes each (rds-semantics 12.5, with larger
 * slices; both sides say when they connect how much they take).  Several small ones may share a frame, header and bytes of each behind
 * the last one's, at the next multiple of VERBS_ALIGN; acknowledgement and credits are in the first header.
 * Received frames land in one shared receive queue per device; where a frame without a buffer ends the connection (caps.credits), each
 * connection has a queue of its own, with buffers of two sizes, and a frame goes in *segments* that fit what lies there.
 *
 * README.md lists the files, docs/verbs-states.md all states and events of connecting and closing.
 *
 * Threads and locks.  cm, connect, listen, endpoint, rendezvous, port_query, keepalive, async_event: helper only (claims(): a program's thread, control held, once per device,
 * before the helper knows of it).  Send side of an endpoint: conn->tx.  Completion queues, receive side, table of queue pairs, device
 * state: rx.  Fields say which.  Every descriptor is the program's table's: this transport needs a helper that shares it.
 */
#ifndef VERBS_VERBS_H
#define VERBS_VERBS_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/helper/helper.h"
#include "engine/node/registry.h"
#include "engine/node/stats.h"
#include "engine/sys/compiler.h"
#include "engine/sys/fence.h"
#include "engine/sys/lock_order.h"
#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/sys/process.h"
#include "engine/transport/transport.h"
#include "engine/wire/addr.h"
#include "engine/sys/patience.h"
#include "engine/sys/poll_eventfd.h"
#include "engine/transport/verbs/libs.h"
#include "engine/transport/verbs/cm.h"
#include "engine/transport/verbs/private_data.h"

/*
 * Payload of a frame, at most.  What it costs goes by packets and by frames, what it takes is a receive buffer, however little of it is used:
 * one of 64 KiB fits, or eight of 8 KiB with a header each.  (Between two hosts that lose packets 2 of 10 runs once came to a standstill with
 * it; performance.md says what is known of that.)
 */
#define VERBS_FRAME 8192u /* in which the option counts buffers, and messages that share a frame have room */
#define VERBS_FRAME_SHARED (65536u + 448u)
#define VERBS_HDR RDS_WIRE_HDR
#define VERBS_ALIGN(n) (((n) + 7u) & ~7u)
#define VERBS_BUF(frame) ((frame) + 64u) /* a receive buffer; frame at its start */
#define VERBS_BUF_SMALL 192u		 /* a small receive buffer (caps.credits), all of it: part of the protocol */
#define VERBS_OWN 3u			 /* ... of which each endpoint always has so many */
#define VERBS_RQ 64u			 /* receives in an endpoint's own queue */
#define VERBS_KNOWN 256u		 /* ... that a peer may have told us of */
#define VERBS_MARK 8u			 /* bytes, all ones, before each segment but the first */
#define VERBS_SQ 256u /* one less of a queue pair: soft RoCE adds one, and makes that a power of two */
#define VERBS_POST_LIST 16u
#define VERBS_SQ_RESERVE 4u	   /* for what is said without a message: acknowledgements, credits, keepalive */
#define VERBS_QPS 4096u		   /* buckets */
#define VERBS_WR_SEND (1ull << 63) /* wr_id of a send: | ep->wr_posted as of then; of a receive: the buffer's index */

/* ---- registered memory (send_memory.c) ---- */

struct verbs_dev;
/* Memory for one message on its way out: header room first (48 bytes per frame), then the payload in one piece. */
struct verbs_block {
	struct verbs_chunk *chunk;
	unsigned char *mem;
	uint32_t size;
	uint32_t lkey;
};
struct verbs_arena;
/* Any lock may be held; it has one of its own.  -ENOMEM: nothing left below the limit (wait for acknowledgements), or (logged) memlock. */
int verbs_arena_new(struct verbs_dev *dev, struct verbs_arena **out);
int verbs_block_get(struct verbs_arena *a, size_t size, struct verbs_block *out);
/* For a header that the device does not copy, whatever the limit; there is some from verbs_arena_reserve_headers() on. */
int verbs_arena_reserve_headers(struct verbs_arena *a);
int verbs_block_get_header(struct verbs_arena *a, struct verbs_block *out);
int verbs_block_get_redirect(struct verbs_arena *a, size_t size,
			     struct verbs_block *out); /* ... for a message of conn/port_moved.c */
void verbs_block_put(struct verbs_arena *a, struct verbs_block *b);
/* ... of a kind of which many are out now and then, and few otherwise: memory that is not used any more goes, too. */
void verbs_block_shed(struct verbs_arena *a, struct verbs_block *b);
/* Has anybody found it used up since the last call? */
bool verbs_arena_was_short(struct verbs_arena *a);
void verbs_arena_free(struct verbs_arena *a); /* every block has been given back */
/* Page-aligned memory that no child shares, registered; NULL + *err. */
void *verbs_mem_register(struct verbs_dev *dev, size_t len, int access, struct ibv_mr **mr, int *err);
/* That failed for good: if memory is the cause, how much was wanted and what can be done, once for each device. */
void verbs_memlock_help(struct verbs_dev *dev, int err, const char *what, size_t len);
bool verbs_memlock_short(int err);
#define VERBS_LIMIT 192
const char *verbs_memlock_limit(char text[VERBS_LIMIT]); /* ... and how to raise it */
/* What queues take of locked memory an entry, about: each driver has its own. */
#define VERBS_CQ_ENTRY 64u
#define VERBS_SRQ_ENTRY 32u
#define VERBS_SQ_ENTRY 128u
void verbs_mem_release(void *mem, size_t len, struct ibv_mr *mr);

/* ---- devices (device.c) ---- */

/* What a device is like, found out once; nowhere else is asked what kind it is. */
struct verbs_caps {
	bool credits; /* cannot make a sender wait (no RNR): a frame without a receive buffer ends the connection */
	bool initiator_first; /* the side that connected sends first, the other is silent until then */
	bool late_receive; /* what comes just after its yes to a request may be noticed only when more comes (endpoint.c: ep_urge) */
	bool loses_listener;   /* its ports are TCP's, and it may cease to listen without a word (listen_lost.c) */
	bool sink_needs_write; /* (RDMA) */
	bool probe_reads; /* a write is complete before it has arrived: only a read says that the peer's device is there */
	bool connect_blocks; /* rdma_connect may wait for the peer; until it is answered, destroying the id waits, too */
	bool rnr, timeouts; /* the queue pair has these attributes */
	bool sigpipe;	    /* a post may raise SIGPIPE in the thread that makes it */
	bool fence_bars_reads; /* a request with a fence that has to be sent again waits for the reads behind it, and they for it */
	uint32_t signal_from; /* requests of so many bytes cost less if they ask for a completion */
	uint32_t max_inline; /* asked for; an endpoint has what it got */
	uint32_t frame;	     /* payload that it takes in one, bytes */
	uint32_t sq, srq;    /* depths */
	uint32_t rd_atomic;
};

enum verbs_armed { VERBS_UNARMED, VERBS_SOLICITED, VERBS_ALL };

struct verbs_buf {
	struct verbs_buf *next;
	unsigned char *mem;
	uint32_t index;
	uint32_t lkey;
	uint32_t len;	     /* received */
	uint32_t at;	     /* the next message of it */
	uint32_t users;	     /* messages in place, and one as long as not all of it has been taken */
	struct verbs_ep *ep; /* handed to the engine in place, or waiting in ep->later; lent: whose queue it is in */
	uint32_t turn;	     /* credit_buffers.c: so often it was lent: a completion of another time is none */
	bool large, in_rq;
	bool heap; /* no receive buffer, but what was put together of several (segment.c), or a copy that waits (recv.c) */
};

/* What peers read, and where what is read of theirs goes. */
struct verbs_probed {
	unsigned char ours[64], theirs[64];
};

struct verbs_dev {
	struct verbs_dev *next;
	struct ibv_context *ctx, *cm_ctx; /* ours; librdmacm's */
	char name[64];
	struct verbs_caps caps;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct verbs_arena *arena;
	struct rds_helper_event comp_ev, async_ev;
	struct rds_timer starved; /* no receive buffer could be posted, no memory for what came: again */
	struct rds_timer low;	  /* receive buffers ran low: be told the next time, too */
	struct rds_timer memory;  /* no block could be had: look who can give some back */
	unsigned memory_looks;	  /* ... and so often again (helper) */
	struct rds_timer leave;	  /* it is gone: free it, when nobody uses it any more */
	bool helped;		  /* the log has said what to do about memory */
	/* rx */
	unsigned char *recv_mem;
	size_t recv_len;
	struct ibv_mr *recv_mr;
	struct verbs_buf *bufs, *refill; /* to be posted */
	struct verbs_recv_mem *grown;	 /* more of it, for more connections (caps.credits) */
	uint32_t base;			 /* ... counted as the option does, before any growth */
	uint32_t nbufs, posted, nrefill;
	/* credit_buffers.c: those that nobody has; large ones that there are; small ones that endpoints have not got of those that are theirs */
	struct verbs_buf *small, *large;
	uint32_t nsmall, nlarge, all_large, small_reserved;
	unsigned char *mark;	 /* VERBS_MARK, registered with recv_mr */
	struct verbs_probed *probed; /* keepalive.c; NULL: nothing is read */
	struct ibv_mr *probed_mr;
	struct verbs_ep *credit_wait; /* credit.c: something has come, so buffers may be due */
	bool urgent;		 /* ... and are not to be waited for */
	_Atomic bool full; /* the log has said so */
	enum verbs_armed armed;
	bool helper_deaf;	/* the helper does not hear of completions: whoever sleeps does, through the relay */
	struct os_poll_eventfd relay; /* from the channel to the engine's relay_fd */
	unsigned unacked_events;
	struct ibv_wc stash[16]; /* polled by pending(), not yet looked at */
	unsigned nstash, stash_at;
	_Atomic bool dead; /* DEVICE_REMOVAL, DEVICE_FATAL: no endpoint may use it (written by the helper, under rx) */
	_Atomic uint32_t sq_each; /* work requests that an endpoint may have under way: completions share a queue */
	/* helper */
	unsigned neps;	 /* who uses it: endpoints until they are freed, locates with a queue pair */
	bool says_last;	 /* it has said of a queue pair in error that no receive of its is left (LAST_WQE_REACHED) */
	unsigned silent; /* ... or not, so often, where that was waited for */
	struct rdma_cm_id
		*_Atomic hold_id; /* as long as there is an id, librdmacm keeps ctx open; hears of its removal */
	bool removed; /* the holder has heard so */
	struct verbs_cm_owner owner;
};

/* Find or make the device of an id that is bound; one that has an owner gets our context. Control held, or helper. */
int verbs_dev_get(struct rdma_cm_id *cm, struct verbs_dev **out);
/* ... which has room for what another endpoint may have under way, and is to be used by it at once; -ENOBUFS. Helper. */
int verbs_dev_get_roomy(struct rdma_cm_id *cm, struct verbs_dev **out);
bool verbs_dev_has_id(const struct verbs_dev *dev, const struct rdma_cm_id *cm);
void verbs_dev_restore_ctx(struct rdma_cm_id *cm);   /* helper: it may outlive our device */
bool verbs_dev_owns_id(const struct rdma_cm_id *cm); /* helper: its context is ours, not librdmacm's */
void verbs_dev_forget(void);
void verbs_dev_share_cq(struct verbs_dev *dev);		  /* helper: how many endpoints use it has changed */
uint32_t verbs_dev_sq_depth(const struct verbs_dev *dev); /* of the send queue of another endpoint (helper) */
/* A block was not to be had: have room looked for. Any lock but timers'. */
void verbs_dev_want_memory(struct verbs_dev *dev);
/* Helper; no endpoint is left: nobody finds it any more / freed. */
void verbs_dev_unlink(struct verbs_dev *dev);
void verbs_dev_free(struct verbs_dev *dev);

/* ---- receive buffers (recv_buffers.c) ---- */

void verbs_bufs_init(struct verbs_dev *dev);		/* a new device's timers */
uint32_t verbs_bufs_initial(const struct verbs_dev *dev); /* how many are asked for at first; */
uint32_t verbs_bufs_max(const struct verbs_dev *dev);	  /* ... how many there may be one day */
int verbs_bufs_new(
	struct verbs_dev *dev); /* as many as may be locked, down to the fewest that make sense; -errno, logged */
void verbs_bufs_free(struct verbs_dev *dev);
void verbs_bufs_arm_limit(struct verbs_dev *dev);		  /* the device is to say when they run low */
void verbs_bufs_low(struct verbs_dev *dev);			  /* helper: it says so */
void verbs_buf_put(struct verbs_dev *dev, struct verbs_buf *buf); /* rx: to be posted, with the next refill */
void verbs_bufs_refill(struct verbs_dev *dev);			  /* rx: post what has come back, in batches */
void verbs_bufs_retry_later(struct verbs_dev *dev); /* rx: have the helper look soon, something found no memory */
/* helper: more small ones, `fewest` at least; -ENOBUFS: they would be too many, -errno */
int verbs_bufs_grow(struct verbs_dev *dev, uint32_t fewest);

/* credit_buffers.c; rx */
bool verbs_credit_buf_reserve(
	struct verbs_ep *ep); /* VERBS_OWN small ones are its own from now on.  False: there are not enough */
void verbs_credit_buf_unreserve(struct verbs_ep *ep);
bool verbs_credit_buf_post(struct verbs_ep *ep,
			   bool large); /* one is posted.  False: there is none for it, or the device has no room */
struct verbs_buf *verbs_credit_buf_completed(struct verbs_dev *dev, uint64_t wr_id); /* NULL: of another time */
void verbs_credit_buf_put(struct verbs_dev *dev, struct verbs_buf *buf);
void verbs_credit_buf_put_all(struct verbs_ep *ep); /* its queue pair is gone */
bool verbs_credit_buf_may_stay(const struct verbs_dev *dev, const struct verbs_buf *buf, uint32_t len);

/* ---- endpoints ---- */

enum verbs_state {
	VERBS_RESOLVING,  /* address, then route */
	VERBS_CONNECTING, /* request sent, or accepted and not yet established */
	VERBS_UP,	  /* up->up has been called */
	VERBS_BROKEN,	  /* the helper is about to say so */
	VERBS_CLOSED,	  /* queue pair in error, waits for what is still in flight */
};

/* A message (or, with seq 0, something that no acknowledgement covers) whose bytes must stay. */
struct verbs_out {
	struct verbs_block block;
	uint64_t seq;
	uint32_t len;		 /* payload */
	uint32_t wr_end;	 /* all of it has been sent when so many work requests have completed */
	uint16_t nframes, given; /* to the chain */
	bool solicited, grants;
	uint32_t frame_sent; /* of the frame whose turn it is, bytes that earlier segments had */
	bool map; /* a congestion map: its block is wanted back as soon as it has gone, every connection begins with one */
	bool pieces; /* a group that begins with a piece of an operation */
	bool resent; /* ... with a message that is sent again */
	bool batch; /* one frame, perhaps of several messages: len is all behind the first header, seq the last one's */
};

struct verbs_ep {
	struct rds_ep_head head;
	struct verbs_dev *dev;
	struct verbs_ep *next, *qp_next; /* all: helper; by number: rx */
	_Atomic enum verbs_state state;	 /* written by the helper (BROKEN: under rx) */
	/* helper */
	struct rds_conn_id id;
	struct verbs_cm_owner owner;
	struct rdma_cm_id *cm;
	struct verbs_attempt *attempt; /* until it is up (cm.c) */
	struct rds_timer deadline;     /* of connecting, of closing */
	struct rds_timer broken;       /* set from anywhere: have the helper break it */
	_Atomic int why;	       /* ... for this reason (-errno; rx) */
	bool initiator;
	bool cm_up;		/* ESTABLISHED has come */
	bool awaited;		/* ... not yet, but a frame has */
	uint64_t peer_ack;	/* for up->up: what the peer has received before */
	struct rds_timer nudge; /* set from anywhere: the helper is to look whether it is up, or to be freed */
	uint64_t urge_ns;	/* ... or the peer to be urged (helper): the time between the last two; 0: not that kind */
	struct verbs_cm_connect call;
	bool cm_busy; /* rdma_connect or rdma_accept, and no answer yet (caps.connect_blocks) */
	bool over;    /* up->down has been called, or will never be */
	uint64_t close_by, close_pause;
	bool expects_last;	   /* closed: its queue pair may have receives of the shared queue; */
	bool last_said;		   /* ... the device has said that it has none left */
	_Atomic bool control_stuck; /* verbs_push could not send what is due: again when something completes */
	_Atomic bool probe_due;	   /* keepalive: have verbs_push send a probe */
	_Atomic bool urge_due;	   /* ... an operation of no bytes behind what it has sent */
	_Atomic bool signal_due; /* memory is short: ... one, if the last that went asked for no completion, and ask */
	_Atomic uint32_t probe_wr;   /* ... and this was the last one; */
	_Atomic uint32_t probe_read; /* ... it is so many reads (caps.probe_reads) */
	struct verbs_window window; /* ... of the peer's memory (caps.probe_reads); before it is up */

	/* send side (tx) */
	struct ibv_qp *qp;
	uint32_t qpn;
	uint32_t sq; /* depth of its send queue */
	uint32_t max_inline;
	uint32_t frame;	      /* payload of a frame that the peer takes */
	bool held;	      /* the last of `out` is a group that waits for more (batch_when.c) */
	_Atomic uint32_t run; /* messages since one has come, or since room was waited for */
	uint32_t run_heard, good;
	int trust, distrust;
	_Atomic bool unattended;	 /* nobody has looked while it was held (rx) */
	_Atomic uint32_t messages_received; /* (rx) */
	_Atomic uint32_t wr_posted;	 /* work requests so far, the chain included; wraps */
	uint32_t wr_unsignaled, bytes_unsignaled;
	struct ibv_send_wr wr[VERBS_POST_LIST]; /* the chain: not yet given to the device (flush) */
	struct ibv_sge sge[VERBS_POST_LIST][2];
	uint32_t nwr_listed;
	struct rds_wire_hdr control_hdr; /* header of what is said without a message, sent inline */
	struct verbs_out *out;	  /* ring of out_cap entries, oldest first */
	uint32_t out_head, out_count, out_cap;
	uint32_t unfinished;	   /* of them, at the end, those of which frames are still to be given to the chain */
	_Atomic bool backlog;	   /* ... because there is no room for them */
	_Atomic bool map_out;	   /* a map has gone; */
	_Atomic uint32_t map_wr;   /* ... with this work request */
	uint32_t frames_numbered;  /* first headers that have gone into the chain */
	uint32_t since_asked;	   /* messages since the peer was asked for an acknowledgement */
	/* credit.c: what lies in the peer's queue, as told (rx), in order; is it large?  Used up (tx) */
	uint8_t known[VERBS_KNOWN];
	_Atomic uint32_t known_told, known_used;
	_Atomic uint32_t wr_done; /* by completion, good or bad (rx) */
	uint32_t wr_good;	  /* ... by good ones */
	/* caps.probe_reads: reads so far (tx), and those that were answered (rx): what was posted behind one may complete before it */
	_Atomic uint32_t reads;
	uint32_t reads_done;
	_Atomic uint64_t seen_ack; /* the peer's (rx) */
	_Atomic bool wants_room;   /* somebody waits: up->writable when something moves */
	bool fence_due;		   /* the next work request waits for reads */
	bool fenced;		   /* ... this one did, and may not be done */
	uint32_t fence_wr;
	bool ops_due;		   /* the message behind an operation has not been chained yet */
	bool heavy;		   /* the chain has a large one: it and its message go now */
	bool end_due;		   /* ... behind some it has, or there is none: the next post ends them */
	uint32_t quiet_bytes;
	uint32_t op_next, op_behind,
		op_open; /* rdma.c: the next one; those before have their message behind them; can end */
	/* rdma.c: those under way, VERBS_SQ at most (rx) */
	struct verbs_rdma_op *ops;
	uint32_t op_head;
	_Atomic uint32_t op_count;

	/* receive side (rx) */
	_Atomic uint64_t rx_ack; /* what we have received, to be told */
	_Atomic uint64_t rx_ack_sent; /* ... and was (tx) */
	_Atomic bool ack_due;	 /* is to be told now, by a frame of its own if need be */
	_Atomic bool ack_asked;	 /* ... because the peer waits for it */
	uint64_t owed_since;	 /* `told` as of when owed_bytes began to count */
	uint32_t owed_bytes;
	uint32_t unasked;    /* acknowledgements since the peer last asked for one; */
	unsigned ack_spared; /* ... stages for many bytes at a time that it has no room for */
	struct verbs_ep *owing_next, *holding_next;
	bool holding;				/* on the list of those that may hold something (batch_when.c) */
	uint32_t held_since, stirred, run_seen; /* ticks, and `run` as of the last one */
	bool owing;		/* on the list of those that owe an acknowledgement before this process stops looking */
	/* credit_buffers.c: what lies in our queue, oldest first; of them, large ones; small ones that it has, there or not taken yet */
	struct verbs_buf *rq, **rq_tail;
	uint32_t rq_len, nlarge, nsmall;
	bool member; /* it has some of its own */
	/* credit.c: what was posted (rx), in order; is it large?  Told to the peer (tx) */
	uint8_t offer[VERBS_RQ];
	_Atomic uint32_t offered, offer_told;
	uint32_t peer_used;	/* segments that have come, but for mere grants */
	uint32_t large_seen;	/* more with each frame that a small buffer cannot hold, fewer with each that it can */
	struct verbs_buf *part; /* segment.c: a frame, so far */
	uint32_t part_len;	/* ... of so many bytes */
	struct verbs_ep *credit_wait_next;
	bool credit_wait;
	bool heard;		 /* a frame has come */
	bool unnumbered;	 /* ... and has no number */
	uint32_t frames_received; /* !caps.credits */
	uint64_t quiet_since;	 /* keepalive */
	unsigned char *asm_data; /* message of several frames, so far */
	struct rds_hdr asm_hdr;
	uint32_t asm_got;
	/* came before we were up, or found no memory: in order, before anything new */
	struct verbs_buf *later, **later_tail;
	uint64_t later_bytes;
	struct verbs_ep *later_next;
	bool later_queued;
	bool later_asked; /* ... and the peer, behind them, what we have taken: it is told again when they are */
	unsigned inplace; /* buffers that the engine has */
	bool closed;	  /* the engine has closed it: memory goes when inplace is 0 and the queue pair is gone */
	bool kept;
	bool qp_dead;
};

struct verbs {
	struct rds_transport t; /* first */
	bool ready;		/* control: libraries, event channel, listener */
	bool fork_inited;	/* control: libibverbs knows that we may fork */
	struct verbs_dev *_Atomic devs;
	struct rdma_event_channel *events;
	struct rds_helper_event cm_ev;
	struct verbs_ep *eps;		    /* helper */
	struct verbs_ep *by_qpn[VERBS_QPS]; /* rx */
	struct verbs_ep *waiting;	    /* rx: up, and frames in ep->later, which found no memory */
	struct verbs_ep *owing;		    /* rx: an acknowledgement (recv.c) */
	struct verbs_ep *holding;	    /* rx: messages that wait for others (batch_when.c) */
	enum rds_attention attention;	    /* rx: as last told */
	struct rdma_cm_id *listener[2];	    /* our own, any port: for IPv4, for IPv6 */
	_Atomic uint16_t port;		    /* ... this one, host order; 0: none */
};
extern struct verbs rds_verbs;

/* send.c; tx */
int verbs_send(struct rds_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len, uint64_t *pos);
void verbs_flush(struct rds_ep *ep, bool service);
const void *verbs_retained(struct rds_ep *ep, uint64_t pos);
uint64_t verbs_acked(struct rds_ep *ep);
void verbs_send_completed(struct verbs_ep *ep, const struct ibv_wc *wc); /* rx */
void verbs_send_free(struct verbs_ep *ep);			    /* nothing is in flight: blocks back */
bool verbs_send_idle(struct verbs_ep *ep);			    /* nothing is in flight */
void verbs_send_mark(struct verbs_ep *ep); /* helper, queue pair in error: when this is flushed, nothing is in flight */

/* control_frame.c; tx */
bool verbs_want_room(struct rds_ep *ep, uint64_t seen_ack);
void verbs_push(struct rds_ep *ep);
/* A write of no bytes, or a read (keepalive.c); sets probe_wr. 0, -EBUSY: no place, -errno. */
int verbs_control_probe(struct verbs_ep *ep);

/* ---- several messages in a frame (batch.c); conn->tx ---- */

static inline struct verbs_out *verbs_out_at(const struct verbs_ep *ep, uint32_t i)
{
	return &ep->out[(ep->out_head + i) & (ep->out_cap - 1)];
}

enum verbs_batch_kind { VERBS_ALONE, VERBS_SMALL, VERBS_PIECE, VERBS_RESENT };

/* May others share its frame: small ones, if they may wait (verbs_batch_may_wait); pieces of operations, and small ones that are sent again, always. */
enum verbs_batch_kind verbs_batch_kind(const struct verbs_ep *ep, const struct rds_wire_hdr *hdr, size_t len);
/* Behind those of the group that has not gone yet.  False: there is none, or it has no place for it. */
bool verbs_batch_add(struct verbs_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len,
		     uint64_t *pos);
/* Begins one; there is room in `out`.  0, or no block was to be had: -errno. */
int verbs_batch_new(struct verbs_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len,
		    uint64_t *pos);
void verbs_send_pending(struct verbs_ep *ep); /* send.c: it goes, as far as there is room */

/* batch_when.c */
bool verbs_batch_may_wait(struct verbs_ep *ep);		    /* tx: a small message is to go.  May it wait? */
static inline void verbs_batch_run_add(struct verbs_ep *ep) /* tx */
{
	atomic_store_explicit(&ep->run, atomic_load_explicit(&ep->run, memory_order_relaxed) + 1, memory_order_relaxed);
}
void verbs_batch_run_end(struct verbs_ep *ep); /* tx: the program waits for room */
void verbs_batch_flush(void);		       /* rx: a look; what is held goes, by up->speak */
void verbs_batch_cancel(struct verbs_ep *ep);  /* rx: closed */

/* recv.c; rx */
bool verbs_progress(struct rds_transport *t);
void verbs_ack(struct rds_ep *ep, uint64_t seq);
void verbs_release(struct rds_ep *ep, void *token);
bool verbs_relieve(struct rds_transport *t, bool now);
bool verbs_recv_retry(struct verbs_ep *ep); /* offer again what waits. True: something went */
void verbs_recv_drop(struct verbs_ep *ep);  /* closed: half a message, frames that nobody took */
struct verbs_ep *verbs_ep_by_qpn(const struct verbs_dev *dev, uint32_t qpn);
void verbs_ep_hash(struct verbs_ep *ep);
void verbs_ep_unhash(struct verbs_ep *ep);
/* A completion or a frame says that it is over: have the helper break it. rx or tx. */
void verbs_ep_broken(struct verbs_ep *ep, int why);
/* ... for what it says: nothing of it is taken from now on. */
void verbs_ep_protocol_error(struct verbs_ep *ep);

/* ack.c; rx */
void verbs_ack_now(struct verbs_ep *ep, bool asked); /* asked: by the peer, who waits */
void verbs_ack_owe(struct verbs_ep *ep, uint32_t len); /* a message has been taken */
void verbs_ack_cancel(struct verbs_ep *ep);
void verbs_ack_flush(void); /* nobody looks from now on: what is owed is said first, by up->speak */

/* credit.c */
/* tx: a segment may go, of so many bytes.  0: not now.  `grants`: it says nothing else */
uint32_t verbs_credit_take(struct verbs_ep *ep, bool grants);
uint32_t verbs_credit_count(const struct verbs_ep *ep);			 /* how many may go */
bool verbs_credit_start(struct verbs_ep *ep, uint32_t said);		 /* what hello said.  False: nonsense */
uint32_t verbs_credit_initial(struct verbs_dev *dev, struct verbs_ep *ep); /* to be said in hello; 0: there are none */
const char *verbs_credit_received(struct verbs_ep *ep,
				  const struct verbs_buf *buf); /* rx: a segment.  NULL, or what is wrong */
void verbs_credit_serve(struct verbs_dev *dev);		    /* rx: after some have come, or buffers have */
void verbs_credit_schedule(struct verbs_ep *ep);	    /* rx: it is to be served */
void verbs_credit_retry(struct verbs_dev *dev);		    /* rx, helper: those that could not be */
uint8_t verbs_credit_grant(struct verbs_ep *ep);	    /* tx: what goes with this frame */
bool verbs_credit_grant_due(
	const struct verbs_ep *ep);		  /* tx: something is to be told, by a frame of its own if need be */
void verbs_credit_end(struct verbs_ep *ep);	  /* rx: nothing more is lent to it */

/* segment.c; rx */
enum verbs_segment_result { VERBS_WHOLE, VERBS_PART, VERBS_NO_MEMORY, VERBS_NONSENSE };
bool verbs_segment_continues(const struct verbs_buf *buf);     /* not the first of its frame */
bool verbs_segment_is_control(const struct verbs_buf *buf);    /* ... it has no message */
uint32_t verbs_segment_frame_len(const struct verbs_buf *buf); /* of the frame that begins with it */
/* WHOLE: *buf is a frame, as it came or on the heap.  PART: it has been put back. */
enum verbs_segment_result verbs_segment_join(struct verbs_ep *ep, struct verbs_buf **buf);

/* cq_notify.c; rx */
void verbs_attention(struct rds_transport *t, enum rds_attention who);
bool verbs_pending(struct rds_transport *t);
void verbs_comp_event(struct rds_helper_event *ev, uint32_t events); /* helper */

/* verbs.c */
int verbs_claims(struct rds_transport *t, const struct in6_addr *laddr, uint32_t scope);
/* The queue pair for ep->cm; ep->dev is set. helper. */
int verbs_qp_create(struct verbs_ep *ep);
void verbs_qp_destroy(struct verbs_ep *ep);
void verbs_describe(struct rds_ep *rep, struct rds_ep_device *out); /* tx */
void verbs_qp_set_rnr_timer(struct verbs_ep *ep);		    /* connected: how it makes senders wait */

/* connect.c; helper */
int verbs_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, uint64_t rx_seq,
		  struct rds_ep **ep);
/* The peer's request was refused because ours is under way.  If ours has been for long, it, or the question for the address, was lost while the
 * peer was out of reach. */
void verbs_connect_crossed(const struct rds_conn_id *id);
void verbs_connect_cm_event(struct verbs_ep *ep, const struct verbs_cm_ev *ev);

/* listen.c; helper. port 0: any.  The listeners hear of requests. */
int verbs_listen(uint16_t port, struct rdma_cm_id *ids[2], uint16_t *got);
void verbs_listen_stop(struct rdma_cm_id *ids[2]);

/* endpoint.c; helper */
struct verbs_ep *verbs_ep_new(const struct rds_conn_id *id, bool initiator);
int verbs_ep_attach_dev(struct verbs_ep *ep); /* ep->dev as ep->cm has it */
void verbs_ep_detach(
	struct verbs_ep *ep); /* nothing was ever sent: queue pair and id go, another may take their place */
void verbs_ep_discard(struct verbs_ep *ep); /* nobody has heard of it */
void verbs_ep_deadline(struct verbs_ep *ep, enum rds_patience most);
void verbs_ep_conn_param(const struct verbs_ep *ep, struct rdma_conn_param *param);
void verbs_ep_try_up(struct verbs_ep *ep); /* up->up, if nothing is missing any more */
void verbs_ep_down(struct verbs_ep *ep, int why, bool gone);
void verbs_ep_close_continue(struct verbs_ep *ep); /* closed: what it had to wait for may have come */
void verbs_ep_last_wqe(struct verbs_ep *ep); /* the device has no receive of the shared queue left for its queue pair */
void verbs_close(struct rds_ep *ep);
void verbs_keep(struct rds_ep *ep, bool on);
void verbs_ep_first_frame(struct verbs_ep *ep);	 /* rx: the first frame: whoever waits to be up may be */
void verbs_ep_free_if_done(struct verbs_ep *ep); /* rx: closed, nothing in place, queue pair gone */

/* cm_devices.c; librdmacm's contexts */
void verbs_cm_dev_put_aside(
	struct ibv_context *cm_ctx); /* it is not to keep the device from being removed. Any thread */
/* True: the id, which the caller would destroy, has to stay, and is not the caller's any more.  It has librdmacm's context. Any thread. */
bool verbs_cm_dev_keep_id(struct rdma_cm_id *cm);
/* Helper: the id that we held with a device which we have closed, although nobody has said that it is removed. */
void verbs_cm_dev_leave_id(struct rdma_cm_id *hold_id);
/* Helper: an event of an id, not yet acknowledged. */
void verbs_cm_dev_event(struct rdma_cm_id *cm, enum rdma_cm_event_type what);
void verbs_cm_dev_forget(void);

/* device_removal.c; helper */
int verbs_dev_hold_id(struct verbs_dev *dev,
		      const struct sockaddr *addr); /* once, before it is used; it may have a holder all the same */
void verbs_dev_ref(struct verbs_dev *dev);
void verbs_dev_unref(
	struct verbs_dev *dev); /* the last one of a device that is gone has it freed, with the next timers */
void verbs_dev_removal_timer(struct rds_timer *tm);
void verbs_dev_removed(struct verbs_dev *dev, const char *what);

/* listen_lost.c; a device is used; helper: a forked child has none of it */
void verbs_listen_watch(const struct verbs_dev *dev);
void verbs_listen_watch_forget(void);

/* rendezvous.c; helper */
struct rdma_cm_id *const *verbs_rendezvous_ids(void); /* two; NULL: the role is somebody else's */
void verbs_rendezvous_stop(void);
void verbs_rendezvous_start(void); /* before the helper knows of us */
void verbs_rendezvous_check(void); /* a process of this node has ended: was it the one that listens? */
/* A request that is not (only) for a connection with this process: fills the answer. True: it is for us, accept goes on. */
bool verbs_rendezvous_request(const struct verbs_request *req, const struct in6_addr *laddr, uint32_t scope,
			      struct verbs_answer *answer);

/* port_query.c; helper */
int verbs_locate(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port);
void verbs_locate_dev_removed(const struct verbs_dev *dev);

/* keepalive.c, async_event.c; helper */
void verbs_keepalive_need(void); /* an endpoint is up */
/* Control held, or helper, as for the device: what is read of it, on either side. */
int verbs_keepalive_open(struct verbs_dev *dev);
void verbs_keepalive_close(struct verbs_dev *dev);
/* Our window, on the wire: its length, 0 if the device needs none. */
unsigned verbs_keepalive_window_out(const struct verbs_dev *dev, struct verbs_window *wire);
/* What the peer has said, its window behind so many bytes.  False: it should be there. */
bool verbs_keepalive_window_in(struct verbs_ep *ep, const struct verbs_cm_ev *ev, unsigned behind);
void verbs_keepalive_fill_read(struct verbs_ep *ep, struct ibv_send_wr *wr); /* tx: fills in the read */
void verbs_async_event(struct rds_helper_event *ev, uint32_t events);

/* Forked child: nothing of the parent's is ours. */
void verbs_rendezvous_forget(void);
void verbs_locate_forget(void);
void verbs_cm_connect_forget(void);
void verbs_cm_destroy_forget(void);
void verbs_keepalive_forget(void);
void verbs_batch_forget(void);

#endif
