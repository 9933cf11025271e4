/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * os.c - system calls without libc in between.
 *
 * Each function is the bare call and returns -errno. It does not use errno, is no cancellation
 * point and uses no symbol that an interposer (ours or another) could have replaced. The exceptions
 * are mmap() and munmap(), because the sanitizers must learn of mappings; their errno is restored.
 * Interposers do not usually replace these. They do replace clocks, so libc's is found by a handle
 * of libc. This file must not know what the descriptors are for.
 */
#include "engine/sys/os.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

_Static_assert(sizeof(long) == 8, "struct stat and off_t are passed as the 64-bit kernel has them");

#define FALLOCATE_PIECE (256 << 10)
#define LOCK_NAP_NS 100000

long os_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
#else
	int saved = errno;
	long ret = syscall(nr, a, b, c, d, e, f);

	if (ret == -1)
		ret = -errno;
	errno = saved;
	return ret;
#endif
}

#define sys6(nr, a, b, c, d, e, f) os_syscall(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define sys5(nr, a, b, c, d, e) sys6(nr, a, b, c, d, e, 0)
#define sys4(nr, a, b, c, d) sys5(nr, a, b, c, d, 0)
#define sys3(nr, a, b, c) sys4(nr, a, b, c, 0)
#define sys2(nr, a, b) sys3(nr, a, b, 0)

/* ---- files ---- */

int os_openat(int dir, const char *path, int flags, mode_t mode)
{
	return (int)sys4(SYS_openat, dir, path, flags, mode);
}

int os_open(const char *path, int flags, mode_t mode)
{
	return os_openat(AT_FDCWD, path, flags, mode);
}

ssize_t os_read(int fd, void *buf, size_t len)
{
	return sys3(SYS_read, fd, buf, len);
}

ssize_t os_write(int fd, const void *buf, size_t len)
{
	return sys3(SYS_write, fd, buf, len);
}

ssize_t os_pread(int fd, void *buf, size_t len, off_t off)
{
	return sys4(SYS_pread64, fd, buf, len, off);
}

ssize_t os_preadv(int fd, const struct iovec *iov, int n, off_t off)
{
	return sys5(SYS_preadv, fd, iov, n, off, 0);
}

ssize_t os_pwrite(int fd, const void *buf, size_t len, off_t off)
{
	return sys4(SYS_pwrite64, fd, buf, len, off);
}

int os_fstat(int fd, struct stat *st)
{
	return (int)sys2(SYS_fstat, fd, st);
}

int os_stat(const char *path, struct stat *st)
{
	return (int)sys4(SYS_newfstatat, AT_FDCWD, path, st, 0);
}

/*
 * Without libc's opendir(): a program that has replaced malloc, or has no memory left, must not
 * notice the call.
 */
bool os_dir_has_entries(const char *dir)
{
	char buf[1024] __attribute__((aligned(8)));
	int fd = os_open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	bool any = false;
	long n = 0, at;

	while (fd >= 0 && !any && (n = os_syscall(SYS_getdents64, fd, (long)buf, sizeof(buf), 0, 0, 0)) > 0) {
		for (at = 0; at < n && !any;) {
			unsigned short len;

			/* struct linux_dirent64: d_reclen follows two 8-byte words */
			memcpy(&len, buf + at + 16, sizeof(len));
			any = buf[at + 19] != '.';
			at += len;
		}
	}
	if (fd >= 0)
		os_close(fd);
	return any;
}

int os_mkdir(const char *path, mode_t mode)
{
	return (int)sys3(SYS_mkdirat, AT_FDCWD, path, mode);
}

int os_fchmod(int fd, mode_t mode)
{
	return (int)sys2(SYS_fchmod, fd, mode);
}

int os_fchown(int fd, uid_t uid, gid_t gid)
{
	return (int)sys3(SYS_fchown, fd, uid, gid);
}

int os_fcntl(int fd, int cmd, long arg)
{
	return (int)sys3(SYS_fcntl, fd, cmd, arg);
}

/*
 * Beyond the limit (ulimit -f) the kernel would also raise SIGXFSZ, which ends a program that does
 * not expect it.
 */
