/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * held.c - a process's sockets are opened by another process, the keeper.  The keeper owns them: it
 * passes them, keeps no descriptor of them, and lives until the process has ended.  There is one
 * keeper for all sockets, or several in turn.
 */
#define _GNU_SOURCE
#include "held.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTLIVES_MS 2000

static int pass(int over, int fd)
{
	char cbuf[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0}, byte = 'f';
	struct iovec iov = {&byte, 1};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = cbuf, .msg_controllen = sizeof(cbuf)};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);

	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cm), &fd, sizeof(fd));
	return sendmsg(over, &mh, 0) == 1 ? 0 : -1;
}

static int take(int over, int type)
{
	char cbuf[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))), byte;
	struct iovec iov = {&byte, 1};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = cbuf, .msg_controllen = sizeof(cbuf)};
	struct cmsghdr *cm;
	int fd;

	if (recvmsg(over, &mh, type & SOCK_CLOEXEC ? MSG_CMSG_CLOEXEC : 0) != 1 || !(cm = CMSG_FIRSTHDR(&mh)) || cm->cmsg_type != SCM_RIGHTS)
		return -1;
	memcpy(&fd, CMSG_DATA(cm), sizeof(fd));
	/* Ours is the last descriptor only when the keeper has closed its own. */
	return read(over, &byte, 1) == 1 ? fd : -1;
}

/* scripts/aarch64 takes low numbers with /dev/null: a socket of such a number does not work there. */
static bool is_null(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

/* The keeper: its parent has ended, and of our descriptors it keeps 0 to 2, this one, and /dev/null. */
static void keep(int over)
{
	int fd, type;

	if (fork())
		_exit(0);
	for (fd = 3; fd < 1024; fd++) {
		if (fd != over && !is_null(fd))
			close(fd);
	}
	while (read(over, &type, sizeof(type)) == sizeof(type) && (fd = socket(21, type, 0)) >= 0) {
		if (pass(over, fd) || close(fd) || write(over, "", 1) != 1)
			break;
	}
	/*
	 * As long as this process lives, messages to sockets that have just ended are dropped here
	 * (librdspreload(7), "Limits").
	 */
	poll(NULL, 0, OUTLIVES_MS);
	_exit(0);
}

static int keeper(void)
{
	int sv[2], status;
	pid_t middle;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return -1;
	middle = fork();
	if (!middle)
		keep(sv[1]);
	close(sv[1]);
	if (middle < 0 || waitpid(middle, &status, 0) != middle)
		return -1;
	return sv[0]; /* it closes with this process, and then the keeper ends */
}

/* The next one of so many keepers, in turn. */
static int a_keeper(unsigned many)
{
	static struct {
		pid_t whose;
		int to;
	} all[HELD_KEEPERS], *k;
	static unsigned turn;

	k = &all[turn++ % many];
	/* A program may have closed all its descriptors. */
	if (k->whose != getpid() || fcntl(k->to, F_GETFD) < 0) {
		k->to = keeper();
		k->whose = k->to < 0 ? 0 : getpid();
	}
	return k->to;
}

int held_socket(int type, bool apart)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	int over, fd = -1;

	pthread_mutex_lock(&one);
	over = a_keeper(apart ? HELD_KEEPERS : 1);
	if (over >= 0 && write(over, &type, sizeof(type)) == sizeof(type))
		fd = take(over, type);
	pthread_mutex_unlock(&one);
	return fd;
}
