/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <rte_cycles.h>

#include <pbox_auth.h>

#include "core.h"

/* A packet as its pool keeps it: one segment, nobody else's. NULL: there is none. */
static inline struct rte_mbuf *
take(struct stash *s)
{
	if (s->n == 0) {
		if (rte_mempool_get_bulk(s->pool, (void **)s->m, STASH) != 0)
			return NULL;
		s->n = STASH;
	}
	return s->m[--s->n];
}

static inline void
put_back(struct stash *s, struct rte_mbuf *m)
{
	s->m[s->n++] = m;
}

static struct rte_mbuf *
take_header(struct core *c)
{
	struct rte_mbuf *m = take(&c->header);

	if (m != NULL) {
		m->data_off = RTE_PKTMBUF_HEADROOM;
		m->data_len = 0; /* else a used one has no room */
		m->ol_flags = 0;
		m->tx_offload = 0;
	}
	return m;
}

/* Microseconds since this turn began, when the packet was fetched. One reading of the clock serves
 * all answers with the same payload. */
static uint16_t
served_us(struct core *c, const void *payload)
{
	if (payload == NULL || payload != c->payload) {
		uint64_t us =
			(uint64_t)((unsigned __int128)(rte_rdtsc() - c->tsc) * c->dp->us_mult >>
				   32);

		c->served = us < UINT16_MAX ? (uint16_t)us : UINT16_MAX;
		c->payload = payload;
	}
	return c->served;
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

/* A segment that is the payload itself (setup.c). */
static struct rte_mbuf *
segment(struct core *c, const void *at, size_t len, rte_iova_t iova)
{
	struct rte_mbuf *e = take(&c->segment);

	if (e == NULL)
		return NULL;
	e->buf_addr = (void *)(uintptr_t)at;
	rte_mbuf_iova_set(e, iova);
	e->buf_len = (uint16_t)len;
	e->data_off = 0;
	e->data_len = (uint16_t)len;
	e->pkt_len = (uint32_t)len;
	return e;
}

/* The tag, in a packet of its own behind the payload. */
static struct rte_mbuf *
tag_segment(struct core *c, const struct pbox_send *s, const void *header)
{
	struct rte_mbuf *m = take_header(c);

	if (m == NULL)
		return NULL;
	pbox_auth_tag(s->tag_key, header, s->digest, rte_pktmbuf_mtod(m, void *));
	m->data_len = PBOX_TAG_LEN;
	m->pkt_len = PBOX_TAG_LEN;
	return m;
}

/* Headers in a small packet, the payload behind them where it is. NULL: no packets. */
static struct rte_mbuf *
frame_shared(struct core *c, const struct pbox_net_udp_origin *t, const struct pbox_send *s)
{
	const uint8_t *at = s->payload;
	size_t left = s->hdr.length;
	struct rte_mbuf *m = take_header(c), *tail = m;

	if (m == NULL)
		return NULL;
	core_frame_headers(rte_pktmbuf_mtod(m, void *), t, s, served_us(c, s->payload), c->ip_id++);
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
	if (s->tag_key != NULL) {
		tail->next = tag_segment(
			c, s, rte_pktmbuf_mtod_offset(m, const void *, PBOX_NET_HEADERS_LEN));
		if (tail->next == NULL) {
			rte_pktmbuf_free(m);
			return NULL;
		}
		m->nb_segs++;
		m->pkt_len += PBOX_TAG_LEN;
	}
	return m;
}

static struct rte_mbuf *
frame_copied(struct core *c, const struct pbox_port *p, const struct pbox_net_udp_origin *t,
	const struct pbox_send *s)
{
	bool small = s->hdr.length == 0;
	struct rte_mbuf *m =
		small ? take_header(c) : rte_pktmbuf_alloc(p->pool[c->index % p->n_queues]);

	if (m == NULL)
		return NULL;
	if (core_frame_copy(m, t, s, served_us(c, NULL), c->ip_id++))
		return m;
	if (small)
		put_back(&c->header, m);
	else
		rte_pktmbuf_free(m);
	return NULL;
}

static inline __attribute__((always_inline)) void
send_frame(struct core *c, const struct pbox_send *s)
{
	struct pbox_port *p = s->peer->port < ETHDEVS ? c->dp->port_of[s->peer->port] : NULL;
	const struct pbox_net_udp_origin *t;
	struct rte_mbuf *m;

	if (p == NULL) {
		count(c, PBOX_CS_TX_DROPPED, 1);
		return;
	}
	t = &c->dp->from[s->peer->port];
	if (s->shared && s->hdr.length > 0 && p->dev.tx_segments) {
		m = frame_shared(c, t, s);
		count(c, PBOX_CS_TX_SHARED_BYTES, m != NULL ? s->hdr.length : 0);
	} else {
		m = frame_copied(c, p, t, s);
		/* of parameters: an echo is no matter */
		count(c, PBOX_CS_TX_COPIED_BYTES, m != NULL && s->shared ? s->hdr.length : 0);
	}
	if (m != NULL)
		core_tx(c, p->conf.id, m);
	else
		count(c, PBOX_CS_TX_NO_MBUF, 1);
}

static void
core_send(void *ctx, const struct pbox_send *s)
{
	struct core *c = ctx;

	if (unlikely(c->sampled)) {
		uint64_t began = rte_rdtsc() - counted_tsc(c);

		send_frame(c, s);
		c->answer_tsc += rte_rdtsc() - counted_tsc(c) - began;
	} else {
		send_frame(c, s);
	}
}

static void
core_release(void *ctx, void *const *handle, unsigned n)
{
	(void)ctx;
	/* a train's packet has a reference for each of its frames */
	rte_pktmbuf_free_bulk((struct rte_mbuf **)(uintptr_t)handle, n);
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
