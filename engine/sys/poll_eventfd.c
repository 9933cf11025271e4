/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * poll_eventfd.c - the kernel's asynchronous poll (IOCB_CMD_POLL, Linux 4.18) adds to an eventfd
 * when a descriptor becomes readable.
 *
 * The poll is not on the descriptor itself but on an epoll set that holds nothing else. Some
 * drivers wake a poller without the event mask. The kernel then leaves the rest to a worker thread,
 * which would be another thread to wake up. An epoll set always passes the mask.
 *
 * The system call that arms the poll costs less than waking a thread that would do the same.
 * Whether the poll has fired is read from the ring that the kernel shares with the process, as fio
 * does, without a system call. Where any of this is not available (old kernels, seccomp,
 * fs.aio-max-nr), callers do without it. This file must not know whose descriptors these are.
 */
#include "engine/sys/poll_eventfd.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include "engine/sys/os.h"

#define RING_MAGIC 0xa10a10a1u

/*
 * The kernel maps this structure at the address that is the context's id (fs/aio.c; part of the ABI
 * because programs use it).
 */
struct ring {
	uint32_t id, nr;
	_Atomic uint32_t head, tail;
	uint32_t magic, compat, incompat, header;
};

static struct ring *aio_ring_of(const struct os_poll_eventfd *r)
{
	return (struct ring *)(uintptr_t)r->ctx;
}

void os_poll_eventfd_close(struct os_poll_eventfd *r)
{
	if (!r->ctx)
		return;
	os_syscall(SYS_io_destroy, (long)r->ctx, 0, 0, 0, 0, 0);
	os_close_slot(&r->ep);
	r->ctx = 0;
	r->set = false;
}

static int aio_open_once(struct os_poll_eventfd *r, int fd)
{
	struct epoll_event e = {.events = EPOLLIN};
	int err;

	if (r->ctx)
		return 0;
	if (r->tried)
		return -ENOSYS;
	r->tried = true;
	err = os_dup_high_slot(os_epoll_create(), &r->ep);
	if (err < 0)
		return err;
	err = os_epoll_ctl(r->ep, EPOLL_CTL_ADD, fd, &e);
	if (!err)
		err = (int)os_syscall(SYS_io_setup, 1, (long)&r->ctx, 0, 0, 0, 0);
	if (err) {
		r->ctx = 0;
		os_close_slot(&r->ep);
		return err;
	}
	if (aio_ring_of(r)->magic == RING_MAGIC && !aio_ring_of(r)->incompat)
		return 0;
	os_poll_eventfd_close(r);
	return -ENOSYS;
}

int os_poll_eventfd_arm(struct os_poll_eventfd *r, int fd, int efd)
{
	struct iocb *list[1] = {&r->cb};
	long n;

	if (r->set)
		return 0;
	n = aio_open_once(r, fd);
	if (n < 0)
		return (int)n;
	memset(&r->cb, 0, sizeof(r->cb));
	r->cb.aio_lio_opcode = IOCB_CMD_POLL;
	r->cb.aio_fildes = (uint32_t)r->ep;
	r->cb.aio_buf = POLLIN;
	r->cb.aio_flags = IOCB_FLAG_RESFD;
	r->cb.aio_resfd = (uint32_t)efd;
	n = os_syscall(SYS_io_submit, (long)r->ctx, 1, (long)list, 0, 0, 0);
	if (n != 1) {
		/*
		 * It is not tried again: the kernel does not know the command, or it is forbidden.
		 */
		os_poll_eventfd_close(r);
		return n < 0 ? (int)n : -ENOSYS;
	}
	r->set = true;
	return 0;
}

bool os_poll_eventfd_fired(struct os_poll_eventfd *r)
{
	uint32_t tail;

	if (!r->set)
		return false;
	tail = atomic_load_explicit(&aio_ring_of(r)->tail, memory_order_acquire);
	if (atomic_load_explicit(&aio_ring_of(r)->head, memory_order_relaxed) == tail)
		return false;
	atomic_store_explicit(&aio_ring_of(r)->head, tail, memory_order_release);
	r->set = false;
	return true;
}
