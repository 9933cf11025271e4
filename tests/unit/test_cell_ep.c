/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_cell_ep.c - endpoints on cells (shm/cell_ep.c, cell_recv.c, cell_watch.c): both ends are in this
 * process, and the test is the engine and the helper.
 */
#include <endian.h>
#include <pthread.h>
#include <semaphore.h>

#include "engine/conn/conn.h"
#include "engine/node/registry_impl.h"
#include "engine/sys/patience.h"
#include "engine/transport/shm/cell_ep.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

#define K CELL_CREDITS

/* ---- the helper ---- */

static uint64_t later_ns;
uint64_t __real_os_now_ns(void);
uint64_t __wrap_os_now_ns(void);
uint64_t __wrap_os_now_ns(void)
{
	return __real_os_now_ns() + later_ns;
}

static struct rds_timer *timers[4];
static bool alive, opens;
static void (*when_asked)(void);
static unsigned asked;

static void timer_note(struct rds_timer *tm)
{
	for (unsigned i = 0; i < 4; i++)
		if (!timers[i] || timers[i] == tm) {
			timers[i] = tm;
			return;
		}
}

void __wrap_rds_timer_set(struct rds_timer *tm, uint64_t due_ns);
void __wrap_rds_timer_set(struct rds_timer *tm, uint64_t due_ns)
{
	if (due_ns < os_now_ns() + 1100 * 1000000ull && tm->fn)
		timer_note(tm);
}

void __wrap_rds_timer_need(struct rds_timer *tm, uint64_t due_ns);
void __wrap_rds_timer_need(struct rds_timer *tm, uint64_t due_ns)
{
	__wrap_rds_timer_set(tm, due_ns);
}

static void tick(void)
{
	struct rds_timer *due[4];

	memcpy(due, timers, sizeof(due));
	memset(timers, 0, sizeof(timers));
	for (unsigned i = 0; i < 4 && due[i]; i++)
		due[i]->fn(due[i]);
}

bool __wrap_registry_proc_alive(struct registry *reg, uint32_t slot, const struct rds_procid *id);
bool __wrap_registry_proc_alive(struct registry *reg, uint32_t slot, const struct rds_procid *id)
{
	(void)reg, (void)slot, (void)id;
	if (when_asked)
		when_asked();
	return alive;
}

static void (*when_unlocked)(void); /* rx, and that was not biased */

void __real_rds_unlock_slow(rds_lock_t *l);
void __wrap_rds_unlock_slow(rds_lock_t *l);
void __wrap_rds_unlock_slow(rds_lock_t *l)
{
	void (*fn)(void) = l == &rds_lock_rx ? when_unlocked : NULL;

	if (fn)
		when_unlocked = NULL;
	__real_rds_unlock_slow(l);
	if (fn)
		fn();
}

static enum shm_wake_what woken; /* how, the last time */
static bool no_leader;		 /* nobody finds its socket */

int __wrap_shm_wake_socket_send_to(const struct rds_procid *id, uint64_t key, enum shm_wake_what what);
int __wrap_shm_wake_socket_send_to(const struct rds_procid *id, uint64_t key, enum shm_wake_what what)
{
	(void)id, (void)key;
	asked += what == SHM_WAKE_LOOK;
	woken = what;
	return what == SHM_WAKE_LEADER && no_leader ? -ECONNREFUSED : 0;
}

static bool no_memory; /* once */

void *__real_realloc(void *p, size_t len);
void *__wrap_realloc(void *p, size_t len);
void *__wrap_realloc(void *p, size_t len)
{
	if (!no_memory)
		return __real_realloc(p, len);
	no_memory = false;
	return NULL;
}

static bool no_place; /* for another number of a cell, once */

void *__real_malloc(size_t len);
void *__wrap_malloc(size_t len);
void *__wrap_malloc(size_t len)
{
	if (!no_place || len != sizeof(struct cell_more))
		return __real_malloc(len);
	no_place = false;
	return NULL;
}

/* ---- the engine ---- */

static struct rds_conn *near, *far;
static struct rds_ep *near_ep, *far_ep;
static uint64_t got[64], verdict_at;
static unsigned n_got, n_writable, n_down;
static enum rds_rx_verdict verdict;
static bool acks, awaits, was_gone;
static int why_down;
static void (*in_message)(void); /* before that verdict, once */

