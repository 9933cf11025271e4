/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * info.h - what the files behind RDS_INFO_* share.
 *
 * Sockets and counters are in the registry.  Connections and messages are known only to their
 * process.  So every process with a helper answers queries about its own (info_serve.c), and the
 * process that queries collects the answers of all (info_query.c).  Between processes they are
 * neutral records of one size.  info.c turns them into the records that programs know.
 */
#ifndef ENGINE_CALLS_INFO_H
#define ENGINE_CALLS_INFO_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/socket/socket.h"
#include "engine/transport/transport.h"
#include "engine/abi/revisions.h"

#include <sys/un.h>

/*
 * An answer to COUNTED has no records: the process has only brought its counters in the registry up
 * to date.  DEVICES are connections as devices have them, STREAMS as TCP has them.  MEMBER is the
 * process itself, then its sockets and connections (RDS_PRELOAD_INFO_MEMBERS).
 */
enum rds_info_kind {
	RDS_INFO_CONNS,
	RDS_INFO_SENDING,
	RDS_INFO_RETRANS,
	RDS_INFO_RECEIVED,
	RDS_INFO_COUNTED,
	RDS_INFO_DEVICES,
	RDS_INFO_STREAMS,
	RDS_INFO_MEMBER, /* unknown to older processes, which hang up */
	RDS_INFO_KINDS
};

/* Of MEMBER; RDS_PRELOAD_IS_PROCESS */
struct rds_info_member_process {
	uint64_t sent, sent_bytes, received, received_bytes, memory;
	int32_t pid; /* who asks sets it */
	uint32_t socks, conns, fds;
};

/* ... and RDS_PRELOAD_IS_SOCKET */
struct rds_info_member_socket {
	uint64_t snd_bytes, rcv_bytes, last_op;
	uint32_t snd_count, rcv_count, sndbuf, rcvbuf, ops;
};

struct rds_info_rec {
	union {
		struct {
			struct in6_addr laddr, faddr;
		};
		struct {	       /* of a process */
			char comm[16]; /* who asks sets it */
			char version[16];
		};
	};
	/* of a message; of a connection: the next number to send; of a socket its inode */
	uint64_t seq;
	uint64_t next_rx; /* of a connection: the next number to receive */
	union {
		uint32_t len;
		uint32_t is; /* of MEMBER: RDS_PRELOAD_IS_* */
	};
	uint16_t lport, fport; /* host byte order */
	uint8_t flags;	       /* RDS_INFO_CONNECTION_FLAG_*; of MEMBER as in the entries */
	uint8_t tos;
	uint16_t paths; /* of a connection that is up, to a node: that this one offers */
	uint32_t slot;	/* of MEMBER, who asks sets it: the number of the process whose record this is */
	char transport[16]; /* NUL-terminated */
	union {
		struct rds_ep_device dev; /* of DEVICES */
		struct rds_ep_tcp tcp;	  /* of STREAMS */
		struct {		  /* of CONNS: struct rds_conn_history */
			int64_t attempt_at, up_at, down_at;
			uint32_t attempts, reason;
			/* of MEMBER alone */
			uint32_t queued, unacked, retrans, breaks;
			int32_t peer_pid;
		};
		struct rds_info_member_process process;
		struct rds_info_member_socket sock;
	};
};
_Static_assert(sizeof(struct rds_info_rec) == 136, "the record has no holes and is the same in every build");

/* A growing list.  `full` is set when memory for it has run out. */
struct rds_info_list {
	struct rds_info_rec *recs;
	size_t n, cap;
	bool full;
};
#define RDS_INFO_MAX_RECS 65536u    /* of one process */
#define RDS_INFO_MAX_TOTAL 1048576u /* of all processes together: 136 MiB */
#define RDS_INFO_MAX_MEMBER 16384u  /* of one process in MEMBER: who watches a node asks often */

bool rds_info_push(struct rds_info_list *list, const struct rds_info_rec *rec);

/* info.c: RDS_INFO_* by getsockopt().  The size of one record, or -errno. */
int rds_info_getsockopt(struct rds_sock *sk, int opt, void *val, socklen_t *len);
/* RDS_STATS_GLOBAL; *len is known to be readable. */
int rds_info_getsockopt_2006(void *val, socklen_t *len);

/* info_local.c: appends the connections or messages of this process.  No lock held. */
void rds_info_collect(enum rds_info_kind kind, struct rds_info_list *out);
/*
 * info_query.c: collects from this process and all others of the node.  -ENOMEM.  The caller frees
 * list->recs.
 */
int rds_info_query(enum rds_info_kind kind, struct rds_info_list *out);

/*
 * info_members.c: all processes, sockets and connections of the node, with those of processes that
 * have not answered.  -errno.  The caller frees list->recs.
 */
int rds_info_members(struct rds_info_list *out);
void rds_info_member_entry(const struct rds_info_rec *r, struct rds_preload_info_entry *out);
/*
 * Writes into the answer of that process to MEMBER what only who asks knows for certain; answer:
 * RDS_PRELOAD_ANSWERED, or why there is none.  False: it is no such answer.
 */
bool rds_info_members_tag(struct rds_info_rec *recs, size_t n, const struct registry_proc *proc, int answer);

/*
 * info_serve.c.  Start and stop: with the helper, in its thread.  Forget: in a forked child, whose
 * descriptors are already closed.
 */
int rds_info_start(void);
void rds_info_stop(void);
void rds_info_forget(void);

/* ---- the protocol between two processes: one query, one answer, end of file ---- */

#define RDS_INFO_MAGIC 0x52445369u
#define RDS_INFO_VERSION 4u /* 2: connection history; 3: devices; 4: TCP */

struct rds_info_ask {
	uint32_t magic, version, kind;
};
struct rds_info_answer {
	uint32_t magic, version, kind, rec_size, n;
};

#endif
