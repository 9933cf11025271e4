/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * handoff_helper.h - a socket that is to get another owner, beside one that is always there.
 */
#ifndef TESTS_UNIT_HANDOFF_HELPER_H
#define TESTS_UNIT_HANDOFF_HELPER_H

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "engine/rdma/rdma.h"
#include "engine/share/handoff.h"
#include "engine/share/lease.h"
#include "engine/calls/start.h"
#include "tests/slow.h"
#include "tests/unit/bound_helper.h"
#include "tests/unit/suite.h"

static struct rds_sock *warm;
static int standin, warm_fd;

static inline void setup(void)
{
	struct sockaddr_in unused;

	ck_assert_int_eq(rds_call_start_engine(), 0);
	warm = bound_here(&warm_fd, &unused); /* so that the helper is there */
}

static inline bool is_new(struct rds_sock *sk)
{
	return sk != warm;
}

/* The stand-in and, if there is one, the socket. */
static inline void end(struct rds_sock *sk)
{
	close(standin);
	if (sk)
		rds_call_number_closed(sk);
}

/* The next control message, which must be all that there is to be read: its type. */
static inline int told(struct rds_sock *sk, int fd, void *value, size_t size)
{
	union {
		char bytes[CMSG_SPACE(sizeof(struct rds_rdma_notify))];
		struct cmsghdr align;
	} control;
	struct msghdr msg = {.msg_control = &control, .msg_controllen = sizeof(control)};

	ck_assert_int_eq(rds_call_recvmsg(sk, fd, &msg, MSG_DONTWAIT), 0);
	ck_assert_uint_eq(control.align.cmsg_len, CMSG_LEN(size));
	memcpy(value, CMSG_DATA(&control.align), size);
	return control.align.cmsg_type;
}

#endif
