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
 *
 * The control page of rings, which also has their first bytes, is mapped apart from the rest, so that
 * those of many rings lie side by side.  Page tables are made for 2 MiB of addresses, and a
 * process may have a thousand peers to which it says little.
 *
 * Limits (of file sizes, of address space, of memory) of either process may only allow smaller
 * rings, which are enough.  The initiator makes what it can.  The acceptor says how much of that it
 * uses.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/transport/shm/shm.h"

#define OVERCOMMIT_NS (1000 * 1000000ull)

static size_t rings_bytes(uint64_t size)
{
	return SHM_CTL_BYTES + 2 * (size_t)size;
}

static void rings_lay_out(struct shm_ep *ep, uint32_t size)
{
	unsigned char *data = ep->data;
	unsigned out = ep->initiator ? 0 : 1;

	ep->size = size;
	ep->tx = &ep->rings->ctl[out];
	ep->rx = &ep->rings->ctl[!out];
	ep->tx_data = data + (out ? size : 0);
	ep->rx_data = data + (out ? 0 : size);
}

/* ---- mapping ---- */

#define PAGES_BYTES (1u << 20)
#define SHARED_RW PROT_READ | PROT_WRITE, MAP_SHARED

/* Then a file's page has more than the control data, and all of it is mapped in one piece. */
static bool pages_are_large(void)
{
	return sysconf(_SC_PAGESIZE) > SHM_CTL_BYTES;
}

static uintptr_t page_round_up(uintptr_t at)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	return (at + page - 1) / page * page;
}

/* Then none is kept ahead: it is for rings, the program and its messages. */
static bool space_is_limited(void)
{
	struct rlimit limit = {.rlim_cur = 0};

	return os_syscall(SYS_prlimit64, 0, RLIMIT_AS, 0, (long)&limit, 0, 0) || limit.rlim_cur != RLIM_INFINITY;
}

/* The first page of that file, beside the last one that was mapped here.  Without such a place: anywhere. */
static int page_map(int fd, void **out)
{
	struct shm *s = &rds_shm;
	void *pages;

	if (s->pages == s->pages_end && !pages_are_large() && !space_is_limited() &&
	    !os_mmap(PAGES_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, &pages)) {
		/* after mlockall(MCL_FUTURE) they would count, used or not */
		munlock(pages, PAGES_BYTES);
		madvise(pages, PAGES_BYTES, MADV_DONTFORK);
		s->pages = pages;
		s->pages_end = s->pages + PAGES_BYTES;
	}
	if (s->pages == s->pages_end)
		return os_mmap(SHM_CTL_BYTES, SHARED_RW, fd, 0, out);
	*out = s->pages;
	s->pages += SHM_CTL_BYTES;
	return os_mmap_over(*out, SHM_CTL_BYTES, SHARED_RW, fd, 0) ? 0 : os_mmap(SHM_CTL_BYTES, SHARED_RW, fd, 0, out);
}

static int rings_map_apart(struct shm_ep *ep, int fd, size_t len)
{
	void *page, *data;
	int err = os_mmap(len, SHARED_RW, fd, SHM_CTL_BYTES, &data);

	if (err)
		return err;
	err = page_map(fd, &page);
	if (err) {
		munmap(data, len);
		return err;
	}
	madvise(data, len, MADV_DONTFORK);
	madvise(page, SHM_CTL_BYTES, MADV_DONTFORK);
	ep->rings = page;
	ep->data = data;
	return 0;
}

static int rings_map_whole(struct shm_ep *ep, int fd, size_t len)
{
	void *map;
	int err = os_mmap(SHM_CTL_BYTES + len, SHARED_RW, fd, 0, &map);

	if (err)
		return err;
	madvise(map, SHM_CTL_BYTES + len, MADV_DONTFORK);
	ep->rings = map;
	ep->data = (unsigned char *)map + SHM_CTL_BYTES;
	return 0;
}

static int rings_map(struct shm_ep *ep, int fd, uint32_t size)
{
	const size_t len = 2 * (size_t)size;
	int err = (pages_are_large() ? rings_map_whole : rings_map_apart)(ep, fd, len);

	if (err)
		return err;
	ep->mapped = len;
	rds_transport_bytes_add((int64_t)len);
	rings_lay_out(ep, size);
	return 0;
}

void shm_rings_unmap(struct shm_ep *ep)
{
	if (!ep->rings)
		return;
	rds_transport_bytes_add(-(int64_t)ep->mapped);
	munmap(ep->rings, pages_are_large() ? SHM_CTL_BYTES + ep->mapped : SHM_CTL_BYTES);
	if (!pages_are_large())
		munmap(ep->data, ep->mapped);
}

/* ---- reserved pages ---- */

/*
 * The administrator may change it at any time.  It is read once a second at most: that costs as much
 * as all else that a ring needs of the kernel.
 */
