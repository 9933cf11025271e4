/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * dev.h - devices: what this process has of one, memory that it reaches, receive buffers, and whom
 * it wakes.
 *
 * Locks: the comment at each field.  Helper: the helper's thread only, but for a device that a
 * program's bind makes (device.c), before others know it.  Every descriptor is in the program's
 * descriptor table, so this transport needs a helper that shares that table.
 *
 * Must not know what is in a buffer or a block, nor who uses the device and what for: struct
 * verbs_dev_users says what those have to do.
 */
#ifndef ENGINE_TRANSPORT_VERBS_DEV_DEV_H
#define ENGINE_TRANSPORT_VERBS_DEV_DEV_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/helper/helper.h"
#include "engine/sys/compiler.h"
#include "engine/sys/lock_order.h"
#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/sys/poll_eventfd.h"
#include "engine/sys/process.h"
#include "engine/transport/transport.h"
#include "engine/transport/verbs/dev/libs.h"

/*
 * Largest payload of a frame.  The cost of a message goes by packets and by frames; the memory it
 * takes goes by receive buffers, however little of a buffer is used.  One buffer of 64 KiB holds
 * one frame of that size, or eight messages of 8 KiB with a header each.  (Between two hosts that
 * lose packets, 2 of 10 runs once stalled with this size, and none of 60 since an answer that lost
 * messages was mended, conn/route.c.)
 */
/* RDS_PRELOAD_VERBS_BUFFERS counts buffers of this size; room for messages that share a frame */
#define VERBS_FRAME 8192u
#define VERBS_FRAME_SHARED (65536u + 448u)
#define VERBS_BUF(frame) ((frame) + 64u) /* size of a receive buffer; the frame is at its start */
/* size of a small receive buffer (caps.credits), fixed by the protocol */
#define VERBS_BUF_SMALL 192u
#define VERBS_REFILL_BATCH 16u /* buffers that are posted together */
#define VERBS_MARK 8u	       /* bytes, all ones, before each segment of a frame but the first */
/* A queue pair is asked for one entry less: soft RoCE adds one and rounds up to a power of two. */
#define VERBS_SQ 256u

struct verbs_ep;       /* of the part above: it keeps its own in some fields */
struct verbs_dev_hold; /* likewise */

/* ---- registered memory (send_memory.c) ---- */

struct verbs_dev;
/*
 * Memory for one outgoing message: first the headers (48 bytes per frame), then the payload in one
 * piece.
 */
struct verbs_block {
	struct verbs_chunk *chunk;
	unsigned char *mem;
	uint32_t size;
	uint32_t lkey;
};
struct verbs_arena;
/*
 * May be called with any lock held; the arena has its own.  -ENOMEM: the limit is reached (wait for
 * acknowledgements), or memory cannot be locked (logged).
 */
int verbs_arena_new(struct verbs_dev *dev, struct verbs_arena **out);
int verbs_block_get(struct verbs_arena *a, size_t size, struct verbs_block *out);
/*
 * For a header that the device does not copy inline, not counted against the limit; available after
 * verbs_arena_reserve_headers().
 */
int verbs_arena_reserve_headers(struct verbs_arena *a);
int verbs_block_get_header(struct verbs_arena *a, struct verbs_block *out);
/* for a redirect or its acknowledgement (conn/port_moved.c), when the arena is full */
int verbs_block_get_redirect(struct verbs_arena *a, size_t size, struct verbs_block *out);
void verbs_block_put(struct verbs_arena *a, struct verbs_block *b);
/*
 * The same for a kind of block of which many are in use only now and then: memory that becomes
 * unused is unregistered and freed.
 */
void verbs_block_shed(struct verbs_arena *a, struct verbs_block *b);
/* Has a block been refused since the last call? */
bool verbs_arena_was_short(struct verbs_arena *a);
void verbs_arena_free(struct verbs_arena *a); /* after every block has been given back */
/* Page-aligned registered memory that a forked child does not inherit; NULL and *err on failure. */
void *verbs_mem_register(struct verbs_dev *dev, size_t len, int access, struct ibv_mr **mr, int *err);
/*
 * To be called when a registration has finally failed.  If locked memory is the cause, logs how
 * much was wanted and what can be done, once for each device.
 */
