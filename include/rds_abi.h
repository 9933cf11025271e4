/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rds_abi.h - the user interface of PF_RDS: numbers and records, under the kernel's own names.
 *
 * Self-contained, so that the library is the same whatever kernel headers the build machine has; do not include it
 * together with <linux/rds.h>.  Layouts are those of Linux 6.1 on a 64-bit machine and every size and offset that a
 * program can see is asserted here.  Older and vendor layouts (2007-8 RDMA arguments, the barrier, ...) belong to the
 * legacy code and not in this file; only their numbers are listed where they would collide.
 *
 * Fields named be16/be32 in comments are in network byte order, everything else is in the host's.
 */
#ifndef INCLUDE_RDS_ABI_H
#define INCLUDE_RDS_ABI_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifndef AF_RDS
#define AF_RDS 21
#endif
#ifndef PF_RDS
#define PF_RDS AF_RDS
#endif
#ifndef SOL_RDS
#define SOL_RDS 276
#endif
#define SOL_RDS_HISTORIC 272 /* OFED up to 1.5, Solaris; the official number came with Linux 2.6.30 */
#define SOL_RDS_2006 12345   /* two days of June 2006, compiled in */

/* ---- socket options, level SOL_RDS ---- */

#define RDS_CANCEL_SENT_TO 1
#define RDS_GET_MR 2
#define RDS_FREE_MR 3
#define RDS_STATS_GLOBAL 3 /* to getsockopt, in the summer of 2006 */
#define RDS_BARRIER 4 /* 2007-11 to 2008-02 only; the number was never given out again */
#define RDS_RECVERR 5
#define RDS_CONG_MONITOR 6
#define RDS_GET_MR_FOR_DEST 7
#define SO_RDS_TRANSPORT 8
#define RDS_CONN_RESET 8	   /* vendor kernels: told apart by its length */
#define SO_RDS_TRANSPORT_9 9 /* what it is in vendor kernels */
#define SO_RDS_MSG_RXPATH_LATENCY 10
#define RDS6_CONN_RESET 11 /* vendor kernels only */
#define SO_RDS_INQ 12 /* vendor kernels and rds-tools since 2023 */

/* Values of SO_RDS_TRANSPORT; the loopback transport is internal to RDS but readable. */
#define RDS_TRANS_IB 0
#define RDS_TRANS_GAP 1
#define RDS_TRANS_IWARP 1 /* what 1 was called before */
#define RDS_TRANS_TCP 2
#define RDS_TRANS_COUNT 3
#define RDS_TRANS_LOOP 3
#define RDS_TRANS_NONE (-1)

/* ---- ioctls; the argument points to one byte ---- */

#ifndef SIOCPROTOPRIVATE
#define SIOCPROTOPRIVATE 0x89E0
#endif
#define SIOCRDSSETTOS (SIOCPROTOPRIVATE + 0)
#define SIOCRDSGETTOS (SIOCPROTOPRIVATE + 1)

typedef uint8_t rds_tos_t;

/* ---- control messages, level SOL_RDS ---- */

#define RDS_CMSG_RDMA_ARGS 1
#define RDS_CMSG_RDMA_DEST 2
#define RDS_CMSG_RDMA_MAP 3
#define RDS_CMSG_RDMA_STATUS 4
#define RDS_CMSG_CONG_UPDATE 5
#define RDS_CMSG_ATOMIC_FADD 6
#define RDS_CMSG_ATOMIC_CSWP 7
#define RDS_CMSG_MASKED_ATOMIC_FADD 8
#define RDS_CMSG_MASKED_ATOMIC_CSWP 9
#define RDS_CMSG_ASYNC_SEND 10 /* vendor kernels only */
#define RDS_CMSG_RXPATH_LATENCY 11
#define RDS_CMSG_ZCOPY_COOKIE 12 /* sent */
#define RDS_CMSG_INQ 12		 /* received, with SO_RDS_INQ */
#define RDS_CMSG_ZCOPY_COMPLETION 13

/* ---- information sources: getsockopt(SOL_RDS), returns the element size ---- */

