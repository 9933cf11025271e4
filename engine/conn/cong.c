/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cong.c - congestion: port maps of this process's addresses, and maps of the peers' ports
 * (net/rds/cong.c).
 *
 * A socket whose queue holds more than RCVBUF is congested until it falls below half of that.  Its
 * port's bit is set in the map of its local address.  The whole state goes to every peer connected
 * to that address, between messages, after each change and once after each (re)connect; so a lost
 * update cannot block a sender for ever.  Edge driven, no timeout.  It goes as a list of ports
 * while these are few: mostly there is none, and a new connection need not touch 8 KiB to say so.
 *
 * Each peer process has its own view of its own ports: what a peer reports belongs to a connection
 * (struct rds_cong_far).  On a loop connection it is the local map itself.  All under rx; senders
 * read without it.  Must not know why a queue is long.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/conn/relay.h"

static struct rds_cong_map *cong_maps; /* rx, as the next two */
static struct rds_sock *cong_monitors, *cong_met;

struct rds_cong_map *rds_cong_map_find(const struct in6_addr *addr)
{
	struct rds_cong_map *map;

	for (map = cong_maps; map; map = map->next)
		if (rds_ip_equal(&map->addr, addr))
			break;
	return map;
}

struct rds_cong_map *rds_cong_map_get(const struct in6_addr *addr)
{
	struct rds_cong_map *map = rds_cong_map_find(addr);
	void *words;

	if (map)
		return map;
	map = calloc(1, sizeof(*map));
	if (!map)
		return NULL;
	if (os_mmap(RDS_CONG_MAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &words)) {
		free(map);
		return NULL;
	}
	map->words = words;
	map->addr = *addr;
	map->next = cong_maps;
	cong_maps = map;
	return map;
}

int rds_cong_map_bind(const struct in6_addr *addr)
{
	struct rds_cong_map *map = rds_cong_map_get(addr);

	if (!map)
		return -ENOMEM;
	map->bound = true;
	return 0;
}

int rds_cong_attach(struct rds_conn *conn)
{
	struct rds_cong_map *map = rds_cong_map_get(&conn->id.laddr), *far = NULL;

	if (conn->kind == RDS_CONN_LOOP)
		far = rds_cong_map_get(&conn->id.faddr);
	if (!map || (conn->kind == RDS_CONN_LOOP && !far))
		return -ENOMEM;
	conn->map_next = map->conns;
	map->conns = conn;
	if (far) {
		atomic_store(&conn->fcong.map, far);
		atomic_store(&conn->fcong.few, RDS_CONG_MANY);
	}
	return 0;
}

void rds_cong_detach(struct rds_conn *conn)
{
	struct rds_cong_map *map = rds_cong_map_find(&conn->id.laddr);
	struct rds_conn **p;

	for (p = map ? &map->conns : NULL; p && *p; p = &(*p)->map_next)
		if (*p == conn) {
			*p = conn->map_next;
			break;
		}
	atomic_store(&conn->fcong.few, 0);
	map = atomic_exchange(&conn->fcong.map, NULL);
	if (conn->kind == RDS_CONN_LOOP || !map)
		return;
	free(map->words);
	free(map);
}

void rds_cong_set_monitor(struct rds_sock *sk, bool on)
{
	struct rds_sock **p;

	rx_lock();
	if (on && !sk->cong_monitor) {
		sk->mon_next = cong_monitors;
		cong_monitors = sk;
	} else if (!on && sk->cong_monitor) {
		for (p = &cong_monitors; *p; p = &(*p)->mon_next)
			if (*p == sk) {
				*p = sk->mon_next;
				break;
			}
		RDS_SOCK_SET(sk, cong_mask, 0);
		RDS_SOCK_SET(sk, cong_notify, 0);
	}
	if (on != sk->cong_monitor)
		RDS_SOCK_SET(sk, cong_monitor, on);
	rx_unlock();
}

void rds_cong_sock_add(struct rds_sock *sk)
{
	if (sk->cong_listed || !(atomic_load(&sk->open) || atomic_load(&sk->handing_off)))
		return;
	sk->cong_listed = true;
	rds_sock_hold(sk);
	sk->cong_next = cong_met;
	cong_met = sk;
}

