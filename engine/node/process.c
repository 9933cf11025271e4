/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * process.c - process slots: taking one, leaving in order, clearing up after dead processes. Also:
 * which processes are there, where they listen, and which of them are trusted.
 *
 * A slot is taken in this order: record lock on its byte, contents, `state`. So a used slot whose
 * byte no process holds always belongs to a dead process. It is cleared in this order: its sockets
 * (those that exist without the process become orphans), its counters (struct reg_fold), `state`.
 * If a process is killed while it clears a slot, the next one can repeat all its steps.
 */
#include <errno.h>
#include <fcntl.h>

#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/node/registry_impl.h"
#include "engine/node/socket_name.h"

#define JOIN_QUESTIONS 16 /* of a new process, whether others live */

/*
 * If the area cannot be read, the slot counts as used: callers check the id and the lock as well.
 */
static uint32_t slot_read_state(struct reg_view *v, uint32_t slot)
{
	return reg_usable(v) ? reg_load(&reg_load(&v->a)->state[slot]) : REG_PROC_USED;
}

bool reg_proc_is(struct registry *reg, struct reg_view *v, uint32_t slot, const uint64_t id[2])
{
	return slot < REG_PROCS && slot_read_state(v, slot) == REG_PROC_USED && reg_words_eq(reg->f->proc[slot].id, id);
}

/* The name of the process, not of the thread. */
static void read_comm(char comm[16])
{
	int fd = os_open("/proc/self/comm", O_RDONLY | O_CLOEXEC, 0);
	ssize_t n = -1;

	memset(comm, 0, 16);
	if (fd >= 0) {
		n = os_read(fd, comm, 15);
		os_close(fd);
	}
	if (n <= 0)
		comm[0] = '?';
	else if (comm[n - 1] == '\n')
		comm[n - 1] = 0;
}

/* These words are outside of the areas: this process holds the slot's byte. */
static void slot_fill(struct registry *reg, struct reg_proc *p)
{
	char comm[16];

	os_random(&reg->id, sizeof(reg->id));
	memcpy(reg->idw, &reg->id, sizeof(reg->idw));
	read_comm(comm);
	reg_store(&p->pid, reg->pid);
	reg_words_store(p->id, &reg->id);
	reg_words_store(p->comm, comm);
	reg_store(&p->cm_port, 0);
	for (int i = 0; i < RDS_STATS; i++)
		reg_store(&p->counters[i], 0);
}

/*
 * The slot may still contain the last owner's counters, which a process that goes on without this
 * one needs. So the term is checked once this process has the byte: from then on no other process
 * frees or takes the slot.
 */
static int slot_take_unused(struct registry *reg)
{
	for (uint32_t slot = 0; slot < REG_PROCS; slot++) {
		if (slot_read_state(reg->at, slot))
			continue;
		/*
		 * Held although unused: a process whose slot was lost by damage is still alive
		 * there.
		 */
		if (reg_slot_held(reg, slot) || reg_slot_take(reg, slot))
			continue;
		if (!reg_lock_is_ours(reg)) {
			reg_slot_drop(reg, slot);
			return -EAGAIN;
		}
		slot_fill(reg, &reg->f->proc[slot]);
		reg->slot = slot;
		return 0;
	}
	return -EUSERS;
}

bool reg_orphan_gone(struct reg_sock *s)
{
	struct rds_procid name;

	uint64_t idw[2];

	if (reg_load(&s->proc) != REG_NOBODY)
		return false;
	reg_words_load(&name, s->id);
	if (rds_node_name_exists(&name))
		return false;
	/*
	 * Checked again: another process may have taken the socket in between, and then that was
	 * not its name.
	 */
	memcpy(idw, &name, sizeof(idw));
	return reg_load(&s->proc) == REG_NOBODY && reg_words_eq(s->id, idw) && reg_load(&s->mark);
}

