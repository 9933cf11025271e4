/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the programs rdma_*.c share, on top of rdsconf.h: messages with control messages in both
 * directions, patterns in memory, and a peer. The peer is a child process, forked before anything
 * is opened, with one socket and a piece of memory; it does what it is told, one order at a time,
 * and says what came of it. So all that these programs look at happens between two processes.
 *
 * Nothing that is printed may show a key, and nothing may wait without a deadline: a wait that ends
 * without the thing waited for for a time says "timeout".
 *
 * What kernel RDS does badly when an operation fails (rxe, 6.1) is kept within a connection of its
 * own: one type of service each.
 */
#ifndef RDMACONF_H
#define RDMACONF_H

#include "rdsconf.h"

enum {
	RDS_CMSG_ATOMIC_CSWP = 7,
	RDS_CMSG_MASKED_ATOMIC_FADD = 8,
	RDS_CMSG_MASKED_ATOMIC_CSWP = 9,
};

/* flags of rds_rdma_args, rds_get_mr_args and rds_free_mr_args */
enum {
	READWRITE = 1,
	FENCE = 2,
	INVALIDATE = 4,
	USE_ONCE = 8,
	DONTWAIT = 0x10,
	NOTIFY_ME = 0x20,
	SILENT = 0x40,
};

struct rds_get_mr_for_dest_args {
	struct sockaddr_storage dest_addr;
	struct rds_iovec vec;
	uint64_t cookie_addr;
	uint64_t flags;
};

struct rds_atomic_args {
	uint64_t cookie;
	uint64_t local_addr;
	uint64_t remote_addr;
	union {
		struct {
			uint64_t compare, swap;
		} cswp;
		struct {
			uint64_t add;
		} fadd;
		struct {
			uint64_t compare, swap, compare_mask, swap_mask;
		} m_cswp;
		struct {
			uint64_t add, nocarry_mask;
		} m_fadd;
	};
	uint64_t flags;
	uint64_t user_token;
};

struct rds_rdma_notify {
	uint64_t user_token;
	int32_t status;
};

#define PAGE 4096UL
#define MIB 1048576UL
#define ARENA (3 * MIB) /* of memory, in each of the two processes, page aligned */
#define BLANK 0xee	/* what it holds where no pattern is */

#define PARENT_PORT 4180 /* the program's own socket */
#define PEER_PORT 4181
#define OTHER_PORT 4182 /* a second one of the program */

extern char *arena;
extern char *read_only; /* one page, and behind it */
extern char *hole;	/* nothing */

/* As conf_begin; ends the program where there is no RDMA. */
void rdma_begin(int argc, char **argv);

/* The same with a peer (below): its name, and the program's own socket. */
int rdma_begin_pair(int argc, char **argv, struct name *to);
/* The end of it.  Neither side may have unread messages.  Returns the exit status. */
int rdma_end_pair(int fd);

/*
 * The memory: all blank; a pattern in a part of it; whether a part holds that pattern and the rest
 * is blank ("same").
 */
void blank(void);
void pattern(char *at, size_t len, unsigned seed);
const char *compare(size_t offset, size_t len, unsigned seed);

/*
 * len bytes from this offset of the memory on, as so many pieces with a few bytes between them; the
 * pattern in these, as if they were one, and whether they hold it, and all the rest is blank.
 */
void spread(struct rds_iovec *vec, unsigned n, size_t offset, size_t len);
void pattern_spread(const struct rds_iovec *vec, unsigned n, unsigned seed);
const char *compare_spread(const struct rds_iovec *vec, unsigned n, unsigned seed);

/* The control messages of one send. */
struct controls {
	char bytes[1024] __attribute__((aligned(8)));
	size_t len;
};

void add(struct controls *c, int type, const void *data, size_t len);
/* A send with these; never blocks. what: the payload, its length. */
long send_controls(int fd, const struct name *to, const struct controls *c, const void *what, size_t len);
/* The same with one of them, with two of them; the payload is the text "x". */
long send_control(int fd, const struct name *to, int type, const void *data, size_t size);
long send_two(int fd, const struct name *to, int first, const void *a, size_t a_len, int second, const void *b,
	      size_t b_len);

/*
 * A message with RDS_CMSG_RDMA_MAP for this piece of memory, its payload the text "map". Tries
 * again while the connection is being made: EAGAIN; and, on rxe, EINVAL in the moments in which
 * there is a queue pair already that is not connected yet.
 */
long map(int fd, const struct name *to, const void *addr, uint64_t len, uint64_t flags, uint64_t *cookie);
long free_mr(int fd, uint64_t cookie, uint64_t flags);

/* A socket at the program's address with this type of service (0: as it is). */
int rds_bound_tos(unsigned port, int tos);

/* Wait for POLLIN, at most 5 s. */
bool wait_in(int fd);
/*
 * One recvmsg that waits at most this long: length, payload up to 20 bytes ("..." where it is
 * longer), flags, sender, and what the control messages say: "status TOKEN:WORD", "dest OFFSET"
 * (the high half of the cookie; the whole of it goes to last_cookie).
 */
const char *take(int fd);     /* room for all, 5 s */
const char *take_now(int fd); /* no wait */
const char *take_with(int fd, size_t room, size_t control, int flags, int ms);
extern uint64_t last_cookie;
const char *status_word(int status);

/* One operation. Its message is the text "done" unless there is none or another one. */
struct op {
	uint64_t cookie;
	uint64_t offset; /* from the start of the region */
	uint64_t bytes;	 /* of the remote memory */
	const struct rds_iovec *local;
	uint64_t nr_local;
	uint64_t flags, token;
	const char *message; /* NULL: "done" */
};

long rdma(int fd, const struct name *to, const struct op *op);

/* The peer, and orders for it. */
void peer_start(void);
void peer_stop(void);
struct name peer_name(void);

/* Map a part of its memory by a message to the program's socket; the cookie. */
uint64_t peer_map(size_t offset, size_t len, uint64_t flags);
const char *peer_free(uint64_t cookie, uint64_t flags);
void peer_blank(void);
void peer_pattern(size_t offset, size_t len, unsigned seed);
const char *peer_compare(size_t offset, size_t len, unsigned seed);
const char *peer_take(void);
const char *peer_take_now(void);
const char *peer_send(const char *what); /* to the program's socket */
const char *peer_queued(int n);		 /* wait until so many messages are in its queue */
/* wait until no more of its messages are not acknowledged */
const char *peer_unacked(int n);
uint64_t peer_word(size_t offset);	 /* 8 bytes of its memory */
void peer_set_word(size_t offset, uint64_t value);
void peer_reopen(int tos); /* a new socket at the same port, with this type of service */

/*
 * What reads and writes try alike. An operation of len bytes: the region of the peer begins at
 * "region" of its memory and is as long, the local memory is n pieces from "local" on. For each: a
 * region with these flags, the operation and what comes of it (the caller's part; round: a number
 * of its own), its end. of, to: words of the checks' names.
 */
struct shape {
	size_t len, region, local;
	unsigned n;
};

typedef void shape_case(const char *name, const struct shape *s, uint64_t cookie, unsigned round);
void each_shape(const char *of, const char *to, uint64_t flags, shape_case *one);

/*
 * A region that begins within a page, at REGION_START: for each of some offsets an operation there,
 * of PLACE_LEN bytes.
 */
#define REGION_START 100
#define PLACE_LEN 10
typedef void place_case(const char *name, size_t offset, uint64_t cookie, unsigned round);
void each_place(int fd, place_case *one);

#endif
