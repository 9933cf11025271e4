/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * connect_thread.c - rdma_connect() without waiting for it.
 *
 * On InfiniBand rdma_connect() sends a message and returns.  siw connects a TCP socket inside it,
 * which takes as long as the peer's host does not answer, two minutes by default, and the helper
 * has other work.  So on such devices (caps.connect_blocks) the call is made by a thread of its
 * own.  The thread touches nothing but its call, and ends afterwards.
 *
 * An owner with a running call keeps id and queue pair (`running` is true) until done() is called
 * or verbs_cm_connect_finish() has returned.  Hosts that do not answer must not accumulate
 * threads: while a call to such a host hangs, another is made every few seconds only.
 *
 * The end of the process ends the call, too.  If that happens when TCP has just connected, siw
 * closes the connection at once, and the peer's siw, which has not accepted it yet, loses its
 * listener (listen_lost.c).  So who ends the process, or has it execute another program, first waits
 * for the calls to return.  It need not wait for the answers: for these the kernel waits, before it
 * closes such a connection.
 */
#include <sched.h>

#include "engine/transport/verbs/cm/cm.h"

#define PAUSE_NS (4 * 1000000000ull)
#define CALLS_MAX 256u
#define EXIT_NAP_NS 200000

static struct verbs_cm_connect *calls; /* running calls; helper */
static unsigned ncalls;
/* the helper and the threads write these, any thread reads them at the end of the process */
static _Atomic unsigned ncalling;      /* calls that have not returned */
static _Atomic uint64_t called_ns;     /* when the last of them was made */
static _Atomic uint64_t exit_until_ns; /* no call is made before that: the process ends */

bool verbs_cm_connect_finish(struct verbs_cm_connect *c)
{
	struct verbs_cm_connect **p;

	if (!c->running)
		return false;
	/* the thread has made its call: only its last few instructions are left */
	while (!atomic_load(&c->left))
		sched_yield();
	rds_timer_cancel(&c->timer);
	for (p = &calls; *p != c; p = &(*p)->next)
		;
	*p = c->next;
	ncalls--;
	c->running = false;
	return true;
}

static void connect_returned(struct rds_timer *tm)
{
	struct verbs_cm_connect *c = container_of(tm, struct verbs_cm_connect, timer);

	verbs_cm_connect_finish(c);
	c->done(c, c->err);
}

static void *connect_thread(void *arg)
{
	struct verbs_cm_connect *c = arg;

	rds_thread_record_refuse();
	errno = 0;
	c->err = verbs_err(vb.rdma_connect(c->cm, &c->param));
	atomic_fetch_sub(&ncalling, 1);
	rds_timer_set(&c->timer, os_now_ns());
	rds_helper_thread_end();
	atomic_store(&c->left, true); /* the last access: from now on the call may be freed */
	return NULL;
}

static bool connect_too_many(const struct in6_addr *to, uint64_t now)
{
	const uint64_t hangs = rds_patience_ns(RDS_PATIENCE_CM_HANGS);
	const struct verbs_cm_connect *c;

	if (ncalls >= CALLS_MAX)
		return true;
	for (c = calls; c; c = c->next)
		if (rds_ip_equal(&c->to, to) && now - c->since > hangs && now - c->since < hangs + PAUSE_NS)
			return true;
	return false;
}

/* Either the end of the process sees this call, or the call sees that the process ends. */
static int connect_thread_start(struct verbs_cm_connect *c)
{
	int err = 0;

	atomic_store(&called_ns, c->since);
	atomic_fetch_add(&ncalling, 1);
	if (c->since < atomic_load(&exit_until_ns))
		err = -EAGAIN;
	if (!err)
		err = rds_helper_thread_start(connect_thread, c);
	if (err)
		atomic_fetch_sub(&ncalling, 1);
	return err == -EALREADY ? -EAGAIN : err;
}

_Static_assert(offsetof(struct verbs_cm_connect, window) ==
		       offsetof(struct verbs_cm_connect, wire) + sizeof(struct verbs_request),
	       "said in one piece");
_Static_assert(sizeof(struct verbs_request) + sizeof(struct verbs_window) <= VERBS_PRIVATE, "all of it is looked at");

int verbs_cm_connect(struct verbs_cm_connect *c, const struct verbs_dev *dev, struct rdma_cm_id *cm,
		     const struct in6_addr *to)
{
	uint64_t now = os_now_ns();
	int err;

	c->param.private_data = &c->wire;
	c->param.private_data_len = (uint8_t)(sizeof(c->wire) + c->window_len);
	if (!dev->caps.connect_blocks)
		return verbs_err(vb.rdma_connect(cm, &c->param));
	if (connect_too_many(to, now))
		return -ETIMEDOUT;
	c->cm = cm;
	c->to = *to;
	c->since = now;
	c->timer.fn = connect_returned;
	atomic_store(&c->left, false);
	err = connect_thread_start(c);
	if (err)
		return err;
	c->running = true;
	c->next = calls;
	calls = c;
	ncalls++;
	return 0;
}

/*
 * A call that takes longer hangs: the peer's host does not answer, and has no connection to lose.
 * If the process does not end, as its exec fails, calls are made again after the same time.
 */
void verbs_cm_connect_exit_wait(void)
{
	uint64_t most = rds_patience_ns(RDS_PATIENCE_CM_EXIT);

	atomic_store(&exit_until_ns, os_now_ns() + most);
	while (atomic_load(&ncalling) && os_now_ns() < atomic_load(&called_ns) + most)
		os_nap_ns(EXIT_NAP_NS);
}

void verbs_cm_connect_forget(void)
{
	calls = NULL;
	ncalls = 0;
	atomic_store(&ncalling, 0);
	atomic_store(&exit_until_ns, 0);
}
