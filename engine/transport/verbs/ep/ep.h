/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * ep.h - endpoints: one connection over one queue pair, from connect or accept until its memory is
 * freed.
 *
 * A message is cut into *frames*.  A frame is one SEND of a 48-byte RDS header and at most
 * caps.frame bytes of payload (as in net/rds/ib_send.c, with larger slices; when they connect, both
 * sides tell how much they take).  Several small messages may share a frame: the header and bytes
 * of each follow those of the previous message, at the next multiple of VERBS_ALIGN.
 * Acknowledgement and credits are in the first header.
 *
 * Received frames land in one shared receive queue per device.  On devices where a frame that
 * finds no buffer ends the connection (caps.credits), each connection has a receive queue of its
 * own, with buffers of two sizes, and a frame is sent in *segments* that fit the buffers in that
 * queue.
 *
 * Threads and locks.  connect, accept, endpoint, keepalive: helper only.  Send side of an endpoint:
 * conn->tx.  Receive side, completions, table of queue pairs: rx.  A comment at the field names its
 * lock.
 *
 * What verbs.c takes is in the first part of the functions; the rest is between the files here.
 */
#ifndef ENGINE_TRANSPORT_VERBS_EP_EP_H
#define ENGINE_TRANSPORT_VERBS_EP_EP_H

#include "engine/sys/fence.h"
#include "engine/transport/batch_when.h"
#include "engine/transport/verbs/cm/cm.h"

#define VERBS_HDR RDS_WIRE_HDR
#define VERBS_ALIGN(n) (((n) + 7u) & ~7u)
#define VERBS_OWN 3u	 /* small receive buffers that each endpoint always has */
#define VERBS_RQ 64u	 /* receives in a receive queue of an endpoint's own */
#define VERBS_KNOWN 256u /* credits that a peer may have granted and that are not used yet */
#define VERBS_POST_LIST 16u
/* entries of the send queue for control frames: acknowledgements, credits, keepalive */
#define VERBS_SQ_RESERVE 4u
#define VERBS_QPS 4096u /* buckets */
/* wr_id of a send: this bit, and ep->wr_posted at that time; of a receive: the buffer's index */
#define VERBS_WR_SEND (1ull << 63)

enum verbs_state {
	VERBS_RESOLVING,  /* rdma_cm resolves the address, then the route */
	VERBS_CONNECTING, /* request sent, or accepted and not yet established */
	VERBS_UP,	  /* up->up has been called */
	VERBS_BROKEN,	  /* the helper is about to call up->down */
	VERBS_CLOSED,	  /* queue pair in error; waits for what is in flight */
};

/*
 * An outgoing message whose bytes must stay; with seq 0: a control frame, which no acknowledgement
 * covers.
 */
struct verbs_out {
	struct verbs_block block;
	uint64_t seq;
	uint32_t len;		 /* payload */
	uint32_t wr_end;	 /* all of it has been sent when wr_done reaches this number */
	uint16_t nframes, given; /* frames of the message; frames already in the chain */
	bool solicited, grants;
	uint32_t frame_sent; /* bytes of the current frame that earlier segments carried */
	/*
	 * a congestion map: its block is released as soon as it is sent, since every connection
	 * starts with one
	 */
	bool map;
	bool pieces; /* a batch that begins with a piece of an operation */
	bool resent; /* a batch that begins with a retransmitted message */
	/*
	 * one frame, perhaps of several messages: len is all behind the first header, seq is the
	 * last message's
	 */
	bool batch;
};

