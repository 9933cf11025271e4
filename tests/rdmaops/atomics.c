/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * atomics.c [-l] [CASE...] - fetch-and-add and compare-and-swap, plain and masked, in both sizes of
 * the structure.
 */
#include <errno.h>
#include <stdlib.h>

#include "pair.h"

static uint64_t *words; /* those of p */
static uint64_t cookie;

static void start(void)
{
	cookie = begin_page();
	words = (uint64_t *)(void *)p;
}

static int send_atomic(int type, const void *args, size_t len, const void *payload, size_t n)
{
	struct out o;

	out_begin(&o, &a->name[0], payload, n);
	out_cmsg(&o, type, args, len);
	return out_send(&o, b->fd, 0);
}

/* Writes a word of the owner's memory; sent, not over. */
static uint64_t send_put(uint64_t remote, uint64_t value)
{
	struct vec v = {(uintptr_t)&words[8], 8};
	struct op op = {.cookie = cookie,
			.remote_addr = remote,
			.flags = F_WRITE | F_NOTIFY | F_SILENT,
			.token = ++token,
			.local = &v,
			.nr_local = 1};

	words[8] = value;
	expect(op_send(b->fd, &a->name[0], &op), 0, "a write of 8 bytes");
	return token;
}

static void put(uint64_t remote, uint64_t value)
{
	expect_status(b, send_put(remote, value), ST_SUCCESS, "a write of 8 bytes");
}

static uint64_t word(uint64_t remote)
{
	uint64_t v;

	memcpy(&v, agent_memory(a, remote, 8), 8);
	return v;
}

/*
 * One operation in today's or the vendor's structure: what was there, what is there afterwards,
 * what it returned.
 */
static void one(int type, bool vendor, uint64_t remote, uint64_t was, const uint64_t u[4], uint64_t becomes)
{
	struct atomic72 n = {.cookie = cookie,
			     .local_addr = (uintptr_t)&words[1],
			     .remote_addr = remote,
			     .u = {u[0], u[1], u[2], u[3]},
			     .flags = F_NOTIFY,
			     .token = ++token};
	struct atomic56 o = {.cookie = cookie,
			     .local_addr = (uintptr_t)&words[1],
			     .remote_addr = remote,
			     .swap_add = type == CMSG_FADD ? u[0] : u[1],
			     .compare = type == CMSG_FADD ? 0 : u[0],
			     .flags = F_NOTIFY,
			     .token = token};
	unsigned i;

	put(remote, was);
	n.token = o.token = ++token;
	for (i = 0; i < 3; i++)
		words[i] = 0x1111111111111111 * (i + 1);
	if (vendor)
		expect(send_atomic(type, &o, sizeof(o), "at", 2), 2, "cmsg %d of 56 bytes", type);
	else
		expect(send_atomic(type, &n, sizeof(n), "at", 2), 2, "cmsg %d of 72 bytes", type);
	expect_status(b, token, ST_SUCCESS, "cmsg %d", type);
	check(words[1] == was, "cmsg %d, %u bytes: expected the old value %llx at local_addr, came %llx", type,
	      vendor ? 56 : 72, (unsigned long long)was, (unsigned long long)words[1]);
	check(words[0] == 0x1111111111111111 && words[2] == 0x3333333333333333,
	      "cmsg %d changed the words next to local_addr", type);
	expect(agent_recv(a), 2, "the message of an atomic");
	check(word(remote) == becomes, "cmsg %d, %u bytes, on %llx with %llx %llx %llx %llx: expected %llx, came %llx",
	      type, vendor ? 56 : 72, (unsigned long long)was, (unsigned long long)u[0], (unsigned long long)u[1],
	      (unsigned long long)u[2], (unsigned long long)u[3], (unsigned long long)becomes,
	      (unsigned long long)word(remote));
}

static const uint64_t samples[] = {0, 1, ~0ull, 0xffffffff, 0x100000000, 0x8000000000000000, 0x0123456789abcdef};
#define SAMPLES (sizeof(samples) / sizeof(samples[0]))

static void fadd(void)
{
	unsigned i, j, vendor;

	start();
	for (vendor = 0; vendor < 2; vendor++)
		for (i = 0; i < SAMPLES; i++)
			for (j = 0; j < SAMPLES; j++)
				one(CMSG_FADD, vendor, 8 * (i + 1), samples[i], (uint64_t[4]){samples[j]},
				    samples[i] + samples[j]);
	end();
}

