/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * early.c - every interposed call as a raw system call, for the time before real.c knows the real
 * functions, and for names that this libc does not have.
 *
 * These calls are not cancellation points: no thread can be cancelled that early. Only system calls
 * that every 64-bit architecture has are used. Nothing here may call an interposed name.
 */
#include "preload/libc/preload.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "preload/libc/early.h"
#include "engine/sys/os.h"

extern char **environ;

#define SIGSET_BYTES (_NSIG / 8)

int early_socket(int domain, int type, int protocol)
{
	return (int)libc_raw_syscall(SYS_socket, domain, type, protocol);
}

int early_socketpair(int domain, int type, int protocol, int sv[2])
{
	return (int)libc_raw_syscall(SYS_socketpair, domain, type, protocol, sv);
}

int early_bind(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len)
{
	return (int)libc_raw_syscall(SYS_bind, fd, addr.__sockaddr__, len);
}

int early_connect(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len)
{
	return (int)libc_raw_syscall(SYS_connect, fd, addr.__sockaddr__, len);
}

int early_getsockname(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	return (int)libc_raw_syscall(SYS_getsockname, fd, addr.__sockaddr__, len);
}

int early_getpeername(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	return (int)libc_raw_syscall(SYS_getpeername, fd, addr.__sockaddr__, len);
}

int early_listen(int fd, int backlog)
{
	return (int)libc_raw_syscall(SYS_listen, fd, backlog);
}

int early_accept(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	return (int)libc_raw_syscall(SYS_accept4, fd, addr.__sockaddr__, len, 0);
}

int early_accept4(int fd, __SOCKADDR_ARG addr, socklen_t *len, int flags)
{
	return (int)libc_raw_syscall(SYS_accept4, fd, addr.__sockaddr__, len, flags);
}

int early_shutdown(int fd, int how)
{
	return (int)libc_raw_syscall(SYS_shutdown, fd, how);
}

int early_getsockopt(int fd, int level, int opt, void *val, socklen_t *len)
{
	return (int)libc_raw_syscall(SYS_getsockopt, fd, level, opt, val, len);
}

int early_setsockopt(int fd, int level, int opt, const void *val, socklen_t len)
{
	return (int)libc_raw_syscall(SYS_setsockopt, fd, level, opt, val, len);
}

int early_ioctl(int fd, unsigned long req, ...)
{
	va_list ap;

	va_start(ap, req);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	return (int)libc_raw_syscall(SYS_ioctl, fd, req, arg);
}

int early_fcntl(int fd, int cmd, ...)
{
	va_list ap;

	va_start(ap, cmd);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	return (int)libc_raw_syscall(SYS_fcntl, fd, cmd, arg);
}

int early_close(int fd)
{
	return (int)libc_raw_syscall(SYS_close, fd);
}

int early_close_range(unsigned first, unsigned last, int flags)
{
#ifdef SYS_close_range
	return (int)libc_raw_syscall(SYS_close_range, first, last, flags);
#else
	(void)first, (void)last, (void)flags;
	errno = ENOSYS;
	return -1;
#endif
}

void early_closefrom(int low)
{
	early_close_range(low < 0 ? 0 : (unsigned)low, ~0U, 0);
}

int early_dup(int fd)
{
	return (int)libc_raw_syscall(SYS_dup, fd);
}

int early_dup2(int from, int to)
{
	if (from == to) /* dup3() refuses equal numbers, which dup2() only checks */
		return early_fcntl(from, F_GETFD) < 0 ? -1 : to;
	return (int)libc_raw_syscall(SYS_dup3, from, to, 0);
}

int early_dup3(int from, int to, int flags)
{
	return (int)libc_raw_syscall(SYS_dup3, from, to, flags);
}

int early_pidfd_getfd(int pid, int fd, unsigned flags)
{
	return (int)libc_raw_syscall(SYS_pidfd_getfd, pid, fd, flags);
}

int early_unshare(int flags)
{
	return (int)libc_raw_syscall(SYS_unshare, flags);
}

int early_setns(int fd, int type)
{
	return (int)libc_raw_syscall(SYS_setns, fd, type);
}

int early_capset(void *header, const void *data)
{
	return (int)libc_raw_syscall(SYS_capset, header, data);
}

