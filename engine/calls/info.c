/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * info.c - RDS_INFO_*: the node as getsockopt shows it (net/rds/info.c).
 *
 * The protocol is the kernel's.  rds-info takes any error but ENOSPC as "no such source".  ENOSPC
 * comes with the length that is needed.  Success returns the size of one element.  Sockets and
 * counters come from the registry, connections and messages from every live process (info_query.c).
 */
#include "engine/calls/info.h"

#include "engine/abi/revisions.h"
#include "engine/conn/relay.h"
#include "engine/socket/socket.h"
#include "engine/sys/uaccess.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdlib.h>

#define PAGE_BYTES 4096

/* The program's buffer.  Whole records are written while they fit; `n` counts all records. */
struct info_sink {
	char *buf;
	size_t room, each, n;
	enum rds_info_revision age;
};

struct info_source {
	int (*fn)(struct info_sink *sink, const struct info_source *src);
	size_t each;
	bool v6; /* the RDS6 options list all records, the others IPv4 only */
	enum rds_info_kind kind;
	void (*put)(struct info_sink *sink, const struct rds_info_rec *rec);
	/*
	 * size of the record in Oracle's kernels, whose beginning is Linux's record; 0: the same
	 * size
	 */
	size_t uek;
};

static void sink_put(struct info_sink *sink, const void *rec)
{
	if ((sink->n + 1) * sink->each <= sink->room)
		memcpy(sink->buf + sink->n * sink->each, rec, sink->each);
	sink->n++;
}

static uint32_t info_v4(const struct in6_addr *ip)
{
	return ip->s6_addr32[3];
}

/* ---- counters ---- */

/*
 * Programs see RDS over TCP as this library's transport.  These events cannot happen here, so the
 * counters are 0.
 */
static const char *const tcp_counters[] = {
	"tcp_data_ready_calls", "tcp_write_space_calls",   "tcp_sndbuf_full",
	"tcp_connect_raced",	"tcp_listen_closed_stale",
};

static void put_counter(struct info_sink *sink, const char *name, uint64_t value)
{
	struct rds_info_counter rec = {.value = value};

	strncpy((char *)rec.name, name, sizeof(rec.name) - 1);
	sink_put(sink, &rec);
}

/*
 * Senders count in batches.  So all processes are asked to finish counting, unless the program
 * wants only the length.
 */
static int source_counters(struct info_sink *sink, const struct info_source *src)
{
	size_t n = RDS_STATS + sizeof(tcp_counters) / sizeof(tcp_counters[0]);
	uint64_t sum[RDS_STATS];
	struct rds_info_list none;

	if (sink->room >= n * sink->each && rds_info_query(src->kind, &none) == 0)
		free(none.recs);
	registry_counters_sum(rds_node_registry, sum);
	for (unsigned i = 0; i < RDS_STATS; i++)
		put_counter(sink, rds_stat_names[i], sum[i]);
	for (unsigned i = 0; i < sizeof(tcp_counters) / sizeof(tcp_counters[0]); i++)
		put_counter(sink, tcp_counters[i], 0);
	return 0;
}

/*
 * RDS_STATS_GLOBAL, which the first tool asked for: 15 numbers without names.  Acknowledgements had
 * other counters then, which nothing provides since.
 */
int rds_info_getsockopt_2006(void *val, socklen_t *len)
{
	static const int8_t order[] = {
		-1,
		-1,
		-1,
		-1,
		-1,
		-1,
		-1,
		RDS_STAT_conn_reset,
		RDS_STAT_recv_drop_old_seq,
		RDS_STAT_recv_drop_no_sock,
		RDS_STAT_recv_drop_dead_sock,
		RDS_STAT_recv_deliver_raced,
		RDS_STAT_recv_delivered,
		RDS_STAT_recv_queued,
		RDS_STAT_send_queue_full,
	};
	uint64_t sum[RDS_STATS], out[sizeof(order)];
	struct rds_info_list none;
	socklen_t room = *len;

	if (rds_info_query(RDS_INFO_COUNTED, &none) == 0)
		free(none.recs);
	registry_counters_sum(rds_node_registry, sum);
	for (unsigned i = 0; i < sizeof(order); i++)
		out[i] = order[i] < 0 ? 0 : sum[order[i]];
	room = room < sizeof(out) ? room / sizeof(out[0]) * sizeof(out[0]) : sizeof(out);
	if (rds_user_writable(val, room) || rds_user_writable(len, sizeof(*len)))
		return -EFAULT;
	memcpy(val, out, room);
	*len = room;
	return 0;
}