/* Of two more connections, each of which a thread asks for: both threads are there at the same time. */
static struct rds_conn *others[2];
static sem_t asks[2], goes[2];
static _Atomic unsigned other_got;
static _Thread_local unsigned who_meets;

static enum rds_rx_verdict on_message(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	if (conn == others[0] || conn == others[1]) {
		other_got++;
		shm_cell_transport.ops->ack(ep, rx->hdr.seq);
		return RDS_RX_DONE;
	}
	ck_assert_ptr_eq(conn, far);
	if (verdict != RDS_RX_DONE && rx->hdr.seq == verdict_at) {
		void (*fn)(void) = in_message;

		in_message = NULL;
		if (fn)
			fn();
		return verdict;
	}
	ck_assert_uint_eq(*(const uint64_t *)rx->data, rx->hdr.seq);
	ck_assert_uint_lt(n_got, 64);
	got[n_got++] = rx->hdr.seq;
	if (acks)
		shm_cell_transport.ops->ack(ep, rx->hdr.seq);
	return RDS_RX_DONE;
}

static void on_down(struct rds_conn *conn, struct rds_ep *ep, int why, bool gone)
{
	(void)conn;
	n_down++;
	why_down = why;
	was_gone = gone;
	shm_cell_transport.ops->close(ep);
	if (ep == near_ep)
		near_ep = NULL;
	else
		far_ep = NULL;
}

static void on_writable(struct rds_conn *conn)
{
	ck_assert_ptr_eq(conn, near);
	n_writable++;
}

static bool on_awaited(struct rds_conn *conn)
{
	(void)conn;
	return awaits;
}

static void far_open(void);
static unsigned n_opened, n_outgrown;
static bool meets;

/* Beside: a send of the engine's own has opened it meanwhile. */
static bool opens_beside;

static struct rds_conn *other_opened(struct rds_ep *ep, const struct rds_conn_id *id, int *why)
{
	const unsigned i = id->laddr.s6_addr[15] - 20;

	*why = -EEXIST;
	sem_post(&asks[who_meets]);
	sem_wait(&goes[who_meets]);
	if (others[i])
		return NULL;
	rx_lock();
	others[i] = calloc(1, sizeof(struct rds_conn));
	others[i]->id = *id;
	((struct rds_ep_head *)ep)->conn = others[i];
	rx_unlock();
	return others[i];
}

static struct rds_conn *on_opened(struct rds_transport *t, struct rds_ep *ep, const struct rds_conn_id *id, int *why)
{
	(void)t;
	if (id->laddr.s6_addr[15] >= 20)
		return other_opened(ep, id, why);
	ck_assert_int_eq(memcmp(&id->laddr, &far->id.laddr, sizeof(id->laddr)), 0);
	n_opened++;
	*why = far_ep ? -EEXIST : -EALREADY;
	if (!opens || far_ep)
		return NULL;
	if (opens_beside) {
		far_open();
		*why = -EEXIST;
		return NULL;
	}
	rx_lock();
	((struct rds_ep_head *)ep)->conn = far;
	rx_unlock();
	far_ep = ep;
	return far;
}

static void on_meet_later(struct rds_transport *t)
{
	ck_assert_ptr_eq(t, &rds_shm.t);
	meets = true;
}

static void on_outgrown(struct rds_conn *conn)
{
	ck_assert_ptr_eq(conn, near);
	n_outgrown++;
}

static const struct rds_conn_id *on_id(const struct rds_conn *conn)
{
	return &conn->id;
}

static const struct rds_transport_up up = {.id = on_id,
					   .message = on_message,
					   .down = on_down,
					   .opened = on_opened,
					   .meet_later = on_meet_later,
					   .outgrown = on_outgrown,
					   .writable = on_writable,
					   .awaited = on_awaited};

static void far_open(void)
{
	ck_assert_int_eq(shm_open_cells(&rds_shm.t, &far->id, far, &far_ep), 0);
}

static struct rds_conn *conn_new(unsigned char here, unsigned char there)
{
	struct rds_conn *conn = calloc(1, sizeof(*conn));

	conn->id.laddr.s6_addr[15] = here;
	conn->id.faddr.s6_addr[15] = there;
	conn->id.peer = *registry_self(rds_node_registry);
	conn->id.peer_slot = registry_self_slot(rds_node_registry);
	return conn;
}

