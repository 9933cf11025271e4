/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * sockopt_generic.c - level SOL_SOCKET: the generic layer (net/core/sock.c).
 *
 * Options in the table are answered here: they have a meaning for RDS, or they would change how the
 * stand-in behaves, or AF_UNIX treats them differently from RDS.  All others have no effect on RDS
 * sockets.  The kernel itself checks, stores and returns them on the stand-in, so these answers are
 * exact.
 */
#include "engine/calls/sockopt.h"

#include "engine/calls/names.h"
#include "engine/sys/uaccess.h"

#include <asm/socket.h>
#include <limits.h>
#include <sys/time.h>

#ifndef SO_PASSPIDFD /* newer than the headers of Debian 12 */
#define SO_PASSPIDFD 76
#define SO_PEERPIDFD 77
#endif
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

#define MIN_SNDBUF 4608
#define MIN_RCVBUF 2304
#define MEMINFO_VARS 9 /* linux/sock_diag.h: SK_MEMINFO_* */
#define MEMINFO_RCVBUF 1
#define MEMINFO_SNDBUF 3

union value {
	int i;
	uint32_t meminfo[MEMINFO_VARS];
	struct timeval tv;
	struct ucred cred;
	struct sockaddr_storage ss;
};

/*
 * set: NULL: -ENOPROTOOPT.  val is the int that every option starts with; arg and len are what the
 * program gave.  get: NULL: -ENOPROTOOPT.  Returns the length of *v, or -errno.
 */
struct option {
	int name;
	int (*set)(struct rds_sock *sk, int name, int val, const void *arg, int len);
	int (*get)(struct rds_sock *sk, int name, union value *v, int len);
};

static int get_as_int(union value *v, int value)
{
	v->i = value;
	return sizeof(v->i);
}

/* ---- buffers ---- */

static uint32_t buf_size(uint32_t val, uint64_t max, uint32_t min)
{
	uint64_t bytes = val < max ? val : max;

	if (bytes > INT_MAX / 2)
		bytes = INT_MAX / 2;
	bytes *= 2;
	return bytes > min ? (uint32_t)bytes : min;
}

static void bufs_to_registry(struct rds_sock *sk)
{
	rds_lock(&rds_lock_control);
	if (atomic_load(&sk->open))
		registry_sock_set_bufs(rds_node_registry, sk->reg_idx, rds_sock_sndbuf(sk), rds_sock_rcvbuf(sk));
	rds_unlock(&rds_lock_control);
}

int rds_call_set_sndbuf(struct rds_sock *sk, uint32_t val, uint64_t max)
{
	RDS_SOCK_SET(sk, sndbuf, buf_size(val, max, MIN_SNDBUF));
	bufs_to_registry(sk);
	rds_sock_wake(sk, POLLOUT | POLLWRNORM);
	return 0;
}

static int rcvbuf_set(struct rds_sock *sk, uint32_t val, uint64_t max)
{
	RDS_SOCK_SET(sk, rcvbuf, buf_size(val, max, MIN_RCVBUF));
	bufs_to_registry(sk);
	return 0;
}

static int set_sndbuf(struct rds_sock *sk, int name, int val, const void *arg, int len)
{
	(void)name, (void)arg, (void)len;
	return rds_call_set_sndbuf(sk, (uint32_t)val, (uint64_t)rds_options()->wmem_max);
}

static int set_rcvbuf(struct rds_sock *sk, int name, int val, const void *arg, int len)
{
	(void)name, (void)arg, (void)len;
	return rcvbuf_set(sk, (uint32_t)val, (uint64_t)rds_options()->rmem_max);
}

static int get_bufs(struct rds_sock *sk, int name, union value *v, int len)
{
	(void)len;
	return get_as_int(v, (int)atomic_load(name == SO_SNDBUF ? &sk->sndbuf : &sk->rcvbuf));
}

static int get_meminfo(struct rds_sock *sk, int name, union value *v, int len)
{
	(void)name, (void)len;
	v->meminfo[MEMINFO_RCVBUF] = atomic_load(&sk->rcvbuf);
	v->meminfo[MEMINFO_SNDBUF] = atomic_load(&sk->sndbuf);
	return sizeof(v->meminfo);
}

