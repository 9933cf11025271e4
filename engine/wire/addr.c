/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * addr.c - addresses of RDS sockets: which ones bind, connect and send accept, and conversion back.
 *
 * The three calls refuse the same addresses with different errnos, so there are three functions
 * below and one classifier. IPv4 and v4-mapped IPv6 are the same address everywhere: inside the
 * engine all are 16 bytes. This file must not know the state of sockets: a rule about scopes that
 * needs it gets it as an argument.
 */
#include "engine/wire/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "engine/sys/uaccess.h"

/* No known system lacks sin_zero, but old RDS programs pass exactly these lengths. */
#define LEN_IN ((int)sizeof(struct sockaddr_in))
#define LEN_IN6 ((int)sizeof(struct sockaddr_in6))
#define LEN_MAX ((int)sizeof(struct sockaddr_storage))

enum addr_class { ADDR_UNICAST, ADDR_ANY, ADDR_GROUP /* multicast or broadcast */ };

static enum addr_class addr_classify_v4(uint32_t be)
{
	uint32_t a = ntohl(be);

	if (a == INADDR_ANY)
		return ADDR_ANY;
	return a == INADDR_BROADCAST || IN_MULTICAST(a) ? ADDR_GROUP : ADDR_UNICAST;
}

static uint32_t ip_to_v4(const struct in6_addr *ip)
{
	uint32_t be;

	memcpy(&be, &ip->s6_addr[12], sizeof(be));
	return be;
}

static enum addr_class addr_classify_v6(const struct in6_addr *ip)
{
	if (rds_ip_is_v4(ip))
		return addr_classify_v4(ip_to_v4(ip));
	if (IN6_IS_ADDR_UNSPECIFIED(ip))
		return ADDR_ANY;
	return IN6_IS_ADDR_MULTICAST(ip) ? ADDR_GROUP : ADDR_UNICAST;
}

static struct in6_addr ip_from_v4(uint32_t be)
{
	struct in6_addr ip = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

	memcpy(&ip.s6_addr[12], &be, sizeof(be));
	return ip;
}

bool rds_ip_is_loopback(const struct in6_addr *ip)
{
	if (rds_ip_is_v4(ip))
		return ip->s6_addr[12] == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(ip);
}

/* 0: unknown, else AF_*. The program's memory may not be aligned for a sockaddr. */
static sa_family_t sockaddr_family(const struct sockaddr *sa)
{
	sa_family_t family;

	memcpy(&family, sa, sizeof(family));
	return family;
}

static enum addr_class addr_take_v4(const struct sockaddr *sa, struct rds_addr *out)
{
	struct sockaddr_in sin;

	memcpy(&sin, sa, sizeof(sin));
	out->ip = ip_from_v4(sin.sin_addr.s_addr);
	out->port = ntohs(sin.sin_port);
	out->scope = 0;
	return addr_classify_v4(sin.sin_addr.s_addr);
}

/* If *link_local is set without a scope, the caller has to refuse the address. */
static enum addr_class addr_take_v6(const struct sockaddr *sa, struct rds_addr *out, bool *link_local)
{
	struct sockaddr_in6 sin6;

	memcpy(&sin6, sa, sizeof(sin6));
	out->ip = sin6.sin6_addr;
	out->port = ntohs(sin6.sin6_port);
	*link_local = IN6_IS_ADDR_LINKLOCAL(&sin6.sin6_addr);
	out->scope = *link_local ? sin6.sin6_scope_id : 0;
	return addr_classify_v6(&sin6.sin6_addr);
}

/* bind and send differ only in the shortest address for which the family is examined. */
static int addr_take_unicast(const struct sockaddr *sa, int len, struct rds_addr *out)
{
	bool link_local;

	switch (sockaddr_family(sa)) {
	case AF_INET:
		return len >= LEN_IN && addr_take_v4(sa, out) == ADDR_UNICAST ? 0 : -EINVAL;
	case AF_INET6:
		if (len < LEN_IN6 || addr_take_v6(sa, out, &link_local) != ADDR_UNICAST)
			return -EINVAL;
		return link_local && !out->scope ? -EINVAL : 0;
	default:
		return -EINVAL;
	}
}