static struct shm_line *own(void)
{
	return registry_line(rds_node_registry, registry_self_slot(rds_node_registry));
}

static void joins(void)
{
	registry_setup();
	rds_node_registry = open_ok();
	ck_assert_int_eq(shm_cells_listen(), 0);
	rds_shm.t.up = &up;
	alive = opens = acks = true;
	atomic_store(&own()->attention, RDS_ATT_POLLING);
	near = conn_new(1, 2);
	far = conn_new(2, 1);
	ck_assert_int_eq(shm_open_cells(&rds_shm.t, &near->id, near, &near_ep), 0);
}

static void leaves(void)
{
	shm_cells_close();
	registry_close(rds_node_registry);
	registry_teardown();
}

/* ---- steps ---- */

static int send_one(uint64_t seq)
{
	struct rds_wire_hdr hdr = {.sequence = htobe64(seq), .len = htobe32(sizeof(seq))};
	struct iovec iov = {&seq, sizeof(seq)};
	uint64_t pos;
	int err = shm_cell_transport.ops->send(near_ep, &hdr, &iov, sizeof(seq), &pos);

	if (err)
		return err;
	ck_assert_uint_eq(*(const uint64_t *)shm_cell_transport.ops->retained(near_ep, pos), seq);
	shm_cell_transport.ops->flush(near_ep, false);
	return 0;
}

static void sends(uint64_t from, uint64_t to)
{
	for (; from <= to; from++)
		ck_assert_int_eq(send_one(from), 0);
}

static bool drain(void)
{
	bool moved;

	rx_lock();
	moved = shm_cells_drain();
	rx_unlock();
	if (meets) {
		meets = false;
		shm_cells_meet(&rds_shm.t);
	}
	return moved;
}

static uint64_t acked(void)
{
	return shm_cell_transport.ops->acked(near_ep);
}

static void in_order(unsigned n)
{
	ck_assert_uint_eq(n_got, n);
	for (unsigned i = 0; i < n; i++)
		ck_assert_uint_eq(got[i], i + 1);
}

/* ---- tests ---- */

START_TEST(stranger)
{
	opens_beside = _i;
	sends(1, 3);
	ck_assert(drain());
	ck_assert_uint_eq(n_opened, 1);
	in_order(3);
	ck_assert_uint_eq(acked(), 3);
	for (uint64_t i = 4; i < 40; i++) {
		sends(i, i);
		drain();
		ck_assert_uint_eq(acked(), i);
	}
	in_order(39);
	ck_assert_uint_eq(n_opened, 1);
	tick();
	ck_assert_uint_eq(n_down, 0);
}
END_TEST

/* The sender was killed, and another process has its slot already, before the receiver looks. */
START_TEST(stranger_without_slot)
{
	_Atomic uint64_t *id = rds_node_registry->f->proc[registry_self_slot(rds_node_registry)].id;
	uint64_t was = atomic_load(id);

	sends(1, 3);
	rx_lock();
	shm_cells_drain();
	rx_unlock();
	atomic_store(id, was + 1);
	drain();
	atomic_store(id, was);
	ck_assert_uint_eq(n_opened, 1);
	in_order(3);
}
END_TEST

/* The program opens it itself, while an older cell waits for the engine: nothing is overtaken. */
START_TEST(stranger_and_open)
{
	sends(1, 1);
	rx_lock();
	shm_cells_drain();
	rx_unlock();
	far_open();
	sends(2, 2);
	rx_lock();
	shm_cells_drain();
	rx_unlock();
	ck_assert_uint_eq(n_got, 0);
	shm_cells_meet(&rds_shm.t);
	in_order(2);
}
END_TEST

START_TEST(stranger_refused)
{
	opens = false;
	sends(1, 2);
	drain();
	ck_assert_uint_eq(n_got, 0);
	ck_assert_uint_eq(acked(), 0);
	ck_assert_int_eq(send_one(3), -ENOTCONN);
	tick();
	ck_assert_uint_eq(n_down, 1);
	ck_assert_int_eq(why_down, -ECONNRESET);
	ck_assert(!was_gone);
	ck_assert(!drain());
}
END_TEST

