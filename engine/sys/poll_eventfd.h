/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * poll_eventfd.h - the kernel adds one to an eventfd, once, when a descriptor becomes readable.
 *
 * It serves a thread that sleeps in read() on that eventfd and must also be woken by another event.
 * No second thread is needed, and read() keeps its behaviour on signals.
 */
#ifndef ENGINE_SYS_POLL_EVENTFD_H
#define ENGINE_SYS_POLL_EVENTFD_H

#include <linux/aio_abi.h>
#include <stdbool.h>

struct os_poll_eventfd {
	aio_context_t ctx; /* 0: no context */
	_Atomic int ep;	   /* valid with ctx */
	struct iocb cb;
	bool tried, set;
};

/*
 * Callers serialise. 0: the kernel adds one to efd when fd becomes readable, or at once if it is
 * readable. -errno: it will not, now or later. fd must be the same on each call. If it is armed
 * already, it stays as it is.
 */
int os_poll_eventfd_arm(struct os_poll_eventfd *r, int fd, int efd);
/* True once after each arming: it was armed, and the kernel has added one since. */
bool os_poll_eventfd_fired(struct os_poll_eventfd *r);
/*
 * Disarms it (efd may still be increased once by that). To be called before fd is closed for good.
 */
void os_poll_eventfd_close(struct os_poll_eventfd *r);

#endif
