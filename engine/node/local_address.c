/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * local_address.c - does an address belong to this host?
 *
 * The kernel's RDS asks its routing table. In user space two datagram sockets that never send
 * anything give the same answer. bind() refuses an address that is configured nowhere. connect() to
 * the address itself gets that address as the source only if it is a local one. The second check is
 * needed where bind() alone accepts subnet broadcasts, or every address (ip_nonlocal_bind).
 *
 * Only a positive answer is remembered: a program that waits for an address to appear must see it
 * at once.
 */
#include "engine/node/local_address.h"

#include <errno.h>
#include <stdatomic.h>

#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "engine/wire/addr.h"

#define REMEMBER_NS UINT64_C(1000000000)
#define REMEMBERED 8
#define PORT_DISCARD 9 /* any port will do, nothing is sent */

static struct {
	struct in6_addr ip;
	uint32_t scope;
	uint64_t until;
} cache[REMEMBERED];
static unsigned cache_next;

/*
 * Threads only try to take it: a fork may leave it locked for ever in the child, which then asks
 * the kernel each time.
 */
static atomic_flag cache_busy = ATOMIC_FLAG_INIT;

static bool addr_cache_hit(const struct in6_addr *ip, uint32_t scope, uint64_t now)
{
	bool hit = false;

	if (atomic_flag_test_and_set_explicit(&cache_busy, memory_order_acquire))
		return false;
	for (unsigned i = 0; i < REMEMBERED && !hit; i++)
		hit = now < cache[i].until && cache[i].scope == scope && rds_ip_equal(&cache[i].ip, ip);
	atomic_flag_clear_explicit(&cache_busy, memory_order_release);
	return hit;
}

static void addr_cache_put(const struct in6_addr *ip, uint32_t scope, uint64_t now)
{
	if (atomic_flag_test_and_set_explicit(&cache_busy, memory_order_acquire))
		return;
	cache[cache_next].ip = *ip;
	cache[cache_next].scope = scope;
	cache[cache_next].until = now + REMEMBER_NS;
	cache_next = (cache_next + 1) % REMEMBERED;
	atomic_flag_clear_explicit(&cache_busy, memory_order_release);
}

static bool sockaddr_ip_equal(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return rds_ip_equal(&((const struct sockaddr_in6 *)a)->sin6_addr, &((const struct sockaddr_in6 *)b)->sin6_addr);
}

static int probe_socket(int family)
{
	int fd = os_socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd == -EAFNOSUPPORT || fd == -EPROTONOSUPPORT)
		return -EADDRNOTAVAIL; /* no such family on this host, so no such address */
	if (fd < 0) {
		rds_error("cannot check a local address, because no socket can be opened: %s",
			  fd == -EMFILE ? RDS_LOG_EMFILE : strerror(-fd));
		return -ENOMEM;
	}
	return fd;
}

/* Would bind() accept it? */
static int probe_bind(const struct sockaddr_storage *ss, socklen_t len)
{
	int fd = probe_socket(ss->ss_family);
	int ret;

	if (fd < 0)
		return fd;
	ret = os_bind(fd, (const struct sockaddr *)ss, len);
	os_close(fd);
	return ret ? -EADDRNOTAVAIL : 0;
}

/*
 * Judges a failed connect() to the address itself. EACCES: a broadcast address. No route in IPv4,
 * where every local address has one: it is not local (bind() accepts every address in a namespace
 * without any address). Other errors, and IPv6 while the loopback device is down, say nothing: then
 * the result of bind() counts.
 */
static int probe_judge_failure(int err, sa_family_t family)
{
	if (err == -EACCES)
		return -EADDRNOTAVAIL;
	return family == AF_INET && (err == -ENETUNREACH || err == -EINVAL) ? -EADDRNOTAVAIL : 0;
}

/*
 * Can the address be the source of a packet to itself? An IPv4 socket has to be bound to it first:
 * the route to an interface's second address in a subnet names the first one as the preferred
 * source, and connect() checks a source that is given. An IPv6 socket must not be bound: a given
 * source is not checked there, and the preferred one is the address itself.
 */
static int probe_route(const struct sockaddr_storage *ss, const struct sockaddr_storage *dest, socklen_t len)
{
	struct sockaddr_storage src = {0};
	socklen_t slen = sizeof(src);
	int fd = probe_socket(ss->ss_family);
	int ret;

	if (fd < 0)
		return fd;
	/* if it fails by now, the comparison below says no */
	if (ss->ss_family == AF_INET)
		os_bind(fd, (const struct sockaddr *)ss, len);
	ret = os_connect(fd, (const struct sockaddr *)dest, len);
	if (ret)
		ret = probe_judge_failure(ret, ss->ss_family);
	else if (!os_getsockname(fd, (struct sockaddr *)&src, &slen) && !sockaddr_ip_equal(&src, ss))
		ret = -EADDRNOTAVAIL;
	os_close(fd);
	return ret;
}

int rds_node_addr_is_local(const struct in6_addr *ip, uint32_t scope)
{
	struct sockaddr_storage ss, dest;
	uint64_t now;
	socklen_t len;
	int ret;

	if (rds_ip_is_loopback(ip))
		return 0;
	now = os_now_ns();
	if (addr_cache_hit(ip, scope, now))
		return 0;
	len = rds_addr_to_sockaddr(ip, 0, scope, &ss);
	rds_addr_to_sockaddr(ip, PORT_DISCARD, scope, &dest);
	ret = probe_bind(&ss, len);
	if (!ret)
		ret = probe_route(&ss, &dest, len);
	if (!ret)
		addr_cache_put(ip, scope, now);
	return ret;
}

bool rds_node_addr_has_way(const struct in6_addr *from, const struct in6_addr *to, uint32_t scope)
{
	struct sockaddr_storage src, dest;
	socklen_t len = rds_addr_to_sockaddr(from, 0, scope, &src);
	int fd = probe_socket(src.ss_family), err;

	if (fd < 0)
		return true;
	os_bind(fd, (const struct sockaddr *)&src, len);
	len = rds_addr_to_sockaddr(to, PORT_DISCARD, scope, &dest);
	err = os_connect(fd, (const struct sockaddr *)&dest, len);
	os_close(fd);
	return err != -ENETUNREACH && err != -EHOSTUNREACH;
}
