/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * trunk.h - what one process keeps for others of this host, while it moves their messages to and from
 * another host, and what the next process finds of that if the first one is killed (README.md).
 *
 * A *trunk* is that memory, for one pair of addresses.  One process writes it, its owner.  It must not
 * know how bytes move: a *carrier* is whatever connection does that, and has a descriptor or none.
 */
#ifndef ENGINE_TRUNK_TRUNK_H
#define ENGINE_TRUNK_TRUNK_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/node/registry.h"

struct rds_trunk;     /* of which this process is the owner */
struct rds_trunk_ref; /* a message that is kept in one */

enum rds_trunk_way {
	RDS_TRUNK_OUT = 1, /* from a process of this host */
	RDS_TRUNK_IN,	   /* from the other host */
};

struct rds_trunk_message {
	uint8_t way;
	bool marked; /* IN: the other host had sent it before */
	uint16_t sport, dport;
	uint32_t len;
	uint32_t number;	  /* OUT: among those of that process; 0: it has none.  IN: the host's generation */
	struct rds_procid member; /* OUT: that process */
	uint64_t seq;		  /* towards the other host, or its own; OUT: 0: none yet */
	const void *data;
};

/* Both ends, and what this host says of itself there. */
struct rds_trunk_name {
	struct in6_addr laddr, faddr;
	uint32_t scope;
	uint32_t gen;
};

/* ---- memory.c: the owner ---- */

/* NULL and *err: no memory, or no descriptor.  Helper, like all that uses descriptors. */
struct rds_trunk *rds_trunk_new(const struct rds_trunk_name *name, int *err);
/* It ends when all its messages have ended, too.  Its packet stays in the box until that is tidied. */
void rds_trunk_put(struct rds_trunk *t);
const struct rds_trunk_name *rds_trunk_name(const struct rds_trunk *t);
void rds_trunk_forget(void);			     /* forked child */
void rds_trunk_left(struct rds_trunk *t, bool left); /* the owner writes nothing there any more */

/* rx.  NULL: no room */
struct rds_trunk_ref *rds_trunk_add(struct rds_trunk *t, const struct rds_trunk_message *m);
/* Any lock.  It need not be kept any more. */
void rds_trunk_drop(struct rds_trunk_ref *ref);
/* rx.  Gives memory back, if nothing is kept. */
void rds_trunk_trim(struct rds_trunk *t);
/* The number that an OUT message gets. */
void rds_trunk_ref_number(struct rds_trunk_ref *ref, uint64_t seq);
/* rx.  Has a former owner had the message with that number of a process? */
bool rds_trunk_had(const struct rds_trunk *t, const struct rds_procid *member, uint32_t number);

/* Messages of which the owner has to know when they have arrived: in order of the numbers they got. */
struct rds_trunk_refs {
	struct rds_trunk_ref *first, **last;
};
void rds_trunk_refs_add(struct rds_trunk_refs *refs, struct rds_trunk_ref *ref, uint64_t seq);
void rds_trunk_refs_drop(struct rds_trunk_refs *refs, uint64_t up_to); /* UINT64_MAX: all */
/* Takes out the one with that number; NULL: there is none.  *at: where to look from, and then for a higher number. */
struct rds_trunk_ref *rds_trunk_refs_take(struct rds_trunk_refs *refs, struct rds_trunk_ref ***at, uint64_t seq);

/* Numbers: stored before the message goes, or when it is over. */
void rds_trunk_sending(struct rds_trunk *t, uint64_t seq);
void rds_trunk_acked(struct rds_trunk *t, uint64_t seq);
void rds_trunk_received(struct rds_trunk *t, uint64_t next_rx, uint32_t peer_gen);

/* ---- memory.c: bytes that a carrier has brought; rx ---- */

/* From byte `at` of that carrier's stream on, all that comes is received into the window. */
void rds_trunk_window_begin(struct rds_trunk *t, uint32_t carrier, uint64_t at);
/* All that the carrier has brought is done, and nothing more comes by it. */
void rds_trunk_window_end(struct rds_trunk *t, uint32_t carrier);
/* All that there is is to be read, up to n, which is at least 1. */
void *rds_trunk_window_room(const struct rds_trunk *t, size_t *n);
void rds_trunk_window_filled(struct rds_trunk *t, size_t n);
/* What is there and not done.  Another process of this user may change it at any time. */
const unsigned char *rds_trunk_window_bytes(const struct rds_trunk *t, size_t *n);
/* A message has so many bytes, and not all of them are there: makes room. */
void rds_trunk_window_fit(struct rds_trunk *t, size_t n);
/* The first n bytes are given to the engine, and are done then. */
void rds_trunk_window_frame(struct rds_trunk *t, size_t n);
void rds_trunk_window_done(struct rds_trunk *t);