#define RDS_INFO_FIRST 10000
#define RDS_INFO_COUNTERS 10000
#define RDS_INFO_CONNECTIONS 10001
#define RDS_INFO_FLOWS 10002 /* 2006 only, no provider since */
#define RDS_INFO_SEND_MESSAGES 10003
#define RDS_INFO_RETRANS_MESSAGES 10004
#define RDS_INFO_RECV_MESSAGES 10005
#define RDS_INFO_SOCKETS 10006
#define RDS_INFO_TCP_SOCKETS 10007
#define RDS_INFO_IB_CONNECTIONS 10008
#define RDS_INFO_CONNECTION_STATS 10009
#define RDS_INFO_IWARP_CONNECTIONS 10010
#define RDS6_INFO_CONNECTIONS 10011
#define RDS6_INFO_SEND_MESSAGES 10012
#define RDS6_INFO_RETRANS_MESSAGES 10013
#define RDS6_INFO_RECV_MESSAGES 10014
#define RDS6_INFO_SOCKETS 10015
#define RDS6_INFO_TCP_SOCKETS 10016
#define RDS6_INFO_IB_CONNECTIONS 10017
#define RDS_INFO_RDMA_CONNECTION_STATS 10018 /* from here on Oracle's */
#define RDS6_INFO_RDMA_CONNECTION_STATS 10019
#define RDS_INFO_CONN_PATHS 10020
#define RDS6_INFO_CONN_PATHS 10021
#define RDS_INFO_LAST 10021

#define TRANSNAMSIZ 16

/* flags of the connection records */
#define RDS_INFO_CONNECTION_FLAG_SENDING 0x01
#define RDS_INFO_CONNECTION_FLAG_CONNECTING 0x02
#define RDS_INFO_CONNECTION_FLAG_CONNECTED 0x04
#define RDS_INFO_CONNECTION_FLAG_ERROR 0x08 /* vendor kernels only */

/* flags of the message records */
#define RDS_INFO_MESSAGE_FLAG_ACK 0x01
#define RDS_INFO_MESSAGE_FLAG_FAST_ACK 0x02

#define RDS_ABI_PACKED __attribute__((packed))
#define RDS_ABI_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), "size of struct " #type)
#define RDS_ABI_AT(type, field, off) _Static_assert(offsetof(struct type, field) == (off), #type "." #field)

struct rds_info_counter {
	uint8_t name[32];
	uint64_t value;
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds_info_counter, 40);
RDS_ABI_AT(rds_info_counter, value, 32);

struct rds_info_connection {
	uint64_t next_tx_seq;
	uint64_t next_rx_seq;
	uint32_t laddr; /* be32 */
	uint32_t faddr; /* be32 */
	uint8_t transport[TRANSNAMSIZ];
	uint8_t flags;
	uint8_t tos;
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds_info_connection, 42);
RDS_ABI_AT(rds_info_connection, laddr, 16);
RDS_ABI_AT(rds_info_connection, faddr, 20);
RDS_ABI_AT(rds_info_connection, transport, 24);
RDS_ABI_AT(rds_info_connection, flags, 40);
RDS_ABI_AT(rds_info_connection, tos, 41);

struct rds6_info_connection {
	uint64_t next_tx_seq;
	uint64_t next_rx_seq;
	struct in6_addr laddr;
	struct in6_addr faddr;
	uint8_t transport[TRANSNAMSIZ];
	uint8_t flags;
	uint8_t tos; /* Oracle's; upstream, and before 2018, there is none */
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds6_info_connection, 66);
RDS_ABI_AT(rds6_info_connection, laddr, 16);
RDS_ABI_AT(rds6_info_connection, faddr, 32);
RDS_ABI_AT(rds6_info_connection, transport, 48);
RDS_ABI_AT(rds6_info_connection, flags, 64);
RDS_ABI_AT(rds6_info_connection, tos, 65);

struct rds_info_message {
	uint64_t seq;
	uint32_t len;
	uint32_t laddr; /* be32 */
	uint32_t faddr; /* be32 */
	uint16_t lport; /* be16 */
	uint16_t fport; /* be16 */
	uint8_t flags;
	uint8_t tos;
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds_info_message, 26);
RDS_ABI_AT(rds_info_message, len, 8);
RDS_ABI_AT(rds_info_message, laddr, 12);
RDS_ABI_AT(rds_info_message, faddr, 16);
RDS_ABI_AT(rds_info_message, lport, 20);
RDS_ABI_AT(rds_info_message, fport, 22);
RDS_ABI_AT(rds_info_message, flags, 24);
RDS_ABI_AT(rds_info_message, tos, 25);

