/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rds_preload_info.h - records of this library alone, which getsockopt() brings as RDS_INFO_* brings the kernel's: what
 * `rdsrun --node` and `--check-peer` show.  No kernel has these numbers.
 */
#ifndef INCLUDE_RDS_PRELOAD_INFO_H
#define INCLUDE_RDS_PRELOAD_INFO_H

#include "rds_abi.h"

#define RDS_PRELOAD_INFO_NODES 10200   /* struct rds_preload_info_node */
#define RDS_PRELOAD_INFO_MEMBERS 10201 /* struct rds_preload_info_entry */

/* Another host that has answered over TCP. */
struct rds_preload_info_node {
	struct in6_addr laddr;
	struct in6_addr faddr;
	uint16_t paths; /* that it offers: the kernel's RDS 8, and older kernels do not say (0); this library 1 */
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds_preload_info_node, 34);

/*
 * This host's processes, what they say of themselves.  An entry is a process, a socket or a
 * connection.  `member` tells whose it is; a socket of RDS_PRELOAD_NO_MEMBER waits for an owner.
 */
#define RDS_PRELOAD_IS_PROCESS 1
#define RDS_PRELOAD_IS_SOCKET 2
#define RDS_PRELOAD_IS_CONNECTION 3
#define RDS_PRELOAD_NO_MEMBER 1024
#define RDS_PRELOAD_OTHER_MEMBER 0x80000000u /* of another user (RDS_PRELOAD_SHARE) */

/* Has the process told?  If not, its sockets are those that the node knows of, without queues. */
#define RDS_PRELOAD_ANSWERED 0
#define RDS_PRELOAD_UNBOUND 1	    /* it has bound no socket, so there is nothing to ask for */
#define RDS_PRELOAD_SILENT 2	    /* not within the time */
#define RDS_PRELOAD_BUSY 3	    /* too many others ask, or it is stopped */
#define RDS_PRELOAD_OTHER_USER 4    /* whom this user does not trust */
#define RDS_PRELOAD_OTHER_VERSION 5 /* of the library */
#define RDS_PRELOAD_OLDER_VERSION 6 /* it has hung up, as versions do that do not know the question */
#define RDS_PRELOAD_NONSENSE 7	    /* its answer is none */
#define RDS_PRELOAD_NO_ROOM 8	    /* here, for its answer: memory or descriptors */
#define RDS_PRELOAD_ANSWERS 9

struct rds_preload_info_process {
	int32_t pid;
	uint8_t answer; /* the following is known of ANSWERED only */
	uint8_t self;	/* it is the one that asks */
	uint8_t command[16];
	uint8_t version[16];
	uint64_t sent; /* messages */
	uint64_t sent_bytes;
	uint64_t received;
	uint64_t received_bytes;
	uint64_t memory; /* bytes that the library has for messages and connections */
	uint32_t sockets;
	uint32_t connections;
	uint32_t fds; /* descriptors of the program's table that are the library's */
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds_preload_info_process, 90);

#define RDS_PRELOAD_SOCKET_BOUND 0x01
#define RDS_PRELOAD_SOCKET_CONNECTED 0x02
#define RDS_PRELOAD_SOCKET_CONGESTED 0x04 /* its queue is full: nobody may send to it */
#define RDS_PRELOAD_SOCKET_MONITOR 0x08	  /* RDS_CONG_MONITOR is set */
#define RDS_PRELOAD_SOCKET_UNTOLD 0x10	  /* from the node: the queues are not known */

struct rds_preload_info_socket {
	struct in6_addr bound_addr;
	struct in6_addr connected_addr;
	uint16_t bound_port;	 /* be16 */
	uint16_t connected_port; /* be16 */
	uint8_t flags;
	uint8_t tos;
	uint64_t inum;
	uint32_t sndbuf;
	uint32_t rcvbuf;
	uint64_t send_bytes;	/* accepted, and not acknowledged yet */
	uint64_t receive_bytes; /* not read yet */
	uint32_t send_messages;
	uint32_t receive_messages;
	uint32_t operations;	 /* RDMA operations under way */
	uint64_t last_operation; /* id of the last one that had one (RDS_BARRIER) */
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds_preload_info_socket, 90);

struct rds_preload_info_connection {
	struct in6_addr laddr;
	struct in6_addr faddr;
	uint8_t transport[TRANSNAMSIZ]; /* "none": there is no way yet */
	uint8_t flags;			/* RDS_INFO_CONNECTION_FLAG_* */
	uint8_t tos;
	int32_t peer_pid; /* 0: on another host, or not known */
	uint64_t next_tx_seq;
	uint64_t next_rx_seq;
	int64_t attempt_time; /* the last one; seconds since 1970, 0: never */
	int64_t connect_time;
	int64_t reset_time;
	uint32_t attempts;	  /* since it was last up */
	uint32_t reason;	  /* why it is down, or was last; as in struct rds_path_info */
	uint32_t queued;	  /* messages that wait for it */
	uint32_t unacked;	  /* messages that would be sent again if it broke */
	uint32_t retransmissions; /* of TCP */
	uint32_t breaks;	  /* how often it was up, and went down */
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds_preload_info_connection, 118);

struct rds_preload_info_entry {
	uint32_t is;
	uint32_t member;
	union {
		struct rds_preload_info_process process;
		struct rds_preload_info_socket socket;
		struct rds_preload_info_connection connection;
	} u;
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds_preload_info_entry, 126);

#endif
