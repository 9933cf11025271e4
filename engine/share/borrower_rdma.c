/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * borrower_rdma.c - RDMA and RDS_BARRIER on a borrowed socket.
 *
 * This process grants its memory to the owner (memory_grant.h), checks the memory that a call
 * names, and stores the barrier's mark.
 *
 * The owner can read and write all memory of this process from then on, so it has to run as the
 * same user or as root.  Another owner gets no access, and such calls end in EOPNOTSUPP.
 *
 * Must not know how a call gets to the owner (borrower_channel.c), nor what operations are.
 */
#include <errno.h>
#include <string.h>

#include "engine/share/borrower_impl.h"
#include "engine/abi/revisions.h"
#include "engine/abi/foreign_memory.h"
#include "engine/share/memory_grant.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/rdma/rdma.h"
#include "engine/share/rdma_probe.h"

/* ---- our memory ---- */

/* A refusal (-EPERM) is final for this channel; any other error is the call's error. */
int borrower_memory_grant(int fd, struct borrower_channel *s, struct borrower_call *c)
{
	struct borrower_call ask = {.q = {.op = RDS_SHARE_MEMORY, .may_wait = c->q.may_wait},
				    .inode = c->inode,
				    .wait = borrower_call_wait(c)};
	struct rds_grant_address door;
	int err;

	if (s->memory_given)
		return 0;
	err = borrower_channel_ask(fd, s, &ask);
	c->late = ask.late;
	if (err)
		return err;
	if (ask.a.result || ask.a.data_len != sizeof(door))
		return ask.a.result < 0 ? (int)ask.a.result : -EPROTO;
	memcpy(&door, ask.out_data, sizeof(door));
	err = rds_borrower_grant_send(&door);
	s->memory_given = !err || err == -EPERM;
	return err == -EPERM ? 0 : err;
}

/* ---- memory that calls name, and the program's age that they show ---- */

void borrower_set_abi(struct borrower_call *c)
{
	c->q.abi = (int32_t)rds_options()->abi;
	c->q.epoch = rds_abi_epoch();
	c->q.about |= rds_abi_numbers_read() ? RDS_SHARE_NUMBERS : 0;
}

static void request_set_memory(struct borrower_call *c, struct rds_share_probe tried)
{
	c->q.names_memory = true;
	c->q.fault = tried.fault;
	c->q.word = tried.word;
	c->q.about |= rds_caller_may_pin() ? 0 : RDS_SHARE_NO_PIN;
	c->opens = tried.opens;
}

void borrower_probe_message(struct borrower_call *c, const struct msghdr *msg)
{
	unsigned kinds = rds_share_rdma_kinds(msg);

	if (kinds & RDS_HAS_ASYNC)
		rds_abi_note_modern();
	if (kinds & RDS_NAMES_MEMORY)
		request_set_memory(c, rds_share_probe_message(msg));
	borrower_set_abi(c);
}

void borrower_probe_option(struct borrower_call *c, const void *val)
{
	if (rds_abi_level_is_rds(c->q.level))
		rds_abi_note_option(c->q.opt);
	if (rds_share_opt_names_memory(c->q.level, c->q.opt, (socklen_t)c->q.arg) && c->q.has_name)
		request_set_memory(c, rds_share_probe_option(c->q.opt, val, (socklen_t)c->q.arg));
	borrower_set_abi(c);
}

bool borrower_call_frees_mr(int fd, const struct borrower_call *c, struct borrower_region *was)
{
	struct rds_free_mr_args args;
	struct stat st;

	if (!rds_share_opt_frees_mr(c->q.level, c->q.opt) || c->q.data_len != sizeof(args) || os_fstat(fd, &st))
		return false;
	memcpy(&args, c->data->iov_base, sizeof(args));
	return rds_cookie_rkey(args.cookie) && /* 0: all regions */
	       borrower_region_freed(st.st_ino, rds_cookie_rkey(args.cookie), was);
}

/* ---- the barrier ---- */

int borrower_barrier(int fd, const void *val, int len, bool blocks)
{
	struct rds_barrier_request req = {0};
	struct iovec iov = {&req, sizeof(req)};
	struct borrower_call c = {.q = {.op = RDS_SHARE_BARRIER}, .data = &iov};
	uint64_t mark;
	int64_t rc;

	c.q.flags = rds_op_barrier_decode(val, len, &req);
	if (!c.q.flags) {
		c.n_data = 1;
		c.q.data_len = sizeof(req);
		c.q.may_wait = blocks && !req.nonblock;
	}
	rc = borrower_call(fd, &c);
	if (c.slot && (!rc || rc == -EAGAIN) && c.a.data_len == sizeof(mark)) {
		memcpy(&mark, c.out_data, sizeof(mark));
		if (rds_op_barrier_store(&req, mark))
			rc = -EFAULT;
	}
	borrower_call_end(&c);
	return rc == -ETIMEDOUT ? -EAGAIN : (int)rc; /* RDS returns EAGAIN after a timeout */
}