int early_mlockall(int flags)
{
	return (int)libc_raw_syscall(SYS_mlockall, flags);
}

RDS_READS_GARBAGE int early_prctl(int option, ...)
{
	unsigned long a[4];
	va_list ap;

	va_start(ap, option);
	for (unsigned i = 0; i < 4; i++)
		a[i] = va_arg(ap, unsigned long);
	va_end(ap);
	return (int)libc_raw_syscall(SYS_prctl, option, a[0], a[1], a[2], a[3]);
}

/* As libc's syscall(), which cannot be called by its name. */
RDS_READS_GARBAGE long libc_raw_syscall(long number, ...)
{
	long a[6], rc;
	va_list ap;

	va_start(ap, number);
	for (unsigned i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	rc = os_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if ((unsigned long)rc < (unsigned long)-4095L)
		return rc;
	errno = (int)-rc;
	return -1;
}

static int early_open_call(int dir, const char *path, int flags, mode_t mode)
{
	return (int)libc_raw_syscall(SYS_openat, dir, path, flags, mode);
}

int early_open(const char *path, int flags, ...)
{
	va_list ap;

	va_start(ap, flags);
	mode_t mode = va_arg(ap, mode_t); /* garbage without O_CREAT, and not looked at then */
	va_end(ap);
	return early_open_call(AT_FDCWD, path, flags, mode);
}

int early_open_2(const char *path, int flags)
{
	return early_open_call(AT_FDCWD, path, flags, 0);
}

int early_openat(int dir, const char *path, int flags, ...)
{
	va_list ap;

	va_start(ap, flags);
	mode_t mode = va_arg(ap, mode_t);
	va_end(ap);
	return early_open_call(dir, path, flags, mode);
}

int early_openat_2(int dir, const char *path, int flags)
{
	return early_open_call(dir, path, flags, 0);
}

int early_creat(const char *path, mode_t mode)
{
	return early_open_call(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

FILE *early_fopen(const char *path, const char *mode)
{
	int flags = strchr(mode, '+') ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;

	if (mode[0] == 'w')
		flags |= O_CREAT | O_TRUNC;
	else if (mode[0] == 'a')
		flags |= O_CREAT | O_APPEND;
	if (strchr(mode, 'e'))
		flags |= O_CLOEXEC;
	if (strchr(mode, 'x'))
		flags |= O_EXCL;
	int fd = early_open_call(AT_FDCWD, path, flags, 0666);
	FILE *f = fd < 0 ? NULL : early_fdopen(fd, mode);

	if (fd >= 0 && !f)
		early_close(fd);
	return f;
}

DIR *early_opendir(const char *path)
{
	int fd = early_open_call(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !d)
		libc_raw_syscall(SYS_close, fd);
	return d;
}


ssize_t early_send(int fd, const void *buf, size_t len, int flags)
{
	return libc_raw_syscall(SYS_sendto, fd, buf, len, flags, NULL, 0);
}

ssize_t early_sendto(int fd, const void *buf, size_t len, int flags, __CONST_SOCKADDR_ARG addr, socklen_t alen)
{
	return libc_raw_syscall(SYS_sendto, fd, buf, len, flags, addr.__sockaddr__, alen);
}

ssize_t early_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	return libc_raw_syscall(SYS_sendmsg, fd, msg, flags);
}

int early_sendmmsg(int fd, struct mmsghdr *vec, unsigned n, int flags)
{
	return (int)libc_raw_syscall(SYS_sendmmsg, fd, vec, n, flags);
}

ssize_t early_write(int fd, const void *buf, size_t len)
{
	return libc_raw_syscall(SYS_write, fd, buf, len);
}

ssize_t early_writev(int fd, const struct iovec *iov, int n)
{
	return libc_raw_syscall(SYS_writev, fd, iov, n);
}

ssize_t early_pwritev2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	return libc_raw_syscall(SYS_pwritev2, fd, iov, n, off, 0, flags);
}

ssize_t early_sendfile(int out, int in, off_t *off, size_t len)
{
	return libc_raw_syscall(SYS_sendfile, out, in, off, len);
}

ssize_t early_splice(int in, off64_t *inoff, int out, off64_t *outoff, size_t len, unsigned flags)
{
	return libc_raw_syscall(SYS_splice, in, inoff, out, outoff, len, flags);
}

ssize_t early_recv(int fd, void *buf, size_t len, int flags)
{
	return libc_raw_syscall(SYS_recvfrom, fd, buf, len, flags, NULL, NULL);
}

ssize_t early_recv_chk(int fd, void *buf, size_t len, size_t room, int flags)
{
	if (len > room)
		abort();
	return early_recv(fd, buf, len, flags);
}

ssize_t early_recvfrom(int fd, void *buf, size_t len, int flags, __SOCKADDR_ARG addr, socklen_t *alen)
{
	return libc_raw_syscall(SYS_recvfrom, fd, buf, len, flags, addr.__sockaddr__, alen);
}

ssize_t early_recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags, __SOCKADDR_ARG addr, socklen_t *alen)
{
	if (len > room)
		abort();
	return early_recvfrom(fd, buf, len, flags, addr, alen);
}