static void cswp(void)
{
	unsigned i, j, vendor;

	start();
	for (vendor = 0; vendor < 2; vendor++)
		for (i = 0; i < SAMPLES; i++)
			for (j = 0; j < SAMPLES; j++) /* compare, swap */
				one(CMSG_CSWP, vendor, 8 * (i + 1), samples[i],
				    (uint64_t[4]){samples[j], 0x55aa ^ samples[i]},
				    i == j ? 0x55aa ^ samples[i] : samples[i]);
	end();
}

static uint64_t add_without(uint64_t x, uint64_t y, uint64_t nocarry)
{
	uint64_t sum = 0, carry = 0, bit, s;

	for (bit = 0; bit < 64; bit++) { /* a bit of the mask: no carry goes out of that place */
		s = (x >> bit & 1) + (y >> bit & 1) + carry;
		sum |= (s & 1) << bit;
		carry = nocarry >> bit & 1 ? 0 : s >> 1;
	}
	return sum;
}

static void masked_fadd(void)
{
	static const uint64_t masks[] = {0, ~0ull, 0x8000000080000000, 0x80, 0x8080808080808080};
	unsigned i, j, k;

	start();
	for (i = 0; i < SAMPLES; i++)
		for (j = 0; j < SAMPLES; j++)
			for (k = 0; k < 5; k++)
				one(CMSG_MASKED_FADD, false, 64, samples[i], (uint64_t[4]){samples[j], masks[k]},
				    add_without(samples[i], samples[j], masks[k]));
	end();
}

static void masked_cswp(void)
{
	unsigned i;

	start();
	for (i = 0; i < 200; i++) {
		uint64_t was = mix(i * 5), cmask = i % 4 ? mix(i * 5 + 1) : 0, smask = i % 5 ? mix(i * 5 + 2) : ~0ull;
		uint64_t swap = mix(i * 5 + 3), compare = (was & cmask) | (mix(i * 5 + 4) & ~cmask);
		bool hit = i % 3 || !cmask;

		if (!hit)
			compare ^= cmask & -cmask; /* one bit that counts */
		one(CMSG_MASKED_CSWP, false, 8 * (i % 100), was, (uint64_t[4]){compare, swap, cmask, smask},
		    hit ? (was & ~smask) | (swap & smask) : was);
	}
	end();
}

/* ---- what is refused, what fails ---- */

static void errors(void)
{
	struct atomic72 n, good;
	struct out o;

	start();
	good = (struct atomic72){.cookie = cookie, .local_addr = (uintptr_t)&words[1], .flags = F_NOTIFY, .token = 7};
	n = good;
	n.local_addr += 4;
	expect(send_atomic(CMSG_FADD, &n, sizeof(n), NULL, 0), -EFAULT, "local_addr that is not a multiple of 8");
	n.local_addr = (uintptr_t)p + PAGE;
	expect(send_atomic(CMSG_FADD, &n, sizeof(n), NULL, 0), -EFAULT, "local_addr without memory");
	expect(send_atomic(CMSG_FADD, &good, 48, NULL, 0), -EINVAL, "an atomic of 48 bytes");
	out_begin(&o, &a->name[0], NULL, 0);
	out_cmsg(&o, CMSG_FADD, &good, sizeof(good));
	out_cmsg(&o, CMSG_CSWP, &good, sizeof(good));
	expect(out_send(&o, b->fd, 0), -EINVAL, "two atomics");
	out_begin(&o, &a->name[0], NULL, 0);
	out_cmsg(&o, CMSG_FADD, &good, sizeof(good));
	out_cmsg(&o, CMSG_DEST, &cookie, sizeof(cookie));
	expect(out_send(&o, b->fd, 0), -EINVAL, "an atomic with RDMA_DEST");
	box_empty(b, "refused atomics");
	n = good;
	n.cookie = 0xbad;
	words[1] = 3;
	expect(send_atomic(CMSG_FADD, &n, sizeof(n), "no", 2), 2, "sendmsg");
	expect_status(b, 7, ST_REMOTE_ERROR, "an atomic with a bogus key");
	n = good;
	n.remote_addr = PAGE;
	expect(send_atomic(CMSG_FADD, &n, sizeof(n), "no", 2), 2, "sendmsg");
	expect_status(b, 7, ST_REMOTE_ERROR, "an atomic out of range");
	one(CMSG_FADD, false, 0, 1, (uint64_t[4]){1}, 2);
	expect(AGENT(a, AGENT_FREE, .cookie = cookie, .flags = F_INVALIDATE), 0, "FREE_MR");
	expect(send_atomic(CMSG_FADD, &good, sizeof(good), "no", 2), 2, "sendmsg");
	expect_status(b, 7, ST_REMOTE_ERROR, "an atomic with a freed key");
	check(word(0) == 2, "expected 2 after failed atomics, came %llx", (unsigned long long)word(0));
	end();
}