struct verbs_ep {
	struct rds_ep_head head;
	struct verbs_dev *dev;
	/* list of all endpoints: helper; bucket by queue pair number: rx */
	struct verbs_ep *next, *qp_next;
	/* written by the helper; BROKEN by any thread, under rx */
	_Atomic enum verbs_state state;
	/* helper */
	struct rds_conn_id id;
	struct verbs_cm_owner owner;
	struct rdma_cm_id *cm;
	struct verbs_attempt *attempt; /* of an initiator, until the endpoint is up (connect.c) */
	struct rds_timer deadline;     /* for connecting and for closing */
	struct rds_timer broken;       /* set by any thread: the helper is to break the endpoint */
	_Atomic int why;	       /* reason of the break (-errno; rx) */
	bool initiator;
	bool cm_up;	   /* RDMA_CM_EVENT_ESTABLISHED has come */
	bool awaited;	   /* a frame has come before ESTABLISHED, which is waited for */
	struct rds_received there; /* for up->up */
	/*
	 * set by any thread: the helper is to check whether the endpoint can come up, be freed, or
	 * must urge
	 */
	struct rds_timer nudge;
	/* helper: time between the last two urges of the peer; 0: the endpoint does not urge */
	uint64_t urge_ns;
	struct verbs_cm_connect call;
	bool cm_busy; /* rdma_connect or rdma_accept is not answered yet (caps.connect_blocks) */
	bool over;    /* up->down has been called, or will never be called */
	uint64_t close_by, close_pause;
	bool expects_last; /* closed: the queue pair may hold receives of the shared queue */
	bool last_said;	   /* the device has reported that the queue pair holds none any more */
	/* verbs_ep_push could not send what is due: retry when something completes */
	_Atomic bool control_stuck;
	_Atomic bool probe_due; /* verbs_ep_push is to send a probe (keepalive.c) */
	/* verbs_ep_push is to send an empty write, which urges the peer (endpoint.c) */
	_Atomic bool urge_due;
	/*
	 * Memory is short: verbs_ep_push is to ask for an acknowledgement, and to send an empty
	 * signaled write if the last request asked for no completion.
	 */
	_Atomic bool signal_due;
	_Atomic uint32_t probe_wr;   /* work request number of the last probe */
	_Atomic uint32_t probe_read; /* value of `reads` after the last probe (caps.probe_reads) */
	/*
	 * the part of the peer's memory that probes read (caps.probe_reads); set before the
	 * endpoint is up
	 */
	struct verbs_window window;

	/* send side (tx) */
	struct ibv_qp *qp;
	uint32_t qpn;
	uint32_t sq; /* depth of its send queue */
	uint32_t max_inline;
	uint32_t frame; /* largest payload of a frame that the peer takes */
	/* the last entry of `out` is a batch that waits for more messages (transport/batch_when.c) */
	bool held;
	struct rds_transport_batch batch;
	_Atomic uint32_t wr_posted;	    /* work requests so far, including the chain; wraps */
	uint32_t wr_unsignaled, bytes_unsignaled;
	bool leaving;	   /* verbs_ep_leave() has acknowledged all, */
	uint32_t leave_wr; /* ... by this work request or an older one */
	/* the chain: work requests not yet given to the device (flush) */
	struct ibv_send_wr wr[VERBS_POST_LIST];
	struct ibv_sge sge[VERBS_POST_LIST][2];
	uint32_t nwr_listed;
	struct rds_wire_hdr control_hdr; /* header of a control frame, sent inline */
	struct verbs_out *out;		 /* ring of out_cap entries, oldest first */
	uint32_t out_head, out_count, out_cap;
	/* newest entries of `out` that still have frames to put into the chain */
	uint32_t unfinished;
	_Atomic bool backlog;	  /* `unfinished` > 0 because there is no room */
	_Atomic bool map_out;	  /* a congestion map is in flight */
	_Atomic uint32_t map_wr;  /* work request number of that map */
	uint32_t frames_numbered; /* frames numbered so far: first headers put into the chain */
	uint32_t since_asked;	  /* messages since the last request for an acknowledgement */
	/*
	 * credit.c: the buffers in the peer's queue, in order: is it large?  Granted so far (rx),
	 * used so far (tx).
	 */
	uint8_t known[VERBS_KNOWN];
	_Atomic uint32_t known_told, known_used;
	/* number of the last completed work request, successful or not (rx) */
	_Atomic uint32_t wr_done;
	uint32_t wr_good; /* number of the last successful one */
	/*
	 * caps.probe_reads: reads posted so far (tx), and reads answered so far (rx).  What was
	 * posted behind a read may complete before it.
	 */
	_Atomic uint32_t reads;
	uint32_t reads_done;
	_Atomic uint64_t seen_ack; /* highest acknowledgement of the peer (rx) */
	/* a sender waits: call up->writable when acknowledgement or room moves */
	_Atomic bool wants_room;
	bool fence_due; /* the next work request gets a fence: it waits for reads */
	bool fenced;	/* work request fence_wr has a fence and may not be complete */
	uint32_t fence_wr;
	bool ops_due; /* the message behind an operation is not in the chain yet */
	bool heavy;   /* the chain has a large operation: it and its message are posted at once */
	/*
	 * operations can end with the next post: their message is in the chain, or they have none
	 */
	bool end_due;
	uint32_t quiet_bytes;
	/*
	 * rdma.c: counters.  Next operation; first one whose message is not in the chain; first one
	 * that may not have ended.
	 */
	uint32_t op_next, op_behind, op_open;
	/* rdma.c: operations in flight, at most VERBS_SQ (rx) */
	struct verbs_rdma_op *ops;
	uint32_t op_head;
	_Atomic uint32_t op_count;

