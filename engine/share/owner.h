/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * owner.h - the carrier's side of a shared socket (node/socket_name.h).  All of it belongs to the helper thread and needs no lock; only
 * rds_owner_wake() is for others.
 */
#ifndef ENGINE_CARRY_H
#define ENGINE_CARRY_H

#include "engine/abi/foreign_memory.h"
#include "engine/conn/incoming.h"
#include "engine/node/socket_name.h"
#include "engine/socket/socket.h"

struct rds_owner_channel {
	struct rds_helper_event ev; /* the channel */
	_Atomic int fd;
	struct rds_owner *owner;
	struct rds_foreign_memory *memory; /* the holder's (held); NULL: it has not been given */
	bool bare;		   /* it has not got what it takes to carry the socket on: there was no will yet */
	int pid;		   /* that has made the channel; 0: not known here */
	uint64_t used;		   /* when it came, or was at a call last */
	uint64_t token;		   /* with which it is given (memory_grant.h); 0: not asked for */
	struct rds_owner_channel *next;
	/* the call that sleeps */
	struct rds_owner_request *call;
	struct rds_owner_channel *wait_next;
	struct rds_timer timer;
	bool congested; /* what it waits for has no timeout, as in the kernel */
	/* of the last answer, until the holder is known to have read it */
	struct rds_inc *unread;
	uint32_t seq;
};

/* One per shared socket, as long as somebody is attached. */
struct rds_owner {
	struct rds_owner *next;
	struct rds_sock *sk; /* referenced */
	_Atomic int standin; /* a copy: whoever is attached has one as well, so it hides no last close */
	struct rds_owner_channel *holders;
	struct rds_owner_channel *waiting, **waiting_tail; /* in the order in which they came */
};

/* A request as it was read, and its bytes, on the heap. */
struct rds_owner_request {
	struct rds_share_request req;
	char *name, *control, *data;
	struct rds_foreign_memory *memory; /* the holder's (held) */
	int pid;		   /* ... process; 0: not known here */
	int memfd; /* -1: none */
	void *mapped;
	char bytes[];
};

/* owner_request.c: from a packet of so many bytes; takes the descriptor, -1: none.  0, -EPROTO: it says what cannot be, -ENOMEM. */
#define RDS_SHARE_PACKET (sizeof(struct rds_share_request) + RDS_SHARE_NAME + RDS_SHARE_CONTROL + RDS_SHARE_INLINE)
int rds_owner_request_read(const char *packet, size_t len, int memfd, struct rds_owner_request **out);
void rds_owner_request_free(struct rds_owner_request *call); /* NULL: nothing */

/* owner.c: a process brings its memory for the channel of that number.  Takes the descriptor.  0, -EPERM or -ENOMEM. */
int rds_owner_memory_granted(uint64_t token, pid_t pid, int memory);
/* owner.c, for owner_attach.c */
struct rds_owner *rds_owner_find(const struct rds_sock *sk); /* NULL: nobody is attached */
struct rds_owner *rds_owner_next(const struct rds_owner *c); /* of NULL: the first */
void rds_owner_channel_end(struct rds_owner_channel *h,
			   bool read);	  /* has it read its last answer?  Not from an event */
bool rds_owner_list(struct rds_owner *c); /* false: no memory */
void rds_owner_end(struct rds_owner *c);  /* it has no holders */
void rds_owner_channel_init(struct rds_owner_channel *h);

/* owner_attach.c: a message lies in a channel from now on, if not for long */
void rds_owner_reply_unread(void);
/* owner_attach.c: what lies on our end of a stand-in's pair?  sk is referenced by the caller.  Helper. */
void rds_owner_pair_readable(struct rds_sock *sk);
/* The helper is to look again, where nothing else would tell it.  Any thread. */
void rds_owner_look_later(struct rds_sock *sk);
/* Does a call wait there that nobody has heard of?  Any thread. */
bool rds_owner_call_waits(struct rds_sock *sk);
/* There are wills now that there were not: who has none attaches anew. */
void rds_owner_leases_made(void);
/* Calls that sleep are tried again. */
void rds_owner_round(void);
void rds_owner_attach_forget(void);
void rds_owner_forget(void); /* forked child */

/* Something has come in or gone out: any thread, any lock held. */
void rds_owner_wake(void);

/* owner_call.c: makes the call, as if it must not block.  `sleeps`: one that may would wait now, and is to be made again. */
struct rds_owner_reply {
	struct rds_share_reply a;
	char name[RDS_SHARE_NAME];
	char *control, *data; /* on the heap, or NULL */
	struct rds_inc *taken;
	bool sleeps;
};
void rds_owner_serve(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r);
void rds_owner_reply_free(struct rds_owner_reply *r);

/* owner_call.c: ... and has not been read there: it is the next one again. */
void rds_recv_put_back(struct rds_sock *sk, struct rds_inc *inc);

#endif
