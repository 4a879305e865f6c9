/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <poll.h>
#include <unistd.h>

#include <rte_pause.h>
#include <rte_prefetch.h>

#include "dpdk.h"

/* Receive: packets become views of datagrams, ARP and ICMP are answered; and waiting. */

#define SPIN_NS (2 * NS_US)  /* with idle=sleep: polls so long before it sleeps */
#define NAP_NS  (50 * NS_US) /* between looks */

static void
dpdk_answer_in_place(struct dpdk *s, struct rte_mbuf *m, size_t len)
{
	m->ol_flags = 0;
	pbox_port_pad(m, len);
	dpdk_tx(s, m);
	dpdk_tx_flush(s);
}

/** A datagram for us becomes a view of its packet, which stays; everything else ends here. */
static void
dpdk_take(struct dpdk *s, struct rte_mbuf *m)
{
	const struct pbox_port *p = &s->port->p;
	struct pbox_net_pkt k;
	uint8_t *frame;

	if (m->nb_segs > 1 && rte_pktmbuf_linearize(m) != 0) {
		s->t.rx_failed++;
		rte_pktmbuf_free(m);
		return;
	}
	frame = rte_pktmbuf_mtod(m, uint8_t *);
	switch (pbox_net_parse(frame, m->data_len, &p->nif, pbox_port_rx_flags(p, m), &k)) {
	case PBOX_NET_UDP:
		if (k.dst_port != s->udp)
			break;
		s->view[s->n_viewed] = (struct pbox_client_rx){.data = frame + k.payload_offset,
			.len = k.payload_len,
			.ecn = k.ecn,
			.from = {.sin_family = AF_INET,
				.sin_port = rte_cpu_to_be_16(k.src_port),
				.sin_addr = {k.src_ip}}};
		s->viewed[s->n_viewed++] = m;
		return;
	case PBOX_NET_ARP_REQUEST:
		dpdk_answer_in_place(s, m, pbox_net_arp_reply(frame, m->data_len, &p->nif, &k));
		return;
	case PBOX_NET_ICMP_ECHO:
		dpdk_answer_in_place(s, m, pbox_net_icmp_echo_reply(frame, &p->nif, &k));
		return;
	case PBOX_NET_ARP_REPLY:
		pbox_arp_reply(&s->arp, &k, dpdk_now_ns() / NS_US);
		break;
	case PBOX_NET_DROP_IP_TRUNCATED:
	case PBOX_NET_DROP_IP_CHECKSUM:
	case PBOX_NET_DROP_IP_FRAGMENT:
	case PBOX_NET_DROP_UDP_LENGTH:
		s->t.rx_failed++; /* it may have been for us */
		break;
	default:
		break;
	}
	rte_pktmbuf_free(m);
}

unsigned
dpdk_rx_burst(struct dpdk *s)
{
	unsigned n = 0;

	for (uint16_t left = s->port->p.n_queues; left > 0 && n == 0; left--) {
		s->rx_queue = s->rx_queue + 1u < s->port->p.n_queues ? s->rx_queue + 1 : 0;
		n = rte_eth_rx_burst(s->id, s->rx_queue, s->ahead, DPDK_RX_BURST);
	}
	return n;
}

unsigned
dpdk_recv(struct pbox_client_transport *t, const struct pbox_client_rx **out)
{
	struct dpdk *s = (struct dpdk *)t;
	unsigned n = s->n_ahead;

	if (s->n_viewed > 0)
		rte_pktmbuf_free_bulk(s->viewed, s->n_viewed);
	s->n_viewed = s->n_ahead = 0;
	if (n == 0)
		n = dpdk_rx_burst(s);
	for (unsigned i = 0; i < n; i++)
		rte_prefetch0(rte_pktmbuf_mtod(s->ahead[i], void *));
	for (unsigned i = 0; i < n; i++)
		dpdk_take(s, s->ahead[i]);
	t->more = n == DPDK_RX_BURST;
	*out = s->view;
	return s->n_viewed;
}

void
dpdk_rx_free(struct dpdk *s)
{
	rte_pktmbuf_free_bulk(s->viewed, s->n_viewed);
	rte_pktmbuf_free_bulk(s->ahead, s->n_ahead);
	s->n_viewed = s->n_ahead = 0;
}

/* ---- waiting -------------------------------------------------------------------------- */

/** Sleep for a moment, unless dpdk_wake() ends it. */
static void
dpdk_nap(struct dpdk *s, uint64_t ns)
{
	struct pollfd p = {.fd = s->event, .events = POLLIN};
	struct timespec ts = {0, (long)ns};
	uint64_t drain;

	atomic_store(&s->sleeping, true);
	if (!atomic_load(&s->woken) && ppoll(&p, 1, &ts, NULL) > 0 &&
		read(s->event, &drain, sizeof(drain)) < 0)
		p.revents = 0; /* nothing to drain: it was the wake of an earlier nap */
	atomic_store(&s->sleeping, false);
}

void
dpdk_wait(struct pbox_client_transport *t, uint64_t ns)
{
	struct dpdk *s = (struct dpdk *)t;
	uint64_t begin = dpdk_now_ns(), end = begin + ns, now = begin;

	if (s->o.sleep && t->gather_ns > 0 && t->gather_ns < ns && s->n_ahead == 0 &&
		!atomic_exchange(&s->woken, false)) {
		dpdk_nap(s, t->gather_ns);
		return;
	}
	while (s->n_ahead == 0 && !atomic_exchange(&s->woken, false)) {
		s->n_ahead = dpdk_rx_burst(s);
		if (s->n_ahead > 0)
			break;
		now = dpdk_now_ns();
		if (now >= end)
			break;
		if (s->o.sleep && now - begin >= SPIN_NS)
			dpdk_nap(s, end - now < NAP_NS ? end - now : NAP_NS);
		else
			rte_pause();
	}
}

void
dpdk_wake(struct pbox_client_transport *t)
{
	struct dpdk *s = (struct dpdk *)t;
	uint64_t one = 1;

	atomic_store(&s->woken, true);
	if (atomic_load(&s->sleeping) && write(s->event, &one, sizeof(one)) < 0)
		return; /* the counter is full: it wakes the thread as well */
}
