/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shm_peer.c - the other processes of the host (transport/shm/peer.c): nothing is sent on a
 * control socket that never said HELLO, and a process has no more than a few of them, in whatever
 * pid namespace it is.  And peers without a control socket (cold.c): which of them become cold, and
 * how they come back, or others in their name.
 *
 * What comes of a cold peer that ends is in test_shm_alive.c.
 */
#include <sys/resource.h>

#include "tests/unit/shm_peer_helper.h"

int __real_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags);
int __wrap_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags);

/* for a packet with three descriptors, which on a control socket is HELLO alone; 0: it is sent */
static _Atomic int refusal;

int __wrap_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags)
{
	if (refusal && len == sizeof(struct shm_ctl_msg) && nfds == 3)
		return refusal;
	return __real_os_pass_send(fd, buf, len, fds, nfds, flags);
}

int __real_os_getsockopt(int fd, int level, int opt, void *val, socklen_t *len);
int __wrap_os_getsockopt(int fd, int level, int opt, void *val, socklen_t *len);

/* the other process is in a pid namespace that this one does not see */
static _Atomic bool elsewhere;

int __wrap_os_getsockopt(int fd, int level, int opt, void *val, socklen_t *len)
{
	int err = __real_os_getsockopt(fd, level, opt, val, len);

	if (!err && opt == SO_PEERCRED && elsewhere)
		((struct ucred *)val)->pid = 0;
	return err;
}

/* ---- the other process ---- */

static const struct rds_conn_id other = {.peer = {{1, 2, 3}}, .peer_slot = 7};

static int listen_as_other(void)
{
	struct sockaddr_un door;
	socklen_t len = rds_node_name_address("rdspreload-shm-", &other.peer, &door);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&door, len), 0);
	ck_assert_int_eq(listen(fd, 8), 0);
	return fd;
}

/* ---- a HELLO that cannot be sent ---- */

static struct shm_peer *found;
static int result;

static void get_other(void)
{
	result = shm_peer_get(&other, &found);
}

START_TEST(unsent_by_who_connects)
{
	int door = listen_as_other(), fd;

	refusal = -ETOOMANYREFS;
	in_helper(get_other);
	ck_assert_int_eq(result, -ETOOMANYREFS);
	refusal = 0;
	in_helper(get_other);
	ck_assert_int_eq(result, 0);
	fd = accept(door, NULL, NULL);
	ck_assert_int_eq(hear(fd, MSG_DONTWAIT), 0);
	fd = accept(door, NULL, NULL); /* does it listen?  Else it would have ended */
	ck_assert_int_eq(hear(fd, MSG_DONTWAIT), 0);
	fd = accept(door, NULL, NULL);
	ck_assert_int_eq(hear(fd, MSG_DONTWAIT), SHM_OP_HELLO);
	ck_assert_int_eq(hear(fd, MSG_DONTWAIT), -EAGAIN);
}
END_TEST

START_TEST(unsent_by_who_accepts)
{
	refusal = -ENOMEM;
	ck_assert_int_eq(hear(dial(), 0), 0);
	refusal = 0;
	ck_assert_int_eq(hear(dial(), 0), SHM_OP_HELLO);
}
END_TEST

/* ---- how many ---- */

#define MOST 16 /* control sockets of one process */

static void say_hello(int fd, unsigned who)
{
	struct shm_ctl_msg msg = {.self = {{2}}};

	memcpy(&msg.self.b[4], &who, sizeof(who));
	send_hello(fd, msg);
}

/* Says HELLO as `who`, and is it still connected then? */
static bool stays(int fd, unsigned who)
{
	int got;

	say_hello(fd, who);
	helper_catches_up();
	got = hear(fd, MSG_DONTWAIT);
	ck_assert(got == -EAGAIN || got == 0 || got == -ECONNRESET);
	return got == -EAGAIN;
}

START_TEST(many_that_say_nothing)
{
	int fd[MOST];

	elsewhere = _i;
	for (unsigned i = 0; i < MOST; i++) {
		fd[i] = dial();
		ck_assert_int_eq(hear(fd[i], 0), SHM_OP_HELLO);
	}
	ck_assert_int_eq(hear(dial(), 0), 0);
	close(fd[0]);
	helper_catches_up();
	ck_assert_int_eq(hear(dial(), 0), SHM_OP_HELLO);
}
END_TEST

