/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * hostile_peer.h - what makes a process a peer of a victim by the shm transport's own protocol, as
 * far as a hostile one needs it.
 */
#ifndef FAULTS_HOSTILE_PEER_H
#define FAULTS_HOSTILE_PEER_H

#include <sys/mman.h>

#include "engine/transport/shm/layout.h"
#include "faults.h"

extern uint64_t state; /* of draw() */
uint64_t draw(void);

/* A connection to the victim's listener. */
int dial(pid_t pid);
/* False: the victim has hung up. */
bool packet(int fd, const void *msg, size_t len, const int *fds, unsigned n);
int memory(size_t len, void **map);
/*
 * A full pipe, blocking: a thread that writes to it as it is sleeps for ever.  Both ends are this
 * number.
 */
int full_pipe(void);
/*
 * After too many sockets of ours the victim may refuse some more, until it has noticed that
 * those are gone.
 */
extern bool crowded;
/*
 * A control socket.  With the victim's HELLO come its wake-up page and the pipe that wakes its
 * helper.
 */
int join(pid_t pid, struct shm_inbox **inbox, int *kick);

#endif
