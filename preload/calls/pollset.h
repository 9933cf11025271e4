/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * pollset.h - one wait for RDS sockets and foreign descriptors together; poll() and select() are two ways to fill it
 * in and read it out.  It lives on the caller's stack; beyond POLLSET_SMALL entries its arrays are on the heap.
 */
#ifndef PRELOAD_POLLSET_H
#define PRELOAD_POLLSET_H

#include "preload/fdtable/fdtable.h"

#define POLLSET_SMALL 64
#define NONE_REFUSED UINT32_MAX

struct pollset_rds {
	struct rds_sock *sk; /* referenced */
	unsigned index;	     /* the caller's */
	short events, revents;
	bool counted; /* a reference, not a call in progress: those are few (RDS_THREAD_CALLS) */
};

struct pollset {
	unsigned n_rds, n_kernel, n_hangups;
	struct pollset_rds *rds;
	struct pollfd *kernel;	/* foreign descriptors, and room for the lines and one more */
	unsigned *kernel_index; /* the caller's */
	int *hangup_fds;	/* to the carriers of other processes' sockets (engine/share/borrower.h) */
	unsigned room;		/* for lines */
	bool all_hangups;	/* a set of epoll is among them: any may be meant */
	unsigned
		refused; /* the caller's index of one of which this process has no descriptor to learn more, or NONE_REFUSED */
	bool by_select;		/* select(): a bit that it has no set for is no event */
	bool looked; /* at least once */
	bool again;  /* one of them was being left for an exec that has failed */
	uint64_t since; /* it has waited for carriers that do not answer, 0: not yet */
	struct rds_wait *wait;
	void *heap;
	/*
	 * Of the sleep.  Here, and not in the frames above: a cancelled thread leaves those without returning, and AddressSanitizer would take
	 * what it has marked there for marks of later frames.
	 */
	struct timespec left;
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
/* NULL: never.  -EINVAL as the kernel checks it. */
int deadline_ts(struct deadline *d, const struct timespec *ts);
/* What is left, not below zero; NULL if there is no end. */
struct timespec *deadline_left(const struct deadline *d, struct timespec *left);

bool deadline_spin(const struct deadline *d, struct rds_wait *w, unsigned *round);

/* Room for n entries: 0 or -ENOMEM. */
int pollset_init(struct pollset *ps, unsigned n);
/* Adds descriptor fd (not negative) under the caller's index. */
void pollset_add(struct pollset *ps, int fd, unsigned index, short events);
/*
 * Number of entries with revents, or -EINTR, -ENOMEM.  A cancellation point where it sleeps.  -POLLSET_AGAIN: a carrier has ended, or a
 * socket has changed hands, the set is to be filled in anew.
 */
#define POLLSET_AGAIN 517 /* no errno */
int pollset_wait(struct pollset *ps, const struct deadline *d, const sigset_t *mask);
/* Gives everything back; also the clean-up handler of a cancelled wait (hence the type). */
void pollset_end(void *pollset);

/* What select() can tell of the bits that poll() reports, for the sets that the entry was in. */
short pollset_select_bits(short events, short revents);

#define SELECT_IN (POLLIN | POLLRDNORM | POLLRDBAND)
#define SELECT_OUT (POLLOUT | POLLWRNORM | POLLWRBAND)
#define SELECT_EX POLLPRI

#endif
