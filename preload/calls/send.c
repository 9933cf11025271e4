/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * send.c - data out.
 *
 * A blocked send sleeps inside the engine in one real libc call, where the thread may be cancelled.
 * So the reference on the socket is noted (rds_fds_hold). Calls that cannot sleep need no note.
 */
#include "preload/fdtable/fdtable.h"
#include "preload/calls/args.h"

#include <netinet/in.h>

#define SEND_BATCH 0x40000 /* MSG_BATCH: sendmmsg() adds it to all messages but the last */

static ssize_t send_blocking(struct rds_sock *sk, int fd, const struct msghdr *msg, int flags)
{
	rds_fds_hold(sk);
	ssize_t rc = rds_call_sendmsg(sk, fd, msg, flags);

	rds_fds_unhold();
	return rc;
}

static ssize_t send_engine(struct rds_sock *sk, int fd, const struct msghdr *msg, int flags)
{
	if (unlikely(sk == RDS_BORROWED)) {
		/* A cancellation point, also where it does not sleep. */
		if (!(flags & MSG_DONTWAIT))
			pthread_testcancel();
		return RDS_BORROWED_CALL(fd, rds_borrower_sendmsg(fd, msg, flags), now,
					 send_engine(now, fd, msg, flags));
	}
	return flags & MSG_DONTWAIT ? rds_call_sendmsg(sk, fd, msg, flags) : send_blocking(sk, fd, msg, flags);
}

/*
 * True: the message was sent. This does not sleep, but it is a cancellation point like any send
 * that might sleep.
 */
static bool send_quick(struct rds_sock *sk, const void *buf, size_t len, int flags, const struct sockaddr *addr,
		       socklen_t alen)
{
	bool sent;

	if (unlikely(alen != sizeof(struct sockaddr_in) || (flags & ~MSG_DONTWAIT) || !addr || sk == RDS_BORROWED))
		return false;
	if (flags)
		return rds_call_send_fast(sk, buf, len, addr);
	rds_fds_hold(sk);
	sent = rds_call_send_fast(sk, buf, len, addr);
	rds_fds_unhold();
	return sent;
}

/* ---- send, sendto ---- */

static ssize_t send_to_addr(struct rds_sock *sk, int fd, const void *buf, size_t len, int flags,
			    const struct sockaddr *addr, socklen_t alen)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len < ARGS_RW_MAX ? len : ARGS_RW_MAX};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct sockaddr_storage name;

	if (addr) {
		int rc = args_addr_in(addr, alen, &name);

		if (rc)
			return rc;
		msg.msg_name = &name;
		msg.msg_namelen = alen;
	}
	return send_engine(sk, fd, &msg, flags);
}

ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	struct rds_sock *sk = rds_fds_get(fd);

	if (likely(!sk))
		return libc_real.send(fd, buf, len, flags);
	return RDS_FDS_DONE(sk, send_to_addr(sk, fd, buf, len, flags, NULL, 0), send(fd, buf, len, flags));
}
RDS_ALIAS(__send, send);

ssize_t sendto(int fd, const void *buf, size_t len, int flags, __CONST_SOCKADDR_ARG addr, socklen_t alen)
{
	struct rds_sock *sk = rds_fds_get(fd);

	if (likely(!sk))
		return libc_real.sendto(fd, buf, len, flags, addr, alen);
	if (likely(send_quick(sk, buf, len, flags, addr.__sockaddr__, alen))) {
		rds_fds_put(sk);
		return (ssize_t)len;
	}
	return RDS_FDS_DONE(sk, send_to_addr(sk, fd, buf, len, flags, addr.__sockaddr__, alen),
			    sendto(fd, buf, len, flags, addr, alen));
}

/* ---- sendmsg, sendmmsg ---- */

/* ___sys_sendmsg() */
static ssize_t send_msg(struct rds_sock *sk, int fd, const struct msghdr *user, int flags)
{
	struct sockaddr_storage name;
	struct msghdr msg;
	int rc;

	rc = args_msg_in(user, &msg);
	if (rc == 0 && msg.msg_namelen)
		rc = args_addr_in(msg.msg_name, msg.msg_namelen, &name);
	msg.msg_name = msg.msg_namelen ? &name : NULL;
	rc = rc ? rc : args_iov_check(msg.msg_iov, msg.msg_iovlen, NULL);
	return rc ? rc : send_engine(sk, fd, &msg, flags);
}