	/* receive side (rx) */
	_Atomic uint64_t rx_ack;      /* last message received, to be acknowledged */
	_Atomic uint64_t rx_ack_sent; /* last acknowledgement sent (tx) */
	/* an acknowledgement is to be sent now, in a control frame if necessary */
	_Atomic bool ack_due;
	_Atomic bool ack_asked; /* the peer waits for that acknowledgement */
	uint64_t owed_since;	/* rx_ack_sent when owed_bytes began to count */
	uint32_t owed_bytes;
	/* control frames for acknowledgements since the peer last asked for one (ack.c) */
	uint32_t unasked;
	/* stages of ack.c that are not used, since the peer has too little room for them */
	unsigned ack_spared;
	struct verbs_ep *owing_next;
	/*
	 * on the list of endpoints that send an acknowledgement before this process stops looking
	 */
	bool owing;
	/*
	 * credit_buffers.c: buffers in our receive queue, oldest first; the large ones of them; all
	 * small ones that the endpoint has, in the queue or with messages that have not been taken
	 */
	struct verbs_buf *rq, **rq_tail;
	uint32_t rq_len, nlarge, nsmall;
	bool member; /* VERBS_OWN small buffers are reserved for the endpoint */
	/*
	 * credit.c: the buffers that were posted (rx), in order: is it large?  Granted to the peer
	 * so far (tx).
	 */
	uint8_t offer[VERBS_RQ];
	_Atomic uint32_t offered, offer_told;
	uint32_t peer_used; /* segments received, except control frames that grant credits */
	/*
	 * grows with each frame that a small buffer cannot hold, shrinks with each frame that it
	 * can hold
	 */
	uint32_t large_seen;
	struct verbs_buf *part; /* segment.c: the segments of a frame received so far */
	uint32_t part_len;	/* full length of that frame, bytes */
	struct verbs_ep *credit_wait_next;
	bool credit_wait;
	bool heard;		  /* a frame has been received */
	bool unnumbered;	  /* the peer does not number its frames */
	uint32_t frames_received; /* !caps.credits */
	/*
	 * keepalive.c: time of the first check without a frame, or of the last probe; 0: a frame
	 * has come
	 */
	uint64_t quiet_since;
	unsigned char *asm_data; /* message of several frames: the bytes received so far */
	struct rds_hdr asm_hdr;
	uint32_t asm_got;
	/*
	 * Frames that came before the endpoint was up, or found no memory: in order, before
	 * anything newer.
	 */
	struct verbs_buf *later, **later_tail;
	uint64_t later_bytes;
	struct verbs_ep *later_next;
	bool later_queued;
	/*
	 * A peer whose frames wait here has asked for an acknowledgement: send another when the
	 * frames are taken.
	 */
	bool later_asked;
	unsigned inplace; /* messages in place that the engine has not released */
	/* closed by the engine: memory is freed when inplace is 0 and the queue pair is gone */
	bool closed;
	bool kept;
	bool qp_dead;
};

/* All endpoints, and those for which something is due. */
extern struct verbs_eps {
	struct rds_transport *t;
	struct verbs_ep *all;		    /* helper */
	struct verbs_ep *by_qpn[VERBS_QPS]; /* rx */
	/* rx: endpoints that are up and have frames in ep->later, for lack of memory */
	struct verbs_ep *waiting;
	struct verbs_ep *owing; /* rx: endpoints that owe an acknowledgement (ack.c) */
} verbs_eps;

/* ---- for the transport's tables ---- */

void verbs_ep_start(struct rds_transport *t);
void verbs_ep_forget(void); /* forked child */

extern struct verbs_cm_owner verbs_ep_acceptor; /* receives requests of peers */

