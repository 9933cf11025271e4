/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * bench.h - contract between the parts of the benchmark worker.
 *
 * One worker is one process of a measurement.  tests/bench/run starts two or more of them, tells
 * them where their peers are and when to begin (lines on stdin), and reads what they measured
 * (lines on stdout):
 *
 *	worker says:   addr HOST PORT | ready k=v... | result k=v... | error TEXT
 *	worker hears:  peer HOST PORT | go
 *
 * The worker is an ordinary sockets program: it includes nothing of the project and does not know
 * whether a preload library answers its calls.  Whatever goes wrong ends it with an `error` line
 * and status 1, never with a result.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

struct options {
	/* rtt, stream, paced, other, poll, herd, peer, hog, first, many, ...: worker.c */
	const char *mode;
	const char *role; /* server or client; receiver or sender */
	const char *host; /* RDS, TCP: local address */
	/*
	 * other: null, pipe, poll; copy: vm, memcpy; call: getmr, barrier, poll; rdmaop: message or
	 * nothing
	 */
	const char *what;
	const char *cpus; /* list of processors, "" = do not pin */
	int fd;		  /* AF_UNIX: inherited end of a pair; ping: of a pipe */
	bool rds;	  /* PF_RDS; else tcp, or AF_UNIX */
	bool tcp;
	bool spin;	  /* loop over MSG_DONTWAIT instead of blocking */
	bool reply;	  /* paced: answer each message */
	bool read;	  /* rdmaop, copy: from the other's memory, not into it */
	bool map;	  /* rdmaop: regions by RDS_CMSG_RDMA_MAP, not by RDS_GET_MR */
	unsigned size;	  /* bytes per message, per operation, of a region */
	/*
	 * stream: messages in flight, 0 = as many as the buffers hold; rdmaop: operations; crowd:
	 * messages to each
	 */
	unsigned window;
	unsigned senders; /* stream receiver: how many senders will come */
	unsigned id;	  /* stream sender: its number, 0 .. senders - 1 */
	unsigned gap_us;  /* paced: one message every so many microseconds */
	/*
	 * open so many further sockets first; herd: number of peers; starts, forked, crowd,
	 * clients: of processes
	 */
	unsigned idle;
	unsigned files;	  /* crowd, clients: RLIMIT_NOFILE of each process, 0 = leave */
	unsigned tos;	  /* RDS: type of service, which has connections of its own; 0 = leave */
	unsigned buffer;  /* SO_SNDBUF and SO_RCVBUF, 0 = leave */
	unsigned limit;	  /* seconds until SIGALRM ends a stuck worker */
	double seconds;	  /* length of the measurement */
};

/* ---- messages ---- */

#define BENCH_MAGIC 0x52644242u

enum kind { KIND_WARM = 1, KIND_DATA, KIND_END, KIND_HELLO, KIND_ACK };

struct message {
	uint32_t magic;
	uint16_t kind;
	uint16_t id;	/* sender */
	uint64_t seq;	/* counts from 0 per sender and per kind */
	uint64_t stamp; /* CLOCK_MONOTONIC of the sender */
	uint64_t tail;	/* in longer messages it is the last 8 bytes: seq again */
};

/* ---- sock.c: one socket of either side ---- */

struct sock {
	int fd;
	bool rds, tcp, spin;
	bool listens; /* TCP: the first message comes over a connection that is made then */
	struct sockaddr_storage peer;
	socklen_t peerlen; /* 0 on the AF_UNIX and TCP sides: these are connected */
	char *buf;	   /* size bytes, begins with struct message */
	unsigned size;
	unsigned next; /* TCP: bytes of the next message that comes */
};

void sock_open(struct sock *s, const struct options *o);
void sock_announce(struct sock *s);	  /* prints addr */
void sock_await_peer(struct sock *s);	  /* hears peer */
void sock_close(struct sock *s);
/* Makes the first len bytes of s->buf a message with this header; sends it. */
void sock_fill(struct sock *s, unsigned len, enum kind kind, unsigned id, uint64_t seq);
void sock_send(struct sock *s, unsigned len, enum kind kind, unsigned id, uint64_t seq);
/* Receives into s->buf; checks the header; the sender becomes s->peer. Returns the length. */
unsigned sock_recv(struct sock *s);
/* the n bytes of s->buf are a message: begin and end */
void sock_check(const struct sock *s, ssize_t n);
void sock_came_from(struct sock *s, const struct sockaddr_storage *from, socklen_t len);
static inline struct message *sock_message(struct sock *s)
{
	return (struct message *)(void *)s->buf;
}
int sock_rds(const char *host); /* bound PF_RDS socket or -1 with errno */
void sock_tos(int fd, unsigned tos);
int sock_buffer(int fd, int opt); /* SO_SNDBUF or SO_RCVBUF as the socket reports it */

