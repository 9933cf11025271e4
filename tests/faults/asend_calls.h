/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * asend_calls.h - messages with RDS_CMSG_ASYNC_SEND, and what is told of their ends.
 */
#ifndef FAULTS_ASEND_CALLS_H
#define FAULTS_ASEND_CALLS_H

#include "faults.h"

#define CMSG_RDMA_ARGS 1
#define CMSG_MAP 3
#define CMSG_STATUS 4
#define CMSG_ASYNC_SEND 10
#define NOTIFY_ME 0x100

#define WORDS 1024u /* of an operation */
#define WINDOW 256u /* so many messages are under way */

enum status { SUCCESS, REMOTE_ERROR, CANCELED, DROPPED, OTHER_ERROR };

struct async {
	uint64_t token, flags;
};
struct notify {
	uint64_t token;
	int32_t status;
	uint32_t pad;
};
struct map {
	uint64_t addr, bytes, cookie_addr, flags;
};

/* Where operations write, in all processes; each writes the number of its message everywhere. */
struct target {
	uint64_t cookie, words[WORDS];
};
extern struct target *target;

union control {
	char bytes[512];
	struct cmsghdr align;
};

/* A new control message; where its content goes. */
void *add(struct msghdr *msg, int type, size_t len);
/* sendmsg() of that to that address */
ssize_t send_with(int fd, struct sockaddr_in to, const void *bytes, size_t len, struct msghdr *msg, int flags);
/* A message whose end is reported with that token: always (notify), or only if it fails. */
ssize_t asend(int fd, struct sockaddr_in to, const void *bytes, size_t len, uint64_t token, bool notify, int flags);
/* ... behind a write of the token into all of the target's words */
ssize_t write_with(int fd, struct sockaddr_in to, const void *bytes, size_t len, uint64_t token, int flags);
/* Reads the next notification alone: there is room for one. */
bool told(int fd, struct notify *n);
void wait_told(int fd, struct notify *n); /* sleeps until there is one */
void expect(int fd, uint64_t token, enum status status);
void expect_nothing(int fd);

#endif
