/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * step_aside.c - the helper and the program's credentials and namespaces, which the kernel keeps
 * per thread.
 *
 * The kernel grants some calls to a process of one thread only (a new user namespace, another mount
 * namespace).  If the helper is the second thread, it *steps aside*: it ends, the program makes the
 * call, and a new helper goes on with the credentials and namespaces that the program has then.
 * The thread takes nothing with it but its descriptor table, if it has one of its own.  Meanwhile
 * those descriptors are kept in a socket, each with its number.  A program of one thread makes no
 * other call in this time, and signals are held back.
 *
 * Other calls change the credentials of the calling thread only (capset).  The helper repeats these
 * calls.
 *
 * Must not know which calls these are.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "engine/helper/helper.h"
#include "engine/rds.h"
#include "engine/sys/compiler.h"
#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "engine/sys/patience.h"
#include "engine/sys/process.h"

#define BATCH 64
#define NAP_NS 50000

enum state { ASKED, AT_IT, GONE, REFUSED };

struct batch {
	unsigned n;
	int number[BATCH];
};

struct batch_message {
	struct msghdr mh;
	struct iovec iov;
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(BATCH * sizeof(int))];
	} u;
};

static struct {
	_Atomic int state, out; /* out: the helper's end of the socket that keeps its descriptors */
	bool asked;		/* helper: it is to end after this round */
	int in, err;		/* in: the program's end of that socket */
	struct rds_deferred_call go, follow;
	struct os_signals signals;
	long nr, args[5];
	_Atomic bool followed; /* the helper has repeated the last call */
	bool lost; /* there is no helper any more */
	ino_t net; /* the helper's network namespace; 0: not known */
} aside = {.out = -1, .in = -1, .followed = true};

static void fd_batch_message_init(struct batch_message *m, struct batch *b)
{
	*m = (struct batch_message){.iov = {.iov_base = b, .iov_len = sizeof(*b)}};
	m->mh = (struct msghdr){.msg_iov = &m->iov, .msg_iovlen = 1, .msg_control = m->u.buf};
	m->mh.msg_controllen = sizeof(m->u.buf);
}

/* ---- the old helper ---- */

static int fd_batch_send(struct batch *b)
{
	struct batch_message m;
	struct cmsghdr *cm;
	ssize_t n;

	if (!b->n)
		return 0;
	fd_batch_message_init(&m, b);
	m.mh.msg_controllen = CMSG_SPACE(b->n * sizeof(int));
	cm = CMSG_FIRSTHDR(&m.mh);
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(b->n * sizeof(int));
	memcpy(CMSG_DATA(cm), b->number, b->n * sizeof(int));
	n = os_sendmsg(aside.out, &m.mh, MSG_DONTWAIT | MSG_NOSIGNAL);
	b->n = 0;
	return n < 0 ? (int)n : 0;
}

struct table_sender {
	struct batch b;
	int limit;
};

/* Refuses a number that a new table could not have under the limit. */
static int table_send_fd(int fd, void *arg)
{
	struct table_sender *t = arg;

	if (fd == aside.out)
		return 0;
	if (fd >= t->limit)
		return -EMFILE;
	t->b.number[t->b.n++] = fd;
	return t->b.n == BATCH ? fd_batch_send(&t->b) : 0;
}

static int table_send(void)
{
	struct table_sender t = {.b = {0}};
	struct rlimit rl = {.rlim_cur = 0};
	int err;

	os_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, (long)&rl, 0, 0);
	t.limit = rl.rlim_cur < INT32_MAX ? (int)rl.rlim_cur : INT32_MAX;
	err = os_fds_each(table_send_fd, &t);
	return err ? err : fd_batch_send(&t.b);
}

void rds_aside_exported(int fd)
{
	os_close_slot(&aside.out);
	atomic_store(&aside.out, fd);
}

static void stop_request(struct rds_deferred_call *c)
{
	(void)c;
	aside.asked = true;
}