/* A cell is refused. Then the program opens the connection itself: what was sent later is refused, too. */
START_TEST(refused_then_opened)
{
	const struct cell_ep *ep = (struct cell_ep *)near_ep;
	struct shm_cell *cell;
	uint32_t n;

	opens = false;
	sends(1, 2);
	drain();
	far_open();
	ck_assert_int_eq(shm_cell_get(&n), 0); /* one that the sender has sent before it notices */
	cell = shm_cell_at(n);
	*cell = *shm_cell_at(cell_list_get(&ep->own, 1));
	cell->hdr.sequence = htobe64(3);
	ck_assert(shm_cell_push(n, ep->slot));
	drain();
	ck_assert_uint_eq(n_got, 0);
	ck_assert_uint_eq(atomic_load(&cell->state), SHM_CELL_REFUSED);
	ck_assert_int_eq(send_one(4), -ENOTCONN);
}
END_TEST

/* A second message under way finds no place: it waits, and the first is not lost. */
START_TEST(no_place_sender)
{
	far_open();
	sends(1, 1);
	no_place = true;
	ck_assert_int_eq(send_one(2), -EAGAIN);
	drain();
	in_order(1);
	sends(2, 3);
	drain();
	in_order(3);
}
END_TEST

/* The receiver cannot have it: none that comes later is delivered, and the sender still has all. */
START_TEST(no_place_receiver)
{
	far_open();
	acks = false;
	sends(1, 3);
	no_place = true;
	drain();
	in_order(0);
	ck_assert_uint_eq(acked(), 0);
	ck_assert_int_eq(send_one(4), -ENOTCONN);
	tick();
	ck_assert_uint_eq(n_down, 2);
}
END_TEST

/* An endpoint that rests has no cell, and gets one again. */
START_TEST(rests)
{
	const struct cell_ep *ep = (struct cell_ep *)near_ep;
	uint32_t first, second;

	far_open();
	sends(1, 1);
	first = cell_list_get(&ep->own, 0);
	shm_cell_transport.ops->rest(near_ep); /* not yet */
	ck_assert_uint_eq(cell_list_get(&ep->own, 0), first);
	sends(2, 2);
	drain();
	ck_assert_uint_eq(acked(), 2);
	shm_cell_transport.ops->rest(near_ep);
	ck_assert_uint_eq(cell_list_get(&ep->own, 0), SHM_CELLS_MAX);
	ck_assert_uint_eq(ep->first, 0); /* the helper may look in the middle of the next send */
	ck_assert_uint_eq(ep->next, 0);
	ck_assert_int_eq(shm_cell_get(&second), 0);
	ck_assert_uint_eq(second, first); /* another endpoint can have it */
	sends(3, 3);
	ck_assert_uint_ne(cell_list_get(&ep->own, 0), first);
	drain();
	in_order(3);
}
END_TEST

static void *meets_thread(void *arg)
{
	who_meets = *(unsigned *)arg;
	shm_cells_meet(&rds_shm.t);
	return NULL;
}

static struct rds_ep *other_sends(unsigned char i)
{
	struct rds_conn *other = conn_new((unsigned char)(10 + i), (unsigned char)(20 + i));
	struct rds_ep *ep;

	ck_assert_int_eq(shm_open_cells(&rds_shm.t, &other->id, other, &ep), 0);
	near_ep = ep;
	sends(1, 1);
	rx_lock();
	shm_cells_drain();
	rx_unlock();
	return ep;
}

/* The first thread is done with its stranger before the second has got an answer: that one is not refused. */
START_TEST(two_threads_meet)
{
	unsigned who[2] = {0, 1};
	pthread_t threads[2];
	struct rds_ep *second;

	for (unsigned i = 0; i < 2; i++)
		ck_assert(sem_init(&asks[i], 0, 0) == 0 && sem_init(&goes[i], 0, 0) == 0);
	other_sends(0);
	pthread_create(&threads[0], NULL, meets_thread, &who[0]);
	sem_wait(&asks[0]);
	second = other_sends(1);
	pthread_create(&threads[1], NULL, meets_thread, &who[1]);
	sem_wait(&asks[1]);
	sem_post(&goes[1]);
	sem_wait(&asks[1]); /* it has got the first connection, and asks for the second */
	sem_post(&goes[0]);
	pthread_join(threads[0], NULL);
	ck_assert_uint_eq(atomic_load(&other_got), 1);
	sem_post(&goes[1]);
	pthread_join(threads[1], NULL);
	ck_assert_uint_eq(atomic_load(&other_got), 2);
	ck_assert_uint_eq(shm_cell_transport.ops->acked(second), 1);
}
END_TEST

