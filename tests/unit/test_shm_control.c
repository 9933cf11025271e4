/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shm_control.c - what is said on a control socket that is full (transport/shm/control.c): all
 * of it, in order, later.  And what is still received when it has said that a connection is closed
 * (connect.c).  And what is not a packet of this protocol.
 *
 * The peer is the other end of a socket pair; that there is room again is told by a call, as the
 * helper's event would.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/transport/shm/shm.h"
#include "tests/unit/suite.h"

#define MANY 2000 /* more than a socket takes */

int __real_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags);
int __wrap_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags);

static int refusal; /* what each send fails with; 0: it is sent */

int __wrap_os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags)
{
	return refusal ? refusal : __real_os_pass_send(fd, buf, len, fds, nfds, flags);
}

static struct shm_peer peer;
static int other;

static void setup(void)
{
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	memset(&peer, 0, sizeof(peer));
	atomic_store(&peer.fd, fds[0]);
	other = fds[1];
}

static void teardown(void)
{
	shm_ctl_drop(&peer);
	os_close(peer.fd);
	if (other >= 0)
		os_close(other);
}

static struct shm_ctl_msg number(uint64_t n)
{
	return (struct shm_ctl_msg){.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_REPLY, .cookie = n};
}

static int say(uint64_t n)
{
	struct shm_ctl_msg msg = number(n);

	return shm_ctl_queue(&peer, &msg);
}

static int try(uint64_t n)
{
	struct shm_ctl_msg msg = number(n);

	return shm_ctl_try(&peer, &msg, NULL, 0);
}

/* How many lie there, numbered from `first` on; up to `most`. */
static unsigned hear(uint64_t first, unsigned most)
{
	struct shm_ctl_msg msg;
	int fds[OS_PASS_MAX];
	unsigned n, nfds;
	ssize_t len;

	for (n = 0; n < most; n++) {
		len = shm_ctl_recv(other, &msg, fds, &nfds);
		if (len == -EAGAIN)
			break;
		ck_assert_int_eq(len, sizeof(msg));
		ck_assert_uint_eq(msg.cookie, first + n);
		ck_assert_uint_eq(nfds, 0);
	}
	return n;
}

/* ---- what is not valid ---- */

static FILE *lines;

static bool is_said(const char *what)
{
	char line[1024];
	bool said = false;

	rewind(lines);
	while (fgets(line, sizeof(line), lines))
		said |= strstr(line, what) != NULL;
	return said;
}

/* Its packets may be shorter or longer.  What is too short for a version tells none. */
START_TEST(test_another_version)
{
	static const size_t lens[] = {sizeof(struct shm_ctl_msg), sizeof(struct shm_ctl_msg) - 8,
				      sizeof(struct shm_ctl_msg) + 8, 8, 7};
	struct {
		struct shm_ctl_msg msg;
		char more[8];
	} packet = {.msg = {.magic = SHM_MAGIC, .version = SHM_VERSION - 1}};
	struct shm_ctl_msg got;
	int fds[OS_PASS_MAX];
	unsigned nfds;

	lines = tmpfile();
	ck_assert_ptr_nonnull(lines);
	ck_assert_int_eq(dup2(fileno(lines), 2), 2);
	ck_assert_int_eq(os_send(peer.fd, &packet, lens[_i], 0), lens[_i]);
	ck_assert_int_eq(shm_ctl_recv(other, &got, fds, &nfds), -EPROTO);
	ck_assert(is_said("use the same librdspreload.so") == (lens[_i] >= 8));
}
END_TEST

START_TEST(test_not_a_packet)
{
	struct shm_ctl_msg msg = number(0);
	size_t len = _i ? sizeof(msg) : sizeof(msg) - 8;
	int fds[OS_PASS_MAX];
	unsigned nfds;

	msg.magic += (uint32_t)_i;
	ck_assert_int_eq(os_send(peer.fd, &msg, len, 0), len);
	ck_assert_int_eq(shm_ctl_recv(other, &msg, fds, &nfds), -EPROTO);
}
END_TEST

/* ---- all of it, in order ---- */

START_TEST(test_all_arrives_in_order)
{
	unsigned n, heard, round;

	for (n = 0; n < MANY; n++)
		ck_assert_int_eq(say(n), 0);
	ck_assert_ptr_nonnull(peer.ctl_queue);
	for (heard = 0, round = 0; heard < MANY; round++) {
		n = hear(heard, MANY);
		ck_assert_uint_gt(n, 0);
		heard += n;
		ck_assert_int_eq(shm_ctl_flush(&peer), 0);
	}
	ck_assert_uint_gt(round, 1);
	ck_assert_ptr_null(peer.ctl_queue);
	ck_assert_uint_eq(peer.ctl_nqueued, 0);
	ck_assert_int_eq(try(MANY), 0);
	ck_assert_uint_eq(hear(MANY, 2), 1);
}
END_TEST

/* There may be room again already, and the event for that not have come yet. */
START_TEST(test_nothing_overtakes)
{
	unsigned n, heard;

	for (n = 0; try(n) == 0; n++)
		;
	ck_assert_int_eq(try(n), -EAGAIN);
	ck_assert_int_eq(say(n), 0);
	heard = hear(0, n);
	ck_assert_uint_eq(heard, n);
	ck_assert_int_eq(try(n + 1), -EAGAIN);
	ck_assert_int_eq(say(n + 1), 0);
	ck_assert_uint_eq(hear(n, 1), 0);
	ck_assert_int_eq(shm_ctl_flush(&peer), 0);
	ck_assert_uint_eq(hear(n, 3), 2);
}
END_TEST