/* ---- sockets ---- */

/* Oracle's: 0: not known; -1: not congested.  While no process owns a socket, it is not known. */
static int32_t info_congested(const struct registry_sock *s)
{
	if (s->proc == REGISTRY_NOBODY)
		return 0;
	return s->congested ? 1 : -1;
}

static void put_socket(struct info_sink *sink, const struct registry_sock *s)
{
	struct rds_info_socket rec = {
		.sndbuf = s->sndbuf,
		.bound_addr = info_v4(&s->bound),
		.connected_addr = info_v4(&s->connected),
		.bound_port = htons(s->bound_port),
		.connected_port = htons(s->connected_port),
		.rcvbuf = s->rcvbuf,
		.inum = s->inode,
		.pid = s->pid,
		.cong = info_congested(s),
	};

	sink_put(sink, &rec);
}

static void put_socket6(struct info_sink *sink, const struct registry_sock *s)
{
	struct rds6_info_socket rec = {
		.sndbuf = s->sndbuf,
		.bound_addr = s->bound,
		.connected_addr = s->connected,
		.bound_port = htons(s->bound_port),
		.connected_port = htons(s->connected_port),
		.rcvbuf = s->rcvbuf,
		.inum = s->inode,
		.pid = s->pid,
		.cong = info_congested(s),
	};

	sink_put(sink, &rec);
}

static int source_sockets(struct info_sink *sink, const struct info_source *src)
{
	struct registry_sock *socks = NULL;
	unsigned n = 0;
	int ret = registry_socks(rds_node_registry, &socks, &n);

	if (ret < 0)
		return ret;
	for (unsigned i = 0; i < n; i++) {
		if (rds_relay_is_role(socks[i].bound_port))
			continue;
		if (src->v6)
			put_socket6(sink, &socks[i]);
		else if (rds_ip_is_v4(&socks[i].bound))
			put_socket(sink, &socks[i]);
	}
	free(socks);
	return 0;
}

/* ---- connections and messages ---- */

#define CONNECTION_2006 40u

/*
 * The flags of the first three weeks of rds-info: sending, retransmitting, two for
 * acknowledgements, connected, connecting.
 */
static uint8_t info_flags_2006_09(uint8_t flags)
{
	uint8_t out = flags & RDS_INFO_CONNECTION_FLAG_SENDING ? 0x01 : 0;

	out |= flags & RDS_INFO_CONNECTION_FLAG_CONNECTED ? 0x10 : 0;
	return out | (flags & RDS_INFO_CONNECTION_FLAG_CONNECTING ? 0x20 : 0);
}

static uint8_t info_conn_flags(enum rds_info_revision age, uint8_t flags)
{
	const uint8_t of_2007 = RDS_INFO_CONNECTION_FLAG_SENDING | RDS_INFO_CONNECTION_FLAG_CONNECTING |
				RDS_INFO_CONNECTION_FLAG_CONNECTED;

	if (age == RDS_INFO_LINUX || age == RDS_INFO_UEK)
		return flags;
	return info_flags_2006_09(flags) | (age == RDS_INFO_2007 ? flags & of_2007 : 0);
}

/*
 * Tools of before 2009-11 have 15 bytes for the transport's name, and the flags behind it, where a
 * newer record has the last byte of the name.  Newer tools OR both bytes.  So the flags are written
 * in both places.
 */
static void put_conn(struct info_sink *sink, const struct rds_info_rec *r)
{
	struct rds_info_connection rec = {
		.next_tx_seq = r->seq,
		.next_rx_seq = r->next_rx,
		.laddr = info_v4(&r->laddr),
		.faddr = info_v4(&r->faddr),
		.flags = r->flags,
		.tos = r->tos,
	};

	memcpy(rec.transport, r->transport, sizeof(rec.transport));
	rec.transport[sizeof(rec.transport) - 2] = '\0';
	rec.transport[sizeof(rec.transport) - 1] = info_conn_flags(sink->age, r->flags);
	sink_put(sink, &rec);
}

static void put_conn6(struct info_sink *sink, const struct rds_info_rec *r)
{
	struct rds6_info_connection rec = {
		.next_tx_seq = r->seq,
		.next_rx_seq = r->next_rx,
		.laddr = r->laddr,
		.faddr = r->faddr,
		.flags = r->flags,
		.tos = r->tos,
	};

	memcpy(rec.transport, r->transport, sizeof(rec.transport));
	sink_put(sink, &rec);
}

