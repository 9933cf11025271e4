/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * node_text.c - the node as lines for people (node.h): each process, then its sockets and
 * connections.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rdsrun/node.h"

#define NUMBER 32
#define BAR 20

/* 999, 1.5K, 12M: at most five characters, and a unit. */
static const char *human(double v, char text[NUMBER])
{
	static const char units[] = " KMGTPE";
	unsigned u = 0;

	for (; v >= 1024 && u + 2 < sizeof(units); u++)
		v /= 1024;
	snprintf(text, NUMBER, u && v < 10 ? "%.1f%c" : "%.0f%c", v, units[u]);
	if (!u)
		text[strlen(text) - 1] = '\0';
	return text;
}

static void print_bar(FILE *out, uint64_t bytes, uint32_t room)
{
	unsigned full = room ? (unsigned)(bytes < room ? (bytes * BAR + room - 1) / room : BAR) : 0;

	fputc('[', out);
	for (unsigned i = 0; i < BAR; i++)
		fputc(i < full ? '#' : '.', out);
	fputs("] ", out);
}

static void print_queue(FILE *out, const char *what, uint64_t bytes, uint32_t room, uint32_t messages,
			const struct node_style *style)
{
	char a[NUMBER], b[NUMBER];

	fprintf(out, "  %s ", what);
	if (style->bars)
		print_bar(out, bytes, room);
	fprintf(out, "%s of %s", human((double)bytes, a), human(room, b));
	if (messages)
		fprintf(out, " (%u)", messages);
}

static void print_socket(FILE *out, const struct rds_preload_info_socket *s, const struct node_style *style)
{
	char bound[NODE_ADDRESS], connected[NODE_ADDRESS];

	node_address_port(&s->bound_addr, s->bound_port, bound);
	node_address_port(&s->connected_addr, s->connected_port, connected);
	fprintf(out, "  socket %s%s%s", *bound ? bound : "unbound", *connected ? " -> " : "", connected);
	if (!(s->flags & RDS_PRELOAD_SOCKET_UNTOLD)) {
		print_queue(out, "unread", s->receive_bytes, s->rcvbuf, s->receive_messages, style);
		print_queue(out, "sending", s->send_bytes, s->sndbuf, s->send_messages, style);
	}
	if (s->operations)
		fprintf(out, "  %u operations", s->operations);
	if (s->last_operation)
		fprintf(out, "  last operation %llu", (unsigned long long)s->last_operation);
	if (s->tos)
		fprintf(out, "  tos %u", s->tos);
	fputs(s->flags & RDS_PRELOAD_SOCKET_CONGESTED ? "  CONGESTED\n" : "\n", out);
}

/* As `at`, of today only the time. */
static void print_since(FILE *out, int64_t since, double wall)
{
	time_t t = (time_t)since, now = (time_t)wall;
	struct tm then, today;
	char text[32];

	if (!since || !localtime_r(&t, &then) || !localtime_r(&now, &today))
		return;
	strftime(text, sizeof(text),
		 then.tm_yday == today.tm_yday && then.tm_year == today.tm_year ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S",
		 &then);
	fprintf(out, " since %s", text);
}

static void print_counts(FILE *out, const struct rds_preload_info_connection *c, const struct node_rate *rate)
{
	fprintf(out, "  sent %llu", (unsigned long long)(c->next_tx_seq ? c->next_tx_seq - 1 : 0));
	if (rate->known)
		fprintf(out, " (%.0f/s)", rate->sent);
	fprintf(out, " received %llu", (unsigned long long)(c->next_rx_seq ? c->next_rx_seq - 1 : 0));
	if (rate->known)
		fprintf(out, " (%.0f/s)", rate->received);
	if (c->queued)
		fprintf(out, "  waiting %u", c->queued);
	if (c->unacked)
		fprintf(out, "  unacknowledged %u", c->unacked);
	if (c->retransmissions)
		fprintf(out, "  retransmissions %u", c->retransmissions);
	if (c->breaks)
		fprintf(out, "  breaks %u", c->breaks);
	if (c->attempts && !(c->flags & RDS_INFO_CONNECTION_FLAG_CONNECTED))
		fprintf(out, "  attempts %u", c->attempts);
}

