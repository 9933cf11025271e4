/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_others.c - two users on one node (RDS_PRELOAD_SHARE=all): each has a registry of its own. A
 * port is one user's, as the kernel says. What a user writes about ports that it does not have, and
 * about processes that it is not, is not believed.
 */
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "engine/node/registry_impl.h"
#include "engine/node/socket_name.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

#define ONE 70001u
#define TWO 70002u
#define PORT 4000

/* What a process of a user says of itself. */
struct said {
	struct rds_procid id;
	int ret;
	uint16_t port;
};

static const char *local = "127.0.0.1";
static uid_t user_of_child;
static struct said wanted; /* what the next child is to do: its id and port, where that matters */

static int hold_socket(void)
{
	int fd = os_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* As the helper of a process: at the name of that id. */
static int listens_as(const struct rds_procid *id)
{
	struct sockaddr_un name;
	socklen_t len = rds_node_listen_name(id, &name);
	int fd = hold_socket();

	return os_bind(fd, (struct sockaddr *)&name, len) || os_listen(fd, 100) ? -1 : fd;
}

static struct registry *joins(void)
{
	struct registry *reg;

	child_assert(setgid(user_of_child) == 0 && setuid(user_of_child) == 0);
	child_assert(registry_open(&reg) == 0);
	return reg;
}

static struct said binds(struct registry *reg, uint16_t port, int *fd)
{
	struct said s = {.id = *registry_self(reg)};
	struct in6_addr a = v4(local);
	uint32_t idx;

	*fd = hold_socket();
	child_assert(registry_sock_add(reg, 1, 1, 1, &idx) == 0);
	s.ret = registry_sock_claim(reg, idx, &a, port, 0, 2, *fd, &s.port);
	if (!s.ret)
		registry_port_show(reg, &a, s.port, 0, *fd, false);
	return s;
}

static void has_a_port(int from, int to)
{
	struct registry *reg = joins();
	struct said s;
	int fd;

	child_assert(listens_as(registry_self(reg)) >= 0);
	s = binds(reg, wanted.port, &fd);
	child_say(to, &s, sizeof(s));
	child_wait(from);
	if (!s.ret) {
		registry_port_hide(reg, &(struct in6_addr){.s6_addr32 = {0, 0, htonl(0xffff), htonl(INADDR_LOOPBACK)}},
				   s.port, 0);
		close(fd);
		child_say(to, &s, sizeof(s));
		child_wait(from);
	}
	registry_close(reg);
}

static struct child one_with(uid_t user, uint16_t port, void (*fn)(int from, int to), struct said *s)
{
	struct child c;

	user_of_child = user;
	wanted.port = port;
	c = child_start(fn);
	child_hear(&c, s, sizeof(*s));
	return c;
}

static int find(struct registry *reg, uint16_t port, struct registry_owner *o)
{
	struct in6_addr a = v4(local);

	return registry_lookup_all(reg, &a, port, 0, o);
}

static void setup(void)
{
	registry_setup();
	test_share("all");
	ck_assert_int_eq(chmod(test_dir, 01777), 0);
}

/* The last one's claim of a port in a registry that this process has opened. */
static int claims(struct registry *reg, uint16_t port, uint16_t *got, int *fd)
{
	struct in6_addr a = v4(local);

	*fd = hold_socket();
	return registry_sock_claim(reg, add_ok(reg), &a, port, 0, 2, *fd, got);
}

START_TEST(a_port_is_one_users)
{
	struct registry *reg = open_ok();
	struct registry_owner o;
	struct said s, s2;
	struct child c, c2;
	uint16_t got;
	int fd;

	ck_assert_int_eq(find(reg, PORT, &o), -ENOENT);
	c = one_with(ONE, PORT, has_a_port, &s);
	ck_assert_int_eq(s.ret, 0);
	ck_assert_int_eq(find(reg, PORT, &o), 0);
	ck_assert(o.others && !o.moved);
	ck_assert_uint_eq(o.proc, REGISTRY_OTHERS + ONE);
	ck_assert_mem_eq(&o.procid, &s.id, sizeof(s.id));
	ck_assert_int_eq(o.pid, c.pid);
	ck_assert(registry_proc_alive(reg, o.proc, &o.procid));
	ck_assert(!registry_proc_alive(reg, REGISTRY_OTHERS + TWO, &o.procid));
	/* messages may come from it if they are One's, and from nobody's port */
	{
		struct in6_addr a = v4(local);

		ck_assert_int_eq(registry_port_is_of(reg, REGISTRY_OTHERS + ONE, &s.id, &a, PORT, 0), 1);
		ck_assert_int_eq(registry_port_is_of(reg, REGISTRY_OTHERS + TWO, registry_self(reg), &a, PORT, 0), 0);
		ck_assert_int_eq(registry_port_is_of(reg, REGISTRY_OTHERS + TWO, &s.id, &a, PORT, 0), 1);
		ck_assert_int_eq(registry_port_is_of(reg, REGISTRY_OTHERS + TWO, &s.id, &a, PORT + 1, 0), 1);
	}
	/* neither we nor a third user gets it */
	ck_assert_int_eq(claims(reg, PORT, &got, &fd), -EADDRINUSE);
	close(fd);
	c2 = one_with(TWO, PORT, has_a_port, &s2);
	ck_assert_int_eq(s2.ret, -EADDRINUSE);
	child_tell(&c2);
	ck_assert_int_eq(child_end(&c2, 0), 0);
	/* it is closed */
	child_tell(&c);
	child_hear(&c, &s, sizeof(s));
	ck_assert_int_eq(find(reg, PORT, &o), -ENOENT);
	ck_assert_int_eq(claims(reg, PORT, &got, &fd), 0);
	close(fd);
	child_tell(&c);
	ck_assert_int_eq(child_end(&c, 0), 0);
	registry_close(reg);
}
END_TEST

static void becomes_one(int from, int to)
{
	struct registry *reg;
	struct said s;
	int fd;

	child_assert(registry_open(&reg) == 0);
	s = binds(reg, PORT, &fd);
	child_assert(s.ret == 0 && setuid(ONE) == 0 && os_listen(fd, 1) == 0);
	child_say(to, &s, sizeof(s));
	child_wait(from);
}

/* A process of this registry is no other user's, whatever user it has become. */
START_TEST(one_of_us_is_no_other)
{
	struct registry *reg = open_ok();
	struct in6_addr a = v4(local);
	struct reg_key key = reg_key_make(&a, PORT, 0);
	struct child c;
	struct said s;

	c = one_with(0, 0, becomes_one, &s);
	ck_assert(!reg_port_is_anothers(reg, &key));
	child_tell(&c);
	ck_assert_int_eq(child_end(&c, 0), 0);
	c = one_with(ONE, PORT, has_a_port, &s);
	ck_assert(reg_port_is_anothers(reg, &key));
	child_end(&c, SIGKILL);
	registry_close(reg);
}
END_TEST

/* Another user has all ports from one on: the search goes on behind them. */
START_TEST(a_search_passes_them)
{
	enum { TAKEN = 300 };
	struct registry *reg = open_ok();
	static int fds[TAKEN];
	struct reg_key key;
	struct in6_addr a = v4(local);
	uint16_t got;
	int fd;

	for (int i = 0; i < TAKEN; i++) {
		fds[i] = hold_socket();
		key = reg_key_make(&a, (uint16_t)(i + 2), 0);
		ck_assert_int_eq(reg_port_hold(reg, &key, fds[i]), 0);
	}
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(claims(reg, 0, &got, &fd), 0);
		ck_assert_uint_ge(got, TAKEN + 2);
		close(fd);
	}
	/* not to be had, but nobody listens: the owner may be about to give it back */
	ck_assert_int_eq(claims(reg, 10, &got, &fd), -EBUSY);
	close(fd);
	for (int i = 0; i < TAKEN; i++)
		close(fds[i]);
	registry_close(reg);
}
END_TEST