void reg_orphan_sweep(struct registry *reg)
{
	bool left = false;

	if (!reg_load(&reg_area(reg)->orphans))
		return;
	for (uint32_t link = 1; link <= reg_usable(reg->at); link++) {
		struct reg_sock *s = reg_sock_at(reg->at, link);

		reg_heartbeat(reg);
		if (!reg_load(&s->mark) || reg_load(&s->proc) != REG_NOBODY)
			continue;
		if (!reg_orphan_gone(s)) {
			left = true;
			continue;
		}
		reg_port_clean(reg, s);
		reg_bindings_begin(reg);
		reg_sock_free(reg, link);
		reg_bindings_end(reg);
	}
	reg_change_begin(reg);
	reg_store(&reg_area(reg)->orphans, left);
	reg_change_end(reg);
}

/*
 * From that slot on, of so many processes. Each question walks through the kernel's list of all locks
 * on the file.
 */
static int find_dead(struct registry *reg, struct reg_view *v, struct reg_dead *dead, uint32_t from, uint32_t questions)
{
	int n = 0;

	memset(dead, 0, sizeof(*dead));
	for (uint32_t i = 0; i < REG_PROCS && questions; i++) {
		uint32_t slot = (from + i) % REG_PROCS;

		if (slot == reg->slot || !slot_read_state(v, slot))
			continue;
		questions--;
		if (reg_slot_held(reg, slot))
			continue;
		dead->bits[slot / 64] |= UINT64_C(1) << slot % 64;
		n++;
	}
	return n;
}

int reg_proc_find_dead(struct registry *reg, struct reg_view *v, struct reg_dead *dead)
{
	return find_dead(reg, v, dead, 0, REG_PROCS);
}

/* One of those in use, by chance: slots are taken from the first one on, so that most are not. */
static uint32_t any_slot(struct registry *reg)
{
	uint32_t n = 0, skip, slot;

	for (slot = 0; slot < REG_PROCS; slot++)
		n += slot_read_state(reg->at, slot) != 0;
	os_random(&skip, sizeof(skip));
	skip = n ? skip % n : 0;
	for (slot = 0; slot < REG_PROCS - 1; slot++)
		if (slot_read_state(reg->at, slot) && !skip--)
			break;
	return slot;
}

/*
 * A few, anywhere: if each new process asked about all others, a thousand that begin at once would
 * wait for a million questions, one after the other. What the rest of the dead still have is taken
 * from them by who needs it.
 */
static void reap_some(struct registry *reg)
{
	struct reg_dead dead;

	if (find_dead(reg, reg->at, &dead, any_slot(reg), JOIN_QUESTIONS))
		reg_proc_reap(reg, &dead);
}

int reg_proc_join(struct registry *reg)
{
	struct reg_dead dead;
	int ret = 0;

	reap_some(reg);
	reg_orphan_sweep(reg);
	if (reg->slot >= REG_PROCS)
		ret = slot_take_unused(reg);
	if (ret == -EUSERS && reg_proc_find_dead(reg, reg->at, &dead) && reg_proc_reap(reg, &dead))
		ret = slot_take_unused(reg);
	if (ret == -EUSERS)
		rds_error("registry: %u processes have %s open, no more are possible: stop some", REG_PROCS, reg->path);
	if (ret)
		return ret;
	reg_change_begin(reg);
	reg_store(&reg_area(reg)->state[reg->slot], REG_PROC_USED);
	reg_change_end(reg);
	return 0;
}

static bool dead_has_slot(const struct reg_dead *dead, uint32_t slot)
{
	return slot < REG_PROCS && dead->bits[slot / 64] >> slot % 64 & 1;
}

bool reg_sock_survives(struct reg_sock *s, struct rds_procid *name)
{
	static const uint64_t none[2];

	reg_words_load(name, s->name);
	return !reg_words_eq(s->name, none) && rds_node_name_exists(name);
}

/*
 * A socket that other processes have becomes an orphan until one of them takes it over. Look-ups
 * are kept waiting for one socket at a time only.
 */
