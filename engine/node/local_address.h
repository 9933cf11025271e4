/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * local_address.h - does an address belong to this host?
 */
#ifndef ENGINE_NODE_LOCAL_ADDRESS_H
#define ENGINE_NODE_LOCAL_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * May a socket of this host be bound to it? 0, -EADDRNOTAVAIL, or -ENOMEM (no descriptor left for
 * the check). 127/8 and ::1 always may. Asks the kernel through datagram sockets. A positive answer
 * is remembered for a second. Subnet broadcasts are not local, whatever bind() says.
 */
int rds_node_addr_is_local(const struct in6_addr *ip, uint32_t scope);
/* Does the network have a way from a local address to that one?  True also if that cannot be found out. */
bool rds_node_addr_has_way(const struct in6_addr *from, const struct in6_addr *to, uint32_t scope);

#endif
