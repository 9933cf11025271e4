/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fuzz_registry.c - what another process may have left in the registry file, or writes into it just
 * now.
 *
 * The input is a list of patches { u8 when, u24 offset, u8 length, bytes } on a registry that holds
 * a few sockets:  `when` even = before it is opened, odd = while it is in use.  A sound file is
 * laid down before each run.  Whatever the patches are, all calls have to come back, without a
 * crash and within bounded work.  The whole input is also what another user says of a port.
 *
 * fuzz-sources: engine/node/area.c engine/node/area_lock.c engine/node/bindings.c
 * fuzz-sources: engine/node/file.c engine/node/other_version.c engine/node/file_lock.c engine/node/lost_file.c
 * fuzz-sources: engine/node/inherited.c
 * fuzz-sources: engine/node/own_entry.c engine/node/process.c engine/node/registry.c
 * fuzz-sources: engine/node/others.c engine/node/port_name.c
 * fuzz-sources: engine/node/slab.c engine/node/snapshot.c engine/node/socket_name.c engine/node/stats.c
 * fuzz-sources: engine/sys/os.c engine/sys/signals.c engine/sys/own_fds.c
 * fuzz-sources: engine/sys/fd_table.c engine/sys/user_id.c engine/sys/log.c
 * fuzz-sources: engine/sys/options.c engine/sys/pass_fds.c
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/node/registry_impl.h"

#define SOUND_SIZE REG_SIZE(REG_CHUNK)

static unsigned char *sound;
static char dir[] = "/dev/shm/rdsfuzz.XXXXXX", file[128];
static struct in6_addr addr;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		abort();
	}
}

static void clean_up(void)
{
	unlink(file);
	*strrchr(file, '/') = 0;
	rmdir(file);
	rmdir(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct registry *reg;
	struct stat st = { 0 };
	uint16_t port;
	uint32_t idx;
	int fd;

	(void)argc;
	(void)argv;
	must(mkdtemp(dir) != NULL, dir);
	setenv("RDS_PRELOAD_REGISTRY_DIR", dir, 1);
	rds_options_reset();
	rds_options();
	atomic_store(&rds_log_max, -1);
	stat("/proc/thread-self/ns/net", &st);
	snprintf(file, sizeof(file), "%s/rdspreload-%u/node-%llu-v%d", dir, (unsigned)geteuid(),
		 (unsigned long long)st.st_ino, REG_VERSION);
	atexit(clean_up);
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &addr);
	must(registry_open(&reg) == 0, "registry_open");
	for (int i = 0; i < 20; i++) {
		must(registry_sock_add(reg, 1, 1, 1, &idx) == 0, "add");
		must(registry_sock_bind(reg, idx, &addr, (uint16_t)(4000 + i), 0, 1, &port) == 0, "bind");
	}
	sound = malloc(SOUND_SIZE);
	fd = open(file, O_RDONLY | O_CLOEXEC); /* as a process leaves it that was killed */
	must(read(fd, sound, SOUND_SIZE) == (ssize_t)SOUND_SIZE, "read");
	registry_close(reg);
	close(fd);
	return 0;
}

static void patch(unsigned char *to, const uint8_t *data, size_t size, unsigned when)
{
	while (size >= 5) {
		size_t at = (data[1] | data[2] << 8 | (size_t)data[3] << 16) % SOUND_SIZE, n = data[4];

		if (n > size - 5)
			n = size - 5;
		if (at + n > SOUND_SIZE)
			n = SOUND_SIZE - at;
		if (data[0] % 2 == when)
			memcpy(to + at, data + 5, n);
		data += 5 + n;
		size -= 5 + n;
	}
}

static void use(struct registry *reg)
{
	struct registry_owner o;
	struct registry_sock *v;
	struct registry_proc *p;
	uint64_t sum[RDS_STATS];
	uint32_t idx[4];
	uint16_t port;
	unsigned n;

	for (int i = 0; i < 25; i++) {
		if (registry_lookup(reg, &addr, (uint16_t)(4000 + i), 0, &o) == 0)
			registry_proc_cm_port(reg, o.proc, &o.procid), registry_proc_pid(reg, o.proc, &o.procid),
				registry_proc_alive(reg, o.proc, &o.procid);
	}
	for (int i = 0; i < 4; i++) {
		if (registry_sock_add(reg, 1, 1, 1, &idx[i]))
			idx[i] = 12345678;
		registry_sock_bind(reg, idx[i], &addr, i < 3 ? (uint16_t)(4000 + i) : 0, 0, 1, &port);
		registry_sock_set_bufs(reg, idx[i], 1, 2);
		registry_sock_set_connected(reg, idx[i], &addr, 7);
	}
	registry_sock_remove(reg, idx[1]);
	registry_reap(reg);
	registry_counters_sum(reg, sum);
	if (registry_socks(reg, &v, &n) == 0)
		free(v);
	if (registry_procs(reg, &p, &n) == 0)
		free(p);
}

/* In memory of its own size, where a sanitizer sees each byte that is read behind it. */
static void parse(const uint8_t *data, size_t size)
{
	struct registry_owner o;
	char *text = malloc(size + !size);

	must(text != NULL, "malloc");
	memcpy(text, data, size);
	if (reg_port_parse(text, (long)size, &o) == 0)
		must(size == 39, "a port's link");
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = open(file, O_RDWR | O_CLOEXEC);
	struct registry *reg;
	unsigned char *map;

	must(fd >= 0 && ftruncate(fd, SOUND_SIZE) == 0, file);
	map = mmap(NULL, SOUND_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(map != MAP_FAILED, "mmap");
	memcpy(map, sound, SOUND_SIZE);
	patch(map, data, size, 0);
	/* alone: there is nothing that cannot be put right */
	must(registry_open(&reg) == 0, "registry_open");
	use(reg);
	patch(map, data, size, 1);
	use(reg);
	registry_close(reg);
	munmap(map, SOUND_SIZE);
	close(fd);
	parse(data, size);
	return 0;
}
