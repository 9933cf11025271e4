/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_inherited.c - the registry of a forked child, and of the next program of a process: joined
 * as another user, and only if the descriptor is proved to be that of the registry.  Any other file
 * stays as it is, and open.
 */
#include <sched.h>
#include <sys/un.h>

#include "engine/node/registry_impl.h"
#include "engine/node/socket_name.h"
#include "engine/rds.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

#define PORT 7000
#define OTHER 54321

static struct registry *parents;
static char other_dir[sizeof(test_dir) + 8];

static void open_parents(void)
{
	parents = rds_node_registry = open_ok();
	bind_ok(parents, add_ok(parents), "127.0.0.1", PORT);
}

static void directories(void)
{
	registry_setup();
	/* Where a process that opens the registry by its name finds another one. */
	snprintf(other_dir, sizeof(other_dir), "%s/other", test_dir);
	ck_assert_int_eq(mkdir(other_dir, 0777), 0);
	ck_assert_int_eq(chmod(other_dir, 0777), 0);
	ck_assert_int_eq(chmod(test_dir, 0711), 0);
}

static void setup(void)
{
	directories();
	open_parents();
}

static void teardown(void)
{
	registry_close(parents);
	registry_teardown();
}

static bool finds(struct registry *reg)
{
	struct in6_addr a = v4("127.0.0.1");
	struct registry_owner o;

	return registry_lookup(reg, &a, PORT, 0, &o) == 0;
}

/* In a child that is about to join: it does not find the registry by its name. */
static void forked(void)
{
	rds_node_fork_child();
	setenv("RDS_PRELOAD_REGISTRY_DIR", other_dir, 1);
	rds_options_reset();
}

static bool joins(void)
{
	struct registry *reg;
	bool there;

	child_assert(registry_open(&reg) == 0);
	there = finds(reg);
	registry_close(reg);
	return there;
}

static void (*child_case)(void);

static void child_run(int from, int to)
{
	(void)from, (void)to;
	child_case();
}

/* The status of a child that only ends well or not. */
static int child_status(void (*fn)(void))
{
	struct child c;

	child_case = fn;
	c = child_start(child_run);
	return child_end(&c, 0);
}

static void in_child(void (*fn)(void))
{
	ck_assert_int_eq(child_status(fn), 0);
}

/* ---- a forked child ---- */

static void becomes_another(int from, int to)
{
	struct ucred cred = {.pid = getppid(), .uid = OTHER};
	struct registry *reg;
	struct rds_procid id;

	rds_node_fork_child();
	child_assert(rds_node_inherited_fd() >= 0 && os_fd_is_internal(rds_node_inherited_fd()));
	child_assert(geteuid() || (setgid(OTHER) == 0 && setuid(OTHER) == 0));
	child_assert(registry_open(&reg) == 0 && rds_node_inherited_fd() < 0);
	child_assert(finds(reg) && registry_trusts(reg, &cred));
	id = *registry_self(reg);
	child_say(to, &id, sizeof(id));
	child_wait(from);
	registry_close(reg);
}

START_TEST(joins_as_another_user)
{
	struct child c = child_start(becomes_another);
	struct ucred cred = {.pid = c.pid, .uid = OTHER};
	struct rds_procid id;
	uint32_t slot;

	child_hear(&c, &id, sizeof(id));
	ck_assert(registry_proc_find(parents, &id, &slot) && registry_proc_alive(parents, slot, &id));
	ck_assert(registry_trusts(parents, &cred));
	child_tell(&c);
	ck_assert_int_eq(child_end(&c, 0), 0);
	ck_assert(!registry_proc_find(parents, &id, &slot));
}
END_TEST

static void drops(void)
{
	int fd;

	forked();
	fd = rds_node_inherited_fd();
	rds_node_inherited_drop();
	child_assert(fcntl(fd, F_GETFD) < 0 && rds_node_inherited_fd() < 0);
	child_assert(!joins());
}

