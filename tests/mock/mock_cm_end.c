/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock_cm_end.c - rdma_cm of the mock, second half: what is answered to a request, and how
 * connections and ids end.
 */
#include "tests/mock/mock_impl.h"

#define PRIVATE_REPLY 196
#define PRIVATE_REJECT 148

static bool is_iwarp(const struct mock_id *id)
{
	return id->dev && id->dev->mode == MOCK_IWARP;
}

static struct mock_qp *qp_of(const struct mock_id *id)
{
	return (struct mock_qp *)id->id.qp;
}

/* InfiniBand gives a reason (28: the consumer did it, 8: no listener), iWARP an errno. */
int mock_reject_status(const struct mock_id *id, bool nobody)
{
	if (is_iwarp(id))
		return -ECONNREFUSED;
	return nobody ? 8 : 28;
}

void mock_id_end(struct mock_id *id, enum rdma_cm_event_type type, int status, const void *data, size_t len)
{
	struct mock_cm_ev *e;

	if (!id->peer || id->peer->said_down)
		return;
	id->peer->said_down = true;
	e = mock_cm_send(id, id->peer, type, status);
	if (type == RDMA_CM_EVENT_REJECTED)
		mock_cm_data(e, data, len, is_iwarp(id) ? 0 : PRIVATE_REJECT);
}

static bool connected(const struct mock_id *id)
{
	return id->state == ID_UP || id->state == ID_ACCEPTED || (id->state == ID_CONNECTING && id->said_up);
}

