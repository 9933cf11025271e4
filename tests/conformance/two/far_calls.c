/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The calls of a program, as the linker has put them in front of the real ones: those on far
 * sockets are made by the agent, those on this host's only get the right destination.  See far.h.
 */
#include "far.h"

#include <stddef.h>
#include <sys/ioctl.h>

#define OPTION_MAX (16 << 20) /* more than any option has */

int __real_bind(int fd, const struct sockaddr *name, socklen_t len);
int __real_connect(int fd, const struct sockaddr *name, socklen_t len);
int __real_getsockname(int fd, struct sockaddr *name, socklen_t *len);
int __real_getpeername(int fd, struct sockaddr *name, socklen_t *len);
ssize_t __real_send(int fd, const void *data, size_t len, int flags);
ssize_t __real_sendto(int fd, const void *data, size_t len, int flags, const struct sockaddr *name, socklen_t namelen);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
int __real_sendmmsg(int fd, struct mmsghdr *vec, unsigned n, int flags);
ssize_t __real_recv(int fd, void *data, size_t len, int flags);
ssize_t __real_recvfrom(int fd, void *data, size_t len, int flags, struct sockaddr *name, socklen_t *namelen);
ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
int __real_recvmmsg(int fd, struct mmsghdr *vec, unsigned n, int flags, struct timespec *ts);
ssize_t __real_read(int fd, void *data, size_t len);
ssize_t __real_write(int fd, const void *data, size_t len);
ssize_t __real_readv(int fd, const struct iovec *iov, int n);
ssize_t __real_writev(int fd, const struct iovec *iov, int n);
int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __real_fcntl(int fd, int command, long arg);
int __real_ioctl(int fd, unsigned long request, void *arg);
int __real_close(int fd);
int __real_shutdown(int fd, int how);
int __real_dup(int fd);
int __real_rds_socket(void);

int __wrap_rds_socket(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	long fd;

	pthread_mutex_lock(&lock);
	if (far_next()) {
		fd = far_do(far_make(FAR_SOCKET, AF_RDS, SOCK_SEQPACKET, 0, 0, 0, 0));
		if (fd < 0)
			conf_die("far socket");
		fd = far_new(fd);
	} else {
		fd = __real_rds_socket();
	}
	far_counts(fd);
	pthread_mutex_unlock(&lock);
	return fd;
}

/* ---- names ---- */

static int name_call(enum far_what what, int fd, const struct sockaddr *name, socklen_t len)
{
	struct far_made *made = far_make(what, far_of(fd), 0, len, 0, 0, 0);

	far_memory(made, name, len < 4096 ? len : 0, FAR_ARG, 1, false);
	return far_do(made);
}

int __wrap_bind(int fd, const struct sockaddr *name, socklen_t len)
{
	struct sockaddr_storage copy;
	int r;

	name = far_name(fd, name, len, &copy, true);
	r = far_of(fd) < 0 ? __real_bind(fd, name, len) : name_call(FAR_BIND, fd, name, len);
	if (!r)
		far_bound(fd);
	return r;
}

int __wrap_connect(int fd, const struct sockaddr *name, socklen_t len)
{
	struct sockaddr_storage copy;

	name = far_name(fd, name, len, &copy, false);
	return far_of(fd) < 0 ? __real_connect(fd, name, len) : name_call(FAR_CONNECT, fd, name, len);
}

/* A length that the call is told and changes, and as much memory as it says. */
static void with_length(struct far_made *made, void *value, socklen_t *len, int arg)
{
	socklen_t room = 0;

	if (far_memory(made, len, sizeof(*len), FAR_ARG, arg + 1, true) >= 0)
		room = *len;
	far_memory(made, value, room > OPTION_MAX ? sizeof(struct sockaddr_storage) : room, FAR_ARG, arg, true);
}

static int get_name(enum far_what what, int fd, struct sockaddr *name, socklen_t *len)
{
	struct far_made *made = far_make(what, far_of(fd), 0, 0, 0, 0, 0);

	with_length(made, name, len, 1);
	return far_do(made);
}

int __wrap_getsockname(int fd, struct sockaddr *name, socklen_t *len)
{
	return far_of(fd) < 0 ? __real_getsockname(fd, name, len) : get_name(FAR_GETSOCKNAME, fd, name, len);
}

int __wrap_getpeername(int fd, struct sockaddr *name, socklen_t *len)
{
	return far_of(fd) < 0 ? __real_getpeername(fd, name, len) : get_name(FAR_GETPEERNAME, fd, name, len);
}

/* ---- sends ---- */

ssize_t __wrap_send(int fd, const void *data, size_t len, int flags)
{
	struct far_made *made;

	if (far_of(fd) < 0)
		return far_sent(__real_send(fd, data, len, flags));
	made = far_make(FAR_SEND, far_of(fd), 0, len, flags, 0, 0);
	far_memory(made, data, len, FAR_ARG, 1, false);
	return far_sent(far_do(made));
}

