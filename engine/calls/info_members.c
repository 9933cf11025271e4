/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * info_members.c - the node: all its processes, and what each says of itself
 * (RDS_PRELOAD_INFO_MEMBERS).
 *
 * A process that has not answered is there, too, with the reason, and with those of its sockets that
 * the registry knows.  Which process an answer is of, what number and name it has, and that it
 * speaks of itself alone, is the word of who asks, not of the answer.
 *
 * This file must not know how processes are asked (info_query.c).
 */
#include "engine/calls/info.h"

#include "engine/conn/relay.h"

#include <arpa/inet.h>
#include <stdlib.h>

/* Slots tell processes of this user apart. */
static uint32_t member_number(const struct registry_proc *proc)
{
	uint32_t id;

	memcpy(&id, &proc->id, sizeof(id));
	return registry_slot_is_others(proc->slot) ? RDS_PRELOAD_OTHER_MEMBER | id : proc->slot;
}

/* 0: of another process namespace: its number here is not known */
static int32_t member_pid(const struct registry_proc *proc)
{
	if (registry_slot_is_others(proc->slot)) /* the kernel has told */
		return proc->pid;
	return registry_proc_pid_is(rds_node_registry, proc->slot, &proc->id, proc->pid) ? proc->pid : 0;
}

bool rds_info_members_tag(struct rds_info_rec *recs, size_t n, const struct registry_proc *proc, int answer)
{
	if (!n || recs[0].is != RDS_PRELOAD_IS_PROCESS)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (i && recs[i].is != RDS_PRELOAD_IS_SOCKET && recs[i].is != RDS_PRELOAD_IS_CONNECTION)
			return false;
		recs[i].slot = member_number(proc);
	}
	recs[0].flags = (uint8_t)answer;
	memcpy(recs[0].comm, proc->comm, sizeof(recs[0].comm));
	recs[0].version[sizeof(recs[0].version) - 1] = '\0';
	recs[0].process.pid = member_pid(proc);
	return true;
}

/* ---- who has not answered ---- */

struct untold {
	bool of[REGISTRY_NOBODY]; /* by slot */
};

static struct rds_info_rec untold_sock(const struct registry_sock *s)
{
	struct rds_info_rec rec = {
		.laddr = s->bound,
		.lport = s->bound_port,
		.faddr = s->connected,
		.fport = s->connected_port,
		.is = RDS_PRELOAD_IS_SOCKET,
		.flags = RDS_PRELOAD_SOCKET_UNTOLD,
		.slot = s->proc,
		.seq = s->inode,
		.sock = {.sndbuf = s->sndbuf, .rcvbuf = s->rcvbuf},
	};

	rec.flags |= s->bound_port ? RDS_PRELOAD_SOCKET_BOUND : 0;
	rec.flags |= s->connected_port ? RDS_PRELOAD_SOCKET_CONNECTED : 0;
	rec.flags |= s->congested && s->proc != REGISTRY_NOBODY ? RDS_PRELOAD_SOCKET_CONGESTED : 0;
	return rec;
}

/* What the registry knows, of those, and of sockets that wait for an owner. */
static int add_untold(struct rds_info_list *list, const struct untold *untold)
{
	struct registry_sock *socks;
	struct rds_info_rec rec;
	unsigned n;
	int ret = registry_socks(rds_node_registry, &socks, &n);

	if (ret < 0)
		return ret;
	for (unsigned i = 0; i < n; i++) {
		if (rds_relay_is_role(socks[i].bound_port) ||
		    (socks[i].proc != REGISTRY_NOBODY &&
		     (socks[i].proc >= REGISTRY_NOBODY || !untold->of[socks[i].proc])))
			continue;
		rec = untold_sock(&socks[i]);
		rds_info_push(list, &rec);
	}
	free(socks);
	return list->full ? -ENOMEM : 0;
}

