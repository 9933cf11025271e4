/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_channels.c - channels of borrowers that are not of this library, or are killed
 * (share/owner_attach.c, owner_call.c): how many the owner has, what comes in place of one, and
 * what becomes of messages that lie in one.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "engine/share/memory_grant.h"
#include "tests/unit/busy_helper.h"
#include "tests/unit/requests_helper.h"

/* ---- so many that the owner has no descriptor left ---- */

#define CARRIERS 100 /* descriptors */

static void limit(rlim_t n)
{
	struct rlimit rl;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &rl), 0);
	rl.rlim_cur = n;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
}

/* Not if it is let in. */
static bool refused(int *channel)
{
	const struct rds_share_attach hello = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	struct rds_share_reply a;
	int pair[2], pass[2];
	ssize_t n;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	pass[0] = pair[1];
	pass[1] = standin;
	ck_assert_int_eq(os_pass_send(standin, &hello, sizeof(hello), pass, 2, 0), 0);
	close(pair[1]);
	n = recv(pair[0], &a, sizeof(a), 0);
	*channel = pair[0];
	if (n == sizeof(a) && a.kind == RDS_SHARE_HELLO)
		return false;
	close(pair[0]);
	return true;
}

static int channels_gone(const int *channels, int n)
{
	struct pollfd p = {.events = POLLIN};
	int i, gone = 0;

	for (i = 0; i < n; i++) {
		p.fd = channels[i];
		gone += poll(&p, 1, 0) == 1;
	}
	return gone;
}

/*
 * Until it is full.  Those that come later get in all the same: some by the helper's reserve, then
 * one for others that have been idle.
 */
static int crowd(void)
{
	int channels[CARRIERS], n = 0, late, later, gone = 0;
	unsigned looks = 0;

	limit(10 * CARRIERS);
	while (n < CARRIERS && !refused(&channels[n]))
		n++;
	if (n == CARRIERS)
		return 2;
	for (later = 0; later < CARRIERS && !gone; later++) {
		while (refused(&late)) /* they have not been idle for long enough, by the real clock */
			test_pause(&looks);
		gone = channels_gone(channels, n);
	}
	return gone > 0 && gone < 20 ? 0 : 4;
}

START_TEST(room_for_more)
{
	int status;
	pid_t pid;

	limit(CARRIERS);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(crowd());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	limit(10 * CARRIERS);
	ck_assert_int_eq(status, 0);
	ck_lives();
}
END_TEST

/* ---- at the door ---- */

#define VISITORS 64 /* that the owner lets in at a time */

static int visit(const struct rds_grant_address *door)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (const struct sockaddr *)&door->name, door->len), 0);
	return fd;
}

static void ask_door(struct rds_grant_address *door)
{
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_MEMORY};
	struct rds_share_reply a;

	ck_assert(ask(&q, "", 0, -1, &a));
	ck_assert_uint_eq(a.data_len, sizeof(*door));
	memcpy(door, packet + sizeof(a), sizeof(*door));
}

/*
 * One comes in while the place is full, and before the owner has seen that the one which goes for
 * that has said something.
 */
START_TEST(full_house)
{
	struct rds_grant_address door;
	int first, fds[VISITORS], i, said = 0;

	ask_door(&door);
	first = visit(&door);
	for (i = 0; i < VISITORS - 1; i++)
		fds[i] = visit(&door);
	ck_lives(); /* it has seen them all */
	helper_begins_to_wait();
	fds[i] = visit(&door);
	ck_assert_int_eq(send(first, "x", 1, 0), 1);
	helper_goes_on();
	ck_assert_int_eq(recv(first, &said, sizeof(said), 0), -1);
	ck_assert_int_eq(errno, ECONNRESET);
	ck_lives();
	ck_assert_int_eq(send(fds[i], "x", 1, 0), 1);
	ck_assert_int_eq(recv(fds[i], &said, sizeof(said), 0), sizeof(said));
	ck_assert_int_eq(said, -EPERM);
}
END_TEST

/* ---- before there is a channel ---- */

static int kind_of_descriptor(unsigned kind)
{
	int ends[2] = {-1, -1};

	switch (kind) {
	case 0:
		return dup(standin);
	case 1:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 2:
		return epoll_create1(EPOLL_CLOEXEC);
	case 3:
		return memfd_create("something", MFD_CLOEXEC);
	case 4:
		return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	case 5:
		return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	case 6:
		ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
		break;
	default: /* the right kind, but no process has the other end */
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	}
	close(ends[0]);
	return ends[1];
}

static _Atomic unsigned counted, counts;

static void count(struct rds_timer *tm)
{
	const struct rds_owner *c = rds_owner_find(sock);
	const struct rds_owner_channel *h;
	unsigned n = 0;

	(void)tm;
	for (h = c ? c->channels : NULL; h; h = h->next)
		n++;
	atomic_store(&counted, n);
	atomic_fetch_add(&counts, 1);
}

/* How many the owner has: the helper alone may look. */
static unsigned holders(void)
{
	static struct rds_timer look = {.fn = count};
	unsigned before = atomic_load(&counts);

	rds_timer_set(&look, os_now_ns());
	while (atomic_load(&counts) == before)
		os_poll(NULL, 0, 1);
	return atomic_load(&counted);
}