void verbs_memlock_help(struct verbs_dev *dev, int err, const char *what, size_t len);
bool verbs_memlock_short(int err);
#define VERBS_LIMIT 192
/* the limit of locked memory as text, and how to raise it */
const char *verbs_memlock_limit(char text[VERBS_LIMIT]);
/* Approximate locked memory of one queue entry; every driver has its own figure. */
#define VERBS_CQ_ENTRY 64u
#define VERBS_SRQ_ENTRY 32u
#define VERBS_SQ_ENTRY 128u
void verbs_mem_release(void *mem, size_t len, struct ibv_mr *mr);

/* ---- what a device is ---- */

/* Capabilities of a device, found out once.  No other file asks which kind of device it is. */
struct verbs_caps {
	/*
	 * cannot make a sender wait (no RNR): a frame that finds no receive buffer ends the
	 * connection
	 */
	bool credits;
	/* the side that connected sends first; the other is silent until then */
	bool initiator_first;
	/*
	 * What arrives just after the device has accepted a request may be noticed only when more
	 * arrives (ep/endpoint.c: ep_urge).
	 */
	bool late_receive;
	/* its ports are TCP ports, and it may stop listening without notice (cm/listen_lost.c) */
	bool loses_listener;
	bool sink_needs_write; /* memory that a read fills must be open to the peer's writes */
	/*
	 * A write completes before it has arrived: only a read proves that the peer's device is
	 * there.
	 */
	bool probe_reads;
	/*
	 * rdma_connect may wait for the peer; until it is answered, destroying the id waits as well
	 */
	bool connect_blocks;
	bool rnr, timeouts; /* the queue pair has the attributes for RNR and for timeouts */
	bool sigpipe;	    /* a post may raise SIGPIPE in the posting thread */
	/*
	 * A fenced request that has to be sent again waits for the reads behind it, and these reads
	 * wait for the request.
	 */
	bool fence_bars_reads;
	/* requests of at least so many bytes cost less if they ask for a completion */
	uint32_t signal_from;
	uint32_t max_inline; /* asked for; ep->max_inline is what the endpoint got */
	uint32_t frame;	     /* largest payload of a received frame, bytes */
	uint32_t sq, srq;    /* depths of send queue and receive queue */
	uint32_t rd_atomic;
};

enum verbs_armed { VERBS_UNARMED, VERBS_SOLICITED, VERBS_ALL };

struct verbs_buf {
	struct verbs_buf *next;
	unsigned char *mem;
	uint32_t index;
	uint32_t lkey;
	uint32_t len; /* bytes received */
	uint32_t at;  /* offset of the next message in the buffer */
	/* messages in place, plus one until all messages of the buffer have been taken */
	uint32_t users;
	/*
	 * endpoint whose messages are in place or wait in ep->later; or whose receive queue holds
	 * the buffer
	 */
	struct verbs_ep *ep;
	/*
	 * ep/credit_buffers.c: times it was posted; a completion that names another turn is ignored
	 */
	uint32_t turn;
	bool large, in_rq;
	/*
	 * not a receive buffer: a frame joined from segments (ep/segment.c), or a copy that waits
	 * (ep/recv.c)
	 */
	bool heap;
};

/* `ours` is what peers read; `theirs` is the destination of our reads of the peer's window. */
struct verbs_probed {
	unsigned char ours[64], theirs[64];
};

