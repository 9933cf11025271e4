/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * pair.h - this side of operations on an agent's memory: one socket, memory of its own, and the
 * simplest write of all.
 */
#ifndef RDMAOPS_PAIR_H
#define RDMAOPS_PAIR_H

#include "agent.h"

#define INIT_PORT 4050

extern struct agent *a;
extern struct box *b;
extern unsigned char *p; /* memory of this side */
extern uint64_t token;	 /* the last that was used */

void begin(void);	   /* AREA bytes of this side, no region yet */
/* one page of this side; the agent's first page is a region: its cookie */
uint64_t begin_page(void);
void end(void);
void end_unread(void); /* there may be messages that the agent has not taken */

/* of 64 bytes at p, a new pattern and a new token */
struct op simple(uint64_t cookie, uint64_t flags);
int send_op(const struct op *op);
void plain(const char *text);
void comes(const char *text, const char *why); /* the next message there is this one */
void works(uint64_t cookie, const char *why);  /* a write, its notification and its message */

#endif