START_TEST(dropped)
{
	in_child(drops);
}
END_TEST

static void moves_away(void)
{
	int fd;

	forked();
	fd = rds_node_inherited_fd();
	child_assert(os_fd_move_internal(fd) == 0 && rds_node_inherited_fd() != fd && fcntl(fd, F_GETFD) < 0);
	child_assert(joins());
}

START_TEST(the_program_wants_its_number)
{
	in_child(moves_away);
}
END_TEST

static void leaves_the_network(void)
{
	int fd;

	forked();
	fd = rds_node_inherited_fd();
	if (unshare(CLONE_NEWNET)) {
		printf("another_network: SKIP: no network namespace (%s)\n", strerror(errno));
		return;
	}
	child_assert(!rds_node_is_away());
	child_assert(!joins() && fcntl(fd, F_GETFD) < 0);
}

START_TEST(another_network)
{
	in_child(leaves_the_network);
}
END_TEST

/* As a user namespace shows the file's owner. */
static void owner_looks_different(void)
{
	forked();
	child_assert(geteuid() || chown(test_file, OTHER, OTHER) == 0);
	child_assert(joins());
}

START_TEST(another_number_of_its_owner)
{
	in_child(owner_looks_different);
}
END_TEST

/* ---- several users on the node: the names of ports ---- */

static int name_of_port(struct registry *reg)
{
	struct in6_addr a = v4("127.0.0.1");
	int fd = os_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	child_assert(fd >= 0 && registry_port_hold(reg, &a, PORT + 1, 0, fd) == 0);
	return fd;
}

static char domain[48], directory[48];
static int port_name;

/* It has neither the group nor the directory by which its parent has found the node. */
static void leaves_the_group(void)
{
	struct in6_addr a = v4("127.0.0.1");
	struct registry *reg;
	char path[256];

	forked();
	child_assert(geteuid() || setgid(OTHER) == 0);
	child_assert(registry_open(&reg) == 0);
	child_assert(*domain && strcmp(domain, registry_domain(reg)) == 0);
	child_assert(registry_port_is_held(reg, &a, PORT + 1, 0, port_name));
	child_assert(reg_dir_path(reg, 9, path, sizeof(path)) == 0 && strstr(path, directory));
	registry_close(reg);
}

static void keeps_the_node(void)
{
	child_assert(registry_open(&rds_node_registry) == 0);
	port_name = name_of_port(rds_node_registry);
	snprintf(domain, sizeof(domain), "%s", registry_domain(rds_node_registry));
	snprintf(directory, sizeof(directory), "/rdspreload-g%u-9", (unsigned)getegid());
	child_assert(child_status(leaves_the_group) == 0);
	registry_close(rds_node_registry);
}

START_TEST(a_group)
{
	test_share("group");
	in_child(keeps_the_node);
}
END_TEST

/* ---- no room for the mapping once (--wrap) ---- */

int __real_os_mmap(size_t len, int prot, int flags, int fd, off_t off, void **out);
int __wrap_os_mmap(size_t len, int prot, int flags, int fd, off_t off, void **out);

static int mmaps_fail;

int __wrap_os_mmap(size_t len, int prot, int flags, int fd, off_t off, void **out)
{
	return mmaps_fail && mmaps_fail-- == 1 ? -ENOMEM : __real_os_mmap(len, prot, flags, fd, off, out);
}

static void tries_again(void)
{
	struct registry *reg;
	int when;

	forked();
	for (when = 1; when <= 2; when++) {
		mmaps_fail = when;
		child_assert(registry_open(&reg) == -ENOMEM && !mmaps_fail);
	}
	child_assert(joins());
}

START_TEST(a_second_try)
{
	in_child(tries_again);
}
END_TEST

/* ---- another file in its place ---- */

/* All of a file. */
struct contents {
	struct stat st;
	char *bytes;
};

static struct contents contents_of(int fd)
{
	struct contents c;

