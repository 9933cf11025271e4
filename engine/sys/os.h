/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * os.h - the engine's only door to the operating system's I/O calls.
 *
 * The preload library defines read(), close(), poll() and so on itself, so an engine that called them by name would
 * call the interposed ones.  Everything here is a raw system call that returns -errno, is not a cancellation point and
 * never touches errno; the only exceptions are the two sleeps of struct rds_os_sleep, which are libc's real functions
 * (cancellation points, SA_RESTART as the kernel does it), set by the layer above.
 * A build check (scripts/check-layers) refuses engine objects that import any interposed name.
 */
#ifndef ENGINE_OS_H
#define ENGINE_OS_H

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct rds_os_sleep {
	ssize_t (*read)(int fd, void *buf, size_t len);
	int (*ppoll)(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask);
	/* NULL or: a sleep would be left out (EINTR at once), a signal handler waits for the end of this call. */
	bool (*cut)(void);
};
/*
 * preload stores libc's real entry points.  The defaults, for unit tests, are raw calls with libc's convention (-1 and
 * errno) that are no cancellation points: naming read() here would import the interposed symbol.
 */
extern struct rds_os_sleep rds_os_sleep;

/* Any system call, for what has no function below.  Returns -errno; not through libc's syscall(). */
long os_syscall(long nr, long a, long b, long c, long d, long e, long f);

int os_open(const char *path, int flags, mode_t mode);
int os_openat(int dir, const char *path, int flags, mode_t mode);
int os_close(int fd);
ssize_t os_read(int fd, void *buf, size_t len);
ssize_t os_write(int fd, const void *buf, size_t len);
/* To a pipe whose reader may be gone, a file at its limit (ulimit -f), a terminal that is another's: -EPIPE, -EFBIG, and no signal for the program. */
ssize_t os_write_quiet(int fd, const void *buf, size_t len);
/* Around what may raise SIGPIPE in this thread; `raised`: it may have. */
struct os_sigpipe {
	uint64_t old, pending;
};
void os_sigpipe_hold(struct os_sigpipe *s);
void os_sigpipe_release(const struct os_sigpipe *s, bool raised);
ssize_t os_pread(int fd, void *buf, size_t len, off_t off);
ssize_t os_pwrite(int fd, const void *buf, size_t len, off_t off);
int os_fstat(int fd, struct stat *st);
int os_stat(const char *path, struct stat *st);
bool os_dir_has_entries(const char *dir); /* but those that begin with a dot; false also if it is not there */
int os_mkdir(const char *path, mode_t mode);
int os_fchmod(int fd, mode_t mode);
int os_fchown(int fd, uid_t uid, gid_t gid);
/* libc's mmap (the sanitizers have to see it) without its errno. 0 or -errno. */
int os_mmap(size_t len, int prot, int flags, int fd, off_t off, void **out);
void os_munmap(void *p, size_t len);
int os_fcntl(int fd, int cmd, long arg);
/* Could so many (32 at most) more descriptors be had?  fd: any; to be called where that is rarely asked. */
bool os_fds_available(int fd, unsigned want);
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
/* AF_UNIX: who has made or connected the other end, by the kernel's word.  False: nobody whom our pid namespace knows. */
bool os_peer_cred(int fd, struct ucred *cred);
bool os_peer_is_self(int fd); /* ... this process */
/* Does that number say who it is, or does everybody have it whom our user namespace does not know?  (user_id.c; some system calls) */
bool os_uid_is_known(uid_t uid);
bool os_gid_is_known(gid_t gid);
/* A SEQPACKET socket's recv() has returned 0: was that the end, and not a packet of no bytes? */
bool os_recv_is_eof(int fd);
void os_recv_discard(
	int fd); /* reads what lies there, as long as it is not far more than we write, and throws it away */
