/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* hostile_peer.c - see hostile_peer.h. */
#include <fcntl.h>
#include <glob.h>
#include <stddef.h>
#include <sys/un.h>

#include "hostile_peer.h"

uint64_t state = 1;
bool crowded;

uint64_t draw(void)
{
	return state = mix(state);
}

/* Has any thread of that process this socket?  (The helper has a descriptor table of its own.) */
static bool has_socket(pid_t pid, unsigned long inode)
{
	char pattern[64], want[64], to[64];
	bool found = false;
	glob_t numbers;
	ssize_t n;
	size_t i;

	snprintf(pattern, sizeof(pattern), "/proc/%d/task/*/fd/*", (int)pid);
	snprintf(want, sizeof(want), "socket:[%lu]", inode);
	check(glob(pattern, GLOB_NOSORT, NULL, &numbers) == 0);
	for (i = 0; i < numbers.gl_pathc && !found; i++) {
		n = readlink(numbers.gl_pathv[i], to, sizeof(to) - 1);
		to[n < 0 ? 0 : n] = 0;
		found = strcmp(to, want) == 0;
	}
	globfree(&numbers);
	return found;
}

/*
 * The victim's listener.  Only that is dialled: others of the network namespace are of processes
 * that have nothing to do with this test, and one that is stopped, its queue full, would keep us
 * for ever.
 */
int dial(pid_t pid)
{
	FILE *f = fopen("/proc/net/unix", "r");
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	unsigned long inode;
	char line[512], *at;
	socklen_t len;
	int fd;

	check(f);
	while (fgets(line, sizeof(line), f)) {
		at = strstr(line, "@rdspreload-shm-");
		if (!at || sscanf(line, "%*s %*s %*s %*s %*s %*s %lu", &inode) != 1 || !has_socket(pid, inode))
			continue;
		at[strcspn(at, "\n")] = 0;
		len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(at));
		memcpy(un.sun_path, at, strlen(at));
		un.sun_path[0] = 0;
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		check(fd >= 0);
		if (connect(fd, (struct sockaddr *)&un, len) == 0) {
			fclose(f);
			return fd;
		}
		close(fd); /* a connection that was accepted has the listener's name, too */
	}
	fail("the victim's listener was not found");
}

bool packet(int fd, const void *msg, size_t len, const int *fds, unsigned n)
{
	char ctl[CMSG_SPACE(3 * sizeof(int))] __attribute__((aligned(8))) = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)msg, .iov_len = len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *cm;

	if (n) {
		mh.msg_control = ctl;
		mh.msg_controllen = CMSG_SPACE(n * sizeof(int));
		cm = CMSG_FIRSTHDR(&mh);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, n * sizeof(int));
	}
	return sendmsg(fd, &mh, MSG_NOSIGNAL) >= 0;
}

int memory(size_t len, void **map)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	check(fd >= 0 && ftruncate(fd, (off_t)len) == 0);
	check(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW) == 0);
	*map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(*map != MAP_FAILED);
	return fd;
}

int full_pipe(void)
{
	char path[32], page[4096] = {0};
	int fds[2], fd;

	check(pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0);
	while (write(fds[1], page, sizeof(page)) > 0)
		;
	check(errno == EAGAIN);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[1]);
	fd = open(path, O_RDWR | O_CLOEXEC);
	check(fd >= 0);
	close(fds[0]);
	close(fds[1]);
	return fd;
}

int join(pid_t pid, struct shm_inbox **inbox, int *kick)
{
	char ctl[CMSG_SPACE(3 * sizeof(int))] __attribute__((aligned(8)));
	struct shm_ctl_msg msg;
	struct iovec iov = {.iov_base = &msg, .iov_len = sizeof(msg)};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof(ctl)};
	struct cmsghdr *cm;
	int fds[3], fd = dial(pid);
	unsigned looks = 0;
	ssize_t n;

	while ((n = recvmsg(fd, &mh, 0)) <= 0 && crowded) {
		close(fd);
		test_pause(&looks);
		fd = dial(pid);
		mh.msg_controllen = sizeof(ctl);
	}
	check(n == sizeof(msg) && msg.op == SHM_OP_HELLO);
	cm = CMSG_FIRSTHDR(&mh);
	check(cm && cm->cmsg_len == CMSG_LEN(sizeof(fds)));
	memcpy(fds, CMSG_DATA(cm), sizeof(fds));
	*inbox = mmap(NULL, SHM_CTL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[2], 0);
	check(*inbox != MAP_FAILED);
	close(fds[0]);
	close(fds[2]);
	*kick = fds[1];
	return fd;
}
