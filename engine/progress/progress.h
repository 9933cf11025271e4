/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * progress.h - who receives for this process, and when (progress.c); what becomes of unsent messages when it ends (linger.c).
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

/* What a send does beside sending. */
enum rds_at_send {
	RDS_AT_SEND_NOTHING,
	RDS_AT_SEND_NOTE,
	RDS_AT_SEND_LOOK,      /* receive, now and then */
	RDS_AT_SEND_HAND_OVER, /* nobody will do it later: the process ends */
};

extern _Atomic enum rds_at_send rds_progress_at_send;
extern _Atomic enum rds_attention
	rds_progress_attention; /* written under rx; a guess without it is good enough in places */

void rds_progress_helper_round(void); /* helper: what is to be done each time it is awake */
void rds_progress_forget(void);
void rds_progress_attention_update(void); /* rx held: tell transports who looks after arrivals now */
void rds_progress_attention_renew(
	void);			      /* rx held: ... what they have been told: a request was used up, or one is new */
bool rds_progress_round_locked(void); /* rx held: one round of receiving */
void rds_progress_relieve(bool now);
void rds_progress_pressure(void);     /* rx held */
bool rds_progress_has_pressure(void); /* rx held */
void rds_progress_answer_expected(
	void); /* rx not held: wake.c is about to wake a peer whose answer this thread always waits for */
void rds_progress_call_made(void);	  /* rx held: a call looked for input without waiting */
void rds_progress_spin_enter(void);	  /* rx held: this thread starts to look again and again */
void rds_progress_spin_leave(bool found); /* rx held */
void rds_progress_leader_woken(void);	  /* rx held */
void rds_progress_helper_woken(void);	  /* rx held: by a device */
void rds_progress_others_watch(
	void); /* rx held: somebody may sleep for a socket in the kernel, or in another process */
void rds_progress_send_noted(size_t len); /* no lock held: at_send says that it matters */
/* A message of so many bytes was sent.  No lock held. */
static inline void rds_progress_send_made(size_t len)
{
	if (unlikely(atomic_load_explicit(&rds_progress_at_send, memory_order_relaxed)))
		rds_progress_send_noted(len);
	rds_helper_deferred_check();
}

/* linger.c */
extern _Atomic bool rds_progress_exiting;  /* rds_progress_exit_begin() */
void rds_progress_linger(void);		   /* a send since; no lock held */
uint64_t rds_progress_exit_deadline(void); /* RDS_PRELOAD_LINGER_MS from now */
unsigned rds_progress_count_unsent(void);  /* messages that would be lost if the process ended now; no lock held */
/* Who leaves sockets has begun to wait until then, and the rest of the exit does not wait beyond that; 0: nobody has. */
void rds_progress_exit_by(uint64_t until_ns);
/* _exit(): the helper asks peers for what they have not acknowledged. */
bool rds_progress_asks_at_exit(void);
void rds_progress_linger_forget(void); /* forked child */

#endif