/* Called after a round, because a round opens and closes descriptors. */
bool rds_aside_stop_helper(void)
{
	int asked = ASKED, err = 0;

	if (likely(!aside.asked))
		return false;
	aside.asked = false;
	if (!atomic_compare_exchange_strong(&aside.state, &asked, AT_IT)) {
		os_close_slot(&aside.out);
		return false;
	}
	if (rds_helper_has_own_table())
		err = table_send();
	os_close_slot(&aside.out);
	aside.err = err;
	atomic_store(&aside.state, err ? REFUSED : GONE);
	return !err;
}

/* ---- the new helper ---- */

static int fd_move_away(int fd)
{
	int copy = os_fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy >= 0)
		os_close(fd);
	return copy;
}

/*
 * Moves received descriptors to their old numbers.  The kernel has given them any numbers.  So a
 * descriptor later in the batch may have the number that belongs to this one.
 */
static int place_fds(int fds[BATCH], const struct batch *b)
{
	unsigned i, k;
	int err;

	for (i = 0; i < b->n; i++) {
		if (fds[i] == b->number[i])
			continue;
		for (k = i + 1; k < b->n; k++)
			if (fds[k] == b->number[i] && (fds[k] = fd_move_away(fds[k])) < 0)
				return fds[k];
		if (aside.in == b->number[i] && (aside.in = fd_move_away(aside.in)) < 0)
			return aside.in;
		err = (int)os_syscall(SYS_dup3, fds[i], b->number[i], O_CLOEXEC, 0, 0, 0);
		if (err < 0)
			return err;
		os_close(fds[i]);
	}
	return 0;
}

/* 0 or -errno; 1: there are no more batches. */
static int fd_batch_recv(void)
{
	struct batch_message m;
	struct cmsghdr *cm;
	struct batch b;
	int fds[BATCH];
	ssize_t n;

	fd_batch_message_init(&m, &b);
	n = os_recvmsg(aside.in, &m.mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n <= 0)
		return n == 0 || n == -EAGAIN ? 1 : (int)n;
	cm = CMSG_FIRSTHDR(&m.mh);
	if (n != sizeof(b) || b.n > BATCH || !cm || cm->cmsg_len != CMSG_LEN(b.n * sizeof(int)))
		return -EMFILE;
	memcpy(fds, CMSG_DATA(cm), b.n * sizeof(int));
	return place_fds(fds, &b);
}

int rds_aside_restore_table(void)
{
	int err = os_fd_table_unshare_keep(aside.in);

	if (err)
		return err;
	while (!err)
		err = fd_batch_recv();
	if (err < 0)
		/* some batches are gone: prevents another attempt */
		return err == -ENOMEM ? -ENOBUFS : err;
	os_close(aside.in);
	return 0;
}

/* ---- the program ---- */

static bool poll_until_done(bool (*done)(void))
{
	uint64_t end = os_now_ns() + rds_patience_ns(RDS_PATIENCE_ASIDE);

	while (!done()) {
		if (os_now_ns() >= end)
			return false;
		os_nap_ns(NAP_NS);
	}
	return true;
}

static bool helper_is_up(void)
{
	return os_process_is_started() && atomic_load(&rds_helper_up) && !aside.lost && !os_fd_table;
}

static bool program_is_single(void)
{
	bool shared;

	return helper_is_up() && rds_helper_program_is_single(&shared);
}

/* 0: not known. */
static ino_t file_inode(const char *path)
{
	struct stat st;

	return os_stat(path, &st) ? 0 : st.st_ino;
}

/* Called by the thread that has started the helper: the helper is in the same network namespace. */
void rds_aside_helper_started(void)
{
	aside.net = file_inode("/proc/thread-self/ns/net");
}

/*
 * Can a new helper be started now?  The kernel refuses a new thread to a process that has another
 * pid namespace for its children.  In another network namespace the helper would not find the
 * peers.
 */
static bool helper_can_restart(void)
{
	ino_t pid = file_inode("/proc/thread-self/ns/pid"), net = file_inode("/proc/thread-self/ns/net");

	return pid && pid == file_inode("/proc/thread-self/ns/pid_for_children") && net && net == aside.net;
}

/* An extra thread of a transport would remain as a second thread. */
static bool aside_is_possible(void)
{
	return program_is_single() && !atomic_load(&rds_helper_extra_threads) && helper_can_restart();
}