struct rds6_info_message {
	uint64_t seq;
	uint32_t len;
	struct in6_addr laddr;
	struct in6_addr faddr;
	uint16_t lport; /* be16 */
	uint16_t fport; /* be16 */
	uint8_t flags;
	uint8_t tos;
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds6_info_message, 50);
RDS_ABI_AT(rds6_info_message, laddr, 12);
RDS_ABI_AT(rds6_info_message, faddr, 28);
RDS_ABI_AT(rds6_info_message, lport, 44);
RDS_ABI_AT(rds6_info_message, fport, 46);
RDS_ABI_AT(rds6_info_message, flags, 48);
RDS_ABI_AT(rds6_info_message, tos, 49);

/* pid and cong are Oracle's; upstream, and all before 2020, end with inum. */
struct rds_info_socket {
	uint32_t sndbuf;
	uint32_t bound_addr;	 /* be32 */
	uint32_t connected_addr; /* be32 */
	uint16_t bound_port;	 /* be16 */
	uint16_t connected_port; /* be16 */
	uint32_t rcvbuf;
	uint64_t inum;
	int32_t pid;
	int32_t cong; /* 0 unknown, -1 not congested, else congested */
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds_info_socket, 36);
RDS_ABI_AT(rds_info_socket, bound_addr, 4);
RDS_ABI_AT(rds_info_socket, connected_addr, 8);
RDS_ABI_AT(rds_info_socket, bound_port, 12);
RDS_ABI_AT(rds_info_socket, connected_port, 14);
RDS_ABI_AT(rds_info_socket, rcvbuf, 16);
RDS_ABI_AT(rds_info_socket, inum, 20);
RDS_ABI_AT(rds_info_socket, pid, 28);
RDS_ABI_AT(rds_info_socket, cong, 32);

struct rds6_info_socket {
	uint32_t sndbuf;
	struct in6_addr bound_addr;
	struct in6_addr connected_addr;
	uint16_t bound_port;	 /* be16 */
	uint16_t connected_port; /* be16 */
	uint32_t rcvbuf;
	uint64_t inum;
	int32_t pid;
	int32_t cong; /* 0 unknown, -1 not congested, else congested */
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds6_info_socket, 60);
RDS_ABI_AT(rds6_info_socket, bound_addr, 4);
RDS_ABI_AT(rds6_info_socket, connected_addr, 20);
RDS_ABI_AT(rds6_info_socket, bound_port, 36);
RDS_ABI_AT(rds6_info_socket, connected_port, 38);
RDS_ABI_AT(rds6_info_socket, rcvbuf, 40);
RDS_ABI_AT(rds6_info_socket, inum, 44);
RDS_ABI_AT(rds6_info_socket, pid, 52);
RDS_ABI_AT(rds6_info_socket, cong, 56);

/* Behind it npaths times the following; none there means that there is one. */
struct rds_info_connection_paths {
	struct in6_addr local_addr; /* IPv4 as mapped */
	struct in6_addr peer_addr;
	uint8_t transport[TRANSNAMSIZ];
	uint8_t tos;
	uint8_t npaths;
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds_info_connection_paths, 50);
RDS_ABI_AT(rds_info_connection_paths, peer_addr, 16);
RDS_ABI_AT(rds_info_connection_paths, transport, 32);
RDS_ABI_AT(rds_info_connection_paths, tos, 48);
RDS_ABI_AT(rds_info_connection_paths, npaths, 49);

struct rds_path_info {
	int64_t attempt_time; /* seconds since 1970; 0: never */
	int64_t connect_time;
	int64_t reset_time;
	uint32_t disconnect_reason;
	uint32_t connect_attempts;
	uint32_t index;
	uint8_t flags; /* RDS_INFO_CONNECTION_FLAG_* */
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds_path_info, 37);
RDS_ABI_AT(rds_path_info, connect_time, 8);
RDS_ABI_AT(rds_path_info, reset_time, 16);
RDS_ABI_AT(rds_path_info, disconnect_reason, 24);
RDS_ABI_AT(rds_path_info, connect_attempts, 28);
RDS_ABI_AT(rds_path_info, index, 32);
RDS_ABI_AT(rds_path_info, flags, 36);

struct rds_info_flow { /* 2006 */
	uint32_t laddr;
	uint32_t faddr;
	uint32_t bytes;
	uint16_t lport;
	uint16_t fport;
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds_info_flow, 16);

