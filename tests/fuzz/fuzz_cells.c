/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fuzz_cells.c - what another process may write into the memory that processes have in common: lines,
 * owners of slabs, cells.
 *
 * The input is a list of patches { u8 when, u16 offset, u8 length, bytes } on this process's line, the
 * owners of the first slabs, and the first slab. `when` % 3: before this process takes what is on its
 * stack, while it has taken it, or when it looks for cells. Whatever the patches are, all calls have to
 * come back, without a crash and within bounded work.
 *
 * fuzz-sources: engine/transport/shm/cells.c engine/transport/transport.c
 * fuzz-sources: engine/node/area.c engine/node/area_lock.c engine/node/bindings.c
 * fuzz-sources: engine/node/file.c engine/node/other_version.c engine/node/file_lock.c engine/node/lost_file.c
 * fuzz-sources: engine/node/inherited.c engine/node/slab.c
 * fuzz-sources: engine/node/own_entry.c engine/node/process.c engine/node/registry.c
 * fuzz-sources: engine/node/others.c engine/node/port_name.c
 * fuzz-sources: engine/node/snapshot.c engine/node/socket_name.c engine/node/stats.c
 * fuzz-sources: engine/sys/os.c engine/sys/signals.c engine/sys/own_fds.c
 * fuzz-sources: engine/sys/fd_table.c engine/sys/user_id.c engine/sys/log.c
 * fuzz-sources: engine/sys/options.c engine/sys/pass_fds.c
 */
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
#include "engine/sys/process.h"
#include "engine/node/registry_impl.h"
#include "engine/transport/shm/shm.h"

#define MESSAGES 6
#define OWNERS 64 /* so many slabs have an owner by a patch */

struct shm rds_shm;
static char dir[] = "/dev/shm/rdsfuzz.XXXXXX", file[128];
static struct reg_common *common;
static unsigned char *slabs;
static int raw;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

void os_fork_zero(void *var, size_t len)
{
	memset(var, 0, len);
}

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

static void *map(size_t len, size_t off)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, raw, (off_t)off);

	must(p != MAP_FAILED, "mmap");
	return p;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct stat st = {0};

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
	must(registry_open(&rds_node_registry) == 0, "registry_open");
	must(registry_line(rds_node_registry, 0) != NULL, "registry_line");
	raw = open(file, O_RDWR | O_CLOEXEC);
	common = map(REG_COMMON_SIZE, REG_COMMON_OFFSET);
	slabs = map(REGISTRY_SLAB_BYTES, REG_SLAB_OFFSET(0));
	return 0;
}

/* As no process has used it yet. */
static void begin(void)
{
	must(ftruncate(raw, (off_t)REG_COMMON_OFFSET) == 0, "ftruncate");
	must(ftruncate(raw, (off_t)REG_SLAB_OFFSET(REG_SLABS)) == 0, "ftruncate");
}

static void patch(const uint8_t *data, size_t size, unsigned when)
{
	const size_t line = sizeof(struct shm_line), owners = OWNERS * sizeof(struct reg_slab);
	unsigned char *to;
	size_t at, most, n;

	for (; size >= 4; data += 4 + n, size -= 4 + n) {
		at = (data[1] | (size_t)data[2] << 8);
		n = data[3] < size - 4 ? data[3] : size - 4;
		if (data[0] % 3 != when)
			continue;
		if (data[0] / 3 % 3 == 0)
			to = common->line[registry_self_slot(rds_node_registry)], most = line;
		else if (data[0] / 3 % 3 == 1)
			to = (unsigned char *)common->slab, most = owners;
		else
			to = slabs, most = REGISTRY_SLAB_BYTES;
		at %= most;
		memcpy(to + at, data + 4, n < most - at ? n : most - at);
	}
}

static void fill(uint32_t n)
{
	struct shm_cell *cell = shm_cell_at(n);

	if (cell)
		cell->to = registry_slab_word(registry_self(rds_node_registry));
	shm_cell_push(n, registry_self_slot(rds_node_registry));
}

static void found(uint32_t link, void *arg)
{
	unsigned *count = arg;

	must(++*count <= OWNERS * SHM_SLAB_CELLS, "cells that are found");
	shm_cell_return(shm_cell_at(link - 1), *count % 2);
}

static void walk(const uint8_t *data, size_t size)
{
	uint32_t link = shm_cells_take(), next;
	unsigned steps = 0;

	patch(data, size, 1);
	for (; link; link = next) {
		struct shm_cell *cell = shm_cell_at(link - 1);

		next = shm_cells_next(link);
		must(++steps <= OWNERS * SHM_SLAB_CELLS, "steps");
		if (cell && steps % 3)
			shm_cell_return(cell, true);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t self = registry_slab_word(registry_self(rds_node_registry));
	uint32_t n[MESSAGES], more;
	unsigned count = 0;

	begin();
	must(shm_cells_listen() == 0, "listen");
	for (int i = 0; i < MESSAGES; i++)
		must(shm_cell_get(&n[i]) == 0, "get"), fill(n[i]);
	patch(data, size, 0);
	walk(data, size);
	patch(data, size, 2);
	shm_cells_search(self, found, &count);
	for (int i = 0; i < MESSAGES; i++)
		shm_cell_put(n[i]);
	for (unsigned i = 0; i < 2 * SHM_SLAB_CELLS; i++)
		if (shm_cell_get(&more) == 0)
			fill(more);
	walk(data, size);
	shm_cells_close();
	return 0;
}
