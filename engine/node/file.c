/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * file.c - the file of the node registry: its place, the check of its owner and rights, its size.
 *
 *	<RDS_PRELOAD_REGISTRY_DIR>/rdspreload-<uid>/node-<network namespace>-v<version>
 *
 * The directory is rdspreload-g<gid>-<uid> or rdspreload-all-<uid> if other users may join the node
 * (RDS_PRELOAD_SHARE). They may read the directory, which shows the ports (port_name.c), but never
 * open the file: who may open a file can lock it, and who may write to it can truncate it.
 *
 * The process that holds the record lock of a blank file fills it in, and writes the magic number
 * last. So a process that is killed in between leaves a file that the next process completes. All
 * memory is reserved before it is touched, so a full /dev/shm is ENOSPC here and never SIGBUS
 * later. This file knows the first words of the header and nothing else of the contents.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/sys/patience.h"
#include "engine/node/registry_impl.h"

static const mode_t dir_rights[] = {
	[RDS_OPT_SHARE_USER] = 0700,
	[RDS_OPT_SHARE_GROUP] = 0750,
	[RDS_OPT_SHARE_ALL] = 0755,
};
#define FILE_RIGHTS 0600
#define RIGHTS_NEVER 0022 /* others could write */

static uid_t my_uid(void)
{
	return (uid_t)os_syscall(SYS_geteuid, 0, 0, 0, 0, 0, 0);
}

static gid_t my_gid(void)
{
	return (gid_t)os_syscall(SYS_getegid, 0, 0, 0, 0, 0, 0);
}

static int file_refuse(const char *path, const char *why, const struct stat *st)
{
	rds_error("registry: %s %s (uid %u, gid %u, mode %04o; this process has uid %u, gid %u): remove it, or set "
		  "RDS_PRELOAD_REGISTRY_DIR or RDS_PRELOAD_SHARE",
		  path, why, (unsigned)st->st_uid, (unsigned)st->st_gid, (unsigned)st->st_mode & 07777, (unsigned)my_uid(),
		  (unsigned)my_gid());
	return -EACCES;
}

/* Several users may have the same number here. Only the true owner of a file may set its rights. */
static bool owner_is_us(int fd, const struct stat *st)
{
	return st->st_uid == my_uid() && (os_uid_is_known(st->st_uid) || !os_fchmod(fd, st->st_mode & 07777));
}

/*
 * May this process trust the file? Missing rights come from a umask, or from a creator that was
 * killed before its chmod.
 */
static int check_rights(const struct registry *reg, int fd, const char *path, mode_t want)
{
	struct stat st;
	int ret = os_fstat(fd, &st);

	if (ret)
		return ret;
	if (!owner_is_us(fd, &st))
		return file_refuse(path, "belongs to another user", &st);
	if (rds_options()->share == RDS_OPT_SHARE_GROUP && st.st_gid != reg->identity.gid &&
	    os_fchown(fd, (uid_t)-1, reg->identity.gid))
		return file_refuse(path, "does not belong to the node's group", &st);
	if (st.st_mode & RIGHTS_NEVER)
		return file_refuse(path, "can be written by others", &st);
	return (st.st_mode & want) == want ? 0 : os_fchmod(fd, want);
}

/*
 * A umask may keep out the owner as well, which then cannot open the file to set its rights. So
 * they are set through a descriptor that gives no access. Only missing rights are added:
 * check_rights() checks the others.
 */
static void rights_mend_owner(int dir, const char *name, mode_t bits)
{
	int fd = os_openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
	char path[40];
	struct stat st;

	if (fd < 0)
		return;
	if (!os_fstat(fd, &st) && st.st_uid == my_uid() && (st.st_mode & bits) != bits && !S_ISLNK(st.st_mode)) {
		snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
		os_syscall(SYS_fchmodat, AT_FDCWD, (long)path, (st.st_mode & 07777) | bits, 0, 0, 0);
	}
	os_close(fd);
}

/*
 * The creator was killed before its chmod, or is making it now. So the file is opened a second time
 * in any case, and no bit is left out that the creator needs.
 */
static int open_mending_rights(int dir, const char *name, int flags, mode_t bits)
{
	int fd = os_openat(dir, name, flags, 0);

	if (fd != -EACCES)
		return fd;
	rights_mend_owner(dir, name, bits);
	return os_openat(dir, name, flags, 0);
}