ssize_t __wrap_sendto(int fd, const void *data, size_t len, int flags, const struct sockaddr *name, socklen_t namelen)
{
	struct sockaddr_storage copy;
	struct far_made *made;

	name = far_name(fd, name, namelen, &copy, false);
	if (far_of(fd) < 0)
		return far_sent(__real_sendto(fd, data, len, flags, name, namelen));
	made = far_make(FAR_SENDTO, far_of(fd), 0, len, flags, 0, namelen);
	far_memory(made, data, len, FAR_ARG, 1, false);
	far_memory(made, name, namelen < 4096 ? namelen : 0, FAR_ARG, 4, false);
	return far_sent(far_do(made));
}

/* What a message header names, which lies at this offset of that piece. */
static void message(struct far_made *made, const struct msghdr *msg, int owner, size_t at, bool back)
{
	size_t i, n = msg->msg_iovlen;
	int vec;

	far_memory(made, msg->msg_name, msg->msg_namelen < 4096 ? msg->msg_namelen : 0, owner,
		   at + offsetof(struct msghdr, msg_name), back);
	far_memory(made, msg->msg_control, msg->msg_controllen < OPTION_MAX ? msg->msg_controllen : 0, owner,
		   at + offsetof(struct msghdr, msg_control), back);
	vec = n > 1100 ? -1
		       : far_memory(made, msg->msg_iov, n * sizeof(struct iovec), owner,
				    at + offsetof(struct msghdr, msg_iov), false);
	for (i = 0; vec >= 0 && i < n; i++)
		far_memory(made, msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len, vec,
			   i * sizeof(struct iovec) + offsetof(struct iovec, iov_base), back);
}

static long one_message(enum far_what what, int fd, const struct msghdr *msg, int flags)
{
	bool back = what == FAR_RECVMSG;
	struct far_made *made = far_make(what, far_of(fd), 0, flags, 0, 0, 0);
	int piece = far_memory(made, msg, sizeof(*msg), FAR_ARG, 1, back);

	if (piece >= 0)
		message(made, msg, piece, 0, back);
	return far_do(made);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct sockaddr_storage copy;
	struct msghdr changed;

	/* A header that is not there is one that the call has to find out about. */
	if (msg && msg != conf_bad) {
		changed = *msg;
		changed.msg_name = (void *)far_name(fd, msg->msg_name, msg->msg_namelen, &copy, false);
		msg = &changed;
	}
	return far_sent(far_of(fd) < 0 ? __real_sendmsg(fd, msg, flags) : one_message(FAR_SENDMSG, fd, msg, flags));
}

static int several(enum far_what what, int fd, struct mmsghdr *vec, unsigned n, int flags, struct timespec *ts)
{
	struct far_made *made = far_make(what, far_of(fd), 0, n, flags, 0, 0);
	int piece = far_memory(made, vec, n * sizeof(*vec), FAR_ARG, 1, true);
	unsigned i;

	for (i = 0; piece >= 0 && i < n; i++)
		message(made, &vec[i].msg_hdr, piece, i * sizeof(*vec) + offsetof(struct mmsghdr, msg_hdr),
			what == FAR_RECVMMSG);
	if (what == FAR_RECVMMSG)
		far_memory(made, ts, sizeof(*ts), FAR_ARG, 4, true);
	return far_do(made);
}

/* No program names a destination in these: they are connected, or fail before. */
int __wrap_sendmmsg(int fd, struct mmsghdr *vec, unsigned n, int flags)
{
	return far_of(fd) < 0 ? __real_sendmmsg(fd, vec, n, flags) : several(FAR_SENDMMSG, fd, vec, n, flags, NULL);
}

/* ---- receives ---- */

ssize_t __wrap_recv(int fd, void *data, size_t len, int flags)
{
	struct far_made *made;

	if (far_of(fd) < 0)
		return far_received(__real_recv(fd, data, len, flags), flags);
	made = far_make(FAR_RECV, far_of(fd), 0, len, flags, 0, 0);
	far_memory(made, data, len, FAR_ARG, 1, true);
	return far_received(far_do(made), flags);
}

