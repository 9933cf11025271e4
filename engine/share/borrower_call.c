/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * borrower_call.c - the calls of borrower.h: the program's arguments go into a request, the reply
 * goes into the program's memory.
 *
 * The program's memory is probed before it is touched, so that the program's own process returns
 * EFAULT.
 *
 * Must not know how a call gets to the owner (borrower_channel.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "engine/share/borrower_impl.h"
#include "engine/calls/info.h"
#include "engine/abi/revisions.h"
#include "engine/sys/os.h"
#include "engine/rds.h"
#include "engine/calls/sockopt.h"
#include "engine/sys/uaccess.h"
#include "engine/abi/user_copy.h"
#include "include/rds_abi.h"

#define FIRST_CMSG CMSG_SPACE(sizeof(struct rds_rdma_notify))

static bool call_may_block(int fd, int flags)
{
	return !(flags & MSG_DONTWAIT) && !(os_fcntl(fd, F_GETFL, 0) & O_NONBLOCK);
}

static uint64_t iov_sum_length(const struct iovec *iov, size_t n)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < n; i++)
		sum += iov[i].iov_len;
	return sum;
}

/* ---- messages ---- */

static void request_take_data(struct borrower_call *c, const struct msghdr *msg)
{
	uint64_t total = iov_sum_length(msg->msg_iov, msg->msg_iovlen);
	size_t i;

	c->q.total = total;
	if (total > RDS_SHARE_BIG)
		return; /* longer than any message may be: the owner refuses it without its bytes */
	/* Unreadable bytes are not sent: EFAULT, unless the owner finds another error first. */
	for (i = 0; i < msg->msg_iovlen; i++)
		if (rds_user_readable(msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len))
			return;
	c->data = msg->msg_iov;
	c->n_data = (unsigned)msg->msg_iovlen;
	if (total > RDS_SHARE_INLINE)
		c->q.big = (uint32_t)total;
	else
		c->q.data_len = (uint32_t)total;
}

ssize_t rds_borrower_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct borrower_call c = {.q = {.op = RDS_SHARE_SEND, .flags = flags}};
	int64_t rc;

	if ((int)msg->msg_namelen < 0 || msg->msg_namelen > RDS_SHARE_NAME)
		return -EINVAL;
	c.q.has_name = msg->msg_name != NULL;
	c.name = msg->msg_name;
	c.q.name_len = msg->msg_name ? msg->msg_namelen : 0;
	if (msg->msg_controllen) {
		if (msg->msg_controllen >= RDS_SHARE_CONTROL)
			return -ENOBUFS;
		if (rds_user_readable(msg->msg_control, msg->msg_controllen))
			return -EFAULT;
		c.control = msg->msg_control;
		c.q.control_len = (uint32_t)msg->msg_controllen;
		borrower_probe_message(&c, msg);
	}
	request_take_data(&c, msg);
	c.q.may_wait = call_may_block(fd, flags);
	rc = borrower_call(fd, &c);
	borrower_call_end(&c);
	return (ssize_t)rc;
}

/* Stores the message, and touches no memory beyond its length. */
static int reply_scatter_data(const struct msghdr *msg, const char *from, size_t left)
{
	size_t i, n;

	for (i = 0; left && i < msg->msg_iovlen; i++) {
		n = msg->msg_iov[i].iov_len < left ? msg->msg_iov[i].iov_len : left;
		if (n && rds_user_writable(msg->msg_iov[i].iov_base, n))
			return -EFAULT;
		memcpy(msg->msg_iov[i].iov_base, from, n);
		from += n;
		left -= n;
	}
	return 0;
}

/* Stores all but the message's bytes.  If that fails the message is lost, as in the kernel. */
static int reply_give_rest(const struct borrower_call *c, struct msghdr *msg)
{
	const struct rds_share_reply *a = &c->a;
	size_t control = a->control_len < msg->msg_controllen ? a->control_len : msg->msg_controllen;

	if (control && rds_user_writable(msg->msg_control, control))
		return -EFAULT;
	if (control)
		memcpy(msg->msg_control, c->out_control, control);
	msg->msg_controllen = control;
	msg->msg_flags = a->flags;
	if (msg->msg_name && !a->name_len) {
		rds_call_recv_no_name(msg);
	} else if (msg->msg_name) {
		memcpy(msg->msg_name, c->out_name, a->name_len < msg->msg_namelen ? a->name_len : msg->msg_namelen);
		msg->msg_namelen = a->name_len;
	}
	return 0;
}

