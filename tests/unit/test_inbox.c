/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_inbox.c - what lies in an inbox when it is emptied: parcels in the order in which they came, nonsense that anybody may have written, and
 * connections on which nothing has come yet.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/leave.h"
#include "engine/message.h"
#include "tests/unit/suite.h"

#define LEN 100

static struct rds_engine engine;
static struct rds_sock sock;
static struct rds_procid name;
static int inbox;

static void setup(void)
{
	memset(&engine, 0, sizeof(engine));
	memset(&sock, 0, sizeof(sock));
	rds_eng = &engine;
	rds_lock_init(&engine.rx, RDS_LOCK_RX);
	sock.rx_tail = &sock.rx_head;
	os_random(&name, sizeof(name));
	inbox = rds_inbox_make(&name);
	ck_assert_int_ge(inbox, 0);
}

static int dial(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un sun;
	socklen_t len = rds_share_address(RDS_SHARE_INBOX, &name, &sun);

	ck_assert_int_ge(fd, 0);
	if (connect(fd, (struct sockaddr *)&sun, len)) {
		close(fd);
		return -errno;
	}
	return fd;
}

/* A file of messages with these numbers, each of so many bytes as it says. */
static int file_of(unsigned from, unsigned to, uint32_t says, bool seal, struct rds_share_parcel *p)
{
	int fd = memfd_create("parcel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct rds_share_message m = {.sport = 7, .len = says, .real_ns = 1};
	char bytes[LEN];

	*p = (struct rds_share_parcel){.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION, .n_messages = to - from};
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

/* On a connection (or a new one): it stays open, as that of a sender that has been stopped there. */
static int leave(int fd, const struct rds_share_parcel *p, int file)
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
	struct rds_share_parcel p;
	int file = file_of(from, to, LEN, true, &p);

	ck_assert_int_eq(leave(-1, &p, file), 0);
}

/* In the queue: messages with the numbers from 1. */
static void ck_queued(unsigned n)
{
	struct rds_inc *inc = sock.rx_head;
	unsigned i;

	for (i = 1; i <= n; i++, inc = inc->next) {
		ck_assert_ptr_nonnull(inc);
		ck_assert_uint_eq(inc->len, LEN);
		ck_assert_uint_eq(inc->sport, 7);
		ck_assert_uint_eq(((const unsigned char *)inc->data)[LEN - 1], i);
		ck_assert_uint_eq(inc->real_ns, 0); /* this socket has not asked for it */
	}
	ck_assert_ptr_null(inc);
	ck_assert_uint_eq(sock.rcv_bytes, n * LEN);
}

START_TEST(test_order)
{
	leave_good(1, 2);
	leave_good(2, 5);
	leave_good(5, 6);
	ck_assert_int_eq(rds_inbox_empty(inbox, &sock), 0);
	ck_queued(5);
	ck_assert_int_eq(rds_inbox_empty(inbox, &sock), 0);
	ck_queued(5);
}
END_TEST

/* A connection in which nothing was found takes nothing any more; what is left later is for the next carrier, and lasts as long as the inbox. */
START_TEST(test_too_late)
{
	struct rds_share_parcel p;
	int file = file_of(2, 3, LEN, true, &p), waits = dial();

	leave_good(1, 2);
	ck_assert_int_eq(rds_inbox_empty(inbox, &sock), 0);
	ck_assert_int_eq(leave(waits, &p, file), -EPIPE);
	ck_queued(1);
	leave_good(2, 4);
	ck_assert_int_eq(rds_inbox_empty(inbox, &sock), 0);
	ck_queued(3);
	close(inbox);
	ck_assert_int_eq(dial(), -ECONNREFUSED);
}
END_TEST

static void nonsense(unsigned kind)
{
	struct rds_share_parcel p;
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

START_TEST(test_nonsense)
{
	leave_good(1, 3);
	nonsense((unsigned)_i);
	leave_good(3, 5);
	ck_assert_int_eq(rds_inbox_empty(inbox, &sock), 0);
	ck_queued(4);
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
	ck_assert_int_eq(rds_inbox_empty(inbox, &sock), -EMFILE);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0); /* the leak sanitizer needs some at exit */
}
END_TEST

/* Who has the inbox as well can change how it behaves. */
START_TEST(test_never_sleeps)
{
	leave_good(1, 3);
	ck_assert_int_eq(fcntl(inbox, F_SETFL, 0), 0);
	ck_assert_int_eq(rds_inbox_empty(inbox, &sock), 0);
	ck_queued(2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("inbox");
	TCase *t = suite_case(s, "inbox", setup, NULL, 20);

	tcase_add_test(t, test_order);
	tcase_add_test(t, test_too_late);
	tcase_add_loop_test(t, test_nonsense, 0, 12);
	tcase_add_test(t, test_no_descriptor);
	tcase_add_test(t, test_never_sleeps);
	return suite_run(s);
}
