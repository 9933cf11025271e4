/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_requests.c - requests over a channel that do not come from this library
 * (share/owner_request.c): calls of all kinds, each well formed, with lengths, flags and options at
 * random or at their bounds.  The owner answers or closes the channel, reads nothing beyond the
 * request, and goes on.
 */
#include <fcntl.h>
#include <linux/filter.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "engine/share/memory_grant.h"
#include "rds_abi.h"
#include "tests/unit/requests_helper.h"

#define ROUNDS 10000

/* Often where something begins or ends. */
static uint32_t number(void)
{
	static const uint32_t likely[] = {
		0,     1,     2,     3,	       4,	 8,	     12,	 16,	     24,	32,   36,
		48,    64,    100,   128,      256,	 276,	     1024,	 4096,	     4097,	8192, 20480,
		65535, 65536, 65537, 1u << 20, 1u << 24, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};

	return below(8) ? likely[below(sizeof(likely) / sizeof(*likely))] : any();
}

static uint32_t at_most(uint32_t n)
{
	uint32_t v = number();

	return v <= n ? v : below(n + 1);
}

/* ---- what is asked ---- */

static char bytes[RDS_SHARE_NAME + RDS_SHARE_CONTROL + RDS_SHARE_INLINE];

static void a_name(struct sockaddr_in *sin)
{
	sin->sin_family = below(8) ? AF_INET : (sa_family_t)any();
	sin->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sin->sin_port = below(4) ? htons(sock->laddr.port) : (in_port_t)any();
}

/*
 * What regions may be of, the key of each that was made last, and whether there is a process whose
 * memory that is.
 */
static char arena[1 << 16];
static uint32_t keys[8];
static bool has_memory;

/* As it stands in what names memory. */
static uint64_t word(void)
{
	switch (below(8)) {
	case 0:
	case 1:
		return (uint64_t)(uintptr_t)(arena + below(sizeof(arena)));
	case 2:
		return (uint64_t)keys[below(8)] | (uint64_t)below(2) * below(70000) << 32;
	case 3:
		return (uint64_t)any() << 32 | any();
	case 4:
		return number();
	default:
		return below(100);
	}
}

static void words(char *at, uint32_t len)
{
	uint64_t w;
	uint32_t i;

	for (i = 0; has_memory && i + sizeof(w) <= len && i < 400; i += sizeof(w)) {
		w = word();
		memcpy(at + i, &w, sizeof(w));
	}
}

static uint64_t in_arena(void)
{
	return (uint64_t)(uintptr_t)(arena + below(sizeof(arena) - 4096) / 8 * 8);
}

/* One that could be right, and so that there is some region. */
static void a_region(char *at)
{
	struct rds_get_mr_args args = {
		.vec = {in_arena(), 1 + below(4000)}, .cookie_addr = in_arena(), .flags = below(16)};

	memcpy(at, &args, sizeof(args));
}

static void an_operation(char *at)
{
	struct rds_iovec vec[3];
	struct rds_rdma_args args = {.cookie = keys[below(8)],
				     .remote_vec = {below(100), 1 + below(3000)},
				     .local_vec_addr = in_arena(),
				     .nr_local = 1 + below(3),
				     .flags = below(64)};
	unsigned i;

	for (i = 0; i < 3; i++)
		vec[i] = (struct rds_iovec){in_arena(), below(2000)};
	memcpy((void *)(uintptr_t)args.local_vec_addr, vec, sizeof(vec));
	memcpy(at, &args, sizeof(args));
}

static void some_control(char *at, uint32_t len)
{
	struct cmsghdr cm = {.cmsg_len = below(2) ? len : number(),
			     .cmsg_level = below(8) ? 276 : (int)number(),
			     .cmsg_type = (int)below(14)};

	words(at, len);
	if (has_memory && len == sizeof(cm) + sizeof(struct rds_rdma_args) && below(4)) {
		cm = (struct cmsghdr){.cmsg_len = len, .cmsg_level = 276, .cmsg_type = RDS_CMSG_RDMA_ARGS};
		an_operation(at + sizeof(cm));
	}
	if (len >= sizeof(cm))
		memcpy(at, &cm, sizeof(cm));
}

