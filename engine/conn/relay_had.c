/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * relay_had.c - which messages of another host this process has had, whoever has relayed them.
 *
 * The owner of an address ends at any moment, and the next one has received nothing yet.  To it the
 * other host sends again what the last one's TCP has not acknowledged, which may have been relayed.  So
 * the number that the host has given to a message goes with it, and each process knows the highest one
 * that it has had: a message with a lower one that is sent again is a duplicate, as in net/rds/recv.c.
 *
 * Must not know who relays.  rx held.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/conn/relay.h"

#define HOSTS_MAX 4096u
#define BUCKETS 256u /* power of 2 */

/* What has come from one host to an address of this one. */
struct relay_host {
	struct relay_host *next;
	struct in6_addr laddr, faddr;
	uint32_t scope;
	uint32_t gen;	 /* the host's generation then; 0: not told */
	uint32_t number; /* as rds_relay_number(), not marked */
};

static struct relay_host *relay_hosts[BUCKETS];
static unsigned relay_nhosts;

uint32_t rds_relay_number(const struct rds_hdr *hdr)
{
	return (uint32_t)hdr->seq << 1 | !!(hdr->flags & RDS_FLAG_RETRANSMITTED);
}

static struct relay_host **host_bucket(const struct rds_conn_id *id)
{
	uint32_t h = (id->laddr.s6_addr32[3] ^ id->faddr.s6_addr32[3] ^ id->faddr.s6_addr32[2]) * 0x9e3779b1u;

	return &relay_hosts[h >> 24];
}

static struct relay_host *host_find(const struct rds_conn_id *id)
{
	struct relay_host *h = *host_bucket(id);

	while (h &&
	       !(rds_ip_equal(&h->faddr, &id->faddr) && rds_ip_equal(&h->laddr, &id->laddr) && h->scope == id->scope))
		h = h->next;
	return h;
}

/* Without memory, or with too many hosts, a duplicate would be taken. */
static struct relay_host *host_make(const struct rds_conn_id *id)
{
	struct relay_host **bucket = host_bucket(id);
	struct relay_host *h = relay_nhosts < HOSTS_MAX ? calloc(1, sizeof(*h)) : NULL;

	if (!h)
		return NULL;
	*h = (struct relay_host){.next = *bucket, .laddr = id->laddr, .faddr = id->faddr, .scope = id->scope};
	*bucket = h;
	relay_nhosts++;
	return h;
}

/* False: the message says nothing of that. */
static bool number_of(const struct rds_conn *conn, const struct rds_hdr *hdr, uint32_t *gen, uint32_t *number)
{
	if (conn->relay == RDS_RELAY_NODE) {
		*gen = conn->seldom ? conn->seldom->peer_gen : 0;
		*number = rds_relay_number(hdr);
		return true;
	}
	*gen = hdr->ext_rkey;
	*number = hdr->ext_offset;
	return hdr->ext_type == RDS_EXTHDR_RELAYED;
}

/*
 * A host that says its generation never gives a number twice.  So what comes from a former owner behind what
 * the next one has sent is a duplicate, marked or not: the next one begins with all that is not known to have
 * been taken (relay_heir.c).
 */
bool rds_relay_had(const struct rds_conn *conn, const struct rds_hdr *hdr)
{
	const struct relay_host *h;
	uint32_t gen, number;

	if (likely(!number_of(conn, hdr, &gen, &number)))
		return false;
	h = host_find(&conn->id);
	if (!h || (gen && h->gen && gen != h->gen))
		return false;
	return ((number & 1) || (gen && h->gen && conn->relay == RDS_RELAY_OWNER)) &&
	       (int32_t)((number & ~1u) - h->number) <= 0;
}

void rds_relay_note(const struct rds_conn *conn, const struct rds_hdr *hdr)
{
	struct relay_host *h;
	uint32_t gen, number;

	if (!number_of(conn, hdr, &gen, &number))
		return;
	h = host_find(&conn->id);
	if (!h)
		h = host_make(&conn->id);
	if (!h)
		return;
	h->gen = gen ? gen : h->gen;
	h->number = number & ~1u;
}

void rds_relay_had_forget(void)
{
	memset(relay_hosts, 0, sizeof(relay_hosts));
	relay_nhosts = 0;
}
