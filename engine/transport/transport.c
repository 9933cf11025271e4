/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * transport.c - variables of transport.h: the transports of this process, what is put around them,
 * and what they report about wake-ups.
 */
#include "engine/transport/transport.h"

#include <errno.h>
#include <stdlib.h>

#include "engine/wire/addr.h"

struct rds_transport_up rds_transport_up;
struct rds_transport_up rds_transport_up_node;
struct rds_transport_wakes rds_transport_wakes;
struct rds_transport_set rds_transport_set;
struct rds_transport *(*rds_transport_wrap)(struct rds_transport *inner);
__thread bool rds_transport_looks_aside __attribute__((tls_model("initial-exec")));

/* A process has few local addresses, and none leaves the list. */
static struct node_addr {
	struct node_addr *next;
	struct in6_addr addr;
} * node_addrs; /* control */

bool rds_transport_node_has(const struct in6_addr *laddr)
{
	const struct node_addr *a;

	for (a = node_addrs; a; a = a->next)
		if (rds_ip_equal(&a->addr, laddr))
			return true;
	return false;
}

int rds_transport_node_add(const struct in6_addr *laddr)
{
	struct node_addr *a;

	if (rds_transport_node_has(laddr))
		return 0;
	a = malloc(sizeof(*a));
	if (!a)
		return -ENOMEM;
	*a = (struct node_addr){.next = node_addrs, .addr = *laddr};
	node_addrs = a;
	return 0;
}

void rds_transport_fork_child(void)
{
	node_addrs = NULL;
}