static int file_error(const char *path, const char *what, int err)
{
	const char *hint = "set RDS_PRELOAD_REGISTRY_DIR to another directory, best on a tmpfs";

	if (err == -ENOMEM)
		hint = "more memory is needed, and room there (ulimit -v; after mlockall() ulimit -l)";
	else if (err == -ENOSPC || err == -EDQUOT)
		hint = "make room there or set RDS_PRELOAD_REGISTRY_DIR to another tmpfs";
	else if (err == -EACCES || err == -EPERM || err == -EROFS)
		hint = "set RDS_PRELOAD_REGISTRY_DIR to a directory that can be written";
	else if (err == -ENOENT)
		hint = "set RDS_PRELOAD_REGISTRY_DIR to a directory that exists";
	else if (err == -ENOTDIR || err == -ELOOP)
		hint = "a file or a symbolic link is where a directory must be: set RDS_PRELOAD_REGISTRY_DIR to another one";
	else if (err == -ENAMETOOLONG)
		hint = "set RDS_PRELOAD_REGISTRY_DIR to a shorter name";
	else if (err == -EOPNOTSUPP)
		hint = "set RDS_PRELOAD_REGISTRY_DIR to a tmpfs";
	else if (err == -EFBIG)
		hint = "raise the limit of file sizes (ulimit -f)";
	else if (err == -EMFILE)
		hint = RDS_LOG_EMFILE;
	else if (err == -ENFILE)
		hint = "raise the system's limit of open files (sysctl fs.file-max)";
	rds_error("registry: cannot %s %s (%s): %s", what, path, strerror(-err), hint);
	return err;
}

int reg_dir_path(const struct registry *reg, uid_t uid, char *path, size_t len)
{
	const struct rds_options *o = rds_options();
	int n;

	if (o->share == RDS_OPT_SHARE_USER)
		n = snprintf(path, len, "%s/rdspreload-%u", o->registry_dir, (unsigned)uid);
	else if (o->share == RDS_OPT_SHARE_GROUP)
		n = snprintf(path, len, "%s/rdspreload-g%u-%u", o->registry_dir, (unsigned)reg->identity.gid,
			     (unsigned)uid);
	else
		n = snprintf(path, len, "%s/rdspreload-all-%u", o->registry_dir, (unsigned)uid);
	return (size_t)n < len ? 0 : -ENAMETOOLONG;
}

int reg_dir_open(const struct registry *reg, char *path, size_t len)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	const struct rds_options *o = rds_options();
	int fd, ret = reg_dir_path(reg, my_uid(), path, len);

	if (ret)
		return file_error(o->registry_dir, "use the long name of", ret);
	ret = os_mkdir(path, dir_rights[o->share]);
	if (ret && ret != -EEXIST)
		return file_error(path, "make", ret);
	fd = open_mending_rights(AT_FDCWD, path, flags, S_IRWXU);
	if (fd < 0) {
		file_error(path, "open as a directory", fd);
		return fd == -ENOTDIR || fd == -ELOOP ? -EACCES : fd;
	}
	ret = check_rights(reg, fd, path, dir_rights[o->share]);
	if (ret) {
		os_close(fd);
		return ret;
	}
	return fd;
}

uint64_t reg_file_netns(void)
{
	struct stat st;
	int ret = os_stat("/proc/thread-self/ns/net", &st);

	if (!ret)
		return st.st_ino;
	rds_warn_once("registry: no /proc/thread-self/ns/net (%s): all network namespaces share one node; mount /proc, "
		      "or give each namespace an RDS_PRELOAD_REGISTRY_DIR of its own", strerror(-ret));
	return 0;
}

static int node_file_open_name(int dir, const char *name)
{
	int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
	int fd = open_mending_rights(dir, name, flags, S_IRUSR | S_IWUSR);

	if (fd == -ENOENT) {
		fd = os_openat(dir, name, flags | O_CREAT | O_EXCL, FILE_RIGHTS);
		if (fd == -EEXIST)
			return -EAGAIN;
	}
	return fd;
}

static int node_file_open(struct registry *reg)
{
	struct stat st;
	char name[48];
	int dir, fd, ret;
	size_t n;

	dir = reg_dir_open(reg, reg->path, sizeof(reg->path));
	if (dir < 0)
		return dir;
	snprintf(name, sizeof(name), "node-%llu-v%d", (unsigned long long)reg_file_netns(), REG_VERSION);
	fd = node_file_open_name(dir, name);
	os_close(dir);
	n = strlen(reg->path);
	snprintf(reg->path + n, sizeof(reg->path) - n, "/%s", name);
	if (fd == -EAGAIN)
		return -EAGAIN;
	if (fd == -ELOOP) {
		rds_error("registry: %s is a symbolic link: remove it, or set RDS_PRELOAD_REGISTRY_DIR", reg->path);
		return -EACCES;
	}
	if (fd < 0)
		return file_error(reg->path, "open", fd);
	ret = os_fstat(fd, &st);
	if (!ret && !S_ISREG(st.st_mode))
		ret = file_refuse(reg->path, "is not a file", &st);
	if (!ret)
		ret = check_rights(reg, fd, reg->path, FILE_RIGHTS);
	if (ret) {
		os_close(fd);
		return ret;
	}
	return fd;
}