int rds_addr_for_bind(const struct sockaddr *sa, int len, struct rds_addr *out)
{
	if (len < (int)sizeof(sa_family_t) || len > LEN_MAX)
		return -EINVAL;
	return addr_take_unicast(sa, len, out);
}

int rds_addr_for_send(const struct sockaddr *sa, int len, struct rds_addr *out)
{
	if (len < LEN_IN)
		return -EINVAL;
	return addr_take_unicast(sa, len, out);
}

static int addr_connect_v4(const struct sockaddr *sa, struct rds_addr *out)
{
	switch (addr_take_v4(sa, out)) {
	case ADDR_ANY:
		return -EDESTADDRREQ;
	case ADDR_GROUP:
		return -EINVAL;
	default:
		return 0;
	}
}

static int addr_connect_v6(const struct sockaddr *sa, uint32_t bound_scope, struct rds_addr *out)
{
	bool link_local;

	if (addr_take_v6(sa, out, &link_local) != ADDR_UNICAST)
		return -EPROTOTYPE;
	if (link_local && (!out->scope || (bound_scope && bound_scope != out->scope)))
		return -EINVAL;
	return 0;
}

int rds_addr_for_connect(const struct sockaddr *sa, int len, uint32_t bound_scope, struct rds_addr *out)
{
	if (len < (int)sizeof(sa_family_t) || len > LEN_MAX)
		return -EINVAL;
	switch (sockaddr_family(sa)) {
	case AF_INET:
		return len < LEN_IN ? -EINVAL : addr_connect_v4(sa, out);
	case AF_INET6:
		return len < LEN_IN6 ? -EINVAL : addr_connect_v6(sa, bound_scope, out);
	default:
		return -EAFNOSUPPORT;
	}
}

socklen_t rds_addr_to_sockaddr(const struct in6_addr *ip, uint16_t port, uint32_t scope, struct sockaddr_storage *out)
{
	if (rds_ip_is_v4(ip)) {
		struct sockaddr_in sin = {
			.sin_family = AF_INET,
			.sin_port = htons(port),
			.sin_addr.s_addr = ip_to_v4(ip),
		};

		memcpy(out, &sin, sizeof(sin));
		return sizeof(sin);
	}
	struct sockaddr_in6 sin6 = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(port),
		.sin6_addr = *ip,
		.sin6_scope_id = scope,
	};

	memcpy(out, &sin6, sizeof(sin6));
	return sizeof(sin6);
}

int rds_addr_to_user(const struct sockaddr_storage *ss, socklen_t real, struct sockaddr *addr, socklen_t *len)
{
	int room;

	if (rds_user_readable(len, sizeof(*len)))
		return -EFAULT;
	memcpy(&room, len, sizeof(room));
	if (room < 0)
		return -EINVAL;
	if ((socklen_t)room > real)
		room = (int)real;
	if (rds_user_writable(addr, (size_t)room))
		return -EFAULT;
	if (room)
		memcpy(addr, ss, (size_t)room);
	/* Last, as in the kernel: if the length cannot be written, the address has been written. */
	if (rds_user_writable(len, sizeof(*len)))
		return -EFAULT;
	memcpy(len, &real, sizeof(real));
	return 0;
}

const char *rds_addr_str(const struct in6_addr *ip, uint16_t port, uint32_t scope, char buf[RDS_ADDR_STRLEN])
{
	char text[INET6_ADDRSTRLEN];

	if (rds_ip_is_v4(ip))
		snprintf(buf, RDS_ADDR_STRLEN, "%u.%u.%u.%u:%u", ip->s6_addr[12], ip->s6_addr[13], ip->s6_addr[14],
			 ip->s6_addr[15], port);
	else if (!inet_ntop(AF_INET6, ip, text, sizeof(text)))
		snprintf(buf, RDS_ADDR_STRLEN, "[?]:%u", port);
	else if (scope)
		snprintf(buf, RDS_ADDR_STRLEN, "[%s%%%u]:%u", text, scope, port);
	else
		snprintf(buf, RDS_ADDR_STRLEN, "[%s]:%u", text, port);
	return buf;
}

const char *rds_ip_str(const struct in6_addr *ip, char buf[RDS_ADDR_STRLEN])
{
	rds_addr_str(ip, 0, 0, buf);
	*strrchr(buf, ':') = '\0';
	return buf;
}
