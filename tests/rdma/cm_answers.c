/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cm_answers.c - does the connection manager of an RDMA device answer?  Plain rdma_cm, without RDS.
 *
 *   cm_answers FROM TO	asks at TO, an address of this host, for a connection at a port where nobody
 *                         listens
 *
 * Soft RoCE's connection manager stops answering for good when a datagram of its own could not be
 * sent, because its address or its interface was gone at that moment.  Its queue pair (GSI, in
 * `rdma resource show qp`) is then in error, or seems well to the kernel but receives nothing.  No
 * connection comes up on that device until it is made anew.  A test that takes addresses away has
 * to know.
 *
 * Exit status: 0 there was an answer, 1 none within five seconds, 2 it could not be asked (the
 * reason is printed).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define NOBODYS_PORT 9
#define STEP_MS 5000

static void fail(const char *what)
{
	fprintf(stderr, "cm_answers: %s: %s\n", what, strerror(errno));
	exit(2);
}

/* The next thing that is said, or -1: nothing in time. */
static int next(struct rdma_event_channel *channel)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *ev;
	int what;

	if (poll(&p, 1, STEP_MS) < 1)
		return -1;
	if (rdma_get_cm_event(channel, &ev))
		fail("rdma_get_cm_event");
	what = ev->event;
	rdma_ack_cm_event(ev);
	return what;
}

static void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	int got = next(channel);

	if (got == (int)wanted)
		return;
	fprintf(stderr, "cm_answers: %s\n", got < 0 ? "neither address nor route in time" : rdma_event_str(got));
	exit(2);
}

static struct sockaddr_in address(const char *ip, uint16_t port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};

	if (inet_pton(AF_INET, ip, &sin.sin_addr) != 1) {
		fprintf(stderr, "cm_answers: %s is no address\n", ip);
		exit(2);
	}
	return sin;
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = {0};
	struct sockaddr_in from, to;
	struct rdma_cm_id *id = NULL;

	if (argc != 3) {
		fprintf(stderr, "usage: cm_answers FROM TO\n");
		return 2;
	}
	from = address(argv[1], 0);
	to = address(argv[2], NOBODYS_PORT);
	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		fail("rdma_create_id");
	if (rdma_resolve_addr(id, (struct sockaddr *)&from, (struct sockaddr *)&to, STEP_MS))
		fail("rdma_resolve_addr");
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(id, STEP_MS))
		fail("rdma_resolve_route");
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	if (rdma_create_qp(id, NULL, &attr))
		fail("rdma_create_qp");
	if (rdma_connect(id, &param))
		/* iWARP knows at once */
		return errno == ECONNREFUSED ? 0 : (perror("cm_answers: rdma_connect"), 2);
	return next(channel) < 0;
}