/* The words that are the same in every version. */
struct header_prefix {
	uint64_t magic;
	uint32_t version, shape;
};

static bool header_is_complete(const struct header_prefix *p, off_t size)
{
	return p->magic == REG_MAGIC && p->version == REG_VERSION && p->shape == REG_SHAPE && size >= (off_t)REG_SIZE(REG_CHUNK);
}

static int someone_lives(struct registry *reg, const struct header_prefix *p)
{
	if (os_lock_holder(reg_fd(reg), REG_SLOT_BYTE(0), REG_SLOT_BYTES_MAX) == 0)
		return 0;
	if (p->magic == REG_MAGIC && p->version != REG_VERSION)
		rds_error("registry: %s has version %u and is in use, this library has version %u: stop the programs that "
			  "use the other rdspreload, or set RDS_PRELOAD_REGISTRY_DIR",
			  reg->path, p->version, REG_VERSION);
	else
		rds_error("registry: %s is damaged and in use: stop the programs that use it, the next one makes it anew",
			  reg->path);
	return -EPROTO;
}

/*
 * Locked. Afterwards the file has at least the first chunk. *blank: the contents have to be filled
 * in.
 */
static int prepare_contents(struct registry *reg, bool *blank)
{
	struct header_prefix p = {0};
	struct stat st;
	int ret = os_fstat(reg_fd(reg), &st);

	if (ret)
		return ret;
	/*
	 * Another process removed the file between open and lock. Or the last process has left the
	 * file without a name, and no process would find this one here. A lock on any byte means
	 * that another process is there or is about to join.
	 */
	if (st.st_nlink == 0 && (!reg->lost || !os_lock_holder(reg_fd(reg), 0, 0)))
		return -EAGAIN;
	os_pread(reg_fd(reg), &p, sizeof(p), 0);
	*blank = !header_is_complete(&p, st.st_size);
	/* the state was different before, so the lock may be on another byte */
	if (*blank == !!reg->f)
		return -EAGAIN;
	if (*blank) {
		ret = someone_lives(reg, &p);
		if (ret)
			return ret;
		if (p.magic)
			rds_warn("registry: %s is damaged or of version %u, and no process uses it: a new one is made",
				 reg->path, p.magic == REG_MAGIC ? p.version : 0);
		ret = os_ftruncate(reg_fd(reg), 0);
		if (ret)
			return file_error(reg->path, "empty", ret);
	}
	ret = os_fallocate(reg_fd(reg), 0, *blank ? (off_t)REG_SIZE(REG_CHUNK) : (off_t)REG_HEAD_SIZE);
	if (ret) {
		if (*blank)
			os_ftruncate(reg_fd(reg), 0);
		return file_error(reg->path, "reserve memory for", ret);
	}
	return 0;
}

static int map_head(struct registry *reg)
{
	void *p;
	int ret = os_mmap(REG_HEAD_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, reg_fd(reg), 0, &p);

	if (ret)
		return file_error(reg->path, "map", ret);
	reg->f = p;
	reg->pub.generation = &reg->f->h.generation;
	return 0;
}

bool reg_file_is_complete(int fd)
{
	struct header_prefix p = {0};
	struct stat st;

	if (os_fstat(fd, &st))
		return false;
	os_pread(fd, &p, sizeof(p), 0);
	return header_is_complete(&p, st.st_size);
}

static int file_fill_in(struct registry *reg, bool blank)
{
	struct stat st;
	int ret = 0;

	/*
	 * No other process uses the file: check everything once, which repairs damage. A new file
	 * gets its lists by the same rebuild.
	 */
	reg->suspicious = os_lock_holder(reg_fd(reg), REG_SLOT_BYTE(0), REG_SLOT_BYTES_MAX) == 0;
	if (reg->suspicious)
		reg_other_versions_tell(reg);
	if (!blank)
		return 0;
	ret = map_head(reg);
	if (!ret)
		ret = reg_area_map(reg, 0, 0);
	if (ret)
		return ret;
	reg_file_intact(reg);
	reg_store(&reg_load(&reg->view[0].a)->reserved, REG_CHUNK);
	reg_store(&reg->f->h.version, REG_VERSION);
	reg_store(&reg->f->h.shape, REG_SHAPE);
	reg_store(&reg->f->h.magic, REG_MAGIC);
	/* Other processes may have gone on without this one (blank_give_up()). */
	return os_fstat(reg_fd(reg), &st) || !st.st_nlink ? -EAGAIN : 0;
}

