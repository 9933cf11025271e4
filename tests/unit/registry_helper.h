/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * registry_helper.h - a registry of one's own for each test, children that are members of it, and
 * the raw file.
 */
#ifndef TESTS_UNIT_REGISTRY_HELPER_H
#define TESTS_UNIT_REGISTRY_HELPER_H

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/node/registry.h"
#include "engine/node/layout.h"

static char test_dir[64], test_file[192];

static inline void test_share(const char *share)
{
	setenv("RDS_PRELOAD_SHARE", share, 1);
	rds_options_reset();
}

/* An empty directory; the names of what registry_open() will put there. */
static inline void registry_setup(void)
{
	struct stat st = { 0 };

	ck_assert_int_eq(stat("/proc/thread-self/ns/net", &st), 0);
	snprintf(test_dir, sizeof(test_dir), "/dev/shm/rdsunit.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(test_dir));
	setenv("RDS_PRELOAD_REGISTRY_DIR", test_dir, 1);
	unsetenv("RDS_PRELOAD_SHARE");
	rds_options_reset();
	snprintf(test_file, sizeof(test_file), "%s/rdspreload-%u/node-%llu-v%d", test_dir, (unsigned)geteuid(),
		 (unsigned long long)st.st_ino, REG_VERSION);
}

static inline void registry_teardown(void)
{
	char cmd[96];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", test_dir);
	ck_assert_int_eq(system(cmd), 0);
}

static inline struct in6_addr v4(const char *text)
{
	struct in6_addr a = { 0 };

	a.s6_addr[10] = a.s6_addr[11] = 0xff;
	ck_assert_int_eq(inet_pton(AF_INET, text, &a.s6_addr[12]), 1);
	return a;
}

static inline struct registry *open_ok(void)
{
	struct registry *reg = NULL;

	ck_assert_int_eq(registry_open(&reg), 0);
	ck_assert_ptr_nonnull(reg);
	return reg;
}

static inline uint32_t add_ok(struct registry *reg)
{
	uint32_t idx;

	ck_assert_int_eq(registry_sock_add(reg, 77, 1000, 2000, &idx), 0);
	return idx;
}

static inline uint16_t bind_ok(struct registry *reg, uint32_t idx, const char *addr, uint16_t port)
{
	struct in6_addr a = v4(addr);
	uint16_t got = 0;

	ck_assert_int_eq(registry_sock_bind(reg, idx, &a, port, 0, 2, &got), 0);
	return got;
}

/*
 * The same file as the registry maps, for looking and for damaging.  The descriptor stays open:
 * closing it would drop the record locks of this process.
 */
static inline struct reg_file *raw_map(void)
{
	int fd = open(test_file, O_RDWR | O_CLOEXEC);
	void *p;

	ck_assert_int_ge(fd, 0);
	p = mmap(NULL, REG_AREA_OFFSET(1), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

/* Its first area. */
static inline struct reg_area *raw_area(struct reg_file *f)
{
	return (void *)((char *)f + REG_AREA_OFFSET(0));
}

struct child {
	pid_t pid;
	/* our ends: the child's words come from `in`, a byte into `out` lets it go on */
	int in, out;
};

/* Runs fn(in child's terms: from, to) in a forked child. */
static inline struct child child_start(void (*fn)(int from, int to))
{
	int up[2], down[2];
	struct child c;

	ck_assert_int_eq(pipe2(up, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(down, O_CLOEXEC), 0);
	c.pid = fork();
	ck_assert_int_ge(c.pid, 0);
	if (c.pid == 0) {
		close(up[0]);
		close(down[1]);
		os_fds_forked();
		fn(down[0], up[1]);
		_exit(0);
	}
	close(up[1]);
	close(down[0]);
	c.in = up[0];
	c.out = down[1];
	return c;
}

static inline void child_hear(struct child *c, void *buf, size_t len)
{
	ck_assert_int_eq(read(c->in, buf, len), (ssize_t)len);
}

static inline void child_tell(struct child *c)
{
	ck_assert_int_eq(write(c->out, "", 1), 1);
}

static inline int child_end(struct child *c, int sig)
{
	int status;

	if (sig)
		kill(c->pid, sig);
	ck_assert_int_eq(waitpid(c->pid, &status, 0), c->pid);
	close(c->in);
	close(c->out);
	return status;
}

/* In a child: complain and end, as Check's own assertions would run on in a copy of the parent. */
#define child_assert(x)                                                                                                \
	do {                                                                                                           \
		if (!(x)) {                                                                                            \
			fprintf(stderr, "%s:%d: child: %s\n", __FILE__, __LINE__, #x);                                 \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

static inline void child_say(int to, const void *buf, size_t len)
{
	child_assert(write(to, buf, len) == (ssize_t)len);
}

static inline void child_wait(int from)
{
	char c;

	child_assert(read(from, &c, 1) == 1);
}

/* A child that has the locks of all areas until it is told to end. */
static inline void holder_of_all(int from, int to)
{
	int fd = open(test_file, O_RDWR);

	for (int i = 0; i < REG_AREAS; i++)
		child_assert(os_lock(fd, F_WRLCK, REG_AREA_BYTE(i), 1, false) == 0);
	child_say(to, "", 1);
	child_wait(from);
}

#endif
