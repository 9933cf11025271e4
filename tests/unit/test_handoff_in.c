/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_handoff_in.c - a socket is made from the parked state: everything that the last owner parked is
 * there again.  Anything else there, which any process that has the socket can have written, ends
 * the socket and nothing else, and leaves nothing behind in this process.
 */
#include <dirent.h>
#include <glob.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "engine/conn/outgoing.h"
#include "engine/node/layout.h"
#include "tests/mock/clock.h"
#include "tests/unit/handoff_helper.h"

#define MESSAGES 3
#define FILE_MAX 16384

static union {
	char bytes[FILE_MAX];
	struct rds_share_state state;
} file;
static size_t len;
static int end_of_it; /* the owner's end */
static void (*before_it_is_left)(struct rds_sock *sk);
static bool mailbox_is_kept;
static int mailbox = -1;
static rlim_t file_most = RLIM_INFINITY; /* bytes of the file in which it is left */

static unsigned numbers(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static unsigned wills_mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[300];
	unsigned n = 0;

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "rds lease") != NULL;
	fclose(maps);
	return n;
}

/* Only that of the socket that is always there, once the helper has had its turn. */
static void ck_one_will(void)
{
	test_until(wills_mapped() == 1);
}

/* Check writes files, too: it must not do so under the limit. */
static unsigned hand_off(void)
{
	struct rlimit all, few;
	unsigned n;

	getrlimit(RLIMIT_FSIZE, &all);
	few = (struct rlimit){file_most, all.rlim_max};
	if (file_most < all.rlim_cur)
		setrlimit(RLIMIT_FSIZE, &few);
	n = rds_handoff_out(is_new);
	setrlimit(RLIMIT_FSIZE, &all);
	return n;
}

/*
 * A socket with some messages is parked.  What lies in its stand-in is in `file`; no process has
 * it.
 */
