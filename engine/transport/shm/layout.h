/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * layout.h - the data that two processes share: an inbox per process, a pair of rings per
 * connection, and the packets on the control socket.  The other side may overwrite all of it at any
 * time: a value is read once, checked, then used.
 *
 * Each field has one writer.  The sender writes `tail`, `want_room` and `room_seen`.  The receiver
 * writes `head`, `acked`, `seen`, `room_said`, `need_bell` and `fetches`.  Positions count bytes
 * since the ring was made and never wrap (64 bits).
 *
 * Requests for room are numbered: want_room is the number of the latest request, room_said of the
 * latest that was answered.  (A flag that one side sets and the other side clears would not be
 * enough.  It cannot tell an answer that has not been noticed from a request that has not been
 * answered.  So a thread that made another request in between would take the answer from all other
 * threads that wait for it.)
 */
#ifndef ENGINE_TRANSPORT_SHM_LAYOUT_H
#define ENGINE_TRANSPORT_SHM_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/node/registry.h"
#include "engine/sys/compiler.h"
#include "engine/transport/transport.h"
#include "engine/wire/header.h"

#define SHM_MAGIC 0x52445348u /* "RDSH" */
#define SHM_VERSION 11u
#define SHM_LINE 64u
#define SHM_CTL_BYTES 4096u
#define SHM_NEAR_BYTES (SHM_CTL_BYTES / 2 - 3 * SHM_LINE)
#define SHM_RING_MIN (64u << 10)
#define SHM_RING_MAX (64u << 20)

/*
 * The first SHM_NEAR_BYTES of a ring's positions are not in its data area but in the control page:
 * most pairs of processes exchange so few messages that they never need another page.
 */
struct shm_ring_ctl {
	_Alignas(SHM_LINE) _Atomic uint64_t tail;
	_Atomic uint32_t want_room;
	_Atomic uint32_t room_seen; /* the latest room_said that the sender has noticed */
	_Alignas(SHM_LINE) _Atomic uint64_t head;
	_Atomic uint64_t acked;
	_Atomic uint64_t seen; /* the receiver has processed everything before this position */
	_Atomic uint32_t room_said;
	/*
	 * On a cache line of its own: the sender reads it after every message, the receiver seldom
	 * changes it.
	 */
	_Alignas(SHM_LINE) _Atomic uint32_t need_bell;
	_Atomic uint32_t fetches; /* the receiver can read the sender's memory (fetch.c) */
	_Alignas(SHM_LINE) unsigned char near[SHM_NEAR_BYTES];
};
_Static_assert(offsetof(struct shm_ring_ctl, near) == 3 * SHM_LINE, "one line per writer and habit");

/* Where the record at that position lies, and how many bytes there are from there on in one piece. */
static inline unsigned char *shm_ring_at(struct shm_ring_ctl *ctl, const unsigned char *data, uint32_t size,
					 uint64_t pos)
{
	return unlikely(pos < SHM_NEAR_BYTES) ? ctl->near + pos : (unsigned char *)(uintptr_t)data + (pos & (size - 1));
}
static inline uint64_t shm_ring_rest(uint32_t size, uint64_t pos)
{
	return unlikely(pos < SHM_NEAR_BYTES) ? SHM_NEAR_BYTES - pos : size - (pos & (size - 1));
}

/*
 * A record: 64 bytes, then the payload, padded to a multiple of 64; never wraps around the end of
 * the ring, and does not begin near and end in the data area.
 *
 * A message that is too long for the ring (fragment.c) is several records, each with the message's
 * header.  All but the last are full.  No other message lies between them.
 */
enum { SHM_REC_MSG = 1, SHM_REC_PAD = 2, SHM_REC_FRAGMENT = 3 };
struct shm_rec {
	uint32_t len; /* of the whole record */
	uint32_t kind;
	uint64_t reserved;
	struct rds_wire_hdr hdr;
};
_Static_assert(sizeof(struct shm_rec) == SHM_LINE, "record header is one line");

/*
 * Ring memory.  Page 0 has the control data and the first bytes of the ring initiator->acceptor,
 * then of acceptor->initiator.  The two data areas follow.
 */
struct shm_rings {
	struct shm_ring_ctl ctl[2];
};
_Static_assert(sizeof(struct shm_rings) == SHM_CTL_BYTES, "the control page, all of it used");

/*
 * One per process: which thread handles arrivals, and which connections have something to receive.
 */
#define SHM_BELLS 4096u
#define SHM_ATT_WHO 7u
#define SHM_ATT_STEP 8u
struct shm_inbox {
	/* SHM_ATT_WHO: enum rds_attention; other bits: number of the announcement */
	_Alignas(SHM_LINE) _Atomic uint32_t attention;
	_Alignas(SHM_LINE) _Atomic uint64_t summary;   /* bit g: words[g] has a bit */
	_Alignas(SHM_LINE) _Atomic uint64_t words[SHM_BELLS / 64];
};
_Static_assert(sizeof(struct shm_inbox) <= SHM_CTL_BYTES, "the inbox is one page");

/*
 * A message that needs no ring (cells.c). Cells lie in slabs of the registry (node/registry.h) and belong
 * to their sender, who fills them and puts them on the stack of the receiver. The receiver takes all that
 * is there.
 *
 * The sender writes everything but `state` and `next` while the cell is FREE, TAKEN or REFUSED; only the
 * receiver moves it from SENT to SEEN, and from there to TAKEN or REFUSED, and changes `next` meanwhile.
 */
