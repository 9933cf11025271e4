/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * os.h - the only interface through which the engine calls the operating system's I/O.
 *
 * The preload library itself defines read(), close(), poll() and so on. An engine that called them
 * by name would call the interposed functions. Each function here is a raw system call: it returns
 * -errno, is not a cancellation point and never touches errno. The only exceptions are the two
 * sleeps of struct rds_os_sleep. They are libc's real functions (cancellation points, SA_RESTART as
 * the kernel does it), and the layer above sets them. A build check (scripts/check-layers) refuses
 * engine objects that import any interposed name.
 */
#ifndef ENGINE_SYS_OS_H
#define ENGINE_SYS_OS_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#define OS_KERNEL_SIGSET 8 /* bytes of a signal mask in the kernel */
/* Headers of an older kernel: the same numbers on all processors. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif

struct rds_os_sleep {
	ssize_t (*read)(int fd, void *buf, size_t len);
	int (*ppoll)(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask);
	/*
	 * NULL, or: true if the sleep must be skipped (EINTR at once), because a signal handler
	 * waits for the end of this call.
	 */
	bool (*cut)(void);
};
/*
 * preload stores libc's real entry points here. The defaults, for unit tests, are raw calls with
 * libc's convention (-1 and errno) that are no cancellation points: naming read() here would import
 * the interposed symbol.
 */
extern struct rds_os_sleep rds_os_sleep;

/*
 * libc's clock_gettime(), also where another object has replaced that name, as libfaketime does:
 * timers and sleeps are the kernel's, so the time must be, too. Before the constructor it is the
 * system call.
 */
extern int (*rds_os_clock)(clockid_t clock, struct timespec *ts);

/* Any system call that has no function below. Returns -errno; does not use libc's syscall(). */
long os_syscall(long nr, long a, long b, long c, long d, long e, long f);

int os_open(const char *path, int flags, mode_t mode);
int os_openat(int dir, const char *path, int flags, mode_t mode);
int os_close(int fd);
ssize_t os_read(int fd, void *buf, size_t len);
ssize_t os_write(int fd, const void *buf, size_t len);
/*
 * A write that raises no signal in the program. It returns -EPIPE for a pipe whose reader may be
 * gone, and -EFBIG for a file at its limit (ulimit -f). It also writes to a terminal that is
 * another's.
 */
ssize_t os_write_quiet(int fd, const void *buf, size_t len);
/* The same for a place in a file: beyond the limit of file sizes it is -EFBIG only. */
ssize_t os_pwrite_quiet(int fd, const void *buf, size_t len, off_t off);
/*
 * Use these around a call that may raise SIGPIPE in this thread. `raised`: the call may have raised
 * it.
 */
struct os_sigpipe {
	uint64_t old, pending;
};
void os_sigpipe_hold(struct os_sigpipe *s);
void os_sigpipe_release(const struct os_sigpipe *s, bool raised);
ssize_t os_pread(int fd, void *buf, size_t len, off_t off);
ssize_t os_preadv(int fd, const struct iovec *iov, int n, off_t off);
ssize_t os_pwrite(int fd, const void *buf, size_t len, off_t off);
int os_fstat(int fd, struct stat *st);
int os_stat(const char *path, struct stat *st);
/* Entries that begin with a dot do not count. False also if the directory does not exist. */
bool os_dir_has_entries(const char *dir);
int os_mkdir(const char *path, mode_t mode);
int os_fchmod(int fd, mode_t mode);
int os_fchown(int fd, uid_t uid, gid_t gid);
/* libc's mmap (the sanitizers have to see it), with errno left alone. 0 or -errno. */
int os_mmap(size_t len, int prot, int flags, int fd, off_t off, void **out);
/* After mlockall(MCL_FUTURE) all of a mapping is memory at once.  Not of this one; its pages come when they are used. */
int os_mmap_unlocked(size_t len, int prot, int flags, int fd, off_t off, void **out);
/* In place of what is mapped there; false: there may be nothing now. */
bool os_mmap_over(void *at, size_t len, int prot, int flags, int fd, off_t off);
void os_munmap(void *p, size_t len);
int os_fcntl(int fd, int cmd, long arg);
/*
 * open_fds.c. Are so many more descriptors available (32 at most)? fd: any open one. Only for rare
 * calls.
 */
bool os_fds_available(int fd, unsigned want);
/*
 * Calls fn for each open number of this thread's table until it returns something else than 0,
 * which is the result. fn may close that number. -errno: the list cannot be had (no /proc, or no
 * number is left to open it).
 */