/* By what it sends, and how fast. */
START_TEST(outgrown)
{
	unsigned char bytes[SHM_CELL_PAYLOAD + 1] = {0};
	struct rds_wire_hdr hdr = {.sequence = htobe64(1), .len = htobe32(sizeof(bytes))};
	struct iovec iov = {bytes, sizeof(bytes)};
	uint64_t pos;

	far_open();
	ck_assert_int_eq(shm_cell_transport.ops->send(near_ep, &hdr, &iov, sizeof(bytes), &pos), -EMSGSIZE);
	n_got = 0;
	for (uint64_t i = 1; i < 1000 && !n_outgrown; i++) {
		sends(i, i);
		drain();
		n_got = 0;
	}
	ck_assert_uint_eq(n_outgrown, 1);
}
END_TEST

START_TEST(later)
{
	static const enum rds_rx_verdict verdicts[] = {RDS_RX_LATER, RDS_RX_PAUSE};

	far_open();
	verdict = verdicts[_i];
	verdict_at = 2;
	sends(1, 3);
	drain();
	in_order(1);
	ck_assert(!drain()); /* nobody stays awake for it */
	sends(4, 4);
	drain();
	in_order(1);
	verdict = RDS_RX_DONE;
	ck_assert(!drain());
	if (_i == 0) { /* the next arrival is enough */
		sends(5, 5);
		drain();
		in_order(5);
		return;
	}
	sends(5, 5);
	drain();
	in_order(1);
	shm_cells_sweep();
	ck_assert(shm_cells_tick_came());
	drain();
	in_order(5);
	ck_assert_uint_eq(acked(), 5);
}
END_TEST

/* The next message, and one of which it is not known whose it is. */
static struct rds_ep *unknown_ep;

static void more_comes(void)
{
	struct rds_ep *ep = near_ep;

	sends(3, 3);
	near_ep = unknown_ep;
	sends(1, 1);
	near_ep = ep;
	ck_assert(!shm_cells_catch_up(true, 1));
}

/* What waits is on one list only, whatever comes before it is known that it has to wait. */
START_TEST(later_and_more_comes)
{
	far_open();
	verdict = RDS_RX_LATER;
	verdict_at = 2;
	in_message = more_comes;
	ck_assert_int_eq(shm_open_cells(&rds_shm.t, &near->id, near, &unknown_ep), 0);
	sends(1, 2);
	rx_lock();
	ck_assert(shm_cells_drain());
	in_order(1);
	verdict = RDS_RX_DONE;
	rx_unlock();
	ck_assert(meets);
	drain();
	in_order(3);
	ck_assert_uint_eq(n_opened, 1);
}
END_TEST

START_TEST(room)
{
	far_open();
	acks = false;
	sends(1, K);
	ck_assert_int_eq(send_one(K + 1), -EAGAIN);
	drain();
	in_order(K);
	ck_assert_uint_eq(acked(), 0); /* the engine has not said so */
	ck_assert_int_eq(send_one(K + 1), -EAGAIN);
	ck_assert(!shm_cell_transport.ops->want_room(near_ep, 0));
	drain();
	ck_assert_uint_eq(n_writable, 0);
	atomic_store(&own()->want_came, 1); /* for another endpoint */
	drain();
	ck_assert_uint_eq(n_writable, 0);
	rx_lock();
	shm_cell_transport.ops->ack(far_ep, 3);
	rx_unlock();
	drain();
	ck_assert_uint_eq(n_writable, 1);
	ck_assert_uint_eq(atomic_load(&own()->want), 0);
	ck_assert_uint_eq(acked(), 3);
	sends(K + 1, K + 3);
	ck_assert_int_eq(send_one(K + 4), -EAGAIN);
	ck_assert(shm_cell_transport.ops->want_room(near_ep, 0));
}
END_TEST