/*
 * A connection has one path.  The number of paths is given as 0, which every tool takes for one:
 * rds-info reads the first path whatever the number is; PCP goes on to eight, and stops early only
 * if it is 0.
 */
struct one_path {
	struct rds_info_connection_paths conn;
	struct rds_path_info path;
} RDS_ABI_PACKED;

static void put_path(struct info_sink *sink, const struct rds_info_rec *r)
{
	struct one_path rec = {
		.conn = {
			.local_addr = r->laddr,
			.peer_addr = r->faddr,
			.tos = r->tos,
		},
		.path = {
			.attempt_time = r->attempt_at,
			.connect_time = r->up_at,
			.reset_time = r->down_at,
			.disconnect_reason = r->reason,
			.connect_attempts = r->attempts,
			.flags = r->flags,
		},
	};

	memcpy(rec.conn.transport, r->transport, sizeof(rec.conn.transport));
	sink_put(sink, &rec);
}

/* The common members of the records of both families, except for the GIDs. */
#define AS_DEVICE(r)                                                                                                   \
	.max_send_wr = (r)->dev.max_send_wr, .max_recv_wr = (r)->dev.max_recv_wr,                                      \
	.max_send_sge = (r)->dev.max_send_sge, .tos = (r)->tos, .sl = (uint8_t)(r)->dev.sl, .frag = (r)->dev.frag,     \
	.qp_num = (int32_t)(r)->dev.qp_num, .dst_qp_num = (int32_t)(r)->dev.dst_qp_num

static void put_device(struct info_sink *sink, const struct rds_info_rec *r)
{
	struct rds_info_rdma_connection rec = {
		.src_addr = info_v4(&r->laddr),
		.dst_addr = info_v4(&r->faddr),
		AS_DEVICE(r),
	};

	memcpy(rec.src_gid, r->dev.sgid, sizeof(rec.src_gid));
	memcpy(rec.dst_gid, r->dev.dgid, sizeof(rec.dst_gid));
	sink_put(sink, &rec);
}

static void put_device6(struct info_sink *sink, const struct rds_info_rec *r)
{
	struct rds6_info_rdma_connection rec = {
		.src_addr = r->laddr,
		.dst_addr = r->faddr,
		AS_DEVICE(r),
	};

	memcpy(rec.src_gid, r->dev.sgid, sizeof(rec.src_gid));
	memcpy(rec.dst_gid, r->dev.dgid, sizeof(rec.dst_gid));
	sink_put(sink, &rec);
}

static void put_message(struct info_sink *sink, const struct rds_info_rec *r)
{
	struct rds_info_message rec = {
		.seq = r->seq,
		.len = r->len,
		.laddr = info_v4(&r->laddr),
		.faddr = info_v4(&r->faddr),
		.lport = htons(r->lport),
		.fport = htons(r->fport),
		.tos = r->tos,
	};

	sink_put(sink, &rec);
}

static void put_message6(struct info_sink *sink, const struct rds_info_rec *r)
{
	struct rds6_info_message rec = {
		.seq = r->seq,
		.len = r->len,
		.laddr = r->laddr,
		.faddr = r->faddr,
		.lport = htons(r->lport),
		.fport = htons(r->fport),
		.tos = r->tos,
	};

	sink_put(sink, &rec);
}

static void put_stream(struct info_sink *sink, const struct rds_info_rec *r)
{
	struct rds_info_tcp_socket rec = {
		.local_addr = info_v4(&r->laddr),
		.local_port = htons(r->tcp.lport),
		.peer_addr = info_v4(&r->faddr),
		.peer_port = htons(r->tcp.fport),
		.hdr_rem = r->tcp.hdr_rem,
		.data_rem = r->tcp.data_rem,
		.last_sent_nxt = r->tcp.last_sent_nxt,
		.last_expected_una = r->tcp.last_expected_una,
		.last_seen_una = r->tcp.last_seen_una,
	};

	sink_put(sink, &rec);
}

