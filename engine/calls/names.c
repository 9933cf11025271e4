/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * names.c - connect, getsockname, getpeername (net/rds/af_rds.c).
 *
 * connect only records a default destination: no traffic, no filter, repeatable, allowed before
 * bind.  The destination is written under sk->tx (sends read it there) and control (all others do),
 * in this order.
 *
 * This file must not know how a destination is reached.
 */
#include "engine/calls/names.h"

#include "engine/sys/uaccess.h"

int rds_call_copy_sockaddr(const struct sockaddr *addr, int len, struct sockaddr_storage *out)
{
	if (len < 0 || (size_t)len > sizeof(*out))
		return -EINVAL;
	if (rds_user_readable(addr, (size_t)len) < 0)
		return -EFAULT;
	memset(out, 0, sizeof(*out));
	if (len)
		memcpy(out, addr, (size_t)len);
	return 0;
}

int rds_call_connect(struct rds_sock *sk, const struct sockaddr *addr, int addrlen)
{
	struct sockaddr_storage ss;
	struct rds_addr peer;
	int ret = rds_call_copy_sockaddr(addr, addrlen, &ss);

	if (ret < 0)
		return ret;
	rds_lock(&sk->tx);
	rds_lock(&rds_lock_control);
	if (!atomic_load(&sk->open)) {
		ret = -EBADF;
		goto out;
	}
	ret = rds_addr_for_connect((struct sockaddr *)&ss, addrlen, sk->bound_scope, &peer);
	if (ret < 0)
		goto out;
	if (peer.scope)
		RDS_SOCK_SET(sk, bound_scope, peer.scope);
	RDS_SOCK_SET_ADDR(sk, caddr, &peer);
	RDS_SOCK_SET(sk, connected, true);
	registry_sock_set_connected(rds_node_registry, sk->reg_idx, &peer.ip, peer.port);
out:
	rds_unlock(&rds_lock_control);
	rds_unlock(&sk->tx);
	return ret;
}

/*
 * An unbound socket has a name, too: all zero, of the peer's family, or AF_UNSPEC in the size of a
 * sockaddr_in.  control held.
 */
static socklen_t name_of_unbound(const struct rds_sock *sk, struct sockaddr_storage *out)
{
	static const struct in6_addr any = IN6ADDR_ANY_INIT;

	memset(out, 0, sizeof(*out));
	out->ss_family = AF_UNSPEC;
	if (!atomic_load(&sk->connected))
		return sizeof(struct sockaddr_in);
	if (!rds_ip_is_v4(&sk->caddr.ip))
		return rds_addr_to_sockaddr(&any, 0, 0, out);
	out->ss_family = AF_INET;
	return sizeof(struct sockaddr_in);
}

int rds_call_getsockname(struct rds_sock *sk, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_storage ss;
	socklen_t real;

	rds_lock(&rds_lock_control);
	if (rds_sock_bound(sk))
		real = rds_addr_to_sockaddr(&sk->laddr.ip, sk->laddr.port, sk->bound_scope, &ss);
	else
		real = name_of_unbound(sk, &ss);
	rds_unlock(&rds_lock_control);
	return rds_addr_to_user(&ss, real, addr, len);
}

int rds_call_peer_name(struct rds_sock *sk, struct sockaddr_storage *out)
{
	int ret = -ENOTCONN;

	rds_lock(&rds_lock_control);
	if (atomic_load(&sk->connected))
		ret = (int)rds_addr_to_sockaddr(&sk->caddr.ip, sk->caddr.port, sk->bound_scope, out);
	rds_unlock(&rds_lock_control);
	return ret;
}

int rds_call_getpeername(struct rds_sock *sk, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_storage ss;
	int real = rds_call_peer_name(sk, &ss);

	if (real < 0)
		return real;
	return rds_addr_to_user(&ss, (socklen_t)real, addr, len);
}
