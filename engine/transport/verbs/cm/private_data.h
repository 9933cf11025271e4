/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * private_data.h - private data of rdma_cm's messages: what two processes tell each other before
 * there is a connection.
 *
 * A request through rdma_cm carries only 56 bytes on InfiniBand and RoCE (iWARP has 512, and uses
 * some more of them); replies carry more.  Addresses are not in it: rdma_cm tells from which
 * address and to which address a request came.  Big-endian.  The buffer may be longer than what
 * was sent, and its content is hostile until checked (verbs_request_check).
 *
 * Versions: a side offers the range of versions that it supports, the answer names the version
 * that is used.  Without a common version the request is refused with VERBS_NO_VERSION, and the
 * logs of both sides name both ranges.
 */
#ifndef ENGINE_TRANSPORT_VERBS_CM_PRIVATE_DATA_H
#define ENGINE_TRANSPORT_VERBS_CM_PRIVATE_DATA_H

#include <stdint.h>

#include "engine/node/registry.h"
#include "engine/transport/transport.h"

#define VERBS_MAGIC 0x52445350u /* "RDSP" */
#define VERBS_VERSION_MIN 8u
/*
 * 8: lists of congested ports (wire/header.h); 7: redirects are acknowledged (conn/port_moved.c);
 * 6 had regions that devices reach (wire/op_header.h), 5 windows (ep/keepalive.c), 4 buffers of two
 * sizes, 3 operations, 2 several messages in one frame: none of these was ever released
 */
#define VERBS_VERSION_MAX 8u

#define VERBS_CREDITS(small, large) ((large) << 8 | (small))

enum verbs_request_kind {
	VERBS_CONNECT = 1, /* a connection with process `wanted` */
	VERBS_LOCATE = 2,  /* which process has bound `port`?  Always answered by a reject. */
};

struct verbs_request {
	uint32_t magic;
	uint8_t version_min, version_max;
	uint8_t ask;
	uint8_t tos;
	union {
		uint16_t port; /* LOCATE: the RDS port */
		uint16_t held; /* CONNECT: so many behind rx_seq, as in the answer */
	};
	uint16_t listener;		/* port at which the sender itself listens */
	/* largest payload of a frame that the sender takes, in units of 64 bytes */
	uint16_t frame;
	/* VERBS_CREDITS: buffers in the sender's queue, the large ones first; 0: not counted */
	uint16_t credits;
	struct rds_procid self, wanted; /* wanted: 0 with LOCATE */
	uint64_t rx_seq;		/* what the sender acknowledges of earlier connections */
} __attribute__((packed));
_Static_assert(sizeof(struct verbs_request) == 56, "all that fits a request");

/*
 * Follows a CONNECT and its OK on devices where only a read tells whether the peer is there
 * (caps.probe_reads; these carry more than 56 bytes of private data): the part of the sender's
 * memory that may be read for that.
 */
struct verbs_window {
	uint64_t addr;
	uint32_t key, len;
} __attribute__((packed));
_Static_assert(sizeof(struct verbs_window) == 16, "the same everywhere");
#define VERBS_PROBE 8u /* bytes of a window that are read */

enum verbs_status {
	VERBS_OK = 0,
	/* go to process `self` at port `listener`: it is the wanted one, or has the port */
	VERBS_REDIRECT = 1,
	VERBS_NO_PORT = 2, /* no process of this node has bound the port */
	VERBS_GONE = 3,	   /* the wanted process does not exist any more */
	VERBS_AGAIN = 4,   /* our own attempt is under way, or resources are short just now */
	VERBS_NO_VERSION = 5,
	VERBS_REFUSED = 6, /* `error` tells why */
};

/* In a reply (status OK) or in a reject. */
struct verbs_answer {
	uint32_t magic;
	uint8_t version; /* the version to be used; with NO_VERSION the highest supported */
	uint8_t version_min;
	uint8_t status;
	uint8_t error; /* REFUSED: positive errno */
	uint16_t listener, frame, credits;
	/* the sender has received so many messages behind rx_seq (struct rds_received) */
	uint16_t held;
	struct rds_procid self;
	uint64_t rx_seq;
} __attribute__((packed));
_Static_assert(sizeof(struct verbs_answer) == 40, "fits a reject");

/* ---- private_data.c: host byte order inside, the wire's outside ---- */

/* everything that depends neither on the peer nor on a device */
void verbs_request_init(struct verbs_request *hello, enum verbs_request_kind ask, uint8_t tos);
void verbs_request_pack(const struct verbs_request *hello, struct verbs_request *wire);
/* VERBS_OK, VERBS_NO_VERSION or VERBS_REFUSED (invalid); *out is filled in as far as possible. */
enum verbs_status verbs_request_check(const void *data, unsigned len, struct verbs_request *out);
void verbs_answer_init(struct verbs_answer *answer, enum verbs_status status, int err);
void verbs_answer_pack(const struct verbs_answer *answer, struct verbs_answer *wire);
/* false: there is no answer, or it is invalid */
bool verbs_answer_check(const void *data, unsigned len, struct verbs_answer *out);
void verbs_window_pack(const struct verbs_window *window, struct verbs_window *wire);
/* False: there is no window at that offset, or it is invalid. */
bool verbs_window_check(const void *data, unsigned len, unsigned behind, struct verbs_window *out);
/* logs it, at intervals */
void verbs_version_clash(const struct in6_addr *peer, unsigned min, unsigned max);
/* UINT16_MAX: so many or more */
uint16_t verbs_cm_held(struct rds_received r);
struct rds_received verbs_cm_received(uint64_t rx_seq, uint16_t held);
uint16_t verbs_frame_units(uint32_t bytes); /* our frame size as requests and answers encode it */
/* frame size that both sides take, bytes, the same on both; theirs as encoded */
uint32_t verbs_frame_common(uint16_t theirs, uint32_t ours);

#endif
