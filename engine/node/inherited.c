/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * inherited.c - a process that has inherited RDS sockets joins the registry in which their ports
 * are, also if it has become another user, who cannot open that file.
 *
 * A forked child keeps its parent's descriptor of the file, as long as it keeps what it needs to
 * own one of the sockets (share/standby_fork.c). The child has no lock on the file. When it joins,
 * the descriptor is its own.
 *
 * An exec passes the descriptor on if the next program could not find the file by its name. It does
 * not keep it open: record locks survive an exec, and the process would seem to be alive in its old
 * slot. So the descriptor lies in a socket, the *carrier*, that only the next program has. The
 * kernel says who made the carrier. Only one of this very process, with the rights that it still
 * has, is believed.
 *
 * Code of the program that makes system calls by itself may have closed the descriptor, and the
 * kernel may have given its number to another file. So a descriptor is compared with what was noted
 * when the file was opened by its name. A file that is not the registry is left as it is, and open.
 * The registry itself is only joined, and never made anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <sys/un.h>

#include "engine/node/registry_impl.h"
#include "engine/node/socket_name.h"
#include "engine/rds.h"
#include "engine/sys/log.h"

#define CARRIER_LEAST 64 /* programs give the lower numbers a meaning */

/* What the next program finds in the carrier, with the descriptor. */
struct carried {
	uint64_t magic;
	uint32_t version, reserved;
	struct reg_identity identity;
	char path[sizeof(((struct registry *)0)->path)];
};

/* Of a process that has not joined yet. */
static _Atomic int inherited_fd = -1;
static struct carried inherited;

static uid_t user_now(void)
{
	return (uid_t)os_syscall(SYS_geteuid, 0, 0, 0, 0, 0, 0);
}

static gid_t group_now(void)
{
	return (gid_t)os_syscall(SYS_getegid, 0, 0, 0, 0, 0, 0);
}

void reg_inherited_note(struct registry *reg)
{
	struct stat st = {.st_ino = 0};

	os_fstat(reg_fd(reg), &st);
	reg->identity.dev = st.st_dev;
	reg->identity.ino = st.st_ino;
	reg->identity.netns = reg_file_netns();
	reg->identity.uid = user_now();
	reg_ports_name(&reg->identity);
}

/* Whose it is does not matter: a user namespace may show another owner. */
static bool stat_is(const struct stat *st, const struct reg_identity *is)
{
	return S_ISREG(st->st_mode) && st->st_dev == is->dev && st->st_ino == is->ino;
}

/* Is it that file, and whole? Changes nothing, whatever file it is. */
static bool descriptor_is(int fd, const struct reg_identity *is)
{
	int flags = os_fcntl(fd, F_GETFL, 0);
	struct stat st;

	return flags >= 0 && (flags & O_ACCMODE) == O_RDWR && !os_fstat(fd, &st) && stat_is(&st, is) &&
	       reg_file_is_complete(fd);
}

/* ---- this process ---- */

void reg_inherited_keep(struct registry *reg)
{
	if (atomic_load(&reg->fds.n[0]) < 0)
		return;
	os_lock(atomic_load(&reg->fds.n[0]), F_UNLCK, 0, 0, false); /* of this process; it has not joined */
	inherited = (struct carried){.magic = REG_MAGIC, .version = REG_VERSION, .identity = reg->identity};
	memcpy(inherited.path, reg->path, sizeof(inherited.path));
	os_fd_move_slot(&reg->fds.n[0], &inherited_fd);
}

int reg_inherited_join(struct registry *reg)
{
	int ret;

	if (atomic_load(&inherited_fd) < 0 || os_fd_move_slot(&inherited_fd, &reg->fds.n[0]))
		return -ENOENT;
	reg->identity = inherited.identity;
	memcpy(reg->path, inherited.path, sizeof(reg->path));
	if (!descriptor_is(reg_fd(reg), &reg->identity)) {
		rds_warn("registry: the inherited descriptor is not %s any more: sockets in it are lost", reg->path);
		os_fd_forget_slot(&reg->fds.n[0]);
		return -ENOENT;
	}
	ret = reg_file_netns() == reg->identity.netns ? os_fd_register_hook(&reg->fds.n[0], reg_fd_moved, reg)
						      : -EAGAIN;
	if (ret && ret != -EAGAIN)
		rds_warn("registry: the inherited descriptor of %s cannot be kept (%s): more memory is needed",
			 reg->path, strerror(-ret));
	if (!ret)
		ret = reg_file_join(reg);
	if (ret == -EAGAIN)
		reg_file_close(reg);
	else
		reg->inherited = true;
	return ret == -EAGAIN ? -ENOENT : ret;
}

