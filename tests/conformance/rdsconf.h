/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the conformance programs share: the numbers and structures of the RDS socket interface,
 * written out here so that nothing of the project is needed to build them, and a few helpers
 * (rdsconf.c).
 *
 * A program is one feature. It is started with one local address (and the word "ib" if that address
 * is on an RDMA device, which RDS uses then) and prints one line per check,
 *
 *	name: observed values ok
 *
 * which must be the same on every run and on every implementation: errno names, lengths, flags, but
 * no descriptors, inode numbers, port numbers that were picked, times. The same program runs on
 * kernel RDS (the oracle) and under the preload, and the lines are compared. Where the expected
 * value is known it is asserted as well; then a wrong expectation shows on the oracle, too.
 */
#ifndef RDSCONF_H
#define RDSCONF_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../slow.h"

#if !__GLIBC_PREREQ(2, 32)
#define strerrorname_np(err) strerror(err) /* not for comparison */
#endif

#ifndef AF_RDS
#define AF_RDS 21
#endif
#ifndef SOL_RDS
#define SOL_RDS 276
#endif

/* socket options of level SOL_RDS */
enum {
	RDS_CANCEL_SENT_TO = 1,
	RDS_GET_MR = 2,
	RDS_FREE_MR = 3,
	RDS_BARRIER = 4,
	RDS_RECVERR = 5,
	RDS_CONG_MONITOR = 6,
	RDS_GET_MR_FOR_DEST = 7,
	SO_RDS_TRANSPORT = 8,
	SO_RDS_MSG_RXPATH_LATENCY = 10,
	RDS_INFO_COUNTERS = 10000,
	RDS_INFO_CONNECTIONS = 10001,
	RDS_INFO_SEND_MESSAGES = 10003,
	RDS_INFO_RETRANS_MESSAGES = 10004,
	RDS_INFO_RECV_MESSAGES = 10005,
	RDS_INFO_SOCKETS = 10006,
	RDS_INFO_TCP_SOCKETS = 10007,
	RDS_INFO_IB_CONNECTIONS = 10008,
	RDS6_INFO_CONNECTIONS = 10011,
	RDS6_INFO_SEND_MESSAGES = 10012,
	RDS6_INFO_RETRANS_MESSAGES = 10013,
	RDS6_INFO_RECV_MESSAGES = 10014,
	RDS6_INFO_SOCKETS = 10015,
};

/* control messages of level SOL_RDS */
enum {
	RDS_CMSG_RDMA_ARGS = 1,
	RDS_CMSG_RDMA_DEST = 2,
	RDS_CMSG_RDMA_MAP = 3,
	RDS_CMSG_RDMA_STATUS = 4,
	RDS_CMSG_CONG_UPDATE = 5,
	RDS_CMSG_ATOMIC_FADD = 6,
	RDS_CMSG_ZCOPY_COOKIE = 12,
	RDS_CMSG_RXPATH_LATENCY = 11,
};

#define RDS_INFO_CONNECTION_FLAG_CONNECTED 0x04

enum { RDS_TRANS_IB = 0, RDS_TRANS_TCP = 2, RDS_TRANS_LOOP = 3 };

#define SIOCRDSSETTOS 0x89E0
#define SIOCRDSGETTOS 0x89E1

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

struct rds_iovec {
	uint64_t addr;
	uint64_t bytes;
};

struct rds_get_mr_args {
	struct rds_iovec vec;
	uint64_t cookie_addr;
	uint64_t flags;
};

struct rds_free_mr_args {
	uint64_t cookie;
	uint64_t flags;
};

struct rds_rdma_args {
	uint64_t cookie;
	struct rds_iovec remote_vec;
	uint64_t local_vec_addr;
	uint64_t nr_local;
	uint64_t flags;
	uint64_t user_token;
};

struct rds_rx_trace_so {
	uint8_t rx_traces;
	uint8_t rx_trace_pos[3];
};

struct rds_cmsg_rx_trace {
	uint8_t rx_traces;
	uint8_t rx_trace_pos[3];
	uint64_t rx_trace[3];
};

struct rds_info_counter {
	char name[32];
	uint64_t value;
} __attribute__((packed));

struct rds_info_connection {
	uint64_t next_tx_seq, next_rx_seq;
	uint32_t laddr, faddr;
	char transport[16];
	uint8_t flags, tos;
} __attribute__((packed));

