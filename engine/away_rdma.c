/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * away_rdma.c - RDMA and RDS_BARRIER on a socket that this process only holds: its memory is given to the carrier (memory.h), what a call names of
 * it is tried here, and the mark is stored here.
 *
 * The carrier can read and write all of this process from then on, so it has to be of the same user, or of root, by the kernel's word; to another
 * one nothing is given, and such calls end in EOPNOTSUPP.
 *
 * Must not know how a call gets to the carrier (away.c), nor what operations are.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "engine/away_impl.h"
#include "engine/legacy_abi.h"
#include "engine/memory.h"
#include "engine/options.h"
#include "engine/os.h"
#include "engine/rdma.h"
#include "engine/rdma_try.h"
#include "engine/uaccess.h"

/* ---- who is it? ---- */

static bool may_have_it(const struct ucred *them)
{
	return them->pid > 0 && (them->uid == geteuid() || them->uid == 0);
}

/* The next answer, with the kernel's word on who has sent it: 0 or -errno. */
static int answered_by(int fd, struct away_slot *s, struct away_call *c, struct ucred *them)
{
	struct rds_share_answer a;
	char cbuf[CMSG_SPACE(sizeof(*them)) + CMSG_SPACE(sizeof(int) * OS_PASS_MAX)];
	struct iovec iov = {&a, sizeof(a)};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = cbuf, .msg_controllen = sizeof(cbuf)};
	struct pollfd p = {.fd = atomic_load(&s->fd), .events = POLLIN};
	struct cmsghdr *cm;
	ssize_t n;
	int err;

	do {
		if (away_ends(c) && (err = away_wait(fd, c, &p, true)))
			return err;
		n = os_recvmsg(p.fd, &mh, MSG_CMSG_CLOEXEC);
	} while (n == -EINTR);
	if (n != (ssize_t)sizeof(a) || a.kind != RDS_SHARE_REPLY || a.seq != s->seq)
		return -ECONNRESET; /* it leaves just now: nothing was done */
	for (cm = CMSG_FIRSTHDR(&mh); cm; cm = CMSG_NXTHDR(&mh, cm))
		if (cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_CREDENTIALS) {
			memcpy(them, CMSG_DATA(cm), sizeof(*them));
			return 0;
		}
	return -ECONNRESET;
}

static int say(struct away_slot *s, int memory)
{
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_MEMORY, .seq = ++s->seq};
	int err;

	do
		err = os_pass_send(atomic_load(&s->fd), &q, sizeof(q), &memory, memory >= 0, 0);
	while (err == -EINTR);
	return err;
}

/* Asks first, then gives: an answer from somebody else than expected is as good as none, and the call ends in EOPNOTSUPP there. */
int away_memory_give(int fd, struct away_slot *s, struct away_call *c)
{
	int on = 1, off = 0, err, channel = atomic_load(&s->fd), memory = -1;
	struct ucred them;

	if (s->memory_given)
		return 0;
	os_setsockopt(channel, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	err = say(s, -1);
	if (!err)
		err = answered_by(fd, s, c, &them);
	if (!err && may_have_it(&them))
		memory = rds_memory_open();
	if (memory >= 0) {
		err = say(s, memory);
		os_close(memory);
		if (!err)
			err = answered_by(fd, s, c, &them);
	}
	os_setsockopt(channel, SOL_SOCKET, SO_PASSCRED, &off, sizeof(off));
	s->memory_given = !err;
	return err == -EPIPE ? -ECONNRESET : err;
}

/* ---- what calls name ---- */

static void names(struct away_call *c, struct rds_rdma_tried tried)
{
	c->q.names_memory = true;
	c->q.fault = tried.fault;
	c->q.word = tried.word;
	c->q.abi = (int32_t)rds_options()->abi;
	c->q.epoch = rds_abi_epoch();
}

void away_try_message(struct away_call *c, const struct msghdr *msg)
{
	if (rds_rdma_names_memory(msg))
		names(c, rds_rdma_try(msg));
}

void away_try_option(struct away_call *c, const void *val)
{
	if (rds_rdma_opt_names_memory(c->q.level, c->q.opt, (socklen_t)c->q.arg) && c->q.has_name)
		names(c, rds_rdma_try_opt(c->q.opt, val, (socklen_t)c->q.arg));
}

/* ---- the barrier ---- */

int away_barrier(int fd, const void *val, int len, bool blocks)
{
	struct rds_barrier_request req = {0};
	struct iovec iov = {&req, sizeof(req)};
	struct away_call c = {.q = {.op = RDS_SHARE_BARRIER}, .data = &iov};
	uint64_t mark;
	int64_t rc;

	c.q.flags = rds_barrier_decode(val, len, &req);
	if (!c.q.flags) {
		c.n_data = 1;
		c.q.data_len = sizeof(req);
		c.q.may_wait = blocks && !req.nonblock;
	}
	rc = away_call(fd, &c);
	if (c.slot && (!rc || rc == -EAGAIN) && c.a.data_len == sizeof(mark)) {
		memcpy(&mark, c.out_data, sizeof(mark));
		if (rds_barrier_store(&req, mark))
			rc = -EFAULT;
	}
	away_end(&c);
	return rc == -ETIMEDOUT ? -EAGAIN : (int)rc; /* the latter is what RDS says */
}
