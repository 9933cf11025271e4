/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * port_set.h - a set of ports, one bit for each. For a walk over messages that makes one decision
 * for each port and not for each message.
 *
 * The user of a set removes each port that it added. So the set is empty between two walks and need
 * not be cleared as a whole, which takes longer.
 */
#ifndef ENGINE_WIRE_PORT_SET_H
#define ENGINE_WIRE_PORT_SET_H

#include <stdbool.h>
#include <stdint.h>

struct rds_port_set {
	uint8_t bits[65536 / 8];
};

static inline bool rds_port_set_has(const struct rds_port_set *set, uint16_t port)
{
	return set->bits[port / 8] >> port % 8 & 1;
}

/* False: the port was in the set already. */
static inline bool rds_port_set_add(struct rds_port_set *set, uint16_t port)
{
	bool new = !rds_port_set_has(set, port);

	set->bits[port / 8] |= (uint8_t)(1u << port % 8);
	return new;
}

static inline void rds_port_set_del(struct rds_port_set *set, uint16_t port)
{
	set->bits[port / 8] &= (uint8_t) ~(1u << port % 8);
}

#endif
