/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * shm_wake_helper.h - both ends of a ring in one process.  Every step of the two is a call, so a
 * test can choose each order of events: above all those that once lost a wake-up.
 */
#ifndef TESTS_UNIT_SHM_WAKE_HELPER_H
#define TESTS_UNIT_SHM_WAKE_HELPER_H

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/transport/shm/shm.h"
#include "tests/slow.h"
#include "tests/unit/suite.h"

static unsigned taken, writable;
static enum rds_rx_verdict verdict = RDS_RX_DONE;

static inline enum rds_rx_verdict up_message(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	(void)conn, (void)ep, (void)rx;
	taken++;
	return verdict;
}

static inline void up_writable(struct rds_conn *conn)
{
	(void)conn;
	writable++;
}

static inline void up_pressure(void)
{
}

static inline void up_push_later(struct rds_conn *conn)
{
	(void)conn;
}

static const struct rds_transport_up up = {
	.message = up_message, .writable = up_writable, .pressure = up_pressure, .push_later = up_push_later};

/*
 * One process: its wake-up page, its end of a ring.  The side that acts is put into rds_shm for
 * that time.
 */
struct side {
	struct shm shm;
	struct shm_peer other;
	struct shm_ep ep;
	int leader[2], helper[2], ctl; /* what wakes it, our end of the control socket */
	struct shm_inbox inbox;
};

static struct side us, they;
/* Timers stay behind: nobody runs them here but the tests themselves. */
static inline void become(struct side *s, struct side *from)
{
	rds_timer_cancel(&rds_shm.recheck_timer);
	rds_timer_cancel(&rds_shm.sweep_timer);
	if (from)
		from->shm = rds_shm;
	rds_shm = s->shm;
}

static inline void knows(struct shm_peer *p, struct side *s)
{
	shm_peer_init(p);
	atomic_store(&p->leader.fd.n[0], s->leader[1]);
	atomic_store(&p->helper.fd.n[0], s->helper[1]);
	p->leader.has_reader = p->helper.has_reader = true;
	p->inbox = &s->inbox;
}

static inline void pipes_of(struct side *s, struct side *other, int ctl)
{
	ck_assert_int_eq(os_pipe(s->leader, O_NONBLOCK), 0);
	ck_assert_int_eq(os_pipe(s->helper, O_NONBLOCK), 0);
	knows(&other->other, s);
	atomic_store(&other->other.fd, ctl);
	other->ep.peer = &other->other;
	other->ep.there = &s->inbox;
}

static inline void side_init(struct side *s, struct shm_rings *rings, unsigned out)
{
	unsigned char *data = (unsigned char *)rings + SHM_CTL_BYTES;

	memset(s, 0, sizeof(*s));
	s->shm.t.up = &up;
	s->shm.inbox = &s->inbox;
	s->shm.need_bell = true;
	s->shm.announced = RDS_ATT_HELPER;
	atomic_store(&s->inbox.attention, RDS_ATT_HELPER);
	s->shm.peers = &s->other;
	s->other.eps = &s->ep;
	s->ep.head.t = &s->shm.t;
	s->ep.size = SHM_RING_MIN;
	s->ep.tx = &rings->ctl[out];
	s->ep.rx = &rings->ctl[!out];
	s->ep.tx_data = data + (out ? SHM_RING_MIN : 0);
	s->ep.rx_data = data + (out ? 0 : SHM_RING_MIN);
	s->ep.up = true;
	become(s, NULL);
	shm_recheck_init();
	ck_assert_int_eq(shm_bell_add(&s->ep), 0);
	s->shm = rds_shm;
	s->ep.head.t = &rds_shm.t;
}

static struct shm_rings *rings;

static inline void setup(void)
{
	int ctl[2];

	os_process_start();
	taken = writable = 0;
	rings = calloc(1, SHM_CTL_BYTES + 2 * (size_t)SHM_RING_MIN);
	ck_assert_ptr_nonnull(rings);
	atomic_store(&rings->ctl[0].need_bell, 1);
	atomic_store(&rings->ctl[1].need_bell, 1);
	side_init(&us, rings, 0);
	side_init(&they, rings, 1);
	us.ep.bell_there = they.ep.bell_here;
	they.ep.bell_there = us.ep.bell_here;
	ck_assert_int_eq(os_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ctl), 0);
	us.ctl = ctl[0];
	they.ctl = ctl[1];
	pipes_of(&us, &they, ctl[1]);
	pipes_of(&they, &us, ctl[0]);
	become(&us, NULL);
}

static inline void teardown(void)
{
	free(us.ep.slots);
	free(they.ep.slots);
	free(rings);
}

/*
 * A message from the one that is at it: what it wants of room, so that the peer has something to
 * acknowledge.
 */
static inline int give(struct side *s, size_t len)
{
	static char bytes[SHM_RING_MIN];
	struct rds_hdr hdr = {.seq = 1, .len = (uint32_t)len, .sport = 1, .dport = 2};
	struct iovec iov = {.iov_base = bytes, .iov_len = len};
	struct rds_wire_hdr wire;
	uint64_t pos;

	rds_wire_hdr_encode(&hdr, &wire, false);
	return shm_ring_send((struct rds_ep *)&s->ep, &wire, &iov, len, &pos);
}

static inline void flush(struct side *s)
{
	shm_flush((struct rds_ep *)&s->ep, false);
}

static inline void wish(struct side *s)
{
	shm_want_room((struct rds_ep *)&s->ep, 0);
}

/* ---- who is woken ---- */

static inline bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return os_poll(&p, 1, 0) == 1;
}

static inline uint32_t who(const struct side *s)
{
	return atomic_load(&s->inbox.attention) & SHM_ATT_WHO;
}

static inline void announce(struct side *s, enum rds_attention a)
{
	become(s, NULL);
	shm_attention(&rds_shm.t, a);
	s->shm = rds_shm;
}

/* They send us something. */
static inline void they_send(void)
{
	become(&they, NULL);
	ck_assert_int_eq(give(&they, 100), 0);
	flush(&they);
	they.shm = rds_shm;
}

static inline bool we_look(void)
{
	bool moved;

	become(&us, NULL);
	moved = shm_progress(&rds_shm.t);
	us.shm = rds_shm;
	return moved;
}

static inline TCase *case_of(Suite *s, const char *name)
{
	TCase *t = tcase_create(name);

	tcase_add_checked_fixture(t, setup, teardown);
	suite_add_tcase(s, t);
	return t;
}

#endif
