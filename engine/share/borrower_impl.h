/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * borrower_impl.h - between borrower_pool.c (channels), borrower_channel.c (how a call goes over one), borrower_wait.c (how long it waits), borrower_call.c (what is in it),
 * borrower_rdma.c (what of that names memory) and borrower_regions.c (what of our memory it has opened).
 */
#ifndef ENGINE_AWAY_IMPL_H
#define ENGINE_AWAY_IMPL_H

#include <stdatomic.h>
#include <sys/uio.h>

#include "engine/share/borrower.h"
#include "engine/abi/rdma_args.h"
#include "engine/node/socket_name.h"

/* A region that this process has opened. */
struct borrower_region {
	uint64_t inode;
	uint32_t owner_id; /* that knows of it */
	struct rds_share_region region;
};

/* One channel, and the memory for one packet. */
struct borrower_channel {
	_Atomic uint32_t state;
	uint32_t seq;
	uint64_t inode;
	_Atomic int fd;
	int thread;   /* that is about to close it */
	bool greeted; /* the carrier has answered that it is there */
	bool watched; /* and keeps the stand-in current */
	bool memory_given; /* or known not to be wanted (borrower_rdma.c) */
	uint32_t owner_id; /* its number, if it is greeted */
	unsigned regions;  /* as of when it knows of our regions (borrower_regions.c) */
	char *packet;
};

#define BORROWER_PACKET (sizeof(struct rds_share_request) + RDS_SHARE_NAME + RDS_SHARE_CONTROL + RDS_SHARE_INLINE)

struct borrower_call {
	struct rds_share_request q;
	const void *name, *control;
	const struct iovec *data; /* readable */
	unsigned n_data;
	uint64_t *since; /* when the caller began to wait, 0: not yet; NULL: this call does */
	/* while it waits */
	uint64_t inode, began;
	struct borrower_channel *busy; /* where it waits: dropped if the thread leaves there, and with it: */
	int offered;		/* the channel's other end, -1: the carrier has it */
	struct rds_mr_request opens; /* of our memory; bytes 0: nothing */
	int late;	/* what it says when it waits no longer */
	bool cancelled; /* it waits for what became of that */
	bool asleep;	/* at the carrier */
	bool underway;	/* could not be withdrawn */
	/* afterwards */
	struct borrower_channel *slot;
	struct rds_share_reply a;
	const char *out_name, *out_control, *out_data; /* in the slot's packet, or mapped */
	void *mapped;
};

/* ---- borrower_pool.c ---- */
void borrower_pool_begin(void); /* before the others: what a parent had is forgotten */
bool borrower_pool_is_ours(void);
/* One with a channel, or one without (and memory for a packet), BUSY; NULL: there is none. */
struct borrower_channel *borrower_channel_get_idle(uint64_t inode);
struct borrower_channel *borrower_channel_get_free(void);
void borrower_channel_made(void); /* it has one now */
void borrower_channel_give_back(struct borrower_channel *s);
void borrower_channel_drop(struct borrower_channel *s);	  /* with its channel */
void borrower_channel_unused(struct borrower_channel *s); /* it has none */

/* ---- borrower_rdma.c ---- */
int borrower_memory_grant(
	int fd, struct borrower_channel *s,
	struct borrower_call *c); /* before the first call that names memory: 0, or -errno as of borrower_call() */
void borrower_probe_message(struct borrower_call *c, const struct msghdr *msg);
void borrower_probe_option(struct borrower_call *c, const void *val); /* NULL: there is none */
void borrower_set_abi(struct borrower_call *c);			      /* how old this program is */
/* RDS_FREE_MR is about to be asked for.  True: of a region that this process has opened (*was), which is as borrower_region_freed() says. */
bool borrower_call_frees_mr(int fd, const struct borrower_call *c, struct borrower_region *was);
int borrower_barrier(int fd, const void *val, int len, bool blocks);

/* ---- borrower_regions.c ---- */
/* By a call on that channel, which asked for this.  The key alone is the carrier's word: what it opens is ours to know. */
void borrower_region_add(const struct borrower_channel *s, uint32_t rkey, const struct rds_mr_request *asked);
/*
 * It is about to be freed: no thread that comes after this opens it again, and one that is just telling a carrier of it frees it there when it has.
 * False: it was none of these.
 */
bool borrower_region_freed(uint64_t inode, uint32_t rkey, struct borrower_region *was);
void borrower_region_keep(const struct borrower_region *was); /* it was not */
/* Before a call: 0, or -errno as of borrower_call(). */
int borrower_regions_send(int fd, struct borrower_channel *s, struct borrower_call *c);
void rds_borrower_regions_drop(uint64_t inode); /* the last number of that socket is closed here */
void rds_borrower_regions_forget(void);		/* forked child */

/* ---- borrower_channel.c ---- */
/* One request and its answer, over this channel: 0, -errno, or -BORROWER_LATE. */
int borrower_channel_ask(int fd, struct borrower_channel *s, struct borrower_call *c);

/* ---- borrower_wait.c ---- */
#define BORROWER_LOOK_MS 20 /* between looks at what may have become of the carrier */
#define BORROWER_LATE 518   /* no errno: the call waits no longer, and says c->late */
/*
 * For what `p` says.  greeted: on a channel.  0, -BORROWER_LATE, -RDS_BORROWER_TAKE_OVER, or -ENOTCONN.  A cancellation point for calls that are one in the kernel
 * and may sleep: then c->busy goes.
 */
int borrower_wait(int fd, struct borrower_call *c, struct pollfd *p, bool greeted);
/* The carrier's hello on a channel that no call waits for (rds_borrower_attach()); false: not now. */
bool borrower_await_hello(int fd, uint64_t inode, struct pollfd *p);
int borrower_pause(int fd, struct borrower_call *c,
		   unsigned tries); /* before the next attempt to get a channel; the same */
/* The call sleeps at the carrier, until something can be read: bytes, or -1, and c->late says why not.  A cancellation point. */
ssize_t borrower_sleep(struct borrower_channel *s, struct borrower_call *c, struct rds_share_reply *ready);
bool borrower_call_ends(const struct borrower_call *c);	 /* it may be -BORROWER_LATE */
bool borrower_call_lasts(const struct borrower_call *c); /* it may be made later, when nobody waits for it */
/* It was not made, and never will be if the channel is closed; or it is being made, and is waited for to its end. */
bool borrower_withdraw(struct borrower_channel *s, struct borrower_call *c);

/* Makes the call: its result.  Whatever it is, borrower_call_end() afterwards; what the answer points to is good until then. */
int64_t borrower_call(int fd, struct borrower_call *c);
bool borrower_is_attached(int fd); /* a channel is there, so the carrier keeps the stand-in current */
void borrower_call_end(struct borrower_call *c);
/* The message in the answer could not be delivered: it goes back. */
void borrower_put_back(struct borrower_call *c);

#endif
