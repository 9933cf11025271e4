/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * socket.c - making, naming and tuning sockets.
 *
 * Family 21 is always ours: the user has asked for the library by name. The historical numbers 28,
 * 30 and 32 belong to other protocols today. They are taken only if the kernel does not know them,
 * or if RDS_PRELOAD_FAMILIES lists them.
 */
#include "preload/fdtable/fdtable.h"
#include "preload/calls/args.h"

#include <linux/sockios.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sys/options.h"
#include "preload/calls/calls.h"
#include "include/rds_abi.h"

#define TYPE_MASK 0xf
#define TYPE_FLAGS (SOCK_CLOEXEC | SOCK_NONBLOCK)

/* ---- which families ---- */

static bool family_historical(int domain, int type)
{
	type &= TYPE_MASK;
	if (domain == 30)
		return type == SOCK_SEQPACKET || type == SOCK_DGRAM; /* OFED 1.0 used datagrams */
	return (domain == 28 || domain == 32) && type == SOCK_SEQPACKET;
}

static bool family_is_auto(void)
{
	return strcmp(rds_options()->families, "auto") == 0;
}

/* Listed in RDS_PRELOAD_FAMILIES: taken without asking the kernel. */
static bool family_listed(int domain)
{
	const char *p = rds_options()->families;

	while (*p) {
		char *end;

		if (strtol(p, &end, 10) == domain && end != p)
			return true;
		p += strcspn(p, ",");
		p += *p == ',';
	}
	return false;
}

static bool family_claimed(int domain, int type)
{
	if (likely(domain != PF_RDS_NUMBER && domain != 28 && domain != 30 && domain != 32))
		return false;
	return domain == PF_RDS_NUMBER || (family_historical(domain, type) && family_listed(domain));
}

/* The real call has failed because the kernel has no such protocol. */
static bool family_adopted(int domain, int type)
{
	int saved = errno;

	if (saved != EAFNOSUPPORT || !family_historical(domain, type) || family_is_auto())
		return saved == EAFNOSUPPORT && family_historical(domain, type);
	errno = saved; /* reading the options may have changed it */
	return false;
}

/* ---- making ---- */

static int socket_rds(int domain, int type, int protocol)
{
	struct rds_sock *sk = NULL;

	rds_libc_init();
	rds_fds_process_init();
	/* A child that shares its parent's memory or numbers could only do harm. */
	if (rds_fds_on() && !rds_fds_is_ours())
		return (int)libc_result(-EAGAIN);
	reentry_call_begin();
	if (domain != PF_RDS_NUMBER)
		type = (type & ~TYPE_MASK) | SOCK_SEQPACKET;
	int fd = rds_call_socket(type, protocol, &sk);
	int rc = fd < 0 ? fd : rds_fds_install(fd, sk);

	reentry_call_end();
	return (int)libc_result(rc < 0 ? rc : fd);
}

int socket(int domain, int type, int protocol)
{
	if (family_claimed(domain, type))
		return socket_rds(domain, type, protocol);
	int fd = libc_real.socket(domain, type, protocol);

	if (unlikely(fd < 0) && family_adopted(domain, type))
		return socket_rds(domain, type, protocol);
	return rds_fds_clear(fd);
}

static int socketpair_rds(int domain, int type, int protocol, int *sv)
{
	if (type & ~(TYPE_MASK | TYPE_FLAGS))
		return -EINVAL;
	if (rds_user_writable(sv, 2 * sizeof(*sv)))
		return -EFAULT;
	if ((type & TYPE_MASK) > SOCK_PACKET)
		return -EINVAL;
	if (domain == PF_RDS_NUMBER && ((type & TYPE_MASK) != SOCK_SEQPACKET || protocol))
		return -ESOCKTNOSUPPORT;
	return -EOPNOTSUPP;
}

int socketpair(int domain, int type, int protocol, int sv[2])
{
	if (family_claimed(domain, type))
		return (int)libc_result(socketpair_rds(domain, type, protocol, sv));
	int rc = libc_real.socketpair(domain, type, protocol, sv);

	if (unlikely(rc < 0))
		return family_adopted(domain, type) ? (int)libc_result(-EOPNOTSUPP) : rc;
	rds_fds_clear(sv[0]);
	rds_fds_clear(sv[1]);
	return rc;
}