struct rds6_info_connection {
	uint64_t next_tx_seq, next_rx_seq;
	struct in6_addr laddr, faddr;
	char transport[16];
	uint8_t flags;
} __attribute__((packed));

struct rds_info_message {
	uint64_t seq;
	uint32_t len, laddr, faddr;
	uint16_t lport, fport;
	uint8_t flags, tos;
} __attribute__((packed));

struct rds_info_socket {
	uint32_t sndbuf, bound_addr, connected_addr;
	uint16_t bound_port, connected_port;
	uint32_t rcvbuf;
	uint64_t inum;
} __attribute__((packed));

struct rds6_info_socket {
	uint32_t sndbuf;
	struct in6_addr bound_addr, connected_addr;
	uint16_t bound_port, connected_port;
	uint32_t rcvbuf;
	uint64_t inum;
} __attribute__((packed));

struct rds6_info_message {
	uint64_t seq;
	uint32_t len;
	struct in6_addr laddr, faddr;
	uint16_t lport, fport;
	uint8_t flags, tos;
} __attribute__((packed));

/* A socket address with its length. */
struct name {
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_storage ss;
	};
	socklen_t len;
};

extern const char *conf_text;		/* the local address as it was given */
extern void *volatile conf_bad;		/* a pointer to nothing; the compiler must not know that */
extern bool conf_v6;			/* it is an IPv6 one */
/* it is one of the host's own 127.0.0.0/8 or ::1 (loopback transport) */
extern bool conf_loop;
/* it is on an RDMA device (transport IB); where neither holds it is rds_tcp */
extern bool conf_ib;
extern int conf_transport;		/* RDS_TRANS_LOOP, RDS_TRANS_IB or RDS_TRANS_TCP */

/*
 * Start and end of each program; the end returns the exit status.  The runner sees to it that a
 * program ends (tests/watch): what it waits for comes, or it hangs.  Without a runner, or if some
 * process is always busy, the program is late at last (slow.h).
 */
void conf_begin(int argc, char **argv);
int conf_end(void);
/* Nothing can be checked: one line, status 77. */
void conf_skip(const char *why) __attribute__((noreturn));
/* A step that every implementation must do failed: one line, status 1. */
void conf_die(const char *what) __attribute__((noreturn));
/*
 * No check: takes a message that has been sent to fd, so that it has gone there before the program
 * ends.
 */
void conf_arrives(int fd);

