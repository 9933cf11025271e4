/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Atomic operations: what is refused, and what they do.
 *
 * Kernel RDS posts all of them as masked atomics. An RDMA device that has none of these (rxe)
 * refuses them, and the connection is stuck from then on: sendmsg succeeds, nothing arrives,
 * nothing is notified. So the refused ones come first, and each kind that is accepted has a
 * connection of its own.
 */
#include "rdmaconf.h"

static int fd;
static struct name to;
static uint64_t result;
static struct rds_atomic_args args;

static void reset(void)
{
	result = 0x1111;
	args = (struct rds_atomic_args){.cookie = 5, .local_addr = (uintptr_t)&result, .fadd = {1}};
}

static void refused(const char *name, const char *want)
{
	static const struct {
		const char *word;
		int type;
	} kinds[] = {
		{"fadd", RDS_CMSG_ATOMIC_FADD},
		{"cswp", RDS_CMSG_ATOMIC_CSWP},
		{"masked-fadd", RDS_CMSG_MASKED_ATOMIC_FADD},
		{"masked-cswp", RDS_CMSG_MASKED_ATOMIC_CSWP},
	};
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		check(text("%s-%s", kinds[i].word, name), want, "%s",
		      rc(send_control(fd, &to, kinds[i].type, &args, sizeof(args))));
	reset();
}

static void arguments(void)
{
	unsigned i;

	reset();
	for (i = 1; i < 8; i += 2) {
		args.local_addr = (uintptr_t)arena + i;
		refused(text("local-%u", i), "-1 EFAULT");
	}
	args.local_addr = (uintptr_t)arena + 4;
	refused("local-4", "-1 EFAULT");
	args.local_addr = 0;
	refused("local-null", "-1 EFAULT");
	args.local_addr = (uintptr_t)hole;
	refused("local-unmapped", "-1 EFAULT");
	args.local_addr = (uintptr_t)hole + 1;
	refused("local-unmapped-misaligned", "-1 EFAULT");
	args.local_addr = 1UL << 63;
	refused("local-not-an-address", "-1 EFAULT");
	args.local_addr = (uintptr_t)read_only;
	refused("local-read-only", "-1 EFAULT");
}

static void lengths(void)
{
	unsigned len;

	for (len = 0; len < sizeof(args); len += 9)
		check(text("len-%u", len), "-1 EINVAL", "%s",
		      rc(send_control(fd, &to, RDS_CMSG_ATOMIC_FADD, &args, len)));
	check("len-71", "-1 EINVAL", "%s", rc(send_control(fd, &to, RDS_CMSG_MASKED_ATOMIC_CSWP, &args, 71)));
	args.local_addr = (uintptr_t)hole;
	check("len-71-unmapped", "-1 EINVAL", "%s", rc(send_control(fd, &to, RDS_CMSG_ATOMIC_CSWP, &args, 71)));
	reset();
}

static const char *two(int first, const void *a, size_t a_len, int second, const void *b, size_t b_len)
{
	return rc(send_two(fd, &to, first, a, a_len, second, b, b_len));
}