/* So much of these kinds that it could be right. */
static uint32_t control_len(void)
{
	static const uint32_t right[] = {16 + 8, 16 + 32, 16 + 56, 16 + 72, 16 + 160};

	return has_memory && below(4) ? right[below(5)] : at_most(RDS_SHARE_CONTROL);
}

static int some_file(uint32_t big)
{
	int fd = memfd_create("message", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, big), 0);
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	return fd;
}

/* Of this process, which must not be the owner's: what it asks for is done to that. */
static void give_memory(void)
{
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_MEMORY};
	struct rds_share_reply a;
	struct rds_grant_address door;

	if (!ask(&q, "", 0, -1, &a) || a.data_len != sizeof(door)) {
		attach();
		return;
	}
	memcpy(&door, packet + sizeof(a), sizeof(door));
	ck_assert_int_eq(rds_borrower_grant_send(&door), 0);
}

/* There is room for that of a region. */
static void some_option(struct rds_share_request *q, char *val)
{
	q->level = 276;
	q->has_name = true;
	q->opt = below(2) ? RDS_GET_MR : (int)below(16);
	q->arg = q->opt == RDS_FREE_MR ? sizeof(struct rds_free_mr_args) : sizeof(struct rds_get_mr_args);
	words(val, q->data_len);
	if (q->opt == RDS_GET_MR && below(4))
		a_region(val);
}

static void ask_anything(void)
{
	static const int levels[] = {276, 276, 276, SOL_SOCKET, 0, -1};
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC,
				      .op = (uint16_t)(1 + below(RDS_SHARE_OPS - 1)),
				      .may_wait = (uint8_t)!below(4),
				      .has_name = (uint8_t)below(2),
				      .seq = any(),
				      .flags = below(2) ? 0 : (int)number(),
				      .level = levels[below(6)],
				      .opt = below(8) ? (int)below(80) : (int)number(),
				      .arg = below(8) ? number() : (uint64_t)any() << 32 | any(),
				      .name_len = at_most(RDS_SHARE_NAME),
				      .control_len = below(2) ? 0 : control_len(),
				      .data_len = at_most(RDS_SHARE_INLINE),
				      .room = number(),
				      .control_room = number(),
				      .total = below(2) ? 0 : number(),
				      .names_memory = (uint8_t)below(2),
				      .fault = (uint8_t)!below(8),
				      .word = (uint8_t)any(),
				      .about = (uint8_t)any(),
				      .abi = (int)number(),
				      .epoch = (int)number()};
	struct rds_share_reply a;
	uint32_t i, len;
	int memfd = -1;

	if (!below(8)) {
		q.data_len = 0;
		q.big = 1 + at_most(2 << 20);
		memfd = some_file(q.big);
	}
	len = q.name_len + q.control_len + q.data_len;
	for (i = 0; i < len && i < 400; i++)
		bytes[i] = below(2) ? 0 : (char)any();
	if (q.name_len >= sizeof(struct sockaddr_in))
		a_name((struct sockaddr_in *)(void *)bytes);
	some_control(bytes + q.name_len, q.control_len);
	if (q.op == RDS_SHARE_SETOPT && has_memory && q.data_len >= sizeof(struct rds_get_mr_args))
		some_option(&q, bytes + q.name_len + q.control_len);
	if (!ask(&q, bytes, len, memfd, &a))
		attach(); /* asleep, or hung up */
	else if (q.op != RDS_SHARE_CANCEL && q.op != RDS_SHARE_PUT_BACK && a.made)
		keys[below(8)] = a.made;
	if (has_memory && !below(8))
		give_memory();
	if (memfd >= 0)
		close(memfd);
}

/* At once: the process may not come to its end. */
static void seeded(const char *test, int i)
{
	const char *want = getenv("REQUESTS_SEED");

	seed = want ? strtoull(want, NULL, 0) : (uint64_t)i + 1;
	dprintf(1, "%s: REQUESTS_SEED=%llu\n", test, (unsigned long long)seed);
}

START_TEST(at_random)
{
	unsigned i;

	seeded("at_random", _i);
	for (i = 0; i < ROUNDS; i++)
		ask_anything();
	ck_lives();
}
END_TEST