START_TEST(many_of_one_process)
{
	int fd;

	elsewhere = true;
	for (unsigned i = 0; i < MOST; i++) {
		fd = dial();
		ck_assert_int_eq(hear(fd, 0), SHM_OP_HELLO);
		ck_assert(stays(fd, 1));
	}
	fd = dial();
	ck_assert_int_eq(hear(fd, 0), SHM_OP_HELLO);
	ck_assert(!stays(fd, 1));
}
END_TEST

static int crowd[3 * MOST];

static void crowd_comes(void)
{
	for (unsigned i = 0; i < 3 * MOST; i++) {
		crowd[i] = dial();
		say_hello(crowd[i], i);
	}
}

static void crowd_is_there(void)
{
	for (unsigned i = 0; i < 3 * MOST; i++) {
		ck_assert_int_eq(hear(crowd[i], MSG_DONTWAIT), SHM_OP_HELLO);
		ck_assert_int_eq(hear(crowd[i], MSG_DONTWAIT), -EAGAIN);
	}
}

/*
 * All come at once, while the helper does something else.  None is refused because of the others.
 */
START_TEST(many_processes)
{
	elsewhere = true;
	in_helper(crowd_comes);
	helper_catches_up();
	in_helper(crowd_is_there);
}
END_TEST

/* ---- cold peers ---- */

#define FEW 64 /* descriptors: eight peers are warm */
#define WARM (FEW / 8)

static int heard_warm(int fd)
{
	struct shm_ctl_msg msg;

	if (os_recv(fd, &msg, sizeof(msg), 0) != sizeof(msg))
		return -EPIPE;
	ck_assert_uint_eq(msg.op, SHM_OP_WARM);
	return msg.err;
}

/* It leaves without being taken for dead, and comes back. */
START_TEST(leaves_and_returns)
{
	int fd = comes(5, SHM_SESSION_NEW);

	ck_assert_int_eq(warmth_of(5), SHM_WARM);
	say_op(fd, SHM_OP_COOL);
	ck_assert_int_eq(warmth_of(5), SHM_COOLING);
	close(fd);
	ck_assert_int_eq(warmth_of(5), SHM_COLD);
	fd = comes(5, SHM_SESSION_MINE);
	ck_assert_int_eq(heard_warm(fd), 0);
	ck_assert_int_eq(warmth_of(5), SHM_WARM);
	close(fd);
	ck_assert_int_eq(warmth_of(5), -1);
}
END_TEST

/* What it said last on the old socket is read first, whichever event comes first. */
static int old_fd, new_fd;

/* Sockets of the helper's table. */
static void come(void)
{
	old_fd = dial();
	say_session(old_fd, 5, SHM_SESSION_NEW);
}

static void leave_and_return(void)
{
	say_op(old_fd, SHM_OP_COOL);
	os_close(old_fd);
	new_fd = dial();
	say_session(new_fd, 5, SHM_SESSION_MINE);
}

static void has_returned(void)
{
	ck_assert_int_eq(hear(new_fd, MSG_DONTWAIT), SHM_OP_HELLO);
	ck_assert_int_eq(hear(new_fd, MSG_DONTWAIT), SHM_OP_WARM);
	ck_assert_int_eq(hear(new_fd, MSG_DONTWAIT), -EAGAIN);
}

START_TEST(returns_at_once)
{
	in_helper(come);
	ck_assert_int_eq(warmth_of(5), SHM_WARM);
	in_helper(leave_and_return);
	ck_assert_int_eq(warmth_of(5), SHM_WARM);
	in_helper(has_returned);
}
END_TEST

