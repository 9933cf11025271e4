/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * info_query.c - asks all other processes of the node for their connections or messages.
 *
 * Up to WINDOW processes are asked at a time.  Each has a limited time to answer (sys/patience.h),
 * and so have all together.  So stopped processes, even a thousand of them, cannot hold up
 * rds-info: they are left out, with a line in the log.  An answer is only as trustworthy as its
 * process: sizes are bounded, and every record is checked before it is used.  No lock is held here.
 */
#include "engine/calls/info.h"
#include "engine/sys/patience.h"
#include "engine/node/socket_name.h"

#include <stdlib.h>

#define WINDOW 64

struct ask {
	_Atomic int fd; /* -1: free */
	const struct registry_proc *proc;
	uint64_t deadline;
	size_t got; /* bytes of head, then of recs, that have arrived */
	struct rds_info_answer head;
	struct rds_info_rec *recs; /* head.n records, allocated when the head is complete */
};

struct query {
	enum rds_info_kind kind;
	struct rds_info_list *out;
	uint64_t deadline;
	struct ask asks[WINDOW];
};

static const char *const reasons[RDS_PRELOAD_ANSWERS] = {
	[RDS_PRELOAD_SILENT] = "does not answer in time (is it stopped?)",
	[RDS_PRELOAD_BUSY] = "is asked by too many at once, or stopped",
	[RDS_PRELOAD_OTHER_USER] = "belongs to another user",
	[RDS_PRELOAD_OTHER_VERSION] = "has another version of this library",
	[RDS_PRELOAD_OLDER_VERSION] = "broke off",
	[RDS_PRELOAD_NONSENSE] = "has sent an invalid answer",
	[RDS_PRELOAD_NO_ROOM] = "has more to tell than there is room for, or there are no descriptors to ask it",
};

static void ask_end(struct ask *a)
{
	os_close_slot(&a->fd);
	free(a->recs);
	a->recs = NULL;
	a->proc = NULL;
}

/* Who asks for all that there is gets a record of it, unless it has ended meanwhile. */
static void ask_not_answered(struct query *q, struct ask *a, int why)
{
	struct rds_info_rec rec = {.is = RDS_PRELOAD_IS_PROCESS};

	if (q->kind == RDS_INFO_MEMBER && registry_proc_alive(rds_node_registry, a->proc->slot, &a->proc->id) &&
	    rds_info_members_tag(&rec, 1, a->proc, why))
		rds_info_push(q->out, &rec);
	ask_end(a);
}

static void ask_left_out(struct query *q, struct ask *a, int why)
{
	rds_info("process %d (%.15s) %s: its connections and messages are left out", a->proc->pid, a->proc->comm,
		 reasons[why]);
	ask_not_answered(q, a, why);
}

/*
 * A process without a helper has no listener and nothing to report: it refuses the connection, and
 * is left out without a message.
 */
static void ask_begin(struct query *q, struct ask *a, const struct registry_proc *proc)
{
	struct rds_info_ask ask = {RDS_INFO_MAGIC, RDS_INFO_VERSION, q->kind};
	struct sockaddr_un name;
	socklen_t len = rds_node_listen_name(&proc->id, &name);
	int ret;

	a->proc = proc;
	a->got = 0;
	a->deadline = os_now_ns() + rds_patience_ns(RDS_PATIENCE_INFO_ANSWER);
	ret = os_dup_high_slot(os_socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), &a->fd);
	if (ret < 0)
		return ask_left_out(q, a, RDS_PRELOAD_NO_ROOM);
	ret = os_connect(a->fd, (struct sockaddr *)&name, len);
	if (ret == -ECONNREFUSED)
		return ask_not_answered(q, a, RDS_PRELOAD_UNBOUND);
	if (ret < 0)
		return ask_left_out(q, a, RDS_PRELOAD_BUSY);
	if (!rds_node_peer_trusted(a->fd))
		return ask_left_out(q, a, RDS_PRELOAD_OTHER_USER);
	if (os_send(a->fd, &ask, sizeof(ask), MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof(ask))
		return ask_left_out(q, a, RDS_PRELOAD_BUSY);
}

/* The head is complete: checks it, and prepares for its records. */
static bool ask_check_head(struct query *q, struct ask *a)
{
	const struct rds_info_answer *h = &a->head;

	if (h->magic != RDS_INFO_MAGIC) {
		ask_left_out(q, a, RDS_PRELOAD_NONSENSE);
	} else if (h->version != RDS_INFO_VERSION) {
		if (q->kind != RDS_INFO_MEMBER)
			rds_warn("process %d (%.15s) has another version of this library (info protocol %u, here %u): "
				 "its connections and messages are left out",
				 a->proc->pid, a->proc->comm, h->version, RDS_INFO_VERSION);
		ask_not_answered(q, a, RDS_PRELOAD_OTHER_VERSION);
	} else if (h->kind != (uint32_t)q->kind || h->rec_size != sizeof(*a->recs) || h->n > RDS_INFO_MAX_RECS) {
		ask_left_out(q, a, RDS_PRELOAD_NONSENSE);
	} else if (h->n) {
		a->recs = malloc(h->n * sizeof(*a->recs));
		if (!a->recs)
			ask_left_out(q, a, RDS_PRELOAD_NO_ROOM);
	}
	return a->proc != NULL;
}

