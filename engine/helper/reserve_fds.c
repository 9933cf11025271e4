/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * reserve_fds.c - descriptors kept in reserve, so that new peers can reach a program that has used
 * up its limit.
 *
 * With the kernel's RDS a message to a new peer costs no descriptor.  Here it costs some: a control
 * socket, wake-up pipes, and shared memory while it is passed.  A program that has opened sockets
 * until EMFILE must still be reachable.  A helper with a table of its own keeps the reserve there,
 * where it costs the program nothing.  With very many peers it also needs the reserve for
 * descriptors that the program exports.  The reserve is released when a connection needs
 * descriptors.
 *
 * If there are too few descriptors for even one peer, the engine does not start: a bind must not
 * succeed for a socket that no peer can reach.  Helper thread only.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "engine/helper/helper.h"
#include "engine/sys/os.h"

#define SPARES 16
/* Measured: five for the first peer over shared memory, four more if a child shares the sockets. */
#define PEER 9

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