/* With few descriptors, those who came first make way, and can come back. */
START_TEST(many_are_cooled)
{
	const struct rlimit few = {FEW, FEW};
	int fd[WARM + 4];
	unsigned i;

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (i = 0; i < WARM + 4; i++) {
		fd[i] = comes(i + 1, SHM_SESSION_NEW);
		ck_assert_int_eq(warmth_of(i + 1), SHM_WARM);
	}
	for (i = 0; i < 4; i++) {
		ck_assert_int_eq(warmth_of(i + 1), SHM_COLD);
		ck_assert_int_eq(hear(fd[i], 0), SHM_OP_COOL);
		ck_assert_int_eq(hear(fd[i], 0), 0);
		close(fd[i]);
	}
	for (; i < WARM + 4; i++)
		ck_assert_int_eq(hear(fd[i], MSG_DONTWAIT), -EAGAIN);
	fd[0] = comes(1, SHM_SESSION_MINE);
	ck_assert_int_eq(heard_warm(fd[0]), 0);
	ck_assert_int_eq(warmth_of(1), SHM_WARM);
	ck_assert_int_eq(warmth_of(5), SHM_COLD);
}
END_TEST

/* ---- connects that cross, and those in vain ---- */

static int dialled_fd; /* what this process has connected to, as the other process sees it */

/* Session 5 is cold: this process connects again, and is not answered. */
static void warm_unanswered(void)
{
	struct shm_peer *p = rds_shm.peers;
	int ends[2];

	while (p && (p->dead || p->session != 5))
		p = p->next;
	ck_assert_ptr_nonnull(p);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	dialled_fd = ends[1];
	ck_assert_int_eq(shm_peer_open(p, ends[0]), 0);
	rds_shm.ncold--;
	p->warmth = SHM_WARMING;
	found = p;
}

static void queue_close(struct shm_peer *p)
{
	const struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_CLOSE};

	ck_assert_int_eq(shm_ctl_queue(p, &msg), 0);
}

static void both_connect(void)
{
	warm_unanswered();
	queue_close(found);
	new_fd = dial();
	say_session(new_fd, 5, SHM_SESSION_MINE);
}

/* The one that is not used says so, and carries nothing else. */
static void have_crossed(void)
{
	ck_assert_int_eq(hear(dialled_fd, MSG_DONTWAIT), SHM_OP_COOL);
	ck_assert_int_eq(hear(dialled_fd, MSG_DONTWAIT), 0);
	ck_assert_int_eq(hear(new_fd, MSG_DONTWAIT), SHM_OP_HELLO);
	ck_assert_int_eq(hear(new_fd, MSG_DONTWAIT), SHM_OP_WARM);
	ck_assert_int_eq(hear(new_fd, MSG_DONTWAIT), SHM_OP_CLOSE);
	ck_assert_int_eq(hear(new_fd, MSG_DONTWAIT), -EAGAIN);
}

START_TEST(both_connect_again)
{
	becomes_cold();
	in_helper(both_connect);
	ck_assert_int_eq(warmth_of(5), SHM_WARM);
	in_helper(have_crossed);
}
END_TEST

static void connect_in_vain(void)
{
	warm_unanswered();
	os_close(dialled_fd);
}

/* A refusal is no end of the process: it can still come. */
START_TEST(is_not_let_in)
{
	int fd;

	becomes_cold();
	in_helper(connect_in_vain);
	ck_assert_int_eq(warmth_of(5), SHM_COLD);
	fd = comes(5, SHM_SESSION_MINE);
	ck_assert_int_eq(heard_warm(fd), 0);
	ck_assert_int_eq(warmth_of(5), SHM_WARM);
}
END_TEST

/*
 * Two processes whose listeners are full, each with a packet that waits for it.  The second one stays
 * as it is, as that of a stopped process does.
 */
bool __wrap_registry_proc_alive(struct registry *reg, uint32_t slot, const struct rds_procid *id);

/* the processes that the test makes up are not in the registry */
bool __wrap_registry_proc_alive(struct registry *reg, uint32_t slot, const struct rds_procid *id)
{
	(void)reg, (void)slot, (void)id;
	return true;
}

static struct rds_conn_id full[2];
static int doors[2];

