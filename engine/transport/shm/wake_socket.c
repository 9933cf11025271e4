/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * wake_socket.c - how a process is woken without a descriptor of it: by a datagram.
 *
 * Each process has one AF_UNIX datagram socket with an abstract name made of its process id.  A
 * datagram there wakes the helper, and the helper's round does the rest: it receives, and wakes the
 * leader.  So it costs a context switch more than a pipe, and is for cold peers only (cold.c).
 *
 * A datagram tells nothing that has to be true.  At most it makes the helper look at all rings, and
 * that once per tick.  A stranger can keep the helper awake, and nothing else.
 *
 * The sender's own socket may be full of datagrams to processes that are stopped.  So a full socket
 * does not mean that the peer will wake up, and the caller has to try again.
 */
#include <string.h>
#include <sys/un.h>

#include "engine/node/socket_name.h"
#include "engine/transport/shm/shm.h"

#define PREFIX "rdspreload-wake-"
enum { WAKE_RUN = 'w', WAKE_LOOK = 'l' };

static atomic_flag opening = ATOMIC_FLAG_INIT;

static void wake_came(struct rds_helper_event *ev, uint32_t events)
{
	unsigned most = RDS_EVENT_MAX; /* level triggered: the event comes again for the rest */
	char what = 0;

	(void)ev;
	(void)events;
	while (most-- && os_recv(os_fd(&rds_shm.wake), &what, 1, MSG_DONTWAIT) >= 0)
		if (what == WAKE_LOOK)
			shm_recheck_inbox();
}

int shm_wake_socket_open(void)
{
	struct sockaddr_un un;
	socklen_t len = rds_node_name_address(PREFIX, registry_self(rds_node_registry), &un);
	_Atomic int *slot = &rds_shm.wake.n[os_fd_table];
	int err = os_dup_high_slot(os_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), slot);

	rds_shm.wake_event.fn = wake_came;
	if (!err)
		err = os_bind(atomic_load(slot), (struct sockaddr *)&un, len);
	if (!err)
		err = rds_helper_event_add(&rds_shm.wake_event, slot, EPOLLIN);
	return err;
}

/* A program's thread, when it wakes a cold peer for the first time: the socket in its own table. */
static int wake_socket_of_program(void)
{
	if (atomic_flag_test_and_set(&opening))
		return -EAGAIN;
	if (os_fd(&rds_shm.wake) < 0)
		os_dup_high_slot(os_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), &rds_shm.wake.n[0]);
	atomic_flag_clear(&opening);
	return os_fd(&rds_shm.wake);
}

int shm_wake_socket_send(const struct rds_procid *id, bool look)
{
	char what = look ? WAKE_LOOK : WAKE_RUN;
	struct iovec iov = {&what, 1};
	struct sockaddr_un un;
	struct msghdr mh = {.msg_name = &un, .msg_iov = &iov, .msg_iovlen = 1};
	int fd = os_fd(&rds_shm.wake);
	ssize_t n;

	if (fd < 0 && !os_fd_table)
		fd = wake_socket_of_program();
	if (fd < 0)
		return -EMFILE;
	mh.msg_namelen = rds_node_name_address(PREFIX, id, &un);
	n = os_sendmsg(fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n < 0 ? (int)n : 0;
}

void shm_wake_socket_init(void)
{
	os_fd_init(&rds_shm.wake);
	atomic_flag_clear(&opening);
}

void shm_wake_socket_close(void)
{
	os_close_slot(&rds_shm.wake.n[os_fd_table]);
}
