/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * away_impl.h - between away_slots.c (channels), away.c (how a call goes over one), away_wait.c (how long it waits), away_call.c (what is in it),
 * away_rdma.c (what of that names memory) and away_regions.c (what of our memory it has opened).
 */
#ifndef ENGINE_AWAY_IMPL_H
#define ENGINE_AWAY_IMPL_H

#include <stdatomic.h>
#include <sys/uio.h>

#include "engine/away.h"
#include "engine/rdma_args.h"
#include "engine/share.h"

/* A region that this process has opened. */
struct away_region {
	uint64_t inode;
	uint32_t carrier; /* that knows of it */
	struct rds_share_region region;
};

/* One channel, and the memory for one packet. */
struct away_slot {
	_Atomic uint32_t state;
	uint32_t seq;
	uint64_t inode;
	_Atomic int fd;
	int thread;   /* that is about to close it */
	bool greeted; /* the carrier has answered that it is there */
	bool watched; /* and keeps the stand-in current */
	bool memory_given; /* or known not to be wanted (away_rdma.c) */
	uint32_t carrier;  /* its number, if it is greeted */
	unsigned regions;  /* as of when it knows of our regions (away_regions.c) */
	char *packet;
};

#define AWAY_PACKET (sizeof(struct rds_share_request) + RDS_SHARE_NAME + RDS_SHARE_CONTROL + RDS_SHARE_INLINE)

struct away_call {
	struct rds_share_request q;
	const void *name, *control;
	const struct iovec *data; /* readable */
	unsigned n_data;
	uint64_t *since; /* when the caller began to wait, 0: not yet; NULL: this call does */
	/* while it waits */
	uint64_t inode, began;
	struct away_slot *busy; /* where it waits: dropped if the thread leaves there, and with it: */
	int offered;		/* the channel's other end, -1: the carrier has it */
	struct rds_mr_request opens; /* of our memory; bytes 0: nothing */
	int late;	/* what it says when it waits no longer */
	bool cancelled; /* it waits for what became of that */
	bool asleep;	/* at the carrier */
	bool underway;	/* could not be withdrawn */
	/* afterwards */
	struct away_slot *slot;
	struct rds_share_answer a;
	const char *out_name, *out_control, *out_data; /* in the slot's packet, or mapped */
	void *mapped;
};

/* ---- away_slots.c ---- */
void away_slots_begin(void); /* before the others: what a parent had is forgotten */
bool away_slots_ours(void);
/* One with a channel, or one without (and memory for a packet), BUSY; NULL: there is none. */
struct away_slot *away_slot_idle(uint64_t inode);
struct away_slot *away_slot_free(void);
void away_slot_made(void); /* it has one now */
void away_slot_give_back(struct away_slot *s);
void away_slot_drop(struct away_slot *s);   /* with its channel */
void away_slot_unused(struct away_slot *s); /* it has none */

/* ---- away_rdma.c ---- */
int away_memory_give(int fd, struct away_slot *s, struct away_call *c); /* before the first call that names memory: 0, or -errno as of away_call() */
void away_try_message(struct away_call *c, const struct msghdr *msg);
void away_try_option(struct away_call *c, const void *val); /* NULL: there is none */
void away_age(struct away_call *c);			    /* how old this program is */
/* RDS_FREE_MR is about to be asked for.  True: of a region that this process has opened (*was), which is as away_region_freed() says. */
bool away_frees(int fd, const struct away_call *c, struct away_region *was);
int away_barrier(int fd, const void *val, int len, bool blocks);

/* ---- away_regions.c ---- */
/* By a call on that channel, which asked for this.  The key alone is the carrier's word: what it opens is ours to know. */
void away_region_made(const struct away_slot *s, uint32_t rkey, const struct rds_mr_request *asked);
/*
 * It is about to be freed: no thread that comes after this opens it again, and one that is just telling a carrier of it frees it there when it has.
 * False: it was none of these.
 */
bool away_region_freed(uint64_t inode, uint32_t rkey, struct away_region *was);
void away_region_kept(const struct away_region *was); /* it was not */
/* Before a call: 0, or -errno as of away_call(). */
int away_regions_tell(int fd, struct away_slot *s, struct away_call *c);
void rds_away_regions_gone(uint64_t inode); /* the last number of that socket is closed here */
void rds_away_regions_forget(void);	    /* forked child */

/* ---- away.c ---- */
/* One request and its answer, over this channel: 0, -errno, or -AWAY_LATE. */
int away_ask(int fd, struct away_slot *s, struct away_call *c);

/* ---- away_wait.c ---- */
#define AWAY_LOOK_MS 20 /* between looks at what may have become of the carrier */
#define AWAY_LATE 518	/* no errno: the call waits no longer, and says c->late */
/*
 * For what `p` says.  greeted: on a channel.  0, -AWAY_LATE, -RDS_AWAY_LEFT, or -ENOTCONN.  A cancellation point for calls that are one in the kernel
 * and may sleep: then c->busy goes.
 */
int away_wait(int fd, struct away_call *c, struct pollfd *p, bool greeted);
/* The carrier's hello on a channel that no call waits for (rds_away_meet()); false: not now. */
bool away_answers(int fd, uint64_t inode, struct pollfd *p);
int away_pause(int fd, struct away_call *c, unsigned tries); /* before the next attempt to get a channel; the same */
/* The call sleeps at the carrier, until something can be read: bytes, or -1, and c->late says why not.  A cancellation point. */
ssize_t away_sleep(struct away_slot *s, struct away_call *c, struct rds_share_answer *ready);
bool away_ends(const struct away_call *c);  /* it may be -AWAY_LATE */
bool away_lasts(const struct away_call *c); /* it may be made later, when nobody waits for it */
/* It was not made, and never will be if the channel is closed; or it is being made, and is waited for to its end. */
bool away_withdraw(struct away_slot *s, struct away_call *c);

/* Makes the call: its result.  Whatever it is, away_end() afterwards; what the answer points to is good until then. */
int64_t away_call(int fd, struct away_call *c);
bool away_attached(int fd); /* a channel is there, so the carrier keeps the stand-in current */
void away_end(struct away_call *c);
/* The message in the answer could not be delivered: it goes back. */
void away_put_back(struct away_call *c);

#endif
