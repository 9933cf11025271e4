/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * owner_request.c - a borrower's request (protocol.h) as it came in a packet: it is
 * checked, and copied to memory where it can be kept while the call sleeps.
 *
 * A borrower is another program, and may send anything: an implausible packet is refused as a
 * whole, and no length is used before it has been checked.
 *
 * Must not know channels or sockets.
 */
#include "engine/share/owner.h"
#include "engine/share/protocol.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void rds_owner_request_free(struct rds_owner_request *call)
{
	if (!call)
		return;
	if (call->mapped)
		os_munmap(call->mapped, call->req.big);
	if (call->memfd >= 0)
		os_close(call->memfd);
	rds_foreign_memory_put(call->memory);
	free(call);
}

static bool request_is_plausible(const struct rds_share_request *q, size_t len)
{
	return q->magic == RDS_SHARE_MAGIC && q->op && q->op < RDS_SHARE_OPS && q->name_len <= RDS_SHARE_NAME &&
	       q->control_len <= RDS_SHARE_CONTROL && q->data_len <= RDS_SHARE_INLINE && q->big <= RDS_SHARE_BIG &&
	       len == sizeof(*q) + q->name_len + q->control_len + q->data_len;
}

/* The bytes are in a sealed file: they can neither change nor shrink while we use them. */
static int request_map_big(struct rds_owner_request *call)
{
	if (!call->req.big)
		return call->memfd < 0 ? 0 : -EPROTO;
	if (call->memfd < 0 || call->req.data_len)
		return -EPROTO;
	if (!os_memfd_is_sealed(call->memfd, call->req.big))
		return -EPROTO;
	return os_mmap(call->req.big, PROT_READ, MAP_PRIVATE, call->memfd, 0, &call->mapped);
}

int rds_owner_request_read(const char *packet, size_t len, int memfd, struct rds_owner_request **out)
{
	struct rds_share_request q;
	struct rds_owner_request *call;
	int err;

	if (len < sizeof(q))
		goto bad;
	memcpy(&q, packet, sizeof(q));
	if (!request_is_plausible(&q, len))
		goto bad;
	call = malloc(sizeof(*call) + len - sizeof(q) + 1);
	if (!call) {
		if (memfd >= 0)
			os_close(memfd);
		return -ENOMEM;
	}
	call->req = q;
	memcpy(call->bytes, packet + sizeof(q), len - sizeof(q));
	call->name = call->bytes;
	call->control = call->name + q.name_len;
	call->data = call->control + q.control_len;
	call->memfd = memfd;
	call->mapped = NULL;
	call->memory = NULL;
	call->pid = 0;
	err = request_map_big(call);
	if (err) {
		rds_owner_request_free(call);
		return err;
	}
	if (call->mapped)
		call->data = call->mapped;
	*out = call;
	return 0;
bad:
	if (memfd >= 0)
		os_close(memfd);
	return -EPROTO;
}
