/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * borrower_impl.h - what the files of the borrower share: borrower_pool.c (channels),
 * borrower_channel.c (how a call goes over a channel), borrower_wait.c (how long a call waits),
 * borrower_call.c (the arguments and results of a call), borrower_rdma.c (arguments that name
 * memory) and borrower_regions.c (the memory regions that this process has opened).
 */
#ifndef ENGINE_SHARE_BORROWER_IMPL_H
#define ENGINE_SHARE_BORROWER_IMPL_H

#include <stdatomic.h>
#include <sys/uio.h>

#include "engine/share/borrower.h"
#include "engine/abi/rdma_args.h"
#include "engine/share/protocol.h"

/* A region that this process has opened. */
struct borrower_region {
	uint64_t inode;
	uint32_t owner_id; /* the owner that knows of the region */
	struct rds_mr_region region;
};

/* One channel, and the memory for one packet. */
struct borrower_channel {
	_Atomic uint32_t state;
	uint32_t seq;
	uint64_t inode;
	_Atomic int fd;
	int thread;	   /* the thread that is about to close the channel */
	bool greeted;	   /* the owner has accepted the channel */
	bool watched;	   /* the owner keeps the stand-in current */
	bool memory_given; /* or known to be refused (borrower_rdma.c) */
	uint32_t owner_id; /* the owner's number, if greeted */
	unsigned regions;  /* generation of our regions that the owner knows (borrower_regions.c) */
	char *packet;
};

#define BORROWER_PACKET (sizeof(struct rds_share_request) + RDS_SHARE_NAME + RDS_SHARE_CONTROL + RDS_SHARE_INLINE)

struct borrower_call {
	struct rds_share_request q;
	const void *name, *control;
	const struct iovec *data; /* readable */
	unsigned n_data;
	struct rds_borrower_wait *wait; /* that of another call, or NULL: own */
	/* while it waits */
	struct rds_borrower_wait own;
	uint64_t inode;
	/* The channel where the call waits.  A thread that leaves its sleep closes this ... */
	struct borrower_channel *busy;
	/* ... and the channel's other end; -1: the owner has that */
	int offered;
	/* The region that the call asks for; bytes 0: none. */
	struct rds_mr_request opens;
	int late;	/* the result if the call stops waiting (-BORROWER_LATE) */
	bool cancelled; /* CANCEL was sent; the call waits for its outcome */
	bool asleep;	/* the call sleeps at the owner */
	bool underway;	/* could not be withdrawn: the owner is making the call */
	/* afterwards */
	struct borrower_channel *slot;
	struct rds_share_reply a;
	const char *out_name, *out_control, *out_data; /* in the slot's packet, or mapped */
	void *mapped;
};

/* ---- borrower_pool.c ---- */
void borrower_pool_begin(void); /* before the others: forgets the channels of a parent */
bool borrower_pool_is_ours(void);
/*
 * A slot with a channel to that socket's owner; or a slot without a channel, with memory for a
 * packet.  Both are BUSY then.  NULL: there is none.
 */
struct borrower_channel *borrower_channel_get_idle(uint64_t inode);
struct borrower_channel *borrower_channel_get_free(void);
void borrower_channel_made(void); /* the free slot has a channel now */
void borrower_channel_give_back(struct borrower_channel *s);
void borrower_channel_drop(struct borrower_channel *s);	  /* closes its channel */
void borrower_channel_unused(struct borrower_channel *s); /* the free slot got no channel */

/* ---- borrower_rdma.c ---- */
/* Before the first call that names memory: 0, or -errno as from borrower_channel_ask(). */
int borrower_memory_grant(int fd, struct borrower_channel *s, struct borrower_call *c);
void borrower_probe_message(struct borrower_call *c, const struct msghdr *msg);
void borrower_probe_option(struct borrower_call *c, const void *val); /* NULL: no value */
/* the ABI revision of this program */
void borrower_set_abi(struct borrower_call *c);
/*
 * RDS_FREE_MR is about to be asked for.  True: of a region that this process has opened (*was); its
 * entry is treated as by borrower_region_freed().
 */
bool borrower_call_frees_mr(int fd, const struct borrower_call *c, struct borrower_region *was);
int borrower_barrier(int fd, const void *val, int len, bool blocks);

