/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * memory.c - the memory that two processes share.
 *
 * Ring memory and inboxes are sealed memfds.  The other side can write invalid data into them, but
 * can never take the pages away.  They are outside /dev/shm and are freed with the last process
 * that maps them.
 *
 * No page is touched that may not exist.  The first page is always reserved.  Rings are large, and
 * mostly only a small part of them is used.  So a whole ring is reserved only where the kernel
 * limits the memory that it promises (vm.overcommit_memory=2).  Everywhere else the OOM killer acts
 * if there is no page.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "engine/transport/shm/shm.h"

static void rings_lay_out(struct shm_ep *ep, void *map, size_t len, uint32_t size)
{
	struct shm_rings *rings = map;
	unsigned char *data = (unsigned char *)map + SHM_CTL_BYTES;
	unsigned out = ep->initiator ? 0 : 1;

	ep->map = map;
	ep->map_len = len;
	ep->size = size;
	ep->tx = &rings->ctl[out];
	ep->rx = &rings->ctl[!out];
	ep->tx_data = data + (out ? size : 0);
	ep->rx_data = data + (out ? 0 : size);
}

static bool overcommit_is_strict(void)
{
	int fd = os_open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC, 0);
	char c = 0;

	if (fd < 0)
		return false;
	os_read(fd, &c, 1);
	os_close(fd);
	return c == '2';
}

static int mem_reserve(int fd, size_t len)
{
	return os_reserve(fd, (off_t)(overcommit_is_strict() ? len : SHM_CTL_BYTES));
}

static int rings_create_sized(struct shm_ep *ep, uint32_t size, int *fd_out)
{
	size_t len = SHM_CTL_BYTES + 2 * (size_t)size;
	int fd = os_memfd("rdspreload-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING), err;
	struct shm_rings *rings;
	void *map;

	if (fd < 0)
		return fd;
	err = os_ftruncate(fd, (off_t)len);
	if (!err)
		err = mem_reserve(fd, len);
	if (!err)
		err = os_fcntl(fd, F_ADD_SEALS, SHM_SEALS);
	if (err < 0)
		goto fail;
	err = os_mmap(len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0, &map);
	if (err)
		goto fail;
	madvise(map, len, MADV_DONTFORK);
	rings = map;
	atomic_store(&rings->ctl[0].need_bell, 1);
	atomic_store(&rings->ctl[1].need_bell, 1);
	rings_lay_out(ep, map, len, size);
	*fd_out = fd;
	return 0;
fail:
	os_close(fd);
	return err;
}

/*
 * Limits (of file sizes, of address space, of memory) may only allow smaller rings, which are
 * enough.
 */
int shm_rings_create(struct shm_ep *ep, uint32_t size, int *fd_out)
{
	int err;

	do {
		err = rings_create_sized(ep, size, fd_out);
		size /= 2;
	} while ((err == -EFBIG || err == -ENOMEM || err == -ENOSPC) && size >= SHM_RING_MIN);
	return err;
}

int shm_rings_check_limit(void)
{
	const size_t least = SHM_CTL_BYTES + 2 * SHM_RING_MIN;
	struct rlimit limit;

	if (os_syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, (long)&limit, 0, 0) || limit.rlim_cur >= least)
		return 0;
	rds_error("memory shared with another process is a file of %zu KiB or more: raise the limit of file sizes "
		  "(ulimit -f)",
		  least / 1024 + 1);
	return -EFBIG;
}

/*
 * Maps a memfd of exactly `len` bytes that no process can shrink.  The other side should have
 * reserved it; this makes sure.
 */
static int mem_attach(int fd, size_t len, void **out)
{
	int err;

	if (os_memfd_sealed_size(fd, SHM_SEALS) != (int64_t)len)
		return -EPROTO;
	err = mem_reserve(fd, len);
	if (!err)
		err = os_mmap(len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0, out);
	if (!err)
		madvise(*out, len, MADV_DONTFORK);
	return err;
}

int shm_rings_attach(struct shm_ep *ep, uint64_t size, int fd)
{
	size_t len = SHM_CTL_BYTES + 2 * (size_t)size;
	void *map;
	int err;

	if (size < SHM_RING_MIN || size > SHM_RING_MAX || (size & (size - 1)))
		return -EPROTO;
	err = mem_attach(fd, len, &map);
	if (err)
		return err;
	rings_lay_out(ep, map, len, (uint32_t)size);
	return 0;
}

int shm_inbox_attach(int fd, struct shm_inbox **out)
{
	void *map;
	int err = mem_attach(fd, SHM_CTL_BYTES, &map);

	if (!err)
		*out = map;
	return err;
}
