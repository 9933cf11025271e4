/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * async_event.c - asynchronous events of devices (docs/verbs-states.md, table D).  Helper.
 *
 * Each event is copied and acknowledged at once: destroying the object that it names would wait
 * for that.  So the object may be gone by the time that the event is handled, and is looked for
 * among the existing ones.
 */
#include <string.h>

#include "engine/transport/verbs/dev/dev.h"

static void async_event_handle(struct verbs_dev *dev, enum ibv_event_type type, uint32_t qpn, int port)
{
	switch (type) {
	/* a frame has come, which is handled in ep/endpoint.c (ep_early_frame) */
	case IBV_EVENT_COMM_EST:
		return;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		verbs_dev_users->qp_event(dev, type, qpn);
		return;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_DEVICE_FATAL:
		verbs_dev_removed(dev, vb.ibv_event_type_str(type));
		return;
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		verbs_bufs_low(dev);
		return;
	case IBV_EVENT_SQ_DRAINED:
		return;
	default:
		/*
		 * Events of ports and paths: queue pairs retry by themselves; what they cannot
		 * recover from breaks them.
		 */
		rds_info("the RDMA device %s, port %d: %s", dev->name, port, vb.ibv_event_type_str(type));
		return;
	}
}

static bool async_event_is_qp(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return true;
	default:
		return false;
	}
}

void verbs_dev_async_event(struct rds_helper_event *ev, uint32_t events)
{
	struct verbs_dev *dev = container_of(ev, struct verbs_dev, async_ev);
	struct ibv_async_event said;
	uint32_t qpn;
	int port;

	(void)events;
	verbs_dev_ref(dev);
	while (!dev->dead) {
		errno = 0;
		if (vb.ibv_get_async_event(dev->ctx, &said)) {
			/* the descriptor would stay readable for ever */
			if (errno != EAGAIN && errno != EINTR)
				verbs_dev_removed(dev, strerror(errno));
			break;
		}
		qpn = async_event_is_qp(said.event_type) ? said.element.qp->qp_num : 0;
		port = async_event_is_qp(said.event_type) ? 0 : said.element.port_num;
		vb.ibv_ack_async_event(&said);
		async_event_handle(dev, said.event_type, qpn, port);
	}
	verbs_dev_unref(dev);
}
