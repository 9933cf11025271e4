/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * others_list.c - which processes of other users have joined this node (RDS_PRELOAD_SHARE=group or
 * all)?
 *
 * No registry has them all. But each of their ports has a name (port_name.c), and the kernel lists
 * the names of the network namespace. Each name is looked up as if a message went there, so what is
 * found is as certain as that. Whoever makes a million names only makes the list incomplete: so much
 * is read, and so many ports are looked up.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "engine/sys/os.h"
#include "engine/node/registry_impl.h"

#define NAMES "/proc/net/unix"
#define READ_BYTES 65536
#define READ_MOST (64u << 20)
#define PORTS_MOST 4096
#define PROCS_MOST 1024

struct names {
	struct registry *reg;
	char buf[READ_BYTES];
	size_t have;  /* bytes, of which the first belong to a line */
	size_t total; /* that were read */
	unsigned ports;
	struct registry_proc *procs;
	unsigned n, own; /* the first `own` are this user's */
};

static bool is_listed(const struct names *s, const struct rds_procid *id)
{
	for (unsigned i = 0; i < s->n; i++)
		if (!memcmp(&s->procs[i].id, id, sizeof(*id)))
			return true;
	return false;
}

/* Ports of this user's processes are in the registry, and are not looked up by their names. */
static void add_owner(struct names *s, const struct reg_key *key)
{
	struct registry_owner owner;
	struct in6_addr addr;

	memcpy(&addr, key->addr, sizeof(addr));
	if (registry_lookup_all(s->reg, &addr, key->port, key->scope, &owner) || !owner.others)
		return;
	s->ports++;
	if (owner.proc == REGISTRY_NOBODY || is_listed(s, &owner.procid))
		return;
	s->procs[s->n++] = (struct registry_proc){.slot = owner.proc, .pid = owner.pid, .id = owner.procid};
}

static bool is_full(const struct names *s)
{
	return s->ports == PORTS_MOST || s->n == s->own + PROCS_MOST;
}

/* Takes the whole lines. */
static void take_lines(struct names *s)
{
	char *line = s->buf, *end = s->buf + s->have, *nl, *name;
	struct reg_key key;

	for (; (nl = memchr(line, '\n', (size_t)(end - line))); line = nl + 1) {
		name = memrchr(line, ' ', (size_t)(nl - line));
		if (name && !is_full(s) && reg_port_key_parse(s->reg, name + 1, (size_t)(nl - name - 1), &key))
			add_owner(s, &key);
	}
	s->have = (size_t)(end - line);
	memmove(s->buf, line, s->have);
	if (s->have == sizeof(s->buf))
		s->have = 0; /* no name is so long */
}

static int read_names(struct names *s)
{
	int fd = os_open(NAMES, O_RDONLY | O_CLOEXEC, 0);
	ssize_t n;

	if (fd < 0)
		return fd;
	do {
		n = os_read(fd, s->buf + s->have, sizeof(s->buf) - s->have);
		if (n <= 0)
			break;
		s->total += (size_t)n;
		s->have += (size_t)n;
		take_lines(s);
	} while (s->total < READ_MOST && !is_full(s));
	os_close(fd);
	return n < 0 ? (int)n : 0;
}

int registry_add_others(struct registry *reg, struct registry_proc **procs, unsigned *n)
{
	struct names *s;
	int ret = -ENOMEM;

	if (!reg->identity.domain[0])
		return 0;
	s = malloc(sizeof(*s));
	if (!s)
		return ret;
	*s = (struct names){.reg = reg, .n = *n, .own = *n};
	s->procs = realloc(*procs, (*n + PROCS_MOST) * sizeof(**procs));
	if (s->procs) {
		*procs = s->procs;
		ret = read_names(s);
		*n = s->n;
	}
	free(s);
	return ret;
}
