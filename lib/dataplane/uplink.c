/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Of a rack's box (section 18), the control thread's side: sums that go up and come back, datagrams of uplinks, and the way to the upper
 * box, which the box asks ARP for. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_errno.h>

#include <pbox_arp.h>

#include "core.h"

#define RING_SUMS 4096
#define PACKETS   511
#define ARP_LEN   (RTE_ETHER_MIN_LEN - RTE_ETHER_CRC_LEN)

static struct rte_ring *
sums_ring(const struct core *c, const char *kind)
{
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "pbox_%s_%u", kind, c->index);
	return rte_ring_create_elem(name, sizeof(struct pbox_up), RING_SUMS, c->node,
		RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
}

int
uplink_create(struct pbox_dp *dp)
{
	unsigned room = 0;

	_Static_assert(sizeof(struct pbox_up) % 4 == 0, "rings want it");
	for (unsigned i = 0; i < dp->conf.n_ports; i++)
		if (dp->conf.port[i].mtu > room)
			room = dp->conf.port[i].mtu;
	dp->n_uplink = PACKETS;
	dp->uplink_pool = pbox_port_pool("pbox_uplink", PACKETS, PBOX_PORT_MBUF_PRIV,
		(uint16_t)(RTE_PKTMBUF_HEADROOM + room + 64), SOCKET_ID_ANY);
	dp->arp = calloc(dp->conf.n_ports, sizeof(*dp->arp));
	if (dp->uplink_pool == NULL || dp->arp == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < dp->conf.n_ports; i++)
		pbox_arp_init(&dp->arp[i], &dp->conf.port[i].nif, dp->conf.port[i].conf.gateway);
	for (unsigned i = 0; i < dp->conf.n_cores; i++) {
		struct core *c = dp->core[i];

		c->up = sums_ring(c, "sums");
		c->down = sums_ring(c, "versions");
		if (c->up == NULL || c->down == NULL)
			return -ENOMEM;
	}
	return 0;
}

void
uplink_destroy(struct pbox_dp *dp)
{
	rte_mempool_free(dp->uplink_pool);
	free(dp->arp);
}

/* ---- sums ------------------------------------------------------------------------------------ */

bool
pbox_dp_up(struct pbox_dp *dp, struct pbox_up *up)
{
	for (unsigned i = 0; i < dp->conf.n_cores; i++) {
		struct core *c = dp->core[dp->next_up];

		dp->next_up = (dp->next_up + 1) % dp->conf.n_cores;
		if (rte_ring_sc_dequeue_elem(c->up, up, sizeof(*up)) == 0)
			return true;
	}
	return false;
}

bool
pbox_dp_down(struct pbox_dp *dp, const struct pbox_up *up)
{
	struct core *c = dp->core[up->shard];

	if (rte_ring_sp_enqueue_elem(c->down, (void *)(uintptr_t)up, sizeof(*up)) != 0)
		return false;
	core_call(c);
	return true;
}

/* ---- datagrams ------------------------------------------------------------------------------- */

static int
uplink_port(const struct pbox_dp *dp, uint16_t ethdev)
{
	for (unsigned i = 0; i < dp->conf.n_ports; i++)
		if (dp->conf.port[i].conf.id == ethdev)
			return (int)i;
	return -1;
}

static void
arp_answered(struct pbox_dp *dp, const struct rte_mbuf *m)
{
	int i = uplink_port(dp, m->port);
	struct pbox_net_pkt pkt;

	if (i >= 0 && pbox_net_parse(rte_pktmbuf_mtod(m, const void *), m->data_len,
			      &dp->conf.port[i].nif, 0, &pkt) == PBOX_NET_ARP_REPLY)
		pbox_arp_reply(&dp->arp[i], &pkt, pbox_dp_now(dp) / 1000);
}

bool
pbox_dp_uplink_packet(
	struct pbox_dp *dp, const struct rte_mbuf *m, unsigned *link, struct pbox_dp_datagram *d)
{
	*link = dp->conf.uplinks;
	if (dp->conf.uplinks == 0)
		return false;
	if (m->l2_len == 0) {
		arp_answered(dp, m);
		return true;
	}
	pbox_dp_datagram(m, d);
	*link = (unsigned)dp->conf.control_port - 1u - d->peer.local_udp;
	return *link < dp->conf.uplinks;
}

static void
arp_ask(struct pbox_dp *dp, const struct pbox_port *p, uint32_t ip)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(dp->uplink_pool);
	uint8_t *at;

	if (m == NULL)
		return;
	at = rte_pktmbuf_mtod(m, uint8_t *);
	memset(at, 0, ARP_LEN);
	pbox_net_arp_request(at, rte_pktmbuf_tailroom(m), &p->nif, ip);
	m->data_len = ARP_LEN;
	m->pkt_len = m->data_len;
	core_send_for_control(dp, p, m);
}

/* The first port from which there is a way. */
static const struct pbox_port *
port_to(struct pbox_dp *dp, uint32_t ip, struct pbox_arp_answer *way)
{
	for (unsigned i = 0; i < dp->conf.n_ports; i++) {
		*way = pbox_arp_lookup(&dp->arp[i], ip, pbox_dp_now(dp) / 1000);
		if (way->state != PBOX_ARP_NO_ROUTE)
			return &dp->conf.port[i];
	}
	return NULL;
}

void
pbox_dp_uplink_send(struct pbox_dp *dp, unsigned link, uint32_t ip, uint16_t udp,
	const struct iovec *iov, unsigned n, unsigned bytes)
{
	struct pbox_arp_answer way;
	const struct pbox_port *p = port_to(dp, ip, &way);
	struct pbox_net_to to = {.src_port = (uint16_t)(dp->conf.control_port - 1u - link),
		.dst_port = udp,
		.ip = ip};
	struct rte_mbuf *m;
	uint8_t *at;

	if (p == NULL)
		return;
	if (way.ask)
		arp_ask(dp, p, way.next_hop);
	if (way.state != PBOX_ARP_RESOLVED)
		return;
	m = rte_pktmbuf_alloc(dp->uplink_pool);
	if (m == NULL || PBOX_NET_HEADERS_LEN + bytes > rte_pktmbuf_tailroom(m)) {
		rte_pktmbuf_free(m);
		return;
	}
	memcpy(to.mac, way.mac, sizeof(to.mac));
	at = rte_pktmbuf_mtod(m, uint8_t *);
	pbox_net_udp_header_to(
		&dp->from[p->conf.id], at, &to, (uint16_t)bytes, dp->control_ip_id++);
	at += PBOX_NET_HEADERS_LEN;
	for (unsigned i = 0; i < n; i++) {
		memcpy(at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	m->data_len = (uint16_t)(PBOX_NET_HEADERS_LEN + bytes);
	m->pkt_len = m->data_len;
	core_send_for_control(dp, p, m);
}
