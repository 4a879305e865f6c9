/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What a lane sends: packets, frames in them, and bursts. And the word that it has failed. */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <rte_ethdev.h>

#include "testps.h"

void
lane_fail(struct lane *l, const char *fmt, ...)
{
	va_list ap;

	if (atomic_load(&l->failed))
		return;
	va_start(ap, fmt);
	vsnprintf(l->err.text, sizeof(l->err.text), fmt, ap);
	va_end(ap);
	atomic_store(&l->failed, true);
}

struct rte_mbuf *
lane_packet(struct lane *l, struct rte_mempool *pool)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);

	if (m == NULL)
		lane_count(l, LS_NO_MBUF, 1);
	return m;
}

/* What was written into a head last has been read by a device, or by another core: to write there again is to
 * wait, unless it was asked for long before. So heads wait in a queue, of two halves, for a while, and each is asked
 * for when another is taken: many at once would wait for each other. */
struct rte_mbuf *
lane_head(struct lane *l)
{
	struct rte_mbuf **half = &l->stock[l->stock_end % RTE_DIM(l->stock)];
	const uint8_t *soon;

	if (l->stock_end - l->stock_next <= LANE_STOCK &&
		rte_pktmbuf_alloc_bulk(l->heads, half, LANE_STOCK) == 0)
		l->stock_end += LANE_STOCK;
	if (l->stock_next == l->stock_end)
		return lane_packet(l, l->heads); /* the last ones, or none */
	if (l->stock_end - l->stock_next > LANE_STOCK) {
		soon = rte_pktmbuf_mtod(l->stock[(l->stock_next + LANE_STOCK) % RTE_DIM(l->stock)],
			const uint8_t *);
		ask_to_write(soon);
		ask_to_write(soon + RTE_CACHE_LINE_SIZE);
	}
	return l->stock[l->stock_next++ % RTE_DIM(l->stock)];
}

void
lane_flush(struct lane *l, struct out *o)
{
	uint16_t n = rte_eth_tx_burst(o->id, o->queue, o->m, (uint16_t)o->n);

	if (n == o->n) {
		o->n = 0;
		return;
	}
	lane_count(l, LS_TX_FULL, 1);
	o->n -= n;
	memmove(o->m, o->m + n, o->n * sizeof(o->m[0]));
}

void
lane_out(struct lane *l, unsigned worker, struct rte_mbuf *m)
{
	struct out *o = &l->out[lane_port_of(l->t, worker)];
	uint32_t loss = atomic_load_explicit(&l->t->loss, memory_order_relaxed);

	lane_count(l, LS_TX_PACKETS, 1);
	lane_count(l, LS_TX_BYTES, m->pkt_len);
	if (__builtin_expect(loss != 0, 0) && (uint32_t)pbox_random_u64(&l->random) < loss) {
		lane_count(l, LS_LOSS, 1);
		rte_pktmbuf_free(m);
		return;
	}
	if (o->n == RTE_DIM(o->m)) /* a control frame in front of a full queue */
		lane_flush(l, o);
	if (o->n == RTE_DIM(o->m)) {
		rte_pktmbuf_free(m);
		return;
	}
	o->m[o->n++] = m;
}

void
lane_frame(struct lane *l, unsigned worker, const struct pbox_net_udp_template *to,
	const struct pbox_hdr *h, const void *payload)
{
	struct rte_mbuf *m = lane_packet(l, l->frames);
	unsigned tag = h->token != 0 ? tag_of(l) : 0; /* before a session there are no keys */
	uint8_t *p;

	if (m == NULL)
		return; /* lost like any other */
	p = rte_pktmbuf_mtod(m, uint8_t *);
	if (FRAME_HEADERS + h->length + tag > rte_pktmbuf_tailroom(m)) {
		rte_pktmbuf_free(m);
		return;
	}
	pbox_net_udp_header(to, p, (uint16_t)(PBOX_HDR_LEN + h->length + tag), l->ip_id++);
	if (payload != NULL)
		memcpy(p + FRAME_HEADERS, payload, h->length);
	if (tag > 0) {
		struct pbox_hdr tagged = *h;

		tagged.flags |= PBOX_F_AUTH;
		pbox_auth_seal(
			l->t->keys[worker].worker, l->t->auth, p + PBOX_NET_HEADERS_LEN, &tagged);
	} else {
		pbox_frame_seal(p + PBOX_NET_HEADERS_LEN, h);
	}
	m->data_len = (uint16_t)(FRAME_HEADERS + h->length + tag);
	m->pkt_len = m->data_len;
	lane_out(l, worker, m);
}

void
lane_datagram(struct lane *l, unsigned worker, const struct pbox_net_udp_template *to,
	const struct pbox_client_tx *d)
{
	struct rte_mbuf *m = lane_packet(l, l->frames);
	uint8_t *p;

	if (m == NULL)
		return; /* lost like any other */
	p = (uint8_t *)rte_pktmbuf_append(m, (uint16_t)(PBOX_NET_HEADERS_LEN + d->bytes));
	if (p == NULL) {
		rte_pktmbuf_free(m);
		return;
	}
	pbox_net_udp_header(to, p, (uint16_t)d->bytes, l->ip_id++);
	p += PBOX_NET_HEADERS_LEN;
	for (uint32_t k = 0; k < d->n; k++) {
		memcpy(p, d->iov[k].iov_base, d->iov[k].iov_len);
		p += d->iov[k].iov_len;
	}
	lane_out(l, worker, m);
}
