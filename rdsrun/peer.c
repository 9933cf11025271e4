/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * peer.c - another host is asked (peer.h).
 *
 * A ping is what tells whether RDS answers.  Only if none comes back, a TCP connection of our own tells
 * why: rds_tcp takes every connection for one of the node whose address it has, so it must do no harm.
 *
 *	FROM is the larger address	A connection that is closed at once is a request to connect, which
 *					the library makes, too, when it sends the ping.
 *	FROM is the smaller one		The connection may become the node's.  What waits over there for
 *					FROM would be sent to it, and be lost once our TCP has
 *					acknowledged it.  But the congestion map goes first on each
 *					connection, and our receive buffer is too small for the map.  So no
 *					message is acknowledged: all of them are sent again.
 */
#include "rdsrun/peer.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rdsrun/hold.h"
#include "rdsrun/ping.h"
#include "rds_preload_info.h"

#define PINGS 5
#define SOON_MS 1000	  /* for the first pong, before TCP is asked why there is none */
#define PATIENCE_MS 5000  /* for every pong */
#define HEAR_MS 1000	  /* for the first bytes of a TCP connection */
#define SMALL_BUFFER 2048 /* a congestion map has 8192 bytes */
#define MAP_LEN_AT 16	  /* in a header: 32 bits, and the flags at */
#define MAP_FLAGS_AT 24
#define NO_ANSWER "no answer: "

enum { GO_ON = -1, EXIT_USAGE = 2 };

/* ---- pings ---- */

static int double_compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Its first message has told, before any pong came. */
static void tell_kind(int fd, const struct addr *local, const struct addr *peer)
{
	struct in6_addr laddr = addr_ip(local), faddr = addr_ip(peer);
	struct rds_preload_info_node rec;
	size_t n, i;
	int each;
	unsigned char *recs = hold_info(fd, RDS_PRELOAD_INFO_NODES, &n, &each);

	for (i = 0; recs && i < n; i++) {
		memcpy(&rec, recs + i * (size_t)each, sizeof(rec));
		if (memcmp(&rec.laddr, &laddr, sizeof(laddr)) != 0 || memcmp(&rec.faddr, &faddr, sizeof(faddr)) != 0)
			continue;
		if (rec.paths == 1)
			puts("there: this library, one path");
		else if (rec.paths)
			printf("there: the kernel's RDS, which offers %u paths; one is used\n", rec.paths);
		else
			puts("there: an older kernel's RDS, which says nothing of paths");
	}
	free(recs);
}

/* The first one has been answered. */
static int pings_more(int fd, const struct addr *local, const struct addr *peer, double first)
{
	double took[PINGS], since;

	for (unsigned i = 0; i < PINGS; i++) {
		since = ping_now_ms();
		if (!ping_send(fd, peer) || !ping_answered(fd, peer, since + PATIENCE_MS)) {
			printf("no answer any more, after %u pings\n", i + 1);
			return EXIT_FAILURE;
		}
		took[i] = ping_now_ms() - since;
	}
	qsort(took, PINGS, sizeof(took[0]), double_compare);
	printf("answers: round trip min %.3f ms, median %.3f ms, of %d pings; the first, which may connect, %.3f ms\n",
	       took[0], took[PINGS / 2], PINGS, first);
	tell_kind(fd, local, peer);
	return EXIT_SUCCESS;
}

/* ---- why there is no answer ---- */

enum heard { HEARD_NOTHING, HEARD_RDS, HEARD_END, HEARD_OTHER };

/* A congestion map comes first from an RDS node.  It is looked at and not taken: the buffer stays full. */
static enum heard tcp_hear(int fd)
{
	unsigned char hdr[48];
	ssize_t n;
	uint32_t len;

