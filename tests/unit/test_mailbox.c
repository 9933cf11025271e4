/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_mailbox.c - a mailbox is emptied (share/mailbox.c): batches in the order in which they
 * came, invalid data that any process may have written, and connections on which nothing has come
 * yet.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/node/socket_name.h"
#include "engine/share/handoff.h"
#include "engine/conn/incoming.h"
#include "engine/calls/start.h"
#include "tests/unit/suite.h"

#define LEN 100

static struct rds_sock *sock;
static int standin;
static struct rds_procid name;
static int inbox;

static void setup(void)
{
	ck_assert_int_eq(rds_call_start_engine(), 0);
	standin = rds_call_socket(SOCK_SEQPACKET, 0, &sock);
	ck_assert_int_ge(standin, 0);
	name = sock->name;
	inbox = rds_mailbox_make(&name);
	ck_assert_int_ge(inbox, 0);
}

static int dial(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un sun;
	socklen_t len = rds_node_name_address(RDS_NODE_NAME_MAILBOX, &name, &sun);

	ck_assert_int_ge(fd, 0);
	if (connect(fd, (struct sockaddr *)&sun, len)) {
		close(fd);
		return -errno;
	}
	return fd;
}

/* A file of messages with these numbers, each of so many bytes as it says. */
static int file_of(unsigned from, unsigned to, uint32_t says, bool seal, struct rds_mailbox_batch *p)
{
	int fd = memfd_create("parcel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct rds_share_message m = {.sport = 7, .len = says, .real_ns = 1};
	char bytes[LEN];

	*p = (struct rds_mailbox_batch){
		.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION, .n_messages = to - from};
	for (; from < to; from++) {
		memset(bytes, (int)from, sizeof(bytes));
		ck_assert_int_eq(write(fd, &m, sizeof(m)), sizeof(m));
		ck_assert_int_eq(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
		p->size += sizeof(m) + sizeof(bytes);
	}
	if (seal)
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	return fd;
}

/*
 * On a connection (or a new one): it stays open, as that of a sender that has been stopped there.
 */
static int leave(int fd, const struct rds_mailbox_batch *p, int file)
{
	int err;

	if (fd < 0)
		fd = dial();
	ck_assert_int_ge(fd, 0);
	err = os_pass_send(fd, p, sizeof(*p), &file, file >= 0, MSG_DONTWAIT);
	close(file);
	close(fd);
	return err;
}

static void leave_good(unsigned from, unsigned to)
{
	struct rds_mailbox_batch p;
	int file = file_of(from, to, LEN, true, &p);

	ck_assert_int_eq(leave(-1, &p, file), 0);
}

/* In the queue: messages with the numbers from 1. */
static void ck_queued(unsigned n)
{
	struct rds_inc *inc = sock->rx_head;
	unsigned i;

	for (i = 1; i <= n; i++, inc = inc->next) {
		ck_assert_ptr_nonnull(inc);
		ck_assert_uint_eq(inc->len, LEN);
		ck_assert_uint_eq(inc->sport, 7);
		ck_assert_uint_eq(((const unsigned char *)inc->data)[LEN - 1], i);
		ck_assert_uint_eq(inc->real_ns, 0); /* this socket has not asked for it */
	}
	ck_assert_ptr_null(inc);
	ck_assert_uint_eq(sock->rcv_bytes, n * LEN);
}

START_TEST(test_order)
{
	leave_good(1, 2);
	leave_good(2, 5);
	leave_good(5, 6);
	ck_assert_int_eq(rds_mailbox_empty(inbox, sock), 0);
	ck_queued(5);
	ck_assert_int_eq(rds_mailbox_empty(inbox, sock), 0);
	ck_queued(5);
}
END_TEST

/*
 * A connection in which nothing was found takes nothing any more; what is left later is for the
 * next owner, and lasts as long as the mailbox.
 */
START_TEST(test_too_late)
{
	struct rds_mailbox_batch p;
	int file = file_of(2, 3, LEN, true, &p), waits = dial();

	leave_good(1, 2);
	ck_assert_int_eq(rds_mailbox_empty(inbox, sock), 0);
	ck_assert_int_eq(leave(waits, &p, file), -EPIPE);
	ck_queued(1);
	leave_good(2, 4);
	ck_assert_int_eq(rds_mailbox_empty(inbox, sock), 0);
	ck_queued(3);
	close(inbox);
	ck_assert_int_eq(dial(), -ECONNREFUSED);
}
END_TEST

static void nonsense(unsigned kind)
{
	struct rds_mailbox_batch p;
	int file = file_of(9, 10, LEN, kind != 0, &p), fd;

	switch (kind) {
	case 0: /* a file that could change under us */
		break;
	case 1:
		p.size += 1 << 20;
		break;
	case 2:
		p.magic++;
		break;
	case 3:
		p.version++;
		break;
	case 4:
		p.size = UINT64_MAX;
		break;
	case 5:
		p.size = p.n_messages = 0;
		break;
	case 6: /* a message that is longer than the file */
		close(file);
		file = file_of(9, 10, LEN + 1, true, &p);
		break;
	case 7:
		close(file);
		file = file_of(9, 10, UINT32_MAX, true, &p);
		break;
	case 8: /* not a file that can be sealed */
		close(file);
		file = open("/dev/zero", O_RDONLY | O_CLOEXEC);
		break;
	case 9: /* no file */
		close(file);
		file = -1;
		break;
	default:
		close(file);
		fd = dial();
		if (kind == 10)
			ck_assert_int_eq(send(fd, "nonsense", 8, 0), 8);
		close(fd);
		return;
	}
	ck_assert_int_eq(leave(-1, &p, file), 0);
}

static unsigned descriptors(void)
{
	unsigned n = 0;
	int fd;

	for (fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* What came with it does not stay open. */
START_TEST(test_nonsense)
{
	unsigned before;

	leave_good(1, 3);
	nonsense((unsigned)_i);
	leave_good(3, 5);
	before = descriptors();
	ck_assert_int_eq(rds_mailbox_empty(inbox, sock), 0);
	ck_queued(4);
	ck_assert_uint_eq(descriptors(), before);
}
END_TEST

/* No descriptor for what is there: that is said, and not taken for the end. */
START_TEST(test_no_descriptor)
{
	struct rlimit before, few;

	leave_good(1, 2);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = (struct rlimit){64, before.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (dup(inbox) >= 0)
		;
	ck_assert_int_eq(errno, EMFILE);
	ck_assert_int_eq(rds_mailbox_empty(inbox, sock), -EMFILE);
	/* the leak sanitizer needs some at exit */
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
}
END_TEST

/* Who has the mailbox as well can change how it behaves. */
START_TEST(test_never_sleeps)
{
	leave_good(1, 3);
	ck_assert_int_eq(fcntl(inbox, F_SETFL, 0), 0);
	ck_assert_int_eq(rds_mailbox_empty(inbox, sock), 0);
	ck_queued(2);
}
END_TEST

/* ---- more than there is room for ---- */

#define ROOM 10000u

/* So that messages are taken as long as not more than ROOM bytes are there. */
static void make_small(void)
{
	int val = ROOM;

	ck_assert_int_eq(rds_call_setsockopt(sock, standin, SOL_SOCKET, SO_RCVBUF, &val, sizeof(val)), 0);
	ck_assert_uint_eq(rds_sock_rcvbuf(sock), ROOM);
}

static unsigned queued(void)
{
	struct rds_inc *inc;
	unsigned n = 0;

	for (inc = sock->rx_head; inc; inc = inc->next)
		n++;
	return n;
}

/*
 * From a sender that does not ask first.  What does not fit is not kept, and what is left the next
 * time is.
 */
START_TEST(test_flood)
{
	unsigned i;

	make_small();
	for (i = 0; i < 20; i++)
		leave_good(0, 30);
	ck_assert_int_eq(rds_mailbox_empty(inbox, sock), 0);
	ck_assert_uint_eq(queued(), ROOM / LEN + 1);
	leave_good(0, 7);
	ck_assert_int_eq(rds_mailbox_empty(inbox, sock), 0);
	ck_assert_uint_eq(queued(), ROOM / LEN + 1 + 7);
}
END_TEST

/* Of messages of no bytes, too. */
START_TEST(test_flood_of_nothing)
{
	struct rds_share_message m = {.sport = 7};
	struct rds_mailbox_batch p = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION, .n_messages = 1000};
	int file = memfd_create("parcel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	unsigned i;

	make_small();
	for (i = 0; i < p.n_messages; i++)
		ck_assert_int_eq(write(file, &m, sizeof(m)), sizeof(m));
	p.size = p.n_messages * sizeof(m);
	fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	ck_assert_int_eq(leave(-1, &p, file), 0);
	ck_assert_int_eq(rds_mailbox_empty(inbox, sock), 0);
	ck_assert_uint_le(queued(), ROOM);
	ck_assert_uint_lt(queued(), 1000);
	ck_assert_uint_gt(queued(), 0);
}
END_TEST

static void bind_here(struct rds_sock *sk)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	ck_assert_int_eq(rds_call_bind(sk, (struct sockaddr *)&sin, sizeof(sin)), 0);
}

/* A byte of this number, and more, so that it is of LEN bytes. */
static void send_one(struct rds_sock *from, int fd, unsigned number)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(sock->laddr.port)};
	unsigned char bytes[LEN] = {(unsigned char)number};
	struct iovec iov = {bytes, sizeof(bytes)};
	struct msghdr msg = {.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &iov, .msg_iovlen = 1};

	ck_assert_int_eq(rds_call_sendmsg(from, fd, &msg, MSG_DONTWAIT), LEN);
}

static uint32_t left(void)
{
	struct registry_mailbox has;

	registry_sock_mailbox(rds_node_registry, sock->reg_idx, &has);
	return has.mailbox_bytes;
}

/*
 * What does not fit waits with its sender, and comes when a process owns the socket; all of it in
 * order.
 */
START_TEST(test_senders_wait)
{
	const unsigned n = 2 * ROOM / LEN;
	struct rds_sock *from;
	int fd = rds_call_socket(SOCK_SEQPACKET, 0, &from);
	unsigned char buf[LEN];
	struct iovec iov = {buf, sizeof(buf)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct rds_inc *inc;
	unsigned i;

	ck_assert_int_ge(fd, 0);
	make_small();
	bind_here(sock);
	bind_here(from);
	ck_assert_int_eq(registry_sock_orphan(rds_node_registry, sock->reg_idx, &name), 0);
	for (i = 0; i < n; i++)
		send_one(from, fd, i);
	rds_mailbox_deliver_all();
	ck_assert_uint_eq(left(), ROOM + LEN);
	rds_mailbox_deliver_all();
	ck_assert_uint_eq(left(), ROOM + LEN);
	ck_assert_uint_eq((uint32_t)atomic_load(&from->snd), (n - ROOM / LEN - 1) * LEN);
	/*
	 * In the order of a new owner: otherwise waiting messages would come as soon as the port
	 * has an owner.
	 */
	rds_lock(&rds_lock_control);
	ck_assert_int_eq(registry_sock_take_over(rds_node_registry, sock->reg_idx, &name, false), 0);
	rx_lock();
	inc = sock->rx_head;
	rx_unlock();
	ck_assert_ptr_null(inc);
	ck_assert_int_eq(rds_mailbox_empty(inbox, sock), 0);
	rds_unlock(&rds_lock_control);
	ck_assert_uint_eq(left(), 0);
	for (i = 0; i < n; i++) {
		ck_assert_int_eq(rds_call_recvmsg(sock, standin, &msg, 0), LEN);
		ck_assert_uint_eq(buf[0], (unsigned char)i);
	}
}
END_TEST

/* In files that have room for two of them. Check writes files, too: not under the limit. */
static void deliver_short(void)
{
	struct rlimit all, few;

	getrlimit(RLIMIT_FSIZE, &all);
	few = (struct rlimit){2 * (LEN + sizeof(struct rds_share_message)) + 1, all.rlim_max};
	setrlimit(RLIMIT_FSIZE, &few);
	rds_mailbox_deliver_all();
	setrlimit(RLIMIT_FSIZE, &all);
}

START_TEST(test_short_files)
{
	const unsigned n = 5;
	struct rds_sock *from;
	int fd = rds_call_socket(SOCK_SEQPACKET, 0, &from);
	unsigned i;

	ck_assert_int_ge(fd, 0);
	bind_here(sock);
	bind_here(from);
	ck_assert_int_eq(registry_sock_orphan(rds_node_registry, sock->reg_idx, &name), 0);
	for (i = 0; i < n; i++)
		send_one(from, fd, i);
	signal(SIGXFSZ, SIG_DFL);
	deliver_short();
	ck_assert_uint_eq(left(), 2 * LEN);
	deliver_short();
	deliver_short();
	ck_assert_uint_eq(left(), n * LEN);
	ck_assert_uint_eq((uint32_t)atomic_load(&from->snd), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mailbox");
	TCase *t = suite_case(s, "inbox", setup, NULL);

	tcase_add_test(t, test_order);
	tcase_add_test(t, test_too_late);
	tcase_add_loop_test(t, test_nonsense, 0, 12);
	tcase_add_test(t, test_no_descriptor);
	tcase_add_test(t, test_never_sleeps);
	tcase_add_test(t, test_flood);
	tcase_add_test(t, test_flood_of_nothing);
	tcase_add_test(t, test_senders_wait);
	tcase_add_test(t, test_short_files);
	return suite_run(s);
}
