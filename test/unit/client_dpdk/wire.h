/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef WIRE_H
#define WIRE_H

/** @file The other end of a port made of rings: a host with the address of a box. */

#include "dpdk.h"

#define WIRE_OWN "10.9.0.2"
#define WIRE_BOX "10.9.0.1"

struct wire {
	uint16_t id; /* the port of the transport */
	struct rte_ring *in, *out;
	struct rte_mempool *pool;
	struct pbox_net_if box; /* we */
	atomic_bool stop;
	pthread_t thread;
};

void wire_eal(void);
/** A new port; @p room: packets that it can send before it is full. */
struct wire *wire_open(unsigned room);
void wire_close(struct wire *w);
/** Answer ARP from a thread of our own, until wire_quiet. */
void wire_arp(struct wire *w);
void wire_quiet(struct wire *w);
/** A packet that the port has sent, or NULL. */
struct rte_mbuf *wire_take(struct wire *w);
/** Let the port receive @p len bytes. */
void wire_give(struct wire *w, const void *frame, size_t len);
/** The same for a datagram from the box's UDP port @p from, with @p tos. */
void wire_datagram(struct wire *w, const struct dpdk *s, uint16_t from, uint16_t to,
	const void *data, size_t len, uint8_t tos);
/** All packets of the pools are back. */
bool wire_clean(const struct wire *w, const struct dpdk_port *p);

#endif /* WIRE_H */
