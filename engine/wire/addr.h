/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * addr.h - RDS addresses. The checks that bind, connect and send make on a sockaddr (three
 * different tables of errnos, as in the kernel), and the conversion back.
 */
#ifndef ENGINE_WIRE_ADDR_H
#define ENGINE_WIRE_ADDR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

struct rds_addr {
	struct in6_addr ip; /* IPv4 as ::ffff:a.b.c.d */
	uint32_t scope;	    /* only for link-local, else 0 */
	uint16_t port;	    /* host byte order */
};

static inline bool rds_ip_is_v4(const struct in6_addr *ip)
{
	return IN6_IS_ADDR_V4MAPPED(ip);
}
static inline bool rds_ip_equal(const struct in6_addr *a, const struct in6_addr *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}
/* 127.0.0.0/8 or ::1: the addresses of the kernel's loopback transport. */
bool rds_ip_is_loopback(const struct in6_addr *ip);

/*
 * As rds_bind() in net/rds/bind.c: the form only, nothing that depends on state. The caller has
 * checked that len bytes at sa are readable.
 */
int rds_addr_for_bind(const struct sockaddr *sa, int len, struct rds_addr *out);
/* As rds_connect() in net/rds/af_rds.c. `bound_scope`: to which the socket is bound, 0 for none. */
int rds_addr_for_connect(const struct sockaddr *sa, int len, uint32_t bound_scope, struct rds_addr *out);
/* As rds_sendmsg() in net/rds/send.c. */
int rds_addr_for_send(const struct sockaddr *sa, int len, struct rds_addr *out);

/*
 * A v4 or v4-mapped address becomes AF_INET, 16 bytes; any other AF_INET6, 28 bytes with scope.
 * Returns the length.
 */
socklen_t rds_addr_to_sockaddr(const struct in6_addr *ip, uint16_t port, uint32_t scope, struct sockaddr_storage *out);
/*
 * As the kernel's generic move_addr_to_user(): copies min(*len, real) bytes and stores real in
 * *len. *len < 0 is -EINVAL, bad pointers are -EFAULT.
 */
int rds_addr_to_user(const struct sockaddr_storage *ss, socklen_t real, struct sockaddr *addr, socklen_t *len);

#define RDS_ADDR_STRLEN 72
/* "10.0.0.1:4000" or "[fe80::1%2]:4000" into buf; returns buf. */
const char *rds_addr_str(const struct in6_addr *ip, uint16_t port, uint32_t scope, char buf[RDS_ADDR_STRLEN]);
/* ... without a port, for connections and hosts, which have none. */
const char *rds_ip_str(const struct in6_addr *ip, char buf[RDS_ADDR_STRLEN]);

#endif
