/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * keepalive.c - checks that silent peers are still there.
 *
 * A queue pair notices that its peer is gone only when it sends.  So an endpoint that has received
 * nothing for RDS_PRELOAD_KEEPALIVE_MS sends an empty write to the peer, or reads a few bytes of
 * its memory (caps.probe_reads).  The peer's device answers that, and its program never notices
 * it, not even if it is stopped.  If there is no answer, the device reports a completion with an
 * error, which breaks the endpoint as any other error does.  A device that can only probe with
 * reads does not report it, so keepalive_check() has a time limit of its own.
 *
 * The memory that is read is a *window*; both sides tell each other theirs when they connect
 * (cm/private_data.h).  A read of no bytes would need no window, but when such a read has to wait
 * for data that is being sent, the siw of Linux 6.1 answers with as many bytes as it sent last, and
 * that ends the connection.  A window has no content, and the bytes read are not used.
 *
 * One timer serves all endpoints; it is set while any endpoint is up.  The receive side zeroes
 * quiet_since with each frame; the first check after that stores the time in it.  Probes are
 * posted by the thread that may use the send side (verbs_ep_push), never among messages that are
 * still being given to the device.
 */
#include "engine/transport/verbs/ep/ep.h"

#define MS 1000000ull
#define LOOKS 100

/* ---- what is read ---- */

unsigned verbs_keepalive_window_out(const struct verbs_dev *dev, struct verbs_window *wire)
{
	struct verbs_window w = {.len = VERBS_PROBE};

	if (!dev->caps.probe_reads)
		return 0;
	w.addr = (uintptr_t)dev->probed->ours;
	w.key = dev->probed_mr->rkey;
	verbs_window_pack(&w, wire);
	return sizeof(*wire);
}

bool verbs_keepalive_window_in(struct verbs_ep *ep, const struct verbs_cm_ev *ev, unsigned behind)
{
	return !ep->dev->caps.probe_reads || verbs_window_check(ev->data, ev->len, behind, &ep->window);
}

void verbs_keepalive_fill_read(struct verbs_ep *ep, struct ibv_send_wr *wr)
{
	const struct verbs_dev *dev = ep->dev;

	atomic_fetch_add_explicit(&ep->reads, 1, memory_order_relaxed);
	wr->opcode = IBV_WR_RDMA_READ;
	wr->wr.rdma.remote_addr = ep->window.addr;
	wr->wr.rdma.rkey = ep->window.key;
	wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
	wr->sg_list[0] = (struct ibv_sge){
		.addr = (uintptr_t)dev->probed->theirs, .length = VERBS_PROBE, .lkey = dev->probed_mr->lkey};
}

/* ---- when ---- */

static void keepalive_tick(struct rds_timer *tm);

static struct rds_timer timer = {.fn = keepalive_tick};

static uint64_t keepalive_interval(void)
{
	return (uint64_t)rds_options()->keepalive_ms * MS;
}

static void keepalive_arm(void)
{
	rds_timer_need(&timer, os_now_ns() + keepalive_interval() / 2 + MS);
}

/*
 * How long a probe may take on devices that do not report a failure soon: TCP would go on for a
 * quarter of an hour.
 */
static uint64_t keepalive_patience(void)
{
	uint64_t least = rds_patience_ns(RDS_PATIENCE_PROBE);

	return keepalive_interval() > least ? keepalive_interval() : least;
}

/* rx.  One probe at a time. */
static void keepalive_check(struct verbs_ep *ep, uint64_t now)
{
	uint32_t done = atomic_load(&ep->wr_done);
	bool probing = (int32_t)(done - atomic_load(&ep->probe_wr)) < 0 ||
		       (int32_t)(ep->reads_done - atomic_load(&ep->probe_read)) < 0;

	if (!ep->quiet_since) {
		ep->quiet_since = now;
		atomic_store(&ep->probe_wr, done);
		atomic_store(&ep->probe_read, ep->reads_done);
	} else if (probing && ep->dev->caps.probe_reads && now - ep->quiet_since >= keepalive_patience()) {
		verbs_ep_broken(ep, -ETIMEDOUT);
	} else if (!probing && now - ep->quiet_since >= keepalive_interval()) {
		ep->quiet_since = now;
		atomic_store(&ep->probe_due, true);
		ep->head.t->up->push_later(ep->head.conn);
	}
}

/*
 * Handles what has come before it checks: this process may not have looked for long, since it was
 * stopped, or its machine asleep.
 */
static void keepalive_tick(struct rds_timer *tm)
{
	uint64_t now = os_now_ns();
	unsigned looks = LOOKS;
	struct verbs_ep *ep;
	bool any = false;

	(void)tm;
	rx_lock();
	while (looks-- && verbs_ep_progress(verbs_eps.t))
		;
	for (ep = verbs_eps.all; ep; ep = ep->next)
		if (atomic_load(&ep->state) == VERBS_UP) {
			keepalive_check(ep, now);
			any = true;
		}
	rx_unlock();
	if (any)
		keepalive_arm();
}

void verbs_keepalive_need(void)
{
	if (keepalive_interval())
		keepalive_arm();
}

void verbs_keepalive_forget(void)
{
	timer.queued = false;
}