static void mixtures(void)
{
	struct rds_get_mr_args get = {.vec = {(uintptr_t)arena, PAGE}};
	struct rds_iovec vec = {(uintptr_t)arena, 10};
	struct rds_rdma_args rdma_args = {
		.cookie = 5,
		.remote_vec = {0, 9},
		.local_vec_addr = (uintptr_t)&vec,
		.nr_local = 1,
	};
	uint64_t cookie = 5;

	check("fadd-twice", "-1 EINVAL", "%s",
	      two(RDS_CMSG_ATOMIC_FADD, &args, sizeof(args), RDS_CMSG_ATOMIC_FADD, &args, sizeof(args)));
	check("fadd-and-cswp", "-1 EINVAL", "%s",
	      two(RDS_CMSG_ATOMIC_FADD, &args, sizeof(args), RDS_CMSG_ATOMIC_CSWP, &args, sizeof(args)));
	check("cswp-and-masked-cswp", "-1 EINVAL", "%s",
	      two(RDS_CMSG_ATOMIC_CSWP, &args, sizeof(args), RDS_CMSG_MASKED_ATOMIC_CSWP, &args, sizeof(args)));
	check("fadd-and-dest", "-1 EINVAL", "%s",
	      two(RDS_CMSG_ATOMIC_FADD, &args, sizeof(args), RDS_CMSG_RDMA_DEST, &cookie, sizeof(cookie)));
	check("dest-and-fadd", "-1 EINVAL", "%s",
	      two(RDS_CMSG_RDMA_DEST, &cookie, sizeof(cookie), RDS_CMSG_ATOMIC_FADD, &args, sizeof(args)));
	check("fadd-and-map", "-1 EINVAL", "%s",
	      two(RDS_CMSG_ATOMIC_FADD, &args, sizeof(args), RDS_CMSG_RDMA_MAP, &get, sizeof(get)));
	check("map-and-masked-fadd", "-1 EINVAL", "%s",
	      two(RDS_CMSG_RDMA_MAP, &get, sizeof(get), RDS_CMSG_MASKED_ATOMIC_FADD, &args, sizeof(args)));
	/* Allowed together; here one of the two is wrong. */
	check("fadd-and-bad-args", "-1 EINVAL", "%s",
	      two(RDS_CMSG_ATOMIC_FADD, &args, sizeof(args), RDS_CMSG_RDMA_ARGS, &rdma_args, sizeof(rdma_args)));
	rdma_args.remote_vec.bytes = 10;
	args.local_addr++;
	check("args-and-bad-fadd", "-1 EFAULT", "%s",
	      two(RDS_CMSG_RDMA_ARGS, &rdma_args, sizeof(rdma_args), RDS_CMSG_ATOMIC_FADD, &args, sizeof(args)));
	check("bad-fadd-and-args", "-1 EFAULT", "%s",
	      two(RDS_CMSG_ATOMIC_FADD, &args, sizeof(args), RDS_CMSG_RDMA_ARGS, &rdma_args, sizeof(rdma_args)));
	rdma_args.nr_local = 0;
	check("bad-fadd-and-no-vector", "-1 EINVAL", "%s",
	      two(RDS_CMSG_ATOMIC_FADD, &args, sizeof(args), RDS_CMSG_RDMA_ARGS, &rdma_args, sizeof(rdma_args)));
	reset();
}

/*
 * What an operation on this word of the peer leaves there; what was there before it goes to the
 * result.
 */
static uint64_t specified(int type, uint64_t word)
{
	uint64_t carry, bit, sum = 0;
	int i;

	switch (type) {
	case RDS_CMSG_ATOMIC_FADD:
		return word + args.fadd.add;
	case RDS_CMSG_ATOMIC_CSWP:
		return word == args.cswp.compare ? args.cswp.swap : word;
	case RDS_CMSG_MASKED_ATOMIC_CSWP:
		if ((word ^ args.m_cswp.compare) & args.m_cswp.compare_mask)
			return word;
		return (word & ~args.m_cswp.swap_mask) | (args.m_cswp.swap & args.m_cswp.swap_mask);
	default:
		for (carry = 0, i = 0; i < 64; i++) {
			bit = (word >> i & 1) + (args.m_fadd.add >> i & 1) + carry;
			sum |= (bit & 1) << i;
			carry = args.m_fadd.nocarry_mask >> i & 1 ? 0 : bit >> 1;
		}
		return sum;
	}
}

/* One word of the peer, one operation, on a connection of its own. */
static void one(const char *name, int tos, int type, uint64_t word)
{
	uint64_t want = specified(type, word), memory, cookie;
	const char *said;
	bool done;

	close(fd);
	fd = rds_bound_tos(PARENT_PORT, tos);
	peer_reopen(tos);
	peer_blank();
	peer_set_word(4104, word);
	cookie = peer_map(4096, PAGE, 0);
	check(text("%s-key", name), NULL, "%s", take(fd));
	settle(fd);
	args.cookie = cookie;
	args.remote_addr = 8;
	args.flags = NOTIFY_ME;
	args.user_token = 0xabc;
	check(name, "1", "%s", rc(send_control(fd, &to, type, &args, sizeof(args))));
	said = take_with(fd, 100, 100, 0, test_deadline_ms(1500));
	done = strcmp(said, "timeout") != 0;
	memory = peer_word(4104);
	check(text("%s-status", name), NULL, "%s", said);
	check(text("%s-result", name), NULL, "%llx", (unsigned long long)result);
	check(text("%s-memory", name), NULL, "%llx", (unsigned long long)memory);
	check(text("%s-message", name), NULL, "%s", done ? peer_take() : peer_take_now());
	/* This holds for both sides. */
	check(text("%s-all-or-nothing", name), "1", "%d",
	      done ? result == word && memory == want : result == 0x1111 && memory == word);
	check(text("%s-free", name), "0", "%s", peer_free(cookie, 0));
	reset();
}

