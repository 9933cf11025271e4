/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * model.h - what should be so: sockets as open file descriptions, who has them, who is bound where, and what lies in whose queue.
 * Knows nothing of processes but their places.
 */
#ifndef MODEL_H
#define MODEL_H

#include "sharing.h"

#define SOCKS 64
#define QUEUE 24
#define QUEUE_BYTES 100000
#define MAIL 4

struct note {
	uint32_t id, len;
	int from; /* port */
	uint32_t sent_by; /* places that had the sender, at one time or another */
};

struct sock {
	int refs; /* descriptors, wherever they are; 0: not there */
	int port, peer;
	int value[OPTIONS];
	int maker; /* place of the process that has opened it; -1: gone */
	bool bereaved;	/* one of them was killed, and nobody has used it since ... */
	uint32_t heirs; /* ... by place: then only these can be the first, until one of them closes or leaves it */
	uint32_t had;  /* by place: processes of now that have, or have had, a descriptor */
	struct note queue[QUEUE];
	int queued;
	uint32_t bytes;
};

struct proc {
	bool lives;
	int fd[FDS]; /* socks, -1: none */
	bool cloexec[FDS];
	int mail[MAIL]; /* of the place: it stays when the process goes */
	int mails;
};

struct model {
	struct sock sock[SOCKS];
	struct proc proc[PLACES];
	int owner[PORTS];  /* socks, -1: nobody */
	bool freed[PORTS]; /* lately; may still be taken for a moment where a last close is noticed later */
	bool in_order;	   /* messages of different senders, too */
	const char *broken;
};

void model_start(struct model *m);
int model_new_sock(struct model *m, int place, int slot); /* -1: too many */
void model_fork(struct model *m, int place, int child);
void model_exec(struct model *m, int place);
void model_end(struct model *m, int place); /* of a process */
void model_killed(struct model *m, int place);
uint32_t model_holders(const struct model *m, int sock); /* by place: processes that have a descriptor */
void model_close(struct model *m, int place, int slot);
void model_dup(struct model *m, int place, int slot, int to);
void model_pass(struct model *m, int place, int slot, int to);
void model_take(struct model *m, int place, int slot, bool cloexec);
void model_drop(struct model *m, int place);
void model_bind(struct model *m, int sock, int port);
void model_send(struct model *m, int from, int port, uint32_t id, uint32_t len);
/* A message came out of a socket: NULL if it may, else why not.  It is gone then, unless it was only looked at. */
const char *model_received(struct model *m, int sock, uint32_t id, int len, int from, bool peek);
/* Would a process that goes leave sockets to others that it has opened itself? */
bool model_carries(const struct model *m, int place);
bool model_shared(const struct model *m, int sock, int place); /* with others than that process, or in a mailbox */
/* May a process that is killed take something of that socket along which others should have? */
bool model_concerns(const struct model *m, int sock, int place);
int model_count(const struct model *m, int place); /* its descriptors */

#endif
