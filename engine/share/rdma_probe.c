/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rdma_probe.c - checks the memory that a call names, in the process that has that memory
 * (rdma_probe.h).
 *
 * The steps are those of rdma/op_request.c and rdma/mr.c, without those that need a socket.  All
 * other errors of the call are left to the owner, which knows the kernel's order of checks.
 * Takes no lock; the state between the steps is the thread's.
 *
 * Must not know sockets, channels or owners.
 */
#include "engine/share/rdma_probe.h"

#include <errno.h>
#include <string.h>

#include "engine/abi/cmsg.h"
#include "engine/abi/revisions.h"
#include "engine/rdma/mr.h"
#include "engine/sys/uaccess.h"
#include "rds_abi.h"

static __thread bool word_found __attribute__((tls_model("initial-exec")));
static __thread struct rds_mr_request opens __attribute__((tls_model("initial-exec")));

static bool memory_is_writable(uint64_t at, size_t len)
{
	return !rds_user_writable((void *)(uintptr_t)at, len);
}

static bool probe_word(uint64_t at)
{
	word_found = memory_is_writable(at, sizeof(uint64_t));
	return word_found;
}

unsigned rds_share_rdma_kinds(const struct msghdr *msg)
{
	struct rds_cmsg_in c;
	unsigned kinds = 0;

	rds_cmsg_in_init(&c, msg);
	while (rds_cmsg_in_next(&c) > 0)
		kinds |= rds_cmsg_kind(c.hdr.cmsg_type);
	return kinds;
}

bool rds_share_msg_names_memory(const struct msghdr *msg)
{
	return rds_share_rdma_kinds(msg) & RDS_NAMES_MEMORY;
}

bool rds_share_opt_names_memory(int level, int opt, socklen_t len)
{
	if (!rds_abi_level_is_rds(level))
		return false;
	/* With the length of an int, the number of RDS_GET_MR is RDS_SNDBUF of 2006. */
	return opt == RDS_GET_MR_FOR_DEST || (opt == RDS_GET_MR && len != sizeof(int));
}

bool rds_share_opt_frees_mr(int level, int opt)
{
	return rds_abi_level_is_rds(level) && opt == RDS_FREE_MR;
}

/* ---- regions ---- */

/* The owner refuses a region that is too large for that, so its memory is not probed. */
static bool probe_region(const struct rds_mr_request *req)
{
	opens = *req;
	if (req->bytes <= (uint64_t)RDS_MR_PAGES << RDS_UPAGE_SHIFT && !memory_is_writable(req->addr, req->bytes))
		return false;
	return (!req->cookie_addr || memory_is_writable(req->cookie_addr, sizeof(uint64_t))) &&
	       (!req->phys_addr || memory_is_writable(req->phys_addr, sizeof(uint64_t)));
}

static bool probe_mr(const struct rds_get_mr_args *args)
{
	struct rds_mr_request req;

	rds_abi_mr_decode(args, probe_word, &req);
	return probe_region(&req);
}

static bool probe_map(const struct rds_cmsg_in *c)
{
	struct rds_get_mr_args args;

	return !rds_cmsg_in_copy(c, &args, sizeof(args)) || probe_mr(&args);
}

/* ---- operations ---- */

static bool probe_args(const struct rds_cmsg_in *c)
{
	unsigned char body[64];
	struct rds_rdma_request req;
	uint64_t vec, nr, sum;
	size_t size = c->size;
	int err;

	if (!rds_cmsg_in_copy(c, body, size < sizeof(body) ? size : sizeof(body)) ||
	    rds_abi_local_vec_decode(body, size, &vec, &nr))
		return true;
	err = rds_cmsg_vec_read(vec, nr, &sum, NULL);
	if (err || rds_abi_rdma_decode(body, size, sum, rds_cookie_plausible, NULL, &req))
		return err != -EFAULT;
	return !rds_cmsg_vec_usable(vec, nr, req.flags & RDS_RDMA_READWRITE) &&
	       (!req.id_addr || memory_is_writable(req.id_addr, sizeof(uint64_t)));
}

static bool probe_atomic(const struct rds_cmsg_in *c)
{
	unsigned char body[sizeof(struct rds_atomic_args)];
	size_t size = c->size < sizeof(body) ? c->size : sizeof(body);
	struct rds_atomic_request req;

	if (!rds_cmsg_in_copy(c, body, size) || rds_abi_atomic_decode(c->hdr.cmsg_type, body, size, &req))
		return true;
	rds_abi_note_modern();
	return memory_is_writable(req.local_addr, sizeof(uint64_t));
}

struct rds_share_probe rds_share_probe_message(const struct msghdr *msg)
{
	struct rds_cmsg_in c;
	bool there = true;

	word_found = false;
	opens.bytes = 0;
	rds_user_forget(); /* as for a region in rds_mr_get() */
	rds_cmsg_in_init(&c, msg);
	while (there && rds_cmsg_in_next(&c) > 0) {
		switch (rds_cmsg_kind(c.hdr.cmsg_type)) {
		case RDS_HAS_ARGS:
			there = probe_args(&c);
			break;
		case RDS_HAS_ATOMIC:
			there = probe_atomic(&c);
			break;
		case RDS_HAS_MAP:
			there = probe_map(&c);
			break;
		default:
			break;
		}
	}
	return (struct rds_share_probe){.fault = !there, .word = word_found, .opens = opens};
}

struct rds_share_probe rds_share_probe_option(int opt, const void *val, socklen_t len)
{
	struct rds_get_mr_for_dest_args dest;
	struct rds_get_mr_args args;
	struct rds_mr_request req;
	bool there = true;

	word_found = false;
	opens.bytes = 0;
	rds_user_forget();
	if (opt == RDS_GET_MR && len == sizeof(args)) {
		memcpy(&args, val, sizeof(args));
		there = probe_mr(&args);
	} else if (opt == RDS_GET_MR_FOR_DEST && len == sizeof(dest)) {
		memcpy(&dest, val, sizeof(dest));
		rds_abi_mr_for_dest_decode(&dest, &req);
		there = probe_region(&req);
	}
	return (struct rds_share_probe){.fault = !there, .word = word_found, .opens = opens};
}
