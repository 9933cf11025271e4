/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * reserve_fds.c - a few descriptors kept back, so that a program that has used up its limit can still be reached.
 *
 * With the kernel's RDS a message to a new peer costs no descriptor.  Here it does (control socket, wake-up pipes, shared
 * memory on its way), and a program that has opened sockets until EMFILE must not find itself cut off.  A helper with a table of
 * its own keeps them there, where they cost the program nothing, and needs them for what the program lends it when there are
 * very many peers.  Given up when a connection needs them.  Where not even one peer could be talked to, the engine does not start: a bind that succeeds
 * must not be to a deaf socket.  Helper thread only.
 */
#include <fcntl.h>

#include "engine/helper/helper.h"
#include "engine/sys/compiler.h"
#include "engine/sys/fence.h"
#include "engine/sys/lock_order.h"
#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/sys/process.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPARES 16
#define PEER 9 /* measured: five for the first peer over shared memory, four if the sockets are shared with a child as well */

static _Atomic int reserve_fd[SPARES];
static bool known; /* the slots hold -1 or a descriptor */

bool rds_helper_reserve_fill(void)
{
	unsigned i, n = 0;
	int fd;

	for (i = 0; i < SPARES; i++) {
		if (!known)
			atomic_store(&reserve_fd[i], -1);
		if (atomic_load(&reserve_fd[i]) < 0) {
			fd = os_fcntl(os_fd(&rds_helper_leader.post), F_DUPFD_CLOEXEC, 0);
			if (fd >= 0)
				os_dup_high_slot(fd, &reserve_fd[i]);
		}
		n += atomic_load(&reserve_fd[i]) >= 0;
	}
	known = true;
	return n >= PEER;
}

bool rds_helper_reserve_release(void)
{
	bool any = false;
	unsigned i;

	for (i = 0; known && i < SPARES; i++)
		if (atomic_load(&reserve_fd[i]) >= 0) {
			os_close_slot(&reserve_fd[i]);
			any = true;
		}
	return any;
}

void rds_helper_reserve_forget(void)
{
	known = false;
}
