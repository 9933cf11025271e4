/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * agent.h - the other side of an RDMA: a process (with -l a thread of this one) with RDS sockets
 * and private memory, that does what it is told over a Unix socket.
 *
 * Its memory is nobody else's: what an operation did to it is only seen by asking for a copy.
 * Start all agents before the first RDS socket of the program is opened.
 */
#ifndef RDMAOPS_AGENT_H
#define RDMAOPS_AGENT_H

#include <pthread.h>
#include <sys/types.h>

#include "rdma.h"

#define AREA (3 * MIB)
#define AGENT_PORT 4100
#define AGENT_SOCKS 2

enum agent_what {
	AGENT_GET_MR,	   /* off, len, flags -> cookie */
	AGENT_GET_MR_DEST, /* the same, by GET_MR_FOR_DEST to `to` */
	AGENT_FREE,	   /* cookie, flags */
	AGENT_FILL,	   /* off, len, key */
	AGENT_COPY,	   /* off, len: into the board */
	/* to, len, key; cmsg MAP: off, count bytes, flags -> cookie; cmsg DEST: cookie */
	AGENT_SEND,
	AGENT_RECV,	 /* then at once copies off, len into the board; -> the message */
	AGENT_RECV_FILL, /* then at once fills off, len with key */
	AGENT_QUIET,	 /* -> messages that are there */
	AGENT_UNMAP,	 /* off, len */
	AGENT_PROTECT,	 /* off, len, flags: PROT_* */
	AGENT_MAP,	 /* off, len: other memory there */
	AGENT_AREA,	 /* len, key: its memory is that of this descriptor from now on */
	AGENT_DISCARD,	 /* off, len: MADV_DONTNEED */
	AGENT_FORK,	 /* off, len, key: a child fills that, and ends */
	AGENT_CLOSE,	 /* sock */
	AGENT_RCVBUF,	 /* len */
	AGENT_WRITE,	 /* off, len to cookie, remote at `to` -> status */
	AGENT_FADD,	 /* count times flags to cookie, remote at `to`; old values at off */
	AGENT_END,
};

struct agent_cmd {
	enum agent_what what;
	unsigned sock; /* which of its sockets */
	int cmsg;
	uint64_t off, len, flags, cookie, key, remote, count;
	struct sockaddr_in to;
};

struct agent_answer {
	long result; /* 0 or more, or -errno */
	uint64_t cookie;
	struct sockaddr_in from;
};

struct agent_board {
	unsigned char area[AREA];
	unsigned char body[BODY_MAX];
};

struct agent {
	int chan, far;
	pid_t pid;
	pthread_t thread;
	unsigned number;
	struct agent_board *board;
	struct sockaddr_in name[AGENT_SOCKS];
	struct agent_answer last;
};

struct agent *agent_start(unsigned number);
void agent_ask(struct agent *a, const struct agent_cmd *cmd); /* without waiting for the answer */
long agent_answer(struct agent *a);
long agent_do(struct agent *a, const struct agent_cmd *cmd);
void agent_end(struct agent *a);
/*
 * Nothing of it runs meanwhile, the library's threads neither.  A process only, with sockets of its
 * own.
 */
bool agent_can_stop(void);
void agent_stop(struct agent *a);
void agent_go_on(struct agent *a);
void agent_kill(struct agent *a); /* by SIGKILL, and frees it */

#define AGENT(a, which, ...) agent_do(a, &(struct agent_cmd){.what = (which), ##__VA_ARGS__})

/*
 * The most used: a region that must come into being; a copy of its memory; a message that must
 * come.
 */
uint64_t agent_region(struct agent *a, uint64_t off, uint64_t len, uint64_t flags);
const unsigned char *agent_memory(struct agent *a, uint64_t off, uint64_t len);
size_t agent_recv(struct agent *a);

#endif