/*
 * It may be about to become cold, and has said so: that is still to be read.  (Linux before 6.2 throws
 * it away with ECONNREFUSED.  Then the hang-up that follows is the end of the session.)
 */
START_TEST(test_hang_up_is_judged_later)
{
	static const int told[] = {-EPIPE, -ECONNRESET, -ECONNREFUSED};

	refusal = told[_i];
	ck_assert_int_eq(say(0), 0);
	ck_assert_int_eq(say(1), 0);
	ck_assert_int_eq(shm_ctl_flush(&peer), 0);
	ck_assert_uint_eq(peer.ctl_nqueued, 2);
	refusal = 0; /* on the next socket */
	ck_assert_int_eq(shm_ctl_flush(&peer), 0);
	ck_assert_uint_eq(hear(0, 3), 2);
}
END_TEST

START_TEST(test_what_is_kept_is_bounded)
{
	unsigned n;

	for (n = 0; n < 100000 && say(n) == 0; n++)
		;
	ck_assert_uint_gt(n, 2 * 1024); /* a REPLY and a CLOSE for each connection */
	ck_assert_uint_lt(n, 10000);
	ck_assert_int_eq(say(n), -ENOBUFS);
	shm_ctl_drop(&peer);
	ck_assert_uint_eq(peer.ctl_nqueued, 0);
}
END_TEST

/*
 * No error: what the peer had said before is to be read first, and it may say that it has only given
 * the socket up.  So all is kept until then.
 */
START_TEST(test_hang_up)
{
	unsigned n;

	for (n = 0; _i && n < MANY; n++)
		ck_assert_int_eq(say(n), 0);
	os_close(other);
	other = -1;
	ck_assert_int_eq(try(n), _i ? -EAGAIN : -EPIPE);
	n = peer.ctl_nqueued;
	ck_assert_int_eq(say(n), 0);
	ck_assert_int_eq(shm_ctl_flush(&peer), 0);
	ck_assert_uint_eq(peer.ctl_nqueued, n + 1);
	ck_assert_int_eq(try(n), -EAGAIN);
}
END_TEST

/* ---- closed by a peer that lives ---- */

#define ENDLESS 1000 /* messages: as good as */

static unsigned taken, came_down;
static unsigned char *their_data;

/* As its sender would, without a wake-up. */
static void publish(struct shm_ring_ctl *ctl)
{
	uint64_t tail = atomic_load(&ctl->tail);
	struct shm_rec *rec = (struct shm_rec *)shm_ring_at(ctl, their_data, SHM_RING_MIN, tail);
	struct rds_hdr hdr = {.seq = 1 + tail / SHM_LINE, .sport = 1, .dport = 2};

	rec->len = SHM_LINE;
	rec->kind = SHM_REC_MSG;
	rds_wire_hdr_encode(&hdr, &rec->hdr, false);
	atomic_store(&ctl->tail, tail + SHM_LINE);
}

static enum rds_rx_verdict up_message(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	(void)conn, (void)rx;
	if (++taken < ENDLESS)
		publish(((struct shm_ep *)ep)->rx);
	return RDS_RX_DONE;
}

static void up_evacuate(struct rds_conn *conn, struct rds_ep *ep)
{
	(void)conn, (void)ep;
}

static void up_down(struct rds_conn *conn, struct rds_ep *ep, int why, bool peer_gone)
{
	(void)conn, (void)ep, (void)why, (void)peer_gone;
	came_down++;
}

/*
 * The peer goes on publishing, each time that we look at what it has published.  What came after
 * its last packet is not waited for.
 */
START_TEST(test_close_comes_to_an_end)
{
	static const struct rds_transport_up up = {.message = up_message, .evacuate = up_evacuate, .down = up_down};
	struct shm_ring_ctl ctl[2];
	struct shm_ep ep = {.head.t = &rds_shm.t, .size = SHM_RING_MIN, .tx = &ctl[0], .rx = &ctl[1], .up = true};

	memset(ctl, 0, sizeof(ctl));
	os_process_start();
	rds_shm.t.up = &up;
	their_data = calloc(1, SHM_RING_MIN);
	ck_assert_ptr_nonnull(their_data);
	ep.rx_data = their_data;
	publish(&ctl[1]);
	publish(&ctl[1]);
	shm_ep_down(&ep, -ECONNRESET, _i);
	ck_assert_uint_eq(taken, 2);
	ck_assert_uint_eq(came_down, 1);
	free(ep.slots);
	free(their_data);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm_control");
	TCase *t = tcase_create("control");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, test_another_version, 0, 5);
	tcase_add_loop_test(t, test_not_a_packet, 0, 2);
	tcase_add_test(t, test_all_arrives_in_order);
	tcase_add_test(t, test_nothing_overtakes);
	tcase_add_loop_test(t, test_hang_up_is_judged_later, 0, 3);
	tcase_add_test(t, test_what_is_kept_is_bounded);
	tcase_add_loop_test(t, test_hang_up, 0, 2); /* with or without earlier ones */
	/* ... and by one that is said to have ended */
	tcase_add_loop_test(t, test_close_comes_to_an_end, 0, 2);
	suite_add_tcase(s, t);
	return suite_run(s);
}
