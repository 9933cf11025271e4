/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * node.c - asks for the node, puts it in order, and compares it with what it was (node.h).
 *
 * The library asks all processes at once, within its own bounds (RDS_PRELOAD_INFO_MEMBERS).
 */
#include "rdsrun/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define ROOM_FIRST 65536 /* bytes */

static double seconds_of(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* One call asks all processes, so there is room from the beginning, and more than was needed. */
static int fetch(int fd, struct node *out)
{
	socklen_t len = ROOM_FIRST, room;
	int each;

	for (;;) {
		free(out->entries);
		room = len;
		out->entries = malloc(room);
		if (!out->entries)
			return ENOMEM;
		each = getsockopt(fd, SOL_RDS, RDS_PRELOAD_INFO_MEMBERS, out->entries, &len);
		if (each == (int)sizeof(*out->entries))
			break;
		if (each >= 0)
			return EPROTO;
		if (errno != ENOSPC)
			return errno;
		len += len / 4;
	}
	out->n = len / sizeof(*out->entries);
	return 0;
}

/* ---- order ---- */

static int compare_number(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int compare_socket(const struct rds_preload_info_socket *a, const struct rds_preload_info_socket *b)
{
	int d = memcmp(&a->bound_addr, &b->bound_addr, sizeof(a->bound_addr));

	if (!d)
		d = compare_number(ntohs(a->bound_port), ntohs(b->bound_port));
	return d ? d : compare_number(a->inum, b->inum);
}

static int compare_connection(const struct rds_preload_info_connection *a, const struct rds_preload_info_connection *b)
{
	int d = memcmp(&a->laddr, &b->laddr, sizeof(a->laddr));

	if (!d)
		d = memcmp(&a->faddr, &b->faddr, sizeof(a->faddr));
	if (!d)
		d = compare_number(a->tos, b->tos);
	if (!d)
		d = compare_number((uint64_t)a->peer_pid, (uint64_t)b->peer_pid);
	return d ? d : memcmp(a->transport, b->transport, sizeof(a->transport));
}

static int compare(const void *x, const void *y)
{
	const struct rds_preload_info_entry *a = x, *b = y;
	int d = compare_number(a->member, b->member);

	if (!d)
		d = compare_number(a->is, b->is);
	if (d)
		return d;
	if (a->is == RDS_PRELOAD_IS_SOCKET)
		return compare_socket(&a->u.socket, &b->u.socket);
	if (a->is == RDS_PRELOAD_IS_CONNECTION)
		return compare_connection(&a->u.connection, &b->u.connection);
	return compare_number((uint64_t)a->u.process.pid, (uint64_t)b->u.process.pid);
}

bool node_is_twin(const struct node *node, size_t entry)
{
	return entry && !compare(&node->entries[entry - 1], &node->entries[entry]);
}

/* ---- rates ---- */

/* The only one with these names; else NULL. */
static const struct rds_preload_info_entry *find_before(const struct node *before,
							const struct rds_preload_info_entry *e)
{
	const struct rds_preload_info_entry *found = bsearch(e, before->entries, before->n, sizeof(*e), compare);
	size_t i = found ? (size_t)(found - before->entries) : 0;

	if (!found || node_is_twin(before, i) || (i + 1 < before->n && node_is_twin(before, i + 1)))
		return NULL;
	return found;
}

/* A number that went back is another one's. */
static double per_second(uint64_t was, uint64_t is, double seconds, bool *known)
{
	*known &= is >= was;
	return *known ? (double)(is - was) / seconds : 0;
}

static void rate_of(const struct rds_preload_info_entry *was, const struct rds_preload_info_entry *is, double seconds,
		    struct node_rate *r)
{
	const struct rds_preload_info_process *p = &was->u.process, *q = &is->u.process;
	const struct rds_preload_info_connection *c = &was->u.connection, *d = &is->u.connection;

	r->known = seconds > 0;
	if (is->is == RDS_PRELOAD_IS_CONNECTION) {
		r->sent = per_second(c->next_tx_seq, d->next_tx_seq, seconds, &r->known);
		r->received = per_second(c->next_rx_seq, d->next_rx_seq, seconds, &r->known);
		return;
	}
	if (is->is != RDS_PRELOAD_IS_PROCESS || p->answer || q->answer) {
		r->known = false;
		return;
	}
	r->sent = per_second(p->sent, q->sent, seconds, &r->known);
	r->received = per_second(p->received, q->received, seconds, &r->known);
	r->sent_bytes = per_second(p->sent_bytes, q->sent_bytes, seconds, &r->known);
	r->received_bytes = per_second(p->received_bytes, q->received_bytes, seconds, &r->known);
}

static void rates(struct node *node, const struct node *before)
{
	const struct rds_preload_info_entry *was;

	node->interval = node->clock - before->clock;
	for (size_t i = 0; i < node->n; i++) {
		if (node_is_twin(node, i) || (i + 1 < node->n && node_is_twin(node, i + 1)))
			continue;
		was = find_before(before, &node->entries[i]);
		if (was)
			rate_of(was, &node->entries[i], node->interval, &node->rates[i]);
	}
}

/* ---- processes ---- */

/* From that entry on, all of one member. */
static size_t process_take(struct node *node, size_t at, struct node_process *p)
{
	const uint32_t member = node->entries[at].member;

	p->member = member;
	for (; at < node->n && node->entries[at].member == member; at++) {
		const struct rds_preload_info_entry *e = &node->entries[at];

		if (e->is == RDS_PRELOAD_IS_PROCESS) {
			p->told = &e->u.process;
			p->rate = &node->rates[at];
		} else if (e->is == RDS_PRELOAD_IS_SOCKET) {
			p->sock = p->nsocks++ ? p->sock : at;
		} else {
			p->conn = p->nconns++ ? p->conn : at;
		}
	}
	if (p->told)
		proc_look(p->told->pid, &p->facts);
	return at;
}

static int processes(struct node *node)
{
	size_t at = 0;

	node->procs = calloc(node->n ? node->n : 1, sizeof(*node->procs));
	if (!node->procs)
		return ENOMEM;
	while (at < node->n) {
		struct node_process *p = &node->procs[node->nprocs];

		at = process_take(node, at, p);
		if (p->told && p->told->self) /* what was needed to ask */
			memset(p, 0, sizeof(*p));
		else
			node->nprocs++;
	}
	return 0;
}

int node_look(int fd, const struct node *before, struct node *out)
{
	int err;

	memset(out, 0, sizeof(*out));
	err = fetch(fd, out);
	if (err)
		goto fail;
	out->clock = seconds_of(CLOCK_MONOTONIC);
	out->wall = seconds_of(CLOCK_REALTIME);
	qsort(out->entries, out->n, sizeof(*out->entries), compare);
	out->rates = calloc(out->n ? out->n : 1, sizeof(*out->rates));
	err = out->rates ? 0 : ENOMEM;
	if (err)
		goto fail;
	if (before)
		rates(out, before);
	err = processes(out);
	if (!err)
		return 0;
fail:
	node_free(out);
	return err;
}

void node_free(struct node *node)
{
	free(node->entries);
	free(node->rates);
	free(node->procs);
	memset(node, 0, sizeof(*node));
}