/* struct rds_transport_ops; the locks are those of transport/README.md */
int verbs_ep_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn,
		     struct rds_received here, struct rds_ep **ep);
void verbs_ep_close(struct rds_ep *ep);
void verbs_ep_keep(struct rds_ep *ep, bool on);
int verbs_ep_send(struct rds_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len,
		  uint64_t *pos);
void verbs_ep_flush(struct rds_ep *ep, bool service);
const void *verbs_ep_retained(struct rds_ep *ep, uint64_t pos);
uint64_t verbs_ep_acked(struct rds_ep *ep);
bool verbs_ep_want_room(struct rds_ep *ep, uint64_t seen_ack);
void verbs_ep_push(struct rds_ep *ep);
void verbs_ep_describe(struct rds_ep *ep, struct rds_ep_device *out);
bool verbs_ep_leave(struct rds_ep *ep, bool begin); /* ack.c */
int verbs_ep_mr_register(struct rds_ep *ep, void *mem, size_t len, struct rds_device_mr **out);
bool verbs_ep_mr_key(struct rds_ep *ep, const struct rds_device_mr *dev_mr, struct rds_device_key *far);
int verbs_ep_post(struct rds_ep *ep, const struct rds_device_op *op);
void verbs_ep_fence(struct rds_ep *ep);
bool verbs_ep_progress(struct rds_transport *t);
void verbs_ep_ack(struct rds_ep *ep, uint64_t seq);
void verbs_ep_release(struct rds_ep *ep, void *token);
bool verbs_ep_relieve(struct rds_transport *t, bool now);
void verbs_ep_attention(struct rds_transport *t, enum rds_attention who);

/* struct verbs_dev_users */
unsigned verbs_ep_dev_count(const struct verbs_dev *dev);
uint64_t verbs_ep_dev_in_flight(const struct verbs_dev *dev, uint32_t least);
void verbs_ep_dev_memory_short(const struct verbs_dev *dev);
void verbs_ep_dev_starved(struct verbs_dev *dev);
bool verbs_ep_dev_evacuate(const struct verbs_dev *dev);
void verbs_ep_dev_qp_event(const struct verbs_dev *dev, enum ibv_event_type type, uint32_t qpn);
void verbs_ep_dev_removed(const struct verbs_dev *dev);

/* ---- what all parts use ---- */

/*
 * Clears the flag, which any thread may set.  True: it was set.  A flag that is not set costs a
 * load only.
 */
static inline bool verbs_ep_flag_take(_Atomic bool *flag)
{
	return unlikely(atomic_load_explicit(flag, memory_order_relaxed)) && atomic_exchange(flag, false);
}

/* Takes ep out of a list of endpoints that are linked by their member `next`, if it is there. */
#define VERBS_EP_UNLIST(head, ep, next)                                                                                \
	do {                                                                                                           \
		struct verbs_ep **at_ = &(head);                                                                       \
                                                                                                                       \
		while (*at_ && *at_ != (ep))                                                                           \
			at_ = &(*at_)->next;                                                                           \
		if (*at_)                                                                                              \
			*at_ = (ep)->next;                                                                             \
	} while (0)

/* ---- life ---- */

/* endpoint.c; helper */
struct verbs_ep *verbs_ep_new(const struct rds_conn_id *id, bool initiator);
int verbs_ep_attach_dev(struct verbs_ep *ep); /* sets ep->dev to the device of ep->cm */
/* Nothing was ever sent: destroys queue pair and id, so that others can take their place. */
void verbs_ep_detach(struct verbs_ep *ep);
void verbs_ep_discard(struct verbs_ep *ep); /* frees an endpoint that the engine does not know */
void verbs_ep_deadline(struct verbs_ep *ep, enum rds_patience most);
void verbs_ep_conn_param(const struct verbs_ep *ep, struct rdma_conn_param *param);
void verbs_ep_try_up(struct verbs_ep *ep); /* calls up->up if the endpoint is ready */
void verbs_ep_down(struct verbs_ep *ep, int why, bool gone);
void verbs_ep_close_continue(struct verbs_ep *ep); /* closed: what it waits for may have come */
/* the device reports that its queue pair holds no receive of the shared queue any more */
void verbs_ep_last_wqe(struct verbs_ep *ep);
/* rx: the first frame has come: an endpoint that is connecting may come up */
void verbs_ep_first_frame(struct verbs_ep *ep);
/* rx: if closed, nothing in place, and queue pair gone */
void verbs_ep_free_if_done(struct verbs_ep *ep);
/*
 * A completion or a frame shows that the endpoint is broken: have the helper break it.  rx.
 */
