/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>
#include <string.h>

#include "control_priv.h"

/* Does somebody else have the address of a port, and does its interface carry its frames? Looked at from the start
 * on, so that the log says it as soon as the box is there. */

#define PROBE_EVERY (30 * ONE_SECOND) /* a silent host is asked */
#define FRESH       (90 * ONE_SECOND) /* a claim: three probes without an answer end it */
#define MAC_FMT     "%02x:%02x:%02x:%02x:%02x:%02x"
#define MAC(m)      (m)[0], (m)[1], (m)[2], (m)[3], (m)[4], (m)[5]
#define IP_FMT      "%u.%u.%u.%u"
#define IP(ip)      (ip)[0], (ip)[1], (ip)[2], (ip)[3]

bool
control_claimed(const struct pbox_control *c, unsigned port)
{
	const struct address *a = &c->address[port];

	return a->claimed_at != 0 && c->now_ns - a->claimed_at < FRESH;
}

static void
watch_kernel(struct pbox_control *c, unsigned i)
{
	const struct pbox_port *p = &c->conf.port[i];
	const uint8_t *ip = (const uint8_t *)&p->nif.ip;
	struct address *a = &c->address[i];
	char ifname[PBOX_PORT_IFNAME] = "";
	bool has = pbox_port_kernel_has(p, ifname);

	if (has && a->kernel_if[0] == '\0')
		pbox_log(PBOX_LOG_WARN,
			"port %u (%s): the kernel has the address " IP_FMT
			" as well, on interface %s: two answer ARP, and workers reach one or the other: ip addr del " IP_FMT
			"/%u dev %s",
			p->conf.id, p->dev.name, IP(ip), ifname, IP(ip), p->nif.prefix_len, ifname);
	else if (!has && a->kernel_if[0] != '\0')
		pbox_log(PBOX_LOG_INFO, "port %u (%s): the kernel has its address no longer",
			p->conf.id, p->dev.name);
	memcpy(a->kernel_if, ifname, sizeof(ifname));
}

static void
watch_mtu(struct pbox_control *c, unsigned i)
{
	const struct pbox_port *p = &c->conf.port[i];
	uint16_t has = pbox_port_kernel_mtu(p);
	struct address *a = &c->address[i];

	if (has == 0 || has >= p->mtu) {
		a->mtu = 0;
		return;
	}
	/* what it was at the start is in the report */
	if (a->mtu == 0 && p->dev.mtu_kernel != has)
		pbox_log(PBOX_LOG_WARN,
			"port %u (%s): the MTU of interface %s is %u now, and the box sends %u: ip link set %s mtu %u",
			p->conf.id, p->dev.name, p->dev.kernel_if, has, p->mtu, p->dev.kernel_if,
			p->mtu);
	a->mtu = has;
}

static void
claimed(struct pbox_control *c, uint16_t id, const uint8_t mac[6])
{
	for (unsigned i = 0; i < c->conf.n_ports; i++) {
		const struct pbox_port *p = &c->conf.port[i];
		const uint8_t *ip = (const uint8_t *)&p->nif.ip;
		struct address *a = &c->address[i];

		if (p->conf.id != id)
			continue;
		if (!control_claimed(c, i) || memcmp(a->mac, mac, sizeof(a->mac)) != 0)
			pbox_log(PBOX_LOG_WARN,
				"port %u (%s): %s claims the address " IP_FMT
				": two answer ARP, and workers reach one or the other: give one of them another address (MAC " MAC_FMT
				")",
				p->conf.id, p->dev.name,
				memcmp(mac, p->nif.mac, 6) == 0
					? "another box with the same MAC address (or a loop in the network)"
					: "another host",
				IP(ip), MAC(mac));
		memcpy(a->mac, mac, sizeof(a->mac));
		a->claimed_at = c->now_ns;
	}
}

void
control_watch_addresses(struct pbox_control *c)
{
	bool probe = c->probed_at != 0 && c->now_ns - c->probed_at >= PROBE_EVERY;

	pthread_mutex_lock(&c->lock); /* telemetry reads it */
	for (unsigned i = 0; i < c->conf.n_cores; i++) {
		uint64_t n = pbox_stat_get(
			&pbox_dp_core_stats(c->conf.dp, i)[PBOX_CS_DROP_ARP_CONFLICT]);
		uint8_t mac[6];
		uint16_t id;

		if (n != c->conflicts[i] && pbox_dp_conflict(c->conf.dp, i, &id, mac))
			claimed(c, id, mac);
		c->conflicts[i] = n;
	}
	for (unsigned i = 0; i < c->conf.n_ports; i++) {
		watch_kernel(c, i);
		watch_mtu(c, i);
		if (probe)
			pbox_dp_probe(c->conf.dp, i);
	}
	if (probe || c->probed_at == 0)
		c->probed_at = c->now_ns; /* the first one went out with the announcement */
	pthread_mutex_unlock(&c->lock);
}