ssize_t __wrap_recvfrom(int fd, void *data, size_t len, int flags, struct sockaddr *name, socklen_t *namelen)
{
	struct far_made *made;

	if (far_of(fd) < 0)
		return far_received(__real_recvfrom(fd, data, len, flags, name, namelen), flags);
	made = far_make(FAR_RECVFROM, far_of(fd), 0, len, flags, 0, 0);
	far_memory(made, data, len, FAR_ARG, 1, true);
	with_length(made, name, namelen, 4);
	return far_received(far_do(made), flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	return far_received(far_of(fd) < 0 ? __real_recvmsg(fd, msg, flags) : one_message(FAR_RECVMSG, fd, msg, flags),
			    flags);
}

int __wrap_recvmmsg(int fd, struct mmsghdr *vec, unsigned n, int flags, struct timespec *ts)
{
	return far_of(fd) < 0 ? __real_recvmmsg(fd, vec, n, flags, ts) : several(FAR_RECVMMSG, fd, vec, n, flags, ts);
}

/* ---- as files ---- */

static long bytes(enum far_what what, int fd, const void *data, size_t len)
{
	struct far_made *made = far_make(what, far_of(fd), 0, len, 0, 0, 0);

	far_memory(made, data, len, FAR_ARG, 1, what == FAR_READ);
	return far_do(made);
}

ssize_t __wrap_read(int fd, void *data, size_t len)
{
	return far_of(fd) < 0 ? __real_read(fd, data, len) : bytes(FAR_READ, fd, data, len);
}

ssize_t __wrap_write(int fd, const void *data, size_t len)
{
	return far_of(fd) < 0 ? __real_write(fd, data, len) : bytes(FAR_WRITE, fd, data, len);
}

static long vector(enum far_what what, int fd, const struct iovec *iov, int n)
{
	struct far_made *made = far_make(what, far_of(fd), 0, n, 0, 0, 0);
	int piece = far_memory(made, iov, n > 0 && n <= 1100 ? n * sizeof(*iov) : 0, FAR_ARG, 1, false), i;

	for (i = 0; piece >= 0 && i < n; i++)
		far_memory(made, iov[i].iov_base, iov[i].iov_len, piece,
			   i * sizeof(*iov) + offsetof(struct iovec, iov_base), what == FAR_READV);
	return far_do(made);
}

ssize_t __wrap_readv(int fd, const struct iovec *iov, int n)
{
	return far_of(fd) < 0 ? __real_readv(fd, iov, n) : vector(FAR_READV, fd, iov, n);
}

ssize_t __wrap_writev(int fd, const struct iovec *iov, int n)
{
	return far_of(fd) < 0 ? __real_writev(fd, iov, n) : vector(FAR_WRITEV, fd, iov, n);
}

/* ---- options, and the rest ---- */

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	struct sockaddr_storage copy;
	struct far_made *made;

	if (level == SOL_RDS && name == RDS_CANCEL_SENT_TO)
		value = far_name(fd, value, len, &copy, false);
	if (far_of(fd) < 0)
		return __real_setsockopt(fd, level, name, value, len);
	made = far_make(FAR_SETSOCKOPT, far_of(fd), level, name, 0, len, 0);
	far_memory(made, value, len < OPTION_MAX ? len : 0, FAR_ARG, 3, false);
	return far_do(made);
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	struct far_made *made;

	if (far_of(fd) < 0)
		return __real_getsockopt(fd, level, name, value, len);
	made = far_make(FAR_GETSOCKOPT, far_of(fd), level, name, 0, 0, 0);
	with_length(made, value, len, 3);
	return far_do(made);
}

int __wrap_fcntl(int fd, int command, ...)
{
	va_list args;
	long arg;

	va_start(args, command);
	arg = va_arg(args, long);
	va_end(args);
	if (far_of(fd) < 0)
		return __real_fcntl(fd, command, arg);
	if (command != F_GETFL && command != F_SETFL)
		far_die("an fcntl that is not for far sockets");
	return far_do(far_make(FAR_FCNTL, far_of(fd), command, arg, 0, 0, 0));
}

/* All that RDS sockets have take eight bytes at most. */
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	struct far_made *made;
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (far_of(fd) < 0)
		return __real_ioctl(fd, request, arg);
	if (request != SIOCRDSSETTOS && request != SIOCRDSGETTOS)
		far_die("an ioctl that is not for far sockets");
	made = far_make(FAR_IOCTL, far_of(fd), request, 0, 0, 0, 0);
	far_memory(made, arg, request == SIOCRDSSETTOS ? 1 : 2, FAR_ARG, 2, request == SIOCRDSGETTOS);
	return far_do(made);
}

int __wrap_close(int fd)
{
	int remote = far_of(fd), set = far_set_of(fd);

	if (set >= 0)
		far_do(far_make(FAR_CLOSE, set, 0, 0, 0, 0, 0));
	if (remote >= 0)
		far_do(far_make(FAR_CLOSE, remote, 0, 0, 0, 0, 0));
	far_gone(fd);
	return __real_close(fd);
}

int __wrap_shutdown(int fd, int how)
{
	return far_of(fd) < 0 ? __real_shutdown(fd, how) : far_do(far_make(FAR_SHUTDOWN, far_of(fd), how, 0, 0, 0, 0));
}

int __wrap_dup(int fd)
{
	long copy;

	if (far_of(fd) < 0) {
		copy = __real_dup(fd);
	} else {
		copy = far_do(far_make(FAR_DUP, far_of(fd), 0, 0, 0, 0, 0));
		if (copy >= 0)
			copy = far_new(copy);
	}
	if (copy >= 0)
		far_bound(copy);
	return copy;
}