static bool overcommit_is_strict(void)
{
	static uint64_t read_at;
	static char c;
	uint64_t now = os_now_ns();
	int fd;

	if (read_at && now - read_at < OVERCOMMIT_NS)
		return c == '2';
	fd = os_open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC, 0);
	if (fd >= 0 && os_read(fd, &c, 1) == 1)
		read_at = now;
	if (fd >= 0)
		os_close(fd);
	return c == '2';
}

static int mem_reserve(int fd, size_t len)
{
	return os_reserve(fd, (off_t)(overcommit_is_strict() ? len : SHM_CTL_BYTES));
}

static int rings_create_sized(struct shm_ep *ep, uint32_t size, int *fd_out)
{
	size_t len = rings_bytes(size);
	int fd = os_memfd("rdspreload-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING), err;

	if (fd < 0)
		return fd;
	err = os_ftruncate(fd, (off_t)len);
	if (!err)
		err = mem_reserve(fd, len);
	if (!err)
		err = os_fcntl(fd, F_ADD_SEALS, SHM_SEALS);
	if (!err)
		err = rings_map(ep, fd, size);
	if (err < 0) {
		os_close(fd);
		return err;
	}
	atomic_store(&ep->rings->ctl[0].need_bell, 1);
	atomic_store(&ep->rings->ctl[1].need_bell, 1);
	*fd_out = fd;
	return 0;
}

/* Address space that rings leave to the program and its messages, where it is short. */
static bool space_is_left(void)
{
	const size_t len = SHM_SPACE_LEFT + rings_bytes(SHM_RING_MIN);
	void *map;

	if (os_mmap(len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, &map))
		return false;
	munmap(map, len);
	return true;
}

/*
 * What to try after a size that failed; 0: nothing.  Where memory or address space is short, the
 * program and its messages need what there is.
 */
static uint32_t ring_size_less(uint32_t size, int err)
{
	if (size == SHM_RING_MIN)
		return 0;
	if (err == -EFBIG)
		return size / 2;
	return (err == -ENOMEM || err == -ENOSPC) && space_is_left() ? SHM_RING_MIN : 0;
}

int shm_rings_create(struct shm_ep *ep, uint32_t size, int *fd_out)
{
	int err;

	do {
		err = rings_create_sized(ep, size, fd_out);
		size = ring_size_less(size, err);
	} while (size);
	return err;
}

int shm_rings_check_limit(void)
{
	const size_t least = rings_bytes(SHM_RING_MIN);
	struct rlimit limit;

	if (os_syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, (long)&limit, 0, 0) || limit.rlim_cur >= least)
		return 0;
	rds_error(
		"no RDS socket can be bound, because memory shared with another process is a file of %zu KiB or more: "
		"raise the limit of file sizes (ulimit -f)",
		least / 1024);
	return -EFBIG;
}

static bool mem_is_sealed(int fd, size_t len)
{
	return os_memfd_sealed_size(fd, SHM_SEALS) == (int64_t)len;
}

static bool ring_size_is_sound(uint64_t size, uint64_t most)
{
	return size >= SHM_RING_MIN && size <= most && !(size & (size - 1));
}

int shm_rings_attach(struct shm_ep *ep, uint64_t size, int fd)
{
	uint32_t use = (uint32_t)size;
	int err;

	if (!ring_size_is_sound(size, SHM_RING_MAX) || !mem_is_sealed(fd, rings_bytes(size)))
		return -EPROTO;
	do {
		err = mem_reserve(fd, rings_bytes(use)); /* the other side should have done it */
		if (!err)
			err = rings_map(ep, fd, use);
		use = ring_size_less(use, err);
	} while (use);
	return err;
}

/* The rest is given back, also where it was reserved. */
int shm_rings_reduce(struct shm_ep *ep, uint64_t size)
{
	const uintptr_t data = (uintptr_t)ep->data, end = data + ep->mapped;
	uintptr_t from;

	if (!ring_size_is_sound(size, ep->size))
		return -EPROTO;
	rings_lay_out(ep, (uint32_t)size);
	from = page_round_up(data + 2 * (size_t)size);
	if (from < end) {
		madvise((void *)from, end - from, MADV_REMOVE);
		munmap((void *)from, end - from);
		ep->mapped = from - data;
	}
	return 0;
}

int shm_inbox_attach(int fd, struct shm_inbox **out)
{
	int err = mem_is_sealed(fd, SHM_CTL_BYTES) ? mem_reserve(fd, SHM_CTL_BYTES) : -EPROTO;
	void *map;

	if (!err)
		err = page_map(fd, &map);
	if (err)
		return err;
	madvise(map, SHM_CTL_BYTES, MADV_DONTFORK);
	*out = map;
	return 0;
}