/* An RDS socket may go to another process (or to this one, where that does no harm). */
static void send_rights(const struct msghdr *msg)
{
	if (likely(!rds_fds_on()) || rds_user_readable(msg, sizeof(*msg)) || !msg->msg_control ||
	    rds_user_readable(msg->msg_control, msg->msg_controllen))
		return;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)msg, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			reentry_call_begin();
			rds_share_begin();
			reentry_call_end();
		}
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct rds_sock *sk = rds_fds_get(fd);

	if (likely(!sk)) {
		send_rights(msg);
		return libc_real.sendmsg(fd, msg, flags);
	}
	return RDS_FDS_DONE(sk, flags & ARGS_MSG_COMPAT ? -EINVAL : send_msg(sk, fd, msg, flags),
			    sendmsg(fd, msg, flags));
}

/* __sys_sendmmsg(): a count wins over a later error. */
static int send_mmsg(struct rds_sock *sk, int fd, struct mmsghdr *vec, unsigned n, int flags)
{
	ssize_t rc = 0;
	unsigned sent = 0;

	if (n > ARGS_IOV_MAX)
		n = ARGS_IOV_MAX;
	for (; sent < n; sent++) {
		struct mmsghdr *m = &vec[sent];
		int eor = rds_user_readable(m, sizeof(*m)) ? 0 : m->msg_hdr.msg_flags & MSG_EOR;

		rc = send_msg(sk, fd, &m->msg_hdr, flags | eor | (sent + 1 < n ? SEND_BATCH : 0));
		if (rc < 0)
			break;
		if (rds_user_writable(&m->msg_len, sizeof(m->msg_len))) {
			rc = -EFAULT;
			break;
		}
		m->msg_len = (unsigned)rc;
	}
	return sent ? (int)sent : (int)rc;
}

int sendmmsg(int fd, struct mmsghdr *vec, unsigned n, int flags)
{
	struct rds_sock *sk = rds_fds_get(fd);

	if (likely(!sk)) {
		for (unsigned i = 0; unlikely(rds_fds_on()) && i < n && !rds_user_readable(&vec[i], sizeof(vec[i]));
		     i++)
			send_rights(&vec[i].msg_hdr);
		return libc_real.sendmmsg(fd, vec, n, flags);
	}
	return (int)RDS_FDS_DONE(sk, flags & ARGS_MSG_COMPAT ? -EINVAL : send_mmsg(sk, fd, vec, n, flags),
				 sendmmsg(fd, vec, n, flags));
}

/* ---- write: RDS refuses MSG_EOR, which write() implies on a SOCK_SEQPACKET socket ---- */

static ssize_t write_refused(struct rds_sock *sk)
{
	return rds_fds_done(sk, -EOPNOTSUPP);
}

ssize_t write(int fd, const void *buf, size_t len)
{
	struct rds_sock *sk = rds_fds_get(fd);

	return likely(!sk) ? libc_real.write(fd, buf, len) : write_refused(sk);
}
RDS_ALIAS(__write, write);

static ssize_t write_vector(struct rds_sock *sk, const struct iovec *iov, int n)
{
	size_t total;
	int rc = n < 0 || n > ARGS_IOV_MAX ? -EINVAL : args_iov_check(iov, (size_t)n, &total);

	if (rc < 0 || total == 0)
		/* Nothing to write: the file layer does not ask the socket. */
		return rds_fds_done(sk, rc);
	return write_refused(sk);
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
	struct rds_sock *sk = rds_fds_get(fd);

	return likely(!sk) ? libc_real.writev(fd, iov, n) : write_vector(sk, iov, n);
}

ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	struct rds_sock *sk = off == -1 ? rds_fds_get(fd) : NULL;

	/* At an offset the stand-in gives ESPIPE by itself. */
	return likely(!sk) ? libc_real.pwritev2(fd, iov, n, off, flags) : write_vector(sk, iov, n);
}
RDS_ALIAS(pwritev64v2, pwritev2);

ssize_t sendfile(int out, int in, off_t *off, size_t len)
{
	struct rds_sock *sk = rds_fds_get(out);

	if (unlikely(sk))
		return write_refused(sk);
	sk = rds_fds_get(in);
	if (likely(!sk))
		return libc_real.sendfile(out, in, off, len);
	/* As splice() below: to fill a pipe, the kernel would read the stand-in and wait there. */
	return rds_fds_done(sk, off ? -ESPIPE : -EINVAL);
}
RDS_ALIAS(sendfile64, sendfile);

ssize_t splice(int in, off64_t *inoff, int out, off64_t *outoff, size_t len, unsigned flags)
{
	struct rds_sock *sk = rds_fds_get(out);

	if (unlikely(sk))
		return write_refused(sk);
	sk = rds_fds_get(in);
	if (likely(!sk))
		return libc_real.splice(in, inoff, out, outoff, len, flags);
	/*
	 * Messages out of a socket into a pipe: no program does this, and a pipe would lose the
	 * borders of the messages.
	 */
	return rds_fds_done(sk, -EINVAL);
}