/* For tests: called at each step between which another process could find something else there. */
extern void (*rds_trunk_step)(void);

/* ---- image.c: what a former owner has left ---- */

struct rds_trunk_found {
	struct rds_trunk_message m;
	uint64_t order;
	struct rds_trunk_ref *ref; /* after rds_trunk_new_from() */
};

struct rds_trunk_member {
	struct rds_procid id;
	uint32_t number; /* the last one that was had; 0: no such process */
};

#define RDS_TRUNK_MEMBERS 512u

/* How far a carrier of another process was read, as the kernel says. */
struct rds_trunk_brought {
	uint64_t bytes;
	bool or_less; /* by one: the end of the stream may be counted, and nothing has come since */
};

struct rds_trunk_image {
	struct rds_trunk_name name;
	uint64_t id;
	uint32_t peer_gen;
	uint32_t carrier; /* 0: nothing more comes by the one that came with it */
	uint64_t sent, acked, next_rx;
	/* the window: what the carrier has brought and was not done, from that byte of its stream on */
	uint64_t at;
	const unsigned char *bytes;
	size_t nbytes;
	struct rds_trunk_found *found; /* in their order */
	unsigned nfound;
	struct rds_trunk_member members[RDS_TRUNK_MEMBERS];
	void *map;
};
/*
 * Reads another process's memory, whatever is there.  carrier: of the descriptor that came with it.
 * 0 or -errno; -EPROTO: this is no trunk.
 */
int rds_trunk_image_open(int memory, uint32_t carrier, const struct rds_trunk_brought *b, struct rds_trunk_image *img);
void rds_trunk_image_close(struct rds_trunk_image *img);
/* A trunk of this process with the same content.  NULL and *err. */
struct rds_trunk *rds_trunk_new_from(struct rds_trunk_image *img, int *err);

/* ---- box.c; helper ---- */

/*
 * The box of a local address: a socket in which the owner leaves a packet for each trunk, with the
 * descriptors of its memory, of the owner itself (a pidfd) and of its carrier.  All processes of the address have the box.
 */
enum { RDS_TRUNK_MEMORY, RDS_TRUNK_OWNER, RDS_TRUNK_CARRIER, RDS_TRUNK_FDS };
struct rds_trunk_packet {
	uint32_t magic, version;
	struct in6_addr laddr, faddr;
	uint32_t scope;
	uint32_t carrier; /* its number; 0: none */
	uint32_t nfds;
	uint64_t id;   /* of the trunk */
	uint64_t made; /* when: of two for the same addresses the later one counts */
};
/* Descriptor or -errno.  It has the name, unless another box has it. */
int rds_trunk_box_new(const struct rds_procid *name);
bool rds_trunk_box_exists(const struct rds_procid *name); /* does any process have it? */
bool rds_trunk_box_is_one(int box);
/*
 * The trunk goes with that box from now on: leaves its packet there, with the carrier that it has (-1:
 * none).  0 or -errno
 */
int rds_trunk_box_put(struct rds_trunk *t, const _Atomic int *box, int carrier);
/* From now on it has that carrier.  Its number, or 0: the trunk is in no box. */
uint32_t rds_trunk_carry(struct rds_trunk *t, int carrier);
/*
 * Calls fn, unless it is NULL, for each packet that is valid, the oldest first, until it returns false.  fds are -1 where this
 * process may not have so many.  Returns how many packets there are, or have been looked at.
 */
unsigned rds_trunk_box_each(int box, bool (*fn)(const struct rds_trunk_packet *p, const int *fds, void *arg),
			    void *arg);
/*
 * The oldest packet, which stays.  fds are for the caller to close; without a carrier its one is -1.
 * -EAGAIN: there is none; -EPROTO: it is not valid; -EMFILE: this process may not have so many descriptors.
 */
int rds_trunk_box_first(int box, struct rds_trunk_packet *p, int fds[RDS_TRUNK_FDS]);
void rds_trunk_box_drop_first(int box);
/* Has the owner that has left a packet with these come to its end, or left its trunks? */
bool rds_trunk_box_is_left(const int *fds);

#endif