/*
 * The file is blank. If there is a file that has lost its name, returns the descriptor of that one
 * instead.
 */
static int lost_file_prefer(struct registry *reg, int fd)
{
	int lost = reg_lost_find(fd, reg_file_is_complete);

	if (lost == -ENOENT)
		return fd;
	if (lost < 0) { /* there must be no second node beside it */
		os_close(fd);
		return file_error(reg->path, "find out who else has", lost);
	}
	if (check_rights(reg, lost, reg->path, FILE_RIGHTS)) {
		os_close(lost);
		return fd;
	}
	os_close(fd);
	reg->lost = true;
	return lost;
}

/*
 * The process that fills in the file is stopped, and no process uses the file: a new file takes its
 * place. If the stopped process completes the old file just now, the old file is found without its
 * name.
 */
static int blank_give_up(struct registry *reg)
{
	struct stat ours, named;

	if (reg_file_is_complete(reg_fd(reg)) || os_lock_holder(reg_fd(reg), REG_SLOT_BYTE(0), REG_SLOT_BYTES_MAX) ||
	    os_fstat(reg_fd(reg), &ours) || os_stat(reg->path, &named) || ours.st_ino != named.st_ino)
		return -EAGAIN;
	/* it is another user's file */
	reg->waits = os_syscall(SYS_unlinkat, AT_FDCWD, (long)reg->path, 0, 0, 0, 0) < 0;
	return -EAGAIN;
}

/* Once in each process that finds the file without a name. */
static void warn_file_lost(const struct registry *reg)
{
	rds_warn_once("registry: %s was removed while programs use it. They go on, and newcomers of this pid namespace find them. If "
		      "logind did that at logout, set RemoveIPC=no in logind.conf, or RDS_PRELOAD_REGISTRY_DIR to a directory "
		      "outside of /dev/shm", reg->path);
}

static int file_attach(struct registry *reg)
{
	bool blank = false;
	int fd, ret;

	reg->lost = false;
	fd = node_file_open(reg);
	if (fd < 0)
		return fd;
	if (!reg_file_is_complete(fd))
		fd = lost_file_prefer(reg, fd);
	if (fd < 0)
		return fd;
	/* before the first lock: closing the low number would drop it */
	ret = os_dup_high_slot(fd, &reg->fds.n[0]);
	if (ret)
		return file_error(reg->path, "keep open", ret);
	ret = os_fd_register_hook(&reg->fds.n[0], reg_fd_moved, reg);
	if (!ret && reg_file_is_complete(reg_fd(reg))) /* the header tells which area's lock counts */
		ret = map_head(reg);
	if (!ret)
		ret = reg_record_lock(reg);
	if (ret == -ESTALE)
		ret = blank_give_up(reg);
	if (ret) {
		reg_file_close(reg);
		return ret;
	}
	ret = prepare_contents(reg, &blank);
	if (!ret)
		ret = file_fill_in(reg, blank);
	if (ret) {
		reg_record_unlock(reg);
		reg_file_close(reg);
	}
	return ret;
}

int reg_file_join(struct registry *reg)
{
	bool blank;
	int ret = map_head(reg);

	if (!ret)
		ret = reg_record_lock(reg);
	if (ret)
		return ret;
	reg->lost = true; /* whether or not it has a name */
	/* Never blank: contents that are mapped are not made anew. */
	ret = prepare_contents(reg, &blank);
	if (!ret)
		ret = file_fill_in(reg, false);
	if (ret)
		reg_record_unlock(reg);
	return ret;
}

int reg_file_open(struct registry *reg)
{
	int ret = reg_inherited_join(reg);

	if (ret != -ENOENT)
		return ret;
	ret = -EAGAIN;
	reg->identity.gid = my_gid();
	/*
	 * Tries are a millisecond apart: another process is between mkdir and chmod.  Not by the clock,
	 * because one try may wait longer than all pauses together, for the lock of a stopped process.
	 */
	for (uint64_t tries = 0; tries < rds_patience_ms(RDS_PATIENCE_REGISTRY_RIGHTS) && ret == -EAGAIN; tries++) {
		if (tries)
			os_poll(NULL, 0, 1);
		ret = file_attach(reg);
	}
	if (!ret)
		reg_inherited_note(reg);
	return ret == -EAGAIN ? file_error(reg->path, "get the rights for", -EACCES) : ret;
}