	if (!ping_fd_wait(fd, POLLIN, ping_now_ms() + HEAR_MS))
		return HEARD_NOTHING;
	n = recv(fd, hdr, sizeof(hdr), MSG_PEEK | MSG_DONTWAIT);
	if (n <= 0)
		return HEARD_END;
	if ((size_t)n < sizeof(hdr))
		return HEARD_OTHER;
	memcpy(&len, hdr + MAP_LEN_AT, sizeof(len));
	return ntohl(len) == 8192 && hdr[MAP_FLAGS_AT] == 1 ? HEARD_RDS : HEARD_OTHER;
}

/* 0 or an errno. */
static int tcp_try(const struct addr *local, const struct addr *peer, double until, enum heard *heard)
{
	struct addr to = *peer;
	int fd = hold_tcp_socket(local), small = SMALL_BUFFER, err = 0;
	socklen_t len = sizeof(err);

	if (fd < 0)
		return errno;
	addr_set_port(&to, RDS_TCP_PORT);
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) < 0 ||
	    bind(fd, &local->u.sa, local->len) < 0 || (connect(fd, &to.u.sa, to.len) < 0 && errno != EINPROGRESS))
		err = errno;
	else if (!ping_fd_wait(fd, POLLOUT, until))
		err = ETIMEDOUT;
	else
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (!err && addr_compare(local, peer) < 0)
		*heard = tcp_hear(fd);
	close(fd);
	return err;
}

static void explain_error(const struct addr *peer, int err)
{
	fputs(NO_ANSWER, stdout);
	switch (err) {
	case ECONNREFUSED:
		printf("nothing listens at TCP port %u of %s: start a program there, without RDS_PRELOAD_TCP=0, "
		       "or `rdsrun --hold %s`, or load the kernel's RDS (modprobe rds_tcp); or a firewall refuses\n",
		       RDS_TCP_PORT, peer->text, peer->text);
		break;
	case ETIMEDOUT:
		printf("nothing comes back from TCP port %u of %s: that host is down, or a firewall drops it\n",
		       RDS_TCP_PORT, peer->text);
		break;
	case ENETUNREACH:
	case EHOSTUNREACH:
		printf("no way to %s (%s): that host is down, or a firewall refuses\n", peer->text, strerror(err));
		break;
	case EACCES:
	case EPERM:
		printf("this host does not let TCP connect to %s (%s): a firewall or another policy here\n", peer->text,
		       strerror(err));
		break;
	default:
		printf("TCP does not connect to port %u of %s: %s\n", RDS_TCP_PORT, peer->text, strerror(err));
	}
}

static bool is_connected(int fd, const struct addr *local, const struct addr *peer)
{
	struct in6_addr laddr = addr_ip(local), faddr = addr_ip(peer);
	struct rds6_info_connection rec;
	bool connected = false;
	size_t n, i;
	int each;
	unsigned char *recs = hold_info(fd, RDS6_INFO_CONNECTIONS, &n, &each);

	for (i = 0; recs && i < n; i++) {
		memcpy(&rec, recs + i * (size_t)each, offsetof(struct rds6_info_connection, tos));
		connected |= !memcmp(&rec.laddr, &laddr, sizeof(laddr)) && !memcmp(&rec.faddr, &faddr, sizeof(faddr)) &&
			     (rec.flags & RDS_INFO_CONNECTION_FLAG_CONNECTED);
	}
	free(recs);
	return connected;
}

