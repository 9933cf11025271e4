/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * socket_name.h - abstract AF_UNIX names: of stand-ins, mailboxes and carriers (inherited.c), and
 * where a process listens.
 *
 * A name is a zero byte, a prefix, and an id in hexadecimal digits. It leaves no file behind and is
 * limited to the network namespace. The kernel gives a name to one socket at a time, and frees it
 * when the last copy is closed. So any process that gets the descriptor of a stand-in recognises it
 * by the name, and the registry can ask the kernel whether an orphan still exists.
 *
 * What is said over these sockets: share/protocol.h, calls/info.h.
 */
#ifndef ENGINE_NODE_SOCKET_NAME_H
#define ENGINE_NODE_SOCKET_NAME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "engine/node/registry.h"

#define RDS_NODE_NAME_STANDIN "rds.socket."
/* a mailbox has the id of its stand-in */
#define RDS_NODE_NAME_MAILBOX "rds.inbox."
/* what carries the registry through an exec (inherited.c) */
#define RDS_NODE_NAME_REGISTRY "rds.registry."

struct sockaddr_un;
struct ucred;

socklen_t rds_node_name_address(const char *prefix, const struct rds_procid *name, struct sockaddr_un *sun);
void rds_node_name_bind(int standin, struct rds_procid *name); /* gives it a fresh name */
/* is that a stand-in, of any process? */
bool rds_node_name_read(int fd, struct rds_procid *name);
bool rds_node_name_is(int fd, const char *prefix); /* has its name that prefix? */
/* is that the other end of the stand-in of that name? */
bool rds_node_name_is_peer(int pair, const struct rds_procid *name);
bool rds_node_name_exists(const struct rds_procid *name); /* some copy of it is still open */

/*
 * The name at which a process listens. It is abstract, so it leaves no file behind and is limited
 * to the network namespace.
 */
socklen_t rds_node_listen_name(const struct rds_procid *id, struct sockaddr_un *out);
/*
 * Is there a process with that id on this host (network namespace), of any user and registry? A
 * process listens at its name as long as it can be reached. If another process listened there, it
 * could make a peer keep its messages for a process that has ended, and nothing more. True also if
 * this cannot be found out. Makes some system calls; does not wait.
 */
bool rds_node_proc_listens(const struct rds_procid *id);
/*
 * Asks the kernel whose process listens there. -ECONNREFUSED: none does. Another error: it cannot be
 * told now.
 */
int rds_node_proc_cred(const struct rds_procid *id, struct ucred *cred);
/* The same of any address, of a stream socket. */
int rds_node_name_cred(const struct sockaddr_un *name, socklen_t len, struct ucred *cred);
/*
 * May the process at the other end of this connected AF_UNIX socket exchange information with this
 * one?
 */
bool rds_node_peer_trusted(int fd);
/* ... is it of this user, or this registry? */
bool rds_node_peer_is_member(int fd);

#endif
