/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rdma.h - RDS's RDMA interface as the programs of this directory use it: layouts written out,
 * calls, control messages, and a box that sorts what a socket receives.
 *
 * Plain PF_RDS programs: nothing of the project is used, so that a fault in its headers shows.
 * Calls return -errno.  What is expected and does not come within the deadline ends the program
 * with a line that names both.
 */
#ifndef RDMAOPS_RDMA_H
#define RDMAOPS_RDMA_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../slow.h"

#define OPT_CANCEL_SENT_TO 1
#define OPT_GET_MR 2
#define OPT_FREE_MR 3
#define OPT_BARRIER 4
#define OPT_RECVERR 5
#define OPT_GET_MR_FOR_DEST 7
#define OPT_TRANSPORT 8
#define TRANSPORT_TCP 2

#define CMSG_ARGS 1
#define CMSG_DEST 2
#define CMSG_MAP 3
#define CMSG_STATUS 4
#define CMSG_CONG 5
#define CMSG_FADD 6
#define CMSG_CSWP 7
#define CMSG_MASKED_FADD 8
#define CMSG_MASKED_CSWP 9

#define F_WRITE 0x01
#define F_FENCE 0x02
#define F_INVALIDATE 0x04
#define F_USE_ONCE 0x08
#define F_NOTIFY 0x20
#define F_SILENT 0x40

#define ST_SUCCESS 0
#define ST_REMOTE_ERROR 1
#define ST_CANCELED 2
#define ST_DROPPED 3
#define ST_OTHER 4

#define PAGE 4096u
#define MIB 1048576u

struct vec {
	uint64_t addr, bytes;
};

struct get_mr {
	struct vec vec;
	uint64_t cookie_addr, flags;
};

struct get_mr_for_dest {
	unsigned char dest[128];
	struct vec vec;
	uint64_t cookie_addr, flags;
};

struct free_mr {
	uint64_t cookie, flags;
};

struct rdma_args {
	uint64_t cookie;
	struct vec remote;
	uint64_t local_vec, nr_local, flags, token;
};

struct atomic72 {
	uint64_t cookie, local_addr, remote_addr;
	uint64_t u[4]; /* cswp: compare, swap, compare_mask, swap_mask; fadd: add, nocarry_mask */
	uint64_t flags, token;
};

struct atomic56 {
	uint64_t cookie, local_addr, remote_addr, swap_add, compare, flags, token;
};

struct notify {
	uint64_t token;
	int32_t status;
	uint32_t pad;
};

_Static_assert(sizeof(struct get_mr) == 32 && sizeof(struct get_mr_for_dest) == 160 && sizeof(struct free_mr) == 16,
	       "regions");
_Static_assert(sizeof(struct rdma_args) == 56 && offsetof(struct rdma_args, token) == 48, "RDMA_ARGS");
_Static_assert(sizeof(struct atomic72) == 72 && offsetof(struct atomic72, flags) == 56, "atomics of today");
_Static_assert(sizeof(struct atomic56) == 56 && offsetof(struct atomic56, compare) == 32, "atomics of the vendor");
_Static_assert(sizeof(struct notify) == 16, "notification");

/* ---- failing ---- */