static void put_stream6(struct info_sink *sink, const struct rds_info_rec *r)
{
	struct rds6_info_tcp_socket rec = {
		.local_addr = r->laddr,
		.local_port = htons(r->tcp.lport),
		.peer_addr = r->faddr,
		.peer_port = htons(r->tcp.fport),
		.hdr_rem = r->tcp.hdr_rem,
		.data_rem = r->tcp.data_rem,
		.last_sent_nxt = r->tcp.last_sent_nxt,
		.last_expected_una = r->tcp.last_expected_una,
		.last_seen_una = r->tcp.last_seen_una,
	};

	sink_put(sink, &rec);
}

static void put_node(struct info_sink *sink, const struct rds_info_rec *r)
{
	struct rds_preload_info_node rec = {.laddr = r->laddr, .faddr = r->faddr, .paths = r->paths};

	if ((r->flags & RDS_INFO_CONNECTION_FLAG_CONNECTED) && !strcmp(r->transport, "tcp"))
		sink_put(sink, &rec);
}

static void put_entry(struct info_sink *sink, const struct rds_info_rec *r)
{
	struct rds_preload_info_entry rec;

	rds_info_member_entry(r, &rec);
	sink_put(sink, &rec);
}

static int source_records(struct info_sink *sink, const struct info_source *src)
{
	struct rds_info_list list;
	int ret = src->kind == RDS_INFO_MEMBER ? rds_info_members(&list) : rds_info_query(src->kind, &list);

	if (ret < 0)
		return ret;
	for (size_t i = 0; i < list.n; i++)
		if (src->v6 || rds_ip_is_v4(&list.recs[i].laddr))
			src->put(sink, &list.recs[i]);
	free(list.recs);
	return 0;
}

/* There are no flows, but the tool of 2006 has an option for them. */
static int source_flows(struct info_sink *sink, const struct info_source *src)
{
	(void)sink;
	(void)src;
	return rds_abi_numbers_read() ? 0 : -ENOPROTOOPT;
}

#define SOURCE(opt) [(opt)-RDS_INFO_FIRST]

/* Other options have no provider: statistics, iWARP (nor in the kernel). */
static const struct info_source sources[RDS_INFO_LAST - RDS_INFO_FIRST + 1] = {
	SOURCE(RDS_INFO_COUNTERS) = {.fn = source_counters,
				     .each = sizeof(struct rds_info_counter),
				     .kind = RDS_INFO_COUNTED},
	SOURCE(RDS_INFO_CONNECTIONS) = {.fn = source_records,
					.each = sizeof(struct rds_info_connection),
					.kind = RDS_INFO_CONNS,
					.put = put_conn},
	SOURCE(RDS_INFO_FLOWS) = {.fn = source_flows, .each = sizeof(struct rds_info_flow)},
	SOURCE(RDS_INFO_SEND_MESSAGES) = {.fn = source_records,
					  .each = sizeof(struct rds_info_message),
					  .kind = RDS_INFO_SENDING,
					  .put = put_message},
	SOURCE(RDS_INFO_RETRANS_MESSAGES) = {.fn = source_records,
					     .each = sizeof(struct rds_info_message),
					     .kind = RDS_INFO_RETRANS,
					     .put = put_message},
	SOURCE(RDS_INFO_RECV_MESSAGES) = {.fn = source_records,
					  .each = sizeof(struct rds_info_message),
					  .kind = RDS_INFO_RECEIVED,
					  .put = put_message},
	SOURCE(RDS_INFO_SOCKETS) = {.fn = source_sockets,
				    .each = offsetof(struct rds_info_socket, pid),
				    .uek = sizeof(struct rds_info_socket)},
	SOURCE(RDS_INFO_IB_CONNECTIONS) = {.fn = source_records,
					   .each = offsetof(struct rds_info_rdma_connection, frag),
					   .kind = RDS_INFO_DEVICES,
					   .put = put_device,
					   .uek = sizeof(struct rds_info_rdma_connection)},
	SOURCE(RDS6_INFO_IB_CONNECTIONS) = {.fn = source_records,
					    .each = offsetof(struct rds6_info_rdma_connection, frag),
					    .v6 = true,
					    .kind = RDS_INFO_DEVICES,
					    .put = put_device6,
					    .uek = sizeof(struct rds6_info_rdma_connection)},
	SOURCE(RDS_INFO_TCP_SOCKETS) = {.fn = source_records,
					.each = sizeof(struct rds_info_tcp_socket),
					.kind = RDS_INFO_STREAMS,
					.put = put_stream},
	SOURCE(RDS6_INFO_CONNECTIONS) = {.fn = source_records,
					 .each = offsetof(struct rds6_info_connection, tos),
					 .v6 = true,
					 .kind = RDS_INFO_CONNS,
					 .put = put_conn6,
					 .uek = sizeof(struct rds6_info_connection)},
	SOURCE(RDS6_INFO_SEND_MESSAGES) = {.fn = source_records,
					   .each = sizeof(struct rds6_info_message),
					   .v6 = true,
					   .kind = RDS_INFO_SENDING,
					   .put = put_message6},
	SOURCE(RDS6_INFO_RETRANS_MESSAGES) = {.fn = source_records,
					      .each = sizeof(struct rds6_info_message),
					      .v6 = true,
					      .kind = RDS_INFO_RETRANS,
					      .put = put_message6},
	SOURCE(RDS6_INFO_RECV_MESSAGES) = {.fn = source_records,
					   .each = sizeof(struct rds6_info_message),
					   .v6 = true,
					   .kind = RDS_INFO_RECEIVED,
					   .put = put_message6},
	SOURCE(RDS6_INFO_SOCKETS) = {.fn = source_sockets,
				     .each = offsetof(struct rds6_info_socket, pid),
				     .v6 = true,
				     .uek = sizeof(struct rds6_info_socket)},
	SOURCE(RDS6_INFO_TCP_SOCKETS) = {.fn = source_records,
					 .each = sizeof(struct rds6_info_tcp_socket),
					 .v6 = true,
					 .kind = RDS_INFO_STREAMS,
					 .put = put_stream6},
	SOURCE(RDS_INFO_CONN_PATHS) = {.fn = source_records,
				       .each = sizeof(struct one_path),
				       .kind = RDS_INFO_CONNS,
				       .put = put_path},
	SOURCE(RDS6_INFO_CONN_PATHS) = {.fn = source_records,
					.each = sizeof(struct one_path),
					.v6 = true,
					.kind = RDS_INFO_CONNS,
					.put = put_path},
};

