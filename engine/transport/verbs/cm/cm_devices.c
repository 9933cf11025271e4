/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cm_devices.c - the devices that librdmacm has open for itself.
 *
 * librdmacm opens a device with the first id on it and keeps it open.  Some devices cannot be
 * removed while any process has them open: the administrator who removes one waits.  No object of
 * ours is made in that context, so its descriptors are replaced by /dev/null: the device is *put
 * aside*.  All further requests of librdmacm to that device fail.  librdmacm asks for a protection
 * domain with the first id on a device and gives it back with the last, so a device that is put
 * aside and has lost all its ids cannot be used any more.  Hence a device is put aside
 *
 *   - when we have it open ourselves, and with it an id that stays (device_id.c);
 *   - when any id receives DEVICE_REMOVAL.
 *
 * There are times when we do not have the device open: because it could not be opened (it was just
 * being removed, or a resource was short), or because we have closed it (it is broken, and may be
 * repaired).  Then one of the ids on it is not destroyed but stays, the *witness*: it keeps the
 * protection domain, and receives DEVICE_REMOVAL.
 *
 * The descriptors are replaced while other threads may be in librdmacm.  None of these is using
 * them: librdmacm uses a device's context under its own lock, to make the protection domain and to
 * give it back, and for nothing else that we make it do (queue pairs and completion queues are
 * made of our context).  So it is enough that an id exists on the device, and is not destroyed,
 * while the descriptors are replaced.  Every caller has one: its own, or one with an event that is
 * not acknowledged yet, for which rdma_destroy_id waits.  Two callers at the same time are
 * serialised by the lock below.
 *
 * In a forked child librdmacm goes on with the same context.  There it has no descriptor any more
 * (os_fd_abandon), nor any descriptor number of the parent's, which would belong to another file
 * by now.  Must not know what the ids are for.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "engine/transport/verbs/cm/cm.h"
#include "engine/rds.h"

struct witness {
	struct witness *next;
	struct rdma_cm_id *cm;
	bool done; /* not needed any more */
};

static void witness_release(struct rds_timer *tm);

static struct {
	pthread_mutex_t lock; /* no other lock is taken, and nothing is waited for, under it */
	struct witness *list; /* at most one for each context */
	struct rds_timer release;
} cm_devs = {.lock = PTHREAD_MUTEX_INITIALIZER, .release.fn = witness_release};

static bool fd_is_null(int fd)
{
	struct stat st;

	return !os_fstat(fd, &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

/* A negative descriptor is one that was dropped in a forked child. */
static bool ctx_is_aside(const struct ibv_context *ctx)
{
	return (ctx->cmd_fd < 0 || fd_is_null(ctx->cmd_fd)) && (ctx->async_fd < 0 || fd_is_null(ctx->async_fd));
}

static struct witness *witness_find(const struct ibv_context *ctx)
{
	struct witness *w;

	for (w = cm_devs.list; w && w->cm->verbs != ctx; w = w->next)
		;
	return w;
}

/* Moves the descriptor out of the program's way; a forked child closes it. */
static int ctx_fd_adopt(int *fd)
{
	return os_fd_is_internal(*fd) ? 0 : os_fd_adopt(fd);
}

static void fd_put_aside(int *fd)
{
	int null;

	if (*fd < 0 || fd_is_null(*fd))
		return;
	null = os_open("/dev/null", O_RDWR | O_CLOEXEC, 0);
	if (null < 0)
		return;
	if (ctx_fd_adopt(fd) == 0)
		os_syscall(SYS_dup3, null, *fd, O_CLOEXEC, 0, 0, 0);
	os_close(null);
}

void verbs_cm_dev_put_aside(struct ibv_context *ctx)
{
	struct witness *w;

	pthread_mutex_lock(&cm_devs.lock);
	fd_put_aside(&ctx->cmd_fd);
	fd_put_aside(&ctx->async_fd);
	w = witness_find(ctx);
	if (w) {
		w->done = true;
		rds_timer_need(&cm_devs.release, os_now_ns());
	}
	pthread_mutex_unlock(&cm_devs.lock);
}

/* The helper destroys witnesses, since it may be handling an event of one. */
static void witness_release(struct rds_timer *tm)
{
	struct witness **p = &cm_devs.list, *w, *done = NULL;

	(void)tm;
	pthread_mutex_lock(&cm_devs.lock);
	while ((w = *p)) {
		if (w->done) {
			*p = w->next;
			w->next = done;
			done = w;
		} else {
			p = &w->next;
		}
	}
	pthread_mutex_unlock(&cm_devs.lock);
	while ((w = done)) {
		done = w->next;
		vb.rdma_destroy_id(w->cm); /* nothing is under way on it */
		free(w);
	}
}

/* The lock is held.  False: there is a witness already, or no memory. */
static bool witness_new(struct rdma_cm_id *cm)
{
	struct witness *w = witness_find(cm->verbs) ? NULL : malloc(sizeof(*w));

	if (!w)
		return false;
	cm->context = NULL;
	*w = (struct witness){.next = cm_devs.list, .cm = cm};
	cm_devs.list = w;
	ctx_fd_adopt(&cm->verbs->cmd_fd); /* on failure it stays as it was */
	ctx_fd_adopt(&cm->verbs->async_fd);
	return true;
}

bool verbs_cm_dev_keep_id(struct rdma_cm_id *cm)
{
	bool kept;

	if (!cm->verbs)
		return false;
	pthread_mutex_lock(&cm_devs.lock);
	kept = !ctx_is_aside(cm->verbs) && witness_new(cm);
	pthread_mutex_unlock(&cm_devs.lock);
	return kept;
}

void verbs_cm_dev_leave_id(struct rdma_cm_id *cm)
{
	bool kept;

	pthread_mutex_lock(&cm_devs.lock);
	kept = witness_new(cm);
	pthread_mutex_unlock(&cm_devs.lock);
	if (!kept)
		vb.rdma_destroy_id(cm);
}

/*
 * The id has just resolved its address and is being destroyed: its endpoint was given up.  If no
 * other id can be bound on the device in its place, the device is being removed.
 */
static void ctx_unwanted(struct rdma_cm_id *cm)
{
	struct rdma_cm_id *beside;
	bool kept;

	pthread_mutex_lock(&cm_devs.lock);
	kept = ctx_is_aside(cm->verbs) || witness_find(cm->verbs);
	pthread_mutex_unlock(&cm_devs.lock);
	if (kept)
		return;
	if (!verbs_cm_id_new_bound(NULL, rdma_get_local_addr(cm), &beside)) {
		kept = beside->verbs == cm->verbs;
		verbs_cm_destroy_bound(beside);
	}
	if (!kept)
		verbs_cm_dev_put_aside(cm->verbs);
}

void verbs_cm_dev_event(struct rdma_cm_id *cm, enum rdma_cm_event_type what)
{
	if (!cm->verbs || verbs_cm_dev_owns_id(cm))
		return;
	if (what == RDMA_CM_EVENT_DEVICE_REMOVAL)
		verbs_cm_dev_put_aside(cm->verbs);
	else if (what == RDMA_CM_EVENT_ADDR_RESOLVED && !cm->context)
		ctx_unwanted(cm);
}

void verbs_cm_dev_forget(void)
{
	pthread_mutex_init(&cm_devs.lock, NULL);
	cm_devs.list = NULL;
	cm_devs.release.queued = false;
}
