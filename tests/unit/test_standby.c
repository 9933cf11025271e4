/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_standby.c - which process may become the owner of a socket (share/standby.c): with a parked
 * packet in the stand-in or without one, beside an owner that lives, was killed, or is another
 * process by now; invalid leases.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/share/borrower.h"
#include "engine/sys/os.h"
#include "engine/node/socket_name.h"
#include "engine/share/lease.h"
#include "tests/mock/clock.h"
#include "tests/unit/suite.h"

static int standin, end_of_it, will, file;
static int other_will; /* the owner speaks of another socket */
static uint64_t inode;
static struct rds_lease_page *page;

static void setup(void)
{
	struct stat st;
	int sv[2];
	void *map;

	ck_assert_int_eq(os_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	standin = sv[0];
	end_of_it = sv[1];
	ck_assert_int_eq(fstat(standin, &st), 0);
	inode = st.st_ino;
	will = memfd_create("will", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	file = memfd_create("file", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(will, sizeof(*page)), 0);
	ck_assert_int_eq(fcntl(will, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	ck_assert_int_eq(os_mmap(sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, will, 0, &map), 0);
	page = map;
	page->magic = RDS_SHARE_MAGIC;
	page->version = RDS_SHARE_VERSION;
	rds_node_name_bind(standin, &page->st[0].name);
	page->st[1].name = page->st[0].name;
	page->st[0].reg_idx = 10;
	page->st[1].reg_idx = 11;
}

static void teardown(void)
{
	rds_standby_done(inode);
	rds_standby_drop(inode);
	ck_assert(!rds_standby_any());
	os_munmap(page, sizeof(*page));
	close(standin);
	close(end_of_it);
	close(will);
	close(file);
}

/* A process that owns the socket: it has the lock of the lease.  Lives until it is killed. */
static pid_t carrier(void)
{
	int ready[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		if (os_lock(will, F_WRLCK, 0, 1, false) || write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* What an owner answers to who attaches; n: with so many descriptors. */
static void hello(unsigned n)
{
	struct rds_share_reply a = {.magic = RDS_SHARE_MAGIC, .kind = RDS_SHARE_HELLO}, got;
	int channel[2], line[2], fds[RDS_LEASE_FDS];
	struct stat st;

	ck_assert_int_eq(fstat(will, &st), 0);
	a.result = (int64_t)st.st_ino + other_will;
	ck_assert_int_eq(os_socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel), 0);
	ck_assert_int_eq(pipe(line), 0);
	fds[0] = end_of_it;
	fds[1] = line[0];
	fds[2] = n == RDS_LEASE_FDS ? file : will; /* any will do for a mailbox */
	fds[3] = will;
	ck_assert_int_eq(os_pass_send(channel[1], &a, sizeof(a), fds, n, 0), 0);
	ck_assert_int_eq(rds_standby_read_hello(channel[0], inode, &got), sizeof(a));
	ck_assert_int_eq(got.kind, RDS_SHARE_HELLO);
	close(channel[0]);
	close(channel[1]);
	close(line[0]);
	close(line[1]);
}

static unsigned numbers(void)
{
	unsigned fd, n = 0;

	for (fd = 0; fd < 20000; fd++)
		n += fcntl((int)fd, F_GETFD) >= 0;
	return n;
}

static void give_up(struct rds_handoff *e)
{
	int fds[] = {e->pair, e->page, e->file, e->mailbox};
	unsigned i;

	for (i = 0; i < 4; i++)
		if (fds[i] >= 0)
			os_close(fds[i]);
	rds_standby_done(inode);
}

static uint32_t not_of_us; /* the entry of a socket that is in another registry */

static bool may(const struct rds_share_state *st)
{
	return st->reg_idx != not_of_us;
}

START_TEST(nothing_is_known)
{
	struct rds_handoff e;
	bool hidden;

	ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), -EAGAIN);
	ck_assert(!rds_standby_owner_died(standin));
	ck_assert(!rds_standby_keep_parked(standin, inode, &hidden));
	ck_assert(!hidden);
	hello(0); /* of an owner that has no lease */
	hello(2); /* invalid: without a lease */
	ck_assert(!rds_standby_any());
}
END_TEST

START_TEST(only_when_the_carrier_is_gone)
{
	unsigned before = numbers();
	pid_t pid = carrier();
	struct rds_handoff e;
	struct pollfd p;

	hello(4);
	ck_assert(rds_standby_any());
	ck_assert(!rds_standby_owner_died(standin));
	ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), -EAGAIN);
	end(pid);
	ck_assert_uint_eq(rds_standby_hangup_fds(&p, 1), 1);
	ck_assert_int_eq(poll(&p, 1, 0), 1); /* its other end is closed */
	ck_assert_int_ge(rds_standby_hangup_fd(inode), 0);
	/* nobody could be found: it does not wake again, and can be taken all the same */
	rds_standby_hangup_drop();
	ck_assert_int_ge(rds_standby_hangup_fd(inode), 0);
	rds_standby_hangup_note();
	rds_standby_hangup_drop();
	ck_assert_int_lt(rds_standby_hangup_fd(inode), 0);
	ck_assert(rds_standby_owner_died(standin));
	ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), 0);
	ck_assert_int_lt(e.file, 0);
	ck_assert_int_ge(e.page, 0);
	ck_assert_int_ge(e.mailbox, 0);
	ck_assert_int_eq(send(e.pair, "x", 1, 0), 1);
	ck_assert_int_eq(recv(standin, &p, 1, 0), 1);
	/*
	 * While it is taken here no other process has it, and a late answer brings no second lease.
	 */
	hello(4);
	ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), -EAGAIN);
	pid = fork();
	if (!pid)
		_exit(os_lock_holder(will, 0, 1) == getppid());
	ck_assert_int_eq(waitpid(pid, (int *)(void *)&p, 0), pid);
	ck_assert_int_eq(WEXITSTATUS(*(int *)(void *)&p), 1);
	give_up(&e);
	ck_assert_uint_eq(numbers(), before);
}
END_TEST