/*
 * Eight bytes at an address that is not a multiple of eight are no word: refused by the target, as
 * by a device, and only that.  What counts is the address, wherever the region begins.
 */
static void misaligned(void)
{
	static const int types[] = {CMSG_FADD, CMSG_CSWP, CMSG_MASKED_FADD, CMSG_MASKED_CSWP};
	struct atomic72 n;
	uint64_t at, odd, behind;
	unsigned i;

	start();
	odd = agent_region(a, 3, 1000, F_WRITE);
	for (at = 1; at < 16; at++)
		for (i = 0; i < 4; i++) {
			/*
			 * The second one may be below the region's beginning, but within its page.
			 */
			n = (struct atomic72){.cookie = at & 1 ? cookie : odd,
					      .local_addr = (uintptr_t)&words[1],
					      .remote_addr = at & 1 ? at : at - 3,
					      .u = {0, 5, ~0ull, ~0ull},
					      .flags = F_NOTIFY};
			if (types[i] == CMSG_FADD || types[i] == CMSG_MASKED_FADD)
				n.u[0] = 5;
			if (!(at & 7))
				continue;
			put(0, 0);
			put(8, 0);
			put(16, 0);
			words[1] = 3;
			n.token = ++token;
			expect(send_atomic(types[i], &n, sizeof(n), "no", 2), 2, "sendmsg");
			behind = send_put(24, at);
			expect_status(b, n.token, ST_REMOTE_ERROR, "cmsg %d at %llu", types[i], (unsigned long long)at);
			expect_status(b, behind, ST_SUCCESS, "the write behind it");
			check(words[1] == 3, "cmsg %d at %llu stored %llx", types[i], (unsigned long long)at,
			      (unsigned long long)words[1]);
			check(!word(0) && !word(8) && !word(16) && word(24) == at, "cmsg %d at %llu did something",
			      types[i], (unsigned long long)at);
		}
	one(CMSG_FADD, false, 8, 1, (uint64_t[4]){1}, 2);
	n = (struct atomic72){
		.cookie = odd, .local_addr = (uintptr_t)&words[1], .remote_addr = 5, .u = {7}, .flags = F_NOTIFY};
	n.token = ++token;
	expect(send_atomic(CMSG_FADD, &n, sizeof(n), NULL, 0), 0, "sendmsg");
	expect_status(b, token, ST_SUCCESS, "a word of a region that begins at an odd address");
	expect(agent_recv(a), 0, "its message");
	check(word(8) == 9, "%llu", (unsigned long long)word(8));
	end();
}

static void notices(void)
{
	struct atomic72 n;

	start();
	n = (struct atomic72){.cookie = cookie, .local_addr = (uintptr_t)&words[1], .u = {1}};
	expect(set_int(b->fd, OPT_RECVERR, 1), 0, "RDS_RECVERR");
	put(0, 0);
	expect(send_atomic(CMSG_FADD, &n, sizeof(n), NULL, 0), 0, "sendmsg");
	expect(agent_recv(a), 0, "without payload comes an empty message");
	n.cookie = 0xbad;
	expect(send_atomic(CMSG_FADD, &n, sizeof(n), NULL, 0), 0, "sendmsg");
	n.cookie = cookie;
	n.flags = F_SILENT | F_NOTIFY;
	n.token = ++token;
	expect(send_atomic(CMSG_FADD, &n, sizeof(n), NULL, 0), 0, "sendmsg");
	expect_status(b, token, ST_SUCCESS, "a silent atomic");
	check(words[1] == 1 && word(0) == 2, "expected the old value 1 and then 2, came %llx and %llx",
	      (unsigned long long)words[1], (unsigned long long)word(0));
	box_empty(b, "atomics without NOTIFY_ME: RECVERR says nothing of them");
	end();
}

/* One RDMA and one atomic in a message: both, and the message behind them. */
static void with_rdma(void)
{
	struct vec v;
	struct rdma_args g;
	struct atomic72 n;
	struct out o;
	unsigned i;

	start();
	put(0, 50);
	for (i = 0; i < 10; i++) {
		v = (struct vec){(uintptr_t)&words[16], 256};
		pattern(&words[16], 256, i);
		g = (struct rdma_args){cookie, {1024, 256}, (uintptr_t)&v, 1, F_WRITE | F_NOTIFY, 1000 + i};
		n = (struct atomic72){.cookie = cookie,
				      .local_addr = (uintptr_t)&words[1],
				      .u = {1},
				      .flags = F_NOTIFY,
				      .token = 2000 + i};
		out_begin(&o, &a->name[0], "both", 4);
		out_cmsg(&o, i % 2 ? CMSG_ARGS : CMSG_FADD, i % 2 ? (void *)&g : (void *)&n,
			 i % 2 ? sizeof(g) : sizeof(n));
		out_cmsg(&o, i % 2 ? CMSG_FADD : CMSG_ARGS, i % 2 ? (void *)&n : (void *)&g,
			 i % 2 ? sizeof(n) : sizeof(g));
		expect(out_send(&o, b->fd, 0), 4, "RDMA_ARGS and an atomic");
		expect(AGENT(a, AGENT_RECV, .len = PAGE), 4, "their message");
		expect_bytes(a->board->area + 1024, &words[16], 256, "the write, when its message is there");
		expect(*(uint64_t *)(void *)a->board->area, 51 + i, "the word, when the message is there");
		expect_status(b, 1000 + i, ST_SUCCESS, "the write");
		expect_status(b, 2000 + i, ST_SUCCESS, "the atomic");
		expect(words[1], 50 + i, "the old value");
	}
	end();
}

