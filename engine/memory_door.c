/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * memory_door.c - where holders bring a carrier their memory (foreign_memory.h), and how they do it.
 *
 * Not over the channel: what lies on a channel can be looked at by whoever was in the way when it was made, and every holder can be.  So the carrier
 * has a listener, the *door*, with a name that the kernel chose, and tells its name and a number for each channel.  The holder connects to it, and
 * believes the kernel's word on who listens there; the carrier believes its word on who has come, and takes from a process only what is for a
 * channel that the same process has made.
 *
 * The carrier's side belongs to the helper.  Connections say one thing and are closed; of those that say nothing there are few, and the oldest goes
 * first.  What the helper has been told of one that has just gone is told to its place, which is never freed, and perhaps another's.
 * Must not know channels: the number is asked for by carry.c.
 */
#include "engine/memory_door.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "engine/carry.h"
#include "engine/memory.h"
#include "engine/patience.h"

#define BACKLOG 64
#define VISITORS 64

struct gift {
	uint32_t magic, reserved;
	uint64_t token;
};

static bool cred_of(int fd, struct ucred *cred)
{
	return os_peer_cred(fd, cred) && os_uid_is_known(cred->uid);
}

/* ---- the carrier ---- */

struct visitor {
	struct rds_helper_event ev;
	_Atomic int fd; /* -1: nobody */
	uint64_t came;
};

static struct rds_helper_event door;
static _Atomic int door_fd = -1;
static struct visitor visitors[VISITORS];
static uint64_t n_came;

static void leaves(struct visitor *v)
{
	rds_helper_event_del(atomic_load(&v->fd));
	os_close_slot(&v->fd);
}

/* Takes the descriptor. */
static int take(int visitor, const struct gift *g, int memory)
{
	struct ucred cred;

	if (g->magic == RDS_SHARE_MAGIC && cred_of(visitor, &cred) && rds_foreign_memory_fd_is(memory, cred.pid))
		return rds_carry_memory(g->token, cred.pid, memory);
	os_close(memory);
	return -EPERM;
}

static void visitor_event(struct rds_helper_event *ev, uint32_t events)
{
	struct visitor *v = container_of(ev, struct visitor, ev);
	int fds[OS_PASS_MAX], result = -EPERM;
	struct gift g = {0};
	unsigned nfds;
	bool lost;
	ssize_t n;

	(void)events;
	if (atomic_load(&v->fd) < 0)
		return;
	n = os_pass_recv_few(atomic_load(&v->fd), &g, sizeof(g), fds, 1, &nfds, &lost, MSG_DONTWAIT);
	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n == (ssize_t)sizeof(g) && nfds == 1)
		result = take(atomic_load(&v->fd), &g, fds[0]);
	else if (n > 0 && nfds)
		os_close(fds[0]);
	else if (n > 0 && lost)
		result = -EMFILE;
	os_send(atomic_load(&v->fd), &result, sizeof(result), MSG_DONTWAIT | MSG_NOSIGNAL);
	leaves(v);
}

static bool is_before(const struct visitor *a, const struct visitor *b)
{
	if (atomic_load(&a->fd) < 0)
		return atomic_load(&b->fd) >= 0;
	return atomic_load(&b->fd) >= 0 && a->came < b->came;
}

/* Takes the descriptor. */
static void comes(int fd)
{
	struct visitor *v = visitors;
	unsigned i;

	for (i = 1; i < VISITORS; i++)
		if (is_before(&visitors[i], v))
			v = &visitors[i];
	if (atomic_load(&v->fd) >= 0)
		leaves(v);
	if (os_dup_high_slot(fd, &v->fd))
		return;
	v->came = ++n_came;
	if (rds_helper_event_add(&v->ev, atomic_load(&v->fd), EPOLLIN | EPOLLRDHUP))
		leaves(v);
}