/* This process has written the first records, and does not ask itself. */
static void tag_own(struct rds_info_list *list)
{
	struct registry_proc self = {.slot = registry_self_slot(rds_node_registry)};
	size_t n = 1;

	while (n < list->n && list->recs[n].is != RDS_PRELOAD_IS_PROCESS)
		n++;
	self.id = *registry_self(rds_node_registry);
	rds_info_members_tag(list->recs, n, &self, RDS_PRELOAD_ANSWERED);
	list->recs[0].process.pid = os_getpid();
}

int rds_info_members(struct rds_info_list *out)
{
	struct untold untold = {0};
	int ret = rds_info_query(RDS_INFO_MEMBER, out);

	if (ret < 0)
		return ret;
	tag_own(out);
	for (size_t i = 0; i < out->n; i++) {
		const struct rds_info_rec *r = &out->recs[i];

		if (r->is == RDS_PRELOAD_IS_PROCESS && r->flags != RDS_PRELOAD_ANSWERED && r->slot < REGISTRY_NOBODY)
			untold.of[r->slot] = true;
	}
	ret = add_untold(out, &untold);
	if (ret < 0)
		free(out->recs);
	return ret;
}

/* ---- as programs get them ---- */

static void entry_process(const struct rds_info_rec *r, struct rds_preload_info_process *p)
{
	*p = (struct rds_preload_info_process){
		.pid = r->process.pid,
		.answer = r->flags,
		.self = r->slot == registry_self_slot(rds_node_registry),
		.sent = r->process.sent,
		.sent_bytes = r->process.sent_bytes,
		.received = r->process.received,
		.received_bytes = r->process.received_bytes,
		.memory = r->process.memory,
		.sockets = r->process.socks,
		.connections = r->process.conns,
		.fds = r->process.fds,
	};
	memcpy(p->command, r->comm, sizeof(p->command));
	memcpy(p->version, r->version, sizeof(p->version));
}

static void entry_socket(const struct rds_info_rec *r, struct rds_preload_info_socket *s)
{
	*s = (struct rds_preload_info_socket){
		.bound_addr = r->laddr,
		.connected_addr = r->faddr,
		.bound_port = htons(r->lport),
		.connected_port = htons(r->fport),
		.flags = r->flags,
		.tos = r->tos,
		.inum = r->seq,
		.sndbuf = r->sock.sndbuf,
		.rcvbuf = r->sock.rcvbuf,
		.send_bytes = r->sock.snd_bytes,
		.receive_bytes = r->sock.rcv_bytes,
		.send_messages = r->sock.snd_count,
		.receive_messages = r->sock.rcv_count,
		.operations = r->sock.ops,
		.last_operation = r->sock.last_op,
	};
}

static void entry_connection(const struct rds_info_rec *r, struct rds_preload_info_connection *c)
{
	*c = (struct rds_preload_info_connection){
		.laddr = r->laddr,
		.faddr = r->faddr,
		.flags = r->flags,
		.tos = r->tos,
		.peer_pid = r->peer_pid,
		.next_tx_seq = r->seq,
		.next_rx_seq = r->next_rx,
		.attempt_time = r->attempt_at,
		.connect_time = r->up_at,
		.reset_time = r->down_at,
		.attempts = r->attempts,
		.reason = r->reason,
		.queued = r->queued,
		.unacked = r->unacked,
		.retransmissions = r->retrans,
		.breaks = r->breaks,
	};
	memcpy(c->transport, r->transport, sizeof(c->transport));
}

void rds_info_member_entry(const struct rds_info_rec *r, struct rds_preload_info_entry *out)
{
	memset(out, 0, sizeof(*out));
	out->is = r->is;
	out->member = r->slot;
	if (r->is == RDS_PRELOAD_IS_PROCESS)
		entry_process(r, &out->u.process);
	else if (r->is == RDS_PRELOAD_IS_SOCKET)
		entry_socket(r, &out->u.socket);
	else
		entry_connection(r, &out->u.connection);
}
