/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * verbs_transport.h - what progress calls of this transport, besides the operations in its table.
 */
#ifndef ENGINE_TRANSPORT_VERBS_VERBS_TRANSPORT_H
#define ENGINE_TRANSPORT_VERBS_VERBS_TRANSPORT_H

struct rds_transport;

/*
 * Called once per engine, and so once more in a forked child, which can use nothing that it has
 * inherited: sets everything to its initial state.
 */
struct rds_transport *rds_verbs_transport(void);
void rds_verbs_fork_child(void); /* forked child */

#endif