static void link_of(uid_t user, uint16_t port, char path[300])
{
	struct stat st;

	ck_assert_int_eq(stat("/proc/thread-self/ns/net", &st), 0);
	snprintf(path, 300, "%s/rdspreload-all-%u/port-%llu-00000000000000000000ffff7f000001-0-%x", test_dir, user,
		 (unsigned long long)st.st_ino, port);
}

static int ended(struct child *c)
{
	return child_end(c, SIGKILL);
}

START_TEST(a_killed_process)
{
	struct registry *reg = open_ok();
	struct registry_owner o;
	char path[300], text[64];
	struct child c;
	struct said s;

	c = one_with(ONE, PORT, has_a_port, &s);
	ended(&c);
	link_of(ONE, PORT, path);
	ck_assert_int_eq(readlink(path, text, sizeof(text)), 39);
	ck_assert_int_eq(find(reg, PORT, &o), -ENOENT);
	ck_assert(!registry_proc_alive(reg, REGISTRY_OTHERS + ONE, &s.id));
	/* the next process of that user removes what is left */
	c = one_with(ONE, PORT + 1, has_a_port, &s);
	ck_assert_int_eq(readlink(path, text, sizeof(text)), -1);
	ended(&c);
	registry_close(reg);
}
END_TEST

/* Two says that it has One's port, and that it is One, everywhere where that can be said. */
static void lies(int from, int to)
{
	struct registry *reg = joins();
	char path[300], text[64], *digits = text;
	struct rds_procid id = wanted.id;
	struct sockaddr_un un;
	struct said s;
	socklen_t len;
	int fd;

	s = binds(reg, PORT + 1, &fd);
	child_assert(s.ret == 0);
	for (int i = 0; i < RDS_PROCID_LEN; i++)
		digits += sprintf(digits, "%02x", id.b[i]);
	strcpy(digits, "-1-0000");
	for (unsigned port = PORT; port <= PORT + 1; port++) {
		link_of(TWO, (uint16_t)port, path);
		unlink(path);
		child_assert(symlink(text, path) == 0);
	}
	link_of(ONE, PORT, path);
	child_assert(unlink(path) && symlink(text, path));
	len = rds_node_listen_name(&id, &un);
	fd = hold_socket();
	child_assert(os_bind(fd, (struct sockaddr *)&un, len) == -EADDRINUSE);
	child_say(to, &s, sizeof(s));
	child_wait(from);
}

