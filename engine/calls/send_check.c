/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * send_check.c - the checks of sendmsg, in the kernel's order (net/rds/send.c: rds_sendmsg()).
 *
 * Must not wait, and knows nothing of connections.
 */
#include <string.h>

#include "engine/abi/cmsg.h"
#include "engine/calls/send_check.h"
#include "engine/sys/uaccess.h"

#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

int rds_call_send_check_name(struct rds_sock *sk, const struct msghdr *msg, struct rds_addr *dst,
			     struct rds_sock_dst **slot)
{
	int len = (int)msg->msg_namelen, err;
	struct rds_sock_dst *d;

	if (msg->msg_name && len > 0) {
		if (len > (int)sizeof(struct sockaddr_storage))
			len = sizeof(struct sockaddr_storage);
		if (rds_user_readable(msg->msg_name, (size_t)len))
			return -EFAULT;
		if (likely(len == sizeof(struct sockaddr_in))) {
			const struct sockaddr_in *sin = msg->msg_name;

			d = rds_sock_dst_slot(sk, ntohs(sin->sin_port));
			if (likely(d->rawlen == RDS_DST_RAW4 && memcmp(d->raw, sin, RDS_DST_RAW4) == 0 &&
				   rds_sock_bound(sk))) {
				*dst = d->addr;
				*slot = d;
				return 0;
			}
		}
		err = rds_addr_for_send(msg->msg_name, len, dst);
		if (err)
			return err;
		if (!rds_sock_bound(sk))
			return -ENOTCONN;
		if (rds_ip_is_v4(&dst->ip) != rds_ip_is_v4(&sk->laddr.ip))
			return -EOPNOTSUPP;
		if (dst->scope && sk->bound_scope && dst->scope != sk->bound_scope)
			return -EINVAL;
	} else {
		if (!rds_sock_bound(sk) || !atomic_load_explicit(&sk->connected, memory_order_acquire))
			return -ENOTCONN;
		*dst = sk->caddr;
	}
	d = rds_sock_dst_slot(sk, dst->port);
	if (!d->rawlen || d->addr.port != dst->port || d->addr.scope != dst->scope ||
	    !rds_ip_equal(&d->addr.ip, &dst->ip)) {
		memset(d, 0, sizeof(*d));
		d->addr = *dst;
	}
	d->rawlen = 1;
	if (msg->msg_name && len == sizeof(struct sockaddr_in)) {
		memcpy(d->raw, msg->msg_name, RDS_DST_RAW4);
		d->rawlen = RDS_DST_RAW4;
	}
	*slot = d;
	return 0;
}

int rds_call_send_check_payload(struct rds_sock *sk, const struct msghdr *msg, int flags, struct rds_conn_outgoing *out,
				unsigned *cmsgs)
{
	struct rds_cmsg_summary cm = {0};
	bool control = msg->msg_control && msg->msg_controllen >= sizeof(struct cmsghdr);
	bool zcopy = (flags & MSG_ZEROCOPY) && atomic_load(&sk->zerocopy);
	size_t total = 0, i;
	int err;

	if (unlikely(control)) {
		err = rds_cmsg_scan(msg, &cm);
		if (err)
			return err;
		if (cm.level)
			rds_sock_used_level(sk, cm.level);
	}
	for (i = 0; i < msg->msg_iovlen; i++) {
		total += msg->msg_iov[i].iov_len;
		if (total > RDS_MAX_MSG)
			break;
	}
	if (unlikely(total > RDS_MAX_MSG || cm.rdma_bytes > RDS_MAX_MSG))
		return -EMSGSIZE;
	if (unlikely(total > rds_sock_sndbuf(sk)))
		return -EMSGSIZE;
	if (unlikely(zcopy) && atomic_load(&sk->transport) != RDS_TRANS_TCP)
		return -EOPNOTSUPP;
	if (unlikely(control || (flags & MSG_ZEROCOPY))) {
		err = rds_cmsg_check(msg, flags, total, &cm);
		if (err)
			return err;
		*cmsgs = cm.present;
		out->u.report = zcopy ? RDS_REPORT_ZCOPY : 0;
		out->u.zcookie = cm.zcopy_cookie;
	}
	if (unlikely(rds_user_iov_readable(msg->msg_iov, msg->msg_iovlen)))
		return -EFAULT;
	out->iov = msg->msg_iov;
	out->len = total;
	return 0;
}