	child_assert(fstat(fd, &c.st) == 0);
	c.bytes = malloc((size_t)c.st.st_size + 1);
	child_assert(c.bytes && pread(fd, c.bytes, (size_t)c.st.st_size, 0) == c.st.st_size);
	return c;
}

static bool is_untouched(int fd, const struct contents *was)
{
	struct contents now = contents_of(fd);

	return now.st.st_ino == was->st.st_ino && now.st.st_size == was->st.st_size &&
	       now.st.st_blocks == was->st.st_blocks && memcmp(now.bytes, was->bytes, (size_t)now.st.st_size) == 0;
}

/* A file of the test's own; with so many bytes of the registry in it. */
static int file_with(off_t bytes)
{
	int fd = open(other_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), from = open(test_file, O_RDONLY | O_CLOEXEC);
	char buf[4096];
	ssize_t n;

	child_assert(fd >= 0 && from >= 0);
	for (; bytes > 0; bytes -= n) {
		n = read(from, buf, bytes < (off_t)sizeof(buf) ? (size_t)bytes : sizeof(buf));
		child_assert(n > 0 && write(fd, buf, (size_t)n) == n);
	}
	close(from);
	return fd;
}

static off_t size_of_registry(void)
{
	struct stat st;

	child_assert(stat(test_file, &st) == 0);
	return st.st_size;
}

static int empty_file(void)
{
	return file_with(0);
}

static int some_text(void)
{
	int fd = file_with(0);

	child_assert(write(fd, "the program's", 13) == 13);
	return fd;
}

static int copy_of_it(void)
{
	return file_with(size_of_registry());
}

static int beginning_of_it(void)
{
	return file_with(REG_HEAD_SIZE);
}

/* The parent does not use its file any more. */
static int shorter(off_t bytes)
{
	child_assert(truncate(test_file, bytes) == 0);
	return open(test_file, O_RDWR | O_CLOEXEC);
}

static int without_entries(void)
{
	return shorter(REG_HEAD_SIZE);
}

static int without_anything(void)
{
	return shorter(0);
}

static int not_writable(void)
{
	return open(test_file, O_RDONLY | O_CLOEXEC);
}

static int of_another_version(void)
{
	int fd = open(test_file, O_RDWR | O_CLOEXEC);
	uint32_t version = REG_VERSION + 1;

	child_assert(pwrite(fd, &version, sizeof(version), offsetof(struct reg_header, version)) == sizeof(version));
	return fd;
}

static int (*const files[])(void) = {empty_file,      some_text,	copy_of_it,   beginning_of_it,
				     without_entries, without_anything, not_writable, of_another_version};
static int (*file_makes)(void);

/* Its number is given to another file by a system call that the library does not see. */
static int number_for(int fd)
{
	int n = rds_node_inherited_fd();

	child_assert(fd >= 0 && os_syscall(SYS_dup3, fd, n, O_CLOEXEC, 0, 0, 0) == n);
	return n;
}

static void number_is_reused(void)
{
	struct contents was;
	int fd, n;

	forked();
	fd = file_makes();
	n = number_for(fd);
	was = contents_of(fd);
	child_assert(!joins());
	child_assert(rds_node_inherited_fd() < 0 && !os_fd_is_internal(n));
	child_assert(is_untouched(n, &was) && is_untouched(fd, &was));
}

static void number_is_dropped(void)
{
	int n;

	forked();
	n = number_for(file_makes());
	rds_node_inherited_drop();
	child_assert(rds_node_inherited_fd() < 0 && fcntl(n, F_GETFD) >= 0);
}

/* Nobody but this process and its child uses the registry, which may be spoilt. */
static void in_its_child(void (*fn)(void))
{
	open_parents();
	child_assert(child_status(fn) == 0);
	_exit(0);
}

static void reuses(void)
{
	in_its_child(number_is_reused);
}