void verbs_ep_broken(struct verbs_ep *ep, int why);
/* The same for a protocol error of the peer: nothing more is received from it. */
void verbs_ep_protocol_error(struct verbs_ep *ep);

/* qp.c */

/* Makes the queue pair for ep->cm; ep->dev is set.  Helper. */
int verbs_qp_create(struct verbs_ep *ep);
void verbs_qp_destroy(struct verbs_ep *ep);
/* after connecting: sets how long a sender pauses that finds no receive buffer */
void verbs_qp_set_rnr_timer(struct verbs_ep *ep);
/* rx */
struct verbs_ep *verbs_ep_by_qpn(const struct verbs_dev *dev, uint32_t qpn);
void verbs_ep_hash(struct verbs_ep *ep);
void verbs_ep_unhash(struct verbs_ep *ep);

/* connect.c; helper */

/*
 * The peer's request was refused because ours is under way.  If ours has been under way for long,
 * it was lost (or its address query was) while the peer was out of reach: give it up.
 */
void verbs_connect_crossed(const struct rds_conn_id *id);
void verbs_connect_cm_event(struct verbs_ep *ep, const struct verbs_cm_ev *ev);

/* keepalive.c; helper */

void verbs_keepalive_need(void); /* an endpoint has come up */
/* Writes our window in wire byte order.  Returns its length; 0: the device needs none. */
unsigned verbs_keepalive_window_out(const struct verbs_dev *dev, struct verbs_window *wire);
/*
 * Reads the peer's window, `behind` bytes into the private data.  False: it is missing or invalid.
 */
bool verbs_keepalive_window_in(struct verbs_ep *ep, const struct verbs_cm_ev *ev, unsigned behind);
/* tx: fills in the read of the peer's window */
void verbs_keepalive_fill_read(struct verbs_ep *ep, struct ibv_send_wr *wr);
void verbs_keepalive_forget(void); /* forked child */

/* ---- sending ---- */

/* send.c */

void verbs_send_completed(struct verbs_ep *ep, const struct ibv_wc *wc); /* rx */
void verbs_send_free(struct verbs_ep *ep); /* nothing is in flight: gives all blocks back */
bool verbs_send_idle(struct verbs_ep *ep); /* nothing is in flight */
/* Helper, queue pair in error: posts a last request.  When it is flushed, nothing is in flight. */
void verbs_send_mark(struct verbs_ep *ep);

/* control_frame.c; tx */

/*
 * Posts an empty write or a read (keepalive.c) and sets probe_wr.  0; -EBUSY: no room in the send
 * queue; -errno.
 */
int verbs_control_probe(struct verbs_ep *ep);

/* batch.c: several messages in a frame; tx */

static inline struct verbs_out *verbs_out_at(const struct verbs_ep *ep, uint32_t i)
{
	return &ep->out[(ep->out_head + i) & (ep->out_cap - 1)];
}

enum verbs_batch_kind { VERBS_ALONE, VERBS_SMALL, VERBS_PIECE, VERBS_RESENT };

/*
 * May other messages share the frame?  Small messages: if they may wait (batch_when.c).
 * Pieces of operations and small retransmitted messages: always.
 */
enum verbs_batch_kind verbs_batch_kind(const struct verbs_ep *ep, const struct rds_wire_hdr *hdr, size_t len);
/*
 * Adds the message to the batch that is not sent yet.  False: there is no batch, or no room in it.
 */
bool verbs_batch_add(struct verbs_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len,
		     uint64_t *pos);
/* Begins a batch; `out` has room.  0, or -errno: no block was available. */
int verbs_batch_new(struct verbs_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len,
		    uint64_t *pos);
/* send.c: sends the held batch, as far as there is room */
void verbs_send_pending(struct verbs_ep *ep);

/* ---- receiving; rx ---- */

/* recv.c */

