/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * addr.c - names become addresses, and the other way round (addr.h).
 */
#include "rdsrun/addr.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

static void addr_unmap(struct addr *a)
{
	struct sockaddr_in in = {.sin_family = AF_INET};

	if (a->u.sa.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->u.in6.sin6_addr))
		return;
	memcpy(&in.sin_addr, &a->u.in6.sin6_addr.s6_addr[12], 4);
	a->u.in = in;
	a->len = sizeof(in);
}

void addr_name(struct addr *a)
{
	addr_unmap(a);
	if (getnameinfo(&a->u.sa, a->len, a->text, sizeof(a->text), NULL, 0, NI_NUMERICHOST))
		snprintf(a->text, sizeof(a->text), "?");
}

const char *addr_resolve(const char *name, int family, struct addr *a)
{
	struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM}, *found;
	int err = getaddrinfo(name, NULL, &hints, &found);

	if (err)
		return err == EAI_SYSTEM ? strerror(errno) : gai_strerror(err);
	memset(a, 0, sizeof(*a));
	memcpy(&a->u, found->ai_addr, found->ai_addrlen);
	a->len = found->ai_addrlen;
	freeaddrinfo(found);
	addr_name(a);
	return NULL;
}

void addr_set_port(struct addr *a, uint16_t port)
{
	if (a->u.sa.sa_family == AF_INET)
		a->u.in.sin_port = htons(port);
	else
		a->u.in6.sin6_port = htons(port);
}

struct in6_addr addr_ip(const struct addr *a)
{
	struct in6_addr ip = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

	if (a->u.sa.sa_family == AF_INET6)
		return a->u.in6.sin6_addr;
	memcpy(&ip.s6_addr[12], &a->u.in.sin_addr, 4);
	return ip;
}

int addr_compare(const struct addr *a, const struct addr *b)
{
	struct in6_addr x = addr_ip(a), y = addr_ip(b);

	return memcmp(&x, &y, sizeof(x));
}

bool addr_is_loopback(const struct addr *a)
{
	return a->u.sa.sa_family == AF_INET ? ntohl(a->u.in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET
					    : IN6_IS_ADDR_LOOPBACK(&a->u.in6.sin6_addr);
}