int os_fds_each(int (*fn)(int fd, void *arg), void *arg);
/* The same without a list, for the first 65536 numbers below the limit. */
int os_fds_probe(int (*fn)(int fd, void *arg), void *arg);
int os_socket(int family, int type, int proto);
int os_socketpair(int family, int type, int proto, int sv[2]);
int os_bind(int fd, const struct sockaddr *sa, socklen_t len);
int os_connect(int fd, const struct sockaddr *sa, socklen_t len);
int os_listen(int fd, int backlog);
int os_accept4(int fd, int flags);
int os_shutdown(int fd, int how);
ssize_t os_send(int fd, const void *buf, size_t len, int flags);
ssize_t os_recv(int fd, void *buf, size_t len, int flags);
ssize_t os_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t os_recvmsg(int fd, struct msghdr *msg, int flags);
int os_getsockname(int fd, struct sockaddr *sa, socklen_t *len);
int os_getsockopt(int fd, int level, int opt, void *val, socklen_t *len);
int os_setsockopt(int fd, int level, int opt, const void *val, socklen_t len);
/*
 * AF_UNIX: the credentials of the process that made or connected the other end, as the kernel
 * recorded them. False: a process that our pid namespace does not know.
 */
bool os_peer_cred(int fd, struct ucred *cred);
bool os_peer_is_self(int fd); /* ... that process is this one */
/*
 * Does that number name one user, or all users that our user namespace does not know? (user_id.c;
 * some system calls)
 */
bool os_uid_is_known(uid_t uid);
bool os_gid_is_known(gid_t gid);
/* A SEQPACKET socket's recv() has returned 0: was that the end, rather than an empty packet? */
bool os_recv_is_eof(int fd);
/* Reads and discards all packets that are there, unless they are far more than we write. */
void os_recv_discard(int fd);
int os_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int os_eventfd(unsigned init, int flags);
int os_pipe(int fds[2], int flags);
int os_epoll_create(void);
/* CLOCK_MONOTONIC, non-blocking; expires once at due_ns. */
int os_timerfd(void);
int os_timerfd_set(int fd, uint64_t due_ns);
int os_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev);
int os_epoll_wait(int ep, struct epoll_event *evs, int n, int timeout_ms);
int os_memfd(const char *name, unsigned flags);
int os_ftruncate(int fd, off_t len);
int os_fallocate(int fd, off_t off, off_t len);
/*
 * Reserves the pages of a memory file of that length before they are touched: -ENOMEM rather than
 * SIGBUS.
 */
int os_reserve(int fd, off_t len);
/*
 * fcntl record lock of [start, start+len). type: F_RDLCK, F_WRLCK or F_UNLCK. wait: F_SETLKW, else
 * F_SETLK.
 */
int os_lock(int fd, short type, off_t start, off_t len, bool wait);
/*
 * The same, as F_SETLK, but owned by the open file: closing another descriptor of the file does not
 * drop it.
 */
int os_file_lock(int fd, short type, off_t start, off_t len);
/*
 * 0: no other process holds a read or write lock in the range. Else the holder's pid (INT32_MAX if
 * it is unknown), or -errno.
 */
int os_lock_holder(int fd, off_t start, off_t len);
/* For a sleep of several system calls (signals.c). */
struct os_signals {
	uint64_t old;
};
void os_signals_hold(struct os_signals *s);
/*
 * Lets the signals through that were held back. -EINTR if one of them has a handler after which a
 * call is not restarted, else 0.
 */
int os_signals_release(const struct os_signals *s);
/* ... -EINTR if a handler has run at all, whether or not calls are restarted after it. */
int os_signals_release_any(const struct os_signals *s);
/*
 * A sleep in which signals were let through was left, by cancellation or by a jump out of a handler.
 * If they are held back still, lets them through.
 */
void os_signals_left(const struct os_signals *s);
bool os_signals_pending(const struct os_signals *s); /* a signal is pending that is held back */
/*
 * Lets signals through, if there are any, and holds them back again.  -EINTR: there is one after
 * which a call is not restarted, and none was let through.
 */