/* One check. want: the known value, or NULL where only both sides are to be compared. */
void check(const char *name, const char *want, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Texts for results; each lives until some dozens of further calls. */
const char *rc(long result);		/* "5" or "-1 EINVAL" (errno must be untouched since) */
/* the same, any positive number becomes "fd" (descriptors, and closes it) */
const char *sign(long result);
const char *poll_bits(int events);
const char *msg_flags(int flags);
const char *who(const struct name *name);	/* family, address, labelled port, length */
const char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* From now on this port number is shown as this word. */
void label(int fd, const char *word);

struct name name_at(const char *address, unsigned port);
struct name name_here(unsigned port);		/* the program's local address */
/* an address of the same network that nobody has; not for conf_loop */
struct name name_far(unsigned port);
struct name name_of(int fd);			/* getsockname */
unsigned name_port(const struct name *name);

int rds_socket(void);
/* at the program's address, port picked, non-blocking off */
int rds_bound(void);
int rds_bound_to(unsigned port);
/*
 * The next socket is on one connection with the last one, even if other processes own the sockets
 * in turn (run --apart).
 */
void rds_next_beside(void);
void rds_bufs(int fd, int snd, int rcv);	/* RDS limits; 0 leaves one alone */

/* Send to another socket; result as of sendto. */
ssize_t send_to(int fd, int to, const void *data, size_t len, int flags);
/* Wait until a message can be read; false: it is an error that can. */
bool wait_message(int fd);
/* Messages in a socket's receive queue, by RDS6_INFO_RECV_MESSAGES. */
int queued(int fd);
/* Wait until there are n of them. */
bool wait_queued(int fd, int n);
/*
 * Messages of a socket in one of these lists (RDS6_INFO_SEND_MESSAGES: not sent yet;
 * RDS6_INFO_RETRANS_MESSAGES: not acknowledged); wait until none is.
 */
int listed(int fd, int list);
bool wait_sent(int fd);
/*
 * What a socket has sent to a port that no socket has is lost by now, and nothing of it comes to
 * the next one there: no message waits here, and those under way have come when one behind them
 * has.  That one goes to a socket made for this, which is on the other host between two.
 */
void all_lost(int sender);
/* A counter of RDS_INFO_COUNTERS. */
uint64_t counter(const char *name);
/*
 * That a port is congested, or is no more, is told in the background.  What the receiver has to say
 * by now is known to the sender: a message behind it has come, and is taken; the sender has no
 * other ones, and no news of its own.
 */
void cong_told(int receiver, int sender);
/*
 * If several connections bring the same update, all have done so: a sender that is refused after
 * this gets no older one.  there: any name of the receiver's host, with the receiver's address.
 */
void cong_all_told(struct name there);
/* Take a congestion update of the past out of a socket's first poll. */
void settle(int fd);
/*
 * A message from one to the other and back, so that connections exist and the maps they begin with
 * have come.
 */
void warm_up(int a, int b);
/*
 * recvmsg: "LENGTH sum SUM flags FLAGS from SENDER", the sum being one of the bytes that came, or
 * the error. Given are pieces of memory, which are cleared first, and control; there are no control
 * messages after an error.
 */
const char *recvmsg_said(int fd, struct msghdr *msg, int flags);
/* As recv, of what has to come. */
ssize_t receive(int fd, void *data, size_t len, int flags);

/* One event of a set ("1 IN data 5"), or "0", or the error; and epoll_ctl with data 5. */
const char *epoll_said(int ep, int ms);
int epoll_set(int ep, int op, int fd, unsigned events);

/* A call that may take ms has taken that long: true, or it is late. */
bool in_bounds(long long took, int ms);
void timeouts(int fd, int which, int ms);	/* which: SO_RCVTIMEO or SO_SNDTIMEO */
long long now_ms(void);

/* One call in a thread of its own. */
struct helper {
	pthread_t thread;
	int tid;
	long (*call)(void *);
	void *arg;
	long result;
	int error;
	bool joined;
};

void helper_start(struct helper *helper, long (*call)(void *), void *arg);
/* Wait until the helper's thread sleeps in its call; false if it has ended. */
bool helper_asleep(struct helper *helper);
/* One look: is it asleep in this moment, or has it ended? */
bool helper_rests(struct helper *helper);
/* Wait at most ms for its end; sets errno to the one of the call. */
bool helper_done(struct helper *helper, int ms);
/* Wait for its end, which has to come: true, or the call's result. */
bool helper_ends(struct helper *helper);
long helper_result(struct helper *helper);
/* The same for a whole process. */
bool process_asleep(int pid);
bool process_stopped(int pid);

/*
 * A socket whose blocking sends to name_far() reach the send queue's limit. (On rds_tcp seven of
 * eight sockets wait for the peer's multipath handshake instead; which ones is decided by a random
 * number in each.)
 */
int rds_bound_path0(void);

/*
 * Another process, forked off here with all that this one has. By say() and hear() the two say when
 * it is whose turn, so that what they do, and print, comes in one order.
 */
struct other {
	pid_t pid;
	int rd, wr;
};

bool fork_other(struct other *other);		/* true in the new process, which ends by _exit() */
void say(const struct other *other);
void hear(const struct other *other);
/*
 * That process and its children have ended, and have printed all: a reader of our output waits for
 * this process only.
 */
void until_gone(const struct other *other);
const char *end_of_pid(int pid);
const char *end_of(const struct other *other);	/* wait for its end: "exit 0", "signal 9" */
/*
 * A process makes a socket and is killed. The next one that uses the socket then waits for ever, to
 * be stopped by a third one, which has it as well: that one calls then(). How the first one ended.
 */
const char *made_and_left(int (*make)(void), void (*then)(int fd, pid_t next));
/*
 * A socket's name from one to the other; the port of one that is gone, or soon will be: is it to be
 * had again?
 */
void name_to(const struct other *other, int fd);
void name_from(const struct other *other, struct name *name);
bool free_again(const struct name *name);
/* A descriptor through an AF_UNIX socket, with one byte.  flags: as of recvmsg. */
void pass_fd(int line, int fd);
int passed_fd(int line, int flags);
/* Two messages to be read of it: "one" and "two". */
void two_messages(int from, int to);
/*
 * Uses a socket with these two in its queue in every way, as if it had always been there; in the
 * end it sends an answer to another one, which has got it (answered).
 */
void use_passed(const char *name, int fd, int to);
void answered(int fd, const char *name);
/* One step made by another process that has nothing else to do and ends. */
void elsewhere(void (*step)(void));

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif
