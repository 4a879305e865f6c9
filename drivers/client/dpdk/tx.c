/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <sched.h>

#include <rte_cycles.h>
#include <rte_memory.h>
#include <rte_pause.h>

#include "dpdk.h"

#define PATIENCE_NS (20 * NS_MS)      /* for a full queue */
#define LOOK_US     UINT64_C(1000000) /* between two looks at the ARP table */
#define REF_LEAST   256               /* bytes: less is copied faster than chained */
#define REF_PIECES  4                 /* in one datagram */
#define ECT0        0x02
#define QUIET_NS    NS_S /* for sent packets to leave the queue */

/* Transmit: next hops, the queue, and packets that are chained to the caller's memory (zero copy) or have a copy. */

/* ---- peers ---------------------------------------------------------------------------- */

struct dpdk_peer *
dpdk_peer(struct dpdk *s, struct pbox_client_peer *peer)
{
	struct dpdk_peer *p;

	if (peer->cookie > 0)
		return &s->peer[peer->cookie - 1];
	if (s->n_peers == DPDK_PEERS)
		return NULL;
	p = &s->peer[s->n_peers++];
	p->ip = peer->addr.sin_addr.s_addr;
	p->udp = rte_be_to_cpu_16(peer->addr.sin_port);
	peer->cookie = s->n_peers;
	return p;
}

void
dpdk_ask(struct dpdk *s, uint32_t ip)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(s->port->headers);

	if (m == NULL)
		return; /* it is asked again */
	pbox_port_pad(m, pbox_net_arp_request(rte_pktmbuf_mtod(m, void *), rte_pktmbuf_tailroom(m),
				 &s->port->p.nif, ip));
	dpdk_tx(s, m);
	dpdk_tx_flush(s);
}

bool
dpdk_peer_resolve(struct dpdk *s, struct dpdk_peer *p, enum pbox_arp_state *state)
{
	uint64_t now = dpdk_now_ns() / NS_US;
	struct pbox_arp_answer a = pbox_arp_lookup(&s->arp, p->ip, now);

	*state = a.state;
	if (a.ask)
		dpdk_ask(s, a.next_hop);
	if (a.state == PBOX_ARP_RESOLVED) {
		if (!p->ready || memcmp(p->mac, a.mac, 6) != 0)
			pbox_net_udp_template(
				&p->t, &s->port->p.nif, s->udp, a.mac, p->ip, p->udp, ECT0);
		memcpy(p->mac, a.mac, 6);
		p->ready = true;
		p->look_at = now + LOOK_US;
	}
	/* frames still go to a next hop that does not answer ARP any more: the timers of the protocol find out
	 * whether it is gone */
	return p->ready;
}

static bool
reachable(struct dpdk *s, struct dpdk_peer *p, uint64_t now_us)
{
	enum pbox_arp_state state;

	return p != NULL && ((p->ready && now_us < p->look_at) || dpdk_peer_resolve(s, p, &state));
}

/* ---- the queue ------------------------------------------------------------------------ */

void
dpdk_tx_flush(struct dpdk *s)
{
	unsigned sent = 0;
	uint64_t until = 0;

	while (sent < s->n_out) {
		unsigned n = rte_eth_tx_burst(s->id, 0, s->out + sent, (uint16_t)(s->n_out - sent));

		sent += n;
		if (n > 0) {
			until = 0;
			continue;
		}
		if (until == 0)
			until = dpdk_now_ns() + PATIENCE_NS;
		else if (dpdk_now_ns() >= until)
			break;
		if (s->o.sleep)
			sched_yield(); /* the other side may need this CPU */
		else
			rte_pause();
	}
	if (sent < s->n_out) { /* losses like any other: loss recovery retransmits */
		s->t.tx_failed += s->n_out - sent;
		rte_pktmbuf_free_bulk(s->out + sent, s->n_out - sent);
	}
	s->n_out = 0;
}

void
dpdk_tx(struct dpdk *s, struct rte_mbuf *m)
{
	s->out[s->n_out++] = m;
	if (s->n_out == DPDK_TX_BURST)
		dpdk_tx_flush(s);
}

/* ---- datagrams ------------------------------------------------------------------------ */

/** Bus address of a byte that EAL knows. (rte_mem_virt2iova() asks the kernel for each.) */
static rte_iova_t
bus_of(const struct rte_memseg_list *l, uintptr_t a)
{
	const struct rte_memseg *page = rte_mem_virt2memseg((const void *)a, l);

	if (page == NULL || page->iova == RTE_BAD_IOVA)
		return RTE_BAD_IOVA;
	return page->iova + (a - (uintptr_t)page->addr);
}

/** Bus address of the caller's memory; false: the port cannot read there as one piece. */
static bool
dpdk_bus_address(struct dpdk *s, const void *at, size_t len, rte_iova_t *iova)
{
	struct dpdk_region *r = &s->region;
	uintptr_t a = (uintptr_t)at;

	if (a < r->base || a + len > r->end) {
		const struct rte_memseg_list *l = rte_mem_virt2memseg_list(at);

		if (l == NULL || (l->external && s->virtio_user))
			return false;
		*r = (struct dpdk_region){.base = (uintptr_t)l->base_va,
			.end = (uintptr_t)l->base_va + l->len,
			.list = l,
			.va = rte_eal_iova_mode() == RTE_IOVA_VA && !l->external};
		if (a + len > r->end)
			return false;
	}
	if (r->va) {
		*iova = a;
		return true;
	}
	*iova = bus_of(r->list, a);
	return *iova != RTE_BAD_IOVA && bus_of(r->list, a + len - 1) == *iova + len - 1;
}

static void
ref_done(void *addr __rte_unused, void *refs)
{
	--*(unsigned *)refs;
}

static struct rte_mbuf *
segment(struct dpdk *s, const struct iovec *v)
{
	struct rte_mbuf_ext_shared_info *info;
	struct rte_mbuf *m;
	rte_iova_t iova;

	if (!dpdk_bus_address(s, v->iov_base, v->iov_len, &iova))
		return NULL;
	m = rte_pktmbuf_alloc(s->port->headers);
	if (m == NULL)
		return NULL;
	info = rte_mbuf_to_priv(m);
	info->free_cb = ref_done;
	info->fcb_opaque = &s->refs;
	rte_mbuf_ext_refcnt_set(info, 1);
	rte_pktmbuf_attach_extbuf(m, v->iov_base, iova, (uint16_t)v->iov_len, info);
	m->data_len = (uint16_t)v->iov_len;
	s->refs++;
	return m;
}

/** Zero copy: headers in a small packet, chained to the payload in the caller's memory. NULL: it has to be copied. */
static struct rte_mbuf *
build_ref(struct dpdk *s, const struct pbox_net_udp_template *t, const struct pbox_client_tx *d)
{
	uint32_t head = PBOX_NET_HEADERS_LEN + (uint32_t)d->iov[0].iov_len;
	struct rte_mbuf *m, *tail;

	if (d->n < 2 || d->n > s->max_segs || d->n > REF_PIECES + 1 || d->bytes < REF_LEAST)
		return NULL;
	tail = m = rte_pktmbuf_alloc(s->port->headers);
	if (m == NULL)
		return NULL;
	if (head > rte_pktmbuf_tailroom(m))
		goto fail;
	pbox_net_udp_header(t, rte_pktmbuf_mtod(m, void *), (uint16_t)d->bytes, s->ip_id++);
	memcpy(rte_pktmbuf_mtod_offset(m, uint8_t *, PBOX_NET_HEADERS_LEN), d->iov[0].iov_base,
		d->iov[0].iov_len);
	m->data_len = (uint16_t)head;
	m->pkt_len = PBOX_NET_HEADERS_LEN + d->bytes;
	for (uint32_t i = 1; i < d->n; i++) {
		tail->next = segment(s, &d->iov[i]);
		if (tail->next == NULL)
			goto fail;
		tail = tail->next;
		m->nb_segs++;
	}
	s->t.tx_by_ref += d->bytes - d->iov[0].iov_len;
	return m;
fail:
	rte_pktmbuf_free(m);
	return NULL;
}

static struct rte_mbuf *
build_copy(struct dpdk *s, const struct pbox_net_udp_template *t, const struct pbox_client_tx *d)
{
	uint32_t len = PBOX_NET_HEADERS_LEN + d->bytes, at = PBOX_NET_HEADERS_LEN;
	struct rte_mbuf *m;
	uint8_t *frame;

	m = rte_pktmbuf_alloc(s->port->headers);
	if (m != NULL && len > rte_pktmbuf_tailroom(m)) {
		rte_pktmbuf_free(m);
		m = rte_pktmbuf_alloc(s->port->p.pool[0]);
	}
	if (m == NULL)
		return NULL;
	if (len > rte_pktmbuf_tailroom(m)) {
		rte_pktmbuf_free(m);
		return NULL;
	}
	frame = rte_pktmbuf_mtod(m, uint8_t *);
	pbox_net_udp_header(t, frame, (uint16_t)d->bytes, s->ip_id++);
	for (uint32_t i = 0; i < d->n; i++) {
		memcpy(frame + at, d->iov[i].iov_base, d->iov[i].iov_len);
		at += (uint32_t)d->iov[i].iov_len;
	}
	pbox_port_pad(m, len);
	s->t.tx_copied += d->bytes - d->iov[0].iov_len;
	return m;
}

void
dpdk_send(struct pbox_client_transport *t, const struct pbox_client_tx *d, unsigned n)
{
	struct dpdk *s = (struct dpdk *)t;
	uint64_t now = dpdk_now_ns() / NS_US;

	for (unsigned i = 0; i < n; i++) {
		struct dpdk_peer *p = dpdk_peer(s, d[i].to);
		struct rte_mbuf *m = NULL;

		if (reachable(s, p, now)) {
			if (d[i].stays && s->by_ref)
				m = build_ref(s, &p->t, &d[i]);
			if (m == NULL)
				m = build_copy(s, &p->t, &d[i]);
		}
		if (m != NULL)
			dpdk_tx(s, m);
		else
			t->tx_failed++;
	}
	dpdk_tx_flush(s);
}

/*
 * Drivers free sent packets when they need the room, so that these may stay in the queue for long. That does not matter
 * if an answer comes, as it proves that they have left. Here none comes: ask the driver, and stop the queue if it cannot
 * say.
 */
void
dpdk_quiesce(struct pbox_client_transport *t)
{
	struct dpdk *s = (struct dpdk *)t;
	uint64_t until = dpdk_now_ns() + QUIET_NS;
	int rc = 0;

	dpdk_tx_flush(s);
	while (s->refs > 0 && rc >= 0 && dpdk_now_ns() < until) {
		rc = rte_eth_tx_done_cleanup(s->id, 0, 0);
		if (rc <= 0)
			rte_delay_us_sleep(10);
	}
	if (s->refs == 0)
		return;
	dpdk_rx_free(s);
	if (rte_eth_dev_stop(s->id) == 0)
		rte_eth_dev_start(s->id);
	/* a driver that kept them even so gets no more of the caller's memory: all is copied */
	if (s->refs > 0)
		s->by_ref = false;
}