/* ---- members.c: many processes of one measurement ---- */

#define MEMBER_GATES 3

struct gates {
	unsigned members;
	_Alignas(64) _Atomic uint32_t come; /* members that have come to a gate; all gates */
	_Alignas(64) _Atomic uint32_t open; /* gates that are open */
};

/* In memory that all of them share; written by its own process. */
struct member {
	_Alignas(64) struct sockaddr_storage name;
	socklen_t len;
	unsigned number;
	pid_t pid;
	struct gates *gates;
	uint32_t passed;
	uint64_t cpu_ns[MEMBER_GATES]; /* that it had used when each gate opened */
	uint64_t got;		       /* messages that have come to it */
};

struct members {
	const struct options *o;
	unsigned n;
	struct gates *gates;
	struct member *all;
	uint64_t end; /* whoever has not come by then is missing */
};

/* The starter has none of their sockets.  Whatever it finds wrong ends all of them. */
void members_begin(struct members *m, const struct options *o, void (*role)(struct members *, struct member *));
bool members_come(struct members *m); /* all have come to the next gate; false: not in time */
void members_go(struct members *m);   /* opens it */
uint64_t members_cpu_ns(const struct members *m, unsigned gate); /* all of them, since the one before */
void members_end(struct members *m);
__attribute__((noreturn)) void members_fail(struct members *m, const char *what);
unsigned descriptors_of(pid_t pid);
uint64_t members_kib(const struct members *m); /* memory of all together */

/* A non-blocking socket with a name: PF_RDS, or AF_UNIX SOCK_DGRAM. */
void member_open(struct member *me, struct sock *s, const struct options *o);
void member_wait(struct member *me); /* at the next gate */
enum sent { SENT, SENT_NO_ROOM, SENT_PEER_FULL };
enum sent member_send(struct sock *s, const struct member *to, unsigned id, uint64_t seq);
bool member_receive(struct sock *s); /* false: nothing there */

/* ---- slots.c: memory that operations copy ---- */

/*
 * As many buffers as may be in flight, used in turn.  A number at the beginning and the end of each
 * says what is in it.
 */
struct slots {
	char *mem;
	unsigned size, n;
};

/* -1: private memory; else a file to share */
void slots_init(struct slots *s, const struct options *o, int fd);
static inline char *slot(const struct slots *s, uint64_t seq)
{
	return s->mem + (size_t)(seq % s->n) * s->size;
}
void slot_mark(const struct slots *s, uint64_t seq, uint64_t number);
/* Ends the worker unless both ends have the number. */
void slot_expect(const struct slots *s, uint64_t seq, uint64_t number, const char *what);
void slots_blank(const struct slots *s); /* each as no operation has touched it */
uint64_t slot_blank(uint64_t seq);	 /* the number of such a one */
void slots_free(struct slots *s);

/* ---- measure.c: clocks, CPU time, samples ---- */

struct usage {
	uint64_t wall, cpu; /* ns; cpu = user + system of all threads */
	uint64_t sleeps;    /* voluntary context switches of the calling thread */
};

struct samples {
	uint64_t *v;
	size_t n, cap;
};

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct usage usage_now(void);
struct usage usage_since(struct usage start);
void samples_add(struct samples *s, uint64_t v);
uint64_t samples_percentile(struct samples *s, unsigned percent); /* sorts */
void samples_free(struct samples *s);

/* ---- worker.c ---- */

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *fmt, ...);
__attribute__((format(printf, 1, 2))) void say(const char *fmt, ...);
void hear(const char *word, char *rest, size_t size); /* next line of stdin must begin with word */

/* ---- the measurements, a file each ---- */

void run_rtt(const struct options *o);
void run_stream(const struct options *o);
void run_paced(const struct options *o);
void run_other(const struct options *o);
void run_poll(const struct options *o);
void run_herd(const struct options *o);
void run_peer(const struct options *o);
void run_hog(const struct options *o);
void run_first(const struct options *o);
void run_many(const struct options *o);
void run_rdmaop(const struct options *o);
void run_copy(const struct options *o);
void run_call(const struct options *o);
void run_ping(const struct options *o);
void run_starts(const struct options *o);
void run_forked(const struct options *o);
void run_crowd(const struct options *o);
void run_clients(const struct options *o);
void raise_limit(unsigned sockets);
unsigned open_idle_sockets(const struct options *o);

#endif
