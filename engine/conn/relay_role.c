/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * relay_role.c - who is the owner of a local address (relay.c)?
 *
 * That is in the registry: the process that has bound port 1 of the address, which no program can bind.  So the role
 * passes on as ports do, whatever way its owner ends.
 *
 * Between two owners there is none for a moment.  Messages to other hosts wait then as if there were one, and no
 * process that ends, and no socket that is closed, gives them up.
 *
 * Must not know how a process becomes the owner (progress/node_role.c), nor what is relayed.  control held.
 */
#include <string.h>

#include "engine/conn/client.h"
#include "engine/conn/relay.h"

#define ROLE_TELLS 1 /* its rcvbuf; in older versions 0 */
#define PASSED_ON_NS (2000 * 1000000ull)

_Atomic uint64_t rds_relay_since_ns;
static uint64_t owner_until; /* until then some address has another owner, or gets one; 0: none ever had */
static unsigned owners_soon; /* addresses of which this process is about to know */

static uint32_t role_scope(const struct in6_addr *laddr, uint32_t scope)
{
	return IN6_IS_ADDR_LINKLOCAL(laddr) ? scope : 0;
}

void rds_relay_owner_soon(bool *is, bool soon)
{
	owners_soon += (unsigned)soon - (unsigned)*is;
	*is = soon;
}

void rds_relay_owner_seen(void)
{
	owner_until = os_now_ns() + PASSED_ON_NS;
}

/* Another process that lives. */
static bool role_owner(const struct in6_addr *laddr, uint32_t scope, struct registry_owner *own)
{
	bool is = registry_lookup(rds_node_registry, laddr, RDS_RELAY_ROLE_PORT, role_scope(laddr, scope), own) == 0 &&
		  own->proc != REGISTRY_NOBODY &&
		  memcmp(&own->procid, registry_self(rds_node_registry), sizeof(own->procid)) != 0 &&
		  registry_proc_alive(rds_node_registry, own->proc, &own->procid);

	if (is)
		rds_relay_owner_seen();
	return is;
}

pid_t rds_relay_owner_pid(const struct in6_addr *laddr, uint32_t scope)
{
	struct registry_owner own;

	return role_owner(laddr, scope, &own) ? own.pid : 0;
}

bool rds_relay_owner(const struct in6_addr *laddr, uint32_t scope, struct rds_conn_id *id)
{
	struct registry_owner own;

	if (!role_owner(laddr, scope, &own))
		return false;
	id->peer = own.procid;
	id->peer_slot = own.proc;
	id->peer_port = 0;
	return true;
}

uint8_t rds_relay_owner_tells(const struct rds_conn_id *id)
{
	struct registry_mailbox m = {0};
	struct registry_owner own;

	if (role_owner(&id->laddr, id->scope, &own) && !memcmp(&own.procid, &id->peer, sizeof(id->peer)))
		registry_sock_mailbox(rds_node_registry, own.sock, &m);
	return m.rcvbuf == ROLE_TELLS ? RDS_NODE_TOLD : 0;
}

struct rds_conn *rds_relay_way(const struct rds_conn_id *between)
{
	struct rds_conn_id id = {.laddr = between->laddr,
				 .faddr = between->faddr,
				 .scope = between->scope,
				 .peer_slot = RDS_SLOT_REMOTE};
	struct rds_conn *conn = rds_conn_find(RDS_CONN_PEER, &id);

	if (conn || likely(!owner_until) || !rds_relay_owner(&id.laddr, id.scope, &id))
		return conn;
	return rds_conn_find(RDS_CONN_PEER, &id);
}

/*
 * The former owner has ended, and what it has not taken is still on its way to it: newer messages wait.
 */
bool rds_relay_still_held(const struct rds_conn_id *id)
{
	struct rds_conn *conn;
	bool held = false;

	for (conn = rds_conn_list; conn && !held; conn = conn->next) {
		if (conn->relay != RDS_RELAY_OWNER || !rds_conn_between(conn, id) ||
		    atomic_load(&conn->state) == RDS_CONN_DEAD || !memcmp(&conn->id.peer, &id->peer, sizeof(id->peer)))
			continue;
		rds_relay_owner_seen();
		rds_lock(&conn->tx);
		rds_queue_reap(conn);
		held = conn->count || conn->queue;
		rds_unlock(&conn->tx);
	}
	return held;
}

/* The kernel may keep the owner's port for a moment after its end. */
bool rds_relay_is_passed_on(void)
{
	return owners_soon || (owner_until && os_now_ns() < owner_until);
}

void rds_relay_warn_taken(const struct in6_addr *laddr)
{
	char at[RDS_ADDR_STRLEN];

	rds_warn_once("TCP port 16385 of %s is taken, by the kernel's rds_tcp (rmmod rds_tcp) or by a process with "
		      "another registry or of another user: no other host is reached from there, and messages to "
		      "one wait",
		      rds_ip_str(laddr, at));
}

int rds_relay_take(const struct in6_addr *laddr, uint32_t scope, uint32_t *role)
{
	uint16_t port;
	int err = registry_sock_add(rds_node_registry, 0, 0, ROLE_TELLS, role);

	if (err)
		return err;
	err = registry_sock_bind(rds_node_registry, *role, laddr, RDS_RELAY_ROLE_PORT, role_scope(laddr, scope),
				 RDS_TRANS_TCP, &port);
	if (err)
		registry_sock_remove(rds_node_registry, *role);
	else
		atomic_store(&rds_relay_since_ns, os_now_ns());
	return err;
}

void rds_relay_give_back(uint32_t role)
{
	registry_sock_remove(rds_node_registry, role);
}

bool rds_relay_is_role(uint16_t port)
{
	return port == RDS_RELAY_ROLE_PORT;
}

void rds_relay_role_forget(void)
{
	owner_until = 0;
	owners_soon = 0;
	atomic_store(&rds_relay_since_ns, 0);
}