/* ---- asking the kernel about an argument ---- */

/*
 * Sets the option on a temporary socket of its own: for options that must not be set on the
 * stand-in, or that need a privilege which only the kernel can check.
 */
static int opt_try_on_scratch(int name, const void *arg, int len)
{
	_Atomic int fd = -1;
	int ret = os_dup_high_slot(os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), &fd);

	if (ret < 0)
		return ret;
	ret = os_setsockopt(fd, SOL_SOCKET, name, arg, (socklen_t)len);
	os_close_slot(&fd);
	return ret;
}

static int set_scratch(struct rds_sock *sk, int name, int val, const void *arg, int len)
{
	(void)sk, (void)val;
	return opt_try_on_scratch(name, arg, len);
}

static int set_buf_force(struct rds_sock *sk, int name, int val, const void *arg, int len)
{
	int ret = opt_try_on_scratch(name, arg, len);

	if (ret < 0)
		return ret;
	if (val < 0)
		val = 0;
	if (name == SO_SNDBUFFORCE)
		return rds_call_set_sndbuf(sk, (uint32_t)val, UINT32_MAX);
	return rcvbuf_set(sk, (uint32_t)val, UINT32_MAX);
}

/* ---- timeouts ---- */

static bool opt_is_sndtimeo(int name)
{
	return name == SO_SNDTIMEO_OLD || name == SO_SNDTIMEO_NEW;
}

/*
 * Old and new numbers mean the same structure on 64-bit machines.  Zero: no timeout.  Negative: no
 * wait at all.
 */
static int set_timeout(struct rds_sock *sk, int name, int val, const void *arg, int len)
{
	uint64_t ns = RDS_NO_TIMEOUT;
	struct timeval tv;

	(void)val;
	if (len < (int)sizeof(tv))
		return -EINVAL;
	if (rds_user_readable(arg, sizeof(tv)) < 0)
		return -EFAULT;
	memcpy(&tv, arg, sizeof(tv));
	if (tv.tv_usec < 0 || tv.tv_usec >= 1000000)
		return -EDOM;
	if (tv.tv_sec < 0)
		ns = 0;
	else if ((tv.tv_sec || tv.tv_usec) && tv.tv_sec < INT64_MAX / 1000000000 - 1)
		ns = (uint64_t)tv.tv_sec * 1000000000u + (uint64_t)tv.tv_usec * 1000u;
	if (opt_is_sndtimeo(name))
		RDS_SOCK_SET(sk, sndtimeo_ns, ns);
	else
		RDS_SOCK_SET(sk, rcvtimeo_ns, ns);
	return 0;
}

static int get_timeout(struct rds_sock *sk, int name, union value *v, int len)
{
	uint64_t ns = atomic_load(opt_is_sndtimeo(name) ? &sk->sndtimeo_ns : &sk->rcvtimeo_ns);

	(void)len;
	if (ns != RDS_NO_TIMEOUT) {
		v->tv.tv_sec = (time_t)(ns / 1000000000u);
		v->tv.tv_usec = (suseconds_t)(ns % 1000000000u / 1000u);
	}
	return sizeof(v->tv);
}

/*
 * ---- time stamps: RDS reports microseconds for every option, so nanoseconds are only remembered
 * ----
 */

static bool stamp_is_new(int name)
{
	return name == SO_TIMESTAMP_NEW || name == SO_TIMESTAMPNS_NEW;
}

static bool stamp_is_ns(int name)
{
	return name == SO_TIMESTAMPNS_OLD || name == SO_TIMESTAMPNS_NEW;
}

static int set_stamp(struct rds_sock *sk, int name, int val, const void *arg, int len)
{
	(void)arg, (void)len;
	RDS_SOCK_SET(sk, stamp_ns, val && stamp_is_ns(name));
	RDS_SOCK_SET(sk, timestamp, !val ? 0 : stamp_is_new(name) ? SO_TIMESTAMP_NEW : SO_TIMESTAMP_OLD);
	return 0;
}