static void reuses_and_drops(void)
{
	in_its_child(number_is_dropped);
}

START_TEST(another_file)
{
	file_makes = files[_i];
	in_child(reuses);
}
END_TEST

START_TEST(another_file_is_dropped)
{
	file_makes = files[_i];
	in_child(reuses_and_drops);
}
END_TEST

/* ---- the next program ---- */

/* As if it were another program: nothing of the one before is known. */
static int passes(void)
{
	int carrier = rds_node_pass_on();

	child_assert(carrier >= 64 && fcntl(carrier, F_GETFD) == 0);
	rds_node_inherited_drop();
	return carrier;
}

static void executes(void)
{
	int carrier;

	forked();
	child_assert(!rds_node_is_away());
	child_assert(geteuid() || (setgid(OTHER) == 0 && setuid(OTHER) == 0));
	child_assert(rds_node_is_away() == (geteuid() == OTHER));
	carrier = passes();
	child_assert(rds_node_pass_on() < 0 && !rds_node_is_away());
	child_assert(rds_node_take_passed(carrier) && fcntl(carrier, F_GETFD) < 0);
	child_assert(rds_node_inherited_fd() >= 0 && os_fd_is_internal(rds_node_inherited_fd()));
	child_assert(joins());
}

START_TEST(the_next_program_joins)
{
	in_child(executes);
}
END_TEST

/* Closing another descriptor of the same file would drop the locks of this process. */
static void has_joined_already(int from, int to)
{
	int carrier;

	rds_node_fork_child();
	carrier = passes();
	child_assert(registry_open(&rds_node_registry) == 0);
	child_assert(rds_node_take_passed(carrier) && fcntl(carrier, F_GETFD) < 0 && rds_node_inherited_fd() < 0);
	child_say(to, registry_self(rds_node_registry), sizeof(struct rds_procid));
	child_wait(from);
}

START_TEST(the_next_program_has_joined)
{
	struct child c = child_start(has_joined_already);
	struct rds_procid id;
	uint32_t slot;

	child_hear(&c, &id, sizeof(id));
	ck_assert(registry_proc_find(parents, &id, &slot) && registry_proc_alive(parents, slot, &id));
	child_tell(&c);
	ck_assert_int_eq(child_end(&c, 0), 0);
}
END_TEST

static void has_lost_the_name(void)
{
	child_assert(!rds_node_is_away());
	child_assert(unlink(test_file) == 0 && rds_node_is_away());
}

START_TEST(not_found_by_its_name)
{
	in_child(has_lost_the_name);
}
END_TEST

/* It is neither taken nor closed, and a packet in it stays. */
static void refuses(int fd)
{
	char c;

	child_assert(!rds_node_take_passed(fd) && fcntl(fd, F_GETFD) >= 0 && rds_node_inherited_fd() < 0);
	child_assert(recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 1);
	close(fd);
}

static int parents_carrier;

static void takes_its_parents(void)
{
	forked();
	rds_node_inherited_drop();
	refuses(parents_carrier);
}

START_TEST(a_carrier_of_another_process)
{
	parents_carrier = rds_node_pass_on();
	ck_assert_int_ge(parents_carrier, 0);
	in_child(takes_its_parents);
	close(parents_carrier);
}
END_TEST

static bool changes_user;

static void gives_up_root_after_it(void)
{
	int carrier;

	if (geteuid()) {
		printf("a_carrier_with_other_rights: SKIP: not root\n");
		return;
	}
	forked();
	carrier = passes();
	child_assert((changes_user ? setuid(OTHER) : setgid(OTHER)) == 0);
	refuses(carrier);
}

START_TEST(a_carrier_with_other_rights)
{
	in_child(gives_up_root_after_it);
	changes_user = true;
	in_child(gives_up_root_after_it);
}
END_TEST

/* What is in it, for a forgery. */
struct packet {
	char bytes[1024];
	ssize_t len;
};