static const struct info_source source_nodes = {.fn = source_records,
						.each = sizeof(struct rds_preload_info_node),
						.v6 = true,
						.kind = RDS_INFO_CONNS,
						.put = put_node};
static const struct info_source source_members = {.fn = source_records,
						  .each = sizeof(struct rds_preload_info_entry),
						  .v6 = true,
						  .kind = RDS_INFO_MEMBER,
						  .put = put_entry};

static const struct info_source *source_of(int opt)
{
	if (opt == RDS_PRELOAD_INFO_NODES)
		return &source_nodes;
	if (opt == RDS_PRELOAD_INFO_MEMBERS)
		return &source_members;
	if (!rds_abi_is_info(opt) || !sources[opt - RDS_INFO_FIRST].fn)
		return NULL;
	return &sources[opt - RDS_INFO_FIRST];
}

int rds_info_getsockopt(struct rds_sock *sk, int opt, void *val, socklen_t *len)
{
	const struct info_source *src;
	struct info_sink sink;
	enum rds_info_revision age;
	size_t total;
	int room, ret;

	(void)sk;
	if (rds_user_readable(len, sizeof(*len)) < 0)
		return -EFAULT;
	memcpy(&room, len, sizeof(room));
	age = rds_abi_info_revision(opt, room);
	if (room < 0 || room > INT_MAX - PAGE_BYTES + 1 || (uintptr_t)val + (unsigned)room < (uintptr_t)val)
		return -EINVAL;
	if (room && rds_user_writable(val, (size_t)room) < 0)
		return -EAGAIN;
	src = source_of(opt);
	if (!src)
		return -ENOPROTOOPT;
	sink = (struct info_sink){.buf = val, .room = (size_t)room, .each = src->each, .age = age};
	if (age == RDS_INFO_UEK && src->uek)
		sink.each = src->uek;
	else if ((age == RDS_INFO_2007 || age == RDS_INFO_2006_09) && opt == RDS_INFO_CONNECTIONS)
		sink.each = CONNECTION_2006;
	ret = src->fn(&sink, src);
	if (ret < 0)
		return ret;
	total = sink.n * sink.each;
	ret = total > (size_t)room ? -ENOSPC : (int)sink.each;
	if (rds_user_writable(len, sizeof(*len)) < 0)
		return -EFAULT;
	*len = total > INT_MAX ? INT_MAX : (socklen_t)total;
	if (ret == -ENOSPC)
		rds_abi_info_note_told(*len);
	return ret;
}
