/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* asend_calls.c - see asend_calls.h. */
#include "asend_calls.h"

#define ARGS_FLAGS 0x21 /* a write, NOTIFY_ME */

struct rdma {
	uint64_t cookie, remote_addr, remote_bytes, local_vec_addr, nr_local, flags, token;
};

struct target *target;
static uint64_t written[WINDOW][WORDS];

void *add(struct msghdr *msg, int type, size_t len)
{
	struct cmsghdr *c = (struct cmsghdr *)(void *)((char *)msg->msg_control + msg->msg_controllen);

	c->cmsg_level = SOL_RDS;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	msg->msg_controllen += CMSG_SPACE(len);
	return CMSG_DATA(c);
}

ssize_t send_with(int fd, struct sockaddr_in to, const void *bytes, size_t len, struct msghdr *msg, int flags)
{
	struct iovec iov = {(void *)(uintptr_t)bytes, len};

	msg->msg_name = &to;
	msg->msg_namelen = sizeof(to);
	msg->msg_iov = &iov;
	msg->msg_iovlen = 1;
	return sendmsg(fd, msg, flags);
}

ssize_t asend(int fd, struct sockaddr_in to, const void *bytes, size_t len, uint64_t token, bool notify, int flags)
{
	union control control = {{0}};
	struct msghdr msg = {.msg_control = &control};
	struct async a = {token, notify ? NOTIFY_ME : 0};

	memcpy(add(&msg, CMSG_ASYNC_SEND, sizeof(a)), &a, sizeof(a));
	return send_with(fd, to, bytes, len, &msg, flags);
}

ssize_t write_with(int fd, struct sockaddr_in to, const void *bytes, size_t len, uint64_t token, int flags)
{
	uint64_t *words = written[token % WINDOW];
	struct iovec iov = {words, sizeof(written[0])};
	union control control = {{0}};
	struct msghdr msg = {.msg_control = &control};
	struct rdma r = {target->cookie, 0, sizeof(written[0]), (uintptr_t)&iov, 1, ARGS_FLAGS, token};

	for (unsigned i = 0; i < WORDS; i++)
		words[i] = token;
	memcpy(add(&msg, CMSG_RDMA_ARGS, sizeof(r)), &r, sizeof(r));
	return send_with(fd, to, bytes, len, &msg, flags);
}

bool told(int fd, struct notify *n)
{
	union control control = {{0}};
	struct msghdr msg = {.msg_control = &control, .msg_controllen = CMSG_SPACE(sizeof(*n))};

	if (recvmsg(fd, &msg, MSG_DONTWAIT) < 0) {
		check(errno == EAGAIN);
		return false;
	}
	if (!msg.msg_controllen) /* of a congestion map: there is none */
		fail("a message that nobody has sent");
	check(control.align.cmsg_type == CMSG_STATUS && control.align.cmsg_len == CMSG_LEN(sizeof(*n)));
	memcpy(n, CMSG_DATA(&control.align), sizeof(*n));
	return true;
}

void wait_told(int fd, struct notify *n)
{
	double end = seconds() + TEST_COMES / 1000;

	while (!told(fd, n)) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		if (seconds() > end)
			test_late("what is to be told of an operation");
		check(poll(&p, 1, 1000) >= 0);
	}
}

void expect(int fd, uint64_t token, enum status status)
{
	struct notify n;

	wait_told(fd, &n);
	if (n.token != token || n.status != (int)status)
		fail("told of %llu that it is %d, not of %llu that it is %d", (unsigned long long)n.token, n.status,
		     (unsigned long long)token, (int)status);
}

void expect_nothing(int fd)
{
	struct notify n;

	if (told(fd, &n))
		fail("told of %llu that it is %d", (unsigned long long)n.token, n.status);
}