START_TEST(the_next_carrier)
{
	unsigned before = numbers();
	struct rds_handoff e;
	pid_t pid;

	hello(3);
	pid = carrier();
	hello(3); /* another line, the same will */
	ck_assert_uint_eq(rds_standby_hangup_fds(NULL, 0), 1);
	ck_assert(!rds_standby_owner_died(standin));
	hello(0); /* and one without: there is nothing to wait for */
	ck_assert_int_lt(rds_standby_hangup_fd(inode), 0);
	ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), -EAGAIN);
	end(pid);
	ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), 0);
	give_up(&e);
	ck_assert_uint_eq(numbers(), before);
}
END_TEST

/*
 * The owner that a search has found ends before the search is over: its end has not been noticed
 * yet.
 */
START_TEST(one_that_ends_in_the_search)
{
	struct rds_handoff e;
	struct pollfd p;

	hello(3); /* of owners that have ended by now: the other ends of their lines are closed */
	rds_standby_hangup_note();
	hello(3);
	rds_standby_hangup_drop();
	ck_assert_uint_eq(rds_standby_hangup_fds(&p, 1), 1);
	ck_assert_int_eq(poll(&p, 1, 0), 1);
	rds_borrower_hangup_drop(standin);
	ck_assert_int_lt(rds_standby_hangup_fd(inode), 0);
	ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), 0);
	give_up(&e);
}
END_TEST

/*
 * held: the borrower has what the last owner gave it.  shown: so many packets that mean "readable"
 * lie before the parked packet.
 */
static const struct {
	bool held;
	int shown;
	bool has_lease;
} deposits[] = {{false, 0, true},  {true, 0, true}, {false, 1, true}, {true, 1, true},
		{false, 0, false}, {true, 3, true}, {false, 3, false}};

static void show(int n)
{
	while (n--)
		ck_assert_int_eq(os_send(end_of_it, "", 0, 0), 0);
}

