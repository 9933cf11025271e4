/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * borrower_shown.c - a receive of a borrower that finds the message in the stand-in (conn/shown.h): one read, and the
 * owner has no part in it.
 *
 * All else is the owner's to answer: that there is nothing, since it may have something that it has not shown yet;
 * notifications; messages with control messages; and a program's bad buffers, which must not cost it the message.
 */
#include <errno.h>

#include "engine/conn/shown.h"
#include "engine/share/borrower_impl.h"
#include "engine/sys/os.h"
#include "engine/sys/uaccess.h"

static bool buffers_are_writable(const struct msghdr *msg)
{
	size_t i;

	for (i = 0; i < msg->msg_iovlen; i++)
		if (msg->msg_iov[i].iov_len && rds_user_writable(msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len))
			return false;
	return true;
}

static ssize_t shown_deliver(const struct rds_shown_packet *p, struct msghdr *msg, int flags)
{
	const char *from = (const char *)(p + 1);
	struct sockaddr_storage ss;
	size_t left = p->len, i, n;
	socklen_t len;

	for (i = 0; left && i < msg->msg_iovlen; i++) {
		n = msg->msg_iov[i].iov_len < left ? msg->msg_iov[i].iov_len : left;
		memcpy(msg->msg_iov[i].iov_base, from, n);
		from += n;
		left -= n;
	}
	if (msg->msg_name) {
		len = rds_addr_to_sockaddr(&p->saddr, p->sport, p->scope, &ss);
		memcpy(msg->msg_name, &ss, msg->msg_namelen < len ? msg->msg_namelen : len);
		msg->msg_namelen = len;
	}
	msg->msg_controllen = 0;
	msg->msg_flags = left ? MSG_TRUNC : 0;
	return (ssize_t)(flags & MSG_TRUNC ? p->len : p->len - left);
}

/* The last owner has parked the socket just now: the packet goes back, and this process takes over as any other. */
static void parked_put_back(const char *packet, size_t len, const int *fds, unsigned nfds)
{
	if (nfds)
		os_pass_send(fds[0], packet, len, fds, nfds, MSG_DONTWAIT);
}

static ssize_t shown_read(int fd, char *packet, struct msghdr *msg, int flags)
{
	int fds[OS_PASS_MAX];
	unsigned nfds, i;
	bool lost;
	ssize_t n = os_pass_recv(fd, packet, BORROWER_PACKET, fds, &nfds, &lost, MSG_DONTWAIT | (flags & MSG_PEEK));

	if (n > 0 && nfds && !(flags & MSG_PEEK))
		parked_put_back(packet, (size_t)n, fds, nfds);
	for (i = 0; n > 0 && i < nfds; i++)
		os_close(fds[i]);
	if (n <= 0 || nfds || !rds_inc_shown_is_sound((const void *)packet, n))
		return -EAGAIN;
	return shown_deliver((const void *)packet, msg, flags);
}

ssize_t borrower_recv_shown(int fd, struct msghdr *msg, int flags)
{
	struct borrower_channel *s;
	ssize_t n = -EAGAIN;
	struct stat st;

	if ((flags & (MSG_OOB | MSG_ERRQUEUE)) || !buffers_are_writable(msg) || os_fstat(fd, &st))
		return -EAGAIN;
	borrower_pool_begin();
	s = borrower_channel_get_idle(st.st_ino);
	if (!s)
		return -EAGAIN;
	if (s->greeted)
		n = shown_read(fd, s->packet, msg, flags);
	borrower_channel_give_back(s);
	return n;
}
