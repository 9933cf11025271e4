/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * transports.c - which transports there are, when they start, and when those that reach other
 * hosts take part.
 *
 * The libraries of RDMA devices keep descriptor numbers inside themselves and use them from any
 * thread.  So with such a transport the helper cannot have a descriptor table of its own.  That is
 * decided once, when the helper starts: does the machine have a device then?  A device that comes
 * later is not used by this process.  The same holds for a node of several users, where each bound
 * socket has a listener that the helper empties (calls/port_hold.c), and that every thread of the
 * program makes and closes at once.  Must not know how a transport works.
 */
#include "engine/progress/transports.h"
#include "engine/conn/conn.h"
#include "engine/transport/shm/shm_transport.h"
#include "engine/transport/tcp/tcp_transport.h"
#include "engine/transport/verbs/verbs_transport.h"

#include <string.h>
#include <sys/syscall.h>

#define SYS_INFINIBAND "/sys/class/infiniband"

#ifdef HAVE_VERBS
#define VERBS_LISTED "verbs (other hosts, too, by RDMA devices), "

static struct rds_transport *transports_remote(void)
{
	return rds_verbs_transport();
}
#else
#define VERBS_LISTED ""

static struct rds_transport *transports_remote(void)
{
	return NULL;
}
#endif

static struct rds_transport *transports_attach(struct rds_transport *t)
{
	t->up = t->ops->caps & RDS_TCAP_NODE ? &rds_transport_up_node : &rds_transport_up;
	return t;
}

static struct rds_transport *transports_attach_wrapped(struct rds_transport *t)
{
	transports_attach(t);
	return rds_transport_wrap ? rds_transport_wrap(t) : t;
}

/* Faults are injected by the library of the tests (tests/faults/transport). */
static bool transports_lack_faults(void)
{
	if (!*rds_options()->fault || rds_transport_wrap)
		return false;
	rds_error("RDS_PRELOAD_FAULT=%.100s: this library injects no faults, so no socket can be bound. "
		  "librdspreload-fault.so does, which is for tests and is not installed",
		  rds_options()->fault);
	return true;
}

void rds_transports_choose(void)
{
	const char *name = rds_options()->transport;
	bool any = strcmp(name, "auto") == 0, far = strcmp(name, "verbs") == 0, tcp = strcmp(name, "tcp") == 0;

	rds_transport_set.alone = strcmp(name, "loop") == 0;
	rds_transport_set.loop = transports_attach(rds_loop_transport());
	rds_transport_set.remote = any || far ? transports_remote() : NULL;
	rds_transport_set.node = tcp || (any && rds_options()->tcp) ? transports_attach(&rds_tcp) : NULL;
	rds_transport_set.prefer_remote = far;
	rds_transport_set.none = transports_lack_faults();
	if (!rds_transport_set.alone && !any && !tcp && strcmp(name, "shm") != 0 &&
	    !(far && rds_transport_set.remote)) {
		rds_error("RDS_PRELOAD_TRANSPORT=%.100s: there is no such transport, so no socket can be bound. There "
			  "are shm (processes of this host), tcp (other hosts, too, over TCP), " VERBS_LISTED
			  "loop (this process alone) and auto (shm, RDMA devices, and without RDS_PRELOAD_TCP=0 tcp)",
			  name);
		rds_transport_set.none = true;
	}
	rds_transport_set.shm =
		rds_transport_set.alone ? rds_transport_set.loop : transports_attach_wrapped(rds_shm_transport());
	if (rds_transport_set.remote)
		rds_transport_set.remote = transports_attach_wrapped(rds_transport_set.remote);
}

bool rds_transports_have_device(void)
{
	return rds_transport_set.remote && os_dir_has_entries(SYS_INFINIBAND);
}

bool rds_transports_share_table(void)
{
	return rds_transports_have_device() || registry_has_others();
}

int rds_transports_start(void)
{
	const struct rds_transport_set *s = &rds_transport_set;
	struct rds_transport *const all[] = {s->loop, s->shm, s->remote, s->node};
	int err = 0;

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]) && !err; i++)
		if (all[i])
			err = all[i]->ops->start(all[i]);
	return err;
}

void rds_transports_stop(void)
{
	if (rds_transport_set.node)
		rds_transport_set.node->ops->stop(rds_transport_set.node);
	if (rds_transport_set.remote)
		rds_transport_set.remote->ops->stop(rds_transport_set.remote);
	rds_transport_set.shm->ops->stop(rds_transport_set.shm);
	rds_transport_set.loop->ops->stop(rds_transport_set.loop);
}

static bool transports_too_late(void)
{
	static bool told;

	if (!rds_helper_has_own_table())
		return false;
	if (!told && os_dir_has_entries(SYS_INFINIBAND)) {
		told = true;
		rds_warn("an RDMA device has appeared since this program bound its first socket: restart the program "
			 "for it "
			 "to be used");
	}
	return true;
}

/* The leader's own descriptor for the far transports.  Without it the helper wakes the leader. */
static void relay_open(struct rds_deferred_call *c)
{
	(void)c;
	rds_helper_relay_open();
}

static struct rds_deferred_call relay_open_call = {.fn = relay_open};

void rds_transports_forget(void)
{
	atomic_store(&relay_open_call.queued, false);
	rds_transports_roles_forget();
}

/* A device is expected to be used; what else a process does from an address of a network is not known. */
static void transports_relay_open(const struct rds_transport *t)
{
	if (os_fd_table)
		rds_helper_defer_to_program(&relay_open_call);
	else if (rds_helper_relay_open() && t == rds_transport_set.remote)
		progress_state.remote_leads = true;
}

/* From now on it takes part. */
void rds_transports_take_part(struct rds_transport *t)
{
	unsigned i;

	for (i = 0; i < rds_transport_set.nfar; i++)
		if (rds_transport_set.far[i] == t)
			return;
	transports_relay_open(t);
	rx_lock();
	rds_transport_set.far[rds_transport_set.nfar++] = t;
	rds_progress_attention_update();
	rds_progress_attention_renew();
	rx_unlock();
	rds_helper_kick(); /* it looks for input that came before that */
}

int rds_transports_claim(const struct in6_addr *addr, uint32_t scope)
{
	int ret;

	if (!rds_transport_set.remote || transports_too_late())
		return 0;
	os_library_begin();
	ret = rds_transport_set.remote->ops->claims(rds_transport_set.remote, addr, scope);
	os_library_end();
	if (ret > 0)
		rds_transports_take_part(rds_transport_set.remote);
	return ret;
}
