/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * socket_name.c - the names of stand-ins, the names at which processes listen, and who is trusted
 * at the other end of such a socket.
 */
#include "engine/node/socket_name.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "engine/node/registry.h"
#include "engine/sys/os.h"

#define PREFIX_LEN (sizeof(RDS_NODE_NAME_STANDIN) - 1)
#define NAME_LEN (offsetof(struct sockaddr_un, sun_path) + 1 + PREFIX_LEN + 2 * RDS_PROCID_LEN)

socklen_t rds_node_name_address(const char *prefix, const struct rds_procid *name, struct sockaddr_un *sun)
{
	static const char digits[] = "0123456789abcdef";
	size_t len = strlen(prefix);
	char *to = sun->sun_path + 1 + len;
	unsigned i;

	memset(sun, 0, sizeof(*sun));
	sun->sun_family = AF_UNIX;
	memcpy(sun->sun_path + 1, prefix, len);
	for (i = 0; i < RDS_PROCID_LEN; i++) {
		*to++ = digits[name->b[i] >> 4];
		*to++ = digits[name->b[i] & 15];
	}
	return (socklen_t)(to - (char *)sun);
}

/*
 * A stand-in without a name (no memory) is known only to the processes that inherit its descriptor.
 */
void rds_node_name_bind(int standin, struct rds_procid *name)
{
	struct sockaddr_un sun;
	socklen_t len;

	os_random(name, sizeof(*name));
	len = rds_node_name_address(RDS_NODE_NAME_STANDIN, name, &sun);
	os_bind(standin, (struct sockaddr *)&sun, len);
}

static int hex_digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the length of its name if that begins with the prefix, else 0. */
static socklen_t name_get(int fd, const char *prefix, struct sockaddr_un *sun)
{
	socklen_t len = sizeof(*sun), least = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(prefix));

	if (os_getsockname(fd, (struct sockaddr *)sun, &len) || sun->sun_family != AF_UNIX || len < least ||
	    sun->sun_path[0] || memcmp(sun->sun_path + 1, prefix, strlen(prefix)))
		return 0;
	return len;
}

bool rds_node_name_is(int fd, const char *prefix)
{
	struct sockaddr_un sun;

	return name_get(fd, prefix, &sun);
}

bool rds_node_name_read(int fd, struct rds_procid *name)
{
	struct sockaddr_un sun;
	const char *from = sun.sun_path + 1 + PREFIX_LEN;
	unsigned i;

	if (name_get(fd, RDS_NODE_NAME_STANDIN, &sun) != NAME_LEN)
		return false;
	for (i = 0; i < RDS_PROCID_LEN; i++) {
		int high = hex_digit_value(from[2 * i]), low = hex_digit_value(from[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		if (name)
			name->b[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

bool rds_node_name_is_peer(int pair, const struct rds_procid *name)
{
	struct sockaddr_un want, is;
	socklen_t len = sizeof(is), n = rds_node_name_address(RDS_NODE_NAME_STANDIN, name, &want);

	return os_syscall(SYS_getpeername, pair, (long)&is, (long)&len, 0, 0, 0) == 0 && len == n &&
	       memcmp(&is, &want, n) == 0;
}

/* True also if it cannot be found out. */
bool rds_node_name_exists(const struct rds_procid *name)
{
	int fd = os_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), err;
	struct sockaddr_un sun;
	socklen_t len;

	if (fd < 0)
		return true;
	len = rds_node_name_address(RDS_NODE_NAME_STANDIN, name, &sun);
	err = os_bind(fd, (struct sockaddr *)&sun, len);
	os_close(fd);
	return err != 0;
}

/* ---- where a process listens ---- */

static const char listen_hex[] = "0123456789abcdef";

socklen_t rds_node_listen_name(const struct rds_procid *id, struct sockaddr_un *out)
{
	static const char prefix[] = "rdspreload-info-";
	char *p = out->sun_path;

	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	*p++ = '\0';
	memcpy(p, prefix, sizeof(prefix) - 1);
	p += sizeof(prefix) - 1;
	for (unsigned i = 0; i < RDS_PROCID_LEN; i++) {
		*p++ = listen_hex[id->b[i] >> 4];
		*p++ = listen_hex[id->b[i] & 15];
	}
	return (socklen_t)(p - (char *)out);
}

int rds_node_name_cred(const struct sockaddr_un *name, socklen_t len, struct ucred *cred)
{
	_Atomic int fd = -1;
	int ret = os_dup_high_slot(os_socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), &fd);
	socklen_t size = sizeof(*cred);

	if (ret)
		return ret;
	ret = os_connect(fd, (const struct sockaddr *)name, len);
	if (!ret)
		ret = os_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, cred, &size);
	os_close_slot(&fd);
	return ret;
}

int rds_node_proc_cred(const struct rds_procid *id, struct ucred *cred)
{
	struct sockaddr_un name;
	socklen_t len = rds_node_listen_name(id, &name);

	return rds_node_name_cred(&name, len, cred);
}

bool rds_node_proc_listens(const struct rds_procid *id)
{
	struct ucred cred;

	return rds_node_proc_cred(id, &cred) != -ECONNREFUSED;
}

static bool peer_cred_read(int fd, struct ucred *cred)
{
	socklen_t len = sizeof(*cred);

	return os_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, cred, &len) == 0 && len == sizeof(*cred);
}

bool rds_node_peer_trusted(int fd)
{
	struct ucred cred;

	return peer_cred_read(fd, &cred) && registry_trusts(rds_node_registry, &cred);
}

bool rds_node_peer_is_member(int fd)
{
	struct ucred cred;

	return peer_cred_read(fd, &cred) && registry_is_member(rds_node_registry, &cred);
}