ssize_t rds_borrower_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct borrower_call c = {.q = {.op = RDS_SHARE_RECV, .flags = flags}};
	uint64_t room = iov_sum_length(msg->msg_iov, msg->msg_iovlen);
	int64_t rc;
	int err;

	if (msg->msg_name && (int)msg->msg_namelen < 0)
		return -EINVAL;
	rc = borrower_recv_shown(fd, msg, flags);
	if (rc != -EAGAIN)
		return (ssize_t)rc;
	c.q.has_name = msg->msg_name != NULL;
	c.q.room = room < RDS_SHARE_BIG ? (uint32_t)room : RDS_SHARE_BIG;
	c.q.control_room = msg->msg_controllen < RDS_SHARE_CONTROL ? (uint32_t)msg->msg_controllen : RDS_SHARE_CONTROL;
	if (!msg->msg_control)
		c.q.control_room = 0;
	/*
	 * What cannot be stored is not taken, and stays pending.  This looks at the space of the
	 * first notification only; what cannot be stored behind that is lost (reply_give_rest()).
	 */
	c.q.fault = c.q.control_room &&
		    rds_user_writable(msg->msg_control, c.q.control_room < FIRST_CMSG ? c.q.control_room : FIRST_CMSG);
	c.q.may_wait = call_may_block(fd, flags);
	rc = borrower_call(fd, &c);
	if (rc >= 0) {
		err = reply_scatter_data(msg, c.out_data, c.a.big ? c.a.big : c.a.data_len);
		if (err)
			borrower_put_back(&c);
		else
			err = reply_give_rest(&c, msg);
		if (err)
			rc = err;
	}
	borrower_call_end(&c);
	return (ssize_t)rc;
}

/* ---- names ---- */

static int request_send_name(int fd, enum rds_share_op op, const struct sockaddr *addr, int len, bool again)
{
	struct borrower_call c = {.q = {.op = (uint16_t)op, .may_wait = again}, .name = addr};
	int64_t rc;

	if (len < 0 || len > (int)RDS_SHARE_NAME)
		return -EINVAL;
	c.q.name_len = (uint32_t)len;
	rc = borrower_call(fd, &c);
	borrower_call_end(&c);
	return (int)rc;
}

int rds_borrower_bind(int fd, const struct sockaddr *addr, int len)
{
	uint64_t until = rds_call_bind_until();
	int rc;

	/* As rds_call_bind(). */
	while ((rc = request_send_name(fd, RDS_SHARE_BIND, addr, len, os_now_ns() < until)) == -EBUSY)
		os_poll(NULL, 0, RDS_BIND_PAUSE_MS);
	return rc;
}

int rds_borrower_connect(int fd, const struct sockaddr *addr, int len)
{
	return request_send_name(fd, RDS_SHARE_CONNECT, addr, len, false);
}

static int request_read_name(int fd, enum rds_share_op op, struct sockaddr *addr, socklen_t *len)
{
	struct borrower_call c = {.q = {.op = (uint16_t)op}};
	int64_t rc = borrower_call(fd, &c);

	if (rc >= 0) {
		memcpy(addr, c.out_name, c.a.name_len < *len ? c.a.name_len : *len);
		*len = c.a.name_len;
	}
	borrower_call_end(&c);
	return (int)rc;
}

int rds_borrower_getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	return request_read_name(fd, RDS_SHARE_SOCKNAME, addr, len);
}

int rds_borrower_getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
	return request_read_name(fd, RDS_SHARE_PEERNAME, addr, len);
}

/* ---- options ---- */

int rds_borrower_setsockopt(int fd, int level, int opt, const void *val, socklen_t len)
{
	struct borrower_call c = {.q = {.op = RDS_SHARE_SETOPT, .level = level, .opt = opt, .arg = len}};
	unsigned char copy[RDS_SHARE_OPTION];
	struct iovec iov = {copy, len < sizeof(copy) ? len : sizeof(copy)};
	struct borrower_region was;
	bool ours;
	int64_t rc;

	if (rds_abi_level_is_rds(level) && opt == RDS_BARRIER)
		return borrower_barrier(fd, val, (int)len, call_may_block(fd, 0));
	if ((int)len < 0)
		return -EINVAL;
	if (rds_call_opt_is_local(level, opt))
		return rds_call_sol_socket_set(NULL, fd, opt, val, (int)len);
	/* Copied by the kernel: the owner refuses a wrong length, and there may be less memory. */
	if (val && !rds_ucopy_from(NULL, copy, (uintptr_t)val, iov.iov_len)) {
		c.q.has_name = true;
		c.q.data_len = (uint32_t)iov.iov_len;
		c.data = &iov;
		c.n_data = 1;
	}
	borrower_probe_option(&c, c.q.has_name ? copy : NULL);
	ours = borrower_call_frees_mr(fd, &c, &was);
	rc = borrower_call(fd, &c);
	if (ours && rc == -EINVAL) /* it ended with an earlier owner, and was not opened again */
		rc = 0;
	else if (ours && rc)
		borrower_region_keep(&was);
	borrower_call_end(&c);
	return (int)rc;
}

