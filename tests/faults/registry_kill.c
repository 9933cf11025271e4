/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * registry_kill.c [rounds [seed]] - kill -9 at random instants; the registry must stay correct and
 * complete.
 *
 * Children add, bind, look up and remove sockets as fast as they can; the parent kills one at a
 * time and starts another.  The truth is kept in memory that the parent and the children share:
 * which life owns which port, and how far each life has counted.  Checked all the time: a port
 * never has two living owners, a child finds its own binding, the node's counters never decrease.
 * At the end every port is free and the counters are exact, so no dead process was counted twice or
 * not at all.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/node/registry.h"
#include "tests/slow.h"

#define CHILDREN 4
#define PORTS 64
#define FIRST_PORT 4000
#define LIVES_MAX 20000
#define COUNTER 5

struct truth {
	_Atomic uint32_t owner[65536];	    /* life that knows it owns the port; 0 none */
	_Atomic uint32_t killed[LIVES_MAX]; /* said before the signal is sent */
	_Atomic uint64_t counted[LIVES_MAX];
	_Atomic uint64_t binds, refused;
	_Atomic int failed;
};

static struct truth *truth;
static struct in6_addr addr;

#define check(x)                                                                                                       \
	do {                                                                                                           \
		if (!(x)) {                                                                                            \
			fflush(stdout);                                                                                \
			fprintf(stderr, "%s:%d: not true: %s (process %d)\n", __FILE__, __LINE__, #x, (int)getpid());  \
			atomic_store(&truth->failed, 1);                                                               \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

static void hold_port(struct registry *reg, uint32_t life, uint32_t idx, uint16_t port)
{
	struct registry_owner o;
	uint32_t before = atomic_exchange(&truth->owner[port], life);

	check(before == 0 || atomic_load(&truth->killed[before]));
	check(registry_lookup(reg, &addr, port, 0, &o) == 0);
	check(o.sock == idx && o.pid == getpid());
	check(memcmp(&o.procid, registry_self(reg), sizeof(o.procid)) == 0);
	check(registry_proc_alive(reg, o.proc, &o.procid));
}

static void release_port(uint32_t life, uint16_t port)
{
	check(atomic_exchange(&truth->owner[port], 0) == life);
}

/* One life: until killed. */
static void live(uint32_t life, unsigned seed)
{
	struct registry *reg;
	uint32_t idx[8];
	uint16_t port[8];

	check(registry_open(&reg) == 0);
	for (;;) {
		unsigned n = 1 + (unsigned)rand_r(&seed) % 8, i;

		for (i = 0; i < n; i++) {
			unsigned r = (unsigned)rand_r(&seed);
			int ret;

			check(registry_sock_add(reg, life, 1, 1, &idx[i]) == 0);
			port[i] = 0;
			ret = registry_sock_bind(reg, idx[i], &addr, r % 4 ? (uint16_t)(FIRST_PORT + r / 4 % PORTS) : 0, 0,
						 1, &port[i]);
			check(ret == 0 || ret == -EADDRINUSE);
			atomic_fetch_add(ret ? &truth->refused : &truth->binds, 1);
			if (ret)
				port[i] = 0;
			else
				hold_port(reg, life, idx[i], port[i]);
			atomic_fetch_add(&registry_counters(reg)[COUNTER], 1);
			atomic_fetch_add(&truth->counted[life], 1);
		}
		while (i--) {
			if (port[i])
				release_port(life, port[i]);
			registry_sock_remove(reg, idx[i]);
		}
		if (rand_r(&seed) % 16 == 0)
			check(registry_reap(reg) >= 0);
		if (rand_r(&seed) % 64 == 0) {
			registry_close(reg);
			check(registry_open(&reg) == 0);
		}
	}
}

static pid_t start_life(uint32_t life, unsigned seed)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a parent that fails leaves no process behind */
		os_fds_forked();
		live(life, seed);
		_exit(0);
	}
	check(pid > 0);
	return pid;
}

static void sums_grow(struct registry *reg, uint64_t *last)
{
	uint64_t sum[RDS_STATS];

	registry_counters_sum(reg, sum);
	if (sum[COUNTER] < *last)
		fprintf(stderr, "sum went from %llu to %llu\n", (unsigned long long)*last,
			(unsigned long long)sum[COUNTER]);
	check(sum[COUNTER] >= *last);
	*last = sum[COUNTER];
}

/* Everybody is dead: what must be left is nothing but the sums. */
static void aftermath(struct registry *reg, uint32_t lives)
{
	uint64_t sum[RDS_STATS], counted = 0;
	struct registry_sock *v;
	unsigned n;

	/* not one that claims to live, even before the reaping */
	check(registry_socks(reg, &v, &n) == 0 && n == 0);
	free(v);
	check(registry_reap(reg) >= 0);
	check(registry_reap(reg) == 0);
	for (unsigned i = 0; i < PORTS; i++) {
		uint16_t port = (uint16_t)(FIRST_PORT + i), got;
		struct registry_owner o;
		uint32_t idx;

		check(registry_lookup(reg, &addr, port, 0, &o) == -ENOENT);
		check(registry_sock_add(reg, 0, 1, 1, &idx) == 0);
		check(registry_sock_bind(reg, idx, &addr, port, 0, 1, &got) == 0);
		check(registry_lookup(reg, &addr, port, 0, &o) == 0 && o.sock == idx);
	}
	registry_counters_sum(reg, sum);
	for (uint32_t life = 1; life <= lives; life++)
		counted += atomic_load(&truth->counted[life]);
	printf("%llu binds, %llu refused; counted %llu, the node says %llu (%u lives, each may be one ahead)\n",
	       (unsigned long long)truth->binds, (unsigned long long)truth->refused, (unsigned long long)counted,
	       (unsigned long long)sum[COUNTER], lives);
	check(sum[COUNTER] >= counted && sum[COUNTER] <= counted + lives);
	check(truth->binds > lives); /* otherwise nothing was tried */
}

static void kill_and_replace(pid_t *pid, uint32_t *life_of, uint32_t *lives, unsigned *seed)
{
	unsigned victim = (unsigned)rand_r(seed) % CHILDREN;
	struct timespec ts = { 0, rand_r(seed) % 4000000 };
	int status;

	nanosleep(&ts, NULL); /* the random instant */
	atomic_store(&truth->killed[life_of[victim]], 1);
	kill(pid[victim], SIGKILL);
	check(waitpid(pid[victim], &status, 0) == pid[victim]);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	life_of[victim] = ++*lives;
	pid[victim] = start_life(*lives, (unsigned)rand_r(seed));
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 300;
	unsigned seed = argc > 2 ? (unsigned)atoi(argv[2]) : test_seed();
	char dir[] = "/dev/shm/rdskill.XXXXXX", cmd[64];
	uint32_t lives = 0, life_of[CHILDREN];
	struct registry *reg;
	pid_t pid[CHILDREN];
	uint64_t last = 0;
	int failed;

	if (!mkdtemp(dir)) {
		printf("SKIP: cannot make a directory in /dev/shm: %s\n", strerror(errno));
		return 77;
	}
	setenv("RDS_PRELOAD_REGISTRY_DIR", dir, 1);
	rds_options_reset();
	printf("registry_kill: %u rounds, seed %u\n", rounds, seed);
	fflush(stdout);
	truth = mmap(NULL, sizeof(*truth), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (truth == MAP_FAILED || rounds > LIVES_MAX - CHILDREN - 1)
		return 1;
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &addr);
	for (unsigned i = 0; i < CHILDREN; i++) {
		life_of[i] = ++lives;
		pid[i] = start_life(lives, (unsigned)rand_r(&seed));
	}
	check(registry_open(&reg) == 0);
	for (unsigned r = 0; r < rounds && !atomic_load(&truth->failed); r++) {
		kill_and_replace(pid, life_of, &lives, &seed);
		sums_grow(reg, &last);
	}
	for (unsigned i = 0; i < CHILDREN; i++) {
		atomic_store(&truth->killed[life_of[i]], 1);
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	sums_grow(reg, &last);
	failed = atomic_load(&truth->failed);
	if (!failed)
		aftermath(reg, lives);
	registry_close(reg);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd) != 0 || failed;
}
