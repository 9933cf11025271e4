/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * memory_grant.c - how borrowers grant an owner access to their memory (abi/foreign_memory.h).
 *
 * Not over the channel: any borrower could intercept the attach request of another one, and then
 * read what is sent on that channel.  So the owner has a listener, the *grant listener*, with a
 * name that the kernel chose.  The owner tells the borrower this name and a token for each channel.
 * The borrower connects there, and trusts the kernel's credentials of the listener.  The owner
 * trusts the kernel's credentials of the connection, and accepts from a process only a grant for a
 * channel that the same process has made.
 *
 * The owner's side belongs to the helper.  A connection brings one packet and is closed.  Only
 * GRANT_CONNS connections may be silent; the oldest is closed first.  A late event of a closed
 * connection reaches its grant_conn, which is never freed, but may belong to another connection.
 *
 * Must not know channels: owner.c looks up the token.
 */
#include "engine/share/memory_grant.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "engine/share/owner.h"
#include "engine/sys/compiler.h"
#include "engine/abi/foreign_memory.h"
#include "engine/sys/patience.h"

#define BACKLOG 64
#define GRANT_CONNS 64

struct grant_packet {
	uint32_t magic, reserved;
	uint64_t token;
};

static bool peer_get_cred(int fd, struct ucred *cred)
{
	return os_peer_cred(fd, cred) && os_uid_is_known(cred->uid);
}

/* ---- the owner ---- */

struct grant_conn {
	struct rds_helper_event ev;
	_Atomic int fd; /* -1: free */
	uint64_t came;	/* order of arrival */
};

static struct rds_helper_event grant_listener;
static _Atomic int grant_listener_fd = -1;
static struct grant_conn grant_conns[GRANT_CONNS] RDS_TABLE;
static uint64_t n_came;

static void grant_conn_close(struct grant_conn *v)
{
	rds_helper_event_del(atomic_load(&v->fd));
	os_close_slot(&v->fd);
}

/* Takes the descriptor. */
static int grant_take_memory(int visitor, const struct grant_packet *g, int memory)
{
	struct ucred cred;

	if (g->magic == RDS_SHARE_MAGIC && peer_get_cred(visitor, &cred) && rds_foreign_memory_fd_is(memory, cred.pid))
		return rds_owner_memory_granted(g->token, cred.pid, memory);
	os_close(memory);
	return -EPERM;
}

static void grant_conn_event(struct rds_helper_event *ev, uint32_t events)
{
	struct grant_conn *v = container_of(ev, struct grant_conn, ev);
	int fds[OS_PASS_MAX], result = -EPERM;
	struct grant_packet g = {0};
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
		result = grant_take_memory(atomic_load(&v->fd), &g, fds[0]);
	else if (n > 0 && nfds)
		os_close(fds[0]);
	else if (n > 0 && lost)
		result = -EMFILE;
	os_send(atomic_load(&v->fd), &result, sizeof(result), MSG_DONTWAIT | MSG_NOSIGNAL);
	grant_conn_close(v);
}

static bool grant_conn_is_older(const struct grant_conn *a, const struct grant_conn *b)
{
	if (atomic_load(&a->fd) < 0)
		return atomic_load(&b->fd) >= 0;
	return atomic_load(&b->fd) >= 0 && a->came < b->came;
}

/* Takes the descriptor. */
static void grant_conn_new(int fd)
{
	struct grant_conn *v = grant_conns;
	unsigned i;

	for (i = 1; i < GRANT_CONNS; i++)
		if (grant_conn_is_older(&grant_conns[i], v))
			v = &grant_conns[i];
	if (atomic_load(&v->fd) >= 0)
		grant_conn_close(v);
	if (os_dup_high_slot(fd, &v->fd))
		return;
	v->came = ++n_came;
	if (rds_helper_event_add(&v->ev, &v->fd, EPOLLIN | EPOLLRDHUP))
		grant_conn_close(v);
}