static bool file_size_allowed(int fd, off_t len)
{
	struct rlimit lim;
	struct stat st;

	if (sys4(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &lim) < 0 || (rlim_t)len <= lim.rlim_cur)
		return true;
	return os_fstat(fd, &st) == 0 && len <= st.st_size; /* it does not grow */
}

int os_ftruncate(int fd, off_t len)
{
	return file_size_allowed(fd, len) ? (int)sys2(SYS_ftruncate, fd, len) : -EFBIG;
}

/*
 * Reserves in pieces. When a signal arrives, most kernels give back all that the call has reserved
 * so far. With a timer that is faster than the call, one call for everything would never end. A
 * piece that is too large for the timer is made smaller.
 */
int os_fallocate(int fd, off_t off, off_t len)
{
	int ret = file_size_allowed(fd, off + len) ? 0 : -EFBIG;
	off_t most = FALLOCATE_PIECE;

	while (!ret && len > 0) {
		off_t n = len < most ? len : most;

		ret = (int)sys4(SYS_fallocate, fd, 0, off, n);
		if (ret == -EINTR) {
			most = n > 8192 ? n / 2 : 4096;
			n = 0;
			ret = 0;
		}
		off += n;
		len -= n;
	}
	return ret;
}

int os_reserve(int fd, off_t len)
{
	int ret = os_fallocate(fd, 0, len);

	return ret == -ENOSPC ? -ENOMEM : ret;
}

int os_memfd(const char *name, unsigned flags)
{
	return (int)sys2(SYS_memfd_create, name, flags);
}

/*
 * After mlockall() all mapped memory counts against RLIMIT_MEMLOCK. Memory by which an unlocked
 * mapping grows does not count.
 */
static void *map_unlocked(size_t len, int prot, int flags, int fd, off_t off)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, page, prot, flags, fd, off), *all = MAP_FAILED;

	if (p == MAP_FAILED)
		return p;
	if (!munlock(p, page))
		all = mremap(p, page, len, MREMAP_MAYMOVE);
	if (all == MAP_FAILED)
		munmap(p, page);
	return all;
}

bool os_mmap_over(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	int saved = errno;
	void *p = mmap(at, len, prot, flags | MAP_FIXED, fd, off);

	errno = saved;
	return p != MAP_FAILED;
}

/* EAGAIN: too much memory is locked, and a second try would not help. */
static int map_result(void *p, void **out)
{
	if (p == MAP_FAILED)
		return errno == EAGAIN ? -ENOMEM : -errno;
	*out = p;
	return 0;
}

int os_mmap(size_t len, int prot, int flags, int fd, off_t off, void **out)
{
	int saved = errno, ret;
	void *p = mmap(NULL, len, prot, flags, fd, off);

	if (p == MAP_FAILED && errno == EAGAIN)
		p = map_unlocked(len, prot, flags, fd, off);
	ret = map_result(p, out);
	errno = saved;
	return ret;
}

int os_mmap_unlocked(size_t len, int prot, int flags, int fd, off_t off, void **out)
{
	int saved = errno, ret = map_result(map_unlocked(len, prot, flags, fd, off), out);

	errno = saved;
	return ret;
}

void os_munmap(void *p, size_t len)
{
	int saved = errno;

	munmap(p, len);
	errno = saved;
}

int os_lock(int fd, short type, off_t start, off_t len, bool wait)
{
	struct flock fl = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len };

	return os_fcntl(fd, wait ? F_SETLKW : F_SETLK, (long)&fl);
}

int os_file_lock(int fd, short type, off_t start, off_t len)
{
	struct flock fl = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};

	return os_fcntl(fd, F_OFD_SETLK, (long)&fl);
}

int os_lock_holder(int fd, off_t start, off_t len)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = len };
	int ret = os_fcntl(fd, F_GETLK, (long)&fl);

	if (ret < 0)
		return ret;
	if (fl.l_type == F_UNLCK)
		return 0;
	/*
	 * A holder in another pid namespace is reported as pid 0, an open file description lock as
	 * -1: the range is held all the same.
	 */
	return fl.l_pid > 0 ? fl.l_pid : INT32_MAX;
}

