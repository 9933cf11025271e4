/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * options.h - the environment variables RDS_PRELOAD_*. They are described by one table (name, type,
 * default, help). The parser, `rdsrun --options`, the manual and the warning about unknown names
 * all read that table.
 */
#ifndef ENGINE_SYS_OPTIONS_H
#define ENGINE_SYS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The table itself is in options_table.h. */
struct rds_options {
	/* RDS_PRELOAD_LOG error|warn|info|debug, default warn */
	int log;
	const char *log_file;	  /* RDS_PRELOAD_LOG_FILE, default "" = stderr */
	const char *registry_dir; /* RDS_PRELOAD_REGISTRY_DIR, default /dev/shm */
	/* RDS_PRELOAD_SHARE user|group|all: the users that may join this node; default user */
	int share;
	/*
	 * RDS_PRELOAD_TRANSPORT auto|shm|verbs|tcp|loop, default auto. progress/transports.c checks the
	 * value; if it is bad, bind fails.
	 */
	const char *transport;
	/* RDS_PRELOAD_TCP 0|1, default 1: auto reaches other hosts over TCP */
	int tcp;
	/*
	 * RDS_PRELOAD_SPIN_US 0..1000000: longest spin before sleeping; 0 = never; -1 (default) =
	 * learnt
	 */
	int64_t spin_us;
	/* RDS_PRELOAD_SHM_RING bytes per direction, 2^n, 64K..64M, default 4M */
	int64_t shm_ring;
	/* RDS_PRELOAD_VERBS_BUFFERS 64..65536, default 512: receive buffers per device */
	int64_t verbs_buffers;
	/*
	 * RDS_PRELOAD_VERBS_REGIONS bytes, default 256M: regions that devices access by themselves;
	 * 0 = none
	 */
	int64_t verbs_regions;
	/*
	 * RDS_PRELOAD_VERBS_REGION_AFTER 1..1000000, default 2: number of operations on a region
	 * after which devices access it by themselves
	 */
	int64_t verbs_region_after;
	/*
	 * RDS_PRELOAD_VERBS_MEMORY bytes, 2M..1G, default 64M: messages sent and not yet
	 * acknowledged, per device
	 */
	int64_t verbs_memory;
	/* RDS_PRELOAD_SHM_FETCH auto|never; default auto (transport/shm/fetch.c) */
	int shm_fetch;
	/* RDS_PRELOAD_HELPER_FDS own|shared; default own (helper/fd_exchange.h) */
	int helper_fds;
	/* RDS_PRELOAD_PATIENCE 1..100, default 1: factor of all times in patience.h */
	int64_t patience;
	/*
	 * RDS_PRELOAD_LINGER_MS 0..600000, default 2000 times patience: longest wait at exit for
	 * queued data
	 */
	int64_t linger_ms;
	/* RDS_PRELOAD_RECONNECT_MIN_MS 1..60000, default 1 */
	int64_t reconnect_min_ms;
	/* RDS_PRELOAD_RECONNECT_MAX_MS 1..60000, default 1000 */
	int64_t reconnect_max_ms;
	/* RDS_PRELOAD_CM_PORT 1..65535, default 18635 */
	int64_t cm_port;
	/* RDS_PRELOAD_KEEPALIVE_MS 0..3600000, default 5000: silence before a probe; 0 = never */
	int64_t keepalive_ms;
	/* RDS_PRELOAD_DLSYM 0|1, default 0; only rdsrun uses it */
	int dlsym;
	/* RDS_PRELOAD_PING_ENABLE 0|1, default 1 */
	int ping_enable;
	/*
	 * RDS_PRELOAD_FAULT e.g. "seed=1,disconnect=1000"; default "";
	 * tests/faults/transport/fault.c parses it
	 */
	const char *fault;
	/* RDS_PRELOAD_FAMILIES: auto|21 or a list of historical numbers; default auto */
	const char *families;
	/*
	 * RDS_PRELOAD_ABI auto|a0|a1|a2|b1|b2|c|d|v2|uek, default auto (abi/revisions.h,
	 * abi/info_revision.c)
	 */
	int abi;
	/* RDS_PRELOAD_WMEM_DEFAULT / RMEM_DEFAULT, sk_sndbuf of a new socket, 212992 */
	int64_t wmem_default, rmem_default;
	/*
	 * RDS_PRELOAD_WMEM_MAX / RMEM_MAX, limit of SO_SNDBUF / SO_RCVBUF. The largest value, and
	 * the default, is INT_MAX / 2, so that the doubled value is still an int.
	 */
	int64_t wmem_max, rmem_max;
};

/*
 * Parsed on the first call, thread-safe, immutable afterwards. Each unknown or bad RDS_PRELOAD_*
 * variable is one warning. The environment at program start is what counts (a constructor copies
 * it): later calls of setenv() change nothing and cannot race.
 */
const struct rds_options *rds_options(void);
/*
 * Prints NAME, value, origin (default or environment) and help, as `rdsrun --options` shows them.
 */
void rds_options_print(FILE *out);
/*
 * Does the library accept this value for the variable? name is a full name, one of the table's.
 * want receives a text that says which values are accepted, such as "a number from 0 to 1000000".
 * For `rdsrun --spin` and the like; it sets nothing.
 */
bool rds_options_value_ok(const char *name, const char *value, char *want, size_t size);
/* Forgets the parsed values and copies the environment anew (tests only). */
void rds_options_reset(void);

enum { RDS_OPT_SHARE_USER, RDS_OPT_SHARE_GROUP, RDS_OPT_SHARE_ALL };
enum { RDS_SHM_FETCH_AUTO, RDS_SHM_FETCH_NEVER };
enum { RDS_HELPER_FDS_OWN, RDS_HELPER_FDS_SHARED };
/* Borrowers send these numbers to the owner, so they must not change. */
enum { RDS_ABI_AUTO, RDS_ABI_A0, RDS_ABI_A1, RDS_ABI_A2, RDS_ABI_B1, RDS_ABI_B2, RDS_ABI_C, RDS_ABI_D, RDS_ABI_V2, RDS_ABI_UEK };

#endif
