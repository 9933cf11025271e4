/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * addr.h - addresses of hosts, as users write them and as RDS compares them.
 */
#ifndef RDSRUN_ADDR_H
#define RDSRUN_ADDR_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct addr {
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_storage ss;
	} u;
	socklen_t len;
	char text[INET6_ADDRSTRLEN + IF_NAMESIZE + 1];
};

/* The first address of that name in the family (AF_UNSPEC: any), without a port.  NULL, or why not. */
const char *addr_resolve(const char *name, int family, struct addr *a);
/* Fills `text`; ::ffff:10.0.0.1 becomes 10.0.0.1. */
void addr_name(struct addr *a);
void addr_set_port(struct addr *a, uint16_t port);
/* As RDS has it: IPv4 within IPv6. */
struct in6_addr addr_ip(const struct addr *a);
/* Which of two is the smaller one decides who connects. */
int addr_compare(const struct addr *a, const struct addr *b);
bool addr_is_loopback(const struct addr *a);

#endif