int os_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int os_eventfd(unsigned init, int flags);
int os_pipe(int fds[2], int flags);
int os_epoll_create(void);
/* CLOCK_MONOTONIC, non-blocking; rings once at due_ns. */
int os_timerfd(void);
int os_timerfd_set(int fd, uint64_t due_ns);
int os_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev);
int os_epoll_wait(int ep, struct epoll_event *evs, int n, int timeout_ms);
int os_memfd(const char *name, unsigned flags);
int os_ftruncate(int fd, off_t len);
int os_fallocate(int fd, off_t off, off_t len);
/* The pages of a memory file of that length, before they are touched: -ENOMEM rather than SIGBUS. */
int os_reserve(int fd, off_t len);
/* fcntl record lock of [start, start+len): type F_RDLCK/F_WRLCK/F_UNLCK; wait: F_SETLKW else F_SETLK. */
int os_lock(int fd, short type, off_t start, off_t len, bool wait);
/* The same, F_SETLK, of the open file: it does not go with the closing of another descriptor of the file. */
int os_file_lock(int fd, short type, off_t start, off_t len);
/* 0 nobody else holds a write lock in the range, else the holder's pid, or -errno. */
int os_lock_holder(int fd, off_t start, off_t len);
/* For a sleep of several system calls (signals.c). */
struct os_signals {
	uint64_t old;
};
void os_signals_hold(struct os_signals *s);
/* What has come is handled now: -EINTR if a call does not go on after that, else 0. */
int os_signals_release(const struct os_signals *s);
/* ... if a handler has run, whatever becomes of calls after it. */
int os_signals_release_any(const struct os_signals *s);
bool os_signals_pending(const struct os_signals *s); /* something has come that is held back */
int os_signals_fd(const struct os_signals *s); /* readable when something has come that is held back; -errno */
pid_t os_getpid(void);
uint64_t os_now_ns(void);      /* CLOCK_MONOTONIC */
/* The same, up to 10 ms old (by kernel): 5 ns to read. */
static inline uint64_t os_now_coarse_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
uint64_t os_realtime_ns(void); /* CLOCK_REALTIME */
/* As time() and the kernel have them: of the last tick, so never ahead of what a program reads. */
static inline int64_t os_wall_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	return (int64_t)ts.tv_sec;
}
void os_random(void *buf, size_t len);

/*
 * One packet with descriptors (AF_UNIX).  Sent: 0 or -errno.  Received: bytes (0: hang-up) or -errno; *nfds descriptors,
 * close-on-exec, are the caller's, *lost: some could not be taken for lack of numbers.
 */
#define OS_PASS_MAX 4
int os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags);
ssize_t os_pass_recv(int fd, void *buf, size_t len, int fds[OS_PASS_MAX], unsigned *nfds, bool *lost, int flags);
/* The same, but only the first `room` of them are taken: further ones never get a number here (and *lost is true). */
ssize_t os_pass_recv_few(int fd, void *buf, size_t len, int fds[OS_PASS_MAX], unsigned room, unsigned *nfds, bool *lost,
			 int flags);

/*
 * Two tables of descriptors.  The engine's helper thread has one of its own where the kernel lets it, so that the
 * program's is not shared and stays as quick as without us; see helper/fd_exchange.h.  A number means something only in its table:
 * what both sides use has a number in each.  os_fd_table says which this thread runs with: 0 the program's, 1 the helper's
 * own.
 */
extern __thread int os_fd_table __attribute__((tls_model("initial-exec")));
struct os_fd {
	_Atomic int n[2]; /* -1: not known in that table */
};
static inline int os_fd(const struct os_fd *f)
{
	return atomic_load_explicit(&f->n[os_fd_table], memory_order_acquire);
}
static inline void os_fd_init(struct os_fd *f)
{
	atomic_store(&f->n[0], -1);
	atomic_store(&f->n[1], -1);
}
#define OS_FD_NONE {{-1, -1}}
/*
 * The calling thread gets an empty table: os_fd_table is 1 from now on.  0, or -errno (not permitted, older than Linux 5.9)
 * and nothing has changed.  The program's files are not closed by that, nor are its record locks touched.
 */
