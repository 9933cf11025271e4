/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * shm.h - the shared-memory transport inside: endpoints and peers.  ring.c moves messages, wake.c decides whom to wake,
 * peer.c makes and breaks connections over the control socket.
 */
#ifndef SHM_SHM_H
#define SHM_SHM_H

#include "engine/engine.h"
#include "engine/transport/shm/layout.h"

#define SHM_HOT 4

/* A message handed to the engine in place; room comes back in order. */
struct shm_slot {
	uint64_t end;
	bool done;
};

struct shm_ep {
	struct rds_ep_head head;
	struct shm_peer *peer; /* NULL once the control socket is gone */
	struct shm_ep *peer_next;
	uint64_t cookie; /* the attempt */
	bool initiator, up, closed;
	void *map;
	size_t map_len;
	uint32_t size;	    /* of each data area, a power of two */
	uint32_t bell_here; /* our bit for it */
	uint32_t bell_there;

	/* send side (conn->tx) */
	struct shm_ring_ctl *tx;
	unsigned char *tx_data;
	uint64_t tail, flushed, seen_head, seen_acked;
	uint64_t serviced; /* acknowledgement seen when the peer was last asked for service; + 1 */
	struct shm_inbox *there; /* the peer's inbox */
	_Atomic bool room_wanted;

	/* receive side (rx) */
	struct shm_ring_ctl *rx;
	const unsigned char *rx_data;
	uint64_t freed_last; /* as relieve() saw it last */
	uint64_t read, freed, told; /* next record; room given back; ... when the sender was last told */
	struct shm_slot *slots;
	uint64_t slot_first, slot_next;
	uint32_t slot_cap;
	bool hot, broken;
};

struct shm_peer {
	struct shm_peer *next;
	struct rds_event ev; /* control socket */
	struct rds_procid id;
	uint32_t slot; /* registry */
	bool known;    /* HELLO has come */
	bool dialled;  /* by us: id and slot were known before HELLO */
	bool dead;
	_Atomic int leader_fd;
	bool leader_lasts; /* open for reading, too: never without a reader, so a write raises no SIGPIPE */
	struct shm_inbox *inbox;
	struct shm_ep *eps;
};

struct shm {
	struct rds_transport t; /* first */
	/* rx */
	struct shm_inbox *inbox;
	_Atomic int inbox_fd;
	struct shm_ep *bells[SHM_BELLS];
	uint32_t next_bell, bell_top; /* where to look for a free one; all in use are below */
	struct shm_ep *hot[SHM_HOT];
	unsigned nhot;
	bool need_bell; /* what hot rings currently say */
	bool pressed;	/* some ring is: relieve() has to look */
	/* helper */
	struct rds_event listener;
	struct shm_peer *peers;
	uint64_t next_cookie;
};
extern struct shm rds_shm;

/* ring.c */
int shm_ring_send(struct rds_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len, uint64_t *pos);
const void *shm_ring_retained(struct rds_ep *ep, uint64_t pos);
uint64_t shm_ring_acked(struct rds_ep *ep);
bool shm_ring_settled(struct rds_ep *ep);
bool shm_ring_drain(struct shm_ep *ep); /* rx held; true: something was there */
bool shm_ring_pressed(const struct shm_ep *ep);
bool shm_ring_relieve(struct shm_ep *ep, bool now);
void shm_ring_release(struct rds_ep *ep, void *token);
void shm_ring_ack(struct rds_ep *ep, uint64_t seq);
void shm_ep_free(struct shm_ep *ep); /* rx held, closed, nothing in place */

/* wake.c */
int shm_inbox_open(void);
void shm_flush(struct rds_ep *ep, bool service);
bool shm_want_room(struct rds_ep *ep, uint64_t seen_ack);
void shm_room_made(struct shm_ep *ep); /* rx held: acknowledged or freed something: tell a sender that waits */
void shm_attention(struct rds_transport *t, enum rds_attention who);
bool shm_pending(struct rds_transport *t);
bool shm_progress(struct rds_transport *t);
bool shm_relieve(struct rds_transport *t, bool now);
int shm_bell_add(struct shm_ep *ep);  /* rx held; 0 or -ENOSPC */
void shm_bell_del(struct shm_ep *ep); /* rx held */
void shm_ring_own_bell(struct shm_ep *ep); /* rx held */
void shm_kick_helper(struct shm_ep *ep);

/* peer.c */
int shm_start(struct rds_transport *t);
void shm_stop(struct rds_transport *t);
int shm_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, uint64_t rx_seq,
		struct rds_ep **ep);
void shm_close(struct rds_ep *ep);
void shm_broken(struct shm_ep *ep); /* rx held: have the helper break it */

/* setup.c: memory and packets of the control socket */
int shm_rings_create(struct shm_ep *ep, uint32_t size, int *fd);
int shm_rings_attach(struct shm_ep *ep, uint64_t size, int fd);
struct shm_inbox *shm_inbox_attach(int fd);
int shm_ctl_send(int fd, const struct shm_ctl_msg *msg, const int *fds, unsigned nfds);
/* Bytes received (0 = hang-up) or -errno; descriptors that came along are the caller's. */
ssize_t shm_ctl_recv(int fd, struct shm_ctl_msg *msg, int fds[2], unsigned *nfds);

#endif
