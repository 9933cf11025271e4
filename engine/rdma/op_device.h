/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op_device.h - operations that devices carry out, without a processor of the target.
 *
 *   served      by the target's engine, at first (op_serve.c): to register memory with a device costs as much as copying it
 *   shown       to the device, and its key to the initiator, once enough of it has been served (mr_device.c, at the target)
 *   carried out by the device, from then on (op_device.c, at the initiator), as far as that keeps the order and can be done at once
 *   hidden      when the region is freed: its initiators are told, say that nothing of theirs is under way, and the device forgets it, before
 *               the call returns
 *
 * Whatever is in the way of that, the engine's way is always there.  What one side knows of the other ends with the endpoint.
 */
#ifndef ENGINE_NATIVE_H
#define ENGINE_NATIVE_H

#include "engine/rdma/mr.h"
#include "engine/rdma/rdma.h"

/* ---- the target (mr_device.c) ---- */

/* The engine has carried out len bytes of an operation of that peer, the last ones of it. rx. */
void rds_mr_served(struct rds_conn *conn, struct rds_ep *ep, struct rds_mr *mr, uint64_t len, bool last);
void rds_mr_advertise(struct rds_conn *conn); /* tx: those that have been served enough */
/* It is out of the table: those who know of it are told. rx. */
void rds_mr_revoke(struct rds_mr *mr);
void rds_mr_revoke_acked(struct rds_conn *conn,
			 const struct rds_wire_op_hdr *h); /* a peer has nothing under way to it. rx */
/* Waits until they all have said so, but not for long.  As rds_mr_destroy_list(). */
void rds_mr_revoke_wait(struct rds_mr *list);
/* A piece without data that asks for nothing. NULL: no memory. */
struct rds_queue_item *rds_op_control_piece_new(const struct rds_wire_op_hdr *h);
void rds_mr_deregister(struct rds_mr *mr);	 /* ... and no device reaches it on return.  rx not held */
void rds_mr_adverts_drop(struct rds_conn *conn); /* the endpoint is over. rx */
void rds_mr_device_forget(void);		 /* forked child */

/* ---- the initiator (op_device.c) ---- */

/* 0: it has gone; else nothing of it has. tx. */
int rds_op_device_post(struct rds_conn *conn, struct rds_op *op);
/* Before it goes, whichever way; before the message that goes with them.  They wait for reads, if they have to. tx. */
void rds_op_fence_conflict(struct rds_conn *conn, const struct rds_op *op);
void rds_ops_fence(struct rds_conn *conn, const struct rds_op *ops);
void rds_mr_remote_advertised(struct rds_conn *conn, const struct rds_wire_op_hdr *h); /* rx */
void rds_mr_remote_revoked(struct rds_conn *conn, const struct rds_wire_op_hdr *h);    /* rx */
void rds_mr_remote_drop_all(struct rds_conn *conn);				       /* the endpoint is over. rx */

#endif
