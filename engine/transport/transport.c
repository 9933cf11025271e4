/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * transport.c - variables of transport.h: the transports of this process, what is put around them,
 * and what they report about wake-ups.
 */
#include "engine/transport/transport.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/wire/addr.h"

struct rds_transport_up rds_transport_up;
struct rds_transport_up rds_transport_up_node;
struct rds_transport_wakes rds_transport_wakes;
struct rds_transport_set rds_transport_set;
_Atomic int64_t rds_transport_bytes;
struct rds_transport *(*rds_transport_wrap)(struct rds_transport *inner);
__thread bool rds_transport_looks_aside __attribute__((tls_model("initial-exec")));

/* A process has few local addresses, and none leaves the list. */
static struct node_addr {
	struct node_addr *next;
	struct in6_addr addr;
	uint32_t scope;
} * _Atomic node_addrs; /* control; it grows only, and is read without */

/* Two links may have the same link-local address.  Another one is the same whatever the peer's link is. */
bool rds_transport_node_has(const struct in6_addr *laddr, uint32_t scope)
{
	const struct node_addr *a;

	for (a = atomic_load(&node_addrs); a; a = a->next)
		if (rds_ip_equal(&a->addr, laddr) && (a->scope == scope || !IN6_IS_ADDR_LINKLOCAL(laddr)))
			return true;
	return false;
}

int rds_transport_node_add(const struct in6_addr *laddr, uint32_t scope)
{
	struct node_addr *a;

	if (rds_transport_node_has(laddr, scope))
		return 0;
	a = malloc(sizeof(*a));
	if (!a)
		return -ENOMEM;
	*a = (struct node_addr){.next = atomic_load(&node_addrs), .addr = *laddr, .scope = scope};
	atomic_store(&node_addrs, a);
	return 0;
}

void rds_transport_fork_child(void)
{
	atomic_store(&node_addrs, NULL);
	atomic_store(&rds_transport_bytes, 0);
}