/* ---- naming ---- */

typedef int name_in_fn(struct rds_sock *sk, const struct sockaddr *addr, int len);
typedef int name_out_fn(struct rds_sock *sk, struct sockaddr *addr, socklen_t *len);
typedef int borrowed_in_fn(int fd, const struct sockaddr *addr, int len);
typedef int borrowed_out_fn(int fd, struct sockaddr *addr, socklen_t *len);

static int socket_name_in(struct rds_sock *sk, int fd, name_in_fn *call, borrowed_in_fn *away,
			  const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_storage name;

	int rc = args_addr_in(addr, len, &name);

	if (!rc)
		rc = sk != RDS_BORROWED ? call(sk, (struct sockaddr *)&name, (int)len)
					: (int)RDS_BORROWED_CALL(fd, away(fd, (struct sockaddr *)&name, (int)len), now,
								 call(now, (struct sockaddr *)&name, (int)len));
	return (int)rds_fds_done(sk, rc);
}

static int socket_name_out(struct rds_sock *sk, int fd, name_out_fn *call, borrowed_out_fn *away, struct sockaddr *addr,
			   socklen_t *len)
{
	struct sockaddr_storage name = {0};
	socklen_t full = sizeof(name);

	int rc = sk != RDS_BORROWED ? call(sk, (struct sockaddr *)&name, &full)
				    : (int)RDS_BORROWED_CALL(fd, away(fd, (struct sockaddr *)&name, &full), now,
							     call(now, (struct sockaddr *)&name, &full));

	rc = rc ? rc : args_addr_out(&name, full, addr, len);
	return (int)rds_fds_done(sk, rc);
}

int bind(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len)
{
	struct rds_sock *sk = rds_fds_get(fd);

	return sk ? socket_name_in(sk, fd, rds_call_bind, rds_borrower_bind, addr.__sockaddr__, len)
		  : libc_real.bind(fd, addr, len);
}

int connect(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len)
{
	struct rds_sock *sk = rds_fds_get(fd);

	return sk ? socket_name_in(sk, fd, rds_call_connect, rds_borrower_connect, addr.__sockaddr__, len)
		  : libc_real.connect(fd, addr, len);
}
RDS_ALIAS(__connect, connect);

int getsockname(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	struct rds_sock *sk = rds_fds_get(fd);

	return sk ? socket_name_out(sk, fd, rds_call_getsockname, rds_borrower_getsockname, addr.__sockaddr__, len)
		  : libc_real.getsockname(fd, addr, len);
}

int getpeername(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	struct rds_sock *sk = rds_fds_get(fd);

	return sk ? socket_name_out(sk, fd, rds_call_getpeername, rds_borrower_getpeername, addr.__sockaddr__, len)
		  : libc_real.getpeername(fd, addr, len);
}

/* ---- calls that RDS refuses; the stand-in would answer as AF_UNIX, or even succeed ---- */

static int socket_refuse(struct rds_sock *sk, int err)
{
	return (int)rds_fds_done(sk, -err);
}

int listen(int fd, int backlog)
{
	struct rds_sock *sk = rds_fds_get(fd);

	return sk ? socket_refuse(sk, EOPNOTSUPP) : libc_real.listen(fd, backlog);
}

int shutdown(int fd, int how)
{
	struct rds_sock *sk = rds_fds_get(fd);

	return sk ? socket_refuse(sk, EOPNOTSUPP) : libc_real.shutdown(fd, how);
}

int accept(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	struct rds_sock *sk = rds_fds_get(fd);

	return sk ? socket_refuse(sk, EOPNOTSUPP) : rds_fds_clear(libc_real.accept(fd, addr, len));
}

int accept4(int fd, __SOCKADDR_ARG addr, socklen_t *len, int flags)
{
	struct rds_sock *sk = rds_fds_get(fd);

	if (likely(!sk))
		return rds_fds_clear(libc_real.accept4(fd, addr, len, flags));
	return socket_refuse(sk, flags & ~TYPE_FLAGS ? EINVAL : EOPNOTSUPP);
}

