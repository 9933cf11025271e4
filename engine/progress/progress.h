/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * progress.h - who receives for this process, and when (progress.c); unsent messages when the
 * process ends (linger.c).
 *
 * Must not know what sockets wait for.
 */
#ifndef ENGINE_PROGRESS_PROGRESS_H
#define ENGINE_PROGRESS_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/helper/fd_exchange.h"
#include "engine/sys/compiler.h"
#include "engine/transport/transport.h"

/* What a send does besides sending. */
enum rds_at_send {
	RDS_AT_SEND_NOTHING,
	RDS_AT_SEND_NOTE,
	RDS_AT_SEND_LOOK,      /* receive now and then */
	RDS_AT_SEND_HAND_OVER, /* wait until the message is handed over: the process ends */
};

extern _Atomic enum rds_at_send rds_progress_at_send;
/* written under rx; in places a read without it is good enough as a guess */
extern _Atomic enum rds_attention rds_progress_attention;

void rds_progress_helper_round(void); /* helper: to be called each time it is awake */
void rds_progress_fork_child(void);
/* rx held: tell the transports which thread receives now */
void rds_progress_attention_update(void);
/* rx held: tell the transports again: a request was used up, or one is new */
void rds_progress_attention_renew(void);
bool rds_progress_round_locked(void); /* rx held: one round of receiving */
void rds_progress_relieve(bool now);
void rds_progress_pressure(void);     /* rx held */
bool rds_progress_has_pressure(void); /* rx held */
/*
 * rx not held: transport/shm/wake.c is about to wake a peer whose answer this thread has always
 * waited for
 */
void rds_progress_answer_expected(void);
void rds_progress_call_made(void);	  /* rx held: a call looked for input without waiting */
void rds_progress_spin_enter(void);	  /* rx held: this thread starts to spin */
void rds_progress_spin_leave(bool found); /* rx held */
void rds_progress_leader_woken(uint64_t within_ns); /* rx held */
void rds_progress_helper_woken(void);	  /* rx held: a device woke it */
/* rx held: a program may sleep for a socket in the kernel, or in another process */
void rds_progress_others_watch(void);
/* rx held: the helper has to show a socket, if that lasts */
void rds_progress_unseen_added(void);
void rds_progress_send_noted(size_t len); /* no lock held: rds_progress_at_send is set */
/* A message of len bytes was sent.  No lock held. */
static inline void rds_progress_send_made(size_t len)
{
	if (unlikely(atomic_load_explicit(&rds_progress_at_send, memory_order_relaxed)))
		rds_progress_send_noted(len);
	rds_helper_deferred_check();
}

/* linger.c */
extern _Atomic bool rds_progress_exiting;  /* rds_progress_exit_begin() */
/* wait until the messages sent so far are handed over; no lock held */
void rds_progress_linger(void);
uint64_t rds_progress_exit_deadline(void); /* RDS_PRELOAD_LINGER_MS from now */
/* messages that would be lost if the process ended now; no lock held */
unsigned rds_progress_count_unsent(void);
/*
 * A process that hands off sockets waits until then, and the rest of its exit does not wait longer;
 * 0: no such limit.
 */
void rds_progress_exit_by(uint64_t until_ns);
/* _exit(): does the helper ask peers for outstanding acknowledgements? */
bool rds_progress_asks_at_exit(void);
void rds_progress_linger_forget(void); /* forked child */

#endif
