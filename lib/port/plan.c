/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <rte_common.h>

#include "pbox_port.h"

unsigned
pbox_port_plan_cores(int node, bool (*wanted)(unsigned lcore, const void *ctx), const void *ctx,
	const struct pbox_port_core *core, unsigned n, uint16_t *out)
{
	unsigned k = 0;

	if (wanted != NULL) {
		for (unsigned i = 0; i < n; i++)
			if (wanted(core[i].lcore, ctx))
				out[k++] = (uint16_t)i;
		return k;
	}
	for (unsigned i = 0; i < n; i++)
		if (node < 0 || core[i].node < 0 || core[i].node == node)
			out[k++] = (uint16_t)i;
	/* a far core is better than none */
	for (unsigned i = 0; k == 0 && i < n; i++)
		out[i] = (uint16_t)i;
	return k > 0 ? k : n;
}

unsigned
pbox_port_plan_far(int node, const struct pbox_port_core *core, const uint16_t *serves, unsigned n,
	uint16_t *out)
{
	unsigned k = 0;

	for (unsigned i = 0; i < n; i++)
		if (node >= 0 && core[serves[i]].node >= 0 && core[serves[i]].node != node)
			out[k++] = (uint16_t)i;
	return k;
}

unsigned
pbox_port_plan_queues(unsigned wanted, unsigned max_rxq, unsigned max_txq, unsigned n_cores)
{
	unsigned n = wanted > 0 ? wanted : n_cores;

	n = RTE_MIN(n, n_cores);
	n = RTE_MIN(n, max_rxq);
	n = RTE_MIN(n, max_txq);
	return RTE_MIN(n, (unsigned)PBOX_PORT_QUEUES);
}

uint32_t
pbox_port_plan_room(unsigned mtu, uint32_t min_buffer, uint32_t max_buffer)
{
	/* Ethernet, two VLAN tags, FCS */
	uint32_t frame = mtu + 14 + 8 + 4, least = RTE_MAX(frame, min_buffer), room;

	room = RTE_ALIGN_CEIL(least, 1024u);
	if (room < 2048)
		room = 2048;
	if (room + RTE_PKTMBUF_HEADROOM > UINT16_MAX)
		room = least;
	if (max_buffer > 0 && room > max_buffer)
		room = max_buffer;
	room += RTE_PKTMBUF_HEADROOM;
	return room <= UINT16_MAX ? room : 0;
}

uint32_t
pbox_port_plan_mbufs(
	const struct pbox_port_conf *c, unsigned n_queues, unsigned n_rxd, unsigned n_txd)
{
	/* every core that gets this queue's packets may hold its share of them */
	uint32_t hold = c->hold * RTE_ALIGN_MUL_CEIL(c->n_cores, n_queues) / n_queues;
	/* bursts in work, hand-off and control rings, caches of the cores */
	uint32_t moving = 1024 + c->n_cores * (PBOX_PORT_CACHE * 3 / 2 + 64);

	return hold + n_rxd + n_txd + moving;
}