struct rds_info_tcp_socket {
	uint32_t local_addr; /* be32 */
	uint16_t local_port; /* be16 */
	uint32_t peer_addr;  /* be32 */
	uint16_t peer_port;  /* be16 */
	uint64_t hdr_rem;
	uint64_t data_rem;
	uint32_t last_sent_nxt;
	uint32_t last_expected_una;
	uint32_t last_seen_una;
	uint8_t tos;
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds_info_tcp_socket, 41);
RDS_ABI_AT(rds_info_tcp_socket, local_port, 4);
RDS_ABI_AT(rds_info_tcp_socket, peer_addr, 6);
RDS_ABI_AT(rds_info_tcp_socket, peer_port, 10);
RDS_ABI_AT(rds_info_tcp_socket, hdr_rem, 12);
RDS_ABI_AT(rds_info_tcp_socket, data_rem, 20);
RDS_ABI_AT(rds_info_tcp_socket, last_sent_nxt, 28);
RDS_ABI_AT(rds_info_tcp_socket, last_expected_una, 32);
RDS_ABI_AT(rds_info_tcp_socket, last_seen_una, 36);
RDS_ABI_AT(rds_info_tcp_socket, tos, 40);

struct rds6_info_tcp_socket {
	struct in6_addr local_addr;
	uint16_t local_port; /* be16 */
	struct in6_addr peer_addr;
	uint16_t peer_port; /* be16 */
	uint64_t hdr_rem;
	uint64_t data_rem;
	uint32_t last_sent_nxt;
	uint32_t last_expected_una;
	uint32_t last_seen_una;
} RDS_ABI_PACKED;
RDS_ABI_SIZE(rds6_info_tcp_socket, 64);
RDS_ABI_AT(rds6_info_tcp_socket, local_port, 16);
RDS_ABI_AT(rds6_info_tcp_socket, peer_addr, 18);
RDS_ABI_AT(rds6_info_tcp_socket, peer_port, 34);
RDS_ABI_AT(rds6_info_tcp_socket, hdr_rem, 36);
RDS_ABI_AT(rds6_info_tcp_socket, data_rem, 44);
RDS_ABI_AT(rds6_info_tcp_socket, last_sent_nxt, 52);
RDS_ABI_AT(rds6_info_tcp_socket, last_expected_una, 56);
RDS_ABI_AT(rds6_info_tcp_socket, last_seen_una, 60);

#define RDS_IB_GID_LEN 16

/* The two InfiniBand records are not packed.  Their gaps have names so that they are filled: else a program would see what lay on our stack. */
struct rds_info_rdma_connection {
	uint32_t src_addr; /* be32 */
	uint32_t dst_addr; /* be32 */
	uint8_t src_gid[RDS_IB_GID_LEN];
	uint8_t dst_gid[RDS_IB_GID_LEN];
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t rdma_mr_max;
	uint32_t rdma_mr_size;
	uint8_t tos;
	uint8_t sl;
	uint8_t gap[2];
	uint32_t cache_allocs;
	uint32_t frag; /* from here on Oracle's */
	uint16_t flow_ctl_post_credit;
	uint16_t flow_ctl_send_credit;
	int32_t qp_num; /* -1: there is none */
	uint32_t recv_alloc_ctr;
	uint32_t recv_free_ctr;
	int32_t dst_qp_num;
	uint32_t send_alloc_ctr;
	uint32_t send_free_ctr;
	uint32_t gap_too;
	uint64_t send_bytes;
	uint64_t recv_bytes;
	uint64_t r_read_bytes;
	uint64_t r_write_bytes;
	uint64_t tx_poll_ts;
	uint64_t rx_poll_ts;
	uint64_t tx_poll_cnt;
	uint64_t rx_poll_cnt;
	int32_t scq_vector;
	int32_t rcq_vector;
};
RDS_ABI_SIZE(rds_info_rdma_connection, 176);
RDS_ABI_AT(rds_info_rdma_connection, src_gid, 8);
RDS_ABI_AT(rds_info_rdma_connection, dst_gid, 24);
RDS_ABI_AT(rds_info_rdma_connection, max_send_wr, 40);
RDS_ABI_AT(rds_info_rdma_connection, rdma_mr_size, 56);
RDS_ABI_AT(rds_info_rdma_connection, tos, 60);
RDS_ABI_AT(rds_info_rdma_connection, sl, 61);
RDS_ABI_AT(rds_info_rdma_connection, cache_allocs, 64);
RDS_ABI_AT(rds_info_rdma_connection, frag, 68);
RDS_ABI_AT(rds_info_rdma_connection, flow_ctl_send_credit, 74);
RDS_ABI_AT(rds_info_rdma_connection, qp_num, 76);
RDS_ABI_AT(rds_info_rdma_connection, dst_qp_num, 88);
RDS_ABI_AT(rds_info_rdma_connection, send_free_ctr, 96);
RDS_ABI_AT(rds_info_rdma_connection, send_bytes, 104);
RDS_ABI_AT(rds_info_rdma_connection, scq_vector, 168);
RDS_ABI_AT(rds_info_rdma_connection, rcq_vector, 172);