static int get_stamp(struct rds_sock *sk, int name, union value *v, int len)
{
	int type = atomic_load(&sk->timestamp);
	bool ns = atomic_load(&sk->stamp_ns);

	(void)len;
	if (!type || stamp_is_new(name) != (type == SO_TIMESTAMP_NEW))
		return get_as_int(v, 0);
	/* With nanoseconds, the plain NEW option is also on, the plain old one is not. */
	return get_as_int(v, stamp_is_ns(name) == ns || (name == SO_TIMESTAMP_NEW && ns));
}

/* ---- other options ---- */

static int set_zerocopy(struct rds_sock *sk, int name, int val, const void *arg, int len)
{
	(void)name, (void)arg, (void)len;
	if (val < 0 || val > 1)
		return -EINVAL;
	RDS_SOCK_SET(sk, zerocopy, val);
	return 0;
}

static int get_zerocopy(struct rds_sock *sk, int name, union value *v, int len)
{
	(void)name, (void)len;
	return get_as_int(v, atomic_load(&sk->zerocopy));
}

static int set_refused(struct rds_sock *sk, int name, int val, const void *arg, int len)
{
	(void)sk, (void)name, (void)val, (void)arg, (void)len;
	return -EOPNOTSUPP;
}

static int get_refused(struct rds_sock *sk, int name, union value *v, int len)
{
	(void)sk, (void)name, (void)v, (void)len;
	return -EOPNOTSUPP;
}

static int set_reuseport(struct rds_sock *sk, int name, int val, const void *arg, int len)
{
	(void)sk, (void)name, (void)arg, (void)len;
	return val ? -EOPNOTSUPP : 0;
}

static int get_zero(struct rds_sock *sk, int name, union value *v, int len)
{
	(void)sk, (void)name, (void)len;
	return get_as_int(v, 0);
}

static int get_error(struct rds_sock *sk, int name, union value *v, int len)
{
	(void)name, (void)len;
	return get_as_int(v, rds_sock_take_error(sk));
}

static int get_constant(struct rds_sock *sk, int name, union value *v, int len)
{
	(void)sk, (void)len;
	return get_as_int(v, name == SO_DOMAIN ? AF_RDS : name == SO_TYPE ? SOCK_SEQPACKET : 0);
}

static int set_pass(struct rds_sock *sk, int name, int val, const void *arg, int len)
{
	(void)arg, (void)len;
	if (name == SO_PASSCRED)
		RDS_SOCK_SET(sk, passcred, val);
	else
		RDS_SOCK_SET(sk, passsec, val);
	return 0;
}

static int get_pass(struct rds_sock *sk, int name, union value *v, int len)
{
	(void)len;
	return get_as_int(v, atomic_load(name == SO_PASSCRED ? &sk->passcred : &sk->passsec));
}

/* The stand-in knows the process that made it; an RDS socket knows none. */
static int get_peercred(struct rds_sock *sk, int name, union value *v, int len)
{
	(void)sk, (void)name, (void)len;
	v->cred = (struct ucred){.pid = 0, .uid = (uid_t)-1, .gid = (gid_t)-1};
	return sizeof(v->cred);
}

static int get_peergroups(struct rds_sock *sk, int name, union value *v, int len)
{
	(void)sk, (void)name, (void)v, (void)len;
	return -ENODATA;
}

/*
 * Unlike all other options: a buffer that is longer than the name is refused, and the length is not
 * corrected.
 */
static int get_peername(struct rds_sock *sk, int name, union value *v, int len)
{
	int real = rds_call_peer_name(sk, &v->ss);

	(void)name;
	if (real < 0)
		return real;
	return real < len ? -EINVAL : real;
}

/* ---- the table ---- */

