/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * owner.h - the owner's side of a shared socket (protocol.h).
 *
 * All of it belongs to the helper thread and needs no lock.  Other threads may call
 * rds_owner_wake(), rds_owner_look_later() and rds_owner_call_waits() only.
 */
#ifndef ENGINE_SHARE_OWNER_H
#define ENGINE_SHARE_OWNER_H

#include "engine/abi/foreign_memory.h"
#include "engine/conn/incoming.h"
#include "engine/share/protocol.h"
#include "engine/socket/socket.h"

struct rds_owner_channel {
	struct rds_helper_event ev; /* the channel */
	_Atomic int fd;
	struct rds_owner *owner;
	struct rds_foreign_memory *memory; /* the borrower's (a reference); NULL: no access */
	/* the borrower cannot take over: there was no lease when it attached */
	bool bare;
	/* of the process that made the channel; 0: not known here */
	int pid;
	uint64_t used;			   /* when the channel was made, or had its last call */
	/* the borrower grants its memory with it (memory_grant.h); 0: not asked */
	uint64_t token;
	struct rds_owner_channel *next;
	/* the call that sleeps */
	struct rds_owner_request *call;
	struct rds_owner_channel *wait_next;
	struct rds_timer timer;
	bool congested; /* it waits for a congested port: that has no timeout, as in the kernel */
	/* The message of the last reply, until the borrower is known to have read it. */
	struct rds_inc *unread;
	uint32_t seq; /* of the call that sleeps */
};

/* One per shared socket, as long as a borrower is attached. */
struct rds_owner {
	struct rds_owner *next;
	struct rds_sock *sk; /* referenced */
	/* A copy.  Every attached borrower has one as well, so this one hides no last close. */
	_Atomic int standin;
	struct rds_owner_channel *channels;		   /* one for each channel of a borrower */
	struct rds_owner_channel *waiting, **waiting_tail; /* in the order of their calls */
	/* looks again at what was read of what is shown (owner_shown.c) */
	struct rds_timer look;
	uint64_t look_pause;
};

/* A request as it was read, with its bytes, on the heap. */
struct rds_owner_request {
	struct rds_share_request req;
	char *name, *control, *data;
	struct rds_foreign_memory *memory; /* the borrower's (a reference) */
	int pid;			   /* the borrower's; 0: not known here */
	int memfd;			   /* -1: none */
	void *mapped;
	char bytes[];
};

/*
 * owner_request.c: checks a packet of len bytes and makes a request of it.  Takes the descriptor
 * memfd (-1: none).  0, -EPROTO: the packet is invalid, -ENOMEM, or -errno of mmap().
 */
#define RDS_SHARE_PACKET (sizeof(struct rds_share_request) + RDS_SHARE_NAME + RDS_SHARE_CONTROL + RDS_SHARE_INLINE)
int rds_owner_request_read(const char *packet, size_t len, int memfd, struct rds_owner_request **out);
void rds_owner_request_free(struct rds_owner_request *call); /* NULL: nothing */

/*
 * owner.c: a process grants its memory for the channel with that token.  Takes the descriptor.
 * 0, -EPERM or -ENOMEM.
 */
int rds_owner_memory_granted(uint64_t token, pid_t pid, int memory);
/* owner.c, for owner_attach.c and owner_sleep.c */
struct rds_owner *rds_owner_find(const struct rds_sock *sk); /* NULL: no borrower is attached */
struct rds_owner *rds_owner_next(const struct rds_owner *c); /* of NULL: the first */
/*
 * read: the borrower has read its last reply.  Not from an event of another descriptor: the helper
 * may have further events at hand, of the channel that ends here.
 */
void rds_owner_channel_end(struct rds_owner_channel *h, bool read);
bool rds_owner_list(struct rds_owner *c); /* false: no memory */
void rds_owner_end(struct rds_owner *c);  /* it has no borrowers any more */
void rds_owner_channel_init(struct rds_owner_channel *h);
/* A packet that is this word and a value, to the borrower.  0 or -errno. */
int rds_owner_channel_say(struct rds_owner_channel *h, enum rds_share_kind kind, uint32_t seq, int64_t value);
struct rds_owner_reply;
/* 0, or -errno: then nothing was sent, and the caller still has the message. */
int rds_owner_send_reply(struct rds_owner_channel *h, uint32_t seq, struct rds_owner_reply *r);
int rds_owner_send_result(struct rds_owner_channel *h, uint32_t seq, int64_t result);
/* Tries the call.  True: it has been answered; *gone: that failed, and the channel is closed. */
bool rds_owner_try_call(struct rds_owner_channel *h, const struct rds_owner_request *call, bool slept, bool *gone);

/*
 * owner_sleep.c.  begin: the call cannot be answered now, and the borrower is told to sleep; true:
 * the channel is closed.  say: tells the borrower how long.  end: does nothing without such a call.
 */
bool rds_owner_sleep_begin(struct rds_owner_channel *h, struct rds_owner_request *call);
int rds_owner_sleep_say(struct rds_owner_channel *h, const struct rds_owner_request *call);
void rds_owner_sleep_end(struct rds_owner_channel *h);
void rds_owner_sleep_expired(struct rds_timer *tm); /* of a channel */
/* A message has arrived or has been sent: any thread, any lock held. */
void rds_owner_wake(void);
/* Tries the calls that sleep again. */
void rds_owner_round(void);
void rds_owner_sleep_forget(void);

/*
 * owner_shown.c: borrowers read messages from the stand-in (conn/shown.h).  begin: the first one attaches.  end: the
 * last one has gone.  look: at what was read; in each round.  back: they are the queue's again, and shown anew.
 */
void rds_owner_shown_begin(struct rds_owner *c);
void rds_owner_shown_end(struct rds_owner *c);
void rds_owner_shown_look(struct rds_owner *c);
void rds_owner_shown_anew(struct rds_owner *c);

/*
 * owner_attach.c: no descriptor is left.  True: some were in reserve, and are free now.  False:
 * there may be some soon, if borrowers have channels that they do not use.
 */
bool rds_owner_want_room(void);
/* owner_attach.c: a reply with a message is unread in a channel from now on. */
void rds_owner_reply_unread(void);
/* owner_attach.c: reads our end of a stand-in's pair.  The caller has a reference.  Helper. */
void rds_owner_pair_readable(struct rds_sock *sk);
/* The helper reads it later, where no event would make it do so.  Any thread. */
void rds_owner_look_later(struct rds_sock *sk);
/* Is there an attach request of a call that the helper has not read yet?  Any thread. */
bool rds_owner_call_waits(struct rds_sock *sk);
/* New leases have been made: borrowers without one are told to attach again. */
void rds_owner_leases_made(void);
void rds_owner_attach_forget(void);
void rds_share_fork_child(void);

/*
 * owner_call.c: makes the call as if MSG_DONTWAIT were set.  `sleeps`: a call that may block would
 * wait now; it has to be made again.
 */
struct rds_owner_reply {
	struct rds_share_reply a;
	char name[RDS_SHARE_NAME];
	char *control, *data; /* on the heap, or NULL */
	struct rds_inc *taken;
	bool sleeps;
};
void rds_owner_serve(struct rds_owner *c, const struct rds_owner_request *call, struct rds_owner_reply *r);
void rds_owner_reply_free(struct rds_owner_reply *r);

/* owner_call.c: a reply's message was not read: it is the next message of the socket again. */
void rds_owner_put_back(struct rds_sock *sk, struct rds_inc *inc);

#endif
