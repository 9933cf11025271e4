/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rendezvous.c - one port per node: which process listens there, and what it answers
 * (docs/verbs-states.md, tables N and L).
 *
 * The process that binds the port has the role; there is no other election.  It also listens on an
 * abstract AF_UNIX address made of the port and the registry's identity, and never accepts there.
 * The other processes connect to that address: this costs each of them a descriptor and the
 * listening process nothing, and the hang-up tells them at once that the role is free.
 *
 * Only if the port is taken by a process outside this registry, they look about once a second
 * instead.  If a process of another registry takes the role and ends, the processes of that
 * registry, which wait for the hang-up, are faster: the processes of one registry may keep the
 * role for ever.
 *
 * What is asked at that port is answered from the registry.  The same questions may come to any
 * other process of the node, at the port at which it listens for itself, and get the same answers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "engine/node/socket_name.h"
#include "engine/transport/verbs/cm/cm.h"

#define MS 1000000ull
/* the listening process ends: its port and its AF_UNIX address are freed one after the other */
#define SOON_NS (20 * MS)
#define LATER_NS (750 * MS) /* a random time of up to the same length is added */
#define WAITERS 4096

static void rendezvous_timer(struct rds_timer *tm);
static void rendezvous_hang_up(struct rds_helper_event *ev, uint32_t events);

static struct {
	struct rdma_cm_id *ids[2]; /* not NULL: this process has the role */
	/*
	 * with the role: the listening socket; otherwise connected to the process with the role;
	 * -1: none
	 */
	_Atomic int fd;
	struct rds_helper_event ev;
	struct rds_timer again;
	/* looks in a row that found the port taken, but no process of this registry there */
	unsigned looks;
	bool warned;
} rv = {.fd = -1, .ev = {.fn = rendezvous_hang_up}, .again = {.fn = rendezvous_timer}};

/* ---- the role ---- */

static socklen_t rendezvous_address(struct sockaddr_un *un)
{
	const char *domain = registry_domain(rds_node_registry);
	struct stat st = {0};
	char own[40];
	int n;

	os_fstat(os_fd(registry_fds(rds_node_registry)), &st);
	snprintf(own, sizeof(own), "%llx-%llx", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "rdspreload-rendezvous-%d-%s",
		     (int)rds_options()->cm_port, *domain ? domain : own);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int rendezvous_socket(void)
{
	return os_dup_high_slot(os_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), &rv.fd);
}

static void rendezvous_retry(uint64_t ns)
{
	rds_timer_set(&rv.again, os_now_ns() + ns);
}

/*
 * The part of the process with the role.  Without the AF_UNIX address the others cannot wait for
 * the hang-up, and look from time to time.
 */
static void rendezvous_announce(void)
{
	struct sockaddr_un un;
	socklen_t len = rendezvous_address(&un);
	int err = rendezvous_socket();

	if (err >= 0)
		err = os_bind(rv.fd, (struct sockaddr *)&un, len);
	if (!err)
		err = os_listen(rv.fd, WAITERS);
	if (err < 0) {
		os_close_slot(&rv.fd);
		/* the previous process with the role has not freed the address yet */
		rendezvous_retry(SOON_NS * 5);
	}
}

static void rendezvous_retry_later(void)
{
	uint64_t r;

	os_random(&r, sizeof(r));
	rendezvous_retry(LATER_NS + r % LATER_NS);
}

static void rendezvous_foreign(void)
{
	if (++rv.looks < rds_patience_ns(RDS_PATIENCE_CM_PORT) / SOON_NS) {
		rendezvous_retry(SOON_NS);
		return;
	}
	rendezvous_retry_later();
	if (rv.warned)
		return;
	rv.warned = true;
	rds_warn("port %d of rdma_cm is in use, and not by a process of this registry: other hosts will not find this "
		 "one's sockets. Let all RDS processes of the host share one registry (RDS_PRELOAD_SHARE, "
		 "RDS_PRELOAD_REGISTRY_DIR), or set RDS_PRELOAD_CM_PORT, the same on all hosts",
		 (int)rds_options()->cm_port);
}

/* The part of the other processes. */
static void rendezvous_wait(void)
{
	struct sockaddr_un un;
	socklen_t len = rendezvous_address(&un);
	int err = rendezvous_socket();

	if (err >= 0)
		err = os_connect(rv.fd, (struct sockaddr *)&un, len);
	if (!err)
		err = rds_helper_event_add(&rv.ev, &rv.fd, EPOLLRDHUP | EPOLLET);
	if (!err) {
		rv.looks = 0;
		return;
	}
	os_close_slot(&rv.fd);
	/* the process is there, but more connect than its backlog takes (net.core.somaxconn) */
	if (err == -EAGAIN)
		rendezvous_retry_later();
	else
		rendezvous_foreign();
}

static void rendezvous_try(void)
{
	uint16_t port;
	int err = verbs_cm_listen((uint16_t)rds_options()->cm_port, rv.ids, &port);

	if (!err) {
		rv.looks = 0;
		rds_debug("this process listens at the rendezvous port now");
		rendezvous_announce();
	} else if (err == -EADDRINUSE) {
		rendezvous_wait();
	} else {
		if (!rv.warned)
			rds_warn("cannot listen at port %d of rdma_cm (%s): it is tried again; until then other hosts "
				 "may not find this one's sockets",
				 (int)rds_options()->cm_port, strerror(-err));
		rv.warned = true;
		rendezvous_retry(LATER_NS);
	}
}

