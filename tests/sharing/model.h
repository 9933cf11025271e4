/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * model.h - the expected state: sockets as open file descriptions, the processes that have them,
 * their ports and their queues.  Knows nothing of processes but their places.
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
	/* A process that has (had) a descriptor was killed, and the socket was not used since. */
	bool bereaved;
	/*
	 * The standbys, by place: only these can be the first to use a bereaved socket, until one
	 * of them closes it, execs or ends.
	 */
	uint32_t heirs;
	uint32_t had; /* by place: living processes that have, or have had, a descriptor */
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
	int owner[PORTS]; /* socks, -1: none */
	/* Lately: if the last close is noticed later, the port is in use for a moment longer. */
	bool freed[PORTS];
	bool in_order; /* messages of different senders, too */
	const char *broken;
};

void model_start(struct model *m);
int model_new_sock(struct model *m, int place, int slot); /* -1: too many */
void model_fork(struct model *m, int place, int child);
void model_exec(struct model *m, int place);
void model_end(struct model *m, int place); /* of a process */
void model_killed(struct model *m, int place);
/* The processes that have a descriptor of the socket, by place. */
uint32_t model_holders(const struct model *m, int sock);
void model_close(struct model *m, int place, int slot);
void model_dup(struct model *m, int place, int slot, int to);
void model_pass(struct model *m, int place, int slot, int to);
void model_take(struct model *m, int place, int slot, bool cloexec);
void model_drop(struct model *m, int place);
void model_bind(struct model *m, int sock, int port);
void model_send(struct model *m, int from, int port, uint32_t id, uint32_t len);
/* A message came out of a socket: NULL if it may, else why not.  peek: it stays in the queue. */
const char *model_received(struct model *m, int sock, uint32_t id, int len, int from, bool peek);
/* Has the process opened a socket that others have, too?  Then it is probably its owner. */
bool model_carries(const struct model *m, int place);
/* Is a descriptor of the socket in another process, or in a mailbox? */
bool model_shared(const struct model *m, int sock, int place);
/* May messages of that socket be lost if the process is killed? */
bool model_concerns(const struct model *m, int sock, int place);
int model_count(const struct model *m, int place); /* its descriptors */

#endif
