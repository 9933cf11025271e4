/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_owner_ends.c - a borrower withdraws a call that sleeps at the owner, and the owner makes it and ends at the same
 * time (share/borrower_channel.c).  What the owner has said before its end counts, though the kernel tells first that
 * it has left the withdrawal unread.  The owner is played here, in the borrower's own steps.
 */
#include <check.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/share/borrower.h"
#include "engine/share/protocol.h"
#include "tests/unit/suite.h"

static int standin[2], owner;
static struct rds_share_request asked;
static char bytes[16];
static struct iovec iov = {bytes, sizeof(bytes)};
static struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

/* What the owner does in that step, and then it ends. */
static enum step { NEVER, ASLEEP, WITHDRAWN, SHUTS } acts_when;
static bool says_ready, replies, reads_all, tries_again;
static unsigned sleeps;

int __real_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags);
int __wrap_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags);
int __real_os_shutdown(int fd, int how);
int __wrap_os_shutdown(int fd, int how);

static void says(enum rds_share_kind kind, int64_t result, const char *data)
{
	struct {
		struct rds_share_reply a;
		char data[8];
	} p = {.a = {.magic = RDS_SHARE_MAGIC,
		     .kind = (uint16_t)kind,
		     .seq = asked.seq,
		     .owner_id = 1,
		     .result = result}};

	if (data)
		memcpy(p.data, data, p.a.data_len = (uint32_t)strlen(data));
	ck_assert_int_gt(send(owner, &p, sizeof(p.a) + p.a.data_len, MSG_NOSIGNAL), 0);
}

static void acts(enum step now)
{
	char packet[sizeof(asked)];

	if (now != acts_when)
		return;
	acts_when = NEVER;
	if (tries_again) {
		says(RDS_SHARE_READY, 0, NULL);
		says(RDS_SHARE_WAIT, -1, NULL);
		says(RDS_SHARE_REPLY, -EINTR, NULL);
		return;
	}
	if (says_ready)
		says(RDS_SHARE_READY, 0, NULL);
	if (replies)
		says(RDS_SHARE_REPLY, 5, asked.op == RDS_SHARE_RECV ? "hello" : NULL);
	while (reads_all && recv(owner, packet, sizeof(packet), MSG_DONTWAIT) > 0)
		;
	close(owner);
}

int __wrap_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags)
{
	struct rds_share_request q = {0};
	int err;

	if (fd == standin[0]) { /* the channel is offered */
		ck_assert_uint_ge(nfds, 1);
		owner = dup(fds[0]);
		says(RDS_SHARE_HELLO, 0, NULL);
		return 0;
	}
	err = __real_os_pass_send(fd, buf, len, fds, nfds, flags);
	memcpy(&q, buf, len < sizeof(q) ? len : sizeof(q));
	if (q.op == RDS_SHARE_CANCEL) {
		acts(WITHDRAWN);
	} else if (!err) {
		ck_assert_int_eq(recv(owner, &asked, sizeof(asked), 0), sizeof(asked));
		says(RDS_SHARE_WAIT, -1, NULL);
	}
	return err;
}

int __wrap_os_shutdown(int fd, int how)
{
	acts(SHUTS);
	return __real_os_shutdown(fd, how);
}

/* A signal that ends the call. */
static ssize_t interrupted(int fd, void *buf, size_t len)
{
	(void)fd, (void)buf, (void)len;
	sleeps++;
	acts(ASLEEP);
	errno = EINTR;
	return -1;
}

static void setup(void)
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, standin), 0);
	rds_os_sleep.read = interrupted;
}

static ssize_t receives(void)
{
	memset(bytes, 0, sizeof(bytes));
	return rds_borrower_recvmsg(standin[0], &msg, 0);
}

static ssize_t sends(void)
{
	return rds_borrower_sendmsg(standin[0], &msg, 0);
}

static const enum step steps[] = {ASLEEP, WITHDRAWN, SHUTS};

START_TEST(made)
{
	says_ready = replies = true;
	acts_when = steps[_i];
	iov.iov_len = 5;
	ck_assert_int_eq(sends(), 5);
}
END_TEST

/* A receive that cannot be delivered goes back to the owner's queue: so it counts until the channel is closed. */
START_TEST(received)
{
	says_ready = replies = true;
	acts_when = steps[_i];
	ck_assert_int_eq(receives(), 5);
	ck_assert_str_eq(bytes, "hello");
}
END_TEST

START_TEST(not_made)
{
	acts_when = steps[_i];
	iov.iov_len = 5;
	ck_assert_int_eq(sends(), -EINTR);
}
END_TEST

START_TEST(not_received)
{
	acts_when = steps[_i];
	ck_assert_int_eq(receives(), -EINTR);
}
END_TEST

/* The owner has begun.  Nobody knows what has become of it. */
START_TEST(begun)
{
	says_ready = true;
	acts_when = steps[_i];
	iov.iov_len = 5;
	ck_assert_int_eq(sends(), -ENOTCONN);
}
END_TEST

/* It has read the withdrawal, and not begun before. */
START_TEST(withdrawal_read)
{
	reads_all = true;
	acts_when = WITHDRAWN;
	iov.iov_len = 5;
	ck_assert_int_eq(sends(), -EINTR);
}
END_TEST

/* It has tried in vain once more, before it has read the withdrawal: the call does not sleep again. */
START_TEST(tried_again)
{
	tries_again = true;
	acts_when = WITHDRAWN;
	iov.iov_len = 5;
	ck_assert_int_eq(sends(), -EINTR);
	ck_assert_uint_eq(sleeps, 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("owner_ends");
	TCase *t = suite_case(s, "owner_ends", setup, NULL);

	tcase_add_loop_test(t, made, 0, 3);
	tcase_add_loop_test(t, received, 0, 2);
	tcase_add_loop_test(t, not_made, 0, 3);
	tcase_add_loop_test(t, not_received, 0, 3);
	tcase_add_loop_test(t, begun, 0, 3);
	tcase_add_test(t, withdrawal_read);
	tcase_add_test(t, tried_again);
	return suite_run(s);
}
