/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * check.h - can a preloaded library get between this program and its system calls? Nothing is
 * executed.
 */
#ifndef RDSRUN_CHECK_H
#define RDSRUN_CHECK_H

#include <stddef.h>

enum check_verdict {
	CHECK_OK, /* the loader will take the library */
	/* the loader will, but part of the program may not use it; `why` says which */
	CHECK_PARTLY,
	CHECK_NO,      /* the loader cannot; `why` says the cause and what could be done */
	CHECK_MISSING, /* no such program, or it cannot be read; `why` says which */
};

/* Finds `program` as execvp() would: into `path`.  0 or a negative errno. */
int check_find(const char *program, char *path, size_t len);

/* `library`: the shared object that would be preloaded. */
enum check_verdict check_program(const char *path, const char *library, char *why, size_t len);

#endif
