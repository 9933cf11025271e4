/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * wake_socket.c - how a process is woken without a descriptor of it: by a datagram.
 *
 * Each process has an AF_UNIX datagram socket with an abstract name made of its process id.  A
 * datagram there wakes the helper, and the helper's round does the rest: it receives, and wakes the
 * leader.  That is a context switch more than with a pipe.  So a process that sends in this way has
 * another such socket, on which its leader sleeps when what came last were cells (cells.c).  For those
 * who send over rings there is the pipe: it costs half as much.
 *
 * A datagram tells nothing that has to be true.  At most it makes the helper look at all rings, and
 * that once per tick.  But any process of the network namespace can send there.  So each datagram has
 * a key, which HELLO tells to those who are let in.  A filter drops others where they are sent: they
 * neither wake the helper nor take room from those who may.
 *
 * The sender's own socket may be full of datagrams to processes that are stopped.  So a full socket
 * does not mean that the peer will wake up, and the caller has to try again.
 */
#include <endian.h>
#include <linux/filter.h>
#include <string.h>
#include <sys/un.h>

#include "engine/node/socket_name.h"
#include "engine/transport/shm/shm.h"

#define PREFIX "rdspreload-wake-"
#define LEADER_PREFIX "rdspreload-lead-"
struct wake_msg {
	uint64_t key;
	uint64_t what;
};

static atomic_flag opening = ATOMIC_FLAG_INIT;

static void wake_came(struct rds_helper_event *ev, uint32_t events)
{
	unsigned most = RDS_EVENT_MAX; /* level triggered: the event comes again for the rest */
	struct wake_msg msg;
	ssize_t n;

	(void)ev;
	(void)events;
	while (most-- && (n = os_recv(os_fd(&rds_shm.wake), &msg, sizeof(msg), MSG_DONTWAIT | MSG_TRUNC)) >= 0)
		if (n == sizeof(msg) && msg.key == rds_shm.wake_key && msg.what == SHM_WAKE_LOOK)
			shm_recheck_inbox();
}

/* Where that is not permitted, strangers can keep the helper awake, and fill the socket. */
static void wake_filter(int fd)
{
	const uint64_t key = rds_shm.wake_key;
	uint32_t half[2];
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, sizeof(struct wake_msg), 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, sizeof(half[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	const struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
	int err;

	memcpy(half, &key, sizeof(half));
	code[3].k = be32toh(half[0]); /* a filter loads bytes in network order */
	code[5].k = be32toh(half[1]);
	err = os_setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
	if (err)
		rds_debug("the wake-up socket has no filter against strangers: %s", strerror(-err));
}

int shm_wake_socket_open(void)
{
	struct sockaddr_un un;
	socklen_t len = rds_node_name_address(PREFIX, registry_self(rds_node_registry), &un);
	_Atomic int *slot = &rds_shm.wake.n[os_fd_table];
	int err = os_dup_high_slot(os_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), slot);

	rds_shm.wake_event.fn = wake_came;
	os_random(&rds_shm.wake_key, sizeof(rds_shm.wake_key));
	if (!err)
		wake_filter(atomic_load(slot));
	if (!err)
		err = os_bind(atomic_load(slot), (struct sockaddr *)&un, len);
	if (!err)
		err = rds_helper_event_add(&rds_shm.wake_event, slot, EPOLLIN);
	return err;
}

/* ---- the leader's ---- */

static socklen_t leader_address(struct sockaddr_un *un)
{
	return rds_node_name_address(LEADER_PREFIX, registry_self(rds_node_registry), un);
}

/*
 * For the process's own wake-ups.  A socket that sends to others, too, may be full of what processes have
 * not read that are stopped.
 */
static int post_socket_open(void)
{
	_Atomic int *slot = &rds_shm.leader_post.n[os_fd_table];
	struct sockaddr_un un;
	socklen_t len = leader_address(&un);
	int err = os_dup_high_slot(os_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), slot);

	if (!err)
		err = os_connect(atomic_load(slot), (struct sockaddr *)&un, len);
	if (err)
		os_close_slot(slot);
	return err;
}

/* Helper: now all can wake a leader that sleeps there. */
static void leader_socket_publish(struct rds_deferred_call *c)
{
	(void)c;
	if (os_fd_table && !post_socket_open())
		atomic_store(&rds_helper_leader.named_fd, &rds_shm.wake.n[0]);
}

static void leader_socket_post(void)
{
	const struct wake_msg msg = {.key = rds_shm.wake_key, .what = SHM_WAKE_LEADER};

	/* it fails if the socket is full of earlier wake-ups */
	os_write(os_fd(&rds_shm.leader_post), &msg, sizeof(msg));
}

/*
 * A program's thread, when it wakes a peer in this way for the first time: the socket in its own table.  The
 * leader sleeps in reading it, so it blocks.
 */
static int leader_socket_open(void)
{
	struct sockaddr_un un;
	socklen_t len = leader_address(&un);
	int fd;

	if (os_dup_high_slot(os_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), &rds_shm.wake.n[0]))
		return -EMFILE;
	fd = os_fd(&rds_shm.wake);
	wake_filter(fd);
	if (!os_bind(fd, (struct sockaddr *)&un, len) && !post_socket_open())
		rds_helper_defer(&rds_shm.leader_call);
	return fd;
}

static int wake_socket_of_program(void)
{
	int fd;

	if (atomic_flag_test_and_set(&opening))
		return -EMFILE; /* another thread is about to have it: the helper wakes the peer */
	fd = os_fd(&rds_shm.wake);
	if (fd < 0)
		fd = leader_socket_open();
	atomic_flag_clear(&opening);
	return fd;
}

/* ---- to a peer ---- */

int shm_wake_socket_send_to(const struct rds_procid *id, uint64_t key, enum shm_wake_what what)
{
	struct wake_msg msg = {.key = key, .what = what};
	struct iovec iov = {&msg, sizeof(msg)};
	struct sockaddr_un un;
	struct msghdr mh = {.msg_name = &un, .msg_iov = &iov, .msg_iovlen = 1};
	int fd = os_fd(&rds_shm.wake);
	ssize_t n;

	if (fd < 0 && !os_fd_table)
		fd = wake_socket_of_program();
	if (fd < 0)
		return -EMFILE;
	mh.msg_namelen = rds_node_name_address(what == SHM_WAKE_LEADER ? LEADER_PREFIX : PREFIX, id, &un);
	n = os_sendmsg(fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n < 0 ? (int)n : 0;
}

int shm_wake_socket_send(const struct shm_peer *p, bool look)
{
	return shm_wake_socket_send_to(&p->id, p->wake_key, look ? SHM_WAKE_LOOK : SHM_WAKE_RUN);
}

void shm_wake_socket_init(void)
{
	rds_helper_leader.post_named = leader_socket_post;
	atomic_store(&rds_helper_leader.named_fd, NULL);
	rds_shm.leader_call.fn = leader_socket_publish;
	os_fd_init(&rds_shm.leader_post);
	os_fd_init(&rds_shm.wake);
	atomic_flag_clear(&opening);
}

void shm_wake_socket_close(void)
{
	os_close_slot(&rds_shm.wake.n[os_fd_table]);
	os_close_slot(&rds_shm.leader_post.n[os_fd_table]);
}
