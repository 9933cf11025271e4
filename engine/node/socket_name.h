/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * socket_name.h - one socket, several processes: what is said between them.
 *
 * The process whose engine has the socket is its *carrier*.  Every other process that has a descriptor of it (by fork, exec
 * or SCM_RIGHTS) is a *holder*: it has the stand-in alone, and has the carrier's helper make its calls.
 *
 * A holder gets at the carrier through the stand-in itself, whose other end the carrier has: it sends RDS_SHARE_ATTACH
 * there with one end of a SEQPACKET pair, the *channel*, and a copy of the stand-in.  Who can do that has the descriptor, and
 * nothing else is asked.  On a channel one call is made at a time:
 *
 *	holder	REQUEST
 *	carrier	REPLY, or first WAIT: the call sleeps, so many nanoseconds at most; READY then comes before its REPLY
 *	holder	CANCEL while it sleeps (a signal): the REPLY comes all the same, -EINTR or what was quicker
 *
 * A holder that waits no longer closes its half, or the channel: a request that has not been read is not made then (share/borrower_wait.c).
 *
 * A holder that dies with a message in a REPLY that it has not read closes the channel with something in it, which the
 * kernel tells the carrier: the message goes back to the head of the queue.  So each message reaches one reader.
 *
 * A carrier that leaves (exit, exec) puts the socket's state into a file in memory, and that file with its own end of the pair, as a packet,
 * into the program's end: the *deposit*.  It lives as long as any copy of the descriptor does, wherever that is, and goes
 * with the last one.  The first holder that takes it off is the carrier from then on; the kernel gives it to one.
 *
 * All who may become the carrier have the *inbox*, a listener with a name, and so has a deposit.  A process that ends while it still has messages
 * for a socket of nobody connects there and leaves a *parcel*, the messages in a file in memory: the kernel keeps it until the next carrier looks.
 * There may be no inbox (no descriptor, or the name was taken): then such a sender waits.
 *
 * A stand-in has an abstract AF_UNIX name, by which anybody who gets hold of it knows what it is, and by which the registry can ask the kernel
 * whether a socket that nobody carries still exists.
 *
 * All sides check what they read: lengths, order, version.
 */
#ifndef ENGINE_SHARE_H
#define ENGINE_SHARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "engine/wire/addr.h"
#include "engine/node/registry.h"

#define RDS_SHARE_MAGIC 0x48534452u /* "RDSH" */
#define RDS_SHARE_VERSION 7
#define RDS_SHARE_INLINE 65536u	       /* bytes of a message in a packet; more goes in a memfd */
#define RDS_SHARE_CONTROL 20480u       /* of control messages: the kernel's optmem_max */
#define RDS_SHARE_NAME 128u	       /* sockaddr_storage */
#define RDS_SHARE_BIG (16u << 20)      /* what one call may move at all */
#define RDS_SHARE_OPTION 4096u	       /* of an option's value: none has more */
#define RDS_SHARE_ERRNO 4095	       /* no error is more */
#define RDS_SHARE_SOCKBUF (256 * 1024) /* of a channel: one of each kind of packet fits */

enum rds_share_op {
	RDS_SHARE_SEND = 1,
	RDS_SHARE_RECV,
	RDS_SHARE_CANCEL,
	RDS_SHARE_PUT_BACK, /* the message of the last REPLY: the program's buffer was none */
	RDS_SHARE_BIND,
	RDS_SHARE_CONNECT,
	RDS_SHARE_SOCKNAME,
	RDS_SHARE_PEERNAME,
	RDS_SHARE_SETOPT,
	RDS_SHARE_GETOPT,
	RDS_SHARE_IOCTL,
	RDS_SHARE_WATCH, /* opt: edges, too */
	RDS_SHARE_TAKE_ERROR,
	RDS_SHARE_SET_ERROR,
	RDS_SHARE_BARRIER, /* its data: struct rds_barrier_request, or flags says what is wrong with it; the mark comes back */
	RDS_SHARE_MEMORY, /* where can this process's memory be given?  The answer: struct rds_grant_address */
	RDS_SHARE_REGIONS, /* its data: each struct rds_share_region that this process has opened, and another carrier was told of */
	RDS_SHARE_OPS
};

enum rds_share_kind {
	RDS_SHARE_HELLO = 1, /* with the other end, the line, the inbox and last the will, if there is one (share/lease.h) */
	RDS_SHARE_REPLY,
	RDS_SHARE_WAIT,
	RDS_SHARE_READY,
	RDS_SHARE_RETRY /* the call was not made: attach anew, or it was withdrawn */
};

/* The name of a stand-in: this, and the id in hexadecimal digits, behind a byte of zero. */
#define RDS_SHARE_PREFIX "rds.socket."

/* The name of the inbox of a socket: this, and the id of its stand-in in the same way. */
#define RDS_SHARE_MAILBOX "rds.inbox."

/* In the program's end, with four descriptors: the other end, the file, the inbox and the will, or any in place of what there is not. */
struct rds_handoff_packet {
	uint32_t magic, version;
	uint64_t size;
	uint32_t has_inbox, has_will;
};

/*
 * The file: this, then each message that was received and its bytes, each that is still to be sent and its bytes, then
 * the notifications.
 */