/* Whoever sleeps is woken, and once. For rings the helper has to be, if the leader sleeps on its socket. */
START_TEST(who_is_woken)
{
	static const enum rds_attention who[] = {RDS_ATT_HELPER, RDS_ATT_LEADER, RDS_ATT_NAMED};
	static struct shm_inbox inbox;

	rds_shm.inbox = &inbox;
	far_open();
	for (unsigned i = 0; i < 3; i++) {
		shm_attention(&rds_shm.t, who[i]);
		ck_assert_uint_eq(atomic_load(&inbox.attention) & SHM_ATT_WHO,
				  who[i] == RDS_ATT_NAMED ? RDS_ATT_HELPER : who[i]);
		woken = 0;
		sends(3 * i + 1, 3 * i + 1);
		ck_assert_int_eq(woken, who[i] == RDS_ATT_NAMED ? SHM_WAKE_LEADER : SHM_WAKE_RUN);
		woken = 0;
		sends(3 * i + 2, 3 * i + 3);
		ck_assert_int_eq(woken, 0);
		drain();
	}
	in_order(9);
	rds_shm.inbox = NULL;
}
END_TEST

/* The leader's socket is in another network namespace: then the helper is woken, as always. */
START_TEST(leader_not_found)
{
	static struct shm_inbox inbox;

	rds_shm.inbox = &inbox;
	no_leader = true;
	far_open();
	shm_attention(&rds_shm.t, RDS_ATT_NAMED);
	sends(1, 1);
	ck_assert_int_eq(woken, SHM_WAKE_RUN);
	ck_assert_uint_eq(atomic_load(&own()->attention) & SHM_ATT_WHO, RDS_ATT_LAZY);
	rds_shm.inbox = NULL;
}
END_TEST

/* One message at a time needs one place at each end, however many there are. */
START_TEST(one_at_a_time)
{
	far_open();
	for (unsigned i = 1; i <= 40; i++) {
		sends(i, i);
		drain();
		ck_assert_uint_eq(acked(), i);
	}
	ck_assert_ptr_null(((struct cell_ep *)near_ep)->own.more);
	ck_assert_ptr_null(((struct cell_ep *)far_ep)->got.more);
	in_order(40);
}
END_TEST

/* A sender that has more under way than it may, and headers that cannot be. */
START_TEST(hostile)
{
	const struct cell_ep *ep = (struct cell_ep *)near_ep;
	struct shm_cell *cell;
	uint32_t n;

	far_open();
	sends(1, 1);
	drain();
	acks = false;
	for (unsigned i = 0; i < (_i ? 1 : K + 1); i++) {
		ck_assert_int_eq(shm_cell_get(&n), 0);
		cell = shm_cell_at(n);
		cell->to = ep->to;
		cell->conn = ep->here;
		cell->hdr = (struct rds_wire_hdr){.sequence = htobe64(i + 2), .len = htobe32(8)};
		if (_i == 1)
			cell->hdr.len = htobe32(SHM_CELL_PAYLOAD + 1);
		if (_i == 2) /* all that comes later would be taken for copies */
			cell->hdr.sequence = htobe64((uint64_t)1 << 40);
		*(uint64_t *)cell->payload = i + 2;
		ck_assert(shm_cell_push(n, ep->slot));
	}
	drain();
	in_order(1);
	ck_assert_uint_eq(atomic_load(&cell->state), SHM_CELL_REFUSED);
	tick();
	ck_assert_uint_eq(n_down, 1);
	ck_assert_int_eq(why_down, -EPROTO);
	ck_assert_ptr_null(far_ep);
	ck_assert_uint_eq(acked(), 1);
}
END_TEST

/* Another process of this user writes over what is under way: the sender has it, and knows that it has to. */
START_TEST(written_over)
{
	struct reg_common *common = registry_line(rds_node_registry, 0);
	const struct cell_ep *ep = (struct cell_ep *)near_ep;
	uint32_t n;

	far_open();
	sends(1, 3);
	drain();
	ck_assert_uint_eq(acked(), 3);
	sends(4, 5);
	n = cell_list_get(&ep->own, 0);
	if (!_i)
		atomic_store(&common->slab[n / SHM_SLAB_CELLS].owner, 0);
	drain();
	if (_i)
		shm_cell_at(n)->hdr.sequence = htobe64(100);
	ck_assert_uint_eq(acked(), 3);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_uint_eq(*(const uint64_t *)shm_cell_transport.ops->retained(near_ep, i), 4 + i);
	tick();
	ck_assert_ptr_null(near_ep);
	ck_assert_int_eq(why_down, -ECONNRESET);
}
END_TEST