/* ---- tuning ---- */

int getsockopt(int fd, int level, int opt, void *val, socklen_t *len)
{
	struct rds_sock *sk = rds_fds_get(fd);

	if (likely(!sk))
		return libc_real.getsockopt(fd, level, opt, val, len);
	int rc = sk == RDS_BORROWED ? (int)RDS_BORROWED_CALL(fd, rds_borrower_getsockopt(fd, level, opt, val, len), now,
							     rds_call_getsockopt(now, fd, level, opt, val, len))
				    : rds_call_getsockopt(sk, fd, level, opt, val, len);

	return (int)rds_fds_done(sk, rc);
}

static int socket_set_option(struct rds_sock *sk, int fd, int level, int opt, const void *val, socklen_t len)
{
	int rc;

	if (opt != RDS_BARRIER)
		return rds_call_setsockopt(sk, fd, level, opt, val, len);
	rds_fds_hold(sk); /* the barrier may sleep */
	rc = rds_call_setsockopt(sk, fd, level, opt, val, len);
	rds_fds_unhold();
	return rc;
}

int setsockopt(int fd, int level, int opt, const void *val, socklen_t len)
{
	struct rds_sock *sk = rds_fds_get(fd);

	if (likely(!sk))
		return libc_real.setsockopt(fd, level, opt, val, len);
	int rc = sk == RDS_BORROWED ? (int)RDS_BORROWED_CALL(fd, rds_borrower_setsockopt(fd, level, opt, val, len), now,
							     socket_set_option(now, fd, level, opt, val, len))
				    : socket_set_option(sk, fd, level, opt, val, len);

	/*
	 * At this level EBADF tells of a descriptor in the option (SO_ATTACH_BPF), not of this one:
	 * the call would give the same again.
	 */
	if (level == SOL_SOCKET)
		return (int)rds_fds_done(sk, rc);
	return (int)RDS_FDS_DONE(sk, rc, setsockopt(fd, level, opt, val, len));
}

/* Requests that AF_UNIX answers and RDS does not. */
static bool ioctl_not_rds(unsigned long req)
{
	switch (req) {
	case SIOCINQ: /* = FIONREAD */
	case SIOCOUTQ: /* = TIOCOUTQ */
	case SIOCATMARK:
	case SIOCPROTOPRIVATE: /* SIOCUNIXFILE */
		return true;
	default:
		return false;
	}
}

/* FIOASYNC is another name of the flag O_ASYNC. */
static int ioctl_async(int fd, const int *on)
{
	int flags;

	if (rds_user_readable(on, sizeof(*on)))
		return (int)libc_result(-EFAULT);
	flags = calls_fcntl_flags(fd, F_GETFL, 0);
	return flags < 0 ? flags : calls_fcntl_flags(fd, F_SETFL, *on ? flags | O_ASYNC : flags & ~O_ASYNC);
}

static int ioctl_rds(struct rds_sock *sk, int fd, unsigned long req, void *arg)
{
	int rc = sk != RDS_BORROWED ? rds_call_ioctl(sk, req, arg)
				    : (int)RDS_BORROWED_CALL(fd, rds_borrower_ioctl(fd, req, arg), now,
							     rds_call_ioctl(now, req, arg));

	if (rc != -ENOIOCTLCMD)
		return (int)libc_result(rc);
	if (req == FIOASYNC && rds_fds_is_ours())
		return ioctl_async(fd, arg);
	return ioctl_not_rds(req) ? (int)libc_result(-ENOTTY) : libc_real.ioctl(fd, req, arg);
}

int ioctl(int fd, unsigned long req, ...)
{
	struct rds_sock *sk = rds_fds_get(fd);
	va_list ap;

	va_start(ap, req);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	if (likely(!sk))
		return libc_real.ioctl(fd, req, arg);
	int rc = ioctl_rds(sk, fd, req, arg);

	rds_fds_put(sk);
	return rc;
}
