/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * check.c - can the library be preloaded into a program? (check.h)
 *
 * The cases in which the dynamic loader ignores LD_PRELOAD without a word:
 *
 *	static program			no loader at all (static PIE included)
 *	set-user-ID and the like	the kernel asks for secure execution (AT_SECURE), and names
 *					with a slash are dropped; not when the ids would not change,
 *					and not under no_new_privs
 *	other word size or machine	the loader says so on stderr and goes on without the library
 *	other C library			its loader cannot bind the library
 *	Go				its runtime makes system calls by itself; only calls through
 *					cgo are seen
 *
 * A script is followed to its interpreter, and through env(1).
 */
#include "rdsrun/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "rdsrun/elf.h"

#define MAX_SCRIPTS 5 /* the kernel's own limit is 5 levels of #! */

/* 0 when path names a file that this user may execute. */
static int runnable(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EACCES;
	return access(path, X_OK) < 0 ? -errno : 0;
}

int check_find(const char *program, char *path, size_t len)
{
	const char *dirs = getenv("PATH"), *end;
	int err = -ENOENT;

	if (strchr(program, '/')) {
		if ((size_t)snprintf(path, len, "%s", program) >= len)
			return -ENAMETOOLONG;
		return runnable(path);
	}
	if (!dirs)
		dirs = "/bin:/usr/bin";
	for (;; dirs = end + 1) {
		int n, rc;

		end = strchrnul(dirs, ':');
		n = end == dirs ? snprintf(path, len, "./%s", program)
				: snprintf(path, len, "%.*s/%s", (int)(end - dirs), dirs, program);
		if (n > 0 && (size_t)n < len) {
			rc = runnable(path);
			if (rc == 0)
				return 0;
			if (rc == -EACCES)
				err = rc;
		}
		if (!*end)
			return err;
	}
}

static bool facts_of(const char *path, struct elf_facts *f)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return false;
	rc = elf_read(fd, f);
	close(fd);
	return rc == 0;
}

/*
 * Would the kernel run this file with other rights than the caller's, so that the loader does not
 * trust the environment?
 */
static const char *secure_execution(const char *path)
{
	struct statvfs vfs;
	struct stat st;

	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		return NULL;
	if (stat(path, &st) < 0 || statvfs(path, &vfs) < 0 || (vfs.f_flag & ST_NOSUID))
		return NULL;
	if ((st.st_mode & S_ISUID) && st.st_uid != getuid())
		return "set-user-ID";
	if ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getgid())
		return "set-group-ID";
	if (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0)
		return "given file capabilities";
	return NULL;
}

static enum check_verdict check_elf(const char *path, const struct elf_facts *f, const char *library, char *why,
				    size_t len)
{
	struct elf_facts lib, self;
	const char *secure = secure_execution(path);

	if (secure) {
		snprintf(why, len, "%s is %s: the loader ignores LD_PRELOAD for it (run it as its owner, or run a copy "
				   "without that mark)", path, secure);
		return CHECK_NO;
	}
	if (!facts_of(library, &lib) || lib.kind != ELF_FILE) {
		snprintf(why, len, "%s: not a readable shared library", library);
		return CHECK_NO;
	}
	if (f->bits != lib.bits || f->machine != lib.machine || f->big_endian != lib.big_endian) {
		snprintf(why, len, "%s is built for another machine or word size (%d bits, machine %u) than %s (%d bits, "
				   "machine %u)", path, f->bits, f->machine, library, lib.bits, lib.machine);
		return CHECK_NO;
	}
	if (!f->interp[0]) {
		snprintf(why, len, "%s is %s: there is no dynamic loader that could load a library%s", path,
			 f->dynamic ? "a static PIE" : "statically linked",
			 f->go ? " (a Go program; build it with cgo and call libc)" : "");
		return CHECK_NO;
	}
	/* rdsrun itself is linked like the library: same loader, same C library. */
	if (facts_of("/proc/self/exe", &self) && self.interp[0] && strcmp(self.interp, f->interp) != 0) {
		snprintf(why, len, "%s uses the loader %s, the library was built for %s", path, f->interp, self.interp);
		return CHECK_NO;
	}
	if (f->go) {
		snprintf(why, len, "%s is a Go program: only calls that it makes through cgo are seen, Go's own net and "
				   "syscall packages go around libc", path);
		return CHECK_PARTLY;
	}
	snprintf(why, len, "%s: dynamically linked, calls can be intercepted", path);
	return CHECK_OK;
}

/* The program behind "#! interp arg": for env(1) its first operand.  0 or a negative errno. */
static int interpreter(const struct elf_facts *f, char *path, size_t len)
{
	char arg[sizeof(f->interp_arg)], *save, *word;
	const char *base = strrchr(f->interp, '/');

	base = base ? base + 1 : f->interp;
	if (strcmp(base, "env") == 0) {
		memcpy(arg, f->interp_arg, sizeof(arg));
		for (word = strtok_r(arg, " \t", &save); word; word = strtok_r(NULL, " \t", &save))
			if (word[0] != '-' && !strchr(word, '='))
				return check_find(word, path, len);
	}
	return check_find(f->interp, path, len);
}

enum check_verdict check_program(const char *path, const char *library, char *why, size_t len)
{
	char at[4096], next[4096];
	struct elf_facts f;
	int rc;

	if ((size_t)snprintf(at, sizeof(at), "%s", path) >= sizeof(at)) {
		snprintf(why, len, "name too long");
		return CHECK_MISSING;
	}
	for (int depth = 0; depth < MAX_SCRIPTS; depth++) {
		if (!facts_of(at, &f)) {
			snprintf(why, len, "%s: cannot be read: %s", at, strerror(errno));
			return CHECK_MISSING;
		}
		if (f.kind == ELF_FILE)
			return check_elf(at, &f, library, why, len);
		if (f.kind == ELF_NOT) /* execvp() gives such a file to the shell */
			snprintf(f.interp, sizeof(f.interp), "/bin/sh");
		rc = interpreter(&f, next, sizeof(next));
		if (rc < 0) {
			snprintf(why, len, "%s: interpreter %s: %s", at, f.interp, strerror(-rc));
			return CHECK_MISSING;
		}
		memcpy(at, next, sizeof(at));
	}
	snprintf(why, len, "%s: too many levels of interpreters", path);
	return CHECK_MISSING;
}