/* It has ended: what it had sent is delivered, also a cell that it had not put on the stack. */
START_TEST(sender_ends)
{
	struct shm_line *line = own();
	uint64_t stack;

	far_open();
	sends(1, 2);
	stack = atomic_load(&line->cells);
	sends(3, 4);
	atomic_store(&line->cells, stack);
	alive = false;
	tick();
	tick();
	in_order(4);
	ck_assert_uint_eq(n_down, 2); /* both ends are of the process that has ended */
	ck_assert(was_gone);
	ck_assert_int_eq(why_down, -EPIPE);
}
END_TEST

/* What is not TAKEN is not accepted. */
START_TEST(receiver_ends)
{
	far_open();
	acks = false;
	sends(1, 4);
	drain();
	rx_lock();
	shm_cell_transport.ops->ack(far_ep, 2);
	rx_unlock();
	shm_cell_transport.ops->keep(near_ep, true);
	ck_assert_uint_eq(acked(), 2);
	sends(5, 5);
	shm_cell_transport.ops->close(far_ep);
	ck_assert_uint_eq(acked(), 2);
	shm_cell_transport.ops->close(near_ep);
	ck_assert_uint_eq(*(const uint64_t *)shm_cell_transport.ops->retained(near_ep, 4), 5);
	shm_cell_transport.ops->keep(near_ep, false);
	alive = false;
	tick();
	ck_assert_uint_eq(n_down, 0);
}
END_TEST

static void others_come(unsigned count)
{
	const struct cell_ep *ep = (struct cell_ep *)near_ep;
	uint32_t n;

	while (count--) {
		ck_assert_int_eq(shm_cell_get(&n), 0);
		shm_cell_at(n)->to = ep->to;
		shm_cell_at(n)->conn = 0x7000;
		ck_assert(shm_cell_push(n, ep->slot));
	}
}

/* There is no memory to keep a cell until the engine knows its connection: none is delivered behind that gap. */
START_TEST(stranger_no_memory)
{
	sends(1, 1);
	others_come(15);
	rx_lock();
	shm_cells_drain();
	rx_unlock();
	sends(2, 3);
	no_memory = true;
	drain();
	ck_assert(!no_memory);
	ck_assert_uint_eq(n_got, 0);
	tick();
	ck_assert_int_eq(why_down, -ECONNRESET);
}
END_TEST

static void room_is_answered(void)
{
	when_asked = NULL;
	atomic_store(&own()->want_came, 1);
	drain();
}

/* While the helper looks at one that is closed, a thread that receives finds it among those that want room. */
START_TEST(closed_and_wanted)
{
	far_open();
	sends(1, K);
	shm_cell_transport.ops->want_room(near_ep, 0);
	shm_cell_transport.ops->close(near_ep);
	drain();
	when_asked = room_is_answered;
	tick();
	ck_assert_ptr_null(when_asked);
	ck_assert_uint_eq(n_down, 0);
}
END_TEST

static void *passes(void *arg)
{
	rx_lock();
	rx_unlock();
	return arg;
}

/* As soon as rx is given up; and the lock is not biased, or that would not be noticed here. */
static void receives_then(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, passes, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	when_unlocked = room_is_answered;
}

/* A thread receives in the middle of a close, or of the last keep(): what the endpoint has had comes back once. */
START_TEST(closed_while_another_receives)
{
	struct rds_wire_hdr hdr = {.sequence = htobe64(1), .len = htobe32(sizeof(uint64_t))};
	const struct iovec iov = {&(uint64_t){1}, sizeof(uint64_t)};
	struct rds_ep *ep = near_ep;
	uint64_t pos;
	uint32_t a, b;

	far_open();
	ck_assert_int_eq(shm_cell_transport.ops->send(ep, &hdr, &iov, sizeof(uint64_t), &pos), 0);
	drain();
	shm_cell_transport.ops->want_room(ep, 0);
	if (_i) {
		shm_cell_transport.ops->keep(ep, true);
		shm_cell_transport.ops->close(ep);
	}
	receives_then();
	if (_i)
		shm_cell_transport.ops->keep(ep, false);
	else
		shm_cell_transport.ops->close(ep);
	ck_assert_ptr_null(when_unlocked);
	tick();
	ck_assert_int_eq(shm_cell_get(&a), 0);
	ck_assert_int_eq(shm_cell_get(&b), 0);
	ck_assert_uint_ne(a, b);
}
END_TEST

