/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * sock.c - TCP sockets: made, bound, connected, and their options, which are those of the kernel's
 * rds_tcp.
 */
#include <netinet/tcp.h>
#include <string.h>

#include "engine/transport/tcp/tcp.h"

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

#define BACKLOG 64
/* of a peer that is gone without a word, and with nothing under way: noticed after 30 s */
#define KEEP_IDLE_S 5
#define KEEP_PAUSE_S 5
#define KEEP_PROBES 5

static int sock_set(int fd, int level, int option, int value)
{
	return os_setsockopt(fd, level, option, &value, sizeof(value));
}

static int sock_new(const struct in6_addr *laddr)
{
	int family = rds_ip_is_v4(laddr) ? AF_INET : AF_INET6;
	int fd = os_socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP), err;

	if (fd < 0 || family == AF_INET)
		return fd;
	/* so that an address of the other family can be bound by others */
	err = sock_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	if (err) {
		os_close(fd);
		return err;
	}
	return fd;
}

static int sock_bind(int fd, const struct in6_addr *laddr, uint32_t scope, uint16_t port)
{
	struct sockaddr_storage ss;
	socklen_t len = rds_addr_to_sockaddr(laddr, port, scope, &ss);

	return os_bind(fd, (struct sockaddr *)&ss, len);
}

int tcp_sock_listen(const struct in6_addr *laddr, uint32_t scope)
{
	int fd = sock_new(laddr), err;

	if (fd < 0)
		return fd;
	/* earlier connections of this port may not be forgotten yet */
	err = sock_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (!err)
		err = sock_bind(fd, laddr, scope, rds_tcp_state.port);
	if (!err)
		err = os_listen(fd, BACKLOG);
	if (!err)
		return fd;
	os_close(fd);
	return err;
}

int tcp_sock_prepare(int fd)
{
	int err = sock_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);

	if (!err)
		err = sock_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	if (!err)
		err = sock_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S);
	if (!err)
		err = sock_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_PAUSE_S);
	if (!err)
		err = sock_set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_PROBES);
	tcp_ack_enable(fd);
	return err;
}

int tcp_sock_new(const struct rds_conn_id *id)
{
	int fd = sock_new(&id->laddr), err;

	if (fd < 0)
		return fd;
	/* the port is chosen by connect(): two connections to different peers may have the same */
	sock_set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
	err = tcp_sock_prepare(fd);
	if (!err)
		err = sock_bind(fd, &id->laddr, id->scope, 0);
	if (!err)
		return fd;
	os_close(fd);
	return err;
}

int tcp_sock_connect(int fd, const struct rds_conn_id *id)
{
	struct sockaddr_storage ss;
	socklen_t len = rds_addr_to_sockaddr(&id->faddr, rds_tcp_state.port, id->scope, &ss);

	return os_connect(fd, (struct sockaddr *)&ss, len);
}

int tcp_sock_addr(int fd, bool peer, struct rds_addr *addr)
{
	struct sockaddr_storage ss = {0};
	const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)&ss;
	const struct sockaddr_in *sin = (const struct sockaddr_in *)&ss;
	socklen_t len = sizeof(ss);
	int err = (int)os_syscall(peer ? SYS_getpeername : SYS_getsockname, fd, (long)&ss, (long)&len, 0, 0, 0);

	if (err)
		return err;
	memset(addr, 0, sizeof(*addr));
	if (ss.ss_family == AF_INET) {
		addr->port = be16toh(sin->sin_port);
		addr->ip.s6_addr[10] = addr->ip.s6_addr[11] = 0xff;
		memcpy(&addr->ip.s6_addr[12], &sin->sin_addr, 4);
		return 0;
	}
	addr->port = be16toh(sin6->sin6_port);
	addr->ip = sin6->sin6_addr;
	if (IN6_IS_ADDR_LINKLOCAL(&addr->ip))
		addr->scope = sin6->sin6_scope_id;
	return 0;
}

void tcp_sock_refuse(int fd)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};

	/* a forked child may have a copy for a while: it must not keep the connection open */
	os_shutdown(fd, SHUT_RDWR);
	os_setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	os_close(fd);
}

int tcp_sock_error(int fd)
{
	int err = 0;
	socklen_t len = sizeof(err);
	int ret = os_getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);

	return ret ? ret : -err;
}
