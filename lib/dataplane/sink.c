/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <rte_cycles.h>

#include "core.h"

/* Headers towards a worker: from the few that are kept, or written anew. */
static const struct pbox_net_udp_template *
headers_of(struct core *c, const struct pbox_port *p, const struct pbox_peer *peer)
{
	uint32_t key = (peer->ip ^ peer->ip >> 16 ^ peer->udp ^ peer->local_udp) * 0x9E3779B1u;
	struct peer_header *h = &c->peer[key >> 16 & (PEERS - 1)];

	if (memcmp(&h->peer, peer, sizeof(*peer)) != 0) {
		h->peer = *peer;
		pbox_net_udp_template(
			&h->t, &p->nif, peer->local_udp, peer->mac, peer->ip, peer->udp, 0);
	}
	return &h->t;
}

/* Microseconds since this turn began, when the packet was fetched. */
static uint16_t
served_us(const struct core *c)
{
	uint64_t us = (uint64_t)((unsigned __int128)(rte_rdtsc() - c->tsc) * c->dp->us_mult >> 32);

	return us < UINT16_MAX ? (uint16_t)us : UINT16_MAX;
}

/* Bus address of parameter memory, and how far it is contiguous; 0: not in EAL memory. */
static size_t
bus_address(const struct pbox_dp *dp, const void *at, size_t len, rte_iova_t *iova)
{
	uintptr_t a = (uintptr_t)at;

	for (unsigned i = 0; i < dp->n_regions; i++) {
		const struct region *r = &dp->region[i];
		size_t page, in, page_size;

		if (a < r->base || a + len > r->end)
			continue;
		if (r->iova == NULL) {
			*iova = a;
			return len;
		}
		page = (a >> r->page_bits) - (r->base >> r->page_bits);
		page_size = (size_t)1 << r->page_bits;
		in = a & (page_size - 1);
		*iova = r->iova[page] + in;
		if (in + len <= page_size || r->iova[page + 1] == r->iova[page] + page_size)
			return len;
		return page_size - in;
	}
	return 0;
}

/* A segment that is the payload itself. Its reference count lives in its own private area and is
 * set up once (setup.c), so that cores do not share it. */
static struct rte_mbuf *
segment(struct core *c, const void *at, size_t len, rte_iova_t iova)
{
	struct rte_mbuf *e = rte_pktmbuf_alloc(c->headers);

	if (e == NULL)
		return NULL;
	rte_pktmbuf_attach_extbuf(
		e, (void *)(uintptr_t)at, iova, (uint16_t)len, rte_mbuf_to_priv(e));
	e->data_len = (uint16_t)len;
	e->pkt_len = (uint32_t)len;
	return e;
}

/* Headers in a small packet, the payload behind them where it is. NULL: no packets. */
static struct rte_mbuf *
frame_shared(struct core *c, const struct pbox_net_udp_template *t, const struct pbox_send *s)
{
	const uint8_t *at = s->payload;
	size_t left = s->hdr.length;
	struct rte_mbuf *m = rte_pktmbuf_alloc(c->headers), *tail = m;

	if (m == NULL)
		return NULL;
	core_frame_headers(rte_pktmbuf_mtod(m, void *), t, s, served_us(c), c->ip_id++);
	m->data_len = FRAME_HEADERS;
	m->pkt_len = FRAME_HEADERS + s->hdr.length;
	m->port = s->peer->port;
	while (left > 0) {
		rte_iova_t iova;
		size_t n = bus_address(c->dp, at, left, &iova);

		tail->next = n > 0 ? segment(c, at, n, iova) : NULL;
		if (tail->next == NULL) {
			rte_pktmbuf_free(m);
			return NULL;
		}
		tail = tail->next;
		m->nb_segs++;
		at += n;
		left -= n;
	}
	return m;
}

static void
core_send(void *ctx, const struct pbox_send *s)
{
	struct core *c = ctx;
	struct pbox_port *p = s->peer->port < ETHDEVS ? c->dp->port_of[s->peer->port] : NULL;
	const struct pbox_net_udp_template *t;
	struct rte_mbuf *m;

	if (p == NULL) {
		count(c, PBOX_CS_TX_DROPPED, 1);
		return;
	}
	t = headers_of(c, p, s->peer);
	if (s->hdr.length == 0) {
		m = core_frame_copy(c->headers, t, s, served_us(c), c->ip_id++);
	} else if (s->shared && p->dev.tx_segments) {
		m = frame_shared(c, t, s);
		count(c, PBOX_CS_TX_SHARED_BYTES, m != NULL ? s->hdr.length : 0);
	} else {
		m = core_frame_copy(
			p->pool[c->index % p->n_queues], t, s, served_us(c), c->ip_id++);
		/* of parameters: an echo is no matter */
		count(c, PBOX_CS_TX_COPIED_BYTES, m != NULL && s->shared ? s->hdr.length : 0);
	}
	if (m != NULL)
		core_tx(c, p->conf.id, m);
	else
		count(c, PBOX_CS_TX_NO_MBUF, 1);
}

static void
core_release(void *ctx, void *const *handle, unsigned n)
{
	(void)ctx;
	/* a train's packet has a reference for each of its frames */
	for (unsigned i = 0; i < n; i++)
		rte_pktmbuf_free(handle[i]);
}

static void
core_mail(void *ctx, const struct pbox_mail *m)
{
	struct core *c = ctx;

	/* as long as the other direction, and the control thread waits for answers (mail.c) */
	PBOX_ASSERT(rte_ring_sp_enqueue_elem(c->mail_out, (void *)(uintptr_t)m, sizeof(*m)) == 0);
}

const struct pbox_shard_ops core_ops = {
	.send = core_send, .release = core_release, .mail = core_mail};