static void tries_to_open(int from, int to)
{
	struct said s = {.ret = 0};
	char path[300];
	struct stat st;

	(void)from;
	child_assert(setgid(user_of_child) == 0 && setuid(user_of_child) == 0);
	child_assert(stat("/proc/thread-self/ns/net", &st) == 0);
	snprintf(path, sizeof(path), "%s/rdspreload-all-%u/node-%llu-v%d", test_dir, ONE, (unsigned long long)st.st_ino,
		 REG_VERSION);
	child_assert(stat(path, &st) == 0);
	child_assert(open(path, O_RDONLY) < 0 && errno == EACCES);
	child_assert(open(path, O_RDWR) < 0 && errno == EACCES);
	child_assert(truncate(path, 0) && errno == EACCES);
	child_assert(unlink(path) && errno == EACCES);
	child_say(to, &s, sizeof(s));
}

/* Who it is cannot be asked: that is no forgery. */
static void ck_no_descriptor(struct registry *reg, const struct rds_procid *id, const struct ucred *cred)
{
	struct rlimit all, none;
	uint32_t slot;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &all), 0);
	none = (struct rlimit){3, all.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	ck_assert_int_eq(registry_proc_is_of(reg, &slot, id, cred), -EAGAIN);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &all), 0);
}

START_TEST(nobody_forges)
{
	struct registry *reg = open_ok();
	struct registry_owner o;
	struct child c, c2, c3;
	struct said s, s2;
	struct ucred cred;
	uint32_t slot;

	c = one_with(ONE, PORT, has_a_port, &s);
	wanted.id = s.id;
	c2 = one_with(TWO, 0, lies, &s2);
	/* One's is still One's, and Two's is nobody's: it may not be One's process */
	ck_assert_int_eq(find(reg, PORT, &o), 0);
	ck_assert_uint_eq(o.proc, REGISTRY_OTHERS + ONE);
	ck_assert_mem_eq(&o.procid, &s.id, sizeof(s.id));
	ck_assert_int_eq(find(reg, PORT + 1, &o), 0);
	ck_assert_uint_eq(o.proc, REGISTRY_NOBODY);
	/* nor in a greeting */
	cred = (struct ucred){.pid = c2.pid, .uid = TWO, .gid = TWO};
	slot = 5;
	ck_assert_int_eq(registry_proc_is_of(reg, &slot, &s.id, &cred), -EACCES);
	cred = (struct ucred){.pid = c.pid, .uid = TWO, .gid = TWO}; /* One has become Two since */
	ck_assert_int_eq(registry_proc_is_of(reg, &slot, &s.id, &cred), 0);
	ck_assert_uint_eq(slot, REGISTRY_OTHERS + ONE);
	ck_no_descriptor(reg, &s.id, &cred);
	/* where nobody else may be, no slot is another user's */
	test_share("user");
	slot = REGISTRY_OTHERS + geteuid();
	cred = (struct ucred){.pid = getpid(), .uid = geteuid(), .gid = getegid()};
	ck_assert_int_eq(registry_proc_is_of(reg, &slot, registry_self(reg), &cred), -EACCES);
	test_share("all");
	cred = (struct ucred){.pid = c.pid, .uid = TWO, .gid = TWO};
	ended(&c2);
	/* it can neither lock the file nor read or truncate it */
	c3 = one_with(TWO, 0, tries_to_open, &s2);
	ck_assert_int_eq(child_end(&c3, 0), 0);
	/* once One has ended, its id is nobody's, and not ours either */
	ended(&c);
	ck_assert_int_eq(registry_proc_is_of(reg, &slot, &s.id, &cred), -EACCES);
	registry_close(reg);
}
END_TEST