static void left(void)
{
	struct rds_handoff_packet d;
	struct sockaddr_in name;
	struct rds_sock *sk = bound_here(&standin, &name);
	unsigned i;
	int fds[RDS_HANDOFF_FDS];

	for (i = 0; i < MESSAGES; i++) {
		struct iovec iov = {.iov_base = &i, .iov_len = sizeof(i)};
		struct msghdr msg = {.msg_name = &name, .msg_namelen = sizeof(name), .msg_iov = &iov, .msg_iovlen = 1};

		ck_assert_int_eq(rds_call_sendmsg(warm, warm_fd, &msg, MSG_DONTWAIT), sizeof(i));
	}
	rds_share_begin();
	if (before_it_is_left)
		before_it_is_left(sk);
	ck_assert_uint_eq(hand_off(), 1);
	ck_assert_int_eq(rds_handoff_take_parked(standin, false, &d, fds), 0);
	len = d.size;
	ck_assert_uint_le(len, sizeof(file));
	ck_assert_int_eq(pread(fds[1], &file, len, 0), (ssize_t)len);
	end_of_it = fds[0];
	if (mailbox_is_kept) {
		mailbox = fds[2];
		fds[2] = -1;
	}
	for (i = 1; i < RDS_HANDOFF_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	rds_handoff_cancel(); /* it is gone: another process's, as far as this one knows */
	rds_sock_put(sk);
}

static int file_of(size_t size)
{
	int fd = memfd_create("state", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_eq(write(fd, &file, size), (ssize_t)size);
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	return fd;
}

/* Takes over a socket whose parked state is what `file` contains, with that end of a pair. */
static int adopt(struct rds_sock **sk, int pair)
{
	int fd = file_of(len), err;

	ck_assert_int_eq(rds_handoff_park(end_of_it, fd, mailbox, -1, len), 0);
	close(fd);
	if (mailbox >= 0)
		close(mailbox);
	if (pair != end_of_it)
		close(pair);
	close(end_of_it);
	err = rds_handoff_in(standin, sk);
	return err;
}

static void ck_queue(struct rds_sock *sk)
{
	unsigned i, number;
	struct iovec iov = {.iov_base = &number, .iov_len = sizeof(number)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	for (i = 0; i < MESSAGES; i++) {
		ck_assert_int_eq(rds_call_recvmsg(sk, standin, &msg, MSG_DONTWAIT), sizeof(number));
		ck_assert_uint_eq(number, i);
	}
	ck_assert_int_eq(rds_call_recvmsg(sk, standin, &msg, MSG_DONTWAIT), -EAGAIN);
}

/* Another process, which has all of the registry's locks and does nothing. */
static pid_t holds_the_lock(void)
{
	int ready[2], fd;
	char pattern[300];
	glob_t found;
	pid_t pid;

	snprintf(pattern, sizeof(pattern), "%s/rdspreload-%u/node-*", rds_options()->registry_dir, (unsigned)geteuid());
	ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		fd = open(found.gl_pathv[0], O_RDWR);
		for (int i = 0; i < REG_AREAS; i++)
			if (fd < 0 || os_lock(fd, F_WRLCK, REG_AREA_BYTE(i), 1, false))
				_exit(1);
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(ready[0], pattern, 1), 1);
	close(ready[0]);
	close(ready[1]);
	globfree(&found);
	return pid;
}

/* Whose it is can be said nowhere: nothing is taken, and so nothing lost. */
START_TEST(what_cannot_be_had_now)
{
	struct rds_sock *sk = NULL;
	pid_t holder;

	left();
	holder = holds_the_lock();
	mock_clock_own(0);
	ck_assert_int_eq(adopt(&sk, end_of_it), -ETIMEDOUT);
	mock_clock_common();
	kill(holder, SIGKILL);
	ck_assert_int_eq(waitpid(holder, NULL, 0), holder);
	ck_assert_int_eq(rds_handoff_in(standin, &sk), 0);
	ck_queue(sk);
	end(sk);
}
END_TEST

START_TEST(what_was_left)
{
	struct rds_sock *sk = NULL;

	left();
	ck_assert_int_eq(adopt(&sk, end_of_it), 0);
	ck_queue(sk);
	end(sk);
}
END_TEST

static _Atomic bool turned;

static void turn(struct rds_timer *tm)
{
	(void)tm;
	atomic_store(&turned, true);
}

/* What the helper has to do in ns nanoseconds is done, and so is its round. */
static void helper_turns(uint64_t ns)
{
	static struct rds_timer timer = {.fn = turn};

	for (unsigned i = 0; i < 2; i++, ns = 0) {
		atomic_store(&turned, false);
		rds_timer_set(&timer, os_now_ns() + ns);
		test_until(atomic_load(&turned));
	}
}

static bool helper_looks_first; /* it looks at the socket when it has not got its descriptor */

int __real_os_pass_send(int fd, const void *buf, size_t n, const int *fds, unsigned nfds, int flags);
int __wrap_os_pass_send(int fd, const void *buf, size_t n, const int *fds, unsigned nfds, int flags);

int __wrap_os_pass_send(int fd, const void *buf, size_t n, const int *fds, unsigned nfds, int flags)
{
	const uint32_t *words = buf;

	if (helper_looks_first && n == 2 * sizeof(*words) + sizeof(void *) && words[1] == RDS_EXPORT_SOCK) {
		helper_looks_first = false;
		helper_turns(0);
	}
	return __real_os_pass_send(fd, buf, n, fds, nfds, flags);
}

/* Those that have the socket as well and sleep for it are shown that there are messages. */
START_TEST(what_is_shown_to_others)
{
	struct rds_sock *sk = NULL;

	left();
	helper_looks_first = true;
	ck_assert_int_eq(adopt(&sk, end_of_it), 0);
	ck_assert(!helper_looks_first);
	helper_turns(50000000);
	ck_assert_int_eq(poll(&(struct pollfd){.fd = standin, .events = POLLIN}, 1, 0), 1);
	ck_queue(sk);
	end(sk);
}
END_TEST

/* All of it, as far as it makes sense: 2 does everywhere. */
START_TEST(all_that_was_left)
{
	struct rds_sock_state *left_state = &file.state.sock, taken;
	struct rds_sock *sk = NULL;
	struct rds_addr name;

	left();
	name = left_state->laddr;
#define TWO_WORD(type, name, first) left_state->name = (type)2;
#define TWO_ADDR(name) left_state->name = (struct rds_addr){.ip.s6_addr = {2, 2, 2}, .scope = 2, .port = 2};
	RDS_SOCK_STATE_TABLE(TWO_WORD, TWO_ADDR)
	left_state->laddr = name;
	/* an update would be reported to the new owner at once, and so be in cong_notify */
	left_state->cong_mask = 0;
	ck_assert_int_eq(adopt(&sk, end_of_it), 0);
	rds_sock_state_get(sk, &taken);
#define TAKEN_WORD(type, name, first) ck_assert_msg(taken.name == left_state->name, #name);
#define TAKEN_ADDR(name) ck_assert_msg(!memcmp(&taken.name.ip, &left_state->name.ip, 16), #name);
	RDS_SOCK_STATE_TABLE(TAKEN_WORD, TAKEN_ADDR)
	end(sk);
}
END_TEST

/* The new owner could learn of an update from no one.  So one is reported at once. */
START_TEST(what_waits_for_an_update)
{
	struct rds_sock *sk = NULL;
	uint64_t ports;

	left();
	file.state.sock.cong_monitor = true;
	file.state.sock.cong_mask = 0x20;
	file.state.sock.cong_notify = 0x40;
	ck_assert_int_eq(adopt(&sk, end_of_it), 0);
	ck_assert_int_eq(told(sk, standin, &ports, sizeof(ports)), RDS_CMSG_CONG_UPDATE);
	ck_assert_uint_eq(ports, 0x60);
	ck_queue(sk);
	end(sk);
}
END_TEST

/* The same without a monitor, where poll() tells it. */
START_TEST(what_polls_for_an_update)
{
	const bool seen = _i & 1, watch_comes_later = _i & 2;
	struct rds_sock *sk = NULL;

	left();
	file.state.sock.seen_congestion = seen;
	atomic_store(&rds_sock_cong_gen, 0); /* as in a process that has never heard of an update */
	ck_assert_int_eq(adopt(&sk, end_of_it), 0);
	ck_queue(sk);
	if (watch_comes_later) {
		rds_sock_watch(sk, standin, false);
	} else {
		rx_lock();
		rds_sock_wake(sk, POLLIN);
		rx_unlock();
		rds_sock_show_unseen();
	}
	/* what others wait for */
	ck_assert_int_eq(poll(&(struct pollfd){.fd = standin, .events = POLLIN}, 1, 0), seen);
	ck_assert_int_eq(rds_call_poll(sk, POLLIN), seen ? POLLIN : 0);
	ck_assert_int_eq(rds_call_poll(sk, POLLIN), 0);
	end(sk);
}
END_TEST

static struct in6_addr there;

/* Two messages of which the first has failed. */
static void two_ends(struct rds_sock *sk)
{
	for (uint64_t token = 1; token <= 2; token++) {
		struct rds_queue_unacked u = {.sk = sk, .report = RDS_REPORT_END};
		struct rds_share_state st;

		rds_sock_snd_add(sk, 0);
		u.async = rds_op_async_new(sk, token, true);
		ck_assert_ptr_nonnull(u.async);
		u.async->to = there;
		ck_assert_int_eq(rds_standby_read_lease(os_fd(&sk->lease_fd), &st), 0);
		ck_assert(st.sock.had_async_sends);
		rds_unacked_report_end(&u, token == 1 ? RDS_RDMA_DROPPED : RDS_RDMA_SUCCESS);
		rds_queue_unacked_release(&u);
	}
}

/*
 * Programs with async sends rely on this: the oldest end comes first, and nothing goes to that
 * address before the program has read of the failure.
 */
START_TEST(ends_of_messages)
{
	struct rds_rdma_notify n[2];
	struct rds_sock *sk = NULL;
	union {
		char bytes[2 * CMSG_SPACE(sizeof(n[0]))];
		struct cmsghdr align;
	} control;
	struct msghdr msg = {.msg_control = &control, .msg_controllen = sizeof(control)};

	ck_assert_int_eq(inet_pton(AF_INET6, "::ffff:10.0.0.1", &there), 1);
	before_it_is_left = two_ends;
	left();
	ck_assert_int_eq(adopt(&sk, end_of_it), 0);
	ck_assert(atomic_load(&sk->had_async_sends));
	ck_assert(rds_op_async_refuses(sk, &there));
	ck_assert(!rds_op_async_refuses(sk, &sk->laddr.ip));
	ck_assert_int_eq(rds_call_recvmsg(sk, standin, &msg, MSG_DONTWAIT), 0);
	memcpy(&n[0], CMSG_DATA(&control.align), sizeof(n[0]));
	memcpy(&n[1], CMSG_DATA((struct cmsghdr *)(control.bytes + CMSG_SPACE(sizeof(n[0])))), sizeof(n[1]));
	ck_assert_uint_eq(n[0].user_token, 1);
	ck_assert_int_eq(n[0].status, RDS_RDMA_DROPPED);
	ck_assert_uint_eq(n[1].user_token, 2);
	ck_assert(!rds_op_async_refuses(sk, &there));
	ck_assert_uint_eq(atomic_load(&sk->nfailed), 0);
	ck_queue(sk);
	end(sk);
}
END_TEST

#define IN_STATE(member, value)                                                                                        \
	{                                                                                                              \
#member, offsetof(struct rds_share_state, member), sizeof(((struct rds_share_state *)0)->member),      \
			value                                                                                          \
	}

static const struct {
	const char *name;
	size_t at, size;
	uint64_t value;
} wrong[] = {
	IN_STATE(magic, 1),
	IN_STATE(version, RDS_SHARE_VERSION + 1),
	IN_STATE(name, 5), /* of another socket */
	IN_STATE(reg_idx, UINT32_MAX),
	IN_STATE(reg_idx, 3),
	IN_STATE(n_messages, MESSAGES + 1),
	IN_STATE(n_messages, UINT32_MAX),
	IN_STATE(n_unsent, 1),
	IN_STATE(n_unsent, UINT32_MAX),
	IN_STATE(sock.transport, 77),
	IN_STATE(sock.transport, UINT32_MAX - 1),
	IN_STATE(sock.err, UINT32_MAX), /* what a call returns would look like a number of bytes */
	IN_STATE(sock.err, 4096),
	IN_STATE(sock.sndbuf, 0),
	IN_STATE(sock.rcvbuf, 1),
	IN_STATE(sock.rx_trace, 4),
};

static void ck_refused(const char *name, size_t at, uint64_t value, size_t size)
{
	struct rds_sock *sk = NULL;
	unsigned before;

	left(); /* what is made once is there */
	close(standin);
	close(end_of_it);
	ck_one_will();
	before = numbers();
	left();
	memcpy(file.bytes + at, &value, size < sizeof(value) ? size : sizeof(value));
	ck_assert_msg(adopt(&sk, end_of_it) < 0, "%s: %llu", name, (unsigned long long)value);
	ck_assert_ptr_null(sk);
	end(NULL);
	ck_one_will();
	ck_assert_uint_eq(numbers(), before);
}

START_TEST(what_is_wrong)
{
	ck_refused(wrong[_i].name, wrong[_i].at, wrong[_i].value, wrong[_i].size);
}
END_TEST

static const struct {
	const char *name; /* NULL: no bool */
	size_t at;
} bools[] = {
#define BOOL_WORD(type, name, first)                                                                                   \
	{_Generic(file.state.sock.name, bool : #name, default : NULL), offsetof(struct rds_share_state, sock.name)},
#define BOOL_ADDR(name)
	RDS_SOCK_STATE_TABLE(BOOL_WORD, BOOL_ADDR)};

START_TEST(what_is_no_bool)
{
	if (bools[_i].name) {
		ck_refused(bools[_i].name, bools[_i].at, 2, 1);
		ck_refused(bools[_i].name, bools[_i].at, 0x80, 1);
		ck_refused(bools[_i].name, bools[_i].at, 0xff, 1);
	}
}
END_TEST

/* A message, or all of it, is cut short. */
START_TEST(what_is_short)
{
	struct rds_sock *sk = NULL;
	size_t whole, cut;

	left();
	whole = len;
	for (cut = 1; cut <= whole; cut += 13) {
		len = whole - cut;
		ck_assert_int_lt(adopt(&sk, end_of_it), 0);
		end(NULL);
		left();
		ck_assert_uint_eq(len, whole);
	}
}
END_TEST

/* The other end of something else. */
START_TEST(what_is_no_end)
{
	struct rds_sock *sk = NULL;
	int fd, pair[2], ends;

	left();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ends = _i == 0 ? open("/dev/null", O_RDWR | O_CLOEXEC) : _i == 1 ? dup(standin) : pair[0];
	fd = file_of(len);
	ck_assert_int_eq(os_pass_send(end_of_it,
				      &(struct rds_handoff_packet){
					      .magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION, .size = len},
				      sizeof(struct rds_handoff_packet), (int[]){ends, fd, fd, fd}, RDS_HANDOFF_FDS, 0),
			 0);
	ck_assert_int_lt(rds_handoff_in(standin, &sk), 0);
}
END_TEST

/* Whatever it is: it is a socket, or none.  (With the sanitizers' help.) */
START_TEST(anything)
{
	unsigned i, k, good = 0;
	uint64_t r = 88172645463325252u + (unsigned)_i;

	for (i = 0; i < 300; i++) {
		struct rds_sock *sk = NULL;

		left();
		for (k = 0; k < 1 + i % 4; k++) {
			r ^= r << 13;
			r ^= r >> 7;
			r ^= r << 17;
			file.bytes[(r >> 8) % len] = (char)r;
		}
		good += adopt(&sk, end_of_it) == 0;
		end(sk);
	}
	ck_assert_uint_gt(good, 0); /* bytes of a message, options */
	ck_assert_uint_lt(good, 300);
}
END_TEST

/* Only the first message finds room, and not the second one whole. */
START_TEST(what_finds_room)
{
	unsigned number = 7;
	struct iovec iov = {.iov_base = &number, .iov_len = sizeof(number)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct rds_sock *sk;

	file_most = sizeof(struct rds_share_state) + 2 * sizeof(struct rds_share_message);
	left();
	ck_assert_uint_eq(file.state.n_messages, 1);
	ck_assert_int_eq(adopt(&sk, end_of_it), 0);
	ck_assert_int_eq(rds_call_recvmsg(sk, standin, &msg, MSG_DONTWAIT), sizeof(number));
	ck_assert_uint_eq(number, 0);
	ck_assert_int_eq(rds_call_recvmsg(sk, standin, &msg, MSG_DONTWAIT), -EAGAIN);
	end(sk);
}
END_TEST

/* ---- several users on the node ---- */

int __real_rds_mailbox_empty(int box, struct rds_sock *sk);
int __wrap_rds_mailbox_empty(int box, struct rds_sock *sk);

static int mailbox_fails;

int __wrap_rds_mailbox_empty(int box, struct rds_sock *sk)
{
	int ret = __real_rds_mailbox_empty(box, sk);

	if (!mailbox_fails)
		return ret;
	ck_assert_int_ge(atomic_load(&sk->port_fd), 0);
	return mailbox_fails;
}

static void setup_all(void)
{
	setenv("RDS_PRELOAD_SHARE", "all", 1);
	rds_options_reset();
	setup();
}

/* The port's name was in the mailbox. It stays there, and the next socket has its own. */
START_TEST(the_name_of_its_port)
{
	struct rds_sock *sk = NULL, *next;
	struct sockaddr_in unused;
	int fd, again;

	mailbox_is_kept = true;
	left();
	again = dup(mailbox);
	mailbox_fails = -ENOMEM;
	ck_assert_int_eq(adopt(&sk, end_of_it), -ENOMEM);
	mailbox_fails = 0;
	next = bound_here(&fd, &unused);
	ck_assert_int_ge(atomic_load(&next->port_fd), 0);
	ck_assert_int_eq(poll(&(struct pollfd){.fd = again, .events = POLLIN}, 1, 0), 1);
	close(again);
	close(fd);
	rds_call_number_closed(next);
	end(NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("handoff_in");
	TCase *t = suite_case(s, "adopt", setup, NULL);

	tcase_add_test(t, what_was_left);
	tcase_add_test(t, what_is_shown_to_others);
	tcase_add_test(t, what_waits_for_an_update);
	tcase_add_loop_test(t, what_polls_for_an_update, 0, 4);
	tcase_add_test(t, ends_of_messages);
	tcase_add_test(t, all_that_was_left);
	tcase_add_test(t, what_cannot_be_had_now);
	tcase_add_loop_test(t, what_is_wrong, 0, sizeof(wrong) / sizeof(wrong[0]));
	tcase_add_loop_test(t, what_is_no_bool, 0, sizeof(bools) / sizeof(bools[0]));
	tcase_add_test(t, what_is_short);
	tcase_add_loop_test(t, what_is_no_end, 0, 3);
	tcase_add_test(t, what_finds_room);
	tcase_add_loop_test(t, anything, 0, 4);
	t = suite_case(s, "several users", setup_all, NULL);
	tcase_add_test(t, the_name_of_its_port);
	return suite_run(s);
}
