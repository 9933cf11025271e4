/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_ages.c - two programs of different ages with one socket: what the younger one uses has no
 * effect on the older one, whichever of them owns the socket.  Under the preload only: today's
 * kernel knows no structure of 2007.
 *
 * The layouts are those of the public tools; nothing here comes from the library's own headers.
 */
#include "program.h"

#include <stdint.h>
#include <sys/uio.h>

#define SOL_RDS 276
#define GET_MR 2
#define RECVERR 5
#define RDMA_ARGS 1
#define RDMA_STATUS 4
#define WRITE 0x01
#define NOTIFY_ME 0x20
#define L 5000
#define TOKEN UINT64_C(0x123456789abcdef0)

static unsigned char from[L], to[L];
static struct sockaddr_in at;
static int fd;

struct vec {
	uint64_t addr, bytes;
};

static void send_args(const uint64_t *words, size_t size)
{
	union {
		struct cmsghdr hdr;
		char bytes[CMSG_SPACE(64)];
	} control = {.hdr = {.cmsg_len = CMSG_LEN(size), .cmsg_level = SOL_RDS, .cmsg_type = RDMA_ARGS}};
	struct msghdr msg = {.msg_name = &at,
			     .msg_namelen = sizeof(at),
			     .msg_control = &control,
			     .msg_controllen = CMSG_SPACE(size)};

	memcpy(CMSG_DATA(&control.hdr), words, size);
	check(sendmsg(fd, &msg, 0) == 0);
}

/* November 2007: where, how much, the key; and word 6 is where the number of the operation goes. */
static void older(uint64_t key)
{
	struct vec local = {(uintptr_t)from, L};
	uint64_t id = 0, words[7] = {0, L, key, (uintptr_t)&local, 1, WRITE, (uintptr_t)&id};
	char c;

	memset(from, 'o', L);
	send_args(words, sizeof(words));
	check(id == 1, "%llu", (unsigned long long)id);
	check(recv(fd, &c, 1, 0) == 0);
	check(!memcmp(to, from, L));
}

/*
 * The key first, a token of 64 bits, and bytes behind it that mean nothing: only a library of that
 * age could take them for more.
 */
static void younger(void *arg)
{
	struct vec local = {(uintptr_t)from, L};
	uint64_t words[8] = {*(uint64_t *)arg, 0, L, (uintptr_t)&local, 1, WRITE | NOTIFY_ME, TOKEN, 77};
	union {
		struct cmsghdr hdr;
		char bytes[256];
	} control;
	struct msghdr msg = {.msg_control = &control, .msg_controllen = sizeof(control)};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t token;
	int on = 1;

	check(setsockopt(fd, SOL_RDS, RECVERR, &on, sizeof(on)) == 0);
	memset(from, 'y', L);
	send_args(words, sizeof(words));
	do {
		msg.msg_controllen = sizeof(control);
		check(poll(&p, 1, TEST_COMES) == 1);
		check(recvmsg(fd, &msg, MSG_DONTWAIT) == 0);
	} while (!msg.msg_controllen); /* the message that came with it */
	check(control.hdr.cmsg_level == SOL_RDS && control.hdr.cmsg_type == RDMA_STATUS);
	check(control.hdr.cmsg_len == CMSG_LEN(16), "%zu", (size_t)control.hdr.cmsg_len);
	memcpy(&token, CMSG_DATA(&control.hdr), sizeof(token));
	check(token == TOKEN, "%llx", (unsigned long long)token);
}

int main(void)
{
	uint64_t key = 0, args[4] = {(uintptr_t)to, L, (uintptr_t)&key, WRITE};
	struct pollfd p;
	char c;

	fd = bound(&at);
	check(setsockopt(fd, SOL_RDS, GET_MR, args, sizeof(args)) == 0);
	check(key);
	finished(start(younger, &key));
	p = (struct pollfd){.fd = fd, .events = POLLIN};
	while (poll(&p, 1, 0) == 1 && recv(fd, &c, 1, MSG_DONTWAIT) == 0)
		;
	older(key);
	printf("each by its own age\n");
	return 0;
}