/* a segment has come that makes sense: its frame is taken or waits */
void verbs_recv_segment(struct verbs_ep *ep, struct verbs_buf *buf);
void verbs_recv_nonsense(struct verbs_ep *ep, const char *what); /* breaks the connection */
bool verbs_recv_retry(struct verbs_ep *ep); /* offers waiting frames again; true: some were taken */
bool verbs_recv_retry_all(void);	    /* of all endpoints */
/* closed: drops incomplete messages and waiting frames */
void verbs_recv_drop(struct verbs_ep *ep);

/* segment.c; rx */
enum verbs_segment_result { VERBS_WHOLE, VERBS_PART, VERBS_NO_MEMORY, VERBS_NONSENSE };
bool verbs_segment_continues(const struct verbs_buf *buf);  /* not the first of its frame */
bool verbs_segment_is_control(const struct verbs_buf *buf); /* the frame has no message */
/* length of the frame that begins with this segment */
uint32_t verbs_segment_frame_len(const struct verbs_buf *buf);
/* WHOLE: *buf is a frame, as received or joined on the heap.  PART: *buf has been put back. */
enum verbs_segment_result verbs_segment_join(struct verbs_ep *ep, struct verbs_buf **buf);

/* ack.c; rx */
void verbs_ack_now(struct verbs_ep *ep, bool asked);   /* asked: the peer has asked and waits */
void verbs_ack_owe(struct verbs_ep *ep, uint32_t len); /* a message has been taken */
void verbs_ack_cancel(struct verbs_ep *ep);
/* no thread looks from now on: sends owed acknowledgements first, through up->push_later */
void verbs_ack_flush(void);

/* ---- credits ---- */

/* credit.c */

/*
 * tx: how many bytes the next segment may have; 0: none may be sent now.  `grants`: a control frame
 * that grants credits.
 */
uint32_t verbs_credit_take(struct verbs_ep *ep, bool grants);
uint32_t verbs_credit_count(const struct verbs_ep *ep); /* credits that are left */
/* the credits in the peer's private data; false: more than allowed */
bool verbs_credit_start(struct verbs_ep *ep, uint32_t said);
/* credits to put into our private data; 0: no buffers */
uint32_t verbs_credit_initial(struct verbs_dev *dev, struct verbs_ep *ep);
/* rx: a segment has come.  NULL, or what is wrong with it. */
const char *verbs_credit_received(struct verbs_ep *ep, const struct verbs_buf *buf);
/* rx: posts what is due, after segments or buffers have come */
void verbs_credit_serve(struct verbs_dev *dev);
/* rx: put the endpoint on the list that verbs_credit_serve() works through */
void verbs_credit_schedule(struct verbs_ep *ep);
uint8_t verbs_credit_grant(struct verbs_ep *ep); /* tx: credits to grant with this frame */
/* tx: credits are to be granted, in a control frame if necessary */
bool verbs_credit_grant_due(const struct verbs_ep *ep);
void verbs_credit_end(struct verbs_ep *ep); /* rx: no more buffers are posted for the endpoint */

/* credit_buffers.c; rx */

/* VERBS_OWN small buffers are reserved for the endpoint.  False: there are not enough. */
bool verbs_credit_buf_reserve(struct verbs_ep *ep);
void verbs_credit_buf_unreserve(struct verbs_ep *ep);
/* posts one buffer; false: none is free for this endpoint, or the device has no room */
bool verbs_credit_buf_post(struct verbs_ep *ep, bool large);
/* NULL: not the buffer's current turn */
struct verbs_buf *verbs_credit_buf_completed(struct verbs_dev *dev, uint64_t wr_id);
void verbs_credit_buf_put(struct verbs_dev *dev, struct verbs_buf *buf); /* for verbs_buf_put() */
/* after its queue pair is gone */
void verbs_credit_buf_put_all(struct verbs_ep *ep);
bool verbs_credit_buf_may_stay(const struct verbs_dev *dev, const struct verbs_buf *buf, uint32_t len);

static inline void verbs_recv_buf_put(struct verbs_dev *dev, struct verbs_buf *buf)
{
	if (unlikely(dev->caps.credits))
		verbs_credit_buf_put(dev, buf);
	else
		verbs_buf_put(dev, buf);
}

static inline void verbs_recv_bufs_refill(struct verbs_dev *dev) /* rx */
{
	if (unlikely(dev->caps.credits))
		verbs_credit_serve(dev);
	else
		verbs_bufs_refill(dev);
}

#endif
