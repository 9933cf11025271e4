/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * private_data.h - private data of rdma_cm's messages: what two processes tell each other before there is a connection.
 *
 * 56 bytes is all that a request through rdma_cm carries on InfiniBand and RoCE (iWARP has 512, and uses some more); replies carry more.
 * Addresses are not in it: rdma_cm says from which address and to which address a request came.  Big-endian.  The buffer may be longer
 * than what was sent and is hostile until checked (verbs_request_check).
 *
 * Versions: a side offers the range that it speaks, the answer names the one that is used; no common one: refused with
 * VERBS_NO_VERSION, and the log of both names both.
 */
#ifndef VERBS_PRIVATE_DATA_H
#define VERBS_PRIVATE_DATA_H

#include <stdint.h>

#include "engine/node/registry.h"

#define VERBS_MAGIC 0x52445350u /* "RDSP" */
#define VERBS_VERSION_MIN 7u
/*
 * 7: notices of moved ports are answered (conn/port_moved.c); 6 had regions that devices reach (wire/op_header.h), 5 windows (keepalive.c), 4 buffers of two
 * sizes, 3 operations, 2 several messages in one frame: none was ever released
 */
#define VERBS_VERSION_MAX 7u

#define VERBS_CREDITS(small, large) ((large) << 8 | (small))

enum verbs_request_kind {
	VERBS_CONNECT = 1, /* a connection with process `wanted` */
	VERBS_LOCATE = 2,  /* which process has `port`?  Always answered by a reject */
};

struct verbs_request {
	uint32_t magic;
	uint8_t version_min, version_max;
	uint8_t ask;
	uint8_t tos;
	uint16_t port;			/* LOCATE: the RDS port */
	uint16_t listener;		/* where the sender itself listens */
	uint16_t frame;			/* payload of a frame that it takes, in units of 64 bytes */
	uint16_t credits; /* VERBS_CREDITS: what lies in its queue, the large ones first; 0: not counted */
	struct rds_procid self, wanted; /* wanted: 0 with LOCATE */
	uint64_t rx_seq;		/* what it has received over earlier connections */
} __attribute__((packed));
_Static_assert(sizeof(struct verbs_request) == 56, "all that fits a request");

/*
 * Behind a CONNECT and its OK on devices on which only a read tells whether the peer is there (caps.probe_reads; they carry more than 56
 * bytes): what of the sender's memory may be read for that.
 */
struct verbs_window {
	uint64_t addr;
	uint32_t key, len;
} __attribute__((packed));
_Static_assert(sizeof(struct verbs_window) == 16, "the same everywhere");
#define VERBS_PROBE 8u /* bytes of it that are read */

enum verbs_status {
	VERBS_OK = 0,
	VERBS_REDIRECT = 1, /* process `self` at port `listener` (of the asked or wanted one) */
	VERBS_NO_PORT = 2,  /* nobody on this node has bound it */
	VERBS_GONE = 3,	    /* the wanted process does not exist any more */
	VERBS_AGAIN = 4,    /* our own attempt is under way, or no means just now */
	VERBS_NO_VERSION = 5,
	VERBS_REFUSED = 6, /* errno says why */
};

/* In a reply (status OK) or a reject. */
struct verbs_answer {
	uint32_t magic;
	uint8_t version; /* the one to be used; of a NO_VERSION the highest */
	uint8_t version_min;
	uint8_t status;
	uint8_t error; /* REFUSED: positive errno */
	uint16_t listener, frame, credits, reserved;
	struct rds_procid self;
	uint64_t rx_seq;
} __attribute__((packed));
_Static_assert(sizeof(struct verbs_answer) == 40, "fits a reject");

/* ---- private_data.c: host byte order inside, the wire's outside ---- */

void verbs_request_init(struct verbs_request *hello, enum verbs_request_kind ask,
			uint8_t tos); /* all that depends neither on whom we ask nor on a device */
void verbs_request_pack(const struct verbs_request *hello, struct verbs_request *wire);
/* VERBS_OK, VERBS_NO_VERSION or VERBS_REFUSED (nonsense); *out is filled in as far as it can be. */
enum verbs_status verbs_request_check(const void *data, unsigned len, struct verbs_request *out);
void verbs_answer_init(struct verbs_answer *answer, enum verbs_status status, int err);
void verbs_answer_pack(const struct verbs_answer *answer, struct verbs_answer *wire);
bool verbs_answer_check(const void *data, unsigned len, struct verbs_answer *out); /* false: none, or nonsense */
void verbs_window_pack(const struct verbs_window *window, struct verbs_window *wire);
/* False: it is not there, behind so many bytes, or nonsense. */
bool verbs_window_check(const void *data, unsigned len, unsigned behind, struct verbs_window *out);
void verbs_version_clash(const struct in6_addr *peer, unsigned min, unsigned max); /* says so */
uint16_t verbs_frame_units(uint32_t bytes); /* what we take, as hello and answer say it */
uint32_t verbs_frame_common(uint16_t theirs,
			    uint32_t ours); /* what both sides take, bytes, the same on both; theirs as said */

#endif