/* A write and an atomic in one message. */
static void both(int tos)
{
	struct rds_iovec vec = {(uintptr_t)arena, 8};
	struct rds_rdma_args rdma_args = {
		.remote_vec = {16, 8},
		.local_vec_addr = (uintptr_t)&vec,
		.nr_local = 1,
		.flags = READWRITE,
	};
	const char *said;

	close(fd);
	fd = rds_bound_tos(PARENT_PORT, tos);
	peer_reopen(tos);
	peer_blank();
	peer_set_word(8, 100);
	memset(arena, 0x22, 8);
	args.cookie = peer_map(0, PAGE, 0);
	rdma_args.cookie = args.cookie;
	check("args-and-fadd-key", NULL, "%s", take(fd));
	settle(fd);
	args.fadd.add = 9;
	args.remote_addr = 8;
	args.flags = NOTIFY_ME;
	args.user_token = 0xdef;
	check("args-and-fadd", "1", "%s",
	      two(RDS_CMSG_RDMA_ARGS, &rdma_args, sizeof(rdma_args), RDS_CMSG_ATOMIC_FADD, &args, sizeof(args)));
	said = take_with(fd, 100, 100, 0, test_deadline_ms(1500));
	check("args-and-fadd-status", NULL, "%s", said);
	check("args-and-fadd-message", NULL, "%s", strcmp(said, "timeout") ? peer_take() : peer_take_now());
	check("args-and-fadd-word", NULL, "%llu", (unsigned long long)peer_word(8));
	check("args-and-fadd-written", NULL, "%llx", (unsigned long long)peer_word(16));
	check("args-and-fadd-free", "0", "%s", peer_free(rdma_args.cookie, 0));
	reset();
}

static void accepted(void)
{
	args.fadd.add = 5;
	one("fadd", 13, RDS_CMSG_ATOMIC_FADD, 100);
	args.cswp.compare = 100;
	args.cswp.swap = 7;
	one("cswp", 14, RDS_CMSG_ATOMIC_CSWP, 100);
	args.cswp.compare = 101;
	args.cswp.swap = 7;
	one("cswp-other", 15, RDS_CMSG_ATOMIC_CSWP, 100);
	/* Two counters of 32 bits in one word: no carry out of the lower one. */
	args.m_fadd.add = 0x100000001;
	args.m_fadd.nocarry_mask = 0x80000000;
	one("masked-fadd", 16, RDS_CMSG_MASKED_ATOMIC_FADD, 0x5ffffffff);
	args.m_cswp.compare = 0x12;
	args.m_cswp.swap = 0xabcd;
	args.m_cswp.compare_mask = 0xff;
	args.m_cswp.swap_mask = 0xff00;
	one("masked-cswp", 17, RDS_CMSG_MASKED_ATOMIC_CSWP, 0x9912);
	args.m_cswp.compare = 0x13;
	args.m_cswp.swap = 0xabcd;
	args.m_cswp.compare_mask = 0xff;
	args.m_cswp.swap_mask = 0xff00;
	one("masked-cswp-other", 18, RDS_CMSG_MASKED_ATOMIC_CSWP, 0x9912);
}

/* Many plain messages: the connections above do not hold up this one. */
static void others_live(void)
{
	int i, sent = 0;

	close(fd);
	fd = rds_bound_to(PARENT_PORT);
	peer_reopen(0);
	for (i = 0; i < 20; i++)
		sent += sendto(fd, "plain", 5, 0, &to.sa, to.len) == 5;
	check("plain", "20", "%d", sent);
	check("plain-there", "yes", "%s", peer_queued(20));
	check("plain-message", NULL, "%s", peer_take());
}

int main(int argc, char **argv)
{
	fd = rdma_begin_pair(argc, argv, &to);
	arguments();
	lengths();
	mixtures();
	check("nothing-arrived", "-1 EAGAIN", "%s", peer_take_now());
	accepted();
	both(20);
	others_live();
	peer_stop();
	close(fd);
	return conf_end();
}
