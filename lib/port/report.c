/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include "port_priv.h"

struct text {
	char *buf;
	size_t size, used;
};

static void report_put(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void
report_put(struct text *t, const char *fmt, ...)
{
	size_t room = t->used < t->size ? t->size - t->used : 0;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(room > 0 ? t->buf + t->used : NULL, room, fmt, ap);
	va_end(ap);
	t->used += n > 0 ? (size_t)n : 0;
}

static void
put_device(struct text *t, const struct pbox_port *p)
{
	const uint8_t *ip = (const uint8_t *)&p->nif.ip, *mac = p->nif.mac;
	struct rte_eth_link link = {0};

	report_put(t, "port %u %s: driver %s, NUMA node ", p->conf.id, p->dev.name, p->dev.driver);
	report_put(t, p->dev.node >= 0 ? "%d" : "any", p->dev.node);
	report_put(t, ", address %u.%u.%u.%u/%u, MAC %02x:%02x:%02x:%02x:%02x:%02x, MTU %u%s",
		ip[0], ip[1], ip[2], ip[3], p->nif.prefix_len, mac[0], mac[1], mac[2], mac[3],
		mac[4], mac[5], p->mtu,
		p->dev.mtu_set != 0 ? "" : " (MTU is set outside DPDK: ip link)");
	if (p->started && rte_eth_link_get_nowait(p->conf.id, &link) == 0) {
		if (p->link_up == 0)
			report_put(t, ", no link");
		else if (link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
			report_put(t, ", link %u Mbit/s", link.link_speed);
		else
			report_put(t, ", link up");
	}
	report_put(t, "\n");
}

static void
put_queues(struct text *t, const struct pbox_port *p, const unsigned *lcore_of)
{
	report_put(t, "port %u queues: %u of %u + %u descriptors,", p->conf.id, p->n_queues,
		p->n_rxd, p->n_txd);
	for (unsigned i = 0; i < p->conf.n_cores; i++)
		if (i < p->n_queues)
			report_put(t, " queue %u lcore %u", i, lcore_of[p->conf.core[i]]);
		else
			report_put(t, " lcore %u by ring", lcore_of[p->conf.core[i]]);
	report_put(t, "; steering: %s", pbox_port_steering(p));
	if (!p->flow && p->steer_why[0] != '\0')
		report_put(t, " (%s)", p->steer_why);
	if (p->n_queues > 1 && !p->flow)
		report_put(t, ", RSS %s", p->dev.rss ? "on" : "as the device likes");
	report_put(t, "\n");
}

static void
put_offloads(struct text *t, const struct pbox_port *p)
{
	bool ip = p->dev.rx_ip_checksum, udp = p->dev.rx_udp_checksum;

	report_put(t, "port %u receive offloads: %s; transmit offloads: %s; answers: %s\n",
		p->conf.id,
		ip && udp ? "ip-checksum, udp-checksum"
		: ip      ? "ip-checksum"
		: udp     ? "udp-checksum"
			  : "none (checksums in software)",
		p->dev.tx_segments ? "multi-segs" : "none",
		p->dev.tx_segments ? "zero copy from parameter memory"
				   : "copied (the device does not take chained buffers)");
}

size_t
pbox_port_report(const struct pbox_port *p, const unsigned *lcore_of, char *buf, size_t size)
{
	struct text t = {buf, size, 0};
	char mem[24];

	put_device(&t, p);
	put_queues(&t, p, lcore_of);
	put_offloads(&t, p);
	report_put(&t, "port %u memory: %s in %u pool%s of %u packets of %u bytes\n", p->conf.id,
		pbox_budget_size(p->pool_bytes, mem, sizeof(mem)), p->n_queues,
		p->n_queues > 1 ? "s" : "", p->n_mbufs, p->data_room);
	return t.used;
}
