/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * patience.h - the one table of times for which the library waits for another party: another
 * process or thread, a peer, a device or the kernel.
 *
 * X(NAME, milliseconds, what the library waits for, what happens when the time is over).
 * RDS_PRELOAD_PATIENCE multiplies all of them, for machines that are slower than those for which
 * the times were chosen. It also multiplies the default of RDS_PRELOAD_LINGER_MS.
 *
 * Other times are not in this table and are the same on every machine: how often something is tried
 * or checked, how long an answer is remembered, and how often a line is logged.
 */
#ifndef ENGINE_SYS_PATIENCE_H
#define ENGINE_SYS_PATIENCE_H

#include <stdatomic.h>
#include <stdint.h>

/* clang-format off */
#define RDS_PATIENCE_TABLE(X) \
	/* threads of this process */ \
	X(LOCK, 100, "a lock, whose holder may be this thread, interrupted by a signal", "it is left alone") \
	X(EXIT_LOCK, 500, "the same at exit out of a signal handler, where it may be another thread on a busy machine", "messages are lost") \
	X(FORK, 20, "the end of the helper's round, before a fork", "the fork is made") \
	X(FORK_ROUND, 200, "the end of a fork, before the helper's next round", "the round is made") \
	X(REGION_RECLAIM, 200, "the thread that takes back the regions of a closed socket", "close() returns") \
	X(EXPORT, 1000, "the helper, which takes descriptors out of a full socket", "the helper does without") \
	X(EXPORT_FLIGHT, 1000, "descriptors of this user that are in flight: too many", "the helper does without") \
	X(HANG_UP, 1000, "the helper, which makes the hang-up pipe", "leases are passed on without it") \
	X(ASIDE, 10000, "the helper to end for a moment, or to follow the program's rights", "a line is logged") \
	X(LAST_THREAD, 1000, "the program's last thread to be seen dead", "the program has closed our descriptor") \
	/* the registry */ \
	X(REGISTRY_LOCK, 5000, "the process that has the registry locked", "ETIMEDOUT") \
	X(REGISTRY_LOCK_AGAIN, 20, "the same process as the last time", "ETIMEDOUT") \
	X(REGISTRY_STUCK, 100, "the same, to go on", "others go on without its change") \
	X(REGISTRY_HUNGRY, 2, "a process that has waited long for that lock to take it", "newcomers take it") \
	X(REGISTRY_RIGHTS, 50, "the process that has made the registry to set its rights", "EACCES") \
	X(BIND, 20, "the owner of a closed socket to give back the port", "EADDRINUSE") \
	/* peers */ \
	X(CELL, 10000, "a process of this host to look at what was sent to it", "the connection is made anew, with rings") \
	X(ROOM, 10, "the receiver to make room in the ring, in a blocking send", "the message is copied") \
	X(OPERATIONS, 100, "RDMA operations of a socket that is closed", "they are dropped") \
	X(REGION, 2000, "peers to forget a region that is freed", "their connections break if they use it") \
	X(REGION_MUTE, 100, "the same, one that has not answered the last time", "the same") \
	X(UNREACHABLE, 10000, "a peer for which messages wait to be reached", "a line is logged") \
	X(INFO_ANSWER, 200, "one process's connections and messages", "they are left out") \
	X(INFO_ALL, 1000, "all processes' connections and messages", "the rest is left out") \
	X(INFO_ASKER, 2000, "the process that has asked for ours to read them", "its connection is closed") \
	/* processes that share a socket with this one */ \
	X(OWNER, 1000, "the owner, in a call that must not sleep", "EAGAIN") \
	X(OWNER_UNKNOWN, 100, "the same, of which nothing is known, or after the socket's own timeout", "EAGAIN, ETIMEDOUT") \
	X(OWNER_LATE, 5000, "the owner, in a call that may sleep", "a line is logged") \
	X(OWNER_NONE, 30000, "the same, of which nothing is known", "ENOTCONN") \
	X(OWNER_FULL, 10000, "the owner, which has no descriptor left to serve us with", "EMFILE") \
	X(OWNER_CLOSE, 100, "the owner to close a socket whose last number is closed", "close() returns") \
	X(BORROWER_IDLE, 1000, "the next call of a borrower, if descriptors run short", "its channel is closed") \
	X(MEMORY_GRANT, 5000, "the owner to take our memory for RDMA", "EAGAIN") \
	/* TCP */ \
	X(TCP_PORT, 100, "the helper to open the port of an address, in bind()", "bind() returns") \
	X(TCP_EXIT, 500, "at exit: a host that refuses connections, or to which there is no way", "messages are lost") \
	X(TCP_CONNECT, 5000, "a host to take or refuse a TCP connection", "the attempt is given up") \
	X(TCP_POKE, 1000, "a host that was asked to connect", "it is asked again") \
	X(TCP_SPEAK, 30000, "a host with a new connection to send a whole message", "its connection is closed") \
	X(TCP_MESSAGE, 2000, "the rest of a message of a host to which nothing was sent, if memory for these is used up", "the same") \
	X(TCP_UNREAD, 30000, "the program to read what such a host has sent, if others need its memory or its place", "that is dropped, and the connection closed") \
	/* RDMA devices and rdma_cm */ \
	X(CM_RESOLVE, 5000, "rdma_cm, which asks for an address or a route", "it says that there is none") \
	X(CM_STEP, 6000, "rdma_cm to say that, which may not happen", "the attempt is given up") \
	X(CM_ANSWER, 10000, "the peer's helper to answer a request, which may wait for a processor", "the attempt is given up") \
	X(CM_ESTABLISH, 10000, "the peer to go on after our yes", "the connection is given up") \
	X(CM_UNSAID, 250, "rdma_cm to say that a connection stands, over which a frame has come", "it is told") \
	X(CM_CROSSED, 2000, "the answer to our request, when the peer's comes", "ours is taken to be lost") \
	X(CM_HANGS, 1000, "rdma_connect() to return (siw)", "the next one to that host fails") \
	X(CM_EXIT, 200, "the same, at the end of the process", "it is cut off") \
	X(CM_DESTROY, 20, "rdma_destroy_id() to return", "another thread does the rest; forks do not wait") \
	X(CM_PORT, 160, "the last process at the rendezvous port to be gone", "a line is logged, and further attempts are rare") \
	X(QP_CLOSE, 1000, "a device to return what is in flight on a queue pair", "it is destroyed") \
	X(QP_LAST, 100, "a device to say that it has no receive of one left", "the same") \
	X(PROBE, 2000, "the peer's device to answer a read that probes it", "the connection breaks")
/* clang-format on */

enum rds_patience {
#define RDS_PATIENCE_ENUM(name, ms, ...) RDS_PATIENCE_##name = (ms),
	RDS_PATIENCE_TABLE(RDS_PATIENCE_ENUM)
#undef RDS_PATIENCE_ENUM
};

/*
 * The value of RDS_PRELOAD_PATIENCE from the time of this library's constructor on (options.c); 1
 * before.
 */
extern _Atomic unsigned rds_patience_factor;

static inline uint64_t rds_patience_ms(enum rds_patience ms)
{
	return (uint64_t)ms * atomic_load_explicit(&rds_patience_factor, memory_order_relaxed);
}

static inline uint64_t rds_patience_ns(enum rds_patience ms)
{
	return rds_patience_ms(ms) * 1000000;
}

#endif