void rds_cong_sock_del(struct rds_sock *sk)
{
	struct rds_sock **p = &cong_met;

	RDS_SOCK_SET(sk, seen_congestion, false);
	RDS_SOCK_SET(sk, cong_attached, false);
	if (!sk->cong_listed)
		return;
	while (*p != sk)
		p = &(*p)->cong_next;
	*p = sk->cong_next;
	sk->cong_listed = false;
	rds_sock_put(sk); /* not the last reference: the thread that closes the socket has one */
}

/*
 * Wakes threads that sleep for an update, and pollers that have met congestion since their last
 * poll.
 */
static void cong_wake_socks(void)
{
	struct rds_sock **p = &cong_met, *sk;

	while ((sk = *p)) {
		rds_sock_wake(
			sk, RDS_WAIT_CONG |
				    (sk->seen_congestion || sk->cong_attached ? POLLIN | POLLRDNORM | POLLWRBAND : 0));
		if (sk->seen_congestion || sk->cong_attached || sk->cong_blocked) {
			p = &sk->cong_next;
			continue;
		}
		*p = sk->cong_next;
		sk->cong_listed = false;
		rds_sock_put(sk);
	}
}

/* The update concerns these ports, of those that the socket waits for. */
static void cong_notify_sock(struct rds_sock *sk, uint64_t ports)
{
	ports &= sk->cong_mask;
	if (!ports)
		return;
	RDS_SOCK_SET(sk, cong_notify, sk->cong_notify | ports);
	RDS_SOCK_SET(sk, cong_mask, sk->cong_mask & ~ports);
}

/*
 * Updates come by the connections of the process that met the congestion, and these are gone.  So
 * the socket is told of one now.  A sender that finds its port still congested is refused again,
 * and then it is this process that is told.
 */
void rds_cong_resume(struct rds_sock *sk)
{
	cong_notify_sock(sk, ~0ull);
	if (!sk->seen_congestion && !sk->cong_attached)
		return;
	sk->cong_track = atomic_load(&rds_sock_cong_gen) - 1;
	rds_cong_sock_add(sk);
}

void rds_cong_updated(uint64_t portmask)
{
	struct rds_sock *sk;

	atomic_fetch_add(&rds_sock_cong_gen, 1);
	RDS_STAT_INC_RX(cong_update_received);
	cong_wake_socks();
	for (sk = cong_monitors; sk; sk = sk->mon_next) {
		cong_notify_sock(sk, portmask);
		if (sk->cong_notify)
			rds_sock_wake(sk, POLLIN | POLLRDNORM | RDS_WAIT_RECV);
	}
}

static void cong_push_map(struct rds_cong_map *map)
{
	struct rds_conn *conn;
	bool local = false;

	for (conn = map->conns; conn; conn = conn->map_next) {
		RDS_STAT_INC_RX(cong_update_queued);
		if (conn->kind == RDS_CONN_LOOP) {
			local = true;
			continue;
		}
		conn->want_map = true;
		rds_conn_work_add(conn);
	}
	if (local)
		rds_cong_updated(~0ull);
}

static void cong_set_port(struct rds_sock *sk, bool on)
{
	struct rds_cong_map *map = rds_cong_map_get(&sk->laddr.ip);
	_Atomic unsigned char *b;
	unsigned char bit = (unsigned char)(1u << (sk->laddr.port & 7));

	if (!map)
		return; /* no memory for a map: only their own buffers hold senders back */
	b = (_Atomic unsigned char *)map->words + (sk->laddr.port >> 3);
	if (on)
		map->nports += !(atomic_fetch_or(b, bit) & bit);
	else
		map->nports -= (atomic_fetch_and(b, (unsigned char)~bit) & bit) != 0;
	cong_push_map(map);
}

void rds_cong_publish(const struct rds_sock *sk)
{
	registry_sock_set_congested(rds_node_registry, sk->reg_idx, sk->congested);
}

