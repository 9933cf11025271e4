/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * socket.c - socket(): checks the arguments, makes the stand-in pair, and starts the engine for the
 * first socket.
 */
#include "engine/calls/start.h"
#include "engine/node/socket_name.h"
#include "engine/socket/socket.h"

#ifndef SOCK_MAX
#define SOCK_MAX 11
#endif

static int socket_check_type(int type, int protocol)
{
	if (type < 0 || (type & ~(0xf | SOCK_CLOEXEC | SOCK_NONBLOCK)) || (type & 0xf) >= SOCK_MAX)
		return -EINVAL;
	if ((type & 0xf) != SOCK_SEQPACKET || protocol != 0)
		return -ESOCKTNOSUPPORT;
	return 0;
}

/* Returns the program's end, and its inode.  *own: the engine's end. */
static int socket_make_pair(int type, int *own, uint64_t *inode)
{
	struct stat st;
	int sv[2], err = os_socketpair(AF_UNIX, SOCK_SEQPACKET | (type & (SOCK_CLOEXEC | SOCK_NONBLOCK)), 0, sv);

	if (err < 0)
		return err;
	err = os_fstat(sv[0], &st);
	if (err < 0) {
		os_close(sv[0]);
		os_close(sv[1]);
		return err;
	}
	*own = sv[1];
	*inode = st.st_ino;
	return sv[0];
}

static int socket_register(struct rds_sock *sk)
{
	int err =
		registry_sock_add(rds_node_registry, sk->inode, rds_sock_sndbuf(sk), rds_sock_rcvbuf(sk), &sk->reg_idx);

	if (err)
		return err;
	registry_sock_set_name(rds_node_registry, sk->reg_idx, &sk->name);
	rds_sock_list_add(sk);
	return 0;
}

/*
 * With this library a socket needs more than one descriptor, so a program may get EMFILE earlier
 * than its user expects.
 */
static int socket_warn_refused(int err)
{
	if (err == -EMFILE)
		rds_warn_once("no descriptor for another RDS socket: " RDS_LOG_EMFILE);
	return err;
}

/* If it fails, nothing of the socket is left. */
static int socket_list(struct rds_sock *sk, bool *exported)
{
	int err;

	rds_lock(&rds_lock_control);
	err = socket_register(sk);
	*exported = sk->exported;
	rds_unlock(&rds_lock_control);
	if (!err)
		return 0;
	os_close_slot(&sk->pair.n[0]);
	rds_sock_slab_put(sk);
	return err;
}

int rds_call_socket(int type, int protocol, struct rds_sock **out)
{
	int own, fd, err = socket_check_type(type, protocol);
	struct rds_sock *sk;
	uint64_t inode;
	bool exported;

	if (!err)
		err = rds_call_start_engine();
	if (err)
		return err;
	rds_helper_deferred_check();
	fd = socket_make_pair(type, &own, &inode);
	if (fd < 0)
		return socket_warn_refused(fd);
	err = rds_sock_new(own, inode, &sk);
	if (!err) {
		rds_node_name_bind(fd, &sk->name);
		err = socket_list(sk, &exported);
	}
	if (err) {
		os_close(fd);
		return socket_warn_refused(err);
	}
	if (exported)
		err = rds_sock_export(sk);
	/* -EPIPE: nothing is exported any more, which has been logged */
	if (err && err != -EPIPE) {
		os_close(fd);
		rds_call_number_closed(sk);
		return socket_warn_refused(err);
	}
	*out = sk;
	return fd;
}
