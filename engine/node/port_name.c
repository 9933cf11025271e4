/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * port_name.c - ports of a node with several users (RDS_PRELOAD_SHARE=group or all).
 *
 * A bound socket has a *port name*: a listening AF_UNIX socket with an abstract name that is made of
 * the node and of the address, scope and port. The kernel gives the name to one socket at a time,
 * whichever user's, and frees it with the last copy, however the process ends. It also tells
 * everybody the user that has the name (SO_PEERCRED).
 *
 * That user's directory has a symbolic link for the port, whose text tells the process. A link is
 * made, replaced and read in one step, and needs no lock. Only the process that has the name writes
 * it, before it listens. So what is found under a name is of this name, unless nobody has the socket
 * just now. A user can write links for any port, but nobody looks at them unless the kernel says
 * that this user has the port. A link that a killed process has left is replaced by the next process
 * that has the port, or removed by the one that clears up.
 *
 * Nobody accepts what connects to the name; the owner's helper only empties the queue
 * (calls/port_hold.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/node/registry_impl.h"
#include "engine/node/socket_name.h"

#define BACKLOG 4096 /* the kernel's own limit is usually lower */
#define PATH_SIZE 256
#define LINK_TEXT 39 /* id, moved, where it listens for other hosts: 32, 1 and 4 digits */

void reg_ports_name(struct reg_identity *is)
{
	const struct rds_options *o = rds_options();
	struct stat st;
	int ret;

	is->domain[0] = '\0';
	if (!registry_has_others())
		return;
	ret = os_stat(o->registry_dir, &st);
	if (ret)
		rds_warn("registry: cannot look at %s (%s): the ports of this process are not shown to other users",
			 o->registry_dir, strerror(-ret));
	else
		snprintf(is->domain, sizeof(is->domain), "%llx-%llx.%x", (unsigned long long)st.st_dev,
			 (unsigned long long)st.st_ino,
			 o->share == RDS_OPT_SHARE_GROUP ? (unsigned)is->gid : UINT32_MAX);
}

const char *registry_domain(const struct registry *reg)
{
	return reg->identity.domain;
}

static int key_print(const struct reg_key *key, char *text, size_t len)
{
	const uint8_t *b = (const uint8_t *)key->addr;
	int n = 0;

	for (unsigned i = 0; i < sizeof(key->addr); i++)
		n += snprintf(text + n, len - (size_t)n, "%02x", b[i]);
	return n + snprintf(text + n, len - (size_t)n, "-%x-%x", key->scope, key->port);
}

static int port_prefix(const struct registry *reg, char *text, size_t len)
{
	return snprintf(text, len, "rds.port.%s.", reg->identity.domain);
}

static socklen_t port_address(const struct registry *reg, const struct reg_key *key, struct sockaddr_un *un)
{
	int n;

	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	n = port_prefix(reg, un->sun_path + 1, sizeof(un->sun_path) - 1);
	n += key_print(key, un->sun_path + 1 + n, sizeof(un->sun_path) - 1 - (size_t)n);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static void link_name(const struct registry *reg, const struct reg_key *key, char name[PATH_SIZE])
{
	int n = snprintf(name, PATH_SIZE, "port-%llu-", (unsigned long long)reg->identity.netns);

	key_print(key, name + n, PATH_SIZE - (size_t)n);
}

static int hex_read(const char *text, unsigned digits, uint32_t *out)
{
	*out = 0;
	for (; digits; digits--, text++) {
		if (*text >= '0' && *text <= '9')
			*out = *out << 4 | (uint32_t)(*text - '0');
		else if (*text >= 'a' && *text <= 'f')
			*out = *out << 4 | (uint32_t)(*text - 'a' + 10);
		else
			return -EINVAL;
	}
	return 0;
}

static bool number_parse(const char **text, const char *end, uint32_t most, uint32_t *out)
{
	uint64_t v = 0;
	uint32_t digit;

	for (*out = 0; *text < end && !hex_read(*text, 1, &digit); ++*text) {
		v = v << 4 | digit;
		if (v > most)
			return false;
	}
	*out = (uint32_t)v;
	return true;
}

bool reg_port_key_parse(const struct registry *reg, const char *text, size_t len, struct reg_key *key)
{
	const char *end = text + len;
	char prefix[sizeof(struct sockaddr_un)] = "@";
	size_t n = 1 + (size_t)port_prefix(reg, prefix + 1, sizeof(prefix) - 1);
	uint32_t v;

	memset(key, 0, sizeof(*key));
	if (len < n + 2 * sizeof(key->addr) || memcmp(text, prefix, n))
		return false;
	text += n;
	for (unsigned i = 0; i < sizeof(key->addr); i++, text += 2) {
		if (hex_read(text, 2, &v))
			return false;
		((uint8_t *)key->addr)[i] = (uint8_t)v;
	}
	if (text == end || *text++ != '-' || !number_parse(&text, end, UINT32_MAX, &key->scope))
		return false;
	if (text == end || *text++ != '-' || !number_parse(&text, end, UINT16_MAX, &v) || text != end)
		return false;
	key->port = (uint16_t)v;
	return key->port;
}

/* ---- one's own ---- */

/* The kernel shows others the group that the process has when it listens. */
static bool has_left_group(const struct registry *reg)
{
	return rds_options()->share == RDS_OPT_SHARE_GROUP &&
	       reg->identity.gid != (gid_t)os_syscall(SYS_getegid, 0, 0, 0, 0, 0, 0);
}

int reg_port_hold(struct registry *reg, const struct reg_key *key, int fd)
{
	struct sockaddr_un un;
	socklen_t len;

	if (fd < 0 || !reg->identity.domain[0])
		return 0;
	len = port_address(reg, key, &un);
	return os_bind(fd, (struct sockaddr *)&un, len);
}

int registry_port_hold(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope, int hold)
{
	struct reg_key key = reg_key_make(addr, port, scope);

	return reg_port_hold(reg, &key, hold);
}

bool registry_port_is_held(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope, int fd)
{
	struct reg_key key = reg_key_make(addr, port, scope);
	struct sockaddr_un want, is;
	socklen_t len = sizeof(is), n = port_address(reg, &key, &want);

	return os_getsockname(fd, (struct sockaddr *)&is, &len) == 0 && len == n && memcmp(&is, &want, n) == 0;
}

/* A link cannot be overwritten; under its name it is replaced. */
static int link_write(int dir, const char *name, const char *text)
{
	char first[PATH_SIZE + 8];
	int ret;

	snprintf(first, sizeof(first), "%s.new", name);
	os_syscall(SYS_unlinkat, dir, (long)first, 0, 0, 0, 0);
	ret = (int)os_syscall(SYS_symlinkat, (long)text, dir, (long)first, 0, 0, 0);
	return ret ? ret : (int)os_syscall(SYS_renameat, dir, (long)first, dir, (long)name, 0, 0);
}

static int port_write(struct registry *reg, const struct reg_key *key, bool moved)
{
	char path[PATH_SIZE], name[PATH_SIZE], text[LINK_TEXT + 1];
	int dir = reg_dir_open(reg, path, sizeof(path)), n = 0, ret;

	if (dir < 0)
		return dir;
	for (unsigned i = 0; i < RDS_PROCID_LEN; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%02x", reg->id.b[i]);
	snprintf(text + n, sizeof(text) - (size_t)n, "-%d-%04x", moved,
		 reg_load(&reg->f->proc[reg->slot].cm_port) & 0xffff);
	link_name(reg, key, name);
	ret = link_write(dir, name, text);
	os_close(dir);
	return ret;
}

void registry_port_show(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope, int hold,
			bool moved)
{
	struct reg_key key = reg_key_make(addr, port, scope);
	int ret = port_write(reg, &key, moved);

	if (!ret)
		ret = os_listen(hold, BACKLOG);
	if (ret)
		rds_warn_once("registry: port %u is not shown to other users (%s), who cannot send to it: this user "
			      "has to be able to make links in its directory in %s",
			      port, strerror(-ret), rds_options()->registry_dir);
	else if (has_left_group(reg))
		rds_warn_once("registry: other users of group %u cannot send to port %u, because this process has left "
			      "the group: bind before that (RDS_PRELOAD_SHARE)",
			      (unsigned)reg->identity.gid, port);
}

static void port_unwrite(struct registry *reg, const struct reg_key *key)
{
	char path[PATH_SIZE], name[PATH_SIZE];
	uid_t uid = (uid_t)os_syscall(SYS_geteuid, 0, 0, 0, 0, 0, 0);
	int dir = reg_dir_path(reg, uid, path, sizeof(path));

	if (!dir)
		dir = os_open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (dir < 0)
		return;
	link_name(reg, key, name);
	os_syscall(SYS_unlinkat, dir, (long)name, 0, 0, 0, 0);
	os_close(dir);
}

void registry_port_hide(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope)
{
	struct reg_key key = reg_key_make(addr, port, scope);

	if (port && reg->identity.domain[0])
		port_unwrite(reg, &key);
}

/* The name is taken meanwhile: only who has it touches the link. */
void reg_port_clean(struct registry *reg, struct reg_sock *s)
{
	struct reg_key key = {.scope = reg_load(&s->scope), .port = (uint16_t)reg_load(&s->mark)};
	int fd;

	if (!key.port || !reg->identity.domain[0])
		return;
	reg_words_load(key.addr, s->addr);
	fd = os_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (!reg_port_hold(reg, &key, fd))
		port_unwrite(reg, &key);
	os_close(fd);
}

/* ---- other users' ---- */

static int port_cred(const struct registry *reg, const struct reg_key *key, struct ucred *cred)
{
	struct sockaddr_un un;
	socklen_t len = port_address(reg, key, &un);

	return rds_node_name_cred(&un, len, cred);
}

bool reg_port_is_anothers(struct registry *reg, const struct reg_key *key)
{
	struct ucred cred;

	return !port_cred(reg, key, &cred) && !registry_is_member(reg, &cred);
}

bool registry_port_holder(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			  struct ucred *cred)
{
	struct reg_key key = reg_key_make(addr, port, scope);

	return reg->identity.domain[0] && !port_cred(reg, &key, cred);
}

/* The directory of a user, if it is that user's. */
static int others_dir_open(const struct registry *reg, uid_t uid)
{
	char path[PATH_SIZE];
	int fd = reg_dir_path(reg, uid, path, sizeof(path));
	struct stat st;

	if (!fd)
		fd = os_open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	if (!os_fstat(fd, &st) && st.st_uid == uid && os_uid_is_known(uid))
		return fd;
	os_close(fd);
	return -EACCES;
}

int reg_port_parse(const char *text, long len, struct registry_owner *out)
{
	uint32_t v;

	if (len != LINK_TEXT || text[32] != '-' || text[34] != '-')
		return -EINVAL;
	for (unsigned i = 0; i < RDS_PROCID_LEN; i++) {
		if (hex_read(text + 2 * i, 2, &v))
			return -EINVAL;
		out->procid.b[i] = (uint8_t)v;
	}
	if (hex_read(text + 33, 1, &v))
		return -EINVAL;
	out->moved = v;
	if (hex_read(text + 35, 4, &v))
		return -EINVAL;
	out->cm_port = (uint16_t)v;
	return 0;
}

static int link_read(struct registry *reg, const struct reg_key *key, uid_t uid, struct registry_owner *out)
{
	char name[PATH_SIZE], text[LINK_TEXT + 1];
	int dir = others_dir_open(reg, uid);
	long n;

	if (dir < 0)
		return dir;
	link_name(reg, key, name);
	n = os_syscall(SYS_readlinkat, dir, (long)name, (long)text, sizeof(text), 0, 0);
	os_close(dir);
	return n < 0 ? (int)n : reg_port_parse(text, n, out);
}

/*
 * Somebody has the port. That no process is found has one of two reasons: its socket gets another
 * owner just now, or there is no descriptor to look with. Then the messages wait.
 */
int reg_port_lookup(struct registry *reg, const struct reg_key *key, struct registry_owner *out)
{
	struct registry_owner found = {.proc = REGISTRY_NOBODY, .sock = UINT32_MAX, .others = true};
	struct ucred cred;
	uint32_t slot;
	int ret;

	if (!reg->identity.domain[0])
		return -ENOENT;
	ret = port_cred(reg, key, &cred);
	if (ret == -ECONNREFUSED || (!ret && !registry_trusts(reg, &cred)))
		return -ENOENT;
	*out = found;
	if (ret || link_read(reg, key, cred.uid, &found))
		return 0;
	if (reg_others_find(reg, &found.procid, &cred, &slot))
		return 0;
	*out = found;
	out->proc = slot;
	out->pid = cred.pid;
	return 0;
}

int registry_lookup_all(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			struct registry_owner *out)
{
	struct reg_key key = reg_key_make(addr, port, scope);
	int ret;

	*out = (struct registry_owner){.others = false};
	ret = registry_lookup(reg, addr, port, scope, out);
	return ret == -ENOENT && port ? reg_port_lookup(reg, &key, out) : ret;
}

int registry_port_is_of(struct registry *reg, uint32_t slot, const struct rds_procid *id, const struct in6_addr *addr,
			uint16_t port, uint32_t scope)
{
	struct reg_key key = reg_key_make(addr, port, scope);
	struct registry_owner own;
	struct ucred cred;
	int ret = registry_lookup_nowait(reg, addr, port, scope, &own);

	if (ret != -ENOENT)
		return ret ? -EAGAIN : 0;
	ret = port_cred(reg, &key, &cred);
	if (ret)
		return ret == -ECONNREFUSED ? 1 : -EAGAIN;
	if (reg_others_slot(cred.uid) == slot)
		return 1;
	/* the process has had another user when it bound that port */
	return !link_read(reg, &key, cred.uid, &own) && memcmp(&own.procid, id, sizeof(*id)) == 0;
}
