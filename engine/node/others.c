/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * others.c - processes of other users (RDS_PRELOAD_SHARE=group or all).
 *
 * Each user has a registry of its own, which nobody else can open. So nothing that another user
 * writes is mapped here, and no lock that another user could hold is waited for. What is known of
 * another user's process is its id, and what the kernel says of the process that listens under
 * that id (socket_name.h): its user and its number. A process that claims another one's id is found
 * out, because only one process can listen there.
 */
#include <errno.h>

#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/node/registry_impl.h"
#include "engine/node/socket_name.h"

bool registry_has_others(void)
{
	return rds_options()->share != RDS_OPT_SHARE_USER;
}

/* 0: that number may be any user's, or has no place among the slots. */
uint32_t reg_others_slot(uid_t uid)
{
	return os_uid_is_known(uid) && uid < UINT32_MAX - REGISTRY_OTHERS ? REGISTRY_OTHERS + uid : 0;
}

/*
 * A process may change its user between the moment when it began to listen and the one of which
 * cred tells. It keeps its number.
 */
static bool cred_is_same_process(const struct ucred *a, const struct ucred *b)
{
	return a->uid == b->uid || (a->pid > 0 && a->pid == b->pid);
}

static bool is_own_process(struct registry *reg, uint32_t slot, const struct rds_procid *id, const struct ucred *cred)
{
	return registry_is_user(reg, cred->uid) || registry_proc_pid_is(reg, slot, id, cred->pid);
}

int reg_others_find(struct registry *reg, const struct rds_procid *id, const struct ucred *cred, uint32_t *slot)
{
	struct ucred listens;
	int ret;

	if (registry_proc_find(reg, id, slot))
		return is_own_process(reg, *slot, id, cred) ? 0 : -EACCES;
	ret = rds_node_proc_cred(id, &listens);
	if (ret && ret != -ECONNREFUSED)
		return -EAGAIN; /* no descriptor, or too many others ask, too */
	if (ret || !cred_is_same_process(&listens, cred))
		return -EACCES;
	*slot = reg_others_slot(listens.uid);
	return *slot ? 0 : -EACCES;
}

bool reg_others_alive(uint32_t slot, const struct rds_procid *id)
{
	struct ucred cred;
	int ret = rds_node_proc_cred(id, &cred);

	return ret ? ret != -ECONNREFUSED : reg_others_slot(cred.uid) == slot;
}

int registry_proc_is_of(struct registry *reg, uint32_t *slot, const struct rds_procid *id, const struct ucred *cred)
{
	if (registry_has_others())
		return reg_others_find(reg, id, cred, slot);
	return !registry_slot_is_others(*slot) && is_own_process(reg, *slot, id, cred) ? 0 : -EACCES;
}
