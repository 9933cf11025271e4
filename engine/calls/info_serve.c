/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * info_serve.c - answers other processes that ask for this one's connections and messages
 * (info_query.c).
 *
 * Runs in the helper, which must never wait: descriptors do not block, and an answer lies in a
 * buffer of its own until the asking process has taken it.  A process that does not take it in time
 * is disconnected.  There are CLIENTS places.  When all are taken, further processes are turned
 * away.  Places are never freed, only reused: so a late event for a finished conversation finds a
 * valid structure.
 */
#include "engine/calls/info.h"
#include "engine/sys/patience.h"
#include "engine/node/socket_name.h"

#include <stdlib.h>

#define CLIENTS 16
#define RETRY_NS (1000 * 1000000ull)
#define BACKLOG 128

struct client {
	struct rds_helper_event ev;
	struct rds_timer timer;
	_Atomic int fd; /* -1: free place */
	struct rds_info_ask ask;
	size_t got; /* bytes of ask */
	char *answer;
	size_t len, sent;
};

static void listener_event(struct rds_helper_event *ev, uint32_t events);
static void listener_retry(struct rds_timer *tm);

/*
 * The helper may use the function as soon as the descriptor is in its set, so it is set from the
 * beginning.
 */
static struct rds_helper_event listener = {.fn = listener_event};
static struct rds_timer listen_timer = {.fn = listener_retry};
static _Atomic int listen_fd = -1;
static struct client clients[CLIENTS];

static void client_end(struct client *c)
{
	if (atomic_load(&c->fd) < 0)
		return;
	rds_helper_event_del(c->fd);
	rds_timer_cancel(&c->timer);
	os_close_slot(&c->fd);
	free(c->answer);
	c->answer = NULL;
}

static void client_timeout(struct rds_timer *tm)
{
	client_end(container_of(tm, struct client, timer));
}

/* A process with another version gets a head with our version, and logs the difference. */
static bool client_prepare(struct client *c)
{
	struct rds_info_answer head = {
		.magic = RDS_INFO_MAGIC,
		.version = RDS_INFO_VERSION,
		.kind = c->ask.kind,
		.rec_size = sizeof(struct rds_info_rec),
	};
	struct rds_info_list list = {0};

	if (c->ask.magic != RDS_INFO_MAGIC || c->ask.kind >= RDS_INFO_KINDS)
		return false;
	if (c->ask.version == RDS_INFO_VERSION)
		rds_info_collect((enum rds_info_kind)c->ask.kind, &list);
	head.n = (uint32_t)list.n;
	c->len = sizeof(head) + list.n * sizeof(*list.recs);
	c->answer = list.full ? NULL : malloc(c->len);
	if (c->answer) {
		memcpy(c->answer, &head, sizeof(head));
		if (list.n)
			memcpy(c->answer + sizeof(head), list.recs, list.n * sizeof(*list.recs));
	}
	free(list.recs);
	return c->answer != NULL;
}

static void client_write(struct client *c)
{
	while (c->sent < c->len) {
		ssize_t n = os_send(c->fd, c->answer + c->sent, c->len - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n == -EAGAIN || n == -EINTR)
			return; /* the event comes when there is room */
		if (n <= 0)
			break;
		c->sent += (size_t)n;
	}
	client_end(c);
}

/* The event is edge triggered for both directions: go on until the kernel returns EAGAIN. */
static void client_event(struct rds_helper_event *ev, uint32_t events)
{
	struct client *c = container_of(ev, struct client, ev);

	(void)events;
	if (atomic_load(&c->fd) < 0)
		return;
	while (c->got < sizeof(c->ask)) {
		ssize_t n = os_recv(c->fd, (char *)&c->ask + c->got, sizeof(c->ask) - c->got, MSG_DONTWAIT);

		if (n == -EAGAIN)
			return;
		if (n == -EINTR)
			continue;
		if (n <= 0)
			return client_end(c);
		c->got += (size_t)n;
	}
	if (!c->answer && !client_prepare(c))
		return client_end(c);
	client_write(c);
}

static struct client *client_place(void)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		if (atomic_load(&clients[i].fd) < 0)
			return &clients[i];
	return NULL;
}

/* 0, or the error of accept: -EAGAIN when no connection waits any more. */
static int client_begin(void)
{
	int fd = os_accept4(listen_fd, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct client *c = client_place();

	if (fd < 0)
		return fd;
	if (!c || !rds_node_peer_trusted(fd)) {
		os_close(fd);
		return 0;
	}
	c->got = c->sent = c->len = 0;
	c->ev.fn = client_event;
	c->timer.fn = client_timeout;
	if (os_dup_high_slot(fd, &c->fd) < 0)
		return 0;
	if (rds_helper_event_add(&c->ev, &c->fd, EPOLLIN | EPOLLOUT | EPOLLET) < 0)
		client_end(c);
	else
		rds_timer_set(&c->timer, os_now_ns() + rds_patience_ns(RDS_PATIENCE_INFO_ASKER));
	return 0;
}

/*
 * The event is edge triggered, so that a lack of descriptors does not make the helper spin.
 * Processes that could not be accepted wait until the timer tries again (or give up).  If too many
 * come at a time, the rest wait for a moment, too.
 */
static void listener_drain(void)
{
	unsigned most = RDS_EVENT_MAX;
	int ret;

	do
		ret = client_begin();
	while (--most && (ret == 0 || ret == -ECONNABORTED || ret == -EINTR));
	if (!most)
		rds_timer_set(&listen_timer, os_now_ns());
	else if (ret != -EAGAIN)
		rds_timer_set(&listen_timer, os_now_ns() + RETRY_NS);
}

static void listener_event(struct rds_helper_event *ev, uint32_t events)
{
	(void)ev;
	(void)events;
	listener_drain();
}

static void listener_retry(struct rds_timer *tm)
{
	(void)tm;
	listener_drain();
}

/*
 * The child's descriptor numbers may belong to other files now: nothing is closed.  Buffers that
 * the parent's threads were writing are not freed.
 */
void rds_info_forget(void)
{
	memset(clients, 0, sizeof(clients));
	for (unsigned i = 0; i < CLIENTS; i++)
		atomic_store(&clients[i].fd, -1);
	atomic_store(&listen_fd, -1);
	listen_timer = (struct rds_timer){.fn = listener_retry};
}

int rds_info_start(void)
{
	struct sockaddr_un name;
	socklen_t len = rds_node_listen_name(registry_self(rds_node_registry), &name);
	int ret;

	rds_info_forget();
	ret = os_dup_high_slot(os_socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), &listen_fd);
	if (ret == 0)
		ret = os_bind(listen_fd, (struct sockaddr *)&name, len);
	if (ret == 0)
		ret = os_listen(listen_fd, BACKLOG);
	if (ret == 0)
		ret = rds_helper_event_add(&listener, &listen_fd, EPOLLIN | EPOLLET);
	if (ret < 0)
		os_close_slot(&listen_fd);
	return ret;
}

/* The helper did not start, so no client has been answered. */
void rds_info_stop(void)
{
	os_close_slot(&listen_fd);
}