static void door_event(struct rds_helper_event *ev, uint32_t events)
{
	unsigned most = RDS_EVENT_MOST; /* by levels: the rest is told again */
	int fd;

	(void)ev;
	(void)events;
	while (most-- && (fd = os_accept4(atomic_load(&door_fd), SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
		comes(fd);
}

/* The first time in this process. */
static void places_begin(void)
{
	unsigned i;

	for (i = 0; i < VISITORS; i++) {
		atomic_store(&visitors[i].fd, -1);
		visitors[i].ev.fn = visitor_event;
	}
}

static int door_open(void)
{
	const struct sockaddr_un any = {.sun_family = AF_UNIX};
	int fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (fd < 0)
		return fd;
	places_begin();
	err = os_bind(fd, (const struct sockaddr *)&any, sizeof(any.sun_family)); /* the kernel chooses */
	if (!err)
		err = os_listen(fd, BACKLOG);
	if (err) {
		os_close(fd);
		return err;
	}
	err = os_dup_high_slot(fd, &door_fd);
	door.fn = door_event;
	if (!err)
		err = rds_helper_event_add(&door, atomic_load(&door_fd), EPOLLIN);
	if (err)
		os_close_slot(&door_fd);
	return err;
}

int rds_door_tell(struct rds_door *d)
{
	socklen_t len = sizeof(d->name);
	int err = atomic_load(&door_fd) >= 0 ? 0 : door_open();

	memset(d, 0, sizeof(*d));
	if (!err)
		err = os_getsockname(atomic_load(&door_fd), (struct sockaddr *)&d->name, &len);
	d->len = len;
	os_random(&d->token, sizeof(d->token));
	return err;
}

void rds_door_forget(void)
{
	atomic_store(&door_fd, -1);
}

/* ---- the holder ---- */

static _Atomic unsigned giving, gifts; /* now, ever begun */

/*
 * What the forking thread has seen before the fork.  The kernel copies the descriptors before the memory: a gift that was there when they were
 * copied may be over in the memory that the child gets, so that does not tell.
 */
static __thread struct {
	bool seen, open;
	unsigned gifts;
} fork_view __attribute__((tls_model("initial-exec")));

/* To this user, or to root, and to nobody else. */
static bool may_have_it(int fd)
{
	struct ucred them;

	return cred_of(fd, &them) && (them.uid == geteuid() || them.uid == 0);
}

static int give(int conn, uint64_t token)
{
	const struct gift g = {.magic = RDS_SHARE_MAGIC, .token = token};
	struct pollfd p = {.fd = conn, .events = POLLIN};
	int memory, err, result = -EPERM;

	atomic_fetch_add(&gifts, 1);
	atomic_fetch_add(&giving, 1);
	memory = rds_foreign_memory_fd_open();
	err = memory < 0 ? memory : os_pass_send(conn, &g, sizeof(g), &memory, 1, 0);
	if (memory >= 0)
		os_close(memory);
	atomic_fetch_sub(&giving, 1);
	if (err)
		return err == -EMFILE || err == -ENFILE || err == -ENOMEM ? err : -EPERM;
	if (os_poll(&p, 1, (int)rds_patience_ms(RDS_PATIENCE_MEMORY_GRANT)) <= 0)
		return -EAGAIN;
	return os_recv(conn, &result, sizeof(result), 0) == sizeof(result) ? result : -ECONNRESET;
}

int rds_door_give(const struct rds_door *d)
{
	int fd, err;

	if (d->len > sizeof(d->name))
		return -EPERM;
	fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	err = os_connect(fd, (const struct sockaddr *)&d->name, d->len);
	if (err)
		err = -ECONNRESET; /* it has ended */
	else
		err = may_have_it(fd) ? give(fd, d->token) : -EPERM;
	os_close(fd);
	return err;
}

void rds_door_fork_prepare(void)
{
	fork_view.seen = true;
	fork_view.open = atomic_load(&giving) != 0;
	fork_view.gifts = atomic_load(&gifts);
}

/* A thread of the parent's was just at it: its descriptor has come along, and whoever has that has the parent's memory. */
void rds_door_forked(int parent)
{
	bool any = fork_view.seen ? fork_view.open || fork_view.gifts != atomic_load(&gifts) : atomic_load(&gifts) != 0;
	int fd;

	fork_view.seen = false;
	atomic_store(&giving, 0);
	atomic_store(&gifts, 0);
	if (!any)
		return;
	for (fd = 0; fd < 65536; fd++)
		if (os_fcntl(fd, F_GETFD, 0) >= 0 && rds_foreign_memory_fd_is(fd, parent))
			os_close(fd);
}