/* ---- sockets ---- */

int os_socket(int family, int type, int proto)
{
	return (int)sys3(SYS_socket, family, type, proto);
}

int os_socketpair(int family, int type, int proto, int sv[2])
{
	return (int)sys4(SYS_socketpair, family, type, proto, sv);
}

int os_bind(int fd, const struct sockaddr *sa, socklen_t len)
{
	return (int)sys3(SYS_bind, fd, sa, len);
}

int os_connect(int fd, const struct sockaddr *sa, socklen_t len)
{
	return (int)sys3(SYS_connect, fd, sa, len);
}

int os_listen(int fd, int backlog)
{
	return (int)sys2(SYS_listen, fd, backlog);
}

int os_accept4(int fd, int flags)
{
	return (int)sys4(SYS_accept4, fd, 0, 0, flags);
}

int os_shutdown(int fd, int how)
{
	return (int)sys3(SYS_shutdown, fd, how, 0);
}

ssize_t os_send(int fd, const void *buf, size_t len, int flags)
{
	return sys6(SYS_sendto, fd, buf, len, flags, 0, 0);
}

ssize_t os_recv(int fd, void *buf, size_t len, int flags)
{
	return sys6(SYS_recvfrom, fd, buf, len, flags, 0, 0);
}

ssize_t os_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	return sys3(SYS_sendmsg, fd, msg, flags);
}

ssize_t os_recvmsg(int fd, struct msghdr *msg, int flags)
{
	return sys3(SYS_recvmsg, fd, msg, flags);
}

int os_getsockname(int fd, struct sockaddr *sa, socklen_t *len)
{
	return (int)sys3(SYS_getsockname, fd, sa, len);
}

int os_getsockopt(int fd, int level, int opt, void *val, socklen_t *len)
{
	return (int)sys5(SYS_getsockopt, fd, level, opt, val, len);
}

int os_setsockopt(int fd, int level, int opt, const void *val, socklen_t len)
{
	return (int)sys5(SYS_setsockopt, fd, level, opt, val, len);
}

bool os_peer_cred(int fd, struct ucred *cred)
{
	socklen_t len = sizeof(*cred);

	return os_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, cred, &len) == 0 && len == sizeof(*cred) && cred->pid > 0;
}

bool os_peer_is_self(int fd)
{
	struct ucred cred;

	return os_peer_cred(fd, &cred) && cred.pid == os_getpid();
}

bool os_recv_is_eof(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return os_poll(&p, 1, 0) != 0;
}

/*
 * This library writes fewer packets. A peer that goes on writing as fast as we read must not keep
 * this thread here.
 */
#define RECV_MAX 256u

void os_recv_discard(int fd)
{
	unsigned most = RECV_MAX;
	char buf[16];
	ssize_t n;

	do
		n = os_recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	while (--most && (n > 0 || (n == 0 && !os_recv_is_eof(fd))));
}

/* ---- waiting ---- */

int os_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	struct timespec ts = { timeout_ms / 1000, timeout_ms % 1000 * 1000000L };

	return (int)sys5(SYS_ppoll, fds, n, timeout_ms < 0 ? NULL : &ts, 0, OS_KERNEL_SIGSET);
}

int os_pipe(int fds[2], int flags)
{
	return (int)sys2(SYS_pipe2, fds, flags);
}

int os_eventfd(unsigned init, int flags)
{
	return (int)sys2(SYS_eventfd2, init, flags);
}

int os_timerfd(void)
{
	return (int)sys2(SYS_timerfd_create, CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
}

int os_timerfd_set(int fd, uint64_t due_ns)
{
	struct itimerspec at = {.it_value = {.tv_sec = (time_t)(due_ns / 1000000000u), .tv_nsec = (long)(due_ns % 1000000000u)}};

	return (int)os_syscall(SYS_timerfd_settime, fd, TFD_TIMER_ABSTIME, (long)&at, 0, 0, 0);
}

int os_epoll_create(void)
{
	return (int)sys2(SYS_epoll_create1, EPOLL_CLOEXEC, 0);
}

int os_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	return (int)sys4(SYS_epoll_ctl, ep, op, fd, ev);
}