struct rds6_info_rdma_connection {
	struct in6_addr src_addr;
	struct in6_addr dst_addr;
	uint8_t src_gid[RDS_IB_GID_LEN];
	uint8_t dst_gid[RDS_IB_GID_LEN];
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t rdma_mr_max;
	uint32_t rdma_mr_size;
	uint8_t tos;
	uint8_t sl;
	uint8_t gap[2];
	uint32_t cache_allocs;
	uint32_t frag; /* from here on Oracle's */
	uint16_t flow_ctl_post_credit;
	uint16_t flow_ctl_send_credit;
	int32_t qp_num; /* -1: there is none */
	uint32_t recv_alloc_ctr;
	uint32_t recv_free_ctr;
	int32_t dst_qp_num;
	uint32_t send_alloc_ctr;
	uint32_t send_free_ctr;
	uint32_t gap_too;
	uint64_t send_bytes;
	uint64_t recv_bytes;
	uint64_t r_read_bytes;
	uint64_t r_write_bytes;
	uint64_t tx_poll_ts;
	uint64_t rx_poll_ts;
	uint64_t tx_poll_cnt;
	uint64_t rx_poll_cnt;
	int32_t scq_vector;
	int32_t rcq_vector;
};
RDS_ABI_SIZE(rds6_info_rdma_connection, 200);
RDS_ABI_AT(rds6_info_rdma_connection, src_gid, 32);
RDS_ABI_AT(rds6_info_rdma_connection, dst_gid, 48);
RDS_ABI_AT(rds6_info_rdma_connection, max_send_wr, 64);
RDS_ABI_AT(rds6_info_rdma_connection, tos, 84);
RDS_ABI_AT(rds6_info_rdma_connection, sl, 85);
RDS_ABI_AT(rds6_info_rdma_connection, cache_allocs, 88);
RDS_ABI_AT(rds6_info_rdma_connection, frag, 92);
RDS_ABI_AT(rds6_info_rdma_connection, flow_ctl_send_credit, 98);
RDS_ABI_AT(rds6_info_rdma_connection, qp_num, 100);
RDS_ABI_AT(rds6_info_rdma_connection, dst_qp_num, 112);
RDS_ABI_AT(rds6_info_rdma_connection, send_free_ctr, 120);
RDS_ABI_AT(rds6_info_rdma_connection, send_bytes, 128);
RDS_ABI_AT(rds6_info_rdma_connection, scq_vector, 192);
RDS_ABI_AT(rds6_info_rdma_connection, rcq_vector, 196);

/* ---- latency traces: SO_RDS_MSG_RXPATH_LATENCY and RDS_CMSG_RXPATH_LATENCY ---- */

enum rds_message_rxpath_latency {
	RDS_MSG_RX_HDR_TO_DGRAM_START = 0,
	RDS_MSG_RX_DGRAM_REASSEMBLE,
	RDS_MSG_RX_DGRAM_DELIVERED,
	RDS_MSG_RX_DGRAM_TRACE_MAX
};

struct rds_rx_trace_so {
	uint8_t rx_traces;
	uint8_t rx_trace_pos[RDS_MSG_RX_DGRAM_TRACE_MAX];
};
RDS_ABI_SIZE(rds_rx_trace_so, 4);

struct rds_cmsg_rx_trace {
	uint8_t rx_traces;
	uint8_t rx_trace_pos[RDS_MSG_RX_DGRAM_TRACE_MAX];
	uint64_t rx_trace[RDS_MSG_RX_DGRAM_TRACE_MAX];
};
RDS_ABI_SIZE(rds_cmsg_rx_trace, 32);
RDS_ABI_AT(rds_cmsg_rx_trace, rx_trace, 8);

/* ---- congestion monitoring: a port's bit in the mask of RDS_CMSG_CONG_UPDATE ---- */

#define RDS_CONG_MONITOR_SIZE 64
#define RDS_CONG_MONITOR_BIT(port) ((unsigned int)(port) % RDS_CONG_MONITOR_SIZE)
#define RDS_CONG_MONITOR_MASK(port) (UINT64_C(1) << RDS_CONG_MONITOR_BIT(port))

/* ---- RDMA ---- */

typedef uint64_t rds_rdma_cookie_t;

