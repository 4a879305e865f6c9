/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Receive: packets of queues and of other cores; ARP and ping are answered here. */

#include <rte_prefetch.h>

#include <pbox_port_mbuf.h>

#include "core.h"

bool
pbox_dp_checksum_partial(const void *frame, const struct pbox_net_pkt *pkt)
{
	const uint8_t *ip = (const uint8_t *)frame + pkt->l3_offset;
	const uint8_t *udp = ip + PBOX_NET_IP_LEN;
	uint8_t pseudo[12];
	uint16_t check;

	memcpy(pseudo, ip + 12, 8);
	pseudo[8] = 0;
	pseudo[9] = 17;
	memcpy(pseudo + 10, udp + 4, 2);
	memcpy(&check, udp + 6, 2);
	return check != 0 && check == pbox_net_sum_fold(pbox_net_sum(pseudo, sizeof(pseudo), 0));
}

static void
rx_drop(struct core *c, struct rte_mbuf *m, enum pbox_core_stat why)
{
	core_count(c, why, 1);
	rte_pktmbuf_free(m);
}

/* Answer with @p len bytes in the packet that asked. */
static void
rx_answer_in_place(struct core *c, const struct pbox_port *p, struct rte_mbuf *m, size_t len)
{
	pbox_port_pad(m, len);
	m->ol_flags = 0;
	core_tx(c, p->conf.id, m);
}

/* A keep-alive that was answered here. The control thread may know of it, if it has time. */
static void
rx_answered(struct core *c, struct rte_mbuf *m)
{
	core_count(c, PBOX_CS_RX_DATA, 1);
	core_count(c, PBOX_CS_FRAMES, 1);
	core_count(c, PBOX_CS_FRAMES_DATA, 1);
	if (core_to_control(c, PBOX_GATE_ANSWERED, m))
		core_count(c, PBOX_CS_PINGS_REPORTED, 1);
	else
		rte_pktmbuf_free(m);
}

static void
to_control(struct core *c, struct rte_mbuf *m)
{
	struct pbox_dp_datagram d;
	enum pbox_gate gate;

	pbox_dp_datagram(m, &d);
	gate = pbox_shard_gate(c->shard, d.payload, d.len, &d.peer, c->now_ns);
	if (gate == PBOX_GATE_ANSWERED)
		rx_answered(c, m);
	else if (gate == PBOX_GATE_RATE)
		rx_drop(c, m, PBOX_CS_DROP_CONTROL_RATE);
	else if (!core_to_control(c, gate, m))
		rx_drop(c, m, PBOX_CS_DROP_CONTROL_FULL);
	else
		core_count(c, PBOX_CS_RX_CONTROL, 1);
}

static void
hand_flush(struct core *c, struct handoff *h)
{
	unsigned sent = rte_ring_sp_enqueue_burst(h->ring, (void **)h->m, h->n, NULL);

	core_count(c, PBOX_CS_HANDOFF_OUT, sent);
	for (unsigned i = sent; i < h->n; i++)
		rx_drop(c, h->m[i], PBOX_CS_DROP_HANDOFF_FULL);
	h->n = 0;
	core_call(h->owner);
}

/* A datagram for this port: to control, to our shard, or to the core whose shard it is. */
static void
dispatch(struct core *c, const struct pbox_port *p, struct rte_mbuf *m,
	const struct pbox_net_pkt *pkt)
{
	unsigned owner = pkt->dst_port - c->dp->conf.control_port - 1u;
	struct handoff *h;

	if (pkt->dst_port == c->dp->conf.control_port) {
		to_control(c, m);
		return;
	}
	if (owner >= c->dp->conf.n_cores || (c->dp->serves[p->conf.id] >> owner & 1) == 0) {
		if (!core_uplink_rx(c, pkt->dst_port, m))
			rx_drop(c, m, PBOX_CS_DROP_UDP_UNKNOWN_PORT);
		return;
	}
	if (owner == c->index) {
		core_datagram_rx(c, m);
		return;
	}
	h = &c->to[owner];
	*looked_of(c->dp, m) = atomic_load_explicit(&c->emptied_ns, memory_order_relaxed);
	h->m[h->n++] = m;
	if (h->n == BURST)
		hand_flush(c, h);
}

