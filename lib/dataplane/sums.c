/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Of a rack's box (section 18), a core's side: its sums to the control thread, versions from there, and packets for uplinks. */

#include "core.h"

bool
core_up(void *core, const struct pbox_up *up)
{
	struct core *c = core;

	if (rte_ring_sp_enqueue_elem(c->up, (void *)(uintptr_t)up, sizeof(*up)) != 0)
		return false;
	waker_call(&c->dp->control);
	return true;
}

unsigned
core_take_down(struct core *c)
{
	struct pbox_up up[16];
	unsigned n = rte_ring_sc_dequeue_burst_elem(c->down, up, sizeof(*up), 16, NULL);

	for (unsigned i = 0; i < n; i++)
		pbox_shard_down(c->shard, &up[i], c->now_ns);
	return n;
}

bool
core_uplink_rx(struct core *c, uint16_t dst_port, struct rte_mbuf *m)
{
	const struct pbox_dp_conf *conf = &c->dp->conf;

	if ((unsigned)conf->control_port - 1u - dst_port >= conf->uplinks ||
		!core_to_control(c, PBOX_GATE_SESSION, m))
		return false;
	core_count(c, PBOX_CS_RX_CONTROL, 1);
	return true;
}

bool
core_uplink_arp(struct core *c, struct rte_mbuf *m)
{
	if (c->dp->conf.uplinks == 0)
		return false;
	m->l2_len = 0; /* so the control thread knows it: that of a datagram is none */
	return core_to_control(c, PBOX_GATE_SESSION, m);
}