static int fd_store_make(void)
{
	struct os_fd out = OS_FD_NONE;
	const struct os_fd *fd = &out;
	int pair[2], err;

	if (!rds_helper_has_own_table())
		return 0;
	err = os_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
	if (err)
		return err;
	aside.in = pair[0];
	atomic_store(&out.n[0], pair[1]);
	err = rds_export_to_helper(RDS_EXPORT_ASIDE, NULL, &fd, 1);
	os_close(pair[1]);
	return err;
}

static void fd_store_drop(void)
{
	if (aside.in >= 0)
		os_close(aside.in);
	aside.in = -1;
}

static bool stop_is_decided(void)
{
	int state = atomic_load(&aside.state);

	return state == GONE || state == REFUSED;
}

static int stop_helper(void)
{
	int asked = ASKED, err = fd_store_make();

	if (err)
		return err;
	atomic_store(&aside.state, ASKED);
	aside.go.fn = stop_request;
	rds_helper_defer(&aside.go);
	if (!poll_until_done(stop_is_decided) && atomic_compare_exchange_strong(&aside.state, &asked, REFUSED))
		return -ETIMEDOUT;
	while (!stop_is_decided())
		os_nap_ns(NAP_NS);
	return atomic_load(&aside.state) == GONE ? 0 : aside.err;
}

bool rds_aside_begin(void)
{
	int err;

	if (!aside_is_possible())
		return false;
	os_signals_hold(&aside.signals);
	err = stop_helper();
	if (!err) {
		/* if it does not end, the kernel refuses the call */
		poll_until_done(rds_helper_has_ended);
		return true;
	}
	fd_store_drop();
	os_signals_release(&aside.signals);
	rds_warn("the RDS engine's helper thread cannot be ended for a call that needs a process of one thread: %s",
		 strerror(-err));
	return false;
}

/*
 * Limits of processes and memory may refuse the thread at this moment.  False: try again, because
 * other processes or threads may end meanwhile.
 */
static bool restart_helper(void)
{
	aside.err = rds_helper_restart();
	return aside.err != -EAGAIN && aside.err != -ENOMEM;
}

void rds_aside_end(void)
{
	poll_until_done(restart_helper);
	fd_store_drop();
	aside.lost = aside.err;
	if (aside.lost)
		rds_error(
			"the RDS engine's helper thread cannot be started again (%s): the RDS sockets of this process "
			"are of no use any more",
			strerror(-aside.err));
	os_signals_release(&aside.signals);
}

static void repeat_call(struct rds_deferred_call *c)
{
	long err = os_syscall(aside.nr, aside.args[0], aside.args[1], aside.args[2], aside.args[3], aside.args[4], 0);

	(void)c;
	if (err < 0)
		rds_warn("the RDS engine's helper thread keeps rights that the program has given up: %s",
			 strerror((int)-err));
	atomic_store(&aside.followed, true);
}

static bool call_is_repeated(void)
{
	return atomic_load(&aside.followed);
}

bool rds_aside_can_repeat(void)
{
	if (!program_is_single()) {
		if (helper_is_up() && !file_inode("/proc/self/task"))
			rds_warn_once("without /proc, which tells how many threads there are, the RDS engine's helper "
				      "thread keeps rights that the program gives up");
		return false;
	}
	if (poll_until_done(call_is_repeated))
		return true;
	rds_warn("the RDS engine's helper thread is busy for so long that it keeps rights that the program has given "
		 "up");
	return false;
}

void rds_aside_repeat_call(long nr, const long args[5])
{
	aside.nr = nr;
	memcpy(aside.args, args, sizeof(aside.args));
	aside.follow.fn = repeat_call;
	atomic_store(&aside.followed, false);
	rds_helper_defer(&aside.follow);
	if (!poll_until_done(call_is_repeated))
		rds_warn("the RDS engine's helper thread is busy, and gives up later the rights that the program has "
			 "given up");
}

void rds_aside_forget(void)
{
	atomic_store(&aside.out, -1);
	aside.in = -1;
	aside.asked = aside.lost = false;
	atomic_store(&aside.followed, true);
	atomic_store(&aside.go.queued, false);
	atomic_store(&aside.follow.queued, false);
}
