/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * node_json.c - the node as one JSON object in one line (node.h).
 *
 * The fields are in rdsrun(1), and stay: others may be added.  What is not known is null.
 */
#include <string.h>

#include "rdsrun/node.h"

/* The length of the UTF-8 character that begins there; 0: there is none. */
static size_t utf8_length(const unsigned char *s, size_t left)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = *s < 0x80 ? 1 : *s >> 5 == 6 ? 2 : *s >> 4 == 14 ? 3 : *s >> 3 == 30 ? 4 : 0;
	uint32_t c;

	if (n <= 1)
		return n;
	if (n > left)
		return 0;
	c = *s & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

/* Up to the first zero byte.  Bytes that are no text become U+FFFD. */
static void json_string(FILE *out, const void *text, size_t size)
{
	const unsigned char *s = text;
	size_t left = strnlen(text, size), n;

	fputc('"', out);
	for (; left; s += n, left -= n) {
		n = utf8_length(s, left);
		if (!n) {
			fputs("\\ufffd", out);
			n = 1;
		} else if (*s == '"' || *s == '\\') {
			fprintf(out, "\\%c", *s);
		} else if (*s < 0x20 || *s == 0x7f) {
			fprintf(out, "\\u%04x", *s);
		} else {
			fwrite(s, 1, n, out);
		}
	}
	fputc('"', out);
}

/* ---- fields; each is followed by a comma but the last one of an object ---- */

static void field_text(FILE *out, const char *name, const void *text, size_t size)
{
	fprintf(out, "\"%s\":", name);
	json_string(out, text, size);
	fputc(',', out);
}

static void field_number(FILE *out, const char *name, uint64_t v, bool known)
{
	if (known)
		fprintf(out, "\"%s\":%llu,", name, (unsigned long long)v);
	else
		fprintf(out, "\"%s\":null,", name);
}

static void field_real(FILE *out, const char *name, double v, bool known)
{
	if (known)
		fprintf(out, "\"%s\":%.3f,", name, v);
	else
		fprintf(out, "\"%s\":null,", name);
}

static void field_bool(FILE *out, const char *name, bool v)
{
	fprintf(out, "\"%s\":%s,", name, v ? "true" : "false");
}

/* null for :: and no port */
static void field_address(FILE *out, const char *name, const void *in6, uint16_t be_port)
{
	char text[NODE_ADDRESS];

	node_address_port(in6, be_port, text);
	if (*text)
		field_text(out, name, text, sizeof(text));
	else
		field_number(out, name, 0, false);
}

static void print_socket(FILE *out, const struct rds_preload_info_socket *s)
{
	bool told = !(s->flags & RDS_PRELOAD_SOCKET_UNTOLD);

	fputc('{', out);
	field_address(out, "bound", &s->bound_addr, s->bound_port);
	field_address(out, "connected", &s->connected_addr, s->connected_port);
	field_number(out, "inode", s->inum, true);
	field_number(out, "tos", s->tos, told);
	field_number(out, "send_bytes", s->send_bytes, told);
	field_number(out, "send_messages", s->send_messages, told);
	field_number(out, "send_room", s->sndbuf, true);
	field_number(out, "receive_bytes", s->receive_bytes, told);
	field_number(out, "receive_messages", s->receive_messages, told);
	field_number(out, "receive_room", s->rcvbuf, true);
	field_number(out, "operations", s->operations, told);
	field_number(out, "last_operation", s->last_operation, told);
	field_bool(out, "monitors_congestion", s->flags & RDS_PRELOAD_SOCKET_MONITOR);
	fprintf(out, "\"congested\":%s}", s->flags & RDS_PRELOAD_SOCKET_CONGESTED ? "true" : "false");
}