/* The RDMA goes first, in any order of the control messages (net/rds/send.c: rds_send_xmit). */
static void behind_rdma(void)
{
	struct rdma_args g;
	struct atomic72 n;
	struct vec v;
	struct out o;
	unsigned i;

	start();
	for (i = 0; i < 8; i++) {
		bool write = i & 2;

		put(0, 1000);
		words[16] = 50 + i;
		words[1] = 0;
		v = (struct vec){(uintptr_t)&words[16], 8};
		g = (struct rdma_args){cookie, {0, 8}, (uintptr_t)&v, 1, (write ? F_WRITE : 0) | F_NOTIFY, 3000 + i};
		n = (struct atomic72){.cookie = cookie,
				      .local_addr = (uintptr_t)&words[1],
				      .u = {7},
				      .flags = F_NOTIFY,
				      .token = 4000 + i};
		out_begin(&o, &a->name[0], "both", 4);
		if (i & 1)
			out_cmsg(&o, CMSG_ARGS, &g, sizeof(g));
		out_cmsg(&o, CMSG_FADD, &n, sizeof(n));
		if (!(i & 1))
			out_cmsg(&o, CMSG_ARGS, &g, sizeof(g));
		expect(out_send(&o, b->fd, 0), 4, "an atomic and RDMA_ARGS on one word");
		expect(agent_recv(a), 4, "their message");
		expect_status(b, 3000 + i, ST_SUCCESS, "the RDMA, told of first");
		expect_status(b, 4000 + i, ST_SUCCESS, "the atomic");
		expect(words[1], write ? 50 + i : 1000, "%u: what the atomic found", i);
		expect(words[16], write ? 50 + i : 1000, "%u: what was written or read", i);
		check(word(0) == words[1] + 7, "%u: %llu", i, (unsigned long long)word(0));
	}
	end();
}

/*
 * Four processes count in one word: the sum is exact, and every old value was seen by one of them.
 */
static void counters(void)
{
	enum { PEERS = 4, EACH = 2000 };
	struct agent *peer[PEERS];
	static unsigned char seen[PEERS * EACH];
	struct agent_cmd c = {.what = AGENT_FADD, .flags = 1, .remote = 128, .count = EACH};
	unsigned i, j;

	for (i = 0; i < PEERS; i++)
		peer[i] = agent_start(i + 1);
	start();
	c.cookie = cookie;
	c.to = a->name[1];
	put(128, 0);
	for (i = 0; i < PEERS; i++)
		agent_ask(peer[i], &c);
	for (i = 0; i < PEERS; i++)
		expect(agent_answer(peer[i]), 0, "the counter %u", i);
	expect(word(128), PEERS * EACH, "the sum of %u processes", PEERS);
	for (i = 0; i < PEERS; i++) {
		const unsigned char *old = agent_memory(peer[i], 0, EACH * 8);
		uint64_t last = 0, v;

		for (j = 0; j < EACH; j++, last = v) {
			memcpy(&v, old + 8 * j, 8);
			check(v < PEERS * EACH && !seen[v]++, "process %u, number %u: the old value %llu came twice", i,
			      j, (unsigned long long)v);
			check(!j || v > last, "process %u: old value %llu after %llu", i, (unsigned long long)v,
			      (unsigned long long)last);
		}
	}
	for (i = 0; i < PEERS; i++)
		agent_end(peer[i]);
	end();
}

static const struct test_case cases[] = {
	{"fadd", fadd},
	{"cswp", cswp},
	{"masked-fadd", masked_fadd},
	{"masked-cswp", masked_cswp},
	{"errors", errors},
	{"misaligned", misaligned},
	{"notices", notices},
	{"with-rdma", with_rdma},
	{"behind-rdma", behind_rdma},
	{"counters", counters},
};

int main(int argc, char **argv)
{
	return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
