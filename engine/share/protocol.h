/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * protocol.h - one socket in several processes: the protocol between them.
 *
 * The process whose engine has the socket is its *owner*. Every other process that has a descriptor
 * of the socket (by fork, exec or SCM_RIGHTS) is a *borrower*: it has only the stand-in, and the
 * owner's helper makes its calls.
 *
 * A borrower reaches the owner through the stand-in itself, whose other end the owner has. It sends
 * struct rds_share_attach there, with one end of a SEQPACKET pair, the *channel*, and a copy of the
 * stand-in. A process that can do that has the descriptor, and nothing else is required. The owner
 * answers HELLO. A channel carries one call at a time:
 *
 *	borrower	REQUEST
 *	owner		REPLY, or first WAIT: the call sleeps, for so many nanoseconds at most;
 *			READY then comes before its REPLY
 *	borrower	CANCEL while it sleeps (a signal): the REPLY comes all the same, either
 *			-EINTR or the result, if the call was faster
 *
 * A borrower that stops waiting closes its half of the channel, or the whole channel. A request
 * that has not been read by then is not executed (share/borrower_wait.c).
 *
 * A borrower that dies before it has read a REPLY with a message closes a channel that has unread
 * data. The kernel reports that to the owner, and the message goes back to the head of the queue.
 * So each message reaches one reader.
 *
 * An owner that leaves (exit, exec) writes the socket's state into a file in memory. It sends that
 * file and its own end of the pair, as a packet, into the program's end: the *parked state*. It
 * lives as long as any copy of the descriptor, wherever that is, and ends with the last one. The
 * first borrower that takes the packet is the owner from then on. The kernel gives the packet to
 * only one process.
 *
 * All processes that may become the owner have the *mailbox*, a listener with a name; the parked
 * state contains it, too. A process that ends while it still has messages for an orphan connects
 * there and leaves a *batch*: the messages in a file in memory. The kernel keeps the batch until
 * the next owner reads it. A socket may have no mailbox (no free descriptor, or the name was
 * taken). Then such a sender waits.
 *
 * The names of stand-ins and mailboxes: node/socket_name.h.
 *
 * All sides check what they read: lengths, order, version.
 */
#ifndef ENGINE_SHARE_PROTOCOL_H
#define ENGINE_SHARE_PROTOCOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/node/registry.h"
#include "engine/rdma/mr.h"
#include "engine/socket/state_table.h"
#include "engine/wire/addr.h"

#define RDS_SHARE_MAGIC 0x48534452u /* "RDSH" */
#define RDS_SHARE_VERSION 11
/* bytes of a message in a packet; a longer message is sent in a memfd */
#define RDS_SHARE_INLINE 65536u
#define RDS_SHARE_CONTROL 20480u       /* of control messages: the kernel's optmem_max */
#define RDS_SHARE_NAME 128u	       /* sockaddr_storage */
#define RDS_SHARE_BIG (16u << 20)      /* most bytes that one call may move */
#define RDS_SHARE_OPTION 4096u	       /* of an option's value: no option has more */
#define RDS_SHARE_ERRNO 4095	       /* no errno is greater */
#define RDS_SHARE_SOCKBUF (256 * 1024) /* of a channel: one packet of each kind fits */

enum rds_share_op {
	RDS_SHARE_SEND = 1,
	RDS_SHARE_RECV,
	RDS_SHARE_CANCEL,
	/* the message of the last REPLY goes back: the program's buffer was bad */
	RDS_SHARE_PUT_BACK,
	RDS_SHARE_BIND,
	RDS_SHARE_CONNECT,
	RDS_SHARE_SOCKNAME,
	RDS_SHARE_PEERNAME,
	RDS_SHARE_SETOPT,
	RDS_SHARE_GETOPT,
	RDS_SHARE_IOCTL,
	RDS_SHARE_WATCH, /* opt: not 0 to report edges, too */
	RDS_SHARE_TAKE_ERROR,
	RDS_SHARE_SET_ERROR,
	/*
	 * Data: struct rds_barrier_request; or flags is the errno of a bad one. The reply has the
	 * mark.
	 */
	RDS_SHARE_BARRIER,
	/*
	 * Asks where this process can grant access to its memory. The reply is struct
	 * rds_grant_address.
	 */
	RDS_SHARE_MEMORY,
	/* Data: each struct rds_mr_region that this process has opened with another owner. */
	RDS_SHARE_REGIONS,
	RDS_SHARE_OPS
};

enum rds_share_kind {
	/*
	 * With four descriptors: the other end, the owner's hang-up pipe, the mailbox and last the
	 * lease, if there is one (share/lease.h).
	 */
	RDS_SHARE_HELLO = 1,
	RDS_SHARE_REPLY,
	RDS_SHARE_WAIT,
	RDS_SHARE_READY,
	RDS_SHARE_RETRY /* the call was not made: attach anew; or it was withdrawn */
};

