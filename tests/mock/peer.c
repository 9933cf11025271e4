/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * peer.c - the scripted process at the other end (peer.h).  Receives have their place's index for
 * wr_id, sends PEER_RECVS and more.
 */
#include "tests/mock/peer.h"

#include <arpa/inet.h>
#include <check.h>
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "engine/transport/verbs/cm/private_data.h"

void peer_address(struct sockaddr_storage *sa, const char *ip, uint16_t port)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)sa;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)sa;

	memset(sa, 0, sizeof(*sa));
	if (inet_pton(AF_INET, ip, &sin->sin_addr) == 1) {
		sin->sin_family = AF_INET;
		sin->sin_port = htons(port);
		return;
	}
	ck_assert_int_eq(inet_pton(AF_INET6, ip, &sin6->sin6_addr), 1);
	sin6->sin6_family = AF_INET6;
	sin6->sin6_port = htons(port);
}

void peer_init(struct peer *p, unsigned host)
{
	unsigned before = mock.host;

	memset(p, 0, sizeof(*p));
	p->rnr_retry = 7;
	mock.host = host;
	p->events = vb.rdma_create_event_channel();
	mock.host = before;
	ck_assert_ptr_nonnull(p->events);
	ck_assert_int_eq(fcntl(p->events->fd, F_SETFL, O_NONBLOCK), 0);
}

void peer_listen(struct peer *p, const char *ip, uint16_t port)
{
	struct sockaddr_storage sa;

	peer_address(&sa, ip, port);
	ck_assert_int_eq(vb.rdma_create_id(p->events, &p->listener, p, RDMA_PS_TCP), 0);
	ck_assert_int_eq(vb.rdma_bind_addr(p->listener, (struct sockaddr *)&sa), 0);
	ck_assert_int_eq(vb.rdma_listen(p->listener, 16), 0);
}

/* ---- queues ---- */

static void device(struct peer *p)
{
	struct ibv_context *ctx = p->id->verbs;
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = PEER_RECVS, .max_sge = 1}};

	if (p->pd)
		return;
	p->pd = vb.ibv_alloc_pd(ctx);
	p->channel = vb.ibv_create_comp_channel(ctx);
	p->cq = vb.ibv_create_cq(ctx, 4 * PEER_SENDS, p, p->channel, 0);
	p->srq = vb.ibv_create_srq(p->pd, &attr);
	p->mem = calloc(PEER_RECVS + PEER_SENDS, PEER_BUF);
	p->mr = vb.ibv_reg_mr(p->pd, p->mem, (size_t)(PEER_RECVS + PEER_SENDS) * PEER_BUF,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	ck_assert(p->pd && p->channel && p->cq && p->srq && p->mr);
	ck_assert_int_eq(fcntl(p->channel->fd, F_SETFL, O_NONBLOCK), 0);
}

void peer_post(struct peer *p, unsigned recvs)
{
	static unsigned next;
	struct ibv_recv_wr *bad;
	struct ibv_sge sge;
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1};

	for (; recvs; recvs--) {
		wr.wr_id = next++ % PEER_RECVS;
		sge = (struct ibv_sge){(uintptr_t)p->mem + wr.wr_id * PEER_BUF, PEER_BUF, p->mr->lkey};
		ck_assert_int_eq(ibv_post_srq_recv(p->srq, &wr, &bad), 0);
	}
}

void peer_qp(struct peer *p, unsigned recvs)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = PEER_SENDS, .max_send_sge = 1}};

	device(p);
	attr.send_cq = attr.recv_cq = p->cq;
	attr.srq = p->srq;
	ck_assert_int_eq(vb.rdma_create_qp(p->id, p->pd, &attr), 0);
	peer_post(p, recvs);
}

void peer_send(struct peer *p, const void *bytes, size_t len, unsigned flags)
{
	unsigned slot = PEER_RECVS + p->sent++ % PEER_SENDS;
	struct ibv_sge sge = {(uintptr_t)p->mem + slot * PEER_BUF, (uint32_t)len, p->mr->lkey};
	struct ibv_send_wr *bad;
	struct ibv_send_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};

	ck_assert_uint_le(len, PEER_BUF);
	memcpy(p->mem + slot * PEER_BUF, bytes, len);
	wr.send_flags = flags;
	ck_assert_int_eq(ibv_post_send(p->id->qp, &wr, &bad), 0);
}

bool peer_poll(struct peer *p, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(p->cq, 1, wc);

	ck_assert_int_ge(n, 0);
	return n;
}

const unsigned char *peer_recv(struct peer *p, size_t *len)
{
	struct ibv_wc wc;

	ck_assert(peer_poll(p, &wc));
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
	*len = wc.byte_len;
	return p->mem + wc.wr_id * PEER_BUF;
}

/* ---- connecting ---- */

void peer_ack(struct peer *p)
{
	if (p->ev)
		ck_assert_int_eq(vb.rdma_ack_cm_event(p->ev), 0);
	p->ev = NULL;
}

