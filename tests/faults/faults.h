/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * faults.h - what the programs of this directory that are plain PF_RDS programs share: checks,
 * streams of messages whose length and content follow from (seed, stream, number), and the node's
 * counters.
 */
#ifndef FAULTS_H
#define FAULTS_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../slow.h"

#ifndef PF_RDS
#define PF_RDS 21
#endif
#ifndef SOL_RDS
#define SOL_RDS 276
#endif
#define INFO_COUNTERS 10000
#define MESSAGE_MAX 106496 /* half of a default SNDBUF: the largest that a socket takes */

#define fail(...)                                                                                                      \
	do {                                                                                                           \
		fprintf(stderr, "%s:%d: pid %d: ", __FILE__, __LINE__, (int)getpid());                                 \
		fprintf(stderr, __VA_ARGS__);                                                                          \
		fputc('\n', stderr);                                                                                   \
		_exit(1);                                                                                              \
	} while (0)
#define check(cond)                                                                                                    \
	do {                                                                                                           \
		if (!(cond))                                                                                           \
			fail("not true: %s (%s)", #cond, strerror(errno));                                             \
	} while (0)

/* If it hangs. */
__attribute__((constructor)) static void shows_stacks(void)
{
	test_shows_stacks();
}

static inline uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15ull;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* What is sent as number n of a stream. */
static inline uint64_t message_key(uint64_t seed, unsigned from, unsigned to, unsigned n)
{
	return mix(mix(seed ^ ((uint64_t)from << 48 | (uint64_t)to << 32)) + n);
}

static inline size_t message_len(uint64_t key)
{
	uint64_t r = mix(key ^ 1);

	switch (key % 20) {
	case 0:
	case 1:
		return 0;
	case 2 ... 7:
		return 1 + r % 64;
	case 8 ... 13:
		return 1 + r % 4096;
	case 14 ... 18:
		return 1 + r % 65536;
	}
	return 1 + r % MESSAGE_MAX;
}

static inline void message_fill(unsigned char *buf, uint64_t key, size_t len)
{
	uint64_t word = key;
	size_t i, n;

	for (i = 0; i < len; i += n) {
		n = len - i < 8 ? len - i : 8;
		memcpy(buf + i, &word, n);
		word = word * 6364136223846793005ull + 1442695040888963407ull;
	}
}

static inline struct sockaddr_in name_of(uint32_t addr, unsigned port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = addr};
}

/* Where everything happens that needs one address only: FAULT_ADDR, or 127.0.0.1. */
static inline uint32_t home(void)
{
	const char *text = getenv("FAULT_ADDR");
	struct in_addr a = {.s_addr = htonl(INADDR_LOOPBACK)};

	if (text && inet_pton(AF_INET, text, &a) != 1)
		fail("FAULT_ADDR=%s is no address", text);
	return a.s_addr;
}

static inline int rds_bound(uint32_t addr, unsigned port)
{
	struct sockaddr_in sin = name_of(addr, port);
	int fd = socket(PF_RDS, SOCK_SEQPACKET, 0);

	if (fd < 0)
		fail("socket(PF_RDS): %s; is librdspreload.so preloaded?", strerror(errno));
	if (bind(fd, (struct sockaddr *)&sin, sizeof(sin)))
		fail("bind to port %u: %s", port, strerror(errno));
	return fd;
}

static inline uint64_t counter(int fd, const char *name)
{
	struct {
		char name[32];
		uint64_t value;
	} __attribute__((packed)) c[256];
	socklen_t len = sizeof(c);
	unsigned i;

	if (getsockopt(fd, SOL_RDS, INFO_COUNTERS, c, &len) < 0)
		fail("RDS_INFO_COUNTERS: %s", strerror(errno));
	for (i = 0; i < len / sizeof(c[0]); i++)
		if (strncmp(c[i].name, name, sizeof(c[i].name)) == 0)
			return c[i].value;
	fail("no counter %s", name);
}

/*
 * Whoever makes trouble meanwhile decides when there is something under way, however fast the
 * library is: messages go in GATE_PARTS parts, and each begins when the file has a byte for it.
 * How many may go by now.
 */
#define GATE_PARTS 6 /* as "parts" in tests/rdma/faults-inside and faults-two has it */
static inline unsigned gate_allows(const char *gate, unsigned messages)
{
	struct stat st;

	if (!gate)
		return messages;
	if (stat(gate, &st) < 0)
		return 0;
	if (st.st_size >= GATE_PARTS)
		return messages;
	return (unsigned)(((uint64_t)st.st_size * messages + GATE_PARTS - 1) / GATE_PARTS);
}

static inline double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

#endif
