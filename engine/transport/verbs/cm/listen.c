/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * listen.c - listeners.
 *
 * Two ids listen at one port, for IPv4 and for IPv6: one id for both works with InfiniBand's
 * rdma_cm but not with every iWARP device.  They listen on the wildcard address, so addresses and
 * devices may come and go.  Requests are events of the listener: all listeners have the owner that
 * verbs_cm_start() was given.
 */
#include "engine/transport/verbs/cm/cm.h"

#define BACKLOG 1024
#define PORT_TRIES 16

static int listen_at(int family, uint16_t port, struct rdma_cm_id **out)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 sin6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct rdma_cm_id *cm;
	int only = 1, err = verbs_cm_id_new(verbs_cm.acceptor, 0, &cm);

	if (err)
		return err;
	if (family == AF_INET6)
		err = verbs_err(vb.rdma_set_option(cm, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof(only)));
	if (!err)
		err = verbs_err(
			vb.rdma_bind_addr(cm, family == AF_INET ? (struct sockaddr *)&sin : (struct sockaddr *)&sin6));
	if (!err)
		err = verbs_err(vb.rdma_listen(cm, BACKLOG));
	if (!err) {
		*out = cm;
		return 0;
	}
	vb.rdma_destroy_id(cm);
	/* with the wildcard address it can only be the port */
	return err == -EADDRNOTAVAIL ? -EADDRINUSE : err;
}

void verbs_cm_listen_stop(struct rdma_cm_id *ids[2])
{
	unsigned i;

	for (i = 0; i < 2; i++) {
		if (ids[i])
			vb.rdma_destroy_id(ids[i]);
		ids[i] = NULL;
	}
}

/* A host without IPv6 has no second listener. */
static int listen_both(uint16_t port, struct rdma_cm_id *ids[2], uint16_t *got)
{
	int err = listen_at(AF_INET, port, &ids[0]);

	if (err)
		return err;
	*got = ntohs(vb.rdma_get_src_port(ids[0]));
	err = listen_at(AF_INET6, *got, &ids[1]);
	if (err != -EADDRINUSE)
		return 0;
	verbs_cm_listen_stop(ids);
	return err;
}

int verbs_cm_listen(uint16_t port, struct rdma_cm_id *ids[2], uint16_t *got)
{
	int err, tries = port ? 1 : PORT_TRIES;

	do {
		ids[0] = ids[1] = NULL;
		err = listen_both(port, ids, got);
	} while (err == -EADDRINUSE && --tries);
	return err;
}