static void print_connection(FILE *out, const struct node *node, size_t i)
{
	const struct rds_preload_info_connection *c = &node->entries[i].u.connection;
	const struct node_rate *r = &node->rates[i];
	const char *error = node_conn_error(c), *state = node_conn_state(c);
	char text[NODE_ADDRESS];

	fputc('{', out);
	node_address(&c->laddr, text);
	field_text(out, "local", text, sizeof(text));
	node_address(&c->faddr, text);
	field_text(out, "peer", text, sizeof(text));
	field_number(out, "peer_pid", (uint64_t)c->peer_pid, c->peer_pid > 0);
	field_number(out, "tos", c->tos, true);
	field_text(out, "transport", c->transport, sizeof(c->transport));
	field_text(out, "state", state, strlen(state));
	field_number(out, "since", (uint64_t)node_conn_since(c), node_conn_since(c) > 0);
	field_number(out, "attempts", c->attempts, true);
	field_number(out, "breaks", c->breaks, true);
	field_number(out, "next_tx_seq", c->next_tx_seq, true);
	field_number(out, "next_rx_seq", c->next_rx_seq, true);
	field_real(out, "sent_rate", r->sent, r->known);
	field_real(out, "received_rate", r->received, r->known);
	field_number(out, "waiting", c->queued, true);
	field_number(out, "unacknowledged", c->unacked, true);
	field_number(out, "retransmissions", c->retransmissions, true);
	field_number(out, "last_error_number", c->reason, true);
	fputs("\"last_error\":", out);
	json_string(out, error, strlen(error));
	fputc('}', out);
}

/* ---- processes ---- */

static void print_told(FILE *out, const struct node_process *p)
{
	const struct rds_preload_info_process *t = p->told;
	bool told = t->answer == RDS_PRELOAD_ANSWERED;

	if (told)
		field_text(out, "version", t->version, sizeof(t->version));
	else
		field_number(out, "version", 0, false);
	field_number(out, "library_memory", t->memory, told);
	field_number(out, "library_descriptors", t->fds, told);
	field_number(out, "sockets_open", t->sockets, told);
	field_number(out, "connections_open", t->connections, told);
	field_number(out, "sent", t->sent, told);
	field_number(out, "sent_bytes", t->sent_bytes, told);
	field_number(out, "received", t->received, told);
	field_number(out, "received_bytes", t->received_bytes, told);
	field_real(out, "sent_rate", p->rate->sent, p->rate->known);
	field_real(out, "sent_bytes_rate", p->rate->sent_bytes, p->rate->known);
	field_real(out, "received_rate", p->rate->received, p->rate->known);
	field_real(out, "received_bytes_rate", p->rate->received_bytes, p->rate->known);
}

static void print_facts(FILE *out, const struct node_process *p)
{
	const struct proc_facts *f = &p->facts;
	const char *answer = node_answer(p), *text = node_answer_text(p);

	field_number(out, "pid", (uint64_t)p->told->pid, p->told->pid > 0);
	field_text(out, "name", p->told->command, sizeof(p->told->command));
	field_text(out, "command", f->command, sizeof(f->command));
	field_text(out, "answer", answer, strlen(answer));
	field_text(out, "answer_text", text, strlen(text));
	field_number(out, "uid", (uint64_t)f->uid, f->uid != PROC_UNKNOWN);
	field_number(out, "threads", (uint64_t)f->threads, f->threads != PROC_UNKNOWN);
	field_number(out, "descriptors", (uint64_t)f->fds, f->fds != PROC_UNKNOWN);
}

static void print_lists(FILE *out, const struct node *node, const struct node_process *p)
{
	fputs("\"sockets\":[", out);
	for (size_t i = 0; i < p->nsocks; i++) {
		fputs(i ? "," : "", out);
		print_socket(out, &node->entries[p->sock + i].u.socket);
	}
	fputs("],\"connections\":[", out);
	for (size_t i = 0; i < p->nconns; i++) {
		fputs(i ? "," : "", out);
		print_connection(out, node, p->conn + i);
	}
	fputc(']', out);
}

void node_print_json(FILE *out, const struct node *node)
{
	const struct node_process *nobody = NULL;
	bool first = true;

	fprintf(out, "{\"format\":1,");
	field_real(out, "time", node->wall, true);
	field_real(out, "interval", node->interval, node->interval > 0);
	fputs("\"processes\":[", out);
	for (size_t i = 0; i < node->nprocs; i++) {
		const struct node_process *p = &node->procs[i];

		if (!p->told) {
			nobody = p;
			continue;
		}
		fputs(first ? "{" : ",{", out);
		first = false;
		print_facts(out, p);
		print_told(out, p);
		print_lists(out, node, p);
		fputc('}', out);
	}
	fputs("],\"unowned_sockets\":[", out);
	for (size_t i = 0; nobody && i < nobody->nsocks; i++) {
		fputs(i ? "," : "", out);
		print_socket(out, &node->entries[nobody->sock + i].u.socket);
	}
	fputs("]}\n", out);
}