enum {
	SHM_CELL_FREE,	  /* never sent */
	SHM_CELL_SENT,	  /* it is on the receiver's stack, or about to be put there */
	SHM_CELL_SEEN,	  /* the receiver has it, but not yet its engine */
	SHM_CELL_TAKEN,	  /* the receiver's engine has the message: acknowledged */
	SHM_CELL_REFUSED, /* it was not for this receiver, or the receiver wants no more of the endpoint */
};
/*
 * It is the first cell of its endpoint: only such a one makes the receiver's end. So if a cell is refused,
 * all later ones of that endpoint are.
 */
#define SHM_CELL_OPENS 0x8000u
#define SHM_CELL_CONN 0x7fffu
#define SHM_CELL_BYTES 256u
#define SHM_CELL_PAYLOAD 152u
struct shm_cell {
	_Alignas(SHM_LINE) _Atomic uint32_t next; /* number of a cell + 1 */
	_Atomic uint16_t state;
	uint16_t conn; /* the sender's number of the endpoint, and perhaps SHM_CELL_OPENS */
	uint64_t to;   /* registry_slab_word() of the receiver */
	struct rds_wire_hdr hdr;
	unsigned char payload[SHM_CELL_PAYLOAD];
	/* Which connection it is: read only if the receiver does not know the endpoint. */
	struct in6_addr laddr, faddr; /* the sender's view */
	uint32_t scope;
	uint8_t tos;
	uint8_t pad[3];
};
_Static_assert(sizeof(struct shm_cell) == SHM_CELL_BYTES, "no byte is lost");
_Static_assert(offsetof(struct shm_cell, payload) == SHM_LINE, "a message of a line is two lines");
#define SHM_SLAB_CELLS (REGISTRY_SLAB_BYTES / SHM_CELL_BYTES)
#define SHM_CELLS_MAX (REGISTRY_SLABS * SHM_SLAB_CELLS)

/*
 * The line of a process in the registry. `cells` is its stack: the number of the cell that came last, + 1,
 * below the tag of the process that looks at it. So a cell gets on the stack of the process for which
 * it is, or on none: also if its sender was stopped since it looked, and the slot has another owner.
 */
#define SHM_STACK_TAG(word) (((word) | 1) << 32) /* 0: nobody looks at it */
#define SHM_STACK_TOP(cells) ((uint32_t)(cells))
struct shm_line {
	_Atomic uint64_t cells;
	_Atomic uint32_t attention, want, want_came;
	_Atomic uint32_t service; /* somebody has woken the LAZY owner: it has not looked since */
	_Atomic uint64_t owner;	  /* registry_slab_word() of the process that looks at it; 0: nobody does */
	uint64_t wake_key;
};
_Static_assert(sizeof(struct shm_line) <= REGISTRY_LINE, "it is in a line");

/*
 * Control socket (AF_UNIX SOCK_SEQPACKET): one packet per message, native byte order (same host).
 */
enum shm_op {
	SHM_OP_HELLO = 1,   /* + descriptors: leader's pipe, helper's pipe, inbox memory */
	SHM_OP_CONNECT = 2, /* + descriptor: ring memory */
	SHM_OP_REPLY = 3,
	SHM_OP_CLOSE = 4,
	SHM_OP_LOOK = 5, /* recheck: the receiver acts as if that bell had rung */
	SHM_OP_COOL = 6, /* the sender gives the control socket up, and stays (cold.c) */
	SHM_OP_WARM = 7, /* a new control socket for a cold peer is in use; err: there is no such peer */
};
enum shm_session { SHM_SESSION_NEW, SHM_SESSION_MINE, SHM_SESSION_YOURS };
struct shm_ctl_msg {
	uint32_t magic, version;
	uint32_t op;
	int32_t err;		 /* REPLY: 0 or -errno */
	struct rds_procid self;	 /* HELLO */
	uint32_t slot;		 /* HELLO: slot in the registry */
	uint64_t id_at;		 /* HELLO: address of `self` in the sender's memory */
	/* HELLO: a thread of the sender that lives as long as the process */
	int32_t reader;
	struct in6_addr laddr, faddr; /* CONNECT: the sender's view */
	uint32_t scope;
	uint8_t tos;
	uint8_t whose; /* HELLO: enum shm_session; who has chosen `cookie` */
	uint8_t pad[2];
	uint32_t bell; /* CONNECT, REPLY: the bit by which to ring the sender of this packet */
	/* REPLY, CLOSE, LOOK: the receiver's own bit, as it has sent it before */
	uint32_t peer_bell;
	struct rds_received rx; /* CONNECT, REPLY: what the sender of this packet has received */
	/* Bytes per direction.  CONNECT: of the memory; REPLY: that are used, so many or fewer. */
	uint64_t ring;
	/*
	 * CONNECT, REPLY, CLOSE: number of the attempt, chosen by the initiator.  HELLO: number of
	 * the session, chosen by who has connected first.
	 */
	uint64_t cookie;
	uint64_t wake_key; /* HELLO: to be said to the sender's wake-up socket (wake_socket.c) */
};

#endif