void rds_cong_check(struct rds_sock *sk)
{
	uint32_t limit = rds_sock_rcvbuf(sk);

	/*
	 * Only sockets of a real transport: the kernel's loopback transport has no congestion
	 * (net/rds/recv.c: rds_recv_rcvbuf_delta()).
	 */
	if (atomic_load_explicit(&sk->transport, memory_order_relaxed) == RDS_TRANS_LOOP)
		return;
	if (!sk->congested && sk->rcv_bytes > limit) {
		sk->congested = true;
		cong_set_port(sk, true);
		rds_cong_publish(sk);
	} else if (sk->congested && sk->rcv_bytes < limit / 2) {
		sk->congested = false;
		cong_set_port(sk, false);
		rds_cong_publish(sk);
	}
}

void rds_cong_clear_port(struct rds_sock *sk)
{
	if (!sk->congested)
		return;
	sk->congested = false;
	cong_set_port(sk, false);
}

static bool cong_few_have(uint64_t few, uint16_t port)
{
	for (; few; few >>= 16)
		if ((uint16_t)few == port)
			return true;
	return false;
}

bool rds_cong_far_look(const struct rds_cong_far *far, uint64_t few, uint16_t port)
{
	const struct rds_cong_map *map;

	if (few != RDS_CONG_MANY)
		return cong_few_have(few, port);
	map = atomic_load_explicit(&far->map, memory_order_relaxed);
	return (le64toh(atomic_load_explicit(&map->words[port / 64], memory_order_relaxed)) >> port % 64) & 1;
}

uint64_t rds_cong_ports(const struct rds_conn *conn)
{
	uint64_t few = atomic_load(&conn->fcong.few), ports = 0;
	const struct rds_cong_map *map = few == RDS_CONG_MANY ? atomic_load(&conn->fcong.map) : NULL;
	unsigned i;

	for (i = 0; map && i < RDS_CONG_MAP_BYTES / 8; i++)
		ports |= le64toh(atomic_load_explicit(&map->words[i], memory_order_relaxed));
	for (; !map && few; few >>= 16)
		ports |= 1ull << few % 64;
	return ports;
}

uint32_t rds_cong_map_write(const struct rds_cong_map *map, unsigned char to[RDS_CONG_MAP_BYTES], bool whole)
{
	bool list = !whole && map->nports <= RDS_CONG_LIST_PORTS;
	uint32_t n = 0;
	uint64_t word;
	uint16_t port;
	unsigned i;

	for (i = 0; i < RDS_CONG_MAP_BYTES / 8 && (!list || n < map->nports * sizeof(port)); i++) {
		word = atomic_load_explicit(&map->words[i], memory_order_relaxed);
		if (!list) {
			memcpy(to + n, &word, sizeof(word));
			n += sizeof(word);
			continue;
		}
		for (word = le64toh(word); word; word &= word - 1) {
			port = htobe16((uint16_t)(64 * i + (unsigned)__builtin_ctzll(word)));
			memcpy(to + n, &port, sizeof(port));
			n += sizeof(port);
		}
	}
	return n;
}

static uint16_t cong_list_port(const unsigned char *data, uint32_t at)
{
	uint16_t port;

	memcpy(&port, data + at, sizeof(port));
	return be16toh(port);
}

/* As in struct rds_cong_far. */
static uint64_t cong_list_pack(const unsigned char *data, uint32_t len)
{
	uint64_t few = 0;
	unsigned n = 0;
	uint32_t at;
	uint16_t port;

	for (at = 0; at < len; at += sizeof(port)) {
		port = cong_list_port(data, at);
		if (!port || cong_few_have(few, port)) /* no socket has port 0 */
			continue;
		if (n == sizeof(few) / sizeof(port))
			return RDS_CONG_MANY;
		few |= (uint64_t)port << 16 * n++;
	}
	return few;
}

/* The same of a whole map: most of those that nodes send have no port at all. */
static uint64_t cong_map_pack(const unsigned char *data)
{
	uint64_t few = 0, word;
	unsigned n = 0, i;
	uint16_t port;

	for (i = 0; i < RDS_CONG_MAP_BYTES / 8; i++) {
		memcpy(&word, data + i * sizeof(word), sizeof(word));
		for (word = le64toh(word); unlikely(word); word &= word - 1) {
			port = (uint16_t)(64 * i + (unsigned)__builtin_ctzll(word));
			if (!port)
				continue;
			if (n == sizeof(few) / sizeof(port))
				return RDS_CONG_MANY;
			few |= (uint64_t)port << 16 * n++;
		}
	}
	return few;
}