static struct packet packet_of(int carrier)
{
	int fds[OS_PASS_MAX];
	struct packet p;
	unsigned n;
	bool lost;

	p.len = os_pass_recv_few(carrier, p.bytes, sizeof(p.bytes), fds, 0, &n, &lost, 0);
	child_assert(p.len > 0 && p.len < (ssize_t)sizeof(p.bytes));
	close(carrier);
	return p;
}

/* A carrier of this process with that packet, and with that descriptor unless it is negative. */
static int forged(const char *prefix, const struct packet *p, int fd)
{
	struct rds_procid name;
	struct sockaddr_un sun;
	socklen_t len;
	int ends[2];

	os_random(&name, sizeof(name));
	len = rds_node_name_address(prefix, &name, &sun);
	child_assert(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
	child_assert(bind(ends[0], (struct sockaddr *)&sun, len) == 0);
	child_assert(os_pass_send(ends[1], p->bytes, (size_t)p->len, &fd, fd >= 0, 0) == 0);
	close(ends[1]);
	return ends[0];
}

/* It is a carrier, and is closed; but nothing is inherited. */
static void finds_nothing(int carrier)
{
	child_assert(rds_node_take_passed(carrier) && fcntl(carrier, F_GETFD) < 0 && rds_node_inherited_fd() < 0);
}

static void forges(void)
{
	int real = open(test_file, O_RDWR | O_CLOEXEC), readable = not_writable(), copy = copy_of_it(), next;
	struct contents was = contents_of(copy);
	struct packet good, bad;

	forked();
	good = packet_of(passes());
	next = dup(0);
	close(next);
	refuses(forged("rds.other.", &good, real));
	finds_nothing(forged(RDS_NODE_NAME_REGISTRY, &good, -1));
	finds_nothing(forged(RDS_NODE_NAME_REGISTRY, &good, copy));
	finds_nothing(forged(RDS_NODE_NAME_REGISTRY, &good, readable));
	bad = good;
	bad.len--;
	finds_nothing(forged(RDS_NODE_NAME_REGISTRY, &bad, real));
	bad = good;
	bad.bytes[0] ^= 1;
	finds_nothing(forged(RDS_NODE_NAME_REGISTRY, &bad, real));
	bad = good;
	memset(bad.bytes + bad.len - sizeof(((struct registry *)0)->path), 'x', sizeof(((struct registry *)0)->path));
	finds_nothing(forged(RDS_NODE_NAME_REGISTRY, &bad, real));
	child_assert(dup(0) == next); /* nothing stays open */
	child_assert(is_untouched(copy, &was));
	child_assert(rds_node_take_passed(forged(RDS_NODE_NAME_REGISTRY, &good, real)) && joins());
}

START_TEST(a_forged_carrier)
{
	in_child(forges);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("inherited");
	TCase *tc = suite_case(s, "inherited", setup, teardown);

	tcase_add_test(tc, joins_as_another_user);
	tcase_add_test(tc, dropped);
	tcase_add_test(tc, the_program_wants_its_number);
	tcase_add_test(tc, another_network);
	tcase_add_test(tc, a_second_try);
	tcase_add_test(tc, another_number_of_its_owner);
	tcase_add_test(tc, the_next_program_joins);
	tcase_add_test(tc, the_next_program_has_joined);
	tcase_add_test(tc, not_found_by_its_name);
	tcase_add_test(tc, a_carrier_of_another_process);
	tcase_add_test(tc, a_carrier_with_other_rights);
	tcase_add_test(tc, a_forged_carrier);
	tc = suite_case(s, "another file", directories, registry_teardown);
	tcase_add_test(tc, a_group);
	tcase_add_loop_test(tc, another_file, 0, (int)(sizeof(files) / sizeof(files[0])));
	tcase_add_loop_test(tc, another_file_is_dropped, 0, (int)(sizeof(files) / sizeof(files[0])));
	return suite_run(s);
}
