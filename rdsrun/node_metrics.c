/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * node_metrics.c - the node in Prometheus' text format (node.h).
 *
 * One table says which numbers there are; all samples of one metric stand together.
 */
#include <string.h>

#include "rdsrun/node.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- labels ---- */

static void print_label(FILE *out, const char *name, const char *text)
{
	fprintf(out, "%s=\"", name);
	for (; *text; text++)
		fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
	fputc('"', out);
}

static void labels_process(FILE *out, const struct node_process *p)
{
	char name[sizeof(p->told->command) + 1] = "";

	if (p->told)
		node_clean(p->told->command, sizeof(p->told->command), name);
	fprintf(out, "{pid=\"%d\",member=\"%u\",", p->told ? p->told->pid : 0, p->member);
	print_label(out, "name", name);
}

static void labels_socket(FILE *out, const struct rds_preload_info_socket *s)
{
	char text[NODE_ADDRESS];

	node_address_port(&s->bound_addr, s->bound_port, text);
	fputc(',', out);
	print_label(out, "bound", text);
	fprintf(out, ",inode=\"%llu\"", (unsigned long long)s->inum);
}

/* Those that cannot be told apart otherwise have numbers: no two samples may have the same labels. */
static void labels_connection(FILE *out, const struct node *node, size_t entry, unsigned twin)
{
	const struct rds_preload_info_connection *c = &node->entries[entry].u.connection;
	char text[NODE_ADDRESS], transport[TRANSNAMSIZ + 1];

	node_address(&c->laddr, text);
	fputc(',', out);
	print_label(out, "local", text);
	node_address(&c->faddr, text);
	fputc(',', out);
	print_label(out, "peer", text);
	node_clean(c->transport, sizeof(c->transport), transport);
	fputc(',', out);
	print_label(out, "transport", transport);
	fprintf(out, ",tos=\"%u\",peer_pid=\"%d\"", c->tos, c->peer_pid);
	if (twin)
		fprintf(out, ",number=\"%u\"", twin + 1);
}

/* ---- the table ---- */

#define PROCESS_METRICS(X)                                                                                             \
	X(sent_messages_total, counter, t->sent, "Messages that the process has sent.")                                \
	X(sent_bytes_total, counter, t->sent_bytes, "Bytes that the process has sent.")                                \
	X(received_messages_total, counter, t->received, "Messages that the process has received.")                    \
	X(received_bytes_total, counter, t->received_bytes, "Bytes that the process has received.")                    \
	X(memory_bytes, gauge, t->memory, "Memory of the library for messages and connections.")                       \
	X(descriptors, gauge, t->fds, "Descriptors of the library.")                                                   \
	X(sockets, gauge, t->sockets, "RDS sockets.")                                                                  \
	X(connections, gauge, t->connections, "RDS connections.")

#define SOCKET_METRICS(X)                                                                                              \
	X(send_bytes, gauge, s->send_bytes, "Bytes sent and not acknowledged.")                                        \
	X(send_messages, gauge, s->send_messages, "Messages sent and not acknowledged.")                               \
	X(send_room_bytes, gauge, s->sndbuf, "Limit of send_bytes.")                                                   \
	X(receive_bytes, gauge, s->receive_bytes, "Bytes not read yet.")                                               \
	X(receive_messages, gauge, s->receive_messages, "Messages not read yet.")                                      \
	X(receive_room_bytes, gauge, s->rcvbuf, "Limit of receive_bytes.")                                             \
	X(operations, gauge, s->operations, "RDMA operations under way.")                                              \
	X(congested, gauge, !!(s->flags & RDS_PRELOAD_SOCKET_CONGESTED), "1 if nobody may send to the socket.")

#define CONNECTION_METRICS(X)                                                                                          \
	X(up, gauge, !!(c->flags & RDS_INFO_CONNECTION_FLAG_CONNECTED), "1 if the connection is up.")                  \
	X(next_tx_seq, counter, c->next_tx_seq, "Number of the next message to send.")                                 \
	X(next_rx_seq, counter, c->next_rx_seq, "Number of the next message to receive.")                              \
	X(waiting_messages, gauge, c->queued, "Messages that wait for the connection.")                                \
	X(unacknowledged_messages, gauge, c->unacked, "Messages that would be sent again.")                            \
	X(retransmissions_total, counter, c->retransmissions, "Segments that TCP has sent again.")                     \
	X(breaks_total, counter, c->breaks, "How often the connection was up, and broke.")                             \
	X(attempts, gauge, c->attempts, "Attempts to connect since it was last up.")                                   \
	X(last_error, gauge, c->reason, "Number of the last error, as rds-info has it.")

