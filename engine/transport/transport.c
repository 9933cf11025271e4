/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * transport.c - variables of transport.h: the transports of this process, what is put around them,
 * and what they report about wake-ups.
 */
#include "engine/transport/transport.h"

struct rds_transport_up rds_transport_up;
struct rds_transport_wakes rds_transport_wakes;
struct rds_transport_set rds_transport_set;
struct rds_transport *(*rds_transport_wrap)(struct rds_transport *inner);
__thread bool rds_transport_looks_aside __attribute__((tls_model("initial-exec")));
