/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_preload_mock.h - a toy engine behind the real preload layer: sockets of one process that
 * pass datagrams to each other by port, and counters of what the preload layer called.  It keeps
 * the promises of engine/rds.h that the layer above relies on (stand-in pair, references, the wait
 * protocol) and nothing of RDS.
 */
#ifndef TEST_PRELOAD_MOCK_H
#define TEST_PRELOAD_MOCK_H

#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "engine/rds.h"

#define ck_fails(call, err)                                                                                            \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		ck_assert_int_eq((call), -1);                                                                          \
		ck_assert_int_eq(errno, (err));                                                                        \
	} while (0)

struct mock_counts {
	_Atomic int open;	   /* sockets with numbers */
	/* references of calls, all sockets: 0 whenever nobody is inside a call */
	_Atomic int refs;
	_Atomic int numbers;	   /* descriptor numbers, all sockets */
	_Atomic int spins, sleeps; /* waits that spun; that armed */
	_Atomic int watched;
	_Atomic int last_flags; /* of the last send */
	_Atomic int forgotten;	/* rds_engine_fork_child() calls */
	_Atomic int away, away_closed; /* rds_borrower_*() calls: those that fail, numbers closed */
	_Atomic int looks, late;       /* rds_borrower_watch() calls; as many as will find the owner late */
	_Atomic int held;	       /* calls that hold signals back */
	_Atomic int wakes;	       /* it is woken for other sockets whenever it is about to sleep */
	/* a pipe that hangs up: the last owner has ended; 0: none */
	_Atomic int hung_up;
};
extern struct mock_counts mock;

/* The error of the n-th next receive (1 = the next one); 0, 0: none. */
void mock_fail_recv(int after, int err);
/* A descriptor that belongs to the engine, and where it is now. */
extern _Atomic int mock_internal;
int mock_internal_fd(void);
int mock_socket(void);		    /* socket(21, SOCK_SEQPACKET, 0), must succeed */
int mock_bound(int port);	    /* the same, bound */
struct sockaddr_in mock_addr(int port);
/* The kernel says that the last copy of the socket at fd is gone. */
unsigned mock_hangup(int fd);

#endif