static void print_head(FILE *out, const char *of, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP rds_preload_%s_%s %s\n# TYPE rds_preload_%s_%s %s\n", of, name, help, of, name, type);
}

struct metric {
	const char *name, *type, *help;
};
#define METRIC_ROW(name, type, value, help) {#name, #type, help},
static const struct metric process_metrics[] = {PROCESS_METRICS(METRIC_ROW)};
static const struct metric socket_metrics[] = {SOCKET_METRICS(METRIC_ROW)};
static const struct metric connection_metrics[] = {CONNECTION_METRICS(METRIC_ROW)};
#undef METRIC_ROW

static uint64_t process_value(const struct rds_preload_info_process *t, unsigned m)
{
#define METRIC_VALUE(name, type, value, help) (uint64_t)(value),
	const uint64_t values[] = {PROCESS_METRICS(METRIC_VALUE)};

	return values[m];
}

static uint64_t socket_value(const struct rds_preload_info_socket *s, unsigned m)
{
	const uint64_t values[] = {SOCKET_METRICS(METRIC_VALUE)};

	return values[m];
}

static uint64_t connection_value(const struct rds_preload_info_connection *c, unsigned m)
{
	const uint64_t values[] = {CONNECTION_METRICS(METRIC_VALUE)};
#undef METRIC_VALUE

	return values[m];
}

/* ---- samples ---- */

static void print_processes(FILE *out, const struct node *node)
{
	fputs("# HELP rds_preload_process_info Processes, the version of their library, and whether they have "
	      "answered.\n"
	      "# TYPE rds_preload_process_info gauge\n",
	      out);
	for (size_t i = 0; i < node->nprocs; i++) {
		const struct node_process *p = &node->procs[i];
		char version[sizeof(p->told->version) + 1];

		if (!p->told)
			continue;
		node_clean(p->told->version, sizeof(p->told->version), version);
		fputs("rds_preload_process_info", out);
		labels_process(out, p);
		fputc(',', out);
		print_label(out, "version", version);
		fprintf(out, ",answer=\"%s\"} 1\n", node_answer(p));
	}
}

static void print_process_metric(FILE *out, const struct node *node, unsigned m)
{
	const struct metric *what = &process_metrics[m];

	print_head(out, "process", what->name, what->type, what->help);
	for (size_t i = 0; i < node->nprocs; i++) {
		const struct node_process *p = &node->procs[i];

		if (!p->told || p->told->answer != RDS_PRELOAD_ANSWERED)
			continue;
		fprintf(out, "rds_preload_process_%s", what->name);
		labels_process(out, p);
		fprintf(out, "} %llu\n", (unsigned long long)process_value(p->told, m));
	}
}

static void print_socket_metric(FILE *out, const struct node *node, unsigned m)
{
	const struct metric *what = &socket_metrics[m];

	print_head(out, "socket", what->name, what->type, what->help);
	for (size_t i = 0; i < node->nprocs; i++) {
		const struct node_process *p = &node->procs[i];

		for (size_t j = 0; j < p->nsocks; j++) {
			const struct rds_preload_info_socket *s = &node->entries[p->sock + j].u.socket;

			if (s->flags & RDS_PRELOAD_SOCKET_UNTOLD)
				continue;
			fprintf(out, "rds_preload_socket_%s", what->name);
			labels_process(out, p);
			labels_socket(out, s);
			fprintf(out, "} %llu\n", (unsigned long long)socket_value(s, m));
		}
	}
}

static void print_connection_metric(FILE *out, const struct node *node, unsigned m)
{
	const struct metric *what = &connection_metrics[m];
	unsigned twin = 0;

	print_head(out, "connection", what->name, what->type, what->help);
	for (size_t i = 0; i < node->nprocs; i++) {
		const struct node_process *p = &node->procs[i];

		for (size_t at = p->conn; at < p->conn + p->nconns; at++) {
			twin = node_is_twin(node, at) ? twin + 1 : 0;
			fprintf(out, "rds_preload_connection_%s", what->name);
			labels_process(out, p);
			labels_connection(out, node, at, twin);
			fprintf(out, "} %llu\n",
				(unsigned long long)connection_value(&node->entries[at].u.connection, m));
		}
	}
}

void node_print_metrics(FILE *out, const struct node *node)
{
	print_processes(out, node);
	for (unsigned m = 0; m < COUNT(process_metrics); m++)
		print_process_metric(out, node, m);
	for (unsigned m = 0; m < COUNT(socket_metrics); m++)
		print_socket_metric(out, node, m);
	for (unsigned m = 0; m < COUNT(connection_metrics); m++)
		print_connection_metric(out, node, m);
}