void mock_id_break(struct mock_id *id)
{
	struct mock_id *peer = id->peer;

	if (id->id.qp)
		mock_qp_error(qp_of(id));
	if (connected(id) && !id->said_down) {
		id->said_down = true;
		mock_cm_say(id, RDMA_CM_EVENT_DISCONNECTED, 0);
	}
	if (!peer || !connected(peer))
		return;
	if (peer->id.qp && is_iwarp(peer) && !id->dev->cut && !peer->dev->cut)
		mock_qp_error(qp_of(peer));
	mock_id_end(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
}

/* ---- answers ---- */

static int check_accept(struct mock_id *id, const struct rdma_conn_param *param)
{
	if (id->state == ID_DOWN && is_iwarp(id))
		return ECONNRESET;
	if (id->state != ID_REQUEST || param->private_data_len > PRIVATE_REPLY)
		return EINVAL;
	if (!id->id.qp) {
		mock_fault("rdma_accept without a queue pair");
		return EINVAL;
	}
	if (id->id.qp->state == IBV_QPS_ERR)
		return EINVAL;
	if (!id->peer && is_iwarp(id))
		return ECONNRESET;
	return 0;
}

static void reply(struct mock_id *id, const struct rdma_conn_param *param)
{
	bool iw = is_iwarp(id);
	struct mock_cm_ev *e;

	e = mock_cm_send(id, id->peer, iw ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	e->ev.param.conn = *param;
	mock_cm_data(e, param->private_data, param->private_data_len, iw ? 0 : PRIVATE_REPLY);
	if (iw) {
		id->peer->said_up = id->said_up = true;
		mock_cm_say(id, RDMA_CM_EVENT_ESTABLISHED, 0);
	}
}

static int do_accept(struct rdma_cm_id *ibid, struct rdma_conn_param *param)
{
	MOCK_LOCK;
	struct mock_id *id = (struct mock_id *)ibid;
	int err;

	MOCK_FAILS_MINUS(rdma_accept);
	err = check_accept(id, param);
	if (err)
		return mock_minus(err);
	id->state = ID_ACCEPTED;
	id->rnr_retry = param->rnr_retry_count;
	ibid->qp->state = IBV_QPS_RTS;
	if (id->peer) {
		qp_of(id)->rnr_retry = id->peer->rnr_retry;
		reply(id, param);
	}
	mock_moved();
	return 0;
}

static int do_reject(struct rdma_cm_id *ibid, const void *data, uint8_t len)
{
	MOCK_LOCK;
	struct mock_id *id = (struct mock_id *)ibid;

	MOCK_FAILS_MINUS(rdma_reject);
	if (id->state != ID_REQUEST || len > PRIVATE_REJECT)
		return mock_minus(EINVAL);
	id->state = ID_DOWN;
	mock_id_end(id, RDMA_CM_EVENT_REJECTED, mock_reject_status(id, false), data, len);
	mock_moved();
	return 0;
}

/* A device reports that something has come before the peer's message did that it is ready. */
static int notify(struct rdma_cm_id *ibid, enum ibv_event_type event)
{
	MOCK_LOCK;
	struct mock_id *id = (struct mock_id *)ibid;

	MOCK_FAILS_MINUS(rdma_notify);
	if (event != IBV_EVENT_COMM_EST || is_iwarp(id))
		return mock_minus(EINVAL);
	if (id->state == ID_ACCEPTED && !id->said_up) {
		id->said_up = true;
		mock_cm_say(id, RDMA_CM_EVENT_ESTABLISHED, 0);
	}
	mock_moved();
	return 0;
}

/* ---- ends ---- */

static int do_disconnect(struct rdma_cm_id *ibid)
{
	MOCK_LOCK;
	struct mock_id *id = (struct mock_id *)ibid;

	MOCK_FAILS_MINUS(rdma_disconnect);
	if (id->state != ID_UP && id->state != ID_ACCEPTED && id->state != ID_DOWN)
		return mock_minus(EINVAL);
	if (id->state == ID_UP || is_iwarp(id))
		mock_id_break(id);
	else if (ibid->qp)
		mock_qp_error(qp_of(id));
	mock_moved();
	return 0;
}

/* The peer of an id that goes learns of it. */
static void leave(struct mock_id *id)
{
	struct mock_id *peer = id->peer;

	if (!peer)
		return;
	if (connected(id) && (is_iwarp(id) || id->state == ID_UP))
		mock_id_break(id);
	else if (id->state == ID_REQUEST || id->state == ID_ACCEPTED)
		mock_id_end(id, RDMA_CM_EVENT_REJECTED, mock_reject_status(id, false), NULL, 0);
	else if (id->state == ID_CONNECTING && !is_iwarp(id))
		mock_id_end(id, RDMA_CM_EVENT_REJECTED, mock_reject_status(id, true), NULL, 0);
	mock_cm_forget(id); /* its own DISCONNECTED */
}

/* Unread requests for a listener that goes. */
static void refuse_children(struct mock_id *listener)
{
	struct mock_id *id, *next;

	for (id = TAILQ_FIRST(&mock_ids); id; id = next) {
		next = TAILQ_NEXT(id, link);
		if (id->listener != listener)
			continue;
		mock_cm_forget(id);
		leave(id);
		mock_id_free(id);
	}
}

static struct {
	pthread_t test;
	unsigned next, n;
	bool go_on;
	pthread_cond_t go;
} kept = {.go = PTHREAD_COND_INITIALIZER};

void mock_destroy_hang(unsigned n)
{
	MOCK_LOCK;

	kept.test = pthread_self();
	kept.next = n;
	kept.go_on = false;
}

void mock_destroy_go(void)
{
	pthread_mutex_lock(&mock_mutex);
	kept.next = 0;
	kept.go_on = true;
	pthread_cond_broadcast(&kept.go);
	mock_await_none(&kept.n);
	pthread_mutex_unlock(&mock_mutex);
}

unsigned mock_destroys_hanging(void)
{
	MOCK_LOCK;

	return kept.n;
}

static void wait_for_kernel(void)
{
	if (!kept.next || pthread_equal(kept.test, pthread_self()))
		return;
	kept.next--;
	kept.n++;
	while (!kept.go_on)
		pthread_cond_wait(&kept.go, &mock_mutex);
	kept.n--;
}

static int destroy_id(struct rdma_cm_id *ibid)
{
	MOCK_LOCK;
	struct mock_id *id = (struct mock_id *)ibid;

	MOCK_FAILS_MINUS(rdma_destroy_id);
	wait_for_kernel();
	if (ibid->qp) {
		mock_fault("rdma_destroy_id with a queue pair");
		return mock_minus(EBUSY);
	}
	refuse_children(id);
	mock_cm_forget(id);
	if (!mock_all_acked(&id->events, "rdma_cm id"))
		return mock_minus(EBUSY);
	leave(id);
	mock_id_free(id);
	mock_unmade(MOCK_ID);
	mock_moved();
	return 0;
}

void mock_cm_end_install(void)
{
	vb.rdma_accept = do_accept;
	vb.rdma_reject = do_reject;
	vb.rdma_notify = notify;
	vb.rdma_disconnect = do_disconnect;
	vb.rdma_destroy_id = destroy_id;
}
