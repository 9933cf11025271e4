/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * revision.h - the RDMA interface of 2007 and 2008 as a program of each revision has it:
 * structures, calls, and what comes.
 */
#ifndef RDMAOPS_REVISION_H
#define RDMAOPS_REVISION_H

#include <fcntl.h>

#undef F_NOTIFY /* of directories */
#include "rdma.h"

#define LEN 5000 /* of an operation */
#define GARBAGE 0xe7e7e7e7e7e7e7e7ull

enum age { A0, A1, A2, B1, B2, C, D };
extern enum age age; /* of this program */
extern int level;    /* SOL_RDS, as it had it */
extern bool looks_up; /* it has read the numbers in /proc first */

extern int fd;
extern struct sockaddr_in peer;

bool has_barrier(void);
bool has_notice(void);

/* ---- structures ---- */

struct barrier24 {
	uint32_t daddr, flags;
	uint64_t rdma_id_addr, wait_rdma_id;
};

struct barrier32 {
	uint32_t daddr, hole;
	uint64_t flags, rdma_id_addr, wait_rdma_id;
};

struct args_a { /* A0, A1 */
	struct vec remote;
	uint64_t r_key, local_vec, nr_local, flags, rdma_id_addr;
};

struct args_a2 { /* and B1 */
	uint64_t cookie;
	struct vec remote;
	uint64_t local_vec, nr_local, flags, rdma_id_addr;
};

struct args_b2 {
	struct args_a2 a;
	uint32_t user_token, pad;
};

struct args_c {
	uint64_t cookie;
	struct vec remote;
	uint64_t local_vec, nr_local, flags;
	uint32_t user_token, pad;
};

_Static_assert(sizeof(struct barrier24) == 24 && sizeof(struct barrier32) == 32, "BARRIER");
_Static_assert(sizeof(struct args_a) == 56 && sizeof(struct args_a2) == 56 && sizeof(struct args_b2) == 64 &&
		       sizeof(struct args_c) == 56 && offsetof(struct args_c, user_token) == 48,
	       "RDMA_ARGS");

/* ---- calls: the result, or -errno ---- */

int set(int option, const void *value, socklen_t len);
/* What GET_MR takes, 32 bytes: LEN bytes at addr. */
void region_words(void *out, void *addr, uint64_t *cookie, uint64_t *phys, bool once);
int free_region(uint64_t cookie, bool invalidate);
int barrier_to(uint32_t daddr, uint64_t wait, bool dontwait, uint64_t *mark);
int barrier(uint64_t wait, bool dontwait, uint64_t *mark); /* to the peer */
int send_with(const void *data, size_t len, int type, const void *cmsg, size_t cmsg_len);

/* ---- what comes ---- */

struct came {
	size_t len;
	bool letter, note;
	uint64_t cookie, token;
	int status;
	unsigned char body[64];
};

struct came next(const char *what); /* waits for it */

#endif
