/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * hostile.c [-r rounds] [-S seed] - a peer process that writes nonsense into everything it shares with a victim.
 *
 * The victim (a plain PF_RDS program under the preload) answers a partner all the time.  The attacker joins as a peer by the
 * transport's own protocol and then scribbles over ring memory and indices, rings bells of connections that do not exist and
 * sends malformed packets.  After every round the partner must get its answers, and at the end the victim must live.
 *
 * Knows the layout of the shm transport (layout.h) and nothing else of the project.
 */
#include <signal.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "engine/transport/shm/layout.h"
#include "faults.h"

#define PORT 23000
#define RING (2u << 20)

static uint64_t state = 1;

static uint64_t draw(void)
{
	return state = mix(state);
}

static void victim(int ready)
{
	int fd = rds_bound(htonl(INADDR_LOOPBACK), PORT);
	struct sockaddr_in from;
	char buf[8192];

	check(write(ready, "", 1) == 1);
	for (;;) {
		socklen_t len = sizeof(from);
		ssize_t n = recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len);

		check(n >= 0);
		if (ntohs(from.sin_port) == PORT + 1)
			check(sendto(fd, buf, (size_t)n, 0, (struct sockaddr *)&from, len) == n);
	}
}

/* One byte in: so many round trips; one byte out. */
static void partner(int in, int out)
{
	int fd = rds_bound(htonl(INADDR_LOOPBACK), PORT + 1);
	struct sockaddr_in to = name_of(htonl(INADDR_LOOPBACK), PORT);
	char buf[4096], want[4096], c;
	unsigned i;

	while (read(in, &c, 1) == 1) {
		for (i = 0; i < 50; i++) {
			message_fill((unsigned char *)want, i, sizeof(want));
			check(sendto(fd, want, sizeof(want), 0, (struct sockaddr *)&to, sizeof(to)) == sizeof(want));
			check(recv(fd, buf, sizeof(buf), 0) == sizeof(buf) && memcmp(buf, want, sizeof(want)) == 0);
		}
		check(write(out, &c, 1) == 1);
	}
	exit(0);
}

/* The victim's listener: the one of that kind whose process is the victim. */
static int dial(pid_t pid)
{
	FILE *f = fopen("/proc/net/unix", "r");
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	char line[512], *at;
	struct ucred cred;
	socklen_t len;
	int fd;

	check(f);
	while (fgets(line, sizeof(line), f)) {
		at = strstr(line, "@rdspreload-shm-");
		if (!at)
			continue;
		at[strcspn(at, "\n")] = 0;
		len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(at));
		memcpy(un.sun_path, at, strlen(at));
		un.sun_path[0] = 0;
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		check(fd >= 0);
		if (connect(fd, (struct sockaddr *)&un, len) == 0) {
			len = sizeof(cred);
			check(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0);
			if (cred.pid == pid) {
				fclose(f);
				return fd;
			}
		}
		close(fd);
	}
	fail("the victim's listener was not found");
}

static void packet(int fd, const void *msg, size_t len, const int *fds, unsigned n)
{
	char ctl[CMSG_SPACE(2 * sizeof(int))] __attribute__((aligned(8))) = {0};
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
	(void)!sendmsg(fd, &mh, MSG_NOSIGNAL); /* the victim may have hung up already: that is its right */
}

static int memory(size_t len, void **map)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	check(fd >= 0 && ftruncate(fd, (off_t)len) == 0);
	check(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW) == 0);
	*map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(*map != MAP_FAILED);
	return fd;
}

/* A pipe in which nothing has room any more, blocking: who writes to it as it is sleeps for ever. Both ends are this number. */
static int full_pipe(void)
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

/* The victim's inbox comes with its HELLO. */
static struct shm_inbox *inbox_of(int fd)
{
	char ctl[CMSG_SPACE(2 * sizeof(int))] __attribute__((aligned(8)));
	struct shm_ctl_msg msg;
	struct iovec iov = {.iov_base = &msg, .iov_len = sizeof(msg)};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof(ctl)};
	struct cmsghdr *cm;
	void *map;
	int fds[2];

	check(recvmsg(fd, &mh, 0) == sizeof(msg) && msg.op == SHM_OP_HELLO);
	cm = CMSG_FIRSTHDR(&mh);
	check(cm && cm->cmsg_len == CMSG_LEN(sizeof(fds)));
	memcpy(fds, CMSG_DATA(cm), sizeof(fds));
	map = mmap(NULL, SHM_CTL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
	check(map != MAP_FAILED);
	close(fds[0]);
	close(fds[1]);
	return map;
}

static uint64_t nonsense(void)
{
	switch (draw() % 5) {
	case 0:
		return draw();
	case 1:
		return draw() % (2 * RING) & ~63ull;
	case 2:
		return UINT64_MAX - draw() % 128;
	case 3:
		return draw() % 256;
	}
	return 64 * (draw() % 64);
}