int os_signals_pass(struct os_signals *s);
/* A descriptor that is readable when a signal is pending that is held back; or -errno. */
int os_signals_fd(const struct os_signals *s);
pid_t os_getpid(void);
uint64_t os_now_ns(void);      /* CLOCK_MONOTONIC */
/* The same, up to 10 ms old (by kernel): takes 5 ns to read. */
static inline uint64_t os_now_coarse_ns(void)
{
	struct timespec ts;

	rds_os_clock(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
/* A signal may end it early. */
static inline void os_nap_ns(uint64_t ns)
{
	struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

	os_syscall(SYS_nanosleep, (long)&ts, 0, 0, 0, 0, 0);
}
uint64_t os_realtime_ns(void); /* CLOCK_REALTIME */
/*
 * As time() and the kernel report them: the time of the last tick, so never ahead of what a program
 * reads.
 */
static inline int64_t os_wall_seconds(void)
{
	struct timespec ts;

	rds_os_clock(CLOCK_REALTIME_COARSE, &ts);
	return (int64_t)ts.tv_sec;
}
/* SIOCINQ: bytes that can be read; SIOCOUTQ: bytes that the peer has not read.  0 if unknown. */
static inline int os_bytes_there(int fd, unsigned long which)
{
	int bytes = 0;

	os_syscall(SYS_ioctl, fd, (long)which, (long)&bytes, 0, 0, 0);
	return bytes;
}
void os_random(void *buf, size_t len);

/*
 * One packet with descriptors (AF_UNIX; pass_fds.c). os_pass_send() returns 0 or -errno.
 * os_pass_recv() returns the number of bytes (0: hang-up) or -errno. The caller owns the *nfds
 * received descriptors, which are close-on-exec. *lost: some could not be received for lack of free
 * descriptor numbers.
 */
#define OS_PASS_MAX 4
int os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags);
ssize_t os_pass_recv(int fd, void *buf, size_t len, int fds[OS_PASS_MAX], unsigned *nfds, bool *lost, int flags);
/*
 * The same, but only the first `room` of them are received: further ones never get a number here
 * (and *lost is true).
 */
ssize_t os_pass_recv_few(int fd, void *buf, size_t len, int fds[OS_PASS_MAX], unsigned room, unsigned *nfds, bool *lost,
			 int flags);

/*
 * Two tables of descriptors (fd_table.c). The engine's helper thread has a table of its own where
 * the kernel allows it. So the program's table is not shared, and stays as fast as without the
 * library; see helper/fd_exchange.h. A number means something only in its table, so a descriptor
 * that both sides use has a number in each. os_fd_table tells which table this thread has: 0 the
 * program's, 1 the helper's own.
 */
extern __thread int os_fd_table __attribute__((tls_model("initial-exec")));
struct os_fd {
	_Atomic int n[2]; /* -1: not known in that table */
};
static inline int os_fd(const struct os_fd *f)
{
	return atomic_load_explicit(&f->n[os_fd_table], memory_order_acquire);
}
static inline const _Atomic int *os_fd_slot(const struct os_fd *f)
{
	return &f->n[os_fd_table];
}
static inline void os_fd_init(struct os_fd *f)
{
	atomic_store(&f->n[0], -1);
	atomic_store(&f->n[1], -1);
}
#define OS_FD_NONE {{-1, -1}}
/*
 * The calling thread gets an empty table: os_fd_table is 1 from then on. 0, or -errno (not
 * permitted, older than Linux 5.9) and nothing has changed. This neither closes the program's files
 * nor touches its record locks.
 */
int os_fd_table_unshare(void);
/* ... except for that one number, which the new table has, too */
int os_fd_table_unshare_keep(int fd);
/*
 * A copy of descriptor n of the process's main thread, in this thread's table; -errno if the kernel
 * refuses.
 */
int os_fd_dup_of_main(int n);

/*
 * Internal descriptors (own_fds.c): every descriptor that the engine keeps is registered, so that
 * a loop of the program that closes or replaces arbitrary numbers can be kept away from it. The
 * program may want a number that the engine has (dup2): then the descriptor is moved, and its
 * owner has to learn the new number. The owner either keeps the number in an _Atomic int that is
 * rewritten (a slot), or registers a hook. A slot may be read at any time. A call that is just
 * using the old number may fail with EBADF or, if the number already has its new meaning, act on
 * the program's descriptor. So owners should expect EBADF and retry with the new number, and a
 * number that the kernel is to keep is given to it between os_fds_hold() and os_fds_release().
 *
 * epoll remembers the number under which a descriptor was added. After a move the events still
 * arrive (key them by pointer, not by number), but EPOLL_CTL_MOD and DEL by either number fail.
 * Owners that need these delete and add the descriptor again in a hook.
 *
 * All this concerns the program's table. A thread with a table of its own has to hide its numbers
 * from no other code: for such a thread these functions only keep and close descriptors.
 */
typedef void (*os_fd_moved_fn)(void *arg, int oldfd, int newfd);

/*
 * Makes a close-on-exec copy at a high number, registers it as internal and closes the original. A
 * negative fd is returned as it is, so that the function can be wrapped around the call that makes
 * the descriptor. If no other number is free, the original number is kept. -EBADF, -ENOMEM
 * (original closed).
 */
int os_dup_high(int fd);
/* The same, returning 0: *slot gets the number and follows it from the first moment. */
int os_dup_high_slot(int fd, _Atomic int *slot);
/*
 * 0 or -ENOMEM. Registering a number again replaces the earlier registration. os_close()
 * unregisters.
 */
int os_fd_register(int fd);
/* *slot holds fd, and is rewritten when the descriptor moves. */
int os_fd_register_slot(int fd, _Atomic int *slot);
/*
 * Registers a hook for the number in *slot, which moved() then has to rewrite itself. It is called
 * twice under the lock of the list: first with oldfd and newfd both open, then, when oldfd is
 * closed, with oldfd -1. It must not call any function of the list (os_close(), os_dup_high()...).
 * Owners must not call those with a lock held that moved() takes.
 */
int os_fd_register_hook(_Atomic int *slot, os_fd_moved_fn moved, void *arg);
/*
 * Descriptors that another library keeps inside itself, for its own calls of read(), ioctl() and
 * close() by name (these calls pass through the preload layer). Adopting moves the descriptor to a
 * high number and makes it close-on-exec and internal. It rewrites the library's own int, at once
 * and whenever the program wants that number. To be called before the descriptor is added to an
 * epoll set. 0, or -errno: then nothing has changed.
 */
int os_fd_adopt(int *number);
/* ... which is then read as a slot is */
static inline const _Atomic int *os_fd_adopted_slot(const int *number)
{
	return (const _Atomic int *)number;
}
/*
 * ... to be called before the library closes it and frees the memory of the int. No effect on one
 * that was not adopted.
 */
void os_fd_disown(int *number);
/*
 * In a forked child: closes it. If it was adopted, its library's int becomes -1, because the
 * library may use that int again.
 */
void os_fd_abandon(int fd);
/*
 * Use these around calls of such a library on a program's thread: the numbers that it closes by
 * name are then its own, and not an attempt of the program to close ours. The helper is always
 * inside, if it shares the program's table.
 */
extern __thread unsigned os_library_depth __attribute__((tls_model("initial-exec")));
static inline void os_library_begin(void)
{
	os_library_depth++;
}
static inline void os_library_end(void)
{
	os_library_depth--;
}
/*
 * Closes the descriptor in the slot and stores -1 there, atomically against a move. No effect on a
 * negative number.
 */
void os_close_slot(_Atomic int *slot);
/*
 * The number in `from`, which is registered already if it is of the program's table, is in `to` from
 * now on; `from` gets -1. -EBADF: there is none.
 */
int os_fd_move_slot(_Atomic int *from, _Atomic int *to);
/*
 * As os_close_slot(), but does not close the number: system calls of the program's own have given
 * it to another file.
 */
void os_fd_forget_slot(_Atomic int *slot);
/*
 * In between, no descriptor of the list is moved or closed: each slot has the right number. For a
 * thread that gives a number to the kernel for good (into a packet, or an epoll set). Meanwhile it
 * must not sleep, nor call any other function of the list. No effect on a thread with a table of its
 * own, where no number moves.
 */
void os_fds_hold(void);
/*
 * The same for code that may run in a signal handler, which may have interrupted the thread that
 * holds them.  False: not by that time.
 */
bool os_fds_hold_until(uint64_t until_ns);
void os_fds_release(void);
unsigned os_fds_count(void); /* internal numbers; no lock */
/*
 * In a forked child, before any other of these functions: a thread of the parent may have held the
 * list's lock.
 */
void os_fds_forked(void);

/*
 * The process ends in a signal handler, which may have interrupted this thread while it held a lock.
 * From now on the thread waits for such locks no longer than that, all in all. 0: it does not end.
 */
void os_end_begin(uint64_t most_ns);
/* As pthread_mutex_lock(). False: this thread ends the process, and has not got the lock. */
bool os_mutex_lock(pthread_mutex_t *lock);

/*
 * limits.c. Raises the soft limits of descriptors and of file sizes to the hard ones, and puts them
 * back. The program's other threads see them meanwhile: for the end of a process, and for an exec.
 */
#define OS_LIMITS 2
struct os_limits {
	struct rlimit was[OS_LIMITS];
	bool raised[OS_LIMITS];
};
void os_limits_raise(struct os_limits *l);
void os_limits_restore(const struct os_limits *l);
/*
 * A pipe whose writing end never blocks (signals.c). That end is opened for both directions where
 * /proc allows it. Its owner is then a reader itself, so waking a process that has just ended
 * raises no SIGPIPE. 0 or -errno.
 */
int os_wake_pipe(int fds[2], int flags);

/*
 * The size of a memory file that has all of these seals. They include F_SEAL_SHRINK, so it stays at
 * least that long. -EPERM: a seal is missing; or -errno.
 */
int64_t os_memfd_sealed_size(int fd, int seals);
/*
 * Writes all of it at *at, and moves *at on: 0 or -errno. Raises no signal. Files of ours are
 * written by this only.
 */
int os_file_append(int fd, off_t *at, const void *from, size_t len);
/* A file of these bytes, which no process can change any more.  -errno */
int os_memfd_sealed(const struct iovec *iov, unsigned n);
/* a file of at least so many bytes, whose bytes no process can change any more */
bool os_memfd_is_sealed(int fd, uint64_t size);

#endif