struct verbs_dev {
	struct verbs_dev *next;
	struct ibv_context *ctx; /* our own: librdmacm has another */
	char name[64];
	struct verbs_caps caps;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct verbs_arena *arena;
	struct rds_helper_event comp_ev, async_ev;
	/* no buffer could be posted, or no memory for a received frame: try again */
	struct rds_timer starved;
	/* receive buffers ran low: arm the limit of the shared receive queue again */
	struct rds_timer low;
	struct rds_timer memory; /* no block was available: have endpoints give blocks back */
	unsigned memory_looks;	 /* further runs of that timer (helper) */
	struct rds_timer leave;	 /* the device is gone: free it when it has no user left */
	bool helped;		 /* the log has already explained how to get more memory */
	/* rx */
	unsigned char *recv_mem;
	size_t recv_len;
	struct ibv_mr *recv_mr;
	struct verbs_buf *bufs, *refill; /* bufs: all buffers; refill: those to be posted */
	/* more receive memory, for more connections (caps.credits) */
	struct verbs_recv_mem *grown;
	/* buffers before any growth, counted as the option counts */
	uint32_t base;
	uint32_t nbufs, posted, nrefill;
	/*
	 * caps.credits: free buffers of each size; number of all large ones; free small ones that
	 * are reserved for endpoints which hold fewer than VERBS_OWN (ep/credit_buffers.c)
	 */
	struct verbs_buf *small, *large;
	uint32_t nsmall, nlarge, all_large, small_reserved;
	unsigned char *mark;	     /* VERBS_MARK, registered with recv_mr */
	struct verbs_probed *probed; /* ep/keepalive.c; NULL: nothing is read */
	struct ibv_mr *probed_mr;
	/* ep/credit.c: endpoints that have received something, so that buffers may be due */
	struct verbs_ep *credit_wait;
	bool urgent;	   /* buffers are due at once, not at the next look that finds nothing */
	_Atomic bool full; /* the lack of buffers for another connection has been logged */
	enum verbs_armed armed;
	/*
	 * the helper does not hear of completions: the sleeping thread is woken through the relay
	 */
	bool helper_deaf;
	struct os_poll_eventfd relay; /* from the channel to the engine's relay */
	unsigned unacked_events;
	struct ibv_wc stash[16]; /* polled by verbs_dev_pending(), not yet handled */
	unsigned nstash, stash_at;
	/* DEVICE_REMOVAL, DEVICE_FATAL: no endpoint may use it (written by the helper, under rx) */
	_Atomic bool dead;
	/*
	 * work requests that an endpoint may have in flight: all endpoints share the completion
	 * queue
	 */
	_Atomic uint32_t sq_each;
	/* helper */
	unsigned neps; /* users: endpoints until they are freed, port queries with a queue pair */
	/* the device reports that a queue pair in error has no receive left (LAST_WQE_REACHED) */
	bool says_last;
	/* times that this report was waited for and did not come */
	unsigned silent;
	struct verbs_dev_hold *_Atomic hold; /* how rdma_cm holds it (cm/device_id.c) */
};

/* What devices want of the parts that use them; verbs.c fills it in. */
struct verbs_dev_users {
	/*
	 * The device has been opened, and no other thread knows it; cm is an id on it.  0: it is
	 * held.  -errno: it cannot be used after all; held it may be all the same.
	 */
	int (*opened)(struct verbs_dev *dev, struct rdma_cm_id *cm);
	/* Other threads can find the device now. */
	void (*published)(struct verbs_dev *dev, struct rdma_cm_id *cm);
	/* The device that was held does not exist any more.  Helper. */
	void (*freed)(struct verbs_dev_hold *hold);
	/* The number of endpoints whose queue pair exists, or is still to be made.  Helper. */
	unsigned (*queue_pairs)(const struct verbs_dev *dev);
	/*
	 * Work requests that these endpoints have in flight, at least `least` for each.  Helper,
	 * rx.
	 */
	uint64_t (*in_flight)(const struct verbs_dev *dev, uint32_t least);
	/* Blocks are waited for: give back what is not needed any more.  Helper, rx. */
	void (*memory_short)(const struct verbs_dev *dev);
	/*
	 * Some time after verbs_bufs_retry_later(): who found no buffer tries again.  Helper, rx.
	 */
	void (*starved)(struct verbs_dev *dev);
	/*
	 * Copy messages out of the device's memory.  False: some are still there.  Helper, rx.
	 */
	bool (*evacuate)(const struct verbs_dev *dev);
	/* An event of a queue pair, which may be gone.  Helper. */
	void (*qp_event)(const struct verbs_dev *dev, enum ibv_event_type type, uint32_t qpn);
	/* The device is dead: nothing comes from it any more.  Helper. */
	void (*removed)(const struct verbs_dev *dev);
};
extern const struct verbs_dev_users *verbs_dev_users;

/* ---- the part as a whole; finding a device (device.c) ---- */