static void dead_free_socks(struct registry *reg, const struct reg_dead *dead)
{
	struct rds_procid name;
	bool stays;

	for (uint32_t link = 1; link <= reg_usable(reg->at); link++) {
		struct reg_sock *s = reg_sock_at(reg->at, link);

		reg_heartbeat(reg);
		if (!reg_load(&s->mark) || !dead_has_slot(dead, reg_load(&s->proc)))
			continue;
		stays = reg_sock_survives(s, &name);
		if (!stays)
			reg_port_clean(reg, s);
		reg_bindings_begin(reg);
		if (stays) {
			reg_store(&reg_area(reg)->orphans, 1);
			reg_sock_set_owner(s, REG_NOBODY, 0, &name);
		} else {
			reg_sock_free(reg, link);
		}
		reg_bindings_end(reg);
	}
}

void reg_fold_finish(struct registry *reg)
{
	struct reg_area *a = reg_area(reg);
	struct reg_fold *fold = &a->fold;
	uint32_t slot = reg_load(&fold->link) - 1;
	uint64_t id[2];

	if (slot < REG_PROCS) {
		for (int i = 0; i < RDS_STATS; i++)
			reg_store(&a->dead[i], reg_load(&fold->sum[i]));
		reg_words_load(id, fold->id);
		if (reg_proc_is(reg, reg->at, slot, id))
			reg_store(&a->state[slot], 0);
		reg_store(&a->folds, reg_load(&a->folds) + 1);
	}
	reg_store(&fold->link, 0);
}

/* Adds the counters to the sums of the dead and frees the slot: both or neither. */
static void slot_fold_and_free(struct registry *reg, uint32_t slot)
{
	struct reg_area *a = reg_area(reg);
	struct reg_fold *fold = &a->fold;
	struct reg_proc *p = &reg->f->proc[slot];
	uint64_t id[2];

	reg_change_begin(reg);
	reg_words_load(id, p->id);
	reg_words_store(fold->id, id);
	for (int i = 0; i < RDS_STATS; i++)
		reg_store(&fold->sum[i], reg_load(&a->dead[i]) + reg_load(&p->counters[i]));
	/* damage may have left another value, which the fold would not clear */
	reg_store(&a->state[slot], REG_PROC_USED);
	reg_store(&fold->link, slot + 1);
	reg_fold_finish(reg);
	reg_change_end(reg);
}

int reg_proc_reap(struct registry *reg, const struct reg_dead *suspects)
{
	struct reg_dead dead = { 0 };
	int n = 0;

	/* The suspects were found without the lock: a slot may have a new owner by now. */
	for (uint32_t slot = 0; slot < REG_PROCS; slot++) {
		if (!dead_has_slot(suspects, slot) || slot == reg->slot || !slot_read_state(reg->at, slot) ||
		    reg_slot_held(reg, slot))
			continue;
		dead.bits[slot / 64] |= UINT64_C(1) << slot % 64;
		n++;
	}
	if (!n)
		return 0;
	dead_free_socks(reg, &dead);
	for (uint32_t slot = 0; slot < REG_PROCS; slot++) {
		if (dead_has_slot(&dead, slot))
			slot_fold_and_free(reg, slot);
	}
	return n;
}

void reg_proc_leave(struct registry *reg)
{
	struct reg_dead self = { 0 };

	self.bits[reg->slot / 64] |= UINT64_C(1) << reg->slot % 64;
	dead_free_socks(reg, &self);
	slot_fold_and_free(reg, reg->slot);
}

/* ---- living processes ---- */

/*
 * True, at this moment.  Whoever reads more of the slot asks again afterwards: that may be of the
 * slot's next owner.
 */
static bool slot_is_of(struct registry *reg, uint32_t slot, const struct rds_procid *id)
{
	uint64_t idw[2];

	memcpy(idw, id, sizeof(idw));
	return reg_proc_is(reg, reg_view_current(reg), slot, idw);
}

bool registry_proc_alive(struct registry *reg, uint32_t slot, const struct rds_procid *id)
{
	if (registry_slot_is_others(slot))
		return reg_others_alive(slot, id);
	return slot_is_of(reg, slot, id) &&
	       (slot == reg->slot || (reg_slot_held(reg, slot) && slot_is_of(reg, slot, id)));
}