void rds_node_inherited_drop(void)
{
	int fd = atomic_load(&inherited_fd);

	if (fd < 0)
		return;
	if (descriptor_is(fd, &inherited.identity))
		os_close_slot(&inherited_fd);
	else
		os_fd_forget_slot(&inherited_fd);
}

int rds_node_inherited_fd(void)
{
	return atomic_load(&inherited_fd);
}

void rds_node_fork_child(void)
{
	if (rds_node_registry) {
		reg_inherited_keep(rds_node_registry);
		registry_abandon(rds_node_registry);
	}
	rds_node_registry = NULL;
	rds_stat_detach();
}

/* ---- the next program ---- */

/* What this process has joined, or would join. Returns the descriptor or -1. */
static int registry_here(struct carried *c)
{
	const struct registry *reg = rds_node_registry;

	if (!reg) {
		*c = inherited;
		return atomic_load(&inherited_fd);
	}
	*c = (struct carried){.magic = REG_MAGIC, .version = REG_VERSION, .identity = reg->identity};
	memcpy(c->path, reg->path, sizeof(c->path));
	return atomic_load(&reg->fds.n[0]);
}

bool rds_node_is_away(void)
{
	struct carried c;
	struct stat st;

	if (registry_here(&c) < 0 || reg_file_netns() != c.identity.netns)
		return false;
	return user_now() != c.identity.uid || group_now() != c.identity.gid || os_stat(c.path, &st) ||
	       !stat_is(&st, &c.identity);
}

/* Not on the list of internal descriptors, nor is the list changed: it may be the parent's. */
static void end_close(int fd)
{
	os_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
}

static int carrier_make(int ends[2])
{
	struct rds_procid name;
	struct sockaddr_un sun;
	socklen_t len;
	int err = os_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);

	if (err < 0)
		return err;
	os_random(&name, sizeof(name));
	len = rds_node_name_address(RDS_NODE_NAME_REGISTRY, &name, &sun);
	err = os_bind(ends[0], (struct sockaddr *)&sun, len);
	if (err) {
		end_close(ends[0]);
		end_close(ends[1]);
	}
	return err;
}

/* No lock and no memory: this may be a child that shares its parent's memory. */
int rds_node_pass_on(void)
{
	struct carried c;
	int ends[2], high, fd = registry_here(&c), err;

	/* The number of the parent may be another one by now. */
	if (fd < 0 || !descriptor_is(fd, &c.identity))
		return -EBADF;
	err = carrier_make(ends);
	if (err < 0)
		return err;
	err = os_pass_send(ends[1], &c, sizeof(c), &fd, 1, MSG_DONTWAIT);
	end_close(ends[1]);
	high = err ? -1 : os_fcntl(ends[0], F_DUPFD, CARRIER_LEAST);
	if (!err && high < 0) { /* a low limit */
		high = ends[0];
		os_fcntl(high, F_SETFD, 0);
	} else {
		end_close(ends[0]);
	}
	return err ? err : high;
}

/* This process made it, as another program, and has not gained any right since. */
static bool carrier_is_ours(int fd)
{
	struct ucred cred;

	return rds_node_name_is(fd, RDS_NODE_NAME_REGISTRY) && os_peer_cred(fd, &cred) && cred.pid == os_getpid() &&
	       cred.uid == user_now() && cred.gid == group_now() && !getauxval(AT_SECURE);
}

bool rds_node_take_passed(int carrier)
{
	struct carried c;
	int fds[OS_PASS_MAX];
	unsigned n;
	ssize_t len;
	bool lost;
	int err;

	if (!carrier_is_ours(carrier))
		return false;
	/*
	 * A constructor that ran earlier may have made a socket. Then a second descriptor, perhaps of the
	 * same file, must not come into the table.
	 */
	if (rds_node_registry || atomic_load(&inherited_fd) >= 0) {
		os_close(carrier);
		return true;
	}
	len = os_pass_recv_few(carrier, &c, sizeof(c), fds, 1, &n, &lost, MSG_DONTWAIT);
	os_close(carrier);
	if (len >= 0 && lost)
		rds_warn("registry: the RDS sockets from before the exec are lost: " RDS_LOG_EMFILE);
	if (len < 0 || !n)
		return true;
	if (len != (ssize_t)sizeof(c) || c.magic != REG_MAGIC || c.version != REG_VERSION ||
	    c.path[sizeof(c.path) - 1] || c.identity.domain[sizeof(c.identity.domain) - 1] ||
	    !descriptor_is(fds[0], &c.identity)) {
		os_close(fds[0]);
		return true;
	}
	inherited = c;
	err = os_dup_high_slot(fds[0], &inherited_fd);
	if (err)
		rds_warn("registry: the RDS sockets from before the exec, of %s, are lost (%s): more memory is needed",
			 c.path, strerror(-err));
	return true;
}
