/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * libs.h - the functions of libibverbs and librdmacm that the transport calls, in one table.
 *
 * The libraries are loaded when an address on an RDMA device is bound, so a machine without them
 * can run everything else.  Tests fill the table with a device of their own (the mock).
 *
 * What verbs.h defines inline (ibv_poll_cq, ibv_post_send, ibv_post_srq_recv, ibv_req_notify_cq)
 * goes through the operations of the context and is called directly; every other function is
 * called as vb.NAME.  Each function keeps the error convention of its library: verbs_err() turns a
 * result into -errno.
 */
#ifndef ENGINE_TRANSPORT_VERBS_DEV_LIBS_H
#define ENGINE_TRANSPORT_VERBS_DEV_LIBS_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#undef ibv_reg_mr

/* X(library, return type, name, parameters) */
#define VERBS_API(X)                                                                                                   \
	X(ibv, int, ibv_fork_init, (void))                                                                             \
	X(ibv, struct ibv_context *, ibv_open_device, (struct ibv_device * dev))                                       \
	X(ibv, int, ibv_close_device, (struct ibv_context * ctx))                                                      \
	X(ibv, int, ibv_query_device, (struct ibv_context * ctx, struct ibv_device_attr * attr))                       \
	X(ibv, struct ibv_pd *, ibv_alloc_pd, (struct ibv_context * ctx))                                              \
	X(ibv, int, ibv_dealloc_pd, (struct ibv_pd * pd))                                                              \
	X(ibv, struct ibv_mr *, ibv_reg_mr, (struct ibv_pd * pd, void *addr, size_t len, int access))                  \
	X(ibv, int, ibv_dereg_mr, (struct ibv_mr * mr))                                                                \
	X(ibv, struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context * ctx))                         \
	X(ibv, int, ibv_destroy_comp_channel, (struct ibv_comp_channel * ch))                                          \
	X(ibv, struct ibv_cq *, ibv_create_cq,                                                                         \
	  (struct ibv_context * ctx, int cqe, void *arg, struct ibv_comp_channel *ch, int vector))                     \
	X(ibv, int, ibv_destroy_cq, (struct ibv_cq * cq))                                                              \
	X(ibv, int, ibv_get_cq_event, (struct ibv_comp_channel * ch, struct ibv_cq * *cq, void **arg))                 \
	X(ibv, void, ibv_ack_cq_events, (struct ibv_cq * cq, unsigned n))                                              \
	X(ibv, struct ibv_srq *, ibv_create_srq, (struct ibv_pd * pd, struct ibv_srq_init_attr * attr))                \
	X(ibv, int, ibv_modify_srq, (struct ibv_srq * srq, struct ibv_srq_attr * attr, int mask))                      \
	X(ibv, int, ibv_destroy_srq, (struct ibv_srq * srq))                                                           \
	X(ibv, int, ibv_query_qp,                                                                                      \
	  (struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask, struct ibv_qp_init_attr *init))                    \
	X(ibv, int, ibv_modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask))                          \
	X(ibv, int, ibv_get_async_event, (struct ibv_context * ctx, struct ibv_async_event * ev))                      \
	X(ibv, void, ibv_ack_async_event, (struct ibv_async_event * ev))                                               \
	X(ibv, const char *, ibv_get_device_name, (struct ibv_device * dev))                                           \
	X(ibv, const char *, ibv_wc_status_str, (enum ibv_wc_status status))                                           \
	X(ibv, const char *, ibv_event_type_str, (enum ibv_event_type type))                                           \
	X(cm, struct rdma_event_channel *, rdma_create_event_channel, (void))                                          \
	X(cm, void, rdma_destroy_event_channel, (struct rdma_event_channel * ch))                                      \
	X(cm, int, rdma_create_id,                                                                                     \
	  (struct rdma_event_channel * ch, struct rdma_cm_id * *id, void *arg, enum rdma_port_space ps))               \
	X(cm, int, rdma_destroy_id, (struct rdma_cm_id * id))                                                          \
	X(cm, int, rdma_bind_addr, (struct rdma_cm_id * id, struct sockaddr * addr))                                   \
	X(cm, int, rdma_resolve_addr,                                                                                  \
	  (struct rdma_cm_id * id, struct sockaddr * src, struct sockaddr * dst, int timeout_ms))                      \
	X(cm, int, rdma_resolve_route, (struct rdma_cm_id * id, int timeout_ms))                                       \
	X(cm, int, rdma_create_qp, (struct rdma_cm_id * id, struct ibv_pd * pd, struct ibv_qp_init_attr * attr))       \
	X(cm, void, rdma_destroy_qp, (struct rdma_cm_id * id))                                                         \
	X(cm, int, rdma_connect, (struct rdma_cm_id * id, struct rdma_conn_param * param))                             \
	X(cm, int, rdma_listen, (struct rdma_cm_id * id, int backlog))                                                 \
	X(cm, int, rdma_accept, (struct rdma_cm_id * id, struct rdma_conn_param * param))                              \
	X(cm, int, rdma_reject, (struct rdma_cm_id * id, const void *data, uint8_t len))                               \
	X(cm, int, rdma_notify, (struct rdma_cm_id * id, enum ibv_event_type event))                                   \
	X(cm, int, rdma_disconnect, (struct rdma_cm_id * id))                                                          \
	X(cm, int, rdma_get_cm_event, (struct rdma_event_channel * ch, struct rdma_cm_event * *ev))                    \
	X(cm, int, rdma_ack_cm_event, (struct rdma_cm_event * ev))                                                     \
	X(cm, int, rdma_set_option, (struct rdma_cm_id * id, int level, int name, void *val, size_t len))              \
	X(cm, __be16, rdma_get_src_port, (struct rdma_cm_id * id))                                                     \
	X(cm, const char *, rdma_event_str, (enum rdma_cm_event_type event))

/* Functions that older libraries lack: NULL there. */
#define VERBS_API_NEWER(X) X(ibv, int, ibv_is_fork_initialized, (void))
#define VERBS_FORK_UNNEEDED 2 /* IBV_FORK_UNNEEDED, which older headers lack, too */

struct verbs_api {
#define X(lib, ret, name, params) ret(*name) params;
	VERBS_API(X)
	VERBS_API_NEWER(X)
#undef X
};
extern struct verbs_api vb;

/*
 * Loads the libraries and fills the table.  0; -ENOENT: no RDMA device on this machine; -ELIBACC: a
 * library is missing (logged).  Once is enough.
 */
int verbs_libs_load(void);

/*
 * -errno of a call that returns 0, a positive errno (verbs), a negative errno (some providers), or
 * -1 and errno (cm).
 */
static inline int verbs_err(int ret)
{
	if (ret == -1)
		return errno ? -errno : -EIO;
	return ret > 0 ? -ret : ret;
}

#endif