bool registry_proc_find(struct registry *reg, const struct rds_procid *id, uint32_t *slot)
{
	uint64_t idw[2];
	struct reg_view *v = reg_view_current(reg);

	memcpy(idw, id, sizeof(idw));
	for (uint32_t i = 0; i < REG_PROCS; i++) {
		if (!reg_proc_is(reg, v, i, idw))
			continue;
		*slot = i;
		return true;
	}
	return false;
}

void registry_set_cm_port(struct registry *reg, uint16_t port)
{
	reg_store(&reg->f->proc[reg->slot].cm_port, port);
}

uint16_t registry_proc_cm_port(struct registry *reg, uint32_t slot, const struct rds_procid *id)
{
	uint32_t port = slot_is_of(reg, slot, id) ? reg_load(&reg->f->proc[slot].cm_port) : 0;

	return slot_is_of(reg, slot, id) ? (uint16_t)port : 0;
}

pid_t registry_proc_pid(struct registry *reg, uint32_t slot, const struct rds_procid *id)
{
	pid_t pid = slot_is_of(reg, slot, id) ? reg_load(&reg->f->proc[slot].pid) : 0;

	return slot_is_of(reg, slot, id) ? pid : 0;
}

bool registry_proc_pid_is(struct registry *reg, uint32_t slot, const struct rds_procid *id, pid_t pid)
{
	int holder;

	if (!registry_proc_alive(reg, slot, id))
		return false;
	holder = reg_slot_holder(reg, slot);
	return holder == pid || holder < 0 || holder == INT32_MAX || pid <= 0;
}

/*
 * Does that process have a slot, according to the kernel's holder of the lock? May be called by a
 * process that has the registry locked.
 */
static bool pid_has_slot(struct registry *reg, pid_t pid)
{
	for (uint32_t slot = 0; slot < REG_PROCS; slot++)
		if (reg_load(&reg->f->proc[slot].pid) == pid && reg_slot_holder(reg, slot) == pid)
			return true;
	return false;
}

/*
 * The kernel reports the file's owner in the same terms as a peer's user, whatever user namespace
 * this process has entered since it opened the file.
 */
bool registry_is_user(struct registry *reg, uid_t uid)
{
	struct stat st;

	return os_fstat(reg_fd(reg), &st) == 0 && uid == st.st_uid && os_uid_is_known(uid);
}

static bool gid_is_node_group(struct registry *reg, gid_t gid)
{
	struct stat st;

	return os_fstat(reg_fd(reg), &st) == 0 && gid == st.st_gid && os_gid_is_known(gid);
}

bool registry_is_member(struct registry *reg, const struct ucred *cred)
{
	return registry_is_user(reg, cred->uid) || pid_has_slot(reg, cred->pid);
}

bool registry_trusts(struct registry *reg, const struct ucred *cred)
{
	int share = rds_options()->share;

	return share == RDS_OPT_SHARE_ALL || (share == RDS_OPT_SHARE_GROUP && gid_is_node_group(reg, cred->gid)) ||
	       registry_is_member(reg, cred);
}

static int reap(struct registry *reg, const struct reg_dead *dead)
{
	int ret;

	do {
		ret = reg_lock(reg);
		if (ret)
			return ret;
		ret = reg_proc_reap(reg, dead);
	} while (!reg_unlock(reg));
	return ret;
}

int registry_reap(struct registry *reg)
{
	struct reg_dead dead;

	return reg_proc_find_dead(reg, reg_view_current(reg), &dead) ? reap(reg, &dead) : 0;
}

int registry_reap_proc(struct registry *reg, uint32_t slot)
{
	struct reg_dead dead = {0};

	if (slot >= REG_PROCS || slot == reg->slot || !slot_read_state(reg_view_current(reg), slot) ||
	    reg_slot_held(reg, slot))
		return 0;
	dead.bits[slot / 64] |= UINT64_C(1) << slot % 64;
	return reap(reg, &dead);
}
