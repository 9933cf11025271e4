/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * args.h - what the kernel's generic socket code copies from and to the program before RDS sees a
 * call: names, message headers, vectors.
 *
 * The order of checks and the errno are the kernel's. The payload and the control buffer are the
 * engine's to check.
 */
#ifndef PRELOAD_CALLS_ARGS_H
#define PRELOAD_CALLS_ARGS_H

#include "preload/libc/preload.h"

#include <limits.h>
#include <netinet/in.h>
#include <string.h>

#include "engine/sys/uaccess.h"

#define ARGS_IOV_MAX 1024		 /* UIO_MAXIOV */
#define ARGS_RW_MAX ((size_t)0x7ffff000) /* MAX_RW_COUNT: longer transfers are cut */
/* MSG_CMSG_COMPAT: the *msg calls refuse it from user space. */
#define ARGS_MSG_COMPAT (int)0x80000000

/*
 * move_addr_to_kernel(): the name that a program passes in. 0, -EINVAL for a bad length, -EFAULT.
 */
int args_addr_in(const struct sockaddr *addr, socklen_t len, struct sockaddr_storage *to);
/*
 * move_addr_to_user() of an IPv4 address, the most common case. False: args_addr_out() is needed.
 */
static inline bool args_addr_out_plain(const struct sockaddr_storage *from, socklen_t fromlen, struct sockaddr *addr,
				       socklen_t *len)
{
	if (fromlen != sizeof(struct sockaddr_in) || rds_user_writable(len, sizeof(*len)) ||
	    *len < sizeof(struct sockaddr_in) || *len > INT_MAX || rds_user_writable(addr, sizeof(struct sockaddr_in)))
		return false;
	memcpy(addr, from, sizeof(struct sockaddr_in));
	*len = sizeof(struct sockaddr_in);
	return true;
}
/* move_addr_to_user(): writes at most *len bytes, and the full length to *len. */
int args_addr_out(const struct sockaddr_storage *from, socklen_t fromlen, struct sockaddr *addr, socklen_t *len);

/*
 * A vector of n elements: readable, no negative length. *total (may be NULL) is the sum, cut as the
 * kernel cuts it.
 */
int args_iov_check(const struct iovec *iov, size_t n, size_t *total);

/* copy_msghdr_from_user() without the name: a checked copy of the header. */
int args_msg_in(const struct msghdr *msg, struct msghdr *to);

#endif
