/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * node.h - the RDS processes of this host, their sockets and connections, at one moment.
 *
 * For a process that has the library preloaded.  What others have told may be anything: texts are
 * not clean, numbers need not fit each other.
 */
#ifndef RDSRUN_NODE_H
#define RDSRUN_NODE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "rds_preload_info.h"
#include "rdsrun/proc.h"

/* Per second, since the node was looked at before. */
struct node_rate {
	bool known;
	double sent, received, sent_bytes, received_bytes; /* the last two of processes alone */
};

struct node_process {
	unsigned member; /* its number on the node, which is nobody else's while it lives */
	/* NULL: sockets without an owner */
	const struct rds_preload_info_process *told;
	const struct node_rate *rate;
	struct proc_facts facts;
	size_t sock, nsocks, conn, nconns; /* entries from, and how many */
};

struct node {
	struct rds_preload_info_entry *entries; /* in order: by process, then by what they are, and names */
	struct node_rate *rates;		/* of each */
	size_t n;
	struct node_process *procs;
	size_t nprocs;
	double wall, clock; /* seconds: of the day since 1970, and of a clock that nobody sets */
	double interval;    /* of the rates; 0: there are none */
};

/* Asks the node.  `before` gives the rates, and may be NULL.  0 or an errno. */
int node_look(int fd, const struct node *before, struct node *out);
void node_free(struct node *node);

/* With the same names as the entry before it: they cannot be told apart. */
bool node_is_twin(const struct node *node, size_t entry);

/* ---- words ---- */

#define NODE_ADDRESS 80
void node_address(const void *in6, char text[NODE_ADDRESS]);
/* "" for :: */
void node_address_port(const void *in6, uint16_t be_port, char text[NODE_ADDRESS]);
/* Why it has not answered, as one word for scripts, and in words; of ANSWERED "answered" and "". */
const char *node_answer(const struct node_process *p);
const char *node_answer_text(const struct node_process *p);
const char *node_conn_state(const struct rds_preload_info_connection *c);
int64_t node_conn_since(const struct rds_preload_info_connection *c); /* 0: never */
/* Why it is down, or was the last time; "" if it never was. */
const char *node_conn_error(const struct rds_preload_info_connection *c);
/* Fixed arrays may have no end; what a terminal would take for more than text becomes '?'. */
void node_clean(const uint8_t *from, size_t size, char *to);

/* ---- ways to show it ---- */

struct node_style {
	bool bars;
};
void node_print(FILE *out, const struct node *node, const struct node_style *style);
void node_print_json(FILE *out, const struct node *node);
void node_print_metrics(FILE *out, const struct node *node);

#endif