/* ---- borrower_shown.c ---- */
/* A receive that does not sleep: a message that the owner has shown.  -EAGAIN: the owner has to be asked. */
ssize_t borrower_recv_shown(int fd, struct msghdr *msg, int flags);

/* ---- borrower_regions.c ---- */
/*
 * A call on that channel has opened the region that it asked for.  Only the key comes from the
 * owner; the addresses are those that this process asked for.
 */
void borrower_region_add(const struct borrower_channel *s, uint32_t rkey, const struct rds_mr_request *asked);
/*
 * The region is about to be freed: its entry goes.  A thread that comes later does not open it at a
 * new owner.  A thread that is just reporting it to a new owner frees it there afterwards.
 * rkey 0: all regions of that socket.  False: there was no entry.
 */
bool borrower_region_freed(uint64_t inode, uint32_t rkey, struct borrower_region *was);
void borrower_region_keep(const struct borrower_region *was); /* the region was not freed */
/* Before a call: reports our regions to a new owner.  Result as of borrower_channel_ask(). */
int borrower_regions_send(int fd, struct borrower_channel *s, struct borrower_call *c);
/* This process has closed its last descriptor of that socket. */
void rds_borrower_regions_drop(uint64_t inode);
void rds_borrower_regions_forget(void);		/* forked child */

/* ---- borrower_channel.c ---- */
/* One request and its reply over this channel: 0, -errno, or -BORROWER_LATE. */
int borrower_channel_ask(int fd, struct borrower_channel *s, struct borrower_call *c);

/* ---- borrower_wait.c ---- */
#define BORROWER_LOOK_MS 20 /* between looks at the state of the owner */
#define BORROWER_LATE 518   /* no errno: the call waits no longer, its result is c->late */
/*
 * Waits for `p`.  greeted: on a channel that the owner has accepted.  0, -BORROWER_LATE,
 * -RDS_BORROWER_TAKE_OVER, or -ENOTCONN.  A cancellation point for the calls that are one in the
 * kernel and may sleep; cancellation drops c->busy.
 */
int borrower_wait(int fd, struct borrower_call *c, struct pollfd *p, bool greeted);
/*
 * Waits for the owner's HELLO on a channel that no call waits for (rds_borrower_attach()).  False:
 * it has not come yet.
 */
bool borrower_await_hello(int fd, uint64_t inode, struct pollfd *p);
/*
 * Before the next attempt to get a channel: 0, an error as from borrower_wait(), or -EMFILE.
 * refused: when the first attempt has failed, 0 before.
 */
int borrower_pause(int fd, struct borrower_call *c, uint64_t *refused);
/* The last attempt has led somewhere: who refuses next is waited for anew. */
void borrower_refused_no_more(void);
/*
 * The call sleeps at the owner, and this thread until it can read something: bytes, or -1 and
 * c->late says why.  A cancellation point.
 */
ssize_t borrower_sleep(struct borrower_channel *s, struct borrower_call *c, struct rds_share_reply *ready);
struct rds_borrower_wait *borrower_call_wait(struct borrower_call *c);
/* Before a sleep without looks: a call that may sleep holds signals back no longer. */
void borrower_release_signals(struct borrower_call *c);
bool borrower_call_ends(const struct borrower_call *c); /* it may end with -BORROWER_LATE */
/* The owner may make the call later, when no thread waits for it any more. */
bool borrower_call_lasts(const struct borrower_call *c);
/*
 * True: the call was not made, and never is if the channel is closed.  False: the owner is making
 * it, and this thread waits for it to its end.
 */
bool borrower_withdraw(struct borrower_channel *s, struct borrower_call *c);

/*
 * Makes the call: its result.  Whatever the result, borrower_call_end() comes afterwards; what the
 * reply points to is valid until then.
 */
int64_t borrower_call(int fd, struct borrower_call *c);
bool borrower_is_attached(int fd); /* there is a channel, so the owner keeps the stand-in current */
void borrower_call_end(struct borrower_call *c);
/* The message in the reply could not be delivered: it goes back to the owner. */
void borrower_put_back(struct borrower_call *c);

#endif