static void ask_done(struct query *q, struct ask *a)
{
	if (q->out->n + a->head.n > RDS_INFO_MAX_TOTAL)
		return ask_left_out(q, a, RDS_PRELOAD_NO_ROOM);
	if (q->kind == RDS_INFO_MEMBER && !rds_info_members_tag(a->recs, a->head.n, a->proc, RDS_PRELOAD_ANSWERED))
		return ask_left_out(q, a, RDS_PRELOAD_NONSENSE);
	for (uint32_t i = 0; i < a->head.n; i++) {
		a->recs[i].transport[sizeof(a->recs[i].transport) - 1] = '\0';
		rds_info_push(q->out, &a->recs[i]);
	}
	ask_end(a);
}

/* Reads what has arrived. */
static void ask_read(struct query *q, struct ask *a)
{
	for (;;) {
		size_t body = a->got > sizeof(a->head) ? a->got - sizeof(a->head) : 0;
		bool head = a->got < sizeof(a->head);
		size_t want = head ? sizeof(a->head) - a->got : a->head.n * sizeof(*a->recs) - body;
		ssize_t n;

		if (!want) /* there may be no records, and no memory for them */
			return ask_done(q, a);
		n = os_recv(a->fd, head ? (char *)&a->head + a->got : (char *)a->recs + body, want, MSG_DONTWAIT);
		if (n == -EAGAIN || n == -EINTR)
			return;
		if (n <= 0) /* an error: it has not even read the question */
			return ask_left_out(q, a, n ? RDS_PRELOAD_BUSY : RDS_PRELOAD_OLDER_VERSION);
		a->got += (size_t)n;
		if (head && a->got == sizeof(a->head) && !ask_check_head(q, a))
			return;
	}
}

/* Waits until an answer of any asked process arrives, or for the next deadline. */
static void query_wait(struct query *q)
{
	struct pollfd fds[WINDOW];
	struct ask *who[WINDOW];
	uint64_t now = os_now_ns(), due = q->deadline;
	unsigned n = 0;

	for (unsigned i = 0; i < WINDOW; i++) {
		struct ask *a = &q->asks[i];

		if (!a->proc)
			continue;
		if (a->deadline <= now || q->deadline <= now) {
			ask_left_out(q, a, RDS_PRELOAD_SILENT);
			continue;
		}
		if (a->deadline < due)
			due = a->deadline;
		fds[n] = (struct pollfd){.fd = a->fd, .events = POLLIN};
		who[n++] = a;
	}
	if (!n || os_poll(fds, n, (int)((due - now) / 1000000) + 1) <= 0)
		return;
	for (unsigned i = 0; i < n; i++)
		if (fds[i].revents)
			ask_read(q, who[i]);
}

static void query_procs(struct query *q, const struct registry_proc *procs, unsigned n)
{
	unsigned next = 0, busy;

	do {
		busy = 0;
		for (unsigned i = 0; i < WINDOW; i++) {
			struct ask *a = &q->asks[i];

			while (!a->proc && next < n) {
				const struct registry_proc *proc = &procs[next++];

				if (memcmp(&proc->id, registry_self(rds_node_registry), sizeof(proc->id)))
					ask_begin(q, a, proc);
			}
			busy += a->proc != NULL;
		}
		query_wait(q);
	} while (busy);
}

int rds_info_query(enum rds_info_kind kind, struct rds_info_list *out)
{
	struct registry_proc *procs = NULL;
	struct query *q;
	unsigned n = 0;
	int ret;

	memset(out, 0, sizeof(*out));
	rds_info_collect(kind, out);
	ret = registry_procs(rds_node_registry, &procs, &n);
	if (ret < 0)
		goto fail;
	if (kind == RDS_INFO_MEMBER)
		registry_add_others(rds_node_registry, &procs, &n); /* as many as can be found */
	ret = -ENOMEM;
	q = calloc(1, sizeof(*q));
	if (!q)
		goto fail;
	for (unsigned i = 0; i < WINDOW; i++)
		atomic_init(&q->asks[i].fd, -1);
	q->kind = kind;
	q->out = out;
	q->deadline = os_now_ns() + rds_patience_ns(RDS_PATIENCE_INFO_ALL);
	query_procs(q, procs, n);
	free(q);
	if (!out->full)
		ret = 0;
fail:
	free(procs);
	if (ret < 0) {
		free(out->recs);
		out->recs = NULL;
	}
	return ret;
}
