/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op_device.h - operations that devices carry out, without a processor of the target.
 *
 * The life of a region:
 *
 *   served      by the target's engine at first (op_serve.c): to register memory with a device
 *               costs as much as copying it
 *   advertised  registered with the device, and its key sent to the initiator, once enough of it
 *               has been served (mr_device.c, at the target)
 *   used        by the device from then on (op_device.c, at the initiator), if the operation keeps
 *               its order that way, and the device can take it at once
 *   revoked     when it is freed: its initiators are told and acknowledge that they use it no
 *               longer, and the device forgets it before the call returns
 *
 * An operation that cannot go by the device goes by the engine, always.  What one side knows of the
 * other ends with the endpoint.
 */
#ifndef ENGINE_RDMA_OP_DEVICE_H
#define ENGINE_RDMA_OP_DEVICE_H

#include "engine/rdma/mr.h"
#include "engine/rdma/rdma.h"

/* ---- the target (mr_device.c) ---- */

/*
 * The engine has carried out len bytes of an operation of that peer.  last: the last bytes of it.
 * rx held.
 */
void rds_mr_served(struct rds_conn *conn, struct rds_ep *ep, struct rds_mr *mr, uint64_t len, bool last);
/* regions that have been served enough; conn->tx held */
void rds_mr_advertise(struct rds_conn *conn);
/* The region has left the table: tells the peers that know it.  rx held. */
void rds_mr_revoke(struct rds_mr *mr);
/* A peer acknowledges that none of its operations uses the region any more.  rx held. */
void rds_mr_revoke_acked(struct rds_conn *conn, const struct rds_wire_op_hdr *h);
/*
 * Waits for the acknowledgements of all peers, within a limit of time.  Locks as for
 * rds_mr_destroy_list().
 */
void rds_mr_revoke_wait(struct rds_mr *list);
/* A piece without data, which needs no answer.  NULL: no memory. */
struct rds_queue_item *rds_op_control_piece_new(const struct rds_wire_op_hdr *h);
/* No device reaches the region on return.  rx not held. */
void rds_mr_deregister(struct rds_mr *mr);
void rds_mr_adverts_drop(struct rds_conn *conn); /* the endpoint has ended; rx held */
void rds_mr_device_forget(void);		 /* in a forked child */
void rds_ops_forget(void);			 /* the same */

/* op_serve.c: what an atomic operation makes of a word that was `old`. */
uint64_t rds_atomic_value(const struct rds_atomic_request *req, uint64_t old);

/* ---- the initiator (op_device.c) ---- */

/* 0: the device has the whole operation.  Otherwise it has nothing of it.  conn->tx held. */
int rds_op_device_post(struct rds_conn *conn, struct rds_op *op);
/*
 * rds_op_fence_conflict(): before an operation goes to a device or to the peer's engine.
 * rds_ops_fence(): before the message of these operations goes.  If necessary, the transport holds
 * what follows until reads have ended.  conn->tx held.
 */
void rds_op_fence_conflict(struct rds_conn *conn, const struct rds_op *op);
void rds_ops_fence(struct rds_conn *conn, const struct rds_op *ops);
void rds_mr_remote_advertised(struct rds_conn *conn, const struct rds_wire_op_hdr *h); /* rx held */
void rds_mr_remote_revoked(struct rds_conn *conn, const struct rds_wire_op_hdr *h);    /* rx held */
/* the endpoint has ended; rx held */
void rds_mr_remote_drop_all(struct rds_conn *conn);

#endif
