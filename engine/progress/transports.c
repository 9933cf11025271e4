/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * transports.c - which transports there are, when they start, and from when on the one that reaches other hosts takes part.
 *
 * The libraries of RDMA devices keep descriptor numbers inside themselves and use them from any thread, so with such a
 * transport the helper cannot have a table of its own.  That is decided once, when the helper starts: if the machine
 * has a device then.  One that comes later is not used by this process.
 */
#include "engine/progress/transports.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#define SYS_INFINIBAND "/sys/class/infiniband"

#ifdef HAVE_VERBS
static struct rds_transport *transports_remote(void)
{
	return rds_verbs_transport();
}

void rds_transports_forget(void)
{
	rds_verbs_forget();
}
#else
static struct rds_transport *transports_remote(void)
{
	return NULL;
}

void rds_transports_forget(void)
{
}
#endif

void rds_transports_choose(struct rds_engine *e)
{
	const char *name = rds_options()->transport;
	bool any = strcmp(name, "auto") == 0, far = strcmp(name, "verbs") == 0;

	e->alone = strcmp(name, "loop") == 0;
	e->shm = e->alone ? e->loop : rds_fault_transport(rds_shm_transport());
	e->remote = any || far ? transports_remote() : NULL;
	if (e->remote)
		e->remote = rds_fault_transport(e->remote);
	e->prefer_remote = far;
	e->no_transport = !e->alone && !any && strcmp(name, "shm") != 0 && !(far && e->remote);
}

bool rds_transports_have_device(void)
{
	return rds_eng->remote && os_dir_has_entries(SYS_INFINIBAND);
}

bool rds_transports_share_table(void)
{
	return rds_transports_have_device();
}

int rds_transports_start(void)
{
	struct rds_engine *e = rds_eng;
	int err = e->loop->ops->start(e->loop);

	if (!err)
		err = e->shm->ops->start(e->shm);
	if (!err && e->remote)
		err = e->remote->ops->start(e->remote);
	return err;
}

void rds_transports_stop(void)
{
	struct rds_engine *e = rds_eng;

	if (e->remote)
		e->remote->ops->stop(e->remote);
	e->shm->ops->stop(e->shm);
	e->loop->ops->stop(e->loop);
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

/* Without it the helper wakes the leader. */
static void transports_relay_open(struct rds_engine *e)
{
	int fd = os_eventfd(0, 0);

	if (fd >= 0)
		os_dup_high_slot(fd, &e->relay_fd);
	e->remote_leads = atomic_load(&e->relay_fd) >= 0;
}

int rds_transports_claim(const struct in6_addr *addr, uint32_t scope)
{
	struct rds_engine *e = rds_eng;
	int ret;

	if (!e->remote || transports_too_late())
		return 0;
	os_library_begin();
	ret = e->remote->ops->claims(e->remote, addr, scope);
	os_library_end();
	if (ret > 0 && !e->remote_on) {
		transports_relay_open(e);
		rx_lock();
		e->remote_on = true;
		rds_progress_attention_update();
		rds_progress_attention_renew();
		rx_unlock();
		rds_helper_kick(); /* looks whether anything came before that */
	}
	return ret;
}