/* The text of a link is another user's; so is the directory. */
START_TEST(what_is_no_link)
{
	static const char *const texts[] = {"x",
					    "0123456789abcdef0123456789abcdef-0-000",
					    "0123456789abcdef0123456789abcdef-0-00000",
					    "0123456789abcdef0123456789abcdeg-0-0000",
					    "0123456789abcdef0123456789abcdef-0-00g0",
					    "0123456789abcdef0123456789abcdef-z-0000",
					    "0123456789abcdef0123456789abcdef00000000",
					    "/etc/passwd"};
	struct registry *reg = open_ok();
	char path[300], longest[4000];
	struct registry_owner o;
	struct child c;
	struct said s;

	c = one_with(ONE, PORT, has_a_port, &s);
	link_of(ONE, PORT, path);
	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		ck_assert_int_eq(unlink(path), 0);
		ck_assert_int_eq(symlink(texts[i], path), 0);
		ck_assert_int_eq(find(reg, PORT, &o), 0);
		ck_assert_uint_eq(o.proc, REGISTRY_NOBODY);
	}
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink(longest, path), 0);
	ck_assert_int_eq(find(reg, PORT, &o), 0);
	ck_assert_uint_eq(o.proc, REGISTRY_NOBODY);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mknod(path, S_IFIFO | 0666, 0), 0);
	ck_assert_int_eq(find(reg, PORT, &o), 0);
	ck_assert_uint_eq(o.proc, REGISTRY_NOBODY);
	ended(&c);
	registry_close(reg);
}
END_TEST

/* A directory that somebody else has made for One, with the truth in it. */
START_TEST(whose_directory)
{
	struct registry *reg = open_ok();
	struct registry_owner o;
	char path[300];
	struct child c;
	struct said s;

	c = one_with(ONE, PORT, has_a_port, &s);
	link_of(ONE, PORT, path);
	*strrchr(path, '/') = 0;
	ck_assert_int_eq(find(reg, PORT, &o), 0);
	ck_assert_uint_eq(o.proc, REGISTRY_OTHERS + ONE);
	ck_assert_int_eq(chown(path, TWO, TWO), 0);
	ck_assert_int_eq(find(reg, PORT, &o), 0);
	ck_assert_uint_eq(o.proc, REGISTRY_NOBODY);
	ended(&c);
	registry_close(reg);
}
END_TEST

/* A group's node is not everybody's: its ports are others, and strangers are not asked. */
static void of_the_group(int from, int to)
{
	struct registry *reg;
	struct said s;
	int fd;

	child_assert(setgid(12345) == 0 && setuid(user_of_child) == 0);
	child_assert(registry_open(&reg) == 0);
	child_assert(listens_as(registry_self(reg)) >= 0);
	s = binds(reg, wanted.port, &fd);
	child_say(to, &s, sizeof(s));
	child_wait(from);
}

static void looks_in_the_group(int from, int to)
{
	struct registry_owner o;
	struct registry *reg;
	struct said s = {.ret = 0};

	(void)from;
	child_assert(setgid(12345) == 0 && setuid(user_of_child) == 0);
	child_assert(registry_open(&reg) == 0);
	s.ret = find(reg, PORT, &o);
	child_assert(s.ret || o.proc == REGISTRY_OTHERS + ONE);
	child_say(to, &s, sizeof(s));
}

START_TEST(a_group)
{
	struct registry *reg = open_ok();
	struct child c, c2;
	struct said s, s2;
	uint16_t got;
	int fd;

	test_share("group");
	c = one_with(ONE, PORT, of_the_group, &s);
	ck_assert_int_eq(s.ret, 0);
	c2 = one_with(TWO, 0, looks_in_the_group, &s2);
	ck_assert_int_eq(s2.ret, 0);
	ck_assert_int_eq(child_end(&c2, 0), 0);
	test_share("all");
	ck_assert_int_eq(claims(reg, PORT, &got, &fd), 0);
	close(fd);
	ended(&c);
	registry_close(reg);
}
END_TEST

/* ---- who has joined the node? ---- */

