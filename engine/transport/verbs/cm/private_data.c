/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * private_data.c - private data in and out (private_data.h): byte order, validity, and the version
 * that two sides have in common.
 *
 * In memory these structures are in host byte order; on the wire they are big-endian.  Received
 * data is hostile until it has been checked here; fields of data that failed the check are for the
 * log only.  Knows neither endpoints nor ids.
 */
#include <endian.h>
#include <string.h>

#include "engine/transport/verbs/cm/cm.h"

#define FRAME_UNIT 64u
#define FRAME_LEAST 16u /* in units: every version takes at least this */
/* least time between two reports: such peers try again and again */
#define CLASH_EVERY_NS (60 * 1000000000ull)

/* ---- requests ---- */

void verbs_request_init(struct verbs_request *h, enum verbs_request_kind ask, uint8_t tos)
{
	*h = (struct verbs_request){.magic = VERBS_MAGIC,
				    .version_min = VERBS_VERSION_MIN,
				    .version_max = VERBS_VERSION_MAX,
				    .ask = (uint8_t)ask,
				    .tos = tos,
				    .listener = atomic_load(&verbs_cm.port),
				    .self = *registry_self(rds_node_registry)};
}

void verbs_request_pack(const struct verbs_request *h, struct verbs_request *wire)
{
	*wire = *h;
	wire->magic = htobe32(h->magic);
	wire->port = htobe16(h->port);
	wire->listener = htobe16(h->listener);
	wire->frame = htobe16(h->frame);
	wire->credits = htobe16(h->credits);
	wire->rx_seq = htobe64(h->rx_seq);
}

static bool procid_is_none(const struct rds_procid *id)
{
	static const struct rds_procid none;

	return memcmp(id, &none, sizeof(none)) == 0;
}

enum verbs_status verbs_request_check(const void *data, unsigned len, struct verbs_request *h)
{
	memset(h, 0, sizeof(*h));
	if (len < sizeof(*h))
		return VERBS_REFUSED;
	memcpy(h, data, sizeof(*h));
	h->magic = be32toh(h->magic);
	h->port = be16toh(h->port);
	h->listener = be16toh(h->listener);
	h->frame = be16toh(h->frame);
	h->credits = be16toh(h->credits);
	h->rx_seq = be64toh(h->rx_seq);
	if (h->magic != VERBS_MAGIC || h->version_min > h->version_max)
		return VERBS_REFUSED;
	/* the meaning of the fields behind the range is not known */
	if (h->version_max < VERBS_VERSION_MIN || h->version_min > VERBS_VERSION_MAX)
		return VERBS_NO_VERSION;
	if (procid_is_none(&h->self) || !h->listener)
		return VERBS_REFUSED;
	if (h->ask == VERBS_LOCATE)
		return VERBS_OK;
	if (h->ask != VERBS_CONNECT || procid_is_none(&h->wanted) || h->frame < FRAME_LEAST)
		return VERBS_REFUSED;
	return VERBS_OK;
}

/* ---- answers ---- */

void verbs_answer_init(struct verbs_answer *a, enum verbs_status status, int err)
{
	*a = (struct verbs_answer){.magic = VERBS_MAGIC,
				   .version = VERBS_VERSION_MAX,
				   .version_min = VERBS_VERSION_MIN,
				   .status = (uint8_t)status,
				   .error = (uint8_t)(err < 0 && err >= -255 ? -err : 0),
				   .listener = atomic_load(&verbs_cm.port),
				   .self = *registry_self(rds_node_registry)};
}

void verbs_answer_pack(const struct verbs_answer *a, struct verbs_answer *wire)
{
	*wire = *a;
	wire->magic = htobe32(a->magic);
	wire->listener = htobe16(a->listener);
	wire->frame = htobe16(a->frame);
	wire->credits = htobe16(a->credits);
	wire->held = htobe16(a->held);
	wire->rx_seq = htobe64(a->rx_seq);
}

bool verbs_answer_check(const void *data, unsigned len, struct verbs_answer *a)
{
	memset(a, 0, sizeof(*a));
	if (len < sizeof(*a))
		return false;
	memcpy(a, data, sizeof(*a));
	a->magic = be32toh(a->magic);
	a->listener = be16toh(a->listener);
	a->frame = be16toh(a->frame);
	a->credits = be16toh(a->credits);
	a->held = be16toh(a->held);
	a->rx_seq = be64toh(a->rx_seq);
	if (a->magic != VERBS_MAGIC || a->status > VERBS_REFUSED)
		return false;
	if (a->status == VERBS_OK)
		return a->version >= VERBS_VERSION_MIN && a->version <= VERBS_VERSION_MAX && a->frame >= FRAME_LEAST;
	return true;
}

/* ---- behind both ---- */

void verbs_window_pack(const struct verbs_window *w, struct verbs_window *wire)
{
	wire->addr = htobe64(w->addr);
	wire->key = htobe32(w->key);
	wire->len = htobe32(w->len);
}

/* Checks the form only.  The peer's device decides at each read whether the window may be read. */
bool verbs_window_check(const void *data, unsigned len, unsigned behind, struct verbs_window *w)
{
	if (len < behind || len - behind < sizeof(*w))
		return false;
	memcpy(w, (const unsigned char *)data + behind, sizeof(*w));
	w->addr = be64toh(w->addr);
	w->key = be32toh(w->key);
	w->len = be32toh(w->len);
	return w->addr && w->len >= VERBS_PROBE && w->addr <= UINT64_MAX - w->len;
}

/* ---- what both have in common ---- */

uint16_t verbs_cm_held(struct rds_received r)
{
	return r.all - r.acked < UINT16_MAX ? (uint16_t)(r.all - r.acked) : UINT16_MAX;
}

struct rds_received verbs_cm_received(uint64_t rx_seq, uint16_t held)
{
	return (struct rds_received){.acked = rx_seq, .all = rx_seq + held};
}

uint16_t verbs_frame_units(uint32_t bytes)
{
	return (uint16_t)(bytes / FRAME_UNIT);
}

uint32_t verbs_frame_common(uint16_t theirs, uint32_t ours)
{
	uint16_t units = verbs_frame_units(ours); /* as the peer sees it */

	return (theirs < units ? theirs : units) * FRAME_UNIT;
}

void verbs_version_clash(const struct in6_addr *peer, unsigned min, unsigned max)
{
	static uint64_t said;
	uint64_t now = os_now_ns();
	char a[RDS_ADDR_STRLEN];

	if (said && now - said < CLASH_EVERY_NS)
		return;
	said = now;
	rds_ip_str(peer, a);
	rds_error("a process at %s speaks versions %u to %u of the protocol over RDMA devices, this library %u to %u: "
		  "use librdspreload.so of the same release on both hosts",
		  a, min, max, VERBS_VERSION_MIN, VERBS_VERSION_MAX);
}