static void scribble(struct shm_rings *rings, unsigned char *data)
{
	unsigned i, j;

	for (i = 0; i < 4096; i += 64) { /* records that look nearly right */
		struct shm_rec *rec = (struct shm_rec *)(data + i);

		rec->len = draw() % 4 ? 64u * (uint32_t)(1 + draw() % 32) : (uint32_t)nonsense();
		rec->kind = (uint32_t)(draw() % 4);
		for (j = 0; j < sizeof(rec->hdr); j++)
			((unsigned char *)&rec->hdr)[j] = draw() % 3 ? 0 : (unsigned char)draw();
	}
	for (i = 0; i < 2; i++) {
		atomic_store(&rings->ctl[i].tail, nonsense());
		if (draw() % 2)
			atomic_store(&rings->ctl[i].head, nonsense());
		atomic_store(&rings->ctl[i].acked, nonsense());
		atomic_store(&rings->ctl[i].want_room, (uint32_t)draw());
	}
}

static void attack(pid_t pid)
{
	struct shm_ctl_msg hello = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_HELLO};
	struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_CONNECT, .ring = RING, .cookie = 1};
	struct shm_ctl_msg kick = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_KICK};
	size_t len = SHM_CTL_BYTES + 2 * (size_t)RING;
	int fd = dial(pid), fds[2];
	struct shm_inbox *theirs = inbox_of(fd);
	void *inbox, *map;
	unsigned i, kind = (unsigned)(draw() % 8);

	fds[0] = kind == 5 ? eventfd(0, 0) : full_pipe();
	fds[1] = memory(SHM_CTL_BYTES, &inbox);
	atomic_store(&((struct shm_inbox *)inbox)->attention, 2); /* our leader sleeps: write to that pipe */
	for (i = 0; i < sizeof(hello.self.b); i++)
		hello.self.b[i] = (uint8_t)draw();
	if (kind == 0)
		hello.version++;
	packet(fd, &hello, kind == 1 ? 17 : sizeof(hello), fds, kind == 2 ? 1 : 2);
	close(fds[0]);
	close(fds[1]);
	msg.laddr.s6_addr32[2] = msg.faddr.s6_addr32[2] = htonl(0xffff);
	msg.laddr.s6_addr32[3] = msg.faddr.s6_addr32[3] = htonl(INADDR_LOOPBACK);
	if (kind == 3)
		msg.ring = nonsense();
	if (kind == 4)
		msg.bell = (uint32_t)nonsense();
	fds[0] = memory(len, &map);
	atomic_store(&((struct shm_rings *)map)->ctl[1].need_bell, 1);
	packet(fd, &msg, sizeof(msg), fds, 1);
	close(fds[0]);
	for (i = 0; i < 20; i++) {
		scribble(map, (unsigned char *)map + SHM_CTL_BYTES);
		for (unsigned w = 0; w < SHM_BELLS / 64; w++)
			atomic_store(&theirs->words[w], draw());
		atomic_store(&theirs->summary, UINT64_MAX);
		kick.op = i % 4 == 3 ? (uint32_t)draw() % 7 : (uint32_t)SHM_OP_KICK;
		kick.err = (int)draw();
		kick.cookie = draw() % 3;
		packet(fd, &kick, sizeof(kick), NULL, 0);
	}
	munmap(map, len);
	munmap(inbox, SHM_CTL_BYTES);
	munmap(theirs, SHM_CTL_BYTES);
	close(fd);
}

int main(int argc, char **argv)
{
	unsigned rounds = 100, n;
	int c, ready[2], in[2], out[2], status;
	pid_t pid, mate;
	char b;

	while ((c = getopt(argc, argv, "r:S:")) != -1) {
		if (c == 'r')
			rounds = (unsigned)strtoul(optarg, NULL, 0);
		else if (c == 'S')
			state = strtoull(optarg, NULL, 0);
		else
			return 2;
	}
	alarm(60);
	check(pipe(ready) == 0 && pipe(in) == 0 && pipe(out) == 0);
	pid = fork();
	check(pid >= 0);
	if (!pid) {
		alarm(60);
		close(in[1]); /* the partner ends when nobody has it any more */
		close(out[1]);
		victim(ready[1]);
	}
	check(read(ready[0], &b, 1) == 1);
	mate = fork();
	check(mate >= 0);
	if (!mate) {
		alarm(60);
		close(in[1]);
		partner(in[0], out[1]);
	}
	close(out[1]);
	for (n = 0; n < rounds; n++) {
		check(write(in[1], "", 1) == 1); /* the partner is at it while we attack */
		attack(pid);
		if (read(out[0], &b, 1) != 1)
			fail("round %u: no answer from the victim", n);
	}
	close(in[1]);
	check(waitpid(mate, &status, 0) == mate && status == 0);
	check(waitpid(pid, &status, WNOHANG) == 0); /* it lives */
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	printf("ok: %u attacks, the victim went on\n", rounds);
	return 0;
}