struct rds_iovec {
	uint64_t addr;
	uint64_t bytes;
};
RDS_ABI_SIZE(rds_iovec, 16);

struct rds_get_mr_args {
	struct rds_iovec vec;
	uint64_t cookie_addr;
	uint64_t flags;
};
RDS_ABI_SIZE(rds_get_mr_args, 32);
RDS_ABI_AT(rds_get_mr_args, cookie_addr, 16);
RDS_ABI_AT(rds_get_mr_args, flags, 24);

struct rds_get_mr_for_dest_args {
	struct sockaddr_storage dest_addr;
	struct rds_iovec vec;
	uint64_t cookie_addr;
	uint64_t flags;
};
RDS_ABI_SIZE(rds_get_mr_for_dest_args, 160);
RDS_ABI_AT(rds_get_mr_for_dest_args, vec, 128);
RDS_ABI_AT(rds_get_mr_for_dest_args, cookie_addr, 144);
RDS_ABI_AT(rds_get_mr_for_dest_args, flags, 152);

struct rds_free_mr_args {
	rds_rdma_cookie_t cookie;
	uint64_t flags;
};
RDS_ABI_SIZE(rds_free_mr_args, 16);

struct rds_rdma_args {
	rds_rdma_cookie_t cookie;
	struct rds_iovec remote_vec;
	uint64_t local_vec_addr;
	uint64_t nr_local;
	uint64_t flags;
	uint64_t user_token;
};
RDS_ABI_SIZE(rds_rdma_args, 56);
RDS_ABI_AT(rds_rdma_args, remote_vec, 8);
RDS_ABI_AT(rds_rdma_args, local_vec_addr, 24);
RDS_ABI_AT(rds_rdma_args, nr_local, 32);
RDS_ABI_AT(rds_rdma_args, flags, 40);
RDS_ABI_AT(rds_rdma_args, user_token, 48);

struct rds_atomic_args {
	rds_rdma_cookie_t cookie;
	uint64_t local_addr;
	uint64_t remote_addr;
	union {
		struct {
			uint64_t compare;
			uint64_t swap;
		} cswp;
		struct {
			uint64_t add;
		} fadd;
		struct {
			uint64_t compare;
			uint64_t swap;
			uint64_t compare_mask;
			uint64_t swap_mask;
		} m_cswp;
		struct {
			uint64_t add;
			uint64_t nocarry_mask;
		} m_fadd;
	};
	uint64_t flags;
	uint64_t user_token;
};
RDS_ABI_SIZE(rds_atomic_args, 72);
RDS_ABI_AT(rds_atomic_args, local_addr, 8);
RDS_ABI_AT(rds_atomic_args, remote_addr, 16);
RDS_ABI_AT(rds_atomic_args, cswp, 24);
RDS_ABI_AT(rds_atomic_args, flags, 56);
RDS_ABI_AT(rds_atomic_args, user_token, 64);

struct rds_rdma_notify {
	uint64_t user_token;
	int32_t status;
};
RDS_ABI_SIZE(rds_rdma_notify, 16);
RDS_ABI_AT(rds_rdma_notify, status, 8);

#define RDS_RDMA_SUCCESS 0
#define RDS_RDMA_REMOTE_ERROR 1
#define RDS_RDMA_CANCELED 2
#define RDS_RDMA_DROPPED 3
#define RDS_RDMA_OTHER_ERROR 4

#define RDS_RDMA_READWRITE 0x0001  /* set: write to the peer; clear: read from it */
#define RDS_RDMA_FENCE 0x0002	   /* the message waits for preceding reads */
#define RDS_RDMA_INVALIDATE 0x0004 /* region out of reach when freed */
#define RDS_RDMA_USE_ONCE 0x0008   /* region freed after one use */
#define RDS_RDMA_DONTWAIT 0x0010
#define RDS_RDMA_NOTIFY_ME 0x0020
#define RDS_RDMA_SILENT 0x0040
#define RDS_RDMA_REMOTE_COMPLETE 0x0080 /* vendor kernels only, ignored */
#define RDS_SEND_NOTIFY_ME 0x0100	/* vendor kernels only: of RDS_CMSG_ASYNC_SEND; ignored elsewhere */

/* ---- zero copy completions ---- */

#define RDS_MAX_ZCOOKIES 8
struct rds_zcopy_cookies {
	uint32_t num;
	uint32_t cookies[RDS_MAX_ZCOOKIES];
};
RDS_ABI_SIZE(rds_zcopy_cookies, 36);

#undef RDS_ABI_AT

#endif