/*
 * The packet in the program's end, with four descriptors: the other end, the file, the mailbox and
 * the lease. A missing one is replaced by any descriptor.
 */
struct rds_handoff_packet {
	uint32_t magic, version;
	uint64_t size;
	uint32_t has_mailbox, has_lease;
};

/*
 * The file: this structure, then each received message and its bytes, each message still to be sent
 * and its bytes, then the notifications.
 */
struct rds_share_state {
	uint32_t magic, version;
	struct rds_procid name;
	uint32_t reg_idx;
	uint32_t n_messages, n_unsent, n_reports;
	uint64_t barrier_id; /* the last one that was given out */
	struct rds_sock_state sock;
};
_Static_assert(RDS_SOCK_STATE_ROWS == 30 && sizeof(struct rds_share_state) == 176 && RDS_SHARE_VERSION == 11,
	       "another state: raise the version, and say here of what it is");

/*
 * The page of the lease (share/lease.h): st[which] is whole. n_messages, n_reports and n_unsent are
 * 0.
 */
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

/* A message that was not passed to any transport (share/handoff_unsent.c). */
struct rds_share_unsent {
	struct rds_addr to;
	uint32_t len;
	uint8_t tos;
	uint8_t told;	    /* RDS_REPORT_*: reported with the numbers that follow */
	uint8_t notify;	    /* its end is reported also if it succeeded */
	uint8_t has_cookie; /* its receiver gets the cookie of a region */
	uint32_t zcookie;
	uint32_t sock; /* the registry's number of the socket that it is for; 0: of any */
	uint64_t token, cookie;
};

/* The end of an operation that has not been reported yet. */
struct rds_share_report {
	uint64_t token;
	int32_t status;
	bool asked, short_form; /* asked: with its status; else only that it failed */
	bool blocks_sends;	/* until it is read, sends to `to` are refused */
	struct in6_addr to;
};

/*
 * The packet in the mailbox, with a file of so many messages. Of no bytes: with the name of the
 * socket's port, if other users may join the node (calls/port_hold.c).
 */
struct rds_mailbox_batch {
	uint32_t magic, version;
	uint64_t size;
	uint32_t n_messages, reserved;
};

/*
 * Sent on the stand-in, with the channel and a copy of the stand-in. For a channel that makes no
 * call now, and for which the stand-in need not be kept current, only RDS_SHARE_QUIET bytes are
 * sent. So the number of unread bytes tells whether a call waits.
 */
struct rds_share_attach {
	uint32_t magic, version;
	uint64_t reserved;
	unsigned char call[112]; /* the kernel charges as much memory for it as for the short one */
};
#define RDS_SHARE_QUIET offsetof(struct rds_share_attach, call)

/* Followed by name, control, data, in this order. */
struct rds_share_request {
	uint32_t magic;
	uint16_t op;
	uint8_t may_wait;
	uint8_t has_name; /* RECV: a name is wanted; SEND, options: the pointer is not NULL */
	uint32_t seq;
	int32_t flags; /* msg flags */
	/* options; opt: also the error number, the edge flag */
	int32_t level, opt;
	uint64_t arg;				  /* ioctl: the request; options: the length */
	uint32_t name_len, control_len, data_len; /* in this packet */
	/* bytes in the memfd that comes with it, instead of data */
	uint32_t big;
	uint32_t room, control_room; /* for the reply */
	/* SEND: length of the message if its bytes are not here (far too long) */
	uint64_t total;
	/*
	 * A call that names memory (struct rds_caller in abi/foreign_memory.h). fault, of RECV: the
	 * place for control messages is not mapped.
	 */
	uint8_t names_memory, fault, word;
	/*
	 * Options and control messages: the ABI revision of the program (borrower_set_abi()), and
	 * its rights. about: RDS_SHARE_NUMBERS, RDS_SHARE_NO_PIN; the bits below are enum
	 * rds_info_revision.
	 */
	uint8_t about;
	int32_t abi, epoch;
};

#define RDS_SHARE_NUMBERS 0x80u
#define RDS_SHARE_NO_PIN 0x40u

struct rds_share_reply {
	uint32_t magic;
	uint16_t kind;
	uint16_t has_message; /* PUT_BACK is possible */
	uint32_t seq;
	int32_t flags; /* msg_flags */
	/* of the call; WAIT: the timeout in ns, -1: none, 0: it ends at once */
	int64_t result;
	uint32_t name_len, control_len, data_len, big; /* as above */
	/* what the call wrote to its length argument */
	uint32_t len;
	/* HELLO: a number of the socket's owner; not 0 */
	uint32_t owner_id;
	/* made by the call: a region's key; 0: none */
	uint32_t made;
};

/* A bool that another process has written: its byte may have any value. */
static inline bool rds_share_is_bool(const bool *b)
{
	return *(const unsigned char *)b <= 1;
}

#endif
