/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* ARP that the box sends unasked: it announces its address, asks whether another host has it, and notes who claims it.
 * Requests of others are answered by rx.c. */

#include <errno.h>

#include "core.h"

static int
send_arp(struct pbox_dp *dp, unsigned port, uint32_t from)
{
	const struct pbox_port *p = &dp->conf.port[port];
	struct pbox_net_if nif = p->nif;
	struct rte_mbuf *m = rte_pktmbuf_alloc(dp->control_pool);
	size_t len;
	uint8_t *at;

	if (m == NULL)
		return -ENOBUFS;
	at = rte_pktmbuf_mtod(m, uint8_t *);
	memset(at, 0, RTE_ETHER_MIN_LEN - RTE_ETHER_CRC_LEN);
	nif.ip = from;
	len = pbox_net_arp_request(at, rte_pktmbuf_tailroom(m), &nif, p->nif.ip);
	PBOX_ASSERT(len > 0 && len <= RTE_ETHER_MIN_LEN - RTE_ETHER_CRC_LEN);
	m->data_len = RTE_ETHER_MIN_LEN - RTE_ETHER_CRC_LEN;
	m->pkt_len = m->data_len;
	return core_send_for_control(dp, p, m);
}

int
pbox_dp_announce(struct pbox_dp *dp, unsigned port)
{
	return send_arp(dp, port, dp->conf.port[port].nif.ip);
}

int
pbox_dp_probe(struct pbox_dp *dp, unsigned port)
{
	return send_arp(dp, port, 0);
}

bool
pbox_dp_conflict(const struct pbox_dp *dp, unsigned core, uint16_t *port, uint8_t mac[6])
{
	uint64_t v = atomic_load_explicit(&dp->core[core]->conflict, memory_order_relaxed);

	*port = (uint16_t)(v >> 48);
	for (unsigned i = 6; i-- > 0; v >>= 8)
		mac[i] = (uint8_t)v;
	return (mac[0] | mac[1] | mac[2] | mac[3] | mac[4] | mac[5]) != 0;
}

void
core_note_conflict(struct core *c, const struct pbox_port *p, const struct pbox_net_pkt *pkt)
{
	uint64_t mac = (uint64_t)p->conf.id;

	for (unsigned i = 0; i < sizeof(pkt->arp_mac); i++)
		mac = mac << 8 | pkt->arp_mac[i];
	atomic_store_explicit(&c->conflict, mac, memory_order_relaxed);
}