/* The length is one that rds_wire_hdr_decode() accepts. */
static void cong_map_read(const unsigned char *data, uint32_t len, uint64_t words[RDS_CONG_MAP_BYTES / 8])
{
	uint16_t port;
	uint32_t at;

	if (len == RDS_CONG_MAP_BYTES) {
		memcpy(words, data, len);
		return;
	}
	memset(words, 0, RDS_CONG_MAP_BYTES);
	for (at = 0; at < len; at += sizeof(port)) {
		port = cong_list_port(data, at);
		words[port / 64] |= htole64(1ull << port % 64);
	}
}

/* A peer's, of which all words are about to be written. */
static struct rds_cong_map *cong_far_map_new(void)
{
	struct rds_cong_map *map = calloc(1, sizeof(*map));

	if (!map)
		return NULL;
	map->words = calloc(1, RDS_CONG_MAP_BYTES);
	if (map->words)
		return map;
	free(map);
	return NULL;
}

/* False: no memory. */
static bool cong_far_fill(struct rds_cong_far *far, const void *data, uint32_t len)
{
	struct rds_cong_map *map = atomic_load(&far->map);
	uint64_t words[RDS_CONG_MAP_BYTES / 8];
	unsigned i;

	if (!map) {
		map = cong_far_map_new();
		if (!map)
			return false;
		atomic_store(&far->map, map);
	}
	cong_map_read(data, len, words);
	for (i = 0; i < RDS_CONG_MAP_BYTES / 8; i++)
		atomic_store_explicit(&map->words[i], words[i], memory_order_relaxed);
	return true;
}

void rds_cong_far_add(const struct rds_cong_far *far, unsigned char bytes[RDS_CONG_MAP_BYTES])
{
	uint64_t few = atomic_load(&far->few), word;
	const struct rds_cong_map *map = few == RDS_CONG_MANY ? atomic_load(&far->map) : NULL;
	unsigned i;

	for (i = 0; map && i < RDS_CONG_MAP_BYTES / 8; i++) {
		memcpy(&word, bytes + i * sizeof(word), sizeof(word));
		word |= atomic_load_explicit(&map->words[i], memory_order_relaxed);
		memcpy(bytes + i * sizeof(word), &word, sizeof(word));
	}
	for (; !map && few; few >>= 16)
		bytes[(few & 0xffff) >> 3] |= (unsigned char)(1u << (few & 7));
}

void rds_cong_map_copy(struct rds_cong_map *map, const struct rds_cong_far *far)
{
	unsigned char bytes[RDS_CONG_MAP_BYTES] = {0};
	uint64_t word;
	unsigned i;

	if (!map->nports && !atomic_load(&far->few))
		return;
	rds_cong_far_add(far, bytes);
	map->nports = 0;
	for (i = 0; i < RDS_CONG_MAP_BYTES / 8; i++) {
		memcpy(&word, bytes + i * sizeof(word), sizeof(word));
		atomic_store_explicit(&map->words[i], word, memory_order_relaxed);
		map->nports += (unsigned)__builtin_popcountll(word);
	}
	cong_push_map(map);
}

void rds_cong_received(struct rds_conn *conn, const void *data, uint32_t len)
{
	uint64_t few = len == RDS_CONG_MAP_BYTES ? cong_map_pack(data) : cong_list_pack(data, len);

	/* without memory no port counts as congested: only their own buffers hold senders back */
	if (few == RDS_CONG_MANY && !cong_far_fill(&conn->fcong, data, len))
		few = 0;
	atomic_store_explicit(&conn->fcong.few, few, memory_order_release);
	if (unlikely(conn->relay == RDS_RELAY_MEMBER))
		rds_relay_ports_changed(conn);
	else if (rds_conn_is_node(conn))
		rds_relay_map_came(conn);
	/* we present ourselves as the TCP transport, which reports every port */
	rds_cong_updated(~0ull);
}

void rds_cong_forget(void)
{
	cong_maps = NULL;
	cong_monitors = cong_met = NULL;
}