static const struct option options[] = {
	{SO_SNDBUF, set_sndbuf, get_bufs},
	{SO_RCVBUF, set_rcvbuf, get_bufs},
	{SO_SNDBUFFORCE, set_buf_force, NULL},
	{SO_RCVBUFFORCE, set_buf_force, NULL},
	{SO_MEMINFO, NULL, get_meminfo},
	{SO_SNDTIMEO_OLD, set_timeout, get_timeout},
	{SO_RCVTIMEO_OLD, set_timeout, get_timeout},
	{SO_SNDTIMEO_NEW, set_timeout, get_timeout},
	{SO_RCVTIMEO_NEW, set_timeout, get_timeout},
	{SO_TIMESTAMP_OLD, set_stamp, get_stamp},
	{SO_TIMESTAMPNS_OLD, set_stamp, get_stamp},
	{SO_TIMESTAMP_NEW, set_stamp, get_stamp},
	{SO_TIMESTAMPNS_NEW, set_stamp, get_stamp},
	{SO_ZEROCOPY, set_zerocopy, get_zerocopy},
	{SO_ERROR, NULL, get_error},
	{SO_TYPE, NULL, get_constant},
	{SO_DOMAIN, NULL, get_constant},
	{SO_PROTOCOL, NULL, get_constant},
	{SO_ACCEPTCONN, NULL, get_zero},
	{SO_REUSEPORT, set_reuseport, get_zero},
	{SO_PEEK_OFF, set_refused, get_refused},
	{SO_PASSCRED, set_pass, get_pass},
	{SO_PASSSEC, set_pass, get_pass},
	{SO_PASSPIDFD, NULL, NULL},
	{SO_PASSRIGHTS, NULL, NULL},
	{SO_PEERCRED, NULL, get_peercred},
	{SO_PEERGROUPS, NULL, get_peergroups},
	{SO_PEERSEC, NULL, NULL},
	{SO_PEERPIDFD, NULL, NULL},
	{SO_PEERNAME, NULL, get_peername},
	{SO_ATTACH_BPF, set_scratch, NULL},
};

static const struct option *option_find(int name)
{
	for (unsigned i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (options[i].name == name)
			return &options[i];
	return NULL;
}

bool rds_call_opt_is_local(int level, int opt)
{
	return level == SOL_SOCKET && (opt == SO_ATTACH_FILTER || opt == SO_ATTACH_BPF ||
				       opt == SO_ATTACH_REUSEPORT_CBPF || opt == SO_ATTACH_REUSEPORT_EBPF);
}

int rds_call_sol_socket_set(struct rds_sock *sk, int fd, int opt, const void *val, int len)
{
	const struct option *o = option_find(opt);
	int v, ret;

	/*
	 * The kernel would run a filter on what the engine sends to the stand-in; RDS runs none.
	 * Reading a filter back is harmless.
	 */
	if (opt == SO_ATTACH_FILTER)
		return opt_try_on_scratch(opt, val, len);
	if (!o)
		return os_setsockopt(fd, SOL_SOCKET, opt, val, (socklen_t)len);
	ret = rds_call_opt_int(val, len, &v);
	if (ret < 0)
		return ret;
	return o->set ? o->set(sk, opt, v, val, len) : -ENOPROTOOPT;
}

int rds_call_sol_socket_get(struct rds_sock *sk, int fd, int opt, void *val, socklen_t *len)
{
	const struct option *o = option_find(opt);
	union value v;
	int room, real;

	if (!o)
		return os_getsockopt(fd, SOL_SOCKET, opt, val, len);
	if (rds_user_readable(len, sizeof(*len)) < 0)
		return -EFAULT;
	memcpy(&room, len, sizeof(room));
	if (room < 0)
		return -EINVAL;
	if (!o->get)
		return -ENOPROTOOPT;
	memset(&v, 0, sizeof(v));
	real = o->get(sk, opt, &v, room);
	if (real < 0)
		return real;
	if (room > real)
		room = real;
	if (rds_user_writable(val, (size_t)room) < 0 || rds_user_writable(len, sizeof(*len)) < 0)
		return -EFAULT;
	if (room) /* else val may be NULL */
		memcpy(val, &v, (size_t)room);
	memcpy(len, &room, sizeof(room));
	return 0;
}