START_TEST(a_deposit_goes_first)
{
	unsigned before = numbers();
	bool held = deposits[_i].held, has_lease = deposits[_i].has_lease;
	struct rds_handoff e;
	pid_t pid;

	if (held)
		hello(3);
	show(deposits[_i].shown);
	pid = carrier();
	ck_assert_int_eq(rds_handoff_park(end_of_it, file, -1, has_lease ? will : -1, 77), 0);
	if (has_lease && (held || !deposits[_i].shown))
		/* until the lock is let go */
		ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), -EAGAIN);
	end(pid);
	ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), 0);
	ck_assert_int_ge(e.file, 0);
	ck_assert_uint_eq(e.size, 77);
	ck_assert_int_lt(e.mailbox, 0);
	ck_assert_int_eq(e.page >= 0, has_lease);
	ck_assert(!rds_handoff_is_parked(standin));
	give_up(&e);
	ck_assert_uint_eq(numbers(), before);
}
END_TEST

/*
 * What says "readable" is no parked packet, and stays; nor is the end of everything, which looks
 * like it.
 */
START_TEST(only_shown)
{
	struct pollfd p = {.fd = standin, .events = POLLIN};
	struct rds_handoff_packet d;
	int fds[RDS_HANDOFF_FDS];

	show(2);
	ck_assert(!rds_handoff_is_parked(standin));
	ck_assert_int_eq(rds_handoff_peek(standin, fds), 0);
	ck_assert_int_eq(rds_handoff_take_parked(standin, false, &d, fds), -EAGAIN);
	ck_assert_int_eq(poll(&p, 1, 0), 1);
	os_recv_discard(standin);
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	show(1);
	close(end_of_it);
	end_of_it = -1;
	os_recv_discard(standin);
	ck_assert(!rds_handoff_is_parked(standin));
	ck_assert_int_eq(rds_handoff_peek(standin, fds), 0);
	ck_assert_int_eq(rds_handoff_take_parked(standin, false, &d, fds), -EAGAIN);
}
END_TEST

/* Nothing can be kept of it, so it has to be taken over at once: attaching tells. */
START_TEST(met_and_hidden)
{
	struct rds_handoff e;
	bool hidden;

	show(1);
	ck_assert(rds_borrower_attach(standin)); /* there is nobody to attach to, and nothing to take */
	ck_assert_int_eq(rds_handoff_park(end_of_it, file, -1, will, 77), 0);
	ck_assert(rds_standby_keep_parked(standin, inode, &hidden));
	ck_assert(hidden);
	ck_assert(!rds_standby_any());
	ck_assert(!rds_borrower_attach(standin));
	ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), 0);
	ck_assert(rds_borrower_attach(standin)); /* it is this process's now */
	give_up(&e);
}
END_TEST

START_TEST(met_and_left)
{
	unsigned before = numbers();
	struct rds_handoff e;
	bool hidden;
	int fds[3];

	ck_assert_int_eq(rds_handoff_park(end_of_it, file, -1, will, 77), 0);
	ck_assert(rds_standby_keep_parked(standin, inode, &hidden));
	ck_assert(!hidden);
	ck_assert(rds_standby_any());
	ck_assert_int_lt(rds_standby_hangup_fd(inode), 0);
	ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), 0);
	give_up(&e); /* who took it is killed in that moment */
	ck_assert(!rds_handoff_is_parked(standin));
	/* Another one had met it, too. */
	hello(3);
	page->which = 1;
	rds_standby_park(standin);
	ck_assert_int_eq(rds_handoff_peek(standin, fds), 1);
	ck_assert_int_ge(fds[1], 0);
	close(fds[0]);
	close(fds[1]);
	rds_standby_park(standin); /* once */
	ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), 0);
	ck_assert_uint_eq(e.size, sizeof(struct rds_share_state));
	ck_assert_int_eq(pread(e.file, &page->st[0], sizeof(page->st[0]), 0), sizeof(page->st[0]));
	ck_assert_uint_eq(page->st[0].reg_idx, 11);
	ck_assert(!rds_handoff_is_parked(standin));
	give_up(&e);
	ck_assert_uint_eq(numbers(), before);
}
END_TEST