int os_epoll_wait(int ep, struct epoll_event *evs, int n, int timeout_ms)
{
	return (int)sys6(SYS_epoll_pwait, ep, evs, n, timeout_ms, 0, OS_KERNEL_SIGSET);
}

/* Returns what libc would return: -1 and errno. */
static long libc_return(long ret)
{
	if (ret >= 0)
		return ret;
	errno = (int)-ret;
	return -1;
}

static ssize_t raw_read(int fd, void *buf, size_t len)
{
	return libc_return(os_read(fd, buf, len));
}

static int raw_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask)
{
	/* the kernel writes the remaining time back */
	struct timespec left = ts ? *ts : (struct timespec){0};

	return (int)libc_return(sys5(SYS_ppoll, fds, n, ts ? &left : NULL, mask, OS_KERNEL_SIGSET));
}

struct rds_os_sleep rds_os_sleep = { .read = raw_read, .ppoll = raw_ppoll };

/* ---- process, time ---- */

pid_t os_getpid(void)
{
	return (pid_t)sys2(SYS_getpid, 0, 0);
}

static int raw_clock(clockid_t clock, struct timespec *ts)
{
	return (int)sys2(SYS_clock_gettime, clock, ts);
}

int (*rds_os_clock)(clockid_t clock, struct timespec *ts) = raw_clock;

static void __attribute__((constructor)) clock_find(void)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	void *found = libc ? dlsym(libc, "clock_gettime") : NULL;

	if (found)
		__atomic_store_n((void **)&rds_os_clock, found, __ATOMIC_RELAXED);
	else
		(void)dlerror(); /* is not the program's business */
}

static uint64_t clock_read_ns(clockid_t clock)
{
	struct timespec ts;

	rds_os_clock(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t os_now_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t os_realtime_ns(void)
{
	return clock_read_ns(CLOCK_REALTIME);
}

/*
 * Kernels and sandboxes without getrandom() are rare, but the identifiers made here must still
 * differ. So this mixes the clock, the process and an address. Nothing here is a secret.
 */
static void weak_random(uint8_t *p, size_t len)
{
	static _Atomic uint64_t calls;
	uint64_t x = os_now_ns() ^ os_realtime_ns() << 20 ^ (uint64_t)os_getpid() << 44 ^ (uintptr_t)&x ^
		     atomic_fetch_add(&calls, 1) << 56;

	for (size_t i = 0; i < len; i++) {
		x += 0x9e3779b97f4a7c15u;
		uint64_t z = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;

		p[i] = (uint8_t)((z ^ z >> 27) * 0x94d049bb133111ebu >> 56);
	}
}

void os_random(void *buf, size_t len)
{
	uint8_t *p = buf;

	while (len) {
		long n = sys3(SYS_getrandom, p, len, 0);

		if (n == -EINTR)
			continue;
		if (n <= 0) {
			weak_random(p, len);
			return;
		}
		p += n;
		len -= (size_t)n;
	}
}

/* ---- the end of the process ---- */

static __thread struct {
	bool begun;
	uint64_t left_ns; /* that it still may wait */
} end __attribute__((tls_model("initial-exec")));

void os_end_begin(uint64_t most_ns)
{
	end.begun = most_ns != 0;
	end.left_ns = most_ns;
}

static bool end_wait_lock(pthread_mutex_t *lock)
{
	uint64_t began = os_now_ns(), waited = 0;

	while (pthread_mutex_trylock(lock)) {
		waited = os_now_ns() - began;
		if (waited >= end.left_ns) {
			end.left_ns = 0;
			return false;
		}
		/* No yield: to a real-time thread's, the holder's processor would not go. */
		os_nap_ns(LOCK_NAP_NS);
	}
	end.left_ns -= waited;
	return true;
}

bool os_mutex_lock(pthread_mutex_t *lock)
{
	if (end.begun)
		return end_wait_lock(lock);
	pthread_mutex_lock(lock);
	return true;
}