static void grant_listener_event(struct rds_helper_event *ev, uint32_t events)
{
	unsigned most = RDS_EVENT_MAX; /* level-triggered: the rest makes another event */
	int fd;

	(void)ev;
	(void)events;
	while (most-- && (fd = os_accept4(atomic_load(&grant_listener_fd), SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
		grant_conn_new(fd);
}

/* The first time that this process opens the listener. */
static void grant_conns_init(void)
{
	unsigned i;

	for (i = 0; i < GRANT_CONNS; i++) {
		atomic_store(&grant_conns[i].fd, -1);
		grant_conns[i].ev.fn = grant_conn_event;
	}
}

static int grant_listener_open(void)
{
	const struct sockaddr_un any = {.sun_family = AF_UNIX};
	int fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (fd < 0)
		return fd;
	grant_conns_init();
	err = os_bind(fd, (const struct sockaddr *)&any, sizeof(any.sun_family)); /* autobind */
	if (!err)
		err = os_listen(fd, BACKLOG);
	if (err) {
		os_close(fd);
		return err;
	}
	err = os_dup_high_slot(fd, &grant_listener_fd);
	grant_listener.fn = grant_listener_event;
	if (!err)
		err = rds_helper_event_add(&grant_listener, &grant_listener_fd, EPOLLIN);
	if (err)
		os_close_slot(&grant_listener_fd);
	return err;
}

int rds_owner_grant_address(struct rds_grant_address *d)
{
	socklen_t len = sizeof(d->name);
	int err = atomic_load(&grant_listener_fd) >= 0 ? 0 : grant_listener_open();

	memset(d, 0, sizeof(*d));
	if (!err)
		err = os_getsockname(atomic_load(&grant_listener_fd), (struct sockaddr *)&d->name, &len);
	d->len = len;
	os_random(&d->token, sizeof(d->token));
	return err;
}

void rds_owner_grant_forget(void)
{
	atomic_store(&grant_listener_fd, -1);
}

/* ---- the borrower ---- */

static _Atomic unsigned granting, grants; /* that are under way; all that were ever begun */

/*
 * The state of the grants that the forking thread has seen before the fork.  The child's copy of
 * `granting` is not enough: the kernel copies the descriptors before the memory, so a grant that
 * had its descriptor open then may be over in the memory that the child gets.
 */
static __thread struct {
	bool seen, open;
	unsigned grants;
} fork_view __attribute__((tls_model("initial-exec")));

/* Only to a process of this user or of root. */
static bool grant_is_allowed(int fd)
{
	struct ucred them;

	return peer_get_cred(fd, &them) && (them.uid == geteuid() || them.uid == 0);
}

static int grant_send_memory(int conn, uint64_t token)
{
	const struct grant_packet g = {.magic = RDS_SHARE_MAGIC, .token = token};
	struct pollfd p = {.fd = conn, .events = POLLIN};
	int memory, err, result = -EPERM;

	atomic_fetch_add(&grants, 1);
	atomic_fetch_add(&granting, 1);
	memory = rds_foreign_memory_fd_open();
	err = memory < 0 ? memory : os_pass_send(conn, &g, sizeof(g), &memory, 1, 0);
	if (memory >= 0)
		os_close(memory);
	atomic_fetch_sub(&granting, 1);
	if (err)
		return err == -EMFILE || err == -ENFILE || err == -ENOMEM ? err : -EPERM;
	if (os_poll(&p, 1, (int)rds_patience_ms(RDS_PATIENCE_MEMORY_GRANT)) <= 0)
		return -EAGAIN;
	return os_recv(conn, &result, sizeof(result), 0) == sizeof(result) ? result : -ECONNRESET;
}

int rds_borrower_grant_send(const struct rds_grant_address *d)
{
	int fd, err;

	if (d->len > sizeof(d->name))
		return -EPERM;
	fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	err = os_connect(fd, (const struct sockaddr *)&d->name, d->len);
	if (err)
		err = -ECONNRESET; /* the owner has ended */
	else
		err = grant_is_allowed(fd) ? grant_send_memory(fd, d->token) : -EPERM;
	os_close(fd);
	return err;
}

void rds_borrower_grant_fork_prepare(void)
{
	fork_view.seen = true;
	fork_view.open = atomic_load(&granting) != 0;
	fork_view.grants = atomic_load(&grants);
}

static int grant_close_copy(int fd, void *parent)
{
	if (rds_foreign_memory_fd_is(fd, *(const int *)parent))
		os_close(fd);
	return 0;
}

/*
 * A thread of the parent was just making a grant: then the child has a copy of that descriptor, and
 * with it access to the parent's memory.  The child closes it.
 */
void rds_borrower_grant_forked(int parent)
{
	bool any = fork_view.seen ? fork_view.open || fork_view.grants != atomic_load(&grants) : atomic_load(&grants) != 0;

	fork_view.seen = false;
	atomic_store(&granting, 0);
	atomic_store(&grants, 0);
	if (any && os_fds_each(grant_close_copy, &parent))
		(void)os_fds_probe(grant_close_copy, &parent);
}
