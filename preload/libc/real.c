/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * real.c - the table of real functions, which a wrapper calls for a descriptor that is not RDS.
 *
 * The table starts with raw system calls (early.c), so a call is served correctly at any time: from
 * an allocator that opens files while dlsym() below calls malloc, from a sanitizer's start-up, from
 * constructors that run before ours. The constructor (init/init.c) then replaces one entry after
 * the other. A half-filled table is as good as a full one. A function that no system call can
 * replace (system(), popen() ...) fills the table earlier. Nothing here allocates (dlsym() does
 * only when a name is missing), and no wrapper pays for a check "resolved yet?".
 */
#include "preload/libc/preload.h"

#include <dlfcn.h>

#include "preload/libc/early.h"

struct libc_real libc_real = {
#define RDS_SYM(name, ret, args, early) .name = early,
#include "preload/libc/symbols.def"
#undef RDS_SYM
};

/* In the order of the table, which has nothing else. */
static const char *const libc_names[] = {
#define RDS_SYM(name, ret, args, early) #name,
#include "preload/libc/symbols.def"
#undef RDS_SYM
};
_Static_assert(sizeof(struct libc_real) == sizeof(libc_names), "a pointer for each name");

static void libc_resolve(void)
{
	void **real = (void **)&libc_real;
	bool missing = false;

	for (size_t i = 0; i < sizeof(libc_names) / sizeof(libc_names[0]); i++) {
		void *sym = dlsym(RTLD_NEXT, libc_names[i]);

		/* A name that this libc lacks keeps its system call version. */
		if (sym)
			__atomic_store_n(&real[i], sym, __ATOMIC_RELEASE);
		else
			missing = true;
	}
	if (missing)
		(void)dlerror(); /* the failed look-ups are not the program's business */
}

/*
 * A call out of the look-up itself (from an allocator, a signal handler) returns at once: it would
 * wait for itself for ever.
 */
void rds_libc_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static __thread bool inside;

	if (inside)
		return;
	inside = true;
	pthread_once(&once, libc_resolve);
	inside = false;
}