int os_fd_table_unshare(void);
int os_fd_table_unshare_keep(int fd); /* ... but for that one number, which it has in the new table, too */
/* A copy of number n of the process's main thread, in this thread's table; -errno if the kernel does not let us. */
int os_fd_dup_of_main(int n);

/*
 * Internal descriptors (own_fds.c): every fd that the engine keeps is registered, so that application loops that close
 * or replace arbitrary numbers can be steered around it.  The application may want a number that the engine has
 * (dup2): then the descriptor is moved and whoever holds the number has to learn of it.  Owners either keep the number
 * in an _Atomic int that is rewritten (a slot) or give a hook.  A slot may be read at any time; a call that is just
 * using the old number may fail with EBADF or, if the number already has its new meaning, hit the application's
 * descriptor, so owners should expect EBADF and retry with the new number.
 *
 * epoll remembers the number under which a descriptor was added: after a move the events still come (key them by
 * pointer, not by number), but EPOLL_CTL_MOD and DEL by either number fail; owners that need these delete and add
 * again in a hook.
 *
 * All that is about the program's table.  A thread with a table of its own has nobody to hide its numbers from: for it
 * these functions only keep and close them.
 */
typedef void (*os_fd_moved_fn)(void *arg, int oldfd, int newfd); /* see os_fd_register_hook */

/*
 * A close-on-exec copy at a high number, registered as internal; closes the original.  Negative fd: returned as it is,
 * so that it can be wrapped around the call that makes one.  With no other number free the original number is kept.
 * -EBADF, -ENOMEM (original closed).
 */
int os_dup_high(int fd);
/* The same, returning 0: *slot gets the number and follows it from the first moment. */
int os_dup_high_slot(int fd, _Atomic int *slot);
/* 0 or -ENOMEM.  Registering a number again replaces what was told before.  os_close() unregisters. */
int os_fd_register(int fd);
/* *slot holds fd and is rewritten when the descriptor moves. */
int os_fd_register_slot(int fd, _Atomic int *slot);
/*
 * A hook for the number in *slot, which moved() then has to rewrite itself.  It is called twice under the
 * lock of the list: with oldfd and newfd both open, and, oldfd now being closed, with oldfd -1.  It must not call any
 * function of the list (os_close(), os_dup_high()...), and owners must not call those with a lock held that moved()
 * takes.
 */
int os_fd_register_hook(_Atomic int *slot, os_fd_moved_fn moved, void *arg);
/*
 * Numbers that a library keeps inside itself, for its own calls of read(), ioctl() and close() by name (the preload layer is passed on the
 * way).  Adopting moves the descriptor to a high number, makes it close-on-exec and internal, and rewrites the library's own int, now and
 * whenever the program wants that number.  Before it is given to epoll.  0, or -errno: then nothing has changed.
 */
int os_fd_adopt(int *number);
/* ... before the library closes it and frees what the int lies in. Nothing happens to one that was not adopted. */
void os_fd_disown(int *number);
/* Forked child: closes it.  What was adopted is -1 from now on where its library keeps it, which may use that again. */
void os_fd_abandon(int fd);
/*
 * Around calls of such a library on a program's thread: what it closes by name are its own numbers, and not the program's attempt
 * to close ours.  The helper is always inside, if it shares the program's table.
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
/* Closes what the slot holds, and puts -1 there, atomically against a move.  Nothing if it holds a negative number. */
void os_close_slot(_Atomic int *slot);
/* In a forked child, before anything else of the above: a thread of the parent may have held the list's lock. */
void os_fds_forked(void);

/*
 * A pipe whose writing end never blocks.  It is opened for both directions where /proc is there to do it: then whoever
 * holds it is a reader himself, and waking a process that has just ended raises no SIGPIPE.  0 or -errno.
 */
int os_wake_pipe(int fds[2], int flags);

bool os_memfd_is_sealed(int fd, uint64_t size); /* a file of so many bytes at least, which nobody can change */

#endif
