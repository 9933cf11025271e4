/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * ioctl.c - ioctl on an RDS socket (net/rds/af_rds.c: rds_ioctl()).
 *
 * RDS itself answers the two TOS requests.  A few other requests must not reach the stand-in,
 * because AF_UNIX answers them and RDS does not.  All others go to the generic layer.
 */
#include "engine/socket/socket.h"

#include "engine/sys/uaccess.h"

#include <asm/ioctls.h>
#include <linux/sockios.h>

#ifndef SIOCGSTAMP_OLD /* glibc's headers before 2.32 have them aside */
#define SIOCGSTAMP_OLD 0x8906
#define SIOCGSTAMPNS_OLD 0x8907
#endif

#define IFREQ_BYTES 40

/*
 * The kernel's answer to a 0x89xx request that neither RDS nor the device layer knows: it copies a
 * struct ifreq first.
 */
static int ioctl_device_layer(const void *arg)
{
	return rds_user_readable(arg, IFREQ_BYTES) < 0 ? -EFAULT : -ENOTTY;
}

static int tos_set(struct rds_sock *sk, const void *arg)
{
	int transport, ret = 0;

	if (rds_user_readable(arg, 1) < 0)
		return -EFAULT;
	transport = atomic_load(&sk->transport);
	if (transport == RDS_TRANS_NONE || transport == RDS_TRANS_LOOP)
		return ioctl_device_layer(arg);
	rds_lock(&rds_lock_control);
	if (atomic_load(&sk->tos) || atomic_load(&sk->tos_fixed))
		ret = -EINVAL;
	else if (transport == RDS_TRANS_TCP)
		RDS_SOCK_SET(sk, tos, 0); /* TCP has one class of service only */
	else
		RDS_SOCK_SET(sk, tos, *(const uint8_t *)arg);
	rds_unlock(&rds_lock_control);
	return ret;
}

static int tos_get(struct rds_sock *sk, void *arg)
{
	if (rds_user_writable(arg, 1) < 0)
		return -EFAULT;
	*(uint8_t *)arg = atomic_load(&sk->tos);
	return 0;
}

int rds_call_ioctl(struct rds_sock *sk, unsigned long req, void *arg)
{
	switch ((unsigned)req) { /* the kernel uses 32 bits only */
	case SIOCRDSSETTOS:
		return tos_set(sk, arg);
	case SIOCRDSGETTOS:
		return tos_get(sk, arg);
	case SIOCATMARK:
		return ioctl_device_layer(arg);
	case FIONREAD: /* SIOCINQ */
	case TIOCOUTQ: /* SIOCOUTQ */
	case SIOCGSTAMP_OLD:
	case SIOCGSTAMPNS_OLD:
	case SIOCGSTAMP_NEW:
	case SIOCGSTAMPNS_NEW:
		return -ENOTTY;
	default:
		return -ENOIOCTLCMD;
	}
}
