/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fragment.c - messages that are too long for their ring, which is smaller than usual: they go in
 * fragments.
 *
 * The sender copies such a message to the heap, and so has taken it.  It puts fragments into the
 * ring as there is room: at once, and then each time the peer has made some (ops->push).  Until the
 * last one is there the ring counts as full for all other messages, since it keeps their order.
 * The copy is what the ring is for shorter messages: the bytes are there until they are
 * acknowledged.
 *
 * The receiver puts the message together on the heap.  Fragments hold no room of the ring once they
 * are copied.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/sys/cpu.h"
#include "engine/transport/shm/shm.h"

/* ---- send side (conn->tx) ---- */

struct shm_long {
	struct shm_long *next;
	uint64_t pos, seq;
	uint32_t len, placed;
	struct rds_wire_hdr hdr;
	unsigned char data[];
};

/* Several lie in the ring at a time, so that both sides work at once. */
static uint32_t fragment_most(const struct shm_ep *ep)
{
	return ep->size / 8 - (uint32_t)sizeof(struct shm_rec);
}

static void long_place(struct shm_ep *ep)
{
	struct shm_long *l = ep->unplaced;
	uint32_t n;

	ep->unplaced = NULL; /* the ring's room is for this one */
	while (l->placed < l->len) {
		n = l->len - l->placed;
		if (n > fragment_most(ep))
			n = fragment_most(ep);
		if (!shm_ring_fragment(ep, &l->hdr, l->data + l->placed, n))
			break;
		l->placed += n;
	}
	if (l->placed == l->len)
		return;
	ep->unplaced = l;
	ep->seen_head = ep->tail - ep->size; /* for all others the ring is full */
}

/* Room that appears between a refusal and want_room() is not announced. */
static void long_place_waiting(struct shm_ep *ep)
{
	struct rds_ep *rep = (struct rds_ep *)ep;

	long_place(ep);
	shm_flush(rep, true);
	if (!ep->unplaced)
		return;
	shm_want_room(rep, ep->seen_acked);
	long_place(ep);
	shm_flush(rep, true);
}

void shm_long_push(struct rds_ep *rep)
{
	struct shm_ep *ep = (struct shm_ep *)rep;

	if (ep->unplaced)
		long_place_waiting(ep);
}

int shm_long_send(struct shm_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len, uint64_t *pos)
{
	struct shm_long *l, **at = &ep->longs;

	/* a message that has begun is taken: its sender does not wait any more */
	if (ep->unplaced || !shm_ring_has_room(ep, fragment_most(ep)))
		return -EAGAIN;
	l = malloc(sizeof(*l) + len);
	if (!l) {
		shm_recheck_memory(ep);
		return -EAGAIN;
	}
	ep->last_long += 2; /* odd, so it is no position in the ring */
	*l = (struct shm_long){
		.pos = ep->last_long + 1, .seq = be64toh(hdr->sequence), .len = (uint32_t)len, .hdr = *hdr};
	rds_copy_gather(l->data, iov, len);
	while (*at)
		at = &(*at)->next;
	*at = l;
	*pos = l->pos;
	ep->unplaced = l;
	long_place_waiting(ep);
	return 0;
}

const void *shm_long_retained(const struct shm_ep *ep, uint64_t pos)
{
	const struct shm_long *l = ep->longs;

	while (l && l->pos != pos)
		l = l->next;
	return l ? l->data : NULL;
}

/* An acknowledgement of what was not sent is none: the engine keeps its messages. */
void shm_longs_acked(struct shm_ep *ep, uint64_t acked)
{
	struct shm_long *l;

	if (acked > ep->head.t->up->sent(ep->head.conn))
		return;
	while ((l = ep->longs) && l != ep->unplaced && l->seq <= acked) {
		ep->longs = l->next;
		free(l);
	}
}

/* ---- receive side (rx) ---- */

struct shm_assembly {
	uint64_t seq;
	uint32_t len, got;
	unsigned char *data;
};

static struct shm_assembly *assembly_new(const struct rds_hdr *hdr)
{
	struct shm_assembly *a = malloc(sizeof(*a));

	if (!a)
		return NULL;
	*a = (struct shm_assembly){.seq = hdr->seq, .len = hdr->len, .data = malloc(hdr->len)};
	if (a->data)
		return a;
	free(a);
	rds_error("out of memory for a message of %u bytes: its sender has to wait", hdr->len);
	return NULL;
}

/* All of it has come. */
static bool assembly_give(struct shm_ep *ep, struct shm_assembly *a, const struct rds_hdr *hdr)
{
	struct rds_rx rx = {.hdr = *hdr, .data = a->data, .owned = a->data, .last = ep->last};
	enum rds_rx_verdict v = ep->head.t->up->message(ep->head.conn, (struct rds_ep *)ep, &rx);

	if (v >= RDS_RX_LATER) {
		shm_ring_put_off(ep, v);
		return false;
	}
	ep->assembly = NULL;
	if (v == RDS_RX_DONE)
		free(a->data);
	free(a);
	return true;
}

bool shm_fragment_take(struct shm_ep *ep, const volatile struct shm_rec *rec, uint32_t len)
{
	uint32_t n = len - (uint32_t)sizeof(*rec);
	struct shm_assembly *a = ep->assembly;
	struct rds_hdr hdr;

	if (rds_wire_hdr_decode((const void *)&rec->hdr, &hdr) || !hdr.len)
		return shm_ring_bad(ep, "header of a fragment");
	if (!a)
		a = ep->assembly = assembly_new(&hdr);
	if (a && (a->len != hdr.len || a->seq != hdr.seq))
		return shm_ring_bad(ep, "fragments of two messages");
	if (a && n > a->len - a->got)
		n = a->len - a->got;
	if (a)
		memcpy(a->data + a->got, (const void *)(rec + 1), n);
	if (a && a->got + n < a->len) {
		a->got += n;
		return true;
	}
	if (!a || !assembly_give(ep, a, &hdr)) {
		ep->read -= len; /* not now: it stays in the ring */
		return false;
	}
	return !ep->broken;
}

void shm_longs_free(struct shm_ep *ep)
{
	struct shm_long *l;

	while ((l = ep->longs)) {
		ep->longs = l->next;
		free(l);
	}
	if (ep->assembly)
		free(ep->assembly->data);
	free(ep->assembly);
}