static void print_connection(FILE *out, const struct node *node, size_t i)
{
	const struct rds_preload_info_connection *c = &node->entries[i].u.connection;
	char local[NODE_ADDRESS], peer[NODE_ADDRESS], transport[TRANSNAMSIZ + 1];
	const char *error = node_conn_error(c);

	node_address(&c->laddr, local);
	node_address(&c->faddr, peer);
	node_clean(c->transport, sizeof(c->transport), transport);
	fprintf(out, "  connection %s -> %s", local, peer);
	if (c->peer_pid)
		fprintf(out, " (%d)", c->peer_pid);
	if (c->tos)
		fprintf(out, " tos %u", c->tos);
	fprintf(out, "  %s %s", transport, node_conn_state(c));
	print_since(out, node_conn_since(c), node->wall);
	print_counts(out, c, &node->rates[i]);
	if (*error)
		fprintf(out, "  last error: %s", error);
	fputc('\n', out);
}

static void print_rate(FILE *out, const char *what, uint64_t n, uint64_t bytes, const struct node_rate *rate,
		       double per, double bytes_per)
{
	char a[NUMBER], b[NUMBER], c[NUMBER];

	fprintf(out, "  %s %llu (%s)", what, (unsigned long long)n, human((double)bytes, a));
	if (rate->known)
		fprintf(out, " %s/s (%s/s)", human(per, b), human(bytes_per, c));
}

static void print_told(FILE *out, const struct node_process *p)
{
	const struct rds_preload_info_process *t = p->told;
	char version[sizeof(t->version) + 1], memory[NUMBER];

	node_clean(t->version, sizeof(t->version), version);
	fprintf(out, "  library %s, memory %s, descriptors %u", version, human((double)t->memory, memory), t->fds);
	if (p->facts.fds != PROC_UNKNOWN)
		fprintf(out, " of %d", p->facts.fds);
	if (p->facts.threads != PROC_UNKNOWN)
		fprintf(out, ", threads %d", p->facts.threads);
	fputc('\n', out);
	print_rate(out, "sent", t->sent, t->sent_bytes, p->rate, p->rate->sent, p->rate->sent_bytes);
	print_rate(out, "received", t->received, t->received_bytes, p->rate, p->rate->received,
		   p->rate->received_bytes);
	fputc('\n', out);
	if (t->sockets > p->nsocks || t->connections > p->nconns)
		fprintf(out, "  %u sockets and %u connections, not all of them shown\n", t->sockets, t->connections);
}

static void print_process(FILE *out, const struct node_process *p)
{
	char command[sizeof(p->facts.command)];

	if (!p->told) {
		fputs("no process: sockets that wait for an owner\n", out);
		return;
	}
	if (*p->facts.command)
		node_clean((const uint8_t *)p->facts.command, sizeof(p->facts.command) - 1, command);
	else
		node_clean(p->told->command, sizeof(p->told->command), command);
	if (p->told->pid)
		fprintf(out, "process %d", p->told->pid);
	else
		fputs("process of another namespace", out);
	fprintf(out, "  %s\n", command);
	if (p->told->answer == RDS_PRELOAD_ANSWERED)
		print_told(out, p);
	else
		fprintf(out, "  %s\n", node_answer_text(p));
}

void node_print(FILE *out, const struct node *node, const struct node_style *style)
{
	if (!node->nprocs)
		fputs("no RDS process of this user and registry\n", out);
	for (size_t i = 0; i < node->nprocs; i++) {
		const struct node_process *p = &node->procs[i];

		print_process(out, p);
		for (size_t j = 0; j < p->nsocks; j++)
			print_socket(out, &node->entries[p->sock + j].u.socket, style);
		for (size_t j = 0; j < p->nconns; j++)
			print_connection(out, node, p->conn + j);
	}
}
