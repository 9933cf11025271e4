/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_preload_mock_others.c - what the toy engine of test_preload_mock.h has none of: sockets that
 * another process owns or takes over, a helper, messages that wait at exit.
 */
#include "test_preload_mock.h"

#include <errno.h>

#include "engine/share/borrower.h"
#include "engine/sys/os.h"

/* ---- sockets of another process: nobody carries them here ---- */

ssize_t rds_borrower_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	(void)fd;
	(void)msg;
	(void)flags;
	mock.away++;
	return -ENOTCONN;
}

ssize_t rds_borrower_recvmsg(int fd, struct msghdr *msg, int flags)
{
	return rds_borrower_sendmsg(fd, msg, flags);
}

int rds_borrower_bind(int fd, const struct sockaddr *addr, int len)
{
	(void)addr;
	return (int)rds_borrower_sendmsg(fd, NULL, len);
}

int rds_borrower_connect(int fd, const struct sockaddr *addr, int len)
{
	return rds_borrower_bind(fd, addr, len);
}

int rds_borrower_getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	(void)len;
	return rds_borrower_bind(fd, addr, 0);
}

int rds_borrower_getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
	return rds_borrower_getsockname(fd, addr, len);
}

int rds_borrower_getsockopt(int fd, int level, int opt, void *val, socklen_t *len)
{
	(void)level;
	(void)opt;
	(void)val;
	return rds_borrower_getsockname(fd, NULL, len);
}

int rds_borrower_setsockopt(int fd, int level, int opt, const void *val, socklen_t len)
{
	(void)val;
	return rds_borrower_getsockopt(fd, level, opt, NULL, &len);
}

int rds_borrower_ioctl(int fd, unsigned long req, void *arg)
{
	(void)req;
	(void)arg;
	return rds_borrower_bind(fd, NULL, 0);
}

int rds_borrower_take_error(int fd)
{
	(void)fd;
	return 0;
}

void rds_borrower_set_error(int fd, int err)
{
	(void)fd;
	(void)err;
}

const sigset_t *rds_borrower_wait_mask(const struct rds_borrower_wait *w, sigset_t *room)
{
	(void)room;
	return w->mask;
}

void rds_borrower_wait_end(struct rds_borrower_wait *w)
{
	mock.held -= w->held;
	w->held = false;
}

void rds_borrower_wait_left(struct rds_borrower_wait *w)
{
	rds_borrower_wait_end(w);
}

int rds_borrower_watch(int fd, bool edge, struct rds_borrower_wait *w)
{
	mock.looks++;
	if (w && mock.late) {
		mock.held += !w->held;
		w->held = true;
	}
	if (mock.late)
		return mock.late-- ? -EAGAIN : 0;
	return rds_borrower_bind(fd, NULL, edge);
}

bool rds_borrower_attach(int fd)
{
	(void)fd;
	return true;
}

void (*rds_hook_handed_off)(struct rds_sock *sk);
_Atomic bool rds_handoff_unbound_left;

bool rds_handoff_unbound_any(void)
{
	return false;
}

bool rds_handoff_unbound_out(int fd)
{
	(void)fd;
	return false;
}

void rds_handoff_unbound_clear(void)
{
}

bool rds_borrower_owner_gone(int fd)
{
	(void)fd;
	return mock.hung_up;
}

void rds_standby_show_readable(int fd)
{
	(void)fd;
}

void rds_standby_hangup_note(void)
{
}

void rds_standby_hangup_drop(void)
{
}

void rds_borrower_hangup_drop(int fd)
{
	(void)fd;
}

void rds_standby_park(int fd)
{
	(void)fd;
}

void rds_borrower_give_up(int fd)
{
	(void)fd;
}

unsigned rds_standby_hangup_fds(struct pollfd *p, unsigned room)
{
	if (mock.hung_up && room)
		*p = (struct pollfd){.fd = mock.hung_up, .events = 0};
	return mock.hung_up != 0;
}

void rds_borrower_fork_prepare(void)
{
}

int rds_borrower_hangup_fd(int fd)
{
	(void)fd;
	return -1;
}

void rds_borrower_close_wait(void)
{
}

void rds_borrower_drop(uint64_t inode)
{
	(void)inode;
}

void rds_borrower_close_begin(int fd)
{
	(void)fd;
	mock.away_closed++;
}

void rds_borrower_forget(void)
{
}

/* ---- hand-over: there is none ---- */

_Atomic bool rds_share_possible;
int (*rds_hook_number)(struct rds_sock *sk);
void (*rds_hook_left)(struct rds_sock *sk);

bool os_process_is_started(void)
{
	return true;
}

bool rds_share_is_possible(void)
{
	return atomic_load(&rds_share_possible);
}

void rds_share_begin(void)
{
}

void rds_share_begin_now(void)
{
}

unsigned rds_handoff_out(bool (*wanted)(struct rds_sock *sk))
{
	(void)wanted;
	return 0;
}

void rds_handoff_out_now(bool interrupted)
{
	(void)interrupted;
}

void rds_handoff_cancel(void)
{
}

bool rds_handoff_is_under_way(struct rds_sock *sk)
{
	(void)sk;
	return false;
}

bool rds_handoff_has_new_owner(struct rds_sock *sk)
{
	(void)sk;
	return false;
}

bool rds_handoff_is_pending(int fd)
{
	(void)fd;
	return false;
}

int rds_handoff_in(int fd, struct rds_sock **out)
{
	(void)fd;
	(void)out;
	return -EAGAIN;
}

/* Only those of the mock are asked about. */
bool rds_share_is_standin(int fd)
{
	int domain = 0, type = 0;
	socklen_t len = sizeof(int);

	return os_getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
	       os_getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && domain == AF_UNIX && type == SOCK_SEQPACKET;
}

/* ---- no helper, nothing to do at exit ---- */

bool rds_helper_program_is_single(bool *helper)
{
	*helper = false;
	return true;
}

bool rds_aside_begin(void)
{
	return false;
}

void rds_aside_end(void)
{
}

bool rds_aside_can_repeat(void)
{
	return false;
}

void rds_aside_repeat_call(long nr, const long args[5])
{
	(void)nr;
	(void)args;
}

void rds_helper_fork_prepare(void)
{
}

void rds_helper_fork_parent(void)
{
}

void rds_progress_exit_now(bool interrupted)
{
	(void)interrupted;
}

void rds_progress_exit(void)
{
}

void rds_progress_exit_failed(void)
{
}

void rds_progress_exit_begin(bool interrupted)
{
	(void)interrupted;
}