static void fill_doors(void)
{
	struct sockaddr_un door;
	struct shm_peer *p[2];
	socklen_t len;
	unsigned i;
	int fd;

	for (i = 0; i < 2; i++) {
		full[i] = other;
		full[i].peer.b[3] = (unsigned char)(i + 1);
		len = rds_node_name_address("rdspreload-shm-", &full[i].peer, &door);
		doors[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		ck_assert_int_eq(bind(doors[i], (struct sockaddr *)&door, len), 0);
		ck_assert_int_eq(listen(doors[i], 0), 0);
		ck_assert_int_eq(shm_peer_get(&full[i], &p[i]), 0);
		ck_assert(shm_cold_make_room(NULL, true));
		os_close(accept(doors[i], NULL, NULL));
		ck_assert_int_eq(p[i]->warmth, SHM_COLD);
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		ck_assert_int_eq(connect(fd, (struct sockaddr *)&door, len), 0);
	}
	for (i = 0; i < 2; i++)
		queue_close(p[i]);
}

static void open_door(void)
{
	os_close(accept(doors[0], NULL, NULL));
}

static void look_at_door(void)
{
	result = accept(doors[0], NULL, NULL);
}

static bool has_come(void)
{
	in_helper(look_at_door);
	return result >= 0;
}

START_TEST(a_full_listener_delays_no_other)
{
	in_helper(fill_doors);
	helper_catches_up();
	in_helper(open_door);
	test_until(has_come());
}
END_TEST

/* ---- lies ---- */

START_TEST(returns_and_was_never_there)
{
	int fd = comes(7, _i ? SHM_SESSION_YOURS : SHM_SESSION_MINE);

	ck_assert_int_eq(heard_warm(fd), -ENOENT);
	ck_assert_int_eq(hear(fd, 0), 0);
}
END_TEST

/* Another process knows the number of a session, and says that it is that process. */
START_TEST(returns_as_another)
{
	int fd = comes(5, SHM_SESSION_NEW);

	ck_assert_int_eq(warmth_of(5), SHM_WARM);
	say_op(fd, SHM_OP_COOL);
	close(fd);
	ck_assert_int_eq(warmth_of(5), SHM_COLD);
	elsewhere = true;
	fd = comes(5, SHM_SESSION_MINE);
	ck_assert_int_eq(hear(fd, 0), 0);
	ck_assert_int_eq(warmth_of(5), SHM_COLD);
}
END_TEST

START_TEST(returns_and_is_still_there)
{
	int fd = comes(5, SHM_SESSION_NEW), second;

	ck_assert_int_eq(warmth_of(5), SHM_WARM);
	second = comes(5, SHM_SESSION_MINE);
	ck_assert_int_eq(hear(second, 0), 0);
	ck_assert_int_eq(hear(fd, MSG_DONTWAIT), -EAGAIN);
	ck_assert_int_eq(warmth_of(5), SHM_WARM);
}
END_TEST

START_TEST(leaves_and_was_never_there)
{
	int fd = dial();

	ck_assert_int_eq(hear(fd, 0), SHM_OP_HELLO);
	say_op(fd, _i ? SHM_OP_WARM : SHM_OP_COOL);
	ck_assert_int_eq(hear(fd, 0), 0);
}
END_TEST

START_TEST(leaves_and_goes_on)
{
	int fd = comes(5, SHM_SESSION_NEW);

	say_op(fd, SHM_OP_COOL);
	say_op(fd, SHM_OP_LOOK);
	ck_assert_int_eq(hear(fd, 0), 0);
	ck_assert_int_eq(warmth_of(5), -1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm_peer");
	TCase *t = suite_case(s, "peer", setup, NULL);

	tcase_add_test(t, unsent_by_who_connects);
	tcase_add_test(t, unsent_by_who_accepts);
	tcase_add_loop_test(t, many_that_say_nothing, 0, 2);
	tcase_add_test(t, many_of_one_process);
	tcase_add_test(t, many_processes);
	tcase_add_test(t, leaves_and_returns);
	tcase_add_test(t, returns_at_once);
	tcase_add_test(t, many_are_cooled);
	tcase_add_test(t, both_connect_again);
	tcase_add_test(t, is_not_let_in);
	tcase_add_test(t, a_full_listener_delays_no_other);
	tcase_add_loop_test(t, returns_and_was_never_there, 0, 2);
	tcase_add_test(t, returns_as_another);
	tcase_add_test(t, returns_and_is_still_there);
	tcase_add_loop_test(t, leaves_and_was_never_there, 0, 2);
	tcase_add_test(t, leaves_and_goes_on);
	return suite_run(s);
}