/* TCP reaches the port, and no pong comes. */
static void explain_silence(int fd, const struct addr *local, const struct addr *peer, enum heard heard)
{
	fputs(NO_ANSWER, stdout);
	if (is_connected(fd, local, peer))
		printf("an RDS connection to %s stands, but pings are not answered: that host is very slow, or does "
		       "not want to (/proc/sys/net/rds/ping_enable)\n",
		       peer->text);
	else if (addr_compare(local, peer) > 0)
		printf("TCP port %u of %s takes connections, but %s does not connect back, as RDS with the smaller "
		       "address has to: TCP port %u of %s must be open to it (firewall); or it is not RDS\n",
		       RDS_TCP_PORT, peer->text, peer->text, RDS_TCP_PORT, local->text);
	else if (heard == HEARD_END)
		printf("%s closes connections from %s at once, as RDS does that knows another one, or still ends it: "
		       "try again in a minute; or it is not RDS\n",
		       peer->text, local->text);
	else if (heard == HEARD_RDS)
		printf("RDS listens at TCP port %u of %s, but does not come to answer: try again in a minute\n",
		       RDS_TCP_PORT, peer->text);
	else
		printf("what listens at TCP port %u of %s %s not RDS\n", RDS_TCP_PORT, peer->text,
		       heard == HEARD_OTHER ? "is" : "says nothing: it is stopped, or");
}

/* ---- check ---- */

static int check_ping(int fd, const struct addr *local, const struct addr *peer)
{
	double since = ping_now_ms();
	enum heard heard = HEARD_NOTHING;
	int err;

	if (!ping_send(fd, peer)) {
		printf(NO_ANSWER "a ping to %s cannot be sent: %s\n", peer->text, strerror(errno));
		return EXIT_FAILURE;
	}
	if (ping_answered(fd, peer, since + SOON_MS))
		return pings_more(fd, local, peer, ping_now_ms() - since);
	err = tcp_try(local, peer, since + PATIENCE_MS, &heard);
	if (!err && ping_answered(fd, peer, since + PATIENCE_MS))
		return pings_more(fd, local, peer, ping_now_ms() - since);
	if (err)
		explain_error(peer, err);
	else
		explain_silence(fd, local, peer, heard);
	/* it is not waited for when this process ends */
	setsockopt(fd, SOL_RDS, RDS_CANCEL_SENT_TO, &peer->u, peer->len);
	return EXIT_FAILURE;
}

/* Both addresses; `from` may be NULL.  GO_ON, or the status with which to end. */
static int check_addresses(const char *name, const char *from, struct addr *peer, struct addr *local)
{
	const char *why = from ? addr_resolve(from, AF_UNSPEC, local) : NULL;
	struct addr routed;
	int err;

	if (why) {
		fprintf(stderr, "rdsrun: --from: %s: %s\n", from, why);
		return EXIT_USAGE;
	}
	why = addr_resolve(name, from ? local->u.sa.sa_family : AF_UNSPEC, peer);
	if (why) {
		printf(NO_ANSWER "%s: %s\n", name, why);
		return EXIT_FAILURE;
	}
	if (strcmp(name, peer->text) != 0)
		printf("%s is %s\n", name, peer->text);
	err = ping_route(peer, &routed);
	if (!err && addr_compare(&routed, peer) == 0) {
		printf(NO_ANSWER "%s is this host itself: its programs reach each other without TCP\n", peer->text);
		return EXIT_FAILURE;
	}
	if (from)
		return GO_ON;
	*local = routed;
	if (!err)
		return GO_ON;
	printf(NO_ANSWER "no way to %s: %s\n", peer->text, strerror(err));
	return EXIT_FAILURE;
}

int peer_check(const char *name, const char *from)
{
	struct addr peer, local;
	enum hold_role role;
	int fd, status;

	setvbuf(stdout, NULL, _IOLBF, 0);
	status = check_addresses(name, from, &peer, &local);
	if (status != GO_ON)
		return status;
	fd = hold_bind(stdout, NO_ANSWER, &local);
	if (fd < 0)
		return EXIT_FAILURE;
	printf("from %s to %s; %s connects, as the smaller address\n", local.text, peer.text,
	       addr_compare(&local, &peer) < 0 ? local.text : peer.text);
	role = hold_role(fd, &local);
	if (role == HOLD_MEMBER)
		printf("another process has the connections of %s, and forwards\n", local.text);
	if (role != HOLD_NONE)
		return check_ping(fd, &local, &peer);
	hold_explain(stdout, NO_ANSWER, &local);
	return EXIT_FAILURE;
}
