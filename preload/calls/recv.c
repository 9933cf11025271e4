/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * recv.c - data in. send.c tells about cancellation.
 *
 * A fortified program calls the _chk names. The length of its buffer is compared here. If it is too
 * short, the real function is called, which then ends the process with libc's message.
 */
#include "preload/fdtable/fdtable.h"
#include "preload/calls/args.h"

#include <string.h>

#include "engine/sys/os.h"

static ssize_t recv_blocking(struct rds_sock *sk, int fd, struct msghdr *msg, int flags)
{
	rds_fds_hold(sk);
	ssize_t rc = rds_call_recvmsg(sk, fd, msg, flags);

	rds_fds_unhold();
	return rc;
}

static ssize_t recv_engine(struct rds_sock *sk, int fd, struct msghdr *msg, int flags)
{
	if (unlikely(sk == RDS_BORROWED)) {
		/* A cancellation point, also where it does not sleep. */
		if (!(flags & MSG_DONTWAIT))
			pthread_testcancel();
		return RDS_BORROWED_CALL(fd, rds_borrower_recvmsg(fd, msg, flags), now,
					 recv_engine(now, fd, msg, flags));
	}
	return flags & MSG_DONTWAIT ? rds_call_recvmsg(sk, fd, msg, flags) : recv_blocking(sk, fd, msg, flags);
}

/* ---- recv, recvfrom ---- */

static ssize_t recv_from(struct rds_sock *sk, int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
			 socklen_t *alen)
{
	struct iovec iov = {buf, len < ARGS_RW_MAX ? len : ARGS_RW_MAX};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct sockaddr_storage name;

	if (addr) {
		msg.msg_name = &name;
		msg.msg_namelen = sizeof(name);
	}
	ssize_t rc = recv_engine(sk, fd, &msg, flags);

	if (rc >= 0 && addr && unlikely(!args_addr_out_plain(&name, msg.msg_namelen, addr, alen))) {
		int bad = args_addr_out(&name, msg.msg_namelen, addr, alen);

		rc = bad ? bad : rc;
	}
	return rc;
}

ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	struct rds_sock *sk = rds_fds_get(fd);

	if (likely(!sk))
		return libc_real.recv(fd, buf, len, flags);
	return RDS_FDS_DONE(sk, recv_from(sk, fd, buf, len, flags, NULL, NULL), recv(fd, buf, len, flags));
}

ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags)
{
	struct rds_sock *sk = len > room ? NULL : rds_fds_get(fd);

	if (likely(!sk))
		return libc_real.__recv_chk(fd, buf, len, room, flags);
	return RDS_FDS_DONE(sk, recv_from(sk, fd, buf, len, flags, NULL, NULL), recv(fd, buf, len, flags));
}

ssize_t recvfrom(int fd, void *buf, size_t len, int flags, __SOCKADDR_ARG addr, socklen_t *alen)
{
	struct rds_sock *sk = rds_fds_get(fd);

	if (likely(!sk))
		return libc_real.recvfrom(fd, buf, len, flags, addr, alen);
	return RDS_FDS_DONE(sk, recv_from(sk, fd, buf, len, flags, addr.__sockaddr__, alen),
			    recvfrom(fd, buf, len, flags, addr, alen));
}

ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags, __SOCKADDR_ARG addr, socklen_t *alen)
{
	struct rds_sock *sk = len > room ? NULL : rds_fds_get(fd);

	if (likely(!sk))
		return libc_real.__recvfrom_chk(fd, buf, len, room, flags, addr, alen);
	return RDS_FDS_DONE(sk, recv_from(sk, fd, buf, len, flags, addr.__sockaddr__, alen),
			    recvfrom(fd, buf, len, flags, addr, alen));
}

/* ---- recvmsg ---- */

/*
 * ___sys_recvmsg(): the header is written only on success, the name's length only if a name was
 * asked for.
 */
static ssize_t recv_msg(struct rds_sock *sk, int fd, struct msghdr *user, int flags)
{
	struct sockaddr_storage name;
	struct msghdr msg;
	ssize_t rc;

	rc = args_msg_in(user, &msg);
	rc = rc ? rc : args_iov_check(msg.msg_iov, msg.msg_iovlen, NULL);
	if (rc)
		return rc;
	/*
	 * msg_namelen stays the caller's: a call that returns a notification may leave it
	 * unchanged.
	 */
	if (msg.msg_name)
		msg.msg_name = &name;
	msg.msg_flags = 0;
	rc = recv_engine(sk, fd, &msg, flags);
	if (rc < 0)
		return rc;
	if (msg.msg_name) {
		int bad = args_addr_out(&name, msg.msg_namelen, user->msg_name, &user->msg_namelen);

		if (bad)
			return bad;
	}
	if (rds_user_writable(&user->msg_controllen, sizeof(*user) - offsetof(struct msghdr, msg_controllen)))
		return -EFAULT;
	user->msg_flags = msg.msg_flags | (flags & MSG_CMSG_CLOEXEC);
	user->msg_controllen = msg.msg_controllen;
	return rc;
}

/*
 * Descriptors that arrived over an AF_UNIX socket may be RDS sockets. Their numbers are new in any
 * case.
 */
static void recv_rights(const struct msghdr *msg)
{
	int saved = errno;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0))
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			rds_fds_received(fd);
		}
	}
	errno = saved;
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct rds_sock *sk = rds_fds_get(fd);

	if (unlikely(sk))
		return RDS_FDS_DONE(sk, flags & ARGS_MSG_COMPAT ? -EINVAL : recv_msg(sk, fd, msg, flags),
				    recvmsg(fd, msg, flags));
	ssize_t rc = libc_real.recvmsg(fd, msg, flags);

	if (rc >= 0 && msg->msg_controllen)
		recv_rights(msg);
	return rc;
}

