/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * pass_fds.c - packets with descriptors between processes, and sealed files for bytes that do not
 * fit a packet: how one is made, and whether one that has come may be mapped (its bytes must not
 * change, nor end early).
 */
#include "engine/sys/log.h"
#include "engine/sys/os.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

int os_pass_send(int fd, const void *buf, size_t len, const int *fds, unsigned nfds, int flags)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(OS_PASS_MAX * sizeof(int))];
	} u = {{0}};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *cm;
	ssize_t n;

	if (nfds) {
		mh.msg_control = u.buf;
		mh.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		cm = CMSG_FIRSTHDR(&mh);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, nfds * sizeof(int));
	}
	n = os_sendmsg(fd, &mh, flags | MSG_NOSIGNAL);
	return n < 0 ? (int)n : n == (ssize_t)len ? 0 : -EIO;
}

static void cmsg_take_fds(struct msghdr *mh, int fds[OS_PASS_MAX], unsigned *nfds)
{
	struct cmsghdr *cm;
	size_t i, n;
	int fd;

	for (cm = CMSG_FIRSTHDR(mh); cm; cm = CMSG_NXTHDR(mh, cm)) {
		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(cm) + i * sizeof(int), sizeof(int));
			if (*nfds < OS_PASS_MAX)
				fds[(*nfds)++] = fd;
			else
				os_close(fd);
		}
	}
}

ssize_t os_pass_recv_few(int fd, void *buf, size_t len, int fds[OS_PASS_MAX], unsigned room, unsigned *nfds, bool *lost,
			 int flags)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(OS_PASS_MAX * sizeof(int))];
	} u;
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct msghdr mh = {.msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = u.buf,
			    /* the kernel fills padding, too */
			    .msg_controllen = room ? CMSG_LEN(room * sizeof(int)) : 0};
	ssize_t n = os_recvmsg(fd, &mh, flags | MSG_CMSG_CLOEXEC);

	*nfds = 0;
	*lost = false;
	if (n < 0)
		return n;
	cmsg_take_fds(&mh, fds, nfds);
	*lost = mh.msg_flags & MSG_CTRUNC;
	return n;
}

ssize_t os_pass_recv(int fd, void *buf, size_t len, int fds[OS_PASS_MAX], unsigned *nfds, bool *lost, int flags)
{
	return os_pass_recv_few(fd, buf, len, fds, OS_PASS_MAX, nfds, lost, flags);
}

int os_file_append(int fd, off_t *at, const void *from, size_t len)
{
	const char *p = from;
	ssize_t n;

	while (len) {
		n = os_pwrite_quiet(fd, p, len, *at);
		if (n <= 0)
			return n ? (int)n : -EIO;
		p += n;
		*at += n;
		len -= (size_t)n;
	}
	return 0;
}

int os_memfd_sealed(const struct iovec *iov, unsigned n)
{
	int fd = os_memfd("rds message", MFD_CLOEXEC | MFD_ALLOW_SEALING), err = fd < 0 ? fd : 0;
	off_t at = 0;

	for (; n && !err; n--, iov++)
		err = os_file_append(fd, &at, iov->iov_base, iov->iov_len);
	if (!err)
		err = os_fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	if (!err)
		return fd;
	if (err == -EFBIG)
		rds_warn_once("a long message of an RDS socket that processes share cannot pass between them, because "
			      "it is a file in memory: raise the limit of file sizes (ulimit -f)");
	if (fd >= 0)
		os_close(fd);
	return err;
}

/* First the seals, then the size: in the other order the file could become shorter in between. */
int64_t os_memfd_sealed_size(int fd, int seals)
{
	struct stat st;
	int have = os_fcntl(fd, F_GET_SEALS, 0), err;

	if (have < 0)
		return have;
	if ((have & seals) != seals)
		return -EPERM;
	err = os_fstat(fd, &st);
	return err ? err : st.st_size;
}

bool os_memfd_is_sealed(int fd, uint64_t size)
{
	int64_t has = os_memfd_sealed_size(fd, F_SEAL_SHRINK | F_SEAL_WRITE);

	return has >= 0 && (uint64_t)has >= size;
}
