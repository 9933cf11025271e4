/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * refused.c [-n operations] [-f] - operations of a socket that uses RDS_CMSG_ASYNC_SEND, every
 * eighth with a key that the target refuses: what the program is told of each is true.
 *
 * A success has been carried out, and its message has come, once.  What was refused is no success,
 * and its message never comes.  Nor does one that is dropped, since a program sends it again.
 *
 * -f: connections break meanwhile.  Then it may also be unknown what became of an operation.
 */
#include <sys/mman.h>
#include <sys/prctl.h>

#include "faults.h"

#define CMSG_RDMA_ARGS 1
#define CMSG_STATUS 4
#define CMSG_ATOMIC_FADD 6
#define CMSG_ASYNC_SEND 10
#define GET_MR 2
#define NOTIFY_ME 0x20
#define NOTIFY_END 0x100
#define READWRITE 1
#define OPS_MAX 10000u
#define WINDOW 64u /* so many operations are under way */
#define LAST UINT32_MAX
#define GREETING (LAST - 1)
#define WRONG 0x55550000u /* what makes of a key another one */

#define PORT 22100 /* the sender's; the next is the target's */

enum status { SUCCESS, REMOTE_ERROR, CANCELED, DROPPED, OTHER_ERROR, STATUSES };
enum kind { WRITE, READ, ADD, KINDS };

struct notify {
	uint64_t token;
	int32_t status;
	uint32_t pad;
};

/* What both processes see.  Each operation has a word of its own, with its number in the end. */
static struct target {
	uint64_t cookie, words[OPS_MAX];
	unsigned came[OPS_MAX]; /* so often */
} * target;

static uint64_t local[OPS_MAX];
static bool told[OPS_MAX];
static enum status end[OPS_MAX];
static unsigned ops = 2000, ntold, count[STATUSES];
static bool faults;

static enum kind kind_of(unsigned n)
{
	return (enum kind)(n % KINDS);
}

static bool is_wrong(unsigned n)
{
	return n % 8 == 5;
}

/* ---- the target ---- */

static void __attribute__((noreturn)) target_runs(int ready)
{
	struct {
		uint64_t addr, bytes, cookie_addr, flags;
	} mr = {(uintptr_t)target->words, sizeof(target->words), (uintptr_t)&target->cookie, READWRITE};
	int fd = rds_bound(home(), PORT + 1);
	unsigned n;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	check(setsockopt(fd, SOL_RDS, GET_MR, &mr, sizeof(mr)) == 0);
	check(write(ready, "", 1) == 1);
	do {
		check(recv(fd, &n, sizeof(n), 0) == sizeof(n));
		if (n < ops)
			target->came[n]++;
	} while (n != LAST);
	check(write(ready, "", 1) == 1);
	for (;;)
		pause(); /* its acknowledgement may be on its way */
}

/* ---- the sender ---- */

static ssize_t send_with(int fd, unsigned n, int type, const void *args, size_t len)
{
	union {
		char bytes[128];
		struct cmsghdr align;
	} control = {{0}};
	struct sockaddr_in to = name_of(home(), PORT + 1);
	struct iovec iov = {&n, sizeof(n)};
	struct msghdr msg = {.msg_name = &to,
			     .msg_namelen = sizeof(to),
			     .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = CMSG_SPACE(len)};

	control.align.cmsg_level = SOL_RDS;
	control.align.cmsg_type = type;
	control.align.cmsg_len = CMSG_LEN(len);
	if (len)
		memcpy(CMSG_DATA(&control.align), args, len);
	else
		msg.msg_controllen = 0;
	return sendmsg(fd, &msg, 0);
}

static ssize_t begins(int fd, unsigned n)
{
	uint64_t cookie = target->cookie ^ (is_wrong(n) ? WRONG : 0), at = n * sizeof(uint64_t);
	struct iovec vec = {&local[n], sizeof(local[n])};
	struct {
		uint64_t cookie, remote_addr, remote_bytes, local_vec_addr, nr_local, flags, token;
	} rdma = {cookie, at, sizeof(local[n]), (uintptr_t)&vec, 1, NOTIFY_ME, n};
	struct {
		uint64_t cookie, local_addr, remote_addr, add[4], flags, token;
	} atomic = {cookie, (uintptr_t)&local[n], at, {1}, NOTIFY_ME, n};

	if (kind_of(n) == ADD)
		return send_with(fd, n, CMSG_ATOMIC_FADD, &atomic, sizeof(atomic));
	if (kind_of(n) == WRITE)
		rdma.flags |= READWRITE;
	local[n] = kind_of(n) == WRITE ? n + 1 : 0;
	return send_with(fd, n, CMSG_RDMA_ARGS, &rdma, sizeof(rdma));
}