struct rdma_cm_event *peer_try_event(struct peer *p)
{
	peer_ack(p);
	if (vb.rdma_get_cm_event(p->events, &p->ev))
		p->ev = NULL;
	return p->ev;
}

struct rdma_cm_event *peer_event(struct peer *p, enum rdma_cm_event_type type)
{
	mock_run();
	ck_assert_msg(peer_try_event(p), "no event, %s expected", vb.rdma_event_str(type));
	ck_assert_str_eq(vb.rdma_event_str(p->ev->event), vb.rdma_event_str(type));
	return p->ev;
}

/* What is said in the end.  Its window is the last buffer for sends. */
static void say(struct peer *p, struct rdma_conn_param *param, const void *data, uint8_t len)
{
	static unsigned char bytes[256];
	struct verbs_window w = {(uintptr_t)p->mem + (PEER_RECVS + PEER_SENDS - 1) * PEER_BUF, p->mr->rkey,
				 VERBS_PROBE};

	param->private_data = data;
	param->private_data_len = len;
	if (p->id->verbs->device->transport_type != IBV_TRANSPORT_IWARP || p->window == PEER_NO_WINDOW ||
	    (len != sizeof(struct verbs_request) && len != sizeof(struct verbs_answer)))
		return;
	if (p->window == PEER_WINDOW_SMALL)
		w.len--;
	else if (p->window == PEER_WINDOW_NOWHERE)
		w.addr = 0;
	else if (p->window == PEER_WINDOW_END)
		w.addr = UINT64_MAX - 4;
	else if (p->window == PEER_WINDOW_WRONG)
		w.key++;
	w = (struct verbs_window){htobe64(w.addr), htobe32(w.key), htobe32(w.len)};
	memcpy(bytes, data, len);
	memcpy(bytes + len, &w, sizeof(w));
	param->private_data = bytes;
	param->private_data_len = (uint8_t)(len + sizeof(w) - (p->window == PEER_WINDOW_CUT));
}

void peer_connect(struct peer *p, const char *from, const char *to, uint16_t port, const void *data, uint8_t len)
{
	struct sockaddr_storage src, dst;
	struct rdma_conn_param param = {0};

	peer_address(&src, from, 0);
	peer_address(&dst, to, port);
	ck_assert_int_eq(vb.rdma_create_id(p->events, &p->id, p, RDMA_PS_TCP), 0);
	ck_assert_int_eq(vb.rdma_resolve_addr(p->id, (struct sockaddr *)&src, (struct sockaddr *)&dst, 1000), 0);
	peer_event(p, RDMA_CM_EVENT_ADDR_RESOLVED);
	ck_assert_int_eq(vb.rdma_resolve_route(p->id, 1000), 0);
	peer_event(p, RDMA_CM_EVENT_ROUTE_RESOLVED);
	peer_ack(p);
	peer_qp(p, p->pd ? 0 : PEER_RECVS / 2);
	say(p, &param, data, len);
	param.rnr_retry_count = p->rnr_retry;
	ck_assert_int_eq(vb.rdma_connect(p->id, &param), 0);
}

void peer_accept(struct peer *p, const void *data, uint8_t len, unsigned recvs)
{
	struct rdma_conn_param param = {0};

	p->id = p->ev->id;
	peer_ack(p);
	peer_qp(p, recvs);
	say(p, &param, data, len);
	param.rnr_retry_count = p->rnr_retry;
	ck_assert_int_eq(vb.rdma_accept(p->id, &param), 0);
}

void peer_reject(struct peer *p, const void *data, uint8_t len)
{
	struct rdma_cm_id *id = p->ev->id;

	ck_assert_int_eq(vb.rdma_reject(id, data, len), 0);
	peer_ack(p);
	ck_assert_int_eq(vb.rdma_destroy_id(id), 0);
}

/* ---- ends ---- */

void peer_drop_id(struct peer *p)
{
	peer_ack(p);
	if (!p->id)
		return;
	if (p->id->qp)
		vb.rdma_destroy_qp(p->id);
	ck_assert_int_eq(vb.rdma_destroy_id(p->id), 0);
	p->id = NULL;
}

void peer_drop_listener(struct peer *p)
{
	peer_ack(p);
	if (p->listener)
		ck_assert_int_eq(vb.rdma_destroy_id(p->listener), 0);
	p->listener = NULL;
}

void peer_end(struct peer *p)
{
	peer_drop_id(p);
	peer_drop_listener(p);
	if (p->pd) {
		ck_assert_int_eq(vb.ibv_destroy_srq(p->srq), 0);
		ck_assert_int_eq(vb.ibv_destroy_cq(p->cq), 0);
		ck_assert_int_eq(vb.ibv_destroy_comp_channel(p->channel), 0);
		ck_assert_int_eq(vb.ibv_dereg_mr(p->mr), 0);
		ck_assert_int_eq(vb.ibv_dealloc_pd(p->pd), 0);
		free(p->mem);
	}
	vb.rdma_destroy_event_channel(p->events);
	memset(p, 0, sizeof(*p));
}
