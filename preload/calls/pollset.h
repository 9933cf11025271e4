/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * pollset.h - one wait for RDS sockets and foreign descriptors together. poll() and select() are
 * two ways to fill in a set and to read it out.
 *
 * A set lives on the caller's stack. Beyond POLLSET_SMALL entries its arrays are on the heap.
 */
#ifndef PRELOAD_CALLS_POLLSET_H
#define PRELOAD_CALLS_POLLSET_H

#include "preload/fdtable/fdtable.h"

#define POLLSET_SMALL 64
#define NONE_REFUSED UINT32_MAX

struct pollset_rds {
	struct rds_sock *sk; /* with a reference */
	unsigned index;	     /* the caller's index of the entry */
	short events, revents;
	/*
	 * A counted reference, not one of the calls in progress: a thread can have few of those
	 * (RDS_THREAD_CALLS).
	 */
	bool counted;
};

struct pollset {
	unsigned n_rds, n_kernel, n_hangups;
	struct pollset_rds *rds;
	/* foreign descriptors, room for the hang-up pipes and for one more */
	struct pollfd *kernel;
	unsigned *kernel_index; /* the caller's indexes of these */
	/* hang-up pipes of the owners of borrowed sockets (share/borrower.h) */
	int *hangup_fds;
	unsigned room;	  /* for hang-up pipes */
	bool all_hangups; /* an epoll set is among the descriptors: any owner may matter */
	/*
	 * The caller's index of a socket of which this process cannot learn more, for lack of a
	 * descriptor; or NONE_REFUSED.
	 */
	unsigned refused;
	bool by_select; /* select(): a bit for which the entry is in no set is no event */
	bool looked;	/* the engine was looked at once at least */
	bool again;	/* one of the sockets was handed off for an exec that has failed */
	bool late;	/* an owner does not answer */
	/* for these owners; it has the call's signal mask, too */
	struct rds_borrower_wait *owners;
	uint64_t since; /* when they were looked for */
	struct rds_wait *wait;
	void *heap;
	/*
	 * State of the sleep. It is here and not in the frames above: a cancelled thread leaves
	 * those without returning, and AddressSanitizer would take its marks there for marks of
	 * later frames.
	 */
	struct timespec left;
	sigset_t mask;
	unsigned round;
	bool timed_out;
	struct pollset_rds small_rds[POLLSET_SMALL];
	struct pollfd small_kernel[2 * POLLSET_SMALL + 1];
	unsigned small_index[POLLSET_SMALL];
	int small_hangup_fds[POLLSET_SMALL];
};

/* When to give up, on CLOCK_MONOTONIC. */
struct deadline {
	bool never, now;
	int64_t at_ns;
};

void deadline_ms(struct deadline *d, int ms);
/* NULL: never. -EINVAL as the kernel checks it. */
int deadline_ts(struct deadline *d, const struct timespec *ts);
/* The time left, not below zero. NULL if there is no end. */
struct timespec *deadline_left(const struct deadline *d, struct timespec *left);
/*
 * The same for a sleep while an owner is late: not long. What reports the end of the last owner goes
 * on reporting it. So it is left out of that sleep, and then the owners are looked for again.
 */
struct timespec *deadline_left_late(const struct deadline *d, struct timespec *left);
/* The last search for an owner was over at that time of os_now_ns(): is it time for the next one? */
bool late_look_is_due(uint64_t since);
bool deadline_expired(const struct deadline *d);

bool deadline_spin(const struct deadline *d, struct rds_wait *w, unsigned *round);

/*
 * Room for n entries: 0 or -ENOMEM. owners: of the program's call, which ends it when the last set is
 * at its end.
 */
int pollset_init(struct pollset *ps, unsigned n, struct rds_borrower_wait *owners);
/* Adds descriptor fd (not negative) under the caller's index. */
void pollset_add(struct pollset *ps, int fd, unsigned index, short events);
/*
 * Number of entries with revents, or -EINTR, -ENOMEM. A cancellation point where it sleeps.
 * -POLLSET_AGAIN: an owner has ended, or a socket has another owner; the set has to be filled in
 * anew.
 */
#define POLLSET_AGAIN 517 /* not an errno */
int pollset_wait(struct pollset *ps, const struct deadline *d);
void pollset_end(struct pollset *ps); /* gives everything back */

#define SELECT_IN (POLLIN | POLLRDNORM | POLLRDBAND)
#define SELECT_OUT (POLLOUT | POLLWRNORM | POLLWRBAND)
#define SELECT_EX POLLPRI

#endif