ssize_t early_recvmsg(int fd, struct msghdr *msg, int flags)
{
	return libc_raw_syscall(SYS_recvmsg, fd, msg, flags);
}

int early_recvmmsg(int fd, struct mmsghdr *vec, unsigned n, int flags, struct timespec *timeout)
{
	return (int)libc_raw_syscall(SYS_recvmmsg, fd, vec, n, flags, timeout);
}

ssize_t early_read(int fd, void *buf, size_t len)
{
	return libc_raw_syscall(SYS_read, fd, buf, len);
}

ssize_t early_read_chk(int fd, void *buf, size_t len, size_t room)
{
	if (len > room)
		abort();
	return early_read(fd, buf, len);
}

ssize_t early_readv(int fd, const struct iovec *iov, int n)
{
	return libc_raw_syscall(SYS_readv, fd, iov, n);
}

ssize_t early_preadv2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	return libc_raw_syscall(SYS_preadv2, fd, iov, n, off, 0, flags);
}

int early_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	struct timespec ts = {0};

	if (timeout)
		ts = *timeout; /* the kernel writes the remaining time back, ppoll() must not */
	return (int)libc_raw_syscall(SYS_ppoll, fds, n, timeout ? &ts : NULL, mask, SIGSET_BYTES);
}

int early_ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t room)
{
	if (room / sizeof(*fds) < n)
		abort();
	return early_ppoll(fds, n, timeout, mask);
}

int early_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	struct timespec ts = {timeout / 1000, timeout % 1000 * 1000000L};

	return early_ppoll(fds, n, timeout < 0 ? NULL : &ts, NULL);
}

int early_poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room)
{
	if (room / sizeof(*fds) < n)
		abort();
	return early_poll(fds, n, timeout);
}

static int early_select_call(int n, fd_set *r, fd_set *w, fd_set *e, struct timespec *ts, const sigset_t *mask)
{
	const struct {
		const sigset_t *mask;
		size_t len;
	} arg = {mask, SIGSET_BYTES};

	return (int)libc_raw_syscall(SYS_pselect6, n, r, w, e, ts, &arg);
}

int early_pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *timeout, const sigset_t *mask)
{
	struct timespec ts = {0};

	if (timeout)
		ts = *timeout;
	return early_select_call(n, r, w, e, timeout ? &ts : NULL, mask);
}

int early_select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *timeout)
{
	struct timespec ts = {0};

	if (!timeout)
		return early_select_call(n, r, w, e, NULL, NULL);
	ts.tv_sec = timeout->tv_sec + timeout->tv_usec / 1000000;
	ts.tv_nsec = timeout->tv_usec % 1000000 * 1000;
	int rc = early_select_call(n, r, w, e, &ts, NULL);

	timeout->tv_sec = ts.tv_sec;
	timeout->tv_usec = ts.tv_nsec / 1000;
	return rc;
}

int early_epoll_ctl(int ep, int op, int fd, struct epoll_event *event)
{
	return (int)libc_raw_syscall(SYS_epoll_ctl, ep, op, fd, event);
}

int early_epoll_pwait(int ep, struct epoll_event *events, int n, int timeout, const sigset_t *mask)
{
	return (int)libc_raw_syscall(SYS_epoll_pwait, ep, events, n, timeout, mask, SIGSET_BYTES);
}

