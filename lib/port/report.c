/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "port_priv.h"

void
pbox_port_describe(const struct pbox_port *p, FILE *to)
{
	const uint8_t *ip = (const uint8_t *)&p->nif.ip, *mac = p->nif.mac;
	struct rte_eth_link link = {0};

	fprintf(to, "port %u %s: driver %s, NUMA node ", p->conf.id, p->dev.name, p->dev.driver);
	fprintf(to, p->dev.node >= 0 ? "%d" : "any", p->dev.node);
	fprintf(to, ", address %u.%u.%u.%u/%u, MAC %02x:%02x:%02x:%02x:%02x:%02x, MTU %u%s", ip[0],
		ip[1], ip[2], ip[3], p->nif.prefix_len, mac[0], mac[1], mac[2], mac[3], mac[4],
		mac[5], p->mtu, p->dev.mtu_set != 0 ? "" : " (MTU is set outside DPDK: ip link)");
	if (p->started && rte_eth_link_get_nowait(p->conf.id, &link) == 0) {
		if (p->link_up == 0)
			fprintf(to, ", no link");
		else if (link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
			fprintf(to, ", link %u Mbit/s", link.link_speed);
		else
			fprintf(to, ", link up");
	}
	fprintf(to, "\n");
}

static void
put_queues(FILE *to, const struct pbox_port *p, const unsigned *lcore_of)
{
	fprintf(to, "port %u queues: %u of %u + %u descriptors,", p->conf.id, p->n_queues, p->n_rxd,
		p->n_txd);
	for (unsigned i = 0; i < p->conf.n_cores; i++)
		if (i < p->n_queues)
			fprintf(to, " queue %u lcore %u", i, lcore_of[p->conf.core[i]]);
		else
			fprintf(to, " lcore %u by ring", lcore_of[p->conf.core[i]]);
	fprintf(to, "; steering: %s", pbox_port_steering(p));
	if (!p->flow && p->steer_why[0] != '\0')
		fprintf(to, " (%s)", p->steer_why);
	if (p->n_queues > 1 && !p->flow)
		fprintf(to, ", RSS %s", p->dev.rss ? "on" : "as the device likes");
	fprintf(to, "\n");
}

static void
put_offloads(FILE *to, const struct pbox_port *p)
{
	bool ip = p->dev.rx_ip_checksum, udp = p->dev.rx_udp_checksum;

	fprintf(to, "port %u receive offloads: %s; transmit offloads: %s; answers: %s\n",
		p->conf.id,
		ip && udp ? "ip-checksum, udp-checksum"
		: ip      ? "ip-checksum"
		: udp     ? "udp-checksum"
			  : "none (checksums in software)",
		p->dev.tx_segments ? "multi-segs" : "none",
		p->dev.tx_segments ? "zero copy from parameter memory"
				   : "copied (the device does not take chained buffers)");
}

void
pbox_port_report(const struct pbox_port *p, const unsigned *lcore_of, FILE *to)
{
	char mem[24];

	pbox_port_describe(p, to);
	put_queues(to, p, lcore_of);
	put_offloads(to, p);
	fprintf(to, "port %u memory: %s in %u pool%s of %u packets of %u bytes\n", p->conf.id,
		pbox_budget_size(p->pool_bytes, mem, sizeof(mem)), p->n_queues,
		p->n_queues > 1 ? "s" : "", p->n_mbufs, p->data_room);
}
