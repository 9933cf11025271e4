/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * registry_parcel.c - files beside the registry, in which something is left for a socket of nobody (inbox.c).
 *
 * Abstract names are everybody's: any user of the host can take that of an inbox before we do, or fill it with connections in which nothing ever
 * comes.  Into the registry's directory comes nobody else, as long as RDS_PRELOAD_SHARE is `user`; otherwise there are no such files.
 *
 * The files of a socket have numbers from 0, without gaps, the oldest first.  One appears with all that is in it.  It goes when somebody takes it, or
 * when the socket has ended: its entry's `left` says that there may be some.
 * Must not know what is in them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "engine/log.h"
#include "engine/options.h"
#include "engine/registry_impl.h"

#define MOST 4096u /* of one socket */
#define ROOM (sizeof(((struct registry *)0)->path) + 64)

/* False: there are none. */
static bool path_of(const struct registry *reg, const struct rds_procid *name, unsigned number, char path[ROOM])
{
	uint64_t w[2];

	if (rds_options()->share != RDS_SHARE_USER || strlen(reg->path) + 1 >= sizeof(reg->path)) /* cut off */
		return false;
	memcpy(w, name, sizeof(w));
	snprintf(path, ROOM, "%s.%016llx%016llx.%u", reg->path, (unsigned long long)w[0], (unsigned long long)w[1],
		 number);
	return true;
}

int registry_parcel_new(struct registry *reg)
{
	static const struct rds_procid none;
	char path[ROOM];
	int fd, err;

	if (!path_of(reg, &none, 0, path))
		return -EOPNOTSUPP;
	*strrchr(path, '/') = 0;
	fd = os_open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	err = fd < 0 ? fd : os_fchmod(fd, 0600); /* whatever the umask is */
	if (fd >= 0 && err)
		os_close(fd);
	return err ? err : fd;
}

int registry_parcel_leave(struct registry *reg, const struct rds_procid *name, int file)
{
	char path[ROOM], from[40];
	long err = -EEXIST;
	unsigned i;

	snprintf(from, sizeof(from), "/proc/thread-self/fd/%d", file);
	for (i = 0; i < MOST && err == -EEXIST; i++)
		err = !path_of(reg, name, i, path) ? -EOPNOTSUPP
						   : os_syscall(SYS_linkat, AT_FDCWD, (long)from, AT_FDCWD, (long)path,
								AT_SYMLINK_FOLLOW, 0);
	/* Others have gone on without us: has somebody taken the socket, and this with it?  If not, he may have looked before it was here. */
	if (!err && !reg_holds(reg) && !os_unlinkat(AT_FDCWD, path))
		err = -EAGAIN;
	return (int)err;
}

int registry_parcel_take(struct registry *reg, const struct rds_procid *name, unsigned number)
{
	char path[ROOM];
	int fd;

	if (number >= MOST || !path_of(reg, name, number, path))
		return -ENOENT;
	fd = os_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	if (fd >= 0)
		os_unlinkat(AT_FDCWD, path);
	if (fd != -EACCES)
		return fd;
	rds_warn_once("what processes have left beside %s for an RDS socket cannot be taken: this process has given up "
		      "its rights",
		      reg->path);
	return -ENOENT;
}

void reg_parcels_end(struct registry *reg, struct reg_sock *s)
{
	struct rds_procid name;
	char path[ROOM];
	unsigned i;

	if (!reg_load(&s->left))
		return;
	reg_words_load(&name, s->name);
	for (i = 0; i < MOST && path_of(reg, &name, i, path) && !os_unlinkat(AT_FDCWD, path); i++)
		;
}