/* By another process, which lets the owner have its memory. */
START_TEST(with_memory)
{
	unsigned i, given = 0;
	int status;
	pid_t pid;

	seeded("with_memory", _i);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		attach();
		has_memory = true;
		for (i = 0; i < ROUNDS; i++) {
			ask_anything();
			given += keys[0] != 0;
		}
		_exit(!given);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	/* what it has asked for may be its own end */
	ck_assert(WIFEXITED(status) || WTERMSIG(status) == SIGSEGV);
	ck_assert_int_eq(WIFEXITED(status) ? WEXITSTATUS(status) : 0, 0);
	ck_assert(atomic_load(&sock->had_ops));
	ck_lives();
}
END_TEST

/* A state with an error that is none could not be handed over to anybody. */
START_TEST(no_error)
{
	static const int none[] = {0, -1, INT32_MIN, RDS_SHARE_ERRNO + 1, INT32_MAX};
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_SET_ERROR, .opt = EIO};
	struct rds_share_reply a;
	unsigned i;

	ck_assert(ask(&q, "", 0, -1, &a));
	ck_assert_int_eq(a.result, 0);
	ck_assert_int_eq(rds_sock_take_error(sock), EIO);
	for (i = 0; i < sizeof(none) / sizeof(*none); i++) {
		q.opt = none[i];
		ck_assert(ask(&q, "", 0, -1, &a));
		ck_assert_int_eq(a.result, -EPROTO);
		ck_assert_int_eq(rds_sock_take_error(sock), 0);
	}
}
END_TEST

/*
 * Where addresses are in an option, it is not asked for in this way: they would be taken for the
 * owner's.
 */
START_TEST(others_addresses)
{
	static uint64_t mark = 77; /* the owner's */
	const struct {
		uint32_t daddr, hole;
		uint64_t flags, mark_addr, wait_id;
	} args = {.daddr = htonl(INADDR_LOOPBACK), .mark_addr = (uint64_t)(uintptr_t)&mark};
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC,
				      .op = RDS_SHARE_SETOPT,
				      .has_name = true,
				      .level = 276,
				      .opt = RDS_BARRIER,
				      .arg = sizeof(args),
				      .data_len = sizeof(args)};
	struct rds_share_reply a;

	ck_assert(ask(&q, &args, sizeof(args), -1, &a));
	ck_assert_int_eq(a.result, -EPROTO);
	ck_assert_uint_eq(mark, 77);
}
END_TEST

/*
 * The kernel counts the room for a filter in instructions.  Who has the stand-in can give it one.
 */
START_TEST(a_filter)
{
	struct sock_filter code[200];
	struct sock_fprog prog = {.len = 200, .filter = code};
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC,
				      .op = RDS_SHARE_GETOPT,
				      .has_name = true,
				      .level = SOL_SOCKET,
				      .opt = SO_GET_FILTER,
				      .arg = 200};
	struct rds_share_reply a;
	unsigned i;

	for (i = 0; i < 200; i++)
		code[i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0xffff);
	ck_assert_int_eq(setsockopt(standin, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)), 0);
	ck_assert(ask(&q, "", 0, -1, &a));
	ck_assert_int_eq(a.result, -EPROTO);
	q.op = RDS_SHARE_SETOPT;
	q.opt = SO_ATTACH_FILTER;
	q.arg = q.data_len = sizeof(prog);
	ck_assert(ask(&q, &prog, sizeof(prog), -1, &a));
	ck_assert_int_eq(a.result, -EPROTO);
}
END_TEST

/* More or less than there is: it is refused as a whole. */
START_TEST(lengths_that_lie)
{
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_SOCKNAME, .seq = 7};
	uint32_t *const len[] = {&q.name_len, &q.control_len, &q.data_len};
	struct rds_share_reply a;

	*len[_i / 2] = 10;
	ck_assert(!ask(&q, bytes, _i % 2 ? 9 : 11, -1, &a));
	ck_lives();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("requests");
	TCase *t = suite_case(s, "requests", setup, NULL);

	tcase_add_loop_test(t, at_random, 0, 2);
	tcase_add_loop_test(t, with_memory, 0, 2);
	tcase_add_loop_test(t, lengths_that_lie, 0, 6);
	tcase_add_test(t, no_error);
	tcase_add_test(t, others_addresses);
	tcase_add_test(t, a_filter);
	return suite_run(s);
}