/* The helper has read `first` before a send began anew, and `next` afterwards. */
START_TEST(look_between)
{
	struct cell_ep *ep = (struct cell_ep *)near_ep;
	uint32_t n;

	ck_assert_int_eq(shm_cell_get(&n), 0);
	far_open();
	sends(1, 1);
	drain();
	atomic_store(&ep->first, 3);
	tick();
	ck_assert_uint_eq(n_down, 0);
}
END_TEST

/* A cell that nobody has seen makes the helper ask a peer that sleeps, after a tick. */
START_TEST(wake_up_lost)
{
	far_open();
	sends(1, 1);
	atomic_store(&own()->attention, RDS_ATT_HELPER);
	ck_assert_uint_eq(asked, 0);
	tick();
	ck_assert_uint_eq(asked, 0); /* it may be about to look */
	tick();
	ck_assert_uint_eq(asked, 1);
	tick();
	ck_assert_uint_eq(asked, 2);
	tick();
	ck_assert_uint_eq(asked, 2);
	drain();
	tick();
	ck_assert_uint_eq(asked, 2);
	ck_assert_uint_eq(n_down, 0);
}
END_TEST

/* A peer that was woken, and has no processor yet, is not asked: in a crowd that would be all of them. */
START_TEST(awake_without_processor)
{
	unsigned i;

	far_open();
	sends(1, 1);
	atomic_store(&own()->attention, RDS_ATT_LAZY);
	for (i = 0; i < 8; i++)
		tick();
	ck_assert_uint_eq(asked, 0);
	later_ns = 400 * 1000000ull; /* or its word has been overwritten */
	for (i = 0; i < 16; i++)
		tick();
	ck_assert_uint_ge(asked, 1);
	ck_assert_uint_eq(n_down, 0);
}
END_TEST

/* It cannot read its stack, and has given that up. */
START_TEST(no_listener)
{
	sends(1, 1);
	atomic_store(&own()->owner, 0);
	tick();
	ck_assert_uint_eq(n_down, 1);
	ck_assert_int_eq(why_down, -ECONNRESET);
	ck_assert(!was_gone);
}
END_TEST

/* It lives, and does not look: the endpoint is given up, and what it has sent is kept. */
START_TEST(never_seen)
{
	sends(1, 1);
	tick();
	tick();
	later_ns = (rds_patience_ms(RDS_PATIENCE_CELL) - 1000) * 1000000;
	tick();
	ck_assert_uint_eq(n_down, 0);
	later_ns += 2000 * 1000000ull;
	tick();
	ck_assert_uint_eq(n_down, 1);
	ck_assert_int_eq(why_down, -ETIMEDOUT);
	ck_assert(!was_gone);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cell_ep");
	TCase *tc = suite_case(s, "ep", joins, leaves);

	tcase_add_loop_test(tc, stranger, 0, 2);
	tcase_add_test(tc, stranger_without_slot);
	tcase_add_test(tc, outgrown);
	tcase_add_test(tc, stranger_and_open);
	tcase_add_test(tc, stranger_refused);
	tcase_add_test(tc, stranger_no_memory);
	tcase_add_test(tc, closed_and_wanted);
	tcase_add_loop_test(tc, closed_while_another_receives, 0, 2);
	tcase_add_test(tc, look_between);
	tcase_add_test(tc, refused_then_opened);
	tcase_add_test(tc, no_place_sender);
	tcase_add_test(tc, no_place_receiver);
	tcase_add_test(tc, rests);
	tcase_add_test(tc, two_threads_meet);
	tcase_add_loop_test(tc, later, 0, 2);
	tcase_add_test(tc, later_and_more_comes);
	tcase_add_test(tc, room);
	tcase_add_test(tc, who_is_woken);
	tcase_add_test(tc, leader_not_found);
	tcase_add_test(tc, one_at_a_time);
	tcase_add_loop_test(tc, hostile, 0, 3);
	tcase_add_loop_test(tc, written_over, 0, 2);
	tcase_add_test(tc, sender_ends);
	tcase_add_test(tc, receiver_ends);
	tcase_add_test(tc, wake_up_lost);
	tcase_add_test(tc, awake_without_processor);
	tcase_add_test(tc, never_seen);
	tcase_add_test(tc, no_listener);
	return suite_run(s);
}