/* ---- recvmmsg ---- */

/* Absolute end of *timeout. A time that the clock cannot count means never. */
static int mmsg_end(const struct timespec *timeout, int64_t *end)
{
	if (rds_user_readable(timeout, sizeof(*timeout)))
		return -EFAULT;
	if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000)
		return -EINVAL;
	if (timeout->tv_sec >= INT64_MAX / 2000000000)
		*end = INT64_MAX;
	else
		*end = (int64_t)os_now_ns() + timeout->tv_sec * INT64_C(1000000000) + timeout->tv_nsec;
	return 0;
}

/*
 * The kernel looks at the timeout only after each message, and writes back the time that is left.
 */
static bool mmsg_time_up(struct timespec *timeout, int64_t end)
{
	int64_t left = end - (int64_t)os_now_ns();

	if (left < 0)
		left = 0;
	timeout->tv_sec = left / 1000000000;
	timeout->tv_nsec = left % 1000000000;
	return left == 0;
}

/* do_recvmmsg() */
static int recv_mmsg(struct rds_sock *sk, int fd, struct mmsghdr *vec, unsigned n, int flags, struct timespec *timeout)
{
	unsigned got = 0;
	int64_t end = 0;
	ssize_t rc = timeout ? mmsg_end(timeout, &end) : 0;

	if (rc == 0 && !(flags & MSG_ERRQUEUE)) {
		int err = sk == RDS_BORROWED ? (int)RDS_BORROWED_CALL(fd, rds_borrower_take_error(fd), now,
								      rds_sock_take_error(now))
					     : rds_sock_take_error(sk);

		rc = err > 0 ? -err : err;
	}
	if (rc)
		return (int)rc;
	while (got < n) {
		rc = recv_msg(sk, fd, &vec[got].msg_hdr, flags & ~MSG_WAITFORONE);
		if (rc < 0)
			break;
		if (rds_user_writable(&vec[got].msg_len, sizeof(vec[got].msg_len))) {
			rc = -EFAULT;
			break;
		}
		vec[got++].msg_len = (unsigned)rc;
		rc = 0;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (timeout && mmsg_time_up(timeout, end))
			break;
	}
	if (rc == 0 || got == 0)
		return rc ? (int)rc : (int)got;
	/* This call returns the messages, the next call the error. */
	if (rc != -EAGAIN && sk == RDS_BORROWED)
		rds_borrower_set_error(fd, (int)-rc);
	else if (rc != -EAGAIN)
		rds_sock_set_error(sk, (int)-rc);
	return (int)got;
}

int recvmmsg(int fd, struct mmsghdr *vec, unsigned n, int flags, struct timespec *timeout)
{
	struct rds_sock *sk = rds_fds_get(fd);

	if (unlikely(sk))
		return (int)RDS_FDS_DONE(sk,
					 flags & ARGS_MSG_COMPAT ? -EINVAL : recv_mmsg(sk, fd, vec, n, flags, timeout),
					 recvmmsg(fd, vec, n, flags, timeout));
	int rc = libc_real.recvmmsg(fd, vec, n, flags, timeout);

	for (int i = 0; i < rc; i++)
		if (vec[i].msg_hdr.msg_controllen)
			recv_rights(&vec[i].msg_hdr);
	return rc;
}

/* ---- read, readv ---- */

static ssize_t recv_vector(struct rds_sock *sk, int fd, const struct iovec *iov, int n, int flags)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n};
	size_t total;

	int rc = n < 0 || n > ARGS_IOV_MAX ? -EINVAL : args_iov_check(iov, (size_t)n, &total);

	if (rc < 0 || total == 0)
		/* No room: the file layer does not ask the socket, and no message is used up. */
		return rc;
	return recv_engine(sk, fd, &msg, flags);
}

static ssize_t recv_plain(struct rds_sock *sk, int fd, void *buf, size_t len)
{
	struct iovec iov = {buf, len};

	return RDS_FDS_DONE(sk, recv_vector(sk, fd, &iov, 1, 0), read(fd, buf, len));
}

ssize_t read(int fd, void *buf, size_t len)
{
	struct rds_sock *sk = rds_fds_get(fd);

	return likely(!sk) ? libc_real.read(fd, buf, len) : recv_plain(sk, fd, buf, len);
}
RDS_ALIAS(__read, read);

ssize_t __read_chk(int fd, void *buf, size_t len, size_t room)
{
	struct rds_sock *sk = len > room ? NULL : rds_fds_get(fd);

	return likely(!sk) ? libc_real.__read_chk(fd, buf, len, room) : recv_plain(sk, fd, buf, len);
}

ssize_t readv(int fd, const struct iovec *iov, int n)
{
	struct rds_sock *sk = rds_fds_get(fd);

	if (likely(!sk))
		return libc_real.readv(fd, iov, n);
	return RDS_FDS_DONE(sk, recv_vector(sk, fd, iov, n, 0), readv(fd, iov, n));
}

ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	struct rds_sock *sk = off == -1 ? rds_fds_get(fd) : NULL;

	if (likely(!sk))
		return libc_real.preadv2(fd, iov, n, off, flags);
	if (flags & ~(RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND))
		return rds_fds_done(sk, -EOPNOTSUPP);
	return RDS_FDS_DONE(sk, recv_vector(sk, fd, iov, n, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0),
			    preadv2(fd, iov, n, off, flags));
}
RDS_ALIAS(preadv64v2, preadv2);