int early_epoll_wait(int ep, struct epoll_event *events, int n, int timeout)
{
	return early_epoll_pwait(ep, events, n, timeout, NULL);
}

int early_epoll_pwait2(int ep, struct epoll_event *events, int n, const struct timespec *timeout, const sigset_t *mask)
{
#ifdef SYS_epoll_pwait2
	return (int)libc_raw_syscall(SYS_epoll_pwait2, ep, events, n, timeout, mask, SIGSET_BYTES);
#else
	(void)ep, (void)events, (void)n, (void)timeout, (void)mask;
	errno = ENOSYS;
	return -1;
#endif
}

void early__exit(int status)
{
	for (;;)
		libc_raw_syscall(SYS_exit_group, status);
}

/* ---- new programs and children ---- */

int early_execve(const char *path, char *const argv[], char *const envp[])
{
	return (int)libc_raw_syscall(SYS_execve, path, argv, envp);
}

int early_execv(const char *path, char *const argv[])
{
	return early_execve(path, argv, environ);
}

int early_execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
	return (int)libc_raw_syscall(SYS_execveat, dir, path, argv, envp, flags);
}

int early_fexecve(int fd, char *const argv[], char *const envp[])
{
	return early_execveat(fd, "", argv, envp, AT_EMPTY_PATH);
}

int early_execvp(const char *file, char *const argv[])
{
	EARLY_CALL_LIBC(execvp, file, argv);
	return early_execv(file, argv);
}

int early_execvpe(const char *file, char *const argv[], char *const envp[])
{
	EARLY_CALL_LIBC(execvpe, file, argv, envp);
	return early_execve(file, argv, envp);
}

int early_daemon(int nochdir, int noclose)
{
	EARLY_CALL_LIBC(daemon, nochdir, noclose);
	errno = ENOSYS;
	return -1;
}

/* Never called: the wrappers make a vector of the arguments first. */
int early_execl(const char *path, const char *arg, ...)
{
	(void)path, (void)arg;
	errno = ENOSYS;
	return -1;
}

int early_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
		      const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	EARLY_CALL_LIBC(posix_spawn, pid, path, actions, attr, argv, envp);
	return ENOSYS;
}

int early_posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
		       const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	EARLY_CALL_LIBC(posix_spawnp, pid, file, actions, attr, argv, envp);
	return ENOSYS;
}

int early_system(const char *command)
{
	EARLY_CALL_LIBC(system, command);
	errno = ENOSYS;
	return -1;
}

FILE *early_popen(const char *command, const char *mode)
{
	EARLY_CALL_LIBC(popen, command, mode);
	errno = ENOSYS;
	return NULL;
}

int early_wordexp(const char *words, wordexp_t *to, int flags)
{
	EARLY_CALL_LIBC(wordexp, words, to, flags);
	return WRDE_NOSPACE;
}

int early_pthread_setcanceltype(int type, int *old)
{
	EARLY_CALL_LIBC(pthread_setcanceltype, type, old);
	return ENOSYS;
}

/*
 * libc's _Fork() keeps more up to date than the kernel's call does: its own record of the thread,
 * for one.
 */
pid_t early__Fork(void)
{
	EARLY_CALL_LIBC(_Fork);
	return (pid_t)libc_raw_syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/*
 * The caller has read the three variadic arguments already and passes all of them
 * (calls/process.c).
 */
int early_clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	va_list ap;

	va_start(ap, arg);
	void *parent_tid = va_arg(ap, void *), *tls = va_arg(ap, void *), *child_tid = va_arg(ap, void *);
	va_end(ap);
	EARLY_CALL_LIBC(clone, fn, stack, flags, arg, parent_tid, tls, child_tid);
	errno = ENOSYS;
	return -1;
}

/* No system call does this: the function is looked up for such an early call. */
void early_longjmp(jmp_buf env, int val)
{
	void (*real)(struct __jmp_buf_tag *, int) =
		(void (*)(struct __jmp_buf_tag *, int))dlsym(RTLD_NEXT, "siglongjmp");

	if (real)
		real(env, val);
	abort();
}