static void
look_at_checksum(struct core *c, const struct pbox_port *p, const struct rte_mbuf *m,
	const struct pbox_net_pkt *pkt)
{
	if (p->dev.rx_udp_checksum &&
		(m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_BAD)
		core_count(c, PBOX_CS_UDP_CHECKSUM_BAD, 1);
	/* only the CRC of a frame reads its payload, which knows better (R2.4) */
	if (pkt->udp_checksum == PBOX_NET_UDP_UNCHECKED &&
		pbox_dp_checksum_partial(rte_pktmbuf_mtod(m, const void *), pkt))
		core_count(c, PBOX_CS_UDP_CHECKSUM_PARTIAL, 1);
}

/* One packet. Exactly one counter says what became of it. */
static void
rx_receive(struct core *c, struct pbox_port *p, struct rte_mbuf *m)
{
	struct pbox_net_pkt pkt;
	enum pbox_net_verdict v;
	void *frame;

	if (m->nb_segs > 1 && rte_pktmbuf_linearize(m) != 0) {
		rx_drop(c, m, PBOX_CS_DROP_SEGMENTS);
		return;
	}
	m->port = p->conf.id; /* not all drivers set it, and a bond sets its slave's */
	frame = rte_pktmbuf_mtod(m, void *);
	v = pbox_net_parse(frame, m->data_len, &p->nif, pbox_port_rx_flags(p, m), &pkt);
	switch (v) {
	case PBOX_NET_UDP:
		m->l2_len = pkt.l3_offset;
		look_at_checksum(c, p, m, &pkt);
		dispatch(c, p, m, &pkt);
		break;
	case PBOX_NET_ARP_REQUEST:
		core_count(c, PBOX_CS_RX_ARP_REQUEST, 1);
		rx_answer_in_place(c, p, m, pbox_net_arp_reply(frame, m->data_len, &p->nif, &pkt));
		break;
	case PBOX_NET_ICMP_ECHO:
		core_count(c, PBOX_CS_RX_ICMP_ECHO, 1);
		rx_answer_in_place(c, p, m, pbox_net_icmp_echo_reply(frame, &p->nif, &pkt));
		break;
	case PBOX_NET_ARP_REPLY:
		/* answers go where requests came from: nothing to learn, but for uplinks */
		core_count(c, PBOX_CS_RX_ARP_REPLY, 1);
		if (!core_uplink_arp(c, m))
			rte_pktmbuf_free(m);
		break;
	case PBOX_NET_DROP_ARP_CONFLICT:
		core_note_conflict(c, p, &pkt);
		/* fallthrough */
	default:
		rx_drop(c, m, PBOX_CS_FIRST_DROP + (v - PBOX_NET_DROP_FIRST));
		break;
	}
}

static unsigned
take_burst(struct core *c, struct pbox_port *p, uint16_t queue)
{
	struct rte_mbuf *m[BURST];
	unsigned n = rte_eth_rx_burst(p->conf.id, queue, m, BURST);
	uint64_t bytes = 0;

	/* 104 bytes of headers are in two lines */
	for (unsigned i = 0; i < n; i++) {
		rte_prefetch0(rte_pktmbuf_mtod(m[i], void *));
		rte_prefetch0(rte_pktmbuf_mtod_offset(m[i], void *, RTE_CACHE_LINE_SIZE));
	}
	for (unsigned i = 0; i < n; i++) {
		bytes += m[i]->pkt_len;
		rx_receive(c, p, m[i]);
	}
	if (n > 0) {
		core_count(c, PBOX_CS_RX_PACKETS, n);
		core_count(c, PBOX_CS_RX_BYTES, bytes);
	}
	return n;
}

unsigned
core_take_received(struct core *c)
{
	unsigned total = 0;

	for (unsigned q = 0; q < c->n_rxq; q++) {
		struct pbox_port *p = c->rxq[q].port;
		unsigned n, got = 0;

		do { /* a device that likes long bursts gets the answers to all of it together */
			n = take_burst(c, p, c->rxq[q].queue);
			got += n;
		} while (n == BURST && got < p->dev.burst);
		c->left |= n == BURST;
		total += got;
	}
	for (unsigned i = 0; total > 0 && i < c->n_targets; i++)
		if (c->to[c->target[i]].n > 0)
			hand_flush(c, &c->to[c->target[i]]);
	return total;
}

unsigned
core_take_handed(struct core *c)
{
	struct rte_mbuf *m[BURST];
	unsigned total = 0;

	for (unsigned r = 0; r < c->n_rx_in; r++) {
		unsigned n = rte_ring_sc_dequeue_burst(c->rx_in[r], (void **)m, BURST, NULL);

		for (unsigned i = 0; i < n; i++) {
			uint64_t looked_ns = *looked_of(c->dp, m[i]);

			if (looked_ns < c->looked_ns)
				c->looked_ns = looked_ns;
			core_datagram_rx(c, m[i]);
		}
		if (n > 0)
			core_count(c, PBOX_CS_HANDOFF_IN, n);
		c->left |= n == BURST;
		total += n;
	}
	return total;
}