__attribute__((noreturn, format(printf, 3, 4))) void fail_at(const char *file, int line, const char *fmt, ...);
#define fail(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define check(cond, ...)                                                                                               \
	do {                                                                                                           \
		if (!(cond))                                                                                           \
			fail("not true: " #cond ": " __VA_ARGS__);                                                     \
	} while (0)
/* A call's result, an -errno or a number: what was wanted, what came, and for what. */
#define expect(got, want, ...) expect_at(__FILE__, __LINE__, #got, (long)(got), (long)(want), __VA_ARGS__)
__attribute__((format(printf, 6, 7))) void expect_at(const char *file, int line, const char *what, long got, long want,
						     const char *fmt, ...);
/* The first byte that differs, if one does. */
#define expect_bytes(got, want, len, ...) expect_bytes_at(__FILE__, __LINE__, got, want, len, __VA_ARGS__)
__attribute__((format(printf, 6, 7))) void expect_bytes_at(const char *file, int line, const void *got,
							   const void *want, size_t len, const char *fmt, ...);

/* ---- small things ---- */

uint64_t mix(uint64_t z);
void pattern(void *buf, size_t len, uint64_t key); /* bytes that follow from key */
/* private memory of its own, a page without access on both sides */
void *pages(size_t bytes);
double seconds(void);
double deadline(void); /* how long this directory waits for what has to come, in seconds (slow.h) */
/*
 * In a loop that waits for it; since: when it began.  Says once what it waits for when that takes
 * long, and is late in the end.
 */
#define waits(since, ...) waits_at(__FILE__, __LINE__, since, __VA_ARGS__)
__attribute__((format(printf, 4, 5))) void waits_at(const char *file, int line, double *since, const char *fmt, ...);

/* ---- sockets and regions ---- */

struct sockaddr_in name_of(uint32_t addr, unsigned port);
/* RDMAOPS_ADDR, a list with commas; n counts round; without it 127.0.0.1 */
uint32_t address(unsigned n);
int rds_socket(int type);     /* -1: errno; held.c: whose it is */
int rds_bound(uint32_t addr, unsigned port);
int get_mr(int fd, const void *addr, size_t bytes, uint64_t flags, uint64_t *cookie);
int get_mr_for_dest(int fd, const struct sockaddr_in *dest, const void *addr, size_t bytes, uint64_t flags,
		    uint64_t *cookie);
int free_mr(int fd, uint64_t cookie, uint64_t flags);
int set_int(int fd, int option, int value);

/* ---- sending ---- */

struct out {
	struct sockaddr_in to;
	struct iovec iov;
	struct msghdr msg;
	_Alignas(8) unsigned char control[512];
};

void out_begin(struct out *o, const struct sockaddr_in *to, const void *payload, size_t len);
void out_cmsg(struct out *o, int type, const void *data, size_t len);
/* the length, or -errno; waits while it may block */
int out_send(struct out *o, int fd, int flags);

/*
 * One operation with a message: the two calls above around RDMA_ARGS.  remote.bytes is the sum of
 * the vectors.
 */
struct op {
	uint64_t cookie, remote_addr, flags, token;
	const struct vec *local;
	unsigned nr_local;
	const void *payload;
	size_t len;
};
int op_send(int fd, const struct sockaddr_in *to, const struct op *op);
/* A write of one vector, whose message is its number i; its notification has the token i + 1. */
void write_numbered(int fd, const struct sockaddr_in *to, struct op where, struct vec from, unsigned i);
uint64_t vec_bytes(const struct vec *v, unsigned n);

/* ---- receiving ---- */

#define BODY_MAX 65536

struct letter {
	struct sockaddr_in from;
	size_t len;
	uint64_t cookie; /* 0: it brought none */
	unsigned char *body;
};

#define BOX_MAX 2048

/* Messages that came and were not asked for yet: a ring each. */
struct box {
	int fd;
	unsigned first_note, notes, first_letter, letters;
	struct notify note[BOX_MAX];
	struct letter letter[BOX_MAX];
};

struct box *box_new(int fd);
void box_free(struct box *b);
bool box_pump(struct box *b); /* takes in what is there; false: nothing was */
int box_wait(struct box *b, int ms);
int box_status(struct box *b, uint64_t token); /* waits for that notification; its status */
#define expect_status(b, token, want, ...) expect(box_status(b, token), want, __VA_ARGS__)
/* waits for the next message; the body is the caller's */
struct letter box_letter(struct box *b);
void box_empty(struct box *b, const char *why); /* nothing came that was not asked for */

/*
 * One recvmsg without waiting, with room for so many notifications: how many came (oldest batch
 * first, as delivered).
 */
int take_notes(int fd, struct notify *n, unsigned room);

/* ---- cases ---- */

struct test_case {
	const char *name;
	void (*run)(void);
};

/*
 * By a case that cannot be run here, which returns then.  A program all of whose cases did so ends
 * with 77.
 */
__attribute__((format(printf, 1, 2))) void skip(const char *why, ...);

/*
 * argv: names of cases (none: all), --list, -l (the other side is a thread of this process), -p (a
 * device pins memory).
 */
extern bool same_process, pinned;
int cases_main(int argc, char **argv, const struct test_case *c, unsigned n);

#endif
