/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * relay_had.c - which messages of another host this process has had, whoever has relayed them.
 *
 * The owner of an address ends at any moment, and the next one has received nothing yet.  To it the
 * other host sends again what the last one's TCP has not acknowledged, which may have been relayed.  So
 * the number that the host has given to a message goes with it, and each process knows which of the last ones
 * it has had.  The highest one is not enough: a message may wait in the owner for its port to change hands,
 * while newer ones come.
 *
 * Must not know who relays.  rx held.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/conn/relay.h"

#define HOSTS_MAX 4096u
#define BUCKETS 256u /* power of 2 */
#define HAD_MAX 8192u		     /* numbers that are told apart */
#define LATE_MAX ((uint32_t)1 << 23) /* what is more behind is no older one: numbers have wrapped, or begun anew */

/* What has come from one host to an address of this one. */
struct relay_host {
	struct relay_host *next;
	struct in6_addr laddr, faddr;
	uint32_t scope;
	uint32_t gen;	 /* the host's generation then; 0: not told */
	uint32_t number; /* the highest one, as rds_relay_number(), not marked */
	struct rds_procid owner; /* who has relayed the last one */
	uint64_t had[HAD_MAX / 64];
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

/*
 * False: the message says nothing of that, or comes from a process that is not believed.  It need not be known as the
 * owner: the registry may not tell just now.
 */
static bool number_of(const struct rds_conn *conn, const struct rds_hdr *hdr, uint32_t *gen, uint32_t *number)
{
	if (conn->relay == RDS_RELAY_NODE) {
		*gen = conn->seldom ? conn->seldom->peer_gen : 0;
		*number = rds_relay_number(hdr);
		return true;
	}
	*gen = hdr->ext_rkey;
	*number = hdr->ext_offset;
	return hdr->ext_type == RDS_EXTHDR_RELAYED && conn->id.peer_slot != RDS_SLOT_REMOTE &&
	       !registry_slot_is_others(conn->id.peer_slot);
}

static uint64_t *had_word(struct relay_host *h, uint32_t number)
{
	return &h->had[(number >> 1) % HAD_MAX / 64];
}

static uint64_t had_bit(uint32_t number)
{
	return (uint64_t)1 << (number >> 1) % 64;
}

/* Of numbers that are older than those that are told apart, all count as had. */
static bool host_had(struct relay_host *h, uint32_t number)
{
	uint32_t behind = h->number - number;

	return behind <= LATE_MAX && (behind / 2 >= HAD_MAX || (*had_word(h, number) & had_bit(number)));
}

/*
 * A host that says its generation never gives a number twice.  So what comes from a former owner behind what
 * the next one has sent is a duplicate, marked or not: the next one begins with all that is not known to have
 * been taken (relay_heir.c).  Of what one owner sends only marked messages may be duplicates.
 */
bool rds_relay_had(const struct rds_conn *conn, const struct rds_hdr *hdr)
{
	struct relay_host *h;
	uint32_t gen, number;

	if (likely(!number_of(conn, hdr, &gen, &number)))
		return false;
	h = host_find(&conn->id);
	if (!h || (gen && h->gen && gen != h->gen))
		return false;
	if (!(number & 1) &&
	    (!gen || !h->gen || conn->relay == RDS_RELAY_NODE || !memcmp(&h->owner, &conn->id.peer, sizeof(h->owner))))
		return false;
	return host_had(h, number & ~1u);
}

/* Up to that one. */
static void host_go_on(struct relay_host *h, uint32_t number)
{
	if ((number - h->number) / 2 >= HAD_MAX) {
		memset(h->had, 0, sizeof(h->had));
		h->number = number;
	}
	while (h->number != number) {
		h->number += 2;
		*had_word(h, h->number) &= ~had_bit(h->number);
	}
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
	number &= ~1u;
	/* it has been accepted although it was had: the host counts from the beginning again */
	if ((gen && h->gen && gen != h->gen) || host_had(h, number)) {
		memset(h->had, 0, sizeof(h->had));
		h->number = number;
	} else if (h->number - number > LATE_MAX) {
		host_go_on(h, number);
	}
	h->gen = gen ? gen : h->gen;
	h->owner = conn->id.peer;
	*had_word(h, number) |= had_bit(number);
}

void rds_relay_had_forget(void)
{
	memset(relay_hosts, 0, sizeof(relay_hosts));
	relay_nhosts = 0;
}