static int name_taken(const char *name, size_t len)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int fd = hold_socket();

	memcpy(un.sun_path + 1, name, len);
	ck_assert_int_eq(
		os_bind(fd, (struct sockaddr *)&un, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)), 0);
	ck_assert_int_eq(os_listen(fd, 1), 0);
	return fd;
}

#define MAPPED "00000000000000000000ffff7f000001"

/* Whoever makes a name has written it. */
START_TEST(names_of_ports)
{
	static const struct {
		const char *text;
		uint32_t scope;
		uint16_t port;
	} t[] = {{MAPPED "-0-fa0", 0, 4000},
		 {MAPPED "-ffffffff-ffff", UINT32_MAX, 65535},
		 {MAPPED "-0-0", 0, 0},
		 {MAPPED "-0-10000", 0, 0},
		 {MAPPED "-100000000-1", 0, 0},
		 {MAPPED "-0-", 0, 0},
		 {MAPPED "-0", 0, 0},
		 {MAPPED, 0, 0},
		 {MAPPED "-0-1 ", 0, 0},
		 {MAPPED "-0-1-", 0, 0},
		 {"0000", 0, 0},
		 {"", 0, 0},
		 {"0000000000000000000zffff7f000001-0-1", 0, 0}};
	struct registry *reg = open_ok();
	char name[200];
	struct reg_key key;

	for (unsigned i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		int n = snprintf(name, sizeof(name), "@rds.port.%s.%s", registry_domain(reg), t[i].text);

		ck_assert_int_eq(reg_port_key_parse(reg, name, (size_t)n, &key), t[i].port != 0);
		ck_assert(!t[i].port || (key.port == t[i].port && key.scope == t[i].scope));
		for (int cut = 0; cut < n - 4 && t[i].port; cut++)
			ck_assert(cut > n - 6 || !reg_port_key_parse(reg, name, (size_t)cut, &key));
	}
	ck_assert(!reg_port_key_parse(reg, "@rds.port.1-2.3." MAPPED "-0-1", 16 + 32 + 4, &key));
	registry_close(reg);
}
END_TEST

static bool is_there(const struct registry_proc *procs, unsigned n, const struct said *s, uid_t user)
{
	unsigned found = 0;

	for (unsigned i = 0; i < n; i++)
		found += !memcmp(&procs[i].id, &s->id, sizeof(s->id)) && procs[i].slot == REGISTRY_OTHERS + user &&
			 procs[i].pid > 0;
	return found == 1;
}

/* Among names that are none, and one of a port that nobody has said to have. */
START_TEST(who_is_there)
{
	struct registry *reg = open_ok();
	struct registry_proc *procs;
	struct child one, two;
	struct said s1, s2;
	char name[100];
	unsigned n;
	int fd[2];

	one = one_with(ONE, PORT, has_a_port, &s1);
	two = one_with(TWO, PORT + 1, has_a_port, &s2);
	fd[0] = name_taken("rds.port.\n @rds.port.", 21);
	fd[1] = name_taken(name,
			   (size_t)snprintf(name, sizeof(name), "rds.port.%s." MAPPED "-0-17", registry_domain(reg)));
	ck_assert_int_eq(registry_procs(reg, &procs, &n), 0);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(registry_add_others(reg, &procs, &n), 0);
	ck_assert_uint_eq(n, 3);
	ck_assert(is_there(procs, n, &s1, ONE) && is_there(procs, n, &s2, TWO));
	free(procs);
	ended(&one);
	ck_assert_int_eq(registry_procs(reg, &procs, &n), 0);
	ck_assert_int_eq(registry_add_others(reg, &procs, &n), 0);
	ck_assert_uint_eq(n, 2);
	ck_assert(is_there(procs, n, &s2, TWO));
	free(procs);
	ended(&two);
	close(fd[0]);
	close(fd[1]);
	registry_close(reg);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("others");
	TCase *t = suite_case(s, "others", setup, registry_teardown);

	if (geteuid()) {
		printf("SKIP: needs root to become others\n");
		return 77;
	}
	tcase_add_test(t, a_port_is_one_users);
	tcase_add_test(t, one_of_us_is_no_other);
	tcase_add_test(t, a_search_passes_them);
	tcase_add_test(t, a_killed_process);
	tcase_add_test(t, nobody_forges);
	tcase_add_test(t, what_is_no_link);
	tcase_add_test(t, whose_directory);
	tcase_add_test(t, a_group);
	tcase_add_test(t, names_of_ports);
	tcase_add_test(t, who_is_there);
	return suite_run(s);
}
