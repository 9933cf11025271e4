/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The conformance programs between two hosts: what the program's side (node 1) and the agent (node
 * 2) say to each other, over TCP connections in a network that is there for this alone.  Both are
 * of one build, so structures go as they are.
 *
 * A program that does not fork has far sockets: of those that it makes, every second one is the
 * agent's, and here a number stands for it (far_sockets.c).  The linker puts __wrap_X() in front of
 * X() for each call that such a number may come to (far_calls.c, far_wait.c; "run" makes the
 * options from the names of these functions), so that programs stay what they are.  A call is
 * packed with the memory that it names, made by a thread of the agent, and its memory comes back.
 * Each thread of the program has a connection and a thread of the agent, so what sleeps there
 * sleeps here.
 *
 * A program that forks has a twin (twin.c): the same program, started on node 2, is its child.
 */
#ifndef FAR_H
#define FAR_H

#include "../rdsconf.h"

#define FAR_PORT 9700 /* of the agent, at CONFORMANCE_AGENT */

/* ---- to the agent: a line of bytes, which it answers with the port to go on with ---- */

enum far_kind {
	FAR_SOCKETS,
	FAR_TWIN,
	FAR_HEALTH, /* answered with 1, or with 0: the node's listener was lost (agent.c) */
};

struct far_start {
	uint32_t kind;
	/* FAR_TWIN: this host's address, then the words of the command, each with its 0 */
	uint32_t bytes;
};

/* ---- far sockets ---- */

enum far_what {
	FAR_SOCKET,
	FAR_BIND,
	FAR_CONNECT,
	FAR_GETSOCKNAME,
	FAR_GETPEERNAME,
	FAR_SEND,
	FAR_SENDTO,
	FAR_SENDMSG,
	FAR_SENDMMSG,
	FAR_RECV,
	FAR_RECVFROM,
	FAR_RECVMSG,
	FAR_RECVMMSG,
	FAR_READ,
	FAR_WRITE,
	FAR_READV,
	FAR_WRITEV,
	FAR_SETSOCKOPT,
	FAR_GETSOCKOPT,
	FAR_FCNTL,
	FAR_IOCTL,
	FAR_CLOSE,
	FAR_SHUTDOWN,
	FAR_DUP,
	FAR_POLL,
	FAR_SELECT,
	FAR_EPOLL_CREATE,
	FAR_EPOLL_CTL,
	FAR_EPOLL_WAIT,
	FAR_COUNTER, /* the name is argument 0 */
};

/* A call, then its pieces of memory, then their bytes one after another. */
struct far_call {
	uint32_t what, number, pieces, bytes;
	int64_t arg[6];
};

/* Its address goes into an argument (owner -1), or into another piece, which comes before it. */
struct far_piece {
	uint32_t length;
	int32_t owner;
	uint32_t where; /* number of the argument, or offset there */
	uint32_t back;	/* the bytes come back */
};

/* Then those bytes. */
struct far_result {
	int64_t result;
	int32_t error;
	uint32_t bytes;
};

/*
 * The first connection after the agent's: about calls that are under way.  The answer is an
 * int32_t.
 */
enum far_ask { FAR_ASLEEP, FAR_INTERRUPT, FAR_RESTART };

struct far_question {
	uint32_t ask;
	uint32_t link;	 /* which thread's connection (its first four bytes) */
	uint32_t number; /* and which call of it */
};

/* ---- twins ---- */

/* What its parent asks of it; the answer is an int32_t. */
enum twin_ask { TWIN_ASLEEP, TWIN_KILL };

struct twin_question {
	uint32_t ask;
	int32_t signal;
};

/* How it ended, then what it has printed. */
struct twin_end {
	int32_t status;
	uint32_t bytes;
};

/* Variables with numbers of descriptors: where the lines to it come in, and what it prints to. */
#define TWIN_LISTENER "CONFORMANCE_TWIN_LISTENER"
#define TWIN_OUTPUT "CONFORMANCE_TWIN_OUTPUT"

/* ---- far_io.c ---- */

/* All of it; false: the other side is gone. */
bool far_write(int fd, const void *data, size_t len);
bool far_read(int fd, void *data, size_t len);
int far_dial(const char *address, unsigned port);    /* close-on-exec; -1: nobody there */
int far_listen(const char *address, unsigned *port); /* port 0: any, which is told */
int far_accept(int listener);
/* Have the agent start something; a connection to it, and the port that it has told. */
int far_begin(enum far_kind kind, const char *words, size_t len, unsigned *port);
const char *far_agent(void); /* its address */
void far_die(const char *what) __attribute__((noreturn));

/* ---- far_sockets.c, for the calls ---- */

/* The agent's number for this one, -1: it is a socket of this host, or none. */
int far_of(int fd);
int far_new(int remote); /* a number here for one of the agent's */
bool far_gone(int fd);	 /* it is closed */
bool far_next(void);	 /* is the next socket a far one? */
int far_counts(int fd);	 /* this one has been made, here or there */
/* An epoll set of this host has a companion at the agent, once a far socket is put in. */
int far_set_of(int fd);
void far_set(int fd, int remote);

/*
 * A destination as it has to be seen from the other host, or from here: a program knows one address
 * only, so a port tells the host.  binding: the host is the socket's.  copy: for the new name.
 */
const struct sockaddr *far_name(int fd, const void *name, socklen_t len, struct sockaddr_storage *copy, bool binding);
void far_bound(int fd); /* it may have a port now */

/* far_news.c: every result of a send and of a receive goes through these. */
long far_sent(long result);
long far_received(long result, int flags);

/* A call in the making. */
struct far_made {
	struct far_call call;
	unsigned n;
	size_t bytes;
	void *at[1200];
	struct far_piece piece[1200];
};

#define FAR_ARG (-1)
/*
 * Memory that the call names; its number. -1: there is none, so the address goes as it is (a bad
 * one will be as bad there).  back: the call writes there.
 */
int far_memory(struct far_made *made, const void *at, size_t len, int owner, size_t where, bool back);
struct far_made *far_make(enum far_what what, int fd, long a, long b, long c, long d, long e);
long far_do(struct far_made *made); /* as the call itself; frees it */
enum {
	FAR_NONE = -1,	/* the thread is in no far call, */
	FAR_DIALS = -2, /* ... or in its first one, and not at the agent yet */
};
/* A thread of this process (tid) is in a far call: does that sleep?  Or one of these. */
int far_asleep(int tid);

#endif