/*
 * A request to attach with descriptors of all kinds, in place of what is to come with it or beside
 * it.
 */
START_TEST(strange_channels)
{
	struct rds_share_attach hello = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	int fds[4];
	unsigned i, k, n;

	seed = 5;
	for (i = 0; i < 5000; i++) {
		n = below(5);
		for (k = 0; k < n; k++)
			fds[k] = k == 1 && below(4) ? dup(standin) : kind_of_descriptor(below(8));
		hello.version = below(8) ? RDS_SHARE_VERSION : any();
		os_pass_send(standin, &hello,
			     below(4)	? sizeof(hello)
			     : below(4) ? RDS_SHARE_QUIET
					: below(sizeof(hello)),
			     fds, n, below(4) ? 0 : MSG_DONTWAIT);
		while (n)
			close(fds[--n]);
	}
	ck_lives();
	test_until(holders() <= 1); /* all others have been let go */
	ck_assert_uint_eq(holders(), 1);
}
END_TEST

/*
 * A borrower that never takes its answers is cut off when there is no more room for them.  Nothing
 * else waits for that.
 */
START_TEST(takes_no_answer)
{
	const struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_SOCKNAME};
	int mute = line;
	unsigned i, quick = 0;

	line = -1;
	attach();
	for (i = 0; i < 100000 && send(mute, &q, sizeof(q), MSG_NOSIGNAL) > 0; i++)
		if (i % 100 == 0) {
			struct rds_share_reply a;

			ck_assert(ask(&q, "", 0, -1, &a));
			quick++;
		}
	ck_assert_uint_lt(i, 100000);
	ck_assert_uint_gt(quick, 0);
	ck_lives();
	close(mute);
}
END_TEST

static void send_one(unsigned char number)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(sock->laddr.port)};
	struct iovec iov = {&number, 1};
	struct msghdr msg = {.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &iov, .msg_iovlen = 1};

	ck_assert_int_eq(rds_call_sendmsg(sock, standin, &msg, 0), 1);
}

static int receive(int flags)
{
	unsigned char number;
	struct iovec iov = {&number, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	return rds_call_recvmsg(sock, standin, &msg, flags) == 1 ? number : -1;
}

static uint32_t in_queue(void)
{
	uint32_t n;

	rx_lock();
	n = sock->rcv_bytes;
	rx_unlock();
	return n;
}

/* So many bytes are there, sooner or later. */
static void await_queue(uint32_t n)
{
	test_until(in_queue() == n);
}

/* Each takes a message, and has it lie in its channel. */
static void take_each(int *channels, unsigned n)
{
	const struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_RECV, .room = 100};
	struct pollfd p = {.events = POLLIN};
	unsigned i;

	for (i = 0; i < n; i++) {
		attach();
		channels[i] = p.fd = line;
		line = -1;
		ck_assert_int_eq(send(channels[i], &q, sizeof(q), 0), sizeof(q));
		ck_assert_int_eq(poll(&p, 1, TEST_COMES), 1);
	}
}

/*
 * Borrowers are killed that have taken messages and not read them.  The messages come back in their
 * order, in whatever order the deaths are noticed.
 */
START_TEST(back_in_order)
{
	static const unsigned orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};
	const unsigned *order = orders[_i];
	int channels[4], i;

	for (i = 0; i < 6; i++)
		send_one((unsigned char)i);
	await_queue(6);
	take_each(channels, 4);
	await_queue(2);
	for (i = 0; i < 4; i++) {
		close(channels[order[i]]);
		await_queue((uint32_t)(2 + i + 1));
	}
	take_each(channels, 1); /* the first one, once more */
	await_queue(5);
	close(channels[0]);
	await_queue(6);
	for (i = 0; i < 6; i++)
		ck_assert_int_eq(receive(0), i);
	ck_assert_int_eq(receive(MSG_DONTWAIT), -1);
}
END_TEST

static bool has_ended(pid_t pid)
{
	siginfo_t si = {.si_pid = 0};

	return waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid == pid;
}

/*
 * The borrower ends with a message in its channel, of which a child that no one knows has a copy
 * until `over` hangs up.
 */
static void ends_with_message(int over)
{
	int channel;
	char c;

	take_each(&channel, 1);
	if (!syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))
		(void)!read(over, &c, 1);
	_exit(0);
}

/* Even while no thread waits for it. */
START_TEST(copy_of_a_channel)
{
	int over[2], i;
	pid_t pid;

	ck_assert_int_eq(pipe(over), 0);
	for (i = 0; i < 3; i++)
		send_one((unsigned char)i);
	await_queue(3);
	pid = fork();
	if (!pid) {
		close(over[1]);
		if (_i)
			setpgid(0, 0);
		ends_with_message(over[0]);
	}
	test_until(has_ended(pid));
	if (_i)
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	await_queue(3);
	if (!_i)
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(receive(0), i);
	close(over[1]);
	ck_lives();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("channels");
	TCase *t = suite_case(s, "channels", setup, NULL);

	tcase_add_test(t, room_for_more);
	tcase_add_test(t, full_house);
	tcase_add_test(t, strange_channels);
	tcase_add_test(t, takes_no_answer);
	tcase_add_loop_test(t, back_in_order, 0, 3);
	tcase_add_loop_test(t, copy_of_a_channel, 0, 2);
	return suite_run(s);
}