/* With a standby or without one, parked or not, behind other packets: others can take it. */
START_TEST(not_for_this_process)
{
	unsigned before = numbers();
	bool held = _i & 1, parked = _i & 2;
	struct rds_handoff e;
	pid_t pid;

	if (held)
		hello(3);
	show(_i & 4 ? 2 : 0);
	if (parked)
		ck_assert_int_eq(rds_handoff_park(end_of_it, file, -1, will, 77), 0);
	not_of_us = 10;
	ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), held || parked ? -EXDEV : -EAGAIN);
	ck_assert(rds_handoff_is_parked(standin) == parked && rds_standby_any() == held);
	pid = carrier(); /* gets the lock */
	end(pid);
	not_of_us = 0;
	ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), held || parked ? 0 : -EAGAIN);
	if (held || parked)
		give_up(&e);
	os_recv_discard(standin);
	ck_assert_uint_eq(numbers(), before);
}
END_TEST

/* Closed behind our back; the kernel has given its inode to another one. */
START_TEST(an_earlier_socket)
{
	unsigned before = numbers();
	struct rds_handoff e;

	hello(3);
	ck_assert(rds_standby_owner_died(standin));
	page->st[0].name.b[3] ^= 1;
	ck_assert_int_eq(rds_standby_take_over(standin, inode, may, &e), -EAGAIN);
	ck_assert(!rds_standby_any());
	hello(3);
	other_will = 1;
	hello(3);
	other_will = 0;
	ck_assert(!rds_standby_any());
	ck_assert_uint_eq(numbers(), before);
}
END_TEST

START_TEST(what_is_no_will)
{
	struct rds_share_state st;
	int empty = memfd_create("empty", MFD_CLOEXEC), soft = memfd_create("soft", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_eq(ftruncate(soft, sizeof(*page)), 0);
	/* it could be made shorter while it is read */
	ck_assert_int_eq(rds_standby_read_lease(soft, &st), -EPROTO);
	close(soft);
	ck_assert_int_eq(rds_standby_read_lease(will, &st), 0);
	ck_assert_uint_eq(st.reg_idx, 10);
	page->which = 0xffffffff; /* one of the two copies, for any value */
	ck_assert_int_eq(rds_standby_read_lease(will, &st), 0);
	ck_assert_uint_eq(st.reg_idx, 11);
	page->version++;
	ck_assert_int_eq(rds_standby_read_lease(will, &st), -EPROTO);
	page->version--;
	page->magic++;
	ck_assert_int_eq(rds_standby_read_lease(will, &st), -EPROTO);
	ck_assert_int_eq(rds_standby_read_lease(empty, &st), -EPROTO);
	ck_assert_int_eq(rds_standby_read_lease(-1, &st), -EPROTO);
	close(empty);
}
END_TEST

/*
 * Of many sockets without an answering owner only the first is waited for that long: a program
 * starts meanwhile.
 */
START_TEST(nobody_answers)
{
	uint64_t began;
	int sv[6][2];
	unsigned i;

	mock_clock_own(1);
	began = os_now_ns();

	for (i = 0; i < 6; i++) {
		ck_assert_int_eq(os_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv[i]), 0);
		rds_borrower_attach(sv[i][0]);
	}
	ck_assert_uint_ge(os_now_ns() - began, 1000000000u);
	ck_assert_uint_lt(os_now_ns() - began, 1500000000u);
	for (i = 0; i < 6; i++) {
		close(sv[i][0]);
		close(sv[i][1]);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("standby");
	TCase *t = suite_case(s, "heir", setup, teardown);

	tcase_add_test(t, nothing_is_known);
	tcase_add_test(t, only_when_the_carrier_is_gone);
	tcase_add_test(t, the_next_carrier);
	tcase_add_test(t, one_that_ends_in_the_search);
	tcase_add_loop_test(t, a_deposit_goes_first, 0, sizeof(deposits) / sizeof(deposits[0]));
	tcase_add_test(t, only_shown);
	tcase_add_test(t, met_and_hidden);
	tcase_add_test(t, met_and_left);
	tcase_add_loop_test(t, not_for_this_process, 0, 8);
	tcase_add_test(t, an_earlier_socket);
	tcase_add_test(t, what_is_no_will);
	tcase_add_test(t, nobody_answers);
	return suite_run(s);
}
