/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * args.c - checked copies of a call's arguments. args.h names the kernel's functions of the same
 * purpose (net/socket.c, lib/iov_iter.c).
 */
#include "preload/calls/args.h"

#include <string.h>

int args_addr_in(const struct sockaddr *addr, socklen_t len, struct sockaddr_storage *to)
{
	if (len > sizeof(*to)) /* negative lengths too */
		return -EINVAL;
	if (rds_user_readable(addr, len))
		return -EFAULT;
	memcpy(to, addr, len);
	memset((char *)to + len, 0, sizeof(*to) - len);
	return 0;
}

int args_addr_out(const struct sockaddr_storage *from, socklen_t fromlen, struct sockaddr *addr, socklen_t *len)
{
	if (rds_user_writable(len, sizeof(*len)))
		return -EFAULT;
	int room = (int)*len;

	if (room < 0)
		return -EINVAL;
	if ((socklen_t)room > fromlen)
		room = (int)fromlen;
	if (rds_user_writable(addr, (size_t)room))
		return -EFAULT;
	memcpy(addr, from, (size_t)room);
	*len = fromlen;
	return 0;
}

int args_iov_check(const struct iovec *iov, size_t n, size_t *total)
{
	size_t sum = 0;

	if (rds_user_readable(iov, n * sizeof(*iov)))
		return -EFAULT;
	for (size_t i = 0; i < n; i++) {
		size_t len = iov[i].iov_len;

		if ((ssize_t)len < 0)
			return -EINVAL;
		sum += len < ARGS_RW_MAX - sum ? len : ARGS_RW_MAX - sum;
	}
	if (total)
		*total = sum;
	return 0;
}

int args_msg_in(const struct msghdr *msg, struct msghdr *to)
{
	if (rds_user_readable(msg, sizeof(*msg)))
		return -EFAULT;
	*to = *msg;
	if (!to->msg_name)
		to->msg_namelen = 0;
	if ((int)to->msg_namelen < 0)
		return -EINVAL;
	if (to->msg_namelen > sizeof(struct sockaddr_storage))
		to->msg_namelen = sizeof(struct sockaddr_storage);
	if (to->msg_iovlen > ARGS_IOV_MAX)
		return -EMSGSIZE;
	return 0;
}
