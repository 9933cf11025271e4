/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * options_table.h - the one table of environment variables. Only options.c includes it.
 *
 * X(field, kind, NAME, default as text, smallest, largest, choices, help)
 *  kind     INT     number                     SIZE  bytes: number with K, M or G
 *           POW2    SIZE that is a power of 2  ENUM  one of `choices`; the value is its index there
 *           STR     any text                   FILE  a path ("" allowed); ignored in privileged
 *                                                    programs
 *           DIR     an absolute path; ignored in privileged programs
 *           FAMILY  "auto" or numbers separated by commas
 *  NAME     without the prefix RDS_PRELOAD_
 */
#define RDS_OPTIONS_TABLE(X)                                                                                           \
	X(log, ENUM, "LOG", "warn", 0, 0, "error|warn|info|debug", "what is worth a line")                             \
	X(log_file, FILE, "LOG_FILE", "", 0, 0, "", "append lines to this file instead of stderr")                     \
	X(registry_dir, DIR, "REGISTRY_DIR", "/dev/shm", 0, 0, "", "where the processes of a node meet")               \
	X(share, ENUM, "SHARE", "user", 0, 0, "user|group|all", "who may join this node")                              \
	X(transport, STR, "TRANSPORT", "auto", 0, 0, "",                                                               \
	  "how to reach other processes: auto, shm, verbs, tcp, or loop")                                              \
	X(tcp, ENUM, "TCP", "1", 0, 0, "0|1", "transport auto: other hosts over TCP; 0: port 16385 is not opened")     \
	X(spin_us, INT, "SPIN_US", "-1", -1, 1000000, "",                                                              \
	  "longest spin before sleeping, microseconds; 0: never; -1: learnt, 200 or more")                             \
	X(shm_ring, POW2, "SHM_RING", "4M", 65536, 67108864, "", "shared memory per peer and direction, bytes")        \
	X(shm_fetch, ENUM, "SHM_FETCH", "auto", 0, 0, "auto|never",                                                    \
	  "RDMA writes on a host: taken from the writer's memory, if permitted")                                       \
	X(verbs_buffers, INT, "VERBS_BUFFERS", "512", 64, 65536, "",                                                   \
	  "receive memory per RDMA device at first, in units of 8 KiB")                                                \
	X(verbs_memory, SIZE, "VERBS_MEMORY", "64M", 2097152, 1073741823, "",                                          \
	  "memory for unacknowledged messages, per RDMA device")                                                       \
	X(verbs_regions, SIZE, "VERBS_REGIONS", "256M", 0, 1099511627776, "",                                          \
	  "memory of RDMA regions that devices reach by themselves; 0: none")                                          \
	X(verbs_region_after, INT, "VERBS_REGION_AFTER", "2", 1, 1000000, "",                                          \
	  "... from the operation after so many on that region; 1: whatever they carry")                               \
	X(helper_fds, ENUM, "HELPER_FDS", "own", 0, 0, "own|shared", "descriptor table of the library's thread")       \
	X(patience, INT, "PATIENCE", "1", 1, 100, "",                                                                  \
	  "factor of all times for which others are waited for, on slow machines")                                     \
	X(linger_ms, INT, "LINGER_MS", "2000", 0, 600000, "", "longest wait at exit for queued data, milliseconds")    \
	X(reconnect_min_ms, INT, "RECONNECT_MIN_MS", "1", 1, 60000, "", "first pause between connect attempts")        \
	X(reconnect_max_ms, INT, "RECONNECT_MAX_MS", "1000", 1, 60000, "", "longest pause between connect attempts")   \
	X(cm_port, INT, "CM_PORT", "18635", 1, 65535, "", "rendezvous port of RDMA nodes, the same on all hosts")      \
	X(keepalive_ms, INT, "KEEPALIVE_MS", "5000", 0, 3600000, "",                                                   \
	  "silence after which an RDMA peer is probed; 0: never")                                                      \
	X(ping_enable, ENUM, "PING_ENABLE", "1", 0, 0, "0|1", "answer pings to port 0")                                \
	X(dlsym, ENUM, "DLSYM", "0", 0, 0, "0|1", "rdsrun: look-ups through a handle of libc find the library, too")   \
	X(fault, STR, "FAULT", "", 0, 0, "", "faults to inject, by the library of the tests: seed=1,disconnect=1000")  \
	X(families, FAMILY, "FAMILIES", "auto", 0, 0, "21|28|30|32", "address families that mean RDS, with commas")    \
	X(abi, ENUM, "ABI", "auto", 0, 0, "auto|a0|a1|a2|b1|b2|c|d|v2|uek",                                            \
	  "revision of the RDMA structures: a0 to c 2007-8, d since; RDS_INFO records: v2 of 2006-09, uek Oracle's; "  \
	  "auto: found out")                                                                                           \
	X(wmem_default, SIZE, "WMEM_DEFAULT", "212992", 4608, 1073741823, "",                                          \
	  "SO_SNDBUF of a new socket, as read back")                                                                   \
	X(rmem_default, SIZE, "RMEM_DEFAULT", "212992", 2304, 1073741823, "",                                          \
	  "SO_RCVBUF of a new socket, as read back")                                                                   \
	X(wmem_max, SIZE, "WMEM_MAX", "1073741823", 4608, 1073741823, "", "largest SO_SNDBUF that can be set")         \
	X(rmem_max, SIZE, "RMEM_MAX", "1073741823", 2304, 1073741823, "", "largest SO_RCVBUF that can be set")