struct rds_share_state {
	uint32_t magic, version;
	struct rds_procid name;
	uint32_t reg_idx, n_messages;
	struct rds_addr laddr, caddr;
	uint32_t bound_scope;
	int32_t transport;
	bool bound, connected, no_rdma, tos_fixed, recverr, zerocopy, inq, cong_monitor;
	uint8_t tos;
	int32_t timestamp, err, sol_rds;
	uint32_t sndbuf, rcvbuf, rx_trace, generic;
	uint64_t sndtimeo_ns, rcvtimeo_ns;
	uint64_t cong_mask, cong_notify;
	uint64_t barrier_id; /* the last that was given out */
	bool region_freed_by_other; /* a region, than by who had opened it: nobody else knows which */
	uint32_t n_reports, n_unsent;
};

/* The will (share/lease.h): st[which] is whole. n_messages, n_reports and n_unsent are 0. */
struct rds_lease_page {
	uint32_t magic, version;
	_Atomic uint32_t which;
	uint32_t reserved;
	struct rds_share_state st[2];
};

struct rds_share_message {
	struct in6_addr saddr;
	uint16_t sport;
	uint8_t tos;
	uint32_t len;
	uint64_t cookie, real_ns, trace_ns[3];
};

/* A message that no transport has been offered (share/handoff_unsent.c). */
struct rds_share_unsent {
	struct rds_addr to;
	uint32_t len;
	uint8_t tos;
	uint8_t told;	    /* RDS_TOLD_*: with the numbers that follow */
	uint8_t notify;	    /* its own end is told also if it was a good one */
	uint8_t has_cookie; /* its receiver is told of a region */
	uint32_t zcookie, reserved;
	uint64_t token, cookie;
};

/* The end of an operation, not yet told. */
struct rds_share_report {
	uint64_t token;
	int32_t status;
	bool asked, short_form; /* asked: with its status; else only that it failed */
};

/* In the inbox, with a file of so many messages. */
struct rds_mailbox_batch {
	uint32_t magic, version;
	uint64_t size;
	uint32_t n_messages, reserved;
};

/*
 * On the stand-in, with the channel and a copy of the stand-in.  Of one that makes no call, and for which the stand-in
 * need not be kept current, only RDS_SHARE_QUIET bytes: so how many lie there unread tells whether a call waits.
 */
struct rds_share_attach {
	uint32_t magic, version;
	uint64_t reserved;
	unsigned char call[112]; /* the kernel counts as much memory for it as for the short one */
};
#define RDS_SHARE_QUIET offsetof(struct rds_share_attach, call)

/* Followed by name, control, data, in this order. */
struct rds_share_request {
	uint32_t magic;
	uint16_t op;
	uint8_t may_wait;
	uint8_t has_name; /* RECV: a name is wanted; SEND, options: there is a pointer at all */
	uint32_t seq;
	int32_t flags;				  /* msg flags */
	int32_t level, opt;			  /* options; opt: error number, edge */
	uint64_t arg;				  /* ioctl: the request; options: the length */
	uint32_t name_len, control_len, data_len; /* in this packet */
	uint32_t big;				  /* bytes in the memfd that comes with it, instead of data */
	uint32_t room, control_room;		  /* for the answer */
	uint64_t total; /* SEND: length of the message if its bytes are not here (far too long) */
	/* A call that names memory (rds_caller in foreign_memory.h); fault, of RECV: there is none where control messages are to go */
	uint8_t names_memory, fault, word;
	/* Options, and control messages: how old the program is (borrower_set_abi()), and what it may */
	uint8_t about; /* RDS_SHARE_NUMBERS, RDS_SHARE_NO_PIN; below these enum rds_info_revision */
	int32_t abi, epoch;
};

#define RDS_SHARE_NUMBERS 0x80u
#define RDS_SHARE_NO_PIN 0x40u

/* A memory region of a holder's. */
struct rds_share_region {
	uint32_t rkey, reserved;
	uint64_t base, len, flags;
};
struct rds_share_reply {
	uint32_t magic;
	uint16_t kind;
	uint16_t has_message; /* PUT_BACK is possible */
	uint32_t seq;
	int32_t flags; /* msg_flags */
	int64_t result;
	uint32_t name_len, control_len, data_len, big; /* as above */
	uint32_t len;				       /* what the call wrote to its length argument */
	uint32_t owner_id;			       /* HELLO: a number of who carries the socket now; not 0 */
	uint32_t made;				       /* by the call: a region's key; 0: none */
};

/* What another process has written where a bool is to be: anything may lie in its byte. */
static inline bool rds_share_is_bool(const bool *b)
{
	return *(const unsigned char *)b <= 1;
}

struct sockaddr_un;

/* socket_name.c */
socklen_t rds_node_name_address(const char *prefix, const struct rds_procid *name, struct sockaddr_un *sun);
void rds_node_name_bind(int standin, struct rds_procid *name); /* gives it a fresh one */
bool rds_node_name_read(int fd, struct rds_procid *name);      /* is that a stand-in, of whatever process? */
bool rds_node_name_is_peer(int pair,
			   const struct rds_procid *name); /* is that the other end of the stand-in of that name? */
bool rds_node_name_exists(const struct rds_procid *name); /* some copy of it is still open */

/* Where a process listens: an abstract name, so that nothing is left behind and the network namespace bounds it. */
socklen_t rds_node_listen_name(const struct rds_procid *id, struct sockaddr_un *out);
/*
 * Is there a process with that id on this host (network namespace), of whatever user and registry?  It listens at its name for as long as it can be
 * reached; who else did so could have a peer keep what it has for one that has ended, and nothing more.  True also if that cannot be found out.  Some
 * system calls; does not wait.
 */
bool rds_node_proc_listens(const struct rds_procid *id);
/* May the process at the other end of this connected AF_UNIX socket know, or tell, us? */
bool rds_node_peer_trusted(int fd);

#endif
