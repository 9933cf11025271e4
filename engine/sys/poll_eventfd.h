/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * poll_eventfd.h - the kernel passes on, once, that a descriptor has become readable: it adds one to an eventfd (poll_eventfd.c).
 *
 * For a thread that sleeps in read() on that eventfd, and is to be woken by something else as well, without another thread in
 * between and without giving up what read() does about signals.
 */
#ifndef ENGINE_RELAY_H
#define ENGINE_RELAY_H

#include <linux/aio_abi.h>
#include <stdbool.h>

struct os_poll_eventfd {
	aio_context_t ctx; /* 0: none */
	_Atomic int ep;	   /* valid with ctx */
	struct iocb cb;
	bool tried, set;
};

/*
 * Callers serialise.  0: when fd is readable, or if it is, efd counts one more; -errno: it will not, nor the next time.
 * fd is the same each time.  One that is already set stays as it is.
 */
int os_poll_eventfd_arm(struct os_poll_eventfd *r, int fd, int efd);
/* It was set, and has passed on since what it was set for: once per time. */
bool os_poll_eventfd_fired(struct os_poll_eventfd *r);
/* Not set any more (efd may count one more by that); before fd is closed for good. */
void os_poll_eventfd_close(struct os_poll_eventfd *r);

#endif