void reg_file_close(struct registry *reg)
{
	for (int i = 0; i < REG_AREAS; i++)
		reg_area_unmap(&reg->view[i]);
	reg_common_unmap(reg);
	if (reg->f)
		os_munmap(reg->f, REG_HEAD_SIZE);
	reg->f = NULL;
	reg->term = 0;
	os_close_slot(&reg->fds.n[0]);
}

bool reg_file_intact(struct registry *reg)
{
	struct stat st;

	reg->size = os_fstat(reg_fd(reg), &st) ? 0 : st.st_size;
	if (reg->size && !st.st_nlink)
		warn_file_lost(reg);
	return reg->size >= (off_t)REG_SIZE(REG_CHUNK);
}

static int entries_reserve(struct registry *reg, uint32_t from, uint32_t to)
{
	off_t at = (off_t)REG_AREA_OFFSET(REG_TERM_AREA(reg->term)), off = from ? (off_t)REG_AREA_SIZE(from) : 0;

	return os_fallocate(reg_fd(reg), at + off, (off_t)REG_AREA_SIZE(to) - off);
}

/*
 * A wrong number of entries is damage. Entries that were never written never existed; the others are
 * checked one by one.
 */
static int entries_refresh(struct registry *reg, uint32_t fit)
{
	struct reg_area *a = reg_area(reg);
	uint32_t reserved = reg_load(&a->reserved), known = reg_usable(reg->at);
	int ret = 0;

	if (reserved > known || reserved < REG_CHUNK || reserved % REG_CHUNK)
		fit = reg_area_written(reg, REG_TERM_AREA(reg->term));
	fit = fit ? fit : REG_CHUNK;
	if (reserved > fit || reserved < REG_CHUNK || reserved % REG_CHUNK) {
		reg_store(&a->dirty, 1);
		reg_store(&a->reserved, fit);
		reserved = fit;
	}
	if (reserved > known) /* holes in the file, if any, get their memory now */
		ret = entries_reserve(reg, known, reserved);
	if (!ret)
		ret = reg_area_map(reg, REG_TERM_AREA(reg->term), reserved);
	if (!ret)
		reg_store(&reg->at->usable, reserved);
	return ret;
}

int reg_file_refresh(struct registry *reg)
{
	unsigned area = REG_TERM_AREA(reg->term);
	uint32_t fit;
	int ret;

	if (reg->size < (off_t)REG_SIZE(REG_CHUNK)) {
		rds_error("registry: %s was truncated or its descriptor closed: restart this program", reg->path);
		return -EIO;
	}
	ret = reg_area_map(reg, area, 0);
	if (ret)
		return file_error(reg->path, "map", ret);
	reg->at = &reg->view[area];
	fit = reg_area_entries(reg, area);
	if (!fit) { /* an area that was never used: damage */
		ret = entries_reserve(reg, 0, REG_CHUNK);
		fit = REG_CHUNK;
	}
	if (!ret)
		reg_heartbeat(reg);
	if (!ret && !(reg->term & REG_TERM_COPYING))
		ret = entries_refresh(reg, fit);
	return ret ? file_error(reg->path, "reserve memory for", ret) : 0;
}

int reg_file_grow(struct registry *reg)
{
	struct reg_area *a = reg_area(reg);
	uint32_t had = reg_usable(reg->at);
	int ret;

	if (had >= REG_SOCKS) {
		rds_error("registry: %u sockets on this node, no more are possible: close some", REG_SOCKS);
		return -ENFILE;
	}
	ret = entries_reserve(reg, had, had + REG_CHUNK);
	if (!ret)
		ret = reg_area_map(reg, REG_TERM_AREA(reg->term), had + REG_CHUNK);
	if (ret)
		return file_error(reg->path, "reserve memory for", ret);
	reg_store(&reg->at->usable, had + REG_CHUNK);
	reg_change_begin(reg);
	for (uint32_t link = had + REG_CHUNK; link > had; link--) {
		reg_store(&reg_sock_at(reg->at, link)->mark, 0);
		reg_store(&reg_sock_at(reg->at, link)->next, reg_load(&a->free));
		reg_store(&a->free, link);
	}
	reg_store(&a->reserved, had + REG_CHUNK);
	reg_change_end(reg);
	return 0;
}
