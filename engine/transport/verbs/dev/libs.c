/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * libs.c - finds and loads rdma-core's libraries (libs.h).
 *
 * The libraries stay loaded: providers register things that are never undone.
 */
#include "engine/transport/verbs/dev/libs.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "engine/sys/log.h"
#include "engine/sys/os.h"

struct verbs_api vb;

static const struct function {
	bool cm;
	const char *name;
	size_t at;
} functions[] =
	{
#define X(lib, ret, name, params) {sizeof(#lib) == 3, #name, offsetof(struct verbs_api, name)},
		VERBS_API(X)
#undef X
},
  newer[] = {
#define X(lib, ret, name, params) {sizeof(#lib) == 3, #name, offsetof(struct verbs_api, name)},
	  VERBS_API_NEWER(X)
#undef X
};

static int libs_missing(const char *what)
{
	rds_error("this machine has an RDMA device, but it cannot be used: %s. Install rdma-core (Debian: librdmacm1, "
		  "ibverbs-providers), or set RDS_PRELOAD_TRANSPORT=shm",
		  what);
	return -ELIBACC;
}

int verbs_libs_load(void)
{
	struct verbs_api api;
	void *ibv, *cm, *fn;
	unsigned i;

	if (vb.rdma_create_id)
		return 0;
	if (!os_dir_has_entries("/sys/class/infiniband"))
		return -ENOENT;
	ibv = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	cm = ibv ? dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!cm)
		return libs_missing(dlerror());
	for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		fn = dlsym(functions[i].cm ? cm : ibv, functions[i].name);
		if (!fn)
			return libs_missing(functions[i].name);
		memcpy((char *)&api + functions[i].at, &fn, sizeof(fn));
	}
	for (i = 0; i < sizeof(newer) / sizeof(newer[0]); i++) {
		fn = dlsym(newer[i].cm ? cm : ibv, newer[i].name);
		memcpy((char *)&api + newer[i].at, &fn, sizeof(fn));
	}
	vb = api;
	return 0;
}
