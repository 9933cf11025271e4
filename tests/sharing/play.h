/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * play.h - between play.c (choosing), acts.c and traffic.c (doing).
 */
#ifndef PLAY_H
#define PLAY_H

#include "player.h"

extern struct model model;
extern bool busy[PLACES]; /* sleeps in a call: no other order for it */
extern uint32_t next_id;

/* play.c */
unsigned dice(unsigned n);
void say(const char *format, ...) __attribute__((format(printf, 1, 2))); /* the step, in words */
int any_place(void);
int empty_place(void);
/* One of its descriptors, or a number that is none; -1: there is no such thing. */
int any_slot(int place, bool open);
struct sock *sock_of(int place, int slot);
int used_slot(int place); /* an open one, and rather one that is bound */
/*
 * A process that got the socket after its owner was killed can use it only after a process that had
 * it before (a standby).  This makes a standby use it.  False: there is none.
 */
bool settled(int place, int slot);
bool can_be_first(int sock, int place); /* to use the socket */
/* May a process exec or end in this way?  At least one process stays. */
bool may_go(int place, bool allowed, bool carriers);
/* These end the sequence if it is otherwise. */
void expect(const struct answer *a, int result, int error);
void arrived(int place, int slot, const struct answer *a, bool peek);

/* Each makes a step of the process in that place.  False: the process lacks what it needs. */
/* acts.c */
bool do_fork(int place);
bool do_exec(int place);
bool do_leave(int place);
bool do_kill(int place);
bool read_before(int victim); /* acts.c */
bool do_open(int place);
bool do_dup(int place);
bool do_close(int place);
bool do_cloexec(int place);
bool do_pass(int place);
bool do_take(int place);
bool do_drop(int place);
bool do_bind(int place);
bool do_connect(int place);
bool do_names(int place);
bool do_set(int place);
bool do_get(int place);
/* If another process notices the last close, the port may be in use for a moment longer. */
struct answer bind_it(int place, const struct order *o, bool lately);

/* traffic.c */
bool do_send(int place);
bool do_recv(int place);
bool do_poll(int place);
bool do_sleep(int place);
bool do_kill_asleep(int place);

#endif
