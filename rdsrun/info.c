/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * info.c - RDS_INFO_* as tables (info.h), for hosts without rds-tools.
 *
 * The letters are those of rds-info's options, and the columns those of its tables, so that the same
 * scripts read them.  Addresses are of both families, and may be wider than a column.
 */
#include "rdsrun/info.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rds_abi.h"
#include "rdsrun/hold.h"
#include "rdsrun/node.h"

/* rec: at least as many bytes as the table's record has; the rest is zero. */
union record {
	struct rds_info_counter counter;
	struct rds6_info_socket socket;
	struct rds6_info_connection connection;
	struct rds6_info_message message;
	struct rds6_info_tcp_socket tcp;
	struct rds6_info_rdma_connection rdma;
};

static void print_counter(const union record *r)
{
	char name[sizeof(r->counter.name) + 1];

	node_clean(r->counter.name, sizeof(r->counter.name), name);
	printf("%25s %16llu\n", name, (unsigned long long)r->counter.value);
}

/* The peer of a socket of IPv4 that has none is one of IPv4 as well. */
static void pair_words(const struct in6_addr *local, const struct in6_addr *peer, char a[NODE_ADDRESS],
		       char b[NODE_ADDRESS])
{
	node_address(local, a);
	node_address(peer, b);
	if (IN6_IS_ADDR_V4MAPPED(local) && IN6_IS_ADDR_UNSPECIFIED(peer))
		strcpy(b, "0.0.0.0");
}

static void print_pair(const void *local, const void *peer, unsigned tos)
{
	char a[NODE_ADDRESS], b[NODE_ADDRESS];

	pair_words(local, peer, a, b);
	printf("%15s %15s %4u", a, b, tos);
}

static void print_ports(const void *local, uint16_t lport, const void *peer, uint16_t fport)
{
	char a[NODE_ADDRESS], b[NODE_ADDRESS];

	pair_words(local, peer, a, b);
	printf("%15s %5u %15s %5u", a, ntohs(lport), b, ntohs(fport));
}

static void print_socket(const union record *r)
{
	const struct rds6_info_socket *s = &r->socket;

	print_ports(&s->bound_addr, s->bound_port, &s->connected_addr, s->connected_port);
	printf(" %10u %10u %8llu\n", s->sndbuf, s->rcvbuf, (unsigned long long)s->inum);
}

static void print_connection(const union record *r)
{
	const struct rds6_info_connection *c = &r->connection;

	print_pair(&c->laddr, &c->faddr, c->tos);
	printf(" %16llu %16llu %c%c%c%c\n", (unsigned long long)c->next_tx_seq, (unsigned long long)c->next_rx_seq,
	       c->flags & RDS_INFO_CONNECTION_FLAG_SENDING ? 's' : '-',
	       c->flags & RDS_INFO_CONNECTION_FLAG_CONNECTING ? 'c' : '-',
	       c->flags & RDS_INFO_CONNECTION_FLAG_CONNECTED ? 'C' : '-',
	       c->flags & RDS_INFO_CONNECTION_FLAG_ERROR ? 'E' : '-');
}

static void print_message(const union record *r)
{
	const struct rds6_info_message *m = &r->message;

	print_ports(&m->laddr, m->lport, &m->faddr, m->fport);
	printf(" %4u %16llu %10u\n", m->tos, (unsigned long long)m->seq, m->len);
}

static void print_tcp(const union record *r)
{
	const struct rds6_info_tcp_socket *t = &r->tcp;

	print_ports(&t->local_addr, t->local_port, &t->peer_addr, t->peer_port);
	printf(" %10llu %10llu %10u %10u %10u\n", (unsigned long long)t->hdr_rem, (unsigned long long)t->data_rem,
	       t->last_sent_nxt, t->last_expected_una, t->last_seen_una);
}

static void print_rdma(const union record *r)
{
	char sgid[NODE_ADDRESS], dgid[NODE_ADDRESS];

	print_pair(&r->rdma.src_addr, &r->rdma.dst_addr, r->rdma.tos);
	inet_ntop(AF_INET6, r->rdma.src_gid, sgid, sizeof(sgid));
	inet_ntop(AF_INET6, r->rdma.dst_gid, dgid, sizeof(dgid));
	printf(" %3u %32s %32s\n", r->rdma.sl, sgid, dgid);
}

/* In the order in which all of them are shown; rds-info's own.  Columns: as in rds-tools 2.0.7. */
static const struct table {
	char letter;
	int option;
	void (*print)(const union record *r);
	const char *head;
} tables[] = {
	{'I', RDS6_INFO_IB_CONNECTIONS, print_rdma,
	 "RDS IB Connections:\n      LocalAddr      RemoteAddr  Tos  SL                         LocalDev              "
	 "          RemoteDev\n"},
	{'T', RDS6_INFO_TCP_SOCKETS, print_tcp,
	 "TCP Connections:\n      LocalAddr LPort      RemoteAddr RPort  HdrRemain DataRemain    SentNxt  ExpectUna    "
	 "SeenUna\n"},
	{'c', RDS_INFO_COUNTERS, print_counter, "Counters:\n              CounterName            Value\n"},
	{'k', RDS6_INFO_SOCKETS, print_socket,
	 "RDS Sockets:\n      BoundAddr BPort        ConnAddr CPort     SndBuf     RcvBuf    Inode\n"},
	{'n', RDS6_INFO_CONNECTIONS, print_connection,
	 "RDS Connections:\n      LocalAddr      RemoteAddr  Tos           NextTX           NextRX Flgs\n"},
	{'r', RDS6_INFO_RECV_MESSAGES, print_message,
	 "Receive Message Queue:\n      LocalAddr LPort      RemoteAddr RPort  Tos              Seq      Bytes\n"},
	{'s', RDS6_INFO_SEND_MESSAGES, print_message,
	 "Send Message Queue:\n      LocalAddr LPort      RemoteAddr RPort  Tos              Seq      Bytes\n"},
	{'t', RDS6_INFO_RETRANS_MESSAGES, print_message,
	 "Retransmit Message Queue:\n      LocalAddr LPort      RemoteAddr RPort  Tos              Seq      Bytes\n"},
};
#define TABLES (sizeof(tables) / sizeof(tables[0]))

int info_is_sound(const char *letters)
{
	char known[TABLES + 1] = "";

	for (size_t i = 0; i < TABLES; i++)
		known[i] = tables[i].letter;
	return !letters || (*letters && !letters[strspn(letters, known)]);
}

/* Records are of the size that the library says: of a program of today, or of Oracle's. */
static void table_show(int fd, const struct table *t)
{
	union record rec;
	size_t n = 0;
	int each;
	unsigned char *recs = hold_info(fd, t->option, &n, &each);

	printf("\n%s", t->head);
	for (size_t i = 0; recs && i < n; i++) {
		memset(&rec, 0, sizeof(rec));
		memcpy(&rec, recs + i * (size_t)each, (size_t)each < sizeof(rec) ? (size_t)each : sizeof(rec));
		t->print(&rec);
	}
	free(recs);
}

int info_show(const char *letters)
{
	int fd = socket(PF_RDS, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		fprintf(stderr, "rdsrun: --info: no RDS socket: %s\n", strerror(errno));
		return EXIT_FAILURE;
	}
	for (size_t i = 0; i < TABLES; i++)
		if (!letters || strchr(letters, tables[i].letter))
			table_show(fd, &tables[i]);
	close(fd);
	return fflush(stdout) || ferror(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
