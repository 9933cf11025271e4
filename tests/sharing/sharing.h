/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * sharing.h - orders and answers between the coordinator and the processes of the player
 * (player.c).
 *
 * A process knows only its place: every order names the descriptors to use, so an order means the
 * same before and after exec.  All processes have the lines and mailboxes of all places, from
 * before the first fork.
 */
#ifndef SHARING_H
#define SHARING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLACES 32 /* processes at a time */
#define FDS 8	  /* RDS descriptors of each, numbers FIRST_FD and up */
#define PORTS 8
#define FIRST_PORT 4300
#define FIRST_FD 20
#define LINE(place) (100 + (place))
#define MAIL_IN(place) (140 + (place))	/* a process that passes a descriptor writes here */
#define MAIL_OUT(place) (180 + (place)) /* a process that takes one reads here */
#define BIG 80000

enum op {
	FORK,  /* to: the new process's place */
	EXEC,  /* of the same program */
	LEAVE, /* arg: how, 0 exit, 1 _exit, 2 return from main */
	OPEN,  /* to: the number it shall have */
	DUP,   /* dup2 onto "to" */
	CLOSE,
	CLOEXEC, /* arg: on, off */
	PASS,	 /* to: place whose mailbox it goes into */
	TAKE,	 /* to: the number it shall have; arg: MSG_CMSG_CLOEXEC or 0 */
	DROP,	 /* the first one of the mailbox goes unseen */
	BIND,	 /* arg: port */
	CONNECT,
	SEND, /* arg: port, or 0 for the default peer; id, len */
	RECV, /* arg: 0 at once, 1 something is there or comes; len: room */
	PEEK,
	POLL, /* arg: 0 nothing is there, 1 something is or comes; way */
	NAME,
	PEER,
	SET, /* arg: value; way: which */
	GET,
	OPS
};

enum way { BY_POLL, BY_SELECT, BY_EPOLL, WAYS };
enum which { RECVERR, RCVBUF, SNDTIMEO, NONBLOCK, OPTIONS };

struct order {
	int32_t op, fd, to, arg, way;
	uint32_t id, len;
};

struct answer {
	int32_t result, error; /* as of the call: -1 and errno */
	int32_t value;	       /* port, pid, option, or 1: readable */
	int32_t whole;	       /* the message's bytes are those of its id */
	uint32_t id;
};

/* worker.c: obeys orders for ever.  arrived: first sends the answer to EXEC. */
void worker(int place, const char *address, bool arrived) __attribute__((noreturn));
extern const char *program; /* what to exec */
extern int patience;	    /* ms; how long a worker waits for what has to come */

#endif