/*
 * Loads the libraries and sets verbs_dev_users.  0, also if it was called before; -ENOENT: no RDMA
 * device on this machine; -ELIBACC: a library is missing (logged).  Control held.
 */
int verbs_dev_start(const struct verbs_dev_users *users);
void verbs_dev_forget(void); /* forked child */

extern struct verbs_devs {
	struct verbs_dev *_Atomic all;
	enum rds_attention attention; /* rx: last value given to verbs_dev_attention() */
} verbs_devs;

/*
 * Finds or makes a device; cm is an id on it, for struct verbs_dev_users.  to_send: an endpoint is
 * to use the device at once, so it must have room for the work requests of one more, else -ENOBUFS
 * (helper).  With control held, or helper.
 */
int verbs_dev_get(struct ibv_device *device, bool to_send, struct rdma_cm_id *cm, struct verbs_dev **out);
void verbs_dev_share_cq(struct verbs_dev *dev); /* helper: the number of endpoints has changed */
/* of the send queue of a new endpoint (helper) */
uint32_t verbs_dev_sq_depth(const struct verbs_dev *dev);
/* A block was refused: have the helper look for memory.  Any lock may be held but the timers'. */
void verbs_dev_want_memory(struct verbs_dev *dev);
/*
 * Helper, no endpoint is left.  Unlink: the device can no longer be found.  Free: frees its
 * objects.
 */
void verbs_dev_unlink(struct verbs_dev *dev);
void verbs_dev_free(struct verbs_dev *dev);

/* device_removal.c; helper */

void verbs_dev_ref(struct verbs_dev *dev);
/* when a device that is gone loses its last user, a timer frees it */
void verbs_dev_unref(struct verbs_dev *dev);
void verbs_dev_removal_timer(struct rds_timer *tm);
void verbs_dev_removed(struct verbs_dev *dev, const char *what);

/* ---- receive buffers (recv_buffers.c) ---- */

void verbs_bufs_init(struct verbs_dev *dev);		  /* sets up a new device's timers */
uint32_t verbs_bufs_initial(const struct verbs_dev *dev); /* buffers to ask for at first */
uint32_t verbs_bufs_max(const struct verbs_dev *dev);	  /* most buffers that there may ever be */
/* As many as memory can be locked for, down to the smallest useful number.  -errno, logged. */
int verbs_bufs_new(struct verbs_dev *dev);
void verbs_bufs_free(struct verbs_dev *dev);
/* ask the device to report when buffers run low */
void verbs_bufs_arm_limit(struct verbs_dev *dev);
void verbs_bufs_low(struct verbs_dev *dev); /* helper: the device reports that buffers are low */
/* rx: posted with the next refill; where endpoints have queues of their own, free for any */
void verbs_buf_put(struct verbs_dev *dev, struct verbs_buf *buf);
void verbs_bufs_refill(struct verbs_dev *dev); /* rx: posts returned buffers, in batches */
/* rx: have the helper retry soon, memory was short */
void verbs_bufs_retry_later(struct verbs_dev *dev);
/* Helper: adds small buffers, at least `fewest`.  -ENOBUFS: there would be too many; -errno. */
int verbs_bufs_grow(struct verbs_dev *dev, uint32_t fewest);

/* ---- whom a device wakes (cq_notify.c); rx ---- */

void verbs_dev_attention(enum rds_attention who);
bool verbs_dev_pending(struct rds_transport *t);
void verbs_dev_comp_event(struct rds_helper_event *ev, uint32_t events); /* helper */

/* async_event.c; helper */
void verbs_dev_async_event(struct rds_helper_event *ev, uint32_t events);

/* ---- memory of programs (mr.c) ---- */

int verbs_mr_register(struct verbs_dev *dev, void *mem, size_t len, struct rds_device_mr **out);
bool verbs_mr_key(const struct verbs_dev *dev, const struct rds_device_mr *dev_mr, struct rds_device_key *far);
void verbs_mr_deregister(struct rds_device_mr *dev_mr);
void verbs_mr_dev_end(struct verbs_dev *dev); /* helper: the device is about to be freed */
void verbs_mr_forget(void);		      /* forked child */

#endif