static struct notify hear(int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(struct notify))];
		struct cmsghdr align;
	} control;
	struct msghdr msg = {.msg_control = &control, .msg_controllen = sizeof(control)};
	struct notify n;

	check(recvmsg(fd, &msg, 0) == 0);
	check(msg.msg_controllen && control.align.cmsg_type == CMSG_STATUS);
	memcpy(&n, CMSG_DATA(&control.align), sizeof(n));
	return n;
}

static void judge(struct notify of)
{
	const unsigned n = (unsigned)of.token;
	const enum status status = (enum status)of.status;
	uint64_t word;

	check(of.token < ops && !told[n] && status < STATUSES && status != CANCELED);
	word = *(volatile uint64_t *)&target->words[n];
	if (status == SUCCESS && (is_wrong(n) || (kind_of(n) == READ ? local[n] : word) != n + 1))
		fail("%u is told as a success", n);
	if (!is_wrong(n) && !faults && status != SUCCESS)
		fail("%u is told as %d", n, (int)status);
	if (status == REMOTE_ERROR && !is_wrong(n))
		fail("%u is told as refused", n);
	told[n] = true;
	end[n] = status;
	ntold++;
	count[status]++;
}

static void judge_message(unsigned n, enum status status)
{
	const unsigned came = target->came[n];

	if (came > (status == SUCCESS || status == OTHER_ERROR) || (status == SUCCESS && !came) || (came && is_wrong(n)))
		fail("%u is told as %d, and its message has come %u times", n, (int)status, came);
}

/* From then on the ends of operations are those of their messages. */
static void greet(int fd)
{
	const uint64_t async[2] = {0, NOTIFY_END};
	struct notify n;

	do {
		check(send_with(fd, GREETING, CMSG_ASYNC_SEND, async, sizeof(async)) == sizeof(unsigned));
		n = hear(fd);
		check(n.status == SUCCESS || (faults && n.status == DROPPED));
	} while (n.status != SUCCESS);
}

static void run(int fd)
{
	unsigned n;

	for (n = 0; n < ops; n++) {
		if (kind_of(n) != WRITE)
			target->words[n] = n + (kind_of(n) == READ);
		while (begins(fd, n) < 0) { /* what has failed has to be read first */
			check(errno == EAGAIN && ntold < n);
			judge(hear(fd));
		}
		while (n - ntold > WINDOW)
			judge(hear(fd));
	}
	while (ntold < ops)
		judge(hear(fd));
}

int main(int argc, char **argv)
{
	double begin = seconds();
	int c, fd, ready[2];
	unsigned n;

	while ((c = getopt(argc, argv, "n:f")) != -1) {
		if (c == 'n')
			ops = (unsigned)strtoul(optarg, NULL, 0);
		else if (c == 'f')
			faults = true;
		else
			exit(2);
	}
	check(ops <= OPS_MAX);
	target = mmap(NULL, sizeof(*target), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(target != MAP_FAILED && pipe(ready) == 0);
	if (!fork())
		target_runs(ready[1]);
	close(ready[1]);
	check(read(ready[0], &c, 1) == 1);
	fd = rds_bound(home(), PORT);
	greet(fd);
	run(fd);
	check(send_with(fd, LAST, 0, NULL, 0) == sizeof(n)); /* a plain message goes again by itself */
	check(read(ready[0], &c, 1) == 1);
	for (n = 0; n < ops; n++)
		judge_message(n, end[n]);
	printf("ok %u operations, %u disconnects, %u successes, %u refused, %u dropped, %u unknown, %.1f s\n", ops,
	       (unsigned)counter(fd, "conn_reset"), count[SUCCESS], count[REMOTE_ERROR], count[DROPPED],
	       count[OTHER_ERROR], seconds() - begin);
	return 0;
}