static void rendezvous_timer(struct rds_timer *tm)
{
	(void)tm;
	if (!rv.ids[0])
		rendezvous_try();
	else if (rv.fd < 0)
		rendezvous_announce();
}

static void rendezvous_hang_up(struct rds_helper_event *ev, uint32_t events)
{
	(void)ev;
	if (rv.ids[0] || !(events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)))
		return;
	os_close_slot(&rv.fd);
	rendezvous_try();
}

void verbs_rendezvous_check(void)
{
	if (!rv.ids[0] && rv.fd < 0)
		rendezvous_retry(0);
}

struct rdma_cm_id *const *verbs_rendezvous_ids(void)
{
	return rv.ids;
}

void verbs_rendezvous_start(void)
{
	rendezvous_try();
}

void verbs_rendezvous_stop(void)
{
	rds_timer_cancel(&rv.again);
	verbs_cm_listen_stop(rv.ids);
	os_close_slot(&rv.fd);
	rv.looks = 0;
	rv.warned = false;
}

/*
 * The ids belong to the parent.  No call may be made about them: their numbers may belong to other
 * objects by now.
 */
void verbs_rendezvous_forget(void)
{
	memset(rv.ids, 0, sizeof(rv.ids));
	atomic_store(&rv.fd, -1);
	rv.again.queued = false;
	rv.looks = 0;
	rv.warned = false;
}

/* ---- what is asked ---- */

static bool procid_is_self(const struct rds_procid *id)
{
	return memcmp(id, registry_self(rds_node_registry), sizeof(*id)) == 0;
}

/*
 * Redirects the peer to a process which, by the registry, is what the peer asks for. port: where
 * that process listens, if it is another user's.
 */
static void answer_redirect(uint32_t slot, const struct rds_procid *id, uint16_t port, enum verbs_status if_dead,
			    struct verbs_answer *answer)
{
	struct registry *reg = rds_node_registry;

	if (!procid_is_self(id)) {
		if (!registry_proc_alive(reg, slot, id)) {
			registry_reap_proc(reg, slot);
			answer->status = (uint8_t)if_dead;
			return;
		}
		if (!registry_slot_is_others(slot))
			port = registry_proc_cm_port(reg, slot, id);
	} else {
		port = atomic_load(&verbs_cm.port);
	}
	if (!port) { /* the process does not listen yet */
		answer->status = VERBS_AGAIN;
		return;
	}
	answer->status = VERBS_REDIRECT;
	answer->self = *id;
	answer->listener = port;
}

/* Finds a process that can answer a ping: any one that has a socket with that address. */
static int answer_find_ping(const struct in6_addr *laddr, uint32_t scope, struct registry_owner *own)
{
	struct registry_sock *socks;
	unsigned n, i;
	int err = registry_socks(rds_node_registry, &socks, &n);

	if (err)
		return err;
	err = -ENOENT;
	for (i = 0; i < n && err; i++)
		if (socks[i].bound_port && rds_ip_equal(&socks[i].bound, laddr) && socks[i].scope == scope) {
			*own = (struct registry_owner){
				.proc = socks[i].proc, .procid = socks[i].procid, .sock = socks[i].sock};
			err = 0;
		}
	free(socks);
	return err;
}

static void answer_locate(const struct verbs_request *req, const struct in6_addr *laddr, uint32_t scope,
			  struct verbs_answer *answer)
{
	struct registry_owner own;
	int err = req->port ? registry_lookup_all(rds_node_registry, laddr, req->port, scope, &own)
			    : answer_find_ping(laddr, scope, &own);

	/* the socket is being handed off, or its last copy is closed */
	if (!err && own.proc == REGISTRY_NOBODY)
		answer->status = !own.others && registry_sock_is_gone(rds_node_registry, own.sock, &own.procid)
					 ? VERBS_NO_PORT
					 : VERBS_AGAIN;
	else if (!err)
		answer_redirect(own.proc, &own.procid, own.cm_port, VERBS_NO_PORT, answer);
	else
		answer->status = err == -ENOENT ? VERBS_NO_PORT : VERBS_AGAIN;
}

bool verbs_rendezvous_request(const struct verbs_request *req, const struct in6_addr *laddr, uint32_t scope,
			      struct verbs_answer *answer)
{
	uint32_t slot;

	if (req->ask == VERBS_LOCATE)
		answer_locate(req, laddr, scope, answer);
	else if (procid_is_self(&req->wanted))
		return true;
	else if (registry_proc_find(rds_node_registry, &req->wanted, &slot))
		answer_redirect(slot, &req->wanted, 0, VERBS_GONE, answer);
	else
		/*
		 * The process is in another registry (another user's), or has ended.  GONE would
		 * make the peer drop its messages for the process.
		 */
		answer->status = rds_node_proc_listens(&req->wanted) ? VERBS_AGAIN : VERBS_GONE;
	return false;
}