int rds_borrower_getsockopt(int fd, int level, int opt, void *val, socklen_t *len)
{
	struct borrower_call c = {.q = {.op = RDS_SHARE_GETOPT, .level = level, .opt = opt}};
	uint32_t n;
	int64_t rc;

	if (rds_user_readable(len, sizeof(*len)))
		return -EFAULT;
	if (rds_call_opt_is_local(level, opt)) /* SO_GET_FILTER equals SO_ATTACH_FILTER */
		return rds_call_sol_socket_get(NULL, fd, opt, val, len);
	memcpy(&n, len, sizeof(n));
	c.q.arg = n;
	if (rds_abi_level_is_rds(level)) {
		rds_abi_note_option(opt);
		if (rds_abi_is_info(opt))
			c.q.about = (uint8_t)rds_abi_info_revision(opt, (int)n);
	}
	borrower_set_abi(&c);
	/* calls/info.c looks at all of the buffer. */
	c.q.has_name = val && (opt < RDS_INFO_FIRST || (int)n < 0 || !rds_user_writable(val, n));
	rc = borrower_call(fd, &c);
	if (rc == -ENOSPC)
		rds_abi_info_note_told(c.a.len);
	n = c.a.big ? c.a.big : c.a.data_len;
	if (n > c.q.arg)
		n = (uint32_t)c.q.arg;
	if (c.slot && (rc >= 0 || rc == -ENOSPC)) {
		if ((n && rds_user_writable(val, n)) || rds_user_writable(len, sizeof(*len))) {
			rc = -EFAULT;
		} else {
			memcpy(val, c.out_data, n);
			memcpy(len, &c.a.len, sizeof(*len));
		}
	}
	borrower_call_end(&c);
	return (int)rc;
}

int rds_borrower_ioctl(int fd, unsigned long req, void *arg)
{
	struct borrower_call c = {.q = {.op = RDS_SHARE_IOCTL, .arg = req}};
	struct iovec iov = {arg, 1};
	bool tos = (unsigned)req == SIOCRDSSETTOS || (unsigned)req == SIOCRDSGETTOS;
	int64_t rc;

	if (!tos) /* about the host, or unknown: the answer of any socket is the same */
		return -ENOIOCTLCMD;
	if (arg && !rds_user_readable(arg, 1)) {
		c.q.has_name = true;
		c.q.data_len = 1;
		c.data = &iov;
		c.n_data = 1;
	}
	rc = borrower_call(fd, &c);
	if (c.slot && rc >= 0 && (unsigned)req == SIOCRDSGETTOS) {
		if (rds_user_writable(arg, 1))
			rc = -EFAULT;
		else
			memcpy(arg, c.out_data, 1);
	}
	borrower_call_end(&c);
	return (int)rc;
}

int rds_borrower_take_error(int fd)
{
	struct borrower_call c = {.q = {.op = RDS_SHARE_TAKE_ERROR}};
	int64_t rc = borrower_call(fd, &c);

	borrower_call_end(&c);
	return rc > 0 || rc == -RDS_BORROWER_TAKE_OVER ? (int)rc : 0;
}

void rds_borrower_set_error(int fd, int err)
{
	struct borrower_call c = {.q = {.op = RDS_SHARE_SET_ERROR, .opt = err}};

	(void)borrower_call(fd, &c);
	borrower_call_end(&c);
}

int rds_borrower_watch(int fd, bool edge, struct rds_borrower_wait *w)
{
	struct borrower_call c = {.q = {.op = RDS_SHARE_WATCH, .opt = edge}, .wait = w};
	int64_t rc;

	if (!edge && borrower_is_attached(fd))
		return 0;
	rc = borrower_call(fd, &c);
	if (!rc && c.slot)
		c.slot->watched = true;
	borrower_call_end(&c);
	return (int)rc;
}
